"""Files and folders that are removed when this process ends, in places where nobody else can exchange them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from . import owned

_USUAL = "/tmp"  # noqa: S108 - root's, with the sticky bit, on every system

IN_JOBS = ("fixed", "hold", "owned")
"""Files of `asa.job` with which a job finds a temporary folder, and checks the owners of files that it copies."""


def base_folder(named: str = "") -> str:
    """Return the folder for temporary files: ``TMPDIR`` if nobody else can exchange files there, else ``/tmp``.

    `named`: a folder to try in place of ``TMPDIR``.
    """
    named = named or tempfile.gettempdir()
    try:
        inside = Path(named, "asa")
        return named if owned.is_trusted(inside) or not owned.way_trouble(inside) else _USUAL
    except OSError:
        return _USUAL


def folder(prefix: str = "asa-") -> tempfile.TemporaryDirectory[str]:
    """Make a folder that is removed at the end of its context."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=base_folder())


def file(prefix: str, *, mode: str = "w+b", **how: Any) -> Any:
    """Make a file with a name that is removed at the end of its context; `how`: further arguments of `open`."""
    return tempfile.NamedTemporaryFile(mode, prefix=prefix, dir=base_folder(), **how)


def lasting(prefix: str, named: str = "") -> str:
    """Make a folder that the caller removes; return its name."""
    return tempfile.mkdtemp(prefix=prefix, dir=base_folder(named))
