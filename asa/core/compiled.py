"""Compiles the kernels with numba if it is installed; without it the same functions run as plain Python.

Kernels only index arrays and return numbers: they allocate nothing. So numba need not count references, which would
cost more than the work in functions of a few nanoseconds (``_nrt=False``). Plain Python gets memory views, whose
numbers it reads several times faster than those of an array.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asa.core import plainly
from asa.core.compiled_files import folder_for
from asa.core.python import folder_here


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


@contextmanager
def _without_blas(linalg: Any) -> Iterator[None]:
    """Keep numba from loading scipy's linear algebra: to see whether it is there takes as long as loading numba.

    A program's own kernels then compute `np.convolve` and `np.correlate` without it, and find it for all else.
    """
    look = linalg.ensure_blas

    def find_none() -> None:
        raise ImportError

    linalg.ensure_blas = find_none
    try:
        yield
    finally:
        linalg.ensure_blas = look


COMPILED = False
if TYPE_CHECKING:

    def At(number: int) -> int:  # noqa: N802 - it stands for a type
        """Mark an index as not negative."""
        return number

    def Int(number: int) -> int:  # noqa: N802 - it stands for a type
        """Mark a constant as any whole number, where a kernel is called with it."""
        return number

else:
    At = Int = index  # returns its argument, faster than a function of Python


def _load() -> None:
    """Load numba, if it is installed."""
    global COMPILED, At, Int, _settings, _njit  # noqa: PLW0603 - what kernels are made of from now on
    with suppress(ImportError), _without_settings_of_the_folder():
        from numba import config, njit  # noqa: PLC0415 - which takes half a second
        from numba.core import event  # noqa: PLC0415

        with suppress(ImportError, AttributeError):  # numba's own modules: another version may not have these
            from numba.np import linalg  # noqa: PLC0415

            with _without_blas(linalg):
                import numba.np.arraymath  # noqa: F401, PLC0415 - which looks for it

        class Announcing(event.Listener):
            """Reports once that a kernel is being compiled; loading one that was compiled before is not reported."""

            def on_start(self, _event: Any) -> None:
                report, plainly.on_compiling = plainly.on_compiling, None
                if report is not None:
                    report()

            def on_end(self, _event: Any) -> None:
                """Report nothing."""

        event.register("numba:compile", Announcing())  # type: ignore[no-untyped-call]
        COMPILED, _settings, _njit = True, config, njit
        At = np.uint64  # type: ignore[assignment]  # saves compiled code from checking whether an index counts from the end
        Int = np.int64  # type: ignore[assignment]  # saves compiling a kernel once more for a constant in its call


_settings: Any = None
_njit: Any = None
_plain: dict[str, None] = {}  # modules with kernels in plain Python, each after those that it imports
if not plainly.wanted:
    _load()


def change() -> None:
    """Replace all kernels, which are plain Python, by compiled ones, wherever they are called by their module."""
    _load()
    for name in _plain if COMPILED else ():
        importlib.reload(sys.modules[name])


def kernel(function: Any, *, inline: bool = False) -> Any:
    """Compile a function at its first call, and cache the result for the next process.

    If its name begins with ``_``, only kernels can call it: an eighth of all compiling is for calls from Python.
    `inline`: compile it into each kernel that calls it, too: a call costs for each array that is passed.
    """
    if not COMPILED:
        _plain[function.__module__] = None
        return function
    options: dict[str, Any] = {"boundscheck": False, "_nrt": False, "no_cfunc_wrapper": True}
    if inline:
        options["inline"] = "always"
    if function.__name__.startswith("_"):
        options["no_cpython_wrapper"] = True
    source = Path(function.__code__.co_filename)
    named = _settings.CACHE_DIR
    path = folder_for(source, named)
    if path is not None:
        _settings.CACHE_DIR = path
        try:
            compiled = _njit(cache=True, **options)(function)
        except RuntimeError:  # the cache cannot be written
            pass
        else:
            if Path(compiled.stats.cache_path).is_relative_to(path or source.parent / "__pycache__"):
                return compiled
        finally:
            _settings.CACHE_DIR = named
    return _njit(**options)(function)


def part(function: Any) -> Any:
    """Make a kernel that is compiled into those that call it."""
    return kernel(function, inline=True)


def seen(array: NDArray[Any]) -> Any:
    """Return an array in the form that a kernel reads fastest, to be held for many calls.

    That is the array itself for numba, and a memory view for plain Python. Nothing is copied.
    """
    if not COMPILED:
        plainly.settle()
    return passed(array)


def passed(array: NDArray[Any]) -> Any:
    """Return an array in the form that a kernel reads fastest, for one call."""
    return array if COMPILED else array.data
