"""The folder of a run: all that is known about the run, for any client, also after a crash."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from asa.backend import CLUSTER_FILE, Capabilities, Condition, Setting
from asa.core import owned, safe
from asa.core.documents import read_json
from asa.core.files import append_to, in_words, open_file, put, read_file, sync_folder
from asa.core.late import dataclass
from asa.core.locks import FileLock, Holder
from asa.core.patterns import pattern
from asa.core.reading import DOCUMENT_BYTES, JOURNAL_BYTES, OTHERS_BYTES, read_whole
from asa.core.typed import made, written, written_by_field
from asa.errors import InputError, JournalError, LeaseError, OwnerError, near
from asa.printable import on_one_line
from asa.records import Record, RunEnded
from asa.runner.entries import Again, Entry, Intended
from asa.runner.journal import Journal, JournalReader, consistent
from asa.runner.requests import CancelRequest
from asa.runner.state import Observation, RunState
from asa.strategies.base import PlannedJob
from asa.workflow import Stage, Workflow

_SCHEMA = 2  # 1: of 0.2.0, whose journals have one entry in a line
_PLAN, _JOURNAL, _LEASE, _PULSE, _REQUESTS = "run.json", "journal.jsonl", "lease", "pulse.json", "wishes"
_METRICS = "metrics.json"
_TASKS = "tasks"
GROUP = "group"
"""Value of `share` for runs that the user's group may look at."""
_CLIENTS = "client.log"
_SLICE_S = 2.0
_PULSE_S = 5.0
_BEAT_S = 60.0
_LOG_LINE_BYTES = 4096
_LEFT = pattern(r"(\S+ \S+) .*?: left, (as [^;]+)")
_STEP = re.compile(r"\.step-(\d+)\.[a-z]+\Z")  # as job scripts name the file
_NAMED = re.compile(r"-(\d{8}-\d{6})-[0-9a-f]{4}$")  # as `create` names the folder
_RUNS = "asa-runs"
_LOCAL = "local"
_WHERE_ELSE = (
    "Runs are kept in the folder in which they were begun: go there, or name its asa-runs with --runs or $ASA_RUNS. "
    "To begin one: asa run FILE."
)
_SHARE = 'To let their group look at later runs, their user writes `share = "group"` into the site file.'
_UNREADABLE = "Check its owner, its permissions, and its file system."


def _renamed(plan: Any) -> Any:
    """Convert a site's rules in a plan from the form of earlier versions."""
    rules = plan.get("capabilities") if isinstance(plan, dict) else None
    if isinstance(rules, dict) and "most_queued" in rules:
        return {**plan, "capabilities": {"max_queued": rules["most_queued"], **rules}}
    return plan


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The input of a run: written once, when it begins.

    Parameters
    ----------
    id
        Identifies the run: letters and digits.
    name
        Name of the run.
    workflow, stages, walltime_s
        The workflow's name, its stages, and its own walltime, if it has one.
    strategy, estimator
        Names of the strategy and the estimator.
    estimator_why
        Why that estimator was chosen, in words; empty if the user named it, or nothing is predicted.
    backend, settings
        The backend's name and settings, without secrets, unless the user put some into variables of jobs.
    capabilities
        The site's rules as they were when the run began.
    folder
        The folder in which the stages' commands run.
    seed
        Seed of all random numbers.
    history
        How many past jobs of all users to learn from at the beginning.
    bank
        Folder of the bank; empty for none.
    created_s
        Time of creation, seconds since 1970.
    version
        Version of asa.
    source
        Path of the workflow's file; empty if there is none.
    parameters
        Values given for parameters of the workflow's file.
    width
        The one width for stages of several shapes; None to let the strategy choose.
    fail_fast
        Whether the run ends as soon as a stage has failed.
    notify
        The command or address that is notified of the run's end, of failures, and if nothing moves; empty for none.
    host
        The program that hosts the run, such as ``Snakemake``: it adds stages and hands over their commands. Empty for
        none.
    max_jobs
        How many jobs the host hands over at a time; None for no limit.
    share
        Who else may look at the run: ``group``, or empty for nobody.
    """

    id: str
    name: str
    workflow: str
    stages: tuple[Stage, ...]
    strategy: str
    backend: str
    capabilities: Capabilities
    walltime_s: float | None = None
    estimator: str = "asa"
    estimator_why: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""
    seed: int = 0
    history: int = 2000
    bank: str = ""
    created_s: float = 0.0
    version: str = ""
    source: str = ""
    parameters: Mapping[str, Setting] = field(default_factory=dict)
    width: int | None = None
    fail_fast: bool = False
    notify: str = ""
    host: str = ""
    max_jobs: int | None = None
    share: str = ""
    schema: int = _SCHEMA

    @property
    def place(self) -> str:
        """Where it runs, in words: the system's name, or this computer."""
        return "this computer" if self.backend == _LOCAL else self.capabilities.system

    def make_workflow(self) -> Workflow:
        """Build the workflow."""
        return Workflow(self.workflow, self.stages, walltime_s=self.walltime_s)


@dataclass(frozen=True, slots=True)
class Pulse:
    """A sign of life of the client that drives a run, with its plans.

    Parameters
    ----------
    at_s
        Time of the record, seconds since 1970 by the client's clock.
    condition
        Whether the batch system answers the client.
    expected
        When the batch system expects jobs to start, by job id.
    next_s
        When the client plans to act next, on the batch system's clock; None if not planned.
    planned
        The jobs that the client plans to submit, with reasons.
    """

    at_s: float
    condition: Condition
    expected: Mapping[str, float] = field(default_factory=dict)
    next_s: float | None = None
    planned: tuple[PlannedJob, ...] = ()


def default_runs_folder(*, begins: bool = False) -> Path:
    """Return the folder of runs: ``ASA_RUNS`` in the environment, else ``asa-runs`` in the current folder.

    If another user owns that, as in a group's project folder, it is ``asa-runs-USER`` from the user's first run on.

    Parameters
    ----------
    begins
        Whether a run is to begin there.
    """
    if named := os.environ.get("ASA_RUNS"):
        return Path(named)
    return own_runs(Path(_RUNS), begins=begins)


def own_runs(runs: Path, *, begins: bool = True) -> Path:
    """Return a folder of runs; if another user owns it, the user's own folder next to it, with the user's name.

    `runs`: the folder.
    `begins`: whether a run is to begin there; if not, the user's own folder is returned only if it exists.
    """
    return safe.ones_own(runs, begins=begins)


def runs_of_another(runs: Path) -> tuple[Path, str]:
    """Return another user's folder of runs next to the user's own, and its owner (empty if there is no such folder)."""
    theirs = runs.parent / _RUNS  # `.` has no name that another could take the place of
    return theirs, owned.of_another(theirs) if runs.name.startswith(f"{_RUNS}-") else ""


def own_among(runs: Path) -> int:
    """Count the user's own runs in another user's folder, which began before the user had a folder of runs."""
    with suppress(InputError):
        return sum(not _is_of_others(path) for path in run_paths(runs))
    return 0


class RunFolder:
    """The folder of a run.

    ::

        run.json        the plan: what runs, how and where; only the client that drives the run rewrites it, as a whole
        journal.jsonl   everything that was decided, done and reported, one entry per line
        lease           the client that drives the run, while there is one
        pulse.json      that client's latest `Pulse`
        client.log      when clients began to drive the run and left it, and why
        cluster.json    the run's cluster, if its backend records that
        wishes/         requests to the driving client, until it takes them
        scripts/ logs/ marks/ posts/ groups/   files of the jobs, laid out by the backend
        metrics.json    written once the run has completed

    Only its user may change or read it; if the run is shared, its group may read what shows the run's state.

    Parameters
    ----------
    path
        The folder; `create` begins one.
    max_bytes
        Upper bound for reading one of its files, if lower than usual.

    Attributes
    ----------
    owner
        The owner's name, if that is another user; else empty. Another user's run can be shown, not changed.

    Raises
    ------
    InputError
        There is no run there, or its format is of a later version.
    OwnerError
        It belongs to another user, and must not be read by others.
    """

    def __init__(self, path: str | Path, *, max_bytes: int = JOURNAL_BYTES) -> None:
        self.path = Path(path)
        self._max_bytes = max_bytes
        self._journal: Journal | None = None
        self._pulsed_s = -math.inf
        self._passed_over: set[str] = set()
        self._replay: _Replay | None = None
        file = self.path / _PLAN
        try:
            with open_file(file) as opened:
                self._about = os.fstat(opened.fileno())
                text = read_whole(opened, file, min(max_bytes, DOCUMENT_BYTES))
            self.owner = owned.whose(self.path.stat()) or owned.whose(self._about)
        except (FileNotFoundError, NotADirectoryError) as error:
            if (self.path / _JOURNAL).exists():
                hint = "Restore it; the jobs' files and the journal are still there."
                raise InputError("is missing; it describes the run", where=str(file), hint=hint) from error
            raise InputError(
                f"there is no run here: {error.strerror}", where=str(self.path), hint="See them all with: asa runs"
            ) from error
        except OSError as error:
            if isinstance(error, PermissionError) and (closed := _closed_by(self.path)):
                raise OwnerError(f"belongs to {closed}, and is private", where=str(self.path), hint=_SHARE) from error
            raise InputError(f"cannot be read: {error.strerror}", where=str(file), hint=_UNREADABLE) from error
        try:
            self.plan = made(RunPlan, _renamed(read_json(text)))
        except ValueError as error:
            hint = "It was written by another version of asa, or damaged."
            raise InputError("is not a description of a run", where=str(file), hint=hint) from error
        if self.plan.schema > _SCHEMA:
            raise InputError("is of a later version of asa", where=str(file), hint="Use that version.")

    @classmethod
    def create(cls, runs: Path, plan: RunPlan, *, is_usual: bool = False) -> RunFolder:
        """Create the folder of a new run.

        Parameters
        ----------
        runs
            The folder of runs.
        plan
            The plan of the run.
        is_usual
            Whether `runs` is the default folder: if another user has made that meanwhile, the user's own folder next to
            it is used.

        Raises
        ------
        InputError
            The folder cannot be made.
        """
        path = cls.path_of(runs, plan)
        is_shared = plan.share == GROUP
        with in_words("cannot be made", path, "Nothing was submitted. Name another folder with --runs or ASA_RUNS."):
            safe.provide_above(path, is_shared=is_shared)
            if is_usual and runs.name == _RUNS and not os.environ.get("ASA_RUNS") and owned.of_another(runs):
                return cls.create(owned.own_path(runs), plan)
            check_runs(runs)
            safe.make_folder(path, is_shared=is_shared)
            safe.make_folder(path / _REQUESTS)
            if is_shared:
                safe.make_folder(path / _TASKS)  # else jobs make it, with their umask
                _make_readable(path)
            _write_plan(path, plan)
        return cls(path)

    @staticmethod
    def path_of(runs: Path, plan: RunPlan) -> Path:
        """Return where `create` would create a run's folder."""
        moment = datetime.fromtimestamp(plan.created_s).strftime("%Y%m%d-%H%M%S")  # noqa: DTZ006 - for people here
        return runs / f"{_safe(plan.name)}-{moment}-{plan.id[:4]}"

    def not_shared(self) -> str:
        """Return why a shared run cannot be read by its group, and what to do; empty if it can."""
        why, repair = "", ""
        if self._is_shared:
            with suppress(OSError):
                why, repair = owned.not_shared(self.path)
        return why and f'nobody can look at this run, in spite of `share = "group"`, as {why}. {repair}'

    # ------------------------------------------------------------------ for the driving client

    def check_own(self) -> None:
        """Refuse to change a run that others own or can change, or that is reached by another user's link.

        Raises
        ------
        OwnerError
            Others own it or can change it, and the user does not trust that folder.
        InputError
            It cannot be examined.
        """
        with in_words("cannot be looked at", self.path, _UNREADABLE):
            safe.check_links(self.path)
            hint = f"Only {self.owner} can go on with this run, or cancel it. Look at it: asa status {self.path.name}"
            safe.check(self.path, if_theirs=hint)
            safe.check(self.path / _PLAN, self._about, if_theirs=hint)
            with os.scandir(self.path) as entries:
                inside = [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False) or e.name == _JOURNAL]
            for part in sorted(inside):
                safe.check(part)

    @contextmanager
    def driven(self) -> Iterator[Journal]:
        """Become the only client that drives the run; yields the run's journal.

        Raises
        ------
        LeaseError
            Another client drives it.
        JournalError
            The journal cannot be read.
        OwnerError
            Others own the run, or can change it.
        """
        self.check_own()
        self._lease = FileLock(self.path / _LEASE, doing="is driven by")
        with ExitStack() as exits:
            try:
                exits.enter_context(self._lease)
            except LeaseError as error:
                hint = (
                    "Watch it with: asa status --watch. A client on another host that has been silent for ten "
                    "minutes is replaced."
                )
                raise LeaseError(error.message, where=str(self.path), hint=hint) from error
            except OSError as error:
                hint = "Free disk space or fix the permissions; then: asa resume."
                raise JournalError(f"cannot be written: {error.strerror}", where=str(self.path), hint=hint) from error
            exits.enter_context(_beating(self._lease))
            if (
                self.plan.schema < _SCHEMA
            ):  # an earlier version cannot read what is written from now on, and is to say so
                self.revise(schema=_SCHEMA)
            self._journal = Journal(self.path / _JOURNAL, guard=self._lease.check)
            exits.callback(self._journal.close)
            yield self._journal

    @property
    def is_submitting(self) -> bool:
        """Whether this client has just submitted a job, and does not know yet whether it was accepted."""
        return self._journal is not None and isinstance(self._journal.latest, Intended | Again)

    def check(self, journal: Journal) -> None:
        """Refuse a journal that lacks an event that the jobs' files show.

        Raises
        ------
        JournalError
            A stage has completed that was never submitted, according to the journal.
        """
        self._check_known(self._completed(), _submitted(journal.entries))

    def sleep(self, seconds: float) -> bool:
        """Sleep, updating the pulse; return whether a request ended the sleep early."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_S))
            self._lease.beat()
            if self._wish_files():
                return True
        return False

    def pulse(self, condition: Condition, state: RunState | None = None, next_s: float | None = None) -> None:
        """Write the pulse, at most every few seconds."""
        if time.monotonic() - self._pulsed_s < _PULSE_S:
            return
        self._pulsed_s = time.monotonic()
        jobs = [job.status for job in state.jobs.values()] if state is not None else []
        expected = {job.job_id: job.expected_start_s for job in jobs if job.expected_start_s is not None}
        planned = state.planned if state is not None else ()
        sign = Pulse(time.time(), condition, expected, next_s, planned)
        with suppress(OSError):  # on a full disk, the journal reports the error
            _write(self.path / _PULSE, written(sign).encode(), is_shared=self._is_shared)

    def log_begin(self) -> None:
        """Log that this client now drives the run."""
        self._log("drives the run")

    def log_left(self, why: str, then: str) -> None:
        """Log that this client left the run, for users who find the run without a client.

        Parameters
        ----------
        why
            The reason, in words.
        then
            The command that continues the run.
        """
        self._log(f"left, as {why}; nothing more is submitted until: {then}")

    def forget_cluster(self) -> None:
        """Let the run continue on the cluster that is reached next, which its backend then records."""
        # jobs of a pool have a file of their own, and so has each of several clusters
        others = (file for part in ("pool", "clusters") for file in self.path.glob(f"{part}/**/{CLUSTER_FILE}"))
        for file in (self.path / CLUSTER_FILE, *others):
            file.unlink(missing_ok=True)

    def log_note(self, words: str) -> None:
        """Log a note for the user that changes nothing."""
        self._log(words)

    def log_once(self, words: str) -> bool:
        """Log a note like `log_note`, unless it equals the last one; return whether it was logged."""
        is_new = not self._last_line().endswith(f": {on_one_line(words)}")
        if is_new:
            self._log(words)
        return is_new

    def moved_s(self) -> float:
        """Return when the run last changed, by the file system's clock."""
        return (self.path / _JOURNAL).stat().st_mtime

    def _log(self, text: str) -> None:
        moment = time.strftime("%Y-%m-%d %H:%M:%S")
        line = f"{moment} {os.uname().nodename} process {os.getpid()}: {on_one_line(text)}\n"
        with suppress(OSError), append_to(self.path / _CLIENTS, is_private=True) as file:
            file.write(line.encode())

    def take_requests(self) -> list[CancelRequest]:
        """Take all requests from the folder; those that cannot be read are dropped."""
        requests = []
        for file in self._wish_files():
            self._passed_over.add(file.name)
            with suppress(OSError, ValueError, OwnerError):
                requests.append(made(CancelRequest, read_json(safe.read(file))))
            with suppress(OSError):
                file.unlink()
        return requests

    def revise(self, **changes: Any) -> None:
        """Change the stored plan of the run; only if no other client drives it.

        Parameters
        ----------
        **changes
            Fields of the plan, except stages: changes of these are in the journal.

        Raises
        ------
        JournalError
            It cannot be written.
        """
        plan = replace(self.plan, **changes)
        with in_words(
            "cannot be written", str(self.path / _PLAN), "Fix its permissions, or free disk space.", JournalError
        ):
            _write_plan(self.path, plan)
        self.plan, self._replay = plan, None  # which was made by the old one

    # ------------------------------------------------------------------ for everybody

    def request(self, request: CancelRequest) -> Path:
        """Write a request to the run's present or next client; return its file, which that client removes."""
        file = self.path / _REQUESTS / f"{time.time_ns()}-{os.urandom(4).hex()}.json"
        _write(file, written(request).encode())
        return file

    def driver(self) -> Holder | None:
        """Read which client drives the run; None if none seems to."""
        lock = FileLock(self.path / _LEASE)
        holder = None
        with suppress(OSError):  # in another user's folder, less can be seen
            holder = lock.holder()
            return None if holder is None or lock.is_stale(holder) else holder
        return holder

    def last_left(self) -> str:
        """Return when and why the latest client left the run; empty if it recorded nothing, or still drives the run."""
        left = _LEFT.match(self._last_line())
        return f"left at {left[1]}, {left[2]}" if left else ""

    def _last_line(self) -> str:
        with suppress(OSError, IndexError), open_file(self.path / _CLIENTS) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LOG_LINE_BYTES, 0))
            return file.read(_LOG_LINE_BYTES).decode(errors="replace").splitlines()[-1]
        return ""

    def output_of(self, token: str, job_id: str, kind: str, step: int = 0) -> Path | None:
        """Find the file with the standard output or errors of a token's job; None if there is none.

        `kind`: ``out`` or ``err``. `step`: number of a step that has a file of its own; 0 for the job's file.
        """
        try:
            every = [
                entry
                for entry in os.scandir(self.path / "logs")
                if entry.name.endswith(f".{kind}") and step_of_output(entry.name) == step
            ]
        except OSError:
            return None
        named = re.compile(rf"(?<![0-9A-Za-z]){re.escape(token)}(?![0-9A-Za-z])")
        ours = [entry for entry in every if token and named.search(entry.name)]
        exact = [entry for entry in ours if f".{job_id}." in entry.name]
        with suppress(OSError):
            return max(
                (Path(entry.path) for entry in exact or ours), key=lambda path: path.stat().st_mtime, default=None
            )
        return None

    def last_pulse(self) -> Pulse | None:
        """Return the latest pulse of a client."""
        try:
            return made(Pulse, read_json(read_file(self.path / _PULSE)))
        except (OSError, ValueError):
            return None

    def state(self) -> tuple[RunState, list[Record]]:
        """Return the run's state and records, from its journal alone, to be read only; needs no lease.

        The next call goes on with the same state, and reads only what was added to the journal.

        Raises
        ------
        JournalError
            The journal cannot be read, is damaged, contradicts itself, or lacks something that the jobs' files show.
        """
        # read before the journal, which must know of these
        ended, has_completed = self._completed(), (self.path / _METRICS).exists()
        replay, self._replay = self._replay or _Replay(self.path, self.plan, self._max_bytes), None
        replay.read_on()
        self._check_known(ended, replay.known)
        if has_completed and replay.state.outcome != "completed" and not any(map(_completes, replay.records)):
            self._refuse_journal("that the run has completed")
        self._replay = replay  # not if it was refused
        return replay.state, list(replay.records)

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Store the run's cost, for people and programs."""
        _write(self.path / _METRICS, json.dumps(metrics, indent=1).encode(), is_shared=self._is_shared)

    @property
    def _is_shared(self) -> bool:
        return self.plan.share == GROUP

    def _completed(self) -> list[str]:
        """Name the stages that have completed, by the files that their jobs left."""
        try:
            left = set(os.listdir(self.path / "posts"))  # noqa: PTH208 - names alone, of very many
        except OSError:
            return []
        return [s.name for s in self.plan.stages if quote(f"{self.plan.id}/{s.name}", safe="") in left]

    def _check_known(self, ended: Iterable[str], known: Collection[str]) -> None:
        for stage in ended:
            if stage not in known:
                self._refuse_journal(f"of stage {stage!r}, which has completed")

    def _refuse_journal(self, what: str) -> NoReturn:
        raise JournalError(
            f"does not know {what}: it was lost or cut off",
            where=str(self.path / _JOURNAL),
            hint="Restore it, or start a new run.",
        )

    def _wish_files(self) -> list[Path]:
        try:
            with os.scandir(self.path / _REQUESTS) as entries:
                names = (entry.name for entry in entries if entry.name.endswith(".json"))
                return sorted(self.path / _REQUESTS / name for name in names if name not in self._passed_over)
        except OSError:
            return []


class _Replay:
    """A run's state, replayed from its journal.

    `known`: names of the stages that have been submitted.
    """

    state: RunState

    def __init__(self, path: Path, plan: RunPlan, max_bytes: int) -> None:
        self.records: list[Record] = []
        self.known: set[str] = set()
        self._path, self._plan = path, plan
        self._reader = JournalReader(path / _JOURNAL, max_bytes=max_bytes)

    def read_on(self) -> None:
        """Take in what was added to the journal; all of it, if that was replaced.

        Raises `JournalError`: as `RunFolder.state` does; this object is of no use afterwards.
        """
        entries, is_whole = self._reader.read()
        with consistent(self._path / _JOURNAL):
            if is_whole:
                plan = self._plan
                workflow = plan.make_workflow()
                self.state = RunState(plan.name, workflow, plan.capabilities, plan.id, folder=str(self._path))
                self.records, self.known = [], set()
            self.known |= _submitted(entries)
            for entry in entries:
                found = self.state.apply(entry)
                self.records += [news.record if isinstance(news, Observation) else news for news in found]


def _submitted(entries: Iterable[Entry]) -> set[str]:
    """Return the names of stages that were submitted, by a journal."""
    return {name for entry in entries if isinstance(entry, Intended) for name in entry.planned.stages}


def _completes(record: Record) -> bool:
    return isinstance(record, RunEnded) and record.outcome == "completed"


@contextmanager
def _beating(lease: FileLock) -> Iterator[None]:
    """Renew the lease in a thread, also while the client waits for an answer."""
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(_BEAT_S):
            lease.beat()

    beats = threading.Thread(target=beat, name="lease", daemon=True)
    beats.start()
    try:
        yield
    finally:
        is_over.set()
        beats.join()


def step_of_output(name: str) -> int:
    """Return the number of the step that writes to a file of this name; 0 if the job itself does.

    Examples
    --------
    >>> step_of_output("flow_a+b.0123456789ab-0x2-0.17.step-2.err"), step_of_output("a.0123456789ab-0-0-0a1b2c.err")
    (2, 0)
    """
    match = _STEP.search(name)
    return int(match[1]) if match else 0


def is_run_open(path: Path) -> bool:
    """Whether others can change a user's own run, as runs of earlier versions; reads no file.

    `path`: the run's folder.
    """
    with suppress(OSError):
        return any(owned.is_open(part) for part in (path, path / _PLAN, path / _JOURNAL) if part.exists())
    return False


def open_listed(path: Path) -> RunFolder:
    """Open a run for a list of runs; of another user's run, only little is read.

    Parameters
    ----------
    path
        The run's folder.

    Raises
    ------
    InputError
        As for `RunFolder`; or another user's run is too large to be read for a list.
    """
    return RunFolder(path, max_bytes=OTHERS_BYTES) if _is_of_others(path) else RunFolder(path)


def list_runs(runs: Path, *, only_own: bool = False) -> list[RunFolder]:
    """Return the runs in a folder, the latest last; anything else in it is skipped.

    Parameters
    ----------
    runs
        The folder.
    only_own
        Leave out those of others, without reading them.
    """
    found: list[RunFolder] = []
    for path in run_paths(runs):
        if not (only_own and _is_of_others(path)):
            with suppress(InputError):
                found.append(open_listed(path))
    return sorted(found, key=lambda run: run.plan.created_s)


@dataclass(frozen=True, slots=True)
class _ListedRun:
    """Identifies a run in a list, so that whole runs need not be kept in memory."""

    path: Path
    name: str
    created_s: float


def _known_in(runs: Path, *, of_others: bool) -> tuple[list[_ListedRun], list[Path]]:
    """Return the user's own runs in a folder, or other users' runs, the latest last; and the unreadable runs."""
    found: list[_ListedRun] = []
    damaged: list[Path] = []
    for path in run_paths(runs):
        if _is_of_others(path) != of_others:
            continue
        try:
            plan = open_listed(path).plan
            found.append(_ListedRun(path, plan.name, plan.created_s))
        except InputError:
            if _NAMED.search(path.name) or (path / _JOURNAL).is_file():
                damaged.append(path)
    return sorted(found, key=lambda run: run.created_s), damaged


def _is_of_others(path: Path) -> bool:
    """Whether a run belongs to another user, or another user's link leads to it."""
    with suppress(OSError):
        return any(owned.whose(about) for about in (path.lstat(), path.stat(), (path / _PLAN).stat()))
    with suppress(OSError):
        return bool(owned.whose(path.lstat()))
    return False


def _closed_by(path: Path) -> str:
    """Name the owner, another user or root, of a folder that cannot be read."""
    with suppress(OSError):
        if (uid := path.stat().st_uid) != os.geteuid():
            return owned.user_name(uid)
    return ""


def _began_s(path: Path) -> float:
    """Return when a run began, by its folder's name or time."""
    if named := _NAMED.search(path.name):
        with suppress(ValueError, OverflowError):
            return datetime.strptime(named[1], "%Y%m%d-%H%M%S").timestamp()  # noqa: DTZ007 - as it was made
    with suppress(OSError):
        return path.stat().st_mtime
    return math.inf


def run_paths(runs: Path) -> list[Path]:
    """Return the paths of all possible runs in a folder: folders with a plan, and unreadable folders.

    Parameters
    ----------
    runs
        The folder; if it does not exist, there are none.

    Raises
    ------
    InputError
        The folder cannot be read.
    """
    try:
        return sorted(path for path in runs.iterdir() if _may_be_run(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(runs), hint=_UNREADABLE) from error


def _may_be_run(path: Path) -> bool:
    for name in (_PLAN, _JOURNAL):
        try:
            (path / name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # opening the run reports it
            pass
        return True
    return False


def find_run(runs: Path, named: str) -> RunFolder:
    """Find a run by its folder, the folder's name in `runs`, its own name, or a prefix of either; empty for the latest.

    Of several runs with exactly that name, the latest is taken. Other users' runs count only if no own run matches.

    Parameters
    ----------
    runs
        The folder of the runs.
    named
        What the user gave.

    Raises
    ------
    InputError
        No run matches, several have this prefix, or the run cannot be read.
    """
    if named and (path := next((path for path in (Path(named), runs / named) if _may_be_run(path)), None)):
        return RunFolder(path)
    every, damaged = _known_in(runs, of_others=False)
    matching = [run for run in every if named in {run.name, ""} or run.path.name.startswith(named)]
    latest = ([run for run in matching if run.name == named] or matching)[-1] if matching else None
    for path in damaged:  # a damaged run may be the wanted one: do not take another in its place
        if path.name.startswith(named) and (latest is None or _began_s(path) >= latest.created_s - 1.0):
            RunFolder(path)  # reports the damage
    if latest is None:
        return _find_of_others(runs, named, every)
    return RunFolder(_one_of(matching, named).path)


def _find_of_others(runs: Path, named: str, own: list[_ListedRun]) -> RunFolder:
    """Find another user's run, if no own run matches."""
    others, damaged = _known_in(runs, of_others=True)
    matching = [run for run in others if named in {run.name, ""} or run.path.name.startswith(named)]
    if matching:
        return RunFolder(_one_of(matching, named).path)
    for path in damaged:
        if named and path.name.startswith(named):
            RunFolder(path)  # reports the damage
    every = sorted([*own, *others], key=lambda run: run.created_s)
    guess = near(named, [*(run.name for run in every), *(run.path.name for run in every)]) if named else ""
    theirs, owner = runs_of_another(runs)
    if named and owner:
        return find_run(theirs, named)
    known = ", ".join(run.path.name for run in every[-5:])
    hint = f"{guess}The latest: {known}." if every else _WHERE_ELSE
    if users := sorted({user for path in damaged if (user := _closed_by(path))}):
        hint = f"{hint} Runs of {', '.join(users)} are here, which are private. {_SHARE}"
    raise InputError(f"there is no run {named!r}".replace(" ''", ""), where=str(runs), hint=hint)


def _one_of(matching: list[_ListedRun], named: str) -> _ListedRun:
    """Choose among matching runs, which are sorted with the latest last."""
    exact = [run for run in matching if run.name == named]
    if exact or len(matching) == 1 or not named:
        return (exact or matching)[-1]
    names = ", ".join(run.path.name for run in matching)
    raise InputError(
        f"several runs begin with {named!r}", where=str(matching[0].path.parent), hint=f"Name one of: {names}."
    )


def check_runs(runs: Path) -> None:
    """Refuse a folder of runs in which others can replace a run.

    `runs`: the folder.
    Raises `OwnerError`: others can.
    Raises `OSError`: the folder cannot be examined.
    """

    def hint(about: os.stat_result) -> str:
        own = "Name a folder of your own with --runs or ASA_RUNS; nothing was submitted."
        if owned.whose(about):
            return own
        shown = shlex.quote(str(runs.absolute()))
        who = "" if about.st_uid == os.geteuid() else "said by root, "
        return f"{own} As in: export ASA_RUNS={shown}/$USER. Or, {who}`chmod +t {shown}` lets each keep runs there."

    safe.check_fixed(runs, "run", hint)


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:40].lstrip(".-") or "run"


def _make_readable(folder: Path) -> None:
    """Make the files that grow during a run readable by its group, whatever the umask."""
    for name in (_JOURNAL, _CLIENTS):
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o640)
        finally:
            os.close(descriptor)
    sync_folder(folder)


def _write_plan(folder: Path, plan: RunPlan) -> None:
    _write(folder / _PLAN, written_by_field(plan).encode(), is_shared=plan.share == GROUP)


def _write(path: Path, data: bytes, *, is_shared: bool = False) -> None:
    """Write a file for the run's clients on any host, readable by its user, and by its group if `is_shared`.

    Plans and requests may contain values of variables, including secrets.
    """
    put(path, data, is_private=True, is_shared=is_shared, is_durable=True)
