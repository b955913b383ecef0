"""Feitelson's 1996 model of rigid jobs on production machines: their sizes, run times and repetitions.

After "Packing Schemes for Gang Scheduling" (JSSPP 1996), and the Parallel Workloads Archive's page on it:

sizes
    Size n has a probability in proportion to ``1 / n**1.5`` (a harmonic distribution of order 1.5), "hand-tailored to
    further emphasize small sizes and powers of two". The page does not say by how much; here powers of two, including
    size 1, are `EMPHASIS` times as probable.
run times
    Hyperexponential, which varies more than exponential, and a little longer for wider jobs: mean 1 with probability
    ``p(n) = 0.95 - 0.20 n / N`` on a machine of N nodes, else mean 7. The unit of time is free.
repetitions
    A job is run r times with a probability in proportion to ``1 / r**2.5``, with the same size and run time.

The page gives the sizes, and says that run times are hyperexponential, vary more than exponential ones and grow a
little with size. The numbers of the run times and of the repetitions are as commonly given for the model, and were not
checked against the paper.

Arrivals are not the model's, but as in section 7.1 of the DMR paper: a Poisson process with a mean of 10 s between
jobs. In the model a repetition is submitted when the previous run has ended; here all are in one stream of arrivals,
each repetition right after the previous run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

ARRIVAL_S = 10.0
EMPHASIS = 3.0
_SIZE_ORDER, _REPEAT_ORDER = 1.5, 2.5
_SHORT, _LONG = 1.0, 7.0
_MAX_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class Rigid:
    """A job of the model."""

    submit_s: float
    nodes: int
    run: float  # run time, in the model's unit
    first: int  # index of the job that it repeats; its own index if none


def draw(jobs: int, most: int, rng: random.Random) -> Iterator[Rigid]:
    """Yield jobs for a machine of `most` nodes.

    Examples
    --------
    >>> [job.nodes for job in draw(8, 20, random.Random(1))]
    [1, 1, 4, 2, 2, 2, 8, 1]
    """
    sizes = range(1, most + 1)
    wide = list(accumulate((EMPHASIS if size & (size - 1) == 0 else 1.0) / size**_SIZE_ORDER for size in sizes))
    often = list(accumulate(1 / times**_REPEAT_ORDER for times in range(1, _MAX_REPEATS + 1)))
    submit_s, place = 0.0, 0
    while place < jobs:
        [nodes] = rng.choices(sizes, cum_weights=wide)
        is_short = rng.random() < 0.95 - 0.20 * nodes / most
        run = rng.expovariate(1 / (_SHORT if is_short else _LONG))
        [times] = rng.choices(range(1, _MAX_REPEATS + 1), cum_weights=often)
        first = place
        for _ in range(min(times, jobs - place)):
            submit_s += rng.expovariate(1 / ARRIVAL_S)
            yield Rigid(submit_s, nodes, run, first)
            place += 1
