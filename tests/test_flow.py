"""Workflows in Python, run as processes of this machine."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from local_queue import Queue

from asa import Flow, load_workflow, stage
from asa.errors import InputError, RunError, UnavailableError, WorkflowError
from asa.runner import list_runs
from asa.spec import write_workflow


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path, cores=2)
    yield queue
    queue.close()


def run(flow, queue, **options):
    root = queue.root
    where = {"settings": {"cores": 2, "spool": str(root / "spool")}, "folder": root, "runs": root / "runs"}
    return flow.run(backend="local", **{**where, "bank": root / "bank", **options})


@pytest.mark.parametrize("strategy", ["asa", "per-stage", "chained", "big-job"])
def test_three_lines_wrap_a_command(queue, strategy):
    flow = Flow("count")
    split = flow.stage("split", "seq 100 >all; split -n l/4 all part.", walltime="1min")
    tasks = [f"wc -l <part.a{x} >{x}.n" for x in "abcd"]
    count = flow.stage("count", tasks=tasks, cores=2, after=split, expected="learn")
    flow.stage("add", "echo $(($(cat ?.n | paste -sd+))) >total", after=[count], outputs=["total"])
    told = []
    result = run(flow, queue, strategy=strategy, on_record=told.append)
    assert result.outcome == "completed", result.reason
    assert (queue.root / "total").read_text() == "100\n"
    assert told


def test_a_run_that_fails_is_an_error_unless_it_is_looked_at(queue):
    flow = Flow("fails")
    flow.stage("a", "exit 3", walltime="1min")
    with pytest.raises(RunError, match="failed: stage 'a' ended as failed") as caught:
        run(flow, queue)
    assert "asa explain --run fails-" in caught.value.hint
    assert run(flow, queue, check=False).outcome == "failed"


def test_a_script_finds_the_folder_that_it_was_submitted_from(queue):
    (queue.root / "job.sh").write_text('#!/bin/bash\ncd "$SLURM_SUBMIT_DIR"\npwd >where\n')
    flow = Flow("script")
    flow.stage("a", script=queue.root / "job.sh", walltime="1min")
    run(flow, queue)
    assert (queue.root / "where").read_text().strip() == str(queue.root)


@stage(cores=2, walltime=60)
def write_down(name: str, *, times: int = 1) -> None:
    """Write a name down."""
    with Path("names").open("a") as file:
        file.write(f"{name}\n" * times)


def test_functions_are_stages(queue):
    flow = Flow("names")
    first = flow.call(write_down.bind("ann", times=2), name="ann")
    flow.call(write_down.bind('it\'s "bob"'), name="bob", after=first, cores=1)
    result = run(flow, queue)
    assert result.outcome == "completed", result.reason
    assert (queue.root / "names").read_text() == 'ann\nann\nit\'s "bob"\n'
    assert flow.workflow.stages["ann"].cores == 2
    assert write_down.__doc__ == "Write a name down."


def test_a_function_is_called_here_as_ever(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_down("me")
    assert Path("names").read_text() == "me\n"


def test_what_a_stage_cannot_call_is_refused():
    @stage()
    def within() -> None: ...

    with pytest.raises(InputError, match="inside another"):
        within.bind()
    with pytest.raises(InputError, match="cannot be called so"):
        write_down.bind()


PROGRAM = """
from asa import Flow, stage

@stage(walltime="1min")
def make():
    open("made", "w").write("x")

flow = Flow("one")
flow.call(make.bind())
{guard}flow.run(backend="local", settings={{"spool": "{spool}", "cores": 1}}, bank=None)
"""


@pytest.mark.full
@pytest.mark.parametrize("guard", ['if __name__ == "__main__": ', ""])
def test_a_program_of_ones_own_is_not_run_again_in_its_stages(queue, guard):
    program = PROGRAM.format(guard=guard, spool=queue.root / "spool")
    (queue.root / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=queue.root, capture_output=True, text=True, timeout=120, check=False
    )
    assert (queue.root / "made").exists() == bool(guard), done.stderr
    if not guard:
        errors = "".join(path.read_text() for path in queue.root.glob("asa-runs/*/logs/*.err"))
        assert '__name__ == "__main__"' in errors


def test_a_flow_is_a_workflow_file_too(tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH -n 4\necho hello\n")
    flow = Flow("all")
    flow.stage(
        "a",
        script=tmp_path / "job.sh",
        nodes=2,
        memory="4G",
        burst_buffer="2T",
        environment={"A": "1"},
        walltime=timedelta(hours=2),
    )
    flow.stage("b", tasks_file="list", cpus_per_task=4, after="a", retries=2, options=["--exclusive"], local=True)
    (tmp_path / "all.toml").write_text(write_workflow(flow.workflow))
    assert dict(load_workflow(tmp_path / "all.toml").stages) == dict(flow.workflow.stages)
    assert flow.workflow.stages["b"].cores == 4


def test_what_makes_no_sense_is_refused_at_once(tmp_path):
    flow = Flow("x")
    flow.stage("a", "true")
    with pytest.raises(WorkflowError, match="one of this name"):
        flow.stage("a", "true")
    (tmp_path / "s").write_text("true")
    with pytest.raises(WorkflowError, match="command and script"):
        flow.stage("b", "true", script=tmp_path / "s")
    with pytest.raises(InputError, match="cannot be read"):
        flow.stage("c", script=tmp_path / "nothing")
    with pytest.raises(InputError, match="soon"):
        flow.stage("d", "true", walltime="soon")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"walltme": "1:00"}, "there is no 'walltme' to ask for\nDid you mean 'walltime'"),
        ({"mem": "4G"}, "there is no 'mem' to ask for\nDid you mean 'memory'"),
        ({"cores": "many"}, "cores cannot be 'many'\nGive a whole number"),
        ({"cores": True}, "cores cannot be True"),
        ({"nodes": 1.5}, "nodes cannot be 1.5"),
        ({"retries": "2"}, "retries cannot be '2'"),
        ({"memory": [4]}, "memory cannot be .4.\nGive bytes, or text"),
        ({"memory": "4Q"}, "memory: '4Q' is no memory size\nWrite 512M"),
        ({"walltime": True}, "walltime cannot be True\nGive seconds, or text"),
        ({"walltime": "soon"}, "walltime: 'soon' is no duration\nWrite it as Slurm does"),
        ({"expected": "lern"}, "expected: 'lern' is no duration\nDid you mean 'learn'"),
        ({"total": "lern"}, "total: 'lern' is no duration\nDid you mean 'learn'"),
        ({"total": {"learn": "no"}}, "total: learn cannot be 'no'"),
        ({"outputs": 3}, "outputs cannot be 3\nGive text, or a list of texts"),
        ({"inputs": [Path("x")]}, "inputs cannot be .*x"),
        ({"environment": ["A"]}, "environment cannot be .'A'.\nGive names and values"),
        ({"partition": 4}, "partition cannot be 4\nGive text"),
        ({"local": "yes"}, "local cannot be 'yes'\nGive True or False"),
        ({"input_size": "2"}, "input_size cannot be '2'\nGive a number"),
    ],
)
def test_what_cannot_be_asked_for_is_named(asked, words):
    with pytest.raises(InputError, match=f"^function 'made': {words}"):

        @stage(**asked)
        def made() -> None: ...

    with pytest.raises(InputError, match=f"^stage 'a': {words}"):
        Flow("x").stage("a", "true", **asked)


def test_what_is_asked_for_may_be_changed_or_taken_back():
    """The ways to write a list and a time; None for what the function's decorator says."""
    one = Flow("x").call(write_down.bind("x"), cores=None, nodes=2, outputs=(f"{i}" for i in "ab"), walltime=90.5)
    assert (one.cores, one.nodes, one.outputs, one.walltime_s) == (None, 2, ("a", "b"), 90.5)


def test_a_misspelt_way_to_say_what_runs_is_named():
    with pytest.raises(InputError, match="Did you mean 'tasks_file'"):
        Flow("x").stage("a", task_file="x")


def test_a_stage_with_nothing_to_run_is_refused(queue):
    flow = Flow("idle")
    flow.stage("nothing")
    with pytest.raises(InputError, match="there is no command in stage nothing"):
        run(flow, queue)
    assert not (queue.root / "runs").exists()


@pytest.mark.parametrize("what", ["tasks", "inputs", "outputs", "options"])
def test_one_text_is_one_of_them_not_its_letters(what):
    flow = Flow("x")
    made = flow.stage("a", **{"command": "" if what == "tasks" else "true", what: "total.txt"})
    assert getattr(made, what) == ("total.txt",)
    assert getattr(flow.stage("b", **{"command": made.command, what: ["one", "two"]}), what) == ("one", "two")


def test_paths_are_as_seen_from_here(queue, tmp_path, monkeypatch):
    """Not from the folder in which commands run."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("ASA_BANK", "usual-bank")
    flow = Flow("one")
    flow.stage("make", "pwd >made")
    assert run(flow, queue, folder=there, runs="runs", bank="bank").outcome == "completed"
    monkeypatch.delenv("ASA_RUNS", raising=False)
    assert run(flow, queue, folder="../there", runs=None, bank="").outcome == "completed"
    assert (there / "made").read_text() == f"{there}\n"
    assert sorted(path.name for path in here.iterdir()) == ["asa-runs", "bank", "runs", "usual-bank"]
    assert [path.name for path in there.iterdir()] == ["made"]


def test_a_run_is_named_and_learns_from_as_many_as_it_is_told(queue):
    flow = Flow("one")
    flow.stage("make", "true")
    assert run(flow, queue, name="mine", history=7).outcome == "completed"
    [folder] = list_runs(queue.root / "runs")
    assert (folder.plan.name, folder.plan.workflow, folder.plan.history) == ("mine", "one", 7)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bank": "file/bank"}, "cannot be made"),
        ({"strategy": "luck"}, "luck"),
        ({"estimator": "crystal-ball"}, "crystal-ball"),
    ],
)
def test_what_a_run_cannot_do_is_said_before_it_begins(queue, options, words, monkeypatch):
    monkeypatch.chdir(queue.root)
    (queue.root / "file").touch()
    flow = Flow("one")
    flow.stage("make", "touch made")
    with pytest.raises(InputError, match=words):
        run(flow, queue, **options)
    assert not (queue.root / "runs").exists()
    assert not (queue.root / "made").exists()


TYPED = """from asa import stage
@stage()
def made(word): print(word)

print(made.bind("typed").command)
"""


CELL = "import sys; exec(compile(sys.stdin.read(), '/tmp/ipykernel_1/2.py', 'exec'))"


@pytest.mark.parametrize("command", [["-c", TYPED], ["-i", "-q"], ["-c", CELL]], ids=["-c", "REPL", "notebook"])
def test_a_function_that_was_typed_in_is_part_of_its_command(command, tmp_path):
    """A notebook's cells have names of files that are not there."""
    own = {**os.environ, "HOME": str(tmp_path)}  # where Python keeps what was typed in
    given = {"capture_output": True, "text": True, "timeout": 60, "env": own}
    done = subprocess.run([sys.executable, *command], input=TYPED, check=False, **given)
    called = subprocess.run(["sh", "-c", done.stdout], check=False, **given)
    assert called.stdout == "typed\n", done.stderr + called.stderr


nameless = stage()(lambda: None)


def test_a_function_that_is_not_there_by_its_name_is_refused():
    with pytest.raises(InputError, match=f"is not to be found in {__name__} by this name"):
        nameless.bind()


def made(**resources):
    return Flow("x").stage("a", "x", **resources)


def test_a_stage_of_several_shapes_is_said_as_in_a_file(tmp_path):
    """The same words mean the same, and numbers and times of Python will do."""
    lines = """cores = [28, 7, 112]
        expected = { 7 = "6h", 28 = "95min" }
        walltime = { 7 = "8h", 28 = "4h" }
        scaling = { amdahl = 0.95 }
        partition = ["short", "batch"]"""
    (tmp_path / "x.toml").write_text(f'name = "x"\n[[stage]]\nname = "a"\ncommand = "x"\n{lines}\n')
    written = load_workflow(tmp_path / "x.toml").stages["a"]
    assert written == made(
        cores=(28, 7, 112),
        expected={7: timedelta(hours=6), 28: 5700},
        walltime={7: "8h", 28: 4 * 3600.0},
        scaling={"amdahl": 0.95},
        partition=["short", "batch"],
    )
    assert [shape.width for shape in written.shapes[::2]] == [7, 28, 112]
    assert made(cores="2..8").moldable.widths == (2, 4, 8)
    assert made(nodes=range(1, 4)).moldable.widths == (1, 2, 3)
    bag = Flow("x").stage("a", tasks=["x"] * 10, cores=[2, 4], cpus_per_task=2, walltime=600)
    assert [shape.run_s for shape in bag.shapes] == [600, 300]
    assert made(cores=[28], partition=["short"]).moldable is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"cores": [28, 28]}, "cores: 28 is there twice"),
        ({"cores": [28, 0]}, "asks for 0 cores"),
        ({"cores": [28, 1.5]}, "cores cannot be .28, 1.5."),
        ({"cores": []}, "cores cannot be"),
        ({"cores": "8..2"}, "cores: '8..2' ends before it begins"),
        ({"cores": range(1, 1000)}, "cores: has 999 entries"),
        ({"cores": [28, 6], "cpus_per_task": 4}, "asks for 6 cores in tasks of 4"),
        ({"cores": [28, 7], "nodes": 2}, "asks for cores and nodes, and for several shapes"),
        ({"cores": [28, 7], "expected": {7: "1h"}}, "no run time is known on 28 cores, its own width"),
        ({"cores": [28, 7], "walltime": {7: "1h"}}, "there is no walltime for 28 cores, its own width"),
        ({"cores": [28, 7], "expected": {"wide": "1h"}}, "expected: 'wide' is not a width"),
        ({"cores": [28, 7], "expected": {28: "1h", "learn": True}}, "expected: 'learn' is among widths"),
        ({"cores": [28, 7], "expected": {28: True}}, "expected cannot be True"),
        ({"expected": float("nan")}, "is expected to run nan s within a walltime of 1h00m"),
        ({"cores": [28, 7], "expected": {"learn": "no"}}, "expected: learn cannot be 'no'"),
        ({"cores": [28, 7], "scaling": "amdhal"}, "scaling: 'amdhal' is not a scaling law\nDid you mean 'amdahl'"),
        ({"cores": [28, 7], "partition": ["a", "a"]}, "partition: 'a' is there twice"),
        ({"cores": [28, 7], "partition": ["a", 1]}, "partition cannot be"),
    ],
)
def test_shapes_that_make_no_sense_are_named(asked, words):
    with pytest.raises(InputError, match=f"^stage 'a': {words}"):
        made(**asked)


def test_shapes_may_be_learned():
    learns = made(cores=[4, 8], expected={"learn": True, "until": {4: "30min", 8: "20min"}})
    assert (learns.learns_run, learns.expected_run_s) == (True, 1800)
    assert made(cores=[4, 8], expected={"learn": True}).learns_run


def test_who_named_no_batch_system_is_told_of_this_computer_where_the_one_found_does_not_answer(tmp_path, monkeypatch):
    """As where Slurm's commands are installed, but not configured."""
    (tmp_path / "bin").mkdir()
    for name in ("sbatch", "scontrol", "squeue", "scancel", "sacct", "sinfo"):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\necho '{name}: fatal: Could not establish a configuration source' >&2\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("ASA_SITES", str(tmp_path / "sites"))
    flow = Flow("count")
    flow.stage("a", "true", walltime="1min")
    for named in (None, "slurm-cli"):
        with pytest.raises(UnavailableError, match="finds no configuration of Slurm") as caught:
            flow.run(backend=named, folder=tmp_path, runs=tmp_path / "runs", bank=None)
        assert ('backend="local"' in caught.value.hint) == (named is None)
