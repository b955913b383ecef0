"""Splits a workflow into series and parallel pieces, and makes the jobs that they can share.

A *block* is what runs in one allocation: stages that follow each other, or a whole fork, branch by branch. If the site
can take cores back, it gets narrower as its wide stages end. If jobs can grow, it may also begin narrow, and idle until
the cores for its wider stages have joined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import mul

import numpy as np
from numpy.typing import NDArray

from asa.backend import Capabilities
from asa.shapes import Shape
from asa.strategies.growth import MAX_SPARE, NOTICE_S, Growth
from asa.units import core_hours
from asa.waves import Waves, cores_of, is_series, likeness, slots_of, walltime_of, waves_of
from asa.workflow import Workflow

from .molding import Form, Line, WideningJob, lines_of

_GROWTH = Growth()
_SPARE_LEVEL = 0.9  # probability with which the wait for more cores does not exceed the time that a job may idle


@dataclass(frozen=True, slots=True)
class Block:
    """What one job would run, and what it would take."""

    stages: tuple[str, ...]
    cores: int  # its width at the beginning
    walltime_s: float
    run_s: float  # how long it is expected to run
    core_hours: float  # what it is expected to hold while it does; less if it shrinks
    shrinks: bool  # whether it gives back what its stages that are left do not need
    spread: float = 0.0  # how far its run time strays: about the standard deviation of the logarithm
    widths: tuple[int, ...] = ()  # where it grows: its cores during each of its stages
    spare_s: float = 0.0  # the part of its walltime for idling
    # samples of how long it will idle, in order; if that would be too long, until another job has its stages. Its
    # core-hours include what it holds meanwhile.
    late_s: NDArray[np.float64] | None = field(default=None, compare=False)
    shapes: tuple[Shape, ...] = ()  # of its stages, where these may be asked for in several


@dataclass(frozen=True, slots=True)
class Series:
    """Pieces one after the other: each a stage, or the branches of a fork side by side."""

    pieces: tuple[str | tuple[Series, ...], ...]  # names of stages, or tuples of the branches that lie side by side

    @property
    def stages(self) -> tuple[str, ...]:
        """All its stages, in order."""
        return tuple(name for piece in self.pieces for name in _stages(piece))


def _stages(piece: str | tuple[Series, ...]) -> tuple[str, ...]:
    return (piece,) if isinstance(piece, str) else tuple(name for branch in piece for name in branch.stages)


def max_walltimes(site: Capabilities) -> Callable[[str], float]:
    """Return a function for the longest walltime of a partition; an empty name is the default partition."""

    def max_walltime_s(partition: str) -> float:
        limits = site.partitions.get(partition or site.partition)
        return math.inf if limits is None or limits.max_walltime_s is None else limits.max_walltime_s

    return max_walltime_s


class Parts:
    """The pieces of a workflow's stages that are still to be submitted.

    `names`: the stages to plan, with all that follow them; all if not given.
    `shrink_by`: the site takes cores back in multiples of this; 0 if it does not.
    `max_walltime_s`: returns the longest walltime of a partition; an empty name is the default partition.
    `widths`: where jobs can grow, the cores of such a job during each stage, as the site gives and takes them; 0 if it
    cannot.
    `more_s`: returns samples, in order, of the wait for so many cores for so long, for a stage.
    `site`: if given, small stages of a job run side by side on a node, as its nodes allow.
    `forms`: the shapes of each stage, if they are to be chosen. A job whose stages have several does not grow.
    """

    def __init__(
        self,
        workflow: Workflow,
        names: Iterable[str] | None = None,
        *,
        cores_per_node: int = 1,
        shrink_by: int = 0,
        max_walltime_s: Callable[[str], float] = lambda _partition: math.inf,
        widths: Mapping[str, int] | None = None,
        max_cores: float = math.inf,
        more_s: Callable[[str, int, float], NDArray[np.float64]] | None = None,
        forms: Mapping[str, Sequence[Form]] | None = None,
        site: Capabilities | None = None,
    ) -> None:
        self.workflow = workflow
        self.cores_per_node = cores_per_node
        self.shrink_by = shrink_by
        chosen = set(workflow.order if names is None else names)
        self.names = tuple(name for name in workflow.order if name in chosen)
        self._blocks: dict[tuple[str, ...], Block | None] = {}
        stages = [workflow.stages[name] for name in self.names]
        self._site = site
        self._needs = {stage.name: self._paid(stage.cores_on(cores_per_node), stage.partition) for stage in stages}
        self._runs_s = {stage.name: stage.expected_s for stage in stages}
        self._walltimes_s = {stage.name: stage.walltime_s for stage in stages}
        self._spreads_s = {stage.name: stage.run_spread * stage.expected_s for stage in stages}
        self._strays = any(self._spreads_s.values())
        self._max_walltime_s = max_walltime_s
        self._widths = widths or {}
        self._max_cores = max_cores
        self._more_s = more_s
        self._rising: dict[tuple[str, ...], list[tuple[int, Block]]] = {}
        self._partitions = {stage.name: stage.partition for stage in stages}
        self._lines = None if forms is None else lines_of(forms)
        self._grown: dict[tuple[str, ...], list[tuple[int, Block]]] = {}
        self._kinds = {
            s.name: (
                s.partition if forms is None else "",  # else those that they have in common are chosen from
                *likeness(s, site),
            )
            for s in stages
        }
        # what is run elsewhere, retried alone, or outlasts a job
        self._alone = {s.name for s in stages if s.local or s.retries or s.own_jobs}

    @cached_property
    def series(self) -> Series:
        """The pieces as series and parallels."""
        after = {name: {p for p in self.workflow.stages[name].after if p in set(self.names)} for name in self.names}
        return self._in_packs(take_apart(self.names, after))

    def _in_packs(self, series: Series) -> Series:
        """Put branches of one small stage together, as many as run side by side on a node, where there are more."""
        if self._site is None or self._lines is not None:
            return series
        return Series(tuple(p if isinstance(p, str) else self._packs(p, self._site) for p in series.pieces))

    def _packs(self, branches: tuple[Series, ...], site: Capabilities) -> tuple[Series, ...]:
        packs: list[list[str]] = []
        rest: list[Series] = []
        for branch in branches:
            [*names] = branch.stages
            if len(names) > 1:
                rest.append(self._in_packs(branch))
            elif packs and self._is_pack((*packs[-1], *names), site):
                packs[-1] += names
            else:
                packs.append(names)
        if len(packs) + len(rest) == 1:
            return branches
        made = [Series((tuple(Series((name,)) for name in pack) if len(pack) > 1 else pack[0],)) for pack in packs]
        return (*made, *rest)

    def _is_pack(self, names: tuple[str, ...], site: Capabilities) -> bool:
        return self._may_share(names) and len(waves_of([self.workflow.stages[name] for name in names], site)) == 1

    @cached_property
    def depths(self) -> Mapping[str, int]:
        """By stage, how many follow each other before it: what is as deep is in the queue at about the same time."""
        depths: dict[str, int] = {}
        for name in self.names:
            after = (p for p in self.workflow.stages[name].after if p in depths)
            depths[name] = max((depths[p] + 1 for p in after), default=0)
        return depths

    def stretch(self, block: Block) -> tuple[float, int]:
        """Return how much longer a block runs because it serializes stages that could run at the same time.

        Returns seconds, and how many levels of the graph it covers.
        """
        ends: dict[str, float] = {}
        for name in block.stages:
            before = (ends[one] for one in self.workflow.stages[name].after if one in ends)
            ends[name] = max(before, default=0.0) + self._runs_s[name]
        return block.run_s - max(ends.values()), len({self.depths[name] for name in block.stages})

    def in_order(self, piece: str | tuple[Series, ...]) -> tuple[str, ...]:
        """Give the stages of a piece in the workflow's order."""
        return (piece,) if isinstance(piece, str) else tuple(sorted(_stages(piece), key=self.names.index))

    def block(self, stages: tuple[str, ...]) -> Block | None:
        """Make a block of some stages, in the workflow's order; None if no job can be: a local stage among others."""
        if stages not in self._blocks:
            self._blocks[stages] = self._make(stages) if self._may_share(stages) else None
        return self._blocks[stages]

    def growing(self, pieces: Sequence[str | tuple[Series, ...]]) -> Iterable[tuple[int, Block]]:
        """Make the blocks of the first piece, of the first two, and so on, as long as they fit into one job.

        `pieces`: to the end of their series. Each block comes with its number of pieces; several with the same number
        have different shapes.
        """
        if self._lines is None:
            return enumerate(self._in_own_shapes(pieces), start=1)
        key = self.in_order(pieces[0])
        if key not in self._grown:
            self._grown[key] = list(self._in_all_shapes(pieces, self._lines))
        return self._grown[key]

    def blocks(self, stages: tuple[str, ...]) -> list[Block]:
        """Make the blocks of some stages in all shapes that they may have together; none if no job can be."""
        if self._lines is None:
            return [] if (block := self.block(stages)) is None else [block]
        return [block for count, block in self._in_all_shapes(stages, self._lines) if count == len(stages)]

    def _shared(self, pieces: Iterable[str | tuple[Series, ...]]) -> Iterator[tuple[str, ...]]:
        """Give the stages of one piece after the other, as far as they may share a job."""
        first: tuple[str, ...] = ()
        for piece in pieces:
            added = self.in_order(piece)
            if not self._may_share((*first, *added)):
                return
            first = first or added[:1]
            yield added

    def _in_own_shapes(self, pieces: Iterable[str | tuple[Series, ...]]) -> Iterator[Block]:
        stages: tuple[str, ...] = ()
        for added in self._shared(pieces):
            stages += added
            if stages not in self._blocks:
                self._blocks[stages] = self._make(stages)
            if (block := self._blocks[stages]) is None:
                return
            yield block

    def _in_all_shapes(
        self, pieces: Iterable[str | tuple[Series, ...]], lines: Sequence[Line]
    ) -> Iterator[tuple[int, Block]]:
        growing = [WideningJob(line) for line in lines]
        stages: tuple[str, ...] = ()
        for count, added in enumerate(self._shared(pieces), start=1):
            stages += added
            growing = [one for one in growing if all(map(one.add, added))]
            for one in growing:
                # one of no more cores than a narrower line has is there already
                if one.cores == one.line.width and (block := self._grown_to(stages, one)) is not None:
                    yield count, block

    def _grown_to(self, names: tuple[str, ...], one: WideningJob) -> Block | None:
        walltime_s = self.workflow.walltime_of(names, one.walltime_s)
        if len(names) > 1 and not one.run_s <= walltime_s <= self._max_walltime_s(one.line.partition):
            return None
        held, shrinks = self._held(one.cores, one.run_s, one.needs, one.lasts_s)
        hours = 0.0 if self.workflow.stages[names[0]].local else held / 3600
        spread = math.sqrt(one.strays) / one.run_s
        return Block(names, one.cores, walltime_s, one.run_s, hours, shrinks, spread, shapes=one.shapes)

    def rising(self, pieces: tuple[str | tuple[Series, ...], ...]) -> list[tuple[int, Block]]:
        """Make those of `growing` whose job gets more cores as it goes, each with how many pieces it has."""
        if not self._widths or self._more_s is None:
            return []
        key = self.in_order(pieces[0])
        if key not in self._rising:
            self._rising[key] = list(self._risen(pieces, self._more_s))
        return self._rising[key]

    def risen(self, stages: tuple[str, ...]) -> Block | None:
        """Make a block of some stages whose job gets more cores as it goes; None if none can, or needs to."""
        if not self._widths or self._more_s is None:
            return None
        return next((block for count, block in self._risen(stages, self._more_s) if count == len(stages)), None)

    def _risen(
        self,
        pieces: Iterable[str | tuple[Series, ...]],
        more_s: Callable[[str, int, float], NDArray[np.float64]],
    ) -> Iterator[tuple[int, Block]]:
        """Follow a job from stage to stage, and add up its cost.

        Each time that it grows, the cores are asked for their usual wait ahead, as `Growth` does, with the job's
        remaining walltime; here that is taken as its whole walltime so far.
        """
        widths: list[int] = []
        ends_s: list[float] = []
        runs_s = walltime_s = waits_s = held_s = 0.0
        late_s, rises, shrinks = np.zeros(1), 0, False
        for count, block in enumerate(self._in_own_shapes(pieces), start=1):
            for name in block.stages[len(widths) :]:
                width, before = self._widths.get(name, 0), widths[-1] if widths else math.inf
                shrinks |= bool(widths) and width < before
                if not width or (shrinks and not self.shrink_by):
                    return
                walltime_s += self._walltimes_s[name]
                if width > before:
                    cores = width - widths[-1]
                    room = self._max_cores - cores
                    ahead_s = runs_s
                    if max(widths) > room:  # they cannot be asked for while the machine does not hold both
                        ahead_s -= max(end_s for had, end_s in zip(widths, ends_s, strict=True) if had > room)
                    waits = more_s(name, cores, walltime_s)
                    late, early_s = _late_s(waits, ahead_s)
                    max_s = MAX_SPARE * walltime_s
                    stands_s = float(np.minimum(late, max_s).sum()) / len(late)
                    if max(late[0], late[-1]) > max_s:
                        # then another job is asked for, of a queue that is slow now: its wait is a long one, too
                        other = more_s(name, width, self._walltimes_s[name])
                        late = np.where(late > max_s, max_s + other, late)
                    held_s += widths[-1] * stands_s + cores * early_s
                    late_s, rises = late_s + late, rises + 1
                    waits_s += float(waits[int(_SPARE_LEVEL * len(waits))])
                widths.append(width)
                runs_s += self._runs_s[name]
                ends_s.append(runs_s)
                held_s += width * self._runs_s[name]
            if rises:
                spare_s = max(min(waits_s, MAX_SPARE * block.walltime_s), NOTICE_S * rises)
                yield (
                    count,
                    Block(
                        block.stages,
                        widths[0],
                        block.walltime_s + spare_s,
                        block.run_s,
                        held_s / 3600,
                        shrinks,
                        block.spread,
                        tuple(widths),
                        spare_s,
                        late_s,
                    ),
                )

    def _make(self, names: tuple[str, ...]) -> Block | None:
        """Make a block of stages as they are asked for now."""
        needs = list(map(self._needs.__getitem__, names))
        if len(names) == 1:
            stage = self.workflow.stages[names[0]]
            hours = 0.0 if stage.local else core_hours(needs[0], stage.work_s)
            run_s, walltime_s = stage.expected_s, stage.walltime_s
            return Block(names, needs[0], walltime_s, run_s, hours, shrinks=False, spread=stage.run_spread)
        if self._site is not None:
            waves = waves_of([self.workflow.stages[name] for name in names], self._site)
            if not is_series(waves):
                return self._in_waves(names, waves)
        whole = len(names) == len(self.workflow.stages)
        walltime_s = self.workflow.walltime_s if whole else sum(map(self._walltimes_s.__getitem__, names))
        if walltime_s > self._max_walltime_s(self._partitions[names[0]]):
            return None
        lasts = list(map(self._runs_s.__getitem__, names))
        cores, run_s = max(needs), sum(lasts)
        if run_s > walltime_s:
            return None
        held, shrinks = self._held(cores, run_s, needs, lasts)
        spread = math.hypot(*map(self._spreads_s.__getitem__, names)) / run_s if self._strays else 0.0
        return Block(names, cores, walltime_s, run_s, held / 3600, shrinks, spread)

    def _in_waves(self, names: tuple[str, ...], waves: Waves) -> Block | None:
        """Make a block in which some stages run side by side."""
        walltime_s = walltime_of(waves)
        if self.workflow.says_walltime and len(names) == len(self.workflow.stages):
            walltime_s = self.workflow.walltime_s
        lasts = [max(wave, key=lambda stage: self._runs_s[stage.name]).name for wave in waves]
        run_s = sum(map(self._runs_s.__getitem__, lasts))
        if not run_s <= walltime_s <= self._max_walltime_s(self._partitions[names[0]]):
            return None
        cores = self._paid(cores_of(waves, self.cores_per_node), self._partitions[names[0]])
        spread = math.hypot(*map(self._spreads_s.__getitem__, lasts)) / run_s
        return Block(names, cores, walltime_s, run_s, cores * run_s / 3600, shrinks=False, spread=spread)

    def _paid(self, cores: int, partition: str) -> int:
        return cores if self._site is None else self._site.paid_cores(cores, partition)

    def begins_s(self, stages: tuple[str, ...]) -> dict[str, float]:
        """Say how long after the beginning of their job its stages begin, as they are asked for now."""
        if self._site is None or len(stages) == 1:
            return {slot.stage: slot.start_s for slot in self.workflow.layout(stages)}
        waves = waves_of([self.workflow.stages[name] for name in stages], self._site)
        return {slot.stage: slot.start_s for slot in slots_of(waves, self._runs_s)}

    def _held(self, cores: int, run_s: float, needs: Sequence[int], lasts_s: Sequence[float]) -> tuple[float, bool]:
        """Count the core-seconds that stages hold one after the other; and say whether their job gives cores back."""
        by = self.shrink_by
        if not by:
            return cores * run_s, False
        left = list(accumulate(reversed(needs), max))[::-1]
        shrinks = not cores % by and left[-1] <= cores - by
        if by > 1:
            left = [-(-need // by) * by for need in left]
        return sum(map(mul, left, lasts_s)) if shrinks else cores * run_s, shrinks

    def _may_share(self, names: tuple[str, ...]) -> bool:
        """Whether one job can run all of some stages: they ask for the same, and none is local or retried alone."""
        first = self._kinds[names[0]]
        return len(names) == 1 or (self._alone.isdisjoint(names) and all(self._kinds[name] == first for name in names))


def _late_s(waits_s: NDArray[np.float64], ahead_s: float) -> tuple[NDArray[np.float64], float]:
    """Return how late cores come that are asked for ahead, and how long they idle because they come early.

    Cores that come much too early are given back, and asked for again with half the lead.
    """
    lead_s = min(float(waits_s[int(_GROWTH.lead_level * len(waits_s))]), ahead_s)
    gap_s = waits_s - lead_s
    late_s = np.maximum(gap_s, 0.0)
    if gap_s[0] >= 0:
        return late_s, 0.0
    is_kept = gap_s >= -_GROWTH.max_hold_s
    if not is_kept[0]:
        late_s[~is_kept] = np.maximum(waits_s - lead_s / 2, 0.0).sum() / len(waits_s)
    return late_s, float(np.maximum(-gap_s, 0.0)[is_kept].sum()) / len(gap_s)


def take_apart(names: Iterable[str], after: Mapping[str, Iterable[str]]) -> Series:
    """Split a graph into series and parallel pieces.

    A stage that follows everything before it begins a new piece of a series; unconnected parts are parallel. A piece
    that is neither is taken stage by stage, in order: each then waits for all before it, which is safe but pessimistic.

    Notes
    -----
    O(s^2) a level for s stages.

    Examples
    --------
    >>> take_apart("abcd", {"a": "", "b": "a", "c": "a", "d": "bc"}).pieces
    ('a', (Series(pieces=('b',)), Series(pieces=('c',))), 'd')
    """
    order = list(names)
    before: dict[str, set[str]] = {}
    for name in order:
        direct = set(after[name])
        before[name] = direct.union(*(before[other] for other in direct))
    pieces: list[str | tuple[Series, ...]] = []
    begin = 0
    for end in range(1, len(order) + 1):
        head, tail = set(order[:end]), order[end:]
        if all(head <= before[name] for name in tail):
            pieces.append(_piece(order[begin:end], after))
            begin = end
    return Series(tuple(_flat(pieces)))


def _flat(pieces: list[str | tuple[Series, ...]]) -> Iterator[str | tuple[Series, ...]]:
    for piece in pieces:
        if not isinstance(piece, str) and len(piece) == 1:
            yield from piece[0].pieces
        else:
            yield piece


def _piece(names: list[str], after: Mapping[str, Iterable[str]]) -> str | tuple[Series, ...]:
    if len(names) == 1:
        return names[0]
    left, branches = set(names), []
    while left:
        first = next(name for name in names if name in left)
        reached, todo = {first}, [first]
        while todo:
            here = todo.pop()
            near = {n for n in names if n in after[here] or here in after[n]} & left - reached
            reached |= near
            todo += sorted(near)
        branches.append([name for name in names if name in reached])
        left -= reached
    if len(branches) == 1:
        return (Series(tuple(names)),)
    inside = [{n: [p for p in after[n] if p in set(branch)] for n in branch} for branch in branches]
    return tuple(take_apart(branch, edges) for branch, edges in zip(branches, inside, strict=True))
