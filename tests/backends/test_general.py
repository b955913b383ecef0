"""Every discipline of the general core, against a second-by-second cluster."""

import numpy as np
from asa.backends.simulated.cluster import Cluster, Load, Outage
from asa.backends.simulated.cores.base import Fate
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.policies import (
    F1,
    Conservative,
    Easy,
    Fcfs,
    Multifactor,
    NoBackfill,
    Periodic,
    Policy,
    Sjf,
    Wfp,
)
from asa.backends.simulated.table import NEVER, JobTable
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_cluster import simulate

CORES = 8


def general(pools, jobs, *, order, backfill, preempt="off", requeue=True, outages=(), partitions=1, kind=GeneralCore):
    """Schedule with the general core; answer as the plain cluster does."""
    columns = [np.array([job[name] for job in jobs], dtype=np.int64) for name in ("submit", "run", "request")]
    names = list(pools)
    first = np.array([job["demand"].get(names[0], 0) for job in jobs], dtype=np.int64)
    table = JobTable(*columns, first)
    cluster = Cluster(pools, outages, {str(p): names[0] for p in range(partitions)})
    load = Load(
        table,
        cluster,
        amounts={name: [job["demand"].get(name, 0) for job in jobs] for name in names[1:]},
        users=[job["user"] for job in jobs],
        qos=[job["qos"] for job in jobs],
        partitions=[job["partition"] for job in jobs],
    )
    core = kind(load, Policy(order, backfill, preempt, requeue))
    core.run(NEVER - 1)
    fates = {Fate.FAILED: "lost", Fate.PREEMPTED: "preempted"}
    answer = []
    for row, job in enumerate(jobs):
        start, end = int(core.start[row]), int(core.end[row])
        state = "completed" if job["run"] <= job["request"] else "timeout"
        state = fates.get(int(core.ended_by[row]), state) if end >= 0 else "pending"
        answer.append((start, end, state))
    return answer


orders = st.sampled_from(
    [
        Fcfs(),
        Sjf(),
        Wfp(),
        F1(1),
        F1(4),
        Multifactor(age=100, max_age_s=20, fair_share=1000, half_life_s=15, size=50, qos=300),
        Multifactor(age=0, fair_share=0, size=100, favor_small=True, partition=60, partition_factors=(0.5, 1.0)),
    ]
)
backfills = st.sampled_from(
    [NoBackfill(), Easy(), Conservative(), Periodic(7, 3, 40, 1), Periodic(5, 20, 1000, 4), Periodic(10, 20, 15, 3)]
)
jobs_of_a_load = st.lists(
    st.fixed_dictionaries(
        {
            "submit": st.integers(0, 25),
            "run": st.integers(1, 12),
            "request": st.integers(1, 14),
            "demand": st.fixed_dictionaries({"cores": st.integers(1, CORES), "bb": st.sampled_from([0, 0, 1, 3, 5])}),
            "user": st.integers(0, 2),
            "qos": st.sampled_from([0, 0, 1, 2]),
            "partition": st.integers(0, 1),
        }
    ),
    min_size=1,
    max_size=12,
).map(lambda jobs: sorted(jobs, key=lambda job: job["submit"]))
outages_of_a_load = st.lists(
    st.builds(
        lambda begin, lasts, cores, bb, drain: Outage(
            begin, {"cores": cores, "bb": bb}, begin + lasts if lasts else NEVER, drain
        ),
        st.integers(0, 30),
        st.integers(0, 15),
        st.integers(1, CORES),
        st.integers(0, 2),
        st.booleans(),
    ),
    max_size=2,
)
POOLS = {"cores": CORES, "bb": 5}


@settings(max_examples=600)
@given(jobs_of_a_load, orders, backfills)
def test_every_discipline_equals_the_plain_cluster(jobs, order, backfill):
    """One partition, two pools."""
    for job in jobs:
        job["partition"] = 0
    expected = simulate(POOLS, jobs, order=order, backfill=backfill)
    assert general(POOLS, jobs, order=order, backfill=backfill) == expected


@settings(max_examples=600)
@given(
    jobs_of_a_load,
    orders,
    backfills,
    st.sampled_from(["off", "requeue", "cancel"]),
    st.booleans(),
    outages_of_a_load,
)
def test_partitions_outages_and_preemption_too(jobs, order, backfill, preempt, requeue, outages):
    """Everything at once."""
    rules = {"preempt": preempt, "requeue": requeue, "outages": outages, "partitions": 2}
    expected = simulate(POOLS, jobs, order=order, backfill=backfill, **rules)
    assert general(POOLS, jobs, order=order, backfill=backfill, **rules) == expected


@settings(max_examples=100)
@given(
    jobs_of_a_load, orders, backfills, st.sampled_from(["off", "requeue", "cancel"]), st.booleans(), outages_of_a_load
)
def test_compiled_or_not_it_is_one_function(plain_cores, jobs, order, backfill, preempt, requeue, outages):
    """The source itself gives the same."""
    rules = {"preempt": preempt, "requeue": requeue, "outages": outages, "partitions": 2}
    plain = plain_cores("general").GeneralCore
    expected = general(POOLS, jobs, order=order, backfill=backfill, kind=plain, **rules)
    assert general(POOLS, jobs, order=order, backfill=backfill, **rules) == expected
