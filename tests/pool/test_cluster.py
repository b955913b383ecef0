"""One pool over several jobs of this machine's queue: real processes, real faults."""

import asyncio
import gc
import io
import json
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="dask.distributed is not installed")

import dask
import dask.bag
from dask import delayed
from distributed import Client
from distributed.utils import get_ip
from local_queue import Queue
from rich.console import Console
from slurm_testbed import until

from asa.backend import JobState, JobStatus
from asa.errors import InputError, SubmitRejectedError, UnavailableError
from asa.estimators import WaitStore
from asa.pool import AsaCluster, demand, departures
from asa.pool import cluster as cluster_module
from asa.pool.allocation import Allocation, AllocationPhase
from asa.pool.credentials import make_security
from asa.pool.demand import read_demand
from asa.pool.desk import Desk, PoolNews
from asa.pool.keeper import KEEPER
from asa.pool.picture import draw_timeline
from asa.pool.roster import Roster
from asa.pool.values import AllocationShape, TaskKind
from asa.waits import LEVELS, WaitForecast


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    queue = Queue(tmp_path_factory.mktemp("queue"), cores=8)
    yield queue
    queue.close()


def cluster(queue, name, **changes):
    settings = {"spool": str(queue.root / "spool"), "cores": 8}
    made = {"cores": 1, "threads": 1, "n_workers": 0, "bank": False, "dashboard_address": ":0"}
    return AsaCluster(backend="local", settings=settings, folder=queue.root / name, name=name, **{**made, **changes})


@pytest.fixture(scope="module")
def pool(queue):
    """A pool with one worker that stays, for all that needs no pool of its own."""
    with cluster(queue, "pool", n_workers=1) as pool, Client(pool) as client:
        client.wait_for_workers(1, timeout=60)
        yield pool, client


def joined(allocation):
    """Wait for all workers of an allocation: dask takes the name of one that is not there yet for a host's."""

    def is_whole():
        return len(allocation.workers) == allocation.shape.processes and allocation.phase is AllocationPhase.ALIVE

    until(is_whole, what=f"the workers of {allocation.id}")
    return allocation


def ended(allocation):
    return until(lambda: allocation.phase is AllocationPhase.ENDED and allocation, what=f"the end of {allocation.id}")


def names(pool):
    """Return the names of the workers that are here."""
    return [worker.name for worker in list(pool.scheduler.workers.values())]


def outlive(pool, one, left_s):
    """Have so much of an allocation's walltime left, as if it had been asked for long ago."""
    ends_s = pool.now() + left_s
    one.shape = replace(one.shape, walltime_s=ends_s - one.start_s)
    return ends_s


def counting(folder):
    """Make a task that leaves a trace each time that it runs."""
    folder.mkdir(exist_ok=True)

    def count(item, pause_s=0.0):
        with (folder / str(item)).open("a") as file:
            file.write("x")
        time.sleep(pause_s)
        return item

    return count


def runs(folder):
    return {int(path.name): len(path.read_text()) for path in folder.iterdir()}


@pytest.mark.full
def test_collections_work_unchanged(pool):
    """A pool is a cluster like any other."""
    _, client = pool
    assert dask.bag.from_sequence(range(100), npartitions=8).map(lambda x: x * x).sum().compute() == 328350
    assert delayed(sum)([delayed(max)(n, 1) for n in range(5)]).compute() == 11
    assert client.gather(client.map(lambda x: -x, range(10))) == [-n for n in range(10)]


def test_a_pool_in_which_nothing_happens_looks_once_a_second(pool, monkeypatch):
    """What a look asks of the thread that speaks with the batch system is no reason for another."""
    pool, _ = pool
    asked, ask = [], Desk.forecasts
    monkeypatch.setattr(Desk, "forecasts", lambda desk, shapes: asked.append(desk) or ask(desk, shapes))
    until(lambda: asked, what="a look")
    time.sleep(2.0)
    assert asked.count(pool._desk) < 10


@pytest.mark.full
def test_an_allocation_of_its_own_serves_what_its_tag_asks_for(pool):
    """Allocations of different sizes live in one pool; tasks go where what they need is."""
    pool, client = pool
    task = client.submit(os.getenv, "ASA_JOB_ID", resources={"train": 1, "gpus": 1})
    until(lambda: pool.scheduler.unrunnable, what="a task that nobody can run")
    assert read_demand(pool.scheduler) == [TaskKind(1, 0.5, frozenset({("train", 1), ("gpus", 1)}))]
    wide = pool.ask(cores=2, walltime="20m", tags=["train"], gpus=2)
    assert task.result(timeout=60) == wide.job_id
    assert joined(wide).shape.walltime_s == 1200.0
    shown = io.StringIO()
    Console(width=120, file=shown).print(pool.table())
    assert all(word in shown.getvalue() for word in (wide.job_id, "alive", "left"))
    pool.release(wide)
    assert ended(wide).why == "it was given back"
    assert wide.drain_s <= wide.end_s
    times = [sample["time_s"] for sample in pool.timeline()["cores"]]
    assert times == sorted(times)
    assert {"id": wide.id, "cores": 2}.items() <= pool.timeline()["allocations"][-1].items()


def test_results_move_when_an_allocation_is_given_back(pool, tmp_path):
    """What a leaving worker has computed is not computed again."""
    pool, client = pool
    other = joined(pool.ask())
    tasks = [
        client.submit(counting(tmp_path), n, workers=[f"{other.id}-0"], allow_other_workers=True) for n in range(8)
    ]
    client.gather(tasks)
    pool.release(other)
    ended(other)
    assert client.gather(tasks) == list(range(8))
    assert set(runs(tmp_path).values()) == {1}


@pytest.mark.full
def test_what_ends_just_when_its_worker_leaves_is_not_run_again(pool, tmp_path):
    """What the worker says of its tasks is on its way to the scheduler still, when it is asked which it has begun."""
    pool, client = pool
    other = joined(pool.ask())
    [address] = [worker.address for worker in pool.scheduler.workers.values() if worker.name == f"{other.id}-0"]

    def speak_late(dask_worker):
        send = dask_worker.batched_stream.send
        dask_worker.batched_stream.send = lambda *messages: dask_worker.loop.call_later(1.0, send, *messages)

    def state(dask_worker, key):
        return key in dask_worker.state.tasks and dask_worker.state.tasks[key].state

    client.run(speak_late, workers=[address])
    task = client.submit(counting(tmp_path), 1, workers=[address], allow_other_workers=True)
    until(lambda: client.run(state, key=task.key, workers=[address])[address] == "memory", what="its end")
    pool.release(other)
    assert ended(other).why == "it was given back"
    assert task.result(timeout=60) == 1
    assert runs(tmp_path) == {1: 1}


def test_a_call_that_a_leaving_worker_breaks_off_is_no_warning(queue, monkeypatch, caplog):
    """Nothing else is kept from the log: not such a call at another time, nor somebody without a certificate."""

    def call(words):
        """Call the scheduler without a certificate, and hang up."""
        with socket.create_connection(pool.scheduler_address.removeprefix("tls://").split(":")) as there:
            there.sendall(words)

    def warned():
        return [str(record.args[-1]) for record in caplog.records if "handshake failed" in record.msg]

    with cluster(queue, "quiet") as pool:
        call(b"")
        until(warned, what="a warning of who hangs up")
        assert "EOF" in warned()[0]
        monkeypatch.setattr(pool._roster, "some_leave", lambda: True)
        call(b"")
        call(b"GET / HTTP/1.0\r\n\r\n")
        until(lambda: len(warned()) > 1, what="a warning of who speaks no TLS")
        assert ["http request" in words for words in warned()] == [False, True]
    assert pool._quiet not in logging.getLogger("distributed.comm.tcp").filters


def test_a_call_that_is_broken_off_while_a_pool_closes_is_no_error(queue, monkeypatch, caplog):
    """Dask fails to warn of it, since its scheduler does not listen any more."""
    with cluster(queue, "closing") as pool:
        there = socket.create_connection(pool.scheduler_address.removeprefix("tls://").split(":"))

        async def hang_up(_):
            there.close()
            await asyncio.sleep(0.2)

        monkeypatch.setattr(pool._supervision, "all_ended", hang_up)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_workers_leave_until_the_last_of_their_calls_must_have_ended(tmp_path):
    """Where one is being emptied, and for a minute after a job has ended."""
    roster, shape = Roster(tmp_path), AllocationShape(1, 60.0)
    one = Allocation("a1", "token", shape, roster.now(), WaitForecast((0.0,) * len(LEVELS), 0.0))
    roster.add(one)
    seen = {}
    for one.phase in (AllocationPhase.PENDING, AllocationPhase.ALIVE, AllocationPhase.DRAINING):
        seen[one.phase] = roster.some_leave()
    assert seen == {AllocationPhase.PENDING: False, AllocationPhase.ALIVE: False, AllocationPhase.DRAINING: True}
    one.phase = AllocationPhase.ENDED
    for one.end_s, leaves in ((roster.now() - 1, True), (roster.now() - 100, False)):
        assert roster.some_leave() is leaves


def test_an_asynchronous_pool_has_the_workers_that_it_was_made_with(queue):
    """Also those that it was asked for before it was awaited."""

    async def live():
        made = cluster(queue, "async", n_workers=1, asynchronous=True)
        async with made as pool, Client(pool, asynchronous=True) as client:
            return await client.submit(sum, [1, 2])

    assert asyncio.run(asyncio.wait_for(live(), 60)) == 3


@pytest.mark.full
def test_the_client_keeps_the_only_copy_of_results(queue, tmp_path):
    """Where no worker is left that could take them: when the last allocation is given back, and when its time is up.

    Dask drops one of two copies whenever it looks, here all the time.
    """
    often = dask.config.set({"distributed.scheduler.active-memory-manager.interval": "5ms"})
    with often, cluster(queue, "lone") as pool, Client(pool) as client:
        lone = joined(pool.ask())
        for turn, ends in enumerate((pool.release, lambda one: outlive(pool, one, 3.0))):
            tasks = client.map(counting(tmp_path), range(turn * 10, turn * 10 + 10), key=f"turn-{turn}")
            client.gather(tasks)
            ends(lone)
            ended(lone)
            until(lambda: names(pool) == [KEEPER], what="what keeps results")
            assert client.gather(tasks) == list(range(turn * 10, turn * 10 + 10))
            waiting = client.submit(sum, tasks)  # the one that keeps them is no worker
            time.sleep(0.2)
            assert waiting.status == "pending"
            lone = joined(pool.ask())
            assert waiting.result(timeout=30) == sum(range(turn * 10, turn * 10 + 10))
            assert set(runs(tmp_path).values()) == {1}
        del tasks, waiting
        until(lambda: KEEPER not in names(pool), what="the end of what keeps nothing any more")


@pytest.mark.full
def test_much_is_not_taken_from_an_allocation_that_could_stay(queue, tmp_path, monkeypatch, caplog):
    """It stays until its results can move to other workers, for the client is no place for them."""
    monkeypatch.setattr(departures, "_KEPT_BYTES", 0)
    with cluster(queue, "much") as pool, Client(pool) as client:
        lone = joined(pool.ask())
        task = client.submit(counting(tmp_path / "runs"), 1)
        task.result(timeout=60)
        pool.release(lone)
        until(lambda: f"{lone.id} stays" in caplog.text, what="the refusal")
        assert lone.phase is AllocationPhase.ALIVE
        assert client.submit(lambda x: x + 1, task).result(timeout=30) == 2
        assert runs(tmp_path / "runs") == {1: 1}
        joined(pool.ask())
        assert ended(lone).why == "it was given back"  # there is room for it elsewhere now
        assert task.result(timeout=30) == 1
        assert runs(tmp_path / "runs") == {1: 1}


@pytest.mark.full
def test_an_allocation_stays_whose_last_results_come_to_be_too_much(queue, tmp_path, monkeypatch):
    """It held nothing when it was given back; what ran there then ends with more than the client keeps."""
    monkeypatch.setattr(departures, "_KEPT_BYTES", 1000)
    count, end = counting(tmp_path / "runs"), tmp_path / "end"

    def grow():
        count(1)
        while not end.exists():
            time.sleep(0.02)
        return bytes(10_000)

    with cluster(queue, "grown") as pool, Client(pool) as client:
        lone = joined(pool.ask())
        task = client.submit(grow)
        until(lambda: runs(tmp_path / "runs"), what="work under way")
        pool.release(lone)
        until(lambda: lone.phase is AllocationPhase.DRAINING, what="its leaving")
        end.touch()
        until(lambda: lone.phase is not AllocationPhase.DRAINING, what="that it stays, or ends")
        assert lone.phase is AllocationPhase.ALIVE
        assert client.submit(len, task).result(timeout=30) == 10_000
        assert runs(tmp_path / "runs") == {1: 1}


@pytest.mark.parametrize("is_wanted", [True, False])
@pytest.mark.full
def test_a_job_that_is_put_back_into_the_queue_while_it_is_left_begins_anew(pool, monkeypatch, is_wanted):
    """What it runs then is not ended by how it was left before, unless somebody has given it back."""
    pool, client = pool
    one = joined(pool.ask())
    is_late = threading.Event()

    async def leave(*_):
        """Wait for workers that are gone, which takes half a minute."""
        while not is_late.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return True

    def hear(state):
        now_s = pool.now()
        status = JobStatus(one.job_id, state, now_s, start_s=now_s if state is JobState.RUNNING else None)
        pool.loop.add_callback(pool._supervision.hear, PoolNews(now_s, {one.token: status}))

    monkeypatch.setattr(departures, "leave", leave)
    if is_wanted:
        pool.loop.add_callback(pool._supervision._part, one, "it was of no more use")
    else:
        pool.release(one)
    until(lambda: one.phase is AllocationPhase.DRAINING, what="its leaving")
    hear(JobState.PENDING)
    if is_wanted:
        until(lambda: one.phase is AllocationPhase.PENDING, what="its return to the queue")
        hear(JobState.RUNNING)
        joined(one)
        until(lambda: not pool._supervision._departures._leaving, what="the end of its leaving")
        is_late.set()
        monkeypatch.undo()
        assert client.submit(time.sleep, 1.0, workers=[f"{one.id}-0"], pure=False).result(timeout=30) is None
        assert one.phase is AllocationPhase.ALIVE
        pool.release(one)
    assert ended(one).why == "it was given back"


@pytest.mark.full
def test_tasks_of_a_killed_allocation_run_again_elsewhere(pool, tmp_path):
    """The pool loses a job without a word; each result arrives once."""
    pool, client = pool
    doomed = joined(pool.ask(cores=2))
    group = client.submit(os.getpgid, 0, workers=[f"{doomed.id}-0"], pure=False).result()
    tasks = client.map(counting(tmp_path), range(30), pause_s=0.05)
    until(lambda: len(runs(tmp_path)) > 6, what="work under way")
    os.killpg(group, signal.SIGKILL)
    assert client.gather(tasks) == list(range(30))
    assert set(runs(tmp_path)) == set(range(30))
    assert ended(doomed).why.startswith("failed")
    assert doomed.workers == set()


def test_a_crash_costs_a_worker_and_no_allocation(pool):
    """A process that dies is replaced in its job: that has waited once, and does not again."""
    pool, client = pool
    [here] = [one for one in pool.allocations if one.is_useful]
    before = client.submit(os.getpid, pure=False).result()

    def crash_once():
        if os.getpid() == before:
            os._exit(1)
        return os.getpid()

    assert client.submit(crash_once).result(timeout=60) != before
    assert here.phase is AllocationPhase.ALIVE


@pytest.mark.full
def test_workers_leave_before_their_walltime_ends(pool, tmp_path):
    """Short tasks end where they began; one that is longer than what is left runs again elsewhere, unblamed."""
    pool, client = pool
    short = joined(pool.ask(walltime="1h", cores=2))
    name = f"{short.id}-0"
    tasks = client.map(counting(tmp_path), range(30), pause_s=0.1)

    def long_there(dask_worker_name=name):
        from distributed import get_worker

        if get_worker().name == dask_worker_name:
            time.sleep(600)
        return get_worker().name

    long_ = client.submit(long_there, workers=[name], allow_other_workers=True, priority=10)
    until(lambda: len(runs(tmp_path)) > 6, what="work under way")
    ends_s = outlive(pool, short, 8.0)
    assert client.gather(tasks) == list(range(30))
    assert set(runs(tmp_path).values()) == {1}
    assert long_.result(timeout=60) != name
    assert ended(short).why == "its walltime was about to end"
    assert short.drain_s < ends_s
    assert pool.scheduler.tasks[long_.key].suspicious == 0


@pytest.mark.full
def test_what_is_to_be_kept_is_asked_for_again(pool):
    """A pool that was scaled replaces an allocation that ends."""
    pool, _ = pool

    def others():
        return [one for one in pool.allocations if one.is_useful and one is not first]

    [first] = [one for one in pool.allocations if one.is_useful]
    pool.scale(2)
    second = joined(until(others, what="a second")[0])
    with pytest.raises(SubmitRejectedError, match="largest possible job has 8"):
        pool.ask(cores=9)
    with pytest.raises(InputError, match="'core'"):
        pool.ask(core=9)
    backend = pool._desk._backend
    pool._desk._order(lambda: backend.cancel(second.job_id)).result()  # as somebody else would
    assert ended(second).why.startswith("cancelled")
    third = joined(until(others, what="a third")[0])
    pool.scale(1)
    gone = until(
        lambda: [one for one in (first, third) if one.phase is AllocationPhase.ENDED], what="the end of one of two"
    )
    assert [one.why for one in gone] == ["fewer workers were asked for"]


@pytest.mark.full
def test_an_adapting_pool_asks_for_what_is_worth_it_and_gives_it_back(queue, tmp_path):
    """From nothing to nothing: work comes, is done, and no core idles on."""
    with cluster(queue, "adapting", bank=tmp_path / "bank", price=0.1) as pool, Client(pool) as client:
        adaptive = pool.adapt(minimum=0, maximum=2, interval="200ms", wait_count=6, target_duration="1s")
        assert client.gather(client.map(counting(tmp_path / "runs"), range(12), pause_s=0.2)) == list(range(12))
        assert 1 <= len(pool.allocations) <= 2
        until(
            lambda: all(a.phase is AllocationPhase.ENDED for a in pool.allocations), what="the end of all allocations"
        )
        assert {a.why for a in pool.allocations} == {"it was of no more use"}
        assert set(runs(tmp_path / "runs").values()) == {1}
        adaptive.stop()
    known = WaitStore(tmp_path / "bank").read(10)
    assert [record.job.cores for record in known] == [1] * len(pool.allocations)
    timeline = json.loads((queue.root / "adapting" / "timeline.json").read_text())
    draw_timeline(timeline, tmp_path / "time.svg")
    assert all(one.id in (tmp_path / "time.svg").read_text() for one in pool.allocations)
    draw_timeline({"allocations": [], "cores": []}, tmp_path / "nothing.png")


@pytest.mark.full
def test_nobody_else_is_let_in_where_all_is_encrypted(queue):
    """Credentials lie in files that only their owner reads, and on no command line; over an address of the network."""
    security, address = make_security(), get_ip()
    with cluster(queue, "secret", security=security, host=address) as pool, Client(pool) as client:
        assert pool.scheduler_address.startswith(f"tls://{address}:")
        joined(pool.ask(cores=2))
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        assert all(worker.address.startswith("tls://") for worker in pool.scheduler.workers.values())
        files = list((queue.root / "secret" / "tls").iterdir())
        assert len(files) == 3
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        secret = security.tls_worker_key.splitlines()[1]
        lines = []
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                lines.append(process.read_bytes().decode(errors="replace"))
        assert any("--tls-key" in line and "tls-key.pem" in line for line in lines)
        assert not any(secret in line for line in lines)
        scripts = [p.read_text() for p in (queue.root / "secret" / "scripts").rglob("*") if p.is_file()]
        assert scripts
        assert not any(secret in text for text in scripts)
        with pytest.raises(TypeError, match="TLS expects"):
            Client(pool.scheduler_address, timeout=1)
        gc.collect()  # a client that is released while another starts waits for a lock that this one has
        with pytest.raises(OSError, match="certificate does not match"):
            Client(pool.scheduler_address, security=make_security(), timeout=1)
        gc.collect()


def test_all_is_encrypted_where_workers_are_elsewhere(queue, monkeypatch):
    """Nobody has to ask for it."""
    monkeypatch.setattr("asa.pool.cluster._HERE", "none")  # the backend whose workers are here
    with cluster(queue, "far") as pool:
        assert pool.scheduler_address.startswith("tls://")
        assert "127.0.0.1" not in pool.scheduler_address


def test_jobs_that_bring_no_worker_are_not_asked_for_for_ever(queue):
    """What is broken on the compute nodes costs three jobs, and says so."""
    with cluster(queue, "barren", python="/bin/false", n_workers=1) as pool:
        until(lambda: pool.stuck, what="three jobs without a worker")
        count = len(pool.allocations)
        pool.sync(pool.decide_now)
        assert len(pool.allocations) == count == 3
        assert "no worker comes" in pool.table().caption


_OWNER = """
import sys, time
from asa.pool import AsaCluster
if __name__ == "__main__":
    spool, folder = sys.argv[1:]
    pool = AsaCluster(backend="local", settings={"spool": spool, "cores": 8}, folder=folder, bank=False,
                      cores=1, threads=1, n_workers=1, dashboard_address=":0")
    while not pool.scheduler_info["workers"]:
        time.sleep(0.1)
    print(pool.allocations[0].job_id, flush=True)
    time.sleep(600)
"""


@pytest.mark.full
def test_workers_end_with_their_scheduler(queue, tmp_path):
    """Nothing runs on, and no core is held, once the process with the scheduler is gone.

    A pool that is begun anew in its folder cancels what still waits or runs of it.
    """
    (tmp_path / "owner.py").write_text(_OWNER)
    command = [sys.executable, tmp_path / "owner.py", queue.root / "spool", queue.root / "again"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as owner:
        job_id = owner.stdout.readline().strip()
        owner.kill()
    backend = queue.connect("looking")
    with cluster(queue, "again") as pool, Client(pool) as client:
        status = until(
            lambda: (s := backend.status([job_id])[job_id]).state.is_final and s, what=f"the end of {job_id}"
        )
        assert status.end_s - status.start_s < 60
        joined(pool.ask())
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3


def test_a_task_counts_as_what_it_keeps_from_running_beside_it(queue):
    """Of four cores and two GPUs, a task that needs a GPU takes two cores' turn, and one of three cores all of it."""
    shapes = [
        AllocationShape(4, 600.0, threads=4, gpus=2, memory_bytes=8 * 2**30),
        AllocationShape(8, 600.0, threads=8, tags=frozenset({"x"})),
    ]
    needs = {"one": {"gpus": 1}, "both": {"gpus": 2}, "three": {"cores": 3}, "memory": {"memory": 3 * 2**30}}
    needs |= {"tag": {"x": 1}, "nobody": {"cores": 16}, "half": {"gpus": 0.5}, "none": {}}

    async def read():
        async with cluster(queue, "counted", asynchronous=True) as pool, Client(pool, asynchronous=True) as client:
            tasks = [client.submit(abs, -1, key=name, resources=told) for name, told in needs.items()]
            while len(pool.scheduler.tasks) < len(needs):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            kinds = read_demand(pool.scheduler, 0.0, shapes)
            await client.cancel(tasks)
            return {kind.needs: kind.tasks for kind in kinds}

    told = asyncio.run(read())
    expected = {"one": 2, "both": 4, "three": 4, "memory": 2, "tag": 1, "nobody": 16, "half": 1, "none": 1}
    assert told == {frozenset(needs[name].items()): count for name, count in expected.items()}


def test_demand_is_read_from_the_graph(queue, monkeypatch):
    """What comes after what, how many, and how long they take; in an asynchronous cluster, too."""

    async def read():
        pool = await cluster(queue, "asynchronous", asynchronous=True)
        async with pool, Client(pool, asynchronous=True) as client:
            first = [delayed(lambda n: n)(n, dask_key_name=("load", n)) for n in range(6)]
            second = [delayed(lambda n: n)(part, dask_key_name=("fit", n)) for n, part in enumerate(first)]
            done = client.compute(delayed(sum)(second, dask_key_name="total"))
            while not pool.scheduler.task_groups:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            pool.scheduler.task_prefixes["fit"].duration_average = 20.0
            kinds = read_demand(pool.scheduler)
            assert [kind.task_s for kind in read_demand(pool.scheduler, 60.0)] == [60.0, 20.0, 60.0]
            monkeypatch.setattr(demand, "_MAX_TASKS", 0)
            assert read_demand(pool.scheduler) == kinds  # by groups, as in a large graph
            monkeypatch.undo()
            again = [client.submit(abs, -n, key=f"same-{n}") for n in range(2)]
            later = client.submit(sum, again, key="between")
            last = [client.submit(abs, later, key=f"same-{n}") for n in (7, 8)]
            wide = client.submit(abs, -1, key="wide", resources={"cores": 4})
            while "wide" not in pool.scheduler.tasks:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            mixed = read_demand(pool.scheduler)
            await client.cancel([*again, later, *last, wide])
            allocation = await pool.ask()
            phase = allocation.phase
            await client.cancel(done)
            return kinds, mixed, phase

    kinds, mixed, phase = asyncio.run(read())
    assert kinds == [TaskKind(6, 0.5), TaskKind(6, 20.0), TaskKind(1, 0.5)]
    # two of one name, one after them, two of that name again; and one that takes four cores, which nobody has
    assert [kind.tasks for kind in mixed] == [8, 4, 7, 3]
    assert mixed[1].needs == frozenset({("cores", 4)})
    assert phase in (AllocationPhase.ASKED, AllocationPhase.PENDING, AllocationPhase.STARTING)


@pytest.mark.full
def test_a_batch_system_that_is_away_before_there_is_a_scheduler_is_asked_again(queue, monkeypatch):
    """What it says while the cluster is still being made is heard later."""
    is_told, look, keep = threading.Event(), Desk._look, cluster_module.keep_credentials

    def look_in_vain_once(desk):
        if is_told.is_set():
            return look(desk)
        is_told.set()
        raise UnavailableError("is away", where="the queue", hint="Wait.")

    def keep_once_told(security, folder):
        assert is_told.wait(30)
        time.sleep(0.3)  # for the desk to say so
        return keep(security, folder)

    monkeypatch.setattr(Desk, "_look", look_in_vain_once)
    monkeypatch.setattr(cluster_module, "keep_credentials", keep_once_told)
    with cluster(queue, "away-at-first", n_workers=1) as pool, Client(pool) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
