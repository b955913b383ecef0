"""Submits jobs with equal requests in one call, where the batch system can: a fan of stages costs a call, not one each.

Nothing else changes: each job has its own token, intent and id, and its stage its own wait, log and retries. So only
the first attempt at a job goes this way, and only if the backend says that it makes no difference to the job. Jobs that
are refused together are asked for each by itself; whether later ones go together again, the refusal tells.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from asa.backend import JobSpec, SubmitsTogether
from asa.core.values import changed
from asa.keys import asked
from asa.runner.active import Active
from asa.runner.entries import Intended
from asa.runner.specs import conflict_in, spec_of
from asa.runner.submission import can_submit, shape, site_estimate_s
from asa.strategies.base import Choice, Phase, PlannedJob
from asa.workflow import Stage


def alike(
    active: Active, due: Sequence[PlannedJob], choices: Mapping[str, Choice]
) -> dict[tuple[str, ...], list[PlannedJob]]:
    """Group due jobs that probably ask for the same; return the group of each job that is in one, by its stages."""
    if active.state.capabilities.max_together < 2 or len(due) < 2 or not active.may_send_together:
        return {}
    if not isinstance(active.backend, SubmitsTogether):
        return {}
    groups: dict[Hashable, list[PlannedJob]] = {}
    for job in due:
        if (kind := _kind(active, active.backend, job, choices)) is not None:
            groups.setdefault(kind, []).append(job)
    return {job.stages: group for group in groups.values() if len(group) > 1 for job in group}


def _kind(active: Active, backend: SubmitsTogether, job: PlannedJob, choices: Mapping[str, Choice]) -> Hashable | None:
    """Return a key that jobs with equal requests share; None for a job that goes by itself."""
    state, name = active.state, job.stages[0]
    view = state.stages[name]
    stage = view.stage
    if not job.is_plain or stage.local:
        return None
    if view.resubmissions or view.attempts or state.units.of_stage(stage) is not state.units.whole:
        return None
    if state.token_of(job.stages) in state.jobs.intents:
        return None
    if backend.goes_alone(stage.options, _texts_of(stage, active.run.works_in)):
        return None
    waits_for = tuple(sorted(before for before in stage.after if not state.stages[before].phase.is_settled))
    size = stage.cores, stage.nodes, stage.partition, stage.walltime_s, choices.get(name)
    return job.keep, waits_for, size, stage.request, stage.options, stage.secrets, tuple(asked(stage).values())


def _texts_of(stage: Stage, folder: str) -> Iterator[str]:
    """Yield what a stage runs, as far as it is known."""
    from asa.spec.withheld import texts_of  # noqa: PLC0415 - loads pydantic, which most looks at a run do without

    yield from texts_of(stage, folder or None)


def submit_together(
    active: Active, group: Sequence[PlannedJob], choices: Mapping[str, Choice]
) -> list[tuple[str, ...]]:
    """Submit the jobs of a group that ask for the same as its first, in one call each time; return those submitted."""
    assert isinstance(active.backend, SubmitsTogether)
    sent: list[tuple[str, ...]] = []
    for some in _batches(group, active.state.capabilities.max_together):
        if not (active.may_send_together and can_submit(active, active.backend.now())):
            break
        pairs = list(_equal(active, some, choices))
        if len(pairs) < 2:
            continue
        now_s, backend = active.backend.now(), active.backend
        word_s = site_estimate_s(active, pairs[0][1])
        active.commit(
            *(
                Intended(spec.token, job, spec, now_s, word_s=word_s if job is pairs[0][0] else None)
                for job, spec in pairs
            )
        )
        attempts = {spec.token: active.attempts.at(job) for job, spec in pairs}
        active.send_together(attempts, lambda: backend.submit_together([spec for _, spec in pairs]))  # noqa: B023
        sent += [job.stages for job, _ in pairs]
    return sent


def _batches(group: Sequence[PlannedJob], size: int) -> Iterator[Sequence[PlannedJob]]:
    for at in range(0, len(group), size):
        yield group[at : at + size]


def _equal(
    active: Active, group: Sequence[PlannedJob], choices: Mapping[str, Choice]
) -> Iterator[tuple[PlannedJob, JobSpec]]:
    """Yield the jobs whose requests equal the first's, with their specs."""
    request: JobSpec | None = None
    for job in group:
        if active.state.stages[job.stages[0]].phase is not Phase.WAITING:
            continue
        shape(active, job, choices)
        late = changed(job, submit_s=max(job.submit_s, active.backend.now()))
        spec = spec_of(active.state, late)
        alone = spec.request_alone
        if alone is None or conflict_in(active.state, job, whole=active.run.strategy.is_one_job):
            continue
        request = alone if request is None else request
        if alone == request:
            yield late, spec
