"""Programs of this computer in a folder from which other Linuxes can run them: with their libraries and loader."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

_PYTHON = "python3"
_UNUSED = ("test", "tests", "site-packages", "dist-packages", "__pycache__", "idlelib", "ensurepip", "config-*", "*.a")
_LIBRARY = re.compile(r"^\s*(?:\S+ => )?(/\S+)", re.MULTILINE)


def bring(names, folder):
    """Put programs and all that they load into a folder; returns the folder that belongs into PATH.

    ``python3`` is the Python that runs this, with its standard library.
    """
    programs, libraries, path = (folder / part for part in ("programs", "libraries", "bin"))
    for part in (programs, libraries, path):
        part.mkdir()
    for name in names:
        program = shutil.which(name) if name != _PYTHON else Path(sys.base_prefix) / "bin" / _PYTHON
        shutil.copy(program, programs / name)
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in map(Path, _LIBRARY.findall(told)):
            if not (libraries / library.name).exists():
                shutil.copy(library, libraries)
        [loader] = libraries.glob("ld-linux*")
        wrapper = path / name
        home = f"export PYTHONHOME={_bring_modules(folder)}\n" if name == _PYTHON else ""
        wrapper.write_text(f'#!/bin/sh\n{home}exec {loader} --library-path {libraries} {programs / name} "$@"\n')
    for file in folder.rglob("*"):
        file.chmod(0o755)
    return path


def _bring_modules(folder):
    """Put Python's standard library where a Python looks for it that has its home there; returns that home."""
    modules = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(modules, folder / "python" / "lib" / modules.name, ignore=shutil.ignore_patterns(*_UNUSED))
    return folder / "python"
