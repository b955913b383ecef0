"""The pages of every strategy under every scheduler: its time, its cost, and its effect on other users."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from asa.core.intervals import Interval
from asa.report.intervals import ends, written
from asa.report.page import Column, Folded, Page, PageFigure, PageTable, Part, Section, Text
from asa.report.page.drawing import GANTT, Dot, dots, gantt, kiviat, strips
from asa.studies.schedulers.study import CellMeans, SchedulerResults, SchedulerStanding, Side
from asa.studies.standings import MARGIN, QUICK_BASE, THRIFTY, THRIFTY_BASE
from asa.units import format_duration

_MEASURED = (
    "Makespans are over Big Job's, core-hours over Per-Stage's: geometric means of ratios, paired by replication. "
    "Marked: the quickest, and what is not significantly slower. Waits are sums over all cells and replications, over "
    "Per-Stage's; without a figure where these are less than a minute a run. Dominated: in so many cells another "
    f"strategy took less time, by significantly more than {100 * MARGIN:.0f} %, and no more core-hours, or the reverse."
)
_METHODS = (
    (
        "A replication is a seed: a state of the simulated queue, or a time of a log, where all strategies begin "
        "alike. A cell is a world, a workflow and a size. Only cells in which every strategy ran are averaged, and "
        "over schedulers only those under which every strategy ran."
    ),
    (
        "There is one average of makespans and core-hours: the geometric mean of their ratios to Big Job's and "
        "Per-Stage's in the same replication, over replications, cells and schedulers alike. Waits may be 0, of which "
        "there is none: their sums over all cells and replications are compared. Seconds that others wait longer are "
        "plain means."
    ),
    (
        "Intervals are Student's, of 95 %, over replications, as cells share these: each world by itself. Replications "
        "share an estimator, of which the intervals take no account."
    ),
    (
        "A strategy is dominated in a cell in which another takes less time, by significantly more than "
        f"{100 * MARGIN:.0f} %, and no more core-hours, or the reverse. What is less is a trifle, "
        f"however certain. Among those that cost least are all within {100 * THRIFTY:.0f} % of the least."
    ),
    (
        "What is called significant, or clear, is so by Holm's rule: of all that is said so together, nothing is wrong "
        "with 95 %. Together are: the strategies under one scheduler, in who is quickest; one strategy's cells and "
        "rivals, in what is dominated; all schedulers and strategies, in whether others wait longer than without the "
        "client, and again in whether longer than with Per-Stage; and by themselves the strategies over all schedulers."
    ),
)
_OTHERS = (
    "The others are the jobs that waited when the client came, or came within a window after it; the same world is "
    "simulated with and without the client. Less than 0: they wait less, as the queue took another turn."
)
_BETTER = (
    "What reaches farther out is better. Makespan, core-hours, and the others' waits and slowdowns with the client: "
    "the least over this one's. Waits: how much shorter than the longest; left out where Per-Stage hardly waits."
)


def schedulers_page(results: SchedulerResults, *, made: Mapping[str, str] | None = None) -> Page:
    """Build the page of every strategy under every scheduler."""
    names = _schedulers(results)
    sentences = [_sentence(_of(results, name).standings) for name in names]
    sections = [
        Section("overview", "At a glance", list(_overview(results))),
        Section("numbers", "In numbers", [Text((*_over_all(results), *sentences))]),
        Section("others", "What it costs other users", _others(results.standings)),
        *(Section(f"under-{_key(name)}", f"Under {name}", list(_under(_of(results, name), most=1))) for name in names),
        Section("standings", "All figures", [_standings(results.standings), Text((_MEASURED,), is_small=True)]),
        Section("cells", "Every cell", [_places(results.places)]),
    ]
    if results.left_out:
        columns = [Column("World"), Column("Scheduler"), Column("Strategy"), Column("Why")]
        rows = [
            (left_out.world, left_out.scheduler, left_out.strategy, left_out.reason) for left_out in results.left_out
        ]
        sections.append(Section("left-out", "What was left out", [PageTable(columns, rows)]))
    sections.append(_methods())
    title = "Which strategy is best under which scheduler"
    return Page(title, list(_plainly(results)), sections, made or {})


def scheduler_pages(results: SchedulerResults, *, made: Mapping[str, str] | None = None) -> dict[str, Page]:
    """Build a page for each scheduler, with the timeline of jobs in each cell; see `schedulers_page`.

    Returns: the pages, by the scheduler's name as used in files and links: with hyphens for all but letters and digits.
    """
    pages = {}
    for name in _schedulers(results):
        mine = _of(results, name)
        drawn = list(_under(mine, most=len(mine.places)))
        figures = [part for part in drawn if not isinstance(part, Folded)]
        sections = [
            Section("figures", "Time, cost and others", [*figures, Text((_OTHERS,), is_small=True)]),
            Section("numbers", "In numbers", [Text((_sentence(mine.standings),))]),
            Section("standings", "All figures", [_standings(mine.standings), Text((_MEASURED,), is_small=True)]),
            Section("harm", "What it costs other users", [_harm(mine.standings)]),
            Section("cells", "Every cell", [_places(mine.places)]),
        ]
        if jobs := [part for part in drawn if isinstance(part, Folded)]:
            sections.append(Section("jobs", "Jobs, in a typical replication", [Text((GANTT,)), *jobs]))
        sections.append(_methods())
        pages[_key(name)] = Page(f"Strategies under {name}", list(_plainly(mine)), sections, made or {})
    return pages


def _methods() -> Section:
    return Section("methods", "Methods", [Text(_METHODS)])


def _schedulers(results: SchedulerResults) -> list[str]:
    return list(dict.fromkeys(standing.scheduler for standing in results.standings))


def _of(results: SchedulerResults, scheduler: str) -> SchedulerResults:
    """Return the results under one scheduler."""
    return replace(
        results,
        standings=tuple(standing for standing in results.standings if standing.scheduler == scheduler),
        places=tuple(place for place in results.places if place.scheduler == scheduler),
    )


def _key(name: str) -> str:
    """Return a scheduler's name for links and files."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)


# ---------------------------------------------------------------------- sentences


def _plainly(results: SchedulerResults) -> Iterator[str]:
    """Yield sentences on the strategy to take, its cost, its effect on other users, and the certainty of these."""
    by = _by_scheduler(results.standings)
    candidates = results.overall if len(by) > 1 else results.standings
    if not candidates:
        yield "No strategy can be recommended over all schedulers: under none did every strategy run; see each."
        return
    quick = min((candidate for candidate in candidates if candidate.is_as_quick), key=_makespan)
    near = [
        candidate.strategy for candidate in candidates if candidate.is_as_quick and candidate.strategy != quick.strategy
    ]
    gain = _compared_with_base(quick, candidates)
    if len(near) + 1 == len(candidates):
        yield f"In time no strategy differs significantly from the others; `{quick.strategy}` comes first, with {gain}."
    else:
        sure = f"not significantly slower: {', '.join(near)}" if near else "it is clearly ahead of all others"
        yield f"The fastest is `{quick.strategy}`, with {gain}; {sure}."
    yield from _costs(quick, candidates)
    yield _suffering(quick, candidates)
    yield _rests_on(results, candidates)


def _costs(quick: SchedulerStanding, candidates: Sequence[SchedulerStanding]) -> Iterator[str]:
    if quick.is_thrifty:
        yield f"`{quick.strategy}` is among those that cost least."
        return
    best = min((candidate for candidate in candidates if candidate.is_as_quick_of_thrifty), key=_makespan)
    price = _percent(quick.core_hours.mean, "more core-hours", "fewer core-hours", "as many core-hours", "Per-Stage")
    yield (
        f"`{quick.strategy}` costs {price}; to save core-hours take `{best.strategy}`, which comes out quickest of "
        f"those that cost least, with {_compared_with_base(best, candidates)}."
    )


def _suffering(quick: SchedulerStanding, candidates: Sequence[SchedulerStanding]) -> str:
    """Return a sentence on the wait that strategies add to other users: the quickest one, and the worst."""
    if not quick.longer:
        text = f"The others wait neither significantly longer nor less for `{quick.strategy}`"
    else:
        text = (
            f"Everybody else waits clearly {quick.longer} for `{quick.strategy}`, by "
            f"{format_duration(abs(_longer_wait_s(quick)))} of {format_duration(quick.others_wait_s)}"
        )
    worst = max(candidates, key=_longer_wait_s)
    if worst.longer != "longer" or worst.strategy == quick.strategy:
        return f"{text}."
    return f"{text}; most for `{worst.strategy}`, by {format_duration(_longer_wait_s(worst))}."


def _rests_on(results: SchedulerResults, candidates: Sequence[SchedulerStanding]) -> str:
    seeds, cells = results.campaign.seeds, candidates[0].cells
    ran = f"{seeds} replication{'' if seeds == 1 else 's'} in each of {cells} cell{'' if cells == 1 else 's'}"
    if seeds == 1:
        return f"This rests on {ran}, which proves nothing: take more seeds."
    return f"This rests on {ran}; what is called clear or significant is so with 95 %."


def _compared_with_base(standing: SchedulerStanding, candidates: Sequence[SchedulerStanding]) -> str:
    """Return the ratio of a strategy's makespan to Big Job's; for Big Job, to Per-Stage's."""
    base, name = (THRIFTY_BASE, "Per-Stage") if standing.strategy == QUICK_BASE else (QUICK_BASE, "Big Job")
    [other_base] = [other for other in candidates if other.strategy == base]
    return _percent(standing.makespan.mean / other_base.makespan.mean, "more time", "less time", "as much time", name)


def _percent(ratio: float, more: str, less: str, same: str, than: str) -> str:
    percent = round(100 * abs(ratio - 1))
    return f"{percent} % {more if ratio > 1 else less} than {than}" if percent else f"{same} as {than}"


def _over_all(results: SchedulerResults) -> Iterator[str]:
    """Yield sentences on all schedulers, if there are several."""
    by = _by_scheduler(results.standings)
    if len(by) < 2:
        return
    yield from _on_average(results, len(by))
    names = len({standing.strategy for standing in results.standings})
    alone = [
        mine[0].strategy
        for of in by.values()
        if len(mine := [standing for standing in of if standing.is_as_quick]) == 1
    ]
    quick = [standing.strategy for standing in results.standings if standing.is_as_quick]
    thrifty = [standing.strategy for standing in results.standings if standing.is_as_quick_of_thrifty]
    yield f"Quickest, or not significantly slower: {_counted(quick, len(by), names)}."
    yield f"Likewise of those that cost within {100 * THRIFTY:.0f} % of the least: {_counted(thrifty, len(by), names)}."
    yield f"Significantly the quickest: {_counted(alone, len(by), names) if alone else 'none, under any scheduler'}."
    if same := _same(results.places):
        yield f"The same in every cell: {'; '.join(' and '.join(names) for names in same)}."
    cases = len(results.standings)
    longer, shorter = (sum(standing.longer == side for standing in results.standings) for side in ("longer", "shorter"))
    also = f", and significantly less in {shorter}" if shorter else ""
    often = f"in {longer} of {cases} cases" if longer or shorter else f"in none of {cases} cases"
    yield f"The others wait significantly longer {often} of a scheduler and a strategy{also}."


def _on_average(results: SchedulerResults, schedulers: int) -> Iterator[str]:
    """Yield sentences on the schedulers under which every strategy ran."""
    if not (averages := results.overall):
        yield "There is no scheduler under which every strategy ran: there are no averages."
        return
    shared = len(results.shared)
    where = f"the {shared} schedulers" if shared == schedulers else (
        f"the {shared} of {schedulers} schedulers under which every strategy ran"
    )  # fmt: skip
    spans = ", ".join(f"{average.strategy} {_span(average)} and {average.core_hours.mean:.2f}" for average in averages)
    yield f"Over {where}, geometric means of makespan over Big Job's and core-hours over Per-Stage's: {spans}."
    yield f"Over {where} quickest: {_quickest(averages)}."
    best, _ = _first_of(averages, lambda average: average.is_as_quick_of_thrifty)
    for kind, among in (("workflow", _by_workflow(results.places)), ("size", _by_size(results.places))):
        if len(among) > 1 and best.strategy != QUICK_BASE:
            text = ", ".join(f"{what} {ratios[best.strategy]:.2f}" for what, ratios in among.items())
            yield f"Makespan of {best.strategy} over Big Job's, by {kind}: {text}."
    beaten = {average.strategy: average.dominated / average.cells for average in averages}
    text = ", ".join(f"{name} {100 * beaten[name]:.0f} %" for name in sorted(beaten, key=beaten.__getitem__))
    less = f"clearly less, by more than {100 * MARGIN:.0f} %,"
    yield f"Cells in which another takes {less} of one, time or core-hours, and no more of the other: {text}."
    harm = sorted(averages, key=_longer_wait_s)
    text = ", ".join(_seconds(average.strategy, average.longer_wait_s, average.longer) for average in harm)
    alone = format_duration(averages[0].others_wait_s)
    yield f"How much longer the others wait: {text}; without this workflow they wait {alone}."
    ahead = [average for average in averages if average.strategy != THRIFTY_BASE]
    text = ", ".join(
        _seconds(average.strategy, average.beyond_per_stage_s, average.longer_than_per_stage) for average in ahead
    )
    yield f"Longer than with Per-Stage, which submits nothing ahead, they wait: {text}."


def _seconds(strategy: str, interval: Interval, side: Side) -> str:
    details = ", ".join(words for words in (written(interval, None), f"clearly {side}" if side else "") if words)
    longer = f"{'+' if interval.mean >= 0 else ''}{format_duration(interval.mean)}"
    return f"{strategy} {longer}{f' ({details})' if details else ''}"


def _geometric(ratios: Iterable[float]) -> float:
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))


def _same(places: Sequence[CellMeans]) -> list[list[str]]:
    """Group strategies with equal makespans and core-hours in all cells."""
    figures: dict[str, dict[tuple[str, str, str, int], tuple[float, float]]] = {}
    for place in places:
        cell = place.world, place.scheduler, place.workflow, place.cores
        figures.setdefault(place.strategy, {})[cell] = place.makespan_s.mean, place.core_hours.mean
    groups: list[list[str]] = []
    for name, cells in figures.items():
        for group in groups:
            if figures[group[0]] == cells:
                group.append(name)
                break
        else:
            groups.append([name])
    return [group for group in groups if len(group) > 1]


def _by_workflow(places: Sequence[CellMeans]) -> dict[str, dict[str, float]]:
    return _over_big_job(places, lambda place: place.workflow)


def _by_size(places: Sequence[CellMeans]) -> dict[str, dict[str, float]]:
    return _over_big_job(places, lambda place: f"{place.cores} cores")


def _over_big_job(places: Sequence[CellMeans], what: Callable[[CellMeans], str]) -> dict[str, dict[str, float]]:
    """Return each strategy's makespan relative to Big Job's, over the cells in which every strategy ran."""
    names = {place.strategy for place in places}
    ran = Counter(_cell(place) for place in places)
    ratios: dict[str, dict[str, list[float]]] = {}
    for place in places:
        if ran[_cell(place)] == len(names):
            ratios.setdefault(what(place), {}).setdefault(place.strategy, []).append(place.over_big_job.mean)
    return {key: {name: _geometric(mine) for name, mine in of.items()} for key, of in ratios.items()}


def _cell(means: CellMeans) -> tuple[str, str, str, int]:
    return means.world, means.scheduler, means.workflow, means.cores


def _by_scheduler(standings: Iterable[SchedulerStanding]) -> dict[str, list[SchedulerStanding]]:
    by: dict[str, list[SchedulerStanding]] = {}
    for standing in standings:
        by.setdefault(standing.scheduler, []).append(standing)
    return by


def _counted(names: Sequence[str], of: int, among: int) -> str:
    """Return how often each name occurs, the most frequent first."""
    counts = sorted(dict.fromkeys(names), key=lambda name: -names.count(name))
    if len(names) == of * among:
        return f"each of the {among}, under all {of}"
    return ", ".join(f"{name} under {names.count(name)} of {of}" for name in counts)


def _span(standing: SchedulerStanding) -> str:
    bounds = written(standing.makespan, 2)
    return f"{standing.makespan.mean:.2f}{f' ({bounds})' if bounds else ''}"


def _first_of(
    standings: Sequence[SchedulerStanding], is_near: Callable[[SchedulerStanding], bool]
) -> tuple[SchedulerStanding, str]:
    """Return the quickest strategy, and a text that names it and the strategies that are not significantly slower."""
    first, *others = sorted(filter(is_near, standings), key=_makespan)
    same = [standing.strategy for standing in others if math.isclose(standing.makespan.mean, first.makespan.mean)]
    near = [standing.strategy for standing in others if standing.strategy not in same]
    text = ", ".join([first.strategy, *same])
    if near and len(others) + 1 == len(standings):
        return first, f"{text} (none of the others is significantly slower)"
    return first, f"{text} (not significantly quicker than {', '.join(near)})" if near else text


def _quickest(standings: Sequence[SchedulerStanding]) -> str:
    """Name the quickest strategy, and the quickest of the thrifty ones."""
    quick, words = _first_of(standings, lambda standing: standing.is_as_quick)
    ratios = [] if quick.strategy == QUICK_BASE else [f"{_span(quick)} of Big Job's makespan"]
    ratios += [] if quick.strategy == THRIFTY_BASE else [f"{quick.core_hours.mean:.2f} of Per-Stage's core-hours"]
    words += f", at {' and '.join(ratios)}"
    if not quick.is_thrifty:
        thrifty = [standing for standing in standings if standing.is_thrifty]
        best, names = _first_of(thrifty, lambda standing: standing.is_as_quick_of_thrifty)
        words += f"; of those that cost least {names}, at {_span(best)} of Big Job's makespan"
    return words


def _sentence(standings: Sequence[SchedulerStanding]) -> str:
    """Return a sentence on a scheduler: its quickest strategy, its quickest thrifty strategy, the most harmful one."""
    text = f"Under `{standings[0].scheduler}` quickest: {_quickest(standings)}"
    worst = max(standings, key=_longer_wait_s)
    if worst.longer == "longer":
        text += f"; {worst.strategy} makes the others wait {format_duration(worst.longer_wait_s.mean)} longer"
    return f"{text}."


# ---------------------------------------------------------------------- over all schedulers


_SIDES = {"longer": "bad", "shorter": "good"}


def _overview(results: SchedulerResults) -> Iterator[Part]:
    standings = results.standings
    quick = {(standing.scheduler, standing.strategy): "best" for standing in standings if standing.is_as_quick}
    thrifty = {(standing.scheduler, standing.strategy): "best" for standing in standings if standing.is_thrifty}
    longer = {
        (standing.scheduler, standing.strategy): _SIDES[standing.longer] for standing in standings if standing.longer
    }
    for caption, digits, value, marks in (
        ("Makespan, over Big Job's. Marked: the quickest, and what is not significantly slower.", 2, _makespan, quick),
        (f"Core-hours, over Per-Stage's. Marked: within {100 * THRIFTY:.0f} % of the least.", 2, _core_hours, thrifty),
        ("How much longer the others wait. Marked: significant.", None, _longer_wait_s, longer),
    ):
        rows = {
            name: {standing.strategy: value(standing) for standing in mine}
            for name, mine in _by_scheduler(standings).items()
        }
        yield _matrix("Scheduler", rows, caption, digits, marks)
    for heading, rows in (("Workflow", _by_workflow(results.places)), ("Size", _by_size(results.places))):
        if len(rows) > 1:
            text = f"Makespan, over Big Job's, by {heading.lower()}, over all schedulers under which all ran."
            yield _matrix(heading, rows, text, 2, {})


def _makespan(standing: SchedulerStanding) -> float:
    return standing.makespan.mean


def _core_hours(standing: SchedulerStanding) -> float:
    return standing.core_hours.mean


def _longer_wait_s(standing: SchedulerStanding) -> float:
    return standing.longer_wait_s.mean


def _matrix(
    heading: str,
    by_row: Mapping[str, Mapping[str, float]],
    caption: str,
    digits: int | None,
    marked: Mapping[tuple[str, str], str],
) -> PageTable:
    """Return a table with a column for each strategy, and marks by row and strategy; `digits` None for durations."""
    strategies = list(dict.fromkeys(name for known in by_row.values() for name in known))
    rows = [[what, *(known.get(name) for name in strategies)] for what, known in by_row.items()]
    marks = {
        (index, 1 + column): marked[what, name]
        for index, what in enumerate(by_row)
        for column, name in enumerate(strategies)
        if (what, name) in marked
    }
    columns = [Column.of_time(name) if digits is None else Column(name, digits) for name in strategies]
    return PageTable([Column(heading), *columns], rows, caption, marks)


def _others(standings: Sequence[SchedulerStanding]) -> list[Part]:
    rows: dict[str, dict[str, float]] = {}
    intervals: dict[tuple[str, str], tuple[float, float]] = {}
    for standing in standings:
        rows.setdefault(standing.strategy, {})[standing.scheduler] = standing.longer_wait_s.mean
        if bounds := ends(standing.longer_wait_s):
            intervals[standing.strategy, standing.scheduler] = bounds
    drawn = strips(
        rows,
        title="How much longer others wait",
        x_words="how much longer the others wait on average",
        goal=0.0,
        intervals=intervals,
        in_time=True,
    )
    text = "Mean wait of the others, above that without this workflow, under each scheduler; with 95 % intervals."
    return [Text((_OTHERS,)), PageFigure(drawn, text), _harm(standings)]


def _harm(standings: Sequence[SchedulerStanding]) -> PageTable:
    columns = [
        Column("Scheduler"), Column("Strategy"), Column.of_time("Wait without"), Column.of_time("Longer by"),
        Column("95 %"), Column.of_time("Beyond Per-Stage", "Longer than with Per-Stage, which submits nothing ahead"),
        Column("95 %"), Column("Slowdown without", 2), Column("More by", 3), Column("95 %"),
        Column("Hours waited more a core-hour", 2, "Of the others together, for each core-hour that the client got"),
    ]  # fmt: skip
    rows = [
        (
            standing.scheduler, standing.strategy, standing.others_wait_s,
            standing.longer_wait_s.mean, written(standing.longer_wait_s, None),
            standing.beyond_per_stage_s.mean, written(standing.beyond_per_stage_s, None),
            standing.others_slowdown, standing.more_slowdown.mean, written(standing.more_slowdown, 3),
            standing.waited_more_per_core_hour,
        )
        for standing in standings
    ]  # fmt: skip
    marks = {(index, 3): _SIDES[standing.longer] for index, standing in enumerate(standings) if standing.longer}
    marks |= {
        (index, 5): _SIDES[standing.longer_than_per_stage]
        for index, standing in enumerate(standings)
        if standing.longer_than_per_stage
    }
    return PageTable(columns, rows, "The others. Marked: significant.", marks)


def _standings(standings: Sequence[SchedulerStanding]) -> PageTable:
    columns = [
        Column("Scheduler"), Column("Strategy"), Column("Makespan, over Big Job's", 3), Column("95 %"),
        Column("Core-hours, over Per-Stage's", 3), Column("95 %"),
        Column("Waits between stages, over Per-Stage's", 2), Column("All waits, over Per-Stage's", 2),
        Column("Dominated", 0), Column("Cells", 0),
    ]  # fmt: skip
    rows = [
        (
            standing.scheduler, standing.strategy, standing.makespan.mean, written(standing.makespan, 2),
            standing.core_hours.mean, written(standing.core_hours, 2), standing.perceived_wait, standing.total_wait,
            standing.dominated, standing.cells,
        )
        for standing in standings
    ]  # fmt: skip
    marks = {(index, 2): "best" for index, standing in enumerate(standings) if standing.is_as_quick}
    marks |= {(index, 4): "best" for index, standing in enumerate(standings) if standing.is_thrifty}
    return PageTable(columns, rows, "Over all workflows and sizes.", marks)


def _places(places: Sequence[CellMeans]) -> PageTable:
    columns = [
        Column("World"), Column("Scheduler"), Column("Workflow"), Column("Cores", 0), Column("Strategy"),
        Column.of_time("Makespan"), Column("Core-hours", 1), Column.of_time("Perceived wait"),
        Column.of_time("All waits"),
        Column.of_time("Others longer"),
    ]  # fmt: skip
    rows = [
        (
            place.world, place.scheduler, place.workflow, place.cores, place.strategy,
            place.makespan_s.mean, place.core_hours.mean,
            place.perceived_wait_s.mean, place.total_wait_s.mean, place.longer_wait_s.mean,
        )
        for place in places
    ]  # fmt: skip
    return PageTable(columns, rows, "Means over seeds.")


# ---------------------------------------------------------------------- under one scheduler


def _under(results: SchedulerResults, *, most: int) -> Iterator[Part]:
    """Yield figures of time against cost, of all axes together, and of the jobs' timelines in up to `most` cells."""
    standings = results.standings
    name = standings[0].scheduler
    points = [
        Dot(
            standing.strategy,
            standing.makespan.mean,
            standing.core_hours.mean,
            ends(standing.makespan),
            ends(standing.core_hours),
        )
        for standing in standings
    ]
    yield PageFigure(
        dots(points, title=f"Under {name}", x_words="makespan over Big Job's", y_words="core-hours over Per-Stage's"),
        "Time and cost, with 95 % intervals. Nearer to the lower left corner is better in both.",
    )
    axes = _axes(standings)
    shares = {
        standing.strategy: [column[place] for column in axes.values()] for place, standing in enumerate(standings)
    }
    yield PageFigure(kiviat(shares, list(axes), title=f"All at once, under {name}"), _BETTER)
    cells: dict[tuple[str, str, int], list[CellMeans]] = {}
    for place in results.places:
        cells.setdefault((place.world, place.workflow, place.cores), []).append(place)
    for (world, workflow, cores), places in list(cells.items())[:most]:
        yield Folded(f"Jobs: {workflow} on {cores} cores of {world}", [_jobs(place) for place in places])


def _jobs(place: CellMeans) -> PageFigure:
    drawn = gantt(place.timeline, f"{place.workflow}, {place.cores} cores, {place.strategy} under {place.scheduler}")
    return PageFigure(drawn, f"`{place.strategy}`, replication {place.seed}.")


def _axes(standings: Sequence[SchedulerStanding]) -> dict[str, list[float]]:
    """Return by axis each strategy's position on it; see `_BETTER`."""
    axes = {
        "makespan": _over_min([standing.makespan.mean for standing in standings]),
        "core-hours": _over_min([standing.core_hours.mean for standing in standings]),
        "waits between stages": _shorter([standing.perceived_wait for standing in standings]),
        "all waits": _shorter([standing.total_wait for standing in standings]),
        "others' waits": _over_min([standing.others_wait_s + standing.longer_wait_s.mean for standing in standings]),
        "others' slowdown": _over_min(
            [standing.others_slowdown + standing.more_slowdown.mean for standing in standings]
        ),
    }
    return {name: shares for name, shares in axes.items() if not any(map(math.isnan, shares))}


def _over_min(values: Sequence[float]) -> list[float]:
    return [min(values) / value if value > 0 else 1.0 for value in values]


def _shorter(values: Sequence[float]) -> list[float]:
    longest = max(values)
    return [1.0 if longest == 0 else 1 - value / longest for value in values]
