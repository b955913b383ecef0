"""Fig. 3 on this machine: the times of deciding and of moving data, of a real MPI program under a real manager.

The constants of `asa.backends.dmr.mechanics.Costs` follow from these times by least squares.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.backend import JobState
from asa.backends.dmr.manager import LocalManager
from asa.backends.dmr.mechanics import Costs
from asa.core.documents import read_file, read_json, read_text
from asa.core.python import command
from asa.errors import InputError, RunError

_BYTES_PER_GB = 1e9
_SHOWN_CHARS = 2000  # of what a failed program has printed


@dataclass(frozen=True, slots=True)
class MeasuredResize:
    """The mean times of the resizes from one number of processes to another, in seconds."""

    before: int
    after: int
    none_s: float  # until the answer that there is nothing to do
    decide_s: float  # until the answer to resize
    spawn_s: float  # until new processes had joined
    move_s: float  # until all rows had moved, and surplus processes had left


def measure(sizes: Sequence[int], repeats: int, data_gb: float) -> list[MeasuredResize]:
    """Measure all resizes between numbers of processes, each `repeats` times.

    Raises
    ------
    InputError
        The numbers are not each a power of two times another, or there is no mpirun.
    RunError
        The program failed.
    """
    if len(sizes) < 2 or not all(_is_reached(few, many) for few, many in combinations(sizes, 2)):
        raise InputError(
            "the manager multiplies numbers of processes by powers of two, and a resize needs two numbers",
            where=f"sizes {', '.join(map(str, sizes))}",
            hint="Give some such as 1,2,4,8.",
        )
    if shutil.which("mpirun") is None:
        raise InputError("there is no mpirun here", hint="Install an MPI, or load the module of your site's.")
    found: list[MeasuredResize] = []
    for few, many in combinations(sizes, 2):
        lines = _run(few, many, repeats, data_gb)
        for before, after in ((few, many), (many, few)):
            of_pair = [line for line in lines if (line["before"], line["after"]) == (before, after)]
            means = {name: float(np.mean([line[name] for line in of_pair])) for name in _TIMES}
            found.append(MeasuredResize(before, after, **means))
    return found


_TIMES = tuple(field.name for field in fields(MeasuredResize))[2:]


def _is_reached(few: int, many: int) -> bool:
    """Whether one number is another times a power of two."""
    factor, rest = divmod(many, few)
    return not rest and factor & (factor - 1) == 0


def _run(few: int, many: int, repeats: int, data_gb: float) -> list[dict[str, float]]:
    """Run the program once; return what it has timed."""
    program = command("-m", "asa.studies.dmr.flexible_sleep")
    numbers = map(str, (many, repeats, round(data_gb * _BYTES_PER_GB)))
    with LocalManager(many) as manager:
        job = manager.submit(["mpirun", "--oversubscribe", "-n", str(few), *program, *numbers], few, name="fs")
        ended = manager.wait(job)
        printed = read_text(ended.output, errors="replace")
    if ended.state is not JobState.COMPLETED:
        raise RunError(f"Flexible Sleep has failed:\n{printed[-_SHOWN_CHARS:]}", where=f"{few} to {many} processes")
    lines: list[dict[str, float]] = read_json(printed.strip().splitlines()[-1])
    return lines


def costs_of(resizes: Sequence[MeasuredResize], data_gb: float) -> Costs:
    """Return the simulation's constants for these times; the time-out stays what it is.

    Examples
    --------
    >>> resizes = [MeasuredResize(1, 2, 0.01, 0.1, 0.2, 1.0), MeasuredResize(2, 4, 0.01, 0.1, 0.4, 0.5)]
    >>> resizes += [MeasuredResize(2, 1, 0.01, 0.1, 0.0, 1.0), MeasuredResize(4, 2, 0.01, 0.1, 0.0, 0.5)]
    >>> costs = costs_of(resizes, 2.0)
    >>> round(costs.expand_s, 3), round(costs.per_node_s, 3), round(costs.link_gb_s, 3)
    (0.1, 0.1, 1.0)
    """
    expand_s, per_node_s = _line([(one.after, one.decide_s + one.spawn_s) for one in resizes if one.after > one.before])
    shrink_s, per_leaving_s = _line(
        [(one.before - one.after, one.decide_s + one.spawn_s) for one in resizes if one.after < one.before]
    )
    # as `Costs.resize_s`: the share of the data that moves, over as many pairs as the smaller number of processes
    shares = np.array([(1 - _few(one) / max(one.before, one.after)) * data_gb / _few(one) for one in resizes])
    moved_s = np.array([one.move_s for one in resizes])
    return Costs(
        none_s=float(np.mean([one.none_s for one in resizes])),
        expand_s=expand_s,
        shrink_s=shrink_s,
        per_node_s=per_node_s,
        per_leaving_s=per_leaving_s,
        link_gb_s=float(shares @ shares / (shares @ moved_s)),
    )


def _few(one: MeasuredResize) -> int:
    return min(one.before, one.after)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fit a line with no part below 0; return its value at 0 and its slope."""
    x, y = np.array(points).T
    best: tuple[float, tuple[float, float]] | None = None
    for columns in ((0, 1), (0,), (1,)):  # the best of these that has no part below 0 is the best of all that have none
        design = np.stack([np.ones_like(x), x], axis=1)[:, columns]
        found: NDArray[np.float64] = np.zeros(2)
        found[list(columns)] = np.linalg.lstsq(design, y, rcond=None)[0]
        off = float(np.sum((found[0] + found[1] * x - y) ** 2))
        if found.min() >= 0 and (best is None or off < best[0]):
            best = off, (float(found[0]), float(found[1]))
    assert best is not None, "times are not below 0"
    return best[1]


def read_costs(path: Path) -> Costs:
    """Read constants that `asa dmr measure --output json` has printed.

    Raises
    ------
    InputError
        The file has none; `where` is its path.
    """
    try:
        given: dict[str, Any] = read_json(read_file(path))["costs"]
        numbers: dict[str, Any] = {name: float(value) for name, value in given.items()}
        costs = replace(Costs(), **numbers)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"has no constants: {error}", where=str(path), hint="Make it by `asa dmr measure --output json`."
        ) from error
    if not all(0 <= number < math.inf for number in numbers.values()) or costs.link_gb_s == 0:
        raise InputError("has a constant below 0 or without end, or a link that moves nothing", where=str(path))
    return costs


def as_dict(resizes: Sequence[MeasuredResize], costs: Costs) -> dict[str, Any]:
    """Return what is printed as JSON."""
    constants = {name: value for name, value in asdict(costs).items() if isinstance(value, float)}
    return {"resizes": [asdict(one) for one in resizes], "costs": constants}
