"""Functions that processes of a pool run in tests, imported by name."""

import os
import time

import numpy as np


def describe(part):
    return part.rank, part.processes, list(part.rows), len(part.all_rows)


def scale(part, by, *, name="x"):
    part.arrays[name] *= by


def read_all(part, name="x"):
    return np.stack([part.row(name, index) for index in part.all_rows])


def read_row(part, index):
    return part.row("x", index)


def pids(part):
    return os.getpid()


def add_ranks(part):
    return [sum(part.exchange(part.rank + turn)) for turn in range(3)]


def smear(part, turns):
    """Each row becomes the sum of itself and the next one, of any process, a number of times."""
    for _ in range(turns):
        sums = [part.row("x", row) + part.row("x", (row + 1) % len(part.all_rows)) for row in part.rows]
        part.exchange()
        if sums:
            part.arrays["x"][:] = sums
        part.exchange()


def fail_on(part, rank):
    if part.rank == rank:
        raise KeyError("no such thing")
    part.exchange()


def leave_others_waiting(part):
    if part.rank:
        part.exchange()


def die_on(part, rank):
    if part.rank == rank:
        os._exit(7)
    part.exchange()


def keep_view(part, kept=[]):  # noqa: B006 - it is to outlive the call
    kept.append(part.arrays["x"])


def sleep(part, seconds):
    time.sleep(seconds)
