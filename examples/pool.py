"""One pool over several allocations: tasks run on all running jobs, and more jobs are submitted meanwhile.

On a laptop the jobs are processes; with a site's name (`asa doctor --save NAME`) they are jobs there, and nothing else
changes. This needs `pip install 'asa-client[pool]'`.

    python examples/pool.py [SITE]

A picture of what the allocations did is written to out/pool.png.
"""

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import dask.bag
from distributed import Client
from rich.console import Console

from asa.pool import AsaCluster

PARTS, DRAWS = 40, 200_000
OUT = Path("out/pool.png")


def inside(seed: int) -> int:
    """Count how many random points fall into a quarter of a circle."""
    draw = random.Random(seed).random
    return sum(draw() ** 2 + draw() ** 2 <= 1.0 for _ in range(DRAWS))


def main() -> None:
    """Compute pi from random points."""
    console = Console()
    site = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as place:
        here: dict[str, Any] = {"backend": "local", "settings": {"spool": place}, "folder": Path(place) / "pool"}
        with AsaCluster(site=site, cores=1, n_workers=0, **({} if site else here)) as pool, Client(pool):
            pool.adapt(minimum=0, maximum=2, interval="500ms", target_duration="1s")
            with pool.live(console):
                hits = dask.bag.from_sequence(range(PARTS), npartitions=PARTS).map(inside).sum().compute()
            count = len(pool.allocations)
            console.print(f"pi is about {4 * hits / PARTS / DRAWS:.4f}, computed on {count} allocations")
            OUT.parent.mkdir(exist_ok=True)
            pool.draw(OUT)


if __name__ == "__main__":
    main()
