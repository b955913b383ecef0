"""Scheduling a whole log at once, without a client, under the conventions of one simulator or another.

Two simulators that both do EASY backfilling start jobs at different times, because they differ in conventions that
papers do not mention: `Rules` names them. What is here is one plain function; numba compiles it where it is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError
from asa.plugins import unknown_name

from .table import NEVER

__all__ = ["PRESETS", "Rules", "preset_rules", "replay"]

_BITS = 24
_MASK = (1 << _BITS) - 1


def _compiled(function: Any) -> Any:
    """Compile a function, or leave it as it is, an order of magnitude slower, where numba is not installed."""
    try:
        from numba import njit  # noqa: PLC0415 - optional
    except ImportError:
        return function
    return njit(cache=True)(function)


@dataclass(frozen=True, slots=True)
class Rules:
    """Conventions of a simulator of first come first served with EASY backfilling.

    Parameters
    ----------
    passes
        ``second``: one scheduling pass a second, after all completions and submissions; ``event``: one after each
        event.
    ends_first
        Within a second completions come before submissions (matters with a pass an event).
    extra
        Which releases at the shadow time count as left over: ``all`` of that second, or only as many as let the head
        fit (``least``).
    free
        What is idle while completions of this second are pending: only what was handled (``handled``), or also jobs
        whose expected end is now (``expected``; with a pass an event).
    candidates
        Whose duration a candidate is tested with: its ``request``, or its ``run`` time, which nobody can know.
    backfill
        False for plain first come first served.
    """

    passes: Literal["second", "event"] = "second"
    ends_first: bool = True
    extra: Literal["all", "least"] = "all"
    free: Literal["handled", "expected"] = "handled"
    candidates: Literal["request", "run"] = "request"
    backfill: bool = True


PRESETS = {
    "default": Rules(),
    "pyss": Rules(passes="event", ends_first=False, free="expected"),
    "cqsim": Rules(passes="event", candidates="run"),
}
"""Ours, and those of two public simulators."""


def preset_rules(name: str) -> Rules:
    """Look the rules of a simulator up.

    Raises
    ------
    InputError
        None of that name is known.
    """
    if name not in PRESETS:
        error: InputError = unknown_name("preset", name, list(PRESETS))
        raise error
    return PRESETS[name]


def replay(
    submit: NDArray[np.int64],
    run: NDArray[np.int64],
    request: NDArray[np.int64],
    cores: NDArray[np.int64],
    capacity: int,
    rules: Rules | None = None,
) -> NDArray[np.int64]:
    """Start of each job of a log.

    Parameters
    ----------
    submit, run, request, cores
        Columns of equal length, in order of submission; runs of at least 1 s, widths of 1 to `capacity`. A run longer
        than its request goes on past its expected end.
    capacity
        Cores of the machine.
    rules
        Conventions; ours if not given.

    Returns
    -------
    ndarray of int64
        Seconds, in the order of the columns.

    Raises
    ------
    InputError
        More jobs than can be numbered (2**24).

    Notes
    -----
    O(r + q) a pass in the running and the queued jobs.

    Examples
    --------
    >>> columns = [np.array(column) for column in ([0, 1, 2], [9, 9, 5], [9, 9, 5], [3, 4, 1])]
    >>> replay(*columns, capacity=4).tolist()
    [0, 9, 2]
    >>> replay(*columns, capacity=4, rules=Rules(backfill=False)).tolist()
    [0, 9, 18]
    """
    if len(submit) > _MASK:
        raise InputError(f"{len(submit)} jobs are too many", hint=f"Cut the log to {_MASK}.")
    rules = rules or Rules()
    columns: list[Any] = [np.ascontiguousarray(column, dtype=np.int64) for column in (submit, run, request, cores)]
    starts: NDArray[np.int64] = _replay(
        *columns,
        capacity,
        rules.passes == "second",
        rules.ends_first,
        rules.extra == "all",
        rules.passes == "event" and rules.free == "expected",
        rules.candidates == "run",
        rules.backfill,
    )
    return starts


@_compiled
def _replay(
    submit: Any,
    run: Any,
    request: Any,
    cores: Any,
    capacity: int,
    by_second: bool,
    ends_first: bool,
    extra_all: bool,
    expected_free: bool,
    test_by_run: bool,
    backfill: bool,
) -> Any:
    jobs = len(submit)
    start = np.full(jobs, -1, dtype=np.int64)
    queue = np.empty(jobs, dtype=np.int64)
    promised = np.empty(jobs, dtype=np.int64)  # sorted (requested end, job) of running jobs
    overdue = np.empty(jobs, dtype=np.int64)
    ends = np.empty(jobs, dtype=np.int64)  # heap of (end, sequence)
    by_sequence = np.empty(jobs, dtype=np.int64)
    head = tail = running = pending = sequence = 0
    row, free = 0, capacity
    while row < jobs or pending > 0:
        end = ends[0] >> _BITS if pending > 0 else NEVER
        arrival = submit[row] if row < jobs else NEVER
        now = min(end, arrival)
        # what happens at this second, or the one event that comes first
        while True:
            ends_now = pending > 0 and ends[0] >> _BITS == now
            arrives_now = row < jobs and submit[row] == now
            if ends_now and (by_second or ends_first or not arrives_now):
                job = by_sequence[ends[0] & _MASK]
                pending -= 1
                key, i = ends[pending], 0
                while True:
                    child = 2 * i + 1
                    if child >= pending:
                        break
                    if child + 1 < pending and ends[child + 1] < ends[child]:
                        child += 1
                    if ends[child] >= key:
                        break
                    ends[i] = ends[child]
                    i = child
                ends[i] = key
                free += cores[job]
                key = ((start[job] + request[job]) << _BITS) | job
                low, high = 0, running
                while low < high:
                    middle = (low + high) >> 1
                    if promised[middle] < key:
                        low = middle + 1
                    else:
                        high = middle
                running -= 1
                for i in range(low, running):
                    promised[i] = promised[i + 1]
            elif arrives_now:
                queue[tail] = row
                tail += 1
                row += 1
            else:
                break
            if not by_second:
                break
        # one scheduling pass: first from the head, then, behind a head that does not fit, through the rest
        idle = free
        if expected_free:
            i = 0
            while i < running and promised[i] >> _BITS <= now:
                idle += cores[promised[i] & _MASK]
                i += 1
        shadow, extra, at_head = NEVER, 0, True
        read = write = head
        while read < tail:
            job = queue[read]
            width = cores[job]
            begins = width <= idle
            if at_head and not begins:
                at_head = False
                if tail - read < 2 or idle == 0 or not backfill:
                    break
                # the head's reservation
                available, found, late = idle, False, 0
                if by_second:  # a job past its expected end is expected to end in a second; those are taken by number
                    while late < running and promised[late] >> _BITS <= now + 1:
                        overdue[late] = promised[late] & _MASK
                        late += 1
                    for i in range(1, late):
                        value, j = overdue[i], i
                        while j > 0 and overdue[j - 1] > value:
                            overdue[j] = overdue[j - 1]
                            j -= 1
                        overdue[j] = value
                for i in range(running):
                    ends_at, other = promised[i] >> _BITS, promised[i] & _MASK
                    if i < late:
                        ends_at, other = now + 1, overdue[i]
                    elif expected_free and ends_at <= now:
                        continue
                    if found and (not extra_all or ends_at > shadow):
                        break
                    available += cores[other]
                    if available >= width and not found:
                        shadow, found = ends_at, True
                extra = available - width
                queue[write] = job
                write += 1
                read += 1
                continue
            if not at_head and begins:
                lasts = run[job] if test_by_run else request[job]
                if now + lasts > shadow:
                    begins = width <= extra
                    if begins:
                        extra -= width
            if not begins:
                queue[write] = job
                write += 1
                read += 1
                continue
            read += 1
            if at_head:
                head = write = read
            idle -= width
            free -= width
            start[job] = now
            key = ((now + request[job]) << _BITS) | job
            low, high = 0, running
            while low < high:
                middle = (low + high) >> 1
                if promised[middle] < key:
                    low = middle + 1
                else:
                    high = middle
            for i in range(running, low, -1):
                promised[i] = promised[i - 1]
            promised[low] = key
            running += 1
            by_sequence[sequence] = job
            key, i = ((now + run[job]) << _BITS) | sequence, pending
            while i > 0:
                parent = (i - 1) >> 1
                if ends[parent] <= key:
                    break
                ends[i] = ends[parent]
                i = parent
            ends[i] = key
            pending += 1
            sequence += 1
        if write != read:
            while read < tail:
                queue[write] = queue[read]
                write += 1
                read += 1
            tail = write
    return start
