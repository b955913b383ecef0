"""``python -m asa``: the command line, for callers that know the path of a Python but not of a script."""

from asa.cli import main

if __name__ == "__main__":
    main()
