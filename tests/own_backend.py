"""A batch system of one's own in one file: this computer, whose cores are given to jobs in the order of submission.

What every backend needs is here: a *facility*, which a user opens by settings; a *backend*, by which one client submits
jobs and hears of them; and, since this computer has no batch system yet, a *server* that is one. The server is a
process of its own, which any client starts and which ends when nothing is left to do. So jobs go on when the client is
no more, and another client finds them: all that is known lies in files, each written beside its place and renamed.

    python tests/own_backend.py

A package makes it known by an entry point, and then `asa run flow.toml --backend this-machine --set cores=4` takes it:

    [project.entry-points."asa.backends"]
    this-machine = "own_backend:ThisMachine"
"""

from __future__ import annotations

import fcntl
import getpass
import math
import os
import platform
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Console

from asa import Stage, __version__
from asa.backend import (
    Advice,
    Capabilities,
    Condition,
    DependencyType,
    JobSpec,
    JobState,
    JobStatus,
    StepTimes,
)
from asa.core.locks import is_running
from asa.errors import InputError, JobNotFoundError, SubmitRejectedError
from asa.runner import RunFolder, RunPlan, drive
from asa.testing import check_backend
from asa.waits import QueuedJob, QueueEvent

TICK_S = 0.05  # between two looks of the server at its jobs
LOOK_S, MAX_LOOK_S = 0.2, 5.0  # and of a client at the server's files: less often while nothing happens
LINGER_S = 1.0  # a server without jobs ends after so long

_MEANINGS = {
    "Resources": Advice("All cores are taken by other jobs."),
    "Priority": Advice("Other jobs were submitted earlier, and go first."),
    "Dependency": Advice("It waits for a job that has not ended."),
    "DependencyNeverSatisfied": Advice("A job that it depends on failed, so it can never start."),
    "JobHeldUser": Advice("Somebody holds it back.", "Let it go: delete the file `held` in the job's folder."),
    "TimeLimit": Advice("It ran for all of its walltime, and was killed.", "Ask for more walltime."),
    "NonZeroExitCode": Advice("Its command ended with an exit code other than 0.", "Look into what it wrote."),
    "Lost": Advice("Its processes were killed from outside, or the computer was started anew.", "Run it again."),
}


# ---------------------------------------------------------------------- files


@dataclass(frozen=True, slots=True)
class Submission:
    """A client's record of a job, written once."""

    spec: JobSpec
    submit_s: float
    folder: str  # where its commands run
    output: str  # its output goes to this path, with .out and .err


_submission = TypeAdapter(Submission)
_status = TypeAdapter(JobStatus)


def put(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)


def folders_in(spool: Path) -> list[Path]:
    """List the folders of all jobs, in the order of their submission; those that are being written are left out."""
    folders = [folder for folder in (spool / "jobs").iterdir() if (folder / "job.json").exists()]
    return sorted(folders, key=lambda folder: int(folder.name))


def submission_of(folder: Path) -> Submission:
    """Read the record of a submission; OSError if it does not exist yet."""
    return _submission.validate_json((folder / "job.json").read_bytes())


def status_of(folder: Path) -> JobStatus:
    """Read the state of a job; a job that the server has not seen is pending."""
    try:
        return _status.validate_json((folder / "status.json").read_bytes())
    except FileNotFoundError:
        return JobStatus(folder.name, JobState.PENDING, submission_of(folder).submit_s)


def script_of(given: Submission, folder: Path) -> str:
    """Write what a job runs: its commands one after the other, when each began and ended, and the exit code."""
    commands = [step.command for step in given.spec.steps] or [given.spec.command]
    stamp = "date +%s.%N >"
    parts = [f"cd {shlex.quote(given.folder)}"]
    for number, command in enumerate(commands):
        here = shlex.quote(f"{folder}/{number}")
        parts += [f"{stamp}{here}.began", f"sh -c -- {shlex.quote(command)}", f"{stamp}{here}.ended"]
    code, all_of_them = shlex.quote(f"{folder}/code"), " &&\n ".join(parts)
    return f"({all_of_them})\necho $? >{code}.draft && mv {code}.draft {code}\n"


# ---------------------------------------------------------------------- the batch system


@dataclass(slots=True)
class Job:
    """A job as the server knows it."""

    folder: Path
    given: Submission
    status: JobStatus

    @property
    def spec(self) -> JobSpec:
        """The request of the job."""
        return self.given.spec

    def become(self, status: JobStatus) -> None:
        """Change, for all to see."""
        if status != self.status:
            self.status = status
            put(self.folder / "status.json", _status.dump_json(status))

    def end(self, state: JobState, reason: str = "", code: int | None = None) -> None:
        """End, now."""
        self.become(
            replace(self.status, state=state, end_s=time.time(), exit_code=code, reason=reason, steps=self.step_times())
        )

    def step_times(self) -> tuple[StepTimes, ...]:
        """Return which steps began and completed."""
        told = []
        for number, step in enumerate(self.spec.steps):
            began, ended = (_time_in(self.folder / f"{number}.{what}") for what in ("began", "ended"))
            if began is not None:
                told.append(StepTimes(step.name, began, ended))
        return tuple(told)

    def kill(self) -> None:
        """Kill its processes; a site would first ask them to end."""
        with suppress(OSError, ValueError):
            os.killpg(int((self.folder / "pid").read_text()), signal.SIGKILL)


def _time_in(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


@dataclass(slots=True)
class Server:
    """Starts jobs in the order of their submission, each when enough cores are free, and sees to their ends."""

    spool: Path
    cores: int
    jobs: dict[str, Job] = field(default_factory=dict)
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def serve(self) -> None:
        """Work until there has been nothing to do for a while."""
        busy_s = time.monotonic()
        while time.monotonic() - busy_s < LINGER_S:
            self._take_in()
            live = [job for job in self.jobs.values() if not job.status.state.is_final]
            if live:
                busy_s = time.monotonic()
                self._look(live)
            self.children = [child for child in self.children if child.poll() is None]
            time.sleep(TICK_S)

    def _take_in(self) -> None:
        for folder in folders_in(self.spool):
            if folder.name not in self.jobs:
                self.jobs[folder.name] = Job(folder, submission_of(folder), status_of(folder))

    def _look(self, live: Iterable[Job]) -> None:
        queue = []
        for job in live:
            if (job.folder / "cancel").exists():
                job.kill()
                job.end(JobState.CANCELLED)
            elif job.status.state is JobState.RUNNING:
                self._follow(job)
            elif self._is_free(job):
                queue.append(job)
        taken = sum(job.spec.cores for job in self.jobs.values() if job.status.state is JobState.RUNNING)
        for place, job in enumerate(queue):
            if taken + job.spec.cores > self.cores:  # nobody overtakes
                for behind in queue[place:]:
                    reason = "Resources" if behind is job else "Priority"
                    behind.become(replace(behind.status, reason=reason))
                break
            taken += job.spec.cores
            job.become(replace(job.status, state=JobState.RUNNING, start_s=time.time(), reason=""))
            self._follow(job)

    def _is_free(self, job: Job) -> bool:
        """Whether nothing but cores stands between a job and its start; note since when, or why not."""
        since, reason = self._release(job)
        eligible = since if since is not None and job.status.eligible_s is None else job.status.eligible_s
        eligible = eligible if since is not None else None
        held = job.status.held or reason == "JobHeldUser"
        job.become(replace(job.status, eligible_s=eligible, reason=reason or job.status.reason, held=held))
        return since is not None

    def _release(self, job: Job) -> tuple[float | None, str]:
        now = time.time()
        if (job.folder / "held").exists():
            return None, "JobHeldUser"
        times = [job.given.submit_s, job.spec.begin_s or 0.0]
        for dependency in job.spec.dependencies:
            before = self.jobs[dependency.job_id].status
            if dependency.type is DependencyType.AFTER:
                met = None if before.start_s is None else before.start_s + dependency.delay_s
            else:
                met = before.end_s
            unfit = dependency.type is DependencyType.AFTEROK and before.state is not JobState.COMPLETED
            if before.state.is_final and (met is None or unfit):
                return None, "DependencyNeverSatisfied"
            if met is None or met > now:
                return None, "Dependency"
            times.append(met)
        if max(times) > now:
            return None, "BeginTime"
        return (now if job.status.held else max(times)), ""

    def _follow(self, job: Job) -> None:
        """See whether a job's payload may begin, and whether it has ended."""
        status, now = job.status, time.time()
        if status.start_s is not None and now >= status.start_s + job.spec.walltime_s:
            job.kill()
            job.end(JobState.TIMEOUT, "TimeLimit")
        elif status.payload_start_s is None:
            if self._has_twin(job):
                job.end(JobState.FAILED, "Twin")
            elif all(self._is_posted(token) for token in job.spec.awaits):
                self._begin(job)
        else:
            lost = not is_running(int((job.folder / "pid").read_text()))  # asked before the code is looked for
            code = _time_in(job.folder / "code")
            if code is not None:
                well = code == 0
                reason = "" if well else "NonZeroExitCode"
                job.end(JobState.COMPLETED if well else JobState.FAILED, reason, int(code))
            elif lost:
                job.end(JobState.FAILED, "Lost")
            elif job.spec.steps:
                job.become(replace(status, steps=job.step_times()))

    def _begin(self, job: Job) -> None:
        script = job.folder / "script"
        put(script, script_of(job.given, job.folder).encode())
        output = f"{job.given.output}.{job.folder.name}"
        with Path(f"{output}.out").open("ab") as out, Path(f"{output}.err").open("ab") as err:
            child = subprocess.Popen(
                ["sh", str(script)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        put(job.folder / "pid", str(child.pid).encode())
        self.children.append(child)
        job.become(replace(job.status, payload_start_s=time.time()))

    def _has_twin(self, job: Job) -> bool:
        """Whether another job of the same token runs the payload, or ran it."""
        others = (other for other in self.jobs.values() if other is not job and other.spec.token == job.spec.token)
        return bool(job.spec.token) and any(other.status.payload_start_s is not None for other in others)

    def _is_posted(self, token: str) -> bool:
        return any(token in job.spec.posts and job.status.state is JobState.COMPLETED for job in self.jobs.values())


@contextmanager
def alone(spool: Path) -> Iterator[bool]:
    """Be the one server of a spool, or tell that there is one; the lock of a process ends with it."""
    with (spool / "lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


# ---------------------------------------------------------------------- what asa sees of it


class ThisMachine:
    """The computer that you sit at: jobs are its processes, in the order of their submission.

    Parameters
    ----------
    cores
        How many there are for jobs; those of the computer if not given. What jobs really use is up to them.
    spool
        Folder of the queue, which all who open it share.
    """

    def __init__(self, cores: int | str = 0, spool: str = "") -> None:
        try:
            self.cores = int(cores) or os.cpu_count() or 1
        except ValueError:
            raise InputError(f"{cores!r} is no number", where="cores", hint="As in --set cores=4.") from None
        self.spool = Path(spool or Path(tempfile.gettempdir()) / f"this-machine-{getpass.getuser()}").absolute()

    @property
    def notes(self) -> Sequence[str]:
        """Return notes for the user."""
        return [
            "Jobs are processes of this computer, and nothing keeps them from using more cores than they asked for."
        ]

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] = time.sleep) -> ThisMachineBackend:
        """Open it for one run; commands run in what is now the current folder."""
        for needed in (self.spool / "jobs", folder.absolute() / "logs"):
            needed.mkdir(parents=True, exist_ok=True)
        return ThisMachineBackend(self.spool, folder.absolute(), self.cores, sleep)

    def advice(self, reason: str) -> Advice:
        """Explain a job's reason."""
        return _MEANINGS.get(reason, Advice(f"This computer says: {reason}."))


class ThisMachineBackend:
    """One client's view of the queue."""

    def __init__(self, spool: Path, folder: Path, cores: int, sleep: Callable[[float], bool | None]) -> None:
        self.capabilities = Capabilities(platform.node() or "here", cores, cores, age_accrues=True)
        self._spool, self._folder, self._sleep = spool, folder, sleep
        self._where = os.getcwd()  # noqa: PTH109 - text is what is kept
        self._seen: dict[str, JobStatus] = {}  # this client's jobs, as `wait` told them
        self._told: set[tuple[str, str]] = set()  # of others' jobs
        self._heard_s, self._calls = time.time(), 0
        self._started_s = -math.inf  # a server
        self._changed_s = time.time()  # one of this client's jobs

    @property
    def condition(self) -> Condition:
        """Return whether it can be asked: files can always be read."""
        return Condition(self._heard_s, calls=self._calls)

    def now(self) -> float:
        """Read the clock."""
        return time.time()

    def submit(self, spec: JobSpec) -> str:
        """Put a job into the queue."""
        if (why := self.capabilities.impossible(spec)) or spec.walltime_s <= 0:
            raise SubmitRejectedError(why or "asks for no time", where=f"job {spec.name!r}", hint="Ask for other.")
        for dependency in spec.dependencies:
            self._job(dependency.job_id)
        given = self._given(spec)
        folder = self._new_folder()
        if spec.held:
            (folder / "held").touch()
        put(folder / "job.json", _submission.dump_json(given))  # from here on it counts
        self._seen[folder.name] = status_of(folder)
        self._start_server()
        return folder.name

    def preview(self, spec: JobSpec) -> Mapping[str, str]:
        """Show what a job would run."""
        return {"script": script_of(self._given(spec), self._spool / "jobs" / "NUMBER")}

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Look for jobs by their tokens."""
        found: dict[str, list[JobStatus]] = {token: [] for token in tokens}
        for folder in folders_in(self._spool):
            if (token := submission_of(folder).spec.token) in found:
                found[token].append(self._adopt(folder))
        return {token: sorted(jobs, key=lambda s: s.payload_start_s is None) for token, jobs in found.items()}

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        self._job(job_id).joinpath("cancel").touch()
        self._start_server()

    def hold(self, job_id: str) -> None:
        """Hold a pending job back."""
        self._job(job_id).joinpath("held").touch()

    def release(self, job_id: str) -> None:
        """Release a job."""
        self._job(job_id).joinpath("held").unlink(missing_ok=True)

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the states of jobs."""
        self._heard_s, self._calls = time.time(), self._calls + 1
        return {job_id: self._adopt(self._job(job_id)) for job_id in job_ids}

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Sleep until one of this client's jobs changes, or until a time."""
        while not (changed := self._news()):
            is_live = any(not status.state.is_final for status in self._seen.values())
            if until_s is None and not is_live:
                break
            left_s = math.inf if until_s is None else until_s - self.now()
            if left_s <= 0:
                break
            if is_live:
                self._start_server()
                left_s = min(left_s, max(LOOK_S, min((self.now() - self._changed_s) / 20, MAX_LOOK_S)))
            if self._sleep(left_s):
                return self._news()
        return changed

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Return the events of other clients' jobs."""
        events = []
        folders = folders_in(self._spool)
        for folder in folders if self._told else folders[max(0, len(folders) - most) :]:
            if folder.name in self._seen:
                continue
            given, status = submission_of(folder), status_of(folder)
            job = QueuedJob(
                given.submit_s, given.spec.cores, given.spec.walltime_s, getpass.getuser(), self.capabilities.system
            )
            left_s = status.end_s if status.start_s is None else None
            ended_s = status.end_s if ends and status.start_s is not None else None
            since_s = given.submit_s if status.eligible_s is not None else None
            for what, time_s in (
                ("submitted", since_s), ("started", status.start_s), ("left", left_s), ("ended", ended_s)
            ):  # fmt: skip
                if time_s is not None and (folder.name, what) not in self._told:
                    self._told.add((folder.name, what))
                    events.append(QueueEvent(what, folder.name, time_s, job if what == "submitted" else None))  # type: ignore[arg-type]
        return sorted(events, key=lambda event: event.time_s)

    # ------------------------------------------------------------------

    def _given(self, spec: JobSpec) -> Submission:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{spec.name}.{spec.token}")
        return Submission(spec, self.now(), self._where, f"{self._folder}/logs/{name}")

    def _new_folder(self) -> Path:
        number = max((int(folder.name) for folder in folders_in(self._spool)), default=0) + 1
        while True:
            folder = self._spool / "jobs" / str(number)
            try:
                folder.mkdir()
            except FileExistsError:  # another client was quicker
                number += 1
            else:
                return folder

    def _job(self, job_id: str) -> Path:
        folder = self._spool / "jobs" / job_id
        if not (folder / "job.json").exists():
            raise JobNotFoundError("is not known here", where=f"job {job_id!r}")
        return folder

    def _adopt(self, folder: Path) -> JobStatus:
        status = status_of(folder)
        self._seen.setdefault(folder.name, status)
        return status

    def _news(self) -> list[JobStatus]:
        live = [job_id for job_id, status in self._seen.items() if not status.state.is_final]
        now = self.status(live)
        changed = [status for job_id, status in now.items() if status != self._seen[job_id]]
        if changed:
            self._changed_s = self.now()
        self._seen |= now
        return changed

    def _start_server(self) -> None:
        if time.monotonic() < self._started_s + 2.0:
            return
        with alone(self._spool) as nobody_serves:
            pass
        if nobody_serves:
            self._started_s = time.monotonic()
            subprocess.Popen(
                [sys.executable, __file__, "serve", str(self._spool), str(self.capabilities.max_cores)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )


# ---------------------------------------------------------------------- on its own


STAGES = (
    Stage("split", cores=1, walltime_s=60, expected_run_s=1, command="seq 8 >numbers; sleep 0.5"),
    Stage("add", cores=4, walltime_s=60, expected_run_s=1, command="paste -sd+ numbers >sum", after=("split",)),
    Stage("merge", cores=1, walltime_s=60, expected_run_s=1, command="echo $(($(cat sum))) >total", after=("add",)),
)


def main() -> None:
    """Check that the contract is kept, then run a workflow of three stages."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="own-backend-") as name:
        machine = ThisMachine(cores=4, spool=f"{name}/spool")
        check_backend(lambda: machine.connect(Path(name) / "check"), run_s=0.3)
        console.print("It keeps the contract of a backend.")
        with chdir(name):
            plan = RunPlan(
                id=secrets.token_hex(8),
                name="example",
                workflow="example",
                stages=STAGES,
                strategy="asa",
                backend="this-machine",
                capabilities=machine.connect(Path("check")).capabilities,
                created_s=time.time(),
                version=__version__,
            )
            folder = RunFolder.create(Path("runs"), plan)
            result = drive(folder, lambda run: machine.connect(run.path, sleep=run.sleep))
            total = Path("total").read_text().strip()
        console.print(
            f"A workflow of {len(STAGES)} stages {result.outcome}; the numbers from 1 to 8 add up to {total}."
        )
        _until_idle(Path(name) / "spool")


def _until_idle(spool: Path) -> None:
    """Wait for the server's end, before its folder is deleted."""
    while True:
        with alone(spool) as nobody_serves:
            if nobody_serves:
                return
        time.sleep(TICK_S)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        for _ in range(20):  # a client that looks whether there is one is in the way for a moment
            with alone(Path(sys.argv[2])) as nobody_else:
                if nobody_else:
                    Server(Path(sys.argv[2]), int(sys.argv[3])).serve()
                    break
            time.sleep(TICK_S)
    else:
        main()
