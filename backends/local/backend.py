"""A client's view of a machine's queue."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from asa.backends.shell.environment import carried
from asa.backends.shell.marks import KeptSubmission, Mark, MarksFolder, StepMarks
from asa.backends.shell.script import batch_script, job_name, payload_of, refuse_unwritable

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
from asa.core.documents import read_json
from asa.core.files import put, read_file, read_text
from asa.core.python import bare_command
from asa.core.variables import asked
from asa.errors import BackendError, JobNotFoundError, SubmitRejectedError, UnavailableError
from asa.outcome import JobOutcome, without_mark
from asa.waits import QueueEvent

from .explanations import DUPLICATE, LOST, PAYLOAD_COMPLETED, advice
from .feed import LocalQueueFeed
from .likeness import as_in_slurm, stand_ins_in
from .spool import OR_END, Changes, JobOrder, Spool, SpooledStanding, is_same_machine

JOB_VARIABLE = "ASA_JOB_ID"
"""Variable with a job's id, for the job."""

_MIN_LOOK_S, _MAX_LOOK_S = 0.02, 0.1
_MARKS_S = 0.5  # interval between checks of a running job's markers
_ALL_S = 10.0  # interval between checks of all files, in case a change was not announced
_ELSEWHERE_S = 5.0  # interval between checks of jobs of another host
# a job of a container that is gone counts as lost this long after its last sign of life, or its latest possible end
_OVERDUE_S = 120.0
_SERVER_S = 1.0  # interval between checks whether a server runs
_MAX_SERVER_S = 60.0
_PAUSES_S = (0.1, 0.2, 0.3, 0.5)
_QUEUES = ("Priority", "Resources")  # reasons that change while a job queues
_LONGEST_WALLTIME_S = 1e9
_ELSEWHERE = "--option spool=DIR names another folder."
_SPACE = f"Free disk space, or fix the permissions; {_ELSEWHERE}"


@dataclass(slots=True)
class _Known:
    """A job of this client."""

    job_id: str
    number: int
    host: str
    kept: KeptSubmission
    status: JobStatus
    reported: JobStatus | None = None
    marks_s: float = -math.inf

    @property
    def is_live(self) -> bool:
        return not self.status.state.is_final

    @property
    def is_news(self) -> bool:
        return self.reported is None or _essence(self.reported) != _essence(self.status)

    @property
    def has_marks(self) -> bool:
        """Whether the job's markers say more than the server while the job runs."""
        return bool(self.kept.steps) or self.kept.awaits

    @property
    def may_tell(self) -> bool:
        """Whether to read its markers, since the server does not report their content."""
        return self.has_marks and self.status.state is JobState.RUNNING

    def tell(self) -> JobStatus:
        self.reported = self.status
        return self.status


class LocalBackend:
    """A machine's queue for a client of one run; implements `Backend`, `Adjustable` and `Advisor`.

    It reads the state of its jobs from the queue's files and the run's markers, so that another client of the same run
    has the same information. It starts the queue's server if none runs.

    `spool`: folder of all queues of the user, one for each host.
    `sleep`: sleeps up to the given number of seconds; returns True if `wait` is to return early.
    `slurm`: what jobs find of Slurm; a word of `.settings.SLURM`.
    `linger_s`: seconds without jobs after which a server that this client started ends.
    """

    def __init__(
        self,
        spool: Path,
        host: str,
        folder: Path,
        capabilities: Capabilities,
        *,
        environment: Mapping[str, str],
        work: Path,
        sleep: Callable[[float], bool | None] = time.sleep,
        clock: Callable[[], float] = time.time,
        linger_s: float = 30.0,
        slurm: str = "variables",
    ) -> None:
        self._folder = MarksFolder(folder)
        self._spools, self._host = spool, host
        self._spool = Spool(spool / host)
        try:
            self._spool.make()
            self._changes = Changes(self._spool.changes)
            stand_ins = stand_ins_in(self._spool.root / "commands") if slurm == "commands" else ""
        except OSError as error:
            raise _unavailable(self._spool.root, error) from error
        self._capabilities = capabilities
        self._environment, self._work = dict(environment), work
        if stand_ins:
            self._environment["PATH"] = f"{stand_ins}:{environment.get('PATH') or os.defpath}"
            self._environment["ASA_STAND_INS"] = stand_ins
        self._sleep, self._clock, self._linger_s = sleep, clock, linger_s
        self._shows_slurm = slurm != "no"
        self._umask, self._affinity = _umask(), tuple(sorted(os.sched_getaffinity(0)))
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        self._jobs: dict[str, _Known] = {}
        self._live: dict[str, _Known] = {}
        self._changed_jobs: dict[str, _Known] = {}
        self._outlook: tuple[int, dict[str, Any]] = (0, {})
        self._feed = LocalQueueFeed(capabilities.system)
        self._feed_changes: Changes | None = None
        self._heard_s, self._calls = clock(), 0
        self._trouble = ""
        self._changed_s = clock()
        self._all_s = self._elsewhere_s = self._asked_s = -math.inf
        self._started_s, self._start_pause_s = -math.inf, _SERVER_S

    # ------------------------------------------------------------------ constant facts

    @property
    def capabilities(self) -> Capabilities:
        """Abilities of the machine."""
        return self._capabilities

    @property
    def condition(self) -> Condition:
        """Whether the queue can be read, and problems of its server."""
        return Condition(self._heard_s, self._trouble or self._troubles(), self._calls)

    def now(self) -> float:
        """Read the clock, in seconds since 1970."""
        return self._clock()

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed."""
        return advice(reason)

    def _troubles(self) -> str:
        """Return a text on problems of the server, and on jobs that are not visible here; empty for none."""
        if not self._live:
            return ""
        if elsewhere := [job for job in self._live.values() if job.host != self._host]:
            job = elsewhere[0]
            text = f"job {job.job_id} runs on {job.host}, and this is {self._host}: resume the run there"
            is_near = is_same_machine(job.host, self._host)
            return f"{text}; if that container is no more, its jobs count as lost in their time" if is_near else text
        if self._start_pause_s > 2 * _SERVER_S:
            return f"the queue's server does not start; what it said is in {self._spool.log}"
        with suppress(OSError):
            return read_text(self._spool.trouble, errors="replace").strip()
        return ""

    # ------------------------------------------------------------------ submission

    def submit(self, spec: JobSpec) -> str:
        """Submit a job and return its id; see `asa.backend.Backend.submit`."""
        self._refuse_the_impossible(spec)
        dependencies = self._dependencies(spec)
        name = job_name(spec.name, spec.token)
        # with a random part, so that two submissions of a token do not overwrite each other's output
        output = f"{name}-{uuid.uuid4().hex[:6]}"
        script = self._script(spec, name)
        self._folder.supersede(spec.supersedes)
        self._folder.keep_script(name if spec.token else output, script)
        try:
            number = self._spool.next_number()
        except OSError as error:
            raise _unavailable(self._spool.root, error) from error
        job_id, submit_s = f"{number}@{self._host}", self.now()
        kept_back = bool(dependencies) or spec.begin_s is not None or spec.held
        steps = tuple(step.name for step in spec.steps)
        kept = KeptSubmission(name, spec.token, spec.begins_late, steps, kept_back, spec.walltime_s, submit_s)
        order = JobOrder(
            job_id=job_id,
            cores=0 if spec.local else max(spec.cores, spec.nodes * self._capabilities.cores_per_node),
            slots=self._capabilities.max_cores,
            walltime_s=spec.walltime_s,
            submit_s=submit_s,
            run=str(self._folder.root),
            stdout=self._folder.output(output, "out"),
            stderr=self._folder.output(output, "err"),
            environment=carried({**self._environment, **asked(spec.secrets)}),
            umask=self._umask,
            dependencies=dependencies,
            begin_s=spec.begin_s,
            is_beside=spec.local,
            affinity=self._affinity,
            nice=self._nice,
        )
        self._folder.announce_job(job_id, kept)
        try:
            self._spool.publish(number, order, script.encode(), held=spec.held)
        except OSError as error:
            raise _unavailable(self._spool.root, error) from error
        eligible_s = None if kept_back else submit_s
        status = JobStatus(job_id, JobState.PENDING, submit_s, eligible_s=eligible_s)
        self._track(_Known(job_id, number, self._host, kept, status)).tell()
        self._changed_s = submit_s
        self._ring(number)
        return job_id

    def preview(self, spec: JobSpec) -> dict[str, str]:
        """Show what `submit` would run; see `asa.backend.Previewing`."""
        self._refuse_the_impossible(spec)
        return {"script": self._script(spec, job_name(spec.name, spec.token))}

    def _script(self, spec: JobSpec, name: str) -> str:
        before = as_in_slurm(spec, name) if self._shows_slurm and not spec.local else ()
        payload = payload_of(spec, name, str(self._work), self._folder.marks, self._folder.posts, before=before)
        return batch_script(payload, JOB_VARIABLE, _PAUSES_S, calls="script-here")

    def _refuse_the_impossible(self, spec: JobSpec) -> None:
        """Refuse jobs that can never run."""
        refuse_unwritable(spec, str(self._work), below_s=_LONGEST_WALLTIME_S)
        if not spec.local and (impossible := self._capabilities.impossible(spec)) is not None:
            hint = "Ask for what this machine has."
            raise SubmitRejectedError(impossible, where=f"job {spec.name!r}", hint=hint)

    def _dependencies(self, spec: JobSpec) -> tuple[tuple[int, str, float], ...]:
        """Return a job's dependencies as sent to the server; those already met are left out.

        Raises `UnavailableError`: the other job is on another host and has not ended yet.
        """
        passed = []
        for dependency in spec.dependencies:
            number, host = _parsed(dependency.job_id)
            if host == self._host and self._spool.holds(number):
                kind = OR_END if dependency.or_end else str(dependency.type)
                passed.append((number, kind, dependency.delay_s))
                continue
            try:
                status = self.status([dependency.job_id])[dependency.job_id]
            except JobNotFoundError:
                raise SubmitRejectedError(
                    f"depends on job {dependency.job_id}, which is not known here",
                    where=f"job {spec.name!r}",
                    hint="It may have ended long ago: find out how, and submit this one without the dependency.",
                ) from None
            if not status.state.is_final:
                raise UnavailableError(
                    f"depends on job {dependency.job_id}, which runs on {host}",
                    where=f"job {spec.name!r}",
                    hint="Resume the run there.",
                )
            well = status.state is JobState.COMPLETED
            if dependency.type is DependencyType.AFTEROK and not well:
                raise SubmitRejectedError(
                    f"depends on job {dependency.job_id}, which did not complete", where=f"job {spec.name!r}"
                )
        return tuple(passed)

    # ------------------------------------------------------------------ changes

    def cancel(self, job_id: str) -> None:
        """Cancel a job; do nothing if it has ended."""
        self._want(job_id, "cancel", lambda path: path.touch())

    def withdraw(self, job_id: str) -> bool:
        """Ensure that a job's payload does not begin; see `asa.backend.Withdrawing`."""
        token = self._known(job_id).kept.token
        return not token or self._folder.withdraw(token)

    def hold(self, job_id: str) -> None:
        """Keep a pending job from starting."""
        self._want(job_id, "hold", lambda path: path.touch())

    def release(self, job_id: str) -> None:
        """Release a held job."""
        self._want(job_id, "hold", lambda path: path.unlink(missing_ok=True))

    def change_walltime(self, job_id: str, walltime_s: float) -> None:
        """Change a job's walltime; see `asa.backend.Adjustable`."""
        if not 0 < walltime_s < _LONGEST_WALLTIME_S:
            raise BackendError(f"a walltime of {walltime_s} s cannot be", where=f"job {job_id}", hint="Ask for other.")

        if not self._want(job_id, "walltime", lambda path: put(path, repr(float(walltime_s)).encode())):
            raise BackendError("has ended", where=f"job {job_id}", hint="Its time limit is of no matter any more.")

    def _want(self, job_id: str, name: str, write: Callable[[Path], None]) -> bool:
        """Write a request into a job's folder; return whether the job had not ended."""
        job = self._known(job_id)
        if not job.is_live:
            return False
        folder = self._spools / job.host / "jobs" / str(job.number)
        try:
            write(folder / name)
        except FileNotFoundError as error:
            if job.host == self._host:
                return False  # the job has just ended
            raise UnavailableError(
                f"runs on {job.host}, whose queue is not to be seen on {self._host}",
                where=f"job {job_id}",
                hint="Try again there.",
            ) from error
        except OSError as error:
            raise _unavailable(folder, error) from error
        self._changed_s = self.now()
        if job.host == self._host:
            self._ring(job.number)
        return True

    # ------------------------------------------------------------------ looks

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the status of several jobs; see `asa.backend.Backend.status`."""
        wanted = [self._known(job_id) for job_id in dict.fromkeys(job_ids)]
        self._look()
        return {job.job_id: job.tell() for job in wanted}

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Find jobs by their tokens; see `asa.backend.Backend.find`."""
        found: dict[str, list[_Known]] = {token: [] for token in tokens}
        for job_id in sorted(self._folder.job_ids()):
            kept = self._folder.kept_job(job_id) if "@" in job_id else None
            if kept is not None and kept.token in found and (job := self._if_known(job_id)) is not None:
                found[kept.token].append(job)
        self._look()
        statuses = {}
        for token, jobs in found.items():
            holder = self._folder.holder(token)
            jobs.sort(key=lambda job: (job.job_id != holder, job.number))
            statuses[token] = [job.tell() for job in jobs]
        return statuses

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Sleep until jobs changed or the clock reads `until_s`; see `asa.backend.Backend.wait`."""
        while True:
            self._look()
            self._see_to_server()
            news = self._news()
            now = self.now()
            if news or (until_s is not None and now >= until_s):
                return news
            is_live = bool(self._live)
            if until_s is None and not is_live:
                return []
            pause_s = math.inf if until_s is None else until_s - now
            if is_live:
                pause_s = min(pause_s, max((now - self._changed_s) / 20, _MIN_LOOK_S), _MAX_LOOK_S)
            if self._sleep(max(pause_s, 0.001)):
                self._look()
                return self._news()

    def _news(self) -> list[JobStatus]:
        """Return the jobs that changed since they were reported."""
        changed, self._changed_jobs = self._changed_jobs, {}
        return [job.tell() for job in changed.values() if job.is_news]

    def _look(self) -> None:
        """Read the files that changed. Errors in reading are recorded, not raised."""
        self._calls += 1
        now_s = time.monotonic()
        try:
            numbers = self._changes.fresh()
            if numbers is None or now_s - self._all_s >= _ALL_S:
                numbers, self._all_s = None, now_s
            is_elsewhere_due = now_s - self._elsewhere_s >= _ELSEWHERE_S
            if is_elsewhere_due:
                self._elsewhere_s = now_s
            for job in list(self._live.values()):
                if job.host != self._host:
                    is_due = is_elsewhere_due
                else:
                    is_due = numbers is None or job.number in numbers
                    is_due |= job.may_tell and now_s - job.marks_s >= _MARKS_S
                if is_due:
                    self._hear(job)
        except (OSError, UnavailableError) as error:
            self._trouble = str(error).partition("\n")[0]
            self._all_s = -math.inf
        else:
            self._heard_s, self._trouble = self.now(), ""
        self._add_outlook()

    def _hear(self, job: _Known) -> None:
        """Read a job's state from the server's files, refined by the run's markers."""
        spool = self._spool if job.host == self._host else Spool(self._spools / job.host)
        if spool is not self._spool and spool.is_strange():
            return
        try:
            standing = spool.standing(job.number)
        except ValueError:
            standing = SpooledStanding(state="failed", reason="BrokenFile", end_s=self.now())
        was = job.status
        if standing is not None:
            job.marks_s = time.monotonic()
            job.status = self._refined(job, standing)
        elif not spool.holds(job.number):
            job.status = self._by_marks(job)
        if job.is_live and job.host != self._host and is_same_machine(job.host, self._host):
            job.status = self._in_another_space(job, spool, standing or SpooledStanding())
        if job.status != was:
            self._changed_s = self.now()
            self._changed_jobs[job.job_id] = job
        if not job.is_live:
            self._live.pop(job.job_id, None)
        elif job.status.state is JobState.PENDING:
            self._foretell(job)

    def _refined(self, job: _Known, standing: SpooledStanding) -> JobStatus:
        state = JobState(standing.state)
        status = JobStatus(
            job.job_id,
            state,
            job.kept.submit_s,
            eligible_s=standing.eligible_s,
            start_s=standing.start_s,
            end_s=standing.end_s,
            exit_code=standing.exit_code,
            reason=standing.reason,
        )
        if standing.start_s is None:
            return status
        min_s, max_s = standing.start_s, math.inf if standing.end_s is None else standing.end_s
        has_failed = state.is_final and state is not JobState.COMPLETED
        ended = self._folder.ended(job.job_id, job.kept.token) if has_failed else None
        if standing.exit_code is not None:
            outcome = without_mark(standing.exit_code) if ended is None else ended.outcome
            status = replace(status, outcome=outcome)
        is_duplicate = status.outcome is JobOutcome.DUPLICATE and self._folder.holder(job.kept.token) not in (
            None,
            job.job_id,
        )
        began = self._folder.began(job.job_id, job.kept.token) if job.kept.awaits else None
        payload_start_s: float | None = min_s
        if is_duplicate:
            payload_start_s = None
        elif job.kept.awaits:
            payload_start_s = None if began is None else min(max(began.time_s, min_s), max_s)
            if began is None and state is JobState.COMPLETED:
                payload_start_s = min_s  # the payload did run, even if its markers are lost
        marks = self._folder.steps(job.job_id, job.kept.token, len(job.kept.steps)) if job.kept.steps else []
        # even if something ended the job after its payload
        if job.kept.token and ended is not None and ended.exit_code == 0:
            status = replace(
                status, state=JobState.COMPLETED, exit_code=0, reason=PAYLOAD_COMPLETED, outcome=JobOutcome.COMPLETED
            )
        return replace(
            status,
            payload_start_s=payload_start_s,
            reason=DUPLICATE if is_duplicate else status.reason,
            steps=_steps(job.kept.steps, marks, min_s, max_s),
        )

    def _by_marks(self, job: _Known) -> JobStatus:
        """Return the state of a job without files in the queue: they were deleted, or are on another host."""
        began = self._folder.began(job.job_id, job.kept.token)
        ended = self._folder.ended(job.job_id, job.kept.token)
        submit_s = job.kept.submit_s
        start_s = None if began is None else max(began.time_s, submit_s)
        status = replace(job.status, eligible_s=start_s, start_s=start_s, payload_start_s=start_s)
        if ended is not None:
            end_s = max(ended.time_s, start_s or submit_s)
            code = ended.exit_code or 0
            state, reason = (JobState.FAILED, "NonZeroExitCode") if code else (JobState.COMPLETED, "")
            return replace(status, state=state, end_s=end_s, exit_code=code, reason=reason, outcome=ended.outcome)
        if job.host == self._host:
            return replace(status, state=JobState.FAILED, end_s=self.now(), reason=LOST)
        return status if began is None else replace(status, state=JobState.RUNNING)

    def _in_another_space(self, job: _Known, spool: Spool, standing: SpooledStanding) -> JobStatus:
        """Return the state of a job from a container of the same name, perhaps this one before a restart.

        Its processes are not visible from here. So its state follows from its markers and, if its queue has no server,
        from its age.
        """
        if (by_marks := self._by_marks(job)).state.is_final or spool.is_served():
            return by_marks if by_marks.state.is_final else job.status
        start_s = job.status.start_s
        if start_s is None:
            last_s = max(job.kept.submit_s, spool.sign_s(job.number))
        else:
            last_s = start_s + (job.kept.walltime_s if standing.walltime_s is None else standing.walltime_s)
        if self.now() - last_s <= _OVERDUE_S:
            return job.status
        with suppress(OSError):  # the job must not run later
            spool.check()
            (spool.jobs / str(job.number) / "cancel").touch()
        return replace(job.status, state=JobState.FAILED, end_s=self.now(), reason=LOST)

    def _add_outlook(self) -> None:
        """Update the predicted starts of pending jobs, and the head-of-queue job."""
        with suppress(OSError, ValueError):
            changed_ns = self._spool.outlook.stat().st_mtime_ns
            if changed_ns != self._outlook[0]:
                self._outlook = changed_ns, _outlook(read_json(read_file(self._spool.outlook)))
                for job in self._live.values():
                    if job.status.state is JobState.PENDING:
                        self._foretell(job)

    def _foretell(self, job: _Known) -> None:
        if job.host != self._host:
            return
        head, starts = self._outlook[1].get("head"), self._outlook[1].get("starts", {})
        reason = job.status.reason
        if reason in _QUEUES:
            reason = "Resources" if head == job.number else "Priority"
        job.status = replace(job.status, expected_start_s=starts.get(str(job.number)), reason=reason)

    def _known(self, job_id: str) -> _Known:
        """Return the record of a job of this run; of another run's job, if it can be found."""
        if (job := self._if_known(job_id)) is None:
            raise JobNotFoundError(
                f"is not known in the queue of {self._host}", where=f"job {job_id!r}", hint="Check the id."
            )
        return job

    def _if_known(self, job_id: str) -> _Known | None:
        if (job := self._jobs.get(job_id)) is not None:
            return job
        try:
            number, host = _parsed(job_id)
        except JobNotFoundError:
            return None
        order = None
        with suppress(OSError, ValueError):
            spool = Spool(self._spools / host)
            spool.check()
            order = spool.order(number)
        kept = self._folder.kept_job(job_id)
        if kept is None and order is not None:
            kept = KeptSubmission(
                "", "", awaits=False, steps=(), kept_back=False, walltime_s=order.walltime_s, submit_s=order.submit_s
            )
        if kept is None or (order is None and not self._may_be(job_id, kept, host)):
            return None
        status = JobStatus(
            job_id, JobState.PENDING, kept.submit_s, eligible_s=None if kept.kept_back else kept.submit_s
        )
        job = self._track(_Known(job_id, number, host, kept, status))
        self._hear(job)
        return job

    def _track(self, job: _Known) -> _Known:
        self._jobs[job.job_id] = self._live[job.job_id] = self._changed_jobs[job.job_id] = job
        return job

    def _may_be(self, job_id: str, kept: KeptSubmission, host: str) -> bool:
        """Whether a job without files in the queue may exist: it has markers, or its queue cannot be seen from here."""
        if host != self._host:
            return True
        return self._folder.began(job_id, kept.token) is not None or self._folder.ended(job_id, kept.token) is not None

    # ------------------------------------------------------------------ the server

    def _ring(self, number: int) -> None:
        with suppress(OSError):  # `wait` starts a server if needed
            if not self._spool.ring(number):
                self._start()

    def _see_to_server(self) -> None:
        """Start a server if there is none; retry less often if that does not help."""
        now_s = time.monotonic()
        if now_s - self._asked_s < _SERVER_S or not any(j.host == self._host for j in self._live.values()):
            return
        self._asked_s = now_s
        with suppress(OSError):
            if self._spool.ring():
                self._start_pause_s = _SERVER_S
            elif now_s - self._started_s >= self._start_pause_s:
                self._start_pause_s = min(2 * self._start_pause_s, _MAX_SERVER_S)
                self._start()

    def _start(self) -> None:
        if time.monotonic() - self._started_s < _SERVER_S:
            return
        self._started_s = time.monotonic()
        start_server(self._spool, self._linger_s)

    # ------------------------------------------------------------------ jobs of all users

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Report what the jobs of other runs did since the last call; see `asa.backend.Backend.queue_events`."""
        try:
            if self._feed_changes is None:
                self._feed_changes = Changes(self._spool.changes)
            elif self._feed_changes.fresh() == set():
                return []
            own = {
                _parsed(job_id)[0]
                for job_id in (*self._jobs, *self._folder.job_ids())
                if job_id.endswith(f"@{self._host}")
            }
            return self._feed.news(self._spool, own, most, ends=ends)
        except OSError:
            return []


def start_server(spool: Spool, linger_s: float) -> None:
    """Start a server that outlives this process and is not its child."""
    begin = bare_command("-c", _SERVE, str(Path(__file__).parent), str(spool.root), str(linger_s))
    with spool.log.open("ab") as log:
        if log.tell() > _MAX_LOG_BYTES:
            log.truncate(0)
        subprocess.run(  # noqa: S603 - ourselves
            ["/bin/sh", "-c", '"$@" &', "sh", *begin],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            check=True,
        )


# The server's modules need only the standard library. They are loaded as a separate package: as a part of `asa` they
# would first import `asa`, which takes longer than all that the server does for a job.
_SERVE = """
import sys, types
folder, *arguments = sys.argv[1:]
package = types.ModuleType("asa_queue")
package.__path__ = [folder]
sys.modules["asa_queue"] = package
from asa_queue.server import main
main(*arguments)
"""
_MAX_LOG_BYTES = 1 << 20


def _parsed(job_id: str) -> tuple[int, str]:
    """Split a job's id into number and host."""
    number, sign, host = job_id.partition("@")
    if not (sign and host and "/" not in host and number.isascii() and number.isdecimal()):
        raise JobNotFoundError("is no id of a job", where=f"job {job_id!r}", hint="Ids are as in 17@login1.")
    return int(number), host


def _steps(names: Sequence[str], marks: Collection[StepMarks], min_s: float, max_s: float) -> tuple[StepTimes, ...]:
    """Return the beginnings and ends of steps, limited to the job's own times, since markers have whole seconds."""

    def within(mark: Mark) -> float:
        return min(max(mark.time_s, min_s), max_s)

    return tuple(
        StepTimes(
            names[mark.index],
            within(mark.began),
            None if mark.ended is None else within(mark.ended),
            exit_code=None if mark.failed is None else mark.failed.exit_code,
            outcome=None if mark.failed is None else mark.failed.outcome,
        )
        for mark in marks
    )


def _outlook(document: Any) -> dict[str, Any]:
    """Return the predicted starts, and the head-of-queue job, as far as they are understood."""
    starts = document.get("starts") if isinstance(document, dict) else None
    if not isinstance(starts, dict):
        return {}
    return {
        "head": document.get("head"),
        "starts": {n: at_s for n, at_s in starts.items() if type(at_s) in (int, float)},
    }


def _essence(status: JobStatus) -> JobStatus:
    """Leave out fields that change without significance."""
    reason = "" if status.reason in _QUEUES else status.reason
    return replace(status, expected_start_s=None, reason=reason)


def _umask() -> int:
    """Return this process's umask as the system shows it; `os.umask` would have to change it for a moment."""
    with suppress(OSError):
        for line in read_text(Path("/proc/self/status"), errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def _unavailable(path: Path, error: OSError) -> UnavailableError:
    # the message says what to do about a folder of another user
    remedy = _ELSEWHERE if error.errno == errno.EPERM else _SPACE
    return UnavailableError(
        f"cannot be used: {error.strerror or error}",
        where=str(error.filename or path),
        hint=f"Nothing was submitted. {remedy}",
    )
