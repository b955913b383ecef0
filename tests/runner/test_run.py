"""Whole runs whose every number was computed by hand.

The machine has 8 cores. Others hold all of them from 0 to 100, and a job of 8 cores for 100 s arrives at 160. The
workflow arrives at 0: a takes 4 cores for 100 s, b 1 core for 50 s, c 4 cores for 30 s; each asks for exactly that
long.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable

from asa.backend import JobState
from asa.errors import InputError, RunError
from asa.estimators import OWN_USER, WaitBank, at_least, at_most, exactly
from asa.metrics import measure
from asa.observations import observation_of
from asa.records import Cancelled, Ended, Observed, Predicted, Resized, RunEnded, StageEnded, StageStarted, Submitted
from asa.runner import Run, run_all
from asa.strategies import ForecastKind, Keep, Phase, Plan, PlannedJob, load_strategy
from asa.strategies.per_stage import PerStage
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow

OTHERS = [(0, 100, 100, 8), (160, 100, 100, 8)]
FLOW = Workflow(
    "flow",
    [
        Stage("a", cores=4, walltime_s=100),
        Stage("b", cores=1, walltime_s=50, after=("a",)),
        Stage("c", cores=4, walltime_s=30, after=("b",)),
    ],
)
NEED = 4 * 100 + 1 * 50 + 4 * 30  # core-seconds of the stages alone


def machine(others=OTHERS, **options):
    columns = np.array(others, dtype=np.int64).reshape(-1, 4).T
    own = {name: options.pop(name) for name in ("poll_s", "shrink") if name in options}
    return SimulatedBackend(Engine(8, JobTable(*columns), now=0, **options), Machine("m", 1, 8), **own)


class Sure:
    """An estimator that predicts one wait for all jobs except some kinds, and records each call."""

    def __init__(self, wait, kinds):
        self.wait, self.kinds, self.told, self.jobs = wait, kinds, [], {}

    def predict(self, job):
        wait = self.kinds.get((job.cores, job.walltime_s), self.wait)
        return WaitForecast((wait,) * 9, wait)

    def submitted(self, job, forecast=None):
        ticket = len(self.jobs)
        self.jobs[ticket] = job
        self.told.append(("submitted", job))
        return ticket

    def observe(self, ticket, observation):
        self.told.append(("observe", self.jobs[ticket], observation))

    def ended(self, ticket, run_s):
        raise AssertionError("it did not ask for that")

    def withdrawn(self, ticket):
        pass

    def state(self):
        return {}


def sure(wait, kinds=()):
    """Return a bank that predicts one wait for all stages except some kinds."""
    return WaitBank(lambda _: Sure(wait, dict(kinds)))


def run(strategy, bank=None, backend=None, workflow=FLOW, **options):
    strategy = load_strategy(strategy) if isinstance(strategy, str) else strategy
    [result] = run_all(backend or machine(), [Run(workflow, strategy, bank=bank, **options)])
    return result, measure(workflow, result.records) if result.outcome == "completed" else None


def waits(metrics):
    return {stage.stage: stage.perceived_wait_s for stage in metrics.stages}


def core_s(hours):
    return round(hours * 3600, 6)


def test_big_job():
    """The job holds 4 cores from 100 to 280."""
    _, m = run("big-job")
    assert (m.makespan_s, m.twt_s) == (280, 100)
    assert core_s(m.core_hours) == 4 * 180
    assert (m.overhead_core_hours, m.hits, m.misses) == (0, 0, 0)
    assert waits(m) == {"a": 100, "b": 0, "c": 0}
    assert [stage.run_s for stage in m.stages] == [100, 50, 30]
    assert m.execution_s == 180
    assert np.isnan(m.hit_ratio)


def test_per_stage():
    """B is submitted at 200, when the other job has just taken the machine until 300."""
    _, m = run("per-stage")
    assert (m.makespan_s, m.twt_s) == (380, 200)
    assert waits(m) == {"a": 100, "b": 100, "c": 0}
    assert core_s(m.core_hours) == NEED


def test_a_poll_costs_per_stage_its_interval():
    """Polled each minute: a's end at 200 is seen at 240, b's at 350 is seen at 360; the other job runs until 300."""
    _, m = run("per-stage", backend=machine(poll_s=60))
    assert waits(m) == {"a": 100, "b": 100, "c": 10}
    assert m.makespan_s == 390


def test_chained_where_age_accrues():
    """Stages b and c are older than the other job and start before it."""
    _, m = run("chained")
    assert (m.makespan_s, m.twt_s) == (280, 100)
    assert core_s(m.core_hours) == NEED


def test_chained_where_age_does_not_accrue():
    """Stage b is released at 200, and waits behind the other job."""
    _, m = run("chained", backend=machine(age_accrues=False))
    assert (m.makespan_s, m.twt_s) == (380, 200)


def test_asa_where_age_accrues():
    """Predicting 100 s: b is submitted at 100, c at 150, both before the other job.

    a's prediction was right; b and c started when they were released, so theirs may have been too long or not.
    """
    result, m = run("asa", sure(100.0))
    assert (m.makespan_s, m.twt_s) == (280, 100)
    assert core_s(m.core_hours) == NEED
    submitted = {r.stages[0]: (r.time_s, r.keep) for r in result.records if isinstance(r, Submitted)}
    assert submitted == {"a": (0, Keep.NOTHING), "b": (100, Keep.DEPENDENCY), "c": (150, Keep.DEPENDENCY)}
    observed = [(r.stages[0], r.wait_s, r.bound) for r in result.records if isinstance(r, Observed)]
    assert observed == [("a", 100, "exact"), ("b", 100, "at_most"), ("c", 100, "at_most")]
    assert (m.hits, m.misses, m.undecided, m.hit_ratio) == (1, 0, 2, 1.0)


def test_asa_that_under_estimates_is_late_but_never_missed():
    """Predicting 10 s: b is submitted at 190, after the other job, and waits until 300; c at 340."""
    result, m = run("asa", sure(10.0))
    assert (m.makespan_s, m.twt_s) == (380, 200)
    assert (m.hits, m.misses, m.undecided) == (2, 0, 1)
    observed = {r.stages[0]: (r.wait_s, r.bound) for r in result.records if isinstance(r, Observed)}
    assert observed["b"] == (110, "exact")


def test_asa_where_age_does_not_accrue_is_per_stage():
    """A dependent job gains no priority, so that an early request has no benefit; its wait counts from eligibility."""
    result, m = run("asa", sure(100.0), machine(age_accrues=False))
    assert m.makespan_s == 380
    observed = {r.stages[0]: (r.wait_s, r.bound) for r in result.records if isinstance(r, Observed)}
    assert observed["b"] == (100, "exact")


def test_naive_that_holds_pays_for_idle_cores():
    """B is allocated at 100 and idles until 200, c from 200 to 250: predictions of 100 s for waits of 0 and 50 s."""
    result, m = run(replace(load_strategy("asa-naive-hold"), max_idle=math.inf), sure(100.0))
    assert (m.makespan_s, m.twt_s) == (280, 100)
    assert core_s(m.overhead_core_hours) == 1 * 100 + 4 * 50
    assert core_s(m.core_hours) == NEED + 300
    assert (m.hits, m.misses, m.undecided) == (1, 2, 0)
    assert not any(isinstance(r, Cancelled) for r in result.records)


@pytest.mark.parametrize("strategy", ["asa-naive", "asa-naive-hold"])
def test_what_naive_idles_stays_within_a_quarter_of_what_its_stages_need(strategy):
    _, m = run(strategy, sure(100.0), machine(poll_s=1))
    assert 0 < core_s(m.overhead_core_hours) <= NEED / 4


def test_naive_that_gives_back_waits_again():
    """Stage b's cores come at 100, and it is due at 200: it is cancelled, and requested again with half the lead."""
    result, m = run(replace(load_strategy("asa-naive"), max_idle=math.inf), sure(100.0), machine(poll_s=10))
    cancelled = [r for r in result.records if isinstance(r, Cancelled)]
    assert len(cancelled) == m.resubmissions
    assert [(r.stages[0], r.time_s) for r in cancelled] == [("b", 100.0)]
    assert waits(m)["b"] == 0
    held = [r for r in result.records if isinstance(r, Ended) and r.state is JobState.CANCELLED]
    assert core_s(m.overhead_core_hours) == sum(
        (r.time_s - r.start_s) * r.cores for r in held if r.start_s is not None
    ) + sum(
        (r.payload_start_s - r.start_s) * r.cores
        for r in result.records
        if isinstance(r, Ended) and r.state is JobState.COMPLETED
    )


def test_oracle_is_never_late_where_it_need_not_be():
    """With the future known, b and c are requested before the other job arrives."""
    result, m = run("oracle")
    assert (m.makespan_s, m.twt_s) == (280, 100)
    submitted = {r.stages[0]: r.time_s for r in result.records if isinstance(r, Submitted)}
    assert max(submitted.values()) < 160


def test_real_run_times_may_differ_and_plans_follow():
    """Stage a takes 60 s: it ends at 160, and b is ready then."""
    result, m = run("asa", sure(100.0), run_s={"a": 60.0, "b": 50.0, "c": 30.0})
    assert waits(m)["a"] == 100
    assert [stage.run_s for stage in m.stages] == [60, 50, 30]
    predicted = [r for r in result.records if isinstance(r, Predicted)]
    assert {r.stages for r in predicted} == {("b",), ("c",)}


def test_a_failed_stage_ends_the_workflow():
    """Stage a is killed at its walltime; its successors are cancelled, and nothing else is submitted."""
    result, _ = run("chained", run_s={"a": 500.0, "b": 50.0, "c": 30.0})
    assert result.outcome == "failed"
    assert result.reason == "stage 'a' ended as timeout (TimeLimit)"
    assert [r.stages[0] for r in result.records if isinstance(r, Cancelled)] == ["b", "c"]
    assert [r.outcome for r in result.records if isinstance(r, RunEnded)] == ["failed"]
    assert not any(isinstance(r, StageStarted) and r.stages[0] != "a" for r in result.records)
    with pytest.raises(ValueError, match="completed"):
        measure(FLOW, result.records)


def test_an_allocation_that_idled_to_its_limit_is_asked_for_again():
    """A job that is held idle for longer than its spare walltime ends before its stage begins: this is no failure."""

    class Early:
        forecast = load_strategy("big-job").forecast

        def plan(self, view, forecast):
            return Plan.of(
                PlannedJob((n,), view.now_s, Keep.NOTHING if view.is_ready(n) else Keep.AWAIT, "at once")
                for n in view.workflow.order
                if view.stages[n].phase == "waiting" and (view.is_ready(n) or view.stages[n].resubmissions == 0)
            )

    flow = Workflow("w", [Stage("a", cores=1, walltime_s=100), Stage("b", cores=1, walltime_s=20, after=("a",))])
    [result] = run_all(machine([]), [Run(flow, Early())])
    assert result.outcome == "completed"
    m = measure(flow, result.records)
    assert (m.makespan_s, m.resubmissions) == (120, 1)
    assert core_s(m.overhead_core_hours) == 20


def test_several_workflows_at_once():
    """They run side by side on one machine and share a bank, one of them 50 s later; records tell them apart."""
    bank = sure(100.0)
    runs = [
        Run(FLOW, load_strategy("asa"), name="one", bank=bank),
        Run(FLOW, load_strategy("per-stage"), name="two", delay_s=50.0),
    ]
    told = []
    one, two = run_all(machine([]), runs, on_record=told.append)
    assert {r.run for r in one.records} == {"one"}
    assert {r.run for r in two.records} == {"two"}
    assert len(told) == len(one.records) + len(two.records)
    assert two.records[0].time_s == 50
    assert measure(FLOW, one.records).makespan_s == 180
    assert measure(FLOW, two.records).makespan_s == 180
    assert all(r.as_dict()["kind"] for r in told)


def test_a_dag_runs_its_branches_side_by_side():
    """Every strategy takes the time of the longest path."""
    flow = Workflow(
        "diamond",
        [
            Stage("a", cores=2, walltime_s=10),
            Stage("b", cores=2, walltime_s=20, after=("a",)),
            Stage("c", cores=2, walltime_s=30, after=("a",)),
            Stage("d", cores=2, walltime_s=5, after=("b", "c")),
        ],
    )
    for strategy in ("per-stage", "chained", "asa", "asa-naive", "asa-naive-hold", "oracle"):
        _, m = run(strategy, sure(10.0), machine([]), flow)
        assert m.makespan_s == 45, strategy
        assert waits(m) == dict.fromkeys("abcd", 0), strategy
    _, m = run("big-job", None, machine([]), flow)
    assert m.makespan_s == 65
    assert core_s(m.core_hours) == 130


def test_nothing_is_run_twice_and_stages_keep_their_order():
    """Whatever the strategy, each stage runs once, after its predecessors."""
    for strategy in ("big-job", "per-stage", "chained", "asa", "asa-naive", "asa-naive-hold", "oracle"):
        result, _ = run(strategy, sure(50.0), machine(poll_s=7))
        started = [r.stages[0] for r in result.records if isinstance(r, StageStarted)]
        assert started == ["a", "b", "c"], strategy


@pytest.mark.parametrize("fail_fast", [True, False])
def test_a_refused_job_fails_its_own_workflow_only(fail_fast):
    """The site has 8 cores; the other workflow runs on."""
    wide = Workflow("wide", [Stage("a", cores=1, walltime_s=10), Stage("b", cores=9, after=("a",))])
    runs = [Run(wide, load_strategy("chained"), fail_fast=fail_fast), Run(FLOW, load_strategy("chained"))]
    bad, good = run_all(machine(), runs)
    assert bad.outcome == "failed"
    assert "9 of the machine's 8 cores" in bad.reason
    assert [r.stages for r in bad.records if isinstance(r, Cancelled)] == ([("a",)] if fail_fast else [])
    assert [r.stages for r in bad.records if isinstance(r, StageEnded)] == ([] if fail_fast else [("a",)])
    assert good.outcome == "completed"


class PairsLater(PerStage):
    """Puts what is left into one job, once its first stage has ended."""

    def plan(self, view, forecast):
        plan, left = super().plan(view, forecast), tuple(view.left())
        if left == tuple(view.workflow.order) or not plan.submissions:
            return plan
        return replace(plan, submissions=(replace(plan.submissions[0], stages=left),))


@pytest.mark.parametrize("accounts", [("p", "p"), ("p", "q"), ("", "p")])
def test_a_job_of_stages_that_cannot_share_one_is_not_submitted(accounts):
    """Whenever a strategy asks for it: one of them would be charged to the other's account."""
    a, b, c = FLOW.stages.values()
    shared = [replace(stage, account=account) for stage, account in zip((b, c), accounts, strict=True)]
    [result] = run_all(machine(), [Run(Workflow("flow", [a, *shared]), PairsLater())])
    if accounts == ("p", "p"):
        assert result.outcome == "completed"
    else:
        assert "of 2 stages was not submitted: its stages ask for 2 accounts" in result.reason
        assert [record.stages for record in result.records if isinstance(record, Submitted)] == [("a",)]


def test_an_allocation_is_given_back_before_it_would_kill_its_stage():
    """Stage a overruns its expectation by far; b, allocated early, is requested again and completes right after a."""
    for strategy in ("asa-naive", "asa-naive-hold"):
        run_s = {"a": 2000.0 if strategy == "asa-naive-hold" else 400.0, "b": 50.0}
        flow = Workflow(
            "late",
            [
                Stage("a", cores=4, walltime_s=2500, expected_run_s=60),
                Stage("b", cores=1, walltime_s=50, after=("a",)),
            ],
        )
        [result] = run_all(machine([]), [Run(flow, load_strategy(strategy), bank=sure(10.0), run_s=run_s)])
        assert result.outcome == "completed", result.reason
        m = measure(flow, result.records)
        assert m.resubmissions >= 1
        assert m.makespan_s == run_s["a"] + 50


def test_runs_of_one_workflow_after_another_keep_apart():
    """The posts of the first run's stages do not let the second run's stages begin."""
    backend = machine([])
    for _ in range(2):
        _, m = run("asa-naive-hold", sure(100.0), backend)
        assert m.makespan_s == 180
        assert min(waits(m).values()) >= 0


def test_what_ended_before_it_could_be_cancelled_is_not_said_to_be():
    """A client that polls every 100 s learns of a's failure at 200; b, which depends on nothing, completed at 130."""
    flow = Workflow("w", [Stage("a", cores=1, walltime_s=20), Stage("b", cores=1, walltime_s=30)])
    [result] = run_all(machine(poll_s=100), [Run(flow, load_strategy("chained"), run_s={"a": 50.0, "b": 30.0})])
    assert result.outcome == "failed"
    assert not any(isinstance(r, Cancelled) for r in result.records)
    ended = {r.stages[0]: r.state for r in result.records if isinstance(r, Ended)}
    assert ended == {"a": JobState.TIMEOUT, "b": JobState.COMPLETED}


def test_fractional_run_times_do_not_confuse_the_oracle():
    """On an idle machine it predicts no wait."""
    flow = Workflow(
        "w", [Stage("a", cores=1, expected_run_s=500.5), Stage("b", cores=1, expected_run_s=100.5, after=("a",))]
    )
    result, m = run("oracle", None, machine([]), flow)
    assert {r.predicted_wait_s for r in result.records if isinstance(r, Submitted)} == {0.0}
    assert (m.hits, m.misses) == (2, 0)


def test_predictions_say_when_resources_are_needed():
    """Even a job that is submitted earlier than its own prediction requires has the right time."""
    c = FLOW.stages["c"]
    bank = sure(100.0, {(c.cores, c.walltime_s): 1000.0})
    result, _ = run("asa", bank, machine([]))
    submitted = {r.stages[0]: r for r in result.records if isinstance(r, Submitted)}
    assert submitted["b"].time_s == submitted["c"].time_s == 0
    assert "with 'c', which depends on it" in submitted["b"].reason


def test_misuse_is_refused():
    """Runs with the same name, a learner without a bank, a planner that never plans or plans the impossible."""
    asa = load_strategy("asa")
    with pytest.raises(InputError, match="same name"):
        run_all(machine(), [Run(FLOW, load_strategy("big-job")), Run(FLOW, load_strategy("per-stage"))])
    with pytest.raises(InputError, match="needs a bank"):
        run_all(machine(), [Run(FLOW, asa)])

    class Idle:
        forecast = load_strategy("big-job").forecast

        def plan(self, view, forecast):
            return Plan()

    with pytest.raises(RunError, match="nothing can happen"):
        run_all(machine([]), [Run(FLOW, Idle())])

    class Headlong(Idle):
        def plan(self, view, forecast):
            return Plan.of([PlannedJob(("b",), 0.0, Keep.DEPENDENCY, "before a has a job")])

    with pytest.raises(InputError, match="has no job yet"):
        run_all(machine([]), [Run(FLOW, Headlong())])

    class Curious(Idle):
        def plan(self, view, forecast):
            forecast.predict(("a",), 0.0)

    with pytest.raises(InputError, match="must declare"):
        run_all(machine([]), [Run(FLOW, Curious())])


@pytest.mark.parametrize(
    ("accrues", "dependent", "times", "expected"),
    [
        (True, False, {"eligible_s": 10, "start_s": 70}, exactly(60)),
        (True, True, {"eligible_s": 50, "start_s": 50}, at_most(40)),
        (True, True, {"eligible_s": 50, "start_s": 51}, exactly(41)),
        (True, True, {"eligible_s": 10, "start_s": 10}, exactly(0)),
        (False, True, {"eligible_s": 50, "start_s": 50}, exactly(0)),
        (False, True, {"eligible_s": 50, "start_s": 80}, exactly(30)),
        (True, False, {"eligible_s": 10, "end_s": 90, "state": JobState.CANCELLED}, at_least(80)),
        (False, True, {"eligible_s": 50, "end_s": 90, "state": JobState.CANCELLED}, at_least(40)),
        (True, True, {"end_s": 90, "state": JobState.CANCELLED}, None),
        (True, False, {"eligible_s": 10}, None),
        (True, True, {}, None),
    ],
)
def test_what_times_tell_of_a_wait(accrues, dependent, times, expected):
    """The wait is exact, censored, or unknown; the job is submitted at 10."""
    from asa.backend import Capabilities, Dependency, JobSpec, JobStatus

    spec = JobSpec("j", 1, 60, dependencies=(Dependency("1"),) if dependent else ())
    status = JobStatus("2", **{"state": JobState.PENDING, "submit_s": 10, **times})
    assert observation_of(spec, status, Capabilities("m", 8, 8, accrues)) == expected


def test_the_bank_is_told_of_everybody_and_of_ones_own_jobs():
    """The past comes first, then current events, each job once; own jobs have exact waits from when they queue."""
    bank = sure(100.0)
    result, _ = run("asa", bank)
    told = bank["m"].told
    own = [entry for entry in told if entry[1].user == OWN_USER]
    others = [entry for entry in told if entry[1].user != OWN_USER]
    observed = {r.stages[0]: (r.wait_s, r.bound) for r in result.records if isinstance(r, Observed)}
    assert sorted((o.wait_s, o.kind) for what, _, *seen in own if what == "observe" for o in seen) == sorted(
        observed.values()
    )
    submitted = [job for what, job, *_ in others if what == "submitted"]
    assert 0 < len(submitted) <= len(OTHERS)
    assert all(job.system == "m" for job in submitted)


def test_without_a_history_the_bank_hears_of_own_jobs_only():
    bank = sure(100.0)
    run_all(machine(), [Run(FLOW, load_strategy("asa"), bank=bank)], history=0)
    assert {entry[1].user for entry in bank["m"].told} == {OWN_USER}


def test_a_bank_that_followed_one_queue_loses_sight_of_it_before_another():
    """Otherwise jobs that waited in the first queue would seem to wait for ever."""
    bank = WaitBank(seed=1)
    for _ in range(2):
        run_all(machine(), [Run(FLOW, load_strategy("asa"), bank=bank)])
        assert len(bank["m"]._waiting) == len(bank._queue.waiting)


class OneJob:
    """A strategy with one job for all stages, which returns cores."""

    forecast = ForecastKind.NONE

    def __init__(self, *groups):
        self.groups = groups

    def plan(self, view, forecast):
        return Plan.of(
            PlannedJob(group, view.now_s, Keep.NOTHING, "", shrinks=True)
            for group in self.groups
            if view.stages[group[0]].phase is Phase.WAITING and view.is_ready(group[0])
        )


@pytest.mark.parametrize("shrink", [True, False])
def test_stages_that_share_a_job_give_back_what_the_rest_does_not_need(shrink):
    """The job begins at 100 with 6 cores; b alone would need 2, but c after it needs 4."""
    flow = Workflow(
        "flow",
        [
            Stage("a", cores=6, walltime_s=100),
            Stage("b", cores=2, walltime_s=50, after=("a",)),
            Stage("c", cores=4, walltime_s=30, after=("b",)),
            Stage("d", cores=1, walltime_s=40, after=("c",)),
        ],
    )
    world = machine([(0, 100, 100, 8), (160, 100, 100, 4)], shrink=shrink)
    [result] = run_all(world, [Run(flow, OneJob(("a", "b", "c", "d")))])
    assert result.outcome == "completed"
    resized = [(r.time_s, r.cores) for r in result.records if isinstance(r, Resized)]
    assert resized == ([(200.0, 4), (280.0, 1)] if shrink else [])
    held = 6 * 100 + 4 * 80 + 1 * 40 if shrink else 6 * 220
    assert measure(flow, result.records).core_hours == pytest.approx(held / 3600)
    begun = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageStarted)}
    assert begun == {"a": 100.0, "b": 200.0, "c": 250.0, "d": 280.0}


@pytest.mark.parametrize("strategy", ["big-job", "asa-naive", "asa-naive-hold", "shared"])
def test_a_strategy_is_told_what_jobs_held_that_have_ended(strategy):
    """The jobs given back are included, and the cores that one of them returned."""
    seen = []
    planner = OneJob(("a", "b", "c")) if strategy == "shared" else load_strategy(strategy)
    world = machine([(0, 100, 100, 8)], shrink=True, poll_s=10)
    [result] = run_all(world, [Run(FLOW, planner, bank=sure(100.0))], on_pass=lambda states, _: seen.extend(states))
    [state] = {id(state): state for state in seen}.values()
    assert state.view(0.0).spent_core_hours == pytest.approx(measure(FLOW, result.records).core_hours)
