"""Writes the jobs that the batch system is asked for, from a plan and the state of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from asa.backend import Dependency, DependencyType, JobSpec, Step
from asa.compatible import conflict
from asa.errors import InputError
from asa.keys import JobKeys, asked, shared_by
from asa.payload import Share, payload_text
from asa.printable import first_of
from asa.runner.accounts import NOTICE_S
from asa.runner.clusters import fetching_s
from asa.runner.host import release_of
from asa.runner.jobs import round_of
from asa.runner.kinds.racers import as_asked, races_of
from asa.runner.state import RunState
from asa.strategies.base import Choice, Keep, PlannedJob
from asa.waves import Waves, asked_by, cores_of, is_series, walltime_of
from asa.workflow import Slot, Stage

HANDOVER_S = 120.0
"""Additional walltime of jobs of an open run, in which the host hands their stages over."""
_MIN_HANDOVER_S = 20.0  # lower bound of that time where the partition allows no more walltime


def spec_of(state: RunState, planned: PlannedJob) -> JobSpec:
    """Return the spec of a planned job; stages that share it are arranged inside it."""
    state = _in_shapes_of(state, planned)
    units = state.units.planned(planned, state.stages)
    if (whole := units.spec(state, planned)) is not None:
        return whole
    stages = _asked(state, planned.stages)
    ask = ask_of(state, planned.stages, planned.widths)
    own = units.asks(state, planned)
    waves = state.waves(planned.stages, planned.widths)
    slots = state.layout(planned)
    inside = set(planned.stages)
    before = [name for stage in stages for name in stage.after if name not in inside]
    waited_for = _with_others(state, _jobs_before(state, before)) if planned.keep is Keep.DEPENDENCY else []
    waited_for = units.waits_for(state, planned, waited_for)
    walltime = ask.walltime_s + planned.spare_walltime_s
    if planned.keep is not Keep.NOTHING:
        walltime += local_before(state, before)
    releases = releases_of(state, planned)
    handover_s = HANDOVER_S if releases else 0.0
    walltime += handover_s + fetching_s(state, planned.stages, ask.partition)
    return replace(
        ask,
        name=f"{state.name}/{_called(state, planned, own)}",
        token=token_of(state, planned),
        walltime_s=state.at_most(walltime, planned.stages, ask.partition),
        command=_payload(state, stages[0], planned, own, ask.walltime_s) if len(stages) == 1 else "",
        steps=_steps(state, planned, slots, waves) if len(stages) > 1 else (),
        tasks=_tasks(state, stages[0], ask) if len(stages) == 1 else 0,
        dependencies=tuple(_dependency(state, planned, job_id) for job_id in waited_for),
        # the payload itself waits, too: sites may start a job whose dependency was dropped
        awaits=(
            *(_awaited(state, before) if planned.keep is not Keep.NOTHING else ()),
            # in a wave of several stages, each waits by itself
            *(_own(releases, slots[0].stage) if len(waves[0]) == 1 else ()),
        ),
        supersedes=_superseded(state, planned),
        max_await_s=_max_await_s(state, planned, before, ask.walltime_s, handover_s),
        avoid=state.nodes.avoided(planned.submit_s, _nodes_of(state, ask), planned.stages),
        run_s=max(slot.end_s for slot in slots),
        comment=_comment(stages),
        **({"posts": tuple(state.post(name) for name in planned.stages)} | own),
    )


def _in_shapes_of(state: RunState, planned: PlannedJob) -> RunState:
    """Return the run's state as if a job's stages were asked for in its own shapes; the run itself is unchanged."""
    if not planned.shapes:
        return state
    shaped = copy(state)
    shaped.stages = state.stages.showing(as_asked(state, planned))
    shaped.choices = state.choices | {n: Choice(s) for n, s in zip(planned.stages, planned.shapes, strict=True)}
    return shaped


def conflict_in(state: RunState, planned: PlannedJob, *, whole: bool = False) -> str:
    """Return what keeps a planned job's stages from sharing it, as `conflict` does; empty if nothing."""
    stages = _in_shapes_of(state, planned).stages
    return conflict([stages[name].stage for name in planned.stages], whole=whole)


def ask_of(state: RunState, names: Sequence[str], widths: Sequence[int] = ()) -> JobSpec:
    """Return the request of a job of the given stages that may run at once; `spec_of` adds the payload."""
    stages = _asked(state, names)
    per_node = state.capabilities.cores_per_node
    widest = stages[:1] if widths else stages
    waves: Waves = ((stages[0],),) if len(stages) == 1 else state.waves(names, widths)
    nodes = max(stage.nodes or 0 for stage in widest)
    cores = max(stage.cores_on(per_node) for stage in widest) if widths else cores_of(waves, per_node)
    keys = JobKeys(**(shared_by(stages) if len(stages) == 1 else asked_by(waves)))
    cores = keys.allocated(cores, nodes, per_node)
    walltime = walltime_of(waves)
    if not state.choices.keys().isdisjoint(names):
        walltime = state.workflow.walltime_of(names, walltime)
    elif len(stages) == len(state.workflow.stages) > 1 and (is_series(waves) or state.workflow.says_walltime):
        # the walltime is longer for stages that ran out of it
        walltime = sum(stage.walltime_s for stage in stages) + state.workflow.walltime_s
        walltime -= sum(stage.walltime_s for stage in state.workflow.stages.values())
    partition = next((stage.partition for stage in stages if stage.partition), "")
    together = _in_one_piece(stages, per_node) if is_series(waves) else cores  # cores on one node
    return JobSpec(
        name="",
        cores=widths[0] if widths else _in_tasks(cores, together, nodes),
        nodes=_nodes_for(cores, per_node, nodes),
        cpus_per_task=together,
        walltime_s=state.at_most(walltime, names, partition),
        partition=partition,
        options=tuple(dict.fromkeys(option for stage in stages for option in stage.options)),
        request=_request(state, widths, stages),
        local=all(stage.local for stage in stages),
        # of several steps, Slurm does not say which ran out of memory: the script's own counters do
        out_of_memory="fail" if all(stage.out_of_memory == "fail" for stage in stages) else "ignore",
        secrets=tuple(dict.fromkeys(name for stage in stages for name in stage.secrets)),
        **asked(keys),
    )


class KeptAsks:
    """Requests of a run's jobs, each made once for as long as its stages and their shapes stay the same.

    A strategy may ask for the wait of every stage after each event.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._known: dict[tuple[str, ...], tuple[tuple[object, ...], int, JobSpec]] = {}

    def of(self, names: tuple[str, ...]) -> JobSpec:
        """Return `ask_of` these stages, in their own widths."""
        state, known = self._state, self._known.get(names)
        size = len(state.workflow.stages)
        behind = (*(state.stages[name].stage for name in names), *map(state.choices.get, names))
        if known is None or known[1] != size or any(was is not now for was, now in zip(known[0], behind, strict=True)):
            known = self._known[names] = behind, size, ask_of(state, names)
        return known[2]


def _asked(state: RunState, names: Sequence[str]) -> list[Stage]:
    """Return the stages of a job; a stage that is alone in it gets the request of one of its jobs."""
    stages = [state.stages[name].stage for name in names]
    return [stage.of_each_job() for stage in stages] if len(stages) == 1 else stages


def _request(state: RunState, widths: Sequence[int], stages: Sequence[Stage]) -> tuple[str, ...] | None:
    """Return a stage's own size options, if the job is for this stage alone, in no chosen width."""
    if len(stages) > 1 or widths:
        return None
    [stage] = stages
    is_chosen = stage.name in state.choices and stage.moldable is not None and bool(stage.moldable.widths)
    return None if is_chosen else stage.request


def token_of(state: RunState, planned: PlannedJob) -> str:
    """Return the token of a planned job; if asked for again while in doubt, it keeps its token."""
    return state.units.planned(planned, state.stages).token(state, planned)


def _called(state: RunState, planned: PlannedJob, own: Mapping[str, Any]) -> str:
    stages = "+".join(planned.stages) if len(planned.stages) < 4 else state.workflow.name
    return f"{stages}.{own['leg']}" if "leg" in own else stages


def _comment(stages: Sequence[Stage]) -> str:
    """Return the comments of a job's stages, of many the first."""
    return first_of([stage.comment for stage in stages if stage.comment])


def _awaited(state: RunState, before: Iterable[str]) -> tuple[str, ...]:
    """Return the tokens of unsettled stages' completion markers; a job that fails after its stage writes none."""
    return tuple(dict.fromkeys(state.post(name) for name in before if not state.stages[name].phase.is_settled))


def _max_await_s(
    state: RunState, planned: PlannedJob, before: Iterable[str], own_s: float, handover_s: float
) -> float | None:
    """Return how long a job may idle before its payload begins: its walltime less the walltime of its stages.

    `handover_s`: additional time for the host to hand its stages over.
    """
    idle_s = local_before(state, before)
    is_early = planned.keep is Keep.AWAIT or (planned.keep is not Keep.NOTHING and bool(idle_s))
    if not is_early and not handover_s:
        return None
    early_s = planned.spare_walltime_s + idle_s if is_early else 0.0
    asked_s = state.at_most(own_s + early_s + handover_s, planned.stages, "")
    return max(asked_s - own_s, min(handover_s, _MIN_HANDOVER_S), 1.0)


def releases_of(state: RunState, planned: PlannedJob) -> dict[str, str]:
    """Return, by stage not yet handed over, the release that its job waits for."""
    if not state.host.unclaimed:
        return {}
    token = token_of(state, planned)
    return {name: release_of(token, name, state.stages) for name in planned.stages if name in state.host.unclaimed}


def _superseded(state: RunState, planned: PlannedJob) -> tuple[str, ...]:
    """Return the tokens of earlier jobs of the given stages, also of those that may yet turn up."""
    former = {
        token: (state.jobs.intents[token].planned, state.jobs.intents[token].spec) for token in state.jobs.doubtful
    }
    if any(state.stages[name].resubmissions for name in planned.stages):
        former |= {
            job.spec.token: (job.planned, job.spec) for name in planned.stages for job in state.jobs.of_stage(name)
        }
    stages, token = set(planned.stages), token_of(state, planned)
    races = {state.units.racing.race_of(state, name) for name in planned.stages} if planned.racer else set[str]()
    own = state.token_of(planned.stages)  # the round of all jobs that share the stage
    return tuple(
        t
        for t, (earlier, spec) in former.items()
        if t != token
        and earlier.has_payload
        and round_of(spec) != own
        and not (spec.race and races.intersection(races_of(spec)))
        and stages.intersection(earlier.stages)
    )


def _own(releases: Mapping[str, str], stage: str) -> tuple[str, ...]:
    return (releases[stage],) if stage in releases else ()


def _steps(state: RunState, planned: PlannedJob, slots: Sequence[Slot], waves: Waves) -> tuple[Step, ...]:
    """Return the steps of stages that share a job, each with the cores that the job keeps from that step on."""
    if not is_series(waves):
        side_by_side = {stage.name for wave in waves for stage in wave[1:]}
        return tuple(
            replace(_step(state, planned, state.stages[slot.stage].stage, 0, slot), beside=slot.stage in side_by_side)
            for slot in slots
        )
    stages = [state.stages[slot.stage].stage for slot in slots]
    keeps = state.units.widths(state, planned, stages)
    return tuple(map(partial(_step, state, planned), stages, keeps, slots))


def _step(state: RunState, planned: PlannedJob, stage: Stage, keeps: int, slot: Slot) -> Step:
    per_node = state.capabilities.cores_per_node
    cores = _in_tasks(stage.payload_cores_on(per_node), stage.cpus_per_task, stage.nodes or 0)
    return Step(
        stage.name,
        _payload(state, stage, planned, {}, stage.walltime_s),
        cores=keeps,
        slot_s=(slot.start_s, slot.end_s),
        tasks=cores // stage.cpus_per_task,
        cpus_per_task=stage.cpus_per_task,
        nodes=stage.nodes or 0,
        post=state.post(stage.name),
        awaits=_own(releases_of(state, planned), stage.name),
        out_of_memory=stage.out_of_memory,
        race=state.units.racing.race_of(state, stage.name) if planned.racer else "",
    )


def _tasks(state: RunState, stage: Stage, ask: JobSpec) -> int:
    """Count the tasks of a stage that is alone in its job; 0 if they use all of its cores."""
    tasks = -(-stage.payload_cores_on(state.capabilities.cores_per_node) // stage.cpus_per_task)
    return tasks if tasks * stage.cpus_per_task < ask.cores else 0


def _payload(state: RunState, stage: Stage, planned: PlannedJob, own: Mapping[str, Any], walltime_s: float) -> str:
    """Return the text that a job runs for a stage; `own`: what its kind of unit adds to the request."""
    cores = stage.payload_cores_on(state.capabilities.cores_per_node)
    turn = state.units.planned(planned, state.stages).turn(state, planned, walltime_s)
    in_doubt = tuple(job.spec.token for job in state.jobs.of_stage(stage.name) if job.status.in_doubt)
    share = Share(state.stages[stage.name].resubmissions, token_of(state, planned), own.get("sharing", 0), in_doubt)
    return payload_text(stage, cores, folder=state.tasks_of(stage.name), share=share, turn=turn)


def _jobs_before(state: RunState, before: Iterable[str]) -> set[str]:
    """Return the ids of the jobs that must complete before the given stages have.

    A local stage has no job in the queue: the jobs of its predecessors count instead, and the payload itself waits for
    the local stage.
    """
    jobs, to_see, seen = set[str](), list(before), set[str]()
    while to_see:
        name = to_see.pop()
        view = state.stages[name]
        if name in seen or view.phase.is_settled:
            continue
        seen.add(name)
        if view.stage.local:
            to_see.extend(view.stage.after)
        else:
            jobs.add(_job_of(state, name))
    return jobs


def _with_others(state: RunState, jobs: Iterable[str]) -> list[str]:
    """Add the unended jobs that run the same stages."""
    own_jobs = [state.jobs[job_id] for job_id in jobs]
    return sorted({job.status.job_id for own in own_jobs for job in (own, *state.units.of(own).others(own))})


def _dependency(state: RunState, planned: PlannedJob, job_id: str) -> Dependency:
    """Return the dependency on a job; a leg that takes over may also start a given time after that job's start."""
    if planned.delay_s:
        return Dependency(job_id, DependencyType.AFTER, planned.delay_s, or_end=True)
    return Dependency(job_id, state.units.of(state.jobs[job_id]).awaited_end(state.jobs[job_id]))


def _job_of(state: RunState, stage: str) -> str:
    job_id = state.stages[stage].job_id
    if job_id is None:
        raise InputError(
            "has no job yet that another could depend on",
            where=f"stage {stage!r}",
            hint="A plan must list a stage after those that it follows.",
        )
    return job_id


def local_before(state: RunState, before: Iterable[str]) -> float:
    """Return how many seconds an allocation may idle because the client must first run local stages."""
    known: dict[str, float] = {}

    def idle_s(names: Iterable[str]) -> float:
        return max((known.get(name, 0.0) for name in names), default=0.0)

    for name in _local_to_run(state, before):
        stage = state.stages[name].stage
        known[name] = stage.expected_s + NOTICE_S + idle_s(stage.after)
    return idle_s(before)


def _local_to_run(state: RunState, before: Iterable[str]) -> list[str]:
    """Name the local stages that must run first, in order: the given stages, and local stages directly before them."""
    found, to_see = set[str](), list(before)
    while to_see:
        name = to_see.pop()
        view = state.stages[name]
        if name not in found and view.stage.local and not view.phase.is_settled:
            found.add(name)
            to_see.extend(view.stage.after)
    return state.workflow.in_order(found)


def _nodes_of(state: RunState, ask: JobSpec) -> int:
    """Return a lower bound of a job's nodes."""
    per_node = state.capabilities.cores_per_node
    return max(ask.nodes, -(-ask.cores // per_node) if per_node else 1, 1)


def _nodes_for(cores: int, per_node: int, nodes: int) -> int:
    """Return how many nodes to ask for, if a stage asks for nodes: stages that ask for cores may need more."""
    return max(nodes, -(-cores // per_node)) if nodes and per_node else nodes


def _in_one_piece(stages: Sequence[Stage], cores_per_node: int) -> int:
    """Return cores per task with which each stage fits; if tasks do not divide a node, those of the widest stage."""
    most = max(stage.cpus_per_task for stage in stages)
    if cores_per_node % most == 0 if cores_per_node else len(stages) == 1:
        return most
    return max(stages, key=lambda stage: (stage.cores_on(cores_per_node), stage.cpus_per_task)).cpus_per_task


def _in_tasks(cores: int, together: int, nodes: int) -> int:
    """Round cores to whole tasks: down on given nodes, where tasks are not split, and else up."""
    if nodes:
        return nodes * max(cores // nodes // together, 1) * together
    return -(-cores // together) * together
