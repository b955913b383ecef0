"""The command line: one module a verb.

Exit codes: 0 done; 1 something went wrong outside (a run failed, a batch system refused); 2 the input cannot be used;
130 interrupted; 141 nobody reads what is printed any more, as in ``asa runs | head``. A run is left then as by Ctrl-C.
"""

import sys

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit."""
    try:
        from asa.cli.app import run_command  # a moment, in which somebody may think better of it
    except KeyboardInterrupt:
        sys.stderr.write("asa: interrupted\n")
        sys.exit(_INTERRUPTED)
    run_command()
