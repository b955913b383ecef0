"""Values that processes hand over without sending them."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from asa.backends.simulated import SimulatedSite
from asa.backends.simulated.swf import write_swf
from asa.backends.simulated.table import JobTable
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from asa.backend import JobSpec, JobState
from asa.core.handover import HandoverMemory, MappedValue
from asa.core.parallel import pool
from asa.errors import UnavailableError
from asa.sites import open_facility
from asa.studies.compare.study import Comparison, compare, workflow_maker

VALUES = st.recursive(
    st.integers() | st.text() | st.binary() | arrays.arrays(st.sampled_from("iqfd?"), arrays.array_shapes(min_side=0)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def same(one, other):
    return pickle.dumps(one) == pickle.dumps(other)


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_what_is_given_is_what_was_held(values):
    """Whatever else is held beside it, and each time anew."""
    memory = HandoverMemory()
    published = [memory.publish(value) for value in values]
    for value, one in zip(values, published, strict=True):
        assert same(one.value(), pickle.loads(pickle.dumps(value)))
        assert same(one.value(), one.value())
    memory.close()


def test_another_process_gets_it_and_what_it_writes_is_its_own():
    """Without its being sent: what stands for it is small."""
    memory = HandoverMemory()
    published = memory.publish({"numbers": np.arange(100_000)})
    told = pickle.dumps(published)
    assert len(told) < 500
    code = (
        "import pickle, sys; numbers = pickle.loads(sys.stdin.buffer.read()).value()['numbers'];"
        "numbers[0] = 7; print(numbers.sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], input=told, capture_output=True, check=True)
    assert int(done.stdout) == np.arange(100_000).sum() + 7
    assert published.value()["numbers"][0] == 0


def test_what_is_held_no_more_is_not_taken_for_another():
    """When who held it is gone, or something else has its place; what was taken before stays."""
    memory, other = HandoverMemory(), HandoverMemory()
    published, elsewhere = memory.publish(np.arange(5)), other.publish(np.arange(5, 10))
    taken = published.value()
    with pytest.raises(FileNotFoundError):
        MappedValue(elsewhere.path, elsewhere.at_byte, elsewhere.size_bytes, elsewhere.spans, published.mark).value()
    memory.close()
    assert taken.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(OSError, match="No such file"):
        published.value()


def test_a_system_without_such_memory_sends_values(monkeypatch):
    """Slower, and the same."""
    monkeypatch.delattr("os.memfd_create", raising=False)
    assert pickle.loads(pickle.dumps(HandoverMemory().publish([1, np.ones(2)]))).value()[1].tolist() == [1, 1]


def _sum(numbers, factor):
    return int(numbers.sum()) * factor


def _ones(count):
    return np.ones(count, dtype=np.int64)


def test_processes_share_and_keep():
    """What is shared, and what others have kept, is there for all."""
    with pool(2) as processes:
        shared = processes.share(np.arange(10))
        assert [processes.submit(_sum, shared, n).result() for n in range(3)] == [0, 45, 90]
        kept = processes.keep(_ones, [3, 5])
        assert [one.value().sum() for one in kept] == [3, 5]
    with pytest.raises(OSError, match="No such file"):
        kept[0].value()


def test_processes_end_alone():
    """One that is killed ends the others of its pool, in words, and nobody else's."""
    own = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    own.start()
    try:
        with pytest.raises(UnavailableError, match="was killed"), pool(2) as processes:
            processes.submit(os.kill, processes.submit(os.getpid).result(), signal.SIGKILL).result()
        with pytest.raises(ZeroDivisionError), pool(2) as processes:
            processes.submit(divmod, 1, 0).result()
        assert own.is_alive()
    finally:
        own.kill()
        own.join()


def _opened(site, seeds):
    """Open worlds; return their queues a day later, and by how many bytes the process has grown."""
    site.open(seeds[0])  # which loads code
    before = _own_bytes()
    worlds = [site.open(seed) for seed in seeds]
    grown = _own_bytes() - before
    for world in worlds:
        job = world.submit(JobSpec("one", 4, 3600.0, run_s=60.0))
        world.wait(world.now() + 86_400)
        assert world.status([job])[job].state is JobState.RUNNING
    return [world.others()["start"].tolist() for world in worlds], grown


def _own_bytes():
    [line] = [line for line in Path("/proc/self/smaps_rollup").read_text().splitlines() if "Pss_Anon" in line]
    return 1024 * int(line.split()[1])


def test_worlds_of_a_log_take_memory_for_what_they_change(tmp_path):
    """Where several processes open them; before, each copied nine numbers of every job in the log."""
    rng, jobs, seeds = np.random.default_rng(0), 60_000, (3, 1, 4)
    run = rng.integers(60, 900, jobs)
    table = JobTable(np.arange(jobs) * 100, run, 2 * run, rng.integers(1, 9, jobs))
    write_swf(tmp_path / "log.swf", table, cores=32)

    def site():
        return SimulatedSite(trace=tmp_path / "log.swf", scheduler="multifactor")

    shared = site()
    with pool(2) as processes:
        shared.prepare(seeds, processes)
        worlds, grown = processes.submit(_opened, shared, seeds).result()
    assert grown < len(seeds) * 72 * jobs / 2
    assert worlds == _opened(site(), seeds)[0]
    assert worlds == _opened(shared, seeds)[0]  # the processes are gone, and their memory


@pytest.mark.full
def test_a_site_whose_worlds_were_elsewhere_is_as_good_as_new():
    """They went with the processes that had warmed them up."""
    site = open_facility("simulated", None, {"system": "hpc2n"}).facility
    comparison = Comparison(workflow_maker("blast"), site, (28,), ("per-stage", "chained"), (0, 1), history=50)
    beside = compare(comparison, jobs=2)
    assert site.open(0).now() == site.open(0).now()
    assert compare(comparison, jobs=1) == beside
    assert compare(comparison, jobs=2) == beside
