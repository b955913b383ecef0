"""Reads which jobs follow those that Toil has issued, from the job store, before Toil issues them.

The leader tells a batch system of a job only once that is ready. But the jobs that follow it are in the job store, with
what they ask for. Not all can be known: jobs that other jobs make when they run, as scatter and nodes of WDL do, are
there only afterwards; what follows such a job is therefore not foretold either.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
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
    def first(self) -> Any:
        """The job that Toil issues."""
        return self.jobs[0]

    @property
    def kind(self) -> str:
        """What similar chains share: the names of their jobs, without numbers."""
        parts = (_parts_of(job) for job in self.jobs if not job.local or job is self.first)
        return "-".join("_".join(part for part in name if not part.isdecimal()) for name in parts)

    @property
    def detail(self) -> str:
        """What tells a chain from similar ones: the numbers in the name of its first job."""
        return "-".join(part for part in _parts_of(self.first) if part.isdecimal())

    @property
    def label(self) -> str:
        """What a user is to see."""
        return ".".join(_parts_of(self.first))


@dataclass(slots=True)
class Ahead:
    """The jobs that Toil has issued or will issue, as far as its job store tells.

    `config`: Toil's.
    """

    config: Any
    _jobs: Any = None  # the job store
    _roots: dict[str, Any] = field(default_factory=dict)  # issued jobs, and ended ones that others follow
    _read: dict[str, Any] = field(default_factory=dict)  # descriptions of jobs that are not issued yet
    _before: dict[str, set[str]] = field(default_factory=dict)  # by job: those that it directly follows
    _chains: dict[str, Chain] = field(default_factory=dict)

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
        """Return the jobs that Toil would run in the worker of this one, by its own rules, which come first."""
        name = str(job.jobStoreID)
        if name not in self._chains:
            jobs, end = [job], job
            while not self.config.disableChaining and not _may_make_jobs(jobs[-1]):
                end = copy.deepcopy(end)
                end.detach_body()
                if (found := nextChainable(end, self._store(), self.config)) is None:
                    break
                following = copy.copy(found)
                found.replace(end)
                jobs, end = [*jobs, following], found
            self._chains[name] = Chain(tuple(jobs), end)
        return self._chains[name]

    def nodes(self) -> list[HostJob]:
        """Return the jobs that are issued, and those that are to follow them, with what each waits for."""
        return list(_GraphWalk(self).nodes())

    def is_left(self, name: str) -> Any:
        """Return the description of a job that has not run yet; None if it is over, or gone."""
        if name in self._roots:
            return self._roots[name]
        if name not in self._read:
            self._read[name] = self._load(name)
        return self._read[name]

    def roots(self) -> list[Any]:
        """Return the issued jobs, and ended ones that others follow; others are forgotten."""
        for name, job in list(self._roots.items()):
            if not job.has_body() and not any(self.is_left(other) for other in job.allSuccessors()):
                del self._roots[name]
        return list(self._roots.values())

    def follows(self, job: Any, before: str) -> bool:
        """Note that a job directly follows another one; return whether all that it follows is known by now."""
        known = self._before.setdefault(str(job.jobStoreID), set())
        known.add(before)
        return len(known) >= int(job.predecessorNumber)

    def _store(self) -> Any:
        if self._jobs is None:
            self._jobs = Toil.resumeJobStore(self.config.jobStore)
        return self._jobs

    def _load(self, name: str) -> Any:
        """Read a job that no worker runs now: reading one that is being written would make Toil discard that.

        A job that is gone, as most are once they have ended, is not waited for.
        """
        try:
            return self._store().load_job(name) if self._store().job_exists(name) else None
        except NoSuchJobException:
            return None


@dataclass(slots=True)
class _GraphWalk:
    """A walk over all that is known. A job that follows several is reached from each, so it is walked again."""

    ahead: Ahead
    found: dict[str, Chain] = field(default_factory=dict)  # jobs of the batch system
    waits: dict[str, set[str]] = field(default_factory=dict)  # by job: the jobs of the batch system that it waits for
    known: set[str] = field(default_factory=set)  # jobs of which all is known that they follow

    def nodes(self) -> Iterator[HostJob]:
        roots, before = self.ahead.roots(), (-1, -1, -1)
        self.known.update(str(job.jobStoreID) for job in roots)
        while before != (now := (len(self.found), sum(map(len, self.waits.values())), len(self.known))):
            before = now
            for job in roots:
                self._visit(job, set(), 0)
        for name, chain in self.found.items():
            yield HostJob(name, chain.kind, chain, tuple(self.waits[name]), chain.detail)

    def _visit(self, job: Any, waits: set[str], depth: int) -> set[str] | None:
        """Take in a job and what follows it; return the batch system's jobs in that; None if not all can be known."""
        name = str(job.jobStoreID)
        mine = self.waits.setdefault(name, set())
        mine |= waits
        if name not in self.known or depth > _MAX_DEPTH:
            return None
        if not job.has_body():
            return self._visit_next(job, name, set(), depth)
        chain = self.ahead.chain_of(job)
        if job.local:
            gate, own = mine, set[str]()
        else:
            self.found[name] = chain
            gate = own = {name}
        if any(map(_may_make_jobs, chain.jobs)):
            return None
        beyond = self._visit_next(chain.end, str(chain.jobs[-1].jobStoreID), gate, depth)
        return None if beyond is None else own | beyond

    def _visit_next(self, job: Any, name: str, gate: set[str], depth: int) -> set[str] | None:
        """Take in the jobs that follow: children at once, follow-ons once all that children bring about has ended."""
        every = set[str]()
        for phase in reversed(job.successor_phases):
            is_whole = True
            for other in map(str, phase):
                if (following := self.ahead.is_left(other)) is None:
                    continue
                if self.ahead.follows(following, name):
                    self.known.add(other)
                brings = self._visit(following, gate, depth + 1)
                is_whole = is_whole and brings is not None
                every |= brings or set()
            if not is_whole:
                return None
            gate = gate | every
        return every


def _may_make_jobs(job: Any) -> bool:
    """Whether a job of the leader makes others when it runs; tools of CWL and tasks of WDL do not."""
    return bool(job.local) and job.jobName not in _MAKE_NO_JOBS


def _parts_of(job: Any) -> list[str]:
    """Return the parts of a job's name; that of the workflow's file, with which all begin, is left out."""
    parts = [part for part in get_job_kind(job.get_names()).split(".") if not _NOT_A_NAME.match(part)]
    return parts[1:] if len(parts) > 1 else parts or ["job"]
