"""More nodes for running jobs: a second job waits for them in the queue, and the first one takes them over.

Slurm calls this expansion (``--dependency=expand:JOB``), and does it where ``SchedulerParameters`` has
``permit_job_expansion``. Tried on 22.05, 24.11 and 26.05, it has these rules:

- The first job must run. Slurm drops the dependency as it accepts the second job, so that this one stays in the queue,
  and may start, after the first has ended: whoever sees that cancels it.
- Both must have whole nodes (``--exclusive``). Otherwise Slurm may give the second job CPUs that the first one has.
- The second job may have no step, so that it is made by ``salloc --no-shell``, whose process must live until it starts.
- ``scontrol update JobId=SECOND NumNodes=0`` moves the nodes, and completes the second job. If the first job does not
  run at that moment, the nodes stay allocated, to no job, until the controller is restarted. So only the first job's
  own script does it, when it needs the nodes; until then the second job has them, and can be cancelled.
- A job that has grown and is put back into the queue begins on the nodes that it first had: so it is never put back.
- A controller that was restarted has forgotten whom the second job's nodes are for, and refuses to move them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from asa.backends.shell.marks import MarksFolder

from asa.backend import Capabilities, JobSpec, JobState, JobStatus
from asa.errors import BackendError, SubmitRejectedError

from .absence import CLOCKS_S, NOTHING_ASKED, PRESENT, Inquiry
from .link import SlurmRecord
from .states import status_of
from .tracking import TrackedJob


def refuse_unless_possible(spec: JobSpec, site: Capabilities) -> None:
    """Refuse a request for more cores that the site never accepts."""
    where = f"job {spec.name!r}"
    if not site.grow_by:
        raise BackendError(
            "jobs get no more nodes by these means",
            where=where,
            hint="`asa doctor` tells whether the site permits it (permit_job_expansion); the backend slurm-cli asks.",
        )
    if spec.cores < 1 or spec.cores % site.grow_by:
        raise SubmitRejectedError(
            f"asks for {spec.cores} more cores, and nodes have {site.grow_by}",
            where=where,
            hint="Ask for the cores of whole nodes.",
        )


def not_now(first: JobStatus) -> str:
    """Return why Slurm accepts no request for more nodes of a job now; empty if it does."""
    if first.state is JobState.RUNNING:
        return ""
    how = "has ended" if first.state.is_final else "does not run yet"
    return f"the job that its cores are for, {first.job_id}, {how}"


@dataclass(slots=True)
class JoiningJob(TrackedJob):
    """A job whose nodes are for another job of this client.

    Once that job has taken them over, Slurm counts this one as completed; here it runs until the other one has ended,
    or has given these nodes back.

    `first`: returns the other job's state; None if it is not known.
    """

    first: Callable[[], JobStatus | None] = field(default=lambda: None)

    def hear(self, record: SlurmRecord, folder: MarksFolder, now_s: float, clock_s: float) -> bool:
        """Process Slurm's report; see `TrackedJob.hear`."""
        if not self.has_joined(folder, record):
            return TrackedJob.hear(self, record, folder, now_s, clock_s)
        if self.sent_s is not None:
            self.sent_s = None
        self.absence, self.heard_s, self.record = PRESENT, clock_s, record
        running = status_of(replace(record, states=("RUNNING",), end_s=None), now_s)
        return self._become(self._as_part(running, folder))

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
        """Process that the controller does not show the job; see `TrackedJob.miss`."""
        if self.has_joined(folder, self.record):
            return self._become(self._as_part(self.status, folder))
        return TrackedJob.miss(self, folder, now_s, clock_s, certain=certain, past=past, inquiry=inquiry)

    def has_joined(self, folder: MarksFolder, record: SlurmRecord | None) -> bool:
        """Whether the other job has taken the nodes over: its script says so, and nothing else completes this job."""
        if record is not None and record.states[:1] == ("COMPLETED",):
            return True
        return folder.began(self.job_id, self.kept.token) is not None

    def is_needless(self, folder: MarksFolder) -> bool:
        """Whether the job is in the queue, or has its nodes, in vain: the other job does not run, or not any more."""
        first = self.first()
        if first is None or not self.is_live or self.has_joined(folder, self.record):
            return False
        return first.state is not JobState.RUNNING

    def conclude(self, folder: MarksFolder) -> None:
        """Do nothing: Slurm reports the job as cancelled."""

    def _as_part(self, running: JobStatus, folder: MarksFolder) -> JobStatus:
        """Return the status of a job whose nodes are the other job's."""
        mark = folder.began(self.job_id, self.kept.token)
        known_s = (self.status.start_s, running.start_s, mark.time_s if mark is not None else None)
        start_s = next((time_s for time_s in known_s if time_s is not None), running.submit_s)
        status = replace(
            running,
            state=JobState.RUNNING,
            start_s=start_s,
            payload_start_s=start_s,
            eligible_s=running.eligible_s if running.eligible_s is not None else self.status.eligible_s,
            expected_start_s=None,
            reason="",
            nodes=self.status.nodes,
        )
        end_s = self._end_s(start_s if mark is None else mark.time_s)
        return status if end_s is None else replace(status, state=JobState.COMPLETED, end_s=max(end_s, start_s))

    def _end_s(self, joined_s: float) -> float | None:
        """Return when the other job ended, or first had no more cores than without this one; None before that."""
        if (first := self.first()) is None:
            return None
        later = [step for step in first.steps if step.start_s >= joined_s - CLOCKS_S and step.cores]
        widest = max((step.cores for step in later), default=0)
        narrow = (step.start_s for step in later if step.cores <= widest - self.kept.cores)
        given_back_s = min(narrow, default=math.inf) if self.kept.cores else math.inf
        ended_s = first.end_s if first.state.is_final else None
        times = [time_s for time_s in (given_back_s, ended_s) if time_s is not None and math.isfinite(time_s)]
        return min(times, default=None)
