"""A simulated site some of whose jobs can be resized while they run."""

from __future__ import annotations

from typing import ClassVar

from asa.backends.simulated import SchedulerSite


class DmrSite(SchedulerSite):
    """A centre or a log as `asa.backends.simulated.SimulatedSite` has them, of whose jobs some are malleable.

    They give cores back when that lets a queued job start, the client's too, and take what nobody else can use.

    Parameters
    ----------
    system, settings
        As `SchedulerSite` has them; the scheduler's are those of `asa.backends.dmr.scheduler.dmr`.

    Examples
    --------
    >>> DmrSite("hpc2n", malleable=0.5).notes[0]
    "the machine's scheduler is dmr, malleable 0.5"
    """

    SCHEDULER: ClassVar[str] = "dmr"
