"""The commands `serve`, `submit` and `beside`, and programs whose manager dies or hangs: a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asa.dmr import Action, Session

_COMMANDS = (
    "import typer\nfrom asa.studies.dmr.serving import run_in_job, serve, submit\nfrom asa.errors import AsaError\n"
    "app = typer.Typer(pretty_exceptions_enable=False)\napp.command()(serve)\napp.command()(submit)\n"
    "app.command('beside')(run_in_job)\n"
    "try: app()\nexcept AsaError as error: raise SystemExit(f'{error.exit_code}: {error}')"
)


def command(*words):
    return [sys.executable, "-c", _COMMANDS, *map(str, words)]


def until(condition):
    deadline = time.monotonic() + 20
    while not (told := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return told


class Serving:
    """A manager in its own process, whose jobs sleep for some seconds, should they outlive it."""

    def __init__(self, folder, *words):
        self.folder = folder
        words = command("serve", "--folder", folder, *words)
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.told = [self.process.stdout.readline()]

    def submit(self, *job, nodes=2, code=0):
        words = command("submit", "--folder", self.folder, "--nodes", nodes, "--", *job)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def program(self, number, processes, **options):
        return Session(str(self.folder / "socket"), str(number), processes, **options)

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        with self.process:
            self.told += self.process.stdout.readlines()
        return self.process.returncode


@pytest.fixture
def serving(tmp_path):
    opened = []

    def serving(*words):
        opened.append(Serving(tmp_path / "manager", *words))
        return opened[-1]

    yield serving
    for one in opened:
        if one.process.returncode is None:
            one.close()


def test_jobs_are_submitted_and_resized_until_it_is_interrupted(serving, tmp_path, monkeypatch):
    monkeypatch.setenv("OF_THE_USER", "yes")
    monkeypatch.chdir(tmp_path)
    manager = serving("--nodes", 4)
    assert "4 nodes; asked at" in manager.told[0]
    assert manager.submit("sleep", 20, nodes=4).startswith("job 1, which writes to ")
    asking = manager.program(1, 4)
    assert not asking.check_status(1, 4)
    told = manager.submit("sh", "-c", "echo $OF_THE_USER $PWD $ASA_DMR_PROCESSES")
    assert asking.check_status(1, 4).processes == 2
    asking.acknowledge()
    output = Path(told.split()[-1])
    assert until(output.read_text) == f"yes {tmp_path} 2\n"
    assert until(lambda: asking.check_status(1, 4)).processes == 4
    assert manager.close() == 0
    words = [line.partition(" ")[2].strip() for line in manager.told[1:]]
    assert words == [
        "job 1 (sleep) asks for 4 nodes",
        "job 1 (sleep) starts on 4 nodes",
        "job 2 (sh) asks for 2 nodes",
        "job 1 (sleep) has 2 nodes, and had 4",
        "job 2 (sh) starts on 2 nodes",
        "job 2 (sh) is completed, exit code 0",
        "job 1 (sleep) has 4 nodes, and had 2",
        "job 1 (sleep) is cancelled, exit code -15",
    ]
    assert output.exists(), "what jobs wrote is kept"


def test_it_may_only_let_jobs_shrink(serving):
    manager = serving("--nodes", 4, "--no-grow")
    manager.submit("sleep", 20)
    assert "only be given back" in manager.program(1, 2).check_status(1, 4).why


def test_what_cannot_be_submitted(serving, tmp_path):
    words = command("submit", "--folder", tmp_path, "--", "true")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr.startswith(f"1: {tmp_path}/socket: no resource manager answers")
    manager = serving("--nodes", 2)
    assert "2: job 'true': asks for 3 nodes, and there are 2" in manager.submit("true", nodes=3, code=1)


def test_a_folder_of_another_user_is_refused(tmp_path):
    if os.getuid() != 0:
        pytest.skip("needs root, to give a folder away")
    os.chown(tmp_path, 65534, -1)
    words = command("serve", "--folder", tmp_path, "--nodes", 2)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    assert f"{tmp_path}: belongs to user" in done.stderr


def test_the_manager_dies_while_a_program_waits(serving):
    """The program continues at once; the next manager does not know it."""
    manager = serving("--nodes", 4)
    manager.submit("sleep", 30)
    asking = manager.program(1, 2, expand_s=30.0)
    assert not asking.icheck_status(1, 4)
    until(lambda: asking._asked.reply(1.0))
    manager.submit("sleep", 30)  # takes the nodes of the expansion
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -KILL {manager.process.pid}"])
    begun_s = time.monotonic()
    answer = asking.icheck_status(1, 4)
    waited_s = time.monotonic() - begun_s
    killer.wait()
    assert not answer
    assert "the resource manager's answer was lost" in answer.why
    assert 0.3 < waited_s < 10
    manager.process.wait()
    assert "cannot be reached: Connection refused" in asking.check_status(1, 4).why
    manager.close()
    serving("--nodes", 4)
    assert "no job '1' runs here" in asking.check_status(1, 4).why


def test_a_manager_that_hangs_is_waited_for_no_longer_than_a_time_out(serving):
    manager = serving("--nodes", 4)
    manager.submit("sleep", 20)
    asking = manager.program(1, 2, answer_s=0.2)
    manager.process.send_signal(signal.SIGSTOP)
    begun_s = time.monotonic()
    assert "does not answer" in asking.check_status(1, 4).why
    assert 0.2 <= time.monotonic() - begun_s < 2
    manager.process.send_signal(signal.SIGCONT)
    assert until(lambda: asking.check_status(1, 4)).action is Action.EXPAND


def test_a_program_runs_beside_its_manager_inside_a_job(tmp_path):
    """The site cannot take nodes back; the program's exit code is the job's."""
    settings = ["--backend", "local", "--option", f"spool={tmp_path / 'spool'}"]
    code = (
        "import os, signal; from asa import dmr; answer = dmr.check_status(1, 4)\n"
        "print(dmr.processes(), os.environ['ASA_DMR_JOB'], answer.why, flush=True)\n"
    )
    ends = {"raise SystemExit(5)": 5, "os.kill(os.getpid(), signal.SIGKILL)": 137}
    for end, status in ends.items():
        words = command("beside", "--processes", 3, *settings, "--", sys.executable, "-c", code + end)
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, env=os.environ | {"ASA_JOB_ID": "9@x"}
        )
        assert (done.returncode, done.stdout) == (status, "3 9@x this batch system takes no nodes back\n"), done.stderr
    words = command("beside", "--processes", 3, *settings, "--", "/no/such/program")
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | {"SLURM_JOB_ID": "9"})
    assert "/no/such/program: cannot be started: No such file" in done.stderr
    without = {name: value for name, value in os.environ.items() if name not in {"SLURM_JOB_ID", "ASA_JOB_ID"}}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=without)
    assert "--job: this is no job of a batch system" in done.stderr


def test_a_program_hears_what_its_job_is_told(tmp_path):
    """The job's time limit is passed on, for example."""
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(6)); print(1, flush=True); time.sleep(60)"
    )
    settings = ["--backend", "local", "--option", f"spool={tmp_path / 'spool'}", "--job", "9"]
    words = command("beside", "--processes", 3, *settings, "--", sys.executable, "-c", code)
    with subprocess.Popen(words, stdout=subprocess.PIPE) as job:
        assert job.stdout.readline() == b"1\n"
        job.terminate()
        assert job.wait(20) == 6
