"""A simulated site with a planning scheduler."""

from __future__ import annotations

from typing import Any

from asa.backends.simulated import SimulatedSite


class OpenCcsSite(SimulatedSite):
    """A centre or a log as in `asa.backends.simulated.SimulatedSite`, with OpenCCS as the scheduler.

    Background jobs and the client's are in one plan, and each job gets a promised start at submission
    (`asa.backend.Planning`).

    Parameters
    ----------
    settings
        See `SimulatedSite`.

    Examples
    --------
    >>> from asa.backend import JobSpec
    >>> world = OpenCcsSite("hpc2n").open(seed=1)
    >>> job = JobSpec("fit", cores=112, walltime_s=600.0, run_s=300.0)
    >>> planned_s = world.planned_start(job, world.now())
    >>> job_id = world.submit(job)
    >>> while world.status([job_id])[job_id].start_s is None:
    ...     _ = world.wait(None)
    >>> world.status([job_id])[job_id].start_s <= planned_s
    True
    """

    def __init__(self, *settings: Any, **named: Any) -> None:
        super().__init__(*settings, **{"scheduler": "openccs"} | named)
