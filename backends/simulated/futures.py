"""Sampled futures of the visible queue, for comparing several requests.

Each future draws the run times of all jobs from the recent ratios of actual to expected run times; all requests are
simulated in the same futures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.core import plainly
from asa.core.compiled import passed
from asa.waits import JobAhead

from . import futures_kernel as k

KEPT = 256
"""Number of latest runs of each kind that are remembered."""

OF_ALIKE, OF_USER, OF_SITE = range(3)
"""Source of an expected run time: the user's similar jobs, the user's last jobs, or the site."""
KINDS = 3

_FIRST = np.geomspace(0.05, 2.0, 9)  # assumed ratios before anything is known
_SEED = 20_261_124
_SAMPLED_IN_WAITS, _JOB_IN_WAITS = 0.3, 0.001  # work of sampling, and for each job in a future; see `plainly.count`
_MODES = {"ready": k.READY, "aging": k.AGING, "early": k.EARLY, "local": k.LOCAL}
_Jobs = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


class RunTimeRatios:
    """Ratios of actual to expected run times."""

    def __init__(self) -> None:
        self._ratios: NDArray[np.float64] = np.zeros((KINDS, KEPT))
        self._counts = [0] * KINDS

    def learn(self, kind: int, ratio: float) -> None:
        """Learn the ratio of a run."""
        self._ratios[kind, self._counts[kind] % KEPT] = ratio
        self._counts[kind] += 1

    def draw(
        self,
        kind: NDArray[np.intp],
        expected_s: NDArray[np.float64],
        asked_s: NDArray[np.float64],
        elapsed_s: NDArray[np.float64],
        samples: int,
    ) -> NDArray[np.float64]:
        """Draw the remaining run times of jobs from their elapsed ones; shape (samples, jobs), at least 1 s.

        A job that has run longer than all known ones of its kind ends at any time before the end of its request, with
        equal probability.
        """
        rng = np.random.Generator(np.random.PCG64(_SEED))
        drawn = rng.random((samples, len(kind)))
        left_s = np.maximum(asked_s - elapsed_s, 1.0)
        made = drawn * left_s
        for number in range(KINDS):
            mine = np.flatnonzero(kind == number)
            ratios = self._sorted(number)
            first = np.searchsorted(ratios, elapsed_s[mine] / np.maximum(expected_s[mine], 1.0), "right")
            known = first < len(ratios)
            mine, first = mine[known], first[known]
            place = (first + drawn[:, mine] * (len(ratios) - first)).astype(np.intp)
            made[:, mine] = ratios[place] * expected_s[mine] - elapsed_s[mine]
        return np.clip(made, 1.0, left_s)

    def _sorted(self, kind: int) -> NDArray[np.float64]:
        count = min(self._counts[kind], KEPT)
        return np.sort(self._ratios[kind, :count] if count >= len(_FIRST) else _FIRST)

    def state(self) -> list[Any]:
        """Return the remembered ratios, as JSON-ready data."""
        return [[n, self._ratios[kind, : min(n, KEPT)].tolist()] for kind, n in enumerate(self._counts)]

    @classmethod
    def from_state(cls, state: list[Any]) -> RunTimeRatios:
        """Make an instance that continues from a state. Raises `ValueError`, `TypeError`: the state is invalid."""
        made = cls()
        if len(state) != KINDS:
            raise ValueError(f"{len(state)} kinds of run times")
        for kind, (count, ratios) in enumerate(state):
            values = np.array(ratios, dtype=np.float64)
            if values.shape != (min(int(count), KEPT),) or not ((values >= 0) & (values < np.inf)).all():
                raise ValueError("run times that do not fit")
            made._ratios[kind, : len(values)] = values
            made._counts[kind] = int(count)
        return made


def starts(size: int, running: _Jobs, waiting: _Jobs, requests: _Jobs) -> NDArray[np.float64]:
    """Return the start of each request in each future, in seconds from now; shape (samples, requests).

    `running`: cores, seconds until the requested ends, and until the ends in each future (samples, jobs).
    `waiting`: cores, walltimes, and run times in each future (samples, jobs), in queue order.
    `requests`: cores, walltimes, and in how many seconds each will be submitted.
    """
    order = np.argsort(running[1], kind="stable")
    want = np.minimum(requests[0], size)
    starts_s = np.zeros((len(running[2]), len(want)))
    queue = _queue((running[0][order], running[1][order], running[2][:, order]), waiting)
    asked = k.Requests(
        *map(passed, (want.astype(np.int64), _flat(requests[1]), _flat(requests[2]), starts_s.reshape(-1)))
    )
    plainly.count(_SAMPLED_IN_WAITS + len(starts_s) * (len(order) + len(waiting[0])) * _JOB_IN_WAITS)
    k.all_futures(size, len(starts_s), queue, asked, _scratch(len(order) + len(waiting[0])))
    return starts_s


def plan_starts(
    size: int,
    running: _Jobs,
    waiting: _Jobs,
    plan: Sequence[JobAhead],
    later: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
) -> NDArray[np.float64]:
    """Return the start of each job of a plan in each future, in seconds from now; shape (samples, jobs).

    `running`, `waiting`: as for `starts`.
    `later`: seconds after which nothing is known of the queue, in each future, and the wait of each job from when it is
    due after that (samples, jobs); if not given, the queue is always known.
    """
    order = np.argsort(running[1], kind="stable")
    samples, own = len(running[2]), len(plan)
    run_s = np.stack([ahead.run_s[np.arange(samples) % len(ahead.run_s)] for ahead in plan], axis=1)
    nothing = np.zeros(samples)
    ready = [
        nothing if ahead.ready_s is None else ahead.ready_s[np.arange(samples) % len(ahead.ready_s)] for ahead in plan
    ]
    fades, usual = later or (np.full(samples, k.NEVER_S), np.zeros((samples, own)))
    after = np.zeros((own, own), dtype=np.int64)
    for index, ahead in enumerate(plan):
        after[index, list(ahead.after)] = 1
    starts_s = np.zeros((samples, own))
    cores = np.minimum([ahead.job.cores for ahead in plan], size)
    both = (
        np.concatenate([waiting[0], cores]),
        np.concatenate([waiting[1], [ahead.job.walltime_s for ahead in plan]]),
        np.concatenate([waiting[2], run_s], axis=1),
    )
    queue = _queue((running[0][order], running[1][order], running[2][:, order]), both)
    columns = (
        np.array([_MODES[ahead.queues] for ahead in plan], dtype=np.int64),
        np.array([ahead.submit_s for ahead in plan]),
        after.reshape(-1), _flat(np.stack(ready, axis=1)), _flat(fades), _flat(usual), starts_s.reshape(-1),
        np.zeros(own, dtype=np.int64), np.zeros(own), np.zeros(own),
    )  # fmt: skip
    scratch = _scratch(len(order) + len(both[0]))
    plainly.count(_SAMPLED_IN_WAITS + samples * (len(order) + len(both[0])) * _JOB_IN_WAITS)
    k.all_plan_futures(size, samples, queue, k.PlanInQueue(*map(passed, columns)), scratch)
    return starts_s


def starting_now(
    size: int,
    running: tuple[NDArray[np.float64], NDArray[np.float64]],
    waiting: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> NDArray[np.bool_]:
    """Return the pending jobs that would start at once if they only lacked cores.

    `running`: cores, and seconds until the requested ends.
    `waiting`: cores and walltimes, in queue order.
    """
    order = np.argsort(running[1], kind="stable")
    due, jobs = running[1][order], len(waiting[0])
    scratch, nobody = _scratch(len(order) + jobs), np.zeros(0)
    queue = _queue((running[0][order], due, due), (*waiting, waiting[1]))
    none = k.Requests(*map(passed, (nobody.astype(np.int64), nobody, nobody, nobody)))
    plainly.count(len(order) * _JOB_IN_WAITS + jobs * _JOB_IN_WAITS)
    left = k.future(size, 0, queue, none, scratch)
    begun = np.ones(jobs, dtype=np.bool_)
    begun[np.asarray(scratch.waits)[:left]] = False
    return begun


def _queue(running: _Jobs, waiting: _Jobs) -> k.Queue:
    """Arrange jobs for the kernel."""
    arrays = (
        running[0].astype(np.int64), *map(_flat, running[1:]), waiting[0].astype(np.int64), *map(_flat, waiting[1:])
    )  # fmt: skip
    return k.Queue(*map(passed, arrays))


def _flat(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, dtype=np.float64).reshape(-1)


def _scratch(jobs: int) -> k.Scratch:
    kinds = (np.int64, np.float64, np.float64, np.int64)
    return k.Scratch(*(passed(np.zeros(max(jobs, 1), dtype=kind)) for kind in kinds))
