"""A run that is open inside another program. Stages are added as they become known, their commands once they are ready.

The program, its *host*, is a workflow manager that knows the whole graph. It hands over each stage with its command
when the stage may begin. A strategy of asa asks for allocations ahead of that. If an allocation begins before its stage
is handed over, it waits for a file that releases it. An allocation that is no longer wanted is given back. The host may
be killed at any moment: the next run in the same folder first ends the jobs that are left (`wind_up`).
"""

from __future__ import annotations

import os
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

from asa.backend import Backend, Capabilities, JobSpec, Previewing, Troubleshooting
from asa.core import temporary
from asa.core.files import in_words, open_file, put
from asa.errors import AsaError, InputError, JournalError, RunError, SubmitRejectedError
from asa.estimators import readiness
from asa.estimators.choice import NOT_COMPILED
from asa.hosted.ending import Ending
from asa.hosted.outputs import Outputs
from asa.runner.begin import Chosen, check_bank, check_text, choose_estimator
from asa.runner.driver import drive
from asa.runner.folder import RunFolder, RunPlan, list_runs
from asa.runner.kinds.base import as_of_step
from asa.runner.outlook import check_strategy
from asa.runner.requests import CancelRequest, ClaimRequest, ClientRequest, CloseRequest, DropRequest, ExtendRequest
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.sites import OpenedSite, open_facility
from asa.strategies.base import Keep, Phase, PlannedJob, lacking
from asa.workflow import Stage, Workflow

_COMMANDS = "handed"
_PARTS = "parts"
_ENDED = "host-ended"
_SLICE_S = 0.2
_WISHES_S = 2.0  # seconds between two looks for requests of other processes
_OF_ITS_TIME = 0.05  # share of the time that may be spent looking for stages that have ended
_LAST_LINES_BYTES = 1 << 16
_WIND_UP_S = 150.0
_REMEDY = "Ask for less, or for another partition."
_FAILED_ONLY = frozenset({Phase.FAILED, Phase.BLOCKED, Phase.SKIPPED, Phase.NOT_WANTED})


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for the requests of a hosted run.

    `strategy`, `estimator`: names of the strategy and the estimator of waits.
    `bank`: its folder; None for none.
    `history`: number of past jobs of all users to learn from at the beginning.
    `max_jobs`: upper bound of the stages that the host has handed over at a time; None for none.
    `seed`: of the random numbers.
    """

    strategy: str = "asa-plan"
    estimator: str = "auto"
    bank: Path | None = None
    history: int = 2000
    max_jobs: int | None = None
    seed: int = 0


@dataclass(slots=True)
class _Shared:
    """The values that both threads use, under one lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    requests: list[ClientRequest] = field(default_factory=list)  # not yet taken by the thread that drives the run
    n_gathering: int = 0  # while it is above 0, no request is taken, so that several are handled together
    live: dict[str, str] = field(default_factory=dict)  # the release file of each stage that was handed over
    endings: list[Ending] = field(default_factory=list)  # not yet reported to the host
    trouble: BaseException | None = None  # the error that ended the driving thread
    jobs: dict[str, str] = field(default_factory=dict)  # the job ID of each such stage
    began_s: dict[str, float] = field(default_factory=dict)  # by such stage that runs: since when, by `time.monotonic`


class HostedRun:
    """A run that another program hosts; see the module's docstring.

    `folder`: of the run, made by `begin`.
    `opened`: the batch system.
    `on_news`: called from another thread when a stage has ended, or the run cannot go on.
    """

    def __init__(self, folder: RunFolder, opened: OpenedSite, on_news: Callable[[], None] = lambda: None) -> None:
        self.folder = folder
        self._opened, self._on_news = opened, on_news
        self._shared, self._nudged, self._is_up = _Shared(), threading.Event(), threading.Event()
        self._is_over, self._looked_s, self._look_s, self._asked_s = threading.Event(), 0.0, 0.0, 0.0
        self._posts = folder.path / "posts"
        self._known: dict[str, Stage] = {stage.name: stage for stage in folder.plan.stages}
        self._impossible: dict[str, str] = {}  # the reasons of stages that could never start
        self._seen: tuple[RunState, Backend, float | None] | None = None  # at the last pass
        self._verdicts, self._outputs = Verdicts(folder.plan.capabilities), Outputs(folder)
        self._thread = threading.Thread(target=self._drive, name="asa", daemon=True)

    # ------------------------------------------------------------------ for the host

    def start(self) -> None:
        """Start the thread that drives the run.

        Raises `AsaError`: the batch system cannot be reached, or another client drives the run.
        """
        self._thread.start()
        self._is_up.wait()
        self._raise_trouble()

    def extend(self, stages: Sequence[Stage]) -> dict[str, str]:
        """Add stages, in topological order; `Stage.command` comes from `command_of`.

        Returns: stages whose jobs could never start, each with the reason. No job is submitted for them ahead of time.
        If such a stage is handed over with an unchanged request, it fails.
        """
        if not stages:
            return {}
        impossible = {stage.name: why for stage in stages if (why := self._verdicts.on(stage))}
        self._impossible |= impossible
        self._known |= {stage.name: stage for stage in stages}
        self._ask(ExtendRequest(self.folder.plan.name, tuple(stages), impossible))
        return impossible

    def claim(self, stage: str, command: str, *, asked: Stage | None = None, may_come_again: bool = False) -> None:
        """Hand over a stage's command: the stage may begin now. It fails if a job with its request could never start.

        `stage`: name of a stage that was added and has not been handed over.
        `command`: text for `sh`.
        `asked`: the stage as it is now, if its request has changed.
        `may_come_again`: whether the host would hand it over again if it failed.
        Raises `JournalError`: the journal cannot be written.
        """
        if asked is not None:
            self._impossible.pop(stage, None)
            if why := self._verdicts.on(asked):
                self._impossible[stage] = why
        path = command_path(self.folder.path, stage)
        with in_words("cannot be written", path, "Free disk space, or fix the permissions.", JournalError):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            put(path, command.encode(), is_private=True, is_durable=True)
        why = self._impossible.get(stage, "")
        impossible = f"could never start on {self.folder.plan.place}: {why}" if why else ""
        self._ask(ClaimRequest(self.folder.plan.name, stage, asked, may_come_again, impossible))

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Handle all requests within this context together, so that ready stages can share a job."""
        with self._shared.lock:
            self._shared.n_gathering += 1
        try:
            yield
        finally:
            with self._shared.lock:
                self._shared.n_gathering -= 1
            self._nudged.set()

    def drop(self, stages: Iterable[str], reason: str) -> None:
        """Cancel the jobs of stages that are no longer needed, except of stages that were handed over."""
        if names := tuple(stages):
            self._ask(DropRequest(self.folder.plan.name, names, reason))

    def withdraw(self, stages: Iterable[str], reason: str) -> None:
        """Cancel the jobs of stages although they were handed over, even if these run.

        Each has an ending once its job is gone. Other stages of such a job are asked for again.
        """
        if names := tuple(stages):
            self._ask(DropRequest(self.folder.plan.name, names, reason, even_claimed=True))

    def cancel(self, reason: str) -> None:
        """Cancel the run and all its jobs."""
        self._ask(CancelRequest(self.folder.plan.name, reason=reason))

    def endings(self) -> list[Ending]:
        """Return the stages that have ended since the last call.

        Raises `AsaError`: the run cannot continue; jobs that were submitted still do.
        """
        with self._shared.lock:
            ended, self._shared.endings = self._shared.endings, []
        if not ended:
            self._raise_trouble()
        return ended

    def job_of(self, stage: str) -> str:
        """Return the job ID of a stage that was handed over; empty while it has no job."""
        with self._shared.lock:
            return self._shared.jobs.get(stage, "")

    def running(self) -> dict[str, float]:
        """Return the stages that run of those that were handed over, and for how many seconds each has run."""
        now_s = time.monotonic()
        with self._shared.lock:
            return {name: max(now_s - began_s, 0.0) for name, began_s in self._shared.began_s.items()}

    @property
    def outage(self) -> str:
        """Why the batch system does not answer, and what to do; empty if it answers."""
        trouble, facility = self._seen[1].condition.trouble if self._seen is not None else "", self._opened.facility
        if not trouble:
            return ""
        remedy = facility.remedy(trouble) if isinstance(facility, Troubleshooting) else ""
        return f"problem with the batch system: {trouble}. Trying again; jobs go on. {remedy}".rstrip()

    def end(self, timeout_s: float | None = _WIND_UP_S) -> bool:
        """Cancel jobs that were not handed over, and wait for the run's end; return whether it ended in time."""
        self.drop(list(self._known), f"{self.folder.plan.host} has ended")
        self._ask(CloseRequest(self.folder.plan.name))
        return self.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run and all its jobs have ended; return whether they did within the time."""
        return self._is_over.wait(timeout_s)

    def _ask(self, request: ClientRequest) -> None:
        with self._shared.lock:
            self._shared.requests.append(request)
            is_gathering = self._shared.n_gathering > 0
        if not is_gathering:
            self._nudged.set()

    def _raise_trouble(self) -> None:
        with self._shared.lock:
            trouble = self._shared.trouble
        if trouble is not None:
            raise trouble

    # ------------------------------------------------------------------ the driving thread

    def _drive(self) -> None:
        try:
            with ExitStack() as held:

                def connect(folder: RunFolder) -> Backend:
                    folder.log_begin()
                    backend = self._opened.facility.connect(folder.path, sleep=self._sleep)
                    if (close := getattr(backend, "close", None)) is not None:
                        held.callback(close)
                    self._is_up.set()
                    return backend

                plan = self.folder.plan
                readiness.prefer(plan.estimator)
                drive(
                    self.folder,
                    connect,
                    on_pass=self._on_pass,
                    requests=self._take_requests,
                )
            _mark_ended(self.folder)
            if self._shared.live:  # a cancelled run may end before its last pass
                self._hear_ends(self.folder.state()[0])
        except BaseException as error:  # noqa: BLE001 - raised again in the host's thread
            with self._shared.lock:
                self._shared.trouble = error
            with suppress(Exception):
                self.folder.log_left(str(error) or type(error).__name__, f"{self.folder.plan.host} is run again")
        else:
            with self._shared.lock:
                left = list(self._shared.live)
                if left:
                    self._shared.trouble = RunError(
                        f"has ended before {len(left)} of its stages",
                        where=f"run {self.folder.plan.name!r}",
                        hint="See: asa status.",
                    )
        finally:
            self._is_up.set()
            self._is_over.set()
            self._on_news()

    def _take_requests(self) -> list[ClientRequest]:
        plan = self.folder.plan
        self._nudged.clear()
        with self._shared.lock:
            if self._shared.n_gathering:
                return []
            taken, self._shared.requests = self._shared.requests, []
            for request in taken:
                if isinstance(request, ClaimRequest):
                    self._shared.live[request.stage] = quote(f"{plan.id}/{request.stage}", safe="")
        return taken

    def _on_pass(self, states: Sequence[RunState], backend: Backend, wake_s: float | None) -> None:
        """Note for the host the stages that run, and those that have ended, according to the run."""
        self._seen = states[0], backend, wake_s
        self._hear_ends(states[0])
        self._look()
        ahead_s = time.monotonic() - backend.now()
        with self._shared.lock:
            views = [states[0].stages[name] for name in self._shared.live]
            self._shared.began_s = {
                view.stage.name: view.started_s + ahead_s
                for view in views
                if view.phase is Phase.RUNNING and view.started_s is not None
            }

    def _hear_ends(self, state: RunState) -> None:
        ended = []
        with self._shared.lock:
            live = list(self._shared.live)
            self._shared.jobs = {name: state.stages[name].job_id or "" for name in live}
        for name in live:
            phase = state.stages[name].phase
            if phase is Phase.NOT_WANTED and state.outcome is None and self._has_job(state, name):
                continue  # withdrawn: it ends with its job
            if phase is Phase.DONE:
                ended.append(Ending(name, completed=True, job_id=state.stages[name].job_id or ""))
            elif phase in _FAILED_ONLY:
                ended.append(self._failed(state, name, state.stages[name].reason))
            # the host will hand it over again
            elif name in state.host.attempts_failed and name in state.host.unclaimed:
                ended.append(replace(self._failed(state, name, state.host.attempts_failed[name]), may_come_again=True))
            elif state.outcome is not None:
                ended.append(self._failed(state, name, f"the run was {state.outcome}: {state.reason}"))
        self._tell(ended)

    @staticmethod
    def _has_job(state: RunState, name: str) -> bool:
        return any(not job.status.state.is_final for job in state.jobs.of_stage(name))

    def _failed(self, state: RunState, name: str, reason: str) -> Ending:
        if not (of_it := state.jobs.of_stage(name)):
            return Ending(name, completed=False, reason=reason)
        last = of_it[-1]
        has_begun = last.status.start_s is not None
        log = self._outputs.errors_of(last.spec.token, last.step_of(name)) if has_begun else None
        end = as_of_step(last.status, next((step for step in last.status.steps if step.name == name), None))
        is_over = last.status.state.is_final
        return Ending(
            name,
            completed=False,
            reason=reason,
            job_id=last.status.job_id,
            log=log,
            end=end if is_over else None,
            walltime_s=last.spec.walltime_s,
        )

    def _look(self) -> None:
        """Note for the host the stages that have written their completion markers, before the client reads these."""
        with self._shared.lock:
            live = dict(self._shared.live)
        began_s = time.monotonic()
        if not live or began_s < self._looked_s + self._look_s / _OF_ITS_TIME:
            return
        try:
            there = set(os.listdir(self._posts))  # noqa: PTH208 - names alone, of very many
        except OSError:
            there = set()
        self._looked_s = time.monotonic()
        self._look_s = self._looked_s - began_s
        self._tell(
            [Ending(name, completed=True, job_id=self.job_of(name)) for name, post in live.items() if post in there]
        )

    def _tell(self, ended: Iterable[Ending]) -> None:
        is_news = False
        with self._shared.lock:
            for ending in ended:
                if self._shared.live.pop(ending.stage, None) is not None:
                    self._shared.endings.append(ending)
                    is_news = True
        if is_news:
            self._on_news()

    def _sleep(self, seconds: float) -> bool:
        """Sleep, and watch for stages that end; return early, with True, if there is a request."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            if self._nudged.wait(min(left_s, _SLICE_S)):
                # the event stays set until the requests are taken, so a sleep for another purpose does not hide them
                return True
            self._look()
            if time.monotonic() >= self._asked_s + _WISHES_S:
                self._asked_s = time.monotonic()
                if self._seen is not None:  # no pass is made while the batch system does not answer
                    state, backend, wake_s = self._seen
                    self.folder.pulse(backend.condition, state, wake_s)
                if self.folder.sleep(0.001):
                    return True
        return False


# ---------------------------------------------------------------------- beginning a run


def command_path(folder: Path, stage: str) -> Path:
    """Return the file of a stage's command, which is written when the stage is handed over."""
    return folder / _COMMANDS / stage


def command_of(folder: Path, stage: str, parts: Sequence[str] = ()) -> str:
    """Return the shell command of a stage: it runs a file, written later, in a folder that the job holds open.

    `parts`: names of what that file will run, as `keep_parts` keeps it. The command never comes to run these: they are
    for whoever looks at what a command calls.
    """
    named, file = shlex.quote(str(folder)), shlex.quote(f"{_COMMANDS}/{stage}")
    held = f'*:{named}) exec sh "${{held%%:*}}"/{file} ;;'
    command = f"held=${{ASA_RUN_HELD-}}; unset ASA_RUN_HELD; case $held in {held} esac; exec sh {named}/{file}"
    never = "".join(f"\nsh {named}/{shlex.quote(f'{_PARTS}/{quote(part)}')}" for part in parts)
    return f"{command}\nexit 127{never}" if never else command


def keep_parts(folder: Path, parts: Mapping[str, str]) -> None:
    """Write what stages will run, by the names in `command_of`, to where commands about the run find it."""
    for name, text in parts.items():
        path = folder / _PARTS / quote(name)
        with in_words("cannot be written", path, "Free disk space, or fix the permissions.", JournalError):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            put(path, text.encode(errors="replace"), is_private=True)


def begin(
    runs: Path,
    name: str,
    host: str,
    opened: OpenedSite,
    *,
    settings: Settings,
    make: Callable[[Capabilities, Path], Sequence[Stage]],
    workdir: Path | None = None,
    remedy: str = _REMEDY,
) -> RunFolder:
    """Make the folder of a hosted run.

    `runs`: the folder of runs; jobs see it at the same path.
    `name`, `host`: names of the run and of the program that hosts it.
    `make`: returns the first stages, from the site's rules and the path of the run's folder.
    `workdir`: the jobs' work folder; by default the current one.
    `remedy`: what the user may do about a job that could never start, in the host's own words.
    Raises `InputError`: no strategy has this name, a job could never start, or a file cannot be written.
    """
    how = check_strategy(settings.strategy)
    place = str((workdir or Path.cwd()).absolute())
    bank = str(settings.bank.absolute()) if settings.bank is not None else ""
    check_text(place, bank, str(runs.absolute()), *map(str, opened.settings.values()))
    check_bank(settings.bank)
    with temporary.folder("asa-") as scratch, ExitStack() as exits:
        backend = opened.facility.connect(Path(scratch))
        if (close := getattr(backend, "close", None)) is not None:
            exits.callback(close)
        if lack := lacking(how, backend.capabilities):
            raise InputError(lack, where=f"strategy {settings.strategy!r}", hint="Take `per-stage`, or `asa-plan`.")
        estimator, why = _without_compiler(settings.estimator)
        readiness.prefer(estimator)
        chosen = choose_estimator(estimator, settings.strategy, backend, settings.history)
        if chosen.why == NOT_COMPILED:
            readiness.compile_later()
        if why:
            chosen = Chosen(chosen.estimator, why)
        plan = RunPlan(
            id=secrets.token_hex(8),
            name=name,
            workflow=name,
            stages=(),
            strategy=settings.strategy,
            estimator=chosen.estimator,
            estimator_why=chosen.why,
            backend=opened.backend,
            settings=dict(opened.settings),
            capabilities=backend.capabilities,
            folder=place,
            seed=settings.seed,
            history=settings.history,
            bank=bank,
            created_s=time.time(),
            version=version("asa-client"),
            host=host,
            max_jobs=settings.max_jobs,
            share=opened.share,
        )
        stages = tuple(make(plan.capabilities, RunFolder.path_of(runs.absolute(), plan)))
        check_each(plan, stages, backend, remedy)
    Workflow(name, stages)
    return RunFolder.create(runs.absolute(), replace(plan, stages=stages))


def _without_compiler(estimator: str) -> tuple[str, str]:
    """Return the estimator to take, and why, if it is another: jobs that are ready do not wait for a compiler."""
    if readiness.is_fast_plainly(estimator) or not readiness.is_to_compile(estimator):
        return estimator, ""
    is_kept = readiness.is_to_keep(estimator) and readiness.compile_later()
    why = "is being compiled, for later runs" if is_kept else "would first have to be compiled, for a minute"
    return readiness.BLIND, f"{estimator} {why}"


def check_each(plan: RunPlan, stages: Iterable[Stage], backend: Backend | None = None, remedy: str = _REMEDY) -> None:
    """Refuse stages whose jobs could never start, or whose options the backend refuses.

    `backend`: writes the jobs of stages with options, without contacting the batch system, and may refuse them.
    `remedy`: see `begin`.
    """
    verdicts = Verdicts(plan.capabilities, backend)
    reasons = {stage.name: why for stage in stages if (why := verdicts.on(stage))}
    if reasons:
        raise InputError(
            never_start(reasons, plan.place),
            where="the workflow",
            hint=f"Nothing of it was submitted. {remedy}",
        )


def never_start(reasons: Mapping[str, str], place: str) -> str:
    """Return a text that says which jobs could never start there, and why."""
    by_why: dict[str, list[str]] = {}
    for name, why in reasons.items():
        by_why.setdefault(why, []).append(name)
    lines = "".join(f"\n  {_some(names)}: {why}" for why, names in by_why.items())
    count = "a job" if len(reasons) == 1 else f"{len(reasons)} jobs"
    return f"{count} could never start on {place}:{lines}"


class Verdicts:
    """Checks whether jobs of stages could ever start. Stages that ask for the same are checked once.

    `backend`: writes the jobs of stages with options, without contacting the batch system, and may refuse them.
    """

    def __init__(self, site: Capabilities, backend: Backend | None = None) -> None:
        self._site, self._backend = site, backend
        self._known: dict[Stage, str] = {}

    def on(self, stage: Stage) -> str:
        """Return why the job of a stage could never start; empty if it could."""
        kind = replace(stage, name="x", after=(), command="true", expected_run_s=None)
        if (known := self._known.get(kind)) is None:
            known = self._known[kind] = _never(self._site, kind, self._backend) or ""
        return known


def _preview(backend: Backend, spec: JobSpec) -> None:
    if isinstance(backend, Previewing):
        backend.preview(spec)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} more"


def _never(site: Capabilities, kind: Stage, backend: Backend | None) -> str | None:
    """Return why the job of a stage could never start; None if it could."""
    state = RunState("x", Workflow("x", [kind]), site, "0")
    spec: JobSpec = spec_of(state, PlannedJob((kind.name,), 0.0, Keep.NOTHING, ""))
    if why := site.impossible(spec):
        return why
    if kind.options and backend is not None:
        try:
            _preview(backend, spec)
        except SubmitRejectedError as error:
            return f"{error.message}. {error.hint}" if error.hint else error.message
    return None


# ---------------------------------------------------------------------- jobs left by former runs


def wind_up(runs: Path, host: str, say: Callable[[str], None]) -> None:
    """End the jobs that earlier hosted runs have left in the queue, and wait until they have ended.

    `say`: called with a text for each step.
    Raises `AsaError`: another host drives one of these runs, its journal is lost, or its jobs cannot be ended now.
    """
    for folder in list_runs(runs, only_own=True):
        if folder.plan.host != host or (folder.path / _ENDED).exists():
            continue
        folder.check_own()
        _refuse_lost_journal(folder)
        state, _ = folder.state()
        if not state.jobs.intents:  # no job was submitted
            with folder.driven():
                _mark_ended(folder)
            continue
        if state.outcome is None or state.jobs.unfinished():
            live = len(state.jobs.unfinished())
            what = f"{live} job{'' if live == 1 else 's'}" if live else "what"
            say(f"Ending {what} that an earlier run has left: {folder.path.name}")
        _end(folder, open_facility(folder.plan.backend, None, folder.plan.settings), f"{host} was run again")


def _refuse_lost_journal(folder: RunFolder) -> None:
    marks = folder.path / "marks"
    if not (folder.path / "journal.jsonl").exists() and marks.is_dir() and any(marks.iterdir()):
        raise JournalError(
            "is not there, and jobs of this run were submitted: which of them still run is not known",
            where=str(folder.path / "journal.jsonl"),
            hint="Restore it. Or look at the queue, cancel jobs whose names end with "
            f"{folder.plan.id[:12]}-..., and move {folder.path} away.",
        )


def _end(folder: RunFolder, opened: OpenedSite, reason: str) -> None:
    deadline_s = time.monotonic() + _WIND_UP_S
    asked: list[ClientRequest] = [CancelRequest(folder.plan.name, reason=reason)]

    def requests() -> list[ClientRequest]:
        taken, asked[:] = list(asked), []
        return taken

    def on_pass(_states: Sequence[RunState], _backend: Backend, _wake_s: float | None) -> None:
        if time.monotonic() > deadline_s:
            raise RunError(
                "its jobs have not ended, or cannot be asked for",
                where=str(folder.path),
                hint="Try again later; or see: asa status, asa cancel.",
            )

    with ExitStack() as held:

        def connect(run: RunFolder) -> Backend:
            run.log_begin()
            backend = opened.facility.connect(run.path, sleep=run.sleep)
            if (close := getattr(backend, "close", None)) is not None:
                held.callback(close)
            return backend

        drive(folder, connect, on_pass=on_pass, requests=requests)
    _mark_ended(folder)


def _mark_ended(folder: RunFolder) -> None:
    with suppress(OSError):
        (folder.path / _ENDED).touch(mode=0o600)


def last_words(log: Path | None) -> str:
    """Return the end of a log; empty if there is none."""
    if log is None:
        return ""
    try:
        with open_file(log) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LAST_LINES_BYTES, 0))
            return file.read(_LAST_LINES_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


__all__ = [
    "AsaError",
    "HostedRun",
    "Settings",
    "begin",
    "check_each",
    "command_of",
    "keep_parts",
    "last_words",
    "never_start",
    "wind_up",
]
