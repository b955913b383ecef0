"""A consumer's limits, and how much of them its jobs use (usdRS)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from .cluster import Placement
from .limits import JOBS, UNLIMITED, Limit
from .rusv import RUSV

_Key = tuple[int, tuple[int, ...]]


@dataclass(slots=True, eq=False)
class Bound:
    """A limit on one resource of one consumer, and the area already used by the consumer's jobs."""

    limit: Limit
    resource: str
    area: int = 0

    def left(self, available: int, lasts_s: int, area: int) -> int | None:
        """Return the items allowed for a request; 0 if the request is too long or large, None without a limit."""
        limit = self.limit
        is_long = limit.duration_s is not None and lasts_s > limit.duration_s
        is_large = limit.area is not None and self.area + area > limit.area
        return 0 if is_long or is_large else limit.items.of(available)


class Account:
    """Limits and usage of a consumer (usdRS)."""

    def __init__(self, who: str, bounds: Mapping[str, tuple[Bound, ...]], sizes: Mapping[str, int]) -> None:
        self.who = who
        self.bounds = bounds
        every = [bound for of_one in bounds.values() for bound in of_one]
        counted = {bound.resource for bound in every if bound.limit.items != UNLIMITED}
        self.used = {name: RUSV(sizes[name]) for name in sizes if name in counted}
        self._areas = [bound for bound in every if bound.limit.area is not None]
        self._has_jobs = bool(self._areas) or JOBS in bounds
        # starts and nodes of the jobs with the same end
        self._jobs: dict[_Key, list[tuple[int, NDArray[np.int64]]]] = {}
        self._ends: list[_Key] = []
        self.jobs = 0

    def fork(self) -> Account:
        """Return a copy that counts for itself."""
        fork = copy.copy(self)
        fork.bounds = {name: tuple(map(copy.copy, bounds)) for name, bounds in self.bounds.items()}
        every = (bound for bounds in fork.bounds.values() for bound in bounds)
        fork._areas = [bound for bound in every if bound.limit.area is not None]
        fork.used = {name: vector.copy() for name, vector in self.used.items()}
        fork._jobs = {key: list(jobs) for key, jobs in self._jobs.items()}
        fork._ends = list(self._ends)
        return fork

    def book(self, placement: Placement) -> None:
        """Count a job, or the extension of one."""
        self._use(placement, 1)
        if self._has_jobs:
            start, needs = placement.start, self._needs(placement)
            self._count(start, placement.end, needs, 1)
            begun = self._taken(start, needs, placement)
            if begun is not None:  # an extended job
                self.jobs -= 1
                start = begun
            self._keep(start, placement.end, needs, placement)

    def _keep(self, start: int, end: int, needs: tuple[int, ...], placement: Placement) -> None:
        key = end, needs
        if key not in self._jobs:
            self._jobs[key] = []
            heappush(self._ends, key)
        self._jobs[key].append((start, placement.nodes))

    def revoke(self, placement: Placement) -> None:
        """Count a job no more, entirely or from a time on."""
        self._use(placement, -1)
        if self._has_jobs:
            needs = self._needs(placement)
            begun = self._taken(placement.end, needs, placement)
            if begun is not None:
                self._count(begun, placement.end, needs, -1)

    def shorten(self, placement: Placement, end: int) -> None:
        """Let a booked job end earlier."""
        self._use(replace(placement, start=end), -1)
        if self._has_jobs:
            needs = self._needs(placement)
            begun = self._taken(placement.end, needs, placement)
            if begun is not None:
                self._count(begun, placement.end, needs, -1)
                self._count(begun, end, needs, 1)
                self._keep(begun, end, needs, placement)

    def _taken(self, end: int, needs: tuple[int, ...], placement: Placement) -> int | None:
        """Remove the job of a placement with this end, and return its begin."""
        jobs = self._jobs.get((end, needs), [])
        place = next((at for at, (_, nodes) in enumerate(jobs) if nodes is placement.nodes), None)
        return None if place is None else jobs.pop(place)[0]

    def _use(self, placement: Placement, sign: int) -> None:
        for name, vector in self.used.items():
            if items := placement.totals.get(name, 0):
                vector.add_within(placement.start, placement.end, sign * items)

    def _needs(self, placement: Placement) -> tuple[int, ...]:
        return tuple(placement.totals.get(bound.resource, 0) for bound in self._areas)

    def _count(self, start: int, end: int, needs: Iterable[int], sign: int) -> None:
        self.jobs += sign
        for bound, items in zip(self._areas, needs, strict=True):
            bound.area += sign * items * bound.limit.seconds(start, end)

    def forget_before(self, now: int) -> None:
        """Discard the past, with the jobs that have ended."""
        for vector in self.used.values():
            vector.forget_before(now)
        while self._ends and self._ends[0][0] <= now:
            key = heappop(self._ends)
            for start, _ in self._jobs.pop(key):
                self._count(start, *key, -1)
