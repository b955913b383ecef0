"""The command line: one module a verb.

Exit codes: 0 done; 1 something went wrong outside (a run failed, a batch system refused); 2 the input cannot be used;
130 interrupted; 141 nobody reads what is printed any more, as in ``asa runs | head``. A run is left then as by Ctrl-C.
"""

from .main import main

__all__ = ["main"]
