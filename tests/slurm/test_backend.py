"""Slurm as a backend: real daemons behave as the stand-in for Slurm does."""

import itertools

import pytest
from asa.backends.shell.marks import MarksFolder
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.rest import RestLink
from slurm_testbed import until

from asa.backend import Capabilities, Dependency, DependencyType, JobSpec, JobState
from asa.errors import SubmitRejectedError

SITE = Capabilities("testbed", 112, 28, age_accrues=False, partition="normal")
NUMBERS = itertools.count()


@pytest.fixture
def folder(slurm):
    folder = slurm.folder(f"backend{next(NUMBERS)}")
    for part in ("scripts", "logs", "marks", "posts", "jobs"):
        (folder / part).mkdir()
        (folder / part).chmod(0o777)  # the client may be root, the jobs are not
    return folder


@pytest.fixture
def client(slurm, folder):
    """Open clients of one folder on an empty cluster; they are closed at the end."""
    slurm.empty()
    opened = []

    def client():
        link = RestLink(f"unix://{slurm.socket}", timeout_s=10.0)
        defaults = JobDefaults(environment={"PATH": "/usr/bin:/bin"}, inherit=False, folder=folder)
        opened.append(SlurmBackend(link, folder, SITE, defaults=defaults, poll_s=0.3, max_poll_s=1.0))
        return opened[-1]

    yield client
    for backend in opened:
        backend.close()
    slurm.empty()


def spec(command="sleep 300", **changes):
    return JobSpec(**{"name": "test", "cores": 1, "walltime_s": 600.0, "command": command} | changes)


def seen(backend, job_id, true):
    def look():
        backend.wait(backend.now() + 1)
        status = backend.status([job_id])[job_id]
        return status if true(status) else None

    return until(look, what=f"job {job_id}")


def runs(status):
    return status.state is JobState.RUNNING


def is_over(status):
    return status.state.is_final


@pytest.mark.full
def test_a_dependency_that_slurm_would_drop_is_never_passed_on(slurm, client):
    with pytest.raises(SubmitRejectedError, match="999999"):
        client().submit(spec(dependencies=(Dependency("999999"),)))
    assert not slurm.run("squeue", "-h", "-t", "pending,running").strip()


def test_an_end_is_enough_where_a_long_delay_is_left(client):
    backend = client()
    first = backend.submit(spec("sleep 3"))
    start_s = seen(backend, first, runs).start_s
    waits = backend.submit(
        spec("true", dependencies=(Dependency(first, DependencyType.AFTER, delay_s=500.0, or_end=True),))
    )
    assert seen(backend, waits, is_over).start_s < start_s + 60.0


def test_a_controller_that_goes_is_waited_for(slurm, client):
    backend = client()
    job = backend.submit(spec("sleep 1"))
    seen(backend, job, runs)
    slurm.stop_controller()
    try:
        backend.wait(backend.now() + 3)
        until(lambda: backend.wait(backend.now() + 1) == [] and backend.condition.trouble, what="trouble")
        assert backend.status([job])[job].state is JobState.RUNNING
    finally:
        slurm.start_controller()
    assert seen(backend, job, is_over).state is JobState.COMPLETED
    assert backend.condition.trouble == ""


def test_a_client_that_comes_later_knows_everything(client):
    first = client()
    jobs = [first.submit(spec("exit 3", token="one-1")), first.submit(spec(token="two-2", awaits=("never",)))]
    for job, true in zip(jobs, (is_over, runs), strict=True):
        seen(first, job, true)
    later = client()
    told = later.status(jobs)
    assert (told[jobs[0]].state, told[jobs[0]].exit_code) == (JobState.FAILED, 3)
    assert (told[jobs[1]].state, told[jobs[1]].payload_start_s) == (JobState.RUNNING, None)
    found = client().find(["one-1", "two-2", "three-3"])
    assert {token: [status.job_id for status in jobs] for token, jobs in found.items()} == {
        "one-1": jobs[:1],
        "two-2": jobs[1:],
        "three-3": [],
    }


def test_a_cancelled_payload_may_tidy_up(client, folder):
    backend = client()
    command = f"trap 'echo tidy >{folder}/told; exit 1' TERM; touch {folder}/up; while :; do sleep 0.1; done"
    job = backend.submit(spec(command, token="a", posts=("x",)))
    until((folder / "up").exists)
    backend.cancel(job)
    status = seen(backend, job, is_over)
    assert status.state is JobState.CANCELLED
    assert status.start_s is not None
    assert (folder / "told").read_text() == "tidy\n"
    assert MarksFolder(folder).ended(job, "a").exit_code == 1
    assert not list((folder / "posts").iterdir())


def test_a_job_that_is_put_back_is_told_so_and_runs_again(slurm, client, folder):
    backend = client()
    job = backend.submit(spec(f"echo x >>{folder}/ran; sleep 300", token="a"))
    until((folder / "ran").exists)
    seen(backend, job, runs)
    slurm.run_as_root("scontrol", "requeue", job)
    status = seen(backend, job, lambda s: s.restarts)
    assert not status.state.is_final

    def runs_again(status):
        if runs(status):
            return (folder / "ran").read_text() == "x\nx\n"
        slurm.hasten(job)
        return False

    status = seen(backend, job, runs_again)
    assert status.restarts == 1


def test_a_job_that_an_administrator_holds_is_marked(slurm, client):
    backend = client()
    first = backend.submit(spec())
    job = backend.submit(spec("true", dependencies=(Dependency(first),)))
    held = backend.submit(spec("true", held=True))
    slurm.run_as_root("scontrol", "hold", job)
    assert seen(backend, job, lambda s: s.held).eligible_s is None
    assert not backend.status([held])[held].held, "this client wants it"
    backend.release(held)
    status = seen(backend, held, is_over)
    assert status.state is JobState.COMPLETED
    assert not status.held
    assert status.eligible_s >= status.submit_s


def test_everybodys_jobs_are_told_and_ones_own_are_not(slurm, client):
    backend = client()
    own = backend.submit(spec())
    batch = ("sbatch", "--parsable", "--time=5", "--chdir=/tmp", "--output=/dev/null")
    other = slurm.run(*batch, "-n3", "--wrap", "sleep 300").strip()
    held = slurm.run(*batch, "--hold", "--wrap", "true").strip()
    seen(backend, own, runs)
    until(lambda: slurm.run("squeue", "-h", "-j", other, "-o", "%T").strip() == "RUNNING")
    events = [event for event in backend.queue_events(1000) if event.key in {own, other, held}]
    assert [event.what for event in events] == ["submitted", "started"]
    job = events[0].job
    assert (job.user, job.cores, job.walltime_s, job.partition) == (slurm.user, 3, 300.0, "normal")
