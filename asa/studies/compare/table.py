"""The tables of `asa compare` for a terminal, each with a sentence on its meaning; `page` has those of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from asa.core.intervals import Interval, beyond_chance, mean_interval, statistic_interval
from asa.metrics import RunMetrics
from asa.studies.compare.frontier import CHOOSES, IN_OWN_SHAPES, Cell, about_prices, frontier_rows, named
from asa.studies.compare.study import CompareRun, group
from asa.studies.paper.verdicts import average_above_best
from asa.studies.present import Row, Table, number
from asa.units import format_duration

_HEROES = (CHOOSES, "asa")  # the strategies that the sentence is about; the first that ran
_RIVALS = ("big-job", "per-stage", "asa", "chained", IN_OWN_SHAPES)
_SAME_TIME, _SAME_COST = 0.0005, 0.005

_COLUMNS: dict[str, tuple[str, Callable[[RunMetrics], float], bool, int | None]] = {
    # key: heading, value, whether smaller is better, decimals; None for seconds, which are written as durations
    "twt_s": ("Waiting", lambda m: m.twt_s, True, None),
    "makespan_s": ("Makespan", lambda m: m.makespan_s, True, None),
    "core_hours": ("Core-h", lambda m: m.core_hours, True, 1),
    "overhead_core_hours": ("Idle", lambda m: m.overhead_core_hours, True, 2),
    "hit_ratio": ("Hits %", lambda m: 100 * m.hit_ratio, False, 0),
}


def cells_of(runs: Sequence[CompareRun]) -> list[Cell]:
    """Average the runs of each strategy at each core count."""
    return [
        Cell(
            cores,
            strategy,
            tuple(members),
            {
                key: mean_interval([value(run.metrics) for run in members if run.metrics is not None]).within(
                    0.0, 100.0 if key == "hit_ratio" else math.inf
                )
                for key, (_, value, _, _) in _COLUMNS.items()
            },
        )
        for (cores, strategy), members in group(runs).items()
    ]


def normalised_averages(cells: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """Return by how much each strategy exceeds the best of each core count, averaged over the counts, as below Table 1.

    Returns: by strategy, then by ``twt_s``, ``makespan_s``, ``core_hours``: the mean of value / best - 1; nan if the
    best is 0.
    """
    averages: dict[str, dict[str, float]] = {cell.strategy: {} for cell in cells}
    for key in ("twt_s", "makespan_s", "core_hours"):
        rows: dict[int, dict[str, float]] = {}
        for cell in cells:
            rows.setdefault(cell.cores, {})[cell.strategy] = cell.intervals[key].mean
        for strategy, percent in average_above_best(rows.values()).items():
            averages[strategy][key] = percent / 100
    return averages


def render(runs: Sequence[CompareRun], *, seeds: int) -> RenderableType:
    """Return a table for each core count, with a sentence, and the normalised averages."""
    cells = cells_of(runs)
    first = runs[0]
    rule = f"jobs gain {'' if first.age_accrues else 'no '}priority while they wait for a dependency"
    parts: list[RenderableType] = [
        Text.assemble(
            (f"{first.workflow} on {first.system}", "bold"),
            f"; {rule}.\n{_caption(seeds)}\n",
            f"{shapes}\n" if (shapes := about_shapes(cells)) else "",
        )
    ]
    for cores in dict.fromkeys(cell.cores for cell in cells):
        here = [cell for cell in cells if cell.cores == cores]
        parts += [_table(cores, here), Padding(Text(sentence(here)), (0, 0, 1, 2))]
    if len({cell.strategy for cell in cells}) > 1 < len({cell.cores for cell in cells}):
        parts.append(_averages_table(normalised_averages(cells)))
    parts += _frontier(cells)
    parts += [Text(line, style="yellow") for line in _failures(cells)]
    parts.append(
        Text(
            "Waiting: how long stages that could have run waited in the queue. Core-h: core-hours of all jobs, also of "
            "cores that a narrow stage leaves idle in a wide job. Idle: those of jobs while they ran no stage. Hits: "
            "share of predicted waits that were not too long, of those that can be checked. *: best of its column.",
            style="dim",
        )
    )
    return Group(*parts)


def _caption(seeds: int) -> str:
    if seeds == 1:
        return "One run."
    return (
        f"Means of {seeds} runs, each with its 95 % interval below. Sooner, later, fewer and more are significant "
        "differences, with 95 % intervals in parentheses (paired by replication; Holm's correction in each sentence)."
    )


def _failures(cells: Sequence[Cell]) -> list[str]:
    lines = []
    for cell in cells:
        failed = [run for run in cell.runs if run.metrics is None]
        if failed:
            what = f"{len(failed)} of {len(cell.runs)} runs of {cell.strategy} at {cell.cores} cores failed"
            lines.append(f"{what}, first seed {failed[0].seed}: {failed[0].reason}; the means leave them out")
    return lines


def _table(cores: int, cells: Sequence[Cell]) -> Table:
    rows = []
    for cell in cells:
        is_spread = any(interval.is_spread for interval in cell.intervals.values())
        name, setting = _in_two(cell.strategy) if is_spread else (cell.strategy, "")
        row = [Text(name)]
        for key, (_, _, smaller, decimals) in _COLUMNS.items():
            digits = decimals or 0
            shown = [round(c.intervals[key].mean, digits) for c in cells if not math.isnan(c.intervals[key].mean)]
            mean = cell.intervals[key].mean
            best = bool(shown) and not math.isnan(mean) and round(mean, digits) == (min if smaller else max)(shown)
            row.append(_value(cell.intervals[key], decimals, best=best and len(cells) > 1))
        rows.append(Row(row))
        if is_spread:
            bounds = (_bounds(cell.intervals[key], column[3]) for key, column in _COLUMNS.items())
            rows.append(Row([Text(setting, style="not dim"), *bounds], "dim"))
    headings = ["Strategy", *(heading for heading, *_ in _COLUMNS.values())]
    widths = [max(len(str(row.cells[0])) for row in rows), *(None for _ in _COLUMNS)]
    return Table(headings, rows, f"{cores} cores", wraps=(), widths=widths)


def _in_two(strategy: str) -> tuple[str, str]:
    """Break a long name before its settings, so that a table with intervals fits into 80 columns."""
    name, colon, settings = strategy.partition(":")
    return f"{name}{colon}", settings


def _bounds(interval: Interval, decimals: int | None) -> str:
    if not interval.is_spread:
        return ""
    return "-".join(_short(bound, decimals) for bound in (interval.low, interval.high)) + " "


def _short(value: float, decimals: int | None) -> str:
    if decimals is None:
        return format_duration(value)
    if value >= 100_000:
        return f"{value / 1000:,.0f}k"
    return f"{value / 1000:.1f}k" if value >= 10_000 else f"{value:,.{decimals}f}"


def _value(interval: Interval, decimals: int | None, *, best: bool) -> Text:
    if math.isnan(interval.mean):
        return Text("-", style="dim")
    mean = format_duration(interval.mean) if decimals is None else f"{interval.mean:,.{decimals}f}"
    return Text(f"{mean}*" if best else f"{mean} ", style="bold green" if best else "")


def _frontier(cells: Sequence[Cell]) -> list[RenderableType]:
    """Return tables of the means that no other beats in both, of the choice, and of each given price."""
    found = frontier_rows(cells)
    if len(cells) < 2 or not found:
        return []
    rows = []
    for row in found:
        costs = (
            "" if row.hour_sooner is None else f"{number(row.hour_sooner, 0 if row.hour_sooner >= 10 else 2)} core-h"
        )
        time_s, hours = row.cell.point
        cells_of_row = (
            named(row.cell, cells),
            number(time_s, None),
            number(row.p90_s, None),
            number(hours, 1),
            costs,
        )
        rows.append(Row(cells_of_row, "bold green" if row.cell.is_choice else ""))
    title = "Time against core-hours: none is better in both than one of these"
    table = Table(["Strategy", "Makespan", "9 in 10", "Core-h", "An hour sooner"], rows, title, wraps=(0,))
    words = ["9 in 10: so many runs end within that."]
    words.append("An hour sooner: the core-hours paid for each hour saved, compared with the row above.")
    beaten = [cell for cell in cells if cell.is_choice and all(row.cell is not cell for row in found)]
    for cell in beaten:
        time_s, hours = cell.point
        better = next((row.cell for row in found if row.cell.point[0] <= time_s and row.cell.point[1] <= hours), None)
        if better is not None:
            words.append(f"{named(cell, cells)} is not among them: {named(better, cells)} ends no later, for no more.")
    words += about_prices(cells)
    return [table, Padding(Text(" ".join(words)), (0, 0, 1, 2))]


def _averages_table(averages: dict[str, dict[str, float]]) -> Table:
    rows = []
    for strategy, excess in averages.items():
        values = (excess[key] for key in ("twt_s", "makespan_s", "core_hours"))
        rows.append((strategy, *("-" if math.isnan(value) else f"+{100 * value:.0f} %" for value in values)))
    title = "Above the best strategy, averaged over core counts"
    return Table(
        ["Strategy", "Waiting", "Makespan", "Core-hours"], rows, title, wraps=(1, 2, 3), is_wide=True, width=50
    )


def about_shapes(cells: Sequence[Cell]) -> str:
    """Return a sentence on which strategy chooses shapes, if one does; else an empty text."""
    names = {cell.strategy for cell in cells}
    if not {CHOOSES, IN_OWN_SHAPES} <= names:
        return ""
    return (
        f"{CHOOSES} chooses a shape for each stage (its number of cores); all others take the first, of --cores or of "
        "the workflow file."
    )


def sentence(cells: Sequence[Cell]) -> str:
    """Return a sentence on the table of one core count: compared with Big Job first, with what is not significant.

    All its claims on time and core-hours of pairs hold together with 95 % (Holm).
    """
    by_name = {cell.strategy: cell for cell in cells if not math.isnan(cell.intervals["makespan_s"].mean)}
    if not by_name:
        return "no run completed."
    quickest = min(by_name.values(), key=lambda cell: cell.intervals["makespan_s"].mean)
    hero = next((by_name[name] for name in _HEROES if name in by_name), quickest)
    rivals = [by_name[name] for name in _RIVALS if name in by_name and name != hero.strategy]
    if not rivals:
        took_s, hours = hero.intervals["makespan_s"].mean, hero.intervals["core_hours"].mean
        return f"{hero.strategy} takes {format_duration(took_s)} and {hours:,.1f} core-hours."
    return f"{hero.strategy} finishes {against(hero, rivals)}"


def against(hero: Cell, rivals: Sequence[Cell]) -> str:
    """Say how much sooner one strategy ends than others, and for how many core-hours; see `sentence`."""
    times, costs = ([_over(hero, rival, what) for rival in rivals] for what in ("makespan_s", "core_hours"))
    return claimed([rival.strategy for rival in rivals], times, costs, beyond_chance([*times, *costs]))


def claimed(rivals: Sequence[str], times: Sequence[Interval], costs: Sequence[Interval], clear: Sequence[bool]) -> str:
    """Say how much sooner a strategy ends than each rival, and for how many core-hours.

    `times`, `costs`: relative differences from each rival.
    `clear`: whether these are significant, first for the times, then for the costs.
    """
    claims: dict[tuple[str, str], list[str]] = {}  # equal claims about several rivals are merged
    for index, rival in enumerate(rivals):
        words = _when(times[index], is_clear=clear[index]), _for(costs[index], is_clear=clear[len(rivals) + index])
        claims.setdefault(words, []).append(rival)
    first, *others = (f"{when.format(_listed(names))} {cost}" for (when, cost), names in claims.items())
    rest = f" It finishes {'; '.join(others)}." if others else ""
    return f"{first}.{rest}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([*filter(None, [", ".join(names[:-1])]), names[-1]])


def _when(time: Interval, *, is_clear: bool) -> str:
    """Return how much sooner a strategy ends; the name of the other strategy follows this text."""
    way = "later" if time.mean > 0 else "sooner"
    if abs(time.mean) < _SAME_TIME:
        return "as soon as {}"
    if math.isnan(time.low):
        return f"{_percent(time)} {way} than {{}} (one run)"
    if not is_clear:
        return "as soon as {} (no significant difference)"
    return f"{_percent(time)} {way} than {{}}"


def _for(cost: Interval, *, is_clear: bool) -> str:
    """Return for how many more or fewer core-hours."""
    if abs(cost.mean) < _SAME_COST:
        return "for the same core-hours"
    if not is_clear and not math.isnan(cost.low):
        return "for as many core-hours (no significant difference)"
    return f"for {_percent(cost)} {'more' if cost.mean > 0 else 'fewer'} core-hours"


def _over(hero: Cell, rival: Cell, what: str) -> Interval:
    """Return the relative difference of a mean from another strategy's, over the seeds that both completed."""
    ours, theirs = ({run.seed: getattr(run.metrics, what) for run in c.runs if run.metrics} for c in (hero, rival))
    pairs = np.array([(ours[seed], theirs[seed]) for seed in ours if seed in theirs])
    if not len(pairs):
        return Interval(math.nan, math.nan, math.nan)
    return statistic_interval(lambda mean: float(mean[0] / mean[1]) - 1, pairs)


def _percent(ratio: Interval) -> str:
    """Format a share without its sign, with its interval if that is wider than the precision shown."""
    size = 100 * abs(ratio.mean)
    if math.isnan(ratio.low):
        return f"{_short_percent(size)} %"
    low, high = sorted(100 * math.copysign(1, ratio.mean) * bound for bound in (ratio.low, ratio.high))
    bounds = f" ({_short_percent(low)} to {_short_percent(high)})"
    return f"{_short_percent(size)} %{bounds if _short_percent(low) != _short_percent(high) else ''}"


def _short_percent(size: float) -> str:
    return f"{size:.0f}" if abs(size) >= 1 else f"{size:.1f}"
