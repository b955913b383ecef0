"""Splits a shell script into statements, and finds the variables that each may change, without running it.

In doubt, a submission counts as uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SBATCH = re.compile(r"(?:^|(?<!=)\(|[`&|!])\s*(?:(?:time|env|exec|\w{1,99}+=[^\s;&|()`]{0,999}+)\s++)*(sbatch)(?=\s)")
"""A call of sbatch in a form that is understood."""

_KEYWORDS = re.compile(r"\A\s*+(?:(?:then|else|do|\{)\s++)*(?:(?:then|else|do|\{)$)?")
_LOOP = re.compile(r"\s*(?:for|while|until|select)\b")
_DONE = re.compile(r"(?:^|;|\s)done\b")
_OPENS = re.compile(r"\s*(?:if|case)\b")
_CLOSES = re.compile(r"\s*(?:fi|esac)\b")
_FUNCTION = re.compile(r"\s*(?:function\s+[\w:-]+\s*(?:\(\s*\))?|[\w:-]+\s*\(\s*\))\s*(?:\{|$)")
_MOVES = re.compile(r"(?:^|&&|\|\||(?<!\$)\()\s*(?:cd|pushd)\b\s*(.*)")
_TO_ITSELF = re.compile(
    r"""["']?(?:\$\(\s*dirname\b.*\)|`\s*dirname\b.*`|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\})["']?\s*(?:&&.*|\|\|.*)?"""
)
_NAMED = re.compile(r"(?<![\w./-])(?:/[\w./-]*bin/)?sbatch(?![\w./-])")
_KEPT = re.compile(
    r"\b\w+\+?=[\"']?(?:\$\(|`)\s*(?:command\s+-[vV]|which|type\s+-[pP])\s+sbatch\b"
)  # a path of sbatch that is kept for a later call
_SPEAKS = re.compile(  # text that mentions sbatch and does not call it
    r"\b(?:command\s+-[vV]|which|type|hash)\s+sbatch\b|(?:^|[;&|({]\s*)\s*(?:echo|printf|:)\s[^;&|$`]*|(?:^|\s)#.*"
)
_SAYS_IT = re.compile(r"\b(?:echo|printf)\s+(?:-\w+\s+)*[\"']?\s*sbatch\s")
_TO_SHELL = re.compile(r"\|\s*(?:(?:env|\w+=\S*)\s+)*(?:\S*/)?(?:(?:ba|c|da|k|tc|z)?sh|xargs|parallel|at)\b")
_TO_FILE = re.compile(r">(?!\s*(?:&|/dev/))")
_WRITTEN = re.compile(r"(?:>>?\s*|\btee\s+(?:-a\s+)?)[\"']?([^\s\"'<>&|;]+)")
_QUOTED = re.compile(r"""\\.|"(?:\\.|[^"\\])*"|'[^']*'""", re.DOTALL)
_BLOCK = re.compile(r"(?:^|\s)\{(?=\s|$)")
_BLOCK_ENDS = re.compile(r"(?:^|\s)\}(?=[\s|&>]|$)")
_HERE = re.compile(r"(?<!<)<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_ONLY_WRITES = re.compile(r"\s*(?:(?:cat|tee)\b|<<)")
_OF_HERE = "\uf748"  # put before each `sbatch` in a here-document, since none of these is certain to be called
_QUOTES = re.compile(r"""\\.|'|"|(?:^|(?<=\s))#""")
_SETS = re.compile(r"\s*(?:read|for|select|unset|getopts|mapfile|readarray|readonly|typeset|let)\b")
_ELSEWHERE = re.compile(r"\s*(?:source|\.|eval)\s")
_ASSIGNS = re.compile(r"\b(\w+)(?:\+?=|:=|:\?)")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, without comments; continued lines and quoted line ends are joined.

    A here-document is kept in its line if a program other than `cat` and `tee` reads it. If `cat` or `tee` reads it, it
    is kept only if it names sbatch and is passed to a shell, or to a file that is named again. Else it is left out.
    """
    every = text.split("\n")
    ends = {line.strip(): number for number, line in enumerate(every)}  # the last line with each text
    begun: list[str] = []
    first, at, quote = 0, 0, ""
    while at < len(every):
        line, at = every[at], at + 1
        first = first if begun else at
        if not begun and line.lstrip().startswith("#"):
            continue
        if line.endswith("\\") and quote != "'":
            quote = _left_open(line[:-1], quote)
            begun += [line[:-1], " "]
            continue
        quote = _left_open(line, quote)
        begun.append(line)
        if quote:
            begun.append("\n")
            continue
        whole, begun = "".join(begun), []
        for here in _HERE.finditer(whole):
            if ends.get(here[2], -1) < at:
                continue  # without an end, it is no here-document
            body = at
            while every[at].strip() != here[2]:
                at += 1
            at += 1
            read = "\n".join(every[body:at]).replace(";", "\n")
            is_handed_on = _NAMED.search(read) and (_TO_SHELL.search(whole) or _is_used(whole, every[at:]))
            if is_handed_on or not _ONLY_WRITES.match(whole):
                whole += "\n" + _NAMED.sub(_OF_HERE + r"\g<0>", read)
        yield first, whole
    if begun:
        yield first, "".join(begun)


def _is_used(writer: str, later: list[str]) -> bool:
    """Whether a file that a command writes is named again."""
    names = [match[1].rpartition("/")[2] for match in _WRITTEN.finditer(writer)]
    return any(name in line for name in names for line in later)


def _left_open(line: str, quote: str) -> str:
    """Return the quote that is open at the end of a line, given the one at its beginning; empty for none."""
    for match in _QUOTES.finditer(line):
        opening = match[0]
        if quote:
            quote = "" if opening == quote else quote
            if quote == "'" and opening[0] == "\\" and opening[1:] == "'":  # single quotes know no escapes
                quote = ""
        elif opening == "#":
            return ""
        elif opening in "'\"":
            quote = opening
    return quote


def statements(line: str) -> Iterator[str]:
    """Split a line into commands at semicolons, and drop keywords before them."""
    begin = 0
    while begin <= len(line):
        end = _end_of_command(line, begin, ";")
        yield _KEYWORDS.sub("", line[begin:end])
        begin = end + 1


def command_at(line: str, start: int) -> str:
    """Return the command that begins at an index; within backquotes it ends at the closing one."""
    if line[:start].count("`") % 2:
        return line[start : _end_of_command(line, start, ")`|;&")]
    return line[start : _end_of_command(line, start, ")|;&")]


def _end_of_command(line: str, start: int, ends: str) -> int:
    """Return the end of a command: the first of some characters outside quotes and brackets."""
    depth, braces, quote, i = 0, 0, "", start
    while i < len(line):
        char = line[i]
        if char == "\\" and quote != "'":
            i += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in ends and not depth and not braces and not (char in "&|" and ">" in line[max(0, i - 1) : i + 2]):
            break
        elif line.startswith("${", i):
            braces += 1
        elif char == "}" and braces:
            braces -= 1
        else:
            depth += (char == "(") - (char == ")" and depth > 0)
        i += 1
    return min(i, len(line))


_LITERAL = {"$": "\uf724", "`": "\uf760", "#": "\uf723", " ": "\uf720", "<": "\uf73c", ">": "\uf73e"}
_PLAIN = str.maketrans({mark: char for char, mark in _LITERAL.items()})
_MEANT = re.compile(
    r"""(?P<escaped>\\[$`<>]) | \\. | (?P<single>'[^']*') | "(?P<double>(?:\\.|[^"\\])*)" | (?<=\S)(?P<hash>\#)
    | (?P<braced>\$\{\w+[^{}"'`]*\})""",
    re.VERBOSE | re.DOTALL,
)


def literal(command: str) -> str:
    r"""Mark dollars, backquotes and other characters that a shell takes literally. `plain` removes the marks.

    Examples
    --------
    >>> plain(literal("awk '{print $1}' a#b")), "$" in literal(r"echo '$1' \$x"), "$" in literal('"$x"')
    ("awk '{print $1}' a#b", False, True)
    """

    def marked(match: re.Match[str]) -> str:
        if match["escaped"]:
            return _LITERAL[match["escaped"][1]]
        if match["double"] is not None:
            return re.sub(r"\\([$`])|[<>]", lambda within: _LITERAL[within[1] or within[0]], match[0])
        if match["braced"]:
            return re.sub("[# ]", lambda within: _LITERAL[within[0]], match[0])
        if match["single"] or match["hash"]:
            return re.sub("[$`#<>]", lambda within: _LITERAL[within[0]], match[0])
        return match[0]

    return _MEANT.sub(marked, command)


def plain(text: str) -> str:
    """Remove the marks of `literal`."""
    return text.translate(_PLAIN)


def writes(statement: str) -> bool:
    """Whether a statement writes its output to a file."""
    return bool(_TO_FILE.search(_QUOTED.sub("", statement)))


def count_calls(statement: str) -> int:
    """Count calls of sbatch in any form. Mere text counts only if it is passed to a shell or written to a file."""
    if _SAYS_IT.search(statement) and (writes(statement) or _TO_SHELL.search(_QUOTED.sub("", statement))):
        return len(_NAMED.findall(statement))
    return len(_KEPT.findall(statement)) + len(_NAMED.findall(_SPEAKS.sub("", statement)))


@dataclass(slots=True)
class ScriptContext:
    """The blocks around the statements of a script: loops, choices, functions; and changes of the folder."""

    loops: int = 0
    choices: int = 0  # open `if` and `case`
    is_function: bool = False
    blocks: int = 0  # open braces after another command
    moved: str = ""  # the statement that changed the folder; empty if none did

    @property
    def is_certain(self) -> bool:
        """Whether a statement here is certain to run exactly once."""
        return not (self.loops or self.choices or self.is_function or self.blocks)

    def enter(self, statement: str, where: str) -> None:
        """Record blocks that begin with a statement."""
        if _LOOP.match(statement):
            self.loops += 1
        if _OPENS.match(statement):
            self.choices += 1
        elif _FUNCTION.match(statement):
            self.is_function = not statement.rstrip().endswith("}")
            return
        self.blocks += _begun(statement)
        for moves in _MOVES.finditer(statement):
            if not _TO_ITSELF.fullmatch(moves[1].strip()):
                self.moved = where

    def leave(self, statement: str) -> None:
        """Record blocks that end with a statement."""
        if self.loops and _DONE.search(statement):
            self.loops -= 1
        if self.choices and _CLOSES.match(statement):
            self.choices -= 1
        if self.is_function and statement.strip() == "}":
            self.is_function = False
        self.blocks = max(0, self.blocks - len(_BLOCK_ENDS.findall(_QUOTED.sub("", statement))))

    def doubt(self, statement: str, start: int) -> str:
        """Return why a call of sbatch may not run exactly once in the script's folder; empty if it does."""
        if self.loops:
            return "stands in a loop"
        if self.is_function:
            return "stands in a function"
        if self.choices > bool(_OPENS.match(statement)):  # the condition of an `if` is run
            return "stands in an if or a case"
        if self.blocks > _begun(statement):
            return "stands in braces behind another command"
        if re.search(r"&&|\|\|", statement[:start]) and not _MOVES.search(statement):
            return "stands behind && or ||"
        return f"is called in another folder: see {self.moved}" if self.moved else ""


def _begun(statement: str) -> int:
    return len(_BLOCK.findall(_QUOTED.sub("", statement)))


def changed(statement: str) -> frozenset[str] | None:
    """Return the variables that a statement other than a plain assignment may change; None for any.

    Examples
    --------
    >>> sorted(changed('test -n "$Q" || Q=fast')), sorted(changed("read -r A B <list")), changed("source env.sh")
    (['Q'], ['A', 'B', 'list', 'r', 'read'], None)
    """
    if _ELSEWHERE.match(statement):
        return None
    names = set(_ASSIGNS.findall(statement))
    return frozenset(names | set(_WORD.findall(statement)) if _SETS.match(statement) else names)
