"""Shared by all importers: their result, safe names, rounded walltimes, and how tasks fill cores."""

from __future__ import annotations

import heapq
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import networkx as nx

from asa.core.documents import read_file, read_toml
from asa.errors import InputError, near
from asa.printable import on_one_line
from asa.units import round_walltime
from asa.workflow import LONGEST_NAME, LONGEST_WALLTIME_S, Workflow

_MAX_REDUCED = 20_000


@dataclass(frozen=True, slots=True)
class Imported:
    """A workflow that was made from something else."""

    workflow: Workflow
    # by stage: the file of its script, as it was given
    scripts: Mapping[str, Path] = field(default_factory=dict)
    notes: Sequence[str] = ()  # sentences on left out, guessed or changed parts
    header: Sequence[str] = ()  # comments for the top of the workflow file
    comments: Mapping[str, Sequence[str]] = field(default_factory=dict)  # comments to be put above stages, by stage


class ImportNotes:
    """Collects notes for the user. A note on several locations is shown once."""

    def __init__(self) -> None:
        self._wheres: dict[str, dict[str, None]] = {}

    def add(self, text: str, where: str = "") -> None:
        """Add a note, on a location or on the whole."""
        wheres = self._wheres.setdefault(text, {})
        if where:
            wheres[where] = None

    def sentences(self) -> tuple[str, ...]:
        """Return all notes, in the order in which they were first added."""
        return tuple(f"{_listed(list(wheres))}: {text}" if wheres else text for text, wheres in self._wheres.items())


def _listed(wheres: Sequence[str]) -> str:
    shown = ", ".join(wheres[:4])
    return f"{shown} and {len(wheres) - 4} more" if len(wheres) > 4 else shown


class Names:
    """Makes unique names of stages."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._latest: dict[str, int] = {}  # by name: the latest number appended to it

    def take(self, wished: str) -> str:
        """Return a safe, unused name that resembles the requested one."""
        base = safe_name(wished)
        name, number = base, self._latest.get(base, 1)
        while name in self._taken:
            number += 1
            tail = f"-{number}"
            name = base[: LONGEST_NAME - len(tail)] + tail
        self._taken.add(name)
        self._latest[base] = number
        return name


def safe_name(text: str) -> str:
    """Make a stage's name from any text.

    Examples
    --------
    >>> [safe_name(text) for text in ("align reads", "NFCORE:RNA:FASTQC", "---", "été")]
    ['align-reads', 'NFCORE-RNA-FASTQC', 'stage', 't']
    """
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-")
    name = re.sub(r"^[^A-Za-z0-9]+", "", name)
    return name[:LONGEST_NAME] or "stage"


def near_or_all(name: str, known: Iterable[str]) -> str:
    """Return a hint: the known name that is most similar to an unknown one, or all known names."""
    names = list(known)
    return near(name, names).rstrip() or f"Known are: {', '.join(names) or 'none'}."


def read_text(path: Path, *, keep_mark: bool = False) -> str:
    """Read a text file."""
    try:
        return read_file(path).decode("utf-8" if keep_mark else "utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where=str(path), hint="Save it as UTF-8.") from error


def is_file(path: Path) -> bool:
    """Whether there is a file; none has a name that is too long."""
    try:
        return path.is_file()
    except OSError:
        return False


def generous_walltime_s(expected_s: float) -> float:
    """Choose a walltime from a run time: one and a half times that, rounded up to a usual walltime.

    Examples
    --------
    >>> [generous_walltime_s(s) / 60 for s in (1, 200, 900, 3600, 100_000)]
    [5.0, 5.0, 30.0, 90.0, 2880.0]
    """
    return min(LONGEST_WALLTIME_S, round_walltime(1.5 * expected_s))


def lpt_makespan_s(runs_s: Iterable[float], workers: int) -> float:
    """Return how long a list of tasks takes on some workers, the longest task first.

    Each worker takes the next task as soon as it is free. Takes O(n log n) time; the result is at most 4/3 of the
    optimum.

    Examples
    --------
    >>> lpt_makespan_s([3, 3, 2, 2, 2], 2)
    7.0
    """
    ends = [0.0] * max(1, workers)
    for run_s in sorted(runs_s, reverse=True):
        heapq.heapreplace(ends, ends[0] + run_s)
    return max(ends)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that a given share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def direct(edges: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Leave out predecessors that are implied, since another predecessor follows them.

    The graph must have no cycle. With very many stages all predecessors are kept, since the search takes a bit of
    memory for each pair of stages.

    Returns the same keys, each with the remaining predecessors, in the order of the keys.

    Examples
    --------
    >>> direct({"a": (), "b": ("a",), "c": ("a", "b")})
    {'a': (), 'b': ('a',), 'c': ('b',)}
    """
    order = {name: index for index, name in enumerate(edges)}
    befores = {name: sorted(set(some), key=order.__getitem__) for name, some in edges.items()}
    if len(edges) > _MAX_REDUCED:
        return {name: tuple(some) for name, some in befores.items()}
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(edges)
    graph.add_edges_from((before, name) for name, some in befores.items() for before in some)
    followed = dict.fromkeys(edges, 0)  # a bit for each stage that it follows
    implied = dict.fromkeys(edges, 0)  # a bit for each stage that its predecessors follow
    for name in nx.topological_sort(graph):
        for before in befores[name]:
            implied[name] |= followed[before]
            followed[name] |= followed[before] | 1 << order[before]
    return {name: tuple(b for b in some if not implied[name] >> order[b] & 1) for name, some in befores.items()}


def as_toml(imported: Imported, folder: Path, write: Callable[[Workflow, Mapping[str, str]], str]) -> str:
    """Return an imported workflow as the text of a workflow file."""
    scripts = {name: os.path.relpath(path, folder) for name, path in imported.scripts.items()}
    plain = write(imported.workflow, scripts)
    lines = plain.splitlines()
    annotated_lines = [f"# {on_one_line(line)}".rstrip() for line in imported.header] + [""] if imported.header else []
    for number, line in enumerate(lines):
        if line.strip() == "[[stage]]" and number + 1 < len(lines):
            name = re.fullmatch(r"\s*name\s*=\s*\"([^\"]*)\"\s*", lines[number + 1])
            annotated_lines += [
                f"# {on_one_line(comment)}" for comment in imported.comments.get(name[1] if name else "", ())
            ]
        annotated_lines.append(line)
    annotated = "\n".join(annotated_lines) + "\n"
    # without the comments if one was put into a text: a line of a command may look like the beginning of a stage
    return annotated if read_toml(annotated) == read_toml(plain) else plain
