"""A campaign's results as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from asa.core.intervals import Interval
from asa.report.intervals import written
from asa.studies.paper.kept import Accuracy, Breakdown, Claim, Gain, PaperResults, Usage
from asa.studies.paper.published import FIGURES, METRICS, STRATEGIES, TABLE_1, WORKFLOWS
from asa.studies.paper.verdicts import VERDICTS, ComparedFigure, Verdict
from asa.studies.present import Row, Table, number
from asa.studies.schedulers.study import SchedulerResults, SchedulerStanding
from asa.studies.standings import MARGIN
from asa.units import format_duration

_HEADINGS = {"twt_s": ("waiting", None), "makespan_s": ("makespan", None), "core_hours": ("core-hours", 0)}
_WAITS = {"real_h": "Real wait", "predicted_h": "Predicted wait", "perceived_h": "Perceived wait"}
_SHARES = {"hit_percent": ("Hit %", 0), "miss_percent": ("Miss %", 0), "overhead_h": ("Overhead, core-h", 1)}
_BREAKDOWN = ("Wait 1", "Others", "Longest", "Runs", "Core-h", "Idle", "Anew")
_MARKS: dict[Verdict, tuple[str, str]] = {
    "as the paper": ("=", "green"),
    "same order": ("~", ""),
    "differs": ("x", "red"),
}


def of_paper(results: PaperResults) -> RenderableType:
    """Return Tables 1 and 2 with every figure compared with the paper's, Figs 5 to 9 as tables, and the verdicts."""
    campaign = results.campaign
    parts: list[RenderableType] = [
        Text.assemble(("The ASA paper's evaluation, repeated", "bold"),
                      f": {_counted(campaign.seeds, 'seed')}; {campaign.estimator} predicts; "
                      f"centres with the waits of Table {campaign.waits[-1]}.\n"
                      "Sequential: each workflow by itself; concurrent: the three of a size in one queue.\n"),
    ]  # fmt: skip
    for mode in campaign.modes:
        text = f"Table 1, {mode}: ours / the paper's; below, percent above the best of each size"
        parts.append(_title(text))
        mine = [usage for usage in results.usages if usage.mode == mode]
        for workflow in WORKFLOWS:
            parts += [_of_metric(results, mode, workflow, metric, mine) for metric in METRICS]
    parts.append(_of_gains(results.gains))
    parts += [_title("Table 2, predictions of waits: ours / the paper's")]
    parts += [table for workflow in WORKFLOWS for table in _of_accuracies(workflow, results.accuracies)]
    parts.append(_of_convergences(results))
    for mode in campaign.modes:
        parts += [_of_breakdowns(mode, workflow, results.breakdowns) for workflow in WORKFLOWS]
    parts += [_of_claims(results.claims), _of_verdicts(results)]
    marks = ", ".join(f"{mark} {verdict}" for verdict, (mark, _) in _MARKS.items())
    parts.append(Text(f"{marks}. {results.rule}", style="dim"))
    return Group(*parts)


def _of_gains(gains: Sequence[Gain]) -> Table:
    rows = []
    for gain in gains:
        figure = gain.makespan_s
        ours = number(figure.ours.mean, 1, "+"), written(figure.ours, 1)
        where = gain.workflow, gain.mode, str(gain.cores)
        rows.append((*where, *ours, number(figure.published, 1, "+"), Text(*_MARKS[figure.verdict])))
    headings = ["Workflow", "", "Cores", "Gain %", "95 %", "The paper's", ""]
    return Table(headings, rows, "ASA's gain: its makespan below Per-Stage's, in percent", left=(0, 1), wraps=())


def _counted(many: int, what: str) -> str:
    return f"{many} {what}{'' if many == 1 else 's'}"


def _title(text: str) -> RenderableType:
    return Padding(Text(text, style="bold"), (1, 0, 0, 0))


def _of_metric(results: PaperResults, mode: str, workflow: str, metric: str, usages: Sequence[Usage]) -> Table:
    heading, digits = _HEADINGS[metric]
    rows = []
    for cores in TABLE_1[workflow]:
        figures = [getattr(usage, metric) for usage in usages if (usage.workflow, usage.cores) == (workflow, cores)]
        rows.append(Row([f"{cores:5d}", *(_with_paper(compared, digits) for compared in figures)]))
        if any(figure.ours.is_spread for figure in figures):
            bounds = (written(figure.ours, digits) for figure in figures)
            rows.append(Row(["", *(f"{words}   " if words else "" for words in bounds)], "dim"))
    average = [getattr(row, metric) for row in results.normalised if (row.mode, row.workflow) == (mode, workflow)]
    rows.append(Row(["above", *(_above(compared) for compared in average)], begins_section=True))
    return Table(["Cores", *STRATEGIES], rows, f"{workflow}: {heading}", wraps=())


def _with_paper(compared: ComparedFigure, digits: int | None) -> Text:
    mark, style = _MARKS[compared.verdict]
    off = "" if math.isnan(compared.deviation) else f" {_percent(compared.deviation)}"
    theirs = number(compared.published, digits)
    return Text.assemble(number(compared.ours.mean, digits), (f"/{theirs}{off} ", "dim"), (mark, style))


def _above(compared: ComparedFigure) -> Text:
    mark, style = _MARKS[compared.verdict]
    ours = f"{number(compared.ours.mean, 0, '+')} %"
    return Text.assemble(ours, (f"/{compared.published:+g} % ", "dim"), (mark, style))


def _percent(deviation: float) -> str:
    return f"{number(100 * deviation, 0, '+')} %" if abs(deviation) < 10 else f"x{1 + deviation:.0f}"


def _of_accuracies(workflow: str, accuracies: Sequence[Accuracy]) -> Iterator[Table]:
    """Yield two tables, since one would be too wide for a terminal: waits, and outcomes of the predictions."""
    mine = [row for row in accuracies if row.workflow == workflow]
    waits = [Row([f"{row.cores:5d}", *(_judged(getattr(row, name), _hours) for name in _WAITS)]) for row in mine]
    yield Table(["Cores", *_WAITS.values()], waits, workflow, wraps=())
    shares = [
        Row([
            f"{row.cores:5d}",
            *(_judged(getattr(row, name), partial(number, digits=digits)) for name, (_, digits) in _SHARES.items()),
        ])
        for row in mine
    ]  # fmt: skip
    yield Table(["Cores", *(heading for heading, _ in _SHARES.values())], shares, wraps=())


def _judged(compared: ComparedFigure, shown: Callable[[float], str]) -> Text:
    mark, style = _MARKS[compared.verdict]
    return Text.assemble(shown(compared.ours.mean), (f"/{shown(compared.published)} ", "dim"), (mark, style))


def _hours(value: float) -> str:
    return number(3600 * value, None)


def _of_convergences(results: PaperResults) -> Table:
    rows = []
    for convergence in results.convergences:
        shares = [convergence.hits_percent, convergence.lost_after_drops_percent, convergence.lost_after_rises_percent]
        hits, drops, rises = (number(sum(share) / len(share), 0) if share else "-" for share in shares)
        rows.append((convergence.policy, hits, number(convergence.found_after, 0), drops, rises))
    headings = ["Policy", "Hits %", "Found after", "Lost after drops %", "Lost after rises %"]
    return Table(headings, rows, "Fig. 5, following a wait that changes, by the sampling policy", wraps=())


def _of_breakdowns(mode: str, workflow: str, breakdowns: Sequence[Breakdown]) -> Table:
    title = (
        f"Figs {FIGURES[workflow]} and 9, {workflow}, {mode}: makespans by part (the wait of the first stage, the sum "
        "and the longest of the others, run times); core-hours, and idle ones; jobs submitted again"
    )
    rows = []
    for breakdown in sorted(breakdowns, key=lambda breakdown: breakdown.cores):
        if (breakdown.mode, breakdown.workflow) == (mode, workflow):
            first, *others = breakdown.stages
            longest = max(others, key=lambda stage: stage.wait_s)
            numbers = (
                number(first.wait_s, None),
                number(sum(stage.wait_s for stage in others), None),
                f"{number(longest.wait_s, None)} {longest.stage}" if longest.wait_s >= 1 else "-",
                number(sum(stage.run_s for stage in breakdown.stages), None),
                number(breakdown.core_hours.mean, 0),
                number(breakdown.overhead_core_hours, 1),
                number(breakdown.resubmissions, 1),
            )
            rows.append((f"{breakdown.cores:5d}", breakdown.strategy, *numbers))
    return Table(["Cores", "Strategy", *_BREAKDOWN], rows, title, left=(0, 1), wraps=(4,))  # name of a stage


def _of_claims(claims: Sequence[Claim]) -> Table:
    rows = []
    for claim in claims:
        words = claim.words if not claim.mode else f"{claim.words} ({claim.mode})"
        published = "more than 0" if math.isnan(claim.published) else f"{claim.published:g}"
        ours = number(claim.ours.mean, 1), written(claim.ours, 1)
        rows.append((claim.where, words, claim.unit, *ours, published, Text(*_MARKS[claim.verdict])))
    headings = ["Section", "What", "Unit", "Ours", "95 %", "The paper's", ""]
    return Table(headings, rows, "Claims in the text", left=(0, 1), wraps=(1,))


def _of_verdicts(results: PaperResults) -> Table:
    rows = [(name, *(str(counts[verdict]) for verdict in VERDICTS)) for name, counts in results.verdicts().items()]
    return Table(["", *VERDICTS], rows, "Verdicts", wraps=())


# ---------------------------------------------------------------------- schedulers


def of_schedulers(results: SchedulerResults) -> RenderableType:
    """Return a table for each scheduler: time and cost of each strategy, and its effects on other users."""
    campaign = results.campaign
    worlds = ", ".join((*campaign.systems, *(trace.name for trace in campaign.traces)))
    parts: list[RenderableType] = [
        Text.assemble(("Every strategy under every scheduler", "bold"),
                      f": {', '.join(campaign.workflows)} on {worlds}; {_counted(campaign.seeds, 'seed')}; "
                      f"{campaign.estimator} predicts.\n"),
    ]  # fmt: skip
    schedulers = dict.fromkeys(standing.scheduler for standing in results.standings)
    parts += [
        _of_scheduler(name, [standing for standing in results.standings if standing.scheduler == name])
        for name in schedulers
    ]
    parts += [
        Text(
            f"Left out: {left_out.strategy} under {left_out.scheduler} on {left_out.world}: it {left_out.reason}.",
            style="yellow",
        )
        for left_out in results.left_out
    ]
    parts.append(Text(_legend(campaign.window_s / 3600), style="dim"))
    return Group(*parts)


def _legend(window_h: float) -> str:
    return (
        "Makespan over Big Job's, core-hours over Per-Stage's: geometric means over paired seeds and cells, with 95 % "
        "intervals (Student's t over seeds). Waits: those between stages, their sum over Per-Stage's; - where that is "
        "less than a minute a run. Others: jobs that waited when the client came or came in the "
        f"{window_h:g} h after it, followed for {2 * window_h:g} h, beside the same world without it: "
        "by how much they waited longer on average, what their bounded slowdown grew by, and "
        "the hours that they waited longer for each core-hour of the client's (h/CH). = the quickest, or not "
        f"significantly slower. * another strategy took less time, by more than {100 * MARGIN:.0f} %, and no more "
        "core-hours, or the reverse, in some cell. ! the others wait significantly longer, or less; no sign: neither "
        "harm nor good is shown. Each sign is right for all at once with 95 % (Holm): = under a scheduler, * for a "
        "strategy, ! over all schedulers."
    )


def _of_scheduler(scheduler: str, standings: Sequence[SchedulerStanding]) -> Table:
    first = standings[0]
    title = (
        f"{scheduler}: without this workflow others wait {format_duration(first.others_wait_s)} on average, "
        f"slowdown {first.others_slowdown:.1f}\n"
        "Makespan over Big Job's; core-hours, and the sum of waits, over Per-Stage's"
    )
    rows = []
    for standing in standings:
        cells = (
            f"{standing.strategy}{'=' if standing.is_as_quick else ''}{'*' if standing.dominated else ''}",
            f"{standing.makespan.mean:.2f}",
            f"{standing.core_hours.mean:.2f}",
            number(standing.perceived_wait, 2),
            f"{number(standing.longer_wait_s.mean, None, '+')}{'!' if standing.longer else ''}",
            number(standing.more_slowdown.mean, 2, "+"),
            number(standing.waited_more_per_core_hour, 2, "+"),
        )
        bounds = (
            "",
            _span(standing.makespan, 2),
            _span(standing.core_hours, 2),
            "",
            _span(standing.longer_wait_s, None, "+"),
            _span(standing.more_slowdown, 2, "+"),
            "",
        )
        rows += [Row(cells), Row(bounds, "dim")]
    headings = ["Strategy", "Makespan", "Core-hours", "Waits", "Others", "+Slowdown", "h/CH"]
    return Table(headings, rows, title, wraps=())


def _span(interval: Interval, digits: int | None, sign: Literal["", "+"] = "") -> str:
    low, high = (number(bound, digits, sign) for bound in (interval.low, interval.high))
    return f"{low}..{high}" if interval.is_spread else ""
