"""The product's estimator where the queue is visible: it learns from a simulation of everybody's jobs, too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from asa.core import plugins
from asa.errors import InputError, StateError
from asa.estimators.contextual import ContextualAsa
from asa.waits import QueuedJob, Surroundings, WaitEstimator, WaitForecast, WaitObservation

_ADVISER = "queue"


class Adviser(WaitEstimator, Protocol):
    """An estimator that has several opinions of a job's wait."""

    def opinions(self, job: QueuedJob) -> tuple[float, ...]:
        """Say how long a job that is submitted now would wait, in seconds, by each of so many guesses."""
        ...

    def facts(self, job: QueuedJob) -> tuple[float, ...]:
        """Tell the state of the queue that it would meet: counts, cores, seconds, core-seconds; none is negative."""
        ...


class QueueAwareAsa:
    """`ContextualAsa` with the opinions of an adviser that runs a copy of the visible queue ahead.

    A simulation knows what is ahead in the queue, and not what it cannot see: priorities, reservations, who comes next.
    Each of its opinions is an expert like the others, whose profile is learned from how far off it was; the state
    of the queue is an input of the network.

    Notes
    -----
    Most of its time goes into the simulations: one to four tenths of a millisecond a job on logs with some hundred jobs
    that wait, some milliseconds with thousands.
    """

    sees_queue: ClassVar[bool] = True

    def __init__(self, adviser: Adviser, learner: ContextualAsa) -> None:
        self.adviser, self.learner = adviser, learner
        self._tickets: dict[int, int] = {}  # the learner's by the adviser's

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Predict the wait of a job that is submitted now."""
        return self.learner.predict(job, self._outside(job))

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None) -> int:
        """Learn that a job waits from now on."""
        mine = self.learner.submitted(job, forecast, self._outside(job))
        ticket = self.adviser.submitted(job, forecast)
        self._tickets[ticket] = mine
        return ticket

    def _outside(self, job: QueuedJob) -> tuple[float, ...]:
        """Collect what the adviser says of a job, facts as magnitudes."""
        facts = (math.log10(1.0 + fact) / 2.0 - 1.0 for fact in self.adviser.facts(job))
        return (*self.adviser.opinions(job), *facts)

    def observe(self, ticket: int, observation: WaitObservation) -> None:
        """Learn what became of a wait."""
        if ticket not in self._tickets:
            raise InputError(f"no job waits under ticket {ticket}", hint="Hand back what `submitted` gave.")
        mine = self._tickets.pop(ticket)
        self.adviser.observe(ticket, observation)
        self.learner.observe(mine, observation)

    def ended(self, ticket: int, run_s: float) -> None:
        """Learn that a started job ran for so long."""
        self.adviser.ended(ticket, run_s)

    def withdrawn(self, ticket: int) -> None:
        """Forget a job that waits or runs, and learn nothing from it."""
        mine = self._tickets.pop(ticket, None)
        if mine is not None:
            self.learner.withdrawn(mine)
        self.adviser.withdrawn(ticket)

    def state(self) -> dict[str, Any]:
        """Return the whole state, the adviser's and the learner's."""
        return {
            "adviser": self.adviser.state(),
            "learner": self.learner.state(),
            "tickets": [[theirs, mine] for theirs, mine in self._tickets.items()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> QueueAwareAsa:
        """Make an estimator that continues bit for bit where the one that gave `state` stood."""
        try:
            adviser = type(_adviser(Surroundings())).from_state(state["adviser"])  # type: ignore[attr-defined]
            made = cls(adviser, ContextualAsa.from_state(state["learner"]))
            made._tickets = {int(theirs): int(mine) for theirs, mine in state["tickets"]}
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"no state of an estimator: {error}", hint="Forget it and learn anew.") from error
        return made


def _adviser(surroundings: Surroundings) -> Adviser:
    adviser: Adviser = plugins.load("asa.estimators", _ADVISER)(surroundings)
    return adviser


def queue_aware_asa(surroundings: Surroundings) -> QueueAwareAsa:
    """Learn as the default does, and from simulations of the visible queue.

    Parameters
    ----------
    surroundings
        The seed, and the machine whose queue is simulated.
    """
    adviser = _adviser(surroundings)
    job = QueuedJob(0.0, 1, 1.0)
    opinions, facts = len(adviser.opinions(job)), len(adviser.facts(job))
    return QueueAwareAsa(adviser, ContextualAsa(seed=surroundings.seed, opinions=opinions, facts=facts))
