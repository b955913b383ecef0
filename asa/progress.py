"""The progress of a run, by its records: a table and a bar for notebooks, and lines for terminals."""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from asa.backend import JobState
from asa.records import Ended, Record, Retrying, RunEnded, RunStarted, StageEnded, StageStarted, Started, Submitted
from asa.units import format_duration

__all__ = ["RunProgress", "follower"]

_BAR = 24  # characters
_MAX_ROWS = 40
_COLOURS = {"done": "#2e8540", "running": "#1769aa", "allocated": "#1769aa", "queued": "#9a6a00", "failed": "#c62828"}
_LIVE_S = 0.5  # between drawings


@dataclass(slots=True)
class StageProgress:
    """The progress of a stage."""

    name: str
    state: str = "waiting"
    cores: int = 0
    job_id: str = ""
    submit_s: float = math.nan
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
        self.name, self.outcome = name, ""
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
            self.outcome = record.outcome
        for name in getattr(record, "stages", ()):
            if name in self.stages:
                _apply(self.stages[name], record)

    @property
    def done(self) -> int:
        """Number of completed stages."""
        return sum(stage.state == "done" for stage in self.stages.values())

    def line(self) -> str:
        """Return one line: a bar, and the stages that are not done."""
        count = len(self.stages)
        full = _BAR * self.done // max(count, 1)
        others = {state: self._count(state) for state in ("running", "allocated", "queued", "failed")}
        parts = [f"{self.done} of {count} stages done", *(f"{n} {state}" for state, n in others.items() if n)]
        if math.isfinite(self.begin_s):
            parts.append(f"{format_duration(self.now_s - self.begin_s)} so far")
        return f"{self.name}  [{'#' * full}{' ' * (_BAR - full)}]  {', '.join(parts)}"

    def _count(self, state: str) -> int:
        return sum(stage.state == state for stage in self.stages.values())

    def _repr_html_(self) -> str:
        """Draw the progress for a notebook: a bar and a table, in colours that are readable on light and dark pages."""
        count = max(len(self.stages), 1)
        state = self.outcome or "running"
        rows = "".join(map(self._row, self._shown()))
        left = len(self.stages) - len(self._shown())
        more = f"<p>... and {left} more stages</p>" if left else ""
        return (
            f"<div><b>{html.escape(self.name)}</b>: {state}, {self.done} of {len(self.stages)} stages done<br>"
            f'<progress value="{self.done}" max="{count}" style="width:20em"></progress>'
            "<table><thead><tr><th>Stage</th><th>State</th><th>Cores</th><th>Job</th><th>Waited</th><th>Ran</th></tr>"
            f"</thead><tbody>{rows}</tbody></table>{more}</div>"
        )

    def _shown(self) -> Sequence[StageProgress]:
        """Limit a long list of stages: leave out completed and unbegun stages first."""
        stages = list(self.stages.values())
        if len(stages) <= _MAX_ROWS:
            return stages
        rank = {"failed": 0, "running": 1, "allocated": 2, "queued": 3, "waiting": 4}
        kept = sorted(stages, key=lambda stage: rank.get(stage.state, 5))[:_MAX_ROWS]
        names = {stage.name for stage in kept}
        return [stage for stage in stages if stage.name in names]

    def _row(self, stage: StageProgress) -> str:
        colour = _COLOURS.get(stage.state, "inherit")
        waited = (stage.start_s if math.isfinite(stage.start_s) else self.now_s) - stage.submit_s
        ran = (stage.end_s if math.isfinite(stage.end_s) else self.now_s) - stage.start_s
        cells = [
            html.escape(stage.name),
            f'<span style="color:{colour}">{stage.state}</span>',
            str(stage.cores or ""),
            html.escape(stage.job_id),
            _duration(waited),
            _duration(ran),
        ]
        return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _apply(stage: StageProgress, record: Record) -> None:
    if isinstance(record, Submitted):
        if stage.state != "done":
            stage.state, stage.cores, stage.job_id = "queued", record.cores, record.job_id
        if not math.isfinite(stage.submit_s):
            stage.submit_s = record.time_s
    elif isinstance(record, Started) and stage.state == "queued":
        stage.state = "allocated"
    elif isinstance(record, StageStarted):
        stage.state, stage.start_s = "running", record.time_s
    elif isinstance(record, StageEnded):
        stage.state, stage.end_s = "done", record.time_s
    elif isinstance(record, Retrying):
        stage.state, stage.start_s, stage.end_s = "waiting", math.nan, math.nan
    elif isinstance(record, Ended) and stage.state != "done" and record.job_id == stage.job_id:
        stage.state = "failed" if record.state is not JobState.CANCELLED else "cancelled"
        stage.end_s = record.time_s


def _duration(seconds: float) -> str:
    return format_duration(max(seconds, 0.0)) if math.isfinite(seconds) else ""


# ---------------------------------------------------------------------- display of a run


def follower(progress: RunProgress, *, wanted: bool | None, stream: TextIO | None = None) -> Callable[[Record], None]:
    """Return a function that shows a run while it runs; call it with each record.

    `wanted`: whether to show the run; None: only in a notebook, or if `stream` (standard error) is a terminal.
    """
    stream = sys.stderr if stream is None else stream
    if wanted is False:
        return lambda _: None
    if (show := _notebook()) is not None:
        return _in_notebook(progress, show)
    if wanted or stream.isatty():
        return _on_terminal(progress, stream)
    return lambda _: None


def _notebook() -> Callable[..., Any] | None:
    """Return the function that displays a value in the current notebook; None elsewhere."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # noqa: PLC0415 - IPython is loaded

    show: Callable[..., Any] = display
    return show


def _in_notebook(progress: RunProgress, show: Callable[..., Any]) -> Callable[[Record], None]:
    handle, drawn_s = show(progress, display_id=True), time.monotonic()

    def follow(record: Record) -> None:
        nonlocal drawn_s
        progress.add(record)
        if isinstance(record, RunEnded) or time.monotonic() - drawn_s > _LIVE_S:
            handle.update(progress)
            drawn_s = time.monotonic()

    return follow


def _on_terminal(progress: RunProgress, stream: TextIO) -> Callable[[Record], None]:
    is_terminal, width = stream.isatty(), 0

    def follow(record: Record) -> None:
        nonlocal width
        progress.add(record)
        line = progress.line()
        if is_terminal:
            stream.write(f"\r{line:<{width}}" + ("\n" if isinstance(record, RunEnded) else ""))
            width = len(line)
        elif isinstance(record, StageEnded | RunEnded):
            stream.write(f"{line}\n")
        stream.flush()

    return follow
