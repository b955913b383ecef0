"""Makes an artificial nucleotide database, and queries some of which have a relative in it.

python examples/blast/make_sequences.py FOLDER [--megabases 50] [--queries 8000] [--seed 1]

FOLDER/database.fa and FOLDER/queries.fa are the input of a search. FOLDER/planted.tsv has what it should find: query,
sequence, strand, first and last base there, and the share of bases that were not changed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

Bases = npt.NDArray[np.uint8]  # 0 to 3; a base and its partner on the other strand add up to 3

LENGTH = 10_000  # bases in a sequence of the database
QUERY_LENGTH = 600
PLANTED = 0.5  # share of the queries
MIN_IDENTITY, MAX_IDENTITY = 0.85, 0.99
_LETTERS = np.frombuffer(b"ACGT", np.uint8)
_LINE = 80


def main() -> None:
    """Make the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabases", type=float, default=50.0, help="of the database")
    parser.add_argument("--queries", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(given.seed)
    count = max(1, round(given.megabases * 1e6 / LENGTH))
    database = rng.integers(0, 4, (count, LENGTH), dtype=np.uint8)
    with (folder / "database.fa").open("wb") as file:
        for number, bases in enumerate(database, start=1):
            write_fasta(file, f"sequence_{number:05d}", bases)
    planted = []
    with (folder / "queries.fa").open("wb") as file:
        for number in range(1, given.queries + 1):
            name = f"query_{number:05d}"
            bases = rng.integers(0, 4, QUERY_LENGTH, dtype=np.uint8)
            if rng.random() < PLANTED:
                source, first = int(rng.integers(count)), int(rng.integers(LENGTH - QUERY_LENGTH))
                identity = rng.uniform(MIN_IDENTITY, MAX_IDENTITY)
                bases = mutated(rng, database[source, first : first + QUERY_LENGTH], 1 - identity)
                strand = "plus" if rng.random() < 0.5 else "minus"
                if strand == "minus":
                    bases = (3 - bases)[::-1]
                place = f"{first + 1}\t{first + QUERY_LENGTH}"
                planted.append(f"{name}\tsequence_{source + 1:05d}\t{strand}\t{place}\t{identity:.3f}\n")
            write_fasta(file, name, bases)
    (folder / "planted.tsv").write_text("".join(planted))
    print(f"{count} sequences of {LENGTH} bases, {given.queries} queries, {len(planted)} of them planted, in {folder}")


def mutated(rng: np.random.Generator, bases: Bases, rate: float) -> Bases:
    """Change a share of the bases: most become others; one in ten is lost, or followed by a new base."""
    draw = rng.random(bases.size) / rate
    others = (bases + rng.integers(1, 4, bases.size, dtype=np.uint8)) % 4
    copies = np.ones(bases.size, dtype=np.int64)
    copies[draw < 0.05] = 0
    copies[(draw >= 0.05) & (draw < 0.1)] = 2
    result = np.repeat(np.where((draw >= 0.1) & (draw < 1), others, bases), copies)
    new = np.cumsum(copies)[copies == 2] - 1
    result[new] = rng.integers(0, 4, new.size, dtype=np.uint8)
    return result


def write_fasta(file: BinaryIO, name: str, bases: Bases) -> None:
    """Write a sequence in FASTA format."""
    text = _LETTERS[bases].tobytes()
    file.write(f">{name}\n".encode())
    file.writelines(text[at : at + _LINE] + b"\n" for at in range(0, len(text), _LINE))


if __name__ == "__main__":
    main()
