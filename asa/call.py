"""The program that runs a Python function as a stage: ``python -P -m asa.call MODULE FILE FUNCTION ARGUMENTS``."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from asa import flow, values
from asa.core import python
from asa.core.documents import read_json


def main(module: str, file: str, name: str, given: str, code: str = "") -> None:
    """Find a function in a module, or in a file if there is no such module, and call it with arguments in JSON.

    What it returns or raises is kept in the run's folder.

    `module`: the importable module that defines the function.
    `file`: the source file to read if there is no such module; may be empty.
    `given`: the function's arguments as JSON: a list of the positional ones and an object of the named ones.
    `code`: the function itself, for one that is in no file; see `asa.flow.StageFunction`.
    """
    flow._inside_a_stage = True  # noqa: SLF001 - the two are one
    # only now, so that this program's own imports are not looked for in these folders
    folders = [str(Path(file).parent), python.folder_of(module, file)] if file else []
    sys.path[:0] = dict.fromkeys([*folders, *python.folder_here()])
    stage, folder = os.environ.get("ASA_STAGE", ""), values.folder_here()
    if folder is None or not stage:
        args, kwargs = values.resolved(read_json(given), Path())
        _function(module, file, name, code)(*args, **kwargs)
        return
    values.forget(folder, stage)
    try:
        args, kwargs = values.resolved(read_json(given), folder)
        value = _function(module, file, name, code)(*args, **kwargs)
    except Exception as error:
        values.fail(folder, stage, error)
        raise
    values.keep(folder, stage, value)


def _function(module: str, file: str, name: str, code: str) -> Any:
    if code:
        return values.of_text(code)
    return _names(module, file)[name]


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
