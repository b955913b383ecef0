"""Submits, cancels and releases a run's jobs as decided; each step is recorded before it is taken.

See `asa.exactly_once`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from asa.backend import REFUSAL, JobSpec, JobState, site_word_s
from asa.core import safe
from asa.core.values import changed
from asa.errors import (
    NOT_ACCEPTED,
    BackendError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
)
from asa.exactly_once import AGAIN_S
from asa.keys import RESOURCES, terms_of
from asa.runner.active import Active
from asa.runner.entries import Again, Entry, GivenUp, GivingUp, Intended, NotFound, Refused, Shaped, Stopped
from asa.runner.forecasts import LearnedForecast
from asa.runner.specs import ask_of, conflict_in, spec_of, token_of
from asa.strategies.base import Choice, Phase, PlannedJob, Substitute

_ASKED_FOR = frozenset({Phase.QUEUED, Phase.ALLOCATED, Phase.RUNNING})
_MAX_STUCK_S = 900.0  # the same limit since the decision, whichever client sent the cancellation
_STRANDED = "the nodes that it may run on are away, and one that it is kept off may be tried again"
_STUCK_S = 120.0  # how long an ended run waits for a cancelled job to end


def cancel(
    active: Active, reasons: Mapping[str, str], substitutes: Mapping[str, Substitute | None] = MappingProxyType({})
) -> set[str]:
    """Decide to cancel jobs, each for a reason, unless they have ended meanwhile; return the ids of those decided.

    `substitutes`: the jobs that replace some of them, once these are gone.

    While the run continues, a job whose payload has not begun is first prevented from beginning it: else the payload
    might begin between look and cancellation, and complete just as it is killed. If its cluster cannot be asked now,
    nothing is decided, since the known states may be outdated.
    """
    jobs = active.state.jobs
    had_begun = {job_id for job_id in reasons if jobs[job_id].status.payload_start_s is not None}
    # the reason for a cancellation may no longer hold if the job has started meanwhile
    pending = {job_id for job_id in reasons if jobs[job_id].status.start_s is None}
    active.ask(reasons)
    decided, is_over, given_up = set[str](), active.state.outcome is not None, list[Entry]()
    for job_id, reason in reasons.items():
        job = active.state.jobs[job_id]
        if job.status.state.is_final or (active.backend.condition.trouble_of(job_id) and not is_over):
            continue
        if not job.giving_up:
            # the job was to be cancelled because it was idle
            begins = job.status.payload_start_s is not None and job_id not in had_begun
            begins |= job_id in pending and job.status.start_s is not None and not active.state.why_lost(job)
            if not is_over and (begins or not active.withdraw(job_id)):
                active.ask([job_id])  # in case the job has just begun
                continue
            given_up.append(GivingUp(job_id, reason, active.backend.now(), substitute=substitutes.get(job_id)))
        decided.add(job_id)
    active.commit(*given_up)
    if decided:
        tell_cancellations(active)
    return decided


def tell_cancellations(active: Active) -> float | None:
    """Send cancellations, and record those that took effect; return when to try again.

    A job is given up only once it has ended: until then it may complete, and its stages must not get another job.
    """
    again: list[float] = []
    ended: list[Entry] = []
    active.cancel(wanted := active.to_cancel())
    for job_id in wanted:
        job, now, cancelled_s = active.state.jobs[job_id], active.backend.now(), active.cancelled_s(job_id)
        has_ended = job.status.state.is_final
        # known to any client
        is_late = now > job.giving_up_s + _MAX_STUCK_S and not active.is_cancellation_unsent(job_id)
        was_cancelled = cancelled_s is not None and now > cancelled_s + _STUCK_S
        is_stuck = active.state.outcome is not None and (was_cancelled or is_late)
        if (has_ended and job.status.state is not JobState.COMPLETED) or is_stuck:
            ended.append(GivenUp(job_id, job.giving_up, now))
        elif not has_ended:
            again.append(now + AGAIN_S[0])
    active.commit(*ended)
    return min(again, default=None)


def sweep(active: Active) -> float | None:
    """After the end of a run, cancel its jobs that it does not know; return when to look again."""
    if active.swept or active.state.outcome is None or active.state.jobs.open_intents:
        return None
    if active.run.journal is not None:
        left = active.cancel_unknown(list(active.state.jobs.intents))
        if left:
            return active.backend.now() + AGAIN_S[0]
        if left is None and active.state.outcome != "completed":
            return active.backend.now() + AGAIN_S[-1]
    active.swept = True
    return None


def shape(active: Active, planned: PlannedJob, choices: Mapping[str, Choice]) -> None:
    """Record the shapes in which a job's stages are asked for; a job that may yet turn up keeps its shapes."""
    if planned.is_addition or token_of(active.state, planned) in active.state.jobs.doubtful:
        return
    for name in planned.stages:
        if name in choices:
            active.commit(Shaped(name, choices[name], active.backend.now()))


def submit(active: Active, planned: PlannedJob) -> None:
    """Submit a job; its intent is recorded before, the result after."""
    # nodes that were bad when the job became due may be usable by now
    late = changed(planned, submit_s=max(planned.submit_s, active.backend.now())) if planned.has_payload else planned
    spec, attempt = spec_of(active.state, late), active.attempts.at(planned)
    # earlier jobs of the same stages must not run, such as one that was requeued by hand
    if not (are_over := active.end_all(spec.supersedes)):
        (active.attempts.away if are_over is None else attempt).again_s = active.backend.now() + AGAIN_S[0]
        return
    if _is_refused_by_now(active, planned, spec.token):
        return
    if why := conflict_in(active.state, planned, whole=active.run.strategy.is_one_job):
        active.commit(Intended(spec.token, planned, spec, active.backend.now()))
        active.commit(Refused(spec.token, active.backend.now(), f"{_stages(planned)} not submitted: {why}"))
        return
    before = active.state.jobs.intents.get(spec.token)
    is_again, now = before is not None and before.spec == spec, active.backend.now()
    if is_again:
        active.commit(Again(spec.token, now))
    else:
        word_s = site_estimate_s(active, spec) if planned.has_payload else None
        active.commit(Intended(spec.token, planned, spec, now, word_s=word_s))
    refusal = active.send(spec.token, attempt, partial(_send, active, planned, spec))
    if refusal is None:
        if active.state.jobs.open_intents:
            return
        wants_fewer = active.state.units.asked(planned, spec).wants_fewer
        if not active.state.jobs.has_sent(spec.token) and wants_fewer(planned, spec):
            attempt.again_s = active.backend.now()
        else:
            _is_refused_by_now(active, planned, spec.token)
        return
    if _came_to_nothing(active, spec):  # another job's refusal is the cause, and decides what to do
        active.defer(spec.token, attempt, str(refusal))
        return
    why = f"{_stages(planned)} refused: {refusal.message}"
    active.commit(Refused(spec.token, active.backend.now(), f"{why}. {refusal.hint}" if refusal.hint else why))


def _is_refused_by_now(active: Active, planned: PlannedJob, token: str) -> bool:
    """Record a job as refused if it has got the same unknown answer for too long; return whether it was."""
    if not (lasting := active.state.deferrals.refusal_of(token, active.state, planned)):
        return False
    active.commit(Refused(token, active.backend.now(), f"{_stages(planned)} refused: {lasting}"))
    return True


def can_submit(active: Active, now_s: float) -> bool:
    """Whether anything may be submitted now."""
    state = active.state
    if state.outcome is not None or state.jobs.open_intents or active.to_cancel():
        return False
    return active.attempts.away.is_due(now_s)


def missing_jobs(active: Active, now_s: float) -> Iterator[PlannedJob]:
    """Plan one more job for each stage that several jobs run, has an accepted job, and lacks some."""
    state = active.state
    for name in state.workflow.shared:
        lead = state.jobs.get(state.stages[name].job_id or "")
        if lead is not None and state.stages[name].phase in _ASKED_FOR:
            yield from state.units.of(lead).missing(state, lead, now_s)


def give_back(active: Active) -> float | None:
    """Give back the work that ended jobs had taken, such as tasks; return when to retry failed writes."""
    is_done = [units.give_back(active.state, active.given_back) for units in active.state.units.kinds]
    return None if all(is_done) else active.backend.now() + AGAIN_S[0]


def release_claimed(active: Active) -> float | None:
    """Release jobs whose stages were handed over; give up those that are too small, or whose stages were dropped.

    A file releases a job; it is created once, whatever the job does at that moment. Return when to try again if that
    fails.
    """
    state, again = active.state, None
    for name in list(state.host.unreleased):
        for release, token in state.host.releases.get(name, ()):
            why = _unfit(active, name, token)
            if not _post(active, f"{release}{REFUSAL}" if why else release):
                again = active.backend.now() + AGAIN_S[0]
                break
            if why and (job_id := active.job_of(token)) is not None and active.is_to_begin(job_id):
                cancel(active, {job_id: why})
        else:
            del state.host.unreleased[name]
            state.host.releases.pop(name, None)
    return again


def _unfit(active: Active, name: str, token: str) -> str:
    """Return why a stage cannot run in a token's job; empty if it can."""
    view, spec = active.state.stages[name], active.state.jobs.intents[token].spec
    if view.phase in {Phase.NOT_WANTED, Phase.FAILED}:
        return view.reason
    if name in active.state.host.unclaimed:  # its new request could never start
        return active.state.host.attempts_failed.get(name, "")
    asked = ask_of(active.state, (name,))
    fits = (
        asked.cores <= spec.cores
        and asked.nodes in {0, spec.nodes}
        and asked.cpus_per_task <= spec.cpus_per_task
        and asked.walltime_s <= spec.walltime_s - (spec.max_await_s or 0.0) + 1.0
        and asked.partition == spec.partition
        and terms_of(asked) == terms_of(spec)
        and set(asked.options) <= set(spec.options)
        and all(getattr(asked, key.field) <= getattr(spec, key.field) for key in RESOURCES)
    )
    return "" if fits else f"stage {name!r} asks for other than it did"


def _post(active: Active, token: str) -> bool:
    """Write the marker of a token, for which jobs wait, in the backend's folder; return whether it exists."""
    if not active.run.place:
        return True
    posts = Path(active.run.place) / "posts"
    try:
        safe.provide_folder(posts)
        (posts / quote(token, safe="")).touch()
    except OSError:
        return False
    return True


def site_estimate_s(active: Active, spec: JobSpec) -> float | None:
    """Ask the batch system how long a job would wait, to learn how accurate its estimates are.

    It is asked only if the answer is stored and the queue is hidden: an estimator that sees the queue does not need it.
    """
    bank = active.run.bank
    if bank is None or bank.store is None or bank.sees_queue or not isinstance(active.forecast, LearnedForecast):
        return None
    return None if spec.dependencies else site_word_s(active.backend, spec)


def _send(active: Active, planned: PlannedJob, spec: JobSpec) -> str:
    if planned.has_payload:
        return _submitted(active, planned, spec)
    try:
        return active.state.units.asked(planned, spec).send(active.backend, planned, spec)
    except (*NOT_ACCEPTED, SubmitInDoubtError):
        raise
    except BackendError as error:
        active.ask([d.job_id for d in spec.dependencies])  # the job that it was to join may have ended
        raise SubmitDeferredError(str(error)) from error


def _submitted(active: Active, planned: PlannedJob, spec: JobSpec) -> str:
    """Submit a job; if it is too large, record that the next request is smaller."""
    try:
        return _submitted_somewhere(active, spec)
    except (SubmitRejectedError, SubmitDeferredError) as error:
        fewer = active.state.units.asked(planned, spec).fewer(planned, spec, error, active.backend.now())
        if fewer is None:
            raise
        active.commit(fewer[0])
        raise SubmitDeferredError(f"{error.message}: {fewer[1]}") from error


def _submitted_somewhere(active: Active, spec: JobSpec) -> str:
    """Submit a job; if it could not run without the nodes that it avoids, submit it for any node."""
    try:
        return active.backend.submit(spec)
    except SubmitRejectedError:
        if not spec.avoid:
            raise
        return active.backend.submit(replace(spec, avoid=()))


def _came_to_nothing(active: Active, spec: JobSpec) -> bool:
    """Whether a refusal is due to another job, on which the refused job depends and which failed or was replaced."""
    needed = [d.job_id for d in spec.dependencies if d.job_id in active.state.jobs]
    active.ask(needed)
    ended = (active.state.jobs[job_id].status.state for job_id in needed)
    return any(state.is_final and state is not JobState.COMPLETED for state in ended)


def _stages(planned: PlannedJob) -> str:
    stages = planned.stages
    if not planned.has_payload:
        return f"more cores for stage {stages[0]!r} were"
    return f"stage {stages[0]!r} was" if len(stages) == 1 else f"the job of {len(stages)} stages was"


def clear_up(active: Active) -> float | None:
    """Find out whether the jobs of the open submission were accepted; return when to continue."""
    intents = active.state.jobs.open_intents
    return active.clear_up({token: active.attempts.at(intent.planned) for token, intent in intents.items()})


def look_for_duplicates(active: Active) -> float | None:
    """Cancel second jobs of tokens that were sent again, or follow those that run the payload; return when to go on."""
    sought = [token for units in active.state.units.kinds for token in units.sought(active.state)]
    wakes = [active.look_for_duplicates(active.state.jobs.doubtful), active.seek(sought)]
    for token in sought:
        if token in active.state.jobs.doubtful and not (active.state.jobs.has_sent(token) or active.may_turn_up(token)):
            active.commit(NotFound(token, active.backend.now()))
    for job in [job for job in active.state.jobs.duplicates if not job.given_up]:
        if active.state.outcome is not None:
            break
        job_id, now = job.status.job_id, active.backend.now()
        wakes.append(active.follow_duplicate(job.spec.token, job_id))
        if wakes[-1] is None:
            lost = f"stage {job.planned.stages[0]!r}: the job that runs it, in place of job {job_id}, is lost"
            active.commit(Stopped("failed", lost, now))
    return min((time for time in wakes if time is not None), default=None)


def give_up_orphans(active: Active) -> float | None:
    """Cancel jobs that can never start or are no longer needed; return when to continue.

    Their stages that may still run are submitted again, and so are all stages that depend on them.
    """
    if active.state.outcome not in (None, "completed"):
        return None  # `clean_up` cancels all
    now = active.backend.now()
    again = active.state.nodes.all_tried_again_s(active.state.jobs[job_id] for job_id in active.state.jobs.live())
    while orphans := dict(active.state.lost_jobs()) | {i: _STRANDED for i, at_s in again.items() if at_s <= now}:
        again = {i: at_s for i, at_s in again.items() if at_s > now}
        if not cancel(active, orphans):
            break  # these jobs have ended, or nothing can be decided now
    if orphans or active.to_cancel():
        return now + AGAIN_S[0]
    return min(again.values(), default=None)


def clean_up(active: Active) -> None:
    """Cancel the remaining jobs of a run that ended without its result."""
    why = f"the workflow {'failed' if active.state.outcome == 'failed' else 'was cancelled'}"
    cancel(active, dict.fromkeys(active.state.jobs.live(), why))


def catch_up(active: Active) -> bool:
    """Ask for the states of a resumed run's jobs; return whether they are known. Until then no action is allowed."""
    if active.is_behind:
        active.is_behind = not active.ask(active.state.jobs.unfinished())
    return not active.is_behind
