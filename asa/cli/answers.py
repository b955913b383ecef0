"""The answers of `asa predict`: for one request, and for a comparison of several requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from asa.core.late import dataclass

if TYPE_CHECKING:
    from asa.core.console import Console
    from asa.estimators.bank import Outcome
    from asa.estimators.joint import JointForecast
    from asa.waits import QueuedJob, WaitForecast

ENOUGH = 20
"""Number of outcomes that are enough to judge estimates by."""

_P10, _P50, _P90 = 0, 4, 8
_FLOOR_S = 10.0
_FEW = 5


@dataclass(frozen=True, slots=True)
class Said:
    """The batch system's own estimate for a request."""

    whose: str
    word_s: float
    share: float  # weight of this estimate in the answer, from 0 to 1
    outcomes: int  # how many such estimates have recently been checked against real starts
    off: float  # median error of these estimates, in decades; nan without outcomes
    forecasts_off: float  # median error of the forecasts made with them

    def text(self) -> str:
        """Describe the estimate in a line."""
        from asa.units import format_duration

        expected = f"{self.whose} says {format_duration(self.word_s)}"
        lately = "how good its estimates are here is not known yet"
        if self.outcomes >= _FEW:
            lately = f"lately off by a factor of {10**self.off:.2g}, asa's predictions by {10**self.forecasts_off:.2g}"
        counts = f"weight {self.share:.0%}" if self.share else "not used, since the queue is visible"
        return f"{expected} ({lately}; {counts})."

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON-ready data."""
        known = {"factor_off": 10**self.off, "forecast_factor_off": 10**self.forecasts_off} if self.outcomes else {}
        return {"wait_s": self.word_s, "share": self.share, "outcomes": self.outcomes, **known}


@dataclass(frozen=True, slots=True)
class PredictionAnswer:
    """The answer of `asa predict`."""

    job: QueuedJob
    forecast: WaitForecast
    times_s: Sequence[float]
    observations: int
    in_bank: int
    alike: int
    outcomes: Sequence[Outcome]
    of_geometry: bool
    behind_s: float | None
    live: str = ""  # the state of the queue, in words
    said: Said | None = None

    def quality(self) -> dict[str, float]:
        """Shares of recent forecasts that held; a wait equal to a quantile counts for coverage as `coverage` says."""
        from asa.estimators.calibration import coverage

        jobs = len(self.outcomes)
        if not jobs:
            return {}
        near = [0.5 <= max(o.forecast.wait_s, _FLOOR_S) / max(o.wait_s, _FLOOR_S) <= 2 for o in self.outcomes]
        under = {
            p: sum(o.wait_s <= max(o.forecast.quantiles_s[p], _FLOOR_S) for o in self.outcomes) for p in (_P50, _P90)
        }
        covered = coverage([o.forecast.quantiles_s for o in self.outcomes], [o.wait_s for o in self.outcomes])
        return {
            "within_2x": sum(near) / jobs,
            "within_p50": under[_P50] / jobs,
            "within_p90": under[_P90] / jobs,
            "coverage_p50": float(covered[:, _P50].mean()),
            "coverage_p90": float(covered[:, _P90].mean()),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as JSON-ready data."""
        job, forecast = self.job, self.forecast
        return {
            **({"queue": self.live} if self.live else {}),
            **({"site_word": self.said.as_dict()} if self.said is not None else {}),
            "system": job.system,
            "partition": job.partition,
            "cores": job.cores,
            "walltime_s": job.walltime_s,
            "as_of_s": job.submit_s,
            "wait_s": forecast.wait_s,
            "quantiles_s": {f"p{10 * (i + 1)}": wait for i, wait in enumerate(forecast.quantiles_s)},
            "probability_within": {f"{time_s:g}": forecast.probability_within(time_s) for time_s in self.times_s},
            "observations": self.observations,
            "observations_in_bank": self.in_bank,
            "observations_of_geometry": self.alike,
            "recent": {"jobs": len(self.outcomes), "of_geometry": self.of_geometry, **self.quality()},
        }

    def print(self) -> None:
        """Print the answer for a person."""
        from rich.table import Table

        from asa.core.console import Console
        from asa.units import format_duration

        console = Console(highlight=False)
        job, forecast = self.job, self.forecast
        where = " ".join(part for part in (job.system, job.partition) if part)
        asked = f"{job.cores} {'core' if job.cores == 1 else 'cores'} for {format_duration(job.walltime_s)}"
        console.print(f"A job of {asked} on {where}: half of such jobs start within", end=" ")
        console.print(format_duration(forecast.quantiles_s[_P50]), style="bold")
        table = Table(box=None, padding=(0, 2), show_header=False)
        for text, level in (("1 in 10", 0), ("1 in 2", _P50), ("8 in 10", 7), ("9 in 10", _P90)):
            table.add_row(f"{text} such jobs start within", format_duration(max(forecast.quantiles_s[level], 0.0)))
        console.print(table)
        chances = [f"{format_duration(t)} {forecast.probability_within(t):.0%}" for t in self.times_s]
        console.print(f"Probability to start within {', '.join(chances)}.")
        self.print_ground(console)

    def print_ground(self, console: Console) -> None:
        """Print what the answer was learned from, and how good recent answers were."""
        from asa.units import format_duration

        of = f" of the {self.in_bank:,} in the bank" if self.in_bank > self.observations else ""
        whose = "" if self.job.user else "; not specific to a user"
        console.print(
            f"Learned from the latest {self.observations:,} waits{of}, {self.alike:,} of this kind of job{whose}.",
            style="dim",
        )
        if self.live:
            console.print(f"{self.live[0].upper()}{self.live[1:]}.", style="dim")
        if self.said is not None:
            console.print(self.said.text(), markup=False)
        if self.alike < ENOUGH and not self.live:
            console.print("Few jobs of this kind are known: the answer rests on other kinds, and may be far off.")
        if quality := self.quality():
            kind = "of this kind" if self.of_geometry else "of all kinds on this system"
            kind += " by runs of yours" if self.live else ""
            console.print(
                f"Of the last {len(self.outcomes)} such forecasts {kind}, {quality['within_2x']:.0%} were within a "
                f"factor of two of the wait; {quality['within_p50']:.0%} of the jobs started within p50, "
                f"{quality['within_p90']:.0%} within p90 (coverage, where equal waits count in part: "
                f"{quality['coverage_p50']:.0%} and {quality['coverage_p90']:.0%}).",
                style="dim",
            )
        elif self.live:
            console.print("How good such predictions are here is known once your runs have used them.", style="dim")
        if self.behind_s is None:
            console.print("As of the last submission in the bank, which is long ago.", style="dim")
        elif self.behind_s > 86_400:
            console.print(
                f"As of the last submission in the bank, {format_duration(self.behind_s)} ago: `asa learn` adds "
                f"newer jobs.",
                style="dim",
            )


@dataclass(frozen=True, slots=True)
class ComparedRequests:
    """Several requests, compared."""

    joint: JointForecast
    run_s: Sequence[float] | None
    times_s: Sequence[float]
    answer: PredictionAnswer  # of the best request alone

    @property
    def best(self) -> int:
        """Index of the request that starts first or, with run times, ends first."""
        return self.joint.best(self.run_s)

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-ready data."""
        import numpy as np

        best, alone = self.best, self.answer.as_dict()
        costs = self.joint.costs(self.run_s)
        return {
            **{key: alone[key] for key in ("queue", "system", "as_of_s", "observations", "recent") if key in alone},
            "best": best,
            "requests": [
                {
                    "partition": job.partition,
                    "cores": job.cores,
                    "walltime_s": job.walltime_s,
                    **({"run_s": self.run_s[index]} if self.run_s is not None else {}),
                    "quantiles_s": {
                        f"p{10 * (i + 1)}": wait for i, wait in enumerate(self.joint.forecast(index).quantiles_s)
                    },
                    "probability_within": {
                        f"{time_s:g}": float((self.joint.waits_s[:, index] <= time_s).mean()) for time_s in self.times_s
                    },
                    "time_over_best": float(np.exp(costs[index] - costs[best])),
                    "probability_before_best": self.joint.probability_before(index, best, self.run_s),
                }
                for index, job in enumerate(self.joint.jobs)
            ],
        }

    def print(self) -> None:
        """Print the comparison for a person."""
        import numpy as np
        from rich.table import Table

        from asa.core.console import Console
        from asa.units import core_hours, format_duration

        console = Console(highlight=False)
        best, jobs = self.best, self.joint.jobs
        by_partition = len({job.partition for job in jobs}) > 1
        ends = "ends" if self.run_s is not None else "starts"
        table = Table(box=None, padding=(0, 1), title=f"Waits on {jobs[0].system}", title_justify="left")
        if by_partition:
            table.add_column("Partition")
        for heading in ("Cores", "Walltime", "p10", "p50", "p90"):
            table.add_column(heading, justify="right")
        if self.run_s is not None:
            table.add_column("End p50", justify="right")
            table.add_column("Core-h", justify="right")
        table.add_column(f"{ends.capitalize()} before", justify="right", no_wrap=True)
        ends_s = np.median(self.joint.ends_s(self.run_s), axis=0).tolist()
        for index, job in enumerate(jobs):
            quantiles_s = self.joint.forecast(index).quantiles_s
            cells = [job.partition] if by_partition else []
            cells += [f"{job.cores:,}", format_duration(job.walltime_s)]
            cells += [format_duration(quantiles_s[level]) for level in (_P10, _P50, _P90)]
            if self.run_s is not None:
                hours = core_hours(job.cores, self.run_s[index])
                cells += [format_duration(ends_s[index]), f"{hours:,.1f}"]
            before = self.joint.probability_before(index, best, self.run_s)
            cells.append("best" if index == best else f"{before:.0%}")
            table.add_row(*cells, style="bold" if index == best else "")
        console.print(table)
        least, end = ("time to its end", "end") if self.run_s is not None else ("wait", "start")
        console.print(
            f"p10, p50 and p90 are of the wait. All requests were compared in the same {len(self.joint.waits_s)} "
            f"possible futures. Best has the least expected {least}, for which the usual waits of such jobs count as "
            f"well, so another request may {end} first in more than half of these futures."
            f"{'' if self.run_s is not None else ' With --run-time, best is what is expected to end first.'}",
            style="dim",
        )
        self.answer.print_ground(console)
