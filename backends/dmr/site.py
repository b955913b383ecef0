"""A simulated site with some jobs that can be resized while they run."""

from __future__ import annotations

from typing import ClassVar

from asa.backends.simulated import SchedulerSite


class DmrSite(SchedulerSite):
    """A centre or a log as in `asa.backends.simulated.SimulatedSite`, with some malleable jobs.

    They give cores back when that lets a queued job start, also the client's, and take cores that no queued job can
    use.

    Parameters
    ----------
    system, settings
        See `SchedulerSite`; settings of the scheduler: see `asa.backends.dmr.scheduler.dmr`.

    Examples
    --------
    >>> DmrSite("hpc2n", malleable=0.5).notes[0]
    "the machine's scheduler is dmr, malleable 0.5"
    """

    SCHEDULER: ClassVar[str] = "dmr"
