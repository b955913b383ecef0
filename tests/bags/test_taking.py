"""Jobs that take tasks from one bag, as real shells: each task runs once to its end, whichever job is killed."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from slurm_testbed import until

from asa.bags import Bag, chunks
from asa.elements import Array, Elements
from asa.job import text as job_text
from asa.outcome import JobOutcome
from asa.payload import Share, payload_text
from asa.workflow import Stage

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


class Place:
    """A bag, and jobs that take from it; each task writes a line when it begins, and one when it ends."""

    def __init__(self, root, shell="sh"):
        self.root, self.shell, self.bag = root, shell, root / "tasks" / "s"
        self.jobs = []

    def begin(self, taker, tasks, *, number=0, cores=2, jobs=3, environment=(), in_doubt=(), **what):
        stage = Stage("s", cores=cores, tasks=tuple(tasks), **what)
        text = payload_text(stage, cores, folder=str(self.bag), share=Share(number, taker, jobs, in_doubt))
        job = subprocess.Popen(
            [self.shell, "-c", text], cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, env={**os.environ, "ASA_LATENCY_S": "0", **dict(environment)},
        )  # fmt: skip
        self.jobs.append(job)
        return job

    def task(self, seconds=0.05, end="exit 0"):
        did = f"$ASA_TASK >>{self.root}/did"
        return f"echo b{did}; sleep {seconds} >/dev/null 2>&1; echo e{did}; {end}"

    def waiting(self):
        """Make a task that does not end before `let_go`."""
        did = f"$ASA_TASK >>{self.root}/did"
        return f"echo b{did}; until [ -e {self.root}/go ]; do sleep 0.05; done; echo e{did}"

    def let_go(self, running=1):
        """Have these tasks end once so many run."""
        until(lambda: len(self.did("b")) >= running, what=f"{running} tasks that run")
        (self.root / "go").touch()

    def did(self, kind):
        path = self.root / "did"
        words = path.read_text().split() if path.exists() else []
        return Counter(int(word[1:]) for word in words if word[0] == kind)

    def kill(self, job):
        """Kill all that belongs to a job."""
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()

    def folder(self, number=0):
        return self.bag / str(number)

    def noted(self, start):
        """The tasks whose end a start of a job has noted in its log."""
        return {int(n) for n in re.findall(r":(\d+) ", (self.folder() / "logs" / start).read_text())}


@pytest.fixture(params=SHELLS)
def place(tmp_path, request):
    one = Place(tmp_path, request.param)
    yield one
    for job in one.jobs:
        if job.poll() is None:
            one.kill(job)


def paused(processes):
    """Whether a task has ended, but may have been killed."""
    return any(arguments.endswith("sleep 0.3") for arguments in processes.values())


def ended(job, within_s=60):
    output, _ = job.communicate(timeout=within_s)
    return job.returncode, output


def once(count):
    return dict.fromkeys(range(1, count + 1), 1)


def test_several_jobs_run_each_task_once(place):
    jobs = [place.begin(f"t-{j}", [place.waiting()] * 60) for j in range(3)]
    place.let_go(running=6)  # each of them two
    codes = [ended(job)[0] for job in jobs]
    assert 0 in codes
    assert set(codes) <= {0, JobOutcome.PART_DONE.exit_code}
    assert place.did("b") == place.did("e") == once(60)
    assert all((place.folder() / "logs" / f"t-{j}.1.0").stat().st_size for j in range(3)), "who takes part has a share"
    progress = Bag(place.bag).progress()
    assert (progress.tasks, progress.completed, progress.failed, progress.running, progress.left) == (60, 60, 0, 0, 0)


def test_who_did_what_is_told(place):
    """What was interrupted, and given back, is nobody's deed."""
    began_s = time.time()
    tasks = [place.task(0.2, "exit 3" if number == 5 else "exit 0") for number in range(24)]
    jobs = [place.begin(f"t-{j}", tasks) for j in range(2)]
    until(lambda: len(place.did("e")) >= 3)
    jobs[0].send_signal(signal.SIGTERM)
    assert ended(jobs[0])[0] == 143
    assert ended(jobs[1])[0] == JobOutcome.TASKS_FAILED.exit_code
    bag = Bag(place.bag)
    deeds = bag.deeds()
    assert [one.token for one in deeds] in (["t-0", "t-1"], ["t-1", "t-0"])
    assert sum(len(one.exit_codes) for one in deeds) == 24
    assert sorted(code for one in deeds for code in one.exit_codes.tolist()) == [0] * 23 + [3]
    for one in deeds:
        assert (
            (one.ended_s - one.began_s >= 0.18) & (one.began_s > began_s - 1) & (one.ended_s < time.time() + 1)
        ).all()
    assert [bag.did(0, token) for token in ("t-0", "t-1", "t-2", "t")] == [True, True, False, False]
    assert not bag.did(1, "t-0")
    assert Bag(place.root / "nowhere").deeds() == []


def counting_pauses(place):
    """Have pauses of a second, which follow a look, counted; give the environment for that."""
    tools = place.root / "bin"
    tools.mkdir()
    (tools / "sleep").write_text(f'#!/bin/sh\necho "$1" >>{place.root}/slept\nexec {shutil.which("sleep")} "$@"\n')
    (tools / "sleep").chmod(0o755)
    return {"PATH": f"{tools}:{os.environ['PATH']}"}.items()


def pauses(place):
    slept = place.root / "slept"
    return slept.read_text().split().count("1") if slept.exists() else 0


@pytest.mark.full
def test_few_files_are_made_for_many_tasks(tmp_path):
    place = Place(tmp_path)
    assert ended(place.begin("t", [":"] * 2000, jobs=1))[0] == 0
    assert sum(len(files) for _, _, files in os.walk(place.bag)) < 100
    assert len(list(chunks(1_000_000, 224))) < 2300


def test_who_comes_late_finds_nothing_and_ends_at_once(place):
    """It does not even pause before it looks again."""
    counted = counting_pauses(place)
    assert ended(place.begin("t-0", [place.task()] * 4))[0] == 0
    assert ended(place.begin("t-1", [place.task()] * 4, environment=counted))[0] == 0
    assert place.did("b") == once(4)
    slow = place.begin("t-0", [place.task(600)], number=1)  # other text: it is another task
    until((place.folder(1) / "claims" / "1").is_symlink)
    code, output = ended(place.begin("t-1", [place.task(600)], number=1, environment=counted))
    assert pauses(place) == 0
    assert code == JobOutcome.PART_DONE.exit_code
    assert "none of the 1 tasks is left to take, and others run 1" in output
    assert slow.poll() is None


def test_what_a_killed_job_had_taken_is_run_by_others(place):
    tasks = [place.task(0.3)] * 24
    victim = place.begin("t-0", tasks)
    until(lambda: len(place.did("e")) >= 2)
    other = place.begin("t-1", tasks)
    until((place.folder() / "takers" / "t-1.1").is_symlink)
    place.kill(victim)
    noted = place.noted("t-0.1.0")
    assert Bag(place.bag).give_back(0, "t-0")
    assert Bag(place.bag).give_back(0, "t-0"), "once more does nothing"
    assert ended(other)[0] == 0
    again = {task for task, times in place.did("b").items() if times > 1}
    assert set(place.did("e")) == set(once(24))
    assert len(again) <= 2, "what its two workers ran"
    assert again.isdisjoint(noted), "what had ended"
    assert Bag(place.bag).progress().completed == 24


def test_who_is_told_to_end_gives_back_by_itself(place):
    tasks = [place.task(0.3)] * 24
    victim, other = (place.begin(f"t-{j}", tasks) for j in range(2))
    until(lambda: len(place.did("e")) >= 4)
    victim.send_signal(signal.SIGTERM)
    assert ended(victim)[0] == 143
    assert (place.folder() / "returned" / "t-0.1.0").exists()
    assert ended(other)[0] == 0
    assert place.did("e") == once(24)
    assert Bag(place.bag).progress().completed == 24


def processes_of(job):
    """A job's processes, by what they run, as Slurm lists them before it signals each: children first."""
    listed = subprocess.run(
        ["ps", "-s", str(job.pid), "-o", "pid=,args=", "--sort=-pid"], capture_output=True, text=True, check=True
    ).stdout
    return {int(line.split(None, 1)[0]): line.split(None, 1)[1] for line in listed.splitlines()}


def has_ended(pid):
    with suppress(FileNotFoundError, ProcessLookupError):
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    return True


def tell_all(pids):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


@pytest.mark.full
def test_a_task_that_completed_just_before_its_job_is_ended_is_not_run_again(place):
    many = 30  # one after the other: who looks may miss some of the pauses that follow a task
    job = place.begin("t-0", [place.task(0.2)] * many, cores=1, jobs=1, environment={"SLURM_JOB_ID": "1"}.items())

    def listed_in_a_pause():
        before, listed = place.did("e"), processes_of(job)
        return (set(before), listed) if before and paused(listed) and place.did("e") == before else None

    completed, listed = until(listed_in_a_pause)
    tell_all(listed)
    assert ended(job)[0] == 143
    assert place.noted("t-0.1.0") >= completed
    assert ended(place.begin("t-1", [place.task(0)] * many))[0] == 0
    assert {place.did("e")[number] for number in completed} == {1}


def test_a_task_that_saves_its_state_as_its_job_is_ended_is_run_again(place):
    """It is signalled first, and leaves with 0 before the job hears of the signal."""
    task = f"trap 'kill $!; exit 0' TERM; echo b$ASA_TASK >>{place.root}/did; sleep 30 >/dev/null 2>&1 & wait; echo e"
    job = place.begin("t-0", [task] * 2, cores=1, jobs=1, environment={"SLURM_JOB_ID": "1"}.items())
    until(lambda: place.did("b")[1])
    listed = processes_of(job)
    [own] = [pid for pid, arguments in listed.items() if " -c -- trap" in arguments]
    tell_all([own])
    while not has_ended(own):
        time.sleep(0.001)
    tell_all(listed)
    assert ended(job)[0] == 143
    assert place.noted("t-0.1.0") == set()


def test_an_idle_worker_takes_what_is_given_back(place):
    """Its job runs one long task, and has a worker for what another leaves: it looks once a second."""
    tasks = [place.task(60), place.task(60), place.task(0)]
    victim = place.begin("t-0", tasks, cores=1)
    until(lambda: place.did("b")[1])
    place.begin("t-1", tasks)
    until(lambda: place.did("e")[3])
    victim.send_signal(signal.SIGTERM)
    assert ended(victim)[0] == 143
    until(lambda: place.did("b")[1] == 2)


def test_a_job_that_was_requeued_gives_back_what_it_had_before(place):
    tasks = [place.task(0.2)] * 10
    before = place.begin("t-0", tasks)
    until(lambda: len(place.did("e")) >= 2)
    place.kill(before)
    noted = place.noted("t-0.1.0")
    assert ended(place.begin("t-0", tasks))[0] == 0
    again = {task for task, times in place.did("b").items() if times > 1}
    assert set(place.did("e")) == set(once(10))
    assert len(again) <= 2, "what its two workers ran, or had not noted the end of"
    assert again.isdisjoint(noted), "what had ended"


def test_a_dead_job_that_lives_begins_nothing_more_and_does_not_count(place):
    """The batch system was wrong: what runs there goes on, and its repetition is what counts."""
    tasks = [place.waiting()] * 6
    zombie = place.begin("t-0", tasks, cores=1, jobs=1)
    until(lambda: place.did("b"))
    assert Bag(place.bag).give_back(0, "t-0")
    place.let_go()
    assert ended(zombie)[0] == JobOutcome.PART_DONE.exit_code
    assert sum(place.did("b").values()) == 1
    assert Bag(place.bag).progress().completed == 0
    assert ended(place.begin("t-1", tasks, cores=6))[0] == 0
    assert Bag(place.bag).progress().completed == 6


def test_a_retry_repeats_what_failed_only(place):
    tasks = [place.task(0, "exit $((ASA_TASK % 5 == 0 && ! TRIED))")] * 20
    code, output = ended(place.begin("t-0", tasks, environment={"TRIED": "0"}.items()))
    assert code == JobOutcome.TASKS_FAILED.exit_code
    assert "asa: task 5 of 20 failed with exit code 1" in output
    assert Bag(place.bag).progress().failed == 4
    code, output = ended(place.begin("t-1", tasks, number=1, environment={"TRIED": "0"}.items()))
    assert "asa: task 20 of 20 failed with exit code 1" in output
    assert ended(place.begin("t-2", tasks, number=2, environment={"TRIED": "1"}.items()))[0] == 0
    assert place.did("e") == once(20) | dict.fromkeys((5, 10, 15, 20), 3)
    assert Bag(place.bag).progress().completed == 20


def test_after_a_failure_of_what_it_was_to_make_all_is_repeated(place):
    tasks = [place.task(0)] * 3
    assert ended(place.begin("t-0", tasks, outputs=("made",)))[0] == JobOutcome.OUTPUT_MISSING.exit_code
    (place.root / "made").write_text("x")
    assert ended(place.begin("t-1", tasks, number=1, outputs=("made",)))[0] == 0
    assert place.did("e") == dict.fromkeys((1, 2, 3), 2)


def test_who_comes_late_needs_no_inputs(place):
    (place.root / "in").write_text("x")
    tasks = [place.task(0, "rm -f in")] * 3
    assert ended(place.begin("t-0", tasks, inputs=("in",)))[0] == 0
    assert ended(place.begin("t-1", tasks, inputs=("in",)))[0] == 0


def test_a_list_that_changes_while_jobs_come_is_that_of_the_first(place):
    (place.root / "list").write_text("# tasks\n" + f"{place.task(0.2)}\n\n" * 8)
    first = place.begin("t-0", (), tasks_file="list")
    until(lambda: place.did("b"))
    (place.root / "list").write_text("exit 7\n")
    assert {ended(place.begin("t-1", (), tasks_file="list"))[0], ended(first)[0]} <= {0, JobOutcome.PART_DONE.exit_code}
    assert place.did("e") == once(8)


def test_while_nothing_is_there_to_take_it_looks_once_a_second(place):
    """A look is followed by a pause, which is counted here."""
    counted = counting_pauses(place)
    began_s = time.monotonic()
    job = place.begin("t-0", [place.waiting(), place.task(0)], environment=counted)
    until(lambda: pauses(place) >= 3)
    place.let_go()
    assert ended(job)[0] == 0
    assert pauses(place) <= time.monotonic() - began_s + 1


def test_tasks_have_the_cores_that_they_ask_for(place):
    did = place.root / "at-once"
    task = f"echo + >>{did}; sleep 0.3; echo - >>{did}"
    assert ended(place.begin("t-0", [task] * 6, cores=4, cpus_per_task=2, jobs=1))[0] == 0
    now = most = 0
    for sign in did.read_text().split():
        now += 1 if sign == "+" else -1
        most = max(most, now)
    assert most == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_on_a_full_disk_no_end_is_lost(tmp_path):
    """What ended is known, what could not be noted beforehand is not begun, and all is run once there is space."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", small], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("it may not be mounted here")
    try:
        place = Place(tmp_path)
        place.bag = small / "s"
        job = place.begin("t-0", [place.task(0.2)] * 40)
        until(lambda: len(place.did("e")) >= 4)
        with (small / "fill").open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        # the log's last page has room: more ends than fit into it
        log = place.folder() / "logs" / "t-0.1.0"
        with log.open("ab", buffering=0) as file:
            file.write(b"\n" * (4095 - log.stat().st_size % 4096))
        code, output = ended(job)
        assert (code, "the disk is full" in output) == (87, True)
        known = Bag(place.bag).progress().completed
        assert known == len(place.did("e")) < 40
        (small / "fill").unlink()
        assert ended(place.begin("t-1", [place.task(0.2)] * 40, number=1))[0] == 0
        assert place.did("e") == once(40)
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_what_a_job_did_that_is_in_doubt_is_run_again_in_the_next_round(place):
    """That of others is not, nor what another did of it since."""
    tasks = [place.waiting()] * 8
    first, second = (place.begin(taker, tasks, jobs=2) for taker in ("one", "one-1"))
    place.let_go(running=4)  # each of them two
    assert [ended(job)[0] for job in (first, second)].count(0) >= 1
    doubted = place.noted("one.1.0")
    assert 0 < len(doubted) < 8
    assert ended(place.begin("two", tasks, number=1, in_doubt=("one",)))[0] == 0
    assert place.did("e") == once(8) | dict.fromkeys(doubted, 2)
    assert ended(place.begin("three", tasks, number=2, in_doubt=("one",)))[0] == 0
    assert place.did("e") == once(8) | dict.fromkeys(doubted, 2)


LIKE_IN_A_SHELL = (
    "printf %s,%s a,b", "./here 1  2", "here  3", "true", "false", "echo a  b", "test -e nothing", "exit 3", "a=4 here",
    "a=b", "no-such-program x", "./no-such-file", "./text", "./text x", ". ./text", "cd /", "time true", "if", "/", ":",
    "./here 'a b'", "./here $ASA_STAGE", "./here *ext", "./here ~", "./here #1", " here 5 ", "-x", "%1", "./ends",
    "./here a;./here b", "unset HOME", "asa_now", "command here", "./here [x]", "./here {a,b}", "./here a\\ b",
    "./here é",
)  # fmt: skip


@pytest.mark.parametrize("shell", SHELLS)
def test_a_task_means_what_a_shell_takes_it_for(tmp_path, shell):
    """Whether or not it needs one: output, exit code, and arguments are those of `sh -c`."""
    place = Place(tmp_path, shell)
    for name, text in {"here": '#!/bin/sh\nprintf "<%s>" "$@" "$a"\n', "ends": "#!/bin/sh\nkill -9 $$\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "text").write_text("echo text\n")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "/home/of/me", "LC_ALL": "C.UTF-8"}
    for each in LIKE_IN_A_SHELL:
        place.bag = tmp_path / "bags" / str(len(place.jobs))
        _, printed = ended(place.begin("t", [each], cores=1, jobs=1, environment=environment.items()))
        [deeds] = Bag(place.bag).deeds()
        alone = subprocess.run(
            [*{"dash": ["sh"], "bash": ["bash", "--posix"]}[shell], "-c", "--", each], cwd=tmp_path, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
            env={**os.environ, **environment, "ASA_STAGE": "s"},
        )  # fmt: skip
        code = alone.returncode if alone.returncode >= 0 else 128 - alone.returncode
        assert deeds.exit_codes.tolist() == [code], each
        assert alone.stdout in printed, each


def test_only_a_task_that_needs_a_shell_has_one_and_no_signal_is_ignored(place):
    who = "#!/bin/sh\ntr '\\0' ' ' </proc/$PPID/cmdline >parent.$1\ngrep SigIgn /proc/$$/status >>ignored\n"
    (place.root / "who").write_text(who)
    (place.root / "who").chmod(0o755)
    assert ended(place.begin("t", ["./who 1", "./who 2; true"], cores=1, jobs=1))[0] == 0
    parents = [(place.root / f"parent.{number}").read_text() for number in (1, 2)]
    assert [" asa-worker " in parent for parent in parents] == [True, False]
    assert "-c -- ./who 2; true" in parents[1]
    ignored = {int(one, 16) for one in (place.root / "ignored").read_text().split()[1::2]}
    [inherited] = re.findall(r"SigIgn:\s(\w+)", Path("/proc/self/status").read_text())  # such as glibc's own, 32
    assert not any(one & ~int(inherited, 16) for one in ignored)
    assert not any(one & 1 << signal.SIGPIPE - 1 for one in ignored), "Python ignores it, and what it starts does not"


@pytest.mark.parametrize("sent", ["USR1", "INT"])
def test_a_signal_reaches_what_workers_run(place, sent):
    """Also a program that has no shell of its own."""
    heed = f"#!/bin/sh\ntrap 'echo $1 >>heard; exit 0' {sent}\necho b$1 >>did\nwhile :; do sleep 0.05; done\n"
    (place.root / "heed").write_text(heed)
    (place.root / "heed").chmod(0o755)
    job = place.begin("t", ["./heed 1", "exec ./heed 2"], jobs=1)
    until(lambda: len(place.did("b")) == 2)
    job.send_signal(getattr(signal, f"SIG{sent}"))
    code, printed = ended(job)
    assert code == (143 if sent == "INT" else 0)
    assert "not a child" not in printed
    assert sorted((place.root / "heard").read_text().split()) == ["1", "2"]


def test_workers_do_not_outlive_who_hands_out_tasks(place):
    job = place.begin("t", [place.waiting()] * 4, jobs=1)
    until(lambda: len(place.did("b")) == 2)
    [taker] = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(taker), signal.SIGKILL)
    place.let_go()
    ended(job, 10)  # all that have its output open
    assert place.did("b") == once(2)


def test_how_an_element_ended_is_its_own_though_its_worker_runs_the_next_one_already(place):
    """In Slurm a worker goes on while it becomes clear whether a task was interrupted; here that is read slowly."""
    (place.root / "bin").mkdir()
    slow = place.root / "bin" / "readlink"
    slow.write_text(f'#!/bin/sh\nsleep 0.5\nexec {shutil.which("readlink")} "$@"\n')
    slow.chmod(0o755)
    stage = Stage(
        "s", cores=1, command="exit 7", array=Array(Elements.of(range(1, 3))), inputs=("in.%a",), input_patience_s=0.0
    )
    text = payload_text(stage.in_turn(1, 1), 1, folder=str(place.bag), share=Share(0, "t", 1))
    (place.root / "in.1").write_text("here")
    environment = {"SLURM_JOB_ID": "7", "ASA_JOB_ID": "1@here", "ASA_LATENCY_S": "0"}
    environment = os.environ | environment | {"PATH": f"{slow.parent}:{os.environ['PATH']}"}
    subprocess.run(
        [place.shell, "-c", text], cwd=place.root, env=environment, capture_output=True, check=False, timeout=60
    )
    log = (place.folder() / "logs" / "t.1.0").read_text()
    assert {line.split()[0]: line.split()[4] for line in log.splitlines()} == {":1": "failed;", ":2": "input-missing;"}


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_remembered_of_programs_does_not_grow_with_a_list(shell):
    """Each task searches it."""
    code = f"""asa_inside= asa_in_sh= asa_sh=sh\n{job_text("tasks-start")}
        command() {{ echo "$2"; }}
        for number in $(seq 2000); do asa_is_plain "./tasks/$number" && asa_is_plain "./tasks/$number x" || exit 1; done
        echo "${{#asa_programs}}" """
    done = subprocess.run([shell, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 5000
