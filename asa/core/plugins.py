"""Finds workflows, backends, strategies and commands by name, through entry points.

The core never imports a concrete backend or workflow. This package's own parts are found in the same way as those of
third parties.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.core.files import read_text
from asa.core.reading import DOCUMENT_BYTES
from asa.errors import InputError, MissingExtraError, UnknownNameError, near

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OURS = "asa-client"


@cache
def _installed() -> tuple[Any, dict[str, dict[str, EntryPoint]]]:  # the former's type has changed with Python 3.12
    """Return all entry points, and those of each group that was asked for."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - most commands need no name

    return entry_points(), {}  # reads a file of every installed package


def _group(group: str) -> dict[str, EntryPoint]:
    points, groups = _installed()
    if group not in groups:
        groups[group] = {point.name: point for point in points.select(group=group)}
    return groups[group]


def names(group: str) -> list[str]:
    """Return the names in an entry-point group, in the order of their declaration."""
    return list(_group(group))


def places(group: str) -> dict[str, str]:
    """Return the module of each name in a group, without importing any."""
    return {name: point.module for name, point in _group(group).items()}


def place(group: str, name: str) -> str:
    """Return the module and the attribute of a name in a group, as ``module:attribute``, without importing any."""
    return _group(group)[name].value.partition(" ")[0]


def mentions(group: str, name: str, word: str) -> bool:
    """Whether the module of an entry point contains a word; True for other packages' modules.

    False spares an import.
    """
    point = _group(group).get(name)
    spec = _spec(point.module) if point is not None and is_ours(group, name) else None
    return spec is None or spec.origin is None or word in _source(spec.origin)


def unknown_name(kind: str, name: str, known: list[str]) -> UnknownNameError:
    """Build the error for an unknown name, with the nearest known one as a hint.

    Examples
    --------
    >>> print(unknown_name("strategy", "bigjob", ["big-job", "asa"]))
    there is no strategy 'bigjob'
    Did you mean 'big-job'? Known: big-job, asa.
    """
    return UnknownNameError(f"there is no {kind} {name!r}", hint=f"{near(name, known)}Known: {', '.join(known)}.")


def load(group: str, name: str) -> Any:
    """Import the object of an entry point."""
    points = _group(group)
    kind = group.removeprefix("asa.")
    singular = {"strategies": "strategy", "histories": "reader"}.get(kind, kind.removesuffix("s"))
    if name not in points:
        raise unknown_name(singular, name, list(points))
    if (missing := lacking(group, name)) is not None:
        raise MissingExtraError(
            f"needs {missing[0]}, which is not installed", where=f"{singular} {name!r}", hint=missing[1]
        )
    try:
        return points[name].load()
    except (Exception, SystemExit) as error:
        raise InputError(
            f"cannot be loaded: {type(error).__name__}: {error}",
            where=f"{singular} {name!r}",
            hint="Correct or remove the package it is from.",
        ) from error


def lacking(group: str, name: str) -> tuple[str, str] | None:
    """Return the first missing package of an entry point's extra, and how to install it; None if none is missing.

    An entry point may name an extra of its own package: ``asa-boost = "module:function [boost]"``.
    """
    point = _group(group)[name]
    if point.dist is None:
        return None
    for extra in point.extras:
        for requirement in point.dist.requires or ():
            needed, _, marker = requirement.partition(";")
            package = re.match(r"[\w.-]+", needed)
            if (
                package
                and re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", marker)
                and not _is_there(package.group())
            ):
                return package.group(), f"pip install '{point.dist.name}[{extra}]'"
    return None


def _is_there(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - likewise

    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def is_ours(group: str, name: str) -> bool:
    """Whether an entry point is of this package, not of another one."""
    return _package(_group(group)[name].dist) == _OURS


@cache
def _package(distribution: Any) -> str | None:
    return None if distribution is None else distribution.name  # parses a file each time


def describe(group: str, name: str) -> tuple[str, list[str]]:
    """Describe an entry point by its docstring's first paragraph and its parameters.

    This package's own files are read, not imported: importing all kernels and graphs would take a second.

    Returns the text, on one line, and the names of the function's parameters.
    """
    point = _group(group)[name]
    if is_ours(group, name) and (node := _definition(point)) is not None:
        doc = ast.get_docstring(node) or ""
        arguments = [*node.args.args, *node.args.kwonlyargs] if isinstance(node, ast.FunctionDef) else []
        parameters = [argument.arg for argument in arguments]
    else:
        made = load(group, name)
        doc = inspect.getdoc(made) or ""
        parameters = list(inspect.signature(made).parameters) if inspect.isfunction(made) else []
    return doc.split("\n\n")[0].replace("\n", " "), parameters


def first_paragraph(module: str, attribute: str) -> str:
    """Read what a module of this package says of a function, or of an app (its `help`): the first paragraph, on a line.

    Empty if it is not found: it may be imported from elsewhere.

    Examples
    --------
    >>> first_paragraph("asa.cli.schema", "schema")[:21]
    'Print the JSON Schema'
    """
    spec = _spec(module)
    if spec is None or spec.origin is None:
        return ""
    function, app = rf'^def {attribute}\(.*?^    """', rf'^{attribute} = [\w.]+\(\s*help="(?:"")?'
    found = re.search(rf'(?:{function}|{app})(.*?)(?:\n\s*\n|(?<!\\)")', _source(spec.origin), re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def _definition(point: EntryPoint) -> ast.FunctionDef | ast.ClassDef | None:
    """Find a documented function or class in its entry point's module; None if the module only imports it."""
    spec = _spec(point.module)
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    source = _source(spec.origin)
    alone = re.search(rf"^(?:def|class) {re.escape(point.attr)}\b.*?(?=^[^\s)#]|\Z)", source, re.MULTILINE | re.DOTALL)
    try:
        # parsing whole modules took a third of the time of `asa list`
        body = ast.parse(alone.group()).body if alone else []
    except SyntaxError:  # as with a text that contains a line beginning with `def`
        body = ast.parse(source).body
    kinds = (node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return next((node for node in kinds if node.name == point.attr and ast.get_docstring(node)), None)


def _spec(module: str) -> ModuleSpec | None:
    """Find a module of this package without importing its parent packages."""
    ours, room, *below = module.split(".")
    spec = find_spec(name := f"{ours}.{room}")
    for part in below:
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations) if spec else None
    return spec


@cache
def _source(path: str) -> str:
    return read_text(Path(path), max_bytes=DOCUMENT_BYTES)
