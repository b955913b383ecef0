"""The state of a stage that is a job array: what became of its elements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from asa.backend import ElementEnd
from asa.bags import Bag
from asa.elements import NONE, Elements

if TYPE_CHECKING:
    from asa.runner.state import RunState


@dataclass(frozen=True, slots=True)
class ElementStanding:
    """The state of an array's elements; their numbers as sbatch writes them."""

    elements: str  # all of them
    count: int
    completed: str
    completed_count: int
    running: str  # where elements take turns it is not known which run
    running_count: int
    failed: str  # those that ended last otherwise, and were not asked for again since
    failed_count: int
    pending_count: int
    told: str = ""  # how those ended, in words
    at_once: int = 0  # how many may run at the same time; 0 for all
    held: str = ""  # those that do not start until somebody releases them
    held_count: int = 0
    held_reason: str = ""  # why, in the batch system's words


def element_standing(state: RunState, name: str) -> ElementStanding | None:
    """Return the state of an array's elements; None for other stages."""
    from asa.runner.arrays import how_they_ended

    if (array := state.workflow.stages[name].array) is None:
        return None
    completed, running, ends = _known(state, name)
    failed = NONE
    for end in ends:
        failed |= end.elements
    count = len(array.all)
    pending = max(count - len(completed) - len(running) - len(failed), 0)
    return ElementStanding(
        str(array.all),
        count,
        str(completed),
        len(completed),
        str(running),
        len(running),
        str(failed),
        len(failed),
        pending,
        how_they_ended(ends) if ends else "",
        array.at_once,
        *_held(state, name),
    )


def _held(state: RunState, name: str) -> tuple[str, int, str]:
    """Give the elements that are on hold, how many these are, and why."""
    lead = state.jobs.get(state.stages[name].job_id or "")
    parts = state.units.elements.parts(lead.round) if lead is not None and lead.spec.array is not None else ()
    told = [one.status.elements for one in parts if one.status.elements is not None and not one.status.state.is_final]
    held = Elements.of(number for one in told for number in one.held)
    return str(held), len(held), next((one.held_reason for one in told if one.held), "")


def ended_alike(state: RunState, name: str) -> list[tuple[Elements, str]]:
    """Say how those elements of an array ended that did not complete, of those together that ended alike."""
    from asa.runner.arrays import alike

    return alike(_known(state, name)[2])


def _known(state: RunState, name: str) -> tuple[Elements, Elements, list[ElementEnd]]:
    """Tell of the elements of an array: which completed, which run, and how the others ended that have."""
    return (_in_turn if state.workflow.stages[name].takes_turns else _native)(state, name)


def _native(state: RunState, name: str) -> tuple[Elements, Elements, list[ElementEnd]]:
    """Tell of elements by what the batch system said of them."""
    bag, running, asked = state.post(name), NONE, NONE
    lead = state.jobs.get(state.stages[name].job_id or "")
    for job in state.units.elements.parts(lead.round) if lead is not None else ():
        if job.spec.array is not None and not job.status.state.is_final:
            asked |= job.spec.array.elements
            if job.status.elements is not None:
                running |= job.status.elements.running
                asked -= job.status.elements.failed
    completed = state.units.elements.completed_of(bag)
    asked |= completed  # what is asked for once more has failed no longer
    failed = state.units.elements.failed(bag)
    ends = [replace(end, elements=left) for end in failed if (left := end.elements - asked)]
    return completed, running - completed, ends


def _in_turn(state: RunState, name: str) -> tuple[Elements, Elements, list[ElementEnd]]:
    """Tell of elements by what the stage's jobs wrote down."""
    from asa.runner.arrays import in_turn

    known = in_turn(Bag(Path(state.tasks_of(name))).ends() if state.tasks_of(name) else {})
    return known.completed, NONE, list(known.ended)


def _of_which_held(elements: ElementStanding) -> str:
    if not elements.held_count:
        return ""
    which = "" if elements.held_count == elements.pending_count == 1 else f"{elements.held_count} of them "
    return f", {which}on hold: {elements.held_reason}"


def element_words(elements: ElementStanding) -> str:
    """Describe the state of an array's elements.

    Examples
    --------
    >>> element_words(ElementStanding("1-9", 9, "1-4", 4, "5", 1, "6", 1, 3, "6 failed (exit code 1)"))
    'of 9 elements 4 completed, 1 runs, 1 did not complete, 3 left; 6 failed (exit code 1)'
    """
    counts = [f"{elements.completed_count} completed"]
    if elements.running_count:
        counts.append(f"{elements.running_count} {'runs' if elements.running_count == 1 else 'run'}")
    if elements.failed_count:
        counts.append(f"{elements.failed_count} did not complete")
    if elements.pending_count:
        counts.append(f"{elements.pending_count} left{_of_which_held(elements)}")
    throttle = f" ({elements.at_once} at once at most)" if elements.at_once and elements.pending_count else ""
    told = f"; {elements.told}" if elements.told else ""
    return f"of {elements.count} elements {', '.join(counts)}{throttle}{told}"
