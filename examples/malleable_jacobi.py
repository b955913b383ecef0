"""A program that shrinks and grows while it runs: Jacobi's method on Laplace's equation, its rows over processes.

Every so many iterations it asks the resource manager whether to change its number of processes, does so, and moves its
rows. The demonstration starts a manager of four nodes on this machine, and the program on all of them. Then comes a
rigid program that needs two: the first one shrinks, and grows again once the other has ended. What it computes is, to
the last bit, what it computes without a manager, on four processes from beginning to end.

    python examples/malleable_jacobi.py                                  # the demonstration
    python examples/malleable_jacobi.py --out plate.npy                  # the program alone
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from asa.backends.dmr.manager import LocalManager
from numpy.typing import NDArray

from asa import dmr

Plate = NDArray[np.float64]

NODES = 4
POINTS = 600  # a side
ITERATIONS = 2500
CHECK_EACH = 50


# ---------------------------------------------------------------------- the program


def relax(new: Plate, above: Plate, here: Plate, below: Plate) -> None:
    """Set rows to the means of their neighbours; their ends stay as they are."""
    new[..., 1:-1] = 0.25 * (above[..., 1:-1] + below[..., 1:-1] + here[..., :-2] + here[..., 2:])


def iterate(part: dmr.Part, first: int, iterations: int) -> None:
    """Do some iterations on the rows of one process."""
    outer = {*part.rows[:1], *part.rows[-1:]} - {part.all_rows[0], part.all_rows[-1]}  # next to those of others
    for iteration in range(first, first + iterations):
        old, young = ("even", "odd") if iteration % 2 == 0 else ("odd", "even")
        here, new = part.arrays[old], part.arrays[young]
        relax(new[1:-1], here[:-2], here[1:-1], here[2:])
        for row in outer:
            relax(part.row(young, row), part.row(old, row - 1), part.row(old, row), part.row(old, row + 1))
        part.exchange()  # nobody goes on before all are here


def solve(log: Path) -> Plate:
    """Solve for a plate of which the upper edge is hot, and write down how it goes."""
    plate = np.zeros((POINTS, POINTS))
    plate[0] = 1.0
    with dmr.Pool(dmr.processes(NODES), {"even": plate, "odd": plate}) as pool:
        note(log, 0, pool.processes, "begins")
        for done in range(CHECK_EACH, ITERATIONS + 1, CHECK_EACH):
            pool.run(iterate, done - CHECK_EACH, CHECK_EACH)
            answer = dmr.check_status(minimum=1, maximum=NODES, factor=2)
            if answer:
                pool.resize(answer.processes)
                dmr.acknowledge()
            note(log, done, pool.processes, f"{answer.action}: {answer.why}" if answer else "")
        note(log, ITERATIONS, pool.processes, "ends")
        return pool.collect("even")


# ---------------------------------------------------------------------- the demonstration


class Event(NamedTuple):
    """Something that happened."""

    time_s: float
    iteration: int | None
    processes: int | None
    what: str


def note(log: Path, iteration: int, processes: int, what: str) -> None:
    """Write down how far the program is."""
    with log.open("a") as file:
        file.write(json.dumps(Event(time.time(), iteration, processes, what)) + "\n")


def events(log: Path) -> list[Event]:
    """Read what the program wrote down."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [Event(*json.loads(line)) for line in lines]


def run_malleable(out: Path) -> list[Event]:
    """Run the program under a manager, and a rigid one that comes meanwhile; tell what happened."""
    log = out.with_suffix(".log")
    with LocalManager(NODES) as manager:
        jacobi = manager.submit(command(out), NODES, name="jacobi")
        while not manager.wait(jacobi, 0.05).state.is_final and len(events(log)) < ITERATIONS // CHECK_EACH // 5:
            pass
        told = events(log)
        sleep_s = 1.5 * (told[-1].time_s - told[0].time_s)  # by how quick this machine is
        rigid = manager.submit([sys.executable, "-c", f"import time; time.sleep({sleep_s})"], 2, name="rigid")
        ended = manager.wait(jacobi)
        sys.stderr.write(ended.output.read_text())
        other = manager.job(rigid)
    happened = [event for event in events(log) if event.what]
    for time_s, what in ((other.submit_s, "submitted"), (other.start_s, "started"), (other.end_s, "ended")):
        if time_s is not None:
            happened.append(Event(time_s, None, None, f"(job {rigid}, rigid, on {other.nodes} nodes: {what})"))
    return sorted(happened, key=lambda event: event.time_s)


def command(out: Path) -> list[str]:
    """Say how the program is run."""
    return [sys.executable, __file__, "--out", str(out)]


def demonstrate(folder: Path) -> None:
    """Run the program under a manager and without, and print what happened."""
    malleable, alone = folder / "malleable.npy", folder / "alone.npy"
    happened = run_malleable(malleable)
    print(f"{'Time':>6}  {'Processes':>9}  {'Iteration':>9}  What")
    for event in happened:
        processes, iteration = ("" if n is None else f"{n:,}" for n in (event.processes, event.iteration))
        print(f"{event.time_s - happened[0].time_s:4.1f} s  {processes:>9}  {iteration:>9}  {event.what}")
    unmanaged = {name: value for name, value in os.environ.items() if name != "ASA_DMR"}
    subprocess.run(command(alone), env=unmanaged, check=True)  # noqa: S603 - ourselves
    times = [told[-1].time_s - told[0].time_s for told in (happened, events(alone.with_suffix(".log")))]
    is_same = np.array_equal(np.load(malleable), np.load(alone))
    print(f"\nMalleable {times[0]:.1f} s, without a manager on {NODES} processes {times[1]:.1f} s.")
    print(f"The results are {'the same, to the last bit' if is_same else 'NOT THE SAME'}.")
    sizes = [event.processes for event in happened if event.processes is not None]
    if not is_same or min(sizes) == NODES or sizes[-1] < NODES:
        sys.exit("It should have shrunk, grown, and computed the same.")


def main() -> None:
    """Run the demonstration, or the program alone."""
    parser = argparse.ArgumentParser(description="Jacobi's method, on a number of processes that changes.")
    parser.add_argument("--out", type=Path, metavar="FILE.npy", help="solve, and write the result here")
    out = parser.parse_args().out
    if out is not None:
        np.save(out, solve(out.with_suffix(".log")))
        return
    with tempfile.TemporaryDirectory() as folder:
        demonstrate(Path(folder))


if __name__ == "__main__":
    main()
