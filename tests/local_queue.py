"""A queue of this machine for a test, of which nothing is left running."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from asa.backends.local import LocalMachine
from asa.backends.local.backend import start_server
from asa.backends.local.spool import Spool, host, locked
from slurm_testbed import until

from asa.backend import JobSpec


class Queue:
    """The queue, whose files lie in a folder."""

    def __init__(self, root, cores=4):
        self.root = root
        self.machine = LocalMachine(cores=cores, spool=str(root / "spool"))
        self.spool = Spool(root / "spool" / host())

    def connect(self, run="run", **settings):
        machine = LocalMachine(spool=str(self.root / "spool"), **{"cores": self.machine.settings.cores, **settings})
        return machine.connect(self.root / run)

    def is_served(self):
        with locked(self.spool.lock) as is_free:
            return not is_free

    def server(self):
        """Return the server's process; wait until there is one."""
        until(lambda: self.spool.pid.exists() and self.spool.ring(), what="a server")
        return int(self.spool.pid.read_text())

    def kill_server(self, number=signal.SIGKILL):
        with suppress(ProcessLookupError, FileNotFoundError, ValueError):
            if not self.spool.ring():
                return  # what it left may tell the number of another by now
            pid = int(self.spool.pid.read_text())
            assert pid != os.getpid()
            os.kill(pid, number)
            until(lambda: not self.spool.ring(), what="the end of the server")

    def close(self):
        """End all jobs and the server."""
        if not self.spool.bell.exists():
            return
        for number in self.spool.numbers():
            with suppress(OSError):
                (self.spool.jobs / str(number) / "cancel").touch()
                self.spool.ring(number)
        if any((self.spool.jobs / str(n) / "order.json").exists() for n in self.spool.numbers()):
            if not self.spool.ring():  # whoever submitted them was killed before there was one
                start_server(self.spool, 1.0)
            until(lambda: not [n for n in self.spool.numbers() if self.spool.holds(n)], what="the end of all jobs")
        self.kill_server(signal.SIGTERM)


def job(command="true", cores=1, walltime_s=60.0, **changes):
    return JobSpec("test", cores, walltime_s, command=command, **changes)


def ended(backend, *job_ids):
    """Wait for jobs' ends; their statuses."""

    def told():
        backend.wait(backend.now() + 0.2)
        statuses = backend.status(job_ids)
        return list(statuses.values()) if all(s.state.is_final for s in statuses.values()) else None

    statuses = until(told, what=f"the end of {job_ids}")
    return statuses[0] if len(job_ids) == 1 else statuses


def running(backend, job_id):
    return until(
        lambda: (s := backend.status([job_id])[job_id]).start_s is not None and s, what=f"the start of {job_id}"
    )


def lines(path):
    return Path(path).read_text().split() if Path(path).exists() else []
