"""The folder of compiled kernels, and which kernels are in it.

Works without numba, whose import takes half a second.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from asa.core import safe
from asa.errors import AsaError

_NOBODY_ELSE = 0o077

# numba stores pickles, which run as the user who loads them; it makes its own folder by the umask.


@cache
def is_ones_own(pycache: Path) -> bool:
    """Whether this user, and nobody else, can write compiled files next to the source, where Python writes its own."""
    try:
        return os.access(pycache, os.W_OK | os.X_OK) and safe.is_safe(pycache)
    except OSError:
        return False


@cache
def own_folder(named: str) -> str | None:
    """Provide a folder for compiled results that nobody else can enter; None if that fails.

    `named`: the folder of compiled code that numba's settings name; empty for none.
    """
    try:
        folder = Path(named, "asa") if named else safe.cache_folder() / "compiled"
        safe.provide_folder(folder)
        safe.check(folder)
        safe.check_way(folder)
        is_fit = safe.is_trusted(folder) or not folder.stat().st_mode & _NOBODY_ELSE
    except (OSError, AsaError, RuntimeError):
        return None
    return str(folder.absolute()) if is_fit else None


def folder_for(source: Path, named: str) -> str | None:
    """Choose where a module's kernels are kept: empty for the folder next to it, None if nowhere."""
    return "" if not named and is_ones_own(source.parent / "__pycache__") else own_folder(named)


def are_kept(module: str, kernel: str) -> bool:
    """Whether a kernel of a module was compiled since its source changed; False also where numba is not installed.

    Examples
    --------
    >>> are_kept("asa.estimators.contextual_kernel", "none_of_this_name")
    False
    """
    package, _, name = module.rpartition(".")
    spec = find_spec(package) if find_spec("numba") is not None else None
    if spec is None or not spec.submodule_search_locations:
        return False
    source = Path(next(iter(spec.submodule_search_locations)), f"{name}.py")
    where = folder_for(source, os.environ.get("NUMBA_CACHE_DIR", ""))
    if where is None:
        return False
    files = source.parent.glob(f"__pycache__/{name}.{kernel}-*.nbi") if not where else None
    compiled = files if files is not None else Path(where).glob(f"*/{name}.{kernel}-*.nbi")
    try:
        changed_s = source.stat().st_mtime
        return any(file.stat().st_mtime >= changed_s for file in compiled)
    except OSError:
        return False
