"""Runs local stages on the client's computer, and all other jobs on a batch system."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from asa.backend import (
    Adjustable,
    Advice,
    Advisor,
    Backend,
    Capabilities,
    Condition,
    EstimatesStarts,
    Facility,
    Growing,
    JobSpec,
    JobStatus,
    Planning,
    Preflight,
    Previewing,
    Recalls,
    Shrinking,
    Site,
    SubmitsTogether,
    Troubleshooting,
    Withdrawing,
    cancel_all,
)
from asa.core import plugins
from asa.errors import BackendError, SubmitRejectedError
from asa.waits import QueueEvent
from asa.workflow import Stage

_LOCAL = "local"
_PREFIX = "local-"
_OF_HERE = "local stages: "
_LOOK_S = 0.2
_LONG_S = 60.0
_SAME_CLOCK_S = 2.0


def with_local_stages(backend: str, stages: Iterable[Stage], facility: Facility) -> Facility:
    """Return a facility that also runs local stages here, if there are any and the backend does not run them itself."""
    if backend == _LOCAL or isinstance(facility, Site) or not any(stage.local for stage in stages):
        return facility  # a simulator runs nothing
    return WithLocalStages(facility, plugins.load("asa.backends", _LOCAL)())


class WithLocalStages:
    """A facility made of two: the batch system, and one for local jobs on the client's computer."""

    def __init__(self, far: Facility, near: Facility) -> None:
        self._far, self._near = far, near

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user, of the batch system and of this machine's queue."""
        return [*self._far.notes, *self._near.notes]

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed."""
        return _advice(reason, self._far, self._near)

    def remedy(self, trouble: str) -> str:
        """Return what a user can do about a trouble; its text shows which of the two backends has it."""
        is_near = trouble.startswith(_OF_HERE)
        facility, own = (self._near if is_near else self._far), trouble.removeprefix(_OF_HERE)
        return facility.remedy(own) if isinstance(facility, Troubleshooting) else ""

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] = time.sleep) -> BackendWithLocalStages:
        """Open both for one run; see `asa.backend.Facility.connect`."""
        backend = BackendWithLocalStages(sleep)
        backend.far = self._far.connect(folder, sleep=backend.sleep)
        backend.near = self._near.connect(folder, sleep=lambda _: True)
        backend.compare_clocks()
        return backend


class BackendWithLocalStages:
    """Two backends as one, on the clock of the batch system's backend; see `asa.backend.Backend`."""

    far: Backend
    near: Backend

    def __init__(self, sleep: Callable[[float], bool | None]) -> None:
        self._sleep = sleep
        self._later_s = 0.0
        self._live: set[str] = set()
        self._news: list[JobStatus] = []
        self._is_woken = False

    def compare_clocks(self) -> None:
        """Measure by how much the batch system's clock is ahead; small differences count as none."""
        later_s = self.far.now() - self.near.now()
        self._later_s = later_s if abs(later_s) > _SAME_CLOCK_S else 0.0

    def close(self) -> None:
        """Close both."""
        for backend in (self.near, self.far):
            if (close := getattr(backend, "close", None)) is not None:
                close()

    @property
    def capabilities(self) -> Capabilities:
        """Abilities of the batch system."""
        return self.far.capabilities

    @property
    def condition(self) -> Condition:
        """Condition of the batch system, with the troubles of both backends."""
        far_condition, near = self.far.condition, self.near.condition.trouble
        if not near:
            return far_condition
        return replace(
            far_condition,
            trouble=f"{far_condition.trouble}; {_OF_HERE}{near}" if far_condition.trouble else f"{_OF_HERE}{near}",
            away={**far_condition.away, "": near} if far_condition.away else {},
        )

    def now(self) -> float:
        """Read the batch system's clock."""
        return self.far.now()

    def submit(self, spec: JobSpec) -> str:
        """Submit a job to its backend; the run submits a local job only once nothing keeps it back."""
        if not spec.local:
            return self.far.submit(spec)
        job_id = self.near.submit(replace(spec, dependencies=(), begin_s=None))
        self._live.add(job_id)
        return f"{_PREFIX}{job_id}"

    def goes_alone(self, options: Sequence[str], texts: Iterable[str]) -> bool:
        """Ask the backend of the jobs that are not local; see `asa.backend.SubmitsTogether`."""
        assert isinstance(self.far, SubmitsTogether)
        return self.far.goes_alone(options, texts)

    def submit_together(self, specs: Sequence[JobSpec]) -> Sequence[str]:
        """Submit jobs with equal requests, none of which is local; see `asa.backend.SubmitsTogether`."""
        assert isinstance(self.far, SubmitsTogether)
        return self.far.submit_together(specs)

    def preview(self, spec: JobSpec) -> Mapping[str, str]:
        """Show what would be sent, if the backend can show it."""
        backend = self.near if spec.local else self.far
        return backend.preview(spec) if isinstance(backend, Previewing) else {}

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Find jobs by their tokens, first among local jobs; the batch system is asked only for the rest."""
        wanted = list(tokens)
        found = {token: [self._adopt(s) for s in statuses] for token, statuses in self.near.find(wanted).items()}
        elsewhere = [token for token in wanted if not found.get(token)]
        return found | (self.far.find(elsewhere) if elsewhere else {})

    def recall(self, last_known: Callable[[str], JobStatus | None]) -> None:
        """Tell the batch system's backend what was known of jobs, see `asa.backend.Recalls`."""
        if isinstance(self.far, Recalls):
            self.far.recall(last_known)

    def cancel(self, job_id: str) -> None:
        """Cancel a job on its backend."""
        backend, own = self._of(job_id)
        backend.cancel(own)

    def cancel_all(self, job_ids: Collection[str]) -> Mapping[str, BackendError]:
        """Cancel several jobs, each on its backend; see `asa.backend.CancelsMany`."""
        far = [job_id for job_id in job_ids if not job_id.startswith(_PREFIX)]
        near = [job_id.removeprefix(_PREFIX) for job_id in job_ids if job_id.startswith(_PREFIX)]
        left = {f"{_PREFIX}{job_id}": error for job_id, error in cancel_all(self.near, near).items()}
        return left | cancel_all(self.far, far)

    def withdraw(self, job_id: str) -> bool:
        """Ensure that a job's payload does not begin; see `asa.backend.Withdrawing`."""
        backend, own = self._of(job_id)
        return not isinstance(backend, Withdrawing) or backend.withdraw(own)

    def hold(self, job_id: str) -> None:
        """Keep a pending job from starting."""
        backend, own = self._of(job_id)
        backend.hold(own)

    def release(self, job_id: str) -> None:
        """Release a held job."""
        backend, own = self._of(job_id)
        backend.release(own)

    def change_walltime(self, job_id: str, walltime_s: float) -> None:
        """Change a job's time limit; see `asa.backend.Adjustable`."""
        backend, own = self._of(job_id)
        if not isinstance(backend, Adjustable):
            raise _unchangeable(job_id)
        backend.change_walltime(own, walltime_s)

    def shrink(self, job_id: str, nodes: int) -> None:
        """Give back all but `nodes` nodes of a running job; see `asa.backend.Shrinking`."""
        backend, own = self._of(job_id)
        if not isinstance(backend, Shrinking):
            raise _unchangeable(job_id)
        backend.shrink(own, nodes)

    def grow(self, job_id: str, spec: JobSpec) -> str:
        """Ask for more cores for a job of the batch system; see `asa.backend.Growing`."""
        if not isinstance(self.far, Growing):
            raise SubmitRejectedError("no job gets more cores here", where=f"job {job_id}", hint="Take `asa-plan`.")
        return self.far.grow(job_id, spec)

    def planned_start(self, spec: JobSpec, submit_s: float) -> float:
        """Return when the batch system would plan a job to start; see `asa.backend.Planning`."""
        return cast("Planning", self.far).planned_start(spec, submit_s)

    def estimated_start(self, spec: JobSpec) -> float | None:
        """Return when the batch system expects a job to start, if it says so; see `asa.backend.EstimatesStarts`."""
        return self.far.estimated_start(spec) if isinstance(self.far, EstimatesStarts) else None

    def test(self, spec: JobSpec, timeout_s: float) -> str | None:
        """Ask the batch system whether a job could ever run; see `asa.backend.Preflight`."""
        return self.far.test(spec, timeout_s) if isinstance(self.far, Preflight) else None

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed; see `asa.backend.Advisor`."""
        return _advice(reason, self.far, self.near)

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Ask for the states of several jobs, each on its backend."""
        wanted = list(job_ids)
        near = [job_id.removeprefix(_PREFIX) for job_id in wanted if job_id.startswith(_PREFIX)]
        far = [job_id for job_id in wanted if not job_id.startswith(_PREFIX)]
        statuses = (
            {status.job_id: status for status in map(self._adopt, self.near.status(near).values())} if near else {}
        )
        return statuses | (self.far.status(far) if far else {})

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Sleep until a job changes on either backend, or the time has come."""
        changed: Sequence[JobStatus] = ()
        self._is_woken = self._take_news()
        if not self._is_woken:
            changed = self.far.wait(until_s)
        while self._live and not (changed or self._is_woken):  # the batch system has nothing to wait for, local jobs do
            left_s = _LONG_S if until_s is None else until_s - self.far.now()
            if left_s <= 0:
                break
            self.sleep(min(left_s, _LONG_S))
        news, self._news = self._news, []
        return [*changed, *news]

    def sleep(self, seconds: float) -> bool:
        """Sleep for the batch system's backend; a change of a local job ends the sleep."""
        while seconds > 0:
            some_s = min(seconds, _LOOK_S) if self._live else seconds
            if self._sleep(some_s) or self._take_news():
                self._is_woken = True
                return True
            seconds -= some_s
        return False

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Report what others' jobs did in the batch system's queue; local jobs have none."""
        return self.far.queue_events(most, ends=ends)

    # ------------------------------------------------------------------

    def _of(self, job_id: str) -> tuple[Backend, str]:
        if job_id.startswith(_PREFIX):
            return self.near, job_id.removeprefix(_PREFIX)
        return self.far, job_id

    def _take_news(self) -> bool:
        """Update the state of local jobs; return whether there is news that was not passed on yet."""
        if self._live:
            with suppress(BackendError):  # the next pass asks again
                self._news += [self._adopt(status) for status in self.near.wait(self.near.now())]
        return bool(self._news)

    def _adopt(self, status: JobStatus) -> JobStatus:
        """Mark a local job's id, and convert its times to the batch system's clock."""
        if status.state.is_final:
            self._live.discard(status.job_id)
        else:
            self._live.add(status.job_id)
        return replace(status, job_id=f"{_PREFIX}{status.job_id}").later(self._later_s)


def _unchangeable(job_id: str) -> BackendError:
    return BackendError("cannot be changed after submission", where=f"job {job_id}", hint="Cancel it.")


def _advice(reason: str, *ports: object) -> Advice:
    """Ask each backend until one of them knows the reason; if none does, return the first answer.

    The batch system is asked first: if both know a reason, it is the batch system's, since local stages have no queue.
    """
    answers = [port.advice(reason) for port in ports if isinstance(port, Advisor)]
    return next((advice for advice in answers if reason not in str(advice)), answers[0] if answers else Advice(reason))
