"""The server of this machine's queue: starts jobs in order of submission, and records their ends.

It is a separate process. A client starts it if none runs, and it ends when it has had nothing to do for a while. Its
state is in the spool's files. So nothing is lost if it dies: jobs have their own sessions and go on, and the next
server takes them over.
"""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import signal
import subprocess
import time
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from .outlook import MAX_JOBS, Awaited, foresee
from .processes import NO_OUTPUT, UNBEGUN_EXIT, Doing, begin, code_of, doing_of, tell_session
from .spool import (
    MAX_CHANGES_BYTES,
    OR_END,
    TROUBLE_BYTES,
    JobOrder,
    Spool,
    SpooledStanding,
    locked,
    number_of,
    put,
    written,
)

GRACE_S = 5.0
"""Seconds that a signalled job has to end."""

MAX_LOCAL = 4
"""Upper bound of jobs that run outside the queue at the same time."""

KEPT_S = 7 * 86400.0
"""A job is kept for so long after its end."""

LINGER_S = 30.0
"""A server without jobs ends after this time."""

_LOOK_S = 10.0  # interval between checks of all files, in case a signal was missed
_BLIND_LOOK_S = 0.1  # if the system does not report the ends of processes
_OUTLOOK_S = 1.0
_RETRY_S = 1.0
_SWEEP_S = 3600.0
_SWEEP_JOBS = 500
_UNORDERED_S = 86400.0  # age from which a folder without a request is left over from a killed client
_MAX_WALLTIME_S = 1e12
_UNBEGUN_S = 10.0  # within this time a started process has recorded itself
_TRIES = 250
_BUSY = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


@dataclass(slots=True)
class ServedJob:
    """The server's knowledge of a job that has not ended."""

    number: int
    folder: Path
    order: JobOrder
    standing: SpooledStanding
    seen_ns: int = 0  # time stamp of its folder at the last look
    wanted: frozenset[str] = frozenset()  # names of its user's requests
    child: subprocess.Popen[bytes] | None = None
    doing: Doing | None = None
    watched: int | None = None
    killed_s: float = 0.0

    @property
    def is_pending(self) -> bool:
        """Whether the job has not started."""
        return self.standing.state == "pending"

    @property
    def walltime_s(self) -> float:
        """Its walltime, as last requested."""
        return self.order.walltime_s if self.standing.walltime_s is None else self.standing.walltime_s

    @property
    def limit_s(self) -> float:
        """Latest time at which it is signalled to end."""
        return (self.standing.start_s or 0.0) + self.walltime_s

    @property
    def due_s(self) -> float:
        """Time at which the server must act on it, without any event."""
        if self.standing.ending_s is not None:
            return max(self.standing.ending_s + GRACE_S, self.killed_s + GRACE_S)
        return self.limit_s

    def tell(self, number: signal.Signals) -> None:
        """Signal all processes of the job, if they are certainly its own."""
        if self.child is not None and self.child.returncode is None:
            tell_session(self.child.pid, number)
        elif self.doing is not None and self.doing.is_seen and self.doing.is_alive:
            tell_session(self.doing.pid, number)


@dataclass(slots=True)
class Server:
    """Serves one spool. At most one server may run at a time."""

    spool: Spool
    linger_s: float = LINGER_S  # seconds without jobs after which the server ends
    clock: Callable[[], float] = time.time
    # jobs by number: running; pending in the queue, in order; all pending; and of these the ones outside the queue
    running: dict[int, ServedJob] = field(default_factory=dict)
    blocked: dict[int, ServedJob] = field(default_factory=dict)
    queue: list[int] = field(default_factory=list)
    pending: dict[int, ServedJob] = field(default_factory=dict)
    _over: dict[int, SpooledStanding] = field(default_factory=dict)
    _unwritten: set[int] = field(default_factory=set)
    _heard: set[int] = field(default_factory=set)
    _bell: int = -1
    _changes: int = -1
    _trouble: str = ""
    _retry_s: float = 0.0
    _looked_s: float = 0.0
    _swept_s: float = 0.0
    _foreseen_s: float = 0.0
    _is_outlook_old: bool = True
    _is_leaving: bool = False

    def serve(self) -> None:
        """Work until there has been nothing to do for a while."""
        self._open()
        busy_s = time.monotonic()
        try:
            while not self._is_leaving:
                self._work()
                if self.running or self.pending:
                    busy_s = time.monotonic()
                elif time.monotonic() - busy_s >= self.linger_s and self._is_deserted():
                    return
                self._listen(busy_s)
        finally:
            with suppress(OSError):
                self.spool.pid.unlink()
            for descriptor in (self._bell, self._changes):
                if descriptor >= 0:
                    os.close(descriptor)

    def leave(self) -> None:
        """End soon; running jobs continue."""
        self._is_leaving = True
        with suppress(OSError):
            os.write(self._bell, b"\n")

    def _open(self) -> None:
        self._begin_changes()
        put(self.spool.trouble, b" " * TROUBLE_BYTES)
        put(self.spool.pid, f"{os.getpid()}\n".encode())
        self._hang_bell()

    def _begin_changes(self) -> None:
        """Continue the file of changes, or begin a new one if it has become too long."""
        if self._changes >= 0:
            os.close(self._changes)
        if self.spool.changes.stat().st_size > MAX_CHANGES_BYTES:
            put(self.spool.changes, b"")
        self._changes = os.open(self.spool.changes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _hang_bell(self) -> None:
        # also for writing, so that it never reaches its end
        self._bell = os.open(self.spool.bell, os.O_RDWR | os.O_NONBLOCK)

    def _is_deserted(self) -> bool:
        """Whether no client needs the server; if so, the bell is closed, and later clients notice that it is gone."""
        rang = bool(self._rung())
        os.close(self._bell)
        self._bell = -1
        if not rang and not self._numbers_with_news():
            return True
        self._hang_bell()
        return False

    # ------------------------------------------------------------------ one pass

    def _work(self) -> None:
        """Do all that is due. Files that cannot be written are retried; no change is lost meanwhile."""
        rung = self._rung()
        if (now := time.monotonic()) < self._retry_s:
            self._looked_s = -_LOOK_S  # the next pass looks at everything, so no announced change is missed
            return
        try:
            if now - self._looked_s >= _LOOK_S:
                rung |= self._numbers_with_news()
                self._looked_s = now
            for number in sorted(rung):
                self._care(number, self._look_into)
            for number in [n for n, job in self.running.items() if self._is_worth_a_look(job)]:
                self._care(number, self._follow)
            self._heard = set()
            for number in list(self.blocked):
                self._care(number, self._release)
            self._start_what_may()
            self._tell_outlook()
            self._sweep()
        except OSError as error:
            self._retry_s = now + _RETRY_S
            self._looked_s = -_LOOK_S
            self._note(f"{error.filename or 'the queue'}: {error.strerror or error}")
        else:
            self._note("")

    def _care(self, number: int, do: Callable[[int], None]) -> None:
        """Process a job; forget it if its folder was deleted."""
        try:
            do(number)
        except FileNotFoundError:
            folder = self.spool.jobs / str(number)
            if folder.exists():
                raise
            if (job := self.running.get(number)) is not None:
                job.tell(signal.SIGKILL)
            self._forget(number)

    def _note(self, trouble: str) -> None:
        """Overwrite the file of problems in place."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        text = trouble.encode("utf-8", "replace")[:TROUBLE_BYTES].ljust(TROUBLE_BYTES)
        with suppress(OSError), self.spool.trouble.open("r+b") as file:
            file.write(text)

    def _rung(self) -> set[int]:
        text = b""
        with suppress(BlockingIOError):
            while piece := os.read(self._bell, 1 << 16):
                text += piece
        return {number for line in text.split() if (number := number_of(line)) is not None}

    def _numbers_with_news(self) -> set[int]:
        """Return the jobs that are new, or have a new file in their folder."""
        changed = set()
        for number in self.spool.numbers():
            job = self.running.get(number) or self.pending.get(number)
            try:
                changed_ns = (self.spool.jobs / str(number)).stat().st_mtime_ns
            except FileNotFoundError:
                changed.add(number)
                continue
            if job is None:
                if (self.spool.jobs / str(number) / "order.json").exists():
                    changed.add(number)
            elif job.seen_ns != changed_ns:
                changed.add(number)
        return changed | {n for n in (*self.pending, *self.running) if not (self.spool.jobs / str(n)).exists()}

    def _listen(self, busy_s: float) -> None:
        """Sleep until a bell is rung, a process ends, or something is due."""
        now = time.monotonic()
        if self._retry_s > now:  # events during the pause are seen when it is over
            time.sleep(self._retry_s - now)
            return
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        for job in self.running.values():
            if job.watched is not None:
                poll.register(job.watched, select.POLLIN)
        left = [self._looked_s + _LOOK_S - now, self._due_s() - self.clock()]
        if self._is_outlook_old:
            left.append(self._foreseen_s + _OUTLOOK_S - now)
        if not (self.running or self.pending):
            left.append(busy_s + self.linger_s - now)
        if any(job.watched is None for job in self.running.values()):
            left.append(_BLIND_LOOK_S)
        self._heard = {descriptor for descriptor, _ in poll.poll(max(min(left), 0.001) * 1000)}

    def _due_s(self) -> float:
        """Return when the next job must be signalled to end, or may be released."""
        times = [job.due_s for job in self.running.values()]
        for job in self.blocked.values():
            if "hold" not in job.wanted:
                times += [time_s for time_s, _ in self._conditions(job) if time_s is not None]
        now = self.clock()
        return min((time_s for time_s in times if time_s > now), default=now + _LOOK_S)

    # ------------------------------------------------------------------ new and changed jobs

    def _look_into(self, number: int) -> None:
        """Read a new job, or its user's requests for a known one."""
        job = self.running.get(number) or self.pending.get(number)
        if job is None and (job := self._take_in(number)) is None:
            return
        job.seen_ns = job.folder.stat().st_mtime_ns
        with os.scandir(job.folder) as entries:
            job.wanted = frozenset(e.name for e in entries if e.name in {"hold", "cancel", "walltime"})
        if "walltime" in job.wanted:
            with suppress(ValueError):
                walltime_s = float((job.folder / "walltime").read_text())
                if 0 < walltime_s < _MAX_WALLTIME_S:
                    self._become(job, walltime_s=walltime_s)
        if "cancel" in job.wanted and not job.standing.ending:
            if job.is_pending:
                self._end(job, "cancelled")
            else:
                self._tell_to_end(job, "Cancelled")
        elif job.is_pending and "hold" in job.wanted and number not in self.blocked:
            self.queue.remove(number)
            self.blocked[number] = job

    def _take_in(self, number: int) -> ServedJob | None:
        folder = self.spool.jobs / str(number)
        try:
            order = self.spool.order(number)
            standing = self.spool.standing(number) or SpooledStanding()
        except ValueError:
            self._reject(number)
            return None
        if order is None or not (folder / "order.json").exists():  # the dependency is not valid yet, or has ended
            return None
        job = ServedJob(number, folder, order, standing)
        if standing.is_final:
            self._put_away(number, standing)
        elif job.is_pending:
            self.pending[number] = self.blocked[number] = job
        else:
            self.running[number] = job
            self._follow(number)
        self._is_outlook_old = True
        return None if standing.is_final else job

    def _reject(self, number: int) -> None:
        """Mark a job as failed whose files cannot be read."""
        standing = SpooledStanding(state="failed", reason="BrokenFile", end_s=self.clock())
        folder = self.spool.jobs / str(number)
        if (doing := doing_of(folder)) is not None and doing.is_seen and doing.is_alive:
            tell_session(doing.pid, signal.SIGKILL)
        put(folder / "status.json", written(standing))
        self._put_away(number, standing)

    # ------------------------------------------------------------------ pending jobs

    def _release(self, number: int) -> None:
        """Check why a job is outside the queue, and let it into the queue if nothing keeps it out."""
        job = self.blocked[number]
        if "hold" in job.wanted:
            if (job.folder / "hold").exists():
                self._become(job, eligible_s=None, reason="JobHeldUser")
                return
            job.wanted -= {"hold"}
        now, was_held = self.clock(), job.standing.reason == "JobHeldUser"
        since = job.order.submit_s
        for time_s, reason in self._conditions(job):
            if time_s is None or time_s > now:
                self._become(job, eligible_s=None, reason=reason)
                return
            since = max(since, time_s)
        del self.blocked[number]
        insort(self.queue, number)
        job.standing = replace(job.standing, eligible_s=now if was_held else since, reason="Priority")
        self._unwritten.add(number)  # its state is written later, since the job may start at once
        self._is_outlook_old = True

    def _conditions(self, job: ServedJob) -> Iterator[tuple[float | None, str]]:
        """Yield for each condition of a job the time at which it is met (None if not known yet), and its name."""
        if job.order.begin_s is not None:
            yield job.order.begin_s, "BeginTime"
        for number, kind, delay_s in job.order.dependencies:
            before = self._standing_of(number)
            started_s = None if before.start_s is None else before.start_s + delay_s
            met_s = started_s if kind == "after" else before.end_s
            if kind == OR_END and not before.is_final:
                met_s = started_s
            elif kind == OR_END and started_s is not None and met_s is not None:
                met_s = min(met_s, started_s)
            if before.is_final and (met_s is None or (kind == "afterok" and before.state != "completed")):
                yield None, "DependencyNeverSatisfied"
            yield met_s, "Dependency"

    def _standing_of(self, number: int) -> SpooledStanding:
        job = self.running.get(number) or self.pending.get(number)
        if job is not None:
            return job.standing
        if number not in self._over:
            with suppress(ValueError):
                standing = self.spool.standing(number)
                if standing is None and self.spool.holds(number):
                    return SpooledStanding()  # the server is about to take the job in
                if standing is not None and not standing.is_final:
                    return standing
                if standing is not None:
                    self._over[number] = standing
            self._over.setdefault(number, SpooledStanding(state="failed", end_s=0.0))  # its end is not known
        return self._over[number]

    # ------------------------------------------------------------------ starting jobs

    def _start_what_may(self) -> None:
        """Start jobs in order, each when enough cores are free, without backfilling. Report the jobs that wait."""
        taken = sum(job.order.cores for job in self.running.values())
        local = sum(job.order.is_beside for job in self.running.values())
        is_full = False
        for number in list(self.queue):
            if is_full and local >= MAX_LOCAL:
                break
            order = self.pending[number].order
            if order.is_beside:
                may = local < MAX_LOCAL
            else:
                may = not is_full and taken + order.cores <= order.slots
                is_full |= not may
            if may:
                taken, local = taken + order.cores, local + order.is_beside
                self._care(number, self._start)
        for number in list(self._unwritten):
            if number in self.pending:
                self._care(number, self._tell_of)
            self._unwritten.discard(number)

    def _tell_of(self, number: int) -> None:
        self._write(self.pending[number])

    def _start(self, number: int) -> None:
        job = self.pending[number]
        self._become(job, state="running", start_s=max(self.clock(), job.standing.eligible_s or 0.0), reason="")
        self.queue.remove(number)
        del self.pending[number]
        self.running[number] = job
        self._is_outlook_old = True
        self._begin(job)

    def _begin(self, job: ServedJob) -> None:
        try:
            job.child = begin(job.folder, job.order)
        except OSError as error:
            if error.errno in _BUSY:
                raise OSError(error.errno, f"no process can be started: {error.strerror}", "the queue") from error
            self._end(job, "failed", f"CannotStart: {error.strerror}")
        except (ValueError, subprocess.SubprocessError) as error:  # a text with a null byte, as of a damaged file
            self._end(job, "failed", f"CannotStart: {error}")
        else:
            job.watched = _watch(job.child.pid)

    # ------------------------------------------------------------------ running and ended jobs

    def _is_worth_a_look(self, job: ServedJob) -> bool:
        return job.watched is None or job.watched in self._heard or self.clock() >= job.due_s

    def _follow(self, number: int) -> None:
        """Check a running job: whether it has begun, has ended, or has exceeded its time."""
        job = self.running[number]
        if job.child is None and job.doing is None and not self._is_known(job):
            return
        if job.child is not None:
            self._follow_child(job, job.child)
        elif job.doing is not None:
            self._follow_other(job, job.doing)

    def _is_known(self, job: ServedJob) -> bool:
        """Find the process of a job that an earlier server started; start it if that server was about to."""
        if (doing := doing_of(job.folder)) is not None:
            job.doing, job.watched = doing, doing.watch() if doing.is_seen else None
            return True
        try:
            age_s = self.clock() - (job.folder / "process").stat().st_mtime
        except FileNotFoundError:
            self._begin(job)  # if another process has begun the job meanwhile, the new one ends at once
            return False
        if age_s > _UNBEGUN_S:
            self._conclude(job, code_of(job.folder))
        return False

    def _follow_child(self, job: ServedJob, child: subprocess.Popen[bytes]) -> None:
        if child.returncode is None:
            end = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is None:
                self._keep_time(job)
                return
            # its children end too; its number is not reused yet
            tell_session(child.pid, signal.SIGKILL, whole=end.si_code != os.CLD_EXITED)
            child.wait()
        code = code_of(job.folder)
        if code is None and child.returncode == UNBEGUN_EXIT:
            doing = doing_of(job.folder)
            if doing is None or doing.pid != child.pid:
                self._begin_again(job, doing)
                return
        if code is None and child.returncode >= 0:
            code = child.returncode
        self._conclude(job, code)

    def _begin_again(self, job: ServedJob, doing: Doing | None) -> None:
        """Leave the job to another process that began it; if none did, try again, since the start was not recorded."""
        self._unwatch(job)
        job.child = None
        if doing is None:
            with suppress(FileNotFoundError):
                (job.folder / "process").unlink()
            raise OSError(errno.ENOSPC, "cannot be written", str(job.folder))

    def _follow_other(self, job: ServedJob, doing: Doing) -> None:
        code = code_of(job.folder)
        if not doing.is_seen:  # for example in a container: the process is assumed to run until its latest end
            if code is not None or self.clock() > job.limit_s + 2 * GRACE_S:
                self._conclude(job, code)
        elif doing.is_alive:
            self._keep_time(job)
        else:
            code = code_of(job.folder)  # it may have been written just now
            doing.end_rest()
            self._conclude(job, code, self._written_s(job))

    def _keep_time(self, job: ServedJob) -> None:
        """Signal a job that has reached its walltime; kill a job that was signalled and still runs."""
        now = self.clock()
        if now < job.due_s:
            return
        if not job.standing.ending:
            self._tell_to_end(job, "TimeLimit")
        else:
            job.tell(signal.SIGKILL)
            job.killed_s = now

    def _tell_to_end(self, job: ServedJob, why: str) -> None:
        self._become(job, ending=why, ending_s=self.clock())
        job.tell(signal.SIGTERM)

    def _written_s(self, job: ServedJob) -> float | None:
        """Return when a job ended while no server ran."""
        with suppress(OSError):
            return (job.folder / "code").stat().st_mtime
        return None

    def _conclude(self, job: ServedJob, code: int | str | None, end_s: float | None = None) -> None:
        """Record the end of a job, from its exit code or the text instead."""
        ending = job.standing.ending
        if code == 0:
            self._end(job, "completed", code=0, end_s=end_s)
        elif ending:
            self._end(job, *(("timeout", "TimeLimit") if ending == "TimeLimit" else ("cancelled", "")))
        elif isinstance(code, int):
            self._end(job, "failed", "NonZeroExitCode", code, end_s)
        else:
            self._end(job, "failed", "OutputUnwritable" if code == NO_OUTPUT else "Lost")

    def _end(
        self, job: ServedJob, state: str, reason: str = "", code: int | None = None, end_s: float | None = None
    ) -> None:
        now = self.clock()
        end_s = max(now if end_s is None else min(end_s, now), job.standing.start_s or 0.0)
        self._become(job, state=state, end_s=end_s, exit_code=code, reason=reason)
        self._forget(job.number)
        self._put_away(job.number, job.standing)

    def _become(self, job: ServedJob, **changes: Any) -> None:
        """Change a job's state, in the file as well or not at all."""
        was, job.standing = job.standing, replace(job.standing, **changes)
        if job.standing == was:
            return
        try:
            self._write(job)
        except BaseException:
            job.standing = was
            raise

    def _write(self, job: ServedJob) -> None:
        put(job.folder / "status.json", written(job.standing))
        self._announce(job.number)

    def _announce(self, number: int) -> None:
        with suppress(OSError):  # clients look at all files from time to time
            os.write(self._changes, f"{number}\n".encode())

    def _forget(self, number: int) -> None:
        self.pending.pop(number, None)
        self.blocked.pop(number, None)
        self._unwritten.discard(number)
        with suppress(ValueError):
            self.queue.remove(number)
        if (job := self.running.pop(number, None)) is not None:
            self._unwatch(job)
        self._is_outlook_old = True

    def _unwatch(self, job: ServedJob) -> None:
        if job.watched is not None:
            os.close(job.watched)
            job.watched = None

    def _put_away(self, number: int, standing: SpooledStanding) -> None:
        """Move an ended job to the folder of ended jobs, where it costs no time."""
        self._over[number] = standing
        with suppress(OSError, ValueError):
            self.spool.forget_environment(number)
        with suppress(OSError):  # the next look tries again
            (self.spool.jobs / str(number)).rename(self.spool.ended / str(number))
        self._announce(number)

    # ------------------------------------------------------------------ further reports to clients

    def _tell_outlook(self) -> None:
        """Write predicted starts of pending jobs, not too often."""
        if not self._is_outlook_old or time.monotonic() - self._foreseen_s < _OUTLOOK_S:
            return
        self._is_outlook_old, self._foreseen_s = False, time.monotonic()
        now = self.clock()
        running = {n: (j.standing.start_s or now, j.limit_s, j.order.cores) for n, j in self.running.items()}
        starts = foresee(now, running, self._awaited(now)) if self.pending else {}
        head = next((n for n in self.queue if not self.pending[n].order.is_beside), None)
        put(self.spool.outlook, json.dumps({"head": head, "starts": starts}).encode())

    def _awaited(self, now: float) -> Iterator[Awaited]:
        known = self.running.keys() | self.pending.keys()
        for number in islice(sorted(self.pending), MAX_JOBS):
            job = self.pending[number]
            if "hold" in job.wanted or job.standing.reason == "DependencyNeverSatisfied":
                continue
            order, ready_s = job.order, job.order.begin_s or now
            for before, kind, delay_s in order.dependencies:
                if kind == "after" and before not in known:
                    ready_s = max(ready_s, (self._standing_of(before).start_s or now) + delay_s)
            after = [dependency for dependency in order.dependencies if dependency[0] in known]
            yield Awaited(number, order.cores, order.slots, job.walltime_s, ready_s, after)

    def _sweep(self) -> None:
        """Delete jobs that ended long ago, a few at a time, the oldest first."""
        if time.monotonic() - self._swept_s < _SWEEP_S and self._swept_s:
            return
        now, left = self.clock(), _SWEEP_JOBS
        for number in self.spool.ended_numbers():
            folder = self.spool.ended / str(number)
            if now - folder.stat().st_mtime < KEPT_S:
                break
            if not left:
                return  # the next pass deletes more
            shutil.rmtree(folder, ignore_errors=True)
            self._over.pop(number, None)
            left -= 1
        self._sweep_unordered(now)
        self._begin_changes()
        self._swept_s = time.monotonic()

    def _sweep_unordered(self, now: float) -> None:
        for number in self.spool.numbers():
            folder = self.spool.jobs / str(number)
            with suppress(FileNotFoundError):
                if not (folder / "order.json").exists() and now - folder.stat().st_mtime > _UNORDERED_S:
                    shutil.rmtree(folder, ignore_errors=True)


def _watch(pid: int) -> int | None:
    """Open a descriptor that signals the end of a child; None if the system has none."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def main(root: str, linger_s: str) -> None:
    """Serve a spool, unless another process does."""
    spool = Spool(Path(root))
    spool.make()
    server = Server(spool, float(linger_s))
    signal.signal(signal.SIGHUP, lambda *_: None)  # an ignored signal would stay ignored in jobs
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: server.leave())
    for _ in range(_TRIES):
        with locked(spool.lock) as is_free:
            if is_free:
                server.serve()
                return
        if spool.ring():
            return  # another process serves
        time.sleep(0.02)  # the other server is about to end
