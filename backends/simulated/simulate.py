"""``asa simulate``: schedule a whole log, and say how it went."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .swf import Trace

__all__ = ["simulate", "summary"]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_SHORTEST_S = 10  # shorter runs count as so long in the bounded slowdown


def simulate(
    trace: Annotated[Path, typer.Argument(help="Workload log (SWF, plain or .gz).", metavar="TRACE")],
    scheduler: Annotated[str, typer.Option(help="easy, or fcfs (no backfilling).")] = "easy",
    preset: Annotated[str, typer.Option(help="Whose conventions: default, pyss or cqsim.")] = "default",
    trace_cores: Annotated[
        int | None, typer.Option(help="Processors of the log's machine, if its header does not say.", min=1)
    ] = None,
    starts: Annotated[Path | None, typer.Option(help="Write job_id,start of each job here.", metavar="FILE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of tables.")] = False,
) -> None:
    """Schedule a whole log and print waits, slowdowns and utilisation.

    Example: `asa simulate CTC-SP2.swf.gz --starts starts.csv`
    """
    from .replay import preset_rules, replay
    from .swf import read_swf

    if scheduler not in ("easy", "fcfs"):
        raise InputError(f"there is no scheduler {scheduler!r}", where="--scheduler", hint="Known: easy, fcfs.")
    rules = replace(preset_rules(preset), backfill=scheduler == "easy")
    log = read_swf(trace, cores=trace_cores)
    table = log.table
    start = replay(table.submit, table.run, table.request, table.cores, log.cores, rules)
    if starts is not None:
        _write_starts(starts, log, start)
    if as_json:
        import json

        sys.stdout.write(json.dumps(summary(log, start), indent=1) + "\n")
    else:
        _print(log, start, f"{log.path.name}: {scheduler}, {preset} conventions")


def summary(log: Trace, start: NDArray[np.int64]) -> dict[str, Any]:
    """Sum a schedule up.

    Returns
    -------
    dict
        ``jobs``, ``cores``, ``mean_wait_s``, ``median_wait_s``, ``p95_wait_s``, ``bounded_slowdown`` (runs below 10 s
        count as 10 s), ``utilisation``, ``mean_queue_length``, ``sizes`` (the waits by width) and ``oddities``.
    """
    import numpy as np

    table = log.table
    wait = start - table.submit
    span = max(int((start + table.run).max() - table.submit.min()), 1)
    sizes = np.ceil(np.log2(table.cores)).astype(np.int64)
    return {
        "jobs": len(table),
        "cores": log.cores,
        **_waits(wait),
        "bounded_slowdown": float(np.maximum(1.0, (wait + table.run) / np.maximum(table.run, _SHORTEST_S)).mean()),
        "utilisation": float((table.run * table.cores).sum() / (log.cores * span)),
        "mean_queue_length": float(wait.sum() / span),
        "sizes": [
            {"most_cores": int(2**size), "jobs": int((sizes == size).sum()), **_waits(wait[sizes == size])}
            for size in np.unique(sizes)
        ],
        "oddities": log.oddities,
    }


def _waits(wait: NDArray[np.int64]) -> dict[str, float]:
    import numpy as np

    median, p95 = np.quantile(wait, [0.5, 0.95])
    return {"mean_wait_s": float(wait.mean()), "median_wait_s": float(median), "p95_wait_s": float(p95)}


def _write_starts(path: Path, log: Trace, start: NDArray[np.int64]) -> None:
    rows = zip(log.job_ids.tolist(), start.tolist(), strict=True)
    try:
        path.write_text("job_id,start\n" + "".join(f"{job},{begin}\n" for job, begin in rows))
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=f"--starts {path}", hint="Name another file."
        ) from error


def _over_time(log: Trace, start: NDArray[np.int64], width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean share of busy cores, and mean number of waiting jobs, in so many equal parts of the schedule's span."""
    import numpy as np

    table = log.table
    end = start + table.run
    edges = np.linspace(float(table.submit.min()), float(end.max()), width + 1)

    def integral(since: NDArray[np.int64], until: NDArray[np.int64], weight: NDArray[np.int64]) -> NDArray[np.float64]:
        """Integral up to each edge of the sum of weights that are there from `since` to `until`."""
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
    busy = np.diff(integral(start, end, table.cores)) / (part * log.cores)
    waiting = np.diff(integral(table.submit, start, np.ones_like(start))) / part
    return busy, waiting


def _print(log: Trace, start: NDArray[np.int64], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    told = summary(log, start)
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for heading in ("Cores", "Jobs", "Mean wait s", "Median", "95 %"):
        table.add_column(heading, justify="right")
    for size in told["sizes"]:
        few = size["most_cores"] // 2 + 1
        label = f"{few}-{size['most_cores']}" if few < size["most_cores"] else str(size["most_cores"])
        table.add_row(label, f"{size['jobs']:,}", *_shown(size))
    table.add_section()
    table.add_row("all", f"{told['jobs']:,}", *_shown(told), style="bold")
    console = Console()
    console.print(table)
    console.print(
        f"bounded slowdown {told['bounded_slowdown']:.2f}, utilisation {100 * told['utilisation']:.1f} %, "
        f"mean queue {told['mean_queue_length']:.1f} jobs",
        highlight=False,
    )
    busy, waiting = _over_time(log, start, min(console.width - 28, 100))
    console.print(f"busy cores   {_spark(busy, 1.0)}  of {log.cores}", highlight=False)
    console.print(f"waiting jobs {_spark(waiting, waiting.max())}  up to {waiting.max():.0f}", highlight=False)
    for words, count in log.oddities.items():
        console.print(f"[dim]Log: {count} jobs {words}[/]", highlight=False)


def _shown(waits: dict[str, Any]) -> list[str]:
    return [f"{waits[key]:,.0f}" for key in ("mean_wait_s", "median_wait_s", "p95_wait_s")]


def _spark(values: NDArray[np.float64], most: float) -> str:
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(round(top * value / most) if most > 0 else 0, top)] for value in values.tolist())
