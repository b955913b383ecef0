"""An estimator of one's own: the next wait is like one of the last fifty of such jobs, beside the installed ones.

An estimator learns a whole site's waits, states nine quantiles, and gives its state as plain data, so that a bank can
keep it. A package of yours makes it known by an entry point, and then `asa evaluate LOG --estimators recent,asa` and
`asa run flow.toml --estimator recent` take it:

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

MOST = 50  # waits that are remembered of a kind of job
AT_FIRST_S = [0.0, 600.0, 3600.0]  # what is said before any is known
DAYS = 6


class RecentWaits:
    """Takes each of the last waits of such jobs to be equally likely; of any job where none such is known.

    Parameters
    ----------
    surroundings
        What it is made for; it draws nothing, and does not look at the machine.
    """

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        del surroundings
        self._waits_s: dict[str, list[float]] = {"": AT_FIRST_S}  # by kind of job; of all jobs under ""
        self._waiting: dict[int, str] = {}  # the kind of each job that waits, by its ticket
        self._tickets = 0

    def predict(self, job: QueuedJob) -> WaitForecast:
        """State the quantiles of the last waits."""
        waits_s = self._waits_s.get(job.geometry.label()) or self._waits_s[""]
        quantiles_s = tuple(np.quantile(waits_s, LEVELS).tolist())
        return WaitForecast(quantiles_s, quantiles_s[4])

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None) -> int:
        """Remember that a job waits."""
        del forecast
        self._tickets += 1
        self._waiting[self._tickets] = job.geometry.label()
        return self._tickets

    def observe(self, ticket: int, observation: WaitObservation) -> None:
        """Learn a wait. A censored one is left aside, for it would teach a wait that never was."""
        if ticket not in self._waiting:
            raise InputError(f"no job waits under ticket {ticket}", hint="Hand back what `submitted` returned, once.")
        kind = self._waiting.pop(ticket)
        if observation.kind == "exact":
            for place in (kind, ""):
                self._waits_s[place] = [*self._waits_s.get(place, []), float(observation.wait_s)][-MOST:]

    def ended(self, ticket: int, run_s: float) -> None:
        """Do nothing: how long jobs run is of no use here."""

    def withdrawn(self, ticket: int) -> None:
        """Forget a job that waits."""
        self._waiting.pop(ticket, None)

    def state(self) -> dict[str, Any]:
        """Give all that is known, as JSON takes it; copies, as the lists go on changing."""
        waits_s = {kind: list(waits_s) for kind, waits_s in self._waits_s.items()}
        return {"waits_s": waits_s, "waiting": [list(pair) for pair in self._waiting.items()], "tickets": self._tickets}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Go on where another stood."""
        made = cls()
        made._waits_s = {kind: list(waits_s) for kind, waits_s in state["waits_s"].items()}
        made._waiting = {int(ticket): kind for ticket, kind in state["waiting"]}
        made._tickets = int(state["tickets"])
        return made


def main(days: int = DAYS) -> None:
    """Check that the contract is kept, then see how well it predicts beside others."""
    console = Console(highlight=False)
    check_estimator(RecentWaits, RecentWaits.from_state)
    console.print("It keeps the contract of an estimator.")
    model = PRESETS["uppmax"]  # a simulated centre, where first come is first served, with backfilling
    history = replayed(model.generate(days * 86400, seed=1), model.machine.cores)
    console.print(f"{len(history):,} jobs of a simulated centre; how far off in the mean, and waits below p90:")
    for score in evaluate({"uppmax": history}, {"recent": RecentWaits, **installed(["last", "median", "asa"])}):
        console.print(f"{score.estimator:8} factor {10**score.log10_error:.1f} {100 * score.coverage_at(0.9):6.1f} %")


if __name__ == "__main__":
    main()
