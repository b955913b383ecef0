"""``asa runs`` and ``asa status``: show the state of runs, read from their folders alone."""

from __future__ import annotations

import shlex
import sys
import time
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.runs import RunArgument, RunsOption, open_run, print_document, runs_folder
from asa.core import owned
from asa.core.documents import print_json
from asa.core.late import dataclass
from asa.core.options import Output, OutputOption
from asa.errors import AsaError, InputError, OwnerError
from asa.units import format_duration

if TYPE_CHECKING:
    from rich.text import Text

    from asa.cli.standing import RunStanding
    from asa.runner import RunFolder

_SHOWN = 20
_WATCH_S, _MAX_WATCH_S = 2.0, 30.0
_COLUMNS = ("Run", "Strategy", "Done", "Age", "State")
_NUMBERS = {"Done", "Age"}
_SPARE = ("Strategy", "Age", "Done")  # left out first if space is short
_GAP, _MIN_STATE = 2, 20


def status(
    run: RunArgument = "",
    watch: Annotated[bool, typer.Option("--watch", help="Update the display until the run ends.")] = False,
    output: OutputOption = Output.TABLE,
    runs: RunsOption = None,
) -> None:
    """Show the state of a run: each stage, what it waits for, and how old this information is.

    It only reads the run's folder: neither the client nor the batch system is asked.

    Exit codes: 0 done, 1 the run's folder cannot be read, 2 the input cannot be used, 130 interrupted.
    """
    from asa.cli.screen import draw
    from asa.cli.standing import standing_of
    from asa.core.console import Console

    folder = open_run(runs, run)
    if watch and output is Output.TABLE:
        _watch(folder)
        return
    while True:
        standing = standing_of(folder, time.time())
        if output is Output.JSON:
            print_json(standing.as_dict(), indent=None if watch else 1)
        else:
            console = Console(highlight=False)
            console.print(draw(standing, console.width))
        if not watch or standing.is_over:
            return
        time.sleep(_WATCH_S)


def _watch(folder: RunFolder) -> None:
    """Redraw the table until the run ends, less often while nothing changes; without a terminal print only the last."""
    from rich.live import Live

    from asa.cli.screen import draw
    from asa.cli.standing import standing_of
    from asa.core.console import Console

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        before, pause_s = None, _WATCH_S
        while True:
            standing = standing_of(folder, time.time())
            live.update(draw(standing, console.width, console.height), refresh=True)
            if standing.is_over:
                return
            now = (standing.state, [stage.state for stage in standing.stages])
            pause_s = _WATCH_S if now != before else min(1.2 * pause_s, _MAX_WATCH_S)
            before = now
            time.sleep(pause_s)


# ---------------------------------------------------------------------- all runs


@dataclass(frozen=True, slots=True)
class _Row:
    """A run in the list; `trouble`: why it cannot be read, `owner`: its owner, if another user."""

    name: str
    created_s: float
    run: RunStanding | None = None
    trouble: str = ""
    owner: str = ""
    is_private: bool = False  # it belongs to another user, and must not be read by others

    def as_dict(self) -> dict[str, Any]:
        whose = {"owner": self.owner} if self.owner else {}
        if self.run is None:
            state = "private" if self.is_private else "damaged"
            document = {"run": self.name, "state": state, "trouble": self.trouble, "created_s": self.created_s}
            return {**document, **whose}
        fields = self.run.as_dict()
        stages = {"stages": len(self.run.stages), "stages_done": self.run.done}
        kept = ("run", "folder", "workflow", "strategy", "backend", "state", "reason", "driver", "created_s")
        refusal = {key: fields[key] for key in ("refusal", "remedy")} if self.run.refusal else {}
        return {**{key: fields[key] for key in kept}, **stages, **whose, **refusal}


def runs(
    every: Annotated[bool, typer.Option("--all", help=f"Show all, not only the latest {_SHOWN}.")] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the folders of your runs that ended longer ago than --older.")
    ] = False,
    older: Annotated[
        str, typer.Option(help="Of --delete: how long ago, as 30d or 12h.", metavar="DURATION", show_default=False)
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Of --delete: do not ask.")] = False,
    output: OutputOption = Output.TABLE,
    runs: RunsOption = None,
) -> None:
    """List the runs: their state, whether a client is at work on them, and how far they are.

    A run that cannot be read is listed with the reason.

    With --delete, list your runs that are old enough, then delete those that have ended, once you agree. A run is kept
    if it has not ended, a client is at work on it, or a job of it may still be in the queue. What was learned of waits
    and run times stays: that is in the bank.

    Example: `asa runs --delete --older 30d`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    if delete or older:
        from asa.cli.deleting import delete_runs

        if not delete:
            raise InputError("is only for --delete", where="--older", hint="Give --delete, too, or leave it out.")
        delete_runs(runs_folder(runs), older, yes=yes, output=output)
        return
    from asa.runner import run_paths
    from asa.runner.folder import own_among, runs_of_another

    runs_in = runs_folder(runs)
    paths = run_paths(runs_in)
    rows = map(_row, paths)
    if every:
        shown = sorted(rows, key=lambda row: row.created_s)
    else:  # read one by one, so that only one run's records are in memory
        shown = nlargest(_SHOWN, rows, key=lambda row: row.created_s)[::-1]
    if output is Output.JSON:
        print_document({"runs": [row.as_dict() for row in shown]})
    elif not paths:
        sys.stdout.write(f"There are no runs in {runs_in}. Start one with: asa run FILE.toml\n")
    else:
        _print_table(shown)
        if len(shown) < len(paths):
            sys.stdout.write(f"The latest {len(shown)} of {len(paths)}; --all shows the others.\n")
    theirs, owner = runs_of_another(runs_in)
    if owner and output is not Output.JSON:
        mine = f", and {n_own} of yours" if (n_own := own_among(theirs)) else ""
        sys.stdout.write(f"Runs of {owner} are in {theirs}{mine}: asa runs --runs {shlex.quote(str(theirs))}\n")


def _row(path: Path) -> _Row:
    from asa.cli.standing import standing_of
    from asa.runner import open_listed

    created_s, owner = 0.0, ""
    try:
        about = path.stat()
        created_s, owner = about.st_mtime, owned.whose(about)
        folder = open_listed(path)
        created_s = folder.plan.created_s
        return _Row(path.name, created_s, standing_of(folder, time.time()), owner=folder.owner)
    except OwnerError as error:
        return _Row(path.name, created_s, trouble=error.message, owner=owner, is_private=True)
    except AsaError as error:
        where = f"{error.where}: " if error.where else ""
        return _Row(path.name, created_s, trouble=f"{where}{error.message}", owner=owner)
    except OSError as error:
        return _Row(path.name, created_s, trouble=f"{error.filename or path}: {error.strerror or error}", owner=owner)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        # nothing in another user's run is reliable: list it with the error
        return _Row(path.name, created_s, trouble=f"cannot be understood: {type(error).__name__}: {str(error)[:200]}")


def _print_table(rows: list[_Row]) -> None:
    from rich.table import Table

    from asa.core.console import Console

    console = Console(highlight=False)
    now_s = time.time()
    lines = [_cells(row, now_s) for row in rows]
    headings = _headings(lines, console.width) if console.is_terminal else list(_COLUMNS)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for heading in headings:
        is_state = heading == "State"
        table.add_column(
            heading, justify="right" if heading in _NUMBERS else "left", overflow="fold", no_wrap=not is_state
        )
    for cells in lines:
        table.add_row(*(cells[heading] for heading in headings))
    if console.is_terminal:
        console.print(table)
        return
    # for programs: one line per run, however long, without padding at the end
    console.width = sum(max(cells[heading].cell_len for cells in lines) + _GAP + 8 for heading in headings)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _cells(row: _Row, now_s: float) -> dict[str, Text]:
    from rich.text import Text

    known = row.run
    return {
        "Run": Text(row.name),
        "Strategy": Text(known.plan.strategy if known else ""),
        "Done": Text(f"{known.done}/{len(known.stages)}" if known else ""),
        "Age": Text(format_duration(max(now_s - row.created_s, 0.0))),
        "State": _state(known, row.owner) if known else _of_none(row),
    }


def _headings(lines: list[dict[str, Text]], width: int) -> list[str]:
    """Choose the columns that fit next to the state, which may be wrapped."""
    chosen = list(_COLUMNS)
    for spare in _SPARE:
        fixed = (max(len(h), *(cells[h].cell_len for cells in lines)) + _GAP for h in chosen if h != "State")
        if sum(fixed) + _MIN_STATE <= width:
            break
        chosen.remove(spare)
    return chosen


def _of_none(row: _Row) -> Text:
    from rich.text import Text

    if row.is_private:
        return Text(row.trouble)
    if row.owner:
        return Text(f"belongs to {row.owner}: {row.trouble}")
    return Text(f"damaged: {row.trouble}", style="red")


def _state(run: RunStanding, owner: str) -> Text:
    from rich.text import Text

    if owner:
        return Text(f"{run.state}; belongs to {owner}")
    if run.refusal:
        return Text(f"{run.state}, but no client may go on with it: {run.refusal}. {run.remedy}", style="red")
    if run.state == "running" and run.driver is not None:
        return Text(f"running, by {str(run.driver).partition(' since ')[0]}", style="bold")
    if run.state == "detached":
        return Text(run.detached, style="yellow")
    return Text(
        f"{run.state}{f': {run.reason}' if run.reason else ''}", style="green" if run.state == "completed" else "red"
    )
