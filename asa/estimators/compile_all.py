"""Compiles all code that predicts waits, by predicting and learning a few.

`asa.estimators.readiness` starts this program.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from asa.core.compiled_files import folder_for
from asa.estimators.bank import WaitBank
from asa.estimators.readiness import SEEING, simulates_compiled
from asa.waits import QueuedJob, exactly

_NICE = 19


def compile_all() -> None:
    """Run each kernel once, all in one process."""
    bank = WaitBank(SEEING, machine_cores=8)
    for place in range(3):
        job = QueuedJob(60.0 * place, 4, 600.0, f"user{place}", "none")
        bank.observe(bank.submitted(job), exactly(60.0))


def is_to_compile() -> bool:
    """Whether compiled code can be kept, is missing, and no other process compiles it now.

    Otherwise several runs that begin at once would each compile the same code. The lock is held until this process
    ends; on a file system without locks two may compile.
    """
    source = Path(__file__)
    where = folder_for(source, os.environ.get("NUMBA_CACHE_DIR", ""))
    if where is None:
        return False
    try:
        folder = os.open(where or source.parent / "__pycache__", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return not simulates_compiled()


if __name__ == "__main__":
    os.nice(_NICE)
    if is_to_compile():
        compile_all()
