"""Compiles the kernels with numba if it is installed; without it the same functions run as plain Python.

Kernels only index arrays and return numbers: they allocate nothing. So numba need not count references, which would
cost more than the work in functions of a few nanoseconds (``_nrt=False``). Plain Python gets memory views, whose
numbers it reads several times faster than those of an array.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asa.core import plainly, safe
from asa.core.python import folder_here
from asa.errors import AsaError

_NOBODY_ELSE = 0o077


@contextmanager
def _without_settings_of_the_folder() -> Iterator[None]:
    """Keep numba from reading the ``.numba_config.yaml`` of the current folder, where others may have put one."""
    if folder_here():
        yield
        return
    absent = object()
    before: Any = sys.modules.get("yaml", absent)
    sys.modules["yaml"] = None  # type: ignore[assignment]  # what Python has for a module that cannot be imported
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A Numba config file is found")
            yield
    finally:
        if before is absent:
            del sys.modules["yaml"]
        else:
            sys.modules["yaml"] = before


COMPILED = False
if not plainly.wanted:
    with suppress(ImportError), _without_settings_of_the_folder():
        from numba import config, njit

        _settings: Any = config
        COMPILED = True

if TYPE_CHECKING or not COMPILED:

    def At(number: int) -> int:  # noqa: N802 - it stands for a type
        """Mark an index as not negative."""
        return number

else:
    At = np.uint64  # saves compiled code from checking whether an index counts from the end


def kernel(function: Any) -> Any:
    """Compile a function at its first call, and cache the result for the next process."""
    if not COMPILED:
        return function
    options: dict[str, Any] = {"boundscheck": False, "_nrt": False}
    pycache = Path(function.__code__.co_filename).parent / "__pycache__"
    named = _settings.CACHE_DIR
    path = "" if not named and _is_ones_own(pycache) else _own_folder(named)
    if path is not None:
        _settings.CACHE_DIR = path
        try:
            compiled = njit(cache=True, **options)(function)
        except RuntimeError:  # the cache cannot be written
            pass
        else:
            if Path(compiled.stats.cache_path).is_relative_to(path or pycache):
                return compiled
        finally:
            _settings.CACHE_DIR = named
    return njit(**options)(function)


# numba stores pickles, which run as the user who loads them; it makes its own folder with the umask.


@cache
def _is_ones_own(pycache: Path) -> bool:
    """Whether nobody else can put cached results next to the source, where Python caches its own, too."""
    try:
        return os.access(pycache, os.W_OK | os.X_OK) and safe.is_safe(pycache)
    except OSError:
        return False


@cache
def _own_folder(named: str) -> str | None:
    """Make a folder for compiled results that nobody else can enter; None if that fails.

    `named`: the cache folder that numba is set to; empty for none.
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


def is_ready(function: Any) -> bool:
    """Whether a kernel is compiled; else it is being compiled, or will be at its first call."""
    return not COMPILED or bool(function.nopython_signatures)


def seen(array: NDArray[Any]) -> Any:
    """Return an array in the form that a kernel reads fastest.

    That is the array itself for numba, and a memory view for plain Python. Nothing is copied.
    """
    return array if COMPILED else array.data
