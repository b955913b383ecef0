"""Windows from a scheduler's run, and timed decisions about them."""

from itertools import pairwise

import numpy as np
import pytest
from asa.backends.bbsched.exact import Exact
from asa.backends.bbsched.genetic import Genetic
from asa.backends.bbsched.methods import BBSched
from asa.backends.bbsched.scheduler import WindowScheduler, make_load
from asa.backends.bbsched.system import System
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.table import NEVER, JobTable

from asa.studies.bbsched.windows import DECIDERS, Decider, fullest, harvest, time_decisions
from asa.studies.bbsched.workloads import BUFFER, Workload


@pytest.fixture(scope="module")
def crowded():
    """Return a log of more jobs than a small machine can run."""
    rng = np.random.default_rng(3)
    submit, run = np.sort(rng.integers(0, 900, 200)), rng.integers(60, 300, 200)
    demands = {BUFFER: rng.integers(0, 40, 200)}
    table = JobTable(submit, run, run, rng.integers(1, 11, 200))
    return Workload("crowded", System(20, {BUFFER: 50}), table, demands, "wfp", 0, 900)


def test_all_windows_are_met_that_were_decided(crowded):
    scheduler = WindowScheduler(crowded.system, BBSched(), order="wfp", window=6)
    GeneralCore(make_load(crowded.system, crowded.table, dict(crowded.demands)), scheduler, now=0).run(NEVER - 1)
    met = harvest(crowded, window=6, jobs=200)
    assert len(met) == scheduler.decisions > 100
    assert max(len(problem.window) for problem in met) == 6
    for problem in met:
        assert len(problem.jobs) + len(problem.forced) >= 1
        assert 0 < problem.free.nodes[0] <= 20
        assert 0 <= problem.free.shared[0] <= 50


def test_only_the_first_jobs_are_scheduled(crowded):
    few = harvest(crowded, jobs=30)
    assert 0 < len(few) < len(harvest(crowded))
    assert max(len(problem.window) for problem in few) <= 20


def test_the_fullest_are_the_quarter_in_which_most_jobs_fit(crowded):
    met = harvest(crowded)
    chosen = fullest(met)
    assert len(chosen) == len(met) // 4
    counts = [len(problem.jobs) for problem in chosen]
    assert all(more >= less for more, less in pairwise(counts))
    assert sorted((len(problem.jobs) for problem in met), reverse=True)[: len(chosen)] == counts
    assert fullest(met[:2]) == [max(met[:2], key=lambda problem: len(problem.jobs))]


def test_decisions_are_timed(crowded):
    problems = fullest(harvest(crowded))
    exact, genetic = (
        time_decisions(Decider(name, solver, 20), problems, "fullest")
        for name, solver in (("exact", Exact()), ("genetic", Genetic()))
    )
    for told in (exact, genetic):
        assert told.windows == len(problems)
        assert 0 < told.median_s <= told.p99_s <= told.worst_s
    assert exact.exact == 1
    assert genetic.exact < 1
    assert (exact.solver, exact.window, exact.which) == ("exact", 20, "fullest")


def test_every_decider_has_a_name_of_its_own():
    """Its limits are found by this name."""
    assert len({(one.name, one.window) for one in DECIDERS}) == len(DECIDERS)
