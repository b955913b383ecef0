"""Chooses the best estimator for what a user can see of the queue."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from asa.core.late import dataclass
from asa.estimators import readiness
from asa.estimators.stored import user_in_store
from asa.waits import QueueEvent

AUTO = "auto"
"""Name that means: the best estimator for what is visible."""
BLIND, SEEING = readiness.BLIND, readiness.SEEING
NOT_COMPILED = "what simulates the visible queue is not compiled yet"


@dataclass(frozen=True, slots=True)
class EstimatorChoice:
    """An estimator, and the reason for its choice."""

    name: str
    why: str  # reason for the choice, as a clause


def choose(events: Iterable[QueueEvent], own: str) -> EstimatorChoice:
    """Choose an estimator by the events that a check of the queue returned.

    If jobs of other users are visible, simulating the queue is more accurate from the first job on, even if few waits
    were learned. It is not chosen if it would have to be compiled first.

    `own`: the user's name, plain or as a store keeps it. A job without a name of a user counts as another user's, since
    backends leave out the jobs of their own client.
    """
    if not any(user_in_store(event.job.user) != user_in_store(own) for event in events if event.job is not None):
        return EstimatorChoice(BLIND, "the site shows no jobs of other users")
    if find_spec("numba") is None:
        return EstimatorChoice(BLIND, "numba is not installed, without which simulating the visible queue takes long")
    if not readiness.simulates_compiled():
        return EstimatorChoice(BLIND, NOT_COMPILED)
    return EstimatorChoice(SEEING, "the site shows the jobs of other users, so the queue can be simulated")
