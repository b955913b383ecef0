"""``asa import`` and ``asa export``, as a user types them."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from this_machine import Place
from typer.testing import CliRunner

from asa.cli.exports import app as exports
from asa.cli.imports import app as imports
from asa.errors import AsaError
from asa.payload import payload_text
from asa.spec import load_workflow


def run(app, *arguments, code=0):
    """Run the command in this process, which is faster than a new one."""
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "100"})
    if isinstance(done.exception, AsaError):
        assert done.exception.exit_code == code, done.exception
        return SimpleNamespace(stdout=done.stdout, stderr=str(done.exception))
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in a folder with two batch scripts."""
    monkeypatch.chdir(tmp_path)
    Path("a.sbatch").write_text("#!/bin/bash\n#SBATCH -J prep -N 1 -n 4 -t 5 --qos=high -o log\necho {{x}} hi\n")
    Path("b.sbatch").write_text("#!/bin/bash\n#SBATCH -c 2\n./merge\n")
    return tmp_path


def test_scripts_become_a_file_that_reads_back(here):
    done = run(imports, "scripts", "a.sbatch", "b.sbatch", "--out", "flow.toml")
    assert done.stdout == ""
    assert "note: b.sbatch: no --time" in done.stderr
    assert "asa check flow.toml" in done.stderr
    assert "asa run flow.toml" in done.stderr
    text = Path("flow.toml").read_text()
    assert 'script = "a.sbatch"' in text
    assert "# walltime: 1h00m is a guess" in text
    flow = load_workflow("flow.toml")
    assert flow.stages["prep"].script == Path("a.sbatch").read_text()
    assert flow.stages["prep"].options == ("--ntasks-per-node=4", "--qos=high")
    assert flow.stages["prep"].stdout == "log"
    assert flow.stages["b"].after == ("prep",)


def test_without_a_file_it_is_printed_and_its_paths_are_from_here(here):
    done = run(imports, "scripts", here / "a.sbatch")
    assert 'script = "a.sbatch"' in done.stdout
    assert "saved as flow.toml" in done.stderr
    assert run(imports, "scripts", here / "a.sbatch", "--out", "-").stdout == done.stdout
    assert not Path("-").exists()


def test_paths_of_scripts_are_from_where_the_file_lies(here):
    Path("flows").mkdir()
    run(imports, "scripts", "a.sbatch", "-o", "flows/flow.toml")
    assert 'script = "../a.sbatch"' in Path("flows/flow.toml").read_text()
    assert load_workflow("flows/flow.toml").stages["prep"].script


def test_a_file_is_not_written_over_unless_forced(here):
    Path("flow.toml").write_text("mine")
    assert "--force" in run(imports, "scripts", "a.sbatch", "-o", "flow.toml", code=2).stderr
    assert Path("flow.toml").read_text() == "mine"
    run(imports, "scripts", "a.sbatch", "-o", "flow.toml", "--force")
    assert Path("flow.toml").read_text() != "mine"
    assert "folder" in run(imports, "scripts", "a.sbatch", "-o", "no/flow.toml", code=2).stderr


def test_arrays_and_drivers_read_back(here):
    Path("arr.sbatch").write_text("#!/bin/sh\n#SBATCH --array=0-3 -t 5\necho $SLURM_ARRAY_TASK_ID\n")
    Path("all.sh").write_text("j=$(sbatch --parsable a.sbatch)\nsbatch -d afterok:$j arr.sbatch\n")
    run(imports, "scripts", "all.sh", "-o", "flow.toml")
    flow = load_workflow("flow.toml")
    assert flow.name == "all"
    assert flow.stages["arr"].after == ("prep",)
    assert str(flow.stages["arr"].array) == "0-3"
    run(imports, "scripts", "all.sh", "-o", "flow.toml", "--pack-arrays", "--force")
    flow = load_workflow("flow.toml")
    assert "SLURM_ARRAY_TASK_ID=3 /bin/sh arr.sbatch" in payload_text(flow.stages["arr"], 4)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["scripts", "missing.sbatch"], "missing.sbatch: cannot be read"),
        (["scripts", "bad.sbatch"], "bad.sbatch:2: "),
        (["wfformat", "a.sbatch"], "a.sbatch:1: is no JSON"),
        (["snakemake", "a.sbatch"], "snakemake --rulegraph"),
        (["nextflow", "a.sbatch"], "a.sbatch:1: is no trace"),
        (["nextflow", "."], "cannot be read"),
    ],
)
def test_bad_input_is_told_with_its_place(here, arguments, says):
    Path("bad.sbatch").write_text("#!/bin/sh\n#SBATCH -n many\n")
    assert says in run(imports, *arguments, code=2).stderr


def test_an_instance_becomes_a_file_that_reads_back_and_can_be_written_again(here, data):
    instance = data / "wf" / "montage-chameleon-2mass-005d-001.json"
    if not instance.exists():
        pytest.skip("no WfFormat instances here")
    run(imports, "wfformat", instance, "--cores", "8", "--out", "flow.toml")
    flow = load_workflow("flow.toml")
    assert next(iter(flow.stages)) == "mProject"
    assert run(exports, "wfformat", "flow.toml", "-o", "x.json").stderr.count("expected")
    run(imports, "wfformat", "x.json", "--cores", "8", "-o", "again.toml")
    again = load_workflow("again.toml")
    assert again.stages.keys() == flow.stages.keys()
    assert [stage.tasks for stage in again.stages.values()] == [stage.tasks for stage in flow.stages.values()]
    model = run(imports, "wfformat", instance, "--model")
    assert "asa compare" in model.stderr
    assert "tasks = " not in model.stdout


def test_graphs_and_traces_become_files_that_read_back(here):
    Path("rules.dot").write_text('digraph snakemake_dag {\n0[label = "all"];\n1[label = "sort"];\n1 -> 0\n}\n')
    run(imports, "snakemake", "rules.dot", "-o", "s.toml", "--command", "snakemake --use-conda")
    assert "snakemake --use-conda --cores" in load_workflow("s.toml").stages["sort"].command
    Path("trace.txt").write_text("name\tsubmit\trealtime\tcpus\na (1)\t1000\t5m\t2\n")
    done = run(imports, "nextflow", "trace.txt", "-o", "n.toml")
    assert load_workflow("n.toml").stages["a"].expected_run_s == 300
    assert "asa compare n.toml" in done.stderr


def test_an_export_wants_a_file_or_a_run_that_completed(here):
    assert "nothing to export" in run(exports, "wfformat", code=2).stderr
    assert "Give one" in run(exports, "wfformat", "flow.toml", "--run", "x", code=2).stderr


def test_an_export_of_a_run_has_its_times(tmp_path):
    place = Place(tmp_path)
    try:
        flow = place.flow(("first", "", "true"), ("second", "first", "sleep 1"), ("third", "first", "[ ! -e broken ]"))
        place.asa("run", flow, *place.on, "--strategy", "per-stage", "--quiet")
        (completed,) = place.runs()
        document = json.loads(run(exports, "wfformat", "--run", completed).stdout)
        execution = document["workflow"]["execution"]
        assert [entry["id"] for entry in execution["tasks"]] == ["first", "second", "third"]
        assert 0.9 <= execution["tasks"][1]["runtimeInSeconds"] <= execution["makespanInSeconds"] < 60
        assert "measured" in document["description"]
        (tmp_path / "broken").touch()
        place.asa("run", flow, *place.on, "--strategy", "per-stage", "--quiet", "--name", "bad", code=1)
        (failed,) = (folder for folder in place.runs() if folder != completed)
        assert "has not completed" in run(exports, "wfformat", "--run", failed, code=2).stderr
    finally:
        place.close()
