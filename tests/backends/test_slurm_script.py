"""The batch script around a payload, run by every installed shell, without Slurm."""

import os
import shlex
import shutil
import signal
import stat
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from asa.backends.shell.environment import carried
from asa.backends.shell.marks import MarksFolder
from asa.backends.shell.script import Payload, facts_of, file_name, job_name, token_of_file
from asa.backends.slurm.script import batch_script, before_steps
from hypothesis import given
from hypothesis import strategies as st
from slurm_testbed import until

from asa.backend import REFUSAL, JobSpec, Step
from asa.outcome import JobOutcome
from asa.payload import PRIVATE, payload_text
from asa.workflow import Stage

SHELLS = [
    [path, *flags]
    for name, *flags in (("dash",), ("bash", "-eu"), ("busybox", "sh"), ("ksh",))
    if (path := shutil.which(name))
]


@pytest.fixture
def folder(tmp_path):
    return MarksFolder(tmp_path / "a run's \\new \\0folder, 100%")


@pytest.fixture(params=SHELLS, ids=" ".join)
def start(request, folder, tmp_path):
    """Return a function that starts a batch script as Slurm would, in a session of its own."""
    started = []
    work = tmp_path / "where it works"
    work.mkdir()

    def start(command="", job="7", path=os.environ["PATH"], slurm=(), **options):
        text = batch_script(Payload("fit.a", command, str(work), folder.marks, folder.posts, **options))
        assert "\0" not in text, "Slurm ends a script there, and shells pass over it"
        script = tmp_path / f"{len(started)}.sh"
        script.write_text(text)
        environment = {"PATH": path, "SLURM_JOB_ID": job, "TMPDIR": str(tmp_path), "ASA_PATIENCE_S": "0", **dict(slurm)}
        process = subprocess.Popen(
            [*request.param, str(script)],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd="/", start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):  # also what outlived its script
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def done(process):
    """Wait for a script; return its exit code and what it said."""
    said, errors = process.communicate(timeout=60)
    return process.returncode, said, errors


def of_steps(folder, kind="out", job="7"):
    """Return the outputs of a job's steps, each from its own file, in order."""
    files = sorted(folder.logs.glob(f"*.{job}.step-*.{kind}"))
    return "".join(file.read_text() for file in files)


def test_a_payload_runs_in_its_folder_and_its_exit_code_is_the_jobs(start, folder, tmp_path):
    assert done(start('pwd; echo "it\'s $0"; exit 3', token="a"))[:2] == (
        3,
        f"{tmp_path / 'where it works'}\nit's sh\n",
    )
    began, ended = folder.began("7", "a"), folder.ended("7", "a")
    assert (ended.exit_code, ended.signals) == (3, 0)
    assert abs(began.time_s - time.time()) < 60
    assert began.time_s <= ended.time_s
    assert folder.holder("a") == "7"
    assert folder.ended("8", "a") is None, "marks are their job's"


@pytest.mark.parametrize("nodes", ["n[1-3],gpu7", ""])
@pytest.mark.parametrize("code", [0, 3])
def test_marks_say_on_which_nodes_it_was(start, folder, nodes, code):
    """Slurm forgets this some minutes after the end of a job."""
    assert done(start(f"exit {code}", token="a", slurm=(("SLURM_JOB_NODELIST", nodes),)))[0] == code
    assert (folder.began("7", "a").nodes, folder.ended("7", "a").nodes) == (nodes, nodes)


@pytest.mark.parametrize(
    "command",
    [
        "echo \"$HOME'\\n`echo b`$(echo c)\" '|' \\' # no comment\necho second; false || echo third",
        "cat <<'EOF'\nEOF2 ' \" $x\nEOF\n",
        "- is a name of no command",
        "printf '%s' 'ümläut ☃ \\\\ \t'",
        "set -eu; trap 'echo trapped' EXIT; unset x; : $x; echo not reached",
        "f() { return 4; }; f",
        "",
        "exec sleep 0",
        "kill -KILL $$",
        "(exit 86)",
        "echo '# The payload.'; echo \"\npayload='x'\"",
        "x=" + "y" * 100_000 + "; echo ${#x}",
    ],
)
def test_any_text_is_run_as_it_is(start, command):
    plain = subprocess.run(
        ["sh", "-c", "--", command],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    code = plain.returncode if plain.returncode >= 0 else 128 - plain.returncode
    assert done(start(command))[:2] == (code, plain.stdout)


def test_of_two_jobs_of_a_token_one_runs_the_payload(start, folder, tmp_path):
    """Of twenty that begin at the same time."""
    command = f"echo x >>'{tmp_path}/ran'; sleep 0.3"
    codes = [done(process)[0] for process in [start(command, str(job), token="a") for job in range(100, 120)]]
    assert sorted(codes) == [0] + [JobOutcome.DUPLICATE.exit_code] * 19
    assert (tmp_path / "ran").read_text() == "x\n"
    assert folder.holder("a") == str(100 + codes.index(0))


def test_a_job_that_was_put_back_runs_again(start, folder, tmp_path):
    """For example after its node failed; but not if its payload had completed."""
    command = f"echo x >>'{tmp_path}/ran'; [ -e '{tmp_path}/now' ]"
    assert done(start(command, token="a"))[0] == 1
    (tmp_path / "now").touch()
    assert done(start(command, token="a"))[0] == 0
    assert done(start(command, token="a"))[0] == 0
    assert (tmp_path / "ran").read_text() == "x\nx\n"
    assert folder.ended("7", "a").exit_code == 0


def test_a_job_that_was_put_back_after_its_posts_runs_no_more(start, folder, tmp_path):
    """It lacks only the mark of its end, and jobs that follow may have begun."""
    command = f"echo x >>'{tmp_path}/ran'"
    assert done(start(command, token="a", posted=["u/a", "v"]))[0] == 0
    (folder.marks / "a" / "ended").unlink()
    assert done(start(command, token="a", posted=["u/a", "v"]))[0] == 0
    assert (tmp_path / "ran").read_text() == "x\n"
    assert folder.ended("7", "a").exit_code == 0
    assert folder.began("7", "a") is not None
    (folder.marks / "a" / "ended").unlink()
    (folder.posts / "v").unlink()
    assert done(start(command, token="a", posted=["u/a", "v"]))[0] == 0
    assert (tmp_path / "ran").read_text() == "x\nx\n", "not all was posted"


def test_a_killed_job_leaves_its_beginning_only(start, folder):
    process = start("sleep 60", token="a")
    until(lambda: folder.began("7", "a"))
    os.killpg(process.pid, signal.SIGKILL)
    done(process)
    assert folder.ended("7", "a") is None
    assert done(start("true", token="a"))[0] == 0, "and may run again"


def test_posts_are_made_when_the_payload_completed_and_only_then(start, folder):
    assert done(start("exit 1", token="a", posted=("x/y",)))[0] == 1
    assert not list(folder.posts.iterdir())
    unposted = f"[ ! -e {shlex.quote(str(folder.posts / 'x%2Fy'))} ]"
    assert done(start(unposted, token="b", posted=("x/y", "z")))[0] == 0
    assert {token_of_file(path.name) for path in folder.posts.iterdir()} == {"x/y", "z"}


def test_a_payload_waits_for_what_it_awaits(start, folder, tmp_path):
    process = start("echo ran", token="a", awaits=("x/y", "z z"))
    (folder.posts / file_name("x/y")).touch()
    until(lambda: folder.holder("a"))
    assert folder.began("7", "a") is None
    assert process.poll() is None
    (folder.posts / file_name("z z")).touch()
    assert done(process)[:2] == (0, "ran\n")
    assert folder.began("7", "a") is not None


def test_either_the_payload_begins_or_its_job_is_given_back(start, folder):
    """Both are attempted at the same moment, many times: exactly one of them happens."""
    outcomes, late_s = Counter(), 0.02
    for number in range(30):
        token = f"t{number}"
        process = start("echo ran", token=token, job=str(number))
        time.sleep(late_s)
        is_withdrawn = folder.withdraw(token)
        late_s = late_s * 1.3 if is_withdrawn else late_s / 1.3  # so that it stays near
        code, said, _ = done(process)
        assert (code, said) == ((JobOutcome.GAVE_BACK.exit_code, "") if is_withdrawn else (0, "ran\n"))
        assert (folder.began(str(number), token) is None) == is_withdrawn
        assert folder.withdraw(token) == is_withdrawn, "asked once more"
        outcomes[is_withdrawn] += 1
    assert len(outcomes) == 2, outcomes


def test_what_was_given_back_before_it_started_begins_nothing(start, folder):
    assert folder.withdraw("a")
    assert done(start("echo ran", token="a"))[:2] == (JobOutcome.GAVE_BACK.exit_code, "")


def test_a_job_that_had_begun_begins_again_once_it_is_put_back(start, folder):
    process = start("sleep 60", token="a")
    until(lambda: folder.began("7", "a"))
    os.killpg(process.pid, signal.SIGKILL)
    assert not folder.withdraw("a")
    assert done(start("echo ran", token="a"))[:2] == (0, "ran\n")


@pytest.mark.parametrize("everybody", [True, False], ids=["everybody", "the script"])
@pytest.mark.parametrize("handled", [True, False])
def test_the_payload_is_told_to_end(start, folder, tmp_path, everybody, handled):
    """Whether Slurm signals all processes of the job or the script alone."""
    trap = f"trap 'echo tidied up >>\"{tmp_path}/told\"; exit 0' TERM;" if handled else ""
    process = start(f"{trap} touch '{tmp_path}/up'; while :; do sleep 0.1; done", token="a", posted=("x",))
    until((tmp_path / "up").exists)
    if everybody:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.terminate()
    assert done(process)[0] == 143
    ended = folder.ended("7", "a")
    assert ended.exit_code == 143
    assert ended.signals >= 1
    assert (tmp_path / "told").exists() == handled
    assert not list(folder.posts.iterdir()), "who was told to end has not completed"


@pytest.mark.parametrize("steps", [(), (Step("one", "touch begun", post="p"),)], ids=["payload", "step"])
def test_a_job_that_is_told_to_end_before_its_payload_begins_begins_none(start, folder, tmp_path, steps):
    """A payload that began then might outlive the script, since a signal to the script does not reach it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    slow = tools / "uname"
    slow.write_text(f'#!/bin/sh\ntouch {shlex.quote(str(tmp_path / "preparing"))}\nsleep 1\nexec /bin/uname "$@"\n')
    slow.chmod(0o755)
    process = start("touch begun", token="a", path=f"{tools}:{os.environ['PATH']}", steps=steps)
    until((tmp_path / "preparing").exists, what="its preparation")
    process.terminate()
    code, *_ = done(process)
    assert code == 143
    assert not (tmp_path / "where it works" / "begun").exists()
    assert folder.ended("7", "a").exit_code == 143


def test_a_payload_that_is_just_beginning_is_told_to_end_too(start):
    """A process that was just forked loses a signal: over and over, at about that moment.

    On a busy machine bash itself has lost one in some thousand times; Slurm signals all processes of a job.
    """
    late_s, outcomes, lost = 0.02, Counter(), 0
    for number in range(40):
        process = start("echo ran; exec sleep 30", token=f"t{number}")
        time.sleep(late_s)
        process.terminate()
        told_s = time.monotonic()
        code, said, _ = done(process)
        lost += code == 0
        assert code in (143, -signal.SIGTERM, 0), "the second before it could listen"
        assert code == 0 or time.monotonic() - told_s < 25
        late_s = late_s / 1.1 if "ran" in said else late_s * 1.1
        outcomes["ran" in said] += 1
    assert len(outcomes) == 2, outcomes
    assert lost <= 1


def test_what_is_told_just_after_the_payload_left_is_told_to_nobody(start):
    """Its process number may be reused by then, and no error is printed among the payload's."""
    process = start("trap 'exit 0' TERM; echo up; sleep 0.2; exit 0", token="a")
    assert process.stdout.readline() == "up\n"
    time.sleep(0.35)
    process.terminate()
    code, _, errors = done(process)
    assert (code, errors) == (143, "")


def test_a_payload_may_take_its_time_to_end(start, folder, tmp_path):
    command = f"trap 'sleep 0.5; echo late; exit 9' TERM; touch '{tmp_path}/up'; while :; do sleep 0.1; done"
    process = start(command, token="a")
    until((tmp_path / "up").exists)
    process.terminate()
    time.sleep(0.1)
    process.terminate()
    assert done(process)[:2] == (9, "late\n")
    assert folder.ended("7", "a").exit_code == 9


SAVES = "trap 'echo saved; exit {code}' {name}; touch '{up}'; while :; do sleep 0.05; done"


@pytest.fixture(params=["dash", "bash"])
def path(request, tmp_path):
    """Return a path on which `sh` is a certain shell."""
    if (shell := shutil.which(request.param)) is None:
        pytest.skip(f"there is no {request.param}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to(shell)
    return f"{tmp_path / 'bin'}:{os.environ['PATH']}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "name"),
    [("script", name) for name in ("USR2", "HUP", "INT", "CONT")]
    + [(kind, name) for kind in ("command", "checked", "script", "bash", "python") for name in ("USR1", "TERM")],
)
def test_what_the_script_is_told_reaches_the_payload(start, folder, tmp_path, path, kind, name):
    """As by `--signal=B:USR1@120`, which is for the batch script alone."""
    if name == "INT" and subprocess.run(["env", "--default-signal=INT", "true"], check=False).returncode:
        pytest.skip("this env cannot reset signals")
    up = tmp_path / "up"
    saves = SAVES.format(code=5, name=name, up=up)
    python = (
        "#!/usr/bin/env python3\nimport pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIG{name}, lambda *_: (print('saved', flush=True), sys.exit(5)))\n"
        f"pathlib.Path({str(up)!r}).touch()\nwhile True:\n    time.sleep(0.05)\n"
    )
    what = {
        "command": {"command": saves},
        "checked": {"command": saves, "outputs": ("made",)},
        "script": {"script": f"#!/bin/sh\n{saves}\n"},
        "bash": {"script": f"#!/bin/bash -eu\n{saves}\n", "outputs": ("made",)},
        "python": {"script": python},
    }
    process = start(payload_text(Stage("s", cores=1, **what[kind]), 1), token="a", path=path)
    until(up.exists)
    os.kill(process.pid, signal.Signals[f"SIG{name}"])
    assert done(process)[:2] == (5, "saved\n")
    ended = folder.ended("7", "a")
    assert (ended.exit_code, ended.signals) == (5, 1 if name == "TERM" else 0)
    assert not list(tmp_path.glob("asa-*"))


def test_a_payload_that_was_warned_and_exits_with_0_has_completed(start, folder, tmp_path):
    process = start(SAVES.format(code=0, name="USR1", up=tmp_path / "up"), token="a", posted=("x",))
    until((tmp_path / "up").exists)
    for _ in range(20):  # early, late, and while the first is dealt with
        process.send_signal(signal.SIGUSR1)
    assert done(process)[0] == 0
    assert folder.ended("7", "a").exit_code == 0
    assert (folder.posts / "x").exists()


def test_who_awaits_is_not_ended_by_a_warning(start, folder):
    process = start("echo ran", token="a", awaits=("late",))
    until(lambda: folder.holder("a"))
    time.sleep(0.2)
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGCONT)
    (folder.posts / "late").touch()
    assert done(process)[:2] == (0, "ran\n")


@pytest.mark.parametrize("has_steps", [False, True])
def test_a_text_may_be_longer_than_any_argument(start, folder, tmp_path, path, has_steps):
    """Nothing is left behind of the file that it is put into."""
    long = f"# it's '{'x' * 300_000}\n" + 'printf "%s|" "$0" "$#" "${asa_file-none}" \'$HOME\' \\\\; exit 3\n'
    told = "sh|0|none|$HOME|\\|"
    if has_steps:
        process = start(token="a", path=path, steps=[Step("a", "echo 1"), Step("b", f"({long})"), Step("c", "echo 3")])
        assert done(process)[:2] == (3, "")
        assert of_steps(folder) == f"1\n{told}"
    else:
        process = start(long, token="a", path=path)
        assert done(process)[:2] == (3, told)
    assert not list((folder.marks / "a").glob(".payload*"))
    assert not list((folder.marks / "a").glob(".nfs*"))


def test_a_long_text_that_cannot_be_put_into_a_file_is_not_run(start, folder):
    (folder.marks / "a").mkdir()
    (folder.marks / "a" / ".payload.7").mkdir()
    code, said, errors = done(start(f"echo ran; # {'x' * 200_000}", token="a"))
    assert (code, said) == (JobOutcome.UNABLE.exit_code, "")
    assert "cannot write" in errors


def test_who_awaits_is_told_to_end_too(start, folder):
    process = start("echo ran", token="a", awaits=("never",))
    until(lambda: folder.holder("a"))
    process.terminate()
    assert done(process)[:2] == (143, "")
    assert folder.began("7", "a") is None
    assert folder.ended("7", "a").exit_code == 143


def test_what_a_payload_starts_may_be_interrupted(start):
    """Background processes of a shell ignore SIGINT, which a payload must not inherit."""
    if subprocess.run(["env", "--default-signal=INT", "true"], check=False).returncode:
        pytest.skip("this env cannot reset signals")
    assert done(start("sh -c 'kill -INT $$; echo ignored'"))[1] == ""


def test_a_full_disk_lets_no_payload_begin(start, folder, tmp_path):
    """Its completion could not be written down. In this test a folder has the path of a file."""
    (folder.posts / ".x.7").mkdir()
    code, _, errors = done(start(f"touch '{tmp_path}/ran'", token="a", posted=("y", "x")))
    assert code == JobOutcome.UNABLE.exit_code
    assert "cannot write into" in errors
    assert not (tmp_path / "ran").exists()
    assert not (folder.posts / "x").exists()
    assert not (folder.posts / "y").exists()


def test_a_disk_that_is_full_for_a_moment_only_delays(start, folder, tmp_path):
    blocked = folder.posts / ".x.7"
    blocked.mkdir()
    process = start(f"echo x >>'{tmp_path}/ran'", token="a", posted=("x",), slurm={"ASA_PATIENCE_S": "60"})
    until(lambda: folder.holder("a"))
    time.sleep(1)
    assert process.poll() is None
    blocked.rmdir()
    assert done(process)[0] == 0
    assert (tmp_path / "ran").read_text() == "x\n"
    assert (folder.posts / "x").exists()


def test_that_a_payload_completed_is_kept_though_the_disk_filled_up_meanwhile(start, folder, tmp_path):
    """The command fills the disk: `cat`, by which files are written, fails from then on."""
    tools, full = tmp_path / "tools", tmp_path / "full"
    tools.mkdir()
    cat = f'#!/bin/sh\n[ ! -e "{full}" ] || {{ echo no space >&2; exit 1; }}\nexec {shutil.which("cat")} "$@"\n'
    (tools / "cat").write_text(cat)
    (tools / "cat").chmod(0o755)
    steps = (Step("a", f"touch '{full}'", post="x/a"), Step("b", "true", post="x/b"))
    path = f"{tools}:{os.environ['PATH']}"
    assert done(start(f"touch '{full}'", token="a", posted=("x",), path=path))[0] == 0
    assert (folder.posts / "x").exists()
    assert folder.ended("7", "a").exit_code == 0
    full.unlink()
    assert done(start(token="b", steps=steps, posted=("x/a", "x/b"), path=path))[0] == JobOutcome.UNABLE.exit_code
    assert (folder.posts / file_name("x/a")).exists(), "the first step's end is kept, the second does not begin"
    assert [one.ended is not None for one in folder.steps("7", "b", 2)] == [True]


@pytest.mark.parametrize("kind", ["began", "ended"])
def test_without_its_marks_a_job_does_not_begin(start, folder, kind, tmp_path):
    (folder.marks / "a").mkdir()
    (folder.marks / "a" / f".{kind}.7").mkdir()
    code, _, errors = done(start(f"touch '{tmp_path}/ran'", token="a", posted=("x",)))
    assert code == JobOutcome.UNABLE.exit_code
    assert "cannot write" in errors
    assert not (tmp_path / "ran").exists()
    assert not (folder.posts / "x").exists()


def test_steps_that_completed_are_not_run_again(start, folder, tmp_path):
    """Neither after a requeue, while the rest fails and then completes, nor in another job with the same steps."""
    ran, now = tmp_path / "ran", tmp_path / "now"

    def steps(names):
        command = {n: f"echo {n} >>'{ran}'" for n in names} | {"b": f"echo b >>'{ran}'; [ -e '{now}' ]"}
        return {"steps": tuple(Step(n, command[n], post=f"r/{n}") for n in names), "posted": [f"r/{n}" for n in names]}

    assert done(start(token="t1", **steps("abc")))[0] == 1
    assert done(start(token="t1", **steps("abc")))[0] == 1
    assert ran.read_text().split() == ["a", "b", "b"]
    assert [one.ended is not None for one in folder.steps("7", "t1", 3)] == [True, False]
    now.touch()
    assert done(start(token="t2", job="8", **steps("abd")))[0] == 0
    assert ran.read_text().split() == ["a", "b", "b", "b", "d"]
    assert [one.ended is not None for one in folder.steps("8", "t2", 3)] == [True, True, True]
    assert done(start(token="t1", **steps("abc")))[0] == 0
    assert ran.read_text().split() == ["a", "b", "b", "b", "d", "c"]


@pytest.mark.parametrize("when", ["before it begins", "between its steps"])
def test_a_job_whose_stages_have_another_job_runs_nothing(start, folder, tmp_path, when):
    ran = tmp_path / "ran"
    if when == "before it begins":
        folder.supersede(["t1"])
    first = f"echo a >>'{ran}'; touch {shlex.quote(f'{folder.marks}/t1/superseded')}"
    steps = (Step("a", first, post="r/a"), Step("b", f"echo b >>'{ran}'", post="r/b"))
    assert done(start(token="t1", steps=steps, posted=("r/a", "r/b")))[0] == JobOutcome.DUPLICATE.exit_code
    assert (ran.read_text() if ran.exists() else "") == ("" if when == "before it begins" else "a\n")


@pytest.mark.parametrize(("program", "late_s"), [("srun", 0.4), ("saves", 0.05)])
def test_what_exits_with_0_as_the_job_is_taken_away_has_not_completed(start, folder, tmp_path, program, late_s):
    """The script is told a moment later: `srun` says 0 where Slurm requeues a job before the tasks have begun.

    Any other program may save its state and leave with 0: it is told before the script, which began it.
    """
    srun = tmp_path / program
    srun.write_text(f"#!/bin/sh\necho x >>'{tmp_path}/ran'\n")
    srun.chmod(0o755)
    steps = (Step("a", f"'{srun}' ./prog", post="r/a"), Step("b", "true", post="r/b"))
    process = start(token="t", steps=steps, posted=("r/a", "r/b"))
    until((tmp_path / "ran").exists)
    time.sleep(late_s)
    process.terminate()
    assert done(process)[0] == 143
    assert not (folder.posts / file_name("r/a")).exists()
    assert done(start(token="t", steps=steps, posted=("r/a", "r/b")))[0] == 0
    assert (tmp_path / "ran").read_text() == "x\nx\n"


def test_a_step_that_a_job_has_too_few_cores_for_does_not_begin(start, folder, tmp_path):
    """For example after a requeue of a job that had given cores back."""
    ran = tmp_path / "ran"
    steps = (Step("a", f"echo a >>'{ran}'", tasks=8, post="r/a"), Step("b", f"echo b >>'{ran}'", tasks=28, post="r/b"))
    before = before_steps(JobSpec("x", 28, 60, steps=steps), 28, rises=False)
    slurm = {"SLURM_JOB_CPUS_PER_NODE": "4(x2),2", "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_NODELIST": "n[1-3]"}
    code, _, errors = done(start(token="t", steps=steps, posted=("r/a", "r/b"), before=before, slurm=slurm))
    assert code == JobOutcome.TOO_FEW_CORES.exit_code
    assert "it has 10 cores, and its next step needs 28" in errors
    assert ran.read_text() == "a\n"
    assert folder.ended("7", "t").outcome is JobOutcome.TOO_FEW_CORES


@pytest.mark.parametrize("code", [82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 124])
def test_an_exit_code_is_the_programs_own(start, folder, code):
    assert done(start(f"exit {code}", token="u", shares=True, posted=("x",)))[0] == code
    mark = folder.ended("7", "u")
    assert (mark.exit_code, mark.outcome) == (code, JobOutcome.FAILED)
    assert not (folder.posts / "x").exists()


def test_a_payload_says_how_it_ended(start, folder):
    text = payload_text(Stage("fit", cores=1, command="exit 84", inputs=("no-such-file",)), 1)
    assert done(start(text, token="a", slurm={"ASA_LATENCY_S": "0"}))[0] == JobOutcome.INPUT_MISSING.exit_code
    assert folder.ended("7", "a").outcome is JobOutcome.INPUT_MISSING
    text = payload_text(Stage("fit", cores=1, command="exit 84", inputs=("/",)), 1)
    assert done(start(text, token="b"))[0] == 84
    assert folder.ended("7", "b").outcome is JobOutcome.FAILED
    assert done(start("true", token="c"))[0] == 0
    assert folder.ended("7", "c").outcome is JobOutcome.COMPLETED


def test_what_runs_inside_says_nothing_in_the_name_of_its_job(start, folder):
    """Neither a program nor another client inside it can write marks of the job."""
    text = payload_text(Stage("fit", cores=1, command='[ -z "${ASA_OUTCOME-}" ]', inputs=("/",)), 1)
    assert done(start(text, token="a", slurm={"ASA_OUTCOME": "/tmp/of-another"}))[0] == 0
    assert done(start('[ -z "${ASA_OUTCOME-}" ]', token="b", slurm={"ASA_OUTCOME": "/tmp/of-another"}))[0] == 0


def test_each_step_of_a_wave_says_how_it_ended(start, folder):
    missing = payload_text(Stage("b", cores=1, command="true", inputs=("no-such-file",)), 1)
    steps = (Step("a", "exit 89", post="x/a"), Step("b", missing, post="x/b", beside=True))
    assert done(start(token="t", steps=steps, posted=("x/a", "x/b"), slurm={"ASA_LATENCY_S": "0"}))[0] == 89
    known = {one.index: one.failed.outcome for one in folder.steps("7", "t", 2)}
    assert known == {0: JobOutcome.FAILED, 1: JobOutcome.INPUT_MISSING}
    assert folder.ended("7", "t").outcome is JobOutcome.FAILED


def test_marks_of_earlier_versions_tell_by_their_exit_codes(folder):
    (folder.marks / "a").mkdir()
    (folder.marks / "a" / "ended").write_text("job=7\nhost=n1\ntime=10\ncode=84\nsignals=0\n")
    assert folder.ended("7", "a").outcome is JobOutcome.INPUT_MISSING


def test_without_its_folders_a_job_fails(start, folder, tmp_path):
    shutil.rmtree(folder.posts)
    assert done(start("true", token="a", posted=("x",)))[0] == JobOutcome.UNABLE.exit_code
    shutil.rmtree(folder.marks)
    folder.marks.touch()
    assert done(start(f"touch '{tmp_path}/ran'", token="b"))[0] == JobOutcome.UNABLE.exit_code
    assert not (tmp_path / "ran").exists()
    (tmp_path / "where it works").rmdir()
    assert done(start(f"touch '{tmp_path}/ran'", token="c"))[0] == JobOutcome.UNABLE.exit_code
    assert not (tmp_path / "ran").exists(), "Slurm itself would go to /tmp"


def test_nobody_sees_half_a_mark(start, folder):
    """A reader that reads all the time sees nothing, or the whole mark."""
    process = start(token="a", steps=[Step(f"s{n}", "true") for n in range(20)], posted=("x",))
    seen = 0
    while process.poll() is None:
        for path in folder.marks.glob("a/[!.]*"):
            if not path.is_symlink():
                assert path.read_text().count("\n") >= 3
                seen += 1
    assert done(process)[0] == 0
    assert seen
    assert len(folder.steps("7", "a", 20)) == 20


def test_steps_run_one_after_the_other_until_one_fails(start, folder):
    steps = [Step("it's one", "echo 1"), Step("two", "echo 2; exit 5"), Step("three", "echo 3")]
    code, said, _ = done(start(token="a", steps=steps, posted=("x",)))
    assert (code, said, of_steps(folder)) == (5, "", "1\n2\n")
    told = folder.steps("7", "a", 3)
    assert [one.ended is not None for one in told] == [True, False]
    assert not list(folder.posts.iterdir())
    assert done(start(token="a", steps=[*steps[:1], *steps[2:]]))[:2] == (0, "")
    assert of_steps(folder) == "1\n1\n2\n3\n", "a job that was put back begins anew"
    assert [one.ended is not None for one in folder.steps("7", "a", 3)] == [True, True]


@pytest.mark.parametrize("beside", [False, True])
def test_each_step_writes_to_files_of_its_own(start, folder, beside):
    """What the job's script says of them is in the job's."""
    steps = (Step("a", "echo 1; echo A >&2"), Step("b", "echo 2; echo B >&2", beside=beside))
    code, said, errors = done(start(token="t", steps=steps))
    assert (code, said, sorted(errors.splitlines())) == (0, "", ["asa: step a", "asa: step b"])
    assert {path.name: path.read_text() for path in folder.logs.iterdir()} == {
        "fit.a.7.step-1.out": "1\n", "fit.a.7.step-1.err": "A\n",
        "fit.a.7.step-2.out": "2\n", "fit.a.7.step-2.err": "B\n",
    }  # fmt: skip


@pytest.mark.parametrize("why", ["gone", "link", "pipe"])
def test_a_step_writes_to_the_jobs_files_where_it_can_have_none_of_its_own(start, folder, tmp_path, why):
    """No link is followed, nor is a pipe written to that nobody reads."""
    own = folder.logs / "fit.a.7.step-1.err"
    if why == "gone":
        folder.logs.rmdir()
    elif why == "link":
        (tmp_path / "precious").write_text("it\n")
        own.symlink_to(tmp_path / "precious")
    else:
        os.mkfifo(own)
    code, said, errors = done(start(token="t", steps=(Step("a", "echo 1; echo A >&2"),)))
    assert (code, said, errors.splitlines()) == (0, "1\n", ["asa: step a", "A"])
    assert why != "link" or (tmp_path / "precious").read_text() == "it\n"


@pytest.mark.parametrize("mode", [0o700, 0o750])
def test_who_may_look_at_a_run_may_read_what_steps_wrote(start, folder, mode):
    folder.logs.chmod(mode)
    umask = os.umask(0o077)
    try:
        assert done(start(token="t", steps=(Step("a", "echo 1"),)))[0] == 0
    finally:
        os.umask(umask)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.logs.iterdir()}
    assert modes == {0o640 if mode == 0o750 else 0o600}


@given(st.text(min_size=1).filter(lambda text: text.encode(errors="ignore").decode() == text))
def test_a_tokens_file_tells_the_token(token):
    name = file_name(token)
    assert token_of_file(name) == token
    assert "/" not in name
    assert not name.startswith((".", "-")) or token.startswith("-")
    assert name.isascii()
    assert " " not in name


@given(st.text(), st.sampled_from(["", "a-1"]))
def test_a_jobs_name_is_safe_and_ends_in_its_token(name, token):
    full = job_name(name, token)
    assert full.isascii()
    assert not set(full) & set(" ,'\"/\\|%=\n*")
    assert full.endswith(token)
    assert not full.startswith("-")


@given(st.lists(st.text("ab /'\n.%", min_size=1)), st.booleans())
def test_a_script_tells_what_it_is(names, awaits):
    steps = [Step(name, "true") for name in names]
    folders = Path("/r/marks"), Path("/r/posts")
    payload = Payload("n", "awaits='x'\nsteps='y'", "/w", *folders, awaits=("t/1",) if awaits else (), steps=steps)
    facts = facts_of(batch_script(payload))
    assert (facts["awaits"], facts["steps"]) == (awaits, tuple(names))


# ---- a step's share of its job

HAS = {
    "SLURM_JOB_NODELIST": "n[1-6]",
    "SLURM_JOB_NUM_NODES": "6",
    "SLURM_JOB_CPUS_PER_NODE": "28(x3),4,8(x2)",
    "SLURM_NTASKS": "104",
}
TELLS = "echo $SLURM_NTASKS $SLURM_NPROCS $SLURM_NNODES $SLURM_TASKS_PER_NODE $SLURM_JOB_CPUS_PER_NODE $SLURM_NODELIST"


@pytest.mark.parametrize(
    ("share", "seen"),
    [
        ("1 1 1", "1 1 1 1 1 n1"),
        ("28 1 28", "28 28 1 28 28 n1"),
        ("60 1 60", "60 60 3 28(x2),4 28(x2),4 n1,n2,n3"),
        ("104 1 104", "104 104 6 28(x3),4,8(x2) 28(x3),4,8(x2) n[1-6]"),
        ("11 8 11", "11 11 5 3(x3),1(x2) 24(x3),8(x2) n1,n2,n3,n4,n5"),
        ("12 4 6", "12 12 2 6(x2) 24(x2) n1,n2"),
        ("105 1 105", "104 28(x3),4,8(x2)"),
    ],
)
def test_a_step_sees_what_a_job_of_its_own_would(start, folder, share, seen, tmp_path):
    """If the job has too few cores for it, it sees the job's."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text("#!/bin/sh\nprintf '%s\\n' n1 n2 n3 n4 n5 n6\n")
    (tools / "scontrol").chmod(0o755)
    steps = [Step("a", TELLS), Step("b", f"{TELLS}; echo ${{SLURM_CPUS_PER_TASK-none}}")]
    before = [[f"share {share}"], ["share 104 1 104"]]
    path = f"{tools}:{os.environ['PATH']}"
    code, _, errors = done(start(token="a", path=path, slurm=HAS, steps=steps, before=before))
    assert (code, of_steps(folder).splitlines()) == (
        0,
        [seen, "104 104 6 28(x3),4,8(x2) 28(x3),4,8(x2) n[1-6]", "none"],
    )
    assert ("have not the room for 105 tasks" in errors) == (share == "105 1 105")


@pytest.mark.skipif(shutil.which("bash") is None, reason="functions are bash's")
def test_functions_and_variables_of_any_name_come_through(start, tmp_path):
    """To a script, a command and its processes, even if the batch script's shell drops such names."""
    mine = {"BASH_FUNC_module%%": '() {  echo "module $1"\n}', "folder": "/data", "job": "mine", "my-var": "a b"}
    probe = tmp_path / "probe"
    probe.write_text("#!/bin/bash\nmodule load\necho $folder $job $(env | grep -e my-var -e ASA_ENTRY)\n")
    probe.chmod(0o755)
    seen = "module load\n/data mine my-var=a b\n"
    for stage in (
        Stage("s", cores=1, script=probe.read_text()),
        Stage("s", cores=1, command=f"{shlex.quote(str(probe))}\n:", environment=(("B", ""),)),
        Stage("s", cores=1, command=shlex.quote(str(probe))),
        Stage("s", cores=1, tasks=(shlex.quote(str(probe)),)),
    ):
        assert done(start(payload_text(stage, 1), slurm=carried(mine)))[:2] == (0, seen), stage


@pytest.mark.skipif(shutil.which("bash") is None, reason="functions are bash's")
def test_a_users_function_stands_in_for_no_command_of_the_script(start, folder):
    mine = {f"BASH_FUNC_{name}%%": "() {  echo mine; exit 9\n}" for name in ("mv", "date", "say", "finish", "mark")}
    assert done(start("say; true", token="a", slurm=carried(mine)))[:2] == (9, "mine\n")
    assert folder.ended("7", "a").exit_code == 9


# ---------------------------------------------------------------------- waves of steps

MEET = "touch {own}; n=0; until [ -e {other} ] || [ $n -ge 300 ]; do sleep 0.1; n=$((n + 1)); done; [ -e {other} ]"
"""Only two that run at the same time see each other."""


def meets(own, other):
    return MEET.format(own=own, other=other)


def step(name, command, *, beside=False, **changes):
    return Step(name, command, post=name, beside=beside, **changes)


def names_of(folder, count, *, token="a"):
    """Return the state of each step by its marks: exit code if it failed, True if it completed, None while it runs."""
    marks = folder.steps("7", token, count)
    return {one.index: one.failed.exit_code if one.failed else (True if one.ended else None) for one in marks}


def posted(folder):
    return {one.name for one in folder.posts.iterdir() if not one.name.startswith(".")}


def test_steps_of_a_wave_run_at_the_same_time_and_the_next_one_after_all(start, folder, tmp_path):
    steps = (
        step("first", "echo began >first"),
        step("left", f"[ -e first ] && {meets('left', 'right')}"),
        step("right", f"[ -e first ] && {meets('right', 'left')}; sleep 0.5; echo done >right", beside=True),
        step("last", "grep -q done right"),
    )
    code, _, errors = done(start(token="a", steps=steps, posted=("first", "left", "right", "last")))
    assert code == 0, errors
    assert names_of(folder, 4) == dict.fromkeys(range(4), True)
    assert posted(folder) == {"first", "left", "right", "last"}
    assert folder.ended("7", "a").exit_code == 0


def test_one_that_fails_leaves_the_others_of_its_wave_be_and_nothing_follows(start, folder):
    steps = (
        step("bad", "exit 5"),
        step("good", "sleep 1; echo made >good", beside=True),
        step("after", "echo never >after"),
    )
    code, _, errors = done(start(token="a", steps=steps, posted=("bad", "good", "after")))
    assert code == 5, errors
    assert names_of(folder, 3) == {0: 5, 1: True}
    assert posted(folder) == {"good"}
    assert folder.ended("7", "a").exit_code == 5


def test_a_job_that_is_told_to_end_ends_all_of_its_wave(start, folder, tmp_path):
    steps = tuple(step(name, f"touch began-{name}; exec sleep 60", beside=name != "a") for name in "abc")
    process = start(token="a", steps=steps, posted=("a", "b", "c"))
    work = tmp_path / "where it works"
    until(lambda: all((work / f"began-{name}").exists() for name in "abc"), what="the wave")
    os.kill(process.pid, signal.SIGTERM)
    code, _, errors = done(process)
    assert code == 143, errors
    assert set(names_of(folder, 3).values()) == {143}
    assert posted(folder) == set()


@pytest.mark.parametrize("told", ["USR1", "INT"])
def test_what_a_step_traps_reaches_it_in_a_wave(start, folder, tmp_path, told):
    trap = f"trap 'echo told >told-{{0}}; exit 0' {told}; touch began-{{0}}; while :; do sleep 0.1; done"
    steps = tuple(step(name, trap.format(name), beside=name != "a") for name in "ab")
    process = start(token="a", steps=steps, posted=("a", "b"))
    work = tmp_path / "where it works"
    until(lambda: all((work / f"began-{name}").exists() for name in "ab"), what="the wave")
    os.kill(process.pid, signal.Signals[f"SIG{told}"])
    assert done(process)[0] == 0
    assert all((work / f"told-{name}").exists() for name in "ab")
    assert posted(folder) == {"a", "b"}


def test_one_that_nobody_hands_over_gives_up_alone(start, folder):
    steps = (step("a", "echo a >a"), step("b", "echo b >b", beside=True, awaits=("gate",)))
    folder.posts.mkdir(parents=True, exist_ok=True)
    (folder.posts / (file_name("gate") + REFUSAL)).touch()
    code, _, errors = done(start(token="a", steps=steps, posted=("a", "b")))
    assert code == JobOutcome.GAVE_BACK.exit_code, errors
    assert names_of(folder, 2) == {0: True}
    assert posted(folder) == {"a", "gate~no"}


def test_a_failure_counts_for_more_than_what_nobody_handed_over(start, folder):
    steps = (step("a", "sleep 1; exit 7"), step("b", "true", beside=True, awaits=("gate",)))
    folder.posts.mkdir(parents=True, exist_ok=True)
    (folder.posts / (file_name("gate") + REFUSAL)).touch()
    assert done(start(token="a", steps=steps, posted=("a", "b")))[0] == 7


def test_put_back_into_the_queue_it_runs_what_did_not_complete(start, folder, tmp_path):
    steps = (
        step("a", "echo run >>a"),
        step("b", "echo run >>b; [ -e mended ] || exit 4", beside=True),
        step("c", "echo run >>c"),
    )
    posts = ("a", "b", "c")
    assert done(start(token="a", steps=steps, posted=posts))[0] == 4
    work = tmp_path / "where it works"
    (work / "mended").touch()
    code, _, errors = done(start(token="a", steps=steps, posted=posts))
    assert code == 0, errors
    assert [(work / name).read_text().count("run") for name in "abc"] == [1, 2, 1]
    assert names_of(folder, 3) == dict.fromkeys(range(3), True)


def test_a_superseded_job_runs_nothing_of_a_wave(start, folder):
    (folder.marks / "a").mkdir(parents=True)
    (folder.marks / "a" / "superseded").touch()
    steps = (step("a", "echo a >a"), step("b", "echo b >b", beside=True))
    assert done(start(token="a", steps=steps, posted=("a", "b")))[0] == JobOutcome.DUPLICATE.exit_code


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.full
def test_many_at_a_time(start, folder, count):
    steps = tuple(step(f"s{i}", f"exit {i % 2 * 3}", beside=i > 0) for i in range(count))
    code, _, errors = done(start(token="a", steps=steps, posted=tuple(one.name for one in steps)))
    assert code == 3, errors
    assert names_of(folder, count) == {i: 3 if i % 2 else True for i in range(count)}


def test_private_commands_of_a_wave_do_not_mix(start, folder):
    steps = tuple(step(name, f"{PRIVATE}sleep 0.3; echo {name} >{name}", beside=name != "a") for name in "abc")
    code, _, errors = done(start(token="a", steps=steps, posted=("a", "b", "c")))
    assert code == 0, errors
    assert posted(folder) == {"a", "b", "c"}
