"""Job arrays on real daemons: submitted once; each element completes once, whatever is killed or requeued."""

import itertools
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_runs import SlurmRun, glancing, process, stage, told_jobs
from slurm_testbed import NEWEST, OLDEST, Testbed, missing, until

from asa.cli.kinds.elements import element_standing
from asa.elements import parse_array
from asa.metrics import measure
from asa.records import Ended, Observed, StageEnded, Submitted
from asa.runtimes import run_times_of

LINKS = ("commands", "rest")
MOMENTS = [*(("journal", at) for at in range(8)), ("change", 0), ("change", 1), ("look", 0), ("look", 3)]


def flow(array, then="sleep 0.5", **fields):
    """Make three stages; the middle one is an array, whose elements write a line when they begin and complete."""
    command = f"echo s$SLURM_ARRAY_TASK_ID >>did; {then}; echo e$SLURM_ARRAY_TASK_ID >>did"
    return [stage("a", then="true"), stage("b", "a", command, array=parse_array(array), **fields), stage("c", "b")]


def did(run, kind):
    with suppress(FileNotFoundError):
        words = (run.place / "did").read_text().split()
        return Counter(int(word[1:]) for word in words if word[0] == kind)
    return Counter()


def once(array):
    return dict.fromkeys(parse_array(array).elements, 1)


def check(run, array):
    """Raise AssertionError unless the run completed, and each element of its array once."""
    state, records = run.folder.state()
    assert state.outcome == "completed", state.reason
    assert did(run, "e") == once(array)
    assert [record.stages for record in records if isinstance(record, StageEnded)] == [("a",), ("b",), ("c",)]
    assert str(state.units.elements.completed_of(f"{run.plan.id}/b")) == str(parse_array(array).elements)
    measure(run.plan.make_workflow(), records)
    until(lambda: not run.left(), what="that no job is left")
    return records


def arrays_of(run):
    """Return the elements of each of Slurm's arrays of a run."""
    found = {}
    for job in told_jobs(run.slurm):
        if run.plan.id in job["JobName"] and "ArrayJobId" in job:
            found.setdefault(job["ArrayJobId"], []).append(job)
    return found


def running(run, number):
    """Wait until an element runs; return its array, and what Slurm says of it."""

    def found():
        for array_id, jobs in arrays_of(run).items():
            for job in jobs:
                if job["ArrayTaskId"] == str(number) and job["JobState"] == "RUNNING":
                    return array_id, job
        return None

    return until(found, what=f"element {number}")


def begins_soon(run):
    """Let requeued elements begin soon, not in two minutes; return whether there are any, and they have begun."""
    back = [job for job in itertools.chain(*arrays_of(run).values()) if job["Restarts"] != "0"]
    for job in back:
        assert job["JobState"] != "FAILED", job
        if job["JobState"] == "PENDING":
            run.slurm.hasten(f"{job['ArrayJobId']}_{job['ArrayTaskId']}")
    return bool(back) and all(job["JobState"] in {"RUNNING", "COMPLETED"} for job in back)


@pytest.mark.parametrize("link", LINKS)
def test_an_array_is_one_submission_and_its_throttle_is_kept(slurm, link):
    run = SlurmRun(slurm, flow("1-9:2,20%2"), link=link)
    assert run.result().outcome == "completed"
    records = check(run, "1-9:2,20%2")
    [elements] = arrays_of(run).values()
    assert len(elements) == 6
    spans = [(int(job["StartTime"]), int(job["EndTime"])) for job in elements]
    assert max(sum(start <= at < end for start, end in spans) for at, _ in spans) <= 2
    assert [record.array for record in records if isinstance(record, Submitted)] == ["", "1-9:2,20%2", ""]
    [ended] = [record for record in records if isinstance(record, Ended) and record.stages == ("b",)]
    assert ended.ran_s == sum(end - start for start, end in spans)
    state = run.folder.state()[0]
    jobs = {job_id: job.status for job_id, job in state.jobs.items()}
    times = run_times_of(run.plan.id, state.workflow, run.plan.capabilities, records, jobs)
    [learned] = [time for time in times if time.stage == "b"]
    assert learned.run_s == pytest.approx(max(end - start for start, end in spans), abs=1.5), "its longest element"
    [wait] = [record for record in records if isinstance(record, Observed) and record.stages == ("b",)]
    first = min(elements, key=lambda job: int(job["StartTime"]))
    assert wait.wait_s == int(first["StartTime"]) - max(int(first["EligibleTime"]), int(first["SubmitTime"]))


@pytest.mark.parametrize("link", LINKS)
def test_failed_elements_alone_are_tried_again_and_resumed(slurm, link):
    """The second element fails once, the third until the test mends it."""
    fails = "{ [ $ASA_ELEMENT -ne 2 ] || [ -e once ] || { touch once; exit 3; }; }"
    fails += " && { [ $ASA_ELEMENT -ne 3 ] || [ -e mended ] || exit 4; }"
    run = SlurmRun(slurm, flow("1-4", fails, retries=1), link=link, strategy="per-stage")
    result = run.result()
    assert result.outcome == "failed"
    assert "1 of 4 elements did not complete: 3 failed (exit code 4)" in result.reason
    assert did(run, "s") == {1: 1, 2: 2, 3: 2, 4: 1}
    told = element_standing(run.folder.state()[0], "b")
    assert (told.completed, told.failed) == ("1-2,4", "3")
    (run.place / "mended").touch()
    assert run.client(retry=True).result().outcome == "completed"
    check(run, "1-4")
    assert did(run, "s") == {1: 1, 2: 2, 3: 3, 4: 1}


@pytest.mark.parametrize("link", LINKS)
def test_elements_are_requeued_cancelled_and_lose_their_nodes(slurm, link):
    """Requeued elements start again by themselves; a cancelled one stops no other, and runs when the run is resumed."""
    then = "until [ -e go ]; do sleep 0.2; done"
    runs = {
        "requeue": SlurmRun(slurm, flow("1-4", then), link=link, strategy="chained"),
        "cancel": SlurmRun(slurm, flow("1-4", then, retries=2), link=link, strategy="per-stage"),
        "down": SlurmRun(slurm, flow("1-2", then, cores=28, nodes=1), link=link, strategy="per-stage"),
    }
    clients = {name: run.client() for name, run in runs.items()}
    array_id, before = running(runs["requeue"], 2)
    slurm.run_as_root("scontrol", "requeue", f"{array_id}_2")
    array_id, _ = running(runs["cancel"], 3)
    slurm.run("scancel", f"{array_id}_3")
    _, job = running(runs["down"], 1)
    node = job["NodeList"]
    slurm.run_as_root("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    try:
        until(lambda: begins_soon(runs["requeue"]), what="that it begins again")
        for name in ("requeue", "cancel"):
            (runs[name].place / "go").touch()
        result = clients["cancel"].result()
        assert result.outcome == "failed"
        assert "1 of 4 elements did not complete: 3 was cancelled" in result.reason
        assert set(did(runs["cancel"], "e")) == {1, 2, 4}
        resumed = runs["cancel"].client(retry=True)
        until(lambda: begins_soon(runs["down"]), what="that it begins elsewhere")
        (runs["down"].place / "go").touch()
        assert clients["requeue"].result().outcome == "completed"
        records = check(runs["requeue"], "1-4")
        assert resumed.result().outcome == "completed"
        check(runs["cancel"], "1-4")
    finally:
        slurm.run_as_root("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
    assert clients["down"].result().outcome == "completed"
    check(runs["down"], "1-2")
    [elements] = arrays_of(runs["requeue"]).values()
    ran_s = sum(int(job["EndTime"]) - int(job["StartTime"]) for job in elements)
    [back_s] = [int(job["SubmitTime"]) for job in elements if job["ArrayTaskId"] == "2"]
    [ended] = [record for record in records if isinstance(record, Ended) and record.stages == ("b",)]
    assert ran_s <= ended.ran_s <= ran_s + back_s - int(before["StartTime"]), "if the client saw it run before"


@pytest.mark.parametrize("link", LINKS)
def test_elements_that_are_cancelled_before_they_begin_have_ended(slurm, link):
    """One element of an array, and all of another, are cancelled; Slurm shows pending elements in one record."""
    if (link == "rest") != (slurm.release == NEWEST):
        pytest.skip("takes a minute of waiting: each way on one of both versions")
    then = "until [ -e go ]; do sleep 0.2; done"
    one, every = (SlurmRun(slurm, flow("1-6%2", then), link=link, strategy="per-stage") for _ in range(2))
    clients = [run.client() for run in (one, every)]
    array_id, _ = running(one, 1)
    slurm.run("scancel", f"{array_id}_5")
    (one.place / "go").touch()
    result = clients[0].result()
    assert result.outcome == "failed"
    assert "1 of 6 elements did not complete: 5 was cancelled" in result.reason
    assert did(one, "e") == dict.fromkeys((1, 2, 3, 4, 6), 1)
    array_id, _ = running(every, 1)
    slurm.run("scancel", array_id)
    assert clients[1].result().outcome == "failed"
    resumed = every.client(retry=True)
    (every.place / "go").touch()
    assert resumed.result().outcome == "completed"
    check(every, "1-6")


def test_a_client_may_be_killed_at_any_moment(slurm):
    rng = random.Random(7)
    moments = rng.sample([*(("journal", at) for at in range(16)), *(("change", at) for at in range(3))], 6)
    ways = zip(moments, itertools.cycle(["chained", "per-stage"]), strict=False)
    runs = [(moment, SlurmRun(slurm, flow("1-4%3"), strategy=strategy)) for moment, strategy in ways]
    first = [process(run, *moment) for moment, run in runs]
    second = []
    for one, (_, run) in zip(first, runs, strict=True):
        one.join(60.0)
        assert one.exitcode == -signal.SIGKILL
        second.append(process(run))
    for one, (_, run) in zip(second, runs, strict=True):
        one.join(120.0)
        assert one.exitcode == 0
        check(run, "1-4%3")
        assert len(arrays_of(run)) == 1


def test_those_who_look_once_suffice_and_may_be_killed(slurm):
    rng = random.Random(3)
    fails = "[ $ASA_ELEMENT -ne 2 ] || [ -e once ] || { touch once; exit 137; }"
    run = SlurmRun(slurm, flow("1-5%3", fails, retries=1, memory_bytes=1 << 26), strategy="per-stage")
    end_s = time.monotonic() + 120.0
    while run.folder.state()[0].outcome is None and time.monotonic() < end_s:
        one = glancing(run, *(rng.choice(MOMENTS) if rng.random() < 0.5 else ()))
        one.join(60.0)
    check(run, "1-5%3")
    assert did(run, "s")[2] == 2
    sizes = {job["MinMemoryNode"] for job in itertools.chain(*arrays_of(run).values()) if "MinMemoryNode" in job}
    assert sizes == {"64M", "128M"}, "exit code 137 asks for more memory"


@pytest.fixture(scope="module", params=[OLDEST, pytest.param(NEWEST, marks=pytest.mark.full)])
def narrow(request):
    """Yield a cluster whose arrays have numbers below 6, and whose user may have 5 jobs in the queue."""
    if reason := missing(request.param):
        pytest.skip(reason)
    conf = "AccountingStorageEnforce=associations,limits\nMaxArraySize=6\n"
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-narrow"), release=request.param, accounting=True, conf=conf)
    try:
        testbed.start()
        testbed.run_as_root("sacctmgr", "-i", "modify", "user", testbed.user, "set", "MaxSubmitJobs=5")
        until(lambda: "MaxSubmitJobs=5(" in testbed.run_as_root("scontrol", "show", "assoc_mgr"), what="the limit")
        yield testbed
    finally:
        testbed.stop()


@pytest.mark.slurm
@pytest.mark.parametrize("link", LINKS)
def test_limits_lead_to_several_arrays(narrow, link):
    """Commands show the largest number; by REST it is found by trial. The throttle holds for all arrays together."""
    run = SlurmRun(narrow, flow("1-25:3%2", "sleep 1"), link=link, strategy="per-stage")
    assert run.result().outcome == "completed"
    check(run, "1-25:3%2")
    arrays = arrays_of(run)
    assert len(arrays) >= 3
    assert all(int(job["ArrayTaskId"]) < 6 for jobs in arrays.values() for job in jobs)
    spans = [(int(job["StartTime"]), int(job["EndTime"])) for jobs in arrays.values() for job in jobs]
    assert max(sum(start <= at < end for start, end in spans) for at, _ in spans) <= 2
    [last] = run.jobs()["c"]
    assert int(last["StartTime"]) >= max(end for _, end in spans)


@pytest.mark.parametrize("link", LINKS)
def test_elements_run_once_the_same_elements_of_another_array_have_completed(slurm, link):
    """As with `aftercorr`, whoever drives the run; an element whose counterpart failed runs after that was mended."""
    theirs = "until [ -e go$ASA_ELEMENT ]; do sleep 0.2; done; [ $ASA_ELEMENT -ne 3 ] || [ -e mended ] || exit 7"
    _, first, _ = flow("1-4", theirs)
    second = stage("c", "b", "echo x$SLURM_ARRAY_TASK_ID >>did", array=parse_array("1-3"), after_matching=("b",))
    run = SlurmRun(slurm, [replace(first, after=()), second], link=link, strategy="chained")
    driver = process(run)
    until(lambda: did(run, "s") == once("1-4"), what="that the first array runs")
    (run.place / "go2").touch()
    until(lambda: did(run, "x") == {2: 1}, what="that the second element follows")
    driver.kill()
    driver.join()
    assert did(run, "e") == {2: 1}
    client = run.client()
    for number in (1, 3, 4):
        (run.place / f"go{number}").touch()
    result = client.result()
    assert result.outcome == "failed"
    assert "1 of 4 elements did not complete: 3 failed" in result.reason
    assert did(run, "x") == {1: 1, 2: 1}
    assert "3 needed those of another array" in run.folder.state()[0].stages["c"].reason
    (run.place / "mended").touch()
    assert run.client(retry=True).result().outcome == "completed"
    assert did(run, "x") == once("1-3")
