"""The page of `asa compare`: time and cost of each strategy at each size, and the jobs of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from asa.report.intervals import ends, written
from asa.report.page import Column, Page, PageFigure, PageTable, Part, Section, Text
from asa.report.page.drawing import GANTT, Bar, Dot, bars, dots, gantt
from asa.studies.compare.figures import makespans_by_stage
from asa.studies.compare.frontier import Cell, about_prices, frontier_rows, named
from asa.studies.compare.study import CompareRun
from asa.studies.compare.table import about_shapes, cells_of, normalised_averages, sentence

_MEASURES = (
    ("makespan_s", "Makespan", None),
    ("twt_s", "Waiting", None),
    ("core_hours", "Core-hours", 2),
    ("overhead_core_hours", "Idle core-hours", 3),
    ("hit_ratio", "Hits, %", 0),
)
_CAPTION = (
    "Means over replications, with their 95 % intervals. Idle: core-hours of jobs while they ran no stage; cores "
    "that a narrow stage leaves idle in a wide job count in core-hours alone. Hits: share of predicted waits that were "
    "not too long, of those that can be checked."
)
_METHODS = (
    (
        "In each replication every strategy meets the same queue. What the estimator had learned before is at the end "
        "of this page."
    ),
    "Intervals of means are 95 % intervals over the replications (Student's t).",
    (
        "Sooner, later, fewer and more are significant differences, paired by replication, with 95 % intervals of the "
        "ratio of means (jackknife). The claims about one size are corrected together (Holm); those about several "
        "sizes are not."
    ),
)


def comparison_page(
    runs: Sequence[CompareRun], *, notes: Sequence[str] = (), made: Mapping[str, str] | None = None
) -> Page:
    """Build the page of a comparison."""
    cells = cells_of(runs)
    counts = list(dict.fromkeys(cell.cores for cell in cells))
    first = runs[0]
    rule = f"Jobs gain {'' if first.age_accrues else 'no '}priority while they wait for a dependency."
    sentences = [f"At {cores} cores {sentence([c for c in cells if c.cores == cores])}" for cores in counts]
    made_of = [Text((*(f"{note[0].upper()}{note[1:]}." for note in notes),), is_small=True)] if notes else []
    if shapes := about_shapes(cells):
        sentences.append(shapes)
    sections = [
        Section("time", "How long it takes", [_makespans(cells, counts), _by_stage(runs)]),
        Section("cost", "What it costs", [_frontier(cells, counts), *_prices(cells), *_averages(cells)]),
        Section("figures", "All figures", [_table(cells), *made_of]),
    ]
    if drawn := _timelines(runs):
        sections.append(Section("jobs", "Jobs", drawn))
    sections.append(Section("methods", "Methods", [Text(_METHODS)]))
    title = f"{first.workflow} on {first.system}: strategies compared"
    return Page(title, [*sentences, rule], sections, made or {})


def _makespans(cells: Sequence[Cell], counts: Sequence[int]) -> PageFigure:
    groups = {
        f"{cores} cores": {
            cell.strategy: Bar(
                (("", cell.intervals["makespan_s"].mean),),
                cell.intervals["makespan_s"].low,
                cell.intervals["makespan_s"].high,
            )
            for cell in cells
            if cell.cores == cores
        }
        for cores in counts
    }
    return PageFigure(bars(groups, title="Makespan"), "Mean makespans, with 95 % intervals.")


def _by_stage(runs: Sequence[CompareRun]) -> PageFigure:
    text = "Mean makespan by stage, from the bottom up: before each stage the time that it waited."
    return PageFigure(bars(makespans_by_stage(runs), title="Waits and stages"), text)


def _frontier(cells: Sequence[Cell], counts: Sequence[int]) -> PageFigure:
    strategies = list(dict.fromkeys(cell.strategy for cell in cells))
    points = [
        Dot(
            f"{cell.strategy}{f', {cell.cores}' if len(counts) > 1 else ''}",
            cell.intervals["makespan_s"].mean,
            cell.intervals["core_hours"].mean,
            ends(cell.intervals["makespan_s"]),
            ends(cell.intervals["core_hours"]),
            strategies.index(cell.strategy),
            is_marked=cell.is_choice,
        )
        for cell in cells
    ]
    best = [cells.index(row.cell) for row in frontier_rows(cells)]
    drawn = dots(points, title="Time and cost", x_words="makespan", y_words="core-hours", in_time=True, joined=best)
    text = (
        "Makespan and core-hours, in the colours above. Nearer to the lower left corner is better in both; none is "
        "better in both than those on the line."
    )
    ringed = " With a ring: what asa-plan chose." if any(point.is_marked for point in points) else ""
    return PageFigure(drawn, f"{text}{ringed}")


def _prices(cells: Sequence[Cell]) -> list[Part]:
    """Return tables of what an hour sooner costs, and of given prices."""
    found = frontier_rows(cells)
    if len(found) < 2:
        return [Text(sentences)] if (sentences := tuple(about_prices(cells))) else []
    columns = [
        Column("None is better in both"), Column.of_time("Makespan"), Column.of_time("9 in 10 within"),
        Column("Core-hours", 1), Column("An hour sooner, core-hours", 2),
    ]  # fmt: skip
    rows: list[list[str | float | None]] = [
        [named(row.cell, cells), row.cell.point[0], row.p90_s, row.cell.point[1], row.hour_sooner] for row in found
    ]
    text = "An hour sooner: the core-hours paid for each hour saved, compared with the row above."
    return [PageTable(columns, rows, " ".join([text, *about_prices(cells)]))]


def _averages(cells: Sequence[Cell]) -> list[Part]:
    averages = normalised_averages(cells)
    if len(averages) < 2:
        return []
    columns = [Column("Strategy"), Column("Waiting, %", 0), Column("Makespan, %", 1), Column("Core-hours, %", 1)]
    rows: list[list[str | float | None]] = [
        [name, *(100 * of[key] for key in ("twt_s", "makespan_s", "core_hours"))] for name, of in averages.items()
    ]
    return [PageTable(columns, rows, "Above the best strategy, averaged over core counts.")]


def _table(cells: Sequence[Cell]) -> PageTable:
    columns = [Column("Strategy"), Column("Cores", 0), Column("Runs", 0)]
    for _, words, digits in _MEASURES:
        columns += [Column.of_time(words) if digits is None else Column(words, digits), Column("95 %")]
    rows, marks = [], {}
    for number, cell in enumerate(cells):
        row: list[str | float | None] = [cell.strategy, cell.cores, sum(run.metrics is not None for run in cell.runs)]
        for index, (key, _, digits) in enumerate(_MEASURES):
            found = cell.intervals[key]
            row += [found.mean, written(found, digits)]
            others = [c.intervals[key].mean for c in cells if c.cores == cell.cores]
            best = max(others) if key == "hit_ratio" else min(others)
            if len(others) > 1 and round(found.mean, digits or 0) == round(best, digits or 0):
                marks[number, 3 + 2 * index] = "best"
        rows.append(row)
    return PageTable(columns, rows, _CAPTION, marks)


def _timelines(runs: Sequence[CompareRun]) -> list[Part]:
    parts: list[Part] = []
    seen: set[tuple[int, str]] = set()
    for run in runs:
        if run.timeline is None or (run.cores, run.strategy) in seen:
            continue
        seen.add((run.cores, run.strategy))
        name = f"{run.strategy}, {run.cores} cores"
        parts.append(
            PageFigure(gantt(run.timeline, f"Jobs: {name}"), f"`{run.strategy}`, {run.cores} cores, seed {run.seed}.")
        )
    if parts:
        parts.insert(0, Text((GANTT,)))
    return parts
