"""The text that a stage's job runs, run by a real shell."""

import os
import re
import shutil
import signal
import string
import subprocess
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slurm_testbed import until

from asa.elements import parse_array
from asa.errors import WorkflowError
from asa.outcome import JobOutcome, meaning
from asa.payload import Share, payload_text
from asa.workflow import Stage

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


def run(stage, folder, *, shell="sh", cores=2, place="", share=None, **environment):
    text = payload_text(stage, cores, folder=str(place) if place else "", share=share)
    environment = {"ASA_LATENCY_S": "0", **environment}
    return subprocess.run(
        [shell, "-c", text], cwd=folder, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60,
        check=False,
    )  # fmt: skip


def stage(**what):
    return Stage("s", cores=2, **what)


def test_a_plain_command_is_left_alone():
    assert payload_text(stage(command="a | b\n"), 2).splitlines()[1:] == ["a | b"]
    assert payload_text(stage(), 2) == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_variables_reach_what_is_run(tmp_path, shell):
    given_ = (("GREETING", "it's $HOME `x` \\n"), ("B", ""))
    done = run(
        stage(command='printf %s "$GREETING|$B|$ASA_STAGE|$ASA_CORES"', environment=given_), tmp_path, shell=shell
    )
    assert done.stdout == "it's $HOME `x` \\n||s|2"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("how", ["command", "script", "tasks", "tasks_file"])
def test_what_is_missing_before_and_after_is_told(tmp_path, shell, how):
    (tmp_path / "list").write_text("touch ran\n")
    what = {"command": "touch ran", "script": "#!/bin/sh\ntouch ran\n", "tasks": ("touch ran",), "tasks_file": "list"}
    one = stage(**{how: what[how]}, inputs=("in *.txt", "deep/"), outputs=("out[12]", "my out"))
    done = run(one, tmp_path, shell=shell)
    assert done.returncode == JobOutcome.INPUT_MISSING.exit_code
    assert "asa: the input in *.txt is missing" in done.stderr
    assert "asa: the input deep/ is missing" in done.stderr
    assert not (tmp_path / "ran").exists()
    (tmp_path / "in a.txt").write_text("x")
    (tmp_path / "in b.txt").write_text("")
    (tmp_path / "deep").mkdir()
    done = run(one, tmp_path, shell=shell)
    assert "the input in b.txt is empty" in done.stderr
    (tmp_path / "in b.txt").write_text("y")
    done = run(one, tmp_path, shell=shell)
    assert (tmp_path / "ran").exists()
    assert done.returncode == JobOutcome.OUTPUT_MISSING.exit_code
    assert "the output out[12] is missing" in done.stderr
    (tmp_path / "out2").write_text("x")
    (tmp_path / "my out").write_text("x")
    assert run(one, tmp_path, shell=shell).returncode == 0


def test_a_failing_command_keeps_its_exit_code(tmp_path):
    assert run(stage(command="exit 3", outputs=("x",)), tmp_path).returncode == 3
    assert run(stage(script="#!/bin/sh -e\nfalse\n"), tmp_path).returncode == 1
    assert run(stage(command="no-such-program-anywhere", outputs=("x",)), tmp_path).returncode == 127
    assert "not found" in meaning(127)


@pytest.mark.parametrize(
    ("name", "words"), [("KILL", "memory ran out"), ("SEGV", "bug"), ("TERM", "asked it to end"), ("XCPU", "")]
)
def test_an_exit_code_tells_which_signal_killed(tmp_path, name, words):
    done = run(stage(command=f"sh -c 'kill -{name} $$'; exit $?", outputs=("x",)), tmp_path)
    assert meaning(done.returncode).startswith(f"killed by SIG{name}")
    assert words in meaning(done.returncode)


@pytest.mark.parametrize("code", [None, 0, 1, 3, 128, 250, 255])
def test_an_exit_code_of_the_commands_own_has_no_meaning(code):
    assert meaning(code) == ""


NAMES = st.text(alphabet=string.ascii_letters + " '\"$`\\;&|<>(){}#~!-é", min_size=1, max_size=12).map(
    lambda s: f"x{s}"
)


@settings(max_examples=25, deadline=None)
@given(name=NAMES)
def test_paths_are_taken_as_they_are(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("paths")
    (folder / name).write_text("x")
    done = run(stage(command="true", inputs=(name,), outputs=(f"./{name}",)), folder)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_run_by_its_own_interpreter_as_it_stands(tmp_path, shell):
    text = "#!/usr/bin/env python3\n#SBATCH -n 4\nimport sys\nprint('''ASA_END\nASA_END\n$HOME''', sys.argv[1:])\n"
    done = run(stage(script=text), tmp_path, shell=shell, TMPDIR=str(tmp_path))
    assert done.stdout == "ASA_END\nASA_END\n$HOME []\n"
    assert list(tmp_path.iterdir()) == [], "nothing is left"


@pytest.mark.parametrize("shell", SHELLS)
def test_tasks_run_side_by_side_and_what_failed_is_named(tmp_path, shell):
    tasks = ("echo a >a; while [ ! -e b ]; do sleep 0.01; done", "echo b >b; while [ ! -e a ]; do sleep 0.01; done",
             "exit 7", "echo 'it''s' \"$ASA_TASK\" >\"c d\"")  # fmt: skip
    done = run(stage(tasks=tasks), tmp_path, shell=shell)
    assert done.returncode == JobOutcome.TASKS_FAILED.exit_code
    assert "asa: task 3 of 4 failed with exit code 7: exit 7" in done.stderr
    assert (tmp_path / "c d").read_text() == "its 4\n"


def test_tasks_take_as_many_cores_as_they_need(tmp_path):
    busy = "mkdir busy || exit 1; sleep 0.05; rmdir busy"
    assert run(Stage("s", cores=4, cpus_per_task=4, tasks=(busy,) * 5), tmp_path, cores=4).returncode == 0


@pytest.mark.parametrize("shell", SHELLS)
def test_a_signal_reaches_the_tasks_that_run_and_the_others_still_begin(tmp_path, shell):
    """As `--signal=B:USR1@60` sends it to each element of a job array, where it is a script's own to handle."""
    (tmp_path / "script").write_text("trap 'echo $1 >>saved; exit' USR1\ntouch up$1\nwhile :; do sleep 0.1; done\n")
    tasks = (
        f"exec env N=1 {shell} script 1",
        f"cd . && exec env N=2 {shell} script 2",
        "echo 3 >>saved",
        "exit 5",
        "echo 4 >>saved",
    )
    text = payload_text(stage(tasks=tasks), 2)
    with subprocess.Popen([shell, "-c", text], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: (tmp_path / "up1").exists() and (tmp_path / "up2").exists())
        time.sleep(0.2)
        process.send_signal(signal.SIGUSR1)
        said = process.communicate(timeout=30)[1]
    assert process.returncode == JobOutcome.TASKS_FAILED.exit_code
    assert sorted((tmp_path / "saved").read_text().split()) == ["1", "2", "3", "4"]
    assert [line for line in said.splitlines() if line.startswith("asa:")] == [
        "asa: task 4 of 5 failed with exit code 5: exit 5"
    ]


@pytest.mark.parametrize("shell", SHELLS)
def test_no_task_begins_once_the_stage_was_told_to_end(tmp_path, shell):
    tasks = ("trap 'echo 1 >>saved; exit' TERM; touch up; while :; do sleep 0.1; done", "echo 2 >>saved")
    text = payload_text(Stage("s", cores=1, tasks=tasks), 1)
    with subprocess.Popen([shell, "-c", text], cwd=tmp_path) as process:
        until((tmp_path / "up").exists)
        time.sleep(0.2)
        process.terminate()
        assert process.wait(30) == 143
    assert (tmp_path / "saved").read_text() == "1\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_no_task_begins_behind_one_that_heard_of_the_end_first(tmp_path, shell):
    """A batch system tells the processes of a job one by one; the shell of the list may hear of it later."""
    text = payload_text(Stage("s", cores=1, tasks=("echo $$ >up; exec sleep 60", "touch second")), 1)
    with subprocess.Popen([shell, "-c", text], cwd=tmp_path) as process:
        until((tmp_path / "up").exists)
        time.sleep(0.2)
        os.kill(int((tmp_path / "up").read_text()), signal.SIGTERM)
        time.sleep(0.3)
        process.terminate()
        assert process.wait(30) == 143
    assert not (tmp_path / "second").exists()


def again(number=1, **what):
    """The next time that a stage is asked for."""
    return Share(number, f"t-{number}", **what)


def completed(place):
    """The tasks of the first round whose completion was noted."""
    logs = [path.read_text() for path in (place / "0" / "logs").glob("*.0")]
    return {int(number) for log in logs for number in re.findall(r":(\d+) 0 ", log)}


def test_tasks_that_completed_in_a_job_that_is_in_doubt_are_run_again_once(tmp_path):
    place = f"{tmp_path}/tasks"
    tasks = tuple(f"echo {number} >>ran; {end}" for number, end in enumerate(("true", "[ -e mended ]")))
    assert run(stage(tasks=tasks), tmp_path, place=place).returncode != 0
    (tmp_path / "mended").touch()
    second = {"place": place, "share": again(in_doubt=("alone",))}
    assert run(stage(tasks=tasks), tmp_path, **second).returncode == 0
    assert run(stage(tasks=tasks), tmp_path, **second).returncode == 0, "as after a requeue"
    assert run(stage(tasks=tasks), tmp_path, place=place, share=again(2, in_doubt=("alone",))).returncode == 0
    assert sorted((tmp_path / "ran").read_text().split()) == ["0", "0", "1", "1"]


def test_tasks_that_completed_are_not_run_again(tmp_path):
    place = tmp_path / "place"
    tasks = ["echo 1 >>ran", "echo 2 >>ran; [ -e mended ]", "echo 3 >>ran"]
    assert run(stage(tasks=tuple(tasks)), tmp_path, place=place).returncode == JobOutcome.TASKS_FAILED.exit_code
    (tmp_path / "mended").touch()
    tasks[2] += "; true"  # another task than before
    assert run(stage(tasks=tuple(tasks)), tmp_path, place=place, share=again()).returncode == 0
    assert sorted((tmp_path / "ran").read_text().split()) == ["1", "2", "2", "3", "3"]


@pytest.mark.parametrize("shell", SHELLS)
def test_tasks_that_completed_in_jobs_of_earlier_versions_are_not_run_again(tmp_path, shell):
    """These noted each in a file of its own, where rounds have their folders now; also while newer ones go on."""
    place = tmp_path / "place"
    place.mkdir()
    ends = ["true"] * 5 + ["[ -e mended ]"]
    tasks = tuple(f"echo {number} >>ran; : ' \\n'  ; {end}" for number, end in enumerate(ends, 1))
    noted = {1: (tasks[0], "old-0"), 2: (tasks[1], "old-1"), 3: ("another", "old-0"), 4: (tasks[3], "")}
    for number, lines in noted.items():
        (place / str(number)).write_text("".join(f"{line}\n" for line in lines))
    (place / ".5").write_text(f"{tasks[4]}\nold-0\n")  # it had begun
    one, what = stage(tasks=tasks), {"place": place, "shell": shell}
    first = run(one, tmp_path, share=again(in_doubt=("old-1",)), **what)
    assert first.returncode == JobOutcome.TASKS_FAILED.exit_code
    assert "asa: task 6 of 6 failed" in first.stderr
    (tmp_path / "mended").touch()
    assert run(one, tmp_path, share=again(2, in_doubt=("old-1",)), **what).returncode == 0
    assert sorted((tmp_path / "ran").read_text().split()) == ["2", "3", "5", "6", "6"]
    (place / "1" / "forgotten").touch()  # as after the second of three, if an output was missing
    assert run(one, tmp_path, share=again(3), **what).returncode == 0
    assert len((tmp_path / "ran").read_text().splitlines()) == 5 + 5


def test_a_task_that_was_told_to_end_has_not_completed(tmp_path):
    """It may have saved its state and left, with exit code 0; what had ended before has."""
    place = tmp_path / "place"
    saves = "echo 2 >>ran; [ ! -e saved ] || exit 0; trap 'touch saved; exit 0' TERM; touch up; sleep 60 & wait"
    one = stage(tasks=("echo 1 >>ran", saves))
    with subprocess.Popen(["sh", "-c", payload_text(one, 2, folder=str(place))], cwd=tmp_path) as process:
        until(lambda: (tmp_path / "up").exists() and completed(place))
        process.terminate()
        assert process.wait(30) == 143
    assert (tmp_path / "saved").exists()
    assert run(one, tmp_path, place=place, share=again()).returncode == 0
    assert sorted((tmp_path / "ran").read_text().split()) == ["1", "2", "2"]


def test_a_task_whose_own_shell_alone_has_heard_of_the_end_has_not_completed(tmp_path):
    """A batch system tells all processes of a job at once, and the shell of the list may hear of it last."""
    place = tmp_path / "place"
    saves = "[ ! -e saved ] || exit 0; trap 'touch saved; exit 0' TERM; echo $PPID $$ >up; sleep 60 & wait"
    one = stage(tasks=("true", saves))
    with subprocess.Popen(["sh", "-c", payload_text(one, 2, folder=str(place))], cwd=tmp_path) as process:
        until(lambda: (tmp_path / "up").exists() and (tmp_path / "up").read_text().endswith("\n"))
        for told in (tmp_path / "up").read_text().split():  # the worker, and its task
            os.kill(int(told), signal.SIGTERM)
        assert process.wait(30) == JobOutcome.TASKS_FAILED.exit_code
    assert (tmp_path / "saved").exists()
    assert completed(place) == {1}
    assert run(one, tmp_path, place=place, share=again()).returncode == 0


@pytest.fixture
def paused(tmp_path):
    """Have pauses after a task's end last until a file `over` is made; return the environment of such a job.

    The file `paused` has a line for each that has begun.
    """
    (tmp_path / "bin").mkdir()
    sleep = tmp_path / "bin" / "sleep"
    sleep.write_text(f"""#!/bin/sh
if [ "$1" = 0.3 ]; then
  echo >>'{tmp_path}/paused'
  until [ -e '{tmp_path}/over' ]; do {shutil.which("sleep")} 0.05; done
  exit
fi
exec {shutil.which("sleep")} "$@"
""")
    sleep.chmod(0o755)
    return os.environ | {"SLURM_JOB_ID": "7", "PATH": f"{sleep.parent}:{os.environ['PATH']}"}


def test_a_task_that_left_just_before_the_rest_of_its_job_was_told_to_end_has_not_completed(tmp_path, paused):
    """Slurm lists processes, then tells one after the other: the list's shells after the task has left."""
    place = tmp_path / "place"
    one = stage(tasks=("touch up; until [ -e go ]; do sleep 0.05; done",))
    command = ["sh", "-c", payload_text(one, 2, folder=str(place))]
    with subprocess.Popen(command, cwd=tmp_path, env=paused, start_new_session=True) as process:
        until((tmp_path / "up").exists)
        ps = ["ps", "-s", str(process.pid), "-o", "pid="]
        listed = subprocess.run(ps, capture_output=True, text=True, check=True)
        (tmp_path / "go").touch()
        until((tmp_path / "paused").exists)
        for pid in map(int, listed.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        (tmp_path / "over").touch()
        assert process.wait(30) == 143
    assert completed(place) == set()


def test_a_task_that_completed_just_before_its_job_was_told_to_end_has_completed(tmp_path, paused):
    """What runs in its place by then is told, too."""
    place = tmp_path / "place"
    one = stage(tasks=("touch left", "sleep 60"))
    command = ["sh", "-c", payload_text(one, 2, folder=str(place))]
    with subprocess.Popen(command, cwd=tmp_path, env=paused, start_new_session=True) as process:
        until((tmp_path / "paused").exists)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(30) == 143
    assert completed(place) == {1}


def test_many_tasks_that_complete_together_share_a_few_pauses(tmp_path, paused):
    """In each pause a program runs, which costs more CPU time than a short task."""
    place = tmp_path / "place"
    one = stage(tasks=("echo >>ran",) * 20)
    command = ["sh", "-c", payload_text(one, 2, folder=str(place))]
    with subprocess.Popen(command, cwd=tmp_path, env=paused) as process:
        until(lambda: (tmp_path / "ran").exists() and (tmp_path / "ran").stat().st_size == 20)
        until((tmp_path / "paused").exists)
        assert (tmp_path / "paused").stat().st_size <= 8
        assert completed(place) == set()
        (tmp_path / "over").touch()
        assert process.wait(30) == 0
    assert completed(place) == set(range(1, 21))


@pytest.mark.parametrize("how", ["script", "tasks", "tasks_file"])
def test_what_cannot_be_written_down_whole_is_not_run(tmp_path, how):
    """Where a node's disk is full: rather than the part for which there was space."""
    (tmp_path / "list").write_text("touch ran\ntouch ran\n")
    what = {"script": "#!/bin/sh\ntouch ran\n", "tasks": ("touch ran", "touch ran"), "tasks_file": "list"}
    cat = tmp_path / "bin" / "cat"
    cat.parent.mkdir()
    cat.write_text("#!/bin/sh\nhead -n 1\necho 'cat: write error: No space left on device' >&2\nexit 1\n")
    cat.chmod(0o755)
    done = run(stage(**{how: what[how]}), tmp_path, PATH=f"{cat.parent}:{os.environ['PATH']}")
    assert done.returncode == 87
    assert "No space left" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_tasks_whose_output_is_missing_are_run_again(tmp_path):
    """One exited with 0 and made nothing: it is not known which."""
    place = tmp_path / "place"
    one = stage(tasks=("echo 1 >>ran; [ ! -e mended ] || echo x >out", "echo 2 >>ran"), outputs=("out",))
    assert run(one, tmp_path, place=place).returncode == JobOutcome.OUTPUT_MISSING.exit_code
    (tmp_path / "mended").touch()
    assert run(one, tmp_path, place=place, share=again()).returncode == 0
    assert sorted((tmp_path / "ran").read_text().split()) == ["1", "1", "2", "2"]


@pytest.mark.parametrize("path", ["late", "a folder/of its own/late", "a folder/l*"])
@pytest.mark.parametrize("way", ["inputs", "outputs"])
def test_what_comes_late_is_waited_for(tmp_path, way, path):
    """As a file may that another node has written; its folder, too."""
    comes = 'sleep 1.2; mkdir -p "a folder/of its own"; for f in late "a folder/late" "a folder/of its own/late"; do'
    with subprocess.Popen(["sh", "-c", f'{comes} echo x >"$f"; done'], cwd=tmp_path):
        one = stage(command="true", input_patience_s=30.0, **{way: (path,)})
        done = run(one, tmp_path, ASA_LATENCY_S="")
    assert done.returncode == 0
    assert re.search(r"is missing; looking again for (30|2\d) s", done.stderr)


def test_what_does_not_come_is_waited_for_as_long_as_the_stage_says_and_half_its_walltime_at_most(tmp_path):
    for patience_s, walltime_s in ((2.0, 3600.0), (60.0, 4.0)):
        began_s = time.monotonic()
        one = stage(command="true", inputs=("in",), input_patience_s=patience_s, walltime_s=walltime_s)
        assert run(one, tmp_path, ASA_LATENCY_S="").returncode == JobOutcome.INPUT_MISSING.exit_code
        assert 1 <= time.monotonic() - began_s < 8
    assert (
        run(replace(one, input_patience_s=0.0), tmp_path, ASA_LATENCY_S="").stderr == "asa: the input in is missing\n"
    )
    assert "asa_look_s=60" in payload_text(stage(command="true", inputs=("in",)), 1)


@pytest.mark.parametrize(("patience_s", "look_s"), [(None, 5), (2.0, 2), (3600.0, 5)])
def test_an_element_that_takes_turns_looks_for_files_for_half_of_its_own_time_at_most(patience_s, look_s):
    """Else it would run out of time before it said what is missing."""
    tasks = tuple(map(str, range(1, 55)))
    one = stage(command="cat in.%a", array=parse_array("1-54"), inputs=("in.%a",), walltime_s=600.0)
    text = payload_text(replace(one, tasks=tasks, jobs=(1, 1), input_patience_s=patience_s), 1)
    assert "asa_limit_s=10\n" in text
    assert f"asa_look_s={look_s}" in text


def test_a_list_of_tasks_that_comes_late_is_waited_for(tmp_path):
    with subprocess.Popen(["sh", "-c", "sleep 1.2; echo 'echo x >did' >list"], cwd=tmp_path):
        done = run(stage(tasks_file="list", input_patience_s=30.0), tmp_path, ASA_LATENCY_S="")
    assert done.returncode == 0
    assert (tmp_path / "did").exists()


def test_several_nodes_share_the_tasks_and_one_that_does_not_see_them_fails(tmp_path):
    """By a stand-in for srun that runs a process for each node."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(
        '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\ncode=0 nodes=\n'
        "for SLURM_PROCID in 0 1 2; do\n"
        '  export SLURM_PROCID; [ "$SLURM_PROCID" -ne 1 ] || eval "$BEFORE"; "$@" & nodes="$nodes $!"\n'
        'done\nfor node in $nodes; do wait "$node" || code=$?; done\nexit $code\n'
    )
    srun.chmod(0o755)
    node = {"SLURM_JOB_NUM_NODES": "3", "SLURM_NTASKS": "3", "SLURM_CPUS_ON_NODE": "4"}
    node["PATH"] = f"{srun.parent}:{os.environ['PATH']}"
    all_run = "until [ $(cat ran.* | wc -l) -ge 10 ]; do sleep 0.05; done"
    tasks = tuple(f"echo {n} >>ran.$SLURM_PROCID; {all_run}" for n in range(10))
    assert run(stage(tasks=tasks), tmp_path, place=tmp_path / "place", BEFORE="true", **node).returncode == 0
    shares = [(tmp_path / f"ran.{rank}").read_text().split() for rank in range(3)]
    assert sorted(int(number) for share in shares for number in share) == list(range(10))
    assert max(map(len, shares)) <= 4
    hide = f"wait $nodes; mv {tmp_path}/other {tmp_path}/hidden"
    done = run(stage(tasks=("true",) * 10), tmp_path, place=tmp_path / "other", BEFORE=hide, **node)
    assert done.returncode == JobOutcome.UNABLE.exit_code
    assert "no list of tasks on" in done.stderr


def test_what_another_node_wrote_last_may_be_seen_late(tmp_path):
    """By a stand-in for srun, after which the end of the second task is in the log a while later."""
    log, whole = tmp_path / "place" / "0" / "logs" / "alone.1.0", tmp_path / "whole"
    late = f"cp {log} {whole}; head -n 1 {whole} >{log}; (sleep 1.5; cp {whole} {log}) &"
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(f'#!/bin/sh\nwhile [ "${{1#--}}" != "$1" ]; do shift; done\nSLURM_PROCID=0 "$@" || exit\n{late}\n')
    srun.chmod(0o755)
    nodes = {"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "2", "SLURM_CPUS_ON_NODE": "1"}
    nodes["PATH"] = f"{srun.parent}:{os.environ['PATH']}"
    done = run(stage(tasks=("true", "true")), tmp_path, place=tmp_path / "place", **nodes)
    assert (done.returncode, done.stderr) == (0, "")


def test_text_in_brackets_of_a_path_runs_nothing(tmp_path):
    done = run(stage(command="true", inputs=("a[$(touch hacked)].txt", "x[a b].fits", "out[1;2].dat")), tmp_path)
    assert done.returncode == JobOutcome.INPUT_MISSING.exit_code
    assert "the input out[1;2].dat is missing" in done.stderr
    assert not (tmp_path / "hacked").exists()


def test_a_list_of_tasks_is_read_when_the_stage_begins(tmp_path):
    one = stage(tasks_file="my list")
    assert run(one, tmp_path).returncode == JobOutcome.INPUT_MISSING.exit_code
    (tmp_path / "my list").write_text("# a comment\n\n  \n")
    done = run(one, tmp_path)
    assert (done.returncode, done.stderr) == (JobOutcome.INPUT_MISSING.exit_code, "asa: the list of tasks is empty\n")
    (tmp_path / "my list").write_text("# a comment\n\ntouch 'a b'\ntouch c")
    assert run(one, tmp_path).returncode == 0
    assert (tmp_path / "a b").exists()
    assert (tmp_path / "c").exists()


@pytest.mark.full
def test_a_thousand_tasks_are_run(tmp_path):
    place = tmp_path / "place"
    done = run(stage(tasks=tuple(f"echo {n} >>n{n % 7}" for n in range(1000))), tmp_path, place=place)
    assert done.returncode == 0, done.stderr
    told = [line for k in range(7) for line in (tmp_path / f"n{k}").read_text().split()]
    assert sorted(map(int, told)) == list(range(1000))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"command": "a", "script": "b"}, "has command and script"),
        ({"tasks": ("a\nb",)}, "not one line"),
        ({"tasks": (" ",)}, "not one line"),
        ({"environment": (("A B", ""),)}, "not a variable name"),
        ({"retries": -1}, "retries"),
        ({"retry_walltime_factor": 0.5}, "0.5 times the walltime"),
        ({"cpus_per_task": 3}, "tasks of 3"),
        ({"input_size": float("nan")}, "size"),
    ],
)
def test_what_makes_no_sense_is_refused(what, message):
    with pytest.raises(WorkflowError, match=message):
        stage(**what)


def test_a_list_has_completed_only_if_each_of_its_tasks_has(tmp_path):
    """`srun` says 0, too, where Slurm takes its step away before the tasks have begun."""
    (tmp_path / "srun").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "srun").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    two_nodes = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_CPUS_PER_NODE": "2(x2)", "PATH": path}
    done = run(stage(tasks=("true", "true")), tmp_path, place=tmp_path / "place", **two_nodes)
    assert done.returncode == JobOutcome.TASKS_FAILED.exit_code
    assert "2 of 2 tasks did not end" in done.stderr
