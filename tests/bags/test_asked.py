"""The keys of a stage whose tasks several jobs share, in files and in Python, and errors in them."""

from dataclasses import replace

import pytest

from asa import Flow
from asa.errors import AsaError, WorkflowError
from asa.spec import load_workflow
from asa.workflow import Stage

BAG = Stage("a", cores=12, tasks=("t",), memory_bytes=100, gpus=3, exclusive=True, jobs=(1, 8))


def read(tmp_path, *lines):
    path = tmp_path / "flow.toml"
    path.write_text('name = "f"\n[[stage]]\nname = "a"\nwalltime = "1h"\n' + "\n".join(lines))
    return load_workflow(path).stages["a"]


@pytest.mark.parametrize(
    ("said", "jobs", "count"),
    [("jobs = 4", (4, 4), 4), ('jobs = "1..8"', (1, 8), 6), ('jobs = "5..12"', (5, 12), 12), ("", (1, 1), 1)],
)
def test_a_number_or_a_range_of_which_the_most_is_taken_that_shares_evenly(tmp_path, said, jobs, count):
    stage = read(tmp_path, 'tasks = ["x"]', "cores = 12", said)
    assert (stage.jobs, stage.job_count, stage.of_each_job().cores) == (jobs, count, 12 // count)


def test_python_says_the_same(tmp_path):
    in_file = read(tmp_path, 'tasks = ["x"]', "cores = 12", 'jobs = "1..8"')
    in_python = Flow("f").stage("a", tasks=["x"], cores=12, jobs="1..8", walltime="1h")
    assert in_file == in_python
    assert Flow("f").stage("a", tasks=["x"], cores=12, jobs=4).jobs == (4, 4)


def test_each_job_needs_its_part():
    each = BAG.of_each_job()
    assert (each.cores, each.memory_bytes, each.gpus, each.exclusive, each.jobs) == (2, 17, 1, True, (1, 1))


def test_tasks_and_nodes_are_not_split():
    assert replace(BAG, cpus_per_task=4).job_count == 3
    assert replace(BAG, cores=None, nodes=4, jobs=(1, 3)).job_count == 2


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"jobs": (5, 5)}, "12 cores, which 5 jobs cannot share evenly"),
        ({"jobs": (2, 2), "cpus_per_task": 4}, "12 cores in tasks of 4, which 2 jobs cannot share evenly"),
        ({"jobs": (4, 2)}, "4 to 2 jobs"),
        ({"jobs": (0, 0)}, "0 jobs"),
        ({"jobs": (1, 1001)}, "1 to 1001 jobs"),
        ({"tasks": (), "command": "x"}, "no list of tasks"),
        ({"local": True}, "runs on the client"),
    ],
)
def test_what_cannot_be_is_refused(what, words):
    with pytest.raises(WorkflowError, match=words):
        replace(BAG, **what)


@pytest.mark.parametrize(
    "said", ['jobs = "many"', 'jobs = "8..1"', "jobs = 0", "jobs = true", "jobs = 2.5", "jobs = [1, 2]"]
)
def test_what_is_no_number_is_refused_where_it_stands(tmp_path, said):
    with pytest.raises(AsaError) as caught:
        read(tmp_path, 'tasks = ["x"]', "cores = 12", said)
    assert "flow.toml" in str(caught.value)
