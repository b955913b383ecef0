"""The lead of the next leg: against a simulation of the chain, and by hand."""

from dataclasses import replace

import numpy as np
import pytest

from asa.backend import Capabilities, DependencyType
from asa.continuation import Continuation
from asa.strategies import Keep, Phase
from asa.strategies.base import RunView, StageView
from asa.strategies.legs import ahead, behind, best_lead, in_turn, successors
from asa.waits import LEVELS, WaitForecast
from asa.workflow import Stage, Workflow

HOUR = 3600.0


def lost_s(lead_s, waits_s, leg_s, saves_s, *, seconds=3e7, seed=1):
    """Run a chain for long, and count the seconds in which it does not go on, for each in which it does."""
    rng = np.random.default_rng(seed)
    worked = lost = 0.0
    while worked < seconds:
        wait = rng.choice(waits_s)
        early = max(lead_s - wait, 0.0)
        worked += leg_s - saves_s - early
        lost += saves_s + max(wait - lead_s, 0.0) + 0.8 * (saves_s + (saves_s if early > 0 else 0.0))
    return lost / worked


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mean_h", [0.2, 2.0, 8.0])
def test_no_other_lead_loses_less(seed, mean_h):
    rng = np.random.default_rng(seed)
    waits_s = np.minimum(rng.lognormal(np.log(mean_h * HOUR), 1.0, 400), 24 * HOUR - 120)
    found = best_lead(waits_s, 24 * HOUR, 120.0)
    best = lost_s(found.lead_s, waits_s, 24 * HOUR, 120.0)
    for other_s in np.quantile(waits_s, [0.0, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99, 1.0]):
        assert best <= 1.1 * lost_s(other_s, waits_s, 24 * HOUR, 120.0)


def test_where_waits_are_short_it_is_in_time_nearly_always():
    waits_s = np.random.default_rng(2).lognormal(np.log(HOUR), 0.8, 400)
    found = best_lead(waits_s, 48 * HOUR, 60.0)
    assert found.in_time > 0.95
    assert found.works_s > 38 * HOUR


def test_what_no_lead_saves_is_no_reason_to_ask_late():
    waits_s = np.concatenate([np.full(200, HOUR), np.full(200, 500 * HOUR)])
    assert best_lead(waits_s, 24 * HOUR, 60.0).lead_s >= HOUR


TERMS = Continuation.warned("USR1@10min")
STAGE = Stage("a", cores=4, walltime_s=24 * HOUR, expected_run_s=100 * HOUR, command="x", continues=TERMS)
RUNNING = StageView(STAGE, Phase.RUNNING, job_id="1", limit_s=24 * HOUR, started_s=0.0, leg_start_s=0.0)


class Knows:
    """Waits that are always the same."""

    is_informed = True

    def __init__(self, wait_s):
        self.wait_s = wait_s

    def predict(self, stages, needed_s):
        return WaitForecast((self.wait_s,) * len(LEVELS), self.wait_s)


def found(view=RUNNING, *, follows=ahead, now_s=HOUR, wait_s=2 * HOUR, price_s=None, **site):
    capabilities = Capabilities("x", 8, 8, **{"age_accrues": False, **site})
    run = RunView(Workflow("w", [view.stage]), {"a": view}, now_s, capabilities)
    return [job for job, _ in successors(run, Knows(wait_s), follows, lambda _: None, price_s)]


def test_it_is_asked_for_its_wait_before_the_state_is_saved():
    [job] = found()
    assert (job.leg, job.keep, job.delay_s) == (2, Keep.NOTHING, 0.0)
    assert job.submit_s == pytest.approx(24 * HOUR - 600 - 2 * HOUR)
    assert "leg 2" in job.reason


def test_where_age_accrues_it_is_asked_for_at_once_and_released_then():
    [job] = found(age_accrues=True)
    assert (job.submit_s, job.keep) == (HOUR, Keep.DEPENDENCY)
    assert job.delay_s == pytest.approx(24 * HOUR - 600 - 2 * HOUR)


def test_what_cannot_be_told_is_waited_for():
    [job] = found(replace(RUNNING, stage=replace(STAGE, continues=Continuation())))
    assert (job.submit_s, job.keep, job.delay_s) == (HOUR, Keep.DEPENDENCY, 0.0)
    [job] = found(follows=behind)
    assert job.keep is Keep.DEPENDENCY
    assert not found(follows=behind, dependency_types=frozenset({DependencyType.AFTEROK}))


def test_what_has_just_begun_is_not_told_to_end():
    [job] = found(wait_s=30 * HOUR, now_s=1.0)
    assert job.submit_s == TERMS.warn_s


@pytest.mark.parametrize(
    "view",
    [
        replace(RUNNING, phase=Phase.QUEUED),
        replace(RUNNING, next_job_id="2"),
        replace(RUNNING, is_unyielding=True),
        replace(RUNNING, leg=TERMS.max_legs),
        replace(RUNNING, ran_s=95 * HOUR),  # this leg does the rest
    ],
)
def test_no_other_is_asked_for_where_there_is_one_or_none_is_needed(view):
    assert not found(view)


def test_what_takes_longer_than_expected_is_followed():
    assert found(replace(RUNNING, ran_s=101 * HOUR))


def test_in_turn_none_is_asked_for():
    assert not found(follows=in_turn)
