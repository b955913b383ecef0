"""Files and folders that end with this process, where nobody else can exchange them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from . import owned

_USUAL = "/tmp"  # noqa: S108 - root's, with the sticky bit, on every system

IN_JOBS = ("fixed", "hold", "owned")
"""Files of `asa.job` by which a job finds such a folder, and sees whose that is of which it copies something there."""


def base_folder(named: str = "") -> str:
    """Name the folder for temporary files: ``TMPDIR`` if nobody else can exchange files there, else ``/tmp``.

    `named`: a folder to try in place of ``TMPDIR``.
    """
    named = named or tempfile.gettempdir()
    try:
        inside = Path(named, "asa")
        return named if owned.is_trusted(inside) or not owned.way_trouble(inside) else _USUAL
    except OSError:
        return _USUAL


def folder(prefix: str = "asa-") -> tempfile.TemporaryDirectory[str]:
    """Make a folder that is gone once its context is left."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=base_folder())


def file(prefix: str, *, mode: str = "w+b", **how: Any) -> Any:
    """Make a file with a name that is gone once its context is left; `how`: as `open` has it."""
    return tempfile.NamedTemporaryFile(mode, prefix=prefix, dir=base_folder(), **how)


def lasting(prefix: str, named: str = "") -> str:
    """Make a folder that its maker removes; give its name."""
    return tempfile.mkdtemp(prefix=prefix, dir=base_folder(named))
