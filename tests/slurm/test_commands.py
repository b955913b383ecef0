"""Slurm through its commands, on real daemons of both versions."""

import itertools
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from asa.backends.slurm.accounting import read_history
from asa.backends.slurm.commands import CommandLink, Done, process
from asa.backends.slurm.link import SlurmJob
from slurm_fake_link import cancel, own
from slurm_testbed import OLDEST, until

from asa.errors import (
    BackendError,
    JobNotFoundError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)

_NUMBERS = itertools.count()
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}


@pytest.fixture
def link(slurm):
    """Yield a link; the queue is empty before and after."""
    slurm.empty()
    yield CommandLink(prefix=slurm.prefix)
    slurm.empty()


@pytest.fixture(params=["through a prefix", "here"])
def either(slurm, link, request, monkeypatch):
    """Return a link and its user: one with a prefix to Slurm's commands, and one that runs them directly."""
    if request.param == "through a prefix":
        return link, slurm.user
    if slurm.release != OLDEST:
        pytest.skip("its commands are in a tree of their own")
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    return CommandLink(), "root"


@pytest.fixture
def folder(slurm, request):
    return slurm.folder(f"commands-{request.node.originalname}-{next(_NUMBERS)}")


@pytest.fixture
def job(folder):
    """Return a job that sleeps."""
    return SlurmJob(
        name=f"{folder.name}.token",
        script="#!/bin/sh\nexec sleep 300\n",
        folder=str(folder),
        cores=1,
        walltime_s=600.0,
        stdout=str(folder / "out"),
        stderr=str(folder / "err"),
        environment={"PATH": "/usr/bin:/bin"},
    )


def record(link, job_id):
    return link.jobs([job_id])[job_id]


def ended(link, job_id):
    """Wait until a job has ended, and return it."""
    return until(lambda: (told := record(link, job_id)).states[0] in ENDED and told, what="its end")


def running(link, job_id):
    return until(lambda: (told := record(link, job_id)).states == ("RUNNING",) and told, what="its start")


def test_a_job_is_what_was_asked_for(either, job, folder):
    """Its name, its resources, its script and its environment, whatever characters they contain."""
    link, user = either
    script = "#!/bin/sh\nenv -0 > environment\nsrun true\necho done; echo oh >&2\nexit 3  # \\n 'quoted' \"$1\"\n"
    environment = {"PATH": "/usr/bin:/bin", "ODD": "a,b='c' \"d\"\n$HOME %s", "EMPTY": ""}
    odd = replace(
        job,
        name="née | a,b\nline",
        comment="asa:t|o'k\"en",
        script=script,
        environment=environment,
        cores=3,
        nodes=2,
        memory_bytes=200 << 20,
        walltime_s=61.0,
        stdout=str(folder / "100%j.out"),
    )
    job_id = link.submit(odd)
    told = ended(link, job_id)
    assert (told.name, told.comment, told.user, told.partition) == (odd.name, odd.comment, user, "normal")
    assert (told.cores, told.nodes, told.limit_s) == (3, 2, 120.0)
    assert (told.states, told.exit_code, told.signal, told.reason) == (("FAILED",), 3, None, "NonZeroExitCode")
    assert told.submit_s <= told.eligible_s <= told.start_s <= told.end_s <= time.time() + 1
    assert (folder / "100%j.out").read_text() == "done\n"
    assert (folder / "err").read_text() == "oh\n"
    seen = dict(pair.split("=", 1) for pair in (folder / "environment").read_text().split("\0") if pair)
    assert environment.items() <= seen.items()
    assert seen["SLURM_JOB_NAME"] == odd.name
    assert seen.keys().isdisjoint({"HOME", "USER", "LOGNAME", "SHELL", "SLURM_EXPORT_ENV", "TB_ROOT"})


def test_an_unknown_job_does_not_harm_the_others(link, job):
    job_id = link.submit(job)
    assert link.jobs([job_id, "987654", "no number"]).keys() == {job_id}
    assert link.jobs(["987654"]) == {}
    assert link.jobs(["987654", "987655"]) == {}
    before = link.calls["jobs"]
    assert link.jobs([]) == link.jobs(["no number"]) == {}
    assert link.calls["jobs"] == before


def test_pending_jobs_say_why_and_since_when(slurm, link, job):
    whole = link.submit(replace(job, nodes=4, cores=112))
    running(link, whole)
    soon = int(time.time()) + 3600
    ids = {
        "blocked": link.submit(replace(job, name="blocked")),
        "dependent": link.submit(replace(job, name="dependent", dependency=f"afterok:{whole},after:{whole}+2")),
        "later": link.submit(replace(job, name="later", begin_s=soon)),
        "held": link.submit(replace(job, name="held", held=True)),
    }
    until(lambda: (one := record(link, ids["blocked"])).expected_start_s and one.reason, what="an estimate, and why")
    calls = link.calls["jobs"]
    told = link.jobs(ids.values())
    assert link.calls["jobs"] == calls + 1
    blocked, dependent, later, held = (told[job_id] for job_id in ids.values())
    assert {one.states for one in told.values()} == {("PENDING",)}
    assert {one.start_s for one in told.values()} == {one.end_s for one in told.values()} == {None}
    assert blocked.reason in {"Resources", "Priority"}
    assert blocked.eligible_s == blocked.accrue_s == blocked.submit_s
    assert blocked.expected_start_s > blocked.submit_s
    assert (dependent.reason, dependent.eligible_s, dependent.accrue_s) == ("Dependency", None, None)
    assert dependent.dependency == f"afterok:{whole}(unfulfilled),after:{whole}+2(unfulfilled)"
    assert (later.reason, later.eligible_s, later.expected_start_s) == ("BeginTime", soon, soon)
    assert (held.reason, held.eligible_s) == ("JobHeldUser", None)


def test_everybodys_queue_is_told_with_arrays(slurm, link, job):
    mine = link.submit(replace(job, held=True))
    script = "printf '#!/bin/sh\\nsleep 9\\n' | sbatch --parsable -H -D /tmp -o /dev/null"
    theirs = slurm.run_as_root("sh", "-c", f"{script} -J 'bad|name\n7|7'").strip()
    array = slurm.run("sh", "-c", f"{script} -a 1-3").strip()
    told = {one.job_id: one for one in link.queue()}
    assert told[mine].user == slurm.user
    assert (told[theirs].user, told[theirs].name) == ("root", "bad|name\n7|7")
    assert told[array].is_array
    assert not told[mine].is_array
    assert link.jobs([mine, theirs]).keys() == {mine}


def test_cancelling(link, job):
    pending, runs = link.submit(replace(job, held=True)), link.submit(job)
    running(link, runs)
    cancel(link, pending)
    cancel(link, runs)
    cancelled, killed = ended(link, pending), ended(link, runs)
    assert cancelled.states == killed.states == ("CANCELLED",)
    assert (cancelled.start_s, cancelled.exit_code, cancelled.signal) == (None, None, None)
    assert cancelled.end_s >= cancelled.submit_s
    assert killed.start_s <= killed.end_s
    cancel(link, pending)
    with pytest.raises(JobNotFoundError):
        cancel(link, "987654")


def test_others_jobs_are_not_ours_to_change(slurm, link):
    theirs = slurm.run_as_root("sh", "-c", "printf '#!/bin/sh\n' | sbatch --parsable -H -D /tmp -o /dev/null").strip()
    with pytest.raises(BackendError, match="Access/permission denied"):
        cancel(link, theirs)
    with pytest.raises(BackendError, match="Invalid user id"):
        link.update(own(theirs), held=False)


def test_holding_and_releasing(link, job):
    job_id = link.submit(replace(job, held=True))
    link.update(own(job_id), held=False)
    running(link, job_id)
    other = link.submit(replace(job, begin_s=int(time.time()) + 3600))
    link.update(own(other), held=True)
    assert record(link, other).reason == "JobHeldUser"
    for change in ({"held": True}, {"held": False}, {"walltime_s": 60.0}):
        with pytest.raises(JobNotFoundError):
            link.update(own("987654"), **change)


def test_a_running_job_changes_its_walltime_and_its_nodes(slurm, job, folder):
    """Scripts that scontrol writes inside a job are not left in the working directory."""
    link = CommandLink(prefix=[*slurm.prefix, "env", "-C", str(folder), "SLURM_JOBID=1", "SLURM_JOB_ID=1"])
    job_id = link.submit(replace(job, nodes=3, cores=3))
    running(link, job_id)
    link.update(own(job_id), walltime_s=301.0, nodes=1)
    told = record(link, job_id)
    assert (told.limit_s, told.nodes, told.states) == (360.0, 1, ("RUNNING",))
    assert not list(folder.glob("*resize*"))
    with pytest.raises(BackendError, match="Access/permission denied"):
        link.update(own(job_id), walltime_s=1e6)
    cancel(link, job_id)


def test_a_requeued_job_counts_its_starts(slurm, link, job):
    job_id = link.submit(job)
    running(link, job_id)
    slurm.run("scontrol", "requeue", job_id)
    told = until(lambda: (one := record(link, job_id)).states == ("PENDING",) and one, what="the queue again")
    assert (told.restarts, told.start_s) == (1, None)
    assert [one.job_id for one in link.named([job.name])] == [job_id]
    until(lambda: link.past([job_id]), what="its first record")
    assert [one.restarts for one in link.named([job.name])] == [1]


def test_jobs_are_found_by_name_and_in_accounting(slurm, link, job, folder, tmp_path):
    began = time.time()
    quick = replace(job, script="#!/bin/sh\nkill -9 $$\n", environment={"A": "1"})
    first, second = link.submit(quick), link.submit(replace(quick, name="another"))
    live = ended(link, first)
    ended(link, second)
    assert (live.exit_code, live.signal) == (None, 9)
    assert [one.job_id for one in link.named([job.name])] == [first]
    assert link.named(["nobody's"]) == link.named(["no, such", job.name[:-1]]) == link.named([]) == []
    recorded = until(lambda: (told := link.past([first, second, "987654"])).keys() == {first, second} and told)
    assert recorded[first].end_s == live.end_s
    for field in ("name", "user", "states", "submit_s", "eligible_s", "start_s", "limit_s", "cores", "nodes", "signal"):
        assert getattr(recorded[first], field) == getattr(live, field), field
    assert [one.job_id for one in link.recorded([job.name], began - 5)] == [first]
    assert link.recorded(["nobody's"], began - 5) == link.recorded([], began - 5) == []
    text = tmp_path / "jobs.txt"
    text.write_text(link.accounting(began - 5, time.time() + 5))
    history = read_history(text)
    assert len(history.submit_s) >= 2
    assert history.system == "testbed"


def test_what_the_controller_has_forgotten_is_found_by_name(slurm, link, job):
    """In this test, squeue is prevented from showing the job."""
    job_id = link.submit(replace(job, script="#!/bin/sh\n"))
    ended(link, job_id)
    until(lambda: link.past([job_id]), what="its record")

    def run(command, stdin, timeout_s):
        return Done(0) if "squeue" in command else process.run(command, stdin, timeout_s)

    assert [one.job_id for one in CommandLink(prefix=slurm.prefix, run=run).named([job.name])] == [job_id]


def test_what_slurm_refuses_is_told_in_its_words(link, job):
    for change, words in (
        ({"partition": "nope"}, "[Ii]nvalid partition"),
        ({"dependency": "whenever:1"}, "Job dependency problem"),
        ({"memory_bytes": 1 << 60}, "Requested node configuration is not available"),
        ({"constraint": "nope"}, "Invalid feature"),
        ({"gpus": 1}, "gres"),
        ({"script": "exit 0\n"}, "does not look like a batch script"),
        ({"script": ""}, "empty"),
        ({"cores": -1}, "--ntasks"),
    ):
        with pytest.raises(SubmitRejectedError, match=words):
            link.submit(replace(job, **change))


def test_the_users_variables_change_neither_questions_nor_jobs(slurm, job, folder):
    variables = (
        "SQUEUE_FORMAT=%i", "SQUEUE_STATES=SUSPENDED", "SQUEUE_USERS=root", "SQUEUE_NAMES=x", "SQUEUE_SORT=-j",
        "SACCT_FORMAT=jobid", "SBATCH_EXPORT=NONE", "SBATCH_ARRAY_INX=1-3", "SBATCH_GET_USER_ENV=1", "SBATCH_WAIT=1",
        "SCANCEL_NAME=x", "SCANCEL_STATE=SUSPENDED", "SLURM_TIME_FORMAT=relative", "LC_ALL=de_DE.UTF-8",
        "SBATCH_PARTITION=debug",
    )  # fmt: skip
    link = CommandLink(prefix=[*slurm.prefix, "env", *variables])
    job_id = link.submit(job)
    told = running(link, job_id)
    assert not told.is_array
    assert abs(told.start_s - time.time()) < 60
    assert told.partition == "debug"  # it fills in for what the job leaves open
    cancel(link, job_id)
    assert ended(link, job_id).states == ("CANCELLED",)


def test_it_works_through_ssh(slurm, job, folder, tmp_path):
    """A shell at the other end reads the command."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nshift\necho "Welcome to login 1"\nexec env {" ".join(slurm.prefix[1:])} sh -c "$*"\n')
    ssh.chmod(0o755)
    link = CommandLink(prefix=[str(ssh), "login.example.org"])
    odd = replace(job, name="it's; a $(name)", script='#!/bin/sh\nprintf %s "$ODD"\n', environment={"ODD": "a b;'c'"})
    job_id = link.submit(odd)
    assert ended(link, job_id).name == odd.name
    assert Path(job.stdout).read_text() == "a b;'c'"
    assert link.about().means == "Slurm's commands through ssh"


def test_the_cluster_is_described(slurm, link):
    about = link.about()
    assert (about.version, about.cluster, about.controller_up) == (slurm.version, "testbed", True)
    assert about.accounting
    settings = link.settings()
    assert settings["MinJobAge"] == "600 sec"
    assert settings["PriorityFlags"] == ""
    normal, debug = sorted(link.partitions(), key=lambda one: one.name, reverse=True)
    assert (normal.name, normal.is_default, normal.max_walltime_s, normal.max_nodes) == ("normal", True, 604800.0, None)
    assert (debug.name, debug.is_default, debug.max_walltime_s) == ("debug", False, 1800)
    assert (normal.is_up, normal.nodes, normal.cores) == (True, 4, 112)
    nodes = link.nodes()
    assert [one.name for one in nodes] == ["n001", "n002", "n003", "n004"]
    assert (nodes[0].cores, nodes[0].memory_bytes, nodes[0].partitions) == (28, 64000 << 20, ("normal", "debug"))
    slurm.run_as_root("scontrol", "update", "nodename=n004", "state=drain", "reason=State=UP test")
    try:
        assert "DRAIN" in link.nodes()[3].states
    finally:
        slurm.run_as_root("scontrol", "update", "nodename=n004", "state=resume")


def test_a_silent_controller_leaves_a_submission_in_doubt(slurm, link, job):
    """Once it answers again, the job is found."""
    controller = int((slurm.root / "run" / "slurmctld.pid").read_text())
    os.kill(controller, signal.SIGSTOP)
    try:
        with pytest.raises(SubmitInDoubtError, match="Socket timed out"):
            link.submit(job)
        hasty = CommandLink(prefix=slurm.prefix, timeout_s=0.5)
        with pytest.raises(SubmitInDoubtError, match=r"no answer within 0\.5 s"):
            hasty.submit(replace(job, name="hasty"))
        with pytest.raises(UnavailableError, match=r"no answer within 0\.5 s"):
            hasty.jobs(["1", "2"])
    finally:
        os.kill(controller, signal.SIGCONT)
    assert until(lambda: link.named([job.name]), what="the job")


def test_a_controller_that_is_away_is_not_available(slurm, link, job):
    slurm.stop_controller()
    try:
        with pytest.raises(UnavailableError, match="connect failure"):
            link.submit(job)
        about = link.about()
        assert (about.version, about.controller_up) == (slurm.version, False)
    finally:
        slurm.start_controller()
    assert link.named([job.name]) == []


@pytest.mark.skipif(sys.platform != "linux", reason="times of processes are Linux's")
def test_foreign_jobs_cost_the_client_nothing(slurm, link, job):
    one = "printf '#!/bin/sh\\n' | sbatch -Q -H -D /tmp -o /dev/null"
    slurm.run_as_root("sh", "-c", f"for i in $(seq 150); do {one}; done")
    ids = [link.submit(replace(job, name=f"mine{number}", held=True)) for number in range(4)]
    assert len(link.queue()) >= 154
    began = time.process_time()
    for _ in range(10):
        assert link.jobs(ids).keys() == set(ids)
    assert (time.process_time() - began) / 10 < 0.050
