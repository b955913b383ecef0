"""Draws a run's state: a table of its stages, with lines above and below; and its summary at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from asa.core.late import dataclass
from asa.units import format_duration, per_job

if TYPE_CHECKING:
    from asa.cli.standing import RunStanding, StageStanding
    from asa.metrics import RunMetrics

_WIDE = 110
_GAP = 2
_REASON = 24
_OLD_S = 600.0
_MANY = 40  # stages of a completed run that are listed; a fan of a thousand is no reading
_SELF_EXPLAINING = {"queued (dependency)", "cancelled", "timed out"}  # states that need no reason
_STYLES = {
    "running": "bold green",
    "done": "green",
    "allocated": "cyan",
    "held": "magenta",
    "failed": "bold red",
    "timed out": "bold red",
    "cancelled": "red",
    "refused": "bold red",
    "waiting": "dim",
    "not run": "dim",
    "blocked": "red",
    "skipped": "dim",
    "dropped": "dim",
    "conditional": "dim",
}
_SHORT = {
    "queued (dependency)": "dependent",
    "being submitted": "submitting",
    "being cancelled": "cancelling",
    "in a running job": "in a job",
    "waiting in its job": "waiting",
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table of stages; if space is short, the one with the highest `rank` is left out first."""

    heading: str
    cell: Callable[[StageStanding], str]
    is_number: bool = True
    is_wide: bool = False
    rank: int = 0

    def width(self, stages: Sequence[StageStanding]) -> int:
        """Width in characters, with the gap after it."""
        return max(len(self.heading), *(len(self.cell(stage)) for stage in stages), 0) + _GAP


def probability(share: float) -> str:
    """Write a probability in percent; never as 0 or 100, since samples and learned values are no proof.

    Examples
    --------
    >>> [probability(share) for share in (0.0, 0.123, 0.998)]
    ['less than 1 %', '12 %', 'more than 99 %']
    """
    if share < 0.005:
        return "less than 1 %"
    return "more than 99 %" if share > 0.99 else f"{100 * share:.0f} %"


def clock(time_s: float, now_s: float | None = None) -> str:
    """Write a time in local time, without its date if that is today's.

    Examples
    --------
    >>> clock(0.0, 60.0) == clock(0.0)[-8:]
    True
    """
    moment = time.localtime(time_s)
    if now_s is not None and time.localtime(now_s)[:3] == moment[:3]:
        return time.strftime("%H:%M:%S", moment)
    return time.strftime("%Y-%m-%d %H:%M:%S", moment)


def draw(run: RunStanding, width: int, height: int | None = None) -> RenderableType:
    """Draw a run's state for a terminal of the given size; stages that do not fit are counted. None: all are shown."""
    is_wide = width >= _WIDE
    shown, left_out = _fitting(run.stages, len(run.stages) if height is None else height - 10)
    parts: list[RenderableType] = [_head(run), _table(_columns(run, shown, width), shown)]
    if left_out:
        parts.append(Text(f"... and {left_out} more stages; list all with: asa status", style="dim"))
    if not is_wide:
        noted = [
            s
            for s in shown
            if (s.reason and s.state not in _SELF_EXPLAINING)
            or s.expected_start_s is not None
            or s.planned_s is not None
            or s.not_accepted
            or s.retried
        ]
        parts += [_note(stage, run.now_s) for stage in noted]
    by_kind = sorted(shown, key=lambda stage: stage.units.order)
    parts += [Text(f"{s.stage}: {words}") for s in by_kind if (words := s.units.line(s, run.now_s))]
    parts += _foot(run)
    return Group(*parts)


def summary(run: RunStanding) -> RenderableType:
    """Draw the times and costs of a completed run."""
    metrics = run.metrics
    if metrics is None:
        return Text(f"{run.name} completed; its times contradict each other, so its cost is not known.")
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("Stage", overflow="fold")
    for heading in ("Delayed", "Ran", "Cores", "Job"):  # `Delayed`: its wait, less the time that it was submitted ahead
        table.add_column(heading, justify="right")
    table.add_column("")
    of_stage = {times.stage: times for times in metrics.stages}
    shown = _telling(run.stages, {times.stage for times in metrics.stages if times.critical}, of_stage.keys())
    for stage in shown:
        if (times := of_stage.get(stage.stage)) is None:
            table.add_row(stage.stage, "", "", "", "", f"{stage.state}: {stage.reason}", style="dim")
            continue
        waited, ran = (format_duration(value) for value in (times.perceived_wait_s, times.run_s))
        again = "submitted again" if stage.resubmissions else ""
        table.add_row(stage.stage, waited, ran, _cores(stage), stage.job_id or "", again)
    more = len(run.stages) - len(shown)
    return Group(
        Text.assemble((f"{run.name} completed in {run.lasted}", "bold green"), "\n"),
        table,
        *([Text(f"... and {more} more stages; list all with: asa status", style="dim")] if more else []),
        Text(f"\n{_cost(metrics)}"),
    )


def _telling(
    stages: Sequence[StageStanding], critical: Collection[str], ran: Collection[str]
) -> Sequence[StageStanding]:
    """Choose the stages of a completed run to list; of many, those that were not as usual come first."""
    if len(stages) <= _MANY:
        return stages
    order = sorted(
        range(len(stages)),
        key=lambda n: (stages[n].stage in ran and not stages[n].resubmissions, stages[n].stage not in critical, n),
    )
    return [stages[n] for n in sorted(order[:_MANY])]


def _cost(metrics: RunMetrics) -> str:
    waited_s = sum(stage.perceived_wait_s for stage in metrics.stages if stage.critical)
    waited, ran = format_duration(waited_s), format_duration(metrics.makespan_s - waited_s)
    count = metrics.resubmissions
    again = f"; {count} {'job was' if count == 1 else 'jobs were'} submitted again" if count else ""
    lines = [
        f"On the critical path, stages waited {waited} and ran {ran}.",
        f"{metrics.core_hours:,.2f} core-hours, of which {metrics.overhead_core_hours:,.2f} idle{again}.",
    ]
    if metrics.hits + metrics.misses + metrics.undecided:
        unknown = f", {metrics.undecided} not known" if metrics.undecided else ""
        right = metrics.hits - metrics.too_short
        verdicts = f"{right} about right, {metrics.too_short} too short, {metrics.misses} too long"
        lines.append(f"Predicted waits: {verdicts}{unknown}.")
    return "\n".join(lines)


def _fitting(stages: Sequence[StageStanding], most: int) -> tuple[list[StageStanding], int]:
    """Leave out completed and waiting stages if space is short."""
    if len(stages) <= max(most, 3):
        return list(stages), 0
    quiet = dict.fromkeys(("done", "waiting", "not run", "blocked", "skipped", "dropped", "conditional"), 1)
    order = sorted(range(len(stages)), key=lambda number: quiet.get(stages[number].state, 0))
    chosen = sorted(order[: max(most, 3)])
    return [stages[number] for number in chosen], len(stages) - len(chosen)


def _head(run: RunStanding) -> Text:
    words = run.detached if run.state == "detached" else run.state
    style = {"detached": "yellow", "completed": "green", "running": "bold"}.get(run.state, "bold red")
    text = Text.assemble((run.name, "bold"), "  ", (words, style))
    if run.lasted:
        text.append(f", {'after' if run.is_over else 'for'} {run.lasted}")
    if run.reason:
        text.append(f": {run.reason}")
    if run.has_failures:
        text.append(f"\n{run.tally}", "red")
    return text.append("\n")


def _table(columns: Sequence[_Column], stages: Sequence[StageStanding]) -> Table:
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for column in columns:
        is_name = column.heading in {"Stage", "Reason", "Comment"}
        table.add_column(
            column.heading,
            justify="right" if column.is_number else "left",
            overflow="fold",
            no_wrap=not is_name,
            ratio=None,
        )
    for stage in stages:
        cells = [Text(column.cell(stage)) for column in columns]
        cells[1].stylize(_STYLES.get(stage.state, ""))
        table.add_row(*cells)
    return table


def _columns(run: RunStanding, stages: Sequence[StageStanding], width: int) -> list[_Column]:
    """Choose the columns that fit: shorten states first, then leave out columns; never cut a word."""
    every = _all_columns(run)
    columns = [column for column in every if width >= _WIDE or not column.is_wide]

    def is_too_wide() -> bool:
        # reasons may be wrapped between words
        widths = (column.width(stages) for column in columns)
        least = (min(w, _REASON) if c.heading == "Reason" else w for c, w in zip(columns, widths, strict=True))
        return sum(least) - _GAP > width

    if is_too_wide():
        state = columns[1]
        columns[1] = replace(state, cell=lambda stage: _SHORT.get(stage.state, stage.state))
    while is_too_wide() and (spare := [column for column in columns if column.rank]):
        empty = [column for column in spare if not any(column.cell(stage) for stage in stages)]
        columns.remove(max(empty or spare, key=lambda column: column.rank))
    return columns


def _all_columns(run: RunStanding) -> list[_Column]:
    now_s, has_comments = run.now_s, any(stage.comment for stage in run.stages)
    return [
        _Column("Stage", lambda s: s.stage, is_number=False),
        _Column("State", lambda s: s.state, is_number=False),
        _Column("Job", lambda s: s.job_id or "", rank=4),
        _Column("Cores", _cores, rank=5),
        _Column(
            "Submitted", lambda s: clock(s.submit_s, now_s) if s.submit_s is not None else "", is_wide=True, rank=7
        ),
        _Column("Waited", lambda s: _so_far(s.wait_s, is_growing=s.is_growing and s.start_s is None), rank=1),
        _Column("Predicted", _predicted, rank=3),
        _Column("Starts", lambda s: _about(s.expected_start_s, now_s), is_wide=True, rank=6),
        _Column("Ran", lambda s: _so_far(s.run_s, is_growing=s.is_growing), rank=2),
        _Column("Reason", lambda s: _why(s, now_s), is_number=False, is_wide=True),
        *([_Column("Comment", lambda s: s.comment, is_number=False, rank=8)] if has_comments else []),
    ]


def _so_far(value: float | None, *, is_growing: bool) -> str:
    return "" if value is None else f"{format_duration(value)}{'+' if is_growing else ''}"


def _cores(stage: StageStanding) -> str:
    """Write the cores of a stage's jobs, and the number of jobs if there are several."""
    return per_job(stage.alike, str(stage.cores))


def _predicted(stage: StageStanding) -> str:
    return "" if stage.predicted_wait_s is None else format_duration(stage.predicted_wait_s)


def _about(time_s: float | None, now_s: float) -> str:
    if time_s is None:
        return ""
    return "any moment" if time_s <= now_s else f"in {format_duration(time_s - now_s)}"


def _why(stage: StageStanding, now_s: float) -> str:
    """Return why a stage's job is pending or not accepted, or when it will be submitted."""
    if stage.not_accepted is not None:
        more, (since_s, reason) = "one more job is " if stage.job_id is not None else "", stage.not_accepted
        return f"{more}not accepted since {clock(since_s, now_s)}: {reason}"
    if stage.planned_s is None:
        by_asa = stage.given_up and stage.state in {"cancelled", "being cancelled"}
        return f"by asa: {stage.given_up}" if by_asa else stage.reason
    left_s = stage.planned_s - now_s
    what = "more cores requested" if stage.job_id is not None else "asked for"
    return f"{what} in {format_duration(left_s)}" if left_s >= 1 else f"{what} at once"


def _note(stage: StageStanding, now_s: float) -> Text:
    starts = _about(stage.expected_start_s, now_s)
    tried = f"tried again; last attempt: {stage.retried}" if stage.retried else ""
    parts = [_why(stage, now_s), tried, f"the batch system expects it to start {starts}" if starts else ""]
    refused = "refused: " if stage.state == "refused" else ""
    text = f"{stage.stage}: {refused}{'; '.join(part for part in parts if part)}"
    return Text(text, style="red" if refused else "dim")


def _foot(run: RunStanding) -> list[RenderableType]:
    lines = [Text("")]
    if run.refusal:
        lines.append(Text(f"Problem: no client may go on with it: {run.refusal}. {run.remedy}", style="bold red"))
    elif run.trouble:
        text = f"Problem: {run.trouble}. Trying again; jobs go on. {run.remedy}"
        lines.append(Text(text.rstrip(), style="yellow"))
    for bad in run.bad_nodes:
        text = f"Node {bad.name} is avoided until {clock(bad.until_s, run.now_s)}: {bad.text}."
        lines.append(Text(text, style="yellow"))
    where = f"Strategy {run.plan.strategy} on {run.plan.backend}"
    if not run.is_over:
        age = run.age_s
        where += "; nothing is known yet" if age is None else f"; as of {format_duration(age)} ago"
        style = "yellow" if age is not None and age > _OLD_S else "dim"
    else:
        style = "dim"
    legend = " +: so far." if any(stage.is_growing for stage in run.stages) else ""
    lines.append(Text(f"{where}.{legend}", style=style))
    if run.next_s is not None:
        left = run.next_s - run.now_s
        lines.append(
            Text(f"Next action at {clock(run.next_s, run.now_s)}, in {format_duration(max(left, 0.0))}.", style="dim")
        )
    return list(lines)
