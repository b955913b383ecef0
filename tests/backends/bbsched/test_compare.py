"""Methods compared over workloads: measures against plain sums over every second, and the tables made of them."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from asa.backends.bbsched.methods import METHODS, load_method
from asa.backends.bbsched.scheduler import WindowScheduler, make_load
from asa.backends.bbsched.system import JobKind, System
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.table import NEVER, JobTable
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError, UnknownNameError
from asa.studies.bbsched.comparison import Case, ComparedOutcome, WaitsOfPart, compare, methods_for, run_case
from asa.studies.bbsched.tables import (
    MEASURES,
    SSD_MEASURES,
    Measure,
    Rank,
    area,
    arrange,
    breakdown,
    change,
    kiviat,
    label,
    part_change,
    standings,
)
from asa.studies.bbsched.workloads import BUFFER, SSD, Workload

PLAIN = System(20, {BUFFER: 50_000})
HALVES = System([JobKind(10, {SSD: 128}), JobKind(10, {SSD: 256})], {BUFFER: 50_000})
BEGIN_S, END_S = 400, 1600


def a_workload(system=PLAIN, seed=0, jobs=150):
    """Draw many small jobs, some of which end at once, submitted over 2000 s, of which the middle is measured."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 2000, jobs))
    run = rng.integers(1, 300, jobs) * rng.choice([1, 4], jobs)
    table = JobTable(submit, run, run + rng.integers(0, 900, jobs), rng.integers(1, 11, jobs))
    demands = {BUFFER: np.where(rng.random(jobs) < 0.7, rng.integers(1, 50_001, jobs), 0)}
    if system.per_node:
        demands[SSD] = rng.integers(0, 257, jobs)
    return Workload("made-up", system, table, demands, "fcfs", BEGIN_S, END_S)


def starts(workload, method, window):
    """Return the start of each job."""
    scheduler = WindowScheduler(workload.system, load_method(method, workload.system), window=window)
    core = GeneralCore(make_load(workload.system, workload.table, dict(workload.demands)), scheduler, now=0)
    core.run(NEVER - 1)
    return core.start.tolist()


def timeless(outcome):
    return replace(outcome, decision_s=0.0, worst_decision_s=0.0)


def an_outcome(method="bbsched", workload="cori-s4", seed=0, **figures):
    figures = {
        "order": "fcfs", "nodes": 100, "burst_buffer_gb": 1, "jobs": 1, "offered_nodes": 0.5,
        "offered_burst_buffer": 0.5, "node_usage": 0.5, "burst_buffer_usage": 0.5, "ssd_usage": None,
        "wasted_ssd": None, "average_wait_s": 3600.0, "longest_wait_s": 7200, "average_slowdown": 2.0, "by_nodes": (),
        "by_burst_buffer": (), "by_run": (), "decisions": 1, "inexact": 0, "decision_s": 0.0, "worst_decision_s": 0.0,
    } | figures  # fmt: skip
    return ComparedOutcome(Case(workload, method, seed=seed), **figures)


# ---------------------------------------------------------------------- what is measured


@pytest.mark.parametrize("method", ["baseline", "bbsched"])
@pytest.mark.parametrize("system", [PLAIN, HALVES], ids=["plain", "halves"])
def test_usages_are_sums_over_every_second(system, method):
    workload = a_workload(system)
    outcome = run_case(workload, Case("made-up", method, window=5))
    jobs = list(zip(starts(workload, method, 5), workload.table.run.tolist(), strict=True))
    amounts = {"node_usage": (workload.table.cores, 20), "burst_buffer_usage": (workload.demands[BUFFER], 50_000)}
    if system is HALVES:
        amounts["ssd_usage"] = (workload.demands[SSD] * workload.table.cores, 10 * 128 + 10 * 256)
    for name, (asked, whole) in amounts.items():
        used = 0
        for second in range(BEGIN_S, END_S):
            running = [start <= second < start + run for start, run in jobs]
            assert asked[running].sum() <= whole
            used += asked[running].sum()
        assert getattr(outcome, name) == pytest.approx(used / (whole * (END_S - BEGIN_S)))
    assert (outcome.ssd_usage is None) == (outcome.wasted_ssd is None) == (system is PLAIN)
    assert outcome.burst_buffer_gb == 50_000


def test_what_is_offered_is_what_the_measured_jobs_hold():
    workload = a_workload()
    outcome = run_case(workload, Case("made-up", "baseline"))
    table = workload.table
    jobs = [job for job in range(len(table)) if BEGIN_S <= table.submit[job] < END_S]
    for offered, asked, whole in (
        (outcome.offered_nodes, table.cores, 20),
        (outcome.offered_burst_buffer, workload.demands[BUFFER], 50_000),
    ):
        held = sum(int(table.run[job]) * int(asked[job]) for job in jobs)
        assert offered == pytest.approx(held / (whole * (END_S - BEGIN_S)))


def test_waits_and_slowdowns_are_of_jobs_that_are_submitted_in_the_middle():
    workload = a_workload()
    outcome = run_case(workload, Case("made-up", "bbsched", window=5))
    table, waits, slowdowns = workload.table, [], []
    for job, start in enumerate(starts(workload, "bbsched", 5)):
        submit, run, request = (int(column[job]) for column in (table.submit, table.run, table.request))
        if BEGIN_S <= submit < END_S:
            waits.append(start - submit)
            if run >= 60 or run >= request / 10:
                slowdowns.append((start - submit + run) / run)
    assert 0 < len(slowdowns) < len(waits) == outcome.jobs < len(table)
    assert outcome.average_wait_s == pytest.approx(np.mean(waits))
    assert outcome.longest_wait_s == max(waits) > 0
    assert outcome.average_slowdown == pytest.approx(np.mean(slowdowns))


def test_breakdowns_are_of_all_jobs():
    outcome = run_case(a_workload(), Case("made-up", "bin-packing"))
    for parts in (outcome.by_nodes, outcome.by_burst_buffer, outcome.by_run):
        assert len(parts) > 1
        assert sum(part.jobs for part in parts) == outcome.jobs
        waited_s = sum(part.jobs * part.average_wait_s for part in parts)
        assert waited_s == pytest.approx(outcome.jobs * outcome.average_wait_s)
        assert all(part.most is None or part.least <= part.most < after.least for part, after in pairwise(parts))


def test_what_is_wasted_of_a_job_that_has_nodes_of_both_kinds():
    """Of 12 nodes used with 100 GB each, 10 have 128 GB and two 256 GB, for half of the measured time."""
    table = JobTable(*(np.array(column) for column in ([500], [600], [600], [12])))
    workload = replace(a_workload(HALVES), table=table, demands={BUFFER: np.array([0]), SSD: np.array([100])})
    outcome = run_case(workload, Case("made-up", "constrained-ssd"))
    whole = 10 * 128 + 10 * 256
    assert outcome.wasted_ssd == pytest.approx((10 * 28 + 2 * 156) / whole / 2)
    assert outcome.ssd_usage == pytest.approx(12 * 100 / whole / 2)


def test_decisions_are_counted_and_timed():
    exact, genetic = (run_case(a_workload(), Case("made-up", "bbsched", solver=name)) for name in ("exact", "genetic"))
    assert exact.decisions > 0 == exact.inexact
    assert 0 < genetic.inexact <= genetic.decisions
    assert 0 < exact.decision_s <= exact.worst_decision_s


@pytest.mark.full
def test_two_processes_find_what_one_finds():
    workloads = {("made-up", seed): a_workload(seed=seed) for seed in range(2)}
    cases = [Case("made-up", method, seed=seed) for seed in (1, 0) for method in ("bbsched", "baseline")]
    told = []
    one = compare(workloads, cases, on_done=told.append)
    two = compare(workloads, cases, processes=2)
    assert told == one
    assert [outcome.case for outcome in one] == cases
    assert [timeless(outcome) for outcome in one] == [timeless(outcome) for outcome in two]
    assert one[0].average_wait_s != one[2].average_wait_s


def test_the_paper_compares_eight_methods_and_seven_where_there_is_ssd():
    assert methods_for(a_workload()) == tuple(name for name in METHODS if name != "constrained-ssd")
    assert len(methods_for(a_workload())) == 8
    assert len(methods_for(a_workload(HALVES))) == 7


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case("made-up", "bbscheduler"), "no method is called 'bbscheduler'"),
        (Case("made-up", "bbsched", solver="genetics"), "no solver is called 'genetics'"),
        (Case("made-up", "bbsched", window=0), "a window of 0 cannot be"),
        (Case("made-up", "bbsched", starvation_bound=0), "a starvation_bound of 0 cannot be"),
        (Case("made-up", "constrained-ssd"), "has no resource of each node's own"),
    ],
)
def test_what_cannot_be_run_is_refused(case, message):
    with pytest.raises(InputError, match=message):
        run_case(a_workload(), case)


def test_a_workload_without_jobs_to_measure_is_refused_before_others_run():
    done = []
    empty = replace(a_workload(), begin_s=5000, end_s=6000, name="nothing")
    with pytest.raises(InputError, match="nothing: no job is submitted between"):
        compare(
            {("made-up", 0): a_workload(), ("nothing", 0): empty}, [Case("made-up", "baseline")], on_done=done.append
        )
    assert not done
    with pytest.raises(InputError, match="no job is submitted between"):
        run_case(empty, Case("nothing", "baseline"))


# ---------------------------------------------------------------------- what is made of it


def test_changes_are_from_seed_to_seed():
    """If every seed's value doubles, the change is certain, however much the seeds differ."""
    base = [an_outcome("baseline", seed=seed, average_wait_s=wait) for seed, wait in enumerate((10.0, 1000.0))]
    ours = [an_outcome(seed=seed, average_wait_s=wait) for seed, wait in enumerate((20.0, 2000.0))]
    found = change(ours, base, "average_wait_s")
    assert (found.mean, found.half) == pytest.approx((100, 0))
    assert math.isnan(change(ours, [replace(one, average_wait_s=0.0) for one in base], "average_wait_s").mean)


def test_who_is_best_tied_close_or_worse():
    """There are three seeds, which differ much from each other."""

    def some(*waits):
        return [an_outcome(seed=seed, average_wait_s=wait) for seed, wait in enumerate(waits)]

    methods = {
        "worse": some(1100, 2000, 11_001),
        "best": some(100, 1000, 10_000),
        "also best": some(10_000, 1000, 100),
        "tied": some(110, 1010, 10_090),
        "close": some(600, 900, 10_500),
    }
    told = standings(methods, Measure("average_wait_s", "", is_loss=True))
    assert told == {
        "worse": Rank.WORSE,
        "best": Rank.BEST,
        "also best": Rank.BEST,
        "tied": Rank.TIED,
        "close": Rank.CLOSE,
    }
    assert standings(methods, Measure("average_wait_s", ""))["worse"] == Rank.BEST


def test_one_seed_tells_no_interval():
    methods = {"best": [an_outcome(node_usage=0.8)], "tied": [an_outcome(node_usage=0.795)]}
    methods["worse"] = [an_outcome(node_usage=0.78)]
    assert list(standings(methods, MEASURES[0]).values()) == [Rank.BEST, Rank.TIED, Rank.WORSE]


def test_outcomes_are_put_side_by_side():
    cases = [("baseline", 1, 20, "exact"), ("bbsched", 0, 10, "exact"), ("baseline", 0, 20, "exact")]
    cases.append(("baseline", 0, 20, "genetic"))
    outcomes = [
        replace(an_outcome(), case=Case("cori-s4", method, window, solver, seed=seed))
        for method, seed, window, solver in cases
    ]
    grid = arrange(outcomes, 20, "exact")
    assert grid == {"cori-s4": {"baseline": [outcomes[2], outcomes[0]]}}


def test_breakdowns_are_of_the_jobs_of_all_seeds():
    first = an_outcome(by_nodes=(WaitsOfPart(1, 8, 3, 100.0), WaitsOfPart(1024, None, 1, 40.0)))
    second = an_outcome(seed=1, by_nodes=(WaitsOfPart(1, 8, 1, 20.0),))
    assert breakdown([first, second], "by_nodes") == [WaitsOfPart(1, 8, 4, 80.0), WaitsOfPart(1024, None, 1, 40.0)]
    assert part_change([first, second], [second], "by_nodes", 1) == pytest.approx(300)
    assert part_change([first], [second], "by_nodes", 1024) is None
    assert part_change([first], [second], "by_nodes", 9) is None


@pytest.mark.parametrize(
    ("by", "least", "most", "words"),
    [
        ("by_nodes", 1, 8, "1-8"),
        ("by_nodes", 1024, None, "1024-"),
        ("by_burst_buffer", 0, 0, "none"),
        ("by_burst_buffer", 1, 19_999, "0-20"),
        ("by_burst_buffer", 200_000, None, "200-"),
        ("by_run", 0, 599, "0-10m"),
        ("by_run", 600, 3599, "10m-1h"),
        ("by_run", 43_200, None, "12h-"),
    ],
)
def test_classes_of_jobs_have_names(by, least, most, words):
    assert label(by, WaitsOfPart(least, most, 1, 0.0)) == words


def test_a_kiviat_graph_is_from_the_worst_to_the_best():
    """Waits and slowdowns are normalised by their reciprocals: 1/2 is a third of the way from 1/4 to 1."""
    figures = {"baseline": (0.6, 0.9, 4.0, 8.0), "weighted": (0.7, 0.9, 2.0, 2.0), "bbsched": (0.8, 0.9, 1.0, 4.0)}
    names = [one.name for one in MEASURES]
    methods = {method: [an_outcome(**dict(zip(names, of, strict=True)))] for method, of in figures.items()}
    found = kiviat(methods, MEASURES)
    assert found["baseline"] == pytest.approx([0, 1, 0, 0])
    assert found["weighted"] == pytest.approx([0.5, 1, 1 / 3, 1])
    assert found["bbsched"] == pytest.approx([1, 1, 1, 1 / 3])
    assert area(found["bbsched"]) == pytest.approx((1 + 1 + 1 / 3 + 1 / 3) / 4)
    assert area(np.ones(6)) == 1


@given(st.lists(st.tuples(*[st.floats(0.01, 1e6)] * 6), min_size=1, max_size=8))
def test_somebody_is_at_either_end_of_each_axis(rows):
    names = [one.name for one in SSD_MEASURES]
    methods = {str(at): [an_outcome(**dict(zip(names, row, strict=True)))] for at, row in enumerate(rows)}
    shares = np.array(list(kiviat(methods, SSD_MEASURES).values()))
    assert ((shares >= 0) & (shares <= 1)).all()
    assert (shares.max(axis=0) == 1).all()
    for column, one in zip(shares.T, SSD_MEASURES, strict=True):
        values = np.array([row[names.index(one.name)] for row in rows])
        best = values.argmin() if one.is_loss else values.argmax()
        assert column[best] == 1
        assert column.min() in {0, 1}


def test_an_unknown_name_is_mended():
    with pytest.raises(UnknownNameError, match="Did you mean 'bbsched'"):
        run_case(a_workload(), Case("made-up", "bbshced"))
