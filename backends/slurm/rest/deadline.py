"""Closes a connection on which an exchange takes too long, even if data keeps arriving.

`httpx` limits the time of each piece, but reads on while pieces arrive, such as headers byte by byte, or endless
interim answers (`100 Continue`).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from typing import Any

# names of httpcore's events
_CONNECTED = (".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")


class Watch:
    """Keeps the connection in use, and shuts it down when the time of an exchange is over."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self._is_up = False
        self._lock = Lock()

    def see(self, event: str, stream: Any) -> None:
        """Record the connection that httpcore reports as made."""
        if event.endswith(_CONNECTED):
            with self._lock:
                self._connection = stream.get_extra_info("socket")
                if self._is_up:
                    self._shut()

    @contextmanager
    def limited(self, timeout_s: float) -> Iterator[None]:
        """Limit the time of an exchange within this context."""
        self._is_up, is_over = False, False

        def end() -> None:
            with self._lock:
                if not is_over:
                    self._is_up = True
                    self._shut()

        timer = Timer(timeout_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                is_over = True

    @property
    def is_up(self) -> bool:
        """Whether the time of the last exchange was over before it ended."""
        return self._is_up

    def _shut(self) -> None:
        if self._connection is not None:
            with suppress(OSError):  # the socket is closed already
                # not the method of an encrypted socket: that would read the rest as unencrypted
                socket.socket.shutdown(self._connection, socket.SHUT_RDWR)
