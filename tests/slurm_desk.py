"""A user's desk: a folder where commands of asa are typed, with those of a cluster of real Slurm daemons."""

import os
import subprocess
import sys
from pathlib import Path

from slurm_testbed import make_home

COMMANDS = ("id", "sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "sacctmgr", "sshare", "sdiag", "sprio")


class Desk:
    """Where a user types; jobs are another user's than this process's, so its umask is to be 0.

    `prefix`: the command that runs another as that user; the cluster's if None.
    `more`: further commands, and further variables.
    """

    def __init__(self, slurm, name, *, prefix=None, also=(), **more):
        self.folder = slurm.folder(name)
        bin_ = self.folder / "bin"
        bin_.mkdir()
        for command in (*COMMANDS, *also):
            (bin_ / command).write_text(f'#!/bin/sh\nexec {" ".join(prefix or slurm.prefix)} {command} "$@"\n')
            (bin_ / command).chmod(0o755)
        self.environment = {
            "HOME": make_home(self.folder),
            "PATH": f"{bin_}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "ASA_RUNS": str(self.folder / "runs"),
            "ASA_TRUSTED": os.environ["ASA_TRUSTED"],
            "COLUMNS": "200",
            **more,
        }

    def write(self, name, text):
        """Write a file."""
        (self.folder / name).write_text(text)

    def asa(self, *words, code=0, **more):
        """Type a command of asa, perhaps with further variables; return what it printed.

        `code`: the expected exit code, or several; None for any.
        """
        done = subprocess.run(
            [sys.executable, "-m", "asa", *words],
            cwd=self.folder, env=self.environment | more, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        codes = code if isinstance(code, tuple) else (code,)
        assert code is None or done.returncode in codes, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def begin(self, *words, **more):
        """Type a command of asa that takes its time; return its process."""
        return subprocess.Popen(
            [sys.executable, "-m", "asa", *words],
            cwd=self.folder, env=self.environment | more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    @property
    def run(self):
        """The folder of the one run."""
        [run] = [path for path in (self.folder / "runs").iterdir() if path.is_dir()]
        return run
