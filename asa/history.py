"""Past jobs, from any source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asa.core import plugins
from asa.core.documents import open_file
from asa.core.late import dataclass
from asa.core.reading import UNPACKING_ERRORS, Stream, unpacked
from asa.errors import InputError, TraceError

__all__ = ["JobHistory", "opened", "read_history"]

_READERS = "asa.histories"
_COLUMNS = ("submit_s", "wait_s", "cores", "walltime_s", "started", "run_s", "user", "partition", "allocated")


def _none() -> NDArray[np.float64]:
    return np.empty(0)


@dataclass(frozen=True, slots=True)
class JobHistory:
    """Past jobs to learn waits from; columns of equal length, in order of submission.

    Parameters
    ----------
    submit_s
        When each job began to queue, in seconds of one clock: at its submission, or when it became eligible if later.
    wait_s
        How many seconds each job queued.
    cores, walltime_s
        What each job asked for.
    started
        Whether the job started; else it left the queue after `wait_s`, which is then a lower bound of its wait.
    run_s
        Seconds that the job ran; negative if not known.
    user, partition
        Indices into `users` and `partitions`; -1 if not known.
    users, partitions
        Names of the users and partitions.
    system
        Name of the system; may be empty.
    machine_cores
        Cores of the machine; 0 if not known.
    source
        Where the data come from, for people.
    oddities
        How many rows each of the reader's rules changed or dropped, by a description of the rule.
    allocated
        Cores that the job got, which may be more than it asked for; 0 if not known.
    """

    submit_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    cores: NDArray[np.int64]
    walltime_s: NDArray[np.float64]
    started: NDArray[np.bool_]
    run_s: NDArray[np.float64] = field(default_factory=_none)
    user: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    partition: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    users: Sequence[str] = ()
    partitions: Sequence[str] = ()
    system: str = ""
    machine_cores: int = 0
    source: str = ""
    oddities: dict[str, int] = field(default_factory=dict)
    allocated: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        rows = len(self.submit_s)
        for name, unknown in (("run_s", -1.0), ("user", -1), ("partition", -1), ("allocated", 0)):
            if not len(getattr(self, name)) and rows:
                object.__setattr__(self, name, np.full(rows, unknown, dtype=getattr(self, name).dtype))
        if any(len(getattr(self, name)) != rows for name in _COLUMNS):
            raise InputError("the columns of a history differ in length", where=self.source)
        if rows and bool(np.any(np.diff(self.submit_s) < 0)):
            raise InputError("a history is not in order of submission", where=self.source)

    def __len__(self) -> int:
        return len(self.submit_s)

    def first(self, jobs: int) -> JobHistory:
        """Return the first `jobs` jobs."""
        return self.where(slice(jobs))

    def last(self, jobs: int) -> JobHistory:
        """Return the last `jobs` jobs."""
        return self.where(slice(max(len(self) - jobs, 0), None))

    def where(self, which: slice | NDArray[np.bool_]) -> JobHistory:
        """Return some of the jobs, in their order, by a slice or a mask."""
        return replace(self, **{name: getattr(self, name)[which] for name in _COLUMNS})


@contextmanager
def opened(path: str | Path, hint: str = "Check the path.") -> Iterator[Stream]:
    """Open a log, whether compressed by gzip or not, and turn errors while it is read into `TraceError`.

    For readers of histories. Gzip is recognized by the first bytes, not by the file's name.

    Parameters
    ----------
    path
        The file.
    hint
        What to do if it cannot be read.

    Raises
    ------
    TraceError
        The file cannot be read, or its compressed content is broken.
    """
    file = Path(path)
    try:
        with open_file(file) as raw, unpacked(raw) as stream:
            yield stream
    except UNPACKING_ERRORS as error:
        raise TraceError("is cut off or no gzip file", where=str(file), hint="Fetch it again.") from error
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror or error}", where=str(file), hint=hint) from error


def read_history(path: str | Path) -> JobHistory:
    r"""Read past jobs from a file of any format that an installed reader knows.

    Readers are functions of a path in the entry-point group ``asa.histories``; a reader returns None for a file that is
    clearly of another format. The first history that a reader returns is used. A reader may have an attribute
    ``how_to_make``, which says where such files come from; it is shown for a file that no reader knows.

    Parameters
    ----------
    path
        The file; plain or compressed by gzip.

    Returns
    -------
    JobHistory
        With at least one job. What its reader left out or changed is counted in its `oddities`.

    Raises
    ------
    TraceError
        The file cannot be read, is empty, of no known format, or broken.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = Path(folder, "log.swf")
    ...     _ = log.write_text("1 0 30 60 4 -1 -1 4 600\n2 5 0 7 9 -1 -1 9 70\n")
    ...     read_history(log).wait_s.tolist()
    [30.0, 0.0]
    """
    file = Path(path)
    with opened(file) as stream:
        empty = not stream.read(1)
    readers = {name: plugins.load(_READERS, name) for name in sorted(plugins.names(_READERS))}
    sources = [f"{name}: {getattr(reader, 'how_to_make', '')}".rstrip(": ") for name, reader in readers.items()]
    known = "\n".join(["Kinds that can be read:", *sources])
    if empty:
        raise TraceError("is empty", where=str(file), hint=known)
    for reader in readers.values():
        history: JobHistory | None = reader(file)
        if history is not None:
            return history
    raise TraceError("is no job history of a known kind", where=str(file), hint=known)
