"""The workloads on which methods are compared: for each of two machines the original one, and variants of its requests.

After Sections 4.1 and 5 of the paper, whose logs are not public. These differ from it as follows:

- *Theta* is a public log of 2022 (see `theta`), not that of 2018. It has no burst buffer requests. In the paper 17.18 %
  of the jobs ask for 1 GB to 285 TB, the amounts that Darshan recorded as moved. Here the same share of jobs asks, for
  amounts that are log-uniform in that range, which needs no free parameter. Unlike in reality they do not depend on the
  job.
- *Cori* is drawn from a model (see `cori`), since only summary figures of its log are public.
- Both have fewer jobs a day than the paper's. `asa.studies.bbsched.rates` draws as many, so that S4 wants as much burst
  buffer as in the paper.
- Requests are drawn by stratified sampling, so that even a few follow their distribution. Shares are exact to one job.
- S1 to S4 repeat the workload's own large requests, even if a short log has few of them. If it has none, they cannot be
  made.
- In S5 to S7 a job that is wider than half the machine asks for at most 128 GB of SSD per node, since it could not run
  otherwise.

The order of jobs by which they get requests, and their ranks among those that ask, are the same in all workloads of a
machine: a job that asks in S1 also asks in S2, S3 and S4, and for the same amount in S2. So workloads differ only in
their purpose, and not by chance. Everything is drawn from a seed. 1 TB is 1000 GB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asa.backends.bbsched.system import Integers, JobKind, System
from asa.backends.simulated.cluster import BURST_BUFFER
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.swf import Trace, read_swf
from asa.backends.simulated.table import JobTable
from asa.backends.simulated.workload import WorkloadModel
from asa.errors import InputError, UnknownNameError, near

from .paper import BUFFERS_TB
from .rates import Law, cori_at_rate, with_narrow_jobs, work_of_s4

BUFFER: Final = BURST_BUFFER
SSD: Final = "ssd"
NAMES: Final = (
    *(f"{machine}-{kind}" for machine in ("cori", "theta") for kind in ("original", "s1", "s2", "s3", "s4")),
    *(f"{machine}-{kind}" for machine in ("cori", "theta") for kind in ("s5", "s6", "s7")),
)
"""The ten workloads of Section 4, then the six of Section 5, which ask for SSD as well."""
CORI_DAYS: Final = 60
WARM_UP_DAYS: Final = 15
"""Half a month, as in the paper."""

_DAY = 86_400
_MAX_DAYS = 3650

_CORI_NODES = 12_076
_CORI_PROCESSORS = 64  # processors per node for Lublin and Feitelson's model: Cori's nodes have 32 or 68 cores
_BUFFERS_GB = {machine: 1000 * buffer_tb for machine, buffer_tb in BUFFERS_TB.items()}

_CORI_LAW: Law = ((0.004_14, 1, 1000), (0.001_99, 1001, 65_000), (0.000_05, 165_000, 165_000))
_THETA_LAW: Law = ((0.171_8, 1, 285_000),)

# S1 to S4: the share of jobs that ask, and the lower bound of their requests in GB
_STRESSED = {"s1": (0.5, 5000), "s2": (0.75, 5000), "s3": (0.5, 20_000), "s4": (0.75, 20_000)}
# S5 to S7: the share of jobs whose SSD request any node can serve
_DISKED = {"s5": 0.8, "s6": 0.5, "s7": 0.2}
_SMALL_GB, _LARGE_GB = 128, 256


@dataclass(frozen=True, eq=False)
class Workload:
    """Jobs, their requests, and their machine."""

    name: str
    system: System  # nodes of the machine, and GB of the other resources
    table: JobTable  # the jobs, whose cores are nodes; shared by all workloads of a machine that were made together
    # requests besides nodes, in the order of the table; SSD per node
    demands: Mapping[str, Integers]
    order: str  # the base scheduler; see `asa.backends.simulated.policies.order_of`
    # jobs submitted from `begin_s` to before `end_s` are measured. The time before fills the machine, the time after
    # lets it drain
    begin_s: int
    end_s: int

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Whether each job is submitted in the measured time."""
        return (self.table.submit >= self.begin_s) & (self.table.submit < self.end_s)


def is_normal(table: JobTable) -> NDArray[np.bool_]:
    """Return a mask of the jobs that count for slowdowns: those that ran for a minute, or a tenth of their walltime.

    The paper leaves out abnormal jobs, which end abruptly at their beginning, and gives no rule for this. Here they are
    jobs that end in their first minute, unless they asked for little more.
    """
    return (table.run >= 60) | (10 * table.run >= table.request)


def load_workloads(
    names: Iterable[str],
    *,
    theta_log: str | Path | None = None,
    days: int | None = None,
    warm_up_days: int = WARM_UP_DAYS,
    at_paper_rate: bool = False,
    seed: int = 0,
) -> dict[str, Workload]:
    """Make workloads by name.

    `theta_log`: the log for Theta's workloads, in the Standard Workload Format.
    `days`: length of workloads; by default the whole log and `CORI_DAYS`.
    `warm_up_days`: days at either end that are not measured.
    `at_paper_rate`: whether there are as many jobs a day as in the paper; see `asa.studies.bbsched.rates`.
    Raises `InputError`: a name is unknown, Theta's log is not given or cannot be used, or there are too few days or
    jobs.
    """
    wanted = list(names)
    for name in wanted:
        if name not in NAMES:
            raise UnknownNameError(
                f"no workload is called {name!r}",
                where="workloads",
                hint=f"{near(name, NAMES)}Known: {', '.join(NAMES)}.",
            )
    made: dict[str, Workload] = {}
    if any(name.startswith("cori") for name in wanted):
        made |= cori(CORI_DAYS if days is None else days, seed, warm_up_days, at_paper_rate=at_paper_rate)
    if any(name.startswith("theta") for name in wanted):
        if theta_log is None:
            raise InputError(
                "Theta's workloads are made of its log, and none was given",
                where="workloads",
                hint="Name the file of a log in the Standard Workload Format, or ask for Cori's workloads only.",
            )
        log = read_swf(theta_log, exceed="kill")
        made |= theta(log, days, seed, warm_up_days, at_paper_rate=at_paper_rate)
    return {name: made[name] for name in wanted}


def theta(
    trace: Trace,
    days: int | None = None,
    seed: int = 0,
    warm_up_days: int = WARM_UP_DAYS,
    *,
    at_paper_rate: bool = False,
) -> dict[str, Workload]:
    """Make the workloads of Theta, a machine for large jobs.

    The machine has the processors of the log as nodes, and a burst buffer of 1.26 PB. That is Cori's 1.8 PB in
    proportion to the memories of 913.5 and 1304.5 TB, and the figure in Table 2. The text has 2.16 PB, which seems to
    be the same with digits swapped.

    The log of 2022 has no job of fewer than 128 nodes, and a seventh as many jobs a day as that of the paper. About six
    run at once, and the burst buffer holds a dozen of S4's requests. So S4's offered load is 0.37 of the burst buffer,
    where the paper has a usage of 89.5 %: none of these workloads is short of it for long. At the paper's rate the
    missing narrow jobs are added, and S4's offered load is that usage.

    `trace`: a log that counts nodes, best read with ``exceed="kill"``: where jobs ran for longer than requested,
    their run is cut here, as at a machine that kills them.
    `days`: number of days of the log, from its beginning; by default all.
    `warm_up_days`, `at_paper_rate`: see `load_workloads`.
    Raises `InputError`: the log is shorter, there is nothing between warm-up and cool-down, or too few jobs ask for
    much.
    """
    logged, where = trace.table, str(trace.path)
    begin_s = int(logged.submit[0])
    length_s = int(logged.submit[-1]) + 1 - begin_s
    if days is None:
        end_s = begin_s + length_s
    else:
        _check_days(days, warm_up_days, where)
        end_s = begin_s + days * _DAY
        if length_s <= (days - 1) * _DAY:
            raise InputError(
                f"the log lasts {length_s / _DAY:.1f} days, and {days} are asked for",
                where=where,
                hint="Ask for fewer days, or give a longer log.",
            )
    if length_s <= 2 * warm_up_days * _DAY:
        raise InputError(
            f"the log lasts {length_s / _DAY:.1f} days; {warm_up_days} at either end are not measured, so none is left",
            where=where,
            hint=f"Give a log of more than {2 * warm_up_days} days.",
        )
    taken = logged.submit < end_s
    table = JobTable(*(column[taken] for column in (logged.submit, logged.run, logged.request, logged.cores)))
    requests, narrow = _seeds(seed)[2:]
    if at_paper_rate:
        span_s = end_s - begin_s
        work_s = work_of_s4("theta", _THETA_LAW, _BUFFERS_GB["theta"], span_s)
        table = with_narrow_jobs(table, span_s, work_s, narrow)
    return _make(
        "theta",
        table,
        nodes=trace.cores,
        law=_THETA_LAW,
        order="wfp",
        measured=(begin_s + warm_up_days * _DAY, end_s - warm_up_days * _DAY),
        seed=requests,
    )


def cori(
    days: int = CORI_DAYS, seed: int = 0, warm_up_days: int = WARM_UP_DAYS, *, at_paper_rate: bool = False
) -> dict[str, Workload]:
    """Make workloads like those of Cori, a machine for many jobs.

    Only summary figures of its log are public: 2.6 million jobs in four months, mostly of one node; 0.618 % ask for
    burst buffer and 0.204 % for more than 1 TB, in a range from 1 GB to 65 TB, and a few for 165 TB. The same shares
    ask here, log-uniform below and above 1 TB. One in 41 of those above 1 TB asks for 165 TB, which is one job in
    20,000.

    The machine has 12,076 nodes and the 1.8 PB of burst buffer of Table 2. On Cori a third of it is reserved
    persistently. The paper does not say whether it counts that; of the other two thirds, jobs could not use the 94.7 %
    of all that it states for S4.

    The number of jobs that run at once is not known, and must be chosen. If a job of Cori's log took an hour, 900 would
    run at once; if 75 % of them asked for more than 20 TB, as in S4, that would be more than ten times the burst
    buffer. So this log has fewer and wider jobs. In the mean over seeds the original's offered load is 0.85 of the
    nodes, as on a busy machine; 61 % of the jobs have one node, the others up to 4,096 nodes, and about 31 run at once.
    S4's offered load is then 0.63 of the burst buffer; with 1.2 PB it is 0.95. At the paper's rate, 80 % of the jobs
    have one node, the offered load of the nodes is 0.8, and S4's of the burst buffer 0.947.

    Arrivals, run times and walltimes are those of `asa.backends.simulated.workload.WorkloadModel`, for nodes of 64
    processors. Only dozens of jobs have large requests, 14 of them more than 20 TB; S3 and S4 repeat these.

    `days`: number of days, from a Monday; about 390 jobs a day, or 21,370.
    `warm_up_days`, `at_paper_rate`: see `load_workloads`.
    """
    _check_days(days, warm_up_days, "cori")
    jobs, requests, *_ = _seeds(seed)
    if at_paper_rate:
        work_s = work_of_s4("cori", _CORI_LAW, _BUFFERS_GB["cori"], days * _DAY)
        table = cori_at_rate(days, work_s, _CORI_NODES, _CORI_PROCESSORS, jobs)
    else:
        machine = Machine("cori", nodes=_CORI_NODES * _CORI_PROCESSORS, cores_per_node=1)
        model = WorkloadModel(machine, load=0.87, narrow=0.47, log2_middle=6, log2_widest=18)
        drawn = model.generate(days * _DAY, jobs)
        table = JobTable(drawn.submit, drawn.run, drawn.request, -(-drawn.cores // _CORI_PROCESSORS))
    return _make(
        "cori",
        table,
        nodes=_CORI_NODES,
        law=_CORI_LAW,
        order="fcfs",
        measured=(warm_up_days * _DAY, (days - warm_up_days) * _DAY),
        seed=requests,
    )


# ---------------------------------------------------------------------- helpers


def _make(
    machine: str,
    table: JobTable,
    *,
    nodes: int,
    law: Law,
    order: str,
    measured: tuple[int, int],
    seed: np.random.SeedSequence,
) -> dict[str, Workload]:
    """Assign requests to the jobs of a machine, in each of its workloads."""
    who, amounts, picks, sizes, disks = seed.spawn(5)
    count = len(table)
    stands = _spread(who, count)  # jobs with the smallest ranks ask
    asks = stands < sum(share for share, _, _ in law)
    original = np.zeros(count, dtype=np.int64)
    original[asks] = _requests(law, _spread(amounts, int(asks.sum())))
    buffers = {"original": original}
    among = _spread(picks, count)
    for kind, (share, more_than) in _STRESSED.items():
        pool = np.sort(original[original > more_than])
        if not len(pool):
            raise InputError(
                f"none of {count} jobs asks for more than {more_than} GB of burst buffer, which {kind} repeats",
                where=machine,
                hint="Take more days.",
            )
        buffers[kind] = np.where(stands < share, pool[(among * len(pool)).astype(np.int64)], 0)

    def workload(kind: str, system: System, demands: dict[str, Integers]) -> Workload:
        name = f"{machine}-{kind}"
        return Workload(name, system, table, demands, order, *measured)

    shared = {BUFFER: _BUFFERS_GB[machine]}
    plain = System(nodes, shared)
    made = [workload(kind, plain, {BUFFER: buffer}) for kind, buffer in buffers.items()]
    large = nodes // 2
    halves = System([JobKind(nodes - large, {SSD: _SMALL_GB}), JobKind(large, {SSD: _LARGE_GB})], shared)
    size, disk = _spread(sizes, count), _spread(disks, count)
    small_gb = (disk * (_SMALL_GB + 1)).astype(np.int64)
    large_gb = _SMALL_GB + 1 + (disk * (_LARGE_GB - _SMALL_GB)).astype(np.int64)
    for kind, share in _DISKED.items():
        # a job wider than the half of the nodes with more SSD can only ask for what all nodes have
        ssd = np.where((size < share) | (table.cores > large), small_gb, large_gb)
        made.append(workload(kind, halves, {BUFFER: buffers["s2"], SSD: ssd}))
    return {workload.name: workload for workload in made}


def _spread(seed: np.random.SeedSequence, count: int) -> NDArray[np.float64]:
    """Draw one number from each of `count` equal parts of the interval from 0 to below 1, in random order."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return np.minimum((rng.permutation(count) + rng.random(count)) / count, np.nextafter(1.0, 0.0))


def _requests(law: Law, places: NDArray[np.float64]) -> Integers:
    """Return the requests of jobs with given ranks, from 0 to 1, among all that ask."""
    reached = np.cumsum([0.0, *(share for share, _, _ in law)])
    edges = np.repeat(reached, 2)[1:-1] / reached[-1]
    ends = np.log([end for _, least, most in law for end in (least, most)])
    return np.rint(np.exp(np.interp(places, edges, ends))).astype(np.int64)


def _check_days(days: int, warm_up_days: int, where: str) -> None:
    least = 2 * warm_up_days + 1
    if not least <= days <= _MAX_DAYS:
        raise InputError(
            f"a workload of {days} days cannot be",
            where=where,
            hint=f"Take {least} to {_MAX_DAYS} days: {warm_up_days} at either end are not measured.",
        )


def _seeds(seed: int) -> list[np.random.SeedSequence]:
    """Return seeds for Cori's jobs, for Cori's requests, for Theta's requests, and for its narrow jobs."""
    if seed < 0:
        raise InputError(f"a seed of {seed} cannot be", where="workloads", hint="Take a whole number from 0 on.")
    return np.random.SeedSequence(seed).spawn(4)
