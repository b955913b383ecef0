"""Results as JSON values."""

from __future__ import annotations

import math
from typing import Any


def as_plain(value: Any) -> Any:
    """Turn tuples into lists, and numbers that are not finite into None.

    `value`: nested dictionaries, lists and tuples of texts, numbers and None.

    Examples
    --------
    >>> as_plain({"a": (1.5, float("nan"))})
    {'a': [1.5, None]}
    """
    if isinstance(value, dict):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
