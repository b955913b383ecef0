"""Calls of sbatch as they were recorded: what each was given, and how its options are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from asa.errors import InputError
from asa.importers.scripts import refuse_options
from asa.requests.directives import Directive, by_name, read_directives, refuse_components, take_options

FIRST_NUMBER = 59_371_801
"""The number of the first job: high enough that one found in a text is hardly anything else."""


@dataclass(slots=True)
class Submission:
    """A job as sbatch was given it, and what the driver saw of it since."""

    number: int
    arguments: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    directives: dict[str, Directive]  # the options by their names; of two the one that counts
    path: str = ""  # of its script; empty where that came on standard input, or as `--wrap`
    text: str = ""
    rest: tuple[str, ...] = ()  # what the script is called with
    ended: tuple[tuple[int, Literal["success", "always"]], ...] = ()
    """Jobs of which the driver saw the end before: that they completed, or only that they are over."""
    looks: int = 0  # how often the driver asked about jobs since this one could begin
    changed: list[str] = field(default_factory=list)  # what the driver changed since, which the workflow does not have
    is_cancelled: bool = False
    is_held: bool = False
    submitted_by: int = 0  # number of the driver's own job, in a session
    is_driver: bool = False  # itself: `arguments` are then its words

    @property
    def where(self) -> str:
        """Name it for a person."""
        given = " ".join(self.arguments)
        if self.is_driver:
            return given
        return f"sbatch {given if len(given) < 60 else given[:57] + '...'}"

    def value(self, name: str, default: str = "") -> str:
        """Give the value of an option."""
        option = self.directives.get(name)
        return default if option is None or option.value is None else option.value

    @property
    def name(self) -> str:
        """Name it as Slurm does."""
        usual = "wrap" if "wrap" in self.directives else self.path.rpartition("/")[2] or "sbatch"
        return self.value("job-name", usual)


class RefusedBySbatchError(Exception):
    """What sbatch says when it takes no job: its lines."""


_NO_SCRIPT = (
    "This does not look like a batch script.  The first",
    "line must start with #! followed by the path to an interpreter.",
    "For instance: #!/bin/sh",
)
_DOS = ("Batch script contains DOS line breaks (\\r\\n)", "instead of expected UNIX line breaks (\\n).")


def options_of(arguments: list[str]) -> tuple[dict[str, Directive], list[str]]:
    """Read a command line of sbatch: its options, and the script with its arguments.

    Raises `RefusedBySbatchError`: sbatch refuses it.
    """
    where = "sbatch"
    try:
        given, rest = take_options(arguments, where)
        if rest[:1] == [":"]:
            refuse_components(where)
    except InputError as error:
        raise RefusedBySbatchError(error.message) from error
    return by_name(given), rest


def check_text(text: str) -> None:
    """Refuse a text as sbatch does."""
    if not text:
        raise RefusedBySbatchError("Batch script is empty!")
    if not text.strip():
        raise RefusedBySbatchError("Batch script contains only whitespace!")
    if not text.startswith("#!"):
        raise RefusedBySbatchError(*_NO_SCRIPT)
    if "\0" in text:
        raise RefusedBySbatchError(
            "The SLURM controller does not allow scripts that", "contain a NULL character '\\0'."
        )
    if "\r\n" in text:
        raise RefusedBySbatchError(*_DOS)


def check_options(options: Mapping[str, Directive]) -> None:
    """Refuse options as sbatch and Slurm do on every site, so that the driver sees it, and goes on as it would."""
    try:
        refuse_options(options)
    except InputError as error:
        raise RefusedBySbatchError(error.message) from error


def options_in(text: str, file: str) -> dict[str, Directive]:
    """Read the options in a script; `RefusedBySbatchError` where sbatch does not take them."""
    try:
        return by_name(read_directives(text, file))
    except InputError as error:
        raise RefusedBySbatchError(error.message) from error


_PART = re.compile(r"([a-z]+)(?::(.*))?", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"(\d+)(?:_(\d+|\*))?(?:\+(\d+))?")
_KINDS = frozenset({"after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer", "expand"})


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """One thing that a job waits for."""

    kind: str  # as `--dependency` has it
    number: int = 0  # of the other job
    index: str = ""  # in its array
    minutes: int = 0  # after its beginning


def waits_for(value: str) -> tuple[list[WaitsFor], bool]:
    """Read the value of ``--dependency``: for what a job waits, and whether one of these will do.

    Raises `RefusedBySbatchError`: Slurm refuses it.

    Examples
    --------
    >>> waits_for("afterok:7:8,singleton")[0]  # doctest: +ELLIPSIS
    [WaitsFor(kind='afterok', number=7, ...), WaitsFor(kind='afterok', number=8, ...), WaitsFor(kind='singleton', ...)]
    >>> [one.kind for one in waits_for("afterok:7,8")[0]]
    ['afterok', 'afterany']
    """
    found: list[WaitsFor] = []
    if value in {"", "0"}:
        return [], False
    for part in re.split(r"[,?]", value):
        if part.strip().lower() == "singleton":
            found.append(WaitsFor("singleton"))
            continue
        match = _PART.fullmatch(part)
        kind, numbers = ("afterany", part) if match is None else (match[1].lower(), match[2] or "")
        if kind not in _KINDS or not numbers:
            raise RefusedBySbatchError("Batch job submission failed: Job dependency problem")
        for number in numbers.split(":"):
            one = _NUMBER.fullmatch(number.strip())
            if one is None:
                raise RefusedBySbatchError("Batch job submission failed: Job dependency problem")
            found.append(WaitsFor(kind, int(one[1]), (one[2] or "").strip("*"), int(one[3] or 0)))
    return found, "?" in value
