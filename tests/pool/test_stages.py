"""A workflow's stages as tasks of a pool, and campaigns on workers elsewhere: typed as a user would."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed", reason="dask.distributed is not installed")

import dask
from distributed import Client, LocalCluster
from forked import asa
from slurm_testbed import until
from this_machine import Place

from asa.backend import Capabilities, Dependency, JobSpec, JobState
from asa.errors import InputError, SubmitRejectedError, UnavailableError
from asa.pool import demand, stages
from asa.pool.demand import read_demand
from asa.pool.executors import Elsewhere, executor_of
from asa.pool.stages import (
    PoolOfStages,
    StagesBackend,
    _HandedOver,
    _needs,
    _once,
    _Order,
    _unless_done,
    note_end,
    run_part,
)
from asa.sites import open_facility
from asa.studies.compare.study import Comparison, compare, workflow_maker
from asa.workflow import Stage, Workflow

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


@pytest.mark.full
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
    assert [picture.stat().st_size > 5_000 for picture in place.root.rglob("timeline.png")] == [True]


@pytest.mark.full
def test_a_stage_waits_for_what_runs_where_the_client_is(place):
    """Which is no task of the pool; and one that was handed over before it is waited for, and goes on, by the next."""
    (place.root / "flow.toml").write_text(
        'name = "mixed"\n[defaults]\ncores = 1\nwalltime = "5min"\n'
        '[[stage]]\nname = "a"\ncommand = "echo a >>mixed"\n'
        '[[stage]]\nname = "here"\nlocal = true\nafter = ["a"]\ncommand = "sleep 2; echo here >>mixed"\n'
        '[[stage]]\nname = "b"\nafter = ["a"]\ncommand = "echo b >>mixed"\n'
        '[[stage]]\nname = "c"\nafter = ["b", "here"]\ncommand = "echo c >>mixed"\n'
        '[[stage]]\nname = "d"\nafter = ["c"]\ncommand = "echo d >>mixed"\n'
    )
    place.asa("run", "flow.toml", *place.on, *POOL)
    assert (place.root / "mixed").read_text().split() == ["a", "b", "here", "c", "d"]


@pytest.mark.full
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


@pytest.mark.full
def test_a_run_that_was_killed_goes_on_and_a_failure_is_told(place):
    """Stages that completed do not run again, what follows a failure never does, and the exit code says so."""
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
    until(lambda: "what ran ended with its pool" in place.asa("status", "killed", columns=200).stdout, what="the word")
    (place.root / "go").touch()
    told = place.asa("resume", "killed", code=1)
    assert "stage 'c' ended as failed" in told.stdout + told.stderr
    assert place.lines("killed") == ["a", "b", "b", "c"]
    codes = {stage["stage"]: stage["state"] for stage in place.status("killed")["stages"]}
    assert codes == {"a": "done", "b": "done", "c": "failed", "d": "blocked"}


@pytest.mark.full
def test_a_run_whose_pool_gets_no_worker_ends_and_goes_on_once_it_can(place, tmp_path, monkeypatch):
    """As where the compute nodes lack something; what is to be done about it is said."""
    (tmp_path / "sitecustomize.py").write_text(
        'import os, sys\nif "distributed.cli.dask_worker" in sys.orig_argv:\n    os._exit(1)\n'
    )
    flow = place.flow(("a", "", "echo a >>workless"), name="workless")
    with monkeypatch.context() as broken:
        broken.setitem(place.environment, "PYTHONPATH", str(tmp_path))
        told = " ".join(place.asa("run", flow, *place.on, *POOL, code=1).stderr.split())
    assert all(words in told for words in ("no worker comes", "3 jobs in a row", "asa resume"))
    assert place.lines("workless") == []
    assert "completed in" in place.asa("resume", "workless").stdout
    assert place.lines("workless") == ["a"]


def test_what_no_task_can_be_is_refused_before_anything_is_submitted(place):
    """A stage wider than an allocation."""
    jobs = len(place.jobs())
    wide = place.flow(("a", "", "true", 3), name="wide")
    assert "largest possible job has 2" in place.asa("run", wide, *place.on, *POOL, code=2).stderr
    assert len(place.jobs()) == jobs


def test_stages_of_several_partitions_are_refused(place):
    """The pool's jobs have one; nobody's stage goes silently to another's."""
    text = "".join(
        f'[[stage]]\nname = "{name}"\ncores = 1\nwalltime = "5min"\npartition = "{partition}"\ncommand = "true"\n'
        for name, partition in (("a", "short"), ("b", "long"))
    )
    (place.root / "parted.toml").write_text(f'name = "parted"\n{text}')
    jobs = len(place.jobs())
    told = place.asa("run", "parted.toml", *place.on, *POOL, code=2).stderr
    assert all(
        words in " ".join(told.split()) for words in ("more than one partition", "'a' for 'short'", "Give all stages")
    )
    assert len(place.jobs()) == jobs


@pytest.mark.parametrize(("key", "words"), [("exclusive = true", "nodes"), ('burst_buffer = "1G"', "burst buffer")])
def test_what_a_task_cannot_have_is_refused(place, key, words):
    """It would run without."""
    text = f'name = "own"\n[[stage]]\nname = "a"\ncores = 1\nwalltime = "5min"\ncommand = "true"\n{key}\n'
    (place.root / "own.toml").write_text(text)
    jobs = len(place.jobs())
    refusal = " ".join(place.asa("run", "own.toml", *place.on, *POOL, code=2).stderr.split())
    assert "stage 'a'" in refusal
    assert words in refusal
    assert len(place.jobs()) == jobs


@pytest.mark.full
def test_stages_that_need_the_same_gpu_do_not_run_at_the_same_time(place):
    """A worker has as many as the most demanding of them asks for, and no more are handed out."""
    command = "mkdir on || echo together >>shared; sleep 1; rmdir on; echo done >>shared"
    text = "".join(
        f'[[stage]]\nname = "{name}"\ncores = 1\nwalltime = "5min"\nexpected = "5s"\ngpus = 1\n'
        f"command = {json.dumps(command)}\n"
        for name in ("a", "b")
    )
    (place.root / "shared.toml").write_text(f'name = "shared"\n{text}')
    place.asa("run", "shared.toml", *place.on, *POOL)
    assert place.lines("shared") == ["done", "done"]


@pytest.mark.parametrize(
    ("cores", "needs"),
    [(3, {"cores": 3, "memory": 64e9, "gpus": 2}), (1, {"cores": 1, "memory": 21_333e6, "gpus": 682 / 1024})],
)
def test_a_task_needs_its_part_of_what_its_stage_asks_for(cores, needs):
    """In amounts that add up: workers offer them as text, and take them away and give them back."""
    assert _needs(JobSpec("a", 3, 60.0, memory_bytes=64 * 10**9 + 1, gpus=2), cores) == needs


@pytest.mark.full
def test_what_no_worker_of_the_pool_offers_is_refused(place):
    """A stage that could never begin is no task to wait for."""
    settings = {"cores": str(place.cores), "spool": str(place.root / "spool")}
    stage = Stage("a", cores=1, command="true", memory_bytes=10**9)
    pooled = PoolOfStages(open_facility("local", None, settings), Workflow("small", [stage]), memory="10 MB")
    backend = pooled.connect(place.root / "lacking")
    try:
        with pytest.raises(SubmitRejectedError, match="more memory"):
            backend.submit(JobSpec("a", 1, 60.0, command="true", memory_bytes=10**9, token="a"))
    finally:
        backend.close()


# ---------------------------------------------------------------------- on a worker

_TICKER = """
import os, sys, time
while True:
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()} {time.monotonic()}\\n")
    time.sleep(0.005)
"""


class Ticking:
    """An order for a program, child of a shell, that ticks for as long as it lives."""

    def __init__(self, folder, way):
        self.file, program = folder / "ticks", folder / "ticker.py"
        program.write_text(_TICKER)
        text = f"{way} {shlex.join([sys.executable, str(program), str(self.file)])}; true"
        self.order = _Order(text, str(folder), "1", str(folder / "log"), str(folder), 600.0)

    def ticks(self):
        """Return when each process ticked."""
        told = {}
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            pid, _, at_s = line.partition(" ")
            told.setdefault(int(pid), []).append(float(at_s or 0))
        return told

    def running(self):
        return [pid for pid in self.ticks() if _lives(pid)]


def _lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("way", ["", "timeout 600"], ids=["child", "group-of-its-own"])
@pytest.mark.full
def test_a_program_ends_with_its_worker(tmp_path, way):
    """It runs again elsewhere: of two instances never more than one does. Cancelled, it ends too."""
    ticking = Ticking(tmp_path, way)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1") as cluster,
        Client(cluster) as client,
    ):
        task = client.submit(run_part, ticking.order, [], pure=False)
        [first] = until(ticking.ticks, what="the first instance")
        [worker] = [address for address, keys in client.processing().items() if keys]
        os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)
        until(lambda: len(ticking.ticks()) > 1 and len(list(ticking.ticks().values())[1]) > 20, what="the second")
        ticks = ticking.ticks()
        [second] = set(ticks) - {first}
        assert ticks[first][-1] < ticks[second][0]
        until(lambda: ticking.running() == [second], what="the end of the first")
        (tmp_path / "1.cancel").touch()
        assert task.result(timeout=60).code < 0
        until(lambda: not ticking.running(), what="the end of the second")


def test_a_stage_that_completed_is_not_run_again_though_nobody_heard_of_its_end(tmp_path):
    """Its worker died before it could tell; a stage that failed runs again."""
    ran = tmp_path / "ran"
    text = f"echo x >>'{ran}'\ntrap 'echo bye >>\"{ran}\"' EXIT\n[ -e '{tmp_path}/go' ] || exit 3"

    def run():
        return subprocess.run(["sh", "-c", _unless_done(text, tmp_path / "done" / "a stage")], check=False).returncode

    assert (run(), run()) == (3, 3)
    (tmp_path / "go").touch()
    assert (run(), run(), run()) == (0, 0, 0)
    assert ran.read_text().split() == ["x", "bye"] * 3


@pytest.mark.parametrize("tasks", [(), ("true", "sleep 1")])
def test_times_of_a_stage_that_ended_before_its_client_heard_of_it_are_its_own(tmp_path, tasks):
    """The next client hands it over once more, where it is found to have ended: in no time, and long after."""
    stage = Stage("a", cores=1, command="" if tasks else "sleep 1", tasks=tasks)

    limits = Capabilities("x", 4, 4, age_accrues=True)
    backend = StagesBackend(tmp_path, Workflow("w", [stage]), limits, {"cores": 4}, time.sleep)
    spec = JobSpec("a", 1, 60.0, command="sleep 1", posts=("x/a",), token="t-1")
    job = backend._jobs["1"] = _HandedOver("1", spec, time.time(), restarts=1)
    began_s = time.time()
    for text, _ in backend._texts(job, stage):
        subprocess.run(["sh", "-c", text], check=True, cwd=tmp_path)
    ended_s = time.time()
    (tmp_path / "pool" / "1.begin").write_text(json.dumps({"time_s": ended_s + 50}))
    (tmp_path / "pool" / "1.end").write_text(json.dumps({"time_s": ended_s + 50, "code": 0}))
    [step] = backend.status(["1"])["1"].steps
    assert began_s - 1 <= step.start_s <= step.end_s - 1 <= ended_s


@pytest.mark.parametrize("is_task", [False, True])
def test_what_was_told_to_end_has_not_completed(tmp_path, is_task):
    """It may have saved its state and left with exit code 0: it is run again."""
    saves = "[ ! -e saved ] || exit 0; trap 'touch saved; exit 0' TERM; touch up; sleep 60 & wait"
    done = tmp_path / "done" / "1"
    text = _once(saves, 1, 2, done) if is_task else _unless_done(saves, done)
    with subprocess.Popen(["sh", "-c", text], cwd=tmp_path, start_new_session=True) as process:
        until((tmp_path / "up").exists)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(30) == 143
    assert (tmp_path / "saved").exists(), "it was waited for"
    assert not done.exists()
    assert subprocess.run(["sh", "-c", text], cwd=tmp_path, check=False).returncode == 0
    assert done.exists()


def test_what_a_stage_leaves_in_the_background_ends_with_it(tmp_path):
    """As in a job of its own; its exit code is its own."""
    ticking = Ticking(tmp_path, "")
    order = _Order(f"({ticking.order.text}) & while [ ! -e ticks ]; do sleep 0.01; done; exit 3", *_rest(ticking.order))
    assert run_part(order, []).code == 3
    until(lambda: not ticking.running(), what="the end of what was left")


def _rest(order):
    return order.pool_folder, order.job_id, order.log, order.work, order.walltime_s


def test_what_a_stage_waits_for_is_its_own(tmp_path):
    """It has no child that it did not begin."""
    text = f'exec {sys.executable} -c "import os; os.wait()"'
    order = _Order(text, str(tmp_path), "1", str(tmp_path / "log"), str(tmp_path), 20.0)
    assert run_part(order, []).code == 1
    assert "ChildProcessError" in (tmp_path / "log.err").read_text()


def test_what_has_ended_is_not_run_again_where_dask_lost_its_result(tmp_path):
    """With the worker that had it; a later job of the stage may run by then."""
    order = _Order("echo x >>ran; exit 3", str(tmp_path), "1", str(tmp_path / "log"), str(tmp_path), 20.0)
    part = run_part(order, [])
    assert note_end(str(tmp_path), "1", [part]) == part.code == 3
    assert run_part(order, []).code == 3
    assert (tmp_path / "ran").read_text() == "x\n"


def _backend(folder, *stages, name="w", **options):
    limits = Capabilities("x", 4, 4, age_accrues=True)
    return StagesBackend(folder, Workflow(name, stages), limits, {"cores": 4, **options}, time.sleep)


def test_a_list_of_which_a_task_was_lost_has_failed_once_the_others_have_ended(tmp_path, monkeypatch):
    """Tried again before, they would run twice at once. What follows it waits for the next try."""

    def run(order, really=stages._run):
        if "no-such-thing" in order.text:
            raise OSError(28, "No space left on device")
        return really(order)

    monkeypatch.setattr(stages, "_run", run)
    two = Stage(
        "a",
        cores=2,
        tasks=("no-such-thing", f"until [ -e '{tmp_path}/go' ]; do sleep 0.1; done; touch '{tmp_path}/ran'"),
    )
    backend = _backend(tmp_path, two, Stage("b", cores=1, command="true", after=("a",)))
    room = {"cores": 4.0}
    with LocalCluster(1, threads_per_worker=4, processes=False, dashboard_address="", resources=room) as cluster:
        backend._client = Client(cluster)
        backend._cluster = SimpleNamespace(shape=SimpleNamespace(resources=room), allocations=[])
        first = backend.submit(JobSpec("x/a", 2, 60.0, command="-", token="t-1", posts=("x/a",)))
        second = backend.submit(
            JobSpec("x/b", 1, 60.0, command="true", token="t-2", posts=("x/b",), dependencies=(Dependency(first),))
        )
        until(lambda: backend._jobs[second].futures[-1].status == "error", what="the failure")
        assert backend.status([first])[first].state is not JobState.FAILED
        (tmp_path / "go").touch()
        until(lambda: backend.status([first])[first].state is JobState.FAILED, what="the end")
        assert (tmp_path / "ran").exists()
        waits = backend.status([second])[second]
        assert (waits.state, waits.reason) == (JobState.PENDING, "DependencyNeverSatisfied")
        backend._client.close()


def test_run_times_are_expected_by_workflow_and_stage(tmp_path):
    """Runs that share a pool may have stages of the same names, and a name may end with a number."""
    expected = {("v", "step-1"): 30.0, ("v", "step-2"): 60.0, ("w", "step-1"): 90.0, ("w-2", "step-1"): 120.0}
    flows = {flow: [stage for of, stage in expected if of == flow] for flow, _ in expected}
    before, backends = dask.config.get(stages._DURATIONS), []  # dask forgets tasks whose results nobody wants
    with (
        dask.config.set({stages._DURATIONS: before}),
        LocalCluster(0, processes=False, dashboard_address="") as cluster,
        Client(cluster) as client,
    ):
        for flow, names in flows.items():
            made = [
                Stage(name, cores=1, command="-", walltime_s=600, expected_run_s=expected[flow, name]) for name in names
            ]
            backends.append(backend := _backend(tmp_path / flow, *made, name=flow))
            backend._client, backend._cluster = client, SimpleNamespace(shape=SimpleNamespace(resources={"cores": 4.0}))
            client.run_on_scheduler(stages._expect, backend._durations())
            for name in names:
                token = f"{flow}/{name}"
                job = backend.submit(JobSpec(token, 1, 600.0, command="-", token=token, posts=(token,)))
                task = until(partial(cluster.scheduler.tasks.get, backend._jobs[job].futures[0].key), what="the task")
                assert cluster.scheduler._get_prefix_duration(task.prefix) == expected[flow, name]
        assert sum(kind.tasks * kind.task_s for kind in read_demand(cluster.scheduler, 3600.0)) == pytest.approx(
            sum(expected.values()), abs=0.1
        )


def test_a_pool_that_could_not_begin_keeps_its_bound(tmp_path, monkeypatch):
    bounds = []

    class Unreachable:
        def __init__(self, **_):
            if not bounds:
                bounds.append(None)
                raise UnavailableError("no answer")

        def adapt(self, *, minimum, maximum):
            bounds.append((minimum, maximum))
            raise OSError("that will do")

        def close(self):
            pass

        def timeline(self):
            raise InputError("nothing to draw")

        folder = tmp_path

    monkeypatch.setattr("asa.pool.cluster.AsaCluster", Unreachable)
    backend = _backend(tmp_path, Stage("a", cores=1, command="true"), maximum=1)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            backend.submit(JobSpec("x/a", 1, 60.0, command="true", token="t-1"))
    assert bounds == [None, (0, 1)]


def test_a_stage_ended_when_its_last_task_did(tmp_path):
    """And not when that was noted, which a client that was stopped meanwhile has done late."""
    order = _Order("sleep 0.2", str(tmp_path), "1", str(tmp_path / "log"), str(tmp_path), 20.0)
    parts = [run_part(order, []), run_part(order, [])]
    between_s = time.time()
    time.sleep(0.5)
    assert note_end(str(tmp_path), "1", parts) == 0
    ended = json.loads((tmp_path / "1.end").read_text())
    assert between_s - 0.3 < ended["time_s"] <= between_s


# ---------------------------------------------------------------------- demand


@pytest.mark.full
def test_in_a_large_graph_too_a_task_counts_by_its_cores(workers, monkeypatch):
    """Whether each task is looked at or each group; also of what waits for others."""
    with Client(workers) as client:
        stuck = [client.submit(abs, -n, key=("wide", n), resources={"cores": 4}) for n in range(3)]
        later = [client.submit(abs, one, key=("later", n), resources={"cores": 2}) for n, one in enumerate(stuck)]
        last = client.submit(sum, later, key="last")
        until(lambda: "last" in workers.scheduler.tasks, what="the graph")
        by_tasks = read_demand(workers.scheduler)
        monkeypatch.setattr(demand, "_MAX_TASKS", 0)
        by_groups = read_demand(workers.scheduler)
        client.cancel([*stuck, *later, last])
    assert [kind.tasks for kind in by_tasks] == [12, 6, 1]
    assert by_groups == by_tasks


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


@pytest.mark.parametrize("of", ["log", "model"])
@pytest.mark.full
def test_a_campaign_elsewhere_has_the_same_results(workers, log, of):
    """On the workers of a scheduler as in this process, whether worlds are one log's or each is made by itself."""
    settings = {"trace": str(log)} if of == "log" else {"system": "hpc2n"}

    def comparison():
        site = open_facility("simulated", None, settings).facility
        return Comparison(workflow_maker("blast"), site, (28,), ("per-stage", "asa"), (0, 1), history=50)

    with Client(workers) as client, Elsewhere(client) as elsewhere:
        assert compare(comparison(), jobs=1, elsewhere=elsewhere) == compare(comparison(), jobs=1)
        assert isinstance(elsewhere.submit(sum, [1, 2]), Future)


def test_what_was_delivered_is_nowhere_else(workers, tmp_path):
    """Of what a worker held that is lost nothing runs again that has come, and errors come, too."""
    with Client(workers) as client, Elsewhere(client) as elsewhere:
        came = [elsewhere.submit(divmod, number, 5) for number in range(20)]
        failed = elsewhere.submit(divmod, 1, 0)
        assert [future.result(timeout=60) for future in came] == [divmod(number, 5) for number in range(20)]
        with pytest.raises(ZeroDivisionError):
            failed.result(timeout=60)
        until(lambda: not workers.scheduler.tasks, what="that nothing is kept")


def test_an_error_waits_for_nothing(workers, tmp_path):
    """What was asked for is released, begun or not."""
    begun, asked = tmp_path / "begun", []

    def fail(elsewhere):
        asked.extend(elsewhere.submit(os.system, f"touch {begun}; sleep 3") for _ in range(20))
        until(begun.exists, what="the first")
        raise RuntimeError

    with Client(workers) as client:
        with pytest.raises(RuntimeError), Elsewhere(client) as elsewhere:
            fail(elsewhere)
        assert all(future.cancelled() for future in asked)
        until(lambda: not workers.scheduler.tasks, what="that nothing is asked for")


def test_the_commands_take_an_executor(workers, log, tmp_path):
    """And an experiment goes on from what it kept, wherever that was done; paths hold from the folder of who asks."""
    (tmp_path / "log.swf").symlink_to(log)
    command = ("experiment", "strategies", "--trace", "log.swf", "--workflows", "blast", "--strategies", "asa")
    command = (*command, "--cores", 28, "--starts", 2, "--age", "accrues", "--estimator", "asa", "--output", "json")
    address = f"dask:{workers.scheduler_address}"
    there = asa(*command, "--results", "kept.jsonl", "--executor", address, cwd=tmp_path).stdout
    kept = (tmp_path / "kept.jsonl").read_text()
    assert asa(*command, "--jobs", 1, cwd=tmp_path).stdout == there
    lines = kept.splitlines(keepends=True)
    (tmp_path / "kept.jsonl").write_text("".join(lines[:-1]))
    assert asa(*command, "--results", "kept.jsonl", "--executor", address, cwd=tmp_path).stdout == there
    assert sorted((tmp_path / "kept.jsonl").read_text().splitlines()) == sorted(kept.splitlines())


@pytest.mark.full
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
