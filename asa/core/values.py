"""Values with many fields, of which each change makes another value."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def changed(value: T, **changes: Any) -> T:
    """Return a frozen dataclass value with some fields changed, as `dataclasses.replace` does, at a tenth of its cost.

    It is for values without slots that check nothing when they are made: their fields are copied as a whole, where
    `replace` passes each to a frozen `__init__`.

    Raises
    ------
    TypeError
        The value has no such field.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Job:
    ...     cores: int
    ...     state: str
    >>> changed(Job(4, "pending"), state="running")
    Job(cores=4, state='running')
    """
    fields = value.__dict__
    if not changes.keys() <= fields.keys():
        raise TypeError(f"{type(value).__name__} has no field {', '.join(sorted(changes.keys() - fields.keys()))}")
    new = object.__new__(type(value))
    new.__dict__.update(fields, **changes)
    return new
