"""Stands for a cluster that cannot be reached when a client of a run begins, so that the others' jobs need not wait."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from asa.backend import Backend, Capabilities, Condition, JobSpec, JobStatus, Recalls
from asa.core.documents import read_json
from asa.core.files import put, read_file
from asa.core.typed import made, written
from asa.errors import UnavailableError
from asa.waits import QueueEvent

_FILE = "abilities.json"
_AGAIN_S = 30.0


def keep(own: Path, capabilities: Capabilities) -> None:
    """Keep what a cluster can do for later clients of the run; `own`: its folder there. A full disk raises no error."""
    with suppress(OSError):
        put(own / _FILE, written(capabilities).encode(), is_private=True)


def kept(own: Path) -> Capabilities | None:
    """Return what a cluster could do when it was last reached; None if no client of the run has reached it."""
    try:
        return made(Capabilities, read_json(read_file(own / _FILE)))
    except (OSError, ValueError, TypeError):
        return None


class AbsentCluster:
    """A cluster that is tried again every half a minute, as a backend; see `asa.backend.Backend`.

    Until then nothing is changed there, and its jobs are taken to be as they were when an earlier client saw them last.

    `capabilities`: what it could do then. `error`: why it cannot be reached. `connect`: connects to it.
    """

    def __init__(self, capabilities: Capabilities, error: UnavailableError, connect: Callable[[], Backend]) -> None:
        self._capabilities, self._error, self._connect = capabilities, error, connect
        self._since_s = self._tried_s = time.time()
        self._last_known: Callable[[str], JobStatus | None] = lambda _: None

    def back(self) -> Backend | None:
        """Return the cluster's backend if it can be reached by now."""
        if 0 <= time.time() - self._tried_s < _AGAIN_S:
            return None
        try:
            backend = self._connect()
        except UnavailableError as error:
            self._error, self._tried_s = error, time.time()
            return None
        if isinstance(backend, Recalls):
            backend.recall(self._last_known)
        return backend

    @property
    def capabilities(self) -> Capabilities:
        """Abilities as they were."""
        return self._capabilities

    @property
    def condition(self) -> Condition:
        """Why it is away."""
        return Condition(self._since_s, self._error.message)

    def now(self) -> float:
        """Read this computer's clock, in whole seconds."""
        return float(math.floor(time.time()))

    def recall(self, last_known: Callable[[str], JobStatus | None]) -> None:
        """Go on from what earlier clients have seen; see `asa.backend.Recalls`."""
        self._last_known = last_known

    def submit(self, spec: JobSpec) -> str:
        """Raise `UnavailableError`."""
        self._refuse(f"job {spec.name!r}")

    def goes_alone(self, options: Sequence[str], texts: Iterable[str]) -> bool:  # noqa: ARG002 - the port's shape
        """Tell nothing."""
        return False

    def submit_together(self, specs: Sequence[JobSpec]) -> Sequence[str]:
        """Raise `UnavailableError`."""
        self._refuse(f"job {specs[0].name!r}")

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Raise `UnavailableError`."""
        self._refuse(f"jobs {', '.join(tokens)}")

    def cancel(self, job_id: str) -> None:
        """Raise `UnavailableError`."""
        self._refuse(f"job {job_id}")

    def withdraw(self, job_id: str) -> bool:
        """Raise `UnavailableError`."""
        self._refuse(f"job {job_id}")

    def hold(self, job_id: str) -> None:
        """Raise `UnavailableError`."""
        self._refuse(f"job {job_id}")

    def release(self, job_id: str) -> None:
        """Raise `UnavailableError`."""
        self._refuse(f"job {job_id}")

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the last known states of jobs."""
        found = {job_id: self._last_known(job_id) for job_id in job_ids}
        for job_id, status in found.items():
            if status is None:
                self._refuse(f"job {job_id}")
        return {job_id: status for job_id, status in found.items() if status is not None}

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:  # noqa: ARG002 - the port's shape
        """Return nothing, at once."""
        return []

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:  # noqa: ARG002 - likewise
        """Return nothing."""
        return []

    def _refuse(self, where: str) -> NoReturn:
        raise UnavailableError(self._error.message, where=where, hint=self._error.hint)
