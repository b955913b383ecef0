"""Scripts for Slurm in jobs of this computer: its variables, and stand-ins for `srun` and `module`."""

import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from asa.backends.local import LocalMachine, likeness
from asa.backends.local.srun import StandInError, read
from local_queue import Queue, ended, job

from asa.backend import JobState, Step
from asa.elements import parse_array_of
from asa.errors import InputError
from asa.payload import Share, payload_text
from asa.preparation import Preparation
from asa.workflow import Stage

HERE = os.uname().nodename.partition(".")[0]
SRUN = Path(likeness.__file__).with_name("srun.py")


@pytest.fixture
def queue(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SRUN_"))]:
        monkeypatch.delenv(name)
    queue = Queue(tmp_path)
    yield queue
    queue.close()


def shown(queue, spec, number=0, **settings):
    """Return Slurm's variables as a job's payload finds them."""
    backend = queue.connect(**settings)
    status = ended(backend, backend.submit(spec))
    assert status.state is JobState.COMPLETED
    pairs = (line.partition("=") for line in (queue.root / f"seen{number}").read_text().splitlines())
    return status, {name: value for name, _, value in pairs if re.match("SLURM|SRUN|.*(HYDRA|MCA)_", name)}


def test_a_job_has_the_variables_that_sbatch_documents(queue):
    spec = job(f"env >{queue.root}/seen0", cores=4, cpus_per_task=2, memory_bytes=3 << 29, partition="short")
    status, seen = shown(queue, spec)
    number = status.job_id.partition("@")[0]
    assert seen.pop("SLURM_JOB_NAME").startswith("test")
    assert seen.pop("SLURM_SUBMIT_DIR") == str(Path.cwd())
    began_s, limit_s = int(seen.pop("SLURM_JOB_START_TIME")), math.ceil(spec.walltime_s)
    assert abs(began_s - status.start_s) <= 2
    assert int(seen.pop("SLURM_JOB_END_TIME")) == began_s + limit_s
    assert seen.pop("HYDRA_BOOTSTRAP") == "fork", "MPI starts its processes itself"
    assert seen.pop("OMPI_MCA_plm") == "^slurm"
    assert {name: value for name, value in seen.items() if name.startswith("S")} == {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_PARTITION": "short",
        "SLURM_CLUSTER_NAME": "local",
        "SLURM_NTASKS": "2",
        "SLURM_NPROCS": "2",
        "SLURM_TASKS_PER_NODE": "2",
        "SLURM_CPUS_PER_TASK": "2",
        "SRUN_CPUS_PER_TASK": "2",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_JOB_CPUS_PER_NODE": "4",
        "SLURM_MEM_PER_NODE": "1536",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NODELIST": HERE,
        "SLURM_NODELIST": HERE,
        "SLURM_SUBMIT_HOST": HERE,
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }


def test_a_user_s_own_value_wins_and_a_setting_leaves_them_out(queue):
    spec = job(f"env >{queue.root}/seen0")
    _, seen = shown(queue, spec, environment={"SLURM_NTASKS": "7", "OMPI_MCA_plm": "rsh"})
    assert (seen["SLURM_NTASKS"], seen["OMPI_MCA_plm"], seen["SLURM_NPROCS"]) == ("7", "rsh", "1")
    _, seen = shown(queue, spec, slurm="no")
    assert set(seen) == {"SLURM_SUBMIT_DIR"}


def test_what_runs_where_the_client_is_is_no_job_of_slurm(queue):
    """Its `sbatch` and `srun` are the cluster's, and would take such a number for one of theirs."""
    _, seen = shown(queue, job(f"env >{queue.root}/seen0", local=True))
    assert set(seen) == {"SLURM_SUBMIT_DIR"}


def test_each_step_of_a_job_sees_its_own_size(queue):
    steps = tuple(
        Step(f"s{number}", f"env >{queue.root}/seen{number}", tasks=tasks, cpus_per_task=each, beside=number > 1)
        for number, (tasks, each) in enumerate([(1, 2), (4, 1), (0, 1)])
    )
    spec = job("", cores=4, steps=steps)
    names = ("SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")
    told = [shown(queue, spec, number)[1] for number in range(3)]
    assert [tuple(seen[name] for name in names) for seen in told] == [("1", "2", "2"), ("4", "1", "4"), ("4", "1", "4")]


def test_an_element_of_an_array_that_shares_a_job_sees_its_own_size(queue):
    stage = Stage(
        "s", cores=2, cpus_per_task=2, array=parse_array_of("5-6"), tasks=("5", "6"), jobs=(1, 1), walltime_s=60.0,
        command=f"env >{queue.root}/seen$SLURM_ARRAY_TASK_ID",
    )  # fmt: skip
    text = payload_text(stage, 2, folder=str(queue.root / "bag"), share=Share(0, "x", 1))
    status, seen = shown(queue, job(text, cores=2, cpus_per_task=1), 6)
    assert (seen["SLURM_NTASKS"], seen["SLURM_CPUS_ON_NODE"], seen["SLURM_ARRAY_TASK_ID"]) == ("1", "2", "6")
    assert seen["SLURM_ARRAY_JOB_ID"] == status.job_id.partition("@")[0] == seen["SLURM_JOB_ID"]


def test_tasks_do_not_wait_as_if_slurm_might_end_them(queue):
    """They do not take it for a job of Slurm, in which asa waits 0.3 s after each task."""
    stage = Stage("s", cores=1, tasks=tuple(["true"] * 20), walltime_s=60.0)
    backend = queue.connect()
    ended(backend, backend.submit(job()))
    status = ended(backend, backend.submit(job(payload_text(stage, 1, folder=str(queue.root / "bag")))))
    assert status.state is JobState.COMPLETED
    assert status.end_s - status.start_s < 20 * 0.3


def test_the_setting_is_one_of_three_words():
    assert [LocalMachine(slurm=word).settings.slurm for word in ("no", "variables", "commands")]
    assert LocalMachine(slurm=False).settings.slurm == "no", "as a site file may have it"
    with pytest.raises(InputError) as caught:
        LocalMachine(slurm="yes")
    assert caught.value.where == "slurm"
    assert "stand-ins" in caught.value.hint


# ---------------------------------------------------------------------- stand-ins


def test_a_script_for_a_cluster_runs_unchanged(queue):
    script = (
        "#!/bin/bash\n#SBATCH --ntasks=3\nmodule load gcc/12\n"
        f"srun sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS >{queue.root}/rank$SLURM_LOCALID'\n"
        f"srun -n 1 --exact -c 2 --cpu-bind=cores env >{queue.root}/seen0\n"
    )
    stage = Stage("s", cores=3, script=script, walltime_s=60.0, preparation=Preparation(modules=("gcc",)))
    spec = job(payload_text(stage, 3), cores=3)
    _, seen = shown(queue, spec, slurm="commands")
    assert [(queue.root / f"rank{rank}").read_text() for rank in range(3)] == [f"{rank} of 3\n" for rank in range(3)]
    assert (seen["SLURM_NTASKS"], seen["SLURM_CPUS_PER_TASK"]) == ("1", "2")
    [said] = [file.read_text() for file in (queue.root / "run" / "logs").glob("*.err")]
    assert '"module load gcc/12" does nothing on this computer' in said
    assert '"module load gcc" does nothing' in said, "what the stage itself asks for"


def srun(*words, **options):
    variables = {"SLURM_NTASKS": "2", "SLURM_CPUS_ON_NODE": "4", "PATH": os.environ["PATH"]} | options.pop("env", {})
    command = [sys.executable, "-I", "-S", str(SRUN), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables, **options)


def test_scontrol_names_the_job_s_host_and_refuses_all_else():
    path = SRUN.with_name("scontrol.sh")

    def scontrol(*words):
        env = {"PATH": os.environ["PATH"], "SLURM_JOB_NODELIST": "here"}
        return subprocess.run(["sh", path, *words], capture_output=True, text=True, check=False, env=env)

    assert scontrol("show", "hostnames").stdout == "here\n"
    assert scontrol("show", "hostname", "a,b").stdout == "a\nb\n"
    for words in (("show", "job", "7"), ("show", "hostnames", "n[1-3]"), ()):
        assert (scontrol(*words).returncode, "knows only" in scontrol(*words).stderr) == (1, True)


def test_tasks_are_labelled_and_the_highest_exit_code_is_told():
    done = srun("--label", "sh", "-c", "echo a; echo b; echo c >&2; exit $((SLURM_PROCID * 3))")
    assert sorted(done.stdout.splitlines()) == ["0: a", "0: b", "1: a", "1: b"]
    assert sorted(done.stderr.splitlines()) == ["0: c", "1: c"]
    assert done.returncode == 3
    assert srun("-n1", "sh", "-c", "kill -9 $$").returncode in {-9, 137}
    assert srun("sh", "-c", "kill -9 $$").returncode == 137


def test_files_are_named_as_slurm_names_them(tmp_path):
    inputs = tmp_path / "in"
    inputs.write_text("x\n")
    (tmp_path / "7.1").write_text("of an earlier step\n")
    command = ("sh", "-c", "cat; echo $SLURM_PROCID; echo e >&2")
    done = srun("-i", "in", "-o", "%j.%t", "-e", "e%3t", *command, cwd=tmp_path, env={"SLURM_JOB_ID": "7"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "7.0").read_text() == "x\n0\n"
    assert (tmp_path / "7.1").read_text() == "x\n1\n"
    assert (tmp_path / "e001").read_text() == "e\n"
    srun("-o", "one", "sh", "-c", "echo a; echo b >&2", cwd=tmp_path)
    assert sorted((tmp_path / "one").read_text().split()) == ["a", "a", "b", "b"]


def test_each_task_reads_the_whole_of_a_file_and_one_what_is_piped(tmp_path):
    (tmp_path / "in").write_text("x\n")
    with (tmp_path / "in").open() as file:
        assert srun("cat", stdin=file).stdout == "x\nx\n"
    assert srun("-n1", "cat", input="y\n").stdout == "y\n"
    assert "each task would get a part" in srun("cat", input="y\n").stderr
    assert srun("--input=1", "cat", input="y\n").stdout == "y\n"


def test_a_task_that_fails_ends_the_others_if_asked_to():
    since_s = time.monotonic()
    assert srun("-K", "sh", "-c", "[ $SLURM_PROCID = 0 ] || exec sleep 60; exit 4").returncode == 143
    assert time.monotonic() - since_s < 30


def test_a_signal_is_for_all_tasks(tmp_path):
    command = [sys.executable, "-I", "-S", str(SRUN), "-n2", "sh", "-c"]
    text = "trap 'echo heard >>heard; exit 5' TERM; echo >>up; while :; do sleep 0.1; done"
    step = subprocess.Popen([*command, text], cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    while not (tmp_path / "up").exists() or len((tmp_path / "up").read_text()) < 2:
        assert step.poll() is None
        time.sleep(0.05)
    step.terminate()
    assert step.wait(30) == 5
    assert (tmp_path / "heard").read_text().split() == ["heard", "heard"]


@pytest.mark.skipif(not shutil.which("mpiexec"), reason="there is no MPI here")
def test_a_program_of_mpi_is_started_by_mpiexec():
    """Also on a computer with fewer cores than the queue has slots."""
    variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    count = min((os.cpu_count() or 1) + 1, 4)
    text = "echo ${OMPI_COMM_WORLD_RANK-${PMI_RANK-none}}"
    done = srun("--mpi=pmix", "-n", str(count), "sh", "-c", text, env=variables)
    assert sorted(map(int, done.stdout.split())) == list(range(count)), done.stderr
    assert srun("--mpi=pmix", "true", env={"PATH": str(Path(shutil.which("true")).parent / "none")}).returncode == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-N2", "true"], "--nodes=2: this computer is one node"),
        (["-n", "8", "true"], "are more than the job's cores, 4"),
        (["-n2", "-c4", "true"], "are more than the job's cores, 4"),
        (["-n", "0", "true"], "no number of at least 1"),
        (["-n3", "--ntasks-per-node=2", "true"], "need more nodes"),
        (["--multi-prog", "conf"], "there is no --multi-prog here"),
        (["--het-group=1", "true"], "there is no --het-group here"),
        (["-Z", "true"], "there is no -Z here"),
        (["--export=NONE", "true"], "none left out"),
        (["-o", "%Y", "true"], "%Y is not replaced here"),
        (["--ntasks"], "--ntasks needs a value"),
        (["-n2"], "there is no program to run"),
    ],
)
def test_what_cannot_be_had_is_refused_in_words(words, why):
    with pytest.raises(StandInError, match=re.escape(why)):
        read(words, {"SLURM_CPUS_ON_NODE": "4"})
    assert why in srun(*words).stderr


@pytest.mark.parametrize(
    ("words", "tasks", "cores", "command"),
    [
        (["a", "-n", "3"], 2, 1, ["a", "-n", "3"]),
        (["-ln4", "--", "a"], 4, 1, ["a"]),
        (["-N1-4", "-Jx", "--mem=2G", "a"], 2, 1, ["a"]),
        (["--ntasks-per-node=3", "-u", "a", "b"], 3, 1, ["a", "b"]),
        (["--exclusive", "-K", "-c=2", "a"], 2, 2, ["a"]),
        (["-O", "-n9", "--cpu-bind", "none", "a"], 9, 1, ["a"]),
        (["--cpus-per-t=1", "-n1", "--pty", "a"], 1, 1, ["a"]),
    ],
)
def test_options_are_read_as_srun_reads_them(words, tasks, cores, command):
    asked = read(words, {"SLURM_NTASKS": "2", "SLURM_CPUS_ON_NODE": "4"})
    assert (asked.tasks, asked.cores_per_task, list(asked.command)) == (tasks, cores, command)
