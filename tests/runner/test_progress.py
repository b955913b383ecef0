"""Every strategy ends every workflow on any queue: each stage runs once, in order, within the idle limit."""

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.engine import Engine, JobTable
from asa.backends.simulated.policies import Policy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asa.backend import JobState
from asa.core.plugins import names
from asa.elements import parse_array
from asa.estimators import WaitBank, exactly
from asa.records import Ended, StageEnded, StageStarted, Submitted
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.units import core_hours
from asa.waits import QueuedJob
from asa.workflow import Stage, Workflow

CORES = 16
NOT_SIMULATED = {"pool", "asa-asks", "asa-naive-asks"}  # tasks of a dask cluster; a batch system that plans
STRATEGIES = [name for name in names("asa.strategies") if name not in NOT_SIMULATED]
NEVER_IDLE = {"per-stage", "chained", "asa", "asa-paper", "oracle"}
# Their stages share jobs: nothing bounds what narrow stages leave idle between wide ones, or what stands still until
# more cores have joined; but a job has work from its first second on.
AT_WORK_AT_ONCE = {"big-job", "elastic"}


class Widest:
    """A strategy that submits wide jobs first."""

    def scores(self, view):
        return view.demand[view.queue, 0].astype(float)


@st.composite
def workflows(draw):
    """Draw chains, layers and mixtures of both, with up to nine stages."""
    stages = []
    for number in range(draw(st.integers(2, 9))):
        before = draw(st.sets(st.integers(max(number - 3, 0), number - 1), max_size=3)) if number else ()
        if number and draw(st.booleans()):
            before = {number - 1}
        run_s = draw(st.sampled_from((20, 120, 600, 3600)))
        stages.append(
            Stage(
                f"s{number}",
                cores=draw(st.integers(1, CORES)),
                walltime_s=run_s * draw(st.sampled_from((1, 2, 5))),
                expected_run_s=run_s,
                after=tuple(f"s{i}" for i in sorted(before)),
            )
        )
    return Workflow("flow", stages)


@st.composite
def queues(draw):
    """Draw other users' jobs (submission, run time, requested time, cores), for an idle to a full machine."""
    jobs, at_s = [], 0
    for _ in range(draw(st.integers(0, 40))):
        at_s += draw(st.integers(0, 900))
        run_s = draw(st.integers(1, 4000))
        jobs.append((at_s, run_s, run_s * draw(st.integers(1, 3)), draw(st.integers(1, CORES))))
    return np.array(jobs, dtype=np.int64).reshape(-1, 4).T


def learned(draw_seed):
    """Return a bank with enough waits to plan with, right or wrong."""
    bank = WaitBank("last", seed=draw_seed, machine_cores=CORES)
    rng = np.random.default_rng(draw_seed)
    for number in range(12):
        job = QueuedJob(float(number), int(rng.integers(1, CORES)), 3600.0, "somebody", "m", "")
        own = bank.submitted(job)
        bank.observe(own, exactly(float(rng.exponential(600.0))))
    return bank


@pytest.mark.full
@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    flow=workflows(),
    others=queues(),
    seed=st.integers(0, 99),
    accrues=st.booleans(),
    policy=st.sampled_from(("easy", "fcfs", "widest")),
    spread=st.floats(0.3, 1.6),
)
def test_every_run_ends_with_each_stage_once_within_what_may_idle(
    strategy, flow, others, seed, accrues, policy, spread
):
    table = JobTable(*others)
    core = None
    if policy == "widest":  # by which wide stages once starved the narrow ones that they follow
        core = GeneralCore(Load(table, Cluster({"cores": CORES})), Policy(Widest()))
    engine = Engine(CORES, table, now=0, age_accrues=accrues, backfill=policy != "fcfs", core=core)
    world = SimulatedBackend(engine, Machine("m", 1, CORES))
    run_s = {name: max(1.0, min(stage.expected_s * spread, stage.walltime_s)) for name, stage in flow.stages.items()}
    how = load_strategy(strategy)
    [result] = run_all(world, [Run(flow, how, bank=learned(seed), run_s=run_s)])
    assert result.outcome == "completed", result.reason
    ended = [r.stages[0] for r in result.records if isinstance(r, StageEnded)]
    assert sorted(ended) == sorted(flow.stages)
    began = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageStarted)}
    ends = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageEnded)}
    assert all(began[name] >= ends[before] for name, stage in flow.stages.items() for before in stage.after)
    joined = {r.job_id for r in result.records if isinstance(r, Submitted) and r.joins}
    idle = sum(
        core_hours(r.cores, (r.payload_start_s if r.payload_start_s is not None else r.time_s) - r.start_s)
        for r in result.records
        if isinstance(r, Ended) and r.start_s is not None and r.state is not JobState.TIMEOUT and r.job_id not in joined
    )
    if strategy in NEVER_IDLE | AT_WORK_AT_ONCE:
        assert idle == 0
    if strategy == "big-job":
        [job] = (r for r in result.records if isinstance(r, Submitted))
        assert job.cores == max(stage.cores for stage in flow.stages.values())
    if (share := how.max_idle) is not None:
        jobs = [r for r in result.records if isinstance(r, Submitted)]
        a_second = core_hours(sum(r.cores for r in jobs), 1.0)  # for each job: the machine's clock counts whole ones
        assert idle <= share * flow.stage_core_hours(CORES) + a_second


def test_a_job_is_not_to_depend_on_one_that_shares_a_job_with_a_stage_that_is_not_due_yet():
    """Stage `late` is not due for a while; `soon` is in the same job by this strategy, and `last` follows it."""
    of, begun = {"cores": 1, "walltime_s": 7200}, ("long", "short")
    stages = [
        Stage("first", expected_run_s=30, **of | {"cores": 2}),
        Stage("long", expected_run_s=2500, array=parse_array("1-2"), **of),
        Stage("short", expected_run_s=30, **of),
        Stage("quick", expected_run_s=5, after=begun, after_start=begun, when="any", array=parse_array("5"), **of),
        Stage(
            "late",
            expected_run_s=30,
            after=("first", *begun),
            after_start=begun,
            start_delay_s=60,
            when="any",
            **of | {"cores": 4},
        ),
        Stage("never", after=("first", "long", "late"), when="failed", **of),
        Stage("soon", expected_run_s=900, after=("long", "quick", "never"), when="any", **of),
        Stage("last", expected_run_s=2500, after=("quick", "soon"), array=parse_array("5"), **of),
    ]
    flow = Workflow("w", stages)
    for name in STRATEGIES:
        world = SimulatedBackend(
            Engine(CORES, JobTable(*np.zeros((4, 0), dtype=np.int64)), now=0), Machine("m", 1, CORES)
        )
        [result] = run_all(world, [Run(flow, load_strategy(name), bank=learned(1))])
        assert result.outcome == "completed", (name, result.reason)
        assert sum(isinstance(r, StageEnded) for r in result.records) == len(flow.stages) - 1
