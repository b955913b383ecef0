"""A simulated machine of nodes under OpenCCS: its jobs are chunks, under limits and pools."""

import json

import numpy as np
import pytest
from asa.backends.openccs.core import OpenCcsCore
from asa.backends.openccs.limits import Access, FreePool, Items, Limit
from asa.backends.openccs.limits_file import ConsumerBounds
from asa.backends.openccs.nodes_core import NodesCore, NodesMachine, equal_nodes
from asa.backends.openccs.site import OpenCcsSite
from asa.backends.openccs.system import CcsSystem, Node
from asa.backends.simulated.swf import write_swf
from asa.backends.simulated.table import NEVER, JobTable
from forked import asa
from hypothesis import given
from hypothesis import strategies as st

from asa.backend import JobSpec, JobState
from asa.errors import InputError, SubmitRejectedError
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.testing import check_backend
from asa.workflow import Stage, Workflow

CORES = 8
JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(1, 20), st.integers(1, CORES)),
    min_size=1,
    max_size=12,
)
"""Submission, run time, what is asked for beyond it, cores."""


def table(jobs):
    submit, run, more, cores = (np.array(column, dtype=np.int64) for column in zip(*jobs, strict=True))
    return JobTable(submit, run, run + more, cores)


def simulated(jobs, machine, **more):
    core = NodesCore(machine, machine.cores, jobs, now=0, **more)
    core.run(NEVER - 1)
    assert core.free == machine.cores
    assert core.exhausted
    assert not len(core.queued)
    return core


@given(JOBS)
def test_on_one_node_it_is_the_core_of_cores_alone(jobs):
    jobs = table(sorted(jobs))
    alone = OpenCcsCore(CORES, jobs, now=0)
    alone.run(NEVER - 1)
    core = simulated(jobs, NodesMachine(equal_nodes("one", CORES, CORES)))
    assert [core.start.tolist(), core.promised.tolist()] == [alone.start.tolist(), alone.promised.tolist()]


@given(JOBS, st.integers(1, 3))
def test_no_node_holds_more_than_it_has_and_nobody_starts_later_than_promised(jobs, per_node):
    """Whatever the nodes are; of the cores of all nodes, no more than all are used at any time."""
    jobs = table(jobs)
    core = simulated(jobs, NodesMachine(equal_nodes("small", CORES, per_node)))
    assert (core.start <= core.promised).all()
    for second in range(int(core.start.max()) + 40):
        is_there = (core.start <= second) & (second < core.start + jobs.run)
        assert jobs.cores[is_there].sum() <= CORES


@given(JOBS, st.integers(0, 80))
def test_a_fork_goes_on_by_itself(jobs, moment):
    bounds = ConsumerBounds((Limit("user", "*", "ncpus", Items.parse("6"), area=400),))
    users = np.arange(len(jobs)) % 3 - 1
    machine = NodesMachine(equal_nodes("two", CORES, 4), bounds, users=users)
    core = NodesCore(machine, CORES, table(jobs), now=0)
    core.run(moment)
    twin = core.fork()
    core.run(NEVER - 1)
    assert (twin.start <= moment).all()
    twin.run(NEVER - 1)
    assert twin.start.tolist() == core.start.tolist()


def test_cores_that_are_free_on_different_nodes_hold_no_chunk():
    """Two jobs of three cores leave one core on each of two nodes; a job of two cores on one node waits."""
    jobs = table([(0, 10, 0, 3), (0, 10, 0, 3), (0, 5, 0, 2)])
    assert simulated(jobs, NodesMachine(equal_nodes("two", 8, 4))).start.tolist() == [0, 0, 10]
    assert simulated(jobs, NodesMachine(equal_nodes("one", 8, 8))).start.tolist() == [0, 0, 0]


def test_limits_and_pools_hold_for_background_jobs():
    jobs = table([(0, 10, 0, 4), (0, 10, 0, 4), (0, 10, 0, 4)])
    limits = (Limit("user", "u1", "ncpus", Items.parse("4")),)
    users = np.array([1, 1, 2])
    of_limits = NodesMachine(equal_nodes("two", 8, 4), ConsumerBounds(limits), users=users)
    assert simulated(jobs, of_limits).start.tolist() == [0, 10, 0]
    pool = FreePool("kept", "ncpus", Items.parse("4"), access=(Access(users=("u2",)),))
    of_pool = NodesMachine(equal_nodes("two", 8, 4), ConsumerBounds((), (pool,)), users=users)
    assert simulated(jobs, of_pool).start.tolist() == [0, 10, 0]


def test_background_jobs_that_no_limit_allows_are_counted_and_do_not_run():
    limits = (Limit("user", "*", "ncpus", duration_s=10),)
    core = simulated(table([(0, 20, 0, 1), (0, 5, 0, 1)]), NodesMachine(equal_nodes("n", 8, 4), ConsumerBounds(limits)))
    assert (core.start.tolist(), core.refused) == ([-1, 0], 1)


# ---------------------------------------------------------------------- a client's jobs


SYSTEM = """
[[nodes]]
name = "n"
count = 3
resources = {ncpus = 16, mem = "64g"}
[[nodes]]
name = "g"
resources = {ncpus = 16, mem = "64g", gpus = 2}
"""


@pytest.fixture
def place(tmp_path):
    """Return a folder with a quiet log, a system, and limits."""
    moments = np.arange(100, dtype=np.int64) * 10_000
    ones = np.ones(100, dtype=np.int64)
    write_swf(tmp_path / "quiet.swf", JobTable(moments, ones, ones, ones), cores=64)
    (tmp_path / "system.toml").write_text(SYSTEM)
    (tmp_path / "limits.toml").write_text('[[limits]]\nuser = "ann"\nresource = "ncpus"\nitems = "32"\n')
    return tmp_path


def opened(place, **settings):
    settings = {"nodes": place / "system.toml"} | settings
    return OpenCcsSite(trace=place / "quiet.swf", poll_s=0, **settings).open(seed=3)


def spec(cores, name="job", **more):
    return JobSpec(name, cores=cores, walltime_s=600.0, run_s=300.0, **more)


def starts(world, *specs):
    """Submit jobs at once; return their starts from then on."""
    now, ids = world.now(), [world.submit(each) for each in specs]
    while any(status.start_s is None for status in world.status(ids).values()):
        world.wait(None)
    return [status.start_s - now for status in world.status(ids).values()]


def test_it_is_a_backend_like_any_other(place):
    check_backend(lambda: OpenCcsSite(trace=place / "quiet.swf", nodes="16").open(seed=3))


def test_what_a_job_asks_for_is_on_nodes(place):
    assert starts(opened(place), spec(16, gpus=2), spec(16, gpus=2), spec(48)) == [0, 300, 0]
    assert starts(opened(place), spec(4, nodes=4), spec(61), spec(60)) == [0, 300, 300 + 300]
    assert starts(opened(place), *[spec(1, memory_bytes=40 << 30)] * 5) == [0] * 4 + [300]
    assert starts(opened(place), spec(1, exclusive=True), spec(49)) == [0, 300]


def test_a_job_is_promised_the_start_of_what_it_asks_for(place):
    world = opened(place)
    world.submit(spec(1, gpus=1))
    world.submit(spec(1, gpus=1))
    asked = spec(1, gpus=1)
    assert world.planned_start(asked, world.now()) == world.now() + 600
    assert world.planned_start(spec(1), world.now()) == world.now()
    wide = spec(4, nodes=4)
    assert world.planned_start(wide, world.now()) == world.now() + 600
    job_id = world.submit(asked)
    assert world.status([job_id])[job_id].state is JobState.PENDING
    world.cancel(job_id)
    assert world.status([job_id])[job_id].state is JobState.CANCELLED


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"gpus": 3}, "asks for 3 of gpus, of which there are 2"),
        ({"memory_bytes": 65 << 30}, "none has that"),
        ({"nodes": 5}, "asks for 80 of the machine's 64 cores"),
    ],
)
def test_what_no_node_has_is_refused(place, asked, message):
    with pytest.raises(SubmitRejectedError, match=message):
        opened(place).submit(spec(5, **asked))


def test_a_client_is_held_to_the_limits_of_its_user(place):
    limits = place / "limits.toml"
    assert starts(opened(place, limits=limits, user="ann"), spec(32), spec(32)) == [0, 300]
    assert starts(opened(place, limits=limits, user="bob"), spec(32), spec(32)) == [0, 0]
    with pytest.raises(SubmitRejectedError, match="more than 32, the limit of user 'ann' on ncpus"):
        opened(place, limits=limits, user="ann").submit(spec(33))


def test_a_held_job_is_planned_once_it_is_released(place):
    world = opened(place)
    job_id = world.submit(spec(16))
    world.hold(job_id)
    world.release(job_id)
    now = world.now()
    while (start_s := world.status([job_id])[job_id].start_s) is None:
        world.wait(None)
    assert start_s == now


@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa-asks"])
def test_workflows_run_on_nodes(place, strategy):
    flow = Workflow("flow", [Stage("a", cores=16, walltime_s=600), Stage("b", cores=48, walltime_s=600, after=("a",))])
    [result] = run_all(opened(place), [Run(flow, load_strategy(strategy))])
    assert result.outcome == "completed"


def test_wrong_settings_are_refused(place):
    for settings, message in (
        ({"nodes": "nowhere.toml"}, "cannot be read"),
        ({"nodes": "oculs"}, "Did you mean 'oculus'"),
        ({"nodes": "", "limits": "limits.toml"}, "limits hold on a machine of nodes"),
        ({"nods": "16"}, "there is no setting 'nods'"),
        ({"nodes": "0"}, "1 core or more"),
    ):
        with pytest.raises(InputError, match=message):
            opened(place, **settings)
    (place / "small.toml").write_text('[[nodes]]\nname = "n"\nresources = {ncpus = 16}\n')
    with pytest.raises(InputError, match="have 16 cores, and the background's machine has 64"):
        opened(place, nodes=place / "small.toml")


def test_commands_take_its_nodes_and_limits(place):
    """As options of a backend, and as settings of a scheduler."""
    options = ("--option", f"nodes={place / 'system.toml'}", "--option", f"limits={place / 'limits.toml'}")
    base = ("compare", "blast", "--trace", place / "quiet.swf", "--cores", 16, "--seeds", 1)
    told = asa(*base, "--backend", "openccs", *options, "--strategies", "per-stage,asa-asks")
    assert "its jobs are chunks of whole nodes" in " ".join((told.stdout + told.stderr).split())
    told = asa("simulate", place / "quiet.swf", "--scheduler", "openccs", "--set", "nodes=16", "--output", "json")
    assert json.loads(told.stdout)["started"] == 100


def test_a_machine_of_several_sizes_has_the_most_frequent_for_chunks():
    nodes = (Node("a", {"ncpus": 4}), Node("b", {"ncpus": 8}), Node("c", {"ncpus": 4}))
    machine = NodesMachine(CcsSystem("mixed", nodes))
    assert (machine.cores, machine.node_cores) == (16, 4)
    assert [str(chunk) for chunk in machine.request(11, 60).chunks] == ["2:ncpus=4", "ncpus=3"]
