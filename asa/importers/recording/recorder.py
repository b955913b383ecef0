"""Runs a driver once, with stand-ins for Slurm's programs, and records its submissions. None reaches Slurm.

The driver sees the file system as it is; its writes are discarded (`inside`). The stand-ins ask a `Programs` in this
process, over a socket, how to answer.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import socketserver
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from asa.core import python, temporary
from asa.core.documents import read_file, read_json, read_text
from asa.core.files import in_words
from asa.core.typed import made
from asa.errors import InputError
from asa.requests.directives import Directive

from .own_job import own_options, variables_of
from .processes import Process, is_idle, lineage_of
from .programs import ELSEWHERE_PROGRAMS, OWN_JOB, OWN_PROGRAMS, REAL_PROGRAMS, Asked, Programs
from .queue import RecordedQueue
from .submissions import FIRST_NUMBER, Submission

_BETWEEN_LOOKS_S: Final = 0.02
_PATIENCE_S: Final = 10.0
"""How long ``sbatch --wait`` waits for a driver that is busy but submits nothing."""
_SLEEPS_WITHOUT_A_CALL: Final = 3
_MAX_BYTES: Final = 64 << 20
_MAX_BYTES_OF_A_SCRIPT: Final = 4 << 20
_LONGEST_FIRST_LINE: Final = 120  # maximum length of a script's first line on older systems
_HERE = Path(__file__).parent
_FULL_PATH: Final = re.compile(r"(?<![\w./-])/[\w./-]*/(?:sbatch|srun|salloc)\b")
_SITE_CUSTOMIZE = """\
import os, sys, time
time.sleep = lambda seconds: open({slept!r}, "a").write(".") and None
folder = os.path.dirname(__file__)
sys.path[:] = [place for place in sys.path if place != folder]
os.environ.pop("PYTHONPATH", None)
os.environ.update({before!r})
own = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = own
"""
"""Code for each Python that the driver starts: sleeps take no time; then the site's own customization is loaded."""


class NoPrivateViewError(InputError):
    """The system does not allow a private view of the files for the driver."""


@dataclass(frozen=True, slots=True)
class LeftByDriver:
    """The driver's output besides jobs, with paths as the driver sees them."""

    new: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    changed: tuple[Path, ...] = ()
    removed: tuple[Path, ...] = ()
    too_large: tuple[tuple[Path, int], ...] = ()
    temporary: tuple[Path, ...] = ()  # paths in temporary folders
    contents: Mapping[Path, bytes] = field(default_factory=dict)  # contents of new and changed files, without links
    links: Mapping[Path, str] = field(default_factory=dict)
    modes: Mapping[Path, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recording:
    """The record of a driver's run."""

    commands: tuple[tuple[str, ...], ...]  # run one after the other
    folder: Path  # where they were started
    environment: Mapping[str, str]  # with which they were started
    jobs: tuple[Submission, ...]
    refused: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    code: int  # its exit code
    was_ended: bool  # whether the time limit ended it
    behind: tuple[str, ...]  # processes that it left running, which were ended
    closed: tuple[str, ...]  # folders where it could not write
    fixed: tuple[str, ...]  # other users' files that it could not change although its user may
    made: LeftByDriver
    read: tuple[Path, ...]
    limit_s: float
    is_private: bool
    script: Path | None  # the driver's file, if known
    script_word: str  # the word of the command that names it
    own_number: int = 0  # job number of the driver, if it is a batch script; 0 if not
    own_options: tuple[Directive, ...] = ()  # options of that job
    own_jobs: tuple[Submission, ...] = ()  # for a session: batch scripts that its shell ran as programs
    stand_ins: tuple[str, ...] = ()  # folders of the stand-ins in PATH and PYTHONPATH

    @property
    def words(self) -> str:
        """The recorded commands, as a user would type them."""
        return "; ".join(map(shlex.join, self.commands))

    @property
    def script_name(self) -> str:
        """The file name of the driver's script."""
        return self.script.stem if self.script is not None else ""

    def without_stand_ins(self, path: str) -> str:
        """Return a search path without the stand-ins."""
        return ":".join(folder for folder in path.split(":") if folder not in self.stand_ins)


def record(
    *commands: Sequence[str],
    limit_s: float = 120.0,
    is_private: bool = True,
    has_network: bool = False,
    folder: Path | None = None,
    is_session: bool = False,
) -> Recording:
    """Run a driver, and record what it submits.

    `commands`: one or several command lines, run one after the other. `limit_s`: seconds after which the driver is
    ended. Submissions recorded until then are kept. `is_private`: whether its writes are discarded; otherwise all its
    actions are real, except submissions. `has_network`: whether the driver may reach other machines. `folder`: where it
    is started; by default the current one. `is_session`: whether it is an interactive shell in which the user starts
    drivers. Raises `InputError`: a command cannot be started. Raises `NoPrivateViewError`: the system allows no private
    view; nothing was run.
    """
    try:
        folder = (folder or Path.cwd()).absolute()
    except FileNotFoundError as error:
        raise InputError("the current folder is gone", where="--record", hint="Change to another folder.") from error
    command = commands[-1]
    if len(commands) > 1:
        _refuse_batch_jobs(commands, folder)
    script, word = _script_of(command, folder) if len(commands) == 1 else (None, "")
    if not is_private and script is not None:
        _refuse_real_calls(script)
    own = own_options(script) if script is not None else ()
    if several := next((option for option in own if option.name == "array"), None):
        hint = "Take the option out of a copy that you record, or record what one element does: sh -c '...'"
        raise InputError("submits jobs in each element of an array", where=several.where, hint=hint)
    own_number = FIRST_NUMBER if own else 0
    first = FIRST_NUMBER + 1 if own_number else FIRST_NUMBER
    with temporary.folder("asa-record-") as place:
        keep = Path(place)
        slept = keep / "slept"
        slept.touch()

        def count_sleeps() -> int:
            return slept.stat().st_size

        queue = RecordedQueue(getpass.getuser(), count_sleeps, first=first)
        answers = Programs(queue, os.environ.get("PATH", os.defpath), is_session=is_session)
        with _serving(_Desk(answers, str(keep), count_sleeps), keep / "desk") as desk:
            programs = keep / "programs"
            reaches = has_network or not is_private
            _make_programs(programs, desk, () if reaches else ELSEWHERE_PROGRAMS)
            environment = _environment(programs, keep)
            if is_session:
                _write_own_job(keep, desk)
                environment["BASH_ENV"] = str(keep / "begin.bash")
            if script is not None and own_number:
                environment |= variables_of(own_number, own, folder, script)
            passed_over = ["/var/tmp", "/run", "/dev", os.environ.get("TMPDIR", "/tmp"), "/tmp", f"{Path.home()}/."]  # noqa: S108
            settings = {
                "commands": [list(words) for words in commands], "folder": str(folder), "programs": str(programs),
                "limit_s": limit_s, "is_private": is_private, "has_network": has_network, "max_bytes": _MAX_BYTES,
                "passed_over": passed_over,
            }  # fmt: skip
            (keep / "settings.json").write_text(json.dumps(settings))
            inside = python.bare_command(str(_HERE / "inside.py"), str(keep / "settings.json"))
            with _ignoring_interrupts():
                subprocess.run(  # noqa: S603 - the user's command
                    inside, env=environment, stdout=2, check=False
                )
            ended = _ended(keep, command)
            left = _made(keep, ended)
    return Recording(
        tuple(tuple(words) for words in commands), folder, environment, tuple(queue.jobs), tuple(answers.refused),
        (*answers.remarks, *_of_what_it_awaited(queue)),
        ended.code, ended.was_ended, ended.behind, ended.closed, ended.fixed, left,
        tuple(map(Path, ended.read)), limit_s, is_private, script, word, own_number, own,
        tuple(queue.own_jobs), (str(programs), str(keep / "python")),
    )  # fmt: skip


def _of_what_it_awaited(queue: RecordedQueue) -> Iterator[str]:
    """Yield a note if the driver waited for jobs and submitted nothing afterwards: no run does what it did then."""
    if names := [job.name for job in queue.awaited_last()]:
        listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        yield (
            f"the driver waited for the end of {listed}, and submitted nothing after it: what it does then, perhaps by "
            "files that they leave, no run does"
        )


def _refuse_batch_jobs(commands: Sequence[Sequence[str]], folder: Path) -> None:
    """Refuse several drivers if one is a batch job itself: only a single one becomes a stage."""
    for command in commands:
        script, _ = _script_of(command, folder)
        if script is not None and own_options(script):
            hint = "Record it alone, in a file of its own."
            raise InputError("is a batch job itself, and is recorded alone", where=str(script), hint=hint)


def _script_of(command: Sequence[str], folder: Path) -> tuple[Path | None, str]:
    """Return the driver's file, which is the command or an interpreter's argument; and the word that names it."""
    if command[0].rpartition("/")[2] in OWN_PROGRAMS:
        return None, ""
    for word in command[:3]:
        path = folder / word
        if path.is_file() and (path.stat().st_size < _MAX_BYTES_OF_A_SCRIPT):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                read_file(path, _MAX_BYTES_OF_A_SCRIPT).decode()
                return path, word
    return None, ""


def _refuse_real_calls(script: Path) -> None:
    """Refuse a driver that would really submit, since it calls a program by a full path that has no stand-in."""
    if match := _FULL_PATH.search(read_text(script, errors="replace")):
        hint = "Without --in-place the stand-in is there, too. Or write it without the folder."
        raise InputError(f"calls {match[0]} by its full path: it would really submit", where=str(script), hint=hint)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How the driver ended, and paths of what it left, as the program that ran it notes them."""

    no_view: str = ""
    why_not: str = ""  # the reason if it could not be started
    code: int = 0
    was_ended: bool = False
    behind: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    left: tuple[tuple[str, int], ...] = ()
    temporary: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


def _ended(keep: Path, command: Sequence[str]) -> _Ended:
    """Read how the driver ended."""
    try:
        ended = made(_Ended, read_json(read_file(keep / "ended.json")))
    except (OSError, ValueError) as error:
        raise InputError("the recording was ended", where=shlex.join(command), hint="Try again.") from error
    if ended.no_view:
        raise NoPrivateViewError(
            f"this system does not let a program have its own view of the files ({ended.no_view})",
            where="--record",
            hint="With --in-place it runs as it is: nothing is submitted, but what it does besides is really done. Or "
            "record where namespaces of users are allowed, such as on another login node.",
        )
    if ended.why_not:
        hint = _how_to_make_executable(command[0])
        hint = hint or "Give the command as a shell would run it, such as ./submit.sh or python3 submit.py."
        raise InputError(f"cannot be started: {ended.why_not}", where=command[0], hint=hint)
    return ended


def _how_to_make_executable(program: str) -> str:
    """Return what to do if a file is not executable; empty for other programs."""
    path = Path(program)
    if "/" not in program or not path.is_file() or os.access(path, os.X_OK):
        return ""
    shell = {".py": "python3", ".sh": "bash"}.get(path.suffix)
    quoted = shlex.quote(program)
    else_do = f", or give the command `{shell} {quoted}`" if shell else ""
    return f"The file is not executable: `chmod u+x {quoted}`{else_do}."


def _made(keep: Path, ended: _Ended) -> LeftByDriver:
    """Read the driver's output, before it is removed."""
    contents, links, modes = {}, {}, {}
    for path in map(Path, [*ended.new, *ended.changed]):
        kept = Path(f"{keep}/made{path}")
        if kept.is_symlink():
            links[path] = str(kept.readlink())
        else:
            with in_words("cannot be read, as the driver left it", path, "Is there space for temporary files?"):
                contents[path] = read_file(kept, _MAX_BYTES)
                modes[path] = kept.stat().st_mode & 0o777
    paths = (ended.new, ended.folders, ended.changed, ended.removed)
    new, folders, changed, removed = (tuple(map(Path, some)) for some in paths)
    too_large = tuple((Path(path), size) for path, size in ended.left)
    return LeftByDriver(
        new, folders, changed, removed, too_large, tuple(map(Path, ended.temporary)), contents, links, modes
    )


# ---------------------------------------------------------------------- the driver's surroundings


def _make_programs(folder: Path, desk: Path, more: Sequence[str]) -> None:
    """Write the stand-ins."""
    folder.mkdir()
    stand_in = folder.parent / "stand_in.py"
    shutil.copyfile(_HERE / "stand_in.py", stand_in)
    first = " ".join(python.bare_command())
    is_direct = len(python.bare_command()[0].split()) == 1 and len(first) < _LONGEST_FIRST_LINE
    for name in (*OWN_PROGRAMS, *REAL_PROGRAMS, *more):
        if is_direct:
            # not by a shell, since some shells drop variables with functions
            text = f"import sys\nsys.path.insert(0, {str(folder.parent)!r})\nfrom stand_in import main\n"
            text += f"sys.exit(main({str(desk)!r}, {name!r}, sys.argv[1:]))\n"
            _write_program(folder / name, text, first.replace(" -I -S", " -IS"))
        else:
            _write_program(folder / name, f'exec {_call(stand_in, desk, name)} "$@"\n')
    for name in ("sleep", "usleep"):
        _write_program(folder / name, f"echo >> {shlex.quote(str(folder.parent / 'slept'))}\n")


def _call(stand_in: Path, desk: Path, name: str) -> str:
    return shlex.join(python.bare_command(str(stand_in), str(desk), name))


def _write_own_job(keep: Path, desk: Path) -> None:
    """Let each script that bash runs request the variables of its job, if it is a batch script."""
    before = os.environ.get("BASH_ENV", "")
    text = f"[ ! -f {shlex.quote(before)} ] || . {shlex.quote(before)}\n" if before else ""
    call = _call(keep / "stand_in.py", desk, OWN_JOB)
    text += f'if [ -f "$0" ] && grep -q \'^#SBATCH\' -- "$0"; then eval "$({call})"; fi\n'
    (keep / "begin.bash").write_text(text)


def _write_program(path: Path, text: str, interpreter: str = "/bin/sh") -> None:
    path.write_text(f"#!{interpreter}\n{text}")
    path.chmod(0o755)


def _environment(programs: Path, keep: Path) -> dict[str, str]:
    environment = dict(os.environ)
    environment["PATH"] = f"{programs}:{environment.get('PATH', os.defpath)}"
    modules = keep / "python"
    modules.mkdir()
    before = environment.get("PYTHONPATH")
    own = {} if before is None else {"PYTHONPATH": before}
    (modules / "sitecustomize.py").write_text(_SITE_CUSTOMIZE.format(before=own, slept=str(keep / "slept")))
    environment["PYTHONPATH"] = f"{modules}:{before}" if before else str(modules)
    return environment


class _DeskServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 256


class _Desk:
    """Answers the stand-ins one after the other; a stand-in of ``sbatch --wait`` once the driver does nothing else."""

    def __init__(self, answers: Programs, stand_ins: str, count_sleeps: Callable[[], int]) -> None:
        self._answers = answers
        self._stand_ins = stand_ins
        self._count_sleeps = count_sleeps
        self._one_at_a_time = threading.Lock()
        self._waiting: dict[int, tuple[Process, ...]] = {}  # waiting calls of ``sbatch --wait``: lineage, by job number
        self._called_s = time.monotonic()  # time of the last call
        self._slept = 0  # number of the driver's sleeps at that time
        self._ends_at_once = 1

    def serve(self, connection: socket.socket, receive: Callable[[], dict[str, Any]]) -> None:
        """Answer a call."""
        number, *_ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        lineage = lineage_of(number, os.getpid())

        def send(answer: Mapping[str, Any]) -> None:
            connection.sendall(json.dumps(answer).encode() + b"\n")

        def talk(question: Mapping[str, Any]) -> dict[str, Any]:
            send(question)
            return receive()

        asked = Asked(**receive(), lineage=lineage[:-1])
        with self._one_at_a_time:
            answer = self._answers.answer(asked, talk)
            self._called_s, self._slept, self._ends_at_once = time.monotonic(), self._count_sleeps(), 1
            if job := answer.pop("awaits", 0):
                self._waiting[job] = lineage
        while job in self._waiting:
            time.sleep(_BETWEEN_LOOKS_S)
            if select.select([connection], [], [], 0)[0]:  # the stand-in was killed
                with self._one_at_a_time:
                    self._waiting.pop(job, None)
                return
            if job == min(self._waiting, default=0):
                self._let_some_end(lineage[-1].number)
        send(answer)

    def _let_some_end(self, top: int) -> None:
        """If the driver only waits for jobs, end one of them; two if it submits nothing after that.

        The number doubles each time. So all jobs that it submits in parallel are known before any of them has ended.
        """
        called_s, waiting = self._called_s, frozenset(lineage[0].number for lineage in self._waiting.copy().values())
        has_slept = self._count_sleeps() - self._slept > _SLEEPS_WITHOUT_A_CALL
        is_late = time.monotonic() - called_s > _PATIENCE_S
        if not (has_slept or is_late or is_idle(top, waiting, self._stand_ins)):
            return
        with self._one_at_a_time:
            if called_s != self._called_s:
                return
            if is_late and not has_slept:
                self._answers.remarks.setdefault(
                    "the driver did something else for long while `sbatch --wait` waited: what it submitted then may "
                    "follow a job that it is meant to run together with"
                )
            for job in sorted(self._waiting)[: self._ends_at_once]:
                self._answers.end(job, self._waiting.pop(job)[:-1])
            self._ends_at_once *= 2
            self._called_s, self._slept = time.monotonic(), self._count_sleeps()


@contextlib.contextmanager
def _serving(desk: _Desk, socket_path: Path) -> Iterator[Path]:
    """Serve the stand-ins, in a thread."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            def receive() -> dict[str, Any]:
                document: dict[str, Any] = read_json(self.rfile.readline() or b"{}")
                return document

            # the stand-in was killed
            with contextlib.suppress(ConnectionError, ValueError, KeyError, TypeError, IndexError):
                desk.serve(self.connection, receive)

    # through a descriptor, since the folder's path may be longer than a socket's address
    folder = os.open(socket_path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        made = _DeskServer(f"/proc/self/fd/{folder}/{socket_path.name}", Handler)
    finally:
        os.close(folder)
    with made as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield socket_path
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the driver; submissions recorded until then are kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
