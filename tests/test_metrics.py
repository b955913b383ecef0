"""The paper's metrics, on records written by hand."""

import pytest

from asa.backend import JobState
from asa.metrics import judge, measure
from asa.records import Ended, Observed, RunEnded, RunStarted, StageEnded, StageStarted, Submitted
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


def test_section_4_8_by_hand():
    """Of four predictions one was right, one too long for sure, one exceeds an upper bound, one a lower bound."""
    m = measure(FLOW, RECORDS)
    assert (m.hits, m.misses, m.undecided) == (1, 2, 1)
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
