"""Judges whole plans, whose jobs compete with each other in the queue; all plans in the same sampled futures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from asa.strategies.base import JobRequest, Joint, Keep, PlanStep

from .parts import Block
from .search import SAMPLES, Question, SearchedJob, Sketch

_FUTURES = 32
_EACH = np.arange(SAMPLES)


def judged_together(question: Question, forecast: object, sketches: Sequence[Sketch]) -> list[Sketch]:
    """Judge each job of a plan while the plan's earlier jobs are already in the queue.

    Plans are returned unchanged if the forecast cannot sample plans, or not `can_judge`.
    """
    if not isinstance(forecast, Joint) or not sketches or not can_judge(question, sketches):
        return list(sketches)
    links = [_links(question, sketch) for sketch in sketches]
    plans = [_steps(question, sketch, after) for sketch, after in zip(sketches, links, strict=True)]
    if (starts_s := forecast.sample_plans(plans, _FUTURES)) is None:
        return list(sketches)
    return [_expected(*of) for of in zip(sketches, plans, starts_s, strict=True)]


def can_judge(question: Question, sketches: Sequence[Sketch]) -> bool:
    """Whether plans have no jobs that cannot be judged together: several jobs of one stage, or jobs that grow."""
    jobs = (job.block for sketch in sketches for job in sketch.jobs)
    return not any(block.elasticity.widths or question.jobs_of(block) > 1 for block in jobs)


def _links(question: Question, sketch: Sketch) -> list[tuple[int, ...]]:
    """Return, for each job of a plan, the indices of the jobs that it follows."""
    index = {name: number for number, job in enumerate(sketch.jobs) for name in job.block.stages}
    stages = question.parts.workflow.stages
    return [
        tuple(sorted({index[p] for name in job.block.stages for p in stages[name].after if p in index} - {number}))
        for number, job in enumerate(sketch.jobs)
    ]


def _steps(question: Question, sketch: Sketch, links: Sequence[tuple[int, ...]]) -> list[PlanStep]:
    steps = []
    for job, after in zip(sketch.jobs, links, strict=True):
        bound_s = question.bound_s(job.block.stages)
        request = JobRequest(job.block.cores, job.block.walltime_s + job.idle_s, _partition(question, job.block))
        ready_s = np.maximum(0.0 if bound_s is None else bound_s, np.zeros(SAMPLES))
        submit_s = job.submit_s if job.keep is Keep.AWAIT else float(job.ready_s.mean())
        ages = question.age_accrues
        steps.append(PlanStep(job.block.stages, request, after, job.keep, ages, submit_s, ready_s, job.run_s))
    return steps


def _partition(question: Question, block: Block) -> str:
    return (block.shapes[0] if block.shapes else question.parts.workflow.stages[block.stages[0]]).partition


def _expected(sketch: Sketch, steps: Sequence[PlanStep], starts_s: NDArray[np.float64]) -> Sketch:
    """Return a plan with the sampled starts of its jobs, and what follows from them."""
    jobs: list[SearchedJob] = []
    hours = sketch.core_hours
    for step, job, begin_s in zip(steps, sketch.jobs, starts_s[_EACH % len(starts_s)].T, strict=True):
        ready_s = np.maximum.reduce([step.ready_s, *(jobs[p].end_s for p in step.after)])
        idle_s = float(np.maximum(ready_s - begin_s, 0.0).mean()) if job.keep is Keep.AWAIT else job.idle_s
        hours += (idle_s - job.idle_s) * job.block.cores / 3600
        jobs.append(replace(job, ready_s=ready_s, start_s=np.maximum(begin_s, ready_s), idle_s=idle_s))
    end_s = np.maximum.reduce([np.zeros(SAMPLES), *(job.end_s for job in jobs)])
    return Sketch(tuple(jobs), end_s, hours)


def merged(sketch: Sketch) -> Iterator[list[tuple[tuple[str, ...], Keep]]]:
    """Yield variants of a plan: with its first two jobs merged, and with all merged."""
    jobs = [(job.block.stages, job.keep) for job in sketch.jobs]
    for count in sorted({2, len(jobs)}):
        if 1 < count <= len(jobs):
            stages = tuple(name for names, _ in jobs[:count] for name in names)
            yield [(stages, jobs[0][1]), *jobs[count:]]
