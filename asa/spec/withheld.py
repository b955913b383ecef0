"""Which stages use variables that no job gets, since they hold secrets and the stage has not asked for them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from asa.core.documents import read_text
from asa.core.variables import is_secret
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
_MAX_FILES, _MAX_TASKS = 100, 100  # that are looked into: tasks of a list are much alike
_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Use:
    """A variable that a stage uses.

    Parameters
    ----------
    name
        Of the variable.
    key
        Where the stage uses it: a key of its, as in a workflow file.
    file
        The file beside it in which that is; empty for the text of the stage itself.
    line
        Of that file, or text; from 1.
    """

    name: str
    key: str
    file: str = ""
    line: int = 0


def holds_secret_here(name: str) -> bool:
    """Say whether a variable is set in this process and does not go on to jobs."""
    return name in os.environ and is_secret(name, os.environ[name])


def sounds_secret(name: str) -> bool:
    """Say so of what is set here, and of what is not by its name."""
    return is_secret(name, os.environ.get(name) or "?")


def uses_of(
    stage: Stage, folder: str | Path | None = None, is_withheld: Callable[[str], bool] = holds_secret_here
) -> list[Use]:
    """Find the variables that a stage uses, that are withheld, and that it has neither asked for nor sets itself.

    Its texts are looked through, and the files beside them that they give to an interpreter. Nothing of them is run.

    Parameters
    ----------
    stage
        The stage.
    folder
        In which its commands run. None for its texts alone.
    is_withheld
        Whether jobs get no variable of a name.
    """
    given = {*stage.secrets, *(name for name, _ in stage.environment)}
    found: dict[str, Use] = {}
    texts = list(_texts_of(stage))
    setup = stage.preparation.setup if stage.preparation is not None else ""
    set_before = _first_places(_SET.finditer(setup))
    for key, text in texts:
        for name, line in _used(text, {} if key == "setup" else set_before):
            found.setdefault(name, Use(name, key, line=line))
    for file, key, text in _files_of(texts, folder):
        for name, line in _used(text, set_before):
            found.setdefault(name, Use(name, key, str(file), line))
    return [use for name, use in found.items() if name not in given and is_withheld(name)]


def names_exported(options: str) -> list[str]:
    """Name the variables without a value that ``--export=ALL,NAME`` hands on.

    Examples
    --------
    >>> names_exported("--export=ALL,HF_TOKEN,A=1")
    ['HF_TOKEN']
    """
    words = [word for match in _EXPORTED.finditer(options) for word in match["names"].split(",")]
    return [word for word in words if word.isidentifier() and word not in {"ALL", "NONE", "NIL"}]


def left_in_words(names: Iterable[str]) -> str:
    """Say which variables do not go on."""
    return f"Not passed on to jobs, since they hold secrets: {', '.join(names)}."


def uses_in_words(stages: Iterable[Stage], folder: str | Path | None) -> Iterator[str]:
    """Say of each stage what it uses that it does not get, and what to write."""
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
    """Write what a stage asks for them with, and where."""
    return f"write secrets = [{', '.join(map(_quoted, names))}] {where}"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _texts_of(stage: Stage) -> Iterator[tuple[str, str]]:
    """Give what a stage runs, each text with its key."""
    if stage.preparation is not None:
        yield "setup", stage.preparation.setup
    yield "command", stage.command
    yield "script", stage.script
    for task in stage.tasks:
        yield "tasks", task
    for option in stage.options:
        yield "options", option


def _used(text: str, set_before: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Give the variables that a text uses before it sets them, each with its first line."""
    if not any(mark in text for mark in ("$", "env", "ENV", "--export")):
        return
    sets = _first_places(_SET.finditer(text))
    place, is_over, line = 0, len(text), 1
    seen: set[str] = set()
    for row in text.split("\n"):
        is_comment = row.lstrip().startswith("#")
        names = (
            [(match.start(), match[match.lastgroup or 0]) for match in _USED.finditer(row)] if not is_comment else []
        )
        if not is_comment or row.startswith("#SBATCH"):
            names += [(0, name) for name in names_exported(row)]
        for at, name in names:
            if name not in seen and name not in set_before and sets.get(name, is_over) >= place + at:
                seen.add(name)
                yield name, line
        place, line = place + len(row) + 1, line + 1


def _first_places(matches: Iterable[re.Match[str]]) -> dict[str, int]:
    places: dict[str, int] = {}
    for match in matches:
        places.setdefault(match["name"], match.start())
    return places


def _files_of(texts: Iterable[tuple[str, str]], folder: str | Path | None) -> Iterator[tuple[Path, str, str]]:
    """Give the files near a stage that its texts, or these files, give to an interpreter or run, as far as they are."""
    if folder is None:
        return
    left = [(key, text) for key, text in texts if key != "options"][: _MAX_TASKS + 3]
    known: set[Path] = set()
    while left and len(known) < _MAX_FILES:
        key, text = left.pop(0)
        for program in read_shell(text).programs:
            for name in (program.file, program.name if "/" in program.name else ""):
                path = Path(folder) / name
                if name and path not in known and (content := _text_of(path)):
                    known.add(path)
                    yield path, key, content
                    if not path.suffix or path.suffix in {".sh", ".bash"}:
                        left.append((key, content))


def _text_of(path: Path) -> str:
    """Read a file of moderate size; empty if it is none, or is binary."""
    with suppress(OSError, ValueError, AsaError):
        if path.is_file() and path.stat().st_size <= _MAX_FILE_BYTES:
            return read_text(path)
    return ""
