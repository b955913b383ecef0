"""The options of Snakemake's executor for Slurm, of its versions 1 and 2, and what asa makes of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, Final

_PREFIX: Final = "slurm_"
LOGS: Final = "all outputs of jobs are kept in the run's folder (asa logs)"
NAMES: Final = "jobs are named after their rules"
_POLLS: Final = "--asa-option poll=20s says how often asa asks Slurm"
_SHARES: Final = "jobs that are ready together may share an allocation"
_REPORT: Final = "asa report shows what the jobs used"


@dataclass(frozen=True, slots=True)
class Option:
    """An option of that executor.

    `instead`: what is used in its place; empty if asa does what it says.
    `is_flag`: whether it has no value.
    """

    instead: str = ""
    is_flag: bool = False


OPTIONS: Final[Mapping[str, Option]] = {
    "array_jobs": Option(_SHARES),
    "array_limit": Option(_SHARES),
    "delete_logfiles_older_than": Option(LOGS),
    "disable_memory_fudge": Option("jobs get the memory that their rules say", is_flag=True),
    "efficiency_report": Option(_REPORT, is_flag=True),
    "efficiency_report_path": Option(_REPORT),
    "efficiency_threshold": Option(_REPORT),
    "exclude_failed_nodes": Option(),
    "init_seconds_before_status_checks": Option(_POLLS),
    "jobname_prefix": Option(NAMES),
    "keep_successful_logs": Option(LOGS, is_flag=True),
    "logdir": Option(LOGS),
    "no_account": Option(is_flag=True),
    "no_requeue": Option(is_flag=True),
    "partition_config": Option(),
    "pass_command_as_script": Option("commands are always in a script", is_flag=True),
    "qos": Option(),
    "requeue": Option(is_flag=True),
    "reservation": Option(),
    "status_attempts": Option(_POLLS),
    "status_command": Option(_POLLS),
}
"""By name without ``slurm_``."""


def argument_of(name: str) -> str:
    """Return an option as it is written on a command line."""
    return f"--{_PREFIX}{name}".replace("_", "-")


def given_options() -> dict[str, Any]:
    """Return those of these options that the user gave Snakemake, on its command line or in a profile.

    Snakemake passes an executor only the executor's own options, so they are read where it has just parsed all.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "args_to_api" and frame.f_globals.get("__name__") == "snakemake.cli":
            return {
                name.removeprefix(_PREFIX): value
                for name, value in vars(frame.f_locals["args"]).items()
                if name.startswith(_PREFIX) and value not in (None, MISSING) and not name.startswith("slurm_jobstep_")
            }
        frame = frame.f_back
    return {}
