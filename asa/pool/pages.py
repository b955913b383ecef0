"""Where dask's processes show what they do by HTTP: to this machine alone, and by default nowhere."""

from __future__ import annotations

from typing import Any

from distributed.scheduler import Scheduler

LOOPBACK = "127.0.0.1"


def on_loopback(address: str) -> str:
    """Return the address of a page; on this machine's loopback, unless a host is named.

    Examples
    --------
    >>> on_loopback(":8787"), on_loopback("8787"), on_loopback("0.0.0.0:8787")
    ('127.0.0.1:8787', '127.0.0.1:8787', '0.0.0.0:8787')
    """
    host, _, port = address.rpartition(":")
    return f"{host or LOOPBACK}:{port}"


class WithoutPage(Scheduler):
    """A scheduler of dask's that listens for no browser."""

    def start_http_server(self, routes: Any, *args: Any, **kwargs: Any) -> None:
        """Begin what the rest of dask expects to be there, and stop listening at once."""
        super().start_http_server(routes, *args, **kwargs)
        self.http_server.stop()
