"""Examines this machine as a place for jobs, and its record of past jobs."""

from __future__ import annotations

import fcntl
import getpass
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from asa.backend import Backend, Examination, Finding, JobSpec, JobState
from asa.core import temporary
from asa.core.files import read_text
from asa.errors import AsaError, BackendError, TraceError
from asa.history import JobHistory

from .server import KEPT_S, LINGER_S, MAX_LOCAL
from .settings import LocalSettings, cores_here
from .spool import JobOrder, Spool, SpooledStanding, host

_BUSY = 0.7
_MIN_FREE_BYTES = 100 << 20
_LONGEST_PROBE_S = 30.0
_KILLS_PROCESSES = re.compile(r"(?im)^[ \t]*+KillUserProcesses[ \t]*+=[ \t]*+(yes|true|on|1)[ \t]*+$")


def examine(settings: LocalSettings, connect: Callable[[Path], Backend], *, probe: bool) -> Examination:
    """Examine this machine; with `probe`, also test its queue, which `connect` opens."""
    findings = [*_cores(settings), _load(settings), _memory(), *_spool(settings), *_logout()]
    if probe and all(finding.verdict != "bad" for finding in findings):
        findings.append(_probe(connect))
    return Examination(findings, observed={"host": host(), "cores": cores_here()})


def history(settings: LocalSettings, since_s: float) -> JobHistory:
    """Return the history of the jobs that became eligible since a time."""
    spool = Spool(settings.spool / host())
    try:
        spool.check()
        jobs = sorted(_past(spool, since_s), key=lambda job: job[0])
    except OSError as error:
        raise BackendError(
            f"cannot be read: {error.strerror or error}", where=str(spool.root), hint="Has anything run here?"
        ) from error
    if not jobs:
        days = KEPT_S / 86400
        raise TraceError("holds no job", where=str(spool.root), hint=f"Jobs are kept for {days:.0f} days.")
    submit_s, wait_s, cores, walltime_s, started, run_s = zip(*jobs, strict=True)
    return JobHistory(
        np.array(submit_s),
        np.array(wait_s),
        np.array(cores, dtype=np.int64),
        np.array(walltime_s),
        np.array(started, dtype=np.bool_),
        np.array(run_s),
        user=np.zeros(len(jobs), dtype=np.int32),
        users=(getpass.getuser(),),
        system=settings.system,
        machine_cores=settings.cores,
        source=f"the queue of {host()}",
    )


_Row = tuple[float, float, int, float, bool, float]


def _past(spool: Spool, since_s: float) -> Iterator[_Row]:
    for number in spool.ended_numbers():
        order: JobOrder | None = None
        standing: SpooledStanding | None = None
        with suppress(ValueError):
            order, standing = spool.order(number), spool.standing(number)
        if order is None or standing is None or order.is_beside:
            continue
        since, end_s = standing.eligible_s, standing.end_s
        if since is None or since < since_s or end_s is None:
            continue
        until_s = end_s if standing.start_s is None else standing.start_s
        run_s = -1.0 if standing.start_s is None else end_s - standing.start_s
        yield since, max(until_s - since, 0.0), order.cores, order.walltime_s, standing.start_s is not None, run_s


def _cores(settings: LocalSettings) -> Iterator[Finding]:
    here, there, slots = cores_here(), os.cpu_count() or 1, settings.cores
    text = f"{here}" if here == there else f"{here} of {there} may be used"
    if slots > here:
        yield Finding("cores", text, "note", f"jobs may have {slots} at a time by your settings, so they will share")
    else:
        yield Finding(
            "cores",
            text,
            "good",
            f"all jobs together may have {slots} at a time; a stage that asks for more is refused (--option cores=N)",
        )
    if (share := _share()) is not None and share < here:
        yield Finding(
            "CPU share",
            f"{share:.2g} cores",
            "note",
            f"more slots only slow jobs down: --option cores={max(int(share), 1)}",
        )


def _share() -> float | None:
    """Return how many cores' time this session's control group may use; None for no limit."""
    with suppress(OSError, ValueError):
        quota, period = read_text(_group() / "cpu.max", "ascii").split()
        return int(quota) / int(period)
    return None


def _group(pid: str = "self") -> Path:
    text = read_text(Path(f"/proc/{pid}/cgroup"))
    return Path("/sys/fs/cgroup") / text.rpartition("::")[2].strip().lstrip("/")


def _load(settings: LocalSettings) -> Finding:
    load = os.getloadavg()[0]
    text = f"{load:.1f} processes run or wait for a core"
    if load > _BUSY * cores_here():
        return Finding(
            "load", text, "note", "the cores are busy with other work: jobs will take longer than they would alone"
        )
    free = max(int(cores_here() - load), 0)
    idle = min(free, settings.cores)
    return Finding("load", text, "good", f"about {idle} {'core is' if idle == 1 else 'cores are'} idle")


def _memory() -> Finding:
    amounts = {}
    with suppress(OSError, ValueError):
        for line in read_text(Path("/proc/meminfo"), "ascii").splitlines():
            name, _, amount = line.partition(":")
            amounts[name] = int(amount.split()[0]) * 1024
    total, free = amounts.get("MemTotal", 0), amounts.get("MemAvailable", 0)
    limit = total
    with suppress(OSError, ValueError):
        limit = int(read_text(_group() / "memory.max", "ascii"))
    text = f"{free / (1 << 30):.3g} of {total / (1 << 30):.3g} GiB are free"
    if limit < total:
        text += f"; this session may have {limit / (1 << 30):.3g} GiB"
    return Finding(
        "memory", text, "note", "memory is not reserved: see that there is enough for all stages that run side by side"
    )


def _spool(settings: LocalSettings) -> Iterator[Finding]:
    spool = Spool(settings.spool / host())
    elsewhere = "name a folder elsewhere with --option spool=DIR, as in spool=/var/tmp/$USER"
    try:
        spool.make()
        with tempfile.TemporaryFile(dir=spool.root) as file:
            file.write(b"x")
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = shutil.disk_usage(spool.root).free
        is_served = spool.ring()
        numbers = spool.numbers()
    except OSError as error:
        yield Finding("queue", f"{spool.root}: {error.strerror or error}", "bad", f"nothing can be run: {elsewhere}")
        return
    verdict, consequence = "good", "all your runs on this computer share it"
    if free < _MIN_FREE_BYTES:
        verdict, consequence = "note", f"only {free >> 20} MiB are free there: {elsewhere}"
    yield Finding("queue", str(spool.root), "note" if verdict == "note" else "good", consequence)
    jobs = f"{len(numbers)} {'job has' if len(numbers) == 1 else 'jobs have'} not ended"
    server = "the queue's server runs" if is_served else "the queue's server does not run; the next run starts it"
    yield Finding(
        "server", f"{server}; {jobs}", "good", f"up to {MAX_LOCAL} stages with local = true run outside the queue"
    )
    if is_served:
        yield from _of_the_server(spool)
    with suppress(OSError):
        if trouble := read_text(spool.trouble, errors="replace").strip():
            yield Finding("trouble", trouble, "bad" if is_served else "note", "the server tries again every second")


def _of_the_server(spool: Spool) -> Iterator[Finding]:
    """Report values that jobs inherit from the session that started the server, and that cannot be changed."""
    another = f"it ends {LINGER_S:.0f} s after its last job, and the next run starts another"
    with suppress(OSError, ValueError):
        pid = int(read_text(spool.pid, "ascii"))
        there, here = _limits(str(pid)), _limits("self")
        if differing := [name for name in here if there.get(name) != here[name]]:
            text = ", ".join(f"{name} {there.get(name, 'unlimited')}, here {here[name]}" for name in differing)
            yield Finding(
                "server's limits", text, "note", f"jobs have those of the session that started the server: {another}"
            )
        if (nice := os.getpriority(os.PRIO_PROCESS, pid)) > os.getpriority(os.PRIO_PROCESS, 0):
            yield Finding("server's priority", f"nice {nice}", "note", f"jobs have no better one: {another}")


def _limits(pid: str) -> dict[str, str]:
    """Return the limits of a process's control group; none where there are no control groups."""
    limits = {}
    for name in ("cpu.max", "cpuset.cpus.effective", "memory.max"):
        with suppress(OSError):
            limits[name] = read_text(_group(pid) / name, "ascii").strip()
    return limits


def _logout() -> Iterator[Finding]:
    """Report whether the system ends a user's processes at logout."""
    files = [Path("/etc/systemd/logind.conf"), *sorted(Path("/etc/systemd/logind.conf.d").glob("*.conf"))]
    for file in files:
        with suppress(OSError):
            if _KILLS_PROCESSES.search(read_text(file, errors="replace")):
                yield Finding(
                    "logout", f"{file.name}: KillUserProcesses=yes", "note",
                    "jobs end when you log out, unless you say: loginctl enable-linger",
                )  # fmt: skip
                return


def _probe(connect: Callable[[Path], Backend]) -> Finding:
    """Submit a held job, and cancel it."""
    with temporary.folder("asa-probe-") as folder:
        begin_s = time.monotonic()
        try:
            backend = connect(Path(folder))
            job_id = backend.submit(JobSpec("probe", cores=1, walltime_s=60.0, command="true", held=True))
            backend.cancel(job_id)
            state = JobState.PENDING
            while not state.is_final and time.monotonic() - begin_s < _LONGEST_PROBE_S:
                backend.wait(backend.now() + 1.0)
                state = backend.status([job_id])[job_id].state
        except AsaError as error:
            return Finding("probe", error.message, "bad", "nothing can be run")
    if not state.is_final:
        return Finding(
            "probe", f"a job was still {state} after {_LONGEST_PROBE_S:.0f} s", "bad", "its server does not work"
        )
    return Finding("probe", f"a job came and was cancelled within {time.monotonic() - begin_s:.2g} s", "good")
