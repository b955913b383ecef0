"""Finds which stages make a file, from their `outputs`; also efficient for very many stages and files."""

from __future__ import annotations

import fnmatch
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

from asa.workflow import Stage, Workflow

_MAX_PATH = 4096  # a longer text is not a path; matching a pattern takes time quadratic in its length
_MAX_FOLDERS = 100  # number of a path's parent folders that are examined
_MAX_STAGES = 20_000  # above this number the order of stages is not computed, since it takes a bit for each pair
_MAX_LOOKS = 20_000_000  # number of letter comparisons for patterns
_KEPT = 4096
_SPECIAL = re.compile(r"[*?\[]")


class _Makers(NamedTuple):
    """Stages, by their index in the file."""

    first: tuple[int, ...]  # the first two
    all: int  # a bit for each stage; 0 if there are too many stages
    is_whole: bool = True  # whether all patterns were compared


class MadeFiles:
    """The files that the stages of a workflow make.

    Time and memory are in proportion to the workflow file. If there are too many patterns to compare each with each
    path, or too many stages to know which come before which, every file counts as made, so that none is reported.
    """

    def __init__(self, workflow: Workflow) -> None:
        self._flow = workflow
        self._numbers = {name: index for index, name in enumerate(workflow.stages)}
        self._names = list(workflow.stages)
        stages = list(workflow.stages.values())
        self._paths = _Paths(enumerate([stage.outputs for stage in stages]), len(stages))
        made = [[stage.path_of_any(path) for path in stage.outputs] for stage in stages]
        is_alike = all(list(stage.outputs) == some for stage, some in zip(stages, made, strict=True))
        self._of_all = self._paths if is_alike else _Paths(enumerate(made), len(stages))

    def is_made_before(self, stage: Stage, path: str) -> bool:
        """Whether a stage that ends before another begins may make a path, or a part of it, that the other needs."""
        makers, number = self._of_all.meeting(stage.path_of_any(path)), self._numbers[stage.name]
        if not makers.is_whole:
            return True
        if self._before is None:
            return any(maker != number for maker in makers.first)
        return bool(makers.all & self._before[number])

    def maker(self, stage: Stage, path: str) -> str:
        """Return the first other stage that may make a needed path, or part of it; empty if there is none."""
        number = self._numbers[stage.name]
        return next((self._names[maker] for maker in self._paths.meeting(path).first if maker != number), "")

    def earlier_maker(self, stage: Stage, path: str) -> str:
        """Return the first earlier stage of the file that may make the same path; empty if there is none."""
        number = self._numbers[stage.name]
        return next((self._names[maker] for maker in self._paths.same(path).first if maker < number), "")

    @cached_property
    def _before(self) -> list[int] | None:
        """Return for each stage a bit set of the stages that end before it; None if there are too many stages."""
        if len(self._names) > _MAX_STAGES:
            return None
        before = [0] * len(self._names)
        for name in self._flow.order:
            for after in self._flow.stages[name].after:
                before[self._numbers[name]] |= before[self._numbers[after]] | 1 << self._numbers[after]
        return before


class _Paths:
    """Paths and their stages: by exact path, by content of folders, and by matching patterns."""

    def __init__(self, paths: Iterable[tuple[int, Iterable[str]]], count: int) -> None:
        self._is_few = count <= _MAX_STAGES
        self._of: dict[str, list[int]] = {}
        for number, some in paths:
            for path in dict.fromkeys(map(_normal, some)):
                self._of.setdefault(path, []).append(number)
        self._sorted = sorted(self._of)
        self._patterns = [(path, re.compile(fnmatch.translate(path))) for path in self._sorted if _is_pattern(path)]
        self._looks = 0
        self.same = lru_cache(_KEPT)(self._find_same)
        self.meeting = lru_cache(_KEPT)(self._find_meeting)

    def _find_same(self, path: str) -> _Makers:
        return self._makers(self._alike(_normal(path)))

    def _find_meeting(self, path: str) -> _Makers:
        path = _normal(path)
        return self._makers({*self._alike(path), *self._inside(path), *_folders(path)})

    def _makers(self, paths: Iterable[str]) -> _Makers:
        """Return the stages of the given paths."""
        numbers = {number for path in paths for number in self._of.get(path, ())}
        first = tuple(sorted(numbers)[:2])
        bits = 0
        if self._is_few and numbers:
            marks = bytearray(max(numbers) // 8 + 1)
            for number in numbers:
                marks[number // 8] |= 1 << number % 8
            bits = int.from_bytes(marks, "little")
        return _Makers(first, bits, self._looks <= _MAX_LOOKS)

    def _alike(self, path: str) -> Iterator[str]:
        """Return the paths that may be the same as a given one: either path may be a pattern that matches the other."""
        yield path
        if len(path) > _MAX_PATH:
            return
        for pattern, made in self._patterns:
            if not self._may_look(pattern, path):
                return
            if made.match(path):
                yield pattern
        if _is_pattern(path):
            fits = re.compile(fnmatch.translate(path))
            for other in self._sorted:
                if len(other) <= _MAX_PATH:
                    if not self._may_look(path, other):
                        return
                    if fits.match(other):
                        yield other

    def _may_look(self, pattern: str, path: str) -> bool:
        self._looks += (1 + pattern.count("*")) * len(path)
        return self._looks <= _MAX_LOOKS

    def _inside(self, path: str) -> list[str]:
        """Return the paths inside a folder."""
        # the letter after /
        return self._sorted[bisect_left(self._sorted, f"{path}/") : bisect_left(self._sorted, f"{path}0")]


def _folders(path: str) -> Iterator[str]:
    """Return the parent folders of a path, from the outermost."""
    end = path.find("/", 1)
    for _ in range(_MAX_FOLDERS):
        if end < 0:
            return
        yield path[:end]
        end = path.find("/", end + 1)


def _is_pattern(path: str) -> bool:
    return len(path) <= _MAX_PATH and _SPECIAL.search(path) is not None


def _normal(path: str) -> str:
    return os.path.normpath(path)
