"""The facility made of the facilities of several clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from asa.backend import (
    Advice,
    Advisor,
    AmongOthers,
    Backend,
    Examinable,
    Examination,
    Facility,
    PastRun,
    RemembersRuns,
    Troubleshooting,
)
from asa.errors import InputError, UnavailableError

from .abilities import abilities_of
from .away import AbsentCluster, keep, kept
from .backend import Member, SeveralBackends, cluster_in

if TYPE_CHECKING:
    from asa.history import JobHistory

_OF_OTHERS = "Other clusters"  # a finding that advises what this site is
FOLDER = "clusters"
"""Folder of a run in which each cluster has its own."""


class SeveralClusters:
    """A facility of several clusters.

    `members`: the facility of each, by its name; the first has the clock, and takes what names no cluster.
    `moves_s`: see `asa.backend.Capabilities`.
    Raises `InputError`: one cannot be among several.
    """

    def __init__(self, members: Mapping[str, Facility], *, moves_s: float = 0.0) -> None:
        self._members: dict[str, AmongOthers] = {}
        for name, facility in members.items():
            if not isinstance(facility, AmongOthers):
                raise InputError(
                    "cannot be one of several clusters of a run",
                    where=f"cluster {name!r}",
                    hint="Only Slurm can, by its commands or its REST API.",
                )
            self._members[name] = facility
        self._facilities, self._moves_s = dict(members), moves_s

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user, each with its cluster."""
        return [f"{name}: {note}" for name, facility in self._facilities.items() for note in facility.notes]

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] = time.sleep) -> SeveralBackends:
        """Connect one run to each cluster; see `asa.backend.Facility.connect`."""
        members: dict[str, Member] = {}
        try:
            for name in self._members:
                members[name] = Member(name, self._connected(name, folder), folder=folder / FOLDER / name)
            _check_systems({name: member.backend.capabilities.system for name, member in members.items()})
            return SeveralBackends(members, sleep, lambda every: abilities_of(every, moves_s=self._moves_s))
        except BaseException:
            for member in members.values():
                member.close()
            raise

    def _connected(self, name: str, folder: Path) -> Backend:
        """Connect to one of the clusters, or stand for it, if it was reached before and cannot be now."""
        own = folder / FOLDER / name

        def connect() -> Backend:
            backend = self._members[name].connect_among_others(folder, own, sleep=lambda _: True)
            keep(own, backend.capabilities)
            return backend

        try:
            return connect()
        except UnavailableError as error:
            if (could := kept(own)) is None:
                raise
            return AbsentCluster(could, error, connect)

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed."""
        first = next(iter(self._facilities.values()))
        return first.advice(reason) if isinstance(first, Advisor) else Advice(reason)

    def remedy(self, trouble: str) -> str:
        """Return what a user can do about a trouble, which names its cluster."""
        name, own = cluster_in(trouble)
        if name not in self._facilities:
            return ""
        facility = self._facilities[name]
        return facility.remedy(own) if isinstance(facility, Troubleshooting) else ""

    def examine(self, *, probe: bool) -> Examination:
        """Examine each cluster; what is found belongs into their own site files. See `asa.backend.Examinable`."""
        each = {name: f.examine(probe=probe) for name, f in self._facilities.items() if isinstance(f, Examinable)}
        return Examination(
            [
                replace(one, topic=f"{name}: {one.topic}")
                for name, found in each.items()
                for one in found.findings
                if one.topic != _OF_OTHERS
            ]
        )

    def history(self, since_s: float) -> JobHistory:  # noqa: ARG002 - the port's shape
        """Refuse: a history is that of one queue."""
        names = ", ".join(self._facilities)
        hint = "Learn each by itself: asa learn --site NAME, or asa learn --option cluster=NAME."
        raise InputError(f"are several ({names}), and each has a queue of its own", where="clusters", hint=hint)

    def past_runs(self, names: Collection[str], since_s: float) -> Sequence[PastRun]:
        """Read this user's past jobs of the given names on all clusters; see `asa.backend.RemembersRuns`."""
        each = [f.past_runs(names, since_s) for f in self._facilities.values() if isinstance(f, RemembersRuns)]
        return [*chain.from_iterable(each)]


def _check_systems(systems: Mapping[str, str]) -> None:
    """Refuse clusters of one name, whose waits could not be told apart."""
    for name, system in systems.items():
        if twins := [other for other, of_other in systems.items() if of_other == system and other != name]:
            hint = f"Set `system` for each, as in a table [cluster.{name}]: waits are learned under that name."
            raise InputError(f"{name} and {twins[0]} are both called {system!r}", where="clusters", hint=hint)
