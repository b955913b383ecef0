"""The scheduler ``dmr``: some jobs of a log can be resized while they run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from asa.backends.simulated.table import JobTable
from numpy.typing import NDArray

from asa.core.plugins import unknown_name
from asa.errors import InputError

from .core import DmrCore
from .mechanics import Checkpoints, Costs
from .population import Population

Mode = Literal["sync", "async"]
"""Whether an answer is carried out at once, or at the next check (section 5.1)."""

Resizing = Literal["messages", "checkpoint", "queue"]
"""Method of resizing a job.

``messages``: its processes exchange their data. ``checkpoint``: it writes its data, and reads them at once with its new
size. ``queue``: likewise, but in between it waits in the queue.
"""


@dataclass(frozen=True, slots=True)
class Dmr:
    """Makes machines on which some jobs can be resized while they run."""

    population: Population = field(default_factory=Population)  # the resizable jobs
    mode: Mode = "sync"
    resizing: Resizing = "messages"
    # weight, in the queue's order, of a job's share of the machine, where a week of age has 1000, as in the study; 0
    # for first come first served
    size: float = 0.0

    def __post_init__(self) -> None:
        for what, name, known in (("mode", self.mode, Mode), ("way to resize", self.resizing, Resizing)):
            if name not in get_args(known):
                error: InputError = unknown_name(what, name, list(get_args(known)))
                raise error
        if self.size < 0:
            raise InputError(f"a weight of {self.size:g} cannot be", where="size", hint="Give 0 or more.")

    def core(self, capacity: int, table: JobTable, *, now: int, users: NDArray[np.integer] | None = None) -> DmrCore:
        """Make a core."""
        del users  # nothing depends on the owner of a job
        return DmrCore(
            capacity,
            table,
            now=now,
            jobs=self.population.of(table, capacity),
            costs=Costs(checkpoints=None if self.resizing == "messages" else Checkpoints()),
            asynchronous=self.mode == "async",
            requeues=self.resizing == "queue",
            size=self.size,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Note that logs do not contain flexible jobs."""
        they = self.population
        shares = {"malleable": they.malleable, "evolving": they.evolving, "moldable": they.moldable}
        text = ", ".join(f"{name} are {100 * share:g} %" for name, share in shares.items() if share)
        return (f"made up, as logs do not tell: {text or 'none'} of the jobs",)


def dmr(
    *,
    malleable: float = 0.3,
    evolving: float = 0.0,
    moldable: float = 0.0,
    min_share: float = 0.25,
    max_share: float = 1.0,
    preferred_share: float = 0.0,
    factor: int = 2,
    period_s: int = 15,
    data_gb: float = 1.0,
    mode: str = "sync",
    resizing: str = "messages",
    size: float = 0.0,
    seed: int = 0,
) -> Dmr:
    """Shares of the jobs are malleable, evolving, moldable: running jobs shrink so that others start, and grow (DMR).

    Parameters
    ----------
    malleable, evolving, moldable, min_share, max_share, preferred_share, factor, period_s, data_gb, seed
        See `Population`.
    mode, resizing, size
        See `Dmr`.
    """
    population = Population(
        malleable, evolving, moldable, min_share, max_share, preferred_share, factor, period_s, data_gb, seed
    )
    return Dmr(population, mode, resizing, size)  # type: ignore[arg-type]  # it refuses others
