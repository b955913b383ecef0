"""A campaign's results as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from asa.campaign.paper import Accuracy, Breakdown, Claim, PaperResults, Usage
from asa.campaign.published import FIGURES, METRICS, STRATEGIES, TABLE_1, WORKFLOWS
from asa.campaign.schedulers import SchedulerResults, Standing
from asa.campaign.verdicts import VERDICTS, Compared, Verdict
from asa.experiment import Interval

__all__ = ["of_paper", "of_schedulers"]

_HEADINGS = {"twt_s": ("TWT, s", 0), "makespan_s": ("Makespan, s", 0), "core_hours": ("Core-hours", 0)}
_ACCURACY = {
    "real_h": ("Real h", 1),
    "predicted_h": ("ASA h", 1),
    "perceived_h": ("PWT h", 1),
    "hit_percent": ("Hit %", 0),
    "miss_percent": ("Miss %", 0),
    "overhead_h": ("OH", 1),
}
_MARKS: dict[Verdict, tuple[str, str]] = {
    "as the paper": ("=", "green"),
    "same order": ("~", ""),
    "differs": ("x", "red"),
}


def of_paper(results: PaperResults) -> RenderableType:
    """Draw Tables 1 and 2 with every figure beside the paper's, Figs 5 to 9 as tables, and the verdicts."""
    campaign = results.campaign
    parts: list[RenderableType] = [
        Text.assemble(("The ASA paper's evaluation, done anew", "bold"),
                      f": {campaign.seeds} seeds; {campaign.estimator} predicts.\n"),
    ]  # fmt: skip
    for mode in campaign.modes:
        parts.append(_title(f"Table 1, workflows run {_how(mode)}: ours / the paper's"))
        mine = [usage for usage in results.usages if usage.mode == mode]
        for workflow in WORKFLOWS:
            parts += [_of_metric(results, mode, workflow, metric, mine) for metric in METRICS]
    parts += [_title("Table 2, predictions of waits: ours / the paper's")]
    parts += [_of_accuracies(workflow, results.accuracies) for workflow in WORKFLOWS]
    parts.append(_of_convergences(results))
    for mode in campaign.modes:
        parts += [_of_breakdowns(mode, workflow, results.breakdowns) for workflow in WORKFLOWS]
    parts += [_of_claims(results.claims), _of_verdicts(results)]
    marks = ", ".join(f"{mark} {verdict}" for verdict, (mark, _) in _MARKS.items())
    parts.append(Text(f"{marks}. {results.rule}", style="dim"))
    return Group(*parts)


def _how(mode: str) -> str:
    return "one at a time" if mode == "sequential" else "three at once"


def _title(words: str) -> RenderableType:
    return Padding(Text(words, style="bold"), (1, 0, 0, 0))


def _table(title: str, first: Sequence[str], others: Sequence[str]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for heading in first:
        table.add_column(heading, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _of_metric(results: PaperResults, mode: str, workflow: str, metric: str, usages: Sequence[Usage]) -> RenderableType:
    heading, digits = _HEADINGS[metric]
    table = _table(f"{workflow}: {heading}", ("Cores",), STRATEGIES)
    for cores in TABLE_1[workflow]:
        row = [getattr(one, metric) for one in usages if (one.workflow, one.cores) == (workflow, cores)]
        table.add_row(f"{cores:5d}", *(_beside(compared, digits) for compared in row))
        if any(one.ours.high > one.ours.low for one in row):
            table.add_row("", *(_bounds(one, digits) for one in row), style="dim")
    average = [getattr(one, metric) for one in results.normalised if (one.mode, one.workflow) == (mode, workflow)]
    table.add_section()
    table.add_row("above", *(_above(compared) for compared in average))
    return table


def _beside(compared: Compared, digits: int) -> Text:
    mark, style = _MARKS[compared.verdict]
    off = "" if math.isnan(compared.deviation) else f" {_percent(compared.deviation)}"
    return Text.assemble(
        _number(compared.ours.mean, digits), (f" / {compared.published:,g}{off} ", "dim"), (mark, style)
    )


def _above(compared: Compared) -> Text:
    mark, style = _MARKS[compared.verdict]
    return Text.assemble(f"+{compared.ours.mean:.0f} %", (f" / +{compared.published:g} % ", "dim"), (mark, style))


def _percent(deviation: float) -> str:
    return f"{100 * deviation:+.0f} %" if abs(deviation) < 10 else f"x{1 + deviation:.0f}"


def _bounds(compared: Compared, digits: int) -> str:
    low, high = compared.ours.low, compared.ours.high
    return f"{_number(low, digits)}-{_number(high, digits)}   " if high > low else ""


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:,.{digits}f}"


def _of_accuracies(workflow: str, accuracies: Sequence[Accuracy]) -> RenderableType:
    table = _table(workflow, ("Cores",), [heading for heading, _ in _ACCURACY.values()])
    for row in accuracies:
        if row.workflow == workflow:
            cells = []
            for name, (_, digits) in _ACCURACY.items():
                compared: Compared = getattr(row, name)
                mark, style = _MARKS[compared.verdict]
                ours = _number(compared.ours.mean, digits)
                cells.append(Text.assemble(ours, (f"/{compared.published:g} ", "dim"), (mark, style)))
            table.add_row(f"{row.cores:5d}", *cells)
    return table


def _of_convergences(results: PaperResults) -> RenderableType:
    title = "Fig. 5, following a wait that changes, by the sampling policy"
    table = _table(title, ("Policy",), ("Hits %", "Found after", "Lost after drops %", "after rises %"))
    for one in results.convergences:
        shares = [one.hits_percent, one.lost_after_drops_percent, one.lost_after_rises_percent]
        hits, drops, rises = (_number(sum(share) / len(share), 0) if share else "-" for share in shares)
        table.add_row(one.policy, hits, _number(one.found_after, 0), drops, rises)
    return table


def _of_breakdowns(mode: str, workflow: str, breakdowns: Sequence[Breakdown]) -> RenderableType:
    title = f"Figs {FIGURES[workflow]} and 9, {workflow} run {_how(mode)}: where a makespan goes"
    table = _table(title, ("Cores", "Strategy"), ("Wait 1", "Others", "Longest", "Runs s", "Core-h", "OH", "Anew"))
    for one in sorted(breakdowns, key=lambda one: one.cores):
        if (one.mode, one.workflow) == (mode, workflow):
            first, *others = one.stages
            longest = max(others, key=lambda stage: stage.wait_s)
            table.add_row(
                f"{one.cores:5d}",
                one.strategy,
                _number(first.wait_s, 0),
                _number(sum(stage.wait_s for stage in others), 0),
                f"{_number(longest.wait_s, 0)} {longest.stage}" if longest.wait_s >= 1 else "-",
                _number(sum(stage.run_s for stage in one.stages), 0),
                _number(one.core_hours.mean, 0),
                _number(one.overhead_core_hours, 1),
                _number(one.resubmissions, 1),
            )
    return table


def _of_claims(claims: Sequence[Claim]) -> RenderableType:
    table = _table("What the text claims", ("Section", "Per cent"), ("Ours", "95 %", "The paper's", ""))
    for claim in claims:
        mark, style = _MARKS[claim.verdict]
        words = claim.words if not claim.mode else f"{claim.words} ({_how(claim.mode)})"
        bounds = "" if math.isnan(claim.ours.low) else f"{claim.ours.low:.1f} to {claim.ours.high:.1f}"
        published = "more than 0" if math.isnan(claim.published) else f"{claim.published:g}"
        table.add_row(claim.where, words, f"{claim.ours.mean:.1f}", bounds, published, Text(mark, style))
    table.columns[1].no_wrap = False
    return table


def _of_verdicts(results: PaperResults) -> RenderableType:
    table = _table("Verdicts", ("",), VERDICTS)
    for name, counts in results.verdicts().items():
        table.add_row(name, *(str(counts[verdict]) for verdict in VERDICTS))
    return table


# ---------------------------------------------------------------------- schedulers


def of_schedulers(results: SchedulerResults) -> RenderableType:
    """Draw a table a scheduler: what each way of asking takes, costs, and does to the others."""
    campaign = results.campaign
    worlds = ", ".join((*campaign.systems, *(trace.name for trace in campaign.traces)))
    parts: list[RenderableType] = [
        Text.assemble(("Every way of asking under every scheduler", "bold"),
                      f": {', '.join(campaign.workflows)} on {worlds}; {campaign.seeds} seeds; "
                      f"{campaign.estimator} predicts.\n"),
    ]  # fmt: skip
    schedulers = dict.fromkeys(one.scheduler for one in results.standings)
    parts += [_of_scheduler(name, [one for one in results.standings if one.scheduler == name]) for name in schedulers]
    parts += [
        Text(f"Left out: {one.strategy} under {one.scheduler} on {one.world}: it {one.reason}.", style="yellow")
        for one in results.left_out
    ]
    parts.append(Text(_legend(campaign.window_s / 3600), style="dim"))
    return Group(*parts)


def _legend(window_h: float) -> str:
    return (
        "Makespan over Big Job's, core-hours over Per-Stage's: geometric means over paired seeds, averaged over cells, "
        "with 95 % intervals. Waits: those between stages over Per-Stage's. Others: jobs that waited when the client "
        f"came or came in the {window_h:g} h after it, followed for {2 * window_h:g} h, beside the same world without "
        "it: seconds that they waited longer on average, what their bounded slowdown grew by, and the hours that they "
        "waited longer for each core-hour of the client's (h/CH). An interval that has 0 in it tells of no harm and no "
        "good. * another strategy took less time and no more core-hours, or the reverse, in some cell, beyond the "
        "interval."
    )


def _of_scheduler(scheduler: str, standings: Sequence[Standing]) -> RenderableType:
    first = standings[0]
    title = (
        f"{scheduler}: without the client others wait {first.others_wait_s:,.0f} s on average, "
        f"slowdown {first.others_slowdown:.1f}"
    )
    headings = ("Makespan", "Core-hours", "Waits", "Others s", "Slowdown", "h/CH")
    table = _table(title, ("Strategy",), headings)
    for one in standings:
        table.add_row(
            f"{one.strategy}{'*' if one.dominated else ''}",
            f"{one.makespan.mean:.2f}",
            f"{one.core_hours.mean:.2f}",
            f"{one.perceived_wait:.2f}",
            f"{one.longer_wait_s.mean:+.1f}",
            f"{one.more_slowdown.mean:+.2f}",
            f"{one.waited_more_per_core_hour:+.2f}",
        )
        table.add_row(
            "",
            _span(one.makespan, ".2f"),
            _span(one.core_hours, ".2f"),
            "",
            _span(one.longer_wait_s, "+.1f"),
            _span(one.more_slowdown, "+.2f"),
            "",
            style="dim",
        )
    return table


def _span(interval: Interval, form: str) -> str:
    if not interval.high > interval.low:
        return ""
    return f"{interval.low:{form}}..{interval.high:{form}}"
