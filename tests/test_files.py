"""Files of a run: their readers, and paths that are no files."""

import gzip
import os
import stat
from pathlib import Path

import pytest
from asa.backends.shell.marks import KeptSubmission
from asa.backends.shell.marks import MarksFolder as Marks
from forked import Command
from local_queue import Queue

from asa.core.files import compressed, open_file, put, read_file, replacing
from asa.core.safe import writing
from asa.errors import UnavailableError

FLOW = """
name = "secretive"
[[stage]]
name = "a"
cores = 1
walltime = "5m"
command = "printf %s \\"$PASSWORD\\" >seen; ps -eo args >processes"
environment = {PASSWORD = "open sesame"}
"""


class Runs:
    """A run of this computer's queue, and its user's commands."""

    def __init__(self, root):
        self.root = root
        self.queue = Queue(root, cores=1)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("ASA_", "SLURM_"))},
            "ASA_BANK": str(root / "bank"),
            "ASA_RUNS": str(root / "runs"),
            "ASA_SITES": str(root / "sites"),
        }
        (root / "flow.toml").write_text(FLOW)
        settings = ("--set", "cores=1", "--set", f"spool={root / 'spool'}")
        code, said = self.asa("run", "flow.toml", "--backend", "local", *settings)
        assert code == 0, said
        [self.folder] = (root / "runs").iterdir()

    def asa(self, *arguments):
        command = Command(*arguments, cwd=self.root, env=self.environment)
        said = "".join(command.communicate(timeout=30))
        assert "Traceback" not in said
        return command.returncode, said


@pytest.fixture
def runs(tmp_path):
    runs = Runs(tmp_path)
    yield runs
    runs.queue.kill_server()


def holders(folder, secret):
    return [path for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_values_of_variables_are_their_users_alone(runs):
    assert (runs.root / "seen").read_text() == "open sesame"
    told = holders(runs.folder, b"open sesame")
    assert {path.name for path in told} >= {"run.json"}
    assert any(path.parent.name == "scripts" for path in told)
    for path in [*told, runs.folder / "journal.jsonl", *(runs.folder / "jobs").iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    private = ("scripts", "jobs", "wishes")
    assert {stat.S_IMODE((runs.folder / name).stat().st_mode) for name in private} == {0o700}
    listed = (runs.root / "processes").read_text()
    assert "ps -eo args" in listed
    assert "open sesame" not in listed, "everybody may see the list of processes"


def test_no_file_was_ever_readable_by_others(tmp_path, monkeypatch):
    """It is made so, and not changed afterwards: others would have a moment."""
    monkeypatch.setattr(os, "fchmod", lambda *_: pytest.fail("changed afterwards"))
    marks = Marks(tmp_path)
    before = os.umask(0)
    try:
        marks.keep_script("a", "text")
        marks.keep_job(
            "7", KeptSubmission("a", "", awaits=False, steps=(), kept_back=False, walltime_s=1.0, submit_s=1.0)
        )
    finally:
        os.umask(before)
    made = [tmp_path / "scripts" / "a.sh", tmp_path / "jobs" / "7"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o600, 0o600]


@pytest.mark.parametrize("name", ["run.json", "journal.jsonl", "pulse.json", "lease", "client.log", "wishes/1.json"])
def test_a_fifo_in_a_runs_folder_blocks_nobody(runs, name):
    """Whoever would wait for what comes through it is told, where it matters."""
    (runs.folder / name).unlink(missing_ok=True)
    os.mkfifo(runs.folder / name)
    matters = name in {"run.json", "journal.jsonl"}
    for command in (["status"], ["explain", "a", "--run"], ["report"], ["resume"], ["cancel"]):
        code, said = runs.asa(*command, runs.folder)
        assert (code != 0) is matters, (command, said)
        assert ("it is a FIFO, and no regular file" in said) is matters, (command, said)
    runs.asa("runs")
    runs.asa("logs", "a", "--follow")


def test_a_fifo_among_the_marks_blocks_nobody(tmp_path):
    marks = Marks(tmp_path)
    for kind in ("began", "ended"):
        (tmp_path / "marks" / "t").mkdir(exist_ok=True)
        os.mkfifo(tmp_path / "marks" / "t" / kind)
    os.mkfifo(tmp_path / "jobs" / "7")
    os.mkfifo(tmp_path / "scripts" / "a.sh")
    for ask in (marks.began, marks.ended):
        with pytest.raises(UnavailableError, match="it is a FIFO"):
            ask("7", "t")
    assert marks.kept_job("7") is None
    assert marks.facts("a") == marks.facts("none")


def test_a_file_is_read_and_a_folder_is_none(tmp_path):
    (tmp_path / "file").write_bytes(b"text")
    assert read_file(tmp_path / "file") == b"text"
    with pytest.raises(IsADirectoryError):
        open_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "none")


# ---------------------------------------------------------------------- what is written whole


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path, is_durable):
    path = tmp_path / "file"
    put(path, b"before", is_private=True, is_durable=is_durable)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def fail():
        with replacing(path) as file:
            file.write(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert path.read_bytes() == b"before"
    put(path, b"after", is_durable=is_durable)
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_files_place_is_taken_whatever_lies_there(tmp_path):
    """Nobody is waited for who would read a FIFO, and nothing is written where a link leads."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "target").write_bytes(b"theirs")
    (tmp_path / "link").symlink_to("target")
    for name in ("pipe", "link"):
        put(tmp_path / name, b"ours")
        assert (tmp_path / name).read_bytes() == b"ours"
    assert (tmp_path / "target").read_bytes() == b"theirs"


def test_what_a_user_names_is_written_into_if_it_is_a_pipe(tmp_path):
    reader, writer = os.pipe()
    with writing(Path(f"/proc/self/fd/{writer}")) as file:
        file.write(b"told")
    os.close(writer)
    assert os.read(reader, 9) == b"told"
    os.close(reader)
    with writing(tmp_path / "file") as file:
        file.write(b"told")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_equal_content_is_compressed_equally(tmp_path):
    for name in ("one.gz", "two.gz", "plain"):
        with writing(tmp_path / name) as raw, compressed(raw, tmp_path / name) as file:
            file.write(b"told" * 99)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    assert gzip.decompress((tmp_path / "one.gz").read_bytes()) == (tmp_path / "plain").read_bytes() == b"told" * 99
