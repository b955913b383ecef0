"""Units of stages: what jobs run, how jobs get it, and what becomes of a stage when a job has ended.

A single stage is one unit, and so is each of several in one job. Other stages have many units: tasks, which jobs take
from one bag; elements of an array, which a job gets at its submission; legs, one after the other. Each kind of unit is
a class, with one instance for each run, which keeps the state of that kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asa.backend import Capabilities, JobSpec
from asa.runner.course import RunCourse
from asa.runner.jobs import Job
from asa.runner.kinds.base import Units
from asa.runner.kinds.elements import ElementUnits
from asa.runner.kinds.growth import GrowthUnits, widths_of
from asa.runner.kinds.legs import LegUnits
from asa.runner.kinds.racers import RacingUnits
from asa.runner.kinds.tasks import TaskUnits
from asa.strategies.base import PlannedJob, StageView
from asa.workflow import Stage, Workflow


@dataclass(slots=True)
class UnitsOfRun:
    """The units of a run's stages, by their kinds."""

    whole: Units = field(default_factory=Units)
    tasks: TaskUnits = field(default_factory=TaskUnits)
    elements: ElementUnits = field(default_factory=ElementUnits)
    legs: LegUnits = field(default_factory=LegUnits)
    growth: GrowthUnits = field(default_factory=GrowthUnits)
    racing: RacingUnits = field(default_factory=RacingUnits)

    @property
    def kinds(self) -> tuple[Units, ...]:
        """All of them."""
        return self.whole, self.tasks, self.elements, self.legs, self.growth, self.racing

    @staticmethod
    def as_run(workflow: Workflow, site: Capabilities) -> Workflow:
        """Have elements of arrays take turns where the batch system has no arrays."""
        return workflow if site.arrays else workflow.in_turn(site.max_cores, site.cores_per_node)

    def of(self, job: Job) -> Units:
        """Give the kind of what a job runs."""
        return self.asked(job.planned, job.spec)

    def line(self, run: RunCourse, job: Job) -> list[Job]:
        """Give the job in which a job's stages run, and behind it all that only make that one wider."""
        return self.growth.line(run, job)

    def shown(self, run: RunCourse) -> dict[str, Any]:
        """Give what a strategy is shown of jobs that represent no stage: fields of `RunView`."""
        return {"growths": tuple(self.growth.views()), "racers": tuple(self.racing.views(run))}

    @staticmethod
    def widths(run: RunCourse, planned: PlannedJob, stages: Sequence[Stage]) -> list[int]:
        """Give the cores that a job keeps from each of its stages on, which follow each other; 0 for all."""
        return widths_of(run, planned, stages)

    # ------------------------------------------------------------------ the one place where it is chosen

    def asked(self, planned: PlannedJob, spec: JobSpec) -> Units:
        """Give the kind of what a job is to run, as it was asked for: a stage may have been another then."""
        if planned.joins:
            return self.growth
        if spec.race:
            return self.racing
        if spec.leg:
            return self.legs
        if spec.array is not None:
            return self.elements
        return self.tasks if spec.bag else self.whole

    def planned(self, planned: PlannedJob, stages: Mapping[str, StageView]) -> Units:
        """Give the kind of what a job that is planned is to run."""
        if planned.joins:
            return self.growth
        if planned.racer:
            return self.racing
        return self.whole if len(planned.stages) > 1 else self.of_stage(stages[planned.stages[0]].stage)

    def of_stage(self, stage: Stage) -> Units:
        """Give the kind of units of a stage that has jobs to itself."""
        if stage.continues is not None:
            return self.legs
        if stage.array is not None and not stage.takes_turns:
            return self.elements
        return self.tasks if stage.array is not None or stage.job_count > 1 else self.whole
