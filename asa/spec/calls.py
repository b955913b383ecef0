"""Finds which other scripts a script runs, and whether it submits jobs, as far as its text shows; runs nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from asa.spec.shell import SHELLS, interpreter_of, read_shell

T = TypeVar("T")


class Scripts(Generic[T]):
    """Scripts that others may run, indexed by path; also efficient for very many."""

    def __init__(self, paths: Mapping[T, Path]) -> None:
        self.paths = paths
        self._at: dict[Path, dict[T, int]] = {}  # with their index among all
        for index, (key, path) in enumerate(paths.items()):
            self._at.setdefault(path.resolve(), {})[key] = index

    def among(self, paths: Iterable[Path], but: Path) -> list[T]:
        """Return the scripts at the given paths, in the order of all scripts, except those at `but`."""
        found = {key: number for path in paths for key, number in self._at.get(path, {}).items()}
        return [key for key in sorted(found, key=found.__getitem__) if self.paths[key] != but]


def run_by(script: str, folders: Iterable[Path], scripts: Scripts[T], but: Path) -> list[T]:
    """Find which of some other scripts a script runs.

    `script`: its text, for a shell or for Python, which may also import them; other languages are not read.
    `but`: the path of the script itself.
    """
    if interpreter_of(script) in SHELLS:
        named = set(_run_by_shell(script))
    elif _is_python(script):
        texts = list(_texts(script))
        named = {*_imported(script), *texts, *(name for text in texts for name in _run_by_shell(text))}
    else:
        return []
    paths = {(folder / name).resolve() for folder in folders for name in named if "\0" not in name}
    return scripts.among(paths, but)


def submits_from_python(script: str) -> bool:
    r"""Whether a script in Python calls sbatch.

    Examples
    --------
    >>> submits_from_python("#!/usr/bin/env python3\nimport os\nos.system('sbatch a.sh')")
    True
    """
    return _is_python(script) and any(
        program.name == "sbatch" for text in _texts(script) if "sbatch" in text for program in read_shell(text).programs
    )


def _is_python(script: str) -> bool:
    return interpreter_of(script).startswith("python")


def _parsed(script: str) -> ast.AST:
    """Parse Python; empty if it is Python of another version."""
    try:
        return ast.parse(script)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _texts(script: str) -> Iterator[str]:
    """Return the strings in a Python script except docstrings: they may be commands, or words of them."""
    nodes = list(ast.walk(_parsed(script)))
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def _run_by_shell(text: str) -> Iterator[str]:
    found = read_shell(text)
    for program in found.programs:
        name = program.file or (program.name if "/" in program.name else "")
        if name and (Path(name).is_absolute() or not found.moves):
            yield name


def _imported(script: str) -> Iterator[str]:
    """Return the files that a Python script would import if they were in its folder."""
    for node in ast.walk(_parsed(script)):
        modules: list[str] = []
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module is None):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        yield from (f"{module.replace('.', '/')}.py" for module in modules)
