"""A process's choice to run kernels as plain Python although they could be compiled, made before they are imported.

The results are the same to the bit. For few calls, loading compiled code would take longer, and compiling it much
longer. `asa.core.compiled` reads this when it is first imported; later the choice cannot change.
"""

import sys
from collections.abc import Callable

wanted: bool | None = None
"""Whether kernels run as plain Python; None while nothing has been chosen, which means compiled code."""
on_compiling: Callable[[], None] | None = None
"""Called once, when the first kernel of this process is about to be compiled, which takes seconds."""


def choose(*, plain: bool) -> None:
    """Choose for this process, unless kernels have been imported."""
    global wanted  # noqa: PLW0603 - the choice of the whole process
    loaded = sys.modules.get("asa.core.compiled")
    wanted = plain if loaded is None else not loaded.COMPILED
