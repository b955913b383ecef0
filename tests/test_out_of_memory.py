"""Processes killed for lack of memory, by the kernel's counts in a job of Slurm."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from asa.backends.shell.marks import MarksFolder
from asa.backends.shell.script import Payload, batch_script

from asa.backend import Step
from asa.bags import Bag
from asa.job import text as of_job
from asa.outcome import JobOutcome
from asa.payload import Share, payload_text
from asa.workflow import Stage

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]
MEMORY = Path("/sys/fs/cgroup/memory")
EATS = f"{sys.executable} -c 'bytearray(200 << 20)' | cat"
V1, V2 = ("9:cpu:/x\n8:memory:{}\n", "memory.oom_control"), ("0::{}\n", "memory.events")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("groups", "file"), [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    ("group", "counted_in", "kills"),
    [
        ("/slurm/uid_0/job_7/step_batch/task_0", "/slurm/uid_0/job_7/step_batch/task_0", 3),
        ("/s.slice/slurmstepd.scope/job_7/step_batch/user/task_0", "/s.slice/slurmstepd.scope/job_7/step_batch", 3),
        ("/slurm/uid_0/job_71/step_batch", "/slurm/uid_0/job_71/step_batch", 0),  # of another job
        ("/user.slice/job", "/user.slice/job", 0),  # with others
        ("/slurm/job_7/step_batch", "/slurm", 0),
    ],
)
def test_kills_are_counted_where_the_job_alone_is(tmp_path, shell, groups, file, group, counted_in, kills):
    (tmp_path / "groups").write_text(groups.format(group))
    root = tmp_path / "memory" if "oom_control" in file else tmp_path
    (root / counted_in.strip("/")).mkdir(parents=True)
    (root / counted_in.strip("/") / file).write_text("oom 5\nunder_oom 0\noom_kill 3\n")
    text = of_job("memory").replace("/proc/self/cgroup", f"{tmp_path}/groups").replace("/sys/fs/cgroup", str(tmp_path))
    told = subprocess.run(
        [shell, "-euc", f"{text}\nasa_kills\necho $asa_killed"],
        capture_output=True, text=True, check=True, env={**os.environ, "SLURM_JOB_ID": "7"},
    )  # fmt: skip
    assert told.stdout == f"{kills}\n"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("groups", "file"), [V1, V2], ids=["v1", "v2"])
def test_what_srun_started_is_counted_too(tmp_path, shell, groups, file):
    """Its step is a group beside that of the script, which has no kills of its own."""
    own = "/slurm/job_7/step_batch/user/task_0" if file == "memory.events" else "/slurm/job_7/step_batch/task_0"
    (tmp_path / "groups").write_text(groups.format(own))
    root = tmp_path / "memory" if "oom_control" in file else tmp_path
    all_below = 2 if file == "memory.events" else 0  # only version 2 counts for a group with all below it
    for where, kills in {"slurm/job_7": all_below, "slurm/job_7/step_0": 2, own.strip("/"): 0}.items():
        (root / where).mkdir(parents=True, exist_ok=True)
        (root / where / file).write_text(f"oom {kills}\noom_kill {kills}\n")
    text = of_job("memory").replace("/proc/self/cgroup", f"{tmp_path}/groups").replace("/sys/fs/cgroup", str(tmp_path))
    told = subprocess.run(
        [shell, "-euc", f"{text}\nasa_kills\necho $asa_killed"],
        capture_output=True, text=True, check=True, env={**os.environ, "SLURM_JOB_ID": "7"},
    )  # fmt: skip
    assert told.stdout == "2\n"


@pytest.fixture(params=SHELLS)
def job(request, tmp_path):
    """Yield what runs a script as a job of Slurm with 60 MB of memory, as the kernel sees to, and the run's folder."""
    group = MEMORY / f"asa-test-{os.getpid()}" / "job_7"
    try:
        group.mkdir(parents=True)
        (group / "memory.limit_in_bytes").write_text(str(60 << 20))
    except OSError:
        pytest.skip("no control group for memory can be made here")
    folder = MarksFolder(tmp_path / "run")

    def run(command="", **options):
        made = Payload("fit.a", command, str(tmp_path), folder.marks, folder.posts, token="a", posted=("x",), **options)
        path = tmp_path / "job.sh"
        path.write_text(f'echo $$ >"{group}/cgroup.procs"\n{batch_script(made, "SLURM_JOB_ID")}')
        done = subprocess.run(
            [request.param, str(path)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env={**os.environ, "SLURM_JOB_ID": "7"},
        )  # fmt: skip
        return done.returncode, folder.ended("7", "a"), done.stderr

    yield run, folder
    for one in (group, group.parent):
        with suppress(OSError):
            one.rmdir()


def test_a_pipe_that_exits_with_0_has_failed(job):
    run, folder = job
    code, mark, said = run(EATS)
    assert (code, mark.exit_code, mark.outcome) == (137, 137, JobOutcome.OUT_OF_MEMORY), said
    assert "the kernel killed 1 of its processes, since memory was used up" in said
    assert not (folder.posts / "x").exists(), "nobody is to take it for completed"


def test_what_is_to_be_ignored_is(job):
    run, folder = job
    code, mark, _ = run(EATS, out_of_memory="ignore")
    assert (code, mark.outcome) == (0, JobOutcome.COMPLETED)
    assert (folder.posts / "x").exists()


def test_the_step_that_used_up_its_memory_has_failed(job):
    run, folder = job
    steps = tuple(Step(name, command, post=f"p{name}") for name, command in (("a", "true"), ("b", EATS), ("c", "true")))
    code, mark, _ = run(steps=steps)
    assert (code, mark.outcome) == (137, JobOutcome.OUT_OF_MEMORY)
    assert [(folder.posts / f"p{name}").exists() for name in "abc"] == [True, False, False]


@pytest.mark.parametrize("heeds", ["fail", "ignore"])
def test_stages_side_by_side_are_not_told_apart(job, heeds):
    """All that ran have failed, but where the one whose process was killed may be one that ignores that."""
    run, folder = job
    steps = (
        Step("a", f"sleep 1; {EATS}", post="pa", out_of_memory=heeds, beside=False),
        Step("b", "sleep 3", post="pb", beside=True),
    )
    code, _, said = run(steps=steps)
    assert (code == 0) is (heeds == "ignore"), said
    assert [(folder.posts / name).exists() for name in ("pa", "pb")] == [heeds == "ignore"] * 2


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_task_that_used_up_its_memory_has_failed(job, tmp_path, is_shared):
    run, _ = job
    share = Share(jobs=2 * is_shared)
    stage = Stage("s", cores=1, tasks=("true", EATS, "true"), jobs=(1, 1))
    code, mark, said = run(payload_text(stage, 1, folder=f"{tmp_path}/tasks", share=share))
    assert code != 0
    assert mark.outcome in (JobOutcome.TASKS_FAILED, JobOutcome.OUT_OF_MEMORY)
    assert "asa: task 2 of 3 failed with exit code 137" in said
    assert (Bag(tmp_path / "tasks").progress().completed, Bag(tmp_path / "tasks").progress().failed) == (2, 1)
