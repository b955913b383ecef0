"""Reads the shapes that a stage may have, from a file or from Python, and makes the stage's fields of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar, cast, get_args

from asa.errors import InputError, WorkflowError, near
from asa.shapes import Law, Moldable, RunAt, Scaling, doubled, run_time_at
from asa.spec.parameters import Filled
from asa.units import format_duration
from asa.workflow import MAX_CORES

T = TypeVar("T")

MAX_WIDTHS = 100
"""Upper bound of a stage's widths, since each is weighed against the others."""

RANGE_PATTERN = r"^\s*[0-9]{1,18}\s*\.\.\s*[0-9]{1,18}\s*$"

_LONGEST = 19  # digits of the largest number in TOML
_RANGE = re.compile(r"\s*([0-9]{1,18})\s*\.\.\s*([0-9]{1,18})\s*")
_LAWS = get_args(Law)
_OF_LAW: Mapping[str, tuple[str, ...]] = {"amdahl": ("parallel",), "downey": ("parallelism", "variance")}
_WRITTEN = {"amdahl": "{ amdahl = 0.95 }", "downey": "{ downey = { parallelism = 60, variance = 0.5 } }"}


# ---------------------------------------------------------------------- reading


def several(given: object) -> list[Any]:
    """Make a list of widths from one width, several, or a range; the items of a given list are not checked.

    Raises `InputError`: a text is no range; or there are too many widths.

    Examples
    --------
    >>> several(28), several([28, 7]), several("7..112")
    ([28], [28, 7], [7, 14, 28, 56, 112])
    """
    if isinstance(given, list | tuple | range):
        if len(given) > MAX_WIDTHS:
            raise InputError(f"has {len(given)} entries", hint=f"Name {MAX_WIDTHS} at most: each is weighed.")
        return list(given)
    if not isinstance(given, str) or ".." not in given:
        return [given]
    match = _RANGE.fullmatch(given)
    if match is None:
        raise InputError(f"{str(given)!r} is not a range", hint='Write it as in "7..112": doubled from the first on.')
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise InputError(f"{str(given)!r} ends before it begins", hint=f'Write "{last}..{first}".')
    if last > MAX_CORES:
        raise InputError(f"must be {MAX_CORES} or less, not {last}", hint="Correct this number.")
    return doubled(first, last)


def job_range(given: object) -> tuple[int, int]:
    """Read how many jobs run the tasks of a stage: a number, or a range.

    Raises `InputError`: it is neither, or its end is below its beginning.

    Examples
    --------
    >>> job_range(8), job_range("1..32")
    ((8, 8), (1, 32))
    """
    if type(given) is not bool and isinstance(given, Integral):
        return int(given), int(given)
    match = _RANGE.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        if isinstance(given, Filled) and given.isdecimal():
            return int(given), int(given)
        raise InputError(f"{str(given)!r} is not a number of jobs", hint='Write 8, or a range as in "1..32".')
    return int(match[1]), int(match[2])


def distinct(values: Sequence[T]) -> Sequence[T]:
    """Refuse duplicates in a list, with `InputError`."""
    twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
    if twice is not None:
        raise InputError(f"{twice!r} is there twice", hint="Name each once.")
    return values


def partitions_of(given: object) -> list[Any]:
    """Make a list of partitions from one or several; the items of a given list are not checked.

    Raises `InputError`: one of several has no name.
    """
    if not isinstance(given, list | tuple):
        return [given]
    if len(given) > 1 and "" in given:
        raise InputError("one of several has no name", hint="Name each: where jobs go that name none has a name, too.")
    return list(given)


def width_of(key: object) -> int:
    """Read a width from a key of a table; keys of TOML are text.

    Raises `InputError`: it is no number from 1 on.
    """
    is_digits = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < _LONGEST
    is_number = is_digits or (type(key) is not bool and isinstance(key, Integral))
    if is_number and int(str(key)) > 0:
        return int(str(key))
    raise InputError(f"{str(key)!r} is not a width", hint="Give cores, or nodes, by their number alone, as 28.")


def at_widths(table: Mapping[Any, Any], read: Callable[[Any], float]) -> dict[int, float]:
    """Read values by width, each with `read`.

    Raises `InputError`: a key is not a width, or a width is given twice.
    """
    distinct([width_of(key) for key in table])
    return {width_of(key): read(value) for key, value in table.items()}


def is_by_width(table: Mapping[Any, Any]) -> bool:
    """Whether a table's keys are widths, and not ``learn`` and ``until``.

    Raises `InputError`: it has both.
    """
    found = any(not isinstance(key, str) or key[:1].isdigit() for key in table)
    word = next((key for key in table if key in {"learn", "until"}), None)
    if found and word is not None:
        hint = 'Write it as in { learn = true, until = { 7 = "6h" } }.'
        raise InputError(f"{word!r} is among widths", hint=hint)
    return found


def read_scaling(given: object) -> Scaling:
    """Read a scaling law: its name, or a table of its name with its parameters.

    Raises `InputError`: there is no such law, or it has no such parameters.

    Examples
    --------
    >>> read_scaling({"amdahl": 0.95}).parallel, read_scaling("tasks").law
    (0.95, 'tasks')
    """
    if isinstance(given, Mapping):
        if len(given) != 1:
            raise InputError("names more than one law, or none", hint=f"Write one, as in {_WRITTEN['amdahl']}.")
        [(law, value)] = given.items()
    else:
        law, value = given, None
    if not isinstance(law, str) or law not in _LAWS:
        guess = near(law, _LAWS) if isinstance(law, str) else ""
        raise InputError(f"{law!r} is not a scaling law", hint=f"{guess}Give one of {', '.join(_LAWS)}.")
    law = cast("Law", str(law))
    if value is None:
        return Scaling(law)
    names = _OF_LAW.get(law, ())
    values = value if isinstance(value, Mapping) else dict(zip(names[:1], [value], strict=False))
    if not names or not values or (len(names) > 1 and not isinstance(value, Mapping)):
        raise _no_parameters(law)
    if unknown := next((name for name in values if name not in names), None):
        raise InputError(f"{law} has no parameter {unknown!r}", hint=f"{near(str(unknown), names)}{_example(law)}")
    numbers = {name: _number(name, value) for name, value in values.items()}
    parallel, parallelism, variance = (numbers.get(name) for name in ("parallel", "parallelism", "variance"))
    return Scaling(law, parallel, parallelism, variance)


def _no_parameters(law: str) -> InputError:
    what = "takes a number" if law == "amdahl" else "takes a table" if law in _OF_LAW else "takes no parameter"
    return InputError(f"{law} {what}", hint=_example(law))


def _example(law: str) -> str:
    return f"Write it as in {_WRITTEN[law]}." if law in _WRITTEN else f'Write "{law}".'


def _number(name: str, given: object) -> float:
    if isinstance(given, Filled) or (type(given) is not bool and isinstance(given, Real)):
        with suppress(ValueError):
            return float(given)
    raise InputError(f"{name} is {given!r}", hint="Give a number, without quotes.")


# ---------------------------------------------------------------------- requests


class Remark(NamedTuple):
    """A note about a stage's request."""

    key: str
    message: str
    hint: str


class Expectation(NamedTuple):
    """The usual run time of a stage, as `expected` or `total` has it."""

    learn: bool = False  # learned from its past runs
    until: float | Mapping[int, float] | None = None  # seconds until something is learned, perhaps by width


def expectation_in(given: Mapping[str, Any]) -> Expectation:
    """Return the run time that a stage's keys give; for a stage in legs, the time of all legs."""
    return given.get("total" if given.get("continues") else "expected") or Expectation()


class AskedShapes:
    """A stage's request as it was written, in one shape or in several; the first of several is its own.

    `given`, `where`: as for `asa.spec.stages.fields_of`.
    """

    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.cpus_per_task: int = given.get("cpus_per_task", 1)
        ntasks: list[int] | None = given.get("ntasks")
        each = 1 if ntasks is None else self.cpus_per_task  # cores of one counted unit

        def in_cores(times: Any) -> Any:
            return {width * each: time for width, time in times.items()} if isinstance(times, Mapping) else times

        self.cores: list[int] | None = given.get("cores") if ntasks is None else [count * each for count in ntasks]
        self.nodes: list[int] | None = given.get("nodes")
        self.walltime_s: float | Mapping[int, float] = in_cores(given["walltime"])
        self.expected_s: float | Mapping[int, float] | None = in_cores(expectation_in(given).until)
        self.scaling: Scaling | None = given.get("scaling")
        self.partitions = [str(name) for name in given.get("partition") or ("",)]
        is_list = bool(given.get("tasks") or given.get("tasks_file"))
        self.tasks = len(given.get("tasks") or ()) if is_list else None  # 0 if the number of tasks is not known

    def fields(self) -> dict[str, Any]:
        """Return the corresponding fields of a `Stage`.

        Raises `WorkflowError`: it contradicts itself, or has no values for its own shape.
        """
        if self.cores is not None and self.nodes is not None and max(len(self.cores), len(self.nodes)) > 1:
            raise self._error("asks for cores and nodes, and for several shapes", "Give one of the two.")
        own = self._sizes[0] if self._sizes else 0
        is_plain = len(self._sizes) <= 1 and len(self.partitions) <= 1
        moldable = Moldable(
            widths=tuple(sorted(self._sizes)) if len(self._sizes) > 1 else (),
            run_at=self._run_at,
            scaling=self._law,
            walltime_at=self._walltime_at,
            partitions=tuple(self.partitions) if len(self.partitions) > 1 else (),
        )
        return {
            "cores": self.cores[0] if self.cores else None,
            "nodes": self.nodes[0] if self.nodes else None,
            "cpus_per_task": self.cpus_per_task,
            "walltime_s": self._own_walltime_s(own),
            "expected_run_s": self._own_run_s(own),
            "partition": self.partitions[0],
            "moldable": None if is_plain else moldable,
        }

    def remarks(self) -> Iterator[Remark]:
        """Return notes about the request that are not errors."""
        points, offered = self._run_at, sorted(self._sizes)
        unused = [point.width for point in points if point.width not in offered]
        if unused:
            message = f"there is a run time on {self._of(unused)}, which is not one of its widths"
            yield Remark("expected", message, f"Add the width to `{self._what}`, if it may have that, too.")
        for narrow, wide in pairwise(points):
            if wide.run_s > narrow.run_s:
                took = ", ".join(f"{format_duration(point.run_s)} on {point.width}" for point in (wide, narrow))
                hint = "That is allowed, but the wider shape pays only if it waits less."
                yield Remark("expected", f"it is expected to run longer on more {self._what}: {took}", hint)
        if len(offered) < 2:
            return
        known = points or (RunAt(self._sizes[0], 1.0),)
        mute = [width for width in offered if run_time_at(width, known, self._law) is None]
        if mute:
            message = f"it is never submitted on {self._of(mute)}, because no run time is known there"
            yield Remark("expected" if points else self._what, message, self._remedy(len(known)))
        if self.scaling is not None and self.scaling.law == "tasks" and self.tasks is None:
            message = 'scaling = "tasks" is for work that is shared evenly among $ASA_CORES'
            yield Remark("scaling", message, "Write it as `tasks`, if it is a list of commands.")

    @property
    def _what(self) -> str:
        return "cores" if self.cores is not None else "nodes"

    @property
    def _sizes(self) -> Sequence[int]:
        return self.cores or self.nodes or ()

    @property
    def _law(self) -> Scaling:
        law = self.scaling
        if law is None:
            is_list = self.tasks is not None and len(self._sizes) > 1 and not isinstance(self.expected_s, Mapping)
            law = Scaling("tasks" if is_list else "measured")
        if law.law != "tasks":
            return law
        if self.cores is None:  # the number of tasks that fit on a node is not known here
            return Scaling("tasks")
        return Scaling("tasks", tasks=self.tasks or 0, per_task=self.cpus_per_task)

    @property
    def _run_at(self) -> tuple[RunAt, ...]:
        known = self.expected_s if isinstance(self.expected_s, Mapping) else {}
        return tuple(RunAt(width, run_s) for width, run_s in sorted(known.items()))

    @property
    def _walltime_at(self) -> tuple[tuple[int, float], ...]:
        return tuple(sorted(self.walltime_s.items())) if isinstance(self.walltime_s, Mapping) else ()

    def _own_run_s(self, own: int) -> float | None:
        if not isinstance(self.expected_s, Mapping):
            return self.expected_s
        found = run_time_at(own, self._run_at, self._law)
        if found is None:
            hint = f"Write it in `expected`, or put a width first in `{self._what}` of which it is known."
            raise self._error(f"no run time is known on {self._of([own])}, its own width", hint)
        return found.run_s

    def _own_walltime_s(self, own: int) -> float:
        if not isinstance(self.walltime_s, Mapping):
            return self.walltime_s
        found = run_time_at(own, [RunAt(*point) for point in self._walltime_at])
        if found is None:
            message = f"there is no walltime for {self._of([own])}, its own width"
            raise self._error(message, "Write it in `walltime`: others may be left out.")
        return found.run_s

    def _remedy(self, known: int) -> str:
        law = self._law
        if law.law == "measured":
            return 'Measure it there once, or give a law, as in scaling = "amdahl".'
        count = f"{known} {'is' if known == 1 else 'are'} known"
        more = f"{law.law} needs the run times of {law.min_points} widths, and {count}"
        return f"{more}; or its parameters, as in scaling = {_WRITTEN[law.law]}."

    def _of(self, widths: Sequence[int]) -> str:
        return f"{', '.join(map(str, widths))} {self._what}"

    def _error(self, message: str, hint: str) -> WorkflowError:
        return WorkflowError(message, where=self.where, hint=hint)
