"""The jobs of a pool. Each runs dask's own workers, which connect to the pool's scheduler by themselves."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import dask
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol.pickle import dumps

from asa.backend import JobSpec
from asa.core import python, temporary
from asa.job import head, text

from .pages import on_loopback
from .values import AllocationShape

_DEATH_S = 120.0  # a worker ends if it has not reached its scheduler after this time
_SCRATCH_OPTION = '--local-directory "$scratch"'


@dataclass(frozen=True, slots=True)
class WorkerJobs:
    """Writes the jobs of one pool."""

    pool: str  # the pool's name; the jobs' names begin with it
    python: str  # interpreter on the compute nodes
    launcher: str  # starts a command once on each node of a job of several nodes
    reached: Mapping[str, str | None]  # `interface` or `host` on which workers listen; dask's choice without either
    credentials: Mapping[str, Path]  # files that authenticate workers, by the option of dask's worker that takes each
    kept: Path | None = None  # folder of the pool's own credentials
    is_trusted: bool = False  # whether the user trusts that folder, whoever owns it

    def spec(self, one_id: str, shape: AllocationShape, scheduler: str, lifetime_s: float) -> JobSpec:
        """Return the job of one allocation, with a new token.

        `one_id`: the allocation's name in the pool; its workers' names begin with it.
        `lifetime_s`: seconds after which its workers end by themselves.
        """
        return JobSpec(
            f"{self.pool}-{one_id}",
            shape.cores,
            shape.walltime_s,
            command=self._command(one_id, shape, scheduler, lifetime_s),
            nodes=shape.nodes,
            memory_bytes=shape.memory_bytes,
            gpus=shape.gpus,
            partition=shape.partition,
            account=shape.account,
            options=shape.options,
            cpus_per_task=shape.cores // max(shape.nodes, 1),
            token=uuid.uuid4().hex,
        )

    def _command(self, one_id: str, shape: AllocationShape, scheduler: str, lifetime_s: float) -> str:
        """Return the command of a job: a dask worker with a nanny per process, so that a crash costs no new wait."""
        processes = shape.processes // max(shape.nodes, 1)
        arguments = python.command("-m", "distributed.cli.dask_worker", scheduler, python=self.python)
        options = {
            "nworkers": processes,
            "nthreads": shape.threads,
            "memory-limit": shape.memory_bytes // shape.processes if shape.memory_bytes else "auto",
            "resources": " ".join(f"{name}={amount:.12g}" for name, amount in shape.resources.items()),
            "death-timeout": f"{_DEATH_S:.0f}s",
            "lifetime": f"{lifetime_s:.0f}s",
            "dashboard-address": on_loopback(":0"),  # for metrics; its dashboard is off
            **{name: value for name, value in self.reached.items() if value},
        }
        for name, value in options.items():
            arguments += [f"--{name}", str(value)]
        suffix = "" if processes > 1 else "-0"
        # expanded by the shell on each node, which knows its name and folders
        more = f"{self._shown_credentials()} {_SCRATCH_OPTION}"
        if shape.nodes <= 1:
            return self._on_node(shlex.join([*arguments, "--no-dashboard", "--name", one_id + suffix]) + more)
        name = f' --name "{one_id}-$(hostname -s){suffix}"'
        each = self._on_node(shlex.join([*arguments, "--no-dashboard"]) + name + more)
        return f"exec {self.launcher} sh -c {shlex.quote(each)}"

    def _shown_credentials(self) -> str:
        """Return the options with the credential files; the pool's own are given by their copies on each node."""
        options = ""
        for name, path in self.credentials.items():
            shown = f'"$tls"/{shlex.quote(path.name)}' if path.parent == self.kept else shlex.quote(str(path))
            options += f" --{name} {shown}"
        return options

    def _on_node(self, command: str) -> str:
        """Return a script that copies the credentials, finds a folder for a worker's files, and runs the worker."""
        base = dask.config.get("temporary-directory", None) or ""
        values: dict[str, object] = {"base": base, "command": command}
        files = [*temporary.IN_JOBS, "pool-scratch"]
        if self.kept is not None:
            values |= {"kept": self.kept, "trusted": self.is_trusted}
            files.append("pool-credentials")
        return f"{head(values)}{text(*files, 'pool-worker')}"


def modules_of_program() -> bytes:
    """Return a dask plug-in with which workers find this program's modules, after their own.

    It is sent by value, as asa need not be installed on the workers.
    """
    folders = python.folders_of_program()

    class Modules(WorkerPlugin):
        def setup(self, worker: Any) -> None:  # noqa: ARG002 - dask's
            import sys  # noqa: PLC0415 - the worker's

            sys.path[:0] = [folder for folder in folders if folder not in sys.path]

    return cast("bytes", dumps(Modules()))


def make_scratch() -> str:
    """Make a folder for the scheduler's files that only its user can access."""
    if configured := dask.config.get("temporary-directory", None):
        Path(configured).mkdir(parents=True, exist_ok=True)
    return temporary.lasting("asa-pool-", configured or "")
