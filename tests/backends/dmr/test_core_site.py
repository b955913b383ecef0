"""The backend ``dmr``, the scheduler by its name, and how a client's jobs grow on simulated sites."""

import json

import numpy as np
import pytest
from asa.backends.dmr.site import DmrSite
from asa.backends.openccs.site import OpenCcsSite
from asa.backends.simulated import SimulatedSite
from asa.backends.simulated.swf import write_swf
from asa.backends.simulated.table import JobTable
from forked import asa

from asa.backend import Growing, JobSpec, JobState, Step
from asa.errors import BackendError, InputError, JobNotFoundError, SubmitRejectedError
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.testing import check_backend
from asa.workflow import Stage, Workflow

CORES = 64


def log(path, columns):
    write_swf(path, JobTable(*(np.array(column, dtype=np.int64) for column in columns)), cores=CORES)
    return path


@pytest.fixture
def quiet(tmp_path):
    """A log that leaves the machine to the client."""
    return log(tmp_path / "quiet.swf", [np.arange(100) * 10_000, *(np.ones(100) for _ in range(3))])


@pytest.fixture
def full(tmp_path):
    """A log of jobs of the whole machine, one behind the other."""
    run = np.full(100, 10_000)
    return log(tmp_path / "full.swf", [np.arange(100) * 10_000, run, run, np.full(100, CORES)])


@pytest.fixture
def busy(tmp_path):
    """A log of a month of a busy machine."""
    rng = np.random.default_rng(7)
    run = rng.exponential(4000, 3000) + 1
    submit = np.cumsum(rng.exponential(900, 3000).astype(int))
    return log(tmp_path / "busy.swf", [submit, run, 4 * run, 2 ** rng.integers(0, 6, 3000)])


def until(world, job_id, done):
    for _ in range(1000):
        status = world.status([job_id])[job_id]
        if done(status):
            return status
        world.wait(None)
    raise AssertionError(status)


def test_it_is_a_backend_like_any_other(quiet):
    check_backend(lambda: DmrSite(trace=quiet).open(seed=3))


def test_jobs_of_others_shrink_for_the_client(full):
    job = JobSpec("half", cores=CORES // 2, walltime_s=600.0, run_s=300.0)
    waits = []
    for share in (0.0, 1.0):
        world = DmrSite(trace=full, malleable=share, period_s=15).open(seed=3)
        start_s = world.foresee_start(job, world.now())
        waits.append(start_s - world.now())
        assert until(world, world.submit(job), lambda s: s.start_s is not None).start_s == start_s
    assert waits[0] > 16 >= waits[1], "a check, and a second to acknowledge"


def test_a_workflow_runs_there(full):
    flow = Workflow("flow", [Stage("a", cores=8, walltime_s=600), Stage("b", cores=32, walltime_s=600, after=("a",))])
    for name in ("big-job", "chained"):
        [result] = run_all(DmrSite(trace=full, malleable="1").open(seed=2), [Run(flow, load_strategy(name))])
        assert result.outcome == "completed"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"maleable": 1}, "no setting 'maleable'"),
        ({"malleable": "x"}, "cannot be read"),
        ({"factor": 1}, "factor: 1 cannot be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        DmrSite("hpc2n", **settings)


def test_logs_are_simulated_by_its_name(busy):
    told = [
        json.loads(
            asa("simulate", busy, "--scheduler", "dmr", "--set", f"malleable={share}", "--output", "json").stdout
        )
        for share in (0, 0.3)
    ]
    assert told[0]["mean_wait_s"] == json.loads(asa("simulate", busy, "--output", "json").stdout)["mean_wait_s"]
    assert told[1]["mean_wait_s"] < told[0]["mean_wait_s"]
    assert "no way to resize" in asa("simulate", busy, "--scheduler", "dmr", "--set", "resizing=x", code=2).stderr
    table = asa("compare", "blast", "--trace", busy, "--scheduler", "dmr", "--cores", 16, "--seeds", 1).stdout
    assert "the machine's scheduler is dmr" in table


# ---------------------------------------------------------------------- growing


STEPS = (
    Step("narrow", "", cores=4, slot_s=(0.0, 30.0)),
    Step("wide", "", cores=60, slot_s=(30.0, 50.0)),
    Step("end", "", cores=2, slot_s=(50.0, 80.0)),
)
ELASTIC = JobSpec("elastic", cores=4, walltime_s=30_000.0, run_s=80.0, steps=STEPS)


def more_of(cores, token=""):
    return JobSpec("more", cores, walltime_s=100.0, token=token)


def test_a_wide_step_waits_for_the_cores_that_join(quiet):
    """Asked for 20 s after the narrow one has begun, while another job has what it needs for 50 s."""
    world = SimulatedSite(trace=quiet, poll_s=0).open(seed=3)
    assert isinstance(world, Growing)
    assert world.capabilities.grow_by == 1
    other = world.submit(JobSpec("other", cores=60, walltime_s=100.0, run_s=50.0))
    job = world.submit(ELASTIC)
    begin = until(world, job, lambda s: s.start_s is not None).start_s
    world.wait(begin + 20)
    more = world.grow(job, more_of(56, token="more"))
    assert world.find(["more"])["more"][0].job_id == more
    assert world.status([more])[more].state is JobState.PENDING
    world.wait(begin + 40)
    told = world.status([job])[job].steps
    assert [(step.name, step.end_s) for step in told] == [("narrow", begin + 30)]
    assert until(world, more, lambda s: s.start_s is not None).start_s == begin + 50
    assert world.status([other])[other].end_s == begin + 50
    ended = until(world, job, lambda s: s.state.is_final)
    assert (ended.state, ended.end_s) == (JobState.COMPLETED, begin + 100)
    assert [(step.name, step.start_s - begin, step.end_s - begin, step.cores) for step in ended.steps] == [
        ("narrow", 0, 30, 4),
        ("wide", 50, 70, 60),
        ("end", 70, 100, 2),
    ]
    joined = world.status([more])[more]
    assert (joined.state, joined.exit_code, joined.end_s) == (JobState.COMPLETED, 0, begin + 70)


@pytest.mark.parametrize("make", [SimulatedSite, OpenCcsSite, DmrSite])
def test_jobs_grow_under_every_scheduler(full, make):
    world = make(trace=full, **({"malleable": 1} if make is DmrSite else {})).open(seed=3)
    job = world.submit(ELASTIC)
    until(world, job, lambda s: s.start_s is not None)
    more = world.grow(job, more_of(28))
    again = world.grow(job, more_of(28))
    ended = until(world, job, lambda s: s.state.is_final)
    assert ended.state is JobState.COMPLETED
    assert [world.status([one])[one].state for one in (more, again)] == [JobState.COMPLETED] * 2
    assert world.wait(world.now() + 1) == []


def test_where_jobs_cannot_grow_no_step_waits(quiet):
    world = SimulatedSite(trace=quiet, grow="no").open(seed=3)
    assert world.capabilities.grow_by == 0
    job = world.submit(ELASTIC)
    with pytest.raises(BackendError, match="cannot get more cores"):
        world.grow(job, more_of(8))
    ended = until(world, job, lambda s: s.state.is_final)
    assert ended.end_s - ended.start_s == 80


def test_what_cannot_be_asked_for_is_refused(quiet):
    world = SimulatedSite(trace=quiet).open(seed=3)
    with pytest.raises(JobNotFoundError):
        world.grow("1", more_of(8))
    job = world.submit(JobSpec("job", cores=4, walltime_s=50.0, run_s=10.0))
    for cores in (0, 61):
        with pytest.raises(SubmitRejectedError, match=f"is to get {cores} more cores on a machine of 64"):
            world.grow(job, more_of(cores))
    more = world.grow(job, more_of(60))
    for what, message in ((more, "cannot get more"), (job, "has ended")):
        if what == job:
            until(world, job, lambda s: s.state.is_final)
        with pytest.raises(BackendError, match=message):
            world.grow(what, more_of(1))
