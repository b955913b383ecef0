"""Finds stages that use a variable without getting it: it holds a secret, and the stage does not ask for it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from asa.core.documents import read_text
from asa.core.late import dataclass
from asa.core.python import CALL
from asa.core.variables import is_secret, secrets_of
from asa.errors import AsaError
from asa.spec.shell import read_shell
from asa.workflow import Stage

_USED = re.compile(
    r"\$(?:ENV\{[\"']?(?P<perl>[A-Za-z_]\w*)|(?P<plain>[A-Za-z_]\w*)|\{[#!]?(?P<braced>[A-Za-z_]\w*))"
    r"|(?:\benviron(?:\.get)?|getenv|\bENV)[\[({][\"']?(?P<called>[A-Za-z_]\w*)"  # of Python, R, Julia, Perl
    r"|\bprintenv (?P<printed>[A-Za-z_]\w*)"
)
_EXPORTED = re.compile(r"--export[= ](?P<names>[\w,=./:+-]+)")
_SET = re.compile(r"(?<![\w$.-])(?P<name>[A-Za-z_]\w*)=(?![\"']?\$\{?(?P=name)\b|=)")
_SET_IF_NOT = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*):?=")  # and used at once
_READ = re.compile(r"(?<![\w$.-])(?:read|readarray|mapfile)(?=\s)(?P<words>[^;|&<>#\n]*)")
_NAME = re.compile(r"(?<![\w$-])[A-Za-z_]\w*")
_SOURCED = re.compile(r"(?:^|[;&|({]|\bthen|\bdo|\belse)[ \t]*(?:source|\.)[ \t]+(?P<file>[^\s;&|<>()]+)", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_OF_A_MODULE = re.compile(r"\bpython[\w.]*(?:\s+-[A-Za-z]+)*?\s+-m\s+(?P<module>[A-Za-z_][\w.]*)(?P<rest>.*)")
_OF_MAKE = re.compile(r"\$\((?P<name>[A-Za-z_]\w*)\)")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_MAX_FILES, _MAX_TASKS = 100, 100  # upper bounds of examined files and tasks: tasks of a list are much alike
_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Use:
    """A variable that a stage uses.

    `name`: of the variable. `key`: the key of the stage in whose value it is used, as in a workflow file. `file`: the
    other file in which it is used; empty for the stage's own text. `line`: in that file, or text; from 1.
    """

    name: str
    key: str
    file: str = ""
    line: int = 0


def holds_secret_here(name: str) -> bool:
    """Whether a variable is set in this process and withheld from jobs."""
    return name in os.environ and is_secret(name, os.environ[name])


def sounds_secret(name: str) -> bool:
    """Whether a variable holds a secret: by name and value if it is set here, else by its name."""
    return is_secret(name, os.environ.get(name) or "?")


def uses_of(
    stage: Stage, folder: str | Path | None = None, is_withheld: Callable[[str], bool] = holds_secret_here
) -> list[Use]:
    """Find the withheld variables that a stage uses but neither asks for nor sets itself.

    Searches its texts, and the files of the folder that these pass to an interpreter. Nothing is run.

    `stage`: the stage to examine.
    `folder`: the folder in which its commands run. None to search only its texts.
    `is_withheld`: says of a name whether jobs do not get that variable.
    """
    given = {*stage.secrets, *(name for name, _ in stage.environment)}
    uses: dict[str, Use] = {}
    texts = list(_texts_of(stage))
    setup = stage.preparation.setup if stage.preparation is not None else ""
    set_before = set(_sets(setup, folder))
    for key, text in texts:
        for name, line in _used(text, set() if key == "setup" else set_before, folder):
            uses.setdefault(name, Use(name, key, line=line))
    for file, key, text in _files_of(texts, folder):
        for name, line in _used(text, set_before, folder):
            uses.setdefault(name, Use(name, key, str(file), line))
    return [use for name, use in uses.items() if name not in given and is_withheld(name)]


def texts_of(stage: Stage, folder: str | Path | None = None) -> Iterator[str]:
    """Yield the texts that a stage runs, and those of the files that these run, as far as they are in the folder."""
    texts = list(_texts_of(stage))
    yield from (text for _, text in texts)
    yield from (text for _, _, text in _files_of(texts, folder))


def names_exported(options: str) -> list[str]:
    """Return the variables that ``--export=ALL,NAME`` passes on without giving a value.

    Examples
    --------
    >>> names_exported("--export=ALL,HF_TOKEN,A=1")
    ['HF_TOKEN']
    """
    words = [word for match in _EXPORTED.finditer(options) for word in match["names"].split(",")]
    return [word for word in words if word.isidentifier() and word not in {"ALL", "NONE", "NIL"}]


def left_in_words(names: Iterable[str]) -> str:
    """Return a sentence that names the withheld variables."""
    return f"Not passed on to jobs, since they hold secrets: {', '.join(names)}."


def stays_in_words(stages: Collection[Stage], folder: str | Path | None) -> Iterator[str]:
    """Yield a line for each variable of this process that is withheld as a secret, with the stages that use it.

    `stages`: the stages of the run.
    `folder`: the folder in which their commands run.
    """
    wanted = {name for stage in stages for name in stage.secrets}
    if left := [name for name in secrets_of(os.environ) if name not in wanted]:
        yield f'{left_in_words(left)} A stage that needs one asks for it: secrets = ["{left[0]}"].'
    for words in uses_in_words(stages, folder):
        yield f"Warning: {words}."


def uses_in_words(stages: Iterable[Stage], folder: str | Path | None) -> Iterator[str]:
    """Yield for each stage the withheld variables that it uses, and what to write."""
    by_stage = {stage.name: uses_of(stage, folder) for stage in stages}
    by_names: dict[tuple[str, ...], list[str]] = {}
    for stage, uses in by_stage.items():
        if uses:
            by_names.setdefault(tuple(use.name for use in uses), []).append(stage)
    for names, users in by_names.items():
        whose = f"stage {users[0]} uses" if len(users) == 1 else f"stages {', '.join(users)} use"
        lacks = "it" if len(names) == 1 else "them"
        ask = remedy(names, "in it" if len(users) == 1 else "in each")
        yield f"{whose} {dollars(names)} and will not have {lacks}: {ask}"


def dollars(names: Iterable[str]) -> str:
    """Write names as a shell does."""
    return ", ".join(f"${name}" for name in names)


def remedy(names: Iterable[str], where: str = "in it") -> str:
    """Return the key with which a stage asks for variables, and what to do if they are not secrets."""
    asked = f"write secrets = [{', '.join(map(_quoted, names))}] {where}"
    return f"{asked}, or its value in `environment` if it is no secret"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _texts_of(stage: Stage) -> Iterator[tuple[str, str]]:
    """Return the texts that a stage runs, each with its key."""
    if stage.preparation is not None:
        yield "setup", stage.preparation.setup
    yield "command", stage.command
    yield "script", stage.script
    for task in stage.tasks:
        yield "tasks", task
    for option in stage.options:
        yield "options", option


def _used(text: str, set_before: Collection[str], folder: str | Path | None) -> Iterator[tuple[str, int]]:
    """Return the variables that a text uses before it sets them, each with its first line."""
    if not any(mark in text for mark in ("$", "env", "ENV", "--export")):
        return
    sets = _sets(text, folder)
    anything = sets.get(_ANYTHING, len(text))
    offset, is_over, line = 0, len(text), 1
    seen: set[str] = set()
    for row in text.split("\n"):
        is_comment = row.lstrip().startswith("#")
        code = "" if is_comment else _without_comment(row)
        names = [(match.start(), match[match.lastgroup or 0]) for match in _USED.finditer(code)]
        if not is_comment or row.startswith("#SBATCH"):
            names += [(0, name) for name in names_exported(row)]
        for at, name in names:
            is_set = name in set_before or min(sets.get(name, is_over), anything) < offset + at
            if name not in seen and not is_set:
                seen.add(name)
                yield name, line
        offset, line = offset + len(row) + 1, line + 1


_ANYTHING = "."


def _sets(text: str, folder: str | Path | None) -> dict[str, int]:
    """Return the names that a text sets, with first positions; `_ANYTHING` for a sourced file that is not found."""
    offsets = [(match["name"], match.start()) for match in _SET.finditer(text)]
    offsets += [(match["name"], match.start() - 1) for match in _SET_IF_NOT.finditer(text)]
    for match in _READ.finditer(text):
        offsets += [(name, match.start()) for name in _NAME.findall(match["words"])]
    for match in _SOURCED.finditer(text):
        name = match["file"].strip("\"'")
        sourced = _text_of(Path(folder, os.path.expandvars(name))) if folder is not None else ""
        set_there = [match["name"] for match in _SET.finditer(sourced)] if sourced else [_ANYTHING]
        offsets += [(name, match.start()) for name in set_there]
    first: dict[str, int] = {}
    for name, offset in offsets:
        first[name] = min(offset, first.get(name, offset))
    return first


def _without_comment(row: str) -> str:
    """Drop what follows an unquoted number sign."""
    for match in _COMMENT.finditer(row) if "#" in row else ():
        before = row[: match.start()]
        if before.count("'") % 2 == before.count('"') % 2 == 0:
            return before
    return row


def _files_of(texts: Iterable[tuple[str, str]], folder: str | Path | None) -> Iterator[tuple[Path, str, str]]:
    """Return the files near a stage that its texts, or these files, run or pass to an interpreter, if they exist."""
    if folder is None:
        return
    left = [(key, text) for key, text in texts if key != "options"][: _MAX_TASKS + 3]
    known: set[Path] = set()
    while left and len(known) < _MAX_FILES:
        key, text = left.pop(0)
        for name in _files_in(text):
            path = Path(folder) / name
            if path not in known and (content := _text_of(path)):
                known.add(path)
                if path.name in _MAKEFILES:
                    content = _OF_MAKE.sub(r"${\g<name>}", content)
                yield path, key, content
                if not path.suffix or path.suffix in {".sh", ".bash"}:
                    left.append((key, content))


def _files_in(text: str) -> Iterator[str]:
    """Return the paths of files that a text runs: programs, scripts, Python modules and their functions, makefiles."""
    for program in read_shell(text).programs:
        yield from (name for name in (program.file, program.name if "/" in program.name else "") if name)
        if program.name == "make":
            yield from _MAKEFILES
    for match in _OF_A_MODULE.finditer(text):
        inside = match["module"].replace(".", "/")
        yield from (f"{inside}.py", f"{inside}/__main__.py")
        if match["module"] == CALL:
            with suppress(ValueError):
                yield from shlex.split(match["rest"])[1:2]


def _text_of(path: Path) -> str:
    """Read a file of moderate size; empty if it does not exist, is too large, or is binary."""
    with suppress(OSError, ValueError, AsaError):
        if path.is_file() and path.stat().st_size <= _MAX_FILE_BYTES:
            return read_text(path)
    return ""
