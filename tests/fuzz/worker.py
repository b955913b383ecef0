"""Gives generated input to one reader, in a process that another watches; notes what a reader does that none may do.

A finding is an error that is no refusal, more CPU time or memory than any input may take, a program that was started,
a file outside the input's folder that was opened for writing, or a changed input.
"""

import contextlib
import json
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.coverage import ROOT, Lines
from fuzz.mutation import CANARY, MAX_INPUT_BYTES, Mutator
from fuzz.readers import READERS, kept

MAX_CPU_S = 10.0
MAX_BYTES = 1 << 30
_STUCK_S = 60.0  # CPU seconds of a process that does not even heed its alarm: within compiled code
_IDLE_S = 60.0  # seconds without CPU time: it waits for something
_HEAD = struct.Struct("<QQQQQQd")  # inputs, refused, kept, lines, findings, size of the current input, when it began
_FOLLOWED, _FOLLOWED_SHARE = 30, 0.15  # to note lines takes several times as long, before Python 3.12
_LARGE = 30_000
_MIN_TRIES, _MAX_TRIES, _MINIMISE_S = 50, 400, 20.0
_STARTS = {
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.system",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "pty.spawn",
    "os.kill",
    "os.killpg",
}
_CHANGES = {
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.chmod": 1,
    "os.chown": 1,
    "os.truncate": 1,
    "os.mkdir": 1,
    "os.symlink": 2,
    "os.link": 2,
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class TooLongError(BaseException):
    """It took more CPU time than any input may."""


class ForbiddenError(BaseException):
    """A reader did what none may do."""


class Watch:
    """What this process starts, and which files it writes, by Python's audit events."""

    def __init__(self):
        self.is_on, self.place, self.programs, self.wrong = False, "", (), []
        sys.addaudithook(self._hear)

    def _hear(self, event, arguments):
        if not self.is_on:
            return
        if event in _STARTS:
            if (event in {"os.kill", "os.killpg"} and arguments[0] in {os.getpid(), 0}) or event == "os.fork":
                return
            program = arguments[0] if arguments else ""
            name = Path(os.fsdecode(program)).name if isinstance(program, str | bytes | os.PathLike) else str(program)
            words = (
                " ".join(map(str, arguments[1]))
                if len(arguments) > 1 and isinstance(arguments[1], list | tuple)
                else ""
            )
            if name not in self.programs or CANARY in words:
                self.wrong.append(f"started {event} {name} {words[:200]}")
        elif event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITES and isinstance(path, str | bytes):
                self._check(event, path)
        elif event in _CHANGES:
            for path in arguments[: _CHANGES[event]]:
                if isinstance(path, str | bytes | os.PathLike):
                    self._check(event, path)

    def _check(self, event, path):
        whole = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are not followed
        if (
            not f"{whole}/".startswith((self.place, "/dev/null", "/dev/tty", f"{ROOT}/build"))
            and "__pycache__" not in whole
        ):
            self.wrong.append(f"{event} of {whole}")


def _folder(path):
    path.mkdir()


def _missing(path):
    """Leave nothing there."""


def _link_to_itself(path):
    path.symlink_to(path.name)


def _link_to_a_device(path):
    path.symlink_to("/dev/zero")


def _link_to_memory(path):
    path.symlink_to("/proc/self/mem")


def _large(path):
    with path.open("wb") as file:
        file.truncate(3 << 30)


PLACES = (_folder, _missing, _link_to_itself, _link_to_a_device, _link_to_memory, _large)
"""What may be in the place of a file."""


@dataclass
class Finding:
    """Input that a reader does not bear."""

    reader: str
    why: str
    where: str
    data: bytes = field(repr=False)
    detail: str = ""

    @property
    def signature(self):
        """What other findings of the same fault have in common with it."""
        return self.reader, self.why, self.where


class Trier:
    """Tries input on one reader."""

    def __init__(self, reader, scratch):
        self.reader, self.scratch = reader, Path(scratch)
        self.watch = Watch()
        self._folder = self.scratch / "input"
        self._path = self._folder / reader.file
        self._peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._make()
        signal.signal(signal.SIGPROF, self._give_up)

    def _make(self):
        """Make the input's folder as it is before anything is read."""
        os.chdir(self.scratch)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self.reader.provide(self._folder)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(b"")
        self._provided = _listing(self._folder)
        os.chdir(self._folder)

    def put(self, data):
        """Write the input, and return its path."""
        with open(self._path, "wb") as file:  # noqa: PTH123 - a million times
            file.write(data)
        return self._path

    def _give_up(self, *_):
        if self.watch.is_on:
            raise TooLongError

    def try_place(self, way):
        """Let the reader find something else in the place of its file; return the finding if there is one."""
        self._path.unlink()
        way(self._path)
        _, finding = self._try(b"", None)
        if finding is not None:
            finding.why = f"{way.__name__[1:]}: {finding.why}"
        self._make()
        return finding

    def try_one(self, data, lines=None):
        """Let the reader read; return whether it was refused, and the finding if there is one."""
        self.put(data)
        return self._try(data, lines)

    def _try(self, data, lines):  # noqa: C901 - one case a fault
        path, watch = self._path, self.watch
        watch.place, watch.programs, watch.wrong = f"{self.scratch}/", self.reader.programs, []
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)
        watch.is_on = True
        refused, finding = False, None
        try:
            if lines is None:
                self.reader.read(path, data)
            else:
                with lines:
                    self.reader.read(path, data)
        except self.reader.refusals as error:
            refused = True
            if not str(error).strip():
                finding = self._finding("refused without a word", error, data)
        except TooLongError as error:
            finding = self._finding(f"took more than {MAX_CPU_S:g} s", error, data, is_long=True)
        except MemoryError as error:
            finding = self._finding("MemoryError", error, data, is_long=True)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            finding = self._finding(type(error).__name__, error, data)
        finally:
            watch.is_on = False
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        why, detail = self._changed()
        if watch.wrong:
            why, detail = watch.wrong[0].replace(str(self._folder), "")[:120], "\n".join(watch.wrong)
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # once: the call takes milliseconds
        grown_kib, self._peak_kib = peak_kib - self._peak_kib, peak_kib
        if grown_kib << 10 > MAX_BYTES:
            why, detail = f"took more than {MAX_BYTES >> 20} MiB of memory", f"{grown_kib} KiB"
        if why and finding is None:
            finding = Finding(self.reader.name, why, "", data, detail)
        return refused, finding

    def _changed(self):
        """Return what is wrong with the files that are there now, which are then made as they were."""
        now, own = _listing(self._folder), str(self._path)
        self._provided[own] = now.get(own)
        if now == self._provided:
            return "", ""
        lost = [name for name, was in self._provided.items() if name != own and now.get(name) != was]
        made = [name for name in now if CANARY in name.rpartition("/")[2]]
        if lost or made or now.keys() != self._provided.keys():
            self._make()
        if made and Path(made[0]).name == CANARY:
            return f"made {CANARY}", ""
        return ("changed what lay beside it", " ".join(lost)) if lost else ("", "")

    def _finding(self, why, error, data, *, is_long=False):
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(ROOT))]
        ours = [frame for frame in frames if "/tests/" not in frame.filename] or frames
        last = ours[min(3, len(ours) - 1) if is_long else -1] if ours else None
        where = f"{Path(last.filename).relative_to(ROOT)}:{last.name}" if last else ""
        text = "".join(traceback.format_exception(error, limit=-14))
        return Finding(self.reader.name, why, where, data, text[-4000:])


def _listing(folder):
    """Return the files of a folder with what changes if somebody writes them."""
    found, folders = {}, [str(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                about = entry.stat(follow_symlinks=False)
                found[entry.path] = 0 if entry.is_dir(follow_symlinks=False) else (about.st_mtime_ns, about.st_size)
    return found


def tried(inputs):
    """Try input on its readers, pairs of a name and bytes, in a process of its own; return what is found."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryDirectory(prefix="asa-fuzz-") as scratch:
        if not (pid := os.fork()):
            code = 1
            try:
                os.environ["HOME"] = scratch
                triers = {}
                for number, (name, data) in enumerate(inputs):
                    if name not in triers:
                        (Path(scratch) / str(number)).mkdir()
                        triers[name] = Trier(READERS[name], Path(scratch) / str(number))
                    os.chdir(triers[name].scratch / "input")
                    _, finding = triers[name].try_one(data)
                    if finding is not None:
                        _say(out, finding)
                code = 0
            except BaseException:  # noqa: BLE001 - a process of its own ends here
                traceback.print_exc()
            finally:
                os._exit(code)
        assert not os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "the process of the readers died"
        out.seek(0)
        return [_finding_of(line) for line in out]


def _finding_of(line):
    row = json.loads(line)
    return Finding(row["reader"], row["why"], row["where"], bytes.fromhex(row["data"]), row["detail"])


def minimised(trier, finding):
    """Return a finding with less input: parts are left out as long as the fault stays."""
    data, until_s = finding.data, time.monotonic() + _MINIMISE_S
    if "more than" in finding.why:
        return finding
    size, tries = max(len(data) // 2, 1), 0
    while size and tries < _MAX_TRIES and time.monotonic() < until_s:
        at, has_shrunk = 0, False
        while at < len(data) and tries < _MAX_TRIES and time.monotonic() < until_s:
            fewer = data[:at] + data[at + size :]
            tries += 1
            _, again = trier.try_one(fewer)
            if again is not None and again.signature == finding.signature:
                data, has_shrunk, finding = fewer, True, again
            else:
                at += size
        size = size if has_shrunk and size > 1 and tries < _MIN_TRIES else size // 2
    return finding


def loop(name, *, seed, inputs, until_s, board, out, follows=True):
    """Try generated input on a reader until there was enough; findings go to a stream, a line each."""
    reader = READERS[name]
    draw = random.Random(f"{seed} {name}")
    corpus = [*reader.samples(), *kept(name)]
    assert corpus, f"{name} has no samples"
    mutator = Mutator(draw, reader.words())
    counts = {"inputs": 0, "refused": 0, "kept": 0, "findings": 0}
    known = set()
    with tempfile.TemporaryDirectory(
        prefix="asa-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    ) as scratch:
        os.environ.update(
            HOME=scratch, TMPDIR=scratch, XDG_CACHE_HOME=f"{scratch}/cache", ASA_RUNS=f"{scratch}/runs", COLUMNS="100"
        )
        tempfile.tempdir = scratch
        trier, lines = Trier(reader, scratch), Lines()
        _limit_memory()
        for data in corpus:  # what is loaded at first is no input's fault
            with contextlib.suppress(BaseException):
                reader.read(trier.put(data), data)
        for way in PLACES:
            finding = trier.try_place(way)
            if finding is not None:
                counts["findings"] += 1
                _say(out, finding)
        start = list(corpus)
        corpus = [data for data in corpus if len(data) < _LARGE] or corpus  # a change of a large one takes too long
        while counts["inputs"] < inputs and time.monotonic() < until_s:
            number = counts["inputs"]
            if number < len(start):
                data = start[number]
            else:
                data = mutator.mutate(draw.choice(corpus if draw.random() < 0.7 else corpus[-20:]), corpus)
                if reader.seal is not None and draw.random() < 0.9:
                    data = reader.seal(data)
            _tell(board, counts, lines, data)
            is_followed = (
                follows
                and len(data) < _LARGE
                and (lines.is_cheap or number < len(start) + _FOLLOWED or draw.random() < _FOLLOWED_SHARE)
            )
            refused, finding = trier.try_one(data, lines if is_followed else None)
            counts["inputs"] += 1
            counts["refused"] += refused
            if is_followed and lines.found and number >= len(start) and len(data) < _LARGE:
                corpus.append(data)
                counts["kept"] += 1
            if finding is not None and finding.signature not in known:
                known.add(finding.signature)
                counts["findings"] += 1
                _say(out, minimised(trier, finding))
        _tell(board, counts, lines, b"")


def _limit_memory():
    """Let this process have 2 GiB more than it has: one that needs these is refused memory, and not the computer."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2 * MAX_BYTES,) * 2)


def _say(out, finding):
    row = {
        "reader": finding.reader,
        "why": finding.why,
        "where": finding.where,
        "detail": finding.detail,
        "data": finding.data.hex(),
    }
    out.write(json.dumps(row) + "\n")
    out.flush()


def _tell(board, counts, lines, data):
    """Let the process that watches see how far this one is, and with which input."""
    head = _HEAD.pack(
        counts["inputs"],
        counts["refused"],
        counts["kept"],
        lines.count,
        counts["findings"],
        len(data),
        time.monotonic(),
    )
    board[: _HEAD.size] = head
    board[_HEAD.size : _HEAD.size + len(data)] = data


class Watched:
    """A reader's process, and what is seen of it."""

    def __init__(self, name, *, seed, inputs, until_s, follows=True):
        self.name, self.seed = name, seed
        self._board = mmap.mmap(-1, _HEAD.size + MAX_INPUT_BYTES + 1)
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with what it holds
        sys.stdout.flush()
        sys.stderr.flush()
        self._seen = (-1, 0.0, time.monotonic())
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, 0)
                loop(name, seed=seed, inputs=inputs, until_s=until_s, board=self._board, out=self._out, follows=follows)
                code = 0
            except BaseException:  # noqa: BLE001 - a process of its own ends here
                traceback.print_exc()
            finally:
                os._exit(code)

    @property
    def counts(self):
        """Return the numbers of inputs, refused and kept ones, lines reached and findings."""
        return _HEAD.unpack(self._board[: _HEAD.size])[:5]

    def _current(self):
        *_, size, _ = _HEAD.unpack(self._board[: _HEAD.size])
        return self._board[_HEAD.size : _HEAD.size + size]

    def poll(self):
        """Return whether it has ended; end it if it does not by itself."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self._died = (
                "" if os.waitstatus_to_exitcode(status) == 0 else f"ended with {os.waitstatus_to_exitcode(status)}"
            )
            return True
        cpu_s, now_s = _cpu_s(self.pid), time.monotonic()
        count, since_cpu_s, since_s = self._seen
        if self.counts[0] != count:
            self._seen = (self.counts[0], cpu_s, now_s)
        elif cpu_s - since_cpu_s > _STUCK_S or (now_s - since_s > _IDLE_S and cpu_s - since_cpu_s < 1.0):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._died = "does not end" if cpu_s - since_cpu_s > _STUCK_S else "waits for ever"
            return True
        return False

    def findings(self):
        """Return what was found; also what ended the process."""
        self._out.seek(0)
        found = [_finding_of(line) for line in self._out]
        if self._died:
            found.append(Finding(self.name, self._died, "", self._current()))
        self._out.close()
        self._board.close()
        return found


def _cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def file_name(finding):
    """Name a finding's file: by its fault, and what it holds."""
    fault = "".join(
        letter if letter.isalnum() else "-" for letter in f"{finding.why}-{finding.where.rpartition(':')[2]}"
    )[:60]
    return f"{fault}-{zlib.crc32(finding.data):08x}"
