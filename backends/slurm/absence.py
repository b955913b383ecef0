"""What it means that Slurm does not show a job: for how long, and in how many looks, is kept for the next client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from asa.elements import Elements, parse_elements

_LOOKS = 3
_GRACE_S = 60.0


class Absence(NamedTuple):
    """In how many looks, one after the other, a job was not shown, and since when; no more are counted than matter."""

    looks: int = 0
    since_s: float = 0.0

    def again(self, clock_s: float) -> Absence:
        """Count another look."""
        is_first = not self.looks or clock_s < self.since_s  # which clocks that are set back, or differ, may say
        return Absence(min(self.looks + 1, _LOOKS), clock_s if is_first else self.since_s)

    def is_over(self, clock_s: float) -> bool:
        """Say whether the job was looked for often and long enough."""
        return self.looks >= _LOOKS and clock_s - self.since_s >= _GRACE_S


PRESENT: Final = Absence()
"""Of a job that was shown at the last look."""


def together(absences: Mapping[int, Absence]) -> tuple[tuple[str, int, float], ...]:
    """Write down the absences of an array's elements, those together that are alike.

    Examples
    --------
    >>> together({1: Absence(2, 10.0), 2: Absence(2, 10.0), 3: PRESENT})
    (('1-2', 2, 10.0),)
    """
    alike: dict[Absence, list[int]] = {}
    for number, absence in absences.items():
        if absence.looks:
            alike.setdefault(absence, []).append(number)
    return tuple((str(Elements.of(numbers)), *absence) for absence, numbers in sorted(alike.items()))


def of_elements(absent: Iterable[tuple[str, int, float]]) -> dict[int, Absence]:
    """Read which elements were absent by what `together` wrote.

    Examples
    --------
    >>> of_elements([("1-2", 2, 10.0)])
    {1: Absence(looks=2, since_s=10.0), 2: Absence(looks=2, since_s=10.0)}
    """
    return {n: Absence(looks, since_s) for which, looks, since_s in absent for n in parse_elements(which)}
