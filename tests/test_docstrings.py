"""What the docstrings of public names must tell: each parameter, what comes back in parts, and which errors."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("asa", "backends", "workflows")
# Only their callers' room reads these: rooms of a command, rooms of one way to a batch system, numba's kernels and what
# stands in for them. Of their functions' parameters the summary tells enough.
WITHIN = re.compile(
    r"asa/cli/|_(kernel|plain)\.py$|backends/.*/(asked|heap|lacks|pictures?|printing|processes|reading|refusals|spool|states"
    r"|survey|tables|writing)\.py$"
)
PARTS = ("tuple", "dict", "NDArray", "list[tuple", "Iterator[tuple", "Mapping")
SECTION = r"^{}\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)"


@cache
def _tree(path):
    return ast.parse(path.read_text())


def _public(path):
    """Give the public functions and classes that a module defines, and the methods of the classes, by name."""
    tree = _tree(path)
    listed = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
    ]
    names = ast.literal_eval(listed[0]) if listed else ()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names:
            yield node.name, node, False
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and method.name[0] != "_" and ast.get_docstring(method):
                        yield f"{node.name}.{method.name}", method, True


@cache
def _errors():
    """Give our errors, each with those that it is one of."""
    known = {}
    for node in _tree(ROOT / "asa/errors.py").body:
        if isinstance(node, ast.ClassDef):
            known[node.name] = {node.name}.union(*(known.get(ast.unparse(base), ()) for base in node.bases))
    return known


def _section(doc, name):
    found = re.search(SECTION.format(name), doc, re.MULTILINE | re.DOTALL)
    return "" if found is None else found[1]


def _named(section):
    """Read the names that a section tells of."""
    lines = [line.split(" : ")[0] for line in section.splitlines() if line[:1].strip()]
    return {name.strip().lstrip("*") for line in lines for name in line.split(",")}


def _fields(node):
    """Give what makes an object of a class, where that stands in the class itself."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            return _arguments(method)
    made = [ast.unparse(decorator) for decorator in node.decorator_list] + [ast.unparse(base) for base in node.bases]
    if not any(one.startswith(("dataclass", "NamedTuple")) for one in made):
        return []
    return [
        field.target.id
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and not field.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(field.annotation)
        and "init=False" not in ast.unparse(field)
        and not (field.target.id in ("kind", "schema") and field.value)  # a file's own marks
    ]


def _arguments(function):
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [one.arg for one in every if one.arg not in ("self", "cls") and not one.arg.startswith("_")]


def _raised(function):
    """Find which of our errors a function raises itself."""
    found, rest = set(), list(function.body)
    while rest:
        node = rest.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc).split(".")[-1]
            found |= {raised} & _errors().keys()
        rest.extend(ast.iter_child_nodes(node))
    return found


def _is_command(node):
    """Whether typer makes a command of it: its docstring is the command's help."""
    return isinstance(node, ast.FunctionDef) and (
        "typer." in ast.unparse(node.args)
        or re.search(r"\bOption\b|Option = ", ast.unparse(node.args)) is not None
        or any("command" in ast.unparse(one) or "callback" in ast.unparse(one) for one in node.decorator_list)
    )


def _lacks(node, *, is_method, is_within):
    doc = ast.get_docstring(node) or ""
    told = _named(_section(doc, "Parameters"))
    if isinstance(node, ast.ClassDef):
        return [f"parameter {name}" for name in _fields(node) if name not in told | _named(_section(doc, "Attributes"))]
    given = _arguments(node)
    lacks = [f"error {name}" for name in _raised(node) if not _errors()[name] & _named(_section(doc, "Raises"))]
    if told:
        stars = [one.arg for one in (node.args.vararg, node.args.kwarg) if one]
        lacks += [f"no parameter {name}" for name in told - set(given) - set(stars)]
    if not is_method and not is_within:
        lacks += [f"parameter {name}" for name in given if name not in told]
        back = ast.unparse(node.returns) if node.returns else "None"
        if back.startswith(PARTS) and not _section(doc, "Returns") + _section(doc, "Yields"):
            lacks.append("returns")
    return lacks


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_tell_parameters_parts_and_errors(folder):
    """Who reads a docstring need not read the code: nothing is missing, and nothing is told of what is no more."""
    lacking = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        place = str(path.relative_to(ROOT))
        for name, node, is_method in _public(path):
            lacks = _lacks(node, is_method=is_method, is_within=WITHIN.search(place) is not None)
            if lacks and not _is_command(node):
                lacking[f"{place}:{name}"] = lacks
    assert not lacking
