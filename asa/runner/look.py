"""Looks at a run once: takes the actions that are due, and returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from asa.backend import Backend
from asa.records import Record
from asa.runner.driver import drive
from asa.runner.folder import RunFolder
from asa.runner.state import RunState
from asa.strategies.base import Phase

_ON_ITS_WAY = frozenset({Phase.QUEUED, Phase.ALLOCATED, Phase.RUNNING})


class _LookedAtAll(Exception):  # noqa: N818 - a signal, not an error
    def __init__(self, wake_s: float | None) -> None:
        super().__init__()
        self.wake_s = wake_s


class Looked(NamedTuple):
    """The result of a look.

    `is_over`: whether the run has ended, and nothing is left to do.
    `wake_s`: when the next action is planned, on the batch system's clock; None if none is.
    """

    is_over: bool
    wake_s: float | None = None


def look(
    folder: RunFolder,
    connect: Callable[[RunFolder], Backend],
    *,
    on_record: Callable[[Record], None] = lambda _: None,
    **how: Any,
) -> Looked:
    """Ask for the status of a run's jobs, take the actions that are due, and return. Waits for local stages.

    `folder`: the run's folder.
    `connect`: opens the batch system, as for `drive`.
    `on_record`: called with each new record.
    `**how`: `retry`, `again` and `revised`, as for `drive`.
    Returns: the run's state afterwards.
    Raises `AsaError`: as `drive` does. `LeaseError`: another client drives the run, or looks at it.
    """

    def leave(states: Sequence[RunState], _: Backend, wake_s: float | None) -> None:
        if not any(_runs_here(state) for state in states):
            raise _LookedAtAll(wake_s)

    try:
        drive(folder, connect, on_record=on_record, on_pass=leave, **how)
    except _LookedAtAll as done:
        return Looked(is_over=False, wake_s=done.wake_s)
    return Looked(is_over=True)


def _runs_here(state: RunState) -> bool:
    """Whether a local stage is under way, which would end with its client."""
    return any(view.stage.local and view.phase in _ON_ITS_WAY for view in state.stages.values())
