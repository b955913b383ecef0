"""The jobs that a pool has asked for. Each is submitted exactly once; see `asa.exactly_once`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from asa.backend import JobSpec, JobState, JobStatus
from asa.errors import StateError
from asa.estimators import WaitBank
from asa.estimators.bank import OwnJob
from asa.exactly_once import AGAIN_S, DUPLICATE, NUMBER_LOST, Attempt, Cause, Submitter
from asa.observations import observation_of, queued
from asa.waits import WaitForecast

logger = logging.getLogger("asa.pool")

_UNSENT = "it was not wanted any more before it was sent"


@dataclass(slots=True)
class _AskedJob:
    """A job that the pool has asked for."""

    spec: JobSpec
    forecast: WaitForecast
    attempt: Attempt = field(default_factory=Attempt)
    is_open: bool = False  # whether the job was sent, and it is not known whether it was accepted
    is_unwanted: bool = False  # the job is to be cancelled, or not to be submitted
    status: JobStatus | None = None  # as last seen; None until the batch system has accepted the job
    own: OwnJob | None = None  # the bank's record of it; None once nothing more can be learned from it
    is_learned: bool = False  # whether its wait was learned
    cancel_s: float = 0.0  # when to check its cancellation again


@dataclass(slots=True)
class PoolJobs(Submitter):
    """The jobs of one pool.

    The token of each is written into the pool's folder before it is wanted here; see `asa.pool.roster.Roster.add`.
    """

    bank: WaitBank
    tell: Callable[[], None]  # reports the news collected so far
    # news by token: jobs that changed, and why jobs will never be accepted
    statuses: dict[str, JobStatus] = field(default_factory=dict, init=False)
    refused: dict[str, str] = field(default_factory=dict, init=False)
    _jobs: dict[str, _AskedJob] = field(default_factory=dict, init=False)  # by token
    _tokens: dict[str, str] = field(default_factory=dict, init=False)  # by job ID
    _seen: dict[str, JobStatus] = field(default_factory=dict, init=False)  # the last status of each job, by job ID
    # since when tokens may have a duplicate: of this pool, and of an earlier one
    _doubtful: dict[str, float] = field(default_factory=dict, init=False)
    _late: dict[str, float] = field(default_factory=dict, init=False)
    # tokens of an earlier pool whose jobs are not cancelled yet
    _left: set[str] = field(default_factory=set, init=False)
    _clear_s: float = field(default=0.0, init=False)  # when to try that again
    _is_swept: bool = field(default=False, init=False)
    # tokens with a surplus job that could not be cancelled
    _doubles: list[str] = field(default_factory=list, init=False)

    # ------------------------------------------------------------------ requests

    def want(self, spec: JobSpec, forecast: WaitForecast) -> None:
        """Request the submission of a job."""
        self._jobs.setdefault(spec.token, _AskedJob(spec, forecast))

    def want_no_more(self, token: str) -> None:
        """Cancel a job, or do not submit it any more."""
        if (job := self._jobs.get(token)) is None:
            return
        job.is_unwanted = True
        if job.status is not None:
            self._tell_cancellations_of([job])
            job.cancel_s = self.backend.now() + AGAIN_S[0]
        elif not job.is_open:
            self._refuse(token, _UNSENT)
            self.tell()

    def clear(self, tokens: set[str]) -> None:
        """Cancel the jobs that an earlier pool has left."""
        self._left |= tokens

    # ------------------------------------------------------------------ operations

    def see_to_all(self) -> None:
        """Do the due operations: send jobs, search for jobs whose submission is in doubt, cancel jobs."""
        for token, job in list(self._jobs.items()):
            if job.status is None:
                self._see_to(token, job)
        self.look_for_duplicates(self._doubtful | self._late)
        now_s, unwanted = self.backend.now(), list[str]()
        for token, job in self._jobs.items():
            if job.status is None:
                continue
            if _gave_way(job.status):
                if self.follow_duplicate(token, job.status.job_id) is None:
                    self._become(token, job, replace(job.status, reason="the job that runs its workers is lost"))
            elif job.is_unwanted and not job.status.state.is_final and now_s >= job.cancel_s:
                unwanted.append(job.status.job_id)
                job.cancel_s = now_s + AGAIN_S[0]
        self.cancel(unwanted)

    def _see_to(self, token: str, job: _AskedJob) -> None:
        """Send a job; if it was sent before, find out whether the batch system accepted it."""
        if job.is_open:
            self.clear_up({token: job.attempt})
        elif job.attempt.is_due(self.backend.now()):
            job.is_open = True  # also if sending raises
            if (refusal := self.send(token, job.attempt, partial(self.backend.submit, job.spec))) is not None:
                self._refuse(token, str(refusal))
        if job.is_unwanted and job.status is None and not job.is_open and token in self._jobs:
            self._refuse(token, _UNSENT)

    def _refuse(self, token: str, why: str) -> None:
        del self._jobs[token]
        self.refused[token] = why

    def clear_what_was_left(self, *, at_once: bool = False) -> str:
        """Cancel the jobs of an earlier pool if a try is due; return what went wrong, empty for nothing."""
        now_s = self.backend.now()
        if not self._left or (now_s < self._clear_s and not at_once):
            return ""
        self._clear_s = now_s + AGAIN_S[0]
        failed = self.cancel_unknown(sorted(self._left))
        done = set() if failed is None else self._left.difference(failed)
        self._left -= done
        if self.backend.capabilities.accepts_late:
            self._late |= dict.fromkeys(done, now_s)
        return self.last_trouble if self._left else ""

    # ------------------------------------------------------------------ at the end

    def see_to_unwanted(self) -> None:
        """Cancel all unwanted jobs without pauses between tries, since the pool is closing."""
        for token, job in list(self._jobs.items()):
            if job.is_unwanted and job.is_open:
                job.attempt.again_s = 0.0
                self._see_to(token, job)
        self._tell_cancellations_of(job for job in self._jobs.values() if job.is_unwanted)

    def _tell_cancellations_of(self, jobs: Iterable[_AskedJob]) -> None:
        sent = (job.status for job in jobs if job.status is not None)
        self.tell_cancellations([status.job_id for status in sent if not status.state.is_final])

    def sweep(self) -> None:
        """Cancel, once, all jobs of this pool's tokens that it does not know."""
        if not self._is_swept:
            failed = self.cancel_unknown([*self._jobs, *self._doubtful])
            self._doubles, self._is_swept = failed or [], failed == []

    def left_behind(self) -> list[str]:
        """Return descriptions of the unwanted jobs that may be left in the queue."""
        unwanted = {token: job for token, job in self._jobs.items() if job.is_unwanted}
        live = [job.status.job_id for job in unwanted.values() if job.status and not job.status.state.is_final]
        strays = [token for token, job in unwanted.items() if job.is_open]
        strays += [t for t in self._doubtful if t not in strays and not self._has_sent(t) and self.may_turn_up(t)]
        return [
            *(f"job {job_id}" for job_id in live if self.cancelled_s(job_id) is None),
            *(f"another job with the token {token}" for token in self._doubles),
            *(f"what was sent with the token {token}, if it was accepted" for token in strays),
            *(f"what an earlier pool has sent with the token {token}" for token in sorted(self._left)),
        ]

    # ------------------------------------------------------------------ contents

    def live(self) -> list[str]:
        """Return the IDs of the jobs that have not ended."""
        return [job.status.job_id for job in self._jobs.values() if job.status and not job.status.state.is_final]

    def to_send(self) -> bool:
        """Whether the batch system has yet to accept any job."""
        return any(job.status is None for job in self._jobs.values())

    # ------------------------------------------------------------------ answers of the batch system

    def status_of(self, job_id: str) -> JobStatus | None:
        """Return the last status of a job; None if it is not the pool's."""
        return self._seen.get(job_id)

    def job_of(self, token: str) -> str | None:
        """Return the job ID of a token; None if it has none, or if its job is unwanted and has ended."""
        job = self._jobs.get(token)
        if job is None or job.status is None:
            return None
        has_ended = job.status.state.is_final and not _gave_way(job.status)
        return None if job.is_unwanted and has_ended else job.status.job_id

    def is_to_be_sent(self, token: str) -> bool:
        """Whether a token has had no job yet and is to have one."""
        return token in self._jobs and not self._has_sent(token)

    def _has_sent(self, token: str) -> bool:
        job = self._jobs.get(token)
        return job is not None and job.status is not None

    def accepted(self, token: str, status: JobStatus) -> None:
        """Record that the batch system has accepted the job of a token; it replaces an earlier job of the token."""
        self._forget_number(token, status)
        job = self._jobs[token]
        is_new, job.is_open, job.cancel_s = job.status is None, False, 0.0
        self._tokens[status.job_id] = token
        # recorded as pending, whatever its state: `heard` records that
        self._become(token, job, JobStatus(status.job_id, JobState.PENDING, status.submit_s))
        if is_new:
            self.tell()  # before the first access to the bank, which takes long
            asked = queued(job.spec, self.backend.capabilities, status.submit_s, self.bank.user)
            job.own = self.bank.submitted(asked, job.forecast)

    def _forget_number(self, token: str, status: JobStatus) -> None:
        """Record a job as lost if another has its number now, as after a controller lost its latest state."""
        former = self._tokens.get(status.job_id, token)
        job = self._jobs.get(former)
        if former == token or job is None or job.status is None or job.status.job_id != status.job_id:
            return
        if not job.status.state.is_final:
            reason, end_s = NUMBER_LOST, max(status.submit_s, job.status.submit_s)
            self._become(former, job, replace(job.status, state=JobState.FAILED, reason=reason, end_s=end_s))

    def unsent(self, token: str, at_s: float, reason: str, *, doubtful: bool, cause: Cause) -> None:  # noqa: ARG002
        """Record that the job of a token was not submitted; if `doubtful`, it may still turn up."""
        self._jobs[token].is_open = False
        if doubtful:
            self._doubtful[token] = at_s
        logger.info("a job could not be submitted yet: %s", reason)

    def surplus(self, token: str, job_id: str, at_s: float) -> None:  # noqa: ARG002 - the port's
        """Record that a surplus job of a token was found and cancelled."""
        logger.info("job %s of the token %s is cancelled, which nobody wants", job_id, token)

    def heard(self, status: JobStatus) -> None:
        """Record a job's status, changed or not, and learn its wait once it has ended."""
        if status == (was := self._seen.get(status.job_id)) or was is None:
            return
        self._seen[status.job_id] = status
        token = self._tokens[status.job_id]
        job = self._jobs[token]
        if job.status is None or job.status.job_id != status.job_id:
            return  # another job has taken its place
        if _gave_way(status):
            job.status = status  # not reported: the job that runs the workers is to be found
        else:
            self._become(token, job, status)
        self._learn(token, job, status)

    def _become(self, token: str, job: _AskedJob, status: JobStatus) -> None:
        job.status = self._seen[status.job_id] = self.statuses[token] = status

    def _learn(self, token: str, job: _AskedJob, status: JobStatus) -> None:
        if job.own is not None and not job.is_learned and (status.start_s is not None or status.state.is_final):
            job.is_learned = True
            if (observation := observation_of(job.spec, status, self.backend.capabilities)) is None:
                self.bank.withdrawn(job.own)  # its wait will never be known
                job.own = None
            else:
                with suppress(StateError):  # a store that cannot be written must not stop the pool
                    self.bank.observe(job.own, observation, token=token)
        if job.own is None or not self.bank.sees_queue or status.start_s is None or status.end_s is None:
            return
        if status.state.is_final and not _gave_way(status):
            self.bank.ended(job.own, max(status.end_s - status.start_s, 0.0))
            job.own = None


def _gave_way(status: JobStatus) -> bool:
    """Whether a job ended at once because another job of its token runs the workers."""
    return status.state is JobState.FAILED and status.reason == DUPLICATE
