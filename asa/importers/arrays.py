"""Packs the elements of job arrays into jobs.

An element keeps its walltime, so a job gets only as many elements as can run in it at the same time. If not all
elements may run at the same time, jobs follow each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from asa.errors import InputError
from asa.keys import TERMS, as_options
from asa.requests.directives import Directive
from asa.requests.options import KNOWN, marked, name_of
from asa.requests.sizes import Needs
from asa.workflow import Stage

CORES_OF_A_JOB: Final = 32
"""Default upper bound of the cores that elements share: a job of about a node or less often fits."""

_WRITTEN: Final = re.compile(r"\[?([^\[\]%]*)\]?(?:%(-?\d*)(?:%.*)?)?")
_MAX_ELEMENTS: Final = 10_000
_MAX_PARTS: Final = 1000
_USUAL_PARTS: Final = 100
"""If there would be more jobs than this, each gets more cores instead."""

_STARTS: Final = re.compile(r"\b(?:srun|mpirun|mpiexec|scontrol|scancel|sstat|sattach|nproc)\b")
_OF_THE_JOB: Final = re.compile(
    r"\bSLURMD?_(?!ARRAY|SUBMIT_|CPUS_PER_TASK\b|CLUSTER_NAME\b|CONF\b|JOB_(?:NAME|PARTITION|ACCOUNT|QOS|USER|UID)\b)\w+"
)
_ONLY_SAID: Final = re.compile(r"\s*(?:#|(?:echo|printf)\b(?:(?!\$\()[^>|`;&])*$)")
_CLEANS: Final = re.compile(r"\brm\b.*(?P<folder>\$\{?TMPDIR\}?)/?\*?(?:[\s\"']|$)")
_COUNTED: Final = re.compile(r"([^:=,|]+)(?:[:=](\d+))?")


def array_text(text: str) -> str:
    """Return the value of ``--array`` in plain form: without brackets, and without an ineffective limit.

    Examples
    --------
    >>> [array_text(text) for text in ("[0-9]", "1-10%0", "[1,2]%3", "1-3%5%2", "0-9%-1")]
    ['0-9', '1-10', '1,2%3', '1-3%5', '0-9']
    """
    match = _WRITTEN.fullmatch(text.replace(" ", ""))
    if match is None:
        return text
    at_once = int(match[2]) if (match[2] or "").lstrip("-") else 0
    return f"{match[1]}%{at_once}" if at_once > 0 else match[1]


@dataclass(frozen=True, slots=True)
class ArrayOption:
    """The value of ``--array``."""

    elements: tuple[int, ...]
    at_once: int  # how many elements may run at the same time
    step: int  # step, as Slurm gives it to the elements

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """Variables that describe the array to each element."""
        values = {
            "COUNT": len(self.elements), "MIN": self.elements[0], "MAX": self.elements[-1], "STEP": self.step
        }  # fmt: skip
        return tuple((f"SLURM_ARRAY_TASK_{name}", str(value)) for name, value in values.items())


@dataclass(frozen=True, slots=True)
class ElementsOfJob:
    """The elements of one job."""

    elements: tuple[int, ...]
    follows: int | None  # index of the part that it follows; None for none


def read_array(directive: Directive) -> ArrayOption:
    """Read the option ``--array``, as in ``0-99:10,200%8``.

    Examples
    --------
    >>> read_array(Directive("array", "1-9:2%3", "a.sh:2"))
    ArrayOption(elements=(1, 3, 5, 7, 9), at_once=3, step=2)
    """
    listed, _, at_once = array_text(directive.value or "").partition("%")
    elements: set[int] = set()
    for part in listed.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if match is None or (match[3] and not int(match[3])):
            hint = "Write them as sbatch does: 0-19, 1,3,5, 0-99:10, 0-19%4."
            raise InputError(f"{directive} lists no elements", where=directive.where, hint=hint)
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if (last - first) // step >= _MAX_ELEMENTS:
            raise InputError(f"{directive} is too many", where=directive.where, hint=f"At most {_MAX_ELEMENTS}.")
        elements.update(range(first, last + 1, step))
    if not elements or not (at_once.isdigit() or not at_once):
        raise InputError(f"{directive} lists no elements", where=directive.where, hint="Write 0-19 or 0-19%4.")
    step_match = re.search(r":(\d+)", listed)  # Slurm uses the first of several
    most = min(int(at_once or 0) or len(elements), len(elements))
    return ArrayOption(tuple(sorted(elements)), most, int(step_match[1]) if step_match else 1)


def apart_because(stage: Stage, text: str, needs: Needs) -> str:
    """Return why elements cannot share a job; empty if they can."""
    if needs.tasks > 1:
        return "each has several tasks"
    if needs.gpus:
        return "each has GPUs of its own"
    for option in (*stage.options, *as_options(stage)):
        name = name_of(option)
        counts = name not in marked("summed") or all(map(_COUNTED.fullmatch, option.partition("=")[2].split(",")))
        if option in needs.options or not counts or (name in KNOWN and name not in marked("alike")):
            return f"each is given {option}"
    for line in text.splitlines():
        if not _ONLY_SAID.match(line) and (match := _STARTS.search(line) or _OF_THE_JOB.search(line)):
            return f"the script uses {match[0]}, which is of a whole job"
        if cleaned := _CLEANS.search(line):
            return f"the script removes {cleaned['folder']}, which is of a whole job"
    return ""


def for_elements(stage: Stage, count: int) -> dict[str, Any]:
    """Return the fields in which a job of several elements differs from a job of one element.

    Examples
    --------
    >>> for_elements(Stage("a", cores=1, options=("--licenses=matlab:2,fluent",)), 4)["options"]
    ('--licenses=matlab:8,fluent:4',)
    """
    summed = [key for key in TERMS if key.option in marked("summed")]
    terms = {key.field: _times(getattr(stage, key.field), count) for key in summed if getattr(stage, key.field)}
    return {"options": tuple(_option_times(option, count) for option in stage.options), **terms}


def _option_times(option: str, count: int) -> str:
    name, _, value = option.partition("=")
    return f"{name}={_times(value, count)}" if name_of(option) in marked("summed") else option


def _times(value: str, count: int) -> str:
    """Multiply the counts in a value such as ``matlab:2,fluent``."""
    matches = [match for match in map(_COUNTED.fullmatch, value.split(",")) if match]
    return value if count == 1 else ",".join(f"{match[1]}:{int(match[2] or 1) * count}" for match in matches)


def together(array: ArrayOption, cores: int, max_cores: int | None) -> int:
    """Return how many elements share a job.

    `max_cores`: of a job; None for a default that suits many nodes, or more if there would be many jobs.
    """
    if max_cores is not None:
        return max(1, max_cores // cores)
    return max(1, CORES_OF_A_JOB // cores, math.ceil(len(array.elements) / _USUAL_PARTS))


def shared(array: ArrayOption, cores: int, max_cores: int | None) -> int:
    """Return how many elements a job runs at the same time if jobs take them from a bag: few, unless jobs are many.

    `max_cores`: of a job; None for no bound.
    """
    if max_cores is not None:
        return max(1, max_cores // cores)
    return math.ceil(array.at_once / _USUAL_PARTS)


def parts_of(array: ArrayOption, per_job: int, where: str) -> list[ElementsOfJob]:
    """Divide elements among jobs; the elements of a job run at the same time.

    There are as many rows as jobs may run at the same time. The jobs of a row follow each other.

    Examples
    --------
    >>> array = ArrayOption((0, 1, 2, 3, 4), at_once=3, step=1)
    >>> [(part.elements, part.follows) for part in parts_of(array, 2, "a.sh:2")]
    [((0, 1), None), ((2,), None), ((3, 4), 0)]
    """
    rows = math.ceil(array.at_once / per_job)
    widths = [len(row) for row in _even(range(array.at_once), rows)]
    parts: list[ElementsOfJob] = []
    left = array.elements
    while left:
        for width in widths:
            if left:
                before = len(parts) - rows
                parts.append(ElementsOfJob(left[:width], before if before >= 0 else None))
                left = left[width:]
        if len(parts) > _MAX_PARTS:
            raise InputError(
                f"{len(array.elements)} elements need more than {_MAX_PARTS} jobs",
                where=where,
                hint="Split the array, let more of them run at once, or give --array-cores more.",
            )
    return parts


def _even(values: Sequence[int], count: int) -> list[Sequence[int]]:
    """Cut a sequence into a number of pieces whose lengths differ by at most one."""
    size, more = divmod(len(values), count)
    ends = [size * i + min(i, more) for i in range(count + 1)]
    return [values[begin:end] for begin, end in pairwise(ends)]
