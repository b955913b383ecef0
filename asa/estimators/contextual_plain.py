"""The three slowest loops of `asa.estimators.contextual_kernel` in numpy, for use without numba.

Sums are taken in the same order as in the loops, so that the results are equal bit for bit: numpy adds rows one after
the other, and so does `cumsum` with elements; numpy's other sums use another order. This is about 30 times faster than
the loops in plain Python, and 15 times slower than compiled ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

_JOINT, _ALONE = 0, 1


def sum_up(x: Any, e: Any, own_rows: Any, own: Any, net: Any, top: Any, profiles: Any, hidden: Any, p: Any) -> None:
    """See `_sum_up` in the kernel."""
    count = len(p)
    units = net.shape[2]
    hidden[:units] = np.add.reduce(net[0] * x[:, None], axis=0)
    h = hidden[:units]
    h[h < 0.0] *= 0.01
    present = np.flatnonzero(e >= 0)
    rows = own_rows[own_rows >= 0]
    shifted = sliding_window_view(profiles[0], count, axis=1)[present, count - e[present]]
    logs = np.add.reduce(
        np.concatenate([top[0, units:], top[0, :units] * h[:, None], shifted, own[rows, _JOINT]]),
        axis=0,
    )
    most = float(logs.max())
    p[:] = [math.exp(value - most) for value in logs.tolist()]  # numpy's exp differs in the last bit between machines
    p /= np.cumsum(p)[-1]


def descend(
    x: Any,
    e: Any,
    own_rows: Any,
    own: Any,
    net: Any,
    top: Any,
    profiles: Any,
    hidden: Any,
    gradient: Any,
    back: Any,
    rates: Any,
    weight: float,
) -> None:
    """See `_descend` in the kernel."""
    count = len(gradient)
    units = net.shape[2]
    rate, profile_rate, own_rate, keep = rates[0] * weight, rates[1] * weight, rates[3] * weight, rates[2]
    new = 1.0 - keep
    total = np.cumsum(top[0, :units] * gradient, axis=1)[:, -1]
    back[:units] = np.where(hidden[:units] > 0.0, total, 0.01 * total)
    length = np.cumsum(gradient * gradient)[-1] / count
    h = np.append(hidden[:units], 1.0)
    size = keep * top[1, :, 0] + new * length * h * h
    top[1, :, 0] = size
    top[0] -= (rate * h / (np.sqrt(size) + 1e-4))[:, None] * gradient
    present = np.flatnonzero(e >= 0)
    size = keep * profiles[1, present, 0] + new * length
    profiles[1, present, 0] = size
    columns = (count - e[present])[:, None] + np.arange(count)
    profiles[0, present[:, None], columns] -= (profile_rate / (np.sqrt(size) + 1e-3))[:, None] * gradient
    step = back[:units]
    length = np.cumsum(step * step)[-1] / units
    seen = np.flatnonzero(x)
    size = keep * net[1, seen, 0] + new * length * x[seen] * x[seen]
    net[1, seen, 0] = size
    net[0, seen] -= (rate * x[seen] / (np.sqrt(size) + 1e-4))[:, None] * step
    rows = own_rows[own_rows >= 0]
    own[rows, _JOINT] = (1.0 - own_rate * rates[4]) * own[rows, _JOINT] - own_rate * gradient


def weigh_alone(low: int, high: int, own: Any, row: int, table: Any, share: float) -> None:
    """See `_weigh_alone` in the kernel."""
    weights = own[row, _ALONE]
    places = np.arange(len(weights))
    weights *= table[np.maximum(np.maximum(low - places, places - high), 0)]
    weights[:] = (1.0 - share) * weights / np.cumsum(weights)[-1] + share / len(weights)
