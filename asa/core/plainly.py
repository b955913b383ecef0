"""Whether kernels run as plain Python though numba is installed: for few calls, loading compiled code takes longer.

Both ways return the same bits. `asa.core.compiled` reads this setting when it is first imported.
"""

wanted = False
