"""Packs small stages into common jobs, as many as can run side by side.

The stages of a pack are ready, or follow the same stages. This applies only where jobs get whole nodes: alone, each of
these stages would be allocated a whole node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from asa.runner.state import RunState
from asa.strategies.base import Keep, PlannedJob
from asa.waves import is_small, likeness, waves_of


def packed(state: RunState, submissions: Sequence[PlannedJob], now_s: float) -> list[PlannedJob]:
    """Pack due jobs of the same kind; each pack takes the position of its first job.

    O(jobs times a node's stages). The longest jobs of a kind are packed first, so that long stages share packs.

    `state`: the run.
    `submissions`: the planned jobs.
    `now_s`: jobs planned until this time are due.
    """
    by_kind: dict[object, list[PlannedJob]] = {}
    for job in submissions:
        if (kind := _kind(state, job, now_s)) is not None:
            by_kind.setdefault(kind, []).append(job)
    instead: dict[tuple[str, ...], PlannedJob | None] = {}
    for jobs in by_kind.values():
        for pack in _packs(state, jobs):
            if len(pack) > 1:
                names = tuple(state.workflow.in_order(job.stages[0] for job in pack))
                firsts = sorted(pack, key=lambda job: names.index(job.stages[0]))
                instead |= {job.stages: None for job in firsts}
                instead[firsts[0].stages] = _together(firsts)
    if not instead:
        return list(submissions)
    shared = (instead.get(job.stages, job) for job in submissions)
    return [job for job in shared if job is not None]


def _kind(state: RunState, job: PlannedJob, now_s: float) -> object:
    """Return a key: jobs with equal keys may be packed together; None if the job cannot be packed."""
    name = job.stages[0]
    view = state.stages[name]
    stage, site = view.stage, state.capabilities
    if not job.is_plain or job.submit_s > now_s:
        return None
    if not site.gives_whole_nodes(site.limits(stage.partition)) or not is_small(stage) or stage.retries:
        return None
    if name in state.choices or stage.moldable is not None or view.resubmissions:
        return None  # a failed stage is tried again alone
    after = () if job.keep is Keep.NOTHING else tuple(sorted(stage.after))
    return job.keep, after, name in state.host.unclaimed, stage.partition, *likeness(stage, site)


def _packs(state: RunState, jobs: Sequence[PlannedJob]) -> list[list[PlannedJob]]:
    most = len(jobs) if state.host.max_jobs is None else max(state.host.max_jobs, 1)
    packs: list[list[PlannedJob]] = []
    for job in sorted(jobs, key=lambda job: -state.stages[job.stages[0]].stage.expected_s):
        if packs and len(packs[-1]) < most:
            stages = [state.stages[planned.stages[0]].stage for planned in (*packs[-1], job)]
            if len(waves_of(stages, state.capabilities)) == 1:
                packs[-1].append(job)
                continue
        packs.append([job])
    return packs


def _together(jobs: Sequence[PlannedJob]) -> PlannedJob:
    return replace(
        jobs[0],
        stages=tuple(job.stages[0] for job in jobs),
        submit_s=max(job.submit_s for job in jobs),
        reason=f"{len(jobs)} stages side by side on a node; {jobs[0].reason}",
        prediction=None,
        needed_s=min((job.needed_s for job in jobs if job.needed_s is not None), default=None),
        spare_walltime_s=max(job.spare_walltime_s for job in jobs),
    )
