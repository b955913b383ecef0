"""Two real accounts on this machine, for tests of what one user can do to another.

The fixture `accounts` (in conftest.py) gives a victim and a stranger, a folder that both may enter, and folders of the
group that they share. Both are uids without a name in the system, which is not changed; the processes of each have no
rights but theirs. Only root can become somebody else: elsewhere these tests are skipped, with the reason.
"""

import contextlib
import ctypes
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VICTIM_UID, STRANGER_UID, GROUP = 64201, 64202, 64200
_REPOSITORY = Path(__file__).parents[1]
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 1 << 12, 1 << 14, 1 << 18
_READ_EXECUTE = 0o005


@dataclass(frozen=True)
class Account:
    """A user: of the group that both share, with a home of his own."""

    name: str
    uid: int
    home: Path

    @property
    def environment(self):
        """Return the environment of this user's processes."""
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "HOME": str(self.home),
            "USER": self.name,
            "LOGNAME": self.name,
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "ASA_LATENCY_S": "2",
        }

    def run(self, *command, cwd=None, env=None, umask=0o022, timeout=60, check=False, **options):
        """Run a program as this user, and return what `subprocess.run` does."""
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            list(map(str, command)),
            cwd=cwd or self.home, env=self.environment | (env or {}), timeout=timeout, check=check, text=True,
            preexec_fn=lambda: self._become(umask), capture_output=True, **options,
        )  # fmt: skip

    def start(self, *command, cwd=None, env=None, umask=0o022, **options):
        """Begin a program as this user, and return its `subprocess.Popen`, which the caller ends."""
        return subprocess.Popen(
            list(map(str, command)),
            cwd=cwd or self.home, env=self.environment | (env or {}), text=True,
            preexec_fn=lambda: self._become(umask), **options,  # noqa: PLW1509 - no threads here
        )  # fmt: skip

    def sh(self, script, *arguments, **options):
        """Run a script of bash as this user."""
        return self.run("bash", "-c", script, "bash", *arguments, **options)

    def asa(self, *arguments, **options):
        """Run a command of asa as this user: a process that is forked from this one, which has imported asa."""
        from asa.cli import main

        _import_once()
        return self._forked(lambda: _exit_code(main, list(map(str, arguments))), arguments, **options)

    def call(self, function, *arguments, **options):
        """Call a function as this user, in a process of its own; return its value, or raise its exception."""
        with tempfile.TemporaryFile() as answer:

            def work():
                try:
                    value = function(*arguments), None
                except BaseException as error:  # noqa: BLE001 - for who called
                    value = None, error
                try:
                    data = pickle.dumps(value)
                except Exception:  # noqa: BLE001 - likewise
                    data = pickle.dumps((None, RuntimeError(repr(value))))
                os.write(answer.fileno(), data)
                return 0

            done = self._forked(work, (function.__name__,), **options)
            answer.seek(0)
            data = answer.read()
        assert data, f"it died:\n{done.stdout}\n{done.stderr}"
        value, error = pickle.loads(data)
        if error is not None:
            raise error
        return value

    def write(self, path, text, mode=0o644):
        """Write a file as this user, and give it a mode whatever the umask."""
        self.call(_write, Path(path), text, mode)
        return Path(path)

    def mkdir(self, path, mode=0o755):
        """Make a folder as this user, and give it a mode whatever the umask."""
        self.call(_mkdir, Path(path), mode)
        return Path(path)

    def _forked(self, work, arguments, *, cwd=None, env=None, umask=0o022, timeout=60):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: what is forked uses none of them
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if not pid:
                code = 99
                try:
                    self._settle(cwd or self.home, env or {}, umask, out, err)
                    code = work()
                except BaseException:  # noqa: BLE001 - a process of its own ends here
                    traceback.print_exc()
                finally:
                    with contextlib.suppress(BaseException):
                        sys.stdout.flush()
                        sys.stderr.flush()
                    os._exit(code)
            code = _wait(pid, timeout)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(
                arguments, code, out.read().decode(errors="replace"), err.read().decode(errors="replace")
            )

    def _settle(self, cwd, env, umask, out, err):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((nothing, out.fileno(), err.fileno())):
            os.dup2(descriptor, number)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, "w" if number else "r") for number in range(3))
        self._become(umask)
        os.environ.clear()
        os.environ.update(self.environment | env)
        os.chdir(cwd)

    def _become(self, umask):
        """Have this user's rights, and no others, in a process that ends as this user."""
        _uncover(_needed())
        os.setgroups([GROUP])
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        os.umask(umask)


@dataclass(frozen=True)
class Accounts:
    """Two users, and folders that both may enter."""

    victim: Account
    stranger: Account
    place: Path

    def group_folder(self, name="project", mode=0o2775):
        """Make a project's folder: root's, and of the group that both share, in which each may write, as sites do."""
        folder = self.place / name
        folder.mkdir()
        os.chown(folder, 0, GROUP)
        folder.chmod(mode)
        return folder


@contextlib.contextmanager
def two_accounts():
    """Make the folders of two accounts, and remove them, and what they left there."""
    place = Path(tempfile.mkdtemp(prefix="asa-accounts-"))
    try:
        place.chmod(0o755)
        users = [Account(name, uid, place / name) for name, uid in (("victim", VICTIM_UID), ("stranger", STRANGER_UID))]
        for user in users:
            user.home.mkdir(mode=0o700)
            os.chown(user.home, user.uid, user.uid)
        yield Accounts(*users, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def why_not():
    """Return why there cannot be two accounts here; empty if there can."""
    if os.geteuid() != 0:
        return "only root can be two users"
    probe = subprocess.run([sys.executable, "-c", "import asa"], preexec_fn=_probe, capture_output=True, check=False)
    return "" if probe.returncode == 0 else "another user cannot run this Python, and no mount namespace can show it"


def _probe():
    Account("stranger", STRANGER_UID, Path("/"))._become(0o022)


@cache
def _import_once():
    """Import the modules that commands need, so that processes forked from here need not."""
    from forked import _import_all

    _import_all()


def _exit_code(main, arguments):
    sys.argv = ["asa", *arguments]
    try:
        main()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0


def _wait(pid, timeout):
    """Wait for a process; one that takes too long is killed, and said so."""
    deadline = signal.setitimer(signal.ITIMER_REAL, 0)  # nobody else's
    assert deadline == (0.0, 0.0)
    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, timeout)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _write(path, text, mode):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)


def _mkdir(path, mode):
    path.mkdir()
    path.chmod(mode)


def _needed():
    """Return the paths that others must be able to read in order to run asa."""
    return {Path(path).resolve() for path in (sys.base_prefix, sys.prefix, _REPOSITORY)}


def _uncover(needed):
    """Let this process and what it starts read folders that lie where only root may look; nobody else sees that.

    Whatever else lies there is hidden from it.
    """
    closed = {}
    for path in needed:
        for folder in reversed(path.parents):
            if folder.stat().st_mode & _READ_EXECUTE != _READ_EXECUTE:
                closed.setdefault(folder, []).append(path)
                break
    if not closed:
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def must(code):
        if code != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    must(libc.unshare(_CLONE_NEWNS))
    must(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    for folder, paths in closed.items():
        seen = {path: os.open(path, os.O_PATH) for path in paths}
        must(libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, b"mode=755"))
        for path, descriptor in seen.items():
            path.mkdir(parents=True, exist_ok=True)
            must(libc.mount(f"/proc/self/fd/{descriptor}".encode(), os.fsencode(path), None, _MS_BIND | _MS_REC, None))
            os.close(descriptor)
