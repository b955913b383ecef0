"""What a stage says of the environment that it runs in: modules, a conda environment, a container, set-up, a launcher.

`Preparation` holds what is said; `preparing` and `within` write the shell text that brings it about on a compute node.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asa.core.owned import IS_OWNED
from asa.errors import WorkflowError

LAUNCHERS = ("srun", "mpirun", "mpiexec")
"""What may start the processes of a stage."""

KEYS = ("modules", "conda", "container", "binds", "setup", "launcher")
"""What a stage says of it."""

_MODULE = re.compile(r"[A-Za-z0-9_][\w.+/@=:-]*")
_FILE = re.compile(r"\.ya?ml$")
_URI = re.compile(r"[a-z][a-z0-9+-]*://")
_BIND = re.compile(r"[^:\0\n,]+(:[^:\0\n,]+(:(ro|rw))?)?")


@dataclass(frozen=True, slots=True)
class Preparation:
    """In what environment a stage runs; empty for what the job has of itself.

    Parameters
    ----------
    modules
        Environment modules that are loaded, in this order.
    conda
        A conda environment that is activated: its name, its folder (with a ``/``), or a file (``.yml``) of which it was
        made.
    container
        An image that all of it runs in, by Apptainer or Singularity: a path, or a URI such as ``docker://alpine``.
    binds
        What is seen in the container beside the folder in which commands run: ``/path`` or ``/path:/inside[:ro]``.
    setup
        Shell lines that come before, once in each job: what they export is there for what runs.
    launcher
        What starts the command once for each task: ``srun``, ``mpirun`` or ``mpiexec``, with options of its own.
        Empty where the command does that itself, or is one process.

    Examples
    --------
    >>> Preparation(modules=("openmpi/4.1",), launcher="mpirun").trouble()
    >>> Preparation(launcher="mprun").trouble()[0]
    "has a launcher 'mprun'"
    """

    modules: tuple[str, ...] = ()
    conda: str = ""
    container: str = ""
    binds: tuple[str, ...] = ()
    setup: str = ""
    launcher: str = ""

    @property
    def changes_path(self) -> str:
        """What of it may change where programs are found, in a word; empty if nothing does."""
        said = (
            (bool(self.modules), "modules"),
            (bool(self.conda), "conda"),
            (bool(self.container), "container"),
            (bool(self.setup.strip()), "setup"),
        )
        return next((word for is_so, word in said if is_so), "")

    def trouble(self) -> tuple[str, str] | None:
        """Say what is wrong with it, and what to do; None if nothing is."""
        odd = next((name for name in self.modules if not _MODULE.fullmatch(name)), None)
        bind = next((one for one in self.binds if not _BIND.fullmatch(one)), None)
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


def preparation_of(said: Mapping[str, Any], *, where: str) -> Preparation | None:
    """Gather what a stage says of its environment; None if that is nothing.

    Parameters
    ----------
    said
        Values of `KEYS`, as far as they are given.
    where
        The stage, for errors.

    Raises
    ------
    WorkflowError
        It makes no sense.
    """
    launcher = str(said.get("launcher") or "").strip()
    made = Preparation(
        modules=tuple(map(str, said.get("modules") or ())),
        conda=str(said.get("conda") or "").strip(),
        container=str(said.get("container") or "").strip(),
        binds=tuple(map(str, said.get("binds") or ())),
        setup=str(said.get("setup") or ""),
        launcher="" if launcher == "none" else launcher,
    )
    if (trouble := made.trouble()) is not None:
        message, hint = trouble
        raise WorkflowError(message, where=where, hint=hint)
    return None if made == Preparation() else made


# ---------------------------------------------------------------------- for the shell


def preparing(preparation: Preparation, failed: str, *, looks_only: bool = False) -> str:
    """Write what comes before a stage's command, in the shell whose children are to have it.

    Parameters
    ----------
    preparation
        What is wanted.
    failed
        How a shell ends that cannot have it: a command.
    looks_only
        Nothing of a place that `preparation` names is run: of such an environment it is only seen that it is there.
    """
    parts = [
        f"asa_unready() {{ trap - EXIT; printf 'asa: %s\\n' \"$*\" >&2; {failed}; }}\nasa_folder=$PWD",
        # whatever lets the shell leave here: `exit`, `set -e`, what it cannot read
        "asa_why='the shell left before its environment was ready'\ntrap 'asa_unready \"$asa_why\"' EXIT",
    ]
    if preparation.modules:
        names = [name for name in preparation.modules if not looks_only or ".." not in name.split("/")]
        parts += [_MODULES, f"asa_load {shlex.join(names)}"]
    if preparation.conda:
        is_file = bool(_FILE.search(preparation.conda))
        is_place = is_file or "/" in preparation.conda
        parts += [*([IS_OWNED] if is_file else ()), _CONDA, *([_CONDA_SEEN] if is_place and looks_only else ())]
        parts += [f"{'asa_made_of' if is_file else 'asa_activate'} {shlex.quote(preparation.conda)}"]
    if preparation.setup.strip():
        setup = shlex.quote(f"{preparation.setup.rstrip()}\n")
        why = shlex.quote("its setup ended the shell, by exit or an error")
        parts.append(f"asa_shell=$(set +o) asa_why={why}\neval {setup}\n{_AFTER_SETUP}")
    if preparation.container:
        image = preparation.container
        check = ""
        if not _URI.match(image):
            path = shlex.quote(image)
            words = shlex.quote(f"there is no container image {image}")
            check = f"\n[ -e {path} ] || {{ sleep 1; ls >/dev/null 2>&1; [ -e {path} ]; }} || asa_unready {words}"
        parts.append(f"{_CONTAINER}{check}")
    return "\n".join([*parts, "trap - EXIT"])


def within(preparation: Preparation | None, *, cores: int, cpus_per_task: int, gpus: int, shown: str = "") -> str:
    """Write what stands before the shell that runs a stage's command; empty, or with a space at its end.

    Parameters
    ----------
    preparation
        What is wanted; `preparing` of it has come before.
    cores, cpus_per_task, gpus
        Of the stage: so many tasks are launched as fit.
    shown
        A folder, by its full path, that is seen in a container as well.
    """
    if preparation is None:
        return ""
    words = ""
    if preparation.launcher:
        program, *own = preparation.launcher.split()
        tasks = max(1, cores // cpus_per_task)
        if program == "srun":
            given = [f"--ntasks={tasks}", f"--cpus-per-task={cpus_per_task}"]
            given += [f"--gpus-per-task={gpus // tasks}"] if gpus and gpus % tasks == 0 else []
        else:
            given = ["-n", str(tasks)]
        words = f"{shlex.join([program, *given, *own])} "
    if preparation.container:
        nv = "--nv " if gpus else ""
        binds = "".join(f"--bind {shlex.quote(one)} " for one in preparation.binds)
        binds += f"{_bind(shown)} " if shown.startswith("/") else ""
        words += (
            f'"$asa_container" exec {nv}"$asa_bind" "$asa_bound" --bind "${{TMPDIR:-/tmp}}" {binds}--pwd "$asa_folder" '
            f"$ASA_CONTAINER_OPTIONS {shlex.quote(preparation.container)} "
        )
    return words


def _bind(folder: str) -> str:
    """Write the option by which a folder is seen in a container under its own path, as `_CONTAINER` does of one."""
    if not re.search("[,:]", folder):
        return shlex.join(["--bind", folder])
    return shlex.join(["--mount", f'type=bind,"source={folder}","destination={folder}"'])


_MODULES = r"""
# `module` is a function that shells are told of at their beginning; those of batch jobs often are not.
asa_load() {
  for asa_init in '' "${ASA_MODULES_INIT-}" "${LMOD_PKG:+$LMOD_PKG/init/sh}" "${MODULESHOME:+$MODULESHOME/init/sh}" \
    /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/sh \
    /usr/share/modules/init/sh; do
    if [ -n "$asa_init" ] && [ -r "$asa_init" ]; then . "$asa_init" >/dev/null; fi
    command -v module >/dev/null 2>&1 && break
  done
  command -v module >/dev/null 2>&1 ||
    asa_unready "there is no command module on $(uname -n): let ASA_MODULES_INIT be the path of the file that makes it"
  for asa_module do
    asa_before=${LOADEDMODULES-}
    module load "$asa_module" || asa_unready "the module $asa_module cannot be loaded on $(uname -n)"
    case :${LOADEDMODULES-}: in *":$asa_module:"* | *":$asa_module/"*) continue ;; esac
    # older ones say that all went well, whatever became of it
    [ "$asa_before" != "${LOADEDMODULES-}" ] || asa_unready "the module $asa_module was not loaded on $(uname -n)"
  done
}
""".strip()

_CONDA = r"""
asa_conda() { # finds who knows environments
  for asa_exe in "${CONDA_EXE-}" "${MAMBA_EXE-}" conda mamba micromamba; do
    [ -n "$asa_exe" ] && command -v "$asa_exe" >/dev/null 2>&1 && return
  done
  return 1
}
asa_activate() {
  if asa_conda; then
    case ${asa_exe##*/} in
      micromamba*) asa_text=$("$asa_exe" shell activate --shell posix "$1") ;;
      *) asa_text=$("$asa_exe" shell.posix activate "$1") ;;
    esac || asa_unready "the conda environment $1 cannot be activated on $(uname -n)"
    eval "$asa_text"
  elif [ -d "$1/bin" ] && case $1 in */*) ;; *) false ;; esac; then # a folder will do without anybody who knows it
    CONDA_PREFIX=$(cd "$1" && pwd) PATH=$CONDA_PREFIX/bin:$PATH
    export CONDA_PREFIX PATH
    for asa_text in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do [ ! -r "$asa_text" ] || . "$asa_text"; done
  else
    asa_unready "neither conda, mamba nor micromamba is in PATH on $(uname -n), which knows the environment $1"
  fi
}
asa_is_own() { # nor has another user made a link to it
  [ -e "$1" ] || return 0
  asa_owned "$1" || return 1
  [ -L "$1" ] || return 0
  case " 0 $(id -u) $(ls -lLdn "$1" | awk '{ print $3 }') " in
    *" $(ls -ldn "$1" | awk '{ print $3 }') "*) ;;
    *) return 1 ;;
  esac
}
asa_made_of() { # a file, whose content names the folder
  [ -s "$1" ] || asa_unready "there is no file $1 of a conda environment"
  asa_prefix=$asa_folder/.asa/conda/$(cksum <"$1" | awk '{ print $1 "-" $2 }')
  for asa_place in "$asa_folder/.asa" "$asa_folder/.asa/conda" "$asa_prefix"; do
    asa_is_own "$asa_place" ||
      asa_unready "$asa_place belongs to another user: nothing in it is run. Move it away, and make the environment" \
        "anew; or, if you trust whoever made it, name its folder: conda = '.${asa_prefix#"$asa_folder"}'"
  done
  [ -d "$asa_prefix/bin" ] ||
    asa_unready "of $1 no environment was made yet. Where there is a network: conda env create -f '$1' -p '$asa_prefix'"
  asa_activate "$asa_prefix"
}
""".strip()

_CONDA_SEEN = r"""
asa_activate() { # its own set-up would run
  [ -d "$1/bin" ] || asa_unready "there is no conda environment in the folder $1"
}
""".strip()

# What set-up changes of the shell itself would change what follows, too.
_AFTER_SETUP = r"""
[ "$?" -eq 0 ] || asa_unready "the last line of its setup failed"
eval "$asa_shell"
unset IFS
cd "$asa_folder" || asa_unready "$asa_folder is gone"
""".strip()

_CONTAINER = r"""
for asa_container in "${ASA_CONTAINER-}" apptainer singularity ''; do
  [ -z "$asa_container" ] || ! command -v "$asa_container" >/dev/null 2>&1 || break
done
[ -n "$asa_container" ] || asa_unready "neither apptainer nor singularity is in PATH on $(uname -n)"
ASA_CONTAINER_OPTIONS=${ASA_CONTAINER_OPTIONS-}
[ -d "${TMPDIR:-/tmp}" ] || TMPDIR=/tmp # it may be the login node's
asa_bind=--bind asa_bound=$asa_folder
case $asa_folder in # `--bind` would take it apart, and older runtimes know nothing else
  *[,:]*) asa_bind=--mount asa_bound="type=bind,\"source=$asa_folder\",\"destination=$asa_folder\"" ;;
esac
export asa_container asa_folder asa_bind asa_bound ASA_CONTAINER_OPTIONS ${TMPDIR+TMPDIR}
""".strip()
