"""Keeps a plan while events confirm it, and computes only its next times anew.

A search decides which stages share a job. Given that, when the next job is submitted, and what keeps it back, follows
from what is known at the moment. So a plan may be kept from event to event, as long as

- each wait that the search compared has moved by at most 10 s, or a tenth of how long such a job waits and runs,
- each job that may be submitted next is expected to be ready within the range of the search's samples,
- all that waits is planned, or half of what is planned at a time, and the stages have the jobs that were planned.

Ends of plans are sums and maxima of waits, run times and the time from which on jobs may start. If each wait has moved
by at most `d`, no plan of `n` jobs in a row ends more than `n d` sooner or later than when plans were compared: so the
kept one ends at most `2 n d` later than one of as many core-hours that a search would find now. That a job begins
sooner or later than expected, within that range, was part of the futures in which the search compared plans.

This is for long workflows of stages with one shape, at sites where age does not accrue: elsewhere plans are judged with
their jobs together in the queue, or serve several events by submitting more jobs ahead. And it is for plans whose jobs
run one after another: with jobs beside each other, events hardly ever confirmed a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from asa.strategies.base import Forecast, Phase, RunView

from .outlook import NEXT_STAGES, Aim, Outlook, Waits, only, posed, samples
from .search import SearchedJob, sketch_of

_SHARE, _SHORT_S = 0.1, 10.0  # how far a wait may have moved: by a share of it and the run time, or by this


def may_be_kept(outlook: Outlook, aim: Aim) -> bool:
    """Whether a plan may be kept: it is long, in a row, within no budget, and each of its jobs was judged by itself."""
    question = outlook.question
    is_plain = aim.at_most is None and aim.deadline_s is None and not question.handover_s  # no job gets more cores
    is_long = outlook.planned + outlook.left_out > NEXT_STAGES
    return is_plain and is_long and not question.is_joint and _are_in_a_row(outlook)


def retimed(kept: Outlook, view: RunView, forecast: Forecast) -> Outlook | None:
    """Return a kept plan's next jobs with the times that they have now; None if another plan is to be searched for.

    `kept`: the plan, as the search returned it.
    `view`: a later state of the same run.
    """
    waiting = {name for name in view.left() if view.stages[name].phase is Phase.WAITING}
    jobs = [job for job in kept.sketch.jobs if not waiting.isdisjoint(job.block.stages)]
    planned = {name for job in jobs for name in job.block.stages}
    if len(waiting) != len(planned) + kept.left_out or not waiting.issuperset(planned):
        return None
    if not planned.issuperset(view.to_run_now()) or len(planned) < min(len(waiting), NEXT_STAGES // 2):
        return None
    table = Waits(view, forecast)
    if not isinstance(kept.question.waits_s, Waits) or _has_moved(kept.question.waits_s, table):
        return None
    following = [job for job in jobs if _may_be_next(view, job, waiting)]
    names = {name for job in following for name in job.block.stages}
    part = only(view, {name for name in view.left() if name in names or name not in waiting})
    _, under_way, question = posed(part, table, names)
    if not all(question.parts.blocks(job.block.stages) for job in following):
        return None
    question = replace(question, price_s=kept.question.price_s)
    sketch = sketch_of(question, [(job.block.stages, None) for job in following])
    if not _are_as_expected(following, sketch.jobs, view.now_s - kept.now_s):
        return None
    return replace(
        kept,
        now_s=view.now_s,
        under_way=under_way,
        question=question,
        sketch=sketch,
        predict=table.forecast,
        forecast=forecast,
        planned=len(planned),
        left_out=len(waiting) - len(planned),
    )


def _are_in_a_row(outlook: Outlook) -> bool:
    """Whether each job follows the one before it."""
    stages = outlook.question.parts.workflow.stages
    return all(
        any(p in before.block.stages for name in job.block.stages for p in stages[name].after)
        for before, job in pairwise(outlook.sketch.jobs)
    )


def _has_moved(then: Waits, now: Waits) -> bool:
    return any(
        abs(float(samples(now.forecast(block)).mean()) - wait_s) > max(_SHARE * (wait_s + block.run_s), _SHORT_S)
        for block, wait_s in then.examples
    )


def _may_be_next(view: RunView, job: SearchedJob, waiting: set[str]) -> bool:
    """Whether all stages that a job follows have jobs; until then it is not submitted."""
    before = {p for name in job.block.stages for p in view.stages[name].stage.after}
    return waiting.isdisjoint(before.difference(job.block.stages))


def _are_as_expected(then: Sequence[SearchedJob], now: Sequence[SearchedJob], passed_s: float) -> bool:
    return all(
        before.ready_s.min() - _SHORT_S <= passed_s + job.ready_s.mean() <= before.ready_s.max() + _SHORT_S
        for before, job in zip(then, now, strict=True)
    )
