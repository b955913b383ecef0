"""``asa runs`` and ``asa status``: how runs stand, from their folders alone."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.runs import SCHEMA, Output, OutputOption, RunArgument, RunsOption, open_run, runs_folder
from asa.errors import AsaError
from asa.units import format_duration

if TYPE_CHECKING:
    from rich.text import Text

    from asa.cli.standing import RunStanding
    from asa.runner import RunFolder

__all__ = ["runs", "status"]

_SHOWN = 20
_WATCH_S, _MOST_WATCH_S = 2.0, 30.0
_PLAN = "run.json"


def status(
    run: RunArgument = "",
    watch: Annotated[bool, typer.Option("--watch", help="Renew it until the run ends.")] = False,
    output: OutputOption = Output.TABLE,
    runs: RunsOption = None,
) -> None:
    """Show how a run stands: each stage, what it waits for, and how old this information is.

    It reads the run's folder, and disturbs neither the client that drives the run nor the batch system.

    Exit codes: 0 done, 1 the run's folder cannot be read, 2 the input cannot be used, 130 interrupted.
    """
    from rich.console import Console

    from asa.cli.screen import draw
    from asa.cli.standing import standing_of

    folder = open_run(runs, run)
    if watch and output is Output.TABLE:
        _watch(folder)
        return
    while True:
        standing = standing_of(folder, time.time())
        if output is Output.JSON:
            sys.stdout.write(json.dumps(standing.as_dict(), indent=None if watch else 1) + "\n")
            sys.stdout.flush()
        else:
            console = Console(highlight=False)
            console.print(draw(standing, console.width))
        if not watch or standing.is_over:
            return
        time.sleep(_WATCH_S)


def _watch(folder: RunFolder) -> None:
    """Renew the table until the run ends, less often while nothing changes; what is no terminal gets the last one."""
    from rich.console import Console
    from rich.live import Live

    from asa.cli.screen import draw
    from asa.cli.standing import standing_of

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        before, pause_s = None, _WATCH_S
        while True:
            standing = standing_of(folder, time.time())
            live.update(draw(standing, console.width, console.height), refresh=True)
            if standing.is_over:
                return
            now = (standing.state, [stage.state for stage in standing.stages])
            pause_s = _WATCH_S if now != before else min(1.2 * pause_s, _MOST_WATCH_S)
            before = now
            time.sleep(pause_s)


# ---------------------------------------------------------------------- all runs


@dataclass(frozen=True, slots=True)
class _Row:
    """A run in the list; `trouble` says why nothing is known of it."""

    name: str
    created_s: float
    run: RunStanding | None = None
    trouble: str = ""

    def as_dict(self) -> dict[str, Any]:
        if self.run is None:
            return {"run": self.name, "state": "damaged", "trouble": self.trouble, "created_s": self.created_s}
        told = self.run.as_dict()
        stages = {"stages": len(self.run.stages), "stages_done": self.run.done}
        kept = ("run", "folder", "workflow", "strategy", "backend", "state", "reason", "driver", "created_s")
        return {**{key: told[key] for key in kept}, **stages}


def runs(
    every: Annotated[bool, typer.Option("--all", help=f"Show all, not only the latest {_SHOWN}.")] = False,
    output: OutputOption = Output.TABLE,
    runs: RunsOption = None,
) -> None:
    """List the runs: what each is, whether somebody drives it, and how far it has come.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    place = runs_folder(runs)
    rows = sorted((_row(file) for file in place.glob(f"*/{_PLAN}")), key=lambda row: row.created_s)
    shown = rows if every else rows[-_SHOWN:]
    if output is Output.JSON:
        sys.stdout.write(json.dumps({"schema": SCHEMA, "runs": [row.as_dict() for row in shown]}, indent=1) + "\n")
    elif not rows:
        sys.stdout.write(f"There are no runs in {place}. Begin one with: asa run FILE.toml\n")
    else:
        _print_table(shown)
        if len(shown) < len(rows):
            sys.stdout.write(f"The latest {len(shown)} of {len(rows)}; --all shows the others.\n")


def _row(file: Path) -> _Row:
    from asa.cli.standing import standing_of
    from asa.runner import RunFolder

    created_s = 0.0
    try:
        created_s = file.stat().st_mtime
        folder = RunFolder(file.parent)
        created_s = folder.plan.created_s
        return _Row(file.parent.name, created_s, standing_of(folder, time.time()))
    except AsaError as error:
        return _Row(file.parent.name, created_s, trouble=error.message)
    except OSError as error:
        return _Row(file.parent.name, created_s, trouble=error.strerror or str(error))


def _print_table(rows: list[_Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading, kind in (
        ("Run", "left"),
        ("Strategy", "left"),
        ("Done", "right"),
        ("Age", "right"),
        ("State", "left"),
    ):
        table.add_column(heading, justify=kind, overflow="fold", no_wrap=heading in {"Strategy", "Done", "Age"})  # type: ignore[arg-type]
    now_s = time.time()
    for row in rows:
        age = format_duration(max(now_s - row.created_s, 0.0))
        if row.run is None:
            table.add_row(Text(row.name), "", "", age, Text(f"damaged: {row.trouble}", style="red"))
            continue
        done = f"{row.run.done}/{len(row.run.stages)}"
        table.add_row(Text(row.name), row.run.plan.strategy, done, age, _state(row.run))
    console.print(table)


def _state(run: RunStanding) -> Text:
    from rich.text import Text

    if run.state == "running" and run.driver is not None:
        return Text(f"running, by {str(run.driver).partition(' since ')[0]}", style="bold")
    if run.state == "detached":
        return Text(f"detached: nobody drives it{', its jobs go on' if run.has_jobs else ''}", style="yellow")
    return Text(
        f"{run.state}{f': {run.reason}' if run.reason else ''}", style="green" if run.state == "completed" else "red"
    )
