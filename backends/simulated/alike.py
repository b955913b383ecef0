"""A model of a user's own site, made from no more than its size and some waits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .calibrate import probe
from .machine import Machine
from .presets import WaitTarget, preset
from .workload import ROUND_REQUESTS_S, WorkloadModel

MAX_CORES = 32_768
"""Upper bound of the cores that are simulated: warming up twenty queues of a larger machine takes minutes."""
MIN_WAITS = 30
"""Lower bound of the waits by which the load is chosen."""

_BASE = "hpc2n"  # the centre whose mix of jobs is taken
_LOADS = (0.3, 0.5, 0.7, 0.8, 0.87, 0.92, 0.96)
_GEOMETRIES = 4
_PERIODS, _DAYS = 5, 2  # as many as are simulated in a few seconds; single periods differ by a factor of ten
_SHORT_S = 60.0  # shorter mean waits count as equal


@dataclass(frozen=True, slots=True)
class AlikeCentre:
    """A model of a site, and how well its waits agree."""

    model: WorkloadModel
    waits: int = 0  # number of known waits by which its load was chosen; 0 if it is that of the base
    known_s: float = math.nan  # mean of these
    modelled_s: float = math.nan  # mean wait in the model of jobs of the same geometries

    @property
    def is_near(self) -> bool:
        """Whether both mean waits agree within a factor of two."""
        return abs(_apart(self.modelled_s, self.known_s)) <= math.log(2.0)


def centre_like(machine: Machine, waits: NDArray[np.float64]) -> AlikeCentre:
    """Make a model of a machine on which jobs wait about as long on average as was seen.

    Only the load is chosen, of a few values; the mix of jobs is that of a usual centre. The largest jobs of the mix are
    bounded by the machine.

    Parameters
    ----------
    machine
        The machine; at most `MAX_CORES` of it are simulated.
    waits
        Cores, walltime in seconds and wait in seconds of past jobs, a row for each. With fewer than `MIN_WAITS`, the
        load is that of the base.
    """
    nodes = max(min(machine.nodes, MAX_CORES // machine.cores_per_node), 1)
    machine = Machine(machine.name, nodes, machine.cores_per_node, whole_nodes=machine.whole_nodes)
    if len(waits) < MIN_WAITS:
        return AlikeCentre(_model(machine))
    known_s = float(waits[:, 2].mean())
    targets = _targets(waits, machine)
    means: dict[float, float] = {}

    def distance(load: float) -> float:
        """Return how much longer jobs wait in the model, as a difference of logarithms."""
        if load not in means:
            drawn = [probe(_model(machine, load), targets, _DAYS, seed) for seed in range(_PERIODS)]
            means[load] = float(np.concatenate(drawn).mean())
        return _apart(means[load], known_s)

    low, high = 0, len(_LOADS) - 1
    while low < high:  # waits grow with the load
        middle = (low + high) // 2
        low, high = (middle + 1, high) if distance(_LOADS[middle]) < 0 else (low, middle)
    load = min(_LOADS[max(low - 1, 0) : low + 1], key=lambda candidate: abs(distance(candidate)))
    return AlikeCentre(_model(machine, load), len(waits), known_s, means[load])


def _apart(modelled_s: float, known_s: float) -> float:
    """Return the difference of the logarithms of two mean waits; short waits count as equal."""
    return math.log((modelled_s + _SHORT_S) / (known_s + _SHORT_S))


def _model(machine: Machine, load: float | None = None) -> WorkloadModel:
    mix = preset(_BASE).parameters()
    widest = math.floor(100 * math.log2(max(machine.cores, 2))) / 100
    mix["log2_widest"] = min(mix["log2_widest"], widest)
    mix["log2_middle"] = min(mix["log2_middle"], mix["log2_widest"])
    return WorkloadModel(machine, **{**mix, **({} if load is None else {"load": load})})


def _targets(waits: NDArray[np.float64], machine: Machine) -> list[WaitTarget]:
    """Return the median geometries of equal parts of the waits, from narrow to wide jobs."""
    parts = np.array_split(waits[np.lexsort((waits[:, 1], waits[:, 0]))], _GEOMETRIES)
    medians = [np.median(part, axis=0) for part in parts]
    longest_s = float(ROUND_REQUESTS_S[-1])
    return [
        WaitTarget(
            machine.allocated(min(max(round(cores), 1), machine.cores)),
            math.ceil(min(max(walltime_s, 1.0), longest_s)),
            wait_s,
        )
        for cores, walltime_s, wait_s in medians
    ]
