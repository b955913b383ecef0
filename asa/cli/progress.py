"""Progress of studies: a bar for each phase, or an occasional line where stdout is no terminal."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol, TypeVar

from asa.core.documents import print_json


class _StudyFindings(Protocol):
    def as_dict(self) -> dict[str, Any]: ...


_T = TypeVar("_T")
_F = TypeVar("_F", bound=_StudyFindings)
_EVERY_S = 20.0  # between two lines, without a terminal
_COMPILES = "compiled"  # in the name of a phase that begins with a long silence, of which a line tells at once


def working(text: str) -> AbstractContextManager[Any]:
    """Show a spinner with a text on a terminal."""
    from rich.text import Text

    from asa.core.console import Console

    console = Console(stderr=True)
    return console.status(Text(f"{text} ...")) if console.is_terminal else nullcontext()


def with_progress(work: Callable[[Callable[[str, int, int], None]], _T], *, kept: Path | None = None) -> _T:
    """Run a function that reports its phase, how much of it is done, and the total.

    `kept`: the file from which the command can continue after an interrupt, named in the message.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from asa.core.console import Console
    from asa.units import format_duration

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        tasks: dict[str, Any] = {}
        printed_s = begun_s = time.monotonic()

        def on_progress(what: str, done: int, of: int) -> None:
            nonlocal printed_s
            is_silent = _COMPILES in what and what not in tasks
            if not console.is_terminal and ((now_s := time.monotonic()) >= printed_s + _EVERY_S or is_silent):
                printed_s = now_s
                sys.stderr.write(f"{what}: {done} of {of}, after {format_duration(now_s - begun_s)}\n")
                sys.stderr.flush()
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=of)
            progress.update(tasks[what], completed=done)

        try:
            return work(on_progress)
        except KeyboardInterrupt:
            if kept is not None:
                progress.stop()
                again = shlex.join(["asa", *sys.argv[1:]])
                sys.stderr.write(f"asa: results so far are in {kept}; the same command continues from there: {again}\n")
            raise


def run_study(run: Callable[..., _T], *asked: Any, executor: str, jobs: int | None, kept: Path | None = None) -> _T:
    """Run a study on the executor that ``--executor`` names, and show its progress.

    `run`: the study; it is called with `asked`, and the fields of `asa.studies.harness.How`.
    `kept`: as for `with_progress`.
    """
    from asa.pool.executors import executor_of

    with executor_of(executor, jobs) as elsewhere:
        return with_progress(
            lambda on_progress: run(*asked, jobs=jobs, elsewhere=elsewhere, on_progress=on_progress), kept=kept
        )


def print_found(result: _F, shown: Callable[[_F], Any] = lambda result: result, *, as_json: bool) -> None:
    """Print a study's result as JSON, or as the table that `shown` makes of it."""
    if as_json:
        print_json(result.as_dict())
        return
    from asa.core.console import Console

    Console(highlight=False).print(shown(result))
