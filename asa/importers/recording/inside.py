"""Runs a driver where it cannot change anything. This is a separate program that needs only the standard library.

    python -I -S inside.py SETTINGS.json

The driver sees the file system as it is, at the same paths. What it writes goes to layers above (overlayfs), which are
removed after the new files were copied out. It has no network unless the settings give it one. None of this needs root:
a user namespace is enough. The program leaves ``ended.json`` next to its settings: how the driver ended, and which
files it made.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import stat
import struct
import sys
import threading
import time

_NEW_MOUNTS, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x10000000, 0x40000000
# namespaces of the host name, and of System V IPC and message queues
_NEW_NAME, _NEW_SHARED_MEMORY = 0x04000000, 0x08000000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE, _NO_DEVICES, _NO_SETUID = 1, 32, 4096, 16384, 1 << 18, 4, 2
_SUBREAPER = 36
_SYSTEM = ("/proc", "/sys", "/dev")
_STAY_OPEN = ("/dev/shm", "/dev/pts")
_MANY_INTERRUPTS = 3
_FROM_A_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
_EXITED_AT_LIMIT = 124
_MOST_ENTRIES = 2000  # maximum number of entries of a folder that is rebuilt
_MOST_COPIED_BYTES = 1 << 20
# maximum number of files and folders that are searched for other owners, to be prepared for writing
_MOST_LOOKED_AT = 50_000
_MOST_OF_OTHERS_BYTES = 64 << 20

_RECORDER = os.getppid()
_AT_HANG_UP = signal.getsignal(signal.SIGHUP)
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object, about: str = "") -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"{name} {about}".rstrip())


def _mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = [word.encode() if word else None for word in (source, target, kind)]
    _call("mount", *words, ctypes.c_ulong(flags), options.encode() if options else None, about=target)


# ---------------------------------------------------------------------- the private view


class PrivateView:
    """The file system as it is, with layers above it that take all writes.

    If the system allows it, one layer covers a whole file system. In a user namespace this is not allowed for a folder
    that contains mount points: such a folder is rebuilt, and each of its entries gets its own layer.
    """

    def __init__(self, keep: str, programs: str, folder: str = "") -> None:
        self.layers: list[tuple[str, str, int]] = []  # for each layer: path, upper folder, lower folder
        self.anew: list[tuple[str, set[str]]] = []  # rebuilt folders, with the names that they had
        self.closed: list[str] = []  # folders where nothing can be written
        self.fixed: list[str] = []  # other users' files that the user may change, but the driver cannot
        self._keep = keep
        self._programs = programs
        self._folder = os.path.realpath(folder) if folder else ""
        self._tried = 0  # number of layers tried, also those that the system refused
        self._is_alone = False  # in a user namespace, where other users are unknown
        self._root = os.path.join(keep, "root")
        self._scratch = os.path.join(keep, "layers")
        self._mounts: list[str] = []

    def enter(self, *, has_network: bool) -> None:
        """Move this process into the view; `OSError` if the system forbids it."""
        self._leave_namespaces(has_network=has_network)
        _mount("none", "/", flags=_RECURSIVE | _PRIVATE)
        keep = os.open(self._keep, os.O_PATH | os.O_DIRECTORY)
        programs = os.open(self._programs, os.O_PATH | os.O_DIRECTORY)
        self._mounts = _mounts()
        os.mkdir(self._root)
        os.mkdir(self._scratch)
        _mount("none", self._root, "tmpfs", _NO_DEVICES | _NO_SETUID)
        if not _takes_notes(self._scratch):
            _mount("none", self._scratch, "tmpfs", _NO_DEVICES | _NO_SETUID, "size=25%")
        self._put("/")
        self._put_memory("/dev/shm")
        self._close_system()
        _mount(f"/proc/self/fd/{keep}", self._root + self._keep, flags=_BIND)
        self._stand_in(f"/proc/self/fd/{programs}")
        os.close(keep)
        os.close(programs)
        os.chroot(self._root)

    def _leave_namespaces(self, *, has_network: bool) -> None:
        """Enter new namespaces of mounts and perhaps of the network; without a user namespace if root may do so."""
        flags = _NEW_MOUNTS | _NEW_NAME | _NEW_SHARED_MEMORY | (0 if has_network else _NEW_NETWORK)
        user, group = os.getuid(), os.getgid()
        if user or not _is_allowed(flags):
            _call("unshare", flags | _NEW_USER)
            self._is_alone = True
            for name, text in (
                ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"),
            ):  # fmt: skip
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        if not has_network:
            _open_loopback()

    def _put(self, where: str) -> None:
        """Mount a folder, or the file system that is mounted on it, in the view."""
        target = self._root + where.rstrip("/")
        below = [mount for mount in self._mounts if mount.startswith(f"{where.rstrip('/')}/") and mount != where]
        if where in _SYSTEM:
            return _mount(where, target, flags=_BIND | _RECURSIVE)
        if os.path.isdir(where):
            try:
                self._layer(where, target)
            except OSError:
                if below and len(os.listdir(where)) <= _MOST_ENTRIES:
                    return self._make_anew(where, target, below)
            else:
                for top in _tops(below):
                    if os.path.lexists(self._root + top):
                        self._put(top)
                return None
        return self._close(where, target)

    def _put_memory(self, where: str) -> None:
        """Put a file system in memory below a layer, or an empty folder in its place."""
        if not os.path.isdir(self._root + where):
            return
        try:
            self._layer(where, self._root + where)
        except OSError:
            _mount("none", self._root + where, "tmpfs", _NO_DEVICES | _NO_SETUID)

    def _layer(self, where: str, target: str) -> None:
        """Cover a folder by a layer that takes all writes."""
        self._tried += 1
        number = self._tried
        upper, work = (os.path.join(self._scratch, f"{kind}{number}") for kind in ("upper", "work"))
        for folder in (upper, work):
            os.makedirs(folder, exist_ok=True)
        below = os.open(where, os.O_PATH | os.O_DIRECTORY)
        shutil.copymode(where, upper)
        if self._is_alone:
            self._make_ready(where, upper)
        options = f"lowerdir={_escaped(where)},upperdir={_escaped(upper)},workdir={_escaped(work)}"
        try:
            _mount("overlay", target, "overlay", options=f"{options},userxattr")
        except OSError:
            os.close(below)
            raise
        self.layers.append((where, upper, below))

    def _make_ready(self, where: str, upper: str) -> None:
        """Copy files of other users or groups that the driver may write into a layer beforehand.

        The layer cannot copy them when the driver writes: the copy would have the owner of the original, who is unknown
        in a user namespace. The same holds for folders above the user's own, such as ``/home/group``.
        """
        ways = [self._folder, *(os.environ.get(name, "") for name in ("HOME", "TMPDIR")), "/tmp"]
        for way in ways:
            path = os.path.realpath(way) if way else ""
            if path and os.path.isdir(path) and _is_below(path, where):
                _make_way(os.path.relpath(path, where), where, upper)
        if self._folder and _is_below(self._folder, where):
            self._make_ready_below(where, upper)

    def _make_ready_below(self, where: str, upper: str) -> None:
        """Copy the other users' files in the folder where the driver is started, and below it, in the same way."""
        entries, size = _MOST_LOOKED_AT, _MOST_OF_OTHERS_BYTES
        for folder, names, files in os.walk(self._folder):
            for name in [*names, *files]:
                path = os.path.join(folder, name)
                try:
                    copied = _copy_of_others(path, os.path.relpath(path, where), where, upper)
                except OSError:
                    copied = None
                if copied is None and not os.path.islink(path):
                    self.fixed.append(path)
                size -= copied or 0
            entries -= len(names) + len(files)
            if min(entries, size) <= 0:
                self.fixed.append(os.path.join(folder, "..."))
                return

    def _make_anew(self, where: str, target: str, mounts: list[str]) -> None:
        """Rebuild a folder with all its entries."""
        names = os.listdir(where)
        self.anew.append((where, set(names)))
        shutil.copymode(where, target)
        tops = _tops(mounts)
        for name in names:
            path = os.path.join(where, name)
            try:
                seen = os.lstat(path)
                if stat.S_ISLNK(seen.st_mode):
                    os.symlink(os.readlink(path), self._root + path)
                    continue
                if stat.S_ISDIR(seen.st_mode):
                    os.mkdir(self._root + path)
                elif stat.S_ISREG(seen.st_mode) and seen.st_size <= _MOST_COPIED_BYTES and path not in tops:
                    shutil.copy2(path, self._root + path)
                    continue
                else:
                    with open(self._root + path, "wb"):
                        pass
                self._put(path)
            except OSError:
                continue

    def _close(self, where: str, target: str) -> None:
        """Show a folder read-only."""
        _mount(where, target, flags=_BIND | _RECURSIVE)
        if os.path.isdir(where):
            self.closed.append(where)
        try:
            _mount("none", target, flags=_BIND | _REMOUNT | _READ_ONLY)
        except OSError:
            # flags of the mount must be kept, since the system refuses to remove them
            _mount("none", target, flags=_BIND | _REMOUNT | _READ_ONLY | _kept_flags(where))

    def _close_system(self) -> None:
        """Make devices, control groups and system settings read-only, also for root."""
        targets = ["/dev", *(mount for mount in self._mounts if mount.startswith(("/dev/", "/sys/"))), "/sys"]
        for where in dict.fromkeys(targets):
            if where not in _STAY_OPEN and not where.startswith("/dev/shm/"):
                with contextlib.suppress(OSError):
                    _mount("none", self._root + where, flags=_BIND | _REMOUNT | _READ_ONLY | _kept_flags(where))
        for where in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq"):
            with contextlib.suppress(OSError):
                _mount(where, self._root + where, flags=_BIND)
                _mount("none", self._root + where, flags=_BIND | _REMOUNT | _READ_ONLY | _kept_flags("/proc"))

    def _stand_in(self, programs: str) -> None:
        """Put the stand-ins in place of the programs, also at the programs' full paths."""
        names = os.listdir(programs)
        folders = dict.fromkeys(["/usr/local/bin", "/usr/bin", "/bin", *os.environ.get("PATH", "").split(":")])
        known: dict[str, None] = {}
        for folder in folders:
            if os.path.isabs(folder) and os.path.isdir(self._root + folder) and folder != self._programs:
                known.setdefault(os.path.realpath(folder), None)
        for folder in known:
            target = self._root + folder
            if not os.path.isdir(target):
                continue
            if folder in {"/usr/local/bin", "/usr/bin"} or any(os.path.exists(f"{target}/{name}") for name in names):
                try:
                    _mount("overlay", target, "overlay", _READ_ONLY, f"lowerdir={programs}:{_escaped(target)}")
                except OSError:
                    for name in names:
                        if os.path.exists(f"{target}/{name}"):
                            _mount(f"{programs}/{name}", f"{target}/{name}", flags=_BIND)


def _is_allowed(flags: int) -> bool:
    """Enter new namespaces, if this process may."""
    try:
        _call("unshare", flags)
    except OSError:
        return False
    return True


def _open_loopback() -> None:
    """Enable the loopback, so that programs can talk to each other without another network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


def _kept_flags(where: str) -> int:
    """Return the flags of a mount that may not be removed."""
    seen = os.statvfs(where).f_flag
    return seen & (_NO_SETUID | _NO_DEVICES | 8 | 1024 | 2048) | (1 << 21 if seen & 4096 else 0)


def _is_below(path: str, where: str) -> bool:
    return path == where or path.startswith(f"{where.rstrip('/')}/")


def _make_way(inside: str, where: str, upper: str) -> None:
    """Make a folder of a layer, with its parents; each gets the permissions of the folder that it covers."""
    path, made = where, upper
    for name in ["", *(part for part in inside.split("/") if part not in {"", "."})]:
        path, made = os.path.join(path, name), os.path.join(made, name)
        if name and not os.path.isdir(made):
            os.mkdir(made)
        rights = sum(bit for bit, right in ((4, os.R_OK), (2, os.W_OK), (1, os.X_OK)) if os.access(path, right))
        os.chmod(made, stat.S_IMODE(os.lstat(path).st_mode) & 0o1077 | rights << 6)


def _copy_of_others(path: str, inside: str, where: str, upper: str) -> int | None:
    """Copy another user's folder or small file into a layer if this user may change it; return the bytes copied.

    Returns None for a file that is too large to be copied.
    """
    seen = os.lstat(path)
    if (seen.st_uid, seen.st_gid) == (os.getuid(), os.getgid()) or not os.access(path, os.W_OK):
        return 0
    if stat.S_ISDIR(seen.st_mode):
        _make_way(inside, where, upper)
    elif stat.S_ISREG(seen.st_mode) and seen.st_size <= _MOST_COPIED_BYTES:
        _make_way(os.path.dirname(inside), where, upper)
        shutil.copy2(path, os.path.join(upper, inside))
        return seen.st_size
    elif stat.S_ISREG(seen.st_mode):
        return None
    return 0


def _is_same(one: str, other: str) -> bool:
    """Whether two small files are equal."""
    try:
        sizes = {os.lstat(path).st_size for path in (one, other)}
        if len(sizes) > 1 or sizes.pop() > _MOST_COPIED_BYTES or os.path.islink(one) or os.path.islink(other):
            return False
        with open(one, "rb") as first, open(other, "rb") as second:
            return first.read() == second.read()
    except OSError:
        return False


def _tops(paths: list[str]) -> list[str]:
    """Return the paths that are not below any of the others."""
    tops: list[str] = []
    for path in sorted(paths):
        if not tops or not path.startswith(f"{tops[-1]}/"):
            tops.append(path)
    return tops


def _escaped(path: str) -> str:
    for letter in "\\,:":
        path = path.replace(letter, f"\\{letter}")
    return path


def _takes_notes(folder: str) -> bool:
    """Whether a file system can record that entries of a lower layer were removed, as overlayfs needs."""
    try:
        os.setxattr(folder, "user.overlay.asa", b"y")
    except OSError:
        return False
    return True


def _mounts() -> list[str]:
    """Return all mount points."""
    mounts: dict[str, None] = {}
    with open("/proc/self/mountinfo") as file:
        for line in file:
            where = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), line.split()[4])
            mounts.setdefault(where)
    return list(mounts)


# ---------------------------------------------------------------------- created files


class Leftovers:
    """The files that a driver made, changed and removed, read from the layers."""

    def __init__(self, keep: str, max_bytes: int, folder: str, passed_over: list[str]) -> None:
        self.new: list[str] = []
        self.folders: list[str] = []
        self.changed: list[str] = []
        self.removed: list[str] = []
        self.left: list[tuple[str, int]] = []  # files too large to be kept, with their sizes
        self.temporary: list[str] = []  # files in temporary folders
        self._keep = keep
        self._into = os.path.join(keep, "made")
        self._bytes_left = max_bytes
        self._folder = folder
        self._passed_over = tuple(
            prefix if prefix.endswith("/.") else f"{os.path.normpath(prefix)}/" for prefix in passed_over
        )

    def look(self, where: str, upper: str, below: int) -> None:
        """Search a layer."""
        for folder, names, files in os.walk(upper):
            inside = os.path.relpath(folder, upper)
            links = [name for name in names if os.path.islink(os.path.join(folder, name))]
            if os.path.normpath(os.path.join(where, inside)) == self._keep:
                names[:] = []
                continue
            names[:] = [name for name in names if name not in links]
            for name in names:
                path = os.path.normpath(os.path.join(inside, name))
                there = os.path.join(where, path)
                if not _is_there(path, below) and there != self._keep:
                    (self.temporary if self._is_passed_over(there) else self.folders).append(there)
            for name in [*files, *links]:
                path = os.path.normpath(os.path.join(inside, name))
                source, was = os.path.join(folder, name), _is_there(path, below)
                if not (was and _is_same(source, f"/proc/self/fd/{below}/{path}")):
                    self._file(source, os.path.join(where, path), was=was)

    def look_anew(self, where: str, names: set[str]) -> None:
        """Search a rebuilt folder for entries that are new."""
        nothing = os.path.join(self._keep, "nothing")
        os.makedirs(nothing, exist_ok=True)
        nowhere = os.open(nothing, os.O_PATH | os.O_DIRECTORY)
        for name in sorted(set(os.listdir(where)) - names):
            path = os.path.join(where, name)
            if os.path.isdir(path) and not os.path.islink(path):
                if not self._is_passed_over(path):
                    self.folders.append(path)
                self.look(path, path, nowhere)
            else:
                self._file(path, path, was=False)
        os.close(nowhere)

    def _is_passed_over(self, path: str) -> bool:
        at_home = tuple(prefix for prefix in self._passed_over if prefix.endswith("/."))
        if path.startswith(at_home) and not f"{self._folder}/".startswith(at_home):
            return True  # also if the driver is started in the home folder
        if path == self._folder or path.startswith(f"{self._folder}/"):
            return False
        return path.startswith((*self._passed_over, f"{self._keep}/"))

    def _file(self, source: str, path: str, *, was: bool) -> None:
        if self._is_passed_over(path):
            self.temporary.append(path)
            return
        seen = os.lstat(source)
        if stat.S_ISCHR(seen.st_mode) and seen.st_rdev == 0:
            self.removed.append(path)
            return
        if not (stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode)):
            return
        if seen.st_size > self._bytes_left:
            self.left.append((path, seen.st_size))
            return
        (self.changed if was else self.new).append(path)
        self._bytes_left -= seen.st_size
        kept = self._into + path
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        shutil.copy2(source, kept, follow_symlinks=False)


def _is_there(path: str, below: int) -> bool:
    try:
        os.lstat(f"/proc/self/fd/{below}/{path}")
    except OSError:
        return False
    return True


# ---------------------------------------------------------------------- read files


class Readings:
    """Files below a folder that any process opens, as inotify reports them."""

    _OPENED, _ONLY_FOLDERS = 0x00000020, 0x01000000
    _MOST_FOLDERS = 2000

    def __init__(self, folder: str) -> None:
        self.seen: dict[str, None] = {}
        self._folders: dict[int, str] = {}
        self._file = _libc.inotify_init1(os.O_CLOEXEC)
        if self._file >= 0:
            self._watch(folder)
            threading.Thread(target=self._listen, daemon=True).start()

    def _watch(self, top: str) -> None:
        for folder, names, _ in os.walk(top):
            names[:] = [name for name in names if name != ".git"]
            number = _libc.inotify_add_watch(self._file, os.fsencode(folder), self._OPENED | self._ONLY_FOLDERS)
            if number < 0 or len(self._folders) >= self._MOST_FOLDERS:
                return
            self._folders[number] = folder

    def _listen(self) -> None:
        while data := os.read(self._file, 1 << 16):
            while data:
                number, _, _, length = struct.unpack_from("iIII", data)
                name = os.fsdecode(data[16 : 16 + length].rstrip(b"\0"))
                data = data[16 + length :]
                if number in self._folders:
                    self.seen[os.path.join(self._folders[number], name) if name else self._folders[number]] = None


# ---------------------------------------------------------------------- the run


def _begin(command: list[str]) -> tuple[int, str]:
    """Start the driver; return its process number, and why it could not start."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.set_inheritable(writing, False)  # noqa: FBT003 - the signature
        try:
            if not os.isatty(0):
                os.setpgid(0, 0)
            for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, _AT_HANG_UP)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _FROM_A_KEYBOARD)
            os.execvp(command[0], command)
        except OSError as error:
            os.write(writing, (error.strerror or "").encode())
        os._exit(127)
    os.close(writing)
    why_not = os.read(reading, 1000).decode()
    os.close(reading)
    return child, why_not


def _run(command: list[str], limit_s: float) -> tuple[int, bool, str, list[str]]:
    """Run the driver; return its exit code, whether it hit the limit, an error at its start, and processes it left."""
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, _FROM_A_KEYBOARD)  # until there is a process that can receive them
    child, why_not = _begin(command)
    until = time.monotonic() + limit_s
    interrupts = _Interrupts(child)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FROM_A_KEYBOARD)
    code: int | None = None
    behind: list[str] = []
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            # for processes that the driver left in the background
            until = min(until, time.monotonic() + max(5.0, 0.1 * limit_s))
        elif ended == 0:
            if time.monotonic() > until or interrupts.count >= _MANY_INTERRUPTS or _is_left_alone():
                behind = _end_all()
                break
            time.sleep(0.005)
    if code is None:
        return _EXITED_AT_LIMIT, True, why_not, behind
    return (code if code >= 0 else 128 - code), False, why_not, behind


class _Interrupts:
    """Passes Ctrl-C on to the driver, which has its own process group, and counts how often."""

    def __init__(self, child: int) -> None:
        self.count = 0
        self._child = child
        for number in _FROM_A_KEYBOARD:
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, _: object) -> None:
        self.count += 1
        with contextlib.suppress(OSError):
            if os.getpgid(self._child) == self._child:
                os.killpg(self._child, number)


def _is_left_alone() -> bool:
    """Whether the recorder was killed, so that this process must end the driver."""
    return os.getppid() != _RECORDER


def _end_all() -> list[str]:
    """End all processes that still run; return their names."""
    names: list[str] = []
    for _ in range(100):
        ours = _below(os.getpid())
        if not ours:
            return list(dict.fromkeys(names))
        for number in ours:
            try:
                with open(f"/proc/{number}/cmdline", "rb") as file:
                    names.append(file.read().replace(b"\0", b" ").decode(errors="replace").strip())
                os.kill(number, signal.SIGKILL)
            except OSError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return list(dict.fromkeys(filter(None, names)))
        time.sleep(0.01)
    return list(dict.fromkeys(filter(None, names)))


def _below(top: int) -> list[int]:
    """Return all descendants of a process."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(name))
    processes: list[int] = []
    left = [top]
    while left:
        children = parents.get(left.pop(), [])
        processes += children
        left += children
    return processes


def _clear(keep: str) -> None:
    """Remove the folder in the recorder's place; if it is a mount point, it may stay, empty."""
    for entry in os.scandir(keep):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)
    with contextlib.suppress(OSError):
        os.rmdir(keep)


def main(path: str) -> None:
    """Run the driver according to the settings."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # such signals are meant for the driver
    with open(path) as file:
        settings = json.load(file)
    keep = os.path.dirname(path)
    ended: dict[str, object] = {}
    view = PrivateView(keep, settings["programs"], settings["folder"])
    if settings["is_private"]:
        try:
            view.enter(has_network=settings["has_network"])
        except OSError as error:
            ended["no_view"] = f"{error.filename}: {error.strerror}"
    if "no_view" not in ended:
        os.chdir(settings["folder"])
        readings = Readings(settings["folder"])
        code, was_ended, why_not = 0, False, ""
        behind: list[str] = []
        for command in settings["commands"]:
            exit_code, is_late, why_not, left = _run(command, settings["limit_s"])
            code, was_ended, behind = code or exit_code, was_ended or is_late, behind + left
            if why_not:
                break
        made = Leftovers(keep, settings["max_bytes"], settings["folder"], settings["passed_over"])
        for layer in view.layers:
            made.look(*layer)
        for folder in view.anew:
            made.look_anew(*folder)
        ended |= {
            "code": code, "was_ended": was_ended, "why_not": why_not, "behind": behind, "closed": view.closed,
            "fixed": list(dict.fromkeys(view.fixed)),
            "new": made.new, "folders": made.folders, "changed": made.changed, "removed": made.removed,
            "left": made.left, "temporary": made.temporary, "read": list(readings.seen),
        }  # fmt: skip
    if _is_left_alone():
        _clear(keep)
    else:
        with open(os.path.join(keep, "ended.json"), "w") as file:
            json.dump(ended, file)


if __name__ == "__main__":
    main(sys.argv[1])
