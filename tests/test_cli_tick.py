"""Runs without a client that stays: `asa tick`, cron's table, and jobs of one core that follow each other."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from forked import ASA, Command
from slurm_testbed import until
from this_machine import Place

from asa import keepers
from asa.cli import detaching
from asa.errors import InputError
from asa.keepers import cron
from asa.runner import RunFolder
from asa.sites import open_facility

CHAIN = [("a", "", "echo a >>did"), ("b", "a", "echo b >>did"), ("c", "b", "echo c >>did")]
LOCAL = open_facility("local").facility
CRONTAB = """#!/bin/sh
table={table}
case $1 in
  -l) [ -e "$table" ] || {{ echo "no crontab for $USER" >&2; exit 1; }}; cat "$table" ;;
  -r) rm "$table" ;;
  -) sleep 0.1; cat >"$table.new"; mv "$table.new" "$table" ;;
esac
"""


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(tmp_path, monkeypatch, place):
    """Yield the table of a cron that only sleeps: the test runs the entries."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "crontab"
    program.write_text(CRONTAB.format(table=tmp_path / "table"))
    program.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place.environment |= {"PATH": path, "XDG_STATE_HOME": str(tmp_path / "state")}
    shutil.copy(shutil.which("sleep"), tmp_path / "bin" / "cron")
    daemon = subprocess.Popen([tmp_path / "bin" / "cron", "300"])
    yield tmp_path / "table"
    daemon.kill()
    daemon.wait()


def begin(place, *stages, strategy="per-stage"):
    """Begin a run, and detach at once."""
    client = place.begin("run", place.flow(*stages), *place.on, "--strategy", strategy)
    until(lambda: place.runs() and (place.runs()[0] / "journal.jsonl").exists())
    client.send_signal(signal.SIGTERM)
    client.wait()
    return RunFolder(place.runs()[0])


def ticked(place, folder, within_s=60, **options):
    until_s = time.monotonic() + within_s
    while folder.state()[0].outcome is None:
        assert time.monotonic() < until_s
        place.asa("tick", folder.path, **options)
    return place.lines()


def test_a_run_goes_through_by_looks_alone(place):
    folder = begin(place, *CHAIN)
    assert ticked(place, folder) == ["a", "b", "c"]
    done = place.asa("tick", folder.path)
    assert "has ended already: completed" in done.stderr


def test_a_look_says_what_happened_and_what_comes(place):
    folder = begin(place, ("a", "", "until [ -e go ]; do sleep 0.1; done; echo a >>did"), ("b", "a", "echo b >>did"))
    until(lambda: folder.state()[0].stages["a"].job_id)
    told = place.asa("tick", folder.path)
    assert "1 waiting" in told.stderr
    (place.root / "go").touch()
    until(lambda: place.lines() == ["a"])
    told = place.asa("tick", folder.path)
    assert "b: submitted" in told.stdout
    assert place.asa("tick", "--quiet", folder.path).stderr == ""
    assert ticked(place, folder) == ["a", "b"]


def test_a_look_that_learns_a_small_bank_loads_no_compiled_code(place):
    """Loading that code takes more CPU time than everything else."""
    folder = begin(place, ("a", "", "sleep 2"), ("b", "a", "echo b >>did"), strategy="asa")
    command = [sys.executable, "-X", "importtime", ASA, "tick", folder.path]
    looked = subprocess.run(command, env=place.environment, capture_output=True, text=True, check=True)
    assert "asa.estimators.contextual" in looked.stderr
    assert "numba" not in looked.stderr


def test_a_look_at_a_run_that_fails_ends_with_one(place):
    folder = begin(place, ("a", "", "exit 3"), ("b", "a", "true"))

    def code():
        command = Command("tick", folder.path, cwd=place.root, env=place.environment)
        command.communicate()
        return command.returncode

    until(lambda: code() == 1)
    assert "stage 'a' ended as failed" in place.asa("tick", folder.path, code=1).stderr


def test_a_node_that_limits_cpu_time_is_told_of(place):
    flow = place.flow(("a", "", "true"))
    text = f"ulimit -t 900; exec {ASA} run {flow} {' '.join(place.on)}"
    done = subprocess.run(
        ["sh", "-c", text], cwd=place.root, env=place.environment, capture_output=True, text=True, check=True
    )
    assert "Processes on this node are killed after 15m00s of CPU time." in done.stderr


def test_a_look_does_nothing_while_a_client_drives(place):
    client = place.begin("run", place.flow(("a", "", "sleep 3; echo a >>did")), *place.on)
    until(lambda: place.runs() and RunFolder(place.runs()[0]).driver())
    assert "is driven by process" in place.asa("tick", place.runs()[0]).stderr
    assert client.wait() == 0


def test_stages_that_run_where_the_client_is_are_waited_for(place):
    text = '[[stage]]\nname = "a"\nlocal = true\ncommand = "sleep 1; echo a >>did"\n'
    text += '[[stage]]\nname = "b"\nafter = ["a"]\nlocal = true\ncommand = "sleep 1; echo b >>did"\n'
    (place.root / "near.toml").write_text(f'name = "near"\n{text}')
    client = place.begin("run", "near.toml", *place.on, "--strategy", "per-stage")
    until(lambda: place.runs() and (place.runs()[0] / "journal.jsonl").exists())
    client.kill()
    client.wait()
    folder = RunFolder(place.runs()[0])
    assert ticked(place, folder) == ["a", "b"]


def test_a_pool_needs_a_client_that_stays(place):
    flow = place.flow(("a", "", "true"))
    refused = place.asa("run", flow, *place.on, "--strategy", "pool", "--detach", code=2)
    assert "a run by pool needs a client that keeps running" in refused.stderr
    assert place.runs() == []


# ---------------------------------------------------------------------- cron


def woken(place, line):
    """Run a line of the table as cron does, with cron's environment."""
    bare = {"PATH": f"{place.root / 'bin'}:/usr/bin:/bin", "HOME": str(place.root), "SHELL": "/bin/sh"}
    command = line.removeprefix("* * * * * ").replace(r"\%", "%")
    return subprocess.run(["sh", "-c", command], env=bare, check=False, cwd="/", capture_output=True, text=True)


def woken_to_the_end(place, table):
    """Run the table's lines, more often than cron does, until the only line is gone."""
    line = table.read_text().strip()
    for _ in range(40):
        if not table.exists():
            return
        woken(place, line)
        time.sleep(0.5)


@pytest.mark.full
def test_cron_looks_until_the_run_has_ended(place, table):
    table.write_text("5 5 * * * echo mine # asa run of my own\n")
    done = place.asa("run", place.flow(*CHAIN), *place.on, "--strategy", "per-stage", "--detach-by", "cron")
    assert "goes on unattended: cron looks at it once a minute" in done.stderr
    mine, line = table.read_text().splitlines()
    assert mine == "5 5 * * * echo mine # asa run of my own"
    assert line.startswith("* * * * * ")
    assert "detached: cron looks at it once a minute" in place.asa("status").stdout
    for _ in range(60):
        if len(table.read_text().splitlines()) == 1:
            break
        woken(place, line)
        time.sleep(0.5)
    assert place.lines() == ["a", "b", "c"]
    assert table.read_text() == f"{mine}\n"
    assert not (place.runs()[0] / "kept.json").exists()
    assert place.status()["state"] == "completed"


def test_a_run_that_is_cancelled_is_looked_at_no_more(place, table):
    place.asa("run", place.flow(("a", "", "sleep 60")), *place.on, "--detach")
    assert "asa" in table.read_text()
    place.asa("cancel", "--yes")
    assert not table.exists()


def test_a_run_that_was_left_can_be_detached(place, table):
    folder = begin(place, *CHAIN)
    place.asa("resume", folder.path, "--detach")
    place.asa("resume", folder.path, "--detach")
    assert len(table.read_text().splitlines()) == 1, "once"
    assert keepers.kept(folder.path).way == "cron"


def test_tables_are_changed_one_at_a_time(table, tmp_path):
    """The user's hundred lines stay, whoever else changes the table meanwhile."""
    odd = "# a form\f feed, a line\u2028 separator\n"
    table.write_text(odd + "".join(f"{n} 1 * * * mine\n" for n in range(10)))
    code = "import sys; from asa.keepers import cron\n"
    code += "cron.begin(['true'], sys.argv[1])\nif sys.argv[2] == 'end': cron.end(sys.argv[1])"
    ones = [subprocess.Popen([sys.executable, "-c", code, f"m{n}", "end" if n % 2 else "stay"]) for n in range(6)]
    assert [one.wait(60) for one in ones] == [0] * 6
    assert table.read_text().startswith(odd)
    lines = table.read_text().removeprefix(odd).splitlines()
    assert sum(line.endswith("mine") for line in lines) == 10
    ours = [line for line in lines if not line.endswith("mine")]
    assert sorted(line.rpartition(" ")[2] for line in ours) == ["m0", "m2", "m4"]
    scripts = sorted(path.name for path in (tmp_path / "state" / "asa").glob("look-*.sh"))
    assert scripts == ["look-m0.sh", "look-m2.sh", "look-m4.sh"]


def test_why_nothing_can_look_is_told(place, table, monkeypatch):
    monkeypatch.setattr(cron, "_runs", lambda: False)
    monkeypatch.setattr(cron, "_table", lambda: "")
    folder = begin(place, *CHAIN)
    with pytest.raises(InputError) as told:
        detaching.chosen_way(None, folder.plan, LOCAL)
    for words in ("timer: ", "cron: no cron daemon runs here", "scrontab: this backend", "job: the local queue"):
        assert words in told.value.message
    with pytest.raises(InputError, match="no cron daemon"):
        detaching.chosen_way(keepers.Way.CRON, folder.plan, LOCAL)


def test_a_run_that_ends_elsewhere_or_is_deleted_leaves_no_line(place, table):
    """Another login node has its own crontab, without such a line."""
    place.asa("run", place.flow(*CHAIN), *place.on, "--strategy", "per-stage", "--detach-by", "cron")
    line = table.read_text().strip()
    here, place.environment = place.environment, {**place.environment, "PATH": "/usr/bin:/bin"}
    assert ticked(place, RunFolder(place.runs()[0])) == ["a", "b", "c"]
    place.environment = here
    assert table.exists()
    done = woken(place, line)
    assert not table.exists(), done
    place.asa("run", place.flow(("a", "", "sleep 60")), *place.on, "--detach-by", "cron")
    line = table.read_text().strip()
    shutil.rmtree(place.runs()[-1])
    done = woken(place, line)
    assert "there is no run" in done.stderr
    assert not table.exists()


def test_jobs_have_the_variables_of_the_first_client(place, table):
    stages = [("a", "", "echo a-$MINE-$(umask) >>did"), ("b", "a", "echo b-$MINE-$(umask) >>did")]
    flow = place.flow(*stages)
    place.environment |= {"MINE": "of my own", "ASA_KEEP": "MINE"}
    before = os.umask(0o027)
    try:
        place.asa("run", flow, *place.on, "--strategy", "per-stage", "--detach-by", "cron")
    finally:
        os.umask(before)
    woken_to_the_end(place, table)
    assert (place.root / "did").read_text().splitlines() == ["a-of my own-0027", "b-of my own-0027"]


def test_that_nobody_looks_any_more_is_told(place, table):
    place.asa("run", place.flow(("a", "", "sleep 60")), *place.on, "--detach-by", "cron")
    (run,) = place.runs()
    for name, key in (("kept.json", "since_s"), ("pulse.json", "at_s")):
        told = json.loads((run / name).read_text())
        told[key] -= 1000.0
        (run / name).write_text(json.dumps(told))
    assert "but nothing has happened for 16m" in place.asa("status", columns=200).stdout


def test_a_run_that_failed_is_tried_again_without_a_client(place, table):
    flow = place.flow(("a", "", "[ -e mended ] && echo a >>did"), ("b", "a", "echo b >>did"))
    place.asa("run", flow, *place.on, "--strategy", "per-stage", code=1)
    (place.root / "mended").touch()
    place.asa("resume", "--retry", "--detach-by", "cron")
    woken_to_the_end(place, table)
    assert place.lines() == ["a", "b"]


def test_a_walltime_that_is_none_is_refused_before_a_run_is_made(place, table):
    for said in ("nonsense", "5s"):
        place.asa("run", place.flow(*CHAIN), *place.on, "--detach-by", "cron", "--keeper-walltime", said, code=2)
    assert place.runs() == []
    assert not table.exists()


# ---------------------------------------------------------------------- systemd


def test_a_timer_of_systemd_is_begun_and_ended(tmp_path, monkeypatch):
    """No systemd runs here: stand-ins for its commands record how they were called."""
    (tmp_path / "bin").mkdir()
    for name, answer in (("systemd-run", ""), ("systemctl", ""), ("loginctl", "echo yes")):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/called\n{answer}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert keepers.timer.trouble() == ""
    made = keepers.keep(keepers.Way.TIMER, tmp_path, "abc", LOCAL, 600.0)
    assert made.text == "a timer of systemd looks at it once a minute"
    keepers.end(tmp_path)
    called = (tmp_path / "called").read_text()
    assert "systemd-run --user --collect --unit=asa-run-abc --on-active=5 --on-unit-inactive=60" in called
    assert f"{sys.executable} -P -m asa tick {tmp_path} --quiet --kept=abc" in called
    assert "systemctl --user stop asa-run-abc.timer" in called
    assert keepers.kept(tmp_path) is None
    (tmp_path / "bin" / "loginctl").write_text("#!/bin/sh\necho no\n")
    assert "loginctl enable-linger" in keepers.timer.trouble()


def test_secrets_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("ASA_RUNS", "/runs")
    unlisted = ("SLURM_JWT", "ASA_TOKEN", "AWS_SECRET_ACCESS_KEY", "PASSWORD", "OUR_SITES_ENTRY", "MINE")
    for name in unlisted:
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hush@proxy:3128")
    monkeypatch.setenv("ASA_KEEP", "OTHER*")
    keepers.note(tmp_path, keepers.KeptRun.made(keepers.Way.CRON, "m"))
    text = (tmp_path / "kept.json").read_text()
    assert "hush" not in text
    assert json.loads(text)["environment"]["ASA_RUNS"] == "/runs"
    assert (tmp_path / "kept.json").stat().st_mode & 0o077 == 0


def test_a_line_s_end_in_a_path_makes_no_line_of_a_crontab(place, table, monkeypatch):
    """The line break may be in a path, in a variable that makes up the path, or in the mark of another user's run."""
    table.write_text("0 1 * * * mine\n")
    for name, value in os.environ.items() | place.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", f"{place.root}/x\n* * * * * touch {place.root}/ran\n")
    with pytest.raises(InputError, match="no line of a crontab"):
        keepers.cron.begin(["true"], "abc")
    monkeypatch.delenv("XDG_STATE_HOME")
    with pytest.raises(InputError, match="no line of a crontab"):
        keepers.cron.begin(["true"], "abc\n* * * * * touch ran\n")
    assert table.read_text() == "0 1 * * * mine\n"


# ---------------------------------------------------------------------- jobs of one core


@pytest.mark.parametrize("is_killed", [False, True])
def test_jobs_of_one_core_drive_a_run_and_follow_each_other(place, monkeypatch, is_killed):
    """Each drives for 20 s here, and the run takes longer; one that is killed is followed all the same."""
    stages = [
        (name, before, f"sleep 8; echo {name} >>did")
        for name, before in (("a", ""), ("b", "a"), ("c", "b"), ("d", "c"))
    ]
    folder = begin(place, *stages)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.root)
    facility = open_facility("local", None, folder.plan.settings).facility
    detaching.detach(folder, facility, keepers.Way.JOB, 20.0)
    until(lambda: keepers.kept(folder.path).number == 2, within_s=30)
    assert "a job of one core drives it" in keepers.kept(folder.path).text
    if is_killed:
        until(folder.driver, within_s=30)
        os.kill(folder.driver().pid, signal.SIGKILL)
        detaching.detach(folder, facility, keepers.Way.JOB, 20.0)  # once more: the first chain is no more
    until(lambda: folder.state()[0].outcome, within_s=120)
    assert place.lines() == ["a", "b", "c", "d"]
    until(lambda: keepers.kept(folder.path) is None, within_s=30)


def test_what_is_tried_again_is_told(place):
    text = '[[stage]]\nname = "a"\ncores = 1\nwalltime = "5min"\nretries = 3\ncommand = "exit 3"\n'
    (place.root / "again.toml").write_text(f'name = "again"\n{text}')
    client = place.begin("run", "again.toml", *place.on, "--strategy", "per-stage")
    until(lambda: place.runs() and place.status()["stages"][0]["retried"])
    client.kill()
    client.wait()
    assert place.status()["stages"][0]["retried"].startswith("failed")
    assert "tried again; last attempt: failed" in place.asa("status").stdout
    assert "It is tried again; last attempt: failed" in place.asa("explain", "a").stdout


@pytest.mark.parametrize("is_pipe", [False, True])
def test_what_is_said_under_cron_is_written_through_no_link_and_into_no_pipe(tmp_path, is_pipe):
    """Before, a look wrote into the file to which `client.log` led, and waited for whoever reads a pipe."""
    log, precious = tmp_path / "client.log", tmp_path / "thesis.tex"
    precious.write_text("ten years of work\n")
    if is_pipe:
        os.mkfifo(log)
    else:
        log.symlink_to(precious)
    code = f"from pathlib import Path; from asa.cli.tick import _write_into; _write_into(Path({str(log)!r})); print(1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    assert (done.stdout, precious.read_text()) == ("1\n", "ten years of work\n")
