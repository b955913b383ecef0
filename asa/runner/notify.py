"""Notifies a run's user, by a command or by mail, that the run ended, that a stage failed, or that nothing moves."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core import safe
from asa.core.reading import run_command
from asa.printable import on_one_line
from asa.records import Record, RunEnded

if TYPE_CHECKING:
    from asa.runner.folder import RunFolder
    from asa.runner.state import RunState

STUCK_S = 86_400.0
"""Seconds without news of a run's jobs after which nothing seems to move."""

_ADDRESS = re.compile(r"[A-Za-z0-9][^\s@/,;|&]*@[^\s@/,;|&]+(,\s*[A-Za-z0-9][^\s@/,;|&]*@[^\s@/,;|&]+)*")
_TIMEOUT_S = 30.0
_NOTIFIED = "told"


class Notifier:
    """Notifies a user of events in a run, once for each event, whichever client drives the run.

    If a notification cannot be sent, the run continues, and `client.log` says so.

    `folder`: the run's folder. Its plan has the address, to which `mail` writes, or the command, which gets
    ``ASA_EVENT`` (``completed``, ``failed``, ``cancelled``, ``stage-failed``, ``stuck``), ``ASA_RUN`` (the run's
    folder) and, as its input, the message.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._failed: set[str] = set()

    def look(self, state: RunState) -> None:
        """Notify of stages that have failed since the last look, and of a run in which nothing moves."""
        if not self._folder.plan.notify or state.outcome is not None:
            return
        for name in set(state.stages.failed) - self._failed:
            self._failed.add(name)
            once = f"stage-failed-{name}-{state.stages[name].resubmissions}"
            self._tell(once, "stage-failed", f"{self._name}: {state.stages[name].reason}")
        with suppress(OSError):
            moved_s = self._folder.moved_s()
            if time.time() - moved_s > STUCK_S:
                since = time.strftime("%Y-%m-%d %H:%M", time.localtime(moved_s))
                text = f"{self._name}: no news of its jobs since {since}. See: asa explain"
                self._tell(f"stuck-{moved_s:.0f}", "stuck", text)

    def ended(self, records: Iterable[Record]) -> None:
        """Notify of the run's latest end; a run that was retried has several."""
        end = max(
            (record for record in records if isinstance(record, RunEnded)), key=lambda ended: ended.time_s, default=None
        )
        if end is not None and self._folder.plan.notify:
            text = f"{self._name} {_HOW[end.outcome]}{end.reason and f': {end.reason}'}"
            self._tell(f"ended-{end.time_s:.0f}", end.outcome, text)

    @property
    def _name(self) -> str:
        return self._folder.path.name

    def _tell(self, once: str, event: str, message: str) -> None:
        """Send a notification unless it was sent already; at most once, even if this client is killed meanwhile."""
        marks = self._folder.path / _NOTIFIED
        try:
            safe.provide_folder(marks)
            (marks / re.sub(r"[^A-Za-z0-9._-]", "_", once)).touch(exist_ok=False)
        except OSError:
            return
        message, what = on_one_line(message), self._folder.plan.notify  # the first line is the mail's subject
        command = (
            ["mail", "-s", message[:200], *what.replace(",", " ").split()]
            if _ADDRESS.fullmatch(what)
            else ["/bin/sh", "-c", what]
        )
        environment = {**os.environ, "ASA_EVENT": event, "ASA_RUN": str(self._folder.path.absolute())}
        where = self._folder.plan.folder
        try:
            folder = where if where and Path(where).is_dir() else None
            done = run_command(command, stdin=f"{message}\n", timeout_s=_TIMEOUT_S, env=environment, cwd=folder)
            trouble = "" if done.returncode == 0 else f"exit code {done.returncode} {done.stderr.strip()[-200:]}"
        except (OSError, subprocess.TimeoutExpired) as error:
            trouble = str(error)
        if trouble:
            self._folder.log_note(f"could not tell {what!r} of {event}: {trouble}")


_HOW = {"completed": "has completed", "failed": "has failed", "cancelled": "was cancelled"}
