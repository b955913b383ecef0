"""Experiments in cells, the units of work. Each outcome is kept as a line of a file, so that no cell is run twice."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, Protocol, TypedDict, TypeVar

from asa.core.documents import read_file, read_json
from asa.core.files import in_words
from asa.core.parallel import Processes, Progress, available_cores, pool, silent
from asa.core.reading import LOG_BYTES
from asa.core.safe import look_at
from asa.core.store import LineFile
from asa.errors import JournalError, StateError
from asa.pool.executors import Elsewhere

Workers = Processes | Elsewhere


class CellLike(Protocol):
    """A frozen dataclass of numbers and texts that determine the outcome completely."""

    @property
    def code(self) -> str:
        """The result of `code_digest`: a change of code makes another cell."""
        ...


_C = TypeVar("_C", bound=CellLike)
_T = TypeVar("_T")
_A = TypeVar("_A")

_OURS = "asa"
_BEGIN, _CHECK = '{"cell": ', ', "check": "'  # of a line, and of its end
# size of a plug-in's file in bytes from which size and modification time are hashed instead of the content
_LARGE = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Kind(Generic[_C, _T]):
    """The cells of an experiment, and their outcomes."""

    run: Callable[[_C], list[_T]]  # runs a cell; worker processes must be able to import it
    # make a cell, and an outcome, from their kept fields: their classes, if nothing is nested
    cell: Callable[..., _C]
    trial: Callable[..., _T]


def counted(on_progress: Progress, what: str, of: int, before: int = 0) -> Callable[[], None]:
    """Report progress; the returned function is to be called as each part ends, but those that ended before."""
    done = iter(range(before + 1, of + 1))
    on_progress(what, before, of)
    return lambda: on_progress(what, next(done), of)


class How(TypedDict, total=False):
    """The way in which cells are run. The outcomes do not depend on it."""

    jobs: int | None  # number of processes; by default as many as this machine allows
    # workers that see files under the same paths, instead of processes of this machine
    elsewhere: Elsewhere | None
    on_progress: Progress  # called with the current activity, the number of finished parts, and the number of all


def fill(
    cells: Sequence[_C],
    kind: Kind[_C, _T],
    kept: Path | None = None,
    *,
    jobs: int | None = None,
    elsewhere: Elsewhere | None = None,
    on_progress: Progress = silent,
) -> dict[_C, list[_T]]:
    """Run every cell whose outcome is not kept already, in parallel; see `How`.

    `kept`: file to which each cell's outcome is appended as it ends, a line of JSON each; an interrupted experiment
    continues from it. Each line has a checksum, so a damaged one is refused and never used as a result.
    Raises `JournalError`: the file cannot be written, as on a full disk; its lines stay valid.
    """
    known = _read(kept, kind) if kept is not None else {}
    missing = [cell for cell in cells if cell not in known]
    codes = {cell.code for cell in cells}
    others = sum(cell.code not in codes for cell in known)
    what = f"running cells ({others} were kept by another version)" if others else "running cells"
    on_progress(what, len(cells) - len(missing), len(cells))

    def keep(cell: _C, trials: list[_T]) -> None:
        known[cell] = trials
        if kept is not None:
            _append(kept, cell, trials)
        on_progress(what, sum(cell in known for cell in cells), len(cells))

    run_cells(kind.run, missing, jobs=jobs, elsewhere=elsewhere, on_end=keep)
    return {cell: known[cell] for cell in cells}


def run_cells(
    run: Callable[..., _T],
    cells: Sequence[_A],
    *shared: Any,
    jobs: int | None = None,
    elsewhere: Workers | None = None,
    on_end: Callable[[_A, _T], None] = lambda _cell, _outcome: None,
) -> list[_T]:
    """Run a function of each cell, in parallel; see `How`.

    `shared`: the arguments before the cell, the same for all; they are sent to each process once.
    `on_end`: called with a cell and its result, in the order in which cells end.
    Returns: the results, in the order of the cells.
    """
    done: dict[int, _T] = {}

    def end(place: int, outcome: _T) -> None:
        done[place] = outcome
        on_end(cells[place], outcome)

    with workers(len(cells), jobs=jobs, elsewhere=elsewhere) as executor:
        if executor is None:
            for place, cell in enumerate(cells):
                end(place, run(*shared, cell))
        else:
            there = [executor.share(value) for value in shared]
            futures = {executor.submit(run, *there, cell): place for place, cell in enumerate(cells)}
            for future in as_completed(futures):
                end(futures[future], future.result())
    return [done[place] for place in range(len(cells))]


@contextmanager
def workers(cells: int, *, jobs: int | None = None, elsewhere: Workers | None = None) -> Iterator[Workers | None]:
    """Open the workers for a number of cells; None for this process itself."""
    processes = min(jobs or available_cores(), max(cells, 1))
    with nullcontext(elsewhere) if elsewhere is not None else pool(processes) as executor:
        yield executor


def digest(files: Iterable[Path]) -> str:
    """Return a digest of the content of the given files."""
    hasher = hashlib.sha256()
    for file in files:
        with in_words("cannot be read", file, "Check the path, its owner, and its permissions."):
            hasher.update(read_file(file, LOG_BYTES))
    return hasher.hexdigest()[:16]


def code_digest(named: Iterable[tuple[str, str]] = (), settings: Iterable[str] = ()) -> str:
    """Return a digest of all code and data that an outcome depends on.

    That is this package with its data, such as trained agents; the sources of named plug-ins from other distributions;
    and the files that settings name.

    `named`: groups and names of entry points, such as ``("asa.strategies", "asa")``. `settings`: values of settings;
    settings that name no file are not hashed, since they are in the cell.
    """
    digests = [_own_digest(), *(_plug_in_digest(*plug_in) for plug_in in named)]
    digests += [digest([Path(value)]) for value in settings if value and os.path.isfile(value)]  # noqa: PTH113 - never fails
    return hashlib.sha256(" ".join(filter(None, digests)).encode()).hexdigest()[:16]


@cache  # loaded code does not change
def _own_digest() -> str:
    packages = [importlib.import_module(name) for name in (_OURS, f"{_OURS}.backends", f"{_OURS}.workflows")]
    return digest(_files_in(Path(place) for package in packages for place in package.__path__))


@cache
def _plug_in_digest(group: str, name: str) -> str:
    """Return a digest of the distribution of a name and of the package that it is in; empty for this package."""
    [point, *_] = entry_points(group=group, name=name) or [EntryPoint(name, _OURS, group)]
    package = point.module.partition(".")[0]
    if package == _OURS:
        return ""
    spec = find_spec(package)
    places = [Path(place) for place in (spec.submodule_search_locations or [spec.origin or ""])] if spec else []
    installed = [Path(str(file.locate())) for file in (point.dist and point.dist.files) or () if file.suffix == ".py"]
    hasher = hashlib.sha256(str(point.dist and point.dist.version).encode())
    for file in dict.fromkeys((*_files_in(places), *sorted(installed))):
        if file.is_file():
            about = file.stat()
            is_large = about.st_size > _LARGE
            hasher.update(f"{about.st_size} {about.st_mtime_ns}".encode() if is_large else read_file(file, LOG_BYTES))
    return hasher.hexdigest()[:16]


def _files_in(places: Iterable[Path]) -> list[Path]:
    """Return the given files, and the files of the given folders, without compiled and hidden files."""
    files: set[Path] = set()
    for place in places:
        if not place.is_dir():
            files.add(place)
            continue
        for file in place.rglob("*"):
            inside = file.relative_to(place).parts
            if "__pycache__" not in inside and not any(part.startswith(".") for part in inside) and file.is_file():
                files.add(file)
    return sorted(files)


def _read(path: Path, kind: Kind[_C, _T]) -> dict[_C, list[_T]]:
    """Read kept outcomes. A last line that was cut off is skipped; its cell is run again."""
    known: dict[_C, list[_T]] = {}
    if not path.absolute().parent.is_dir():
        raise StateError("cannot be written: no such folder", where=str(path), hint="Make the folder first.")
    try:
        look_at(path)
        *lines, last = (read_file(path) if path.exists() else b"").decode("utf-8", "replace").split("\n")
    except OSError as error:
        raise StateError(f"cannot be read: {error}", where=str(path), hint="Name another file.") from error
    if not last.startswith(_BEGIN[: len(last)]):
        lines.append(last)
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        if (text := unsealed(line)) is None:
            hint = "Delete this line to run its cell again, or name another file."
            raise StateError("is damaged, or not an experiment of this version", where=where, hint=hint)
        try:
            record = read_json(text)
            known[kind.cell(**record["cell"])] = [kind.trial(**trial) for trial in record["trials"]]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            hint = "It is of another experiment or version: name another file."
            raise StateError("is no kept experiment of this kind", where=where, hint=hint) from error
    return known


def sealed(text: str) -> str:
    """Return a JSON object with a checksum at its end.

    Examples
    --------
    >>> sealed('{"a": 1}')
    '{"a": 1, "check": "f9d86028c6e0d64e"}'
    """
    return f'{text[:-1]}{_CHECK}{_sum(text)}"}}'


def unsealed(text: str) -> str | None:
    """Check and remove the checksum that `sealed` appended.

    Returns: the original text; None if it was changed, or never sealed.
    """
    inner, _, rest = text.rpartition(_CHECK)
    inner += "}"
    return inner if rest == f'{_sum(inner)}"}}' else None


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _append(path: Path, cell: Any, trials: Sequence[Any]) -> None:
    line = sealed(json.dumps({"cell": asdict(cell), "trials": [asdict(trial) for trial in trials]}))
    try:
        with closing(LineFile(path, durable=False)) as file:
            file.append(f"{line}\n".encode())
    except OSError as error:
        hint = "Free disk space, or copy it elsewhere and name that: what it holds is kept."
        raise JournalError(f"cannot be written: {error}", where=str(path), hint=hint) from error
