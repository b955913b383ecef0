"""The loops over the nodes: usage of each node over time (nRS), and the placement of a job's chunks (Section 5.2).

A node's vectors have common times: one list of steps for each node, each with the used items of every resource. All
nodes are in two flat arrays with space for `room` steps a node. The first step of a node begins at `BEGIN`.
"""

from __future__ import annotations

from typing import Any

from asa.core.compiled import kernel

from .rusv_kernel import FOREVER, earliest, last_at

FREE, SCATTER = 0, 1
BLOCK = 32
"""Number of nodes for which the next change is stored together."""


@kernel
def _split(times: Any, used: Any, base: int, count: int, place: int, time: int, width: int) -> int:
    if times[base + place] == time:
        return count
    for i in range(count, place + 1, -1):
        times[base + i] = times[base + i - 1]
        for r in range(width):
            used[(base + i) * width + r] = used[(base + i - 1) * width + r]
    times[base + place + 1] = time
    for r in range(width):
        used[(base + place + 1) * width + r] = used[(base + place) * width + r]
    return count + 1


@kernel
def _is_as_before(used: Any, base: int, i: int, j: int, width: int) -> bool:
    for r in range(width):
        if used[(base + i) * width + r] != used[(base + j) * width + r]:
            return False
    return True


@kernel
def _close(times: Any, used: Any, base: int, count: int, first: int, last: int, width: int) -> int:
    kept = first
    for i in range(first, last + 1):
        if kept > 0 and _is_as_before(used, base, i, kept - 1, width):
            continue
        if kept != i:
            times[base + kept] = times[base + i]
            for r in range(width):
                used[(base + kept) * width + r] = used[(base + i) * width + r]
        kept += 1
    gone = last + 1 - kept
    if gone:
        for i in range(last + 1, count):
            times[base + i - gone] = times[base + i]
            for r in range(width):
                used[(base + i - gone) * width + r] = used[(base + i) * width + r]
    return count - gone


@kernel
def book(
    times: Any, used: Any, counts: Any, room: int, width: int,
    nodes: Any, amounts: Any, many: int, sign: int, start: int, end: int,
) -> int:  # fmt: skip
    """Book amounts on many nodes within ``[start, end)``, or with a sign of -1 revoke them; return how many were done.

    It stops at a node without space for two more steps. O(steps) a node.
    """
    for m in range(many):
        node = nodes[m]
        base, count = node * room, counts[node]
        if count + 2 > room:
            return m
        place = last_at(times, count, start, base)
        grown = _split(times, used, base, count, place, start, width)
        first = place + (times[base + place] != start)
        if end < FOREVER:
            after = last_at(times, grown, end, base)
            more = _split(times, used, base, grown, after, end, width)
            after += times[base + after] != end
        else:
            more = grown
            after = more
        for i in range(first, after):
            for r in range(width):
                used[(base + i) * width + r] += sign * amounts[m * width + r]
        counts[node] = _close(times, used, base, more, first, min(after, more - 1), width)
    return many


@kernel
def forget_before(times: Any, used: Any, counts: Any, room: int, width: int, nodes: int, now: int) -> None:
    """Remove the steps that ended by a time."""
    for node in range(nodes):
        base = node * room
        past = last_at(times, counts[node], now, base)
        if past:
            for i in range(counts[node] - past):
                if i:
                    times[base + i] = times[base + i + past]
                for r in range(width):
                    used[(base + i) * width + r] = used[(base + i + past) * width + r]
            counts[node] -= past


@kernel
def _fitting(
    chunks: Any, chunk: int, usable: Any, to_peaks: Any, node: int, width: int, how: int, is_exclusive: bool, most: int
) -> int:  # fmt: skip
    """Return the number of chunks that fit on a node in addition to its usage."""
    many = most
    for r in range(width):
        peak = to_peaks[node * width + r]
        if is_exclusive and peak > 0:
            return 0
        need = chunks[chunk * width + r]
        if need > 0:
            many = min(many, max(usable[node * width + r] - peak, 0) // need)
    return min(many, 1) if how == SCATTER else many


@kernel
def _has_room(
    chunks: Any, kinds: int, usable: Any, suits: Any, to_peaks: Any, node: int, nodes: int, width: int,
    is_exclusive: bool,
) -> bool:  # fmt: skip
    """Return whether a chunk of any sort fits on a node."""
    for chunk in range(kinds):
        if suits[chunk * nodes + node]:
            fits = True
            for r in range(width):
                peak = to_peaks[node * width + r]
                need = chunks[chunk * width + r]
                if (need > 0 and usable[node * width + r] - peak < need) or (is_exclusive and peak > 0):
                    fits = False
            if fits:
                return True
    return False


@kernel
def _look(
    times: Any, used: Any, counts: Any, room: int, width: int, nodes: int, node: int, start: int, end: int,
    chunks: Any, kinds: int, usable: Any, suits: Any, is_exclusive: bool, to_peaks: Any,
) -> int:  # fmt: skip
    """Write the maximum usage of each resource within ``[start, end)``; return when a later window may differ.

    It searches backwards from the end, and stops at the last step that leaves no space for anything.

    While a window contains that step there is no space, so the result is the step's end. The peaks of such a node leave
    no space either.
    """
    base = node * room
    last = last_at(times, counts[node], end - 1, base)
    for r in range(width):
        to_peaks[node * width + r] = 0
    i = last
    while True:
        grows = i == last
        for r in range(width):
            here = used[(base + i) * width + r]
            if here > to_peaks[node * width + r]:
                to_peaks[node * width + r] = here
                grows = True
        if grows and not _has_room(chunks, kinds, usable, suits, to_peaks, node, nodes, width, is_exclusive):
            return times[base + i + 1] if i + 1 < counts[node] else FOREVER
        if times[base + i] <= start:
            break
        i -= 1
    changes = times[base + i + 1] if i + 1 < counts[node] else FOREVER
    if last + 1 < counts[node]:
        changes = min(changes, start + times[base + last + 1] - end + 1)
    return changes


@kernel
def _place(
    chunks: Any, wanted: Any, kinds: int, usable: Any, suits: Any, order: Any, candidates: int, nodes: int, width: int,
    how: int, is_exclusive: bool, to_peaks: Any, to_placed: Any,
) -> bool:  # fmt: skip
    """Place chunks, the largest first, on the cheapest nodes with space; return whether all were placed.

    Placed chunks are added to the peaks. O(chunks x candidates).
    """
    for chunk in range(kinds):
        left = wanted[chunk]
        for c in range(candidates):
            node = order[c]
            to_placed[chunk * candidates + c] = 0
            if left == 0 or not suits[chunk * nodes + node]:
                continue
            if how == SCATTER:
                taken = 0
                for other in range(chunk):
                    taken += to_placed[other * candidates + c]
                if taken:
                    continue
            many = left
            has_guest = False
            if is_exclusive:
                for other in range(chunk):
                    has_guest = has_guest or to_placed[other * candidates + c] > 0
            many = _fitting(chunks, chunk, usable, to_peaks, node, width, how, is_exclusive and not has_guest, left)
            if many:
                to_placed[chunk * candidates + c] = many
                left -= many
                for r in range(width):
                    to_peaks[node * width + r] += many * chunks[chunk * width + r]
        if left:
            return False
    return True


@kernel
def find_destination(
    times: Any, used: Any, counts: Any, room: int, width: int, nodes: int,
    slot_times: Any, slot_items: Any, slots: int,
    chunks: Any, wanted: Any, kinds: int, usable: Any, suits: Any, order: Any, candidates: int,
    how: int, is_exclusive: bool, lasts: int, since: int, until: int,
    fits: Any, changes: Any, soonest: Any, totals: Any, to_peaks: Any, to_placed: Any,
) -> int:  # fmt: skip
    """Find the first time at which a job's chunks fit onto nodes for its duration; `FOREVER` if there is none.

    `slot_times`, `slot_items`, `slots`: when the whole system has enough of all resources: the steps in which the items
    are not 0.
    `chunks`, `wanted`, `kinds`: the needs of each kind of chunk for each resource, the largest first, and the number of
    each kind.
    `usable`: the items of each node and resource that this job may use.
    `to_placed`: receives the places of chunks, by kind and order.

    Notes
    -----
    The sum over nodes of the chunks that fit changes only when some node's number does: the search goes from one such
    time to the next, and only tests the nodes concerned. O(candidates + steps tested), for any number of jobs.
    """
    start: int = since
    is_first = True
    while True:
        start = earliest(slot_times, slot_items, slots, -1, -1, lasts, start, until)
        if start == FOREVER:
            return FOREVER
        following = FOREVER
        if is_first:
            for chunk in range(kinds):
                totals[chunk] = 0
        for block in range(0, candidates, BLOCK):
            if is_first or soonest[block // BLOCK] <= start:
                soonest[block // BLOCK] = FOREVER
                for c in range(block, min(block + BLOCK, candidates)):
                    if is_first or changes[c] <= start:
                        node = order[c]
                        changes[c] = _look(
                            times, used, counts, room, width, nodes, node, start, start + lasts,
                            chunks, kinds, usable, suits, is_exclusive, to_peaks,
                        )  # fmt: skip
                        for chunk in range(kinds):
                            many = 0
                            if suits[chunk * nodes + node]:
                                most = wanted[chunk]
                                many = _fitting(
                                    chunks, chunk, usable, to_peaks, node, width, how, is_exclusive, most
                                )  # fmt: skip
                            totals[chunk] += many - (0 if is_first else fits[chunk * candidates + c])
                            fits[chunk * candidates + c] = many
                    soonest[block // BLOCK] = min(soonest[block // BLOCK], changes[c])
            following = min(following, soonest[block // BLOCK])
        is_first = False
        is_enough = True
        for chunk in range(kinds):
            is_enough = is_enough and totals[chunk] >= wanted[chunk]
        if is_enough:
            if _place(
                chunks, wanted, kinds, usable, suits, order, candidates, nodes, width, how, is_exclusive,
                to_peaks, to_placed,
            ):  # fmt: skip
                return start
            for c in range(candidates):  # the placement changed them
                _look(
                    times, used, counts, room, width, nodes, order[c], start, start + lasts,
                    chunks, kinds, usable, suits, is_exclusive, to_peaks,
                )  # fmt: skip
        if following >= FOREVER or following + lasts > until:
            return FOREVER
        start = following
