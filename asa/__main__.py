"""``python -m asa``: the command line, for callers that have the path of a Python and not of a script."""

from asa.cli import main

if __name__ == "__main__":
    main()
