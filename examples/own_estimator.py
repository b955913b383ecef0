"""An estimator of your own, compared with the installed ones: the next wait is like one of the last fifty of such jobs.

An estimator learns a whole site's waits, predicts nine quantiles, and returns its state as plain data, so that a bank
can store it. Your package registers it as an entry point; then `asa evaluate LOG --estimators recent,asa` and
`asa run flow.toml --estimator recent` find it:

    [project.entry-points."asa.estimators"]
    recent = "own_estimator:RecentWaits"

    python examples/own_estimator.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from asa.backends.simulated.presets import PRESETS
from asa.backends.simulated.replay import replayed
from rich.console import Console

from asa.errors import InputError
from asa.studies.accuracy import evaluate, installed
from asa.testing import check_estimator
from asa.waits import LEVELS, QueuedJob, Surroundings, WaitForecast, WaitObservation

MOST = 50  # waits to remember for each kind of job
AT_FIRST_S = [0.0, 600.0, 3600.0]  # assumed until a wait is known
DAYS = 6


class RecentWaits:
    """Takes each of the last waits of such jobs as equally likely; without any, the last waits of all jobs.

    Parameters
    ----------
    surroundings
        The conditions that it is made for; this one is not random, and ignores the machine.
    """

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        del surroundings
        self._waits_s: dict[str, list[float]] = {"": AT_FIRST_S}  # by kind of job; those of all jobs under ""
        self._waiting: dict[int, str] = {}  # by ticket: the kind of each waiting job
        self._tickets = 0

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Return the quantiles of the last waits."""
        waits_s = self._waits_s.get(job.geometry.label()) or self._waits_s[""]
        quantiles_s = tuple(np.quantile(waits_s, LEVELS).tolist())
        return WaitForecast(quantiles_s, quantiles_s[4])

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None) -> int:
        """Remember a waiting job."""
        del forecast
        self._tickets += 1
        self._waiting[self._tickets] = job.geometry.label()
        return self._tickets

    def observe(self, ticket: int, observation: WaitObservation) -> None:
        """Learn a wait. Censored ones are ignored, since they are no real waits."""
        if ticket not in self._waiting:
            raise InputError(f"no job waits under ticket {ticket}", hint="Hand back what `submitted` returned, once.")
        kind = self._waiting.pop(ticket)
        if observation.kind == "exact":
            for place in (kind, ""):
                self._waits_s[place] = [*self._waits_s.get(place, []), float(observation.wait_s)][-MOST:]

    def ended(self, ticket: int, run_s: float) -> None:
        """Ignore how long jobs run."""

    def withdrawn(self, ticket: int) -> None:
        """Forget a waiting job."""
        self._waiting.pop(ticket, None)

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-ready data; copies, since the lists keep changing."""
        waits_s = {kind: list(waits_s) for kind, waits_s in self._waits_s.items()}
        return {"waits_s": waits_s, "waiting": [list(pair) for pair in self._waiting.items()], "tickets": self._tickets}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Make an estimator that continues from another's state."""
        made = cls()
        made._waits_s = {kind: list(waits_s) for kind, waits_s in state["waits_s"].items()}
        made._waiting = {int(ticket): kind for ticket, kind in state["waiting"]}
        made._tickets = int(state["tickets"])
        return made


def main(days: int = DAYS) -> None:
    """Check the contract, then compare the predictions with those of other estimators."""
    console = Console(highlight=False)
    check_estimator(RecentWaits, RecentWaits.from_state)
    console.print("It keeps the contract of an estimator.")
    model = PRESETS["uppmax"]  # a simulated centre: first come, first served, with backfilling
    history = replayed(model.generate(days * 86400, seed=1), model.machine.cores)
    console.print(f"{len(history):,} jobs of a simulated centre; how far off in the mean, and waits below p90:")
    for score in evaluate({"uppmax": history}, {"recent": RecentWaits, **installed(["last", "median", "asa"])}):
        console.print(f"{score.estimator:8} factor {10**score.log10_error:.1f} {100 * score.coverage_at(0.9):6.1f} %")


if __name__ == "__main__":
    main()
