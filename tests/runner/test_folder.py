"""A run's folder: other clients' view of a run, their requests, and the one client that drives it."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable

from asa.backend import CLUSTER_FILE, Condition
from asa.errors import InputError, JournalError, LeaseError
from asa.runner import CancelRequest, RunFolder, RunPlan, drive, find_run, list_runs
from asa.runner import journal as journals
from asa.runner.entries import Begun
from asa.runner.journal import Journal, read_journal
from asa.runner.state import RunState
from asa.strategies import Keep, PlannedJob
from asa.workflow import Stage

STAGES = (Stage("a", cores=4, walltime_s=100), Stage("b", cores=1, walltime_s=50, after=("a",)))


def machine():
    columns = np.array([(0, 100, 100, 8)], dtype=np.int64).T
    return SimulatedBackend(Engine(8, JobTable(*columns), now=0), Machine("m", 1, 8))


def plan(run_id="0123456789ab", name="first", **changes):
    given = {
        "workflow": "flow", "stages": STAGES, "strategy": "chained", "backend": "simulated",
        "capabilities": machine().capabilities, "created_s": 1.7e9, **changes,
    }  # fmt: skip
    return RunPlan(run_id, name, **given)


def test_a_run_is_driven_from_its_folder(tmp_path):
    folder = RunFolder.create(tmp_path, plan(bank=str(tmp_path / "bank")))
    world = machine()
    result = drive(folder, lambda _: world)
    assert result.outcome == "completed"
    metrics = json.loads((folder.path / "metrics.json").read_text())
    assert metrics["makespan_s"] == 250
    state, records = RunFolder(folder.path).state()
    assert state.outcome == "completed"
    assert records == list(result.records)
    assert drive(folder, lambda _: world).records == result.records, "a run that has ended is not run again"


def test_whoever_looks_again_reads_on(tmp_path, monkeypatch):
    """Each look has the state that a first look would have, from the lines that were added since the one before."""
    other = RunFolder.create(tmp_path / "other", plan())
    assert drive(other, lambda _: machine()).outcome == "completed"
    (other.path / "metrics.json").unlink()
    lines = (other.path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    folder, read = RunFolder.create(tmp_path, plan()), []
    block_of = journals._read_block

    def counted(block, entries):
        at = block_of(block, entries)
        read.append(block.count(b"\n", 0, at))
        return at

    monkeypatch.setattr(journals, "_read_block", counted)

    def look():
        first, second = (one.state() for one in (folder, RunFolder(folder.path)))
        assert first[1] == second[1]
        assert dict(first[0].stages) == dict(second[0].stages)
        assert {i: job.status for i, job in first[0].jobs.items()} == {i: j.status for i, j in second[0].jobs.items()}
        first[1].clear()  # it is the caller's

    journal = folder.path / "journal.jsonl"
    look()
    for number, line in enumerate(lines):
        with journal.open("ab") as file:
            file.write(line[: len(line) // 2])
        look()  # it ignores what is not whole yet
        with journal.open("ab") as file:
            file.write(line[len(line) // 2 :])
        look()
        assert sum(read) == (number + 1) + sum(range(1, number + 2)) + sum(range(number + 1))
    assert folder.state()[0].outcome == "completed"


@pytest.mark.parametrize("how", ["replaced", "shortened", "removed", "rewritten"])
def test_a_journal_that_is_not_the_one_it_was_is_read_from_its_beginning(tmp_path, how):
    folder = RunFolder.create(tmp_path, plan())
    drive(folder, lambda _: machine())
    (folder.path / "metrics.json").unlink()
    path = folder.path / "journal.jsonl"
    assert folder.state()[0].outcome == "completed"
    lines = path.read_bytes().splitlines(keepends=True)
    changed = lines[:2]
    if how == "replaced":
        path.rename(tmp_path / "former")
    elif how == "removed":
        path.unlink()
        changed = []
    elif how == "rewritten":
        changed = [lines[0], *lines]
    path.unlink(missing_ok=True) if how == "removed" else path.write_bytes(b"".join(changed))
    state, records = folder.state()
    again, same = RunFolder(folder.path).state()
    assert state.outcome == again.outcome
    assert records == same


def test_a_journal_that_was_damaged_meanwhile_names_its_line(tmp_path):
    folder = RunFolder.create(tmp_path, plan())
    with folder.driven() as journal:
        journal.append(Begun(0.0))
        assert len(folder.state()[1]) == 1
        journal.append(Begun(1.0))
        path = folder.path / "journal.jsonl"
        path.write_bytes(path.read_bytes() + b"nonsense\n" * 2)
        for _ in range(2):
            with pytest.raises(JournalError, match=r"is damaged[^:]*") as refused:
                folder.state()
            assert refused.value.where == f"{path}:3"


def test_a_revised_plan_is_told_anew(tmp_path):
    folder = RunFolder.create(tmp_path, plan())
    assert folder.state()[0].name == "first"
    folder.revise(name="second")
    assert folder.state()[0].name == "second"


def test_a_run_forgets_its_cluster_and_that_of_its_pool(tmp_path):
    folder = RunFolder.create(tmp_path, plan())
    folder.forget_cluster()
    notes = [folder.path / CLUSTER_FILE, folder.path / "pool" / CLUSTER_FILE, folder.path / "pool" / "a" / CLUSTER_FILE]
    for note in notes:
        note.parent.mkdir(exist_ok=True)
        note.touch()
    folder.forget_cluster()
    assert not any(note.exists() for note in notes)


def test_what_went_wrong_can_be_tried_again(tmp_path):
    folder = RunFolder.create(tmp_path, plan())
    world = machine()
    folder.request(CancelRequest("first"))
    assert drive(folder, lambda _: world).outcome == "cancelled"
    assert not world.find(["0123456789ab-1-0"])["0123456789ab-1-0"], "requests are heard before anything is submitted"
    assert folder.state()[0].reason == "you asked for it"
    again = drive(folder, lambda _: world, retry=True)
    assert again.outcome == "completed"
    assert drive(folder, lambda _: world, retry=True).outcome == "completed"
    assert folder.state()[0].outcome == "completed"


def test_the_plan_outlives_the_process(tmp_path):
    whole = plan(settings={"url": "unix:///s", "poll": "2s"}, walltime_s=200.0, seed=3)
    folder = RunFolder.create(tmp_path, whole)
    assert RunFolder(folder.path).plan == whole
    assert RunFolder(folder.path).plan.make_workflow().walltime_s == 200


def test_a_run_of_an_earlier_version_keeps_what_its_site_allows(tmp_path):
    whole = plan(capabilities=replace(machine().capabilities, max_queued=5))
    path = RunFolder.create(tmp_path, whole).path
    written = json.loads((path / "run.json").read_text())
    written["capabilities"]["most_queued"] = written["capabilities"].pop("max_queued")
    (path / "run.json").write_text(json.dumps(written))
    assert RunFolder(path).plan == whole


def test_only_one_client_drives_a_run(tmp_path):
    folder = RunFolder.create(tmp_path, plan())
    with folder.driven():
        assert folder.driver().pid == os.getpid()
        with pytest.raises(LeaseError, match=f"is driven by process {os.getpid()}"), RunFolder(folder.path).driven():
            pass
    assert folder.driver() is None
    with folder.driven():
        pass


HOLD = """
    import sys, time
    from asa.runner import RunFolder
    with RunFolder(sys.argv[1]).driven() as journal:
        print("driving", flush=True)
        time.sleep(60)
"""


def test_a_client_that_was_killed_is_followed_at_once(tmp_path):
    folder = RunFolder.create(tmp_path, plan())
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(folder.path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert client.stdout.readline() == "driving\n"
        with pytest.raises(LeaseError), folder.driven():
            pass
        client.send_signal(signal.SIGKILL)
        while folder.driver() is not None:  # a zombie is no driver, though nobody has asked how it ended
            time.sleep(0.01)
        with folder.driven():
            pass
    finally:
        client.kill()
        client.communicate()


def test_a_client_that_was_replaced_writes_no_more(tmp_path):
    """A client pauses for ten minutes by the file system's clock, and then continues."""
    folder = RunFolder.create(tmp_path, plan())
    with folder.driven() as journal:
        long_ago = time.time() - 700
        os.utime(folder.path / "lease", (long_ago, long_ago))
        lease = (folder.path / "lease").read_text().replace(f'"pid": {os.getpid()}', '"pid": 1')
        (folder.path / "lease").write_text(lease)
        os.utime(folder.path / "lease", (long_ago, long_ago))
        with RunFolder(folder.path).driven(), pytest.raises(LeaseError, match="taken over"):
            journal.append(Begun(1.0))
    assert folder.state()[1] == []


def test_a_sleeping_client_wakes_when_somebody_wants_something(tmp_path):
    folder = RunFolder.create(tmp_path, plan())
    with folder.driven():
        threading.Timer(0.2, folder.request, [CancelRequest("first", "a")]).start()
        began = time.monotonic()
        assert folder.sleep(30.0)
        assert time.monotonic() - began < 5
        assert folder.take_requests() == [CancelRequest("first", "a")]
        assert not folder.sleep(0.01)


def test_signs_of_life(tmp_path):
    folder = RunFolder.create(tmp_path, plan())
    assert folder.last_pulse() is None
    with folder.driven():
        state = RunState("first", folder.plan.make_workflow(), folder.plan.capabilities, "x")
        state.planned = (PlannedJob(("b",), 50.0, Keep.DEPENDENCY, "it is due then"),)
        folder.pulse(Condition(5.0, "nobody answers", 7), state, 8.0)
        folder.pulse(Condition(6.0))  # too soon to be worth a write
    pulse = folder.last_pulse()
    assert pulse.condition == Condition(5.0, "nobody answers", 7)
    assert (pulse.planned, pulse.next_s) == (state.planned, 8.0)
    (folder.path / "pulse.json").write_text("{")
    assert folder.last_pulse() is None


def test_runs_are_found_by_a_beginning_of_their_names(tmp_path):
    one = RunFolder.create(tmp_path, plan("aaaa" * 3, "montage", created_s=1.7e9))
    two = RunFolder.create(tmp_path, plan("bbbb" * 3, "blast", created_s=1.7e9 + 60))
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "run.json").write_text("{}")
    assert [run.path for run in list_runs(tmp_path)] == [one.path, two.path]
    assert find_run(tmp_path, "").path == two.path
    assert find_run(tmp_path, "mon").path == one.path
    assert find_run(tmp_path, one.path.name).path == one.path
    assert find_run(tmp_path / "none", str(one.path)).path == one.path
    for named, told in (("x", "there is no run 'x'"), ("", "there is no run")):
        with pytest.raises(InputError, match=told):
            find_run(tmp_path / ("none" if not named else ""), named)
    RunFolder.create(tmp_path, plan("cccc" * 3, "montage", created_s=1.7e9 + 90))
    with pytest.raises(InputError, match="several runs begin with 'mon'"):
        find_run(tmp_path, "mon")


def test_a_run_of_a_later_version_is_refused(tmp_path):
    folder = RunFolder.create(tmp_path, plan())
    file = folder.path / "run.json"
    file.write_text(file.read_text().replace('"schema": 2', '"schema": 3'))
    with pytest.raises(InputError, match="later version"):
        RunFolder(folder.path)


def test_a_run_of_an_earlier_version_is_of_this_one_once_it_is_driven(tmp_path):
    """An earlier version then says so; before, it would have called the journal damaged."""
    path = RunFolder.create(tmp_path, plan(version="0.2.0")).path
    file = path / "run.json"
    file.write_text(file.read_text().replace('"schema": 2', '"schema": 1'))
    text = file.read_text()
    folder = RunFolder(path)
    assert folder.plan.schema == 1
    folder.state()
    assert file.read_text() == text, "who only looks changes nothing"
    with folder.driven():
        assert RunFolder(path).plan == folder.plan == plan(version="0.2.0")


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be made: Not a directory\nNothing was submitted"):
        RunFolder.create(tmp_path / "file", plan())


def test_entries_that_come_together_are_there_together_or_not_at_all(tmp_path):
    """A truncated line is ignored."""
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append(Begun(1.0))
    journal.append(Begun(2.0), Begun(3.0))
    journal.close()
    assert journal.latest == Begun(3.0)
    assert read_journal(path)[0] == [Begun(1.0), Begun(2.0), Begun(3.0)]
    whole = path.read_bytes()
    assert whole.count(b"\n") == 2
    path.write_bytes(whole[:-12])
    assert read_journal(path)[0] == [Begun(1.0)]
