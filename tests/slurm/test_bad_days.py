"""Runs on real Slurm daemons survive faults: outages are waited for, failures are reported, nothing runs twice."""

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress

import pytest
from slurm_runs import (
    LINKS,
    Client,
    Cut,
    SlurmRun,
    accounting_away,
    busy_nodes,
    diamond,
    forgetful,
    leave,
    on_disk,
    stage,
    tiny_disk,
)
from slurm_testbed import until

from asa.errors import JournalError, LeaseError
from asa.records import Cancelled, Observed, Requeued, Retrying, RunEnded, Submitted

DAYS, PATIENT = {}, set()


def at_once(day):
    """Make a test of a run that disturbs no other: all these begin at the same time, each is judged by its own test."""
    DAYS[day.__name__] = day

    def test(begun):
        begun[day.__name__].result()

    test.__name__, test.__doc__ = day.__name__, day.__doc__
    return test


def patient(day):
    """Make a test of a run that also tolerates whatever happens to the controller meanwhile."""
    PATIENT.add(day)
    return at_once(day)


@pytest.fixture(scope="module")
def begun(slurm, request):
    """Begin the runs that are to be judged."""
    wanted = {item.originalname for item in request.session.items}
    with ThreadPoolExecutor(len(DAYS)) as threads:
        yield {name: threads.submit(day, slurm) for name, day in DAYS.items() if name in wanted}
    if Client.all_leave():
        slurm.empty()


@pytest.fixture
def quiet(begun):
    """Wait until all runs have ended that must not be disturbed."""
    wait([day for name, day in begun.items() if DAYS[name] not in PATIENT])


def outcomes(records, kind=Cancelled):
    return {record.stages[0] for record in records if isinstance(record, kind)}


# ---------------------------------------------------------------------- days that disturb nobody else


@at_once
def test_a_stage_that_fails_takes_its_dependents_with_it(slurm):
    """The client cancels what can never start, where Slurm itself would leave it in the queue for ever."""
    fails = "until [ -e go ]; do sleep 0.2; done; exit 3"
    stages = [stage("a", then=fails), stage("b", "a"), stage("c", "b"), stage("d", "a")]
    ways = [("chained", "rest"), ("chained", "commands"), ("asa-naive", "rest"), ("per-stage", "commands")]
    runs = [SlurmRun(slurm, stages, strategy=strategy, link=link) for strategy, link in ways]
    for run, client in [(run, run.client()) for run in runs]:
        until(lambda run=run: run.ran == {"a": 1} and (run.plan.strategy != "chained" or len(run.jobs()) == 4))
        (run.place / "go").touch()
        result = client.result()
        assert (result.outcome, result.reason) == ("failed", "stage 'a' ended as failed (exit code 3)")
        assert run.ran == {"a": 1}
        jobs = run.jobs()
        asked = set("bcd") if run.plan.strategy == "chained" else jobs.keys() - {"a"}
        assert outcomes(result.records) == asked
        assert jobs.keys() <= {"a"} | asked  # Slurm forgets elements that waited once they are cancelled
        assert all(job["JobState"] == "CANCELLED" for name, [job] in jobs.items() if name != "a")
        assert not run.left()


@at_once
def test_a_job_that_somebody_cancels_ends_the_run(slurm):
    """Its other jobs are cancelled."""
    runs = [SlurmRun(slurm, diamond("sleep 60"), link=link) for link in LINKS]
    clients = [run.client() for run in runs]
    for run, client in zip(runs, clients, strict=True):
        client.sees_running("a")
        until(lambda run=run: run.ran == {"a": 1})  # a job runs before its script does
        slurm.run_as_root("scancel", run.job("a", "RUNNING")["JobId"])
    for run, client in zip(runs, clients, strict=True):
        result = client.result()
        assert result.outcome == "failed"
        assert result.reason.startswith("stage 'a' ended as cancelled")
        assert outcomes(result.records) == {"b", "c", "d"}
        assert run.ran == {"a": 1}
        assert not run.left()


@at_once
def test_a_job_that_an_administrator_holds_is_waited_for(slurm):
    """The run goes on once the job is released; its wait is learned as an upper bound only."""
    run = SlurmRun(slurm, [stage("a", then="sleep 3"), stage("b", "a"), stage("c", "b")])
    client = run.client()
    held = run.job("b")["JobId"]
    slurm.run_as_root("scontrol", "hold", held)
    until(lambda: run.jobs()["a"][0]["JobState"] == "COMPLETED")
    until(lambda: client.run.folder.state()[0].stages["a"].phase == "done")
    time.sleep(1.0)  # on hold after all stages that it depends on have ended
    assert not outcomes(client.records, Observed) & {"b"}
    slurm.run_as_root("scontrol", "release", held)
    result = client.result()
    run.check()
    bounds = {record.stages[0]: record.bound for record in result.records if isinstance(record, Observed)}
    assert bounds == {"a": "exact", "b": "at_most", "c": "exact"}


@at_once
def test_what_a_partition_never_gives_is_told_before_anything_is_submitted(slurm):
    """To users who ask for a check before the run, and to those who do not."""
    why = "asks for 1h00m in partition 'debug', which gives at most 30m"
    for link in LINKS:
        run = SlurmRun(slurm, [stage("a"), stage("b", "a", walltime_s=3600, partition="debug")], link=link)
        with closing(run.connect(time.sleep)) as backend:
            told = [backend.capabilities.impossible(run.spec(name)) for name in "ab"]
        assert told[0] is None
        assert told[1].startswith(why)
        result = run.result()
        assert result.outcome == "failed"
        assert why in result.reason
        assert "b" not in run.jobs()
        assert not run.left()


@at_once
def test_two_clients_never_drive_one_run(slurm):
    run = SlurmRun(slurm, diamond("sleep 2"))
    first = run.client()
    first.sees_running("a")
    with pytest.raises(LeaseError, match=f"is driven by process {os.getpid()}"):
        run.result()
    first.leave()
    run.result()
    run.check()


@at_once
def test_a_full_disk_stops_the_client_and_no_job(slurm):
    """The client does nothing that it cannot write down; once there is space, the run goes on."""
    long_words = f"sleep 1 # {3000 * 'x'}"  # more than what is left of the journal's last block
    stages = [stage("a", then="sleep 2"), stage("b", then="sleep 5; echo b_ended >>ran"), stage("c", "a", long_words)]
    run = SlurmRun(slurm, stages, strategy="per-stage")
    with tiny_disk(slurm) as disk, on_disk(run.folder.path / "journal.jsonl", disk):
        client = run.client()
        client.sees_running("a")
        client.sees_running("b")
        filler = disk / "filler"
        fill(filler)
        with pytest.raises(JournalError, match="No space left on device") as told:
            client.result()
        assert "jobs go on" in told.value.hint
        until(lambda: run.ran["b_ended"])
        assert not run.jobs().get("c")
        with pytest.raises(JournalError):
            run.result()
        filler.unlink()
        run.result()
        run.check(b_ended=1)


def fill(file):
    """Fill a file system."""
    with suppress(OSError), file.open("wb", buffering=0) as sink:
        while True:
            sink.write(bytes(512))


@at_once
def test_a_token_that_ends_is_waited_for(slurm):
    """If it is renewed in time, the run is not disturbed."""
    if slurm.url is None:
        pytest.skip("this slurmrestd takes no tokens")
    files = [slurm.folder(f"token{i}") / "token" for i in range(2)]
    stages = diamond("sleep 4")
    reached = {"url": slurm.url, "served_by": slurm.user}
    runs = [SlurmRun(slurm, stages, strategy="per-stage", token_file=str(file), **reached) for file in files]
    for file in files:
        renew(slurm, file, 10)
    renewed, ended = [run.client() for run in runs]

    def has_begun():  # who cannot even connect is told so, and ends
        for file in files:
            renew(slurm, file, 10)
        return ended.records

    until(has_begun, what="its begin")
    began_s = time.monotonic()
    troubles = ended.in_trouble(meanwhile=lambda: renew(slurm, files[0], 10))
    assert time.monotonic() - began_s > 8
    assert not [t for t in troubles if "does not let us in" not in t]
    assert not outcomes(ended.records, RunEnded)
    for file in files:
        renew(slurm, file, 3600)
    for run, client in zip(runs, (renewed, ended), strict=True):
        client.result()
        run.check()
    assert renewed.troubles == []


def renew(slurm, file, lifespan_s):
    """Replace the token, so that nobody reads half of one."""
    beside = file.with_suffix(".new")
    beside.write_text(slurm.token(lifespan_s))
    beside.replace(file)


# ---------------------------------------------------------------------- days that disturb everybody


@pytest.mark.full
def test_a_controller_that_is_away_for_a_while_is_waited_for(slurm, quiet):
    """It is away for 20 s, far longer than any time-out of the client; jobs run on meanwhile."""
    stages = [stage("a", then="sleep 6; echo a_ended >>ran"), stage("b", "a"), stage("c", "a"), stage("d", "bc")]
    ways = [("chained", "rest"), ("per-stage", "commands"), ("asa-naive", "rest")]
    runs = [SlurmRun(slurm, stages, strategy=how, link=link) for how, link in ways]
    clients = [run.client() for run in runs]
    for client in clients:
        client.sees_running("a")
    slurm.stop_controller()
    try:
        began_s = time.monotonic()
        until(lambda: all(run.ran["a_ended"] for run in runs))
        until(lambda: all(client.troubles for client in clients))
        until(lambda: time.monotonic() - began_s > 20)
    finally:
        slurm.start_controller()
    for run, client in zip(runs, clients, strict=True):
        client.result()
        run.check(a_ended=1)


def test_a_controller_that_is_restarted_keeps_the_queue(slurm, quiet):
    runs = [SlurmRun(slurm, diamond(cores=56), link=link) for link in LINKS]
    with busy_nodes(slurm, 3):
        clients = [run.client() for run in runs]
        for run in runs:
            for name in "abcd":
                run.job(name)
        slurm.restart_controller()
        assert not any(job["JobState"] == "RUNNING" for run in runs for job in run.left())
    for run, client in zip(runs, clients, strict=True):
        client.result()
        run.check()


def test_accounting_that_is_away_keeps_no_run(slurm, quiet):
    """Neither a client that runs already, nor one that begins meanwhile."""
    ways = [("chained", "rest"), ("per-stage", "commands"), ("per-stage", "rest")]
    runs = [SlurmRun(slurm, diamond("sleep 2"), strategy=strategy, link=link) for strategy, link in ways]
    clients = [run.client() for run in runs[:2]]
    for client in clients:
        client.sees_running("a")
    with accounting_away(slurm):
        clients.append(runs[2].client())
        for run, client in zip(runs, clients, strict=True):
            client.result()
            run.check()


def test_a_node_that_goes_down_has_its_stage_run_again(slurm, quiet):
    """The waits of a requeued job are not learned: of the first its end is not known, of the second its beginning."""
    then = '[ -n "$SLURM_RESTART_COUNT" ] || exec sleep 600; echo a_ended >>ran'
    stages = [stage("a", then=then, cores=28, nodes=1), stage("b", "a")]
    here, away = [SlurmRun(slurm, stages, link=link) for link in LINKS]
    with busy_nodes(slurm, 3):
        clients = [run.client() for run in (here, away)]
        for client in clients:
            client.saw(Submitted, "b")
        clients[1].leave()
    began = clients[0].sees_running("a")
    until(lambda: here.ran["a"] and away.ran["a"])
    nodes = ",".join(run.job("a", "RUNNING")["NodeList"] for run in (here, away))
    slurm.run_as_root("scontrol", "update", f"NodeName={nodes}", "State=DOWN", "Reason=test")
    try:
        clients[0].saw(Requeued, "a")
        until(lambda: away.job("a")["Restarts"] == "1", what="that both were put back")
        for run in (here, away):
            slurm.hasten(run.job("a")["JobId"])
        clients[0].result()
        away.result()
        for run in (here, away):
            run.check(a=2, a_ended=1)
    finally:
        slurm.run_as_root("scontrol", "update", f"NodeName={nodes}", "State=RESUME", check=False)
    told = [record for record in here.folder.state()[1] if isinstance(record, Observed)]
    assert (told[0].stages, told[0].time_s) == (("a",), began.time_s)
    assert len(here.waits()) == 2
    assert len(away.waits()) == 1


def test_a_stage_whose_node_failed_it_is_tried_again_on_another(slurm, quiet):
    """Where Slurm is configured not to requeue jobs."""
    then = "[ -e was-here ] || { touch was-here; exec sleep 600; }; echo a_ended >>ran"
    runs = [SlurmRun(slurm, [stage("a", then=then, retries=1), stage("b", "a")], link=link) for link in LINKS]
    clients = [run.client() for run in runs]
    until(lambda: all(run.ran["a"] for run in runs))
    jobs = [run.job("a", "RUNNING") for run in runs]
    nodes = sorted({job["NodeList"] for job in jobs})
    for job in jobs:
        slurm.run_as_root("scontrol", "update", f"JobId={job['JobId']}", "Requeue=0")
    slurm.run_as_root("scontrol", "update", f"NodeName={','.join(nodes)}", "State=DOWN", "Reason=test")
    try:
        for run, client, job in zip(runs, clients, jobs, strict=True):
            retrying = client.saw(Retrying, "a")
            assert f"now on another node than {job['NodeList']}" in retrying.reason
            client.result()
            run.check(a=2, a_ended=1)
            assert run.jobs()["a"][-1]["ExcNodeList"] == job["NodeList"]
    finally:
        slurm.run_as_root("scontrol", "update", f"NodeName={','.join(nodes)}", "State=RESUME", check=False)


# ---------------------------------------------------------------------- days that take long


@patient
def test_what_follows_a_job_that_slurm_forgot_begins_if_it_may_and_once(slurm):
    """22.05 silently drops a dependency on a job that it does not know, and 24.11 refuses it.

    The client dies as it submits the second stage, before Slurm gets it or afterwards, and comes back when Slurm has
    forgotten the first; or the submission takes that long.
    """
    with forgetful(slurm) as cluster:
        ways = list(itertools.product((0, 3), ("chained", "per-stage"), ("before", "after")))
        left = [(code, begin_to_forget(cluster, code, how, **{cut: leave})) for code, how, cut in ways]
        slow = [(code, begin_to_forget(cluster, code, "chained")) for code in (0, 3)]
        for code, (run, client) in left:
            if code and run.plan.strategy == "per-stage":
                assert client.result().outcome == "failed"
            else:
                client.has_left()
        until(lambda: all(is_forgotten(run) for _, (run, _) in left), what="that Slurm forgets")
        later = [(code, (run, run.client())) for code, (run, _) in left]
        for code, (run, client) in slow + later:
            state = until(lambda run=run: (state := run.folder.state()[0]).outcome and state, what="the end")
            reason = "stage 'a' ended as failed (exit code 3)" if code else ""
            assert (state.outcome, state.reason) == ("failed" if code else "completed", reason)
            until(lambda run=run: not run.left(), what="that nothing is left")
            assert run.ran == dict.fromkeys("a" if code else "abc", 1)
            if client.is_there:  # to look for a job that may turn up late, of a run that failed
                client.leave()


def begin_to_forget(cluster, code, strategy, **cut):
    """Begin a run with a fault at the second submission, or one that takes until Slurm has forgotten the first job."""
    stages = [stage("a", then=f"sleep 3; exit {code}"), stage("b", "a"), stage("c", "b")]
    run = SlurmRun(cluster, stages, strategy=strategy)
    cut = cut or {"before": lambda: until(lambda: is_forgotten(run))}
    return run, run.client(connect=run.connect_over(Cut(cluster, at=2, **cut)))


def is_forgotten(run):
    """Return whether Slurm has forgotten the job in which the first stage ran."""
    return bool(run.ran["a"]) and "a" not in run.jobs()


@patient
def test_a_stage_that_reaches_its_limit_ends_the_run(slurm):
    """The limit is a minute, Slurm's shortest."""
    run = SlurmRun(slurm, [stage("a"), stage("b", "a", "sleep 300", walltime_s=60), stage("c", "b")])
    result = run.result()
    assert (result.outcome, result.reason) == ("failed", "stage 'b' ended as timeout (TimeLimit)")
    assert outcomes(result.records) == {"c"}
    assert run.ran == {"a": 1, "b": 1}
    assert not run.left()
