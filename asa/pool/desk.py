"""The thread that alone speaks with the batch system, and keeps what is known of waits, while dask's loop goes on."""

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

from asa.backend import Backend, Capabilities, Facility, JobSpec, JobState, JobStatus
from asa.errors import (
    AsaError,
    BackendError,
    JobNotFoundError,
    StateError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)
from asa.estimators import WaitBank, WaitStore
from asa.estimators.bank import OwnJob
from asa.waits import QueuedJob, WaitForecast, at_least, exactly

from .values import Shape

__all__ = ["Desk", "News"]

_T = TypeVar("_T")

logger = logging.getLogger("asa.pool")

_PAUSE_S = 1.0  # the longest of a wait for the batch system, which tells sooner what changes
_OUTLOOK_S = 15.0  # between looks at when jobs are expected to start, which is no news
_IDLE_S = 10.0  # between looks at everybody's queue while there is no job of ours
_AGAIN_S = (5.0, 10.0, 20.0, 40.0, 60.0)  # pauses before a job that could not be sent is sent again
_CLOSING_S, _HURRY_S = 8.0, 2.0  # at the end, for what could not be cancelled; between tries
_LOOKS = 2  # for a job of which nobody knows whether it was accepted
_FEW_WAITS = 10
_HISTORY = 2000  # everybody's past jobs to learn at the beginning
_UNSENT = "it was not wanted any more before it was sent"


@dataclass(frozen=True, slots=True)
class News:
    """What became known of the pool's jobs."""

    now_s: float  # the time, on the batch system's clock
    statuses: Mapping[str, JobStatus] = field(default_factory=dict)  # of jobs that changed, by their tokens
    refused: Mapping[str, str] = field(default_factory=dict)  # why a job will never be accepted, by its token
    trouble: str = ""  # why the batch system cannot be asked, if so
    told_s: float = field(default_factory=time.time)  # the same time, on this process's clock: it may be heard later


@dataclass(slots=True)
class _Wanted:
    """A job that is to be sent."""

    spec: JobSpec
    forecast: WaitForecast
    again_s: float = 0.0
    failures: int = 0
    looks: int = 0  # left to take for it, where it may have been accepted
    is_unwanted: bool = False  # and is to be cancelled if it was


@dataclass(slots=True)
class _Sent:
    """A job that the batch system has."""

    spec: JobSpec
    own: OwnJob | None
    is_waiting: bool = True
    is_over: bool = False
    told: JobStatus | None = None
    cancel_s: float | None = None  # when to tell it, again
    is_cancelled: bool = False  # it was told


class Desk(threading.Thread):
    """Submits, looks and cancels, one thing after the other.

    Whatever is asked of it is put into a line; whatever it learns it tells. So nothing waits for a batch system that
    takes its time, and no two threads speak with it. It looks as often as the backend holds right.

    `bank`: folder in which waits are kept; None to keep them for as long as this lives.
    `unlearned`: what to expect until a few waits are known; what the estimator says if not given.
    """

    def __init__(
        self,
        facility: Facility,
        folder: Path,
        tell: Callable[[News], None],
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
        self._wanted: dict[str, _Wanted] = {}
        self._sent: dict[str, _Sent] = {}
        self._tokens: dict[str, str] = {}
        self._left: set[str] = set()  # tokens of an earlier pool's jobs, which are to be cancelled
        self._clear_s = 0.0
        self._trouble = ""  # with the last that could not be cancelled
        self._looked_s = self._outlook_s = float("-inf")
        self._is_in_trouble = False  # and has said so
        self._backend: Backend
        self._bank: WaitBank
        self.connected: Future[Capabilities] = Future()
        self._ended: Future[None] = Future()
        self._ended.set_running_or_notify_cancel()  # who does not wait for it any more does not hinder it

    # ------------------------------------------------------------------ for other threads

    def submit(self, spec: JobSpec, forecast: WaitForecast) -> None:
        """Have a job submitted, once, as soon as that can be; what becomes of it is told under its token."""
        self._order(lambda: self._wanted.setdefault(spec.token, _Wanted(spec, forecast)))

    def cancel(self, token: str) -> None:
        """Have a job cancelled, or not submitted any more."""
        self._order(lambda: self._cancel(token))

    def clear(self, tokens: Iterable[str]) -> None:
        """Have jobs cancelled that an earlier pool in this folder has left."""
        left = set(tokens)
        self._order(lambda: self._left.update(left))

    def forecasts(self, shapes: Iterable[Shape]) -> Future[dict[Shape, WaitForecast]]:
        """Ask how long jobs would wait if they were submitted now."""
        wanted = list(dict.fromkeys(shapes))
        return self._order(lambda: {shape: self._predict(shape) for shape in wanted})

    def stop(self) -> Future[None]:
        """End, once all that is to be cancelled is, or after a while; what may be left then is told in a warning."""
        self._order(self._end)
        return self._ended

    def _order(self, work: Callable[[], _T]) -> Future[_T]:
        told: Future[_T] = Future()
        if self._is_over:
            told.cancel()  # nobody would do it

        def do() -> None:
            if not told.set_running_or_notify_cancel():
                return  # who asked does not wait for it any more
            try:
                told.set_result(work())
            except Exception as error:  # noqa: BLE001 - whoever waits for it is to see it
                told.set_exception(error)

        self._orders.put(do)
        self._is_wanted.set()
        return told

    # ------------------------------------------------------------------ the thread

    def run(self) -> None:
        """Connect, and serve until it is stopped."""
        try:
            self._backend = self._facility.connect(self._folder, sleep=self._is_wanted.wait)
            self._bank = self._open_bank()
        except BaseException as error:  # noqa: BLE001 - the thread that waits is to raise it
            self.connected.set_exception(error)
            self._ended.set_result(None)
            return
        self.connected.set_result(self._backend.capabilities)
        while self._serve():
            try:
                self._look()
            except AsaError as error:
                self._tell_trouble(str(error))
            except Exception as error:  # a fault of a backend's: without this thread the pool would stand still
                logger.exception("the batch system could not be asked")
                self._tell_trouble(f"{type(error).__name__}: {error}")
        self._settle()
        if self._bank.store is not None:
            self._bank.store.close()
        self._ended.set_result(None)

    def _tell_trouble(self, trouble: str) -> None:
        """Say that the batch system cannot be asked, and leave it alone for a moment."""
        self._is_in_trouble = True
        self._tell(News(self._backend.now(), trouble=trouble))
        self._is_wanted.wait(_AGAIN_S[0])

    def _serve(self) -> bool:
        """Do what was asked for; tell whether to go on."""
        self._is_wanted.clear()
        with suppress(queue.Empty):
            while not self._is_over:
                self._orders.get_nowait()()
        return not self._is_over

    def _end(self) -> None:
        self._is_over = True

    def _settle(self) -> None:
        """Go on cancelling, for a while, until nothing of what is not wanted may run; say what may."""
        ends_s = time.monotonic() + _CLOSING_S
        while True:
            for work in (self._find_unwanted, self._cancel_unwanted, self._clear):
                try:
                    work()
                except Exception as error:  # noqa: BLE001 - also a fault of a backend's: the rest is to be cancelled
                    self._trouble = str(error)
            left = [f"job {job_id}" for job_id, _ in self._uncancelled()]
            left += [f"what was sent with the token {token}, if it was accepted" for token in self._wanted_not()]
            left += [f"what an earlier pool has sent with the token {token}" for token in sorted(self._left)]
            if not left:
                return
            if (rest_s := ends_s - time.monotonic()) <= 0:
                break
            time.sleep(min(_HURRY_S, rest_s))
        logger.warning(
            "the pool in %s could not cancel all that it had asked for%s; what may be left: %s. "
            "Look for it in the queue and cancel it, or begin a pool in the same folder, which does.",
            self._folder, f": {self._trouble}" if self._trouble else "", "; ".join(left),
        )  # fmt: skip

    def _wanted_not(self) -> list[str]:
        return [token for token, wanted in self._wanted.items() if wanted.is_unwanted]

    def _find_unwanted(self) -> None:
        """Look for what may have been accepted, and is not wanted any more."""
        if tokens := self._wanted_not():
            for token, found in self._backend.find(tokens).items():
                if found:
                    self._accept(token, found[0])

    def _uncancelled(self) -> list[tuple[str, _Sent]]:
        told = ((job_id, self._sent[token]) for job_id, token in self._tokens.items())
        return [
            (job_id, one) for job_id, one in told if one.cancel_s is not None and not (one.is_cancelled or one.is_over)
        ]

    def _cancel_unwanted(self) -> None:
        for job_id, sent in self._uncancelled():
            self._tell_cancellation(job_id, sent)

    def _open_bank(self) -> WaitBank:
        cores = self._backend.capabilities.max_cores
        try:
            store = WaitStore(self._bank_folder) if self._bank_folder is not None else None
            return WaitBank(self._estimator, machine_cores=cores, store=store)
        except StateError:  # a pool works without what was learned before
            return WaitBank(self._estimator, machine_cores=cores)

    def _look(self) -> None:
        """Send what is due, and hear what happened; take a nap in the backend's way."""
        backend, now_s = self._backend, self._backend.now()
        refused = {token: why for token in list(self._wanted) if (why := self._send(token, now_s))}
        self._cancel_due(now_s)
        if self._bank.store is not None:
            self._bank.refresh()
        live = [job_id for job_id, token in self._tokens.items() if not self._sent[token].is_over]
        if is_asked := bool(live) or now_s - self._looked_s >= _IDLE_S:
            self._looked_s = now_s
            self._bank.follow(backend.queue_events(_HISTORY, ends=self._bank.sees_queue))
        if live or self._wanted:
            told = {status.job_id: status for status in backend.wait(now_s + _PAUSE_S)}
        else:
            self._is_wanted.wait(_IDLE_S)
            told = {}
        if live and now_s - self._outlook_s >= _OUTLOOK_S:
            self._outlook_s = now_s
            told |= backend.status(live)
        changed = {}
        for job_id, status in told.items():
            token = self._tokens.get(job_id)
            if token is not None and status != self._sent[token].told:
                self._hear(token, status)
                changed[token] = status
        if changed or refused or live or (is_asked and self._is_in_trouble):
            self._is_in_trouble = False
            self._tell(News(backend.now(), changed, refused, backend.condition.trouble))

    def _cancel_due(self, now_s: float) -> None:
        for job_id, token in self._tokens.items():
            if (cancel_s := self._sent[token].cancel_s) is not None and now_s >= cancel_s:
                self._tell_cancellation(job_id, self._sent[token])
        if self._left and now_s >= self._clear_s:
            self._clear_s = now_s + _AGAIN_S[0]
            try:
                self._clear()
            except BackendError as error:
                self._tell(News(now_s, trouble=str(error)))

    def _send(self, token: str, now_s: float) -> str:
        """Send a job that is due, or look for one that may have been accepted; return why it never will be."""
        wanted, backend = self._wanted[token], self._backend
        if now_s < wanted.again_s:
            return ""
        try:
            if wanted.looks:
                found = backend.find([token])[token]
                wanted.looks -= 1
                if found:
                    self._accept(token, found[0])
                    return ""
                if wanted.looks:
                    wanted.again_s = now_s + _AGAIN_S[0]
                    return ""
            if wanted.is_unwanted:
                del self._wanted[token]
                return _UNSENT
            job_id = backend.submit(wanted.spec)  # of two jobs of a token only one runs: none is too many
        except SubmitRejectedError as error:
            del self._wanted[token]
            return str(error)
        except SubmitInDoubtError:
            wanted.looks, wanted.again_s = _LOOKS, now_s + _AGAIN_S[0]
        except (SubmitDeferredError, UnavailableError):
            wanted.again_s = now_s + _AGAIN_S[min(wanted.failures, len(_AGAIN_S) - 1)]
            wanted.failures += 1
        else:
            self._accept(token, JobStatus(job_id, JobState.PENDING, backend.now()))
        return ""

    def _accept(self, token: str, status: JobStatus) -> None:
        wanted = self._wanted.pop(token)
        spec = wanted.spec
        job = self._job(status.submit_s, spec.cores, spec.walltime_s, spec.partition)
        self._tell(News(self._backend.now(), {token: status}))  # the first look into a bank takes its time
        self._sent[token] = _Sent(spec, self._bank.submitted(job, wanted.forecast))
        self._tokens[status.job_id] = token
        if wanted.is_unwanted:
            self._cancel(token)

    def _hear(self, token: str, status: JobStatus) -> None:
        """Take in how a job stands, and learn from its wait once that is over."""
        sent = self._sent[token]
        sent.told = status
        sent.is_over = status.state.is_final
        if not sent.is_waiting or (status.start_s is None and not sent.is_over):
            return
        sent.is_waiting = False
        if (own := sent.own) is None:
            return
        if status.restarts or status.held or (status.start_s is None and status.end_s is None):
            self._bank.withdrawn(own)  # how long it would have waited is not to be known
            return
        since_s = max(status.submit_s, status.eligible_s or 0.0)
        waited_s = max((status.end_s or since_s if status.start_s is None else status.start_s) - since_s, 0.0)
        observation = at_least(waited_s) if status.start_s is None else exactly(waited_s)
        with suppress(StateError):  # a store that cannot be written stops no pool
            self._bank.observe(own, observation, token=token)

    def _clear(self) -> None:
        """Cancel what an earlier pool has left; what could not be is done again."""
        trouble: BackendError | None = None
        for token, statuses in self._backend.find(sorted(self._left)).items() if self._left else ():
            try:
                for status in statuses:
                    if not status.state.is_final:
                        with suppress(JobNotFoundError):
                            self._backend.cancel(status.job_id)
            except BackendError as error:  # the others' may be
                trouble = error
            else:
                self._left.discard(token)
        if trouble is not None:
            raise trouble

    def _cancel(self, token: str) -> None:
        if (wanted := self._wanted.get(token)) is not None:
            wanted.is_unwanted = True
            if not wanted.looks:
                del self._wanted[token]
                self._tell(News(self._backend.now(), refused={token: _UNSENT}))
        elif (sent := self._sent.get(token)) is not None and not sent.is_over:
            sent.cancel_s = self._backend.now()
            self._tell_cancellation(next(job_id for job_id, own in self._tokens.items() if own == token), sent)

    def _tell_cancellation(self, job_id: str, sent: _Sent) -> None:
        if sent.is_over:
            return
        now_s = self._backend.now()
        sent.cancel_s = now_s + _AGAIN_S[-1]
        try:
            self._backend.cancel(job_id)
            sent.is_cancelled = True
        except JobNotFoundError:
            sent.cancel_s = None
        except BackendError as error:
            sent.cancel_s = now_s + _AGAIN_S[0]
            self._trouble = str(error)

    def _predict(self, shape: Shape) -> WaitForecast:
        if self._unlearned is not None and self._bank.learned < _FEW_WAITS:
            return self._unlearned
        return self._bank.predict(self._job(self._backend.now(), shape.cores, shape.walltime_s, shape.partition))

    def _job(self, submit_s: float, cores: int, walltime_s: float, partition: str) -> QueuedJob:
        """Describe a job as an estimator wants to know it."""
        site = self._backend.capabilities
        return QueuedJob(submit_s, cores, walltime_s, self._bank.user, site.system, partition or site.partition)
