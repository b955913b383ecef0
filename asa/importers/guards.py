"""Finds whether a shell script ends before it submits, as far as this is known without running it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from shutil import which
from typing import Final

from asa.core.words import split

_TEST = re.compile(
    r"(?:test|\[\[?)\s+(?P<not>!\s+)?-(?P<kind>[a-zA-Z])\s+(?P<word>\S+|\"[^\"]*\"|'[^']*')(?:\s+\]\]?)?"
)
_LAST_CODE = re.compile(r"(?:test|\[\[?)\s+\"?\$\?\"?\s+(-eq|-ne|-gt|==?|!=)\s+\"?0\"?(?:\s+\]\]?)?")
_PROGRAM = re.compile(r"(?:command\s+-[vV]|which|type|hash)\s+(?P<word>\S+)(?:\s*&?\d?>\S.*)?")
_BEHIND = re.compile(r"(?P<before>.*?)(?P<sign>&&|\|\|)\s*(?P<opens>\{(?:\s|$))?\s*(?P<then>.*)", re.DOTALL)
_ASKS = re.compile(
    r"(?:!|test|\[|\(\(|[ef]?grep|diff|cmp|expr|find|read|squeue|sacct|false)(?=[\s\[(]|$)|.*\|\s*[ef]?grep\b"
)
_EXITS = re.compile(r"exit(?:\s+\S+)?\s*(?:\}.*)?")
_FUNCTION = re.compile(
    r"(?:function\s+)?([\w:-]+)\s*(?:\(\s*\))\s*\{?\s*(.*)|function\s+([\w:-]+)\s*\{?\s*(.*)", re.DOTALL
)
_BLOCK_ENDS = re.compile(r"(?:^|\s)\}(?=[\s|&>]|$)")
_OF_CASE = re.compile(r"\bin\s.*\)\s*exit\b", re.DOTALL)
_PATTERN = re.compile(r"(?:\(|(?<![^()\s]))[^()\s]++\)\s*")
_OPENS: Final = frozenset({"if", "case", "for", "while", "until", "select"})
_CLOSES: Final = frozenset({"fi", "esac", "done"})
_IN_SCRIPT: Final[dict[str, Callable[[Path], bool]]] = {
    "e": Path.exists, "f": Path.is_file, "d": Path.is_dir, "L": Path.is_symlink, "h": Path.is_symlink,
    "s": lambda path: path.is_file() and path.stat().st_size > 0,
    "r": lambda path: os.access(path, os.R_OK), "w": lambda path: os.access(path, os.W_OK),
    "x": lambda path: os.access(path, os.X_OK),
}  # fmt: skip


class Guards:
    """Whether a script ends early, judged from its conditions, statement by statement.

    Commands are assumed to succeed, also the one before `$?`. Tests of files are carried out. `text_of` gives the text
    to which a word expands; None if that is known only at run time.
    """

    def __init__(self, text_of: Callable[[str], str | None]) -> None:
        self.ended = ""  # where the script ends for certain
        self.doubtful = ""  # where it may end
        self._text_of = text_of
        # open blocks: the kind of each, and whether it is run (None if unknown)
        self._around: list[tuple[str, bool | None]] = []
        self._function = ""  # the function whose body is read now
        self._exiting: set[str] = set()  # functions that end the script

    def enter(self, statement: str, where: str, *, has_else: bool) -> None:
        """Process a statement; `has_else`: whether another branch begins in its line."""
        text = statement.strip()
        if has_else:
            self._around = [(kind, None if kind == "if" else is_run) for kind, is_run in self._around]
        if self._is_of_function(text):
            return
        if self._around and self._around[-1][0] == "case":
            text = _PATTERN.sub("", text, count=1)
        first = text.partition(" ")[0]
        if first in _OPENS:
            is_run = self._evaluated(text[2:].strip()) if first == "if" and not has_else else None
            self._around.append((first, is_run))
            if first == "case" and _OF_CASE.search(text):
                self._end(self._around, where)
        elif first in _CLOSES and self._around:
            self._around.pop()
        else:
            self._command(text, where)
            for _ in _BLOCK_ENDS.findall(text):
                if self._around and self._around[-1][0] == "{":
                    self._around.pop()

    def _is_of_function(self, text: str) -> bool:
        """Whether a statement belongs to a function; record functions that end the script."""
        if self._function:
            behind = any(re.search(rf"(?:&&|\|\|)\s*{name}\b", text) for name in ("exit", *self._exiting))
            if behind or self._exits(text):
                self._exiting.add(self._function)
            self._function = "" if text == "}" else self._function
            return True
        match = _FUNCTION.fullmatch(text)
        if match is None:
            return False
        name, rest = match[1] or match[3], match[2] or match[4] or ""
        if self._exits(rest):
            self._exiting.add(name)
        self._function = "" if rest.rstrip().endswith("}") else name
        return True

    def _command(self, text: str, where: str) -> None:
        if behind := _BEHIND.fullmatch(text):
            before, then = behind["before"].strip(), behind["then"].strip()
            result = self._evaluated(before)
            if result is None and behind["sign"] == "||" and not _ASKS.match(before):
                result = True
            is_run = None if result is None else result == (behind["sign"] == "&&")
            if behind["opens"]:
                self._around.append(("{", is_run))
                self._command(then, where)
            elif self._exits(then):
                self._end([*self._around, ("", is_run)], where)
        elif self._exits(text):
            self._end(self._around, where)

    def _exits(self, text: str) -> bool:
        return bool(_EXITS.fullmatch(text)) or text.partition(" ")[0] in self._exiting

    def _end(self, around: list[tuple[str, bool | None]], where: str) -> None:
        are_run = [is_run for _, is_run in around]
        if all(are_run):
            self.ended = self.ended or where
        elif False not in are_run:
            self.doubtful = self.doubtful or where

    def _evaluated(self, condition: str) -> bool | None:
        """Return whether a condition holds; None if this is known only at run time."""
        condition = condition.strip().removesuffix("then").strip()
        if condition.startswith("! "):
            result = self._evaluated(condition[2:])
            return None if result is None else not result
        if match := _LAST_CODE.fullmatch(condition):
            return match[1] in {"-eq", "=", "=="}
        if match := _PROGRAM.fullmatch(condition):
            return match["word"] == "sbatch" or which(match["word"]) is not None
        match = _TEST.fullmatch(condition)
        text = self._text_of(match["word"]) if match else None
        if match is None or text is None:
            return None
        if match["kind"] in "zn":
            result = bool(text) == (match["kind"] == "n")
        elif match["kind"] in _IN_SCRIPT:
            result = _IN_SCRIPT[match["kind"]](Path(text))
        else:
            return None
        return result != bool(match["not"])


def word_of(text: str) -> str | None:
    """Return the text of one shell word that needs no expansion; None for any other text.

    Examples
    --------
    >>> word_of('"a b"'), word_of("*.txt"), word_of("$x")
    ('a b', None, None)
    """
    try:
        words = split(text)
    except ValueError:
        return None
    return words[0] if len(words) == 1 and not re.search(r"[$`*?~\[]", text) else "" if not words else None
