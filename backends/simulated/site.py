"""The simulated queue as a backend, and the site that opens equal simulated worlds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from asa.backend import (
    Capabilities,
    Condition,
    DependencyType,
    JobSpec,
    JobState,
    JobStatus,
    PartitionLimits,
    Step,
    StepTimes,
)
from asa.core.handover import MappedValue
from asa.core.parallel import Keeping, Processes, SharedValue
from asa.core.plugins import load
from asa.errors import BackendError, InputError, JobNotFoundError, SubmitRejectedError, TraceError, near
from asa.outcome import JobOutcome
from asa.waits import QueueEvent

from .client import ClientJob, Need
from .cluster import BURST_BUFFER, Cluster, Load
from .cores import slow
from .cores.base import PlanningCore, PooledCore, ReturningCore
from .engine import Engine
from .feed import QueueFeed
from .machine import Machine
from .policies import CoreMaker
from .policies import scheduler as find_scheduler
from .presets import preset
from .swf import Trace, read_swf
from .table import NEVER, UNSTARTED, JobTable
from .together import OUTRUN, Work
from .workload import WorkloadModel

if TYPE_CHECKING:
    from .alike import AlikeCentre

_DAY = 86400
_GB = 10**9


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a simulated machine."""

    place: int  # index among the partitions of the machine
    limits: PartitionLimits
    cores: int  # upper bound of the cores of a job, whatever it requests


class SimulatedBackend:
    """One user's view of a simulated machine.

    Parameters
    ----------
    engine
        The machine, its load and its clock; the backend now owns it.
    machine
        Name and node size.
    poll_s
        Interval in seconds at which the client looks at the queue, and learns of changes; 0 for a client that learns of
    them at once. Reported times are exact in both cases.
    users
        Owners of the background jobs; -1 if not known.
    shrink, grow
        Whether a running job can give cores back, and get more.
    partitions
        Partitions by name, the default one first; a machine without named partitions has none, or one with an empty
        name.
    max_cores
        Upper bound of the cores of a job; by default those of the machine.
    """

    def __init__(
        self,
        engine: Engine,
        machine: Machine,
        *,
        poll_s: int = 0,
        users: NDArray[np.int32] | None = None,
        shrink: bool = True,
        grow: bool = True,
        partitions: Mapping[str, Partition] | None = None,
        max_cores: int | None = None,
    ) -> None:
        self._partitions, self._max_cores = dict(partitions or {}), max_cores or engine.capacity
        self._shrinks, self._grows = shrink, grow
        self._steps: dict[int, tuple[Step, ...]] = {}
        self._engine = engine
        self._machine = machine
        self._poll = poll_s
        self._feed = QueueFeed(engine, machine.name, users)
        self._tokens: dict[str, list[str]] = {}
        self._duplicates: set[int] = set()

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the simulated site."""
        return Capabilities(
            system=self._machine.name,
            max_cores=self._max_cores,
            cores_per_node=self._machine.cores_per_node,
            age_accrues=self._engine.age_accrues,
            shrink_by=self._machine.resized_by if self._shrinks else 0,
            grow_by=self._machine.resized_by if self._grows else 0,
            burst_buffer_bytes=_bytes(self._engine.pools),
            whole_nodes=self._machine.whole_nodes,
            races=True,
            partition=next(iter(self._partitions), ""),
            partitions={name: partition.limits for name, partition in self._partitions.items() if name},
        )

    @property
    def condition(self) -> Condition:
        """A simulated machine is always reachable."""
        return Condition(heard_s=self.now())

    def now(self) -> float:
        """Read the simulated clock, in seconds since the log's or the model's beginning."""
        return float(self._engine.now)

    def submit(self, spec: JobSpec) -> str:
        """Submit a job now. Times are rounded up to whole seconds."""
        others = self._tokens.setdefault(spec.token, []) if spec.token else []
        if any(self._may_run(job_id) for job_id in others):
            number = self._submit(self._engine, replace(spec, run_s=0.0, exit_code=JobOutcome.DUPLICATE.exit_code))
            self._duplicates.add(number)
        else:
            number = self._submit(self._engine, spec)
        others.append(str(number + 1))
        return str(number + 1)

    def _may_run(self, job_id: str) -> bool:
        """Whether a job has run its payload, is running it, or will run it."""
        job = self._engine.clients[self._number(job_id)]
        return job.payload_start != UNSTARTED or not job.state.is_final

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Look for jobs by their tokens."""
        return {token: list(self.status(self._tokens.get(token, ())).values()) for token in tokens}

    def cancel(self, job_id: str) -> None:
        """Cancel a job; it takes effect at once."""
        self._engine.cancel(self._number(job_id))

    def grow(self, job_id: str, spec: JobSpec) -> str:
        """Request more cores for a job; see `asa.backend.Growing`.

        Raises
        ------
        BackendError
            The job cannot grow here, or has ended.
        SubmitRejectedError
            The machine has fewer cores.
        """
        engine, number = self._engine, self._number(job_id)
        where = f"job {job_id!r}"
        job = engine.clients[number]
        if not self._grows or job.is_local or engine.widths.is_addition(number):
            raise BackendError("cannot get more cores here", where=where, hint="Submit a wider one.")
        if job.state.is_final:
            raise BackendError("has ended", where=where, hint="Submit another.")
        cores = self._machine.allocated(spec.cores)
        if not 1 <= cores <= engine.capacity - engine.widths.of(number):
            raise SubmitRejectedError(
                f"is to get {cores} more cores on a machine of {engine.capacity}", where=where, hint="Ask for fewer."
            )
        resizer = str(engine.widths.grow(number, cores) + 1)
        if spec.token:
            self._tokens.setdefault(spec.token, []).append(resizer)
        return resizer

    def hold(self, job_id: str) -> None:
        """Keep a pending job from starting."""
        self._engine.hold(self._number(job_id))

    def release(self, job_id: str) -> None:
        """Release a held job."""
        self._engine.release(self._number(job_id))

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the status of several jobs."""
        return {job_id: self._status(self._number(job_id)) for job_id in job_ids}

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Let simulated time pass until the client would notice a change, at most until `until_s`."""
        engine = self._engine
        until = NEVER if until_s is None else math.ceil(until_s)
        changed = dict.fromkeys(engine.advance(until))
        if changed and self._poll:
            noticed = min(-(-engine.now // self._poll) * self._poll, until)
            while engine.now < noticed:
                changed.update(dict.fromkeys(engine.advance(noticed)))
        return [self._status(number) for number in changed]

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Return what happened to background jobs since the last call."""
        return self._feed.news(most, ends=ends)

    def foresee_start(self, spec: JobSpec, submit_s: float) -> float:
        """Return the start of a job if it were submitted without dependencies at a given time, now or later.

        Copies the machine, and simulates until that start.

        Parameters
        ----------
        spec
            The job.
        submit_s
            Seconds on the clock.

        Raises
        ------
        BackendError
            It would never start.
        """
        future = self._engine.fork()
        moment = math.ceil(submit_s)
        while future.now < moment:
            future.advance(moment)
        number = self._submit(future, spec)
        job = future.clients[number]
        while job.start == UNSTARTED:
            if not future.advance(NEVER) and job.start == UNSTARTED:
                raise BackendError(
                    "would never start", where=f"job {spec.name!r}", hint="It is held, or waits for nothing."
                )
        return float(job.start)

    def others(self) -> Mapping[str, NDArray[np.int64]]:
        """Return the known times of the background jobs. For experiments only: no real site shows all of them.

        Returns
        -------
        dict of ndarray
            A row for each job, in order of submission: ``submit``, ``start`` (-1 while pending), ``end`` (-1 while not
            certain), in seconds on the clock, and ``run``, its own run time.
        """
        table, start = self._engine.table, self._engine.start[: len(self._engine.table)]
        end = np.where(start == UNSTARTED, NEVER, self._engine.ends(np.arange(len(table))))
        run = np.minimum(table.run, table.request)
        return {"submit": table.submit, "start": start.copy(), "end": np.where(end == NEVER, -1, end), "run": run}

    def _submit(self, engine: Engine, spec: JobSpec) -> int:
        cores = 1 if spec.local else self._machine.allocated(spec.cores, spec.nodes)
        where = f"job {spec.name!r}"
        partition = self._partition(spec)
        if partition is not None and not spec.local:
            cores = min(cores, partition.cores)
        if not 1 <= cores <= engine.capacity:
            raise SubmitRejectedError(
                f"asks for {cores} of the machine's {engine.capacity} cores",
                where=where,
                hint="Ask for what it has.",
            )
        if not spec.walltime_s > 0:
            raise SubmitRejectedError(f"asks for {spec.walltime_s} s", where=where, hint="Ask for more than nothing.")
        if spec.run_s is None:
            raise InputError("has no run time", where=where, hint="A simulator needs `run_s`.")
        needs = [Need(self._number(d.job_id), d.type, math.ceil(d.delay_s), d.or_end) for d in spec.dependencies]
        number = engine.submit(
            cores=cores,
            request=math.ceil(spec.walltime_s),
            run=max(math.ceil(spec.run_s), 1),
            exit_code=spec.exit_code,
            needs=needs,
            begin=math.ceil(spec.begin_s or 0),
            held=spec.held,
            awaits=spec.awaits,
            posts=spec.posts,
            is_local=spec.local,
            widths=self._widths(spec, cores),
            amounts=self._amounts(spec),
            partition=0 if partition is None else partition.place,
            work=Work.of(spec),
            saves=UNSTARTED if spec.saves_s is None else math.ceil(spec.saves_s),
        )
        if engine is self._engine and all(step.slot_s for step in spec.steps):
            self._steps[number] = spec.steps
        return number

    def _partition(self, spec: JobSpec) -> Partition | None:
        """Return a job's partition, the first one if several are allowed; None on a machine without partitions."""
        if not self._partitions:
            return None
        if lack := self.capabilities.impossible(spec):
            raise SubmitRejectedError(lack, where=f"job {spec.name!r}", hint="Ask for what it gives.")
        first = next(iter(self._partitions))
        name = spec.partition.partition(",")[0] if first else ""  # an empty name accepts every partition
        return self._partitions[name or first]

    def _amounts(self, spec: JobSpec) -> dict[str, int]:
        """Return a job's demands for resources of the machine other than cores."""
        whole_gb = self._engine.pools.get(BURST_BUFFER)
        asked_gb = math.ceil(spec.burst_buffer_bytes / _GB)
        if whole_gb is None or not asked_gb or spec.local:
            return {}
        if asked_gb > whole_gb:
            raise SubmitRejectedError(
                f"asks for {asked_gb} of the machine's {whole_gb} GB of burst buffer",
                where=f"job {spec.name!r}",
                hint="Ask for what it has.",
            )
        return {BURST_BUFFER: asked_gb}

    def _widths(self, spec: JobSpec, cores: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the changes of a job's width: second of its payload, new cores, and whether they are an increase."""
        for step in spec.steps:
            width = self._machine.allocated(step.cores) if step.cores else cores
            if step.slot_s and (self._grows if width > cores else self._shrinks and width < cores):
                yield math.ceil(step.slot_s[0]), width, width > cores
                cores = width

    def _step_times(self, number: int, job: ClientJob) -> Iterator[StepTimes]:
        """Yield the times of the steps of a job that have begun."""
        until = self.now() if job.end == UNSTARTED else job.end
        for step in self._steps.get(number, ()) if job.payload_start != UNSTARTED else ():
            assert step.slot_s is not None
            first, last = (math.ceil(moment) - job.skipped for moment in step.slot_s)
            start, end = job.moment(first), job.moment(last, before=True)
            if start <= until and first >= 0:  # otherwise another job has run the step
                cores = self._machine.allocated(step.cores) if step.cores and self._shrinks else 0
                yield StepTimes(step.name, float(start), float(end) if end <= until else None, cores)

    def _number(self, job_id: str) -> int:
        if job_id.isdecimal() and 1 <= int(job_id) <= len(self._engine.clients):
            return int(job_id) - 1
        raise JobNotFoundError(
            "the simulated queue has no such job", where=f"job {job_id!r}", hint="Ask for one submitted here."
        )

    def _status(self, number: int) -> JobStatus:
        job = self._engine.clients[number]
        has_exited = job.state in (JobState.COMPLETED, JobState.FAILED) and not job.reason
        is_duplicate = number in self._duplicates and job.state is JobState.FAILED
        own = JobOutcome.FAILED if job.exit_code else JobOutcome.COMPLETED
        if job.state is JobState.FAILED and job.reason == OUTRUN:
            has_exited, own = True, JobOutcome.OUTRUN
        return JobStatus(
            job_id=str(number + 1),
            state=job.state,
            submit_s=float(job.submit),
            eligible_s=_known(job.eligible),
            start_s=_known(job.start),
            payload_start_s=_known(job.payload_start),
            end_s=_known(job.end),
            exit_code=job.exit_code if has_exited else None,
            outcome=JobOutcome.DUPLICATE if is_duplicate else own if has_exited else None,
            expected_start_s=self._engine.planned(number),
            reason="Twin" if is_duplicate else self._reason(job),
            steps=tuple(self._step_times(number, job)),
        )

    def _reason(self, job: ClientJob) -> str:
        if job.state is JobState.TIMEOUT:
            return "TimeLimit"
        if job.state is not JobState.PENDING:
            return job.reason
        if job.doomed:
            return "DependencyNeverSatisfied"
        if job.held:
            return "JobHeldUser"
        if job.eligible != UNSTARTED:
            return job.reason or "Priority"
        return "Dependency" if any(self._unmet(need) for need in job.needs) else "BeginTime"

    def _unmet(self, need: Need) -> bool:
        needed = self._engine.clients[need.on]
        if need.type is DependencyType.AFTER:
            if need.or_end and needed.state.is_final:
                return False
            return needed.start == UNSTARTED or needed.start + need.delay > self._engine.now
        return not needed.state.is_final


class PlanningBackend(SimulatedBackend):
    """A simulated machine with a planning scheduler, which can be asked for a start (`asa.backend.Planning`)."""

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the simulated site."""
        return replace(super().capabilities, plans=True)

    def planned_start(self, spec: JobSpec, submit_s: float) -> float:
        """Return the planned start of a job if it were submitted at a time; see `asa.backend.Planning`."""
        cores = self._machine.allocated(spec.cores, spec.nodes)
        start = self._engine.planned_start(cores, math.ceil(spec.walltime_s), math.ceil(submit_s))
        assert start is not None
        return float(start)


def _is_here(world: Engine | SharedValue[Engine] | None) -> bool:
    """Whether a world is there, and does not depend on another process."""
    return world.is_here if isinstance(world, _Moment) else isinstance(world, Engine)


def _bytes(pools: Mapping[str, int]) -> int | None:
    """Return the size of a machine's burst buffer."""
    return pools[BURST_BUFFER] * _GB if BURST_BUFFER in pools else None


def _whole(name: str, value: int | str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise InputError(f"{value!r} is no whole number", where=name, hint="Write it in digits.") from error


def _truth(name: str, value: bool | str) -> bool:  # noqa: FBT001 - a setting
    if isinstance(value, bool):
        return value
    if value.lower() not in {"true", "yes", "false", "no"}:
        raise InputError(f"{value!r} is neither true nor false", where=name, hint="Write one of them.")
    return value.lower() in {"true", "yes"}


def _known(time: int) -> float | None:
    return None if time == UNSTARTED else float(time)


def _log_name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".swf") or path.name


@dataclass(frozen=True, slots=True)
class _Moment:
    """A moment of a replay, as its difference from the last: whole forks for many seeds of a log fill the memory."""

    # the replay, which has continued; mapped where several processes open worlds of it, so that each world takes memory
    # only for what it changes
    replay: Engine | MappedValue[Engine]
    kept: Any  # kept state of the core

    @property
    def is_here(self) -> bool:
        """Whether it does not depend on another process."""
        return isinstance(self.replay, Engine)

    def value(self) -> Engine:
        """Return the machine at this moment, as a copy; raises OSError if the replay's process is gone."""
        engine = self.replay.fork() if isinstance(self.replay, Engine) else self.replay.value()
        assert isinstance(engine.core, ReturningCore)
        engine.core.return_to(self.kept)
        return engine


class SimulatedSite:
    """A simulated machine with other users' jobs in its queue: a centre by a model, or a replayed log.

    Equal worlds of it can be opened again and again.

    Either a centre with a workload model, or the replay of a real log. The user arrives at a time drawn with the seed:
    with a model in its second week, with a log anywhere but in its first and last parts.

    Parameters
    ----------
    system
        A preset's name, ``hpc2n`` or ``uppmax``, with ``-table2`` behind it for longer waits; or give `trace`.
    trace
        An SWF log to replay.
    trace_cores
        Processors of the log's machine, if its header does not say.
    age_accrues
        Whether a dependent job's age counts from its submission, see `asa.backend.Capabilities`.
    poll_s
        Interval in seconds at which the client looks at the queue.
    shrink, grow
        Whether a running job can give cores back, and get more.
    scheduler, scheduler_settings
        Name of the machine's scheduler, and its settings as text; see `asa.backends.simulated.policies.scheduler`.
    model
        A custom workload in place of a preset.
    seed
        Seed of the world that `connect` opens.

    Numbers and booleans may be given as text, like settings on a command line.

    Examples
    --------
    >>> world = SimulatedSite("hpc2n").open(seed=1)
    >>> world.capabilities.max_cores
    16856
    """

    _MODEL_WARM_UP = 7 * _DAY
    _MODEL_LENGTH = 28 * _DAY
    _LOG_MARGIN = 0.1  # share of a log's time span at each end in which no run begins
    _MAX_LOG_MARGIN = 30 * _DAY

    def __init__(
        self,
        system: str | None = None,
        *,
        trace: str | Path | Trace | None = None,
        trace_cores: int | str | None = None,
        age_accrues: bool | str = True,
        poll_s: int | str = 10,
        shrink: bool | str = True,
        grow: bool | str = True,
        scheduler: str = "easy",
        scheduler_settings: Mapping[str, str] | None = None,
        model: WorkloadModel | None = None,
        seed: int | str = 0,
    ) -> None:
        poll_s, self.seed = _whole("poll_s", poll_s), _whole("seed", seed)
        trace_cores = None if trace_cores is None else _whole("trace_cores", trace_cores)
        if sum(given is not None for given in (system, trace, model)) != 1:
            raise InputError(
                "a simulated site is either a system or a trace",
                hint="Give one of them: --option system=hpc2n or uppmax, or --option trace=FILE.swf.",
            )
        if poll_s < 0:
            raise InputError(f"a poll every {poll_s} s cannot be", hint="Give 0 or more seconds.")
        self.trace: Trace | None = None
        self.model: WorkloadModel | None = None
        if trace is not None:
            self.trace = trace if isinstance(trace, Trace) else read_swf(trace, cores=trace_cores)
            self.machine = Machine(_log_name(self.trace.path), self.trace.cores, 1)
        else:
            self.model = model or preset(system or "")
            self.machine = self.model.machine
        self.age_accrues = _truth("age_accrues", age_accrues)
        self.shrink = _truth("shrink", shrink)
        self.grow = _truth("grow", grow)
        self.poll_s = poll_s
        self.scheduler = scheduler
        self.scheduler_settings = dict(scheduler_settings or {})
        self._plans, self._buffer = False, None
        self._made_up: tuple[str, ...] = ()
        if scheduler != "easy" or self.scheduler_settings:
            policy = find_scheduler(scheduler, self.scheduler_settings)  # to refuse an unknown one now
            if isinstance(policy, CoreMaker):
                nothing = JobTable(*np.empty((4, 0), dtype=np.int64))
                core = policy.core(self.machine.cores, nothing, now=0)
                self._plans = isinstance(core, PlanningCore)
                self._buffer = _bytes(core.pools) if isinstance(core, PooledCore) else None
                self._made_up = policy.notes
        self._worlds: dict[int, Engine | SharedValue[Engine]] = {}
        self._arrivals: tuple[int, ...] = ()

    @staticmethod
    def like(
        name: str, nodes: int, cores_per_node: int, waits: NDArray[np.float64], *, whole_nodes: bool = False
    ) -> AlikeCentre:
        """Make a model of a site, given only its size and some waits; see `alike.centre_like`."""
        from .alike import centre_like  # noqa: PLC0415 - one command needs it

        return centre_like(Machine(name, nodes, cores_per_node, whole_nodes=whole_nodes), waits)

    def arrive(self, clock_s: Iterable[float]) -> None:
        """Set arrival times in the log for the users of seeds 0, 1 and so on, in seconds since 1970 on its clock."""
        assert self.trace is not None
        self._arrivals = tuple(round(time_s - self.trace.clock_s) for time_s in clock_s)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of each of its worlds."""
        return Capabilities(
            self.machine.name,
            self.machine.cores,
            self.machine.cores_per_node,
            self.age_accrues,
            shrink_by=self.machine.resized_by if self.shrink else 0,
            grow_by=self.machine.resized_by if self.grow else 0,
            plans=self._plans,
            burst_buffer_bytes=self._buffer,
            whole_nodes=self.machine.whole_nodes,
        )

    @property
    def notes(self) -> list[str]:
        """Notes on the machine for the user, and how often each rule for a log's oddities was applied."""
        notes = [slow()] if slow() else []
        if self.scheduler != "easy":
            given = "".join(f", {name} {value}" for name, value in self.scheduler_settings.items())
            notes += [f"the machine's scheduler is {self.scheduler}{given}", *self._made_up]
        if self.trace is not None:
            notes += [f"{count} jobs {words}" for words, count in self.trace.oddities.items()]
        return notes

    def prepare(self, seeds: Sequence[int], executor: Executor | None = None) -> None:
        """Simulate up to the moment of each seed, once; for a log in a single pass for all seeds."""
        # kept worlds of other processes were lost with them
        missing = [seed for seed in dict.fromkeys(seeds) if not _is_here(self._worlds.get(seed))]
        if self.trace is not None:
            self._replay(self.trace, missing, executor if isinstance(executor, Processes) else None)
        elif executor is None or len(missing) < 2:
            self._worlds |= {seed: self._warm_up(seed) for seed in missing}
        elif isinstance(executor, Keeping):  # a world is large, so the processes that run in it keep it, not this one
            self._worlds |= dict(zip(missing, executor.keep(self._warm_up, missing), strict=True))
        else:
            warming = {seed: executor.submit(self._warm_up, seed) for seed in missing}
            self._worlds |= {seed: world.result() for seed, world in warming.items()}

    def in_order(self, seeds: Sequence[int]) -> list[int]:
        """Sort seeds by the times of their worlds in the log; worlds of a model have no common history."""
        return list(seeds) if self.trace is None else sorted(seeds, key=self._moment)

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] | None = None) -> SimulatedBackend:  # noqa: ARG002 - its time passes by itself
        """Open the world of the seed for one run. It ends with its client, so a run cannot open it twice.

        Raises
        ------
        InputError
            It was opened for this run before.
        """
        mark = folder / "simulated"
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            raise InputError(
                "a simulated machine is gone with the client that it was made for",
                where=str(folder),
                hint="Begin a new run: it takes seconds.",
            ) from None
        return self.open(self.seed)

    def open(self, seed: int) -> SimulatedBackend:
        """Open the world of a seed at the arrival of its user; with a planning scheduler it can be asked for starts."""
        users = self.trace.users if self.trace is not None else None
        make = PlanningBackend if self._plans else SimulatedBackend
        return self._backend(self._world(seed), make, users=users)

    def _backend(
        self, engine: Engine, make: Callable[..., SimulatedBackend] = SimulatedBackend, **more: Any
    ) -> SimulatedBackend:
        """Return a machine as its user sees it, under the site's rules."""
        engine.age_accrues = self.age_accrues
        return make(engine, self.machine, poll_s=self.poll_s, shrink=self.shrink, grow=self.grow, **more)

    def _world(self, seed: int) -> Engine:
        """Return a copy of the prepared world of a seed; made here if it was not prepared, or its process is gone."""
        world = self._worlds.get(seed)
        if isinstance(world, _Moment | MappedValue):  # each value is a new copy
            with suppress(OSError):
                return world.value()
        elif world is not None and not isinstance(world, Engine):
            with suppress(OSError):
                return world.value().fork()
        self.prepare([seed])
        world = self._worlds[seed]
        return world.fork() if isinstance(world, Engine) else world.value()

    def _engine(self, table: JobTable) -> Engine:
        cores = self.machine.cores
        if self.scheduler == "easy":
            return Engine(cores, table)
        now = int(table.submit[0]) if len(table) else 0
        found = find_scheduler(self.scheduler, self.scheduler_settings)
        users = self.trace.users if self.trace is not None else None
        if isinstance(found, CoreMaker):
            return Engine(cores, table, core=found.core(cores, table, now=now, users=users))
        from .cores.general import GeneralCore  # noqa: PLC0415 - numba takes a third of a second to import

        core = GeneralCore(Load(table, Cluster({"cores": cores}), users=users), found, now=now)
        return Engine(cores, table, core=core)

    def _warm_up(self, seed: int) -> Engine:
        assert self.model is not None
        moments, jobs = np.random.SeedSequence(seed).spawn(2)
        table = self.model.generate(self._MODEL_LENGTH, jobs)
        moment = self._MODEL_WARM_UP + int(np.random.Generator(np.random.PCG64(moments)).integers(7 * _DAY))
        engine = self._engine(table)
        engine.advance(moment)
        return engine

    def _replay(self, trace: Trace, seeds: Sequence[int], processes: Processes | None) -> None:
        engine, moments = self._engine(trace.table), {}
        for seed in self.in_order(seeds):
            engine.advance(self._moment(seed))
            kept = engine.core.kept() if isinstance(engine.core, ReturningCore) else None
            if kept is None:
                self._worlds[seed] = engine.fork()
            else:
                moments[seed] = kept
        if moments:
            replay = engine if processes is None else processes.share(engine)
            self._worlds |= {seed: _Moment(replay, kept) for seed, kept in moments.items()}

    def _moment(self, seed: int) -> int:
        """Return the time in the log at which the user of a seed arrives."""
        assert self.trace is not None
        if self._arrivals:
            return self._arrivals[seed]
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        return int(rng.integers(*self._span(self.trace)))

    def _span(self, trace: Trace) -> tuple[int, int]:
        """Return the times of a log between which runs may begin: neither in its first nor in its last part."""
        # quantiles of jobs, not of time: one absurd date would otherwise put most seeds on an empty machine
        first, last = (int(moment) for moment in np.quantile(trace.table.submit, [0.01, 0.99], method="nearest"))
        margin = min(int(self._LOG_MARGIN * (last - first)), self._MAX_LOG_MARGIN)
        if last - first < 2 * margin + 1:
            where = str(trace.path)
            raise TraceError("is too short for a run to begin in it", where=where, hint="Give a longer log.")
        return first + margin, last - margin


class SchedulerSite(SimulatedSite):
    """A simulated site with a scheduler of its own, whose settings are the site's.

    Parameters
    ----------
    system
        See `SimulatedSite`.
    settings
        Settings of `SimulatedSite`, and of the scheduler except its seed.

    Raises
    ------
    InputError
        A setting is unknown, or a value is invalid.
    """

    SCHEDULER: ClassVar[str]

    def __init__(self, system: str | None = None, **settings: Any) -> None:
        of_site = inspect.signature(SimulatedSite).parameters
        of_scheduler = inspect.signature(load("asa.schedulers", self.SCHEDULER)).parameters
        known = dict.fromkeys((*of_site, *of_scheduler))
        if unknown := next((name for name in settings if name not in known), ""):
            hint = f"{near(unknown, known)}Known: {', '.join(known)}."
            raise InputError(f"there is no setting {unknown!r}", where=unknown, hint=hint)
        given = {name: value for name, value in settings.items() if name in of_site}
        others = {name: str(value) for name, value in settings.items() if name not in of_site}
        super().__init__(system, **{"scheduler": self.SCHEDULER, "scheduler_settings": others} | given)
