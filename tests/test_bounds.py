"""All input is bounded: larger input is refused with a message, and takes less than 300 MB of memory until then."""

import ast
import gzip
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from asa.cli import main
from asa.core import files, reading
from asa.core.documents import read_json, read_toml
from asa.errors import JournalError
from asa.runner.journal import read_journal

ROOT = Path(__file__).parents[1]

# ---------------------------------------------------------------------- memory

MEASURED = r"""
import gzip, json, os, socket, stat, sys, threading
from pathlib import Path
from asa.backends.simulated.swf import read_swf
from asa.backends.slurm.accounting import read_history as read_sacct
from asa.backends.slurm.commands import process
from asa.backends.slurm.rest import RestLink, TokenSource
from asa.core.documents import read_text
from asa.core.files import read_file
from asa.core.reading import run_command
from asa.estimators.store import WaitStore
from asa.runner.folder import RunFolder
from asa.runner.journal import read_journal
from asa.runtimes.log import RunTimes
from asa.spec import reading as workflows

here = Path(sys.argv[1])

def peak_mb():  # of this process alone: what getrusage says begins with the peak of the one that started it
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024

def sparse(name):
    path = here / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(3 << 30)
    return path

def bomb():
    import zlib
    pack, piece, path = zlib.compressobj(9, zlib.DEFLATED, 31), b"a" * (1 << 24), here / "bomb.gz"
    with path.open("wb") as file:
        for _ in range(8):  # what comes after the bound is not unpacked: so much is enough
            file.write(pack.compress(piece))
        file.write(pack.flush())
    return path

def slurmrestd(encoding, begin, again):
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            one, _ = listening.accept()
            with one, one.makefile("rb") as asked:
                while line := asked.readline():
                    while asked.readline().strip():
                        pass
                    try:
                        if b"/jobs" not in line:
                            body = b'{"meta": {}, "pings": [{"pinged": "UP"}], "errors": []}'
                            one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                            continue
                        one.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + encoding + b"\r\n")
                        for piece in (begin, *[again] * 400_000):
                            one.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
                    except OSError:
                        break

    threading.Thread(target=serve, daemon=True).start()
    return RestLink(f"http://127.0.0.1:{listening.getsockname()[1]}", api="v0.0.42")

packed = gzip.compress(b" " * (1 << 26))
packed_line = bomb()
cases = {
    "a REST answer without end": slurmrestd(b"", b" ", b" " * 65536).queue,
    "a job without end": slurmrestd(b"", b'{"jobs": [{"name": "', b"a" * 65536).queue,
    "a compressed answer": slurmrestd(b"Content-Encoding: gzip\r\n", packed, b"").queue,
    "one compressed twice": slurmrestd(b"Content-Encoding: gzip, gzip\r\n", gzip.compress(packed), b"").queue,
    "a log of one line, as sacct's": lambda: read_sacct(packed_line),
    "a log of one line, as SWF": lambda: read_swf(packed_line),
    "a bank of one line": lambda: WaitStore(here / "new").import_(packed_line),
    "a sparse segment": lambda: (sparse("bank/live-x-1-0123456789abcdef.jsonl"), WaitStore(here / "bank").read()),
    "sparse run times": lambda: (sparse("b/runtimes/kept-0123456789abcdef.jsonl"), RunTimes(here / "b").read()),
    "a sparse journal": lambda: read_journal(sparse("journal.jsonl")),
    "a sparse run": lambda: RunFolder(sparse("run/run.json").parent),
    "a sparse document": lambda: read_text(sparse("text")),
    "a pipe without end": lambda: read_text("/dev/fd/%d" % os.popen("yes")._stream.fileno()),
    "a command without end": lambda: run_command(["yes"]),
    "squeue without end": lambda: process.run(["yes"], "", 60.0),
    "a token without end": lambda: TokenSource.from_file(sparse("token")).current(),
}
for name, read in cases.items():
    try:
        read()
    except Exception as error:
        print(name, "|", type(error).__name__, "|", " ".join(str(error).split()), "|",
              getattr(error, "strerror", "") or "", "|", peak_mb())
    else:
        print(name, "| read")
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.full
def test_what_is_larger_is_refused_in_words_and_takes_less_than_300_mb(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, timeout=120, check=True
    )
    lines = [line.split(" | ") for line in done.stdout.splitlines()]
    assert len(lines) == 16, done.stdout + done.stderr
    for name, *told in lines:
        assert len(told) == 4, name
        kind, words, _, peak_mb = told
        assert int(peak_mb) < 300, (name, peak_mb)
        if name == "one compressed twice":
            assert "broke" in words
            continue
        assert kind in {"TooLargeError", "LostAnswerError", "TraceError", "StateError", "JournalError", "InputError",
                        "AccessError"}, (name, told)  # fmt: skip
        assert "the most that asa reads of it" in words or "no log in the Standard" in words, (name, words)


def test_a_run_of_others_never_stops_the_list_of_runs(tmp_path, capsys, monkeypatch):
    runs = tmp_path / "runs"
    plan = {"id": "x" * 16, "name": "a", "workflow": "a", "strategy": "asa", "backend": "local", "stages": []}
    hostile = {
        "sparse": None,
        "deep": "[" * 100_000,
        "none": "",
        "other": json.dumps(plan),
        "numbers": json.dumps(plan | {"created_s": 1e308, "capabilities": {"system": "s", "max_cores": 1e400}}),
    }
    for name, text in hostile.items():
        folder = runs / f"{name}-20260101-000000-abcd"
        folder.mkdir(parents=True)
        if text is None:
            with (folder / "run.json").open("wb") as file:
                file.truncate(3 << 30)
        else:
            (folder / "run.json").write_text(text)
        (folder / "journal.jsonl").symlink_to("/dev/zero")
    monkeypatch.setattr(sys, "argv", ["asa", "runs", "--runs", str(runs), "--output", "json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert len(rows) == len(hostile)
    assert all(row["state"] == "damaged" and row["trouble"] for row in rows)
    assert any("the most that asa reads of it" in row["trouble"] for row in rows)


# ---------------------------------------------------------------------- what is the user's own


def _journal_of_70_mb(path):
    line = b'{"kind":"unexplained","token":"t","at_s":1.0,"words":"%s"}\n' % (b"x" * (1 << 20))
    path.write_bytes(line * 70)


def test_a_run_of_ones_own_is_read_however_long_its_journal_has_become(accounts):
    """Of another user's no more than 64 MiB are read, and what is said names that, not the path or its rights."""
    path = accounts.group_folder() / "journal.jsonl"
    accounts.victim.call(_journal_of_70_mb, path)
    assert accounts.victim.call(_entries, path) == 70
    said = accounts.stranger.call(_entries, path)
    assert "is not read: it is larger than 64 MiB" in said
    assert "ASA_READ_FACTOR=4" in said
    assert "permissions" not in said


def _entries(path):
    try:
        return len(read_journal(path)[0])
    except JournalError as error:
        return str(error)


# ---------------------------------------------------------------------- what is read, and how

OTHERWISE = {
    "asa/core/reading.py": "the reader itself",
    "asa/core/drawing.py": "a figure that was just written",
    "asa/core/documents.py": "of what is in memory",
    "asa/pool/credentials.py": "what openssl makes",
    "asa/job/__init__.py": "asa's own files",
    "asa/report/page/rendering.py": "asa's own files",
    "asa/importers/recording/inside.py": "of the standard library only: what asa has just written",
    "asa/importers/recording/stand_in.py": "likewise: what asa answers",
    "asa/importers/recording/recorder.py": "what runs prints where asa does, not into it",
    "asa/runner/folder.py": "the last line of a log, from where it begins",
    "asa/values.py": "what asa itself packed into a job's own command",
    "asa/call.py": "a function in the job's own command, which the system bounds",
    "backends/local/likeness.py": "asa's own files",
    "backends/local/srun.py": "of the standard library only: what ldd says of the user's own program",
    "backends/local/spool.py": "the queue's own folder, which is its user's alone, read by the standard library only",
    "backends/local/processes.py": "likewise",
    "backends/local/server.py": "likewise",
}


READERS = {"read_bytes", "readlines", "communicate", "read_text", "readline", "read", "run", "check_output"}
READERS |= {"decompress", "open", "load"}


@pytest.mark.full
def test_files_and_commands_are_read_by_the_one_reader():
    """So that a new one has a bound, too."""
    found = {}
    for file in sorted((*(ROOT / "asa").rglob("*.py"), *(ROOT / "backends").rglob("*.py"))):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
                called, whole = node.func.attr, ast.unparse(node.func)
                is_unbounded = (
                    called in {"read_bytes", "readlines", "communicate"}
                    or (called == "read_text" and "documents" not in whole)
                    or (called == "readline" and not node.args)
                    or (called == "read" and not node.args and whole.split(".")[0] in {"file", "opened", "stream"})
                    or whole in {"subprocess.run", "subprocess.check_output", "gzip.decompress", "zlib.decompress"}
                    or whole in {"gzip.open", "json.load", "tomllib.load"}
                )
                if is_unbounded:
                    found.setdefault(str(file.relative_to(ROOT)), f"{whole}, line {node.lineno}")
    assert {name: how for name, how in found.items() if name not in OTHERWISE and "backend.py" not in name} == {}


# ---------------------------------------------------------------------- the reader


def test_a_bound_is_what_may_be_read_and_no_byte_more(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert files.read_file(path, 100) == b"x" * 100
    with pytest.raises(reading.TooLargeError, match=r"larger than 99 bytes.*ASA_READ_FACTOR=4"):
        files.read_file(path, 99)
    monkeypatch.setenv("ASA_READ_FACTOR", "2")
    assert files.read_file(path, 50) == b"x" * 100
    for nonsense in ("", "0", "-4", "nan", "inf", "many"):
        monkeypatch.setenv("ASA_READ_FACTOR", nonsense)
        assert reading.bound(50) == 50


@pytest.mark.parametrize("size", [0, 1, 10, 1 << 18, (1 << 18) + 1])
def test_a_pipe_is_read_to_its_end(size):
    with subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE) as process:
        assert len(reading.read_whole(process.stdout, "pipe")) == size


def test_lines_are_read_whole_whatever_the_blocks(tmp_path):
    path = tmp_path / "lines"
    text = b"\n".join(b"x" * (7 * place % 23) for place in range(500))
    path.write_bytes(text)
    for block in (1, 3, 64, 10_000):
        with path.open("rb") as file:
            assert b"".join(reading.read_blocks(file, path, block_bytes=block)) == text
    with path.open("rb") as file:
        assert list(reading.read_lines(file, path)) == text.split(b"\n")


def test_what_was_packed_is_unpacked_in_small_pieces():
    text = json.dumps(list(range(100_000))).encode()
    for packed, encoding in ((gzip.compress(text), "gzip"), (zlib.compress(text), "deflate")):
        pieces = [packed[at : at + 999] for at in range(0, len(packed), 999)]
        assert b"".join(reading.inflated(pieces, encoding)) == text
        with pytest.raises(zlib.error, match="cut off"):
            list(reading.inflated(pieces[:-1], encoding))
    assert max(map(len, reading.inflated([gzip.compress(bytes(1 << 24))], "gzip"))) <= 1 << 18
    with pytest.raises(zlib.error, match="not read"):
        list(reading.inflated([b""], "br"))


def test_a_document_has_no_more_values_than_there_is_memory_for():
    assert len(read_json("[" + "1," * 1_000_000 + "1]")) == 1_000_001
    with pytest.raises(ValueError, match="more than 2,000,000 values"):
        read_json("[" + "[]," * 2_000_000 + "[]]")
    with pytest.raises(ValueError, match="more than 100 parts"):
        read_toml(".".join("a" * 200) + " = 1")
    assert read_toml(".".join("a" * 90) + " = 1")
