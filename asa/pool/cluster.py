"""A dask cluster whose workers are jobs of a batch system, submitted ahead by their expected queue waits."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import secrets
import shutil
import sys
import time
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
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
from rich.live import Live
from rich.table import Table

from asa.backend import Facility
from asa.core import safe
from asa.core.console import Console
from asa.core.files import in_words, put
from asa.errors import InputError
from asa.estimators.store import default_folder
from asa.sites import open_facility
from asa.units import parse_duration
from asa.waits import LEVELS, WaitForecast

from .allocation import Allocation
from .credentials import credentials_folder, encrypting, keep_credentials
from .desk import Desk, PoolNews
from .jobs import WorkerJobs, make_scratch, modules_of_program
from .pages import LOOPBACK, WithoutPage, on_loopback
from .picture import draw_timeline
from .quiet import Quiet
from .roster import Roster
from .supervision import Supervision
from .table import draw
from .values import AllocationShape, Decision

logger = logging.getLogger("asa.pool")

_HERE = "local"  # the backend that runs jobs as processes of this machine
_WALLTIME_S, _WALLTIME_HERE_S = 3600.0, 86400.0
_CLOSING_S = 10.0  # for local jobs to end when the pool is closed
_SETTLING_S = 30.0  # for the desk, which needs all of it only if the batch system does not answer
_EACH_NODE = "srun --ntasks-per-node=1 --cpu-bind=none"


class ProactiveAdaptive(Adaptive):
    """Decides at dask's intervals by the rules of `asa.pool.planning.decide`; see also `AsaCluster.adapt`."""

    async def adapt(self) -> None:
        """Make one decision."""
        await self.cluster.decide_now(self.wait_count)


class AsaCluster(SpecCluster):
    """One pool of workers over many allocations.

    Without arguments its workers are processes of this machine, on all of its cores. If a site is set up (`asa doctor
    --save`) or a batch system is found, they are jobs there; then there are none before `scale`, `adapt` or `ask`.

    Parameters
    ----------
    site, backend, settings
        Where jobs go, as for `asa run`: a site's name; or a backend's and its settings.
    cores, memory, gpus, nodes, walltime, partition, account, options
        What a job asks for; by default all cores of a node for an hour. Memory as in ``"64 GB"``, walltime in seconds
        or as in ``"1h30m"``. `options` are those of the batch system.
    threads
        Of each worker process; dask's default if not given.
    tags
        Resources that its workers offer, such as names of stages, for ``client.submit(f, resources={"train": 1})``.
    n_workers
        Workers at the beginning, as in `scale`. By default as many as the cores of this machine allow if they run here,
        else none.
    folder
        Where the jobs' scripts, output and credentials are kept, on a file system that compute nodes see. If not given,
        a new folder in the one that ``ASA_POOLS`` names, or in ``asa-pools`` here (``asa-pools-USER`` if that is
        another user's). Jobs left by an earlier pool in the same folder, whose process died, are cancelled.
    bank
        Folder of learned waits: as for `asa run` if not given, none with False.
    estimator
        Of waits; see `asa list`.
    price
        How many core-hours it is worth to be done an hour sooner. By default the number of cores of an allocation.
    margin
        How long before the end of its walltime an allocation is vacated. By default a tenth of the walltime, at most a
        minute.
    security
        Certificates for those who may connect to the pool; by default new ones. They must encrypt.
    host, interface
        Where the scheduler listens; by default this machine's address for workers elsewhere, the loopback for workers
        here.
    dashboard_address
        Address of dask's dashboard, as in ``":8787"``: on this machine's loopback, unless a host is named. By default
        there is none, since everyone who can reach it, such as all users of this machine, sees what runs.
    python
        The interpreter on the compute nodes.
    launcher
        Starts a command once on each node of a job of several nodes.
    name, asynchronous, loop, **kwargs
        As for `distributed.SpecCluster`.

    Notes
    -----
    It is a `SpecCluster` for its life cycle, and for code that checks this type. Its specification stays empty: dask
    expects workers in it to be there at once, and restarts them until they are. Here each job waits, runs and ends by
    itself.

    Results that only leaving workers hold and no other worker can take are moved to this process: at the end of a
    walltime as many as there is time for, otherwise up to 1 GiB. Beyond that, an allocation to be given back stays
    until other workers have joined.

    The scheduler is in this process. If it dies, tasks and results are lost; the workers end at once, pending jobs end
    two minutes after they start, and learned waits are kept.

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
        self.folder = _made(Path(folder or _pools() / name))
        self._wanted_cores: int | None = None
        self._news: deque[PoolNews] = deque()
        self._is_listening = False
        self._quiet: Quiet | None = None
        self._roster = Roster(self.folder)
        left_over = self._roster.left_over()
        self._desk = self._open_desk(opened.facility, bank=bank, estimator=estimator)
        self.capabilities = self._desk.connected.result()
        self._desk.clear(left_over)
        try:
            self.shape = self._usual_shape(
                cores, _seconds(walltime), threads, nodes,
                memory_bytes=parse_bytes(memory), gpus=gpus, tags=frozenset(tags),
                partition=partition, account=account, options=tuple(options),
            )  # fmt: skip
            margin_s = None if margin is None else _seconds(margin)
            security = encrypting(security)
            if self._is_here and not interface:
                host = host or LOOPBACK
            reached = {"interface": interface, "host": LOOPBACK if host == LOOPBACK else None}
            files, kept = keep_credentials(security, self.folder), credentials_folder(self.folder)
            jobs = WorkerJobs(name, python, launcher, reached, files, kept, is_trusted=safe.is_trusted(kept))
            self._supervision = self._supervised(jobs, price, margin_s)
            # dask's own folder could have been made by another user, and modules are loaded from it
            self._scratch = make_scratch()
            self._remove_scratch = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
            self._has_dashboard = bool(dashboard_address) and find_spec("bokeh") is not None
            super().__init__(
                scheduler=self._scheduler(security, host, interface, dashboard_address or ""),
                # dask computes with it; no worker is ever made from it
                worker={"options": {"nthreads": self.shape.threads}},
                security=security,
                name=name,
                asynchronous=asynchronous,
                loop=loop,
                **{"silence_logs": logging.WARNING, **kwargs},  # as in LocalCluster
            )
        except BaseException:
            self._desk.stop()
            raise
        self._scale_at_first(n_workers)

    # ------------------------------------------------------------------ start

    def _open_desk(self, facility: Facility, *, bank: str | Path | bool | None, estimator: str) -> Desk:
        """Start the desk, which then connects by itself."""
        store = None if bank is False else default_folder() if bank is None or bank is True else Path(bank)
        # the local queue has no jobs of other users
        unlearned = WaitForecast((0.0,) * len(LEVELS), 0.0) if self._is_here else None
        desk = Desk(facility, self.folder, self._post, bank=store, estimator=estimator, unlearned=unlearned)
        desk.start()
        return desk

    def _usual_shape(
        self, cores: int, walltime_s: float, threads: int, nodes: int, partition: str, **more: Any
    ) -> AllocationShape:
        """Return the default shape of a job; it depends on where the job runs."""
        partition = self.capabilities.name_of(partition)
        there, _ = self.capabilities.place(partition)
        site_cores = there.max_cores if self._is_here else there.cores_per_node
        cores = cores or max(site_cores, 1) * max(nodes, 1)
        walltime_s = walltime_s or (_WALLTIME_HERE_S if self._is_here else _WALLTIME_S)
        return AllocationShape(
            cores, walltime_s, threads or nprocesses_nthreads(cores // max(nodes, 1))[1], nodes=nodes,
            partition=partition, **more,
        )  # fmt: skip

    def _supervised(self, jobs: WorkerJobs, price: float | None, margin_s: float | None) -> Supervision:
        """Make the supervision of the pool, after dask's scheduler was made."""
        return Supervision(
            self._roster,
            self._desk,
            jobs,
            self.capabilities,
            shape=self.shape,
            price=float(self.shape.cores) if price is None else price,
            margin_s=margin_s,
            folder=self.folder,
        )

    def _scheduler(self, security: Security, host: str | None, interface: str | None, page: str) -> dict[str, Any]:
        """Return the specification of dask's scheduler. `page`: the address of its dashboard, if any."""
        options = {
            "protocol": "tls://",
            "host": host,
            "interface": interface,
            "security": security,
            "local_directory": self._scratch,
            "dashboard": self._has_dashboard,
            "dashboard_address": on_loopback(page or ":0"),
        }
        return {"cls": Scheduler if page else WithoutPage, "options": options}

    def _scale_at_first(self, n_workers: int | None) -> None:
        """Ask for the first workers: here as many as the cores allow, elsewhere only those asked for."""
        if n_workers is None:
            n_workers = self.capabilities.max_cores // self.shape.threads if self._is_here else 0
        if n_workers:
            self.scale(n_workers)

    # ------------------------------------------------------------------ life cycle

    async def _start(self) -> None:
        if self.status in (Status.running, Status.closed):
            return
        await super()._start()
        await self.scheduler.register_worker_plugin(None, modules_of_program(), "asa-modules", idempotent=False)
        self._quiet = Quiet(self.scheduler, self._supervision.some_leave)
        self._supervision.begin(self.scheduler, self.security)
        self._is_listening = True
        self._hear()
        if self._wanted_cores is not None:
            self._supervision.scale(self._wanted_cores)
            self._wanted_cores = None

    async def _close(self) -> None:
        if self.status is Status.running:
            await self._supervision.end()
        await super()._close()
        self._remove_scratch()
        if self._desk.is_alive():
            if self._is_here:
                await self._supervision.all_ended(_CLOSING_S)
            with suppress(OSError):
                put(self.folder / "timeline.json", json.dumps(self.timeline()).encode())
            _, unsettled = await asyncio.wait([asyncio.wrap_future(self._desk.stop())], timeout=_SETTLING_S)
            if unsettled:
                logger.warning("the batch system does not answer: see whether jobs of pool %s are left", self.name)
        if self._quiet is not None:
            self._quiet.end()

    def __await__(self) -> Any:
        async def started() -> AsaCluster:
            if self.status is Status.created:
                await self._start()
            return self

        return started().__await__()

    def _post(self, news: PoolNews) -> None:
        """Process reports of the desk's thread; they may come before dask's loop exists."""
        self._news.append(news)
        if self._is_listening:
            with suppress(RuntimeError):  # the scheduler is closed already
                self.loop.add_callback(self._hear)

    def _hear(self) -> None:
        while self._news:
            self._supervision.hear(self._news.popleft())

    def _update_worker_status(self, op: str, msg: Any) -> None:
        super()._update_worker_status(op, msg)
        self._supervision.wake()

    async def decide_now(self, wait_count: int = 1) -> Decision:
        """Decide on requests and removals, and do them; a removal must be decided `wait_count` times in a row."""
        return await self._supervision.decide(wait_count)

    # ------------------------------------------------------------------ requests of users

    def ask(
        self,
        *,
        cores: int | None = None,
        walltime: str | float | None = None,
        tags: Iterable[str] | None = None,
        memory: str | int | None = None,
        **changes: Any,
    ) -> Any:
        """Submit one allocation; it stays until `release` or the end of its walltime.

        Parameters
        ----------
        cores, walltime, tags, memory, **changes
            What differs from the pool's own shape; for the rest see `asa.pool.Shape`.

        Returns
        -------
        Allocation
            Shows its state; to be awaited in an asynchronous cluster.

        Raises
        ------
        SubmitRejectedError
            Such an allocation is impossible.
        """
        shape = self._changed(cores=cores, walltime=walltime, tags=tags, memory=memory, **changes)
        return self.sync(self._supervision.ask, shape)

    def release(self, allocation: Allocation) -> None:
        """End an allocation: its running tasks end and its results move first. A pending allocation is withdrawn."""
        self.loop.add_callback(self._supervision.part_for_good, allocation, "it was given back")

    def scale(self, n: int = 0, memory: str | None = None, cores: int | None = None) -> Any:
        """Keep a number of worker processes: an allocation that ends is replaced ahead, by its expected wait.

        Parameters
        ----------
        n
            How many, including those from `ask`.
        memory, cores
            Lower bounds of the totals.
        """
        if memory is not None:
            n = max(n, math.ceil(parse_bytes(memory) / self._memory_per_worker()))
        if cores is not None:
            n = max(n, math.ceil(cores / self.shape.threads))
        if self.status is Status.created:  # asynchronous, and not awaited yet
            self._wanted_cores = n * self.shape.threads
        elif not self._supervision.is_over and self.status is Status.running:
            self.loop.add_callback(self._supervision.scale, n * self.shape.threads)
        return NoOpAwaitable() if self.asynchronous else None

    async def scale_down(self, workers: Collection[str]) -> None:
        """End allocations all of whose workers are named: the workers of an allocation leave together."""
        self._supervision.close_workers({str(worker) for worker in workers})

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
        """Ask for as much as the work is worth, ahead of time, and give back idle allocations; see `asa.pool.planning`.

        Parameters
        ----------
        Adaptive
            The class that decides. Dask's own work too, but do not plan for queue waits.
        minimum, maximum
            Numbers of workers.
        shapes
            Jobs that may be submitted, each given by what differs from the pool's own shape: size, walltime, tags. The
            first is the default.
        price
            As for the cluster.
        **kwargs
            As in dask: ``minimum_cores``, ``maximum_cores``, ``minimum_memory``, ``maximum_memory``, ``interval``,
            ``wait_count`` and ``target_duration``: nothing is added for work that will be done within this time.

        Returns
        -------
        ProactiveAdaptive
            Can be stopped.
        """
        offered = tuple(self._changed(**change) for change in shapes) or (self.shape,)
        adaptive = super().adapt(Adaptive=Adaptive, minimum=minimum, maximum=maximum, **kwargs)
        if isinstance(adaptive, ProactiveAdaptive):
            self._supervision.adapt(
                offered,
                minimum=adaptive.minimum * self.shape.threads,
                maximum=adaptive.maximum * self.shape.threads,
                price=price,
                target_s=adaptive.target_duration,
            )
        return adaptive

    def _changed(
        self,
        cores: int | None = None,
        walltime: str | float | None = None,
        tags: Iterable[str] | None = None,
        memory: str | int | None = None,
        **changes: Any,
    ) -> AllocationShape:
        """Return the pool's shape with changes."""
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
        if "partition" in changes:
            changes["partition"] = self.capabilities.name_of(changes["partition"])
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
        """Names of the workers that the pool is to have."""
        return {
            f"{allocation.id}-{number}"
            for allocation in self._roster.useful()
            for number in range(allocation.shape.processes)
        }

    @property
    def requested(self) -> set[str]:
        """Names of the workers that were asked for; the same names as in `plan`."""
        return self.plan

    # ------------------------------------------------------------------ views

    def now(self) -> float:
        """Read the batch system's clock."""
        return self._roster.now()

    @property
    def allocations(self) -> list[Allocation]:
        """All allocations that were ever asked for, in that order."""
        return self._roster.all()

    @property
    def stuck(self) -> str:
        """Reason why the pool has no allocation and will not ask for one; empty if it has an allocation or may ask."""
        return self._supervision.stuck

    @property
    def trouble(self) -> str:
        """Why the batch system does not answer; empty if it does."""
        return self._roster.trouble

    def table(self) -> Table:
        """Draw a table of the allocations: expected starts of those that wait, time left of those that run."""
        stuck = f"no worker comes; see {self.folder / 'logs'}" if self._roster.is_barren else ""
        return draw(self.allocations, self.now(), str(self.name), stuck or self.trouble or self.dashboard)

    @property
    def dashboard(self) -> str:
        """Address of dask's dashboard; empty if there is none, or bokeh, which it needs, is not installed."""
        return str(self.dashboard_link) if self._has_dashboard else ""

    def live(self, console: Console | None = None) -> Live:
        """Show the table, always up to date, during a ``with`` statement."""
        return Live(get_renderable=self.table, console=console or Console(), refresh_per_second=2)

    def timeline(self) -> dict[str, Any]:
        """Return the pool's history for a picture, as plain data; it is stored in the folder at the end.

        Returns
        -------
        dict
            ``allocations``, with their times on the batch system's clock, and ``cores``: numbers of available, busy and
            pending cores from each time on.
        """
        return self._roster.records()

    def draw(self, path: str | Path) -> None:
        """Draw a picture of the pool's time so far; see `asa.pool.picture`."""
        draw_timeline(self.timeline(), path)


def _pools() -> Path:
    """Return the folder in which pools are kept: the folder that the user names, else the user's own folder here."""
    named = os.environ.get("ASA_POOLS")
    return Path(named) if named else safe.ones_own(Path("asa-pools"))


def _made(folder: Path) -> Path:
    hint = "Keep it in a folder that only you can change: folder=, or for all pools export ASA_POOLS=.../$USER."
    folder = folder.absolute()
    with in_words("cannot be made", folder, hint):
        safe.provide_above(folder)
        safe.check_fixed(folder.parent, "pool", lambda _: hint)
        safe.provide_folder(folder)
        safe.check(folder)
    return folder


def _seconds(duration: str | float) -> float:
    return parse_duration(duration) if isinstance(duration, str) else float(duration)
