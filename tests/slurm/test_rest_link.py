"""The REST link against real daemons: 22.05 with v0.0.38, 26.05 with v0.0.42 to v0.0.45."""

import os
import time
from dataclasses import replace

import pytest
from asa.backends.slurm.accounting import read_history
from asa.backends.slurm.link import SlurmJob
from asa.backends.slurm.rest import RestLink, TokenSource
from slurm_fake_link import cancel, own
from slurm_testbed import uid_of, until

from asa.errors import (
    AccessError,
    BackendError,
    JobNotFoundError,
    SubmitRejectedError,
    UnavailableError,
)

APIS = {"22.05": ("v0.0.38",), "26.05": ("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45")}


@pytest.fixture(scope="module")
def folder(slurm):
    return slurm.folder(f"rest-{os.getpid()}")


@pytest.fixture
def asking(slurm):
    """Yield a link over the socket, as a user makes it."""
    link = RestLink(f"unix://{slurm.socket}")
    yield link
    link.close()
    slurm.empty()


@pytest.fixture
def every_api(slurm):
    """Yield a link for each version of the API that is served."""
    links = [RestLink(f"unix://{slurm.socket}", api=api) for api in APIS[slurm.release]]
    yield links
    for link in links:
        link.close()
    slurm.empty()


@pytest.fixture
def job(folder):
    return SlurmJob(
        name=f"stage.{time.time_ns()}",
        script="#!/bin/sh\ntrue\n",
        folder=str(folder),
        cores=2,
        walltime_s=300,
        stdout=f"{folder}/%j.out",
        stderr=f"{folder}/%j.err",
        environment={"PATH": "/usr/bin:/bin"},
    )


def sleeping(job, **more):
    return replace(job, script="#!/bin/sh\nsleep 600\n", **more)


def ended(link, job_id):
    """Wait until a job has finally ended, and return its record."""

    def look():
        record = link.jobs([job_id])[job_id]
        return record if record.end_s and "COMPLETING" not in record.states else None

    return until(look, what=f"the end of job {job_id}")


def running(link, job_id):
    """Wait until a job runs, and return its record."""

    def look():
        record = link.jobs([job_id])[job_id]
        return record if record.states == ("RUNNING",) else None

    return until(look, what=f"the start of job {job_id}")


def test_it_says_who_answers(slurm, asking):
    about = asking.about()
    assert about.version == slurm.version
    assert APIS[slurm.release][-1] in about.means
    assert (about.cluster, about.controller_up, about.accounting, about.token_ends_s) == ("testbed", True, True, None)
    assert asking.settings() == {}
    normal, debug = asking.partitions()
    assert (normal.name, normal.nodes, normal.cores, normal.max_walltime_s) == ("normal", 4, 112, 7 * 86400)
    assert (debug.name, debug.max_walltime_s, debug.is_up) == ("debug", 1800, True)
    assert [node.name for node in asking.nodes()] == ["n001", "n002", "n003", "n004"]
    assert {node.cores for node in asking.nodes()} == {28}


def test_everything_that_is_asked_for_arrives(every_api, slurm, folder, job):
    for link in every_api:
        begin_s = int(time.time()) + 7200
        first = link.submit(sleeping(job))
        asked = replace(
            job,
            name=job.name + link.about().means[9:16].strip(),
            cores=30,
            nodes=2,
            memory_bytes=3 * 1024**3,
            walltime_s=61,
            partition="debug",
            account="test",
            qos="normal",
            dependency=f"afterok:{first},after:{first}+2",
            begin_s=begin_s,
            held=True,
            comment="asa:token-1 caf\u00e9",
        )
        second = link.submit(asked)
        record = link.jobs([second])[second]
        assert (record.name, record.user, record.comment) == (asked.name, slurm.user, asked.comment)
        assert (record.cores, record.nodes, record.limit_s, record.partition) == (30, 2, 120, "debug")
        assert record.states == ("PENDING",)
        assert f"afterok:{first}" in record.dependency
        assert (record.start_s, record.end_s, record.exit_code) == (None, None, None)
        shown = slurm.run("scontrol", "show", "job", second)
        for words in ("Account=test", "QOS=normal", "MinMemoryNode=1.50G", "NumNodes=2-2", f"WorkDir={folder}"):
            assert words in shown.replace("=1536M", "=1.50G")
        assert time.strftime("StartTime=%Y-%m-%dT%H:%M:%S", time.localtime(begin_s)) in shown or "JobHeldUser" in shown
        cancel(link, first)
        cancel(link, second)
        assert link.jobs([second])[second].states[0] == "CANCELLED"
        assert link.jobs([second])[second].start_s is None


def test_a_begin_time_is_kept_to_the_second(every_api, job):
    for link in every_api:
        begin_s = int(time.time()) + 5000
        job_id = link.submit(replace(job, begin_s=begin_s))
        record = link.jobs([job_id])[job_id]
        assert (record.expected_start_s, record.reason) == (begin_s, "BeginTime")
        cancel(link, job_id)


def test_a_job_gets_its_environment_and_nothing_else(every_api, slurm, folder, job):
    for link in every_api:
        variables = {"PATH": "/usr/bin:/bin", "ODD": "a=b 'c' \"d\" $e\u00e9"}
        written = folder / f"%j.{time.time_ns()}.out"
        job_id = link.submit(
            replace(job, script="#!/bin/sh\nenv\nexit 3\n", environment=variables, stdout=str(written))
        )
        record = ended(link, job_id)
        assert (record.states, record.exit_code, record.reason) == (("FAILED",), 3, "NonZeroExitCode")
        assert record.submit_s <= record.eligible_s <= record.start_s <= record.end_s
        output = until(lambda written=written: written.read_text(), what="the output")
        told = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        assert told["ODD"] == variables["ODD"]
        assert not [name for name in told if name not in {*variables, "PWD", "SHLVL", "_"} and "SLURM" not in name
                    and not name.startswith(("HYDRA_", "I_MPI_", "OMPI_MCA_", "PRTE_MCA_"))  # for launchers
                    and name not in {"TMPDIR", "HOSTNAME", "HOME", "USER", "LOGNAME", "SHELL", "ENVIRONMENT", "OLDPWD",
                                     "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES"}]  # fmt: skip


def test_jobs_are_told_together_and_a_quiet_look_is_one_request(asking, job):
    ids = [asking.submit(sleeping(job)) for _ in range(3)]
    until(lambda: all("RUNNING" in record.states for record in asking.jobs(ids).values()), what="three starts")
    before = asking.calls["jobs"]
    found = asking.jobs([*ids, "999999"])
    assert list(found) == ids
    assert asking.calls["jobs"] == before + 1
    cancel(asking, ids[0])
    until(lambda: asking.jobs(ids)[ids[0]].states == ("CANCELLED",), what="the end of a cancelled job")
    assert {record.job_id for record in asking.queue()} >= set(ids)
    assert asking.jobs(["999999"]) == {}


def test_jobs_are_held_released_and_shortened(every_api, job):
    for link in every_api:
        job_id = link.submit(sleeping(job, held=True))
        assert link.jobs([job_id])[job_id].reason == "JobHeldUser"
        link.update(own(job_id), held=False)
        running(link, job_id)
        link.update(own(job_id), walltime_s=119)
        assert link.jobs([job_id])[job_id].limit_s == 120
        with pytest.raises(BackendError, match="denied") as error:
            link.update(own(job_id), walltime_s=6000)
        assert type(error.value) is BackendError
        cancel(link, job_id)


def test_running_jobs_are_shrunk_where_that_is_possible(every_api, slurm, job):
    for link in every_api:
        assert ("nodes" in link.changeable) == (slurm.version[:2] != "22")
        if "nodes" in link.changeable:
            job_id = link.submit(sleeping(job, nodes=2, cores=4))
            running(link, job_id)
            link.update(own(job_id), nodes=1)
            until(lambda link=link, job_id=job_id: link.jobs([job_id])[job_id].nodes == 1, what="one node")
            cancel(link, job_id)
        else:
            with pytest.raises(BackendError, match="cannot shrink"):
                link.update(own("1"), nodes=1)


def test_what_slurm_does_not_know_and_what_it_refuses(every_api, slurm, job):
    for link in every_api:
        for what in (lambda link=link: cancel(link, "999999"), lambda link=link: link.update(own("999999"), held=True)):
            with pytest.raises(JobNotFoundError):
                what()
        with pytest.raises(SubmitRejectedError, match="Invalid partition name"):
            link.submit(replace(job, partition="nowhere"))
        with pytest.raises(SubmitRejectedError):
            link.submit(replace(job, gpus=2))
        done = link.submit(job)
        ended(link, done)
        cancel(link, done)
        assert link.jobs([done])[done].states == ("COMPLETED",)
        if slurm.version.startswith("24"):
            with pytest.raises(SubmitRejectedError, match="dependency"):
                link.submit(replace(job, dependency="afterok:999999"))


def test_the_past_is_told_by_accounting(every_api, slurm, job, tmp_path):
    since_s = time.time() - 600
    for link in every_api:
        name = f"past.{time.time_ns()}"
        good = link.submit(replace(job, name=name))
        bad = link.submit(replace(job, name=f"{name}-bad", script="#!/bin/sh\nexit 7\n"))
        never = link.submit(replace(job, begin_s=int(time.time()) + 9000))
        cancel(link, never)
        ended(link, good)
        ended(link, bad)

        def settled(link=link, ids=(good, bad)):
            past = link.past([*ids, "999999"])
            return len(past) == 2 and all(record.end_s for record in past.values()) and past

        past = until(settled, what="two records in accounting")
        assert (past[good].name, past[good].states, past[good].exit_code) == (name, ("COMPLETED",), 0)
        assert past[bad].states == ("FAILED",)
        assert past[bad].exit_code == (None if slurm.version.startswith("22") else 7)
        assert past[good].submit_s <= past[good].eligible_s <= past[good].start_s <= past[good].end_s
        assert {record.job_id for record in link.named([name, f"{name}-bad"])} == {good, bad}

        file = tmp_path / f"{name}.txt"
        file.write_text(link.accounting(since_s, time.time() + 60))
        history = read_history(file)
        assert history.system == "testbed"
        assert {2} <= set(history.cores.tolist())
        assert slurm.user in history.users
        assert (history.wait_s >= 0).all()


def test_accounting_is_told_as_sacct_tells_it(asking, slurm, job, tmp_path):
    first = asking.submit(job)
    second = asking.submit(replace(job, dependency=f"afterok:{first}", walltime_s=600))
    ended(asking, second)
    until(lambda: {first, second} <= asking.past([first, second]).keys(), what="two records in accounting")
    columns = "Cluster,JobID,User,Partition,Submit,Eligible,Start,End,State,TimelimitRaw,ReqCPUS,Reservation"
    printed = slurm.run("env", "SLURM_TIME_FORMAT=%s", "sacct", "-XPn", "-j", f"{first},{second}", "-o", columns)
    mine = [line.rpartition("|")[0] for line in asking.accounting(time.time() - 600, time.time() + 60).splitlines()]
    assert set(printed.split()) <= set(mine)


def test_jobs_that_the_queue_has_forgotten_are_still_found_by_name(asking, job, monkeypatch):
    name = f"forgotten.{time.time_ns()}"
    job_id = asking.submit(replace(job, name=name))
    ended(asking, job_id)
    until(lambda: asking.past([job_id]), what="a record in accounting")
    monkeypatch.setattr(asking, "_listing", lambda *_: [])
    assert [record.job_id for record in asking.named([name, "nobody"])] == [job_id]


def test_a_controller_that_is_away(slurm, asking, job):
    job_id = asking.submit(sleeping(job))
    slurm.stop_controller()
    try:
        with pytest.raises(UnavailableError):
            asking.jobs([job_id])
        with pytest.raises(UnavailableError, match="connect failure"):
            asking.submit(job)
    finally:
        slurm.start_controller()
    assert asking.jobs([job_id])[job_id].name == job.name


def test_tokens_over_tcp(slurm, job, tmp_path):
    if slurm.url is None:
        pytest.skip("this Slurm has no tokens")
    file = tmp_path / "token"
    file.write_text(f"SLURM_JWT={slurm.token()}\n")
    served = {"served_by": [uid_of(slurm.user)]}
    for options in ({"user": slurm.user}, {}):
        for bearer in (False, True):
            link = RestLink(slurm.url, token=TokenSource.from_file(file, bearer=bearer), **options, **served)
            if bearer and slurm.release == "22.05":
                with pytest.raises(AccessError) as refused:
                    link.submit(job)
                assert "does not know bearer tokens" in refused.value.hint
                continue
            job_id = link.submit(job)
            assert link.jobs([job_id])[job_id].user == slurm.user
            assert 3000 < link.about().token_ends_s - time.time() <= 3600
            assert [record.job_id for record in link.named([job.name])][-1] == job_id
            link.close()

    file.write_text("bad")
    link = RestLink(slurm.url, token=TokenSource.from_file(file), **served)
    for ask in (lambda: link.submit(job), lambda: link.jobs(["1"]), link.about, link.partitions):
        with pytest.raises(AccessError):
            ask()
    file.write_text(slurm.token())
    assert link.submit(job), "mended while we wait"
    link.close()
    stranger = RestLink(slurm.url, **served)
    with pytest.raises(AccessError, match="HTTP status 401"):
        stranger.about()
    stranger.close()


def test_looks_cost_little_while_many_wait(slurm, asking, job):
    blocker = asking.submit(sleeping(job, cores=112))
    running(asking, blocker)
    for _ in range(250):
        asking.submit(sleeping(job, cores=28, name="foreign"))
    own = [asking.submit(sleeping(job, cores=28, name=f"own.{number}")) for number in range(4)]
    assert len(asking.jobs(own)) == 4
    begin = time.process_time()
    looks = 5
    for _ in range(looks):
        assert len(asking.jobs(own)) == 4
    assert (time.process_time() - begin) / looks < 0.05
    assert len(asking.queue()) >= 255
    assert [record.name for record in asking.named(["own.2"])] == ["own.2"]
