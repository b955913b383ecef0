"""A job that never runs, submitted to learn what a site's configuration hides, and cancelled at once."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from asa.backends.shell.marks import KeptSubmission

from asa.errors import NOT_ACCEPTED, BackendError, JobNotFoundError

from .identity import OwnJobs
from .link import SlurmJob, SlurmLink, SlurmRecord
from .settings import SlurmSettings

_BEGINS_S = 3600
_WAIT_S = 75.0  # the scheduler sets ages at least once a minute
_LOOK_S = 1.0


def clock_offset_s(before_s: float, dated_s: float, after_s: float) -> float:
    """Return the lower bound by which another clock, read in whole seconds, is ahead; 0 if the two may agree.

    Examples
    --------
    >>> clock_offset_s(100.2, 100.0, 100.4), clock_offset_s(100.2, 160.0, 100.4), clock_offset_s(100.2, 40.0, 100.4)
    (0.0, 59.6, -59.2)
    """
    least, most = dated_s - after_s, dated_s + 1 - before_s
    return round(min(max(0.0, least), most), 3)


@dataclass(frozen=True, slots=True)
class Revelation:
    """The facts that the test job revealed."""

    job_id: str
    # seconds by which Slurm's clock is ahead of this computer's; None if the job was never listed
    offset_s: float | None
    # whether its age counted while it could not start; None if not requested, or not found out in time
    accrues: bool | None
    partition: str = ""  # the partition that got the job; empty if not known
    left_over: str = ""  # text on a job that could not be cancelled; empty if all went well


class Prober:
    """Submits the test job, and ensures that it is cancelled even after errors."""

    def __init__(
        self,
        link: SlurmLink,
        settings: SlurmSettings,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._link, self._settings, self._clock, self._sleep = link, settings, clock, sleep
        self._own = OwnJobs(link, lambda _: self._submitted, is_settling=lambda _: True)
        self._submitted: KeptSubmission | None = None
        self._left_over = ""

    def probe(self, *, age: bool) -> Revelation:
        """Submit a test job, look at it, and cancel it.

        `age`: whether to wait, up to about a minute, until Slurm reports the job's age.
        """
        with self._held_job() as (job_id, before_s, after_s):
            record = self._look(job_id, age=age)
        if record is None:
            return Revelation(job_id, None, None, left_over=self._left_over)
        accrues = None if record.accrue_s is None else record.accrue_s < record.submit_s + _BEGINS_S / 2
        offset_s = clock_offset_s(before_s, record.submit_s, after_s)
        return Revelation(job_id, offset_s, accrues, record.partition, self._left_over)

    @contextmanager
    def _held_job(self) -> Iterator[tuple[str, float, float]]:
        """Submit the job, and cancel it even after an error; yield its id and the times around its submission."""
        before_s = self._clock()
        job = self._job(f"asa-probe.{uuid.uuid4().hex[:8]}", int(before_s) + _BEGINS_S)
        job_id = ""
        self._submitted = KeptSubmission(
            job.name, "", awaits=False, steps=(), kept_back=True, walltime_s=job.walltime_s, submit_s=before_s
        )
        try:
            job_id = self._link.submit(job)
            yield job_id, before_s, self._clock()
        except BaseException as error:
            if job_id:
                self._cancel([job_id])
            elif not isinstance(error, NOT_ACCEPTED):
                self._cancel(self._named(job.name))
            raise
        self._cancel([job_id])

    def _job(self, name: str, begin_s: int) -> SlurmJob:
        """Return a job with two safeguards against running: it is held, and may not begin for an hour."""
        settings = self._settings
        return SlurmJob(
            name=name,
            script="#!/bin/sh\nexit 0\n",
            folder="/",
            cores=1,
            walltime_s=60.0,
            stdout="/dev/null",
            stderr="/dev/null",
            partition=settings.partition,
            account=settings.account,
            qos=settings.qos,
            constraint=settings.constraint,
            begin_s=begin_s,
            held=True,
            environment={"PATH": "/usr/bin:/bin"},
            comment=name,
        )

    def _look(self, job_id: str, *, age: bool) -> SlurmRecord | None:
        """Look at the job until Slurm says from when its age counts, or will count.

        Either is an answer: if age always accrues, it counts from the submission, else from the begin time.
        """
        record = None
        for _ in range(math.ceil(_WAIT_S / _LOOK_S)):
            record = self._link.jobs([job_id]).get(job_id, record)
            if record is not None and (record.accrue_s is not None or not age):
                break
            self._sleep(_LOOK_S)
        return record

    def _named(self, name: str) -> list[str]:
        """Return the jobs of a submission whose answer never came."""
        try:
            return [record.job_id for record in self._link.named([name])]
        except BackendError:
            return []

    def _cancel(self, job_ids: Sequence[str]) -> None:
        try:
            left = self._own.cancel(job_ids)
        except BackendError as error:
            left = dict.fromkeys(job_ids, error)
        for job_id, why in left.items():
            if not isinstance(why, JobNotFoundError):
                self._left_over = f"job {job_id} could not be cancelled: {why.message}"
