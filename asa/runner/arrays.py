"""Stages that are job arrays: which of their elements are asked for together, and what became of each.

A stage's elements are asked for in rounds, from one time that the stage is asked for to the next, and in each round in
as many jobs, its *parts*, as the batch system's limits make of them. No element is in two parts of a round, and only
those are asked for again that did not complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from asa.backend import Capabilities, ElementEnd, ElementsStatus, JobState, JobStatus
from asa.elements import NONE, Array, Elements
from asa.errors import BackendError, SubmitRejectedError
from asa.exactly_once import NUMBER_LOST, TWIN
from asa.outcome import JobOutcome, meaning, outcome_of, would_end_so_again
from asa.runner.jobs import Job
from asa.strategies.base import Keep, PlannedJob, StageView

_MAX_GROUPS = 3  # of elements that ended alike, in a sentence
_LONGEST = 40  # letters of elements' numbers in a sentence
_UNCOUNTED = frozenset({TWIN, NUMBER_LOST})  # reasons of elements that ran nothing


@dataclass(slots=True)
class Arrays:
    """What became of the elements of a run's arrays; each array is named by what it posts."""

    completed: dict[str, Elements] = field(default_factory=dict)
    failures: dict[str, dict[int, ElementEnd]] = field(default_factory=dict)  # how elements ended last that did not
    sizes: dict[str, int] = field(default_factory=dict)  # elements that the batch system takes at a time, by stage
    _compact: set[str] = field(default_factory=set)  # stages whose elements are to be numbered from 0 on
    _parts: dict[str, list[Job]] = field(default_factory=dict)  # by round

    def accepted(self, job: Job, stage: str) -> None:
        """Note a part; the next one may be larger."""
        if job.spec.array is None:
            return
        self._parts.setdefault(job.round, []).append(job)
        if stage in self.sizes:
            self.sizes[stage] = 2 * len(job.spec.array.elements)

    def narrowed(self, stage: str, size: int, *, is_compact: bool) -> None:
        """Note how many elements to ask for at a time, as more were refused, or ones of such numbers."""
        self.sizes[stage] = size
        if is_compact:
            self._compact.add(stage)

    def heard(self, job: Job) -> None:
        """Take in what a part's elements did."""
        if job.spec.array is None or (told := job.status.elements) is None:
            return
        bag = job.spec.bag
        done = self.completed[bag] = self.completed.get(bag, NONE) | told.completed
        failures = self.failures.setdefault(bag, {})
        for end in told.ended:
            if not job.giving_up and not _ran_nothing(end):
                failures |= dict.fromkeys(end.elements, end)
        for number in [number for number in failures if number in done]:
            del failures[number]

    def anew(self, bag: str) -> None:
        """Forget how elements failed, as they are all to be tried again."""
        self.failures.pop(bag, None)

    def is_compact(self, planned: PlannedJob) -> bool:
        """Whether a stage's elements are to be numbered from 0 on."""
        return planned.stages[0] in self._compact

    # ------------------------------------------------------------------ parts

    def parts(self, number: str) -> list[Job]:
        """Give the parts of a round that were accepted."""
        return self._parts.get(number, [])

    def left(self, number: str, array: Array) -> Elements:
        """Give the elements of a round that are in no part yet."""
        asked = {n for job in self.parts(number) if job.spec.array is not None for n in job.spec.array.elements}
        return Elements.of(n for n in array.elements if n not in asked) if asked else array.elements

    def next_part(self, stage: str, number: str, array: Array, site: Capabilities) -> Array:
        """Give what the next part of a round asks for."""
        left = self.left(number, array)
        limits = [self.sizes.get(stage), site.max_array_size, site.max_queued]
        part = array.only(left.take(max(min((size for size in limits if size is not None), default=len(left)), 1)))
        is_beyond = site.max_array_size is not None and part.elements.last >= site.max_array_size
        return replace(part, is_compact=True) if is_beyond or stage in self._compact else part

    def before(self, number: str, array: Array) -> list[str]:
        """Name the parts of a round that are to have ended before the next one begins, where few may run at once."""
        return [one.status.job_id for one in self.live(number)] if array.at_once else []

    def live(self, number: str) -> list[Job]:
        """Give the parts of a round that have not ended."""
        return [one for one in self.parts(number) if not (one.status.state.is_final or one.given_up)]

    def missing(self, lead: Job, view: StageView, *, is_ready: bool, now_s: float) -> PlannedJob | None:
        """Plan the next part of a round; None if all its elements are asked for."""
        array = view.stage.array
        if array is None or lead.giving_up or not self.left(lead.round, array):
            return None
        parts = self.parts(lead.round)
        return replace(
            lead.planned,
            submit_s=now_s,
            keep=Keep.NOTHING if is_ready else lead.planned.keep,
            reason="more elements of its array",
            mate=1 + max((one.planned.mate for one in parts), default=0),
        )

    # ------------------------------------------------------------------ what is to be done about those that failed

    def open(self, bag: str, array: Array) -> Elements:
        """Give all elements of a stage that have not completed."""
        return array.all - self.completed.get(bag, NONE)

    def again(
        self, bag: str, array: Array, *, may_retry: bool, excused: Collection[ElementEnd] = ()
    ) -> tuple[Elements, list[ElementEnd]]:
        """Say which elements of a round are asked for again, and how those of them ended that failed.

        `excused`: ends that do not count as failures.
        """
        let_off = {number for end in excused for number in end.elements}
        failures = {number: end for number, end in self.failures.get(bag, {}).items() if number not in let_off}
        left = array.elements - self.completed.get(bag, NONE)
        retried = {n: end for n in left if may_retry and (end := failures.get(n)) is not None and _may_retry(end)}
        unrun = [n for n in left if n not in failures]
        return Elements.of((*unrun, *retried)), _grouped(retried)

    def failed(self, bag: str) -> list[ElementEnd]:
        """Give how elements ended last that have not completed, put together by how."""
        return _grouped(self.failures.get(bag, {}))

    def why(self, bag: str, array: Array) -> str:
        """Say how those ended that have not completed."""
        left = self.open(bag, array)
        known = {n: end for n, end in self.failures.get(bag, {}).items() if n in left}
        how = how_they_ended(_grouped(known)) or short(left)
        return f"{len(left)} of {len(array.all)} elements did not complete: {how}"


def in_turn(ends: Mapping[str, tuple[int, JobOutcome | None]]) -> ElementsStatus:
    """Say how elements that take turns ended, by their exit codes, and their outcomes where these are known.

    Those of earlier versions have none: there who ran out of time ended with the exit code of `timeout`.
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


def _ran_nothing(end: ElementEnd) -> bool:
    """Whether elements ended in which nothing of theirs ran: they are asked for again, and that is no failure."""
    return end.reason in _UNCOUNTED or (end.state is JobState.FAILED and outcome_of(end) is JobOutcome.GAVE_BACK)


def _may_retry(end: ElementEnd) -> bool:
    """Whether elements that ended so may be tried again: not if somebody cancelled them, or they would end so again."""
    if end.state is JobState.CANCELLED:
        return False
    return not (end.state is JobState.FAILED and would_end_so_again(end))


def _grouped(ends: Mapping[int, ElementEnd]) -> list[ElementEnd]:
    """Put elements together that ended alike."""
    found: dict[ElementEnd, list[int]] = {}
    for number, end in ends.items():
        found.setdefault(replace(end, elements=NONE), []).append(number)
    return [replace(end, elements=Elements.of(numbers)) for end, numbers in found.items()]


def how_they_ended(ends: Iterable[ElementEnd]) -> str:
    """Say of elements how they ended, of those together that ended alike.

    Examples
    --------
    >>> how_they_ended([ElementEnd(Elements.of([3, 4, 5]), JobState.FAILED, 1, "NonZeroExitCode")])
    '3-5 failed (exit code 1)'
    """
    groups = alike(ends)
    said = [f"{short(elements)} {how}" for elements, how in groups[:_MAX_GROUPS]]
    rest = sum(len(elements) for elements, _ in groups[_MAX_GROUPS:])
    return "; ".join([*said, *([f"{rest} more"] if rest else [])])


def alike(ends: Iterable[ElementEnd]) -> list[tuple[Elements, str]]:
    """Put elements together of which the same is to be said, and say it; in the order of their numbers.

    Slurm may give reasons beside the same exit code, or none.

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
    """Write elements' numbers, the first of very many."""
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
    """Whether an array is refused for good for the numbers of its elements, or how many they are."""
    return isinstance(error, SubmitRejectedError) and "array" in error.message.lower()


def ends_of(job: Job) -> Sequence[JobStatus | ElementEnd]:
    """Give how a job ended, and how the elements did that had their turn in it and did not complete."""
    told = job.status.elements
    return [job.status, *(told.ended if told is not None else ())]
