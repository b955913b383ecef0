"""`asa predict` looks at a real queue, and forecasts from now on."""

import json
import re
import time
from types import SimpleNamespace

import pytest
import typer
from slurm_testbed import until
from typer.testing import CliRunner

from asa.cli.predict import predict
from asa.errors import AsaError, InputError

app = typer.Typer()
app.command()(predict)


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Hide sites, bank and tokens of the user who runs the tests."""
    monkeypatch.setenv("ASA_SITES", str(tmp_path / "sites"))
    monkeypatch.setenv("ASA_BANK", str(tmp_path / "bank"))
    monkeypatch.delenv("SLURM_JWT", raising=False)


def asa(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "100"})
    if isinstance(done.exception, AsaError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return SimpleNamespace(stdout=done.stdout, stderr=done.stderr)


def rest(cluster):
    return ("--backend", "slurm-rest", "--option", f"url=unix://{cluster.socket}")


def commands(cluster):
    return ("--backend", "slurm-cli", "--option", f"prefix={' '.join(cluster.prefix)}")


BOTH = pytest.mark.parametrize("means", [rest, commands])


@pytest.fixture
def full(slurm):
    """Fill the cluster for an hour, with a job of all of its nodes in the queue."""
    wide = ("-N", "4", "--exclusive", "-p", "normal", "-o", "/dev/null", "--wrap", "sleep 3600")
    for walltime in ("60", "60"):
        slurm.run("sbatch", "-t", walltime, *wide)
    until(lambda: "RUNNING" in slurm.run("squeue", "-h", "-o", "%T"))
    yield slurm
    slurm.empty()


@BOTH
def test_a_full_machine_is_seen(full, means):
    began = time.time()
    asked = ("--walltime", "30m", "--output", "json")
    told = json.loads(asa("--cores", 112, *asked, *means(full)).stdout)
    assert "1 job waits, 1 runs" in told["queue"]
    assert told["system"] == "testbed"
    assert began - 5 <= told["as_of_s"] <= time.time() + 5


@BOTH
def test_requests_are_compared_as_of_now(full, means):
    told = asa("--cores", "28,112", "--walltime", "30m,2h", "--run-time", "25m,10m", *means(full)).stdout
    assert "best" in told
    assert "As of now: 1 job waits, 1 runs" in " ".join(told.split())


def test_nobody_is_asked_if_the_user_does_not_want_it(full, tmp_path):
    with pytest.raises(InputError, match="does not go with --bank-only"):
        asa("--cores", 1, "--walltime", "1h", "--bank-only", *commands(full))
    with pytest.raises(InputError, match="knows nothing yet"):
        asa("--cores", 1, "--walltime", "1h", "--bank-only")


@BOTH
def test_more_cores_than_there_are_are_refused(full, means):
    with pytest.raises(InputError, match="has 112 cores"):
        asa("--cores", 113, "--walltime", "1h", *means(full))


@BOTH
def test_a_partition_without_jobs_may_be_a_mistake(full, means):
    assert (
        "no job in partition 'nromal'"
        in asa("--cores", 1, "--walltime", "1h", "--partition", "nromal", *means(full)).stderr
    )
    assert "Note" not in asa("--cores", 1, "--walltime", "1h", "--partition", "normal", *means(full)).stderr


def test_a_controller_that_was_named_and_is_down_is_an_error(slurm):
    slurm.stop_controller()
    try:
        with pytest.raises(AsaError):
            asa("--cores", 1, "--walltime", "1h", *commands(slurm))
    finally:
        slurm.start_controller()


def test_slurm_is_asked_for_its_own_word(full):
    """By its commands only, since the REST API has no such request. Nothing is submitted."""
    asked = ("--cores", 112, "--walltime", "30m")
    told = json.loads(asa(*asked, "--output", "json", *commands(full)).stdout)
    assert 3000 < told["site_word"]["wait_s"] <= 2 * 3600
    assert told["site_word"]["outcomes"] == 0
    assert "site_word" not in json.loads(asa(*asked, "--output", "json", *rest(full)).stdout)
    assert "site_word" not in json.loads(asa(*asked, "--output", "json", "--no-ask-site", *commands(full)).stdout)
    words = " ".join(asa(*asked, *commands(full)).stdout.split())
    assert re.search("Slurm itself says (1h|59m)", words)
    assert "how good its estimates are here is not known yet" in words
    several = ("--cores", "28,112", "--walltime", "30m,2h")
    assert "Slurm itself says" in asa(*several, *commands(full)).stdout
    assert full.run("squeue", "-h", "-o", "%T").split() == ["PENDING", "RUNNING"]
