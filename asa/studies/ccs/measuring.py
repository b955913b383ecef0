"""``asa ccs bench`` and ``asa ccs drift``: the speed of the planner, and the accuracy of planned starts."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.core.options import Output, OutputOption
from asa.units import MAX_CORES, MAX_JOBS, format_duration

if TYPE_CHECKING:
    from .bench import PlannerFigure, Speed
    from .drift import Class, Drift


def bench(
    jobs: Annotated[
        int, typer.Option(help="In the plan, where the paper has 10,000.", min=100, max=1_000_000)
    ] = 10_000,
    plot: Annotated[
        Path | None, typer.Option(help="Draw what it takes to plan a request, by jobs in the plan.", metavar="FILE")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure the planner on a cluster like the paper's OCuLUS: 616 nodes, 9,920 cores, 32 GPUs.

    One process, one core; the paper's figures are of 8 pinned threads of C. Takes half a minute.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from .bench import measure

    if plot is not None:
        from asa.core.drawing import check_figure_path

        check_figure_path(plot)
    speed = measure(_say, jobs=jobs)
    if output is Output.JSON:
        sys.stdout.write(speed.as_json() + "\n")
    else:
        _print_speed(speed)
    if plot is not None:
        _draw(speed, plot)
        sys.stderr.write(f"Figure written to {plot}\n")


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")


def _print_speed(speed: Speed) -> None:
    from asa.studies.present import Table, console

    rows = [
        (
            figure.what,
            _figure(figure),
            f"{figure.papers:,g} {figure.unit}" if figure.papers is not None else "",
            f"{figure.times_papers:.1f}" if figure.times_papers is not None else "",
        )
        for figure in speed.figures
    ]
    out = console()
    out.print(Table(["What", "Here", "Paper", "Times"], rows, is_ruled=False))
    out.print(f"\nThe plan is {speed.weeks:.1f} weeks long, and its cores have {speed.slots} slots.")
    out.print(f"Threads could share at most {speed.threads_share:.0%} of planning a request.\n")
    for words, efforts in (
        ("More jobs, and so a longer plan:", speed.longer),
        ("The same work in more and more, smaller jobs:", speed.flat),
    ):
        cells = [(f"{effort.jobs:,}", str(effort.slots), f"{effort.plan_us:.0f}") for effort in efforts]
        headings = ["Jobs in the plan", "Slots", "To plan one, us"]
        out.print(words, Table(headings, cells, left=(), is_ruled=False), "", sep="\n")


def _figure(figure: PlannerFigure) -> str:
    return f"{figure.value:,.0f} {figure.unit}" if figure.value >= 100 else f"{figure.value:.3g} {figure.unit}"


def _draw(speed: Speed, path: Path) -> None:
    from asa.studies.present import Figure, Look, Panel, PlottedSeries, draw

    panels = []
    for title, efforts in (("more jobs, a longer plan", speed.longer), ("the same work in more jobs", speed.flat)):
        jobs = [effort.jobs for effort in efforts]
        took = PlottedSeries("us to plan a request", [effort.plan_us for effort in efforts], jobs)
        slots = PlottedSeries("slots", [effort.slots for effort in efforts], jobs)
        panels.append(Panel([took, slots], title, "jobs in the plan", y_limits=(0, None)))
    looks = {"us to plan a request": Look(marker="o"), "slots": Look("grey", ":", marker="s")}
    draw(Figure(panels, (8, 4), share_y="all", looks=looks), path)


def drift(
    log: Annotated[Path, typer.Argument(help="A workload log with requested and real run times (SWF, plain or .gz).")],
    depth: Annotated[
        int,
        typer.Option(help="When a job ends early, look at so many of those that wait; 0 for all.", min=0, max=MAX_JOBS),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the log as it would have been, for `asa evaluate` to learn its waits.", metavar="FILE"
        ),
    ] = None,
    trace_cores: Annotated[
        int | None,
        typer.Option(help="Processors of the log's machine, if its header does not say.", min=1, max=MAX_CORES),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure how far the starts promised at submission are from the real starts.

    A planning scheduler promises every job its start at once. When other jobs end early, it starts earlier; it never
    starts later.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.backends.simulated.swf import read_swf
    from asa.studies.present import print_json

    from .drift import drift as measure

    result = measure(read_swf(log, cores=trace_cores), most=depth or None, to=out)
    if output is Output.JSON:
        print_json(asdict(result))
    else:
        _print_drift(result)


def _print_drift(drift: Drift) -> None:
    from asa.studies.present import Table, console

    headings = ["Promised", "Jobs", "Promised, p50", "Waited, p50", "Kept %", "2x %", "Earlier by", "Error"]
    uppers = [format_duration(class_.above_s) for class_ in drift.classes[2:] if class_.above_s is not None]
    rows = [
        (_class(class_, upper), f"{class_.jobs:,}", *_row(class_))
        for class_, upper in zip(drift.classes, ["", *uppers, ""], strict=True)
    ]
    out = console()
    out.print(Table(headings, rows, wraps=range(1, len(headings)), is_ruled=False))
    words = (
        "\nPromised: the wait until the start that was promised. Kept: started then. Earlier by: mean. 2x: waited at",
        "least half as long as promised. Error: mean of |log10(promised / waited)|, waits",
        (
            "below 10 s taken as 10 s. "
            f"{drift.later or 'No'} job{'' if drift.later == 1 else 's'} started later than promised."
        ),
    )
    out.print(" ".join(words), style="dim")


def _class(group: Class, upper: str) -> str:
    if group.above_s is None:
        return "all"
    return f"{format_duration(group.above_s)} to {upper}" if upper else f"more than {format_duration(group.above_s)}"


def _row(group: Class) -> list[str]:
    return [
        format_duration(group.planned_s),
        format_duration(group.real_s),
        f"{100 * group.kept:.1f}",
        f"{100 * group.within_2x:.1f}",
        format_duration(group.early_s),
        f"{group.log10_error:.3f}",
    ]
