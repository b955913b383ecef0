"""Simulates the queueing of a twin's jobs on its machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from asa.backends.simulated.cluster import Cluster, Load, Outage
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.policies import Multifactor, Policy
from asa.backends.simulated.policies import scheduler as find_scheduler
from asa.backends.simulated.table import NEVER, JobTable
from numpy.typing import NDArray

from asa.facts import PartitionFacts

from .model import Twin


def engine_of(twin: Twin, table: JobTable) -> Engine:
    """Return a simulation of a twin's machine, with jobs from the first on."""
    about, jobs, rows = twin.about, twin.jobs, len(table)
    policy = find_scheduler(about.scheduler, about.settings)
    if isinstance(policy, Policy) and isinstance(policy.order, Multifactor):
        points = tuple(partition.points for partition in about.partitions)
        policy = replace(policy, order=replace(policy.order, partition=1.0, partition_factors=points))
    outages = [
        Outage(max(round(away.begin_s) - jobs.clock_s, 0), {away.pool: away.cores}, end, away.is_drained)
        for away in about.away
        if (end := NEVER if away.end_s is None else round(away.end_s) - jobs.clock_s) > 0
        and end > away.begin_s - jobs.clock_s
    ]
    limits = {limit_of(each): most for each in about.partitions if (most := each.max_cores_in_use) is not None}
    partitions = {
        each.name: tuple(pool for pool in (each.pool, limit_of(each)) if pool in about.pools or pool in limits)
        for each in about.partitions
    }
    cluster = Cluster({**about.pools, **limits}, outages, partitions)
    load = Load(table, cluster, users=jobs.users[:rows], partitions=jobs.partitions[:rows])
    assert isinstance(policy, Policy)
    now = int(table.submit[0]) if rows else 0
    return Engine(sum(about.pools.values()), table, core=GeneralCore(load, policy, now=now))


def limit_of(partition: PartitionFacts) -> str:
    """Return the name by which the limit of a partition's cores is known beside the pools."""
    return f"limit of {partition.name}"


def simulated_waits(twin: Twin) -> NDArray[np.float64]:
    """Simulate all jobs of a twin; return their waits in seconds, NaN for jobs that never start."""
    engine = engine_of(twin, twin.jobs.table)
    engine.advance(NEVER)
    start = engine.start
    return np.where(start < 0, np.nan, start - twin.jobs.table.submit).astype(np.float64)
