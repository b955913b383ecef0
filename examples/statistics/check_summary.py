"""Compares a summary of the table with the statistics that are known from making it.

python examples/statistics/check_summary.py truth.json summary.json

Means, deviations and correlations must agree to nine digits, quantiles to a bin; else the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

_DIGITS = 1e-9


def main() -> int:
    """Compare, and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("truth", type=Path)
    parser.add_argument("summary", type=Path)
    given = parser.parse_args()
    truth, summary = (json.loads(path.read_text()) for path in (given.truth, given.summary))
    wrong = list(differences(truth, summary))
    print(f"BAD: {'; '.join(wrong)}" if wrong else f"good: all statistics of {truth['rows']} rows are right")
    return 1 if wrong else 0


def differences(truth: Any, summary: Any) -> list[str]:
    """Describe the differences."""
    wrong = []
    if truth["rows"] != summary["rows"]:
        wrong.append(f"{summary['rows']} rows in place of {truth['rows']}")
    for real, found in zip(truth["columns"], summary["columns"], strict=True):
        off = [key for key in ("mean", "deviation", "least", "most") if not is_near(real[key], found[key])]
        off += [key for key in ("median", "p95") if abs(real[key] - found[key]) > 1.01 * found["bin"]]
        wrong += [f"{real['name']}: {key} {found[key]} in place of {real[key]}" for key in off]
    for what in ("correlation", "active_power_by_hour"):
        pairs = zip(flat(truth[what]), flat(summary[what]), strict=True)
        if not all(is_near(real, found) for real, found in pairs):
            wrong.append(f"another {what}")
    return wrong


def is_near(one: float, other: float) -> bool:
    """Whether two numbers are equal but for rounding."""
    return math.isclose(one, other, rel_tol=_DIGITS, abs_tol=_DIGITS)


def flat(numbers: Any) -> list[float]:
    """Return the numbers of a list of lists as one list."""
    return [number for part in numbers for number in flat(part)] if isinstance(numbers, list) else [numbers]


if __name__ == "__main__":
    raise SystemExit(main())
