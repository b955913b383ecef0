"""The state of a run, for people and programs; all commands that show a run use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

from asa.backend import JobState, JobStatus, StepTimes
from asa.cli.kinds import alike, unit_standing
from asa.cli.kinds.base import UnitStanding
from asa.cli.notices import is_on_hold
from asa.cli.runs import SCHEMA, facility_of, has_begun_in, latest_job, read_state, remedy_on
from asa.core import owned
from asa.core.late import dataclass
from asa.errors import InputError, OwnerError
from asa.keepers import is_kept_in_private, kept
from asa.metrics import RunMetrics, idle_times, measure
from asa.observations import queued_since
from asa.outcome import JobOutcome
from asa.records import Predicted, Record, Retrying, RunEnded, RunStarted
from asa.strategies.base import Keep, Phase, PlannedJob
from asa.units import format_duration

if TYPE_CHECKING:
    from asa.backend import Condition, JobStatus
    from asa.core.locks import Holder
    from asa.runner import RunFolder, RunPlan
    from asa.runner.jobs import Job
    from asa.runner.nodes import BadNode
    from asa.runner.state import RunState
    from asa.strategies.base import StageView
    from asa.waits import WaitForecast

_IN_ITS_TURN = "waiting in its job"
_ENDED_AS = {JobState.FAILED: "failed", JobState.TIMEOUT: "timed out", JobState.CANCELLED: "cancelled"}
_FAILED = {*_ENDED_AS.values(), "refused"}
_UNSEEN_S = 300.0
_OUT = {"blocked", "skipped", "dropped", "not run"}
_DOES_NOT_RUN = {Phase.BLOCKED: "blocked", Phase.SKIPPED: "skipped", Phase.NOT_WANTED: "dropped"}
_CONDITIONS = {
    "failed": "runs if a stage that it depends on fails",
    "always": "runs once the stages that it depends on have ended, also if they fail",
    "any": "runs once one of the stages that it depends on has completed",
    "early": "runs once some stages that it depends on have begun, or have elements that have completed",
    "ends": "runs once some stages that it depends on have ended, also if they fail",
    "success": "runs if all stages that it depends on run, which is not known yet",
}


@dataclass(frozen=True, slots=True)
class StageStanding:
    """The state of a stage, for display."""

    stage: str
    # in a word or two: `waiting`, `queued`, `queued (dependency)`, `held`, `allocated`, `running`, `done`, `failed`,
    # `refused` and the like. A pending stage is never running.
    # `blocked`: it does not run, since a predecessor failed;
    # `skipped`: it does not run, since it waited for a failure of its predecessors, and none failed;
    # `dropped`: it does not run, since the program that hosts the run no longer wants it;
    # `conditional`: whether it runs is known only when its predecessors have ended.
    state: str
    # cores of its job, submitted or not yet; where the job's cores change, those during this stage
    cores: int
    walltime_s: float
    jobs: int = 1  # number of jobs that share its tasks at a time
    alike: int = 1  # number of equal jobs: these jobs, or the elements of its array
    job_id: str | None = None
    submit_s: float | None = None  # of that job, on the batch system's clock
    eligible_s: float | None = None
    start_s: float | None = None
    began_s: float | None = None
    ended_s: float | None = None
    wait_s: float | None = None  # how long its job waited in the queue, or has waited so far
    run_s: float | None = None  # how long it ran, or has run so far
    is_growing: bool = False  # whether the later of wait and run time is still growing
    predicted_wait_s: float | None = None  # the wait that was predicted, or would be if it were submitted now
    forecast: WaitForecast | None = None  # the distribution of the wait that was predicted at its submission
    expected_start_s: float | None = None  # when the batch system expects it to start
    # why it is pending, how it failed, or why it was refused, in the batch system's words; what became of its previous
    # job, or of the request for more cores; or why it does not run
    reason: str = ""
    given_up: str = ""  # why asa itself cancelled its job; empty if it did not
    exit_code: int | None = None
    outcome: JobOutcome | None = None  # how it ended, where its job's script said so
    resubmissions: int = 0  # how often it was submitted again
    # when its job, or one for more cores for it, is to be submitted, as last planned, and why at that time
    planned_s: float | None = None
    plan: str = ""
    # since when the batch system has not accepted its job, or another that shares it, and why, by its last answer
    put_off_s: float | None = None
    put_off: str = ""
    retried: str = ""  # how its last attempt ended, and with what it is submitted again; empty if it did not fail
    units: UnitStanding = field(default_factory=UnitStanding)  # the units of the stage that its jobs run
    comment: str = ""  # what its user, or the program that hosts the run, says of it

    @property
    def has_failed(self) -> bool:
        """Whether the stage failed."""
        return self.state in _FAILED and not self.given_up

    @property
    def not_accepted(self) -> tuple[float, str] | None:
        """Since when the batch system has not accepted its job, or one more of its jobs, and why; None if it has."""
        return None if self.put_off_s is None else (self.put_off_s, self.put_off)

    def as_dict(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        fields = asdict(self)
        for name in ("forecast", "units", "alike", *([] if self.comment else ["comment"])):
            del fields[name]
        forecast_s = list(self.forecast.quantiles_s) if self.forecast is not None else None
        return {**fields, **self.units.documents(), "forecast_s": forecast_s}


@dataclass(frozen=True, slots=True)
class RunStanding:
    """The state of a run, for display."""

    name: str  # the folder's name, and its path
    path: str
    plan: RunPlan
    # `running`: a client drives it; `detached`: none does, and its jobs go on; `completed`, `failed`, `cancelled`
    state: str
    now_s: float  # as of when, on the batch system's clock
    stages: Sequence[StageStanding]  # each stage, in the workflow's order
    begun_s: float | None = None  # when the workflow was handed over
    ended_s: float | None = None  # when it ended; None while it has not
    stopped_s: float = 0.0  # how long it had ended in between, until it was resumed
    reason: str = ""  # why it ended without its result
    owner: str = ""  # the run's owner, if that is another user, who alone can resume it
    driver: Holder | None = None
    kept: str = ""  # its keeper, while no client drives it; empty if there is none
    left: str = ""  # if no client drives it: when and why the latest client left, if the client could record that
    heard_s: float | None = None  # when the batch system last reported its jobs
    trouble: str = ""  # why it cannot be asked, and what can be done about that
    remedy: str = ""
    refusal: str = ""  # why no client may continue it; `remedy` then has what to do
    next_s: float | None = None  # when the client means to act next
    metrics: RunMetrics | None = field(default=None)  # what it cost, once it has completed
    bad_nodes: Sequence[BadNode] = ()  # nodes that its jobs avoid now

    @property
    def lasted(self) -> str:
        """How long it lasted, or has lasted, in words; empty if it has not begun."""
        if self.begun_s is None:
            return ""
        lasted_s = (self.ended_s if self.ended_s is not None else self.now_s) - self.begun_s
        stopped = f" ({format_duration(self.stopped_s)} of it until it was resumed)" if self.stopped_s >= 1 else ""
        return f"{format_duration(max(lasted_s, 0.0))}{stopped}"

    @property
    def age_s(self) -> float | None:
        """Age of the last news; None if there was none yet."""
        return None if self.heard_s is None else max(self.now_s - self.heard_s, 0.0)

    @property
    def done(self) -> int:
        """Stages that completed."""
        return sum(stage.state == "done" for stage in self.stages)

    @property
    def has_failures(self) -> bool:
        """Whether a stage of the run failed."""
        return any(stage.has_failed for stage in self.stages)

    @property
    def tally(self) -> str:
        """Return how many stages completed, failed, and do not run, in words."""
        n_out = sum(stage.state in _OUT for stage in self.stages)
        does = "did" if self.is_over else "does" if n_out == 1 else "do"
        counts = {
            "failed": sum(stage.has_failed for stage in self.stages),
            "cancelled by asa": sum(stage.state == "cancelled" and bool(stage.given_up) for stage in self.stages),
            f"{does} not run": n_out,
        }
        stages = "1 stage" if self.done == 1 else f"{self.done} stages"
        return ", ".join([f"{stages} completed", *(f"{count} {what}" for what, count in counts.items() if count)])

    @property
    def has_jobs(self) -> bool:
        """Whether a job of the run is pending or runs."""
        return any(stage.job_id is not None and stage.ended_s is None for stage in self.stages)

    @property
    def detached(self) -> str:
        """Describe the state of a run that no client drives."""
        from asa.strategies.on_pool import POOL

        goes_on = ", its jobs go on" if self.has_jobs else ""
        if self.refusal:
            return f"no client, and none may go on with it{goes_on}"
        if self.kept:
            return f"detached: {self.kept}"
        if self.plan.strategy == POOL and self.has_jobs:
            goes_on = ", what ran ended with its pool"
            if not self.owner:
                goes_on = f"{goes_on}: `asa resume` starts it again"
        return f"no client{goes_on}{f' ({self.left})' if self.left else ''}"

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, in any way."""
        return self.state not in {"running", "detached"}

    def as_dict(self) -> dict[str, Any]:
        """Return the state as JSON-ready data, with the version of its schema."""
        driver = self.driver
        return {
            "schema": SCHEMA,
            "run": self.name,
            "folder": self.path,
            "workflow": self.plan.workflow,
            "strategy": self.plan.strategy,
            "estimator": self.plan.estimator,
            "backend": self.plan.backend,
            "state": self.state,
            "reason": self.reason,
            "driver": {"pid": driver.pid, "machine": driver.machine, "since_s": driver.since_s} if driver else None,
            "kept": self.kept,
            "left": self.left,
            "created_s": self.plan.created_s,
            "begun_s": self.begun_s,
            "ended_s": self.ended_s,
            "as_of_s": self.heard_s,
            "age_s": self.age_s,
            "trouble": self.trouble,
            "remedy": self.remedy,
            **({"refusal": self.refusal} if self.refusal else {}),
            **({"owner": self.owner} if self.owner else {}),
            "next_s": self.next_s,
            "bad_nodes": [asdict(node) for node in self.bad_nodes],
            "stages": [stage.as_dict() for stage in self.stages],
            "metrics": {**asdict(self.metrics), "hit_ratio": _finite(self.metrics.hit_ratio)} if self.metrics else None,
        }


def _finite(value: float) -> float | None:
    return value if value == value else None  # noqa: PLR0124 - not so for nan


def standing_of(folder: RunFolder, now_s: float) -> RunStanding:
    """Read a run's state from its folder alone; needs no lease, and asks no batch system."""
    state, records = read_state(folder)
    pulse, driver = folder.last_pulse(), folder.driver()
    return stand(
        folder,
        state,
        records,
        now_s,
        condition=pulse.condition if pulse else None,
        expected=pulse.expected if pulse else {},
        planned=pulse.planned if pulse and driver else (),
        next_s=pulse.next_s if pulse and driver else None,
        driver=driver,
        remedy=remedy_on(facility_of(folder), folder, pulse.condition.trouble) if pulse and driver else "",
    )


def stand(
    folder: RunFolder,
    state: RunState,
    records: Iterable[Record],
    now_s: float,
    *,
    condition: Condition | None = None,
    expected: Mapping[str, float] | None = None,
    planned: Sequence[PlannedJob] | None = None,
    next_s: float | None = None,
    driver: Holder | None = None,
    remedy: str = "",
) -> RunStanding:
    """Build the state of a run for display.

    `expected`: the expected starts of jobs, by their ids, if not in the jobs' statuses.
    """
    all_records = list(records)
    predicted = predictions(all_records)
    retried = {name: r.reason for r in all_records if isinstance(r, Retrying) for name in r.stages}
    plans = {name: job for job in (state.planned if planned is None else planned) for name in job.stages}
    is_over = state.outcome is not None
    # without a client, it is not known what happened since
    known_s = now_s if driver or condition is None else min(condition.heard_s, now_s)
    refusal, repair = ("", "") if is_over else _refusal(folder)
    return RunStanding(
        folder.path.name,
        str(folder.path),
        folder.plan,
        state.outcome or ("running" if driver else "detached"),
        now_s,
        _in_turn(
            state,
            [
                replace(
                    _with_deferral(
                        _stage(state, name, known_s, predicted.get(name), expected or {}, plans.get(name)), state
                    ),
                    retried=""
                    if state.stages[name].phase is Phase.DONE or name in state.ending.refused
                    else retried.get(name, ""),
                )
                for name in state.workflow.order
            ],
        ),
        begun_s=next((r.time_s for r in all_records if isinstance(r, RunStarted)), None),
        ended_s=next((r.time_s for r in reversed(all_records) if isinstance(r, RunEnded)), None) if is_over else None,
        stopped_s=sum(until_s - since_s for since_s, until_s in idle_times(all_records)),
        reason=state.reason,
        owner="" if owned.is_trusted(folder.path) else folder.owner,
        driver=driver,
        kept="" if is_over or driver or refusal else _kept(folder, now_s),
        left="" if is_over or driver else folder.last_left(),
        heard_s=condition.heard_s if condition else None,
        trouble=condition.trouble if condition and not is_over else "",
        remedy=(repair or remedy) if not is_over else "",
        refusal=refusal,
        next_s=next_s if not is_over else None,
        metrics=metrics_of(state, all_records),
        bad_nodes=() if is_over else tuple(state.nodes.bad(known_s)),
    )


def _refusal(folder: RunFolder) -> tuple[str, str]:
    """Return why the user's own run must not be resumed, and what to do; empty if it may be."""
    try:
        if not folder.owner:
            folder.check_own()
            kept(folder.path)
    except OwnerError as refusal:
        return f"{refusal.where} {refusal.message}", (refusal.hint or "").removeprefix(owned.UNUSED)
    except InputError:  # the run cannot be examined
        pass
    return "", ""


def _kept(folder: RunFolder, now_s: float) -> str:
    """Name a run's keeper, and if no client has looked at the run for long, since when."""
    keeper = None
    with suppress(OwnerError):  # the owner is checked before acting on the run
        if folder.owner and is_kept_in_private(folder.path):
            return f"only {folder.owner} can see who looks after it"
        keeper = kept(folder.path)
    if keeper is None:
        return ""
    pulse = folder.last_pulse()
    last_s = max(keeper.since_s, pulse.at_s if pulse is not None else 0.0)
    if now_s - last_s < _UNSEEN_S:
        return keeper.text
    return f"{keeper.text}, but nothing has happened for {format_duration(now_s - last_s)}; see `asa resume --detach`"


def predictions(records: Iterable[Record]) -> dict[str, float]:
    """Return the wait that was last predicted for each stage."""
    return {name: r.wait_s for r in records if isinstance(r, Predicted) for name in r.stages}


def _with_deferral(stage: StageStanding, state: RunState) -> StageStanding:
    """Add to a stage when and why the batch system first deferred its job, or a further job of the stage."""
    deferral = state.deferrals.of(stage.stage)
    if deferral is None or state.outcome is not None:
        return stage
    if stage.state != "waiting" and (stage.job_id is None or stage.ended_s is not None):
        return stage
    return replace(stage, put_off_s=deferral.since_s, put_off=deferral.reason)


def _in_turn(state: RunState, stages: Iterable[StageStanding]) -> list[StageStanding]:
    """Mark the planned stages that follow a stage without an accepted job; `stages`: in the graph's order."""
    from asa.runner.deferrals import target_of

    rejected_before, found = dict[str, str](), list[StageStanding]()
    for stage in stages:
        after = state.workflow.stages[stage.stage].after
        until = [name for name in after if state.has_unknown_end(name)]
        if until and stage.planned_s is not None and stage.job_id is None:
            stage = replace(stage, planned_s=None, plan=f"submitted once {until[0]} has completed")  # noqa: PLW2901
        if stage.put_off_s is not None:
            rejected_before[stage.stage] = stage.stage
        elif stage.planned_s is not None and stage.job_id is None:
            before = next((rejected_before[name] for name in after if name in rejected_before), None)
            if before is not None:
                rejected_before[stage.stage] = before
                found.append(replace(stage, planned_s=None, plan=f"submitted once {before} is accepted"))
                continue
            target = target_of(state, PlannedJob((stage.stage,), stage.planned_s, Keep.NOTHING, ""))
            if state.deferrals.is_closed(target):
                plan = f"submitted in its turn: jobs for {target.text} are tried one at a time until one is accepted"
                stage = replace(stage, planned_s=None, plan=plan)  # noqa: PLW2901
        found.append(stage)
    return found


def metrics_of(state: RunState, records: Sequence[Record]) -> RunMetrics | None:
    """Compute what a run cost; None if it has not completed, or its times contradict each other."""
    if state.outcome != "completed":
        return None
    try:
        return measure(state.workflow, records)
    except ValueError:
        return None


def failed_stages(state: RunState) -> list[str]:
    """Name the stages whose jobs failed, in the workflow's order."""
    return [name for name in state.stages.failed if state.stages[name].job_id is not None]


def _stage(
    state: RunState,
    name: str,
    now_s: float,
    predicted_s: float | None,
    expected: Mapping[str, float],
    plan: PlannedJob | None,
) -> StageStanding:
    view, stage = state.stages[name], state.stages[name].stage
    job = _job_of(state, name)
    state_name, units = _state_name(state, name, job), unit_standing(state, name, job, now_s, plan)
    if job is None:
        each = stage.of_each_job()
        return StageStanding(
            name,
            state_name,
            each.cores_on(state.capabilities.cores_per_node),
            stage.walltime_s,
            jobs=stage.job_count,
            alike=stage.alike,
            predicted_wait_s=plan.prediction.wait_s
            if plan is not None and plan.prediction is not None
            else (predicted_s if state_name not in _DOES_NOT_RUN.values() else None),
            units=units,
            reason=_reason_without_job(state, name, state_name),
            resubmissions=view.resubmissions,
            planned_s=plan.submit_s if plan is not None and state_name == "waiting" else None,
            plan=plan.reason if plan is not None and state_name == "waiting" else "",
            comment=stage.comment,
        )
    status, forecast = job.status, job.planned.prediction
    until_s = view.ended_s if view.ended_s is not None else status.end_s
    began_s = view.started_s if view.started_s is not None else _step_start(job, name)
    was_before = began_s is not None and began_s < status.submit_s  # the job was put back into the queue
    wait_s = None if was_before else _wait_s(state, job, now_s)
    is_pending, is_running = status.state is JobState.PENDING, state_name == "running"
    run_s = max((until_s if until_s is not None else now_s) - began_s, 0.0) if began_s is not None else None
    announced_s = status.expected_start_s if status.expected_start_s is not None else expected.get(status.job_id)
    more = _more_cores(state, job, name) if state_name == _IN_ITS_TURN else ""
    lacks = plan if plan is not None and not plan.has_payload and state_name == _IN_ITS_TURN else None
    return StageStanding(
        name,
        state_name,
        view.cores or job.spec.cores,
        job.spec.walltime_s,
        jobs=job.spec.jobs_at_once,
        alike=alike(stage, job.spec),
        units=units,
        comment=stage.comment,
        job_id=status.job_id,
        submit_s=view.submit_s if was_before else status.submit_s,
        eligible_s=None if was_before else status.eligible_s,
        start_s=None if was_before else status.start_s,
        began_s=began_s,
        ended_s=until_s,
        wait_s=wait_s,
        run_s=run_s,
        is_growing=(is_pending and wait_s is not None) or is_running,
        predicted_wait_s=forecast.wait_s if forecast is not None else None,
        forecast=forecast,
        expected_start_s=announced_s if is_pending and state_name not in {"held", *_OUT} else None,
        reason=more or _reason_with_job(view, status, state_name),
        given_up=job.giving_up,
        exit_code=0 if state_name == "done" and status.exit_code is not None else _end_of(name, status).exit_code,
        outcome=None if state_name == "done" else _end_of(name, status).outcome,
        resubmissions=view.resubmissions,
        planned_s=lacks.submit_s if lacks is not None else None,
        plan=lacks.reason if lacks is not None else "",
    )


def _job_of(state: RunState, name: str) -> Job | None:
    """Return the job that gives a stage its state; None if the stage has no job, or only an irrelevant job."""
    if name in state.ending.refused:
        return None  # the stage's former job is not the one that was refused
    if state.stages[name].phase is Phase.NOT_WANTED:
        return None  # others have the resources now, or they were given back
    job = latest_job(state, name)
    if state.stages[name].job_id is not None:
        return job
    was_given_back = job is not None and job.giving_up and len(job.planned.stages) == 1
    is_left = state.outcome is not None and state.stages[name].phase not in _DOES_NOT_RUN
    return job if was_given_back and is_left else None


def _reason_with_job(view: StageView, status: JobStatus, state_name: str) -> str:
    """Return the reason for the state of a stage with a job."""
    if state_name in _DOES_NOT_RUN.values():
        return view.reason
    if state_name == "failed" and status.state is JobState.COMPLETED:
        return view.reason
    return "" if state_name == "done" else status.reason or view.reason


def _reason_without_job(state: RunState, name: str, state_name: str) -> str:
    """Return why a stage has no job."""
    view = state.stages[name]
    if name in state.ending.refused:
        return state.ending.refused[name].removeprefix(f"stage {name!r} was refused: ")
    if state_name == "conditional":
        stage = view.stage
        is_early = stage.may_be_early and stage.when == "success"
        return _CONDITIONS[
            "early" if is_early else "ends" if stage.after_any and stage.when == "success" else stage.when
        ]
    if state_name not in {"waiting", "not run"}:
        return view.reason
    job = latest_job(state, name)
    if job is None or job.giving_up or job.status.state not in _ENDED_AS or not has_begun_in(job, name):
        return ""
    ended = _ENDED_AS[job.status.state]
    return f"job {job.status.job_id} {'was cancelled' if ended == 'cancelled' else ended} as it ran"


def _more_cores(state: RunState, job: Job, name: str) -> str:
    """Describe the further cores that a job requested for a stage: queued or joined; else empty."""
    for added in reversed(state.line_of(job)[1:]):
        if name in added.planned.stages and not added.giving_up:
            more = f"{added.spec.cores} more {'core' if added.spec.cores == 1 else 'cores'}"
            if added.status.state is JobState.PENDING:
                return f"{more} queued, as job {added.status.job_id}"
            if added.status.state is JobState.RUNNING:
                return f"{more} joined, as job {added.status.job_id}"
    return ""


def _state_name(state: RunState, name: str, job: Job | None) -> str:
    view = state.stages[name]
    if view.phase is Phase.DONE or view.ended_s is not None:
        return "done"  # also if its job still runs other stages, or will run them
    if name in state.ending.refused:
        return "refused"
    if view.phase in _DOES_NOT_RUN:
        return _DOES_NOT_RUN[view.phase]
    if view.phase is Phase.FAILED and job is not None and job.status.state is JobState.COMPLETED:
        return "failed"  # its last leg has ended, and not all is done
    return _state_without_job(state, name) if job is None else _state_of_job(state, name, job)


def _state_without_job(state: RunState, name: str) -> str:
    if state.outcome is not None:
        return "not run"
    if any(name in intent.planned.stages for intent in state.jobs.open_intents.values()):
        return "being submitted"
    return "conditional" if state.stages[name].phase is Phase.CONDITIONAL else "waiting"


def _state_of_job(state: RunState, name: str, job: Job) -> str:
    status = job.status
    if status.state in _ENDED_AS:
        return _ENDED_AS[status.state]
    if job.giving_up:
        return "being cancelled"
    if status.state is JobState.PENDING:
        return _state_of_pending(state, job)
    if status.payload_start_s is None:
        return "allocated"
    if len(job.planned.stages) == 1:
        return "running"
    return _state_of_shared(job, name)


def _state_of_pending(state: RunState, job: Job) -> str:
    status = job.status
    if is_on_hold(status):
        return "held"
    before = {name for stage in job.planned.stages for name in state.stages[stage].stage.after}
    unmet = any(not state.stages[name].phase.is_settled for name in before - set(job.planned.stages))
    if status.eligible_s is None and unmet and job.planned.keep is Keep.DEPENDENCY:
        return "queued (dependency)"
    return "queued"


def _state_of_shared(job: Job, name: str) -> str:
    """Return the state of one of several stages in a running job."""
    by_name = {step.name: step for step in job.status.steps}
    if not by_name:
        return "in a running job"
    if name not in by_name:
        return _IN_ITS_TURN
    return "running" if by_name[name].end_s is None else "done"


def _step_start(job: Job, name: str) -> float | None:
    if len(job.planned.stages) == 1:
        return job.status.payload_start_s
    return next((step.start_s for step in job.status.steps if step.name == name), None)


def _wait_s(state: RunState, job: Job, now_s: float) -> float | None:
    """Return how long a job has been in the queue: since its submission, or its release where age counts from then."""
    status = job.status
    if status.eligible_s is None and not state.capabilities.age_accrues and job.spec.dependencies:
        return None
    until_s = status.start_s if status.start_s is not None else status.end_s
    return max((until_s if until_s is not None else now_s) - queued_since(status, state.capabilities), 0.0)


def _end_of(stage: str, status: JobStatus) -> JobStatus | StepTimes:
    """Return how a stage ended; its own end, if it failed while other stages of its wave continued."""
    own = next((step for step in status.steps if step.name == stage), None)
    return status if own is None or own.exit_code is None else own
