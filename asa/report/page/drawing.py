"""Figures as SVG, without scripts. Their colours are variables of the page, so they follow its dark or light mode."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from asa.timeline import Lane, Timeline
from asa.units import format_duration

GANTT = (
    "One row per job, in the order of submission. Ruled: held by a dependency. Striped: pending in the queue. Dotted: "
    "holds cores that nothing uses. Coloured: runs its stages, a colour each. The diamond is the predicted start; a "
    "dashed diamond is the predicted end of the wait, where a dependency may hold the job for longer. An arrow at the "
    "right edge means a time beyond the chart. A cross: the job was cancelled before it started."
)
"""Explanation of the marks that `gantt` draws."""

_WIDTH = 760
_LINE = 17
_LETTER = 6.6
_WIDE_LETTER = 7.4  # width of a letter of the names next to points
_NAME = 20  # maximum number of letters of a name below a bar
_PALETTE = 9
_DASHES = 4
_FEW_SHADES = 40  # up to this number of rows of shades are tall enough for their names
_MAX_PARTS = 12  # maximum number of parts of a stacked bar in the legend
_NUMBERED = re.compile(r"(?<![\W_])[\W_]*+(?<!\d)\d++$")
_REST = re.compile(r"and \d+ more")
_EMPTY_UNIT = re.compile(r"(?<=[dhm])00[hms]$")
_DAY_S = 86_400.0
_MAX_DECIMALS = 18  # which tell all numbers of an axis apart
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, _DAY_S)


class _Canvas:
    """A drawing, built shape by shape."""

    def __init__(self, width: float, height: float, title: str, text: str) -> None:
        self.width, self.height = width, height
        self._label = f"{title}: {text}"
        self._pieces: list[str] = []
        self._legend: list[tuple[str, str]] = []  # a shape, and its meaning

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", kind: str = "", turn: float = 0) -> None:
        turned = f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
        known = f' class="{kind}"' if kind else ""
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{known}{turned}>{escape(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "rule") -> None:
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, text: str = "", more: str = "") -> None:
        tooltip = f"<title>{escape(text)}</title>" if text else ""
        piece = (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.8):.1f}" height="{height:.1f}" class="{kind}"{more}>'
        )
        self.add(f"{piece}{tooltip}</rect>")

    def svg(self) -> str:
        """Return an element with the legend, which wraps like text, and the drawing, which scrolls if too wide."""
        drawn = (
            f'<svg viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="group" aria-label="{escape(self._label)}">'
            f"{''.join(self._pieces)}</svg>"
        )
        if not self._legend:
            return drawn
        entries = "".join(
            f'<li><svg class="swatch" width="20" height="14" aria-hidden="true">{piece}</svg>{escape(words)}</li>'
            for piece, words in self._legend
        )
        return f'<div class="chart"><ul class="legend">{entries}</ul>{drawn}</div>'

    def legend(self, kinds: Mapping[str, str]) -> None:
        """Add entries to the legend: shapes and their meanings."""
        for words, kind in kinds.items():
            if kind.startswith("believed"):
                piece = f'<path d="M10 1 {_DIAMOND}" class="{kind}"/>'
            elif kind == "withdrawn":
                piece = f'<path d="M5 2 {_CROSS}" class="{kind}"/>'
            elif kind.startswith("mark "):
                piece = _mark(int(kind.removeprefix("mark ")), 10, 7)
            elif kind == "published" or kind.startswith("curve"):
                piece = f'<line x1="1" y1="7" x2="19" y2="7" class="{kind}"/>'
            else:
                piece = f'<rect x="3" y="1" width="14" height="11" class="{kind}"/>'
            self._legend.append((piece, words))


def _ticks(least: float, most: float, many: int = 6) -> list[float]:
    """Return round numbers in a range.

    Examples
    --------
    >>> _ticks(0, 23)
    [0.0, 5.0, 10.0, 15.0, 20.0]
    """
    span = most - least
    if not span > 0 or not math.isfinite(span):
        return [least]
    step = 10.0 ** math.floor(math.log10(span / many))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if span / (step * factor) <= many)
    first = math.ceil(least / step - 1e-9)
    return [i * step for i in range(first, math.floor(most / step + 1e-9) + 1)]


def _number(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.1e}"
    value += 0.0  # turns -0.0 into 0.0
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def _duration(seconds: float) -> str:
    """Format a duration, leaving out a second unit of zero.

    Examples
    --------
    >>> [_duration(seconds) for seconds in (0.0, 45.0, 7200.0, 129_600.0, 172_800.0)]
    ['0s', '45s', '2h', '1d12h', '2d']
    """
    return _EMPTY_UNIT.sub("", format_duration(seconds))


def _whole_duration(seconds: float) -> str:
    """Format a duration to the second, leaving out last units of zero.

    Examples
    --------
    >>> [_whole_duration(seconds) for seconds in (0.0, -45.0, 3600.0, 3690.0, 88_200.0)]
    ['0s', '-45s', '1h', '1h01m30s', '1d00h30m']
    """
    minutes, secs = divmod(abs(round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    amounts = list(zip((days, hours, minutes, secs), "dhms", strict=True))
    used = [place for place, (amount, _) in enumerate(amounts) if amount] or [3]
    first, *others = amounts[used[0] : used[-1] + 1]
    words = [f"{first[0]}{first[1]}", *(f"{amount:02d}{unit}" for amount, unit in others)]
    return f"{'-' if round(seconds) < 0 else ''}{''.join(words)}"


def _axis(least: float, most: float, many: int = 6, *, in_time: bool = True) -> list[tuple[float, str]]:
    """Return round values in a range, durations or numbers, each with its label; labels are as short as still differ.

    Examples
    --------
    >>> [label for _, label in _axis(3600.0, 3720.0)]
    ['1h', '1h00m30s', '1h01m', '1h01m30s', '1h02m']
    >>> [label for _, label in _axis(1000.0, 1001.0, in_time=False)]
    ['1,000.0', '1,000.2', '1,000.4', '1,000.6', '1,000.8', '1,001.0']
    """
    values = _durations(least, most, many) if in_time else _ticks(least, most, many)
    labels = [_duration(value) if in_time else _number(value) for value in values]
    for decimals in range(_MAX_DECIMALS):
        if len(set(labels)) == len(labels):
            break
        labels = [_whole_duration(value) if in_time else f"{value:,.{decimals}f}" for value in values]
    return list(zip(values, labels, strict=True))


def _powers(least: float, most: float) -> list[tuple[float, str]]:
    """Return the whole powers of 10 in a range, with their labels."""
    return [(power, _number(10.0**power)) for power in range(math.ceil(least), math.floor(most) + 1)]


def _durations(least_s: float, most_s: float, many: int = 6) -> list[float]:
    """Return round durations in a range.

    Examples
    --------
    >>> [_duration(seconds) for seconds in _durations(0.0, 20_000.0)]
    ['0s', '1h', '2h', '3h', '4h', '5h']
    """
    span_s = most_s - least_s
    step_s = next((step for step in _STEPS_S if span_s / step <= many), None)
    if step_s is None:
        return [_DAY_S * days for days in _ticks(least_s / _DAY_S, most_s / _DAY_S, many)]
    first = math.ceil(least_s / step_s - 1e-9)
    return [index * step_s for index in range(first, math.floor(most_s / step_s + 1e-9) + 1)]


# ---------------------------------------------------------------------- timelines of runs


def gantt(run: Timeline, title: str = "") -> str:
    """Draw the jobs of a run (pending, held, running), one row for each, with the predicted starts.

    Each bar can be selected by keyboard, which shows its details.

    `title`: description for screen readers; by default made from the run's name.
    """
    names = _lane_names(run.lanes)
    left = 16 + 7.2 * max(map(len, names), default=4)
    left = min(left, 210.0)
    row, top = 26, 8
    height = top + row * len(run.lanes) + 42
    text = f"{len(run.lanes)} jobs over {format_duration(run.end_s - run.begin_s)}"
    canvas = _Canvas(_WIDTH, height, title or f"Jobs of {run.run}", text)
    beliefs = [lane.belief for lane in run.lanes]
    most = max([run.end_s, *(belief[1] for belief in beliefs if belief)])
    most = min(most, run.begin_s + 1.5 * (run.end_s - run.begin_s))
    span = max(most - run.begin_s, 1.0)
    scale = (_WIDTH - left - 14) / span

    def x(time_s: float) -> float:
        return left + scale * (time_s - run.begin_s)

    base = top + row * len(run.lanes)
    for tick, words in _axis(0.0, span, 8):
        at = x(run.begin_s + tick)
        canvas.line(at, top - 6, at, base, "grid")
        canvas.text(at, base + 16, words, anchor="middle")
    canvas.text(left + (_WIDTH - left - 14) / 2, base + 34, "since the workflow was submitted", anchor="middle")
    colours: dict[str, int] = {}
    for index, (lane, belief) in enumerate(zip(run.lanes, beliefs, strict=True)):
        y = top + row * index
        canvas.text(left - 8, y + 16, _short(names[index], (left - 8) / 7.2), anchor="end")
        _spans(canvas, run, lane, y + 4, row - 9, x, colours)
        if belief is not None:
            _believed(canvas, run, lane, y + 1, x, most)
        if lane.was_withdrawn:
            canvas.add(f'<path d="M{x(lane.end_s) - 5:.1f} {y + 7:.1f} {_CROSS}" class="withdrawn"/>')
    kinds = {"pending": "bar pending", "idle": "bar held", "running": "bar running c0", "predicted start": "believed"}
    if any(part.kind == "kept" for lane in run.lanes for part in lane.spans):
        kinds = {_WORDS["kept"]: "bar kept"} | kinds
    if any(belief and belief[0] != "start" for belief in beliefs):
        kinds["predicted end of its wait"] = "believed wait"
    if any(lane.was_withdrawn for lane in run.lanes):
        kinds["cancelled before it started"] = "withdrawn"
    canvas.legend(kinds)
    return canvas.svg()


def _spans(
    canvas: _Canvas,
    run: Timeline,
    lane: Lane,
    y: float,
    high: float,
    x: Callable[[float], float],
    colours: dict[str, int],
) -> None:
    """Draw the spans of a job. A stage keeps the colour of its first bar."""
    for part in lane.spans:
        kind: str = part.kind
        if part.stage:
            kind = f"running c{colours.setdefault(part.stage, len(colours) % _PALETTE)}"
        what = part.stage or _WORDS[part.kind]
        since, until = (format_duration(time_s - run.begin_s) for time_s in (part.begin_s, part.end_s))
        label = (
            f"{what}: {since} to {until}, {format_duration(part.end_s - part.begin_s)}; {_cores(part.cores)}; "
            f"job {lane.job_id}, {lane.state}"
        )
        canvas.box(
            x(part.begin_s), y, x(part.end_s) - x(part.begin_s), high, f"bar {kind}", label,
            f' role="img" tabindex="0" aria-label="{escape(label)}"',
        )  # fmt: skip


def _believed(canvas: _Canvas, run: Timeline, lane: Lane, y: float, x: Callable[[float], float], most: float) -> None:
    """Mark the predicted start of a job, or the predicted end of its wait; if late, at the edge of the chart."""
    assert lane.belief is not None
    name, time_s = lane.belief
    label = f"{_BELIEVED[name]} at {format_duration(max(time_s - run.begin_s, 0.0))}"
    piece = f"M{x(time_s):.1f} {y:.1f} {_DIAMOND}"
    if time_s > most:
        label += ", beyond this chart"
        piece = f"M{x(most):.1f} {y:.1f} l10 6 l-10 6 z"
    canvas.add(
        f'<path d="{piece}" class="{_kind(name)}" role="img" tabindex="0" '
        f'aria-label="{escape(f"{_lane_name(lane.stages)}: {label}")}"><title>{escape(label)}</title></path>'
    )


_WAITING = "waiting"
_DIAMOND = "l5 6 l-5 6 l-5 -6 z"
_CROSS = "l10 10 m0 -10 l-10 10"
_WORDS = {"kept": "held by a dependency", "pending": "pending", "held": "idle", "running": "running"}
_BELIEVED = {"start": "predicted to start", "end of wait": "its wait was predicted to end"}


def _kind(belief: str) -> str:
    return "believed" if belief == "start" else "believed wait"


def _lane_name(stages: Sequence[str]) -> str:
    return stages[0] if len(stages) == 1 else f"{stages[0]} to {stages[-1]}" if stages else ""


def _lane_names(lanes: Sequence[Lane]) -> list[str]:
    """Name jobs by their stages; those of the same stages but other sizes also by their cores."""
    sizes: dict[str, set[int]] = {}
    for lane in lanes:
        sizes.setdefault(_lane_name(lane.stages), set()).add(lane.cores)
    names = [_lane_name(lane.stages) for lane in lanes]
    return [
        f"{name}, {_cores(lane.cores)}" if len(sizes[name]) > 1 else name
        for name, lane in zip(names, lanes, strict=True)
    ]


def _cores(many: int) -> str:
    return "1 core" if many == 1 else f"{many:,} cores"


def _short(text: str, most: float) -> str:
    return text if len(text) <= most else f"{text[: max(int(most) - 1, 1)]}…"


@dataclass(frozen=True, slots=True)
class Shade:
    """An amount that changes over time."""

    name: str
    begin_s: float
    end_s: float
    amounts: tuple[float, ...]  # mean amounts in equal parts of the time between begin and end
    words: str  # further details


def shades(rows: Sequence[Shade], span_s: float, title: str, text: str) -> str:
    """Draw a row for each amount, darker for larger amounts. Times are in seconds from the left edge."""
    left = min(16 + 7.2 * max((len(row.name) for row in rows), default=4), 210.0)
    high, top = (18, 8) if len(rows) <= _FEW_SHADES else (8, 8)
    canvas = _Canvas(_WIDTH, top + high * len(rows) + 42, title, text)
    scale, base = (_WIDTH - left - 14) / span_s, top + high * len(rows)
    for tick, words in _axis(0.0, span_s, 8):
        at = left + scale * tick
        canvas.line(at, top, at, base, "grid")
        canvas.text(at, base + 16, words, anchor="middle")
    canvas.text(left + (_WIDTH - left - 14) / 2, base + 34, "since the first began", anchor="middle")
    most = max([amount for row in rows for amount in row.amounts], default=0.0) or 1.0
    for index, row in enumerate(rows):
        y = top + high * index
        if len(rows) <= _FEW_SHADES:
            canvas.text(left - 8, y + 13, _short(row.name, (left - 8) / 7.2), anchor="end")
        wide = scale * span_s / max(len(row.amounts), 1)
        for number, amount in enumerate(row.amounts):
            if amount > 0:
                shade = f' style="fill-opacity:{max(amount / most, 0.06):.2f};stroke:none"'
                canvas.box(left + wide * number, y + 1, wide + 0.3, high - 2, "bar running c0", "", shade)
        since, until = map(format_duration, (row.begin_s, row.end_s))
        label = f"{row.name}: {row.words}, {since} to {until}"
        canvas.box(
            left + scale * row.begin_s, y + 1, scale * (row.end_s - row.begin_s), high - 2, "strip", label,
            f' style="fill-opacity:0" role="img" tabindex="0" aria-label="{escape(label)}"',
        )  # fmt: skip
    return canvas.svg()


# ---------------------------------------------------------------------- amounts


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, which may be stacked of parts. An interval may be drawn at its top."""

    # name and height of each part, from the bottom up; a single part may have an empty name
    parts: tuple[tuple[str, float], ...]
    low: float = math.nan  # bounds of the interval; nan if there is none
    high: float = math.nan


def bars(
    groups: Mapping[str, Mapping[str, Bar]],
    *,
    title: str,
    unit: str = "",
    published: Mapping[tuple[str, str], float] | None = None,
) -> str:
    """Draw groups of bars: each of one colour, or of parts with a colour each.

    `unit`: unit of the values; seconds by default.
    `published`: published values, by group and bar, drawn as marks.
    """
    marks = published or {}
    groups = _gathered(groups)
    amount = (lambda value: f"{_number(value)} {unit}") if unit else format_duration
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    parts = list(dict.fromkeys(part for group in groups.values() for bar in group.values() for part, _ in bar.parts))
    is_stacked = len(parts) > 1
    shown = sorted((part for part in parts if part), key=_is_rest) if is_stacked else series
    longest = min(max(map(len, series), default=0), _NAME)
    top, low = 14, max(72.0, 28 + 4 * longest) if is_stacked else 30.0
    left, plot = 76.0, 250.0
    canvas = _Canvas(_WIDTH, top + plot + low + 8, title, f"{len(groups)} groups of {len(series)}")
    kinds = {name: f"bar {_colour(index, name)}" for index, name in enumerate(shown)}
    canvas.legend(kinds | ({"published": "published"} if marks else {}))
    ends = [
        max(sum(value for _, value in bar.parts), bar.high if bar.high == bar.high else 0)
        for g in groups.values()
        for bar in g.values()
    ]
    most = 1.06 * max([*ends, *(value for value in marks.values()), 1e-12])

    def y(value: float) -> float:
        return top + plot * (1 - value / most)

    for tick, words in _axis(0.0, most, in_time=not unit):
        canvas.line(left, y(tick), _WIDTH - 8, y(tick), "grid")
        canvas.text(left - 6, y(tick) + 4, words, anchor="end")
    canvas.text(14, top + plot / 2, unit, anchor="middle", turn=-90)
    wide = (_WIDTH - left - 8) / max(len(groups), 1)
    for index, (name, group) in enumerate(groups.items()):
        begin, each = left + wide * index + 0.08 * wide, 0.84 * wide / max(len(series), 1)
        for number, key in enumerate(series):
            if key not in group:
                continue
            bar, x = group[key], begin + each * number
            total = 0.0
            for part, value in bar.parts:
                colour = _colour(shown.index(part) if is_stacked else number, part if is_stacked else key)
                label = f"{name}, {key}{f', {part}' if part and is_stacked else ''}: {amount(value)}"
                canvas.box(
                    x + 0.08 * each, y(total + value), 0.84 * each, y(total) - y(total + value), f"bar {colour}", label
                )
                total += value
            middle = x + each / 2
            if bar.low == bar.low:
                canvas.line(middle, y(bar.low), middle, y(bar.high), "whisker")
            if (name, key) in marks:
                canvas.line(x, y(marks[name, key]), x + each, y(marks[name, key]), "published")
            if is_stacked:
                canvas.text(middle, top + plot + 12, _short(key, _NAME), anchor="end", turn=-35)
        canvas.text(left + wide * (index + 0.5), top + plot + low, name, anchor="middle", kind="strong")
    canvas.line(left, top + plot, _WIDTH - 8, top + plot, "axis")
    return canvas.svg()


def _gathered(groups: Mapping[str, Mapping[str, Bar]]) -> Mapping[str, Mapping[str, Bar]]:
    """Merge parts until a legend can name them all: first those whose names differ by a number, then the shortest."""
    sums: dict[str, float] = {}
    for bar in (bar for group in groups.values() for bar in group.values()):
        for part, value in bar.parts:
            sums[part] = sums.get(part, 0.0) + value
    if len(sums) <= _MAX_PARTS:
        return groups
    alike: dict[str, list[str]] = {}
    for part in sums:
        alike.setdefault(_NUMBERED.sub("", part) or part, []).append(part)
    names = {part: part if len(of) == 1 else f"{stem} ({len(of)})" for stem, of in alike.items() for part in of}
    if len(alike) > _MAX_PARTS:
        by_name: dict[str, float] = {}
        for part, value in sums.items():
            by_name[names[part]] = by_name.get(names[part], 0.0) + value
        longest = sorted(by_name, key=lambda name: (name == _WAITING, by_name[name]))[1 - _MAX_PARTS :]
        rest = f"and {sum(name not in longest for name in names.values())} more"
        names = {part: name if name in longest else rest for part, name in names.items()}

    def renamed(bar: Bar) -> Bar:
        parts: list[tuple[str, float]] = []
        for part, value in bar.parts:
            if parts and parts[-1][0] == names[part]:
                parts[-1] = (names[part], parts[-1][1] + value)
            else:
                parts.append((names[part], value))
        return Bar(tuple(parts), bar.low, bar.high)

    return {name: {key: renamed(bar) for key, bar in group.items()} for name, group in groups.items()}


def _colour(place: int, name: str) -> str:
    if _is_rest(name):
        return "rest"
    return "pending" if name == _WAITING else f"c{place % _PALETTE}"


def _is_rest(name: str) -> bool:
    return _REST.fullmatch(name) is not None


def _curve(place: int) -> str:
    return f"curve s{place % _PALETTE} d{place % _DASHES}"


# ---------------------------------------------------------------------- points and curves


@dataclass(frozen=True, slots=True)
class Dot:
    """A point with a name, and with intervals if these are known."""

    name: str  # text next to it
    x: float
    y: float
    # lower and upper bound, drawn as whiskers; None if there is no interval
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None
    # index in the palette, equal in all drawings of the same item; by default the index among the points
    colour: int | None = None
    is_marked: bool = False  # whether a ring is drawn around it


def dots(
    points: Sequence[Dot],
    *,
    title: str,
    x_words: str,
    y_words: str,
    in_time: bool = False,
    joined: Sequence[int] = (),
) -> str:
    """Draw named points. Both axes are costs: points nearer to the lower left corner are better.

    `in_time`: whether the horizontal axis is in seconds.
    `joined`: indices of points that a line connects, in this order.
    """
    names = [_short(point.name, 2 * _NAME) for point in points]
    left, top, plot, right = 76.0, 16.0, 330.0, max(120.0, 12 + _WIDE_LETTER * max(map(len, names), default=0))
    canvas = _Canvas(_WIDTH, top + plot + 48, title, f"{len(points)} points")
    xs = [v for p in points for v in (p.x, *(p.x_interval or ()))]
    ys = [v for p in points for v in (p.y, *(p.y_interval or ()))]
    x, y = _scales(canvas, xs, ys, left, top, _WIDTH - left - right, plot, in_time=in_time)
    canvas.text(left + (_WIDTH - left - right) / 2, top + plot + 40, x_words, anchor="middle")
    canvas.text(14, top + plot / 2, y_words, anchor="middle", turn=-90)
    for one, other in pairwise([points[index] for index in joined]):
        canvas.line(x(one.x), y(one.y), x(other.x), y(other.y), "joint")
    order = sorted(range(len(points)), key=lambda place: -points[place].y)
    spread = _apart([y(points[place].y) + 4 for place in order], _LINE - 3, top + plot + 4)
    for place, at in zip(order, spread, strict=True):
        dot = points[place]
        colour = (place if dot.colour is None else dot.colour) % _PALETTE
        if dot.x_interval:
            canvas.line(x(dot.x_interval[0]), y(dot.y), x(dot.x_interval[1]), y(dot.y), f"whisker s{colour}")
        if dot.y_interval:
            canvas.line(x(dot.x), y(dot.y_interval[0]), x(dot.x), y(dot.y_interval[1]), f"whisker s{colour}")
        label = f"{dot.name}: {format_duration(dot.x) if in_time else _number(dot.x)}, {_number(dot.y)}"
        canvas.add(
            f'<circle cx="{x(dot.x):.1f}" cy="{y(dot.y):.1f}" r="5" class="bar c{colour}" role="img" tabindex="0" '
            f'aria-label="{escape(label)}"><title>{escape(label)}</title></circle>'
        )
        if dot.is_marked:
            canvas.add(f'<circle cx="{x(dot.x):.1f}" cy="{y(dot.y):.1f}" r="8.5" class="ring"/>')
        canvas.line(x(dot.x) + 5, y(dot.y), _WIDTH - right + 4, at - 4, "leader")
        canvas.text(_WIDTH - right + 8, at, names[place])
    return canvas.svg()


def _apart(wanted: Sequence[float], gap: float, most: float) -> list[float]:
    """Shift ascending positions until each is a gap away from the next and the last is within the upper bound.

    Examples
    --------
    >>> _apart([1.0, 2.0, 30.0], 10.0, 30.0)
    [1.0, 11.0, 30.0]
    >>> _apart([28.0, 29.0, 30.0], 10.0, 30.0)
    [10.0, 20.0, 30.0]
    """
    placed: list[float] = []
    for at in wanted:
        placed.append(max(at, placed[-1] + gap) if placed else at)
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], most - gap * (len(placed) - 1 - index))
    return placed


def curves(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x_words: str,
    y_words: str,
    steps: bool = False,
    powers: bool = False,
) -> str:
    """Draw curves over one horizontal axis.

    `powers`: whether the vertical axis is logarithmic; values of 0 or less are drawn at its foot.
    """
    if powers:
        least = min((b for points in lines.values() for _, b in points if b > 0), default=1.0)
        lines = {name: [(a, math.log10(max(b, least))) for a, b in points] for name, points in lines.items()}
    left, top, plot = 76.0, 14.0, 260.0
    canvas = _Canvas(_WIDTH, top + plot + 48, title, f"{len(lines)} curves")
    canvas.legend({name: _curve(index) for index, name in enumerate(lines)})
    xs = [a for points in lines.values() for a, _ in points]
    ys = [b for points in lines.values() for _, b in points]
    x, y = _scales(canvas, xs, ys, left, top, _WIDTH - left - 12, plot, powers=powers)
    canvas.text(left + (_WIDTH - left) / 2, top + plot + 40, x_words, anchor="middle")
    canvas.text(14, top + plot / 2, y_words, anchor="middle", turn=-90)
    for index, (name, points) in enumerate(lines.items()):
        path = ""
        for number, (a, b) in enumerate(points):
            if number and steps:
                path += f"H{x(a):.1f}"
            path += f"{'L' if number else 'M'}{x(a):.1f} {y(b):.1f}"
        canvas.add(f'<path d="{path}" class="{_curve(index)}"><title>{escape(name)}</title></path>')
    return canvas.svg()


# around the origin; each series has a symbol besides its colour, for readers who cannot tell the colours apart
_SYMBOLS = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "M-4.5 -4.5h9v9h-9z",
    "M0 -6l5.5 10h-11z",
    "M0 -6.2l5.6 6.2l-5.6 6.2l-5.6 -6.2z",
    "M0 6l5.5 -10h-11z",
    "M-5.5 -1.8h3.7v-3.7h3.6v3.7h3.7v3.6h-3.7v3.7h-3.6v-3.7h-3.7z",
)


def strips(
    rows: Mapping[str, Mapping[str, float]],
    *,
    title: str,
    x_words: str,
    goal: float | None = None,
    intervals: Mapping[tuple[str, str], tuple[float, float]] | None = None,
    in_time: bool = False,
) -> str:
    """Draw a row for each item, with a mark for each of its values.

    `intervals`: bounds by item and name of the value, drawn as whiskers. Each mark then has its own line in the row.
    `in_time`: whether values are seconds.
    """
    whiskers = intervals or {}
    written = format_duration if in_time else _number
    of = list(dict.fromkeys(name for values in rows.values() for name in values))
    each = 9.0  # distance between the lines of a row, if its marks have a line each
    row, top = (each * max(len(of), 1) + 10 if whiskers else 24.0), 14.0
    left = 20 + _LETTER * max((len(name) for name in rows), default=4)
    plot = row * len(rows)
    canvas = _Canvas(_WIDTH, top + plot + 48, title, f"{len(rows)} rows of {len(of)}")
    canvas.legend({name: f"mark {index}" for index, name in enumerate(of)})
    values = [value for entries in rows.values() for value in entries.values()]
    ends = [end for interval in whiskers.values() for end in interval]
    low, high = _ends([*values, *ends, *([] if goal is None else [goal])])

    def at(value: float) -> float:
        return left + (_WIDTH - left - 14) * (value - low) / (high - low)

    for tick, words in _axis(low, high, 8, in_time=in_time):
        canvas.line(at(tick), top, at(tick), top + plot, "grid")
        canvas.text(at(tick), top + plot + 18, words, anchor="middle")
    canvas.text((left + _WIDTH) / 2, top + plot + 40, x_words, anchor="middle")
    if goal is not None:
        canvas.line(at(goal), top, at(goal), top + plot, "published")
    for index, (name, entries) in enumerate(rows.items()):
        y = top + row * (index + 0.5)
        canvas.text(left - 10, y + 4, name, anchor="end")
        if whiskers:
            canvas.line(left, y + row / 2, _WIDTH - 14, y + row / 2, "grid")
        else:
            canvas.line(left, y, _WIDTH - 14, y, "grid")
        for key, value in entries.items():
            mark = of.index(key)
            own_y = y + each * (mark - (len(of) - 1) / 2) if whiskers else y
            text = f"{name}, {key}: {written(value)}"
            if interval := whiskers.get((name, key)):
                canvas.line(at(interval[0]), own_y, at(interval[1]), own_y, f"whisker s{mark % _PALETTE}")
                text += f" ({written(interval[0])} to {written(interval[1])})"
            canvas.add(_mark(mark, at(value), own_y, text))
    return canvas.svg()


def _mark(place: int, x: float, y: float, text: str = "") -> str:
    piece = (
        f'<path d="{_SYMBOLS[place % len(_SYMBOLS)]}" transform="translate({x:.1f} {y:.1f})" '
        f'class="bar c{place % _PALETTE}"'
    )
    if not text:
        return f"{piece}/>"
    label = escape(text)
    return f'{piece} role="img" tabindex="0" aria-label="{label}"><title>{label}</title></path>'


def _scales(
    canvas: _Canvas,
    xs: Sequence[float],
    ys: Sequence[float],
    left: float,
    top: float,
    wide: float,
    high: float,
    *,
    powers: bool = False,
    in_time: bool = False,
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Draw the axes. Return two functions from values to positions."""
    x0, x1 = _ends(xs)
    y0, y1 = (min(ys, default=0.0) - 0.1, max(ys, default=1.0) + 0.1) if powers else _ends(ys)

    def x(value: float) -> float:
        return left + wide * (value - x0) / (x1 - x0)

    def y(value: float) -> float:
        return top + high * (1 - (value - y0) / (y1 - y0))

    for tick, words in _powers(y0, y1) if powers else _axis(y0, y1, in_time=False):
        canvas.line(left, y(tick), left + wide, y(tick), "grid")
        canvas.text(left - 6, y(tick) + 4, words, anchor="end")
    for tick, words in _axis(x0, x1, 8, in_time=in_time):
        canvas.line(x(tick), top, x(tick), top + high, "grid")
        canvas.text(x(tick), top + high + 18, words, anchor="middle")
    canvas.line(left, top + high, left + wide, top + high, "axis")
    canvas.line(left, top, left, top + high, "axis")
    return x, y


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis: slightly beyond the values, or 0 where the smallest is near 0."""
    least, most = min(values, default=0.0), max(values, default=1.0)
    if 0 <= least <= 0.4 * most:
        least = 0.0
    # sums of the same numbers in another order differ in their last digits
    is_one = most - least <= 1e-9 * max(abs(most), abs(least))
    room = max(0.06 * abs(most), 0.5) if is_one else 0.06 * (most - least)
    return (least - room if least else 0.0), most + room


def kiviat(methods: Mapping[str, Sequence[float]], axes: Sequence[str], *, title: str) -> str:
    """Draw each method on several axes from 0 in the centre to 1 outside. Farther out is better."""
    top, radius = 30.0, 130.0
    cx, cy = _WIDTH / 2, top + radius
    canvas = _Canvas(_WIDTH, cy + radius + 34, title, f"{len(methods)} methods on {len(axes)} axes")
    canvas.legend({name: _curve(place) for place, name in enumerate(methods)})

    def at(place: int, share: float) -> tuple[float, float]:
        turn = 2 * math.pi * place / len(axes) - math.pi / 2
        return cx + radius * share * math.cos(turn), cy + radius * share * math.sin(turn)

    for share in (0.25, 0.5, 0.75, 1.0):
        ring = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(place, share) for place in range(len(axes))))
        canvas.add(f'<polygon points="{ring}" class="ring"/>')
    for place, words in enumerate(axes):
        x, y = at(place, 1.0)
        canvas.line(cx, cy, x, y, "grid")
        side = "middle" if abs(x - cx) < 2 else "start" if x > cx else "end"
        tx, ty = at(place, 1.08)
        canvas.text(tx, ty + (0 if y < cy - 2 else 10), words, anchor=side)
    for number, (name, shares) in enumerate(methods.items()):
        ring = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(place, share) for place, share in enumerate(shares)))
        canvas.add(f'<polygon points="{ring}" class="{_curve(number)}"><title>{escape(name)}</title></polygon>')
    return canvas.svg()
