"""The store of wait records that many processes share."""

import ast
import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.cli.learn import _records
from asa.core import locks
from asa.core import store as files
from asa.errors import InputError, StateError
from asa.estimators import ordering, stored
from asa.estimators import store as module
from asa.estimators.store import WaitStore, default_folder
from asa.estimators.stored import WaitRecord
from asa.history import JobHistory
from asa.waits import QueuedJob, WaitObservation, at_least, exactly


def record(number=0, *, submit_s=None, wait_s=10.0, **more):
    """Return one of many records that all differ."""
    job = QueuedJob(float(number if submit_s is None else submit_s), 1 + number % 7, 60.0, f"user{number % 3}", "hpc2n")
    return WaitRecord(job, exactly(wait_s), **more)


def submits(records):
    return [kept.job.submit_s for kept in records]


def plain(kept):
    """Return a record without the fields that a store adds."""
    return replace(kept, id="", job=replace(kept.job, user=""))


def segments(folder, kind=""):
    return sorted(
        path for path in Path(folder).iterdir() if path.name.startswith(f"{kind}") and path.suffix == ".jsonl"
    )


def put(path, content):
    """Write a file anew: some file systems wait for the disk when one is overwritten."""
    path.unlink()
    path.write_bytes(content)


def script(code, *arguments):
    """Start a Python process that has the module at hand."""
    head = (
        "import os, sys, time, random\n"
        "from pathlib import Path\n"
        "from asa.core import locks\n"
        "from asa.estimators import store as module\n"
        "from asa.estimators.store import WaitStore\n"
        "from asa.estimators.stored import WaitRecord\n"
        "from asa.waits import QueuedJob, exactly\n"
        "def record(number):\n"
        "    return WaitRecord(QueuedJob(float(number), 1, 60.0), exactly(1.0))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


# ---------------------------------------------------------------------------------------------- what is kept

texts = st.text(max_size=12) | st.sampled_from(["[", '["', "]", '\\"', "!", "\n", "\0", "\ud800", "~1f2e3d4c"])
waits = st.floats(0, 1e9)
records = st.builds(
    WaitRecord,
    st.builds(QueuedJob, st.floats(-1e9, 1e10), st.integers(1, 10**7), st.floats(1e-3, 1e9), texts, texts, texts),
    st.builds(WaitObservation, waits, st.sampled_from(["exact", "at_most", "at_least"])),
    st.none() | st.lists(waits, min_size=9, max_size=9).map(lambda values: tuple(sorted(values))),
    texts,
    st.just(-1.0) | waits,
    texts,
)


@given(st.lists(records, max_size=6))
def test_what_is_read_is_what_was_written(tmp_path_factory, given_records):
    """All digits are the same; users are hashed, and stay distinct."""
    folder = tmp_path_factory.mktemp("bank")
    with WaitStore(folder, durable=False) as bank:
        ids = [bank.append(one) for one in given_records[::2]]
        assert bank.extend(given_records[1::2]) == len(given_records[1::2])
    found = WaitStore(folder).read()
    expected = sorted(map(plain, given_records), key=repr)
    assert sorted(map(plain, found), key=repr) == expected
    assert set(ids) <= {kept.id for kept in found}
    assert len({kept.id for kept in found}) == len(found)
    names = {kept.job.user for kept in found}
    assert len(names) == len({one.job.user for one in given_records})
    assert all(name == "" or re.fullmatch("~[0-9a-f]{8}", name) for name in names)
    assert [kept.known_s for kept in found] == sorted(kept.known_s for kept in found)


def unnamed(records):
    """Return records without their users, whose names differ in an export."""
    return [replace(one, job=replace(one.job, user="")) for one in records]


def test_a_list_of_users_tells_nothing_of_an_exported_bank(tmp_path):
    """Neither hashes of users nor ids of jobs can be guessed from a list; each export gives a user the same name."""
    names = [f"user{number}" for number in range(50)]
    learned = [
        WaitRecord(QueuedJob(float(n), 1, 60.0, name), exactly(1.0), id=f"job-{n:024x}") for n, name in enumerate(names)
    ]
    bank = WaitStore(tmp_path / "a")
    bank.extend(learned)
    bank.append(WaitRecord(QueuedJob(99.0, 1, 60.0, "user1"), exactly(1.0), id="run-abcd1234-1"))
    bank.export(tmp_path / "one")
    bank.export(tmp_path / "two")
    text = (tmp_path / "one").read_text()
    assert text == (tmp_path / "two").read_text()
    assert not any(stored._hash_of(name) in text or name in text for name in names)
    assert not any(one.id in text for one in learned)
    assert (tmp_path / "a" / ".export-secret").stat().st_mode & 0o777 == 0o600
    other = WaitStore(tmp_path / "b")
    other.extend(learned)
    other.export(tmp_path / "other")
    given = [set(re.findall("~[0-9a-f]+", path.read_text())) for path in (tmp_path / "one", tmp_path / "other")]
    assert len(given[0]) == len(given[1]) == 50
    assert not given[0] & given[1]
    third = WaitStore(tmp_path / "c")
    assert (third.import_(tmp_path / "one"), third.import_(tmp_path / "two")) == (51, 0)
    assert {one.id for one in third.read()} >= {"run-abcd1234-1"}
    third.export(tmp_path / "again")
    assert (tmp_path / "again").read_text() == text, "names that were given once stay"


def test_a_bank_knows_its_own_users_in_what_it_exported(tmp_path):
    bank = WaitStore(tmp_path / "bank")
    bank.extend([WaitRecord(QueuedJob(float(n), 1, 60.0, "ada"), exactly(1.0), id=f"job-{n:024x}") for n in range(3)])
    bank.export(tmp_path / "file")
    assert bank.import_(tmp_path / "file") == 0
    assert bank.forget(lambda one: one.job.submit_s == 1.0) == 1
    assert bank.import_(tmp_path / "file") == 1
    assert {one.job.user for one in bank.read()} == {stored.user_in_store("ada")}


def test_no_user_is_named_in_any_file(tmp_path):
    """Neither in appended, merged nor exported records; and a hash is not hashed again."""
    job = QueuedJob(1.0, 1, 60.0, "ada.lovelace")
    with WaitStore(tmp_path / "a") as bank:
        bank.append(WaitRecord(job, exactly(1.0)))
        bank.extend([WaitRecord(job, exactly(2.0))])
        bank.export(tmp_path / "a" / "file")
        other = WaitStore(tmp_path / "b")
        other.import_(tmp_path / "a" / "file")
        bank.compact()
        assert not any(b"lovelace" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert unnamed(other.read()) == unnamed(bank.read())
        assert len({kept.job.user for kept in bank.read()}) == len({kept.job.user for kept in other.read()}) == 1


def test_latest_are_those_that_became_known_last(tmp_path):
    """Not those that were submitted last."""
    bank = WaitStore(tmp_path)
    bank.extend([record(1, wait_s=100.0), record(2, wait_s=1.0), record(3, wait_s=50.0)])
    assert submits(bank.read(latest=2)) == [3.0, 1.0]
    assert bank.read(latest=0) == []
    assert len(bank.read(latest=9)) == 3
    with pytest.raises(InputError, match="-1 records"):
        bank.read(latest=-1)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20),
    st.integers(0, 2**32),
)
def test_files_and_their_order_do_not_matter(tmp_path_factory, times, seed):
    """Any segmentation, interleaving and merging reads as the same list: by time, then by id."""
    chance = random.Random(seed)
    todo = [
        replace(record(i, submit_s=submit_s, wait_s=float(wait_s)), id=f"r{i:03}")
        for i, (submit_s, wait_s) in enumerate(times)
    ]
    expected = sorted(todo, key=lambda one: (one.job.submit_s + one.observation.wait_s, one.id))
    folder = tmp_path_factory.mktemp("bank")
    banks = [WaitStore(folder, durable=False) for _ in range(3)]
    chance.shuffle(todo)
    while todo:
        bank = chance.choice(banks)
        action = chance.randrange(5)
        if action == 0:
            cut = chance.randrange(len(todo)) + 1
            bank.extend(todo[:cut])
            del todo[:cut]
        elif action == 1:
            bank.compact()
        elif action == 2:
            bank.append(todo[0])  # twice, as by one who did not hear that it was done
        else:
            bank.append(todo.pop())
    found = WaitStore(folder).read()
    for bank in banks:
        bank.close()
    assert [kept.id for kept in found] == [one.id for one in expected]
    assert [plain(kept) for kept in found] == [plain(one) for one in expected]


BAD_RECORDS = [
    replace(record(), job=QueuedJob(0.0, 1, 60.0, user=5)),
    replace(record(), observation=WaitObservation(1.0, "perhaps")),
    replace(record(), forecast=(1.0,) * 8),
    replace(record(), forecast=(float("nan"),) * 9),
    replace(record(), run_s=float("inf")),
    replace(record(), id="a b"),
    replace(record(), id="x" * 65),
]


@pytest.mark.parametrize("bad", BAD_RECORDS, ids=range(len(BAD_RECORDS)))
def test_what_no_job_is_like_is_refused_whole(tmp_path, bad):
    """By `append`, and by `extend` with all that came with it."""
    bank = WaitStore(tmp_path)
    with pytest.raises(InputError):
        bank.append(bad)
    with pytest.raises(InputError):
        bank.extend([record(1), bad])
    assert bank.read() == []


def test_an_id_makes_the_same_record_of_two(tmp_path):
    """As when a log is learned twice."""
    bank = WaitStore(tmp_path)
    batch = [record(i, id=f"log-{i}", source="log") for i in range(5)]
    assert bank.extend(batch[:3]) == 3
    assert bank.extend([*batch, batch[4]]) == 2
    assert submits(bank.read()) == [0, 1, 2, 3, 4]


def test_nothing_is_made_before_something_is_written(tmp_path):
    """Reading makes no folder; without `create` there must be one."""
    folder = tmp_path / "deep" / "bank"
    bank = WaitStore(folder)
    assert (bank.read(), bank.news(), bank.compact(), bank.forget(lambda _: True)) == ([], [], 0, 0)
    assert bank.extend([]) == 0
    assert not folder.exists()
    bank.append(record())
    assert len(bank.read()) == 1
    with pytest.raises(StateError, match="no bank"):
        WaitStore(tmp_path / "none", create=False)
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="file"):
        WaitStore(tmp_path / "file")


def test_the_default_folder_follows_the_environment(monkeypatch):
    """ASA_BANK, then the standard's, then home."""
    monkeypatch.setenv("ASA_BANK", "/some/bank")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    monkeypatch.setenv("HOME", "/home/ada")
    assert default_folder() == Path("/some/bank")
    monkeypatch.setenv("ASA_BANK", "")
    assert default_folder() == Path("/data/asa/bank")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_folder() == Path("/home/ada/.local/share/asa/bank")


# ---------------------------------------------------------------------------------------------- many processes


def test_many_processes_append_and_nothing_is_lost(tmp_path):
    """While others merge, and one process reads the news, in which each record is once."""
    writers = [
        script(
            """
            with WaitStore(sys.argv[1], durable=False) as bank:
                for number in range(700):
                    bank.append(record(int(sys.argv[2]) * 1000 + number))
                    if number % 150 == 149:
                        bank.close()
                        bank.compact()
            """,
            tmp_path,
            writer,
        )
        for writer in range(4)
    ]
    reader = WaitStore(tmp_path)
    told = []
    while any(writer.poll() is None for writer in writers):
        told += submits(reader.news())
        time.sleep(0.01)
    for writer in writers:
        outcome(writer)
    told += submits(reader.news())
    expected = [float(writer * 1000 + number) for writer in range(4) for number in range(700)]
    assert sorted(told) == expected
    assert submits(WaitStore(tmp_path).read()) == expected
    reader.compact()
    assert submits(WaitStore(tmp_path).read()) == expected
    assert len(segments(tmp_path)) == 1
    assert reader.news() == []


def test_a_killed_writer_loses_no_record_whose_append_returned(tmp_path):
    """SIGKILL at any moment; at most a torn line is left out."""
    code = """
        with WaitStore(sys.argv[1], durable=False) as bank:
            for number in range(10**6):
                name = bank.append(record(number))
                os.write(1, f"{name}\\n".encode())
        """
    chance = random.Random(4)
    writers = [script(code, tmp_path) for _ in range(6)]
    told = []
    for writer in writers:
        told.append(writer.stdout.readline().strip())
        time.sleep(chance.uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
    for writer in writers:
        told += writer.stdout.read().splitlines()
        writer.communicate()
    told = [name for name in told if len(name) == 24]
    reader = WaitStore(tmp_path)
    found = {kept.id for kept in reader.read()}
    assert set(told) <= found
    assert len(found) <= len(told) + len(writers)
    assert sum(reader.oddities.values()) <= len(writers)
    assert reader.compact() == len(writers)
    assert {kept.id for kept in WaitStore(tmp_path).read()} == found
    assert len(list(tmp_path.iterdir())) == 1


def test_after_a_fork_each_process_has_a_segment_of_its_own(tmp_path):
    """Each also has its own series of ids, and finds the other's records."""
    code = """
        bank = WaitStore(sys.argv[1])
        bank.append(record(0))
        child = os.fork()
        for number in range(50):
            bank.append(record(number + (1000 if child else 2000)))
        if child:
            assert os.waitpid(child, 0)[1] == 0
            assert [kept.job.submit_s for kept in bank.news()] == [*(2000.0 + number for number in range(50)), 3000.0]
        else:
            bank.append(record(3000))
            seen = [kept.job.submit_s for kept in bank.news()]
            assert all(1000 <= submit_s < 1050 for submit_s in seen), seen
            os._exit(0)
        """
    outcome(script(code, tmp_path))
    found = submits(WaitStore(tmp_path).read())
    assert found == [0.0, *(1000.0 + i for i in range(50)), *(2000.0 + i for i in range(50)), 3000.0]
    assert len(segments(tmp_path, "live")) == 2


# ---------------------------------------------------------------------------------------------- damage


@pytest.fixture
def small(tmp_path):
    """A segment of three records, and where each of its lines ends."""
    with WaitStore(tmp_path / "bank", durable=False) as bank:
        for number in range(3):
            bank.append(record(number))
    (path,) = segments(tmp_path / "bank")
    content = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    return path, content, ends


def test_a_segment_torn_anywhere_keeps_its_whole_lines(small):
    """And the next process can append."""
    path, content, ends = small
    for cut in range(len(content)):
        put(path, content[:cut])
        whole = sum(end <= cut for end in ends[1:])
        bank = WaitStore(path.parent, durable=False)
        assert submits(bank.read()) == [0, 1, 2][:whole]
        assert sum(bank.oddities.values()) == (cut not in {0, *ends})
        bank.append(record(7))
        bank.close()
        assert submits(WaitStore(path.parent).read()) == [*range(whole), 7]
        (mine,) = set(segments(path.parent)) - {path}
        mine.unlink()


def test_a_damaged_byte_costs_the_record_that_it_is_in_and_no_other(small):
    """Whichever byte and value it is; a record that was changed is never read."""
    path, content, ends = small
    originals = WaitStore(path.parent).read()
    for place in range(len(content)):
        for byte in (ord("\n"), (content[place] ^ 1, 0, 255)[place % 3]):
            damaged = bytearray(content)
            damaged[place] = byte
            put(path, damaged)
            bank = WaitStore(path.parent)
            found = bank.read()
            if damaged == content:
                continue
            hit = sum(end <= place for end in ends) - 1  # the record that the byte belongs to, -1 for the header
            survivors = [one for number, one in enumerate(originals) if number != hit]
            assert [one for one in found if one in originals] == found
            assert [one for one in survivors if one not in found] == [], (place, byte)


@pytest.mark.parametrize(
    "junk",
    [
        b"\n\n\n",
        b"\0" * 5000 + b"\n",
        b"[" * 100_000 + b"\n",
        bytes(range(256)) + b"\n",
        b"[]\n{}\nnull\n9\n",
        b"9" * 9999,
    ],
)
def test_junk_amid_a_segment_is_passed_over(small, junk):
    """Such junk is null bytes, endless brackets, and bytes of other files."""
    path, content, ends = small
    path.write_bytes(content[: ends[1]] + junk + content[ends[1] :])
    bank = WaitStore(path.parent)
    assert submits(bank.read()) == [0, 1, 2]
    assert bool(bank.oddities) == bool(junk.strip(b"\n"))


def test_what_arrives_out_of_order_is_told_when_it_has_arrived(small):
    """As bytes of another host may, on a network file system."""
    path, content, ends = small
    bank = WaitStore(path.parent)
    path.write_bytes(content[: ends[0]] + b"\0" * (ends[1] - ends[0]) + content[ends[1] : ends[2]])
    assert submits(bank.news()) == [1]
    path.write_bytes(content)
    assert submits(bank.news()) == [0, 2]
    assert bank.news() == []


def test_a_later_version_is_refused_before_anything_is_touched(tmp_path):
    """The message advises to upgrade."""
    bank = WaitStore(tmp_path)
    bank.extend([record()])
    later = tmp_path / f"kept-host-1-{'0' * 16}.jsonl"
    later.write_text('{"format":"asa-waits","version":2,"whatever":[]}\nwhatever\n')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for act in (bank.read, bank.news, bank.compact, lambda: bank.forget(lambda _: True)):
        with pytest.raises(StateError, match=r"version 2, this asa reads 1\nUpgrade") as caught:
            act()
        assert str(later) in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    """Whatever they are."""
    bank = WaitStore(tmp_path)
    bank.extend([record()])
    for name in ("notes.txt", "live-.jsonl", "all-x-1-zz.jsonl"):
        (tmp_path / name).write_text("mine")
    bank.extend([record(1)])
    bank.compact()
    assert len(bank.read()) == 2
    assert bank.oddities == {}
    assert (tmp_path / "notes.txt").read_text() == (tmp_path / "live-.jsonl").read_text() == "mine"


# ---------------------------------------------------------------------------------------------- full disks


def test_a_write_cut_short_anywhere_fails_and_harms_nothing(tmp_path, monkeypatch):
    """That record is not read, even if only its line end is missing; those before and after it are."""
    bank = WaitStore(tmp_path, durable=False)
    bank.append(record(0))
    reader = WaitStore(tmp_path)
    length = segments(tmp_path)[0].stat().st_size
    bank.append(record(1))
    length = segments(tmp_path)[0].stat().st_size - length
    for missing in range(1, length + 1):
        with monkeypatch.context() as patch:
            cut_writes(patch, tmp_path, missing)
            with pytest.raises(StateError, match=r"No space left on device\nFree disk space"):
                bank.append(record(9))
        bank.append(record(1))
    assert submits(reader.news()) == [0, *[1] * (length + 1)]
    assert submits(WaitStore(tmp_path).read()) == [0, *[1] * (length + 1)]
    assert len(segments(tmp_path)) == 1


def cut_writes(patch, folder, missing):
    """Let writes into the folder reach the disk without their last bytes."""
    real = os.write

    def write(descriptor, data):
        if folder not in Path(f"/proc/self/fd/{descriptor}").resolve().parents:
            return real(descriptor, data)  # pytest's own
        return real(descriptor, data[:-missing]) if missing < len(data) else full()

    patch.setattr(os, "write", write)


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_segment_that_cannot_be_begun_leaves_nothing(tmp_path, monkeypatch):
    """Also if only part of its header was written."""
    bank = WaitStore(tmp_path)
    with monkeypatch.context() as patch:
        cut_writes(patch, tmp_path, 1)
        with pytest.raises(StateError, match="No space"):
            bank.append(record())
    assert list(tmp_path.iterdir()) == []
    bank.append(record())
    assert len(bank.read()) == 1


def test_a_disk_that_fails_is_said_and_left(tmp_path, monkeypatch):
    """The next append begins another segment."""
    real = os.fsync
    bank = WaitStore(tmp_path)
    bank.append(record(0))

    def broken(_descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StateError, match="Input/output error"):
        bank.append(record(1))
    with pytest.raises(StateError, match="Input/output error"):
        bank.extend([record(2)])
    monkeypatch.setattr(os, "fsync", real)
    bank.append(record(3))
    assert {0.0, 3.0} <= set(submits(bank.read())) <= {0.0, 1.0, 3.0}
    assert len(segments(tmp_path)) == len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_stops_merging_and_loses_nothing(tmp_path, monkeypatch):
    """Nor is anything left of the attempt."""
    bank = WaitStore(tmp_path)
    bank.extend([record(0)])
    bank.extend([record(1)])
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match="No space"):
        bank.compact()
    with pytest.raises(StateError, match="No space"):
        bank.forget(lambda _: True)
    monkeypatch.undo()
    assert sorted(tmp_path.iterdir()) == before
    assert submits(bank.read()) == [0, 1]


def test_a_folder_that_cannot_be_written_to_can_be_read(tmp_path, monkeypatch):
    """And says what it refuses."""
    WaitStore(tmp_path).extend([record(0)])
    real = os.open

    def guarded(path, flags, *more, **named):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", guarded)
    bank = WaitStore(tmp_path)
    assert submits(bank.read()) == [0]
    for act in (lambda: bank.append(record()), lambda: bank.extend([record()]), bank.compact):
        with pytest.raises(StateError, match=r"cannot be written: Permission denied\nCheck"):
            act()


# ---------------------------------------------------------------------------------------------- merging


def other_host(path, *, silent_s=0.0):
    """Make a segment another host's, last written so long ago."""
    kind, _, pid, token = path.name.split("-")
    moved = path.rename(path.with_name(f"{kind}-far.0000-{pid}-{token}"))
    then = time.time() - silent_s
    os.utime(moved, (then, then))
    return moved


def lone(folder, number):
    """Make a segment of one record that its writer has closed."""
    before = set(segments(folder)) if folder.exists() else set()
    with WaitStore(folder, durable=False) as bank:
        bank.append(record(number))
    (path,) = set(segments(folder)) - before
    return path


def test_only_what_has_no_writer_is_merged(tmp_path):
    """Another host's segment stays until it was silent for a day, by the clock of the file system."""
    for number in range(3):
        lone(tmp_path, number)  # of this process, which lives
    bank = WaitStore(tmp_path)
    assert bank.compact() == 0
    fresh, old, older = segments(tmp_path)
    other_host(fresh, silent_s=23 * 3600)
    other_host(old, silent_s=25 * 3600)
    other_host(older, silent_s=10**7)
    assert bank.compact() == 2
    assert submits(bank.read()) == [0, 1, 2]
    assert [path.name.split("-")[0] for path in segments(tmp_path)] == ["all", "live"]


def test_a_writer_that_writes_on_while_its_segment_is_merged_loses_nothing(tmp_path, monkeypatch):
    """What it writes after the merge is read from its own segment."""
    late = lone(tmp_path, 0)
    other = lone(tmp_path, 1)
    late, other = other_host(late, silent_s=10**6), other_host(other, silent_s=10**6)
    tail = lone(tmp_path / "elsewhere", 2).read_bytes().partition(b"\n")[2]
    real = os.fsync

    def and_then(descriptor):
        monkeypatch.setattr(os, "fsync", real)
        real(descriptor)
        with late.open("ab") as file:
            file.write(tail)

    monkeypatch.setattr(os, "fsync", and_then)
    reader = WaitStore(tmp_path)
    assert submits(reader.read()) == [0, 1]
    bank = WaitStore(tmp_path)
    assert bank.compact() == 2
    assert late.exists()
    assert not other.exists()
    assert submits(reader.news()) == [2]
    assert submits(bank.read()) == [0, 1, 2]
    os.utime(late, (1, 1))
    assert bank.compact() == 2
    assert submits(bank.read()) == [0, 1, 2]
    assert len(segments(tmp_path)) == 1


def test_a_writer_whose_segment_is_deleted_writes_to_another(tmp_path):
    """Even if the whole folder was deleted."""
    bank = WaitStore(tmp_path / "bank")
    bank.append(record(0))
    for path in segments(tmp_path / "bank"):
        path.unlink()
    bank.append(record(1))
    assert submits(WaitStore(tmp_path / "bank").read()) == [1]
    shutil.rmtree(tmp_path / "bank")
    bank.append(record(2))
    assert submits(WaitStore(tmp_path / "bank").read()) == [2]


def test_a_writer_that_was_silent_for_long_begins_another_segment(tmp_path, monkeypatch):
    """Long before others may merge the old one."""
    assert module._IDLE_S < files.SILENT_S / 2
    real = module._now_s
    bank = WaitStore(tmp_path)
    bank.append(record(0))
    bank.append(record(1))
    assert len(segments(tmp_path)) == 1
    monkeypatch.setattr(module, "_now_s", lambda: real() + 3601)
    bank.append(record(2))
    bank.append(record(3))
    assert len(segments(tmp_path)) == 2
    assert submits(bank.read()) == [0, 1, 2, 3]


def test_a_store_with_many_segments_tidies_itself(tmp_path, monkeypatch):
    """Many processes that write one segment each do not fill the folder."""
    monkeypatch.setattr(module, "_MANY_SEGMENTS", 8)
    monkeypatch.setattr(files, "is_running", lambda _pid: False)  # as if each were of a process of its own
    most = 0
    for number in range(40):
        with WaitStore(tmp_path, durable=False) as bank:
            bank.append(record(number))
        most = max(most, len(segments(tmp_path)))
    assert submits(WaitStore(tmp_path).read()) == list(range(40))
    assert 8 < most <= 10


def test_leftovers_of_killed_processes_are_swept_away(tmp_path):
    """Unfinished files, but not those that are being written."""
    bank = WaitStore(tmp_path)
    for number in range(2):
        bank.extend([record(number)])
    (mine,) = [tmp_path / f"tmp-{locks.machine()}-{os.getpid()}-{'1' * 16}.jsonl"]
    dead = tmp_path / f"tmp-{locks.machine()}-{ended_process()}-{'2' * 16}.jsonl"
    far = tmp_path / f"tmp-far.0000-7-{'3' * 16}.jsonl"
    old = tmp_path / f"tmp-far.0000-7-{'4' * 16}.jsonl"
    probe = tmp_path / f"lock.{'5' * 16}"
    for path in (mine, dead, far, old, probe):
        path.write_text("unfinished")
    for path in (old, probe):
        os.utime(path, (1, 1))
    bank.compact()
    assert [path for path in (mine, dead, far, old, probe) if path.exists()] == [mine, far]
    assert submits(bank.read()) == [0, 1]


def test_a_list_of_the_folder_that_is_torn_by_merging_is_read_again(tmp_path, monkeypatch):
    """Such a list may lack both the old files and the merged one."""
    bank = WaitStore(tmp_path)
    bank.extend([record(0)])
    bank.extend([record(1)])
    assert bank.compact() == 2
    real = files._names
    answers = [[]]
    monkeypatch.setattr(files, "_names", lambda folder: answers.pop() if answers else real(folder))
    assert submits(WaitStore(tmp_path).read()) == [0, 1]
    assert not answers


def test_a_segment_that_is_merged_between_listing_and_reading_is_found_where_it_went(tmp_path, monkeypatch):
    """For `read`, and for the `news`."""
    bank = WaitStore(tmp_path)
    bank.extend([record(0)])
    reader = WaitStore(tmp_path)
    assert len(reader.news()) == 1
    for act, expected in ((reader.news, [1]), (WaitStore(tmp_path).read, [0, 1])):
        bank.extend([record(1, id="one")])
        real = WaitStore._taken

        def meanwhile(self, found, real=real):
            monkeypatch.setattr(WaitStore, "_taken", real)
            bank.extend([record(0, id="again")])
            assert bank.compact() >= 2
            assert bank.forget(lambda kept: kept.id == "again") == 1
            return real(self, found)

        monkeypatch.setattr(WaitStore, "_taken", meanwhile)
        assert submits(act()) == expected


KILLED = """
    # Does one thing to copies of a folder, killed at the first, second, third ... call of the system; prints what was
    # then to be read, by one who finds the folder so, and again after merging.
    import shutil
    folder, action = Path(sys.argv[1]), sys.argv[2]
    calls = ("open", "write", "fsync", "rename", "unlink", "utime", "close", "fchmod", "scandir", "stat")
    real = {name: getattr(os, name) for name in calls}

    def killed_at(count, copy):
        left = count
        def counted(name):
            def call(*given, **named):
                nonlocal left
                left -= 1
                if left == 0:
                    os._exit(9)
                return real[name](*given, **named)
            return call
        for name in calls:
            setattr(os, name, counted(name))
        bank = WaitStore(copy)
        if action == "compact":
            bank.compact()
        elif action == "forget":
            bank.forget(lambda kept: kept.job.submit_s >= 3)
        else:
            bank.extend(map(record, range(100, 103)))
        os._exit(0)

    def seen(copy):
        bank = WaitStore(copy)
        return sorted(round(kept.job.submit_s) for kept in bank.read()), bank.oddities

    for count in range(1, 500):
        copy = folder.with_name(f"copy{count}")
        shutil.copytree(folder, copy)
        reader = WaitStore(copy)
        reader.news()
        child = os.fork() or killed_at(count, copy)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        news = sorted(round(kept.job.submit_s) for kept in reader.news())
        first = seen(copy)
        lock = copy / "lock"
        if lock.exists() and not lock.read_text():  # nobody knows whose it was, so it takes ten minutes
            os.utime(lock, (time.time() - 700,) * 2)
        WaitStore(copy).compact(beyond=0)
        print((*first, news, seen(copy)[0], len(os.listdir(copy))))
        shutil.rmtree(copy)
        if code == 0:
            break
        assert code == 9, code
    """


@pytest.mark.full
@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("compact", [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        ("forget", [0, 1, 2, 3, 4, 5], [0, 1, 2]),
        ("extend", [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 100, 101, 102]),
    ],
)
def test_killed_at_any_call_of_the_system_nothing_is_lost_or_doubled(tmp_path, action, before, after):
    """Merging, forgetting and adding many happen whole or not at all, and whoever comes next tidies up."""
    folder = tmp_path / "bank"
    with WaitStore(folder, durable=False) as bank:
        bank.extend(map(record, range(3)))
        bank.compact(beyond=0)
        bank.extend([record(3)])
    outcome(script("with WaitStore(sys.argv[1]) as bank: bank.append(record(4)); bank.append(record(5))", folder))
    lines = outcome(script(KILLED, folder, action)).splitlines()
    assert len(lines) > 10
    states = []
    for line in lines:
        found, oddities, news, merged, files = ast.literal_eval(line)
        assert found in (before, after)
        assert news == (found[6:] if len(found) > 6 else [])
        assert oddities == {}
        assert merged == found
        assert files == 1
        states.append(found == after)
    assert states == sorted(states)  # there is one moment at which it happens
    assert states[-1]
    assert action == "compact" or not states[0]


# ---------------------------------------------------------------------------------------------- forgetting


def test_what_is_forgotten_is_gone_from_the_disk(tmp_path):
    """Where its writer has ended."""
    with WaitStore(tmp_path) as bank:
        bank.append(record(0, source="secret.swf"))
        bank.extend([record(1, source="secret.swf"), record(2, source="open.swf")])
        assert bank.forget(lambda kept: kept.source == "none") == 0
        assert bank.forget(lambda kept: kept.source == "secret.swf") == 2
        assert submits(bank.read()) == [2]
        assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())
        bank.append(record(3))
        assert submits(WaitStore(tmp_path).read()) == [2, 3]


def test_what_a_running_process_wrote_is_forgotten_and_its_next_records_are_not(tmp_path):
    """Its file stays while it runs; what it had written before is read by nobody."""
    running, bank, reader = WaitStore(tmp_path), WaitStore(tmp_path), WaitStore(tmp_path)
    running.append(record(0))
    running.append(record(1))
    assert len(reader.news()) == 2
    assert bank.forget(lambda kept: kept.job.submit_s == 0) == 1
    running.append(record(2))
    assert submits(bank.read()) == [1, 2]
    assert submits(reader.news()) == [2]
    assert bank.forget(lambda kept: kept.job.submit_s == 1) == 1
    running.append(record(3))
    bank.extend([record(9)])
    assert bank.compact() == 2
    assert bank.forget(lambda kept: kept.job.submit_s == 9) == 1
    assert submits(bank.read()) == submits(WaitStore(tmp_path).read()) == [2, 3]
    assert submits(reader.news()) == [3]
    running.compact(beyond=0)
    assert submits(bank.read()) == submits(reader.read()) == [2, 3]
    assert len(segments(tmp_path)) == 1


def test_what_was_forgotten_can_be_imported_again(tmp_path):
    """Under its old id."""
    bank = WaitStore(tmp_path / "bank")
    bank.extend([record(0), record(1)])
    bank.export(tmp_path / "file")
    before = bank.read()
    assert bank.forget(lambda _: True) == 2
    assert bank.read() == []
    assert bank.import_(tmp_path / "file") == 2
    assert unnamed(bank.read()) == unnamed(before)


# ---------------------------------------------------------------------------------------------- news

actions = st.lists(
    st.tuples(st.sampled_from(["append", "append", "extend", "news", "compact", "forget", "close"]), st.integers(0, 2)),
    max_size=30,
)


@given(actions, st.booleans())
def test_news_tells_each_record_once(tmp_path_factory, plan, merge_under_writers):
    """Whatever others write, merge, forget or delete meanwhile; a process's own records are not among the news."""
    folder = tmp_path_factory.mktemp("bank")
    with pytest.MonkeyPatch.context() as patch:
        if merge_under_writers:  # take living writers for dead ones: worse than anything that should happen
            patch.setattr(files, "is_running", lambda _pid: False)
        banks = [WaitStore(folder, durable=False) for _ in range(3)]
        wrote, told, gone = [[] for _ in banks], [[] for _ in banks], set()
        for number, (action, who) in enumerate(plan):
            bank = banks[who]
            if action == "append":
                bank.append(record(number))
                wrote[who].append(number)
            elif action == "extend":
                bank.extend([record(number), record(number + 1000)])
                wrote[who] += [number, number + 1000]
            elif action == "news":
                told[who] += submits(bank.news())
            elif action == "compact":
                bank.compact(beyond=0)
            elif action == "forget":
                match = [n for each in wrote for n in each if n % 3 == who]
                assert bank.forget(lambda kept, who=who: kept.job.submit_s % 3 == who) == len(set(match) - gone)
                gone |= set(match)
            else:
                bank.close()
        everything = {n for each in wrote for n in each}
        for who, bank in enumerate(banks):
            told[who] += submits(bank.news())
            assert len(told[who]) == len(set(told[who]))
            assert everything - gone - set(wrote[who]) <= set(told[who]) <= everything - set(wrote[who])
            assert bank.news() == []
            assert submits(bank.read()) == submits(WaitStore(folder).read()) == sorted(everything - gone)
            assert bank.news() == []
        for bank in banks:
            bank.close()


def test_news_reads_no_byte_twice(tmp_path, monkeypatch):
    """Not even after all that it has read was merged."""
    bank = WaitStore(tmp_path, durable=False)
    reader = WaitStore(tmp_path)
    for number in range(100):
        bank.append(record(number))
    bank.extend(map(record, range(200, 300)))
    assert len(reader.news()) == 200
    read = []
    real = stored.SegmentLines._rows

    def counted(self, block, **named):
        read.append(len(block))
        return real(self, block, **named)

    bank.compact()
    monkeypatch.setattr(stored.SegmentLines, "_rows", counted)
    assert reader.news() == []
    assert read == []
    bank.append(record(400))
    assert submits(reader.news()) == [400]
    assert sum(read) < 1000
    reader.append(record(500))
    reader.extend([record(501)])
    assert submits(reader.news()) == []
    assert len(read) == 1


# ---------------------------------------------------------------------------------------------- locks


def ended_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def plant(folder, *, machine=None, pid=1, age_s=0.0, content=None):
    """Leave a lock as another process would."""
    path = folder / "lock"
    told = {"machine": machine or locks.machine(), "pid": pid, "since_s": 4e9, "token": "f" * 16}
    path.write_text(json.dumps(told) if content is None else content)
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


@pytest.fixture
def mergeable(tmp_path):
    bank = WaitStore(tmp_path, lock_wait_s=0.05)
    bank.extend([record(0)])
    bank.extend([record(1)])
    return bank


def test_a_lock_of_an_ended_process_is_taken_over(mergeable):
    """At once."""
    plant(mergeable.folder, pid=ended_process())
    assert mergeable.compact() == 2
    assert len(list(mergeable.folder.iterdir())) == 1


@pytest.mark.parametrize(
    "held",
    [{"pid": os.getpid()}, {"machine": "far.0000", "pid": 7, "age_s": 500.0}, {"content": ""}, {"content": "{]"}],
    ids=["alive here", "another host", "just made", "garbled"],
)
def test_a_lock_that_may_be_held_is_waited_for(mergeable, held):
    """If it is not released, the error names the holder; appending and reading need no lock."""
    path = plant(mergeable.folder, **held)
    kept = path.read_text()
    for act in (mergeable.compact, lambda: mergeable.forget(lambda _: True)):
        with pytest.raises(StateError, match=r"is being tidied by .*\nWait for it") as caught:
            act()
        assert str(path) in str(caught.value)
    if "machine" in held:
        assert "process 7 on far since" in str(caught.value)
    mergeable.append(record(2))
    assert submits(mergeable.read()) == [0, 1, 2]
    assert path.read_text() == kept
    path.unlink()
    assert mergeable.compact() == 3


@pytest.mark.parametrize(
    "held",
    [{"machine": "far.0000"}, {"content": ""}, {"content": "{]"}, {"pid": os.getpid()}],
    ids=["another host", "never written", "garbled", "pid of another by now"],
)
def test_a_lock_that_nobody_touches_is_taken_over(mergeable, held):
    """By the age of the file alone: clocks of hosts differ, and this one's says 2096."""
    plant(mergeable.folder, age_s=700.0, **held)
    assert mergeable.compact() == 2
    assert len(list(mergeable.folder.iterdir())) == 1


def test_one_who_lost_the_lock_gives_up(mergeable, monkeypatch):
    """Such a process was stopped for long; its result does not replace another's."""
    real = os.fsync

    def meanwhile(descriptor):
        real(descriptor)
        plant(mergeable.folder, machine="far.0000")

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(StateError, match="taken over"):
        mergeable.compact()
    monkeypatch.undo()
    assert json.loads((mergeable.folder / "lock").read_text())["machine"] == "far.0000"
    assert submits(mergeable.read()) == [0, 1]
    assert len(segments(mergeable.folder)) == 2


def test_of_many_who_find_a_stale_lock_one_takes_it(tmp_path):
    """Every holder dies with it, so that each time it has to be taken over; two never hold it at once."""
    code = """
        import json
        folder, dead = Path(sys.argv[1]), int(sys.argv[2])
        inside = folder / "inside"
        real = locks.FileLock.is_stale
        def slowly(lock, holder):  # what is seen may be no more when it is acted upon
            seen = real(lock, holder)
            time.sleep(random.random() * 0.003)
            return seen
        locks.FileLock.is_stale = slowly
        for turn in range(40):
            lock = locks.FileLock(folder / "lock", 30.0)
            lock.__enter__()
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
            for _ in range(3):
                os.sched_yield()
            lock.check()
            os.unlink(inside)
            died = folder / f"died{os.getpid()}"
            died.write_text(json.dumps(
                {"machine": locks.machine(), "pid": dead, "since_s": 0, "token": f"{os.getpid()}x{turn}"}
            ))
            os.rename(died, folder / "lock")
        """
    dead = ended_process()
    plant(tmp_path, pid=dead)
    for process in [script(code, tmp_path, dead) for _ in range(4)]:
        outcome(process)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


# ---------------------------------------------------------------------------------------------- handing on


@pytest.mark.parametrize("name", ["bank.jsonl", "bank.jsonl.gz"])
def test_an_export_is_read_by_another_store_as_the_same(tmp_path, name):
    """Once, however often it is imported; and it is plain JSON lines."""
    bank, other = WaitStore(tmp_path / "a"), WaitStore(tmp_path / "b")
    bank.extend([record(1, forecast=tuple(map(float, range(9))), estimator="asa"), record(0, run_s=5.0)])
    bank.append(replace(record(5), observation=at_least(7.5)))
    assert bank.export(tmp_path / name) == 3
    assert other.import_(tmp_path / name) == 3
    assert other.import_(tmp_path / name) == 0
    assert unnamed(other.read()) == unnamed(bank.read())
    other.export(tmp_path / f"again.{name}")
    assert (tmp_path / f"again.{name}").read_bytes() == (tmp_path / name).read_bytes()
    if not name.endswith("gz"):
        header, *rows = map(json.loads, (tmp_path / name).read_text().splitlines())
        table = [dict(zip(header["fields"], row, strict=True)) for row in rows]
        assert [(row["submit_s"], row["wait_s"], row["kind"]) for row in table] == [
            (0.0, 10.0, "exact"),
            (1.0, 10.0, "exact"),
            (5.0, 7.5, "at_least"),
        ]


def test_what_is_no_sound_export_is_refused_whole(tmp_path):
    """Wherever it is damaged; nothing of it is imported."""
    bank, other = WaitStore(tmp_path / "a"), WaitStore(tmp_path / "b")
    bank.extend([record(0), record(1)])
    good, packed, bad = tmp_path / "good", tmp_path / "good.gz", tmp_path / "bad"
    bank.export(good)
    bank.export(packed)
    lines = good.read_bytes().splitlines(keepends=True)
    cases = {
        "not a bank": [b"", b"{}\n", b"; MaxProcs: 64\n1 2 3\n", b'[1]\n["x"]\n', b"\xff\xfe\n"],
        "version 2": [lines[0].replace(b'"version":1', b'"version":2') + lines[1]],
        "other fields": [lines[0].replace(b"wait_s", b"width_s") + lines[1]],
        "1 of its 2 records": [b"".join(lines[:2])],
        "0 of its 2 records": [lines[0]],
        ":3: is no record": [
            lines[0] + lines[1] + line
            for line in (
                lines[2][:-5],
                b"null\n",
                b"[]\n",
                lines[2].replace(b"exact", b"perhaps"),
                lines[2].replace(b"10.0", b"-1.0"),
                lines[2].replace(b"10.0", b"NaN"),
                re.sub(rb'^\["\w+"', b'["a/b"', lines[2]),
                re.sub(rb'^\["\w+"', b"[7", lines[2]),
            )
        ],
        "cut off": [packed.read_bytes()[:-9], packed.read_bytes()[:20]],
    }
    for words, contents in cases.items():
        for content in contents:
            bad.write_bytes(content)
            with pytest.raises(StateError, match=words) as caught:
                other.import_(bad)
            assert str(bad) in str(caught.value)
    with pytest.raises(StateError, match="cannot be read"):
        other.import_(tmp_path / "none")
    with pytest.raises(StateError, match="cannot be read"):
        other.import_(tmp_path)
    assert not other.folder.exists()


def test_an_export_that_fails_leaves_the_old_file(tmp_path):
    """And leaves no other file next to it."""
    bank = WaitStore(tmp_path / "bank")
    bank.extend([record(0)])
    with pytest.raises(StateError, match="cannot be written"):
        bank.export(tmp_path / "no" / "file")
    with pytest.raises(StateError, match="cannot be written"):
        bank.export(tmp_path)
    bank.export(tmp_path / "file")
    (tmp_path / "link").symlink_to("file")
    bank.extend([record(1)])
    assert bank.export(tmp_path / "link") == 2
    assert (tmp_path / "link").is_symlink()
    assert len((tmp_path / "file").read_text().splitlines()) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank", "file", "link"]


def test_files_are_as_readable_as_the_folder(tmp_path):
    """Whatever the mask of who writes or merges: a bank of a group stays one."""
    folder = tmp_path / "bank"
    folder.mkdir()
    folder.chmod(0o770)
    mask = os.umask(0o077)
    try:
        with WaitStore(folder) as bank:
            bank.append(record(0))
            bank.extend([record(1)])
            assert {path.stat().st_mode & 0o777 for path in segments(folder)} == {0o660}
            bank.compact()
            assert [path.stat().st_mode & 0o777 for path in segments(folder)] == [0o660]
    finally:
        os.umask(mask)


def test_what_the_batch_system_said_is_kept_where_earlier_versions_read_past_it(tmp_path):
    """Earlier versions would take a line with a further field for damaged."""
    stated = tuple(map(float, range(9)))
    given = [
        record(n, estimator="asa", forecast=stated, word_s=said) for n, said in enumerate([None, 0.0, 1e17, 90.25])
    ]
    with WaitStore(tmp_path / "a") as ours:
        ours.append(given[3])
        ours.extend(given[:3])
        assert sorted((kept.word_s or 0.0, kept.estimator) for kept in ours.read()) == [
            (0.0, "asa"), (0.0, "asa"), (90.25, "asa"), (1e17, "asa"),
        ]  # fmt: skip
        ours.export(tmp_path / "file")
    lines = [json.loads(line) for path in segments(tmp_path / "a") for line in path.read_text().splitlines()]
    rows = [line for line in lines if isinstance(line, list)]
    assert {len(row) for row in rows} == {len(stored.FIELDS) + 1}
    other = WaitStore(tmp_path / "b")
    assert other.import_(tmp_path / "file") == 4
    assert {kept.word_s for kept in other.read()} == {None, 0.0, 1e17, 90.25}


@pytest.mark.parametrize("word_s", [-1.0, float("inf"), float("nan")])
def test_what_no_batch_system_says_is_refused(tmp_path, word_s):
    with pytest.raises(InputError, match="no job is like"):
        WaitStore(tmp_path).append(record(0, word_s=word_s))


# ---------------------------------------------------------------------------------------------- very many


@pytest.fixture
def small_memory(monkeypatch):
    """Limit the memory to 100 observations, of which 30 can be sorted at a time."""
    monkeypatch.setattr(ordering, "BANK_RECORDS", 100)
    monkeypatch.setattr(ordering, "_SORTED_ROWS", 30)


def _numbered(count):
    return [
        WaitRecord(QueuedJob(float(n * 7 % count), 1, 60.0, "ada"), exactly(1.0), id=f"r{n * 7 % count:04}")
        for n in range(count)
    ]


@pytest.mark.usefixtures("small_memory")
def test_of_a_bank_of_any_size_the_newest_is_read(tmp_path):
    """However large a bank has become, it is not refused; what is older than there is memory for is left out."""
    with WaitStore(tmp_path / "bank") as store:
        assert store.extend(_numbered(500)) == 500
        assert store.extend(_numbered(500)) == 0
        assert [record.id for record in store.read()] == [f"r{n:04}" for n in range(400, 500)]
        assert store.oddities == {"older than the newest 100 observations: left out": 400}
        assert [record.id for record in store.read(3)] == ["r0497", "r0498", "r0499"]
        with WaitStore(tmp_path / "bank") as other:
            other.append(WaitRecord(QueuedJob(1000.0, 1, 60.0), exactly(1.0), id="new"))
            other.compact()
        assert [record.id for record in store.news()] == ["new"], "what was too old is no news when it is merged"


@pytest.mark.usefixtures("small_memory")
def test_a_bank_of_any_size_is_counted_exported_imported_and_made_smaller(tmp_path):
    bank = WaitStore(tmp_path / "bank")
    bank.extend(_numbered(500))
    assert bank.export(tmp_path / "file.gz") == 500
    with WaitStore(tmp_path / "other") as other:
        assert other.import_(tmp_path / "file.gz") == 500
        assert other.import_(tmp_path / "file.gz") == 0
        assert other.count(lambda record: record.known_s < 101.0) == (100, 500)
    assert bank.count(lambda record: record.known_s < 401.0) == (400, 500)
    assert bank.forget(lambda record: record.known_s < 401.0) == 400
    assert len(bank.read()) == 100
    assert bank.oddities == {}


def test_an_export_is_the_same_in_whatever_pieces_it_is_sorted(tmp_path, monkeypatch):
    bank = WaitStore(tmp_path / "bank")
    bank.extend(_numbered(500))
    bank.export(tmp_path / "whole")
    monkeypatch.setattr(ordering, "_SORTED_ROWS", 30)
    bank.export(tmp_path / "parts")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()


def test_of_many_jobs_that_are_learned_little_is_kept(tmp_path, monkeypatch):
    """So that those of a large site take less than 300 MB; before, each took a kilobyte."""
    monkeypatch.setattr(module, "_IN_MEMORY_BYTES", 1 << 14)
    monkeypatch.setattr(stored, "_BLOCK_BYTES", 1 << 14)
    jobs = 4000
    numbers = np.arange(jobs, dtype=np.float64)
    history = JobHistory(numbers, numbers % 97, np.full(jobs, 4), numbers + 60.0, numbers >= 0)
    tracemalloc.start()
    with WaitStore(tmp_path, durable=False) as bank:
        assert [bank.extend(_records(history, "hpc2n", "log", None)) for _ in range(2)] == [jobs, 0]
        assert bank.widest("hpc2n") == {"": 4}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 600 * jobs, peak / jobs
    assert len(bank.read()) == jobs


IDS = [
    "job-a5abcef84e01ca53062ed7d7",
    "job-f3a078cc3cf6c871b771ca85",
    "job-f4cf48834f449c83c11e2fdc",
]  # as earlier versions gave them


def test_jobs_that_are_alike_are_learned_each_and_once(tmp_path):
    history = JobHistory(np.zeros(3), np.full(3, 5.0), np.full(3, 4), np.full(3, 60.0), np.full(3, True))
    with WaitStore(tmp_path) as bank:
        assert [bank.extend(_records(history, "hpc2n", "log", None)) for _ in range(2)] == [3, 0]
        assert sorted(kept.id for kept in bank.read()) == IDS


def test_an_exported_bank_has_no_more_observations_than_there_is_memory_for(tmp_path, monkeypatch):
    WaitStore(tmp_path / "bank").extend(_numbered(50))
    WaitStore(tmp_path / "bank").export(tmp_path / "file")
    monkeypatch.setattr(stored, "EXPORT_RECORDS", 49)
    with pytest.raises(StateError, match=r"more than 49 observations.*ASA_READ_FACTOR"):
        WaitStore(tmp_path / "other").import_(tmp_path / "file")
    assert not (tmp_path / "other").exists()
