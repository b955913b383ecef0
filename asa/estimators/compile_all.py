"""Compiles what predicts waits, by predicting and learning a few: a program that `asa.estimators.readiness` starts."""

from __future__ import annotations

import os

from asa.estimators.bank import WaitBank
from asa.estimators.readiness import SEEING
from asa.waits import QueuedJob, exactly

_NICE = 19


def compile_all() -> None:
    """Run each kernel once, all in one process."""
    bank = WaitBank(SEEING, machine_cores=8)
    for place in range(3):
        job = QueuedJob(60.0 * place, 4, 600.0, f"user{place}", "none")
        bank.observe(bank.submitted(job), exactly(60.0))


if __name__ == "__main__":
    os.nice(_NICE)
    compile_all()
