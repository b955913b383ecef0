"""``asa workload``: the workload model of the simulated centres, and its calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from asa.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from .calibrate import Measured

__all__ = ["app"]

app = typer.Typer(help="The workload model of the simulated centres.", no_args_is_help=True)

_System = Annotated[str, typer.Argument(help="hpc2n or uppmax.")]
_Seeds = Annotated[int, typer.Option(help="Simulated periods.", min=1)]
_Days = Annotated[int, typer.Option(help="Length of a period, after a week of warm-up.", min=1)]


@app.command()
def check(system: _System, seeds: _Seeds = 8, days: _Days = 28) -> None:
    """Print how near a centre's simulated waits come to those that the paper met there."""
    from .calibrate import measure
    from .presets import TARGETS, preset

    model = preset(system)
    with _processes() as executor:
        measured = measure(model, TARGETS[system], seeds=range(100, 100 + seeds), days=days, executor=executor)
    _show(f"{system}: mean wait of one job dropped in at random, {seeds} periods of {days} days", measured)


@app.command()
def calibrate(
    system: _System,
    trials: Annotated[int, typer.Option(help="Models to try.", min=1)] = 60,
    seeds: _Seeds = 4,
    days: _Days = 28,
    seed: Annotated[int, typer.Option(help="Of the search.", min=0)] = 0,
) -> None:
    """Search for the workload whose waits come nearest to the paper's, beginning from the present one.

    Takes some seconds a trial. What it finds is checked on periods that it was not fitted to.
    """
    from rich.console import Console

    from .calibrate import Step, measure
    from .calibrate import calibrate as search
    from .presets import TARGETS, preset

    console = Console()
    targets = TARGETS.get(system)
    start = preset(system)
    if targets is None:
        raise InputError("has no waits to aim at", where=f"system {system!r}", hint=f"Known: {', '.join(TARGETS)}.")

    def report(step: Step) -> None:
        if step.best:
            numbers = ", ".join(f"{name}={value:g}" for name, value in step.model.parameters().items())
            waits = ", ".join(f"{m.mean_wait_s:.0f} s" for m in step.measured)
            console.print(f"trial {step.number}: waits {waits}; misfit {step.misfit:.3f}; {numbers}", highlight=False)

    with _processes() as executor:
        best = search(
            start,
            targets,
            trials=trials,
            seeds=range(seeds),
            days=days,
            executor=executor,
            seed=seed,
            report=report,
        )
        measured = measure(best, targets, seeds=range(100, 108), days=days, executor=executor)
    _show(f"{system}: mean waits on 8 other periods of {days} days", measured)
    console.print(f"\nbest model: {best.parameters()}", highlight=False)


@contextmanager
def _processes() -> Iterator[Executor]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(mp_context=get_context("spawn")) as executor:
        yield executor


def _show(title: str, measured: Sequence[Measured]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for heading in (
        "Cores",
        "Walltime s",
        "Paper s",
        "Simulated s",
        "95 % +-",
        "Simulated / paper",
        "Had to wait",
    ):
        table.add_column(heading, justify="right")
    for m in measured:
        table.add_row(
            str(m.target.cores),
            str(m.target.walltime_s),
            f"{m.target.mean_wait_s:.0f}",
            f"{m.mean_wait_s:.0f}",
            "-" if math.isnan(m.half_width_s) else f"{m.half_width_s:.0f}",
            f"{m.ratio:.2f}",
            f"{100 * m.waited:.0f} %",
        )
    Console().print(table)
