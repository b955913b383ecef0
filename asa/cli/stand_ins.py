"""Names the switch by which jobs of this computer find stand-ins for commands of a cluster."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from asa.cli.runs import command
from asa.spec.checks import STAND_INS
from asa.spec.shell import interpreter_of, read_shell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asa.runner import RunFolder
    from asa.sites import OpenedSite
    from asa.workflow import Stage

SWITCH = "--option slurm=commands"
_SHELLS = {"sh", "bash", "dash", "ksh", "zsh"}
_NAMES = "|".join(STAND_INS)
# not found by a shell; or Slurm's own, on a computer that belongs to no cluster
_LACKED = re.compile(rf"\b({_NAMES}): (?:command )?not found|^(srun|scontrol): (?:error|fatal): ", re.MULTILINE)


def remedy_for(folder: RunFolder, last_lines: str) -> tuple[str, str]:
    """Name the command of a cluster for lack of which a stage failed on this computer, and how to go on with another.

    Both are empty if that is not so. `last_lines`: of what the stage wrote.
    """
    plan, found = folder.plan, _LACKED.search(last_lines)
    if found is None or plan.backend != "local" or plan.host or plan.settings.get("slurm") == "commands":
        return "", ""
    return found[1] or found[2], command("resume --retry", folder, *SWITCH.split())


def needed_by(stages: Iterable[Stage]) -> list[str]:
    """Name the commands with stand-ins that stages need, where no cluster's are here."""
    return [] if shutil.which("sbatch") else _called_by(stages)


def note_before(opened: OpenedSite, stages: Iterable[Stage]) -> str:
    """Return a note for a run whose scripts call commands of a cluster, on this computer without stand-ins; or "".

    A shell goes on after a command that is not there, so such a stage may be taken for done.
    """
    if opened.backend != "local" or opened.settings.get("slurm") == "commands":
        return ""
    names = [name for name in _called_by(stages) if name != "module" or "MODULESHOME" not in os.environ]
    if not names:
        return ""
    *most, last = names
    listed = f"{', '.join(most)} and {last}" if most else last
    return f"Note: stages call {listed}, which a cluster has; here, {SWITCH} gives stand-ins."


def _called_by(stages: Iterable[Stage]) -> list[str]:
    """Name the commands with stand-ins that stages call."""
    names: set[str] = set()
    for stage in stages:
        if stage.preparation is not None and stage.preparation.modules:
            names.add("module")
        if stage.script or stage.command:
            is_shell = not stage.script or interpreter_of(stage.script) in _SHELLS
            programs = read_shell(stage.script or stage.command).programs if is_shell else ()
            names |= {program.name for program in programs}
    return [name for name in STAND_INS if name in names]
