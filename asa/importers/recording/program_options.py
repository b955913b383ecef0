"""The options of squeue, sacct and scancel that choose jobs or say how to print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramOptions:
    """A program's options: the names of its letters, and the names of options with a value."""

    letters: Mapping[str, str]
    valued: str

    def has_value(self, name: str) -> bool:
        """Whether an option takes a value."""
        return name in self.valued.split()


SQUEUE = ProgramOptions(
    {
        "j": "jobs", "u": "user", "n": "name", "t": "states", "h": "noheader", "o": "format", "O": "Format",
        "p": "partition", "A": "account", "a": "all", "r": "array", "l": "long", "s": "steps", "w": "nodelist",
        "S": "sort", "i": "iterate", "M": "clusters", "q": "qos", "v": "verbose", "R": "reservation", "L": "licenses",
    },
    "jobs user name states format Format partition account nodelist sort iterate clusters qos reservation licenses",
)  # fmt: skip
SACCT = ProgramOptions(
    {
        "j": "jobs", "n": "noheader", "X": "allocations", "P": "parsable2", "p": "parsable", "o": "format",
        "b": "brief", "s": "states", "u": "user", "S": "starttime", "E": "endtime", "a": "allusers", "A": "account",
        "r": "partition", "l": "long", "D": "duplicates", "M": "clusters", "N": "nodelist", "q": "qos", "T": "truncate",
        "v": "verbose",
    },
    "jobs format states user uid starttime endtime account accounts partition clusters nodelist qos name delimiter "
    "units",
)  # fmt: skip
SCANCEL = ProgramOptions(
    {"u": "user", "n": "name", "p": "partition", "t": "states", "s": "signal", "A": "account", "M": "clusters"},
    "user name partition states signal account clusters qos reservation wckey",
)
_ALIKE = {"job": "jobs", "users": "user", "jobname": "name", "state": "states"}


_LONG_ONES = ("me", "json", "yaml", "start", "array-unique", "help", "version")


def options_given(arguments: Sequence[str], program: ProgramOptions) -> dict[str, str | None]:
    """Read a program's options; unknown ones are skipped.

    Examples
    --------
    >>> options_given(["-hj", "7,8", "--state=PD"], SQUEUE)
    {'noheader': None, 'jobs': '7,8', 'states': 'PD'}
    """
    options: dict[str, str | None] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            given, equals, value = word[2:].partition("=")
            name = _named(given, program)
            needs_next = not equals and program.has_value(name) and bool(left)
            options[name] = left.pop(0) if needs_next else value if equals else None
        elif word.startswith("-"):
            options |= _of_letters(word[1:], left, program)
    return options


def operands(arguments: Sequence[str], program: ProgramOptions) -> list[str]:
    """Return the arguments that are neither options nor values of options.

    Examples
    --------
    >>> operands(["-s", "9", "7", "--state=PD", "8"], SCANCEL)
    ['7', '8']
    """
    words: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            given, equals, _ = word[2:].partition("=")
            if not equals and program.has_value(_named(given, program)) and left:
                left.pop(0)
        elif word.startswith("-"):
            _of_letters(word[1:], left, program)
        else:
            words.append(word)
    return words


def _named(given: str, program: ProgramOptions) -> str:
    """Return the full name of a long option, which may be abbreviated."""
    names = {*program.letters.values(), *program.valued.split(), *_ALIKE, *_LONG_ONES}
    if given not in names:
        fitting = {_ALIKE.get(name, name) for name in names if given and name.startswith(given)}
        return fitting.pop() if len(fitting) == 1 else given
    return _ALIKE.get(given, given)


def _of_letters(letters: str, left: list[str], program: ProgramOptions) -> dict[str, str | None]:
    options: dict[str, str | None] = {}
    while letters:
        letter, letters = letters[0], letters[1:]
        name = program.letters.get(letter, letter)
        if program.has_value(name):
            return options | {name: letters or (left.pop(0) if left else "")}
        options[name] = None
    return options
