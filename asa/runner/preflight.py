"""Asks a batch system whether a run's jobs could ever run, before the first of them is submitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from asa.backend import Backend, JobSpec, Preflight
from asa.errors import InputError
from asa.runner.folder import RunPlan
from asa.runner.outlook import CHECKED_WITH_OPTIONS, PlannedSpec, jobs_at_first
from asa.strategies.base import Strategy

MAX_QUESTIONS = 20
"""Upper bound of the jobs that are asked about; equal requests count as one."""

QUESTION_S = 1.0
"""Seconds to wait for an answer."""

MAX_S = 15.0
"""Seconds for all questions together; after that no more are asked."""


@dataclass(slots=True)
class _Questions:
    """Asks about jobs while there is time, and only once about equal requests."""

    backend: Preflight
    timer: Callable[[], float]
    _answers: dict[JobSpec, str | None] = field(default_factory=dict)
    _asked_s: float = 0.0

    def ask(self, spec: JobSpec) -> str | None:
        kind = _kind(spec)
        if kind not in self._answers:
            if len(self._answers) >= MAX_QUESTIONS or self._asked_s > MAX_S - QUESTION_S:
                return None
            begun_s = self.timer()
            self._answers[kind] = self.backend.test(spec, QUESTION_S)
            self._asked_s += self.timer() - begun_s
        return self._answers[kind]


def check_accepted(
    plan: RunPlan, strategy: Strategy, backend: Backend, *, timer: Callable[[], float] = time.monotonic
) -> None:
    """Refuse a run if the batch system says that some of its jobs could never run; the error names all of them.

    Raises `InputError`: there are such jobs.
    """
    if not isinstance(backend, Preflight):
        return
    found = dict(_findings(jobs_at_first(plan, strategy), _Questions(backend, timer)))
    if not found:
        return
    lines = "".join(f"\n  {stages}: {why}" for stages, why in found.items())
    count = "a job" if len(found) == 1 else f"{len(found)} jobs"
    raise InputError(
        f"{count} could never run on {plan.place}:{lines}",
        where=f"workflow {plan.workflow!r}",
        hint="Nothing was submitted. Ask for less, or for another partition or account; --no-preflight submits all the "
        "same.",
    )


def _findings(jobs: Iterator[PlannedSpec], questions: _Questions) -> Iterator[tuple[str, str]]:
    for job in jobs:
        if job.spec.local or not job.planned.has_payload:
            continue
        if (why := questions.ask(job.spec)) is not None:
            yield "+".join(job.planned.stages), why


def _kind(spec: JobSpec) -> JobSpec:
    """Reduce a job to its request, without its payload, times and dependencies."""
    asked = {name: getattr(spec, name) for name in (*CHECKED_WITH_OPTIONS, "request", "walltime_s", "array", "avoid")}
    return JobSpec("x", **asked)
