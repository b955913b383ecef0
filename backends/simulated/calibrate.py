"""Fitting the workload model to the waits observed at a centre."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .engine import Engine
from .presets import WaitTarget
from .table import NEVER
from .workload import WorkloadModel

_DAY = 86400
_WARM_UP_DAYS = 7
_PROBES_A_DAY = 24

_SEARCHED: dict[str, tuple[float, float, float]] = {
    # parameter: (least, most, first step)
    "load": (0.5, 1.1, 0.005),
    "accuracy": (0.02, 0.9, 0.15),
    "narrow": (0.5, 0.99, 0.05),
    "serial": (0.05, 0.7, 0.1),
    "log2_middle": (3.0, 7.0, 0.7),
    "log2_widest": (8.0, 12.0, 0.7),
}


@dataclass(frozen=True, slots=True)
class MeasuredWait:
    """The wait of a target's job under a model."""

    target: WaitTarget  # the job, and the wait to reach
    mean_wait_s: float
    # half the width of a 95 % interval of that mean, from the spread between seeds; nan with one seed
    half_width_s: float
    waited: float  # share of probes that did not start at once

    @property
    def ratio(self) -> float:
        """Ratio of measured to target mean wait."""
        return self.mean_wait_s / self.target.mean_wait_s


@dataclass(frozen=True, slots=True)
class CalibrationTrial:
    """One model that a calibration tried."""

    number: int
    model: WorkloadModel
    measured: tuple[MeasuredWait, ...]  # results, one for each target
    misfit: float  # distance of the results from the targets; 0 is best
    best: bool  # whether it is the best model so far


def probe(model: WorkloadModel, targets: Sequence[WaitTarget], days: int, seed: int) -> NDArray[np.float64]:
    """Simulate waits of single jobs added to one simulated period: a row for each time, a column for each target."""
    seeds = np.random.SeedSequence([seed, 1])
    table = model.generate((_WARM_UP_DAYS + days + 3) * _DAY, seeds.spawn(1)[0])
    rng = np.random.Generator(np.random.PCG64(seeds))
    moments = np.sort(rng.integers(_WARM_UP_DAYS * _DAY, (_WARM_UP_DAYS + days) * _DAY, size=days * _PROBES_A_DAY))
    engine = Engine(model.machine.cores, table)
    waits = np.zeros((len(moments), len(targets)))
    for row, moment in enumerate(moments.tolist()):
        engine.advance(moment)
        for column, target in enumerate(targets):
            world = engine.fork()
            world.submit(cores=target.cores, request=target.walltime_s, run=1)
            world.advance(NEVER)
            waits[row, column] = world.clients[0].start - moment
    return waits


def measure(
    model: WorkloadModel,
    targets: Sequence[WaitTarget],
    *,
    seeds: Sequence[int],
    days: int,
    executor: Executor,
) -> list[MeasuredWait]:
    """Measure the mean waits of the targets' jobs, submitted at random moments of several simulated periods."""
    periods = list(executor.map(probe, *zip(*((model, targets, days, seed) for seed in seeds), strict=True)))
    means = np.array([waits.mean(axis=0) for waits in periods])
    whole = np.concatenate(periods)
    spread = means.std(axis=0, ddof=1) / math.sqrt(len(seeds)) if len(seeds) > 1 else np.full(len(targets), math.nan)
    return [
        MeasuredWait(target, float(means[:, i].mean()), 1.96 * float(spread[i]), float((whole[:, i] > 0).mean()))
        for i, target in enumerate(targets)
    ]


def _misfit(measured: Sequence[MeasuredWait]) -> float:
    """Root mean square of the logarithms of measured over target waits; a wait of zero counts as a second."""
    return math.sqrt(
        sum(math.log(max(m.mean_wait_s, 1.0) / m.target.mean_wait_s) ** 2 for m in measured) / len(measured)
    )


def calibrate(
    model: WorkloadModel,
    targets: Sequence[WaitTarget],
    *,
    trials: int,
    seeds: Sequence[int],
    days: int,
    executor: Executor,
    seed: int = 0,
    report: Callable[[CalibrationTrial], None] = lambda _: None,
) -> WorkloadModel:
    """Search for the model whose mean waits are nearest to the targets.

    A random walk from the given model that keeps improvements; its steps grow after a success and shrink after a
    failure (the 1/5 rule). All trials have the same seeds, so only the model differs.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    best, least, step = model, math.inf, 1.0
    for number in range(trials):
        tried = model if number == 0 else _vary(best, step, rng)
        measured = tuple(measure(tried, targets, seeds=seeds, days=days, executor=executor))
        misfit = _misfit(measured)
        better = misfit < least
        if better:
            best, least = tried, misfit
        if number:
            step = min(step * 1.5, 2.0) if better else max(step * 0.9, 0.05)
        report(CalibrationTrial(number, tried, measured, misfit, better))
    return best


def _vary(model: WorkloadModel, step: float, rng: np.random.Generator) -> WorkloadModel:
    # a width cannot exceed the machine, nor the lower stage of widths the upper
    changed: dict[str, float] = {}
    for name, (low, high, size) in _SEARCHED.items():
        value = getattr(model, name) + step * size * rng.standard_normal()
        changed[name] = round(float(np.clip(value, low, high)), 4)
    changed["log2_widest"] = min(changed["log2_widest"], math.floor(100 * math.log2(model.machine.cores)) / 100)
    changed["log2_middle"] = min(changed["log2_middle"], changed["log2_widest"])
    return WorkloadModel(model.machine, **{**model.parameters(), **changed})
