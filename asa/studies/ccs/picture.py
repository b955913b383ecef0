"""The picture of a plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asa.backends.openccs.jobs import CcsJob
from asa.backends.openccs.pieces import iso
from asa.backends.openccs.system import CcsSystem
from asa.backends.openccs.words import IN_1973_S, clock
from asa.core.drawing import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from asa.backends.openccs.plan import RequestPlan

_DAY_S = 86_400
_MAX_ROWS = 64
_MAX_TICKS = 9
_TICKS_S = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 4 * 3600, 8 * 3600, _DAY_S, 2 * _DAY_S, 7 * _DAY_S)
_COLOURS = (  # distinguishable by colour-blind readers
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#332288",
    "#999933",
    "#882255",
)
_DARK = {"#0072b2", "#009e73", "#d55e00", "#332288", "#882255"}
_FONT_PT = 8.0
_LETTER_PT, _LINE_PT = 0.62 * _FONT_PT, 1.15 * _FONT_PT


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of a job's allocation: its times, and the lower and upper edge at each time but the last."""

    job: CcsJob
    times: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def outline(self) -> NDArray[np.float64]:
        """Return its corners."""
        times = np.repeat(self.times, 2)[1:-1].astype(np.float64)
        above, below = np.repeat(self.high, 2), np.repeat(self.low, 2)
        return np.column_stack((np.concatenate((times, times[::-1])), np.concatenate((above, below[::-1]))))

    def widest(self) -> tuple[float, float, float, float]:
        """Return left, right, lower and upper edge of its longest part of constant height."""
        steps = np.flatnonzero(np.concatenate(([True], np.diff(self.low) != 0, [True])))
        at = int(np.argmax(np.diff(self.times[steps])))
        first, last = steps[at], steps[at + 1]
        return float(self.times[first]), float(self.times[last]), float(self.low[first]), float(self.high[first])


def draw_plan(plan: RequestPlan, path: str | Path, *, now: int, title: str) -> None:
    """Draw which cores each job holds when.

    Each row is a node. For systems of one node, or of more than 64, the jobs' cores are stacked.
    """
    system = plan.system
    many = len(system.nodes)
    jobs = [job for job in plan.jobs.values() if job.placement is not None and job.placement.end > job.placement.start]
    jobs.sort(key=lambda job: job.start_s or 0)
    resource = "ncpus" if "ncpus" in system.resources else system.resources[0]
    has_rows = 1 < many <= _MAX_ROWS
    figure = new_figure(10.0, min(max(1.4 + 0.25 * many, 3.0), 12.0) if has_rows else 5.0)
    panel = figure.subplots()
    since = min([job.start_s or 0 for job in jobs] or [now])
    until = max([job.placement.end for job in jobs if job.placement is not None] or [now + 3600])
    panel.set_xlim(since, until)
    blocks = list(_stacked(jobs, resource) if many > _MAX_ROWS else _on_nodes(jobs, system, resource))
    if has_rows:
        _label_rows(panel, plan)
    else:
        _label_items(panel, int(system.items()[:, system.resources.index(resource)].sum()), blocks, resource)
    _label_times(panel, since, until, now)
    colours = _coloured(jobs)
    _draw(panel, blocks, colours)
    if since < now:
        panel.axvspan(since, min(now, until), color="white", alpha=0.45, linewidth=0, zorder=3)
    if since < now < until:
        panel.axvline(now, color="#222222", linewidth=1.0, zorder=4)
        panel.annotate(
            "now", (now, 1), (3, 2), xycoords=("data", "axes fraction"), textcoords="offset points", fontsize="small"
        )
    panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    _name(panel, blocks, colours, now)
    save_figure(figure, path)


def _on_nodes(jobs: Sequence[CcsJob], system: CcsSystem, resource: str) -> Iterator[_Block]:
    """Yield blocks in which each job gets the first free items of its nodes."""
    column, width = system.resources.index(resource), len(system.resources)
    items = system.items()[:, column].tolist()
    first = np.concatenate(([0], np.cumsum(items)))  # index of each node's first item
    height = np.repeat([1.0 / max(many, 1) if len(items) > 1 else 1.0 for many in items], items)
    low = np.concatenate([node + np.arange(many) * height[first[node] :][:1] for node, many in enumerate(items)])
    free_from = np.full(len(low), np.iinfo(np.int64).min)
    for job in jobs:
        placement = job.placement
        assert placement is not None, "it has a block"
        held = placement.amounts.reshape(-1, width)[:, column].tolist()
        taken = []
        for node, many in sorted(zip(placement.nodes.tolist(), held, strict=True)):
            free = np.flatnonzero(free_from[first[node] : first[node + 1]] <= placement.start)[:many]
            taken.append(free + first[node])
        lanes = np.concatenate(taken)
        free_from[lanes] = placement.end
        times = np.array([placement.start, placement.end])
        for run in np.split(lanes, np.flatnonzero(np.diff(lanes) != 1) + 1):
            if len(run):
                yield _Block(job, times, low[run[:1]], low[run[-1:]] + height[run[-1:]])


def _stacked(jobs: Sequence[CcsJob], resource: str) -> Iterator[_Block]:
    """Yield blocks in which jobs are stacked at each time, those that end last at the bottom."""
    placements = [job.placement for job in jobs if job.placement is not None]
    times = np.unique([time for placement in placements for time in (placement.start, placement.end)])
    level = np.zeros(len(times))
    for job in sorted(jobs, key=lambda job: -job.placement.end if job.placement is not None else 0):
        placement = job.placement
        assert placement is not None, "it has a block"
        first, last = np.searchsorted(times, [placement.start, placement.end])
        low = level[first:last].copy()
        level[first:last] += placement.totals.get(resource, 0)
        yield _Block(job, times[first : last + 1], low, level[first:last].copy())


def _label_rows(panel: Axes, plan: RequestPlan) -> None:
    nodes = plan.system.nodes
    panel.set_ylim(len(nodes), 0)
    panel.set_yticks(np.arange(len(nodes)) + 0.5, [node.name for node in nodes], fontsize="small")
    panel.tick_params(axis="y", length=0)
    for index, node in enumerate(nodes):
        panel.axhline(index + 1, color="#dddddd", linewidth=0.6, zorder=0)
        if not plan.cluster.is_up(node.name):
            panel.axhspan(
                index, index + 1, facecolor="#eeeeee", edgecolor="#bbbbbb", hatch="////", linewidth=0, zorder=0
            )


def _label_items(panel: Axes, items: int, blocks: Sequence[_Block], resource: str) -> None:
    """Label the axis of items; of a nearly empty system only a part is drawn."""
    most = max((float(block.high.max()) for block in blocks), default=0.0)
    what = "cores" if resource == "ncpus" else resource
    panel.set_ylim(0, 1.03 * items if most > items / 2 else 1.2 * most or items)
    panel.set_ylabel(f"{what}, of {items:,}")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    panel.axhline(items, color="#444444", linewidth=0.8, linestyle="--")


def _label_times(panel: Axes, since: int, until: int, now: int) -> None:
    """Put ticks at round times."""
    span = until - since
    step = next((tick for tick in _TICKS_S if span / tick <= _MAX_TICKS), _TICKS_S[-1])
    step *= math.ceil(span / step / _MAX_TICKS)
    ticks = range(-(-since // step) * step, until + 1, step)
    if now < IN_1973_S:
        panel.set_xticks(
            ticks, [clock(tick, now).removesuffix(":00") if step >= 60 else clock(tick, now) for tick in ticks]
        )
        panel.set_xlabel("time (h:min)" if step >= 60 else "time (h:min:s)")
    else:
        panel.set_xticks(
            ticks, [iso(t)[5:10] if step % _DAY_S == 0 else iso(t)[5:16].replace("T", "\n") for t in ticks]
        )
        panel.set_xlabel(f"time (UTC, {iso(since)[:4]})")


def _coloured(jobs: Sequence[CcsJob]) -> dict[str, str]:
    """Return a colour for each job; jobs of an array share one."""
    requests = {job.id: job.id.partition("[")[0] for job in jobs}
    places = {name: index for index, name in enumerate(dict.fromkeys(requests.values()))}
    return {name: _COLOURS[places[request] % len(_COLOURS)] for name, request in requests.items()}


def _draw(panel: Axes, blocks: Sequence[_Block], colours: Mapping[str, str]) -> None:
    from matplotlib.collections import PolyCollection  # noqa: PLC0415 - heavy, and optional

    panel.add_collection(
        PolyCollection(
            [block.outline() for block in blocks],
            facecolors=[colours[block.job.id] for block in blocks],
            edgecolors="white",
            linewidths=0.5 if len(blocks) < 1000 else 0.1,
            zorder=2,
        )
    )


def _name(panel: Axes, blocks: Sequence[_Block], colours: Mapping[str, str], now: int) -> None:
    """Write the names of jobs into blocks with enough space, each name once."""
    figure = panel.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # the space is known only after drawing
    box, (left, right), (bottom, top) = panel.get_window_extent(), panel.get_xlim(), panel.get_ylim()
    across, up = box.width * 72 / figure.dpi / (right - left), box.height * 72 / figure.dpi / abs(top - bottom)
    named: dict[str, tuple[float, float, float, bool]] = {}
    for block in blocks:
        begin, end, low, high = block.widest()
        if begin < now < end:  # not across the line of the present
            begin, end = (now, end) if end - now >= now - begin else (begin, now)
        name, width_pt, height_pt = block.job.id, (end - begin) * across, (high - low) * up
        letters_pt = _LETTER_PT * (len(name) + 1)
        is_flat = width_pt > letters_pt and height_pt > _LINE_PT
        if is_flat or (height_pt > letters_pt and width_pt > _LINE_PT):
            place = (end - begin) * (high - low), (begin + end) / 2, (low + high) / 2, is_flat
            named[name] = max(place, named.get(name, place))
    for name, (_, x, y, is_flat) in named.items():
        panel.text(
            x,
            y,
            name,
            color="white" if colours[name] in _DARK and x >= now else "black",
            fontsize=_FONT_PT,
            rotation=0 if is_flat else 90,
            rotation_mode="anchor",
            ha="center",
            va="center_baseline",
            zorder=5,
            parse_math=False,
        )
