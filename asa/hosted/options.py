"""The options that a host gives its users for asa: each is described once, whatever the host makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class GivenOptions(Protocol):
    """The values that a user gave to a host; `OPTIONS` has what they mean."""

    strategy: str | None
    backend: str | None
    site: str | None
    option: list[str]
    estimator: str
    bank: str | None
    history: int
    walltime: str


@dataclass(frozen=True, slots=True)
class HostOption:
    """An option: its text for users, what its value is called, its default, and whether it may have several values."""

    help: str
    metavar: str
    default: Any = None
    is_list: bool = False

    def for_argparse(self) -> dict[str, Any]:
        """Return the option as `ArgumentParser.add_argument` takes it."""
        told = {"default": self.default, "metavar": self.metavar, "help": self.help}
        if not self.is_list:
            return told | {"type": type(self.default or "")}
        return told | {"action": "append", "help": f"{self.help} May be given several times, with one each."}


OPTIONS = {
    "strategy": HostOption(
        "When allocations are asked for: asa-plan, asa, per-stage (each job once it is ready, as elsewhere), or "
        "another that `asa list` shows. [default: what the site says, else asa-plan]",
        "NAME",
    ),
    "backend": HostOption(
        "The batch system: slurm-cli, slurm-rest, local or another that `asa list` shows. [default: found]", "NAME"
    ),
    "site": HostOption("Name or path of a site file, as `asa doctor --save NAME` writes it.", "SITE"),
    "option": HostOption(
        "Options of the batch system, as in `asa run --option`: account=project partition=batch",
        "KEY=VALUE",
        is_list=True,
    ),
    "estimator": HostOption("Who predicts waits in the queue; `asa list` shows all.", "NAME", "auto"),
    "bank": HostOption(
        "Folder in which waits and run times are kept for later, or none. [default: $ASA_BANK, else asa's]", "DIR"
    ),
    "history": HostOption("Past jobs of everybody to learn from at the beginning.", "JOBS", 2000),
    "walltime": HostOption(
        "For how long a job may run if neither the workflow nor an earlier run says that.", "TIME", "1h"
    ),
    "runs": HostOption("Folder of what asa keeps of the run; all nodes must see it.", "DIR"),
}
