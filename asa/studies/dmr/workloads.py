"""The paper's workloads (sections 7.1, 7.4 and 7.5), and their measures.

The preliminary workloads are of FS jobs of up to 20 nodes, with sizes and run times from Feitelson's model. The paper
does not say on how many nodes they ran. Here it is 20, FS's maximum in Table 1: on 64 nodes, fixed workloads of 10 to
400 jobs would use between 23 and 91 %, although Table 3 has a deviation of 5. The model has no unit of time: here it is
10 minutes, and an iteration takes at most a minute. So jobs take on average as long as Table 4's fixed ones, and fixed
workloads use 80 % of the nodes (84 % in Table 3). Without the upper bound of an iteration they would use 71 %.

The throughput workloads are of CG, Jacobi and N-body, on 64 nodes; these ask for their maximum. The application is
drawn for each job that is not a repetition; then the jobs are put into random order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from asa.backends.dmr.applications import CG, FS, JACOBI, N_BODY, Application, ApplicationKind, MalleableJob, sleep
from asa.studies.dmr.cluster import JobRecord

from .feitelson import draw

NODES = 64
PRELIMINARY_JOBS = (10, 25, 50, 100, 200, 400)
THROUGHPUT_JOBS = (50, 100, 200, 400)
_UNIT_S = 600.0
_LONGEST_S = 60.0 * FS.iterations


@dataclass(frozen=True, slots=True)
class MalleableWorkload:
    """Jobs, and the number of nodes that they run on."""

    nodes: int
    jobs: tuple[MalleableJob, ...]


def preliminary(jobs: int, seed: int, kind: ApplicationKind) -> MalleableWorkload:
    """Return a workload of FS jobs (section 7.4)."""
    most = FS.wish.maximum
    drawn = draw(jobs, most, random.Random(seed))
    return MalleableWorkload(
        most,
        tuple(
            MalleableJob(
                number,
                arrival.submit_s,
                sleep(min(arrival.run * _UNIT_S, _LONGEST_S), arrival.nodes),
                arrival.nodes,
                kind,
            )
            for number, arrival in enumerate(drawn)
        ),
    )


def throughput(
    jobs: int, seed: int, kind: ApplicationKind, *, applications: Sequence[Application] = (CG, JACOBI, N_BODY)
) -> MalleableWorkload:
    """Return a workload of the three applications (section 7.5)."""
    rng = random.Random(seed)
    drawn = list(draw(jobs, NODES, rng))
    chosen = [rng.choice(applications) for _ in drawn]
    sorted_at_random = [chosen[arrival.first] for arrival in drawn]
    rng.shuffle(sorted_at_random)
    return MalleableWorkload(
        NODES,
        tuple(
            MalleableJob(number, arrival.submit_s, application, application.wish.maximum, kind)
            for number, (arrival, application) in enumerate(zip(drawn, sorted_at_random, strict=True))
        ),
    )


@dataclass(frozen=True, slots=True)
class Measures:
    """The figures of Tables 3 and 4 for a workload."""

    utilisation: float  # percent of the nodes allocated, from the first submission to the last end
    waiting: float  # mean over jobs, in seconds
    execution: float
    completion: float
    whole: float  # seconds from the first submission to the last end (Fig. 4)


def measure(records: Sequence[JobRecord], nodes: int) -> Measures:
    """Compute the figures of a workload."""
    whole_s = max(record.end_s for record in records) - min(record.job.submit_s for record in records)
    wait_s = sum(record.wait_s for record in records) / len(records)
    run_s = sum(record.run_s for record in records) / len(records)
    held = sum(record.node_s for record in records) / (nodes * whole_s)
    return Measures(100 * held, wait_s, run_s, wait_s + run_s, whole_s)
