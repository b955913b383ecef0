"""Jobs of the past, from whatever kept them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError

__all__ = ["JobHistory"]


def _none() -> NDArray[np.float64]:
    return np.empty(0)


@dataclass(frozen=True, slots=True)
class JobHistory:
    """Jobs that waits can be learned from; columns of equal length, in order of submission.

    Parameters
    ----------
    submit_s
        When each began to queue, in seconds of one clock: its submission, or when it became eligible if something kept
        it back longer.
    wait_s
        Seconds that it queued.
    cores, walltime_s
        What it asked for.
    started
        Whether it started; else it left the queue after `wait_s`, so that its wait would have been at least that.
    run_s
        Seconds that it ran; negative where that is not known.
    user, partition
        Its user and partition as places in `users` and `partitions`; -1 where that is not known.
    users, partitions
        Their names.
    system
        Name of the system; may be empty.
    machine_cores
        Cores of the machine, 0 where that is not known.
    source
        Where all this is from, for people.
    oddities
        How many rows each rule of the reader touched, by the rule's words.
    """

    submit_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    cores: NDArray[np.int64]
    walltime_s: NDArray[np.float64]
    started: NDArray[np.bool_]
    run_s: NDArray[np.float64] = field(default_factory=_none)
    user: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    partition: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    users: Sequence[str] = ()
    partitions: Sequence[str] = ()
    system: str = ""
    machine_cores: int = 0
    source: str = ""
    oddities: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = len(self.submit_s)
        for name, unknown in (("run_s", -1.0), ("user", -1), ("partition", -1)):
            if not len(getattr(self, name)) and rows:
                object.__setattr__(self, name, np.full(rows, unknown, dtype=getattr(self, name).dtype))
        columns = ("submit_s", "wait_s", "cores", "walltime_s", "started", "run_s", "user", "partition")
        if any(len(getattr(self, name)) != rows for name in columns):
            raise InputError("the columns of a history differ in length", where=self.source)
        if rows and bool(np.any(np.diff(self.submit_s) < 0)):
            raise InputError("a history is not in order of submission", where=self.source)

    def __len__(self) -> int:
        return len(self.submit_s)

    def first(self, jobs: int) -> JobHistory:
        """Return the first so many jobs."""
        columns = ("submit_s", "wait_s", "cores", "walltime_s", "started", "run_s", "user", "partition")
        cut = {name: getattr(self, name)[:jobs] for name in columns}
        kept = ("users", "partitions", "system", "machine_cores", "source", "oddities")
        return JobHistory(**cut, **{name: getattr(self, name) for name in kept})
