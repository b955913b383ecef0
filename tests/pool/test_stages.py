"""A workflow's stages as tasks of a pool, and campaigns on workers elsewhere: typed as a user would."""

import json
import re
from concurrent.futures import Future

import pytest

pytest.importorskip("distributed", reason="dask.distributed is not installed")

from distributed import Client, LocalCluster
from forked import asa
from slurm_testbed import until
from this_machine import Place

from asa.errors import InputError, UnavailableError
from asa.experiment import Comparison, compare, workflow_maker
from asa.pool.executors import Elsewhere, executor_of
from asa.sites import open_facility

POOL = ("--strategy", "pool")
DIAMOND = (
    ("a", "", "echo a >>did"),
    ("b", "a", "echo b >>did; sleep 0.3", 2),
    ("c", "a", "echo c >>did"),
    ("d", "b c", "echo d >>did"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("place"), cores=2)
    yield made
    made.close()


def instance(tasks, after):
    """Write a WfFormat instance of tasks that sleep: names with seconds, and what follows what."""
    told = [
        {"id": name, "runtimeInSeconds": seconds, "command": {"program": "sleep", "arguments": [f"{seconds}"]}}
        for name, seconds in tasks.items()
    ]
    known = [
        {
            "id": name,
            "name": name.partition("_")[0],
            "parents": after.get(name, []),
            "children": [child for child, parents in after.items() if name in parents],
        }
        for name in tasks
    ]
    workflow = {"specification": {"tasks": known}, "execution": {"makespanInSeconds": 1, "tasks": told}}
    return {"name": "small", "schemaVersion": "1.5", "workflow": workflow}


def test_stages_run_as_tasks_in_the_order_of_the_graph(place):
    """A run on a pool is a run like any other, which tells and records the same."""
    done = place.asa("run", place.flow(*DIAMOND, name="diamond"), *place.on, *POOL)
    for words in ("the run begins", "a: submitted as job", "d: done", "the run completed", "completed in"):
        assert words in done.stdout
    did = place.lines()
    assert (did[0], sorted(did[1:3]), did[3]) == ("a", ["b", "c"], "d")
    assert place.status()["strategy"] == "pool"
    assert [stage["state"] for stage in place.status()["stages"]] == ["done"] * 4
    assert len(place.jobs()) < 4  # allocations, which stages share


def test_a_wfformat_instance_runs(place):
    """Its tasks, as lists within stages, wherever in the pool there is room."""
    tasks = {"split_1": 0.1, **{f"work_{n}": 0.2 for n in range(2, 8)}, "merge_8": 0.1}
    after = {**{f"work_{n}": ["split_1"] for n in range(2, 8)}, "merge_8": [f"work_{n}" for n in range(2, 8)]}
    (place.root / "small.json").write_text(json.dumps(instance(tasks, after)))
    place.asa("import", "wfformat", "small.json", "--cores", 2, "-o", "small.toml")
    assert "completed in" in place.asa("run", "small.toml", *place.on, *POOL).stdout
    stages = {stage["stage"]: stage for stage in place.status("small")["stages"]}
    assert [stages[name]["state"] for name in ("split", "work", "merge")] == ["done"] * 3
    [run] = [run for run in place.runs() if run.name.startswith("small")]
    begun = [json.loads((run / "pool" / f"{n}.begin").read_text())["time_s"] for n in (1, 2, 3)]
    ended = [json.loads((run / "pool" / f"{n}.end").read_text())["time_s"] for n in (1, 2, 3)]
    assert begun[1] >= ended[0]
    assert begun[2] >= ended[1]


def test_a_run_that_was_killed_goes_on_and_a_failure_is_told(place):
    """Stages that ended well do not run again, what follows a failure never does, and the exit code says so."""
    flow = place.flow(
        ("a", "", "echo a >>killed"),
        ("b", "a", "echo b >>killed; [ -e go ] || sleep 100"),
        ("c", "b", "echo c >>killed; exit 3"),
        ("d", "c", "echo d >>killed"),
        name="killed",
    )
    running = place.begin("run", flow, *place.on, *POOL)
    until(lambda: place.lines("killed") == ["a", "b"], what="the second stage")
    running.kill()
    (place.root / "go").touch()
    told = place.asa("resume", "killed", code=1)
    assert "stage 'c' ended as failed" in told.stdout + told.stderr
    assert place.lines("killed") == ["a", "b", "b", "c"]
    codes = {stage["stage"]: stage["state"] for stage in place.status("killed")["stages"]}
    assert codes == {"a": "done", "b": "done", "c": "failed", "d": "cancelled"}


def test_what_no_task_can_be_is_refused_before_anything_is_submitted(place):
    """A stage wider than an allocation, and a simulator, which has no allocations."""
    jobs = len(place.jobs())
    wide = place.flow(("a", "", "true", 3), name="wide")
    assert "largest possible job has 2" in place.asa("run", wide, *place.on, *POOL, code=2).stderr
    told = asa("compare", "blast", "--cores", 28, "--seeds", 1, "--strategies", "pool", "--jobs", 1, code=2)
    assert "asa run" in told.stderr
    assert len(place.jobs()) == jobs


# ---------------------------------------------------------------------- campaigns


@pytest.fixture(scope="module")
def workers():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "log.swf"
    asa("workload", "generate", "hpc2n", "--days", 2, "--seed", 1, "--out", path)
    return path


def test_a_campaign_elsewhere_has_the_same_results(workers, log):
    """On the workers of a scheduler as in this process."""
    site = open_facility("simulated", None, {"trace": str(log)}).facility
    comparison = Comparison(workflow_maker("blast"), site, (28,), ("per-stage", "asa"), (0, 1), history=50)
    here = compare(comparison, jobs=1)
    with Client(workers) as client, Elsewhere(client) as elsewhere:
        assert compare(comparison, jobs=1, elsewhere=elsewhere) == here
        assert isinstance(elsewhere.submit(sum, [1, 2]), Future)


def test_the_commands_take_an_executor(workers, log, tmp_path):
    """And an experiment goes on from what it kept, wherever that was done; paths hold from the folder of who asks."""
    (tmp_path / "log.swf").symlink_to(log)
    command = ("experiment", "strategies", "--trace", "log.swf", "--workflows", "blast", "--strategies", "asa")
    command = (*command, "--cores", 28, "--starts", 2, "--age", "accrues", "--estimator", "asa", "--json")
    address = f"dask:{workers.scheduler_address}"
    there = asa(*command, "--results", "kept.jsonl", "--executor", address, cwd=tmp_path).stdout
    kept = (tmp_path / "kept.jsonl").read_text()
    assert asa(*command, "--jobs", 1, cwd=tmp_path).stdout == there
    lines = kept.splitlines(keepends=True)
    (tmp_path / "kept.jsonl").write_text("".join(lines[:-1]))
    assert asa(*command, "--results", "kept.jsonl", "--executor", address, cwd=tmp_path).stdout == there
    assert sorted((tmp_path / "kept.jsonl").read_text().splitlines()) == sorted(kept.splitlines())


@pytest.mark.parametrize(
    ("named", "jobs", "error", "words"),
    [
        ("dusk", None, InputError, "no executor"),
        ("dask:", None, InputError, "no executor"),
        ("dask:tcp://127.0.0.1:1", 2, InputError, "own workers"),
        ("dask:nowhere://x", None, UnavailableError, "no scheduler answers"),
    ],
)
def test_an_executor_that_is_none_is_refused(named, jobs, error, words):
    """Before anything runs."""
    with pytest.raises(error, match=re.escape(words)), executor_of(named, jobs):
        pass
