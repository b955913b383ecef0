"""How the client's CPU time grows with the graph that it drives: every strategy, on chains, layers and sparse graphs.

python tests/growth.py
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager

from asa.backends.simulated import SimulatedSite

from asa import WaitBank
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.workflow import Stage, Workflow

STRATEGIES = ("big-job", "per-stage", "chained", "asa", "asa-naive", "asa-plan", "elastic")


def chain(stages: int) -> Workflow:
    """Stages one after the other."""
    return Workflow("chain", [_stage(i, [i - 1] if i else []) for i in range(stages)])


def layers(stages: int, depth: int = 5) -> Workflow:
    """Some layers, each stage of which follows all of the layer before."""
    width = -(-stages // depth)
    edges = [range((i // width - 1) * width, i // width * width) if i >= width else () for i in range(stages)]
    return Workflow("layers", [_stage(i, before) for i, before in enumerate(edges)])


def sparse(stages: int, most: int = 3) -> Workflow:
    """Each stage follows up to so many of those before it, as chance will have it."""
    chance = random.Random(stages)
    return Workflow(
        "sparse", [_stage(i, chance.sample(range(i), min(i, chance.randint(0, most)))) for i in range(stages)]
    )


def _stage(place: int, before: Sequence[int]) -> Stage:
    return Stage(
        f"s{place}",
        cores=1 + place % 2,
        walltime_s=300,
        expected_run_s=60 + place % 7,
        after=tuple(f"s{i}" for i in before),
    )


SHAPES: dict[str, Callable[[int], Workflow]] = {"chain": chain, "layers": layers, "sparse": sparse}


class TooLong(BaseException):
    pass


@contextmanager
def at_most(seconds):
    def stop(*_):
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def simulated(flow, strategy):
    site = SITE
    world = site.open(1)
    begun = time.process_time()
    results = run_all(
        world,
        [Run(flow, load_strategy(strategy), bank=WaitBank("asa", seed=1, machine_cores=world.capabilities.max_cores))],
    )
    assert results[0].outcome == "completed", results[0].reason
    return time.process_time() - begun


SITE = SimulatedSite("hpc2n")
SITE.prepare([1])

if __name__ == "__main__":
    most = float(sys.argv[1])
    for shape in sys.argv[2].split(","):
        for s in sys.argv[3].split(","):
            for n in map(int, sys.argv[4].split(",")):
                flow = SHAPES[shape](n)
                size = len(flow.stages) + flow.graph.number_of_edges()
                try:
                    with at_most(most):
                        t = simulated(flow, s)
                except TooLong:
                    print(shape, s, n, size, f"more than {most}", flush=True)
                    break
                except Exception as e:
                    print(shape, s, n, size, repr(e)[:300], flush=True)
                    break
                print(shape, s, n, size, f"{t:.2f}", flush=True)
