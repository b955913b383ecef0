"""A client that is left alone: signals that it does not heed, terminals that go away, and asking it to leave."""

import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from forked import ASA
from slurm_testbed import until
from this_machine import OwnPlace, Place

SOON = (("a", "", "echo a >>did; sleep 2"), ("b", "a", "echo b >>did; sleep 1"), ("c", "b", "echo c >>did"))
LONG = (("a", "", "echo a >>did; sleep 100"), ("b", "a", "echo b >>did"))


def rarely(*cases):
    """Cases for `make full`, beside one or two that are always tried."""
    return [pytest.param(one, marks=pytest.mark.full) for one in cases]


class Window:
    """A terminal with a shell in it, which is closed as a window or a dropped connection is."""

    def __init__(self, place, script):
        self._ours, its = pty.openpty()
        environment = {**place.environment, "TERM": "xterm", "PS1": "", "HISTFILE": ""}
        self.shell = subprocess.Popen(
            ["setsid", "--ctty", "bash", "--norc", "--noprofile", "-i"],
            stdin=its,
            stdout=its,
            stderr=its,
            cwd=place.root,
            env=environment,
        )
        os.close(its)
        os.write(self._ours, f"{script}\n".encode())

    def hang_up(self):
        os.close(self._ours)
        self.shell.wait(60)


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    for lease in tmp_path.glob("runs/*/client.log"):  # a real process, which nobody here has begun
        with suppress(ProcessLookupError):
            os.kill(driver_of(lease.parent), signal.SIGKILL)
    made.close()


def typed(place, flow, *options):
    return shlex.join([ASA, "run", flow, *place.on, *options])


def driver_of(run):
    return int((run / "client.log").read_text().splitlines()[-1].partition(" process ")[2].partition(":")[0])


def is_alive(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def begun(place):
    """Wait for the first stage; give the run and the process that drives it."""
    until(lambda: "a" in place.lines(), what="the first stage")
    [run] = place.runs()
    return run, driver_of(run)


# ---------------------------------------------------------------------- terminals that go away


@pytest.mark.full
@pytest.mark.parametrize(
    "way",
    [
        "nohup {} &",
        "{} & disown",
        *rarely(
            "nohup {} --output json &",
            "nohup {}",
            "nohup {} >log 2>&1 & exit",
            "setsid {} &",
            "setsid {} --output json &",
            "setsid {} --quiet &",
            "trap '' HUP; {}",
        ),
    ],
)
def test_a_run_that_was_begun_to_be_left_alone_goes_on_without_its_terminal(place, way):
    """To its end, and what would have gone to the terminal goes nowhere."""
    command = typed(place, place.flow(*SOON), "--strategy", "per-stage")
    window = Window(place, way.format(command))
    run, driver = begun(place)
    window.hang_up()
    until(lambda: not is_alive(driver), what="the end of the client")
    assert place.lines() == ["a", "b", "c"]
    assert place.status()["state"] == "completed"
    assert (run / "metrics.json").exists()
    assert "left" not in (run / "client.log").read_text()


def test_the_exit_code_of_a_run_does_not_hang_on_its_terminal(place):
    """It completed, and whoever waits for it hears so."""
    command = typed(place, place.flow(*SOON), "--strategy", "per-stage")
    inner = f"trap '' HUP; {command}; echo $? >code"
    window = Window(place, f"setsid sh -c {shlex.quote(inner)} &")
    begun(place)
    window.hang_up()
    until(lambda: place.lines("code"), what="the exit code")
    assert place.lines("code") == ["0"]


@pytest.mark.full
@pytest.mark.parametrize("way", ["{}", "{} 2>&1 | tee log", *rarely("{} &", "{} --output json", "{} >log 2>&1")])
def test_a_closed_terminal_leaves_the_run_as_ctrl_c_does_and_says_where(place, way):
    """Its jobs go on, the journal is whole, and it goes on with `asa resume`."""
    command = typed(place, place.flow(*SOON), "--strategy", "chained")
    window = Window(place, way.format(command))
    run, driver = begun(place)
    window.hang_up()
    until(lambda: not is_alive(driver), what="the end of the client")
    assert not (run / "lease").exists()
    last = (run / "client.log").read_text().splitlines()[-1]
    assert "left, as its terminal was closed (SIGHUP)" in last
    assert last.endswith(f"asa resume {run.name}")
    assert "as its terminal was closed" in place.status()["left"]
    assert "as its terminal was closed" in " ".join(place.asa("status").stdout.split())
    until(lambda: "c" in place.lines(), what="the last stage")
    place.asa("resume")
    assert place.lines() == ["a", "b", "c"]
    assert place.status()["left"] == ""


def test_who_reads_the_output_may_go_where_nobody_listens_anyway(place):
    """Under nohup, of `asa run | tee log` only `tee` dies with the terminal; else the run is left, as with `| head`."""
    command = typed(place, place.flow(*SOON), "--strategy", "per-stage")
    window = Window(place, f"nohup {command} 2>&1 | head -1 >log &")
    run, driver = begun(place)
    window.hang_up()
    until(lambda: not is_alive(driver), what="the end of the client")
    assert place.lines() == ["a", "b", "c"]
    assert "left" not in (run / "client.log").read_text()


def test_output_that_cannot_be_written_ends_no_run(place):
    """As on a full disk."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no device that is always full")
    subprocess.run(
        ["sh", "-c", f"{typed(place, place.flow(*SOON), '--strategy', 'per-stage')} >/dev/full"],
        cwd=place.root,
        env=place.environment,
        timeout=60,
        check=False,
    )
    assert place.lines() == ["a", "b", "c"]
    assert place.status()["state"] == "completed"


# ---------------------------------------------------------------------- signals


@pytest.mark.full
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, *rarely(signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1)]
)
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(place, number):
    """And the others are heeded."""
    client = subprocess.Popen(
        ["sh", "-c", f"trap '' {number.name.removeprefix('SIG')}; exec {typed(place, place.flow(*LONG))}"],
        cwd=place.root,
        env=place.environment,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    begun(place)
    client.send_signal(number)
    time.sleep(1)
    assert client.poll() is None
    client.send_signal(signal.SIGINT if number == signal.SIGTERM else signal.SIGTERM)
    assert client.wait(30) == 130


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM])
def test_whatever_asks_a_client_to_leave_is_named(place, number):
    """As a batch system's warning does to a client that runs in a job of its own."""
    client = place.begin("run", place.flow(*LONG), *place.on)
    begun(place)
    client.send_signal(number)
    _, errors = client.communicate(timeout=30)
    assert client.returncode == 130, errors
    assert number.name in place.status()["left"]


def test_a_job_of_a_script_in_the_background_heeds_no_interrupt(place):
    """Which a shell sees to that controls no jobs, as that of cron."""
    script = f"{typed(place, place.flow(*LONG))} >log 2>&1 & echo $! >pid; wait"
    shell = subprocess.Popen(["sh", "-c", script], cwd=place.root, env=place.environment, start_new_session=True)
    _, driver = begun(place)
    os.killpg(shell.pid, signal.SIGINT)
    time.sleep(1)
    assert is_alive(driver)
    os.kill(driver, signal.SIGTERM)
    until(lambda: not is_alive(driver), what="the end of the client")
    shell.wait(30)
    assert "asked to end (SIGTERM)" in place.status()["left"]


class SlowPlace(OwnPlace):
    """One whose batch system takes long to take a job, and with a strategy that never comes to an end with its plan."""

    def __init__(self, root):
        super().__init__(root)
        packages = root / "packages"
        (packages / "this_machine-0.dist-info" / "entry_points.txt").write_text(
            "[asa.backends]\nthis-machine = slow_machine:Slow\n[asa.strategies]\nponders = slow_machine:Ponders\n"
        )
        (packages / "slow_machine.py").write_text(
            "import time\n"
            "from pathlib import Path\n"
            "from asa.strategies import load_strategy\n"
            "from own_backend import ThisMachine\n"
            "class Slow(ThisMachine):\n"
            "    def connect(self, *given, **named):\n"
            "        backend = super().connect(*given, **named)\n"
            "        take = backend.submit\n"
            "        def submit(spec):\n"
            "            Path('is_sent').touch()\n"
            "            until_s = time.monotonic() + 4\n"
            "            while time.monotonic() < until_s:\n"
            "                time.sleep(0.1)\n"
            "            return take(spec)\n"
            "        backend.submit = submit\n"
            "        return backend\n"
            "class Ponders(type(load_strategy('per-stage'))):\n"
            "    def plan(self, view, forecast):\n"
            "        if not list(Path('runs').glob('*/journal.jsonl')):\n"  # it is looked at before there is a run
            "            return super().plan(view, forecast)\n"
            "        Path('ponders').touch()\n"
            "        while True:\n"
            "            time.monotonic()\n"
        )


@pytest.fixture
def slow(tmp_path):
    made = SlowPlace(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_is_heeded_while_a_plan_takes_long(slow, number):
    """Within a second or two; nothing was submitted."""
    client = slow.begin("run", slow.flow(*LONG), *slow.on, "--strategy", "ponders")
    until((slow.root / "ponders").exists, what="a plan")
    client.send_signal(number)
    began_s = time.monotonic()
    _, errors = client.communicate(timeout=30)
    assert time.monotonic() - began_s < 3
    assert client.returncode == 130, errors
    assert "Stopped." in errors
    assert "Traceback" not in errors
    [run] = slow.runs()
    assert not (run / "lease").exists()
    assert not slow.jobs()


def test_a_submission_is_not_left_in_doubt(slow):
    """The client waits for its answer; a closed terminal may tell it twice."""
    client = slow.begin("run", slow.flow(*LONG), *slow.on, "--strategy", "per-stage")
    until((slow.root / "is_sent").exists, what="a submission")
    client.send_signal(signal.SIGHUP)
    client.send_signal(signal.SIGHUP)
    client.communicate(timeout=30)
    assert client.returncode == 130
    assert slow.status()["stages"][0]["job_id"] is not None
    assert len(slow.jobs()) == 1


@pytest.mark.full
def test_who_asks_twice_need_not_wait_for_a_submission(slow):
    """What became of it is found out by who goes on."""
    client = slow.begin("run", slow.flow(*SOON), *slow.on, "--strategy", "per-stage")
    until((slow.root / "is_sent").exists, what="a submission")
    client.send_signal(signal.SIGINT)
    time.sleep(0.5)
    client.send_signal(signal.SIGINT)
    began_s = time.monotonic()
    client.communicate(timeout=30)
    assert time.monotonic() - began_s < 2
    assert client.returncode == 130
    assert not slow.jobs()
    slow.asa("resume")
    assert slow.lines() == ["a", "b", "c"]


@pytest.mark.parametrize("interrupted", ["typer", "numpy", "asa.cli.predict"])
def test_an_interrupt_while_modules_are_loaded_is_told_in_words(interrupted):
    """A command takes half a second to begin, in which somebody may think better of it."""
    script = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {interrupted!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "sys.argv = ['asa', 'predict', '--cores', '1', '--walltime', '1h', '--bank', '/nowhere']\n"
        "from asa.cli import main; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "asa: interrupted\n")
