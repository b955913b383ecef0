"""A cluster of dask's whose workers are jobs of a batch system, asked for a wait ahead of when they are needed."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import secrets
import shlex
import sys
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dask.utils import parse_bytes
from distributed.core import Status
from distributed.deploy.adaptive import Adaptive
from distributed.deploy.spec import SpecCluster
from distributed.deploy.utils import nprocesses_nthreads
from distributed.scheduler import Scheduler
from distributed.security import Security
from distributed.utils import NoOpAwaitable
from rich.console import Console
from rich.live import Live
from rich.table import Table

from asa.backend import JobSpec, JobState, JobStatus
from asa.errors import InputError, SubmitRejectedError
from asa.estimators.store import default_folder
from asa.sites import open_facility
from asa.units import parse_duration
from asa.waits import LEVELS, WaitForecast

from .allocation import Allocation, Phase
from .credentials import keep_credentials, make_security
from .demand import longest_task_s, read_demand
from .desk import Desk, News
from .keeper import KEEPER, Keeper, gather_on, open_keeper, sole_bytes
from .leaving import leave, others_run, throw_out
from .picture import draw_timeline
from .planning import decide, drain_from_s, surplus
from .table import draw
from .values import Decision, Rules, Shape

__all__ = ["AsaCluster", "ProactiveAdaptive"]

logger = logging.getLogger("asa.pool")

_HERE = "local"  # the backend whose jobs are processes of this machine
_WALLTIME_S, _WALLTIME_HERE_S = 3600.0, 86400.0
_LOOK_S = 1.0  # between looks at allocations and workers, if nothing is told before
_MARGIN_SHARE, _MARGIN_S = 0.1, 60.0
_DEATH_S = 120.0  # a worker that does not find its scheduler for so long ends
_BARE_S = 300.0  # a job that runs without a worker for so long is of no use
_MOST_BARREN = 3  # jobs in a row that ended without a worker, before no more is asked for
_RETRY_S = 5.0  # before workers whose results could not move are asked to leave again
_PATIENCE_S = 60.0  # for tasks that began on an allocation that is given back
_LAST_SHARE = 0.7  # of the margin before the end of a walltime, for results to move
_KEPT_BYTES = 2**30  # of results that an allocation need not be held for: the client keeps them
_CLOSING_S = 10.0  # for jobs of this machine to end when the pool is closed
_SETTLING_S = 30.0  # for the desk, which ends sooner by itself unless the batch system does not answer
_LEARN = 0.5  # weight of the latest startup
_ASKED = "asked"  # tokens of jobs, in the pool's folder
_EACH_NODE = "srun --ntasks-per-node=1 --cpu-bind=none"


class ProactiveAdaptive(Adaptive):
    """Decides, at dask's intervals, by `asa.pool.planning.decide`; see there for the rules, and `AsaCluster.adapt`."""

    async def adapt(self) -> None:
        """Decide once."""
        await self.cluster.decide_now(self.wait_count)


class AsaCluster(SpecCluster):
    """One pool of workers over many allocations.

    With no arguments its workers are processes of this machine, on all of its cores; or, where a site is set up (`asa
    doctor --save`) or a batch system is found, jobs there, of which there are none until `scale`, `adapt` or `ask`.

    Parameters
    ----------
    site, backend, settings
        Where jobs go, as for `asa run`: a site's name; or a backend's and its settings.
    cores, memory, gpus, nodes, walltime, partition, account, options
        What a job asks for where nothing else is said: all cores of a node for an hour. Memory as in ``"64 GB"``,
        walltime in seconds or as in ``"1h30m"``. `options` are in the batch system's words.
    threads
        Of each worker process; as dask would split the cores if not given.
    tags
        Resources that its workers offer, as names of stages: ``client.submit(f, resources={"train": 1})`` finds them.
    n_workers
        To begin with, as in `scale`. On this machine as many as there are cores for, else none, if not given.
    folder
        Where the jobs' scripts, output and credentials are kept, on a file system that compute nodes see. A folder of
        its own in what ``ASA_POOLS`` names, or in ``asa-pools`` here, if not given. What is left of an earlier pool in
        the same folder, whose process died, is cancelled.
    bank
        Folder where waits are learned for good: as for `asa run` if not given, none with False.
    estimator
        Of waits; see `asa list`.
    price
        Cores that one is ready to pay for as long as the work is not done: an hour sooner is worth so many core-hours.
        As many as an allocation has, if not given.
    margin
        How long before the end of its walltime an allocation is left; a tenth of it, at most a minute, if not given.
    security
        Who may talk to the pool. With None, a certificate is made for it where its workers are on other machines.
    host, interface, dashboard_address
        Where the scheduler listens; this machine's own address for workers elsewhere, the loopback for workers here.
    python
        The interpreter on the compute nodes.
    launcher
        Starts a command once on each node of a job of several nodes.
    name, asynchronous, loop, **kwargs
        As for `distributed.SpecCluster`.

    Notes
    -----
    It is a `SpecCluster` for its life cycle, and for what asks whether it is one. Its specification stays empty: that
    one is for workers that should be there at once and are corrected until they are, whereas here each job is a thing
    of its own that waits, lives and ends.

    Results that only leaving workers hold, with nobody there to take them, move to this process: at the end of a
    walltime as much as there is time for, otherwise up to 1 GiB, beyond which an allocation that is given back stays
    until others have come.

    The scheduler is in this process. When it dies so do tasks and results; the workers end at once, jobs that still
    wait end two minutes after they start, and what was learned of waits is kept.

    Examples
    --------
    ::

        with AsaCluster() as cluster, Client(cluster) as client:
            client.submit(sum, [1, 2]).result()
    """

    def __init__(
        self,
        *,
        site: str | None = None,
        backend: str | None = None,
        settings: Mapping[str, Any] | None = None,
        cores: int = 0,
        threads: int = 0,
        memory: str | int = 0,
        gpus: int = 0,
        nodes: int = 0,
        walltime: str | float = 0.0,
        partition: str = "",
        account: str = "",
        options: Iterable[str] = (),
        tags: Iterable[str] = (),
        n_workers: int | None = None,
        folder: str | Path | None = None,
        bank: str | Path | bool | None = None,
        estimator: str = "asa",
        price: float | None = None,
        margin: str | float | None = None,
        security: Security | None = None,
        host: str | None = None,
        interface: str | None = None,
        dashboard_address: str | None = None,
        python: str = sys.executable,
        launcher: str = _EACH_NODE,
        name: str | None = None,
        asynchronous: bool = False,
        loop: Any = None,
        **kwargs: Any,
    ) -> None:
        opened = open_facility(backend, site, settings)
        self._is_here = opened.backend == _HERE
        name = name or time.strftime("pool-%Y%m%d-%H%M%S-") + secrets.token_hex(2)
        self.folder = _made(Path(folder or Path(os.environ.get("ASA_POOLS") or "asa-pools") / name))
        self._python, self._launcher, self._interface = python, launcher, interface
        self._offset_s = 0.0
        self._allocations: dict[str, Allocation] = {}
        self._tokens: dict[str, Allocation] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._again_s: dict[str, float] = {}
        self._due: Counter[str] = Counter()
        self._samples: list[tuple[float, int, int, int]] = []
        self._refused: set[Shape] = set()
        self._barren = 0
        self._refusal = ""
        self._wanted_cores: int | None = None
        self._supervision: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[Keeper] | None = None
        self._is_closing = False
        self._wake, self._deciding = asyncio.Event(), asyncio.Lock()
        self.trouble = ""
        store = None if bank is False else default_folder() if bank is None or bank is True else Path(bank)
        # nobody else's jobs are in this machine's queue
        unlearned = WaitForecast((0.0,) * len(LEVELS), 0.0) if self._is_here else None
        self._desk = Desk(
            opened.facility, self.folder, self._post, bank=store, estimator=estimator, unlearned=unlearned
        )
        self._desk.start()
        self.capabilities = self._desk.connected.result()
        if (asked := self.folder / _ASKED).exists():
            self._desk.clear(asked.read_text(encoding="ascii").split())
        try:
            self.shape = self._shape(
                cores,
                _seconds(walltime),
                threads,
                nodes,
                memory_bytes=parse_bytes(memory),
                gpus=gpus,
                tags=frozenset(tags),
                partition=partition,
                account=account,
                options=tuple(options),
            )
            self._offered: tuple[Shape, ...] = (self.shape,)
            self._margin_s = None if margin is None else _seconds(margin)
            price = float(self.shape.cores) if price is None else price
            self._own_rules = Rules(price=price, most_waiting=self.capabilities.most_queued, is_fixed=True)
            self._rules = self._own_rules
            if security is None:
                security = Security() if self._is_here else make_security()
            self._credentials = keep_credentials(security, self.folder)
            self._has_dashboard = find_spec("bokeh") is not None
            super().__init__(
                scheduler={"cls": Scheduler, "options": self._listening(security, host, interface, dashboard_address)},
                worker={"options": {"nthreads": self.shape.threads}},  # for dask's arithmetic; none is ever made of it
                security=security,
                name=name,
                asynchronous=asynchronous,
                loop=loop,
                **{"silence_logs": logging.WARNING, **kwargs},  # as LocalCluster does
            )
        except BaseException:
            self._desk.stop()
            raise
        if n_workers is None:
            n_workers = self.capabilities.max_cores // self.shape.threads if self._is_here else 0
        if n_workers:
            self.scale(n_workers)

    def _shape(self, cores: int, walltime_s: float, threads: int, nodes: int, **more: Any) -> Shape:
        """Say what a job asks for where nothing else is said, which depends on where it goes."""
        site_cores = self.capabilities.max_cores if self._is_here else self.capabilities.cores_per_node
        cores = cores or max(site_cores, 1) * max(nodes, 1)
        walltime_s = walltime_s or (_WALLTIME_HERE_S if self._is_here else _WALLTIME_S)
        return Shape(cores, walltime_s, threads or nprocesses_nthreads(cores // max(nodes, 1))[1], nodes=nodes, **more)

    def _listening(
        self, security: Security, host: str | None, interface: str | None, dashboard_address: str | None
    ) -> dict[str, Any]:
        """Say where dask's scheduler listens, and to whom."""
        return {
            "protocol": "tls://" if security.require_encryption else "tcp://",
            "host": host or ("127.0.0.1" if self._is_here and not interface else None),
            "interface": interface,
            "security": security,
            "dashboard": self._has_dashboard,
            "dashboard_address": dashboard_address or (":8787" if self._has_dashboard else ":0"),
        }

    # ------------------------------------------------------------------ life

    async def _start(self) -> None:
        if self.status in (Status.running, Status.closed):
            return
        await super()._start()
        if self._supervision is None:
            self._supervision = asyncio.ensure_future(self._supervise())
        if self._wanted_cores is not None:
            self._scale(self._wanted_cores)
            self._wanted_cores = None

    async def _close(self) -> None:
        if self.status is Status.running and not self._is_closing:
            self._is_closing = True
            self._rules = replace(self._own_rules, minimum=0)
            for task in [self._supervision, *self._leaving.values()]:
                if task is not None:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
            for one in self._live():
                one.why = one.why or "the pool was closed"
                self._desk.cancel(one.token)
            self._supervision = None
            await self._close_keeper()
        await super()._close()
        if self._desk.is_alive():
            ends_s = time.monotonic() + _CLOSING_S
            while self._is_here and self._live() and (left_s := ends_s - time.monotonic()) > 0:
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._wake.wait()
            with suppress(OSError):
                (self.folder / "timeline.json").write_text(json.dumps(self.timeline()), encoding="utf-8")
            _, unsettled = await asyncio.wait([asyncio.wrap_future(self._desk.stop())], timeout=_SETTLING_S)
            if unsettled:
                logger.warning("the batch system does not answer: see whether jobs of pool %s are left", self.name)

    def __await__(self) -> Any:
        async def started() -> AsaCluster:
            if self.status is Status.created:
                await self._start()
            return self

        return started().__await__()

    @property
    def stuck(self) -> str:
        """Why nothing is asked for by itself any more, though nothing is there; empty if that is not so."""
        if self._live():
            return ""
        if self._barren >= _MOST_BARREN:
            return f"{self._barren} jobs in a row ended without one; their output is in {self.folder / 'logs'}"
        return self._refusal if self._refused.issuperset(self._offered) else ""

    def now(self) -> float:
        """Read the batch system's clock."""
        return time.time() + self._offset_s

    def _post(self, news: News) -> None:
        """Hand over what the desk's thread tells."""
        with suppress(RuntimeError):  # nobody listens any more
            self.loop.add_callback(self._take, news)

    def _take(self, news: News) -> None:
        """Take in what became known of jobs."""
        self._offset_s = news.now_s - time.time()
        self.trouble = news.trouble
        for token, why in news.refused.items():
            one = self._tokens[token]
            if not one.why:
                logger.warning("allocation %s was refused: %s", one.id, why)
                self._refused.add(one.shape)
                self._refusal = why
            self._end(one, news.now_s, why)
        for token, status in news.statuses.items():
            self._hear(self._tokens[token], status)
        self._wake.set()

    def _hear(self, one: Allocation, status: JobStatus) -> None:
        one.job_id = status.job_id
        one.start_s = status.start_s
        one.expected_s = status.expected_start_s
        if status.state is JobState.PENDING:
            one.phase = Phase.PENDING  # again, if it was put back into the queue
        elif status.state is JobState.RUNNING:
            if one.is_waiting:
                one.phase = Phase.STARTING
                one.bare_since_s = self.now()
        else:
            told = f"{status.state}: {status.reason}" if status.reason else str(status.state)
            self._end(one, status.end_s if status.end_s is not None else self.now(), told)

    def _end(self, one: Allocation, at_s: float, why: str) -> None:
        if one.phase is Phase.ENDED:
            return
        if one.start_s is not None and one.joined_s is None and not one.why:
            self._barren += 1
            if self._barren == _MOST_BARREN:
                until = "no more is asked for until `scale`, `adapt` or `ask` say so"
                logger.error("%d jobs in a row had no worker: see %s; %s", self._barren, self.folder / "logs", until)
        one.why = one.why or why
        one.phase, one.end_s = Phase.ENDED, at_s
        one.idle_since_s = one.useless_since_s = None
        one.workers = set()
        logger.info("allocation %s ended: %s", one.id, one.why)

    def _live(self) -> list[Allocation]:
        return [one for one in self._allocations.values() if one.phase is not Phase.ENDED]

    def _useful(self) -> list[Allocation]:
        return [one for one in self._allocations.values() if one.is_useful]

    def _update_worker_status(self, op: str, msg: Any) -> None:
        super()._update_worker_status(op, msg)
        self._wake.set()

    # ------------------------------------------------------------------ what goes on by itself

    async def _supervise(self) -> None:
        while not self._is_closing:
            try:
                await self._look_after()
            except Exception:
                logger.exception("the pool could not be looked after")
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._wake.wait()
            self._wake.clear()

    async def _look_after(self) -> None:
        """See who is here, have those leave whose time is up, and keep as many as were asked for."""
        now_s = self.now()
        workers = self._workers_of()
        for one in self._live():
            self._note_workers(one, workers.get(one.id, []), now_s)
        for one_id, theirs in workers.items():
            if (gone := self._allocations.get(one_id)) is not None and gone.phase is Phase.ENDED:
                await throw_out(self.scheduler, [worker.address for worker in theirs])
        task_s = longest_task_s(self.scheduler)
        for one in self._live():
            if one.phase is Phase.ALIVE and one.id not in self._leaving and now_s >= self._again_s.get(one.id, 0.0):
                self._leave_in_time(one, now_s, task_s)
                if one.unwanted:  # its results could move nowhere the last time
                    self._have_leave(one, _PATIENCE_S, is_last=False, why=one.unwanted)
        if self._keeper is not None and self._keeper.done() and not self._leaving and not self._kept_bytes():
            await self._close_keeper()
        if self._rules.is_fixed and self._rules.minimum:
            await self.decide_now(1)
        self._sample(now_s)

    def _workers_of(self) -> dict[str, list[Any]]:
        """Give the workers that are here, by their allocation."""
        told: dict[str, list[Any]] = {}
        for worker in self.scheduler.workers.values():
            told.setdefault(str(worker.name).partition("-")[0], []).append(worker)
        return told

    def _note_workers(self, one: Allocation, workers: Collection[Any], now_s: float) -> None:
        one.workers = {str(worker.name) for worker in workers}
        if one.is_waiting:
            return
        if not workers:
            one.bare_since_s = one.bare_since_s or now_s
            if now_s - one.bare_since_s >= _BARE_S and not one.why:
                one.why = f"it has had no worker for {_BARE_S:.0f} s; its output is in {self.folder / 'logs'}"
                logger.warning("allocation %s: %s", one.id, one.why)
                self._desk.cancel(one.token)
            return
        one.bare_since_s = None
        if one.phase is Phase.STARTING:
            one.phase, one.joined_s = Phase.ALIVE, now_s
            self._barren = 0
            if one.start_s is not None:
                took_s = max(now_s - one.start_s, 0.0)
                old = self._own_rules.startup_s
                self._own_rules = replace(self._own_rules, startup_s=old + _LEARN * (took_s - old))
                self._rules = replace(self._rules, startup_s=self._own_rules.startup_s)
        is_busy = any(worker.processing for worker in workers)
        one.idle_since_s = None if is_busy else one.idle_since_s or now_s

    def _leave_in_time(self, one: Allocation, now_s: float, task_s: float) -> None:
        ends_s = one.walltime_ends_s
        if ends_s is None or one.start_s is None:
            return
        until_s = ends_s - self._margin_of(one.shape)
        if now_s >= until_s:
            self._have_leave(one, until_s - now_s, is_last=True)
        elif now_s >= drain_from_s(until_s, task_s, one.start_s) and others_run(self.scheduler, self._addresses(one)):
            self._have_leave(one, until_s - now_s, is_last=False)

    def _have_leave(self, one: Allocation, patience_s: float, *, is_last: bool, why: str = "") -> None:
        """Have an allocation's workers leave, and its job end with them."""
        if one.id in self._leaving:
            return
        if not is_last and not others_run(self.scheduler, self._addresses(one)) and self._is_much(self._addresses(one)):
            if one.id not in self._again_s:
                logger.warning("allocation %s stays: much is there that could move nowhere", one.id)
            self._again_s[one.id] = self.now() + _RETRY_S
            return
        before_end_s = time.monotonic() + self._margin_of(one.shape) * _LAST_SHARE

        async def go() -> None:
            before, since_s = one.phase, self.now()
            one.phase, one.drain_s = Phase.DRAINING, since_s
            keep = partial(self._keep, until_s=before_end_s if is_last else None)
            try:
                if not await leave(self.scheduler, self._addresses(one), patience_s, self._connection(), keep):
                    if not is_last:
                        one.phase, one.drain_s = before, None
                        self._again_s[one.id] = self.now() + _RETRY_S
                        return
                    await throw_out(self.scheduler, self._addresses(one))
                one.why = one.why or why or "its walltime was about to end"
            except Exception:
                logger.exception("the workers of allocation %s did not leave as they should", one.id)
                one.why = one.why or why or "its workers could not leave"
            finally:
                self._leaving.pop(one.id, None)
            self._desk.cancel(one.token)

        self._leaving[one.id] = asyncio.ensure_future(go())

    async def _keep(self, addresses: Collection[str], until_s: float | None) -> bool:
        """Have this process keep what no other worker can take; as much as there is time for at the end of a walltime.

        No allocation that is paid for is held for the sake of little.
        """
        if not sole_bytes(self.scheduler, addresses):
            return True
        if until_s is None and self._is_much(addresses):
            return False
        try:
            async with asyncio.timeout(None if until_s is None else max(until_s - time.monotonic(), 0.0)):
                if self._keeper is None:
                    opening = open_keeper(self.scheduler, self.security, self.folder / "kept")
                    self._keeper = asyncio.ensure_future(opening)
                keeper = await asyncio.shield(self._keeper)
                kept = await gather_on(keeper.address, self.scheduler, addresses)
        except TimeoutError:
            kept = False
        except Exception:
            logger.exception("results of %s could not be kept", " and ".join(addresses))
            kept, self._keeper = False, None
        if until_s is not None and not kept:
            logger.warning("results of %s could not all move in time: their tasks run again", " and ".join(addresses))
        return kept or until_s is not None

    def _is_much(self, addresses: Collection[str]) -> bool:
        """Whether some workers hold alone what is too much for this process, or cannot move."""
        return sole_bytes(self.scheduler, addresses) + self._kept_bytes() > _KEPT_BYTES

    def _kept_bytes(self) -> int:
        """Count what this process keeps."""
        return sum(w.nbytes for w in self.scheduler.workers.values() if w.name == KEEPER)

    async def _close_keeper(self) -> None:
        if self._keeper is not None:
            opened, self._keeper = self._keeper, None
            with suppress(OSError, TimeoutError, ValueError):
                await (await opened).close(nanny=False)

    def _addresses(self, one: Allocation) -> list[str]:
        return [worker.address for worker in self._workers_of().get(one.id, [])]

    def _connection(self) -> dict[str, Any]:
        return dict(self.security.get_connection_args("scheduler"))

    def _margin_of(self, shape: Shape) -> float:
        share_s = shape.walltime_s * _MARGIN_SHARE
        return min(share_s, _MARGIN_S) if self._margin_s is None else min(self._margin_s, shape.walltime_s / 2)

    def _sample(self, now_s: float) -> None:
        """Note how much there is, how much of it works, and how much is waited for."""
        workers = [worker for worker in self.scheduler.workers.values() if worker.name != KEEPER]
        alive = sum(worker.nthreads for worker in workers)
        busy = sum(min(len(w.processing), w.nthreads) for w in workers)
        waiting = sum(one.shape.cores for one in self._live() if one.is_waiting)
        if not self._samples or self._samples[-1][1:] != (alive, busy, waiting):
            self._samples.append((now_s, alive, busy, waiting))

    # ------------------------------------------------------------------ deciding

    async def decide_now(self, wait_count: int = 1) -> Decision:
        """Decide what to ask for and what to give back, and do it; what is parted with was to be so many times."""
        async with self._deciding:
            return await self._decide(wait_count)

    async def _decide(self, wait_count: int) -> Decision:
        if self._barren >= _MOST_BARREN:
            return Decision()
        now_s = self.now()
        shapes = [shape for shape in self._offered if shape not in self._refused]
        forecasts = await asyncio.wrap_future(self._desk.forecasts(shapes))
        # who waits so long for cores has tasks that are worth it: a wave asked for too small waits twice
        unknown_s = min((forecast.at(0.5) for forecast in forecasts.values()), default=0.0)
        waves = read_demand(self.scheduler, unknown_s, shapes)
        views = [one.view(now_s, self._margin_of(one.shape)) for one in self._useful()]
        rules = replace(self._rules, margin_s=max((self._margin_of(shape) for shape in shapes), default=0.0))
        decision = await asyncio.to_thread(decide, now_s, waves, views, forecasts, rules)
        if self._is_closing or self._rules.is_fixed != rules.is_fixed or self._barren >= _MOST_BARREN:
            return Decision()
        for one in self._useful():
            one.useless_since_s = (one.useless_since_s or now_s) if one.id in decision.useless else None
        for shape in decision.ask:
            if shape not in self._refused:
                try:
                    self._request(shape, forecasts.get(shape) or forecasts[shapes[0]])
                except SubmitRejectedError as error:
                    logger.warning("%s", error)
        for reason in decision.reasons:
            logger.info("%s", reason)
        parted = {*decision.withdraw, *decision.give_back}
        self._due = Counter({one_id: self._due[one_id] + 1 for one_id in parted})
        for one_id in [one_id for one_id in parted if self._due[one_id] >= wait_count]:
            self._part(self._allocations[one_id])
        return decision

    def _part_for_good(self, one: Allocation, why: str) -> None:
        """Part with an allocation that somebody does not want any more: as soon as its results can move."""
        one.unwanted = why
        self._part(one, why)

    def _part(self, one: Allocation, why: str = "it was of no more use") -> None:
        """Give back an allocation, or withdraw it while it waits."""
        if one.phase in (Phase.ALIVE, Phase.DRAINING):
            self._have_leave(one, _PATIENCE_S, is_last=False, why=why)
        elif one.phase is not Phase.ENDED:
            one.why = one.why or why
            self._desk.cancel(one.token)
            if one.phase is Phase.STARTING:
                one.phase = Phase.DRAINING

    def _request(self, shape: Shape, forecast: WaitForecast, *, is_pinned: bool = False) -> Allocation:
        """Ask for an allocation.

        Raises
        ------
        SubmitRejectedError
            There will never be such a one.
        """
        one_id = f"a{len(self._allocations) + 1}"
        spec = self._spec(one_id, shape)
        if (impossible := self.capabilities.impossible(spec)) is not None:
            self._refused.add(shape)
            self._refusal = impossible
            raise SubmitRejectedError(impossible, where=f"pool {self.name!r}", hint="Ask for less.")
        one = Allocation(one_id, spec.token, shape, self.now(), forecast, is_pinned)
        self._allocations[one_id] = self._tokens[spec.token] = one
        with suppress(OSError), (self.folder / _ASKED).open("a", encoding="ascii") as file:
            file.write(f"{spec.token}\n")
        self._desk.submit(spec, forecast)
        return one

    def _spec(self, one_id: str, shape: Shape) -> JobSpec:
        places = max(shape.nodes, 1)
        return JobSpec(
            f"{self.name}-{one_id}",
            shape.cores,
            shape.walltime_s,
            command=self._command(one_id, shape),
            nodes=shape.nodes,
            memory_bytes=shape.memory_bytes,
            gpus=shape.gpus,
            partition=shape.partition,
            account=shape.account,
            options=shape.options,
            cpus_per_task=shape.cores // places,
            token=uuid.uuid4().hex,
        )

    def _command(self, one_id: str, shape: Shape) -> str:
        """Write what a job runs: dask's own worker, a nanny for each process, so that a crash does not cost a wait."""
        processes = shape.processes // max(shape.nodes, 1)
        arguments = [self._python, "-m", "distributed.cli.dask_worker", self.scheduler.address]
        options = {
            "nworkers": processes,
            "nthreads": shape.threads,
            "memory-limit": shape.memory_bytes // shape.processes if shape.memory_bytes else "auto",
            "resources": " ".join(f"{name}={amount:.12g}" for name, amount in shape.resources.items()),
            "death-timeout": f"{_DEATH_S:.0f}s",
            # should this process be gone by then; its clock begins a little late, and so half of the margin is kept
            "lifetime": f"{shape.walltime_s - self._margin_of(shape) / 2:.0f}s",
            **self._credentials,
            **({"interface": self._interface} if self._interface else {}),
        }
        for name, value in options.items():
            arguments += [f"--{name}", str(value)]
        suffix = "" if processes > 1 else "-0"
        if shape.nodes <= 1:
            return f"exec {shlex.join([*arguments, '--no-dashboard', '--name', one_id + suffix])}"
        # a word to the shell on each node, which knows its name
        each = f'exec {shlex.join([*arguments, "--no-dashboard"])} --name "{one_id}-$(hostname -s){suffix}"'
        return f"exec {self._launcher} sh -c {shlex.quote(each)}"

    # ------------------------------------------------------------------ what users ask for

    def ask(
        self,
        *,
        cores: int | None = None,
        walltime: str | float | None = None,
        tags: Iterable[str] | None = None,
        memory: str | int | None = None,
        **changes: Any,
    ) -> Any:
        """Ask for one allocation, which stays until `release` or the end of its walltime.

        Parameters
        ----------
        cores, walltime, tags, memory, **changes
            Where it differs from the pool's own shape; for the rest see `asa.pool.Shape`.

        Returns
        -------
        Allocation
            Shows where it stands; to be awaited in an asynchronous cluster.

        Raises
        ------
        SubmitRejectedError
            There will never be such a one.
        """
        shape = self._changed(cores=cores, walltime=walltime, tags=tags, memory=memory, **changes)

        async def asked() -> Allocation:
            self._barren = 0
            forecasts = await asyncio.wrap_future(self._desk.forecasts([shape]))
            return self._request(shape, forecasts[shape], is_pinned=True)

        return self.sync(asked)

    def release(self, allocation: Allocation) -> None:
        """Give back an allocation, or withdraw it while it waits: tasks that run there end, results move first."""
        self.loop.add_callback(self._part_for_good, allocation, "it was given back")

    def scale(self, n: int = 0, memory: str | None = None, cores: int | None = None) -> Any:
        """Have so many worker processes, and keep as many: what ends is asked for again, a wait ahead.

        Parameters
        ----------
        n
            How many. What the pool was asked for by `ask` counts.
        memory, cores
            At least so much in all.
        """
        if memory is not None:
            n = max(n, math.ceil(parse_bytes(memory) / self._memory_per_worker()))
        if cores is not None:
            n = max(n, math.ceil(cores / self.shape.threads))
        if self.status is Status.created:  # asynchronous, and not awaited yet
            self._wanted_cores = n * self.shape.threads
        elif not self._is_closing and self.status is Status.running:
            self.loop.add_callback(self._scale, n * self.shape.threads)
        return NoOpAwaitable() if self.asynchronous else None

    def _scale(self, cores: int) -> None:
        self._barren = 0
        self._rules, self._offered = replace(self._own_rules, minimum=cores, maximum=cores), (self.shape,)
        now_s = self.now()
        for one in self._useful():
            if not one.is_pinned:
                one.unwanted = ""  # it is decided anew who goes
        views = [one.view(now_s, self._margin_of(one.shape)) for one in self._useful() if not one.is_pinned]
        pinned = sum(one.shape.cores for one in self._useful() if one.is_pinned)
        part = surplus(now_s, views, max(cores - pinned, 0))
        for one_id in (*part.withdraw, *part.give_back):
            self._part_for_good(self._allocations[one_id], "fewer workers were asked for")
        self._wake.set()

    async def scale_down(self, workers: Collection[str]) -> None:
        """Give back the allocations all of whose workers are named; one allocation's workers leave together."""
        named = {str(worker) for worker in workers}
        for one in self._useful():
            if one.workers and one.workers <= named:
                self._rules = replace(self._rules, minimum=max(self._rules.minimum - one.shape.cores, 0))
                self._part_for_good(one, "its workers were to close")

    scale_up = scale

    def adapt(
        self,
        Adaptive: type[Any] = ProactiveAdaptive,  # noqa: N803 - dask's name
        minimum: float = 0,
        maximum: float = math.inf,
        *,
        shapes: Sequence[Mapping[str, Any]] = (),
        price: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Ask for what the work is worth, ahead of time, and give back what idles; see `asa.pool.planning`.

        Parameters
        ----------
        Adaptive
            What decides. One of dask's own decides as it does elsewhere, and pays for it with waits.
        minimum, maximum
            Numbers of workers.
        shapes
            Jobs that may be asked for, each by where it differs from the pool's own shape: other sizes, walltimes,
            tags. The first is the usual one.
        price
            As for the cluster.
        **kwargs
            As in dask: ``minimum_cores``, ``maximum_cores``, ``minimum_memory``, ``maximum_memory``, ``interval``,
            ``wait_count`` and ``target_duration``: work that will be done within that needs no more than there is.

        Returns
        -------
        ProactiveAdaptive
            Can be stopped.
        """
        offered = tuple(self._changed(**change) for change in shapes) or (self.shape,)
        adaptive = super().adapt(Adaptive=Adaptive, minimum=minimum, maximum=maximum, **kwargs)
        if isinstance(adaptive, ProactiveAdaptive):
            self._offered, self._barren = offered, 0
            self._rules = replace(
                self._own_rules,
                minimum=adaptive.minimum * self.shape.threads,
                maximum=adaptive.maximum * self.shape.threads,
                price=self._own_rules.price if price is None else price,
                target_s=adaptive.target_duration,
                is_fixed=False,
            )
        return adaptive

    def _changed(
        self,
        cores: int | None = None,
        walltime: str | float | None = None,
        tags: Iterable[str] | None = None,
        memory: str | int | None = None,
        **changes: Any,
    ) -> Shape:
        """Give the pool's shape with changes."""
        if cores is not None:
            changes["cores"] = cores
            if "threads" not in changes and cores % self.shape.threads:
                changes["threads"] = nprocesses_nthreads(cores)[1]
        if walltime is not None:
            changes["walltime_s"] = _seconds(walltime)
        if tags is not None:
            changes["tags"] = frozenset(tags)
        if memory is not None:
            changes["memory_bytes"] = parse_bytes(memory)
        try:
            return replace(self.shape, **changes)
        except TypeError as error:
            known = "cores, walltime, tags, memory, threads, gpus, nodes, partition, account, options"
            raise InputError(str(error).rpartition("() ")[2], where="ask", hint=f"Known: {known}.") from error

    def _threads_per_worker(self) -> int:
        return self.shape.threads

    def _memory_per_worker(self) -> int:
        if not self.shape.memory_bytes:
            raise InputError("how much memory a worker has is not said", where="memory", hint='As in memory="64 GB".')
        return self.shape.memory_bytes // self.shape.processes

    @property
    def plan(self) -> set[str]:
        """Names of the workers that there are to be."""
        return {f"{one.id}-{number}" for one in self._useful() for number in range(one.shape.processes)}

    @property
    def requested(self) -> set[str]:
        """Names of the workers that were asked for: all that there are to be."""
        return self.plan

    # ------------------------------------------------------------------ what is to be seen

    @property
    def allocations(self) -> list[Allocation]:
        """All that was ever asked for, in that order."""
        return list(self._allocations.values())

    def table(self) -> Table:
        """Draw a table of the allocations: what is waited for and when it is expected, what lives and for how long."""
        stuck = f"no worker comes; see {self.folder / 'logs'}" if self._barren >= _MOST_BARREN else ""
        return draw(self.allocations, self.now(), str(self.name), stuck or self.trouble or self.dashboard)

    @property
    def dashboard(self) -> str:
        """Where dask's own dashboard is; empty where bokeh is not installed, which it needs."""
        return str(self.dashboard_link) if self._has_dashboard else ""

    def live(self, console: Console | None = None) -> Live:
        """Show the table for as long as a ``with`` lasts, always up to date."""
        return Live(get_renderable=self.table, console=console, refresh_per_second=2)

    def timeline(self) -> dict[str, Any]:
        """Give what a picture of the pool's time needs, as plain data; it is kept in the folder at the end.

        Returns
        -------
        dict
            ``allocations``, with their times on the batch system's clock, and ``cores``: from each time on how many
            there were, worked, and were waited for.
        """
        names = ("time_s", "alive", "busy", "waiting")
        samples = [dict(zip(names, sample, strict=True)) for sample in self._samples]
        return {"allocations": [one.record() for one in self.allocations], "cores": samples}

    def draw(self, path: str | Path) -> None:
        """Draw a picture of the pool's time so far; see `asa.pool.picture`."""
        draw_timeline(self.timeline(), path)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot be made: {error.strerror}", where=str(folder), hint="Name another with folder=."
        ) from error
    return folder.absolute()


def _seconds(duration: str | float) -> float:
    return parse_duration(duration) if isinstance(duration, str) else float(duration)
