"""A manager of this machine: real jobs, programs that ask it, and the nodes of processes that die."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from asa.backends.dmr.desk import ManagerDesk
from asa.backends.dmr.manager import LocalManager
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.backend import JobState
from asa.dmr import Action, Session
from asa.errors import InputError

SLEEP = ["sleep", "60"]


@pytest.fixture
def start():
    """Start managers, which end with the test."""
    opened = []

    def start(nodes, **options):
        opened.append(LocalManager(nodes, **options))
        return opened[-1]

    yield start
    for manager in opened:
        manager.close()


def program(manager, number, **options):
    """Send a job's requests."""
    return Session(str(manager.address), str(number), manager.job(number).nodes, **options)


def malleable(manager, nodes, **options):
    number = manager.submit(SLEEP, nodes, name="malleable")
    return number, program(manager, number, **options)


def until(condition):
    deadline = time.monotonic() + 20
    while not (told := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return told


def state(manager, number):
    return manager.job(number).state


def sizes(manager, number):
    return [size for _, size in manager.job(number).sizes]


def next_of(asking, *wish):
    """Return a function that checks asynchronously once the previous check is answered."""
    return until(lambda: "not answered yet" not in (answer := asking.icheck_status(*wish)).why and [answer])[0]


# ---------------------------------------------------------------------- the paper's ways


def test_it_shrinks_for_a_job_that_waits_and_grows_when_that_has_ended(start):
    manager = start(4)
    number, asking = malleable(manager, 4)
    assert not asking.check_status(1, 4)
    rigid = manager.submit(SLEEP, 2, name="rigid")
    answer = asking.check_status(1, 4)
    assert (answer.action, answer.processes) == (Action.SHRINK, 2)
    assert answer.why == f"lets job {rigid} (rigid) start on 2 nodes"
    assert state(manager, rigid) is JobState.PENDING, "its processes have not ended yet"
    asking.acknowledge()
    assert state(manager, rigid) is JobState.RUNNING
    assert not asking.check_status(1, 4)
    manager.cancel(rigid)
    assert manager.wait(rigid, 20).state is JobState.CANCELLED
    answer = asking.check_status(1, 4)
    assert (answer.action, answer.processes, answer.why) == (Action.EXPAND, 4, "nodes are free, and nobody waits")
    assert sizes(manager, number) == [4, 2, 4]
    assert manager.free == 0


def test_who_is_promoted_goes_before_those_who_came_earlier(start):
    manager = start(4)
    _, asking = malleable(manager, 4)
    wide, narrow = manager.submit(SLEEP, 4), manager.submit(SLEEP, 2)
    assert asking.check_status(2, 4).action is Action.SHRINK
    asking.acknowledge()
    assert (state(manager, wide), state(manager, narrow)) == (JobState.PENDING, JobState.RUNNING)


def test_nobody_else_overtakes(start):
    manager = start(4)
    first = manager.submit(SLEEP, 3)
    wide, narrow = manager.submit(SLEEP, 2), manager.submit(SLEEP, 1)
    assert [state(manager, n) for n in (first, wide, narrow)] == [
        JobState.RUNNING, JobState.PENDING, JobState.PENDING,
    ]  # fmt: skip
    manager.cancel(first)
    until(lambda: state(manager, narrow) is JobState.RUNNING)
    assert state(manager, wide) is JobState.RUNNING


def test_an_action_is_requested(start):
    """Section 4.1: the job's minimum is above the program's nodes, or its maximum is below."""
    manager = start(8)
    number, asking = malleable(manager, 2)
    answer = asking.check_status(4, 8)
    assert (answer.action, answer.processes, answer.why) == (Action.EXPAND, 4, "the program asks for it")
    assert asking.check_status(1, 1).processes == 1
    assert sizes(manager, number) == [2, 4]
    asking.acknowledge()
    assert sizes(manager, number) == [2, 4, 1]


def test_a_program_that_does_not_do_as_it_was_answered(start):
    """A program keeps its nodes when it cannot shrink, and returns those that it could not use."""
    manager = start(4)
    number, asking = malleable(manager, 2)
    assert asking.check_status(1, 4).processes == 4
    asking.acknowledge(3)
    assert (sizes(manager, number), manager.free) == ([2, 4, 3], 1)
    manager.submit(SLEEP, 2)
    assert not asking.check_status(1, 4), "by a factor of 2 nobody goes from 3 to 2"
    asking.acknowledge(2)
    manager.submit(SLEEP, 1)
    assert asking.check_status(1, 4).processes == 1
    asking.acknowledge(2)
    assert sizes(manager, number) == [2, 4, 3, 2]


def test_where_nothing_can_grow_only_shrinks_are_answered(start):
    manager = start(4, grows=False)
    number, asking = malleable(manager, 2)
    answer = asking.check_status(1, 4)
    assert (answer.action, answer.why) == (Action.NONE, "nodes can only be given back here")
    manager.submit(SLEEP, 3)
    assert asking.check_status(1, 4).action is Action.SHRINK
    asking.acknowledge()
    assert sizes(manager, number) == [2, 1]


# ---------------------------------------------------------------------- two programs


def test_two_programs_do_not_both_shrink_for_one_job(start):
    manager = start(8)
    (_, one), (_, other) = malleable(manager, 4), malleable(manager, 4)
    rigid = manager.submit(SLEEP, 2)
    assert one.check_status(1, 4).action is Action.SHRINK
    assert not other.check_status(1, 4)
    one.acknowledge()
    assert state(manager, rigid) is JobState.RUNNING


def test_but_they_do_if_the_first_does_not_shrink_after_all(start):
    manager = start(8)
    (_, one), (_, other) = malleable(manager, 4), malleable(manager, 4)
    rigid = manager.submit(SLEEP, 2)
    assert one.check_status(1, 4).action is Action.SHRINK
    one.acknowledge(4)
    assert other.check_status(1, 4).action is Action.SHRINK
    other.acknowledge()
    assert state(manager, rigid) is JobState.RUNNING


def test_two_programs_do_not_get_the_same_nodes(start):
    manager = start(6)
    (_, one), (_, other) = malleable(manager, 2), malleable(manager, 2)
    assert one.check_status(1, 8).processes == 4
    assert not other.check_status(1, 8)


def test_what_comes_free_for_a_job_is_nobody_elses(start):
    """Another program does not grow onto these nodes, before they are free or after."""
    manager = start(8)
    (_, one), (number, other) = malleable(manager, 4), malleable(manager, 2)
    rigid = manager.submit(SLEEP, 4)
    assert one.check_status(1, 4).processes == 2
    assert not other.check_status(1, 8)
    one.acknowledge()
    assert state(manager, rigid) is JobState.RUNNING
    assert sizes(manager, number) == [2]


# ---------------------------------------------------------------------- asynchronous checks


def test_an_expansion_whose_nodes_were_taken_times_out(start):
    manager = start(4)
    number, asking = malleable(manager, 2, expand_s=0.3)
    assert not asking.icheck_status(1, 4)
    until(lambda: asking._asked.reply(1.0))
    manager.submit(SLEEP, 2)
    begun_s = time.monotonic()
    answer = next_of(asking, 1, 4)
    assert 0.3 <= time.monotonic() - begun_s < 3
    assert (answer.action, answer.why) == (Action.NONE, "2 nodes did not come free in 0.3 s")
    assert sizes(manager, number) == [2]
    late = manager.submit(SLEEP, 1)
    manager.cancel(number)
    until(lambda: state(manager, late) is JobState.RUNNING)  # the resizer job is gone


def test_an_expansion_goes_before_jobs_that_wait(start):
    manager = start(4)
    number, asking = malleable(manager, 2, expand_s=20.0)
    assert not asking.icheck_status(1, 4)
    until(lambda: asking._asked.reply(1.0))
    other, waiting = manager.submit(SLEEP, 2), manager.submit(SLEEP, 2)
    threading.Timer(0.2, manager.cancel, [other]).start()
    answer = next_of(asking, 1, 4)
    assert (answer.action, answer.processes, answer.why) == (Action.EXPAND, 4, "its nodes are free")
    assert (sizes(manager, number), state(manager, waiting)) == ([2, 4], JobState.PENDING)


def test_a_program_that_dies_while_it_waits_for_an_expansion(start):
    manager = start(4)
    number, asking = malleable(manager, 2, expand_s=20.0)
    assert not asking.icheck_status(1, 4)
    until(lambda: asking._asked.reply(1.0))
    other = manager.submit(SLEEP, 2)
    threading.Timer(0.2, manager.cancel, [number]).start()
    assert not next_of(asking, 1, 4)
    until(lambda: state(manager, number) is JobState.CANCELLED)
    manager.cancel(other)
    until(lambda: manager.free == 4)


def test_an_asynchronous_shrink_is_promised_at_once(start):
    """The promised nodes are not requested from another program meanwhile."""
    manager = start(8)
    (_, one), (_, other) = malleable(manager, 4), malleable(manager, 4)
    rigid = manager.submit(SLEEP, 2)
    assert not one.icheck_status(1, 4)
    until(lambda: one._asked.reply(1.0))
    assert not other.check_status(1, 4)
    assert next_of(one, 1, 4).processes == 2
    one.acknowledge()
    assert state(manager, rigid) is JobState.RUNNING


# ---------------------------------------------------------------------- deaths


def test_a_program_that_dies_in_the_middle_gives_its_nodes_back(start, tmp_path):
    """Its processes end, too, although it was asked to shrink before it could."""
    manager = start(4)
    script = "sleep 60 & sleep 61 & echo $! $$ >pids; mv pids told; wait"
    number = manager.submit(["sh", "-c", script], 4, folder=tmp_path)
    asking = program(manager, number)
    rigid, last = manager.submit(SLEEP, 2), manager.submit(SLEEP, 2)
    assert asking.check_status(1, 4).processes == 2
    child, parent = map(int, until(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text().split()))
    os.kill(parent, signal.SIGKILL)
    ended = manager.wait(number, 20)
    assert (ended.state, ended.exit_code) == (JobState.FAILED, -9)
    assert not Path(f"/proc/{child}").exists()
    assert [state(manager, n) for n in (rigid, last)] == [JobState.RUNNING] * 2
    assert "no job '1' runs here" in asking.check_status(1, 4).why


def test_what_nobody_heard_is_taken_back(start):
    """The program gives up, or dies, before it reads that it has more nodes."""
    manager = start(4)
    number, asking = malleable(manager, 2)
    manager._changed.acquire()  # which keeps it from answering
    try:
        impatient = program(manager, number, answer_s=0.1)
        assert "does not answer" in impatient.check_status(1, 4).why
    finally:
        manager._changed.release()
    until(lambda: sizes(manager, number) == [2, 4, 2])
    assert asking.check_status(1, 4).processes == 4


def test_nor_does_a_lost_answer_last(start):
    """The next check says which nodes the program has."""
    manager = start(4)
    number, asking = malleable(manager, 2)
    assert program(manager, number).check_status(1, 4).processes == 4  # as if it had heard
    assert asking.check_status(2, 2).action is Action.NONE
    assert sizes(manager, number) == [2, 4, 2]


def test_who_says_that_it_has_more_than_it_holds_is_told_so(start):
    manager = start(4)
    number = manager.submit(SLEEP, 2)
    answer = Session(str(manager.address), str(number), 3).check_status(1, 4)
    assert (answer.action, answer.why) == (Action.NONE, "job 1 holds 2 nodes, and says that it has 3 processes")


def test_a_manager_that_closes_ends_all_jobs(start, tmp_path):
    manager = start(4)
    stubborn = "trap '' TERM; sleep 60 & echo $! $$ >pids; mv pids told; while :; do sleep 1; done"
    manager.submit(["sh", "-c", stubborn], 2, folder=tmp_path)
    waiting = manager.submit(SLEEP, 4)
    pids = until(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text().split())
    begun_s = time.monotonic()
    manager.close()
    assert time.monotonic() - begun_s < 10
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert state(manager, waiting) is JobState.CANCELLED
    assert not manager.address.exists()
    with pytest.raises(InputError, match="closed"):
        manager.submit(SLEEP, 1)


# ---------------------------------------------------------------------- jobs


def test_a_job_is_told_who_to_ask_and_what_it_has(start, tmp_path):
    manager = start(4)
    command = ["sh", "-c", "echo $ASA_DMR $ASA_DMR_JOB $ASA_DMR_PROCESSES $X; pwd; exit 3"]
    environment = {"PATH": os.environ["PATH"], "X": "y"}
    number = manager.submit(command, 3, folder=tmp_path, environment=environment)
    ended = manager.wait(number)
    assert ended.output.read_text() == f"{manager.address} {number} 3 y\n{tmp_path}\n"
    assert (ended.state, ended.exit_code, ended.name) == (JobState.FAILED, 3, "sh")
    assert ended.submit_s <= ended.start_s <= ended.end_s


def test_a_job_that_cannot_be_started_takes_no_nodes(start, tmp_path):
    manager = start(2)
    for command, folder in ((["/no/such/program"], None), (["true"], tmp_path / "nowhere"), (["a\0b"], None)):
        failed = manager.wait(manager.submit(command, 2, folder=folder), 20)
        assert failed.state is JobState.FAILED
        assert failed.reason.startswith("cannot be started")
    assert manager.wait(manager.submit(["true"], 2), 20).state is JobState.COMPLETED


@pytest.mark.parametrize(("command", "nodes"), [([], 1), (["true"], 0), (["true"], 5)])
def test_a_job_that_could_never_start_is_refused(start, command, nodes):
    with pytest.raises(InputError):
        start(4).submit(command, nodes)


def test_a_pending_job_is_cancelled(start):
    manager = start(2)
    manager.submit(SLEEP, 2)
    waiting, last = manager.submit(SLEEP, 2), manager.submit(SLEEP, 1)
    manager.cancel(waiting)
    manager.cancel(waiting)
    assert manager.wait(waiting, 1).state is JobState.CANCELLED
    assert state(manager, last) is JobState.PENDING


def test_there_is_no_manager_of_nothing(start, tmp_path):
    with pytest.raises(InputError, match="0 nodes"):
        start(0)
    with pytest.raises(InputError, match="too long"):
        start(1, folder=tmp_path / ("x" * 100))
    with pytest.raises(InputError, match="cannot be a socket"):
        start(1, folder=tmp_path / "nowhere")


def test_two_managers_do_not_take_each_others_place(start, tmp_path):
    """A manager that has died is no hindrance."""
    start(2, folder=tmp_path)
    with pytest.raises(InputError, match="another resource manager serves it"):
        start(2, folder=tmp_path)
    (tmp_path / "dead").mkdir()
    code = f"import socket; socket.socket(socket.AF_UNIX).bind({str(tmp_path / 'dead' / 'socket')!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    assert start(2, folder=tmp_path / "dead").address.is_socket()


def test_nonsense_is_not_answered_and_does_no_harm(start):
    manager = start(2)
    number, asking = malleable(manager, 2)
    for said in (b"", b"\n", b"[]\n", b"{}\n", b"\xff\n", b'{"v": 9, "what": "check"}\n', b'{"what": "submit"}\n'):
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(str(manager.address))
            visitor.sendall(said)
            visitor.shutdown(socket.SHUT_WR)
            visitor.settimeout(10)
            assert visitor.recv(100) == b""
    assert not asking.check_status(1, 2)
    assert state(manager, number) is JobState.RUNNING


# ---------------------------------------------------------------------- whatever happens

WHAT = st.sampled_from(["submit", "kill", "check", "icheck", "done", "less"])
STEPS = st.lists(st.tuples(WHAT, st.integers(0, 5), st.integers(1, 6)), max_size=25)


def do(manager, asking, what, which, size):
    """Do a step of a user, or of a program that may run or not."""
    if what == "submit" and size <= manager.nodes:
        number = manager.submit(SLEEP, size)
        asking[number] = program(manager, number, expand_s=0.0)
    elif asking:
        number = sorted(asking)[which % len(asking)]
        one = asking[number]
        if what == "kill":
            del asking[number]
            manager.cancel(number)
            manager.wait(number, 20)
        elif what == "check":
            one.check_status(min(size, manager.nodes), manager.nodes)
        elif what == "icheck":
            one.icheck_status(1, size)
        else:
            one.acknowledge(1 if what == "less" else None)


@settings(max_examples=25)
@given(st.integers(1, 6), STEPS)
def test_no_node_is_lost_or_had_twice(nodes, steps):
    """The queue's first job never waits for nodes that are free."""
    with LocalManager(nodes) as manager:
        asking = {}
        for step in steps:
            do(manager, asking, *step)
            with manager._changed:
                held, free = dict(manager._ledger.allocated), manager._ledger.free
                first = manager._queue()[:1]
            assert free + sum(held.values()) == nodes
            assert min([free, *held.values()]) >= 0
            assert all(asking[number].processes <= many for number, many in held.items())
            assert all(job.nodes > free for job in first)


def test_a_desk_closes_at_once(tmp_path):
    class Silent:
        def reply(self, told):
            return {}

        def unheard(self, told):
            raise AssertionError

    desk = ManagerDesk(tmp_path / "socket", Silent())
    begun_s = time.monotonic()
    desk.close()
    assert time.monotonic() - begun_s < 1
    assert not (tmp_path / "socket").exists()
