"""What a client does to everybody else: their waits compared with those in the same world without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from asa.backend import Backend
from asa.errors import InputError

_FOLLOWED = 2  # windows from the client's coming on
_SHORTEST_S = 10  # a run that is shorter counts as this: the bound of the bounded slowdown


class _World(Protocol):
    """A simulated world that tells of its background's jobs; see `asa.backends.simulated.SimulatedBackend.others`."""

    def others(self) -> Mapping[str, NDArray[np.int64]]: ...

    def now(self) -> float: ...

    def wait(self, until_s: float | None) -> object: ...


@dataclass(frozen=True, slots=True)
class Lot:
    """What the others met, a row for each of them that waited when the client came or came in the window after it.

    They are followed for twice the window. Whoever still waits then has waited until then.
    """

    wait_s: NDArray[np.float64]
    # bounded slowdowns: wait and run time over run time, where a run of less than 10 s counts as one of 10 s; at least
    # 1. The run time above is that which came true, where it is over, and the one below the job's own, which is another
    # only where the scheduler resizes jobs.
    slowdown: NDArray[np.float64]
    rows: NDArray[np.intp]  # which of the world's they are


@dataclass(frozen=True, slots=True)
class Others:
    """What a client did to them."""

    jobs: int
    mean_wait_s: float  # theirs in the world without the client
    mean_slowdown: float
    longer_wait_s: float  # by how much these means are larger with it
    more_slowdown: float
    waited_more_h: float  # hours by which they waited longer, added up


def lot_of(world: Backend, began_s: float, window_s: float, like: Lot | None = None) -> Lot:
    """Let a world go on for as long as others are followed, and tell how they fared.

    `world`: a simulated one. It may be at a later time already, if the client took so long.
    `like`: whose jobs count, from the same world without a client; those that wait or come in this one, if not
    given. With a client one may wait that would have started the moment it came.
    """
    if not callable(getattr(world, "others", None)):
        raise InputError("does not tell how other jobs fared", where="the site", hint="Take a simulated one.")
    simulated = cast("_World", world)
    until_s = began_s + _FOLLOWED * window_s
    _advance(simulated, until_s)
    return _lot(simulated.others(), began_s, window_s, until_s, None if like is None else like.rows)


def _advance(world: _World, until_s: float) -> None:
    """Let time pass, whatever the client's jobs do meanwhile."""
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
    """Hold what the others met with a client against what they met without.

    `without`: what they met in the same world, followed alike, without the client.
    `with_client`: what the same jobs met with it, row by row; see `like` of `lot_of`.
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
