"""Counts what keeps the project's packages apart: reach of mechanisms, circles of imports, class names, complexity.

    python tools/house.py              prints what exceeds its limit; exit code 1 if something does (`make lint`)
    python tools/house.py --count      prints the counts, and in which files a mechanism is mentioned
    python tools/house.py --lower      writes lower ceilings into tools/house.toml where counts have fallen

A file mentions a mechanism if a name in its code contains one of the mechanism's words; comments, docstrings and
texts do not count. `tools/house.toml` has the words, the homes, and the ceilings, which may only fall.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PLACES = {
    "backends": "asa.backends",
    "workflows": "asa.workflows",
}  # folders at the top, and the packages that they are installed as


@dataclass(frozen=True)
class Mechanism:
    """A mechanism that reaches through the project: its home, and the words in its names."""

    name: str
    home: tuple[str, ...]
    words: frozenset[str]  # words or pairs of words, as `put off` in `put_off` and `PutOff`
    but: frozenset[str] = frozenset()  # whole names with another meaning
    apart: tuple[str, ...] = ()  # files in which its words have another meaning

    def is_in(self, name: str) -> bool:
        """Whether a name mentions the mechanism."""
        if name in self.but:
            return False
        spelt = f" {' '.join(word.lower() for word in _WORD.findall(name.rpartition('.')[2]))} "
        return any(f" {word} " in spelt for word in self.words)


def files(*folders: str) -> dict[str, str]:
    """Read all modules, by their paths in the project."""
    found = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in found}


@cache
def names(text: str) -> frozenset[str]:
    """Return all names in a module's code; names after a module's name include it, as `np.array`."""
    found, before = set(), ["", ""]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            found.add(f"{before[0]}.{token.string}" if before[1] == "." and before[0] in _MODULES else token.string)
        before = [before[1], token.string]
    return frozenset(found)


_MODULES = {"np", "numpy", "secrets"}


def _is_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def mentions(mechanism: Mechanism, sources: dict[str, str]) -> list[str]:
    """Return the files outside its home that mention a mechanism."""
    return [
        file
        for file, text in sources.items()
        if not _is_of(file, mechanism.home + mechanism.apart) and any(map(mechanism.is_in, names(text)))
    ]


def module(file: str) -> str:
    """Return the name under which a module is installed."""
    top, _, rest = file.removesuffix(".py").partition("/")
    name = f"{_PLACES.get(top, top)}/{rest}".replace("/", ".")
    return name.removesuffix(".__init__")


def imports(file: str, tree: ast.AST, known: frozenset[str]) -> Iterator[str]:
    """Return the modules that a module imports, also inside functions, but not for types only."""
    own = module(file)
    package = own if file.endswith("__init__.py") else own.rpartition(".")[0]

    def of(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - child.level + 1] if child.level else []
                base = ".".join([*above, *([child.module] if child.module else [])])
                for alias in child.names:
                    inner = f"{base}.{alias.name}"
                    yield inner if inner in known else base
            else:
                yield from of(child)

    return (name for name in of(tree) if name in known and name != own)


def circles(sources: dict[str, str]) -> list[list[str]]:
    """Find circles of imports: sets of modules that all import each other, directly or not."""
    known = frozenset(map(module, sources))
    after = {module(file): sorted(set(imports(file, ast.parse(text), known))) for file, text in sources.items()}
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(one: str) -> None:
        number[one] = low[one] = len(number)
        stack.append(one)
        for other in after[one]:
            if other not in number:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], number[other])
        if low[one] == number[one]:
            members = stack[stack.index(one) :]
            del stack[stack.index(one) :]
            if len(members) > 1:
                found.append(sorted(members))

    for one in after:
        if one not in number:
            visit(one)
    return sorted(found)


def classes(sources: dict[str, str]) -> dict[str, list[str]]:
    """Return the class names that occur several times, with their files."""
    found = defaultdict(list)
    for file, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(file)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def too_complex(limit: int) -> list[str]:
    """Return the functions whose complexity exceeds a limit, whatever their comments say."""
    command = [sys.executable, "-m", "ruff", "check", *_FOLDERS, "--select", "C901", "--ignore-noqa"]
    command += ["--isolated", "--config", f"lint.mccabe.max-complexity={limit}", "--output-format", "concise"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    hits = (re.match(r"([^:]+):\d+:\d+: C901 `(\w+)`", line) for line in done.stdout.splitlines())
    return sorted(f"{hit[1]}:{hit[2]}" for hit in hits if hit)


_FOLDERS = ("asa", "backends", "workflows")


def table() -> dict[str, Any]:
    """Read the table of limits."""
    return tomllib.loads(TABLE.read_text())


def mechanisms(of: dict[str, Any]) -> list[Mechanism]:
    """Return all mechanisms of the table."""
    return [
        Mechanism(
            name,
            tuple(one["home"]),
            frozenset(one["words"]),
            frozenset(one.get("but", ())),
            tuple(one.get("apart", ())),
        )
        for name, one in of["mechanisms"].items()
    ]


def troubles(of: dict[str, Any], sources: dict[str, str]) -> Iterator[str]:
    """Yield everything that exceeds its limit."""
    for one in mechanisms(of):
        found, ceiling = mentions(one, sources), of["mechanisms"][one.name]["ceiling"]
        if len(found) > ceiling:
            yield (
                f"{one.name}: mentioned in {len(found)} files outside their home, {ceiling} at most. Have what is new "
                f"done at home. The files: python tools/house.py --count {one.name.replace(' ', '-')}"
            )
    yield from (f"a circle of imports: {', '.join(circle)}. Move what both need." for circle in circles(sources))
    for name, places in classes(sources).items():
        yield f"class {name} is there {len(places)} times: {', '.join(places)}. Say in the name what it is."
    for where in too_complex(of["complexity"]["limit"]):
        if not _is_of(where, of["complexity"]["but"]):
            yield f"{where} has a complexity above {of['complexity']['limit']}: divide it"


def lower(of: dict[str, Any], sources: dict[str, str]) -> str:
    """Return the table with lower ceilings where counts have fallen."""
    text = TABLE.read_text()
    for one in mechanisms(of):
        count, ceiling = len(mentions(one, sources)), of["mechanisms"][one.name]["ceiling"]
        begin = text.index(f'[mechanisms."{one.name}"]')
        at = text.index("ceiling = ", begin)
        end = text.index("\n", at)
        text = f"{text[:at]}ceiling = {min(count, ceiling)}{text[end:]}"
    return text


def main() -> int:
    """Print counts and problems, or lower the ceilings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", nargs="*", metavar="MECHANISM")
    parser.add_argument("--lower", action="store_true")
    given = parser.parse_args()
    of, sources = table(), files(*_FOLDERS)
    if given.lower:
        TABLE.write_text(lower(of, sources))
        return 0
    if given.count is not None:
        for one in mechanisms(of):
            found = mentions(one, sources)
            sys.stdout.write(f"{one.name}: {len(found)} files, {of['aim']} are the aim\n")
            if one.name.replace(" ", "-") in given.count:
                sys.stdout.writelines(f"    {file}\n" for file in found)
        sys.stdout.write(f"classes of one name: {len(classes(sources))}\n")
        return 0
    found = list(troubles(of, sources))
    sys.stdout.writelines(f"{one}\n" for one in found)
    return int(bool(found))


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest is discarded
        status = 0
    raise SystemExit(status)
