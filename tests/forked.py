"""Commands of `asa`, each a process of its own, forked from one that has imported all of `asa` already.

Imports take most of the time of a short command. What is forked has arguments, a folder, a umask, an environment and
streams of its own, gets signals, and ends as any process does, but that it leaves it to the system to free its memory.
All processes of a session of tests share the one that forks: to import everything takes it some seconds.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

ASA = str(Path(sys.executable).with_name("asa"))
_BEFORE_TESTS = dict(os.environ)
_MAX_BYTES = 1 << 17
_SHARED = "TESTS_FORKED_FROM"  # the folder in which one finds the process that forks


class Command:
    """A command that was begun, to be used as a `subprocess.Popen` of text; on a terminal if given its descriptor."""

    def __init__(self, *arguments, cwd=None, env=None, stdin=None, terminal=None):
        self.args = [ASA, *map(str, arguments)]
        self.returncode = self.stdout = self.stderr = None
        told, telling = os.pipe()
        given = [telling]
        if terminal is None:
            (out, to_out), (err, to_err) = os.pipe(), os.pipe()
            self.stdout, self.stderr = os.fdopen(out), os.fdopen(err)
            given += [os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin), to_out, to_err]
        else:
            given.append(os.dup(terminal))
        what = {
            "arguments": self.args,
            "folder": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "umask": _umask(),
        }
        socket.send_fds(_server(), [json.dumps(what).encode()], given)
        for descriptor in given:
            os.close(descriptor)
        self._told = os.fdopen(told)
        self.pid = int(self._told.readline())

    def poll(self, within_s=0.0):
        """Return its exit code if it has ended."""
        if self.returncode is None and select.select([self._told], [], [], within_s)[0]:
            self.returncode = int(self._told.readline())
            self._told.close()
        return self.returncode

    def wait(self, timeout=60):
        if self.poll(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def communicate(self, timeout=60):
        """Read all that it writes; wait for its end."""
        with ThreadPoolExecutor(2) as threads:
            reading = [threads.submit(_rest, stream) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                self.wait()
                raise
            return tuple(one.result() for one in reading)

    def send_signal(self, number):
        if self.poll() is None:  # else its number may be another's by now
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def close(self):
        """End the process, unless its end was seen."""
        self.kill()
        self.wait()
        for stream in filter(None, (self.stdout, self.stderr)):
            stream.close()


def asa(*arguments, code=0, **options):
    """Run a command to its end, which is to be without a traceback and with an exit code."""
    command = Command(*arguments, **options)
    out, err = command.communicate(timeout=120)
    done = subprocess.CompletedProcess(command.args, command.returncode, out, err)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


def _rest(stream):
    with stream:
        return stream.read()


# ---------------------------------------------------------------------- the process that forks


def _umask():
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def share():
    """Let all processes that start from here on share one forking process, which begins at its first use."""
    if _SHARED not in os.environ:
        folder = tempfile.mkdtemp(prefix="asa-forked-", dir="/tmp")  # a socket's path is short
        os.environ[_SHARED] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


@cache
def _server():
    """Connect to the process that forks. It ends with the last of those that are connected."""
    share()
    folder = Path(os.environ[_SHARED])
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            link.connect(str(folder / "socket"))
        except (FileNotFoundError, ConnectionRefusedError):
            _start(folder / "socket", lock)
            link.connect(str(folder / "socket"))
    atexit.register(link.close)
    return link


def _start(place, lock):
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening, Path(lock.name).open() as own_lock:
        listening.bind(str(place))
        listening.listen(64)
        given = [listening.fileno(), own_lock.fileno()]
        command = [sys.executable, __file__, *map(str, given)]
        environment = _BEFORE_TESTS | {"OPENBLAS_NUM_THREADS": "1"}  # what has threads should not fork
        process = subprocess.Popen(command, pass_fds=given, env=environment, stdin=subprocess.DEVNULL)
    atexit.register(setattr, process, "returncode", 0)  # nobody waits for it: others may still need it


def _import_all():
    import asa.backends
    import asa.workflows

    from asa.errors import MissingExtraError

    for package in (asa, asa.backends, asa.workflows):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with suppress(MissingExtraError):  # what needs an extra that is not installed
                importlib.import_module(module.name)
    with suppress(ImportError):
        from numba.core.registry import cpu_target

        cpu_target.typing_context.refresh()  # numba imports half of itself at the first call of a kernel
        cpu_target.target_context.refresh()


def _serve(listening, lock):
    """Fork a process for each request, and tell how it ended; return in each of them, with what it is to be."""
    watched = select.poll()
    watched.register(listening, select.POLLIN)
    links, running = {}, {}
    while True:
        for ready, _ in watched.poll():
            if ready == listening.fileno():
                link, _ = listening.accept()
                links[link.fileno()] = link
                watched.register(link, select.POLLIN)
                continue
            if ready in running:
                watched.unregister(ready)
                pid, telling = running.pop(ready)
                _, status = os.waitpid(pid, 0)
                with suppress(BrokenPipeError):  # nobody wants to know
                    os.write(telling, f"{os.waitstatus_to_exitcode(status)}\n".encode())
                os.close(telling)
                os.close(ready)
                continue
            text, descriptors, *_ = socket.recv_fds(links[ready], _MAX_BYTES, 4)
            if not text:
                watched.unregister(ready)
                links.pop(ready).close()
                if not links:
                    _end_unless_wanted(listening, lock)
                continue
            telling, *streams = descriptors
            if not (pid := os.fork()):
                for one in (listening, *links.values()):
                    one.detach()  # all is closed below; what opens the number next is not to be closed with these
                return json.loads(text), streams
            os.write(telling, f"{pid}\n".encode())
            for stream in streams:
                os.close(stream)
            watch = os.pidfd_open(pid)
            watched.register(watch, select.POLLIN)
            running[watch] = pid, telling


def _end_unless_wanted(listening, lock):
    """End, unless another process is just connecting and has the lock."""
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not select.select([listening], [], [], 0.0)[0]:
        listening.close()
        sys.exit()
    fcntl.flock(lock, fcntl.LOCK_UN)


def _become(what, streams):
    """Be as a process that was just started."""
    if len(streams) == 1:
        os.login_tty(streams[0])
    else:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
    os.closerange(3, 1 << 16)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    os.chdir(what["folder"])
    os.umask(what["umask"])
    os.environ.clear()
    os.environ.update(what["environment"])
    time.tzset()
    sys.argv = what["arguments"]
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(":"))
    sys.path[:1] = [str(Path(ASA).parent), *paths]
    sys.modules["__main__"].__file__ = ASA  # which a pool's processes import


def _leave(code):
    """End as the interpreter does; not the part that touches each object, by which all that is shared is copied first.

    It returns where the interpreter has something to say about the end.
    """
    if code is not None and not isinstance(code, int):
        return
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code or 0)


if __name__ == "__main__":
    from asa.cli import main

    _import_all()
    gc.freeze()  # so that what is shared stays so, also at the end
    _become(*_serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))
    try:
        main()
    except SystemExit as end:
        _leave(end.code)
        raise
