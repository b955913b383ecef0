"""A workflow with branches of several widths that meet again, as in many WfFormat instances."""

from __future__ import annotations

from asa.workflow import Stage, Workflow

_STAGES = (
    # name, share of the peak, seconds, predecessors: as in a comparison of genomes
    ("split", 0.0, 120.0, ()),
    ("align", 1.0, 1500.0, ("split",)),
    ("sort", 0.25, 600.0, ("split",)),
    ("index", 0.0, 300.0, ("split",)),
    ("call", 0.5, 900.0, ("align", "index")),
    ("merge", 0.0, 240.0, ("call", "sort")),
    ("report", 0.0, 60.0, ("merge", "index")),
)


def graph(cores: int) -> Workflow:
    """Build the workflow for a peak core count: three branches, the widest of which takes all cores, and a join.

    Examples
    --------
    >>> flow = graph(112)
    >>> len(flow.stages), flow.stages["sort"].cores, flow.critical_path_s
    (7, 28, 2820.0)
    """
    stages = [
        Stage(
            name,
            cores=max(round(share * cores), 1),
            walltime_s=_request_s(run_s),
            expected_run_s=run_s,
            after=after,
            command=name,
        )
        for name, share, run_s, after in _STAGES
    ]
    return Workflow("graph", stages)


def _request_s(run_s: float) -> float:
    """Return a walltime of 1.5 times the run time, rounded up to five minutes."""
    return -(-1.5 * run_s // 300) * 300.0
