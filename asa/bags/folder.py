"""A bag as its client sees it: its progress, and how the client gives back the tasks of jobs that are gone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.files import open_file, read_file, read_text
from asa.core.late import dataclass
from asa.core.reading import JOURNAL_BYTES, read_lines
from asa.outcome import JobOutcome, outcome_from

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAX_HEAD_BYTES = 256  # three numbers
_RECORD = re.compile(rb":(\d+) (\d+) (\d+) (\d+)(?: ([a-z-]+))?;")
_WELL = b" 0 "  # an exit code of 0: no other number in a record is 0 between two spaces
_TAIL_BYTES = 8192  # of the end of a log, from which the present rate of its taker is read
_TAIL_TASKS = 100
_HUNDREDTHS = 100.0
_SPARE = ".spare"

Range = tuple[int, int]
"""Indices of the first and the last task in a round's list."""


def chunks(count: int, divisor: int) -> Iterator[Range]:
    """Cut a list into chunks, each a fraction of the tasks that are left, so that the last chunks are small.

    `count`: number of tasks in the list.
    `divisor`: the next chunk has the rest divided by this number, but at least one task.

    Examples
    --------
    >>> list(chunks(10, 4))
    [(1, 2), (3, 4), (5, 5), (6, 6), (7, 7), (8, 8), (9, 9), (10, 10)]
    """
    first = 1
    while first <= count:
        last = first + max((count - first + 1) // divisor, 1) - 1
        yield first, last
        first = last + 1


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a bag.

    `tasks`: their number.
    `completed`, `failed`: numbers of those that have ended. A failed task is repeated only with its stage.
    `running`: number of those that run now, as far as the logs show.
    `rate`: tasks that end per second, by the latest records of the running jobs; 0 if not known.
    """

    tasks: int
    completed: int
    failed: int
    running: int
    rate: float

    @property
    def left(self) -> int:
        """Number of tasks that no job runs or has run."""
        return max(self.tasks - self.completed - self.failed - self.running, 0)

    @property
    def lasts_s(self) -> float | None:
        """Seconds until all have ended at the present rate; None if the rate is not known."""
        rest = self.left + self.running
        return 0.0 if not rest else rest / self.rate if self.rate else None


@dataclass(frozen=True, slots=True, eq=False)
class Deeds:
    """The tasks of a bag that one job ran: one row for each that ended, in the order of the job's log.

    `token`: the job's token.
    `began_s`, `ended_s`: seconds since 1970, by the clock of the node.
    `exit_codes`: the exit code of each.
    """

    token: str
    began_s: NDArray[np.float64]
    ended_s: NDArray[np.float64]
    exit_codes: NDArray[np.int64]


class Bag:
    """The folder of a stage's bag.

    `folder`: its path; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def progress(self, ended: Iterable[str] = ()) -> Progress | None:
        """Return the progress in the latest round; None if no job has begun it, or its files cannot be read.

        Takes O(bytes of the logs), since lines are counted.

        `ended`: tokens of jobs that have ended.
        """
        try:
            rounds = [int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()]
            begun = [number for number in rounds if (self._folder / str(number) / "list").is_file()]
            return _Round(self._folder / str(max(begun))).progress(frozenset(ended)) if begun else None
        except (OSError, ValueError):
            return None

    def deeds(self) -> list[Deeds]:
        """Return which job ran which tasks when, in all rounds, as far as files can be read, by first beginning.

        O(bytes of the logs).
        """
        import numpy as np  # noqa: PLC0415 - commands that show no tasks need no numpy

        rows_by_token: dict[str, list[NDArray[np.int64]]] = {}
        with suppress(OSError, ValueError):
            for path in sorted(path for path in self._folder.iterdir() if path.name.isdecimal()):
                for token, rows in _Round(path).deeds() if (path / "list").is_file() else ():
                    rows_by_token.setdefault(token, []).append(rows)
        made = []
        for token, parts in rows_by_token.items():
            codes, began, ended = np.concatenate(parts).T
            made.append(Deeds(token, began / _HUNDREDTHS, ended / _HUNDREDTHS, codes))
        return sorted(made, key=lambda deeds: float(deeds.began_s.min()))

    def longest_s(self) -> float | None:
        """Return how long the longest task ran that completed; None if none did, or if its records cannot be read."""
        completed = ((ran.ended_s - ran.began_s)[ran.exit_codes == 0] for ran in self.deeds())
        return max((float(ran_s.max()) for ran_s in completed if ran_s.size), default=None)

    def ends(self) -> dict[str, tuple[int, JobOutcome | None]]:
        """Return the last exit code and outcome of each ended task, by the task's text, as far as files can be read.

        A task has an outcome only if asa's own shell code ended it, as that code may end an element of an array.
        """
        return {task: how for _, task, how in self._ended()}

    def ran_by(self) -> dict[str, list[str]]:
        """Return the texts of the tasks that each job has ended, by its token, as far as files can be read."""
        texts: dict[str, list[str]] = {}
        for token, task, _ in self._ended():
            texts.setdefault(token, []).append(task)
        return texts

    def _ended(self) -> Iterator[tuple[str, str, tuple[int, JobOutcome | None]]]:
        """Yield each ended task of all rounds: its job's token, its text, its exit code and outcome."""
        with suppress(OSError, ValueError):
            rounds = sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdecimal())
            for number in rounds:
                if (self._folder / str(number) / "list").is_file():
                    yield from _Round(self._folder / str(number)).ended()

    def did(self, number: int, token: str) -> bool:
        """Whether a job has logged the end of a task, as far as the visible files show.

        `number`: the round.
        `token`: of the job.
        """
        with suppress(OSError, ValueError):
            round_ = _Round(self._folder / str(number))
            return any(map(round_.has_logged, round_.takers_of(token)))
        return False

    def saw_kills(self, number: int, token: str) -> bool:
        """Whether the job itself recorded which of its tasks lost a process for lack of memory.

        `number`: the round.
        `token`: of the job.
        """
        with suppress(OSError, ValueError):
            round_ = _Round(self._folder / str(number))
            return any(map(round_.has_seen_kills, round_.takers_of(token)))
        return False

    def give_back(self, number: int, token: str) -> bool:
        """Give back the tasks that a lost job had claimed and not ended, so that other jobs take them.

        `number`: the round.
        `token`: of the job.
        Returns: whether all were given back. If not, try again later: the disk is full, or some files are not visible
        yet.
        """
        try:
            round_ = _Round(self._folder / str(number))
            return all([round_.give_back(name) for name in round_.takers_of(token)])  # noqa: C419 - each
        except FileNotFoundError:
            return True  # the job had not begun
        except (OSError, ValueError):
            return False


class _Round:
    """A round's folder, read anew at each call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with open_file(folder / "list") as file:
            self._count, self._divisor, self._before = map(int, file.readline(_MAX_HEAD_BYTES).split())

    def takers_of(self, token: str) -> list[str]:
        """Return the takers of a job: one for each of its starts on each of its nodes."""
        return [name for name in self._takers() if name.startswith(f"{token}.")]

    def has_logged(self, name: str) -> bool:
        """Whether a taker has logged the end of a task."""
        return (self._folder / "logs" / name).stat().st_size > 0

    def has_seen_kills(self, name: str) -> bool:
        """Whether a taker has logged that a task lost a process for lack of memory."""
        word = str(JobOutcome.OUT_OF_MEMORY).encode()
        return any(record[5] == word for record in _RECORD.finditer(self._log(name)))

    def _takers(self) -> list[str]:
        """Return all takers that began."""
        return [name for name in _names(self._folder / "logs") if not name.endswith(_SPARE)]

    def progress(self, over: frozenset[str]) -> Progress:
        """Count the tasks that have ended, and the tasks that run in takers whose jobs are not in `over`."""
        taken = self._taken()
        completed = failed = running = 0
        rate = 0.0
        for name in self._takers():
            log = self._log(name)
            given = self._given(name)
            well, ended = _counts(log, given)
            completed, failed = completed + well, failed + max(ended - well, 0)
            begun = sum(last - first + 1 for first, last in taken.get(name, ())) - ended
            if given is None and begun > 0 and name.partition(".")[0] not in over:
                workers = (self._folder / "logs" / f"{name}{_SPARE}").stat().st_size // 4096
                running += min(workers, begun)
                rate += _rate(log)
        return Progress(self._before + self._count, self._before + completed, failed, running, rate)

    def deeds(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield for each taker its job's token, and the exit code, beginning and end of each of its tasks."""
        import numpy as np  # noqa: PLC0415 - likewise

        for name in self._takers():
            gone = {at for first, last in self._given(name) or () for at in range(first, last + 1)}
            records = _RECORD.findall(self._log(name))
            rows = [record[1:4] for record in records if not gone or int(record[0]) not in gone]
            if rows:
                yield name.partition(".")[0], np.array(rows, dtype=np.int64)

    def ended(self) -> Iterator[tuple[str, str, tuple[int, JobOutcome | None]]]:
        """Yield for each ended task its job's token, its text, its exit code, and its outcome (None if it has none)."""
        with open_file(path := self._folder / "list") as file:
            tasks = [line.decode().partition(" ")[2] for line in read_lines(file, path)]  # the first line is the head
        for name in self._takers():
            gone = {at for first, last in self._given(name) or () for at in range(first, last + 1)}
            for number, code, _, _, word in _RECORD.findall(self._log(name)):
                if int(number) not in gone and int(number) < len(tasks):
                    yield name.partition(".")[0], tasks[int(number)], (int(code), outcome_from(word.decode()))

    def give_back(self, name: str) -> bool:
        """Write the file of the tasks that a taker had claimed and not ended, unless it exists."""
        taker_folder = self._folder / "returned" / name
        if taker_folder.exists():
            return True
        # read first: a taker that is still alive keeps the tasks that it claims from now on
        taken = self._taken().get(name, ())
        ended = {int(record[1]) for record in _RECORD.finditer(self._log(name))}
        left = [at for first, last in taken for at in range(first, last + 1) if at not in ended]
        text = "".join(f"{first} {last}\n" for first, last in _pieces(left, max(len(left) // self._divisor, 1)))
        draft = self._folder / f".returned.{name}.{os.urandom(4).hex()}"
        try:
            draft.write_text(text)
            with suppress(FileExistsError):  # another process wrote it first
                taker_folder.hardlink_to(draft)
        finally:
            draft.unlink(missing_ok=True)
        return True

    def _log(self, name: str) -> bytes:
        """Read a taker's log; empty if it is not visible, although it may exist."""
        logs = self._folder / "logs"
        return b"\n".join(read_file(logs / file, JOURNAL_BYTES) for file in (f"{name}{_SPARE}", name))

    def _given(self, name: str) -> list[Range] | None:
        """Return the tasks of a taker that were given back; None if none were, so the taker may begin more tasks."""
        try:
            lines = read_text(self._folder / "returned" / name).splitlines()
        except FileNotFoundError:
            return None
        return [(int(first), int(last)) for first, last in map(str.split, lines)]

    def _taken(self) -> dict[str, list[Range]]:
        """Return the ranges of tasks that each taker has claimed."""
        claims, taken = self._folder / "claims", dict[str, list[Range]]()
        of_chunk = [(0, 0), *chunks(self._count, self._divisor)]
        given: dict[str, list[Range]] = {}
        for name in _names(claims):
            who = str((claims / name).readlink())
            giver, is_given, line = name.partition("+")
            if not is_given:
                taken.setdefault(who, []).append(of_chunk[int(name)])
                continue
            if giver not in given:
                given[giver] = self._given(giver) or []
            taken.setdefault(who, []).append(given[giver][int(line) - 1])
        return taken


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))  # noqa: PTH208 - names alone, of very many


def _counts(log: bytes, given: list[Range] | None) -> tuple[int, int]:
    """Count the completed and the ended tasks of a log, without those that were given back."""
    if not given:
        return log.count(_WELL), log.count(b";")
    gone = {at for first, last in given for at in range(first, last + 1)}
    codes = [int(record[2]) for record in _RECORD.finditer(log) if int(record[1]) not in gone]
    return codes.count(0), len(codes)


def _rate(log: bytes) -> float:
    """Return the number of tasks of a taker that end per second, from the last records."""
    last = _RECORD.findall(log[-_TAIL_BYTES:].strip() if len(log) > _TAIL_BYTES else log)[-_TAIL_TASKS:]
    if not last:
        return 0.0
    took_s = (max(int(row[3]) for row in last) - min(int(row[2]) for row in last)) / _HUNDREDTHS
    return len(last) / max(took_s, 1 / _HUNDREDTHS)


def _pieces(numbers: Iterable[int], most: int) -> Iterator[Range]:
    """Join successive indices into ranges of at most `most` tasks."""
    first = last = None
    for at in numbers:
        if first is None or last is None:
            first = last = at
        elif at == last + 1 and at - first < most:
            last = at
        else:
            yield first, last
            first = last = at
    if first is not None and last is not None:
        yield first, last
