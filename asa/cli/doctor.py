"""``asa doctor``: examines a site, and whether asa works there."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from asa.cli.completing import complete_backends, complete_sites
from asa.cli.given import OptionsOption, given_settings
from asa.cli.progress import working
from asa.cli.terminal import write_notice
from asa.core.documents import print_json
from asa.core.options import Output, OutputOption
from asa.errors import AsaError, InputError, OwnerError
from asa.units import format_duration

if TYPE_CHECKING:
    from rich.table import Table

    from asa.backend import Examination, Finding, Setting
    from asa.sites import OpenedSite

BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        help="What to connect to: local, slurm (slurm-rest with --option url=..., else slurm-cli), or another that "
        "`asa list` shows.",
        autocompletion=complete_backends,
        show_default=False,
    ),
]
SiteOption = Annotated[
    str | None,
    typer.Option(
        "--site",
        help="A site file, by its name or its path.",
        metavar="NAME|FILE",
        autocompletion=complete_sites,
        show_default=False,
    ),
]
_HERE = ("", ".")  # the current folder, as an entry of a search path
_SYMBOLS = {"good": ("✔ good", "green"), "note": ("! note", "yellow"), "bad": ("✘ bad", "bold red")}


def doctor(
    backend: BackendOption = None,
    site: SiteOption = None,
    settings: OptionsOption = None,
    probe: Annotated[
        bool,
        typer.Option("--probe", help="Also submit a one-core job on hold, look at it, and cancel it. It never runs."),
    ] = False,
    save: Annotated[
        str | None,
        typer.Option(
            help="Write the options given and what was found into this site file; lines that you wrote are kept.",
            metavar="NAME|FILE",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Examine a site: the configuration of its batch system, whether asa works with it, and what users should know.

    With slurmrestd: `asa doctor --backend slurm-rest --option url=https://slurm.example.org:6820 --probe --save here`,
    and from then on `--site here`. The token is read from SLURM_JWT, see `scontrol token`.

    Where sbatch and squeue are installed: `asa doctor --probe`

    Exit codes: 0 asa can be used there, 1 it cannot.
    """
    from asa.backend import Examinable
    from asa.cli.compiling import BEING_COMPILED
    from asa.estimators.readiness import compile_later
    from asa.sites import open_facility

    opened = open_facility(backend, site, given_settings(settings))
    if not isinstance(opened.facility, Examinable):
        raise InputError(
            "cannot be examined", where=f"backend {opened.backend!r}", hint="This backend does not support it."
        )
    with working("examining the site"), _ends_orderly():
        examination = opened.facility.examine(probe=probe)
        here = (*_of_owners(), *_of_search_paths(), *_of_this_computer(opened))
        examination = replace(examination, findings=(*examination.findings, *here))
    if output is Output.JSON:
        _print_json(opened, examination)
    else:
        _print_table(opened, examination)
    if save is not None:
        _save(save, opened, examination, given_settings(settings))
    elif output is Output.TABLE and examination.settings:
        write_notice("Save this with --save NAME; then use --site NAME.")
    if not examination.is_usable:
        raise typer.Exit(1)
    if opened.backend != "local" and compile_later() and output is Output.TABLE:
        write_notice(f"What predicts waits there {BEING_COMPILED}.")


def _of_owners() -> Iterator[Finding]:
    """Report the user's files that asa ignores because others can change them, with one command that repairs all."""
    from asa.backend import Finding
    from asa.core import owned
    from asa.estimators.store import default_folder
    from asa.keepers import cron
    from asa.runner import default_runs_folder
    from asa.runner.folder import check_runs, is_run_open, run_paths
    from asa.sites import sites_folder

    try:
        bank, runs, called = default_folder().absolute(), default_runs_folder().absolute(), cron.scripts_folder()
        sites, trusted = sorted(sites_folder().glob("*.toml")), owned.trusted_file()
    except (AsaError, RuntimeError):  # the home folder is unknown here
        return
    lone = [path for path in (*sites, trusted, called) if _is_open(path)]
    wholes = [folder for folder in (bank, called / "local") if any(map(_is_open, (folder, *folder.glob("*"))))]
    with suppress(InputError):
        wholes += [runs] if any(map(is_run_open, run_paths(runs))) else []
    with suppress(OSError):
        try:
            check_runs(runs)
        except OwnerError:
            lone += [runs] if _is_open(runs) and runs not in wholes else []
    for path in (called, trusted):
        with suppress(OSError):
            lone += owned.open_above(path)
    if lone or wholes:
        repairs = {"chmod go-w": dict.fromkeys(map(str, lone)), "chmod -R go-w": dict.fromkeys(map(str, wholes))}
        repair = "; ".join(shlex.join([*how.split(), *paths]) for how, paths in repairs.items() if paths)
        report = f"others can change {', '.join(path for paths in repairs.values() for path in paths)}"
        yield Finding("access", report, "note", f"It is not used. See that nobody has changed it; then: {repair}")


def _of_search_paths() -> Iterator[Finding]:
    """Report search paths that make every program load files from the current folder, even files of other users."""
    from asa.backend import Finding

    for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH"):
        entries = os.environ.get(name, "").split(":")
        fixed = [entry for entry in entries if entry not in _HERE]
        if entries in ([""], fixed):
            continue
        report = f"{name} has an empty entry, or `.`: programs take files of the folder that you are in, of whomever"
        repair = f"export {name}={shlex.quote(':'.join(fixed))}" if fixed else f"unset {name}"
        yield Finding("access", report, "note", f"Where others can write to that folder they run code as you: {repair}")


def _is_open(path: Path) -> bool:
    from asa.core import owned

    with suppress(OSError):
        return owned.is_open(path)
    return False


def _of_this_computer(opened: OpenedSite) -> Iterator[Finding]:
    """Report how a run can continue on this computer when no client runs."""
    import resource

    from asa.backend import Finding
    from asa.keepers import possible

    troubles = possible(opened.facility)
    able = [way for way, trouble in troubles.items() if not trouble]
    if able:
        report, then = (
            f"{' and '.join(able)} can continue runs unattended",
            "`asa run --detach` returns at once, and the run goes on.",
        )
    else:
        report = "; ".join(f"no {way}: {trouble}" for way, trouble in troubles.items())
        then = "The client must keep running: see docs/how-to/unattended.md."
        if opened.backend != "local":
            then = (
                "`asa run --detach` uses a chain of one-core jobs; else the client must keep running: see "
                "docs/how-to/unattended.md."
            )
    yield Finding("unattended", report, "good" if able else "note", then)
    limit_s, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if limit_s != resource.RLIM_INFINITY:
        report = f"processes are killed here after {format_duration(float(limit_s))} of CPU time"
        yield Finding("CPU time", report, "note", "The client uses some seconds of it a day; with --detach none stays.")


@contextmanager
def _ends_orderly() -> Iterator[None]:
    """Let signals that would end this process at once raise `SystemExit`, so that a probe's job is cancelled.

    Ignored signals, as under `nohup`, stay ignored.
    """
    wanted = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    heeded = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _leave) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def _print_table(opened: OpenedSite, examination: Examination) -> None:
    from asa.core.console import Console

    console = Console()
    where = f"{opened.backend}, {opened.file}" if opened.file else opened.backend
    if opened.why:
        write_notice(f"Using {opened.file.stem if opened.file else opened.backend}: {opened.why}.")
    console.print(f"{where}\n", style="bold", markup=False, highlight=False, soft_wrap=True)
    console.print(_table(examination))


def _table(examination: Examination) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in examination.findings:
        words, style = _SYMBOLS[finding.verdict]
        cell = Text(finding.told)
        if finding.consequence:
            cell.append(f"\n{finding.consequence}", style="dim")
        table.add_row(Text(words, style=style), finding.topic, cell)
    return table


def _print_json(opened: OpenedSite, examination: Examination) -> None:
    from dataclasses import asdict

    document = {
        "backend": opened.backend,
        "site": str(opened.file) if opened.file else None,
        "why": opened.why,
        "usable": examination.is_usable,
        "findings": [asdict(finding) for finding in examination.findings],
        "settings": dict(examination.settings),
        "observed": dict(examination.observed),
    }
    print_json(document)


def _save(name: str, opened: OpenedSite, examination: Examination, given: Mapping[str, Any]) -> None:
    from datetime import UTC, datetime

    from asa.sites import read_site, save_site, site_names, sites_folder

    file = read_site(str(opened.file)) if opened.file else None
    when: Setting = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    path = save_site(
        name,
        backend=opened.backend,
        settings={**(file.settings if file else {}), **given},
        observed={"when": when, **examination.observed},
        found={**(file.found if file else {}), **examination.settings},
    )
    write_notice(f"Saved in {path}")
    if not examination.is_usable:
        write_notice("It could not be used now: examine it again, with --site, before you rely on the file.")
    is_only = path.parent == sites_folder() and site_names() == [path.stem]
    if is_only or path == sites_folder() / "default.toml":
        write_notice("It is taken from now on where neither --site nor --backend is given.")
    else:
        sys.stderr.write(f"Use it with: --site {shlex.quote(name)}\n")
