"""A pool on a simulated machine, on which nobody else computes unless a test says so."""

from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.table import JobTable

from asa.errors import InputError, SubmitRejectedError
from asa.estimators import WaitBank
from asa.metrics import measure
from asa.pool.modelled import ModelledPool, divided_on_pool, refusal_of
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.studies.pooled import of_allocations, run_on_pool, with_allocations
from asa.timeline import timeline
from asa.workflow import Stage, Workflow

STARTUP_S = 10.0  # from the start of a job until its workers work
NODE = 8


def machine(others=(), *, nodes=4, cores_per_node=NODE):
    """Return a machine; others' jobs are (submission, run time, cores), and ask for what they run."""
    columns = np.array(others, dtype=np.int64).reshape(-1, 3).T
    table = JobTable(columns[0], columns[1], columns[1], columns[2])
    of = Machine("small", nodes, cores_per_node)
    return SimulatedBackend(Engine(of.cores, table), of)


def ran(workflow, world=None):
    """Return metrics, the pool, and the result of a run on a pool."""
    world = world or machine()
    run = Run(workflow, load_strategy("pool"))
    result, pool = run_on_pool(world, run, WaitBank("median"), history=0, is_followed=False)
    assert result.outcome == "completed", result.reason
    return with_allocations(measure(workflow, result.records), pool), pool, result


def chain(*stages):
    return Workflow("flow", list(stages))


def test_a_wide_stage_runs_on_several_allocations_at_once():
    """Three nodes' worth of cores, in jobs of a node each; nothing idles but the workers' begin."""
    metrics, pool, _ = ran(chain(Stage("wide", cores=3 * NODE, walltime_s=1200, expected_run_s=900, command="x")))
    assert [one.view.shape.cores for one in pool.allocations] == [NODE] * 3
    assert metrics.makespan_s == pytest.approx(STARTUP_S + 900, abs=2)
    assert metrics.core_hours == pytest.approx(3 * NODE * (STARTUP_S + 900) / 3600, rel=0.01)
    assert metrics.overhead_core_hours == pytest.approx(3 * NODE * STARTUP_S / 3600, rel=0.2)


def test_a_later_stage_runs_on_an_allocation_that_is_there():
    """It does not queue again, though the machine has been full since the first stage began."""
    stages = (
        Stage("first", cores=NODE, walltime_s=600, expected_run_s=300, command="x"),
        Stage("second", cores=NODE, walltime_s=600, expected_run_s=300, command="x", after=("first",)),
    )
    full = [(60, 40_000, 3 * NODE), (61, 40_000, NODE)]
    metrics, pool, _ = ran(chain(*stages), machine(full))
    assert len(pool.allocations) == 1
    assert metrics.stages[1].perceived_wait_s <= 1


def test_tasks_of_a_list_fill_the_cores_in_turn():
    """Twelve tasks of two cores on one node of eight: three rounds."""
    tasks = Stage("tasks", cores=NODE, cpus_per_task=2, walltime_s=1200, expected_run_s=900, tasks=("x",) * 12)
    metrics, pool, _ = ran(chain(tasks), machine(nodes=1))
    assert len(pool.allocations) == 1
    assert metrics.makespan_s == pytest.approx(STARTUP_S + 900, abs=2)


def test_tasks_that_their_walltime_cuts_off_run_again_elsewhere():
    """A second list of tasks is begun on what is there, and what its end cuts off is done by another allocation."""
    stages = [Stage(f"s{n}", cores=NODE, walltime_s=1000, expected_run_s=100, command="x") for n in range(12)]
    flow = chain(*(s if not n else _after(s, stages[n - 1]) for n, s in enumerate(stages)))
    run = Run(flow, load_strategy("pool"), run_s={s.name: 400.0 for s in stages})
    result, pool = run_on_pool(machine(), run, WaitBank("median"), history=0, is_followed=False)
    assert result.outcome == "completed"
    assert len(pool.allocations) > 1
    for one in pool.allocations:
        assert one.end_s - one.view.start_s <= one.view.shape.walltime_s
    metrics = measure(flow, result.records)
    assert metrics.makespan_s >= 12 * 400


def _after(stage, before):
    return Stage(stage.name, cores=stage.cores, walltime_s=stage.walltime_s, expected_run_s=stage.expected_run_s,
                 command="x", after=(before.name,))  # fmt: skip


def test_no_allocation_has_more_tasks_than_cores_and_none_is_left():
    """At no time do tasks on an allocation have more cores than it; all have ended when the pool is closed."""
    flow = chain(
        Stage("a", cores=2 * NODE, walltime_s=900, expected_run_s=700, command="x"),
        Stage("b", cores=3, walltime_s=900, expected_run_s=500, command="x"),
        Stage("c", cores=NODE, walltime_s=900, expected_run_s=400, command="x", after=("a", "b")),
    )
    metrics, pool, result = ran(flow, machine([(0, 500, 20), (10, 3000, 8)]))
    for one in pool.allocations:
        assert one.end_s is not None
        times = sorted({busy.begin_s for busy in one.busy})
        for at_s in times:
            assert sum(busy.cores for busy in one.busy if busy.begin_s <= at_s < busy.end_s) <= NODE
    used = sum(one.used_core_hours for one in pool.allocations)
    lost = sum(busy.cores * (busy.end_s - busy.begin_s) / 3600 for one in pool.allocations for busy in one.busy
               if busy.end_s == one.end_s and busy.end_s - busy.begin_s not in {400, 500, 700})  # fmt: skip
    assert used - lost == pytest.approx((2 * NODE * 700 + 3 * 500 + NODE * 400) / 3600)
    assert metrics.core_hours - metrics.overhead_core_hours == pytest.approx(used)
    drawn = of_allocations(timeline(result.records, flow), pool)
    assert [lane.job_id for lane in drawn.lanes] == [one.job_id for one in pool.allocations]
    for lane in drawn.lanes:
        for one, after in zip(lane.spans, lane.spans[1:], strict=False):
            assert one.end_s == after.begin_s


def test_a_failed_stage_fails_the_run_and_what_follows_does_not_begin():
    flow = chain(
        Stage("first", cores=2, walltime_s=600, expected_run_s=60, command="x"),
        Stage("second", cores=2, walltime_s=600, expected_run_s=60, command="x", after=("first",)),
    )
    pool = ModelledPool(machine(), flow, WaitBank("median"), history=0)
    submit = pool.submit

    def failing(spec):
        return submit(replace(spec, exit_code=3) if "first" in spec.name else spec)

    pool.submit = failing
    [result] = run_all(pool, [Run(flow, load_strategy("pool"))], history=0)
    assert result.outcome == "failed"
    assert not [
        r for r in result.records if "second" in getattr(r, "stages", ()) and type(r).__name__ == "StageStarted"
    ]


def test_the_bank_learns_the_waits_of_the_pools_jobs():
    """They are the machine's waits, not those of tasks."""
    bank = WaitBank("median")
    world = machine([(0, 1000, 4 * NODE)])
    world.wait(1)
    run = Run(chain(Stage("one", cores=4, walltime_s=600, expected_run_s=300, command="x")), load_strategy("pool"))
    _, pool = run_on_pool(world, run, bank, history=0, is_followed=False)
    assert bank.own == len(pool.allocations) == 1
    assert pool.allocations[0].view.start_s >= 1000


def test_a_log_that_tells_no_nodes_gets_jobs_as_wide_as_the_widest_stage():
    metrics, pool, _ = ran(
        chain(Stage("wide", cores=20, walltime_s=1200, expected_run_s=900, command="x")),
        machine(nodes=32, cores_per_node=1),
    )
    assert [one.view.shape.cores for one in pool.allocations] == [20]
    assert metrics.makespan_s == pytest.approx(STARTUP_S + 900, abs=2)


def test_that_a_stage_is_divided_is_said():
    """Only of one that is wider than a node, and no list of tasks."""
    wide = Stage("wide", cores=2 * NODE, walltime_s=60, command="x")
    listed = Stage("listed", cores=2 * NODE, walltime_s=60, tasks=("x",) * 99)
    [note] = divided_on_pool(chain(wide, listed, Stage("narrow", cores=NODE, walltime_s=60, command="x")),
                             machine().capabilities)  # fmt: skip
    assert "on the pool wide, wider than a node" in note
    assert not divided_on_pool(chain(wide), machine(cores_per_node=1, nodes=32).capabilities)


def test_what_no_task_can_have_is_refused_before_it_runs():
    limits = machine().capabilities
    exclusive = chain(Stage("alone", cores=2, walltime_s=60, command="x", exclusive=True))
    assert "nodes of its own" in refusal_of(exclusive, limits)
    spread = chain(Stage("mpi", nodes=2, walltime_s=60, command="x"))
    assert "several nodes" in refusal_of(spread, limits)
    assert not refusal_of(chain(Stage("plain", cores=2, walltime_s=60, command="x")), limits)
    with pytest.raises((InputError, SubmitRejectedError)):
        ran(exclusive)
