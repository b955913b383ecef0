"""Snakemake's jobs through asa: ``snakemake --executor asa``.

Snakemake finds an executor by the name of a top-level module; this one is installed as such.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from asa.hosted.options import OPTIONS

from .executor import Executor
from .reading import USUAL_RUNS

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


def _about(name: str, **more: Any) -> dict[str, Any]:
    """Return what Snakemake is to know of an option that all hosts have."""
    return {"help": OPTIONS[name].help, "metavar": OPTIONS[name].metavar, **more}


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Settings, from ``--asa-...`` or a profile.

    Snakemake takes the types of the options from the fields.
    """

    strategy: str | None = field(default=None, metadata=_about("strategy", type=str))
    backend: str | None = field(default=None, metadata=_about("backend", type=str))
    site: str | None = field(default=None, metadata=_about("site", type=str))
    option: list[str] = field(default_factory=list, metadata=_about("option", nargs="+"))
    estimator: str = field(default=OPTIONS["estimator"].default, metadata=_about("estimator"))
    bank: str | None = field(default=None, metadata=_about("bank", type=str))
    history: int = field(default=OPTIONS["history"].default, metadata=_about("history"))
    walltime: str = field(default=OPTIONS["walltime"].default, metadata=_about("walltime"))
    runs: Path = field(default=USUAL_RUNS, metadata=_about("runs"))


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
