"""The environment in which a stage runs: modules, a conda environment, a container, set-up, a launcher.

`Preparation` describes it; `preparing` and `within` write the text that sets it up on a compute node.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from asa.core import owned
from asa.core.late import dataclass
from asa.core.patterns import pattern
from asa.errors import WorkflowError
from asa.keys import described, keys_of

LAUNCHERS = ("srun", "mpirun", "mpiexec")
"""Programs that may start the processes of a stage."""

_MODULE = pattern(r"[A-Za-z0-9_][\w.+/@=:-]*")
_FILE = re.compile(r"\.ya?ml$")
_URI = re.compile(r"[a-z][a-z0-9+-]*://")
_BIND = pattern(r"[^:\0\n,]+(:[^:\0\n,]+(:(ro|rw))?)?")


@dataclass(frozen=True, slots=True)
class Preparation:
    """The environment in which a stage runs; an empty value leaves the job's as it is.

    Parameters
    ----------
    modules
        Environment modules to load, in this order.
    conda
        A conda environment to activate: its name, its folder (with a ``/``), or the file (``.yml``) from which it was
        made.
    container
        An image in which the whole stage runs, by Apptainer or Singularity: a path, or a URI such as
        ``docker://alpine``.
    binds
        Paths to mount in the container, in addition to the folder in which commands run: ``/path`` or
        ``/path:/inside[:ro]``.
    setup
        Shell lines that run first, once in each job; the command sees the variables that they export.
    launcher
        The program that starts the command once for each task: ``srun``, ``mpirun`` or ``mpiexec``, with its options.
        Empty if the command does that itself, or is one process.

    Examples
    --------
    >>> Preparation(modules=("openmpi/4.1",), launcher="mpirun").trouble()
    >>> Preparation(launcher="mprun").trouble()[0]
    "has a launcher 'mprun'"
    """

    modules: tuple[str, ...] = described(
        "names",
        "Environment modules to load first, in this order.",
        ["gcc/12.2", ["gcc/12.2", "openmpi/4.1"]],
        default=(),
    )
    conda: str = described(
        "text",
        "The conda environment to activate: its name; its folder, with a slash; or a .yml file from "
        "which it was made in .asa/conda (`asa check --site` prints the command).",
        ["astro", "./env", "environment.yml"],
        default="",
    )
    container: str = described(
        "text",
        "The container image that it runs in (Apptainer or Singularity): a path or a URI. The folder in "
        "which commands run has the same path inside; with gpus, --nv is added.",
        ["montage.sif", "docker://debian:12"],
        default="",
    )
    binds: tuple[str, ...] = described(
        "names",
        "Further paths to bind into the container: /path, /path:/inside, or /path:/inside:ro.",
        ["/scratch", ["/scratch", "/data/2mass:/data:ro"]],
        default=(),
    )
    setup: str = described(
        "text",
        "Shell lines to run first, once per job, after modules and conda; what they export is available "
        "to the commands. If the last line fails, the stage fails.",
        ["source env.sh", "export OMP_PLACES=cores\nulimit -s unlimited"],
        default="",
    )
    launcher: str = described(
        "text",
        "The MPI launcher that starts the command or script once per task (cores / cpus_per_task times): "
        "srun, mpirun or mpiexec, with options. Leave it out if the command starts its processes itself, "
        "or is one process.",
        ["srun", "mpirun --map-by socket"],
        default="",
    )

    @property
    def changes_path(self) -> str:
        """The first of its parts that may change where programs are found, in a word; empty if none does."""
        texts = (
            (bool(self.modules), "modules"),
            (bool(self.conda), "conda"),
            (bool(self.container), "container"),
            (bool(self.setup.strip()), "setup"),
        )
        return next((word for is_so, word in texts if is_so), "")

    def trouble(self) -> tuple[str, str] | None:
        """Return what is wrong with the preparation, and what to do; None if nothing is."""
        odd = next((name for name in self.modules if not _MODULE.fullmatch(name)), None)
        bind = next((path for path in self.binds if not _BIND.fullmatch(path)), None)
        program = (self.launcher.split() or [""])[0]
        texts = (*self.modules, self.conda, self.container, *self.binds, self.launcher)
        faults = (
            (any("\0" in text for text in (*texts, self.setup)), "holds a null character", "Leave it out."),
            (
                any("\n" in text for text in texts),
                "has an environment of several lines",
                "Only `setup` has several lines.",
            ),
            (
                odd is not None,
                f"has a module {odd!r}",
                'Write a module\'s name, as in "gcc/12.2"; other words of `module` go into `setup`.',
            ),
            (
                self.conda.startswith("-") or self.container.startswith("-"),
                "names an environment that begins with a dash",
                "Write ./ before it.",
            ),
            (
                bind is not None,
                f"has a bind {bind!r}",
                'Write "/path", or "/path:/inside" or "/path:/inside:ro".',
            ),
            (
                bool(self.binds) and not self.container,
                "has `binds`, but no container",
                "Name a `container`, or leave `binds` out.",
            ),
            (
                bool(self.container) and bool(self.conda),
                "has a container and a conda environment",
                "Give one of them: what is in a container is activated by its command.",
            ),
            (
                bool(self.launcher) and program not in LAUNCHERS,
                f"has a launcher {program!r}",
                f"Give one of {', '.join(LAUNCHERS)}, and its options; or write it into the command.",
            ),
        )
        return next(((message, hint) for is_so, message, hint in faults if is_so), None)


KEYS = tuple(key.name for key in keys_of(Preparation))
"""The keys of a stage's preparation."""


def preparation_of(values: Mapping[str, Any], *, where: str) -> Preparation | None:
    """Read a stage's keys about its environment; None if there are none.

    `said`: given values of `KEYS`.
    `where`: the stage, for errors.
    Raises `WorkflowError`: the values make no sense.
    """
    launcher = str(values.get("launcher") or "").strip()
    made = Preparation(
        modules=tuple(map(str, values.get("modules") or ())),
        conda=str(values.get("conda") or "").strip(),
        container=str(values.get("container") or "").strip(),
        binds=tuple(map(str, values.get("binds") or ())),
        setup=str(values.get("setup") or ""),
        launcher="" if launcher == "none" else launcher,
    )
    if (trouble := made.trouble()) is not None:
        message, hint = trouble
        raise WorkflowError(message, where=where, hint=hint)
    return None if made == Preparation() else made


# ---------------------------------------------------------------------- for the shell


def preparing(preparation: Preparation, *, looks_only: bool = False) -> tuple[dict[str, object], list[str]]:
    """Return the text that sets up a stage's environment before its command.

    `preparation`: the environment.
    `looks_only`: whether to run nothing that `preparation` names, and only check that it exists.
    Returns: the values that the text uses, and its files in `asa.job`; the text calls `asa_end`.
    """
    values: dict[str, object] = {}
    files = ["prepare-begin"]
    if preparation.modules:
        names = [name for name in preparation.modules if not looks_only or ".." not in name.split("/")]
        values["asa_modules"] = " ".join(names)
        files.append("prepare-modules")
    if preparation.conda:
        is_place = bool(_FILE.search(preparation.conda)) or "/" in preparation.conda
        values |= {"asa_conda": preparation.conda, "asa_looks_only": is_place and looks_only}
        own, trusted = f".asa-{owned.account(os.geteuid())}", "\n".join(owned.trusted_folders())
        values |= {"asa_own": own, "asa_trusted": trusted} if _FILE.search(preparation.conda) else {}
        files += ["owned", "prepare-conda"]
    if preparation.setup.strip():
        values["asa_setup"] = f"{preparation.setup.rstrip()}\n"
        files.append("prepare-setup")
    if preparation.container:
        values["asa_image"] = "" if _URI.match(preparation.container) else preparation.container
        files.append("prepare-container")
    return values, [*files, "prepare-end"]


def within(preparation: Preparation | None, *, cores: int, cpus_per_task: int, gpus: int, shown: str = "") -> str:
    """Return the words that precede the shell which runs a stage's command; empty, or ending in a space.

    `preparation`: the environment; the text from `preparing` has run before.
    `cores`, `cpus_per_task`, `gpus`: of the stage; as many tasks are launched as fit.
    `shown`: a folder, by its absolute path, that is also mounted in a container.
    """
    if preparation is None:
        return ""
    text = ""
    if preparation.launcher:
        program, *own = preparation.launcher.split()
        tasks = max(1, cores // cpus_per_task)
        if program == "srun":
            given = [f"--ntasks={tasks}", f"--cpus-per-task={cpus_per_task}"]
            given += [f"--gpus-per-task={gpus // tasks}"] if gpus and gpus % tasks == 0 else []
        else:
            given = ["-n", str(tasks)]
        text = f"{shlex.join([program, *given, *own])} "
    if preparation.container:
        nv = "--nv " if gpus else ""
        binds = "".join(f"--bind {shlex.quote(bind)} " for bind in preparation.binds)
        binds += f"{_bind(shown)} " if shown.startswith("/") else ""
        text += (
            f'"$asa_container" exec {nv}"$asa_bind" "$asa_bound" --bind "${{TMPDIR:-/tmp}}" {binds}--pwd "$asa_folder" '
            f"$ASA_CONTAINER_OPTIONS {shlex.quote(preparation.container)} "
        )
    return text


def _bind(folder: str) -> str:
    """Return the option that mounts a folder in a container under its own path, as the job's text does."""
    if not re.search("[,:]", folder):
        return shlex.join(["--bind", folder])
    return shlex.join(["--mount", f'type=bind,"source={folder}","destination={folder}"'])
