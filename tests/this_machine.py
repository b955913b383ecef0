"""A place where `asa run` can be typed without a batch system."""

import fcntl
import json
import os
import pty
import select
import struct
import termios
import time
from pathlib import Path

from forked import Command, asa
from local_queue import Queue
from slurm_testbed import until

TESTS = Path(__file__).parent


class Place:
    """A folder with a queue of this machine of its own."""

    def __init__(self, root, cores=4):
        self.root, self.cores = root, cores
        self.queue = Queue(root, cores)
        self._begun = []
        self.environment = {
            **os.environ,
            "ASA_BANK": str(root / "bank"),
            "ASA_SITES": str(root / "sites"),
            "ASA_RUNS": str(root / "runs"),
        }

    @property
    def on(self):
        return ["--backend", "local", "--set", f"cores={self.cores}", "--set", f"spool={self.root / 'spool'}"]

    def flow(self, *stages, name="flow"):
        """Write a workflow file of (name, after, command) or (name, after, command, cores)."""
        text = f'name = "{name}"\n'
        for stage, after, command, *cores in stages:
            width = cores[0] if cores else 1
            text += f'[[stage]]\nname = "{stage}"\ncores = {width}\nwalltime = "5min"\nexpected = "5s"\n'
            text += f"after = {json.dumps(after.split())}\ncommand = {json.dumps(command)}\n"
        path = self.root / f"{name}.toml"
        path.write_text(text)
        return path.name

    def begin(self, *arguments, cwd=None):
        self._begun.append(Command(*arguments, cwd=cwd or self.root, env=self.environment))
        return self._begun[-1]

    def asa(self, *arguments, code=0, columns=100):
        return asa(*arguments, code=code, cwd=self.root, env=self.environment | {"COLUMNS": str(columns)})

    def status(self, *run):
        return json.loads(self.asa("status", *run, "--output", "json").stdout)

    def states(self):
        return {stage["stage"]: stage["state"] for stage in self.status()["stages"]}

    def runs(self):
        return sorted(path.parent for path in (self.root / "runs").glob("*/run.json"))

    def jobs(self):
        return sorted(path.parent for path in (self.root / "spool").glob("*/*/*/order.json"))

    def lines(self, name="did"):
        path = self.root / name
        return path.read_text().split() if path.exists() else []

    def close(self):
        """End all clients, all jobs and the server, so that nothing is left running."""
        for command in self._begun:
            command.close()
        self.end_queue()

    def end_queue(self):
        self.queue.close()


class OwnPlace(Place):
    """One with a batch system of somebody's own, which is installed as a package."""

    def __init__(self, root):
        super().__init__(root)
        package = root / "packages" / "this_machine-0.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: this-machine\nVersion: 0\n")
        (package / "entry_points.txt").write_text("[asa.backends]\nthis-machine = own_backend:ThisMachine\n")
        self.environment["PYTHONPATH"] = f"{root / 'packages'}:{TESTS}"

    @property
    def on(self):
        return ["--backend", "this-machine", *super().on[2:]]

    def jobs(self):
        return sorted(path.parent for path in (self.root / "spool" / "jobs").glob("*/job.json"))

    def end_queue(self):
        for job in self.jobs():
            (job / "cancel").touch()
        lock = self.root / "spool" / "lock"
        if lock.exists():
            with lock.open("wb") as file:
                until(lambda: _is_free(file), what="the end of the server")


def _is_free(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


class Terminal:
    """A command on a terminal of a size."""

    def __init__(self, place, *arguments, columns=80, rows=30):
        self.output = b""
        environment = {name: value for name, value in place.environment.items() if name != "COLUMNS"}
        self._end, its_end = pty.openpty()
        fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.command = Command(*arguments, cwd=place.root, env=environment | {"TERM": "xterm"}, terminal=its_end)
        os.close(its_end)

    def read(self, within_s=0.0):
        """Take in what was written."""
        while select.select([self._end], [], [], within_s)[0]:
            try:
                fresh = os.read(self._end, 1 << 16)
            except OSError:
                return False
            if not fresh:
                return False
            self.output += fresh
        return True

    def until_shown(self, words):
        def is_shown():
            self.read(0.05)
            return words in self.output.decode(errors="replace")

        until(is_shown, what=f"{words!r} on the terminal")

    def type(self, text):
        os.write(self._end, text)

    def hang_up(self):
        """Close the window."""
        os.close(self._end)
        return self.command.wait()

    def end(self):
        """Read to the end; return the exit code."""
        deadline = time.monotonic() + 60
        while self.read(0.2):
            if time.monotonic() > deadline:
                self.command.kill()
                raise AssertionError(self.output.decode(errors="replace"))
        os.close(self._end)
        return self.command.wait()
