"""A simulated site with a trained agent as its scheduler."""

from __future__ import annotations

from typing import ClassVar

from asa.backends.simulated import SchedulerSite


class DrasSite(SchedulerSite):
    """A centre or a log as in `asa.backends.simulated.SimulatedSite`, with a trained agent as the scheduler.

    The agent acts and does not learn, and needs no PyTorch.

    Parameters
    ----------
    system, settings
        See `SchedulerSite`; settings of the scheduler: see `asa.backends.dras.rivals.dras`: ``weights`` names the file
        of an agent other than the package's.
    """

    SCHEDULER: ClassVar[str] = "dras"
