"""Decides whether to predict waits with compiled code in this process, and whether that code was compiled before.

Plain Python and compiled code predict the same to the bit. Loading compiled code takes as long as learning some hundred
waits without it, and compiling it, once for each installation, as long as thousands. So a command that answers a
question, or begins a run, never waits for the compiler: see `prefer`. What had better be compiled is compiled in a
process of its own, for later commands.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from asa.core import plainly, plugins
from asa.core.compiled_files import are_kept, folder_for
from asa.core.python import command

BLIND, SEEING = "asa", "asa-queue"
_PLAIN = {BLIND, "asa-blind"}  # learn a wait in a millisecond without compiled code
_SMALL_BYTES = 64_000  # of a bank: some 600 waits, learned in the time in which compiled code is loaded
_SWITCH = "ASA_COMPILE"
_COMPILES = "asa.estimators.compile_all"
_KERNELS = "asa.estimators.contextual_kernel", "learn"  # the last function that is compiled in its module
_SIMULATION = "foresee"


def is_loaded() -> bool:
    """Whether compiled code is loaded in this process."""
    loaded = sys.modules.get("asa.core.compiled")
    return loaded is not None and bool(getattr(loaded, "COMPILED", False))


def learns_compiled() -> bool:
    """Whether waits can be learned by compiled code without compiling it."""
    return is_loaded() or are_kept(*_KERNELS)


def simulates_compiled() -> bool:
    """Whether the code that simulates the visible queue was compiled before.

    The simulation is found by name, as any estimator, and has its kernels in a module next to it.
    """
    return is_loaded() or _simulation_is_kept()


def _simulation_is_kept() -> bool:
    points = plugins.places("asa.estimators")
    return "queue" in points and are_kept(f"{points['queue']}_kernel", _SIMULATION) and are_kept(*_KERNELS)


def is_to_compile(estimator: str) -> bool:
    """Whether a process that uses an estimator compiled would compile it first, as no process has kept that."""
    is_kept = {BLIND: lambda: are_kept(*_KERNELS), SEEING: _simulation_is_kept}.get(estimator)
    return is_kept is not None and find_spec("numba") is not None and not is_kept()


def is_to_keep(estimator: str) -> bool:
    """Whether an estimator's code is to be compiled once for all processes, as each would otherwise compile it."""
    may_keep = folder_for(Path(__file__), os.environ.get("NUMBA_CACHE_DIR", "")) is not None
    return may_keep and is_to_compile(estimator)


def is_fast_plainly(estimator: str) -> bool:
    """Whether an estimator learns and predicts in milliseconds without compiled code."""
    return estimator in _PLAIN


def prefer(estimator: str) -> None:
    """Decide for this process, before kernels are imported, whether they run as plain Python, at least for now.

    `estimator`: name of the estimator. One that simulates the queue computes little in plain Python, and nothing if its
    code was not compiled before.
    """
    if is_fast_plainly(estimator):
        plainly.choose(plain=True, for_now=learns_compiled())
    else:
        is_kept = estimator == SEEING and simulates_compiled()
        plainly.choose(plain=is_kept, for_now=is_kept)


def prefer_on_simulator() -> None:
    """Decide for this process, which runs on a simulated batch system: that has kernels, too; see `prefer`."""
    if plainly.wanted is None or plainly.gives_way:
        plainly.choose(plain=not simulates_compiled())
    plainly.settle()


def is_short(bank: Path | None) -> bool:
    """Whether this process learns only the latest waits of a bank, because no code was compiled when it began."""
    return plainly.is_for_good() and _size_bytes(bank) > _SMALL_BYTES and find_spec("numba") is not None


def _size_bytes(bank: Path | None) -> int:
    with suppress(OSError):
        return sum(file.stat().st_size for file in bank.iterdir() if file.is_file()) if bank is not None else 0
    return 0


def compile_later() -> bool:
    """Start a process that compiles all that predicts waits, unless that was done; return whether it was started.

    It outlives this one, runs at the lowest priority for about half a minute, and writes nothing but what it compiles.
    ``ASA_COMPILE=no`` in the environment forbids it.
    """
    if find_spec("numba") is None or simulates_compiled():
        return False
    return later("-m", _COMPILES)


def later(*arguments: str) -> bool:
    """Start a Python process of ours that outlives this one, and prints nothing; return whether it was started.

    ``ASA_COMPILE=no`` in the environment forbids it.
    """
    if os.environ.get(_SWITCH) == "no":
        return False
    nowhere = subprocess.DEVNULL
    with suppress(OSError):
        subprocess.Popen(  # noqa: S603 - ourselves
            command(*arguments), stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True, cwd="/"
        )
        return True
    return False
