"""Options of sbatch in a script's first lines, or on a command line.

They are read as sbatch 22.05 does, by experiment: lines that begin with ``#SBATCH``, before the first command; its
rules for quotes and backslashes; an unquoted ``#`` ends the line, even inside a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final, NoReturn

from asa.core.late import dataclass
from asa.core.patterns import pattern
from asa.errors import InputError

from .forms import hint_of, takes
from .options import ALIASES, KNOWN, OPTIONS, marked

_OF_LETTERS: Final = {option.letter: option.name for option in OPTIONS.values() if option.letter}


@dataclass(frozen=True, slots=True)
class Directive:
    """An option of sbatch, as given in a script or on a command line."""

    name: str
    value: str | None  # None for an option without a value
    where: str

    def __str__(self) -> str:
        if self.value is None:
            return f"--{self.name}"
        return f"--{self.name}={self.value}"


def read_directives(text: str, file: str) -> list[Directive]:
    r"""Read the ``#SBATCH`` lines of a script.

    Raises `InputError` where sbatch refuses: an unreadable option, unmatched quotes, text that is no option.

    Examples
    --------
    >>> read_directives("#!/bin/sh\n#SBATCH -n4 --time 30 # short\n", "a.sh")
    [Directive(name='ntasks', value='4', where='a.sh:2'), Directive(name='time', value='30', where='a.sh:2')]
    """
    directives: list[Directive] = []
    for number, line in head(text):
        if line.startswith("#SBATCH"):
            where = f"{file}:{number}"
            options, rest = take_options(_words(line.removeprefix("#SBATCH"), where), where)
            if rest and rest[0] in {"hetjob", "packjob"}:
                refuse_components(where)
            if rest:
                raise InputError(f"{rest[0]!r} is no option", where=where, hint="sbatch would refuse this line, too.")
            for option in options:
                refuse_value(option)
            directives += options
    return directives


def refuse_value(option: Directive) -> None:
    """Refuse an option whose value makes sbatch stop.

    Raises `InputError`, with its place.
    """
    if not takes(option.name, option.value):
        message = f"{option} has no value that sbatch takes"
        raise InputError(message, where=option.where, hint=hint_of(option.name))


_ADDED: Final = marked("added")


def by_name(options: Iterable[Directive]) -> dict[str, Directive]:
    """Return the options that take effect, by name: the last of several, but kinds of mail are added up.

    That is what sbatch does up to 24.11; in 26.05 only the last kind of mail counts, too.
    They are in the order in which each was given last: of ``--exclusive`` and ``--oversubscribe`` the later wins.

    Examples
    --------
    >>> given = [Directive("mail-type", kind, "a.sh:2") for kind in ("begin", "END,FAIL", "none")]
    >>> [str(option) for option in by_name([Directive("time", "5", "a.sh:1"), *given]).values()]
    ['--time=5', '--mail-type=begin,END,FAIL']
    """
    latest: dict[str, Directive] = {}
    for option in options:
        before = latest.pop(option.name, None)
        latest[option.name] = _added(before, option) if before and option.name in _ADDED else option
    return latest


def _added(directive: Directive, other: Directive) -> Directive:
    """Add up kinds of mail; an option with ``NONE`` among its kinds adds nothing."""
    values = [value for value in (directive.value or "", other.value or "") if "none" not in value.lower().split(",")]
    return replace(other, value=",".join(values) or other.value)


COMPONENTS: Final = "is a heterogeneous job, of whose components Slurm makes a job each, and a stage is one job"
"""Why a heterogeneous job is refused, although sbatch accepts it."""


def refuse_components(where: str) -> NoReturn:
    """Refuse a heterogeneous job.

    Slurm gives each component its own number, record and limits, but begins all at once and cancels none alone.
    """
    hint = "Ask for one size that all of it fits into, or run it outside the workflow."
    raise InputError(COMPONENTS, where=where, hint=hint)


def head(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines before the first command."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            return
        yield number, line


_HERE_DOCUMENT = pattern(r"(?<!<)<<-?\s*[\"'\\\\]?([A-Za-z_]\w*)")
_MEANT = re.compile(r"\s*#sbatch\s+-", re.IGNORECASE)


def unseen(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines of a shell script that look like options but are not options to sbatch, each with the reason.

    Lines of here-documents are left out, because they are meant for another script.
    """
    lines = text.split("\n")
    read = sum(1 for _ in head(text))
    last = {line.lstrip("\t"): number for number, line in enumerate(lines)}
    end = ""
    for number, line in enumerate(lines, start=1):
        if end:
            end = "" if line.lstrip("\t") == end else end
        elif _MEANT.match(line) and number > read:
            yield number, "comes after the first command, where sbatch reads no options: it has no effect"
        elif _MEANT.match(line) and not line.startswith("#SBATCH"):
            yield number, "is no option to sbatch, which reads lines that begin with #SBATCH: it has no effect"
        elif opened := _HERE_DOCUMENT.search(line):
            end = opened[1] if last.get(opened[1], 0) >= number else ""


_PIECE = pattern(
    r"""(?P<gap>\s+) | (?P<comment>\#.*) | (?P<open>["']) (?P<quoted>(?:\\.|(?!(?P=open)).)*?) (?P<close>(?P=open)|$)
    | (?P<plain>(?:[^\s"'\\\#]++|\\\S)++) | \\""",
    re.VERBOSE,
)


def _words(line: str, where: str) -> list[str]:
    """Split a directive's line as sbatch does: it ends at an empty word, such as ``""``."""
    if line.lstrip().startswith(":"):
        raise InputError("':' is no option", where=where, hint="sbatch would refuse this line, too.")
    words: list[list[str]] = []
    begun = False
    for piece in _PIECE.finditer(line):
        if piece["comment"]:
            break
        if piece["open"] and not piece["close"]:
            raise InputError(f"{piece['open']} is not closed", where=where, hint="sbatch would refuse this line, too.")
        if piece["gap"]:
            begun = False
            continue
        if not begun:
            words.append([])
        begun = True
        words[-1].append(re.sub(r"\\(.)", r"\1", piece["quoted"] or piece["plain"] or ""))
    return list(takewhile(bool, map("".join, words)))


def take_options(words: Sequence[str], where: str) -> tuple[list[Directive], list[str]]:
    """Take the options from the front of a command line; return them and the rest."""
    taken: list[Directive] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            taken.append(_long(word, rest, where))
        else:
            taken += _short(word, rest, where)
    return taken, rest


def _long(word: str, rest: list[str], where: str) -> Directive:
    given, equals, value = word[2:].partition("=")
    name = _whole(given, where)
    way = OPTIONS[name].takes if name in OPTIONS else ""  # empty for an option of a site's plugin
    if equals:
        if way == "-":
            hint = "sbatch would refuse this line, too."
            raise InputError(f"--{name} takes no value", where=where, hint=hint)
        return Directive(name, value, where)
    if way == "=":
        return Directive(name, _next(rest, f"--{name}", where), where)
    return Directive(name, None if way or not rest or rest[0].startswith("-") else rest.pop(0), where)


def _whole(given: str, where: str) -> str:
    """Complete an abbreviated name, as sbatch does."""
    matches = [given] if given in KNOWN else sorted(name for name in KNOWN if name.startswith(given))
    if len(matches) > 1:
        hint = f"It may be {' or '.join(f'--{name}' for name in matches[:6])}: write it whole."
        raise InputError(f"--{given} is ambiguous", where=where, hint=hint)
    name = matches[0] if matches else given
    return ALIASES.get(name, name)


def _short(word: str, rest: list[str], where: str) -> Iterator[Directive]:
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        name = _OF_LETTERS.get(letter)
        if name is None:
            raise InputError(
                f"-{letter} is not an option of sbatch", where=where, hint="Use the long name of the option."
            )
        way = OPTIONS[name].takes
        if way == "-":
            yield Directive(name, None, where)
        elif way == "[=]":
            yield Directive(name, letters or None, where)
            return
        else:
            yield Directive(name, letters or _next(rest, f"-{letter}", where), where)
            return


def _next(rest: list[str], option: str, where: str) -> str:
    if not rest:
        raise InputError(f"{option} has no value", where=where, hint="sbatch would refuse this line, too.")
    return rest.pop(0)
