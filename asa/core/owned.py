"""Who owns a file or folder, and whether its content may be acted on; only this module decides that.

To act on content is to run commands from it, to cancel jobs because of it, or to learn from it. Such a file must belong
to the user or root, and nobody else may be able to change it. A user who trusts a further folder lists it in a file of
their own, `trusted_file`, one folder per line. Commands that only show something name its owner instead.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import stat
import struct
from contextlib import suppress
from pathlib import Path

from asa.core.files import open_file, read_text
from asa.core.reading import SMALL_BYTES, read_whole

_ROOT = 0
_WRITABLE_BY_GROUP, _WRITABLE_BY_ALL = 0o020, 0o002
_ENTERED_BY_OTHERS = 0o011
_ACCESS_LIST, _VERSION_BYTES, _ENTRIES = "system.posix_acl_access", 4, struct.Struct("<HHI")  # acl_ea_entry of Linux
_LISTED_USER, _LISTED_GROUP, _MAY_WRITE = 0x02, 0x08, 0x02
_USERS, _NAME, _GID = Path("/etc/passwd"), 0, 3

UNUSED = "Nothing of it was used. "
"""Beginning of a hint about a file that was not acted on; commands that only look at it do not print this."""

others: dict[str, str] = {}
"""The owners of the files of other users that were read, by path."""


def whose(about: os.stat_result) -> str:
    """Name the owner, if that is another user; empty for this user and root."""
    return "" if about.st_uid in {os.geteuid(), _ROOT} else user_name(about.st_uid)


def trouble(path: Path, about: os.stat_result) -> str:
    """Return why the content of a file or folder may not be acted on, as a phrase after its name; empty if it may.

    `about`: the status of the opened file, if it has content.
    """
    words = _of_others(path, about) or _open_to_others(path, about)
    return words if words and not is_trusted(path) else ""


def of_another(path: Path) -> str:
    """Name the other user who owns a path; empty if it is the user's own, trusted, or missing."""
    try:
        return "" if is_trusted(path) else whose(path.stat())
    except OSError:
        return ""


def own_path(path: Path) -> Path:
    """Return the path of the user's own folder next to one that another user has made: it has the user's name."""
    return path.with_name(f"{path.name}-{account(os.geteuid())}")


# ---------------------------------------------------------------------- folders that a user trusts


def trusted_file() -> Path:
    """Return the file that lists trusted folders: ``$ASA_TRUSTED``, else ``asa/trusted`` among the user's settings."""
    if named := os.environ.get("ASA_TRUSTED"):
        return Path(named)
    configuration = os.environ.get("XDG_CONFIG_HOME")
    return (Path(configuration) if configuration else Path.home() / ".config") / "asa" / "trusted"


def is_trusted(path: Path) -> bool:
    """Whether the user lists a path, or a folder above it, as trusted; a list that others can change is ignored."""
    real = Path(os.path.realpath(path))
    return any(map(real.is_relative_to, trusted_folders()))


def trusted_folders() -> list[str]:
    """Return the folders that the user trusts, without links."""
    return [os.path.realpath(line) for line in _listed()[0]]


def _listed() -> tuple[list[str], str]:
    """Read the list of trusted folders; return it, with a sentence on ignored lines and what to do about them."""
    try:
        with open_file(file := trusted_file()) as opened:
            about = os.fstat(opened.fileno())
            if owner := whose(about):
                return [], f"{file} counts for nothing, as it belongs to {owner}: write one of your own."
            if _writer(file, about, about.st_mode):
                repair = f"`chmod go-w {shlex.quote(str(file))}`"
                return [], f"{file} counts for nothing, as others can change it. See that nobody has; then: {repair}."
            if way := way_trouble(file):
                return [], f"{file} counts for nothing, as {way}: keep it where nobody else can exchange it."
            lines = read_whole(opened, file, SMALL_BYTES).decode(errors="surrogateescape").splitlines()
    except (OSError, RuntimeError):  # the home folder is unknown here
        return [], ""
    named = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    wrong = {line: why for line in named if (why := _why_not(line))}
    words = next((f"In {file}, {line!r} counts for nothing: {why}." for line, why in wrong.items()), "")
    return [line for line in named if line not in wrong], words


def _why_not(line: str) -> str:
    """Return why a line of the list is ignored; empty if it is not.

    Whoever can replace a trusted folder must also be allowed to change it.
    """
    listed = Path(line)
    if not listed.is_absolute():
        return "write a whole path, from / on"
    try:
        about = listed.lstat()
        if stat.S_ISLNK(about.st_mode) or ".." in listed.parts:
            return f"write the path to which it leads, {os.path.realpath(listed)!r}, if that is what you trust"
        words = way_trouble(listed, about)
    except OSError as error:
        return f"it cannot be looked at: {error.strerror}"
    return words and f"{words}, so that another may have been put in its place"


def is_open(path: Path) -> bool:
    """Whether a path is the user's own, but others can change it, so that it is not acted on.

    Raises `OSError`: it does not exist, or cannot be examined.
    """
    about = path.stat()
    return not whose(about) and about.st_uid == os.geteuid() and bool(trouble(path, about))


def open_above(path: Path) -> list[Path]:
    """Return the user's own folders above a path in which others can replace it.

    Raises `OSError`: a folder above it cannot be examined.
    """
    parents = dict.fromkeys((*path.absolute().parents, *Path(os.path.realpath(path)).parents))
    folders = {folder: folder.stat() for folder in parents if not is_trusted(folder)}
    return [f for f, about in folders.items() if about.st_uid == os.geteuid() and _not_fixed(f, about, path, None)]


def way_trouble(path: Path, trusted: os.stat_result | None = None) -> str:
    """Name the part of a path that others can replace, and these others; empty if there is none.

    `trusted`: the status of a trusted folder: its owner, and all who may change it, are trusted.
    Raises `OSError`: a folder on the way cannot be examined.
    """
    whole = path.absolute()
    for part in whole.parents:
        about = part.lstat()
        if stat.S_ISLNK(about.st_mode) and (owner := whose(about)):
            return f"{part} is a link that {owner} has made"
    for folder in dict.fromkeys((*whole.parents, *Path(os.path.realpath(path)).parents)):
        if words := _not_fixed(folder, folder.stat(), path, trusted):
            return f"{folder} {words}"
    return ""


def _not_fixed(folder: Path, about: os.stat_result, path: Path, trusted: os.stat_result | None) -> str:
    may = 0 if about.st_mode & stat.S_ISVTX else about.st_mode
    if trusted is None:
        owner = _of_others(folder, about)
    else:
        owner = "" if about.st_uid == trusted.st_uid else whose(about) and f"belongs to {whose(about)}"
        may &= ~(trusted.st_mode & _WRITABLE_BY_ALL)
        if may & _WRITABLE_BY_GROUP and about.st_gid == trusted.st_gid and trusted.st_mode & _WRITABLE_BY_GROUP:
            may &= ~_WRITABLE_BY_GROUP
            listed = _listed_writers(folder, about) - _listed_writers(path, trusted)
            owner = owner or (f"can be changed by {min(listed)}" if listed else "")
    return owner or _open_to_others(folder, about, may)


# ---------------------------------------------------------------------- other users


def _of_others(path: Path, about: os.stat_result) -> str:
    owner = whose(about)
    return f"belongs to {owner}" if owner and about.st_uid != _mine_there(path) else ""


def _mine_there(path: Path) -> int:
    """Return the owner of files that this user creates in a folder; network file systems may show another owner."""
    from tempfile import TemporaryFile  # noqa: PLC0415 - takes long, and few files belong to others

    folder = path if path.is_dir() else path.parent
    try:
        with TemporaryFile(dir=folder) as probe:
            return os.fstat(probe.fileno()).st_uid
    except OSError:
        return os.geteuid()


def _open_to_others(path: Path, about: os.stat_result, mode: int | None = None) -> str:
    who = _writer(path, about, about.st_mode if mode is None else mode)
    return f"can be changed by {who}" if who and not _is_out_of_reach(path) else ""


def _writer(path: Path, about: os.stat_result, mode: int) -> str:
    """Name somebody, other than the user, root and the owner, who may change a path; empty if nobody may."""
    if mode & _WRITABLE_BY_ALL:
        return "every user"
    if not mode & _WRITABLE_BY_GROUP:  # the mode's group bits limit an access list as well
        return ""
    if not _is_private(about.st_gid):
        return f"group {_group(about.st_gid)}"
    return min(_listed_writers(path, about), default="")


def _listed_writers(path: Path, about: os.stat_result) -> set[str]:
    """Name the others who may write by a POSIX access list; with one, the mode's group bits are the list's mask."""
    try:
        entries = _ENTRIES.iter_unpack(_access_list(path, about)[_VERSION_BYTES:])
    except (OSError, struct.error):  # the path has been replaced
        return {"others"}
    may = {(tag, who) for tag, rights, who in entries if rights & _MAY_WRITE}
    users = {user_name(who) for tag, who in may if tag == _LISTED_USER and who not in {os.geteuid(), _ROOT}}
    return users | {f"group {_group(who)}" for tag, who in may if tag == _LISTED_GROUP and not _is_private(who)}


def _access_list(path: Path, about: os.stat_result) -> bytes:
    """Read the access list of an examined path; empty if it, or its file system, has none."""
    if not hasattr(os, "getxattr"):  # only Linux has it
        return b""
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        is_there = os.path.samestat(os.fstat(opened), about)
        return os.getxattr(f"/proc/self/fd/{opened}", _ACCESS_LIST) if is_there else b"another"
    except OSError as error:
        if error.errno in {errno.ENODATA, errno.EOPNOTSUPP}:
            return b""
        raise
    finally:
        os.close(opened)


def _is_private(gid: int) -> bool:
    """Whether a group is the user's own: on many systems each user's primary group has the user's name.

    A group does not list the users whose primary group it is, so the computer's own list of users is read as well.
    """
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    is_own = gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return is_own and not _begins_for_others(gid, user.pw_name)


def _begins_for_others(gid: int, name: str) -> bool:
    with suppress(OSError):
        users = (line.split(":") for line in read_text(_USERS, errors="replace").splitlines())
        return any(user[_GID : _GID + 1] == [str(gid)] and user[_NAME] != name for user in users)
    return False


def _is_out_of_reach(path: Path) -> bool:
    """Whether a folder above the path, owned by the user, cannot be entered by others."""
    for folder in Path(os.path.realpath(path)).parents:
        about = folder.stat()
        if not whose(about) and not about.st_mode & _ENTERED_BY_OTHERS:
            return True
    return False


def user_name(uid: int) -> str:
    """Return a phrase for a user, for messages."""
    return f"user {account(uid)}"


def account(uid: int) -> str:
    """Return a user's name, or the number if there is none."""
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def not_shared(path: Path) -> tuple[str, str]:
    """Return why the group cannot read a folder that is shared with it, and what to do; empty if it can.

    Raises `OSError`: the folder cannot be examined.
    """
    about, above = path.stat(), path.parent
    if _is_private(about.st_gid):
        above_it = (part.stat().st_gid for part in above.parents)
        theirs = next((_group(gid) for gid in above_it if _is_mine(gid) and not _is_private(gid)), "GROUP")
        real = shlex.quote(str(above))
        repair = f"`chgrp -R {theirs} {real}; chmod g+s,go-w {real}` shares this and later ones with {theirs}."
        return f"its group, {_group(about.st_gid)}, is yours alone", repair
    for folder in Path(os.path.realpath(path)).parents:
        seen = folder.stat()
        is_of_group = seen.st_gid == about.st_gid
        if not seen.st_mode & (stat.S_IXGRP if is_of_group else stat.S_IXOTH):
            why = f"group {_group(about.st_gid)} cannot get into {folder}"
            repair = f"`chmod {'g' if is_of_group else 'o'}+x {shlex.quote(str(folder))}` lets it through"
            return why, f"{repair}." if folder == above else f"{repair}. Or keep runs elsewhere: ASA_RUNS."
    return "", ""


def _is_mine(gid: int) -> bool:
    return gid in {os.getegid(), *os.getgroups()}


def _group(gid: int) -> str:
    with suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return str(gid)


def remedy(path: Path, about: os.stat_result) -> str:
    """Return what to do about a path that may not be acted on."""
    real = Path(os.path.realpath(path))
    folder = real if stat.S_ISDIR(about.st_mode) else real.parent
    trust = f"To trust what is in {folder}, add that path as a line to {_list()}."
    if whose(about) and path.is_symlink() and folder != real:
        trust = f"Put a copy of your own in place of the link to it, {path}. {trust}"
    if ignored := _listed()[1]:
        trust = f"{trust} {ignored}"
    if whose(about):
        return f"{UNUSED}{trust}"
    repair = f"`chmod -R go-w {shlex.quote(str(path))}`"
    if about.st_uid != os.geteuid():
        return f"{UNUSED}Ask its owner, {user_name(about.st_uid)}, for {repair}. {trust}"
    return f"{UNUSED}See that nobody has changed it; then: {repair}. {trust}"


def _list() -> str:
    try:
        return str(trusted_file())
    except RuntimeError:
        return "a file that $ASA_TRUSTED names"
