"""What jobs did, told from records: no gaps, nothing lost, the same sums as the metrics."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backend import JobState
from asa.records import (
    Ended,
    Requeued,
    Resized,
    RunEnded,
    RunStarted,
    StageEnded,
    StageStarted,
    Started,
    Submitted,
)
from asa.strategies.base import Keep
from asa.timeline import Timeline, timeline
from asa.workflow import Stage, Workflow


def began(time_s=0.0):
    return RunStarted(time_s=time_s, run="r")


def asked(job="1", time_s=10.0, stages=("a",), cores=8, wait_s=None, keep=Keep.NOTHING, **more):
    return Submitted(
        time_s=time_s, run="r", job_id=job, stages=stages, cores=cores, walltime_s=600.0, keep=keep,
        predicted_wait_s=wait_s, resubmission=0, reason="why", **more,
    )  # fmt: skip


def of(kind, time_s, job="1", stages=("a",), **more):
    return kind(time_s=time_s, run="r", job_id=job, stages=stages, **more)


def ended(time_s, job="1", stages=("a",), start_s=None, payload_s=None, state=JobState.COMPLETED, cores=8):
    return of(Ended, time_s, job, stages, state=state, cores=cores, start_s=start_s, payload_start_s=payload_s)


def spans(lane):
    return [(one.kind, one.begin_s, one.end_s, one.stage) for one in lane.spans]


def test_a_job_waits_holds_and_runs():
    records = [
        began(), asked(wait_s=25.0, stages=("a", "b")), of(Started, 30.0), of(StageStarted, 40.0),
        of(StageEnded, 90.0), of(StageStarted, 95.0, stages=("b",)), of(StageEnded, 100.0, stages=("b",)),
        ended(100.0, start_s=30.0, payload_s=40.0), RunEnded(time_s=100.0, run="r", outcome="completed"),
    ]  # fmt: skip
    run = timeline(records)
    [lane] = run.lanes
    assert spans(lane) == [
        ("pending", 10.0, 30.0, ""), ("held", 30.0, 40.0, ""), ("running", 40.0, 90.0, "a"), ("held", 90.0, 95.0, ""),
        ("running", 95.0, 100.0, "b"),
    ]  # fmt: skip
    assert (lane.start_s, lane.predicted_start_s, lane.state) == (30.0, 35.0, "completed")
    assert (run.begin_s, run.end_s) == (0.0, 100.0)


def test_a_job_that_never_started_only_waited():
    records = [began(), asked(), ended(50.0, state=JobState.CANCELLED)]
    [lane] = timeline(records).lanes
    assert spans(lane) == [("pending", 10.0, 50.0, "")]
    assert (lane.start_s, lane.state, lane.predicted_start_s) == (None, "cancelled", None)


def test_a_start_that_was_heard_of_at_the_end_only():
    [lane] = timeline([began(), asked(), ended(50.0, start_s=20.0, state=JobState.FAILED)]).lanes
    assert spans(lane) == [("pending", 10.0, 20.0, ""), ("held", 20.0, 50.0, "")]


CHAIN = Workflow("w", [Stage("a", cores=8), Stage("b", cores=8, after=("a",))])


def chain(wait_s=20.0, released_s=100.0, start_s=130.0):
    """Two jobs, the second kept back by the first; it starts, if it does, after a while in the queue."""
    records = [
        began(), asked(), asked("2", 15.0, ("b",), wait_s=wait_s, keep=Keep.DEPENDENCY), of(Started, 20.0),
        of(StageStarted, 20.0),
    ]  # fmt: skip
    if released_s:
        records += [of(StageEnded, released_s), ended(released_s, start_s=20.0, payload_s=20.0)]
    if start_s:
        records += [of(Started, start_s, "2", ("b",)), of(StageStarted, start_s, "2", ("b",))]
    return records


@pytest.mark.parametrize(
    ("wait_s", "accrues", "start_s"), [(20.0, True, 100.0), (105.0, True, 120.0), (20.0, False, 120.0)]
)
def test_a_job_that_is_kept_back_does_not_queue_and_cannot_start(wait_s, accrues, start_s):
    """It was believed to start when both its wait and what it followed were over; or its wait later than that."""
    _, lane = timeline(chain(wait_s), CHAIN, age_accrues=accrues).lanes
    assert spans(lane)[:2] == [("kept", 15.0, 100.0, ""), ("pending", 100.0, 130.0, "")]
    assert (lane.predicted_wait_over_s, lane.predicted_start_s) == (15.0 + wait_s, start_s)
    assert lane.belief == ("start", start_s)


def test_a_job_that_starts_as_it_is_released_was_kept_back_all_the_time():
    """Also where the end that let it go was heard of later."""
    for start_s in (100.0, 95.0):
        _, lane = timeline(chain(start_s=start_s), CHAIN).lanes
        assert spans(lane)[0] == ("kept", 15.0, start_s, "")
        assert [one.kind for one in lane.spans].count("pending") == 0


@pytest.mark.parametrize(("released_s", "workflow", "kind"), [(0.0, CHAIN, "kept"), (100.0, None, "pending")])
def test_until_when_a_job_is_kept_back_may_be_unknown(released_s, workflow, kind):
    """What it follows has not ended, or is not told: only of its wait an end was believed then."""
    _, lane = (run := timeline([*chain(released_s=released_s, start_s=0.0), asked("3", 140.0)], workflow)).lanes[:2]
    assert [one.kind for one in lane.spans] == [kind]
    assert (lane.predicted_start_s, lane.belief) == (None, ("end of wait", 35.0))
    [row] = [row for row in run.rows() if row["job"] == "2"]
    assert (row["predicted_wait_over_s"], row["predicted_start_s"]) == (35.0, None)
    assert [e["name"] for e in run.trace_events()["traceEvents"] if e["ph"] == "i"] == ["predicted end of wait"]
    assert Timeline.from_dict(json.loads(json.dumps(run.as_dict()))) == run


def test_a_requeued_job_waits_again():
    records = [
        began(), asked(), of(Started, 20.0), of(StageStarted, 20.0), of(Requeued, 30.0, reason="node failed"),
        of(Started, 60.0), of(StageStarted, 60.0), of(StageEnded, 70.0), ended(70.0, start_s=60.0, payload_s=60.0),
    ]  # fmt: skip
    [lane] = timeline(records).lanes
    assert [kind for kind, *_ in spans(lane)] == ["pending", "running", "pending", "running"]


def test_cores_that_are_given_back_are_gone():
    records = [
        began(), asked(stages=("a", "b")), of(Started, 20.0), of(StageStarted, 20.0), of(StageEnded, 30.0),
        of(Resized, 30.0, cores=2), of(StageStarted, 30.0, stages=("b",)), of(StageEnded, 50.0, stages=("b",)),
        ended(50.0, start_s=20.0, payload_s=20.0),
    ]  # fmt: skip
    [lane] = timeline(records).lanes
    assert [(one.stage, one.cores) for one in lane.spans] == [("", 8), ("a", 8), ("b", 2)]


def test_cores_that_join_a_job_run_what_that_runs():
    """From when they are there: before the stage that they are for they are idle."""
    records = [
        began(), asked(stages=("a", "b")), asked("2", 15.0, ("b",), 4, joins="1"), of(Started, 20.0),
        of(StageStarted, 20.0),
        of(Started, 30.0, "2", ("b",)), of(StageEnded, 40.0), of(StageStarted, 40.0, stages=("b",)),
        of(StageEnded, 60.0, stages=("b",)), ended(60.0, start_s=20.0, payload_s=20.0), ended(60.0, "2", ("b",), 30.0),
    ]  # fmt: skip
    one, two = timeline(records).lanes
    assert two.joins == one.job_id
    assert spans(two) == [("pending", 15.0, 30.0, ""), ("held", 30.0, 40.0, ""), ("running", 40.0, 60.0, "b")]


def test_a_run_that_goes_on_ends_where_it_was_last_heard_of():
    run = timeline([began(), asked(), asked("2", 40.0), of(Started, 60.0)])
    assert run.end_s == 60.0
    assert [(lane.state, lane.end_s) for lane in run.lanes] == [("running", 60.0), ("pending", 60.0)]


def test_of_no_run_nothing_can_be_told():
    with pytest.raises(ValueError, match="no run that began"):
        timeline([])


@given(st.lists(st.sampled_from([Started, StageStarted, StageEnded, Requeued, Resized]), max_size=12), st.booleans())
def test_there_are_no_gaps_and_no_empty_spans(kinds, is_over):
    """Whatever happens to a job."""
    more = {Requeued: {"reason": "r"}, Resized: {"cores": 4}}
    records = [began(), asked(), *(of(kind, 20.0 + 10 * i, **more.get(kind, {})) for i, kind in enumerate(kinds))]
    records += [ended(200.0)] if is_over else []
    [lane] = timeline(records).lanes
    edges = [edge for one in lane.spans for edge in (one.begin_s, one.end_s)]
    assert edges[1:-1:2] == edges[2::2]
    assert all(one.end_s > one.begin_s for one in lane.spans)
    if len(records) > 2:
        assert (edges[0], edges[-1]) == (10.0, max(r.time_s for r in records))


def test_trace_events_are_what_viewers_read():
    """Complete events on named tracks, in whole microseconds from the run's begin, and an instant for the belief."""
    records = [
        began(100.0), asked(time_s=110.0, wait_s=5.5), of(Started, 130.25), of(StageStarted, 130.25),
        of(StageEnded, 140.0), ended(140.0, start_s=130.25, payload_s=130.25),
    ]  # fmt: skip
    told = json.loads(json.dumps(timeline(records).trace_events()))["traceEvents"]
    assert [(e["name"], e["ts"], e["dur"]) for e in told if e["ph"] == "X"] == [
        ("pending", 10_000_000, 20_250_000),
        ("a", 30_250_000, 9_750_000),
    ]
    assert [(e["name"], e["ts"]) for e in told if e["ph"] == "i"] == [("predicted start", 15_500_000)]
    names = {e["tid"]: e["args"]["name"] for e in told if e["name"] == "thread_name"}
    assert {e["tid"] for e in told if e["ph"] == "X"} == set(names) == {1}
    assert names[1] == "a (job 1, 8 cores)"
