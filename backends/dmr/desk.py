"""A resource manager's side of the DMR API: a Unix socket for programs' requests (section 5.1).

Any resource manager can use it: a `Clerk` answers, each request in a thread of its own.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from asa.core.documents import read_json
from asa.core.files import in_words
from asa.core.peers import stranger_at_socket
from asa.dmr.protocol import MAX_BYTES
from asa.errors import InputError

_LONGEST_PATH = 107  # upper bound of the path of a Unix socket
_HEAR_S = 10.0  # time for a client to send its request
_LOOK_S = 0.05
_PROBE_S = 1.0


class Clerk(Protocol):
    """The answering part of a manager."""

    def reply(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a message. It may block."""
        ...

    def unheard(self, message: Mapping[str, Any]) -> None:
        """Undo an answer that nobody received."""
        ...


class ManagerDesk:
    """A Unix socket, while it is open.

    `path`: of the socket, in a folder of the user's own. A socket without a server is replaced.
    Raises `InputError`: the path is too long for a socket, or cannot be used; or another process serves it.
    """

    def __init__(self, path: Path, clerk: Clerk) -> None:
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise InputError(
                f"is too long for a socket, which takes {_LONGEST_PATH} bytes",
                where=str(path),
                hint="Name a shorter path.",
            )
        if _is_served(path):
            raise InputError("another resource manager serves it", where=str(path), hint="End that one, or use it.")
        self.path = path
        with in_words("cannot be a socket", path, "Name another."):
            path.unlink(missing_ok=True)
            self._server = _Server(path, clerk)
        path.chmod(0o600)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK_S,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with suppress(OSError):
            self.path.unlink()


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except TimeoutError:
            return True
        except OSError:
            return False
        return True


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, clerk: Clerk) -> None:
        super().__init__(str(path), _Visit)
        self.clerk = clerk


class _Visit(socketserver.StreamRequestHandler):
    timeout = _HEAR_S
    server: _Server

    def handle(self) -> None:
        """Read a line, and answer with one; only for this user or root, because requests use this user's rights."""
        if stranger_at_socket(self.connection):
            return
        try:
            message = read_json(self.rfile.readline(MAX_BYTES))
            if not isinstance(message, dict):
                return
            answer = json.dumps(self.server.clerk.reply(message)).encode()
        except (OSError, ValueError):  # the client is gone, or its message is invalid
            return
        try:
            self.wfile.write(answer + b"\n")
        except OSError:
            self.server.clerk.unheard(message)
