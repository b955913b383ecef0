"""A Slurm that lives in memory on a clock of its own, and a transport on which things go wrong.

`FakeSlurm` is slurmctld and slurmrestd in one, of version 22.05 (API v0.0.38), 24.11 or 26.05 (v0.0.42, the oldest that
this one serves): a transport for httpx that answers as the real daemons were seen to answer; `slurm/test_fake.py` holds
it against them. What it does not know it does not make up: it raises NotImplementedError.

A job's script is really run, with `sh`. The script's own `sleep` and `date +%s` go by the virtual clock, which stands
still while a script does something. A job lasts until its script has ended, and at least as long as a line
``# virtual-run-s: N`` in the script says, 10 s if there is none.

`FaultyTransport` wraps any transport, numbers its exchanges, and loses, delays, doubles or garbles chosen ones, or
kills the client there.
"""

import copy
import heapq
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qs

import httpx

from asa.errors import InputError
from asa.units import parse_duration

TEMPLATES = Path(__file__).with_name("data") / "slurm"
"""Answers of real daemons."""

MAX_REAL_S = 20.0
"""A script that is busy for longer, in real time, hangs."""

_REQUEUES = {"dependency", "begin_s"}
_SIZES = {"min_nodes", "max_nodes", "only_least"}
_FINAL = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")
_ERRORS = {
    1800: "Unable to contact slurm controller (connect failure)",
    2000: "Invalid partition name specified",
    2002: "Access/permission denied",
    2009: "Job script not specified",
    2014: "Requested node configuration is not available",
    2015: "Requested partition configuration not available now",
    2017: "Invalid job id specified",
    2019: "I/O error writing script/environment to file",
    2021: "Job/step already completing or completed",
    2029: "Invalid feature specification",
    2036: "Requested operation not supported on this system",
    2038: "Job dependency problem",
    2042: "Job is in held state, pending scheduler release",
    2063: "Job cannot be submitted without the current working directory specified.",
    2172: "Cannot signal job",
    2072: "Invalid generic resource (gres) specification",
    2073: "Job is no longer pending execution",
    2084: "Job has already finished",
    2127: "Environment is missing in job",
    2166: "Unable to resolve user ID to user name",
    9000: "Query empty or not RFC7320 compliant",
    9001: "Failure during parsing",
    9202: "Unable to convert Data type",
}


class RefusedError(Exception):
    """A refusal of slurmctld: one of its error numbers."""

    def __init__(self, number):
        super().__init__(_ERRORS[number])
        self.number = number


class UnreadableError(Exception):
    """What slurmrestd says of a body that it cannot make sense of: a list for `errors`."""

    def __init__(self, errors, warnings=()):
        super().__init__(str(errors))
        self.errors = list(errors)
        self.warnings = list(warnings)


# ---- jobs


@dataclass
class Ask:
    """The request of a submission, in no version's spelling. `limit_min` is infinite where no limit is asked for."""

    script: str = ""
    environment: dict = field(default_factory=dict)
    name: str = ""
    folder: str = ""
    partition: str = "normal"
    account: str = "test"
    qos: str = "normal"
    limit_min: float | None = None
    tasks: int | None = None
    cpus_per_task: int | None = None
    min_nodes: int = 1
    max_nodes: int | None = None
    memory_mb: int | None = None
    dependency: str = ""
    begin_s: int | None = None
    held: bool = False
    requeue: bool = True
    comment: str = ""
    stdout: str = ""
    stderr: str = ""
    stdin: str = ""
    constraints: str = ""
    has_gres: bool = False
    given: frozenset = frozenset()

    @property
    def all_tasks(self):
        return max(self.tasks or 1, self.min_nodes)

    @property
    def cores(self):
        return self.all_tasks * (self.cpus_per_task or 1)


@dataclass
class Clause:
    """One job that another waits for."""

    type: str
    job_id: int
    delay_min: int = 0
    state: str = "unfulfilled"

    def __str__(self):
        delay = f"+{self.delay_min}" if self.delay_min else ""
        return f"{self.type}:{self.job_id}{delay}({self.state})"


@dataclass(eq=False)
class Job:
    """A job and its state. Times are whole seconds since 1970, None while they are not set."""

    job_id: int
    ask: Ask
    user: str
    submit_s: int
    run_s: float = 10.0
    state: str = "PENDING"
    reason: str = "None"
    clauses: list = field(default_factory=list)
    any_clause: bool = False
    held_by: str = ""
    stuck: str = ""
    eligible_s: int | None = None
    accrue_s: int | None = None
    expected_s: int | None = None
    start_s: int | None = None
    end_s: int | None = None
    looked_at_s: int = 0
    completing_until_s: float | None = None
    restarts: int = 0
    status: int = 0
    nodes: dict = field(default_factory=dict)
    was_running: bool = False
    process: subprocess.Popen | None = None
    until_s: float | None = None

    @property
    def is_final(self):
        return self.state in _FINAL

    @property
    def is_completing(self):
        return self.completing_until_s is not None

    @property
    def limit_ends_s(self):
        return self.start_s + self.ask.limit_min * 60

    @property
    def exit_code(self):
        """Exit code of the script; None if a signal ended it."""
        return None if self.status & 0x7F else self.status >> 8

    @property
    def dependency(self):
        return ("?" if self.any_clause else ",").join(map(str, self.clauses))


_CLAUSE = re.compile(r"(after|afterany|afterok|afternotok)((?::\d+(?:\+\d+)?)+)")


def parse_dependency(text):
    """Read a dependency in Slurm's words: its clauses, and whether one of them is enough."""
    any_clause = "?" in text
    clauses = []
    for part in re.split(r"[?]" if any_clause else ",", text) if text else ():
        if (match := _CLAUSE.fullmatch(part)) is None:
            if part == "singleton":
                raise NotImplementedError(part)
            raise RefusedError(2038)
        for one in match[2][1:].split(":"):
            number, _, delay = one.partition("+")
            clauses.append(Clause(match[1], int(number), int(delay or 0)))
    return clauses, any_clause


# ---- the scripts of the jobs

_DATE = """#!/bin/sh
[ "$*" = +%s ] && read -r now <"$FAKE_SLURM/clock" && echo "$now" && exit
exec @DATE@ "$@"
"""
# The clock counts seconds: less than one passes while a script does something.
_SLEEP = """#!/bin/sh
case $1 in 0.*) exit 0 ;; *.*) nap=$((${1%%.*} + 1)) ;; *) nap=$1 ;; esac
read -r now <"$FAKE_SLURM/clock"
mark=$FAKE_SLURM/asleep/$SLURM_JOB_ID.$$
trap 'kill $!; rm -f "$mark"; exit 143' TERM
exec 2>/dev/null
@SLEEP@ 100000 &
echo "$! $now $((now + nap))" >"$mark"
wait $!
exit 0
"""
_LONGEST_NAP_S = 5
"""Who sleeps no longer looks for something again and again: they wake once the others have done what they do then."""


class Scripts:
    """Runs scripts of jobs, with a `sleep` and a `date` that go by the virtual clock."""

    def __init__(self, folder):
        self.folder = folder
        self.running = {}
        self.stirred_s = 0
        self._clock_s = self._naps_clock_s = -math.inf
        self._asleep = str(folder / "asleep")
        for name in ("bin", "asleep", "spool"):
            (folder / name).mkdir(parents=True)
        for name, text in (("date", _DATE), ("sleep", _SLEEP)):
            file = folder / "bin" / name
            file.write_text(text.replace(f"@{name.upper()}@", shutil.which(name)))
            file.chmod(0o755)

    def start(self, job, variables, now_s):
        """Start a job's script; False where it cannot be started."""
        spooled = self.folder / "spool" / f"job{job.job_id}"
        spooled.write_text(job.ask.script)
        path = f"{self.folder / 'bin'}:{job.ask.environment.get('PATH', '/usr/bin:/bin')}"
        folder = job.ask.folder or "/"
        out = self._file(job, job.ask.stdout or f"{folder}/slurm-%j.out")
        self.tell(now_s)
        self._naps_clock_s = self._clock_s
        try:
            err = self._file(job, job.ask.stderr) if job.ask.stderr else out
            with out.open("ab") as stdout, err.open("ab") as stderr:
                job.process = subprocess.Popen(
                    ["sh", str(spooled)],
                    cwd=folder, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
                    env=job.ask.environment | variables | {"PATH": path, "FAKE_SLURM": str(self.folder)},
                )  # fmt: skip
        except OSError:
            return False
        self.running[job.job_id] = job
        self.stirred_s = math.floor(now_s)
        return True

    def kill(self, job, *, gently):
        """End a script and all that it started."""
        process = job.process
        if process is None:
            return
        if gently and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(2.0)
        with suppress(ProcessLookupError):  # all that the request has not reached, as what was just begun
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.forget(job)

    def forget(self, job):
        self.running.pop(job.job_id, None)
        job.process = None
        for mark, pid, _, _ in self._naps(job.job_id):
            self._wake(mark, pid)

    def tell(self, now_s):
        """Let the scripts know the time."""
        if self._clock_s != (whole_s := math.floor(now_s)):
            self._clock_s = whole_s
            beside = self.folder / "clock.new"
            beside.write_text(f"{whole_s}\n")
            beside.replace(self.folder / "clock")

    def settle(self, now_s):
        """Wait until every script has ended or sleeps beyond now; True if one has ended meanwhile."""
        if not self.running:
            return False
        self.tell(now_s)
        ended = self._wait_for_all(now_s)
        self._naps_clock_s = self._clock_s
        return self._wait_for_all(now_s) or ended

    def _wait_for_all(self, now_s):
        ended = False
        deadline_s = time.monotonic() + MAX_REAL_S
        for job in list(self.running.values()):
            was_running = job.process.returncode is None
            while job.process.poll() is None and not self._sleeps(job):
                if time.monotonic() > deadline_s:
                    self.kill(job, gently=False)
                    raise RuntimeError(f"the script of job {job.job_id} was busy for {MAX_REAL_S:g} s of real time")
                time.sleep(0.001)
            if was_running and job.process.returncode is not None:
                ended, self.stirred_s = True, math.floor(now_s)
        return ended

    def wakes(self):
        """Yield when sleepers wake: those who wait for others to do something only if something was done since."""
        for _, _, began_s, wake_s in itertools.chain.from_iterable(map(self._naps, self.running)):
            if wake_s - began_s > _LONGEST_NAP_S or began_s <= self.stirred_s:
                yield wake_s

    def _sleeps(self, job):
        """Wake those whose time has come; tell whether another sleeps on."""
        sleeps = False
        for mark, pid, began_s, wake_s in self._naps(job.job_id):
            if wake_s > (self._naps_clock_s if wake_s - began_s <= _LONGEST_NAP_S else self._clock_s):
                sleeps = True
            else:
                self._wake(mark, pid)
        return sleeps

    @staticmethod
    def _wake(mark, pid):
        Path(mark).unlink(missing_ok=True)
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":  # else it is gone, and its number another's
                os.kill(pid, signal.SIGKILL)

    def _naps(self, job_id):
        for name in os.listdir(self._asleep):  # noqa: PTH208 - a thousand times in a life, and pathlib is slow
            if not name.startswith(f"{job_id}."):
                continue
            mark = f"{self._asleep}/{name}"
            try:
                with open(mark) as file:  # noqa: PTH123 - as above
                    pid, began_s, wake_s = map(int, file.read().split())
            except (FileNotFoundError, ValueError):  # it was killed, or just falls asleep
                continue
            yield mark, pid, began_s, wake_s

    @staticmethod
    def _file(job, pattern):
        values = {"%j": str(job.job_id), "%x": job.ask.name, "%%": "%"}
        return Path(job.ask.folder or "/", re.sub("%[jx%]", lambda found: values[found[0]], pattern))


# ---- the controller


@dataclass
class Node:
    """A node, and why it is down, if it is."""

    name: str
    cores: int
    is_up: bool = True
    reason: str = ""


@dataclass(frozen=True)
class Partition:
    """A partition and its limits of a job's time."""

    name: str
    max_min: int
    default_min: int


class FakeSlurm(httpx.BaseTransport):
    """A cluster, and a way to talk to it.

    Closing a client leaves it as it is, since the next client is to find the same jobs; `stop` ends what still runs.

    Parameters
    ----------
    folder
        Where scripts are kept; a fresh one.
    version
        ``22.05``, ``24.11`` or ``26.05``.
    nodes, cores_per_node
        Its size; the nodes are called n001 and so on.
    start_s
        What the virtual clock shows at first.
    by_priority
        Jobs start in the order of a priority that grows with age and size, else in the order of their submission. A
        job that does not fit keeps back all behind it.
    latency_s
        From when something changes until jobs start for it.
    completing_s
        How long an ended job is COMPLETING.
    min_job_age_s
        How long an ended job is remembered.
    requeue_delay_s
        How long a job whose node failed has to wait.
    age_accrues
        As with PriorityFlags=ACCRUE_ALWAYS.
    accounting
        Whether there is slurmdbd.
    drops_unknown_dependency
        Whether a dependency on a job that is not known is left out without a word; by default as the version does.
    user
        Whose jobs are submitted.
    """

    def __init__(
        self, folder, version="26.05", *, nodes=4, cores_per_node=28, start_s=1_800_000_000.0, by_priority=False,
        latency_s=1.0, completing_s=0.0, min_job_age_s=300.0, requeue_delay_s=121, age_accrues=False, accounting=False,
        drops_unknown_dependency=None, user="asatest",
    ):  # fmt: skip
        self.dialect = {"22.05": Old, "24.11": New, "26.05": Newest}[version](self)
        self.version = version
        self.nodes = {name: Node(name, cores_per_node) for name in (f"n{i:03d}" for i in range(1, nodes + 1))}
        self.cores_per_node = cores_per_node
        self.partitions = {p.name: p for p in (Partition("normal", 10080, 60), Partition("debug", 30, 5))}
        self.by_priority = by_priority
        self.latency_s = latency_s
        self.completing_s = completing_s
        self.min_job_age_s = min_job_age_s
        self.requeue_delay_s = requeue_delay_s
        self.age_accrues = age_accrues
        self.accounting = accounting
        self.drops_unknown = version == "22.05" if drops_unknown_dependency is None else drops_unknown_dependency
        self.user = user
        self.controller_up = True
        self.jobs = {}
        self.history = []
        self.changed_s = self.booted_s = math.floor(start_s)
        self._now_s = float(start_s)
        self._next_id = 1
        self._timers = []
        self._timer_order = itertools.count()
        self._pass_s = None
        self._is_settling = False
        self._scripts = Scripts(Path(folder))

    # -- for tests

    @property
    def api(self):
        """The version of the API that it speaks."""
        return self.dialect.api

    def clock(self):
        """Read the virtual clock: seconds since 1970."""
        return self._now_s

    def sleep(self, seconds):
        """Let time pass, and all happen that falls into it."""
        until_s = self._now_s + seconds
        while (moment_s := min(self._moments(), default=math.inf)) <= until_s:
            self._now_s = max(self._now_s, moment_s)
            self._settle()
        self._now_s = until_s
        self._settle()

    def at(self, time_s, action):
        """Call something when the clock reads a time."""
        heapq.heappush(self._timers, (time_s, next(self._timer_order), action))

    def stop(self):
        """End all that still runs."""
        for job in list(self._scripts.running.values()):
            self._scripts.kill(job, gently=False)

    def occupy(self, cores, from_s, to_s):
        """Have somebody else's job take cores for a time; it comes first in the queue."""
        ask = Ask(name="foreign", tasks=cores, limit_min=math.ceil((to_s - from_s) / 60), begin_s=math.ceil(from_s))
        job = self._enqueue(ask, user="other")
        job.until_s = to_s
        self._settle()
        return job

    def hold(self, job_id):
        """Hold a job, as an administrator."""
        self._hold(self.jobs[job_id], "Admin")
        self._settle()

    def release(self, job_id):
        """Release a job, as an administrator."""
        self._release(self.jobs[job_id])
        self._settle()

    def fail_node(self, name):
        """Let a node fail: its jobs go back into the queue, or fail if they may not."""
        self.nodes[name].is_up, self.nodes[name].reason = False, "Not responding"
        for job in self._in_state("RUNNING"):
            if name in job.nodes:
                self._scripts.kill(job, gently=False)
                self._requeue(job) if job.ask.requeue else self._end(job, "NODE_FAIL", "NodeDown", 0)
        self._settle()

    def resume_node(self, name):
        """Let a node come back."""
        self.nodes[name].is_up, self.nodes[name].reason = True, ""
        self._look_soon()
        self._settle()

    # -- for httpx

    def handle_request(self, request):
        request.read()
        self._settle()
        status, body = self.dialect.answer(request)
        self._settle()
        if isinstance(body, str):
            headers = {"content-type": "text/plain", "connection": "Close"}
            return httpx.Response(status, headers=headers if body else {}, content=body)
        return httpx.Response(status, headers={"content-type": "application/json"}, content=json.dumps(body))

    def close(self):
        pass

    # -- for the dialects

    def now(self):
        return math.floor(self._now_s)

    def free_cores(self):
        """Return how many cores are free on each node that is up."""
        taken = Counter()
        for job in self.jobs.values():
            if job.state == "RUNNING" or job.is_completing:
                taken.update(job.nodes)
        return {node.name: node.cores - taken[node.name] for node in self.nodes.values() if node.is_up}

    def submit(self, ask, *, takes_too_large):
        """Take a job into the queue; return it, and why it cannot start as it is, if so."""
        job = self._enqueue(ask, user=self.user, takes_too_large=takes_too_large)
        self._hold(job, "User" if ask.held else "")
        return job

    def cancel(self, job):
        """Cancel a job that has not ended."""
        if job.state == "RUNNING":
            self._scripts.kill(job, gently=True)
            self._end(job, "CANCELLED", "None", signal.SIGTERM)
        else:
            job.start_s = self.now()
            self._end(job, "CANCELLED", job.reason, 0)

    def update(self, number, changes, *, shrinks):
        """Change a job as its user may: hold it or let it go, give it another limit, other nodes, ...

        Whether a running job can be shrunk depends on the version.
        """
        if (job := self.jobs.get(number)) is None:
            raise RefusedError(2017)
        if odd := set(changes) - {"held", "limit_min", "comment", "name", *_REQUEUES, *_SIZES}:
            raise NotImplementedError(f"an update of {', '.join(odd)}")
        self._check_change(job, changes)
        runs = job.state == "RUNNING"
        if runs and "min_nodes" in changes and not changes.get("only_least"):
            self._shrink(job, changes["min_nodes"], shrinks=shrinks)
        if "dependency" in changes:
            job.clauses, job.any_clause = self._clauses(changes["dependency"])
        if not runs and changes.keys() & _REQUEUES:
            job.eligible_s = None
        for name in ("limit_min", "comment", "name", "begin_s", *(() if runs else ("min_nodes", "max_nodes"))):
            if name in changes:
                setattr(job.ask, name, changes[name])
        if changes.get("held") is not None:
            self._hold(job, "User") if changes["held"] else self._release(job)
        self._changed()
        self._look_soon()

    @staticmethod
    def _check_change(job, changes):
        if job.is_final:
            raise RefusedError(2084)
        if job.state == "RUNNING" and changes.get("limit_min", 0) > job.ask.limit_min:
            raise RefusedError(2002)
        if changes.get("held") is False and job.held_by == "Admin":
            raise RefusedError(2002)

    def priority(self, job):
        if job.held_by:
            return 0
        if not self.by_priority:
            return 4294901760 - job.job_id
        total = sum(node.cores for node in self.nodes.values())
        age_s = max(self._now_s - job.accrue_s, 0) if job.accrue_s else 0
        return 100 + 1000 * job.ask.cores // total + min(round(age_s * 100000 / 3600), 100000)

    def remember(self):
        """Forget the jobs that ended long ago; return those that are known."""
        for job in list(self.jobs.values()):
            if job.is_final and job.end_s + self.min_job_age_s <= self._now_s:
                self.history.append(self.jobs.pop(job.job_id))
        return self.jobs

    # -- what happens

    def _in_state(self, *states):
        return [job for job in self.jobs.values() if job.state in states]

    def _changed(self):
        self.changed_s = self.now()

    def _look_soon(self):
        """Let the scheduler look at the queue."""
        if self._pass_s is None:
            self._pass_s = self._now_s + self.latency_s

    def _moments(self):
        """Yield the times of the next known events."""
        if self._timers:
            yield self._timers[0][0]
        if self._pass_s is not None:
            yield self._pass_s
        yield from (wake_s for wake_s in self._scripts.wakes() if wake_s > self._now_s)
        for job in self.jobs.values():
            yield from (moment_s for moment_s in self._moments_of(job) if moment_s > self._now_s)

    def _moments_of(self, job):
        if job.state == "PENDING":
            yield from (job.eligible_s or 0, job.ask.begin_s or 0)
            yield from (self._met_s(clause) or 0 for clause in job.clauses)
        if job.state == "RUNNING":
            yield job.until_s if job.until_s is not None else job.start_s + job.run_s
            yield job.limit_ends_s
        if job.is_completing:
            yield job.completing_until_s

    def _settle(self):
        """Let everything happen that happens now."""
        if self._is_settling:
            return
        self._is_settling = True
        try:
            happened = True
            while happened:
                happened = self._scripts.settle(self._now_s)
                happened |= self._ring() | self._end_jobs() | self._look_at_dependencies() | self._schedule()
        finally:
            self._is_settling = False

    def _ring(self):
        rang = False
        while self._timers and self._timers[0][0] <= self._now_s:
            heapq.heappop(self._timers)[2]()
            rang = True
        return rang

    def _end_jobs(self):
        ended = False
        for job in self._in_state("RUNNING"):
            if job.until_s is not None:
                if job.until_s <= self._now_s:
                    self._end(job, "COMPLETED", "None", 0)
                    ended = True
            elif job.process.returncode is not None and job.start_s + job.run_s <= self._now_s:
                code = job.process.returncode
                self._scripts.forget(job)
                self._end_by_code(job, code)
                ended = True
            elif job.limit_ends_s <= self._now_s:
                self._scripts.kill(job, gently=True)
                self._end(job, "TIMEOUT", "TimeLimit", signal.SIGTERM)
                ended = True
        for job in self.jobs.values():
            if job.is_completing and job.completing_until_s <= self._now_s:
                job.completing_until_s = None
                self._changed()
                ended = True
        return ended

    def _end_by_code(self, job, code):
        if code == 0:
            self._end(job, "COMPLETED", "None", 0)
        elif code > 0:
            self._end(job, "FAILED", "NonZeroExitCode", code << 8)
        else:
            self._end(job, "FAILED", self.dialect.signalled, -code)

    def _end(self, job, state, reason, status):
        if job.nodes and self.completing_s:
            job.completing_until_s = self._now_s + self.completing_s
        job.state, job.reason, job.status, job.end_s = state, reason, int(status), self.now()
        self._changed()
        self._look_soon()

    def _requeue(self, job):
        run = copy.copy(job)
        run.state, run.end_s = "NODE_FAIL", self.now()
        self.history.append(run)
        reason = f"JobHeld{job.held_by}" if job.held_by else "BeginTime"
        job.state, job.reason, job.nodes, job.restarts = "PENDING", reason, {}, job.restarts + 1
        job.submit_s, job.start_s, job.end_s, job.eligible_s, job.accrue_s = self.now(), None, None, None, None
        job.ask.begin_s = self.now() + self.requeue_delay_s
        self._changed()
        self._look_soon()

    def _enqueue(self, ask, *, user, takes_too_large=True):
        number, self._next_id = self._next_id, self._next_id + 1  # a job that is refused has had a number, too
        if ask.partition not in self.partitions:
            raise RefusedError(2000)
        if ask.constraints:
            raise RefusedError(2029)
        if ask.has_gres:
            raise RefusedError(2072)
        job = Job(number, ask, user, self.now(), looked_at_s=self.now())
        job.clauses, job.any_clause = self._clauses(ask.dependency)
        if found := re.search(r"#\s*virtual-run-s:\s*(\d+(?:\.\d+)?)", ask.script):
            job.run_s = float(found[1])
        partition = self.partitions[ask.partition]
        ask.limit_min = partition.default_min if ask.limit_min is None else ask.limit_min
        self.jobs[number] = job
        self._changed()
        cores = sum(node.cores for node in self.nodes.values())
        if ask.cores > cores or ask.min_nodes > len(self.nodes):
            job.stuck = "PartitionConfig"
        if (job.stuck and not takes_too_large) or self._never_fits(ask):
            self._refuse_for_size(job)
        if ask.limit_min > partition.max_min:
            job.stuck = "PartitionTimeLimit"
        if self.age_accrues:
            job.accrue_s = self.now()
        self._look_soon()
        return job

    def _never_fits(self, ask):
        memory_mb = self.dialect.template["node"]["real_memory"]
        return (ask.cpus_per_task or 1) > self.cores_per_node or (ask.memory_mb or 0) > memory_mb

    def _refuse_for_size(self, job):
        """Refuse a job that can never run, but list it as failed all the same: that is what Slurm does."""
        job.state, job.reason, job.status = "FAILED", "BadConstraints", 1
        job.eligible_s = job.start_s = job.end_s = self.now()
        raise RefusedError(2014)

    def _clauses(self, text):
        clauses, any_clause = parse_dependency(text)
        known = [clause for clause in clauses if clause.job_id in self.remember()]
        if len(known) < len(clauses) and not self.drops_unknown:
            raise RefusedError(2038)
        return known, any_clause

    def _hold(self, job, who):
        if who:
            job.held_by, job.reason, job.eligible_s = who, f"JobHeld{who}", None
            self._changed()

    def _release(self, job):
        if job.held_by:
            job.held_by, job.reason = "", "None"
            self._changed()
            self._look_soon()

    def _shrink(self, job, nodes, *, shrinks):
        if nodes > len(job.nodes):
            raise RefusedError(2036)
        if not shrinks:
            raise RefusedError(2073)
        job.nodes = dict(itertools.islice(job.nodes.items(), nodes))
        job.ask.tasks, job.ask.cpus_per_task = sum(job.nodes.values()), None
        job.ask.min_nodes = nodes

    def _met_s(self, clause):
        """Return when a clause is met, if that is known; negative if never."""
        other = self.jobs.get(clause.job_id)
        if other is None:
            return None
        if clause.type == "after":
            # a job that was cancelled before it started counts as started then
            return None if other.start_s is None else other.start_s + 60 * clause.delay_min
        if not other.is_final or other.is_completing:
            return None
        good = other.state == "COMPLETED"
        met = clause.type == "afterany" or good == (clause.type == "afterok")
        return other.end_s if met else -1

    def _look_at_dependencies(self):
        """Decide which jobs may start from now on, and why the others may not."""
        changed = False
        for job in self._in_state("PENDING"):
            before = job.reason, job.eligible_s, job.dependency
            self._look_at_clauses(job)
            if not job.held_by:
                self._look_at_begin(job)
            if before != (job.reason, job.eligible_s, job.dependency):
                self._changed()
                changed = True
        return changed

    def _look_at_clauses(self, job):
        if not job.clauses:
            return
        open_ones = []
        for clause in job.clauses:
            met_s = self._met_s(clause)
            if met_s is not None and met_s < 0:
                clause.state = "failed"
            if clause.state == "failed" or met_s is None or met_s > self._now_s:
                open_ones.append(clause)
        if job.any_clause and len(open_ones) < len(job.clauses):
            open_ones = []
        job.clauses = open_ones

    def _look_at_begin(self, job):
        if job.clauses:
            failed = [clause.state == "failed" for clause in job.clauses]
            dead = all(failed) if job.any_clause else any(failed)
            job.reason = "DependencyNeverSatisfied" if dead else "Dependency"
        elif job.eligible_s is None:
            begins_s = job.ask.begin_s
            is_early = begins_s is not None and begins_s > self._now_s
            job.eligible_s = begins_s if is_early else self.now()
            job.reason = "BeginTime" if is_early else job.stuck or "None"
            self._look_soon()
        elif job.reason == "BeginTime" and job.eligible_s <= self._now_s:
            job.reason = "None"
            self._look_soon()

    def _schedule(self):
        """Start what fits, in order, until something does not."""
        if self._pass_s is None or self._pass_s > self._now_s:
            return False
        self._pass_s = None
        blocked = False
        free = self.free_cores()
        for job in self._in_state("PENDING"):
            if job.reason == "BeginTime":  # the real one writes down a time that is to come
                job.accrue_s = job.accrue_s or job.eligible_s
        for job in self._queue():
            job.looked_at_s = self.now()
            job.accrue_s = job.accrue_s or job.eligible_s
            place = None if blocked else self._place(job.ask, free)
            if place is None:
                job.reason = "Priority" if blocked else "Resources"
                blocked = True
            else:
                for node, cores in place.items():
                    free[node] -= cores
                self._start(job, place)
        if blocked:
            self._expect()
        self._changed()
        return True

    def _queue(self):
        ready = [job for job in self._in_state("PENDING") if self._is_ready(job)]
        if self.by_priority:
            return sorted(ready, key=lambda job: (job.user == self.user, -self.priority(job), job.job_id))
        return sorted(ready, key=lambda job: (job.user == self.user, job.job_id))

    def _is_ready(self, job):
        may = job.eligible_s is not None and job.eligible_s <= self._now_s
        return may and not (job.held_by or job.stuck or job.clauses)

    def _place(self, ask, free):
        """Find cores, on as many nodes as asked for: those of the first nodes if they do, else the emptiest."""
        for order in (list(free), sorted(free, key=lambda name: -free[name])):
            names = []
            for name in (name for name in order if free[name] > 0):
                names.append(name)
                if len(names) >= ask.min_nodes and sum(free[n] for n in names) >= ask.cores:
                    break
            enough = sum(free[name] for name in names) >= ask.cores and len(names) >= ask.min_nodes
            if enough and len(names) <= (ask.max_nodes or len(names)):
                return self._spread(ask.cores, names, free)
        return None

    @staticmethod
    def _spread(cores, names, free):
        place = dict.fromkeys(names, 1)
        for name in names:
            place[name] += min(free[name] - 1, cores - sum(place.values()))
        return place

    def _start(self, job, place):
        job.state, job.reason, job.nodes, job.start_s = "RUNNING", "None", place, self.now()
        job.was_running = True
        if job.until_s is None and not self._scripts.start(job, self._variables(job), self._now_s):
            self._end(job, "FAILED", self.dialect.signalled, 4021)

    def _variables(self, job):
        return {
            "SLURM_JOB_ID": str(job.job_id),
            "SLURM_JOBID": str(job.job_id),
            "SLURM_JOB_NAME": job.ask.name,
            "SLURM_JOB_PARTITION": job.ask.partition,
            "SLURM_JOB_NODELIST": node_range(job.nodes),
            "SLURM_JOB_NUM_NODES": str(len(job.nodes)),
            "SLURM_NTASKS": str(job.ask.all_tasks),
            "SLURM_CLUSTER_NAME": "testbed",
            "SLURM_RESTART_COUNT": str(job.restarts),
        }

    def _expect(self):
        """Compute the starts of jobs if every job takes its whole time limit."""
        ends = [(job.limit_ends_s, sum(job.nodes.values())) for job in self._in_state("RUNNING")]
        heapq.heapify(ends)
        free, start_s = sum(self.free_cores().values()), self._now_s
        for job in self._queue():
            while free < job.ask.cores and ends:
                start_s, cores = heapq.heappop(ends)
                free += cores
            if free < job.ask.cores or math.isinf(job.ask.limit_min):
                return
            free -= job.ask.cores
            job.expected_s = math.floor(start_s)
            heapq.heappush(ends, (start_s + job.ask.limit_min * 60, job.ask.cores))


def node_range(names):
    """Write names of nodes as Slurm does, as in ``n[001-002]``."""
    numbers = sorted(int(name[1:]) for name in names)
    if len(numbers) < 2:
        return "".join(names)
    runs = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "n[" + ",".join(f"{a:03d}" if a == b else f"{a:03d}-{b:03d}" for a, b in runs) + "]"


# ---- how the versions spell it

_NO_METHOD = 405, "Requested REST method is not defined at URL. Please view /openapi/v3 for API reference."
_FLAGS = {"skip_steps", "usage_time_as_submit_time", "disable_truncate_usage_time", "show_duplicates"}
_QUERIES = {"start_time", "end_time", "submit_time", "job_name", "users", "step", "cluster"} | _FLAGS
_UNITS_S = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


def parse_begin(value, now_s):
    """Read a begin time that is written as a date, or relative to now; None if it is not one."""
    if found := re.fullmatch(r"now(?:\+(\d+)(second|minute|hour|day|week)?s?)?", value):
        return now_s + int(found[1] or 0) * _UNITS_S[found[2] or ""]
    if re.fullmatch(r"uts\d{9,}", value):
        return int(value[3:])
    try:
        return math.ceil(datetime.fromisoformat(value).timestamp())
    except ValueError:
        return None


class Dialect:
    """What both versions share: routes, and the plain facts of a job."""

    template: Mapping
    templates = ""  # of which release they are, where not of its own
    no_url = 404, "Unable find requested URL. Please view /openapi/v3 for API reference."
    no_parse = 400, "Unable to parse query."

    def __init__(self, slurm):
        self.slurm = slurm
        self.template = json.loads((TEMPLATES / f"templates-{self.templates or self.release}.json").read_text())
        self._keys = frozenset(self.template["keys"])

    def answer(self, request):  # noqa: PLR0911 - as many ways to go wrong
        """Answer a request: an HTTP status, and a body or a text."""
        path, _, query = request.url.raw_path.decode().partition("?")
        if path == "/openapi/v3":
            return 200, self.openapi()
        found = re.fullmatch(r"/(slurm|slurmdb)/([^/]+)/(.*?)/?", path)
        methods = self._route(found[1], found[3]) if found and found[2] == self.api else None
        if methods is None:
            return self.no_url
        if request.method not in methods:
            return self.no_method
        try:
            body = json.loads(request.content or b"{}")
        except ValueError:
            return self.no_parse
        if re.search(r"[,\[\]]", query):
            return self.no_parse
        if not self.slurm.controller_up and found[1] == "slurm":
            return self.down(found[3])
        self.slurm.remember()
        return methods[request.method](body, parse_qs(query, keep_blank_values=True))

    def _route(self, room, path):
        if room == "slurm" and (found := re.fullmatch(r"job/([^/]+)", path)) and path != "job/submit":
            known = {"GET": self.one_job, "POST": self.change_job, "DELETE": self.delete_job}
            return {method: self._with_job(found[1], handle) for method, handle in known.items()}
        if room == "slurmdb" and not self.slurm.accounting:
            return None
        if room == "slurmdb" and (found := re.fullmatch(r"job/([^/]+)", path)):
            return {"GET": lambda _, __: self.accounted(lambda job: str(job.job_id) == found[1])}
        known = {
            ("slurm", "ping"): ("GET", self.ping),
            ("slurm", "diag"): ("GET", self.diag),
            ("slurm", "jobs"): ("GET", self.all_jobs),
            ("slurm", "partitions"): ("GET", self.partitions),
            ("slurm", "nodes"): ("GET", self.nodes),
            ("slurm", "job/submit"): ("POST", self.submit),
            ("slurmdb", "jobs"): ("GET", self.past_jobs),
            ("slurmdb", "clusters"): ("GET", self.clusters),
            **self.more_routes,
        }
        return dict([known[room, path]]) if (room, path) in known else None

    @property
    def more_routes(self):
        return {}

    def _with_job(self, text, handle):
        def answer(body, query):
            if not text.isdigit():
                return self.no_job_number(handle, text)
            return handle(int(text), body, query)

        return answer

    def openapi(self):
        document = self.template["openapi"]
        paths = [path for path in document["paths"] if self.slurm.accounting or not path.startswith("/slurmdb/")]
        return document | {"paths": {path: {} for path in paths}, "components": {}}

    def wanted(self, body):
        """Split a submission's or update's keys: those that mean something here, and those that this version lacks."""
        unknown = [key for key in body if key not in self._keys or key in self.unknown_anyway]
        return {key: value for key, value in body.items() if key not in unknown}, unknown

    @staticmethod
    def text_keys(key, value):
        """Read a key whose value is passed on as it is; None for other keys."""
        same = {"name", "partition", "account", "qos", "dependency", "comment", "requeue", "constraints"}
        others = {
            "current_working_directory": "folder", "standard_output": "stdout", "standard_error": "stderr",
            "standard_input": "stdin", "hold": "held",
        }  # fmt: skip
        field_name = key if key in same else others.get(key)
        return None if field_name is None else {field_name: value}

    def facts(self, job):
        """Return the facts of a job that both versions report, as plain numbers and texts."""
        ask, expected_s = job.ask, job.expected_s
        pending = job.state == "PENDING"
        start_s, end_s = job.start_s, job.end_s
        if pending:
            early = job.reason == "BeginTime" or (job.eligible_s or 0) > self.slurm.now()
            start_s = job.eligible_s if early else expected_s if job.reason in ("Resources", "Priority") else None
        if not job.is_final and start_s is not None:
            end_s = start_s + min(ask.limit_min * 60, 10**9)
        least = ask.min_nodes
        count = len(job.nodes) or max(least, -(-ask.cores // self.slurm.cores_per_node))
        count = least if job.reason == "BadConstraints" else count
        memory = f"{ask.memory_mb * least}M" if ask.memory_mb else f"{62.5 * least:.2f}G".replace(".00G", "G")
        return {
            "account": ask.account,
            "batch_host": min(job.nodes, default=""),
            "comment": ask.comment,
            "current_working_directory": ask.folder,
            "dependency": job.dependency,
            "job_id": job.job_id,
            "name": ask.name,
            "nodes": node_range(job.nodes),
            "partition": ask.partition,
            "qos": ask.qos,
            "requeue": ask.requeue,
            "restart_cnt": job.restarts,
            "state_reason": job.reason,
            "tres_alloc_str": f"cpu={ask.cores},node={count},billing={ask.cores}" if job.nodes else "",
            "tres_req_str": f"cpu={ask.cores},mem={memory},node={least},billing={ask.cores}",
            "user_name": job.user,
        }, {
            "accrue_time": job.accrue_s or 0,
            "cpus": ask.cores,
            "eligible_time": job.eligible_s or 0,
            "end_time": end_s or 0,
            "last_sched_evaluation": job.looked_at_s,
            "max_nodes": ask.max_nodes or 0 if pending else 0,
            "minimum_cpus_per_node": ask.cpus_per_task or 1,
            "node_count": count,
            "priority": self.slurm.priority(job),
            "start_time": start_s or 0,
            "submit_time": job.submit_s,
        }

    def records(self):
        """Return every run that accounting knows, the oldest first."""
        return [*self.slurm.history, *self.slurm.jobs.values()]

    def clusters(self, _, __):
        return 200, self._body(room="meta_accounting", clusters=[self.template["cluster"]])

    def past_jobs(self, _, query):
        if set(query) & self.unknown_queries:
            return self.bad_query("", {"description": "Unknown Query field"})
        if odd := set(query) - _QUERIES:
            raise NotImplementedError(f"query for {', '.join(odd)}")
        span = {"start_time": 0, "end_time": math.inf, "submit_time": 0}
        for name in span.keys() & query.keys():
            if (moment_s := self.query_time(query[name][0])) is None:
                return self.bad_query(name, {"description": "Unable to parse time format"}, query[name][0])
            span[name] = moment_s
        status, body = self.accounted(lambda job: self._is_wanted(job, query, span))
        if "skip_steps" in query:
            body["jobs"] = [job | {"steps": []} for job in body["jobs"]]
        if self.hides_duplicates(query):
            body["jobs"] = list({job["job_id"]: job for job in body["jobs"]}.values())
        return status, body

    @staticmethod
    def _is_wanted(job, query, span):
        told = {"job_name": job.ask.name, "users": job.user, "step": str(job.job_id), "cluster": "testbed"}
        if not all(told[name] in ",".join(query[name]).split(",") for name in told.keys() & query.keys()):
            return False
        if "submit_time" in query or "usage_time_as_submit_time" in query:
            return job.submit_s >= max(span["submit_time"], span["start_time"])
        ends_s = math.inf if job.end_s is None else job.end_s
        in_span = job.eligible_s is not None and job.eligible_s <= span["end_time"] and ends_s >= span["start_time"]
        return in_span or "step" in query

    def accounted_facts(self, job):
        """Return the facts of a run that accounting reports in both versions."""
        elapsed_s = (job.end_s or self.slurm.now()) - job.start_s if job.nodes else 0
        times = {
            "elapsed": elapsed_s,
            "eligible": job.eligible_s or 0,
            "end": job.end_s or 0,
            "start": job.start_s or 0,
            "submission": job.submit_s,
        }
        wants = {"cpu": job.ask.cores, "node": len(job.nodes) or job.ask.min_nodes, "billing": job.ask.cores}
        kinds = self.template["accounted"]["tres"]
        tres = {
            which: [entry | {"count": wants.get(entry["type"], entry["count"])} for entry in entries]
            for which, entries in kinds.items()
        }
        tres["allocated"] = tres["allocated"] if job.nodes else []
        steps = copy.deepcopy(self.template["accounted"]["steps"]) if job.nodes else []
        return {
            "account": job.ask.account,
            "allocation_nodes": len(job.nodes),
            "association": self.template["accounted"]["association"] | {"user": job.user, "account": job.ask.account},
            "job_id": job.job_id,
            "kill_request_user": job.user if job.state == "CANCELLED" else self.none,
            "name": job.ask.name,
            "nodes": node_range(job.nodes) or "None assigned",
            "partition": job.ask.partition,
            "qos": job.ask.qos,
            "required": self.template["accounted"]["required"] | {"CPUs": job.ask.cores},
            "steps": steps,
            "tres": tres,
            "user": job.user,
            "working_directory": job.ask.folder,
        }, times


class Old(Dialect):
    """22.05: API v0.0.38."""

    release, api, none = "22.05", "v0.0.38", None
    signalled = "JobLaunchFailure"
    no_method = _NO_METHOD
    unknown_queries = frozenset({"users", *_FLAGS} - {"skip_steps"})
    unknown_anyway = frozenset({"minimum_cpus", "tres_per_job", "tres_per_node"})
    _peer = "/run/slurmrestd.sock->fd:8"

    @staticmethod
    def hides_duplicates(_query):
        return False

    def _body(self, *, errors=(), room="meta", **more):
        return {"meta": self.template[room], "errors": list(errors), **more}

    @staticmethod
    def _told(number, source, description):
        error = _ERRORS.get(number, "Unspecified error")
        return {"description": description, "error_number": number, "error": error, "source": source}

    @staticmethod
    def _code(number, error=None):
        return {"error_code": number, "error": error or _ERRORS[number]}

    # -- questions

    def down(self, path):
        if path == "ping":
            told = self._told(-1, "slurm_load_ctl_conf", "slurmctld config is unable to load")
            return 500, self._body(errors=[told])
        if path == "jobs":
            told = self._told(-1, "slurm_load_jobs", "Failed while looking for jobs")
            return 500, self._body(errors=[told], jobs=[])
        return 500, self._body(errors=[self._code(1800)])

    def ping(self, _, __):
        return 200, self._body(pings=[self.template["ping"]])

    def diag(self, _, __):
        return 200, self._body(statistics=self.template["diag"] | _counts(self.slurm))

    def partitions(self, _, __):
        nodes, cores = len(self.slurm.nodes), sum(node.cores for node in self.slurm.nodes.values())
        listed = [
            self.template["partition"]
            | {
                "name": p.name,
                "flags": ["default"] if p.name == "normal" else [],
                "default_time_limit": p.default_min,
                "max_time_limit": p.max_min,
                "nodes": node_range(self.slurm.nodes),
                "total_cpus": cores,
                "total_nodes": nodes,
                "tres": _tres_of(nodes, cores),
            }
            for p in self.slurm.partitions.values()
        ]
        return 200, self._body(partitions=listed)

    def nodes(self, _, __):
        return 200, self._body(nodes=[self._node(*told) for told in _nodes_told(self.slurm)])

    def _node(self, node, taken, state):
        return self.template["node"] | {
            "name": node.name,
            "cpus": node.cores,
            "sockets": node.cores,
            "tres": f"cpu={node.cores},mem=62.50G,billing={node.cores}",
            "state": state.lower(),
            "reason": node.reason,
            "alloc_cpus": taken,
            "idle_cpus": node.cores - taken,
            "tres_used": f"cpu={taken}" if taken else None,
            "tres_weighted": float(taken),
        }

    def all_jobs(self, _, query):
        if self.slurm.changed_s < int(query.get("update_time", ["0"])[0]):
            return 304, ""
        return 200, self._body(jobs=[self.describe(job) for job in self.slurm.jobs.values()])

    def one_job(self, number, _, __):
        if (job := self.slurm.jobs.get(number)) is None:
            told = self._told(2017, "slurm_load_job", f"Unable to find JobId={number}")
            return 500, self._body(errors=[told], jobs=[])
        return 200, self._body(jobs=[self.describe(job)])

    def no_job_number(self, handle, text):
        if handle == self.one_job:
            error = {
                "description": f"Unable to find JobId={text}", "error_number": 9002,
                "error": "Jobs description entry not found, empty or not dictionary or list",
                "source": "_handle_job_get",
            }  # fmt: skip
            return 400, self._body(errors=[error])
        return handle(text, {}, {})

    def describe(self, job):
        words, numbers = self.facts(job)
        ask = job.ask
        flags = ["JOB_CPUS_SET"] if "cpus_per_task" in ask.given else []
        flags += ["JOB_WAS_RUNNING"] if job.state == "RUNNING" else []
        flags += ["JOB_MEM_SET"] if ask.memory_mb else []
        told = self.template["job"] | words | numbers | {
            "billable_tres": float(ask.cores) if job.nodes else None,
            "exit_code": 0 if job.is_completing else job.status,
            "flags": flags,
            "job_state": "COMPLETING" if job.is_completing else job.state,
            "memory_per_node": ask.memory_mb,
            "standard_error": ask.stderr,
            "standard_input": ask.stdin,
            "standard_output": ask.stdout,
            "tasks": ask.all_tasks,
            "time_limit": None if math.isinf(ask.limit_min) else ask.limit_min,
        }  # fmt: skip
        if job.is_final and not job.nodes and "tasks" not in ask.given:
            told |= {"cpus": None, "tasks": None}
        if not job.nodes:
            del told["job_resources"]
            return told
        allocated = [
            self.template["job"]["job_resources"]["allocated_nodes"][0]
            | {
                "nodename": name,
                "sockets": {str(i): {"cores": {"0": "allocated"}} for i in range(cores)},
            }
            for name, cores in job.nodes.items()
        ]
        return told | {
            "job_resources": {
                "nodes": node_range(job.nodes),
                "allocated_cpus": sum(job.nodes.values()),
                "allocated_hosts": len(job.nodes),
                "allocated_nodes": allocated,
            }
        }

    def query_time(self, text):
        return int(text[3:]) if re.fullmatch(r"uts\d{9,}", text) else None

    def bad_query(self, source, told, _text=""):
        where = {"source": source} if source else {}
        return 500, self._body(room="meta_accounting", errors=[told | self._number(9000) | where])

    @staticmethod
    def _number(number):
        return {"error_number": number, "error": _ERRORS[number]}

    def accounted(self, chosen):
        jobs = [self._account(job) for job in self.records() if chosen(job)]
        nothing = {
            "description": "Nothing found", "error_number": 9003, "error": "Nothing found with query",
            "source": "slurmdb_jobs_get",
        }  # fmt: skip
        return 200, self._body(room="meta_accounting", errors=[] if jobs else [nothing], jobs=jobs)

    def _account(self, job):
        facts, times = self.accounted_facts(job)
        never_ran = job.is_final and not job.nodes and job.state == "CANCELLED"
        limit = None if math.isinf(job.ask.limit_min) else job.ask.limit_min
        for step in facts["steps"]:
            step["time"] |= {name: times[name] for name in ("elapsed", "start", "end")}
            step["state"] = job.state
            step["step"]["job_id"] = job.job_id
            step["nodes"] = {"list": list(job.nodes), "count": 1, "range": min(job.nodes)}
        template = self.template["accounted"]
        return template | facts | {
            "priority": self.slurm.priority(job),
            "state": {"current": job.state, "reason": job.reason if job.state == "PENDING" else "None"},
            "time": template["time"] | times | {"limit": limit} | ({"start": None} if never_ran else {}),
        }  # fmt: skip

    # -- demands

    def submit(self, body, _):
        if not isinstance(body, dict) or not body.get("script"):
            return 500, self._body(errors=[self._code(2009)])
        asked = body["job"] if "job" in body else (body.get("jobs") or [{}])[0]
        try:
            values = self._read_submission(asked)
        except UnreadableError as error:
            return 400, self._body(errors=[*error.errors, self._code(9001)])
        ask = Ask(script=body["script"], given=frozenset(asked), **values)
        try:
            job = self.slurm.submit(ask, takes_too_large=True)
        except RefusedError as refused:
            return 500, self._body(errors=[self._code(refused.number)])
        number = 2042 if ask.held else 2015 if job.stuck else 0
        errors = [self._code(number)] if number else []
        return 200, self._body(errors=errors, job_id=job.job_id, step_id="BATCH", job_submit_user_msg="")

    def _read_submission(self, asked):
        values = self._read(asked)
        if not values.get("environment"):
            raise UnreadableError([self._code(2127, "environment must be set")])
        return values

    def change_job(self, number, body, _):
        try:
            changes = self._read(body)
        except UnreadableError as error:
            parsing = self._told(9001, "_parse_job_list", f"job parsing failed for {self._peer}")
            return 200, self._body(errors=[*error.errors, parsing])
        changes["only_least"] = "nodes" not in body
        try:
            self.slurm.update(number, changes, shrinks=False)
        except RefusedError as refused:
            told = self._told(refused.number, "_parse_job_list", f"job update from {self._peer} failed")
            return 500, self._body(errors=[told])
        return 200, self._body()

    def delete_job(self, number, _, query):
        if query:
            raise NotImplementedError(query)
        if (job := self.slurm.jobs.get(number)) is None:
            description = f"unable to kill JobId={number} with signal 9: {_ERRORS[2017]}"
            return 500, self._body(errors=[self._told(2017, "slurm_kill_job", description)])
        if not job.is_final:
            self.slurm.cancel(job)
        return 200, self._body()

    def _read(self, body):
        values = {}
        for key, value in body.items():
            if key == "required_switches":
                told = {"error_number": 1, "error": "Operation not permitted", "source": "openapi specification"}
                raise UnreadableError([{"description": f'Disabled key: "{key}"'} | told])
            if self.wanted({key: value})[1]:
                raise UnreadableError([{"description": f'Unknown key "{key}"', "source": "hsearch_r"}])
            values |= self.text_keys(key, value) or self._read_one(key, value)
        return values

    def _read_one(self, key, value):  # noqa: C901, PLR0911 - a key a case
        match key:
            case "environment" if isinstance(value, dict):
                return {"environment": value}
            case "environment":
                raise self._bad(key, -1, "environment must be a dictionary")
            case "time_limit":
                return {"limit_min": self._minutes(value)}
            case "nodes":
                return self._nodes(value)
            case "minimum_nodes":
                return {"min_nodes": int(value)}
            case "tasks" if int(value) < 1:
                raise self._bad(key, -1, "ntasks too small")
            case "tasks" | "cpus_per_task":
                return {key: int(value)}
            case "memory_per_node":
                return {"memory_mb": int(value)}
            case "begin_time":
                begin_s = parse_begin(value, self.slurm.now()) if isinstance(value, str) else None
                if begin_s is None:
                    raise self._bad(key, 2054, "Unable to parse time")
                return {"begin_s": begin_s}
            case "priority" if int(value) < 1:
                raise self._bad(key, -1, "Priority must be >0")
            case "gres":
                raise UnreadableError([])
        raise NotImplementedError(key)

    def _minutes(self, value):
        if not isinstance(value, int | str):
            raise self._bad("time_limit", 9202, "Unable to read string")
        try:
            minutes = math.ceil(parse_duration(str(value)) / 60)
        except InputError as error:
            raise self._bad("time_limit", -1, "Invalid time specification") from error
        return minutes or math.inf

    @staticmethod
    def _nodes(value):
        if isinstance(value, list):  # the first counts, the second means nothing
            return {"min_nodes": int(value[0]), "max_nodes": None}
        least, _, most = str(value).partition("-")
        return {"min_nodes": int(least), "max_nodes": int(most or least)}

    def _bad(self, key, code, text):
        told = self._told(-1, "slurm_process_option_data", f'Unable to process key "{key}"')
        return UnreadableError([self._code(code, text), told])


def boxed(value, *, infinite=False):
    """Write a number as v0.0.42 does."""
    return {"set": value is not None and not infinite, "infinite": infinite, "number": value or 0}


_KINDS = {bool: "boolean", int: "64 bit integer", float: "floating point number", str: "string", list: "list"}
_OPEN_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class New(Dialect):
    """24.11: API v0.0.42."""

    release, api, none = "24.11", "v0.0.42", ""
    signalled = "RaisedSignal"
    no_method = Dialect.no_url
    takes_too_large = False
    no_environment = 2019
    unknown_queries = frozenset()
    unknown_anyway = frozenset()

    @staticmethod
    def hides_duplicates(query):
        return bool(query.keys() & _FLAGS) and "show_duplicates" not in query

    def _body(self, *, errors=(), warnings=(), room="meta", **more):
        accounting = "accounting_storage/slurmdbd" if self.slurm.accounting else ""
        meta = self.template[room]
        meta = meta | {"plugin": meta["plugin"] | {"accounting_storage": accounting}}
        return {**more, "meta": meta, "errors": list(errors), "warnings": list(warnings)}

    @staticmethod
    def _told(number, source, description, error=None):
        return {
            "description": description, "error_number": number, "error": error or _ERRORS[number], "source": source,
        }  # fmt: skip

    @property
    def _moments(self):
        return {"last_backfill": boxed(self.slurm.now()), "last_update": boxed(self.slurm.changed_s)}

    @property
    def more_routes(self):
        return {("slurm", "jobs/state"): ("GET", self.states), ("slurmdb", "ping"): ("GET", self.ping_accounting)}

    def _route(self, room, path):
        found = super()._route(room, path)
        return found | {"DELETE": self.delete_jobs} if (room, path) == ("slurm", "jobs") else found

    # -- questions

    def down(self, path):
        if path == "ping":
            gone = {"pinged": "DOWN", "responding": False}
            return 200, self._body(pings=[self.template["ping"] | gone])
        if path == "jobs":
            none = {"last_backfill": boxed(0), "last_update": boxed(0)}
            return 502, self._body(
                errors=[self._told(1800, "slurm_load_jobs()", "Unable to query jobs")], jobs=[], **none
            )
        told = self._told(1800, "slurm_submit_batch_job()", "Batch job submission failed")
        if path != "job/submit":
            told = self._told(1800, "", "Unable to contact slurm controller")
        return 502, self._body(errors=[told])

    def ping(self, _, __):
        return 200, self._body(pings=[self.template["ping"]])

    def diag(self, _, __):
        return 200, self._body(statistics=self.template["diag"] | _counts(self.slurm))

    def partitions(self, _, __):
        nodes, cores = len(self.slurm.nodes), sum(node.cores for node in self.slurm.nodes.values())
        template = self.template["partition"]
        listed = [
            template
            | {
                "name": p.name,
                "nodes": template["nodes"] | {"configured": node_range(self.slurm.nodes), "total": nodes},
                "cpus": template["cpus"] | {"total": cores},
                "tres": template["tres"] | {"configured": _tres_of(nodes, cores)},
                "defaults": template["defaults"] | {"time": boxed(p.default_min)},
                "maximums": template["maximums"] | {"time": boxed(p.max_min)},
            }
            for p in self.slurm.partitions.values()
        ]
        return 200, self._body(partitions=listed, last_update=boxed(self.slurm.booted_s))

    def nodes(self, _, __):
        listed = [self._node(*told) for told in _nodes_told(self.slurm)]
        return 200, self._body(nodes=listed, last_update=boxed(self.slurm.changed_s))

    def _node(self, node, taken, state):
        return self.template["node"] | {
            "name": node.name,
            "cpus": node.cores,
            "effective_cpus": node.cores,
            "sockets": node.cores,
            "tres": f"cpu={node.cores},mem=62.50G,billing={node.cores}",
            "state": [state],
            "reason": node.reason,
            "alloc_cpus": taken,
            "alloc_idle_cpus": node.cores - taken,
            "tres_used": f"cpu={taken}" if taken else "",
            "tres_weighted": float(taken),
        }

    def all_jobs(self, _, query):
        since = query.get("update_time", ["0"])[0]
        if self.slurm.changed_s < int(since):
            when = f"{datetime.fromtimestamp(int(since)):%Y-%m-%dT%H:%M:%S}"  # noqa: DTZ006 - Slurm's local time
            told = f"No job changes since update_time[{since}]={when}"
            none = {"last_backfill": boxed(0), "last_update": boxed(0)}
            return 200, self._body(warnings=[{"description": told, "source": "op_handler_jobs"}], jobs=[], **none)
        return 200, self._body(jobs=[self.describe(job) for job in self.slurm.jobs.values()], **self._moments)

    def ping_accounting(self, _, __):
        ping = {"hostname": "head", "responding": True, "latency": 900, "primary": True}
        return 200, self._body(room="meta_accounting", pings=[ping])

    def states(self, _, query):
        chosen = query.get("job_id")
        if chosen is not None and not all(text.isdigit() for text in chosen):
            told = self._told(9000, "op_handler_job_states", "Rejecting request. Failure parsing query")
            return 422, self._body(errors=[told])
        listed = [
            {"job_id": str(job.job_id), "state": self._states(job)}
            for job in self.slurm.jobs.values()
            if chosen is None or str(job.job_id) in chosen
        ]
        return 200, self._body(jobs=listed)

    def one_job(self, number, _, __):
        if (job := self.slurm.jobs.get(number)) is None:
            told = self._told(2017, "_handle_job_get", f"Unable to query JobId={number}")
            none = {"last_backfill": boxed(0), "last_update": boxed(0)}
            return 404, self._body(errors=[told], jobs=[], **none)
        return 200, self._body(jobs=[self.describe(job)], **self._moments)

    def no_job_number(self, _handle, _text):
        told = self._told(9000, "op_handler_job", "Rejecting request. Failure parsing parameters")
        return 422, self._body(errors=[told])

    @staticmethod
    def _states(job):
        return [job.state, "COMPLETING"] if job.is_completing else [job.state]

    @staticmethod
    def _exit(status):
        ended_by = status & 0x7F
        names = {number.value: number.name[3:] for number in signal.Signals}
        return {
            "status": ["SIGNALED"] if ended_by else ["ERROR"] if status else ["SUCCESS"],
            "return_code": boxed(None if ended_by else status >> 8),
            "signal": {
                "id": boxed(ended_by or None),
                "name": names.get(ended_by, str(ended_by)) if ended_by else "",
            },
        }

    def _flags(self, job):
        flags = ["EXACT_TASK_COUNT_REQUESTED"] if "tasks" in job.ask.given else []
        flags += ["JOB_WAS_RUNNING"] if job.state == "RUNNING" else []
        flags += ["EXACT_MEMORY_REQUESTED"] if job.ask.memory_mb else []
        names = ("account", "partition", "qos", "wckey")
        flags += [f"USING_DEFAULT_{name.upper()}" for name in names if name not in job.ask.given]
        flags += ["DEPENDENT"] if not job.nodes and (job.clauses or job.held_by) else []
        return flags + ([] if "partition" in job.ask.given else ["PARTITION_ASSIGNED"])

    def describe(self, job):
        words, numbers = self.facts(job)
        ask = job.ask
        endless = math.isinf(ask.limit_min)
        expand = {"%j": str(job.job_id), "%x": ask.name}
        out = re.sub("%[jx]", lambda found: expand[found[0]], ask.stdout or f"{ask.folder}/slurm-%j.out")
        told = {name: boxed(value) for name, value in numbers.items()} | {
            "billable_tres": boxed(float(ask.cores) if job.nodes else None),
            "cpus_per_task": boxed(ask.cpus_per_task or 1),
            "exit_code": self._exit(0 if job.is_completing else job.status),
            "flags": self._flags(job),
            "hold": bool(job.held_by),
            "job_resources": self._resources(job) if job.nodes else None,
            "job_state": self._states(job),
            "memory_per_node": boxed(ask.memory_mb or 0),
            "standard_error": re.sub("%[jx]", lambda found: expand[found[0]], ask.stderr) or out,
            "standard_output": out,
            "tasks": boxed(None if job.is_final and not job.nodes and "tasks" not in ask.given else ask.all_tasks),
            "time_limit": boxed(None if endless else ask.limit_min, infinite=endless),
        }
        if told["billable_tres"]["number"] == 0:
            told["billable_tres"]["number"] = 0.0
        scheduled = job.state == "PENDING" and job.reason == "Resources"
        told["scheduled_nodes"] = node_range(self.slurm.nodes) if scheduled else ""
        return self.template["job"] | words | told

    def _resources(self, job):
        template = self.template["job"]["job_resources"]
        one = template["nodes"]["allocation"][0]
        states = [["ALLOCATED"], ["UNALLOCATED"]]
        allocation = [
            one
            | {
                "index": index,
                "name": name,
                "cpus": {"count": cores, "used": 0},
                "sockets": [
                    {"index": i, "cores": [{"index": 0, "status": states[i >= cores]}]}
                    for i in range(self.slurm.cores_per_node)
                ],
            }
            for index, (name, cores) in enumerate(job.nodes.items())
        ]
        nodes = {"count": len(job.nodes), "list": node_range(job.nodes), "allocation": allocation}
        return template | {"cpus": sum(job.nodes.values()), "nodes": template["nodes"] | nodes}

    def query_time(self, text):
        return int(text.removeprefix("uts")) if re.fullmatch(r"(uts)?\d{9,}", text) else None

    def bad_query(self, source, _told, text=""):
        parsing = self._told(9202, f"#/{source}/", f"Parsing of {text} for timestamp failed")
        rejecting = self._told(9000, "op_handler_jobs", "Rejecting request. Failure parsing query parameters")
        return 422, self._body(room="meta_accounting", errors=[parsing, rejecting])

    def accounted(self, chosen):
        jobs = [self._account(job) for job in self.records() if chosen(job)]
        nothing = {"description": "slurmdb_jobs_get(0x7f0000000000) found nothing", "source": "_dump_jobs"}
        return 200, self._body(room="meta_accounting", warnings=[] if jobs else [nothing], jobs=jobs)

    def _account(self, job):
        facts, times = self.accounted_facts(job)
        template = self.template["accounted"]
        started_never = {"start": 4294967294} if job.is_final and not job.nodes else {}
        endless = math.isinf(job.ask.limit_min)
        queued_s = job.start_s - job.eligible_s if job.nodes and job.eligible_s else 0
        odd = job.state in ("NODE_FAIL", "FAILED") and not job.status >> 8  # those without a code of their own have 1
        status = 1 << 8 if odd else job.status if job.state == "FAILED" else 0
        for step in facts["steps"]:
            step["time"] |= {"elapsed": times["elapsed"], "start": boxed(times["start"]), "end": boxed(times["end"])}
            step["state"] = [job.state]
            step["exit_code"] = self._exit(job.status)
            step["step"]["id"] = f"{job.job_id}.batch"
            step["nodes"] = {"count": 1, "range": min(job.nodes), "list": [min(job.nodes)]}
        more = {
            "planned": boxed(queued_s),
            "limit": boxed(None if endless else job.ask.limit_min, infinite=endless),
        }
        out = job.ask.stdout or f"{job.ask.folder}/slurm-%j.out"
        return template | facts | {
            "exit_code": self._exit(status),
            "hold": bool(job.held_by),
            "priority": boxed(self.slurm.priority(job)),
            "restart_cnt": job.restarts,
            "state": {"current": [job.state], "reason": "None"},
            "stdout": out,
            "stdout_expanded": out.replace("%j", str(job.job_id)).replace("%x", job.ask.name),
            "time": template["time"] | times | more | started_never,
        }  # fmt: skip

    # -- demands

    def submit(self, body, _):
        if not isinstance(body, dict):
            told = "Rejecting list when dictionary expected"
            errors = [self._told(9209, "#/", told, "Data parser expected a dictionary or object")]
            return 500, self._body(errors=errors)
        asked = dict(body["job"] if "job" in body else (body.get("jobs") or [{}])[0])
        script = asked.pop("script", None) or body.get("script")
        if not script:
            told = 'Populated "script" field is required for job submission'
            return 422, self._body(errors=[self._told(9000, "_job_post", told)])
        try:
            values, warnings = self._read(asked, "#/job/")
        except UnreadableError as error:
            return 500, self._body(errors=error.errors, warnings=error.warnings)
        ask = Ask(script=script, given=frozenset(asked), **values)
        source = "slurm_submit_batch_job()"
        try:
            self._check_complete(ask)
            job = self.slurm.submit(ask, takes_too_large=self.takes_too_large)
        except RefusedError as refused:
            errors = [self._told(refused.number, source, "Batch job submission failed")]
            return 500, self._body(errors=errors, warnings=warnings)
        if number := 2042 if ask.held else 2015 if job.stuck == "PartitionConfig" else 0:
            told = _ERRORS[number]
            more = [f"Job submission resulted in non-zero return code: {told}", told]
            warnings += [{"description": text, "source": source} for text in more]
        return 200, self._body(warnings=warnings, job_id=job.job_id, step_id="batch", job_submit_user_msg="")

    def _check_complete(self, ask):
        if not ask.environment:
            raise RefusedError(self.no_environment)
        if not ask.folder:
            raise RefusedError(2063)

    def change_job(self, number, body, _):
        try:
            changes, warnings = self._read(body, "#/")
        except UnreadableError as error:
            told = "Rejecting request. Failure parsing job update request."
            errors = [*error.errors, self._told(9000, "_job_post_update", told)]
            return 500, self._body(errors=errors, warnings=error.warnings, results=None)
        try:
            self.slurm.update(number, changes, shrinks=True)
        except RefusedError as refused:
            errors = [self._told(refused.number, "slurm_update_job2()", "Job update requested failed")]
            status = 404 if refused.number == 2017 else 500
            return status, self._body(errors=errors, warnings=warnings, results=None)
        return 200, self._body(warnings=warnings, results=None)

    def delete_job(self, number, _, query):
        if query:
            raise NotImplementedError(query)
        return 200, self._body(status=self._cancelled(number))

    def delete_jobs(self, body, query):
        if query or (odd := set(body) - {"jobs", "job_name"}):
            raise NotImplementedError(query or odd)
        name = body.get("job_name")
        return 200, self._body(status=[told for job in body["jobs"] for told in self._cancelled(int(job), name)])

    def _cancelled(self, number, name=None):
        """Cancel a job; tell why not, if so."""
        job = self.slurm.jobs.get(number)
        is_other = job is not None and name not in {None, job.ask.name}
        if job is not None and not job.is_final and not is_other:
            self.slurm.cancel(job)
            return []
        code = 2017 if job is None else 2172 if is_other and not job.is_final else 2021
        told = f"Job name {job.ask.name} != filter name {name}: {_ERRORS[code]}" if code == 2172 else _ERRORS[code]
        return [
            {
                "error": {"string": _ERRORS[code], "code": code, "message": told},
                "step_id": str(number),
                "job_id": boxed(None if job is None else number),
                "federation": {"sibling": ""},
            }
        ]

    def _read(self, body, where):
        values, warnings = {}, []
        wanted, _ = self.wanted(body)
        for key, value in body.items():
            if key not in wanted:
                inside = value.items() if isinstance(value, dict) else [("", value)]
                for name, inner in inside:
                    path = f"{where}{key}/{name}/" if name else f"{where}{key}/"
                    told = f'Ignoring unknown field "{name or key}" of type {_KINDS[type(inner)]} in'
                    warnings.append({"description": f"{told} DATA_PARSER_JOB_DESC_MSG", "source": path})
                continue
            try:
                values |= self.text_keys(key, value) or self._read_one(key, value, f"{where}{key}/", warnings)
            except UnreadableError as error:
                raise UnreadableError(error.errors, warnings) from error
        return values, warnings

    def _read_one(self, key, value, where, warnings):  # noqa: C901, PLR0911 - a key a case
        match key:
            case "environment":
                return {"environment": self._environment(value, where, warnings)}
            case "time_limit":
                minutes = self._integer(value, where)
                return {"limit_min": math.inf if minutes is None or minutes < 0 else minutes}
            case "nodes":
                if not isinstance(value, str):
                    warnings.append(self._expected("type=string (Slurm type=string)", value, where))
                least, _, most = (str(value[0]) if isinstance(value, list) else str(value)).partition("-")
                return {"min_nodes": int(least), "max_nodes": int(most or least)}
            case "minimum_nodes" | "maximum_nodes":
                return {"min_nodes" if key == "minimum_nodes" else "max_nodes": self._integer(value, where)}
            case "tasks" | "cpus_per_task" | "minimum_cpus":
                if isinstance(value, str):
                    wanted = "type=integer format=int32 (Slurm type=64 bit integer)"
                    warnings.append(self._expected(wanted, value, where))
                return {"tasks" if key == "minimum_cpus" else key: self._integer(value, where)}
            case "memory_per_node":
                return {"memory_mb": self._integer(value, where)}
            case "begin_time":
                begin_s = parse_begin(value, self.slurm.now()) if isinstance(value, str) else None
                return {"begin_s": self._integer(value, where, what="time") if begin_s is None else begin_s}
            case "priority" if self._integer(value, where) == 0:
                return {"held": True}
            case "tres_per_job" | "tres_per_node" | "tres_per_task":
                return {"has_gres": bool(value)}
        raise NotImplementedError(key)

    def _environment(self, value, where, warnings):
        if isinstance(value, list):
            return dict(entry.split("=", 1) for entry in value)
        warnings.append(self._expected("type=array (Slurm type=list)", value, where))
        if isinstance(value, dict):
            return value
        told = f"expected a list of strings but got {_written(value)}"
        raise UnreadableError([self._told(9208, where, told, "Data parser expected a list")])

    def _integer(self, value, where, what="integer"):
        """Read a number in any of its shapes; None for an endless one."""
        if isinstance(value, dict):
            return None if value.get("infinite") else int(value["number"])
        if isinstance(value, int) or re.fullmatch(r"-?\d+", str(value)):
            return int(value)
        told = f"Expected integer but got {_written(value)}"
        told = told if what == "integer" else f"Parsing of {value} for timestamp failed"
        raise UnreadableError([self._told(9202, where, told)])

    @staticmethod
    def _expected(wanted, value, where):
        kind = _OPEN_KINDS[type(value)], _KINDS.get(type(value), "dictionary")
        told = f"Expected OpenAPI {wanted} but got OpenAPI type={kind[0]} (Slurm type={kind[1]}): {_written(value)}"
        return {"description": told, "source": where}


class Newest(New):
    """26.05: API v0.0.42, as it was seen to serve it."""

    release, templates = "26.05", "24.11"
    _nowhere = (
        "Unable to find requested URL endpoint. Please query the '/openapi/v3' endpoint or visit "
        "'https://slurm.schedmd.com/rest_api.html' for the OpenAPI specification which includes a list of all "
        "possible slurmrestd endpoints."
    )
    no_url = 404, _nowhere
    no_method = no_url
    no_parse = 500, "Unspecified error"
    takes_too_large = True
    no_environment = 2127

    def answer(self, request):
        """Answer; what the controller refuses has a status of its own."""
        status, body = super().answer(request)
        errors = body.get("errors", ()) if isinstance(body, dict) else ()
        return 422 if status == 500 and any(2000 <= error["error_number"] < 3000 for error in errors) else status, body

    def _body(self, **told):
        body = super()._body(**told)
        slurm = {"version": {"major": "26", "micro": "5", "minor": "05"}, "release": "26.05.5"}
        return body | {"meta": body["meta"] | {"slurm": body["meta"]["slurm"] | slurm}}

    def describe(self, job):
        """Describe a job, whose errors have a file of their own only where it was asked for."""
        return super().describe(job) | ({} if job.ask.stderr else {"standard_error": ""})

    def past_jobs(self, body, query):
        """Look for past jobs, of users that this host knows."""
        unknown = [user for user in query.get("users", ()) if user not in ("root", self.slurm.user)]
        if not unknown:
            return super().past_jobs(body, query)
        resolving = self._told(2166, "_foreach_resolve", f"Unable to resolve user: {unknown[0]}")
        rejecting = self._told(9000, "op_handler_jobs", "Rejecting request. Failure parsing query parameters")
        return 422, self._body(room="meta_accounting", errors=[resolving, rejecting])

    def accounted(self, chosen):
        status, body = super().accounted(chosen)
        for warning in body["warnings"]:
            warning["description"] = "slurmdb_jobs_get() found nothing"
        for job in body["jobs"]:
            job["stdout"] = job["stdout"].removeprefix(f"{job['working_directory']}/")
        return status, body


def _written(value):
    return json.dumps(value, separators=(",", ":")).replace("/", "\\/")


def _counts(slurm):
    states = Counter(job.state for job in slurm.jobs.values())
    return {"jobs_pending": states["PENDING"], "jobs_running": states["RUNNING"], "jobs_submitted": len(slurm.jobs)}


def _tres_of(nodes, cores):
    memory = f"{62.5 * nodes:.2f}G".replace(".00G", "G")
    return f"cpu={cores},mem={memory},node={nodes},billing={cores}"


def _nodes_told(slurm):
    free = slurm.free_cores()
    for node in slurm.nodes.values():
        taken = node.cores - free[node.name] if node.is_up else 0
        state = "IDLE" if taken == 0 else "ALLOCATED" if taken == node.cores else "MIXED"
        yield node, taken, state if node.is_up else "DOWN"


# ---- a transport on which things go wrong

FAULTS = (
    "refuse", "drop-before", "drop-after", "delay", "duplicate", "garble-status", "garble-body", "garble-json", "reset",
    "empty", "kill-before", "kill-after",
)  # fmt: skip
"""What can go wrong with an exchange.

- refuse: nobody listens;
- drop-before: the request is lost; drop-after: the answer is lost;
- delay: no answer comes, and the request arrives `Fault.delay_s` later;
- duplicate: the request arrives twice;
- garble-status: a gateway's 502 in HTML; garble-body: JSON that breaks off; garble-json: JSON without what was asked
  for; empty: nothing but 200; the request arrived, unless `Fault.reaches` is false;
- reset: the connection breaks once the request has arrived;
- kill-before, kill-after: the client dies, before the request is sent or once it has arrived.
"""


class Killed(BaseException):
    """The client dies here: nothing catches it but the test."""


@dataclass(frozen=True)
class Fault:
    """A fault of an exchange.

    `raises` is how a lost request or answer shows, and `answer`, of a doubled one, which of the answers is seen:
    ``first`` or ``second``.
    """

    kind: str
    delay_s: float = 30.0
    raises: type = httpx.ReadTimeout
    answer: str = "second"
    reaches: bool = True

    def __post_init__(self):
        if self.kind not in FAULTS:
            raise ValueError(f"{self.kind!r} is no fault; there are {', '.join(FAULTS)}")


@dataclass
class Exchange:
    """A request and what became of it: an HTTP status, or the error that was raised; `index` counts from 0."""

    index: int
    method: str
    path: str
    fault: str = ""
    outcome: int | str = ""
    arrivals: int = 0


class FaultyTransport(httpx.BaseTransport):
    """Numbers exchanges, and lets chosen ones go wrong. As with `FakeSlurm`, it outlives its clients.

    Parameters
    ----------
    inner
        The transport that it wraps.
    plan
        What goes wrong: by the exchange's number, or as told by a function of the `Exchange`; a `Fault`, its kind, or
        None.
    clock
        Tells the time. A delayed request arrives when it is due if `inner` can call at a time, else before the first
        exchange after that.
    """

    def __init__(self, inner, plan=None, clock: Callable[[], float] = time.time):
        self.inner = inner
        self.plan = plan or {}
        self.exchanges = []
        self._clock = clock
        self._late = []

    def handle_request(self, request):
        self._deliver_late()
        exchange = Exchange(len(self.exchanges), request.method, request.url.raw_path.decode())
        fault = self.plan(exchange) if callable(self.plan) else self.plan.get(exchange.index)
        fault = Fault(fault) if isinstance(fault, str) else fault
        exchange.fault = fault.kind if fault else ""
        self.exchanges.append(exchange)
        request.read()
        try:
            response = self._exchange(request, exchange, fault)
        except BaseException as error:
            exchange.outcome = type(error).__name__
            raise
        exchange.outcome = response.status_code
        return response

    def close(self):
        pass

    def _exchange(self, request, exchange, fault):
        if fault is None:
            return self._pass_on(request, exchange)
        match fault.kind:
            case "refuse":
                raise httpx.ConnectError("Connection refused", request=request)
            case "kill-before":
                raise Killed(f"before exchange {exchange.index}")
            case "drop-before":
                raise fault.raises("timed out", request=request)
            case "delay":
                self._pass_on_later(request, exchange, fault.delay_s)
                raise fault.raises("timed out", request=request)
            case "duplicate":
                answers = {which: self._pass_on(request, exchange) for which in ("first", "second")}
                return answers[fault.answer]
        response = self._pass_on(request, exchange) if fault.reaches else httpx.Response(200, content=b"{}")
        return self._spoil(request, response, exchange, fault)

    def _spoil(self, request, response, exchange, fault):
        match fault.kind:
            case "drop-after":
                raise fault.raises("timed out", request=request)
            case "reset":
                raise httpx.ReadError("Connection reset by peer", request=request)
            case "kill-after":
                raise Killed(f"after exchange {exchange.index}")
            case "garble-status":
                page = "<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>"
                return httpx.Response(502, headers={"content-type": "text/html"}, content=page)
            case "garble-body":
                return self._json(response.content[: len(response.content) // 2])
            case "garble-json":
                return self._json(b'{"errors": []}')
            case _:
                return self._json(b"")

    @staticmethod
    def _json(content):
        return httpx.Response(200, headers={"content-type": "application/json"}, content=content)

    def _pass_on(self, request, exchange):
        exchange.arrivals += 1
        answer = self.inner.handle_request(request)
        try:
            content = answer.read()
        finally:
            answer.close()
        headers = {name: answer.headers[name] for name in ("content-type",) if name in answer.headers}
        return httpx.Response(answer.status_code, headers=headers, content=content)

    def _pass_on_later(self, request, exchange, delay_s):
        def arrive():
            with suppress(httpx.TransportError):  # nobody is left to hear of it
                self._pass_on(request, exchange)

        due_s = self._clock() + delay_s
        if hasattr(self.inner, "at"):
            self.inner.at(due_s, arrive)
        else:
            self._late.append((due_s, arrive))

    def _deliver_late(self):
        due = [arrive for due_s, arrive in self._late if due_s <= self._clock()]
        self._late = [late for late in self._late if late[0] > self._clock()]
        for arrive in due:
            arrive()


def random_faults(rate, seed, kinds=FAULTS[:-2]):
    """Make a plan by which a share of all exchanges goes wrong, the same for the same seed; nobody is killed."""
    draws = random.Random(seed)

    def plan(_exchange):
        unlucky = draws.random() < rate
        fault = Fault(draws.choice(kinds), delay_s=draws.uniform(1.0, 120.0), answer=draws.choice(("first", "second")))
        return fault if unlucky else None

    return plan
