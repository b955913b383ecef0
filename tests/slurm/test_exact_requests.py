"""The request of an imported batch script reaches Slurm unchanged, field by field.

Each form is submitted on hold by `sbatch` and by asa, on nodes of plain cores, on hyper-threaded ones and on nodes that
are given whole; nothing runs. What `scontrol show job` says of both must be equal.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.rest import RestLink
from asa.backends.slurm.sbatch_variables import sbatch_options, sbatch_settings
from slurm_runs import SlurmRun, site
from slurm_testbed import NEWEST, OLDEST, Testbed, missing

from asa.errors import InputError, SubmitRejectedError
from asa.importers import import_scripts
from asa.runner.specs import spec_of
from asa.strategies import Keep, PlannedJob

pytestmark = pytest.mark.slurm

# nodes without daemons, besides those of the testbed: what is on hold needs none
_CONF = """\
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
GresTypes=gpu
NodeName=DEFAULT Gres=gpu:a100:2,gpu:v100:2 Feature=fast,wide RealMemory=64000
NodeName=h[1-4] NodeAddr=127.0.0.1 Port=[1-4] Sockets=2 CoresPerSocket=8 ThreadsPerCore=2
NodeName=w[1-4] NodeAddr=127.0.0.1 Port=[5-8] Sockets=2 CoresPerSocket=14 ThreadsPerCore=1
NodeName=DEFAULT Sockets=2 CoresPerSocket=14 ThreadsPerCore=1
PartitionName=plain Nodes=n[001-004] DefaultTime=30
PartitionName=threads Nodes=h[1-4] DefaultTime=30
PartitionName=whole Nodes=w[1-4] OverSubscribe=EXCLUSIVE DefaultTime=30"""
_GPUS = (("a100", "null"), ("a100", "zero"), ("v100", "full"), ("v100", "random"))
_DEVICES = "".join(
    f"NodeName={nodes} Name=gpu Type={kind} File=/dev/{device}\n"
    for nodes in ("n[001-004]", "h[1-4]", "w[1-4]")
    for kind, device in _GPUS
)
PARTITIONS = ("plain", "threads", "whole")

FORMS = (
    "",
    "-n 1",
    "-n 4",
    "-n4",
    "--ntasks=4",
    "--ntasks 4",
    "--cpus-per-t=4 --ntasks-per-n=2",
    "-c 4",
    "--cpus-per-task=1",
    "-n 3 -c 2",
    "-n 5 -c 3",
    "-n 40",
    "-N 1",
    "-N 2",
    "-N 3 -n 3",
    "-N 1 -n 4",
    "-N 2 -n 5",
    "-N 4 -n 3",
    "-N 2-3",
    "-N 2-4 -n 8",
    "--nodes=1-2 --ntasks-per-node=2",
    "-N 1-1",
    "--ntasks-per-node=4",
    "-N 2 --ntasks-per-node=3 -c 2",
    "-N2 -n 5 --ntasks-per-node=3",
    "--ntasks-per-core=1 -n 4",
    "--ntasks-per-core=2 -n 4",
    "--ntasks-per-socket=2 -n 4",
    "-N 2 --sockets-per-node=2",
    "-N 2 --cores-per-socket=4",
    "-N 2 --threads-per-core=2",
    "-N 2 --threads-per-core=1 -c 2",
    "-N 1-2 --sockets-per-node=2",
    "--sockets-per-node=2 --ntasks-per-node=3 -N 2",
    "--cores-per-socket=4 -n 4",
    "-B 2:4:1 -n 4",
    "-B 2:4 -N 2",
    "--threads-per-core=1 -n 4",
    "--hint=nomultithread -n 4",
    "--hint=multithread -n 4",
    "--hint=compute_bound -n 4",
    "--mincpus=6",
    "-n 2 --mincpus=6",
    "--use-min-nodes -N 1-2 -n 2",
    "--spread-job -n 4",
    "-O -n 40 -N 1",
    "--mem=1000",
    "--mem=2G",
    "--mem=1536M -n 4",
    "--mem=2000000K",
    "--mem=0",
    "-N 2 --mem=0",
    "--mem-per-cpu=1000M",
    "--mem-per-cpu=0",
    "-n 3 -c 2 --mem-per-cpu=300M",
    "-N 2 --ntasks-per-node=1 --mem=15000M",
    "-N 2 -n 5 --mem=8G",
    "-n 40 --mem=60G",
    "--exclusive",
    "-n 3 --exclusive --mem=2G",
    "-N 2 --exclusive",
    "--exclusive=user -n 2",
    "-s -n 2",
    "--tmp=10G -n 2",
    "--gres=gpu:2",
    "--gres=gpu",
    "--gres=gpu:a100:2",
    "--gres=gpu:a100:1,gpu:v100:2",
    "-N 3 --gres=gpu:2",
    "-N 2 -n 1 --gres=gpu:1",
    "-G 4",
    "--gpus=a100:3 -N 2",
    "--gpus=a100:1,v100:2",
    "--gpus=4 --gpus-per-task=2",
    "-n 4 --gpus-per-task=1",
    "-n 2 --gpus-per-task=a100:1 --mem=1G",
    "-n 3 -c 2 --gpus-per-task=1",
    "-n 2 --gpus-per-task=a100:1,v100:1",
    "-N 2 --gpus-per-node=2",
    "-N 2 --gpus-per-node=a100:1,v100:1",
    "-N 2 --gpus-per-node=2 --mem-per-gpu=1G",
    "--gpus=2 --cpus-per-gpu=3 --mem-per-gpu=1G",
    "--gres=gpu:2 --cpus-per-gpu=3",
    "-n 6 --ntasks-per-gpu=3",
    "--gpus=2 --ntasks-per-gpu=2",
    "-N 2 --gpus-per-node=2 --ntasks-per-gpu=2",
    "-n 2 --sockets-per-node=2 --gpus-per-socket=1",
    "-C fast -n 4",
    "--constraint='fast&wide' -N 2",
    "-x n001,h1,w1 -n 2",
    "-m cyclic -n 4",
    "--distribution=block:cyclic -n 4 -N 2",
    "--nice=10 -n 2",
    "--signal=USR1@60 -n 2",
    "--no-requeue -n 2",
    "--requeue -n 2",
    "-a 0-3 -n 2",
    "--array=1-9:2%2 -c 2 --mem-per-cpu=500M",
    "-a 1,5 -N 2 --ntasks-per-node=2",
    "--contiguous -N 2",
    "--switches=1 -N 2",
    "--core-spec=2 -n 2",
    "--gres-flags=enforce-binding --gres=gpu:1",
    "-k -n 2",
    "--mail-type=END --mail-user=ada -n 2",
    "--reboot -n 2",
    "--tres-per-task=cpu:2,gres/gpu:1 -n 2",
    "-n 2 --mem-per-cpu=1G --threads-per-core=1",
)
SETTINGS = (  # variables of the user's environment, and a script that leaves open what they say
    ({"SBATCH_MEM_PER_CPU": "700M"}, "-n 2"),
    ({"SBATCH_MEM_PER_NODE": "3G"}, "-n 2 -N 2"),
    ({"SBATCH_MEM_PER_NODE": "3G"}, "-n 2 --mem-per-cpu=1G"),
    ({"SBATCH_GPUS": "2"}, "-n 2"),
    ({"SBATCH_GPUS": "a100:2"}, "-N 2 -n 4"),
    ({"SBATCH_GPUS_PER_NODE": "a100:1"}, "-N 2"),
    ({"SBATCH_GRES": "gpu:1"}, "-c 3"),
    ({"SBATCH_EXCLUSIVE": "user"}, "-n 2"),
    ({"SBATCH_THREADS_PER_CORE": "1"}, "-n 4"),
    ({"SBATCH_CPUS_PER_GPU": "3"}, "--gpus=2"),
    ({"SBATCH_CONSTRAINT": "fast"}, "-N 2 --ntasks-per-node=1 --mem=15000M"),
    ({"SLURM_HINT": "nomultithread", "SBATCH_WCKEY": "w"}, "-n 4"),
)

OF_EVERY_SUBMISSION = {
    "JobId", "JobName", "ArrayJobId",  # any two submissions have others
    "SubmitTime", "EligibleTime", "AccrueTime", "LastSchedEval", "StartTime", "EndTime", "Scheduler",  # when it was
    "AllocNode:Sid", "SubmitLine",  # where, and by which command
    "Command", "WorkDir", "StdErr", "StdIn", "StdOut",  # asa runs the script in one of its own, and keeps its output
    "Comment",  # asa finds its jobs again by their comment
}  # fmt: skip
OF_REST = {"OOMKillStep"}  # slurmrestd says 0 where sbatch leaves it to the site
NO_WORDS = {  # options for which an API has no word: such a script is refused, which the error says
    OLDEST: {
        "extra-node-info", "hint", "use-min-nodes", "overcommit", "exclusive", "mem-per-gpu", "ntasks-per-gpu",
        "no-requeue", "contiguous", "switches", "no-kill",
    },
    NEWEST: {"extra-node-info", "hint"},
}  # fmt: skip


def fields(line):
    """Read the fields that `scontrol -o show job` shows of a job."""
    found = re.findall(r"(?:^|\s)([A-Z][A-Za-z_/:]*)=(.*?)(?=\s[A-Z][A-Za-z_/:]*=|\s*$)", line)
    return {name: value for name, value in found if name not in OF_EVERY_SUBMISSION}


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def nodes_of_three_kinds(request):
    """Yield a cluster with partitions of plain, hyper-threaded and whole nodes, each of four nodes with four GPUs."""
    if reason := missing(request.param):
        pytest.skip(reason)
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-kinds{request.param}"), release=request.param, conf=_CONF)
    (testbed.root / "etc").mkdir(parents=True)
    (testbed.root / "etc" / "gres.conf").write_text(_DEVICES)
    try:
        yield testbed.start()
    finally:
        testbed.stop()


def written(folder, number, partition, form):
    """Write the script of a form."""
    file = folder / f"f{number}.sbatch"
    file.write_text(f"#!/bin/sh\n#SBATCH -t 7 -p {partition}\n{form and f'#SBATCH {form}'}\ntrue\n")
    return file


def by_sbatch(slurm, folder, scripts, variables=None):
    """Submit scripts on hold; return the jobs' numbers, and None for a script that Slurm refuses."""
    lines = [f"sbatch -H --parsable --chdir={folder} {script} 2>{script}.why || echo" for script in scripts]
    (folder / "all.sh").write_text("\n".join(lines) + "\n")
    given = [f"{name}={value}" for name, value in (variables or {}).items()]
    told = slurm.run("env", *given, "sh", str(folder / "all.sh"), timeout=300).split("\n")[: len(scripts)]
    return [line.strip() or None for line in told]


class ExactRun(SlurmRun):
    """A run whose stages stay as they are."""

    def _leaves_a_line(self, one):
        return one


def by_asa(slurm, scripts, link, **settings):
    """Submit the imported stages of scripts on hold; return the jobs' numbers, or why one is refused."""
    made = list(map(imported, scripts))
    run = ExactRun(slurm, [stage for stage in made if not isinstance(stage, str)])
    state = run.folder.state()[0]
    defaults = JobDefaults(folder=run.place, **settings)
    backend = SlurmBackend(link, run.folder.path, site(slurm), defaults=defaults, poll_s=0.5, max_poll_s=1.0)
    found = []
    for stage in made:
        if isinstance(stage, str):
            found.append(stage)
            continue
        try:
            found.append(backend.submit(spec_of(state, PlannedJob((stage.name,), 0.0, Keep.NOTHING, ""))))
        except SubmitRejectedError as error:
            found.append(f"refused: {error}")
    backend.close()
    return found


def imported(script):
    """Return the stage of a script, or why there is none."""
    try:
        [stage] = import_scripts([script]).workflow.stages.values()
    except InputError as error:
        return f"refused: {error}"
    return stage


class OnHold:
    """A link by which every job is submitted on hold."""

    def __init__(self, link):
        self._link = link

    def __getattr__(self, name):
        return getattr(self._link, name)

    def submit(self, job):
        return self._link.submit(replace(job, held=True))


def shown(slurm):
    """Return what Slurm shows of all jobs, by number."""
    told = slurm.run("scontrol", "-o", "show", "job").splitlines()
    return {re.match(r"JobId=(\d+)", line)[1]: fields(line) for line in told if line.startswith("JobId=")}


def link_of(slurm, means):
    return OnHold(CommandLink(prefix=slurm.prefix) if means == "commands" else RestLink(f"unix://{slurm.socket}"))


def differences(slurm, means, script, plain, ours, jobs):
    """Return the differences between a job of asa and that of sbatch."""
    if plain is None:
        return "" if ours.startswith("refused") else f"sbatch refuses it: {Path(f'{script}.why').read_text()}"
    if ours.startswith("refused"):
        word = re.search(r"has no word for --([a-z-]+)", ours)
        return "" if means == "rest" and word and word[1] in NO_WORDS[slurm.release] else ours
    one, other = jobs[plain], jobs[ours]
    names = (one.keys() | other.keys()) - (OF_REST if means == "rest" else set())
    return {name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)} or ""


@pytest.mark.parametrize("means", ["commands", "rest"])
def test_slurm_is_asked_for_what_a_script_asks_for(nodes_of_three_kinds, means):
    slurm = nodes_of_three_kinds
    folder = slurm.folder(f"forms-{means}")
    cases = [(partition, form) for partition in PARTITIONS for form in FORMS]
    scripts = [written(folder, number, *case) for number, case in enumerate(cases)]
    plain = by_sbatch(slurm, folder, scripts)
    ours = by_asa(slurm, scripts, link_of(slurm, means))
    jobs = shown(slurm)
    slurm.run("scancel", "-u", slurm.user)
    found = {
        case: differences(slurm, means, script, one, other, jobs)
        for case, script, one, other in zip(cases, scripts, plain, ours, strict=True)
    }
    assert sum(one is not None for one in plain) > len(cases) * 0.8, "sbatch refuses most of them"
    assert {case: what for case, what in found.items() if what} == {}


@pytest.mark.parametrize("means", ["commands", "rest"])
def test_what_the_environment_adds_is_added_as_by_sbatch(nodes_of_three_kinds, means, monkeypatch):
    slurm = nodes_of_three_kinds
    folder = slurm.folder(f"settings-{means}")
    found = {}
    for number, (variables, form) in enumerate(SETTINGS):
        for partition in PARTITIONS:
            script = written(folder, f"{number}{partition}", partition, form)
            [plain] = by_sbatch(slurm, folder, [script], variables)
            with monkeypatch.context() as environment:
                for name, value in variables.items():
                    environment.setenv(name, value)
                settings = sbatch_settings(variables) | {"options": sbatch_options(variables)}
                [ours] = by_asa(slurm, [script], link_of(slurm, means), **settings)
            found[str(variables), form, partition] = differences(slurm, means, script, plain, ours, shown(slurm))
            assert plain is not None
    slurm.run("scancel", "-u", slurm.user)
    assert {case: what for case, what in found.items() if what} == {}
