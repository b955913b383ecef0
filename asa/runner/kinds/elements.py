"""Elements of arrays: which are submitted together, and what became of each.

A stage's elements are submitted in rounds: a new round begins each time that the stage is submitted again. A round has
as many jobs, its *parts*, as the batch system's limits require. No element is in two parts of a round, and only
elements that did not complete are submitted again. If each element depends only on the one with the same number in
another array, a part has those whose counterparts have completed. The round then goes on until that array has ended.
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
"""For how long those are gathered that may run as their counterparts complete, from one submission to the next."""
_UNCOUNTED = frozenset({DUPLICATE, NUMBER_LOST})  # reasons of elements that ran nothing


@dataclass(slots=True)
class ElementUnits(RoundUnits):
    """Elements of a run's arrays, and what became of them; an array is named by the token of its completion marker."""

    done: dict[str, Elements] = field(default_factory=dict)  # that completed
    failures: dict[str, dict[int, ElementEnd]] = field(default_factory=dict)  # how elements ended last that did not
    sizes: dict[str, int] = field(default_factory=dict)  # elements that the batch system takes at a time, by stage
    compact: set[str] = field(default_factory=set)  # stages whose elements are to be numbered from 0 on

    def asks(self, run: RunCourse, planned: PlannedJob) -> dict[str, Any]:
        """Return the elements of a part."""
        return RoundUnits.asks(self, run, planned) | {"array": self._next_part(run, planned.stages[0])}

    def waits_for(self, run: RunCourse, planned: PlannedJob, before: list[str]) -> list[str]:
        """Name the parts, too, that are to have ended before the next one begins, where few may run at once."""
        array = run.stages[planned.stages[0]].stage.array
        own = self.live(run.token_of(planned.stages)) if array is not None and array.at_once else []
        return before + [job.status.job_id for job in own]

    def accepted(self, run: RunCourse, job: Job) -> None:
        """Note a part; the next one may be larger."""
        RoundUnits.accepted(self, run, job)
        if (stage := job.planned.stages[0]) in self.sizes and job.spec.array is not None:
            self.sizes[stage] = 2 * len(job.spec.array.elements)

    def recorded(self, job: Job) -> dict[str, Any]:
        """Say of which elements a part is."""
        return RoundUnits.recorded(self, job) | {"array": str(job.spec.array)}

    def ran_s(self, job: Job) -> float | None:
        """Return for how long elements held their cores."""
        reported = job.status.elements
        return reported.ran_s if reported is not None else 0.0

    def fewer(
        self, planned: PlannedJob, spec: JobSpec, error: BackendError, at_s: float
    ) -> tuple[Narrowed, str] | None:
        """Ask for half as many elements, or number them from 0 on, where a part is too large."""
        is_refused = is_no_array(error)
        if spec.array is None or (isinstance(error, SubmitRejectedError) and not is_refused):
            return None
        count = len(spec.array.elements)
        if count == 1 and (spec.array.is_compact or not is_refused):
            return None
        fewer = Narrowed(planned.stages[0], max(count // 2, 1), error.message, at_s, is_compact=is_refused)
        return fewer, f"{count} elements are too many at a time"

    def narrowed(self, entry: Narrowed) -> None:
        """Note how many elements to ask for at a time, as more were refused, or ones of such numbers."""
        self.sizes[entry.stage] = entry.size
        if entry.is_compact:
            self.compact.add(entry.stage)

    def heard(self, run: RunCourse, job: Job, *, is_anew: bool) -> None:
        """Take in what a part's elements did."""
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
        """Forget how elements failed, as they are all to be tried again."""
        for name in run.workflow.arrays:
            self.failures.pop(run.post(name), None)

    def left_to_run(self, run: RunCourse, stage: Stage) -> Stage:
        """Ask for those elements alone that have not completed."""
        assert stage.array is not None
        left = self.open(run.post(stage.name), stage.array)
        return replace(stage, array=stage.array.only(left)) if left else stage

    def as_seen(self, run: RunCourse, job: Job, status: JobStatus) -> JobStatus:  # noqa: ARG002
        """Take what the batch system says of a part, which knows of its elements."""
        return status

    def give_back(self, run: RunCourse, given_back: set[str]) -> bool:
        """Post what arrays have completed whose last elements did not see each other's end."""
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
        """Give the elements of an array that have completed."""
        return self.done.get(bag, NONE)

    def left(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Have the next part asked for; after the last one, those elements again that did not complete."""
        name = job.planned.stages[0]
        view, bag = run.stages[name], job.spec.bag
        run.may_have_lost = True
        if (array := view.stage.array) is None or self.hand_over(run, job):
            return
        never = self._never(run, run.stages, name)
        can_go_on = not job.giving_up or not self._released(run, run.stages, name, self.open(bag, array))
        if self.unasked(job.round, array) - never and can_go_on and run.outcome is None:
            return  # the next part is to be asked for
        parts = [one.status for one in self.parts(job.round)]
        end_s = max((one.end_s for one in parts if one.end_s is not None), default=job.status.submit_s)
        view = replace(view, job_id=job.status.job_id)
        run.stages.put(name, view)
        if not self.open(bag, array):
            yield from run.stages_done(job, end_s if view.started_s is None else view.started_s, end_s)
            return
        if run.outcome is not None:
            return
        may_retry = view.attempts < view.stage.retries
        faults = {one: node for one in self.failed(bag) if (node := run.nodes.moves(view.stage, one, job))}
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

    # ------------------------------------------------------------------ elements that need those of other arrays

    def has_released(self, run: RunCourse, stages: Mapping[str, StageView], stage: Stage, before: str) -> bool:
        """Whether some of a stage's elements may run, as the same ones of others have completed; or may yet."""
        if stage.array is None:
            return False
        if stages[before].phase.is_settled:
            return bool(stage.array.elements - self._never(run, stages, stage.name))
        return bool(self._released(run, stages, stage.name, stage.array.elements))

    def _released(self, run: RunCourse, stages: Mapping[str, StageView], stage: str, elements: Elements) -> Elements:
        """Give those of a stage's elements whose counterparts in other arrays have completed."""
        for before in run.workflow.stages[stage].after_matching:
            if stages[before].phase is not Phase.DONE:
                elements &= self.completed_of(run.post(before))
        return elements

    def _never(self, run: RunCourse, stages: Mapping[str, StageView], stage: str) -> Elements:
        """Give those of a stage's elements whose counterparts will not complete any more."""
        array, never = stages[stage].stage.array, NONE
        for before in run.workflow.stages[stage].after_matching:
            if array is not None and stages[before].phase.is_settled and stages[before].phase is not Phase.DONE:
                never |= array.elements - self.completed_of(run.post(before))
        return never

    def has_unknown_end(self, run: RunCourse, stage: Stage) -> bool:
        """Whether it has elements that wait for their counterparts: it is not known which of its jobs is the last."""
        if stage.array is None or stage.name not in run.workflow.by_element:
            return False
        left = self.unasked(run.token_of([stage.name]), stage.array)
        return bool(left - self._released(run, run.stages, stage.name, left) - self._never(run, run.stages, stage.name))

    def settle(self, run: RunCourse, at_s: float) -> Iterator[Record]:
        """Decide what becomes of stages that waited for more elements of others, of which none will complete now."""
        for name in run.workflow.by_element:
            lead = run.jobs.get(run.stages[name].job_id or "")
            if lead is None or run.stages[name].phase.is_settled or self.live(lead.round):
                continue
            if run.outcome is None and self.parts(lead.round) and self._never(run, run.stages, name):
                yield from self.left(run, lead, at_s)

    # ------------------------------------------------------------------ parts

    def parts(self, number: str) -> list[Job]:
        """Give the parts of a round that were accepted."""
        return self.jobs.get(number, [])

    def unasked(self, number: str, array: Array) -> Elements:
        """Give the elements of a round that are in no part yet."""
        asked = {n for job in self.parts(number) if job.spec.array is not None for n in job.spec.array.elements}
        return Elements.of(n for n in array.elements if n not in asked) if asked else array.elements

    def _next_part(self, run: RunCourse, stage: str) -> Array | None:
        """Give what the next part of a stage's round asks for."""
        if (array := run.stages[stage].stage.array) is None:
            return None
        site, unasked = run.capabilities, self.unasked(run.token_of([stage]), array)
        left = self._released(run, run.stages, stage, unasked)
        limits = [self.sizes.get(stage), site.max_array_size, site.max_queued]
        part = array.only(left.take(max(min((size for size in limits if size is not None), default=len(left)), 1)))
        is_beyond = site.max_array_size is not None and part.elements.last >= site.max_array_size
        return replace(part, is_compact=True) if is_beyond or stage in self.compact else part

    def wants_fewer(self, planned: PlannedJob, spec: JobSpec) -> bool:
        """Whether to submit smaller parts, since one was not accepted.

        Not while other parts of the round are queued or running: they may be the cause, and so are waited for.
        """
        if (array := spec.array) is None:
            return False
        stage, is_first = planned.stages[0], not self.live(round_of(spec))
        is_to_be_compact = stage in self.compact and not array.is_compact
        return self.sizes.get(stage, len(array.elements)) < len(array.elements) and (is_first or is_to_be_compact)

    def missing(self, run: RunCourse, lead: Job, now_s: float) -> Iterator[PlannedJob]:
        """Plan the next part of a round, unless all its elements are asked for."""
        name = lead.planned.stages[0]
        array = run.stages[name].stage.array
        is_leaving = lead.giving_up and not lead.status.state.is_final
        if array is None or is_leaving:
            return
        unasked, parts = self.unasked(lead.round, array), self.parts(lead.round)
        if released := self._released(run, run.stages, name, unasked):
            further = 1 + max((one.planned.mate for one in parts), default=0)
            more = self.another(run, lead, further, "more elements of its array", now_s)
            if unasked - released - self._never(run, run.stages, name):
                latest_s = max((one.planned.submit_s for one in parts), default=-math.inf)
                more = replace(more, submit_s=max(now_s, latest_s + _GATHER_S))
            yield more

    # ------------------------------------------------------------------ what is to be done about those that failed

    def open(self, bag: str, array: Array) -> Elements:
        """Give all elements of a stage that have not completed."""
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
        """Give how elements ended last that have not completed, put together by how."""
        return _grouped(self.failures.get(bag, {}))

    def why(self, bag: str, array: Array) -> str:
        """Say how those ended that have not completed."""
        left = self.open(bag, array)
        known = {n: end for n, end in self.failures.get(bag, {}).items() if n in left}
        how = how_they_ended(_grouped(known)) or short(left)
        return f"{len(left)} of {len(array.all)} elements did not complete: {how}"


def _why_again(again: Elements, failed: Collection[ElementEnd], faults: Mapping[ElementEnd, str]) -> str:
    """Say why elements are asked for again: those that failed, or were moved, or the rest."""
    if failed:
        count = sum(len(one.elements) for one in failed)
        return f"{'element' if count == 1 else 'elements'} {how_they_ended(failed)}"
    if faults:
        return moved(f"elements {how_they_ended(faults)}", *faults.values())
    return f"{len(again)} {'element was' if len(again) == 1 else 'elements were'} not run"


def _ran_nothing(end: ElementEnd) -> bool:
    """Whether elements ended in which nothing of theirs ran: they are asked for again, and that is no failure."""
    return end.reason in _UNCOUNTED or (end.state is JobState.FAILED and outcome_of(end) is JobOutcome.GAVE_BACK)


def _may_retry(end: ElementEnd) -> bool:
    """Whether elements that ended so may be tried again: not if they were cancelled, or would end so again."""
    if end.state is JobState.CANCELLED:
        return False
    return not (end.state is JobState.FAILED and would_end_so_again(end))


def _grouped(ends: Mapping[int, ElementEnd]) -> list[ElementEnd]:
    """Put elements together that ended alike."""
    found: dict[ElementEnd, list[int]] = {}
    for number, end in ends.items():
        found.setdefault(replace(end, elements=NONE), []).append(number)
    return [replace(end, elements=Elements.of(numbers)) for end, numbers in found.items()]
