"""Displays of a run while it is driven: a table that is redrawn, lines, JSON, or nothing."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from rich.live import Live

from asa.cli.events import event_line, notice_line
from asa.cli.notices import Notice
from asa.cli.runs import print_document
from asa.cli.screen import draw
from asa.cli.standing import RunStanding
from asa.core.console import Console
from asa.records import Record

_MIN_S, _MAX_S = 1.0, 60.0
_SHARE = 1 / 30


class Display(Protocol):
    """Shows a run while it is driven."""

    def __enter__(self) -> Self:
        """Start the display."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal."""
        ...

    def happened(self, record: Record) -> None:
        """Show an event."""
        ...

    def noticed(self, notice: Notice) -> None:
        """Show a notice, which is no event of the run."""
        ...

    def due_s(self) -> float | None:
        """Seconds until `show` is to be called again; None for never."""
        ...

    def show(self, run: RunStanding) -> None:
        """Show the run's state."""
        ...


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def happened(self, record: Record) -> None:
        """Ignore the event."""

    def noticed(self, notice: Notice) -> None:
        """Ignore the notice."""

    def due_s(self) -> float | None:
        """Return None: nothing is ever redrawn."""
        return None

    def show(self, run: RunStanding) -> None:
        """Ignore the state."""


class Lines(Silent):
    """Prints one line per event, where stdout is no terminal."""

    def happened(self, record: Record) -> None:
        """Print a line."""
        if (line := event_line(record)) is not None:
            _print(line)

    def noticed(self, notice: Notice) -> None:
        """Print a line."""
        _print(notice_line(notice))


class JsonLines(Silent):
    """Prints one JSON object per event."""

    def happened(self, record: Record) -> None:
        """Print a line."""
        print_document(record.as_dict(), indent=None)

    def noticed(self, notice: Notice) -> None:
        """Print a line."""
        print_document(notice.as_dict(), indent=None)


class LiveTable(Silent):
    """A table that is redrawn each second while things happen, and ever less often while nothing does.

    Drawing takes some milliseconds. It happens each time that a thirtieth of the time since the last event has passed,
    and at least once a minute. In a long wait that is negligible, and no time on the screen is off by more than a
    thirtieth.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="ellipsis")
        self._happened_s = self._shown_s = time.monotonic()
        self._is_old = True

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.transient = kind is None  # a summary replaces the table, unless the user leaves
        with suppress(OSError):  # the terminal may be gone
            self._live.stop()

    def happened(self, record: Record) -> None:  # noqa: ARG002 - the table shows it
        """Redraw the table at the next opportunity."""
        self._happened_s, self._is_old = time.monotonic(), True

    def noticed(self, notice: Notice) -> None:  # noqa: ARG002 - likewise
        """Redraw the table at the next opportunity."""
        self._is_old = True

    def due_s(self) -> float | None:
        """Redraw soon after an event, and ever less often later."""
        if self._is_old:
            return 0.0
        now = time.monotonic()
        return max(self._shown_s + min(max((now - self._happened_s) * _SHARE, _MIN_S), _MAX_S) - now, 0.0)

    def show(self, run: RunStanding) -> None:
        """Draw the table."""
        self._shown_s, self._is_old = time.monotonic(), False
        self._live.update(draw(run, self._console.width, self._console.height), refresh=True)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
