"""Budgets of commands, in multiples of `python -c "import numpy"`, and of simulations, in multiples of a replay.

All are CPU time, measured in the same run as what they are multiples of.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

COMMANDS: Mapping[str, float] = {
    "--help": 1.5,
    "list": 1.5,
    "status": 1.5,
    "runs": 1.5,
    "explain a": 1.5,
    "tick": 1.5,
    "check flow.toml": 2.0,  # not 1.5: to load pydantic and to build the model of workflow files takes 0.7
    "predict --cores 1 --walltime 1min --backend local": 2.5,
}
"""What each command may take, in a folder that `prepare` has made; the run there has ended."""

DISCIPLINES: Mapping[str, float] = {"EASY": 8.0, "conservative": 10.0, "multifactor": 8.0}
"""What simulating a log under a discipline of the general core may take, in replays of the same log."""

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
