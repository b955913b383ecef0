"""What the jobs of workloads ask for of burst buffer: histograms, and totals (Fig. 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from asa.studies.bbsched.workloads import BUFFER, Workload

BIN_TB: Final = 10
"""Width of the paper's bins."""


@dataclass(frozen=True, slots=True)
class AskedBuffer:
    """The requests of a workload for burst buffer."""

    workload: str
    jobs: int
    asking: int  # number of jobs with a request
    total_tb: float
    counts: tuple[int, ...]  # jobs with a request, by bins of `BIN_TB`, from 0 on; a bin's upper edge belongs to it


def asked_buffer(workload: Workload) -> AskedBuffer:
    """Count the requests of a workload."""
    asked = workload.demands[BUFFER]
    some = asked[asked > 0]
    bins = np.bincount((some - 1) // (1000 * BIN_TB))
    return AskedBuffer(workload.name, len(asked), len(some), float(some.sum()) / 1000, tuple(bins.tolist()))
