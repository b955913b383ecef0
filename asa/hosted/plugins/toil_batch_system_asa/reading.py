"""What Toil's jobs ask for, as options of sbatch: what Toil's own batch system for Slurm would ask for."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from asa.hosted.expected import Expectations
from asa.hosted.graph import HostJob
from asa.hosted.settings import run_name
from asa.requests import SIZES, come_to
from asa.requests.directives import by_name, take_options
from asa.workflow import Stage

from .ahead import Chain

_UNLIMITED: Final = 1 << 31
_MAX_WALLTIME_S: Final = 10_000_000  # Toil takes no longer one for a limit
_WORKFLOW: Final = re.compile(r"\.(?:cwl|wdl|py)\Z")


@dataclass(slots=True)
class ToilRequests:
    """Reads what jobs ask for.

    `config`: Toil's.
    `is_local`: whether jobs run on this computer.
    """

    config: Any
    is_local: bool
    _longer_s: dict[str, float] = field(default_factory=dict)  # by job that ran out of a time that asa chose

    def stage(self, node: HostJob, name: str, command: str, *, after: tuple[str, ...], expected: Expectations) -> Stage:
        """Return the stage of a chain of jobs."""
        chain: Chain = node.job
        job, config, site = chain.jobs[0], self.config, expected.site
        gpus = gpus_of(job)
        own = by_name(take_options(shlex.split(config.slurm_args or ""), "--slurmArgs")[0])
        size, options, partition = ["--ntasks=1"], [], ""
        cores = max(math.ceil(job.cores), 1)
        if self.is_local:
            size.append(f"--cpus-per-task={min(cores, site.max_cores)}")
        else:
            size.append(f"--cpus-per-task={cores}")
            if config.slurm_allocate_mem:
                size.append(f"--mem={math.ceil(job.memory / 2**20)}M")
            if gpus:
                size.append(f"--gres=gpu:{gpus}")
            partition = _first(
                gpus and config.slurm_gpu_partition, cores > 1 and config.slurm_pe, config.slurm_partition
            )
            if qos := _first(gpus and config.slurm_gpu_qos, config.slurm_qos):
                options.append(f"--qos={qos}")
            size += [str(option) for key, option in own.items() if key in SIZES]
            options += [str(option) for key, option in own.items() if key not in SIZES]
        limits = site.partitions.get(partition or site.partition)
        walltime_s, run_s, is_default = expected.of(
            node.kind,
            come_to(tuple(size), tuple(options)).cores,
            self._walltime_s(chain),
            None if limits is None else limits.max_walltime_s,
        )
        return Stage(
            name,
            walltime_s=walltime_s,
            expected_run_s=run_s,
            assumes_walltime=is_default,
            after=after,
            command=command,
            partition=partition,
            comment=chain.label,
            request=tuple(size),
            options=tuple(options),
        )

    def ran_out_of_time(self, job: Any, walltime_s: float) -> None:
        """Ask for twice the time in the job's next try, if Toil does not say itself what it may take."""
        self._longer_s[str(job.jobStoreID)] = 2 * walltime_s

    def measured(self) -> Iterator[tuple[str, int, float, float]]:
        """Yield nothing: Toil keeps no run times."""
        yield from ()

    def news(self) -> str:
        """Return nothing: a job gets what it asks for."""
        return ""

    def _walltime_s(self, chain: Chain) -> float | None:
        """Return the time that a user has set; of a chain, that of all its jobs; None if not known for each."""
        if self.config.slurm_time:
            return float(self.config.slurm_time)
        times = [job.walltime for job in chain.jobs if not job.local or job is chain.jobs[0]]
        if all(times):
            return float(sum(times))
        longest_s = float(self.config.maxJobDuration)
        return longest_s if longest_s < _MAX_WALLTIME_S else self._longer_s.get(str(chain.jobs[0].jobStoreID))


def gpus_of(job: Any) -> int:
    """Return the number of GPUs of a job."""
    return sum(one["count"] for one in job.accelerators if one["kind"] == "gpu")


def max_jobs(config: Any) -> int | None:
    """Return the upper bound of the jobs that are handed over at a time; None for none."""
    return int(config.max_jobs) if 0 < config.max_jobs < _UNLIMITED else None


def runs_of(config: Any) -> Path:
    """Return the folder of asa's runs: the user's choice, else next to the job store, which all nodes see."""
    if config.asa_runs:
        return Path(config.asa_runs)
    kind, _, place = str(config.jobStore).partition(":")
    return Path(f"{place}-asa") if kind == "file" and place else Path("toil-asa")


def name_of_run(arguments: list[str]) -> str:
    """Name a run after the workflow's file, among the arguments of Toil's command.

    Examples
    --------
    >>> name_of_run(["toil-cwl-runner", "--jobStore", "js", "flows/rna-seq.cwl", "job.yaml"])
    'rna-seq'
    """
    paths = (urlsplit(one).path for one in arguments)
    stems = [_WORKFLOW.sub("", Path(path).name) for path in paths if _WORKFLOW.search(path)]
    return run_name(stems[-1] if stems else Path(arguments[0]).name, "toil")


def _first(*values: Any) -> str:
    return next((str(value) for value in values if value), "")
