"""Shell completion of installed names and of files. On any error it completes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

_NONE_SUCH = "?"


def beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin with the text typed so far."""
    return [name for name in names if name.startswith(incomplete)]


def complete_names(group: str) -> Callable[[str], list[str]]:
    """Complete a name of an entry-point group, also the last one of a comma-separated list."""

    def complete(incomplete: str) -> list[str]:
        from asa.core import plugins

        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in beginning(last, plugins.names(group))]

    return complete


complete_strategies = complete_names("asa.strategies")
complete_estimators = complete_names("asa.estimators")
complete_backends = complete_names("asa.backends")
complete_schedulers = complete_names("asa.schedulers")


def complete_workflows(incomplete: str) -> list[str]:
    """Complete an installed workflow, a workflow file, or a folder that may contain one."""
    from asa.core import plugins

    return [*beginning(incomplete, plugins.names("asa.workflows")), *complete_files(incomplete)]


def complete_files(incomplete: str) -> list[str]:
    """Complete a workflow file, or a folder that may contain one."""
    folder, slash, name = incomplete.rpartition("/")
    names: list[str] = []
    with suppress(OSError):
        for path in sorted(Path(folder or slash or ".").iterdir()):
            if path.name.startswith(name) and (name.startswith(".") or not path.name.startswith(".")):
                shown = f"{folder}{slash}{path.name}"
                names += [f"{shown}/"] if path.is_dir() else [shown] if path.suffix == ".toml" else []
    return names


def complete_sites(incomplete: str) -> list[str]:
    """Complete the name of a site file."""
    from asa.sites import site_names

    with suppress(OSError):
        return beginning(incomplete, site_names())
    return []


def complete_systems(incomplete: str) -> list[str]:
    """Complete the name of a simulated centre."""
    return beginning(incomplete, ("hpc2n", "uppmax", "hpc2n-table2", "uppmax-table2"))


def complete_params(ctx: Any, incomplete: str) -> list[str]:
    """Complete a parameter of the workflow file on the command line."""
    from asa.spec import parameters_of

    with suppress(Exception):  # a shell cannot show an error
        workflow = ctx.params.get("workflow") or next(word for word in ctx.args if word.endswith(".toml"))
        return beginning(incomplete, (f"{name}=" for name in parameters_of(workflow)))
    return []


def complete_options(ctx: Any, incomplete: str) -> list[str]:
    """Complete an option of the backend on the command line, or of the default backend."""
    from asa.errors import InputError
    from asa.sites import open_facility

    try:
        open_facility(ctx.params.get("backend"), ctx.params.get("site"), {_NONE_SUCH: ""})
    except InputError as error:  # its hint lists the options
        names = (error.hint or "").rpartition("Known: ")[2].rstrip(".").split(", ")
        return beginning(incomplete, (f"{name}=" for name in names if name.isidentifier()))
    return []
