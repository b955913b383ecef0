"""Whether kernels run as plain Python though they could be compiled: for so few calls that loading them takes longer.

What they return is the same to the bit. It is heeded when `asa.core.compiled` is first imported.
"""

wanted = False
