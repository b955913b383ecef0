"""Measures the CPU time of a function on a busy machine, in units of a fixed piece of work."""

import time
from collections.abc import Callable

import numpy as np


def reference() -> float:
    """Ten milliseconds or so of Python and small arrays, as planning and scheduling are made of."""
    rng, total = np.random.default_rng(0), 0.0
    for _ in range(1600):
        values = rng.random(32)
        total += float(np.maximum.accumulate(values).sum()) + sum(sorted(values.tolist())[:8])
    return total


def references(work: Callable[[], object], rounds: int = 5) -> float:
    """Return the CPU time of a function, in units of the reference, each measured in turn; the least of several."""

    def seconds(what: Callable[[], object]) -> float:
        began_s = time.process_time()
        what()
        return time.process_time() - began_s

    reference()
    return min(seconds(work) / seconds(reference) for _ in range(rounds))
