"""Submits jobs exactly once, even if answers are lost: jobs of a run's stages, and those of a pool's workers.

A job's token is on the disk before the job is submitted. If the answer is lost, the job is looked for by its token
before it is submitted again. If both submissions arrive, the token ensures that at most one job runs its payload: this
job is kept, and the other is cancelled, however late it turns up.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from asa.backend import Backend, JobState, JobStatus, Withdrawing, cancel_all
from asa.errors import (
    BackendError,
    JobNotFoundError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)

AGAIN_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Pauses before a failed submission is repeated; the last one is used from then on."""

LATE_S = (10.0, 60.0, 300.0)
"""After a submission in doubt was repeated: the times at which a second job is looked for."""

_LOST_S = 90.0
"""If a job gave way to a job that cannot be found for this time, that job is lost."""

NUMBER_LOST = "its number is another job's now"
"""Reason of a job that no longer exists: the controller lost its latest state, and reused the number."""

DUPLICATE = "Twin"
"""Reason of a job that ended at once because another job with its token runs the payload."""


class Cause(StrEnum):
    """Reasons why a job was not submitted but may be tried again."""

    UNKNOWN = ""
    """The answer was lost, or something else must happen first."""
    AWAY = "away"
    """The batch system could not be reached; the same holds for all other jobs."""
    ANSWER = "answer"
    """The batch system answered that it does not accept this job now."""


@dataclass(slots=True)
class Attempt:
    """The state of attempts at an action that may have to be repeated."""

    again_s: float = 0.0  # nothing is sent or looked for before this time
    failures: int = 0  # failed submissions in a row
    looks: int = 0  # how often the job of the last submission was looked for
    cause: Cause = Cause.UNKNOWN  # of the last failure; decides how long a job in doubt is looked for

    def due_s(self, now_s: float) -> float:
        """Return when to try again."""
        self.again_s = min(self.again_s, now_s + AGAIN_S[-1])  # the clock may have been set back
        return self.again_s

    def is_due(self, now_s: float) -> bool:
        """Whether to try again."""
        return now_s >= self.due_s(now_s)

    def failed(self, now_s: float, cause: Cause, *, at_once: bool = False) -> None:
        """Count a failed submission: the next one follows after a pause, or at once if there was a pause before."""
        pause_s = AGAIN_S[min(self.failures, len(AGAIN_S) - 1)]
        self.again_s = now_s if at_once and cause is not Cause.ANSWER else now_s + pause_s
        self.failures += 1

    def succeeded(self) -> None:
        """Reset after an accepted submission."""
        self.failures = 0


@dataclass(slots=True)
class Submitter(ABC):
    """Owner of submitted jobs; it records each piece of news about them before it acts on it."""

    backend: Backend
    # why the batch system last could not be reached, or last refused a cancellation
    last_trouble: str = field(default="", init=False)
    # by token: how often second jobs were looked for
    _late_looks: dict[str, int] = field(default_factory=dict, init=False)
    # by token with a second job that could not be cancelled: since when
    _suspects: dict[str, float] = field(default_factory=dict, init=False)
    # by job: when the batch system first accepted its cancellation, and when last
    _cancelled_s: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    # jobs whose cancellation last did not reach the batch system
    _unsent_cancellations: set[str] = field(default_factory=set, init=False)
    # by token: attempts to find the job that another job of the token gave way to
    _followed: dict[str, Attempt] = field(default_factory=dict, init=False)
    # attempts at submitting several jobs in one call; None once the batch system has said that it never takes them
    _together: Attempt | None = field(default_factory=Attempt, init=False)

    # ------------------------------------------------------------------ records

    @abstractmethod
    def status_of(self, job_id: str) -> JobStatus | None:
        """Return a job's last known status; None if it is not one of the owner's jobs."""

    @abstractmethod
    def job_of(self, token: str) -> str | None:
        """Return the job of a token; None if there is none, or the owner gave it up."""

    @abstractmethod
    def is_to_be_sent(self, token: str) -> bool:
        """Whether a token has never had a job, and its job is still to be submitted."""

    def takes_in(self, token: str) -> bool:  # noqa: ARG002 - most jobs are not wanted any more once others were sent
        """Whether a job that turns up late becomes the owner's although its token has no job now."""
        return False

    @abstractmethod
    def accepted(self, token: str, status: JobStatus) -> None:
        """Record that the batch system has a job of a token; this job replaces an earlier job of the token."""

    def accepted_all(self, jobs: Mapping[str, JobStatus]) -> None:
        """Record the accepted jobs of several tokens."""
        for token, status in jobs.items():
            self.accepted(token, status)

    @abstractmethod
    def unsent(self, token: str, at_s: float, reason: str, *, doubtful: bool, cause: Cause) -> None:
        """Record that a token's job was not submitted, and why; `doubtful`: it may yet turn up."""

    def sought(self, token: str, at_s: float) -> None:  # noqa: B027 - an owner that records nothing looks once more itself
        """Record that a job was looked for once and not found."""

    def unexplained(self, token: str, at_s: float, text: str) -> None:  # noqa: B027 - an owner that records none keeps trying
        """Record that a submission got an unknown answer."""

    @abstractmethod
    def surplus(self, token: str, job_id: str, at_s: float) -> None:
        """Record that a second job of a token was found and cancelled."""

    @abstractmethod
    def heard(self, status: JobStatus) -> None:
        """Record a job's status, changed or not."""

    def heard_all(self, statuses: Iterable[JobStatus]) -> None:
        """Record the status of several jobs."""
        for status in statuses:
            self.heard(status)

    # ------------------------------------------------------------------ submitting

    def send(self, token: str, attempt: Attempt, submit: Callable[[], str]) -> SubmitRejectedError | None:
        """Submit a job whose intent is recorded; if it will never be accepted, return why.

        If the process dies meanwhile, or anything else is raised, `clear_up` finds out whether it was accepted.
        """
        attempt.looks = 0
        try:
            job_id = submit()
        except SubmitRejectedError as error:
            return error
        except (SubmitInDoubtError, SubmitDeferredError, UnavailableError) as error:
            self._failed(token, attempt, error)
        else:
            self._accept_all({token: job_id})
            attempt.succeeded()
        return None

    @property
    def may_send_together(self) -> bool:
        """Whether several jobs may be submitted in one call now: no refusal speaks against it."""
        return self._together is not None and self._together.is_due(self.backend.now())

    def send_together(self, attempts: Mapping[str, Attempt], submit: Callable[[], Sequence[str]]) -> None:
        """Submit jobs in one call, whose intents are recorded; if they are refused together, nothing is in doubt.

        Each is then to be submitted by itself.

        `attempts`: the attempts at each job, by token.
        `submit`: returns the jobs' ids, in the order of `attempts`.
        """
        for attempt in attempts.values():
            attempt.looks = 0
        try:
            job_ids = submit()
        except (SubmitInDoubtError, UnavailableError) as error:
            for token, attempt in attempts.items():
                self._failed(token, attempt, error)
        except (SubmitRejectedError, SubmitDeferredError) as error:
            self._refused_together(attempts, error)
        else:
            self._accept_all(dict(zip(attempts, job_ids, strict=True)))
            for attempt in attempts.values():
                attempt.succeeded()
            if self._together is not None:
                self._together.succeeded()

    def _refused_together(self, tokens: Iterable[str], error: SubmitRejectedError | SubmitDeferredError) -> None:
        """Record that jobs were not accepted in one call, and until when none are submitted so."""
        now_s = self.backend.now()
        for token in tokens:  # what is said of all together need not hold for each
            self.unsent(token, now_s, str(error), doubtful=False, cause=Cause.UNKNOWN)
        if isinstance(error, SubmitRejectedError):
            self._together = None
        elif self._together is not None:
            self._together.failed(now_s, Cause.ANSWER)

    def _failed(self, token: str, attempt: Attempt, error: BackendError) -> None:
        """Record that a submission went wrong, and schedule the next step."""
        now_s = self.backend.now()
        if error.is_unexplained:
            self.unexplained(token, now_s, error.message)
        is_away = isinstance(error, UnavailableError) and not error.is_unexplained
        if isinstance(error, SubmitInDoubtError):
            attempt.again_s, attempt.cause = now_s, Cause.ANSWER if error.is_unexplained else Cause.UNKNOWN
        else:
            self.defer(token, attempt, str(error), cause=Cause.AWAY if is_away else Cause.ANSWER)

    def _accept_all(self, jobs: Mapping[str, str]) -> None:
        """Record the accepted jobs of several tokens, and their states."""
        try:
            known = self.backend.status(jobs.values())
        except BackendError:  # they were accepted, only their states are not known
            now_s = self.backend.now()
            known = {job_id: JobStatus(job_id, JobState.PENDING, now_s) for job_id in jobs.values()}
        for job_id in jobs.values():
            self._cancelled_s.pop(job_id, None)  # a controller that lost its latest state reuses ids
        self.accepted_all({token: known[job_id] for token, job_id in jobs.items()})
        self.heard_all(known.values())

    def defer(
        self, token: str, attempt: Attempt, reason: str, *, cause: Cause = Cause.UNKNOWN, doubtful: bool = False
    ) -> None:
        """Record that a job was not accepted, and schedule another attempt: after a pause, if there was none before."""
        now_s = self.backend.now()
        self.unsent(token, now_s, reason, doubtful=doubtful, cause=cause)
        attempt.failed(now_s, cause, at_once=doubtful)

    def clear_up(self, attempts: Mapping[str, Attempt]) -> float | None:
        """Find out whether jobs in doubt were accepted; return when to continue, None if there are none.

        If a job may be accepted late, it is looked for twice, with a pause in between. The first look is recorded with
        `sought`, so that another client may take the second.

        `attempts`: the attempts at each job, by token.
        """
        now_s = self.backend.now()
        due = [token for token, attempt in attempts.items() if attempt.is_due(now_s)]
        jobs = self._find(due) if due else {}
        wakes = [attempt.again_s for token, attempt in attempts.items() if token not in due]
        wakes += [
            self._cleared_up(token, attempts[token], None if jobs is None else jobs[token], now_s) for token in due
        ]
        return min(wakes, default=None)

    def _cleared_up(self, token: str, attempt: Attempt, alive: Sequence[JobStatus] | None, now_s: float) -> float:
        """Take in what a look for a job in doubt found, None if nothing could be asked; return when to continue."""
        if alive is None:
            attempt.again_s = now_s + AGAIN_S[min(attempt.looks, 1)]
        elif alive:
            self._accept(token, alive[0])
            attempt.succeeded()
            if not self._cancel_surplus(token, alive[1:]):
                self._suspect(token)
            return now_s
        else:
            may_come_late = self.backend.capabilities.accepts_late
            attempt.looks += 1
            if may_come_late and attempt.looks < 2:
                self.sought(token, now_s)
                attempt.again_s = now_s + LATE_S[0]
            else:
                reason = "it was not to be found after its submission had gone wrong"
                self.defer(token, attempt, reason, cause=attempt.cause, doubtful=may_come_late)
        return attempt.again_s

    def _accept(self, token: str, status: JobStatus) -> None:
        self._cancelled_s.pop(status.job_id, None)
        self.accepted(token, status)
        self.heard(status)

    # ------------------------------------------------------------------ second jobs

    def look_for_duplicates(self, doubtful: Mapping[str, float]) -> float | None:
        """Look for second jobs of tokens that were submitted again, and cancel them; return when to look next.

        `doubtful`: tokens that may have a second job, and since when.
        """
        now_s = self.backend.now()
        since = {**doubtful, **self._suspects}  # tokens whose second job was seen, too
        since = {t: since_s for t, since_s in since.items() if self.takes_in(t) or not self.is_to_be_sent(t)}
        due = [token for token, since_s in since.items() if now_s >= self._next_look_s(token, since_s)]
        for token in self._keep_one(due) if due else ():
            self._late_looks[token] = sum(now_s >= since[token] + late_s for late_s in LATE_S)
        nexts = []
        for token, since_s in since.items():
            if self.may_turn_up(token):
                latest_s = now_s + LATE_S[self._looks(token)]
                nexts.append(min(max(self._next_look_s(token, since_s), now_s + 1), latest_s))
        return min(nexts, default=None)

    def _next_look_s(self, token: str, since_s: float) -> float:
        return since_s + LATE_S[self._looks(token)] if self.may_turn_up(token) else math.inf

    def may_turn_up(self, token: str) -> bool:
        """Whether a second job of a doubtful token is still looked for."""
        return self._looks(token) < len(LATE_S)

    def _looks(self, token: str) -> int:
        return self._late_looks.get(token, 0)

    def follow_duplicate(self, token: str, job_id: str) -> float | None:
        """Let the second job, which runs the payload, replace the job that gave way to it.

        Returns when to look again: now, if that is done; None if the second job is lost.
        """
        now_s, attempt = self.backend.now(), self._followed.setdefault(token, Attempt())
        if not attempt.is_due(now_s):
            return attempt.again_s
        is_settled = bool(self._keep_one([token]))
        if self.job_of(token) != job_id:
            del self._followed[token]
            if not is_settled:
                self._suspect(token)
            return now_s
        attempt.looks += is_settled
        status = self.status_of(job_id)
        ended_s = status.end_s if status is not None else None  # a client that looks only once learns no more
        if attempt.looks > len(LATE_S) or (is_settled and ended_s is not None and now_s > ended_s + _LOST_S):
            return None
        attempt.again_s = now_s + LATE_S[0]
        return attempt.again_s

    def seek(self, tokens: Collection[str]) -> float | None:
        """Look for jobs in doubt, which may have begun; return when to look again."""
        now_s = self.backend.now()
        attempts = {token: self._followed.setdefault(token, Attempt()) for token in tokens}
        if due := [token for token, attempt in attempts.items() if attempt.is_due(now_s)]:
            self._keep_one(due)
        for token in due:
            attempts[token].again_s = now_s + LATE_S[0]
        return min((attempt.again_s for attempt in attempts.values()), default=None)

    def _keep_one(self, tokens: Collection[str]) -> list[str]:
        """Keep each token's job that runs the payload, and cancel the others; return the tokens that are settled.

        If the token's job has been given up, all its jobs are cancelled, unless the owner takes one in.
        """
        kept = []
        for token, statuses in (self._find(tokens) or {}).items():
            for status in statuses:
                if self.status_of(status.job_id) is not None:
                    self.heard(status)  # a known status is reported as well
            ours = self.job_of(token)
            if statuses and self._is_to_be_taken_in(token, statuses[0]):
                self._accept(token, statuses[0])
                ours = statuses[0].job_id
            elif ours is not None and statuses and statuses[0].job_id != ours:
                self._accept(token, statuses[0])
            if self._cancel_surplus(token, statuses[1:]) if ours is not None else self._cancel_strays(statuses):
                kept.append(token)
        return kept

    def _is_to_be_taken_in(self, token: str, status: JobStatus) -> bool:
        """Whether the owner takes over a found job that it does not know."""
        return self.job_of(token) is None and self.status_of(status.job_id) is None and self.takes_in(token)

    def _suspect(self, token: str) -> None:
        """Look again later whether a second job that could not be cancelled is gone."""
        self._suspects[token] = self.backend.now()
        self._late_looks.pop(token, None)

    def _find(self, tokens: Collection[str]) -> dict[str, list[JobStatus]] | None:
        try:
            return self.backend.find(tokens)
        except BackendError as error:
            self.last_trouble = str(error)
            return None

    def _cancel_surplus(self, token: str, surplus: Iterable[JobStatus]) -> bool:
        return not self._cancel_unwanted({token: surplus})

    def _cancel_unwanted(self, unwanted: Mapping[str, Iterable[JobStatus]]) -> list[str]:
        """Cancel jobs of tokens, and record that; return the tokens with jobs that were not cancelled."""
        alive = {token: _alive(statuses) for token, statuses in unwanted.items()}
        taken = self._cancel(list(itertools.chain.from_iterable(alive.values())))
        now_s = self.backend.now()
        for token, job_ids in alive.items():
            for job_id in job_ids:
                if job_id in taken:
                    self.surplus(token, job_id, now_s)
        return [token for token, job_ids in alive.items() if not taken.issuperset(job_ids)]

    def _cancel_strays(self, statuses: Iterable[JobStatus]) -> bool:
        return self._cancel(job_ids := _alive(statuses)).issuperset(job_ids)

    def _cancel(self, job_ids: Collection[str]) -> set[str]:
        """Send cancellations; return the jobs whose cancellation was accepted, or that have ended."""
        taken = set(job_ids)
        self._unsent_cancellations -= taken
        for job_id, error in cancel_all(self.backend, job_ids).items():
            if not isinstance(error, JobNotFoundError):
                self.last_trouble = str(error)
                taken.discard(job_id)
            if isinstance(error, UnavailableError):
                self._unsent_cancellations.add(job_id)
        return taken

    # ------------------------------------------------------------------ cancelling

    def withdraw(self, job_id: str) -> bool:
        """Keep a job that is to be cancelled from beginning its payload; return whether that is certain.

        It also counts as certain if the payload is known to have begun, perhaps before the job was requeued: then there
        is nothing to prevent.
        """
        status = self.status_of(job_id)
        if status is None or status.payload_start_s is not None or not isinstance(self.backend, Withdrawing):
            return True
        try:
            return self.backend.withdraw(job_id) or status.restarts > 0
        except JobNotFoundError:
            return True
        except BackendError as error:
            self.last_trouble = str(error)
            return False

    def tell_cancellations(self, job_ids: Iterable[str]) -> set[str]:
        """Cancel jobs; return those whose cancellation the batch system accepted.

        The caller repeats this until they end.
        """
        now_s, taken, due = self.backend.now(), set[str](), list[str]()
        for job_id in job_ids:
            status = self.status_of(job_id)
            if status is not None and status.state.is_final:
                self._cancelled_s.pop(job_id, None)  # a later restart by somebody is not covered by this request
                taken.add(job_id)
            elif 0 <= now_s - self._cancelled_s.get(job_id, (now_s, -math.inf))[1] < AGAIN_S[-1]:
                taken.add(job_id)
            else:
                due.append(job_id)
        for job_id in self._cancel(due):
            self._cancelled_s[job_id] = self._cancelled_s.get(job_id, (now_s, now_s))[0], now_s
            taken.add(job_id)
        return taken

    def cancel(self, job_ids: Collection[str]) -> None:
        """Cancel jobs, and ask for the status of those whose cancellation was accepted."""
        if taken := self.tell_cancellations(job_ids):
            self.ask([job_id for job_id in job_ids if job_id in taken])

    def cancelled_s(self, job_id: str) -> float | None:
        """Return since when the batch system has a job's cancellation; None if it has none."""
        return self._cancelled_s[job_id][0] if job_id in self._cancelled_s else None

    def is_cancellation_unsent(self, job_id: str) -> bool:
        """Whether the last attempt to send a job's cancellation to the batch system failed."""
        return job_id in self._unsent_cancellations

    def end_all(self, tokens: Collection[str]) -> bool | None:
        """Cancel all jobs of the given tokens; return whether none is left, or None if they could not be looked for.

        A job is not cancelled if it has just begun its payload, or if the owner accepts it.
        """
        if not tokens:
            return True
        if (jobs := self._find(tokens)) is None:
            return None
        alive = [
            (token, status) for token, statuses in jobs.items() for status in statuses if not status.state.is_final
        ]
        to_cancel = []
        for token, status in alive:
            if self._is_to_be_taken_in(token, status):
                self._accept(token, status)
            elif self.withdraw(status.job_id):
                to_cancel.append(status)
        self._cancel_strays(to_cancel)
        return not alive

    def cancel_unknown(self, tokens: Collection[str]) -> list[str] | None:
        """Cancel jobs that their owner does not know, or knows as cancelled; return the tokens for which that failed.

        Such jobs exist if a submission arrived twice although it was answered, or if the batch system has lost the last
        calls to it. Returns None if they could not be looked for.
        """
        if not tokens:
            return []
        if (jobs := self._find(tokens)) is None:
            return None
        return self._cancel_unwanted(
            {t: [s for s in statuses if self._is_to_go(s.job_id)] for t, statuses in jobs.items()}
        )

    def _is_to_go(self, job_id: str) -> bool:
        status = self.status_of(job_id)
        return status is None or status.state is JobState.CANCELLED

    # ------------------------------------------------------------------ asking

    def ask(self, job_ids: Collection[str]) -> bool:
        """Ask for the status of the given jobs; return whether the batch system answered for all."""
        try:
            statuses = self.backend.status(job_ids)
        except UnavailableError as error:
            self.last_trouble = str(error)
            return False
        except JobNotFoundError:
            return all([self._ask_one(job_id) for job_id in job_ids])  # noqa: C419 - each is asked for
        self.heard_all(statuses.values())
        return True

    def _ask_one(self, job_id: str) -> bool:
        try:
            status = self.backend.status([job_id])[job_id]
        except UnavailableError as error:
            self.last_trouble = str(error)
            return False
        except JobNotFoundError:
            last = self.status_of(job_id)
            assert last is not None
            now_s = max(self.backend.now(), last.submit_s)
            status = replace(last, state=JobState.FAILED, reason="the batch system does not know the job", end_s=now_s)
        self.heard(status)
        return True


def _alive(statuses: Iterable[JobStatus]) -> list[str]:
    return [status.job_id for status in statuses if not status.state.is_final]
