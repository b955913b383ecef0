"""A place where `asa run` can be typed without a batch system: the backend of the example, installed as a package."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from slurm_testbed import until

ASA = str(Path(sys.executable).with_name("asa"))
EXAMPLES = Path(__file__).parents[1] / "examples"


class Place:
    """A folder with a queue of its own."""

    def __init__(self, root, cores=4):
        self.root, self.cores = root, cores
        package = root / "packages" / "this_machine-0.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: this-machine\nVersion: 0\n")
        (package / "entry_points.txt").write_text("[asa.backends]\nthis-machine = own_backend:ThisMachine\n")
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{root / 'packages'}:{EXAMPLES}",
            "ASA_BANK": str(root / "bank"),
            "ASA_SITES": str(root / "sites"),
            "ASA_RUNS": str(root / "runs"),
            "COLUMNS": "100",
        }

    @property
    def on(self):
        return ["--backend", "this-machine", "--set", f"cores={self.cores}", "--set", f"spool={self.root / 'spool'}"]

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

    def begin(self, *arguments, **options):
        usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": self.root}
        return subprocess.Popen([ASA, *map(str, arguments)], env=self.environment, **{**usual, **options})

    def asa(self, *arguments, code=0, columns=None):
        environment = {**self.environment, **({"COLUMNS": str(columns)} if columns else {})}
        command = [ASA, *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.root, env=environment, check=False, timeout=120,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def status(self, *run):
        return json.loads(self.asa("status", *run, "--output", "json").stdout)

    def states(self):
        return {stage["stage"]: stage["state"] for stage in self.status()["stages"]}

    def runs(self):
        return sorted(path.parent for path in (self.root / "runs").glob("*/run.json"))

    def jobs(self):
        return sorted(path.parent for path in (self.root / "spool" / "jobs").glob("*/job.json"))

    def lines(self, name="did"):
        path = self.root / name
        return path.read_text().split() if path.exists() else []

    def close(self):
        """End all jobs, and wait for the end of the server, so that nothing is left running."""
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
        environment = {k: v for k, v in place.environment.items() if k != "COLUMNS"}
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            os.chdir(place.root)
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            os.execve(ASA, [ASA, *map(str, arguments)], {**environment, "TERM": "xterm"})

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

    def send(self, number):
        os.kill(self.pid, number)

    def hang_up(self):
        """Close the window."""
        os.close(self._end)
        return self._wait()

    def end(self):
        """Read to the end; return the exit code."""
        deadline = time.monotonic() + 60
        while self.read(0.2):
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
                raise AssertionError(self.output.decode(errors="replace"))
        os.close(self._end)
        return self._wait()

    def _wait(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
