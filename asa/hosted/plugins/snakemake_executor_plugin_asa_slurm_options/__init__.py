"""Lets Snakemake take the options of its executor for Slurm where that is not installed, for `--executor asa` to read.

Without it, Snakemake refuses a profile that was written for that executor. It is a plug-in of its own since Snakemake
begins an option with the name of its plug-in, unless no executor asks for its value, as here.
"""

from argparse import SUPPRESS
from dataclasses import field, make_dataclass
from importlib.util import find_spec
from typing import Any, NoReturn

from snakemake_executor_plugin_asa import common_settings
from snakemake_executor_plugin_asa.options import OPTIONS, Option, argument_of
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase

__all__ = ["Executor", "common_settings"]


def _refuse() -> NoReturn:
    raise WorkflowError("asa-slurm-options runs no jobs. Take --executor asa.")


class NoExecutor(RemoteExecutor):
    """Refuses to run."""

    def __init__(self, workflow: Any, logger: Any) -> None:  # noqa: ARG002
        _refuse()


Executor = NoExecutor  # the name that Snakemake looks for


def _field(name: str, option: Option) -> Any:
    does = f"In place of it, {option.instead}." if option.instead else "It has its effect with --executor asa, too."
    about = {"help": f"As Snakemake's executor for Slurm has it. {does}", "args": [argument_of(name)]}
    return field(default=False if option.is_flag else None, metadata=about)


class _Refusing(dict[str, Any]):
    """What describes a setting: Snakemake asks whether it is required only when it reads those of the executor given.

    It does so before it makes the executor, and would not find the next settings under the names that it expects.
    """

    def get(self, key: str, default: Any = None) -> Any:
        if key == "required":
            _refuse()
        return super().get(key, default)


if find_spec("snakemake_executor_plugin_slurm") is None:
    ExecutorSettings = make_dataclass(
        "ExecutorSettings",
        [
            ("runs_nothing", str, field(default="", metadata=_Refusing(help=SUPPRESS))),
            *((f"slurm_{name}", bool if of.is_flag else str, _field(name, of)) for name, of in OPTIONS.items()),
        ],
        bases=(ExecutorSettingsBase,),
    )
    __all__ += ["ExecutorSettings"]
