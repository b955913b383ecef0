"""Runs on the command line where something is amiss: no bank, a closed pipe, a wrong workflow, no batch system."""

import json
import time
from pathlib import Path

import pytest
from slurm_testbed import until
from this_machine import Place
from typer.testing import CliRunner

from asa.backend import CLUSTER_FILE, Capabilities
from asa.cli.app import app
from asa.cli.revising import _is_changed, _merged
from asa.errors import InputError
from asa.runner import RunFolder, RunPlan
from asa.workflow import Stage, Workflow

SITE = Capabilities("x", 112, 28, age_accrues=False)

CHAIN = (("a", "", "echo a >>did"), ("b", "a", "echo b >>did; sleep 1"), ("c", "b", "echo c >>did"))
LONG = (("a", "", "echo a >>did; sleep 100"), ("b", "a", "echo b >>did"))


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


def test_a_bank_that_cannot_be_made_is_told_before_anything_is_submitted(place):
    """The bank may be named in any way; a run that has begun continues without it, or with another."""
    (place.root / "file").touch()
    for given in (["--bank", "file/bank"], ["--bank", "file"]):
        told = place.asa("run", place.flow(*LONG), *place.on, *given, code=2).stderr
        for words in ("the bank", "cannot be made", "Nothing was submitted", "--bank", "ASA_BANK"):
            assert words in told
    assert not place.runs()
    client = place.begin("run", place.flow(*CHAIN), *place.on, "--strategy", "per-stage", "--bank", "one")
    until(lambda: "b" in place.lines(), what="the second stage")
    client.kill()
    client.communicate()
    for file in (place.root / "one").iterdir():
        file.unlink()
    (place.root / "one").rmdir()
    (place.root / "one").touch()
    assert "cannot be made" in place.asa("resume", "--bank", "one", code=2).stderr
    [run] = place.runs()
    done = place.asa("resume", "--bank", "two")
    assert "Note" not in done.stderr
    assert json.loads((run / "run.json").read_text())["bank"] == str(place.root / "two")
    assert "observations" in place.asa("bank", "show", "--bank", "two").stdout
    assert place.lines() == ["a", "b", "c"]


def test_a_run_goes_on_without_its_bank(place):
    """The output says so."""
    client = place.begin("run", place.flow(*CHAIN), *place.on, "--strategy", "per-stage", "--bank", "one")
    until(lambda: "b" in place.lines(), what="the second stage")
    client.kill()
    client.communicate()
    (place.root / "one").rename(place.root / "other")
    (place.root / "one").touch()
    done = place.asa("resume")
    assert "without learning its waits" in done.stderr
    assert place.lines() == ["a", "b", "c"]


def test_a_mended_workflow_file_is_taken_up(place):
    """Completed stages stay; the others have the requests of the present file."""
    broken = (CHAIN[0], ("b", "a", "echo no >&2; exit 3"), CHAIN[2])
    told = place.asa("run", place.flow(*broken), *place.on, code=1).stderr
    assert "once it is fixed:   asa resume --retry --workflow flow.toml" in told
    place.flow(("a", "", "echo changed >>did"), ("b", "a", "echo b >>did", 2), CHAIN[2])
    for given, words in (
        (["--workflow", "flow.toml"], "needs --retry or --from"),
        (["--retry", "--workflow", "nowhere.toml"], "No such file"),
        (["--retry", "--workflow", place.flow(*CHAIN[:2], name="short")], "its stages are a, b"),
        (["--retry", "--workflow", place.flow(("a", "", ""), ("b", "a", ""), CHAIN[2], name="idle")], "no command"),
        (["--retry", "--workflow", place.flow(CHAIN[0], ("b", "a", "true", 64), CHAIN[2], name="wide")], "64 cores"),
        (
            ["--retry", "--workflow", place.flow(CHAIN[0], ("b", "c", "true"), ("c", "a", "true"), name="turned")],
            "another order",
        ),
        (
            ["--retry", "--workflow", place.flow(("a", "b", "x"), ("b", "", "x"), CHAIN[2], name="after")],
            "depends on other stages",
        ),
    ):
        assert words in place.asa("resume", *given, code=2).stderr
    done = place.asa("resume", "--retry", "--workflow", "flow.toml")
    assert "stage a completed" in done.stderr
    assert "submitted again" in done.stdout
    assert place.lines() == ["a", "b", "c"]
    stages = {stage["stage"]: stage for stage in place.status()["stages"]}
    assert stages["b"]["cores"] == 2


def test_who_stops_reading_leaves_the_run_in_good_order(place):
    """The client ends as after Ctrl-C, for example in `asa run | head -n 1`."""
    client = place.begin("run", place.flow(*CHAIN), *place.on, "--strategy", "chained")
    assert "the run begins" in client.stdout.readline()
    client.stdout.close()
    client.wait(timeout=60)
    errors = client.stderr.read()
    assert client.returncode == 130, errors
    [run] = place.runs()
    for words in ("Submitted jobs go on", f"asa resume {run.name}"):
        assert words in errors
    assert "Traceback" not in errors
    assert "Broken" not in errors
    assert not (run / "lease").exists()
    place.asa("resume")
    assert place.lines() == ["a", "b", "c"]


def test_lists_end_quietly_where_nobody_reads_them(place):
    """The exit code is 141, as for a process that was killed by a broken pipe."""
    place.asa("run", place.flow(("a", "", "true")), *place.on, "--quiet")
    for verb in (["runs"], ["status"], ["status", "--output", "json"], ["explain"], ["list"]):
        command = place.begin(*verb)
        command.stdout.close()
        assert (command.wait(), command.stderr.read()) == (141, ""), verb


def test_no_batch_system_means_that_nothing_was_submitted(place):
    """The message suggests trying again later."""
    flow = place.flow(*LONG)
    on = ["--backend", "slurm-cli", "--set", f"prefix={place.root}/no-such-shell"]
    told = place.asa("run", flow, *on, code=1).stderr
    assert "Nothing was submitted: try again later." in told
    down = place.root / "down"
    down.write_text("#!/bin/sh\necho 'slurm_load_ctl_conf error: Unable to contact slurm controller' >&2; exit 1\n")
    down.chmod(0o755)
    told = place.asa("run", flow, "--backend", "slurm-cli", "--set", f"prefix={down}", code=1).stderr
    assert "Unable to contact" in told
    assert told.rstrip().endswith("Nothing was submitted: try again later.")
    assert "asked again" not in told
    assert not place.runs()


def test_a_site_file_may_name_its_strategy(place):
    """The site named `default` is used where none is named."""
    sites = place.root / "sites"
    sites.mkdir()
    text = f'backend = "local"\nstrategy = "chained"\ncores = 4\nspool = "{place.root / "spool"}"\n'
    (sites / "here.toml").write_text(text)
    (sites / "there.toml").write_text(text)
    told = place.asa("run", place.flow(("a", "", "true")), "--dry-run", code=2).stderr
    assert "here, there" in told
    assert "'default'" in told
    (sites / "default.toml").write_text(text)
    for given, strategy in (([], "chained"), (["--strategy", "per-stage"], "per-stage")):
        shown = place.asa("run", "flow.toml", "--dry-run", "--output", "json", *given)
        assert json.loads(shown.stdout)["strategy"] == strategy
        assert "Using default" in shown.stderr
    (sites / "default.toml").write_text(text.replace("chained", "chaned"))
    assert "there is no strategy 'chaned'" in place.asa("run", "flow.toml", "--dry-run", code=2).stderr


def test_logs_and_cancel_speak_json(place):
    """The document has the version of the schema."""
    client = place.begin("run", place.flow(("a", "", "echo grüße; sleep 100"), ("b", "a", "true")), *place.on)
    until(lambda: place.runs() and place.states().get("a") == "running", what="the first stage")
    until(lambda: "gr" in place.asa("logs", "a").stdout, what="its output")
    log = json.loads(place.asa("logs", "a", "--output", "json").stdout)
    assert (log["schema"], log["stage"], log["stream"], log["text"]) == (1, "a", "out", "grüße\n")
    done = json.loads(place.asa("cancel", "--output", "json").stdout)
    assert (done["schema"], done["state"], done["jobs_left"]) == (1, "cancelled", [])
    again = json.loads(place.asa("cancel", "--output", "json").stdout)
    assert "Nothing to cancel" in again["told"]
    client.communicate(timeout=60)
    lines = place.asa("logs", "a", "--follow", "--output", "json").stdout.splitlines()
    assert "".join(json.loads(line)["text"] for line in lines) == "grüße\n"


def test_what_would_not_run_once_more_either_is_refused(place):
    """Such a stage runs only after a failure, and nothing failed; it is also refused together with a completed one."""
    (place.root / "flow.toml").write_text(
        'name = "x"\n[defaults]\ncores = 1\nwalltime = "5min"\n'
        '[[stage]]\nname = "a"\ncommand = "echo a >>did"\n'
        '[[stage]]\nname = "tidy"\nafter = ["a"]\nwhen = "failed"\ncommand = "echo tidy >>did"\n'
    )
    place.asa("run", "flow.toml", *place.on)
    told = place.asa("resume", "--from", "tidy", code=2).stderr
    assert "--from tidy: would not run: no stage that it depends on failed" in told
    place.asa("resume", "--from", "tidy", "--from", "a")
    assert place.status()["state"] == "completed"
    assert (place.root / "did").read_text() == "a\na\n"


@pytest.mark.parametrize("how", ["random", "empty", "gone"])
def test_no_other_run_is_taken_for_one_that_cannot_be_read(place, how):
    """Without a name, the latest run is meant: if it is damaged, the error says so, and no other run is cancelled."""
    flow = place.flow(*LONG)
    first = place.begin("run", flow, *place.on, "--name", "first", "--quiet")
    until(place.jobs, what="a job")
    first.kill()
    first.communicate()
    place.asa("run", place.flow(*CHAIN, name="other"), *place.on, "--name", "second", "--quiet")
    [second] = (run for run in place.runs() if run.name.startswith("second"))
    if how == "gone":
        (second / "run.json").unlink()
    else:
        (second / "run.json").write_bytes(b"{}" if how == "empty" else bytes(range(256)))
    words = "is missing" if how == "gone" else "is not a description of a run"
    for command in ("status", "explain", "report", "cancel", "resume"):
        assert words in place.asa(command, code=2).stderr
        assert words in place.asa(command, "second", code=2).stderr
    assert second.name in place.asa("runs", columns=200).stdout
    assert place.jobs(), "the first goes on"
    place.asa("cancel", "first", "--yes")


def test_a_submission_that_was_cut_off_is_not_waited_for_where_it_cannot_come_late(place):
    """On this machine, a job that is not in the queue at the next client's look was never submitted."""
    first = place.begin("run", place.flow(*LONG), *place.on, "--strategy", "per-stage", "--quiet")
    until(place.jobs, what="a job")
    first.kill()
    first.communicate()
    [run] = place.runs()
    begun, intended, *_ = (run / "journal.jsonl").read_text().splitlines()
    intent = json.loads(intended)
    never_sent = intended.replace(intent["token"], intent["token"][:-3] + "7-0")
    (run / "journal.jsonl").write_text(f"{begun}\n{never_sent}\n")
    began_s = time.monotonic()
    place.asa("cancel", "--yes")
    assert time.monotonic() - began_s < 30
    assert place.status()["state"] == "cancelled"


def test_a_run_of_another_program_can_take_another_cluster_for_its_own(tmp_path):
    """Without the option, `asa resume` refuses another program's run, and the recorded cluster stays."""
    plan = RunPlan("abcd1234", "x", "x", (), "per-stage", "slurm-cli", SITE, created_s=1.7e9, host="Snakemake")
    folder = RunFolder.create(tmp_path, plan)
    cluster = folder.path / CLUSTER_FILE
    cluster.write_text("{}")
    refused = CliRunner().invoke(app, ["resume", str(folder.path)])
    assert isinstance(refused.exception, InputError)
    assert cluster.exists()
    done = CliRunner().invoke(app, ["resume", str(folder.path), "--accept-cluster"])
    assert (done.exit_code, cluster.exists()) == (0, False)
    assert "Run Snakemake again" in done.stderr


def test_a_mended_file_says_how_long_inputs_are_waited_for_and_else_the_site_does():
    def flow(**patience):
        return Workflow("x", [Stage("a", cores=1, walltime_s=60.0, expected_run_s=1.0, command="true", **patience)])

    begun = flow(input_patience_s=60.0)  # as the site says
    [kept] = _merged(begun, flow(), set(), Path("x.toml"))
    assert kept.input_patience_s == 60.0
    assert not _is_changed(flow().stages["a"], begun.stages["a"])
    [mended] = _merged(begun, flow(input_patience_s=5.0), set(), Path("x.toml"))
    assert mended.input_patience_s == 5.0
    assert _is_changed(flow(input_patience_s=5.0).stages["a"], begun.stages["a"])
