"""Decides what a pool should ask for and give back, from its work, its allocations, and the expected waits.

A pool calls the pure function `decide`, which does not depend on dask, every few seconds. It rehearses: it spreads the
known work over present and possible allocations, and compares the costs. The cost is in core-seconds: those allocated,
plus `PoolRules.price` for each second until the work is done. Submitting too early costs idle cores; submitting too
late delays the end. Queue waits are uncertain, so the expected cost over their quantiles is used. So nobody has to
choose how far ahead to submit: it follows from the price.

Three rules keep it stable, since on a batch queue a mistake costs a wait:

- A pending job counts from the moment that it was submitted.
- A pending job costs nothing, and is withdrawn only when it is certainly useless: if the running jobs could do four
  times the work before it can start, and this has been so for as long as it would take to get the job again.
- An idle allocation is given back when its idling has cost as much as getting it again would, and the rest of its
  walltime would cost more than that. Whatever happens next, this costs at most twice the optimum in hindsight. Getting
  many allocations again costs one wait, so the idle ones are counted together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from asa.units import format_duration
from asa.waits import WaitForecast

from .values import AllocationShape, Decision, Needs, PoolRules, TaskKind, View

_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles of the waits over which the expected cost is taken
_EARLY = 0.1  # quantile for a short wait
_MAX_DELAYS = 6  # later submission times that are considered, besides now
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_MARGIN_SHARE, _MARGIN_S = 0.1, 60.0  # of a walltime, and upper bound
_DOUBT = 4  # factor on the known work, as forecasts of run times may be too short


class PoolSlot(NamedTuple):
    """Cores that work during an interval, and are paid for from a given time on."""

    cores: int
    from_s: float  # start of the interval, on the pool's clock
    until_s: float
    paid_s: float  # time from which the cores are paid for


class Rehearsal(NamedTuple):
    """The predicted course of the work."""

    end_s: float  # when the work would be done, or the last cores would be gone
    left: float  # core-seconds of work that would not be done
    begins_s: tuple[float, ...]  # when each kind would begin
    idle: tuple[float, ...]  # core-seconds that would idle during the work on each kind


def rehearse(now_s: float, kinds: Iterable[TaskKind], slots: Iterable[PoolSlot]) -> Rehearsal:
    """Spread work over cores, as if tasks could be divided; a group takes at least as long as one of its tasks, and
    begins when the previous one is done.

    Examples
    --------
    >>> slots = [PoolSlot(4, 0.0, 100.0, 0.0), PoolSlot(4, 10.0, 100.0, 10.0)]
    >>> rehearse(0.0, [TaskKind(8, 10.0), TaskKind(1, 5.0)], slots)
    Rehearsal(end_s=20.0, left=0.0, begins_s=(0.0, 15.0), idle=(0.0, 35.0))
    """  # noqa: D205 - one sentence
    changes: dict[float, int] = {}
    for slot in slots:
        if (from_s := max(slot.from_s, now_s)) < slot.until_s:
            changes[from_s] = changes.get(from_s, 0) + slot.cores
            changes[slot.until_s] = changes.get(slot.until_s, 0) - slot.cores
    times = [*sorted(changes), math.inf]
    clock_s, cores, at, left = now_s, 0, 0, 0.0
    begins: list[float] = []
    idles: list[float] = []
    for kind in kinds:
        work, began_s, idle = kind.tasks * kind.task_s, math.inf, 0.0
        while work > 0:
            while times[at] <= clock_s:
                cores += changes[times[at]]
                at += 1
            if not (rate := min(cores, kind.tasks)):
                if times[at] == math.inf:
                    break
                clock_s = times[at]
                continue
            began_s = min(began_s, clock_s)
            end_s = clock_s + work / rate
            work = 0.0 if end_s <= times[at] else work - rate * (times[at] - clock_s)
            idle += (cores - rate) * (min(end_s, times[at]) - clock_s)
            clock_s = min(end_s, times[at])
        begins.append(min(began_s, clock_s))
        left += work
        if began_s < math.inf and not work:
            idle += cores * max(began_s + kind.task_s - clock_s, 0.0)
            clock_s = max(clock_s, began_s + kind.task_s)
        idles.append(idle)
    return Rehearsal(clock_s, left, tuple(begins), tuple(idles))


def decide(
    now_s: float,
    kinds: Sequence[TaskKind],
    views: Sequence[View],
    offers: Mapping[AllocationShape, WaitForecast],
    rules: PoolRules,
) -> Decision:
    """Decide which allocations to request and to give back now.

    `kinds`: the unfinished tasks, in groups that run one after the other.
    `views`: the pool's running and pending allocations, without those that leave.
    `offers`: shapes that it may ask for, with forecasts of their waits. The first is used where the work does not
    matter.

    Examples
    --------
    >>> soon, rules = WaitForecast((60.0,) * 9, 60.0), PoolRules(maximum=8)
    >>> [shape.cores for shape in decide(0.0, [TaskKind(100, 36.0)], [], {AllocationShape(4, 3600.0): soon}, rules).ask]
    [4, 4]
    """
    plan = _Planning(now_s, list(views), offers, rules)
    plan.keep_minimum()
    if not rules.is_fixed:
        for needs, alike in _by_needs(kinds).items():
            plan.ask_for(needs, alike)
        if not plan.asked:
            plan.keep_maximum()
            plan.withdraw(kinds)
            plan.give_back(kinds)
    return Decision(
        tuple(plan.asked), tuple(plan.withdrawn), tuple(plan.given_back), frozenset(plan.useless), tuple(plan.reasons)
    )


def surplus(now_s: float, views: Sequence[View], cores: int) -> Decision:
    """Return the allocations to give up in order to reduce the pool to a number of cores.

    Pending jobs come first, the latest of them first, then those idle longest. Busy ones come last, the one with the
    least time left first.
    """
    have = sum(view.shape.cores for view in views)
    withdrawn: list[str] = []
    given_back: list[str] = []

    def order(view: View) -> tuple[bool, float, float]:
        if view.start_s is None:
            return False, -view.starts_s(now_s, 0.5), -view.asked_s
        return True, -view.idle_s, view.until_s or 0.0

    for view in sorted(views, key=order):
        if have - view.shape.cores >= cores:
            have -= view.shape.cores
            (withdrawn if view.start_s is None else given_back).append(view.id)
    return Decision(withdraw=tuple(withdrawn), give_back=tuple(given_back))


def usual_margin_s(shape: AllocationShape) -> float:
    """Return how many seconds before the end of its walltime an allocation is vacated, if its user says nothing."""
    return min(shape.walltime_s * _MARGIN_SHARE, _MARGIN_S)


def drain_from_s(until_s: float, task_s: float, start_s: float) -> float:
    """Return from when an allocation takes no new tasks, so that a task of `task_s` seconds can still end in it.

    If tasks are longer than half of the allocation, it takes them during its first half: else it would mostly idle.

    Examples
    --------
    >>> drain_from_s(3540.0, 300.0, 0.0), drain_from_s(3540.0, 3000.0, 0.0)
    (3240.0, 1770.0)
    """
    return max(until_s - task_s, start_s + (until_s - start_s) / 2)


def _by_needs(kinds: Iterable[TaskKind]) -> dict[Needs, list[TaskKind]]:
    """Divide the work by its needs. An allocation that serves two kinds counts fully for both.

    So too little is asked for at first; the rest of the work is considered again later.
    """
    parted: dict[Needs, list[TaskKind]] = {}
    for kind in kinds:
        if kind.tasks > 0 and kind.task_s > 0:
            parted.setdefault(kind.needs, []).append(kind)
    return parted


class _Way(NamedTuple):
    """A choice: to ask for a number of jobs of one shape, after a delay."""

    shape: AllocationShape
    forecast: WaitForecast
    jobs: int = 0
    delay_s: float = 0.0


@dataclass(slots=True)
class _Planning:
    """A decision in the making."""

    now_s: float
    views: list[View]
    offers: Mapping[AllocationShape, WaitForecast]
    rules: PoolRules
    asked: list[AllocationShape] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    given_back: list[str] = field(default_factory=list)
    useless: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    # ------------------------------------------------------------------ requests

    def keep_minimum(self) -> None:
        """Ask for cores that will be missing from the minimum, as far ahead as the price justifies."""
        if not self.offers or self.rules.minimum <= 0:
            return
        shape, forecast = next(iter(self.offers.items()))
        lead_s = self._lead_s(shape, forecast) + self.rules.startup_s
        ends = sorted({self.now_s, *(view.until_s for view in self.views if view.until_s is not None)})
        for at_s in ends:
            if at_s > self.now_s + lead_s:
                return
            # a pending job counts from its submission, however long its wait
            there = sum(view.shape.cores for view in self.views if view.until_s is None or view.until_s > at_s)
            whole, rest = divmod(max(self.rules.minimum - there, 0), shape.cores)
            why = f"{self.rules.minimum} cores are to be kept"
            self._ask(shape, whole, why)
            if rest:
                self._ask(shape.part(-(-rest // shape.threads)), 1, why)

    def _lead_s(self, shape: AllocationShape, forecast: WaitForecast) -> float:
        """Return how far ahead to ask for a job: if it is late, that costs the price; if early, its idle cores."""
        return forecast.at(self.rules.price / (self.rules.price + shape.cores))

    def ask_for(self, needs: Needs, kinds: Sequence[TaskKind]) -> None:
        """Request jobs now for work with the same needs, while the next one is worth its price."""
        fitting = self._fitting(needs, kinds)
        views = [view for view in self.views if view.shape.serves(needs)]
        as_it_is = rehearse(self.now_s, kinds, self._slots(views, 0.5))
        if not fitting or (not as_it_is.left and as_it_is.end_s - self.now_s <= self.rules.target_s):
            return
        ways = [
            _Way(shape, forecast, count, delay_s)
            for shape, forecast in fitting.items()
            for count in self._counts(shape, forecast, kinds)
            for delay_s in self._delays(as_it_is, views, forecast)
        ]
        if not as_it_is.left:
            ways.append(_Way(*next(iter(fitting.items()))))
        best = min(ways, key=lambda way: (self._cost(kinds, views, way), way.delay_s, way.jobs), default=None)
        if best is not None and best.jobs and not best.delay_s:
            work = sum(kind.tasks * kind.task_s for kind in kinds)
            self._ask(best.shape, best.jobs, f"{work / 3600:.3g} core-hours are to be done")

    def _fitting(self, needs: Needs, kinds: Sequence[TaskKind]) -> dict[AllocationShape, WaitForecast]:
        """Return the offers with a walltime for the longest task; if there is none, those with the longest walltime."""
        serving = {shape: wait for shape, wait in self.offers.items() if shape.serves(needs)}
        longest_s = max(kind.task_s for kind in kinds) + self.rules.startup_s + self.rules.margin_s
        fitting = {shape: wait for shape, wait in serving.items() if shape.walltime_s >= longest_s}
        max_s = max((shape.walltime_s for shape in serving), default=0.0)
        return fitting or {shape: wait for shape, wait in serving.items() if shape.walltime_s == max_s}

    def _counts(self, shape: AllocationShape, forecast: WaitForecast, kinds: Sequence[TaskKind]) -> list[int]:
        """Return the numbers of jobs of a shape that are allowed and that could all have work."""
        widest = -(-max(kind.tasks for kind in kinds) // shape.cores)
        most = min(self._room(shape, forecast), self._jobs_left(), widest)
        if most < 1:
            return []
        return [*(count for count in _COUNTS if count < most), int(most)]

    def _room(self, shape: AllocationShape, forecast: WaitForecast) -> float:
        """Return how many jobs of a shape the maximum allows at the time when they are expected to start."""
        soon_s = self.now_s + self._lead_s(shape, forecast)
        taken = sum(view.shape.cores for view in self.views if view.until_s is None or view.until_s > soon_s)
        return math.inf if self.rules.maximum == math.inf else (self.rules.maximum - taken) // shape.cores

    def _jobs_left(self) -> float:
        """Return how many more jobs may wait in the queue."""
        if self.rules.max_waiting is None:
            return math.inf
        return self.rules.max_waiting - sum(view.start_s is None for view in self.views)

    def _delays(self, as_it_is: Rehearsal, views: Sequence[View], forecast: WaitForecast) -> list[float]:
        """Return delays of a request that may be better than none: a wait before work begins or before cores end."""
        when = [*as_it_is.begins_s[1:], *(view.until_s for view in views if view.until_s is not None)]
        leads = [forecast.at(level) + self.rules.startup_s for level in (0.5, 0.9)]
        delays = sorted({at_s - self.now_s - lead_s for at_s in when for lead_s in leads})
        return [0.0, *(delay_s for delay_s in delays if delay_s > 0)][: _MAX_DELAYS + 1]

    def _cost(self, kinds: Sequence[TaskKind], views: Sequence[View], way: _Way) -> float:
        """Return the cost of a choice in core-seconds: the mean over the quantiles of the waits."""
        shape, forecast, jobs, delay_s = way
        work = sum(kind.tasks * kind.task_s for kind in kinds)
        again = self._again(forecast)
        total = 0.0
        for level in _LEVELS:
            slots = self._slots(views, level)
            wait_s = forecast.at(level)
            if jobs:
                start_s = self.now_s + delay_s + wait_s
                slots.append(self._slot(jobs * shape.cores, start_s, self._leave_s(shape, start_s)))
            end_s, left, _, idle = rehearse(self.now_s, kinds, slots)
            total += work + sum(idle[:1]) + sum(min(gap, again) for gap in idle[1:])
            total += sum(max(slot.from_s - slot.paid_s, 0.0) * slot.cores for slot in slots)
            if left:  # assume that one more job does the remaining work, requested when the others have ended
                end_s += wait_s + self.rules.startup_s + left / shape.cores
            total += (end_s - self.now_s) * self.rules.price
        return total / len(_LEVELS)

    def _again(self, forecast: WaitForecast) -> float:
        """Return the cost of getting an allocation again: a wait. Cores that will idle for longer go back then."""
        return self.rules.price * (forecast.at(0.5) + self.rules.startup_s)

    def _leave_s(self, shape: AllocationShape, start_s: float) -> float:
        return start_s + shape.walltime_s - self.rules.margin_s

    def _slots(self, views: Iterable[View], level: float) -> list[PoolSlot]:
        slots = []
        for view in views:
            start_s = view.starts_s(self.now_s, level)
            until_s = self._leave_s(view.shape, start_s) if view.until_s is None else view.until_s
            slots.append(self._slot(view.shape.cores, start_s, until_s))
        return slots

    def _slot(self, cores: int, start_s: float, until_s: float) -> PoolSlot:
        """Return when the cores of a job work; workers that are late are expected at any moment."""
        return PoolSlot(cores, start_s + self.rules.startup_s, until_s, max(start_s, self.now_s))

    def _ask(self, shape: AllocationShape, jobs: int, why: str) -> None:
        jobs = int(min(jobs, self._jobs_left()))
        if jobs < 1:
            return
        forecast = self.offers.get(shape) or next(iter(self.offers.values()))
        wait = format_duration(forecast.at(0.5))
        self.reasons.append(f"{why}: ask for {jobs} x {shape.cores} cores, which wait {wait} or so")
        self.asked += [shape] * jobs
        self.views += [View("", shape, self.now_s, forecast)] * jobs

    # ------------------------------------------------------------------ removals

    def keep_maximum(self) -> None:
        """End the allocations with the earliest walltime ends where their replacements have started early."""
        running = [view for view in self.views if view.start_s is not None]
        above = sum(view.shape.cores for view in running) - self.rules.maximum
        for view in sorted(running, key=lambda view: (view.until_s or 0.0, view.id)):
            if view.shape.cores <= above and not view.is_pinned and self._may_go(view):
                above -= view.shape.cores
                self._part(view, self.given_back, f"what was to follow {view.id} is here already: leave it")

    def withdraw(self, kinds: Sequence[TaskKind]) -> None:
        """Withdraw pending jobs that have been certainly useless for long enough."""
        running = self._slots([view for view in self.views if view.start_s is not None], 0.5)
        for view in sorted(self._free(waiting=True), key=lambda view: -view.asked_s):
            much = [kind._replace(tasks=_DOUBT * kind.tasks) for kind in kinds if view.shape.serves(kind.needs)]
            done_s, left, *_ = rehearse(self.now_s, much, running)
            if left or done_s > view.starts_s(self.now_s, _EARLY):
                continue
            self.useless.append(view.id)
            again_s = view.forecast.at(0.5) + self.rules.startup_s
            if view.useless_s >= again_s and self._may_go(view):
                why = f"{view.id} would have been of no use for {format_duration(view.useless_s)}"
                self._part(view, self.withdrawn, f"{why}, in which it could be got again: withdraw it")

    def give_back(self, kinds: Sequence[TaskKind]) -> None:
        """End allocations that have idled for the cost of new ones, or that are cheaper to get later."""
        idle = self._free(waiting=False)
        cores = sum(view.shape.cores for view in idle)
        rest = sum(((view.until_s or self.now_s) - self.now_s) * view.shape.cores for view in idle)
        for view in sorted(idle, key=lambda view: (-view.idle_s, view.id)):
            if not self._may_go(view):
                continue
            known = [alike for needs, alike in _by_needs(kinds).items() if view.shape.serves(needs)]
            if known:
                if all(self._is_better_away(view, alike) for alike in known):
                    why = "idles, and costs less if it is asked for again ahead of when it is needed"
                    self._part(view, self.given_back, f"{view.id} {why}: give it back")
                continue
            # one wait is enough to get all idle ones again
            again = self._again(self.offers.get(view.shape, view.forecast))
            if view.idle_s * cores >= again and rest > again:
                why = f"{view.id} has idled for {format_duration(view.idle_s)}, which pays for another wait"
                self._part(view, self.given_back, f"{why}: give it back")

    def _is_better_away(self, view: View, kinds: Sequence[TaskKind]) -> bool:
        """Whether known work costs less if one more allocation is given back, even if another is requested later."""
        forecast = self.offers.get(view.shape, view.forecast)
        views = [other for other in self.views if any(other.shape.serves(kind.needs) for kind in kinds)]
        others = [other for other in views if other is not view]
        gone = len(self.given_back)
        as_it_is = rehearse(self.now_s, kinds, self._slots(others, 0.5))
        delays = self._delays(as_it_is, others, forecast)

        def least(there: Sequence[View], jobs: int) -> float:
            ways = [_Way(view.shape, forecast), *(_Way(view.shape, forecast, jobs, d) for d in delays if jobs)]
            return min(self._cost(kinds, there, way) for way in ways)

        return least(others, gone + 1) < least(views, gone)

    def _free(self, *, waiting: bool) -> list[View]:
        """Return allocations that the pool requested by itself: either the pending or the idle ones."""
        views = [view for view in self.views if not view.is_pinned]
        return [v for v in views if (v.start_s is None if waiting else v.start_s is not None and v.idle_s > 0)]

    def _may_go(self, view: View) -> bool:
        have = sum(other.shape.cores for other in self.views)
        return have - view.shape.cores >= self.rules.minimum

    def _part(self, view: View, where: list[str], why: str) -> None:
        where.append(view.id)
        self.reasons.append(why)
        self.views = [other for other in self.views if other is not view]
