"""Reads which jobs scancel did not cancel."""

from __future__ import annotations

import re
from collections.abc import Sequence

from asa.errors import BackendError

from ..link import IdentifiedJob
from . import refusals
from .process import Done

_OF_JOB = re.compile(r"scancel: error: Kill job error on job id (\d+(?:_\d+)?)\S*: .*")
_ERROR = re.compile(r"(?m)^scancel: error: .*$")
_NO_MATCH = "No active jobs match ALL job filters"  # they have ended, or the numbers are other jobs'


def scancel_words(jobs: Sequence[IdentifiedJob]) -> list[str]:
    """Return the arguments that cancel the given jobs.

    Only with ``-v`` does scancel report a job that it does not know. It can compare one name itself, so the name is
    given if there is one job.
    """
    name = [f"--name={jobs[0].name}"] if len(jobs) == 1 and jobs[0].name else []
    return ["-v", *name, *(job.job_id for job in jobs)]


def not_cancelled(jobs: Sequence[IdentifiedJob], done: Done) -> dict[str, BackendError]:
    """Return which jobs were not cancelled, and why, without those that had already ended."""
    left: dict[str, BackendError] = {}
    lines = _ERROR.findall(done.stderr)
    of_jobs = {match[1]: line for line in lines if (match := _OF_JOB.match(line))}
    is_compared = _NO_MATCH in done.stderr
    for job in jobs:
        line = of_jobs.get(job.job_id, "")
        refused = Done(done.returncode or 1, stderr=line)
        if line and not refusals.has_ended(refused) and not (is_compared and refusals.is_unknown_job(refused)):
            left[job.job_id] = refusals.refused("scancel", job.job_id, refused)
    unexplained = [line for line in lines if not _OF_JOB.match(line) and _NO_MATCH not in line]
    if unexplained or (done.returncode and not lines):
        why = {job.job_id: refusals.refused("scancel", job.job_id, done) for job in jobs if job.job_id not in of_jobs}
        return left | why
    return left
