"""The shapes that were weighed for a stage: as a table, as sentences, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from asa.cli.screen import cores
from asa.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from asa.runner.state import RunState
    from asa.strategies.base import Choice, Weighed

_SPREAD = ("p10", "p50", "p90")


def choice_as_dict(choice: Choice) -> dict[str, Any]:
    """Give it as what JSON can hold."""
    return {
        "width": choice.shape.width,
        "partition": choice.shape.partition,
        "weighed": [
            {
                "width": one.shape.width,
                "partition": one.shape.partition,
                "cores": one.cores,
                "walltime_s": one.shape.walltime_s,
                "run_s": one.run_s,
                "core_hours": one.core_hours,
                "wait_s": dict(zip(_SPREAD, one.waits_s, strict=True)),
                "end_in_s": dict(zip(_SPREAD, one.ends_s, strict=True)),
            }
            for one in choice.weighed
        ],
    }


def print_shapes(console: Console, choices: Mapping[str, Choice]) -> None:
    """Show for each job in which shapes it might have been asked for."""
    from rich.table import Table
    from rich.text import Text

    has_partitions = any(one.shape.partition for choice in choices.values() for one in choice.weighed)
    seen: list[tuple[object, ...]] = []
    for name, choice in choices.items():
        if (key := tuple(one.ends_s for one in choice.weighed)) in seen:
            continue  # it shares a job with one that was shown
        seen.append(key)
        console.print(Text(f"\nShapes weighed for {name}; times from when it may begin", style="bold"))
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        table.add_column("")
        table.add_column("Cores", justify="right")
        if has_partitions:
            table.add_column("Partition")
        for column in ("Wait", "8 in 10", "Runs", "Ends", "8 in 10", "Core-h"):
            table.add_column(column, justify="right", no_wrap=True)
        for one in choice.weighed:
            is_chosen = one.shape == choice.shape
            table.add_row(
                "*" if is_chosen else "",
                str(one.cores),
                *([one.shape.partition] if has_partitions else []),
                *_half_and_range(one.waits_s),
                format_duration(one.run_s),
                *_half_and_range(one.ends_s),
                f"{one.core_hours:,.1f}",
                style="bold green" if is_chosen else "",
            )
        console.print(table)


def _half_and_range(times_s: tuple[float, float, float]) -> tuple[str, str]:
    low, half, high = map(format_duration, times_s)
    return half, f"{low} - {high}"


def told_of_shapes(state: RunState, name: str) -> Iterator[str]:
    """Say in which shape a stage was asked for, and what else was weighed."""
    choice = state.choices.get(name)
    if choice is None:
        offered = sorted({shape.width for shape in state.stages[name].stage.shapes})
        if len(offered) > 1 and state.stages[name].job_id is None:
            widths = ", ".join(map(str, offered))
            yield f"It may be asked for in widths of {widths}; `asa-plan` chooses when it submits it."
        return
    chosen = next((one for one in choice.weighed if one.shape == choice.shape), None)
    if chosen is None:
        return
    yield f"Of {len(choice.weighed)} shapes {_words(chosen)} was chosen: {_expected(chosen)}."
    for one in choice.weighed:
        if one is not chosen:
            yield f"Weighed as well: {_words(one)}, {_expected(one)}."


def _words(one: Weighed) -> str:
    where = f" in partition {one.shape.partition}" if one.shape.partition else ""
    return f"{cores(one.cores)} for {format_duration(one.shape.walltime_s)}{where}"


def _expected(one: Weighed) -> str:
    wait, (low, high) = format_duration(one.waits_s[1]), map(format_duration, (one.ends_s[0], one.ends_s[2]))
    return (
        f"half such jobs wait {wait} and end within {format_duration(one.ends_s[1])} (8 in 10: {low} to {high}), "
        f"for {one.core_hours:,.1f} core-hours"
    )
