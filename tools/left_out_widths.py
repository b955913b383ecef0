"""Measures how well run times at some widths predict that at a further one: a table of docs/explanation/shapes.md.

As in: python tools/left_out_widths.py
"""

import csv
import math
import sys
from collections import defaultdict
from pathlib import Path

from asa.shapes import RunAt, Scaling, run_time_at

# medians of NAS parallel benchmarks on two machines, from the measurement pools that the ELiSE project has published
DATA = Path(__file__).parents[1] / "tests" / "data" / "nas_runtimes.csv"
_P90_OF_NORMAL = 1.2816
_GRID = 2000
_BEYOND = {1: "beyond the only one", 2: "beyond two"}  # by the number of known widths


def measured(path=DATA):
    """Return the points of each program on each machine, the narrowest first."""
    points = defaultdict(list)
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            points[row["machine"], row["program"]].append(RunAt(int(row["processes"]), float(row["median_run_s"])))
    return {pair: sorted(known, key=lambda one: one.width) for pair, known in points.items()}


def left_out(points):
    """Yield each width of a program, with its position among the others, and these others."""
    for one in points:
        others = [other for other in points if other is not one]
        is_between = bool(others) and others[0].width < one.width < others[-1].width
        yield one, others, "between two" if is_between else _BEYOND.get(len(others), "")


def plain_amdahl(width, points):
    """Fit Amdahl's law by least squares on logarithms, without an uncertainty."""
    if len(points) < 2:
        return None
    best = min((_misfit(points, part / _GRID), part / _GRID) for part in range(_GRID + 1))[1]
    logs = [math.log(one.run_s / (best + (1 - best) / one.width)) for one in points]
    return math.exp(sum(logs) / len(logs)) * (best + (1 - best) / width)


def _misfit(points, serial):
    logs = [math.log(one.run_s / (serial + (1 - serial) / one.width)) for one in points]
    mean = sum(logs) / len(logs)
    return sum((log - mean) ** 2 for log in logs)


def log_log(width, points):
    """Draw a line in the logarithms through the two nearest points, also beyond them."""
    if len(points) < 2:
        return None
    one, other = sorted(points, key=lambda point: abs(math.log(point.width / width)))[:2]
    slope = math.log(other.run_s / one.run_s) / math.log(other.width / one.width)
    return one.run_s * (width / one.width) ** slope


def _scaled(power):
    def predict(width, points):
        near = min(points, key=lambda point: abs(math.log(point.width / width)))
        return near.run_s * (near.width / width) ** power

    return predict


def _asa(law):
    def predict(width, points):
        found = run_time_at(width, points, Scaling(law))
        return None if found is None else found.run_s

    return predict


PREDICTORS = {
    "asa, measured": _asa("measured"),
    "asa, amdahl": _asa("amdahl"),
    "Amdahl, fitted": plain_amdahl,
    "log-log line": log_log,
    "perfect scaling": _scaled(1.0),
    "no scaling": _scaled(0.0),
}


def errors(path=DATA):
    """Return, by position and predictor, the factors by which predictions are wrong, as logarithms."""
    found = defaultdict(lambda: defaultdict(list))
    for points in measured(path).values():
        for one, others, place in left_out(points):
            for name, predict in PREDICTORS.items():
                run_s = predict(one.width, others) if others else None
                if run_s is not None:
                    found[place][name].append(math.log(run_s / one.run_s))
    return found


def within(path=DATA):
    """Count the run times, and those within the range predicted for 8 in 10, with Amdahl's law."""
    inside = total = 0
    for points in measured(path).values():
        for one, others, _ in left_out(points):
            said = run_time_at(one.width, others, Scaling("amdahl")) if others else None
            if said is not None:
                total += 1
                inside += abs(math.log(said.run_s / one.run_s)) <= _P90_OF_NORMAL * said.spread
    return inside, total


def table(path=DATA):
    """Format the average factor by which predictions are wrong, less one."""
    lines = [f"| the width lies | widths | {' | '.join(PREDICTORS)} |", f"|---|--:{'|--:' * len(PREDICTORS)}|"]
    found = errors(path)
    for place in ("between two", *reversed(_BEYOND.values())):
        by_name = found[place]
        cells = [
            f"{math.expm1(sum(map(abs, by_name[name])) / len(by_name[name])):.0%}" if by_name[name] else "none"
            for name in PREDICTORS
        ]
        lines.append(f"| {place} | {len(by_name['no scaling'])} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    """Print the table."""
    inside, total = within()
    sys.stdout.write(f"{table()}\n\n{inside} of {total} within what is said to hold for 8 in 10\n")


if __name__ == "__main__":
    main()
