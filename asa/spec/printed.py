"""Checks whether the output of stages can be written to the files that they name, and each to a separate file."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from asa.workflow import Stage

PRINTED: Final = ("stdout", "stderr")
"""The keys for output files."""
_PATTERN = re.compile(r"%\d*([A-Za-z%])")
OF_EACH_JOB: Final = "jJA"
"""Patterns whose value differs between jobs."""


class Prints:
    """The output files of a workflow's stages, relative to the folder in which commands run."""

    def __init__(self, folder: Path, stages: Iterable[Stage] = ()) -> None:
        self._folder = folder
        self._made = {os.path.normpath(folder / word) for stage in stages for word in _words_of_making(stage.command)}
        self._to_be_made: set[str] = set()
        self._same: dict[str, str] = {}  # names that are the same for every job, each with the first stage that has it

    def troubles(self, stage: Stage, pattern: str) -> Iterator[tuple[str, str]]:
        """Return what is wrong with a file name, and what to do; each problem once."""
        yield from self._of_folder(known_folder(pattern))
        each, letters = stage.prints_apart
        if each and not has_pattern(pattern, letters):
            message = f"its {each} replace each other's {pattern}; `asa logs` has what each printed"
            yield message, f"Write %{letters[0]} into the name."
        if not has_pattern(pattern, f"{OF_EACH_JOB}x"):
            other = self._same.setdefault(pattern, stage.name)
            if other != stage.name:
                message = f"{pattern} is that of stage {other!r}, too: the later replaces the other"
                yield message, "Write %x, the stage's name, into the name."

    def _of_folder(self, folder: str) -> Iterator[tuple[str, str]]:
        path = self._folder / folder
        if not path.exists():
            if folder not in self._to_be_made and os.path.normpath(path) not in self._made:
                self._to_be_made.add(folder)
                hint = "asa makes it when the stage begins: correct the path if another is meant."
                yield f"there is no folder {folder}; under older sbatch such a job fails without a word", hint
        elif not (path.is_dir() and os.access(path, os.W_OK | os.X_OK)):
            why = "cannot be written to" if path.is_dir() else "is no folder"
            yield f"{folder} {why}", "Name another folder: what the stage prints is in the run's folder alone."


def _words_of_making(command: str) -> list[str]:
    """Return the words of a command that makes folders."""
    try:
        return shlex.split(command) if "mkdir" in command else []
    except ValueError:
        return []


def known_folder(pattern: str) -> str:
    """Return the folder of a pattern's file, as far as it is known before a job has begun.

    Examples
    --------
    >>> known_folder("logs/%x-%j.out"), known_folder("logs/%j/a.out"), known_folder("a%%/b"), known_folder("a")
    ('logs', 'logs', 'a%', '.')
    """
    known: list[str] = []
    for part in Path(pattern).parent.parts:
        if has_pattern(part, ""):
            break
        known.append(part.replace("%%", "%"))
    return str(Path(*known))


def has_pattern(text: str, letters: str) -> bool:
    """Whether a text has one of some patterns of Slurm, by letter; any of them if none is named.

    Examples
    --------
    >>> has_pattern("a-%4j", "jA"), has_pattern("a-%%j", "j"), has_pattern("a-%u", "j"), has_pattern("a-%u", "")
    (True, False, False, True)
    """
    found = "\\" not in text and [match[1] for match in _PATTERN.finditer(text) if match[1] != "%"]
    return any(letter in letters or not letters for letter in found or ())
