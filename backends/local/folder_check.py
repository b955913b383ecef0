"""Checks that only its user controls a queue's folder, by examining each folder and link on the path to it.

The server runs the scripts in it. So no other user may own the folder or a link that leads to it, change its content,
or replace it. Folders above the home folder are the administrator's responsibility. Only the standard library is needed
here, as in `spool`.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = 0
_OTHERS_WRITE, _GROUP_WRITES = 0o002, 0o020
_OTHERS_ENTER = 0o011
_MAX_LINKS = 40  # Linux's limit
_ACCESS_LIST = "system.posix_acl_access"
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFIFO: "a FIFO"}
_USERS, _USERS_BYTES = Path("/etc/passwd"), 1 << 20
_UID_MAP, _OVERFLOW, _LINE_BYTES = Path("/proc/self/uid_map"), Path("/proc/sys/kernel/overflowuid"), 200
_ALL_USERS = [b"0", b"0", b"4294967295"]  # the map of a user namespace that knows all users


def make_folder(folder: Path) -> None:
    """Make a folder that only the user can enter, and missing folders above it in the same way.

    Raises the errors of `check_folder` for the folder in which they would be made.
    """
    _looked_at(next(part for part in (folder, *folder.parents) if os.path.lexists(part)))
    for part in (*reversed(folder.parents), folder):
        if not os.path.lexists(part):
            part.mkdir(mode=0o700, exist_ok=True)  # another process may make it at the same time


def check_folder(folder: Path) -> None:
    """Refuse a folder that other users own, or can change or replace.

    Raises `PermissionError` to refuse it. Raises `OSError`: a part of the path cannot be examined.
    """
    here, about, is_within_reach = _looked_at(folder)
    check_entry(here, stat.S_IFDIR)
    if is_within_reach:
        _check_mode(here, about)


def check_entry(path: Path, kind: int) -> None:
    """Refuse an entry of a queue's folder that is a link, another user's, or of another type."""
    about = path.lstat()
    if about.st_uid != os.geteuid():
        raise _refused("it belongs to another user", path)
    if stat.S_IFMT(about.st_mode) != kind:
        raise FileExistsError(errno.EEXIST, f"it is in the way of {_KINDS[kind]}", str(path))


def _looked_at(path: Path) -> tuple[Path, os.stat_result, bool]:
    """Refuse a path that other users could redirect; return its target, and whether other users can reach it."""
    above, own = _above_home(), {os.geteuid(), _ROOT, *_nobody()}
    here, about, is_within_reach = path, path.lstat(), True
    for here, about, is_anew in _way(path.absolute()):
        is_within_reach = is_within_reach or is_anew
        if about.st_uid not in own:
            raise _refused("it belongs to another user", here)
        if stat.S_ISDIR(about.st_mode) and here not in above:
            if is_within_reach and not about.st_mode & stat.S_ISVTX:
                _check_mode(here, about)
            is_within_reach = is_within_reach and bool(about.st_mode & _OTHERS_ENTER)
    return here, about, is_within_reach


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Yield each folder and link on a path, and whether a link was just followed."""
    here, todo, links, is_anew = Path("/"), list(reversed(path.parts[1:])), 0, False
    yield here, here.lstat(), False
    while todo:
        part = todo.pop()
        if part == "..":
            here, is_anew = here.parent, True
            continue
        about = (here / part).lstat()
        yield here / part, about, is_anew
        is_anew = stat.S_ISLNK(about.st_mode)
        if not is_anew:
            here /= part
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = (here / part).readlink()
        todo += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        here = Path("/") if target.is_absolute() else here


def _check_mode(here: Path, about: os.stat_result) -> None:
    is_of_others = about.st_mode & _GROUP_WRITES and (not _is_private(about.st_gid) or _has_access_list(here))
    if about.st_mode & _OTHERS_WRITE or is_of_others:
        raise _refused(f"others can change what is in it; see that nobody has, then: chmod go-w {here}", here)


def _is_private(gid: int) -> bool:
    """Whether a group is private to its user: it has the user's name, and no other member."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    is_own = gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return is_own and not _begins_for_others(gid, user.pw_name)


def _begins_for_others(gid: int, name: str) -> bool:
    """Whether a group is the primary group of another user on this computer, though it lists no members."""
    with suppress(OSError), _USERS.open("rb") as file:
        users = (line.split(b":") for line in file.read(_USERS_BYTES).splitlines())
        return any(user[3:4] == [b"%d" % gid] and user[0] != os.fsencode(name) for user in users)
    return False


def _has_access_list(here: Path) -> bool:
    """Whether the path has an access list, so that the group's permissions are its mask."""
    with suppress(OSError, AttributeError):  # only Linux has this call
        return _ACCESS_LIST in os.listxattr(here)
    return False


def _above_home() -> frozenset[Path]:
    try:
        return frozenset(Path(os.path.realpath(Path.home())).parents)
    except RuntimeError:  # no home folder is known
        return frozenset()


def _nobody() -> set[int]:
    """Return the account that owns files of the outside root within a container with few users."""
    try:
        with _UID_MAP.open("rb") as users, _OVERFLOW.open("rb") as overflow:
            return set() if users.read(_LINE_BYTES).split() == _ALL_USERS else {int(overflow.read(_LINE_BYTES))}
    except (OSError, ValueError):
        return set()


def _refused(why: str, here: Path) -> PermissionError:
    return PermissionError(errno.EPERM, why, str(here))
