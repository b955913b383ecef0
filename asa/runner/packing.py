"""Packs small stages into common jobs, as many as can run side by side.

The stages of a pack are ready, or follow the same stages or jobs. This applies only where jobs get whole nodes: alone,
each of these stages would be allocated a whole node. Stages that a host hands over one by one are gathered for a moment
first, if more are likely to come soon.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from statistics import median

from asa.runner.state import RunState
from asa.strategies.base import Keep, Phase, PlannedJob
from asa.waves import is_small, likeness, waves_of
from asa.workflow import Stage

_PATIENCE = 0.25  # share of a stage's run time for which it may wait for others to share its node
_MAX_PATIENCE_S = 60.0
_RECENT = 10  # of the latest hand-overs, and of the latest ends, those that are learned from
_UNDER_WAY = frozenset({Phase.QUEUED, Phase.ALLOCATED, Phase.RUNNING})


def packed(state: RunState, submissions: Sequence[PlannedJob], now_s: float) -> list[PlannedJob]:
    """Pack due jobs of the same kind; each pack takes the position of its first job.

    O(jobs times a node's stages). The longest jobs of a kind are packed first, so that long stages share packs.

    `state`: the run.
    `submissions`: the planned jobs.
    `now_s`: jobs planned until this time are due.
    """
    submissions = [part for job in submissions for part in _taken_apart(state, job, now_s)]
    instead: dict[tuple[str, ...], PlannedJob | None] = {}
    jobs_of: dict[str, str] = {}  # of each stage, the first stage of the job that is planned for it
    for _, level in groupby(_by_level(state, submissions), key=lambda pair: pair[0]):
        by_kind: dict[Hashable, list[PlannedJob]] = {}
        for _, job in level:
            jobs_of |= dict.fromkeys(job.stages, job.stages[0])
            if (kind := _kind(state, job, now_s, jobs_of)) is not None:
                by_kind.setdefault(kind, []).append(job)
        for jobs in by_kind.values():
            for pack in _packs(state, jobs):
                names = tuple(state.workflow.in_order(job.stages[0] for job in pack))
                jobs_of |= dict.fromkeys(names, names[0])
                firsts = sorted(pack, key=lambda job: names.index(job.stages[0]))
                instead |= {job.stages: None for job in firsts}
                instead[firsts[0].stages] = _gathered(state, _together(firsts) if len(firsts) > 1 else firsts[0], now_s)
    if not instead:
        return list(submissions)
    shared = (instead.get(job.stages, job) for job in submissions)
    return [job for job in shared if job is not None]


def _taken_apart(state: RunState, job: PlannedJob, now_s: float) -> Sequence[PlannedJob]:
    """Return a job for each stage that was handed over, of several that would run side by side.

    They are a part of what a strategy put together; the rest is not handed over yet. Others may share their node.
    """
    singles = [replace(job, stages=(name,)) for name in job.stages]
    if len(singles) < 2 or job.widths or not state.host.claimed_s.keys() >= set(job.stages):
        return [job]
    if any(_kind(state, single, now_s, {}) is None for single in singles) or job.keep is not Keep.NOTHING:
        return [job]
    waves = waves_of([state.stages[name].stage for name in job.stages], state.capabilities)
    return singles if len(waves) == 1 else [job]


def _by_level(state: RunState, submissions: Sequence[PlannedJob]) -> list[tuple[int, PlannedJob]]:
    """Return jobs with the number of planned jobs before each, on the longest path to it, in the order of these."""
    levels: dict[str, int] = {}
    found: list[tuple[int, PlannedJob]] = []
    for job in submissions:
        before = (earlier for name in job.stages for earlier in state.stages[name].stage.after)
        level = max((levels[name] + 1 for name in before if name in levels and name not in job.stages), default=0)
        found.append((level, job))
        levels |= dict.fromkeys(job.stages, level)
    return sorted(found, key=lambda pair: pair[0])


def _kind(state: RunState, job: PlannedJob, now_s: float, jobs_of: Mapping[str, str]) -> Hashable | None:
    """Return a key: jobs with equal keys may be packed together; None if the job cannot be packed.

    `jobs_of`: the planned job of each stage before it, by any name.
    """
    name = job.stages[0]
    view = state.stages[name]
    stage, site = view.stage, state.capabilities
    if not job.is_plain or job.submit_s > now_s:
        return None
    if not site.gives_whole_nodes(site.limits(stage.partition)) or not is_small(stage) or stage.retries:
        return None
    if name in state.choices or stage.moldable is not None or view.resubmissions:
        return None  # a failed stage is tried again alone
    return (
        job.keep,
        _waits_for(state, job, jobs_of),
        name in state.host.unclaimed,
        stage.partition,
        *likeness(stage, site),
    )


def _waits_for(state: RunState, job: PlannedJob, jobs_of: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a job waits for: jobs, if the batch system keeps it back until these have ended; else stages."""
    stage = state.stages[job.stages[0]].stage
    if job.keep is Keep.NOTHING:
        return ()
    if job.keep is not Keep.DEPENDENCY or stage.when != "success" or stage.after_any or stage.after_start:
        return tuple(sorted(stage.after))
    left = [name for name in stage.after if not state.stages[name].phase.is_settled]
    return tuple(sorted({state.stages[name].job_id or jobs_of.get(name, name) for name in left}))


def _gathered(state: RunState, job: PlannedJob, now_s: float) -> PlannedJob:
    """Let a job of stages that were handed over wait for others to share its node, if more are likely to come soon.

    A host that has an upper bound of jobs hands over the next one when one ends. Each stage waits for a quarter of what
    such stages run at most; and not at all if its job is full, nothing is under way whose end may bring another, or no
    stage is left that could be next and share the job.
    """
    host = state.host
    if job.keep is not Keep.NOTHING or not host.unclaimed or not host.claimed_s.keys() >= set(job.stages):
        return job
    if not any(state.stages[name].phase in _UNDER_WAY for name in reversed(host.claimed_s)):
        return job
    if (run_s := _usual_run_s(state)) is None or (gap_s := _gap_s(reversed(host.claimed_s.values()))) is None:
        return job
    stages = [state.stages[name].stage for name in job.stages]
    if len(waves_of([*stages, stages[0]], state.capabilities)) > 1:
        return job  # no room for one more
    patience_s = min(_PATIENCE * run_s, _MAX_PATIENCE_S)
    until_s = min(host.claimed_s[name] for name in job.stages) + patience_s
    if gap_s > patience_s or until_s <= now_s or not _may_get(state, stages[0]):
        return job
    return replace(job, submit_s=until_s, reason=f"gathers small stages that share a node; {job.reason}")


def _may_get(state: RunState, stage: Stage) -> bool:
    """Whether one of the stages that may be handed over next could share a job with this one."""
    kind = likeness(stage, state.capabilities)
    for name in state.host.unclaimed:
        view = state.stages[name]
        before = (state.stages[earlier].phase for earlier in view.stage.after)
        if view.phase.is_settled or not all(phase.is_settled or phase in _UNDER_WAY for phase in before):
            continue
        if (view.stage.partition, is_small(view.stage)) != (stage.partition, True):
            continue
        if likeness(view.stage, state.capabilities) == kind:
            return True
    return False


def _usual_run_s(state: RunState) -> float | None:
    """Return how long the latest stages of the run ran; None if none has ended."""
    ended = (state.stages[name] for name in reversed(state.host.claimed_s))
    runs = (v.ended_s - v.started_s for v in ended if v.ended_s is not None and v.started_s is not None)
    latest = list(islice(runs, _RECENT))
    return median(latest) if latest else None


def _gap_s(claims_s: Iterable[float]) -> float | None:
    """Return the mean time between hand-overs, of the latest, which come first; None if all came at once."""
    latest = list(islice(claims_s, _RECENT + 1))
    gap_s = (latest[0] - latest[-1]) / max(len(latest) - 1, 1)
    return gap_s or None


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
