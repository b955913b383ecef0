"""Values that functions return and raise in stages: as arguments of other stages, and in the client."""

import datetime as dt
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from local_queue import Queue

from asa import Flow, resume, stage, values
from asa.errors import AsaError, InputError, RunError
from asa.records import StageStarted
from asa.values import RemoteTraceback


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path, cores=2)
    yield queue
    queue.close()


def run(flow, queue, **options):
    root = queue.root
    where = {"settings": {"cores": 2, "spool": str(root / "spool")}, "folder": root, "runs": root / "runs"}
    return flow.run(backend="local", strategy="per-stage", **{**where, "bank": None, **options})


@stage(cores=1, walltime="1min")
def numbers(count: int) -> list[int]:
    return list(range(count))


@stage(cores=1, walltime="1min")
def total(*parts, scale: float = 1.0) -> float:
    return scale * sum(sum(part) for part in parts)


@stage(cores=1, walltime="1min")
def divided(by: int) -> float:
    return 1 / by


@stage(cores=1, walltime="1min")
def generator():
    return (x for x in "ab")


@pytest.mark.full
def test_values_go_on_to_later_stages_and_come_back(queue):
    flow = Flow("sums")
    few = flow.call(numbers.bind(3), name="few")
    many = flow.call(numbers.bind(5), name="more.1")
    whole = flow.call(total.bind(few, many, scale=2.0))
    echo = flow.stage("echo", "true", after=whole, walltime="1min")
    assert flow.workflow.stages["total"].after == ("few", "more.1")
    result = run(flow, queue)
    assert result.result(whole) == 2.0 * (3 + 10)
    assert result.result("few") == [0, 1, 2]
    with pytest.raises(RunError, match="has no value"):
        result.result(echo)
    with pytest.raises(InputError, match="there is no such stage"):
        result.result("none")


def test_an_exception_comes_back_as_what_it_is_with_the_traceback_of_its_job(queue):
    flow = Flow("fails")
    flow.call(divided.bind(0))
    with pytest.raises(RunError, match=r"'divided' .*: ZeroDivisionError: division by zero") as caught:
        run(flow, queue)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    result = run(flow, queue, check=False)
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        result.result("divided")
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "return 1 / by" in str(caught.value.__cause__)
    assert __file__ in str(caught.value.__cause__)


def test_the_log_of_a_job_has_the_traceback_of_its_function(queue):
    flow = Flow("fails")
    flow.call(divided.bind(0))
    result = run(flow, queue, check=False)
    [log] = [text for path in Path(result.run.place, "logs").iterdir() if "Zero" in (text := path.read_text())]
    assert "return 1 / by" in log


LONG = """
import sys, time
from asa import Flow, stage

@stage(walltime="1min")
def measure(seconds):
    time.sleep(seconds)
    return seconds

if __name__ == "__main__":
    flow = Flow("long")
    first = flow.call(measure.bind(0), name="first")
    second = flow.call(measure.bind(3), name="second", after=first)
    third = flow.call(measure.bind(0), name="third", after=second)
    flow.run(backend="local", strategy="per-stage", bank=None, settings={"cores": 2, "spool": sys.argv[1]},
        on_record=lambda record: "second" in getattr(record, "stages", ()) and print(type(record).__name__, flush=True))
"""


def test_a_run_that_was_interrupted_goes_on_and_gives_the_values_of_all_its_stages(queue, monkeypatch):
    """As when a notebook's kernel is interrupted, and restarted."""
    monkeypatch.chdir(queue.root)
    Path("long.py").write_text(LONG)
    with subprocess.Popen(
        [sys.executable, "long.py", str(queue.root / "spool")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert any(line == "StageStarted\n" for line in program.stdout)
        program.send_signal(signal.SIGINT)
        said = program.communicate(timeout=60)[1]
    name = re.search(r"asa resume (\S+)", said)[1]
    assert f"asa.resume({name!r})" in said
    with pytest.raises(RunError, match="has no value"):
        values.load(Path("asa-runs", name, "tasks"), "third")
    result = resume()
    assert [result.result(stage) for stage in ("first", "second", "third")] == [0, 3, 0]
    assert repr(result) == f"RunResult({name!r}, completed)"
    assert resume(name, runs=queue.root / "asa-runs").records == result.records
    started = [record.stages for record in result.records if isinstance(record, StageStarted)]
    assert started == [("first",), ("second",), ("third",)]


def test_a_failed_run_gives_its_error_again_and_goes_on_when_asked_to(queue):
    flow = Flow("fails")
    flow.stage("once", "test -e there || { touch there; exit 3; }", walltime="1min")
    with pytest.raises(RunError, match="exit code 3"):
        run(flow, queue)
    with pytest.raises(RunError, match="exit code 3"):
        resume("fails", runs=queue.root / "runs")
    assert resume("fails", runs=queue.root / "runs", retry=True).outcome == "completed"


def test_a_value_that_cannot_be_kept_fails_nothing_but_its_use(queue):
    flow = Flow("odd")
    flow.call(generator.bind())
    result = run(flow, queue)
    assert result.outcome == "completed"
    with pytest.raises(RunError, match=r"its value could not be kept: .*generator"):
        result.result("generator")


def test_a_command_is_no_source_of_a_value():
    flow = Flow("x")
    command = flow.stage("list", "ls", walltime="1min")
    with pytest.raises(InputError, match="is a command, and has no value"):
        flow.call(total.bind(command))


def test_arguments_that_cannot_be_sent_along_are_refused():
    with pytest.raises(InputError, match="a set has no order"):
        total.bind({1, 2})
    with pytest.raises(InputError, match="generator cannot be sent along"):
        total.bind(x for x in "ab")
    with pytest.raises(InputError, match=r"is given 3[0-9]+ kB, where 90 can be sent along"):
        total.bind(list(range(50_000)))


def test_arguments_may_be_what_json_does_not_have(tmp_path):
    number, array, day = np.int64(3), np.arange(6).reshape(2, 3), dt.date(2026, 1, 2)
    command = shlex.split(total.bind([number], [[array]], {"day": day}).command)
    [one], [[two]], other = values.resolved(json.loads(command[-1]), tmp_path)[0]
    assert type(one) is int
    assert one == 3
    assert (two == array).all()
    assert other == {"day": day}


def test_values_are_found_in_lists_and_tables(tmp_path):
    one = Flow("x").call(numbers.bind(2), name="a")
    given = [[[one, 1], {"k": one}], {"n": 3}]
    assert values.referred(given) == ["a"]
    values.keep(tmp_path, "a", [7])
    written = [[[values.as_json(one), 1], {"k": values.as_json(one)}], {"n": 3}]
    assert values.resolved(written, tmp_path) == [[[[7], 1], {"k": [7]}], {"n": 3}]


def test_an_exception_that_pickle_cannot_hold_is_told_by_its_last_line(tmp_path):
    class OwnError(Exception):
        pass

    error = OwnError("in words")
    error.data = (x for x in "ab")
    values.fail(tmp_path, "a", error)
    with pytest.raises(RunError, match="OwnError: in words") as caught:
        values.load(tmp_path, "a")
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    values.forget(tmp_path, "a")
    with pytest.raises(RunError, match="has no value"):
        values.load(tmp_path, "a")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_another_user_could_have_written_is_not_read(tmp_path):
    values.keep(tmp_path, "a", 1)
    [file] = tmp_path.glob(".value-*")
    os.chown(file, 65534, 65534)
    with pytest.raises(AsaError, match="nobody"):
        values.load(tmp_path, "a")


@pytest.mark.full
def test_a_function_that_was_typed_in_is_sent_along(queue):
    """As in a notebook: with the modules, values and functions that it uses there."""
    text = f"""
import math
from asa import Flow, stage
SCALE = 3

def helper(x):
    return SCALE * x

@stage(walltime="1min")
def area(radius):
    return helper(math.floor(math.pi * radius ** 2))

if __name__ == "__main__":
    flow = Flow("typed")
    one = flow.call(area.bind(1), name="one")
    two = flow.call(area.bind(one), name="two")
    result = flow.run(backend="local", strategy="per-stage", bank=None, runs={str(queue.root / "runs")!r},
        settings={{"cores": 2, "spool": {str(queue.root / "spool")!r}}})
    print(result.result(one), result.result(two))
"""
    done = subprocess.run(
        [sys.executable, "-"], input=text, capture_output=True, text=True, check=False, cwd=queue.root
    )
    assert done.stdout == "9 762\n", done.stderr


CLASSES = """
import dataclasses, sys
from asa import Flow, stage

@dataclasses.dataclass
class Fit:
    slope: float

class PoorFitError(Exception):
    pass

@stage(walltime="1min")
def fit():
    return Fit(2.0)

@stage(walltime="1min")
def judged(found):
    raise PoorFitError(f"only {found.slope}")

if __name__ == "__main__":
    flow = Flow("fits")
    one = flow.call(fit.bind())
    two = flow.call(judged.bind(one))
    where = {"cores": 2, "spool": sys.argv[1]}
    result = flow.run(backend="local", strategy="per-stage", bank=None, settings=where, check=False)
    print(result.result(one).slope, isinstance(result.result(one), Fit))
    try:
        result.result(two)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize(("given", "is_same"), [("-", True), ("fits.py", False)], ids=["typed", "program"])
def test_values_and_exceptions_may_be_of_classes_that_no_module_has(queue, given, is_same):
    """What was typed in comes back as of the class itself, but stages read a program's classes anew."""
    (queue.root / "fits.py").write_text(CLASSES)
    done = subprocess.run(
        [sys.executable, given, str(queue.root / "spool")],
        input=CLASSES, capture_output=True, text=True, check=False, cwd=queue.root, timeout=60,
    )  # fmt: skip
    assert done.stdout == f"2.0 {is_same}\nPoorFitError only 2.0\n", done.stderr


def test_a_typed_function_that_is_too_large_is_refused_in_words(queue):
    text = """
import os
from asa import stage
DATA = os.urandom(200_000)

@stage()
def f():
    return DATA

f.bind()
"""
    done = subprocess.run(
        [sys.executable, "-"], input=text, capture_output=True, text=True, check=False, cwd=queue.root
    )
    assert "kB, where 90 can be sent along" in done.stderr
