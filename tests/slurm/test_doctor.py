"""What `asa doctor` reports of real clusters is true."""

import json
import os
import re
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from asa.backends.slurm.facility import SlurmCommands, SlurmRest
from asa.backends.slurm.probe import Prober
from asa.backends.slurm.settings import CommandSettings
from slurm_testbed import NEWEST, OLDEST, Testbed, missing, until
from typer.testing import CliRunner

from asa.cli.doctor import doctor
from asa.cli.learn import learn
from asa.errors import AsaError, TraceError

app = typer.Typer()
app.command()(doctor)
app.command()(learn)


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Hide sites and tokens of the user who runs the tests."""
    monkeypatch.setenv("ASA_SITES", str(tmp_path / "sites"))
    monkeypatch.delenv("SLURM_JWT", raising=False)


def asa(*arguments, code=0):
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "100"})
    if isinstance(done.exception, AsaError):
        raise done.exception
    assert done.exit_code == code, done.output
    return SimpleNamespace(stdout=done.stdout, stderr=done.stderr)


def rest(cluster):
    return ("--backend", "slurm-rest", "--option", f"url=unix://{cluster.socket}")


def commands(cluster):
    return ("--backend", "slurm-cli", "--option", f"prefix={' '.join(cluster.prefix)}")


BOTH = pytest.mark.parametrize("means", [rest, commands])


def examined(arguments, *more, code=0):
    told = json.loads(asa("doctor", *arguments, "--output", "json", *more, code=code).stdout)
    return told, {finding["topic"]: finding for finding in told["findings"]}


@pytest.fixture(params=[OLDEST, NEWEST])
def accruing(request):
    """Yield a cluster where age always accrues."""
    if reason := missing(request.param):
        pytest.skip(reason)
    cluster = Testbed(Path(f"/tmp/asa-{os.getpid()}-a{request.param}"), release=request.param, nodes=1, accrue=True)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@BOTH
def test_a_real_cluster_is_found_out(slurm, means):
    told, found = examined(means(slurm), "--probe")
    assert told["usable"], found
    assert told["observed"]["version"].startswith(slurm.version)
    assert told["observed"]["cluster"] == "testbed"
    assert told["observed"]["max_cores"] == 112
    assert "normal: 4 nodes of 28 cores" in found["Partitions"]["told"]
    assert "debug: 4 nodes of 28 cores, up to 30m00s" in found["Partitions"]["told"]
    assert found["Age rule"]["told"].startswith("jobs gain no priority")
    assert told["settings"]["age_accrues"] is False
    assert told["observed"]["accounting"] is True
    assert found["Clocks"]["verdict"] == "good"


def test_commands_tell_the_configuration(slurm):
    told, found = examined(commands(slurm))
    assert told["settings"]["min_job_age"] == "600s"
    assert told["settings"]["kill_invalid_depend"] is False
    assert "20000" in found["Limits"]["told"]
    assert "everybody's jobs are shown" in found["Queue"]["told"]


def test_the_probe_leaves_nothing_behind(slurm):
    asa("doctor", *rest(slurm), "--probe")
    listed = slurm.run("squeue", "-h", "-t", "all", "-o", "%j %T").split("\n")
    probes = [line for line in listed if line.startswith("asa-probe")]
    assert probes
    assert all(line.endswith("CANCELLED") for line in probes)


@BOTH
def test_an_interrupted_probe_leaves_nothing_behind(slurm, means, monkeypatch):
    if means is rest:
        link = SlurmRest(url=f"unix://{slurm.socket}")._open_link()
    else:
        link = SlurmCommands(prefix=slurm.prefix)._open_link()

    def interrupted(_job_ids):
        raise KeyboardInterrupt

    with closing(link):
        monkeypatch.setattr(link, "jobs", interrupted, raising=False)
        with pytest.raises(KeyboardInterrupt):
            Prober(link, CommandSettings()).probe(age=True)
    assert "asa-probe" not in slurm.run("squeue", "-h", "-o", "%j")


@BOTH
def test_where_age_always_accrues_it_is_found_out(accruing, means):
    told, found = examined(means(accruing), "--probe")
    assert told["settings"]["age_accrues"] is True
    assert "gain priority" in found["Age rule"]["told"]
    assert found["Accounting"]["verdict"] == "note"


@BOTH
def test_a_controller_that_is_down_is_bad(slurm, means):
    slurm.stop_controller()
    try:
        told, found = examined(means(slurm), code=1)
        assert not told["usable"]
        assert found["Reachable"]["verdict"] == "bad"
    finally:
        slurm.start_controller()


def test_a_token_is_needed_and_its_end_is_told(slurm, monkeypatch, tmp_path):
    if slurm.url is None:
        pytest.skip("this build of Slurm knows no tokens")
    arguments = ("--backend", "slurm-rest", "--option", f"url={slurm.url}", "--option", f"served_by={slurm.user}")
    assert examined(arguments, code=1)[1]["Access"]["verdict"] == "bad"
    token = slurm.token(lifespan_s=1790)
    monkeypatch.setenv("SLURM_JWT", token)
    _told, found = examined(arguments, "--probe")
    assert found["Access"]["verdict"] == "note"
    assert "the token lasts for 29m" in found["Access"]["told"]
    (tmp_path / "token").write_text(token)
    monkeypatch.setenv("SLURM_JWT", "not.the.token")
    done = asa("doctor", *arguments, "--option", f"token_file={tmp_path / 'token'}", "--save", "here")
    saved = (tmp_path / "sites" / "here.toml").read_text()
    assert token not in saved + done.stdout + done.stderr
    assert str(tmp_path / "token") in saved


def test_connecting_finds_what_the_site_can_do(slurm, tmp_path):
    for facility in (SlurmRest(url=f"unix://{slurm.socket}"), SlurmCommands(prefix=slurm.prefix)):
        backend = facility.connect(tmp_path)
        site = backend.capabilities
        backend.close()
        assert (site.system, site.max_cores, site.cores_per_node, site.age_accrues) == ("testbed", 112, 28, False)
        assert site.partitions["debug"].max_walltime_s == 1800.0


def test_what_one_means_has_told_the_other_does_not_teach_again(slurm, tmp_path):
    """Both ways report the wait of the same job, which is learned once."""
    began_s = time.time() - 5.0
    for cores in (1, 2, 3):
        slurm.run("sbatch", "--parsable", "-n", str(cores), "-t", "2", "--wrap", "true")

    def learn(means):
        since = f"{time.time() - began_s:.0f}s"  # before now
        return asa("learn", *means(slurm), "--bank", tmp_path / "bank", "--since", since)

    def learned():
        """Learn once accounting has the jobs, which takes some seconds."""
        try:
            done = learn(rest)
        except TraceError:
            return None
        [count] = re.findall(r"(\d+) waits on", done.stderr)
        return done if int(count) >= 3 else None

    first = until(learned, what="the jobs in accounting")
    assert "on 'testbed'" in first.stderr
    assert "; 0 of them are new" not in first.stderr
    assert "; 0 of them are new" in learn(commands).stderr
    assert "; 0 of them are new" in learn(rest).stderr
