"""Make reads of an artificial genome, as a sequencer would: reads.fastq.

python make_reads.py [--bases 50000] [--coverage 20] [--seed 1]
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

LENGTH = 100


def reads(bases: int, coverage: int, seed: int) -> Iterator[str]:
    """Draw reads from random positions of a random genome, with an error in every hundredth base."""
    draw = random.Random(seed)
    genome = "".join(draw.choices("ACGT", k=bases))
    for number in range(bases * coverage // LENGTH):
        start = draw.randrange(bases - LENGTH)
        read = "".join(base if draw.random() > 0.01 else draw.choice("ACGT") for base in genome[start : start + LENGTH])
        yield f"@read{number}\n{read}\n+\n{'I' * LENGTH}\n"


def main() -> None:
    """Write the reads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bases", type=int, default=50_000)
    parser.add_argument("--coverage", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    Path("reads.fastq").write_text("".join(reads(given.bases, given.coverage, given.seed)))


if __name__ == "__main__":
    main()
