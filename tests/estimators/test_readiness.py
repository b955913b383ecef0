"""No command waits for a compiler: estimators learn in plain Python until compiled code is there."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from asa.core import compiled_files, plainly, plugins
from asa.estimators import choice, compile_all, readiness
from asa.estimators.bank import max_records
from asa.sites import open_facility
from asa.waits import QueuedJob, QueueEvent

KERNELS = "asa.estimators.contextual_kernel"
HEAP = "asa.backends.simulated.cores.heap"


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch):
    """Have this process load nothing compiled yet, as at the beginning of a command."""
    for name, value in {"wanted": None, "gives_way": False, "_is_settled": False, "_left": 300.0}.items():
        monkeypatch.setattr(plainly, name, value)
    monkeypatch.delitem(sys.modules, "asa.core.compiled", raising=False)
    monkeypatch.setattr(readiness, "is_loaded", lambda: False)


def bank_of(folder, size_bytes):
    folder.mkdir()
    (folder / "waits.jsonl").write_bytes(b" " * size_bytes)
    return folder


def kept(monkeypatch, *, is_kept):
    pytest.importorskip("numba")
    monkeypatch.setattr(readiness, "are_kept", lambda *_: is_kept)


@pytest.mark.parametrize(
    ("estimator", "size_bytes", "is_kept", "is_plain", "is_for_good", "is_short"),
    [
        ("asa", 10_000, False, True, True, False),
        ("asa", 10_000, True, True, False, False),
        ("asa", 1_000_000, True, True, False, False),
        ("asa", 1_000_000, False, True, True, True),
        ("asa-queue", 10_000, False, False, False, False),
        ("asa-queue", 10_000, True, True, False, False),
        ("asa-boost", 10_000, True, False, False, False),
    ],
)
def test_plain_python_learns_little_or_what_was_never_compiled(
    monkeypatch, tmp_path, estimator, size_bytes, is_kept, is_plain, is_for_good, is_short
):
    kept(monkeypatch, is_kept=is_kept)
    bank = bank_of(tmp_path / "bank", size_bytes)
    readiness.prefer(estimator)
    assert plainly.wanted is is_plain
    assert plainly.is_for_good() is is_for_good
    assert readiness.is_short(bank) is is_short
    assert max_records() == (3000 if is_for_good else 20_000)
    plainly.expect(1e6)
    assert plainly.wanted is is_for_good, "much is left to compiled code, if there is any"


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_simulated_site_is_plain_python_until_that_is_compiled_unless_an_estimator_was_named(monkeypatch, is_kept):
    kept(monkeypatch, is_kept=is_kept)
    open_facility("simulated", settings={"system": "hpc2n"})
    assert plainly.wanted is not is_kept
    monkeypatch.setattr(plainly, "wanted", None)
    monkeypatch.setattr(plainly, "_is_settled", False)
    readiness.prefer("asa-queue")
    open_facility("simulated", settings={"system": "hpc2n"})
    assert plainly.wanted is False


def test_what_is_loaded_stays_as_it_is(monkeypatch):
    for is_compiled in (True, False):
        monkeypatch.setitem(sys.modules, "asa.core.compiled", SimpleNamespace(COMPILED=is_compiled))
        for plain in (True, False):
            plainly.choose(plain=plain)
            assert plainly.wanted is not is_compiled


def test_a_bank_that_is_missing_is_not_short(monkeypatch, tmp_path):
    kept(monkeypatch, is_kept=False)
    readiness.prefer("asa")
    assert not any(map(readiness.is_short, (None, tmp_path / "none")))


def test_plain_python_gives_way_once_enough_was_counted(monkeypatch):
    kept(monkeypatch, is_kept=True)
    monkeypatch.setattr(plainly, "_left", 10.0)
    readiness.prefer("asa")
    for _ in range(10):
        plainly.expect(1.0)
        plainly.count(1.0)
        assert plainly.wanted
    plainly.count(0.1)
    assert plainly.wanted is False


def test_on_a_simulated_site_nothing_changes_later(monkeypatch):
    """Its machine holds arrays in the form that only plain, or compiled, code reads."""
    kept(monkeypatch, is_kept=True)
    readiness.prefer("asa")
    open_facility("simulated", settings={"system": "hpc2n"})
    readiness.prefer("asa")
    assert plainly.wanted is False
    monkeypatch.setattr(plainly, "wanted", None)
    monkeypatch.setattr(plainly, "_is_settled", False)
    kept(monkeypatch, is_kept=False)
    open_facility("simulated", settings={"system": "hpc2n"})
    kept(monkeypatch, is_kept=True)
    readiness.prefer("asa")
    plainly.expect(1e6)
    assert plainly.wanted


@pytest.mark.parametrize("estimator", ["asa", "asa-queue"])
def test_an_estimator_goes_on_to_the_bit_where_plain_python_gives_way(estimator):
    pytest.importorskip("numba")
    code = (
        "import hashlib, json, sys; from asa.core import compiled_files, plainly\n"
        "plain, left = sys.argv[2:]; plainly.choose(plain=plain == 'yes', for_now=left != 'all')\n"
        "plainly._left = float(left) if left != 'all' else 0.0\n"
        "from asa import WaitBank; from asa.waits import QueuedJob, exactly\n"
        "learner = WaitBank(sys.argv[1], machine_cores=64)['s']; said = hashlib.sha256(); waiting = []\n"
        "for hour in range(24):\n"
        "    jobs = [QueuedJob(3600.0 * hour, cores, 7200.0, f'u{hour % 3}', 's') for cores in (8, 32, 64)]\n"
        "    said.update(learner.predict_together(jobs).waits_s.tobytes())\n"
        "    waiting.append(learner.submitted(jobs[hour % 3], learner.predict(jobs[hour % 3])))\n"
        "    if hour % 4 == 3:\n"
        "        learner.observe(waiting.pop(0), exactly(900.0 * (1 + hour % 5)))\n"
        "said.update(json.dumps(learner.state()).encode())\n"
        "from asa.core import compiled; print(compiled.COMPILED, said.hexdigest())"
    )

    def said(*how):
        command = [sys.executable, "-c", code, estimator, *how]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    plain, compiled = said("yes", "all"), said("no", "all")
    assert (plain[0], compiled[0]) == ("False", "True")
    assert plain[1] == compiled[1]
    for left in (0.3, 7.0, 31.0):
        assert said("yes", str(left)) == compiled


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_queue_is_simulated_once_that_is_compiled(monkeypatch, is_kept):
    kept(monkeypatch, is_kept=is_kept)
    events = [QueueEvent("submitted", 1, 0.0, QueuedJob(0.0, 1, 60.0, "another"))]
    chosen = choice.choose(events, "own")
    assert chosen.name == ("asa-queue" if is_kept else "asa")
    assert (chosen.why == choice.NOT_COMPILED) is not is_kept


def test_it_is_compiled_once_in_a_process_of_its_own(monkeypatch):
    begun = []
    monkeypatch.setattr(readiness.subprocess, "Popen", lambda command, **_: begun.append(command))
    kept(monkeypatch, is_kept=False)
    assert os.environ["ASA_COMPILE"] == "no"
    assert not readiness.compile_later(), "it is forbidden in tests"
    monkeypatch.delenv("ASA_COMPILE")
    assert readiness.compile_later()
    kept(monkeypatch, is_kept=True)
    assert not readiness.compile_later()
    assert [command[-2:] for command in begun] == [["-m", "asa.estimators.compile_all"]]


def test_kernels_that_are_looked_for_are_those_that_are_called():
    """If one is renamed, everything would be compiled by each command, and never used."""
    simulation = plugins.places("asa.estimators")["queue"]
    for module, kernel, called in (
        (f"{simulation}_kernel", "foresee", simulation),
        (KERNELS, "learn", "asa.estimators.contextual"),
    ):
        assert callable(getattr(importlib.import_module(module), kernel))
        assert f"k.{kernel}(" in Path(importlib.import_module(called).__file__).read_text()


@pytest.mark.full
def test_a_kernel_is_kept_once_it_was_compiled_which_is_reported_once(tmp_path):
    pytest.importorskip("numba")
    code = (
        "from asa.core import compiled_files, plainly\n"
        "reports = []; plainly.on_compiling = lambda: reports.append(1)\n"
        f"import numpy; from {HEAP} import push, pop\n"
        f"is_kept = lambda: compiled_files.are_kept('{HEAP}', 'push')\n"
        "keys = numpy.zeros(4, dtype=numpy.int64)\n"
        "print(is_kept()); push(keys, 0, 2); pop(keys, 0, 0); print(is_kept(), len(reports))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    printed = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert printed == ["False\nTrue 1\n", "True\nTrue 0\n"]


def test_what_was_compiled_of_an_older_source_is_not_kept(monkeypatch, tmp_path):
    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (folder := tmp_path / "asa" / "estimators_0").mkdir(parents=True, mode=0o700)
    (tmp_path / "asa").chmod(0o700)
    file = folder / "contextual_kernel.learn-701.py311.nbi"
    file.touch()
    assert compiled_files.are_kept(KERNELS, "learn")
    assert not compiled_files.are_kept(KERNELS, "lear")
    os.utime(file, (0, 0))
    assert not compiled_files.are_kept(KERNELS, "learn")


def test_of_several_processes_one_compiles(monkeypatch, tmp_path):
    """A user who begins ten runs at once does not compile ten times."""
    pytest.importorskip("numba")
    tmp_path.chmod(0o700)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    asks = "from asa.estimators import compile_all; print(compile_all.is_to_compile(), flush=True); input()"
    waits = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    first = subprocess.Popen([sys.executable, "-c", asks], **waits)
    with first:
        assert first.stdout.readline() == "True\n"
        assert not compile_all.is_to_compile()
        first.communicate("\n")
    assert compile_all.is_to_compile()


def test_what_cannot_be_kept_is_not_compiled(monkeypatch):
    monkeypatch.setattr(compile_all, "folder_for", lambda *_: None)
    assert not compile_all.is_to_compile()


@pytest.mark.parametrize("estimator", ["asa", "asa-queue"])
def test_one_process_compiles_for_others_what_is_not_kept_and_can_be(monkeypatch, tmp_path, estimator):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    kept(monkeypatch, is_kept=False)
    assert readiness.is_to_keep(estimator)
    assert not readiness.is_to_keep("mean")
    kept(monkeypatch, is_kept=True)
    assert not readiness.is_to_keep(estimator)
    kept(monkeypatch, is_kept=False)
    monkeypatch.setattr(readiness, "folder_for", lambda *_: None)
    assert not readiness.is_to_keep(estimator)
