"""Snakemake's jobs through asa: ``snakemake --executor asa``.

Snakemake finds an executor by the name of a top-level module; this one is installed as such.
"""

from dataclasses import dataclass, field
from pathlib import Path

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from asa.hosted.settings import USUAL_RUNS

from .executor import Executor

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Settings, from ``--asa-...`` or a profile.

    Snakemake takes the types of the options from the fields.
    """

    strategy: str | None = field(
        default=None,
        metadata={
            "help": "When allocations are asked for: asa-plan, asa, per-stage (each job once it is ready, as other "
            "executors do), or another that `asa list` shows. [default: what the site says, else asa-plan]",
            "metavar": "NAME",
            "type": str,
        },
    )
    backend: str | None = field(
        default=None,
        metadata={
            "help": "The batch system: slurm-cli, slurm-rest, local or another that `asa list` shows. [default: found]",
            "metavar": "NAME",
            "type": str,
        },
    )
    site: str | None = field(
        default=None,
        metadata={
            "help": "Name or path of a site file, as `asa doctor --save NAME` writes it.",
            "type": str,
            "metavar": "SITE",
        },
    )
    option: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Options of the batch system, as in `asa run --option`: account=project partition=batch",
            "nargs": "+",
            "metavar": "KEY=VALUE",
        },
    )
    estimator: str = field(
        default="auto",
        metadata={"help": "Who predicts waits in the queue; `asa list` shows all.", "metavar": "NAME"},
    )
    bank: str | None = field(
        default=None,
        metadata={
            "help": "Folder in which waits and run times are kept for later, or none. [default: $ASA_BANK, else asa's]",
            "type": str,
            "metavar": "DIR",
        },
    )
    history: int = field(
        default=2000,
        metadata={"help": "Past jobs of everybody to learn from at the beginning.", "metavar": "JOBS"},
    )
    walltime: str = field(
        default="1h",
        metadata={
            "help": "For how long a job may run of whose rule neither `runtime` says that, nor an earlier run or a "
            "benchmark.",
            "metavar": "TIME",
        },
    )
    runs: Path = field(
        default=USUAL_RUNS,
        metadata={"help": "Folder of what asa keeps of the run; all nodes must see it.", "metavar": "DIR"},
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)
