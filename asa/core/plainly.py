"""A process's choice to run kernels as plain Python although they could be compiled, made before they are imported.

The results are the same to the bit. For few calls, loading compiled code would take longer, and compiling it much
longer. So a process may begin in plain Python and change to compiled code once it has computed, or is about to compute,
as much as takes plain Python as long as loading: it then never takes more than twice as long as with the better choice.
`asa.core.compiled` reads `wanted` when it is first imported.

Work is counted in waits: as many as plain Python predicts and learns in the same time, whatever the machine.
"""

import math
import sys
from collections.abc import Callable

wanted: bool | None = None
"""Whether kernels run as plain Python; None while nothing has been chosen, which means compiled code."""
gives_way = False
"""Whether plain Python gives way to compiled code once much has been computed."""
on_compiling: Callable[[], None] | None = None
"""Called once, when the first kernel of this process is about to be compiled, which takes seconds."""

_LOADED_IN_WAITS = 300.0
_left = _LOADED_IN_WAITS
_is_settled = False


def choose(*, plain: bool, for_now: bool = False) -> None:
    """Choose for this process, unless compiled code is loaded.

    `for_now`: whether plain Python gives way, once much is computed, to code that was compiled before.
    """
    global wanted, gives_way
    if wanted is not None and _is_settled:
        return
    loaded = sys.modules.get("asa.core.compiled")
    if loaded is None:
        wanted, gives_way = plain, plain and for_now
    elif loaded.COMPILED:
        wanted, gives_way = False, False
    elif gives_way and not plain:
        expect(math.inf)
    else:
        wanted, gives_way = True, gives_way and for_now


def settle() -> None:
    """Keep the present choice: what runs next holds arrays in the form that only plain, or compiled, code reads."""
    global gives_way, _is_settled
    gives_way, _is_settled = False, True


def is_for_good() -> bool:
    """Whether this process computes all in plain Python."""
    return bool(wanted) and not gives_way


def expect(waits: float) -> None:
    """Change to compiled code if more work comes next than is left to plain Python."""
    global wanted, gives_way
    if gives_way and waits > _left:
        wanted, gives_way = False, False
        if (loaded := sys.modules.get("asa.core.compiled")) is not None:
            loaded.change()


def count(waits: float) -> None:
    """Count work that comes next, and change to compiled code if that is more than is left to plain Python."""
    global _left  # noqa: PLW0603
    if gives_way:
        expect(waits)
        _left -= waits
