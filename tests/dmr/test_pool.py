"""Processes that share rows: the rows stay the same at every number of processes, and no process is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pool_work as work
import pytest
from slurm_testbed import until

from asa import dmr
from asa.errors import InputError, RunError

X = np.arange(22.0).reshape(11, 2)


def memories():
    return {path.name for path in Path("/dev/shm").glob("psm_*")}


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No shared memory of ours outlives a test."""
    before = memories()
    yield
    until(lambda: not memories() - before, what="the end of shared memory")


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.full
def test_rows_are_the_same_on_any_number_of_processes():
    """More than there are rows, too; and what other processes have can be read."""
    flags = np.arange(11) % 3 == 0
    with dmr.Pool(3, {"x": X, "flags": flags}) as pool:
        for step, processes in enumerate((2, 5, 1, 13, 3), start=1):
            pool.resize(processes)
            pool.run(work.scale, 2.0)
            assert np.array_equal(pool.collect("x"), X * 2.0**step)
            assert np.array_equal(pool.collect("flags"), flags)
            told = pool.run(work.describe)
            assert [rank for rank, *_ in told] == list(range(processes))
            assert [row for _, _, rows, _ in told for row in rows] == list(range(11))
            assert all(np.array_equal(seen, X * 2.0**step) for seen in pool.run(work.read_all))
    assert pool.processes == 0


def test_a_resize_in_the_middle_changes_no_bit():
    turns = 6
    with dmr.Pool(2, {"x": X}) as rigid:
        rigid.run(work.smear, turns)
        meant = rigid.collect("x")
    with dmr.Pool(4, {"x": X}) as pool:
        for processes in (2, 3, 1):
            pool.run(work.smear, turns // 3)
            pool.resize(processes)
        assert np.array_equal(pool.collect("x"), meant)


def test_processes_that_stay_are_the_same_and_those_that_leave_have_ended():
    with dmr.Pool(3, {"x": X}) as pool:
        before = pool.run(work.pids)
        pool.resize(1)
        assert pool.run(work.pids) == before[:1]
        assert not any(is_alive(pid) for pid in before[1:])
        pool.resize(2)
        assert pool.run(work.pids)[0] == before[0]
        assert len(set(pool.run(work.pids))) == 2


def test_an_exchange_hands_everything_to_all():
    with dmr.Pool(3, {"x": X}) as pool:
        assert pool.run(work.add_ranks) == [[3, 6, 9]] * 3


def test_a_failure_is_told_with_its_traceback_and_the_pool_goes_on():
    with dmr.Pool(3, {"x": X}) as pool:
        with pytest.raises(RunError, match=r"process 1 of the pool: KeyError: 'no such thing'") as failed:
            pool.run(work.fail_on, 1)
        assert "in fail_on" in failed.value.__notes__[0]
        with pytest.raises(RunError, match="is none of 11 rows"):
            pool.run(work.read_row, 11)
        with pytest.raises(RunError, match="exchange equally often"):
            pool.run(work.leave_others_waiting)
        with pytest.raises(AttributeError):
            pool.run(lambda part: None)  # cannot be sent
        pool.resize(2)
        assert pool.run(work.add_ranks) == [[1, 3, 5]] * 2
        assert np.array_equal(pool.collect("x"), X)


def test_a_process_that_dies_ends_the_pool():
    with dmr.Pool(3, {"x": X}) as pool:
        pids = pool.run(work.pids)
        with pytest.raises(RunError, match="process 2 of the pool: has died, exit code 7"):
            pool.run(work.die_on, 2)
        assert not any(is_alive(pid) for pid in pids)


def test_a_process_that_died_between_is_found():
    with dmr.Pool(2, {"x": X}) as pool:
        [_, pid] = pool.run(work.pids)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RunError, match="process 1 of the pool: has died, exit code -9"):
            pool.resize(3)
        assert pool.processes == 0


def test_a_view_that_a_program_keeps_is_no_trouble():
    with dmr.Pool(2, {"x": X}) as pool:
        pool.run(work.keep_view)
        pool.resize(1)
        assert np.array_equal(pool.collect("x"), X)


def test_without_memory_all_is_as_before(monkeypatch):
    """A full /dev/shm is told of, not found out by a signal that kills."""
    with dmr.Pool(2, {"x": X}) as pool:

        def refuse(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(RunError, match="bytes of shared memory: No space left on device"):
            pool.resize(3)
        assert pool.processes == 2
        assert np.array_equal(pool.collect("x"), X)
        assert pool.run(work.add_ranks) == [[1, 3, 5]] * 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_program_that_is_ended_leaves_nothing(tmp_path, number):
    """Neither processes nor memory, though they compute."""
    script = tmp_path / "program.py"
    script.write_text(
        "import signal, numpy as np, pool_work as work\nfrom asa import dmr\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    with dmr.Pool(2, {'x': np.zeros(5)}) as pool:\n"
        "        print(*pool.run(work.pids), flush=True)\n"
        "        pool.run(work.sleep, 60.0)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(work.__file__).parent)}
    program = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    )
    with program:
        pids = [int(word) for word in program.stdout.readline().split()]
        assert len(pids) == 2
        assert all(is_alive(pid) for pid in pids)
        program.send_signal(number)
        assert program.wait(20) != 0
    until(lambda: not any(is_alive(pid) for pid in pids), what="the end of its processes")


@pytest.mark.parametrize(
    ("processes", "arrays", "told"),
    [
        (0, {"x": X}, "over 0 processes"),
        (2.5, {"x": X}, "2.5 is no whole number"),
        (1, {}, "no arrays to share"),
        (1, {"x": X, "y": X[:3]}, "different numbers of rows: 'x' 11, 'y' 3"),
        (1, {"x": 3.0}, "array 'x': has no rows"),
        (1, {"x": [object()]}, "array 'x': has objects"),
    ],
)
def test_what_cannot_be_shared_is_refused(processes, arrays, told):
    with pytest.raises(InputError, match=told):
        dmr.Pool(processes, arrays)


def test_there_cannot_be_no_process():
    with dmr.Pool(1, {"x": X}) as pool, pytest.raises(InputError, match="over 0 processes"):
        pool.resize(0)
