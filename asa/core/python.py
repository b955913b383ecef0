"""How asa starts a Python, everywhere: so that it imports no module from the current folder.

With ``-m`` and ``-c`` Python first looks for modules in the working directory; in a folder that others can write to,
their file with a module's name would run as the user. The folders for a user's own functions are added once asa's
modules are loaded: see `folders_of_program`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from threading import Lock
from typing import Any

from asa.core import safe

_SAFE = "PYTHONSAFEPATH"  # what -P is to a Python that others start
_STARTING = Lock()


def command(*arguments: str, python: str = sys.executable) -> list[str]:
    """Write the command of a Python that imports only installed modules, and those in ``PYTHONPATH``.

    `python`: the interpreter; this one if not given.
    """
    return [python, "-P", *arguments]


def bare_command(*arguments: str) -> list[str]:
    """Write the command of one that has only the standard library, and ignores variables."""
    return [sys.executable, "-I", "-S", *arguments]


# ---------------------------------------------------------------------- processes that multiprocessing starts


class _SafeProcess(SpawnProcess):
    """A process started as by `command`; its parent sends it the folders for modules."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._safe_path = os.environ.get(_SAFE)

    def start(self) -> None:
        """Start it."""
        with _safely():
            super().start()

    def run(self) -> None:
        """Do its work, with the user's own environment, which what it starts inherits."""
        _set(self._safe_path)
        super().run()


class _Context(SpawnContext):
    Process = _SafeProcess


def context() -> SpawnContext:
    """Give what processes are made with: each is a Python of its own."""
    begin_tracker()
    return _Context()


def begin_tracker() -> None:
    """Start what looks after shared memory and locks of all processes, unless it runs: it is a Python, too."""
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


# ---------------------------------------------------------------------- where a user's own modules are


def folder_of(module: str, file: str) -> str:
    """Name the folder from which a module can be imported by name; for one that was run as a program, its own.

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
    """Name the folders in which functions of the program that runs may find modules: where itself looks first."""
    if sys.flags.safe_path:
        return folder_here()
    program = sys.modules["__main__"]
    if not (file := getattr(program, "__file__", None)):
        return [str(Path.cwd())]  # typed in
    spec = getattr(program, "__spec__", None)
    return list(dict.fromkeys([folder_of(spec.name if spec else "__main__", file), *folder_here()]))


def folder_here() -> list[str]:
    """Name the working directory, if nobody else can put a file there, or the user trusts it."""
    try:
        here = Path.cwd()
        return [str(here)] if safe.is_safe(here) else []
    except OSError:  # it was removed
        return []
