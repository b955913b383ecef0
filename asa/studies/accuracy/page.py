"""The page of an evaluation: which estimator predicts best on which log, and the coverage of predicted quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from asa.report.page import Column, Folded, Page, PageFigure, PageTable, Part, Section, Text
from asa.report.page.drawing import curves, strips
from asa.studies.accuracy.convergence import Convergence
from asa.studies.accuracy.convergence_figures import convergence_figures, followed
from asa.studies.accuracy.scores import Score
from asa.studies.accuracy.table import (
    ACCURACY,
    ACCURACY_NOTE,
    COST,
    COST_NOTE,
    REFERENCES,
    SECONDS,
    SECONDS_NOTE,
    STATED,
    STATED_NOTE,
    ScoreMeasure,
    best_of,
    by_geometry,
    short_names,
)
from asa.units import format_duration
from asa.waits import LEVELS

_DRAWN = 4
_TOLERANCE = 0.05


def _within(level: float) -> Callable[[Score], float]:
    """Return a function for the coverage of a quantile, in percent."""
    return lambda score: 100 * score.coverage_at(level)


_HOW = (
    "Each job of a log is predicted when it is submitted, only from what was known then; its wait is learned when "
    "it starts. So these are the results that a user would have had."
)
_STATED = (
    "An estimator states nine quantiles of each wait. Of those that say the truth, p90 holds nine waits of ten, and "
    "p50 every second. Where many waits are equal, or next to nothing, more jobs than that start within a quantile; "
    "coverage spreads them over the levels that state the same wait. The tables of each log show both. Off by: the "
    "mean distance of the nine shares from what they should be."
)


def accuracy_page(
    scores: Sequence[Score],
    convergences: Sequence[Convergence] = (),
    *,
    oddities: Mapping[str, Mapping[str, int]] | None = None,
    made: Mapping[str, str] | None = None,
) -> Page:
    """Build the page of an evaluation.

    `convergences`: results of Algorithm 1 with changing waits, as in the paper's Fig. 5.
    """
    names = short_names(list(dict.fromkeys(score.trace for score in scores)))
    whole = [score for score in scores if not score.geometry and not math.isnan(score.log10_error)]
    ranked = _ranked(whole)
    sections = []
    if ranked:
        sections += [
            Section(
                "best",
                "Which estimator is closest" if len(ranked) > 1 else "Error of the best",
                [*_errors(whole, ranked, names), Text((_HOW,), is_small=True)],
            ),
            Section("stated", "Are the predicted quantiles right?", _coverage(whole, ranked, names)),
        ]
        reading = Text((ACCURACY_NOTE, STATED_NOTE, COST_NOTE, "Oracle: the truth as prediction, for reference."))
        sections.append(Section("columns", "What the columns below mean", [reading]))
    for index, (trace, name) in enumerate(names.items(), start=1):
        here = [score for score in scores if score.trace == trace]
        parts = list(_of_log(here, ranked) if any(score.trace == trace for score in whole) else _of_scheduler(here))
        if odd := (oddities or {}).get(trace):
            parts.append(Text(tuple(f"{count:,} jobs: {words}." for words, count in odd.items()), is_small=True))
        sections.append(Section(f"log-{index}", _plain(name), parts))
    if convergences:
        sections.append(Section("figure-5", _FIGURE_5, [Text((_POLICIES,)), *convergence_figures(convergences)]))
    summary = [*_said(whole, ranked), *(f"Algorithm 1, policy {followed(convergence)}" for convergence in convergences)]
    return Page("How well waits are predicted", summary, sections, made or {})


_FIGURE_5 = "The paper's Figure 5: how Algorithm 1 follows a wait that changes"
_POLICIES = (
    "Algorithm 1 alone, without a queue: 1000 waits, drawn anew after each 200 from its 53 alternatives. It predicts "
    "each, and learns it by one of three policies."
)


def _plain(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".swf")


def _ranked(whole: Sequence[Score]) -> list[str]:
    """Return the estimators by their mean error over all logs, the best first; those that failed are last."""
    of: dict[str, list[float]] = {}
    for score in whole:
        if score.estimator not in REFERENCES:
            of.setdefault(score.estimator, []).append(score.log10_error)
    return sorted(of, key=lambda name: (-len(of[name]), sum(of[name]) / len(of[name])))


def _off(score: Score) -> float:
    return sum(abs(share - level) for share, level in zip(score.coverage, LEVELS, strict=True)) / len(LEVELS)


def _mean_off(whole: Sequence[Score], name: str) -> float:
    of = [_off(score) for score in whole if score.estimator == name]
    return sum(of) / len(of)


# ---------------------------------------------------------------------- in words


def _said(whole: Sequence[Score], ranked: Sequence[str]) -> Iterator[str]:
    if not ranked:
        return
    traces = list(dict.fromkeys(score.trace for score in whole))
    of = {name: [score for score in whole if score.estimator == name] for name in ranked}
    best, *others = ranked
    waits = sum(max(score.jobs for score in whole if score.trace == trace) for trace in traces)
    where = "one log" if len(traces) == 1 else f"{len(traces)} logs"
    yield f"{waits:,} waits of {where}, each predicted by {_many(len(ranked), 'estimator')} as it was submitted."
    first = sum(_is_closest(score, whole) for score in of[best])
    on = f" on {'all' if first == len(traces) else first} of them" if len(traces) > 1 else ""
    off = f"off by a factor of {_span(of[best], _factor, 1)}"
    yield f"`{best}` is closest{on}: on average it is {off}." if others else f"`{best}` is {off} in the mean."
    if others:
        second, last = others[0], others[-1]
        after = f", last `{last}` ({_span(of[last], _factor, 0)})" if len(others) > 1 else ""
        yield f"Next is `{second}` ({_span(of[second], _factor, 1)}){after}."
    hits = _span(of[best], lambda score: 100 * score.hit_ratio, 0)
    yield f"`{best}` finds the closest of the paper's 53 alternatives for {hits} % of the waits."
    p50, p90 = (_span(of[best], _within(level), 1) for level in (0.5, 0.9))
    held = sum(all(_is_calibrated(score, level) for level in (0.5, 0.9)) for score in of[best])
    does = "holds" if held == len(of[best]) else f"holds on {held} of them only" if held else "does not hold"
    yield f"What it states {does}: its p90 covers {p90} % of the waits, and its p50 {p50} %, equal waits spread."
    plain50, plain90 = (
        _span(of[best], value, 0)
        for value in (lambda score: 100 * score.within_p50, lambda score: 100 * score.within_p90)
    )
    yield f"So {plain90} % of the jobs started within its p90, and {plain50} % within its p50."
    if known := [score.coverage_p90_range for score in of[best] if not math.isnan(score.coverage_p90_range[0])]:
        low, high = min(low for low, _ in known), max(high for _, high in known)
        yield f"In tenths of a log, one after the other, its p90 covers {100 * low:.0f} to {100 * high:.0f} %."
    if loose := [name for name in ranked if not all(_is_calibrated(score, 0.9) for score in of[name])]:
        shares = ", ".join(f"`{name}` ({_span(of[name], _within(0.9), 0)} %)" for name in loose)
        yield f"A p90 that does not hold nine of ten, by more than 5 points on some log: {shares}."
    halves_s = [score.abs_error_p50_s for score in of[best]]
    half = " to ".join(dict.fromkeys(format_duration(edge(halves_s)) for edge in (min, max)))
    yield f"Half of `{best}`'s predictions are off by less than {half}."


def _is_calibrated(score: Score, level: float) -> bool:
    return abs(score.coverage_at(level) - level) <= _TOLERANCE


def _many(count: int, text: str) -> str:
    return f"one {text}" if count == 1 else f"{count} {text}s"


def _is_closest(score: Score, whole: Sequence[Score]) -> bool:
    rivals = [s.log10_error for s in whole if s.trace == score.trace and s.estimator not in REFERENCES]
    return score.log10_error <= min(rivals)


def _factor(score: Score) -> float:
    return math.pow(10.0, score.log10_error)


def _span(scores: Sequence[Score], value: Callable[[Score], float], digits: int) -> str:
    """Format the smallest and the largest of the given figures; as one if they look equal."""
    low, high = (f"{edge(map(value, scores)):,.{digits}f}" for edge in (min, max))
    return low if low == high else f"{low} to {high}"


# ---------------------------------------------------------------------- figures and tables


def _errors(whole: Sequence[Score], ranked: Sequence[str], names: Mapping[str, str]) -> list[Part]:
    errors = _by_log(whole, ranked, names, lambda score: score.log10_error)
    drawn = strips(errors, title="Error", x_words="error, powers of ten: 0.3 is a factor of 2, 1 a factor of 10")
    logs = list(dict.fromkeys(log for row in errors.values() for log in row))
    rows: list[list[str | float | None]] = [
        [name, *(errors[name].get(log) for log in logs), _mean(errors[name])] for name in ranked
    ]
    columns = [Column("Estimator"), *(Column(log, 3) for log in logs), Column("Mean", 3, "Over the logs")]
    marks = {}
    for index in range(1, len(columns)):
        known = [(row[index], number) for number, row in enumerate(rows) if isinstance(row[index], float)]
        if len(rows) > 1 and known:
            marks[min(known)[1], index] = "best"
    text = "Mean distance between predicted and real wait, in powers of ten; the nearer to 0 the better."
    if len(logs) == 1:
        rows, columns = [row[:-1] for row in rows], columns[:-1]
    return [PageFigure(drawn, text), PageTable(columns, rows, "The same as a table.", marks)]


def _mean(row: Mapping[str, float]) -> float:
    return sum(row.values()) / len(row)


def _by_log(
    whole: Sequence[Score], ranked: Sequence[str], names: Mapping[str, str], value: Callable[[Score], float]
) -> dict[str, dict[str, float]]:
    return {
        name: {_plain(names[score.trace]): value(score) for score in whole if score.estimator == name}
        for name in ranked
    }


def _coverage(whole: Sequence[Score], ranked: Sequence[str], names: Mapping[str, str]) -> list[Part]:
    worst = sorted(ranked[1:], key=lambda name: -_mean_off(whole, name))[: _DRAWN - 1]
    lines: dict[str, list[tuple[float, float]]] = {"as it should be": [(0.0, 0.0), (100.0, 100.0)]}
    for name in (ranked[0], *worst):
        of = [score.coverage for score in whole if score.estimator == name]
        shares = [100 * sum(shares) / len(of) for shares in zip(*of, strict=True)]
        lines[name] = [(100 * level, share) for level, share in zip(LEVELS, shares, strict=True)]
    curve = curves(lines, title="Reliability", x_words="stated, %", y_words="waits within, %")
    held = _by_log(whole, ranked, names, _within(0.9))
    strip = strips(held, title="Coverage of p90", x_words="coverage of the stated p90, %", goal=90.0)
    rows: list[list[str | float | None]] = [
        [score.estimator, _plain(names[score.trace]), *(100 * share for share in score.coverage), 100 * _off(score)]
        for name in ranked
        for score in whole
        if score.estimator == name
    ]
    columns = [Column("Estimator"), Column("Log"), *(Column(f"p{100 * level:.0f}", 1) for level in LEVELS)]
    columns.append(Column("Off by, points", 1))
    return [
        Text((_STATED,)),
        PageFigure(curve, f"Reliability, mean over logs: `{ranked[0]}`, and those whose quantiles are farthest off."),
        PageFigure(strip, "Coverage of the stated p90, which should be 90 %: the dashed line."),
        PageTable(columns, rows, "Coverage of each stated quantile, in percent."),
    ]


def _of_log(scores: Sequence[Score], ranked: Sequence[str]) -> Iterator[Part]:
    (_, whole), *geometries = by_geometry(scores)
    drawn = [score for name in ranked for score in whole if score.estimator == name and score.course][:_DRAWN]
    yield from (
        _measured(whole, ACCURACY, f"{max(score.jobs for score in whole):,} waits."),
        _measured(whole, STATED, "Are the predicted quantiles right?."),
        _measured(whole, COST, "What errors cost."),
    )
    if drawn:
        lines = {
            score.estimator: list(zip(score.course.day, score.course.log10_error, strict=True))
            for score in drawn
            if score.course
        }
        x_words = "days since the first submission"
        which = f": the {len(drawn)} that come closest over all" if len(drawn) > 1 else ""
        yield PageFigure(
            curves(lines, title="Error over time", x_words=x_words, y_words="error, powers of ten"),
            f"Error over time, in blocks of equally many jobs{which}.",
        )
        best = drawn[0]
        assert best.course is not None
        shares = {"p90": best.course.coverage_p90, "p50": best.course.coverage_p50}
        held = {
            f"within {name}": [(day, 100 * share) for day, share in zip(best.course.day, of, strict=True)]
            for name, of in shares.items()
        }
        yield PageFigure(
            curves(held, title="Coverage over time", x_words=x_words, y_words="waits within, %"),
            f"Coverage over time: of the waits of a block, those within `{best.estimator}`'s p90 and p50.",
        )
    if geometries:
        yield Folded("By geometry", [_geometries(geometries)])


def _measured(scores: Sequence[Score], measures: Sequence[ScoreMeasure], caption: str) -> PageTable:
    """Return the table of the terminal for a page; ranges become text."""
    shown = [m for m in measures if any(not math.isnan(value) for score in scores for value in m.values(score))]
    marks = {
        (scores.index(score), 1 + index): "best"
        for index, measure in enumerate(shown)
        for score in best_of(scores, measure)
    }
    columns = [Column("Estimator"), *(_column(m, scores) for m in shown)]
    rows = [[score.estimator, *(_value(m, score) for m in shown)] for score in scores]
    return PageTable(columns, rows, caption, marks)


def _column(measure: ScoreMeasure, scores: Sequence[Score]) -> Column:
    is_range = any(len(measure.values(score)) > 1 for score in scores)
    if measure.decimals is None:
        return Column.of_time(measure.heading)
    return Column(measure.heading, None if is_range else measure.decimals)


def _value(measure: ScoreMeasure, score: Score) -> str | float:
    values = measure.values(score)
    return values[0] if len(values) == 1 else measure.text(score)


def _geometries(sections: Sequence[tuple[str, Sequence[Score]]]) -> PageTable:
    columns = [Column("Jobs of"), Column("Estimator"), *(_column(m, sections[0][1]) for m in ACCURACY)]
    rows = [[label, score.estimator, *(_value(m, score) for m in ACCURACY)] for label, of in sections for score in of]
    return PageTable(columns, rows, "The geometries that have most jobs.")


def _of_scheduler(scores: Sequence[Score]) -> Iterator[Part]:
    yield _measured(scores, SECONDS, "A scheduler's own estimates.")
    yield Text((SECONDS_NOTE,), is_small=True)
