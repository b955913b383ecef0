"""Builds a chain of parallel and sequential stages from fitted times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asa.shapes import Moldable, RunAt
from asa.workflow import Stage, Workflow

from .paper import divide, peak_times, requested_walltime_s


@dataclass(frozen=True, slots=True)
class ChainStage:
    """One stage of a chain."""

    name: str
    parallel: bool  # whether it uses all cores, or one
    share: float  # of all parallel, or all sequential, seconds


def chain(name: str, cores: int, links: Sequence[ChainStage], widths: Sequence[int] = ()) -> Workflow:
    """Build the workflow whose parallel and sequential seconds are those fitted to the paper at this core count.

    With `widths`, its parallel stages may also be asked for in these widths. The sequential stages run as long as at
    this core count in any case. The parallel ones take the rest of the time that was fitted at their width, so that a
    job of all stages at some width runs as long as the workflow built for that width.
    """
    sequential = [link.share for link in links if not link.parallel]
    parallel = [link.share for link in links if link.parallel]
    fit = peak_times(name, cores, min_sequential_s=len(sequential))
    narrow = iter(divide(fit.sequential_s, sequential))

    def wide_s(width: int) -> list[int]:
        at_width = peak_times(name, width, min_sequential_s=len(sequential))
        return divide(max(at_width.execution_s - fit.sequential_s, len(parallel)), parallel)

    offered = tuple(dict.fromkeys((cores, *widths)))
    wide = zip(*map(wide_s, offered), strict=True)
    stages: list[Stage] = []
    for link in links:
        runs_s = next(wide) if link.parallel else (next(narrow),)
        moldable = None
        if link.parallel and len(offered) > 1:
            points = tuple(RunAt(width, float(run_s)) for width, run_s in zip(offered, runs_s, strict=True))
            asked = tuple((point.width, requested_walltime_s(point.run_s)) for point in points)
            moldable = Moldable(offered, points, walltime_at=asked)
        stages.append(
            Stage(
                link.name,
                cores=cores if link.parallel else 1,
                walltime_s=requested_walltime_s(runs_s[0]),
                expected_run_s=float(runs_s[0]),
                after=(stages[-1].name,) if stages else (),
                command=link.name,
                moldable=moldable,
            )
        )
    return Workflow(name, stages, walltime_s=requested_walltime_s(sum(stage.expected_s for stage in stages)))
