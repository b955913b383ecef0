"""The tables and the figure of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from asa.errors import InputError
from asa.studies import present
from asa.studies.accuracy.scores import Score
from asa.studies.present import Figure, Look, Panel, PlottedSeries, Row, Table
from asa.units import format_duration, parse_duration
from asa.waits import LEVELS

REFERENCES = ("oracle", "scheduler")  # shown with the estimators, but not ranked
_HERO = "asa"
_MAX_GEOMETRIES = 20


@dataclass(frozen=True, slots=True)
class ScoreMeasure:
    """A column: its content, and how far a cell is from perfect if the column has a best."""

    heading: str
    shown: Callable[[Score], tuple[float, ...]]  # numbers of a cell: one, or the ends of a range
    decimals: int | None = 0  # None for seconds, which are written as durations
    # distance of a number from perfect; None if no number is better than another
    badness: Callable[[float], float] | None = abs

    def values(self, score: Score) -> tuple[float, ...]:
        """Return the numbers of a cell as they are shown, so that cells that look equal are equally good."""
        if self.decimals is None:
            return tuple(map(_as_written, self.shown(score)))
        return tuple(round(value, self.decimals) for value in self.shown(score))

    def text(self, score: Score) -> str:
        """Format a cell."""
        values = self.values(score)
        if any(map(math.isnan, values)):
            return "-"
        return "-".join(present.number(value, self.decimals) for value in values)

    def worst(self, score: Score) -> float:
        """Return how far a cell is from perfect; nan if this is not known or not defined."""
        values = self.values(score)
        if self.badness is None or any(map(math.isnan, values)):
            return math.nan
        return max(map(self.badness, values))


def _as_written(seconds: float) -> float:
    """Return the seconds of a duration after it was formatted."""
    if math.isnan(seconds):
        return seconds
    return math.copysign(parse_duration(format_duration(abs(seconds))), seconds) + 0.0  # no minus before zero


def _missing(of: float) -> Callable[[float], float]:
    """Return a function that tells how far a percentage is from its target, at the precision shown."""
    return lambda value: round(abs(value - of), 6)


ACCURACY = (
    ScoreMeasure("Error", lambda s: (s.log10_error,), 3),
    ScoreMeasure("Hits %", lambda s: (100 * s.hit_ratio,), 1, _missing(100)),
    ScoreMeasure("2x %", lambda s: (100 * s.within_2x,), 1, _missing(100)),
    ScoreMeasure("Pinball", lambda s: (s.pinball_log10,), 3),
    ScoreMeasure("Pinball time", lambda s: (s.pinball_s,), None),
)
STATED = (
    ScoreMeasure("In p50 %", lambda s: (100 * s.within_p50,), 1, None),
    ScoreMeasure("In p90 %", lambda s: (100 * s.within_p90,), 1, None),
    ScoreMeasure("Cover p50 %", lambda s: (100 * s.coverage_at(0.5),), 1, _missing(50)),
    ScoreMeasure("Cover p90 %", lambda s: (100 * s.coverage_at(0.9),), 1, _missing(90)),
    ScoreMeasure("Blocks", lambda s: tuple(100 * share for share in s.coverage_p90_range), 0, _missing(90)),
)
COST = (
    ScoreMeasure("Late", lambda s: (s.late_s,), None),
    ScoreMeasure("Idle c-h", lambda s: (s.idle_core_h,), 2),
    ScoreMeasure("Off p50", lambda s: (s.abs_error_p50_s,), None),
    ScoreMeasure("Off p90", lambda s: (s.abs_error_p90_s,), None),
    ScoreMeasure("Regret", lambda s: (s.regret_per_job,), 3, lambda value: value),
    ScoreMeasure("Bound", lambda s: (s.regret_bound_per_job,), 3, None),
    ScoreMeasure("us/job", lambda s: (s.us_per_job,), 1),
)
SECONDS = (
    ScoreMeasure("Jobs", lambda s: (s.jobs,), 0, None),
    ScoreMeasure("Off p50", lambda s: (s.abs_error_p50_s,), None, None),
    ScoreMeasure("Off p90", lambda s: (s.abs_error_p90_s,), None, None),
    ScoreMeasure("Off mean", lambda s: (s.abs_error_s,), None, None),
    ScoreMeasure("Bias", lambda s: (s.bias_s,), None, None),
    ScoreMeasure("Later %", lambda s: (100 * s.late_share,), 1, None),
)
ACCURACY_NOTE = (
    "Error: mean of |log10(predicted / real wait)|, waits below 10 s taken as 10 s; 0.3 is a factor of 2. Hits: share "
    "of predictions that are the closest of the paper's 53 alternatives. 2x: share within a factor of 2. Pinball: "
    "pinball loss, averaged over nine quantiles, of log10 of the wait; and of the wait itself, as a time."
)
STATED_NOTE = (
    "In p50, p90: share of jobs that waited no longer than the predicted quantile. Cover: the same, except that waits "
    "equal to several predicted quantiles count for each in part, so that a right p50 covers 50 % even where many jobs "
    "do not wait. Blocks: the smallest and the largest coverage of p90 in ten consecutive blocks of the log."
)
COST_NOTE = (
    "If each job were submitted its predicted wait before it is needed: Late, how much too late it would start on "
    "average; Idle, the core-hours a job that would start early and idle. Off: the difference between predicted and "
    "real wait that half (p50), or a tenth (p90), of the jobs exceed. Regret: misses per job more than those of the "
    "best fixed alternative of each geometry; Bound: the upper bound on it by Theorem 1. us/job: processor time."
)
BEST_NOTE = "* best of its column. oracle: predicts the real wait; for reference."
SECONDS_NOTE = (
    "The scheduler's own predicted start, less the real start; without times of submission the rest cannot be scored. "
    "Off: the difference that half (p50), or a tenth (p90), of the jobs exceed. Bias: its mean. Later: share of jobs "
    "that started later than predicted."
)


def render(scores: Sequence[Score]) -> RenderableType:
    """Return three tables for each trace: errors of predictions, predicted quantiles, costs of relying on them.

    `scores`: from `asa.studies.accuracy.study.evaluate`. Only the 20 geometries with most jobs are shown.
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
            *_tables(f"{names[trace]}: predicted quantiles", sections, STATED),
            *_tables(f"{names[trace]}: what errors cost", sections, COST),
        ]
    if ranked:
        parts.append(Text(f"{ACCURACY_NOTE} {STATED_NOTE} {COST_NOTE} {BEST_NOTE}", style="dim"))
    return Group(*parts)


def short_names(traces: Sequence[str]) -> dict[str, str]:
    """Return the names of files without their folders, if these are unique."""
    short = [Path(trace).name or trace for trace in traces]
    return {trace: name if short.count(name) == 1 else trace for trace, name in zip(traces, short, strict=True)}


def by_geometry(scores: Sequence[Score]) -> list[tuple[str, list[Score]]]:
    """Return the scores of the whole trace, then of the geometries with most jobs, each with a heading.

    Returns: headings with scores: an empty heading for the whole trace, then at most 20 geometries.
    """
    kinds: dict[str, list[Score]] = {}
    for score in scores:
        kinds.setdefault(score.geometry, []).append(score)
    whole = kinds.pop("", [])
    most = sorted(kinds.items(), key=lambda item: -item[1][0].jobs)[:_MAX_GEOMETRIES]
    labelled = [(f"{label}: {members[0].jobs:,} waits", members) for label, members in most]
    return [("", whole), *labelled]


def _tables(
    title: str, sections: Sequence[tuple[str, Sequence[Score]]], columns: Sequence[ScoreMeasure]
) -> list[Table]:
    """Yield a table for each section, with columns of equal widths."""
    every = [score for _, group in sections for score in group]
    shown = [c for c in columns if any(not math.isnan(value) for score in every for value in c.values(score))]
    widths = [max(len(column.text(score)) + 1 for score in every) for column in shown]
    return [
        Table(
            ["Estimator", *(column.heading for column in shown)],
            [
                Row(
                    [score.estimator, *(_cell(score, column, group) for column in shown)],
                    "dim" if score.estimator in REFERENCES else "",
                )
                for score in group
            ],
            heading or title,
            "italic" if heading else "bold",
            wraps=(),
            widths=[max(len(score.estimator) for score in every), *widths],
        )
        for heading, group in sections
    ]


def best_of(group: Sequence[Score], column: ScoreMeasure) -> list[Score]:
    """Return the best scores of a group in a column, as they are shown; none if there are no rivals.

    `group`: scores of one geometry, or of a whole trace; references are no rivals.
    """
    rivals = [score for score in group if score.estimator not in REFERENCES]
    judged = [worst for worst in map(column.worst, rivals) if not math.isnan(worst)]
    if len(rivals) < 2 or not judged:
        return []
    return [score for score in rivals if column.worst(score) == min(judged)]


def _cell(score: Score, column: ScoreMeasure, group: Sequence[Score]) -> Text:
    best = score in best_of(group, column)
    text = column.text(score)
    return Text(f"{text}*" if best else f"{text} ", style="bold green" if best else "")


# --- the figure -------------------------------------------------------------------------------------------------------

_LOOKS = {"_band": Look("#d9ead9"), "_shares": Look("#000000", marker="o")}
_WIDE = 2.0  # half width of the band, in percent


def draw(scores: Sequence[Score], path: str | Path) -> None:
    """Draw for each trace the error and the coverage of p50 and p90 over time, and the coverage of p10 ... p90.

    Lines are means of up to 40 blocks with equally many jobs. Bands show the target of a coverage: its level plus or
    minus 2 %. The last panel shows one estimator: ``asa``, or the first without it.
    """
    whole = [score for score in scores if score.course is not None and score.estimator not in REFERENCES]
    if not whole:
        raise InputError(
            "there is no course over time to draw",
            where=str(path),
            hint="Evaluate a log that has times of submission.",
        )
    traces = list(dict.fromkeys(score.trace for score in whole))
    names = short_names(traces)
    estimators = list(dict.fromkeys(score.estimator for score in whole))
    hero = _HERO if _HERO in estimators else estimators[0]
    panels = []
    for trace in traces:
        here = [score for score in whole if score.trace == trace]
        shown = next((score for score in here if score.estimator == hero), here[0])
        title = names[trace].removesuffix(".gz").removesuffix(".swf")
        panels += [*_courses(title, here), _reliability(shown)]
    looks = _LOOKS | {name: Look(width=1.0, opacity=0.85) for name in estimators}
    looks[hero] = Look("#000000", "-", width=2.2, is_above=True)
    widths = (1.25, 1.25, 1.25, 0.8)
    present.draw(Figure(panels, (15.0, 0.9 + 2.9 * len(traces)), 4, looks=looks, widths=widths), path)


def _courses(trace: str, scores: Sequence[Score]) -> list[Panel]:
    """Return panels of the error, and of the coverage of p50 and p90, over time."""
    courses = {score.estimator: score.course for score in scores if score.course is not None}
    last = max(course.day[-1] for course in courses.values())
    lowest = min(math.floor(10 * min(course.coverage_p90)) * 10.0 for course in courses.values())
    x = "days since the first submission"
    errors = [PlottedSeries(name, course.log10_error, course.day) for name, course in courses.items()]
    panels = [Panel(errors, trace, x, "error, powers of ten", y_limits=(0, None))]
    for level, least in ((50, 0.0), (90, min(60.0, lowest))):
        band = PlottedSeries("_band", [level + _WIDE] * 2, [0, last], kind="area", bottoms=[level - _WIDE] * 2)
        lines = [
            PlottedSeries(name, [100 * share for share in getattr(course, f"coverage_p{level}")], course.day)
            for name, course in courses.items()
        ]
        panels.append(Panel([band, *lines], f"waits up to p{level}, %", x, y_limits=(least, 100)))
    return panels


def _reliability(score: Score) -> Panel:
    """Return a panel of the shares of waits within each predicted quantile."""
    shares = PlottedSeries("_shares", [100 * share for share in score.coverage], [100 * level for level in LEVELS])
    band = PlottedSeries("_band", [_WIDE, 100 + _WIDE], [0, 100], kind="area", bottoms=[-_WIDE, 100 - _WIDE])
    title = f"{score.estimator}: p10 ... p90"
    return Panel([band, shares], title, "should cover, %", "covers, %", x_limits=(0, 100), y_limits=(0, 100))
