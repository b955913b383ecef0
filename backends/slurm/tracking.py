"""A client's record of one of its jobs: from Slurm's reports, or from markers if Slurm no longer knows the job."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from asa.backends.shell.marks import KeptSubmission, Mark, MarksFolder

from asa.backend import Dependency, JobState, JobStatus, StepTimes
from asa.errors import UnavailableError
from asa.outcome import JobOutcome, without_mark

from .absence import CLOCKS_S, NOT_SHOWN, NOTHING_ASKED, OVER_S, PRESENT, Absence, Evidence, Inquiry, Verdict, verdict
from .link import SlurmRecord
from .states import MAX_NODES, is_guessed, is_held, names_of, status_of

PAYLOAD_COMPLETED: Final = "EndedWell"
"""Reason of a job whose payload completed, although Slurm records another end and starts no dependents."""
DUPLICATE: Final = "Twin"
"""Reason of a job that ran nothing, since another job of its token has the payload."""
VANISHED: Final = "Vanished"
"""Reason of a job of which nothing is known any more."""
LAUNCH_FAILURE: Final = "JobLaunchFailure"
"""Reason of a job that its node could not start, as when the folder of its output is missing."""
IGNORED_DEPENDENCY: Final = "DependencyIgnored"
"""Reason of a job that was cancelled, since Slurm released it before its dependency was met."""

_OUT_OF_MEMORY: Final = "OUT_OF_MEMORY"
BY_TASK: Final = "by-task"
"""Recorded instead of `JobSpec.out_of_memory` for a job that shares a list of tasks: each task has its own end."""
_NO_SIGNAL = 128 + 125  # exit code by which Slurm reports that memory ran out
_SETTLE_S = 10.0  # seconds for which Slurm may show a released job as held
_ROUNDED_S = 60.0  # Slurm counts minutes
_RUNNING = ("RUNNING",)
_SUSPENDED = frozenset({"SUSPENDED", "STOPPED"})
_NOT_LAUNCHED = 53  # signal that Slurm reports if a job's output cannot be opened
_SAME = frozenset({"", "None", "Priority", "Resources"})  # reasons that change while a job queues


@dataclass(slots=True)
class TrackedJob:
    """A job of this client."""

    kept: KeptSubmission
    status: JobStatus  # as last known
    heard_s: float  # when it was confirmed, on the client's clock
    # the client's clock before and after the submission, until Slurm shows the job
    sent_s: tuple[float, float] | None = None
    dependencies: tuple[Dependency, ...] = ()  # dependencies passed to Slurm, until Slurm was seen to keep them
    record: SlurmRecord | None = None
    held_here: bool = False  # whether this client holds it
    released_s: float | None = None  # when this client last released or cancelled it, on the client's clock
    cancelled_s: float | None = None
    absence: Absence = PRESENT  # looks in which Slurm did not show it
    _reported: JobStatus | None = None
    _ran: bool = False

    def __post_init__(self) -> None:
        """Continue from an earlier client's record."""
        self.cancelled_s = self.kept.cancelled_s
        self._take_up()

    def _take_up(self) -> None:
        """Take over the absence that an earlier client saw."""
        if self.kept.absent:
            self.absence = Absence(*self.kept.absent[0][1:])

    def recall(self, known: JobStatus) -> None:
        """Go on from what an earlier client has seen of it."""
        self.status, self._ran = known, known.state is JobState.RUNNING

    def is_to_be_kept(self) -> bool:
        """Put what the next client cannot learn from Slurm into the record; return whether the record has changed."""
        absent = (("", self.absence.looks, self.absence.since_s),) if self.absence.looks else ()
        facts = absent, self.longest_s(), self.suspended_s(), self.cancelled_s
        was = self.kept
        if facts == (was.absent, was.walltime_s, was.suspended_s, was.cancelled_s):  # as after most looks
            return False
        absent, walltime_s, suspended_s, cancelled_s = facts
        self.kept = replace(
            was, absent=absent, walltime_s=walltime_s, suspended_s=suspended_s, cancelled_s=cancelled_s
        )  # fmt: skip
        return True

    def longest_s(self) -> float:
        """Return the walltime, or a longer one that the job was given later."""
        limit_s = (self.record.limit_s if self.record is not None else None) or 0.0
        if limit_s and not math.isfinite(self.kept.walltime_s):
            return limit_s
        return limit_s if limit_s >= self.kept.walltime_s + _ROUNDED_S else self.kept.walltime_s

    def suspended_s(self) -> float | None:
        """Time at which it was last seen suspended; recorded again only if that makes a difference."""
        was_s = self.kept.suspended_s
        if self.record is None or _SUSPENDED.isdisjoint(self.record.states):
            return was_s
        return self.heard_s if was_s is None or not 0 <= self.heard_s - was_s < OVER_S else was_s

    @property
    def job_id(self) -> str:
        """Its id."""
        return self.status.job_id

    @property
    def number(self) -> str:
        """Its number for requests to Slurm."""
        return self.job_id

    @property
    def is_live(self) -> bool:
        """Whether its state may still change."""
        return not self.status.state.is_final

    @property
    def is_news(self) -> bool:
        """Whether the job has changed since it was last reported."""
        return self._reported is None or _is_news(self.status, self._reported)

    def tell(self) -> JobStatus:
        """Return the status, and mark it as reported."""
        self._reported = self.status
        return self.status

    def is_ours(self, record: SlurmRecord) -> bool:
        """Whether a record with this job's number is about this job: Slurm reuses numbers."""
        return record.name == self.kept.name

    def hear(self, record: SlurmRecord, folder: MarksFolder, now_s: float, clock_s: float) -> bool:
        """Process Slurm's report; return whether anything relevant changed. Ended jobs do not change any more.

        Raises `UnavailableError`: the job has ended, but its markers cannot be read. It is not known whether its
        payload began, and its end is not reported yet.
        """
        if not record.submit_s:
            record = replace(record, submit_s=self.kept.submit_s)
        if record == self.record and self._stays(record, now_s):
            self.absence, self.heard_s = PRESENT, clock_s
            return False
        by_slurm = status_of(record, now_s, ran=self._ran, kept_back=self.kept.kept_back)
        self.absence, self.heard_s, self.record = PRESENT, clock_s, record
        self._ran |= by_slurm.state is JobState.RUNNING
        return self._become(self._refined(by_slurm, record, folder, clock_s))

    def _stays(self, record: SlurmRecord, now_s: float) -> bool:
        """Whether a report that equals the last one says nothing new, whatever marks and clocks say by now."""
        was, kept = self.status, self.kept
        if was.state is JobState.RUNNING:
            return record.states == _RUNNING and not (kept.awaits or kept.steps or record.restarts)
        may_become_eligible = was.eligible_s is None and record.eligible_s and record.eligible_s <= now_s
        return was.state is JobState.PENDING and not may_become_eligible and not is_held(record)

    def miss(
        self,
        folder: MarksFolder,
        now_s: float,
        clock_s: float,
        *,
        certain: bool,
        past: SlurmRecord | None = None,
        inquiry: Inquiry = NOTHING_ASKED,
    ) -> bool:
        """Process that the controller does not show the job; return whether anything changed.

        The rules are those of `absence`.

        `past`: accounting's record of it.
        `certain`: whether accounting could be asked, or does not exist.
        """
        ended = folder.ended(self.job_id, self.kept.token)
        if ended is not None and not self._is_recent(ended):
            ended = None
        if ended is not None and not self._may_be_back(ended):
            return self._become(self._ended_by(ended, folder))
        if certain:
            self.absence = self.absence.again(clock_s)
        began = folder.began(self.job_id, self.kept.token)
        if ended is not None or (began is not None and not self._is_recent(began)):
            began = None
        judged = verdict(self._evidence(began, past, now_s, clock_s, certain=certain), inquiry)
        end_s = max(now_s, self._latest_s())
        if judged is Verdict.ENDED and past is not None:
            return self.hear(past, folder, now_s, clock_s)
        if judged is Verdict.CANCELLED:
            return self._become(replace(self.status, state=JobState.CANCELLED, end_s=end_s))
        if judged is Verdict.GONE and ended is not None:
            return self._become(self._ended_by(ended, folder))
        if judged in (Verdict.GONE, Verdict.REPLACED):
            reason = DUPLICATE if judged is Verdict.REPLACED else VANISHED
            return self._become(replace(self.status, state=JobState.FAILED, end_s=end_s, reason=reason))
        has_begun = judged is Verdict.RUNNING or began is not None  # a new client has no other source for it
        return has_begun and self._become(self._not_shown(began, past, folder))

    def _may_be_back(self, ended: Mark) -> bool:
        """Whether a job may have been requeued: a signal ended it before its walltime was over."""
        lasted_s = ended.time_s - (self.status.start_s or ended.time_s)
        return bool(ended.signals) and self.cancelled_s is None and lasted_s < self.longest_s()

    def _evidence(
        self, began: Mark | None, past: SlurmRecord | None, now_s: float, clock_s: float, *, certain: bool
    ) -> Evidence:
        """Return the evidence on the job, which the controller does not show."""
        return Evidence(
            job_id=self.number,
            name=self.kept.name if self.kept.token else "",
            absence=self.absence,
            now_s=now_s,
            clock_s=clock_s,
            walltime_s=self.longest_s(),
            submit_s=self.kept.submit_s,
            began_s=None if began is None else began.time_s,
            suspended_s=self.suspended_s(),
            cancelled_s=self.cancelled_s,
            past=past,
            is_certain=certain,
        )

    def _not_shown(self, began: Mark | None, past: SlurmRecord | None, folder: MarksFolder) -> JobStatus:
        """Return the status of a job that runs although the controller does not show it."""
        was = self.status
        known = (was.start_s, past.start_s if past is not None else None, began.time_s if began is not None else None)
        start_s = max(next((start_s for start_s in known if start_s is not None), was.submit_s), was.submit_s)
        payload_start_s = was.payload_start_s
        if payload_start_s is None and began is not None:
            payload_start_s = max(began.time_s, start_s)
        status = replace(
            was,
            state=JobState.RUNNING,
            start_s=start_s,
            payload_start_s=start_s if payload_start_s is None and not self.kept.awaits else payload_start_s,
            eligible_s=was.eligible_s if was.eligible_s is not None or self.kept.kept_back else was.submit_s,
            expected_start_s=None,
            reason=NOT_SHOWN,
            nodes=was.nodes or _nodes_of(began),
        )
        return replace(status, steps=self._steps(status, folder))

    def give_way(self, now_s: float) -> None:
        """Mark the job as failed, since the job of its token has another number."""
        end_s = max(now_s, self._latest_s())
        self.kept = replace(self.kept, token="")
        self._become(replace(self.status, state=JobState.FAILED, end_s=end_s, reason=DUPLICATE))

    def is_kept_back(self) -> bool:
        """Whether Slurm shows that the job still waits for other jobs, whatever its state."""
        if self.record is not None and self.record.dependency:
            return True
        return self.status.state is JobState.PENDING and self.status.eligible_s is None

    def condemn(self, now_s: float) -> None:
        """Mark the job as failed, since Slurm released it too early."""
        end_s = max(now_s, self._latest_s())
        self._become(replace(self.status, state=JobState.FAILED, end_s=end_s, reason=IGNORED_DEPENDENCY))

    def is_needless(self, folder: MarksFolder) -> bool:
        """Whether the job was requeued although its payload has completed.

        That happens if the controller did not learn of the end, since it was down or had lost its latest state. The
        script would find the markers and do nothing; but the job may be held until it is released.
        """
        record, kept = self.record, self.kept
        if record is None or not kept.token or self.status.state is not JobState.PENDING:
            return False
        if not (self._ran or record.restarts or is_held(record)):
            return False
        ended = folder.ended(self.job_id, kept.token)
        return ended is not None and ended.exit_code == 0

    def conclude(self, folder: MarksFolder) -> None:
        """Mark the job as ended like its payload, before it was requeued."""
        if (ended := folder.ended(self.job_id, self.kept.token)) is not None:
            self._become(replace(self._ended_by(ended, folder), reason=PAYLOAD_COMPLETED))

    def _become(self, status: JobStatus) -> bool:
        if not self.is_live and not self._is_back(status):
            return False
        was, self.status = self.status, status
        return _is_news(status, was)

    def _is_back(self, status: JobStatus) -> bool:
        """Whether a job that had ended was requeued, as by `scontrol requeue`.

        The same holds for a job whose cancellation was lost with the controller's latest state.
        """
        was = self.status
        return not status.state.is_final and (status.restarts > was.restarts or was.state is JobState.CANCELLED)

    def _refined(self, by_slurm: JobStatus, record: SlurmRecord, folder: MarksFolder, clock_s: float) -> JobStatus:
        """Return the status with facts that Slurm does not report."""
        job_id, kept = by_slurm.job_id, self.kept
        start_s = by_slurm.start_s
        try:
            payload_start_s, steps = self._payload_start_s(by_slurm, folder), self._steps(by_slurm, folder)
        except UnavailableError:
            if by_slurm.state.is_final:
                raise
            same = self.status.start_s == start_s
            payload_start_s = start_s if not kept.awaits else self.status.payload_start_s if same else None
            steps = self.status.steps if same else ()
        status = replace(
            by_slurm,
            held=self.status.held or self._is_held_by_others(record, by_slurm, clock_s),
            payload_start_s=payload_start_s,
            steps=steps,
            # a job that is ending may have given its nodes back
            nodes=by_slurm.nodes if start_s is None else by_slurm.nodes or self.status.nodes,
        )
        if not status.state.is_final or status.state is JobState.COMPLETED:
            return status
        ended = folder.ended(job_id, kept.token)
        completed = bool(kept.token) and ended is not None and ended.exit_code == 0
        if completed and self._used_up_memory(record):
            return self._undone(status, folder)
        if completed and status.start_s is not None:  # even if something ended the job after its payload
            reason = "" if is_guessed(record) else PAYLOAD_COMPLETED
            return replace(status, state=JobState.COMPLETED, exit_code=0, reason=reason, outcome=JobOutcome.COMPLETED)
        return status if status.state is not JobState.FAILED else self._failed(status, record, folder, ended)

    def _failed(self, status: JobStatus, record: SlurmRecord, folder: MarksFolder, ended: Mark | None) -> JobStatus:
        """Return how a job failed; the marker of its end may be of an earlier run."""
        token, code = self.kept.token, status.exit_code
        has_begun = folder.began(self.job_id, token) is not None
        if record.signal == _NOT_LAUNCHED and not has_begun:
            outcome = JobOutcome.UNABLE
            return replace(status, payload_start_s=None, exit_code=None, reason=LAUNCH_FAILURE, outcome=outcome)
        if code is None and ended is not None and record.states[0] == "FAILED" and self._is_recent(ended):
            code = ended.exit_code or None
        exit_code = None if code is None else without_mark(code)
        if ended is not None and ended.exit_code and self._is_recent(ended):
            exit_code, code = ended.outcome, ended.exit_code if code in (None, _NO_SIGNAL) else code
        elif exit_code is JobOutcome.UNABLE and has_begun:
            exit_code = JobOutcome.UNRECORDED
        used_up = self._used_up_memory(record)
        in_doubt = used_up and exit_code is not JobOutcome.OUT_OF_MEMORY
        if used_up and (exit_code is None or self.kept.out_of_memory != BY_TASK):
            exit_code = JobOutcome.OUT_OF_MEMORY
        is_duplicate = exit_code is JobOutcome.DUPLICATE and bool(token) and self.is_duplicate(folder)
        reason = DUPLICATE if is_duplicate else status.reason
        return replace(status, exit_code=code, outcome=exit_code, reason=reason, in_doubt=in_doubt)

    def _used_up_memory(self, record: SlurmRecord) -> bool:
        """Whether a process was killed for lack of memory, and this counts as failure."""
        return record.states[0] == _OUT_OF_MEMORY and self.kept.out_of_memory != "ignore"

    def _undone(self, status: JobStatus, folder: MarksFolder) -> JobStatus:
        """Mark a job as failed although its payload exited with 0: one of its processes was killed for lack of memory.

        Its completion markers are removed, so that it is run again. Raises `UnavailableError`: they cannot be removed
        now.
        """
        folder.take_back(self.kept.posts)
        steps = tuple(replace(step, end_s=None) for step in status.steps)
        return replace(status, exit_code=None, outcome=JobOutcome.OUT_OF_MEMORY, steps=steps, in_doubt=True)

    def is_duplicate(self, folder: MarksFolder) -> bool:
        """Whether another job has the claim."""
        return folder.holder(self.kept.token) != self.job_id

    def _is_held_by_others(self, record: SlurmRecord, by_slurm: JobStatus, clock_s: float) -> bool:
        """Whether somebody else has the job on hold, or had; this client does not want that, and did not recently.

        A hold that was over before the next look shows in a late eligible time, although no dependency or begin time of
        ours held the job.
        """
        if by_slurm.state is JobState.PENDING and is_held(record):
            lately = self.released_s is not None and clock_s - self.released_s < _SETTLE_S
            return not (self.held_here or lately)
        ours = self.kept.kept_back or self.held_here or self.released_s is not None or record.restarts
        return not ours and by_slurm.eligible_s is not None and by_slurm.eligible_s > by_slurm.submit_s + _SETTLE_S

    def _payload_start_s(self, status: JobStatus, folder: MarksFolder) -> float | None:
        if status.start_s is None or not self.kept.awaits:
            return status.start_s
        known_s = self.status.payload_start_s
        if known_s is not None and self.status.start_s == status.start_s and status.end_s is None:
            return known_s
        began = folder.began(status.job_id, self.kept.token)
        if began is None or began.time_s < status.start_s - CLOCKS_S:
            return (
                status.start_s if status.state is JobState.COMPLETED else None
            )  # the payload did run, even if its markers are lost
        latest_s = began.time_s if status.end_s is None else min(began.time_s, status.end_s)
        return max(latest_s, status.start_s)

    def _steps(self, status: JobStatus, folder: MarksFolder) -> tuple[StepTimes, ...]:
        """Return when the payload's steps began and completed, within the job's own times.

        Steps that ended before the job was requeued keep the times of their markers.
        """
        if status.start_s is None:
            return ()
        if not self.kept.steps:
            return self._before_requeue(status, folder)
        start_s, max_s = status.start_s, math.inf if status.end_s is None else status.end_s
        marks = folder.steps(status.job_id, self.kept.token, len(self.kept.steps))

        def min_s(ended: Mark | None) -> float:
            return start_s if ended is None or not status.restarts or ended.time_s >= start_s else -math.inf

        return tuple(
            StepTimes(
                self.kept.steps[mark.index],
                min(max(mark.began.time_s, min_s(mark.ended)), max_s),
                None if mark.ended is None else min(max(mark.ended.time_s, min_s(mark.ended)), max_s),
                mark.began.cores,
                None if mark.failed is None else mark.failed.exit_code,
                None if mark.failed is None else mark.failed.outcome,
            )
            for mark in marks
            if self.kept.token or mark.began.time_s >= start_s - CLOCKS_S
        )

    def _before_requeue(self, status: JobStatus, folder: MarksFolder) -> tuple[StepTimes, ...]:
        """Return the times of a payload with one step that completed before its job was requeued."""
        if not (status.restarts and self.kept.token and status.start_s is not None):
            return ()
        began, ended = (look(status.job_id, self.kept.token) for look in (folder.began, folder.ended))
        if began is None or ended is None or ended.exit_code != 0 or ended.time_s >= status.start_s:
            return ()
        return (StepTimes("", began.time_s, ended.time_s),)

    def _is_recent(self, mark: Mark) -> bool:
        """Whether a marker is of this job's last run, not of an earlier job with its number, or before a requeue."""
        since_s = self.status.submit_s if self.status.start_s is None else self.status.start_s
        return mark.time_s >= since_s - CLOCKS_S

    def _ended_by(self, ended: Mark, folder: MarksFolder) -> JobStatus:
        """Return how the job ended by its own marker, with what Slurm reported before."""
        was, code = self.status, ended.exit_code or 0
        began = folder.began(self.job_id, self.kept.token)
        start_s = was.start_s
        if start_s is None and began is not None:
            start_s = max(began.time_s, was.submit_s, was.eligible_s or 0.0)
        end_s = max(ended.time_s, was.submit_s, start_s or 0.0)
        state, reason = JobState.COMPLETED, ""
        if code:
            state, reason = self._failed_as(ended, end_s, start_s)
        has_not_begun = ended.outcome in {JobOutcome.GAVE_BACK, JobOutcome.OUTRUN}  # these outcomes say so
        payload_start_s = None if has_not_begun else start_s
        if began is not None:
            payload_start_s = max(began.time_s, start_s or 0.0)
        status = replace(
            was,
            state=state,
            start_s=start_s,
            payload_start_s=None if payload_start_s is None else min(payload_start_s, end_s),
            end_s=end_s,
            exit_code=code if state in (JobState.COMPLETED, JobState.FAILED) else None,
            outcome=ended.outcome,
            reason=reason,
            eligible_s=was.eligible_s if was.eligible_s is not None or self.kept.kept_back else was.submit_s,
            expected_start_s=None,
            nodes=was.nodes or _nodes_of(ended),
        )
        return replace(status, steps=self._steps(status, folder))

    def _failed_as(self, ended: Mark, end_s: float, start_s: float | None) -> tuple[JobState, str]:
        if ended.signals and self.cancelled_s is not None:
            return JobState.CANCELLED, ""
        if ended.signals and start_s is not None and end_s - start_s >= self.kept.walltime_s:
            return JobState.TIMEOUT, "TimeLimit"
        return JobState.FAILED, "RaisedSignal:15(Terminated)" if ended.signals else "NonZeroExitCode"

    def _latest_s(self) -> float:
        """Return the latest known time of the job's life."""
        return max(self.status.submit_s, self.status.start_s or 0.0)


def _nodes_of(mark: Mark | None) -> tuple[str, ...]:
    """Return the nodes of a job that wrote a marker."""
    return () if mark is None else tuple(islice(names_of(mark.nodes), MAX_NODES))


def _is_news(status: JobStatus, before: JobStatus) -> bool:
    """Whether a report says something new; most looks find every job as it was, and compare no more than that."""
    return status is not before and status != before and _essence(status) != _essence(before)


def _essence(status: JobStatus) -> JobStatus:
    """Leave out fields that change at every look without significance."""
    reason = "" if status.reason in _SAME else status.reason
    return replace(status, expected_start_s=None, reason=reason)
