"""The fate of a job that Slurm does not show, decided from all known facts."""

import math

import pytest
from asa.backends.slurm.absence import Absence, Evidence, Inquiry, Verdict, verdict
from asa.backends.slurm.link import SlurmRecord

NOW, HOUR, DAY = 1_700_000_000.0, 3600.0, 86_400.0
LONG = Absence(3, NOW - 100.0)
VERY_LONG = Absence(3, NOW - 700.0)
FRESH = Absence(1, NOW)
NEVER_ASKED = Inquiry(lambda _: pytest.fail("asked"), lambda: pytest.fail("searched"))


def past(state, *, start_s=None, submit_s=NOW - 1000.0, limit_s=HOUR):
    return SlurmRecord("7", "fit.a", "me", (state,), submit_s, start_s=start_s, limit_s=limit_s)


RUNS = past("RUNNING", start_s=NOW - 900.0)
OVER = past("RUNNING", start_s=NOW - HOUR - 400.0, submit_s=NOW - HOUR - 500.0)


def evidence(**known):
    usual = {
        "job_id": "7", "name": "fit.a", "absence": LONG, "now_s": NOW, "clock_s": NOW, "walltime_s": HOUR,
        "submit_s": NOW - 1000.0,
    }  # fmt: skip
    return Evidence(**usual | known)


@pytest.mark.parametrize(
    ("known", "decided"),
    [
        # accounting says how it ended, at once, but where it may be back in the queue
        ({"past": past("COMPLETED"), "absence": FRESH}, Verdict.ENDED),
        ({"past": past("CANCELLED"), "absence": FRESH, "began_s": NOW - 900.0}, Verdict.ENDED),
        ({"past": past("NODE_FAIL"), "absence": FRESH}, Verdict.UNKNOWN),
        ({"past": past("NODE_FAIL")}, Verdict.ENDED),
        # it says that it runs
        ({"past": RUNS}, Verdict.RUNNING),
        ({"past": RUNS, "absence": VERY_LONG}, Verdict.RUNNING),
        ({"past": past("SUSPENDED", start_s=NOW - 900.0)}, Verdict.RUNNING),
        # the job has begun, and said nothing of an end
        ({"began_s": NOW - 900.0}, Verdict.RUNNING),
        ({"began_s": NOW - 900.0, "absence": VERY_LONG}, Verdict.RUNNING),
        ({"began_s": NOW - 900.0, "is_certain": False}, Verdict.RUNNING),
        ({"began_s": NOW - HOUR - 200.0}, Verdict.RUNNING),  # a little beyond its walltime
        ({"began_s": NOW - 3 * HOUR, "walltime_s": 4 * HOUR}, Verdict.RUNNING),  # which was extended
        ({"past": past("RUNNING", start_s=NOW - 3 * HOUR, limit_s=4 * HOUR)}, Verdict.RUNNING),
        ({"began_s": NOW - 3 * HOUR, "suspended_s": NOW - 0.5 * HOUR}, Verdict.RUNNING),
        # nobody knows its walltime, or it has none
        ({"began_s": NOW - 900.0, "walltime_s": math.inf, "absence": VERY_LONG}, Verdict.RUNNING),
        ({"began_s": NOW - 90 * DAY, "walltime_s": math.inf, "absence": Absence(3, NOW - DAY + 1)}, Verdict.RUNNING),
        ({"past": past("RUNNING", start_s=NOW - 900.0, limit_s=None), "walltime_s": math.inf}, Verdict.RUNNING),
        # this client has cancelled it
        ({"cancelled_s": NOW - 1.0, "absence": FRESH}, Verdict.CANCELLED),
        ({"cancelled_s": NOW - 1.0, "absence": FRESH, "past": past("PENDING")}, Verdict.CANCELLED),
        ({"cancelled_s": NOW - 1.0, "absence": FRESH, "began_s": NOW - 900.0}, Verdict.UNKNOWN),
        ({"cancelled_s": NOW - 100.0, "began_s": NOW - 900.0}, Verdict.CANCELLED),
        ({"cancelled_s": NOW - 100.0, "past": RUNS}, Verdict.UNKNOWN),
        ({"cancelled_s": NOW - 400.0, "past": RUNS}, Verdict.CANCELLED),
        # nothing is known yet
        ({"absence": FRESH}, Verdict.UNKNOWN),
        ({"absence": Absence(2, NOW - 100.0)}, Verdict.UNKNOWN),
        ({"absence": Absence(3, NOW - 50.0)}, Verdict.UNKNOWN),
        ({"is_certain": False}, Verdict.UNKNOWN),
    ],
)
def test_what_is_decided_without_another_question(known, decided):
    assert verdict(evidence(**known), NEVER_ASKED) is decided


ENDED_BEFORE = past("COMPLETED", submit_s=NOW - 90_000.0)


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"past": past("PENDING")},  # accounting keeps for ever what the controller has lost
        {"past": OVER, "submit_s": OVER.submit_s},
        {"began_s": NOW - HOUR - 400.0, "submit_s": NOW - 2 * HOUR},
        {"past": ENDED_BEFORE},  # an earlier job of this number
    ],
)
@pytest.mark.parametrize(
    ("absence", "denied", "there", "decided"),
    [
        (LONG, True, {}, Verdict.GONE),
        (LONG, True, {"other": "9"}, Verdict.GONE),
        (LONG, False, {}, Verdict.UNKNOWN),  # the answer is only empty
        (VERY_LONG, False, {}, Verdict.GONE),
        (LONG, True, {"fit.a": "7"}, Verdict.UNKNOWN),  # it is found by its name
        (VERY_LONG, False, {"fit.a": "7"}, Verdict.UNKNOWN),
        (LONG, True, {"fit.a": "9"}, Verdict.REPLACED),
    ],
)
def test_what_is_asked_before_a_job_is_taken_for_gone(known, absence, denied, there, decided):
    assert verdict(evidence(**known, absence=absence), Inquiry(lambda _: denied, lambda: there)) is decided


@pytest.mark.parametrize(
    "known", [{"began_s": NOW - 900.0}, {"past": past("RUNNING", start_s=NOW - 900.0, limit_s=None)}]
)
def test_what_has_no_walltime_that_is_known_is_gone_a_day_after_it_was_shown_last(known):
    inquiry = Inquiry(lambda _: True, dict)
    last = {"walltime_s": math.inf, "absence": Absence(3, NOW - DAY)}
    assert verdict(evidence(**known, **last), inquiry) is Verdict.GONE
    assert verdict(evidence(**known, **last, is_certain=False), inquiry) is Verdict.UNKNOWN
    assert verdict(evidence(**known, **last), Inquiry(lambda _: True, lambda: {"fit.a": "7"})) is Verdict.UNKNOWN


def test_of_many_jobs_a_few_are_asked_for():
    asked = []
    inquiry = Inquiry(lambda job_id: asked.append(job_id) or True, dict)
    assert all(verdict(evidence(job_id=str(n)), inquiry) is Verdict.GONE for n in range(3000))
    assert len(asked) == 8
    inquiry = Inquiry(lambda job_id: job_id != "3", dict)
    decided = [verdict(evidence(job_id=str(n)), inquiry) for n in range(20)]
    assert decided == [Verdict.UNKNOWN if n == 3 or n >= 8 else Verdict.GONE for n in range(20)]


def test_a_clock_that_was_set_back_begins_anew():
    assert Absence(2, NOW).again(NOW - 50.0) == Absence(3, NOW - 50.0)
