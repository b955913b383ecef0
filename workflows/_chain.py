"""Building a chain of parallel and sequential stages from fitted times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asa.workflow import Stage, Workflow

from .paper import divide, peak_times, requested_walltime_s


@dataclass(frozen=True, slots=True)
class Link:
    """One stage of a chain."""

    name: str
    parallel: bool  # whether it takes all cores, or one
    share: float  # of the seconds of its kind


def chain(name: str, cores: int, links: Sequence[Link]) -> Workflow:
    """Build the workflow whose parallel and sequential seconds are those fitted to the paper at this core count."""
    sequential = [link.share for link in links if not link.parallel]
    parallel = [link.share for link in links if link.parallel]
    fit = peak_times(name, cores, min_sequential_s=len(sequential))
    wide = iter(divide(max(fit.parallel_s, len(parallel)), parallel))
    narrow = iter(divide(fit.sequential_s, sequential))
    stages: list[Stage] = []
    for link in links:
        run_s = float(next(wide if link.parallel else narrow))
        stages.append(
            Stage(
                link.name,
                cores=cores if link.parallel else 1,
                walltime_s=requested_walltime_s(run_s),
                expected_run_s=run_s,
                after=(stages[-1].name,) if stages else (),
                command=link.name,
            )
        )
    return Workflow(name, stages, walltime_s=requested_walltime_s(sum(stage.expected_s for stage in stages)))
