"""A request is passed on unchanged, and its totals are known."""

import pytest

from asa.backend import Capabilities, PartitionLimits
from asa.errors import InputError, WorkflowError
from asa.flow import Flow
from asa.requests import come_to, min_nodes
from asa.runner.retries import with_more_memory
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.shapes import Moldable
from asa.spec import load_workflow, write_workflow
from asa.strategies import Keep, PlannedJob
from asa.workflow import Stage, Workflow

MIB = 1 << 20
SITE = Capabilities(
    "x", 112, 28, False, partition="long", partitions={"long": PartitionLimits(memory_per_node_bytes=16000 * MIB)}
)
TWO = Stage("a", command="x", request=("--nodes=2", "--ntasks-per-node=1", "--mem=15000M"))


def spec(*stages, names=("a",)):
    state = RunState("x", Workflow("x", stages), SITE, "abcd1234")
    return spec_of(state, PlannedJob(names, 0.0, Keep.NOTHING, ""))


def test_memory_of_each_of_several_nodes_is_possible_where_sbatch_takes_it():
    """Two nodes of 15000 MB each, though two cores would fit onto one."""
    assert SITE.impossible(spec(TWO)) is None
    assert "of memory a node" in SITE.impossible(spec(Stage("a", command="x", request=("--mem=17000M",))))


def test_stages_that_share_a_job_ask_for_what_they_come_to():
    other = Stage("b", cores=4, command="y", after=("a",))
    shared = spec(TWO, other, names=("a", "b"))
    assert (shared.request, shared.cores, shared.memory_bytes) == (None, 4, 30000 * MIB)
    assert spec(TWO, other).request == TWO.request


def test_another_width_is_asked_for_by_cores():
    stage = Stage("a", cores=2, command="x", request=("--nodes=2-4", "--mem=8G"), moldable=Moldable((2, 4)))
    assert stage.request == ("--nodes=2-4", "--mem=8G")
    wider = stage.fixed(4)
    assert (wider.cores, wider.request) == (4, None)
    assert stage.fixed(2).request == stage.request
    assert wider.options == ("--ntasks-per-node=1", "--mem=8G")


def test_more_memory_after_a_failure_is_asked_for_in_the_same_words():
    stage = Stage("a", command="x", request=("--ntasks=4", "--mem-per-cpu=1000M"), retry_memory_factor=1.5)
    assert with_more_memory(stage, SITE).request == ("--ntasks=4", "--mem-per-cpu=1500M")
    assert with_more_memory(TWO, SITE).request == ("--nodes=2", "--ntasks-per-node=1", "--mem=16000M")


def test_an_empty_request_is_what_sbatch_gives_by_default():
    assert (Stage("a", request=()).cores, Stage("a", request=()).request) == (1, ())
    assert (min_nodes(()), come_to(()).tasks) == (0, 1)


def test_more_memory_is_rounded_down_so_that_it_fits_onto_the_node():
    stage = Stage("a", command="x", request=("--nodes=1", "--ntasks=3", "--mem-per-cpu=5000M"), retry_memory_factor=2.0)
    more = with_more_memory(stage, SITE)
    assert (more.request[-1], more.memory_bytes) == ("--mem-per-cpu=5333M", 15999 * MIB)
    assert SITE.impossible(spec(more)) is None
    assert with_more_memory(more, SITE) == more


CONTRADICTIONS = [{"cores": 8}, {"cpus_per_task": 2}, {"memory_bytes": 1 << 32}, {"gpus": 1}]


@pytest.mark.parametrize("keys", CONTRADICTIONS, ids=str)
def test_what_contradicts_a_request_is_an_error_in_python_too(keys):
    with pytest.raises(WorkflowError, match="another size is given, too") as caught:
        Stage("a", command="x", request=("--ntasks=4",), **keys)
    assert caught.value.where == "stage 'a'"
    assert "the request comes to cores = 4, cpus_per_task = 1" in caught.value.hint
    assert Stage("a", cores=4, command="x", request=("--ntasks=4",)).request == ("--ntasks=4",)
    flow = Flow("w")
    with pytest.raises(WorkflowError, match="another size is given, too"):
        flow.stage("a", "x", cores=8, request="--ntasks=4")
    assert flow.stage("a", "x", request="--ntasks=4").cores == 4


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('request = ["--ntasks=4"]\ncores = 8', "another size is given, too"),
        ('request = ["--ntasks=4"]\nmemory = "4G"', "another size is given, too"),
        ('request = ["--ntasks=4"]\nnodes = 2', "`nodes` is given, too"),
        ('request = ["--ntasks=four"]', "--ntasks=four is no number"),
        ('request = ["--ntasks=4", "--qos=high"]', "--qos does not say how large"),
        ('request = ["--ntasks=4"]\noptions = ["--mem=4G"]', "--mem=4G is among its options"),
    ],
)
def test_what_contradicts_a_request_is_an_error_at_its_line(tmp_path, keys, words):
    file = tmp_path / "flow.toml"
    file.write_text(f'name = "w"\n[[stage]]\nname = "a"\ncommand = "x"\nwalltime = "5min"\n{keys}\n')
    with pytest.raises(InputError, match=words) as caught:
        load_workflow(file)
    assert caught.value.where == f"{file}:6"


def test_a_list_of_tasks_for_several_jobs_has_no_request():
    with pytest.raises(WorkflowError, match="of one job"):
        Stage("a", tasks=("x", "y"), jobs=(2, 2), request=("--ntasks=4",))


def test_a_request_stands_in_a_file_in_place_of_what_it_comes_to(tmp_path):
    flow = Workflow("w", [TWO, Stage("b", walltime_s=60.0, command="x", request=())])
    file = tmp_path / "flow.toml"
    file.write_text(write_workflow(flow))
    assert dict(load_workflow(file).stages) == dict(flow.stages)
    assert 'request = ["--nodes=2", "--ntasks-per-node=1", "--mem=15000M"]' in file.read_text()
    assert "request = []" in file.read_text()
    assert "cores" not in file.read_text()
