"""The background load as columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .limits import LATEST_S, LONGEST_S, MAX_CORES, NEVER, UNSTARTED

__all__ = ["LATEST_S", "LONGEST_S", "MAX_CORES", "NEVER", "UNSTARTED", "JobTable"]


class JobTable:
    """The background load as columns, one row a job, ordered by submission.

    `keep_overruns`: keep runs that are longer than their request; otherwise the job is killed at its walltime.
    Raises `ValueError`: a number below 1, or jobs so long or late that they might run beyond `LATEST_S`.

    Notes
    -----
    Immutable; forks of an engine share it.
    """

    def __init__(
        self,
        submit: NDArray[np.int64],
        run: NDArray[np.int64],
        request: NDArray[np.int64],
        cores: NDArray[np.int64],
        *,
        keep_overruns: bool = False,
    ) -> None:
        order = np.argsort(submit, kind="stable")
        self.submit, self.run, self.request, self.cores = (
            np.ascontiguousarray(column[order], dtype=np.int64) for column in (submit, run, request, cores)
        )
        for column, most in ((self.request, LONGEST_S), (self.run, LONGEST_S if keep_overruns else self.request)):
            np.minimum(column, most, out=column)
        if len(self.submit) and min(self.run.min(), self.request.min(), self.cores.min()) < 1:
            raise ValueError("run, request and cores of a background job are at least 1")
        if len(self.submit) and int(self.submit[-1]) + int(self.run.sum()) + int(self.request.max()) >= LATEST_S:
            raise ValueError(f"jobs that may run beyond second {LATEST_S}")
        self.order = order

    def __len__(self) -> int:
        return len(self.submit)
