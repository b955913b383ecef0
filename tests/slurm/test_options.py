"""A stage's further options and its cores per task, on real daemons."""

import subprocess
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.facility import SlurmCommands, SlurmRest
from asa.backends.slurm.link import SlurmJob
from asa.backends.slurm.rest import RestLink
from slurm_testbed import NEWEST, OLDEST

from asa.errors import BackendError, SubmitRejectedError
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies import Keep, PlannedJob
from asa.workflow import Stage, Workflow

APIS = {"22.05": ("v0.0.38",), "26.05": ("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45")}
OPTIONS = {
    "--nice=10": "Nice=10",
    "--tmp=100M": "MinTmpDiskNode=100M",
    "--exclude=n[001,004]": "ExcNodeList=n[001,004]",
    "--nodelist=n002": "ReqNodeList=n002",
    "--ntasks-per-node=2": "NtasksPerN:B:S:C=2:",
    "--mincpus=6": "MinCPUsNode=6",
    "--mail-type=END,FAIL": "MailType=END,FAIL",
    "--mail-user=ada@example.org": "MailUser=ada@example.org",
    "--threads-per-core=1": "ReqB:S:C:T=0:0:*:1",
    "--wckey=project": "",
    "--exclusive=user": "Exclusive=USER",
}

OF_NEWEST = {
    "--oom-kill-step=1": "OOMKillStep=1",
    "--segment=1": "SegmentSize=1",
    "--spread-segments": "SpreadSegments=Yes",
    "--container-type=oci": "ContainerType=oci",
    "--mem-update=10@5": "MemUpdate=10%@5min",
}


@pytest.fixture
def links(slurm):
    """Yield a link by commands, and one for each version of the API that is served."""
    slurm.empty()
    made = {"commands": CommandLink(prefix=slurm.prefix)}
    made |= {api: RestLink(f"unix://{slurm.socket}", api=api) for api in APIS[slurm.release]}
    yield made
    for link in made.values():
        link.close()
    slurm.empty()


@pytest.fixture
def job(slurm):
    folder = slurm.folder(f"options-{time.time_ns()}")
    return SlurmJob(
        name="options.token",
        script="#!/bin/sh\nexec sleep 300\n",
        folder=str(folder),
        cores=4,
        cpus_per_task=2,
        walltime_s=300,
        stdout=str(folder / "out"),
        stderr=str(folder / "err"),
        environment={"PATH": "/usr/bin:/bin"},
        comment="asa:token",
        held=True,
    )


def shown(slurm, job_id):
    """Return what Slurm shows of a job, in the form of the newest release, which has a field for `--exclusive`."""
    told = slurm.run("scontrol", "show", "job", job_id)
    if slurm.release == NEWEST:
        return told
    return told.replace("OverSubscribe=NO", "Exclusive=NODE").replace("OverSubscribe=USER", "Exclusive=USER")


def test_cores_are_asked_for_in_tasks(slurm, links, job):
    for link in links.values():
        told = shown(slurm, link.submit(job))
        for words in ("NumCPUs=4 ", "NumTasks=2 ", "CPUs/Task=2 ", "Comment=asa:token"):
            assert words in told


def test_each_option_arrives_by_each_way(slurm, links, job):
    for name, link in links.items():
        told = shown(slurm, link.submit(replace(job, options=tuple(OPTIONS), nodes=1)))
        for option, words in OPTIONS.items():
            assert words in told, f"{option} by {name}"


def test_options_of_the_newest_release_arrive_or_are_refused(slurm, links, job):
    """By REST, those arrive for which its API has a field."""
    if slurm.release != NEWEST:
        pytest.skip("an older release")
    told = shown(slurm, links["commands"].submit(replace(job, options=tuple(OF_NEWEST))))
    assert [option for option, words in OF_NEWEST.items() if words not in told] == []
    link = links["v0.0.45"]
    with pytest.raises(SubmitRejectedError, match="--mem-update"):
        link.submit(replace(job, options=("--mem-update=10@5",)))
    told = shown(slurm, link.submit(replace(job, options=tuple(o for o in OF_NEWEST if "update" not in o))))
    assert [option for option, words in OF_NEWEST.items() if words not in told] == ["--mem-update=10@5"]
    told = shown(slurm, link.submit(replace(job, options=("--consolidate-segments", "--segment=1"))))
    assert "ConsolidateSegments=Yes" in told


def test_keys_that_slurm_has_an_option_for_arrive_by_each_way(slurm, links, job):
    with suppress(subprocess.CalledProcessError):  # one is there, of a run of these tests before
        words = ("reservationname=course", "starttime=now", "duration=60", "nodes=n002", f"users={slurm.user}")
        slurm.run_as_root("scontrol", "create", "reservation", *words, "flags=ignore_jobs")
    for name, link in links.items():
        told = shown(slurm, link.submit(replace(job, nice=7, reservation="course")))
        for words in ("Nice=7", "Reservation=course"):
            assert words in told, f"{words} by {name}"
    slurm.empty()
    slurm.run_as_root("scontrol", "delete", "reservationname=course")


def test_whole_nodes_may_be_asked_for(slurm, links, job):
    whole = replace(job, options=("--exclusive",))
    for name, link in links.items():
        if name == "v0.0.38":
            with pytest.raises(SubmitRejectedError, match="--exclusive"):
                link.submit(whole)
        else:
            assert "Exclusive=NODE" in shown(slurm, link.submit(whole)), name


def test_what_slurm_does_not_have_is_its_own_refusal(links, job):
    for link in links.values():
        with pytest.raises(BackendError):
            link.submit(replace(job, options=("--constraint=no-such-feature",)))
        with pytest.raises(BackendError):
            link.submit(replace(job, options=("--reservation=no-such-one",)))


def test_what_asa_says_itself_reaches_no_daemon(slurm, links, job):
    for link in links.values():
        with pytest.raises(SubmitRejectedError, match="not for `options`"):
            link.submit(replace(job, options=("--part=debug",)))
    assert not slurm.run("squeue", "-h").strip()


def test_nodes_of_its_own_with_the_tasks_that_a_stage_asks_for(slurm):
    """By both links; the REST API of Slurm 22.05 has no field for it, and the error says so."""
    slurm.empty()
    flow = Workflow("f", [Stage("a", cores=2, walltime_s=300.0, memory_bytes=8 << 20, exclusive=True, command="true")])
    for site in (SlurmCommands(prefix=slurm.prefix), SlurmRest(url=f"unix://{slurm.socket}")):
        backend = site.connect(slurm.folder(f"own-{time.time_ns()}"))
        state = RunState("flow", flow, backend.capabilities, "r" * 12)
        spec = spec_of(state, PlannedJob(("a",), 0.0, Keep.NOTHING, ""))
        assert (spec.cores, spec.tasks) == (28, 2)
        if isinstance(site, SlurmRest) and slurm.release == OLDEST:
            with pytest.raises(SubmitRejectedError, match="--exclusive"):
                backend.submit(spec)
        else:
            told = shown(slurm, backend.submit(spec))
            for words in ("NumNodes=1", "NumTasks=2 ", "MinMemoryNode=8M", "Exclusive=NODE"):
                assert words in told, site
        backend.close()
    slurm.empty()
