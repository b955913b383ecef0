"""What a run tells its batch system, so that every job is submitted exactly once, whatever becomes of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from asa.backend import Backend, Growing, JobSpec, JobState, JobStatus
from asa.errors import (
    BackendError,
    JobNotFoundError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)
from asa.runner.active import LATE_S, Active, queues
from asa.runner.entries import Accepted, Again, GivenUp, GivingUp, Intended, Refused, Stopped, Surplus, Told, Unsent
from asa.runner.forecasts import LearnedForecast
from asa.runner.state import Job
from asa.strategies.base import PlannedJob

__all__ = [
    "AGAIN_S",
    "ask",
    "cancel",
    "catch_up",
    "clean_up",
    "clear_up",
    "give_up_orphans",
    "look_for_twins",
    "submit",
    "sweep",
    "take_in",
    "tell_cancellations",
]

AGAIN_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Pauses before a job that could not be sent is sent again."""

_STUCK_S = 120.0  # a run that has ended waits no longer for a job that was cancelled


def cancel(backend: Backend, one: Active, job_id: str, reason: str) -> bool:
    """Decide that a job is to be cancelled, unless it has ended meanwhile; tell whether it was decided.

    Where the batch system cannot be asked now nothing is decided: what is known may be old, and the payload have begun.
    """
    ask(backend, [(one, job_id)])
    job = one.state.jobs[job_id]
    if job.status.state.is_final or (backend.condition.trouble and one.state.outcome is None):
        return False
    if not job.giving_up:
        one.commit(GivingUp(job_id, reason, backend.now()))
    tell_cancellations(backend, one)
    return True


def tell_cancellations(backend: Backend, one: Active) -> float | None:
    """Tell cancellations, and note those that have come true; return when to try again.

    A job is given up once it has ended: until then it may yet end well, and its stages must not have another.
    """
    again: list[float] = []
    for job_id in one.to_cancel():
        job, now = one.state.jobs[job_id], backend.now()
        if not job.status.state.is_final and job_id not in one.told and not _tell(backend, one, job_id):
            again.append(now + AGAIN_S[0])
            continue
        ask(backend, [(one, job_id)])
        is_stuck = one.state.outcome is not None and now > one.told.get(job_id, now) + _STUCK_S
        if (job.status.state.is_final and job.status.state is not JobState.COMPLETED) or is_stuck:
            one.commit(GivenUp(job_id, job.giving_up, now))
        elif not job.status.state.is_final:
            again.append(now + AGAIN_S[0])
    return min(again, default=None)


def _tell(backend: Backend, one: Active, job_id: str) -> bool:
    try:
        backend.cancel(job_id)
    except JobNotFoundError:
        pass  # it has ended, however
    except BackendError:
        return False
    one.told[job_id] = backend.now()
    return True


def sweep(backend: Backend, one: Active) -> float | None:
    """Once a run has ended, cancel whatever of it turns up that it does not know; return when to look again.

    A submission may have arrived twice though it was answered well.
    """
    if one.swept or one.state.outcome is None or one.state.open_intent is not None:
        return None
    if one.run.journal is not None:
        try:
            for token, found in backend.find(one.state.intents).items():
                strange = [s for s in found if s.job_id not in one.state.jobs and not s.state.is_final]
                if not _cancel_surplus(backend, one, token, strange):
                    return backend.now() + AGAIN_S[0]
        except BackendError:
            if one.state.outcome != "completed":
                return backend.now() + AGAIN_S[-1]
    one.swept = True
    return None


def submit(backend: Backend, one: Active, planned: PlannedJob) -> None:
    """Submit a job: what is intended is written down before, what became of it after."""
    spec = one.state.spec_of(planned)
    if not _are_over(backend, spec.supersedes):
        one.again_s = backend.now() + AGAIN_S[0]
        return
    before = one.state.intents.get(spec.token)
    is_again = before is not None and before.spec == spec
    one.commit(Again(spec.token, backend.now()) if is_again else Intended(spec.token, planned, spec, backend.now()))
    one.looks = 0
    try:
        job_id = _send(backend, planned, spec)
    except SubmitRejectedError as error:
        if _came_to_nothing(backend, one, spec):  # what becomes of that decides what becomes of this
            _send_later(backend, one, str(error), doubtful=False)
            return
        why = f"{_stages(planned)} refused: {error.message}"
        why, now_s = f"{why}. {error.hint}" if error.hint else why, backend.now()
        one.commit(Refused(spec.token, now_s, why))
    except SubmitInDoubtError:
        one.again_s = backend.now()  # `clear_up` sees to it
    except (SubmitDeferredError, UnavailableError) as error:
        _send_later(backend, one, str(error), doubtful=False)
    except BackendError as error:
        if not planned.joins:
            raise
        ask(backend, [(one, planned.joins)])  # it has ended, perhaps
        _send_later(backend, one, str(error), doubtful=False)
    else:
        try:
            status = backend.status([job_id])[job_id]
        except BackendError:  # it was accepted, whatever can be asked
            status = JobStatus(job_id, JobState.PENDING, backend.now())
        _begin_job(one, status)


def _are_over(backend: Backend, tokens: Sequence[str]) -> bool:
    """See to it that earlier jobs of what is to be submitted do not run, as one does that was requeued by hand."""
    if not tokens:
        return True
    try:
        alive = [job for found in backend.find(tokens).values() for job in found if not job.state.is_final]
        for job in alive:
            backend.cancel(job.job_id)
    except BackendError:
        return False
    return not alive


def _send(backend: Backend, planned: PlannedJob, spec: JobSpec) -> str:
    if not planned.joins:
        return backend.submit(spec)
    if not isinstance(backend, Growing):
        raise SubmitRejectedError("no job gets more cores here", where=f"job {spec.name!r}", hint="Take `asa-plan`.")
    return backend.grow(planned.joins, spec.cores, token=spec.token)


def _came_to_nothing(backend: Backend, one: Active, spec: JobSpec) -> bool:
    """Say whether a job is refused since one that it depends on failed, or gave way to another, as it was sent."""
    needed = [d.job_id for d in spec.dependencies if d.job_id in one.state.jobs]
    ask(backend, [(one, job_id) for job_id in needed])
    ended = (one.state.jobs[job_id].status.state for job_id in needed)
    return any(state.is_final and state is not JobState.COMPLETED for state in ended)


def _stages(planned: PlannedJob) -> str:
    stages = planned.stages
    if planned.joins:
        return f"more cores for stage {stages[0]!r} were"
    return f"stage {stages[0]!r} was" if len(stages) == 1 else f"the job of {len(stages)} stages was"


def _begin_job(one: Active, status: JobStatus) -> None:
    """Note that the batch system has the job of the open intent."""
    assert one.state.open_intent is not None
    one.commit(Accepted(one.state.open_intent.token, status))
    one.failures = 0
    job = one.state.jobs[status.job_id]
    if isinstance(one.forecast, LearnedForecast):
        one.forecast.used(job.planned.stages)
        if not job.spec.dependencies or (job.planned.joins and status.eligible_s is not None):
            queues(one, job, status.submit_s)
    take_in(one, status)


def _send_later(backend: Backend, one: Active, why: str, *, doubtful: bool) -> None:
    assert one.state.open_intent is not None
    now = backend.now()
    one.commit(Unsent(one.state.open_intent.token, now, why, doubtful))
    one.again_s = now if doubtful else now + AGAIN_S[min(one.failures, len(AGAIN_S) - 1)]
    one.failures += 1


def clear_up(backend: Backend, one: Active) -> float | None:
    """Find out whether the job of an open intent was accepted; return when to go on.

    By two looks with a pause, where it may be accepted late.
    """
    if (intent := one.state.open_intent) is None:
        return None
    now = backend.now()
    if now < one.again_s:
        return one.again_s
    try:
        found = backend.find([intent.token])[intent.token]
    except BackendError:
        one.again_s = now + AGAIN_S[min(one.looks, 1)]
        return one.again_s
    if found:
        _begin_job(one, found[0])
        if not _cancel_surplus(backend, one, intent.token, found[1:]):
            one.suspects.setdefault(intent.token, now)  # another look will tell
        return now
    may_come_late = backend.capabilities.accepts_late
    one.looks += 1
    if may_come_late and one.looks < 2:
        one.again_s = now + LATE_S[0]
    else:
        _send_later(backend, one, "it was not to be found after its submission had gone wrong", doubtful=may_come_late)
    return one.again_s


def look_for_twins(backend: Backend, one: Active) -> float | None:
    """Look for second jobs of tokens that were sent again, and cancel them; return when to look next."""
    now, nexts = backend.now(), []
    if not one.doubtful and not one.state.twins:
        return None
    have = {job.spec.token for job in one.state.jobs.values()}
    for token, since in one.doubtful.items():
        done = one.late_looks.get(token, 0)
        if token not in have and one.state.outcome is None:
            continue  # it is about to be sent again
        if done < len(LATE_S) and now >= since + LATE_S[done] and _keep_one(backend, one, token):
            one.late_looks[token] = done = sum(now >= since + late for late in LATE_S)
        if done < len(LATE_S):
            nexts.append(min(max(since + LATE_S[done], now + 1), now + LATE_S[done]))
    displaced = [job for job in one.state.twins if not job.given_up]
    nexts += [_follow_twin(backend, one, job) for job in displaced if one.state.outcome is None]
    return min(nexts, default=None)


def _follow_twin(backend: Backend, one: Active, job: Job) -> float:
    """Take the job that runs the payload for ours, in place of one that gave way to it; return when to go on."""
    now = backend.now()
    if now < one.again_s:
        return one.again_s
    if _keep_one(backend, one, job.spec.token) and not job.given_up:
        one.looks += 1
        if one.looks > len(LATE_S):
            lost = (
                f"stage {job.planned.stages[0]!r}: the job that runs it, in place of job {job.status.job_id}, is lost"
            )
            one.commit(Stopped("failed", lost, now))
    one.again_s = now + LATE_S[0] if not job.given_up else now
    return one.again_s


def _keep_one(backend: Backend, one: Active, token: str) -> bool:
    """Keep of a token's jobs the one that runs the payload, and cancel the others; tell whether that could be done."""
    try:
        found = backend.find([token])[token]
    except BackendError:
        return False
    for status in found:
        if status.job_id in one.state.jobs:
            take_in(one, status)  # having been told once it is no news any more
    ours = [job_id for job_id, job in one.state.jobs.items() if job.spec.token == token and not job.given_up]
    if not ours:
        return _cancel_strays(backend, found)
    if found and found[0].job_id != ours[0]:
        one.commit(Accepted(token, found[0]))
        take_in(one, found[0])
    return _cancel_surplus(backend, one, token, found[1:])


def _cancel_strays(backend: Backend, found: Iterable[JobStatus]) -> bool:
    """Cancel jobs of a run that has ended."""
    try:
        for status in found:
            backend.cancel(status.job_id)
    except BackendError:
        return False
    return True


def give_up_orphans(backend: Backend, one: Active) -> float | None:
    """Cancel what can never start, or is of no use any more; return when to go on.

    Of its stages those are asked for again that may still run, and so are those that depend on them in turn.
    """
    if one.state.outcome is not None:
        return None
    while orphans := one.state.lost_jobs():
        if not any([cancel(backend, one, job_id, why) for job_id, why in orphans]):  # noqa: C419 - each is cancelled
            break  # they have ended, or nothing can be decided now
    return backend.now() + AGAIN_S[0] if orphans or one.to_cancel() else None


def _cancel_surplus(backend: Backend, one: Active, token: str, surplus: Iterable[JobStatus]) -> bool:
    for status in surplus:
        if not status.state.is_final:
            try:
                backend.cancel(status.job_id)
            except BackendError:
                return False  # another look will tell
            one.commit(Surplus(token, status.job_id, backend.now()))
    return True


def clean_up(backend: Backend, one: Active) -> None:
    """Cancel what is left of a run that ended without its result."""
    for job_id in one.state.live_jobs():
        cancel(backend, one, job_id, f"the workflow {'failed' if one.state.outcome == 'failed' else 'was cancelled'}")


def ask(backend: Backend, jobs: Iterable[tuple[Active, str]]) -> bool:
    """Hear how some jobs stand, as far as the batch system can be asked; tell whether it could be, for all of them."""
    owners = {job_id: one for one, job_id in jobs}
    try:
        told = backend.status(owners)
    except UnavailableError:
        return False
    except JobNotFoundError:
        return all([_ask_one(backend, one, job_id) for job_id, one in owners.items()])  # noqa: C419 - each is asked for
    for job_id, status in told.items():
        take_in(owners[job_id], status)
    return True


def _ask_one(backend: Backend, one: Active, job_id: str) -> bool:
    try:
        status = backend.status([job_id])[job_id]
    except UnavailableError:
        return False
    except JobNotFoundError:
        last = one.state.jobs[job_id].status
        now = max(backend.now(), last.submit_s)
        status = replace(last, state=JobState.FAILED, reason="the batch system does not know the job", end_s=now)
    take_in(one, status)
    return True


def catch_up(backend: Backend, one: Active) -> bool:
    """Hear what became of the jobs of a run that was left; until that was heard nothing may be done for it."""
    if one.is_behind:
        one.is_behind = not ask(backend, [(one, job_id) for job_id in one.state.unfinished_jobs()])
    return not one.is_behind


def take_in(one: Active, status: JobStatus) -> None:
    """Note what was heard of a job, if it is new."""
    job = one.state.jobs[status.job_id]
    if status != replace(job.status, expected_start_s=status.expected_start_s):
        one.commit(Told(status))
    else:
        job.status = status  # what is expected moves all the time, and nothing hangs on it
