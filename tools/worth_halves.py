# ruff: noqa: T201 - it prints its figures
"""Compares verdicts of `asa worth` from the first half of public logs with those from the second half.

A twin is made of each half. The verdict that a user would have got after the first half is compared with the second.

    python tools/worth_halves.py --workflow montage --cores 32 --moments 60 CTC.swf.gz KTH.swf.gz ...
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from asa.backends.twin import Twin, TwinSite
from asa.backends.twin.making import make_twin

from asa.history import JobHistory, read_history
from asa.studies.compare.study import Comparison, compare, workflow_maker
from asa.studies.present import Table, console
from asa.studies.worth import OURS, SIMPLE, WorthVerdict, judged


def halves(history: JobHistory) -> Iterator[tuple[str, JobHistory]]:
    """Split a history in the middle of its time."""
    middle = float(history.submit_s[0] + history.submit_s[-1]) / 2
    first = int(np.searchsorted(history.submit_s, middle))
    yield "first", history.first(first)
    yield "second", history.last(len(history) - first)


def verdict(twin: Twin, workflow: str, cores: int, moments: int) -> WorthVerdict:
    """Return a verdict, as `asa worth` makes it."""
    make = workflow_maker(workflow)
    site = TwinSite(twin=twin)
    comparison = Comparison(make, site, (cores,), (*SIMPLE, *OURS), tuple(range(moments)), "asa-queue")
    return judged(make(cores), compare(comparison))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each half."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--workflow", default="montage")
    parser.add_argument("--cores", type=int, default=32)
    parser.add_argument("--moments", type=int, default=60)
    options: Any = parser.parse_args(arguments)
    rows = []
    for log in options.logs:
        for name, half in halves(read_history(log)):
            twin = make_twin(half, seed=1).twin
            whole, *_, week = twin.about.agreement
            found = verdict(twin, options.workflow, options.cores, options.moments)
            beside = [
                f"{100 * one.time.mean:+.0f} ({100 * one.time.low:+.0f} to {100 * one.time.high:+.0f}); "
                f"{100 * one.core_hours.mean:+.0f}"
                for one in found.beside
            ]
            fit = f"{whole.ratio:.2f}, {whole.ks:.2f}"
            rows.append((log.name[:10], name, fit, f"{week.ratio:.2f}", found.answer, found.way, *beside))
            print(rows[-1], flush=True)
            print("  ", *found.sentences, flush=True)
    headings = (
        "Log",
        "Half",
        "p50 ratio, KS",
        "last week",
        "Worth it",
        "Ask by",
        *(f"{one.way} over {one.rival}, %" for one in found.beside),
    )
    console().print(Table(headings, rows, title=f"{options.workflow}, {options.cores} cores"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
