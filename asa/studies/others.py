"""Effects of a client on other users' jobs: their waits compared with those in the same world without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from asa.backend import Backend
from asa.errors import InputError

_FOLLOWED = 2  # in windows, from when the client comes
_SHORTEST_S = 10  # bound of the bounded slowdown: run time that shorter runs count as


class _World(Protocol):
    """A simulated world that reports its background jobs; see `asa.backends.simulated.SimulatedBackend.others`."""

    def others(self) -> Mapping[str, NDArray[np.int64]]: ...

    def now(self) -> float: ...

    def wait(self, until_s: float | None) -> object: ...


@dataclass(frozen=True, slots=True)
class Lot:
    """Waits and slowdowns of other users' jobs: pending when the client came, or submitted in the window after.

    They are followed for twice the window. A job that is still pending at the end counts as having waited until then.
    """

    wait_s: NDArray[np.float64]
    # bounded slowdowns: wait and run time over run time, where a run time of less than 10 s counts as 10 s; at least 1.
    # The numerator has the run time that was observed, if the run has ended. The denominator has the job's own run
    # time; the two differ only if the scheduler resizes jobs
    slowdown: NDArray[np.float64]
    rows: NDArray[np.intp]  # indices of these jobs among the world's


@dataclass(frozen=True, slots=True)
class Others:
    """The effect of a client on other users' jobs."""

    jobs: int
    mean_wait_s: float  # without the client
    mean_slowdown: float
    longer_wait_s: float  # increase of these means by the client
    more_slowdown: float
    waited_more_h: float  # sum over these jobs, in hours


def lot_of(world: Backend, began_s: float, window_s: float, like: Lot | None = None) -> Lot:
    """Run a world until the other jobs were followed long enough, and return their waits and slowdowns.

    `world`: a simulated one. Its time may already be later, if the client took so long.
    `like`: the jobs of the same world without a client; by default those of this world are chosen. With a client a job
    may be pending that would otherwise have started when the client came.
    """
    if not callable(getattr(world, "others", None)):
        raise InputError("does not tell how other jobs fared", where="the site", hint="Take a simulated one.")
    simulated = cast("_World", world)
    until_s = began_s + _FOLLOWED * window_s
    _advance(simulated, until_s)
    return _lot(simulated.others(), began_s, window_s, until_s, None if like is None else like.rows)


def _advance(world: _World, until_s: float) -> None:
    """Advance the time of a world, whatever the client's jobs do."""
    while (before_s := world.now()) < until_s:
        if not world.wait(until_s) and world.now() == before_s:
            return


def _lot(
    jobs: Mapping[str, NDArray[np.int64]],
    began_s: float,
    window_s: float,
    until_s: float,
    rows: NDArray[np.intp] | None,
) -> Lot:
    submit, start, end, run = (jobs[name].astype(np.float64) for name in ("submit", "start", "end", "run"))
    start = np.where((start < 0) | (start > until_s), until_s, start)
    if rows is None:
        waits, comes = (submit <= began_s) & (start >= began_s), (submit > began_s) & (submit <= began_s + window_s)
        rows = np.flatnonzero(waits | comes)
    took = np.where((end >= 0) & (end <= until_s), end - start, run)
    wait_s = (start - submit)[rows]
    slowdown = (wait_s + took[rows]) / np.maximum(run[rows], _SHORTEST_S)
    return Lot(wait_s, np.maximum(slowdown, 1.0), rows)


def effect_on_others(without: Lot, with_client: Lot) -> Others:
    """Compare waits and slowdowns of other users' jobs with a client to those without it.

    `without`: in the same world without the client, followed for the same time.
    `with_client`: of the same jobs, row by row; see `like` of `lot_of`.
    """
    longer = with_client.wait_s - without.wait_s
    return Others(
        len(longer),
        _mean(without.wait_s),
        _mean(without.slowdown),
        _mean(longer),
        _mean(with_client.slowdown - without.slowdown),
        float(longer.sum()) / 3600,
    )


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0
