"""The progress of a run, by its records: a table and a bar for notebooks and terminals, and lines for files."""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from asa.backend import JobState, StepTimes
from asa.records import Ended, Record, Retrying, RunEnded, RunStarted, StageEnded, StageStarted, Started, Submitted
from asa.units import format_duration

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderResult


__all__ = ["Follower", "RunProgress", "follower"]

_BAR = 24  # characters
_MAX_ROWS = 40
# in notebooks, with a contrast of more than 4 to white pages and to dark ones; and in terminals
_COLOURS = {
    "done": "#2f8843",
    "running": "#1f7cc4",
    "waiting in its job": "#1f7cc4",
    "queued": "#a17000",
    "failed": "#e03535",
}
_STYLES = {"done": "green", "running": "cyan", "waiting in its job": "cyan", "queued": "yellow", "failed": "red"}
_COLUMNS = ("Stage", "State", "Cores", "Job", "Waited", "Ran")
_TEXTS = 2  # the first columns are text, and aligned as such
_LIVE_S, _LONGEST_LIVE_S = 1.0, 10.0  # between drawings, at first and in a long run
_PART = 0.01  # of the time since the beginning: meanwhile


@dataclass(slots=True)
class StageProgress:
    """The progress of a stage."""

    name: str
    state: str = "waiting"
    cores: int = 0
    job_id: str = ""
    submit_s: float = math.nan
    job_start_s: float = math.nan
    start_s: float = math.nan
    end_s: float = math.nan


class RunProgress:
    """The stages of a run, as its records show them.

    Parameters
    ----------
    name
        The run's.
    stages
        The names of its stages, in order.
    records
        What has happened so far.

    Examples
    --------
    >>> RunProgress("count", ["split", "add"]).line()
    'count  [                        ]  0 of 2 stages done'
    """

    def __init__(self, name: str, stages: Iterable[str], records: Iterable[Record] = ()) -> None:
        self.name, self.state = name, "running"
        self.stages = {stage: StageProgress(stage) for stage in stages}
        self.begin_s = self.now_s = math.nan
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Apply a record."""
        self.now_s = record.time_s
        if isinstance(record, RunStarted):
            self.begin_s = record.time_s
        elif isinstance(record, RunEnded):
            self.state = record.outcome
        for name in getattr(record, "stages", ()):
            if name in self.stages:
                _apply(self.stages[name], record)

    def reach(self, steps: Iterable[StepTimes]) -> None:
        """Apply what a job that runs several stages has done of them so far; their records come when it ends."""
        for step in steps:
            stage = self.stages.get(step.name)
            if stage is None or stage.state in {"done", "failed", "cancelled"}:
                continue
            stage.start_s, stage.end_s = step.start_s, math.nan if step.end_s is None else step.end_s
            stage.state = "running" if step.end_s is None else "failed" if step.exit_code else "done"

    @property
    def done(self) -> int:
        """Number of completed stages."""
        return sum(stage.state == "done" for stage in self.stages.values())

    def line(self) -> str:
        """Return one line: a bar, and the stages that are not done."""
        return "; ".join(filter(None, (f"{self.name}  {self._bar()}", self._taken())))

    def _bar(self) -> str:
        count = len(self.stages)
        full = _BAR * self.done // max(count, 1)
        others = {state: self._count(state) for state in ("running", "waiting in its job", "queued", "failed")}
        parts = [f"{self.done} of {count} stages done", *(f"{n} {state}" for state, n in others.items() if n)]
        return f"[{'#' * full}{' ' * (_BAR - full)}]  {', '.join(parts)}"

    def _taken(self) -> str:
        if not math.isfinite(self.begin_s):
            return "" if self.state == "running" else self.state
        taken = format_duration(self.now_s - self.begin_s)
        return f"{taken} so far" if self.state == "running" else f"{self.state} after {taken}"

    def _count(self, state: str) -> int:
        return sum(stage.state == state for stage in self.stages.values())

    def __repr__(self) -> str:
        """Return the line, which notebooks show where they cannot show the table."""
        return self.line()

    def _repr_html_(self) -> str:
        """Draw the progress for a notebook: a bar and a table, in colours that are readable on light and dark pages."""
        count = max(len(self.stages), 1)
        shown, left = self._shown(_MAX_ROWS)
        heads = "".join(f"<th{_aligned(column)}>{name}</th>" for column, name in enumerate(_COLUMNS))
        more = f"<p>{_more(left)}</p>" if left else ""
        return (
            f"<div><b>{html.escape(self.name)}</b>: {self.state}, {self.done} of {len(self.stages)} stages done<br>"
            f'<progress value="{self.done}" max="{count}" style="width:20em;max-width:100%"></progress>'
            f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(map(self._row, shown))}</tbody></table>{more}</div>"
        )

    def _row(self, stage: StageProgress) -> str:
        name, state, *others = map(html.escape, self._cells(stage))
        cells = [name, f'<span style="color:{_COLOURS.get(stage.state, "inherit")}">{state}</span>', *others]
        return f"<tr>{''.join(f'<td{_aligned(column)}>{cell}</td>' for column, cell in enumerate(cells))}</tr>"

    def __rich_console__(self, _console: Any, options: ConsoleOptions) -> RenderResult:
        """Draw the progress for a terminal: a bar and a table, no higher than the terminal."""
        from rich.table import Table  # noqa: PLC0415 - takes a while, and is rarely needed
        from rich.text import Text  # noqa: PLC0415 - likewise

        yield Text(": ".join(filter(None, (self.name, self._taken()))))
        yield Text(self._bar())
        table = Table(box=None, pad_edge=False)
        for column, name in enumerate(_COLUMNS):
            table.add_column(name, justify="left" if column < _TEXTS else "right", overflow="fold")
        shown, left = self._shown(max(options.size.height - 6, 1))
        for stage in shown:
            name, state, *others = self._cells(stage)
            table.add_row(Text(name), Text(state, style=_STYLES.get(stage.state, "")), *map(Text, others))
        yield table
        if left:
            yield Text(_more(left))

    def _shown(self, max_rows: int) -> tuple[Sequence[StageProgress], int]:
        """Limit a long list, completed and unbegun stages first; also return how many stages are left out."""
        stages = list(self.stages.values())
        if len(stages) <= max_rows:
            return stages, 0
        rank = {"failed": 0, "running": 1, "waiting in its job": 2, "queued": 3, "waiting": 4}
        kept = sorted(stages, key=lambda stage: rank.get(stage.state, 5))[:max_rows]
        names = {stage.name for stage in kept}
        return [stage for stage in stages if stage.name in names], len(stages) - len(kept)

    def _cells(self, stage: StageProgress) -> list[str]:
        waited = (stage.job_start_s if math.isfinite(stage.job_start_s) else self.now_s) - stage.submit_s
        ran = (stage.end_s if math.isfinite(stage.end_s) else self.now_s) - stage.start_s
        return [stage.name, stage.state, str(stage.cores or ""), stage.job_id, _duration(waited), _duration(ran)]


def _aligned(column: int) -> str:
    """Align a cell, since notebooks align all to the right."""
    return ' style="text-align:left"' if column < _TEXTS else ""


def _more(left: int) -> str:
    return f"... and {left} more stage{'s' * (left != 1)}"


def _apply(stage: StageProgress, record: Record) -> None:
    if isinstance(record, Submitted):
        if stage.state != "done":
            stage.state, stage.cores, stage.job_id = "queued", record.cores, record.job_id
        if not math.isfinite(stage.submit_s):
            stage.submit_s = record.time_s
    elif isinstance(record, Started) and stage.state == "queued":
        stage.state, stage.job_start_s = "waiting in its job", record.time_s
    elif isinstance(record, StageStarted):
        stage.state, stage.start_s = "running", record.time_s
        if not math.isfinite(stage.job_start_s):
            stage.job_start_s = record.time_s
    elif isinstance(record, StageEnded):
        stage.state, stage.end_s = "done", record.time_s
    elif isinstance(record, Retrying):
        stage.state, stage.submit_s, stage.job_start_s = "waiting", math.nan, math.nan
        stage.start_s = stage.end_s = math.nan
    elif isinstance(record, Ended) and stage.state != "done" and record.job_id == stage.job_id:
        stage.state = "failed" if record.state is not JobState.CANCELLED else "cancelled"
        stage.end_s = record.time_s


def _duration(seconds: float) -> str:
    return format_duration(max(seconds, 0.0)) if math.isfinite(seconds) else ""


# ---------------------------------------------------------------------- display of a run


class Follower:
    """Takes a run's records while it runs; those below also show it."""

    def __init__(self, progress: RunProgress) -> None:
        self.progress = progress

    def add(self, record: Record) -> None:
        """Apply a record."""
        self.progress.add(record)

    def look(self, now_s: float) -> None:
        """Nothing has happened until now: show how long stages have waited and run by now."""

    def close(self) -> None:
        """Show the run for the last time."""


def follower(progress: RunProgress, *, wanted: bool | None, stream: TextIO | None = None) -> Follower:
    """Return what shows a run while it runs.

    `wanted`: whether to show the run; None: only in a notebook, or if `stream` (standard error) is a terminal.
    """
    stream = sys.stderr if stream is None else stream
    if wanted is False:
        return Follower(progress)
    if (show := _notebook()) is not None:
        return _InNotebook(progress, show(progress, display_id=True).update)
    if stream.isatty():
        return _OnTerminal(progress, stream)
    return _InFile(progress, stream) if wanted else Follower(progress)


def _notebook() -> Callable[..., Any] | None:
    """Return the function that displays a value in the current notebook; None elsewhere."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # noqa: PLC0415 - IPython is loaded

    show: Callable[..., Any] = display
    return show


class _InNotebook(Follower):
    """A table that is drawn anew once a second, and less often in a long run."""

    def __init__(self, progress: RunProgress, draw: Callable[[RunProgress], object]) -> None:
        super().__init__(progress)
        self._draw, self._begun_s = draw, time.monotonic()
        self._drawn_s = self._begun_s

    def add(self, record: Record) -> None:
        super().add(record)
        self.look(record.time_s)

    def look(self, now_s: float) -> None:
        now = time.monotonic()
        if now - self._drawn_s >= min(max(_LIVE_S, _PART * (now - self._begun_s)), _LONGEST_LIVE_S):
            self.progress.now_s = now_s
            self._drawn_s = now
            self._draw(self.progress)

    def close(self) -> None:
        self._draw(self.progress)


class _OnTerminal(_InNotebook):
    """The same in a terminal."""

    def __init__(self, progress: RunProgress, stream: TextIO) -> None:
        from rich.live import Live  # noqa: PLC0415 - takes a while, and most programs run without a terminal

        from asa.core.console import Console  # noqa: PLC0415 - likewise

        # what the program prints meanwhile goes above the table, unless it goes elsewhere
        console, has_all = Console(file=stream), sys.stdout.isatty()
        self._live = Live(progress, console=console, auto_refresh=False, redirect_stdout=has_all)
        self._live.start(refresh=True)
        super().__init__(progress, lambda _: self._live.refresh())

    def close(self) -> None:
        super().close()
        self._live.stop()


class _InFile(Follower):
    """A line for each stage that has ended."""

    def __init__(self, progress: RunProgress, stream: TextIO) -> None:
        super().__init__(progress)
        self._stream = stream

    def add(self, record: Record) -> None:
        super().add(record)
        if isinstance(record, StageEnded | RunEnded):
            self._stream.write(f"{self.progress.line()}\n")
            self._stream.flush()
