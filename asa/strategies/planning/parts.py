"""Splits a workflow into series and parallel pieces, and makes the jobs that they can share.

A *block* is what runs in one allocation: stages that follow each other, or a whole fork, branch by branch. If the site
takes cores back, a block gets narrower as its wide stages end. If jobs can grow, a block may also begin narrow, and
idle until the cores for its wider stages have joined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise, takewhile

from asa.backend import Capabilities
from asa.core.late import dataclass
from asa.shapes import Shape
from asa.units import core_hours
from asa.waves import Waves, cores_of, is_series, likeness, slots_of, sums_defaults, unlike, walltime_of, waves_of
from asa.workflow import Stage, Workflow

from .elasticity import RIGID, Elasticity, Resizing, RisingJob
from .molding import Form, Line, WideningJob, lines_of


@dataclass(frozen=True, slots=True)
class Block:
    """One job of a plan: its stages, and its request."""

    stages: tuple[str, ...]
    cores: int  # at its beginning
    walltime_s: float
    run_s: float  # expected run time
    core_hours: float  # expected to be used while it runs, and until another job takes over what it cannot finish
    elasticity: Elasticity = RIGID  # how its width changes
    spread: float = 0.0  # of the run time: about the standard deviation of its logarithm
    shapes: tuple[Shape, ...] = ()  # of its stages, if shapes are chosen


@dataclass(frozen=True, slots=True)
class Series:
    """Consecutive pieces: each is a stage, or the parallel branches of a fork."""

    pieces: tuple[str | tuple[Series, ...], ...]  # names of stages, or tuples of parallel branches

    @property
    def stages(self) -> tuple[str, ...]:
        """All stages of the pieces, in order."""
        return tuple(name for piece in self.pieces for name in _stages(piece))


def _stages(piece: str | tuple[Series, ...]) -> tuple[str, ...]:
    return (piece,) if isinstance(piece, str) else tuple(name for branch in piece for name in branch.stages)


def max_walltimes(site: Capabilities) -> Callable[[str], float]:
    """Return a function for the longest walltime of a partition; an empty name is the default partition."""

    def max_walltime_s(partition: str) -> float:
        limits = site.partitions.get(partition or site.partition)
        return math.inf if limits is None or limits.max_walltime_s is None else limits.max_walltime_s

    return max_walltime_s


def alike(stages: Sequence[Stage], site: Capabilities) -> list[Stage]:
    """Return the first of the stages, as many as one job can run: their requests are equal, and none has retries."""
    first = stages[0]
    kind = likeness(first, site)
    return [
        first,
        *takewhile(lambda other: not (first.retries or other.retries) and likeness(other, site) == kind, stages[1:]),
    ]


class Parts:
    """The pieces of a workflow's stages that are still to be submitted.

    `names`: the stages to plan, which include all that follow one of them; by default all.
    `resizing`: how jobs may change their width; by default not at all.
    `max_walltime_s`: returns the longest walltime of a partition; an empty name is the default partition.
    `site`: if given, small stages of a job run side by side on a node, as its nodes allow.
    `forms`: the shapes of each stage, if shapes are to be chosen. A job whose stages have several shapes does not grow.
    """

    def __init__(
        self,
        workflow: Workflow,
        names: Iterable[str] | None = None,
        *,
        cores_per_node: int = 1,
        resizing: Resizing | None = None,
        max_walltime_s: Callable[[str], float] = lambda _partition: math.inf,
        forms: Mapping[str, Sequence[Form]] | None = None,
        site: Capabilities | None = None,
    ) -> None:
        self.workflow = workflow
        self.cores_per_node = cores_per_node
        self.resizing = resizing or Resizing()
        chosen = set(workflow.order if names is None else names)
        self.names = tuple(name for name in workflow.order if name in chosen)
        self._blocks: dict[tuple[str, ...], Block | None] = {}
        self._stretches: dict[tuple[str, ...], tuple[float, int]] = {}
        stages = [workflow.stages[name] for name in self.names]
        self._site = site
        self._needs = {stage.name: self._paid(stage.cores_on(cores_per_node), stage.partition) for stage in stages}
        self._runs_s = {stage.name: stage.expected_s for stage in stages}
        self._walltimes_s = {stage.name: stage.walltime_s for stage in stages}
        self._spreads_s = {stage.name: stage.run_spread * stage.expected_s for stage in stages}
        self._assumed = any(stage.assumes_walltime for stage in stages)
        self._strays = any(self._spreads_s.values())
        self._max_walltime_s = max_walltime_s
        self._rising: dict[tuple[str, ...], list[tuple[int, Block]]] = {}
        self._partitions = {stage.name: stage.partition for stage in stages}
        self._lines = None if forms is None else lines_of(forms)
        self._grown: dict[tuple[str, ...], list[tuple[int, Block]]] = {}
        self._kinds = {
            s.name: (
                s.partition if forms is None else "",  # else a common partition is chosen with the shape
                *likeness(s, site),
            )
            for s in stages
        }
        # how many stages so far do not follow the stage before them: equal for two stages if a chain leads from one to
        # the other
        breaks = (before not in workflow.stages[name].after for before, name in pairwise(self.names))
        self._chains = dict(zip(self.names, enumerate(accumulate(breaks, initial=0)), strict=False))
        # local, retried alone, or with jobs of their own kind
        self._alone = {s.name for s in stages if s.local or s.retries or s.own_jobs}

    @cached_property
    def series(self) -> Series:
        """The stages as series and parallel pieces."""
        after = {name: {p for p in self.workflow.stages[name].after if p in set(self.names)} for name in self.names}
        return self._in_packs(take_apart(self.names, after))

    def _in_packs(self, series: Series) -> Series:
        """Combine parallel branches of one small stage each into packs that run side by side on a node."""
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
        """By stage, the longest path before it: stages of equal depth are in the queue at about the same time."""
        depths: dict[str, int] = {}
        for name in self.names:
            after = (p for p in self.workflow.stages[name].after if p in depths)
            depths[name] = max((depths[p] + 1 for p in after), default=0)
        return depths

    def stretch(self, block: Block) -> tuple[float, int]:
        """Return how much longer a block runs because it serializes stages that could run at the same time.

        Returns seconds, and how many levels of the graph the block covers.
        """
        if self._is_chain(block.stages):
            return 0.0, len(block.stages)
        if block.stages not in self._stretches:
            ends: dict[str, float] = {}
            for name in block.stages:
                before = (ends[earlier] for earlier in self.workflow.stages[name].after if earlier in ends)
                ends[name] = max(before, default=0.0) + self._runs_s[name]
            self._stretches[block.stages] = max(ends.values()), len({self.depths[name] for name in block.stages})
        path_s, levels = self._stretches[block.stages]
        return block.run_s - path_s, levels

    def in_order(self, piece: str | tuple[Series, ...]) -> tuple[str, ...]:
        """Return the stages of a piece in the workflow's order."""
        return (piece,) if isinstance(piece, str) else tuple(sorted(_stages(piece), key=self._chains.__getitem__))

    def block(self, stages: tuple[str, ...]) -> Block | None:
        """Make a block of the given stages, given in the workflow's order; None if one job cannot run them."""
        if stages not in self._blocks:
            self._blocks[stages] = self._make(stages) if self._may_share(stages) else None
        return self._blocks[stages]

    def why_apart(self) -> str:
        """Return why no job can run all stages, where their requests do not contradict each other."""
        stages = [self.workflow.stages[name] for name in self.names]
        for stage in stages:
            if stage.local:
                return f"{stage.name} runs on this computer, in no job"
            if stage.retries:
                return f"{stage.name} has retries, for which it needs a job of its own"
        if words := unlike(stages, self._site):
            return f"of stages that share a job, asa-plan wants equal requests but for cores and time, and {words}"
        return "one job for all stages would exceed a walltime, of its own or of the site"

    def leading(self, pieces: Sequence[str | tuple[Series, ...]]) -> Iterable[tuple[int, Block]]:
        """Make the blocks of the first piece, of the first two pieces, and so on, as long as they fit into one job.

        `pieces`: the rest of a series. Each block comes with its number of pieces; blocks with the same number have
        different shapes.
        """
        if self._lines is None:
            return enumerate(self._in_own_shapes(pieces), start=1)
        key = self.in_order(pieces[0])
        if key not in self._grown:
            self._grown[key] = list(self._in_all_shapes(pieces, self._lines))
        return self._grown[key]

    def blocks(self, stages: tuple[str, ...]) -> list[Block]:
        """Make the blocks of the given stages in all shapes that they can share; none if no job can run them."""
        if self._lines is None:
            return [] if (block := self.block(stages)) is None else [block]
        return [block for count, block in self._in_all_shapes(stages, self._lines) if count == len(stages)]

    def shaped(self) -> list[Block]:
        """Make all blocks that a search considers, in all shapes."""
        made: list[Block] = []
        rest = [self.series]
        while rest:
            pieces = rest.pop().pieces
            for here, piece in enumerate(pieces):
                made += (block for _, block in self.leading(pieces[here:]))
                rest += () if isinstance(piece, str) else piece
        return made

    def _shared(self, pieces: Iterable[str | tuple[Series, ...]]) -> Iterator[tuple[str, ...]]:
        """Yield the stages of each piece in turn, as far as they may share a job."""
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
        fitting = [WideningJob(line) for line in lines]
        stages: tuple[str, ...] = ()
        for count, added in enumerate(self._shared(pieces), start=1):
            stages += added
            fitting = [job for job in fitting if all(map(job.add, added))]
            for job in fitting:
                # a block with fewer cores exists already, on a narrower line
                if job.cores == job.line.width and (block := self._grown_to(stages, job)) is not None:
                    yield count, block

    def _grown_to(self, names: tuple[str, ...], job: WideningJob) -> Block | None:
        walltime_s = self.workflow.walltime_of(names, job.walltime_s)
        if len(names) > 1 and not job.run_s <= walltime_s <= self._max_walltime_s(job.line.partition):
            return None
        core_seconds, elasticity = self.resizing.core_seconds_of(job.cores, job.run_s, job.needs, job.lasts_s)
        hours = 0.0 if self.workflow.stages[names[0]].local else core_seconds / 3600
        spread = math.sqrt(job.strays) / job.run_s
        return Block(names, job.cores, walltime_s, job.run_s, hours, elasticity, spread, job.shapes)

    def rising(self, pieces: tuple[str | tuple[Series, ...], ...]) -> list[tuple[int, Block]]:
        """Make those blocks of `leading` whose job grows, each with its number of pieces."""
        if not self.resizing.rises:
            return []
        key = self.in_order(pieces[0])
        if key not in self._rising:
            self._rising[key] = list(self._risen(pieces))
        return self._rising[key]

    def risen(self, stages: tuple[str, ...]) -> Block | None:
        """Make a block of the given stages whose job grows; None if that is impossible or unnecessary."""
        if not self.resizing.rises:
            return None
        return next((block for count, block in self._risen(stages) if count == len(stages)), None)

    def _risen(self, pieces: Iterable[str | tuple[Series, ...]]) -> Iterator[tuple[int, Block]]:
        job = RisingJob(self.resizing)
        for count, block in enumerate(self._in_own_shapes(pieces), start=1):
            for name in block.stages[len(job.widths) :]:
                if not job.add(name, self._runs_s[name], self._walltimes_s[name]):
                    return
            if job.rises:
                how = job.elasticity(block.walltime_s)
                walltime_s, hours = block.walltime_s + how.spare_s, job.core_seconds / 3600
                yield count, Block(block.stages, job.widths[0], walltime_s, block.run_s, hours, how, block.spread)

    def _make(self, names: tuple[str, ...]) -> Block | None:
        """Make a block of stages in their present shapes."""
        needs = list(map(self._needs.__getitem__, names))
        if len(names) == 1:
            stage = self.workflow.stages[names[0]]
            hours = 0.0 if stage.local else core_hours(needs[0], stage.work_s)
            run_s, walltime_s = stage.expected_s, stage.walltime_s
            return Block(names, needs[0], walltime_s, run_s, hours, spread=stage.run_spread)
        waves = self._waves(names)
        if self._assumed and sums_defaults(waves):
            return None
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
        core_seconds, elasticity = self.resizing.core_seconds_of(cores, run_s, needs, lasts)
        spread = math.hypot(*map(self._spreads_s.__getitem__, names)) / run_s if self._strays else 0.0
        return Block(names, cores, walltime_s, run_s, core_seconds / 3600, elasticity, spread)

    def _waves(self, names: tuple[str, ...]) -> Waves:
        if self._site is None or self._is_chain(names):
            return tuple((self.workflow.stages[name],) for name in names)
        return waves_of([self.workflow.stages[name] for name in names], self._site)

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
        return Block(names, cores, walltime_s, run_s, cores * run_s / 3600, spread=spread)

    def _paid(self, cores: int, partition: str) -> int:
        return cores if self._site is None else self._site.paid_cores(cores, partition)

    def begins_s(self, stages: tuple[str, ...]) -> dict[str, float]:
        """Return how long after the start of their job stages begin, in their present shapes."""
        if self._site is None or len(stages) == 1:
            return {slot.stage: slot.start_s for slot in self.workflow.layout(stages)}
        waves = waves_of([self.workflow.stages[name] for name in stages], self._site)
        return {slot.stage: slot.start_s for slot in slots_of(waves, self._runs_s)}

    def _is_chain(self, names: tuple[str, ...]) -> bool:
        """Whether each stage directly follows the one before, so that no two can run at the same time."""
        (first, chain), (last, other) = self._chains[names[0]], self._chains[names[-1]]
        return chain == other and last - first == len(names) - 1

    def _may_share(self, names: tuple[str, ...]) -> bool:
        """Whether one job can run all of these stages: their requests are equal, and none needs a job of its own."""
        first = self._kinds[names[0]]
        return len(names) == 1 or (self._alone.isdisjoint(names) and all(self._kinds[name] == first for name in names))


def take_apart(names: Iterable[str], after: Mapping[str, Iterable[str]]) -> Series:
    """Split a graph into series and parallel pieces.

    A stage that follows everything before it begins a new piece of a series; unconnected parts are parallel. A piece
    that is neither is split into single stages in order: each then waits for all before it, which is safe but
    pessimistic.

    Notes
    -----
    O(s^2) per level for s stages.

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
