"""A program's side of the API: its use of answers, and its independence of the manager's faults."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from asa.backends.dmr.desk import ManagerDesk

from asa.dmr import Action, Answer, Session
from asa.errors import InputError

NONE, EXPAND, SHRINK = "no action", "expand", "shrink"


class Told:
    """A manager with given replies, which records its requests."""

    def __init__(self, path):
        self.heard, self.undone = [], []
        self.says = []
        self.lock = threading.Lock()
        self.desk = ManagerDesk(path, self)

    def reply(self, told):
        with self.lock:  # what is said first is to be what is heard first
            says = self.says.pop(0) if self.says else (NONE, told["processes"])
            self.heard.append(told)
        if callable(says):
            says = says()
        return {"v": 1, "action": says[0], "processes": says[1], "why": "as told"}

    def unheard(self, told):
        self.undone.append(told["what"])

    @property
    def asked(self):
        return [told["what"] for told in self.heard]


@pytest.fixture
def manager(tmp_path):
    manager = Told(tmp_path / "socket")
    yield manager
    manager.desk.close()


def session(manager, processes=4, **options):
    return Session(str(manager.desk.path), "7", processes, **options)


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def next_of(program):
    """Check asynchronously once the answer to the check before has come."""
    deadline = time.monotonic() + 20
    while "not answered yet" in (answer := program.icheck_status(1, 8)).why:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return answer


# ---------------------------------------------------------------------- checks


def test_what_is_asked_and_answered(manager):
    manager.says = [(SHRINK, 2)]
    program = session(manager)
    answer = program.check_status(1, 8, factor=2, preferred=np.int64(2))
    assert answer == Answer(Action.SHRINK, 2, 4, "as told")
    assert answer
    assert program.processes == 2
    [told] = manager.heard
    assert (told["what"], told["job"], told["processes"]) == ("check", "7", 4)
    assert told["wish"] == {"minimum": 1, "maximum": 8, "factor": 2, "preferred": 2}


def test_nothing_to_do_is_false(manager):
    answer = session(manager).check_status(1, 8)
    assert not answer
    assert (answer.action, answer.processes, answer.before) == (Action.NONE, 4, 4)


def test_a_shrink_is_acknowledged_at_the_latest_by_the_next_check(manager):
    manager.says = [(SHRINK, 2), (NONE, 2), (EXPAND, 4), (NONE, 4)]
    program = session(manager)
    program.check_status(1, 8)
    program.acknowledge()
    program.check_status(1, 8)
    program.check_status(1, 8)
    assert [(told["what"], told["processes"]) for told in manager.heard] == [
        ("check", 4), ("done", 2), ("check", 2), ("check", 4),
    ]  # fmt: skip


def test_a_program_may_make_less_of_an_answer(manager):
    """It could not start all processes; or could not shrink."""
    manager.says = [(EXPAND, 8), (NONE, 6), (SHRINK, 3), (NONE, 6)]
    program = session(manager)
    program.check_status(1, 8)
    program.acknowledge(6)
    program.check_status(1, 8)
    assert program.processes == 3
    program.acknowledge(6)
    assert program.processes == 6
    assert [told["processes"] for told in manager.heard] == [4, 6, 6, 6]
    with pytest.raises(InputError, match="7 processes were never granted"):
        program.acknowledge(7)


WRONG = [
    ({"minimum": 4, "maximum": 2}, "maximum: is 2, and the minimum 4"),
    ({"minimum": 0, "maximum": 2}, "minimum: 0 processes"),
    ({"minimum": 1, "maximum": 4, "factor": 1}, "factor: no number of processes changes by a factor of 1"),
    ({"minimum": 2, "maximum": 4, "preferred": 1}, "preferred: is 1, and not between 2 and 4"),
    ({"minimum": 1, "maximum": 4.0}, "maximum: 4.0 is no whole number"),
    ({"minimum": True, "maximum": 4}, "minimum: True is no whole number"),
    ({"minimum": 1, "maximum": "4"}, "maximum: '4' is no whole number"),
    ({"minimum": 1, "maximum": 4, "factor": None}, "factor: None is no whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("wish", "told"), WRONG)
@pytest.mark.parametrize("check", [Session.check_status, Session.icheck_status])
@pytest.mark.parametrize("is_managed", [True, False])
def test_nonsense_is_refused_wherever_the_program_runs(manager, wish, told, check, is_managed):
    program = session(manager) if is_managed else Session()
    with pytest.raises(InputError, match=told):
        check(program, **wish)
    assert manager.heard == []


# ---------------------------------------------------------------------- the inhibitor


def test_within_the_period_nobody_is_asked(manager):
    """From the beginning, and from each answer."""
    clock = SimpleNamespace(now=100.0)
    program = session(manager, period_s=15.0, clock=lambda: clock.now)
    asked = []
    for _ in range(40):
        clock.now += 4.0
        before = len(manager.heard)
        answer = program.check_status(1, 8)
        assert (answer.why == "inhibited") == (len(manager.heard) == before)
        if len(manager.heard) > before:
            asked.append(clock.now - 100.0)
    assert asked == [16.0 * n for n in range(1, 11)]


def test_the_users_period_goes_before_the_programs(manager):
    variables = {"ASA_DMR": str(manager.desk.path), "ASA_DMR_JOB": "7", "ASA_DMR_PROCESSES": "4"}
    users, programs = (Session.of_environment(variables | more) for more in ({"ASA_DMR_PERIOD": "0"}, {}))
    for program in (users, programs):
        program.inhibit(1000.0)
        program.check_status(1, 8)
    assert len(manager.heard) == 1


# ---------------------------------------------------------------------- asynchronous checks


def test_an_asynchronous_answer_is_done_at_the_next_check(manager):
    """A shrink at once; for an expansion the nodes are asked for then."""
    manager.says = [(SHRINK, 2), (NONE, 2), (EXPAND, 4), (EXPAND, 4)]
    program = session(manager, expand_s=3.0)
    assert not program.icheck_status(1, 8)
    assert next_of(program) == Answer(Action.SHRINK, 2, 4, "as told")
    program.acknowledge()
    assert not program.icheck_status(1, 8)
    assert next_of(program) == Answer(Action.EXPAND, 4, 2, "as told")
    assert manager.asked == ["ask", "done", "ask", "expand"]
    assert (manager.heard[-1]["to"], manager.heard[-1]["wait_s"]) == (4, 3.0)


def test_asking_takes_no_time_and_what_is_not_answered_yet_is_awaited_longer(manager):
    is_free = threading.Event()
    manager.says = [lambda: is_free.wait(20) and (SHRINK, 2)]
    program = session(manager)
    begun_s = time.monotonic()
    assert not program.icheck_status(1, 8)
    assert not program.icheck_status(1, 8)
    assert time.monotonic() - begun_s < 1.0
    is_free.set()
    assert next_of(program).processes == 2
    assert manager.asked == ["ask"]


def test_nothing_to_do_is_asked_again(manager):
    program = session(manager)
    assert not program.icheck_status(1, 8)
    for _ in range(2):
        assert not next_of(program)
    until(lambda: len(manager.heard) == 3)
    assert manager.asked == ["ask"] * 3


def test_a_synchronous_check_supersedes_what_was_asked(manager):
    manager.says = [(SHRINK, 1), (SHRINK, 2)]
    program = session(manager)
    program.icheck_status(1, 8)
    until(lambda: manager.asked == ["ask"])
    assert program.check_status(1, 8).processes == 2
    assert not program.icheck_status(1, 8)


def test_an_expansion_that_times_out_is_none(manager):
    manager.says = [(EXPAND, 8), (NONE, 4)]
    program = session(manager)
    program.icheck_status(1, 8)
    assert next_of(program).why == "as told"
    assert program.processes == 4


def test_an_answer_that_has_been_overtaken_is_none(manager):
    """The program has become smaller by itself meanwhile."""
    manager.says = [(SHRINK, 2)]
    program = session(manager)
    program.icheck_status(1, 8)
    until(lambda: manager.asked == ["ask"])  # not after the acknowledgement, which comes by another connection
    program.acknowledge(1)
    answer = next_of(program)
    assert not answer
    assert "makes no sense: shrink from 1 to 2" in answer.why


# ---------------------------------------------------------------------- troubles of the manager


def test_without_a_manager_nothing_is_to_be_done():
    program = Session(processes=3)
    for check in (program.check_status, program.icheck_status):
        answer = check(8, 16)
        assert (answer.action, answer.processes) == (Action.NONE, 3)
        assert "no resource manager" in answer.why
    program.acknowledge(2)
    assert program.processes == 2


def test_a_manager_that_is_gone_is_none_until_it_is_back(tmp_path):
    program = Session(str(tmp_path / "socket"), "7", 4)
    for check in (program.check_status, program.icheck_status):
        answer = check(1, 8)
        assert not answer
        assert "cannot be reached: No such file" in answer.why
    manager = Told(tmp_path / "socket")
    manager.says = [(SHRINK, 2)]
    assert program.check_status(1, 8).processes == 2
    manager.desk.close()
    program.acknowledge()
    assert not program.check_status(1, 8)


def test_a_manager_that_hangs_costs_little(manager):
    """After one time-out it is left alone, for nine times as long; and it takes back what nobody heard."""
    is_over = threading.Event()
    manager.says = [lambda: is_over.wait(20) and (EXPAND, 8)]
    program = session(manager, answer_s=0.2)
    begun_s = time.monotonic()
    answer = program.check_status(1, 8)
    lost_s = time.monotonic() - begun_s
    assert not answer
    assert "does not answer" in answer.why
    assert 0.2 <= lost_s < 1.0
    while time.monotonic() - begun_s < 5 * lost_s:
        assert "does not answer" in program.check_status(1, 8).why
        program.acknowledge()
    assert manager.asked == ["check"]
    is_over.set()
    until(lambda: manager.undone == ["check"])
    time.sleep(begun_s + 10.1 * lost_s - time.monotonic())
    manager.says = [(SHRINK, 2)]
    assert program.check_status(1, 8).processes == 2


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n",
        b"nonsense\n",
        b"[1]\n",
        b"\xff\xfe\n",
        b'{"v": 1, "action": "shrink"}\n',
        b'{"v": 1, "action": "leap", "processes": 2, "why": ""}\n',
        b'{"v": 2, "action": "shrink", "processes": 2, "why": ""}\n',
        b'{"v": 1, "action": "shrink", "processes": "2", "why": ""}\n',
        b'{"v": 1, "action": "shrink", "processes": 0, "why": ""}\n',
        b'{"v": 1, "action": "shrink", "processes": 4, "why": ""}\n',
        b'{"v": 1, "action": "expand", "processes": 3, "why": ""}\n',
        b'{"v": 1, "action": "shr',
    ],
)
@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_an_answer_that_cannot_be_understood_is_none(tmp_path, said, is_asynchronous):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()

        def serve():
            while True:
                try:
                    visitor, _ = listener.accept()
                except OSError:
                    return
                with visitor, suppress(OSError):  # it may not wait to hear
                    visitor.recv(1 << 16)
                    visitor.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            program = Session(str(tmp_path / "socket"), "7", 4)
            for _ in range(2):
                assert not (next_of(program) if is_asynchronous else program.check_status(1, 8))
            assert program.processes == 4
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


# ---------------------------------------------------------------------- the environment


def in_a_program(code, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ASA_DMR")}
    done = subprocess.run(
        [sys.executable, "-c", f"from asa import dmr\n{code}"],
        capture_output=True, text=True, env=environment | variables, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_program_runs_anywhere():
    code = "a = dmr.check_status(2, 8, factor=2, preferred=4)\nprint(bool(a), a.processes, dmr.processes())"
    assert in_a_program(f"dmr.processes(default=3)\n{code}") == "False 3 3"
    cores = len(os.sched_getaffinity(0))
    assert in_a_program(f"dmr.inhibit(5)\ndmr.acknowledge()\n{code}") == f"False {cores} {cores}"


def test_a_program_finds_its_manager(manager):
    manager.says = [(SHRINK, 3)]
    code = (
        "print(dmr.processes(default=9))\ndmr.inhibit(0)\na = dmr.check_status(3, 12, factor=2)\n"
        "print(a.action, a.before, a.processes)\ndmr.acknowledge()\ndmr.icheck_status(1, 2)"
    )
    variables = {"ASA_DMR": str(manager.desk.path), "ASA_DMR_JOB": "7", "ASA_DMR_PROCESSES": "6"}
    assert in_a_program(code, **variables) == "6\nshrink 6 3"
    until(lambda: len(manager.heard) == 3)
    assert [(told["what"], told["job"], told["processes"]) for told in manager.heard] == [
        ("check", "7", 6), ("done", "7", 3), ("ask", "7", 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ASA_DMR_PERIOD", "soon"),
        ("ASA_DMR_PERIOD", "-1"),
        ("ASA_DMR_TIMEOUT", "inf"),
        ("ASA_DMR_PROCESSES", "0"),
        ("ASA_DMR_PROCESSES", "x"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(variable, value):
    with pytest.raises(InputError, match=f"{variable}: "):
        Session.of_environment({variable: value})


def test_importing_it_loads_nothing_heavy():
    heavy = ["networkx", "pydantic", "rich", "typer", "httpx", "asa.backend", "asa.workflow"]
    assert in_a_program(f"import sys\nprint([m for m in {heavy} if m in sys.modules])") == "[]"


def test_what_is_sent_is_a_line_of_json(tmp_path):
    """As documented, for managers that are written in another language."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        program = Session(str(tmp_path / "socket"), "7", 4)
        assert not program.icheck_status(2, 8)
        visitor, _ = listener.accept()
        with visitor:
            line = visitor.recv(1 << 16)
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "v": 1, "what": "ask", "job": "7", "processes": 4, "to": 0, "wait_s": 0.0,
        "wish": {"minimum": 2, "maximum": 8, "factor": 2, "preferred": None},
    }  # fmt: skip
