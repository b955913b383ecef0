"""Previews show all that would be sent, except secrets, and send nothing."""

import json
from pathlib import Path

import pytest
from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.defaults import JobDefaults
from asa.backends.slurm.rest import RestLink
from slurm_fake import FakeSlurm

from asa.backend import Capabilities, Dependency, JobSpec
from asa.errors import SubmitRejectedError

SPEC = JobSpec(
    "fit",
    cores=4,
    walltime_s=120,
    command="./fit 'a b'",
    token="t-1",
    partition="long",
    dependencies=(Dependency("7"),),
)


def backend(link, folder):
    defaults = JobDefaults(environment={"PASSWORD": "opensesame"}, inherit=False, folder=Path("/work"))
    return SlurmBackend(link, folder, Capabilities("x", 28, 28, age_accrues=True), defaults=defaults)


@pytest.mark.parametrize("version", ["22.05", "26.05"])
def test_the_request_is_shown(tmp_path, version):
    slurm = FakeSlurm(tmp_path / "slurm", version)
    shown = backend(RestLink("http://slurm", transport=slurm), tmp_path / "run").preview(SPEC)
    title = f"POST /slurm/{slurm.api}/job/submit"
    assert list(shown) == ["script", title]
    job = json.loads(shown[title])["job"]
    assert (job["name"], job["partition"], job["dependency"]) == ("fit.t-1", "long", "afterok:7")
    assert job["environment"].endswith(" variables)")
    assert "opensesame" not in json.dumps(shown)
    assert shown["script"].startswith("#!/bin/sh")
    assert "./fit" in shown["script"]
    assert not slurm.jobs


def test_the_command_is_shown(tmp_path):
    def run(*_):
        raise AssertionError("nothing is run")

    shown = backend(CommandLink(prefix=["ssh", "login"], run=run), tmp_path).preview(SPEC)
    assert shown["command"].startswith("ssh login ")
    for option in ("--ntasks=4", "--time=2", "--partition=long", "--dependency=afterok:7", "--job-name=fit.t-1"):
        assert option in shown["command"]
    assert shown["variables"] == "PASSWORD SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST"
    assert "opensesame" not in json.dumps(shown)


def test_what_can_never_run_is_refused(tmp_path):
    slurm = FakeSlurm(tmp_path / "slurm")
    with pytest.raises(SubmitRejectedError, match="asks for 40 cores"):
        backend(RestLink("http://slurm", transport=slurm), tmp_path / "run").preview(JobSpec("big", 40, 60.0))
