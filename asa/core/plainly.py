"""Whether kernels run as plain Python though they could be compiled: for few calls, loading would take longer.

They return the same to the bit. `asa.core.compiled` reads this when it is first imported.
"""

wanted = False
