"""Arguments that several commands of ``asa dras`` take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asa.core.drawing import check_figure_path, make_figure_folder
from asa.units import MAX_CORES, MAX_DAYS

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A workload log (SWF, plain or .gz); cori, drawn from a model; or hpc2n or uppmax, the built-in model.",
        metavar="TRACE",
    ),
]
CoresOption = Annotated[
    int | None,
    typer.Option(
        help="Processors of a log's machine, if its header does not say, or of a smaller hpc2n or uppmax.",
        max=MAX_CORES,
    ),
]
TrainDaysOption = Annotated[
    int | None,
    typer.Option(
        help="Agents learn from so many of the log's first days. [default: 90; 21 of cori's 63]",
        min=1,
        max=MAX_DAYS,
        show_default=False,
    ),
]
ValidateDaysOption = Annotated[
    int | None,
    typer.Option(
        help="The best is chosen by so many days after these. [default: 30; of cori 7]",
        min=1,
        max=MAX_DAYS,
        show_default=False,
    ),
]


def figure_file(plot: Path | None, name: str) -> Path | None:
    """Return the path of a figure: a file, or a file with this name in a folder, which is made."""
    if plot is None:
        return None
    if plot.is_dir() or not plot.suffix:
        make_figure_folder(plot)
        plot /= name
    check_figure_path(plot)
    return plot
