"""Decides which jobs of a plan may be submitted when: after pauses, and after local stages that the client must run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from asa.backend import cluster_of
from asa.runner.accounts import NOTICE_S
from asa.runner.clusters import waits_elsewhere
from asa.runner.specs import ask_of, local_before, token_of
from asa.runner.state import RunState
from asa.strategies.base import Choice, Keep, Phase, Plan, PlannedJob
from asa.units import core_hours

_MAX_IDLE = 0.25  # share of a workflow's core-hours that jobs may idle while the client runs local stages


def with_substitutes(state: RunState, plan: Plan) -> Plan:
    """Put the substitutes of cancelled jobs into a plan, in place of other jobs for the same stages.

    Until they are accepted, no job that depends on others is submitted: the next plan is made with the substitutes.
    """
    waiting = [
        substitute
        for substitute, *_ in state.jobs.substitutes
        if all(state.stages[name].phase is Phase.WAITING for name in substitute.planned.stages)
    ]
    if not waiting or plan.cancellations:
        return plan
    taken = {name for substitute in waiting for name in substitute.planned.stages}
    others = (job for job in plan.submissions if job.is_addition or job.keep is Keep.NOTHING)
    free = (job for job in others if job.is_addition or taken.isdisjoint(job.stages))
    choices = dict(plan.choices)
    for substitute in waiting:
        choices |= substitute.choices
    return replace(plan, submissions=(*(substitute.planned for substitute in waiting), *free), choices=choices)


def settled(state: RunState, plan: Iterable[PlannedJob]) -> list[PlannedJob]:
    """Change planned jobs with stages of a job whose submission is in doubt.

    Stages that such a job is thus left without, and jobs that follow these, are left to the next plan.
    """
    made, left = list[PlannedJob](), set[str]()
    for planned in plan:
        job = _settled(state, planned)
        left.update(set(planned.stages).difference(job.stages))
        if job.has_payload and left and not left.isdisjoint(before(state, job.stages)):
            left.update(job.stages)
        else:
            made.append(job)
    return made


def _settled(state: RunState, planned: PlannedJob) -> PlannedJob:
    """Change a planned job if some of its stages are in a job whose submission is in doubt.

    That job may yet turn up. So that these stages do not run twice, they are submitted again only together, exactly as
    in that job. Stages before them in the planned job are submitted first.
    """
    if planned.is_addition or not state.jobs.doubtful:
        return planned
    group_of = {name: group for group in _in_doubt(state) for name in group.stages}
    if not (shared := [name for name in planned.stages if name in group_of]):
        return planned
    earlier = planned.stages[: planned.stages.index(shared[0])]
    if earlier:
        return replace(planned, stages=earlier, widths=planned.widths[: len(earlier)] if len(earlier) > 1 else ())
    return replace(group_of[shared[0]], submit_s=planned.submit_s, keep=planned.keep)


def claimed_apart(state: RunState, plan: Iterable[PlannedJob]) -> Iterator[PlannedJob]:
    """Split jobs, so that stages that the host has handed over do not wait for stages yet to be handed over."""
    ready_but_kept_back = state.stages.ready_but_kept_back if state.host.max_jobs is not None else frozenset[str]()
    for planned in plan:
        shared = planned.stages if state.host.unclaimed and not planned.is_addition else ()
        later: dict[str, None] = {}
        next_ones = frozenset[str]() if state.host.unclaimed.keys() >= set(shared) else ready_but_kept_back
        for name in shared if len(shared) > 1 else ():
            is_later = name in next_ones or _is_to_be_claimed_first(state, name)
            if is_later or not later.keys().isdisjoint(state.stages[name].stage.after):
                later[name] = None
        if not later or len(later) == len(shared):
            yield planned
            continue
        for own in ([name for name in shared if name not in later], [*later]):
            widths = [w for name, w in zip(shared, planned.widths, strict=False) if name in own]
            yield replace(planned, stages=tuple(own), widths=tuple(widths) if len(own) > 1 else ())


def _in_doubt(state: RunState) -> Iterator[PlannedJob]:
    """Return the jobs in doubt that may be submitted again: none of their stages is settled."""
    sent = {job.spec.token for job in state.jobs.values()}
    for token in state.jobs.doubtful.keys() - sent:
        planned = state.jobs.intents[token].planned
        if (
            not planned.has_payload
            or not state.stages.keys() >= set(planned.stages)
            or token_of(state, planned) != token
        ):
            continue
        if not any(state.stages[name].phase.is_settled for name in planned.stages):
            yield planned


def times_of(
    state: RunState, plan: Iterable[PlannedJob], choices: Mapping[str, Choice] = MappingProxyType({})
) -> list[float]:
    """Return when to submit each job of a plan; infinity if the job, or one before it, cannot be submitted yet."""
    plan = list(plan)
    times, not_yet, left = list[float](), set[str](), None
    # for each stage of an earlier job, the time of that job's submission, so that later jobs can depend on it
    asked_s: dict[str, float] = {}
    free = _free_for_host(state, plan)
    undecided = _undecided(state, free)
    for job in plan:
        behind = before(state, job.stages)
        is_unknown = any(map(state.has_unknown_end, behind))
        is_unknown = is_unknown or _waits_elsewhere(state, job, choices)
        is_late = is_unknown and not job.is_addition
        time_s = math.inf if is_late else max(job.submit_s, _when_known_s(state, job))
        # else it may be submitted before its predecessors; but where these are tells what it has to fetch
        if job.has_payload and (job.keep is Keep.DEPENDENCY or (job.keep is Keep.AWAIT and state.capabilities.moves_s)):
            time_s = max(time_s, _last_s(asked_s, behind))
        if state.host.may_add and job.has_payload and not state.host.unclaimed.keys().isdisjoint(job.stages):
            later = (name in undecided or _is_to_be_claimed_first(state, name) for name in job.stages)
            if free <= 0 or any(later):
                not_yet.update(job.stages)
                time_s = math.inf
            else:
                free -= 1
        if job.has_payload:
            idle = _idle_behind_local(state, job) if job.keep is not Keep.NOTHING else 0.0
            fits = True
            if idle:
                left = _idle_left_behind_local(state) if left is None else left
                fits = idle <= left
            if not fits or is_unknown or not not_yet.isdisjoint(behind):
                not_yet.update(job.stages)
                time_s = math.inf
            elif left is not None:
                left -= idle
            # what follows a local stage depends on the jobs before it
            is_local = state.stages[job.stages[0]].stage.local
            asked_s |= dict.fromkeys(job.stages, _last_s(asked_s, behind) if is_local else time_s)
        times.append(time_s)
    return times


def _waits_elsewhere(state: RunState, job: PlannedJob, choices: Mapping[str, Choice]) -> bool:
    """Whether a job would depend on one of another cluster, or on one there that races with it."""
    if not state.capabilities.clusters or job.keep is not Keep.DEPENDENCY:
        return False
    if waits_elsewhere(state, job, choices):
        return True
    ids = {state.stages[name].job_id for name in before(state, job.stages) if not state.stages[name].phase.is_settled}
    owns = [state.jobs[job_id] for job_id in ids if job_id is not None and job_id in state.jobs]
    others = (other.status.job_id for own in owns for other in state.units.of(own).others(own))
    there = {cluster_of(job_id) for job_id in (*others, *filter(None, ids))}
    return len(there & state.capabilities.clusters.keys()) > 1


def _last_s(asked_s: Mapping[str, float], names: Iterable[str]) -> float:
    """Return when the last of the given stages is submitted, as far as known."""
    return max((asked_s[name] for name in names if name in asked_s), default=-math.inf)


def _free_for_host(state: RunState, plan: Sequence[PlannedJob]) -> float:
    """Count the jobs that may be submitted before the host of an open run hands their stages over."""
    if not state.host.may_add:
        return 0
    if state.host.max_jobs is None:
        return math.inf
    handed_over = sum(job.has_payload and state.host.unclaimed.keys().isdisjoint(job.stages) for job in plan)
    return state.host.max_jobs - len(state.jobs.live()) - handed_over


def _undecided(state: RunState, free: float) -> frozenset[str]:
    """Name ready stages, if there are more than the host hands over: the host decides which are first."""
    ready = state.stages.ready_but_kept_back if state.host.may_add and free < math.inf else frozenset()
    return ready if len(ready) > free else frozenset()


def _is_to_be_claimed_first(state: RunState, name: str) -> bool:
    """Whether a stage is submitted only after its handover, because an earlier allocation for it was in vain."""
    view = state.stages[name]
    return name in state.host.unclaimed and (view.resubmissions > 0 or name in state.host.attempts_failed)


def _idle_behind_local(state: RunState, planned: PlannedJob) -> float:
    """Return the core-hours that a job may idle behind local stages; infinity after one idled in vain."""
    if not (idle_s := local_before(state, before(state, planned.stages))):
        return 0.0
    if any(state.stages[name].resubmissions for name in planned.stages):
        return math.inf
    return core_hours(ask_of(state, planned.stages, planned.widths).cores, idle_s - NOTICE_S)


def _idle_left_behind_local(state: RunState) -> float:
    """Return the core-hours that jobs of this run may yet idle while the client runs local stages."""
    idle = state.accounts.idled_behind_local()
    return _MAX_IDLE * state.workflow.stage_core_hours(state.capabilities.cores_per_node) - idle


def before(state: RunState, stages: Sequence[str]) -> list[str]:
    """Name the predecessors of the given stages, without these stages themselves."""
    inside = set(stages)
    return [name for stage in stages for name in state.stages[stage].stage.after if name not in inside]


def earliest_s(state: RunState, planned: PlannedJob) -> float:
    """Return the earliest time to submit a planned job; infinity while that depends on other jobs.

    A local job is submitted when the stages before it have ended. A failed job is submitted again after a pause; jobs
    that depend on it are not submitted before that.
    """
    is_unknown = not planned.is_addition and any(map(state.has_unknown_end, before(state, planned.stages)))
    return math.inf if is_unknown else _when_known_s(state, planned)


def _when_known_s(state: RunState, planned: PlannedJob) -> float:
    """Return the same of a job none of whose stages follows a stage whose last job is still unknown."""
    if planned.is_addition:
        return -math.inf
    if all(state.stages[name].stage.local for name in planned.stages) and any(
        not state.stages[before].phase.is_settled
        for name in planned.stages
        for before in state.stages[name].stage.after
        if before not in planned.stages
    ):
        return math.inf
    pauses_s = state.stages.pauses_s()
    return max(pauses_s.get(name, -math.inf) for name in planned.stages)
