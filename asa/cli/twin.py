"""``asa twin``: copies a site's machine, rules and jobs, to try out workflows in the copy."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.terminal import write_notice
from asa.core.documents import print_json
from asa.core.options import Output, OutputOption
from asa.errors import InputError

if TYPE_CHECKING:
    from asa.studies.present import Table

_NOTHING_S = 60.0
_MOST_APART = 0.3  # Kolmogorov-Smirnov distance
_TIMES_OFF = 3.0  # ratio of the 90th percentiles

AgeOption = Annotated[
    bool | None,
    typer.Option(
        "--age-accrues/--no-age-accrues",
        help="Whether jobs gain priority while they wait for a dependency, if the site does not tell.",
        show_default=False,
    ),
]
YouOption = Annotated[
    str | None,
    typer.Option(help="Your user name in the job records. [default: your user name here]", metavar="NAME"),
]


def twin(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="Job records (output of `sacct -P`, or SWF), or the folder made by --script's script. [default: ask "
            "the batch system here]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write it. It can be given to others.", metavar="FOLDER", show_default=False),
    ] = None,
    script: Annotated[
        bool, typer.Option("--script", help="Print a script that gathers what is needed of a site, and stop.")
    ] = False,
    you: YouOption = None,
    age_accrues: AgeOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a twin of a site, to simulate it: its nodes, its scheduler's settings, and all jobs of the last months.

    It is used by `asa worth`, and by `asa compare --backend twin --option twin=FOLDER`. It contains no names: users are
    random numbers, and no list tells which number is whose.

    On a cluster: `asa twin --out site.twin`

    Elsewhere: `asa twin --script > gather.sh`; run this script there, copy its folder here, then `asa twin site --out
    site.twin`

    Exit codes: 0 made, 1 the batch system does not answer, 2 the input cannot be used.
    """
    from asa.core import plugins

    make: Any = plugins.load("asa.backends", "twin")
    if script:
        sys.stdout.write(make.script() + "\n")
        return
    if out is None:
        raise InputError("is missing", where="--out", hint="Name a folder: --out site.twin")
    _check_out(out)
    made = new_twin(source, you, age_accrues)
    made.twin.write(out)
    if output is Output.JSON:
        print_json(asdict(made.twin.about) | {"left_out": made.left_out}, allow_nan=False)
        return
    _tell(made)
    write_notice(f"Twin written to {out}")


def _check_out(out: Path) -> None:
    """Before the long work, refuse a folder that cannot be written to, or must not be overwritten."""
    where = f"--out {out}"
    if out.is_file():
        raise InputError("is a file", where=where, hint="Name a folder.")
    if out.is_dir() and any(out.iterdir()) and not (out / "twin.json").exists():
        raise InputError("holds other files", where=where, hint="Name a new folder, or one of a twin.")
    near = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not os.access(near, os.W_OK):
        raise InputError(f"cannot be made: {near} is not writable", where=where, hint="Name another folder.")


def new_twin(source: Path | None, you: str | None, age_accrues: bool | None) -> Any:
    """Make a twin, showing progress."""
    from asa.cli.progress import with_progress
    from asa.core import plugins

    make: Any = plugins.load("asa.backends", "twin")
    name = _own_name() if you is None else you
    made = with_progress(
        lambda on_progress: make.made(source, you=name, age_accrues=age_accrues, on_progress=on_progress)
    )
    if you is not None and made.twin.about.you is None:
        raise InputError(
            f"{you!r} has no jobs in these records", where="--you", hint="Check the name, or leave it out."
        )
    return made


def _own_name() -> str:
    """Return the user's name here; empty if the system knows none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _tell(made: Any) -> None:
    from asa.studies.present import console

    screen, about = console(), made.twin.about
    for title, lines in (("Seen", about.seen), ("Assumed", about.assumed)):
        screen.print(title, style="bold")
        for line in lines:
            screen.print(f"  {line}", markup=False)
    if made.left_out:
        screen.print("Jobs", style="bold")
        for words, count in made.left_out.items():
            screen.print(f"  {count:,} {words}", markup=False)
    screen.print(agreement_table(about))
    screen.print(trust(about), style="dim", markup=False)


def agreement_table(about: Any) -> Table:
    """Make a table of how well a twin's waits agree with the recorded ones."""
    from asa.studies.present import Row, Table

    def rows() -> Iterator[Row]:
        for number, waits in enumerate(about.agreement):
            cells = (
                *_waits(waits.recorded_s),
                *_waits(waits.simulated_s),
                f"{100 * waits.within_2:.0f}",
                f"{waits.ks:.2f}",
            )
            yield Row((waits.of, f"{waits.jobs:,}", *cells), begins_section=number == 1)

    headings = ("", "Jobs", "Log p50", "p75", "p90", "Twin p50", "p75", "p90", "2x %", "KS")
    return Table(headings, rows(), title="Waits in the twin and recorded waits")


def _waits(points: tuple[float, ...]) -> Iterator[str]:
    from asa.units import format_duration

    return (format_duration(round(value)) for value in points)


def trust(about: Any) -> str:
    """Print how reliable the twin's waits are."""
    if not about.agreement:
        return "No waits were recorded, so it is not known how well those in the twin agree."
    first = about.agreement[0]
    text = (
        f"The median wait in the twin is {_times(first.ratio)} the recorded one; {100 * first.within_2:.0f} % of "
        f"the jobs wait between half and twice as long as recorded."
    )
    return text + (" That is far off: take results in it as rough estimates." if is_rough(about) else "")


def is_rough(about: Any) -> bool:
    """Whether a twin's waits are far from the recorded ones, for all jobs or for those of some width."""
    if not about.agreement:
        return True
    first, *others = about.agreement
    tails = [
        max(waits.simulated_s[2], _NOTHING_S) / max(waits.recorded_s[2], _NOTHING_S) for waits in (first, *others[:-1])
    ]
    return first.ks > _MOST_APART or not all(1 / _TIMES_OFF <= tail <= _TIMES_OFF for tail in tails)


def _times(ratio: float) -> str:
    return "as long as" if 0.95 <= ratio <= 1.05 else f"{ratio:.2g} times"
