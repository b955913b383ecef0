"""The README's picture: the same Montage run asked for in four ways, and what each of its jobs did when.

A row is a job. It waits in the queue, then holds its cores; the dark part is what its stages use of them. Drawn is the
replication, of the hundred of `make demo SEEDS=100`, in which all four makespans are nearest to their medians. In the
fourth way the parallel stages may be asked for in any of the widths at which the ASA paper ran them.

    python docs/picture.py [FILE.svg [REPLICATIONS]]
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path

from asa.backends.simulated import SimulatedSite
from asa.workflows import montage

from asa import Workflow
from asa.core.console import Console
from asa.metrics import RunMetrics
from asa.studies.compare.study import CompareRun, Comparison, compare
from asa.timeline import Lane
from asa.units import format_duration

SYSTEM, CORES, REPLICATIONS = "uppmax", 160, 100
WIDTHS = (28, 56, 112, 160, 320, 640)
ESTIMATOR, HISTORY = "asa-queue", 100
TITLES = {
    "big-job": "Big Job: one wait, and cores that idle where a stage needs one",
    "per-stage": "Per-Stage: no idle cores, and a wait for every stage",
    "asa": "ASA: each stage asked for ahead of time, by its predicted wait",
    "asa-plan": "asa-plan: how wide each stage is, and which share a job, by predicted waits",
}
WIDTH, LEFT, RIGHT, ROW, HEAD = 760, 142, 16, 17, 34
STYLE = """
.paper{fill:#fff}.ink{fill:#1b1f24}.faint{fill:#5b6470}.rule{stroke:#d5dae0}
.pending{fill:#c3c8ce}.held{fill:#f6cf9b}.running{fill:#0072b2}
@media (prefers-color-scheme:dark){
.paper{fill:#14171b}.ink{fill:#e7eaee}.faint{fill:#a2abb6}.rule{stroke:#363d46}
.pending{fill:#5a636e}.held{fill:#8a6230}.running{fill:#4aa3df}}
text{font:12px system-ui,"Segoe UI","Helvetica Neue",Arial,sans-serif}
.strong{font-weight:600;font-size:13px}
"""


def comparison(seeds: Sequence[int]) -> Comparison:
    """Say what is run: all ways of asking at each of some seeds; only the last of them chooses widths."""
    flow = partial(montage, widths=WIDTHS)
    site = SimulatedSite(SYSTEM)
    return Comparison(flow, site, (CORES,), tuple(TITLES), tuple(seeds), estimator=ESTIMATOR, history=HISTORY)


def most_typical(runs: Iterable[CompareRun]) -> int:
    """Find the replication in which the makespan that is farthest from its median is nearest to it."""
    makespans_s: dict[str, dict[int, float]] = {}
    for run in runs:
        makespans_s.setdefault(run.strategy, {})[run.seed] = metrics_of(run).makespan_s
    medians_s = {name: statistics.median(of.values()) for name, of in makespans_s.items()}

    def off(seed: int) -> float:
        return max(abs(math.log(of[seed] / medians_s[name])) for name, of in makespans_s.items())

    return min(makespans_s[next(iter(makespans_s))], key=off)


def metrics_of(run: CompareRun) -> RunMetrics:
    """Give what a run took and cost."""
    if run.metrics is None:
        raise SystemExit(f"A run of {run.strategy} did not complete: {run.reason}")
    return run.metrics


def row(flow: Workflow, lane: Lane, y: float, x: tuple[float, float]) -> Iterator[str]:
    """Draw a job: what it waited, what it held, and what its stages used of that."""
    more = len(lane.stages) - 1
    name = "all nine stages" if more == len(flow.stages) - 1 else lane.stages[0] + (f" + {more}" if more else "")
    yield f'<text x="{LEFT - 34}" y="{y + 11:.1f}" text-anchor="end" class="ink">{escape(name)}</text>'
    yield f'<text x="{LEFT - 6}" y="{y + 11:.1f}" text-anchor="end" class="faint">{lane.cores}</text>'
    begin_s, scale = x
    for span in lane.spans:
        at, wide = LEFT + scale * (span.begin_s - begin_s), max(scale * (span.end_s - span.begin_s), 0.8)
        kind = "held" if span.kind in ("held", "running") else "pending"
        high = 5.0 if kind == "pending" else ROW - 4.0
        yield f'<rect x="{at:.1f}" y="{y + 7 - high / 2:.1f}" width="{wide:.1f}" height="{high}" class="{kind}"/>'
        if span.stage:
            used = sum(flow.stages[stage].cores_on(1) for stage in span.stage.split("+")) / span.cores
            part = max((ROW - 4.0) * min(used, 1.0), 1.6)
            top = y + 7 + (ROW - 4.0) / 2 - part
            yield f'<rect x="{at:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{part:.1f}" class="running"/>'


def draw(flow: Workflow, shown: Sequence[CompareRun]) -> str:
    """Draw one way of asking below the other, over one axis of time."""
    longest_s = max(metrics_of(run).makespan_s for run in shown)
    scale = (WIDTH - LEFT - RIGHT) / longest_s
    shapes, y = [], 30.0
    for run in shown:
        took = metrics_of(run)
        numbers = f"{format_duration(took.makespan_s)}, {took.core_hours:.1f} core-hours"
        shapes.append(f'<text x="12" y="{y + 20}" class="ink strong">{escape(TITLES[run.strategy])}</text>')
        shapes.append(f'<text x="{WIDTH - RIGHT}" y="{y + 20}" text-anchor="end" class="ink">{numbers}</text>')
        y += HEAD
        assert run.timeline is not None  # of the first seed there is one
        begin_s = run.timeline.begin_s
        for lane in run.timeline.lanes:
            shapes += row(flow, lane, y, (begin_s, scale))
            y += ROW
    grid = []
    for minutes in range(0, int(longest_s / 60) + 1, 10):
        at = LEFT + scale * 60 * minutes
        grid.append(f'<line x1="{at:.1f}" y1="30" x2="{at:.1f}" y2="{y + 4}" class="rule"/>')
        grid.append(f'<text x="{at:.1f}" y="{y + 18}" text-anchor="middle" class="faint">{minutes}</text>')
    where = "minutes since submission, on a simulated centre; beside each name: its cores"
    grid.append(f'<text x="{LEFT}" y="{y + 36}" class="faint">{where}</text>')
    legend = [("pending", 12, "waits in the queue"), ("held", 162, "holds idle cores"), ("running", 300, "runs")]
    for kind, at, words in legend:
        grid.append(f'<rect x="{at}" y="9" width="14" height="11" class="{kind}"/>')
        grid.append(f'<text x="{at + 20}" y="19" class="ink">{words}</text>')
    words = "; ".join(f"{TITLES[run.strategy]}: {format_duration(metrics_of(run).makespan_s)}" for run in shown)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 46:.0f}" width="{WIDTH}" role="img">'
        f"<title>{escape(words)}</title><style>{STYLE}</style>"
        f'<rect width="100%" height="100%" rx="8" class="paper"/>{"".join(grid)}{"".join(shapes)}</svg>\n'
    )


def main(target: str = "out/picture.svg", replications: str = str(REPLICATIONS)) -> None:
    """Run, choose and draw."""
    replication = most_typical(compare(comparison(range(int(replications)))))
    shown = compare(comparison([replication]))
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(draw(montage(CORES), shown))
    Console().print(f"Replication {replication} of {replications} drawn to {target}", highlight=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
