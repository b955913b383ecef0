"""The state of a stage that runs in legs: the present leg, the progress, and the next leg."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from asa.backend import JobState
from asa.cli.kinds.base import Reason, UnitStanding
from asa.units import format_duration

if TYPE_CHECKING:
    from asa.cli.standing import StageStanding
    from asa.runner.jobs import Job
    from asa.runner.state import RunState
    from asa.strategies.base import PlannedJob

_FEW = 60


@dataclass(frozen=True, slots=True)
class LegStanding(UnitStanding):
    """How far a stage has come that runs in legs; times in seconds."""

    order: ClassVar[int] = 3
    leg: int  # whose turn it is
    max_legs: int
    worked_s: float  # that all legs have run so far
    total_s: float | None  # that they are expected to run; None if that is not known
    shown: str = ""  # what showed its progress when this leg began, in a line
    saves_s: float | None = None  # how long it takes to save its state; None if no leg was signalled to
    next_job_id: str | None = None  # the job of the next leg, where it was asked for
    next_state: str = ""  # its state, and why, in the batch system's words
    next_reason: str = ""
    next_submit_s: float | None = None  # when it is to be asked for, as last planned, and why then
    next_plan: str = ""
    waits_in_turn: bool = False  # no leg is asked for ahead: one was, and ended before its turn came

    @property
    def left_s(self) -> float | None:
        """How long what is left is expected to run; None if that is not known."""
        return None if self.total_s is None else max(self.total_s - self.worked_s, 0.0)

    def documents(self) -> dict[str, Any]:
        """Return it as JSON-ready data, by its key."""
        return {"legs": asdict(self)}

    def line(self, stage: StageStanding, now_s: float) -> str:
        """Say how far they have come."""
        return leg_text(self, now_s, is_over=stage.state == "done")

    def sentences(self, stage: StageStanding, now_s: float, reason: Reason) -> Iterator[str]:
        """Explain the state of a running stage: when a leg ends says little."""
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

    `plan`: what was last planned for it.
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
