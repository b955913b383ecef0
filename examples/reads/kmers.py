"""Count the k-mers of reads, or keep the reads whose k-mers are all solid; prints to standard output.

python kmers.py count part.fastq
python kmers.py keep part.fastq solid.txt
"""

import sys
from collections import Counter
from pathlib import Path

K = 21


def kmers(read: str) -> list[str]:
    """Cut a read into all its k-mers."""
    return [read[start : start + K] for start in range(len(read) - K + 1)]


what, lines = sys.argv[1], Path(sys.argv[2]).read_text().splitlines(keepends=True)
if what == "count":
    counts = Counter(kmer for read in lines[1::4] for kmer in kmers(read.rstrip()))
    print(*(f"{kmer}\t{count}" for kmer, count in sorted(counts.items())), sep="\n")
else:
    solid = set(Path(sys.argv[3]).read_text().split())
    for start in range(0, len(lines), 4):
        if solid.issuperset(kmers(lines[start + 1].rstrip())):
            sys.stdout.writelines(lines[start : start + 4])
