"""Queues of hundreds of jobs: what skips most of them at once, against code that looks at each."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.policies import Easy, Fcfs, Multifactor, NoBackfill, Periodic, Policy
from asa.backends.simulated.table import NEVER, JobTable

JOBS = 500


def made(seed, users=3):
    """Draw a load of twice what a machine can do, with licences that some jobs ask for."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([16, 100]))
    cores = np.minimum(2 ** rng.integers(0, 7, JOBS), size)
    request = np.maximum(10, (10 ** rng.uniform(1, 4, JOBS)).astype(int))
    run = np.maximum(1, (request * rng.uniform(0.01, 1, JOBS)).astype(int))
    submit = np.sort(rng.integers(0, int((run * cores).sum() / size / 2) + 1, JOBS))
    amounts = rng.integers(1, 8, JOBS) * (rng.random(JOBS) < 0.3)
    cluster = Cluster({"cores": size, "licences": 10})
    who = rng.integers(0, users, JOBS)
    return Load(JobTable(submit, run, request, cores), cluster, amounts={"licences": amounts}, users=who)


def starts(load, policy):
    """Return the starts, and the length of the longest queue that is seen on the way."""
    core, longest = GeneralCore(load, policy), 0
    for moment in np.linspace(0, load.table.submit[-1], 50).astype(int).tolist():
        core.run(moment)
        longest = max(longest, len(core.queued))
    core.run(NEVER - 1)
    return core.start.tolist(), longest


def plain_easy(load):
    """Look at each job in each second in which something happens, in order of age."""
    table, sizes = load.table, np.array(list(load.cluster.pools.values()))
    submit, run, request = (column.tolist() for column in (table.submit, table.run, table.request))
    start, running, waiting, moments = {}, set(), [], [*submit]
    heapq.heapify(moments)
    coming = 0
    while moments:
        now = heapq.heappop(moments)
        running -= {job for job in running if start[job] + run[job] <= now}
        while coming < len(submit) and submit[coming] <= now:
            waiting.append(coming)
            coming += 1
        idle = sizes - sum((load.demand[job] for job in running), np.zeros_like(sizes))
        reserved = None  # when the first that has to wait begins at the latest, and what is left beside it
        for job in list(waiting):
            demand = load.demand[job]
            fits = bool(np.all(demand <= idle))
            if reserved is None and not fits:
                left = idle.copy()
                for begin, who in sorted((max(start[one] + request[one], now + 1), one) for one in running):
                    if np.all(demand <= left) and begin > reserved[0]:
                        break
                    left = left + load.demand[who]
                    reserved = (begin, left - demand)
            elif fits and (reserved is None or now + request[job] <= reserved[0] or np.all(demand <= reserved[1])):
                if reserved is not None and now + request[job] > reserved[0]:
                    reserved = (reserved[0], reserved[1] - demand)
                idle = idle - demand
                start[job] = now
                running.add(job)
                waiting.remove(job)
                heapq.heappush(moments, now + run[job])
    return [start[job] for job in range(len(submit))]


@pytest.mark.parametrize("seed", range(6))
def test_easy_starts_whom_looking_at_each_job_starts(seed):
    load = made(seed)
    got, longest = starts(load, Policy(Fcfs(), Easy()))
    assert longest > 64
    assert got == plain_easy(load)


@pytest.mark.parametrize(
    "backfill", [Easy(), NoBackfill(), Periodic(60, 50, 86400, 60)], ids=lambda b: type(b).__name__
)
@pytest.mark.parametrize("more", [{}, {"fair_tree": True}, {"period_s": 300}], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_of_few_users_the_order_is_that_of_scoring_each_job(seed, more, backfill):
    """A weight for a quality of service that all jobs have alike changes no score, but has each job scored."""
    load = made(seed)
    factors = {"age": 3000, "fair_share": 2000, "half_life_s": 20_000, **more}
    got, longest = starts(load, Policy(Multifactor(**factors), backfill))
    assert longest > 64
    assert got == starts(load, Policy(Multifactor(**factors, qos=1), backfill))[0]
