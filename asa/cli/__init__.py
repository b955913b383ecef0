"""The command line: one module for each command.

Exit codes: 0 done; 1 something else went wrong (a run failed, a batch system refused); 2 the input cannot be used; 130
interrupted; 141 the reader of the output is gone, as in ``asa runs | head``. A run is then left as after Ctrl-C.
"""

import atexit
import gc
import sys

__all__ = ["main"]

_INTERRUPTED = 130
_NEW_OBJECTS = 20_000  # modules make as many as they load, and keep them: to look for garbage in between is in vain


def main() -> None:
    """Run the command line and exit."""
    gc.set_threshold(_NEW_OBJECTS)
    atexit.register(gc.freeze)  # what is left ends with the process: looking for cycles in it took a sixth of `status`
    try:
        from asa.cli.app import run_command  # loading takes a moment, in which the user may press Ctrl-C

        run_command()
    except KeyboardInterrupt:  # also before and after the part in which the command itself handles it
        sys.stderr.write("asa: interrupted\n")
        sys.exit(_INTERRUPTED)
