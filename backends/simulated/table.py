"""The background load as columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["NEVER", "UNSTARTED", "JobTable"]

NEVER = 1 << 62
UNSTARTED = -1


class JobTable:
    """The background load as columns, one row a job, ordered by submission.

    Parameters
    ----------
    submit, run, request
        Whole seconds; run and request at least 1.
    cores
        Allocated cores, at least 1.

    Notes
    -----
    Immutable; forks of an engine share it. A run longer than its request is cut to it (convention 4).
    """

    def __init__(
        self,
        submit: NDArray[np.int64],
        run: NDArray[np.int64],
        request: NDArray[np.int64],
        cores: NDArray[np.int64],
    ) -> None:
        order = np.argsort(submit, kind="stable")
        self.submit, self.request, self.cores = (
            np.ascontiguousarray(column[order], dtype=np.int64) for column in (submit, request, cores)
        )
        self.run = np.minimum(np.ascontiguousarray(run[order], dtype=np.int64), self.request)
        if len(self.submit) and min(self.run.min(), self.request.min(), self.cores.min()) < 1:
            raise ValueError("run, request and cores of a background job are at least 1")
        self.order = order
        self._look()

    def __len__(self) -> int:
        return len(self.submit)

    def __getstate__(self) -> dict[str, NDArray[np.int64]]:
        return {name: getattr(self, name) for name in ("submit", "run", "request", "cores", "order")}

    def __setstate__(self, state: dict[str, NDArray[np.int64]]) -> None:
        self.__dict__.update(state)
        self._look()

    def _look(self) -> None:
        """Open views through which CPython reads one number several times faster than through an array."""
        self.view_submit, self.view_run = self.submit.data, self.run.data
        self.view_request, self.view_cores = self.request.data, self.cores.data
