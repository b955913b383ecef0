"""Whole runs on real Slurm daemons: small workflows, clients in threads and processes, and what Slurm says of them.

A run here is what `asa run` begins: a folder with a plan, driven by `drive` over a facility.
"""

import itertools
import multiprocessing
import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import chdir, contextmanager, suppress
from dataclasses import replace
from typing import ClassVar

import httpx
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.facility import SlurmCommands, SlurmRest
from asa.backends.slurm.rest import RestLink
from asa.backends.slurm.script import jobs_of
from slurm_testbed import Testbed, until

from asa.backend import Capabilities
from asa.elements import parse_elements
from asa.estimators.store import WaitStore
from asa.metrics import measure
from asa.records import Observed, Predicted, StageEnded, Started
from asa.runner import RunFolder, RunPlan, drive
from asa.runner.look import look
from asa.runner.specs import spec_of
from asa.sites import open_facility
from asa.strategies import Keep, PlannedJob
from asa.workflow import Stage

LINKS = ("rest", "commands")
_FACILITIES = {"rest": ("slurm-rest", SlurmRest), "commands": ("slurm-cli", SlurmCommands)}
_PARTS = ("scripts", "logs", "marks", "posts", "jobs")
_NUMBERS = itertools.count()
_IN_A_FOLDER = threading.Lock()
_QUICK = {"rest": {"poll": "0.4s", "max_poll": "1s"}, "commands": {"poll": "1s", "max_poll": "1s"}}
_PACE = {"poll_s": 0.4, "max_poll_s": 1.0}
_ALL_JOBS = ("env", "SLURM_TIME_FORMAT=%s", "scontrol", "-o", "show", "job")


def site(slurm):
    """Return what the testbed can do."""
    cores = slurm.nodes * slurm.cores_per_node
    return Capabilities(
        "testbed",
        cores,
        slurm.cores_per_node,
        age_accrues=slurm.accrue,
        partition="normal",
        shrink_by=slurm.cores_per_node,
        arrays=True,
        max_array_size=1001,
        races=True,
    )


def stage(name, after="", then="sleep 1", *, cores=1, walltime_s=600, **more):
    """Make a stage that leaves a line with its name, then does something; stages' names are single letters."""
    return Stage(name, cores=cores, walltime_s=walltime_s, expected_run_s=5, after=tuple(after), command=then, **more)


def diamond(then="sleep 1", cores=1):
    """Make four stages, of which two run side by side."""
    return [stage(name, after, then, cores=cores) for name, after in (("a", ""), ("b", "a"), ("c", "a"), ("d", "bc"))]


class SlurmRun:
    """A run on a testbed: its folder, whoever drives it, and what Slurm says of its jobs.

    `link` is ``rest`` or ``commands``; `of_plan` is what its plan has otherwise; further settings are the facility's.
    """

    called = "run"  # the folder, but for a number

    def __init__(self, slurm, stages, *, strategy="chained", link="rest", estimator="last", of_plan=None, **settings):
        self.slurm, self.link = slurm, link
        self.place = slurm.folder(f"{self.called}{next(_NUMBERS)}")
        reached = {"url": f"unix://{slurm.socket}"} if link == "rest" else {"prefix": tuple(slurm.prefix)}
        self.plan = RunPlan(
            id=secrets.token_hex(6),
            name="flow",
            workflow="flow",
            stages=tuple(self._leaves_a_line(one) for one in stages),
            strategy=strategy,
            estimator=estimator,
            backend=_FACILITIES[link][0],
            settings=_QUICK[link] | reached | settings,
            capabilities=site(slurm),
            folder=str(self.place),
            history=0,
            bank=str(self.place / "bank"),
            created_s=time.time(),
        )
        self.plan = replace(self.plan, **(of_plan or {}))
        self.folder = RunFolder.create(self.place, self.plan)
        for part in _PARTS:
            (self.folder.path / part).mkdir()
            (self.folder.path / part).chmod(0o777)  # the client may be root, the jobs are not

    def _leaves_a_line(self, one):
        return replace(one, command=f"echo {one.name} >>'{self.place}/ran'; {one.command}")

    @property
    def facility(self):
        return _FACILITIES[self.link][1](**self.plan.settings)

    def connect(self, sleep):
        """Open Slurm as `asa run` does."""
        with _IN_A_FOLDER, chdir(self.plan.folder):
            return self.facility.connect(self.folder.path, sleep=sleep)

    def spec(self, name):
        """Write the job of a stage, as if it were submitted when all stages that it depends on have ended."""
        return spec_of(self.folder.state()[0], PlannedJob((name,), 0.0, Keep.NOTHING, ""))

    def connect_over(self, transport):
        """Return what opens Slurm over a transport of HTTP."""

        def connect(sleep):
            link = RestLink(f"unix://{self.slurm.socket}", transport=transport)
            defaults = JobDefaults(folder=self.place)
            site = self.plan.capabilities
            return SlurmBackend(link, self.folder.path, site, defaults=defaults, sleep=sleep, **_PACE)

        return connect

    def client(self, **options):
        """Let a client drive the run in a thread."""
        return Client(self, **options)

    def result(self):
        """Drive the run to its end."""
        return self.client().result()

    # ------------------------------------------------------------------ what became of it

    @property
    def ran(self):
        """The lines that stages left, counted."""
        with suppress(FileNotFoundError):
            return Counter((self.place / "ran").read_text().split())
        return Counter()

    def jobs(self, told=None):
        """Return what Slurm says of the run's jobs: by stage, in the order of their submission."""
        jobs, groups = {}, self.groups
        each = (one for job in (told_jobs(self.slurm) if told is None else told) for one in alone(job, groups))
        for job in each:
            if self.plan.id in job["JobName"]:
                name = job["JobName"].removeprefix("flow_").partition(".")[0]
                jobs.setdefault(name, []).append(job)
        return jobs

    @property
    def groups(self):
        """The names of jobs that were submitted together, by element, by the name of their array."""
        return {path.stem: jobs_of(path.read_text()) for path in self.folder.path.glob("groups/*.sh")}

    def job(self, name, at_least="PENDING"):
        """Wait for the one job of a stage, and until it runs if wanted; return what Slurm says of it."""
        states = {"PENDING": {"PENDING", "RUNNING"}, "RUNNING": {"RUNNING"}}[at_least]

        def found():
            [job, *others] = self.jobs().get(name) or [None]
            assert not others
            return job if job is not None and job["JobState"] in states else None

        return until(found, what=f"a job of stage {name!r}")

    def waits(self):
        """Return the waits that the bank has learned."""
        with WaitStore(self.place / "bank") as store:
            return store.read()

    def check(self, *, told=None, **ran):
        """Raise AssertionError unless the run completed as it should; `ran` is what stages left beside a line each."""
        state, records = self.folder.state()
        assert state.outcome == "completed", state.reason
        names = [one.name for one in self.plan.stages]
        assert self.ran == dict.fromkeys(names, 1) | ran, (dict(self.ran), self.folder.path)
        assert sorted(record.stages[0] for record in records if isinstance(record, StageEnded)) == sorted(names)
        measure(self.plan.make_workflow(), records)
        self.check_waits(records, told)
        assert not self.left(told)

    def check_waits(self, records, told=None):
        """Raise AssertionError unless each wait that was learned is what Slurm says, and in the bank once."""
        jobs = {job["JobId"]: job for stage_jobs in self.jobs(told).values() for job in stage_jobs}
        observed = [record for record in records if isinstance(record, Observed)]
        assert len({record.job_id for record in observed}) == len(observed)
        for record in observed:
            job = jobs[record.job_id]
            since = max(int(job["EligibleTime"]), int(job["SubmitTime"]))
            if record.bound == "exact" and job["Restarts"] == "0":  # Slurm forgets the first start
                assert record.wait_s == int(job["StartTime"]) - since, (record, job)
        known = sorted((wait.observation.wait_s, wait.observation.kind) for wait in self.waits())
        assert known == sorted((record.wait_s, record.bound) for record in observed)

    def left(self, told=None):
        """Return the run's jobs that have not ended."""
        every = itertools.chain.from_iterable(self.jobs(told).values())
        return [job for job in every if job["JobState"] in {"PENDING", "RUNNING", "SUSPENDED"}]


def told_jobs(slurm):
    """Ask Slurm itself for all that it knows of all jobs; times are seconds since 1970, as text."""
    lines = slurm.run_as_root(*_ALL_JOBS).splitlines()
    return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines if "JobId=" in line]


_NO_ELEMENT = "4294967294"  # the record of what was left of an array when that was cancelled


def alone(job, groups):
    """Return what Slurm says of each job in a record, which may be of several elements of an array."""
    if (names := groups.get(job["JobName"])) is None:
        return [job]
    task, array_id = job.get("ArrayTaskId", "N/A"), job.get("ArrayJobId", "")
    numbers = parse_elements(task.partition("%")[0]) if task not in {"N/A", _NO_ELEMENT} else ()
    return [job | {"JobId": f"{array_id}_{number}", "JobName": names[number]} for number in numbers]


class Left(BaseException):
    """A client leaves, as by Ctrl-C; nothing catches it but the thread that it lives in."""


class Client:
    """A client that drives a run in a thread.

    `troubles` is all that its batch system's condition told, in order, `records` what happened.
    """

    living: ClassVar = []  # those that may not have ended yet

    @classmethod
    def all_leave(cls):
        """Have those leave that a test which failed has left behind, for they would go on beside all that follow.

        Return whether there were any.
        """
        left = [one for one in cls.living if one.is_there]
        for one in left:
            one._leaves.set()
        for one in left:
            one._thread.join(60.0)
        cls.living.clear()
        return bool(left)

    def __init__(self, run, *, retry=False, connect=None):
        self.run, self.records, self.troubles = run, [], []
        self._connect = connect or run.connect
        self._retry = retry
        self._backend = self._result = self._error = None
        self._leaves = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self.living.append(self)
        self._thread.start()

    def _live(self):
        try:
            self._result = drive(self.run.folder, self._opened, retry=self._retry, on_record=self.records.append)
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
            self._error = error
        finally:
            if self._backend is not None:
                self._backend.close()

    def _opened(self, folder):
        self._backend = self._connect(self._sleep)
        return self._backend

    def _sleep(self, seconds):
        """Sleep as `RunFolder.sleep`, but look up often enough to leave at once."""
        if (trouble := self._backend.condition.trouble) and trouble not in self.troubles[-1:]:
            self.troubles.append(trouble)
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            if self._leaves.is_set():
                raise Left
            if self.run.folder.sleep(min(left_s, 0.1)):
                return True
        return False

    def leave(self):
        """Leave the run at the next sleep, unless it ends before; jobs go on."""
        self._leaves.set()
        self._thread.join(60.0)
        if self._result is None:
            self.has_left()

    def has_left(self):
        """Wait until the client has left."""
        self._thread.join(60.0)
        assert not self._thread.is_alive(), "the client did not leave"
        assert isinstance(self._error, Left), self._error or self._result

    @property
    def is_there(self):
        return self._thread.is_alive()

    def result(self, within_s=240.0):
        """Wait for the end; raises what ended the client."""
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"no end within {within_s:g} s; {self.records[-1:]} {self.troubles[-1:]}"
        if self._error is not None:
            raise self._error
        told = [record for record in self._result.records if not isinstance(record, Predicted)]
        assert self.run.folder.state()[1] == told, "the journal tells the same"
        return self._result

    def saw(self, kind, name=None):
        """Wait until something happened, to a stage if one is named; return its record."""

        def found():
            assert self._thread.is_alive() or self._result, self._error
            seen = [record for record in list(self.records) if isinstance(record, kind)]
            return next((record for record in seen if name is None or name in record.stages), None)

        return until(found, what=f"{kind.__name__} of {name}")

    def in_trouble(self, meanwhile=lambda: None):
        """Wait until the batch system's condition tells a trouble, do something meanwhile; return all it told."""

        def found():
            meanwhile()
            assert self._thread.is_alive(), f"the client ended, with {self._error or self._result}"
            return self.troubles

        return until(found, what=lambda: f"a trouble after {self.records[-1:]}, {self._where()},")

    def _where(self):
        """Return what the client does, for who looks for why it does not what it should."""
        frame = sys._current_frames().get(self._thread.ident)
        return f"{self._backend.condition}, at {traceback.format_stack(frame)[-6:] if frame else 'its end'}"

    def sees_running(self, name):
        """Wait until the client knows that a stage's allocation began; return that record."""
        return self.saw(Started, name)


class Cut(httpx.BaseTransport):
    """A way to slurmrestd on which something happens at the n-th submission: before it is sent, or once it arrived."""

    def __init__(self, slurm, *, at, before=lambda: None, after=lambda: None):
        self._inner = httpx.HTTPTransport(uds=slurm.socket, verify=False)
        self._at, self._before, self._after, self._sent = at, before, after, 0

    def handle_request(self, request):
        is_submission = request.url.path.endswith("/job/submit")
        self._sent += is_submission
        is_it = is_submission and self._sent == self._at
        if is_it:
            self._before()
        answer = self._inner.handle_request(request)
        if is_it:
            answer.read()
            answer.close()
            self._after()
        return answer

    def close(self):
        self._inner.close()


def leave():
    """Let the client leave in the middle of what it does."""
    raise Left


# ---------------------------------------------------------------------- clients in processes of their own


class Death:
    """Kills this process at the n-th moment of a kind.

    Moments are before and after each write of the journal (``journal``), each exchange that changes something
    (``change``), each other exchange (``look``).
    """

    def __init__(self, kind="", at=0):
        self._kind, self._left = kind, at

    @contextmanager
    def around(self, kind):
        self._pass(kind)
        yield
        self._pass(kind)

    def _pass(self, kind):
        if kind == self._kind:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


class MortalFolder(RunFolder):
    """A run's folder, of which a write to the journal may kill."""

    def __init__(self, path, death):
        super().__init__(path)
        self._death = death

    @contextmanager
    def driven(self):
        with super().driven() as journal:
            append = journal.append

            def mortal(*entries):
                with self._death.around("journal"):
                    append(*entries)

            journal.append = mortal
            yield journal


class MortalTransport(httpx.HTTPTransport):
    """A way to slurmrestd on which an exchange may kill."""

    def __init__(self, socket, death):
        super().__init__(uds=socket, verify=False)  # to read all certificates takes longer than to submit
        self._death = death

    def handle_request(self, request):
        with self._death.around("look" if request.method == "GET" else "change"):
            answer = super().handle_request(request)
            answer.read()
        return answer


def live(path, kind="", at=0, *, drive=drive):
    """Drive a run in this process until the end, of the run or of the process."""
    death = Death(kind, at)
    folder = MortalFolder(path, death)
    plan = folder.plan
    os.chdir(plan.folder)
    if kind not in {"change", "look"}:
        facility = open_facility(plan.backend, None, plan.settings).facility
        drive(folder, lambda run: facility.connect(run.path, sleep=run.sleep))
        return
    url = plan.settings["url"]
    link = RestLink(url, transport=MortalTransport(url.removeprefix("unix://"), death))
    drive(folder, lambda run: SlurmBackend(link, run.path, plan.capabilities, **_PACE, sleep=run.sleep))


_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([
    "pytest", "asa.backends.slurm.backend", "asa.backends.slurm.facility", "asa.backends.slurm.rest", "asa.metrics",
    "asa.runner", "asa.sites", "asa.strategies.asa", "asa.strategies.chained", "asa.strategies.per_stage",
])  # fmt: skip


def glance(path, kind="", at=0, *, telling):
    """Look at a run once, in this process; tell how many seconds it, and what it started, computed or slept."""
    slept_s, sleep = [], time.sleep
    time.sleep = lambda seconds: slept_s.append(seconds) or sleep(seconds)
    live(path, kind, at, drive=look)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    telling.send(sum(slept_s) + time.process_time() + children.ru_utime + children.ru_stime)


def glancing(run, *death):
    """Begin a process that looks at a run once, and dies at some moment if one is given."""
    told, telling = _PROCESSES.Pipe(duplex=False)
    given = {"telling": telling}
    one = _PROCESSES.Process(target=glance, args=(run.folder.path, *death), kwargs=given, daemon=True)
    one.start()
    telling.close()
    one.told = told
    return one


def process(run, *death):
    """Begin a process that drives a run, and dies at some moment if one is given."""
    one = _PROCESSES.Process(target=live, args=(run.folder.path, *death), daemon=True)
    one.start()
    return one


# ---------------------------------------------------------------------- what the administrators do


@contextmanager
def accounting_away(slurm):
    """Have slurmdbd ended for a while."""
    record = slurm.root / "run" / "slurmdbd.pid"
    os.kill(int(record.read_text()), signal.SIGTERM)
    asked = ("sacctmgr", "-n", "show", "cluster")
    until(lambda: not slurm.run_as_root(*asked, check=False).strip(), what="the end of slurmdbd")
    try:
        yield
    finally:
        slurm.run_as_root("slurmdbd")  # becomes a daemon by itself
        until(lambda: slurm.run_as_root(*asked, check=False).strip(), what="slurmdbd")
        record.with_suffix(".start").unlink(missing_ok=True)
        record.write_text((slurm.root / "state" / "slurmdbd.self.pid").read_text())


@contextmanager
def forgetful(slurm):
    """Start another cluster, without accounting, whose controller forgets jobs two seconds after their end."""
    root = slurm.root.with_name(f"{slurm.root.name}-f")
    testbed = Testbed(root, release=slurm.release, nodes=2, conf="MinJobAge=2")
    try:
        yield testbed.start()
    finally:
        testbed.stop()


@contextmanager
def tiny_disk(slurm):
    """Mount a file system of 64 KiB; gives its path."""
    place = slurm.folder(f"disk{next(_NUMBERS)}")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@contextmanager
def on_disk(file, disk):
    """Have a file lie on another disk, without a link, which nothing of asa's is written through."""
    there = disk / file.name
    there.touch()
    file.touch()
    subprocess.run(["mount", "--bind", there, file], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", file], check=True)


@contextmanager
def busy_nodes(slurm, nodes):
    """Have somebody else's job take some nodes as a whole; it is cancelled at the end."""
    size = (f"--nodes={nodes}", f"--ntasks={nodes * slurm.cores_per_node}", "--exclusive")
    batch = ("sbatch", "--parsable", *size, "--time=30", "--chdir=/tmp", "--output=/dev/null")
    job = slurm.run_as_root(*batch, "--wrap", "sleep 600").strip()
    try:
        until(lambda: slurm.run_as_root("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING", what=f"job {job}")
        yield job
    finally:
        slurm.run_as_root("scancel", "--quiet", job, check=False)
