"""Runs on the command line, driven for real: begun, watched, left, killed, gone on with, cancelled."""

import json
import os
import re
import signal
import time

import pytest
from forked import asa
from slurm_testbed import until
from this_machine import OwnPlace, Place, Terminal

from asa.cli import driving
from asa.cli.driving import Detached, _Departures

CHAIN = (("a", "", "echo a >>did; sleep 1"), ("b", "a", "echo b >>did; sleep 1", 2), ("c", "b", "echo c >>did"))
LONG = (("a", "", "echo a >>did; sleep 100"), ("b", "a", "echo b >>did"))


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


def test_a_dry_run_shows_each_job_and_changes_nothing(place):
    """The output says when and why; with --scripts it also shows each script as it would be sent."""
    shown = place.asa("run", place.flow(*CHAIN), *place.on, "--dry-run").stdout
    assert "a: waits are not known here yet: one job per stage\n" in shown
    for words in ("3 jobs", "Wait p50", "at once", "Nothing was submitted", "--scripts shows"):
        assert words in shown
    assert "sh -c" not in shown
    whole = place.asa("run", "flow.toml", *place.on, "--dry-run", "--scripts").stdout
    assert 0 < whole.index("Wait p50") < whole.index("echo a >>did; sleep 1")
    told = json.loads(place.asa("run", "flow.toml", *place.on, "--dry-run", "--output", "json").stdout)
    assert told["schema"] == 1
    assert [job["depends_on"] for job in told["jobs"]] == [[], ["a"], ["b"]]
    assert all(job["preview"]["script"] for job in told["jobs"])
    per_stage = place.asa("run", "flow.toml", *place.on, "--dry-run", "--strategy", "per-stage").stdout
    assert "in its turn" in per_stage
    whole = place.asa("run", "flow.toml", *place.on, "--dry-run", "--strategy", "big-job", "--output", "json").stdout
    assert [job["stages"] for job in json.loads(whole)["jobs"]] == [["a", "b", "c"]]
    assert not place.jobs()
    assert not place.runs()
    assert not (place.root / "bank").exists()


SEVERAL = """\
name = "several"
[[stage]]
name = "wide"
cores = [112, 28]
expected = { 112 = "10min", 28 = "30min" }
walltime = "20min"
command = "true"
"""


@pytest.mark.parametrize("accrues", ["yes", "no"])
def test_without_a_strategy_it_is_asa_plan_and_a_sentence_says_what_it_does_by_the_site_s_rule(tmp_path, accrues):
    (tmp_path / "several.toml").write_text(SEVERAL)
    rule = ("--set", f"age_accrues={accrues}", "--estimator", "asa", "--history", 100)
    where = ("--backend", "simulated", "--set", "system=hpc2n", *rule, "--bank", "none", "--dry-run")

    def shown(flow, *options):
        return asa("run", tmp_path / flow, *where, *options)

    told = shown("several.toml").stderr
    [line] = [one for one in told.splitlines() if one.startswith("Strategy `asa-plan` ")]
    assert ("without a dependency" in line) == (accrues == "no")
    assert "in the shape that suits the queue" in line
    command = line.partition("; why: ")[2].split()
    assert command[:3] == ["asa", "plan", str(tmp_path / "several.toml")]
    assert "Kept back by" in asa(*command[1:], "--bank", "none").stdout, "and that command works"
    fixed = shown("several.toml", "--width", 28, "--output", "json")
    assert [job["cores"] for job in json.loads(fixed.stdout)["jobs"]] == [28]
    assert "Strategy `asa-plan` " in fixed.stderr
    assert "in the shape that suits" not in fixed.stderr
    chained = shown("several.toml", "--strategy", "chained").stderr
    assert "Strategy `chained`: Submit the whole graph at the start, " in chained
    assert "Strategy" not in shown("several.toml", "--quiet").stderr


FAILS = """\
name = "x"
[[stage]]
name = "a"
command = "true"
[[stage]]
name = "b"
after = ["a"]
command = "sleep 1; exit 1"
[[stage]]
name = "c"
after = ["b"]
command = "true"
[[stage]]
name = "d"
after = ["c"]
command = "true"
[[stage]]
name = "tidy"
after = ["b"]
when = "failed"
command = "true"
[defaults]
cores = 1
walltime = "5min"
"""


@pytest.mark.parametrize("strategy", ["asa", "big-job", "per-stage"])
def test_what_runs_only_after_a_failure_is_said_to_by_a_dry_run(place, strategy):
    """Such a stage is not counted with those that will run."""
    (place.root / "flow.toml").write_text(FAILS)
    shown = place.asa("run", "flow.toml", *place.on, "--dry-run", "--strategy", strategy).stdout
    assert "and 1 if a stage fails" in shown
    told = json.loads(place.asa("run", "flow.toml", *place.on, "--dry-run", "--output", "json").stdout)["jobs"]
    assert [(job["stages"], job["reason"]) for job in told if job["on_failure"]] == [(["tidy"], "only if b fails")]


def test_what_a_failure_leaves_out_is_told_as_it_happens(place):
    """One cause takes one line; a stage that failed in a shared job is known to have begun."""
    (place.root / "flow.toml").write_text(FAILS)
    shown = place.asa("run", "flow.toml", *place.on, "--strategy", "big-job", "--output", "json", code=1).stdout
    events = [json.loads(line) for line in shown.splitlines()]
    told = [event["words"] for event in events if event["kind"] == "leftout"]
    assert told == ["c and d do not run: stage 'b' failed"]
    began = [event["stages"] for event in events if event["kind"] == "stagestarted"]
    assert began == [["a"], ["b"], ["tidy"]]


def test_scripts_are_shown_by_a_dry_run_only(place):
    """A user who forgot --dry-run did not want to run anything."""
    told = place.asa("run", place.flow(*CHAIN), *place.on, "--scripts", code=2).stderr
    assert "--scripts: needs --dry-run" in told
    assert not place.runs()


def test_a_dry_run_of_an_installed_workflow_needs_its_width(place):
    """Its stages have no commands, so that it cannot be run."""
    assert "--cores" in place.asa("run", "blast", *place.on, "--dry-run", code=2).stderr
    assert "search" in place.asa("run", "blast", "--cores", 4, *place.on, "--dry-run").stdout
    assert "no command" in place.asa("run", "blast", "--cores", 4, *place.on, code=2).stderr


def test_a_run_tells_what_happens_and_what_it_cost(place):
    """Without a terminal, each event is a line; there is a summary at the end, and the bank has the waits."""
    done = place.asa("run", place.flow(*CHAIN), *place.on)
    for words in ("the run begins", "a: submitted as job", "b: runs", "c: done", "the run completed", "completed in"):
        assert words in done.stdout
    assert place.lines() == ["a", "b", "c"]
    [run] = place.runs()
    assert json.loads((run / "metrics.json").read_text())["makespan_s"] >= 2
    told = place.status()
    assert (told["schema"], told["state"]) == (1, "completed")
    assert [stage["state"] for stage in told["stages"]] == ["done"] * 3
    assert told["metrics"]["makespan_s"] >= 2
    assert "has ended already" in place.asa("resume").stderr
    assert "Nothing to cancel" in place.asa("cancel").stderr
    assert "3 observations" in place.asa("bank", "show").stdout
    assert len(place.jobs()) == 3


def test_json_has_a_line_an_event_and_the_status_at_the_end(place):
    """Each document has the version of the schema."""
    done = place.asa("run", place.flow(("a", "", "true")), *place.on, "--output", "json", "--bank", "none")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["schema"] for line in lines} == {1}
    assert [lines[0]["kind"], lines[-1]["kind"]] == ["runstarted", "status"]
    assert lines[-1]["state"] == "completed"
    assert not (place.root / "bank").exists()


@pytest.mark.parametrize("strategy", ["asa", "per-stage", "asa-naive", "big-job"])
def test_a_run_that_is_killed_goes_on_where_it_was(place, strategy):
    """The client is killed by kill -9 in the middle: each command runs once, and no pending job is already running."""
    client = place.begin("run", place.flow(*CHAIN), *place.on, "--strategy", strategy)
    until(lambda: "b" in place.lines(), what="the second stage")
    client.kill()
    client.communicate()
    assert place.status()["state"] == "detached"
    assert "no client" in place.asa("runs").stdout
    done = place.asa("resume")
    assert "completed in" in done.stdout
    assert place.lines() == ["a", "b", "c"]
    assert place.status()["state"] == "completed"


def test_a_batch_system_of_ones_own_will_do(tmp_path):
    """A package provides the system: one run on it is killed and continued, and another is cancelled."""
    place = OwnPlace(tmp_path)
    try:
        client = place.begin("run", place.flow(*CHAIN), *place.on)
        until(lambda: "b" in place.lines(), what="the second stage")
        client.kill()
        client.communicate()
        assert "completed in" in place.asa("resume").stdout
        assert place.lines() == ["a", "b", "c"]
        client = place.begin("run", place.flow(*LONG), *place.on, "--strategy", "chained")
        until(lambda: place.lines()[3:] == ["a"], what="the first stage")
        told = "It waits for a job that has not ended"
        until(lambda: told in place.asa("explain").stdout, what="the reason by which the second waits")
        place.asa("cancel")
        client.communicate()
        assert client.returncode == 1
        assert place.states() == {"a": "cancelled", "b": "cancelled"}
        assert len(place.jobs()) == 5
    finally:
        place.close()


def compiler(*lines):
    """Return a stand-in for a compiler that calls back from C, where an exception is lost."""
    module = {"__name__": "llvmlite.binding.executionengine", "os": os, "signal": signal, "time": time}
    exec("\n ".join(["def made():", *lines, "return 'made'"]), module)
    return module["made"]


@pytest.mark.parametrize("is_acting", [True, False])
def test_a_compiler_is_not_interrupted(is_acting):
    """An interrupted compiler would leave incomplete files: the client exits after it has finished."""
    departures = _Departures(lambda: False, pytest.fail)
    departures.is_acting = is_acting
    with departures.heeded():
        assert compiler("os.kill(os.getpid(), signal.SIGINT)", "time.sleep(1.5)")() == "made"
        with pytest.raises(Detached):
            time.sleep(10.0)


class LeftAtOnceError(Exception):
    """An exception that stands for the immediate end of this process."""


def left_at_once(why):
    raise LeftAtOnceError(why)


@pytest.mark.parametrize("asks", [1, 2])
def test_a_compiler_is_not_waited_for_for_long(monkeypatch, asks):
    """On a busy machine compiling may take a minute; a second interrupt ends the wait."""
    monkeypatch.setattr(driving, "_COMPILING_S", 0.5 if asks == 1 else 60.0)
    with _Departures(lambda: False, left_at_once).heeded(), pytest.raises(LeftAtOnceError, match="SIGINT"):
        compiler(*["os.kill(os.getpid(), signal.SIGINT)"] * asks, "time.sleep(30.0)")()


def test_who_leaves_as_something_is_compiled_finds_the_run_as_it_was(place, tmp_path):
    """At a first start nothing is compiled yet; after two interrupts the client does not wait for the compiler."""
    place.environment |= {"NUMBA_CACHE_DIR": str(tmp_path / "compiled")}
    seeing = ("--strategy", "asa", "--estimator", "asa-queue")  # which does without compiled code by no means
    client = place.begin("run", place.flow(*CHAIN), *place.on, *seeing)
    until(lambda: any((run / "client.log").exists() for run in place.runs()), what="a client that drives the run")
    time.sleep(0.5)
    for _ in range(2):
        client.send_signal(signal.SIGINT)
        time.sleep(0.2)
    asked_s = time.monotonic()
    _, errors = client.communicate(timeout=60)
    assert time.monotonic() - asked_s < 5
    assert client.returncode == 130, errors
    assert "Stopped. Submitted jobs go on" in errors
    assert "Traceback" not in errors
    assert place.status()["state"] == "detached"
    place.asa("resume", "--estimator", "asa")
    assert place.lines() == ["a", "b", "c"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_leaves_is_told_how_to_come_back(place, number):
    """The jobs continue meanwhile."""
    client = place.begin("run", place.flow(*CHAIN), *place.on, "--strategy", "chained")
    until(lambda: "a" in place.lines(), what="the first stage")
    client.send_signal(number)
    _, errors = client.communicate(timeout=60)
    assert client.returncode == 130, errors
    [run] = place.runs()
    for words in ("Submitted jobs go on", f"asa resume {run.name}", f"asa cancel {run.name}"):
        assert words in errors
    assert "Traceback" not in errors
    assert not (run / "lease").exists()
    until(lambda: "c" in place.lines(), what="the last stage")
    assert place.status()["state"] == "detached"
    place.asa("resume")
    assert place.lines() == ["a", "b", "c"]


def test_a_run_that_failed_says_why_and_goes_on_once_mended(place):
    """The output has the stage's last lines, and says what to do."""
    check = "echo begins; test -e mended || { echo cannot find the reference >&2; exit 3; }"
    flow = place.flow(("a", "", "echo a >>did"), ("b", "a", check), ("c", "b", "echo c >>did"))
    done = place.asa("run", flow, *place.on, code=1)
    for words in ("failed: stage 'b'", "cannot find the reference", "asa explain b", "asa logs b", "resume --retry"):
        assert words in done.stderr
    told = place.asa("explain", "b").stdout
    [said] = [line.split()[1:] for line in told.splitlines() if line.startswith("    asa logs ")]
    assert place.asa(*said).stdout == "cannot find the reference\n"
    for line in re.findall(r"(?m)^  (?:why|its) .*:   asa (.*)", done.stderr):
        place.asa(*line.split())
    for words in ("exit code 3", "NonZeroExitCode", "ended with an exit code other than 0", "the reference"):
        assert words in told
    assert place.asa("logs", "b", "--err").stdout == "cannot find the reference\n"
    assert "failed" in place.asa("runs").stdout
    assert "failed" in place.asa("resume", code=1).stderr, "without --retry it stays as it is"
    (place.root / "mended").touch()
    time.sleep(1.5)
    done = place.asa("resume", "--retry")
    assert place.lines() == ["a", "c"]
    place.asa("report", "--out", "page.html")
    page = (place.root / "page.html").read_text()
    [lasted] = re.findall(r"completed in (\S+ \(\S+ of it until it was resumed\))\n", done.stdout)
    assert f"completed, after {lasted} Stage" in " ".join(place.asa("status").stdout.split()), "the same figure"
    assert f"Completed in {lasted} with strategy" in page


def test_a_run_is_cancelled_by_the_client_that_drives_it(place):
    """The client has exited then, and its jobs have ended."""
    client = place.begin("run", place.flow(*LONG), *place.on, "--strategy", "chained")
    until(lambda: "a" in place.lines(), what="the first stage")
    assert "is cancelled" in place.asa("cancel").stderr
    client.communicate(timeout=60)
    assert client.returncode == 1
    assert place.status()["state"] == "cancelled"
    assert place.states() == {"a": "cancelled", "b": "cancelled"}
    assert "before" in place.asa("cancel").stderr, "nothing is left to cancel"


def test_a_run_that_nobody_drives_is_cancelled_and_nothing_more_submitted(place):
    """A stage was due to be submitted."""
    client = place.begin("run", place.flow(*CHAIN), *place.on, "--strategy", "per-stage")
    until(lambda: "b" in place.lines(), what="the second stage")
    client.kill()
    client.communicate()
    place.asa("cancel", "--yes")
    assert place.status()["state"] == "cancelled"
    assert len(place.jobs()) == 2
    assert place.lines() == ["a", "b"]


def test_a_cancellation_is_noted_where_the_batch_system_cannot_be_reached(place):
    """The jobs are cancelled once the system, here at another address, can be reached; the run can be resumed then."""
    client = place.begin("run", place.flow(*CHAIN), *place.on, "--strategy", "per-stage")
    until(lambda: "b" in place.lines(), what="the second stage")
    client.kill()
    client.communicate()
    place.end_queue()
    moved = (place.root / "spool").rename(place.root / "moved")
    (place.root / "spool").touch()
    told = place.asa("cancel", code=1).stderr
    for words in ("is not cancelled yet", "The next client that reaches the batch system does it", "asa cancel"):
        assert words in told
    [run] = place.runs()
    assert list((run / "wishes").iterdir())
    assert place.status()["state"] == "detached"
    assert "is cancelled" in place.asa("cancel", "--set", f"spool={moved}").stderr
    assert place.status()["state"] == "cancelled"
    assert not list((run / "wishes").iterdir())
    (place.root / "spool").unlink()
    moved.rename(place.root / "spool")
    place.asa("resume", "--retry")
    assert place.lines()[-1] == "c"


def test_a_folder_that_is_not_utf8_is_told(place):
    """Nothing about it could be written down."""
    odd = place.root / "donn\udce9es"
    odd.mkdir()
    flow = place.root / place.flow(("a", "", "true"))
    client = place.begin("run", flow, *place.on, cwd=odd)
    _, errors = client.communicate(timeout=60)
    assert client.returncode == 2
    assert "is not UTF-8" in errors
    assert not place.runs()


def test_a_stage_without_a_job_cannot_be_cancelled(place):
    """Cancelling a stage that has a job ends the run."""
    client = place.begin("run", place.flow(*LONG), *place.on, "--strategy", "per-stage")
    until(lambda: "a" in place.lines(), what="the first stage")
    assert "has no job yet" in place.asa("cancel", "--stage", "b").stderr
    place.asa("cancel", "--stage", "zz", code=2)
    place.asa("cancel", "--stage", "a")
    client.communicate(timeout=60)
    assert "you cancelled stage 'a'" in place.status()["reason"]


def test_only_one_client_drives_a_run(place):
    """The second client's message names the first."""
    client = place.begin("run", place.flow(*LONG), *place.on)
    until(lambda: "a" in place.lines(), what="the first stage")
    assert f"is driven by process {client.pid}" in place.asa("resume", code=1).stderr
    assert f"process {client.pid}" in place.asa("runs", columns=160).stdout
    shown = place.asa("explain").stdout
    for words in (
        "a: running",
        "b: queued (dependency)",
        "waits for 'a'",
        "expected to end",
        "a job that has not come so far",
    ):
        assert words in shown
    place.asa("cancel")
    client.communicate(timeout=60)


def test_all_that_can_never_start_is_told_at_once(place):
    """The errors come before anything is submitted or written."""
    wide = place.flow(("a", "", "true", 5), ("b", "a", "true"), ("c", "b", "true", 64))
    told = place.asa("run", wide, *place.on, code=2).stderr
    assert "a: asks for 5 cores" in told
    assert "c: asks for 64 cores" in told
    assert "2 jobs could never start on this computer:" in told
    assert not place.runs()
    assert not place.jobs()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nowhere.toml"], "No such file"),
        (["run", "nothing"], "there is no workflow 'nothing'"),
        (["run", "flow.toml", "--strategy", "oracle"], "know the future"),
        (["run", "flow.toml", "--strategy", "az"], "there is no strategy 'az'"),
        (["run", "flow.toml", "--estimator", "az"], "there is no estimator 'az'"),
        (["run", "flow.toml", "--cores", "3"], "Leave --cores out"),
        (["run", "empty.toml"], "no command in stage a"),
        (["resume", "zz"], "there is no run 'zz'"),
        (["status"], "in the folder in which they were begun: go there"),
        (["cancel", "zz"], "there is no run 'zz'"),
        (["logs", "a"], "there is no run"),
        (["explain", "--run", "zz"], "there is no run 'zz'"),
    ],
)
def test_what_cannot_be_used_is_told(place, arguments, words):
    """The exit code is 2, and there is no traceback."""
    place.flow(*LONG)
    place.flow(("a", "", " "), name="empty")
    on = place.on if arguments[0] == "run" else []
    assert words in " ".join(place.asa(*arguments, *on, code=2).stderr.split())


def test_a_folder_that_cannot_be_written_is_told(place):
    """A file exists where the runs' folder should be."""
    (place.root / "file").touch()
    told = place.asa("run", place.flow(("a", "", "true")), *place.on, "--runs", "file", code=2).stderr
    assert "--runs" in told
    assert not place.jobs()


def test_one_damaged_run_does_not_hide_the_others(place):
    """The damaged run's row says so; commands on this run fail with a message."""
    for name in ("one", "two", "three", "four"):
        place.asa("run", place.flow(("a", "", "true"), name=name), *place.on, "--quiet")
    one, two, three = (
        next(run for run in place.runs() if run.name.startswith(f"{n}-")) for n in ("one", "two", "three")
    )
    lines = (one / "journal.jsonl").read_bytes().split(b"\n")
    (one / "journal.jsonl").write_bytes(b"\n".join([lines[0], b"{}", *lines[2:]]))
    (two / "run.json").write_text("{}")
    (three / "journal.jsonl").write_bytes(b"\n".join([*lines[:2], *lines[3:]]))  # a job that nobody had accepted
    shown = " ".join(place.asa("runs", columns=160).stdout.split())
    assert "journal.jsonl:2: is damaged" in shown
    assert "is not a description of a run" in shown
    assert "is not consistent" in shown
    assert shown.count("damaged: ") == 3
    assert "1/1" in shown
    rows = json.loads(place.asa("runs", "--output", "json").stdout)["runs"]
    assert sorted(row["state"] for row in rows) == ["completed", "damaged", "damaged", "damaged"]
    for verb in (["status", one.name], ["resume", one.name], ["cancel", one.name], ["explain", "--run", one.name]):
        assert "is damaged" in place.asa(*verb, code=1).stderr
    place.asa("status", three.name, code=1)


def test_logs_show_what_a_stage_wrote(place):
    """The output is complete, or its last lines, or followed until the stage's job ends."""
    write = "for i in 1 2 3 4 5; do echo line $i; sleep 0.3; done"
    client = place.begin("run", place.flow(("a", "", f"touch begun; {write}"), ("b", "a", "true")), *place.on)
    until((place.root / "begun").exists, what="the first stage")
    assert place.asa("logs", "a", "--follow").stdout.split("\n")[:5] == [f"line {i}" for i in range(1, 6)]
    client.communicate(timeout=60)
    assert place.asa("logs", "a", "--lines", 2).stdout == "line 4\nline 5\n"
    silent = place.asa("logs", "a", "--err")
    assert silent.stdout == ""
    assert "Stage 'a' wrote nothing to its standard error" in silent.stderr
    assert "there is no stage 'x'" in place.asa("logs", "x", code=2).stderr


def test_a_stage_and_a_run_are_named_in_either_order(place):
    """`explain` and `logs` accept both; a single word is a stage, or else a run."""
    for name in ("old", "new"):
        place.asa("run", place.flow(("a", "", f"echo {name}"), ("b", "a", "true")), "--name", name, *place.on)
    assert place.asa("logs", "a").stdout == "new\n"
    for words in (["a", "old"], ["old", "a"], ["a", "--run", "old"]):
        assert place.asa("logs", *words).stdout == "old\n"
        assert place.asa("explain", *words).stdout.startswith("old-")
    assert place.asa("explain", "old").stdout.startswith("old-")
    assert "Name one of its stages: a, b." in place.asa("logs", "old", code=2).stderr
    assert "there is no stage 'c'" in place.asa("logs", "old", "c", code=2).stderr
    assert "there is no stage 'c'" in place.asa("logs", "c", "old", code=2).stderr
    assert "there is no run 'older'" in place.asa("logs", "a", "older", code=2).stderr
    assert "the run is named twice" in place.asa("explain", "a", "old", "--run", "new", code=2).stderr


@pytest.mark.parametrize("keys", ["", 'stdout = "o"'])
def test_after_a_failure_logs_show_what_was_written(place, keys):
    """The errors are shown where there is nothing else; else the last lines of both kinds, in whichever file."""
    flow = place.flow(("a", "", "echo wrong >&2; exit 3"))
    (place.root / flow).write_text((place.root / flow).read_text() + f"\n{keys}\n")
    assert "  wrong\n" in place.asa("run", flow, *place.on, code=1).stderr
    shown = place.asa("logs", "a")
    assert shown.stdout == "wrong\n"
    assert ("this is its standard error" in shown.stderr) == (not keys)
    answer = json.loads(place.asa("logs", "a", "--output", "json").stdout)
    assert (answer["stream"], answer["text"]) == ("out" if keys else "err", "wrong\n")
    assert " wrong" in place.asa("explain", "a").stdout


def test_on_a_terminal_the_table_renews_itself_and_ctrl_c_leaves(place):
    """A pending job is never shown as running."""
    terminal = Terminal(place, "run", place.flow(*LONG), *place.on, "--strategy", "chained")
    terminal.until_shown("running")
    terminal.until_shown("2s+")
    terminal.type(b"\x03")
    assert terminal.end() == 130
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.output.decode()).replace("\r", "\n")
    table = text[text.rindex("Stage ") :]
    assert re.search(r"^a +running ", table, re.MULTILINE)
    assert re.search(r"^b +queued \(dependency\) ", table, re.MULTILINE)
    assert not re.search(r"^b +running", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80
    assert "asa resume" in text


def test_a_terminal_that_is_closed_leaves_the_run_in_good_order(place):
    """A terminal is closed when a laptop is shut, for example."""
    terminal = Terminal(place, "run", place.flow(*LONG), *place.on, "--strategy", "chained")
    terminal.until_shown("running")
    assert terminal.hang_up() == 130
    [run] = place.runs()
    assert not (run / "lease").exists()
    assert place.status()["state"] == "detached"


def test_cancelling_on_a_terminal_is_asked_for(place):
    """The answer may be no."""
    client = place.begin("run", place.flow(*LONG), *place.on, "--strategy", "chained")
    until(lambda: "a" in place.lines(), what="the first stage")
    terminal = Terminal(place, "cancel")
    terminal.until_shown("and its 2 jobs?")
    terminal.type(b"n\n")
    assert terminal.end() == 1
    assert place.status()["state"] == "running"
    client.send_signal(signal.SIGTERM)
    client.communicate(timeout=60)


def test_a_run_goes_on_from_another_folder(place, tmp_path):
    """The run's commands run in the folder where it was begun."""
    client = place.begin("run", place.flow(*CHAIN), *place.on, "--strategy", "per-stage")
    until(lambda: "a" in place.lines(), what="the first stage")
    client.kill()
    client.communicate()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = place.begin("resume", place.runs()[0], cwd=elsewhere)
    _, errors = other.communicate(timeout=60)
    assert other.returncode == 0, errors
    assert place.lines() == ["a", "b", "c"]
    assert not list(elsewhere.iterdir())


def plan_of(run):
    return json.loads((run / "run.json").read_text())


def test_a_run_says_by_which_estimator_it_predicts_and_why(place):
    """The run keeps its estimator unless it is resumed with another; an estimator named by the user needs no notice."""
    told = place.asa("run", place.flow(*CHAIN), *place.on).stderr
    assert "Waits are predicted by `asa`: the site shows no jobs of other users." in " ".join(told.split())
    [run] = place.runs()
    assert (plan_of(run)["estimator"], plan_of(run)["estimator_why"]) == (
        "asa", "the site shows no jobs of other users",
    )  # fmt: skip
    place.asa("resume", "--from", "c", "--estimator", "last")
    assert (plan_of(run)["estimator"], plan_of(run)["estimator_why"]) == ("last", "")
    place.asa("resume", "--from", "c")
    assert plan_of(run)["estimator"] == "last"
    assert "no estimator 'lost'" in place.asa("resume", "--from", "c", "--estimator", "lost", code=2).stderr
    for options in (["--estimator", "last"], ["--strategy", "per-stage"], ["--quiet"]):
        assert "predicted by" not in place.asa("run", "flow.toml", *place.on, *options).stderr


def test_a_simulated_queue_shows_everybody_so_that_it_is_simulated(place):
    told = place.asa("run", place.flow(*CHAIN), "--backend", "simulated", "--set", "system=hpc2n", "--dry-run").stderr
    assert "predicted by `asa-queue`: the site shows the jobs of other users" in " ".join(told.split())
    asked = ("--backend", "simulated", "--set", "system=hpc2n", "--dry-run", "--history", "0")
    assert "predicted by `asa`: with --history 0" in " ".join(place.asa("run", "flow.toml", *asked).stderr.split())
