"""MPI programs that shrink and grow while they run: Jacobi, conjugate gradients, N-body and Flexible Sleep.

These are the applications of the DMR paper (Table 1), with numbers of processes that a laptop has. Under a resource
manager they ask it; with ``--sizes`` they go through a list of numbers of processes. For every such sequence, results
are the same to the last bit: rows are computed one by one, and sums are added in the order of rows.

    mpirun --oversubscribe -n 4 python examples/malleable_mpi/programs.py n-body --sizes 2,8,1 --out bodies.npy

Under a manager (`asa dmr serve --nodes 4`, in another shell):

    asa dmr submit --nodes 4 -- mpirun --oversubscribe -n 4 python examples/malleable_mpi/programs.py cg --out x.npy
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from asa.dmr.mpi import Ranks

Array = NDArray[np.float64]

POINTS = 200  # on each side of the grid that Jacobi and CG compute on
BODIES = 400
STEP = 1e-3  # time step of N-body
SOFTENING = 1e-2  # of forces between bodies that are close
SLEEP_S = 0.1  # seconds that an iteration of Flexible Sleep takes on one process
SLEEP_ROWS = 1000  # rows of 1 kB that Flexible Sleep carries along


def neighbours(ranks: Ranks, block: Array, above: float = 0.0) -> tuple[Array, Array]:
    """Return the rows next to a block on both sides; beyond the grid, `above` and 0."""
    first, last = np.full(block.shape[1:], above), np.zeros(block.shape[1:])
    if ranks.rows:
        up = ranks.rank - 1 if ranks.rows.start else MPI.PROC_NULL
        down = ranks.rank + 1 if ranks.rows.stop < len(ranks.all_rows) else MPI.PROC_NULL
        ranks.comm.Sendrecv(block[-1], down, recvbuf=first, source=up)
        ranks.comm.Sendrecv(block[0], up, recvbuf=last, source=down)
    return first, last


def around(ranks: Ranks, block: Array, above: float = 0.0) -> Array:
    """Return the sum of the four neighbours of each point."""
    first, last = neighbours(ranks, block, above)
    tall = np.vstack([first, block, last])
    total: Array = tall[:-2] + tall[2:]
    total[:, 1:] += block[:, :-1]
    total[:, :-1] += block[:, 1:]
    return total


def plate(rows: range) -> dict[str, Array]:
    """Begin with a cold plate; beyond its first row it is hot."""
    return {"x": np.zeros((len(rows), POINTS))}


def jacobi(ranks: Ranks) -> None:
    """Do an iteration of Jacobi's method on Laplace's equation."""
    ranks.arrays["x"][...] = 0.25 * around(ranks, ranks.arrays["x"], above=1.0)


def right_side(rows: range) -> Array:
    """Return rows of the right side of the system that CG solves."""
    row, column = np.array(rows, float)[:, None], 0.5 * np.arange(POINTS)
    right: Array = np.sin((row + column) ** 2 / POINTS)
    return right


def system(rows: range) -> dict[str, Array]:
    """Begin CG at 0, where the residual is the right side."""
    residual = right_side(rows)
    return {"x": np.zeros_like(residual), "residual": residual, "direction": residual.copy()}


def dot(ranks: Ranks, left: Array, right: Array) -> float:
    """Return the product of two vectors: that of each row, and the sum of these."""
    return float(ranks.total((left * right).sum(axis=1)))


def conjugate_gradients(ranks: Ranks) -> None:
    """Do an iteration of CG on Poisson's equation."""
    x, residual, direction = (ranks.arrays[name] for name in ("x", "residual", "direction"))
    product = 4.0 * direction - around(ranks, direction)
    before = dot(ranks, residual, residual)
    if not before:
        return
    step = before / dot(ranks, direction, product)
    x += step * direction
    residual -= step * product
    direction *= dot(ranks, residual, residual) / before
    direction += residual


def cloud(rows: range) -> dict[str, Array]:
    """Begin with bodies at random in a cube, at rest; all processes draw the same."""
    drawn = np.random.default_rng(1).random((BODIES, 4))[rows.start : rows.stop]
    return {"x": drawn[:, :3], "velocity": np.zeros((len(rows), 3)), "mass": drawn[:, 3] / BODIES}


def forces(mine: Array, others: Array, masses: Array) -> Array:
    """Return the accelerations of some bodies: for each, a sum over all others in their order."""
    apart = [np.subtract.outer(others[:, axis], mine[:, axis]).T.copy() for axis in range(3)]
    square = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2] + SOFTENING**2
    pull = masses / (square * np.sqrt(square))
    return np.stack([(pull * along).sum(axis=1) for along in apart], axis=1)


def n_body(ranks: Ranks) -> None:
    """Do a time step of bodies that attract each other: half a drift, a kick, half a drift."""
    x, velocity = ranks.arrays["x"], ranks.arrays["velocity"]
    x += 0.5 * STEP * velocity
    velocity += STEP * forces(x, ranks.gather(x), ranks.gather(ranks.arrays["mass"]))
    x += 0.5 * STEP * velocity


def luggage(rows: range) -> dict[str, Array]:
    """Begin Flexible Sleep with data that it only carries along."""
    return {"x": np.add.outer(np.array(rows, float), np.arange(128.0))}


def sleep(ranks: Ranks) -> None:
    """Sleep, the shorter the more processes there are."""
    time.sleep(SLEEP_S / ranks.processes)
    ranks.comm.Barrier()


@dataclass(frozen=True)
class Program:
    """An application: its rows, its iteration, and what it asks for at its reconfiguration points."""

    rows: int
    begin: Callable[[range], Mapping[str, Array]]
    iterate: Callable[[Ranks], None]
    iterations: int
    check_each: int  # iterations between reconfiguration points
    maximum: int
    preferred: int | None = None


PROGRAMS = {
    "jacobi": Program(POINTS, plate, jacobi, 120, 20, 8, 2),
    "cg": Program(POINTS, system, conjugate_gradients, 120, 20, 8, 2),
    "n-body": Program(BODIES, cloud, n_body, 25, 1, 8, 1),
    "fs": Program(SLEEP_ROWS, luggage, sleep, 25, 1, 8),
}


def run(program: Program, sizes: Sequence[int], out: Path | None) -> None:
    """Run an application to its end; the first process reports its numbers of processes, and writes the result."""
    with Ranks(program.rows, program.begin, {"done": 0, "processes": 0}) as ranks:
        while (done := ranks.values["done"]) < program.iterations:
            if ranks.processes != ranks.values["processes"]:
                ranks.values["processes"] = ranks.processes
                if ranks.rank == 0:
                    print(f"{ranks.processes} processes from iteration {done} on", flush=True)
            program.iterate(ranks)
            ranks.values["done"] = done + 1
            if (done + 1) % program.check_each:
                continue
            if sizes:
                stays = ranks.resize(sizes[min(done // program.check_each, len(sizes) - 1)])
            else:
                stays = ranks.check(minimum=1, maximum=program.maximum, preferred=program.preferred)
            if not stays:
                return
        result = ranks.gather(ranks.arrays["x"])
        if ranks.rank == 0 and out is not None:
            np.save(out, result)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An MPI program whose number of processes changes.")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--sizes", default="", metavar="N,N,...", help="numbers of processes, instead of asking")
    parser.add_argument("--out", type=Path, metavar="FILE.npy", help="write the result here")
    given = parser.parse_args()
    run(PROGRAMS[given.program], [int(size) for size in given.sizes.split(",") if size], given.out)
