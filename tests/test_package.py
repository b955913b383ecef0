"""The installed package as seen from outside."""

import dataclasses
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import budgets
import pytest

import asa
from asa.core import plugins
from asa.keys import keys_of

pytestmark = pytest.mark.usefixtures("own_home")

ROOT = Path(__file__).parents[1]
ASA = Path(sys.executable).with_name("asa")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_importing_asa_loads_numpy_and_nothing_heavier():
    """The estimator stands alone."""
    heavy = [
        "networkx",
        "numba",
        "pydantic",
        "rich",
        "typer",
        "httpx",
        "matplotlib",
        "torch",
        "asa.workflow",
        "asa.runner",
    ]
    code = (
        f"import sys, asa; asa.Asa().predict(); print([m for m in {heavy} if m in sys.modules], 'numpy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[] True"


def test_the_package_list_is_what_lies_on_disk():
    """Each folder with an __init__.py is installed under its import name; plug-ins of other programs at the top."""
    roots = {"asa": "asa", "backends": "asa.backends", "workflows": "asa.workflows"}
    on_disk = {
        ".".join([name, *path.parent.relative_to(ROOT / folder).parts])
        for folder, name in roots.items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    on_disk = {name.removeprefix("asa.hosted.plugins.") for name in on_disk}
    assert sorted(PYPROJECT["tool"]["setuptools"]["packages"]) == sorted(on_disk)


def test_every_entry_point_resolves():
    """No name on the command line leads nowhere."""
    declared = PYPROJECT["project"]["entry-points"]
    for group, names in declared.items():
        installed = {point.name: point for point in entry_points(group=group)}
        for name in names:
            assert callable(installed[name].load()), f"{group}: {name}"


@pytest.mark.parametrize("module", ["asa", "asa.estimators", "asa.strategies", "asa.workflows", "asa.testing"])
def test_public_names_are_there(module):
    """`__all__` is what it says."""
    loaded = importlib.import_module(module)
    assert len(set(loaded.__all__)) == len(loaded.__all__)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None


@pytest.mark.parametrize(
    "module", ["asa", "asa.backend", "asa.estimators", "asa.records", "asa.strategies", "asa.waits"]
)
def test_values_that_cross_borders_say_what_they_hold(module):
    """Each field of a public value is told in its docstring, in that of the value that it extends, or as a key."""
    loaded = importlib.import_module(module)
    values = [value for name in loaded.__all__ if dataclasses.is_dataclass(value := getattr(loaded, name))]
    assert values
    for value in values:
        told = " ".join(base.__doc__ or "" for base in value.__mro__ if base is not object)
        told += " ".join(f" {key.field}: {key.description}" for key in keys_of(value))
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        assert not [name for name in fields if not re.search(rf"\b{name}\b", told)], value.__name__


def test_an_unknown_attribute_is_an_attribute_error():
    """Lazy names do not hide typing errors."""
    with pytest.raises(AttributeError, match="no attribute 'Workflo'"):
        _ = asa.Workflo


def test_lazy_names_are_listed():
    """Completion in a shell shows what is loaded on demand."""
    assert {"Workflow", "Stage", "run_all"} <= set(dir(asa))


@pytest.mark.full
def test_documented_examples_run():
    """Every example in a docstring gives what it says."""
    code = (
        "import doctest, importlib, pkgutil, sys, asa, asa.backends, asa.workflows\n"
        "failed = tried = 0\n"
        "for package in (asa, asa.backends, asa.workflows):\n"
        "    for info in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        result = doctest.testmod(importlib.import_module(info.name))\n"
        "        failed += result.failed; tried += result.attempted\n"
        "print(failed, tried)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    failed, tried = map(int, out.splitlines()[-1].split())
    assert failed == 0, out
    assert tried > 40


@pytest.mark.parametrize(
    "group", ["asa.workflows", "asa.strategies", "asa.estimators", "asa.backends", "asa.schedulers"]
)
def test_what_a_name_is_for_is_read_as_it_would_be_imported(group):
    """`asa list` reads sources, which is quick; it tells the same."""
    for name in plugins.names(group):
        made = plugins.load(group, name)
        words = inspect.getdoc(made).split("\n\n")[0].replace("\n", " ")
        parameters = list(inspect.signature(made).parameters) if inspect.isfunction(made) else []
        assert plugins.describe(group, name) == (words, parameters)


def test_a_list_compiles_nothing():
    """Names and words are all that it shows."""
    code = "import sys; from asa.cli.lists import lists; lists(); print(sorted({'numba', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


HEAVY = {"numpy", "numba", "llvmlite", "networkx", "httpx", "matplotlib", "scipy", "dask", "distributed", "torch"}
RARE = {"asa.cli.compare", "asa.studies", "asa.report", "asa.pool", "asa.backends"}
HELD = {
    "--version": HEAVY | RARE | {"rich"},
    "--help": HEAVY | RARE | {"rich", "pydantic", "asa.backend"},
    "list": HEAVY | {"asa.estimators", "asa.runner"},
    "check flow.toml": HEAVY | RARE | {"asa.runner"},
    "runs": HEAVY | RARE | {"pydantic"},
    "status": HEAVY | RARE | {"pydantic"},
    "explain a": HEAVY | RARE | {"pydantic"},
    "tick": HEAVY | RARE | {"pydantic", "rich", "asa.runner.loop"},
    "simulate tiny.swf": HEAVY - {"numpy"} | {"asa.runner", "asa.estimators"},
}
"""By command, what it must not load, for that takes longer than the command itself; `make bench` prints how long."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A place with a workflow file, a run of it and a log."""
    place = tmp_path_factory.mktemp("quick")
    rows = [f"{job} {10 * job} -1 50 {1 + job % 4} -1 -1 {1 + job % 4} 60 -1 1 1 1 1 1 1 -1 -1" for job in range(30)]
    (place / "tiny.swf").write_text("\n".join(["; MaxProcs: 4", *rows, ""]))
    budgets.prepare(place)
    return place


@pytest.mark.full
@pytest.mark.parametrize("command", HELD)
def test_a_quick_command_loads_nothing_that_it_does_not_need(command, folder):
    """Whole seconds went into that."""
    code = (
        f"import sys; from asa.cli import main; sys.argv = ['asa', *{command.split()}]\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        f"print(code, sorted({HELD[command]} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] in {"0 []", "None []"}


_TRIES, _BUSY = 3, 1.5  # where others compute as well, what loads many small files suffers more than numpy's few


@pytest.mark.full
@pytest.mark.parametrize("command", budgets.COMMANDS)
def test_a_command_keeps_its_budget(command, folder):
    """CPU time of whole processes, compared with `import numpy` between them; `make bench` prints it."""
    for _ in range(_TRIES):
        taken_s, numpy_s = budgets.measured([command], folder, 5)
        if taken_s[command] <= _BUSY * budgets.COMMANDS[command] * numpy_s:
            return
    pytest.fail(f"{taken_s[command]:.3f} s, {taken_s[command] / numpy_s:.2f} times import numpy")


COLD = (
    "run flow.toml --backend local --dry-run",
    "run flow.toml --backend local --dry-run --strategy asa-plan --estimator asa",
    "plan flow.toml --backend local",
    "predict --cores 1 --walltime 1min --backend local",
    "walltimes flow.toml",
    "doctor --backend local",
    "run flow.toml --backend local",
    "tick",
)


@pytest.mark.full
@pytest.mark.parametrize("command", COLD)
def test_no_command_about_a_run_waits_for_a_compiler(command, folder, tmp_path):
    """Before, the first `asa run --dry-run` compiled for half a minute; here nothing is compiled yet, either."""
    code = (
        f"import sys; from asa.cli import main; sys.argv = ['asa', *{command.split()}]\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        "print(code, sorted({'numba', 'llvmlite', 'scipy', 'torch'} & set(sys.modules)), file=sys.stderr)"
    )
    environment = {**os.environ, **budgets.at_home_in(folder), "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] in {"0 []", "None []"}, done.stderr


@pytest.mark.parametrize("name", plugins.names("asa.backends"))
def test_a_backend_that_finds_itself_is_imported_to_be_asked(name):
    """Others need not be: to import all of them takes seconds."""
    finds = hasattr(plugins.load("asa.backends", name), "found_here")
    assert plugins.mentions("asa.backends", name, "found_here") is (finds or name.startswith("slurm"))


def test_a_command_builds_and_imports_no_other():
    """Whoever lists all commands has all; whoever calls one has that."""
    code = (
        "import sys; from asa.cli import main; sys.argv = ['asa', 'list']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('asa.cli.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "['asa.cli.app', 'asa.cli.compiling', 'asa.cli.lists', 'asa.cli.terminal']"
