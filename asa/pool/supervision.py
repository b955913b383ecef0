"""The loop that keeps a pool going: it watches allocations, plans the pool, requests and returns allocations."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from asa.backend import Capabilities
from asa.errors import SubmitRejectedError, UnavailableError
from asa.waits import WaitForecast

from .allocation import Allocation, AllocationPhase, workers_by_allocation
from .demand import read_demand
from .departures import Departures
from .desk import Desk, PoolNews
from .jobs import WorkerJobs
from .keeper import KEEPER
from .leaving import throw_out
from .planning import decide, surplus, usual_margin_s
from .roster import Roster
from .values import AllocationShape, Decision, PoolRules

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler
    from distributed.security import Security

logger = logging.getLogger("asa.pool")

_LOOK_S = 1.0  # between two looks at allocations and workers without news
_BARE_S = 300.0  # a job is cancelled if it runs this long without a worker


class Supervision:
    """Keeps a pool as its user wants it, for its whole life.

    From `begin` to `end` it runs in the loop of dask's scheduler.

    `price`: how many core-seconds it is worth to be done a second sooner.
    `margin_s`: how many seconds before the end of its walltime an allocation is vacated; None for a tenth of the
    walltime, at most a minute.
    """

    def __init__(
        self,
        roster: Roster,
        desk: Desk,
        jobs: WorkerJobs,
        capabilities: Capabilities,
        *,
        shape: AllocationShape,
        price: float,
        margin_s: float | None,
        folder: Path,
    ) -> None:
        self._roster, self._desk, self._jobs, self._capabilities = roster, desk, jobs, capabilities
        self._margin_s, self._folder = margin_s, folder
        self._usual = PoolRules(price=price, max_waiting=capabilities.max_queued, is_fixed=True)
        self._rules, self._usual_shape = self._usual, shape
        self._offered: tuple[AllocationShape, ...] = (shape,)
        self._due: Counter[str] = Counter()  # how many decisions in a row were to remove an allocation
        self._wake, self._deciding = asyncio.Event(), asyncio.Lock()
        self._warned = ""
        self._task: asyncio.Task[None] | None = None
        self._scheduler: Scheduler
        self._departures: Departures
        self.is_over = False

    # ------------------------------------------------------------------ life cycle

    def begin(self, scheduler: Scheduler, security: Security) -> None:
        """Supervise the pool from now on; dask's scheduler has started."""
        if self._task is None:
            self._scheduler = scheduler
            self._departures = Departures(
                scheduler,
                security,
                self._folder / "kept",
                margin_of=self._margin_of,
                now=self._roster.now,
                cancel=self._desk.cancel,
            )
            self._task = asyncio.ensure_future(self._go_on())

    async def end(self) -> None:
        """Cancel all jobs, and stop."""
        if self.is_over or self._task is None:
            return
        self.is_over = True
        self._rules = self._usual  # these rules keep no cores
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._departures.stop()
        for allocation in self._roster.live():
            allocation.why = allocation.why or "the pool was closed"
            self._desk.cancel(allocation.token)
        await self._departures.close_keeper()

    async def all_ended(self, within_s: float) -> None:
        """Wait until all jobs have ended, but no longer than `within_s`."""
        ends_s = time.monotonic() + within_s
        while self._roster.live() and (left_s := ends_s - time.monotonic()) > 0:
            await self._news(left_s)

    def wake(self) -> None:
        """Check the pool soon, because something has changed."""
        self._wake.set()

    def hear(self, news: PoolNews) -> None:
        """Process a report on jobs; it comes at each look of the desk, also without news."""
        self._roster.hear(news)
        if news.statuses or news.refused:  # otherwise each look, which asks for forecasts, would cause another
            self.wake()

    async def _news(self, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._wake.wait()
        self._wake.clear()

    def some_leave(self) -> bool:
        """Whether workers leave, or have just left."""
        return self.is_over or self._roster.some_leave()

    # ------------------------------------------------------------------ supervision

    async def _go_on(self) -> None:
        while not self.is_over:
            try:
                await self._look_after()
            except Exception:
                logger.exception("the pool could not be looked after")
            await self._news(_LOOK_S)

    async def _look_after(self) -> None:
        """Update the workers, remove allocations whose time is up, and keep as many as were asked for."""
        now_s = self._roster.now()
        workers = workers_by_allocation(self._scheduler.workers.values())
        for allocation in self._roster.live():
            self._roster.see_workers(allocation, workers.get(allocation.id, []), now_s)
            self._give_up_bare(allocation, now_s)
        for one_id, theirs in workers.items():
            if self._roster.has_ended(one_id):
                await throw_out(self._scheduler, [worker.address for worker in theirs])
        await self._departures.look_after(self._roster.live(), now_s)
        if self._rules.is_fixed and self._rules.minimum:
            await self.decide(1)
        here = [worker for worker in self._scheduler.workers.values() if worker.name != KEEPER]
        self._roster.sample(here, now_s)

    def _give_up_bare(self, allocation: Allocation, now_s: float) -> None:
        """Cancel a job that runs too long without a worker."""
        if allocation.is_waiting or allocation.workers or allocation.why or allocation.bare_since_s is None:
            return
        if now_s - allocation.bare_since_s >= _BARE_S:
            allocation.why = f"it has had no worker for {_BARE_S:.0f} s; its output is in {self._folder / 'logs'}"
            logger.warning("allocation %s: %s", allocation.id, allocation.why)
            self._desk.cancel(allocation.token)

    def _margin_of(self, shape: AllocationShape) -> float:
        """Return how many seconds before the end of its walltime an allocation is vacated."""
        if self._margin_s is not None:
            return min(self._margin_s, shape.walltime_s / 2)
        return usual_margin_s(shape)

    # ------------------------------------------------------------------ deciding

    async def decide(self, wait_count: int) -> Decision:
        """Decide on requests and removals, and do them; a removal must be decided `wait_count` times in a row."""
        async with self._deciding:
            return await self._decide(wait_count)

    async def _decide(self, wait_count: int) -> Decision:
        if self._roster.is_barren:
            return Decision()
        now_s = self._roster.now()
        shapes = [shape for shape in self._offered if self._roster.is_possible(shape)]
        forecasts = await asyncio.wrap_future(self._desk.forecasts(shapes))
        # tasks of unknown duration are assumed to be worth a wait: if a job is too small for them, a second wait
        # follows
        unknown_s = min((forecast.at(0.5) for forecast in forecasts.values()), default=0.0)
        kinds = read_demand(self._scheduler, unknown_s, shapes)
        views = [allocation.view(now_s, self._margin_of(allocation.shape)) for allocation in self._roster.useful()]
        margin_s = max((self._margin_of(shape) for shape in shapes), default=0.0)
        rules = replace(self._rules, margin_s=margin_s, startup_s=self._roster.startup_s)
        decision = await asyncio.to_thread(decide, now_s, kinds, views, forecasts, rules)
        if self.is_over or self._rules.is_fixed != rules.is_fixed or self._roster.is_barren:
            return Decision()
        for allocation in self._roster.useful():
            allocation.useless_since_s = (
                (allocation.useless_since_s or now_s) if allocation.id in decision.useless else None
            )
        for shape in decision.ask:
            if self._roster.is_possible(shape):
                try:
                    self._request(shape, forecasts.get(shape) or forecasts[shapes[0]])
                except (SubmitRejectedError, UnavailableError) as error:
                    self._warn_once(str(error))
        for reason in decision.reasons:
            logger.info("%s", reason)
        parted = {*decision.withdraw, *decision.give_back}
        self._due = Counter({one_id: self._due[one_id] + 1 for one_id in parted})
        for one_id in [one_id for one_id in parted if self._due[one_id] >= wait_count]:
            self._part(self._roster[one_id], "it was of no more use")
        return decision

    def _warn_once(self, trouble: str) -> None:
        """Log why a request failed, unless that was the last message: failed requests are repeated all the time."""
        if trouble != self._warned:
            self._warned = trouble
            logger.warning("%s", trouble)

    def _request(self, shape: AllocationShape, forecast: WaitForecast, *, is_pinned: bool = False) -> Allocation:
        """Ask for an allocation."""
        one_id = self._roster.next_id()
        # for workers whose scheduler is gone. A worker's clock begins late, so only half of the margin is subtracted
        lifetime_s = shape.walltime_s - self._margin_of(shape) / 2
        spec = self._jobs.spec(one_id, shape, self._scheduler.address, lifetime_s)
        if (impossible := self._capabilities.impossible(spec)) is not None:
            self._roster.refuse(shape, impossible)
            raise SubmitRejectedError(impossible, where=f"pool {self._jobs.pool!r}", hint="Ask for less.")
        allocation = Allocation(one_id, spec.token, shape, self._roster.now(), forecast, is_pinned)
        self._roster.add(allocation)
        self._warned = ""
        self._desk.submit(spec, forecast)
        return allocation

    def _part(self, allocation: Allocation, why: str) -> None:
        """End an allocation, or withdraw it while it is pending."""
        if allocation.phase in (AllocationPhase.ALIVE, AllocationPhase.DRAINING):
            self._departures.give_back(allocation, why)
        elif allocation.phase is not AllocationPhase.ENDED:
            allocation.why = allocation.why or why
            self._desk.cancel(allocation.token)
            if allocation.phase is AllocationPhase.STARTING:
                allocation.phase = AllocationPhase.DRAINING

    # ------------------------------------------------------------------ requests of users

    async def ask(self, shape: AllocationShape) -> Allocation:
        """Submit an allocation that stays until the user releases it."""
        self._roster.hope_again()
        forecasts = await asyncio.wrap_future(self._desk.forecasts([shape]))
        return self._request(shape, forecasts[shape], is_pinned=True)

    def part_for_good(self, allocation: Allocation, why: str) -> None:
        """Release an allocation as soon as its results can be moved."""
        allocation.unwanted = why
        self._part(allocation, why)

    def scale(self, cores: int) -> None:
        """Keep a number of cores."""
        self._roster.hope_again()
        self._rules, self._offered = replace(self._usual, minimum=cores, maximum=cores), (self._usual_shape,)
        now_s = self._roster.now()
        pinned = [allocation for allocation in self._roster.useful() if allocation.is_pinned]
        others = [allocation for allocation in self._roster.useful() if not allocation.is_pinned]
        for allocation in others:
            allocation.unwanted = ""  # the allocations that leave are chosen anew
        views = [allocation.view(now_s, self._margin_of(allocation.shape)) for allocation in others]
        part = surplus(now_s, views, max(cores - sum(allocation.shape.cores for allocation in pinned), 0))
        for one_id in (*part.withdraw, *part.give_back):
            self.part_for_good(self._roster[one_id], "fewer workers were asked for")
        self.wake()

    def close_workers(self, names: Collection[str]) -> None:
        """Give back allocations all of whose workers are named, and lower the number of cores to keep."""
        for allocation in self._roster.useful():
            if allocation.workers and allocation.workers.issubset(names):
                self._rules = replace(self._rules, minimum=max(self._rules.minimum - allocation.shape.cores, 0))
                self.part_for_good(allocation, "its workers were to close")

    def adapt(
        self,
        offered: tuple[AllocationShape, ...],
        *,
        minimum: int,
        maximum: float,
        price: float | None,
        target_s: float,
    ) -> None:
        """From now on ask for as much as the work is worth, in jobs of the offered shapes; see `PoolRules`."""
        self._roster.hope_again()
        self._offered = offered
        self._rules = replace(
            self._usual,
            minimum=minimum,
            maximum=maximum,
            price=self._usual.price if price is None else price,
            target_s=target_s,
            is_fixed=False,
        )

    @property
    def stuck(self) -> str:
        """Reason why the pool has no allocation and will not ask for one; empty if it has an allocation or may ask."""
        return self._roster.stuck(self._offered)
