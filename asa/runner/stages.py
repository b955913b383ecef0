"""The state of each stage of a run, and its consequences: which other stages may run, and which will not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from asa.core.values import changed
from asa.strategies.base import Phase, StageView
from asa.workflow import Stage, Workflow

_LEFT_OUT = frozenset({Phase.BLOCKED, Phase.SKIPPED})
_OUT = _LEFT_OUT | {Phase.FAILED}
_BAD = frozenset({Phase.FAILED, Phase.BLOCKED})
_ASKABLE = frozenset({Phase.WAITING, Phase.CONDITIONAL})
_KINDS = ("open", "out", "bad", "conditional")


class Stages(Mapping[str, StageView]):
    """The stages of a run by name; only `put` changes a stage, and updates those that follow it.

    A stage is settled once it is done, has failed for good, or will not run. A stage does not run after a failure,
    unless its `when` says otherwise (`asa.workflow.Stage.when`). A change costs O(stages that follow).

    A stage that may begin before its predecessors end no longer depends on them once it may begin.

    `workflow`: the graph of the stages.
    `has_released`: called with the stages, an array among them, and the name of another array that it follows element
    by element; returns whether some of its elements can run already or, once the other array has ended, whether any
    ever can.
    """

    def __init__(
        self,
        workflow: Workflow,
        has_released: Callable[[Mapping[str, StageView], Stage, str], bool] = lambda _stages, _stage, _before: False,
    ) -> None:
        self._has_released = has_released
        self._order = workflow.order
        self._positions = {name: index for index, name in enumerate(self._order, start=1)}
        self._before = {name: tuple(dict.fromkeys(workflow.stages[name].after)) for name in self._order}
        self._after: dict[str, list[str]] = {name: [] for name in self._order}
        for name, before in self._before.items():
            for earlier in before:
                self._after[earlier].append(name)
        self._views = {name: StageView(workflow.stages[name]) for name in self._order}
        self._may_be_early = {name: view.stage for name, view in self._views.items() if view.stage.may_be_early}
        # in the order of `_KINDS`
        self._counts = {name: [len(before), 0, 0, 0] for name, before in self._before.items()}
        self._ready = {name for name, before in self._before.items() if not before}
        self._turn: set[str] = set()
        self._left, self._first = len(self._views), 0
        self._left_out: set[str] = set()
        self._paused: set[str] = set()
        self._delayed: dict[str, Stage] = {}  # stages with a `start_delay`, as in their workflow
        self._pauses_s: dict[str, float] | None = None  # cached; None after any change
        self._ahead: set[str] = set()
        self._kept_back: set[str] = set()
        for name in self._ready:
            self._note_turn(name)
        self.settle_anew()

    def __getitem__(self, name: str) -> StageView:
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def showing(self, views: Iterable[tuple[str, StageView]]) -> Stages:
        """Return a copy for reading, with other views of the given stages."""
        shown = copy(self)
        shown._views = {**self._views, **dict(views)}  # noqa: SLF001
        return shown

    def copy(self) -> dict[str, StageView]:
        """Return all views as they are now."""
        return dict(self._views)

    @property
    def ready(self) -> frozenset[str]:
        """Stages whose predecessors are all settled."""
        return frozenset(self._ready)

    @property
    def turn(self) -> frozenset[str]:
        """Stages that may run at once, and have no job yet."""
        return frozenset(self._turn)

    @property
    def first(self) -> int:
        """Index, in the workflow's order, of the first unsettled stage."""
        while self._first < len(self._order) and self._views[self._order[self._first]].phase.is_settled:
            self._first += 1
        return self._first

    @property
    def are_settled(self) -> bool:
        """Whether all stages are settled."""
        return not self._left

    @property
    def failed(self) -> list[str]:
        """Stages that failed for good."""
        return [name for name, view in self._views.items() if view.phase is Phase.FAILED]

    @property
    def left_out(self) -> frozenset[str]:
        """Stages that will not run because of how their predecessors ended."""
        return frozenset(self._left_out)

    # ------------------------------------------------------------------ open runs

    def extend(self, workflow: Workflow) -> None:
        """Append the stages that were added to the workflow."""
        self._pauses_s = None
        for name in workflow.order[len(self._order) :]:
            stage = workflow.stages[name]
            self._before[name] = before = tuple(dict.fromkeys(stage.after))
            self._after[name], self._views[name] = [], StageView(stage)
            self._counts[name] = [0, 0, 0, 0]
            self._left += 1
            self._positions[name] = len(self._positions) + 1
            if stage.may_be_early:
                self._may_be_early[name] = stage
            for earlier in before:
                self._after[earlier].append(name)
                counted = _counted(self._views[earlier].phase)
                for kind in self._kinds_of(name, earlier):
                    self._counts[name][kind] += counted[kind]
            self._count_early([name])
            if not self._counts[name][0]:
                self._ready.add(name)
            self._note_turn(name)
            self._decide(name)
        self._order = workflow.order

    def position(self, name: str) -> int:
        """Return a stage's number in the workflow's order, from 1 on."""
        return self._positions[name]

    def at(self, position: int) -> str:
        """Return the stage with a number in the workflow's order."""
        return self._order[position - 1]

    def keep_back(self, name: str) -> None:
        """Keep a stage back until `release`, however its predecessors end."""
        self._kept_back.add(name)
        self._ready.discard(name)
        self._note_turn(name)

    @property
    def ready_but_kept_back(self) -> frozenset[str]:
        """Stages that are kept back although their predecessors are all settled."""
        return frozenset(name for name in self._kept_back if not self._counts[name][0])

    def release(self, name: str) -> None:
        """Stop keeping a stage back."""
        self._kept_back.discard(name)
        if not self._counts[name][0]:
            self._ready.add(name)
        self._note_turn(name)

    # ------------------------------------------------------------------ which stages may run

    def put(self, name: str, view: StageView) -> None:
        """Change a stage's view, and decide on the stages that follow."""
        to_tell = [name] if self._put(name, view) else []
        if view.phase in _ASKABLE:
            self._decide(name)
        while to_tell:
            to_tell += [follower for follower in tuple(self._after[to_tell.pop()]) if self._decide(follower)]

    def change(self, name: str, **changes: Any) -> None:
        """Change fields of a stage's view, as `put` does with a whole one."""
        self.put(name, changed(self._views[name], **changes))

    def settle_anew(self) -> None:
        """Decide again, after stages were resumed, which stages will not run, and which are conditional."""
        for name in self._order:
            view = self._views[name]
            if view.phase in _ASKABLE or view.phase in _LEFT_OUT:
                depends = bool(view.stage.when != "success" and self._before[name]) or self._waits_for_more(name)
                depends |= any(self._views[earlier].phase is Phase.CONDITIONAL for earlier in self._before[name])
                phase = Phase.CONDITIONAL if depends else Phase.WAITING
                if view.phase is not phase or view.reason:
                    self._put(name, changed(view, phase=phase, reason=""))
        self._count_early(self._may_be_early)
        for name in self._order:
            self._decide(name)

    def note_release(self, name: str) -> None:
        """Decide on the stages whose elements wait for elements of the given stage, more of which have completed."""
        followers = [follower for follower in self._after[name] if name in self._views[follower].stage.after_matching]
        self._count_early(followers)
        for follower in followers:
            self._decide(follower)

    def _put(self, name: str, view: StageView) -> bool:
        """Change one view and the counts that depend on it; return whether the phase changed."""
        was, self._views[name], self._pauses_s = self._views[name], view, None
        if view.not_before_s > -math.inf:
            self._paused.add(name)
        if _is_open(was) != _is_open(view):
            self._note_order(name)
        if was.phase is view.phase:
            has_begun = self._may_be_early and was.started_s is None and view.started_s is not None
            return bool(has_begun) and self._count_early(self._after[name])
        self._note_turn(name)
        (self._left_out.add if view.phase in _LEFT_OUT else self._left_out.discard)(name)
        if was.phase.is_settled:
            self._first = 0
        before, after = _counted(was.phase), _counted(view.phase)
        if before != after:
            self._left += after[0] - before[0]
            for follower in self._after[name]:
                counts = self._counts[follower]
                for kind in self._kinds_of(follower, name):
                    counts[kind] += after[kind] - before[kind]
                if after[0] != before[0]:
                    self._note_ready(follower)
        self._count_early(self._after[name] if self._may_be_early else ())
        return True

    def _note_ready(self, name: str) -> None:
        (self._ready.discard if self._counts[name][0] or name in self._kept_back else self._ready.add)(name)
        self._note_turn(name)

    def _note_turn(self, name: str) -> None:
        is_turn = self._views[name].phase is Phase.WAITING and name in self._ready
        (self._turn.add if is_turn else self._turn.discard)(name)

    def _decide(self, name: str) -> bool:
        """Let a stage run, or mark that it will not, once its predecessors decide that; return whether it changed."""
        view = self._views[name]
        if view.phase.is_settled or view.phase is Phase.RUNNING:
            return False
        n_open, n_out, n_bad, n_conditional = self._counts[name]
        if view.stage.when in {"success", "any"} or not self._before[name]:
            if n_out and (n_bad or not n_open):  # an open predecessor may yet fail, which matters to clean-up stages
                phase = Phase.BLOCKED if n_bad else Phase.SKIPPED
                return self._put(name, changed(view, phase=phase, reason=self._why(name)))
            takes_turn = not n_conditional and not n_out and not self._waits_for_more(name)
        elif n_open:
            return False
        elif view.stage.when == "failed" and not n_bad:
            return self._put(name, changed(view, phase=Phase.SKIPPED, reason="no stage that it depends on failed"))
        else:
            takes_turn = True
        if takes_turn and view.phase is Phase.CONDITIONAL:
            if name in self._may_be_early:
                view = self._freed(view)
            return self._put(name, changed(view, phase=Phase.WAITING, reason=""))
        return False

    # ------------------------------------------------------------------ stages that may begin before others end

    def _count_early(self, names: Iterable[str]) -> bool:
        """Recount the predecessors of stages that may begin early; return whether there are such stages."""
        early = [name for name in names if name in self._may_be_early]
        for name in early:
            self._counts[name] = self._counted_early(self._views[name].stage)
            self._note_ready(name)
        return bool(early)

    def _counted_early(self, stage: Stage) -> list[int]:
        """Count the predecessors that keep a stage back, by the kinds of `_KINDS`."""
        parts = [self._part_of(stage, before) for before in dict.fromkeys(stage.after)]
        if stage.when == "any":
            if any(not any(part) for part in parts):
                return [0, 0, 0, 0]
            n_open = sum(part[0] for part in parts)
            return [n_open, 0, 0, 1] if n_open else [0, *map(sum, list(zip(*parts, strict=True))[1:])]
        return list(map(sum, zip(*parts, strict=True))) if parts else [0, 0, 0, 0]

    def _part_of(self, stage: Stage, before: str) -> tuple[int, int, int, int]:
        """Return the counts for one predecessor of a stage; all zero if it no longer keeps the stage back."""
        view = self._views[before]
        counted = _counted(view.phase)
        if before in stage.after_any:
            return counted[0], 0, 0, 0
        if before in stage.after_start:
            return int(counted[0] and view.started_s is None), 0, 0, 0
        has_released = before in stage.after_matching and self._has_released(self._views, stage, before)
        return (0, 0, 0, 0) if has_released else counted

    def _freed(self, view: StageView) -> StageView:
        """Remove the predecessors that need not end before the stage begins."""
        stage = view.stage
        if stage.start_delay_s:
            self._delayed[stage.name] = stage
        follows: list[str] = []
        for before in self._before[stage.name]:
            other = self._views[before]
            has_done = not any(self._part_of(stage, before))
            if before in stage.after_start and not other.phase.is_settled:
                continue
            if other.phase is Phase.DONE if before in stage.after_matching else stage.when != "any" or has_done:
                follows.append(before)
        for before in self._before[stage.name]:
            if before not in follows:
                self._after[before].remove(stage.name)
        self._before[stage.name] = tuple(follows)
        self._counts[stage.name] = self._counted_early(freed := stage.following(follows))
        return changed(view, stage=freed)

    def _kinds_of(self, name: str, before: str) -> range:
        """Return which counts a predecessor affects: only the open ones, if it merely has to end."""
        return range(1 if before in self._views[name].stage.after_any else len(_KINDS))

    def _waits_for_more(self, name: str) -> bool:
        """Whether a stage waits for more than its predecessors' completion: for any end, a start, or elements."""
        stage = self._views[name].stage
        if name not in self._may_be_early:
            return any(not self._views[earlier].phase.is_settled for earlier in stage.after_any)
        if stage.when == "any":
            return bool(self._counts[name][0])
        others = (*stage.after_any, *stage.after_start, *stage.after_matching)
        return any(any(self._part_of(stage, earlier)) for earlier in others)

    def _why(self, name: str) -> str:
        """Return why a stage will not run, by the first failure before it."""
        however = self._views[name].stage.after_any
        out = [
            earlier for earlier in self._before[name] if self._views[earlier].phase in _OUT and earlier not in however
        ]
        cause = next((earlier for earlier in out if self._views[earlier].phase in _BAD), out[0])
        view = self._views[cause]
        return view.reason if view.phase is Phase.BLOCKED else f"stage {cause!r} {_ENDED[view.phase]}"

    # ------------------------------------------------------------------ times

    def pauses_s(self) -> Mapping[str, float]:
        """Return until when stages without a job pause, or their predecessors do; O(stages + edges) if any pauses."""
        if self._pauses_s is None:
            self._pauses_s = self._find_pauses_s()
        return self._pauses_s

    def _find_pauses_s(self) -> dict[str, float]:
        self._paused = {name for name in self._paused if self._views[name].not_before_s > -math.inf}
        if not any(self._views[name].phase is Phase.WAITING for name in (*self._paused, *self._delayed)):
            return {}
        pauses: dict[str, float] = {}
        for name in self._order:
            view = self._views[name]
            if view.phase is Phase.WAITING:
                began_s = self._since_s(self._delayed[name]) if name in self._delayed else -math.inf
                until_s = max(
                    [view.not_before_s, began_s, *(pauses.get(earlier, -math.inf) for earlier in self._before[name])]
                )
                if until_s > -math.inf:
                    pauses[name] = until_s
        return pauses

    def _since_s(self, stage: Stage) -> float:
        """Return from when a stage with a `start_delay` may run; infinity while a predecessor has not begun."""
        starts_s, others = [], [earlier for earlier in stage.after if earlier not in stage.after_start]
        for view in (self._views[before] for before in stage.after_start):
            begun_s = math.inf if view.started_s is None else view.started_s + stage.start_delay_s
            starts_s.append(-math.inf if view.phase.is_settled else begun_s)
        if stage.when != "any":
            return max(starts_s)
        return min(starts_s) if all(any(self._part_of(stage, earlier)) for earlier in others) else -math.inf

    def in_order(self, name: str, at_s: float) -> float:
        """Shift a stage's time so that it is consistent with the stages before and after it.

        A batch system may report an end late, after the jobs that waited for it have begun; clocks differ, and seconds
        are rounded. But a stage certainly begins only when those before it have ended.
        """
        for began_s, ended_s in self._nearest(name, self._before):
            at_s = max(at_s, began_s if ended_s is None else ended_s)
        asked_s = self._views[name].submit_s
        later = (
            began_s for began_s, _ in self._nearest(name, self._after)
        )  # a follower that began before this stage was tried again does not count
        return min([at_s, *(began_s for began_s in later if asked_s is None or began_s >= asked_s)])

    def note_times(self, name: str, start_s: float, end_s: float | None) -> tuple[float, float]:
        """Record when a stage began and ended, consistent with its neighbours; return the recorded times."""
        start_s = self.in_order(name, start_s)
        known_end_s = None if end_s is None else max(start_s, self.in_order(name, end_s))
        view = self._views[name]
        # the stage may have begun before a requeue
        asked_s = view.submit_s if view.submit_s is None else min(view.submit_s, start_s)
        self.change(name, started_s=start_s, ended_s=known_end_s, submit_s=asked_s)
        return start_s, start_s if known_end_s is None else known_end_s

    def _nearest(self, name: str, neighbours: Mapping[str, Sequence[str]]) -> Iterator[tuple[float, float | None]]:
        """Yield begin and end of the nearest begun stages in one direction; the stages beyond are already in order.

        Followers of an unbegun stage matter only if some stage began before one of its predecessors.
        """
        to_see, seen = list(neighbours[name]), set[str]()
        while to_see:
            neighbour = to_see.pop()
            view = self._views[neighbour]
            if view.started_s is not None:
                yield view.started_s, view.ended_s
            elif (self._ahead or neighbours is self._before) and neighbour not in seen:
                seen.add(neighbour)
                to_see.extend(neighbours[neighbour])

    def _note_order(self, name: str) -> None:
        """Update which stages are known to have begun before a predecessor."""
        for stage in (name, *self._after[name]):
            has_begun = self._views[stage].started_s is not None
            if has_begun and any(_is_open(self._views[before]) for before in self._before[stage]):
                self._ahead.add(stage)
            else:
                self._ahead.discard(stage)


_ENDED = {Phase.FAILED: "failed", Phase.BLOCKED: "did not run", Phase.SKIPPED: "did not run"}


def _is_open(view: StageView) -> bool:
    """Whether a stage has yet to begin."""
    return view.started_s is None and not view.phase.is_settled


def _counted(phase: Phase) -> tuple[int, int, int, int]:
    """Return how a stage counts for its followers: unsettled, without a result, failed or blocked, conditional."""
    return (int(not phase.is_settled), int(phase in _OUT), int(phase in _BAD), int(phase is Phase.CONDITIONAL))
