"""BBSched as the scheduler of a simulated machine, with jobs of a client that ask for burst buffer."""

import json

import numpy as np
import pytest
from asa.backends.bbsched.queue import bbsched
from asa.backends.bbsched.site import BBSchedSite
from asa.backends.simulated import SimulatedSite
from asa.backends.simulated.simulate import schedule
from asa.backends.simulated.swf import read_swf, write_swf
from asa.backends.simulated.table import NEVER, JobTable
from forked import asa

from asa.backend import Dependency, JobSpec, JobState
from asa.errors import InputError, SubmitRejectedError
from asa.records import StageStarted
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.testing import check_backend
from asa.workflow import Stage, Workflow

GB = 10**9
CORES = 64


@pytest.fixture
def quiet(tmp_path):
    """Return a log that leaves the machine to the client, including 256 GB of burst buffer."""
    path = tmp_path / "quiet.swf"
    moments = np.arange(100, dtype=np.int64) * 10_000
    ones = np.ones(100, dtype=np.int64)
    write_swf(path, JobTable(moments, ones, ones, ones), cores=CORES)
    return path


def job(name, gigabytes, cores=4, **more):
    return JobSpec(name, cores=cores, walltime_s=100.0, run_s=60.0, burst_buffer_bytes=gigabytes * GB, **more)


def start_of(world, job_id):
    while world.status([job_id])[job_id].start_s is None:
        world.wait(None)
    return world.status([job_id])[job_id].start_s


def test_it_is_a_backend_like_any_other(quiet):
    check_backend(lambda: BBSchedSite(trace=quiet).open(seed=3))


def test_a_job_waits_for_burst_buffer_though_there_are_cores(quiet):
    world = BBSchedSite(trace=quiet, share=0).open(seed=3)
    assert world.capabilities.burst_buffer_bytes == 256 * GB
    first, second, third = (world.submit(job(str(size), size)) for size in (200, 100, 56))
    begin = world.now()
    assert start_of(world, first) == start_of(world, third) == begin
    assert world.status([second])[second].state is JobState.PENDING
    assert start_of(world, second) == begin + 60
    assert world.foresee_start(job("whole", 256), world.now()) == begin + 120


def test_who_depends_on_others_is_not_in_the_window_before(quiet):
    """In a window of one job, a job that may not start yet would delay all others."""
    world = BBSchedSite(trace=quiet, share=0, window=1).open(seed=3)
    first = world.submit(job("first", 0, CORES // 2))
    second = world.submit(job("second", 0, CORES // 2, dependencies=(Dependency(first),)))
    third = world.submit(job("third", 0, CORES // 2))
    begin = world.now()
    assert start_of(world, first) == start_of(world, third) == begin
    assert start_of(world, second) == begin + 60


def test_more_than_there_is_can_never_be(quiet):
    world = BBSchedSite(trace=quiet).open(seed=3)
    with pytest.raises(SubmitRejectedError, match="asks for 257 of the machine's 256 GB"):
        world.submit(job("large", 257))
    assert "of burst buffer, and there are" in str(world.capabilities.impossible(job("large", 257)))
    assert world.capabilities.impossible(job("fits", 256)) is None
    plain = SimulatedSite(trace=quiet).open(seed=3)
    assert plain.capabilities.burst_buffer_bytes is None
    begin = plain.now()
    assert start_of(plain, plain.submit(job("large", 257))) == begin, "nobody looks at it"


def test_a_workflow_s_stage_asks_for_it(quiet):
    stages = [
        Stage("load", cores=4, walltime_s=600, expected_run_s=60),
        Stage("crunch", cores=32, walltime_s=600, expected_run_s=60, after=("load",), burst_buffer_bytes=200 * GB),
    ]
    world = BBSchedSite(trace=quiet, share=0).open(seed=3)
    world.submit(JobSpec("other", cores=1, walltime_s=900.0, run_s=800.0, burst_buffer_bytes=100 * GB))
    begin = world.now()
    [result] = run_all(world, [Run(Workflow("flow", stages), load_strategy("per-stage"))])
    starts = {record.stages: record.time_s for record in result.records if isinstance(record, StageStarted)}
    assert starts["load",] < begin + 60
    assert starts["crunch",] >= begin + 800


def test_whoever_used_less_is_first_where_the_base_scheduler_shares_fairly(tmp_path):
    """One user fills the machine twice; another's job, submitted in between, goes before the second of these."""
    submit, hour = np.array([0, 10, 20]), np.full(3, 3600)
    path = tmp_path / "two.swf"
    write_swf(path, JobTable(submit, hour, hour, np.full(3, CORES)), cores=CORES, users=[1, 1, 2])
    log = read_swf(path)
    starts = {
        order: schedule(log, "bbsched", {"order": order, "share": "0", "window": "1"}).start.tolist()
        for order in ("fcfs", "multifactor:age=0")
    }
    assert starts == {"fcfs": [0, 3600, 7200], "multifactor:age=0": [0, 7200, 3600]}


def test_the_background_asks_in_proportion_to_its_width():
    rng = np.random.default_rng(0)
    count = 4000
    table = JobTable(
        np.arange(count, dtype=np.int64) * 10, np.full(count, 60), np.full(count, 60), rng.integers(1, 100, count)
    )
    core = bbsched(share=0.3, gb_per_core=10).core(2000, table, now=0)
    asked = core.load.demand[:, 1]
    assert core.pools == {"nodes": 2000, "burst buffer": 20_000}
    assert np.mean(asked > 0) == pytest.approx(0.3, abs=0.03)
    factors = (asked / table.cores / 10)[asked > 0]
    assert 0.11 < factors.min() < 0.15
    assert 7 < factors.max() < 8.1
    assert factors.mean() == pytest.approx(1.89, rel=0.1)
    again = bbsched(share=0.3, gb_per_core=10).core(2000, table, now=0)
    assert (again.load.demand == core.load.demand).all()
    other = bbsched(share=0.3, gb_per_core=10, seed=1).core(2000, table, now=0)
    assert (other.load.demand != core.load.demand).any()
    core.run(NEVER - 1)
    assert (core.start >= table.submit).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"window": 0}, "a window of 0"),
        ({"share": 2}, "for 2.0 of the jobs"),
        ({"gb_per_core": 0}, "0 GB a core"),
        ({"method": "magic"}, "no method is called 'magic'"),
        ({"solver": "magic"}, "no solver is called 'magic'"),
        ({"order": "magic"}, "there is no scheduler 'magic'"),
        ({"wndow": 5}, "no setting 'wndow'"),
        ({"window": "wide"}, "'wide' cannot be read"),
    ],
)
def test_nonsense_is_refused_before_anything_is_simulated(quiet, settings, said):
    with pytest.raises(InputError, match=said):
        BBSchedSite(trace=quiet, **settings)


def test_comparing_on_it(quiet):
    arguments = ("compare", "blast", "--trace", quiet, "--cores", 16, "--seeds", 1, "--strategies", "per-stage")
    told = asa(*arguments, "--backend", "bbsched", "--set", "window=3").stdout
    assert "scheduler is bbsched, window 3" in told
    assert "made up, as logs do not tell: a burst buffer of 4 GB a core, for which 50 % of the jobs" in " ".join(
        told.split()
    )
    assert "scheduler is bbsched, window 3" in asa(*arguments, "--scheduler", "bbsched", "--set", "window=3").stdout
    assert "no setting 'windw'" in asa(*arguments, "--backend", "bbsched", "--set", "windw=3", code=2).stderr
    assert "no setting 'window'" in asa(*arguments, "--set", "window=3", code=2).stderr
    assert "is not a simulator" in asa(*arguments, "--backend", "local", code=2).stderr
    both = asa(*arguments, "--backend", "bbsched", "--scheduler", "easy", code=2).stderr
    assert "this backend has its own scheduler" in both


def test_scheduling_a_log_says_what_was_used_of_the_burst_buffer(tmp_path):
    """Four jobs of all cores run one after another; each that asks takes an eighth to eight times as much of it."""
    path = tmp_path / "full.swf"
    hours = np.full(4, 3600)
    write_swf(path, JobTable(np.zeros(4, dtype=np.int64), hours, hours, np.full(4, CORES)), cores=CORES)
    arguments = ("simulate", path, "--scheduler", "bbsched")
    told = json.loads(asa(*arguments, "--set", "share=1", "--output", "json").stdout)
    held = bbsched(share=1).core(CORES, JobTable(0 * hours, hours, hours, np.full(4, CORES)), now=0).load.demand[:4, 1]
    assert told["usages"] == {"burst buffer": pytest.approx(held.sum() / 4 / (4 * CORES))}
    assert 0 < told["usages"]["burst buffer"] <= 1
    assert told["notes"] == list(bbsched(share=1).notes)
    assert (
        f"burst buffer: {100 * told['usages']['burst buffer']:.1f} % used" in asa(*arguments, "--set", "share=1").stdout
    )
    assert json.loads(asa("simulate", path, "--output", "json").stdout)["usages"] == {}
