"""Batch scripts, and shell scripts that submit them, as workflows."""

import os
import re
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import networkx as nx
import pytest

from asa.errors import InputError, WorkflowError
from asa.importers import as_toml, import_scripts
from asa.importers.arrays import apart_because, for_elements
from asa.keys import Key
from asa.payload import payload_text
from asa.requests import Needs
from asa.spec import load_workflow, write_workflow
from asa.workflow import Stage

GIB = 1 << 30


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in an empty folder; give a writer of scripts."""
    monkeypatch.chdir(tmp_path)

    def write(name, *lines, first="#!/bin/bash"):
        (tmp_path / name).write_text("\n".join([first, *lines]) + "\n")
        return tmp_path / name

    write.folder = tmp_path
    return write


def stage_of(here, *lines, **more):
    """Import one script."""
    file = here("a.sbatch", *(f"#SBATCH {line}" for line in lines), "echo hi")
    made = import_scripts([file], **more)
    (stage,) = made.workflow.stages.values()
    return stage


def edges(made):
    return {name: set(stage.after) for name, stage in made.workflow.stages.items()}


def told(made):
    return "\n".join(made.notes)


PRINTS = {  # options of a script `a.sbatch`: where its stage's output and its errors are found
    "-o logs/%x-%j.out": ("logs/a.sbatch-%j.out", ""),
    "-J fit -o %x-%%x-%4j -e %x.err": ("%x-%%x-%4j", "%x.err"),  # which is the stage's name
    "-J 'fit 50%' -o %x": ("fit 50%%", ""),
    "-J 'fit 50%' -o a\\\\%x": ("a\\%x", ""),
    "-e /data/e.%A_%a": ("", "/data/e.%A_%a"),
    "-D sub/x%1 -o o.%j -e /dev/null": ("sub/x%%1/o.%j", "/dev/null"),
    "-o o --open-mode=truncate": ("o", ""),
    "": ("", ""),
}


@pytest.mark.parametrize("options", PRINTS)
def test_what_a_script_prints_is_found_where_it_says(here, options):
    stage = stage_of(here, options)
    assert (stage.stdout, stage.stderr) == PRINTS[options]
    of_array = stage_of(here, f"-a 1-3 {options}")
    assert (of_array.stdout, of_array.stderr) == PRINTS[options]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("-o o --open-mode=append", "adds nothing to another job's file"),
        ("-o logs/", "names no file"),
        ("-a 1-3 -o o-%a", "elements share jobs"),
    ],
)
def test_an_output_that_is_not_kept_is_named(here, options, why):
    file = here("a.sbatch", f"#SBATCH -t 5 {options}", "echo hi")
    made = import_scripts([file], pack_arrays=True)
    assert not any(stage.stdout for stage in made.workflow.stages.values())
    assert f"{file}:2: --output" in told(made)
    assert why in told(made)


def test_a_job_that_is_put_back_adds_to_its_own_output(here):
    stage = stage_of(here, "-o o-%4j --open-mode=append")
    assert (stage.stdout, stage.options) == ("o-%4j", ("--open-mode=append",))


def test_a_script_stays_as_it_is_and_becomes_a_stage(here):
    file = here("a.sbatch", "#SBATCH -J prep -n 4 -c 2 --mem-per-cpu=1G -t 1:30:00 -p debug -A x", "echo hi")
    before = file.read_text()
    made = import_scripts([file])
    stage = made.workflow.stages["prep"]
    assert (stage.cores, stage.cpus_per_task, stage.memory_bytes, stage.walltime_s) == (8, 2, 8 * GIB, 5400)
    assert (stage.partition, stage.account, stage.script) == ("debug", "x", before)
    assert made.scripts == {"prep": file}
    assert file.read_text() == before
    assert made.notes == ()


@pytest.mark.parametrize(
    ("lines", "cores", "per_task", "options"),
    [
        (["-t 5"], 1, 1, ()),
        (["-t 5 -n 6"], 6, 1, ()),
        (["-t 5 -c 4"], 4, 4, ()),
        (["-t 5 -N 1 -n 4"], 4, 1, ("--ntasks-per-node=4",)),
        (["-t 5 -N 2 -n 5"], 5, 1, ("--nodes=2",)),
        (["-t 5 -N 2-4 -n 8"], 8, 1, ("--nodes=2-4",)),
        (["-t 5 -N 2 -n 5 --ntasks-per-node=3"], 5, 1, ("--ntasks-per-node=3", "--nodes=2")),
        (["-t 5 -N 4 -n 3"], 3, 1, ("--ntasks-per-node=1",)),
        (["-t 5 -N 2 --ntasks-per-node=3 -c 2"], 12, 2, ("--ntasks-per-node=3",)),
        (["-t 5 --ntasks-per-node=4"], 4, 1, ("--ntasks-per-node=4",)),
        (["-t 5 -N 2"], 2, 1, ("--ntasks-per-node=1",)),
        (["-t 5 -N 1 -c 8"], 8, 8, ()),
        (["-t 5 -N 1K"], 1024, 1, ("--ntasks-per-node=1",)),
        (["-t 5 --gpus=2 --ntasks-per-gpu=3"], 6, 1, ()),
        (["-t 5 --gpus=2 --cpus-per-gpu=3"], 6, 6, ()),
        (["-t 5 --mincpus=6 -c 2"], 6, 6, ()),
        (["-t 5 -n 2 --mincpus=6"], 2, 1, ("--mincpus=6",)),
        (["-t 5 --gpus=4 --gpus-per-task=2 -c 3"], 6, 3, ("--gpus-per-task=2",)),
        (["-t 5 -N 2 --gres=gpu:a100:2 --ntasks-per-gpu=2"], 8, 1, ("--ntasks-per-node=4", "--gres=gpu:a100:2")),
    ],
)
def test_cores_are_the_tasks_that_slurm_would_start(here, lines, cores, per_task, options):
    stage = stage_of(here, *lines)
    assert (stage.cores, stage.cpus_per_task, stage.nodes, stage.options) == (cores, per_task, None, options)


@pytest.mark.parametrize(
    ("lines", "widths", "options"),
    [
        ("-N 2-8", (2, 4, 8), ("--ntasks-per-node=1",)),
        ("-N 1-3", (1, 2, 3), ("--ntasks-per-node=1",)),
        ("-N 2-8 --ntasks-per-node=3 -c 2", (12, 24, 48), ("--ntasks-per-node=3",)),
        ("-N 2-4 --mem-per-cpu=2G", (2, 4), ("--ntasks-per-node=1", "--mem-per-cpu=2G")),
        ("-N 1-2 --mem=8G", (1, 2), ("--ntasks-per-node=1", "--mem=8G")),
        ("-N 2-4 --gres=gpu:2 --exclusive", (2, 4), ("--ntasks-per-node=1", "--gres=gpu:2", "--exclusive")),
        ("-N 2-4 -n 8", None, ("--nodes=2-4",)),
        ("-N 2-4 --gpus=4 --ntasks-per-gpu=1", None, ("--nodes=2-4",)),
        ("-N 2-2", None, ("--nodes=2-2",)),
    ],
)
def test_a_number_of_nodes_that_may_vary_becomes_widths_where_cores_follow_from_it(here, lines, widths, options):
    made = import_scripts([here("a.sbatch", f"#SBATCH -t 5 {lines}", "srun a")])
    stage = made.workflow.stages["a"]
    assert (stage.moldable and stage.moldable.widths, stage.options) == (widths, options)
    assert stage.memory_bytes == 0
    if widths:
        assert stage.cores == widths[0]
        assert "unless a strategy chooses its width" in told(made)


def test_partitions_among_which_slurm_chooses_stay_its_choice(here):
    stage = stage_of(here, "-t 5 -p short,batch")
    assert (stage.partition, stage.moldable) == ("short,batch", None)


@pytest.mark.parametrize(("line", "partition"), [
    ("-M small", "@small"),
    ("--clusters=small -p batch", "batch@small"),
    ("--cluster=small,big -p batch", "batch@small,batch@big"),
    ("-M all -p batch", "batch"),
])  # fmt: skip
def test_a_cluster_is_named_with_the_partition(here, line, partition):
    made = import_scripts([here("a.sbatch", f"#SBATCH -t 5 -n 1 {line}", "echo hi")])
    (stage,) = made.workflow.stages.values()
    assert (stage.partition, stage.options) == (partition, ())
    assert "cluster" not in told(made)


@pytest.mark.parametrize(
    ("lines", "gpus", "options"),
    [
        (["--gpus=4"], 4, ()),
        (["--gres=gpu:2"], 2, ()),
        (["--gres=gpu"], 1, ()),
        (["-N 2 --gres=gpu:2"], 0, ("--ntasks-per-node=1", "--gres=gpu:2")),
        (["-N 2 -n 1 --gres=gpu:1"], 1, ()),
        (["-N 1 -n 4 --gres=gpu:2"], 2, ("--ntasks-per-node=4",)),
        (["-n 4 --gres=gpu:2"], 0, ("--gres=gpu:2",)),
        (["-N 2 --gpus-per-node=3"], 0, ("--ntasks-per-node=1", "--gpus-per-node=3")),
        (["-n 6 --ntasks-per-gpu=3"], 2, ()),
        (["-n 2 --sockets-per-node=2 --gpus-per-socket=1"], 0, ("--sockets-per-node=2", "--gpus-per-socket=1")),
        (["-n 3 --gpus-per-task=2"], 0, ("--gpus-per-task=2",)),
        (["--gres=gpu:a100:2"], 0, ("--gres=gpu:a100:2",)),
        (["-N 1 --gpus=a100:2"], 0, ("--gres=gpu:a100:2",)),
        (["-N 1 --gpus=a100:1,v100:2"], 0, ("--gres=gpu:a100:1,gpu:v100:2",)),
        (["-N 2 --gpus=a100:3"], 0, ("--ntasks-per-node=1", "--gpus=a100:3")),
        (["--gres=gpu:1,shard:2"], 0, ("--gres=gpu:1,shard:2",)),
    ],
)
def test_gpus_are_counted_and_their_types_kept(here, lines, gpus, options):
    stage = stage_of(here, "-t 5", *lines)
    assert (stage.gpus, stage.options) == (gpus, options)


@pytest.mark.parametrize(
    ("line", "memory"), [("--mem=8G", 8), ("-N 2 --mem=8G", 16), ("-n 4 --mem-per-cpu=2G", 8), ("--mem=0", 0)]
)
def test_memory_is_the_whole_stages(here, line, memory):
    assert stage_of(here, "-t 5", line).memory_bytes == memory * GIB


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("--mem=0", "--mem=0"),
        ("-n 4 --mem-per-cpu=0", "--mem-per-cpu=0"),
        ("-n 40 --mem=8G", "--mem=8G"),  # on how many nodes, Slurm decides
        ("-N 2 -n 5 --mem=8G", "--mem=8G"),
        ("-N 1 -n 4 --exclusive --mem=8G", "--mem=8G"),
        ("-n 4 --exclusive --mem-per-cpu=1G", "--mem-per-cpu=1G"),
        ("-N 2 --gpus-per-node=2 --mem-per-gpu=4G", "--mem-per-gpu=4G"),
    ],
)
def test_memory_that_depends_on_the_nodes_is_passed_on(here, line, option):
    stage = stage_of(here, "-t 5", line)
    assert stage.memory_bytes == 0
    assert option in stage.options


def test_cores_in_a_demand_for_each_task_are_counted(here):
    stage = stage_of(here, "-t 5 -n 2 --tres-per-task=cpu:4,gres/gpu:1")
    assert (stage.cores, stage.cpus_per_task, stage.options) == (8, 4, ("--tres-per-task=gres/gpu:1",))
    assert stage.request == ("--ntasks=2", "--tres-per-task=cpu:4,gres/gpu:1")


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("", ()),
        ("-n4 --mem-per-cpu 1000M", ("--ntasks=4", "--mem-per-cpu=1000M")),
        ("-N 2-4 --ntasks-per-n=1 --mem=15000M", ("--nodes=2-4", "--ntasks-per-node=1", "--mem=15000M")),
        ("--gres=gpu:a100:2 -C fast", ("--gres=gpu:a100:2",)),
        ("-a 1-9 -c 1 --mem=1G", ("--cpus-per-task=1", "--mem=1G")),
    ],
)
def test_what_a_script_says_of_its_size_stays_as_it_is(here, line, asked):
    """In the workflow file, too, which says nothing else of it."""
    made = import_scripts([here("a.sbatch", f"#SBATCH -t 5 {line}", "srun a")])
    [stage] = made.workflow.stages.values()
    assert stage.request == asked
    file = here.folder / "flow.toml"
    file.write_text(as_toml(made, here.folder, write_workflow))
    assert load_workflow(file).stages["a"] == stage
    assert not re.search(r"^(cores = \d|cpus_per_task|memory|gpus)", file.read_text(), re.MULTILINE)


def test_one_core_a_task_is_told_to_the_script_if_it_was_asked_for(here):
    """Or OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK would be empty, which means all cores."""
    assert stage_of(here, "-t 5 -c 1").environment == (("SLURM_CPUS_PER_TASK", "1"),)
    assert stage_of(here, "-t 5").environment == ()


def test_kinds_of_mail_on_several_lines_are_added_up_as_sbatch_does(here):
    """A line each is how many write them; of other options the last counts, and NONE takes nothing away."""
    asked = stage_of(here, "-t 5 --mail-type=begin", "--mail-type=END,FAIL --mail-type=none -q low -q high")
    assert asked.options == ("--mail-type=begin,END,FAIL", "--qos=high")
    assert "a.sbatch:3: --mail-type: all are asked for" in told(import_scripts([here.folder / "a.sbatch"]))
    assert stage_of(here, "-t 5 --mail-type=NONE --mail-type none").options == ("--mail-type=none",)
    assert stage_of(here, "-t 5 --exclusive -s --exclusive").options == ("--oversubscribe", "--exclusive")
    here("b.sbatch", "#SBATCH -t 5 --mail-type=END --qos=low")
    made = import_scripts([here("run.sh", "sbatch --mail-type=FAIL --qos=high b.sbatch")])
    [stage] = made.workflow.stages.values()
    assert stage.options == ("--mail-type=END,FAIL", "--qos=high")


def test_a_script_that_uses_its_jobs_name_has_it(here):
    """Jobs of a run have names of its own, by which they are found again."""
    for line, body, name in (
        ("-t 5 -J 'fit it'", "mkdir $SLURM_JOB_NAME", "fit it"),
        ("-t 5", 'echo "${SLURM_JOB_NAME}"', "a.sbatch"),
    ):
        [stage] = import_scripts([here("a.sbatch", f"#SBATCH {line}", body)]).workflow.stages.values()
        assert stage.environment == (("SLURM_JOB_NAME", name),)


def test_what_has_no_key_is_passed_on_and_what_cannot_be_is_told(here):
    file = here(
        "a.sbatch",
        "#SBATCH -t 5 --qos=high -C 'a&b' --mail-type=END --exclusive --signal=B:USR1@60 --licenses=x:1",
        "#SBATCH -o out.%j --wait --export=ALL,X=1 --comment=c --new=y",
        "#SBATCH --dependency=afterok:17",
    )
    made = import_scripts([file])
    (stage,) = made.workflow.stages.values()
    assert stage.options == (
        "--qos=high", "--constraint=a&b", "--mail-type=END", "--exclusive", "--signal=B:USR1@60", "--licenses=x:1",
        "--new=y",
    )  # fmt: skip
    assert stage.environment == (("X", "1"),)
    assert stage.stdout == "out.%j"
    for words in ("--wait is left out", "--comment", "# asa: after", "--new=y"):
        assert words in told(made)
    assert f"{file}:3: --wait" in told(made)


def test_a_missing_walltime_is_a_guess_that_can_be_seen(here):
    made = import_scripts([here("a.sbatch", "#SBATCH -t UNLIMITED"), here("b.sbatch")])
    assert [stage.walltime_s for stage in made.workflow.stages.values()] == [3600, 3600]
    assert "b.sbatch: no --time" in told(made)
    assert "--time=UNLIMITED is no limit, and a stage has one: a walltime of 1h00m is put in" in told(made)
    assert "guess" in made.comments["a"][0]


def test_the_order_given_is_a_chain_unless_told_otherwise(here):
    files = [here(f"{name}.sbatch", "#SBATCH -t 5") for name in "abc"]
    assert edges(import_scripts(files)) == {"a": set(), "b": {"a"}, "c": {"b"}}
    assert edges(import_scripts(files, parallel=True)) == {"a": set(), "b": set(), "c": set()}


def test_comments_give_the_graph_by_names_of_jobs_and_files(here):
    files = [
        here("a.sbatch", "#SBATCH -J prep -t 5"),
        here("b.sbatch", "# asa: after=prep", "#SBATCH -t 5"),
        here("c.sbatch", "# depends: a.sbatch", "#SBATCH -t 5"),
        here("d.sbatch", "# asa: after=b, c", "#SBATCH -t 5"),
    ]
    made = import_scripts(files[::-1])
    assert edges(made) == {"prep": set(), "b": {"prep"}, "c": {"prep"}, "d": {"b", "c"}}
    assert "says nothing of what it comes after" in told(made)


def test_a_comment_that_names_nothing_is_an_error_with_its_line(here):
    files = [here("align.sbatch", "#SBATCH -t 5"), here("b.sbatch", "# asa: after=algin", "#SBATCH -t 5")]
    with pytest.raises(InputError, match="algin") as caught:
        import_scripts(files)
    assert caught.value.where.endswith("b.sbatch:2")
    assert "align" in caught.value.hint


def test_scripts_that_wait_for_each_other_are_an_error(here):
    files = [here("a.sh", "# asa: after=b"), here("b.sh", "# asa: after=a")]
    with pytest.raises(WorkflowError, match="depends on itself"):
        import_scripts(files)


def test_names_are_safe_and_unique(here):
    files = [here(f"{i}.sbatch", '#SBATCH -t 5 -J "my job/%j"') for i in range(3)]
    assert list(import_scripts(files).workflow.stages) == ["my-job-j", "my-job-j-2", "my-job-j-3"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo hi\n", "no batch script"),
        ("\ufeff#!/bin/sh\n", "byte order mark"),
        ("#!/bin/sh\r\n#SBATCH -n 2\r\n", "DOS"),
        ("#!/bin/sh\n#SBATCH -n two\n", "--ntasks=two"),
        ("#!/bin/sh\n#SBATCH -t soon\n", "time limit"),
        ("#!/bin/sh\n#SBATCH --mem=lots\n", "memory"),
        ("#!/bin/sh\n#SBATCH -N 0\n", "nodes"),
        ("#!/bin/sh\n#SBATCH --array=x\n", "elements"),
        ("#!/bin/sh\n#SBATCH --array=0-99999999\n", "too many"),
    ],
)
def test_bad_scripts_are_errors_with_their_line(here, text, says):
    file = here.folder / "bad.sh"
    file.write_text(text, newline="")
    with pytest.raises(InputError, match=says) as caught:
        import_scripts([file])
    assert caught.value.where.startswith(f"{file}:")


# ---------------------------------------------------------------------- arrays


packed = partial(import_scripts, pack_arrays=True)


def variables_of(here, made, job_id="17"):
    """Run each stage, each as a job of its own; return what each element was told of its array."""
    seen = {}
    for number, stage in enumerate(made.workflow.stages.values()):
        place = here.folder / "run" / "tasks" / stage.name
        environment = {**os.environ, "SLURM_JOB_ID": str(int(job_id) + number)}
        text = payload_text(stage, stage.cores, folder=str(place))
        subprocess.run(["sh", "-c", text], check=True, timeout=60, cwd=here.folder, env=environment)
    for file in sorted(here.folder.glob("told.*")):
        seen[int(file.suffix[1:])] = dict(line.split("=", 1) for line in file.read_text().splitlines())
    return seen


TELL = "env | grep ^SLURM_ARRAY >told.$SLURM_ARRAY_TASK_ID"


@pytest.mark.parametrize(
    ("array", "elements", "step"),
    [("0-3", [0, 1, 2, 3], 1), ("1-9:2", [1, 3, 5, 7, 9], 2), ("7", [7], 1), ("1-2,0-6:3", [0, 1, 2, 3, 6], 3)],
)
@pytest.mark.parametrize("more", ["", "srun true"])
def test_elements_are_told_what_slurm_tells_them(here, array, elements, step, more):
    file = here("arr.sbatch", f"#SBATCH --array={array} -t 10", TELL, f"if false; then {more or 'true'}; fi")
    seen = variables_of(here, packed([file]))
    told = {"COUNT": len(elements), "MIN": elements[0], "MAX": elements[-1], "STEP": step}
    assert list(seen) == elements
    for number, own in seen.items():
        expected = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in (told | {"ID": number}).items()}
        assert own == expected | {"SLURM_ARRAY_JOB_ID": "17"}


def test_all_jobs_of_an_array_tell_the_number_of_the_first(here):
    file = here("arr.sbatch", "#SBATCH --array=0-9%4 -t 10", TELL)
    made = packed([file], array_cores=2)
    assert len(made.workflow.stages) == 5
    assert {own["SLURM_ARRAY_JOB_ID"] for own in variables_of(here, made, "41").values()} == {"41"}


def test_a_wrapped_array_sees_its_numbers(here):
    driver = here("run.sh", "sbatch -t 5 -a 3-4 --wrap='echo $SLURM_ARRAY_TASK_ID >out.$SLURM_ARRAY_TASK_ID; true'")
    for stage in packed([driver]).workflow.stages.values():
        subprocess.run(["sh", "-c", payload_text(stage, 2)], check=True, timeout=60, cwd=here.folder)
    assert (here.folder / "out.4").read_text() == "4\n"


@pytest.mark.parametrize(
    ("array", "lines", "cores", "stages", "widest"),
    [
        ("0-9", "", None, 1, 10),
        ("0-999", "", None, 32, 32),
        ("0-999", "-c 4", None, 100, 40),
        ("0-9999", "", None, 100, 100),
        ("0-99", "-c 4", 40, 10, 40),
        ("0-9", "-c 64", None, 10, 64),
    ],
)
def test_elements_keep_their_walltime_side_by_side(here, array, lines, cores, stages, widest):
    first = here("arr.sbatch", f"#SBATCH --array={array} -t 4:00:00 --mem=1G {lines}", "./fit")
    made = packed([first, here("last.sbatch", "#SBATCH -t 5")], array_cores=cores)
    last = made.workflow.stages["last"]
    found = [stage for name, stage in made.workflow.stages.items() if name != "last"]
    assert (len(found), max(stage.cores for stage in found)) == (stages, widest)
    assert {stage.walltime_s for stage in found} == {4 * 3600}
    assert all(stage.cores == len(stage.tasks) * stage.cpus_per_task for stage in found)
    assert all(stage.memory_bytes == len(stage.tasks) * GIB and not stage.after for stage in found)
    assert set(last.after) == {stage.name for stage in found}
    numbers = sorted(int(re.search(r"_TASK_ID=(\d+)", task)[1]) for stage in found for task in stage.tasks)
    assert numbers == list(range(len(numbers)))
    assert len(numbers) == int(array.partition("-")[2]) + 1
    assert "each keeps its walltime, and what follows waits for all" in told(made)


@pytest.mark.parametrize(
    ("array", "lines", "cores", "jobs", "held"),
    [
        ("0-9", "", None, 10, 10),
        ("0-9", "", 32, 2, 10),
        ("0-999", "", None, 100, 1000),
        ("0-999", "-c 4", None, 100, 4000),
        ("0-99%16", "-c 4", 16, 4, 64),
        ("0-99%17", "", 4, 5, 15),
        ("0-5%2", "", None, 2, 2),
        ("0-9", "-c 64", None, 10, 640),
    ],
)
def test_the_elements_of_an_array_may_be_shared_out(here, array, lines, cores, jobs, held):
    """As tasks of one stage; no more run at once than were allowed, and each job asks for what its share needs."""
    first = here("arr.sbatch", f"#SBATCH --array={array} -t 4:00:00 --mem=1G -L matlab:2 {lines}", "./fit")
    made = packed([first, here("last.sbatch", "#SBATCH -t 5")], array_cores=cores, share_arrays=True)
    stage, last = made.workflow.stages.values()
    assert (stage.name, last.after) == ("arr", ("arr",))
    assert (stage.jobs, stage.job_count, stage.cores) == ((jobs, jobs), jobs, held)
    count = int(re.search(r"-(\d+)", array)[1]) + 1
    assert [re.search(r"_TASK_ID=(\d+)", task)[1] for task in stage.tasks] == [str(n) for n in range(count)]
    each = stage.of_each_job()
    side_by_side = each.cores // each.cpus_per_task
    in_turn = min(-(-count // (side_by_side * jobs)), 4)
    assert (each.walltime_s, each.memory_bytes) == (in_turn * 4 * 3600, side_by_side * GIB)
    assert f"--licenses=matlab:{2 * side_by_side}" in each.options
    assert side_by_side * jobs <= max(int(array.partition("%")[2] or 0), count + jobs)
    assert "elements become tasks of one stage" in told(made)
    assert ("times an element's walltime" in told(made)) == (in_turn > 1)
    again = here.folder / "again.toml"
    again.write_text(as_toml(made, here.folder, write_workflow))
    assert load_workflow(again).stages["arr"] == stage


def test_elements_that_cannot_share_a_job_are_not_shared_out(here):
    made = packed([here("arr.sbatch", "#SBATCH --array=0-3 -t 10 --exclusive", "./fit")], share_arrays=True)
    assert len(made.workflow.stages) == 4


def test_shared_elements_are_told_what_slurm_tells_them(here):
    file = here("arr.sbatch", "#SBATCH --array=0-6%4 -t 10", TELL)
    seen = variables_of(here, packed([file], array_cores=2, share_arrays=True))
    assert list(seen) == list(range(7))
    assert {own["SLURM_ARRAY_TASK_COUNT"] for own in seen.values()} == {"7"}


@pytest.mark.parametrize("script", ["./fit", "srun ./fit"])
@pytest.mark.parametrize(("count", "at_once", "cores"), [(24, 8, None), (25, 8, 3), (7, 3, 2), (5, 1, None), (4, 9, 2)])
def test_no_more_elements_run_at_once_than_were_allowed(here, script, count, at_once, cores):
    lines = [f"#SBATCH --array=0-{count - 1}%{at_once} -t 4:00:00", script]
    made = packed([here("arr.sbatch", *lines), here("z.sbatch", "#SBATCH -t 5")], array_cores=cores)
    stages = dict(made.workflow.stages)
    last = stages.pop("z")
    graph = made.workflow.graph
    rows = list(nx.weakly_connected_components(graph.subgraph(stages)))
    for row in rows:
        assert nx.dag_longest_path_length(graph.subgraph(row)) == len(row) - 1  # one after the other
    assert sum(max(stages[name].cores for name in row) for row in rows) == min(at_once, count)
    assert {stage.walltime_s for stage in stages.values()} == {4 * 3600}
    assert set(last.after) == set(stages)
    assert ("is kept" in told(made)) is (at_once < count)


def test_an_element_that_fails_stops_no_other_unless_that_could_begin_them_too_early(here):
    """Slurm's elements do not wait for each other's success; but none may begin if what the array follows failed."""
    array = here("arr.sbatch", "#SBATCH --array=0-3%2 -t 10", "./fit")
    made = packed([array])
    assert [(stage.after, stage.when) for stage in made.workflow.stages.values()] == [
        ((), "success"),
        (("arr-0-1",), "always"),
    ]
    assert "an element that fails" not in told(made)
    made = packed([here("first.sbatch", "#SBATCH -t 5"), array])
    assert edges(made) == {"first": set(), "arr-0-1": {"first"}, "arr-2-3": {"arr-0-1"}}
    assert {stage.when for stage in made.workflow.stages.values()} == {"success"}
    assert f"{array}:2: --array: an element that fails keeps those behind it" in told(made)


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("-n 2", "./fit"),
        ("--gpus=1", "./fit"),
        ("--gres=gpu:a100:1", "./fit"),
        ("--gpus-per-task=1 -n 1", "./fit"),
        ("-N 2", "./fit"),
        ("--mem=0", "./fit"),
        ("--exclusive", "./fit"),
        ("--tmp=10G", "./fit"),
        ("", "srun ./fit"),
        ("", "mkdir /scratch/$SLURM_JOB_ID"),
        ("", "make -j$(nproc)"),
        ("", 'echo "on $(nproc) cores"'),
        ("", "./fit; rm -rf ${TMPDIR}/*"),
        ("", "fit --threads $SLURM_CPUS_ON_NODE"),
    ],
)
def test_elements_that_must_stay_apart_become_stages(here, line, script):
    first = here("arr.sbatch", f"#SBATCH --array=0-2 -t 10 {line}", script)
    made = packed([first, here("last.sbatch", "#SBATCH -t 5")])
    assert edges(made) == {"arr-0": set(), "arr-1": set(), "arr-2": set(), "last": {"arr-0", "arr-1", "arr-2"}}
    assert ("SLURM_ARRAY_TASK_ID", "2") in made.workflow.stages["arr-2"].environment
    assert "3 elements become a stage each, for" in told(made)


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("--qos=high --nice -C ssd --signal=B:USR1@60 -o out.%A_%a", "./fit $SLURM_ARRAY_TASK_ID"),
        ("-c 2", "OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK ./fit"),
        ("", "echo Job $SLURM_JOB_ID on $SLURM_NODELIST"),
        ("", "cp $TMPDIR/out . && rm $TMPDIR/out-$SLURM_ARRAY_TASK_ID"),
        ("", "# srun ./fit"),
    ],
)
def test_elements_that_need_nothing_of_their_own_share_a_job(here, line, script):
    (stage,) = packed([here("arr.sbatch", f"#SBATCH --array=0-2 -t 10 {line}", script)]).workflow.stages.values()
    assert len(stage.tasks) == 3
    assert ("--signal=B:USR1@60" in stage.options) is ("--signal" in line)


def test_licenses_are_those_of_all_elements(here):
    file = here("arr.sbatch", "#SBATCH --array=0-2 -t 10 -L matlab:2,fluent", "./fit")
    (stage,) = packed([file]).workflow.stages.values()
    assert stage.options == ("--licenses=matlab:6,fluent:3",)


def test_what_is_added_up_as_an_option_is_added_up_as_a_key_too(monkeypatch):
    """As of any option, for which nobody thinks of elements again when it becomes a key."""
    key = Key(kind="text", description="", examples=[], option="licenses", field="account", name="licenses")
    for module in ("asa.keys", "asa.importers.arrays"):
        monkeypatch.setattr(f"{module}.TERMS", (key,))
    stage = Stage("a", cores=1, account="matlab:2,fluent", options=("--constraint=fast",))
    assert for_elements(stage, 3) == {"account": "matlab:6,fluent:3", "options": stage.options}
    needs = Needs(1)
    assert not apart_because(stage, "./fit", needs)
    assert apart_because(replace(stage, account="a|b"), "./fit", needs) == "each is given --licenses=a|b"


def test_an_array_of_more_jobs_than_can_be_is_refused_with_its_line(here):
    file = here("arr.sbatch", "#SBATCH -t 10", "#SBATCH --array=0-4999%2", "./fit")
    with pytest.raises(InputError, match="more than 1000 jobs") as caught:
        packed([file])
    assert caught.value.where == f"{file}:3"


def test_an_array_stays_one(here):
    first = here("arr.sbatch", "#SBATCH --array=1-9:2%3 -t 10 --gpus=1", "srun ./fit")
    made = import_scripts([first, here("last.sbatch", "#SBATCH -t 5")])
    stage = made.workflow.stages["arr"]
    assert (str(stage.array), stage.cores, stage.walltime_s, stage.gpus) == ("1-9:2%3", 1, 600.0, 1)
    assert stage.script.endswith("srun ./fit\n")
    assert made.workflow.stages["last"].after == ("arr",)
    assert "5 elements stay a job array, 3 at once at most" in told(made)


@pytest.mark.parametrize("array", ["x", "4-1", "1-4:0", "1-4%x", ""])
def test_an_array_that_sbatch_would_refuse_is_refused_with_its_line(here, array):
    with pytest.raises(InputError) as caught:
        import_scripts([here("arr.sbatch", "#SBATCH -t 10", f"#SBATCH --array={array}", "./fit")])
    assert str(caught.value.where).endswith("arr.sbatch:3")


# ---------------------------------------------------------------------- folders, arguments


def test_from_where_the_script_of_a_command_is_found_is_told(here):
    file = here("a.sbatch", "#SBATCH -t 5 --array=0-7", "./fit")
    words = "is looked for from the folder in which asa is started"
    assert words not in told(packed([file]))  # its path is whole
    assert f"a.sbatch {words}" in told(packed([Path("a.sbatch")]))
    here("a.sbatch", "#SBATCH -t 5", "./fit")
    assert words not in told(import_scripts([Path("a.sbatch")]))


def test_another_folder_is_changed_to(here):
    (here.folder / "there").mkdir()
    file = here("a.sbatch", "#SBATCH -t 5 -D there", "pwd >where")
    stage = import_scripts([file.relative_to(here.folder)]).workflow.stages["a"]
    subprocess.run(["sh", "-c", payload_text(stage, 1)], check=True, timeout=60, cwd=here.folder)
    assert (here.folder / "there" / "where").read_text().strip() == os.path.realpath(here.folder / "there")


# ---------------------------------------------------------------------- drivers


def test_what_a_script_reads_is_kept(here):
    """Also by elements that share a job; left out, and named, where only the job has its name."""
    a, b, c = (
        here(f"{name}.sh", f"#SBATCH -t 5 -n 1 {words}")
        for name, words in (("a", "-i in.txt"), ("b", "--input=in.%a -a 1-2"), ("c", "-i in.%j"))
    )
    made = import_scripts([a, b, c], pack_arrays=True)
    first, second, third = made.workflow.stages.values()
    assert first.command.endswith("a.sh <in.txt")
    assert second.tasks[1].endswith('b.sh <in."$SLURM_ARRAY_TASK_ID"')
    assert second.tasks[1].startswith("export SLURM_ARRAY_TASK_ID=2; exec ")
    assert third.script
    [note] = [note for note in made.notes if "--input" in note]
    assert note.startswith(str(c))


ENDS = {
    "test -f x || exit 1": "comes after an exit",
    "[[ -f x ]] || { echo no; exit 1; }": "comes after an exit",
    "if [ ! -f x ]; then\n  echo no\n  exit 1\nfi": "comes after an exit",
    "test -f there && exit": "comes after an exit",
    "D=there\n[ -s $D ] && exit": "comes after an exit",
    '[ -z "$1" ] && exit 1': "unless the script ends before",
    "[ $# -eq 1 ] || { echo usage; exit 1; }": "unless the script ends before",
    "usage() { echo hi; exit 1; }\n[ $# -gt 3 ] && usage": "unless the script ends before",
    "usage() {\n  exit 1\n}\nif [ $# -gt 3 ]; then usage; fi": "unless the script ends before",
    "grep -q x there || exit 1": "unless the script ends before",
    "if [ -f there ]; then echo ok; else exit 1; fi": "unless the script ends before",
    "for i in a; do test -f $i || exit; done": "unless the script ends before",
    "case $1 in\n  a) x=1;;\n  *) echo usage; exit 1;;\nesac": "unless the script ends before",
    "case $1 in a) exit;; esac": "unless the script ends before",
    'read -p sure? x\n[ "$x" = y ] || exit': "unless the script ends before",
}
GOES_ON = [
    "test -f there || exit 1", "[[ -f there ]] || { echo no; exit 1; }", "test -f x && exit 0",
    "if [ ! -f there ]; then echo no; exit 1; fi", "if [ ! -f there ]; then\n  exit 1\nfi", "mkdir -p out || exit 1",
    "command -v sbatch > /dev/null || exit 1", "usage() { exit 1; }", "case $1 in\n  a) x=1;;\nesac",
    "j=$(sbatch --parsable b.sh) || exit 1", 'j=$(sbatch --parsable b.sh)\n[ -z "$j" ] && exit 1',
    "j=$(sbatch b.sh)\nif [ $? -ne 0 ]; then echo bad; exit 1; fi", "test -f x || (echo none; exit 1)",
]  # fmt: skip


@pytest.mark.parametrize("text", [*ENDS, *GOES_ON])
def test_a_driver_that_may_end_before_it_submits_is_refused(here, text):
    """Unless a test that names files says today that it goes on; a command that does something is taken to succeed."""
    for name in ("a.sh", "b.sh"):
        here(name, "#SBATCH -t 5")
    Path("there").write_text("y\n")
    driver = here("submit.sh", *text.split("\n"), "sbatch a.sh")
    if text in ENDS:
        with pytest.raises(InputError, match=ENDS[text]) as error:
            import_scripts([driver])
        assert "asa import scripts --record -- " in error.value.hint
    else:
        assert "a" in import_scripts([driver]).workflow.stages


@pytest.fixture
def scripts(here):
    for name in "abcd":
        here(f"{name}.sbatch", "#SBATCH -t 5")
    return here


DIAMOND = {"a": set(), "b": {"a"}, "c": {"a"}, "d": {"b", "c"}}


@pytest.mark.parametrize(
    "lines",
    [
        [
            "j1=$(sbatch --parsable a.sbatch)",
            "j2=$(sbatch --parsable --dependency=afterok:$j1 b.sbatch)",
            "j3=$(sbatch --parsable -d afterok:${j1} c.sbatch)",
            "sbatch -d afterok:$j2:$j3 d.sbatch",
        ],
        [
            "set -euo pipefail",
            "j1=$(sbatch a.sbatch | awk '{print $4}')",
            "j2=`sbatch --dependency afterok:$j1 b.sbatch | cut -d' ' -f4`",
            'j3="$(sbatch --dependency "afterok:$j1" c.sbatch | grep -o "[0-9]*")"',
            "deps=afterok:$j2,afterok:$j3",
            "sbatch --dependency=$deps d.sbatch >/dev/null 2>&1",
        ],
        [
            "out=$(sbatch a.sbatch); j1=${out##* }",
            "out=$(sbatch -d afterok:$j1 b.sbatch); j2=${out##* }",
            "deps=$j2",
            "out=$(sbatch -d \\",
            "  afterok:$j1 \\",
            "  c.sbatch)",
            "deps+=:${out##* }",
            "sbatch -d afterok:$deps d.sbatch && echo sent",
        ],
    ],
)
def test_a_shell_script_that_submits_others_gives_the_graph(scripts, lines):
    made = import_scripts([scripts("run_all.sh", *lines)])
    assert edges(made) == DIAMOND
    assert made.workflow.name == "run_all"
    assert set(made.scripts) == set("abcd")


def test_options_of_the_command_line_override_those_of_the_script(scripts):
    driver = scripts("run.sh", "P=debug", "sbatch -t 20 -p $P -n 4 --job-name=x a.sbatch", 'sbatch a.sbatch "in put"')
    made = import_scripts([driver])
    stage = made.workflow.stages["x"]
    assert (stage.walltime_s, stage.partition, stage.cores) == (1200, "debug", 4)
    assert made.workflow.stages["a"].command == "exec /bin/bash a.sbatch 'in put'"
    assert edges(made) == {"x": set(), "a": set()}


def test_what_is_only_like_sbatch_is_left_alone(scripts):
    lines = ['echo "sbatch a.sbatch"', "# sbatch b.sbatch", "command -v sbatch >/dev/null", "sbatch c.sbatch"]
    assert list(import_scripts([scripts("run.sh", *lines)]).workflow.stages) == ["c"]


def test_other_dependencies_and_commands_are_told(scripts):
    lines = [
        "j=$(sbatch --parsable a.sbatch)",
        "mkdir out",
        "sbatch -d afterany:$j b.sbatch",
        "sbatch -d singleton c.sbatch",
    ]
    made = import_scripts([scripts("run.sh", *lines)])
    assert edges(made) == {"a": set(), "b": {"a"}, "c": set()}
    assert made.workflow.stages["b"].when == "always"
    assert "`singleton` becomes: after the earlier jobs of its name here, not of other runs" in told(made)
    assert "run.sh:3: what the script does besides sbatch" in told(made)


@pytest.mark.parametrize(
    "lines",
    [
        ["j=$(sbatch --parsable a.sbatch); k=$(sbatch --parsable c.sbatch)", "sbatch -d afternotok:$j:$k b.sbatch"],
        [
            "j=$(sbatch --parsable a.sbatch); k=$(sbatch --parsable c.sbatch)",
            "sbatch -d afternotok:$j,afterok:$k a.sbatch",
        ],
        [
            "j=$(sbatch --parsable a.sbatch); k=$(sbatch --parsable c.sbatch); d=$j:$k",
            "sbatch -d afternotok:$d b.sbatch",
        ],
        [
            "j=$(sbatch --parsable a.sbatch); k=$(sbatch --parsable c.sbatch); d=afternotok:$j",
            "sbatch -d $d:$k b.sbatch",
        ],
        ["j=$(sbatch --parsable a.sbatch)", "sbatch -d afternotok:$j:17 b.sbatch"],
        ["j=$(sbatch --parsable a.sbatch); deps=afternotok:$j:17", "sbatch -d $deps b.sbatch"],
        ["j=$(sbatch --parsable a.sbatch)", "sbatch -d afternotok:$j,afterany:$j b.sbatch"],
        ["j=$(sbatch --parsable a.sbatch); deps=afterok:$j", "deps+=,afternotok:$j; sbatch -d $deps b.sbatch"],
        ["j=$(sbatch --parsable a.sbatch)", "sbatch -d afterok:$j?afternotok:$j b.sbatch"],
        ["sbatch a.sbatch", "sbatch -d afternotok:17 b.sbatch"],
    ],
)
def test_a_job_for_another_ones_failure_is_refused(scripts, lines):
    """As a stage it would run when the other has completed."""
    driver = scripts("run.sh", *lines)
    with pytest.raises(InputError, match="only if another fails") as caught:
        import_scripts([driver])
    assert caught.value.where == f"{driver}:3"
    assert "asa run flow.toml || sbatch" in caught.value.hint


def test_a_script_for_another_jobs_failure_is_refused_unless_it_is_submitted_otherwise(scripts):
    late = scripts("late.sbatch", "#SBATCH -t 5", "#SBATCH --dependency=afternotok:17")
    with pytest.raises(InputError, match="only if another fails") as caught:
        import_scripts([late])
    assert caught.value.where == f"{late}:3"
    with pytest.raises(InputError, match="only if another fails"):
        import_scripts([scripts("run.sh", "sbatch late.sbatch")])
    made = import_scripts([scripts("run.sh", "j=$(sbatch --parsable a.sbatch)", "sbatch -d afterok:$j late.sbatch")])
    assert edges(made) == {"a": set(), "late": {"a"}}


def test_a_dependency_in_a_variable_is_told_as_one_in_place(scripts):
    lines = ["j=$(sbatch --parsable a.sbatch)", "deps=afterany:$j", "sbatch -d $deps b.sbatch"]
    made = import_scripts([scripts("run.sh", *lines)])
    assert edges(made) == {"a": set(), "b": {"a"}}
    assert made.workflow.stages["b"].when == "always"


AFTER_A_AND_C = ["j=$(sbatch --parsable a.sbatch)", "k=$(sbatch --parsable c.sbatch)"]


@pytest.mark.parametrize(
    ("lines", "after", "when"),
    [
        (["sbatch -d afternotok:$j b.sbatch"], {"a"}, "failed"),
        (["deps=afternotok:$j; more=$deps", "sbatch --dependency=$more b.sbatch"], {"a"}, "failed"),
        (["kind=afternotok", "sbatch -d $kind:$k b.sbatch"], {"c"}, "failed"),
        (["sbatch -d afternotok:$j?afternotok:$k b.sbatch"], {"a", "c"}, "failed"),
        (["sbatch -d afterany:$j:$k b.sbatch"], {"a", "c"}, "always"),
        (["sbatch -d afterany:$j,afterany:$k b.sbatch"], {"a", "c"}, "always"),
        (["deps=afterany", 'for_all="$deps:$j:$k"', "sbatch -d $for_all b.sbatch"], {"a", "c"}, "always"),
        (["sbatch -d afterok:$j:$k b.sbatch"], {"a", "c"}, "success"),
        (["sbatch -d afterok:$j,afterany:$k b.sbatch"], {"a", "c"}, "success"),
        (["deps=afterok:$j", "sbatch -d $deps:$k b.sbatch"], {"a", "c"}, "success"),
        (["sbatch -d afterok:$j,singleton b.sbatch"], {"a"}, "success"),
    ],
)
def test_how_others_must_end_is_kept(scripts, lines, after, when):
    """Where all that a job waits for must end the same way; else as before, which is told."""
    made = import_scripts([scripts("run.sh", *AFTER_A_AND_C, *lines)])
    stage = made.workflow.stages["b"]
    assert (set(stage.after), stage.when) == (after, when)
    is_told = "`afterany` becomes: after the other has completed; if that fails, this stage does not run" in told(made)
    assert not is_told
    assert stage.after_any == (("c",) if "afterok:$j,afterany" in lines[-1] else ())


@pytest.mark.parametrize(
    ("option", "after", "after_any", "when"),
    [
        ("singleton", {"one", "one-2"}, (), "always"),
        ("afterok:$k,singleton", {"c", "one", "one-2"}, ("one", "one-2"), "success"),
        ("afterany:$k,singleton", {"c", "one", "one-2"}, (), "always"),
        ("afterok:$j,singleton", {"one", "one-2"}, ("one-2",), "success"),
        ("after:$k,singleton", {"c", "one", "one-2"}, ("one", "one-2"), "success"),
        ("afternotok:$k,singleton", {"c"}, (), "failed"),
    ],
)
def test_a_singleton_follows_the_earlier_jobs_of_its_name(scripts, option, after, after_any, when):
    """However these end; beside others that it waits for, if a stage can say both, else that is told."""
    lines = [
        "j=$(sbatch --parsable -J one a.sbatch)",
        "k=$(sbatch --parsable c.sbatch)",
        "sbatch -J one b.sbatch",
        f"sbatch -J one -d {option} a.sbatch",
    ]
    made = import_scripts([scripts("run.sh", *lines)])
    stage = made.workflow.stages["one-3"]
    assert (set(stage.after), stage.after_any, stage.when) == (after, after_any, when)
    assert ("`singleton` is left out" in told(made)) == (when == "failed")


def test_a_script_that_says_of_itself_that_it_is_a_singleton(scripts):
    """Each of three submissions of it follows those before."""
    own = scripts("own.sbatch", "#SBATCH -t 5", "#SBATCH --dependency=singleton", "true")
    made = import_scripts([scripts("run.sh", *[f"sbatch {own.name}"] * 3)])
    assert edges(made) == {"own": set(), "own-2": {"own"}, "own-3": {"own", "own-2"}}
    assert {stage.when for name, stage in made.workflow.stages.items() if name != "own"} == {"always"}


@pytest.mark.parametrize(
    ("lines", "walltime_s"),
    [
        ((), 3 * 3600),
        (("#SBATCH -p long",), 2 * 86400),
        (("#SBATCH -p endless",), 3600),
        (("#SBATCH -p long,short",), 3600),
        (("#SBATCH -p other",), 3600),
        (("#SBATCH -t 7",), 420),
    ],
)
def test_who_asks_for_no_time_has_what_the_site_gives(scripts, tmp_path, monkeypatch, lines, walltime_s):
    """Else it is a guess, which is told."""
    (tmp_path / "bin").mkdir()
    said = (
        "PartitionName=short AllowGroups=ALL Default=YES QoS=N/A DefaultTime=03:00:00 MaxTime=UNLIMITED State=UP",
        "PartitionName=long AllowGroups=ALL Default=NO QoS=N/A DefaultTime=NONE MaxTime=2-00:00:00 State=UP",
        "PartitionName=endless AllowGroups=ALL Default=NO DefaultTime=NONE MaxTime=UNLIMITED State=UP",
    )
    program = tmp_path / "bin" / "scontrol"
    program.write_text("#!/bin/sh\n" + "\n".join(f"echo '{line}'" for line in said) + "\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    made = import_scripts([scripts("a.sbatch", "#!/bin/sh", *lines, "true")])
    [stage] = made.workflow.stages.values()
    assert stage.walltime_s == walltime_s
    assert ("a walltime of 1h00m is put in" in told(made)) == (walltime_s == 3600)


@pytest.mark.parametrize(
    ("lines", "is_said"),
    [
        (["j=$(sbatch a.sbatch)", "sbatch -d afterok:$j b.sbatch"], True),
        (["j=`sbatch a.sbatch`", "sbatch -d afterok:${j} b.sbatch"], True),
        (["j=$(sbatch a.sbatch)", "sbatch -d afterok:${j##* } b.sbatch"], False),
        (["j=$(sbatch --parsable a.sbatch)", "sbatch -d afterok:$j b.sbatch"], False),
        (["j=$(sbatch a.sbatch | awk '{print $4}')", "sbatch -d afterok:$j b.sbatch"], False),
        (["j=$(sbatch a.sbatch)", "j=${j##* }", "sbatch -d afterok:$j b.sbatch"], False),
        (["j=$(sbatch a.sbatch)", "j=$(echo $j | cut -d' ' -f4)", "sbatch -d afterok:$j b.sbatch"], False),
    ],
)
def test_a_sentence_that_is_taken_for_a_number_is_told(scripts, lines, is_said):
    """Some sites' sbatch prints the number alone; Slurm's own refuses its sentence as a dependency."""
    for name in ("a", "b"):
        scripts(f"{name}.sbatch", "#!/bin/sh", "#SBATCH -n 1 -t 5", "true")
    made = import_scripts([scripts("run.sh", "#!/bin/sh", *lines)])
    assert made.workflow.stages["b"].after == ("a",)
    assert ("would refuse that as a dependency" in told(made)) == is_said


@pytest.mark.parametrize("late", ["$m", "x", "1.5"])
def test_minutes_that_are_not_known_are_refused(scripts, late):
    with pytest.raises(InputError, match=r"minutes|only when the script runs|no job that was submitted"):
        import_scripts([scripts("run.sh", *AFTER_A_AND_C, f"sbatch -d after:$j+{late} b.sbatch")])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("afterok:$j?afterok:$k", {"when": "any"}),
        ("afterany:$j?afterany:$k", {"when": "any", "after_any": ("a", "c")}),
        ("after:$j:$k", {"after_start": ("a", "c")}),
        ("after:$j+5:$k+5", {"after_start": ("a", "c"), "start_delay_s": 300.0}),
        ("after:$j+5:$k", {}),
        ("after:$j,afterok:$k", {}),
        ("aftercorr:$j:$k", {}),
    ],
)
def test_what_begins_before_others_have_ended_is_kept(scripts, value, says):
    """Where it is the same for all that a job waits for; else it is told that the stage waits for them to complete."""
    made = import_scripts([scripts("run.sh", *AFTER_A_AND_C, f"sbatch -d {value} b.sbatch")])
    stage = made.workflow.stages["b"]
    expected = {"when": "success", "after_any": (), "after_start": (), "start_delay_s": 0.0} | says
    assert set(stage.after) == {"a", "c"}
    assert {key: getattr(stage, key) for key in expected} == expected
    assert ("becomes: after the other has completed" in told(made)) == (not says and "corr" not in value)


def test_what_is_for_failures_follows_all_of_an_array(scripts):
    """As in Slurm, where one element that fails will do; an array for a failure begins, or is left out, as a whole."""
    many = scripts("many.sbatch", "#SBATCH --array=1-4%2 --exclusive -t 5", "true")
    lines = [f"j=$(sbatch --parsable {many.name})", "sbatch -d afternotok:$j b.sbatch"]
    made = packed([scripts("run.sh", *lines)])
    stages = made.workflow.stages
    assert (stages["b"].when, set(stages["b"].after)) == ("failed", set(stages) - {"b"})
    for kind, when in (("afterany", "always"), ("afternotok", "success")):
        lines = ["j=$(sbatch --parsable b.sbatch)", f"sbatch -d {kind}:$j {many.name}"]
        stages = packed([scripts("run.sh", *lines)]).workflow.stages
        assert {stage.when for stage in stages.values() if stage.after == ("b",)} == {
            "always" if kind == "afterany" else "failed"
        }
        assert {stage.when for stage in stages.values() if stage.after and stage.after != ("b",)} == {when}


PYTHON = "#!/usr/bin/env python3"


@pytest.mark.parametrize(
    ("first", "lines", "names"),
    [
        (PYTHON, ["import subprocess", "subprocess.run(['python3', 'a.py'])", "subprocess.run('python3 b.py')"], "ab"),
        (
            PYTHON,
            ["import os, sys", "for name in ('a.py', 'b.py'):", "    os.system(f'{sys.executable} {name}')"],
            "ab",
        ),
        (PYTHON, ["import os", "os.system(f'python3 -u b.py --n {1}')"], "b"),
        (PYTHON, ["import a, b", "a.main()"], "ab"),
        (PYTHON, ["from a import main", "from . import b"], "ab"),
        (PYTHON, ["import subprocess", "subprocess.run(['sbatch', '--wait', 'a.py'])"], "a"),
        ("#!/bin/bash", ["python3 a.py && srun python3 -u b.py"], "ab"),
        ("#!/bin/bash", ["#SBATCH -t 5", "./a.py", "sbatch --parsable -d singleton b.py"], "ab"),
    ],
)
def test_a_script_that_runs_the_others_is_no_stage_beside_them(here, first, lines, names):
    """Or they would run twice; unless it says itself that it is a stage."""
    files = [here(f"{name}.py", "print()", first=PYTHON) for name in "ab"]
    driver = here("driver", *lines, first=first)
    with pytest.raises(InputError, match="would run twice") as caught:
        import_scripts([*files, driver])
    assert caught.value.where == str(driver)
    assert [name for name in "abc" if f"{here.folder}/{name}.py" in caught.value.message] == list(names)
    assert (
        f"Leave driver out; or if it is a stage as well, say so in its head, as in # asa: after={names[0]}.py"
        in str(caught.value)
    )
    driver = here("driver", "# asa: after=a,b", *lines, first=first)
    assert edges(import_scripts([*files, driver]))["driver"] == {"a", "b"}
    assert len(import_scripts([driver.with_name("a.py")]).workflow.stages) == 1


@pytest.mark.parametrize(
    ("first", "lines"),
    [
        (PYTHON, ['"""Comes after a.py.', "sbatch a.py", '"""', "import sys, json", "print('see a.py', sys.argv)"]),
        (PYTHON, ["print 'python3 a.py'"]),
        ("#!/bin/bash", ["# python3 a.py", "grep x a.py", "cd elsewhere", "python3 a.py"]),
        ("#!/usr/bin/perl", ["system('python3 a.py');"]),
    ],
)
def test_a_script_that_only_speaks_of_another_is_a_stage(here, first, lines):
    files = [here("a.py", "print()", first=PYTHON), here("b", *lines, first=first)]
    assert edges(import_scripts(files)) == {"a": set(), "b": {"a"}}


def test_a_heterogeneous_job_is_refused_on_a_command_line_too(scripts):
    driver = scripts("run.sh", "sbatch -n1 : -n2 a.sbatch")
    with pytest.raises(InputError, match=r"run\.sh:2: is a heterogeneous job, of whose components"):
        import_scripts([driver])


def test_a_script_that_submits_others_is_no_stage(scripts):
    """In shell it is read alone; in Python it cannot be."""
    shell = scripts("run.sh", "j=$(sbatch --parsable a.sbatch)", 'sbatch "-dafterok:$j" b.sbatch')
    with pytest.raises(InputError, match="cannot be one stage among others") as caught:
        import_scripts([scripts.folder / "c.sbatch", shell])
    assert f"Import it alone: asa import scripts {shell}" in str(caught.value)
    assert edges(import_scripts([shell])) == {"a": set(), "b": {"a"}}
    lines = ["import subprocess", "subprocess.run(f'sbatch --parsable {input()}', shell=True)"]
    python = scripts("run.py", *lines, first=PYTHON)
    with pytest.raises(InputError, match="submits jobs itself, and is no stage") as caught:
        import_scripts([python])
    assert f"asa import scripts --record -- python3 {python}" in caught.value.hint
    job = scripts("job.py", "#SBATCH -t 5", *lines, first=PYTHON)  # a job that submits more, of nobody knows what
    assert list(import_scripts([job]).workflow.stages) == ["job"]


def test_a_wrapped_command_is_a_stage(scripts):
    made = import_scripts([scripts("run.sh", "sbatch -t 5 -J say --wrap='echo hi; hostname'")])
    assert made.workflow.stages["say"].command == "echo hi; hostname"


@pytest.mark.parametrize(
    ("lines", "line", "says"),
    [
        (["for i in 1 2; do", "  sbatch a.sbatch", "done"], 3, "loop"),
        (["for i in 1 2; do sbatch a.sbatch; done"], 2, "loop"),
        (["sbatch $FILE_THAT_NOBODY_KNOWS"], 2, "known only when"),
        (["sbatch missing.sbatch"], 2, "not there"),
        (["sbatch -d afterok:$nobody a.sbatch"], 2, "nobody"),
        (["sbatch <<EOF", "EOF"], 2, "input"),
        (["sbatch a.sbatch -t", "sbatch --time"], 3, "no value"),
        (["sbatch $(ls)"], 2, "known only when"),
        (['sbatch "a.sbatch'], 2, "cannot be read"),
    ],
)
def test_what_decides_when_it_runs_is_an_error_with_its_line(scripts, lines, line, says):
    driver = scripts("run.sh", *lines)
    with pytest.raises(InputError, match=says) as caught:
        import_scripts([driver])
    assert caught.value.where == f"{driver}:{line}"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["S=$1", "sbatch a.sbatch $S"], r"\$S is known only when"),
        (["sbatch a.sbatch $1"], r"\$1 is known only when"),
        (['sbatch a.sbatch "$@"'], r"\$@ is known only when"),
        (["sbatch a.sbatch ${1:-abc}"], "is known only when"),
        (["D=$PWD/data", "sbatch a.sbatch $D"], r"\$D is known only when"),
        (["sbatch -A $ACCOUNT_OF_MINE a.sbatch"], "ACCOUNT_OF_MINE is known only when"),
        (["sbatch a.sbatch *.fits"], "is expanded only when"),
        (["sbatch a.sbatch ~/x"], "is expanded only when"),
        (["sbatch a.sbatch {1..3}"], "is expanded only when"),
        (["sbatch -D `pwd` a.sbatch"], "is known only when"),
        (["sbatch -D $(pwd) a.sbatch"], "is known only when"),
        (
            ["if test -f x; then j=$(sbatch --mem=64G a.sbatch); else j=$(sbatch --mem=8G a.sbatch); fi"],
            "in an if or a case",
        ),
        (["case $x in", "a) sbatch a.sbatch ;;", "esac"], "not understood"),
        (["f() {", "  sbatch a.sbatch", "}", "f"], "in a function"),
        (["function f { sbatch a.sbatch; }", "f"], "in a function|not understood"),
        (["test -f x && sbatch a.sbatch"], "behind && or"),
        (["sbatch a.sbatch || sbatch b.sbatch"], "not understood"),
        (["cd sub && sbatch a.sbatch"], "in another folder"),
        (["cd sub", "sbatch a.sbatch"], "in another folder"),
        (['sub="sbatch a.sbatch"', "j=$($sub)"], "not understood"),
        (["ssh host sbatch a.sbatch"], "not understood"),
        (["eval 'sbatch a.sbatch'"], "not understood"),
        (["ls | xargs -n 1 sbatch"], "not understood"),
        (['X="a', "b", "sbatch a.sbatch"], "cannot be read|not understood"),
        (["sbatch --dependency=$K:7 a.sbatch"], "known only when"),
        (["/opt/slurm/bin/sbatch a.sbatch"], "not understood"),
        (["( cd sub; sbatch a.sbatch )"], "in another folder|not understood"),
        (["bash <<END", "sbatch a.sbatch", "END"], "not understood"),
        (["ssh host <<'END'", "cd x; sbatch a.sbatch", "END"], "not understood"),
        (["if a; then if b; then sbatch a.sbatch; fi; fi"], "in an if or a case"),
        (["if a; then", "if sbatch a.sbatch; then echo; fi", "fi"], "in an if or a case|not understood"),
        (["Q=slow", "if a; then Q=fast; fi", "sbatch -p $Q a.sbatch"], r"\$Q is known only when"),
        (["Q=slow", 'test -n "$X" && Q=fast', "sbatch -p $Q a.sbatch"], r"\$Q is known only when"),
        (["Q=slow", ": ${Q:=fast}", "sbatch -p $Q a.sbatch"], r"\$Q is known only when"),
        (["Q=slow", "read Q <list", "sbatch -p $Q a.sbatch"], r"\$Q is known only when"),
        (["Q=slow", "source env.sh", "sbatch -p $Q a.sbatch"], r"\$Q is known only when"),
        (["Q=slow", "for Q in a b; do echo; done", "sbatch -p $Q a.sbatch"], r"\$Q is known only when"),
        (["O=$X", "O+=' -p x'", "sbatch $O a.sbatch"], r"\$O is known only when"),
        (["j=$(sbatch a.sbatch)", 'test -n "$j" || j=7', "sbatch -d afterok:$j b.sbatch"], "no job that was submitted"),
        (["j=$(sbatch a.sbatch)", "( j=5; sbatch -d afterok:$j b.sbatch )"], "not understood"),
        (["S=$(date) sbatch a.sbatch"], "not understood"),
        (["echo 'sbatch a.sbatch' | bash"], "not understood"),
        (["printf 'sbatch %s\\n' a.sbatch b.sbatch >all", "sh all"], "not understood"),
        (["S=reads.fq", "sbatch a.sbatch ${S%.fq}"], r"\$S is known only when"),
        (["S=reads.fq", "sbatch a.sbatch ${#S}"], "is known only when"),
        (["sbatch -J x$$ a.sbatch"], "is known only when"),
        (["S='$HOME'", "sbatch a.sbatch $S"], r"\$S is known only when"),
        (["sbatch a*.sbatch"], "is expanded only when"),
        (["echo './new' >>a.sbatch", "sbatch a.sbatch"], "may be written or changed"),
        (["F=a.sbatch", "cat >$F <<END", "./new", "END", "sbatch a.sbatch"], "may be written or changed"),
        (["sed -i s/old/new/ a.sbatch", "sbatch a.sbatch"], "may be written or changed"),
        (["sbatch --wait a.sbatch", "sbatch b.sbatch"], "once the script has waited: see .*:2"),
        (["j=$(sbatch a.sbatch)", "while squeue -j $j | grep $j; do sleep 9; done", "sbatch b.sbatch"], "has waited"),
        (["while ! test -f x; do sleep 9; done", "sbatch b.sbatch"], "has waited"),
        (["sbatch a.sbatch", "exit 0", "sbatch b.sbatch"], "after an exit: see .*:3"),
        (["test -f x && {", "  sbatch a.sbatch", "}"], "in braces"),
        (["Q=slow", "test -f x || {", "Q=fast", "}", "sbatch -p $Q a.sbatch"], r"\$Q is known only when"),
        (["js+=($(sbatch a.sbatch))", "sbatch -d afterok:${js[0]} b.sbatch"], "is known only when"),
        (["j=$(sbatch a.sbatch)", "scancel $j"], "changes a job that was submitted"),
        (["j=$(sbatch a.sbatch)", "scontrol update JobId=$j TimeLimit=9"], "changes a job that was submitted"),
        (["cat <<END | bash", "sbatch a.sbatch", "END"], "not understood"),
        (["cat >all.sh <<END", "sbatch a.sbatch", "END", "sh all.sh"], "not understood"),
        (["tee $F >/dev/null <<END", "sbatch a.sbatch", "END", "sh $F"], "not understood"),
        (["bash <<END", "for i in 1 2; do j=$(sbatch a.sbatch); done", "END"], "not understood"),
        (["S=$(which sbatch)", "$S a.sbatch"], "not understood"),
        (["S=`command -v sbatch`", '"$S" a.sbatch'], "not understood"),
        (["c=(sbatch a.sbatch)", "c+=(-p x)", '"${c[@]}"'], "not understood"),
        (
            ["j=$(sbatch a.sbatch)", "j=$j:$(sbatch b.sbatch)", "sbatch -d afterok:${j%%:*} c.sbatch"],
            "is known only when",
        ),
        (
            ["j=$(sbatch a.sbatch)", "k=$(sbatch b.sbatch)", "l=$j:$k", "sbatch -d afterok:${l%%:*} c.sbatch"],
            r"\$\{l%%:\*\} is known only when",
        ),
        (["sbatch --array=1-$(wc -l <list) a.sbatch"], r"\$\(wc -l <list\) is known only when"),
    ],
)
def test_what_is_not_certain_is_refused(scripts, lines, message):
    """Each would have become another job than sbatch would have got, or none, without a word."""
    with pytest.raises(InputError, match=message):
        import_scripts([scripts("run.sh", *lines)])


def test_what_is_certain_is_as_sbatch_gets_it(scripts):
    driver = scripts(
        "run.sh",
        'cd "$(dirname "$0")"',
        "command -v sbatch >/dev/null || echo 'there is no sbatch'",
        'TEXT="one',
        'two"',
        "cat >notes <<END",
        "sbatch is for tomorrow's \"jobs",
        "END",
        "read first <<<word",  # no here-document
        "<<COMMENT",
        "sbatch d.sbatch",
        "COMMENT",
        "echo $((1<<two))",
        'OPTS="-p fast"',
        'OPTS+=" --mem=4G"',
        "j=$(sbatch --parsable $OPTS a.sbatch x y)",
        "ids=$ids:$j",
        "export S=s1",
        "k=$(sbatch --parsable b.sbatch)",
        "ids=$ids:$k",
        "S=s2 sbatch --dependency=afterok$ids c.sbatch",
        "echo submit more with sbatch d.sbatch",
    )
    flow = import_scripts([driver]).workflow
    assert edges(import_scripts([driver])) == {"a": set(), "b": set(), "c": {"a", "b"}}
    a, b, c = (flow.stages[name] for name in "abc")
    assert (a.partition, a.request, a.command) == ("fast", ("--mem=4G",), "exec /bin/bash a.sbatch x y")
    assert (dict(a.environment).get("S"), dict(b.environment)["S"], dict(c.environment)["S"]) == (None, "s1", "s2")


@pytest.mark.parametrize(
    ("lines", "after", "when"),
    [
        (["j=$(sbatch a.sbatch)", "j=$j:$(sbatch b.sbatch)", "sbatch -d afterok:$j c.sbatch"], {"a", "b"}, "success"),
        (["j=$(sbatch a.sbatch)", 'j="$(sbatch b.sbatch):$j"', "sbatch -d afterok:$j c.sbatch"], {"a", "b"}, "success"),
        (["j=$(sbatch a.sbatch)", "j+=:`sbatch b.sbatch`", "sbatch -d afterok:$j c.sbatch"], {"a", "b"}, "success"),
        (
            ["j=$(sbatch a.sbatch)", 'j="$j $(sbatch b.sbatch)"', "sbatch -d afterok:${j// /:} c.sbatch"],
            {"a", "b"},
            "success",
        ),
        (["j=:$(sbatch a.sbatch | awk '{print $4}')", "sbatch -d afterany$j c.sbatch"], {"a"}, "always"),
        (["j=afterany:$(sbatch a.sbatch)", "sbatch -d $j c.sbatch"], {"a"}, "always"),
        (["j=afternotok:$(sbatch a.sbatch)", "sbatch --dependency=$j c.sbatch"], {"a"}, "failed"),
    ],
)
def test_what_stands_beside_a_call_in_a_variable_counts(scripts, lines, after, when):
    """The jobs that are named there, and how they must end; both were lost."""
    flow = import_scripts([scripts("run.sh", *lines)]).workflow
    assert (set(flow.stages["c"].after), flow.stages["c"].when) == (after, when)


@pytest.mark.parametrize("number", ["${j##* }", "${j%%;*}", "${j:20}"])
def test_a_number_may_be_cut_out_of_what_sbatch_says(scripts, number):
    driver = scripts(
        "run.sh",
        "j=$(sbatch a.sbatch)",
        f"sbatch -d afterok:{number} b.sbatch",
        f"k={number}; sbatch -d after:$k c.sbatch",
    )
    assert edges(import_scripts([driver])) == {"a": set(), "b": {"a"}, "c": {"a"}}


@pytest.mark.parametrize(
    "lines",
    [["cd sub", "sbatch a.sbatch"], ["sbatch no.sbatch"], ["j=$(sbatch a.sbatch)", "sbatch -d afterok:$k b.sbatch"]],
)
def test_who_is_refused_a_driver_is_told_how_to_record_it(scripts, lines):
    with pytest.raises(InputError) as caught:
        import_scripts([scripts("run.sh", *lines)])
    assert "asa import scripts --record -- " in caught.value.hint


def test_what_a_driver_does_in_loops_or_writes_is_named_as_well(scripts):
    made = import_scripts(
        [
            scripts(
                "run.sh",
                "for i in 1 2; do echo $i; done",
                "for i in a b; do",
                "cp $i x",
                "done",
                "echo 1 >n",
                "sbatch a.sbatch",
            )
        ]
    )
    [told_of] = [note for note in made.notes if "besides sbatch is not taken over" in note]
    assert re.findall(r":(\d+)[,:]", told_of) == ["4", "6"]


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("--wrap='for i in 1 2; do echo $i; done'", "for i in 1 2; do echo $i; done"),
        ("--wrap='if test -f x; then { ./y; }; fi'", "if test -f x; then { ./y; }; fi"),
        ('--wrap="echo \\$SLURM_JOB_ID \\`date\\` $i"', "echo $SLURM_JOB_ID `date` 7"),
        ("--wrap='sort <x >y'", "sort <x >y"),
        ('--wrap="sort <x >y" >log', "sort <x >y"),
        ("a.sbatch '>5' \\<", "exec /bin/bash a.sbatch '>5' '<'"),
        (">log 2>&1 a.sbatch x 2> err y >>log&", "exec /bin/bash a.sbatch x y"),
        ("&>log a.sbatch x", "exec /bin/bash a.sbatch x"),
        ("a.sbatch '$HOME' \\$i x#1 # $i", "exec /bin/bash a.sbatch '$HOME' '$i' 'x#1'"),
    ],
)
def test_what_a_shell_takes_literally_is_as_it_is_written(scripts, given, command):
    (stage,) = import_scripts([scripts("run.sh", "i=7", f"sbatch {given}")]).workflow.stages.values()
    assert stage.command == command


def test_variables_that_are_exported_together_or_all_are_kept_and_numbers_of_jobs_are_named(scripts):
    driver = scripts(
        "run.sh",
        "export A=1 B='x y' C=$A",
        "j=$(sbatch a.sbatch) || { echo 'sbatch a.sbatch failed' >&2; exit 1; }",
        "usage() { echo; exit 1; }",
        "set -a",
        "D=2",
        "export J=$j",
        "sbatch -d afterok:${j}_3 b.sbatch",
    )
    made = import_scripts([driver])
    a, b = made.workflow.stages.values()
    assert dict(a.environment) == {"A": "1", "B": "x y", "C": "1"}
    assert dict(b.environment) == {"A": "1", "B": "x y", "C": "1", "D": "2"}
    assert "export J: it holds a job's number" in told(made)
    assert "on an element of an array becomes: on the whole array" in told(made)


def test_a_batch_script_that_submits_others_itself_is_refused(scripts):
    script = scripts("self.sh", "#SBATCH -t 5", "./step", "sbatch b.sbatch")
    with pytest.raises(InputError, match="of which the workflow would not know"):
        import_scripts([script])
