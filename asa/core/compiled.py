"""Compiling the kernels with numba where it is installed; without it the same functions run as they are.

Kernels only index arrays and return numbers: they allocate nothing. So numba needs not count references, which costs
more than the work itself in functions of a few nanoseconds (``_nrt=False``), and plain Python can be given memory
views, through which it reads a number several times faster than through an array.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asa.core import plainly

COMPILED = False
if not plainly.wanted:
    with suppress(ImportError):
        from numba import njit

        COMPILED = True

if TYPE_CHECKING or not COMPILED:

    def At(place: int) -> int:  # noqa: N802 - it stands for a type
        """Mark an index that is known not to be negative."""
        return place

else:
    At = np.uint64  # spares the compiled code the question whether an index counts from the end


def kernel(function: Any) -> Any:
    """Compile a function at its first call, and keep the result for the next process."""
    if not COMPILED:
        return function
    options: dict[str, Any] = {"boundscheck": False, "_nrt": False}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to keep the result: a folder that cannot be written to, and no home
        return njit(**options)(function)


def is_ready(function: Any) -> bool:
    """Whether a kernel can run at once; else it is being compiled, or will be at its first call."""
    return not COMPILED or bool(function.nopython_signatures)


def seen(array: NDArray[Any]) -> Any:
    """Show an array to a kernel in the form that is quickest for it.

    Returns: the array for numba; its memory for plain Python, which reads single elements of it faster. Nothing is
    copied.
    """
    return array if COMPILED else array.data
