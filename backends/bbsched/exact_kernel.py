"""The loops of the exact search.

A usage has `width` parts. The first `limited` of them have limits; the first `kinds` of those are nodes that must be of
some kind or a better one. Parts from `losses` on are never positive. Rows are one after another in flat arrays. A set
of jobs is a number, in which earlier jobs have higher bits: of two sets the larger has its jobs nearer the head of the
queue.
"""

from __future__ import annotations

from typing import Any

from asa.core.compiled import At, kernel

BUCKET = 16
"""Number of labels in a leaf of the tree."""
GLANCE = 4
"""Number of points of the front that are tested first against a box: those that dominated one recently."""
FULL, OUT_OF_WORK = -1, -2
"""Reasons of a search that stopped early."""
_HASH = (1 << 31) - 1
_STEP, _FIND, _BOX, _LABEL, _POINT = 60, 40, 30, 10, 3
"""Work of deciding on a job, finding a label, and testing a box, a label, and a point of the front."""


# ---------------------------------------------------------------------- bounds


@kernel
def attain(uses: Any, width: int, jobs: int, part: int, limit: int, room: int, sums: Any, counts: Any) -> None:
    """List in order the possible sums of one part of a usage, for the jobs from each on; count -1 if too many."""
    sums[jobs * room] = 0
    counts[jobs] = 1
    for i in range(jobs - 1, -1, -1):
        old, n = (i + 1) * room, counts[i + 1]
        to, by = i * room, uses[i * width + part]
        a, b, m = 0, 0, 0
        if n < 0:
            counts[i] = -1
            continue
        while a < n or (b < n and sums[old + b] + by <= limit):
            if a < n and (b >= n or sums[old + a] <= sums[old + b] + by):
                value = sums[old + a]
                a += 1
            else:
                value = sums[old + b] + by
                b += 1
            if m > 0 and sums[to + m - 1] == value:
                continue
            if m == room:
                m = -1
                break
            sums[to + m] = value
            m += 1
        counts[i] = m


@kernel
def _most(sums: Any, base: int, count: int, limit: int) -> int:
    """Return the largest of the given sums that is not above a limit; the limit is not negative."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) >> 1
        if sums[base + middle] <= limit:
            low = middle
        else:
            high = middle
    most: int = sums[base + low]
    return most


@kernel
def add_up(uses: Any, width: int, jobs: int, order: Any, what: int, per: int, sums: Any) -> None:
    """For each job, add up two parts of the usages of it and all later jobs, in descending order of the parts' ratio.

    Writes pairs, for each job ``2 * (jobs + 1)`` numbers: without any job, with one, with two...
    """
    for i in range(jobs + 1):
        at = i * 2 * (jobs + 1)
        sums[at] = 0
        sums[at + 1] = 0
        for j in range(jobs):
            job = order[j]
            if job >= i:
                sums[at + 2] = sums[at] + uses[job * width + per]
                sums[at + 3] = sums[at + 1] + uses[job * width + what]
                at += 2


@kernel
def _at_best(sums: Any, base: int, count: int, limit: int) -> int:
    """Return the maximum of one resource where another is limited, if jobs could be split."""
    low, high = 0, count + 1
    while high - low > 1:
        middle = (low + high) >> 1
        if sums[base + 2 * middle] <= limit:
            low = middle
        else:
            high = middle
    at = base + 2 * low
    best: int = sums[at + 1]
    if low < count:
        share = float(limit - sums[at]) / float(sums[at + 2] - sums[at])
        best += int(share * float(sums[at + 3] - sums[at + 1]) + 0.001)
    return best


# ---------------------------------------------------------------------- the last jobs of the window


@kernel
def grow(
    uses: Any, width: int, limited: int, start: Any, limits: Any, jobs: int, needs: Any, needed: Any, most: int,
    labels: Any, sets: Any, other_labels: Any, other_sets: Any, table: Any, found: Any,
) -> None:  # fmt: skip
    """List the usages of all sets of the last jobs, each with the first such set, for as many jobs as pays.

    `found` receives their number, the first of these jobs, which of the two places they are in, and the size of their
    hash table.
    """
    count, first, is_other, size = 1, jobs, False, 4
    for k in range(width):
        labels[k] = 0
    sets[0] = 0
    while first > 0 and count <= most and (1 << min(first, 40)) > count:
        first -= 1
        while size < 4 * count:
            size *= 2
        if is_other:
            count = _extend(
                uses, width, limited, start, limits, jobs, needs, needed, first, count,
                other_labels, other_sets, labels, sets, table, size,
            )  # fmt: skip
        else:
            count = _extend(
                uses, width, limited, start, limits, jobs, needs, needed, first, count,
                labels, sets, other_labels, other_sets, table, size,
            )  # fmt: skip
        is_other = not is_other
    found[0], found[1], found[2], found[3] = count, first, is_other, size


@kernel
def _extend(
    uses: Any, width: int, limited: int, start: Any, limits: Any, jobs: int, needs: Any, needed: Any,
    job: int, count: int, labels: Any, sets: Any, to_labels: Any, to_sets: Any, table: Any, size: int,
) -> int:  # fmt: skip
    bit = 1 << (jobs - 1 - job)
    for i in range(size):
        table[i] = -1
    wanted = needs[job] & (bit - 1)
    n = 0
    for with_it in range(2):
        for i in range(count):
            chosen = sets[i]
            if with_it:
                if chosen & wanted != wanted:
                    continue
                is_in = True
                for k in range(limited):
                    if labels[i * width + k] + uses[job * width + k] + start[k] > limits[k]:
                        is_in = False
                        break
                if not is_in:
                    continue
                chosen |= bit
                for k in range(width):
                    to_labels[n * width + k] = labels[i * width + k] + uses[job * width + k]
            else:
                if chosen & needed[job]:
                    continue
                for k in range(width):
                    to_labels[n * width + k] = labels[i * width + k]
            place = _slot(to_labels, width, table, size, to_labels, n)
            there = table[place]
            if there < 0:
                table[place] = n
                to_sets[n] = chosen
                n += 1
            else:
                to_sets[there] = max(to_sets[there], chosen)
    return n


@kernel
def _slot(labels: Any, width: int, table: Any, size: int, wanted: Any, row: int) -> int:
    """Return the position in a hash table of a label equal to a row, or of the free entry for it."""
    mark = 17
    for k in range(width):
        mark = _mixed(mark, wanted[At(row * width + k)])
    place = mark & (size - 1)
    while table[At(place)] >= 0:
        more = 0
        for k in range(width):
            more |= labels[At(table[At(place)] * width + k)] ^ wanted[At(row * width + k)]
        if more == 0:
            break
        place = (place + 1) & (size - 1)
    return place


@kernel
def _mixed(mark: int, value: int) -> int:
    mixed: int = ((mark ^ (value & _HASH) ^ ((value >> 31) & _HASH)) * 1103515245) & _HASH
    return mixed ^ (mixed >> 15)


@kernel
def plant(
    labels: Any, sets: Any, width: int, count: int, order: Any, boxes: Any, stack: Any, to_labels: Any, to_sets: Any
) -> None:
    """Arrange labels as a tree: halves, each split along its widest part, with the bounds of each part.

    The box of node `n`, whose halves are ``2 * n`` and ``2 * n + 1``, is at ``2 * n * width``.
    """
    for i in range(count):
        order[i] = i
    stack[0], stack[1], stack[2] = 1, 0, count
    top = 3
    while top:
        top -= 3
        node, begin, end = stack[top], stack[top + 1], stack[top + 2]
        box = 2 * node * width
        for k in range(width):
            least = labels[order[begin] * width + k]
            most = least
            for i in range(begin + 1, end):
                value = labels[order[i] * width + k]
                least = min(least, value)
                most = max(most, value)
            boxes[box + k] = least
            boxes[box + width + k] = most
        if end - begin <= BUCKET:
            continue
        part, widest = 0, -1.0
        for k in range(width):
            whole = boxes[3 * width + k] - boxes[2 * width + k]
            spread = boxes[box + width + k] - boxes[box + k]
            if whole and spread / whole > widest:
                widest = spread / whole
                part = k
        middle = (begin + end) >> 1
        _split(labels, width, part, order, begin, end - 1, middle)
        stack[top], stack[top + 1], stack[top + 2] = 2 * node, begin, middle
        stack[top + 3], stack[top + 4], stack[top + 5] = 2 * node + 1, middle, end
        top += 6
    for i in range(count):
        to_sets[i] = sets[order[i]]
        for k in range(width):
            to_labels[i * width + k] = labels[order[i] * width + k]


@kernel
def _split(labels: Any, width: int, part: int, order: Any, low: int, high: int, middle: int) -> None:
    """Partition labels, so that none before the middle has less of a part than one after it."""
    while low < high:
        pivot = labels[order[(low + high) >> 1] * width + part]
        i, j = low, high
        while i <= j:
            while labels[order[i] * width + part] > pivot:
                i += 1
            while labels[order[j] * width + part] < pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


# ---------------------------------------------------------------------- the front


@kernel
def wasted(least: Any, most: Any, kinds: int, free: Any, steps: Any, base: int) -> int:
    """Return a lower bound of the waste by jobs that get better nodes than needed, for a usage between two bounds."""
    over, more = 0, 0
    for k in range(kinds - 1):
        over = max(over + max(least[k] - most[k + 1], 0) - free[k], 0)
        more += over * steps[base + k]
    return more


@kernel
def _beaten(points: Any, sets: Any, count: int, goals: int, values: Any, shift: int, chosen: int) -> int:
    """Find a point of the front that dominates the given values, and move it forward; -1 if there is none.

    An equal point does not count if its set begins like a given set: an earlier set may have the same values.
    """
    for a in range(count):
        more = 0  # negative if the point is worse in any part, and 0 if it is equal
        for g in range(goals):
            more |= points[At(a * goals + g)] - values[At(g)]
        if more < 0 or (more == 0 and (sets[a] < 0 or (sets[a] >> shift) == chosen)):
            continue
        if a:
            to = a >> 1
            for g in range(goals):
                points[a * goals + g], points[to * goals + g] = points[to * goals + g], points[a * goals + g]
            sets[a], sets[to] = sets[to], sets[a]
            return to
        return 0
    return -1


@kernel
def _enter(points: Any, sets: Any, count: int, most: int, goals: int, values: Any, chosen: int) -> int:
    """Add a point to the front, if none is better, and remove those that it dominates; -1 if there is no space."""
    a = 0
    while a < count:
        more, less = 0, 0
        for g in range(goals):
            more |= points[At(a * goals + g)] - values[At(g)]
            less |= values[At(g)] - points[At(a * goals + g)]
        if more >= 0:
            if more == 0:
                sets[a] = max(sets[a], chosen)
            return count
        if less >= 0:
            count -= 1
            for g in range(goals):
                points[a * goals + g] = points[count * goals + g]
            sets[a] = sets[count]
        else:
            a += 1
    if count == most:
        return -1
    for g in range(goals):
        points[count * goals + g] = values[g]
    sets[count] = chosen
    return count + 1


# ---------------------------------------------------------------------- the search


@kernel
def search(
    uses: Any, width: int, limited: int, kinds: int, losses: int, jobs: int, limits: Any, needs: Any, needed: Any,
    goal_parts: Any, goals: int, is_goal: Any, free: Any, steps: Any,
    rest: Any, sums: Any, room: int, counts: Any, pairs: Any, many_pairs: int, paired: Any,
    first: int, labels: Any, label_sets: Any, label_count: int, boxes: Any, stack: Any,
    table: Any, table_size: int, corner: Any,
    usage: Any, chosen: Any, stage: Any, least: Any, most: Any, values: Any, bars: Any,
    seen: Any, seen_at: Any, seen_size: int,
    points: Any, sets: Any, count: int, max_points: int, max_work: int, outcome: Any,
) -> int:  # fmt: skip
    """Find the front: decide on the first jobs one after another, and look up the others in the tree.

    A job is first taken, then left, so that sets come in order, nearest the head first. A branch is pruned if a point
    of the front is as good as every set that the branch could reach, or if an earlier branch used the same and could
    reach as good a set. `usage` begins with earlier usage. With a table of labels, only a set that uses as much as the
    corner is searched. Returns the number of points; `outcome` receives the work, and why the search stopped, or 0.
    """
    work, depth = 0, 0
    has_spill = False
    for g in range(goals):
        has_spill = has_spill or (goal_parts[g] >= losses and kinds > 1)
    stage[0] = 0
    chosen[0] = 0
    outcome[1] = 0
    while depth >= 0:
        at = depth * width
        if stage[depth] == 0:
            work += _STEP
            if work > max_work:
                outcome[1] = OUT_OF_WORK
                break
            if depth == first and table_size:
                work += _FIND
                for k in range(width):
                    least[k] = corner[k] - usage[at + k]
                there = table[_slot(labels, width, table, table_size, least, 0)]
                if there >= 0:
                    sets[0] = chosen[depth] | label_sets[there]
                    count = 1
                    break
                depth -= 1
                continue
            if depth == first:
                count, work = _look_up(
                    width, limited, kinds, losses, jobs - first, limits, goal_parts, goals, free, steps,
                    labels, label_sets, label_count, boxes, stack, usage, at, chosen[depth], least, most, values, bars,
                    points, sets, count, max_points, work, max_work,
                )  # fmt: skip
                if count < 0 or work > max_work:
                    outcome[1] = FULL if count < 0 else OUT_OF_WORK
                    count = -1 - count if count < 0 else count
                    break
                depth -= 1
                continue
            for k in range(width):
                left = rest[depth * width + k]
                if k < limited:
                    spare = limits[k] - usage[at + k]
                    if left > spare:
                        n = counts[k * (jobs + 1) + depth]
                        left = spare if n < 0 else _most(sums, (k * (jobs + 1) + depth) * room, n, spare)
                elif k >= losses:
                    left = 0
                most[k] = left
            for p in range(many_pairs):
                what, per = pairs[2 * p], pairs[2 * p + 1]
                spare = limits[per] - usage[at + per]
                if rest[depth * width + per] > spare:
                    base = (p * (jobs + 1) + depth) * 2 * (jobs + 1)
                    most[what] = min(most[what], _at_best(paired, base, jobs - depth, spare))
            for k in range(width):
                least[k] = usage[at + k]
                most[k] += usage[at + k]
            for g in range(goals):
                part = goal_parts[g]
                values[g] = most[part]
                if part >= losses and kinds > 1:
                    values[g] -= wasted(least, most, kinds, free, steps, (part - losses) * (kinds - 1))
            hit = _beaten(points, sets, min(count, GLANCE), goals, values, 0, -1)
            if hit >= 0 or _is_seen(
                usage, at, width, limited, kinds, limits, rest, depth, is_goal, has_spill, seen, seen_at, seen_size
            ):
                depth -= 1
                continue
            stage[depth] = 1
            bit = 1 << (jobs - 1 - depth)
            wanted = needs[depth] & -bit
            if chosen[depth] & wanted == wanted:
                is_in = True
                for k in range(limited):
                    if usage[at + k] + uses[depth * width + k] > limits[k]:
                        is_in = False
                        break
                if is_in:
                    for k in range(width):
                        usage[at + width + k] = usage[at + k] + uses[depth * width + k]
                    chosen[depth + 1] = chosen[depth] | bit
                    depth += 1
                    stage[depth] = 0
        elif stage[depth] == 1:
            stage[depth] = 2
            bit = 1 << (jobs - 1 - depth)
            if chosen[depth] & needed[depth] == 0:
                for k in range(width):
                    usage[at + width + k] = usage[at + k]
                chosen[depth + 1] = chosen[depth]
                depth += 1
                stage[depth] = 0
        else:
            depth -= 1
    outcome[0] = work
    return count


@kernel
def _is_seen(
    usage: Any, at: int, width: int, limited: int, kinds: int, limits: Any, rest: Any, depth: int,
    is_goal: Any, has_spill: bool, seen: Any, seen_at: Any, size: int,
) -> bool:  # fmt: skip
    """Whether an earlier branch had equal usage, or equal usage of scarce parts; otherwise remember this branch.

    A part is scarce if it may not suffice for all jobs that are left.
    """
    scarce = 0
    for k in range(limited):
        if usage[at + k] + rest[depth * width + k] > limits[k]:
            scarce |= 1 << k
    mark = _mixed(depth + 1, scarce)
    for k in range(limited):
        if (is_goal[k] and (scarce >> k) & 1) or (has_spill and k < kinds):
            mark = _mixed(mark, usage[at + k])
    head = (depth << 32) | scarce
    slot = mark & (size - 2)
    for way in range(2):
        place = slot + way
        if seen_at[place] != head:
            continue
        is_covered = True
        for k in range(width):
            new, old = usage[at + k], seen[place * width + k]
            if k < limited and ((is_goal[k] and (scarce >> k) & 1) or (has_spill and k < kinds)):
                is_covered = new == old
            elif is_goal[k]:
                is_covered = old >= new
            elif k < limited and (scarce >> k) & 1:
                is_covered = old <= new
            if not is_covered:
                break
        if is_covered:
            return True
    place = slot + (seen_at[slot] >= 0 and seen_at[slot + 1] < 0)
    if seen_at[slot] >= 0 and seen_at[slot + 1] >= 0:
        for k in range(width):  # the older of two entries is replaced
            seen[slot * width + k] = seen[(slot + 1) * width + k]
        seen_at[slot] = seen_at[slot + 1]
        place = slot + 1
    seen_at[place] = head
    for k in range(width):
        seen[place * width + k] = usage[at + k]
    return False


@kernel
def _look_up(
    width: int, limited: int, kinds: int, losses: int, shift: int, limits: Any, goal_parts: Any, goals: int,
    free: Any, steps: Any, labels: Any, label_sets: Any, label_count: int, boxes: Any, stack: Any,
    usage: Any, at: int, chosen: int, least: Any, most: Any, values: Any, bars: Any,
    points: Any, sets: Any, count: int, max_points: int, work: int, max_work: int,
) -> tuple[int, int]:  # fmt: skip
    """Go through the sets of the last jobs that fit in addition to the chosen ones, and add good ones to the front.

    Returns the number of points, as ``-1 - count`` if there was no space, and the work.
    """
    stack[0], stack[1], stack[2] = 1, 0, label_count
    top = 3
    prefix = chosen >> shift
    for g in range(goals):
        bars[g] = points[g] - usage[at + goal_parts[g]] if count else -(1 << 62)
    while top:
        top -= 3
        node, begin, end = stack[top], stack[top + 1], stack[top + 2]
        work += _BOX
        box = 2 * node * width
        spare = 0
        for k in range(limited):
            spare |= limits[At(k)] - usage[At(at + k)] - boxes[At(box + k)]
            most[At(k)] = min(limits[At(k)], usage[At(at + k)] + boxes[At(box + width + k)])
        if spare < 0:
            continue
        for g in range(goals):
            part = goal_parts[g]
            if part < limited:
                values[g] = most[part]
            else:
                values[g] = usage[At(at + part)] + boxes[At(box + width + part)]
                if part >= losses and kinds > 1:
                    for k in range(kinds):
                        least[k] = usage[At(at + k)] + boxes[At(box + k)]
                    values[g] -= wasted(least, most, kinds, free, steps, (part - losses) * (kinds - 1))
        hit = _beaten(points, sets, min(count, GLANCE), goals, values, shift, prefix)
        if hit >= 0:
            continue
        if end - begin > BUCKET:
            middle = (begin + end) >> 1
            stack[top], stack[top + 1], stack[top + 2] = 2 * node + 1, middle, end
            stack[top + 3], stack[top + 4], stack[top + 5] = 2 * node, begin, middle
            top += 6
            continue
        work += _LABEL * (end - begin)
        for i in range(begin, end):
            more = 0
            for g in range(goals):  # first the goals that most often excluded a solution
                more |= bars[At(g)] - labels[At(i * width + goal_parts[At(g)])]
            if more > 0:
                continue
            spare = 0
            for k in range(limited):
                least[At(k)] = usage[At(at + k)] + labels[At(i * width + k)]
                spare |= limits[At(k)] - least[At(k)]
            if spare < 0:
                continue
            for g in range(goals):
                part = goal_parts[g]
                values[g] = usage[At(at + part)] + labels[At(i * width + part)]
                if part >= losses and kinds > 1:
                    values[g] -= wasted(least, least, kinds, free, steps, (part - losses) * (kinds - 1))
            hit = _beaten(points, sets, count, goals, values, shift, prefix)
            work += _POINT * (count if hit < 0 else hit)
            if hit < 0:
                grown = _enter(points, sets, count, max_points, goals, values, chosen | label_sets[i])
                work += _POINT * count
                if grown < 0:
                    return -1 - count, work
                count = grown
                hit = count - 1
            for g in range(goals):
                bars[g] = points[hit * goals + g] - usage[at + goal_parts[g]]
        if work > max_work:
            break
    return count, work
