"""Writes requests to slurmrestd as each family of API versions accepts them.

v0.0.38 refuses a whole job for one unknown key; later versions ignore it with a warning. Where the published
descriptions are wrong, this follows experiments with Slurm 22.05 (v0.0.38) and 24.11 (v0.0.40 to v0.0.42).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from asa.backends.shell.script import is_utf8

from asa.errors import BackendError, InputError
from asa.requests import SIZES, Needs, come_to, name_of, without_size

from ..link import SlurmJob
from ..options import Keys, checked, keys_of_38, keys_since_40, left_open, rest_keys, variables
from ..words import minutes, words_of

Query = list[tuple[str, str]]

KNOWN = (45, 44, 43, 42, 41, 40, 38)
"""Supported API versions v0.0.N, the preferred first. (v0.0.39 came with no release that is still in use.)"""

_LAYOUT = frozenset({"sockets-per-node", "cores-per-socket", "threads-per-core"})
_OF_LAUNCHERS = {
    "HYDRA_BOOTSTRAP": "slurm",
    "HYDRA_LAUNCHER_EXTRA_ARGS": "--external-launcher",
    "I_MPI_HYDRA_BOOTSTRAP": "slurm",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "--external-launcher",
    "OMPI_MCA_plm_slurm_args": "--external-launcher",
    "PRTE_MCA_plm_slurm_args": "--external-launcher",
}
"""Variables that sbatch sets since 23.11, unless its user does, so that `mpirun` can use the whole job."""

_PATH = "/usr/local/bin:/usr/bin:/bin"


class Dialect(ABC):
    """The requests of one API version."""

    changeable: ClassVar[frozenset[str]]
    """What `change` can change of a job, as names of its arguments."""
    has_states: ClassVar[bool]
    """Whether there may be a small listing of states."""
    cancels_many: ClassVar[bool]
    """Whether one request can cancel several jobs; its answer lists each that was not cancelled."""

    def __init__(self, version: int) -> None:
        self.version, self.name = version, f"v0.0.{version}"

    def submission(self, job: SlurmJob) -> dict[str, Any]:
        """Return the body that submits a job."""
        options = checked(job.options, job.name, left_open(job))
        asked = {
            **rest_keys([*words_of(job), *options], self.keys(), self.name, job.name),
            **({} if job.cores else self.size(job.options)),
            "environment": self.environment(self.variables(job)),
        }
        return self.wrapped(asked, job.script)

    @abstractmethod
    def keys(self) -> Keys:
        """Return the keys for options of sbatch: those of users, and those that asa sets."""

    def size(self, options: Sequence[str]) -> dict[str, Any]:
        """Convert size options as sbatch does: slurmrestd leaves that to its client."""
        given = dict(checked(options, "", SIZES))
        needs = come_to(tuple(option for option in options if name_of(option) in SIZES), without_size(options))
        nodes = given.get("nodes") or ""
        fewer = {"nodes": self.nodes(needs.tasks)} if nodes.isdigit() and int(nodes) > needs.tasks else {}
        return fewer | self.tasks(needs, given)

    def change(self, *, held: bool | None, walltime_s: float | None, nodes: int | None) -> dict[str, Any]:
        """Return the body that changes a job."""
        asked: dict[str, Any] = {}
        if held is not None:
            asked["hold"] = held
        if walltime_s is not None:
            asked["time_limit"] = self.number(minutes(walltime_s))
        if nodes is not None:
            if "nodes" not in self.changeable:
                raise BackendError(
                    f"REST API {self.name} cannot shrink a running job", hint="A newer Slurm can, and scontrol can."
                )
            asked["nodes"] = self.nodes(nodes)
        return asked

    @abstractmethod
    def tasks(self, needs: Needs, given: Mapping[str, str | None]) -> dict[str, Any]:
        """Return the keys for numbers of tasks and CPUs, as sbatch would; `given`: the job's options, by name."""

    @abstractmethod
    def number(self, value: int) -> Any:
        """Return a number that may also be unlimited or unset."""

    def variables(self, job: SlurmJob) -> dict[str, str]:
        """Return a job's variables as sbatch would, without values that are not UTF-8, which JSON cannot contain.

        As with sbatch, variables that sbatch sets override the user's.
        """
        given = {name: value for name, value in job.environment.items() if is_utf8(name + value)}
        own = variables(job.options, job.name, left_open(job))
        if job.cpus_per_task > 1:
            own["SLURM_CPUS_PER_TASK"] = str(job.cpus_per_task)
        if job.gpus:
            own["SLURM_GPUS"] = str(job.gpus)
        return {"PATH": _PATH} | given | own

    @abstractmethod
    def environment(self, variables: dict[str, str]) -> Any:
        """Return a job's environment; it must not be empty."""

    @abstractmethod
    def nodes(self, count: int) -> Any:
        """Return an exact number of nodes."""

    @abstractmethod
    def wrapped(self, asked: dict[str, Any], script: str) -> dict[str, Any]:
        """Join job and script."""

    @abstractmethod
    def past(self, job_ids: Collection[str]) -> Query:
        """Return the query of slurmdbd for jobs by their numbers, without a time span."""

    @abstractmethod
    def named(self, names: Collection[str], since_s: float) -> Query:
        """Return the query of slurmdbd for jobs by their names, submitted since a time."""

    @abstractmethod
    def history(self, since_s: float, until_s: float) -> Query:
        """Return the query of slurmdbd for all jobs of a time span, with uncut times."""


class _Dialect38(Dialect):
    """Slurm 22.05."""

    changeable = frozenset({"held", "walltime_s"})
    has_states = False
    cancels_many = False

    def tasks(self, needs: Needs, given: Mapping[str, str | None]) -> dict[str, Any]:
        return {"tasks": needs.tasks} if needs.tasks > 1 and _are_fixed(given) else {}

    def number(self, value: int) -> int:
        return value

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        return variables

    def nodes(self, count: int) -> int:
        return count  # a pair, as in the published description, would become one node

    def keys(self) -> Keys:
        return keys_of_38()

    def wrapped(self, asked: dict[str, Any], script: str) -> dict[str, Any]:
        return {"script": script, "job": asked}

    def past(self, job_ids: Collection[str]) -> Query:
        return [("step", ",".join(job_ids)), ("skip_steps", "true")]

    def named(self, names: Collection[str], since_s: float) -> Query:
        return [("job_name", ",".join(names)), ("submit_time", f"uts{int(since_s)}"), ("skip_steps", "true")]

    def history(self, since_s: float, until_s: float) -> Query:
        return [("start_time", f"uts{int(since_s)}"), ("end_time", f"uts{math.ceil(until_s)}"), ("skip_steps", "true")]


class _Dialect40(Dialect):
    """Slurm 23.11 and 24.05."""

    changeable = frozenset({"held", "walltime_s", "nodes"})
    has_states = True
    cancels_many = True

    def tasks(self, needs: Needs, given: Mapping[str, str | None]) -> dict[str, Any]:
        counted = "nodes" in given and _are_fixed(given) and not _LAYOUT.isdisjoint(given)
        cpus = needs.tasks * needs.of_each_task if _are_fixed(given) or "ntasks" in given else 1
        return ({"tasks": needs.tasks} if counted else {}) | ({} if "overcommit" in given else {"minimum_cpus": cpus})

    def number(self, value: int) -> dict[str, Any]:
        return {"set": True, "infinite": False, "number": value}

    def environment(self, variables: dict[str, str]) -> list[str]:
        return [f"{name}={value}" for name, value in variables.items()]

    def variables(self, job: SlurmJob) -> dict[str, str]:
        return _OF_LAUNCHERS | super().variables(job)

    def nodes(self, count: int) -> str:
        return str(count)

    def keys(self) -> Keys:
        return keys_since_40(self.version, self.number)

    def wrapped(self, asked: dict[str, Any], script: str) -> dict[str, Any]:
        return {"job": asked | {"script": script}}

    def past(self, job_ids: Collection[str]) -> Query:
        return [*(("step", job_id) for job_id in job_ids), ("skip_steps", "true")]

    def named(self, names: Collection[str], since_s: float) -> Query:
        query = [("job_name", ",".join(names)), ("start_time", f"uts{int(since_s)}")]
        return [*query, ("usage_time_as_submit_time", "true"), *_UNCUT]

    def history(self, since_s: float, until_s: float) -> Query:
        query = [("start_time", f"uts{int(since_s)}"), ("end_time", f"uts{math.ceil(until_s)}")]
        return [*query, ("show_duplicates", "true"), *_UNCUT]


class _Dialect42(_Dialect40):
    """Slurm 24.11 and later."""

    def variables(self, job: SlurmJob) -> dict[str, str]:
        common = super().variables(job)
        options = checked(job.options, job.name, left_open(job))
        asked = rest_keys(options, self.keys(), self.name, job.name)
        per_task = f"cpu={job.cpus_per_task}" if job.cpus_per_task > 1 else asked.get("tres_per_task")
        own = {"SLURM_TRES_PER_TASK": per_task, "SLURM_TRES_BIND": asked.get("tres_bind")}
        gone = {"SLURM_GPUS_PER_TASK"} if "tres_bind" in asked else set()
        kept = {name: value for name, value in common.items() if name not in gone}
        return kept | {name: value for name, value in own.items() if value}


_UNCUT: Sequence[tuple[str, str]] = (("disable_truncate_usage_time", "true"), ("skip_steps", "true"))


def _are_fixed(given: Mapping[str, str | None]) -> bool:
    """Whether a job's nodes are a number, or open, but not a range."""
    return (given.get("nodes") or "1").isdigit()


def dialect(number: int) -> Dialect:
    """Return the dialect of v0.0.N."""
    kinds = ((42, _Dialect42), (40, _Dialect40), (38, _Dialect38))
    return next(kind for since, kind in kinds if number >= since)(number)


def number_of(name: str) -> int:
    """Return the N of a known ``v0.0.N``."""
    match = re.fullmatch(r"v?0\.0\.(\d+)", name)
    if match is None or int(match[1]) not in KNOWN:
        raise InputError(
            f"{name!r} is no API version that is known here",
            hint=f"Known are {', '.join(f'v0.0.{number}' for number in reversed(KNOWN))}.",
        )
    return int(match[1])
