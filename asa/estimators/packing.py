"""Arrays as JSON-ready data, compressed, for the states of estimators."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.core.reading import inflate


def packed(array: NDArray[Any]) -> dict[str, Any]:
    """Pack an array without loss."""
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 1)).decode()
    return {"type": array.dtype.str, "shape": list(array.shape), "data": data}


def unpacked(packed: Mapping[str, Any]) -> NDArray[Any]:
    """Unpack the result of `packed`. Damaged data raises KeyError, TypeError, ValueError or zlib.error."""
    data = inflate(base64.b64decode(packed["data"], validate=True))
    array: NDArray[Any] = np.frombuffer(data, dtype=np.dtype(packed["type"])).reshape(packed["shape"]).copy()
    return array
