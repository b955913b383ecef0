"""Finds which programs a shell's text runs, by parsing it; nothing is run.

Words that a shell expands only at run time, such as ``$TOOL``, are skipped: no answer is better than a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from itertools import islice, pairwise, takewhile
from pathlib import Path

from asa.core.late import dataclass

SHELLS = frozenset({"sh", "bash", "dash", "ksh"})
"""Shells whose text is read."""

BUILTINS = frozenset((
    ".", ":", "[", "[[", "alias", "bg", "break", "builtin", "caller", "cd", "command", "compgen", "complete",
    "continue", "declare", "dirs", "disown", "echo", "enable", "eval", "exec", "exit", "export", "false",
    "fc", "fg", "getopts", "hash", "help", "history", "jobs", "kill", "let", "local", "logout", "mapfile",
    "popd", "printf", "pushd", "pwd", "read", "readarray", "readonly", "return", "set", "shift", "shopt",
    "source", "suspend", "test", "times", "trap", "true", "type", "typeset", "ulimit", "umask", "unalias",
    "unset", "wait",
))  # fmt: skip
"""Built-in commands of shells."""

LAUNCHERS = frozenset({"srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "aprun", "ibrun", "prterun"})
"""Programs that start the processes of MPI."""

_EXPANSIONS = {
    "!": "${!x}", "/": "${x/a/b}", ":": "${x:0:1}", "^": "${x^}", ",": "${x,}", "[": "${x[0]}",
}  # fmt: skip
FORMS = {
    **{word: f"command -v {word}" for word in ("[[", "coproc", "function", "select", "time")},
    "((": "((1))",
    "&>": '[ -z "$(echo a &>/dev/null)" ]',
    "==": "[ a == a ]",
    "pipefail": "set -o pipefail",
    **{form: f"x=a; : {form}" for form in _EXPANSIONS.values()},
}
"""Syntax that some shells do not know or read differently; for each, a command that fails in such a shell."""

_HIDE = frozenset({".", "source", "module", "ml", "conda", "mamba", "micromamba", "spack", "eval", "alias"})
_THEN_A_COMMAND = frozenset({"if", "then", "elif", "else", "do", "while", "until", "!", "{", "time", "coproc"})
_ENDS = frozenset({"fi", "done", "esac", "}"})
_MAX_DEPTH = 10  # levels of nested commands that are read; deeper ones do not occur in practice
_OPERATORS = ("&&", "||", ";;&", ";;", ";&", "|&", "&>>", "&>", "<<<", "<<-", "<<", "<>", ">>", ">|", "<&", ">&")
_SINGLE = ";&|()<>\n"
_SEPARATORS = frozenset({"&&", "||", ";", "&", "|", "|&", "\n", "(", ")", ";;", ";&", ";;&"})
_WRITES = frozenset({">", ">>", ">|", "&>", "&>>"})
_FORM_IN = {"[": "==", "test": "==", "set": "pipefail"}
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_DYNAMIC = re.compile(r"[$`*?\[\]{}~]")
_DURATION = re.compile(r"[0-9.]+[smhd]?")
_EXPANSION = re.compile(r"\$\{(?:(?P<first>!)[A-Za-z_]|[A-Za-z_]\w*(?:(?P<then>[/^,[])|(?P<part>:)[ 0-9$]))")
_DESCRIPTOR = re.compile(r"(?:\d+|\{[A-Za-z_]\w*\})(?=[<>])")
_LETTERS = re.compile(r"[-+][A-Za-z]+")

# Options of programs that run another program, with the number of words after each. The search ends at an option that
# is not listed, because that number is unknown.
_WRAPPERS: dict[str, dict[str, int]] = {
    "srun": {
        **dict.fromkeys(
            ("-n", "-N", "-c", "-t", "-p", "-A", "-J", "-w", "-x", "-o", "-e", "-i", "-G", "-D", "-C", "-m"), 1
        ),
        **dict.fromkeys(("--ntasks", "--nodes", "--cpus-per-task", "--time", "--mem", "--mpi", "--cpu-bind"), 1),
        **dict.fromkeys(
            ("-l", "-u", "-O", "-k", "-K", "-Q", "-v", "--exclusive", "--exact", "--label", "--overlap"), 0
        ),
        **dict.fromkeys(("--unbuffered", "--quiet", "--kill-on-bad-exit", "--overcommit", "--propagate"), 0),
    },
    "mpirun": {
        **dict.fromkeys(("-n", "-np", "-c", "-N", "-H", "-x", "-ppn", "-f", "-hosts", "-wdir"), 1),
        **dict.fromkeys(("--np", "--host", "--hostfile", "-hostfile", "-machinefile", "--map-by", "--bind-to"), 1),
        **dict.fromkeys(("--rank-by", "--npernode", "-npernode", "-map-by", "-bind-to"), 1),
        **dict.fromkeys(("--mca", "-mca", "-genv", "-env"), 2),
        **dict.fromkeys(("--oversubscribe", "--report-bindings", "--allow-run-as-root", "-q", "-v"), 0),
    },
    "time": dict.fromkeys(("-p", "-v"), 0) | dict.fromkeys(("-f", "-o"), 1),
    "nice": {"-n": 1},
    "nohup": {},
    "setsid": dict.fromkeys(("-w", "-f"), 0),
    "env": {"-i": 0, "-u": 1},
    "exec": {"-a": 1},
    "command": {"-p": 0},
    "xargs": dict.fromkeys(("-n", "-P", "-d", "-I", "-L", "-s", "-a"), 1) | dict.fromkeys(("-0", "-r", "-t", "-x"), 0),
    "stdbuf": dict.fromkeys(("-i", "-o", "-e"), 1),
    "timeout": dict.fromkeys(("-k", "-s"), 1) | {"--foreground": 0},
    "numactl": dict.fromkeys(("-N", "-m", "-C", "-i"), 1) | {"-l": 0},
    "taskset": {"-c": 0},
    "ionice": dict.fromkeys(("-c", "-n"), 1),
}
_WRAPPERS |= dict.fromkeys(LAUNCHERS - {"srun", "mpirun"}, _WRAPPERS["mpirun"])
_RANKS = re.compile(r"(?:-n|-np|--np|--ntasks)(?:=?(\d+))?")
_INTERPRETERS: dict[str, dict[str, int]] = {
    **dict.fromkeys(SHELLS, dict.fromkeys(("--login", "--norc", "--noprofile", "--posix"), 0)),
    "python": dict.fromkeys(("-u", "-B", "-E", "-I", "-O", "-OO", "-s", "-S", "-v"), 0) | {"-W": 1, "-X": 1},
    "perl": dict.fromkeys(("-w", "-T"), 0) | {"-I": 1},
    "Rscript": dict.fromkeys(("--vanilla", "--no-save", "--no-restore", "--no-init-file", "--verbose"), 0),
    "julia": {"--project": 0, "-t": 1, "-p": 1, "-O": 0},
    "sbatch": {
        **dict.fromkeys(("--parsable", "--wait", "-W", "-Q", "-H"), 0),
        **dict.fromkeys(("-d", "--dependency", "-t", "-n", "-N", "-c", "-p", "-A", "-J", "-a", "-o", "-e"), 1),
    },
}
_TAKES_ONE_WORD = {"timeout": _DURATION, "taskset": re.compile(r"[0-9a-fx,-]+")}  # before the program


@dataclass(frozen=True, slots=True)
class Program:
    """A program that a shell's text runs."""

    name: str
    line: int  # in the text, from 0
    file: str = ""  # the file that an interpreter is given; empty for none
    # how many processes a launcher of MPI starts, if that is a number; "all" without such an option
    ranks: str = ""


@dataclass(slots=True)
class ShellText:
    """The programs, files and variables that a shell text contains."""

    # the programs that it runs, as far as the text shows; commands run for their output come first
    programs: list[Program] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)  # names of functions and aliases that it defines
    hides: str = ""  # the first command that may change the search path, such as `module`; empty if there is none
    moves: bool = False  # whether the text changes the folder
    writes: set[str] = field(default_factory=set)  # files into which it writes what a program prints
    forms: dict[str, int] = field(default_factory=dict)  # the `FORMS` that the text has, each with its first line


def interpreter_of(script: str) -> str:
    """Name the program that runs a script, as its first line says.

    Examples
    --------
    >>> [interpreter_of(text) for text in ("#!/usr/bin/env -S python3 -u", "#!/bin/bash -l", "true")]
    ['python3', 'bash', 'sh']
    """
    first = script.partition("\n")[0]
    if not first.startswith("#!"):
        return "sh"
    words = [word for word in first[2:].split() if not word.startswith("-") and "=" not in word]
    names = [Path(word).name for word in words]
    return next((name for name in names if name != "env"), "")


def read_shell(text: str) -> ShellText:
    """Find what a shell's text runs.

    `text`: for sh or bash. Invalid text is read as far as possible.

    Examples
    --------
    >>> [program.name for program in read_shell("A=1 srun -n 4 ./a <in | sort && if b; then echo; fi").programs]
    ['srun', './a', 'sort', 'b', 'echo']
    """
    shell = ShellText()
    _Reader(text, shell).read()
    return shell


@dataclass(frozen=True, slots=True)
class _Token:
    """A word or an operator; `is_plain` if the word is literal, without expansions."""

    text: str
    line: int
    is_word: bool
    is_plain: bool = True
    is_quoted: bool = False


class _Reader:
    """Walks through the commands of a text."""

    def __init__(self, text: str, shell: ShellText, line: int = 0, depth: int = 0) -> None:
        self._tokens = list(_Lexer(text, shell, line, depth))
        self._found = shell
        self._at = 0
        for token, after in pairwise(self._tokens):
            if not token.is_word and token.text in _WRITES and after.is_word:
                shell.writes.add(after.text)
            if not token.is_word and token.text.startswith("&>"):
                shell.forms.setdefault("&>", token.line)

    def read(self) -> None:
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.is_word:
                self._command(token)
            else:  # the word of a redirection is a file
                self._at += 1 if token.text in _SEPARATORS else 2

    def _next(self, count: int = 1) -> _Token | None:
        return self._tokens[self._at + count] if self._at + count < len(self._tokens) else None

    def _command(self, token: _Token) -> None:
        word, after = token.text, self._next()
        if word in FORMS and not token.is_quoted:
            self._found.forms.setdefault(word, token.line)
        if token.is_quoted:
            self._simple()
        elif word in _THEN_A_COMMAND:
            self._at += 1
            if word == "time" and after is not None and after.text == "-p":
                self._at += 1
        elif word in _ENDS or word in {"for", "select"}:
            self._rest()
        elif word == "case":
            self._case()
        elif word == "function" and after is not None:
            self._found.functions.add(after.text)
            self._at += 2
        elif after is not None and after.text == "(" and not after.is_word and _NAME.fullmatch(word):
            self._found.functions.add(word)
            self._at += 3
        elif word == "[[":
            self._until("]]")
        else:
            self._simple()

    def _simple(self) -> None:
        """Read assignments, a program, and the programs that it runs in turn; skip the rest of the command."""
        while (token := self._word()) is not None and token.is_word and _ASSIGNMENT.match(token.text):
            if token.text.startswith("PATH="):
                self._hide("PATH=")
            self._at += 1
            if (after := self._next(0)) is not None and after.text == "(" and token.text.endswith("="):
                self._until(")")
        while token is not None and token.is_word:
            if not token.is_plain:
                break
            self._tell(token)
            if token.text not in _WRAPPERS or not self._inner(token.text):
                break
            token = self._next(0)
        self._rest()

    def _tell(self, token: _Token) -> None:
        name = token.text
        if name in _HIDE:
            self._hide(name)
        if name in {"cd", "pushd"}:
            self._found.moves = True
        if name == "export" and any(t.text.startswith("PATH=") for t in self._tokens[self._at + 1 : self._at + 9]):
            self._hide("export PATH=")
        if name in _FORM_IN:
            words = takewhile(lambda t: t.is_word or t.text not in _SEPARATORS, islice(self._tokens, self._at, None))
            if any(word.text == _FORM_IN[name] and not word.is_quoted for word in words):
                self._found.forms.setdefault(_FORM_IN[name], token.line)
        self._found.programs.append(Program(name, token.line, self._file_for(name), self._ranks_for(name)))

    def _file_for(self, name: str) -> str:
        """Return the file that an interpreter is given; empty if that is not known."""
        program = Path(name).name.rstrip("0123456789.")
        options = _INTERPRETERS.get(program)
        at = 1
        while options is not None and (token := self._next(at)) is not None and token.is_word and token.is_plain:
            text = token.text
            if text[:1] not in {"-", "+"}:
                return text
            if program in SHELLS and _LETTERS.fullmatch(text):
                step = None if {"c", "s"} & set(text) else 1 + text.count("o")
            else:
                step = _words_of_option(text, options)
            if step is None:
                break
            at += step
        return ""

    def _ranks_for(self, name: str) -> str:
        """Return how many processes a launcher starts by its options; empty if that is computed or not known."""
        at, first = 1, self._next(1)
        if name in LAUNCHERS and first is not None and first.is_word and not first.text.startswith("-"):
            return "all"
        while name in LAUNCHERS and (token := self._next(at)) is not None and token.text.startswith("-"):
            after = self._next(at + 1)
            if match := _RANKS.fullmatch(token.text):
                value = match[1] or (after.text if after is not None and after.is_plain else "")
                return value if value.isdigit() and token.is_plain else ""
            at += _words_of_option(token.text, _WRAPPERS[name]) or 1
        return ""

    def _hide(self, name: str) -> None:
        self._found.hides = self._found.hides or name

    def _inner(self, wrapper: str) -> bool:
        """Go to the program that another program runs; return whether one was found."""
        options = _WRAPPERS[wrapper]
        self._at += 1
        while (token := self._next(0)) is not None and token.is_word:
            text = token.text
            if text == "--":
                self._at += 1
                return self._word() is not None
            if wrapper == "command" and text in {"-v", "-V"}:
                return False
            if text.startswith("-") and len(text) > 1:
                step = _words_of_option(text, options)
                if step is None:
                    return False
                self._at += step
            elif wrapper == "env" and _ASSIGNMENT.match(text):
                self._at += 1
            elif (pattern := _TAKES_ONE_WORD.get(wrapper)) is not None:
                self._at += 1
                after = self._next(0)
                return bool(pattern.fullmatch(text)) and after is not None and after.is_word
            else:
                return True
        return False

    def _word(self) -> _Token | None:
        """Skip redirections before a program."""
        while (token := self._next(0)) is not None and not token.is_word and token.text not in _SEPARATORS:
            self._at += 2
        return token

    def _rest(self) -> None:
        while (token := self._next(0)) is not None and (token.is_word or token.text not in _SEPARATORS):
            self._at += 1

    def _until(self, end: str) -> None:
        while (token := self._next(0)) is not None and token.text != end:
            self._at += 1
        self._at += 1

    def _case(self) -> None:
        """Read the commands after each pattern."""
        self._until("in")
        is_pattern = True
        while (token := self._next(0)) is not None:
            if is_pattern and token.is_word and token.text == "esac":
                self._at += 1
                self._rest()
                return
            if is_pattern:
                if token.text == "\n":
                    self._at += 1
                    continue
                if token.text == "(":
                    self._at += 1
                self._until(")")
                is_pattern = False
            elif token.text in {";;", ";&", ";;&"}:
                is_pattern = True
                self._at += 1
            elif token.is_word and token.text == "esac":
                is_pattern = True
            elif token.is_word:
                self._command(token)
            else:
                self._at += 1


def _words_of_option(text: str, options: dict[str, int]) -> int | None:
    """Return how many words an option takes, including itself; None if not known."""
    if text in options:
        return 1 + options[text]
    if text.startswith("--") and "=" in text:
        return 1
    if text[:2] in options and not text.startswith("--") and len(text) > 2:
        return 1
    return 1 if text[1:].isdigit() else None


class _Lexer:
    """Splits a shell's text into words and operators, and reads the commands in substitutions."""

    def __init__(self, text: str, shell: ShellText, line: int, depth: int) -> None:
        self._text = text
        self._found = shell
        self._line = line
        self._depth = depth
        self._at = 0
        self._documents: list[tuple[str, bool]] = []

    def __iter__(self) -> Iterator[_Token]:
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter == "#":
                self._at = self._find("\n")
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
                self._line += 1
            elif letter in " \t\r":
                self._at += 1
            elif self._text.startswith("((", self._at):
                self._found.forms.setdefault("((", self._line)
                self._at = self._find("))") + 2
            elif descriptor := _DESCRIPTOR.match(self._text, self._at):  # descriptor of the redirection that follows
                self._at = descriptor.end()
            elif operator := self._operator():
                yield from self._apply(operator)
            else:
                yield self._word()

    def _operator(self) -> str:
        for operator in _OPERATORS:
            if self._text.startswith(operator, self._at):
                return operator
        letter = self._text[self._at]
        return letter if letter in _SINGLE else ""

    def _apply(self, operator: str) -> Iterator[_Token]:
        line = self._line
        self._at += len(operator)
        if operator == "\n":
            self._line += 1
            self._skip_documents()
        elif operator in {"<<", "<<-"}:
            while self._text[self._at : self._at + 1] in {" ", "\t"}:
                self._at += 1
            self._documents.append((self._word().text, operator == "<<-"))
            return
        elif operator in {"<", ">"} and self._text.startswith("(", self._at):  # process substitution
            self._substituted()
            return
        yield _Token(operator, line, is_word=False)

    def _skip_documents(self) -> None:
        for end, is_indented in self._documents:
            while self._at < len(self._text):
                stop = self._find("\n")
                row = self._text[self._at : stop]
                self._at, self._line = min(stop + 1, len(self._text)), self._line + 1
                if (row.lstrip("\t") if is_indented else row) == end:
                    break
        self._documents.clear()

    def _word(self) -> _Token:
        letters: list[str] = []
        line, is_plain, is_quoted = self._line, True, False
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter in " \t\r" or letter in _SINGLE:
                break
            if letter == "'":
                end = self._find("'", self._at + 1)
                letters.append(self._text[self._at + 1 : end])
                self._go(end + 1)
                is_quoted = True
            elif letter == '"':
                is_plain &= self._double_quoted(letters)
                is_quoted = True
            elif letter == "\\":
                letters.append(self._text[self._at + 1 : self._at + 2].replace("\n", ""))
                self._go(self._at + 2)
                is_quoted = True
            elif letter == "`" or self._text.startswith("$(", self._at):
                self._substituted()
                is_plain = False
            elif self._text.startswith("${", self._at):
                self._expansion()
                self._go(self._find("}") + 1)
                is_plain = False
            else:
                is_plain &= not _DYNAMIC.match(letter) or letter in "[]{}"
                letters.append(letter)
                self._at += 1
        text = "".join(letters)
        if not is_quoted and _DYNAMIC.search(text) and text not in {"[", "[[", "]]", "{", "}"}:
            is_plain = False
        return _Token(text, line, is_word=True, is_plain=is_plain, is_quoted=is_quoted)

    def _double_quoted(self, letters: list[str]) -> bool:
        """Read to the closing quotes; return whether nothing in them needs expansion."""
        is_plain = True
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] != '"':
            if self._text[self._at] == "\\":
                letters.append(self._text[self._at + 1 : self._at + 2])
                self._go(self._at + 2)
            elif self._text[self._at] == "`" or self._text.startswith("$(", self._at):
                self._substituted()
                is_plain = False
            else:
                self._expansion()
                is_plain &= self._text[self._at] != "$"
                letters.append(self._text[self._at])
                self._go(self._at + 1)
        self._at += 1
        return is_plain

    def _expansion(self) -> None:
        """Record features of an expansion that not every shell knows."""
        if match := _EXPANSION.match(self._text, self._at):
            mark = match["first"] or match["then"] or match["part"]
            self._found.forms.setdefault(_EXPANSIONS[mark], self._line)

    def _substituted(self) -> None:
        """Read the commands within ``$( )``, ``<( )`` or backquotes; pass over arithmetic."""
        if self._text[self._at] == "`":
            end = self._find("`", self._at + 1)
            self._inside(self._text[self._at + 1 : end])
            self._go(end + 1)
            return
        if self._text.startswith("$((", self._at):
            self._go(self._find("))") + 2)
            return
        begin = self._text.index("(", self._at) + 1
        end = self._closing(begin)
        self._inside(self._text[begin:end])
        self._go(end + 1)

    def _inside(self, text: str) -> None:
        if self._depth < _MAX_DEPTH:
            _Reader(text, self._found, self._line, self._depth + 1).read()

    def _closing(self, at: int) -> int:
        """Find the closing bracket, ignoring those in quotes."""
        depth, quote = 1, ""
        while at < len(self._text):
            letter = self._text[at]
            if letter == "\\" and quote != "'":
                at += 1
            elif quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"":
                quote = letter
            else:
                depth += {"(": 1, ")": -1}.get(letter, 0)
                if depth == 0:
                    return at
            at += 1
        return len(self._text)

    def _find(self, what: str, begin: int | None = None) -> int:
        end = self._text.find(what, self._at if begin is None else begin)
        return len(self._text) if end < 0 else end

    def _go(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = min(to, len(self._text))
