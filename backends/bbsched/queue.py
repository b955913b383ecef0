"""BBSched as the scheduler of a simulated machine whose jobs also request burst buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from asa.backends.simulated.cluster import BURST_BUFFER as BUFFER
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.table import JobTable
from numpy.typing import NDArray

from asa.errors import InputError

from .methods import load_method, load_solver
from .scheduler import WindowScheduler, make_load
from .system import Integers, System

_SPREAD = 8


@dataclass(frozen=True, slots=True)
class WindowedQueue:
    """Makes machines with BBSched as their scheduler; an `asa.backends.simulated.policies.CoreMaker`.

    Nodes are counted as cores. Some background jobs ask for burst buffer: per core from an eighth to eight times as
    much as the machine has per core, log-uniform. The mean is twice their share: if every second job asks for it, burst
    buffer and cores are about equally scarce. (The paper's requests do not depend on width. On a machine that runs
    hundreds of jobs, few of them could run at the same time.)
    """

    method: str = "bbsched"  # see `WindowScheduler`; the first two by name
    solver: str = "exact"
    order: str = "fcfs"  # the base scheduler; see `asa.backends.simulated.policies.order_of`
    window: int = 20
    starvation_bound: int = 50
    gb_per_core: int = 4  # burst buffer for each core of the machine
    share: float = 0.5  # share of the background jobs that request some
    seed: int = 0  # of the choice of these jobs, and their amounts

    def __post_init__(self) -> None:
        self._scheduler(System(1, {BUFFER: 1}))  # to refuse invalid settings now
        if self.gb_per_core < 1 or not 0 <= self.share <= 1 or self.seed < 0:
            raise InputError(
                f"{self.gb_per_core} GB a core, for {self.share} of the jobs, drawn by {self.seed}",
                where="bbsched",
                hint="Give 1 GB or more, a share from 0 to 1, and a seed from 0 on.",
            )

    def core(
        self, capacity: int, table: JobTable, *, now: int, users: NDArray[np.integer] | None = None
    ) -> GeneralCore:
        """Make a core."""
        whole_gb = capacity * self.gb_per_core
        system = System(capacity, {BUFFER: whole_gb})
        load = make_load(system, table, {BUFFER: self._asked(table, whole_gb)}, users)
        return GeneralCore(load, self._scheduler(system), now=now)

    @property
    def notes(self) -> tuple[str, ...]:
        """Note that logs do not contain requests for burst buffer."""
        note = (
            f"made up, as logs do not tell: a burst buffer of {self.gb_per_core:,} GB a core, for which "
            f"{100 * self.share:g} % of the jobs ask in proportion to their cores"
        )
        return (note,)

    def _asked(self, table: JobTable, whole_gb: int) -> Integers:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed)))
        asks = rng.random(len(table)) < self.share
        factor = np.exp(rng.uniform(-1.0, 1.0, len(table)) * np.log(_SPREAD))
        amounts = np.clip(np.rint(table.cores * self.gb_per_core * factor), 1, whole_gb)
        return np.where(asks, amounts, 0).astype(np.int64)

    def _scheduler(self, system: System) -> WindowScheduler:
        method = load_method(self.method, system, load_solver(self.solver))
        return WindowScheduler(
            system, method, order=self.order, window=self.window, starvation_bound=self.starvation_bound
        )


def bbsched(
    *,
    method: str = "bbsched",
    solver: str = "exact",
    order: str = "fcfs",
    window: int = 20,
    starvation_bound: int = 50,
    gb_per_core: int = 4,
    share: float = 0.5,
    seed: int = 0,
) -> WindowedQueue:
    """Select from a window at the head of the queue so that cores and burst buffer are used well (BBSched).

    Parameters
    ----------
    method, solver, order, window, starvation_bound, gb_per_core, share, seed
        See `WindowedQueue`.
    """
    return WindowedQueue(method, solver, order, window, starvation_bound, gb_per_core, share, seed)
