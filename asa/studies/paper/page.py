"""The pages of the paper's evaluation: every figure with the paper's, and what jobs did in typical replications."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from asa.core.intervals import Interval
from asa.report.intervals import plain, written
from asa.report.page import Column, Folded, Page, PageFigure, PageTable, Part, Section, Text
from asa.report.page.drawing import GANTT, Bar, bars, gantt
from asa.studies.accuracy.convergence_figures import convergence_figures
from asa.studies.paper.kept import BY_CONSTRUCTION, Accuracy, Breakdown, Claim, PaperResults, Tally, Usage
from asa.studies.paper.published import SIZES, WORKFLOWS
from asa.studies.paper.study import Mode
from asa.studies.paper.verdicts import VERDICTS, ComparedFigure, Verdict

_MARKS: Mapping[Verdict, str] = {"as the paper": "good", "differs": "bad"}
_FOUND: Mapping[Verdict, str] = {
    "as the paper": "agree with the paper",
    "same order": "have the paper's order",
    "differs": "differ",
}
_SPELLED = {"blast": "BLAST"}
_INTERVAL = Column("95 %", None, "Student's interval of the mean")
_OFF = (Column("Off, %", 0, "Ours over the paper's, less 1"), Column("Verdict"))
_WITH_PAPER = (Column("Ours", 1), _INTERVAL, Column("Paper's", 1), *_OFF)
_TIME_WITH_PAPER = (Column.of_time("Ours"), _INTERVAL, Column.of_time("Paper's"), *_OFF)
_TIMES = (("twt_s", "waiting"), ("makespan_s", "makespan"))
_USED = (*_TIMES, ("core_hours", "core-hours"))
_WAITS = (("real_h", "real wait"), ("predicted_h", "predicted wait"), ("perceived_h", "perceived wait"))
_SHARES = (("hit_percent", "hits, %"), ("miss_percent", "misses, %"), ("overhead_h", "overhead, core-h"))
_METHODS = (
    (
        "Sequential: each workflow runs by itself, in a copy of its own of the queue. Concurrent: the three workflows "
        "of a size are submitted to one queue, one per minute, and run side by side."
    ),
    (
        "Perceived wait: the time from the end of the stages that it depends on to the start of a stage; for the "
        "first stage, "
        "after the workflow was submitted. Waiting (the paper's TWT) is the sum of a run's, makespan is the time "
        "from the submission of the workflow to its end."
    ),
    (
        "In Table 2 a job is taken to be needed its predicted wait after its submission. Perceived wait: what the "
        "real wait exceeds the prediction by, if it does. Miss: an alternative nearer to the real wait lies below "
        "the prediction; hit: all else, so that the two add up to 100 % and only hits are counted among the "
        "verdicts. Overhead: what an allocation that came early costs until it is needed, in core-hours a "
        "submission. The paper does not define these as sharply."
    ),
    (
        "The run times of the workflows are fitted to Table 1's core-hours, so that core-hours agree by "
        "construction and prove nothing: they are counted apart. The real waits of Table 2 are in the paper many times "
        "those of Table 1. If the simulated centres are calibrated to Table 1's, a seed's submissions for Table 2 "
        "begin at that time of the twelve days after its start, in steps of four hours, at which the job's waits in "
        "the hour are nearest to the paper's mean; if they are calibrated to Table 2's, at its start. Either way real "
        "waits are not counted among the verdicts."
    ),
    (
        "A replication is a seed: a state of the simulated queue in which all strategies begin alike. Replications are "
        "not independent runs: those of a strategy on a centre share one estimator, which knows from the earlier ones, "
        "and from other workflows and sizes, what it learned there. The 95 % intervals, Student's over the "
        "replications, take no account of that, and are rather too narrow. Verdicts take each pair of strategies by "
        "itself, at 95 %: of pairs that are alike one in twenty may look apart, for which no count is corrected."
    ),
    (
        "ASA Naive is run as ASA is, with all workflows and sizes of its centre, sequential and concurrent, so "
        "that its estimator knows as much; only Montage on 112 cores, which the paper has, is shown. The paper does "
        "not say how it was handed over."
    ),
    (
        "If all were alike: what the same rule gives to a world in which every strategy of a row, or "
        "every size of a column, has the same figure, and every claim of the text comes to 0. What it calls as "
        "the paper there, the paper itself has within 5 % of each other."
    ),
)


def paper_page(results: PaperResults, *, made: Mapping[str, str] | None = None) -> Page:
    """Build the page of the paper's evaluation, every figure compared with the paper's."""
    first = results.campaign.modes[:1]
    largest = [max(sizes) for sizes in SIZES.values()]
    rule = Text((results.rule,), is_small=True)
    sections = [
        _numbers(results),
        Section("claims", "Claims in the text", [_claims(results)]),
        Section("verdicts", "Agreement with the paper", [_tallies(results), rule]),
        *_tables(results, first),
        Section("figure-5", "Figure 5: how predictions follow a wait that changes",
                convergence_figures(results.convergences)),
        *_figures(results, first, largest),
        _methods(),
    ]  # fmt: skip
    return Page("The paper's evaluation, repeated", list(_plainly(results)), sections, made or {})


def workflow_pages(results: PaperResults, *, made: Mapping[str, str] | None = None) -> dict[str, Page]:
    """Build a page for each workflow, with the jobs at every size; see `paper_page`."""
    modes = results.campaign.modes
    pages = {}
    for workflow in WORKFLOWS:
        mine = replace(
            results,
            usages=tuple(usage for usage in results.usages if usage.workflow == workflow),
            normalised=tuple(row for row in results.normalised if row.workflow == workflow),
            gains=tuple(row for row in results.gains if row.workflow == workflow),
            accuracies=tuple(accuracy for accuracy in results.accuracies if accuracy.workflow == workflow),
            breakdowns=tuple(breakdown for breakdown in results.breakdowns if breakdown.workflow == workflow),
            claims=(),
        )
        sections = [*_tables(mine, modes), *_figures(mine, modes, [size for of in SIZES.values() for size in of]),
                    _methods()]  # fmt: skip
        title = f"{_spelled(workflow)} in the paper's evaluation"
        pages[workflow] = Page(title, list(_plainly(mine)), [_numbers(mine), *sections], made or {})
    return pages


def _tables(results: PaperResults, modes: Sequence[Mode]) -> list[Section]:
    makespans = [figure for mode in modes for figure in _makespans(results, mode)]
    return [
        Section("table-1", "Table 1: waiting, makespan, core-hours", [*makespans, *_usages(results)]),
        Section("gains", "ASA's gain over Per-Stage", [_gains(results)]),
        Section("averages", "Table 1's averages: above the best strategy of each size", [_averages(results)]),
        Section("table-2", "Table 2: waits, predicted and real", list(_accuracies(results))),
    ]


def _figures(results: PaperResults, modes: Sequence[Mode], sizes: Sequence[int]) -> list[Section]:
    drawn = [figure for mode in modes for figure in _breakdowns(results, mode)]
    jobs = [folded for mode in modes for folded in _jobs(results, mode, sizes)]
    sections = [Section("figures-6-9", "Figures 6 to 9: where makespans and core-hours go", drawn)]
    if jobs:
        sections.append(Section("jobs", "Jobs, in a typical replication", [Text((GANTT,)), *jobs]))
    return sections


def _jobs(results: PaperResults, mode: Mode, sizes: Sequence[int]) -> Iterator[Folded]:
    of: dict[str, list[PageFigure]] = {}
    for breakdown in results.breakdowns:
        if breakdown.mode == mode and breakdown.cores in sizes:
            what = f"`{breakdown.strategy}`, replication {breakdown.seed}"
            drawn = gantt(breakdown.timeline, f"{breakdown.workflow}, {breakdown.cores} cores, {breakdown.strategy}")
            title = f"{_spelled(breakdown.workflow)} on {breakdown.cores} cores of {breakdown.system}, {mode}"
            of.setdefault(title, []).append(PageFigure(drawn, what))
    return (Folded(title, figures) for title, figures in of.items())


def _spelled(workflow: str) -> str:
    return _SPELLED.get(workflow, workflow.capitalize())


def _plainly(results: PaperResults) -> Iterator[str]:
    """Yield sentences on the quickest strategy, its cost, the agreement with the paper, and the certainty of these."""
    for mode in results.campaign.modes:
        first, *others = _above_best(results, mode, "makespan_s")
        yield (
            f"In {mode} runs `{first[0]}` is the fastest: on average {plain(first[1], 0):.0f} % above the best of "
            f"each size, {_behind(others)}."
        )
    first, *others = _above_best(results, results.campaign.modes[0], "core_hours")
    yield (
        f"`{first[0]}` costs least: its core-hours are {plain(first[1], 0):.0f} % above the least of each size, "
        f"{_behind(others)}. The paper does not look at the waits of other users: see `asa campaign schedulers`."
    )
    counted = [tally for tally in results.tallies() if tally.table != BY_CONSTRUCTION]
    total = sum(sum(table.verdicts.values()) for table in counted)
    same = sum(table.verdicts[VERDICTS[0]] for table in counted)
    alike = sum(table.alike[VERDICTS[0]] for table in counted)
    yield (
        f"Of {total} figures, {same} agree with the paper: {'more' if same > alike else 'no more'} than the "
        f"{alike} that would agree if all strategies and sizes were equal."
    )
    seeds = results.campaign.seeds
    if seeds == 1:
        yield "There is only one replication, which proves nothing: use more seeds."
    else:
        yield f"There are {seeds} replications, which share an estimator, so intervals are somewhat too narrow."


def _above_best(results: PaperResults, mode: Mode, metric: str) -> list[tuple[str, float]]:
    """Return for each strategy by how many percent it exceeds the best of each size, the best strategy first."""
    percents: dict[str, list[float]] = {}
    for row in results.normalised:
        if row.mode == mode:
            percents.setdefault(row.strategy, []).append(getattr(row, metric).ours.mean)
    return sorted(((name, sum(of) / len(of)) for name, of in percents.items()), key=lambda pair: pair[1])


def _behind(others: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {plain(above, 0):.0f} %" for name, above in others)


def _numbers(results: PaperResults) -> Section:
    return Section("numbers", "In numbers", [Text(tuple(_found(results)))])


def _found(results: PaperResults) -> Iterator[str]:
    for tally in results.tallies():
        yield _counted(tally)
    for claim in results.claims:
        ours = f"{plain(claim.ours.mean, 1):.1f} {claim.unit}"
        mode = f" ({claim.mode})" if claim.mode else ""
        yield f"{_title(claim.words)}{mode}: {ours}; in the paper: {_published(claim)}."


def _counted(tally: Tally) -> str:
    total = sum(tally.verdicts.values())
    if tally.table == BY_CONSTRUCTION:
        return (
            "Core-hours are counted apart, since the workflows are fitted to them: "
            f"{tally.verdicts[VERDICTS[0]]} of {total} figures agree with the paper."
        )
    text = ", ".join(f"{tally.verdicts[verdict]} {phrase}" for verdict, phrase in _FOUND.items())
    alike = ", ".join(str(tally.alike[verdict]) for verdict in _FOUND)
    return (
        f"{_title(tally.table)}: of {total} figures {text}. (If all strategies were equal, these counts would be "
        f"{alike}.)"
    )


def _published(claim: Claim) -> str:
    return "more than 0" if math.isnan(claim.published) else f"{claim.published:.0f} {claim.unit}"


def _methods() -> Section:
    return Section("methods", "Methods", [Text(_METHODS)])


def _tallies(results: PaperResults) -> PageTable:
    columns = [Column("Table"), *(Column(_title(verdict), 0) for verdict in VERDICTS),
               *(Column(f"{_title(verdict)}, if all were equal", 0) for verdict in VERDICTS)]  # fmt: skip
    rows = [
        (tally.table, *(tally.verdicts[verdict] for verdict in VERDICTS),
         *(math.nan if tally.table == BY_CONSTRUCTION else tally.alike[verdict] for verdict in VERDICTS))
        for tally in results.tallies()
    ]  # fmt: skip
    return PageTable(columns, rows, "Verdicts, and the counts of the same rule if there were no differences.")


def _title(text: str) -> str:
    return text[:1].upper() + text[1:]


def _claims(results: PaperResults) -> PageTable:
    columns = [Column("Where"), Column("What"), Column("Runs"), Column("Unit"), Column("Ours", 1), Column("95 %"),
               Column("The paper's"), Column("Verdict")]  # fmt: skip
    rows = [
        (claim.where, claim.words, claim.mode, claim.unit, claim.ours.mean, written(claim.ours, 1), _published(claim),
         claim.verdict)
        for claim in results.claims
    ]  # fmt: skip
    return PageTable(columns, rows, "Claims of the text.", _verdicts(rows, 7))


def _usages(results: PaperResults) -> Iterator[PageTable]:
    columns = [Column("Workflow"), Column("Centre"), Column("Cores", 0), Column("Strategy"), Column("Runs")]

    def shown(usage: Usage) -> tuple[str, str, int, str, str]:
        return usage.workflow, usage.system, usage.cores, usage.strategy, usage.mode

    rows = [
        (*shown(usage), words, *_with_paper(getattr(usage, name), None))
        for usage in results.usages
        for name, words in _TIMES
    ]
    words = "Waiting and makespan: means over replications with their 95 % intervals."
    yield PageTable([*columns, Column("What"), *_TIME_WITH_PAPER], rows, words, _verdicts(rows, 10))
    hours = [(*shown(usage), *_with_paper(usage.core_hours, 1)) for usage in results.usages]
    words = "Core-hours: means over replications with their 95 % intervals."
    yield PageTable([*columns, *_WITH_PAPER], hours, words, _verdicts(hours, 9))


def _gains(results: PaperResults) -> PageTable:
    columns = [Column("Workflow"), Column("Centre"), Column("Cores", 0), Column("Runs"), *_WITH_PAPER]
    rows = [(row.workflow, row.system, row.cores, row.mode, *_with_paper(row.makespan_s, 1)) for row in results.gains]
    words = "Percent by which ASA's makespan is below Per-Stage's, paired by replication; the paper's is Table 1's."
    return PageTable(columns, rows, words, _verdicts(rows, 8))


def _averages(results: PaperResults) -> PageTable:
    columns = [Column("Workflow"), Column("Strategy"), Column("Runs"), Column("What"), *_WITH_PAPER]
    rows = [
        (row.workflow, row.strategy, row.mode, f"{words}, %", *_with_paper(getattr(row, name), 1))
        for row in results.normalised
        for name, words in _USED
    ]
    words = "Percent above the best strategy of each size, averaged over the sizes; off: ours over the paper's, less 1."
    return PageTable(columns, rows, words, _verdicts(rows, 8))


def _accuracies(results: PaperResults) -> Iterator[PageTable]:
    columns = [Column("Workflow"), Column("Centre"), Column("Cores", 0), Column("What")]
    rows = [
        (accuracy.workflow, accuracy.system, accuracy.cores, words, *_with_paper(_of(accuracy, name), None, 3600.0))
        for accuracy in results.accuracies
        for name, words in _WAITS
    ]
    words = "Waits: 60 submissions of each size, one a minute, in every replication."
    yield PageTable([*columns, *_TIME_WITH_PAPER], rows, words, _verdicts(rows, 8))
    rows = [
        (accuracy.workflow, accuracy.system, accuracy.cores, words, *_with_paper(_of(accuracy, name), 2))
        for accuracy in results.accuracies
        for name, words in _SHARES
    ]
    words = "Hits, misses and overhead of the same submissions; hits and misses add up to 100 %."
    yield PageTable([*columns, *_WITH_PAPER], rows, words, _verdicts(rows, 8))


def _of(row: Accuracy, name: str) -> ComparedFigure:
    figure: ComparedFigure = getattr(row, name)
    return figure


def _makespans(results: PaperResults, mode: Mode) -> Iterator[Part]:
    """Yield figures of makespans, marked with the paper's; a figure for each centre, as their scales differ."""
    for workflow, system in _pairs(results.usages):
        mine = [u for u in results.usages if (u.mode, u.workflow, u.system) == (mode, workflow, system)]
        groups: dict[str, dict[str, Bar]] = {}
        published: dict[tuple[str, str], float] = {}
        for usage in mine:
            group = f"{usage.cores} cores"
            ours = usage.makespan_s.ours
            groups.setdefault(group, {})[usage.strategy] = Bar((("", ours.mean),), ours.low, ours.high)
            published[group, usage.strategy] = usage.makespan_s.published
        drawn = bars(groups, title=f"Makespans of {workflow} on {system}", published=published)
        yield PageFigure(drawn, f"Makespans of {workflow} on {system}, {mode}; dashed: the paper's.")


def _pairs(usages: Iterable[Usage]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((usage.workflow, usage.system) for usage in usages))


def _breakdowns(results: PaperResults, mode: Mode) -> Iterator[Part]:
    shown = [breakdown for breakdown in results.breakdowns if breakdown.mode == mode]
    for workflow, system in dict.fromkeys((breakdown.workflow, breakdown.system) for breakdown in shown):
        groups: dict[str, dict[str, Bar]] = {}
        for row in shown:
            if (row.workflow, row.system) == (workflow, system):
                groups.setdefault(f"{row.cores} cores", {})[row.strategy] = _stacked(row)
        name = next(
            breakdown.figure for breakdown in shown if (breakdown.workflow, breakdown.system) == (workflow, system)
        )
        drawn = bars(groups, title=f"Figure {name}: {workflow} on {system}")
        yield PageFigure(drawn, f"Figure {name}: {workflow} on {system}, {mode}; each stage on top of its wait.")
    costs: dict[str, dict[str, Bar]] = {}
    for row in shown:
        cost = row.core_hours
        costs.setdefault(f"{row.workflow} {row.cores}", {})[row.strategy] = Bar((("", cost.mean),), cost.low, cost.high)
    for workflow in dict.fromkeys(breakdown.workflow for breakdown in shown):
        mine = {name: group for name, group in costs.items() if name.startswith(workflow)}
        drawn = bars(mine, title=f"Figure 9: core-hours of {workflow}", unit="core-hours")
        yield PageFigure(drawn, f"Figure 9: {workflow}, {mode}.")


def _stacked(breakdown: Breakdown) -> Bar:
    parts = [part for stage in breakdown.stages for part in (("waiting", stage.wait_s), (stage.stage, stage.run_s))]
    return Bar(tuple(parts))


def _with_paper(figure: ComparedFigure, digits: int | None, unit: float = 1.0) -> tuple[float, str, float, float, str]:
    ours = figure.ours
    scaled = Interval(unit * ours.mean, unit * ours.low, unit * ours.high, ours.freedom)
    return scaled.mean, written(scaled, digits), unit * figure.published, 100 * figure.deviation, figure.verdict


def _verdicts(rows: Sequence[Sequence[object]], column: int) -> dict[tuple[int, int], str]:
    """Return the marks of the verdicts in a column."""
    marks = {str(verdict): mark for verdict, mark in _MARKS.items()}
    return {(index, column): marks[str(row[column])] for index, row in enumerate(rows) if str(row[column]) in marks}
