"""Elements of arrays: which are submitted together, and how each ended.

A stage's elements are submitted in rounds: a new round begins each time that the stage is submitted again. A round has
as many jobs, its *parts*, as the batch system's limits require. Each element is in one part of a round, and only
uncompleted elements are submitted again. If an element depends only on the one with the same number in another array,
a part has the elements whose counterparts have completed. The round then goes on until that other array has ended.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from asa.backend import ElementEnd, JobSpec, JobState, JobStatus
from asa.core.files import put
from asa.elements import NONE, Array, Elements
from asa.errors import BackendError, SubmitRejectedError
from asa.exactly_once import DUPLICATE, NUMBER_LOST
from asa.outcome import JobOutcome, outcome_of, would_end_so_again
from asa.records import Record
from asa.runner.arrays import how_they_ended, is_no_array, short
from asa.runner.course import RunCourse
from asa.runner.entries import Narrowed
from asa.runner.jobs import Job, round_of
from asa.runner.kinds.rounds import MAX_ROUNDS, RoundUnits
from asa.runner.nodes import moved
from asa.strategies.base import Phase, PlannedJob, StageView
from asa.workflow import Stage

_GATHER_S = 30.0
"""Time from one submission to the next, in which the elements are gathered whose counterparts complete."""
_UNCOUNTED = frozenset({DUPLICATE, NUMBER_LOST})  # ends of elements that ran nothing


@dataclass(slots=True)
class ElementUnits(RoundUnits):
    """The elements of a run's arrays, and how they ended; keys are the arrays' completion markers."""

    done: dict[str, Elements] = field(default_factory=dict)  # completed elements
    failures: dict[str, dict[int, ElementEnd]] = field(default_factory=dict)  # how the others last ended
    sizes: dict[str, int] = field(default_factory=dict)  # by stage: how many elements to submit at a time
    compact: set[str] = field(default_factory=set)  # stages whose elements must be numbered from 0

    def asks(self, run: RunCourse, planned: PlannedJob) -> dict[str, Any]:
        """Return the elements of the next part."""
        return RoundUnits.asks(self, run, planned) | {"array": self._next_part(run, planned.stages[0])}

    def waits_for(self, run: RunCourse, planned: PlannedJob, before: list[str]) -> list[str]:
        """Add the earlier parts that must end first, if only some elements may run at the same time."""
        array = run.stages[planned.stages[0]].stage.array
        own = self.live(run.token_of(planned.stages)) if array is not None and array.at_once else []
        return before + [job.status.job_id for job in own]

    def accepted(self, run: RunCourse, job: Job) -> None:
        """Record a part; the next one may be twice as large."""
        RoundUnits.accepted(self, run, job)
        if (stage := job.planned.stages[0]) in self.sizes and job.spec.array is not None:
            self.sizes[stage] = 2 * len(job.spec.array.elements)

    def recorded(self, job: Job) -> dict[str, Any]:
        """Name the elements of a part."""
        return RoundUnits.recorded(self, job) | {"array": str(job.spec.array)}

    def ran_s(self, job: Job) -> float | None:
        """Return the total time for which elements were allocated cores."""
        reported = job.status.elements
        return reported.ran_s if reported is not None else 0.0

    def fewer(
        self, planned: PlannedJob, spec: JobSpec, error: BackendError, at_s: float
    ) -> tuple[Narrowed, str] | None:
        """If a part is too large, ask for half as many elements, or number them from 0."""
        is_refused = is_no_array(error)
        if spec.array is None or error.is_of_any or (isinstance(error, SubmitRejectedError) and not is_refused):
            return None
        count = len(spec.array.elements)
        if count == 1 and (spec.array.is_compact or not is_refused):
            return None
        fewer = Narrowed(planned.stages[0], max(count // 2, 1), error.message, at_s, is_compact=is_refused)
        return fewer, f"{count} elements are too many at a time"

    def narrowed(self, entry: Narrowed) -> None:
        """Record how many elements to submit at a time, and whether to number them from 0."""
        self.sizes[entry.stage] = entry.size
        if entry.is_compact:
            self.compact.add(entry.stage)

    def heard(self, run: RunCourse, job: Job, *, is_anew: bool) -> None:
        """Record how a part's elements ended."""
        if (reported := job.status.elements) is not None:
            bag = job.spec.bag
            done = self.completed_of(bag) | reported.completed
            self.done[bag], failures = done, self.failures.setdefault(bag, {})
            for end in reported.ended:
                if not job.giving_up and not _ran_nothing(end):
                    failures |= dict.fromkeys(end.elements, end)
            for number in [number for number in failures if number in done]:
                del failures[number]
            if reported.completed:
                run.stages.note_release(job.planned.stages[0])
        RoundUnits.heard(self, run, job, is_anew=is_anew)

    def anew(self, run: RunCourse) -> None:
        """Forget failures: all elements are to be tried again."""
        for name in run.workflow.arrays:
            self.failures.pop(run.post(name), None)

    def left_to_run(self, run: RunCourse, stage: Stage) -> Stage:
        """Ask only for the elements that have not completed."""
        assert stage.array is not None
        left = self.open(run.post(stage.name), stage.array)
        return replace(stage, array=stage.array.only(left)) if left else stage

    def as_seen(self, run: RunCourse, job: Job, status: JobStatus) -> JobStatus:  # noqa: ARG002
        """Return the batch system's report, which has the elements."""
        return status

    def give_back(self, run: RunCourse, given_back: set[str]) -> bool:
        """Write the completion markers of arrays whose last elements ended at the same time: no element wrote them."""
        for name in run.workflow.arrays if run.folder and run.capabilities.arrays else ():
            post = run.post(name)
            if run.stages[name].phase is not Phase.DONE or post in given_back:
                continue
            path = Path(run.folder) / "posts" / quote(post, safe="")
            with suppress(OSError):
                if path.parent.is_dir() and not path.exists():
                    put(path, b"")
                given_back.add(post)
        return True

    def completed_of(self, bag: str) -> Elements:
        """Return the completed elements of an array."""
        return self.done.get(bag, NONE)

    def left(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Let the next part be submitted; after the last part, ask again for the uncompleted elements."""
        name = job.planned.stages[0]
        view, bag = run.stages[name], job.spec.bag
        run.may_have_lost = True
        if (array := view.stage.array) is None or self.hand_over(run, job):
            return
        never = self._never(run, run.stages, name)
        can_go_on = not job.giving_up or not self._released(run, run.stages, name, self.open(bag, array))
        if self.unasked(job.round, array) - never and can_go_on and run.outcome is None:
            return  # the next part follows
        parts = [part.status for part in self.parts(job.round)]
        end_s = max((part.end_s for part in parts if part.end_s is not None), default=job.status.submit_s)
        view = replace(view, job_id=job.status.job_id)
        run.stages.put(name, view)
        if not self.open(bag, array):
            yield from run.stages_done(job, end_s if view.started_s is None else view.started_s, end_s)
            return
        if run.outcome is not None:
            return
        may_retry = view.attempts < view.stage.retries
        faults = {element: node for element in self.failed(bag) if (node := run.nodes.moves(view.stage, element, job))}
        possible = array.elements - never
        again, failed = (
            self.again(bag, array.only(possible), may_retry=may_retry, excused=faults) if possible else (NONE, [])
        )
        if again and (failed or view.resubmissions < MAX_ROUNDS):
            run.ask_again(job)
            learned = run.try_again(name, failed, end_s) if failed else ""
            stage = replace(run.stages[name].stage, array=array.only(again))
            run.stages.put(name, replace(run.stages[name], stage=stage))
            yield run.retrying([name], _why_again(again, failed, faults) + learned, end_s, job.status.job_id)
        else:
            waited = f"; {short(never)} needed those of another array, which did not complete" if never else ""
            yield from run.fail([name], f"stage {name!r}: {self.why(bag, array)}{waited}", end_s)

    # ------------------------------------------------------------------ elements that depend on other arrays

    def has_released(self, run: RunCourse, stages: Mapping[str, StageView], stage: Stage, before: str) -> bool:
        """Whether some of a stage's elements may run: their counterparts have completed, or may still complete."""
        if stage.array is None:
            return False
        if stages[before].phase.is_settled:
            return bool(stage.array.elements - self._never(run, stages, stage.name))
        return bool(self._released(run, stages, stage.name, stage.array.elements))

    def _released(self, run: RunCourse, stages: Mapping[str, StageView], stage: str, elements: Elements) -> Elements:
        """Return those of a stage's elements whose counterparts in other arrays have completed."""
        for before in run.workflow.stages[stage].after_matching:
            if stages[before].phase is not Phase.DONE:
                elements &= self.completed_of(run.post(before))
        return elements

    def _never(self, run: RunCourse, stages: Mapping[str, StageView], stage: str) -> Elements:
        """Return those of a stage's elements whose counterparts will never complete."""
        array, never = stages[stage].stage.array, NONE
        for before in run.workflow.stages[stage].after_matching:
            if array is not None and stages[before].phase.is_settled and stages[before].phase is not Phase.DONE:
                never |= array.elements - self.completed_of(run.post(before))
        return never

    def has_unknown_end(self, run: RunCourse, stage: Stage) -> bool:
        """Whether elements still wait for their counterparts, so that the stage's last job is unknown."""
        if stage.array is None or stage.name not in run.workflow.by_element:
            return False
        left = self.unasked(run.token_of([stage.name]), stage.array)
        return bool(left - self._released(run, run.stages, stage.name, left) - self._never(run, run.stages, stage.name))

    def settle(self, run: RunCourse, at_s: float) -> Iterator[Record]:
        """Decide what happens to stages that waited for counterparts which will never complete."""
        for name in run.workflow.by_element:
            lead = run.jobs.get(run.stages[name].job_id or "")
            if lead is None or run.stages[name].phase.is_settled or self.live(lead.round):
                continue
            if run.outcome is None and self.parts(lead.round) and self._never(run, run.stages, name):
                yield from self.left(run, lead, at_s)

    # ------------------------------------------------------------------ parts

    def parts(self, number: str) -> list[Job]:
        """Return the accepted parts of a round."""
        return self.jobs.get(number, [])

    def unasked(self, number: str, array: Array) -> Elements:
        """Return the elements of a round that are in no part yet."""
        asked = {n for job in self.parts(number) if job.spec.array is not None for n in job.spec.array.elements}
        return Elements.of(n for n in array.elements if n not in asked) if asked else array.elements

    def _next_part(self, run: RunCourse, stage: str) -> Array | None:
        """Return the elements of the next part of a stage's round, with their numbering."""
        if (array := run.stages[stage].stage.array) is None:
            return None
        site, unasked = run.capabilities, self.unasked(run.token_of([stage]), array)
        left = self._released(run, run.stages, stage, unasked)
        limits = [self.sizes.get(stage), site.max_array_size, site.max_queued]
        part = array.only(left.take(max(min((size for size in limits if size is not None), default=len(left)), 1)))
        is_beyond = site.max_array_size is not None and part.elements.last >= site.max_array_size
        return replace(part, is_compact=True) if is_beyond or stage in self.compact else part

    def wants_fewer(self, planned: PlannedJob, spec: JobSpec) -> bool:
        """Whether to submit smaller parts, because the batch system did not accept one.

        Other parts that are queued or running may be the cause: the part then waits for them instead.
        """
        if (array := spec.array) is None:
            return False
        stage, is_first = planned.stages[0], not self.live(round_of(spec))
        is_to_be_compact = stage in self.compact and not array.is_compact
        return self.sizes.get(stage, len(array.elements)) < len(array.elements) and (is_first or is_to_be_compact)

    def missing(self, run: RunCourse, lead: Job, now_s: float) -> Iterator[PlannedJob]:
        """Plan the next part of a round, if some elements are in no part."""
        name = lead.planned.stages[0]
        array = run.stages[name].stage.array
        is_leaving = lead.giving_up and not lead.status.state.is_final
        if array is None or is_leaving:
            return
        unasked, parts = self.unasked(lead.round, array), self.parts(lead.round)
        if released := self._released(run, run.stages, name, unasked):
            further = 1 + max((part.planned.mate for part in parts), default=0)
            more = self.another(run, lead, further, "more elements of its array", now_s)
            if unasked - released - self._never(run, run.stages, name):
                latest_s = max((part.planned.submit_s for part in parts), default=-math.inf)
                more = replace(more, submit_s=max(now_s, latest_s + _GATHER_S))
            yield more

    # ------------------------------------------------------------------ failed elements

    def open(self, bag: str, array: Array) -> Elements:
        """Return all uncompleted elements of a stage."""
        return array.all - self.completed_of(bag)

    def again(
        self, bag: str, array: Array, *, may_retry: bool, excused: Collection[ElementEnd] = ()
    ) -> tuple[Elements, list[ElementEnd]]:
        """Return which elements of a round to submit again, and how the failed ones among them ended.

        `excused`: ends that do not count as failures.
        """
        let_off = {number for end in excused for number in end.elements}
        failures = {number: end for number, end in self.failures.get(bag, {}).items() if number not in let_off}
        left = array.elements - self.completed_of(bag)
        retried = {n: end for n in left if may_retry and (end := failures.get(n)) is not None and _may_retry(end)}
        unrun = [n for n in left if n not in failures]
        return Elements.of((*unrun, *retried)), _grouped(retried)

    def failed(self, bag: str) -> list[ElementEnd]:
        """Return how the uncompleted elements last ended, in groups of equal ends."""
        return _grouped(self.failures.get(bag, {}))

    def why(self, bag: str, array: Array) -> str:
        """Describe how the uncompleted elements ended."""
        left = self.open(bag, array)
        known = {n: end for n, end in self.failures.get(bag, {}).items() if n in left}
        how = how_they_ended(_grouped(known)) or short(left)
        return f"{len(left)} of {len(array.all)} elements did not complete: {how}"


def _why_again(again: Elements, failed: Collection[ElementEnd], faults: Mapping[ElementEnd, str]) -> str:
    """Return why elements are submitted again: they failed, are moved to another node, or were not run."""
    if failed:
        count = sum(len(part.elements) for part in failed)
        return f"{'element' if count == 1 else 'elements'} {how_they_ended(failed)}"
    if faults:
        return moved(f"elements {how_they_ended(faults)}", *faults.values())
    return f"{len(again)} {'element was' if len(again) == 1 else 'elements were'} not run"


def _ran_nothing(end: ElementEnd) -> bool:
    """Whether elements ended without running anything: they are submitted again, which is no failure."""
    return end.reason in _UNCOUNTED or (end.state is JobState.FAILED and outcome_of(end) is JobOutcome.GAVE_BACK)


def _may_retry(end: ElementEnd) -> bool:
    """Whether elements that ended in this way may be retried: they were not cancelled, and might end otherwise."""
    if end.state is JobState.CANCELLED:
        return False
    return not (end.state is JobState.FAILED and would_end_so_again(end))


def _grouped(ends: Mapping[int, ElementEnd]) -> list[ElementEnd]:
    """Group elements that ended in the same way."""
    found: dict[ElementEnd, list[int]] = {}
    for number, end in ends.items():
        found.setdefault(replace(end, elements=NONE), []).append(number)
    return [replace(end, elements=Elements.of(numbers)) for end, numbers in found.items()]
