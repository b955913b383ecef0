"""A program that shrinks and grows while it runs: Jacobi's method on Laplace's equation, with its rows on processes.

After a number of iterations it asks the resource manager whether to change its number of processes, does so, and moves
its rows. The demonstration starts a manager of four nodes on this machine, the program on all of them and, behind it in
the queue, a rigid program that needs two nodes. The first program shrinks, and grows again once the other has ended.
Its result equals, to the last bit, that of a run without a manager, on four processes from beginning to end.

    python examples/malleable_jacobi.py                                  # the demonstration
    python examples/malleable_jacobi.py --out plate.npy                  # the program alone
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import numpy as np
from asa.backends.dmr.manager import LocalManager
from numpy.typing import NDArray

from asa import dmr

Plate = NDArray[np.float64]

NODES = 4
POINTS = 600  # on each side of the plate
ITERATIONS = 2500
CHECK_EACH = 50


def relax(new: Plate, above: Plate, here: Plate, below: Plate) -> None:
    """Set rows to the means of their neighbours; the points at both ends stay as they are."""
    new[..., 1:-1] = 0.25 * (above[..., 1:-1] + below[..., 1:-1] + here[..., :-2] + here[..., 2:])


def iterate(part: dmr.Part, first: int, iterations: int) -> None:
    """Do some iterations on the rows of one process."""
    # rows next to those of other processes
    outer = {*part.rows[:1], *part.rows[-1:]} - {part.all_rows[0], part.all_rows[-1]}
    for iteration in range(first, first + iterations):
        old, young = ("even", "odd") if iteration % 2 == 0 else ("odd", "even")
        here, new = part.arrays[old], part.arrays[young]
        relax(new[1:-1], here[:-2], here[1:-1], here[2:])
        for row in outer:
            relax(part.row(young, row), part.row(old, row - 1), part.row(old, row), part.row(old, row + 1))
        part.exchange()  # waits until all processes are here


def solve(out: Path) -> None:
    """Solve for a plate with a hot upper edge, printing the progress."""
    plate = np.zeros((POINTS, POINTS))
    plate[0] = 1.0
    with dmr.Pool(dmr.processes(NODES), {"even": plate, "odd": plate}) as pool:
        print(at(time.time(), f"jacobi begins on {pool.processes} processes"), flush=True)
        for done in range(CHECK_EACH, ITERATIONS + 1, CHECK_EACH):
            pool.run(iterate, done - CHECK_EACH, CHECK_EACH)
            if answer := dmr.check_status(minimum=1, maximum=NODES, factor=2):
                pool.resize(answer.processes)
                dmr.acknowledge()
                goes_on = f"goes on with {pool.processes} after {done:,} iterations"
                print(at(time.time(), f"jacobi {goes_on} ({answer.action}: {answer.why})"), flush=True)
        print(at(time.time(), f"jacobi ends on {pool.processes} processes"))
        np.save(out, pool.collect("even"))


def at(time_s: float, what: str) -> str:
    """Format an event with its time of day."""
    return f"{datetime.fromtimestamp(time_s):%Y-%m-%d %H:%M:%S.%f}  {what}"  # noqa: DTZ006 - as on the wall


def demonstrate(folder: Path) -> None:
    """Run the program under a manager, next to a rigid one, and then alone; check that the results are equal."""
    malleable, alone = folder / "malleable.npy", folder / "alone.npy"
    with LocalManager(NODES) as manager:
        jacobi = manager.submit([sys.executable, __file__, "--out", str(malleable)], NODES, name="jacobi")
        rigid = manager.submit(["sleep", "600"], 2, name="rigid")
        while not (ours := manager.wait(jacobi, 0.02)).state.is_final and "shrink" not in ours.output.read_text():
            pass
        manager.cancel(rigid)  # as at its end
        told, other = manager.wait(jacobi).output.read_text().splitlines(), manager.job(rigid)
    for what, time_s in (("submitted", other.submit_s), ("started", other.start_s), ("ended", other.end_s)):
        told += [] if time_s is None else [at(time_s, f"(job {rigid}, rigid, on {other.nodes} nodes: {what})")]
    print(words := "\n".join(sorted(told)))
    if not malleable.exists() or "(shrink:" not in words or "(expand:" not in words:
        sys.exit("It should have shrunk, grown, and come to its end.")
    print("Once more, without a manager:", flush=True)
    subprocess.run([sys.executable, __file__, "--out", str(alone)], check=True)  # noqa: S603 - ourselves
    assert np.array_equal(np.load(malleable), np.load(alone)), "the results are NOT THE SAME"
    print("The results are the same, to the last bit.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Jacobi's method, on a number of processes that changes.")
    parser.add_argument("--out", type=Path, metavar="FILE.npy", help="solve, and write the result here")
    if target := parser.parse_args().out:
        solve(target)
    else:
        with tempfile.TemporaryDirectory() as place:
            demonstrate(Path(place))
