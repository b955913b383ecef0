"""The order that dependencies put jobs into: from when on a job may start, and which jobs wait for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .dependencies import DependencyKind
from .jobs import UNBEGUN, CcsJob, CcsOutcome, JobPhase
from .rusv import BEGIN


@dataclass(frozen=True, slots=True)
class Readiness:
    """From when on a job may start, by the jobs that it depends on."""

    since_s: int | None = BEGIN  # by the plan; None if a job that it depends on has no start, or can never be as wanted
    why: str = ""  # why it cannot start yet
    is_met: bool = True  # whether all that it depends on has happened
    is_never: bool = False


class DependencyOrder:
    """The elements of arrays, and the dependents of jobs, by name."""

    def __init__(self) -> None:
        self._elements: dict[str, dict[str, None]] = {}
        self._dependents: dict[str, dict[str, None]] = {}

    def fork(self) -> DependencyOrder:
        """Return a copy that goes on by itself."""
        fork = DependencyOrder()
        fork._elements = {name: dict(elements) for name, elements in self._elements.items()}
        fork._dependents = {name: dict(dependents) for name, dependents in self._dependents.items()}
        return fork

    def add(self, job: CcsJob) -> None:
        """Note a job that is new, or depends on others now."""
        if array := _array(job.id):
            self._elements.setdefault(array, {})[job.id] = None
        for dependency in job.request.depend:
            for name in dependency.names:
                self._dependents.setdefault(name, {})[job.id] = None

    def dependents(self, name: str) -> Iterator[str]:
        """Yield the names of jobs that may depend on a job, or on its array."""
        for known in (name, _array(name)):
            yield from self._dependents.get(known, ())

    def named(self, name: str, jobs: Mapping[str, CcsJob]) -> list[CcsJob]:
        """Return the job of a name, or the elements of an array, without those that were forgotten."""
        if name in jobs:
            return [jobs[name]]
        return [jobs[element] for element in self._elements.get(name, ()) if element in jobs]

    def reaches(self, job: CcsJob, name: str, jobs: Mapping[str, CcsJob]) -> bool:
        """Return whether a job depends on another, directly or not."""
        seen: set[str] = set()
        left = [job]
        while left:
            for _, other in self._awaited(left.pop(), jobs):
                if other.id == name:
                    return True
                if other.id not in seen:
                    seen.add(other.id)
                    left.append(other)
        return False

    def followers(self, name: str, jobs: Mapping[str, CcsJob]) -> list[CcsJob]:
        """Return the jobs that cannot start before one has ended, also through others."""
        found: dict[str, CcsJob] = {}
        left = [name]
        while left:
            before = left.pop()
            for other in map(jobs.get, self.dependents(before)):
                if other is None or other.id in found or other.phase not in UNBEGUN:
                    continue
                kinds = {kind for kind, awaited in self._awaited(other, jobs) if awaited.id == before}
                if kinds - {DependencyKind.AFTER} or (kinds and before != name):
                    found[other.id] = other
                    left.append(other.id)
        return list(found.values())

    def _awaited(self, job: CcsJob, jobs: Mapping[str, CcsJob]) -> Iterable[tuple[DependencyKind, CcsJob]]:
        for dependency in job.request.depend:
            for name in dependency.names:
                for other in self.named(name, jobs):
                    yield dependency.kind, other

    def readiness(self, job: CcsJob, jobs: Mapping[str, CcsJob]) -> Readiness:
        """Return from when on a job may start. Jobs that were forgotten have done what was awaited of them."""
        worst = Readiness()
        for kind, other in self._awaited(job, jobs):
            found = _after(kind, other)
            if found.is_never:
                return found
            if not found.is_met:
                is_unknown = worst.since_s is None or found.since_s is None
                since_s = None if is_unknown else max(worst.since_s or BEGIN, found.since_s or BEGIN)
                why = worst.why if worst.why and (worst.since_s is None or since_s is not None) else found.why
                worst = Readiness(since_s, why, is_met=False)
        return worst


def _after(kind: DependencyKind, other: CcsJob) -> Readiness:
    """Return from when on a job may start that depends on another."""
    outcome, placement = other.outcome, other.placement
    if kind is DependencyKind.AFTER:
        if other.phase in {JobPhase.RUNNING, JobPhase.RELEASING}:
            return Readiness()
        wrong, when = {CcsOutcome.CANCELLED}, other.start_s
    else:
        wrong = {DependencyKind.AFTER_OK: {CcsOutcome.FAILED, CcsOutcome.CANCELLED}}.get(kind, set())
        wrong |= {CcsOutcome.COMPLETED} if kind is DependencyKind.AFTER_NOT_OK else set()
        when = placement.end if placement is not None else None
    if outcome in wrong:
        did = "was cancelled" if outcome is CcsOutcome.CANCELLED else f"has {outcome}"
        return Readiness(None, f"it depends on {other.id} by {kind}, which {did}", is_met=False, is_never=True)
    if other.phase is JobPhase.ENDED:
        return Readiness()
    if when is None:
        return Readiness(None, f"it waits for {other.id}, which has no start", is_met=False)
    return Readiness(when, f"it waits for {other.id}", is_met=False)


def _array(name: str) -> str:
    """Return the name of an element's array; of other jobs an empty one."""
    return name.rpartition("[")[0] if name.endswith("]") else ""
