"""A command's choice to run kernels as plain Python although they could be compiled, made before they are imported.

The results are the same to the bit. For few calls, loading compiled code would take longer, and compiling it much
longer. `asa.core.compiled` reads this when it is first imported.
"""

from collections.abc import Callable

wanted = False
on_compiling: Callable[[], None] | None = None
"""Called once, when the first kernel of this process is about to be compiled, which takes seconds."""
