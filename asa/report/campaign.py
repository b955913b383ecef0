"""The page of a campaign: the paper's evaluation beside the paper's, and every way of asking under every scheduler."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from asa.campaign.paper import Accuracy, Breakdown, PaperResults, Usage
from asa.campaign.schedulers import SchedulerResults, Standing
from asa.campaign.verdicts import VERDICTS, Compared, Verdict
from asa.experiment import Interval
from asa.report.page import Column, Figure, Page, Part, Section, Table, Text
from asa.report.page.drawing import Bar, Dot, bars, curves, dots

__all__ = ["paper_page", "schedulers_page"]

_TIME, _COST = "makespan over Big Job's", "core-hours over Per-Stage's"
_AS_CHEAP, _AS_QUICK = 0.02, 0.005
_MARKS: Mapping[Verdict, str] = {"as the paper": "good", "differs": "bad"}
_BESIDE = (
    Column("Ours", 1), Column("95 %"), Column("Paper's", 1), Column("Off, %", 0, "Ours over the paper's, less 1"),
    Column("Verdict"),
)  # fmt: skip
_USED = (("twt_s", "waiting, s"), ("makespan_s", "makespan, s"), ("core_hours", "core-hours"))
_MET = (
    ("real_h", "real wait, h"),
    ("predicted_h", "predicted wait, h"),
    ("perceived_h", "perceived wait, h"),
    ("hit_percent", "hits, %"),
    ("miss_percent", "misses, %"),
    ("overhead_h", "overhead, core-h"),
)


# ---------------------------------------------------------------------- the paper's evaluation


def paper_page(results: PaperResults, *, made: Mapping[str, str] | None = None) -> Page:
    """Put together the page of the paper's evaluation, every figure beside the paper's.

    Parameters
    ----------
    results
        What came out.
    made
        How it was made, for the foot of the page.
    """
    sections = [
        Section("claims", "What the text says", [_claims(results), _rule(results)]),
        Section("table-1", "Table 1: waiting, makespan, core-hours", [*_makespans(results), _usages(results)]),
        Section("averages", "Table 1's averages: above the best strategy of each size", [_averages(results)]),
        Section("table-2", "Table 2: waits, predicted and real", [_accuracies(results)]),
        Section("figure-5", "Figure 5: how predictions follow a wait that changes", _convergences(results)),
        Section("figures-6-9", "Figures 6 to 9: where makespans and core-hours go", list(_breakdowns(results))),
    ]
    return Page("The paper's evaluation, done anew", list(_found(results)), sections, made or {})


def _found(results: PaperResults) -> Iterator[str]:
    for table, counts in results.verdicts().items():
        total = sum(counts.values())
        words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
        yield f"{table[:1].upper()}{table[1:]}: of {total} figures {words}."
    for claim in results.claims:
        paper = "" if math.isnan(claim.published) else f"; the paper has {claim.published:.0f} %"
        yield f"{claim.words[:1].upper()}{claim.words[1:]}{_mode(claim.mode)}: {claim.ours.mean:.1f} %{paper}."


def _mode(mode: str) -> str:
    return f" ({mode})" if mode else ""


def _rule(results: PaperResults) -> Text:
    return Text((results.rule,), is_small=True)


def _claims(results: PaperResults) -> Table:
    columns = [Column("Where"), Column("What"), Column("Runs"), Column("Ours, %", 1), Column("95 %"),
               Column("Paper's, %", 0), Column("Verdict")]  # fmt: skip
    rows = [
        (one.where, one.words, one.mode, one.ours.mean, _interval(one.ours, 1), one.published, one.verdict)
        for one in results.claims
    ]
    return Table(columns, rows, "Claims of the text.", _verdicts(rows, 6))


def _usages(results: PaperResults) -> Table:
    columns = [Column("Workflow"), Column("Centre"), Column("Cores", 0), Column("Strategy"), Column("Runs"),
               Column("What"), *_BESIDE]  # fmt: skip
    rows = [
        (one.workflow, one.system, one.cores, one.strategy, one.mode, words, *_beside(getattr(one, name), 1))
        for one in results.usages
        for name, words in _USED
    ]
    return Table(columns, rows, "Means over seeds with their 95 % intervals.", _verdicts(rows, 10))


def _averages(results: PaperResults) -> Table:
    columns = [Column("Workflow"), Column("Strategy"), Column("Runs"), Column("What"), *_BESIDE]
    rows = [
        (one.workflow, one.strategy, one.mode, words.split(",")[0], *_beside(getattr(one, name), 1))
        for one in results.normalised
        for name, words in _USED
    ]
    return Table(columns, rows, "Percent above the best.", _verdicts(rows, 8))


def _accuracies(results: PaperResults) -> Table:
    columns = [Column("Workflow"), Column("Centre"), Column("Cores", 0), Column("What"), *_BESIDE]
    rows = [
        (one.workflow, one.system, one.cores, words, *_beside(_of(one, name), 2))
        for one in results.accuracies
        for name, words in _MET
    ]
    return Table(columns, rows, "60 submissions of each, one a minute, at every moment.", _verdicts(rows, 8))


def _of(row: Accuracy, name: str) -> Compared:
    found: Compared = getattr(row, name)
    return found


def _makespans(results: PaperResults) -> Iterator[Part]:
    """Draw makespans beside the paper's, which are marked; a figure a centre, as they differ by an order."""
    mode = results.campaign.modes[0]
    for workflow, system in _pairs(results.usages):
        mine = [u for u in results.usages if (u.mode, u.workflow, u.system) == (mode, workflow, system)]
        groups: dict[str, dict[str, Bar]] = {}
        published: dict[tuple[str, str], float] = {}
        for one in mine:
            group = f"{one.cores} cores"
            ours = one.makespan_s.ours
            groups.setdefault(group, {})[one.strategy] = Bar((("", ours.mean),), ours.low, ours.high)
            published[group, one.strategy] = one.makespan_s.published
        drawn = bars(groups, title=f"Makespans of {workflow} on {system}", unit="seconds", published=published)
        yield Figure(drawn, f"Makespans of {workflow} on {system}, {mode}; dashed: the paper's.")


def _pairs(usages: Iterable[Usage]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((one.workflow, one.system) for one in usages))


def _convergences(results: PaperResults) -> list[Part]:
    parts: list[Part] = []
    for one in results.convergences:
        true = list(enumerate(one.true_s))
        lines = {"what came true": _thin(true), one.policy: _thin(list(enumerate(one.predicted_s)))}
        drawn = curves(lines, title=f"Policy {one.policy}", x_words="iterations", y_words="wait, s", steps=True)
        hits = sum(one.hits_percent) / max(len(one.hits_percent), 1)
        found = "never" if math.isnan(one.found_after) else f"after {one.found_after:.0f} iterations"
        words = f"Policy `{one.policy}`: {hits:.0f} % of its predictions are the closest; it finds a new wait {found}."
        parts.append(Figure(drawn, words))
    return parts


def _thin(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """Leave out points of a stepped line at which nothing changes."""
    kept = [
        point for before, point in zip([None, *points], points, strict=False) if before is None or before[1] != point[1]
    ]
    return [(float(x), y) for x, y in [*kept, points[-1]]]


def _breakdowns(results: PaperResults) -> Iterator[Part]:
    mode = results.campaign.modes[0]
    shown = [one for one in results.breakdowns if one.mode == mode]
    for workflow, system in dict.fromkeys((one.workflow, one.system) for one in shown):
        groups: dict[str, dict[str, Bar]] = {}
        for one in shown:
            if (one.workflow, one.system) == (workflow, system):
                groups.setdefault(f"{one.cores} cores", {})[one.strategy] = _stacked(one)
        name = next(one.figure for one in shown if (one.workflow, one.system) == (workflow, system))
        drawn = bars(groups, title=f"Figure {name}: {workflow} on {system}", unit="seconds")
        yield Figure(drawn, f"Figure {name}: {workflow} on {system}, {mode}; each stage on top of its wait.")
    costs: dict[str, dict[str, Bar]] = {}
    for one in shown:
        cost = one.core_hours
        costs.setdefault(f"{one.workflow} {one.cores}", {})[one.strategy] = Bar((("", cost.mean),), cost.low, cost.high)
    for workflow in dict.fromkeys(one.workflow for one in shown):
        mine = {name: group for name, group in costs.items() if name.startswith(workflow)}
        yield Figure(bars(mine, title=f"Figure 9: core-hours of {workflow}", unit="core-hours"), "Figure 9.")


def _stacked(one: Breakdown) -> Bar:
    parts = [part for stage in one.stages for part in (("waiting", stage.wait_s), (stage.stage, stage.run_s))]
    return Bar(tuple(parts))


def _beside(found: Compared, digits: int) -> tuple[float, str, float, float, str]:
    off = 100 * found.deviation
    return found.ours.mean, _interval(found.ours, digits), found.published, off, found.verdict


def _interval(found: Interval, digits: int) -> str:
    return f"{found.low:,.{digits}f} to {found.high:,.{digits}f}" if found.high > found.low else ""


def _verdicts(rows: Sequence[Sequence[object]], column: int) -> dict[tuple[int, int], str]:
    """Say how the verdicts in a column are shown."""
    marks = {str(verdict): mark for verdict, mark in _MARKS.items()}
    return {(place, column): marks[str(row[column])] for place, row in enumerate(rows) if str(row[column]) in marks}


# ---------------------------------------------------------------------- schedulers


def schedulers_page(results: SchedulerResults, *, made: Mapping[str, str] | None = None) -> Page:
    """Put together the page of every way of asking under every scheduler.

    Parameters
    ----------
    results
        What came out.
    made
        How it was made, for the foot of the page.
    """
    schedulers = list(dict.fromkeys(one.scheduler for one in results.standings))
    sections = [
        Section(
            "standings",
            "Time and cost under each scheduler",
            [_standings(results.standings), Text((_MEASURED,), is_small=True)],
        ),
        Section("others", "What that does to everybody else", _others(results.standings)),
        *(Section(_key(name), f"Under {name}", [_under(results.standings, name)]) for name in schedulers),
        Section("cells", "Every cell", [_places(results)]),
    ]
    if results.left_out:
        columns = [Column("World"), Column("Scheduler"), Column("Strategy"), Column("Why")]
        rows = [(one.world, one.scheduler, one.strategy, one.reason) for one in results.left_out]
        sections.append(Section("left-out", "What was left out", [Table(columns, rows)]))
    return Page("Which way of asking pays under which scheduler", list(_said(results)), sections, made or {})


_MEASURED = (
    "Makespans are over Big Job's, core-hours and waits over Per-Stage's: geometric means over the same moments. "
    "Dominated: in so many cells another strategy took less time and no more core-hours, or the reverse."
)


def _key(name: str) -> str:
    return "under-" + "".join(letter if letter.isalnum() else "-" for letter in name)


def _said(results: SchedulerResults) -> Iterator[str]:
    """Say who is quickest under each scheduler, and who of those that cost little."""
    for scheduler in dict.fromkeys(one.scheduler for one in results.standings):
        mine = [one for one in results.standings if one.scheduler == scheduler]
        quick = min(mine, key=lambda one: one.makespan.mean)
        least = min(one.core_hours.mean for one in mine)
        frugal = [one for one in mine if one.core_hours.mean <= least + _AS_CHEAP]
        best = min(one.makespan.mean for one in frugal)
        names = ", ".join(one.strategy for one in frugal if one.makespan.mean <= best + _AS_QUICK)
        cost = f"{quick.core_hours.mean:.2f} of Per-Stage's core-hours"
        words = f"Under `{scheduler}` {quick.strategy} is quickest, at {cost}"
        if quick not in frugal:
            words += f"; of those that cost least {names}, at {best:.2f} of Big Job's makespan"
        worst = max(mine, key=lambda one: one.longer_wait_s.mean)
        if worst.longer_wait_s.low > 0:
            words += f"; {worst.strategy} makes the others wait {worst.longer_wait_s.mean:,.0f} s longer"
        yield f"{words}."


def _standings(standings: Sequence[Standing]) -> Table:
    columns = [
        Column("Scheduler"), Column("Strategy"), Column("Makespan", 3), Column("95 %"), Column("Core-hours", 3),
        Column("95 %"), Column("Perceived wait", 2), Column("All waits", 2), Column("Dominated", 0), Column("Cells", 0),
    ]  # fmt: skip
    rows = [
        (
            one.scheduler, one.strategy, one.makespan.mean, _interval(one.makespan, 2), one.core_hours.mean,
            _interval(one.core_hours, 2), one.perceived_wait, one.total_wait, one.dominated, one.cells,
        )
        for one in standings
    ]  # fmt: skip
    marks = {}
    for name in dict.fromkeys(one.scheduler for one in standings):
        mine = [place for place, one in enumerate(standings) if one.scheduler == name]
        for column, of in ((2, "makespan"), (4, "core_hours")):
            best = min(mine, key=lambda place, of=of: getattr(standings[place], of).mean)  # type: ignore[misc]
            marks[best, column] = "best"
    return Table(columns, rows, "Over all workflows and sizes.", marks)


def _others(standings: Sequence[Standing]) -> list[Part]:
    columns = [
        Column("Scheduler"), Column("Strategy"), Column("Wait without, s", 0), Column("Longer by, s", 1),
        Column("95 %"), Column("Slowdown without", 2), Column("More by", 3), Column("95 %"),
        Column("Hours waited more a core-hour", 2, "Of the others together, for each core-hour that the client got"),
    ]  # fmt: skip
    rows = [
        (
            one.scheduler, one.strategy, one.others_wait_s, one.longer_wait_s.mean, _interval(one.longer_wait_s, 1),
            one.others_slowdown, one.more_slowdown.mean, _interval(one.more_slowdown, 3), one.waited_more_per_core_hour,
        )
        for one in standings
    ]  # fmt: skip
    groups: dict[str, dict[str, Bar]] = {}
    for one in standings:
        value = max(one.longer_wait_s.mean, 0.0)
        groups.setdefault(one.scheduler, {})[one.strategy] = Bar((("", value),))
    words = (
        "The others are the jobs that waited when the client came, or came within a window after it; the same world "
        "is simulated with and without the client."
    )
    drawn = bars(groups, title="How much longer others wait", unit="seconds")
    return [
        Text((words,)),
        Figure(drawn, "Mean wait of the others, above that without the client."),
        Table(columns, rows),
    ]


def _under(standings: Sequence[Standing], scheduler: str) -> Figure:
    points = [
        Dot(one.strategy, one.makespan.mean, one.core_hours.mean, _ends(one.makespan), _ends(one.core_hours))
        for one in standings
        if one.scheduler == scheduler
    ]
    drawn = dots(
        points, title=f"Under {scheduler}", x_words="makespan over Big Job's", y_words="core-hours over Per-Stage's"
    )
    return Figure(drawn)


def _ends(found: Interval) -> tuple[float, float] | None:
    return None if math.isnan(found.low) else (found.low, found.high)


def _places(results: SchedulerResults) -> Table:
    columns = [
        Column("World"), Column("Scheduler"), Column("Workflow"), Column("Cores", 0), Column("Strategy"),
        Column("Makespan, s", 0), Column("Core-hours", 1), Column("Perceived wait, s", 0), Column("All waits, s", 0),
        Column("Others longer, s", 1),
    ]  # fmt: skip
    rows = [
        (
            one.world, one.scheduler, one.workflow, one.cores, one.strategy, one.makespan_s.mean, one.core_hours.mean,
            one.perceived_wait_s.mean, one.total_wait_s.mean, one.longer_wait_s.mean,
        )
        for one in results.places
    ]  # fmt: skip
    return Table(columns, rows, "Means over seeds.")
