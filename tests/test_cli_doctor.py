"""``asa doctor``, and ``asa learn`` from a site, as a user types them."""

import json
import os
import re
import shlex
import signal
from types import SimpleNamespace

import pytest
import typer
from asa.backends.slurm import facility
from told_link import ToldLink
from typer.testing import CliRunner

from asa.cli import doctor as command
from asa.cli.doctor import doctor
from asa.cli.learn import learn
from asa.cli.predict import predict
from asa.errors import AsaError, UnavailableError
from asa.sites import read_site

pytestmark = pytest.mark.usefixtures("own_home")  # which keeps what was learned

app = typer.Typer()
app.command()(doctor)
app.command()(learn)
app.command()(predict)

ACCOUNTS = (
    "Cluster|JobID|User|Partition|Submit|Eligible|Start|End|State|TimelimitRaw|ReqCPUS|Reservation|Reason\n"
    "small|7|ada|normal|1799990000|1799990000|1799990300|1799990400|COMPLETED|60|4||None\n"
    "small|8|bob|normal|1799990100|1799990100|1799990100|1799990900|COMPLETED|60|8||None\n"
)


@pytest.fixture(autouse=True)
def link(tmp_path, monkeypatch):
    """Return the link that the commands use, on a computer without Slurm and sites."""
    told = ToldLink(told_accounting=ACCOUNTS, accrues=False)
    monkeypatch.setattr(facility, "_command_link", lambda _settings: told)
    monkeypatch.setenv("ASA_SITES", str(tmp_path / "sites"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JWT", raising=False)
    return told


def asa(*arguments, code=0, width=100):
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": str(width)})
    if isinstance(done.exception, AsaError):
        assert done.exception.exit_code == code, done.exception
        return SimpleNamespace(stdout=done.stdout, stderr=str(done.exception))
    assert done.exit_code == code, done.output
    return done


def test_it_tells_what_was_found_and_what_follows():
    text = asa("doctor", "--backend", "slurm-cli").stdout
    assert text.splitlines()[0] == "slurm-cli"
    assert "good  Reachable" in text
    assert "Slurm 22.05.8, cluster small" in text
    assert "Jobs go to 'normal'" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_its_terminal(width):
    text = asa("doctor", "--backend", "slurm-cli", "--probe", width=width).stdout
    assert max(map(len, text.splitlines())) <= width
    assert "gain no priority" in text


def test_variables_that_take_files_of_the_folder_one_is_in_are_named_with_what_mends_them(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":/opt/my lab/python")
    monkeypatch.setenv("LD_LIBRARY_PATH", ".")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    found = json.loads(asa("doctor", "--backend", "slurm-cli", "--output", "json").stdout)["findings"]
    notes = {one["told"].split()[0]: one["consequence"] for one in found if "an empty entry" in one["told"]}
    assert {name: words.rpartition(": ")[2] for name, words in notes.items()} == {
        "PYTHONPATH": "export PYTHONPATH='/opt/my lab/python'",
        "LD_LIBRARY_PATH": "unset LD_LIBRARY_PATH",
    }


def test_only_a_probe_submits(link):
    asa("doctor", "--backend", "slurm-cli")
    assert not link.submitted
    asa("doctor", "--backend", "slurm-cli", "--probe")
    assert link.cancelled == list(link.submitted) == ["1"]


def test_other_clusters_of_the_accounting_are_named(link):
    link.told_clusters = ["tiny", "small", "large"]
    told = " ".join(asa("doctor", "--backend", "slurm-cli").stdout.split())
    assert "accounting also has large, tiny" in told
    assert "--option cluster=large --save large" in told
    link.told_clusters = []
    assert "accounting also has" not in asa("doctor", "--backend", "slurm-cli").stdout


def test_json_tells_the_same():
    told = json.loads(asa("doctor", "--backend", "slurm-cli", "--output", "json").stdout)
    assert told["usable"]
    assert told["backend"] == "slurm-cli"
    assert told["settings"]["min_job_age"] == "300s"
    assert {finding["verdict"] for finding in told["findings"]} <= {"good", "note"}


def test_a_site_that_cannot_be_used_is_exit_code_1(link):
    link.fails["about"] = UnavailableError("nobody answers", hint="Wait.")
    assert "nobody answers" in asa("doctor", "--backend", "slurm-cli", code=1).stdout
    assert not json.loads(asa("doctor", "--backend", "slurm-cli", "--output", "json", code=1).stdout)["usable"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--backend", "slurm-cli", "--option", "poll"), "has no value"),
        (("--backend", "slurm-cli", "--option", "=3"), "has no name before the ="),
        (("--backend", "slurm-cli", "--option", "prtition=x"), "Did you mean 'partition'"),
        (("--backend", "slurm-cli", "--option", "poll=3"), "--option poll"),
        (("--backend", "slurm-rest"), "url"),
        (("--backend", "slrum"), "there is no backend"),
        (("--backend", "simulated", "--option", "system=hpc2n"), "cannot be examined"),
        (("--site", "nowhere"), "there is no site"),
    ],
)
def test_what_cannot_be_used_is_exit_code_2(arguments, words):
    assert words in asa("doctor", *arguments, code=2).stderr


def test_what_was_found_is_saved_and_then_used(tmp_path):
    arguments = ("--backend", "slurm-cli", "--option", "partition=debug", "--probe", "--save", "small")
    assert str(tmp_path / "sites" / "small.toml") in asa("doctor", *arguments).stderr
    site = read_site("small")
    assert (site.backend, site.settings) == ("slurm-cli", {"partition": "debug"})
    assert site.found["age_accrues"] is False
    assert site.observed["version"] == "22.05.8"
    again = asa("doctor", "--site", "small")
    assert "Jobs go to 'debug'" in again.stdout
    assert "small.toml" in again.stdout


def test_a_bad_site_is_saved_too(link, tmp_path):
    """The user's settings are not lost because the site is down today."""
    link.fails["about"] = UnavailableError("down")
    asa("doctor", "--backend", "slurm-cli", "--option", "partition=debug", "--save", tmp_path / "x.toml", code=1)
    assert read_site(str(tmp_path / "x.toml")).settings == {"partition": "debug"}


def test_saving_under_another_name_takes_all_along():
    asa("doctor", "--backend", "slurm-cli", "--option", "system=mine", "--probe", "--save", "one")
    asa("doctor", "--site", "one", "--option", "account=a", "--save", "two")
    assert read_site("two").settings == {"system": "mine", "account": "a"}
    assert read_site("two").found["age_accrues"] is False


def test_the_only_site_is_taken_and_said(tmp_path):
    saved = asa("doctor", "--backend", "slurm-cli", "--save", "small").stderr
    assert "taken from now on" in saved
    assert f"--site {tmp_path}/x.toml" in asa("doctor", "--backend", "slurm-cli", "--save", tmp_path / "x.toml").stderr
    assert "the only site file" in asa("doctor").stderr


def test_commands_that_are_there_are_found_and_said(tmp_path):
    for name in ("sbatch", "squeue"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert "Using slurm-cli: sbatch and squeue are on this computer." in asa("doctor").stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_ended_is_orderly(number):
    """The command undoes what it has begun."""
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as caught, command._ends_orderly():
        os.kill(os.getpid(), number)
    assert caught.value.code == 128 + number
    assert signal.getsignal(number) is before


# ---------------------------------------------------------------------- learning from a site


def test_a_sites_accounting_is_learned_once(tmp_path, link):
    bank = tmp_path / "bank"
    arguments = ("learn", "--backend", "slurm-cli", "--since", "10d", "--bank", bank)
    first = asa(*arguments)
    assert "2 waits on 'small'" in first.stderr
    assert "2 of them are new" in first.stderr
    assert "0 of them are new" in asa(*arguments).stderr
    since_s, until_s = link.asked_accounting[0]
    assert until_s - since_s == pytest.approx(10 * 86400.0, abs=60.0)


def test_a_file_and_a_site_that_tell_the_same_are_learned_once(tmp_path):
    bank, file = tmp_path / "bank", tmp_path / "jobs.txt"
    file.write_text(ACCOUNTS)
    asa("learn", "--from", file, "--bank", bank)
    assert "0 of them are new" in asa("learn", "--backend", "slurm-cli", "--bank", bank).stderr


def test_the_sites_name_is_the_users(tmp_path):
    arguments = ("learn", "--backend", "slurm-cli", "--option", "system=mine", "--bank", tmp_path / "bank")
    assert "on 'mine'" in asa(*arguments).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no source is given"),
        (("--from", "jobs.txt", "--backend", "slurm-cli"), "a file and a site are given"),
        (("--from", "jobs.txt", "--since", "3d"), "a file and a site are given"),
        (("--backend", "slurm-cli", "--since", "30"), "has no unit"),
        (("--backend", "slurm-cli", "--since", "long"), "no duration"),
        (("--backend", "simulated", "--option", "system=hpc2n"), "does not tell about past jobs"),
    ],
)
def test_where_to_learn_from_must_be_one(arguments, words):
    assert words in asa("learn", *arguments, code=2).stderr


def test_the_hint_after_learning_works_as_it_is_printed(tmp_path):
    """The hint names the partition if the bank knows several, even from an earlier run."""
    bank, file = tmp_path / "bank", tmp_path / "jobs.txt"
    file.write_text(ACCOUNTS)
    first = asa("learn", "--from", file, "--bank", bank).stderr.splitlines()[-1]
    assert "--partition" not in first
    file.write_text(ACCOUNTS.splitlines()[0] + "\n" + ACCOUNTS.splitlines()[1].replace("normal", "big mem") + "\n")
    second = asa("learn", "--from", file, "--bank", bank).stderr.splitlines()[-1]
    assert "--partition 'big mem'" in second
    asa(*shlex.split(second.partition("Ask with: asa ")[2]))


def test_what_was_learned_is_json_too(tmp_path):
    told = json.loads(asa("learn", "--backend", "slurm-cli", "--bank", tmp_path / "bank", "--output", "json").stdout)
    assert (told["schema"], told["system"], told["waits"], told["new"]) == (1, "small", 2, 2)
    assert told["partitions"] == {"normal": 2}


def test_a_look_at_everybodys_jobs_is_not_read_as_one_number():
    text = asa("doctor", "--backend", "slurm-cli", width=200).stdout
    assert re.search(r"at everybody's \(0\) \d+ ms", text)


def test_where_a_dependency_cancels_the_benefit_it_says_what_a_run_does():
    text = " ".join(asa("doctor", "--backend", "slurm-cli", width=200).stdout.split())
    assert "asa-plan, which `asa run` takes unless the site file or --strategy says otherwise" in text
