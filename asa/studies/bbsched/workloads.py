"""The workloads that methods are compared on: two machines, each with its own requests and seven made of them.

After Sections 4.1 and 5 of the paper, whose logs are not public. What is ours:

- *Theta* is a public log of 2022 (see `theta`), not that of 2018. It notes no burst buffer. In the paper 17.18 % of the
  jobs ask for one, of 1 GB to 285 TB, as Darshan saw them move. So many ask here, for amounts that are log-uniform in
  that range, which has no free parameter. They do not depend on the job, as they do in reality.
- *Cori* is drawn from a model (see `cori`), as nothing of its log is public but figures.
- Requests are drawn one from each of equal parts of their law, so that even few of them have its shape. Shares are
  right to a job.
- S1 to S4 repeat the workload's own large requests, however few a short log has of them; if it has none, they cannot
  be made.
- In S5 to S7 a job that is wider than half the machine asks for 128 GB of SSD a node at most: it could not run else.

Which jobs ask, and where a job stands among those that ask, is the same in all workloads of a machine: who asks in S1
asks in S2, S3 and S4, for the same amount in S2. So workloads differ in what they are about, and not by chance.
Everything is drawn by seed. 1 TB is 1000 GB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from asa.backends.bbsched.system import Integers, JobKind, System
from asa.backends.simulated.cluster import BURST_BUFFER
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.swf import Trace, read_swf
from asa.backends.simulated.table import JobTable
from asa.backends.simulated.workload import WorkloadModel
from asa.errors import InputError, UnknownNameError, near

BUFFER: Final = BURST_BUFFER
SSD: Final = "ssd"
NAMES: Final = (
    *(f"{machine}-{kind}" for machine in ("cori", "theta") for kind in ("original", "s1", "s2", "s3", "s4")),
    *(f"{machine}-{kind}" for machine in ("cori", "theta") for kind in ("s5", "s6", "s7")),
)
"""The ten workloads of Section 4, then the six of Section 5, which ask for SSD as well."""
CORI_DAYS: Final = 60

_DAY = 86_400
_HALF_MONTH_S = 15 * _DAY
_MAX_DAYS = 3650

_CORI_NODES = 12_076
_CORI_GB = 1_200_000
_CORI_PROCESSORS = 64  # of Lublin and Feitelson's law, a node: Cori's have 32 or 68 cores
_THETA_GB = 1_260_000

# What the original jobs ask for: (share of all jobs, least GB, most GB), log-uniform between.
_Law = tuple[tuple[float, int, int], ...]
_CORI_LAW: _Law = ((0.004_14, 1, 1000), (0.001_99, 1001, 65_000), (0.000_05, 165_000, 165_000))
_THETA_LAW: _Law = ((0.171_8, 1, 285_000),)

# Of S1 to S4: the share of jobs that ask, for more than so many GB.
_STRESSED = {"s1": (0.5, 5000), "s2": (0.75, 5000), "s3": (0.5, 20_000), "s4": (0.75, 20_000)}
# Of S5 to S7: the share of jobs that ask for what any node has.
_DISKED = {"s5": 0.8, "s6": 0.5, "s7": 0.2}
_SMALL_GB, _LARGE_GB = 128, 256


@dataclass(frozen=True, eq=False)
class Workload:
    """Jobs, what they ask for, and the machine that they are for."""

    name: str
    system: System  # the machine: nodes, and GB of the other resources
    table: JobTable  # the jobs; their cores are nodes. All workloads of a machine that were made together share it.
    # what each job asks for besides nodes, in the order of the table; of SSD on each of its nodes
    demands: Mapping[str, Integers]
    order: Literal["fcfs", "wfp"]  # the machine's own order of the queue
    # what is measured lies between: jobs that are submitted from `begin_s` on and before `end_s`. Half a month before
    # it warms the machine up, half a month after it cools it down.
    begin_s: int
    end_s: int

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Whether each job is submitted in the time that is measured."""
        return (self.table.submit >= self.begin_s) & (self.table.submit < self.end_s)


def is_normal(table: JobTable) -> NDArray[np.bool_]:
    """Say which jobs count for slowdowns: those that ran for a minute, or for a tenth of what they asked for.

    The paper leaves abnormal jobs out, those that end abruptly at their beginning, and has no rule for it. Jobs that
    end in their first minute are such, unless they asked for little more.
    """
    return (table.run >= 60) | (10 * table.run >= table.request)


def load_workloads(
    names: Iterable[str], *, theta_log: str | Path | None = None, days: int | None = None, seed: int = 0
) -> dict[str, Workload]:
    """Make workloads by name.

    `theta_log`: the log that Theta's workloads are made of, in the Standard Workload Format.
    `days`: how long workloads are; the whole log and `CORI_DAYS` if not given.
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
        made |= cori(days=CORI_DAYS if days is None else days, seed=seed)
    if any(name.startswith("theta") for name in wanted):
        if theta_log is None:
            raise InputError(
                "Theta's workloads are made of its log, and none was given",
                where="workloads",
                hint="Name the file of a log in the Standard Workload Format, or ask for Cori's workloads only.",
            )
        made |= theta(read_swf(theta_log, exceed="kill"), days=days, seed=seed)
    return {name: made[name] for name in wanted}


def theta(trace: Trace, days: int | None = None, seed: int = 0) -> dict[str, Workload]:
    """Make the workloads of Theta, a machine for large jobs.

    The machine has the processors of the log as nodes, and a burst buffer of 1.26 PB: 1.8 PB on Cori, in proportion to
    their memories of 1304.5 and 913.5 TB. Table 2 has that figure. The text has 2.16 PB, which is the same with digits
    swapped.

    The log of 2022 has no job of fewer than 128 nodes, and a seventh as many jobs a day as that of the paper. About six
    run at once, and the burst buffer holds a dozen of S4's requests. So S4 offers 0.37 of the burst buffer, where the
    paper has a usage of 89.5 %: none of these workloads is short of it for long. For one that is, replace
    `Workload.system` by one with less, as 0.5 PB, of which S4 offers 0.92; requests go up to 285 TB.

    `trace`: a log that counts nodes, best read with ``exceed="kill"``: where jobs ran for longer than requested,
    their run is cut here, as at a machine that kills them.
    `days`: how many days of the log, from its begin; all if not given.
    Raises `InputError`: the log is shorter, there is nothing between warm-up and cool-down, or too few jobs ask for
    much.
    """
    logged, where = trace.table, str(trace.path)
    begin_s = int(logged.submit[0])
    length_s = int(logged.submit[-1]) + 1 - begin_s
    if days is None:
        end_s = begin_s + length_s
    else:
        _check_days(days, where)
        end_s = begin_s + days * _DAY
        if length_s <= (days - 1) * _DAY:
            raise InputError(
                f"the log lasts {length_s / _DAY:.1f} days, and {days} are asked for",
                where=where,
                hint="Ask for fewer days, or give a longer log.",
            )
    if length_s <= 2 * _HALF_MONTH_S:
        raise InputError(
            f"the log lasts {length_s / _DAY:.1f} days; half a month at either end is not measured, so none is left",
            where=where,
            hint="Give a log of more than 30 days.",
        )
    taken = logged.submit < end_s
    table = JobTable(*(column[taken] for column in (logged.submit, logged.run, logged.request, logged.cores)))
    return _make(
        "theta",
        table,
        nodes=trace.cores,
        buffer_gb=_THETA_GB,
        law=_THETA_LAW,
        order="wfp",
        begin_s=begin_s,
        end_s=end_s,
        seed=_seeds(seed)[2],
    )


def cori(days: int = CORI_DAYS, seed: int = 0) -> dict[str, Workload]:
    """Make workloads like those of Cori, a machine for many jobs.

    Nothing is public of its log but figures: 2.6 million jobs in four months, mostly of one node, of which 0.618 % ask
    for burst buffer, 0.204 % for more than 1 TB, in a range from 1 GB to 65 TB, and few for 165 TB. So many ask here,
    log-uniform below and above 1 TB, and one in 41 of those above 1 TB for 165 TB, which is one job in 20,000.

    The machine has 12,076 nodes and 1.2 PB of burst buffer that jobs can be given. The other third of Cori's 1.8 PB is
    reserved persistently, whatever runs: it is left out both of what there is and of what is used. The paper does not
    say whether it does so, too; of all 1.8 PB, jobs could not use its 94.7 % in S4.

    How many jobs run at once is free, and must be chosen. If a job of Cori's log took an hour, 900 would run at once;
    if 75 % of them asked for more than 20 TB, as in S4, that would be more than twenty times what there is. So this is
    a thinner log of wider jobs. In the mean over seeds the original offers 0.85 of the nodes, as at a busy machine, and
    S4 0.95 of the burst buffer, after the paper's usage of 94.7 %; seeds vary by 0.03 and 0.06. This fixes how many
    nodes a job holds: 61 % of the jobs have one node, the others are wide, up to 4,096 nodes, and about 31 run at once.
    S1 to S3 then offer 0.38, 0.57 and 0.63, less than in the paper, where S2 and S3 use more than 80 %; but with more,
    S4 would ask for what cannot be had, and waits would only tell how long the log is.

    All else is `asa.backends.simulated.workload.WorkloadModel` as it is, for nodes of 64 processors: when jobs come,
    how long they run, and what they ask for. Only dozens of its jobs ask for much, 14 for more than 20 TB, and it is
    these that S3 and S4 repeat.

    `days`: how many days, from a Monday on; about 390 jobs a day.
    """
    _check_days(days, "cori")
    jobs, requests, _ = _seeds(seed)
    machine = Machine("cori", nodes=_CORI_NODES * _CORI_PROCESSORS, cores_per_node=1)
    model = WorkloadModel(machine, load=0.87, narrow=0.47, log2_middle=6, log2_widest=18)
    drawn = model.generate(days * _DAY, jobs)
    table = JobTable(drawn.submit, drawn.run, drawn.request, -(-drawn.cores // _CORI_PROCESSORS))
    return _make(
        "cori",
        table,
        nodes=_CORI_NODES,
        buffer_gb=_CORI_GB,
        law=_CORI_LAW,
        order="fcfs",
        begin_s=0,
        end_s=days * _DAY,
        seed=requests,
    )


# ---------------------------------------------------------------------- helpers


def _make(
    machine: str,
    table: JobTable,
    *,
    nodes: int,
    buffer_gb: int,
    law: _Law,
    order: Literal["fcfs", "wfp"],
    begin_s: int,
    end_s: int,
    seed: np.random.SeedSequence,
) -> dict[str, Workload]:
    """Give the jobs of a machine what they ask for, in each of its workloads."""
    who, amounts, picks, sizes, disks = seed.spawn(5)
    count = len(table)
    stands = _spread(who, count)  # who stands before the share that asks, asks
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
        return Workload(name, system, table, demands, order, begin_s + _HALF_MONTH_S, end_s - _HALF_MONTH_S)

    shared = {BUFFER: buffer_gb}
    plain = System(nodes, shared)
    made = [workload(kind, plain, {BUFFER: buffer}) for kind, buffer in buffers.items()]
    large = nodes // 2
    halves = System([JobKind(nodes - large, {SSD: _SMALL_GB}), JobKind(large, {SSD: _LARGE_GB})], shared)
    size, disk = _spread(sizes, count), _spread(disks, count)
    small_gb = (disk * (_SMALL_GB + 1)).astype(np.int64)
    large_gb = _SMALL_GB + 1 + (disk * (_LARGE_GB - _SMALL_GB)).astype(np.int64)
    for kind, share in _DISKED.items():
        # a job that is wider than the better half of the nodes can only run with what all have
        ssd = np.where((size < share) | (table.cores > large), small_gb, large_gb)
        made.append(workload(kind, halves, {BUFFER: buffers["s2"], SSD: ssd}))
    return {one.name: one for one in made}


def _spread(seed: np.random.SeedSequence, count: int) -> NDArray[np.float64]:
    """Draw numbers from 0 to below 1, one from each of so many equal parts, in random order."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return np.minimum((rng.permutation(count) + rng.random(count)) / count, np.nextafter(1.0, 0.0))


def _requests(law: _Law, places: NDArray[np.float64]) -> Integers:
    """Say what those ask for who stand there, from 0 to 1, among all that ask."""
    reached = np.cumsum([0.0, *(share for share, _, _ in law)])
    edges = np.repeat(reached, 2)[1:-1] / reached[-1]
    ends = np.log([end for _, least, most in law for end in (least, most)])
    return np.rint(np.exp(np.interp(places, edges, ends))).astype(np.int64)


def _check_days(days: int, where: str) -> None:
    least = 2 * _HALF_MONTH_S // _DAY + 1
    if not least <= days <= _MAX_DAYS:
        raise InputError(
            f"a workload of {days} days cannot be",
            where=where,
            hint=f"Take {least} to {_MAX_DAYS} days: half a month at either end is not measured.",
        )


def _seeds(seed: int) -> list[np.random.SeedSequence]:
    """Give seeds of Cori's jobs, of Cori's requests, and of Theta's."""
    if seed < 0:
        raise InputError(f"a seed of {seed} cannot be", where="workloads", hint="Take a whole number from 0 on.")
    return np.random.SeedSequence(seed).spawn(3)
