"""What Toil's jobs ask for, as options of sbatch: what Toil's own batch system for Slurm would ask for."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from asa.backend import Capabilities
from asa.hosted.asking import HostRequest
from asa.hosted.graph import HostJob
from asa.hosted.session import AsksFor
from asa.hosted.settings import run_name
from asa.requests.directives import take_options
from asa.requests.sizes import parsed
from asa.requests.values import walltime_s as seconds_of

from .ahead import Chain

_MAX_WALLTIME_S: Final = 10_000_000  # Toil takes no longer one for a limit
_WORKFLOW: Final = re.compile(r"\.(?:cwl|wdl|py)\Z")


@dataclass(slots=True)
class ToilRequests(AsksFor):
    """Reads what jobs ask for.

    `config`: Toil's. `is_local`: whether jobs run on this computer.
    """

    config: Any
    is_local: bool

    def request(self, node: HostJob, site: Capabilities) -> HostRequest:
        """Return what a chain of jobs asks for."""
        chain: Chain = node.job
        job, config, walltime_s = chain.jobs[0], self.config, self._walltime_s(chain)
        cores = max(math.ceil(job.cores), 1)
        if self.is_local:
            return HostRequest(("--ntasks=1", f"--cpus-per-task={min(cores, site.max_cores)}"), walltime_s=walltime_s)
        gpus = sum(one["count"] for one in job.accelerators if one["kind"] == "gpu")
        qos = (gpus and config.slurm_gpu_qos) or config.slurm_qos
        partition = (gpus and config.slurm_gpu_partition) or (cores > 1 and config.slurm_pe) or config.slurm_partition
        words = ["--ntasks=1", f"--cpus-per-task={cores}"]
        words += [f"--mem={math.ceil(job.memory / 2**20)}M"] * bool(config.slurm_allocate_mem)
        words += [f"--gres=gpu:{gpus}"] * bool(gpus) + [f"--qos={qos}"] * bool(qos)
        given, _ = take_options([*words, *shlex.split(config.slurm_args or "")], "--slurmArgs")
        times = [parsed(seconds_of, one) for one in given if one.name == "time"]
        asked = HostRequest.of((one for one in given if one.name != "time"), partition=partition or "")
        return replace(asked, walltime_s=(times[-1] or None) if times else walltime_s)

    def _walltime_s(self, chain: Chain) -> float | None:
        """Return the time that a user has set; of a chain, that of all its jobs; None if not known for each."""
        if self.config.slurm_time:
            return float(self.config.slurm_time)
        times = [job.walltime for job in chain.jobs if not job.local or job is chain.jobs[0]]
        if all(times):
            return float(sum(times))
        longest_s = float(self.config.maxJobDuration)
        return longest_s if longest_s < _MAX_WALLTIME_S else None


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
