"""Ends a connection on which an exchange takes too long, whatever arrives on it meanwhile.

`httpx` limits the time of each piece, but reads on while pieces arrive: an answer's headers byte by byte, or interim
answers (`100 Continue`) without end.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from typing import Any

_CONNECTED = (".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")  # of httpcore's events


class Watch:
    """Knows the connection in use, and shuts it down once the time of an exchange is up."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self._is_up = False
        self._lock = Lock()

    def see(self, event: str, stream: Any) -> None:
        """Note the connection that was made, of which httpcore reports."""
        if event.endswith(_CONNECTED):
            with self._lock:
                self._connection = stream.get_extra_info("socket")
                if self._is_up:
                    self._shut()

    @contextmanager
    def limited(self, timeout_s: float) -> Iterator[None]:
        """Limit how long what is done in it may use the connection."""
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
        """The time of the last exchange was up before it ended."""
        return self._is_up

    def _shut(self) -> None:
        if self._connection is not None:
            with suppress(OSError):  # it is closed already
                # not the method of an encrypted one, which would have the rest read as if it were not encrypted
                socket.socket.shutdown(self._connection, socket.SHUT_RDWR)
