"""Results as values that JSON has."""

from __future__ import annotations

import math
from typing import Any


def as_plain(value: Any) -> Any:
    """Make lists of tuples, and None of what is no finite number.

    `value`: dictionaries, lists and tuples, in each other at will, of texts, numbers and None.

    Examples
    --------
    >>> as_plain({"a": (1.5, float("nan"))})
    {'a': [1.5, None]}
    """
    if isinstance(value, dict):
        return {key: as_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
