"""The shapes that a stage may ask for, and its run time at each width.

Between two measured widths, the run time is interpolated in the logarithms of both. Beyond them it is unknown, unless a
model is named, which is fitted to the known run times by least squares on logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import pairwise, product
from typing import Literal, get_args

from asa.core.late import dataclass
from asa.errors import WorkflowError

__all__ = ["Moldable", "RunAt", "Scaling", "Shape", "run_time_at", "shapes_of"]

Law = Literal["measured", "amdahl", "downey", "tasks"]

# Standard deviation of the logarithm of a run time, per doubling of the width from the nearest measured one. It was
# 0.10 between and 0.16 to 0.20 beyond measured widths, when widths of NAS benchmarks were left out and predicted from
# the rest.
_BETWEEN, _BEYOND = 0.1, 0.2
_SURE = 2.0  # standard deviations of the run time that a walltime allows for
_UNKNOWN_FIT = 0.1  # standard deviation of the logarithm about a model fitted to as many points as it has parameters
_GRID = 24
_ROUNDS = 4  # grids, each a quarter as wide as the one before


@dataclass(frozen=True, slots=True)
class RunAt:
    """The run time of a stage at a width.

    `width`: cores; nodes for a stage that asks for whole nodes.
    `run_s`: expected run time in seconds.
    `spread`: its uncertainty: the standard deviation of the logarithm.
    """

    width: int
    run_s: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Scaling:
    """The law that gives run times from widths.

    `law`: ``measured``: only measured widths, and those between them. ``amdahl``: a part of the work is serial.
    ``downey``: Downey's model of speedup, by the average parallelism and its variance. ``tasks``: equal tasks, as many
    at a time as fit.
    `parallel`: Amdahl's law: the share of the work that runs in parallel, 0 to 1; by default fitted.
    `parallelism`, `variance`: Downey's model: the average parallelism, from 1 on, and its variance, from 0 on; by
    default fitted.
    `tasks`: the number of tasks; 0 if there are so many that their number does not matter.
    `per_task`: cores of each task.
    Raises `WorkflowError`: a parameter is invalid, or belongs to another law.

    Examples
    --------
    >>> round(run_time_at(112, [RunAt(28, 3600.0)], Scaling("amdahl", parallel=0.9)).run_s)
    2943
    """

    law: Law = "measured"
    parallel: float | None = None
    parallelism: float | None = None
    variance: float | None = None
    tasks: int = 0
    per_task: int = 1

    def __post_init__(self) -> None:
        laws = get_args(Law)
        if self.law not in laws:
            raise _error(f"{self.law!r} is no law of scaling", f"Give one of {', '.join(laws)}.")
        for name, value, least, most, law in (
            ("parallel", self.parallel, 0.0, 1.0, "amdahl"),
            ("parallelism", self.parallelism, 1.0, math.inf, "downey"),
            ("variance", self.variance, 0.0, math.inf, "downey"),
        ):
            if value is None:
                continue
            if self.law != law:
                raise _error(f"{name} is said of {self.law!r}, and belongs to {law!r}", "Leave it out.")
            if not (least <= value <= most and value < math.inf):
                raise _error(f"{name} is {value:g}", f"Give a number from {least:g} on, at most {most:g}.")
        if (self.parallelism is None) != (self.variance is None):
            raise _error("has one of parallelism and variance", "Give both, or neither to have them fitted.")

    @property
    def min_points(self) -> int:
        """Number of widths that must be measured before the law gives run times at others."""
        known = {"amdahl": self.parallel, "downey": self.parallelism, "tasks": 1.0}.get(self.law)
        return 1 if known is not None else {"downey": 3}.get(self.law, 2)


@dataclass(frozen=True, slots=True)
class Shape:
    """One request that a stage may make.

    `width`: cores; nodes for a stage that asks only for nodes.
    `run_s`: expected run time at this width, in seconds.
    `walltime_s`: seconds to ask the batch system for.
    `spread`: uncertainty of the run time: the standard deviation of the logarithm.
    `partition`: where it is sent; empty for the site's default.
    """

    width: int
    run_s: float
    walltime_s: float
    spread: float = 0.0
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Moldable:
    """The alternatives to a stage's own shape.

    `widths`: all widths, including its own; empty for only its own.
    `run_at`: known run times by width; by default the expected run time at its own.
    `scaling`: the law for widths whose run time is not known.
    `walltime_at`: walltimes at some widths, in seconds, interpolated between them; by default proportional to run
    times.
    `partitions`: all partitions, including its own; empty for only its own.
    """

    widths: tuple[int, ...] = ()
    run_at: tuple[RunAt, ...] = ()
    scaling: Scaling = field(default_factory=Scaling)
    walltime_at: tuple[tuple[int, float], ...] = ()
    partitions: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show the values that differ from their defaults."""
        usual = Moldable()
        values = ((name, getattr(self, name), getattr(usual, name)) for name in self.__slots__)
        return f"Moldable({', '.join(f'{name}={value!r}' for name, value, other in values if value != other)})"


@lru_cache(maxsize=4096)
def doubled(first: int, last: int) -> list[int]:
    """List widths from the first to the last, each twice the width before it.

    Examples
    --------
    >>> doubled(7, 112), doubled(2, 3)
    ([7, 14, 28, 56, 112], [2, 3])
    """
    widths = [first]
    while first > 0 and 2 * widths[-1] < last:
        widths.append(2 * widths[-1])
    return widths if last == first else [*widths, last]


def shapes_of(own: Shape, moldable: Moldable) -> tuple[Shape, ...]:
    """Make all shapes of a stage with known run times; `own` is its present shape."""
    points = moldable.run_at or (RunAt(own.width, own.run_s, own.spread),)
    here = run_time_at(own.width, points, moldable.scaling) or RunAt(own.width, own.run_s, own.spread)
    runs = {
        width: here if width == own.width else run_time_at(width, points, moldable.scaling)
        for width in moldable.widths or (own.width,)
    }
    known = {width: run for width, run in runs.items() if run is not None}
    usual_s = _usual_walltimes(known, moldable)
    factor = own.walltime_s / usual_s[own.width]
    longer = max(own.run_s / here.run_s, 1.0)  # above 1 after a time-out
    given = {width for width, _ in moldable.walltime_at}
    found = []
    for width, run in known.items():
        run_s, spread, walltime_s = run.run_s * longer, run.spread, usual_s[width] * factor
        if width == own.width:
            run_s, spread, walltime_s = own.run_s, own.spread, own.walltime_s
        elif width not in given:  # a width with a small and less certain walltime must not shorten those of others
            walltime_s = max(walltime_s, run_s)
        elif longer > 1.0:  # the necessary walltime is unknown, but the stage must not be killed there, too
            run_s = min(run_s, walltime_s)
        found += [
            Shape(width, run_s, walltime_s, spread, partition) for partition in moldable.partitions or (own.partition,)
        ]
    return tuple(found)


def _usual_walltimes(runs: Mapping[int, RunAt], moldable: Moldable) -> dict[int, float]:
    """Compute the walltime of each width, up to a common factor.

    Given walltimes hold at their widths and between them; others are proportional to the nearest of these.
    """
    asked = [RunAt(width, walltime_s) for width, walltime_s in moldable.walltime_at]
    given = {width: one.run_s for width in runs if (one := run_time_at(width, asked)) is not None}
    with_doubt = {width: run.run_s * math.exp(_SURE * run.spread) for width, run in runs.items()}

    def usual_s(width: int) -> float:
        if width in given or not given:
            return given.get(width, with_doubt[width])
        near = min(given, key=lambda known_width: abs(math.log(known_width / width)))
        return with_doubt[width] * given[near] / with_doubt[near]

    return {width: usual_s(width) for width in runs}


def run_time_at(width: int, points: Sequence[RunAt], scaling: Scaling | None = None) -> RunAt | None:
    """Return the run time of a stage at a width, with its uncertainty.

    `width`: in the unit of the points.
    `points`: known run times, one for each width.
    `scaling`: the law; by default ``measured``.
    Returns: the measured time at a measured width; else an interpolated one, or the model's; None if there is none.

    Examples
    --------
    >>> points = [RunAt(64, 263.0), RunAt(256, 73.5)]
    >>> round(run_time_at(128, points).run_s), run_time_at(512, points)
    (139, None)
    >>> round(run_time_at(512, points, Scaling("amdahl")).run_s)
    42
    """
    scaling, points = scaling or Scaling(), tuple(sorted(points, key=lambda point: point.width))
    known = next((point for point in points if point.width == width), None)
    if known is not None or not points:
        return known
    far = min(abs(math.log2(width / point.width)) for point in points)
    is_between = points[0].width < width < points[-1].width
    if scaling.law == "measured":
        return _between(width, points, far) if is_between else None
    if len(points) < scaling.min_points:
        return None
    speed, misfit = _fitted(points, scaling)
    near = min(points, key=lambda point: abs(math.log(width / point.width)))
    # the misfit at the nearest point is assumed to hold around it, too
    run_s = near.run_s * speed(near.width) / speed(width)
    away = (_BETWEEN if is_between else _BEYOND) * far if scaling.law != "tasks" else 0.0
    return RunAt(width, run_s, math.hypot(near.spread, misfit, away))


def _between(width: int, points: Sequence[RunAt], far: float) -> RunAt:
    below, above = next((a, b) for a, b in pairwise(points) if a.width < width < b.width)
    share = math.log(width / below.width) / math.log(above.width / below.width)
    run_s = math.exp((1 - share) * math.log(below.run_s) + share * math.log(above.run_s))
    spread = (1 - share) * below.spread + share * above.spread
    return RunAt(width, run_s, math.hypot(spread, _BETWEEN * far))


Speed = Callable[[float], float]
_Ranges = Sequence[tuple[float, float]]  # ranges of parameters


@lru_cache(maxsize=1024)  # called for each width
def _fitted(points: tuple[RunAt, ...], scaling: Scaling) -> tuple[Speed, float]:
    """Return the speed as a function of width, in any unit, and the misfit (standard deviation of logarithms)."""
    if scaling.law == "tasks":
        return _speed_of_tasks(scaling), 0.0
    if scaling.law == "amdahl" and scaling.parallel is not None:
        return _amdahl(1.0 - scaling.parallel), 0.0
    if scaling.law == "downey" and scaling.parallelism is not None and scaling.variance is not None:
        return _downey(scaling.parallelism, scaling.variance), 0.0
    make, ranges = _FITS[scaling.law](points[-1].width)
    speed = make(*_least(lambda *at: _misfit(points, make(*at)), ranges))
    freedom = len(points) - len(ranges) - 1
    total = _misfit(points, speed)
    return speed, math.sqrt(total / freedom) if freedom > 0 else max(math.sqrt(total / len(points)), _UNKNOWN_FIT)


def _misfit(points: Sequence[RunAt], speed: Speed) -> float:
    """Return the sum of squared deviations of points from a speed, in the logarithm and up to its unit."""
    logs = [math.log(point.run_s * speed(point.width)) for point in points]
    mean = sum(logs) / len(logs)
    return sum((log - mean) ** 2 for log in logs)


def _least(cost: Callable[..., float], ranges: _Ranges) -> tuple[float, ...]:
    """Search a grid for the least cost, then finer grids around the best point; O(grid^parameters)."""
    now = list(ranges)
    best: tuple[float, ...] = ()
    for _ in range(_ROUNDS):
        grid = product(*([low + (high - low) * step / _GRID for step in range(_GRID + 1)] for low, high in now))
        best = min(grid, key=lambda at: cost(*at))
        now = [
            (max(at - (to - of) / 8, low), min(at + (to - of) / 8, high))
            for at, (of, to), (low, high) in zip(best, now, ranges, strict=True)
        ]
    return best


def _amdahl(serial: float) -> Speed:
    return lambda width: 1.0 / (serial + (1.0 - serial) / width)


def _downey(parallelism: float, variance: float) -> Speed:
    """Return the speedup of Downey's model (1997), for low (up to 1) and for high variance."""
    a, v = parallelism, variance

    def low(n: float) -> float:
        if n <= a:
            return a * n / (a + v * (n - 1.0) / 2.0)
        return a * n / (v * (a - 0.5) + n * (1.0 - v / 2.0)) if n < 2.0 * a - 1.0 else a

    def high(n: float) -> float:
        return n * a * (v + 1.0) / (v * (n + a - 1.0) + a) if n < a + a * v - v else a

    return low if v <= 1.0 else high


# by law: how a speed is made from the logarithms of its parameters, and the ranges of these for the widest width
_FITS: Mapping[str, Callable[[int], tuple[Callable[..., Speed], _Ranges]]] = {
    "amdahl": lambda _: (lambda serial: _amdahl(math.exp(serial)), [(-14.0, 0.0)]),
    "downey": lambda widest: (
        lambda parallelism, variance: _downey(math.exp(parallelism), math.exp(variance)),
        [(0.0, math.log(4.0 * widest)), (-4.0, 3.0)],
    ),
}


def _speed_of_tasks(scaling: Scaling) -> Speed:
    def speed(width: float) -> float:
        at_once = max(int(width) // scaling.per_task, 1)
        return 1.0 / math.ceil(scaling.tasks / at_once) if scaling.tasks else float(at_once)

    return speed


def _error(message: str, hint: str) -> WorkflowError:
    return WorkflowError(message, where="scaling", hint=hint)
