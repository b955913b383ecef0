"""Whether kernels run as plain Python though they could be compiled, as a command decides before it imports them.

They return the same to the bit. For few calls loading compiled code would take longer, and compiling it much longer.
`asa.core.compiled` reads this when it is first imported.
"""

from collections.abc import Callable

wanted = False
on_compiling: Callable[[], None] | None = None
"""What is called when the first kernel of this process is compiled, which takes seconds; once."""
