"""Histories: columns that agree, and files of any known kind."""

import gzip
import subprocess
import sys

import numpy as np
import pytest
from asa.backends.slurm.accounting import SACCT_COMMAND

from asa import history as histories
from asa.core import plugins
from asa.errors import InputError, TraceError
from asa.history import JobHistory, read_history

SWF = "; MaxProcs: 64\n1 0 30 60 4 -1 -1 4 600 -1 1 7\n2 5 0 7 9 -1 -1 9 70 -1 1 8\n"
SACCT = (
    "JobID|Submit|Start|End|State|TimelimitRaw|ReqCPUS\n1|1000|1030|1090|COMPLETED|10|4\n2|1005|1005|1012|FAILED|1|9\n"
)


@pytest.mark.parametrize("text", [SWF, SACCT])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["jobs.swf", "jobs.txt", "jobs"])
def test_a_file_is_known_by_what_it_holds(tmp_path, text, packed, name):
    """Neither by its name nor by whether it is compressed."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if packed else text.encode())
    history = read_history(path)
    assert history.wait_s.tolist() == [30, 0]
    assert history.cores.tolist() == [4, 9]
    assert history.run_s.tolist() == [60, 7]
    assert history.source == str(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\n\n \n", "no job history of a known kind"),
        (b"Dear Ada,\nthe queue was long. 1 2 3 4 5 6 7 8\n", "no job history of a known kind"),
        (b"id;wait\n1;2\n", "no job history of a known kind"),
        (b"a|b|c\n1|2|3\n", "no job history of a known kind"),
        (bytes(range(256)) * 5000, "no job history of a known kind"),
        (b"\0" * (3 << 20), "no job history of a known kind"),
        (gzip.compress(b"\x7fELF" + b"\0" * 100_000, mtime=0), "no job history of a known kind"),
        (gzip.compress(SWF.encode() * 100, mtime=0)[:60], "cut off"),
    ],
)
def test_a_file_that_is_no_history_is_refused_with_a_remedy(tmp_path, content, message):
    """Nothing but a sentence, whatever the bytes."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        read_history(path)
    assert str(caught.value).startswith(f"{path}: ")
    if "cut off" not in message:
        assert SACCT_COMMAND in caught.value.hint
        assert "\nswf: a log in the Standard Workload Format" in caught.value.hint


def test_files_that_cannot_be_opened_are_refused(tmp_path):
    """Missing, a folder."""
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_history(tmp_path / "none.swf")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        read_history(tmp_path)


def test_a_third_partys_reader_is_asked_like_ours(tmp_path, monkeypatch):
    """The first that knows the file wins; who does not say how its files are made is named all the same."""
    known = JobHistory(np.zeros(1), np.ones(1), np.ones(1, dtype=int), np.ones(1), np.ones(1, dtype=bool))
    readers = {
        "never": lambda _: None,
        "mine": lambda path: known if path.read_text() == "mine" else None,
        "other": lambda _: pytest.fail("asked though another knew the file"),
    }
    monkeypatch.setattr(plugins, "names", lambda group: list(readers) if group == "asa.histories" else [])
    monkeypatch.setattr(plugins, "load", lambda _, name: readers[name])
    path = tmp_path / "jobs"
    path.write_text("mine")
    assert read_history(path) is known
    del readers["other"]
    path.write_text("yours")
    with pytest.raises(TraceError, match="known kind") as caught:
        read_history(path)
    assert caught.value.hint.splitlines()[1:] == ["mine", "never"]


def test_reading_needs_no_more_than_numpy(tmp_path):
    """The estimator, its history and nothing heavier."""
    path = tmp_path / "log"
    path.write_text(SACCT)
    code = (
        "import sys; from asa.history import read_history\n"
        f"print(len(read_history({str(path)!r})), {{'networkx', 'pydantic', 'rich', 'numba'}} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split()[0] == "2"
    assert "numba" not in out


def columns(rows, **changes):
    return {
        "submit_s": np.arange(rows, dtype=float),
        "wait_s": np.ones(rows),
        "cores": np.ones(rows, dtype=np.int64),
        "walltime_s": np.ones(rows),
        "started": np.ones(rows, dtype=bool),
    } | changes


def test_what_is_not_told_is_unknown():
    """Not zero."""
    history = JobHistory(**columns(3))
    assert [history.run_s.tolist(), history.user.tolist(), history.partition.tolist()] == [[-1] * 3] * 3


def test_columns_that_do_not_agree_are_refused():
    """In length, or in the order of time."""
    with pytest.raises(InputError, match="differ in length"):
        JobHistory(**columns(3, wait_s=np.ones(2)))
    with pytest.raises(InputError, match="not in order of submission"):
        JobHistory(**columns(3, submit_s=np.array([0.0, 2.0, 1.0])))


def test_the_first_jobs_keep_all_that_is_known_of_them():
    """Names, too."""
    whole = JobHistory(**columns(3, user=np.array([1, 0, -1], dtype=np.int32)), users=["ada", "bob"], system="x")
    some = whole.first(2)
    assert len(some) == 2
    assert [some.users[place] for place in some.user] == ["bob", "ada"]
    assert some.system == "x"
    assert len(whole) == 3


def test_every_public_name_is_there():
    """`__all__` is what it says."""
    assert all(hasattr(histories, name) for name in histories.__all__)
