"""Legs of a stage: jobs that continue the same computation in turn, the next one submitted ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from asa.backend import JobState
from asa.exactly_once import DUPLICATE
from asa.legs import Legs, Turn
from asa.outcome import JobOutcome, outcome_of
from asa.records import Record
from asa.runner.course import RunCourse
from asa.runner.entries import Intended
from asa.runner.jobs import Job
from asa.runner.kinds.base import cut_short
from asa.runner.kinds.rounds import MAX_ROUNDS, RoundUnits, has_completed, is_of_its_round, number_of, ran_out
from asa.strategies.base import Forecast, ForecastKind, Keep, PlannedJob, RunView, StageView, Strategy


@dataclass(slots=True)
class LegUnits(RoundUnits):
    """Legs of a run's stages; one leg of a stage runs at a time."""

    def token(self, run: RunCourse, planned: PlannedJob) -> str:
        """Return a token with the leg's number, and the number of earlier jobs of that leg."""
        number, leg = run.token_of(planned.stages), leg_of(run, planned)
        spent = self.spent(number, leg)
        return f"{number}l{leg}{f'r{spent}' if spent else ''}"

    def asks(self, run: RunCourse, planned: PlannedJob) -> dict[str, Any]:
        """Return the leg's number, and how long before its end it is signalled."""
        legs = run.stages[planned.stages[0]].stage.continues
        saves_s = legs.warn_s if legs is not None and legs.hands_over else None
        return RoundUnits.asks(self, run, planned) | {"leg": leg_of(run, planned), "saves_s": saves_s}

    def turn(self, run: RunCourse, planned: PlannedJob, walltime_s: float) -> Turn | None:
        """Return the leg's number, and the folder in which legs leave notes for each other."""
        [name], legs = planned.stages, self.folder(run, planned.stages[0])
        if legs is None:
            return None
        return Turn(leg_of(run, planned), str(legs.folder), walltime_s, run.stages[name].earlier_legs)

    def waits_for(self, run: RunCourse, planned: PlannedJob, before: list[str]) -> list[str]:
        """Return the job of the previous leg, if this leg is submitted ahead."""
        job_id = run.stages[planned.stages[0]].job_id
        return [job_id] if planned.leg and planned.keep is Keep.DEPENDENCY and job_id is not None else before

    def reason(self, run: RunCourse, job: Job) -> str:
        """Return why a leg was submitted: as planned, if ahead; else because it is its turn."""
        number = job.spec.leg + run.stages[job.planned.stages[0]].earlier_legs
        return job.planned.reason if job.planned.leg or number == 1 else f"leg {number}, in its turn"

    def followers(
        self, run: RunCourse, view: RunView, forecast: Forecast, strategy: Strategy
    ) -> Iterator[tuple[PlannedJob, float]]:
        """Plan the next legs of stages with a running leg."""
        from asa.strategies.legs import ahead, in_turn, successors  # noqa: PLC0415 - needs numpy

        usual = in_turn if strategy.forecast is ForecastKind.NONE else ahead
        return successors(view, forecast, strategy.next_leg or usual, partial(self.saves_s, run), strategy.price_s)

    def accepted(self, run: RunCourse, job: Job) -> None:
        """Record a leg; a leg submitted ahead becomes the stage's next job."""
        RoundUnits.accepted(self, run, job)
        view = run.stages[job.planned.stages[0]]
        if job.planned.leg and view.job_id is not None:
            run.stages.put(view.stage.name, replace(view, next_job_id=job.status.job_id))

    def goes_on_without(self, run: RunCourse, intent: Intended) -> bool:
        """After a leg submitted ahead was refused for good, let the next leg be submitted in its turn."""
        if not intent.planned.leg:
            return False
        name = intent.planned.stages[0]
        run.stages.put(name, replace(run.stages[name], is_unyielding=True))
        return True

    def began(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Record that a leg began."""
        view = run.stages[job.planned.stages[0]]
        if view.job_id == job.status.job_id:
            run.stages.put(view.stage.name, replace(view, leg_start_s=at_s))
        yield from RoundUnits.began(self, run, job, at_s)

    def why_useless(self, run: RunCourse, job: Job) -> str:
        """Return a reason if a later leg runs, or no work is left; else empty."""
        if not is_of_its_round(run, job):
            return "nothing is left to do"
        return "a later leg goes on" if job.spec.leg < run.stages[job.planned.stages[0]].leg else ""

    def left(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Let the next leg continue; if none was submitted, ask for one."""
        name, status = job.planned.stages[0], job.status
        if has_completed(job):
            yield from self.completed(run, job, end_s)
            return
        view = run.stages[name]
        if view.job_id != status.job_id:  # a leg submitted ahead has ended before its turn
            if view.next_job_id == status.job_id:
                run.stages.put(name, replace(view, next_job_id=None, is_unyielding=True))
            return
        if job.given_up:
            run.ask_again(job)
            return
        if outcome_of(status) is JobOutcome.UNYIELDING and self.spent(job.round, view.leg) <= MAX_ROUNDS:
            _ask_for(run, replace(view, is_unyielding=True), view.leg)  # the leg before has ended since
            return
        if not (status.state is JobState.COMPLETED or ran_out(status)):
            yield from cut_short(run, job, [name], end_s)
            return
        began_s, run.may_have_lost = status.payload_start_s or end_s, True
        view = replace(view, ran_s=view.ran_s + max(end_s - began_s, 0.0), attempts=0)
        run.stages.put(name, view)
        legs = view.stage.continues
        if legs is not None and view.earlier_legs + view.leg >= legs.max_legs:
            yield from run.fail([name], f"stage {name!r} has not completed after its {legs.max_legs} legs", end_s)
        elif not self.hand_over(run, job):
            _ask_for(run, view, view.leg + 1)

    # ------------------------------------------------------------------ files that legs leave in the run's folder

    def folder(self, run: RunCourse, stage: str, number: int | None = None) -> Legs | None:
        """Return the folder in which a stage's legs leave notes for each other; None if the run keeps no records.

        `number`: of the round; by default the latest.
        """
        tasks, latest = run.tasks_of(stage), run.stages[stage].resubmissions
        return Legs(Path(tasks) / str(latest if number is None else number)) if tasks else None

    def saves_s(self, run: RunCourse, stage: str) -> float | None:
        """Return the mean time in which the stage's signalled legs saved their state; None if none was signalled."""
        legs = self.folder(run, stage)
        standing = legs.standing() if legs is not None else None
        return standing.saves_s if standing is not None else None

    def left_some(self, run: RunCourse, job: Job) -> bool:
        """Whether a completed leg left work to the next one, as its own note says."""
        legs = None if job.status.state.is_final else self.folder(run, job.planned.stages[0], number_of(job))
        if legs is not None and (how := legs.how(job.spec.leg)):
            return how != "done"
        return RoundUnits.left_some(self, run, job)

    def give_back(self, run: RunCourse, given_back: set[str]) -> bool:
        """Close legs that have no job left, so that the next leg may begin."""
        is_done = True
        for name in run.workflow.continuing if run.outcome is None else ():
            if (legs := self.folder(run, name)) is None:
                continue
            number = run.token_of([name])
            for leg in self.over(number):
                closed = f"{number}l{leg}"
                if closed in given_back or leg >= run.stages[name].leg:
                    continue
                if legs.close(leg):
                    given_back.add(closed)
                else:
                    is_done = False
        return is_done

    # ------------------------------------------------------------------ the jobs of each leg

    def over(self, number: str) -> list[int]:
        """Return the legs of a round that have no job left."""
        live = {job.spec.leg for job in self.live(number)}
        return sorted({job.spec.leg for job in self.jobs.get(number, ())} - live)

    def spent(self, number: str, leg: int) -> int:
        """Count the ended jobs of one leg of a round, each of which used up its token."""
        jobs = (job for job in self.jobs.get(number, ()) if job.spec.leg == leg and job.status.reason != DUPLICATE)
        return sum(job.status.state.is_final or job.given_up for job in jobs)


def leg_of(run: RunCourse, planned: PlannedJob) -> int:
    """Return the number of the leg that a planned job is."""
    return planned.leg or run.stages[planned.stages[0]].leg


def _ask_for(run: RunCourse, view: StageView, leg: int) -> None:
    """Let a leg be asked for, since it is its turn."""
    run.asked_again += 1
    again = StageView(view.stage, resubmissions=view.resubmissions, attempts=view.attempts).with_past(view)
    run.stages.put(view.stage.name, replace(again, leg=leg, earlier_legs=view.earlier_legs))
