"""Limits, pools and validities as vectors, over the time in which a request may be planned."""

from __future__ import annotations

from functools import lru_cache, reduce
from operator import add, and_
from typing import Final

from .rusv import FOREVER, RUSV, Stores, UsageSlot, cron_to_rusv
from .rusv_kernel import BEGIN
from .validity import Validity

HORIZON_S: Final = 366 * 86400
"""Cron strings are expanded for at least this time after the end of a request that starts at once.

After that time their limits hold always, so that no limit is ever exceeded.
"""

_DAY_S: Final = 86400
_STRIDE_S: Final = 28 * _DAY_S

_Held = tuple[tuple[Validity, int], ...]


def expansion_span(since: int, lasts_s: int) -> tuple[int, int]:
    """Return the time span for expanding cron strings.

    It is the same for many requests, so that they are expanded once.
    """
    start = since - since % _DAY_S
    return start, start + _DAY_S + HORIZON_S + (lasts_s // _STRIDE_S + 1) * _STRIDE_S


@lru_cache(maxsize=256)
def _within(validity: Validity, items: int, since: int, until: int) -> RUSV:
    """Return a vector with this number of items in a validity, and, for cron strings, also from `until` on."""
    if items <= 0:
        return RUSV(0)
    cron = validity.cron
    if cron is not None and cron.period is not None:
        template = RUSV(1, slots=[UsageSlot(start, end - 1, 1) for start, end in cron.template()])
        vector = cron_to_rusv(template, items, since, until - 1, cron.period)
    else:
        vector = RUSV(items)
        for start, end in validity.windows(BEGIN, FOREVER) if cron is None else validity.windows(since, until):
            vector.add_within(start, end, items)
    if cron is not None:
        vector.add_within(until, FOREVER, items)
    return vector


@lru_cache(maxsize=256)
def limited_to(available: int, held: _Held, since: int, until: int) -> RUSV:
    """Return a vector of the items that limits allow out of `available`: the lowest at each time."""
    whole = RUSV(available, stores=Stores.FREE)
    return reduce(and_, (whole - _within(validity, available - items, since, until) for validity, items in held))


@lru_cache(maxsize=256)
def kept_free(held: _Held, since: int, until: int) -> RUSV:
    """Return a vector of the items that pools keep free, counted as used."""
    return reduce(add, (_within(validity, items, since, until) for validity, items in held))


@lru_cache(maxsize=256)
def valid_within(available: int, validities: tuple[Validity, ...], since: int, until: int) -> RUSV:
    """Return a vector of the items that a consumer may have out of `available`: all while it is valid, else none.

    Cron strings are expanded up to `until`; nothing is free after that.
    """
    vectors = []
    for validity in validities:
        invalid = RUSV(available)
        invalid.add_within(BEGIN, FOREVER, available)
        for start, end in validity.windows(since if validity.cron else BEGIN, until if validity.cron else FOREVER):
            invalid.add_within(start, end, -available)
        vectors.append(RUSV(available, stores=Stores.FREE) - invalid)
    return reduce(and_, vectors)
