"""What the installed package looks like from outside."""

import importlib
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import asa

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_importing_asa_loads_numpy_and_nothing_heavier():
    """The estimator stands alone."""
    heavy = ["networkx", "pydantic", "rich", "typer", "httpx", "matplotlib", "torch", "asa.workflow", "asa.runner"]
    code = (
        f"import sys, asa; asa.Asa().predict(); print([m for m in {heavy} if m in sys.modules], 'numpy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[] True"


def test_the_package_list_is_what_lies_on_disk():
    """Each folder with an __init__.py is installed under its import name."""
    roots = {"asa": "asa", "backends": "asa.backends", "workflows": "asa.workflows"}
    on_disk = {
        ".".join([name, *path.parent.relative_to(ROOT / folder).parts])
        for folder, name in roots.items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
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


def test_an_unknown_attribute_is_an_attribute_error():
    """Lazy names do not hide typing errors."""
    with pytest.raises(AttributeError, match="no attribute 'Workflo'"):
        _ = asa.Workflo


def test_lazy_names_are_listed():
    """Completion in a shell shows what is loaded on demand."""
    assert {"Workflow", "Stage", "run_all"} <= set(dir(asa))


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


def test_help_loads_no_compiler():
    """Nor anything else that takes its time; `make bench` prints what it takes."""
    code = (
        "import sys; from asa.cli import main; sys.argv = ['asa', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'numba', 'matplotlib', 'networkx', 'httpx', 'scipy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
