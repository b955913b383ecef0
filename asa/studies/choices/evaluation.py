"""What `asa evaluate --choices` runs, found by its entry point."""

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
    """Have every estimator choose widths on every log.

    Parameters
    ----------
    histories
        Logs with run times, by name.
    estimators
        What makes each estimator, by name.
    times
        At so many times of each log each program is put into the queue.
    seed
        Draws the times.
    jobs
        Processes; as many as this machine lets us use, if None.
    on_progress
        Called with what is done, how much of it is done, and of how much.

    Returns
    -------
    Choices
        What can be printed, and given as JSON.
    """
    return Choices(choices(histories, estimators, times=times, seed=seed, jobs=jobs, on_progress=on_progress), times)
