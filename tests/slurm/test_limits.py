"""Limits that real Slurm enforces on its users: the messages before a run and while a limit keeps a job back."""

import json
import os
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.commands import CommandLink
from forked import ASA, asa
from slurm_runs import SlurmRun, stage
from slurm_testbed import NEWEST, OLDEST, Testbed, make_home, missing, until

ONE = """\
name = "two"
[[stage]]
name = "first"
command = "sleep 40"
cores = 1
walltime = "5m"
[[stage]]
name = "second"
command = "true"
cores = 1
walltime = "5m"
"""


@pytest.fixture(params=[OLDEST, NEWEST])
def strict(request):
    """Yield a cluster that lets its user have one job in the queue."""
    if reason := missing(request.param):
        pytest.skip(reason)
    conf = "AccountingStorageEnforce=associations,limits\n"
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-strict"), release=request.param, accounting=True, conf=conf)
    try:
        testbed.start()
        testbed.run_as_root(
            "sacctmgr", "-i", "modify", "user", testbed.user, "set", "MaxSubmitJobs=1", "GrpTRES=cpu=40"
        )
        testbed.run_as_root("sacctmgr", "-i", "modify", "account", "test", "set", "GrpSubmitJobs=50")
        testbed.run_as_root("sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxJobsPerUser=7")
        until(lambda: "MaxSubmitJobs=1(" in testbed.run_as_root("scontrol", "show", "assoc_mgr"), what="the limit")
        yield testbed
    finally:
        testbed.stop()


@pytest.mark.full
@pytest.mark.slurm
def test_a_limit_on_submissions_is_told_before_and_while_it_holds(strict):
    place = strict.folder("limits")
    (place / "two.toml").write_text(ONE)
    environment = {**os.environ, "HOME": make_home(place), "ASA_RUNS": str(place / "runs"), "COLUMNS": "200"}
    told = {"cwd": place, "env": environment}
    on = ("--backend", "slurm-cli", "--option", f"prefix={' '.join(strict.prefix)}", "--option", "poll=2s")
    rest = ("--backend", "slurm-rest", "--option", f"url=unix://{strict.socket}", "--option", f"user={strict.user}")
    for means in (on, rest):
        found = json.loads(asa("doctor", *means, "--output", "json", **told).stdout)["findings"]
        [limits] = [one for one in found if one["topic"] == "Your limits"]
        assert limits["told"].splitlines() == [
            "you, with account test: jobs in the queue: 1 (MaxSubmitJobs), at once: cpu=40 (GrpTRES)",
            "all of account test: jobs in the queue: 50 (GrpSubmitJobs)",
            "QOS normal: running jobs of a user: 7 (MaxJobsPerUser)",
        ]
        assert "is not accepted" in limits["consequence"]
    words = ("run", "two.toml", *on, "--strategy", "per-stage", "--bank", "none", "--quiet")
    client = subprocess.Popen([ASA, *words], umask=0, **told)  # jobs are another user's, and write into its folders
    try:

        def deferred():
            if not list((place / "runs").glob("*/journal.jsonl")):
                return None
            stages = json.loads(asa("status", "--output", "json", **told).stdout)["stages"]
            return next((stage for stage in stages if stage["put_off"]), None)

        stage = until(deferred, what="a submission that is refused")
        assert "AssocMaxSubmitJobLimit" in stage["put_off"]
        shown = asa("status", **told).stdout
        assert "not accepted since" in shown
        assert "AssocMaxSubmitJobLimit" in shown
        explained = asa("explain", stage["stage"], **told).stdout
        assert "The limit of jobs in the queue is reached for its user or account." in explained
        [mine] = strict.run("squeue", "-h", "-o", "%i").split()
        strict.run("scancel", mine)  # by hand; the other stage, which depends on nothing, gets its turn
        client.wait(120)
        told_of = asa("explain", **told).stdout
        assert "was cancelled, but not by asa" in told_of
        assert "starts by itself" not in told_of
    finally:
        client.kill()
        client.wait()


@pytest.mark.full
@pytest.mark.slurm
def test_stages_that_are_too_many_together_are_asked_for_one_by_one(strict):
    run = SlurmRun(strict, [stage(name, "", "true") for name in "abc"], link="commands")
    run.client().result()
    until(lambda: not run.left(), what="that no job is left")
    run.check()
    assert not any("_" in job["JobId"] for jobs in run.jobs().values() for job in jobs)


def arrays_of(run):
    """Count the jobs of each of Slurm's arrays of a run."""
    ids = (job["JobId"].split("_") for jobs in run.jobs().values() for job in jobs)
    return Counter(parts[0] for parts in ids if len(parts) > 1)


@pytest.mark.full
@pytest.mark.slurm
def test_once_a_limit_has_passed_stages_go_together_again(strict):
    first = [stage(name, "", "while [ ! -e go ]; do sleep 0.2; done") for name in "ab"]
    run = SlurmRun(strict, [*first, *(stage(name, "ab", "true") for name in "cdef")], link="commands")
    client = run.client()
    until(lambda: [*run.jobs()] == ["a"], what="one job, as the limit allows")
    strict.run_as_root("sacctmgr", "-i", "modify", "user", strict.user, "set", "MaxSubmitJobs=-1")
    until(lambda: {*"ab"} <= run.jobs().keys(), what="the other job, as nothing limits it now")
    (run.place / "go").touch()
    assert client.result().outcome == "completed"
    until(lambda: not run.left(), what="that no job is left")
    run.check()
    assert [*arrays_of(run).values()] == [4]


@pytest.fixture(params=[OLDEST, NEWEST])
def without_arrays(request):
    """Yield a cluster that takes no job arrays."""
    if reason := missing(request.param):
        pytest.skip(reason)
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-plain"), release=request.param, conf="MaxArraySize=0\n")
    try:
        yield testbed.start()
    finally:
        testbed.stop()


@pytest.mark.full
@pytest.mark.slurm
@pytest.mark.parametrize("is_known", [True, False])
def test_where_slurm_takes_no_arrays_that_is_asked_once_at_most(without_arrays, is_known):
    """A client that does not know the site's MaxArraySize learns it from the first refusal."""
    slurm = without_arrays
    run = SlurmRun(
        slurm, [*(stage(n, "", "true") for n in "ab"), *(stage(n, "ab", "true") for n in "cd")], link="commands"
    )

    def unknowing(sleep):
        site = replace(run.plan.capabilities, max_together=100)
        return SlurmBackend(
            CommandLink(prefix=slurm.prefix), run.folder.path, site, defaults=JobDefaults(folder=run.place), sleep=sleep
        )

    client = run.client() if is_known else run.client(connect=unknowing)
    assert client.result().outcome == "completed"
    until(lambda: not run.left(), what="that no job is left")
    run.check()
    assert not arrays_of(run)
    assert client._backend._link.calls["submit"] == (4 if is_known else 5)
