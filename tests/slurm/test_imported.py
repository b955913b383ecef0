"""An imported batch script gets from real Slurm what it gets by `sbatch`: cores, nodes, memory, GPUs, time."""

import itertools
import os
import random
import re
from dataclasses import replace

import pytest
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.rest import RestLink
from slurm_runs import SlurmRun, site, told_jobs
from slurm_testbed import NEWEST, until

from asa.errors import SubmitRejectedError
from asa.importers import import_scripts

pytestmark = pytest.mark.slurm

CASES = (
    "-n 4",
    "-c 4",
    "-n 3 -c 2 --mem-per-cpu=300M",
    "-n 40 --mem=2G",
    "-N 1 -n 4 --mem=2G",
    "-N 2 -n 5 --mem=2G",
    "-N 2-3 -n 6 --mem=1G",
    "-N 3 -n 3",
    "-N 2 --ntasks-per-node=3 -c 2 --mem=3G",
    "--ntasks-per-node=4 --mem=1G",
    "--mem=0",
    "-N 2 --mem=0",
    "--mem-per-cpu=0",
    "-n 3 --exclusive --mem=2G",
    "-N 2 --exclusive",
    "--mincpus=6 --mem=1G",
    "-n 1 -c 3 --mem-per-cpu=500M",
    "-n 1 -N 1-2 --mem=700M",
    "--gres=gpu:2",
    "-N 3 --gres=gpu:2",
    "-N 3 --gres=gpu:a100:1",
    "-N 2 -n 1 --gres=gpu:1",
    "-n 4 --gpus-per-task=1",
    "-n 2 --gpus-per-task=a100:1 --mem=1G",
    "--gpus=4 --gpus-per-task=2",
    "-N 2 --gpus=a100:3",
    "--gpus=a100:1,v100:2",
    "-N 2 --gpus-per-node=a100:1,v100:1",
    "-N 2 --gpus-per-node=2 --mem-per-gpu=1G",
    "--gpus=2 --cpus-per-gpu=3 --mem-per-gpu=1G",
    "-n 6 --ntasks-per-gpu=3",
    "-N 2 --gpus-per-node=2 --ntasks-per-gpu=2",
    "-n 2 --sockets-per-node=2 --gpus-per-socket=1",
    "-t 1-0 -n 2",
)
CHOICES = (
    ("", "-N 1", "-N 2", "-N 3", "-N 1-2"),
    ("", "-n 1", "-n 2", "-n 5", "-n 6"),
    ("", "", "--ntasks-per-node=2", "--ntasks-per-node=3"),
    ("", "-c 2", "-c 3"),
    ("", "--mem=600M", "--mem-per-cpu=200M", "--mem=0"),
    ("", "", "--gpus=2", "--gres=gpu:1", "--gpus-per-node=2", "--gpus-per-task=1", "--gres=gpu:v100:1"),
    ("", "", "", "--exclusive"),
)
HELD = (
    "-n 3 -c 2 --mem-per-cpu=300M",
    "--mail-type=BEGIN --mail-user=a@b.c --mail-type=END --mail-type=none",
    "--exclusive --oversubscribe --exclusive",
    "--oversubscribe --exclusive=user",
    "--no-requeue --requeue --no-requeue",
    "--hint=nomultithread -n 2",
    "--hint=multithread --threads-per-core=1",
    "--cpu-freq=high --profile=task --acctg-freq=task=10",
    "--open-mode=append",
    "--open-mode=append --open-mode=truncate",
    "--propagate",
    "--propagate=STACK --propagate=CORE,NOFILE",
    "--propagate=NONE",
    "--signal=B:USR1@60 --nice=7 --switches=1@10 --tmp=50 --wckey=x",
    "--array=1-9:2%3 --mail-type=ARRAY_TASKS,FAIL -N 2 --ntasks-per-node=3",
    "-N 2 --gpus-per-node=2 --mem-per-gpu=1G",
    "-n 4 --gpus-per-task=1 -c 3",
    "-N 2 -n 5 --contiguous --spread-job --exclude=n001",
    "-m plane=4 -n 8 --ntasks-per-core=1 --gres-flags=enforce-binding --gpus=1",
    "-B 2:4:1 -n 4 --cores-per-socket=2",
    "--deadline=2040-01-01 -p debug,normal -w n00[1-2]",
    '-n 2 "" --constraint=',
)
OURS = {
    "JobId", "ArrayJobId", "SLUID", "JobName", "Comment", "Command", "StdOut", "StdErr", "SubmitTime", "LastSchedEval",
    "AllocNode:Sid", "SubmitLine", "SLURM_JOB_NAME", "SLURM_CONF",
}  # fmt: skip
"""What is another for each job, and what a run's jobs have otherwise: names, and where they print."""
NO_LONGER_TOLD = {"SLURM_ACCTG_FREQ", "SLURM_CPU_FREQ_REQ", "SLURM_OPEN_MODE", "SLURM_PROFILE"}
"""Variables by which sbatch of 22.05 tells options to the steps of a job, and that of 24.11 does not."""
NUMBERS = itertools.count()
DRAWN = int(os.environ.get("ASA_IMPORTED", "12"))


class ImportedRun(SlurmRun):
    """A run whose stages stay as they are."""

    def _leaves_a_line(self, one):
        return one


def written(folder, lines):
    """Write a batch script that prints what Slurm gave it."""
    file = folder / "job.sbatch"
    file.write_text(f"#!/bin/sh\n#SBATCH {lines}\nscontrol show job -d -o $SLURM_JOB_ID >.told && mv .told told\n")
    return file


def given(folder):
    """Read what a job was given."""
    told = until(lambda: (folder / "told").exists() and (folder / "told").read_text(), within_s=60.0, what="the job")
    found = {name: re.search(rf"\b{name}=(\S+)", told)[1] for name in ("NumNodes", "NumCPUs", "NumTasks", "TimeLimit")}
    [tres] = re.findall(r"\b(?:Alloc)?TRES=(cpu=\S+)", told)
    nodes = re.findall(r" Nodes=(\S+) CPU_IDs=\S+ Mem=(\d+) GRES=(\S*)", told)
    kinds = re.search(r"TresPer\w+=\S*:[av]100", told) is not None
    gpus = [
        (gpus_of(gres) if kinds else [sum(gpus_of(gres))]) for names, _, gres in nodes for _ in range(how_many(names))
    ]
    return found | {"TRES": tres, "gpus": sorted(gpus)}


def held(slurm, job_id):
    """Return what Slurm shows of a held job, and its variables; then cancel it."""
    told = slurm.run("env", "SLURM_TIME_FORMAT=%s", "scontrol", "show", "job", "-d", "-o", job_id).splitlines()[0]
    fields = dict(re.findall(r"(?:^|\s)([A-Za-z][\w:/]*)=(.*?)(?=\s+[A-Za-z][\w:/]*=|\s*$)", told))
    [file] = slurm.root.glob(f"state/hash.*/job.{job_id}/environment")
    variables = dict(re.findall(r"(?:^|\0)(SLURM_\w+)=([^\0]*)", file.read_bytes()[4:].decode()))
    slurm.run("scancel", job_id)
    return {name: value.lower() for name, value in (fields | variables).items() if name not in OURS}


def gpus_of(gres):
    """Count the GPUs of each type on a node."""
    return [sum(map(int, re.findall(rf"gpu:{kind}:(\d+)", gres))) for kind in ("a100", "v100")]


def how_many(names):
    """Count nodes such as n001, or n[001-003,005]."""
    if "[" not in names:
        return 1
    spans = [span.split("-") for span in names.partition("[")[2].rstrip("]").split(",")]
    return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)


def by_sbatch(slurm, lines):
    """Submit the script itself; None if Slurm refuses it, or never begins it."""
    folder = slurm.folder(f"plain{next(NUMBERS)}")
    command = ("sbatch", "--parsable", f"--chdir={folder}", str(written(folder, lines)))
    if not (job_id := slurm.run(*command, check=False).strip()):
        return None
    try:
        return given(folder)
    except AssertionError:
        if slurm.run("squeue", "-h", "-t", "PENDING", "-j", job_id).strip():
            return None  # as two nodes with two tasks on each, of which there is one: 26.05 never begins it
        raise
    finally:
        slurm.run("scancel", job_id)


def by_asa(slurm, lines, link):
    """Submit the imported stage; return why if it is refused."""
    source = slurm.folder(f"source{next(NUMBERS)}")
    [stage] = import_scripts([written(source, lines)]).workflow.stages.values()
    run = ImportedRun(slurm, [stage])
    defaults = JobDefaults(folder=run.place)
    backend = SlurmBackend(link, run.folder.path, site(slurm), defaults=defaults, poll_s=0.5, max_poll_s=1.0)
    try:
        backend.submit(run.spec(stage.name))
    except SubmitRejectedError as error:
        return error.message
    finally:
        backend.close()
    return given(run.place)


def drawn():
    random_sets = random.Random(20)
    for _ in range(DRAWN):
        yield " ".join(filter(None, map(random_sets.choice, CHOICES))) or "-n 2"


@pytest.mark.full
@pytest.mark.parametrize(
    "lines", [*CASES, *(pytest.param(one, marks=pytest.mark.full) for one in dict.fromkeys(drawn()))]
)
def test_an_imported_script_is_given_what_sbatch_gives_it(gpus, lines):
    if gpus.release == NEWEST and {"1", "--ntasks-per-node=2"} <= set(lines.partition("-n ")[2].split()):
        pytest.skip("this Slurm never starts a job of fewer tasks than it is to have on a node")
    lines = lines if "-t " in lines else f"-t 7 {lines}"
    expected = by_sbatch(gpus, lines)
    if expected is None:
        pytest.skip("sbatch refuses these together")
    assert by_asa(gpus, lines, CommandLink(prefix=gpus.prefix)) == expected
    by_rest = by_asa(gpus, lines, RestLink(f"unix://{gpus.socket}"))
    assert by_rest == expected or "has no word for" in by_rest


@pytest.mark.parametrize("lines", HELD)
def test_an_imported_script_is_held_as_sbatch_holds_it(gpus, lines):
    """All that Slurm shows of the job, and its variables of sbatch, are the same."""
    if gpus.release == NEWEST and lines.count("--mail-type") > 1:
        pytest.skip("of this release only the last counts, which is told")
    place = gpus.folder(f"held{next(NUMBERS)}")
    file = written(place, f"-t 7 {lines}")
    job_id = gpus.run("sh", "-c", f"cd {place} && exec sbatch --hold --parsable {file}", check=False).strip()
    if not job_id:
        pytest.skip("sbatch refuses these together")
    expected = held(gpus, job_id)
    stages = import_scripts([file]).workflow.stages.values()
    run = ImportedRun(gpus, stages, link="commands", of_plan={"folder": str(place)})
    backend = run.connect(lambda _: None)
    try:
        job_id = backend.submit(replace(run.spec("job"), held=True))
    finally:
        backend.close()
    found = held(gpus, job_id)
    if gpus.release == NEWEST:
        found = {name: value for name, value in found.items() if name in expected or name not in NO_LONGER_TOLD}
    assert found == expected


ARRAYS = {
    "wide": ("0-31", "sleep 4"),  # more cores than a node has
    "few": ("1-9:2%2", "sleep 1"),
    "apart": ("0-2%2", "srun sleep 1"),
}


@pytest.mark.full
def test_elements_of_arrays_run_side_by_side_and_know_their_array(gpus):
    """As many as the array allows, on each node as many as its cores hold."""
    place = gpus.folder(f"arrays{next(NUMBERS)}")
    for name, (array, command) in ARRAYS.items():
        tell = f"echo begin $(date +%s.%N) $SLURM_ARRAY_JOB_ID >{place}/{name}.$SLURM_ARRAY_TASK_ID"
        end = f"echo end $(date +%s.%N) >>{place}/{name}.$SLURM_ARRAY_TASK_ID"
        head = f"#!/bin/sh\n#SBATCH -t 5 --mem=50M --array={array}\n"
        (place / f"{name}.sbatch").write_text(f"{head}{tell}\n{command}\n{end}\n")
    made = import_scripts([place / f"{name}.sbatch" for name in ARRAYS], parallel=True, pack_arrays=True)
    run = ImportedRun(gpus, made.workflow.stages.values(), strategy="per-stage", link="commands")
    (run.folder.path / "tasks").mkdir()
    (run.folder.path / "tasks").chmod(0o777)
    run.result()
    assert run.folder.state()[0].outcome == "completed"
    told = {name: [file.read_text().split() for file in place.glob(f"{name}.[0-9]*")] for name in ARRAYS}
    assert {name: len(elements) for name, elements in told.items()} == {"wide": 32, "few": 5, "apart": 3}
    assert {name: most_at_once(elements) for name, elements in told.items()} == {"wide": 32, "few": 2, "apart": 2}
    arrays = {name: {element[2] for element in elements} for name, elements in told.items()}
    assert all(len(numbers) == 1 for numbers in arrays.values())
    jobs = {job["JobId"] for job in told_jobs(gpus)}  # of those that were submitted together: the first's own number
    assert {number for numbers in arrays.values() for number in numbers} < jobs


def most_at_once(elements):
    """Return how many of some elements ran at the same time at most."""
    spans = [(float(element[1]), float(element[-1])) for element in elements]
    return max(sum(begin <= moment < end for begin, end in spans) for moment, _ in spans)
