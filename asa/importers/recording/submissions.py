"""Recorded calls of sbatch, and how their options are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from asa.errors import InputError
from asa.importers.scripts import refuse_options
from asa.requests.directives import Directive, by_name, read_directives, refuse_components, take_options

FIRST_NUMBER = 59_371_801
"""Number of the first job: so high that it hardly occurs in a text by chance."""


@dataclass(slots=True)
class Submission:
    """A job as it was submitted with sbatch, and its state as the driver saw it later."""

    number: int
    arguments: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    directives: dict[str, Directive]  # options by name; of several, the one that counts
    path: str = ""  # of its script; empty for a script on standard input or `--wrap`
    text: str = ""
    rest: tuple[str, ...] = ()  # arguments of the script
    ended: tuple[tuple[int, Literal["success", "always"]], ...] = ()
    """Jobs whose ends the driver had seen before: whether they completed, or only that they ended."""
    looks: int = 0  # how often the driver has asked about jobs since this one could begin
    changed: list[str] = field(default_factory=list)  # later changes by the driver, which the workflow does not have
    is_cancelled: bool = False
    is_held: bool = False
    submitted_by: int = 0  # in a session: number of the job of the driver that submitted it; 0 for none
    is_driver: bool = False  # whether this job is itself such a driver; `arguments` is then its command line

    @property
    def where(self) -> str:
        """The call as shown to users."""
        given = " ".join(self.arguments)
        if self.is_driver:
            return given
        return f"sbatch {given if len(given) < 60 else given[:57] + '...'}"

    def value(self, name: str, default: str = "") -> str:
        """Return the value of an option."""
        option = self.directives.get(name)
        return default if option is None or option.value is None else option.value

    @property
    def name(self) -> str:
        """Its name, as Slurm gives it."""
        usual = "wrap" if "wrap" in self.directives else self.path.rpartition("/")[2] or "sbatch"
        return self.value("job-name", usual)


class RefusedBySbatchError(Exception):
    """A refusal of sbatch: the lines that it prints."""


_NO_SCRIPT = (
    "This does not look like a batch script.  The first",
    "line must start with #! followed by the path to an interpreter.",
    "For instance: #!/bin/sh",
)
_DOS = ("Batch script contains DOS line breaks (\\r\\n)", "instead of expected UNIX line breaks (\\n).")


def options_of(arguments: list[str]) -> tuple[dict[str, Directive], list[str]]:
    """Parse a command line of sbatch; return its options, and the script with its arguments.

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
    """Refuse options as sbatch does on every site, so that the driver sees the failure."""
    try:
        refuse_options(options)
    except InputError as error:
        raise RefusedBySbatchError(error.message) from error


def options_in(text: str, file: str) -> dict[str, Directive]:
    """Read the options in a script; raise `RefusedBySbatchError` if sbatch refuses them."""
    try:
        return by_name(read_directives(text, file))
    except InputError as error:
        raise RefusedBySbatchError(error.message) from error


_PART = re.compile(r"([a-z]+)(?::(.*))?", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"(\d+)(?:_(\d+|\*))?(?:\+(\d+))?")
_KINDS = frozenset({"after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer", "expand"})


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """One dependency of a job."""

    kind: str  # the kind, as in `--dependency`
    number: int = 0  # of the other job
    index: str = ""  # of an element of that job's array; empty for the whole job
    minutes: int = 0  # delay after the beginning of that job


def waits_for(value: str) -> tuple[list[WaitsFor], bool]:
    """Parse the value of ``--dependency``: the dependencies of a job, and whether one of them suffices.

    Raises `RefusedBySbatchError`: Slurm refuses it.

    Examples
    --------
    >>> waits_for("afterok:7:8,singleton")[0]  # doctest: +ELLIPSIS
    [WaitsFor(kind='afterok', number=7, ...), WaitsFor(kind='afterok', number=8, ...), WaitsFor(kind='singleton', ...)]
    >>> [one.kind for one in waits_for("afterok:7,8")[0]]
    ['afterok', 'afterany']
    """
    waits: list[WaitsFor] = []
    if value in {"", "0"}:
        return [], False
    for part in re.split(r"[,?]", value):
        if part.strip().lower() == "singleton":
            waits.append(WaitsFor("singleton"))
            continue
        match = _PART.fullmatch(part)
        kind, numbers = ("afterany", part) if match is None else (match[1].lower(), match[2] or "")
        if kind not in _KINDS or not numbers:
            raise RefusedBySbatchError("Batch job submission failed: Job dependency problem")
        for number in numbers.split(":"):
            match = _NUMBER.fullmatch(number.strip())
            if match is None:
                raise RefusedBySbatchError("Batch job submission failed: Job dependency problem")
            waits.append(WaitsFor(kind, int(match[1]), (match[2] or "").strip("*"), int(match[3] or 0)))
    return waits, "?" in value
