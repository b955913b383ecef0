"""Slurm as a batch system, over either link."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from asa.backends.shell.marks import KeptSubmission, MarksFolder
from asa.backends.shell.script import file_name, job_name, note_of

from asa.backend import Advice, Capabilities, Condition, Dependency, JobSpec, JobState, JobStatus
from asa.elements import Array, Elements
from asa.errors import (
    AccessError,
    BackendError,
    InputError,
    JobNotFoundError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)
from asa.printable import first_of
from asa.waits import QueueEvent

from . import explanations
from .absence import Inquiry
from .arrays import TrackedArray, by_array, has_ended, known_of, past_of
from .clock import ClockOffset
from .cluster import HomeCluster
from .defaults import JobDefaults
from .dependencies import Passed, is_unmet, pass_on
from .feed import SlurmQueueFeed
from .growing import JoiningJob, not_now, refuse_unless_possible
from .identity import AnothersJobError, OwnJobs, has_token, is_member, is_same, number_of, token_of
from .link import SlurmLink, SlurmRecord, is_renumbered
from .pacing import Pacer
from .preflight import SlurmPreflight
from .resizing import can_resize
from .states import ended_as, names_of
from .together import Groups, TrackedMember, goes_alone, refuses_all
from .tracking import TrackedJob
from .writing import JobWriter, heeds

_FRESH_S = 2.0  # a job seen alive within this time cannot be forgotten before another depends on it
_MIN_SLEEP_S = 0.001
_QUEUE_RETRY_S = 60.0
_NOTHING = "#!/bin/sh\nexit 0\n"
_SURVEYED_S = 60.0  # lower bound of the interval between surveys of the site
_MINUTE_S, _MAX_ESTIMATES = 60.0, 12


class SlurmBackend:
    """One user's view of a Slurm cluster; fits the ports `Backend`, `Adjustable` and `Advisor`.

    It asks for all its jobs in one call, seldom while nothing changes, and answers from the last result. Slurm may be
    unavailable for any time: `wait` keeps asking, and `condition` reports it.

    `own`: where the scripts and records of its jobs are, if jobs of other clusters use the folder, too.
    `poll_s`: lower bound of the seconds between two looks, except before a job with dependencies is submitted.
    `max_poll_s`: upper bound while nothing happens, plus or minus a tenth.
    `settle_s`: seconds for which an accepted job may be missing from Slurm's answers.
    `queue_poll_s`: lower bound of the seconds between queries of the whole queue.
    `sleep`: sleeps up to the given number of seconds. If it returns True, `wait` returns early.
    `survey`: reads the site's abilities again, before a job that exceeds them is refused.
    """

    def __init__(
        self,
        link: SlurmLink,
        folder: Path,
        capabilities: Capabilities,
        *,
        own: Path | None = None,
        defaults: JobDefaults | None = None,
        poll_s: float = 2.0,
        max_poll_s: float = 60.0,
        settle_s: float = 10.0,
        queue_poll_s: float = 300.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], bool | None] = time.sleep,
        seed: int = 0,
        survey: Callable[[], Capabilities] | None = None,
    ) -> None:
        self._survey, self._surveyed_s = survey, -math.inf
        self._folder = MarksFolder(folder, own)
        self._groups = Groups(link, self._folder)
        self._link = self._groups.as_link
        self._capabilities = capabilities
        self._writer = JobWriter(defaults or JobDefaults(), self._folder)
        self._poll_s = poll_s
        self._settle_s = settle_s
        self._clock = clock
        self._sleep = sleep
        self._offset = ClockOffset()
        self._jobs: dict[str, TrackedJob] = {}
        self._watched: dict[str, TrackedJob] = {}  # those that are live, or have news that was not reported
        self._pacer = Pacer(clock(), min_s=poll_s, max_s=max_poll_s, seed=seed)
        self._heard_s = self.now()
        self._user = ""
        self._trouble = ""
        self._feed = SlurmQueueFeed(capabilities.system)
        self._feed_poll_s = queue_poll_s
        self._feed_due_s = -math.inf
        self._estimated_s: list[float] = []
        self._home = HomeCluster(link, folder, clock, own=own)
        self._preflight = SlurmPreflight(link)
        self._highest: int | None = None  # highest number of a job submitted from here; None if not looked up
        self._last_known: Callable[[str], JobStatus | None] = lambda _: None  # of jobs of earlier clients
        self._strangers: set[str] = set()  # jobs that were asked for, and are not known to be this run's
        # of jobs that have grown, the one of their script first: which these are is not seen by their order in Slurm
        self._nodes_in_order: dict[str, list[str]] = {}
        self._own = OwnJobs(self._link, self._expected, user=lambda: self._user, is_settling=self._is_settling)

    # ------------------------------------------------------------------ known without a request

    @property
    def capabilities(self) -> Capabilities:
        """Abilities of the site."""
        return self._capabilities

    @property
    def condition(self) -> Condition:
        """Whether Slurm answers at the moment."""
        return Condition(self._heard_s, self._trouble, sum(self._link.calls.values()))

    def now(self) -> float:
        """Read Slurm's clock, in whole seconds since 1970."""
        return float(math.floor(self._clock() + self._offset.offset_s))

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed."""
        return explanations.advice(reason)

    def check_cluster(self) -> None:
        """Raise if this is not the run's cluster.

        Raises `OtherClusterError`: it is another cluster. Raises `UnavailableError`: Slurm does not answer.
        """
        self._home.check()

    def recall(self, last_known: Callable[[str], JobStatus | None]) -> None:
        """Go on from what earlier clients have seen; see `asa.backend.Recalls`."""
        self._last_known = last_known

    def close(self) -> None:
        """Close the link."""
        self._link.close()

    # ------------------------------------------------------------------ submission

    def submit(self, spec: JobSpec) -> str:
        """Submit a job and return its id; see `asa.backend.Backend.submit`.

        Slurm delays a dependency of type `after` by whole minutes: such a job may start up to a minute late, unless the
        other had already started at its submission.
        """
        self._survey_again(spec)
        self._refuse_the_impossible(spec)
        self._home.confirm(self._is_at_home, before=True)
        passed = self._passed(spec)
        name = job_name(spec.name, spec.token)
        number = uuid.uuid4().hex[:6]  # random, so that two submissions of a token do not overwrite each other's output
        script = self._writer.script(spec, name, self._capabilities)
        self._folder.supersede(spec.supersedes)
        self._folder.keep_script(name if spec.token else f"{name}-{number}", script)
        job = self._writer.job(spec, name, script, passed, self._capabilities, output=f"{name}-{number}")
        before_s = self._clock()
        try:
            job_id = self._link.submit(job)
        except SubmitRejectedError as error:
            self._home.confirm(self._is_at_home)  # a refusal of another cluster does not count
            self._excuse(spec, passed, error)
            raise
        self._check_number(job_id, name)
        self._accepted(job_id, self._to_keep(spec, name, passed), before_s, passed.kept, is_held=spec.held)
        return job_id

    def goes_alone(self, options: Sequence[str], texts: Iterable[str]) -> bool:
        """Tell whether a job is to be no element of an array; see `asa.backend.SubmitsTogether`, and `together`."""
        return goes_alone(options, texts)

    def submit_together(self, specs: Sequence[JobSpec]) -> list[str]:
        """Submit jobs with equal requests as one job array; see `asa.backend.SubmitsTogether`, and `together`."""
        try:
            return self._submit_together(specs)
        except SubmitRejectedError as error:
            if refuses_all(error):
                raise
            raise SubmitDeferredError(error.message, where=error.where, hint=error.hint) from error

    def _submit_together(self, specs: Sequence[JobSpec]) -> list[str]:
        first, names = specs[0], [job_name(spec.name, spec.token) for spec in specs]
        if len({spec.request_alone for spec in specs}) > 1 or first.request_alone is None:
            raise ValueError("these jobs do not ask for the same")
        self._survey_again(first)
        for spec in specs:
            self._refuse_the_impossible(spec)
        self._home.confirm(self._is_at_home, before=True)
        passed, number = self._passed(first), uuid.uuid4().hex[:6]
        by_name = dict(zip(names, specs, strict=True))
        for name, spec in by_name.items():
            self._folder.keep_script(name, self._writer.script(spec, name, self._capabilities))
        all_of_them = replace(
            first,
            token=f"{first.token}x{len(specs)}",
            comment=first_of([spec.comment for spec in specs if spec.comment]),
            array=Array(Elements.of(range(len(specs)))),
        )
        name = job_name(f"{first.name}+{len(specs) - 1}", all_of_them.token)
        output = f"{name}-{number}"
        script = self._writer.group_script(name, by_name, self._capabilities, output=output, number=number)
        self._groups.keep(name, script)
        job = self._writer.job(all_of_them, name, script, passed, self._capabilities, output=output)
        before_s = self._clock()
        try:
            array_id = self._link.submit(job)
        except SubmitRejectedError as error:
            self._home.confirm(self._is_at_home)
            self._groups.forget(name)
            self._excuse(first, passed, error)
            raise
        except (SubmitDeferredError, UnavailableError):
            self._groups.forget(name)
            raise
        self._check_number(array_id, names[0])
        self._home.submitted(array_id, self._to_keep(all_of_them, name, passed))
        job_ids = [f"{array_id}_{index}" for index in range(len(specs))]
        for job_id, spec, own_name in zip(job_ids, specs, names, strict=True):
            self._accepted(job_id, self._to_keep(spec, own_name, passed), before_s, passed.kept, is_held=spec.held)
        return job_ids

    def _to_keep(self, spec: JobSpec, name: str, passed: Passed) -> KeptSubmission:
        """Return the record of a job that Slurm has accepted."""
        kept_back = bool(spec.dependencies) or passed.begin_s is not None or spec.held
        steps = tuple(step.name for step in spec.steps)
        return KeptSubmission(
            name, spec.token, spec.begins_late, steps, kept_back, spec.walltime_s, self.now(),
            array=str(spec.array.elements) if spec.array is not None else "",
            is_renumbered=is_renumbered(spec, self._capabilities),
            posts=tuple(map(file_name, spec.posts)),
            out_of_memory=heeds(spec),
        )  # fmt: skip

    def grow(self, job_id: str, spec: JobSpec) -> str:
        """Ask for more nodes for a running job; see `asa.backend.Growing`, and `growing`.

        The request is withdrawn once it has waited for its own walltime, which is what the running job has left.
        """
        first, name = self.status([_number(job_id)])[job_id], job_name(spec.name, spec.token)
        refuse_unless_possible(spec, self._capabilities)
        self._defer_unless_running(first, spec)
        alone = replace(spec, dependencies=(), exclusive=True)
        self._refuse_the_impossible(alone)
        self._home.confirm(self._is_at_home, before=True)
        self._folder.keep_script(name, note_of(name, spec.walltime_s, spec.cores, into=job_id))
        passed = replace(pass_on(alone, {}, self.now()), words=f"expand:{job_id}")
        job = self._writer.job(alone, name, _NOTHING, passed, self._capabilities)
        before_s = self._clock()
        try:
            number = self._link.allocate(job, spec.walltime_s)
        except SubmitRejectedError:
            self._home.confirm(self._is_at_home)
            self._ask_again([job_id])
            self._defer_unless_running(self._jobs[job_id].status, spec)
            raise
        facts: dict[str, Any] = {"awaits": False, "steps": (), "kept_back": False, "into": job_id, "cores": spec.cores}
        kept = KeptSubmission(name, spec.token, walltime_s=spec.walltime_s, submit_s=self.now(), **facts)
        self._check_number(number, name)
        self._accepted(number, kept, before_s)
        return number

    @staticmethod
    def _defer_unless_running(first: JobStatus, spec: JobSpec) -> None:
        if why := not_now(first):
            raise SubmitDeferredError(why, where=f"job {spec.name!r}")

    def _accepted(
        self,
        job_id: str,
        kept: KeptSubmission,
        before_s: float,
        dependencies: tuple[Dependency, ...] = (),
        *,
        is_held: bool = False,
    ) -> None:
        """Record a job that Slurm has just accepted, and begin to track it."""
        after_s = self._clock()
        self._folder.keep_job(job_id, kept)
        if not is_member(job_id):
            self._home.submitted(job_id, kept)
        self._strangers.discard(job_id)
        sent_s = (before_s, after_s)
        self._follow(job_id, kept, after_s, sent_s=sent_s, dependencies=dependencies, held_here=is_held).tell()
        self._pacer.changed(after_s)

    def _check_number(self, job_id: str, name: str) -> None:
        """Check a new job's number if it is not above all earlier numbers: it may be cut off, or another job's.

        It may also be right: numbers begin again after the highest possible one, and after a controller has lost its
        state.
        Raises `SubmitInDoubtError`: the number is not the new job's, or that cannot be checked.
        """
        if self._highest is None:
            self._highest = max(map(int, filter(str.isdecimal, map(number_of, self._folder.job_ids()))), default=0)
        is_above, self._highest = int(job_id) > self._highest, max(int(job_id), self._highest)
        if is_above:
            return
        with suppress(BackendError):
            if any(record.name == name for record in self._link.of_anybody(job_id)):
                return
        raise SubmitInDoubtError(
            f"may have been submitted or not: the number that was answered, {job_id}, is not known to be its own",
            where=f"job {name!r}",
        )

    def estimated_start(self, spec: JobSpec) -> float | None:
        """Return when Slurm expects a job to start; see `asa.backend.EstimatesStarts`. At most 12 times a minute."""
        clock_s = self._clock()
        asked = [time_s for time_s in self._estimated_s if 0 <= clock_s - time_s < _MINUTE_S]
        self._estimated_s = asked
        if len(asked) >= _MAX_ESTIMATES:
            return None
        name = job_name(spec.name, "")
        alone = replace(spec, dependencies=(), begin_s=None, held=False)
        try:
            self._refuse_the_impossible(alone)
            job = self._writer.job(alone, name, _NOTHING, pass_on(alone, {}, self.now()), self._capabilities)
            self._estimated_s.append(clock_s)
            return self._link.estimated_start_s(replace(job, comment="", environment={"PATH": "/usr/bin:/bin"}))
        except BackendError:
            return None

    def test(self, spec: JobSpec, timeout_s: float) -> str | None:
        """Check whether a job could ever run, with the request of `submit`; see `asa.backend.Preflight`."""
        alone = replace(spec, dependencies=(), begin_s=None, held=False)
        name = job_name(spec.name, spec.token)
        try:
            self._refuse_the_impossible(alone)
            script = self._writer.script(alone, name, self._capabilities)
            job = self._writer.job(alone, name, script, pass_on(alone, {}, self.now()), self._capabilities)
            return self._preflight.objection(job, timeout_s)
        except SubmitRejectedError as error:
            return error.message
        except BackendError:
            return None

    def preview(self, spec: JobSpec) -> dict[str, str]:
        """Return what `submit` would send; see `asa.backend.Previewing`."""
        self._refuse_the_impossible(spec)
        waiting = {d.job_id: JobStatus(d.job_id, JobState.PENDING, self.now()) for d in spec.dependencies}
        name = job_name(spec.name, spec.token)
        script = self._writer.script(spec, name, self._capabilities)
        passed = pass_on(spec, waiting, self.now())
        job = self._writer.job(spec, name, script, passed, self._capabilities)
        return {"script": script, **self._link.preview(job)}

    def _survey_again(self, spec: JobSpec) -> None:
        """Read the site's abilities again if a job exceeds them: an answer may have lacked nodes, or a partition.

        Raises `UnavailableError`: they cannot be read now.
        """
        is_known = 0 <= self._clock() - self._surveyed_s < _SURVEYED_S
        if self._survey is None or is_known or self._capabilities.impossible(spec) is None:
            return
        try:
            self._capabilities = self._survey()
        except InputError as error:  # Slurm shows no partition, or none that is up
            raise UnavailableError(f"is not submitted now: {error.message}", where=f"job {spec.name!r}") from error
        self._surveyed_s = self._clock()

    def _refuse_the_impossible(self, spec: JobSpec) -> None:
        """Refuse jobs that can never run."""
        self._writer.refuse_unwritable(spec)
        if (impossible := self._capabilities.impossible(spec)) is not None:
            raise SubmitRejectedError(impossible, where=f"job {spec.name!r}", hint="Ask for what the site has.")

    def _passed(self, spec: JobSpec) -> Passed:
        """Look at a job's dependencies; return those that are passed to Slurm.

        Raises `SubmitRejectedError`: the other job is unknown, so Slurm might drop the dependency and start the job at
        once; or a dependency can never be met. Raises `UnavailableError`: Slurm does not answer, or does not show the
        other job, whose fate is not certain yet.
        """
        others = list(dict.fromkeys(dependency.job_id for dependency in spec.dependencies))
        if not all(self._is_fresh(job_id) for job_id in others):
            with suppress(JobNotFoundError):
                self._look(others)
        if unknown := [job_id for job_id in others if job_id not in self._jobs]:
            raise SubmitRejectedError(
                f"depends on job {unknown[0]}, which Slurm does not know",
                where=f"job {spec.name!r}",
                hint="It may have ended long ago: find out how, and submit this one without the dependency.",
            )
        if missing := [job_id for job_id in others if not (self._is_fresh(job_id) or self._is_settling(job_id))]:
            raise UnavailableError(
                f"depends on job {missing[0]}, which Slurm does not report at the moment",
                where=f"job {spec.name!r}",
                hint="It is submitted once it is known what became of the other.",
            )
        return pass_on(spec, {job_id: self._jobs[job_id].status for job_id in others}, self.now())

    def _excuse(self, spec: JobSpec, passed: Passed, error: SubmitRejectedError) -> None:
        """Defer a refused job if a job on which it depends has ended meanwhile, and Slurm has forgotten that job."""
        if not (needed := [dependency.job_id for dependency in passed.kept]):
            return
        with suppress(BackendError):
            self._ask_again(needed)
        if ended := [job_id for job_id in needed if not self._jobs[job_id].is_live]:
            raise SubmitDeferredError(
                f"job {ended[0]}, which it depends on, ended while it was submitted: {error.message}",
                where=f"job {spec.name!r}",
            ) from error

    def _is_fresh(self, job_id: str) -> bool:
        """Whether a job was alive a moment ago, or is known to have ended."""
        job = self._jobs.get(job_id)
        return job is not None and (not job.is_live or 0 <= self._clock() - job.heard_s <= _FRESH_S)

    # ------------------------------------------------------------------ changes

    def cancel(self, job_id: str) -> None:
        """Cancel a job; do nothing if it has ended."""
        for error in self.cancel_all([job_id]).values():
            raise error

    def cancel_all(self, job_ids: Collection[str]) -> dict[str, BackendError]:
        """Cancel several jobs, in few calls; see `asa.backend.CancelsMany`."""
        live = [job_id for job_id in job_ids if job_id not in self._jobs or self._jobs[job_id].is_live]
        if live:
            self._home.confirm(self._is_at_home, before=True)
        left = self._own.cancel(live) if live else {}
        clock_s, inquiry = self._clock(), self._inquiry([self._jobs[job_id] for job_id in left if job_id in self._jobs])
        for job_id in live:
            job, error = self._jobs.get(job_id), left.get(job_id)
            if job is None or not (error is None or isinstance(error, JobNotFoundError)):
                continue
            self._pacer.changed(clock_s)
            if error is not None and not self._is_no_more(job, error, inquiry):
                left[job_id] = _not_shown(job_id)
                continue
            left.pop(job_id, None)  # it has ended; a look will show how
            job.cancelled_s = clock_s
            self._keep(job)
        return left

    def _is_no_more(self, job: TrackedJob, error: JobNotFoundError, inquiry: Inquiry) -> bool:
        """Whether nothing is left to cancel: the controller says explicitly that it does not know the job.

        Raises `OtherClusterError`: the controller is another cluster's.
        """
        try:
            inquiry.confirm()
            return isinstance(error, AnothersJobError) or inquiry.denies(job.number)
        except BackendError:
            return False

    def take_up(self, job_id: str) -> float | None:
        """Treat a job that was submitted elsewhere as this client's; see `asa.backend.TakesUp`."""
        record = self._link.jobs([_number(job_id)]).get(job_id)
        if record is None:
            raise JobNotFoundError("is no job of yours that waits or runs", where=f"job {job_id}")
        self._strangers.discard(job_id)
        self._track(job_id, self._kept_of(record))
        return None if record.start_s is None or record.limit_s is None else record.start_s + record.limit_s

    def _expected(self, job_id: str) -> KeptSubmission | None:
        """Return the record of the job with a number; None if the job is not known to be of this run."""
        if job_id in self._strangers:
            return None
        job = self._jobs.get(job_id)
        return self._folder.kept_job(job_id) if job is None else job.kept

    def withdraw(self, job_id: str) -> bool:
        """Ensure that a job's payload does not begin; see `asa.backend.Withdrawing`."""
        self.status([job_id])
        token = self._jobs[job_id].kept.token
        return not token or self._folder.withdraw(token)

    def hold(self, job_id: str) -> None:
        """Keep a pending job from starting."""
        self._own.update(_number(job_id), held=True)
        if (job := self._changed(job_id)) is not None:
            job.held_here = True

    def release(self, job_id: str) -> None:
        """Release a held job."""
        self._own.update(_number(job_id), held=False)
        if (job := self._changed(job_id)) is not None:
            job.held_here, job.released_s = False, self._clock()

    def change_walltime(self, job_id: str, walltime_s: float) -> None:
        """Change a job's walltime; see `asa.backend.Adjustable`."""
        self._own.update(_number(job_id), walltime_s=walltime_s)
        if (job := self._changed(job_id)) is not None:
            job.kept = replace(job.kept, walltime_s=walltime_s)

    def shrink(self, job_id: str, nodes: int) -> None:
        """Give back all nodes of a running job except a number of them; see `asa.backend.Shrinking`."""
        number = _number(job_id)
        if not can_resize(self._link.changeable):
            raise BackendError(
                "this way of reaching Slurm cannot make a running job smaller",
                where=f"job {job_id}",
                hint="Reach Slurm by its commands, or by the REST API of Slurm 23.02 or later.",
            )
        if (order := self._nodes_in_order.get(number)) is None:
            self._own.update(number, nodes=nodes)
        else:
            self._keep_first(number, order, nodes)
        self._changed(job_id)

    def _keep_first(self, number: str, order: list[str], nodes: int) -> None:
        """Shrink a job that has grown to the first of its nodes: those that it got last are given back.

        By name, as by number Slurm keeps the first of its own order; but where these were named when the job was
        submitted, 24.11 and 26.05 change nothing, and do not say so.
        """
        for what in (order[:nodes], nodes):
            self._own.update(number, nodes=what)
            record = self._link.jobs([number]).get(number)
            left = set() if record is None else {*names_of(record.node_list)}
            if len(left) <= nodes:
                break
        order[:] = [name for name in order if name in left]

    def take_over(self, job_id: str) -> tuple[str, ...]:
        """Add a second job's nodes to the job that they are for; see `asa.backend.TakesOver`."""
        first = self._jobs[_number(job_id)].kept.into
        records = self._link.jobs([first, job_id])
        if missing := {first, job_id} - records.keys():
            raise JobNotFoundError("Slurm does not know the job", where=f"job {min(missing)}")
        if (state := records[first].states[:1]) != ("RUNNING",):
            raise BackendError(f"is {' '.join(state)}, and gets no more nodes", where=f"job {first}")
        came = tuple(names_of(records[job_id].node_list))
        self._own.update(job_id, nodes=0)
        self._nodes_in_order.setdefault(first, [*names_of(records[first].node_list)]).extend(came)
        self._changed(job_id)
        return came

    def _changed(self, job_id: str) -> TrackedJob | None:
        self._pacer.changed(self._clock())
        return self._jobs.get(job_id)

    # ------------------------------------------------------------------ looks

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the last known status of several jobs; look first if the last look is some time ago."""
        wanted = list(dict.fromkeys(job_ids))
        if unseen := [job_id for job_id in wanted if job_id not in self._jobs]:
            self._look(unseen)
        elif self._is_old(wanted) and self._pacer.may_look(self._clock()):
            self._try_to_look()
        return {job_id: self._jobs[job_id].tell() for job_id in wanted}

    def _is_old(self, job_ids: Iterable[str]) -> bool:
        heard = [job.heard_s for job_id in job_ids if (job := self._jobs[job_id]).is_live]
        return bool(heard) and not 0 <= self._clock() - min(heard) <= self._poll_s

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Find jobs by their tokens; see `asa.backend.Backend.find`."""
        wanted = list(dict.fromkeys(tokens))
        self._home.confirm(self._is_at_home, before=True)
        records, arrays = by_array(self._records_of(wanted))
        found: dict[str, list[TrackedJob]] = {token: [] for token in wanted}
        for array_id, elements in arrays.items():
            if self._is_mine(replace(elements[0], job_id=array_id)):
                found[token_of(elements[0].name)].append(self._found_array(array_id, elements))
        present = self._present(records)
        for record in filter(self._is_mine, records):
            job = self._jobs.get(record.job_id)
            if job is None or not job.is_ours(record):
                job = self._track(record.job_id, self._kept_of(record))
            if ended_as(record) is None and record.job_id not in present and not self._is_settling(record.job_id):
                self._miss([job] if job.is_live else [])
            elif job.is_live or record.restarts > job.status.restarts or job.status.state is JobState.CANCELLED:
                self._hear(job, record)
            found[token_of(record.name)].append(job)
        for job in [job for job in self._jobs.values() if job.kept.token in found]:
            if job not in (jobs := found[job.kept.token]):
                jobs.append(job)
        holders = {token: self._folder.holder(token) for token in found}
        unseen = {token: holder for token, holder in holders.items() if holder is not None and holder not in self._jobs}
        names = self._folder.names(unseen) if unseen else {}
        forgotten = {token: self._forgotten(token, unseen[token], name) for token, name in names.items()}
        self._miss([job for job in forgotten.values() if job.is_live])
        for token, job in forgotten.items():
            found[token].append(job)
        return {token: [job.tell() for job in self._in_order(token, jobs)] for token, jobs in found.items()}

    def _found_array(self, array_id: str, elements: Sequence[SlurmRecord]) -> TrackedJob:
        """Begin to track an array after some of its elements were found."""
        job = self._jobs.get(array_id)
        if job is None or not job.is_ours(elements[0]):
            job = self._track(array_id, self._kept_of(replace(elements[0], job_id=array_id)))
        if job.is_live or not has_ended(elements):
            try:
                current = known_of(self._link, [array_id]).get(array_id, [])
            except BackendError as error:
                self._trouble = _in_words(error)
                return job
            self._hear_array(job, [record for record in current if job.is_ours(record)])
        return job

    def _present(self, records: Iterable[SlurmRecord]) -> set[str]:
        """Return which unfinished jobs the controller knows: accounting keeps jobs that a controller has lost."""
        names = {record.job_id: record.name for record in records if ended_as(record) is None}
        found = self._link.jobs(list(names)) if names else {}
        return {job_id for job_id, record in found.items() if record.name == names[job_id]}

    def _forgotten(self, token: str, holder: str, name: str) -> TrackedJob:
        """Track the job with a token's claim, which Slurm no longer shows; its markers show it."""
        kept = self._folder.kept_job(holder)
        if kept is None or kept.token != token:
            mark = self._folder.began(holder, token) or self._folder.ended(holder, token)
            since_s = self.now() if mark is None else mark.time_s  # its time of submission is not known
            kept = KeptSubmission(name, token, kept_back=True, submit_s=since_s, **self._folder.facts(name))
        return self._track(holder, kept)

    def _records_of(self, wanted: Iterable[str]) -> list[SlurmRecord]:
        """Ask for the jobs of the given tokens, the latest of each id.

        Their full names are known, or found in the queue, where names end with the token.
        """
        tokens = set(wanted)
        names = self._folder.names(tokens)
        names |= {job.kept.token: job.kept.name for job in self._jobs.values() if job.kept.token in tokens}
        if missing := {token for token in tokens if token not in names}:
            names |= {token: r.name for r in self._link.queue() if (token := token_of(r.name)) in missing}
        records = self._link.named(set(names.values())) if names else []
        of_tokens = [record for record in records if token_of(record.name) in tokens]
        return list({(record.job_id, record.array_id): record for record in sorted(of_tokens, key=_moment)}.values())

    def _is_mine(self, record: SlurmRecord) -> bool:
        """Whether a job with a name of ours belongs to this user, since any user can use a name.

        Earlier submissions show this user's name. Without any, a job must also have the token in its comment;
        accounting may not have comments.
        """
        kept = self._folder.kept_job(record.job_id)
        if kept is not None and kept.name == record.name and self._user in ("", record.user):
            self._user = record.user
            return True
        is_unsaid = not record.comment and bool(self._user)
        is_ours = is_unsaid or has_token(record.comment, token_of(record.name))
        return is_ours and (not self._user or record.user in ("", self._user))

    def _in_order(self, token: str, jobs: list[TrackedJob]) -> list[TrackedJob]:
        holder = self._folder.holder(token)
        return sorted(jobs, key=lambda job: (job.job_id != holder, job.status.submit_s, int(number_of(job.job_id))))

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Sleep until jobs changed or the clock reads `until_s`; see `asa.backend.Backend.wait`."""
        while True:
            if self._live() and self._pacer.pause_s(self._clock()) <= 0:
                self._try_to_look()
            news = [job.tell() for job in self._watched.values() if job.is_news]
            self._watched = {job.job_id: job for job in self._live()}
            if news or (until_s is not None and self.now() >= until_s):
                return news
            if (pause_s := self._pause_s(until_s)) is None or self._sleep(max(pause_s, _MIN_SLEEP_S)):
                return []

    def _pause_s(self, until_s: float | None) -> float | None:
        """Return for how long nothing is due; None for ever."""
        clock_s = self._clock()
        pauses = [self._pacer.pause_s(clock_s)] if self._live() else []
        if until_s is not None:
            pauses.append(math.ceil(until_s) - self._offset.offset_s - clock_s)
        return min(pauses, default=None)

    def _live(self) -> list[TrackedJob]:
        return [job for job in self._watched.values() if job.is_live]

    def _try_to_look(self) -> None:
        """Look; if Slurm does not answer, record it without an error."""
        try:
            self._look()
        except BackendError as error:
            self._trouble = _in_words(error)

    def _look(self, unseen: Collection[str] = ()) -> None:
        """Ask the controller once for all jobs that may change, and for some that were never seen.

        Raises `JobNotFoundError`: a job that was never seen is unknown; the others are still updated. Raises
        `UnavailableError`: Slurm does not answer; or accounting does not, and the controller does not know a job that
        was never seen.
        """
        unseen = [_number(job_id) for job_id in unseen if job_id not in self._jobs]
        live = self._live()
        arrays = [job for job in live if isinstance(job, TrackedArray)]
        records = self._asked([*(job.job_id for job in live if not isinstance(job, TrackedArray)), *unseen], arrays)
        uncertain = [job_id for job_id in unseen if not self._adopt(job_id, records.get(job_id))]
        live = [job for job in live if not isinstance(job, TrackedArray)]
        live += [self._jobs[job_id] for job_id in unseen if job_id in self._jobs]
        if found := [job for job in live if isinstance(job, TrackedArray)]:
            self._asked([], found)
            live = [job for job in live if not isinstance(job, TrackedArray)]
        missing = []
        for job in live:
            if (record := records.get(job.job_id)) is not None and job.is_ours(record):
                self._hear(job, record)
            elif not self._is_settling(job.job_id):
                missing.append(job)
        self._miss([job for job in missing if not self._is_misnumbered(job)])
        for job_id in unseen:
            if job_id in self._jobs:
                self._jobs[job_id].tell()
        self._end_needless(live)
        self._check_dependencies()
        if unknown := [job_id for job_id in unseen if job_id not in self._jobs]:
            if uncertain:
                raise UnavailableError(self._trouble, where=f"job {uncertain[0]}")
            raise JobNotFoundError(
                "Slurm does not know the job",
                where=f"job {unknown[0]}",
                hint="Check the id, and that it is this cluster's.",
            )

    def _asked(self, job_ids: Collection[str], arrays: Sequence[TrackedArray] = ()) -> dict[str, SlurmRecord]:
        """Ask the controller for jobs, and process its reports on arrays; this look determines when the next is due.

        Returns the controller's records of the jobs.
        """
        try:
            records = self._link.jobs(job_ids) if job_ids or not arrays else {}
            elements = known_of(self._link, [job.job_id for job in arrays])
        except BackendError as error:
            self._pacer.looked(self._clock(), heard=False)
            self._trouble = _in_words(error)
            raise
        self._pacer.looked(self._clock(), heard=True)
        self._heard_s, self._trouble = self.now(), ""
        self._see_where(job_ids, records, {job.job_id: elements.get(job.job_id, ()) for job in arrays})
        self._hear_arrays(arrays, elements)
        return records

    def _see_where(
        self,
        job_ids: Collection[str],
        records: Mapping[str, SlurmRecord],
        arrays: Mapping[str, Sequence[SlurmRecord]],
    ) -> None:
        """Check that the cluster is the run's, if the controller knows none of the run's jobs.

        Raises `OtherClusterError`: it is another cluster.
        """
        reported = {**{job_id: [records[job_id]] if job_id in records else [] for job_id in job_ids}, **arrays}
        expected = {job_id: self._expected(job_id) for job_id in reported}
        missing = {
            job_id: kept
            for job_id, kept in expected.items()
            if kept is not None and not any(is_same(record, kept) for record in reported[job_id])
        }
        ours = [job_id for job_id, kept in expected.items() if kept is not None and not self._home.is_unsure(job_id)]
        missing = {job_id: missing[job_id] for job_id in ours if job_id in missing}
        if len(ours) < len(expected):
            with suppress(BackendError):  # the next look asks again
                self._home.confirm(self._is_at_home, before=True)
        if ours and len(missing) == len(ours) and not all(map(self._is_settling, ours)):
            self._home.doubt(lambda: self._is_reported(missing))

    def _is_at_home(self) -> bool:
        """Whether the reached Slurm knows a job of the run, or the run has none."""
        live = {job.job_id: job for job in self._live() if not self._home.is_unsure(job.job_id)}
        arrays = [job_id for job_id, job in live.items() if isinstance(job, TrackedArray)]
        reported = list(self._link.jobs([job_id for job_id in live if job_id not in arrays]).items()) if live else []
        reported += [(job_id, record) for job_id, of in known_of(self._link, arrays).items() for record in of]
        is_shown = any(job_id in live and is_same(record, live[job_id].kept) for job_id, record in reported)
        return not live or is_shown or self._is_reported({job_id: job.kept for job_id, job in live.items()})

    def _is_reported(self, jobs: Mapping[str, KeptSubmission]) -> bool:
        """Whether accounting has one of the given jobs, or a marker shows that one of them has ended."""
        with suppress(BackendError):
            if any(self._folder.ended(job_id, kept.token) is not None for job_id, kept in jobs.items()):
                return True
            past = self._link.past(list(jobs))
            return any(is_same(record, jobs[job_id]) for job_id, record in past.items())
        return True  # no evidence speaks against it

    def _hear_arrays(self, arrays: Iterable[TrackedArray], elements: Mapping[str, Sequence[SlurmRecord]]) -> None:
        """Process Slurm's reports on the given arrays."""
        for job in arrays:
            self._hear_array(job, [record for record in elements.get(job.job_id, ()) if job.is_ours(record)])

    def _hear_array(self, job: TrackedJob, records: Sequence[SlurmRecord]) -> None:
        """Process Slurm's reports on an array's elements; ask accounting for those that Slurm no longer knows."""
        if not isinstance(job, TrackedArray) or (not records and self._is_settling(job.job_id)):
            return
        if not records and self._is_misnumbered(job):
            return
        clock_s = self._clock()
        self._watched[job.job_id] = job
        submitted = [record.submit_s for record in records if record.submit_s and not record.restarts]
        if job.sent_s is not None and submitted:
            self._offset.learn(*job.sent_s, min(submitted))
            self._user = self._user or records[0].user
        if records:
            job.sent_s = None
        try:
            changed, missing = job.hear_all(records, self._folder, self.now(), clock_s)
            if missing:
                changed |= self._miss_elements(job, missing)
            self._keep(job)
            changed |= self._end_needless_elements(job)
        except BackendError as error:
            self._trouble = _in_words(error)
        else:
            if changed:
                self._pacer.changed(clock_s)

    def _end_needless_elements(self, job: TrackedArray) -> bool:
        """End elements that were requeued although their payloads have completed; return whether there were any."""
        needless = job.needless(self._folder)
        raw_ids = dict.fromkeys((raw_id for _, raw_id in needless), job.kept)
        left = self._own.cancel(raw_ids, raw_ids) if raw_ids else {}
        ended = [number for number, raw_id in needless if isinstance(left.get(raw_id), JobNotFoundError | None)]
        for number in ended:
            job.conclude_one(number, self._folder, self.now())
        return bool(ended)

    def _miss_elements(self, job: TrackedArray, missing: Collection[int]) -> bool:
        """Determine the fate of elements that the controller does not show."""
        certain = True
        try:
            past = past_of(self._link, [job.job_id]).get(job.job_id, [])
        except AccessError:
            past = []
        except UnavailableError as error:
            self._trouble, past, certain = f"accounting: {error.message}", [], False
        except BackendError:
            past = []
        ours = [record for record in past if job.is_ours(record)]
        how: dict[str, Any] = {"certain": certain, "past": ours, "inquiry": self._inquiry([job])}
        return job.miss_all(missing, self._folder, self.now(), self._clock(), **how)

    def _hear(self, job: TrackedJob, record: SlurmRecord) -> None:
        """Process Slurm's report on a job, and learn the offset of Slurm's clock from it."""
        clock_s = self._clock()
        self._watched[job.job_id] = job  # it may have ended before
        if job.sent_s is not None and record.submit_s and not record.restarts:
            self._offset.learn(*job.sent_s, record.submit_s)
        if job.sent_s is not None:
            self._user = self._user or record.user  # the user of a job that this client has just submitted
        job.sent_s = None
        try:
            changed = job.hear(record, self._folder, self.now(), clock_s)
            self._keep(job)
        except UnavailableError as error:
            self._trouble = _in_words(error)
        else:
            if changed:
                self._pacer.changed(clock_s)

    def _keep(self, job: TrackedJob) -> None:
        """Record on the disk what the next client cannot learn from Slurm, if it has changed."""
        if job.is_to_be_kept():
            self._folder.keep_job(job.job_id, job.kept)

    def _is_settling(self, job_id: str) -> bool:
        """Whether a job was accepted so recently that Slurm need not show it yet."""
        job = self._jobs.get(job_id)
        return job is not None and job.sent_s is not None and self._clock() - job.sent_s[1] < self._settle_s

    def _miss(self, missing: Sequence[TrackedJob]) -> None:
        """Determine the fate of jobs that the controller no longer knows."""
        for job in missing:
            if isinstance(job, TrackedArray):
                self._hear_array(job, [])
        missing = [job for job in missing if not isinstance(job, TrackedArray)]
        if not missing:
            return
        records, certain = self._past([job.job_id for job in missing])
        inquiry = self._inquiry(missing)
        for job in missing:
            past = record if (record := records.get(job.job_id)) is not None and job.is_ours(record) else None
            how: dict[str, Any] = {"certain": certain, "past": past, "inquiry": inquiry}
            try:
                changed = job.miss(self._folder, self.now(), self._clock(), **how)
                self._keep(job)
            except BackendError as error:
                self._trouble = _in_words(error)
            else:
                if changed:
                    self._pacer.changed(self._clock())

    def _is_misnumbered(self, job: TrackedJob) -> bool:
        """Whether a job's number differs from the answer to its submission; if so, the job has failed in our record."""
        if job.record is not None or not job.kept.token or not self._is_anothers(job):
            return False
        with suppress(BackendError):
            number = self._there({job.kept.name}, ended=True).get(job.kept.name, "")
            if number not in ("", job.job_id):
                job.give_way(self.now())
                self._folder.keep_job(job.job_id, job.kept)
                self._pacer.changed(self._clock())
                return True
        return False

    def _is_anothers(self, job: TrackedJob) -> bool:
        """Whether the controller shows another job with a job's number."""
        with suppress(BackendError):
            shown = self._link.of_anybody(job.job_id)
            return bool(shown) and not any(is_same(record, job.kept) for record in shown)
        return False

    def _inquiry(self, missing: Sequence[TrackedJob]) -> Inquiry:
        """Return the requests to make before any of these jobs counts as gone."""
        names = {job.kept.name for job in missing if job.kept.token}
        own = {job.job_id: job for job in missing}

        def denies(number: str) -> bool:  # a program that shows another user's job with the number denies ours
            return self._link.denies(number) or (number in own and self._is_anothers(own[number]))

        return Inquiry(denies, lambda: self._there(names), lambda: self._home.confirm(self._is_at_home))

    def _there(self, names: Collection[str], *, ended: bool = False) -> dict[str, str]:
        """Return the numbers of existing jobs by their names; with `ended`, also of ended ones."""
        records, arrays = by_array(self._link.named(names))
        present = self._present(records)
        if ended:
            present |= {record.job_id for record in records if ended_as(record) not in (None, JobState.CANCELLED)}
        there = {record.name: record.job_id for record in records if record.job_id in present}
        live = {array_id: elements[0].name for array_id, elements in arrays.items() if not has_ended(elements)}
        found = known_of(self._link, list(live))
        past = {of[0].name: array_id for array_id, of in arrays.items() if ended and array_id not in live}
        there |= past | {name: array_id for array_id, name in live.items() if not has_ended(found.get(array_id, ()))}
        return there

    def _past(self, job_ids: Collection[str]) -> tuple[dict[str, SlurmRecord], bool]:
        """Ask accounting; return whether it could be asked, or is not to be."""
        try:
            return self._link.past(job_ids), True
        except AccessError:
            return {}, True  # the controller allows access, so only accounting denies it
        except UnavailableError as error:
            self._trouble = f"accounting: {error.message}"
            return {}, False
        except BackendError:
            return {}, True

    # ------------------------------------------------------------------ jobs of other clients

    def _adopt(self, job_id: str, record: SlurmRecord | None) -> bool:
        """Track a job of an earlier client, if it is known; return whether the answer is certain."""
        kept, certain = self._folder.kept_job(job_id), True
        if kept is None:
            if record is None:
                records, certain = self._past([job_id])
                record = records.get(job_id)
            kept = self._kept_of(record) if record is not None else None
            if kept is not None and kept.token:
                self._folder.keep_job(job_id, kept)
            else:
                self._strangers.add(job_id)
        if kept is not None:
            self._recall(self._follow(job_id, kept))
        return kept is not None or certain

    def _recall(self, job: TrackedJob) -> None:
        """Let a job of an earlier client be in its last known state."""
        if (known := self._last_known(job.job_id)) is not None:
            job.recall(known)

    def _status_of(self, job_id: str) -> JobStatus | None:
        """Return a job's state as far as known, also if it had ended before this client came."""
        job = self._jobs.get(job_id)
        return self._last_known(job_id) if job is None else job.status

    def _track(self, job_id: str, kept: KeptSubmission) -> TrackedJob:
        """Begin to track a job that was found, and record it."""
        was = self._folder.kept_job(job_id)
        self._folder.keep_job(job_id, kept)
        job = self._follow(job_id, kept)
        if was is not None and was.name == kept.name:  # else the number was another job's before
            self._recall(job)
        return job

    def _follow(self, job_id: str, kept: KeptSubmission, heard_s: float = -math.inf, **known: Any) -> TrackedJob:
        status = JobStatus(job_id, JobState.PENDING, kept.submit_s)
        if kept.into:
            known["first"] = lambda: self._status_of(kept.into)
        if is_member(job_id):
            known["groups"] = self._groups
        tracked = TrackedArray.of if kept.array else JoiningJob if kept.into else TrackedJob
        tracked = TrackedMember if is_member(job_id) else tracked
        job = self._jobs[job_id] = self._watched[job_id] = tracked(kept, status, heard_s=heard_s, **known)
        return job

    def _kept_of(self, record: SlurmRecord) -> KeptSubmission:
        """Return the record of a job that was made at its submission; if there is none, make it from Slurm's record."""
        kept = self._folder.kept_job(record.job_id)
        if kept is not None and kept.name == record.name:
            return kept
        token = token_of(record.name)
        is_one = bool(token) and (has_token(record.comment, token) or token in self._folder.names([token]))
        kept_back = bool(record.dependency) or (record.eligible_s or 0.0) > record.submit_s
        facts = self._folder.facts(record.name if is_one else "")
        facts["walltime_s"] = record.limit_s or facts["walltime_s"]
        return KeptSubmission(
            record.name, token if is_one else "", kept_back=kept_back, submit_s=record.submit_s, **facts
        )

    # ------------------------------------------------------------------ checks in addition to Slurm's

    def _end_needless(self, live: Iterable[TrackedJob]) -> None:
        """Cancel jobs that were requeued although their payloads have completed."""
        for job in live:
            try:
                is_needless = job.is_needless(self._folder)
            except UnavailableError as error:
                self._trouble = _in_words(error)
                continue
            if is_needless and self._has_cancelled(job):
                job.conclude(self._folder)

    def _has_cancelled(self, job: TrackedJob) -> bool:
        """Cancel a job that is no longer needed; return whether Slurm answered. If not, the next look tries again."""
        try:
            error = self._own.cancel([job.job_id]).get(job.job_id)
        except BackendError as away:
            error = away
        if isinstance(error, JobNotFoundError) and not self._is_no_more(job, error, self._inquiry([job])):
            error = _not_shown(job.job_id)
        if not isinstance(error, JobNotFoundError | None):
            self._trouble = _in_words(error)
            return False
        self._pacer.changed(self._clock())
        return True

    def _check_dependencies(self) -> None:
        """Cancel jobs that Slurm released although their dependencies were not met.

        First ask again for the jobs on which they depend: these may have ended while Slurm answered, or so soon that
        Slurm never showed them.
        """
        if not (early := self._early()):
            return
        self._ask_again({d.job_id for job in early for d in job.dependencies})
        for job in self._early():
            if self._has_cancelled(job):
                job.condemn(self.now())

    def _ask_again(self, job_ids: Collection[str]) -> None:
        """Ask for the given jobs; those that Slurm does not show may have ended already, even if submitted recently."""
        live = [self._jobs[job_id] for job_id in job_ids if self._jobs[job_id].is_live]
        arrays = [job for job in live if isinstance(job, TrackedArray)]
        self._hear_arrays(arrays, known_of(self._link, [job.job_id for job in arrays]))
        live = [job for job in live if not isinstance(job, TrackedArray)]
        records = self._link.jobs([job.job_id for job in live]) if live or not arrays else {}
        for job in live:
            if (record := records.get(job.job_id)) is not None and job.is_ours(record):
                self._hear(job, record)
        self._miss([job for job in live if job.job_id not in records or not job.is_ours(records[job.job_id])])

    def _early(self) -> list[TrackedJob]:
        """Return jobs that Slurm released although a dependency is not met; the others need no further check."""
        early = []
        for job in self._live():
            if not job.dependencies or job.is_kept_back():
                continue
            others = [(d, self._jobs[d.job_id]) for d in job.dependencies]
            if any(is_unmet(d, other.status, other.record, self.now()) for d, other in others):
                early.append(job)
            else:
                job.dependencies = ()
        return early

    # ------------------------------------------------------------------ jobs of all users

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Report what the jobs of all users did since the last call; report nothing if that was a short time ago.

        See `asa.backend.Backend.queue_events`.
        """
        clock_s = self._clock()
        if 0 < self._feed_due_s - clock_s <= self._feed_poll_s:
            return []
        self._feed_due_s = clock_s + self._feed_poll_s
        try:
            records = self._link.queue()
        except BackendError:
            self._feed_due_s = clock_s + min(self._feed_poll_s, _QUEUE_RETRY_S)
            return []
        own = self._jobs.keys() | self._folder.job_ids()
        return self._feed.news(records, own, self.now(), most, ends=ends)


def _in_words(error: BackendError) -> str:
    return error.message if error.where is None else f"{error.where}: {error.message}"


def _not_shown(job_id: str) -> UnavailableError:
    """Return the error for a job that could not be cancelled, since an incomplete answer is no evidence."""
    return UnavailableError("is not cancelled: Slurm does not show it now", where=f"job {job_id}")


def _moment(record: SlurmRecord) -> tuple[float, int]:
    """Return a key that orders the runs of a requeued job."""
    return record.submit_s, record.restarts


def _number(job_id: str) -> str:
    """Check that a text is a job's number."""
    if not all(part.isascii() and part.isdecimal() for part in job_id.split("_", 1)):
        raise JobNotFoundError("is no number of a job", where=f"job {job_id!r}", hint="Slurm's jobs have numbers.")
    return job_id
