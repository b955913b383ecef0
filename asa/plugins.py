"""Finding workflows, backends, strategies and commands by name, through entry points.

The core never imports a concrete backend or workflow. What this package ships and what a third party installs are found
the same way, so a third party's backend is as good as ours.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from asa.errors import InputError, UnknownNameError, near

__all__ = ["load", "names", "unknown_name"]


@cache
def _group(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def names(group: str) -> list[str]:
    """Names installed in an entry-point group, in the order in which they were declared.

    Parameters
    ----------
    group
        Such as ``asa.workflows``.

    Returns
    -------
    list of str
        The names.
    """
    return list(_group(group))


def unknown_name(kind: str, name: str, known: list[str]) -> UnknownNameError:
    """Build the error for a name that nothing goes by, with the nearest known one as a remedy.

    Examples
    --------
    >>> print(unknown_name("strategy", "bigjob", ["big-job", "asa"]))
    there is no strategy 'bigjob'
    Did you mean 'big-job'? Known: big-job, asa.
    """
    return UnknownNameError(f"there is no {kind} {name!r}", hint=f"{near(name, known)}Known: {', '.join(known)}.")


def load(group: str, name: str) -> Any:
    """Import what an entry point names.

    Parameters
    ----------
    group
        Such as ``asa.strategies``.
    name
        The name within the group.

    Returns
    -------
    object
        What the entry point refers to.

    Raises
    ------
    UnknownNameError
        Nothing of that name is installed.
    InputError
        It cannot be loaded.
    """
    points = _group(group)
    kind = group.removeprefix("asa.")
    singular = {"strategies": "strategy", "histories": "reader"}.get(kind, kind.removesuffix("s"))
    if name not in points:
        raise unknown_name(singular, name, list(points))
    try:
        return points[name].load()
    except (Exception, SystemExit) as error:
        raise InputError(
            f"cannot be loaded: {type(error).__name__}: {error}",
            where=f"{singular} {name!r}",
            hint="Mend or remove the package it is from.",
        ) from error
