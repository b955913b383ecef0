"""Jobs that can do nothing any more: what they are to run will not run, or what they depend on is gone."""

from __future__ import annotations

from asa.exactly_once import TWIN
from asa.runner.course import RunCourse
from asa.runner.jobs import Job
from asa.strategies.base import Phase

HOPELESS = "DependencyNeverSatisfied"
"""Reason of a job that the batch system can never start."""

_OUT_FOR_GOOD = frozenset({Phase.BLOCKED, Phase.NOT_WANTED})


def why_stranded(run: RunCourse, job: Job) -> str:
    """Say why a job can never run its stages; empty if it may."""
    own = (view for name in job.planned.stages if (view := run.stages[name]).job_id == job.status.job_id)
    if why := next((view.reason for view in own if view.phase in _OUT_FOR_GOOD), ""):
        return why
    needed = run.jobs.needed(job)
    if (void := next((one for one in needed if is_void_for(run, job, one)), None)) is not None:
        return f"job {void.status.job_id}, which it depends on, is gone"
    are_over = all(one.status.state.is_final and one.status.reason != TWIN for one in needed)
    return "the batch system says that it can never start" if job.status.reason == HOPELESS and are_over else ""


def is_void_for(run: RunCourse, job: Job, needed: Job) -> bool:
    """Whether one job can do no more for another: of several that share a stage, if none that is left can."""
    if not needed.round:
        return needed.is_void and not _has_done_its_part(run, needed, job)
    if run.stages[needed.planned.stages[0]].phase.is_settled or needed.round == job.round:
        return False
    mates = (one for one in run.jobs.needed(job) if one.round == needed.round)
    return all(one.status.state.is_final or one.giving_up for one in mates)


def _has_done_its_part(run: RunCourse, needed: Job, job: Job) -> bool:
    """Whether of a job that failed those stages completed, of several side by side, that another's follow."""
    if not needed.spec.has_waves:
        return False
    followed = {before for name in job.planned.stages for before in run.stages[name].stage.after}
    return all(run.stages[name].phase is Phase.DONE for name in followed.intersection(needed.planned.stages))
