"""Job arrays: the numbers of their elements, as sbatch takes them, and how many elements run at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import Final

from asa.core.late import dataclass
from asa.core.patterns import pattern
from asa.errors import InputError
from asa.keys import Notation

__all__ = [
    "MAX_ELEMENT",
    "MAX_ELEMENTS",
    "NONE",
    "NOTATION",
    "Array",
    "Elements",
    "hardly_one",
    "parse_array",
    "parse_array_of",
    "parse_elements",
]

MAX_ELEMENT: Final = 4_000_000
"""Upper bound of an element's number: Slurm's ``MaxArraySize`` is at most 4,000,001."""

MAX_ELEMENTS: Final = 100_000
"""Upper bound of a stage's elements."""

_LEAST_RUN = 3  # consecutive numbers with the same step that are written as a range
_FEW_RANGES = 8  # up to this number of ranges, searching them is as fast as searching a set
_PART = pattern(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_HINT: Final = "Write them as sbatch does: 0-19, 1,3,5, 0-99:10, 0-19%4."

Range = tuple[int, int, int]
"""Equidistant numbers: the first, the last, and the step."""


@dataclass(frozen=True)
class Elements:
    """A set of element numbers of a job array.

    Sets of the same numbers are equal. Space is O(ranges); operations take O(numbers).

    `ranges`: ranges of its numbers, in ascending order, as `Elements.of` makes them.

    Examples
    --------
    >>> elements = Elements.of([1, 2, 3, 7, 9, 11])
    >>> str(elements), len(elements), 9 in elements, str(elements - Elements.of([2]))
    ('1-3,7-11:2', 6, True, '1,3,7-11:2')
    """

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Elements:
        """Make a set from any numbers."""
        return cls(tuple(_ranges(sorted(set(numbers)))))

    def __iter__(self) -> Iterator[int]:
        return iter(self._sorted)

    def __len__(self) -> int:
        return sum((last - first) // step + 1 for first, last, step in self.ranges)

    def __contains__(self, number: object) -> bool:
        if len(self.ranges) > _FEW_RANGES:
            return number in self._members
        return isinstance(number, int) and any(
            first <= number <= last and not (number - first) % step for first, last, step in self.ranges
        )

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __or__(self, other: Elements) -> Elements:
        return Elements.of((*self, *other)) if self and other else self or other

    def __and__(self, other: Elements) -> Elements:
        return Elements.of(set(self) & set(other))

    def __sub__(self, other: Elements) -> Elements:
        return Elements.of(set(self) - set(other)) if self and other else self

    def __str__(self) -> str:
        return ",".join(
            f"{first}" if first == last else f"{first}-{last}" if step == 1 else f"{first}-{last}:{step}"
            for first, last, step in self.ranges
        )

    @cached_property
    def _members(self) -> frozenset[int]:
        return frozenset(self)

    @cached_property
    def _sorted(self) -> tuple[int, ...]:
        return tuple(sorted(n for first, last, step in self.ranges for n in range(first, last + 1, step)))

    @property
    def first(self) -> int:
        """The smallest number."""
        return self._sorted[0]

    @property
    def last(self) -> int:
        """The largest number."""
        return self._sorted[-1]

    def take(self, count: int) -> Elements:
        """Return the first numbers.

        `count`: upper bound of how many.
        """
        return self if count >= len(self) else Elements.of(self._sorted[:count])


NONE: Final = Elements()
"""The empty set of elements."""


@dataclass(frozen=True, slots=True)
class Array:
    """The elements of a job array that are asked for.

    `elements`: those that are to run.
    `at_once`: upper bound of those that run at the same time; 0 for none.
    `whole`: all elements of the stage, if `elements` are only the remaining ones; None if they are the same.
    `is_compact`: whether the batch system numbers the elements from 0 on, since it does not take numbers this large.

    Examples
    --------
    >>> str(Array(Elements.of(range(1, 201)), at_once=20))
    '1-200%20'
    """

    elements: Elements
    at_once: int = 0
    whole: Elements | None = None
    is_compact: bool = False

    def __repr__(self) -> str:
        whole = f", whole={str(self.whole)!r}" if self.whole is not None else ""
        return f"Array({str(self)!r}{whole}{', is_compact=True' * self.is_compact})"

    def __str__(self) -> str:
        return f"{self.elements}{f'%{self.at_once}' if self.at_once else ''}"

    @property
    def all(self) -> Elements:
        """All elements of the stage."""
        return self.elements if self.whole is None else self.whole

    @property
    def most_at_once(self) -> int:
        """Upper bound of elements that run at the same time."""
        return min(self.at_once or len(self.elements), len(self.elements))

    @property
    def step(self) -> int:
        """Step of the first of its ranges with a step above 1; else 1."""
        return next((step for _, _, step in self.all.ranges if step > 1), 1)

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """Names and values of the variables that tell each element about the whole array."""
        whole = self.all
        values = {"COUNT": len(whole), "MIN": whole.first, "MAX": whole.last, "STEP": self.step}
        return tuple((f"SLURM_ARRAY_TASK_{name}", str(value)) for name, value in values.items())

    @property
    def names(self) -> frozenset[str]:
        """Names of all variables that Slurm sets only for elements of arrays."""
        return frozenset({"SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", *dict(self.variables)})

    def only(self, elements: Elements) -> Array:
        """Return the array with only some of its elements.

        `elements`: these elements.
        """
        return self if elements == self.elements else replace(self, elements=elements, whole=self.all)


def parse_elements(text: str) -> Elements:
    """Read element numbers.

    `text`: as sbatch takes them, without ``%``.
    Raises `InputError`: it has no numbers, or too many.

    Examples
    --------
    >>> list(parse_elements("0-30:10,7"))
    [0, 7, 10, 20, 30]
    """
    numbers: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise InputError(f"{text!r} lists no elements", hint=_HINT)
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if step < 1:
            raise InputError(f"{text!r} has a step of 0", hint="Give 1 or more.")
        if last < first:
            raise InputError(f"{text!r} ends before it begins: {part.strip()}", hint="Write the least first.")
        if (last - first) // step >= MAX_ELEMENTS:
            raise InputError(f"{text!r} is too many elements", hint=f"At most {MAX_ELEMENTS}.")
        if last > MAX_ELEMENT:
            raise InputError(f"{text!r} has an element of the number {last}", hint=f"At most {MAX_ELEMENT}.")
        numbers.update(range(first, last + 1, step))
    if len(numbers) > MAX_ELEMENTS:
        raise InputError(f"{text!r} is too many elements", hint=f"At most {MAX_ELEMENTS}.")
    return Elements.of(numbers)


def parse_array(text: str) -> Array:
    """Read the value of the option ``--array``.

    `text`: as sbatch takes it.
    Raises `InputError`: it lists no elements or too many, or lets none of them run.

    Examples
    --------
    >>> array = parse_array("1-9:2%3")
    >>> str(array.elements), array.at_once, array.step
    ('1-9:2', 3, 2)
    """
    listed, percent, at_once = text.strip().partition("%")
    elements = parse_elements(listed)
    if percent and not (at_once.isascii() and at_once.isdecimal()):
        raise InputError(f"{text!r} says with % no number of elements that run at once", hint=_HINT)
    if percent and not int(at_once):
        raise InputError(
            f"{text!r} lets none of its elements run at once", hint="Give % a number above 0, or leave it out for all."
        )
    return Array(elements, int(at_once or 0))


def parse_array_of(given: object) -> Array:
    """Read an array as files and programs give it.

    `given`: text as sbatch takes it, a number, or several numbers.
    Raises `InputError`: as `parse_array` does; or it is of another type.

    Examples
    --------
    >>> str(parse_array_of(range(1, 5))), str(parse_array_of(7))
    ('1-4', '7')
    """
    if isinstance(given, str):
        return parse_array(given)
    numbers = [given] if isinstance(given, int) else given
    if not isinstance(numbers, list | tuple | range) or not numbers:
        raise InputError(f"{given!r} lists no elements", hint=_HINT)
    if any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        raise InputError(f"{given!r} has elements that are no whole numbers", hint=_HINT)
    if len(numbers) > MAX_ELEMENTS or not 0 <= min(numbers) <= max(numbers) <= MAX_ELEMENT:
        raise InputError(
            "has too many elements, or one of too large a number or below 0",
            hint=f"At most {MAX_ELEMENTS} elements, of numbers from 0 to {MAX_ELEMENT}.",
        )
    return Array(Elements.of(numbers))


NOTATION: Final = Notation(
    read=parse_array_of,
    given=(Integral, str, list, tuple, range),
    words='numbers of elements, as in "1-200%20"',
    pattern=r"^\s*\d+(-\d+(:\d+)?)?(\s*,\s*\d+(-\d+(:\d+)?)?)*(%[0-9]+)?\s*$",
    others=({"type": "integer", "minimum": 0, "maximum": MAX_ELEMENT},),
)
"""The notation of a job array."""


def _ranges(numbers: Sequence[int]) -> Iterator[Range]:
    """Put ascending numbers into ranges, greedily: a range extends as long as the step stays the same."""
    at = 0
    while at < len(numbers):
        end = at + 1
        if end < len(numbers):
            step = numbers[end] - numbers[at]
            while end + 1 < len(numbers) and numbers[end + 1] - numbers[end] == step:
                end += 1
            if end - at + 1 >= _LEAST_RUN or step == 1:
                yield numbers[at], numbers[end], step
                at = end + 1
                continue
        yield numbers[at], numbers[at], 1
        at += 1


def hardly_one(array: Array | None) -> tuple[str, str] | None:
    """Return a hint if an array's single number was probably meant as the number of elements."""
    if array is None or len(array.elements) != 1 or (number := max(array.elements)) < 2:
        return None
    hint = f'The numbers of the elements are wanted, as by sbatch: array = "1-{number}" for {number} of them.'
    return f"an array of one element, number {number}", hint
