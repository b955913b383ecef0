"""Finds the user at the other end of a local connection: this user, root, or somebody else.

A path in ``/tmp`` and a port of the loopback belong to whoever takes them first. So after connecting, and before
anything is sent, the kernel is asked who is at the other end: by then that can no longer change.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise
from pathlib import Path

from asa.core.owned import user_name
from asa.core.safe import check_links
from asa.errors import AsaError

UNKNOWN = "somebody whom this system does not name"
"""Text for a user that the kernel does not name: for a port, if ``/proc/net/tcp`` does not list it."""

_ROOT = 0
_LISTENS = "0A"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_CREDENTIALS = struct.Struct("3i")  # process id, uid, gid
_Address = IPv4Address | IPv6Address


def stranger_at_socket(connection: socket.socket, path: str | Path | None = None, trusted: Iterable[int] = ()) -> str:
    """Name the user at the other end of a Unix socket, unless it is this user, root, or one of `trusted`; else empty.

    `path`: path of the socket; its folder may show which user is expected: see `_keeper`.
    """
    user = _user_of(connection)
    if user is None:
        return UNKNOWN
    meant = {os.geteuid(), _ROOT, *trusted} | ({_keeper(Path(path))} if path is not None else set())
    return "" if user in meant else user_name(user)


def stranger_at_port(connection: socket.socket, trusted: Iterable[int] = ()) -> str:
    """Name the user at the other end of a loopback TCP connection, unless it is this user, root, or one of `trusted`.

    Else empty. Both the owner of the other end and all listeners that could have answered are checked, since a listener
    may have gone since.
    """
    users = list(_users_at(connection))
    meant = {os.geteuid(), _ROOT, *trusted}
    if not any(listens for _, listens in users):
        return UNKNOWN
    return next((user_name(user) for user, _ in users if user not in meant), "")


def is_within(connection: socket.socket) -> bool:
    """Whether a TCP connection stays within this computer, by its actual addresses."""
    return _plain(connection.getpeername()[0]).is_loopback


def _user_of(connection: socket.socket) -> int | None:
    """Return the uid of the process at the other end of a Unix socket, listener or caller; None if not known."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    user = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))[1]
    return int(user) if user >= 0 else None


def _keeper(path: Path) -> int:
    """Return the user for whom root, or this user, made a socket or its folder; root if there is none.

    Administrators set up a daemon's folder in this way. The folder counts only if nobody else can have made it: not in
    a place such as ``/tmp``, where anybody can make folders, nor through another user's link. Root's links, as from
    ``/var/run``, are followed.
    """
    own = {os.geteuid(), _ROOT}
    try:
        check_links(path)
        path = path.resolve(strict=True)
        entries = [folder.stat() for folder in (*reversed(path.parents), path)]
    except (OSError, AsaError):
        return _ROOT
    for room, folder in pairwise(entries):
        is_open = stat.S_ISDIR(folder.st_mode) and folder.st_mode & _WRITABLE
        if folder.st_uid not in own:
            return _ROOT if is_open or room.st_mode & _WRITABLE else folder.st_uid
        if is_open and not folder.st_mode & stat.S_ISVTX:
            return _ROOT
    return _ROOT


def _users_at(connection: socket.socket) -> Iterator[tuple[int, bool]]:
    """Yield the users of all sockets that may be the other end, and whether each socket listens."""
    there, port = connection.getpeername()[:2]
    here, own_port = connection.getsockname()[:2]
    far, near = _plain(there), _plain(here)
    wanted = re.compile(rf" *[0-9]+: [0-9A-F]+:{port:04X} ")
    for table in _TABLES:
        try:
            with table.open(encoding="ascii") as lines:
                rows = [line.split() for line in lines if wanted.match(line)]
        except OSError:
            continue
        for row in rows:
            at, (by, by_port) = _end(row[1])[0], _end(row[2])
            if row[3] == _LISTENS and (at == far or at.is_unspecified):
                yield int(row[7]), True
            elif (at, by, by_port) == (far, near, own_port):
                yield int(row[7]), False


def _end(text: str) -> tuple[_Address, int]:
    """Read one end of a connection as the kernel writes it: address words in this machine's byte order, and a port."""
    address, _, port = text.partition(":")
    words = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
    return _plain(b"".join(word.to_bytes(4, sys.byteorder) for word in words)), int(port, 16)


def _plain(address: str | bytes) -> _Address:
    """Read an address; an IPv4 address mapped into IPv6 becomes IPv4."""
    read = ip_address(address.partition("%")[0] if isinstance(address, str) else address)
    return getattr(read, "ipv4_mapped", None) or read
