"""A workflow's stages as tasks of a pool: for the run's client, a batch system whose jobs are dask's tasks.

So a run on a pool is a run like any other: it has the same folder, journal, records and exit codes, and is resumed and
retried in the same way. Stages are submitted with their dependencies, so that the pool knows the whole graph ahead of
time. The scheduler is in the client. Tasks that run when the client ends run again when the run is resumed; completed
ones leave a marker and do not.
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard
from urllib.parse import quote

from asa.backend import (
    Advice,
    Advisor,
    Backend,
    Capabilities,
    Condition,
    DependencyType,
    JobSpec,
    JobState,
    JobStatus,
    StepTimes,
    Troubleshooting,
)
from asa.core import safe, temporary
from asa.core.documents import read_json
from asa.core.files import append_to, put, read_file, read_text
from asa.core.typed import made
from asa.core.variables import asked
from asa.errors import (
    BackendError,
    InputError,
    JobNotFoundError,
    MissingExtraError,
    StateError,
    SubmitRejectedError,
    UnavailableError,
)
from asa.job import exported, head, text
from asa.keys import TERMS
from asa.outcome import JobOutcome, by_exit_code, outcome_from
from asa.payload import payload_text
from asa.sites import OpenedSite
from asa.waits import QueueEvent
from asa.workflow import Stage, Workflow

from .joining import JOINED, contact_of, join, named_pool
from .picture import draw_timeline

if TYPE_CHECKING:
    from .cluster import AsaCluster

POOLED = "+pool"
"""Suffix of a site's name for jobs that are tasks of a pool there. Waits of these are not waits of the site."""

_DURATIONS = "distributed.scheduler.default-task-durations"
_LOUD = ("distributed", "tornado", "tornado.application")  # loggers that report calls which come while the pool closes
_PAGE = "ASA_POOL_DASHBOARD"  # variable with the address for dask's dashboard; without it there is none
_NOTED = "10ms"  # expected run time of a task that records a stage's end
_LOOK_S = 0.25
_GRACE_S = 5.0  # between a request to end and the kill
_MB = 10**6  # memory is counted in MB, since a worker's command line rounds it
_PARTS = 1024  # of a GPU: binary fractions add up to a whole one without rounding errors
_SPARE = 1.2  # factor on the longest walltime of a stage, for the walltime of an allocation
_MAX_EXIT = 255
_STOPPED, _TIMED_OUT, _NEVER = -1, -2, -3  # codes of tasks that have no exit code
_STATES = {_STOPPED: JobState.CANCELLED, _TIMED_OUT: JobState.TIMEOUT, 0: JobState.COMPLETED}


def as_tasks(workflow: Workflow) -> Workflow:
    """Return the workflow as a pool runs it: each stage in its first shape, and as a single job.

    The pool itself divides a stage's tasks among its jobs.
    """
    stages = [
        stage
        if stage.jobs == (1, 1)
        else replace(stage, jobs=(1, 1), expected_run_s=min(stage.expected_s, stage.walltime_s))
        for stage in workflow.fixed().stages.values()
    ]
    return Workflow(workflow.name, stages, walltime_s=workflow.walltime_s if workflow.says_walltime else None)


class PoolOfStages:
    """A site on which a workflow's stages run as tasks of one pool.

    `workflow`: what runs; its stages determine the width and walltime of the pool's jobs.
    """

    def __init__(self, opened: OpenedSite, workflow: Workflow, **options: Any) -> None:
        self._opened, self._workflow, self._options = opened, as_tasks(workflow), options

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user, a sentence each."""
        return [
            *self._opened.facility.notes,
            "Stages are tasks of a pool: the pool's jobs wait in the queue, not they.",
        ]

    def advice(self, reason: str) -> Advice:
        """Explain a reason in the site's words; see `asa.backend.Advisor`."""
        facility = self._opened.facility
        return facility.advice(reason) if isinstance(facility, Advisor) else Advice(reason)

    def remedy(self, trouble: str) -> str:
        """Return a remedy for a problem with the site; see `asa.backend.Troubleshooting`."""
        facility = self._opened.facility
        return facility.remedy(trouble) if isinstance(facility, Troubleshooting) else ""

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] = time.sleep) -> StagesBackend:
        """Connect one run; the pool itself is made when the first stage is handed over."""
        limits = limits_of(self._opened, folder / "pool", sleep)
        options = {**pool_shape(self._workflow, limits, self._options), **self._options}
        if (joined := named_pool()) is not None:
            contact = contact_of(joined)
            if contact.system != limits.system:
                raise InputError(
                    f"is a pool of {contact.system!r}, and the run is to be at {limits.system!r}",
                    where=f"{JOINED}={joined}",
                    hint=f"Name the same site; or unset {JOINED}, and the run has a pool of its own.",
                )
            options["cores"] = contact.cores
        opened = {"backend": self._opened.backend, "settings": dict(self._opened.settings)}
        return StagesBackend(folder, self._workflow, limits, {**opened, **options}, sleep, joined=joined)


def limits_of(opened: OpenedSite, folder: Path, sleep: Callable[[float], bool | None] = time.sleep) -> Capabilities:
    """Ask a site for its limits; what it writes meanwhile goes into the folder."""
    site: Backend = opened.facility.connect(folder / "look", sleep=sleep)
    try:
        return site.capabilities
    finally:
        if (close := getattr(site, "close", None)) is not None:
            close()


def node_of(opened: OpenedSite, folder: Path) -> int:
    """Return the cores of a site's node, or of all of it if that is less."""
    return _node(limits_of(opened, folder))


def _node(limits: Capabilities, partition: str = "") -> int:
    limits, _ = limits.place(partition)
    return min(limits.cores_per_node or limits.max_cores, limits.max_cores)


def pool_shape(
    workflow: Workflow, limits: Capabilities, given: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return size and walltime of the pool's jobs: at most a node, and long enough for the longest stage.

    `workflow`: as `as_tasks` returns it.
    `given`: the partition and the terms of the jobs, where the user gives these.
    Raises `InputError`: a stage cannot run as tasks of a pool.
    """
    stages = workflow.stages.values()
    asked = given.get("partition") or _only("partition", {stage.partition: stage for stage in stages})
    partition = limits.name_of(asked)
    terms = {
        key.name: given.get(key.name) or _only(key.name, {getattr(stage, key.field): stage for stage in stages})
        for key in TERMS
    }
    account = terms.pop("account")
    options = [key.as_option(terms[key.name]) for key in TERMS if terms.get(key.name)]
    _check_shared(stages)
    node = _node(limits, partition)
    wide = sum(stage.cores_on(node) for stage in stages)
    cores = max(min(node, wide), 1)
    longest_s = max(stage.walltime_s for stage in stages)
    walltime_s = max(longest_s * _SPARE + 60.0, min(workflow.critical_path_s, 86400.0))
    rules = limits.limits(partition)
    if rules.max_walltime_s is not None:
        walltime_s = min(walltime_s, rules.max_walltime_s)
    memory = max(math.ceil(stage.memory_bytes * cores / max(stage.cores_on(node), 1)) for stage in stages)
    return {
        "cores": cores,
        "threads": cores,
        "walltime": walltime_s,
        "memory": memory,
        "gpus": max(stage.gpus for stage in stages),
        "partition": partition,
        "account": account,
        "options": tuple(dict.fromkeys((*options, *(option for stage in stages for option in stage.options)))),
        "maximum": -(-_widest(workflow, node) // cores),
    }


def _only(what: str, stages: Mapping[Any, Stage]) -> Any:
    """Return the partition, account or other value that stages name; empty if none does. Refuse several values."""
    named = [name for name in stages if name]
    if len(named) > 1:
        requests = " and ".join(f"{stages[name].name!r} for {name!r}" for name in named[:2])
        raise InputError(
            f"stages ask for more than one {what}: {requests}; the jobs of a pool have one",
            where=what,
            hint="Give all stages the same, or take another strategy, whose jobs are the stages themselves.",
        )
    return named[0] if named else ""


def _check_shared(stages: Iterable[Stage]) -> None:
    """Refuse stages with requests that a task on a shared node cannot have."""
    for stage in stages:
        if not stage.is_one_job:
            why = stage.own_jobs or "has several jobs of its own"
            raise InputError(
                f"{why}; the jobs of a pool are the pool's own",
                where=f"stage {stage.name!r}",
                hint="Take another strategy, whose jobs are the stages themselves, or write what its jobs do as tasks.",
            )
        if stage.exclusive or stage.burst_buffer_bytes:
            what = "nodes of its own" if stage.exclusive else "a burst buffer"
            raise InputError(
                f"asks for {what}; the tasks of a pool share nodes",
                where=f"stage {stage.name!r}",
                hint="Take another strategy, whose jobs are the stages themselves.",
            )


def _widest(workflow: Workflow, node: int) -> int:
    """Return the largest sum of cores of stages on one level of the graph: they may run at the same time."""
    levels: dict[str, int] = {}
    wide: dict[int, int] = {}
    for name in workflow.order:
        stage = workflow.stages[name]
        levels[name] = level = 1 + max((levels[before] for before in stage.after), default=0)
        wide[level] = wide.get(level, 0) + stage.cores_on(node)
    return max(wide.values())


@dataclass(slots=True)
class _HandedOver:
    """A stage that was handed over."""

    job_id: str
    spec: JobSpec
    submit_s: float
    restarts: int = 0
    futures: list[Any] = field(default_factory=list)
    reported: JobStatus | None = None
    final: JobStatus | None = None


def _handed_over(path: Path, before: Mapping[str, _HandedOver]) -> _HandedOver:
    """Read a stage that an earlier client handed over, after others.

    Raises `OSError`, `ValueError`, `KeyError`, `TypeError` or `OverflowError`: its file is damaged.
    """
    kept = read_json(read_file(path))
    spec = made(JobSpec, kept["spec"])
    if not {dependency.job_id for dependency in spec.dependencies} <= before.keys():
        raise ValueError(f"{path.name} depends on what was not handed over before it")
    return _HandedOver(path.stem, spec, float(kept["submit_s"]), int(kept["restarts"]))


class StagesBackend:
    """Runs stages as tasks; see `asa.backend.Backend`.

    Workers write a job's state into files of the run's folder, so a later client knows as much as the first.
    """

    def __init__(
        self,
        folder: Path,
        workflow: Workflow,
        limits: Capabilities,
        options: dict[str, Any],
        sleep: Callable[[float], bool | None],
        *,
        joined: Path | None = None,  # folder of the pool that it joins; None for one of its own
    ) -> None:
        self._joined, self._nonce = joined, secrets.token_hex(4)
        self._folder, self._workflow, self._options, self._sleep = folder, workflow, options, sleep
        self._work = str(Path.cwd())
        self._limits, self._cores = limits, int(options["cores"])
        self._pool_folder = (folder / "pool").absolute()
        self._logs = (folder / "logs").absolute()
        self._cluster: AsaCluster | None = None
        self._client: Any = None
        self._settings: Any = None
        self._jobs: dict[str, _HandedOver] = {}
        self._calls = 0
        try:
            for pool_folder in (self._pool_folder, self._logs):
                safe.provide_folder(pool_folder)
            for path in sorted(self._pool_folder.glob("*.job"), key=lambda path: int(path.stem)):
                self._jobs[path.stem] = _handed_over(path, self._jobs)
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise StateError(
                f"cannot be used: {error}", where=str(self._pool_folder), hint="Begin a new run."
            ) from error

    # ------------------------------------------------------------------ the port

    @property
    def capabilities(self) -> Capabilities:
        """Limits for a task of the pool: the cores of an allocation; it may depend on other tasks."""
        return Capabilities(
            f"{self._limits.system}{POOLED}",
            self._cores,
            self._cores,
            age_accrues=True,
            dependency_types=frozenset({DependencyType.AFTEROK}),
            begin_time=False,
            accepts_late=False,  # jobs are recorded in the run's folder before they are handed over
        )

    @property
    def condition(self) -> Condition:
        """The pool's problem with its site, if any."""
        trouble = self._cluster.trouble if self._cluster is not None else ""
        return Condition(self.now(), trouble, self._calls)

    def now(self) -> float:
        """Read the clock."""
        return time.time()

    def submit(self, spec: JobSpec) -> str:
        """Hand a stage over. It begins when the stages that it depends on have completed and cores are free."""
        self._calls += 1
        if spec.token and (job := next((job for job in self._jobs.values() if job.spec.token == spec.token), None)):
            return job.job_id
        if spec.steps or spec.cores > self._cores or spec.nodes > 1:
            asked = f"{spec.cores} cores on {max(spec.nodes, 1)} nodes"
            raise SubmitRejectedError(
                f"asks for {asked}, and a task of the pool has {self._cores} on one",
                where=f"job {spec.name!r}",
                hint="Take another strategy, whose jobs are the stages themselves.",
            )
        self._open()
        offered = self._offered()
        if lacking := [name for name, amount in _needs(spec, spec.cores).items() if amount > offered.get(name, 0.0)]:
            raise SubmitRejectedError(
                f"asks for more {lacking[0]} than a worker of the pool has: {offered.get(lacking[0], 0):g}",
                where=f"job {spec.name!r}",
                hint=f"Give the pool's jobs more {lacking[0]}, or take another strategy.",
            )
        job = _HandedOver(str(len(self._jobs) + 1), spec, self.now())
        self._keep(job)
        self._jobs[job.job_id] = job
        if not self._awaits(job):
            self._launch(job)
        return job.job_id

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Return the jobs of tokens."""
        wanted = {token: [job for job in self._jobs.values() if job.spec.token == token] for token in tokens}
        return {token: [self._status(job) for job in jobs] for token, jobs in wanted.items()}

    def cancel(self, job_id: str) -> None:
        """End a stage's tasks, or keep them from beginning."""
        job = self._job(job_id)
        if not self._status(job).state.is_final:
            self._file(job, "cancel").touch()
            if self._client is not None:
                unbegun = [future for future in job.futures if not self._file(job, "begin").exists()]
                self._client.cancel(unbegun, force=True)

    def hold(self, job_id: str) -> None:
        """Refuse: tasks cannot be held."""
        raise BackendError("cannot be held", where=f"job {job_id}", hint="Cancel it.")

    def release(self, job_id: str) -> None:
        """Do nothing: no task is ever held."""
        self._job(job_id)

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the status of several jobs."""
        return {job_id: self._status(self._job(job_id)) for job_id in job_ids}

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Sleep until something changes, or the time has come.

        Raises `UnavailableError`: the pool has no allocation, and will not ask for one by itself.
        """
        while True:
            # jobs that an earlier client handed over, and jobs that waited for a completion marker
            for job in self._jobs.values():
                if not job.futures and not self._status(job).state.is_final and not self._awaits(job):
                    self._launch(job, again=True)
            changed = [
                self._status(job) for job in self._jobs.values() if job.final is None or job.reported != job.final
            ]
            changed = [status for status in changed if status != self._jobs[status.job_id].reported]
            for status in changed:
                self._jobs[status.job_id].reported = status
            left_s = math.inf if until_s is None else until_s - self.now()
            self._check_joined()
            is_idle = until_s is None and all(job.final is not None for job in self._jobs.values())
            if not changed and not is_idle and self._cluster is not None and (why := self._cluster.stuck):
                hint = "See to that, and go on with: asa resume."
                raise UnavailableError(f"no worker comes: {why}", where="the pool of this run", hint=hint)
            if changed or left_s <= 0 or is_idle or self._sleep(min(left_s, _LOOK_S)):
                return changed

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:  # noqa: ARG002 - the port's
        """Return no events: other users have no jobs in the pool."""
        return ()

    def close(self) -> None:
        """Close the pool: cancel its jobs, keep the learned waits, and draw its timeline."""
        if self._client is not None:
            with suppress(OSError, TimeoutError):
                self._client.close()
        if self._cluster is not None:
            self._cluster.close()
            with suppress(InputError, MissingExtraError):  # a missing picture must not fail the run
                draw_timeline(self._cluster.timeline(), self._cluster.folder / "timeline.png")
        if self._settings is not None:
            self._settings.__exit__(None, None, None)
        self._client = self._cluster = self._settings = None

    # ------------------------------------------------------------------ tasks

    def _open(self) -> Any:
        """Make the pool, once there is a stage to run."""
        if self._client is not None:
            return self._client
        if self._joined is not None:
            self._client = join(self._joined)
            for name in (*_LOUD, "distributed.client"):  # that the pool has ended is said in our words
                logging.getLogger(name).setLevel(logging.CRITICAL)
            self._client.run_on_scheduler(_expect, self._durations())
            return self._client
        try:
            import dask  # noqa: PLC0415 - an extra
            from distributed import Client  # noqa: PLC0415 - as above

            from .cluster import AsaCluster  # noqa: PLC0415 - as above
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "a pool needs dask.distributed, which is not installed", hint="pip install 'asa-client[pool]'"
            ) from error
        self._settings = dask.config.set({_DURATIONS: {**dask.config.get(_DURATIONS), **self._durations()}})
        self._settings.__enter__()
        # asa reports the state of stages; dask's log, with tracebacks of cancelled tasks, would only confuse
        options: dict[str, Any] = {"n_workers": 0, "folder": self._pool_folder / "cluster"}
        options |= {"silence_logs": logging.CRITICAL, "dashboard_address": os.environ.get(_PAGE)}
        for name in _LOUD:
            for handler in logging.getLogger(name).handlers:  # else a cluster that closes sets their level back
                handler.setLevel(logging.CRITICAL)
        options |= self._options
        maximum = options.pop("maximum", math.inf)
        try:
            self._cluster = AsaCluster(**options)
            self._cluster.adapt(minimum=0, maximum=maximum)
            if link := self._cluster.dashboard:
                _write(self._pool_folder / "dashboard", f"{link}\n")
            self._client = Client(self._cluster)
        except BaseException as error:  # the caller may ask again
            self.close()
            # dask raises these if the disk is full or no port is free
            if not isinstance(error, (OSError, RuntimeError)):
                raise
            hint = f"Is there space in {temporary.base_folder()}, and in the run's folder? Another goes into TMPDIR."
            raise UnavailableError(
                f"the pool cannot begin: {error}", where="the pool of this run", hint=hint
            ) from error
        return self._client

    def _durations(self) -> dict[str, str]:
        """Return how long the tasks of each stage are expected to run, by their names in dask."""
        from dask.utils import key_split  # noqa: PLC0415 - an extra

        expected = {}
        for name, stage in self._workflow.stages.items():
            at_once = max(stage.cores_on(self._cores) // stage.cpus_per_task, 1)
            rounds = -(-len(stage.tasks) // at_once) if stage.tasks else 1
            expected[key_split((self._kind(name),))] = f"{stage.expected_s / rounds}s"
            expected[key_split((self._end_of(name),))] = _NOTED  # else it counts as work of unknown duration
        return expected

    def _kind(self, stage: str) -> str:
        """Return dask's name of a stage's tasks, by which it learns their run times, of all runs in the pool.

        A plain hyphen would end it: dask takes what follows for a number.
        """
        return f"{self._workflow.name}/{stage}".replace("-", "\N{HYPHEN}")

    def _end_of(self, stage: str) -> str:
        return f"{self._kind(stage)}-end"

    def _offered(self) -> Mapping[str, float]:
        """Return what a worker process offers."""
        if self._joined is not None:
            return contact_of(self._joined).resources
        return self._cluster.shape.resources if self._cluster is not None else {}

    def _check_joined(self) -> None:
        """Raise if the pool that the run has joined is gone."""
        if self._joined is not None and self._client is not None and self._client.status != "running":
            raise UnavailableError(
                "the pool has ended, or cannot be reached",
                where=f"{JOINED}={self._joined}",
                hint="Keep it again with asa pool, and go on with: asa resume.",
            )

    def _launch(self, job: _HandedOver, *, again: bool = False) -> None:
        """Submit a job's tasks to the pool, after those of the jobs that it depends on."""
        client = self._open()
        if again and (begun := self._file(job, "begin")).exists():
            job.restarts += 1
            self._keep(job)
            begun.unlink(missing_ok=True)
        before: list[Any] = []
        for earlier in self._before(job):
            if not self._status(earlier).state.is_final and not earlier.futures:
                self._launch(earlier, again=True)
            before += earlier.futures[-1:] if earlier.final is None else [self._code(earlier)]
        stage = self._stage(job.spec)
        name = stage.name if stage is not None else job.spec.name
        turn = f"{self._nonce}-{job.job_id}-{job.restarts}"  # other runs of this workflow may be in the same pool
        parts = []
        for number, (payload, cores) in enumerate(self._texts(job, stage)):
            order = _Order(
                payload, str(self._pool_folder), job.job_id, str(self._logs / f"{_safe(job.spec)}.{job.job_id}"),
                self._work, job.spec.walltime_s, asked(job.spec.secrets),
            )  # fmt: skip
            options = {"resources": _needs(job.spec, cores), "key": (self._kind(name), turn, number), "pure": False}
            parts.append(client.submit(run_part, order, before, **options))
        job.futures = [
            *parts,
            client.submit(note_end, str(self._pool_folder), job.job_id, parts, key=(self._end_of(name), turn)),
        ]

    def _before(self, job: _HandedOver) -> list[_HandedOver]:
        return [self._job(dependency.job_id) for dependency in job.spec.dependencies]

    def _awaits(self, job: _HandedOver) -> bool:
        """Whether a job, or one that it follows, awaits a completion marker that no task writes, as of a local stage.

        As a task the job would hold its cores while it waits.
        """
        before = self._before(job)
        theirs = {token for earlier in before for token in earlier.spec.posts}
        if any(not (token in theirs or self._is_posted(token)) for token in job.spec.awaits):
            return True
        return any(
            not (earlier.futures or self._status(earlier).state.is_final) and self._awaits(earlier)
            for earlier in before
        )

    def _is_posted(self, token: str) -> bool:
        if (self._folder / "posts" / quote(token, safe="")).exists():
            return True
        return any(token in job.spec.posts and self._has_completed(job) for job in self._jobs.values())

    def _texts(self, job: _HandedOver, stage: Stage | None) -> Iterator[tuple[str, int]]:
        """Yield the text and the cores of each task of a job. Each task of a list is a task of the pool."""
        done_in = self._done_in(job)
        if not self._is_list(stage):
            yield _unless_done(job.spec.command, done_in / "stage"), job.spec.cores
            return
        for number, line in enumerate(stage.tasks, start=1):
            done = done_in / str(number)
            command = _once(line, number, len(stage.tasks), done)
            alone = replace(stage, tasks=(), command=command, request=None, cores=stage.cpus_per_task)
            # with the values that it has in a job
            yield payload_text(replace(alone, nodes=None), job.spec.cores), stage.cpus_per_task

    def _done_in(self, job: _HandedOver) -> Path:
        return self._pool_folder / "done" / quote(job.spec.posts[0] if job.spec.posts else job.spec.token, safe="")

    def _is_list(self, stage: Stage | None) -> TypeGuard[Stage]:
        """Whether each task of a stage is a task of the pool."""
        return stage is not None and len(stage.tasks) > 1 and not (stage.inputs or stage.outputs)

    def _stage(self, spec: JobSpec) -> Stage | None:
        posted = spec.posts[0].rpartition("/")[2].partition("@")[0] if len(spec.posts) == 1 else ""
        return self._workflow.stages.get(posted)

    # ------------------------------------------------------------------ views

    def _job(self, job_id: str) -> _HandedOver:
        if job_id not in self._jobs:
            raise JobNotFoundError("the pool knows no such job", where=f"job {job_id}", hint="Ask for one of this run.")
        return self._jobs[job_id]

    def _file(self, job: _HandedOver, kind: str) -> Path:
        return self._pool_folder / f"{job.job_id}.{kind}"

    def _keep(self, job: _HandedOver) -> None:
        kept = {"spec": asdict(job.spec), "submit_s": job.submit_s, "restarts": job.restarts}
        try:
            _write(self._file(job, "job"), json.dumps(kept))
        except OSError as error:
            hint = "Free disk space or fix the permissions. Where the run has ended, go on with: asa resume."
            raise UnavailableError(f"cannot be written: {error}", where=str(self._pool_folder), hint=hint) from error

    def _code(self, job: _HandedOver) -> int:
        ended = _read(self._file(job, "end"), "code")
        return int(ended["code"]) if ended is not None else _STOPPED

    def _status(self, job: _HandedOver) -> JobStatus:
        if job.final is not None:
            return job.final
        begun, ended = _read(self._file(job, "begin")), _read(self._file(job, "end"), "code")
        current = JobStatus(job.job_id, JobState.PENDING, job.submit_s, restarts=job.restarts)
        if begun is not None:
            start_s = float(begun["time_s"])
            current = replace(
                current,
                state=JobState.RUNNING,
                eligible_s=start_s,
                start_s=start_s,
                payload_start_s=start_s,
                steps=self._before_restart(job, start_s),
            )
        failed = next((future for future in job.futures if future.status == "error"), None)
        if ended is not None:
            job.final = _as_noted(current, ended)
        elif self._file(job, "cancel").exists() and (begun is None or not job.futures):
            job.final = replace(current, state=JobState.CANCELLED, end_s=self.now())
        elif failed is not None and begun is None and not all(map(self._has_completed, self._before(job))):
            return self._pending(job, current)  # the job failed because a stage that it depends on failed
        elif failed is not None and any(future.status == "pending" for future in job.futures):
            return current  # other tasks of the stage still run; a new attempt now would run them twice
        elif failed is not None:
            job.final = replace(current, state=JobState.FAILED, end_s=self.now(), reason=str(failed.exception()))
        elif begun is None:
            return self._pending(job, current)
        if job.final is not None:
            job.futures = []
        return job.final or current

    def _before_restart(self, job: _HandedOver, start_s: float) -> tuple[StepTimes, ...]:
        """Return when a stage ran if it had completed before its job was handed over again."""
        if not job.restarts:
            return ()
        done_in, stage = self._done_in(job), self._stage(job.spec)
        names = [str(n + 1) for n in range(len(stage.tasks))] if self._is_list(stage) else ["stage"]
        times = [_times(done_in / name) for name in names]
        began = [span[0] for span in times if span is not None and span[1] <= start_s]
        if len(began) < len(names):
            return ()
        return (StepTimes("", min(began), max(span[1] for span in times if span is not None)),)

    def _pending(self, job: _HandedOver, status: JobStatus) -> JobStatus:
        """Return the status of a waiting job: why it waits, and its expected start."""
        if any(self._is_void(earlier) for earlier in self._before(job)):
            return replace(status, reason="DependencyNeverSatisfied")
        cluster = self._cluster
        waits = (
            []
            if cluster is None
            else [allocation.expected_s for allocation in cluster.allocations if allocation.is_waiting]
        )
        return replace(status, expected_start_s=min((at_s for at_s in waits if at_s is not None), default=None))

    def _is_void(self, job: _HandedOver) -> bool:
        return self._status(job).state.is_final and not self._has_completed(job)

    def _has_completed(self, job: _HandedOver) -> bool:
        return self._status(job).state is JobState.COMPLETED


def _as_noted(status: JobStatus, ended: Mapping[str, Any]) -> JobStatus:
    """Return the status of a job whose end was recorded."""
    code = int(ended["code"])
    state = _STATES.get(code, JobState.FAILED)
    reason = "TimeLimit" if state is JobState.TIMEOUT else ""
    status = replace(status, state=state, end_s=float(ended["time_s"]), reason=reason)
    if code < 0:
        return status
    # earlier versions recorded no outcome
    return replace(status, exit_code=code, outcome=outcome_from(str(ended.get("outcome"))) or by_exit_code(code))


def _expect(durations: Mapping[str, str]) -> None:
    """On the scheduler of a pool that was joined: expect these run times of tasks."""
    import dask  # noqa: PLC0415 - an extra

    dask.config.set({_DURATIONS: {**dask.config.get(_DURATIONS), **durations}})


# ---------------------------------------------------------------------- on the workers


@dataclass(frozen=True, slots=True)
class _Order:
    """The work of a worker, and the folder of its results."""

    text: str
    pool_folder: str
    job_id: str
    log: str
    work: str
    walltime_s: float
    secrets: Mapping[str, str] = field(default_factory=dict)  # variables in addition to the worker's own


class _Part(NamedTuple):
    """The end of a stage or of one of its tasks, and its times in seconds since 1970, by the worker's clock."""

    code: int
    end_s: float
    outcome: str = ""  # as the task's own script reported it; empty if it exited with 0, or reported none


def run_part(order: _Order, before: Sequence[int]) -> _Part:
    """Run a stage, or one of its tasks; nothing if a stage that it depends on did not complete."""
    if any(before):
        return _Part(_NEVER, time.time())
    code, outcome = _run(order)
    return _Part(code, time.time(), outcome)


def _run(order: _Order) -> tuple[int, str]:
    pool_folder = Path(order.pool_folder)
    if (ended := _read(pool_folder / f"{order.job_id}.end", "code")) is not None:
        # the stage has run: dask asks again if it lost the result with a worker
        return int(ended["code"]), str(ended.get("outcome", ""))
    cancel = pool_folder / f"{order.job_id}.cancel"
    if cancel.exists():
        return _STOPPED, ""
    _write(pool_folder / f"{order.job_id}.begin", json.dumps({"time_s": time.time()}), once=True)
    # with a random part, since several tasks of a stage may run at once
    outcome_file = Path(f"{order.log}.{secrets.token_hex(4)}.outcome")
    with _guarded(order, outcome_file) as process:
        ends_s = time.monotonic() + order.walltime_s
        while True:
            try:
                code = process.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                is_late, is_cancelled = time.monotonic() >= ends_s, cancel.exists() or _is_over()
                if is_late or is_cancelled:
                    _ask_to_end(process)
                    return (_TIMED_OUT if is_late else _STOPPED), ""
            else:
                return (code, _word_in(outcome_file)) if code >= 0 else (128 - code, "")


@contextmanager
def _guarded(order: _Order, outcome_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run an order's text in its own session, and kill all processes that are left in the session at the end.

    This also happens if this worker dies, since the text then runs again elsewhere. A guard process in the session
    notices it: the other end of its pipe is closed.
    """
    command = ["sh", "-c", text("pool-guarded"), "sh", text("pool-guard"), order.text]
    environment = {**os.environ, **order.secrets, "ASA_JOB_ID": order.job_id, "ASA_OUTCOME": str(outcome_file)}
    environment["ASA_IN_POOL"] = "1"  # the pool's job is the same for all stages
    watched, held = os.pipe()
    try:
        with append_to(Path(f"{order.log}.out")) as out, append_to(Path(f"{order.log}.err")) as err:
            process = subprocess.Popen(  # noqa: S603 - the user's command
                command, stdin=watched, stdout=out, stderr=err, cwd=order.work, env=environment, start_new_session=True
            )
        os.close(watched)
        watched = -1
        yield process
    finally:
        for end in (watched, held):
            if end >= 0:
                os.close(end)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:  # the guard process is gone
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _word_in(link: Path) -> str:
    """Read and remove the outcome that a script reported; empty if it reported none."""
    try:
        word = str(link.readlink())
        link.unlink()
    except OSError:
        return ""
    return word


def note_end(pool_folder: str, job_id: str, parts: Sequence[_Part]) -> int:
    """Record, once, how a job ended and when its last task ended. The client may call this some time later.

    A list of tasks has completed, or some tasks of it have failed.
    """
    special = [part.code for part in parts if part.code < 0]
    bad = [part for part in parts if part.code > 0]
    code, outcome = (special[0] if special else 0), JobOutcome.COMPLETED.value
    if bad and not special:
        is_list = len(parts) > 1
        code = JobOutcome.TASKS_FAILED.exit_code if is_list else bad[0].code
        outcome = JobOutcome.TASKS_FAILED.value if is_list else bad[0].outcome or JobOutcome.FAILED.value
    if code != _NEVER:
        ended = {"time_s": max(part.end_s for part in parts), "code": min(code, _MAX_EXIT), "outcome": outcome}
        _write(Path(pool_folder) / f"{job_id}.end", json.dumps(ended), once=True)
    return code


def _is_over() -> bool:
    """Whether the worker that runs this is about to end; its task then restarts on another worker."""
    from distributed import get_worker  # noqa: PLC0415 - of an extra, which workers have

    try:
        return get_worker().status.name in {"closing", "closed", "failed"}
    except ValueError:  # not within a worker
        return False


def _ask_to_end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)


def _needs(spec: JobSpec, cores: int) -> dict[str, float]:
    """Return the share of a job's resources that a task with some of its cores needs."""
    needs = {"cores": float(cores)}
    if memory := spec.memory_bytes * cores // spec.cores // _MB * _MB:
        needs["memory"] = float(memory)
    if gpus := spec.gpus * cores * _PARTS // spec.cores / _PARTS:
        needs["gpus"] = gpus
    return needs


def _unless_done(payload: str, done: Path) -> str:
    """Return a script that runs a stage unless it has completed: a worker that died may not have reported that."""
    return f"{head({'asa_done': done, 'asa_text': payload})}{text('pool-once')}"


def _times(mark: Path) -> tuple[float, float] | None:
    """Read beginning and end from a marker; None if there is no marker, or no times in it."""
    try:
        began, ended = map(float, read_text(mark, "ascii").split())
    except (OSError, ValueError):
        return None
    return began, ended


def _once(line: str, number: int, count: int, done: Path) -> str:
    """Return a script that runs a task of a list as `asa.payload` does, unless it has completed."""
    task = f"{exported({'ASA_TASK': number})}{head({'asa_count': count, 'asa_task': line})}{text('pool-task')}"
    return _unless_done(task, done)


def _safe(spec: JobSpec) -> str:
    name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in spec.name)
    return f"{name}.{spec.token}"


def _read(path: Path, *numbers: str) -> Mapping[str, Any] | None:
    """Read a marker; None if there is none, or it lacks its time or another whole number."""
    try:
        document = read_json(read_file(path))
        is_whole = math.isfinite(float(document["time_s"])) and all(type(document[name]) is int for name in numbers)
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None
    return document if is_whole else None


def _write(path: Path, text: str, *, once: bool = False) -> None:
    """Write a file atomically; with `once`, a file that exists is kept."""
    if not once:
        put(path, text.encode())
        return
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    put(draft, text.encode())
    with suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
