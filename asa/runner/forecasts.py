"""Where a strategy's predicted waits come from."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from asa.backend import Foresight, JobSpec, PastJobs
from asa.errors import InputError
from asa.estimators import PAPER_ALTERNATIVES_S, Prediction, WaitBank
from asa.geometry import JobGeometry, size_class, walltime_class
from asa.workflow import Stage

__all__ = ["KnownForecast", "LearnedForecast", "NoForecast", "geometry_of", "learn_history"]


class NoForecast:
    """For strategies that predict nothing."""

    def predict(self, stage: str, needed_s: float) -> Prediction:  # noqa: ARG002 - the port's shape
        """Refuse: a strategy that asks must say so in its `forecast`."""
        raise InputError(
            f"no forecast is there for stage {stage!r}",
            hint="The strategy must declare the forecast it needs.",
        )


class LearnedForecast:
    """Predictions of a bank.

    A prediction is drawn when a stage is first planned and stays until its geometry learned something new: a plan that
    is only looked at again does not change its mind.

    Parameters
    ----------
    bank
        The learners.
    geometry_of
        The geometry of a stage's job.
    """

    def __init__(self, bank: WaitBank, geometry_of: Callable[[str], JobGeometry]) -> None:
        self.bank = bank
        self._geometry_of = geometry_of
        self._drawn: dict[str, tuple[int, Prediction]] = {}

    def predict(self, stage: str, needed_s: float) -> Prediction:  # noqa: ARG002 - the past does not know when
        """Predict the wait of a stage's job."""
        geometry = self._geometry_of(stage)
        knowledge = self.bank[geometry].observations
        drawn = self._drawn.get(stage)
        if drawn is None or drawn[0] != knowledge:
            drawn = self._drawn[stage] = (knowledge, self.bank.predict(geometry))
        return drawn[1]

    def used(self, stage: str) -> None:
        """Forget a prediction that was acted upon; a resubmission draws anew."""
        self._drawn.pop(stage, None)


class KnownForecast:
    """Waits read from a simulator's future.

    What is asked is when a job would start if it were submitted at a time but kept back until it is needed, as a
    dependency does; then the shortest lead is taken with which it starts as early as it possibly can.

    Parameters
    ----------
    backend
        A simulator.
    spec_of
        The job of a stage.
    now
        The backend's clock.
    """

    def __init__(self, backend: Foresight, spec_of: Callable[[str], JobSpec], now: Callable[[], float]) -> None:
        self._backend = backend
        self._spec_of = spec_of
        self._now = now

    def predict(self, stage: str, needed_s: float) -> Prediction:
        """Find the lead with which a stage's job starts when it is needed, or as soon after as can be."""
        whole = float(math.ceil(needed_s))  # batch systems count whole seconds
        return Prediction(self._least_lead(replace(self._spec_of(stage), begin_s=whole), whole))

    def _least_lead(self, spec: JobSpec, needed_s: float) -> float:
        now = self._now()
        earliest = self._backend.foresee_start(spec, now)
        if earliest > needed_s or needed_s <= now:
            return earliest - now  # late even if submitted at once
        leads = [0.0, *(lead for lead in PAPER_ALTERNATIVES_S if lead < needed_s - now), needed_s - now]
        return leads[bisect_left(leads, x=True, key=lambda lead: self._is_in_time(spec, needed_s, lead))]

    def _is_in_time(self, spec: JobSpec, needed_s: float, lead_s: float) -> bool:
        return self._backend.foresee_start(spec, needed_s - lead_s) <= needed_s


def learn_history(bank: WaitBank, history: PastJobs, geometries: Iterable[JobGeometry], *, most: int) -> int:
    """Teach a bank the latest waits of everybody's jobs of some geometries.

    Parameters
    ----------
    bank
        Is taught.
    history
        Jobs of the past.
    geometries
        Those of interest.
    most
        Waits to learn of each geometry at most, the latest.

    Returns
    -------
    int
        Waits learned.
    """
    if not most or not len(history):
        return 0
    size, length = size_class(history.cores), walltime_class(history.walltime_s)
    learned = 0
    for geometry in dict.fromkeys(geometries):
        alike = np.flatnonzero((size == geometry.size_class) & (length == geometry.walltime_class))[-most:]
        for wait in history.wait_s[alike].tolist():
            bank.observe(geometry, wait)
        learned += len(alike)
    return learned


def geometry_of(stage: Stage, cores_per_node: int, system: str) -> JobGeometry:
    """Return the geometry of a stage's own job."""
    return JobGeometry.of(cores=stage.cores_on(cores_per_node), walltime_s=stage.walltime_s, system=system)
