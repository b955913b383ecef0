"""The thread that makes all calls to the batch system and keeps the learned waits, so that dask's loop never waits."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from asa.backend import Backend, Capabilities, Facility, JobSpec, JobStatus
from asa.errors import AsaError, StateError
from asa.estimators import WaitBank, WaitStore
from asa.exactly_once import AGAIN_S
from asa.observations import queued
from asa.waits import WaitForecast

from .submission import PoolJobs
from .values import AllocationShape

_T = TypeVar("_T")

logger = logging.getLogger("asa.pool")

_PAUSE_S = 1.0  # upper bound of a wait for changes; the batch system reports them sooner
_OUTLOOK_S = 15.0  # between requests for expected starts, which are not reported as changes
_IDLE_S = 10.0  # between queries of the queue of all users while the pool has no job
_CLOSING_S, _HURRY_S = 8.0, 2.0  # at the end: time for cancellations, and the pause between tries
_FEW_WAITS = 10
_HISTORY = 2000  # past jobs of all users to learn from at the beginning


@dataclass(frozen=True, slots=True)
class PoolNews:
    """News of the pool's jobs."""

    now_s: float  # on the batch system's clock
    statuses: Mapping[str, JobStatus] = field(default_factory=dict)  # of jobs that changed, by token
    refused: Mapping[str, str] = field(default_factory=dict)  # why a job will never be accepted, by token
    trouble: str = ""  # why the batch system does not answer; empty if it does
    local_now_s: float = field(default_factory=time.time)  # on this process's clock, as the news may be processed later


class Desk(threading.Thread):
    """Submits, polls and cancels jobs, one call after the other.

    Requests are queued, and results are reported by callbacks. So no caller waits for a slow batch system, and only one
    thread calls it. The thread polls as often as the backend allows.

    `bank`: folder for learned waits; None to keep them in memory only.
    `unlearned`: the forecast until a few waits are known; by default the estimator's.
    """

    def __init__(
        self,
        facility: Facility,
        folder: Path,
        tell: Callable[[PoolNews], None],
        *,
        bank: Path | None = None,
        estimator: str = "asa",
        unlearned: WaitForecast | None = None,
    ) -> None:
        super().__init__(name="asa-pool-desk", daemon=True)
        self._facility, self._folder, self._tell = facility, folder, tell
        self._bank_folder, self._estimator, self._unlearned = bank, estimator, unlearned
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_wanted = threading.Event()
        self._is_over = False
        self._looked_s = self._outlook_s = float("-inf")
        self._is_in_trouble = False  # whether the trouble was reported
        self._backend: Backend
        self._bank: WaitBank
        self._jobs: PoolJobs
        self.connected: Future[Capabilities] = Future()
        self._ended: Future[None] = Future()
        # a caller that cancels its wait for this future does not cancel the end
        self._ended.set_running_or_notify_cancel()

    # ------------------------------------------------------------------ for other threads

    def submit(self, spec: JobSpec, forecast: WaitForecast) -> None:
        """Submit a job once, as soon as possible; news of it is reported under its token."""
        self._order(lambda: self._jobs.want(spec, forecast))

    def cancel(self, token: str) -> None:
        """Cancel a job, or do not submit it any more."""
        self._order(lambda: self._jobs.want_no_more(token))

    def clear(self, tokens: Iterable[str]) -> None:
        """Cancel jobs that an earlier pool in this folder has left."""
        left = set(tokens)
        self._order(lambda: self._jobs.clear(left))

    def forecasts(self, shapes: Iterable[AllocationShape]) -> Future[dict[AllocationShape, WaitForecast]]:
        """Predict how long jobs would wait if they were submitted now."""
        wanted = list(dict.fromkeys(shapes))
        return self._order(lambda: {shape: self._predict(shape) for shape in wanted})

    def stop(self) -> Future[None]:
        """End once all unwanted jobs are cancelled, or after a while; a warning then names those that may be left."""
        self._order(self._end)
        return self._ended

    def _order(self, work: Callable[[], _T]) -> Future[_T]:
        future: Future[_T] = Future()
        if self._is_over:
            future.cancel()  # the thread has ended, so this future would never be done

        def do() -> None:
            if not future.set_running_or_notify_cancel():
                return  # the caller no longer waits for the answer
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - passed on to the caller
                future.set_exception(error)

        self._orders.put(do)
        self._is_wanted.set()
        return future

    # ------------------------------------------------------------------ the thread

    def run(self) -> None:
        """Connect, and serve requests until stopped."""
        try:
            self._backend = self._facility.connect(self._folder, sleep=self._is_wanted.wait)
            self._bank = self._open_bank()
            self._jobs = PoolJobs(self._backend, self._bank, self._tell_news)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self.connected.set_exception(error)
            self._ended.set_result(None)
            return
        self.connected.set_result(self._backend.capabilities)
        while self._serve():
            try:
                self._look()
            except AsaError as error:
                self._tell_trouble(str(error))
            except Exception as error:  # a bug in a backend must not end this thread
                logger.exception("the batch system could not be asked")
                self._tell_trouble(f"{type(error).__name__}: {error}")
        self._settle()
        if self._bank.store is not None:
            self._bank.store.close()
        self._ended.set_result(None)

    def _tell_trouble(self, trouble: str) -> None:
        """Report that the batch system does not answer, and pause."""
        self._is_in_trouble = True
        self._tell(PoolNews(self._backend.now(), trouble=trouble))
        self._is_wanted.wait(AGAIN_S[0])

    def _serve(self) -> bool:
        """Process queued requests; return whether to continue."""
        self._is_wanted.clear()
        with suppress(queue.Empty):
            while not self._is_over:
                self._orders.get_nowait()()
        return not self._is_over

    def _end(self) -> None:
        self._is_over = True

    def _settle(self) -> None:
        """Retry cancellations for a while, until no unwanted job can be left; warn of jobs that may be left."""
        ends_s, trouble = time.monotonic() + _CLOSING_S, ""
        while True:
            for work in (self._jobs.see_to_unwanted, self._jobs.sweep, self._clear):
                try:
                    work()
                except Exception as error:  # noqa: BLE001 - the rest must still be cancelled
                    trouble = str(error)
            left = self._jobs.left_behind()
            if not left:
                return
            trouble = trouble or self._jobs.last_trouble
            if (rest_s := ends_s - time.monotonic()) <= 0:
                break
            time.sleep(min(_HURRY_S, rest_s))
        logger.warning(
            "the pool in %s could not cancel all that it had asked for%s; what may be left: %s. "
            "Look for it in the queue and cancel it, or begin a pool in the same folder, which does.",
            self._folder, f": {trouble}" if trouble else "", "; ".join(left),
        )  # fmt: skip

    def _clear(self) -> None:
        self._jobs.clear_what_was_left(at_once=True)

    def _open_bank(self) -> WaitBank:
        cores = self._backend.capabilities.max_cores
        try:
            store = WaitStore(self._bank_folder) if self._bank_folder is not None else None
            return WaitBank(self._estimator, machine_cores=cores, store=store)
        except StateError:  # a pool also works without earlier waits
            return WaitBank(self._estimator, machine_cores=cores)

    def _look(self) -> None:
        """Send due requests, process news, and sleep as the backend does."""
        backend, now_s = self._backend, self._backend.now()
        self._jobs.see_to_all()
        if trouble := self._jobs.clear_what_was_left():
            self._tell(PoolNews(now_s, trouble=trouble))
        if self._bank.store is not None:
            self._bank.refresh()
        live = self._jobs.live()
        if is_asked := bool(live) or now_s - self._looked_s >= _IDLE_S:
            self._looked_s = now_s
            self._bank.follow(backend.queue_events(_HISTORY, ends=self._bank.sees_queue))
        if live or self._jobs.to_send():
            for status in backend.wait(now_s + _PAUSE_S):
                self._jobs.heard(status)
        else:
            self._is_wanted.wait(_IDLE_S)
        if live and now_s - self._outlook_s >= _OUTLOOK_S:
            self._outlook_s = now_s
            self._jobs.ask(live)
        if self._jobs.statuses or self._jobs.refused or live or (is_asked and self._is_in_trouble):
            self._is_in_trouble = False
            self._tell_news()

    def _tell_news(self) -> None:
        """Report the news of jobs since the last report."""
        jobs = self._jobs
        news = PoolNews(self._backend.now(), jobs.statuses, jobs.refused, self._backend.condition.trouble)
        jobs.statuses, jobs.refused = {}, {}
        self._tell(news)

    def _predict(self, shape: AllocationShape) -> WaitForecast:
        if self._unlearned is not None and self._bank.learned < _FEW_WAITS:
            return self._unlearned
        now_s, site = self._backend.now(), self._backend.capabilities
        return self._bank.predict(queued(shape, site, now_s, self._bank.user))
