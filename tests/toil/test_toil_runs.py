"""Toil's workflows through asa: what its leader asks of a batch system holds, also when jobs fail and it is killed."""

import re
import shutil
from pathlib import Path

import pytest
from slurm_testbed import until
from toil_flows import FLOWS, put
from toil_runs import missing

from asa.backend import JobState

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

TOOL = """cwlVersion: v1.2
class: Workflow
inputs: {{}}
outputs: {{out: {{type: File, outputSource: last/out}}}}
steps:
  first:
    run:
      id: first
      class: CommandLineTool
      baseCommand: [sh, -c, '{command}']
      requirements: {{ResourceRequirement: {{coresMin: 1, ramMin: 64}}}}
      inputs: {{}}
      outputs: {{out: stdout}}
      stdout: first.txt
    in: {{}}
    out: [out]
  last:
    run:
      id: last
      class: CommandLineTool
      baseCommand: [cat]
      requirements: {{ResourceRequirement: {{coresMin: 2, ramMin: 128}}}}
      inputs: {{file: {{type: File, inputBinding: {{position: 1}}}}}}
      outputs: {{out: stdout}}
      stdout: last.txt
    in: {{file: first/out}}
    out: [out]
"""


def tool(project, command):
    return project.write("flow.cwl", TOOL.format(command=command.format(folder=project.folder)))


def test_jobs_that_follow_are_known_before_toil_issues_them(project):
    """All five when the first is ready; each waits for those that Toil makes it wait for."""
    flow, inputs = put(project, "words")
    said = project.run(flow, inputs=[inputs])
    assert "asa: 5 jobs on" in said
    after = {name: stage.after for name, stage in project.state.workflow.stages.items()}
    kinds = {re.sub(r"_.*", "", name): {re.sub(r"_.*", "", one) for one in names} for name, names in after.items()}
    assert kinds["words"] == set()
    assert kinds["frequent"] == kinds["longest"] == {"words"}
    assert kinds["both"] >= {"frequent", "longest"}
    assert kinds["summary"] >= {"both"}
    assert set(project.results()) == {"summary.txt"}
    assert re.search(r"asa: 5 jobs in \d allocations?", said)


def test_a_wdl_workflow(project):
    """Its tasks are known once Toil issues them."""
    programs = project.folder / "bin"
    programs.mkdir()
    shutil.copy(Path(__file__).with_name("singularity"), programs)
    project.env["PATH"] = f"{programs}:{project.env['PATH']}"
    flow = project.write("words.wdl", (FLOWS / "words.wdl").read_text())
    texts = [str(project.folder / project.write(f"{n}.txt", f"a b a {'c ' * n}\n")) for n in range(3)]
    said = project.run(flow, "--container", "singularity", inputs=[project.write("in.json", {"words.texts": texts})])
    assert re.search(r"asa: [1-3] jobs? on", said)
    [total] = (project.folder / "out-asa").rglob("total.txt")
    assert total.read_text() == "6 a\n3 b\n3 c\n"
    assert len(project.state.stages) == 4


def test_a_failed_job_is_tried_again_as_toil_says(project):
    """As the same stage; and its exit code and last lines are told."""
    flow = tool(
        project, "if [ -e {folder}/once ]; then echo done; else touch {folder}/once; echo oops >\\&2; exit 3; fi"
    )
    said = project.run(flow.replace("\\", ""), "--retryCount", "1", "--retryBackoffSeconds", "0")
    assert "Exit reason: FAILED" in said
    assert "asa: first.first: job" in said
    assert len([name for name in project.state.workflow.stages if name.startswith("first")]) == 1
    assert project.state.outcome == "completed"


def test_what_a_killed_leader_left_is_ended_before_it_goes_on(project):
    """No job runs twice at the same time, and what was done is done."""
    flow = tool(project, "echo ran >>{folder}/ran; while [ ! -e {folder}/go ]; do sleep 0.1; done; echo done")
    first = project.begin(flow)
    until((project.folder / "ran").exists, what=lambda: f"a job:\n{first.said}", within_s=120)
    first.kill()
    assert project.state.jobs.unfinished()
    second = project.begin(flow, "--restart")
    second.says("that an earlier run has left")
    until(lambda: (project.folder / "ran").read_text().split() == ["ran"] * 2, what=lambda: second.said, within_s=120)
    former = project.runs[0].state()[0]
    assert not former.jobs.unfinished()
    assert former.outcome == "cancelled"
    assert all(job.status.state is not JobState.COMPLETED for job in former.jobs.values())
    (project.folder / "go").touch()
    second.ends()
    assert (project.folder / "out-asa" / "last.txt").read_text() == "done\n"


def test_a_job_that_lasts_too_long_is_killed(project):
    """By Toil, which hears that it is gone, and tries again."""
    command = "if [ -e {folder}/once ]; then echo done; else touch {folder}/once; sleep 600; fi"
    flow = tool(project, command)
    how = ["--maxJobDuration", "40", "--rescueJobsFrequency", "5", "--retryCount", "1", "--retryBackoffSeconds", "0"]
    said = project.run(flow, *how, "--slurmTime", "1:00:00")
    assert "Killed 1 over long jobs and reissued 1 of them" in said
    assert (project.folder / "out-asa" / "last.txt").read_text() == "done\n"


def test_a_job_that_runs_out_of_a_learned_or_default_walltime_gets_twice_as_much(project):
    """Toil knows no walltime of it to double."""
    flow = tool(project, "if [ -e {folder}/once ]; then echo done; else touch {folder}/once; sleep 600; fi")
    how = ["--retryCount", "1", "--retryBackoffSeconds", "0", "--asaWalltime", "30s"]
    said = project.run(flow, *how)
    assert "Exit reason: TIMELIMIT" in said
    asked = {name: stage.walltime_s for name, stage in project.state.workflow.stages.items()}
    views = {name: view.stage.walltime_s for name, view in project.state.stages.items()}
    assert [views[name] / asked[name] for name in sorted(views)] == [2.0, 1.0], (views, asked)


def test_a_job_that_could_never_start_is_refused_in_words(project):
    flow = tool(project, "echo 1")
    said = project.run(flow, "--asaOption", "nonsense", code=1)
    assert "--asaOption" in said
    assert "Write it as key=value" in said
    assert "Traceback" not in said
