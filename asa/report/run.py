"""The page of one run: its makespan and costs, the times of its jobs, and the errors of its predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from asa.metrics import RunMetrics, idle_times
from asa.records import Cancelled, Deferred, Observed, Record, Requeued, Resized, Retrying, RunEnded
from asa.report.page import Column, Page, PageFigure, PageTable, Section, Text
from asa.report.page.drawing import GANTT, gantt
from asa.timeline import Timeline, timeline
from asa.units import format_duration
from asa.workflow import Workflow


def run_page(
    name: str,
    records: Sequence[Record],
    metrics: RunMetrics | None,
    *,
    strategy: str,
    workflow: Workflow | None = None,
    age_accrues: bool = True,
    stands: Sequence[tuple[str, str, str, str]] = (),
    made: Mapping[str, str] | None = None,
    more: Sequence[Section] = (),
) -> Page:
    """Build the page of a run.

    `workflow`, `age_accrues`: what ran, and whether jobs gain priority while a dependency holds them; see
    `asa.timeline.timeline`.
    `stands`: name, state, job and reason of each stage; given unless all have completed.
    `more`: further sections, placed after that of the jobs.
    """
    run = timeline(records, workflow, age_accrues=age_accrues)
    sections = [Section("jobs", "Jobs", [PageFigure(gantt(run), GANTT), _jobs(run)]), *more]
    if any(state != "done" for _, state, *_ in stands):
        sections.append(Section("stands", "State of the stages", [_stands(stands)]))
    if metrics is not None:
        sections.append(Section("stages", "Stages: waits and run times", [_stages(run, metrics)]))
    if observed := [r for r in records if isinstance(r, Observed)]:
        sections.append(
            Section("waits", "Predicted and real waits", [_waits(observed), Text((_KNOWN,), is_small=True)])
        )
    if incidents := _incidents(run, records):
        sections.append(Section("incidents", "What did not go as planned", [incidents]))
    title = f"{name[:1].upper()}{name[1:]}" if name.lower().startswith("run") else f"Run {name}"
    return Page(title, _summary(run, records, metrics, strategy), sections, made or {})


_KNOWN = (
    "A wait is known exactly only where nothing but the queue delayed the job. `at most`: a dependency held the job, "
    "and it started as soon as that was over. `at least`: the job was cancelled while it waited."
)


def _summary(run: Timeline, records: Sequence[Record], metrics: RunMetrics | None, strategy: str) -> list[str]:
    lasted = format_duration(run.end_s - run.begin_s)
    end = next((r for r in reversed(records) if isinstance(r, RunEnded)), None)
    if metrics is None:
        if end is None:
            return [f"Not ended yet, {lasted} after its start; strategy `{strategy}`."]
        reason = f": {end.reason}" if end.reason else ""
        return [f"{end.outcome.capitalize()} after {lasted}{reason}.", f"Strategy: `{strategy}`."]
    waits = [stage.perceived_wait_s for stage in metrics.stages if stage.critical]
    ran, waited, first = (
        format_duration(seconds)
        for seconds in (metrics.makespan_s - sum(waits), sum(waits), waits[0] if waits else 0.0)
    )
    stopped_s = sum(until_s - since_s for since_s, until_s in idle_times(records))
    done = format_duration(metrics.makespan_s + stopped_s)
    if stopped_s >= 1:
        done += f" ({format_duration(stopped_s)} of it until it was resumed)"
    jobs = "1 job" if len(run.lanes) == 1 else f"{len(run.lanes)} jobs"
    idle = f"{metrics.overhead_core_hours:,.2f} of them idle"
    sentences = [
        f"Completed in {done} with strategy `{strategy}`.",
        f"On the critical path, stages ran for {ran} and waited {waited}, of which {first} before the first.",
        f"It used {metrics.core_hours:,.2f} core-hours in {jobs}; {idle}.",
    ]
    if judged := metrics.hits + metrics.misses:
        sentences.append(
            f"Predicted waits that could be checked: {judged}. Too long: {metrics.misses}; too short: "
            f"{metrics.too_short}."
        )
    if metrics.resubmissions:
        sentences.append(f"Jobs that had to be submitted again: {metrics.resubmissions}.")
    return sentences


def _jobs(run: Timeline) -> PageTable:
    columns = [
        Column("Job"), Column("Stages"), Column("Cores", 0),
        Column.of_time("Submitted", "After the start of the run"),
        Column.of_time("Predicted end of wait", "When it was submitted, plus the predicted wait"),
        Column.of_time("Predicted start", "Not before its dependency had ended"),
        Column.of_time("Start"), Column.of_time("End"), Column("State"),
        Column("Reason", note="Why it was submitted then; of a job that failed, why it did"),
    ]  # fmt: skip
    rows = [
        (
            lane.job_id,
            f"{', '.join(lane.stages)}{f' (cores for job {lane.runs_in})' if lane.runs_in != lane.job_id else ''}",
            lane.cores,
            lane.submit_s - run.begin_s,
            *(
                None if time_s is None else time_s - run.begin_s
                for time_s in (lane.predicted_wait_over_s, lane.predicted_start_s, lane.start_s)
            ),
            lane.end_s - run.begin_s,
            lane.state,
            lane.reason,
        )
        for lane in run.lanes
    ]
    return PageTable(columns, rows, "Jobs. Times count from the start of the run.")


def _stages(run: Timeline, metrics: RunMetrics) -> PageTable:
    jobs = {stage: lane.job_id for lane in run.lanes if lane.runs_in == lane.job_id for stage in lane.stages}
    jobs |= {name: lane.runs_in for lane in run.lanes for span in lane.spans for name in span.stage.split("+")}
    columns = [
        Column("Stage"), Column.of_time("Waited", "Since the last stage that it depends on ended"),
        Column.of_time("Ran"), Column("Job"), Column("On the critical path"),
    ]  # fmt: skip
    rows = [
        (
            row.stage,
            row.perceived_wait_s,
            row.run_s,
            jobs.get(row.stage, ""),
            "yes" if row.critical else "no",
        )
        for row in metrics.stages
    ]
    return PageTable(columns, rows, "How long each stage waited and ran.")


def _stands(stands: Sequence[tuple[str, str, str, str]]) -> PageTable:
    return PageTable(
        [Column("Stage"), Column("State"), Column("Job"), Column("Why")], stands, "What became of each stage."
    )


_CENSORED = {"exact": "exactly", "at_most": "at most", "at_least": "at least"}


def _waits(observed: Sequence[Observed]) -> PageTable:
    columns = [
        Column("Stages"), Column("Job"), Column.of_time("Predicted"), Column("Known"), Column.of_time("Real"),
        Column.of_time("Predicted - real"),
    ]  # fmt: skip
    rows = [
        (
            ", ".join(r.stages),
            r.job_id,
            r.predicted_wait_s,
            _CENSORED[r.bound],
            r.wait_s,
            r.predicted_wait_s - r.wait_s if r.predicted_wait_s is not None and r.bound == "exact" else None,
        )
        for r in observed
    ]
    return PageTable(columns, rows, "How long jobs waited in the queue, and how long they were predicted to.")


def _incidents(run: Timeline, records: Sequence[Record]) -> PageTable | None:
    rows = []
    for r in records:
        match r:
            case Deferred():
                what = f"refused by the batch system, submitted again later: {r.reason}"
            case Requeued():
                what = f"job {r.job_id} was put back into the queue{f': {r.reason}' if r.reason else ''}"
            case Cancelled():
                what = f"job {r.job_id} was cancelled by asa: {r.reason}"
            case Resized():
                what = f"job {r.job_id} has {r.cores:,} cores from then on"
            case Retrying():
                failed = f"job {r.job_id} failed, and" if r.job_id else "no job could be had; it"
                what = f"{failed} is submitted again: {r.reason}"
            case _:
                continue
        rows.append((r.time_s - run.begin_s, ", ".join(r.stages), what))
    columns = [Column.of_time("After"), Column("Stages"), Column("What")]
    return PageTable(columns, rows, "In the order of time, since the start of the run.") if rows else None
