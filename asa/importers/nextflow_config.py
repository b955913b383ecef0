"""Reads how many CPUs each process of Nextflow asks for, from its configuration and its log.

A configuration is a program in Groovy. Only the usual ways to write CPUs are read: a number, also with `task.attempt`,
a parameter or an upper bound around it, for all processes, by name or by label. The log says which process has which
label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .base import is_file, read_text

CONFIG: Final = "nextflow.config"
LOG: Final = ".nextflow.log"

_MAX_BLOCKS = 8
_MAX_INCLUDED = 50
_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|(?P<text>'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<mark>[{}\n;])|(?P<plain>[^{}\n;'\"/]+|.)",
    re.DOTALL,
)
_SET = re.compile(r"([\w.$]+)\s*=\s*(.+)|(cpus)\s+(.+)", re.DOTALL)
_SELECTOR = re.compile(r"(withName|withLabel)\s*:\s*(.+)|\$(\w+)", re.DOTALL)
_INCLUDE = re.compile(r"includeConfig\s*(?:\(\s*)?(['\"])([^'\"]+)\1\s*\)?")
_NUMBER = re.compile(
    r"\{?\s*+(?:check_max\s*+\(|Math\.min\s*+\()?\s*+\(?\s*+(?P<number>\d++|params\.[\w.]++)\s*+(?:as\s++int\s*+)?\)?\s*+"
    r"(?:\*\s*+task\.attempt\s*+)?\)?\s*+(?:,[^{}]*\))?\s*+\}?"
)
_APPLIED = re.compile(r"Applying config profile: `([^`]*)`")
_MATCHED = re.compile(r"Config settings `(withLabel:[^`]*)` matches labels? `[^`]*` for process with name (\S+)")


@dataclass(slots=True)
class ProcessCpus:
    """CPUs according to a configuration."""

    default: str = ""
    by_name: dict[str, str] = field(default_factory=dict)
    by_label: dict[str, str] = field(default_factory=dict)
    labelled: dict[str, list[str]] = field(default_factory=dict)  # by process: the labels that matched it
    params: dict[str, str] = field(default_factory=dict)
    has_log: bool = False
    profiles: frozenset[str] = frozenset({"standard"})  # the profiles that the run applied

    def of(self, process: str) -> int:
        """Return the CPUs of a task of a process; 0 if unknown.

        Examples
        --------
        >>> ProcessCpus(default="2", by_name={"ALIGN|SORT": "{ 4 * task.attempt }"}).of("MAIN:SORT")
        4
        """
        last = process.rsplit(":", 1)[-1]
        for called in (process, last):
            for pattern, value in reversed(self.by_name.items()):
                if _is_match(pattern, called):
                    return self._number(value)
        if self.by_label:
            rules = self.labelled.get(process, self.labelled.get(last, []))
            if named := [self.by_label[rule] for rule in rules if rule in self.by_label]:
                return self._number(named[-1])
            if not self.has_log:
                return 0
        return self._number(self.default)

    def _number(self, value: str) -> int:
        match = _NUMBER.fullmatch(value.strip())
        if match is None:
            return 0
        number = match["number"]
        if number.startswith("params."):
            number = self.params.get(number.removeprefix("params."), "").strip()
        return int(number) if number.isascii() and number.isdigit() else 0


def _is_match(pattern: str, name: str) -> bool:
    is_negated = pattern.startswith("!")
    try:
        return bool(re.fullmatch(pattern.removeprefix("!").strip(), name)) is not is_negated
    except re.error:
        return False


def read_cpus(config: Path) -> ProcessCpus:
    """Read a configuration, the files that it includes, and the log next to it.

    Raises `InputError`: a file cannot be read.
    """
    cpus = ProcessCpus()
    log = config.parent / LOG
    if log.is_file():
        cpus.has_log = True
        for line in read_text(log).splitlines():
            if match := _MATCHED.search(line):
                rule = _plain(match[1].removeprefix("withLabel:"))
                cpus.labelled.setdefault(match[2], []).append(rule)
            elif match := _APPLIED.search(line):
                cpus.profiles = frozenset(match[1].split(","))
    _take_in(config, cpus, [config])
    return cpus


def _take_in(config: Path, cpus: ProcessCpus, read: list[Path]) -> None:
    for blocks, key, value in _settings(read_text(config)):
        is_profile = blocks[:1] == ("profiles",) and blocks[1:2] and blocks[1] in cpus.profiles
        path = blocks[2:] if is_profile else blocks
        whole = (*path, *key.split("."))
        if key == "includeConfig" and not path:
            included = config.parent / value
            if "$" not in value and is_file(included) and included not in read and len(read) < _MAX_INCLUDED:
                read.append(included)
                _take_in(included, cpus, read)
        elif whole[0] == "params" and len(whole) > 1:
            cpus.params[".".join(whole[1:])] = value
        elif whole == ("process", "cpus"):
            cpus.default = value
        elif len(whole) == 3 and whole[0] == "process" and whole[2] == "cpus":
            _select(whole[1], value, cpus)


def _select(selector: str, value: str, cpus: ProcessCpus) -> None:
    match = _SELECTOR.fullmatch(_plain(selector))
    if match is None:
        return
    kept = cpus.by_label if match[1] == "withLabel" else cpus.by_name
    pattern = match[3] or _plain(match[2])
    kept.pop(pattern, None)  # the last of several counts
    kept[pattern] = value


def _plain(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0] else text


def _settings(text: str) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield each setting: the blocks around it, its key and its value."""
    path: list[str] = []
    parts: list[str] = []  # of the current statement
    depth = 0  # of open braces within it
    is_set = False  # whether it sets something, so that its braces are of the value
    for token in _TOKEN.finditer(text):
        mark = token["mark"]
        if token["comment"]:
            continue
        if not mark or (depth and mark != "}"):
            parts.append(token[0])
            depth += mark == "{"
        elif depth:
            parts.append("}")
            depth -= 1
        elif mark == "{" and (is_set or _SET.match("".join(parts).strip() + " x")):
            parts.append("{")
            depth, is_set = 1, True
        elif mark == "{":
            path.append(_plain("".join(parts)))
            parts.clear()
        else:
            yield from _statement(path, "".join(parts).strip())
            parts.clear()
            is_set = False
            if mark == "}" and path:
                path.pop()
    yield from _statement(path, "".join(parts).strip())


def _statement(path: list[str], text: str) -> Iterator[tuple[tuple[str, ...], str, str]]:
    if len(path) > _MAX_BLOCKS:  # it cannot be one that is looked for
        return
    if match := _INCLUDE.fullmatch(text):
        yield tuple(path), "includeConfig", match[2]
    elif match := _SET.fullmatch(text):
        yield tuple(path), match[1] or match[3], match[2] or match[4]
