"""``asa predict``: how long a job would wait, as far as the bank knows."""

from __future__ import annotations

import getpass
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.bank import BankOption
from asa.core.documents import print_json
from asa.errors import InputError
from asa.units import MAX_CORES

if TYPE_CHECKING:
    from pathlib import Path

    from asa.estimators.bank import Outcome
    from asa.estimators.store import WaitRecord
    from asa.waits import QueuedJob, WaitForecast

_BLIND = (
    "waiting",
    "ages",
)  # a bank holds waits that are over; not which jobs wait now, nor quiet times
_WITHIN_S = (600.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
_ENOUGH = 20  # outcomes to judge by
_STALE_S = 30 * 86_400.0
_P50, _P90 = 4, 8
_FLOOR_S = 10.0


def predict(
    cores: Annotated[int, typer.Option(help="Cores that the job asks for.", min=1, max=MAX_CORES)],
    walltime: Annotated[str, typer.Option(help="Walltime that it asks for, as 2h, 90min or 1-12:00:00.")],
    system: Annotated[
        str | None,
        typer.Option(help="Where it would be submitted. [default: the only one known beside this machine]"),
    ] = None,
    partition: Annotated[
        str | None, typer.Option(help="The partition. [default: the only one of the system's jobs in the bank]")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Whose job it is. [default: yours if the bank knows you, else anybody's]")
    ] = None,
    bank: BankOption = None,
    within: Annotated[
        str | None,
        typer.Option(help="Say how probable it is that the job starts within this time.", metavar="DURATION"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of a table.")] = False,
) -> None:
    """Predict how long a job would wait in the queue if it were submitted now.

    The answer is a range with probabilities, the number of waits it was learned from, and how good such answers were
    lately. It is as of the last job in the bank; nothing is submitted, and nobody's queue is asked.

    Example: `asa predict --cores 112 --walltime 2h`
    """
    from asa.estimators.bank import WaitBank, max_records
    from asa.estimators.contextual import ContextualAsa
    from asa.estimators.store import WaitStore, default_folder
    from asa.geometry import JobGeometry
    from asa.waits import QueuedJob

    walltime_s = _seconds(walltime, "--walltime")
    if not walltime_s:
        raise InputError("is 0", where="--walltime", hint="Ask for some time, as in 2h.")
    times = (_seconds(within, "--within"),) if within is not None else _WITHIN_S
    folder = bank or default_folder()
    store = WaitStore(folder, create=False) if folder.exists() else None
    records = store.read() if store is not None else []
    for words, count in (store.oddities if store is not None else {}).items():
        sys.stderr.write(f"Note: in the bank {folder}: {count} x {words}\n")
    if not records:
        raise InputError("knows nothing yet", where=f"the bank {folder}", hint=_begin(bank))
    place = _system(records, system)
    of_system = [record for record in records if record.job.system == place]
    chosen = _partition(partition, of_system)
    _check_width(cores, chosen, of_system)
    whose = _user(user, of_system)
    theirs = of_system[-max_records() :]
    if len(theirs) < len(of_system) and find_spec("numba") is None:
        sys.stderr.write(
            f"asa: numba is not installed: only the latest {len(theirs):,} waits are learned "
            "(pip install 'asa-client[fast]')\n"
        )
    # as of the last submission: what became known later is mostly of those that waited longest
    as_of_s = max(record.job.submit_s for record in theirs)
    if sum(record.known_s <= as_of_s for record in theirs) < len(theirs) / 2:
        as_of_s = max(record.known_s for record in theirs)  # one burst, and nothing was known before
    theirs = [record for record in theirs if record.job.submit_s <= as_of_s]
    without = _BLIND if whose else (*_BLIND, "users")
    known = WaitBank(lambda surroundings: ContextualAsa(seed=surroundings.seed, without=without))
    known.take(theirs, until_s=as_of_s)
    job = QueuedJob(as_of_s, cores, walltime_s, whose, place, chosen)
    geometry = JobGeometry.of(cores=cores, walltime_s=walltime_s, system=place, partition=chosen)
    outcomes = known.outcomes(place)
    alike = [o for o in outcomes if o.job.geometry == geometry and o.job.user == (whose or o.job.user)]
    behind_s = time.time() - as_of_s
    answer = _Answer(
        job,
        known.predict(job),
        times,
        known.learned,
        len(of_system),
        sum(record.job.geometry == geometry and record.known_s <= as_of_s for record in theirs),
        alike if len(alike) >= _ENOUGH else outcomes,
        of_geometry=len(alike) >= _ENOUGH,
        behind_s=behind_s if abs(behind_s) < _STALE_S else None,
    )
    if as_json:
        print_json(answer.as_dict())
    else:
        answer.print()


def _begin(bank: Path | None) -> str:
    """Say how a bank that knows nothing is begun."""
    into = f" --bank {shlex.quote(str(bank))}" if bank is not None else ""
    return (
        f"Learn from the site's accounting, as by `asa learn --since 30d{into}` where its commands are, or from a log: "
        f"`asa learn --from FILE{into}`. What `asa run` sees is kept there, too."
    )


def _seconds(text: str, option: str) -> float:
    from asa.units import parse_duration

    try:
        return parse_duration(text)
    except InputError as error:
        raise InputError(error.message, where=option, hint=error.hint) from error


def _system(records: Sequence[WaitRecord], wanted: str | None) -> str:
    from asa.core.plugins import unknown_name

    known = sorted({record.job.system for record in records})
    if wanted is None:
        here = platform.node().partition(".")[0]  # as the queue of this machine is named where nobody names it
        others = [name for name in known if name != here] or known
        if len(others) == 1:
            return others[0]
        raise InputError(
            f"the bank knows {len(known)} systems: {', '.join(known)}", where="--system", hint="Name one of them."
        )
    if wanted not in known:
        raise unknown_name("system", wanted, known)
    return wanted


def _partition(wanted: str | None, records: Sequence[WaitRecord]) -> str:
    from asa.core.plugins import unknown_name

    known = sorted({record.job.partition for record in records})
    if wanted is not None:
        if wanted in known:
            return wanted
        if known == [""]:
            raise InputError("its jobs are of no partition", where="--partition", hint="Leave it out.")
        raise unknown_name("partition", wanted, list(filter(None, known)))
    if len(known) > 1:
        named, nameless = list(filter(None, known)), "" in known
        of = f"{len(named)} {'partition' if len(named) == 1 else 'partitions'}: {', '.join(named)}"
        raise InputError(
            f"jobs were sent to {of}{'; of others the partition is not known' if nameless else ''}",
            where="--partition",
            hint=f"Name one of them{', or give an empty one for the others' if nameless else ''}.",
        )
    return known[0]


def _check_width(cores: int, partition: str, records: Sequence[WaitRecord]) -> None:
    """Refuse a job wider than any that is known: of what waits so long nothing was learned, nor whether it can run."""
    widest = max(record.job.cores for record in records if record.job.partition == partition)
    if cores > widest:
        where = f"{records[0].job.system} {partition}".strip()
        raise InputError(
            f"no job of more than {widest} cores is known on {where}, so the waits of wider ones cannot be predicted",
            where=f"--cores {cores}",
            hint=f"Ask for at most {widest}, or learn of wider ones from the site's accounting: `asa learn`.",
        )


def _user(wanted: str | None, records: Sequence[WaitRecord]) -> str:
    """Say whose job it is, as the bank names users; nobody's if one's own name is not among them."""
    from asa.estimators.store import user_in_store

    known = {record.job.user for record in records}
    if wanted is None:
        try:
            own = user_in_store(getpass.getuser())
        except (OSError, KeyError):  # no such user on this host
            return ""
        return own if own in known else ""
    if wanted and user_in_store(wanted) not in known:
        raise InputError(
            f"no job of user {wanted!r} is in the bank", where="--user", hint="Leave it out to ask for anybody's job."
        )
    return user_in_store(wanted)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What `asa predict` answers."""

    job: QueuedJob
    forecast: WaitForecast
    times_s: Sequence[float]
    observations: int
    in_bank: int
    alike: int
    outcomes: Sequence[Outcome]
    of_geometry: bool
    behind_s: float | None

    def quality(self) -> dict[str, float]:
        """Shares of the recent forecasts; coverage spreads waits that equal a stated one, see `coverage`."""
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
            "observations_in_bank": self.in_bank,
            "observations_of_geometry": self.alike,
            "recent": {"jobs": len(self.outcomes), "of_geometry": self.of_geometry, **self.quality()},
        }

    def print(self) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        from asa.units import format_duration

        console = Console(highlight=False)
        job, forecast = self.job, self.forecast
        place = escape(" ".join(part for part in (job.system, job.partition) if part))
        asked = f"{job.cores} {'core' if job.cores == 1 else 'cores'} for {format_duration(job.walltime_s)}"
        console.print(f"A job of {asked} on {place}: half of such jobs start within", end=" ")
        console.print(f"[bold]{format_duration(forecast.quantiles_s[_P50])}[/]")
        table = Table(box=None, padding=(0, 2), show_header=False)
        for words, level in (("1 in 10", 0), ("1 in 2", _P50), ("8 in 10", 7), ("9 in 10", _P90)):
            table.add_row(f"{words} such jobs start within", format_duration(max(forecast.quantiles_s[level], 0.0)))
        console.print(table)
        chances = [f"{format_duration(t)} {forecast.probability_within(t):.0%}" for t in self.times_s]
        console.print(f"Probability to start within {', '.join(chances)}.")
        of = f" of the {self.in_bank:,} in the bank" if self.in_bank > self.observations else ""
        whose = "" if job.user else "; whose job it is was not taken into account"
        console.print(
            f"Learned from the latest {self.observations:,} waits{of}, {self.alike:,} of this kind of job{whose}.",
            style="dim",
        )
        if self.alike < _ENOUGH:
            console.print("Few jobs of this kind were seen: the answer leans on other kinds, and may be far off.")
        if quality := self.quality():
            kind = "of this kind" if self.of_geometry else "of all kinds on this system"
            console.print(
                f"Of the last {len(self.outcomes)} such forecasts {kind}, {quality['within_2x']:.0%} were within a "
                f"factor of two; {quality['within_p50']:.0%} of the jobs started within p50, "
                f"{quality['within_p90']:.0%} within p90 (coverage, where equal waits count in part: "
                f"{quality['coverage_p50']:.0%} and {quality['coverage_p90']:.0%}).",
                style="dim",
            )
        if self.behind_s is None:
            console.print("As of the last submission in the bank, long ago by today's clock.", style="dim")
        elif self.behind_s > 86_400:
            console.print(
                f"As of the last submission in the bank, {format_duration(self.behind_s)} ago: learn what is new.",
                style="dim",
            )
