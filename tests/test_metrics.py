"""The paper's metrics, on records written by hand."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from this_machine import Place

from asa.backend import JobState
from asa.elements import parse_array
from asa.metrics import idle_times, judge, measure, without
from asa.records import (
    Ended,
    Observed,
    Requeued,
    Resized,
    RunEnded,
    RunResumed,
    RunStarted,
    StageEnded,
    StageStarted,
    Started,
    Submitted,
)
from asa.strategies import Keep
from asa.workflow import Stage, Workflow

FLOW = Workflow("w", [Stage("a", cores=10), Stage("b", cores=4, after=("a",)), Stage("c", cores=2, after=("a",))])


def of(stage, job="1"):
    return {"run": "r", "stages": (stage,), "job_id": job}


def observed(wait, predicted, bound="exact"):
    return Observed(time_s=0, **of("a"), wait_s=wait, bound=bound, predicted_wait_s=predicted)


def submitted(stage, resubmission=0):
    return Submitted(
        time_s=0, **of(stage), cores=1, walltime_s=1, keep=Keep.NOTHING, predicted_wait_s=None,
        resubmission=resubmission, reason="",
    )  # fmt: skip


RECORDS = [
    RunStarted(time_s=1000, run="r"),
    submitted("a"),
    StageStarted(time_s=1060, **of("a")),
    StageEnded(time_s=1360, **of("a")),
    Ended(time_s=1360, **of("a"), state=JobState.COMPLETED, cores=10, start_s=1060, payload_start_s=1060),
    # b came 40 s early and was given back after 6 s; its second job idled for 9 s
    Ended(time_s=1326, **of("b", "2"), state=JobState.CANCELLED, cores=4, start_s=1320, payload_start_s=None),
    submitted("b", 1),
    StageStarted(time_s=1371, **of("b", "3")),
    StageEnded(time_s=1471, **of("b", "3")),
    Ended(time_s=1471, **of("b", "3"), state=JobState.COMPLETED, cores=4, start_s=1362, payload_start_s=1371),
    # c was first cancelled in the queue: no cost
    Ended(time_s=1365, **of("c", "4"), state=JobState.CANCELLED, cores=2, start_s=None, payload_start_s=None),
    submitted("c", 1),
    StageStarted(time_s=1400, **of("c", "5")),
    StageEnded(time_s=1430, **of("c", "5")),
    Ended(time_s=1430, **of("c", "5"), state=JobState.COMPLETED, cores=2, start_s=1400, payload_start_s=1400),
    observed(60, 60),
    observed(60, 1000),
    observed(60, 900, "at_most"),
    observed(60, 900, "at_least"),
    observed(60, None),
    RunEnded(time_s=1471, run="r", outcome="completed"),
]


def test_section_4_1_by_hand():
    """Makespan, TWT, PWT, total run time, core-hours and their overhead."""
    m = measure(FLOW, RECORDS)
    assert m.makespan_s == 471
    assert [(s.stage, s.perceived_wait_s, s.run_s) for s in m.stages] == [("a", 60, 300), ("b", 11, 100), ("c", 40, 30)]
    assert m.twt_s == 111
    critical = [s for s in m.stages if s.critical]
    assert [s.stage for s in critical] == ["a", "b"]
    assert sum(s.perceived_wait_s + s.run_s for s in critical) == m.makespan_s
    assert m.execution_s == 430
    assert m.core_hours * 3600 == pytest.approx(10 * 300 + 4 * 6 + 4 * 109 + 2 * 30)
    assert m.overhead_core_hours * 3600 == pytest.approx(4 * 6 + 4 * 9)
    assert m.resubmissions == 2


def test_waits_of_stages_that_may_begin_before_others_have_ended():
    """Each waits from when it could begin; on the critical path, waits and run times are the makespan."""
    array = parse_array("1-2")
    flow = Workflow(
        "w",
        [
            Stage("server", cores=1),
            Stage("client", cores=1, after=("server",), after_start=("server",), start_delay_s=100.0),
            Stage("first", cores=1, array=array),
            Stage("second", cores=1, array=array, after=("first",), after_matching=("first",)),
            Stage("next", cores=1, after=("client", "second"), when="any"),
        ],
    )
    times = {"server": (10, 900), "client": (150, 200), "first": (20, 500), "second": (220, 600), "next": (230, 1000)}
    records = [RunStarted(time_s=0, run="r")]
    for name, (start_s, end_s) in times.items():
        records += [StageStarted(time_s=start_s, **of(name)), StageEnded(time_s=end_s, **of(name))]
    m = measure(flow, [*records, RunEnded(time_s=1000, run="r", outcome="completed")])
    waits = {stage.stage: stage.perceived_wait_s for stage in m.stages}
    assert waits == {"server": 10, "client": 40, "first": 20, "second": 0, "next": 30}
    assert [stage.stage for stage in m.stages if stage.critical] == ["server", "client", "next"]


def test_section_4_8_by_hand():
    """Of four predictions one was right, one too long for sure, one exceeds an upper bound, one a lower bound."""
    m = measure(FLOW, RECORDS)
    assert (m.hits, m.misses, m.undecided) == (1, 2, 1)
    assert m.too_short == 0
    assert m.hit_ratio == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("predicted", "wait", "bound", "verdict"),
    [
        (60, 60, "exact", "hit"),
        (14_000, 40_000, "exact", "hit"),  # 3.9 h for 11 h: a hit in Table 2
        (65, 60, "exact", "miss"),
        (100, 98, "exact", "hit"),  # no alternative is nearer
        (10, 0, "exact", "hit"),
        (100, 90, "exact", "miss"),
        (60, 60, "at_most", None),
        (10, 60, "at_most", None),
        (65, 60, "at_most", "miss"),
        (60, 60, "at_least", "hit"),
        (100_000, 60, "at_least", None),
    ],
)
def test_a_miss_is_an_over_prediction(predicted, wait, bound, verdict):
    """By the alternatives' own resolution, and only where it is certain."""
    assert judge(predicted, observed(wait, predicted, bound)) == verdict


@pytest.mark.parametrize("cut", [RECORDS[1:], RECORDS[:-1], [RunEnded(time_s=0, run="r", outcome="failed")]])
def test_an_unfinished_run_has_no_metrics(cut):
    """Rather than wrong ones."""
    with pytest.raises(ValueError, match="completed"):
        measure(FLOW, cut)


def test_a_stage_before_its_time_is_an_error():
    """A negative wait is never averaged away."""
    early = [StageStarted(time_s=1350, **of("b", "3")) if r == RECORDS[7] else r for r in RECORDS]
    with pytest.raises(ValueError, match="'b' began before"):
        measure(FLOW, early)


DAYS_S = 3 * 86400.0


def later(record):
    return replace(record, time_s=record.time_s + DAYS_S)


def failed(stage, job, at_s, start_s):
    """Return a job that failed."""
    return Ended(
        time_s=at_s, **of(stage, job), state=JobState.FAILED, cores=1, start_s=start_s, payload_start_s=start_s
    )


def test_days_before_a_run_is_gone_on_with_do_not_count():
    """It failed at 1371 and went on three days later: its times are those of one that went on at once."""
    at = next(i for i, r in enumerate(RECORDS) if isinstance(r, StageStarted) and r.stages == ("b",))
    begun = [StageStarted(time_s=1366, **of("b", "2b")), failed("b", "2b", 1371, 1366)]
    ended = [RunEnded(time_s=1371, run="r", outcome="failed"), RunResumed(time_s=1371 + DAYS_S, run="r")]
    on = [later(r) for r in RECORDS[at:]]
    m = measure(FLOW, [*RECORDS[:at], *begun, *ended, *on])
    assert (m.makespan_s, m.twt_s) == (471, 111)
    assert [(s.perceived_wait_s, s.run_s) for s in m.stages] == [(60, 300), (11, 100), (40, 30)]
    critical = [s for s in m.stages if s.critical]
    assert sum(s.perceived_wait_s + s.run_s for s in critical) == m.makespan_s


def test_a_stage_that_is_run_once_more_days_later():
    """From the end of what it follows on, without the days; twice."""
    records = RECORDS
    for day in (1, 2):
        from_s = 86400.0 * day
        again = [
            RunResumed(time_s=from_s, run="r"),
            StageStarted(time_s=from_s + 50, **of("b", f"again{day}")),
            StageEnded(time_s=from_s + 150, **of("b", f"again{day}")),
            RunEnded(time_s=from_s + 150, run="r", outcome="completed"),
        ]
        records = [*records, *again]
    m = measure(FLOW, records)
    assert m.makespan_s == 471 + 150 + 150
    assert [(s.perceived_wait_s, s.run_s) for s in m.stages] == [(60, 300), (111 + 150 + 50, 100), (40, 30)]


def test_what_still_ran_when_a_run_had_failed_is_not_idle():
    """Another stage completed an hour after; a pending job was cancelled when the run went on."""
    cancelled = Ended(
        time_s=90_000, **of("c", "9"), state=JobState.CANCELLED, cores=1, start_s=None, payload_start_s=None
    )
    told = [
        RunEnded(time_s=100, run="r", outcome="failed"),
        StageEnded(time_s=3700, **of("b")),
        cancelled,
        RunResumed(time_s=90_001, run="r"),
    ]
    assert idle_times(told) == [(3700, 90_001)]
    assert without(idle_times(told), 90_011) == 3710


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=5), st.floats(0, 1e7), st.floats(0, 1e7))
def test_time_without_idle_times_keeps_its_order(lengths, one_s, other_s):
    """It never runs faster than the clock, nor backwards."""
    idle, now_s = [], 0.0
    for busy_s, idle_s in lengths:
        idle.append((now_s + busy_s, now_s + busy_s + idle_s))
        now_s += busy_s + idle_s
    first_s, last_s = sorted((one_s, other_s))
    passed_s = without(idle, last_s) - without(idle, first_s)
    assert -1e-6 <= passed_s <= last_s - first_s + 1e-6


def test_a_run_that_was_retried_is_exported_as_long_as_its_metrics_say(tmp_path):
    """Both leave out the time in which nobody had gone on with it."""
    machine = Place(tmp_path)
    try:
        machine.asa("run", machine.flow(("a", "", "true"), ("b", "a", "test -e mended")), *machine.on, code=1)
        (tmp_path / "mended").touch()
        machine.asa("resume", "--retry")
        [run] = machine.runs()
        exported = json.loads(machine.asa("export", "wfformat", "--run", run).stdout)
        makespan_s = json.loads((run / "metrics.json").read_text())["makespan_s"]
        assert exported["workflow"]["execution"]["makespanInSeconds"] == pytest.approx(makespan_s, abs=1e-3)
        status = machine.status()
        assert makespan_s < status["ended_s"] - status["begun_s"]
    finally:
        machine.close()


def test_cores_that_were_given_back_are_not_charged():
    resized = [
        Resized(time_s=1160, **of("a"), cores=5),
        Resized(time_s=1260, **of("a"), cores=1),
        Resized(time_s=1361, **of("a"), cores=9),  # it had ended
        Resized(time_s=1400, **of("b", "7"), cores=1),  # another job
    ]
    saved = (5 * 100 + 9 * 100) / 3600
    assert measure(FLOW, [*RECORDS, *resized]).core_hours == pytest.approx(measure(FLOW, RECORDS).core_hours - saved)


def test_a_job_that_stands_still_between_its_stages_idles():
    """Six seconds on ten cores, then four on what is left after it gave some back."""
    job = {"run": "r", "job_id": "1"}
    flow = Workflow("w", [Stage("a", cores=10), Stage("b", cores=4, after=("a",))])
    records = [
        RunStarted(time_s=0, run="r"),
        StageStarted(time_s=10, stages=("a",), **job),
        StageEnded(time_s=100, stages=("a",), **job),
        Resized(time_s=106, stages=("a", "b"), cores=4, **job),
        StageStarted(time_s=110, stages=("b",), **job),
        StageEnded(time_s=200, stages=("b",), **job),
        Ended(time_s=200, stages=("a", "b"), state=JobState.COMPLETED, cores=10, start_s=8, payload_start_s=10, **job),
        RunEnded(time_s=200, run="r", outcome="completed"),
    ]
    found = measure(flow, records)
    assert found.overhead_core_hours * 3600 == pytest.approx(10 * 2 + 10 * 6 + 4 * 4)
    assert found.core_hours * 3600 == pytest.approx(10 * 98 + 4 * 94)


def test_a_job_that_was_put_back_into_the_queue_held_cores_before():
    """Of ten cores for 52 s and then 100 s none idles but the first two seconds of the second time."""
    job = {"run": "r", "job_id": "1"}
    flow = Workflow("w", [Stage("a", cores=10), Stage("b", cores=4, after=("a",))])
    records = [
        RunStarted(time_s=0, run="r"),
        Started(time_s=8, stages=("a", "b"), **job),
        Requeued(time_s=60, stages=("a", "b"), reason="NODE_FAIL", **job),
        Started(time_s=100, stages=("a", "b"), **job),
        StageStarted(time_s=8, stages=("a",), **job),
        StageEnded(time_s=50, stages=("a",), **job),
        StageStarted(time_s=102, stages=("b",), **job),
        StageEnded(time_s=200, stages=("b",), **job),
        Ended(
            time_s=200, stages=("a", "b"), state=JobState.COMPLETED, cores=10, start_s=100, payload_start_s=102, **job
        ),
        RunEnded(time_s=200, run="r", outcome="completed"),
    ]
    found = measure(flow, records)
    assert found.core_hours * 3600 == pytest.approx(10 * 52 + 10 * 100)
    assert found.overhead_core_hours * 3600 == pytest.approx(10 * 2)
    assert [(stage.stage, stage.run_s) for stage in found.stages] == [("a", 42), ("b", 98)]


@pytest.mark.parametrize(
    ("predicted", "wait", "bound", "is_short"),
    [(5, 396, "exact", True), (5, 396, "at_least", True), (5, 396, "at_most", False), (396, 5, "exact", False)],
)
def test_a_hit_may_have_been_too_short(predicted, wait, bound, is_short):
    records = [
        replace(r, predicted_wait_s=predicted, wait_s=wait, bound=bound) if isinstance(r, Observed) else r
        for r in RECORDS
    ]
    m = measure(FLOW, records)
    assert m.too_short == (sum(isinstance(r, Observed) for r in records) if is_short else 0)
    assert m.too_short <= m.hits


def ran(stage, start_s, end_s):
    return [StageStarted(time_s=start_s, **of(stage, stage)), StageEnded(time_s=end_s, **of(stage, stage))]


MENDS = Workflow(
    "w",
    [
        Stage("a", cores=1),
        Stage("mend", cores=1, after=("a",), when="failed"),
        Stage("then", cores=1, after=("mend",)),
        Stage("last", cores=1, after=("then", "a"), when="always"),
    ],
)
END = RunEnded(time_s=200, run="r", outcome="completed")


def test_stages_that_are_skipped_cost_nothing():
    """What follows them waits from when it was clear that they would not run."""
    m = measure(MENDS, [RunStarted(time_s=0, run="r"), *ran("a", 10, 50), *ran("last", 65, 90), END])
    assert [(s.stage, s.perceived_wait_s, s.run_s, s.critical) for s in m.stages] == [
        ("a", 10, 40, True),
        ("last", 15, 25, True),
    ]
    assert m.makespan_s == m.twt_s + m.execution_s == 90


def test_a_stage_that_is_missing_and_was_not_skipped_is_an_error():
    """No run completes without it."""
    for told in (ran("a", 10, 50), ran("last", 65, 90), [*ran("a", 1, 2), *ran("mend", 3, 4), *ran("last", 5, 6)]):
        with pytest.raises(ValueError, match="do not tell of an end of stage"):
            measure(MENDS, [RunStarted(time_s=0, run="r"), *told, END])


def test_what_mended_a_failure_ran_before_the_stage_that_it_follows_completed():
    """It waited from that one's failure on, not less than nothing."""
    failed = Ended(time_s=20, **of("a", "0"), state=JobState.FAILED, cores=1, start_s=5, payload_start_s=5)
    told = [RunStarted(time_s=0, run="r"), failed, *ran("mend", 22, 30), *ran("then", 31, 40), *ran("last", 41, 45)]
    on = [RunEnded(time_s=45, run="r", outcome="failed"), RunResumed(time_s=145, run="r"), *ran("a", 150, 160), END]
    m = measure(MENDS, [*told, *on])
    assert {s.stage: s.perceived_wait_s for s in m.stages} == {"a": 50, "mend": 2, "then": 1, "last": 1}
    assert m.makespan_s == 60
