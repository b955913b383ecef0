"""Units of stages: what jobs run of them, who gives them to jobs, and what becomes of a stage when a job has ended.

A stage by itself is one unit, and so is each of several that share a job. Others are many units: tasks, which jobs
take from one bag; elements of an array, which each job gets at its submission; legs, one after the other. A kind of
unit is a class, whose one value for each run keeps what is true of that kind alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from asa.backend import JobSpec
from asa.runner.jobs import Job
from asa.runner.units.base import Units
from asa.runner.units.elements import ElementUnits
from asa.runner.units.growth import GrowthUnits
from asa.runner.units.legs import LegUnits
from asa.runner.units.tasks import TaskUnits
from asa.runner.units.whole import WholeUnits
from asa.strategies.base import PlannedJob


@dataclass(slots=True)
class UnitsOfRun:
    """The units of a run's stages, by their kinds."""

    whole: WholeUnits = field(default_factory=WholeUnits)
    tasks: TaskUnits = field(default_factory=TaskUnits)
    elements: ElementUnits = field(default_factory=ElementUnits)
    legs: LegUnits = field(default_factory=LegUnits)
    growth: GrowthUnits = field(default_factory=GrowthUnits)

    def of(self, job: Job) -> Units:
        """Give the kind of what a job runs."""
        return self.asked(job.planned, job.spec)

    def asked(self, planned: PlannedJob, spec: JobSpec) -> Units:
        """Give the kind of what a job is to run: the one place where it is chosen."""
        if planned.joins:
            return self.growth
        if spec.leg:
            return self.legs
        if spec.array is not None:
            return self.elements
        return self.tasks if spec.bag else self.whole
