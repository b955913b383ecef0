"""A simulated site whose scheduler is a trained agent."""

from __future__ import annotations

from typing import ClassVar

from asa.backends.simulated import SchedulerSite


class DrasSite(SchedulerSite):
    """A centre or a log as in `asa.backends.simulated.SimulatedSite`, with a trained agent as the scheduler.

    The agent acts and does not learn, and needs no PyTorch.

    Parameters
    ----------
    system, settings
        As for `SchedulerSite`; the scheduler's are those of `asa.backends.dras.rivals.dras`: ``weights`` names the file
        of an agent other than the package's.
    """

    SCHEDULER: ClassVar[str] = "dras"
