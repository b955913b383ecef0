"""Presents the results of studies: tables in a terminal and on a page, figures, numbers as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import rich.table
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD

from asa.core import documents
from asa.core.console import Console
from asa.core.drawing import new_figure, save_figure
from asa.core.intervals import Interval
from asa.report.intervals import plain
from asa.units import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.text import Text

    from asa.report.page.drawing import Bar

# ---------------------------------------------------------------------- numbers


def number(value: float, digits: int | None, sign: Literal["", "+"] = "") -> str:
    """Format a number, without a signed zero; unknown numbers become a hyphen.

    `digits`: decimals; None for seconds, which are written as durations.

    Examples
    --------
    >>> number(1234.5, 1), number(-0.04, 1, "+"), number(math.nan, 1), number(5400.0, None, "+")
    ('1,234.5', '+0.0', '-', '+1h30m')
    """
    if math.isnan(value):
        return "-"
    if digits is None:
        return f"{sign if round(value) >= 0 else ''}{format_duration(value)}"
    return f"{plain(value, digits):{sign},.{digits}f}"


def plus_minus(interval: Interval, digits: int | None, sign: Literal["", "+"] = "") -> str:
    """Format a mean and half its interval, if it has one; `digits` as in `number`.

    Examples
    --------
    >>> plus_minus(Interval(2.0, 1.5, 2.5), 1), plus_minus(Interval(7200.0, 5400.0, 9000.0), None)
    ('2.0 +-0.5', '2h00m +-30m00s')
    """
    if math.isnan(interval.mean):
        return "-"
    half = "" if math.isnan(interval.half) else f" +-{number(interval.half, digits)}"
    return f"{number(interval.mean, digits, sign)}{half}"


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of an outcome."""

    name: str  # name of the outcome's field
    words: str
    scale: float = 1.0  # factor that converts the value into this unit
    unit: str = ""
    digits: int | None = 2  # decimals; None for seconds, which are written as durations
    is_loss: bool = False  # whether less is better

    def scaled(self, interval: Interval) -> Interval:
        """Convert an interval into the unit that is shown."""
        scale = self.scale
        return Interval(scale * interval.mean, scale * interval.low, scale * interval.high, interval.freedom)


def print_json(document: Any) -> None:
    """Print a document, all of whose numbers must be finite."""
    documents.print_json(document, allow_nan=False)


def shares_of_best(means: Sequence[Sequence[float]], is_loss: Sequence[bool]) -> NDArray[np.float64]:
    """Normalise measures as in Kiviat diagrams: 1 for the best value of each column, 0 for the worst.

    If less is better, reciprocals are taken. If all values are equal, all are best.
    """
    goods = np.where(is_loss, 1 / np.maximum(means, 1e-9), means)
    spread = np.ptp(goods, axis=0)
    is_one = spread <= 1e-9 * np.abs(goods).max(axis=0)
    shares: NDArray[np.float64] = np.where(is_one, 1.0, (goods - goods.min(axis=0)) / np.where(is_one, 1.0, spread))
    return shares


# ---------------------------------------------------------------------- tables in a terminal


class Row(NamedTuple):
    """A row with its own style; plain sequences of cells have none."""

    cells: Sequence[str | Text]
    style: str = ""
    begins_section: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table for a terminal: names of rows at the left, their numbers at the right."""

    headings: Sequence[str]
    rows: Iterable[Row | Sequence[str | Text]]
    title: str = ""
    title_style: str = "bold"
    left: Collection[int] = (0,)  # indices of columns with text
    wraps: Collection[int] | None = None  # indices of columns whose cells may wrap; by default all
    widths: Sequence[int | None] = ()  # minimum widths
    is_ruled: bool = True  # whether there is a line below the headings
    is_wide: bool = False  # whether each column has space on both sides
    is_open: bool = False  # whether there is no space above and below
    width: int | None = None  # minimum width of the table, with space on both sides

    def __rich__(self) -> rich.table.Table:
        """Return a rich table."""
        table = rich.table.Table(
            title=self.title or None,
            title_justify="left",
            title_style=self.title_style,
            box=SIMPLE_HEAD if self.is_ruled else None,
            header_style="bold",
            padding=(0, 1, 0, 1) if self.is_wide else (0, 1 if self.is_ruled else 2, 0, 0),
            pad_edge=self.width is not None,
            show_edge=not self.is_open,
            min_width=self.width,
        )
        for index, heading in enumerate(self.headings):
            is_left, wraps = index in self.left, self.wraps is None or index in self.wraps
            table.add_column(
                heading,
                justify="left" if is_left else "right",
                overflow="ellipsis" if self.is_ruled or not is_left else "fold",
                no_wrap=not wraps,
                min_width=self.widths[index] if self.widths else None,
            )
        for given in self.rows:
            row = given if isinstance(given, Row) else Row(given)
            if row.begins_section:
                table.add_section()
            table.add_row(*row.cells, style=row.style)
        return table


def console() -> Console:
    """Return a console on which numbers have no colours."""
    return Console(highlight=False)


# ---------------------------------------------------------------------- figures

# distinguishable by colour-blind readers
_COLOURS: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#882255", "#999933",
)  # fmt: skip
_DASHES: Final = ("-", "--", ":")
_GREY: Final = "#444444"
_LEGEND_LINE_IN, _LEGEND_LETTER_IN = 0.7, 0.065  # widths of an entry of the legend without its name, and of a letter


@dataclass(frozen=True, slots=True)
class Look:
    """The style of a series."""

    colour: str = ""  # by default the colour of the name's index in the figure
    dashes: Any = ""  # as in matplotlib; by default likewise
    hatch: str = ""
    marker: str = ""
    width: float = 1.3
    opacity: float = 1.0
    is_filled: bool = False  # whether its area is filled in a Kiviat diagram
    is_above: bool = False  # whether it is drawn above the others


@dataclass(frozen=True, slots=True)
class PlottedSeries:
    """A series of numbers with a name."""

    name: str  # name in the legend, which leaves out names that begin with an underscore
    ys: Sequence[float]
    xs: Sequence[float] | None = None  # by default 0, 1, 2, ...
    kind: Literal["line", "step", "bar", "bar across", "point", "area", "area of steps"] = "line"
    bottoms: Sequence[float] | None = None  # lower ends of bars and areas; by default 0
    width: float = 0.8  # of bars
    labels: Sequence[str] = ()  # above bars
    marked: Sequence[int] | None = None  # indices of the points that have the line's marker; by default all
    # intervals of points: distances to either side
    x_bounds: Sequence[tuple[float, float]] = ()
    y_bounds: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """Axes with series; with spokes it is a Kiviat diagram, from 0 in the centre to 1."""

    series: Sequence[PlottedSeries]
    title: str = ""
    x: str = ""  # labels of the axes
    y: str = ""
    names: Sequence[str] = ()  # names of the positions 0, 1, 2, ... on the lower axis; of bars across, from the top
    x_limits: tuple[float | None, float | None] = (None, None)
    y_limits: tuple[float | None, float | None] = (None, None)
    is_log: bool = False  # whether the vertical axis is logarithmic
    level: float | None = None  # positions of a thin horizontal line, and of a vertical one
    upright: float | None = None
    spokes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """Panels, arranged in rows."""

    panels: Sequence[Panel]
    size: tuple[float, float]  # inches
    columns: int = 0  # number of columns; 0 for a single row
    title: str = ""
    x: str = ""  # label below all panels
    looks: Mapping[str, Look] = field(default_factory=dict)  # by name
    share_x: Literal["none", "all", "row", "col"] = "none"  # as in matplotlib
    share_y: Literal["none", "all", "row", "col"] = "none"
    widths: Sequence[float] = ()  # relative widths of the columns
    slanted: bool = False  # whether names of positions are slanted


def draw(figure: Figure, path: str | Path) -> None:
    """Draw a figure into a file; its suffix gives the format."""
    columns = figure.columns or len(figure.panels)
    drawn = new_figure(*figure.size)
    grid = drawn.subplots(
        -(-len(figure.panels) // columns),
        columns,
        squeeze=False,
        sharex=figure.share_x,
        sharey=figure.share_y,
        width_ratios=list(figure.widths) or None,
        subplot_kw={"projection": "polar"} if figure.panels[0].spokes else {},
    )
    names = dict.fromkeys(series.name for panel in figure.panels for series in panel.series)
    looks = {name: _look(figure.looks.get(name, Look()), index) for index, name in enumerate(names)}
    for axes in grid.flat[len(figure.panels) :]:
        axes.set_visible(False)
    panels = list(zip(grid.flat, figure.panels, strict=False))
    for axes, panel in panels:
        for series in panel.series:
            (_spoke if panel.spokes else _draw)(axes, series, looks[series.name])
    for index, (axes, panel) in enumerate(panels):  # only now the limits of shared axes are known
        (_web if panel.spokes else _frame)(axes, panel)
        if any(series.kind == "bar across" for series in panel.series):
            axes.set_yticks(range(len(panel.names)), panel.names)
            axes.invert_yaxis()
        elif panel.names:
            slant: dict[str, Any] = {"rotation": 35, "ha": "right"} if figure.slanted else {}
            axes.set_xticks(range(len(panel.names)), panel.names, **slant)
        if figure.share_x != "none" and index + columns < len(panels):
            axes.set_xlabel("")
        if figure.share_y != "none" and index % columns:
            axes.set_ylabel("")
    drawn.suptitle(figure.title or None)  # type: ignore[arg-type]  # None for none
    drawn.supxlabel(figure.x or None, fontsize="medium")  # type: ignore[arg-type]  # likewise
    legends = (axes.get_legend_handles_labels() for axes in drawn.axes)
    handles = {label: handle for two in legends for handle, label in zip(*two, strict=True)}
    shown = [name for name in names if name in handles]
    is_stack = any(series.bottoms for panel in figure.panels for series in panel.series if series.kind == "bar")
    if is_stack or figure.panels[0].spokes:
        where: dict[str, Any] = {"loc": "outside right center", "reverse": is_stack}
    else:
        side = "upper" if figure.x else "lower"
        entry_in = _LEGEND_LINE_IN + _LEGEND_LETTER_IN * max(map(len, shown), default=0)
        columns = max(min(len(shown), 8, int(figure.size[0] / entry_in)), 1)
        where = {"loc": f"outside {side} center", "ncols": columns}
    drawn.legend([handles[name] for name in shown], shown, frameon=False, fontsize="small", handlelength=3, **where)
    save_figure(drawn, path)


def side_by_side(
    heights: Mapping[str, Sequence[float]], labels: Mapping[str, Sequence[str]] | None = None
) -> list[PlottedSeries]:
    """Return series of bars that are next to each other at each position."""
    width = 0.84 / max(len(heights), 1)
    return [
        PlottedSeries(
            name,
            ys,
            [at + (index - (len(heights) - 1) / 2) * width for at in range(len(ys))],
            kind="bar",
            width=width,
            labels=(labels or {}).get(name, ()),
        )
        for index, (name, ys) in enumerate(heights.items())
    ]


def stacked(bars: Mapping[str, Bar]) -> list[PlottedSeries]:
    """Return series of stacked bars with the same parts, and with their heights written above."""
    parts = max((bar.parts for bar in bars.values()), key=len, default=())
    bottoms, series = [0.0] * len(bars), []
    for index, (name, _) in enumerate(parts):
        values = [bar.parts[index][1] if bar.parts else 0.0 for bar in bars.values()]
        tops = [bottom + value for bottom, value in zip(bottoms, values, strict=True)]
        labels = [f"{top:,.0f}" if bar.parts else "" for top, bar in zip(tops, bars.values(), strict=True)]
        last = index + 1 == len(parts)
        series.append(PlottedSeries(name, values, kind="bar", bottoms=bottoms, labels=labels if last else ()))
        bottoms = tops
    return series


def _look(look: Look, place: int) -> Look:
    dashes = _DASHES[place // len(_COLOURS) % len(_DASHES)]
    return replace(look, colour=look.colour or _COLOURS[place % len(_COLOURS)], dashes=look.dashes or dashes)


def _draw(axes: Axes, series: PlottedSeries, look: Look) -> None:
    xs: Any = range(len(series.ys)) if series.xs is None else series.xs
    ys: Any = series.ys
    line: dict[str, Any] = {
        "color": look.colour, "linestyle": look.dashes, "linewidth": look.width, "alpha": look.opacity,
        "marker": look.marker or None, "markersize": 4, "markevery": series.marked, "label": series.name,
        "zorder": 5 if look.is_above else None,
    }  # fmt: skip
    match series.kind:
        case "bar":
            bars = axes.bar(
                xs, ys, series.width, series.bottoms, label=series.name, color=look.colour, hatch=look.hatch,
                edgecolor="white", linewidth=0.4,
            )  # fmt: skip
            axes.bar_label(bars, series.labels or [""] * len(bars), fontsize="small", padding=2)
        case "bar across":
            bars = axes.barh(xs, ys, series.width, label=series.name, color=look.colour)
            axes.bar_label(bars, series.labels or [""] * len(bars), fontsize="small", padding=2)
        case "area" | "area of steps":
            step: Any = "post" if series.kind == "area of steps" else None
            axes.fill_between(
                xs, series.bottoms or 0, ys, step=step, color=look.colour, alpha=look.opacity, linewidth=0
            )
        case "point":
            spans = [
                np.abs(np.subtract(bounds, np.asarray(values)[:, None]).T) if len(bounds) else None
                for bounds, values in ((series.x_bounds, xs), (series.y_bounds, ys))
            ]
            axes.errorbar(
                xs,
                ys,
                spans[1],
                spans[0],
                fmt=look.marker or "o",
                color=look.colour,
                markersize=8,
                capsize=3,
                label=series.name,
            )
        case "step":
            axes.step(xs, ys, where="post", **line)
        case _:
            axes.plot(xs, ys, **line)


def _frame(axes: Axes, panel: Panel) -> None:
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, yscale="log" if panel.is_log else "linear")
    if any(limit is not None for limit in panel.x_limits):
        axes.set_xlim(*panel.x_limits)
    if any(limit is not None for limit in panel.y_limits):
        axes.set_ylim(*panel.y_limits)
    if panel.level is not None:
        axes.axhline(panel.level, color=_GREY, linewidth=0.8, linestyle="--", zorder=0)
    if panel.upright is not None:
        axes.axvline(panel.upright, color=_GREY, linewidth=0.8, linestyle="--", zorder=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.spines[["top", "right"]].set_visible(False)


def _turns(many: int) -> NDArray[np.float64]:
    return np.linspace(0, 2 * np.pi, many, endpoint=False)


def _spoke(axes: Axes, series: PlottedSeries, look: Look) -> None:
    """Draw shares on spokes as a closed line."""
    turns, shares = ([*values, values[0]] for values in (_turns(len(series.ys)), series.ys))
    axes.plot(turns, shares, color=look.colour, linestyle=look.dashes, linewidth=look.width, label=series.name)
    if look.is_filled:
        axes.fill(turns, shares, color=look.colour, alpha=0.22, zorder=1, linewidth=0)


def _web(axes: Axes, panel: Panel) -> None:
    """Draw spokes, with their names outside."""
    axes.set_theta_zero_location("N")  # type: ignore[attr-defined]  # of polar axes
    axes.set_theta_direction(-1)  # type: ignore[attr-defined]  # same
    turns = _turns(len(panel.spokes))
    for turn, words in zip(turns, panel.spokes, strict=True):
        side, height = round(math.sin(turn), 6), round(math.cos(turn), 6)
        across = "center" if not side else "left" if side > 0 else "right"
        axes.text(turn, 1.1, words, fontsize=8, ha=across, va="center" if side else "bottom" if height > 0 else "top")
    axes.set_xticks(turns, [])
    axes.set_yticks([0.25, 0.5, 0.75, 1.0], [])
    axes.set_ylim(0, 1.05)
    axes.grid(color="#cccccc", linewidth=0.6)
    axes.spines["polar"].set_visible(False)
    axes.set_title(panel.title, fontweight="bold", pad=30)
