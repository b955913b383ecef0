"""Whole runs of a job that shrinks and grows, whose every number was computed by hand.

The machine has 8 cores, the workflow arrives at 0: a takes 4 cores for 100 s, b 1 core for 200 s, c 4 cores for 100 s;
each asks for exactly that long. The job has 120 s to stand still in.
"""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable
from asa.workflows import montage, statistics

from asa.backend import Capabilities, JobState, JobStatus, StepTimes
from asa.errors import (
    BackendError,
    InputError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)
from asa.estimators import WaitBank
from asa.metrics import measure
from asa.records import (
    Cancelled,
    Deferred,
    Ended,
    Observed,
    Resized,
    Retrying,
    RunEnded,
    StageEnded,
    StageStarted,
    Started,
    Submitted,
)
from asa.runner import CancelRequest, Journal, Run, run_all
from asa.runner.entries import Accepted, GivenUp, GivingUp, Intended, Reported
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies import Keep, Phase, PlannedJob, load_strategy
from asa.strategies.elastic import Elastic
from asa.waits import QueuedJob, WaitForecast, exactly
from asa.workflow import Stage, Workflow

FLOW = Workflow(
    "flow",
    [
        Stage("a", cores=4, walltime_s=100),
        Stage("b", cores=1, walltime_s=200, after=("a",)),
        Stage("c", cores=4, walltime_s=100, after=("b",)),
    ],
)
NEED = 4 * 100 + 1 * 200 + 4 * 100  # core-seconds


class Sure:
    """An estimator that predicts one wait for every job, but those of some numbers of cores."""

    def __init__(self, waits):
        self.waits = waits

    def predict(self, job):
        wait = self.waits.get(job.cores, 0.0)
        return WaitForecast((wait,) * 9, wait)

    def submitted(self, job, forecast=None):
        return 0

    def observe(self, ticket, observation):
        pass

    def withdrawn(self, ticket):
        pass

    def state(self):
        return {}


def machine(others=(), cores=8, **options):
    columns = np.array(others, dtype=np.int64).reshape(-1, 4).T
    own = {name: options.pop(name) for name in ("poll_s", "shrink", "grow") if name in options}
    return SimulatedBackend(Engine(cores, JobTable(*columns), now=0, **options), Machine("m", 1, cores), **own)


def behind(end_s):
    """A machine whose other cores are taken, until a given time, as soon as the job gives them back."""
    return machine([(0, end_s, end_s, 4), (50, end_s - 100, end_s - 100, 3)])


def run(backend, waits=None, workflow=FLOW, strategy=None, **options):
    bank = WaitBank(lambda _: Sure(waits or {}))
    own = {"requests": lambda: next(options["requests"])} if "requests" in options else {}
    of_run = {name: value for name, value in options.items() if name != "requests"}
    [result] = run_all(backend, [Run(workflow, strategy or Elastic(), bank=bank, **of_run)], **own)
    return result


def completed(result, workflow=FLOW):
    assert result.outcome == "completed", result.reason
    ended = [r.stages[0] for r in result.records if isinstance(r, StageEnded)]
    assert sorted(ended) == sorted(workflow.order)
    return measure(workflow, result.records)


def core_s(hours):
    return round(hours * 3600, 6)


def growths(result):
    return [(r.time_s, r.stages, r.cores, r.walltime_s) for r in result.records if isinstance(r, Submitted) and r.joins]


@pytest.mark.parametrize("flow", [FLOW, montage(112), statistics(112)])
@pytest.mark.parametrize("poll_s", [0, 10])
def test_on_an_idle_machine_it_is_as_fast_as_one_job_and_takes_what_the_stages_need(flow, poll_s):
    """The makespan is equal to the second."""
    told = {}
    for name in ("big-job", "per-stage", "elastic"):
        told[name] = completed(
            run(machine(cores=200, poll_s=poll_s), workflow=flow, strategy=load_strategy(name)), flow
        )
    assert told["elastic"].makespan_s == told["big-job"].makespan_s
    assert told["elastic"].core_hours == pytest.approx(told["per-stage"].core_hours, rel=1e-12)
    assert told["elastic"].overhead_core_hours == 0


def known(waits=None):
    """A bank that has learned something, and predicts what is given."""
    bank = WaitBank(lambda _: Sure(waits or {}))
    for i in range(20):
        bank.observe(bank.submitted(QueuedJob(-1e6 + i, 4, 100.0, system="m")), exactly(0.0))
    return bank


def planned(backend, waits=None, workflow=FLOW):
    [result] = run_all(backend, [Run(workflow, load_strategy("asa-plan:grow=yes"), bank=known(waits))], history=0)
    return result


@pytest.mark.parametrize("flow", [FLOW, montage(112), statistics(112)])
@pytest.mark.parametrize("poll_s", [0, 10])
@pytest.mark.parametrize("age_accrues", [True, False])
def test_a_plan_on_an_idle_machine_is_as_fast_as_one_job_and_takes_what_the_stages_need(flow, poll_s, age_accrues):
    """The plan is one job that grows, or several jobs where age accrues."""
    big = completed(run(machine(cores=200, poll_s=poll_s), workflow=flow, strategy=load_strategy("big-job")), flow)
    few = completed(run(machine(cores=200, poll_s=poll_s), workflow=flow, strategy=load_strategy("per-stage")), flow)
    result = planned(machine(cores=200, poll_s=poll_s, age_accrues=age_accrues), workflow=flow)
    told = completed(result, flow)
    jobs = [(r.stages, bool(r.joins)) for r in result.records if isinstance(r, Submitted)]
    assert (jobs[0] == (tuple(flow.order), False)) == (not age_accrues), "else jobs that depend on it begin as early"
    assert any(joins for _, joins in jobs[1:]) == (not age_accrues)
    assert told.makespan_s == big.makespan_s
    assert told.core_hours == pytest.approx(few.core_hours, rel=1e-12)
    assert told.overhead_core_hours == 0


@pytest.mark.parametrize(("wait_s", "grows"), [(100.0, True), (10_000.0, False)])
def test_a_plan_grows_only_where_more_cores_come_soon(wait_s, grows):
    """Of 3 cores, while one more job would wait for 400 s."""
    result = planned(machine(age_accrues=False), {3: wait_s, 4: 400.0})
    completed(result)
    assert bool(growths(result)) == grows


def test_cores_asked_for_the_wait_ahead_join_as_the_stage_before_ends():
    """The predicted wait is 100 s: cores requested at 200 for the job's last 320 s join at 300."""
    result = run(behind(300), {3: 100.0})
    m = completed(result)
    assert growths(result) == [(200.0, ("c",), 3, 320.0)]
    assert [r.time_s for r in result.records if isinstance(r, Started)] == [0, 300]
    assert (m.makespan_s, m.twt_s, core_s(m.core_hours), m.overhead_core_hours) == (400, 0, NEED, 0)
    assert [(r.wait_s, r.predicted_wait_s) for r in result.records if isinstance(r, Observed)] == [(0, 0), (100, 100)]
    assert (m.hits, m.misses) == (2, 0)
    assert [(r.time_s, r.cores) for r in result.records if isinstance(r, Resized)] == [(100, 1)]


def test_the_payload_stands_still_until_its_cores_have_come():
    """The cores join at 340: one core idles, and c waits 40 s."""
    m = completed(run(behind(340), {3: 100.0}))
    assert (m.makespan_s, m.twt_s, core_s(m.core_hours), core_s(m.overhead_core_hours)) == (440, 40, NEED + 40, 40)


def test_cores_that_come_early_idle():
    """The cores join at 250 instead of 300."""
    m = completed(run(behind(250), {3: 100.0}))
    assert (m.makespan_s, core_s(m.core_hours), core_s(m.overhead_core_hours)) == (400, NEED + 150, 150)


def test_cores_that_come_much_too_early_are_given_back_and_asked_for_again():
    """The cores join at 220; they are returned, and requested again at 250 with half the lead."""
    result = run(behind(220), {3: 100.0})
    m = completed(result)
    assert [time for time, *_ in growths(result)] == [200, 250]
    assert [(r.time_s, r.reason) for r in result.records if isinstance(r, Cancelled)] == [
        (220, "its cores came 1m20s before they were needed")
    ]
    assert (m.makespan_s, core_s(m.core_hours), m.resubmissions) == (400, NEED + 150, 1)


def test_a_job_that_would_not_hold_the_rest_is_given_up_and_the_rest_asked_for():
    """The job ends at 520, too early for c, so at 420 c gets its own job, which starts at 600; a and b run once."""
    result = run(behind(600), {3: 100.0})
    m = completed(result)
    submitted = [(r.time_s, r.stages, r.cores) for r in result.records if isinstance(r, Submitted)]
    assert submitted == [(0, ("a", "b", "c"), 4), (200, ("c",), 3), (420, ("c",), 4)]
    assert m.makespan_s == 700
    assert core_s(m.core_hours) == NEED + 120
    states = {r.job_id: r.state for r in result.records if isinstance(r, Ended)}
    assert states == {"1": JobState.CANCELLED, "2": JobState.CANCELLED, "3": JobState.COMPLETED}


def test_a_job_that_ends_as_it_stands_still_is_no_failure():
    """Nobody cancels the job in time: it reaches its walltime at 520."""

    class Patient(Elastic):
        def plan(self, view, forecast):
            return replace(super().plan(view, forecast), cancellations=())

    result = run(behind(600), {3: 100.0}, strategy=Patient())
    assert completed(result).makespan_s == 700
    assert next(r for r in result.records if isinstance(r, Ended)).state is JobState.TIMEOUT


def test_what_joined_is_given_back_first():
    """Of the 4 cores that join for b, 2 are returned at c, and the other 2, with one more, at d."""
    flow = Workflow(
        "hill",
        [
            Stage("a", cores=2, walltime_s=100),
            Stage("b", cores=6, walltime_s=50, after=("a",)),
            Stage("c", cores=4, walltime_s=40, after=("b",)),
            Stage("d", cores=1, walltime_s=30, after=("c",)),
        ],
    )
    seen = []
    bank = WaitBank(lambda _: Sure({}))
    [result] = run_all(machine(), [Run(flow, Elastic(), bank=bank)], on_pass=lambda states, _: seen.extend(states))
    m = completed(result, flow)
    assert [(r.time_s, r.job_id, r.cores) for r in result.records if isinstance(r, Resized)] == [
        (150, "2", 2),
        (190, "1", 1),
    ]
    assert [(r.job_id, r.time_s) for r in result.records if isinstance(r, Ended)] == [("2", 190), ("1", 220)]
    assert core_s(m.core_hours) == 2 * 100 + 6 * 50 + 4 * 40 + 1 * 30
    assert core_s(seen[-1].view(0.0).spent_core_hours) == core_s(m.core_hours)


@pytest.mark.parametrize(
    ("options", "jobs"),
    [
        ({"grow": False}, [("a", "b"), ("c",)]),
        ({"grow": False, "shrink": False}, [("a",), ("b",), ("c",)]),
        ({"shrink": False}, [("a",), ("b", "c"), ("c",)]),
    ],
)
def test_where_jobs_cannot_grow_or_shrink_it_does_what_it_can(options, jobs):
    """Jobs are for sequences of stages; the last job requests the cores that would have joined the previous one."""
    result = run(machine(**options))
    m = completed(result)
    assert [r.stages for r in result.records if isinstance(r, Submitted)] == jobs
    assert [bool(r.joins) for r in result.records if isinstance(r, Submitted)][-1] == ("grow" not in options)
    assert (m.makespan_s, core_s(m.core_hours)) == (400, NEED)


def test_a_stage_that_fails_fails_the_run_and_its_cores_go_with_it():
    """Stage c needs longer than the rest of the job's walltime, so it is not tried again."""
    result = run(machine(), run_s={"a": 100.0, "b": 200.0, "c": 900.0})
    assert (result.outcome, result.reason) == ("failed", "stage 'c' ended as timeout (TimeLimit)")
    assert not [r for r in result.records if isinstance(r, Retrying)]
    assert {r.job_id for r in result.records if isinstance(r, Ended)} == {"1", "2"}


# ---------------------------------------------------------------------- what may go wrong


class Wrong:
    """A world in which the n-th request for more cores goes wrong."""

    def __init__(self, inner, at, how):
        self.inner, self.at, self.how, self.seen = inner, at, how, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def grow(self, *arguments, **named):
        self.seen += 1
        grow = self.inner.grow
        return self.how(grow, *arguments, **named) if self.seen - 1 == self.at else grow(*arguments, **named)


def lost(_, *__, **___):
    raise SubmitInDoubtError("the request was lost")


def answer_lost(grow, *arguments, **named):
    grow(*arguments, **named)
    raise SubmitInDoubtError("the answer was lost")


def unavailable(_, *__, **___):
    raise UnavailableError("nobody answers")


def deferred(_, *__, **___):
    raise SubmitDeferredError("too many jobs")


def refused(_, *__, **___):
    raise BackendError("has ended")


def nothing_is_left(world):
    every = [s for statuses in world.find(world._tokens).values() for s in statuses]
    assert all(s.state.is_final for s in every)
    return every


@pytest.mark.parametrize("how", [lost, answer_lost, unavailable, deferred, refused])
def test_more_cores_are_asked_for_once_whatever_becomes_of_the_answer(how, tmp_path):
    world = behind(300)
    journal = Journal(tmp_path / "journal.jsonl")
    result = run(Wrong(world, 0, how), {3: 100.0}, journal=journal, id="r" * 12)
    completed(result)
    assert len(growths(result)) == 1
    assert len(nothing_is_left(world)) == 2
    assert len([r for r in result.records if isinstance(r, Deferred)]) == (how is not answer_lost)


def test_cores_that_join_twice_are_given_back_once(tmp_path):
    """The first request is given up, but its cores join half a minute after the second request's."""
    world, late = machine([(0, 1000, 1000, 1)]), []

    class Late:
        def __getattr__(self, name):
            return getattr(world, name)

        def grow(self, *arguments, **named):
            if not late:
                late.append((world.now() + 30, arguments, named))
                raise SubmitInDoubtError("no answer in time")
            return world.grow(*arguments, **named)

        def wait(self, until_s):
            if late and late[-1] and (until_s is None or late[-1][0] <= until_s):
                changed = world.wait(late[-1][0])
                if world.now() >= late[-1][0]:
                    world.grow(*late[-1][1], **late[-1][2])
                    late.append(())
                return changed
            return world.wait(until_s)

    result = run(Late(), {3: 60.0}, journal=Journal(tmp_path / "journal.jsonl"), id="r" * 12)
    completed(result)
    assert [r.reason for r in result.records if isinstance(r, Cancelled)] == ["a duplicate of job 2"]
    assert len(nothing_is_left(world)) == 3


def test_a_site_that_gives_no_more_cores_refuses_the_wish():
    class Growing:
        """A backend that claims that its jobs can grow, but has no way to request it."""

        def __init__(self):
            self.inner = machine()

        def __getattr__(self, name):
            if name == "grow":
                raise AttributeError(name)
            return getattr(self.inner, name)

    backend = Growing()
    result = run(backend)
    assert result.outcome == "failed"
    assert result.reason.startswith(
        "more cores for stage 'c' were refused: no job gets more cores here. Take `asa-plan`."
    )
    nothing_is_left(backend.inner)


def test_a_growth_that_is_refused_ends_its_stage_and_nothing_else():
    """Other stages continue, as after any failure; the stage's job does not wait any longer."""

    class Refusing:
        def __init__(self):
            self.inner = machine(cores=16)

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def grow(self, *_, **__):
            raise SubmitRejectedError("Requested node configuration is not available")

    beside = Stage("sib", cores=1, walltime_s=5000, expected_run_s=3000, partition="other")
    flow = Workflow("flow", [*FLOW.stages.values(), beside])
    result = run(Refusing(), {3: 100.0}, workflow=flow)
    assert result.outcome == "failed"
    done = {name for record in result.records if isinstance(record, StageEnded) for name in record.stages}
    assert done == {"a", "b", "sib"}


@pytest.mark.parametrize("end_s", [250, 300, 340, 600])
def test_a_run_is_cancelled_at_any_time_with_all_that_joins_its_job(end_s, tmp_path):
    for after in range(1, 14, 2):
        world = behind(end_s)
        requests = itertools.chain([[]] * after, [[CancelRequest("flow")]], itertools.repeat([]))
        (folder := tmp_path / f"{end_s}-{after}").mkdir()
        journal = Journal(folder / "journal.jsonl")
        result = run(world, {3: 100.0}, journal=journal, id="r" * 12, requests=requests)
        journal.close()
        assert result.outcome in {"cancelled", "completed"}
        nothing_is_left(world)
        [ended] = [r for r in result.records if isinstance(r, RunEnded)]
        assert ended.outcome == result.outcome
        if result.outcome == "cancelled":
            again = run(world, {3: 100.0}, journal=Journal(folder / "journal.jsonl"), id="r" * 12, retry=True)
            completed(again)
            nothing_is_left(world)


# ---------------------------------------------------------------------- what the run knows


SITE = Capabilities("m", 8, 1, age_accrues=True, shrink_by=1, grow_by=1)


def state_of(*widths):
    """A run whose job 1 has been submitted, and what tells it of its status."""
    state = RunState("flow", FLOW, SITE, "r" * 12)
    planned = PlannedJob(("a", "b", "c"), 0.0, Keep.NOTHING, "", spare_walltime_s=120.0, widths=widths or (4, 1, 4))
    _submit(state, planned, "1", 0.0)
    return state


def _submit(state, planned, job_id, at_s):
    spec = spec_of(state, planned)
    for entry in (
        Intended(spec.token, planned, spec, at_s),
        Accepted(spec.token, JobStatus(job_id, JobState.PENDING, at_s)),
    ):
        list(state.apply(entry))
    return spec


def _tell(state, job_id, submit_s=0.0, job_state=JobState.RUNNING, **facts):
    return list(state.apply(Reported(JobStatus(job_id, job_state, submit_s, **facts))))


def running(state, *steps, **facts):
    times = {"start_s": 10.0, "payload_start_s": 10.0, "eligible_s": 0.0}
    return _tell(state, "1", steps=tuple(StepTimes(*step) for step in steps), **times | facts)


def test_what_is_asked_for_is_what_a_stage_has_more_and_for_the_time_that_is_left():
    state = state_of()
    running(state, ("a", 10.0, None, 4))
    spec = spec_of(state, PlannedJob(("c",), 200.0, Keep.NOTHING, "", joins="1"))
    assert (spec.cores, spec.walltime_s, spec.steps, spec.posts) == (3, 520.0 - 190.0, (), ())
    assert spec.token == f"{'r' * 12}-1x3-0-g3-0"
    for stage in ("a", "b"):
        with pytest.raises(InputError, match="needs no more cores than job 1 has before it"):
            spec_of(state, PlannedJob((stage,), 200.0, Keep.NOTHING, "", joins="1"))


def test_a_strategy_sees_how_far_a_job_is_and_what_was_asked_for():
    state = state_of()
    running(state, ("a", 10.0, 110.0, 4), ("b", 110.0, None, 1))
    view = state.view(150.0)
    assert {name: (s.started_s, s.ended_s, s.cores) for name, s in view.stages.items()} == {
        "a": (10.0, 110.0, 4),
        "b": (110.0, None, 1),
        "c": (None, None, 4),
    }
    assert {s.phase for s in view.stages.values()} == {Phase.RUNNING}
    assert view.stages["c"].limit_s == 530.0
    _submit(state, PlannedJob(("c",), 150.0, Keep.NOTHING, "", joins="1"), "2", 150.0)
    assert {s.job_id for s in state.view(150.0).stages.values()} == {"1"}, "it is of none of the stages"
    told = []
    for status in ({"job_state": JobState.PENDING}, {"start_s": 160.0}, {"job_state": JobState.CANCELLED}):
        _tell(state, "2", 150.0, **status)
        told += [(g.joins, g.stage, g.cores, g.phase) for g in state.view(170.0).growths]
    assert told == [("1", "c", 3, phase) for phase in (Phase.QUEUED, Phase.ALLOCATED, Phase.DONE)]
    assert state.outcome is None


def test_a_job_that_is_put_back_into_the_queue_keeps_what_completed():
    state = state_of()
    running(state, ("a", 10.0, 110.0, 4), ("b", 110.0, None, 1))
    _tell(state, "1", 120.0, JobState.PENDING, restarts=1)
    views = state.view(130.0).stages
    assert {name: (s.phase, s.started_s, s.ended_s, s.limit_s) for name, s in views.items()} == {
        "a": (Phase.QUEUED, 10.0, 110.0, None),
        "b": (Phase.QUEUED, None, None, None),
        "c": (Phase.QUEUED, None, None, None),
    }
    again = running(
        state, ("a", 200.0, 300.0, 4), ("b", 300.0, None, 1), start_s=200.0, payload_start_s=200.0, restarts=1
    )
    assert [(r.time_s, r.cores) for r in again if isinstance(r, Resized)] == [(300.0, 1)]
    first = state.view(350.0).stages["a"]
    assert (first.started_s, first.ended_s) == (10.0, 110.0)
    assert first.submit_s <= 10.0
    assert state.view(350.0).spent_core_hours == pytest.approx(4 * 110 / 3600)


def test_what_ended_between_two_looks_before_a_requeue_ran_when_its_marks_say():
    state = state_of()
    running(state, ("a", 10.0, None, 4))
    _tell(state, "1", 120.0, JobState.PENDING, restarts=1)
    running(state, ("a", 10.0, 110.0, 4), ("b", 200.0, None, 1), start_s=200.0, payload_start_s=200.0, restarts=1)
    first = state.view(350.0).stages["a"]
    assert (first.started_s, first.ended_s) == (10.0, 110.0)
    assert first.submit_s <= 10.0


def test_what_completed_in_a_job_that_was_given_up_is_done():
    """No other job waits for posts of the job that was given up."""
    state = state_of()
    running(state, ("a", 10.0, 110.0, 4), ("b", 110.0, 310.0, 1))
    list(state.apply(GivingUp("1", "late", 400.0)))
    _tell(
        state,
        "1",
        job_state=JobState.CANCELLED,
        start_s=10.0,
        payload_start_s=10.0,
        end_s=400.0,
        steps=state.jobs["1"].status.steps,
    )
    told = list(state.apply(GivenUp("1", "late", 400.0)))
    assert [(type(r), r.stages, r.time_s) for r in told if isinstance(r, StageStarted | StageEnded)] == [
        (StageStarted, ("a",), 10.0),
        (StageEnded, ("a",), 110.0),
        (StageStarted, ("b",), 110.0),
        (StageEnded, ("b",), 310.0),
    ]
    phases = {name: view.phase for name, view in state.view(400.0).stages.items()}
    assert phases == {"a": Phase.DONE, "b": Phase.DONE, "c": Phase.WAITING}
    spec = spec_of(state, PlannedJob(("c",), 400.0, Keep.AWAIT, ""))
    assert (spec.awaits, spec.token) == ((), f"{'r' * 12}-3-1")


def test_of_a_job_that_failed_those_before_the_failure_are_done_and_those_after_it_blocked():
    state = state_of()
    running(state, ("a", 10.0, 110.0, 4), ("b", 110.0, None, 1))
    _tell(state, "1", job_state=JobState.FAILED, start_s=10.0, payload_start_s=10.0, end_s=150.0, exit_code=1)
    assert state.outcome == "failed"
    assert {name: view.phase for name, view in state.stages.items()} == {
        "a": Phase.DONE,
        "b": Phase.FAILED,
        "c": Phase.BLOCKED,
    }


def test_an_older_journal_can_be_read(tmp_path):
    """One from before jobs grew."""
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    assert run(machine(), strategy=load_strategy("big-job"), journal=journal, id="r" * 12).outcome == "completed"
    journal.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for entry in lines:
        for key in ("widths", "joins"):
            entry.get("planned", {}).pop(key, None)
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in lines))
    assert run(machine(), strategy=load_strategy("big-job"), journal=Journal(path), id="r" * 12).outcome == "completed"
