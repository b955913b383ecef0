"""The jobs that race for a stage: what each asks for, and how each ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from asa.backend import JobState
from asa.cli.kinds.base import UnitStanding
from asa.cli.terminal import counted
from asa.core.late import dataclass

if TYPE_CHECKING:
    from asa.cli.standing import StageStanding
    from asa.runner.jobs import Job
    from asa.runner.state import RunState


@dataclass(frozen=True, slots=True)
class Racer:
    """One of the jobs that were submitted for a stage."""

    job_id: str
    cores: int
    stages: tuple[str, ...]  # all stages that the job is to run, in order
    state: str  # pending, started, withdrawn, outrun or ended
    reason: str = ""  # of its withdrawal

    @property
    def called(self) -> str:
        """Name the job, with what it asks for and runs."""
        what = f" for {len(self.stages)} stages" if len(self.stages) > 1 else ""
        return f"job {self.job_id} on {counted(self.cores, 'core')}{what}"


@dataclass(frozen=True, slots=True)
class RaceStanding(UnitStanding):
    """The jobs that were submitted for one attempt at a stage."""

    order: ClassVar[int] = 4
    racers: tuple[Racer, ...]
    is_next: bool  # whether the stage runs, or may begin as soon as one of them starts

    def documents(self) -> dict[str, Any]:
        """Return the jobs as JSON-ready data, under the kind's key."""
        return {"racers": [asdict(racer) for racer in self.racers]}

    def line(self, stage: StageStanding, now_s: float) -> str:  # noqa: ARG002
        """List the jobs that may run the stage; once one of them has started, list it and the jobs still pending."""
        if not self.is_next:
            return ""
        pending = [racer.called for racer in self.racers if racer.state == "pending"]
        lead = next((racer for racer in self.racers if racer.job_id == stage.job_id and racer.state == "started"), None)
        if lead is None:
            return f"the first to start runs it: {', '.join(pending)}" if len(pending) > 1 else ""
        stay = f"; still pending: {', '.join(pending)}" if pending else ""
        return f"{lead.called} started first of {len(self.racers)} that were submitted{stay}"

    def other_jobs(self, stage: StageStanding) -> Iterator[str]:
        """Describe each job that raced with the stage's own, and why it was withdrawn."""
        for racer in self.racers:
            if racer.job_id == stage.job_id or racer.state not in _SAID:
                continue
            reason = f", since {racer.reason}" if racer.reason else ""
            yield f"{racer.called[0].upper()}{racer.called[1:]} {_SAID[racer.state]}{reason}."


_SAID = {
    "pending": "races with it, and is pending",
    "withdrawn": "raced with it, and was cancelled by asa",
    "outrun": "raced with it, and ended at once, since another had begun",
}


def race_standing(state: RunState, name: str) -> RaceStanding | None:
    """Return the jobs that race for a stage; None if it has at most one."""
    view, racing = state.stages[name], state.units.racing
    jobs = racing.jobs.get(racing.race_of(state, name), [])
    if len(jobs) < 2:
        return None
    racers = tuple(
        Racer(job.status.job_id, job.spec.cores, job.planned.stages, _state_of(job), job.giving_up) for job in jobs
    )
    is_next = all(state.stages[before].phase.is_settled for before in view.stage.after) and not view.phase.is_settled
    return RaceStanding(racers, is_next)


def _state_of(job: Job) -> str:
    status = job.status
    if job.giving_up:
        return "withdrawn"
    if status.state.is_final:
        return "outrun" if status.payload_start_s is None and status.state is JobState.FAILED else "ended"
    return "pending" if status.start_s is None else "started"
