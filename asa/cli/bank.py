"""``asa bank``: shows, exports, imports and deletes what is known of queue waits."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.terminal import counted, write_notice
from asa.core.documents import print_json
from asa.core.late import dataclass
from asa.core.options import Output, OutputOption
from asa.errors import InputError

if TYPE_CHECKING:
    from asa.estimators.store import WaitStore
    from asa.estimators.stored import WaitRecord
    from asa.geometry import JobGeometry

app = typer.Typer(help="Show, export, import and delete the queue waits that were learned.", no_args_is_help=True)

_BEGIN = "Fill it with `asa learn --from FILE` or `asa bank import FILE`."
_SHOWN = 20
_JUDGED = 100
_FLOOR_S = 10.0  # shorter waits count as this long: 2 s and 8 s are the same to a user
_A_DATE_S = 1e8  # a smaller time counts from the log's begin, not from 1970
_P50, _P90 = 4, 8  # indices in a forecast's quantiles

BankOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the bank. [default: $ASA_BANK, else ~/.local/share/asa/bank]", show_default=False, metavar="DIR"
    ),
]


@app.command()
def show(
    bank: BankOption = None,
    every: Annotated[
        bool, typer.Option("--all", help=f"Show every kind of job, not only the {_SHOWN} most frequent.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the waits that the bank has for each kind of job, and how good the predictions were."""
    store = _opened(bank)
    records = store.read() if store is not None else []
    kinds = _kinds(records)
    folder = _folder(bank)
    if output is Output.JSON:
        _print_json(folder, records, kinds, store)
        return
    from asa.core.console import Console

    console = Console()
    if records:
        console.print(_table(kinds if every else kinds[:_SHOWN]))
        sources = len({record.source for record in records if record.source})
        learned = f", {counted(sources, 'source')} learned from" if sources else ""
        total = f"{counted(len(records), 'observation')} of {counted(len(kinds), 'kind')} of job{learned}; in {folder}"
        console.print(total, highlight=False, markup=False, soft_wrap=True)
        if len(kinds) > _SHOWN and not every:
            console.print(f"The {_SHOWN} most frequent kinds; --all shows all.", style="dim", highlight=False)
        if any(kind.within_2x is not None or kind.within_p90 is not None for kind in kinds):
            words = (
                f"2x: share of the last {_JUDGED} predictions within a factor of two of the wait; p90: share of "
                f"waits of at most the predicted p90."
            )
            console.print(words, style="dim", highlight=False)
    else:
        there = "is empty" if store is not None else "does not exist yet"
        console.print(f"The bank {folder} {there}. {_BEGIN}", highlight=False, markup=False, soft_wrap=True)
    for words, count in (store.oddities if store is not None else {}).items():
        console.print(f"Note: {count} x {words}", style="dim", highlight=False, markup=False)


@app.command("export")
def export_(
    file: Annotated[Path, typer.Argument(help="The file to write; compressed if it ends in .gz.", metavar="FILE")],
    bank: BankOption = None,
) -> None:
    """Write the bank to one file that others can import. Users have pseudonyms in it.

    Pseudonyms are made with a secret in the bank's folder: a list of users does not reveal whose jobs are whose.
    """
    count = _needed(bank).export(file)
    write_notice(f"{counted(count, 'observation')} written to {file}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A file that `asa bank export` wrote.", metavar="FILE")],
    bank: BankOption = None,
) -> None:
    """Add the observations of a file to the bank. Observations that the bank already has are not added again."""
    from asa.estimators.store import WaitStore

    folder = _folder(bank)
    added = WaitStore(folder).import_(file)
    write_notice(f"{counted(added, 'new observation')} added to {folder}")


@app.command()
def forget(
    bank: BankOption = None,
    system: Annotated[str | None, typer.Option(help="Of this system.")] = None,
    partition: Annotated[str | None, typer.Option(help="Of this partition.")] = None,
    source: Annotated[str | None, typer.Option(help="Learned from this source; '' for your own runs.")] = None,
    older_than: Annotated[
        str | None,
        typer.Option(help="Observed longer ago than this, as 90d or 12h.", metavar="DURATION"),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete the observations that meet all given conditions."""
    from asa.estimators.kept import drop

    matching = _matching(system, partition, source, older_than, everything=everything)
    store = _needed(bank)
    count, total = store.count(matching)
    if not count:
        write_notice(f"None of {counted(total, 'observation')} matches; nothing was deleted.")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise InputError(
                f"would delete {count} of {counted(total, 'observation')}",
                where="asa bank forget",
                hint="Give --yes: there is no terminal to ask on.",
            )
        if not typer.confirm(f"Delete {count} of {counted(total, 'observation')}?", err=True):
            write_notice("Nothing was deleted.")
            return
    gone = store.forget(matching)
    drop(store.folder)  # the estimators learned from them
    write_notice(f"{counted(gone, 'observation')} deleted.")


def _folder(bank: Path | None) -> Path:
    from asa.estimators.store import default_folder

    return default_folder() if bank is None else bank


def _opened(bank: Path | None) -> WaitStore | None:
    from asa.estimators.store import WaitStore

    folder = _folder(bank)
    return WaitStore(folder, create=False) if folder.exists() else None


def _needed(bank: Path | None) -> WaitStore:
    store = _opened(bank)
    if store is None:
        raise InputError("there is no bank", where=str(_folder(bank)), hint=_BEGIN)
    return store


def _matching(
    system: str | None, partition: str | None, source: str | None, older_than: str | None, *, everything: bool
) -> Callable[[WaitRecord], bool]:
    import time

    from asa.units import parse_duration

    chosen = [value is not None for value in (system, partition, source, older_than)]
    if everything == any(chosen):
        conditions = "both conditions and --all" if everything else "no condition"
        raise InputError(
            f"there is {conditions}",
            where="asa bank forget",
            hint="Give --system, --partition, --source or --older-than, or --all alone.",
        )
    if older_than is not None and not re.fullmatch(r"\s*(\d+(\.\d+)?\s*[a-z]+\s*)+", older_than.lower()):
        raise InputError(f"{older_than!r} is not an age", where="--older-than", hint="Write it as 90d, 12h or 1d12h.")
    try:
        before_s = float("inf") if older_than is None else time.time() - parse_duration(older_than)
    except InputError as error:
        raise InputError(error.message, where="--older-than", hint="Write it as 90d, 12h or 1d12h.") from error

    def matching(record: WaitRecord) -> bool:
        return (
            (system is None or record.job.system == system)
            and (partition is None or record.job.partition == partition)
            and (source is None or record.source == source)
            and record.known_s < before_s
        )

    return matching


@dataclass(frozen=True, slots=True)
class _GeometryRow:
    """A row about one geometry; None for unknown values."""

    geometry: JobGeometry
    observations: int
    median_s: float | None
    p90_s: float | None
    last_s: float
    within_2x: float | None
    within_p90: float | None


def _kinds(records: Sequence[WaitRecord]) -> list[_GeometryRow]:
    """Group records by geometry, the most frequent first."""
    geometries: dict[tuple[Any, ...], JobGeometry] = {}
    members: dict[JobGeometry, list[WaitRecord]] = {}
    for record in records:
        job = record.job
        key = (job.cores, job.walltime_s, job.system, job.partition)
        if key not in geometries:
            geometries[key] = job.geometry
        members.setdefault(geometries[key], []).append(record)
    kinds = [_kind(geometry, member) for geometry, member in members.items()]
    return sorted(kinds, key=lambda kind: (-kind.observations, kind.geometry))


def _kind(geometry: JobGeometry, records: Sequence[WaitRecord]) -> _GeometryRow:
    import numpy as np

    waits = [record.observation.wait_s for record in records if record.observation.kind == "exact"]
    median_s, p90_s = np.quantile(waits, (0.5, 0.9)).tolist() if waits else (None, None)
    judged = [record for record in records if record.forecast is not None][-_JUDGED:]
    return _GeometryRow(
        geometry,
        len(records),
        median_s,
        p90_s,
        max(record.known_s for record in records),
        _share(map(_is_within_2x, judged)),
        _share(map(_is_within_p90, judged)),
    )


def _share(verdicts: Any) -> float | None:
    known = [verdict for verdict in verdicts if verdict is not None]
    return sum(known) / len(known) if known else None


def _is_within_2x(record: WaitRecord) -> bool | None:
    """Whether p50 and the wait are within a factor of two; None if the wait is censored."""
    if record.forecast is None or record.observation.kind != "exact":
        return None
    low, high = sorted((max(record.forecast[_P50], _FLOOR_S), max(record.observation.wait_s, _FLOOR_S)))
    return high <= 2 * low


def _is_within_p90(record: WaitRecord) -> bool | None:
    """Whether the wait was at most p90; None if that is not known."""
    if record.forecast is None:
        return None
    within = record.observation.wait_s <= record.forecast[_P90]
    undecided = {"exact": None, "at_most": False, "at_least": True}[record.observation.kind]
    return None if within is undecided else within


def _table(kinds: Sequence[_GeometryRow]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from asa.units import format_duration

    forecasts = any(kind.within_2x is not None or kind.within_p90 is not None for kind in kinds)
    table = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("Jobs", min_width=20)
    headings = ["Seen", "Median", "p90", "Last seen", *(["2x %", "p90 %"] if forecasts else [])]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for kind in kinds:
        waits = ["-" if wait_s is None else format_duration(wait_s) for wait_s in (kind.median_s, kind.p90_s)]
        shares = ["-" if share is None else f"{100 * share:.0f}" for share in (kind.within_2x, kind.within_p90)]
        row = [f"{kind.observations:,}", *waits, _moment(kind.last_s), *(shares if forecasts else [])]
        table.add_row(Text(kind.geometry.label()), *row)
    return table


def _moment(time_s: float) -> str:
    from datetime import UTC, datetime

    from asa.units import format_duration

    if _A_DATE_S <= time_s < 253_402_300_800:  # before the year 10000
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d")
    return f"at {format_duration(time_s)}"


def _print_json(
    folder: Path, records: Sequence[WaitRecord], kinds: Sequence[_GeometryRow], store: WaitStore | None
) -> None:
    from dataclasses import asdict

    document = {
        "bank": str(folder),
        "observations": len(records),
        "skipped": store.oddities if store is not None else {},
        "geometries": [{"label": kind.geometry.label(), **asdict(kind)} for kind in kinds],
    }
    print_json(document)
