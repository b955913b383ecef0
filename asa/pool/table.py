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
    ended = [one for one in allocations if one.phase is AllocationPhase.ENDED]
    hidden = set(map(id, ended[:-_MAX_ENDED]))
    for one in allocations:
        if id(one) in hidden:
            continue
        cells = (
            one.id,
            one.job_id,
            str(one.shape.cores),
            str(len(one.workers)),
            str(one.phase),
            _time(one, now_s),
            one.why,
        )
        table.add_row(*(Text(printable(words)) for words in cells), style=_STYLES[one.phase])
    if hidden:
        table.add_row("...", "", "", "", "ended", f"{len(hidden)} more", "", style="dim")
    return table


def _time(one: Allocation, now_s: float) -> str:
    if one.is_waiting:
        waited = f"waits for {format_duration(max(now_s - one.asked_s, 0.0))}"
        if one.expected_s is None:
            return waited
        return f"{waited}, expected in {format_duration(max(one.expected_s - now_s, 0.0))}"
    left_s = one.left_s(now_s)
    if left_s is not None:
        return f"{format_duration(left_s)} left"
    if one.start_s is not None and one.end_s is not None:
        return f"ran for {format_duration(max(one.end_s - one.start_s, 0.0))}"
    return "never ran"
