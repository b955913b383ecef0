"""The table on simulated machines of 16 cores, on which somebody else's job is in the way.

It takes the whole machine 100 s after the first stages began, as these end: whoever asks then waits for 300 s. Nothing
fails there, since payloads do not run.
"""

from functools import cache
from itertools import chain, combinations, cycle, product
from random import Random

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable
from asa.backends.simulated.policies import scheduler
from asa.backends.simulated.site import PlanningBackend

from asa.estimators import WaitBank
from asa.metrics import measure
from asa.records import Cancelled, StageEnded, StageStarted
from asa.runner import Run, run_all
from asa.spec import load_workflow
from asa.strategies import load_strategy
from asa.timeline import timeline
from pairs.gives_back import GivesBack
from pairs.kinds import KINDS
from pairs.plain import ending_of, only_written, started_early
from pairs.rows import GIVEN_BACK, RACES, STRATEGIES, Row, alone, given_back, paired

FULL = pytest.mark.full
CORES = 16
SITES = {
    "cores": Machine("m", 1, CORES),
    "nodes of 8": Machine("m", 2, 8),
    "whole nodes": Machine("m", 2, 8, whole_nodes=True),
}
PLANS = ("asa-asks", "asa-naive-asks")  # strategies that ask a batch system which plans
SIMULATED = tuple(sorted({*STRATEGIES, *PLANS, RACES, "oracle"} - {"pool"}))  # whose tasks are of a dask cluster

OTHERWISE = [name for name, kind in KINDS.items() if not kind.fails_at_times]
"""Kinds that differ from each other where nothing fails."""


@pytest.fixture(scope="module")
def workflow_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")

    @cache
    def made(row):
        path = folder / "row.toml"
        for stage in row.stages:
            (folder / f"{stage.name}.sh").write_text("#!/bin/sh\ntrue\n")
        path.write_text(row.text)
        return load_workflow(path)

    return lambda row: made(Row("", row.kinds, row.how, row.behind))


class Written:
    """A new journal, in memory."""

    entries = ()

    def __init__(self):
        self.written = []

    def append(self, *entries):
        self.written += entries


def run(row, workflow, site):
    others = np.array([(100, 300, 300, CORES)], dtype=np.int64).reshape(-1, 4).T
    table = JobTable(*others)
    if row.strategy in PLANS:
        core = scheduler("openccs", {}).core(CORES, table, now=0)
        world = PlanningBackend(Engine(CORES, table, now=0, core=core), site)
    else:
        world = SimulatedBackend(Engine(CORES, table, now=0), site)
    how = load_strategy(row.strategy)
    if row.gives_back:
        how = GivesBack(how, row.tried[-1], GIVEN_BACK[row.gives_back])
    journal = Written()
    only_written(world, lambda: journal.written)
    return run_all(world, [Run(workflow, how, bank=WaitBank("last"), journal=journal)])[0], how


def wrong_in(row, workflow, site):
    """Return what of a row is not as the plain model has it; empty if nothing."""
    result, how = run(row, workflow, site)
    ending = ending_of(row.stages, pays=False)
    if result.outcome != "completed":
        return f"{result.outcome}: {result.reason}"
    starts = [(r.stages[0], r.time_s) for r in result.records if isinstance(r, StageStarted)]
    ends = [(r.stages[0], r.time_s) for r in result.records if isinstance(r, StageEnded)]
    done = sorted(name for name, state in ending.states.items() if state == "done")
    if not sorted(name for name, _ in starts) == sorted(name for name, _ in ends) == done:
        return f"began {starts}, ended {ends}; {done} were to"
    began, ended = dict(starts), dict(ends)
    for stage in row.stages:
        if any(began[stage.name] < ended[name] for name in stage.after if name in ended and stage.name in began):
            return f"{stage.name} began before one of {stage.after} had ended"
    # other jobs of a list of tasks may go on with it once one was given back, which frees those that wait for its end
    if not row.gives_back and (early := started_early(row.stages, result.records)):
        return "; ".join(early)
    measure(result.run.workflow, result.records)
    timeline(result.records, result.run.workflow)
    cancelled = [r for r in result.records if isinstance(r, Cancelled) and r.reason == "tried"]
    if row.gives_back and len(cancelled) != how.given_back:
        return f"given back {how.given_back} times, cancelled {len(cancelled)} times"
    return ""


def check(rows, workflow_of):
    """Try rows, each with the machine that it is for; raises AssertionError with all that are wrong."""
    wrong = []
    for row, site in rows:
        try:
            why = wrong_in(row, workflow_of(row), SITES[site])
        except Exception as error:  # noqa: BLE001 - the other rows are tried, too
            why = repr(error)
        wrong += [f"{row}; on {site}: {why}"] if why else []
    assert wrong == []


def rows_of(kind):
    """Make the rows of a kind: under each strategy with all that may follow, given back, and with each other kind."""
    rows = [*alone(kind, SIMULATED), *given_back(kind, SIMULATED)]
    rows += paired(kind, OTHERWISE, SIMULATED) if kind in OTHERWISE else []
    return list(zip(rows, cycle(SITES), strict=False))


def test_any_two_things_in_which_rows_differ_are_together_in_a_row():
    """But for the next job of a kind without one, and kinds with each other that differ only where payloads run."""
    rows = [(row, site) for kind in KINDS for row, site in rows_of(kind)]
    alike = [(row.kinds[0], row.strategy, row.behind, row.gives_back, site) for row, site in rows if not row.kinds[1:]]
    for values in combinations(zip(*alike, strict=True), 2):
        missing = set(product(*map(set, values))) - set(zip(*values, strict=True))
        assert all(GIVEN_BACK.get(when) == "next" and not KINDS[kind].has("continues") for kind, when in missing)
    pairs = {(row.how, frozenset(row.kinds)) for row, _ in rows if row.kinds[1:]}
    assert pairs == {(how, frozenset(two)) for how, *two in product(("then", "and"), OTHERWISE, OTHERWISE)}


@FULL
@pytest.mark.parametrize("kind", KINDS)
def test_each_row_ends_as_it_is_to(kind, workflow_of):
    check(rows_of(kind), workflow_of)


def test_some_of_these_rows(workflow_of):
    check(Random(46).sample(list(chain.from_iterable(map(rows_of, KINDS))), 250), workflow_of)
