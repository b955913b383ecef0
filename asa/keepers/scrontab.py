"""Slurm's crontab: a small job looks at a run once a minute, at a site that has enabled this."""

from __future__ import annotations

import os
from pathlib import Path

from asa.backend import Facility, JobSpec, Recurring
from asa.errors import BackendError, InputError
from asa.keepers import cron

_OUTPUT_FILE = "scrontab.out"
_MEMORY_BYTES = 500 << 20


def trouble(facility: Facility) -> str:
    """Return why this site's crontab cannot be used; empty if it can."""
    if not isinstance(facility, Recurring):
        return "this backend knows no crontab of the batch system"
    try:
        facility.recurring_jobs()
    except BackendError as error:
        return error.message
    return ""


def begin(facility: Facility, command: list[str], mark: str, folder: Path, walltime_s: float) -> None:
    """Add a job that calls a script.

    `folder`: the run's. `walltime_s`: of each call.
    Raises `InputError`, `BackendError`: the site has no such table, or refuses the job.
    """
    if not isinstance(facility, Recurring):
        raise InputError(trouble(facility), where="scrontab", hint="Use another way: --detach-by timer, cron or job.")
    job = JobSpec(f"look-{mark}", 1, walltime_s, cron.written(command, mark), memory_bytes=_MEMORY_BYTES)
    try:
        lines = facility.recurring_job(job, cron.EACH_MINUTE, folder.absolute() / _OUTPUT_FILE)
        with cron.locked():
            facility.set_recurring_jobs(cron.edited(facility.recurring_jobs(), mark, lines))
    except BaseException:
        cron.remove_script(mark)
        raise


def end(facility: Facility, mark: str) -> None:
    """Remove a job, if the table has it."""
    if not isinstance(facility, Recurring):
        return
    with cron.locked():
        before = facility.recurring_jobs()
        after = cron.edited(before, mark)
        if after != before:
            facility.set_recurring_jobs(after)
            cron.remove_script(mark)


def end_here(mark: str) -> None:
    """Remove a job that calls asa now, wherever its run has gone.

    Raises `AsaError`: the batch system is not found, or does not answer.
    """
    if "SLURM_JOB_ID" in os.environ:
        from asa.sites import open_facility  # noqa: PLC0415 - hardly any look needs it

        end(open_facility().facility, mark)
