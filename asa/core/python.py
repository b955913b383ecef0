"""Starts every Python process of asa so that it imports no module from the current folder.

With ``-m`` and ``-c``, Python looks for modules in the working directory first. In a folder that others can write to,
their file with a module's name would run as the user. Folders with the user's own functions are added once asa's
modules are loaded: see `folders_of_program`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from threading import Lock
from typing import Any

from asa.core import safe

CALL = "asa.call"
"""The module that a job runs in order to call a Python function."""

_SAFE = "PYTHONSAFEPATH"  # the effect of -P for Python processes that others start
_STARTING = Lock()


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


# ---------------------------------------------------------------------- processes that multiprocessing starts


class _SafeProcess(SpawnProcess):
    """A process started with `command`; its parent sends it the folders of modules."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._safe_path = os.environ.get(_SAFE)

    def start(self) -> None:
        """Start the process with the safe path set."""
        with _safely():
            super().start()

    def run(self) -> None:
        """Do its work in the user's own environment, which child processes inherit."""
        _set(self._safe_path)
        super().run()


class _Context(SpawnContext):
    Process = _SafeProcess


def context() -> SpawnContext:
    """Return the context that starts each process as a new Python."""
    begin_tracker()
    return _Context()


def begin_tracker() -> None:
    """Start Python's process that tracks shared memory and locks, unless it runs."""
    with _safely():
        resource_tracker.ensure_running()


@contextmanager
def _safely() -> Iterator[None]:
    with _STARTING:
        before = os.environ.get(_SAFE)
        os.environ[_SAFE] = "1"
        try:
            yield
        finally:
            _set(before)


def _set(value: str | None) -> None:
    if value is None:
        os.environ.pop(_SAFE, None)
    else:
        os.environ[_SAFE] = value


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
