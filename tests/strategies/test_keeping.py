"""asa-plan keeps a plan of a long workflow while events confirm it."""

import random
from dataclasses import replace

import pytest
from asa.backends.simulated import SimulatedSite

from asa import WaitBank
from asa.backend import Capabilities
from asa.runner import Run, run_all
from asa.strategies import Keep, Phase, RunView, StageView
from asa.strategies.planned import Planned
from asa.strategies.planning import Aim, look_ahead, sketch_of
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow

SHAPE = (0.1, 0.3, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
RUN_S = 600.0


class Waits:
    """A forecast by which each job waits for about as long; it counts the jobs that it is asked about."""

    is_informed = True

    def __init__(self, wait_s=900.0):
        self.wait_s, self.asked = wait_s, 0

    def predict(self, stages, needed_s):
        self.asked += 1
        return WaitForecast(tuple(self.wait_s * factor for factor in SHAPE), self.wait_s)


def chain(count=80, seed=0):
    chance = random.Random(seed)
    runs_s = [RUN_S if not seed else chance.uniform(0.2, 2.0) * RUN_S for _ in range(count)]
    stages = [
        Stage(
            f"s{n}",
            chance.choice([1, 1, 4]),
            walltime_s=2 * run_s,
            expected_run_s=run_s,
            after=(f"s{n - 1}",) if n else (),
        )
        for n, run_s in enumerate(runs_s)
    ]
    return Workflow("chain", stages)


def view(flow, now_s, kept=None, *, age_accrues=False, **jobs):
    """Show a run; `jobs`: since when stages run, or None if their job is queued."""
    stages = {name: StageView(stage) for name, stage in flow.stages.items()}
    for number, (name, since_s) in enumerate(jobs.items()):
        phase = Phase.QUEUED if since_s is None else Phase.RUNNING
        begun = {"phase": phase, "job_id": f"{number}", "submit_s": 0.0, "started_s": since_s, "keep": Keep.AWAIT}
        stages[name] = replace(stages[name], **begun)
    return RunView(flow, stages, now_s, Capabilities("x", 64, 4, age_accrues=age_accrues), kept=kept)


def again(now_s, waits=None, first=None, strategy=None, **jobs):
    """Plan twice; return the second plan, how many forecasts it took, and the plan without the first."""
    flow, strategy = chain(), strategy or Planned()
    kept = strategy.plan(view(flow, 0.0, s0=0.0) if first is None else first, Waits()).kept
    waits = waits or Waits()
    second = strategy.plan(view(flow, now_s, kept, **jobs), waits)
    asked, waits.asked = waits.asked, 0
    anew = strategy.plan(view(flow, now_s, **jobs), waits)
    return second, asked / waits.asked, anew


@pytest.mark.parametrize("now_s", [1.0, 120.0, 500.0])
def test_while_a_job_runs_as_expected_the_next_job_is_that_of_the_plan_and_its_time_is_told_anew(now_s):
    second, effort, anew = again(now_s, s0=0.0)
    [job], other = second.submissions, anew.submissions[0]
    assert (job.stages, job.keep) == (other.stages, other.keep)
    assert job.submit_s == pytest.approx(other.submit_s)
    assert effort < 0.75
    assert second.kept is not None


def test_waits_that_have_moved_by_more_than_a_tenth_of_a_jobs_time_make_another_plan():
    for wait_s, is_kept in (
        (900.0, True),
        (960.0, True),
        (840.0, True),
        (1300.0, False),
        (9.0, False),
        (9000.0, False),
    ):
        second, _, anew = again(60.0, Waits(wait_s), s0=0.0)
        assert (second.kept.now_s == 0.0) == is_kept
        if not is_kept:
            assert (second, second.kept.now_s) == (anew, 60.0)


def test_a_job_that_began_far_later_than_expected_makes_another_plan():
    for late_s, is_kept in ((0.0, True), (300.0, False)):
        second, *_ = again(400.0, s0=late_s)
        assert (second.kept.now_s == 0.0) == is_kept


def test_stages_that_are_not_submitted_as_planned_make_another_plan():
    flow, strategy = chain(), Planned()
    first = strategy.plan(view(flow, 0.0, s0=0.0), Waits())
    [job, *_] = [job for job in first.kept.sketch.jobs if len(job.block.stages) > 1]
    until = flow.order.index(job.block.stages[0])
    one = dict.fromkeys(flow.order[1 : until + 1])  # the job's first stage has a job of its own
    whole = dict.fromkeys(flow.order[1 : until + len(job.block.stages)])
    for jobs, is_kept in ((one, False), (whole, True)):
        second = strategy.plan(view(flow, 1.0, first.kept, s0=0.0, **jobs), Waits())
        assert (second.kept.now_s == 0.0) == is_kept


def test_a_plan_is_kept_until_half_of_its_stages_have_jobs():
    flow, strategy = chain(), Planned()
    first = strategy.plan(view(flow, 0.0, s0=0.0), Waits())
    submitted, until = [], []
    for job in first.kept.sketch.jobs:
        submitted += job.block.stages
        jobs = dict.fromkeys(submitted)
        second = strategy.plan(view(flow, 1.0, first.kept, s0=0.0, **jobs), Waits())
        until.append((len(submitted), second.kept is first.kept))
    assert until[0][1], "a plan of 24 stages, of which one job is submitted"
    assert not any(is_kept for count, is_kept in until if count > 12)


def test_plans_of_short_workflows_or_within_a_budget_or_where_age_accrues_are_not_kept():
    def kept(strategy=None, count=80, **site):
        return (strategy or Planned()).plan(view(chain(count), 0.0, s0=0.0, **site), Waits()).kept

    assert kept() is not None
    assert kept(count=20) is None
    assert kept(age_accrues=True) is None
    assert kept(Planned(Aim(at_most=1.2))) is None
    assert kept(Planned(Aim(deadline_s=1e6))) is None


def test_a_plan_is_kept_only_if_its_jobs_run_one_after_another():
    """Of two equal chains in one workflow, whose first stages have jobs, neither follows the other."""
    one, other = chain(), chain()
    beside = [
        replace(stage, name=f"b{name}", after=tuple(f"b{before}" for before in stage.after))
        for name, stage in other.stages.items()
    ]
    both = [stage for pair in zip(one.stages.values(), beside, strict=True) for stage in pair]
    strategy, waits = Planned(), Waits()
    assert strategy.plan(view(one, 0.0, s0=0.0), waits).kept is not None
    assert strategy.plan(view(Workflow("both", both), 0.0, s0=0.0, bs0=0.0), waits).kept is None


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_kept_plan_costs_hardly_more_than_one_that_is_made_anew(seed):
    """The other plan is searched for; what stages the kept one puts together is judged by the same question."""
    chance = random.Random(seed)
    flow, wait_s = chain(seed=seed), chance.uniform(60.0, 7200.0)
    then = look_ahead(view(flow, 0.0, s0=0.0), Waits(wait_s))
    moved = max(0.1 * (wait_s + RUN_S), 10.0) * chance.uniform(-1.0, 1.0)
    now = look_ahead(view(flow, 30.0, s0=0.0), Waits(wait_s + moved))
    same = sketch_of(now.question, [(job.block.stages, None) for job in then.sketch.jobs])
    jobs = max(len(same.jobs), len(now.sketch.jobs))
    assert same.makespan_s <= now.sketch.makespan_s + 2 * jobs * abs(moved) + 1.0


class Forgetful(Planned):
    """Plans each event anew."""

    def plan(self, view, forecast):
        return super().plan(replace(view, kept=None), forecast)


def test_a_run_with_kept_plans_is_as_quick_as_one_with_new_plans():
    ends_s = {}
    for kind in (Planned, Forgetful):
        site = SimulatedSite("hpc2n", age_accrues=False)
        site.prepare([1])
        world = site.open(1)
        begun_s = world.now()
        bank = WaitBank(seed=1, machine_cores=world.capabilities.max_cores)
        [result] = run_all(world, [Run(chain(45, seed=3), kind(), bank=bank)])
        assert result.outcome == "completed"
        ends_s[kind] = world.now() - begun_s
    assert ends_s[Planned] <= 1.02 * ends_s[Forgetful]
