"""The table of a pool's allocations."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from asa.printable import printable
from asa.units import format_duration

from .allocation import Allocation, AllocationPhase

_STYLES = {
    AllocationPhase.ASKED: "dim",
    AllocationPhase.PENDING: "yellow",
    AllocationPhase.STARTING: "cyan",
    AllocationPhase.ALIVE: "green",
    AllocationPhase.DRAINING: "magenta",
    AllocationPhase.ENDED: "dim",
}
_MAX_ENDED = 5


def draw(allocations: Sequence[Allocation], now_s: float, title: str = "", note: str = "") -> Table:
    """Draw the table of allocations: pending ones with their expected start, running ones with their time left.

    `allocations`: in order of submission; only the last few of those that have ended are shown.
    """
    table = Table(title=Text(printable(title)) if title else None, caption=Text(printable(note)) if note else None)
    for name in ("allocation", "job", "cores", "workers", "phase", "time", ""):
        table.add_column(name, justify="right" if name in {"cores", "workers"} else "left")
    ended = [allocation for allocation in allocations if allocation.phase is AllocationPhase.ENDED]
    hidden = set(map(id, ended[:-_MAX_ENDED]))
    for allocation in allocations:
        if id(allocation) in hidden:
            continue
        cells = (
            allocation.id,
            allocation.job_id,
            str(allocation.shape.cores),
            str(len(allocation.workers)),
            str(allocation.phase),
            _time(allocation, now_s),
            allocation.why,
        )
        table.add_row(*(Text(printable(words)) for words in cells), style=_STYLES[allocation.phase])
    if hidden:
        table.add_row("...", "", "", "", "ended", f"{len(hidden)} more", "", style="dim")
    return table


def _time(allocation: Allocation, now_s: float) -> str:
    if allocation.is_waiting:
        waited = f"waits for {format_duration(max(now_s - allocation.asked_s, 0.0))}"
        if allocation.expected_s is None:
            return waited
        return f"{waited}, expected in {format_duration(max(allocation.expected_s - now_s, 0.0))}"
    left_s = allocation.left_s(now_s)
    if left_s is not None:
        return f"{format_duration(left_s)} left"
    if allocation.start_s is not None and allocation.end_s is not None:
        return f"ran for {format_duration(max(allocation.end_s - allocation.start_s, 0.0))}"
    return "never ran"
