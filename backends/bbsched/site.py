"""A simulated site whose scheduler also allocates burst buffer."""

from __future__ import annotations

from typing import ClassVar

from asa.backends.simulated import SchedulerSite


class BBSchedSite(SchedulerSite):
    """A centre or a log as in `asa.backends.simulated.SimulatedSite`, with BBSched as the scheduler.

    It has a burst buffer, which background jobs and the client's jobs may request (`JobSpec.burst_buffer_bytes`).

    Parameters
    ----------
    system, settings
        See `SchedulerSite`; settings of the scheduler: see `asa.backends.bbsched.queue.bbsched`.

    Examples
    --------
    >>> BBSchedSite("hpc2n", window=10).capabilities.burst_buffer_bytes // 10**12
    67
    """

    SCHEDULER: ClassVar[str] = "bbsched"
