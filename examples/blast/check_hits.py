"""Checks that a search found each planted relative where it was planted, and nothing else.

python examples/blast/check_hits.py planted.tsv best.tsv

Exit code 1 if it did not.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> int:
    """Check the hits, and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("planted", type=Path)
    parser.add_argument("best", type=Path)
    given = parser.parse_args()
    planted = {line[0]: line[1:] for line in rows(given.planted)}
    best = {line[0]: line[1:] for line in rows(given.best)}
    found = sum(query in best and is_there(best[query], place) for query, place in planted.items())
    false = len(best) - found
    is_good = found == len(planted) and not false
    print(f"{'good' if is_good else 'BAD'}: {found} of {len(planted)} planted relatives found, {false} false hits")
    return 0 if is_good else 1


def rows(path: Path) -> list[list[str]]:
    """Split a file's lines at tabs."""
    return [line.split("\t") for line in path.read_text().splitlines()]


def is_there(hit: list[str], place: list[str]) -> bool:
    """Whether a hit is in the right sequence, on the right strand, and mostly in the range where it was planted."""
    begin, end = int(hit[7]), int(hit[8])
    strand = "plus" if begin < end else "minus"
    first, last = int(place[2]), int(place[3])
    shared = min(max(begin, end), last) - max(min(begin, end), first)
    return hit[0] == place[0] and strand == place[1] and shared > 0.8 * (last - first)


if __name__ == "__main__":
    raise SystemExit(main())
