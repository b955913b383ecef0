"""The tables and the figure of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from asa.core.drawing import new_figure, save_figure
from asa.errors import InputError
from asa.studies.accuracy.scores import Score
from asa.waits import LEVELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = [
    "ACCURACY",
    "ACCURACY_NOTE",
    "BEST_NOTE",
    "COST",
    "COST_NOTE",
    "REFERENCES",
    "SECONDS",
    "SECONDS_NOTE",
    "Measure",
    "best_of",
    "by_geometry",
    "draw",
    "render",
    "short_names",
]

REFERENCES = ("oracle", "scheduler")  # shown beside estimators, not ranked among them
_HERO = "asa"
_MOST_GEOMETRIES = 20


@dataclass(frozen=True, slots=True)
class Measure:
    """A column: what it shows, and how far that is from perfect where columns have a best."""

    heading: str
    shown: Callable[[Score], tuple[float, ...]]  # numbers of a cell: one, or the ends of a range
    decimals: int = 0
    # how far a number is from perfect; None where none is better than another
    badness: Callable[[float], float] | None = abs

    def values(self, score: Score) -> tuple[float, ...]:
        """Numbers of a cell as they are shown, so that what looks equal is equally good."""
        return tuple(round(value, self.decimals) for value in self.shown(score))

    def text(self, score: Score) -> str:
        """Write a cell."""
        values = self.values(score)
        if any(map(math.isnan, values)):
            return "-"
        return "-".join(f"{value + 0.0:,.{self.decimals}f}" for value in values)  # + 0.0: no minus before zero

    def worst(self, score: Score) -> float:
        """Say how far a cell is from perfect; nan where that is not known, or nothing is perfect."""
        values = self.values(score)
        if self.badness is None or any(map(math.isnan, values)):
            return math.nan
        return max(map(self.badness, values))


def _missing(of: float) -> Callable[[float], float]:
    """How far a percentage is from what it should be; to the digits that are shown."""
    return lambda value: round(abs(value - of), 6)


ACCURACY = (
    Measure("Error", lambda s: (s.log10_error,), 3),
    Measure("Hits %", lambda s: (100 * s.hit_ratio,), 1, _missing(100)),
    Measure("2x %", lambda s: (100 * s.within_2x,), 1, _missing(100)),
    Measure("Pinball", lambda s: (s.pinball_log10,), 3),
    Measure("in s", lambda s: (s.pinball_s,), 0),
    Measure("p50 %", lambda s: (100 * s.coverage_at(0.5),), 1, _missing(50)),
    Measure("p90 %", lambda s: (100 * s.coverage_at(0.9),), 1, _missing(90)),
    Measure("Blocks", lambda s: tuple(100 * share for share in s.coverage_p90_range), 0, _missing(90)),
)
COST = (
    Measure("Late s", lambda s: (s.late_s,), 0),
    Measure("Idle c-h", lambda s: (s.idle_core_h,), 2),
    Measure("Off p50", lambda s: (s.abs_error_p50_s,), 0),
    Measure("Off p90", lambda s: (s.abs_error_p90_s,), 0),
    Measure("Regret", lambda s: (s.regret_per_job,), 3, lambda value: value),
    Measure("Bound", lambda s: (s.regret_bound_per_job,), 3, None),
    Measure("us/job", lambda s: (s.us_per_job,), 1),
)
SECONDS = (
    Measure("Jobs", lambda s: (s.jobs,), 0, None),
    Measure("Off p50", lambda s: (s.abs_error_p50_s,), 0, None),
    Measure("Off p90", lambda s: (s.abs_error_p90_s,), 0, None),
    Measure("Off mean", lambda s: (s.abs_error_s,), 0, None),
    Measure("Bias s", lambda s: (s.bias_s,), 0, None),
    Measure("Later %", lambda s: (100 * s.late_share,), 1, None),
)
ACCURACY_NOTE = (
    "Error: mean distance in powers of ten, 0.3 is a factor of 2, waits of at least 10 s; Hits: closest of 53 "
    "alternatives found; 2x: within a factor of 2; Pinball: loss of the nine quantiles, in powers of ten and in "
    "seconds; p50, p90: share of waits not above these; Blocks: p90's least and largest share in ten blocks of the "
    "trace."
)
COST_NOTE = (
    "Submitted the predicted wait ahead, a job is Late by so many seconds, or its cores Idle for so many core-hours, "
    "in the mean; Off: seconds between predicted and real wait, exceeded by half and by a tenth of the jobs; Regret: "
    "misses a job beyond those of the best fixed alternative of each geometry, and Theorem 1's Bound on it; us/job: "
    "processor time."
)
BEST_NOTE = "* best of its column; oracle: the truth as prediction, for reference."
SECONDS_NOTE = (
    "The scheduler's own estimate of the start less the real start, in seconds; without moments of submission the rest "
    "cannot be told. Off: its amount, exceeded by half and by a tenth of the jobs; Bias: its mean; Later: share of "
    "jobs that started later than estimated."
)


def render(scores: Sequence[Score]) -> RenderableType:
    """Draw two tables a trace: how well waits were predicted, and what it would cost to rely on that.

    `scores`: as `asa.studies.accuracy.study.evaluate` returns them. Of geometries the 20 with most jobs are shown.
    """
    traces = list(dict.fromkeys(score.trace for score in scores))
    names = short_names(traces)
    parts: list[RenderableType] = []
    ranked = False
    for trace in traces:
        here = [score for score in scores if score.trace == trace]
        if all(math.isnan(score.log10_error) for score in here):
            parts += [*_tables(names[trace], [("", here)], SECONDS), Text(f"{SECONDS_NOTE}\n", style="dim")]
            continue
        ranked = True
        sections = by_geometry(here)
        jobs = max(score.jobs for score in here)
        parts += [
            *_tables(f"{names[trace]}: {jobs:,} waits", sections, ACCURACY),
            *_tables(f"{names[trace]}: what relying on it costs", sections, COST),
        ]
    if ranked:
        parts.append(Text(f"{ACCURACY_NOTE} {COST_NOTE} {BEST_NOTE}", style="dim"))
    return Group(*parts)


def short_names(traces: Sequence[str]) -> dict[str, str]:
    """Names of files without their folders, where that tells them apart."""
    short = [Path(trace).name or trace for trace in traces]
    return {trace: name if short.count(name) == 1 else trace for trace, name in zip(traces, short, strict=True)}


def by_geometry(scores: Sequence[Score]) -> list[tuple[str, list[Score]]]:
    """Scores of the whole trace, then of the geometries of most jobs, each under its heading.

    Returns: a heading and its scores: first those of the whole trace, whose heading is empty, then those of at most
    20 geometries.
    """
    kinds: dict[str, list[Score]] = {}
    for score in scores:
        kinds.setdefault(score.geometry, []).append(score)
    whole = kinds.pop("", [])
    most = sorted(kinds.items(), key=lambda item: -item[1][0].jobs)[:_MOST_GEOMETRIES]
    labelled = [(f"{label}: {members[0].jobs:,} waits", members) for label, members in most]
    return [("", whole), *labelled]


def _tables(title: str, sections: Sequence[tuple[str, Sequence[Score]]], columns: Sequence[Measure]) -> list[Table]:
    """Draw a table a section, of equally wide columns."""
    every = [score for _, group in sections for score in group]
    told = [c for c in columns if any(not math.isnan(value) for score in every for value in c.values(score))]
    widths = [max(len(column.text(score)) + 1 for score in every) for column in told]
    tables = []
    for heading, group in sections:
        table = Table(
            title=heading or title,
            title_justify="left",
            title_style="italic" if heading else "bold",
            header_style="bold",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
        )
        table.add_column("Estimator", no_wrap=True, min_width=max(len(score.estimator) for score in every))
        for column, width in zip(told, widths, strict=True):
            table.add_column(column.heading, justify="right", no_wrap=True, min_width=width)
        for score in group:
            cells = [_cell(score, column, group) for column in told]
            table.add_row(score.estimator, *cells, style="dim" if score.estimator in REFERENCES else "")
        tables.append(table)
    return tables


def best_of(group: Sequence[Score], column: Measure) -> list[Score]:
    """Give those of a group that are best in a column, as it is shown; none if there are no rivals.

    `group`: scores of one geometry, or of a whole trace; references are no rivals.
    """
    rivals = [score for score in group if score.estimator not in REFERENCES]
    judged = [worst for worst in map(column.worst, rivals) if not math.isnan(worst)]
    if len(rivals) < 2 or not judged:
        return []
    return [score for score in rivals if column.worst(score) == min(judged)]


def _cell(score: Score, column: Measure, group: Sequence[Score]) -> Text:
    best = score in best_of(group, column)
    text = column.text(score)
    return Text(f"{text}*" if best else f"{text} ", style="bold green" if best else "")


# --- the figure -------------------------------------------------------------------------------------------------------

_HERO_COLOUR = "#000000"
_COLOURS = (  # told apart by colour-blind eyes
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#882255",
    "#999933",
    "#332288",
)
_DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = ("-", (0, (4, 1.5)), (0, (1, 1)))
_BAND_COLOUR = "#d9ead9"
_BAND = 0.02


def draw(scores: Sequence[Score], path: str | Path) -> None:
    """Draw for each trace the error and the coverage of p50 and p90 over time, and how p10 ... p90 hold.

    Lines are means of up to 40 blocks of equally many jobs. Bands show where a coverage should be, its level give or
    take 2 %. The last panel is of one estimator: ``asa``, or the first if that is not there.
    """
    whole = [score for score in scores if score.course is not None and score.estimator not in REFERENCES]
    if not whole:
        raise InputError(
            "there is no course over time to draw",
            where=str(path),
            hint="Evaluate a log that has moments of submission.",
        )
    traces = list(dict.fromkeys(score.trace for score in whole))
    names = short_names(traces)
    estimators = list(dict.fromkeys(score.estimator for score in whole))
    hero = _HERO if _HERO in estimators else estimators[0]
    styles = _styles(estimators, hero)
    figure = new_figure(15.0, 0.9 + 2.9 * len(traces))
    rows = figure.subplots(len(traces), 4, squeeze=False, width_ratios=[1.25, 1.25, 1.25, 0.8])
    for row, trace in zip(rows, traces, strict=True):
        _row(row, names[trace], [score for score in whole if score.trace == trace], hero, styles)
    handles: dict[str, Line2D] = {}
    for row in rows:
        for handle, label in zip(*row[0].get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        [handles[name] for name in estimators],
        estimators,
        loc="outside lower center",
        ncols=min(len(estimators), 12),
        frameon=False,
    )
    save_figure(figure, path)


def _styles(estimators: Sequence[str], hero: str) -> dict[str, dict[str, object]]:
    """Give each estimator a line of its own; the hero's stands out."""
    styles: dict[str, dict[str, object]] = {}
    for place, name in enumerate(other for other in estimators if other != hero):
        dashes = _DASHES[place // len(_COLOURS) % len(_DASHES)]
        styles[name] = {"color": _COLOURS[place % len(_COLOURS)], "linestyle": dashes, "linewidth": 1.0, "alpha": 0.85}
    styles[hero] = {"color": _HERO_COLOUR, "linestyle": "-", "linewidth": 2.2, "zorder": 5}
    return styles


def _row(
    panels: Sequence[Axes],
    trace: str,
    scores: Sequence[Score],
    hero: str,
    styles: Mapping[str, Mapping[str, object]],
) -> None:
    error, p50, p90, reliability = panels
    for panel, level in ((p50, 50), (p90, 90)):
        panel.axhspan(level - 100 * _BAND, level + 100 * _BAND, color=_BAND_COLOUR, zorder=0)
    for score in scores:
        course = score.course
        assert course is not None
        style = dict(styles[score.estimator])
        error.plot(course.day, course.log10_error, label=score.estimator, **style)  # type: ignore[arg-type]  # by name
        p50.plot(course.day, [100 * share for share in course.coverage_p50], **style)  # type: ignore[arg-type]  # same
        p90.plot(course.day, [100 * share for share in course.coverage_p90], **style)  # type: ignore[arg-type]  # same
    error.set_title(trace.removesuffix(".gz").removesuffix(".swf"), loc="left", fontweight="bold", fontsize="medium")
    error.set(ylabel="error, powers of ten", ylim=(0, None))
    p50.set(title="waits up to p50, %", ylim=(0, 100))
    p90.set(title="waits up to p90, %", ylim=(min([60.0, *_low(scores)]), 100))
    for panel in (error, p50, p90):
        panel.set_xlabel("days since the first submission")
        panel.margins(x=0.02)
    levels = [100 * level for level in LEVELS]
    one = next((score for score in scores if score.estimator == hero), scores[0])
    reliability.fill_between(
        [0, 100], [-100 * _BAND, 100 - 100 * _BAND], [100 * _BAND, 100 + 100 * _BAND], color=_BAND_COLOUR, zorder=0
    )
    reliability.plot(levels, [100 * share for share in one.coverage], marker="o", markersize=4, color=_HERO_COLOUR)
    reliability.set(
        title=f"{one.estimator}: p10 ... p90",
        xlabel="should cover, %",
        ylabel="covers, %",
        xlim=(0, 100),
        ylim=(0, 100),
        xticks=range(10, 100, 20),
        yticks=range(10, 100, 20),
        aspect="equal",
    )
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)


def _low(scores: Sequence[Score]) -> list[float]:
    """Where the shown part of the p90 panel has to begin: at the lowest block, in tens."""
    return [math.floor(10 * min(score.course.coverage_p90)) * 10.0 for score in scores if score.course is not None]
