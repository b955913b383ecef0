"""Filters dask's warnings of calls that a leaving worker breaks off, which are harmless."""

from __future__ import annotations

import logging
from collections.abc import Callable
from ssl import SSLEOFError
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

_LOGGERS = [logging.getLogger(name) for name in ("distributed.comm.tcp", "tornado.application")]
_STOPPED = "non-started TCPListener"  # in dask's message about a call that arrives before its scheduler is closed


class Quiet(logging.Filter):
    """While workers leave, drops warnings that a caller was gone before the scheduler could accept it.

    All other warnings are shown, including those at any other time and those about callers without a valid certificate.

    `some_leave`: returns whether workers leave, or have just left.
    """

    def __init__(self, scheduler: Scheduler, some_leave: Callable[[], bool]) -> None:
        super().__init__()
        self._addresses = {listener.listen_address for listener in scheduler.listeners}
        self._some_leave = some_leave
        for logger in _LOGGERS:
            logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a warning is shown."""
        match record.args:
            case (address, _, SSLEOFError() | ConnectionResetError()) if address in self._addresses:
                return not self._some_leave()
        error = record.exc_info[1] if record.exc_info else None
        return not (isinstance(error, ValueError) and _STOPPED in str(error) and self._some_leave())

    def end(self) -> None:
        """Stop filtering."""
        for logger in _LOGGERS:
            logger.removeFilter(self)
