"""``asa simulate``: schedule a whole log, and summarize the schedule."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from asa.core.documents import print_json
from asa.core.files import in_words
from asa.core.options import Output, OutputOption
from asa.core.safe import writing_text
from asa.errors import InputError
from asa.units import format_duration

from .cores import slow
from .limits import MAX_CORES, NEVER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .policies import CoreMaker
    from .swf import Trace

_BLOCKS = " ▁▂▃▄▅▆▇█"
_PARTS_OF_A_FIGURE = 400
_ROWS_AT_ONCE = 50_000
_SHORTEST_S = 10  # bounded slowdown: shorter runs count as this


def simulate(
    trace: Annotated[Path, typer.Argument(help="Workload log (SWF, plain or .gz).", metavar="TRACE")],
    scheduler: Annotated[str, typer.Option(help="easy, fcfs, or another that `asa list` shows.")] = "easy",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            help="An option of the scheduler (see `asa list`), as in backfill=none; may be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Conventions of easy and fcfs: default, or those of pyss or cqsim.")
    ] = "default",
    trace_cores: Annotated[
        int | None,
        typer.Option(help="Processors of the log's machine, if its header does not say.", min=1, max=MAX_CORES),
    ] = None,
    exceed: Annotated[
        str,
        typer.Option(
            help="What to do with jobs that ran longer than requested: raise the request, kill the job, or keep both."
        ),
    ] = "raise",
    outages: Annotated[
        Path | None, typer.Option(help="Outages: a line begin_s,end_s,cores,drain for each.", metavar="FILE.csv")
    ] = None,
    starts: Annotated[
        Path | None,
        typer.Option(
            help="Write the start of each job to this file, as job_id,start; -1 if it never started.", metavar="FILE"
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw utilisation and queue over time (.png, .svg).", metavar="FILE")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Schedule a whole log, and print waits, slowdowns and utilisation.

    Example: `asa simulate CTC-SP2.swf.gz --starts starts.csv --plot ctc.png`

    Slurm's way: `asa simulate CTC-SP2.swf.gz --scheduler multifactor --option half_life_s=14d --option size=2000`
    """
    from asa.core.drawing import check_figure_path

    from .swf import read_swf

    rule: Literal["raise", "kill", "keep"]
    match exceed:
        case "raise" | "kill" | "keep" as rule:
            pass
        case _:
            raise InputError(f"{exceed!r} is no rule", where="--exceed", hint="Known: raise, kill, keep.")
    if plot is not None:
        check_figure_path(plot)
    if starts is not None and not starts.absolute().parent.is_dir():
        raise InputError("cannot be written: no such folder", where=f"--starts {starts}", hint="Make the folder first.")
    if exceed == "keep" and preset == "pyss":
        raise InputError(
            "pyss gives cores out again at their expected ends, and would give out more than there are",
            where="--preset pyss --exceed keep",
            hint="Use raise or kill.",
        )
    given = _settings(settings or [])
    if slow():
        sys.stderr.write(f"asa: {slow()}\n")
    log = read_swf(trace, cores=trace_cores, exceed=rule)
    done = schedule(log, scheduler, given, preset=preset, outages=outages)
    if starts is not None:
        _write_starts(starts, log, done.start)
    if output is Output.JSON:
        document = {"scheduler": scheduler, "settings": given, "preset": preset} | summary(done)
        print_json(document)
    else:
        _print(done, f"{log.path.name}: {scheduler}, {preset} conventions")
    if plot is not None:
        _draw(done, f"{log.path.name}: {scheduler}", plot)
        sys.stderr.write(f"Figure written to {plot}\n")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times at which the jobs of a log ran."""

    log: Trace
    start: NDArray[np.int64]  # seconds, in the order of its table; -1 for a job that could never start
    end: NDArray[np.int64]
    oddities: dict[str, int]  # number of affected jobs by description, besides the log's own oddities
    # for resized jobs: rows; and begin, end and cores of each period of constant width
    spans: tuple[NDArray[np.int64], ...] | None = None
    # for resources other than cores, by name: size, and the amount held by each job
    held: Mapping[str, tuple[int, NDArray[np.int64]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # attributes of the jobs that the scheduler invents


def schedule(
    log: Trace, name: str, settings: Mapping[str, str], *, preset: str = "default", outages: Path | None = None
) -> Schedule:
    """Schedule a log with a named scheduler.

    Raises `InputError`: a scheduler, setting or preset is unknown, or they cannot be combined.
    """
    from .replay import preset_rules, replay

    rules = preset_rules(preset)
    table = log.table
    if name in ("easy", "fcfs") and outages is None and not settings:
        chosen = replace(rules, backfill=name == "easy")
        start = replay(table.submit, table.run, table.request, table.cores, log.cores, chosen, once=True)
        return Schedule(log, start, start + table.run, {})
    if preset != "default":
        raise InputError(
            f"conventions of {preset} are those of easy and fcfs without outages",
            where="--preset",
            hint="Leave it out, or the other options.",
        )
    from .cluster import Cluster, Load, read_outages
    from .cores.general import GeneralCore
    from .policies import CoreMaker, scheduler

    policy = scheduler(name, settings)
    if (table.run > table.request).any():
        raise InputError(
            "this scheduler knows no runs beyond their requests", where="--exceed keep", hint="Use raise or kill."
        )
    if isinstance(policy, CoreMaker):
        return _by_its_own_core(log, policy, outages)
    away = read_outages(outages) if outages else ()
    core = GeneralCore(Load(table, Cluster({"cores": log.cores}, away), users=log.users), policy)
    core.run(NEVER - 1)
    met = {
        "never started": int((core.start < 0).sum()),
        "ended by an outage and requeued": int((core.requeues > 0).sum()),
    }
    return Schedule(log, core.start, core.end, {words: count for words, count in met.items() if count})


def _by_its_own_core(log: Trace, maker: CoreMaker, outages: Path | None) -> Schedule:
    from .cores.general import GeneralCore

    if outages is not None:
        raise InputError("this scheduler knows no outages", where="--outages", hint="Take another, or leave it out.")
    core = maker.core(log.cores, log.table, now=int(log.table.submit[0]) if len(log.table) else 0, users=log.users)
    core.run(NEVER - 1)
    end = getattr(core, "end", core.start + log.table.run)
    held = {}
    if isinstance(core, GeneralCore):
        asked = core.view.demand[: len(log.table)]
        held = {name: (whole, asked[:, index]) for index, (name, whole) in enumerate(core.pools.items()) if index}
    return Schedule(log, core.start, end, {}, getattr(core, "spans", None), held, maker.notes)


def _settings(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for key, sign, _ in pairs:
        if not sign or not key:
            raise InputError(f"{key!r} is no setting", where="--option", hint="Write it as --option name=value.")
    return {key.strip().replace("-", "_"): value.strip() for key, _, value in pairs}


def summary(done: Schedule) -> dict[str, Any]:
    """Summarize a schedule.

    Returns: ``trace``, ``jobs``, ``started``, ``cores``, ``mean_wait_s``, ``median_wait_s``, ``p95_wait_s``,
    ``bounded_slowdown`` (runs below 10 s count as 10 s), ``utilisation``, ``mean_queue_length``, ``sizes`` (the same by
    width), ``usages`` (of resources other than cores, by name), ``oddities`` and ``notes``. All but ``jobs`` cover only
    jobs that started, and the last run of requeued ones.
    """
    import numpy as np

    log, table = done.log, done.log.table
    submit, start, end, cores = _began(done)
    wait, run = start - submit, end - start
    if not len(wait):
        raise InputError("no job could ever start", where=str(log.path), hint="See what is away.")
    held = run * cores
    if done.spans is not None:
        rows, since, until, widths = done.spans
        held = np.bincount(rows, (until - since) * widths, len(table))[done.start >= 0]
    span = max(int(end.max() - table.submit.min()), 1)
    sizes = np.ceil(np.log2(cores)).astype(np.int8)

    def of(some: Any) -> dict[str, float]:
        waits, runs = wait[some], run[some]
        median, p95 = np.quantile(waits, [0.5, 0.95])
        return {
            "mean_wait_s": float(waits.mean()),
            "median_wait_s": float(median),
            "p95_wait_s": float(p95),
            "bounded_slowdown": float(np.maximum(1.0, (waits + runs) / np.maximum(runs, _SHORTEST_S)).mean()),
            "utilisation": float(held[some].sum() / (log.cores * span)),
            "mean_queue_length": float(waits.sum() / span),
        }

    return {
        "trace": str(log.path),
        "jobs": len(table),
        "started": len(wait),
        "cores": log.cores,
        **of(slice(None)),
        "sizes": [
            {"most_cores": 2 ** int(size), "jobs": int((sizes == size).sum()), **of(sizes == size)}
            for size in np.unique(sizes)
        ],
        "usages": {
            name: float(run @ amounts[done.start >= 0] / (whole * span)) for name, (whole, amounts) in done.held.items()
        },
        "oddities": log.oddities | done.oddities,
        "notes": list(done.notes),
    }


def _began(done: Schedule) -> tuple[NDArray[np.int64], ...]:
    """Submission, start, end and cores of the started jobs; no copies if all started."""
    table, began = done.log.table, done.start >= 0
    columns = (table.submit, done.start, done.end, table.cores)
    return columns if began.all() else tuple(column[began] for column in columns)


def _write_starts(path: Path, log: Trace, start: NDArray[np.int64]) -> None:
    with in_words("cannot be written", f"--starts {path}", "Name another file."), writing_text(path) as file:
        file.write("job_id,start\n")
        for first in range(0, len(start), _ROWS_AT_ONCE):
            part = slice(first, first + _ROWS_AT_ONCE)
            rows = zip(log.job_ids[part].tolist(), start[part].tolist(), strict=True)
            file.write("".join(f"{job},{begin}\n" for job, begin in rows))


def _over_time(done: Schedule, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean share of busy cores and mean number of waiting jobs in `width` equal parts of a span, and their edges."""
    import numpy as np

    submit, start, end, cores = _began(done)
    edges = np.linspace(float(submit.min()), float(end.max()), width + 1)

    def integral(since: NDArray[np.int64], until: NDArray[np.int64], weight: NDArray[np.int64]) -> NDArray[np.float64]:
        """Integral up to each edge of the sum of weights present from `since` to `until`."""
        total = np.zeros(len(edges))
        for moments, sign in ((since, 1.0), (until, -1.0)):
            order = np.argsort(moments)
            at, w = moments[order].astype(np.float64), weight[order] * sign
            count, moment = np.cumsum(w), np.cumsum(w * at)
            before = np.searchsorted(at, edges, side="right")
            reached = before > 0
            total[reached] += edges[reached] * count[before[reached] - 1] - moment[before[reached] - 1]
        return total

    part = edges[1] - edges[0]
    held = (start, end, cores) if done.spans is None else done.spans[1:]
    busy = np.diff(integral(*held)) / (part * done.log.cores)
    waiting = np.diff(integral(submit, start, np.ones_like(start))) / part
    return busy, waiting, edges


def _print(done: Schedule, title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from asa.core.console import Console

    measures = summary(done)
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for heading in ("Cores", "Jobs", "Mean wait", "Median", "95 %", "Slowdown", "Busy %", "Queue"):
        table.add_column(heading, justify="right")
    for size in measures["sizes"]:
        few = size["most_cores"] // 2 + 1
        label = f"{few}-{size['most_cores']}" if few < size["most_cores"] else str(size["most_cores"])
        table.add_row(label, f"{size['jobs']:,}", *_shown(size))
    table.add_section()
    table.add_row("all", f"{measures['started']:,}", *_shown(measures), style="bold")
    console = Console()
    console.print(table)
    console.print(
        "95 %: 95 % of the jobs waited no longer. Slowdown: mean of (wait + run time) / run time, run times below 10 s "
        "taken as 10 s. Queue: mean number of waiting jobs.",
        style="dim",
    )
    busy, waiting, _ = _over_time(done, max(min(console.width - 28, 100), 10))
    console.print(f"busy cores   {_spark(busy, 1.0)}  of {done.log.cores}", highlight=False)
    console.print(f"waiting jobs {_spark(waiting, waiting.max())}  up to {waiting.max():.0f}", highlight=False)
    for name, usage in measures["usages"].items():
        console.print(f"{name}: {100 * usage:.1f} % used", highlight=False)
    for words in measures["notes"]:
        console.print(words, style="dim", highlight=False)
    for words, count in measures["oddities"].items():
        console.print(f"Log: {count} jobs {words}", style="dim", highlight=False)


def _draw(done: Schedule, title: str, path: Path) -> None:
    """Utilisation above, waiting jobs below, over the days of the log; means of 400 parts."""
    from asa.core.drawing import new_figure, save_figure

    busy, waiting, edges = _over_time(done, _PARTS_OF_A_FIGURE)
    days = (edges - edges[0]) / 86400
    measures = summary(done)
    figure = new_figure(9.0, 4.8)
    above, below = figure.subplots(2, 1, sharex=True)
    above.stairs(100 * busy, days, fill=True, color="#0072b2", alpha=0.85)
    above.axhline(100 * measures["utilisation"], color="#444444", linewidth=0.8, linestyle="--")
    above.annotate(
        f"mean {100 * measures['utilisation']:.0f} %",
        (days[-1], 100 * measures["utilisation"]),
        ha="right",
        va="bottom",
    )
    above.set(ylabel=f"% of {done.log.cores:,} cores", ylim=(0, 105))
    below.stairs(waiting, days, fill=True, color="#d55e00", alpha=0.85)
    below.set(ylabel="waiting jobs", xlabel="days since the first submission", xlim=(0, days[-1]))
    for panel in (above, below):
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{title}; mean wait {format_duration(measures['mean_wait_s'])}, {measures['jobs']:,} jobs", x=0.01, ha="left"
    )
    save_figure(figure, path)


def _shown(of: dict[str, Any]) -> list[str]:
    waits = [format_duration(of[key]) for key in ("mean_wait_s", "median_wait_s", "p95_wait_s")]
    return [*waits, f"{of['bounded_slowdown']:.2f}", f"{100 * of['utilisation']:.1f}", f"{of['mean_queue_length']:.1f}"]


def _spark(values: NDArray[np.float64], most: float) -> str:
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(round(top * value / most) if most > 0 else 0, top)] for value in values.tolist())
