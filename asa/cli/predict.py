"""``asa predict``: how long a job would wait, as far as the bank knows."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.bank import BankOption
from asa.errors import InputError

if TYPE_CHECKING:
    from asa.estimators.bank import Outcome
    from asa.estimators.store import WaitRecord
    from asa.waits import QueuedJob, WaitForecast

__all__ = ["predict"]

_ESTIMATOR = "asa-blind"  # a bank holds waits that are over, not who waits now
_WITHIN_S = (600.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
_ENOUGH = 20  # outcomes to judge by
_STALE_S = 30 * 86_400.0
_P50, _P90 = 4, 8
_FLOOR_S = 10.0
_ALL = 50_000  # that are learned where numba is installed


def predict(
    cores: Annotated[int, typer.Option(help="Cores that the job asks for.", min=1)],
    walltime: Annotated[str, typer.Option(help="Walltime that it asks for, as 2h, 90min or 1-12:00:00.")],
    system: Annotated[
        str | None, typer.Option(help="Where it would be submitted. [default: the only system in the bank]")
    ] = None,
    partition: Annotated[str, typer.Option(help="The partition, as the bank's jobs have it.")] = "",
    user: Annotated[str, typer.Option(help="Whose job it is, if the bank knows users.")] = "",
    bank: BankOption = None,
    within: Annotated[
        str | None,
        typer.Option(help="Say how probable it is that the job starts within this time.", metavar="DURATION"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of a table.")] = False,
) -> None:
    """Predict how long a job would wait in the queue if it were submitted now.

    The answer is a range with probabilities, the number of waits it was learned from, and how good such answers were
    lately. Nothing is submitted, and nobody's queue is asked.

    Example: `asa predict --cores 112 --walltime 2h`
    """
    from asa.estimators.bank import WaitBank, most_records
    from asa.estimators.store import WaitStore, default_folder, user_in_store
    from asa.geometry import JobGeometry
    from asa.units import parse_duration
    from asa.waits import QueuedJob

    walltime_s = parse_duration(walltime)
    times = (parse_duration(within),) if within is not None else _WITHIN_S
    folder = bank or default_folder()
    records = WaitStore(folder, create=False).read() if folder.is_dir() else []
    if not records:
        raise InputError("knows nothing yet", where=f"the bank {folder}", hint="Begin with `asa learn --from FILE`.")
    place = _system(records, system)
    theirs = [record for record in records if record.job.system == place][-most_records() :]
    partitions = {record.job.partition for record in theirs}
    chosen = _partition(partition, partitions)
    if len(theirs) == most_records() < _ALL:
        sys.stderr.write(
            f"asa: numba is not installed: only the latest {len(theirs):,} waits are learned "
            "(pip install 'asa-client[fast]')\n"
        )
    known = WaitBank(_ESTIMATOR)
    known.take(theirs)
    latest = max(record.known_s for record in theirs)
    now = time.time()
    at_s = now if abs(now - latest) < _STALE_S else latest
    job = QueuedJob(at_s, cores, walltime_s, user_in_store(user), place, chosen)
    geometry = JobGeometry.of(cores=cores, walltime_s=walltime_s, system=place, partition=chosen)
    outcomes = known.outcomes(place)
    alike = [outcome for outcome in outcomes if outcome.job.geometry == geometry]
    answer = _Answer(
        job,
        known.predict(job),
        times,
        len(theirs),
        sum(record.job.geometry == geometry for record in theirs),
        alike if len(alike) >= _ENOUGH else outcomes,
        of_geometry=len(alike) >= _ENOUGH,
        behind_s=now - latest if abs(now - latest) < _STALE_S else None,
    )
    if as_json:
        import json

        sys.stdout.write(json.dumps(answer.as_dict(), indent=1) + "\n")
    else:
        answer.print(geometry.label())


def _system(records: Sequence[WaitRecord], wanted: str | None) -> str:
    from asa.plugins import unknown_name

    known = sorted({record.job.system for record in records})
    if wanted is None:
        if len(known) == 1:
            return known[0]
        raise InputError(
            f"the bank knows {len(known)} systems: {', '.join(known)}", where="--system", hint="Name one of them."
        )
    if wanted not in known:
        raise unknown_name("system", wanted, known)
    return wanted


def _partition(wanted: str, known: set[str]) -> str:
    from asa.plugins import unknown_name

    if wanted and wanted not in known:
        raise unknown_name("partition", wanted, sorted(known - {""}))
    return next(iter(known)) if not wanted and len(known) == 1 else wanted


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is told."""

    job: QueuedJob
    forecast: WaitForecast
    times_s: Sequence[float]
    observations: int
    alike: int
    outcomes: Sequence[Outcome]
    of_geometry: bool
    behind_s: float | None

    def quality(self) -> dict[str, float]:
        """Shares of the recent forecasts."""
        jobs = len(self.outcomes)
        if not jobs:
            return {}
        near = [0.5 <= max(o.forecast.wait_s, _FLOOR_S) / max(o.wait_s, _FLOOR_S) <= 2 for o in self.outcomes]
        under = {
            p: sum(o.wait_s <= max(o.forecast.quantiles_s[p], _FLOOR_S) for o in self.outcomes) for p in (_P50, _P90)
        }
        return {"within_2x": sum(near) / jobs, "within_p50": under[_P50] / jobs, "within_p90": under[_P90] / jobs}

    def as_dict(self) -> dict[str, Any]:
        job, forecast = self.job, self.forecast
        return {
            "system": job.system,
            "partition": job.partition,
            "cores": job.cores,
            "walltime_s": job.walltime_s,
            "as_of_s": job.submit_s,
            "wait_s": forecast.wait_s,
            "quantiles_s": {f"p{10 * (i + 1)}": wait for i, wait in enumerate(forecast.quantiles_s)},
            "probability_within": {f"{time_s:g}": forecast.probability_within(time_s) for time_s in self.times_s},
            "observations": self.observations,
            "observations_of_geometry": self.alike,
            "recent": {"jobs": len(self.outcomes), "of_geometry": self.of_geometry, **self.quality()},
        }

    def print(self, label: str) -> None:
        from rich.console import Console
        from rich.table import Table

        from asa.units import format_duration

        console = Console(highlight=False)
        forecast = self.forecast
        console.print(f"[bold]{label}[/]: count on a wait of about [bold]{format_duration(forecast.wait_s)}[/]")
        table = Table(box=None, padding=(0, 2), show_header=False)
        waits = forecast.quantiles_s
        for words, level in (("1 in 10", 0), ("1 in 2", _P50), ("8 in 10", 7), ("9 in 10", _P90)):
            table.add_row(f"{words} such jobs start within", format_duration(max(waits[level], 0.0)))
        console.print(table)
        chances = [f"{format_duration(t)} {forecast.probability_within(t):.0%}" for t in self.times_s]
        console.print(f"Probability to start within {', '.join(chances)}.")
        console.print(
            f"Learned from {self.observations:,} waits, {self.alike:,} of them of this kind of job.", style="dim"
        )
        if quality := self.quality():
            whose = "of this kind" if self.of_geometry else "of all kinds on this system"
            console.print(
                f"Of the last {len(self.outcomes)} forecasts {whose}, {quality['within_2x']:.0%} were within a factor "
                f"of two; {quality['within_p50']:.0%} of the waits were up to p50, {quality['within_p90']:.0%} to p90.",
                style="dim",
            )
        if self.behind_s is None:
            console.print("As of the last job in the bank; its clock is not today's.", style="dim")
        elif self.behind_s > 86_400:
            console.print(
                f"The bank's last wait became known {format_duration(self.behind_s)} ago: learn what is new.",
                style="dim",
            )
