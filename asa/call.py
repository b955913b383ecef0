"""What a stage that calls a Python function runs: ``python -P -m asa.call MODULE FILE FUNCTION ARGUMENTS``."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path
from typing import Any

from asa import flow
from asa.core import python
from asa.core.documents import read_json


def main(module: str, file: str, name: str, given: str) -> None:
    """Find a function in a module, or in a file if there is no such module, and call it with arguments in JSON.

    `module`: the importable module that defines the function.
    `file`: the source file to read if there is no such module; may be empty.
    `given`: the function's arguments as JSON: a list of the positional ones and an object of the named ones.
    """
    flow._inside_a_stage = True  # noqa: SLF001 - the two are one
    # only now, so that this program's own imports are not looked for in these folders
    folders = [str(Path(file).parent), python.folder_of(module, file)] if file else []
    sys.path[:0] = dict.fromkeys([*folders, *python.folder_here()])
    args, kwargs = read_json(given)
    _names(module, file)[name](*args, **kwargs)


def _names(module: str, file: str) -> dict[str, Any]:
    if module != "__main__":
        try:
            return vars(importlib.import_module(module))
        except ModuleNotFoundError as error:
            if not file or error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
    return runpy.run_path(file, run_name="__asa_stage__")


if __name__ == "__main__":
    main(*sys.argv[1:])
