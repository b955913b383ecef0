"""The docstrings of the public API: each parameter, the parts of the result, and the errors.

Elsewhere a docstring is a sentence, and a field that is not obvious has a comment.
"""

import ast
import importlib
import inspect
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What users import, the ports that others implement, and the values that cross them.
PUBLIC = (
    "asa", "asa.attended", "asa.backend", "asa.backends.local", "asa.backends.simulated",
    "asa.backends.simulated.machine", "asa.backends.simulated.policies", "asa.backends.simulated.workload", "asa.dmr",
    "asa.errors", "asa.estimators", "asa.flow", "asa.geometry", "asa.history", "asa.metrics", "asa.pool", "asa.records",
    "asa.runner", "asa.runtimes", "asa.sites", "asa.spec", "asa.strategies", "asa.testing", "asa.timeline", "asa.units",
    "asa.waits", "asa.workflow", "asa.workflows",
)  # fmt: skip
PARTS = ("tuple", "dict", "NDArray", "list[tuple", "Iterator[tuple", "Mapping")
SECTION = r"^{}\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)"


@cache
def _tree(path):
    return ast.parse(path.read_text())


@cache
def _public():
    """Return the public functions and classes, with what plug-ins of ours are named by, by module and name."""
    found = [getattr(module, name) for module in map(importlib.import_module, PUBLIC) for name in module.__all__]
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for target in (target for group, names in points.items() if group != "asa.commands" for target in names.values()):
        module, _, name = target.split(" ")[0].partition(":")
        found.append(getattr(importlib.import_module(module), name))
    made = [inspect.unwrap(one) for one in found if inspect.isclass(one) or inspect.isroutine(one)]
    return {(one.__module__, one.__qualname__) for one in made if one.__module__.startswith("asa")}


def _nodes(module):
    """Yield a module's public functions and classes, and the methods of the classes, by name."""
    names = {name for of, name in _public() if of == module}
    for node in _tree(Path(importlib.import_module(module).__file__)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names:
            yield node.name, node, False
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and method.name[0] != "_" and ast.get_docstring(method):
                        yield f"{node.name}.{method.name}", method, True


@cache
def _errors():
    """Return our errors, each with those that it is one of."""
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
    """Return what makes an object of a class, where that stands in the class itself."""
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
        and not ast.unparse(field).partition(" = ")[2].startswith("described(")  # a key, which says it
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


def _lacks(node, *, is_method):
    doc = ast.get_docstring(node) or ""
    told = _named(_section(doc, "Parameters"))
    if isinstance(node, ast.ClassDef):
        return [f"parameter {name}" for name in _fields(node) if name not in told | _named(_section(doc, "Attributes"))]
    given = _arguments(node)
    lacks = [f"error {name}" for name in _raised(node) if not _errors()[name] & _named(_section(doc, "Raises"))]
    if told:
        stars = [one.arg for one in (node.args.vararg, node.args.kwarg) if one]
        lacks += [f"no parameter {name}" for name in told - set(given) - set(stars)]
    if not is_method:
        lacks += [f"parameter {name}" for name in given if name not in told]
        back = ast.unparse(node.returns) if node.returns else "None"
        if back.startswith(PARTS) and not _section(doc, "Returns") + _section(doc, "Yields"):
            lacks.append("returns")
    return lacks


@pytest.mark.parametrize("module", sorted({module for module, _ in _public()}))
def test_public_docstrings_tell_parameters_parts_and_errors(module):
    """Who reads a docstring need not read the code: nothing is missing, and nothing is told of what is no more."""
    lacking = {name: lacks for name, node, is_method in _nodes(module) if (lacks := _lacks(node, is_method=is_method))}
    assert not lacking
