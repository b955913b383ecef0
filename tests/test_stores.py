"""The promises of every store: the bank of waits, run times, a run's journal, a plan's journal, kept cells."""

import errno
import os
import resource
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from asa.backends.openccs.journal import open_plan
from asa.backends.openccs.requests import ResourceRequest
from asa.backends.openccs.system import CcsSystem, Node

from asa.core.store import LineFile, SegmentFolder, read_lines
from asa.errors import AsaError, StateError
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.runner import Journal, read_journal
from asa.runner.entries import Begun
from asa.runtimes import RunTime, RunTimes
from asa.studies.harness import Kind, fill
from asa.waits import QueuedJob, exactly


class Waits:
    """Numbers as times of submission."""

    def __init__(self, folder):
        self.folder = folder / "bank"
        self.store = WaitStore(self.folder)

    def add(self, number):
        self.store.append(WaitRecord(QueuedJob(float(number), 1, 60.0), exactly(1.0)))

    def numbers(self):
        return [record.job.submit_s for record in WaitStore(self.folder).read()]


class Times:
    """Numbers as times of an end."""

    def __init__(self, folder):
        self.folder = folder

    def add(self, number):
        RunTimes(self.folder).observe([RunTime("w", "s", 1, 1.0, float(number), id=str(number))])

    def numbers(self):
        return [run.at_s for run in RunTimes(self.folder).read()]


class Entries:
    """Numbers as moments in a run."""

    def __init__(self, folder):
        self.path = folder / "journal.jsonl"
        self.journal = Journal(self.path)

    def add(self, number):
        self.journal.append(Begun(float(number)))

    def numbers(self):
        return [entry.at_s for entry in read_journal(self.path)[0]]


class Steps:
    """Numbers as names of jobs."""

    def __init__(self, folder):
        self.path = folder / "plan"
        self.system = CcsSystem("one", (Node("n0", {"ncpus": 4}),))

    def add(self, number):
        request = ResourceRequest.parse("rset=ncpus=1,walltime=5s", self.system.kinds)
        open_plan(self.path, self.system).submit(request, now=10 * number, name=str(number))

    def numbers(self):
        return [int(name) for name in open_plan(self.path, self.system).jobs]


@dataclass(frozen=True)
class Cell:
    """One of many."""

    number: int
    code: str = ""


@dataclass(frozen=True)
class Trial:
    """Its outcome."""

    number: int


class Cells:
    """Numbers as cells; what is kept is what is not run."""

    def __init__(self, folder):
        self.path = folder / "kept.jsonl"
        self.ran = []

    def outcome(self, cell):
        self.ran.append(cell.number)
        return [Trial(cell.number)]

    def fill(self, numbers):
        self.ran.clear()
        kind = Kind(self.outcome, Cell, Trial)
        fill([Cell(number) for number in numbers], kind, self.path, jobs=1)

    def add(self, number):
        self.fill([number])

    def numbers(self):
        copy = Cells(self.path.parent)
        copy.path = self.path.with_name("copy")
        copy.path.write_bytes(self.path.read_bytes() if self.path.exists() else b"")
        copy.fill(range(200))
        return sorted(set(range(200)) - set(copy.ran))


STORES = [Waits, Times, Entries, Steps, Cells]
each = pytest.mark.parametrize("store", STORES, ids=[store.__name__.lower() for store in STORES])


def files(folder):
    return sorted(path for path in Path(folder).rglob("*") if path.is_file() and path.name not in {"copy", "lock"})


@contextmanager
def no_file_beyond(size_bytes):
    """Have the disk full at that size of a file: of a write that goes beyond, a part is on it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@each
def test_what_was_added_is_read(store, tmp_path):
    """By another, too, and before anything is closed; nothing is there before the first."""
    one = store(tmp_path)
    assert one.numbers() == []
    for number in range(5):
        one.add(number)
    assert one.numbers() == store(tmp_path).numbers() == list(range(5))


@each
def test_a_file_that_ends_anywhere_in_its_last_line_keeps_the_others(store, tmp_path):
    """What is left of it is no line, and what is added then is none with it."""
    base = tmp_path / "base"
    base.mkdir()
    for number in range(3):
        store(base).add(number)
    last = max(files(base), key=lambda path: path.stat().st_mtime_ns)
    whole = last.read_bytes()
    begin = whole[:-1].rfind(b"\n") + 1
    for size in {*range(begin, len(whole) - 2, 9), len(whole) - 2}:
        copy = Path(shutil.copytree(base, tmp_path / str(size)))
        (copy / last.relative_to(base)).write_bytes(whole[:size])
        torn = store(copy)
        assert torn.numbers() == [0, 1]
        torn.add(7)
        assert store(copy).numbers() == [0, 1, 7]


@each
def test_on_a_full_disk_a_line_is_there_or_refused_in_words(store, tmp_path):
    """However much of it the disk took; there is space again later."""
    one = store(tmp_path)
    one.add(0)
    known, number = [0], 0
    for beyond, size in [(0, size) for size in range(0, 400, 13)] + [(1, size) for size in range(0, 400, 29)]:
        number += 1
        largest = max(path.stat().st_size for path in files(tmp_path))
        if refused := refusal(one, number, beyond * largest + size):
            assert os.strerror(errno.EFBIG) in str(refused)
            assert refused.where
            assert refused.hint
        else:
            known.append(number)
        assert one.numbers() == known
    assert 1 < len(known) < number
    one.add(199)
    assert store(tmp_path).numbers() == [*known, 199]


def refusal(store, number, size_bytes):
    """What is said of a number where no file may be larger; None if it was added."""
    with no_file_beyond(size_bytes):
        try:
            store.add(number)
        except AsaError as error:
            return error
    return None


@each
def test_what_cannot_be_written_to_is_said_and_can_be_read(store, tmp_path, monkeypatch):
    one = store(tmp_path)
    one.add(0)
    numbers = one.numbers()
    real = os.open

    def refused(path, flags, *more, **named):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and "copy" not in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refused)
    again = store(tmp_path)
    with pytest.raises(AsaError, match="Read-only file system") as caught:
        again.add(1)
    assert caught.value.where
    assert caught.value.hint
    assert again.numbers() == numbers


@each
def test_what_was_added_is_on_the_disk(store, tmp_path, monkeypatch):
    """But cells, which can be run again."""
    one = store(tmp_path)
    one.add(0)
    real, synced = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor) or real(descriptor))
    one.add(1)
    assert bool(synced) == (store is not Cells)


# ---------------------------------------------------------------------- by themselves


def test_a_line_behind_what_is_known_is_cut_off(tmp_path):
    """As far as is known to be sound, or up to the last line end."""
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nthr" + b"e" * 100_000)
    LineFile(path).append(b"three\n")
    assert read_lines(path) == ([b"one", b"two", b"three"], b"")
    file = LineFile(path, end=4)
    file.append(b"2\n")
    assert path.read_bytes() == b"one\n2\n"
    assert not file.has_changed()
    LineFile(path).append(b"3\n")
    assert file.has_changed()


def test_where_others_read_a_torn_line_is_withdrawn_instead(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    file = LineFile(path, withdrawal=b"!\n")
    with no_file_beyond(6), pytest.raises(OSError, match="too large"):
        file.append(b"two\n")
    assert file.is_open
    file.append(b"three\n")
    assert path.read_bytes() == b"one\ntw!\nthree\n"
    path.unlink()
    assert file.is_deleted()


@pytest.mark.parametrize("signed", [True, False])
def test_a_segment_appears_whole_or_not_at_all(tmp_path, signed):
    folder = SegmentFolder(tmp_path / "segments", signed=signed)
    assert folder.segments() == []

    def lines():
        yield b"one\n"
        assert folder.segments() == []
        yield b"two\n"

    def refuse():
        raise StateError("not now")

    with pytest.raises(StateError, match="not now"):
        folder.add("kept", lines(), before=refuse)
    assert list(folder.path.iterdir()) == []
    segment = folder.add("kept", lines())
    assert folder.segments() == [segment]
    assert segment.path.read_bytes() == b"one\ntwo\n"
    assert bool(segment.machine) == signed


def test_what_is_merged_while_it_is_read_is_read_again(tmp_path):
    folder = SegmentFolder(tmp_path, signed=False)
    parts = [folder.add("kept", [b"one\n"]), folder.add("kept", [b"two\n"])]
    seen = []

    def read(segments):
        seen.append({segment.kind for segment in segments})
        if len(seen) == 1:
            folder.add("all", [b"one\n", b"two\n"])
            folder.delete(parts)
        return sorted(line for segment in segments for line in segment.path.read_bytes().splitlines())

    assert folder.steadily(read) == [b"one", b"two"]
    assert seen == [{"kept"}, {"all"}]


def test_a_folder_that_must_exist_is_not_made(tmp_path):
    folder = SegmentFolder(tmp_path / "segments", signed=True, must_exist=True)
    for act in (folder.segments, lambda: folder.add("kept", [b"one\n"])):
        with pytest.raises(StateError, match="No such file"):
            act()
    assert not folder.path.exists()
