"""Describes how elements of arrays ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from asa.backend import ElementEnd, ElementsStatus, JobState
from asa.elements import NONE, Elements
from asa.errors import BackendError, SubmitRejectedError
from asa.outcome import JobOutcome, meaning, outcome_of

_MAX_GROUPS = 3  # ways to end that are listed in a sentence
_LONGEST = 40  # characters of element numbers


def in_turn(ends: Mapping[str, tuple[int, JobOutcome | None]]) -> ElementsStatus:
    """Describe how elements that take turns ended, by their exit codes, and their outcomes if known.

    Earlier versions recorded no outcomes: an element that reached its time limit has the exit code of `timeout`.
    """
    alike: dict[tuple[int, JobOutcome | None], list[int]] = {}
    for number, how in ends.items():
        alike.setdefault(how, []).append(int(number))
    completed = Elements.of(alike.pop((0, None), ()))
    failed = []
    for (code, outcome), numbers in sorted(alike.items(), key=lambda item: item[0][0]):
        end = ElementEnd(Elements.of(numbers), JobState.FAILED, code, outcome=outcome)
        failed.append(replace(end, state=JobState.TIMEOUT) if outcome_of(end) is JobOutcome.OVERTIME else end)
    return ElementsStatus(completed=completed, ended=tuple(failed))


def how_they_ended(ends: Iterable[ElementEnd]) -> str:
    """Describe how elements ended, grouped by how they ended.

    Examples
    --------
    >>> how_they_ended([ElementEnd(Elements.of([3, 4, 5]), JobState.FAILED, 1, "NonZeroExitCode")])
    '3-5 failed (exit code 1)'
    """
    groups = alike(ends)
    parts = [f"{short(elements)} {how}" for elements, how in groups[:_MAX_GROUPS]]
    rest = sum(len(elements) for elements, _ in groups[_MAX_GROUPS:])
    return "; ".join([*parts, *([f"{rest} more"] if rest else [])])


def alike(ends: Iterable[ElementEnd]) -> list[tuple[Elements, str]]:
    """Group elements that ended in the same way, with a description, in the order of their numbers.

    Ends with the same exit code count as the same, whether Slurm gave a reason or not.

    Examples
    --------
    >>> ends = [ElementEnd(Elements.of([n]), JobState.FAILED, 1, why) for n, why in ((3, ""), (7, "NonZeroExitCode"))]
    >>> [(str(elements), how) for elements, how in alike(ends)]
    [('3,7', 'failed (exit code 1)')]
    """
    found: dict[str, Elements] = {}
    for end in ends:
        how = _words(end)
        found[how] = found.get(how, NONE) | end.elements
    groups = sorted(found.items(), key=lambda group: group[1].first)
    return [(elements, _WAS if how == _WERE and len(elements) == 1 else how) for how, elements in groups]


def short(elements: Elements) -> str:
    """Write elements' numbers, shortened if there are many."""
    text = str(elements)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST].rpartition(',')[0]} and others, {len(elements)} in all,"


_WAS, _WERE = "was cancelled", "were cancelled"
_ENDED = {JobState.FAILED: "failed", JobState.TIMEOUT: "ran out of time", JobState.CANCELLED: _WERE}


def _words(end: ElementEnd) -> str:
    words = _ENDED.get(end.state, end.state.value)
    if end.state is not JobState.FAILED:
        return words
    code = "" if end.exit_code is None else f"exit code {end.exit_code}"
    why = meaning(end.exit_code, end.outcome) or code or end.reason
    if end.reason and end.reason != "NonZeroExitCode" and end.exit_code is None:
        why = end.reason
    return f"{words} ({why})" if why else words


def is_no_array(error: BackendError) -> bool:
    """Whether an error refuses an array for good because of its size or its elements' numbers."""
    return isinstance(error, SubmitRejectedError) and "array" in error.message.lower()
