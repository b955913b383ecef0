"""Conservative backfilling with long queues: the kept profile against reservations that are all looked at again."""

from __future__ import annotations

import numpy as np
import pytest
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.policies import Conservative, Fcfs, Policy, Sjf
from asa.backends.simulated.table import NEVER, JobTable


class Plain:
    """Jobs and their reservations; after an early end every reservation is placed again, in order."""

    def __init__(self, load, *, shortest_first):
        table = load.table
        self.submit, self.run, self.request = (column.tolist() for column in (table.submit, table.run, table.request))
        self.demand, self.sizes = load.demand, np.array(list(load.cluster.pools.values()))
        self.shortest_first = shortest_first
        self.start, self.reserved, self.running, self.coming = {}, {}, set(), 0

    def earliest(self, job, now):
        """Try now and each moment at which something is given back, against all that is taken."""
        taken = [(self.start[one], one) for one in self.running]
        taken += [(begin, one) for one, begin in self.reserved.items() if one != job]
        begins = np.array([begin for begin, _ in taken], dtype=np.int64)
        ends = begins + np.array([self.request[one] for _, one in taken], dtype=np.int64)
        amounts = np.array([self.demand[one] for _, one in taken], dtype=np.int64).reshape(-1, len(self.sizes))
        for moment in np.unique(np.append(ends[ends > now], now)):
            changes = begins[(begins > moment) & (begins < moment + self.request[job])]
            at = np.append(changes, moment)[:, None]
            used = ((begins <= at) & (at < ends)).astype(np.int64) @ amounts
            if np.all(used + self.demand[job] <= self.sizes):
                return int(moment)
        raise AssertionError

    def place(self, jobs, now):
        """Give each job the earliest reservation, in order of the queue."""
        for job in sorted(jobs, key=lambda job: (self.request[job] if self.shortest_first else 0, job)):
            self.reserved[job] = self.earliest(job, now)

    def second(self, now):
        """Let jobs end, come and start."""
        ended = {one for one in self.running if self.start[one] + self.run[one] == now}
        self.running -= ended
        if any(self.run[one] < self.request[one] for one in ended):
            self.place([job for job, begin in self.reserved.items() if begin > now], now)
        first = self.coming
        while self.coming < len(self.submit) and self.submit[self.coming] == now:
            self.coming += 1
        self.place(range(first, self.coming), now)
        starting = {job for job, begin in self.reserved.items() if begin == now}
        self.running |= starting
        for job in starting:
            self.start[job] = self.reserved.pop(job)

    def all_starts(self):
        """Return the start of each job."""
        while len(self.start) < len(self.submit):
            ends = [self.start[one] + self.run[one] for one in self.running]
            self.second(min([*ends, *self.submit[self.coming : self.coming + 1], *self.reserved.values()]))
        return [self.start[row] for row in range(len(self.submit))]


def made(seed, jobs=200):
    """Draw a load of 1.5 times what a machine can do, on one pool or two."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([16, 100]))
    cores = np.minimum(2 ** rng.integers(0, 7, jobs), size) if rng.random() < 0.5 else rng.integers(1, size // 2, jobs)
    request = np.maximum(10, (10 ** rng.uniform(1, 4, jobs)).astype(int))
    run = np.maximum(1, (request * rng.uniform(0.01, 1, jobs) ** rng.choice([0.0, 0.3, 2.0])).astype(int))
    submit = np.sort(rng.integers(0, int((run * cores).sum() / size / 1.5) + 1, jobs))
    pools, amounts = {"cores": size}, {}
    if rng.random() < 0.5:
        pools["licences"] = 10
        amounts["licences"] = rng.integers(1, 8, jobs) * (rng.random(jobs) < 0.3)
    return Load(JobTable(submit, run, request, cores), Cluster(pools), amounts=amounts)


@pytest.mark.parametrize("shortest_first", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_reservations_are_where_they_would_be_if_all_were_looked_at_again(seed, shortest_first):
    load = made(seed)
    core = GeneralCore(load, Policy(Sjf() if shortest_first else Fcfs(), Conservative()))
    core.run(NEVER - 1)
    assert core.start.tolist() == Plain(load, shortest_first=shortest_first).all_starts()


def test_the_profile_keeps_no_points_that_nobody_needs():
    """Else what a pass costs grows with the jobs that have been."""
    load = made(1, jobs=3000)
    core = GeneralCore(load, Policy(Fcfs(), Conservative()))
    longest = 0
    for moment in range(0, int(load.table.submit[-1]), 2000):
        core.run(moment)
        longest = max(longest, len(core.queued))
    core.run(NEVER - 1)
    points = core._in_use()["points"]
    assert len(points) // (5 + len(load.cluster.pools)) < 4 * (longest + load.cluster.cores)
