"""The paper's metrics (Sections 4.1 and 4.8), computed from a run's records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from asa.backend import JobState
from asa.core.late import dataclass
from asa.records import (
    Ended,
    Observed,
    Record,
    Requeued,
    Resized,
    RunEnded,
    RunResumed,
    RunStarted,
    StageEnded,
    StageStarted,
    Started,
    Submitted,
)
from asa.units import core_hours
from asa.workflow import Stage, Workflow

__all__ = ["RunMetrics", "StageTimes", "Verdict", "idle_times", "judge", "measure", "without"]


@dataclass(frozen=True, slots=True)
class StageTimes:
    """The times of one stage of a run.

    Parameters
    ----------
    stage
        Its name.
    perceived_wait_s
        PWT: from the end of its last predecessor, or from the run's start, to its own start. Failed attempts and reruns
        in between count; the time between an end of the run and its resumption does not.
    run_s
        Seconds from its start to its end.
    critical
        Whether it is on the critical path: it ended last, or a critical stage waited for it last. Waits and run times
        of the critical stages add up to the makespan.
    """

    stage: str
    perceived_wait_s: float
    run_s: float
    critical: bool = True


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """The times and the cost of a run.

    Parameters
    ----------
    makespan_s
        Seconds from the workflow's submission to the end of its last stage, without the time between an end of the run
        and its resumption.
    twt_s
        Total waiting time: the sum of the stages' perceived waits. Parallel stages may wait in parallel, so it may
        exceed the waiting in the makespan. Waits for cores inside a shared allocation count.
    core_hours
        All allocated core-hours, overhead included.
    overhead_core_hours
        OH: core-hours before the cores could be used, idle between two stages of a job, or given back unused.
    hits, misses
        Predictions that turned out accurate or too short, and too long; see `judge`.
    undecided
        Predictions that a censored observation leaves undecided, as for a job that started the moment its dependency
        was met.
    resubmissions
        How many jobs were submitted again.
    stages
        The times of each stage that ran, in the workflow's order.
    too_short
        Hits whose wait was certainly longer than predicted, by more than the grid's spacing.
    """

    makespan_s: float
    twt_s: float
    core_hours: float
    overhead_core_hours: float
    hits: int
    misses: int
    undecided: int
    resubmissions: int
    stages: tuple[StageTimes, ...]
    too_short: int = 0

    @property
    def hit_ratio(self) -> float:
        """Hits over predictions that could be judged; nan without any."""
        judged = self.hits + self.misses
        return self.hits / judged if judged else float("nan")

    @property
    def execution_s(self) -> float:
        """Total run time: the sum of the stages' run times."""
        return sum(stage.run_s for stage in self.stages)


Verdict = Literal["hit", "miss"]


def judge(predicted_s: float, observed: Observed) -> Verdict | None:
    """Judge whether a prediction was too long (*miss*) or not (*hit*); None if that cannot be known.

    Section 4.8 of the paper divides predictions into accurate ones and over-predictions, which get resources too early.
    It reports 100 % hits at UPPMAX, where 3.9 h were predicted for waits of 11 h, so a short prediction is no miss. A
    prediction is accurate if no lower alternative of the paper's grid is nearer to the wait, so the grid's spacing
    causes no miss.

    A prediction above an upper bound is a miss; a prediction not above a lower bound is a hit; otherwise it is
    undecided.

    Parameters
    ----------
    predicted_s
        The prediction.
    observed
        The observation of the wait.
    """
    exceeds = _class_of(predicted_s) > _class_of(observed.wait_s)
    if observed.bound == "at_most" and not exceeds:
        return None
    if observed.bound == "at_least" and exceeds:
        return None
    return "miss" if exceeds else "hit"


def measure(workflow: Workflow, records: Iterable[Record]) -> RunMetrics:
    """Compute the metrics of a run that completed.

    Parameters
    ----------
    workflow
        The workflow that ran.
    records
        Records of the run, in any order of kinds, each kind in order of time.

    Raises
    ------
    ValueError
        The records are not those of a completed run of this workflow, or break its order.
    """
    all_records = list(records)
    began = next((r.time_s for r in all_records if isinstance(r, RunStarted)), None)
    if began is None or not any(isinstance(r, RunEnded) and r.outcome == "completed" for r in all_records):
        raise ValueError("the records are not those of a completed run")
    idle = idle_times(all_records)
    anew_s = {name: r.time_s for r in all_records if isinstance(r, RunResumed) for name in r.anew}
    starts = {name: without(idle, r.time_s) for r in all_records if isinstance(r, StageStarted) for name in r.stages}
    ends = {
        name: without(idle, r.time_s)
        for r in all_records
        if isinstance(r, StageEnded)
        for name in r.stages
        if r.time_s >= anew_s.get(name, r.time_s)  # otherwise the stage ran again later
    }
    _check_complete(workflow, ends)
    settled = _settled(workflow, ends, began)
    parts = {name: _parts(workflow.stages[name], starts, ends, settled) for name in workflow.order}
    critical = _critical_path(workflow, settled, parts)
    failures = [(without(idle, r.time_s), r.stages) for r in all_records if isinstance(r, Ended)]
    could_s = {
        name: _could_begin(stage, starts[name], _may_s(stage, parts[name], began), settled, failures, began_s=began)
        for name, stage in workflow.stages.items()
        if name in ends
    }
    stages = tuple(
        StageTimes(
            name,
            perceived_wait_s=starts[name] - could_s[name],
            run_s=ends[name] - starts[name],
            critical=name in critical,
        )
        for name in workflow.order
        if name in ends
    )
    if early := [stage.stage for stage in stages if stage.perceived_wait_s < 0]:
        raise ValueError(f"stage {early[0]!r} began before those that it follows had ended")
    jobs = [r for r in all_records if isinstance(r, Ended)]
    of_job: dict[str, list[Record]] = {job.job_id: [] for job in jobs}
    for record in all_records:
        if (job_id := getattr(record, "job_id", None)) in of_job:
            of_job[job_id].append(record)
    verdicts = [
        judge(r.predicted_wait_s, r) for r in all_records if isinstance(r, Observed) and r.predicted_wait_s is not None
    ]
    return RunMetrics(
        makespan_s=max(ends.values()) - began,
        twt_s=sum(stage.perceived_wait_s for stage in stages),
        core_hours=sum(_core_hours_of(job, of_job[job.job_id]) for job in jobs),
        overhead_core_hours=_overhead(jobs, all_records, of_job),
        hits=verdicts.count("hit"),
        misses=verdicts.count("miss"),
        undecided=verdicts.count(None),
        too_short=sum(
            r.predicted_wait_s is not None and _is_too_short(r.predicted_wait_s, r)
            for r in all_records
            if isinstance(r, Observed)
        ),
        resubmissions=sum(r.resubmission > 0 for r in all_records if isinstance(r, Submitted)),
        stages=stages,
    )


def _is_too_short(predicted_s: float, observed: Observed) -> bool:
    """Whether the wait was longer than predicted by at least one step of the paper's grid, also if censored."""
    return observed.bound != "at_most" and _class_of(predicted_s) < _class_of(observed.wait_s)


def _class_of(wait_s: float) -> int:
    """Return the index of the paper's alternative that is nearest to a wait."""
    import numpy as np  # noqa: PLC0415 - reading a run does not need it

    from asa.estimators.alternatives import PAPER_ALTERNATIVES_S, nearest  # noqa: PLC0415 - as above

    return nearest(np.asarray(PAPER_ALTERNATIVES_S), wait_s)


def idle_times(records: Iterable[Record]) -> list[tuple[float, float]]:
    """Return the times between a run's end and its resumption, as pairs, in order.

    After a failure, other stages and jobs may end a little later; until then the run is not idle.

    Parameters
    ----------
    records
        Records of the run.

    Returns
    -------
    list of (float, float)
        Begin and end of each such time, in seconds on the scheduler's clock.
    """
    all_records = list(records)
    resumed_s = sorted(r.time_s for r in all_records if isinstance(r, RunResumed))
    ends_s = [r.time_s for r in all_records if isinstance(r, RunEnded | StageEnded) or _ran_to_its_end(r)]
    return [(max((end_s for end_s in ends_s if end_s <= time_s), default=time_s), time_s) for time_s in resumed_s]


def _ran_to_its_end(record: Record) -> bool:
    """Whether the record is about a job that ran and was not cancelled; its end may be long after the run's end."""
    return isinstance(record, Ended) and record.payload_start_s is not None and record.state is not JobState.CANCELLED


def without(idle: Iterable[tuple[float, float]], time_s: float) -> float:
    """Subtract a run's idle times from a time.

    Parameters
    ----------
    idle
        The idle times from `idle_times`.
    time_s
        A time on the same clock.

    Examples
    --------
    >>> [without([(100.0, 1000.0)], time_s) for time_s in (90.0, 500.0, 1010.0)]
    [90.0, 100.0, 110.0]
    """
    return time_s - sum(min(until_s, time_s) - since_s for since_s, until_s in idle if since_s < time_s)


def _check_complete(workflow: Workflow, ends: Mapping[str, float]) -> None:
    """Raise unless each stage ended, or did not run because nothing failed."""
    skipped: set[str] = set()
    for name in workflow.order:
        stage = workflow.stages[name]
        if name in ends:
            continue
        if stage.when != "failed" and (stage.when == "always" or skipped.isdisjoint(stage.strictly_after)):
            raise ValueError(f"the records do not tell of an end of stage {name!r}")
        skipped.add(name)


def _settled(workflow: Workflow, ends: Mapping[str, float], began_s: float) -> dict[str, float]:
    """Return the time at which each stage ended, or at which it was certain not to run."""
    settled: dict[str, float] = {}
    for name in workflow.order:
        before_s = max((settled[before] for before in workflow.stages[name].after), default=began_s)
        settled[name] = ends.get(name, before_s)
    return settled


def _parts(
    stage: Stage, starts: Mapping[str, float], ends: Mapping[str, float], settled: Mapping[str, float]
) -> dict[str, float]:
    """Return when each predecessor of a stage let it begin; with `when = "any"`, only of those that did.

    For an array that the stage follows element by element, that is not later than the begin of the stage's first
    element.
    """
    parts: dict[str, float] = {}
    for before in stage.after:
        parts[before] = settled[before]
        if before in stage.after_start and before in starts:
            parts[before] = min(settled[before], starts[before] + stage.start_delay_s)
        elif before in stage.after_matching and stage.name in starts:
            parts[before] = min(settled[before], starts[stage.name])
        elif stage.when == "any" and before not in ends and before in stage.strictly_after:
            del parts[before]
    return parts


def _may_s(stage: Stage, parts: Mapping[str, float], began_s: float) -> float:
    """Return the earliest time at which a stage could begin, given the times at which its predecessors let it."""
    return (min if stage.when == "any" else max)(parts.values(), default=began_s)


def _could_begin(
    stage: Stage,
    start_s: float,
    could_s: float,
    settled: Mapping[str, float],
    ended: Iterable[tuple[float, Sequence[str]]],
    *,
    began_s: float,
) -> float:
    """Return when a stage could begin because of its predecessors, counting their failures before it started.

    A clean-up stage may have run after a failure that was repaired later, when the run was resumed.
    """
    if not stage.is_conditional or could_s <= start_s:
        return could_s
    followed = set(stage.after)
    failed = [time_s for time_s, stages in ended if time_s <= start_s and not followed.isdisjoint(stages)]
    return max([began_s, *failed, *(settled[before] for before in stage.after if settled[before] <= start_s)])


def _critical_path(
    workflow: Workflow, settled: Mapping[str, float], parts: Mapping[str, Mapping[str, float]]
) -> set[str]:
    """Follow the stages back from the last one to end, each time to the predecessor that let it begin."""
    path = {current := max(workflow.order, key=lambda name: settled[name])}
    while before := parts[current]:
        may_s = _may_s(workflow.stages[current], before, 0.0)
        current = next(name for name, time_s in before.items() if time_s == may_s)
        path.add(current)
    return path


def _core_hours_of(job: Ended, records: Sequence[Record]) -> float:
    """Compute the core-hours of a job from its records, without cores that it gave back.

    A requeued job also used cores before, from each start to the next requeue.
    """
    if job.ran_s is not None:  # a job array, each element of which had its own cores
        return core_hours(job.cores, job.ran_s)
    starts = [record.time_s for record in records if isinstance(record, Started)]
    times = [
        (max(before), record.time_s)
        for record in records
        if isinstance(record, Requeued) and (before := [start_s for start_s in starts if start_s <= record.time_s])
    ]
    if job.start_s is not None:
        times.append((job.start_s, job.time_s))
    resized = [record for record in records if isinstance(record, Resized)]
    return sum(_core_hours_between(job.cores, start_s, end_s, resized) for start_s, end_s in times)


def _core_hours_between(cores: int, start_s: float, end_s: float, resized: Iterable[Resized]) -> float:
    total, since_s = 0.0, start_s
    for change in resized:
        if since_s <= change.time_s <= end_s:
            total += core_hours(cores, change.time_s - since_s)
            since_s, cores = change.time_s, change.cores
    return total + core_hours(cores, end_s - since_s)


def _overhead(jobs: Sequence[Ended], records: Sequence[Record], of_job: Mapping[str, Sequence[Record]]) -> float:
    """Return the core-hours of jobs before their payload began, or the stage for which their cores joined another job.

    If neither began, all core-hours of the job count. Idle core-hours between two stages of a job count as well.
    """
    others = {r.job_id: (r.runs_in, r.stages) for r in records if isinstance(r, Submitted) and r.runs_in != r.job_id}
    began = {(r.job_id, r.stages): r.time_s for r in records if isinstance(r, StageStarted)}
    total = 0.0
    for job in jobs:
        if job.start_s is None:
            continue
        used_from = began.get(others[job.job_id]) if job.job_id in others else job.payload_start_s
        until = job.time_s if used_from is None else min(max(used_from, job.start_s), job.time_s)
        total += core_hours(job.cores, until - job.start_s) + _stood_still(job, of_job[job.job_id])
    return total


def _stood_still(job: Ended, records: Sequence[Record]) -> float:
    """Return the core-hours of a job between the end of one stage and the start of the next, from its records.

    For a requeued job, only the time since its last start counts.
    """
    total, running, since_s, cores = 0.0, set[str](), None, job.cores
    for record in (record for record in records if job.start_s is None or record.time_s >= job.start_s):
        if isinstance(record, Resized | StageStarted) and since_s is not None:
            total += core_hours(cores, record.time_s - since_s)
            since_s = record.time_s
        if isinstance(record, Resized):
            cores = record.cores
        elif isinstance(record, StageStarted):
            running.update(record.stages)
            since_s = None
        elif isinstance(record, StageEnded):
            running.difference_update(record.stages)
            since_s = None if running else record.time_s
    return total if since_s is None else total + core_hours(cores, max(job.time_s - since_s, 0.0))
