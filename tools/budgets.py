"""Budgets of commands, in multiples of `python -c "import numpy"`, and of simulations, in multiples of a replay.

These are CPU time, measured in the same run as what they are multiples of. Budgets of memory are in bytes.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median

COMMANDS: Mapping[str, float] = {
    "--help": 1.5,
    "list": 1.5,
    "status": 1.5,
    "runs": 1.5,
    "explain a": 1.5,
    "tick": 1.5,
    "check flow.toml": 1.5,
    "predict --cores 1 --walltime 1min --backend local": 2.5,
}
"""What each command may take, in a folder that `prepare` has made; the run there has ended."""

PREDICTING = 2.0
"""What a fan of 10 or 100 may take by a strategy that predicts waits, in fans by `per-stage`."""

DISCIPLINES: Mapping[str, float] = {"EASY": 8.0, "conservative": 10.0, "multifactor": 8.0}
"""What simulating a log under a discipline of the general core may take, in replays of the same log.

Conservative backfilling exceeds it on KTH's log at a load of 1.2: with a mean of 690 queued jobs, an early end changes
the planned starts of 123, 3.4 million in all, so that 10 replays would leave 17 ns for each.
"""

WORTH_BYTES = 500_000_000
"""What `asa worth` may take on a log of 250,000 jobs, in itself and its two processes."""

CLIENT_BYTES = 120_000_000
"""What a client of 3,000 stages may take."""

_LOOK_EACH_S = 0.1
_FLOW = 'name = "f"\n[[stage]]\nname = "a"\ncores = 1\nwalltime = "1min"\ncommand = "true"\n'
_ASA = str(Path(sys.executable).with_name("asa"))


def prepare(place: Path) -> None:
    """Write a workflow of one stage, and run it."""
    (place / "flow.toml").write_text(_FLOW)
    cpu_s([_ASA, "run", "flow.toml", "--backend", "local", "--strategy", "per-stage"], place, at_home_in(place))


def at_home_in(place: Path) -> dict[str, str]:
    """Return variables by which a command knows nothing of what this user's local queue and bank have seen."""
    return {"HOME": str(place), "XDG_STATE_HOME": str(place / "state"), "ASA_BANK": str(place / "bank")}


def cpu_s(command: list[str], place: Path | None = None, variables: Mapping[str, str] | None = None) -> float:
    """CPU time of a command and all that it waits for, in seconds, with its modules compiled to bytecode."""
    environment = {**os.environ, **(variables or {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    nowhere = subprocess.DEVNULL
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, cwd=place, env=environment, stdout=nowhere, stderr=nowhere)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peak_bytes(command: list[str], place: Path | None = None, variables: Mapping[str, str] | None = None) -> int:
    """Memory of a command and all that it starts, at most: each process's own, and its part of what they share.

    It is looked at ten times a second, as only Linux tells it.
    """
    nowhere = subprocess.DEVNULL
    environment = {**os.environ, **(variables or {})}
    running = subprocess.Popen(command, cwd=place, env=environment, stdout=nowhere, stderr=nowhere)
    peak = 0
    while running.poll() is None:
        peak = max(peak, sum(_proportional_bytes(process) for process in _with_descendants(running.pid)))
        time.sleep(_LOOK_EACH_S)
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, command)
    return peak


def _with_descendants(first: int) -> Iterator[int]:
    """Yield a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [first]
    for process in found:  # which grows meanwhile
        yield process
        found += children.get(process, [])


def _proportional_bytes(process: int) -> int:
    with suppress(OSError):  # it has ended
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


def measured(commands: Iterable[str], place: Path, times: int) -> tuple[dict[str, float], float]:
    """Return the median of the CPU time of each command and of `import numpy`, in seconds, each in its turn."""
    every = {words: [_ASA, *words.split()] for words in commands}
    taken: dict[str, list[float]] = {words: [] for words in every}
    numpy = []
    for _ in range(times):
        numpy.append(cpu_s([sys.executable, "-c", "import numpy"]))
        for words, command in every.items():
            taken[words].append(cpu_s(command, place, at_home_in(place)))
    return {words: median(several) for words, several in taken.items()}, median(numpy)
