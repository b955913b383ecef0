"""Jobs that are of no use any more: since others did their work, or since what they depend on is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asa.exactly_once import TWIN
from asa.runner.jobs import Job
from asa.strategies.base import Phase

if TYPE_CHECKING:
    from asa.runner.state import RunState

HOPELESS = "DependencyNeverSatisfied"
"""Reason of a job that the batch system can never start."""

_OUT_FOR_GOOD = frozenset({Phase.BLOCKED, Phase.NOT_WANTED})


def why_lost(run: RunState, job: Job) -> str:
    """Say why a job that has not begun its payload is of no use any more; empty if it is."""
    if job.planned.joins or job.giving_up or job.status.payload_start_s is not None:
        return ""
    own = [view for name in job.planned.stages if (view := run.stages[name]).job_id == job.status.job_id]
    is_shared = bool(job.spec.bag)
    if job.spec.leg and run.is_of_its_round(job) and job.spec.leg < run.stages[job.planned.stages[0]].leg:
        why = "a later leg goes on"
    elif is_shared and (run.sharing.is_useless(job) or not run.is_of_its_round(job)):
        why = "nothing is left to do" if job.spec.leg else "no tasks are left"
    elif not own and job.status.reason != TWIN and not is_shared:
        why = "its stages have another job"
    else:
        why = next((view.reason for view in own if view.phase in _OUT_FOR_GOOD), "")
    if why:
        return why
    needed = run.jobs.needed(job)
    if (void := next((one for one in needed if is_void_for(run, job, one)), None)) is not None:
        return f"job {void.status.job_id}, which it depends on, is gone"
    are_over = all(one.status.state.is_final and one.status.reason != TWIN for one in needed)
    return "the batch system says that it can never start" if job.status.reason == HOPELESS and are_over else ""


def is_void_for(run: RunState, job: Job, needed: Job) -> bool:
    """Whether one job can do no more for another: of several that share a stage, if none that is left can."""
    if not needed.spec.bag:
        return needed.is_void and not _has_done_its_part(run, needed, job)
    if run.stages[needed.planned.stages[0]].phase.is_settled or needed.round == job.round:
        return False
    mates = (one for one in run.jobs.needed(job) if one.round == needed.round)
    return all(one.status.state.is_final or one.giving_up for one in mates)


def _has_done_its_part(run: RunState, needed: Job, job: Job) -> bool:
    """Whether of a job that failed those stages completed, of several side by side, that another's follow."""
    if not needed.spec.has_waves:
        return False
    followed = {before for name in job.planned.stages for before in run.stages[name].stage.after}
    return all(run.stages[name].phase is Phase.DONE for name in followed.intersection(needed.planned.stages))
