"""Reads which jobs follow those that Toil has issued, from the job store, before Toil issues them.

The leader tells a batch system of a job only once that is ready. But the jobs that follow it are in the job store, with
what they ask for. Not all can be known: jobs that other jobs make when they run, as scatter and nodes of WDL do, are
there only afterwards; what follows such a job is therefore not foretold either.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from toil.bus import get_job_kind
from toil.common import Toil
from toil.jobStores.abstractJobStore import NoSuchJobException
from toil.worker import nextChainable

from asa.hosted.graph import HostJob

_MAKE_NO_JOBS: Final = frozenset({"ResolveIndirect", "CWLGather", "CWLLoopAccumulate", "WDLOutputsJob"})
"""Jobs on the leader that only pass on what others have made."""

_MAX_DEPTH: Final = 200  # of jobs that follow each other; what is beyond is far in the future
_NOT_A_NAME: Final = re.compile(r"_:.*|cwl|wdl")  # an identifier that a tool without a name gets, and ends of files


@dataclass(frozen=True, slots=True)
class Chain:
    """Jobs that one of Toil's workers runs one after the other, as one job of the batch system.

    `jobs`: their descriptions. `end`: the last one's, with all that follows the chain.
    """

    jobs: tuple[Any, ...]
    end: Any

    @property
    def names(self) -> Iterator[list[str]]:
        """The names of its jobs, in parts; those of jobs on the leader, which take no time, are left out."""
        return (_parts_of(job) for job in self.jobs if not job.local or job is self.jobs[0])

    def node(self, waits: Iterable[str] = ()) -> HostJob:
        """Return the job that asa knows; similar ones are those whose names differ in numbers alone."""
        kind = "-".join("_".join(part for part in parts if not part.isdecimal()) or "step" for parts in self.names)
        detail = "-".join(part for part in _parts_of(self.jobs[0]) if part.isdecimal())
        label = "-".join(".".join(parts) for parts in self.names)
        return HostJob(str(self.jobs[0].jobStoreID), kind, self, tuple(waits), detail, label)


@dataclass
class Ahead:
    """The jobs that Toil, with this configuration, has issued or will issue, as far as its job store tells."""

    config: Any
    _roots: dict[str, Any] = field(default_factory=dict)  # issued jobs, and ended ones that others follow
    _read: dict[str, Any] = field(default_factory=dict)  # descriptions of jobs that are not issued yet
    _before: dict[str, set[str]] = field(default_factory=dict)  # by job: those that it directly follows, as far as seen
    _chains: dict[str, Chain] = field(default_factory=dict)
    # of one walk, by job: the jobs of the batch system that it waits for; and those jobs themselves
    _waits: dict[str, set[str]] = field(default_factory=dict)
    _found: dict[str, Chain] = field(default_factory=dict)
    _seen: dict[str, tuple[int, set[str] | None]] = field(default_factory=dict)

    def issued(self, job: Any) -> None:
        """Note that a job was issued."""
        name = str(job.jobStoreID)
        self._roots[name] = job
        self._read.pop(name, None)
        self._chains.pop(name, None)

    def ended(self, name: str) -> None:
        """Note that a try of an issued job has ended; look what is left of it, and what it has made."""
        self._chains.pop(name, None)
        job = self._load(name)
        if job is None or (job.has_body() and job.remainingTryCount <= 0):
            self._roots.pop(name, None)
        else:
            self._roots[name] = job

    def chain_of(self, job: Any) -> Chain:
        """Return the jobs that Toil would run in the worker of this one, by its own rules."""
        name = str(job.jobStoreID)
        if name not in self._chains:
            jobs, end = [job], job
            while not self.config.disableChaining and not _may_make_jobs(jobs[-1]):
                end = copy.deepcopy(end)
                end.detach_body()
                is_there = all(self._left(str(other)) for other in end.nextSuccessors() or ())
                if not is_there or (following := nextChainable(end, self._store, self.config)) is None:
                    break
                jobs.append(copy.copy(following))
                following.replace(end)
                end = following
            self._chains[name] = Chain(tuple(jobs), end)
        return self._chains[name]

    def nodes(self) -> list[HostJob]:
        """Return the jobs that are issued, and those that are to follow them, with what each waits for."""
        for name, job in list(self._roots.items()):
            if not job.has_body() and not any(self._left(other) for other in job.allSuccessors()):
                del self._roots[name]
        self._waits, self._found, size = {}, {}, -1
        # a job that follows several is reached from each: once all are known, what it brings is walked, too
        while size < (size := sum(map(len, (*self._waits.values(), *self._before.values(), self._found)))):
            self._seen = {}
            for job in self._roots.values():
                self._visit(job, set(), 0)
        return [chain.node(self._waits[name]) for name, chain in self._found.items()]

    def _visit(self, job: Any, waits: set[str], depth: int) -> set[str] | None:
        """Take in a job and what follows it; return the batch system's jobs in that; None if not all can be known."""
        name = str(job.jobStoreID)
        mine = self._waits.setdefault(name, set())
        mine |= waits
        is_known = name in self._roots or len(self._before[name]) >= int(job.predecessorNumber)
        if not is_known or depth > _MAX_DEPTH:
            return None
        if (seen := self._seen.get(name)) is None or seen[0] != len(mine):  # each way to it brings the same
            self._seen[name] = seen = len(mine), self._visit_known(job, name, mine, depth)
        return seen[1]

    def _visit_known(self, job: Any, name: str, mine: set[str], depth: int) -> set[str] | None:
        if not job.has_body():
            return self._visit_next(job, name, set(), depth)
        chain, own = self.chain_of(job), set[str]()
        if not job.local:
            self._found[name] = chain
            own = {name}
        if any(map(_may_make_jobs, chain.jobs)):
            return None
        beyond = self._visit_next(chain.end, name, own or mine, depth)
        return None if beyond is None else own | beyond

    def _visit_next(self, job: Any, name: str, gate: set[str], depth: int) -> set[str] | None:
        """Take in the jobs that follow: children at once, follow-ons once all that children bring about has ended."""
        every = set[str]()
        for phase in reversed(job.successor_phases):
            following = [left for other in phase if (left := self._left(str(other))) is not None]
            for one in following:
                self._before.setdefault(str(one.jobStoreID), set()).add(name)
            brought = [self._visit(one, gate, depth + 1) for one in following]
            every.update(*(one for one in brought if one))
            if None in brought:
                return None
            gate = gate | every
        return every

    def _left(self, name: str) -> Any:
        """Return the description of a job that is not gone; else None."""
        if name not in self._roots and name not in self._read:
            self._read[name] = self._load(name)
        return self._roots[name] if name in self._roots else self._read[name]

    @cached_property
    def _store(self) -> Any:
        return Toil.resumeJobStore(self.config.jobStore)

    def _load(self, name: str) -> Any:
        """Read a job that no worker runs now: reading one that is being written would make Toil discard that.

        A job that is gone, as most are once they have ended, is not waited for.
        """
        try:
            return self._store.load_job(name) if self._store.job_exists(name) else None
        except NoSuchJobException:
            return None


def _may_make_jobs(job: Any) -> bool:
    """Whether a job of the leader makes others when it runs; tools of CWL and tasks of WDL do not."""
    return bool(job.local) and job.jobName not in _MAKE_NO_JOBS


def _parts_of(job: Any) -> list[str]:
    """Return the parts of a job's name; that of the workflow's file, with which all begin, is left out."""
    parts = [part for part in get_job_kind(job.get_names()).split(".") if not _NOT_A_NAME.match(part)]
    return parts[1:] if len(parts) > 1 else parts or ["job"]
