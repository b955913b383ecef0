"""Measures how often new runs are within the range predicted for 8 in 10: a table of docs/explanation/shapes.md.

As in: python tools/run_time_ranges.py

Programs are artificial, so that their scaling is known: by Amdahl's law, by a power of the width, or with messages
whose time grows with it. At each width, a program deviates from its law (as NAS benchmarks do, by about 7 % when one
width is predicted from others), and each run deviates as well. It runs a few times on 8, 32 and 128 cores; then once on
each of these, and on other widths.
"""

import math
import sys
from collections import defaultdict

import numpy as np

from asa.backend import Capabilities
from asa.runtimes import RunTime
from asa.runtimes.widths import as_seen
from asa.shapes import Moldable, Scaling
from asa.workflow import Stage

SITE = Capabilities("site", 4096, 1, age_accrues=True)
MEASURED, BETWEEN, BEYOND = (8, 32, 128), (16, 64), (256,)
RUNS = ("1", "2", "3 to 5", "6 to 10")
NOISES = (0.03, 0.1, 0.3)

_COUNTS = {"1": (1, 1), "2": (2, 2), "3 to 5": (3, 5), "6 to 10": (6, 10)}
_OF_WIDTH = 0.07
_P90_OF_NORMAL = 1.2816
_SIZES = (1.0, 2.0, 4.0, 8.0)


def law(rng):
    """Draw how a program scales."""
    kind = int(rng.integers(3))
    serial, power, messages = 10 ** rng.uniform(-3, -0.7), rng.uniform(0.5, 1.0), 10 ** rng.uniform(-4, -2)
    return (
        lambda width: serial + (1 - serial) / width,
        lambda width: width**-power,
        lambda width: 1 / width + messages * math.log2(width),
    )[kind]


class Program:
    """An artificial program, from which run times are drawn."""

    def __init__(self, rng, noise, *, sized=False, of_width=_OF_WIDTH):
        self._rng, self._noise, self._law = rng, noise, law(rng)
        self._base_s = 10 ** rng.uniform(4.5, 6)
        self._power = rng.uniform(0.5, 1.3) if sized else 0.0
        self._strays = defaultdict(lambda: math.exp(of_width * rng.standard_normal()))

    def run_s(self, width, size=1.0):
        """Run it once."""
        strays = self._strays[width] * math.exp(self._noise * self._rng.standard_normal())
        return self._base_s * self._law(width) * size**self._power * strays

    def runs(self, counts, sizes=(None,)):
        """Run it several times at each measured width; the first width has all sizes, others have the first size."""
        times = [
            RunTime("flow", "program", width, self.run_s(width, size or 1.0), float(number), "site", size)
            for width in MEASURED
            for number in range(int(self._rng.integers(counts[0], counts[1] + 1)))
            for size in ([sizes[number % len(sizes)]] if width == MEASURED[0] else sizes[:1])
        ]
        return sorted(times, key=lambda run: run.at_s)


def inside(rng, noise, counts, *, scaling="measured", sized=False, of_width=_OF_WIDTH):
    """Return for each width whether the next run was within its range."""
    program = Program(rng, noise, sized=sized, of_width=of_width)
    times = program.runs(counts, _SIZES if sized else (None,))
    size = float(rng.choice(_SIZES)) if sized else None
    widths = (*MEASURED, *BETWEEN, *(BEYOND if scaling != "measured" else ()))
    moldable = Moldable(tuple(sorted(widths)), scaling=Scaling(scaling))
    stage = Stage("program", cores=8, walltime_s=365 * 86_400.0, learns_run=True, input_size=size, moldable=moldable)
    found = {}
    for shape in as_seen(stage, times, SITE).stage.shapes:
        off = abs(math.log(program.run_s(shape.width, size or 1.0) / shape.run_s))
        found[shape.width] = off <= _P90_OF_NORMAL * shape.spread
    return found


def coverage(noise, runs, *, programs=200, seed=0, **options):
    """Return the shares of new runs within their ranges, at measured widths, between them, and beyond."""
    rng = np.random.default_rng(seed)
    hits = defaultdict(list)
    for _ in range(programs):
        for width, is_inside in inside(rng, noise, _COUNTS[runs], **options).items():
            place = "measured" if width in MEASURED else "between" if width in BETWEEN else "beyond"
            hits[place].append(is_inside)
    return {place: float(np.mean(shares)) for place, shares in hits.items()}


def table(**options):
    """Format the shares as a table."""
    lines = [
        f"| runs on each width | {' | '.join(f'{noise:.0%}' for noise in NOISES)} |",
        f"|---|{'--:|' * len(NOISES)}",
    ]
    for runs in RUNS:
        cells = []
        for noise in NOISES:
            found = coverage(noise, runs, scaling="amdahl", **options)
            cells.append(", ".join(f"{found[place]:.0%}" for place in ("measured", "between", "beyond")))
        lines.append(f"| {runs} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    """Print the table, and that of programs whose runs have several input sizes."""
    sys.stdout.write(f"{table()}\n\nseveral input sizes:\n{table(sized=True)}\n")


if __name__ == "__main__":
    main()
