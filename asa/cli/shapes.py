"""Prints the shapes that were weighed for a stage, as a table, sentences or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asa.units import format_core_hours, format_cores, format_duration

if TYPE_CHECKING:
    from asa.core.console import Console
    from asa.runner.state import RunState
    from asa.strategies.base import Choice, Weighed

_SPREAD = ("p10", "p50", "p90")


def choice_as_dict(choice: Choice) -> dict[str, Any]:
    """Return a choice of shapes as JSON-ready data."""
    return {
        "width": choice.shape.width,
        "partition": choice.shape.partition,
        "weighed": [
            {
                "width": weighed.shape.width,
                "partition": weighed.shape.partition,
                "cores": weighed.cores,
                "walltime_s": weighed.shape.walltime_s,
                "run_s": weighed.run_s,
                "core_hours": weighed.core_hours,
                "wait_s": dict(zip(_SPREAD, weighed.waits_s, strict=True)),
                "end_in_s": dict(zip(_SPREAD, weighed.ends_s, strict=True)),
            }
            for weighed in choice.weighed
        ],
    }


def print_shapes(console: Console, jobs: Iterable[Sequence[str]], choices: Mapping[str, Choice]) -> None:
    """Print the possible shapes of each job; a job is given as its stages."""
    from rich.table import Table
    from rich.text import Text

    has_partitions = any(weighed.shape.partition for choice in choices.values() for weighed in choice.weighed)
    for stages in jobs:
        names = [name for name in stages if name in choices and choices[name].weighed]
        if not names:
            continue
        made = [choices[name] for name in names]
        what = stages[0] if len(stages) == 1 else f"the job of {', '.join(stages)}"
        console.print(Text(f"\nShapes compared for {what}; times from when it can begin", style="bold"))
        padding = (0, 2 if len(stages) == 1 else 1, 0, 0)
        table = Table(box=None, padding=padding, pad_edge=False, header_style="bold")
        table.add_column("")
        table.add_column("Cores", justify="right", no_wrap=True)
        if len(stages) > 1:
            table.add_column(Text("for ").append(", ".join(names)), overflow="fold")
        if has_partitions:
            table.add_column("Partition")
        for column in ("Wait", "8 in 10", "Runs", "Ends", "8 in 10", "Core-h"):
            table.add_column(column, justify="right", no_wrap=True)
        for ways in zip(*(choice.weighed for choice in made), strict=True):
            first = ways[0]
            is_chosen = all(way.shape == choice.shape for way, choice in zip(ways, made, strict=True))
            table.add_row(
                "*" if is_chosen else "",
                str(first.cores),
                *([", ".join(str(way.shape.width) for way in ways)] if len(stages) > 1 else []),
                *([first.shape.partition] if has_partitions else []),
                *_half_and_range(first.waits_s),
                format_duration(first.run_s),
                *_half_and_range(first.ends_s),
                format_core_hours(first.core_hours),
                style="bold green" if is_chosen else "",
            )
        console.print(table)


def _half_and_range(times_s: tuple[float, float, float]) -> tuple[str, str]:
    low, half, high = map(format_duration, times_s)
    return half, f"{low} - {high}"


def about_shapes(state: RunState, name: str) -> Iterator[str]:
    """Report the shape in which a stage was submitted, and the other shapes that were considered."""
    choice = state.choices.get(name)
    if choice is None:
        stage = state.stages[name]
        widths = ", ".join(map(str, sorted({shape.width for shape in stage.stage.shapes})))
        if "," in widths and stage.job_id is None:
            yield f"Possible widths: {widths}; `asa-plan` chooses when it submits the stage."
        elif "," in widths:
            yield (
                f"Of the widths {widths} none was weighed: it was asked for in {stage.stage.width}, by --width or as "
                "the first that its file names; the strategy `asa-plan` chooses among them where waits are known."
            )
        return
    chosen = next((weighed for weighed in choice.weighed if weighed.shape == choice.shape), None)
    if chosen is None:
        return
    yield f"Of {len(choice.weighed)} shapes {_words(chosen)} was chosen: {_expected(chosen)}."
    for weighed in choice.weighed:
        if weighed is not chosen:
            yield f"Also compared: {_words(weighed)}, {_expected(weighed)}."


def _words(weighed: Weighed) -> str:
    where = f" in partition {weighed.shape.partition}" if weighed.shape.partition else ""
    return f"{format_cores(weighed.cores)} for {format_duration(weighed.shape.walltime_s)}{where}"


def _expected(weighed: Weighed) -> str:
    wait, (low, high) = (
        format_duration(weighed.waits_s[1]),
        map(format_duration, (weighed.ends_s[0], weighed.ends_s[2])),
    )
    return (
        f"half of such jobs wait {wait} and end within {format_duration(weighed.ends_s[1])} "
        f"(8 in 10: {low} to {high}), for {format_core_hours(weighed.core_hours)} core-hours"
    )
