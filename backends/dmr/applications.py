"""Resizable applications, and their jobs: Table 1, and the time of an iteration by number of nodes.

How the curves were found
-------------------------
The paper has no speed-up curves. It says that FS scales linearly (section 7.4), that the preferred number of processes
is the sweet spot in terms of parallel efficiency (7.5), and how long the fixed workloads' jobs took on their maximum of
nodes (Table 4). So each of the others follows Amdahl's law, with two numbers:

- its serial share puts the knee of the curve, where efficiency per time is best (Eager, Zahorjan and Lazowska, 1989),
  at the preferred number of processes: under Amdahl's law it is ``1 / (1 + preferred)``;
- its time on the maximum of nodes is fitted to the waits and execution times of Table 4's fixed workloads, see
  `tests/dmr_times.py`. CG and Jacobi, which Table 1 does not distinguish, have the same.

FS has its size and time from Feitelson's model, see `asa.studies.dmr.workloads`. Nothing is fitted to the paper's
results with flexible jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from asa.dmr.protocol import Wish

from .policy import sizes_from

UNLIMITED_S = 365 * 86400.0
"""What Slurm's backfilling takes a job for that asks for no time."""


class ApplicationKind(StrEnum):
    """Who decides on a job's size, and when (section 2)."""

    RIGID = "rigid"
    MOLDABLE = "moldable"
    MALLEABLE = "malleable"
    EVOLVING = "evolving"


@dataclass(frozen=True, slots=True)
class Application:
    """What a job runs."""

    name: str
    iterations: int  # after each is a reconfiguration point
    serial_s: float  # seconds for all iterations: the first on any number of nodes, the second over it
    parallel_s: float
    wish: Wish  # the bounds that it checks with
    period_s: float = 0.0  # for so long after a check, or after its start, further ones are ignored
    data_gb: float = 1.0  # what is redistributed when it is resized; 1 GB, as in section 7.3

    def iteration_s(self, nodes: int) -> float:
        """Seconds that an iteration takes on so many nodes."""
        return self.run_s(nodes) / self.iterations

    def run_s(self, nodes: int) -> float:
        """Return the seconds that all of it takes on so many nodes.

        Examples
        --------
        >>> sleep(60.0, 4).run_s(2)
        120.0
        """
        return self.serial_s + self.parallel_s / nodes


def amdahl(name: str, iterations: int, wish: Wish, seconds: float, *, period_s: float = 0.0) -> Application:
    """Make an application whose sweet spot is its preferred size, with a given time on its maximum of nodes.

    `wish`: its possible sizes, and the preferred one.

    Examples
    --------
    >>> app = amdahl("app", 100, Wish(1, 32, preferred=8), 100.0)
    >>> round(app.run_s(32)), round(app.run_s(8))
    (100, 160)
    """
    assert wish.preferred is not None, "it is the sweet spot"
    serial = 1 / (1 + wish.preferred)
    alone_s = seconds / (serial + (1 - serial) / wish.maximum)
    return Application(name, iterations, serial * alone_s, (1 - serial) * alone_s, wish, period_s)


def sleep(seconds: float, nodes: int) -> Application:
    """Flexible Sleep, which scales linearly, of so many seconds on so many nodes."""
    return Application("FS", 25, 0.0, seconds * nodes, Wish(1, 20))


FS = sleep(60.0, 20)
CG = amdahl("CG", 10_000, Wish(2, 32, preferred=8), 340.0, period_s=15.0)
JACOBI = replace(CG, name="Jacobi")
N_BODY = amdahl("N-body", 25, Wish(1, 16, preferred=1), 1000.0)


@dataclass(frozen=True, slots=True)
class MalleableJob:
    """A job as it is submitted."""

    id: int  # its number; of two with the same priority the lower one is first
    submit_s: float
    application: Application
    # how many it asks for. A moldable job starts on what is free of these and the sizes below, if that is enough.
    nodes: int
    kind: ApplicationKind = ApplicationKind.MALLEABLE  # who decides on its size
    phases: tuple[tuple[int, Wish], ...] = ()  # of an evolving job: from which iteration on it has which wish
    limit_s: float = UNLIMITED_S  # time that it asks for

    def wish(self, iteration: int) -> Wish | None:
        """Give what it checks with after so many iterations; None if it never asks."""
        if self.kind is ApplicationKind.RIGID or self.kind is ApplicationKind.MOLDABLE:
            return None
        if not self.phases:
            return self.application.wish
        return next((wish for since, wish in reversed(self.phases) if iteration >= since), self.application.wish)

    def starts_on(self) -> tuple[int, ...]:
        """Give the sizes that it can start on, the largest first."""
        if self.kind is not ApplicationKind.MOLDABLE:
            return (self.nodes,)
        others = sizes_from(self.application.wish, self.nodes)
        return (self.nodes, *(size for size in reversed(others) if size < self.nodes))
