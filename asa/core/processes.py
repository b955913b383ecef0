"""Processes that multiprocessing starts, which import no module from the current folder: see `asa.core.python`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Lock
from typing import Any

_SAFE = "PYTHONSAFEPATH"  # the effect of -P for Python processes that others start
_STARTING = Lock()


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
