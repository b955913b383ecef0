"""Files and folders that are acted on: read, made and written so that nobody else can exchange or change them.

`asa.core.owned` decides whether they may be. `check` gets an opened file, so that nobody can swap it after the check. A
folder is checked by its name, since each file that is read in it is checked as well.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO, BinaryIO, TextIO

from asa.core import owned
from asa.core.files import open_file, replacing
from asa.core.reading import DOCUMENT_BYTES, read_whole
from asa.errors import OwnerError

_PRIVATE, _SHARED, _SEEN = 0o700, 0o750, 0o755
_MAX_LINKS = 40  # the limit of Linux

is_trusted = owned.is_trusted


def is_safe(path: Path, about: os.stat_result | None = None) -> bool:
    """Whether a file or folder may be acted on, since nobody else can change it.

    `about`: its state, if it is open already; otherwise it is looked up by its path.
    Raises `OSError`: it does not exist, or cannot be examined.
    """
    return not owned.trouble(path, about or path.stat())


def refused(path: Path) -> tuple[str, str]:
    """Return why a path may not be acted on and what to do, as a phrase after its name; empty if it may.

    Raises `OSError` as `is_safe` does.
    """
    about = path.stat()
    trouble = owned.trouble(path, about)
    return trouble, owned.remedy(path, about).removeprefix(owned.UNUSED) if trouble else ""


def check(path: Path, about: os.stat_result | None = None, *, if_theirs: str = "") -> None:
    """Refuse to act on a path that others own or can change; without `about`, a folder is examined by its name.

    `if_theirs`: the hint if another user owns it, in place of the hint to trust it.
    Raises `OwnerError`. Raises `OSError`: it does not exist, or cannot be examined.
    """
    about = about or path.stat()
    if trouble := owned.trouble(path, about):
        raise OwnerError(trouble, where=str(path), hint=(owned.whose(about) and if_theirs) or owned.remedy(path, about))


def check_links(path: Path) -> None:
    """Refuse a path that leads through links of other users.

    Raises `OwnerError`. Raises `OSError`: a folder on the way cannot be examined.
    """
    whole = path.absolute()
    for part in (*reversed(whole.parents), whole):
        try:
            about = part.lstat()
        except FileNotFoundError:
            return
        if stat.S_ISLNK(about.st_mode) and (owner := owned.whose(about)) and not owned.is_trusted(part.parent):
            hint = f"Remove it, or name what it leads to: {part.readlink()}"
            raise OwnerError(f"is a link that {owner} has made", where=str(part), hint=hint)


def check_way(path: Path) -> None:
    """Refuse a path that will be used by its name, if others can replace it until then.

    Raises `OwnerError`. Raises `OSError`: a folder above it cannot be examined.
    """
    if not owned.is_trusted(path) and (trouble := owned.way_trouble(path)):
        hint = "Make that folder writable for you alone (chmod go-w), or have another one used."
        raise OwnerError(f"lies where others can put another in its place: {trouble}", where=str(path), hint=hint)


def check_fixed(folder: Path, what: str, hint: Callable[[os.stat_result], str]) -> None:
    """Refuse a folder in which others can replace files.

    `what`: the kind of file that is used there, for the message. `hint`: returns the hint, given the folder's status.
    Raises `OwnerError`; also if a link of another user leads there. Raises `OSError`: it cannot be examined.
    """
    check_links(folder)
    about = folder.stat()
    # all users can make files there, but not replace those of others
    is_sticky = about.st_mode & stat.S_ISVTX and not owned.whose(about)
    if not is_sticky and (trouble := owned.trouble(folder, about)):
        trouble = f"{trouble}, who can put another {what} in the place of yours"
        raise OwnerError(trouble, where=str(folder), hint=hint(about))


def read(path: Path, opened: Callable[[Path], IO[bytes]] = open_file, max_bytes: int = DOCUMENT_BYTES) -> bytes:
    """Read a whole file that is acted on, opened by `opened`, up to the size limit.

    Raises `OwnerError`: others own it or can change it. Raises `OSError` as `opened` does.
    """
    with opened(path) as file:
        check(path, os.fstat(file.fileno()))
        return read_whole(file, path, max_bytes)


def look_at(path: Path) -> None:
    """Report the owner of a file or folder that is only shown, if it is another user."""
    with suppress(OSError):
        if owner := owned.whose(path.stat()):
            owned.others[str(path)] = owner


def ones_own(path: Path, *, begins: bool = True) -> Path:
    """Return a user's folder or, if another user has made it, the user's own folder next to it.

    `begins`: whether something new will be put there; if not, the user's own folder is returned only if it exists.
    """
    own = owned.own_path(path)
    try:
        has_own = own.lstat().st_uid == os.geteuid()
    except OSError:
        has_own = False
    return own if has_own or (begins and owned.of_another(path)) else path


def make_folder(path: Path, *, is_shared: bool = False) -> None:
    """Make a folder that only its user can enter, whatever umask, setgid and default access lists say.

    `is_shared`: its group may read it; in a trusted place the umask decides.
    Raises `OSError`: it cannot be made, or exists.
    """
    if owned.is_trusted(path.parent):
        path.mkdir()
        return
    path.mkdir(mode=_PRIVATE)
    if is_shared:
        path.chmod(_SHARED | path.stat().st_mode & stat.S_ISGID)


def provide_above(path: Path, *, is_shared: bool = False) -> None:
    """Make the missing folders above a path, with the umask, but so that nobody else can change them.

    `is_shared`: all may read them, whatever the umask.
    """
    for folder in reversed(path.parents):
        with suppress(FileExistsError):
            if not folder.exists():
                folder.mkdir(0o777 if owned.is_trusted(folder.parent) else _SEEN)
                if is_shared:
                    about = folder.stat()
                    folder.chmod(stat.S_IMODE(about.st_mode) | _SEEN)


def provide_folder(path: Path, *, is_shared: bool = False) -> None:
    """Make a folder as `make_folder` does, and folders above it as `provide_above` does, unless it exists."""
    if not path.is_dir():
        provide_above(path)
        try:
            make_folder(path, is_shared=is_shared)
        except FileExistsError:
            if not path.is_dir():  # unless another process has made it
                raise


def cache_folder() -> Path:
    """Return the folder for files that may be deleted: ``asa`` in ``$XDG_CACHE_HOME``, else in ``~/.cache``.

    Raises `RuntimeError`: the home folder is not known.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "asa"


# ---------------------------------------------------------------------- writing


def followed(path: Path) -> Path:
    """Follow links of the user and root to the file that the user wants written.

    A path to anything but a regular file, such as a pipe, is returned unchanged.
    Raises `OwnerError`: a link on the way belongs to another user. Raises `OSError`: its target cannot be examined.
    """
    target = path
    for _ in range(_MAX_LINKS):
        check_links(target)
        if (path.exists() and not path.is_file()) or not target.is_symlink():
            break
        target = target.parent / target.readlink()
    return path if path.exists() and not path.is_file() else target


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Write to the path from `followed`: into a pipe, or to a new file, which replaces the old one and keeps its mode.

    Raises `OwnerError`: it is another user's pipe, or a link of another user leads there.
    """
    target = followed(path)
    if not target.is_file() and target.exists():
        with os.fdopen(_open_special(target), "wb") as file:
            yield file
        return
    with replacing(target) as file:
        with suppress(FileNotFoundError):
            about = target.lstat()
            if about.st_uid == os.geteuid() and stat.S_ISREG(about.st_mode):
                os.fchmod(file.fileno(), stat.S_IMODE(about.st_mode) & 0o777)
        yield file


@contextmanager
def writing_text(path: Path, *, newline: str | None = None, is_new: bool = False) -> Iterator[TextIO]:
    """Write a text to a path that the user named, as `writing` does.

    `is_new`: the file must not exist yet.
    """
    with _making(path) if is_new else writing(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline=newline)
        yield text
        text.flush()
        text.detach()


def _making(path: Path) -> BinaryIO:
    target = followed(path)
    return open(target, "xb", opener=lambda name, how: os.open(name, how | os.O_NOFOLLOW, 0o666))


def _open_special(path: Path) -> int:
    """Open a special file; refuse another user's pipe, which could block for ever and would give them the text."""
    _refuse_pipe(path, path.stat())
    descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _refuse_pipe(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_pipe(path: Path, about: os.stat_result) -> None:
    is_named = Path(os.path.realpath(path)).exists()  # False: a stream that this process inherited
    owner = "" if stat.S_ISCHR(about.st_mode) or not is_named else owned.whose(about)
    if owner and not owned.is_trusted(path.parent):
        raise OwnerError(f"is a FIFO of {owner}", where=str(path), hint="Remove it, or name another file.")
