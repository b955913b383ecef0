# ruff: noqa: T201 - it tells what it left out
"""Convert output of `sacct` into a workload log in the standard format (SWF).

    python tools/sacct_to_swf.py JOBS.txt[.gz] --nodes N --out LOG.swf[.gz]

Columns are found by their names in the header: Submit, Start, End, NNodes and, if present, UID and TimelimitRaw
(minutes). A node counts as a processor.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, cast


def opened(path: Path, mode: str) -> TextIO:
    """Open a file that may be compressed."""
    if path.suffix == ".gz":
        return cast("TextIO", gzip.open(path, f"{mode}t", encoding="utf-8"))
    return path.open(mode, encoding="utf-8")


def rows(file: TextIO) -> Iterator[dict[str, str]]:
    """Yield each job's values by column; names in the header may be cut off."""
    names: list[str] = []
    for line in file:
        words = line.split("\t") if "\t" in line else line.split()
        words = [word.strip() for word in words]
        if "Submit" in words and "Start" in words:
            names = words
        elif names and len(words) == len(names) and not words[0].startswith("-"):
            yield dict(zip(names, words, strict=True))


def seconds(text: str) -> int | None:
    """Read a time; None if it is none."""
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def main() -> None:
    """Convert a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found, left_out = [], 0
    with opened(asked.jobs, "r") as file:
        for row in rows(file):
            submit, start, end = (seconds(row[name]) for name in ("Submit", "Start", "End"))
            nodes = int(row["NNodes"]) if row["NNodes"].isdigit() else 0
            limit = next((row[name] for name in row if name.startswith("Timelimit")), "")
            if submit is None or start is None or end is None or end <= start or not 0 < nodes <= asked.nodes:
                left_out += 1
                continue
            asks = 60 * int(limit) if limit.isdigit() else end - start
            found.append((submit, max(start - submit, 0), end - start, nodes, asks, row.get("UID", "-1")))
    found.sort()
    first = found[0][0]
    users: dict[str, int] = {}
    with opened(asked.out, "w") as out:
        out.write(f"; UnixStartTime: {first}\n; TimeZone: 0\n; MaxNodes: {asked.nodes}\n; MaxProcs: {asked.nodes}\n")
        for number, (submit, wait, run, nodes, asks, user) in enumerate(found, start=1):
            uid = users.setdefault(user, len(users) + 1)
            fields = (number, submit - first, wait, run, nodes, -1, -1, nodes, asks, -1, 1, uid, *[-1] * 6)
            out.write(" ".join(map(str, fields)) + "\n")
    print(f"{len(found):,} jobs of {len(users)} users; {left_out:,} left out that never ran, or ask too much")


if __name__ == "__main__":
    sys.exit(main())
