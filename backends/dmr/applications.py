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
"""Walltime that Slurm's backfilling assumes for a job without a request."""


class ApplicationKind(StrEnum):
    """Kinds of applications, by who decides on a job's size, and when (section 2)."""

    RIGID = "rigid"
    MOLDABLE = "moldable"
    MALLEABLE = "malleable"
    EVOLVING = "evolving"


@dataclass(frozen=True, slots=True)
class Application:
    """The application of a job."""

    name: str
    iterations: int  # a reconfiguration point follows each
    serial_s: float  # seconds for all iterations: a constant part, and a part to be divided by the nodes
    parallel_s: float
    wish: Wish  # bounds in its checks
    period_s: float = 0.0  # further checks within this time after a check, or after the start, are ignored
    data_gb: float = 1.0  # data redistributed in a resize; 1 GB, as in section 7.3

    def iteration_s(self, nodes: int) -> float:
        """Return the seconds of an iteration on this number of nodes."""
        return self.run_s(nodes) / self.iterations

    def run_s(self, nodes: int) -> float:
        """Return the seconds of the whole run on this number of nodes.

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
    """Flexible Sleep, which scales linearly, with its duration on this number of nodes."""
    return Application("FS", 25, 0.0, seconds * nodes, Wish(1, 20))


FS = sleep(60.0, 20)
CG = amdahl("CG", 10_000, Wish(2, 32, preferred=8), 340.0, period_s=15.0)
JACOBI = replace(CG, name="Jacobi")
N_BODY = amdahl("N-body", 25, Wish(1, 16, preferred=1), 1000.0)


@dataclass(frozen=True, slots=True)
class MalleableJob:
    """A submitted job."""

    id: int  # its number; the lower one of two with the same priority is first
    submit_s: float
    application: Application
    # requested nodes. A moldable job starts on the free ones of these and the sizes below, if they suffice.
    nodes: int
    kind: ApplicationKind = ApplicationKind.MALLEABLE  # decider on its size
    phases: tuple[tuple[int, Wish], ...] = ()  # for an evolving job: first iteration of each phase, and its wish
    limit_s: float = UNLIMITED_S  # requested time

    def wish(self, iteration: int) -> Wish | None:
        """Return the wish of its check after an iteration; None if it never checks."""
        if self.kind is ApplicationKind.RIGID or self.kind is ApplicationKind.MOLDABLE:
            return None
        if not self.phases:
            return self.application.wish
        return next((wish for since, wish in reversed(self.phases) if iteration >= since), self.application.wish)

    def starts_on(self) -> tuple[int, ...]:
        """Return the sizes with which it can start, the largest first."""
        if self.kind is not ApplicationKind.MOLDABLE:
            return (self.nodes,)
        others = sizes_from(self.application.wish, self.nodes)
        return (self.nodes, *(size for size in reversed(others) if size < self.nodes))
