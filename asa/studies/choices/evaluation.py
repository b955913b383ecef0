"""The study of `asa evaluate --choices`, which finds it by its entry point."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from asa.history import JobHistory
from asa.studies.accuracy.prequential import MakeEstimator
from asa.studies.choices.scores import Choices
from asa.studies.choices.study import choices


def evaluate(
    histories: Mapping[str, JobHistory],
    estimators: Mapping[str, MakeEstimator],
    *,
    times: int,
    seed: int,
    jobs: int | None,
    on_progress: Callable[[str, int, int], None],
) -> Choices:
    """Let every estimator choose widths on every log.

    Parameters
    ----------
    histories
        Logs with run times, by name.
    estimators
        Functions that make the estimators, by name.
    times
        Number of times of each log at which each program is put into the queue.
    seed
        Seed for drawing the times.
    jobs
        Number of processes; None for as many as this machine allows.
    on_progress
        Called with the current activity, the number of finished parts, and the number of all.

    Returns
    -------
    Choices
        The results, which can be printed and converted to JSON.
    """
    return Choices(choices(histories, estimators, times=times, seed=seed, jobs=jobs, on_progress=on_progress), times)
