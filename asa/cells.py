"""Experiments in cells: each is run in one go, kept as a line of a file, and not run again."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from asa.errors import StateError
from asa.parallel import available_cores, pool

__all__ = ["CellLike", "Kind", "code_digest", "digest", "fill"]


class CellLike(Protocol):
    """A frozen dataclass of numbers and texts that says all that its outcome hangs on."""

    @property
    def code(self) -> str:
        """What `code_digest` gave: other code's outcome is another cell's."""
        ...


_C = TypeVar("_C", bound=CellLike)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[_C, _T]):
    """What cells of an experiment are, and what comes of them.

    Parameters
    ----------
    run
        Runs a cell; must be importable by worker processes.
    cell, trial
        Make a cell, and one outcome, of the fields that were kept: their classes, where nothing is nested.
    """

    run: Callable[[_C], list[_T]]
    cell: Callable[[Mapping[str, Any]], _C]
    trial: Callable[[Mapping[str, Any]], _T]


def fill(
    cells: Sequence[_C],
    kind: Kind[_C, _T],
    kept: Path | None = None,
    *,
    jobs: int | None = None,
    elsewhere: Executor | None = None,
    on_progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> dict[_C, list[_T]]:
    """Run every cell, in parallel, unless its outcome is kept already.

    Parameters
    ----------
    cells
        What is wanted.
    kind
        What they are.
    kept
        File to which each cell's outcome is added as it ends, a line of JSON each: what was interrupted goes on there.
    jobs
        Processes; as many as this machine lets us use, if not given. The result does not depend on it.
    elsewhere
        Where to run them, if not in processes of this machine; on workers that see files under the same paths.
    on_progress
        Called with what is being done, how much of it is done, and of how much.

    Returns
    -------
    dict
        What came of each, in the order of `cells`.

    Raises
    ------
    StateError
        The file cannot be read or written.
    """
    known = _read(kept, kind) if kept is not None else {}
    missing = [cell for cell in cells if cell not in known]
    others = sum(cell.code != cells[0].code for cell in known)
    what = f"running cells ({others} were kept by another version)" if others else "running cells"
    on_progress(what, len(cells) - len(missing), len(cells))
    processes = min(jobs or available_cores(), max(len(missing), 1))
    for cell, trials in _in_parallel(elsewhere, kind, missing) if elsewhere else _run_all(kind, missing, processes):
        known[cell] = trials
        if kept is not None:
            _append(kept, cell, trials)
        on_progress(what, sum(cell in known for cell in cells), len(cells))
    return {cell: known[cell] for cell in cells}


def _run_all(kind: Kind[_C, _T], cells: Sequence[_C], processes: int) -> Iterator[tuple[_C, list[_T]]]:
    with pool(processes) as executor:
        if executor is None:
            yield from ((cell, kind.run(cell)) for cell in cells)
        else:
            yield from _in_parallel(executor, kind, cells)


def _in_parallel(executor: Executor, kind: Kind[_C, _T], cells: Sequence[_C]) -> Iterator[tuple[_C, list[_T]]]:
    futures = {executor.submit(kind.run, cell): cell for cell in cells}
    for future in as_completed(futures):
        yield futures[future], future.result()


def digest(files: Iterable[Path]) -> str:
    """Give a digest of what is in some files."""
    told = hashlib.sha256()
    for file in files:
        told.update(file.read_bytes())
    return told.hexdigest()[:16]


def code_digest() -> str:
    """Give a digest of this package's sources."""
    packages = [importlib.import_module(name) for name in ("asa", "asa.backends", "asa.workflows")]
    folders = dict.fromkeys(Path(place) for package in packages for place in package.__path__)
    return digest(sorted({file for folder in folders for file in folder.rglob("*.py")}))


def _read(path: Path, kind: Kind[_C, _T]) -> dict[_C, list[_T]]:
    """Read what was kept; a last line that was cut off is passed over, and its cell run again."""
    known: dict[_C, list[_T]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"cannot be read: {error}", where=str(path), hint="Name another file.") from error
    for number, line in enumerate(lines, start=1):
        try:
            told = json.loads(line)
            known[kind.cell(told["cell"])] = [kind.trial(trial) for trial in told["trials"]]
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):
                continue
            hint = "It is of another version, or something else: name another file."
            raise StateError("is no kept experiment", where=f"{path}:{number}", hint=hint) from error
    return known


def _append(path: Path, cell: Any, trials: Sequence[Any]) -> None:
    line = json.dumps({"cell": asdict(cell), "trials": [asdict(trial) for trial in trials]})
    try:
        with path.open("a+b") as file:
            file.seek(0)
            whole = file.read().rpartition(b"\n")
            if whole[2]:  # somebody was killed while writing it
                file.truncate(len(whole[0]) + len(whole[1]))
            file.write(f"{line}\n".encode())
    except OSError as error:
        raise StateError(f"cannot be written: {error}", where=str(path), hint="Make room, or name another.") from error
