"""Which estimator is best with what is visible of a queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from asa.estimators.stored import user_in_store
from asa.waits import QueueEvent

AUTO = "auto"
"""Stands for the best with what is visible."""
BLIND, SEEING = "asa", "asa-queue"


@dataclass(frozen=True, slots=True)
class EstimatorChoice:
    """An estimator, and why it was taken."""

    name: str
    why: str  # half a sentence


def choose(events: Iterable[QueueEvent], own: str) -> EstimatorChoice:
    """Choose an estimator by what a look at the queue showed.

    If others' jobs are visible, simulating the queue is more accurate from the first job on, however little was
    learned.

    `own`: the user's name, plain or as a store keeps it. A job without a user's name counts as another's, as a backend
    leaves out those of its own client.
    """
    if not any(user_in_store(event.job.user) != user_in_store(own) for event in events if event.job is not None):
        return EstimatorChoice(BLIND, "the site shows no jobs of other users")
    if find_spec("numba") is None:
        return EstimatorChoice(BLIND, "numba is not installed, without which simulating the visible queue takes long")
    return EstimatorChoice(SEEING, "the site shows the jobs of other users, so the queue can be simulated")
