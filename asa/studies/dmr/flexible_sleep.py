"""Flexible Sleep as a real MPI program, which times its resizes (section 7.3).

It carries data along, changes between two numbers of processes as the resource manager lets it, and prints the times as
a line of JSON. Between its steps it does not sleep, as nobody waits for its result. `measuring` runs it, by mpirun.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from asa.dmr.mpi import Ranks
from asa.errors import RunError

_ROW_BYTES = 1 << 16


def measure(many: int, repeats: int, data_bytes: int) -> list[dict[str, float]]:
    """Grow to a number of processes and shrink again, a number of times; return the times of each answer and resize."""
    rows = max(data_bytes // _ROW_BYTES, 1)
    timed: list[dict[str, float]] = []
    with Ranks(rows, lambda own: {"data": np.ones((len(own), _ROW_BYTES), "u1")}, {"step": 0}) as ranks:
        few = ranks.values.setdefault("few", ranks.processes)
        while ranks.values["step"] < 2 * repeats:
            before, after = (few, many) if ranks.values["step"] % 2 == 0 else (many, few)
            none_s, _ = _ask(ranks, before)
            decide_s, granted = _ask(ranks, after)
            if granted != after:
                raise RunError(f"the resource manager gave {granted} processes, not {after}")
            ranks.values["step"] += 1
            if not ranks.resize(after):
                return []
            timed.append({
                "before": before, "after": after, "none_s": none_s, "decide_s": decide_s,
                "spawn_s": ranks.times.spawn_s, "move_s": ranks.times.move_s,
            })  # fmt: skip
        return timed if ranks.rank == 0 else []


def _ask(ranks: Ranks, processes: int) -> tuple[float, int]:
    """Ask for a number of processes; return the seconds until the answer, and the number that it gives."""
    ranks.comm.Barrier()
    begun_s = time.perf_counter()
    answer = ranks.ask(minimum=processes, maximum=processes)
    return time.perf_counter() - begun_s, answer.processes


if __name__ == "__main__":
    if lines := measure(*map(int, sys.argv[1:4])):
        sys.stdout.write(json.dumps(lines) + "\n")
