"""Runs one draw of weeks and users at every share, and measures what happened; found by its entry point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asa.strategies.racing import Races
from asa.studies.adoption.agents import Draw, Happened, SharedWorld
from asa.studies.adoption.habits import Asking, Habits
from asa.studies.adoption.study import AdoptionCell, AdoptionRun
from asa.studies.adoption.window import Centre, LogWindow, centre, share_of, window_of

_SHORTEST_S = 10  # run times and makespans below count as this long
_HOUR_S = 3600


def run_cell(cell: AdoptionCell) -> list[AdoptionRun]:
    """Run a draw at every share.

    Parameters
    ----------
    cell
        The log, the model, the draw, and the shares of users.
    """
    machine = centre(cell.trace, cell.model)
    rng = np.random.default_rng(cell.draw)
    draw = Draw.of(window_of(machine, cell.weeks, rng), rng)
    races = Races(max_racers=cell.max_racers)
    ways = tuple(Asking(name) for name in cell.ways.split(","))
    habits = Habits(ways, races, cell.parts, cell.age_accrues, cell.estimator)
    runs: list[AdoptionRun] = []
    before: Happened | None = None
    for share in map(float, cell.shares.split(",")):
        happened = SharedWorld(machine, draw, share, habits).run()
        before = before or happened
        runs.append(_measured(cell, machine, draw, share, (before, happened)))
    return runs


def _measured(
    cell: AdoptionCell, machine: Centre, draw: Draw, share: float, worlds: tuple[Happened, Happened]
) -> AdoptionRun:
    window, (before, now) = draw.window, worlds
    table, users, adopters = window.jobs.table, window.jobs.users, draw.adopters(share)
    are_theirs = np.isin(users, list(adopters))
    submitted = (before.submit_s >= 0) & (now.submit_s >= 0)
    measured = (before.submit_s >= window.begin_s) & (before.submit_s < window.end_s)
    rows = np.flatnonzero(submitted & measured & ~are_theirs)
    (wait_s, slowdown), (wait_before_s, slowdown_before) = (_fared(window, world, rows) for world in (now, before))
    span_s = window.end_s - window.begin_s
    used, idle = _used(window, now.busy)
    return AdoptionRun(
        machine.name,
        cell.model,
        cell.age_accrues,
        cell.draw,
        share,
        len(adopters),
        share_of(list(adopters), window.jobs),
        share_of(list(adopters), window.jobs, table.run * table.cores),
        _makespan(window, adopters, before, now),
        len(rows),
        wait_s,
        slowdown,
        wait_before_s,
        slowdown_before,
        used / (machine.log.cores * span_s),
        idle / max(used, 1.0),
        _an_hour(window, now.submissions_s),
        _an_hour(window, now.cancellations_s),
        _queue_variance(window, now.queued),
        float(now.covered.mean()) if len(now.covered) else 0.0,
    )


def _fared(window: LogWindow, world: Happened, rows: NDArray[np.intp]) -> tuple[float, float]:
    """Return mean wait and bounded slowdown of some jobs; those still pending at the end waited until then."""
    table = window.jobs.table
    start = np.where(world.start_s[rows] < 0, window.until_s, world.start_s[rows])
    wait, run = start - world.submit_s[rows], np.minimum(table.run, table.request)[rows]
    slowdown = np.maximum((wait + run) / np.maximum(run, _SHORTEST_S), 1.0)
    return (float(wait.mean()), float(slowdown.mean())) if len(rows) else (0.0, 1.0)


def _makespan(window: LogWindow, adopters: frozenset[int], before: Happened, now: Happened) -> float:
    """Return the makespans over those at share 0 of users' chains that asa changes, as a geometric mean."""
    chains = [
        chain
        for chain in window.chains
        if int(window.jobs.users[chain[0]]) in adopters
        and window.begin_s <= window.jobs.table.submit[chain[0]] < window.end_s
        and now.in_asas_ways[list(chain)].any()
    ]

    def logs(world: Happened) -> NDArray[np.float64]:
        ends = (world.end_s[chain[-1]] for chain in chains)
        took = [
            (end if end >= 0 else window.until_s) - world.submit_s[chain[0]]
            for chain, end in zip(chains, ends, strict=True)
        ]
        return np.log(np.maximum(took, _SHORTEST_S))

    return float(np.exp((logs(now) - logs(before)).mean())) if chains else 1.0


def _used(window: LogWindow, busy: NDArray[np.int64]) -> tuple[float, float]:
    """Return the core-seconds used in the measured weeks, and those of them in which no payload ran."""
    start, end, cores, began = busy.T
    low, high = np.clip(start, window.begin_s, window.end_s), np.clip(end, window.begin_s, window.end_s)
    used = float(((high - low) * cores).sum())
    return used, float(((np.clip(began, low, high) - low) * cores).sum())


def _an_hour(window: LogWindow, moments: NDArray[np.int64]) -> float:
    within = (moments >= window.begin_s) & (moments < window.end_s)
    return float(within.sum()) * _HOUR_S / (window.end_s - window.begin_s)


def _queue_variance(window: LogWindow, queued: NDArray[np.int64]) -> float:
    """Return the variance of the number of pending jobs at full hours."""
    hours = np.arange(window.begin_s, window.end_s, _HOUR_S)
    came, left = np.sort(queued[:, 0]), np.sort(queued[:, 1])
    length = np.searchsorted(came, hours, side="right") - np.searchsorted(left, hours, side="right")
    return float(length.var())
