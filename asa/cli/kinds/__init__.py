"""How commands show the units that the jobs of a stage run: a class for each kind of unit.

Commands do not depend on the kind: they ask for the units of a stage, or of a job.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from asa.cli.kinds.base import UnitStanding
from asa.cli.kinds.elements import (
    alike,
    asked_for,
    check_element,
    element_files,
    element_headings,
    element_standing,
    held_elements,
    n_jobs,
    size_document,
    turns,
)
from asa.cli.kinds.legs import leg_standing
from asa.cli.kinds.racers import race_standing
from asa.cli.kinds.tasks import TaskStanding

__all__ = [
    "alike",
    "asked_for",
    "check_unit",
    "headings",
    "held_units",
    "n_jobs",
    "output_files",
    "size_document",
    "turns",
    "unit_standing",
]

if TYPE_CHECKING:
    from asa.runner import RunFolder
    from asa.runner.jobs import Job
    from asa.runner.state import RunState
    from asa.strategies.base import PlannedJob

headings = element_headings  # likewise
check_unit, held_units = check_element, held_elements  # only elements have numbers, and can be on hold one by one


def unit_standing(state: RunState, name: str, job: Job | None, now_s: float, plan: PlannedJob | None) -> UnitStanding:
    """Return the state of a stage's units; `job`: the stage's job, `plan`: the last plan for the stage."""
    jobs = TaskStanding.of(state, name, job) if job is not None and job.spec.shares_tasks else None
    several = element_standing(state, name, jobs) or leg_standing(state, name, now_s, plan) or jobs
    return several or race_standing(state, name) or UnitStanding()


def output_files(
    folder: RunFolder, state: RunState, job: Job, kind: str, file_of: Callable[[Job], Path | None], unit: int | None
) -> list[tuple[str, Path]]:
    """Find the output files of all jobs that do a job's work, with job numbers; `unit`: only those of this unit."""
    if job.spec.array is not None:
        return element_files(folder, state, job, kind, unit)
    jobs = [other for other in state.jobs.values() if other.spec.bag == job.spec.bag] if job.spec.shares else [job]
    if job.spec.shares_tasks:  # of legs, earlier rounds count, too
        jobs = [other for other in jobs if other.round == job.round]
    return [(job.status.job_id, file) for job in jobs if (file := file_of(job)) is not None]
