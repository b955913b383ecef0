"""The resizable jobs of a log, and their properties, which are drawn for each job, as logs lack them.

A log has a job's width, run time and request. Its kind is drawn, the same for the same row and seed, and a larger share
only adds jobs to those of a smaller one. A malleable job may have from `Population.min_share` to `Population.max_share`
of its request. Its speed by width follows the paper:

- without a preferred size it scales linearly, as FS does (section 7.4), so that core-hours stay the same;
- with one, that is its sweet spot, and it follows Amdahl's law, as in `asa.backends.dmr.applications`.

An evolving job is wide, narrow and wide again, for a third of its work each: it asks for fewer nodes, by a factor, in
the middle, and for the original number before the last third (section 4.1). At its original width it runs as in the
log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from asa.backends.simulated.table import JobTable
from numpy.typing import NDArray

from asa.dmr.protocol import Wish
from asa.errors import InputError

from .applications import Application, ApplicationKind, MalleableJob
from .policy import sizes_from

_FLEXIBLE = (ApplicationKind.MALLEABLE, ApplicationKind.EVOLVING, ApplicationKind.MOLDABLE)
_PERCENT = 100


@dataclass(frozen=True, slots=True)
class Population:
    """The distribution of resizable jobs."""

    malleable: float = 0.3  # shares of the jobs; the rest is rigid
    evolving: float = 0.0
    moldable: float = 0.0
    min_share: float = 0.25  # bounds of a flexible job's cores, as shares of its request
    max_share: float = 1.0
    preferred_share: float = 0.0  # preferred share of a malleable job; 0 for none
    factor: int = 2  # new sizes are the old size multiplied or divided by a power of this
    period_s: int = 15  # interval between the checks of a running job
    data_gb: float = 1.0  # data redistributed when a job is resized
    seed: int = 0

    def __post_init__(self) -> None:
        shares = (self.malleable, self.evolving, self.moldable)
        if min(shares) < 0 or sum(shares) > 1:
            raise InputError(
                f"{' + '.join(f'{share:g}' for share in shares)} of all jobs cannot be",
                where="malleable, evolving, moldable",
                hint="Give shares of 0 to 1 that together are not more than 1.",
            )
        if not 0 <= self.min_share <= 1 <= self.max_share:
            raise InputError(
                f"from {self.min_share:g} to {self.max_share:g} of its cores a job cannot have",
                where="min_share, max_share",
                hint="Give a least share of 0 to 1 and a greatest of 1 or more.",
            )
        if self.preferred_share and not self.min_share <= self.preferred_share <= self.max_share:
            raise InputError(
                f"{self.preferred_share:g} is preferred, and not between {self.min_share:g} and {self.max_share:g}",
                where="preferred_share",
                hint="Prefer a share that the job may have, or 0 for none.",
            )
        for name, least in (("factor", 2), ("period_s", 1), ("data_gb", 0), ("seed", 0)):
            if (value := getattr(self, name)) < least:
                raise InputError(f"{value:g} cannot be", where=name, hint=f"Give {least} or more.")

    def of(self, table: JobTable, capacity: int) -> LogJobs:
        """Draw the kinds of the jobs of a log, on a machine with this number of cores."""
        drawn = np.random.Generator(np.random.PCG64(self.seed)).random(len(table))
        edges = np.cumsum([self.malleable, self.evolving, self.moldable])
        return LogJobs(self, table, capacity, np.searchsorted(edges, drawn, side="right"))

    def wish(self, cores: int, capacity: int) -> Wish:
        """Return the range of sizes of a job that requests this number of cores."""
        least = max(round(cores * self.min_share), 1)
        most = max(min(int(cores * self.max_share), capacity), cores)
        preferred = min(max(round(cores * self.preferred_share), least), most) if self.preferred_share else None
        return Wish(least, most, self.factor, preferred)


@dataclass(frozen=True, slots=True)
class LogJobs:
    """The jobs of a log, with the flexible ones; made by `Population.of`."""

    population: Population
    table: JobTable
    capacity: int
    drawn: NDArray[np.int64] = field(repr=False)  # kind of each job, an index, shape (jobs,)

    def __call__(self, row: int) -> MalleableJob | None:
        """Describe a job; None if it is rigid, or has no other size."""
        drawn = int(self.drawn[row])
        if drawn >= len(_FLEXIBLE):
            return None
        population, kind, cores = self.population, _FLEXIBLE[drawn], int(self.table.cores[row])
        phases: tuple[tuple[int, Wish], ...] = ()
        wish = population.wish(cores, self.capacity)
        if kind is ApplicationKind.EVOLVING:
            if cores % population.factor:
                return None
            wide, narrow = (Wish(size, size, population.factor) for size in (cores, cores // population.factor))
            wish, phases = wide, ((0, wide), (_PERCENT // 3, narrow), (2 * _PERCENT // 3, wide))
        elif not sizes_from(wish, cores):
            return None
        run_s = float(self.table.run[row])
        serial = 1 / (1 + wish.preferred) if wish.preferred is not None else 0.0
        alone_s = run_s / (serial + (1 - serial) / cores)
        application = Application(
            "log", _PERCENT, serial * alone_s, (1 - serial) * alone_s, wish, population.period_s, population.data_gb
        )
        submit_s, limit_s = float(self.table.submit[row]), float(self.table.request[row])
        return MalleableJob(row, submit_s, application, cores, kind, phases, limit_s)
