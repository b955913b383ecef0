"""A simulated site whose scheduler looks after burst buffer as well."""

from __future__ import annotations

from typing import ClassVar

from asa.backends.simulated import SchedulerSite


class BBSchedSite(SchedulerSite):
    """A centre or a log as in `asa.backends.simulated.SimulatedSite`, with BBSched as the scheduler.

    It has a burst buffer, for which background jobs ask, and the client's may (`JobSpec.burst_buffer_bytes`).

    Parameters
    ----------
    system, settings
        As for `SchedulerSite`; the scheduler's are those of `asa.backends.bbsched.queue.bbsched`.

    Examples
    --------
    >>> BBSchedSite("hpc2n", window=10).capabilities.burst_buffer_bytes // 10**12
    67
    """

    SCHEDULER: ClassVar[str] = "bbsched"
