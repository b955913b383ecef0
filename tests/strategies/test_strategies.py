"""Strategies as pure planners: a view in, a plan out."""

import math
from dataclasses import replace

import pytest

from asa.backend import Capabilities
from asa.core.plugins import names
from asa.errors import UnknownNameError
from asa.strategies import Keep, Phase, RunView, StageView, lacking, load_strategy
from asa.strategies.asa import AheadOfTime, Naive
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow

CHAIN = Workflow(
    "chain",
    [
        Stage("a", cores=4, expected_run_s=100),
        Stage("b", cores=1, expected_run_s=50, after=("a",)),
        Stage("c", cores=4, expected_run_s=30, after=("b",)),
    ],
)
DIAMOND = Workflow(
    "diamond",
    [
        Stage("a", cores=4, expected_run_s=100),
        Stage("fast", cores=1, expected_run_s=10, after=("a",)),
        Stage("slow", cores=1, expected_run_s=70, after=("a",)),
        Stage("d", cores=2, expected_run_s=5, after=("fast", "slow")),
    ],
)


class Fixed:
    """A forecast with given waits."""

    def __init__(self, default=0.0, **waits):
        self.waits, self.default = waits, default
        self.asked = {}

    is_informed = True

    def predict(self, stages, needed_s):
        [stage] = stages
        self.asked[stage] = needed_s
        wait = self.waits.get(stage, self.default)
        return WaitForecast((wait,) * 9, wait)


def view(workflow=CHAIN, now=0.0, *, age_accrues=True, **known):
    stages = {name: StageView(stage) for name, stage in workflow.stages.items()}
    for name, facts in known.items():
        stages[name] = replace(stages[name], **facts)
    return RunView(workflow, stages, now, Capabilities("site", 100, 10, age_accrues))


def done(start, end):
    return {"phase": Phase.DONE, "job_id": "x", "submit_s": 0.0, "started_s": start, "ended_s": end}


def submissions(plan):
    return {job.stages: (job.submit_s, job.keep) for job in plan.submissions}


def test_big_job_asks_once():
    """Everything in one job; nothing more afterwards."""
    strategy = load_strategy("big-job")
    plan = strategy.plan(view(now=7.0), Fixed())
    assert submissions(plan) == {("a", "b", "c"): (7.0, Keep.NOTHING)}
    assert strategy.plan(view(now=9.0, a={"phase": Phase.QUEUED}), Fixed()).submissions == ()


def test_per_stage_asks_when_it_is_a_stages_turn():
    """Only the stages whose predecessors have ended."""
    strategy = load_strategy("per-stage")
    assert submissions(strategy.plan(view(), Fixed())) == {("a",): (0.0, Keep.NOTHING)}
    assert submissions(strategy.plan(view(a={"phase": Phase.RUNNING, "started_s": 0.0}), Fixed())) == {}
    after_a = view(DIAMOND, 100.0, a=done(0, 100))
    assert submissions(strategy.plan(after_a, Fixed())) == {
        ("fast",): (100.0, Keep.NOTHING),
        ("slow",): (100.0, Keep.NOTHING),
    }


def test_chained_asks_for_all_at_once():
    """In an order in which every dependency is known."""
    plan = load_strategy("chained").plan(view(), Fixed())
    assert [job.stages for job in plan.submissions] == [("a",), ("b",), ("c",)]
    assert submissions(plan) == {
        ("a",): (0.0, Keep.NOTHING),
        ("b",): (0.0, Keep.DEPENDENCY),
        ("c",): (0.0, Keep.DEPENDENCY),
    }


def test_asa_submits_at_t_minus_a():
    """A wait of 20 s: a is expected 20..120, b is needed at 120, c at 170."""
    forecast = Fixed(20.0)
    plan = load_strategy("asa").plan(view(), forecast)
    assert submissions(plan) == {
        ("a",): (0.0, Keep.NOTHING),
        ("b",): (100.0, Keep.DEPENDENCY),
        ("c",): (150.0, Keep.DEPENDENCY),
    }
    assert forecast.asked == {"a": 0.0, "b": 120.0, "c": 170.0}


def test_at_a_busy_centre_the_stages_after_the_next_are_asked_for_too():
    """C waits 400 s, longer than everything before it lasts: it is asked for at once, and b no later (Section 4.6)."""
    plan = AheadOfTime().plan(view(), Fixed(20.0, c=400.0))
    assert submissions(plan)[("c",)] == (0.0, Keep.DEPENDENCY)
    assert submissions(plan)[("b",)] == (0.0, Keep.DEPENDENCY), "no job is submitted before one that it depends on"


def test_asa_plans_again_when_a_stage_is_late():
    """A runs since 0 and should have ended at 100; it is 130 now, so b is needed now."""
    late = view(now=130.0, a={"phase": Phase.RUNNING, "started_s": 0.0, "job_id": "1", "submit_s": 0.0})
    plan = AheadOfTime().plan(late, Fixed(20.0))
    assert submissions(plan) == {("b",): (130.0, Keep.DEPENDENCY), ("c",): (180.0, Keep.DEPENDENCY)}


def test_asa_plans_again_when_a_stage_ends_early():
    """A ended at 60: b is due without a dependency, c moves forward."""
    plan = AheadOfTime().plan(view(now=60.0, a=done(0, 60)), Fixed(20.0))
    assert submissions(plan) == {("b",): (60.0, Keep.NOTHING), ("c",): (110.0, Keep.DEPENDENCY)}


def test_a_queued_job_is_expected_when_it_was_predicted():
    """B was submitted at 80 with a predicted 100 s: it starts at 180 though a ends at 100, and c is needed at 230."""
    queued = {"phase": Phase.QUEUED, "job_id": "2", "submit_s": 80.0, "predicted_wait_s": 100.0}
    running = {"phase": Phase.RUNNING, "started_s": 0.0, "job_id": "1", "submit_s": 0.0}
    plan = AheadOfTime().plan(view(now=90.0, a=running, b=queued), Fixed(20.0))
    assert submissions(plan) == {("c",): (210.0, Keep.DEPENDENCY)}


def test_where_age_does_not_accrue_a_dependent_job_waits_after_it_is_released():
    """B is expected at 120 + 20, so c is needed at 190."""
    forecast = Fixed(20.0)
    AheadOfTime().plan(view(age_accrues=False), forecast)
    assert forecast.asked == {"a": 0.0, "b": 120.0, "c": 190.0}
    queued = {"phase": Phase.QUEUED, "job_id": "2", "submit_s": 80.0, "predicted_wait_s": 15.0}
    AheadOfTime().plan(view(now=90.0, age_accrues=False, a=RUNNING, b=queued | {"keep": Keep.DEPENDENCY}), forecast)
    assert forecast.asked["c"] == 100 + 15 + 50
    Naive().plan(view(now=90.0, age_accrues=False, a=RUNNING, b=ALLOCATED), forecast)
    assert forecast.asked["c"] == 100 + 50, "a job without a dependency queues at once under either rule"


def test_a_join_is_needed_when_its_last_predecessor_ends():
    """D after the slow branch: 100 + 70."""
    forecast = Fixed(0.0)
    AheadOfTime().plan(view(DIAMOND), forecast)
    assert forecast.asked == {"a": 0.0, "fast": 100.0, "slow": 100.0, "d": 170.0}


def test_naive_sets_no_dependency():
    """The payload waits inside the allocation."""
    plan = load_strategy("asa-naive").plan(view(a=RUNNING), Fixed(20.0))
    assert submissions(plan)[("b",)] == (80.0, Keep.AWAIT)


def test_a_wait_that_nobody_knows_is_not_told_as_if_it_were_known():
    forecast = Fixed(1072.0)
    [_, job] = [one for one in AheadOfTime().plan(view(a=RUNNING), forecast).submissions if one.stages != ("a",)]
    assert "predicted wait 17m52s" in job.reason
    forecast.is_informed = False
    [_, job] = [one for one in AheadOfTime().plan(view(a=RUNNING), forecast).submissions if one.stages != ("a",)]
    assert "assumed wait 17m52s, since few waits are known here yet" in job.reason


def test_naive_asks_ahead_only_when_what_a_stage_follows_has_its_cores():
    """Otherwise it might hold the cores that the earlier stage waits for."""
    queued = {"phase": Phase.QUEUED, "job_id": "1", "submit_s": 0.0, "predicted_wait_s": 10.0}
    assert submissions(Naive().plan(view(), Fixed(400.0))) == {("a",): (0.0, Keep.NOTHING)}
    assert submissions(Naive().plan(view(a=queued), Fixed(400.0))) == {}
    assert list(submissions(Naive().plan(view(a=RUNNING), Fixed(400.0)))) == [("b",)]
    allocated = view(now=60.0, a=RUNNING, b=ALLOCATED | {"hold_until_s": 120.0})
    assert list(submissions(Naive().plan(allocated, Fixed(400.0)))) == [("c",)]


def test_what_may_idle_is_bounded_for_the_run():
    """By a quarter of the stages' core-hours; a job may idle for what is left of them, divided by its cores."""
    need = view().workflow.stage_core_hours(28)
    [job] = Naive(max_hold_s=1e6).plan(view(a=RUNNING), Fixed(20.0)).submissions
    cores = view().stages["b"].stage.cores_on(28)
    assert job.spare_walltime_s == pytest.approx(need / 4 / cores * 3600)
    assert f"of the {need / 4:.3g} core-hours that this run may idle" in job.reason
    spent = replace(view(a=RUNNING), idle_core_hours=need / 4)
    assert Naive().plan(spent, Fixed(20.0)).submissions == ()


ALLOCATED = {"phase": Phase.ALLOCATED, "job_id": "2", "submit_s": 10.0, "keep": Keep.AWAIT, "predicted_wait_s": 90.0}
RUNNING = {"phase": Phase.RUNNING, "started_s": 0.0, "job_id": "1", "submit_s": 0.0}


def test_naive_gives_back_what_came_early_and_asks_again():
    """At 30, b has its cores and a runs for 70 s more: b is cancelled, and submitted again half of 25 s ahead."""
    plan = Naive().plan(view(now=30.0, a=RUNNING, b=ALLOCATED | {"hold_until_s": 90.0}), Fixed(25.0))
    assert [c.job_id for c in plan.cancellations] == ["2"]
    assert "1m10s" in plan.cancellations[0].reason
    assert submissions(plan)[("b",)] == (87.5, Keep.AWAIT)


def test_naive_keeps_what_is_needed_within_a_minute():
    """At 60, a runs for 40 s more: to give cores back costs more. It looks again after the minute."""
    plan = Naive().plan(view(now=60.0, a=RUNNING, b=ALLOCATED | {"hold_until_s": 120.0}), Fixed(25.0))
    assert plan.cancellations == ()
    assert plan.wake_s == 120
    assert list(submissions(plan)) == [("c",)]


def test_naive_gives_back_what_has_idled_for_as_long_as_it_asked_for():
    """A is late, and what is left of b's walltime would no longer hold b."""
    plan = Naive().plan(view(now=120.0, a=RUNNING, b=ALLOCATED | {"hold_until_s": 120.0}), Fixed(25.0))
    assert [c.job_id for c in plan.cancellations] == ["2"]
    assert "too short for the stage" in plan.cancellations[0].reason


def test_holding_asks_for_walltime_to_idle_in():
    """It may idle for half an hour, and is not cancelled before that is over."""
    held = view(now=30.0, a=RUNNING, b=ALLOCATED | {"hold_until_s": 1830.0})
    plan = replace(load_strategy("asa-naive-hold"), max_idle=math.inf).plan(held, Fixed(25.0))
    assert plan.cancellations == ()
    assert plan.submissions[0].spare_walltime_s == 1800


def test_naive_gives_up_asking_early_after_some_resubmissions():
    """Afterwards it submits the stage when its turn comes."""
    tired = {"resubmissions": 5}
    plan = Naive().plan(view(now=30.0, a=RUNNING, b=tired), Fixed(25.0))
    assert submissions(plan) == {}
    plan = Naive().plan(view(now=100.0, a=done(0, 100), b=tired), Fixed(25.0))
    assert submissions(plan)[("b",)] == (100.0, Keep.NOTHING)


SAMPLING = {"asa-plan", "elastic"}  # test_planned.py and test_elastic.py have forecasts for these


@pytest.mark.parametrize("name", [name for name in names("asa.strategies") if name not in SAMPLING | {"pool"}])
def test_strategies_are_pure(name):
    """The same view gives the same plan twice, and plans have reasons."""
    strategy, here = load_strategy(name), view(DIAMOND, 5.0)
    plan = strategy.plan(here, Fixed(33.0))
    assert plan == strategy.plan(here, Fixed(33.0))
    assert plan.submissions
    assert all(job.reason for job in plan.submissions)


def test_an_unknown_strategy_is_refused():
    """The message guesses the name that was meant."""
    with pytest.raises(UnknownNameError, match="no strategy 'per_stage'\nDid you mean 'per-stage'"):
        load_strategy("per_stage")


def test_a_strategy_says_what_the_site_lacks():
    poor = Capabilities("x", 8, 8, age_accrues=True, dependency_types=frozenset())
    for name, needs in {
        "chained": True,
        "asa": True,
        "per-stage": False,
        "asa-naive": False,
        "asa-plan": False,
    }.items():
        assert ("afterok" in lacking(load_strategy(name), poor)) == needs
        assert not lacking(load_strategy(name), Capabilities("x", 8, 8, age_accrues=True))
