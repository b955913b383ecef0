"""Units of stages: the parts of a stage that its jobs run, how jobs get them, and what happens when a job has ended.

A single stage is one unit, and so is each of several stages in one job. Other stages have many units: tasks, which jobs
take from one bag; elements of an array, which a job gets at its submission; and legs, one after the other. Each kind of
unit is a class, with one instance per run, which keeps the state of that kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from asa.backend import Capabilities, JobSpec
from asa.runner.clusters import on_clusters
from asa.runner.course import RunCourse
from asa.runner.jobs import Job
from asa.runner.kinds.base import Units
from asa.runner.kinds.elements import ElementUnits
from asa.runner.kinds.growth import GrowthUnits, widths_of
from asa.runner.kinds.legs import LegUnits
from asa.runner.kinds.racers import RacingUnits
from asa.runner.kinds.tasks import TaskUnits
from asa.strategies.base import PlannedJob, StageView, Strategy
from asa.workflow import Stage, Workflow


@dataclass(slots=True)
class UnitsOfRun:
    """The units of a run's stages, one attribute for each kind."""

    whole: Units = field(default_factory=Units)
    tasks: TaskUnits = field(default_factory=TaskUnits)
    elements: ElementUnits = field(default_factory=ElementUnits)
    legs: LegUnits = field(default_factory=LegUnits)
    growth: GrowthUnits = field(default_factory=GrowthUnits)
    racing: RacingUnits = field(default_factory=RacingUnits)

    @property
    def kinds(self) -> tuple[Units, ...]:
        """All kinds."""
        return self.whole, self.tasks, self.elements, self.legs, self.growth, self.racing

    @staticmethod
    def site_for(strategy: Strategy, workflow: Workflow, site: Capabilities) -> Capabilities:
        """Return the abilities of a batch system that a run may use: without arrays if all stages share one job."""
        return replace(site, arrays=False) if strategy.is_one_job and len(workflow.stages) > 1 else site

    @staticmethod
    def as_run(workflow: Workflow, site: Capabilities) -> Workflow:
        """Let the elements of arrays take turns if the batch system has no arrays; offer stages a site's clusters."""
        workflow = on_clusters(workflow, site)
        return workflow if site.arrays else workflow.in_turn(site.max_cores, site.cores_per_node)

    def of(self, job: Job) -> Units:
        """Return the kind of a job's units."""
        return self.asked(job.planned, job.spec)

    def line(self, run: RunCourse, job: Job) -> list[Job]:
        """Return the job in which a job's stages run, followed by the jobs whose cores join it."""
        return self.growth.line(run, job)

    def shown(self, run: RunCourse) -> dict[str, Any]:
        """Return the jobs that represent no stage, as fields of a strategy's `RunView`."""
        return {"growths": tuple(self.growth.views()), "racers": tuple(self.racing.views(run))}

    @staticmethod
    def widths(run: RunCourse, planned: PlannedJob, stages: Sequence[Stage]) -> list[int]:
        """Return the cores that a job keeps from each of its consecutive stages on; 0 for all."""
        return widths_of(run, planned, stages)

    # ------------------------------------------------------------------ the only place that chooses a kind

    def asked(self, planned: PlannedJob, spec: JobSpec) -> Units:
        """Return the kind of a job's units as it was submitted: the stage may have changed since."""
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
        """Return the kind of a planned job's units."""
        if planned.joins:
            return self.growth
        if planned.racer:
            return self.racing
        return self.whole if len(planned.stages) > 1 else self.of_stage(stages[planned.stages[0]].stage)

    def of_stage(self, stage: Stage) -> Units:
        """Return the kind of units of a stage that shares no job."""
        if stage.continues is not None:
            return self.legs
        if stage.array is not None and not stage.takes_turns:
            return self.elements
        return self.tasks if stage.array is not None or stage.job_count > 1 else self.whole
