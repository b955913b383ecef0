"""What jobs run of stages, as commands show it: for each kind its state, its sentences and its output files.

Commands know of no kind: they ask for the units of a stage, or for what shows those of a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from asa.cli.units.base import UnitStanding
from asa.cli.units.elements import ElementStanding, check_element, element_standing, held_elements
from asa.cli.units.legs import LegStanding, leg_standing
from asa.cli.units.tasks import TaskStanding
from asa.runner.units.base import Units
from asa.runner.units.elements import ElementUnits
from asa.runner.units.legs import LegUnits
from asa.runner.units.tasks import TaskUnits

if TYPE_CHECKING:
    from asa.runner.jobs import Job
    from asa.runner.state import RunState
    from asa.strategies.base import PlannedJob

_SHOWN_BY: Mapping[type[Units], type[UnitStanding]] = {
    TaskUnits: TaskStanding,
    ElementUnits: ElementStanding,
    LegUnits: LegStanding,
}
check_unit, held_units = check_element, held_elements  # others have no numbers, and are not on hold by themselves


def shown_by(state: RunState, job: Job) -> type[UnitStanding]:
    """Say what shows the units of a job."""
    return _SHOWN_BY.get(type(state.units.of(job)), UnitStanding)


def unit_standing(state: RunState, name: str, job: Job | None, now_s: float, plan: PlannedJob | None) -> UnitStanding:
    """Return the state of a stage's units; `job`: the one that the stage has, `plan`: what was last planned for it."""
    is_taking = job is not None and shown_by(state, job) is TaskStanding
    jobs = TaskStanding.of(state, name, job) if job is not None and is_taking else None
    return element_standing(state, name, jobs) or leg_standing(state, name, now_s, plan) or jobs or UnitStanding()
