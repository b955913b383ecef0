"""Starts every Python process of asa so that it imports no module from the current folder.

With ``-m`` and ``-c``, Python looks for modules in the working directory first. In a folder that others can write to,
their file with a module's name would run as the user. Folders with the user's own functions are added once asa's
modules are loaded: see `folders_of_program`. `asa.core.processes` starts those of multiprocessing.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from asa.core import safe

CALL = "asa.call"
"""The module that a job runs in order to call a Python function."""


def command(*arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command of a Python that imports only installed modules, and those in ``PYTHONPATH``.

    `python`: the interpreter; by default this one.
    """
    return [python, "-P", *arguments]


def called(command: str) -> str:
    """Return the name of the Python function that a command calls; empty if it calls none.

    Examples
    --------
    >>> called(f"/usr/bin/python3 -P -m {CALL} fit /home/me/fit.py measure '[[3], {{}}]'"), called("make all")
    ('measure', '')
    """
    if f" -m {CALL} " not in command:
        return ""
    words = shlex.split(command)
    return words[words.index(CALL) + 3]


def bare_command(*arguments: str) -> list[str]:
    """Return the command of a Python that has only the standard library, and ignores variables."""
    return [sys.executable, "-I", "-S", *arguments]


def this_command() -> list[str]:
    """Return the command with which this program was started, with the user's own options of Python."""
    return [sys.executable, *sys.orig_argv[1:]]


# ---------------------------------------------------------------------- folders of a user's own modules


def folder_of(module: str, file: str) -> str:
    """Return the folder from which a module can be imported by name; for a program, the folder that it is in.

    Examples
    --------
    >>> folder_of("steps.fit", "/home/me/work/steps/fit.py")
    '/home/me/work'
    >>> folder_of("__main__", "/home/me/work/fit.py")
    '/home/me/work'
    """
    path = Path(file).absolute()
    path = path.parent if path.stem == "__init__" else path.with_suffix("")
    parts = module.split(".")
    is_so_named = path.parts[-len(parts) :] == tuple(parts)
    return str(path.parents[len(parts) - 1] if is_so_named else Path(file).absolute().parent)


def folders_of_program() -> list[str]:
    """Return the folders in which the running program looks for modules first, for the functions that it passes on."""
    if sys.flags.safe_path:
        return folder_here()
    program = sys.modules["__main__"]
    if not (file := getattr(program, "__file__", None)):
        return [str(Path.cwd())]  # typed into an interactive Python
    spec = getattr(program, "__spec__", None)
    return list(dict.fromkeys([folder_of(spec.name if spec else "__main__", file), *folder_here()]))


def folder_here() -> list[str]:
    """Return the working directory, if the user trusts it, or nobody else can put files there."""
    try:
        here = Path.cwd()
        return [str(here)] if safe.is_safe(here) else []
    except OSError:  # the directory was removed
        return []
