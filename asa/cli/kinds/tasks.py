"""The state of a stage whose tasks are in a bag, from which several jobs take them."""
# ruff: noqa: ARG002 - methods take the arguments of all kinds

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from asa.bags import Bag
from asa.cli.kinds.base import Reason, UnitStanding
from asa.core.late import dataclass
from asa.units import format_duration

if TYPE_CHECKING:
    from asa.cli.standing import StageStanding
    from asa.runner.jobs import Job
    from asa.runner.state import RunState


@dataclass(frozen=True, slots=True)
class TaskStanding(UnitStanding):
    """The progress of a stage whose tasks are in a bag."""

    order: ClassVar[int] = 1
    jobs_running: int
    jobs_pending: int
    jobs: int  # upper bound of the jobs that take from the bag
    tasks: int | None = None  # None until a job has begun
    completed: int = 0
    failed: int = 0
    running: int = 0
    left: int = 0
    rate: float = 0.0  # tasks that end per second
    lasts_s: float | None = None  # expected time for the rest at that rate; None if not known

    @classmethod
    def of(cls, state: RunState, name: str, lead: Job) -> TaskStanding:
        """Read the state from the bag."""
        running, pending = state.units.tasks.count(lead)
        jobs = (running, pending, lead.spec.sharing)
        known = Bag(Path(state.tasks_of(name))).progress(
            job.spec.token for job in state.jobs.values() if job.status.state.is_final
        )
        if known is None:
            return cls(*jobs)
        done = (known.tasks, known.completed, known.failed, known.running, known.left)
        return cls(*jobs, *done, known.rate, known.lasts_s)

    def documents(self) -> dict[str, Any]:
        """Return the state of the bag as JSON-ready data, under the kind's key."""
        return {"bag": asdict(self)}

    def line(self, stage: StageStanding, now_s: float) -> str:
        """Describe how far the tasks have come."""
        return task_text(self)

    def sentences(self, stage: StageStanding, now_s: float, reason: Reason) -> Iterator[str]:
        """Explain the state of a running stage."""
        yield from UnitStanding.sentences(self, stage, now_s, reason)
        yield f"Its tasks are shared: {task_text(self)}."


def task_text(known: TaskStanding) -> str:
    """Describe the progress of the tasks in a bag.

    Examples
    --------
    >>> task_text(TaskStanding(2, 1, 4, 100, 40, 1, 8, 51, 0.5, 118.0))
    '2 jobs run, 1 pending; of 100 tasks 40 completed, 1 failed, 8 run, 51 left; 30 a minute, 1m58s left'
    """
    jobs = f"{known.jobs_running} {'job runs' if known.jobs_running == 1 else 'jobs run'}, {known.jobs_pending} pending"
    if known.tasks is None:
        return jobs
    failed = f" {known.failed} failed," if known.failed else ""
    done = f"of {known.tasks} tasks {known.completed} completed,{failed} {known.running} run, {known.left} left"
    if not known.rate or known.lasts_s is None:
        return f"{jobs}; {done}"
    pace = f"{known.rate:.3g} a second" if known.rate >= 1 else f"{60 * known.rate:.3g} a minute"
    return f"{jobs}; {done}; {pace}, {format_duration(known.lasts_s)} left"
