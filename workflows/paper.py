"""Stage run times fitted to Table 1 of the ASA paper.

The paper prints no stage's run time, but its figures imply sums: a workflow's execution time is its makespan less its
waiting time, and Per-Stage's core-hours show for how much of that all cores were needed, if the rest ran on one core.
Each workflow's module says how these sums are divided among its parallel and its sequential stages.

The table's core-hours are whole numbers, truncated in some rows (20.8 printed as 20) and rounded in others (8.8 as 9),
and its Big Job and Per-Stage runs are different runs. Here one execution time must serve both. So the fit first
requires that both core-hours, truncated or rounded, are the table's; then that they are within half an hour of its
numbers, if possible; and then comes as close as it can to Big Job's execution time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from asa.errors import WorkflowError
from asa.units import core_hours


@dataclass(frozen=True, slots=True)
class PaperRow:
    """The figures of Table 1 for one strategy."""

    twt_s: int  # total waiting time, in seconds
    makespan_s: int
    core_hours: int

    @property
    def execution_s(self) -> int:
        """Seconds in which something ran."""
        return self.makespan_s - self.twt_s


def _rows(text: str) -> dict[int, dict[str, PaperRow]]:
    table: dict[int, dict[str, PaperRow]] = {}
    for line in text.strip().splitlines():
        cores, *cells = (int(cell) for cell in line.split())
        strategies = ("big-job", "per-stage", "asa")
        table[cores] = {s: PaperRow(*cells[3 * i : 3 * i + 3]) for i, s in enumerate(strategies)}
    return table


TABLE_1: Mapping[str, Mapping[int, Mapping[str, PaperRow]]] = {
    # cores, then TWT s, makespan s, core-hours of Big Job, Per-Stage and ASA
    "montage": _rows("""
        28 150 1287 9 258 1408 7 132 1277 7
        56 206 1261 16 426 1496 12 219 1280 12
        112 452 1513 33 699 1779 20 393 1464 20
        160 1415 2718 58 2220 3507 40 1652 2921 39
        320 8135 10126 177 15582 17170 106 10062 11637 105
        640 10200 11940 309 16600 18200 171 11851 13436 169
    """),
    "blast": _rows("""
        28 70 2750 20 68 2727 20 75 2749 20
        56 133 1476 20 153 1508 21 111 1477 21
        112 165 926 23 194 965 24 144 907 23
        160 7100 7846 33 7125 7880 33 7041 7800 33
        320 8133 8494 32 8240 8611 33 8194 8557 32
        640 10133 10394 46 10150 10429 47 10144 10419 48
    """),
    "statistics": _rows("""
        28 52 5593 43 48 5487 42 51 5549 43
        56 96 4397 66 263 4644 34 116 4444 33
        112 124 4110 124 191 4193 62 70 4085 62
        160 2772 7095 192 4960 9241 95 2712 6986 95
        320 7935 11886 351 18008 21993 177 7471 11439 176
        640 10122 13868 665 21014 24817 338 9497 13369 344
    """),
}
"""Table 1, whole: by workflow, cores and strategy."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The time that a workflow runs on all its cores, and on one."""

    parallel_s: int
    sequential_s: int

    @property
    def execution_s(self) -> int:
        """Seconds altogether."""
        return self.parallel_s + self.sequential_s


def fit_row(cores: int, big_job: PaperRow, per_stage: PaperRow, *, min_sequential_s: int) -> Fit:
    """Find the run times that two rows of Table 1 imply, by trying every whole second near Big Job's execution time."""

    def misfit(fit: Fit) -> tuple[int, float, int, float]:
        wide = core_hours(cores, fit.execution_s)
        narrow = core_hours(cores, fit.parallel_s) + core_hours(1, fit.sequential_s)
        printed = ((wide, big_job.core_hours), (narrow, per_stage.core_hours))
        wrong = sum(shown not in (math.floor(hours), round(hours)) for hours, shown in printed)
        off = [abs(hours - shown) for hours, shown in printed]
        return wrong, max(*off, 0.5), abs(fit.execution_s - big_job.execution_s), off[1]

    near = range(round(0.95 * big_job.execution_s), round(1.05 * big_job.execution_s) + 1)
    candidates = []
    for total in near:
        # the parallel seconds with exactly Per-Stage's core-hours
        ideal = (per_stage.core_hours * 3600 - total) / (cores - 1)
        candidates += [
            Fit(parallel, total - parallel)
            for parallel in {min(max(p, 1), total - min_sequential_s) for p in (math.floor(ideal), math.ceil(ideal))}
        ]
    return min(candidates, key=misfit)


@cache
def _fits(workflow: str, min_sequential_s: int) -> dict[int, Fit]:
    return {
        cores: fit_row(cores, row["big-job"], row["per-stage"], min_sequential_s=min_sequential_s)
        for cores, row in TABLE_1[workflow].items()
    }


def peak_times(workflow: str, cores: int, *, min_sequential_s: int) -> Fit:
    """Return fitted run times at any peak core count.

    At the table's six counts these are the fit; between two of them, both times follow a power of the core count;
    beyond them, the power of the nearest two continues, but never faster than perfect scaling and never slower with
    more cores.
    """
    if cores < 1:
        raise WorkflowError(
            f"a peak of {cores} cores cannot be", where=f"workflow {workflow!r}", hint="Ask for at least 1."
        )
    fits = _fits(workflow, min_sequential_s)
    if cores in fits:
        return fits[cores]
    counts = sorted(fits)
    upper = next((i for i, count in enumerate(counts) if count > cores), len(counts) - 1)
    low, high = counts[max(upper - 1, 0)], counts[max(upper, 1)]
    outside = not low <= cores <= high
    anchor = high if cores > high else low

    def scaled(name: str, least: int) -> int:
        at_low, at_high, at_anchor = (float(getattr(fits[count], name)) for count in (low, high, anchor))
        power = math.log(at_high / at_low) / math.log(high / low)
        if outside:
            power = min(max(power, -1.0), 0.0)
        return max(round(at_anchor * math.pow(cores / anchor, power)), least)

    return Fit(scaled("parallel_s", 1), scaled("sequential_s", min_sequential_s))


def divide(total_s: int, shares: Sequence[float]) -> list[int]:
    """Divide whole seconds by shares, with largest remainders and at least one second each; the parts add up exactly.

    Examples
    --------
    >>> divide(10, [0.9, 0.05, 0.05])
    [7, 2, 1]
    """
    spare = total_s - len(shares)
    exact = [spare * share / sum(shares) for share in shares]
    parts = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (parts[i] - exact[i], i))
    for i in by_remainder[: spare - sum(parts)]:
        parts[i] += 1
    return [part + 1 for part in parts]


def requested_walltime_s(run_s: float) -> float:
    """Return the walltime that a careful user asks for: 1.5 times the expected time, rounded up to five minutes."""
    return math.ceil(1.5 * run_s / 300) * 300.0
