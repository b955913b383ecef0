"""The state of a stage that runs in legs: the current leg, the progress, and the next leg."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar

from asa.backend import JobState
from asa.cli.kinds.base import Reason, UnitStanding
from asa.core.late import dataclass
from asa.units import format_duration

if TYPE_CHECKING:
    from asa.cli.standing import StageStanding
    from asa.runner.jobs import Job
    from asa.runner.state import RunState
    from asa.strategies.base import PlannedJob

_FEW = 60


@dataclass(frozen=True, slots=True)
class LegStanding(UnitStanding):
    """The progress of a stage that runs in legs; times in seconds."""

    order: ClassVar[int] = 3
    leg: int  # number of the current leg
    max_legs: int
    worked_s: float  # run time of all legs so far
    total_s: float | None  # expected run time of all legs; None if not known
    shown: str = ""  # the output that showed the progress when this leg began, in a line
    saves_s: float | None = None  # how long saving the state takes; None if no leg was signalled
    next_job_id: str | None = None  # the next leg's job, if one was submitted
    next_state: str = ""  # its state and the reason, in the batch system's words
    next_reason: str = ""
    next_submit_s: float | None = None  # when the next leg is to be submitted, as last planned; `next_plan`: why then
    next_plan: str = ""
    # whether no leg is submitted ahead, because an earlier leg that was submitted ahead ended too early
    waits_in_turn: bool = False

    @property
    def left_s(self) -> float | None:
        """Expected run time of the remaining work; None if not known."""
        return None if self.total_s is None else max(self.total_s - self.worked_s, 0.0)

    def documents(self) -> dict[str, Any]:
        """Return the state of the legs as JSON-ready data, under the kind's key."""
        return {"legs": asdict(self)}

    def line(self, stage: StageStanding, now_s: float) -> str:
        """Describe how far the legs have come."""
        return leg_text(self, now_s, is_over=stage.state == "done")

    def sentences(self, stage: StageStanding, now_s: float, reason: Reason) -> Iterator[str]:
        """Explain the state of a running stage; the end of the leg's walltime would say little."""
        yield f"It runs in legs: {self.line(stage, now_s)}."
        if self.next_plan:
            yield f"The next one: {self.next_plan}."
        if self.next_job_id is not None:
            yield from reason(replace(stage, job_id=self.next_job_id, reason=self.next_reason))
        elif self.waits_in_turn:
            yield (
                "Each leg is submitted when the one before has ended, since one that was submitted ahead ended too "
                "early."
            )


def leg_standing(state: RunState, name: str, now_s: float, plan: PlannedJob | None) -> LegStanding | None:
    """Return the state of a stage that runs in legs; None for others, and if no leg has begun.

    `plan`: the last plan for the stage.
    """
    view = state.stages[name]
    legs = view.stage.continues
    if legs is None or (view.job_id is None and view.leg + view.earlier_legs == 1):
        return None
    worked_s = view.ran_s
    if view.leg_start_s is not None and not view.phase.is_settled:
        worked_s += max(now_s - view.leg_start_s, 0.0)
    elif view.phase.is_settled and view.leg_start_s is not None and view.ended_s is not None:
        worked_s += max(view.ended_s - view.leg_start_s, 0.0)
    folder = state.units.legs.folder(state, name)
    known = folder.standing() if folder is not None else None
    following = state.jobs.get(view.next_job_id or "")
    planned = plan if plan is not None and plan.leg and following is None else None
    return LegStanding(
        view.earlier_legs + view.leg,
        legs.max_legs,
        worked_s,
        view.stage.expected_run_s,
        known.shown if known is not None else "",
        known.saves_s if known is not None else None,
        view.next_job_id,
        _state_of(following.status.state) if following is not None else "",
        following.status.reason if following is not None else "",
        planned.submit_s if planned is not None else None,
        _plan_of(following, planned),
        view.is_unyielding,
    )


def _plan_of(following: Job | None, planned: PlannedJob | None) -> str:
    if following is not None:
        return following.planned.reason
    return planned.reason if planned is not None else ""


def _state_of(state: JobState) -> str:
    return {JobState.PENDING: "queued", JobState.RUNNING: "taking over"}.get(state, state.value)


def leg_text(legs: LegStanding, now_s: float, *, is_over: bool = False) -> str:
    """Describe the progress of a stage's legs.

    Examples
    --------
    >>> leg_text(LegStanding(3, 20, 72000.0, 144000.0, "step 4200", 40.0, "57", "queued"), 0.0)
    'leg 3, 20h00m of 1d16h worked (50 %), step 4200 as it began; leg 4 is queued, as job 57; done in 20h00m at best'
    """
    worked = format_duration(legs.worked_s)
    if is_over:
        return f"{'1 leg' if legs.leg == 1 else f'{legs.leg} legs'}, {worked} worked"
    if legs.total_s:
        share = min(legs.worked_s / legs.total_s, 1.0)
        worked = f"{worked} of {format_duration(legs.total_s)} worked ({share:.0%})".replace("%", " %")
    else:
        worked = f"{worked} worked"
    shown = f", {legs.shown[:_FEW]} as it began" if legs.shown else ""
    parts = [f"leg {legs.leg}, {worked}{shown}"]
    if legs.next_job_id is not None:
        parts.append(f"leg {legs.leg + 1} is {legs.next_state}, as job {legs.next_job_id}")
    elif legs.next_submit_s is not None:
        in_s = max(legs.next_submit_s - now_s, 0.0)
        parts.append(f"leg {legs.leg + 1} is submitted in {format_duration(in_s)}")
    if legs.left_s:
        parts.append(f"done in {format_duration(legs.left_s)} at best")
    return "; ".join(parts)
