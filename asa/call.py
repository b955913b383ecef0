"""What a stage runs that calls a Python function: ``python -m asa.call FILE|MODULE FUNCTION ARGUMENTS``."""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from pathlib import Path

from asa import flow

__all__ = ["main"]


def main(place: str, name: str, given: str) -> None:
    """Find a function by its file, or its module's name, and call it with arguments in JSON."""
    flow._inside_a_stage = True  # noqa: SLF001 - the two are one
    if place.endswith(".py"):
        sys.path.insert(0, str(Path(place).parent))
        found = runpy.run_path(place, run_name="__asa_stage__")[name]
    else:
        found = getattr(importlib.import_module(place), name)
    args, kwargs = json.loads(given)
    found(*args, **kwargs)


if __name__ == "__main__":
    main(*sys.argv[1:])
