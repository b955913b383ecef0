"""Toil's workflows through asa on real Slurm end as by Toil's own batch system for Slurm."""

import re
import shutil
from pathlib import Path

import pytest
from slurm_testbed import until
from snakemake_runs import asa_folder
from toil_flows import FLOWS, put
from toil_runs import ToilProject, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

TOOL = """
  {name}:
    run:
      id: {name}
      class: CommandLineTool
      baseCommand: [sh, -c, '{command}']
      requirements:
        ResourceRequirement: {{coresMin: {cores}, ramMin: 64}}
        {more}
      inputs: {{cores: {{type: int, default: 1}}}}
      outputs: {{out: stdout}}
      stdout: {name}.txt
    in: {{cores: cores}}
    out: [out]
"""
"""A step of a workflow in CWL."""
USED_UP = """#!/bin/sh
/usr/bin/{name} "$@" | sed '/-0\\(m1\\)\\{{0,1\\}}[^0-9a-z-]/s/FAILED/OUT_OF_MEMORY/'
"""
"""A stand-in that says of the first job of each stage, if it failed, that its memory was used up."""
NVIDIA_SMI = """#!/bin/sh
echo '<log><cuda_version>12.4</cuda_version><attached_gpus>4</attached_gpus></log>'
"""
"""A stand-in for the program that a CWL runner asks, on the node, how many GPUs there are."""


def flow(project, **steps):
    """Write a workflow of independent steps: for each, its command, and what else it is made of."""
    tools = [TOOL.format(**{"name": name, "cores": 1, "more": ""} | how) for name, how in steps.items()]
    outputs = "".join(f"\n  {name}: {{type: File, outputSource: {name}/out}}" for name in steps)
    head = "cwlVersion: v1.2\n$namespaces: {cwltool: 'http://commonwl.org/cwltool#'}\nclass: Workflow\n"
    head += "requirements: {InlineJavascriptRequirement: {}}\ninputs: {cores: {type: int, default: 1}}\n"
    return project.write("flow.cwl", f"{head}outputs:{outputs}\nsteps:{''.join(tools)}")


def projects(slurm, tmp_path, on=()):
    if why := missing(slurm.release):
        pytest.skip(why)
    asa = None
    if slurm.tree:
        asa = slurm.root / "jobs" / "asa"
        shutil.copytree(asa_folder(), asa, dirs_exist_ok=True)
    folder = slurm.folder(f"toil-{tmp_path.name}")
    programs = folder / "bin"
    programs.mkdir()
    on = [*on, "--asaHistory", "200"]
    on += [word for option in ("poll=1s", "max_poll=1s") for word in ("--asaOption", option)]
    env = {"PATH": f"{programs}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    made = ToilProject(folder, on=on, prefix=slurm.prefix, env=env, asa=asa)
    yield made
    made.close()
    slurm.empty()


@pytest.fixture
def project(slurm, tmp_path):
    yield from projects(slurm, tmp_path, ("--asaBackend", "slurm-cli"))


@pytest.fixture
def project_of_sites(slurm, tmp_path):
    yield from projects(slurm, tmp_path)


@pytest.fixture
def project_on_gpus(gpus, tmp_path):
    yield from projects(gpus, tmp_path, ("--asaBackend", "slurm-cli"))


def put_in_path(project, name, text):
    program = project.folder / "bin" / name
    program.write_text(text)
    program.chmod(0o755)


@pytest.mark.parametrize(
    "name", ["words", *(pytest.param(name, marks=pytest.mark.full) for name in ("blast", "montage"))]
)
def test_results_are_those_of_toils_own_batch_system(slurm, project, name):
    """Of the newest Slurm they are those of a single machine: Toil's own asks for what this cluster cannot do there."""
    if slurm.tree and name != "words":
        pytest.skip("its programs are not in the tree")
    given, inputs = put(project, name)
    said = project.run(given, inputs=[inputs])
    assert re.search(r"asa: \d+ jobs in \d+ allocations?; waited", said)
    # scaled: a single machine may have fewer cores than a job asks for
    other, how = ("single_machine", ["--scale", "0.25"]) if slurm.tree else ("slurm", [])
    project.run(given, *how, inputs=[inputs], batch_system=other)
    assert project.results()
    assert project.results() == project.results(other)


@pytest.mark.full
def test_results_of_wdl_are_those_of_toils_own_batch_system(slurm, project):
    """With a stand-in for containers on the nodes, too."""
    if slurm.tree:
        pytest.skip("the job of Toil's own batch system is held there")
    put_in_path(project, "singularity", (FLOWS.parent / "singularity").read_text())
    flow = project.write("words.wdl", (FLOWS / "words.wdl").read_text())
    texts = [str(project.folder / project.write(f"{n}.txt", f"a b a {'c ' * n}\n")) for n in range(3)]
    inputs = [project.write("in.json", {"words.texts": texts})]
    for one in texts:
        Path(one).chmod(0o644)
    project.run(flow, "--container", "singularity", inputs=inputs)
    project.run(flow, "--container", "singularity", inputs=inputs, batch_system="slurm")
    assert project.results()["total.txt"] == project.results("slurm")["total.txt"]
    assert len(project.state.stages) == 4


def test_memory_is_doubled_after_it_was_used_up(project):
    for name in ("squeue", "sacct"):
        put_in_path(project, name, USED_UP.format(name=name))
    once = f"if [ -e {project.folder}/once ]; then echo done; else touch {project.folder}/once; exit 3; fi"
    how = ["--doubleMem", "true", "--retryCount", "1", "--retryBackoffSeconds", "0", "--defaultMemory", "64Mi"]
    said = project.run(flow(project, only={"command": once}), *how)
    assert "Exit reason: MEMLIMIT" in said
    [view] = project.state.stages.values()
    assert "--mem=128M" in view.stage.request


def test_what_ended_a_job_is_told(slurm, project):
    """Jobs of whole nodes, side by side: one is cancelled by others, one loses its node, one runs out of time; and
    one that is known late asks for more than there is.
    """
    wide = {"cores": slurm.cores_per_node}
    steps = {name: {"command": f"touch {project.folder}/began-{name}; sleep 600"} | wide for name in ("killed", "lost")}
    late = {"command": "sleep 600"} | wide
    big = {"command": "echo never", "cores": "$(inputs.cores)"}
    given = flow(project, **steps, late=late, big=big)
    how = ["--retryCount", "0", "--slurmTime", "2:00", "--maxCores", "9999"]
    begun = project.begin(given, *how, inputs=[project.write("inputs.json", {"cores": 9999})])
    for name in steps:
        until((project.folder / f"began-{name}").exists, what=lambda: f"a job:\n{begun.said}", within_s=240)
    jobs = {name.split("_")[0]: view.job_id for name, view in project.state.stages.items() if view.job_id}
    slurm.run_as_root("scancel", jobs["killed"])
    slurm.run_as_root("scontrol", "update", f"JobId={jobs['lost']}", "Requeue=0")
    node = slurm.run_as_root("squeue", "-h", "-j", jobs["lost"], "-o", "%N").strip()
    slurm.run_as_root("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    said = begun.ends(1)
    ended = dict(re.findall(r"Job failed with exit value .*?'CWLJob' flow\.cwl\.(\w+).*\n?.*?Exit reason: (\w+)", said))
    assert ended == {"killed": "KILLED", "lost": "LOST", "late": "TIMELIMIT", "big": "ERROR"}, said


@pytest.mark.full
def test_gpus_of_a_tool_are_its_jobs(gpus, project_on_gpus):
    put_in_path(project_on_gpus, "nvidia-smi", NVIDIA_SMI)
    wanted = "{cudaVersionMin: '11.0', cudaComputeCapability: '3.0', cudaDeviceCountMin: 2, cudaDeviceCountMax: 2}"
    tool = {"command": "echo done", "more": f"cwltool:CUDARequirement: {wanted}"}
    project_on_gpus.run(flow(project_on_gpus, only=tool), "--enable-ext")
    [view] = project_on_gpus.state.stages.values()
    assert view.stage.gpus == 2
    told = gpus.run_as_root("scontrol", "show", "job", view.job_id)
    assert re.search(r"TresPerNode=gres[:/]gpu:2\b", told), told


@pytest.mark.full
def test_a_leader_that_is_killed_is_restarted_with_another_site(slurm, project_of_sites):
    """What the first has left is ended by its own site, which reaches Slurm by REST; the second one's has commands."""
    project = project_of_sites
    place = project.folder
    first_site = project.write("rest.toml", f'backend = "slurm-rest"\nurl = "unix://{slurm.socket}"\n')
    other_site = project.write("commands.toml", 'backend = "slurm-cli"\npartition = "debug"\n')
    command = f"echo ran >>{place}/ran; while [ ! -e {place}/go ]; do sleep 0.1; done; echo done"
    given = flow(project, only={"command": command})
    first = project.begin(given, "--asaSite", place / first_site, "--asaWalltime", "10m")
    until((place / "ran").exists, what=lambda: f"a job:\n{first.said}", within_s=240)
    first.kill()
    second = project.begin(given, "--restart", "--asaSite", place / other_site, "--asaWalltime", "10m")
    second.says("that an earlier run has left")
    until(lambda: (place / "ran").read_text().split() == ["ran"] * 2, what=lambda: second.said, within_s=240)
    assert [run.plan.backend for run in project.runs] == ["slurm-rest", "slurm-cli"]
    assert not project.runs[0].state()[0].jobs.unfinished()
    assert slurm.run_as_root("squeue", "-h", "-a", "-o", "%P").split() == ["debug"]
    (place / "go").touch()
    second.ends()
    assert (place / "out-asa" / "only.txt").read_text() == "done\n"
