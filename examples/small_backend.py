"""The smallest backend that fulfils the contract: a machine in virtual time that runs jobs in the order of submission.

It has what the core needs of a batch system and nothing else; `tests/own_backend.py` has what a real one needs in
addition: files, processes, clients that die. Your package registers it as an entry point; then
`asa run flow.toml --backend small --option cores=28` finds it:

    [project.entry-points."asa.backends"]
    small = "small_backend:SmallSite"

    python examples/small_backend.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from asa.workflows import montage
from rich.console import Console

from asa import Run, WaitBank, run_all
from asa.backend import Capabilities, Condition, Dependency, DependencyType, JobSpec, JobState, JobStatus
from asa.errors import JobNotFoundError, SubmitRejectedError
from asa.metrics import measure
from asa.strategies import load_strategy
from asa.testing import check_backend
from asa.units import format_duration
from asa.waits import QueueEvent

NEVER = math.inf


class SmallMachine:
    """Some cores, and a clock that only `wait` moves. No job overtakes one that waits for cores."""

    def __init__(self, cores: int) -> None:
        self.capabilities = Capabilities("small", max_cores=cores, cores_per_node=cores, age_accrues=True)
        self._now = 0.0
        self._specs: dict[str, JobSpec] = {}
        self._jobs: dict[str, JobStatus] = {}  # in the order of submission
        self._told: dict[str, JobStatus] = {}  # jobs' states as last reported to the client

    @property
    def condition(self) -> Condition:
        """Whether it can be reached: always."""
        return Condition(heard_s=self._now)

    def now(self) -> float:
        """Read the clock."""
        return self._now

    def submit(self, spec: JobSpec) -> str:
        """Add a job at the end of the queue."""
        if (why := self.capabilities.impossible(spec)) or spec.walltime_s <= 0:
            raise SubmitRejectedError(why or "asks for no time", where=f"job {spec.name!r}", hint="Ask for other.")
        job_id = str(len(self._jobs) + 1)
        self._specs[job_id] = spec
        self._jobs[job_id] = self._told[job_id] = JobStatus(job_id, JobState.PENDING, self._now)
        return job_id

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Find jobs by their tokens; the one that ran comes first."""
        found = {token: [self._jobs[j] for j, spec in self._specs.items() if spec.token == token] for token in tokens}
        return {token: sorted(jobs, key=lambda job: job.payload_start_s is None) for token, jobs in found.items()}

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the states of jobs."""
        asked = list(job_ids)
        if unknown := [job_id for job_id in asked if job_id not in self._jobs]:
            raise JobNotFoundError("is not known here", where=f"job {unknown[0]!r}", hint="Ask for one of this queue.")
        return {job_id: self._jobs[job_id] for job_id in asked}

    def cancel(self, job_id: str) -> None:
        """End a job, unless it has ended."""
        if not self.status([job_id])[job_id].state.is_final:
            self._end(job_id, JobState.CANCELLED)

    def hold(self, job_id: str) -> None:
        """Keep a pending job from starting."""
        self._specs[job_id] = replace(self._specs[job_id], held=True)

    def release(self, job_id: str) -> None:
        """Release a held job; it queues from now on."""
        self._specs[job_id] = replace(self._specs[job_id], held=False, begin_s=self._now)

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Let time pass until one of the client's jobs changes, or until a time."""
        until = NEVER if until_s is None else max(until_s, self._now)
        while True:
            self._settle()
            changed = [self._jobs[job_id] for job_id, told in self._told.items() if self._jobs[job_id] != told]
            self._told |= {job.job_id: job for job in changed}
            following = min((due for job_id in self._jobs if (due := self._due(job_id)) > self._now), default=NEVER)
            if changed or min(following, until) == NEVER:
                return changed
            self._now = min(following, until)
            if following > until:
                return []

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Report nothing, since there are no other users."""
        del most, ends
        return []

    def _settle(self) -> None:
        """Do what is due now, until nothing more happens."""
        before: dict[str, JobStatus] = {}
        while before != self._jobs:
            before = dict(self._jobs)
            running = [job_id for job_id, job in before.items() if job.state is JobState.RUNNING]
            free = self.capabilities.max_cores - sum(self._specs[job_id].cores for job_id in running)
            for job_id in running:
                self._follow(job_id)
            for job_id in [job_id for job_id, job in before.items() if job.state is JobState.PENDING]:
                free -= self._consider(job_id, free)

    def _consider(self, job_id: str, free: int) -> int:
        """Start a pending job if it may; return how many cores it takes from those behind it."""
        job, cores, due = self._jobs[job_id], self._specs[job_id].cores, self._due(job_id)
        if not due <= self._now:
            reason = "DependencyNeverSatisfied" if math.isnan(due) else "Dependency"
            self._jobs[job_id] = replace(job, eligible_s=None, reason=reason)
            return 0
        if cores > free:
            self._jobs[job_id] = replace(job, eligible_s=due, reason="Resources")
            return free
        self._jobs[job_id] = replace(job, eligible_s=due, reason="", state=JobState.RUNNING, start_s=self._now)
        return cores

    def _follow(self, job_id: str) -> None:
        """Begin a running job's payload, or end the job."""
        job, spec = self._jobs[job_id], self._specs[job_id]
        completed = [self._specs[other] for other, its in self._jobs.items() if its.state is JobState.COMPLETED]
        if job.payload_start_s is not None and job.payload_start_s + (spec.run_s or 0.0) <= self._now:
            self._end(job_id, JobState.FAILED if spec.exit_code else JobState.COMPLETED, code=spec.exit_code)
        elif self._due(job_id) <= self._now:
            self._end(job_id, JobState.TIMEOUT, "TimeLimit")
        elif job.payload_start_s is None:
            if spec.token and self.find([spec.token])[spec.token][0].payload_start_s is not None:
                self._end(job_id, JobState.FAILED, "Twin")
            elif {token for other in completed for token in other.posts}.issuperset(spec.awaits):
                self._jobs[job_id] = replace(job, payload_start_s=self._now)

    def _end(self, job_id: str, state: JobState, reason: str = "", code: int | None = None) -> None:
        self._jobs[job_id] = replace(self._jobs[job_id], state=state, end_s=self._now, reason=reason, exit_code=code)

    def _due(self, job_id: str) -> float:
        """Return when a pending job may start, or a running one ends; infinity for a job that can never start."""
        job, spec = self._jobs[job_id], self._specs[job_id]
        if job.state.is_final or (spec.held and job.start_s is None):
            return NEVER
        if job.start_s is not None:
            run_s = NEVER if job.payload_start_s is None else job.payload_start_s + (spec.run_s or 0.0)
            return min(job.start_s + spec.walltime_s, run_s)
        times = [job.submit_s, spec.begin_s or 0.0, *map(self._met, spec.dependencies)]
        return math.nan if any(map(math.isnan, times)) else max(times)

    def _met(self, dependency: Dependency) -> float:
        on = self._jobs[dependency.job_id]
        if dependency.type is DependencyType.AFTER and on.start_s is not None:
            return on.start_s + dependency.delay_s
        if on.end_s is None:
            return NEVER
        well = dependency.type is DependencyType.AFTEROK and on.state is JobState.COMPLETED
        return on.end_s if well or dependency.type is DependencyType.AFTERANY else math.nan


class SmallSite:
    """The entry point's object: made from a user's settings, it opens a machine for a run.

    Parameters
    ----------
    cores
        Cores of the machine.
    """

    notes: Sequence[str] = ["Time is not real here, and nothing is kept: a run that was left cannot be resumed."]

    def __init__(self, cores: int | str = 56) -> None:
        self.cores = int(cores)

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] = time.sleep) -> SmallMachine:
        """Open the machine; a real batch system would keep scripts and output in the folder."""
        del folder, sleep
        return SmallMachine(self.cores)


def main() -> None:
    """Check the contract, then run three workflows that queue behind each other."""
    console = Console(highlight=False)
    check_backend(lambda: SmallMachine(cores=4))
    console.print("It keeps the contract of a backend.")
    for name in ("per-stage", "asa"):
        bank = WaitBank(seed=1)
        runs = [Run(montage(28), load_strategy(name), bank=bank, name=f"{name} {nth}") for nth in range(3)]
        results = run_all(SmallMachine(cores=28), runs)
        ends = [format_duration(measure(result.run.workflow, result.records).makespan_s) for result in results]
        console.print(f"Three times Montage, {name:9}: {', '.join(ends)}")


if __name__ == "__main__":
    main()
