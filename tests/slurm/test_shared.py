"""Stages whose tasks several jobs share, on real daemons: each task completes once, whatever is killed or requeued."""

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from slurm_runs import LINKS, SlurmRun, busy_nodes, process
from slurm_testbed import until

from asa.bags import Bag
from asa.workflow import Stage


class BagRun(SlurmRun):
    """A run of a bag, and of a stage after it; each task leaves a line when it begins, and one when it ends."""

    def __init__(self, slurm, count=40, *, seconds=0.5, cores=8, jobs=4, nodes=None, walltime_s=300, **options):
        self.count = count
        self._task = (seconds, cores, jobs, nodes, walltime_s)
        super().__init__(slurm, [Stage("a", cores=1, command="x"), Stage("b", cores=1, command="x")], **options)
        for name in ("tasks", "tasks/a"):
            (self.folder.path / name).mkdir(exist_ok=True)
            (self.folder.path / name).chmod(0o777)

    def _leaves_a_line(self, one):
        did, (seconds, cores, jobs, nodes, walltime_s) = self.place / "did", self._task
        if one.name == "b":
            return Stage("b", cores=1, walltime_s=60, after=("a",), command=f"echo after >>{did}")
        task = f"echo b$ASA_TASK >>{did}; sleep {seconds} && echo e$ASA_TASK >>{did}"
        cores = None if nodes else cores
        return Stage(
            "a", cores=cores, nodes=nodes, walltime_s=walltime_s, expected_run_s=10, tasks=(task,) * self.count,
            jobs=(jobs, jobs),
        )  # fmt: skip

    def did(self, kind):
        with suppress(FileNotFoundError):
            words = (self.place / "did").read_text().split()
            return Counter(word[1:] for word in words if word[0] == kind and word != "after")
        return Counter()

    def running(self):
        return [job for job in self.jobs().get("a", ()) if job["JobState"] == "RUNNING"]

    def check_bag(self, interrupted=0):
        """Check that each task completed once; only tasks that were given back, running or just ended, began again."""
        state, _ = self.folder.state()
        assert state.outcome == "completed", state.reason
        every = {str(number) for number in range(1, self.count + 1)}
        again = {task for task, times in self.did("b").items() if times > 1}
        assert set(self.did("e")) == set(self.did("b")) == every
        assert again <= self.given_back()
        assert len(again) <= interrupted
        assert (self.place / "did").read_text().split()[-1] == "after"
        assert Bag(self.folder.path / "tasks" / "a").progress().completed == self.count
        until(lambda: not self.left(), what="the end of all jobs")

    def given_back(self):
        """Name the tasks that jobs gave back in the first round, or that were left to the next."""
        tasks = self.folder.path / "tasks" / "a"
        given = [line.split() for one in (tasks / "0" / "returned").iterdir() for line in one.read_text().splitlines()]
        left = [line.split()[0] for one in tasks.glob("[1-9]/list") for line in one.read_text().splitlines()[1:]]
        return {str(at) for first, last in given for at in range(int(first), int(last) + 1)} | set(left)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("strategy", ["per-stage", "chained"])
def test_several_jobs_run_a_stage(slurm, link, strategy):
    run = BagRun(slurm, link=link, strategy=strategy)
    run.result()
    run.check_bag()
    states = [job["JobState"] for job in run.jobs()["a"]]
    assert len(states) == 4
    assert set(states) <= {"COMPLETED", "CANCELLED"}
    logs = (run.folder.path / "tasks" / "a" / "0" / "logs").glob("*.0")
    assert sum(log.stat().st_size > 0 for log in logs) >= 2


@pytest.mark.parametrize("link", LINKS)
def test_jobs_that_cannot_start_are_withdrawn(slurm, link):
    """One node is free, for two jobs of half a node; the other two never run."""
    with busy_nodes(slurm, 3):
        run = BagRun(slurm, 60, cores=56, jobs=4, link=link, strategy="per-stage")
        run.result()
        run.check_bag()
        cancelled = [job for job in run.jobs()["a"] if job["JobState"] == "CANCELLED"]
        # or one began as its mates had just ended, before it could be withdrawn
        assert all(job["StartTime"] in {"Unknown", "0"} or job["RunTime"] <= "00:00:09" for job in cancelled)


@pytest.mark.parametrize("link", LINKS)
def test_jobs_that_are_cancelled_requeued_and_killed_give_back(slurm, link):
    run = BagRun(slurm, 80, link=link, strategy="per-stage")
    client = run.client()
    until(lambda: len(run.did("e")) >= 8 and len(run.running()) == 4, what="four jobs")
    cancelled, requeued, killed, _ = run.running()
    slurm.run("scancel", cancelled["JobId"])
    slurm.run("scontrol", "requeue", requeued["JobId"])
    kill(killed)
    client.result()
    run.check_bag(interrupted=12)  # of two workers each, in three jobs: what ran, and had ended a moment before


def test_what_completed_just_before_a_scancel_is_not_run_again(slurm):
    """One of two jobs is cancelled within 0.3 s after the end of its task."""
    run = BagRun(slurm, 8, seconds=1, cores=2, jobs=2, link="commands", strategy="per-stage")
    client = run.client()
    until(lambda: len(run.running()) == 2, what="two jobs")
    began_s = time.monotonic()
    names = {job["JobName"] for job in run.running()}
    while not (job_id := just_after_a_task(names)):
        assert time.monotonic() - began_s < 30
        time.sleep(0.01)
    slurm.run("scancel", job_id)
    client.result()
    run.check_bag(interrupted=1)  # the task after it
    assert set(run.did("e").values()) == {1}


def just_after_a_task(names):
    """Return which of some jobs is in the pause after the end of a task; empty if none is."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().endswith(b"sleep\x000.3\0"):
                values = dict(one.partition(b"=")[::2] for one in (path.parent / "environ").read_bytes().split(b"\0"))
                if values.get(b"SLURM_JOB_NAME", b"").decode() in names:  # other clusters have the same numbers
                    return values[b"SLURM_JOB_ID"].decode()
    return ""


def test_a_node_that_is_lost_gives_back(slurm):
    """Two jobs of a node each; one loses its power, and Slurm puts its job back into the queue."""
    run = BagRun(slurm, 160, seconds=4, cores=56, jobs=2, link="commands", strategy="per-stage")
    client = run.client()
    until(lambda: len(run.running()) == 2, what="two jobs")
    until(lambda: len(run.did("e")) >= 20, what="some tasks")
    lost = run.running()[0]
    node = lost["NodeList"]
    slurm.run_as_root("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")
    try:
        kill(lost)
        client.result()
        run.check_bag(interrupted=56)  # what its 28 workers ran, and what these had ended a moment before
    finally:
        slurm.run_as_root("scontrol", "update", f"nodename={node}", "state=resume")
        slurm.mend()


def kill(job):
    """Kill all processes of a job; other clusters have jobs of the same number."""
    ours = {f"SLURM_JOB_ID={job['JobId']}".encode(), f"SLURM_JOB_NAME={job['JobName']}".encode()}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if ours <= set(path.read_bytes().split(b"\0")):
                os.kill(int(path.parent.name), signal.SIGKILL)


def test_who_runs_out_of_walltime_gives_back(slurm):
    """Four jobs have a minute each, Slurm's shortest walltime, and tasks take 25 s."""
    run = BagRun(slurm, 24, seconds=25, walltime_s=60, link="commands", strategy="per-stage")
    began_s = time.monotonic()
    run.client().result(within_s=400.0)
    run.check_bag(interrupted=24)
    assert time.monotonic() - began_s > 60


def test_a_job_of_two_nodes_takes_on_both(slurm):
    run = BagRun(slurm, 120, seconds=0.2, nodes=4, jobs=2, link="commands", strategy="per-stage")
    run.result()
    run.check_bag()
    logs = {log.name.rpartition(".")[2] for log in (run.folder.path / "tasks" / "a" / "0" / "logs").glob("*.1.[01]")}
    assert logs == {"0", "1"}


def test_a_list_in_one_job_of_two_nodes_goes_on_after_a_requeue(slurm):
    run = BagRun(slurm, 200, seconds=1, nodes=2, jobs=1, link="commands", strategy="per-stage")
    client = run.client()
    until(lambda: len(run.did("e")) >= 20, what="some tasks")
    [job] = run.running()
    slurm.run("scontrol", "requeue", job["JobId"])
    client.result()
    run.check_bag(interrupted=2 * int(job["NumCPUs"]))  # what ran, and had ended a moment before
    logs = {log.name.partition(".")[2] for log in (run.folder.path / "tasks" / "a" / "0" / "logs").glob("*.[12].[01]")}
    assert logs == {"1.0", "1.1", "2.0", "2.1"}


@pytest.mark.parametrize("at", [("journal", 4), ("journal", 9), ("change", 2), ("look", 3)])
def test_a_client_may_be_killed(slurm, at):
    run = BagRun(slurm, 30, strategy="chained")
    first = process(run, *at)
    first.join(60.0)
    assert first.exitcode == -signal.SIGKILL
    second = process(run)
    second.join(120.0)
    assert second.exitcode == 0
    run.check_bag()
    names = [job["JobName"] for job in run.jobs()["a"]]
    assert len(set(names)) == len(names) <= 4, "none was submitted twice, nor after all tasks had ended"
