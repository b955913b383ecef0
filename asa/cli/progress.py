"""A bar for each phase of what takes long, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["with_progress"]

_T = TypeVar("_T")


def with_progress(work: Callable[[Callable[[str, int, int], None]], _T]) -> _T:
    """Do some work that tells a phase, how much of it is done, and of how much."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        tasks: dict[str, Any] = {}

        def on_progress(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=of)
            progress.update(tasks[what], completed=done)

        return work(on_progress)
