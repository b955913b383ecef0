"""On real Slurm daemons a run never touches others' jobs, nor runs a stage on a cluster that is not its own."""

import itertools
import os
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from slurm_runs import LINKS, SlurmRun, stage
from slurm_testbed import NEWEST, OLDEST, Testbed, missing, until

from asa.errors import JobNotFoundError, OtherClusterError

LONG = "sleep 600"
COMMANDS = (["cancel", "--yes"], ["resume"], ["tick"])
OTHER = 3  # the exit code
_NUMBERS = itertools.count(2)


def begun(release, name):
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-{release}{name}"), release=release, nodes=1)
    return testbed.start()


@pytest.fixture(scope="module", params=[OLDEST, pytest.param(NEWEST, marks=pytest.mark.full)])
def clusters(request):
    """Yield two clusters of one name."""
    if reason := missing(request.param):
        pytest.skip(reason)
    made = []
    try:
        made += [begun(request.param, "h")]
        made += [begun(request.param, "o")]
        yield made
    finally:
        for testbed in made:
            testbed.stop()


@pytest.fixture
def home(clusters):
    clusters[0].empty()
    return clusters[0]


@pytest.fixture
def other(clusters):
    clusters[1].empty()
    return clusters[1]


def begin_anew(slurm):
    """Make the controller lose its state and all jobs; job numbers begin at 1 again."""
    slurm.stop_controller()
    for part in (slurm.root / "state").iterdir():
        if not part.name.endswith(".pid"):
            shutil.rmtree(part) if part.is_dir() else part.unlink()
    slurm.start_controller()
    until(lambda: "PARTITION" in slurm.run("sinfo", check=False), what="the controller")


def strangers_job(slurm, *, root):
    """Submit a job that is none of asa's."""
    batch = (
        "sbatch",
        "--parsable",
        "--hold",
        "--chdir=/tmp",
        "--output=/dev/null",
        "--job-name=strangers",
        "--time=60",
    )
    return (slurm.run_as_root if root else slurm.run)(*batch, "--wrap", LONG).strip()


def strangers_jobs(slurm, number, *, root):
    """Submit jobs until one has this number; return the number."""
    return until(lambda: int(job := strangers_job(slurm, root=root)) >= number and job, what=f"job {number}")


def state_of(slurm, job_id):
    return slurm.run_as_root("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T").strip()


def first_of(run):
    """Return the number of the run's first job."""
    [job_id] = run.folder.state()[0].jobs
    return job_id


def asa(run, *words):
    """Run a command of asa on a run; return its exit code and output."""
    command = [sys.executable, "-m", "asa", *words, str(run.folder.path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=run.place, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def used_up(slurm):
    """Let the next job get a number that no started job had before, since its node would confuse the two."""
    number = next(_NUMBERS)
    if number > 2:
        strangers_jobs(slurm, number - 1, root=True)
    slurm.empty()


def left_running(slurm, link):
    """Begin a run whose client has left while its first stage runs."""
    used_up(slurm)
    run = SlurmRun(slurm, [stage("a", then=LONG), stage("b", "a")], link=link, strategy="per-stage")
    client = run.client()
    client.sees_running("a")
    until(lambda: run.ran == {"a": 1}, what="the payload")
    client.leave()
    return run


@pytest.mark.parametrize(("link", "root"), [("rest", False), ("commands", True)], ids=["the same user's", "another's"])
def test_a_job_that_has_the_number_by_now_is_left_alone(home, link, root):
    """`asa cancel`, `asa resume` and `asa tick` do not touch it after the controller has lost its state."""
    begin_anew(home)
    run = left_running(home, link)
    begin_anew(home)
    theirs = strangers_jobs(home, int(first_of(run)), root=root)
    assert theirs in run.folder.state()[0].jobs
    for command in COMMANDS:
        code, said = asa(run, *command)
        assert (code, state_of(home, theirs)) == (OTHER, "PENDING"), said
        assert "numbers of jobs began anew" in said
        assert "--accept-cluster" in said
    assert run.folder.state()[0].outcome is None
    assert run.folder.take_requests() == []  # a cancellation that was refused is not carried out later
    with pytest.raises(OtherClusterError):
        run.result()


@pytest.mark.parametrize("link", LINKS)
def test_what_changes_a_job_asks_whose_it_is(home, link):
    """Also in a run of an earlier version, which has not noted its cluster."""
    begin_anew(home)
    run = left_running(home, link)
    (run.folder.path / "cluster.json").unlink()
    begin_anew(home)
    theirs = strangers_jobs(home, int(first_of(run)), root=False)
    with closing(run.connect(lambda _: None)) as backend:
        for change in (
            lambda: backend.cancel(theirs),
            lambda: backend.hold(theirs),
            lambda: backend.release(theirs),
            lambda: backend.change_walltime(theirs, 60.0),
        ):
            with pytest.raises(JobNotFoundError, match="another job now"):
                change()
        assert list(backend.cancel_all([theirs])) == [theirs]
    assert state_of(home, theirs) == "PENDING"
    assert "TimeLimit=01:00:00" in home.run("scontrol", "show", "job", theirs)


@pytest.mark.parametrize("link", LINKS)
def test_a_client_at_work_stops_as_numbers_begin_anew(home, link):
    begin_anew(home)
    used_up(home)
    run = SlurmRun(home, [stage("a", then=LONG), stage("b", "a")], link=link, strategy="per-stage")
    client = run.client()
    client.sees_running("a")
    home.stop_controller()
    begin_anew(home)
    theirs = strangers_jobs(home, int(first_of(run)), root=True)
    with pytest.raises(OtherClusterError, match="began anew"):
        client.result()
    assert state_of(home, theirs) == "PENDING"


@pytest.mark.parametrize(("link", "is_busy"), [("rest", True), ("commands", True), ("rest", False)])
def test_on_another_cluster_of_that_name_nothing_is_touched_and_no_stage_runs_again(home, other, link, is_busy):
    begin_anew(home)
    begin_anew(other)
    run = left_running(home, link)
    job_id = run.job("a")["JobId"]
    theirs = [strangers_job(other, root=True) for _ in range(int(first_of(run)) + 3)] if is_busy else []
    settings = dict(run.plan.settings)
    reached = {"url": f"unix://{other.socket}"} if link == "rest" else {"prefix": tuple(other.prefix)}
    run.folder.revise(settings=settings | reached)
    for command in COMMANDS:
        code, said = asa(run, *command)
        assert code == OTHER, said
    assert all(state_of(other, job) == "PENDING" for job in theirs)
    assert other.run_as_root("squeue", "-h", "-a", "-t", "all").count("\n") == len(theirs)
    assert run.ran == {"a": 1}
    run.folder.revise(settings=settings)
    assert state_of(home, job_id) == "RUNNING"
    assert asa(run, "cancel", "--yes")[0] == 0
    until(lambda: state_of(home, job_id) == "CANCELLED", what="its end at home")


@pytest.mark.parametrize("link", LINKS)
def test_a_client_at_work_submits_nothing_where_another_cluster_is_reached_by_now(home, other, link, tmp_path):
    """The configuration changes while it runs. The clusters have the same name."""
    for slurm in (home, other):
        begin_anew(slurm)
    theirs = strangers_job(other, root=True)
    way = tmp_path / "way"

    def leads_to(slurm):
        """Let the client reach a cluster."""
        made = way.with_name("next")
        if link == "rest":
            made.symlink_to(slurm.socket)
        else:
            made.write_text(f'#!/bin/sh\nexec {" ".join(slurm.prefix)} "$@"\n')
            made.chmod(0o755)
        made.replace(way)

    leads_to(home)
    by_rest = {"url": f"unix://{way}", "served_by": home.user}
    reached = by_rest if link == "rest" else {"prefix": (str(way),)}
    run = SlurmRun(home, [stage("a", then=LONG), stage("b")], link=link, strategy="per-stage", **reached)
    with closing(run.connect(lambda _: None)) as backend:
        job_id = backend.submit(run.spec("a"))
        until(lambda: state_of(home, job_id) == "RUNNING", what="the payload")
        leads_to(other)
        # what was compared a moment ago is taken for sure; by REST a connection is kept for some seconds
        time.sleep(6.0 if link == "rest" else 2.1)
        with pytest.raises(OtherClusterError, match="began anew") as caught:
            backend.submit(run.spec("b"))
        assert "Nothing was touched" in caught.value.hint
        with pytest.raises(OtherClusterError):
            backend.cancel(job_id)
        assert other.run_as_root("squeue", "-h", "-a", "-t", "all", "-o", "%i").split() == [theirs]
        leads_to(home)
        if link == "commands":
            assert backend.submit(run.spec("b"))
    assert state_of(home, job_id) == "RUNNING"


@pytest.mark.parametrize("link", LINKS)
def test_who_knows_better_goes_on(home, link):
    """The job of the run is lost, and its stage runs where the user says."""
    begin_anew(home)
    run = left_running(home, link)
    begin_anew(home)
    theirs = strangers_jobs(home, int(first_of(run)), root=True)
    assert asa(run, "tick")[0] == OTHER
    code, said = asa(run, "resume", "--accept-cluster", "--detach-by", "job", "--quiet")
    assert code == 0, said
    assert state_of(home, theirs) == "PENDING"
