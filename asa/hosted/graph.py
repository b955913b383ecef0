"""The graph of a host's jobs as stages: which stages are new, which are no longer wanted, and what each follows."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from asa.workflow import LONGEST_NAME, Stage

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NUMBER = 12


@dataclass(frozen=True, slots=True)
class HostJob:
    """A job of a host, or a group of jobs that the host runs as one."""

    key: Hashable  # identifies the job even if the host makes a new object for it
    kind: str  # common property of similar jobs, such as their rule
    job: Any  # the host's own object
    before: tuple[Hashable, ...]  # keys of the jobs that it follows and that have not ended
    detail: str = ""  # what tells people this job from others of its kind
    label: str = ""  # what people are told of it
    parts: Mapping[str, str] = field(
        default_factory=dict
    )  # texts that its command will run, alike for its kind, by name


@dataclass(slots=True)
class _MadeStage:
    """The stage of a job."""

    name: str
    before: frozenset[Hashable]
    stage: Stage | None = None
    is_handed_over: bool = False


@dataclass(slots=True)
class Graph:
    """The stages of the host's jobs. A job that comes back changed gets a new stage."""

    # the latest stage of each job that is still wanted
    _known: dict[Hashable, _MadeStage] = field(default_factory=dict)
    _by_name: dict[str, _MadeStage] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)  # names of stages that have completed, failed or been dropped
    _count: int = 0

    def knows(self, keys: Iterable[Hashable]) -> bool:
        """Whether every one of these ready jobs has a stage that can still be handed over."""
        return all((known := self._known.get(key)) is not None and known.name not in self._done for key in keys)

    def read(self, nodes: Iterable[HostJob]) -> tuple[list[tuple[str, HostJob, tuple[str, ...]]], list[str]]:
        """Read all remaining jobs from the host.

        Returns the new jobs in topological order, each with the name of its stage and those that it follows; and the
        names of stages that are no longer wanted.
        """
        there = {node.key: node for node in nodes}
        order = _in_order(there)
        news: list[tuple[str, HostJob, tuple[str, ...]]] = []
        dropped = [stage for key, stage in self._known.items() if key not in there and self._is_left(stage)]
        fresh: set[Hashable] = set()
        for key in order:
            node = there[key]
            before = frozenset(earlier for earlier in node.before if earlier in there)
            known = self._known.get(key)
            if known is not None and known.name not in self._done:
                left = frozenset(earlier for earlier in known.before if earlier in there)
                if known.is_handed_over or (left == before and fresh.isdisjoint(before)):
                    continue
                dropped.append(known)
            fresh.add(key)
            self._known[key] = made = _MadeStage(self._name(node), before)
            self._by_name[made.name] = made
            news.append(
                (made.name, node, tuple(self._known[earlier].name for earlier in node.before if earlier in there))
            )
        for stage in dropped:
            self._done.add(stage.name)
        self._known = {key: stage for key, stage in self._known.items() if key in there or stage.is_handed_over}
        return news, [stage.name for stage in dropped]

    def stage_of(self, key: Hashable) -> str:
        """Return the name of a job's stage."""
        return self._known[key].name

    def note(self, stage: Stage) -> bool:
        """Record the request of a stage; return whether it has changed."""
        known = self._by_name[stage.name]
        before, known.stage = known.stage, stage
        return before != stage

    def handed_over(self, name: str) -> None:
        """Record that a stage was handed over."""
        self._by_name[name].is_handed_over = True

    def after(self, name: str) -> tuple[str, ...]:
        """Return the names of the stages that a stage followed when it was added."""
        stage = self._by_name[name].stage
        return stage.after if stage is not None else ()

    def ended(self, name: str) -> None:
        """Record that a stage has completed, or failed for good."""
        self._done.add(name)

    def _is_left(self, stage: _MadeStage) -> bool:
        return stage.name not in self._done and not stage.is_handed_over

    def _name(self, node: HostJob) -> str:
        """Name a stage ``KIND.DETAIL.NUMBER``; of a long detail the end is kept, which differs more often."""
        self._count += 1
        kind = _UNSAFE.sub("_", node.kind)[: LONGEST_NAME - _LONGEST_NUMBER].lstrip("_-") or "job"
        left = LONGEST_NAME - _LONGEST_NUMBER - len(kind) - 1
        detail = _UNSAFE.sub("_", node.detail)[-left:].strip("_-") if left > 0 else ""
        return ".".join(filter(None, (kind, detail, str(self._count))))


def _in_order(nodes: Mapping[Hashable, HostJob]) -> list[Hashable]:
    """Sort jobs topologically, otherwise in the given order."""
    order: dict[Hashable, None] = {}
    for first in nodes:
        stack = [first]
        while stack:
            key = stack[-1]
            left = (
                []
                if key in order
                else [earlier for earlier in nodes[key].before if earlier in nodes and earlier not in order]
            )
            if left:
                stack += left
            else:
                order.setdefault(key)
                stack.pop()
    return list(order)
