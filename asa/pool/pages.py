"""Addresses of the HTTP pages of dask's processes: by default none; otherwise on this machine's loopback."""

from __future__ import annotations

from typing import Any

from distributed.scheduler import Scheduler

LOOPBACK = "127.0.0.1"


def on_loopback(address: str) -> str:
    """Return the address of a page: on this machine's loopback, unless a host is named.

    Examples
    --------
    >>> on_loopback(":8787"), on_loopback("8787"), on_loopback("0.0.0.0:8787")
    ('127.0.0.1:8787', '127.0.0.1:8787', '0.0.0.0:8787')
    """
    host, _, port = address.rpartition(":")
    return f"{host or LOOPBACK}:{port}"


class WithoutPage(Scheduler):
    """A scheduler of dask's without HTTP pages."""

    def start_http_server(self, routes: Any, *args: Any, **kwargs: Any) -> None:
        """Start the server that the rest of dask expects, and stop listening at once."""
        super().start_http_server(routes, *args, **kwargs)
        self.http_server.stop()
