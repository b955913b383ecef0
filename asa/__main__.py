"""``python -m asa``: the command line, for who is given the path of a Python and not that of a script."""

from asa.cli import main

if __name__ == "__main__":
    main()
