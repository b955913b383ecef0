"""A client's record of a job array: a record for each element, and one for the array as a whole.

Slurm reports elements that have begun one by one, as ``12_4``, and pending ones together, as ``12_[5-9%2]``. An element
has its own record here once it was reported separately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from asa.backends.shell.marks import KeptSubmission, MarksFolder

from asa.backend import ElementEnd, ElementsStatus, JobState, JobStatus
from asa.elements import NONE, Elements, parse_elements
from asa.outcome import JobOutcome

from .absence import NOTHING_ASKED, PRESENT, Absence, Inquiry
from .link import SlurmLink, SlurmRecord
from .states import MAX_NODES, ended_as, reason_of, waits_held
from .tracking import DUPLICATE, VANISHED, TrackedJob

_WORST = (JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED)

_ENDS = ("state", "exit_code", "reason", "outcome", "nodes", "bad_nodes")
"""What is recorded of an element that has ended."""

_How = tuple[JobState, int | None, str, JobOutcome | None, tuple[str, ...], tuple[str, ...]]


@dataclass(slots=True)
class TrackedElement(TrackedJob):
    """An element; it differs from a job in that the claim is its array's."""

    holds: tuple[str, str] = ("", "")  # token and id of the array

    @property
    def number(self) -> str:
        """Its array's number."""
        return self.holds[1]

    def is_duplicate(self, folder: MarksFolder) -> bool:
        """Whether another array has the claim, or no array has it and this array must run nothing more."""
        token, array_id = self.holds
        return bool(token) and folder.holder(token) != array_id


@dataclass(slots=True)
class TrackedArray(TrackedJob):
    """A job array of this client."""

    own: dict[int, TrackedElement] = field(default_factory=dict)  # elements that were reported separately
    numbers: frozenset[int] = frozenset()  # of all its elements
    # Slurm's own numbers of elements, by which they are known as jobs
    raw_ids: dict[int, str] = field(default_factory=dict)
    _is_known: bool = False  # whether Slurm knew some of its elements at the last look
    _queue: TrackedElement | None = None  # the pending elements, as one
    _held: dict[int, str] = field(default_factory=dict)  # why elements were held at the last look
    _spent_s: float = 0.0  # run time of elements before they were requeued
    _starts: dict[int, float] = field(default_factory=dict)  # since when elements run
    _absent: dict[int, Absence] = field(default_factory=dict)  # elements that an earlier client did not see
    # of the elements that an earlier client saw end: their run time in all, and the longest
    _recalled_s: float = 0.0
    _recalled_longest_s: float | None = None

    @classmethod
    def of(cls, kept: KeptSubmission, status: JobStatus, **fields: Any) -> TrackedArray:
        """Begin to track an array, or continue from an earlier client's record."""
        numbers = frozenset(parse_elements(kept.array))
        return cls(kept, status, numbers=numbers, _spent_s=kept.spent_s, _starts=dict(kept.starts), **fields)

    def _take_up(self) -> None:
        """Take over the absences of elements that an earlier client saw."""
        self._absent = _of_elements(self.kept.absent)

    def recall(self, known: JobStatus) -> None:
        """Go on from what an earlier client has seen of its elements, of which Slurm forgets those that have ended."""
        TrackedJob.recall(self, known)
        if (seen := known.elements) is None:
            return
        self._recalled_s, self._recalled_longest_s = max(seen.ran_s - self._spent_s, 0.0), seen.longest_s
        began = {"eligible_s": known.eligible_s, "start_s": known.start_s, "payload_start_s": known.payload_start_s}
        well = ElementEnd(seen.completed, JobState.COMPLETED, 0, outcome=JobOutcome.COMPLETED, nodes=seen.nodes)
        runs = ElementEnd(seen.running, JobState.RUNNING)
        for how in (well, runs, *seen.ended):
            facts: dict[str, Any] = {name: getattr(how, name) for name in _ENDS}
            facts |= {} if how.state is JobState.CANCELLED else began  # it may have been so in the queue
            for number in self.numbers.intersection(how.elements):
                element = self.own[number] = self._made(number)
                element.status = replace(element.status, **facts)
                if how is runs:
                    element.status = replace(element.status, start_s=self._starts.get(number, known.start_s))

    def is_to_be_kept(self) -> bool:
        """Put what the next client cannot learn from Slurm into the record; return whether the record has changed."""
        starts = tuple(sorted((n, s) for n, s in self._starts.items() if n not in self.own or self.own[n].is_live))
        absent = _together({number: element.absence for number, element in self.own.items() if element.is_live})
        was, kept = self.kept, replace(self.kept, spent_s=self._spent_s, starts=starts, absent=absent)
        suspended_s = max(
            (s for element in self.own.values() if (s := element.suspended_s())), default=self.kept.suspended_s
        )
        self.kept = replace(kept, cancelled_s=self.cancelled_s, suspended_s=suspended_s)
        return self.kept != was

    # ------------------------------------------------------------------ news

    def hear_all(
        self, records: Sequence[SlurmRecord], folder: MarksFolder, now_s: float, clock_s: float
    ) -> tuple[bool, set[int]]:
        """Process Slurm's reports on elements; return whether anything changed, and the elements unknown to Slurm.

        Raises `UnavailableError` as `TrackedJob.hear` does.
        """
        waiting, reported, knows_all = set[int](), set[int](), True
        self._is_known = bool(records)
        self._held = {
            n: reason_of(record) for record in records if waits_held(record) for n in self._elements_of(record) or ()
        }
        self.heard_s = clock_s
        for record in records:
            if record.is_array:
                which = self._elements_of(record)
                knows_all &= which is not None
                waiting |= set(which or ())
                self._queue = self._queue or self._made(None)
                self._queue.held_here, self._queue.released_s = self.held_here, self.released_s
                self._queue.hear(replace(record, job_id=self.job_id), folder, now_s, clock_s)
                self.record = record
                continue
            for number in self._elements_of(record) or ():
                reported.add(number)
                self._hear_one(number, record, folder, now_s, clock_s)
                self.record = self.record or record
        if not waiting and knows_all:
            self._queue = None
        for number in waiting & self.own.keys():
            if self.own[number].status.state is JobState.CANCELLED and self.own[number].status.start_s is None:
                del self.own[number]  # the element was not shown for a while, and was taken as cancelled
        live = {number for number, element in self.own.items() if element.is_live}
        missing = live - reported - waiting
        if knows_all:
            missing |= self.numbers - self.own.keys() - waiting
        self._absent = {number: absence for number, absence in self._absent.items() if number in missing}
        return self._become(self._together(now_s)), missing

    def _hear_one(self, number: int, record: SlurmRecord, folder: MarksFolder, now_s: float, clock_s: float) -> None:
        element = self._one(number)
        was = element.status
        if not element.is_live and ended_as(record) is not None and record.restarts <= was.restarts:
            return  # nothing changed, so markers are not read again
        self.raw_ids[number] = record.job_id
        element.hear(replace(record, job_id=element.job_id), folder, now_s, clock_s)
        self._count(number, was, element.status, record)

    def _count(self, number: int, was: JobStatus, status: JobStatus, record: SlurmRecord) -> None:
        """Add an element's run time before a requeue, which Slurm shows as a new submission.

        During the requeue Slurm may show the element as just started, still with its earlier submission time.
        """
        if status.restarts > was.restarts and was.start_s is not None and was.end_s is not None:
            self._spent_s += max(was.end_s - was.start_s, 0.0)
        start_s = self._starts.get(number)
        if start_s is not None and record.submit_s > start_s:
            self._spent_s += record.submit_s - start_s
            start_s = None
        if not status.state.is_final and "COMPLETING" not in record.states:
            start_s = status.start_s
        if start_s is None or status.state.is_final:
            self._starts.pop(number, None)
        else:
            self._starts[number] = start_s

    def miss_all(
        self,
        numbers: Collection[int],
        folder: MarksFolder,
        now_s: float,
        clock_s: float,
        *,
        certain: bool,
        past: Iterable[SlurmRecord] = (),
        inquiry: Inquiry = NOTHING_ASKED,
    ) -> bool:
        """Process that the controller does not show some elements; see `TrackedJob.miss`.

        If pending elements were cancelled one by one, the controller forgets them immediately, while it still shows the
        others.
        """
        recorded = {number: record for record in past for number in self._elements_of(record) or ()}
        if self._is_known:  # the controller shows other elements, so it no longer knows this one
            inquiry = Inquiry(lambda _: True, dict, inquiry.confirm)
        for number in numbers:
            element = self._one(number)
            if not element.is_live:
                continue
            was, record = element.status, recorded.get(number)
            if record is not None:
                self.raw_ids[number] = record.job_id
                record = replace(record, job_id=element.job_id)
            element.miss(folder, now_s, clock_s, certain=certain, past=record, inquiry=inquiry)
            if record is not None and element.status.state.is_final:
                self._count(number, was, element.status, record)
            if self._is_known and element.status.reason == VANISHED and element.status.start_s is None:
                element.status = replace(element.status, state=JobState.CANCELLED, reason="")
        return self._become(self._together(now_s))

    def left(self) -> set[int]:
        """Return the elements that have not ended."""
        return {number for number in self.numbers if number not in self.own or self.own[number].is_live}

    def is_needless(self, folder: MarksFolder) -> bool:  # noqa: ARG002 - as of a job
        """Return False: an array is not requeued as a whole; see `needless`."""
        return False

    def needless(self, folder: MarksFolder) -> list[tuple[int, str]]:
        """Return elements that were requeued although their payloads have completed, with their own ids."""
        return [
            (number, self.raw_ids[number])
            for number, element in self.own.items()
            if number in self.raw_ids and self.raw_ids[number] != self.job_id and element.is_needless(folder)
        ]

    def conclude_one(self, number: int, folder: MarksFolder, now_s: float) -> None:
        """Mark an element as ended like its payload."""
        self.own[number].conclude(folder)
        self._become(self._together(now_s))

    # ------------------------------------------------------------------

    def _elements_of(self, record: SlurmRecord) -> list[int] | None:
        """Return the elements of a record; None if they are not all reported."""
        if record.elements is None:
            return None
        if not self.kept.is_renumbered:
            return [number for number in record.elements if number in self.numbers]
        known = sorted(self.numbers)
        return [known[index] for index in record.elements if index < len(known)]

    def _one(self, number: int) -> TrackedElement:
        if number not in self.own:
            self.own[number] = self._made(number)
        element = self.own[number]
        element.cancelled_s, element.released_s, element.held_here = self.cancelled_s, self.released_s, self.held_here
        return element

    def _made(self, number: int | None) -> TrackedElement:
        base = self.kept.token or f"job.{self.job_id}"
        token = base if number is None else f"{base}/e{number}"
        posts = tuple(name for post in self.kept.posts for name in (f"{post}+/{number}", post))
        suspended_s = self.kept.suspended_s if number in self._starts else None
        kept = replace(self.kept, token=token, array="", absent=(), posts=posts, suspended_s=suspended_s)
        job_id = self.job_id if number is None else f"{self.job_id}_{number}"
        status = JobStatus(job_id, JobState.PENDING, self.kept.submit_s)
        element = TrackedElement(kept, status, heard_s=self.heard_s, holds=(self.kept.token, self.job_id))
        element.absence = PRESENT if number is None else self._absent.pop(number, PRESENT)
        return element

    def _with_held(self, elements: ElementsStatus) -> ElementsStatus:
        """Add elements that somebody other than this client has put on hold."""
        held = NONE if self.held_here else Elements.of(self._held) - elements.completed - elements.failed
        return replace(elements, held=held, held_reason=self._held[next(iter(held))]) if held else elements

    def _together(self, now_s: float) -> JobStatus:
        """Return the state of the whole array."""
        known = {number: element.status for number, element in self.own.items()}
        elements = self._with_held(_elements_status(known, self._spent_s + self._recalled_s, self._recalled_longest_s))
        first = min((s for s in known.values() if s.start_s is not None), key=_start_s, default=None)
        queued = self._queue.status if self._queue is not None else None
        submits = [s.submit_s for s in (*known.values(), *([queued] if queued else ())) if not s.restarts]
        status = replace(self.status, submit_s=min(submits, default=self.status.submit_s), elements=elements)
        if queued is not None:
            status = replace(
                status,
                eligible_s=queued.eligible_s,
                reason=queued.reason,
                expected_start_s=queued.expected_start_s,
                held=status.held or queued.held,
            )
        elif waits := next((s for s in known.values() if s.state is JobState.PENDING), None):
            status = replace(status, eligible_s=waits.eligible_s, reason=waits.reason)
        else:
            status = replace(status, reason="", expected_start_s=None)
        if first is not None:
            begins = (s.payload_start_s for s in known.values() if s.payload_start_s is not None)
            status = replace(
                status,
                state=JobState.RUNNING,
                eligible_s=first.eligible_s,
                start_s=first.start_s if self.status.start_s is None else min(first.start_s or 0, self.status.start_s),
                payload_start_s=min(begins, default=None),
                expected_start_s=None,
                reason="" if elements.running else status.reason,
            )
        elif self.status.start_s is not None:
            status = replace(status, state=JobState.RUNNING)
        if len(known) < len(self.numbers) or any(not s.state.is_final for s in known.values()):
            return status
        return _ended(status, list(known.values()), now_s)


def _elements_status(known: Mapping[int, JobStatus], ran_s: float, longest_s: float | None) -> ElementsStatus:
    """Return the state of elements; `ran_s`, `longest_s`: the times of those whose times are not known any more."""
    of_state: dict[JobState, list[int]] = {}
    ended: dict[_How, list[int]] = {}
    well: dict[str, None] = {}
    for number, status in known.items():
        of_state.setdefault(status.state, []).append(number)
        if status.state.is_final and status.state is not JobState.COMPLETED:
            nodes = status.nodes if status.state is JobState.FAILED else ()
            how = (status.state, status.exit_code, status.reason, status.outcome, nodes, status.bad_nodes)
            ended.setdefault(how, []).append(number)
        elif status.state is JobState.COMPLETED and len(well) < MAX_NODES:
            well |= dict.fromkeys(status.nodes)
        if status.end_s is not None and status.start_s is not None:
            ran_s += max(status.end_s - status.start_s, 0.0)
            if status.state in {JobState.COMPLETED, JobState.TIMEOUT}:
                began_s = status.start_s if status.payload_start_s is None else status.payload_start_s
                longest_s = max(longest_s or 0.0, status.end_s - began_s)
    return ElementsStatus(
        Elements.of(of_state.get(JobState.RUNNING, ())),
        Elements.of(of_state.get(JobState.COMPLETED, ())),
        tuple(ElementEnd(Elements.of(numbers), *how) for how, numbers in sorted(ended.items(), key=_order)),
        ran_s,
        tuple(islice(well, MAX_NODES)),
        longest_s=longest_s,
    )


def _order(item: tuple[_How, list[int]]) -> tuple[int, int]:
    (state, *_), numbers = item
    return _WORST.index(state), min(numbers)


def _ended(status: JobStatus, known: Sequence[JobStatus], now_s: float) -> JobStatus:
    """Return the state of an array all of whose elements have ended."""
    end_s = max((s.end_s for s in known if s.end_s is not None), default=now_s)
    bad = [s for s in known if s.state is not JobState.COMPLETED]
    status = replace(status, end_s=end_s, expected_start_s=None)
    if not bad:
        return replace(status, state=JobState.COMPLETED, exit_code=0, reason="", outcome=JobOutcome.COMPLETED)
    worst = min(bad, key=lambda s: (s.reason != DUPLICATE, _WORST.index(s.state)))
    bad_nodes = tuple(dict.fromkeys(node for s in bad for node in s.bad_nodes))
    return replace(
        status,
        state=worst.state,
        exit_code=worst.exit_code,
        reason=worst.reason,
        outcome=worst.outcome,
        bad_nodes=bad_nodes,
    )


def _start_s(status: JobStatus) -> float:
    return status.start_s if status.start_s is not None else 0.0


def by_array(records: Iterable[SlurmRecord]) -> tuple[list[SlurmRecord], dict[str, list[SlurmRecord]]]:
    """Separate records of jobs from those of elements, which are grouped by array."""
    jobs, arrays = list[SlurmRecord](), dict[str, list[SlurmRecord]]()
    for record in records:
        if record.array_id:
            arrays.setdefault(record.array_id, []).append(record)
        else:
            jobs.append(record)
    return jobs, arrays


def known_of(link: SlurmLink, array_ids: Collection[str]) -> dict[str, list[SlurmRecord]]:
    """Ask the controller for the elements of the given arrays, by array; unknown ones are missing."""
    return _of(array_ids, link.holders(array_ids)) if array_ids else {}


def past_of(link: SlurmLink, array_ids: Collection[str]) -> dict[str, list[SlurmRecord]]:
    """Ask accounting for the elements of the given arrays, the latest of each number, by array."""
    return _of(array_ids, link.past_holders(array_ids)) if array_ids else {}


def _of(array_ids: Collection[str], records: Iterable[SlurmRecord]) -> dict[str, list[SlurmRecord]]:
    return {array_id: elements for array_id, elements in by_array(records)[1].items() if array_id in array_ids}


def has_ended(records: Iterable[SlurmRecord]) -> bool:
    """Whether all records of an array are of elements that have ended."""
    return all(ended_as(record) is not None for record in records)


def _together(absences: Mapping[int, Absence]) -> tuple[tuple[str, int, float], ...]:
    """Return the absences of an array's elements; elements with equal absences are grouped.

    Examples
    --------
    >>> _together({1: Absence(2, 10.0), 2: Absence(2, 10.0), 3: PRESENT})
    (('1-2', 2, 10.0),)
    """
    alike: dict[Absence, list[int]] = {}
    for number, absence in absences.items():
        if absence.looks:
            alike.setdefault(absence, []).append(number)
    return tuple((str(Elements.of(numbers)), *absence) for absence, numbers in sorted(alike.items()))


def _of_elements(absent: Iterable[tuple[str, int, float]]) -> dict[int, Absence]:
    """Return the absences that `_together` wrote, by element.

    Examples
    --------
    >>> _of_elements([("1-2", 2, 10.0)])
    {1: Absence(looks=2, since_s=10.0), 2: Absence(looks=2, since_s=10.0)}
    """
    return {n: Absence(looks, since_s) for which, looks, since_s in absent for n in parse_elements(which)}
