"""A sample of generated input, and what was once a fault, is borne by all that asa reads; see `tools/fuzz.py`."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from fuzz import plants, worker
from fuzz.readers import KEPT, READERS, Reader, content

_INPUTS = 25  # of each reader
_TRIALS = 6

FAULTS = [
    (folder.name.replace("-", " "), file)
    for folder in sorted(KEPT.iterdir())
    for file in sorted(folder.iterdir())
    if folder.name != "samples"
]


def told(findings):
    return "\n".join(f"{one.reader}: {one.why} {one.where}\n{one.data[:300]!r}\n{one.detail}" for one in findings)


def test_what_was_once_a_fault_is_borne():
    assert {name for name, _ in FAULTS} <= READERS.keys()
    findings = worker.tried([(name, content(file)) for name, file in FAULTS])
    assert not findings, told(findings)


@pytest.mark.parametrize("name", READERS)
def test_a_sample_of_generated_input_is_borne(name):
    watched = worker.Watched(name, seed=1, inputs=_INPUTS, until_s=time.monotonic() + 60.0, follows=False)
    while not watched.poll():
        time.sleep(0.01)
    inputs, *_ = watched.counts
    findings = watched.findings()
    assert not findings, told(findings)
    assert inputs


# ---------------------------------------------------------------------- what finds faults finds them


def _crashes(_path, data):
    if b"x" in data:
        raise KeyError(data)


def _starts(_path, data):
    if b"x" in data:
        subprocess.run(["true"], check=False)


def _writes(path, data):
    if b"x" in data:
        path.parents[2].joinpath("elsewhere").write_text("x")


def _destroys(path, data):
    if b"x" in data:
        path.with_name("beside").unlink()


def _spins(_path, data):
    while b"x" in data:
        pass


def _hoards(_path, data):
    if b"x" in data:
        bytearray(b"x") * (worker.MAX_BYTES + (100 << 20))


def _waits(_path, data):
    if b"x" in data:
        import select

        select.select([], [], [])


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (_crashes, "KeyError"), (_starts, "started subprocess.Popen true"), (_writes, "open of "), (_destroys, ""),
        (_spins, "took more than 0.2 s"), (_hoards, "took more than 64 MiB of memory"),
    ],
)  # fmt: skip
def test_a_fault_is_found(monkeypatch, read, why):
    wrong = "changed what lay beside it" if read is _destroys else why
    monkeypatch.setattr(worker, "MAX_CPU_S", 0.2 if read is _spins else 60.0)
    monkeypatch.setattr(worker, "MAX_BYTES", 64 << 20)  # what else is tested here needs the computer's memory, too
    provide = lambda folder: (folder / "beside").write_text("")  # noqa: E731
    monkeypatch.setitem(READERS, "faulty", Reader("faulty", list, read, provide=provide))
    [finding] = worker.tried([("faulty", b"a"), ("faulty", b"axa"), ("faulty", b"b")])
    assert finding.why.startswith(wrong)
    assert finding.data == b"axa"


def test_what_is_found_is_kept_with_little_input(monkeypatch):
    monkeypatch.setitem(READERS, "faulty", Reader("faulty", lambda: [b"a" * 300 + b"x" + b"b" * 300], _crashes))
    watched = worker.Watched("faulty", seed=1, inputs=1, until_s=time.monotonic() + 60.0)
    while not watched.poll():
        time.sleep(0.01)
    [finding] = watched.findings()
    assert (finding.why, finding.data) == ("KeyError", b"x")


def test_what_waits_for_ever_is_ended(monkeypatch):
    monkeypatch.setattr(worker, "_IDLE_S", 0.5)
    monkeypatch.setitem(
        READERS, "faulty", Reader("faulty", lambda: [b"a"], lambda path, data: _waits(path, b"x" if data else b""))
    )
    monkeypatch.setattr(worker, "PLACES", ())
    monkeypatch.setattr(worker, "loop", lambda *_, board, out, **__: _waits(None, b"x"))
    watched = worker.Watched("faulty", seed=1, inputs=1, until_s=time.monotonic() + 60.0)
    while not watched.poll():
        time.sleep(0.01)
    [finding] = watched.findings()
    assert finding.why == "waits for ever"


# ---------------------------------------------------------------------- another user as a fuzzer


def test_every_command_meets_what_another_lays_or_has_a_reason():
    assert plants.untried() == set()


@pytest.mark.full
@pytest.mark.parametrize("number", range(_TRIALS))
def test_what_another_lays_in_the_way_is_borne(accounts, number):
    trial = plants.one_trial(accounts, 1, number)
    assert not trial.trouble, trial


@pytest.mark.parametrize("harm", ["acted", "changed", "leaked"])
def test_harm_is_seen(accounts, harm, monkeypatch):
    import random

    world = plants.World(accounts, random.Random(1))
    done = subprocess.CompletedProcess([], 0, "", "")
    assert list(world.wrong(done)) == []
    if harm == "acted":
        world.acted.write_text("1\n")
    elif harm == "changed":
        world.visible.write_text("x")
    else:
        accounts.victim.write(world.project / "page.html", f"<p>{world.secret}", 0o644)
    assert len(list(world.wrong(done))) == 1


def test_the_command_says_what_it_found(tmp_path):
    tool = Path(__file__).parents[1] / "tools" / "fuzz.py"
    words = [sys.executable, tool, "--readers", "amounts,token", "--inputs", "20", "--keep", tmp_path]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 0: 40 inputs, 0 findings" in done.stdout
