"""Why a job is not planned earlier, the question of Section 2: which constraint binds, what lacks, and who holds it.

Each constraint in turn is taken away on a copy of the plan, and the job's place is looked for again; those without
which it would start sooner bind. Of a moment at which it "would fit in" it is said what lacks first, from which second
on, and which jobs hold it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from asa.errors import InputError, near
from asa.units import format_duration

from .cluster import Ask, Cluster, TooMuchError
from .jobs import Job, Phase
from .node_kernel import SCATTER
from .plan import Plan
from .requests import Arrangement, Kind, Place, Request, Size, iso
from .rusv import RUSV
from .rusv_kernel import BEGIN
from .system import Reserve, System

__all__ = ["Constraint", "Holder", "Lack", "Limit", "Moment", "Why", "amount", "clock", "names", "why"]

_IN_1973_S = 100_000_000  # who counts from the beginning of his plan does not come so far
_FEW = 3
_DAY_S = 86_400


class Limit(StrEnum):
    """What kind of thing can keep a job from starting."""

    START = "start"
    DEADLINE = "deadline"
    PAST = "past"
    CONSUMER = "consumer"
    JOBS = "jobs"
    CHUNKS = "chunks"
    PLACE = "place"
    PROPERTY = "property"
    RESERVE = "reserve"
    ADMISSION = "admission"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Constraint:
    """Something that a job's start depends on.

    Parameters
    ----------
    limit, of
        What it is, and of what: a resource, a property.
    words
        The same for people.
    start_s
        When the job would start without it, if that is sooner.
    """

    limit: Limit
    of: str
    words: str
    start_s: int | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that has what another one lacks.

    Parameters
    ----------
    job, user
        Its name, and whose it is.
    items
        How much of it.
    until_s
        How long.
    """

    job: str
    user: str
    items: int
    until_s: int


@dataclass(frozen=True, slots=True)
class Lack:
    """What a job would not have, were it to start at a moment.

    Parameters
    ----------
    limit, of
        What it runs into, and of what.
    at_s
        The first second at which it lacks.
    needed, free
        How much it needs then, and how much there would be; of chunks, how many and how many have room.
    holders
        Who has it, the largest first; of chunks with the number of nodes on which they are in the way.
    words
        The same for people.
    """

    limit: Limit
    of: str
    at_s: int
    words: str
    needed: int = 0
    free: int = 0
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """What would be if a job started then.

    Parameters
    ----------
    at_s
        When.
    lacks
        What it would lack, the first first; nothing if it would fit in.
    """

    at_s: int
    lacks: tuple[Lack, ...]


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job is not planned earlier.

    Parameters
    ----------
    job
        The job.
    now_s, since_s
        The time, and the earliest at which it could have started.
    free_s
        When it could start as things are: sooner than planned if something was freed after it was planned.
    never
        Why it can never have what it asks for, if so.
    constraints
        What its start depends on.
    together
        If none of them alone binds, those that do together.
    moment
        What it would lack at the time asked about.
    nodes
        Where it is, in short.
    """

    job: Job
    now_s: int
    since_s: int
    free_s: int | None
    never: str
    constraints: tuple[Constraint, ...]
    together: tuple[Constraint, ...]
    moment: Moment | None
    nodes: str

    @property
    def binding(self) -> tuple[Constraint, ...]:
        """The constraints without one of which it would start sooner."""
        return tuple(one for one in self.constraints if one.start_s is not None)

    @property
    def is_at_once(self) -> bool:
        """Whether it starts as early as it can."""
        return self.job.start_s is not None and self.job.start_s <= self.since_s

    def told(self) -> list[str]:
        """Say it in words."""
        return [self._stands(), *self._lacks(), *self._binds()]

    def _clock(self, time_s: int) -> str:
        return clock(time_s, self.now_s)

    def _stands(self) -> str:
        job, placement = self.job, self.job.placement
        whose = f" of {_whose(job)}" if job.user or job.group else ""
        if placement is None:
            stands = "was refused" if self.never or job.phase is not Phase.WAITING else "waits without a start"
            return f"{job.id}{whose} {stands}{f': {job.why}' if job.why else ''}."
        stands = {Phase.RUNNING: "runs", Phase.ENDED: "ran"}.get(job.phase, "is planned to run")
        when = f"from {self._clock(placement.start)} to {self._clock(placement.end)}"
        later = f", in {format_duration(placement.start - self.now_s)}" if placement.start > self.now_s else ""
        return f"{job.id}{whose} {stands} {when}{later}, on {self.nodes}."

    def _lacks(self) -> Iterator[str]:
        if self.moment is None:
            return
        at = self._clock(self.moment.at_s)
        for lack in self.moment.lacks:
            yield f"At {at}: {lack.words}."
        if not self.moment.lacks and not self.is_at_once and self.moment.at_s != self.job.start_s:
            yield f"At {at} it would fit in."

    def _binds(self) -> Iterator[str]:
        if self.never:
            yield f"It can never run as it is: {self.never}."
        start_s = self.job.start_s
        if self.is_at_once:
            yield "It starts as early as it can: at once."
        elif self.free_s is not None and (start_s is None or self.free_s < start_s):
            yield f"Nothing keeps it from {self._clock(self.free_s)} any more: the next backfilling moves it there."
        elif self.together:
            yield (
                f"Nothing alone keeps it from starting sooner; without the following together it would start at "
                f"{self._clock(self.together[0].start_s or 0)}: {'; '.join(one.words for one in self.together)}."
            )


def amount(resource: str, items: int, kinds: Mapping[str, Kind]) -> str:
    """Write an amount of a resource.

    Examples
    --------
    >>> from asa.backends.openccs.requests import STANDARD_KINDS
    >>> amount("ncpus", 1, STANDARD_KINDS), amount("mem", 3 << 30, STANDARD_KINDS), amount("gpus", 2, STANDARD_KINDS)
    ('1 core', '3g of mem', '2 gpus')
    """
    if kinds.get(resource) is Kind.SIZE:
        return f"{Size(items)} of {resource}"
    name = "cores" if resource == "ncpus" else resource
    return f"{items:,} {name.removesuffix('s') if items == 1 else name}"
