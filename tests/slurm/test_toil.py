"""Toil's workflows through asa on real Slurm end as by Toil's own batch system for Slurm."""

import re
import shutil

import pytest
from snakemake_runs import asa_folder
from toil_flows import put
from toil_runs import ToilProject, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

MEMORY = """cwlVersion: v1.2
class: Workflow
inputs: {{}}
outputs: {{out: {{type: File, outputSource: only/out}}}}
steps:
  only:
    run:
      id: only
      class: CommandLineTool
      baseCommand: [sh, -c, 'if [ -e {folder}/once ]; then echo done; else touch {folder}/once; exit 3; fi']
      requirements: {{ResourceRequirement: {{coresMin: 1, ramMin: 64}}}}
      inputs: {{}}
      outputs: {{out: stdout}}
      stdout: out.txt
    in: {{}}
    out: [out]
"""
USED_UP = """#!/bin/sh
/usr/bin/{name} "$@" | sed '/-0\\(m1\\)\\{{0,1\\}}[^0-9a-z-]/s/FAILED/OUT_OF_MEMORY/'
"""
"""A stand-in that says of the first job of each stage, if it failed, that its memory was used up."""


@pytest.fixture
def project(slurm, tmp_path):
    if why := missing(slurm.release):
        pytest.skip(why)
    asa = None
    if slurm.tree:
        asa = slurm.root / "jobs" / "asa"
        shutil.copytree(asa_folder(), asa, dirs_exist_ok=True)
    folder = slurm.folder(f"toil-{tmp_path.name}")
    programs = folder / "bin"
    programs.mkdir()
    on = ["--asaBackend", "slurm-cli", "--asaHistory", "200"]
    on += [word for option in ("poll=1s", "max_poll=1s") for word in ("--asaOption", option)]
    env = {"PATH": f"{programs}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    made = ToilProject(folder, on=on, prefix=slurm.prefix, env=env, asa=asa)
    yield made
    made.close()
    slurm.empty()


@pytest.mark.parametrize("name", ["words", "blast", "montage"])
def test_results_are_those_of_toils_own_batch_system(project, name):
    flow, inputs = put(project, name)
    said = project.run(flow, inputs=[inputs])
    assert re.search(r"asa: \d+ jobs in \d+ allocations?; waited", said)
    project.run(flow, inputs=[inputs], batch_system="slurm")
    assert project.results()
    assert project.results() == project.results("slurm")


def test_memory_is_doubled_after_it_was_used_up(project):
    for name in ("squeue", "sacct"):
        stand_in = project.folder / "bin" / name
        stand_in.write_text(USED_UP.format(name=name))
        stand_in.chmod(0o755)
    flow = project.write("flow.cwl", MEMORY.format(folder=project.folder))
    how = ["--doubleMem", "true", "--retryCount", "1", "--retryBackoffSeconds", "0", "--defaultMemory", "64Mi"]
    said = project.run(flow, *how)
    assert "Exit reason: MEMLIMIT" in said
    [view] = project.state.stages.values()
    assert "--mem=128M" in view.stage.request
