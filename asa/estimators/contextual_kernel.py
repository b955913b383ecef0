"""The arithmetic of `asa.estimators.contextual`: a job's features, its prediction, and learning.

All values are in double precision and computed in a fixed order, so that compiled code and plain Python agree bit for
bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from asa.core.compiled import COMPILED, kernel
from asa.estimators import contextual_plain as plain

# ------------------------------------------------------------------ the alternatives

K = 64
"""Number of alternatives: waits of 10 s, 12 s, 15 s, ... 54 days, in equal steps of the logarithm."""
FLOOR = 1.0  # log10 of the shortest alternative
STEP = 0.09
CELL_EDGES = 52  # bounds between the 53 alternatives of the paper

# ------------------------------------------------------------------ groups of jobs, and their data

GROUPS = 8
SITE, PARTITION, WIDTH, GEOMETRY, USER, USER_WIDTH, USER_GEOMETRY, LENGTH = range(GROUPS)

LAST, FAST, SLOW, STARTED, SUBMITTED, COUNT, OLDEST, YOUNGEST, WIDTH_CLASS, LENGTH_CLASS, IN_PARTITION = range(11)
# number of pending jobs; mean seconds from a start to the next, over the last ten and over the last hundred
QUEUED, GAP, LONG_GAP = range(11, 14)
STATS = 14

# ------------------------------------------------------------------ features of a job

PER_GROUP = 11
OF_STARTS, OF_WAITING = 3, 5  # first columns of these inputs
ALIKE = GROUPS * PER_GROUP  # ages and number of pending jobs that ask for no more
REQUEST = ALIKE + 3
CLOCK = REQUEST + 2
MEDIAN = CLOCK + 3
CONSTANT = MEDIAN + 1
SEEN = CONSTANT + 1
"""Number of a job's inputs; opinions and facts from outside follow."""

DRAINED = 14  # the first of the experts that count pending jobs, one for each group
REPORTS = DRAINED + GROUPS
"""Number of experts that name a wait, in the order of `_look`; opinions from outside follow."""
REPORTS_OF_WAITING = (3, 6, 10, 12, 13, *range(DRAINED, REPORTS))
REPORTS_OF_USERS = (5, 6, 7, 8, 9, 10, *range(DRAINED + USER, DRAINED + USER_GEOMETRY + 1))
ABSENT = -1
FIRST_GUESS = 20  # about 600 s, until a wait is known

# ------------------------------------------------------------------ data of a pending job

HIDDEN = 16
RECENT = 32  # number of waits of a geometry that its median is taken of
# rows for each entry in the table of own weights
JOINT, ALONE, WINDOW = range(3)

MIN_LEVEL, MAX_LEVEL = 0.005, 0.99
DECADES = 1.0
"""A quantile at a level beyond these bounds is the one at the bound, moved by so many decades per 1.0 of the excess."""
WINDING = 0.3
"""How far tracked levels may go below 0 or above 1.

After a change of regime very many forecasts made before it turn out too short at the same time. The lost coverage is
then compensated slowly, but only for as long as a level needs to return from here.
"""

# indices of scalars
NOW_ACTIVE = 0
TRUST = 1  # weights of the two learners: all together, and the geometry alone
OBSERVED = 3
SINCE = 4  # number of jobs submitted since a wait was last learned
LEARNED = 5  # number of latest waits, exact and censored, that are kept
DRAW = 6  # state of the random generator that draws from these
SCALARS = 7

PAST = 4096  # number of waits that are kept for learning again
AGAIN, AGAIN_WEIGHT = 2, 0.5  # number of kept waits that are learned again with each new wait, and their weight
# for each kept wait: the alternatives that may be true, the row of its own weights, and how many jobs had been
# submitted before it since a wait was last learned
LOW, HIGH, OWN, AT_ONCE = 0, 1, 2, 4
_MULTIPLIER, DRAWS = 16807.0, 2147483647.0  # Park and Miller's generator; its products are exact in double precision

WIDTHS = 32
"""Number of classes of widths with their own levels, in the rows of tracked levels; the site's row follows."""
LEARNED_OF = 9  # column after the nine levels: number of waits that moved them
ENOUGH = 100
"""Number of waits after which a width's own levels replace the site's; they move from the first wait on."""
PACE, CLASS_PACE = 0.002, 0.005
"""Smallest step of a tracked level: of the site, and of a width, which has fewer waits."""


# ------------------------------------------------------------------ memory layout

# Each array argument of a compiled function costs a tenth of a microsecond, so there are few: `model`, and a row of
# `slots` and one of `tags` for each pending job. The row of `slots` has its inputs, both parts of the mixture, its
# quantiles and its submission. The row of `tags` has the alternatives that experts named, and the previous and next job
# in each of its groups.

EXACT, AT_LEAST, AT_MOST = range(3)
MAX_S = 1e7
_STATED = 10  # the quantiles, and how many jobs had been submitted before it since a wait was last learned
_LINKS = 2 * GROUPS


_RATES = SCALARS
_TABLE = _RATES + 7
_TRACK = _TABLE + K
_ALTERNATIVES = _TRACK + (WIDTHS + 1) * (LEARNED_OF + 1)
_CELLS = _ALTERNATIVES + CELL_EDGES + 1
_SCRATCH = _CELLS + 2 * (CELL_EDGES + 1)
OUT = _SCRATCH + 4 * K
OUTSIDE = OUT + 10
# offsets in a model; later ones depend on the number of inputs from outside


class Model(NamedTuple):
    """The values that all geometries share, as parts of one array."""

    scalars: Any
    rates: Any
    table: Any  # factors on an alternative's weight, by its distance from the true one
    track: Any  # the tracked levels
    alternatives: Any  # those of the paper
    cells: Any  # positions of these and of the middles between them, in alternatives
    scratch: Any
    out: Any  # the quantiles and the point prediction
    outside: Any
    kept_x: Any  # 0 for inputs that an ablation leaves out, else 1
    kept_e: Any
    net: Any
    top: Any
    profiles: Any


def model_of(model: Any, numbers: int, experts: int) -> Model:
    """Return views of a model's parts."""
    kept_x = OUTSIDE + numbers - SEEN
    kept_e = kept_x + numbers
    net = kept_e + experts
    top = net + 2 * numbers * HIDDEN
    profiles = top + 2 * (HIDDEN + 1) * K
    end = profiles + 2 * experts * (2 * K + 1)
    return Model(
        model[:_RATES],
        model[_RATES:_TABLE],
        model[_TABLE:_TRACK],
        model[_TRACK:_ALTERNATIVES].reshape((WIDTHS + 1, LEARNED_OF + 1)),
        model[_ALTERNATIVES:_CELLS],
        model[_CELLS:_SCRATCH].reshape((2, CELL_EDGES + 1)),
        model[_SCRATCH:OUT].reshape((4, K)),
        model[OUT:OUTSIDE],
        model[OUTSIDE:kept_x],
        model[kept_x:kept_e],
        model[kept_e:net],
        model[net:top].reshape((2, numbers, HIDDEN)),
        model[top:profiles].reshape((2, HIDDEN + 1, K)),
        model[profiles:end].reshape((2, experts, 2 * K + 1)),
    )


_model_of = kernel(model_of)


def model_size(numbers: int, experts: int) -> int:
    """Return the length of a model."""
    of_weights = 2 * (numbers * HIDDEN + (HIDDEN + 1) * K + experts * (2 * K + 1))
    return OUTSIDE + (numbers - SEEN) + numbers + experts + of_weights


def slot_sizes(numbers: int, experts: int) -> tuple[int, int]:
    """Return the lengths of a row of `slots` and of `tags`."""
    return numbers + 2 * K + _STATED + 1, experts + _LINKS


@kernel
def _log(wait_s: float) -> float:
    """Return the decimal logarithm of a wait, floored."""
    return math.log10(wait_s) if wait_s > 10.0 else FLOOR


@kernel
def _place(log_wait: float) -> int:
    """Return the alternative nearest to a wait."""
    return min(K - 1, max(0, int((log_wait - FLOOR) / STEP + 0.5)))


@kernel
def _centred(log_wait: float) -> float:
    return (log_wait - 3.0) / 1.5


@kernel
def _age(seconds: float) -> float:
    return _centred(math.log10(seconds + 1.0)) if seconds > 0.0 else -2.0


@kernel
def _look(
    now: float,
    width: float,
    length: float,
    rows: Any,
    stats: Any,
    own: Any,
    own_rows: Any,
    submit: Any,
    active: Any,
    scalars: Any,
    outside: Any,
    x: Any,
    e: Any,
) -> None:
    """Compute a job's features: its groups' recent waits, their pending jobs and ages, and its request.

    `x` receives the network's inputs, `e` the alternative that each expert names, or `ABSENT`.
    """
    at = 0
    report = 0
    site = rows[SITE]
    for group in range(GROUPS):
        row = rows[group]
        count = stats[row, COUNT]
        source = row if count > 0.0 else site
        if stats[source, COUNT] > 0.0:
            last, fast, slow = stats[source, LAST], stats[source, FAST], stats[source, SLOW]
        else:
            last = fast = slow = 2.8
        x[at] = _centred(last)
        x[at + 1] = _centred(fast)
        x[at + 2] = _centred(slow)
        x[at + 3] = _age(now - stats[row, STARTED]) if count > 0.0 else 1.5
        x[at + 4] = _age(stats[source, GAP])
        x[at + 5] = _age(now - stats[row, SUBMITTED]) if stats[row, SUBMITTED] > -math.inf else 1.5
        first = int(stats[row, OLDEST])
        oldest = FLOOR
        if first >= 0:
            oldest = _log(now - submit[first])
            x[at + 6] = _centred(oldest)
            x[at + 7] = _centred(_log(now - submit[int(stats[row, YOUNGEST])]))
        else:
            x[at + 6] = -2.0
            x[at + 7] = -2.0
        # time until all pending jobs and this one have started, at the latest rate of starts
        queued = stats[row, QUEUED] + 1.0
        drained = _log(queued * stats[source, LONG_GAP])
        x[at + 8] = math.log10(queued) - 1.0
        x[at + 9] = _centred(_log(queued * stats[source, GAP]))
        x[at + 10] = _centred(drained)
        e[DRAINED + group] = _place(drained) if count > 1.0 else ABSENT
        at += PER_GROUP
        if group not in (PARTITION, LENGTH):
            e[report] = _place(last) if count > 0.0 else ABSENT
            report += 1
        if group in (GEOMETRY, USER, USER_GEOMETRY):
            e[report] = _place(oldest) if first >= 0 else ABSENT
            report += 1
        if group in (GEOMETRY, USER):
            e[report] = _place(fast) if count > 0.0 else ABSENT
            report += 1
    row = rows[GEOMETRY]
    count = int(stats[row, COUNT])
    if count > 0:
        median = own[own_rows[0], WINDOW, RECENT + min(count, RECENT) // 2]
        e[report] = _place(median)
    else:
        median = stats[site, SLOW] if stats[site, COUNT] > 0.0 else 2.8
        e[report] = ABSENT
    report += 1
    oldest = -1.0
    youngest = math.inf
    queued = 0.0
    for i in range(int(scalars[NOW_ACTIVE])):
        other = active[0, i]
        if (
            stats[other, WIDTH_CLASS] <= width
            and stats[other, LENGTH_CLASS] <= length
            and stats[other, IN_PARTITION] == rows[PARTITION]
        ):
            oldest = max(oldest, now - submit[int(stats[other, OLDEST])])
            youngest = min(youngest, now - submit[int(stats[other, YOUNGEST])])
            queued += stats[other, QUEUED]
    x[ALIKE + 2] = math.log10(queued + 1.0) - 1.0
    if oldest >= 0.0:
        e[report] = _place(_log(oldest))
        e[report + 1] = _place(_log(youngest))
        x[ALIKE] = _centred(_log(oldest))
        x[ALIKE + 1] = _centred(_log(youngest))
    else:
        e[report] = e[report + 1] = ABSENT
        x[ALIKE] = x[ALIKE + 1] = -2.0
    x[REQUEST] = (width - 4.0) / 3.0
    x[REQUEST + 1] = (length - 23.0) / 7.0
    day = now / 86400.0 * 2.0 * math.pi
    x[CLOCK] = math.sin(day)
    x[CLOCK + 1] = math.cos(day)
    x[CLOCK + 2] = math.sin(day / 7.0)
    x[MEDIAN] = _centred(median)
    x[CONSTANT] = 1.0
    opinions = e.shape[0] - REPORTS
    for i in range(outside.shape[0]):
        if i < opinions:  # an opinion: a wait in seconds
            wait = _log(outside[i])
            e[REPORTS + i] = _place(wait)
            x[SEEN + i] = _centred(wait)
        else:
            x[SEEN + i] = outside[i]


@kernel
def _sum_up_by_loops(
    x: Any, e: Any, own_rows: Any, own: Any, net: Any, top: Any, profiles: Any, hidden: Any, p: Any
) -> None:
    """Sum the contributions of all parts to the log-weights of the alternatives, and turn them into probabilities.

    Several rows are added in one pass, so that a sum is stored once instead of once per row; the order is that of the
    rows.
    """
    units = net.shape[2]
    numbers = x.shape[0]
    fours = numbers - numbers % 4
    for i in range(units):
        hidden[i] = 0.0
    for j in range(0, fours, 4):
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        for i in range(units):
            hidden[i] = (
                hidden[i] + net[0, j, i] * x0 + net[0, j + 1, i] * x1 + net[0, j + 2, i] * x2 + net[0, j + 3, i] * x3
            )
    for j in range(fours, numbers):
        for i in range(units):
            hidden[i] += net[0, j, i] * x[j]
    for i in range(units):
        if hidden[i] < 0.0:
            hidden[i] *= 0.01
    for k in range(K):
        p[k] = top[0, units, k]
    for i in range(0, units, 4):  # HIDDEN is a multiple of 4
        h0, h1, h2, h3 = hidden[i], hidden[i + 1], hidden[i + 2], hidden[i + 3]
        for k in range(K):
            p[k] = p[k] + top[0, i, k] * h0 + top[0, i + 1, k] * h1 + top[0, i + 2, k] * h2 + top[0, i + 3, k] * h3
    left_over = -1
    for m in range(e.shape[0]):
        if e[m] >= 0:
            if left_over < 0:
                left_over = m
            else:
                s, t = K - e[left_over], K - e[m]
                for k in range(K):
                    p[k] = p[k] + profiles[0, left_over, s + k] + profiles[0, m, t + k]
                left_over = -1
    if left_over >= 0:
        s = K - e[left_over]
        for k in range(K):
            p[k] += profiles[0, left_over, s + k]
    for a in range(2):
        row = own_rows[a]
        if row >= 0:
            for k in range(K):
                p[k] += own[row, JOINT, k]
    most = p[0]
    for k in range(K):
        most = max(most, p[k])
    total = 0.0
    for k in range(K):
        p[k] = math.exp(p[k] - most)
        total += p[k]
    for k in range(K):
        p[k] /= total


_sum_up = _sum_up_by_loops if COMPILED else plain.sum_up


@kernel
def predict(
    now: float,
    width: float,
    length: float,
    closeness: float,
    slot: int,
    rows: Any,
    stats: Any,
    own: Any,
    active: Any,
    model: Any,
    slots: Any,
    tags: Any,
) -> None:
    """Predict a job: the probabilities of the alternatives go to `scratch`, the quantiles and the wait to `out`.

    The inputs and both parts of the mixture are stored in the rows of `slot`, for when the wait becomes known.
    `rows`: those of the job's groups, then the two of its own weights.
    """
    numbers, experts = slots.shape[1] - 2 * K - _STATED - 1, tags.shape[1] - _LINKS
    m = _model_of(model, numbers, experts)
    own_rows = rows[GROUPS:]
    x, e = slots[slot, :numbers], tags[slot, :experts]
    both = slots[slot, numbers : numbers + 2 * K].reshape((2, K))
    submit = slots[:, numbers + 2 * K + _STATED]
    scalars, scratch = m.scalars, m.scratch
    _look(now, width, length, rows, stats, own, own_rows, submit, active, scalars, m.outside, x, e)
    for j in range(numbers):
        x[j] *= m.kept_x[j]
    for i in range(experts):
        if m.kept_e[i] == 0.0:
            e[i] = ABSENT
    _sum_up(x, e, own_rows, own, m.net, m.top, m.profiles, scratch[1], both[0])
    row = own_rows[0]
    together, alone = scalars[TRUST], scalars[TRUST + 1]
    asleep = stats[rows[GEOMETRY], COUNT] == 0.0  # a geometry without waits has no weights of its own to use
    for k in range(K):
        both[1, k] = both[0, k] if asleep else own[row, ALONE, k]
        scratch[0, k] = together * both[0, k] + alone * both[1, k]
    _decide(scratch, m.track, width, m.alternatives, m.cells, closeness, m.out)


@kernel
def _decide(scratch: Any, levels: Any, width: float, alternatives: Any, cells: Any, closeness: float, out: Any) -> None:
    """Compute the quantiles at the tracked levels and the point prediction from the probabilities in `scratch`.

    The point prediction minimizes the expected error in the logarithm, less `closeness` times the probability that the
    same one of the paper's alternatives is closest to the wait and to the prediction.
    """
    p = scratch[0]
    before = scratch[2]  # cumulative probability below each alternative
    sums = scratch[3]  # cumulative sum of probability times position
    width_class = min(WIDTHS - 1, int(width))
    row = width_class if levels[width_class, LEARNED_OF] >= ENOUGH else WIDTHS
    total = 0.0
    weighted = 0.0
    for k in range(K):
        before[k] = total
        sums[k] = weighted
        total += p[k]
        weighted += p[k] * k
    place = 0
    for i in range(10):
        level = levels[row, i] if i < 9 else 0.5
        if i == 9:
            place = 0
        certain = min(MAX_LEVEL, max(MIN_LEVEL, level))
        aim = certain * total
        while place < K - 1 and before[place + 1] < aim:
            place += 1
        share = (aim - before[place]) / p[place] if p[place] > 0.0 else 0.5
        share = min(1.0, max(0.0, share))
        # excess of the tracked level over the levels that the alternatives can express
        beyond = DECADES * (level - certain)
        if place == 0 and beyond <= 0.0:  # the lowest alternative includes all shorter waits; they are spread evenly
            out[i] = 10.0 * share
        else:
            out[i] = 10.0 ** max(FLOOR, FLOOR + STEP * (place - 0.5 + share) + beyond)
    median = out[9]
    best, chosen = math.inf, 0
    below = 0.0
    for a in range(cells.shape[1]):
        edge = cells[1, a]  # as a position among the alternatives
        if a == CELL_EDGES:
            mass_below = total
        else:
            k = min(K - 1, max(0, int(edge + 0.5)))
            inside = min(1.0, max(0.0, edge + 0.5 - k))
            mass_below = p[0] if k == 0 else before[k] + p[k] * inside
        mass = mass_below - below
        below = mass_below
        z = cells[0, a]
        k = min(K - 1, int(z) + 1)
        error = STEP * (z * (2.0 * before[k] - total) + weighted - 2.0 * sums[k])
        score = error - closeness * mass
        if score < best:
            best, chosen = score, a
    low = 0.0 if chosen == 0 else 0.5 * (alternatives[chosen - 1] + alternatives[chosen])
    high = math.inf if chosen == CELL_EDGES else 0.5 * (alternatives[chosen] + alternatives[chosen + 1])
    if low < median <= high:
        out[9] = median
    elif chosen == CELL_EDGES:
        out[9] = max(median, alternatives[chosen])
    else:
        out[9] = alternatives[chosen]


@kernel
def enqueue(slot: int, now: float, rows: Any, stats: Any, active: Any, model: Any, slots: Any, tags: Any) -> None:
    """Enqueue a job: it becomes the youngest in each of its groups. Its quantiles are stored."""
    numbers, experts = slots.shape[1] - 2 * K - _STATED - 1, tags.shape[1] - _LINKS
    m = _model_of(model, numbers, experts)
    scalars = m.scalars
    at = numbers + 2 * K
    slots[slot, at + _STATED] = now
    for i in range(9):
        slots[slot, at + i] = m.out[i]
    slots[slot, at + 9] = scalars[SINCE]
    scalars[SINCE] += 1.0
    older, younger = experts, experts + GROUPS
    for group in range(GROUPS):
        row = rows[group]
        youngest = int(stats[row, YOUNGEST])
        tags[slot, older + group] = youngest
        tags[slot, younger + group] = -1
        if youngest >= 0:
            tags[youngest, younger + group] = slot
        else:
            stats[row, OLDEST] = slot
            if group == GEOMETRY:
                count = int(scalars[NOW_ACTIVE])
                active[0, count] = row
                active[1, row] = count
                scalars[NOW_ACTIVE] = count + 1
        stats[row, YOUNGEST] = slot
        stats[row, SUBMITTED] = max(now, stats[row, SUBMITTED])
        stats[row, QUEUED] += 1.0


@kernel
def _dequeue(slot: int, rows: Any, stats: Any, active: Any, scalars: Any, tags: Any) -> None:
    before = tags.shape[1] - _LINKS
    behind = before + GROUPS
    for group in range(GROUPS):
        row = rows[group]
        stats[row, QUEUED] -= 1.0
        older, younger = tags[slot, before + group], tags[slot, behind + group]
        if older >= 0:
            tags[older, behind + group] = younger
        else:
            stats[row, OLDEST] = younger
        if younger >= 0:
            tags[younger, before + group] = older
        else:
            stats[row, YOUNGEST] = older
        if group == GEOMETRY and stats[row, OLDEST] < 0:
            count = int(scalars[NOW_ACTIVE]) - 1
            moved = active[0, count]
            place = active[1, row]
            active[0, place] = moved
            active[1, moved] = place
            scalars[NOW_ACTIVE] = count


@kernel
def _remember(wait: float, now: float, rows: Any, stats: Any, own: Any, own_row: int) -> None:
    """Update the averages of a wait's groups, and the median of its geometry."""
    for group in range(GROUPS):
        row = rows[group]
        count = stats[row, COUNT]
        stats[row, LAST] = wait
        if count > 0.0:
            gap = max(0.0, now - stats[row, STARTED])
            stats[row, GAP] += max(0.1, 1.0 / count) * (gap - stats[row, GAP])
            stats[row, LONG_GAP] += max(0.01, 1.0 / count) * (gap - stats[row, LONG_GAP])
        stats[row, STARTED] = now if count == 0.0 else max(now, stats[row, STARTED])
        if count == 0.0:
            stats[row, FAST] = stats[row, SLOW] = wait
        else:
            stats[row, FAST] += max(0.3, 1.0 / (count + 1.0)) * (wait - stats[row, FAST])
            stats[row, SLOW] += max(0.04, 1.0 / (count + 1.0)) * (wait - stats[row, SLOW])
        if group == GEOMETRY:  # a ring of the latest RECENT waits, and the same waits sorted
            held = int(count)
            turn = held % RECENT
            if held >= RECENT:
                gone = own[own_row, WINDOW, turn]
                i = RECENT
                while own[own_row, WINDOW, i] != gone:
                    i += 1
                while i < 2 * RECENT - 1:
                    own[own_row, WINDOW, i] = own[own_row, WINDOW, i + 1]
                    i += 1
                held = RECENT - 1
            own[own_row, WINDOW, turn] = wait
            i = RECENT + held
            while i > RECENT and own[own_row, WINDOW, i - 1] > wait:
                own[own_row, WINDOW, i] = own[own_row, WINDOW, i - 1]
                i -= 1
            own[own_row, WINDOW, i] = wait
        stats[row, COUNT] = count + 1.0


@kernel
def _aim(low: int, high: int, p: Any, target: Any) -> None:
    """Compute target probabilities if one of the alternatives from `low` to `high` is the true one.

    An exact wait is spread a little, since its neighbours are nearly right.
    """
    for k in range(K):
        target[k] = 0.0
    if low == high:
        if 0 < low < K - 1:
            target[low - 1] = target[low + 1] = 0.25
            target[low] = 0.5
        else:
            target[low] = 1.0
        return
    mass = 0.0
    for k in range(low, high + 1):
        mass += p[k]
    for k in range(low, high + 1):
        target[k] = p[k] / mass if mass > 0.0 else 1.0 / (high - low + 1)


@kernel
def _descend_by_loops(
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
    """Step down the gradient of the log loss: each part by its rate, each number by its usual size (RMSprop)."""
    units = net.shape[2]
    keep = rates[2]
    new = 1.0 - keep
    rate, profile_rate = rates[0] * weight, rates[1] * weight
    for i in range(0, units, 4):  # four independent sums, since each addition has to wait for the one before in its sum
        t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
        for k in range(K):
            g = gradient[k]
            t0 += g * top[0, i, k]
            t1 += g * top[0, i + 1, k]
            t2 += g * top[0, i + 2, k]
            t3 += g * top[0, i + 3, k]
        back[i] = t0 if hidden[i] > 0.0 else 0.01 * t0
        back[i + 1] = t1 if hidden[i + 1] > 0.0 else 0.01 * t1
        back[i + 2] = t2 if hidden[i + 2] > 0.0 else 0.01 * t2
        back[i + 3] = t3 if hidden[i + 3] > 0.0 else 0.01 * t3
    length = 0.0
    for k in range(K):
        length += gradient[k] * gradient[k]
    length /= K
    for i in range(units + 1):
        h = hidden[i] if i < units else 1.0
        size = keep * top[1, i, 0] + new * length * h * h
        top[1, i, 0] = size
        pace = rate * h / (math.sqrt(size) + 1e-4)
        for k in range(K):
            top[0, i, k] -= pace * gradient[k]
    for m in range(e.shape[0]):
        if e[m] >= 0:
            s = K - e[m]
            size = keep * profiles[1, m, 0] + new * length
            profiles[1, m, 0] = size
            pace = profile_rate / (math.sqrt(size) + 1e-3)
            for k in range(K):
                profiles[0, m, s + k] -= pace * gradient[k]
    length = 0.0
    for i in range(units):
        length += back[i] * back[i]
    length /= units
    for j in range(x.shape[0]):
        xj = x[j]
        if xj != 0.0:
            size = keep * net[1, j, 0] + new * length * xj * xj
            net[1, j, 0] = size
            pace = rate * xj / (math.sqrt(size) + 1e-4)
            for i in range(units):
                net[0, j, i] -= pace * back[i]
    own_rate = rates[3] * weight
    forget = 1.0 - own_rate * rates[4]
    for a in range(own_rows.shape[0]):
        row = own_rows[a]
        if row >= 0:
            for k in range(K):
                own[row, JOINT, k] = forget * own[row, JOINT, k] - own_rate * gradient[k]


@kernel
def _weigh_alone_by_loops(low: int, high: int, own: Any, row: int, table: Any, share: float) -> None:
    """Update the weights of one geometry: each alternative loses by its distance, then all share a little."""
    total = 0.0
    for k in range(K):
        off = low - k if k < low else (k - high if k > high else 0)
        own[row, ALONE, k] *= table[off]
        total += own[row, ALONE, k]
    for k in range(K):
        own[row, ALONE, k] = (1.0 - share) * own[row, ALONE, k] / total + share / K


@kernel
def _keep(
    x: Any, e: Any, low: int, high: int, own_rows: Any, at_once: float, place: int, past_x: Any, past_e: Any, past: Any
) -> None:
    """Keep the inputs of a job and the observation of its wait, for learning again."""
    for j in range(x.shape[0]):
        past_x[place, j] = x[j]
    for m in range(e.shape[0]):
        past_e[place, m] = e[m]
    past[place, LOW] = low
    past[place, HIGH] = high
    past[place, OWN] = own_rows[0]
    past[place, OWN + 1] = own_rows[1]
    past[place, AT_ONCE] = int(at_once)


_descend = _descend_by_loops if COMPILED else plain.descend
_weigh_alone = _weigh_alone_by_loops if COMPILED else plain.weigh_alone


@kernel
def learn(
    slot: int,
    kind: int,
    seconds: float,
    width: float,
    cores: float,
    walltime_s: float,
    since_s: float,
    noted: int,
    rows: Any,
    stats: Any,
    own: Any,
    active: Any,
    model: Any,
    slots: Any,
    tags: Any,
    past_x: Any,
    past_e: Any,
    past: Any,
    notes: Any,
) -> None:
    """Learn an observation of `seconds`; its `kind` is `EXACT`, `AT_LEAST` or `AT_MOST`.

    The rows of `slot` hold the job's inputs and prediction at submission. Some of the kept waits train the shared parts
    again, since one gradient step does not exhaust a wait. An exact wait is also written into row `noted` of `notes`,
    those of `asa.estimators.differences`. `since_s`: its submission, relative to their origin.
    """
    numbers, experts = slots.shape[1] - 2 * K - _STATED - 1, tags.shape[1] - _LINKS
    m = _model_of(model, numbers, experts)
    scalars, scratch, rates, levels = m.scalars, m.scratch, m.rates, m.track
    net, top, profiles = m.net, m.top, m.profiles
    own_rows = rows[GROUPS:]
    x, e = slots[slot, :numbers], tags[slot, :experts]
    both = slots[slot, numbers : numbers + 2 * K].reshape((2, K))
    forecast = slots[slot, numbers + 2 * K : numbers + 2 * K + _STATED]
    now = slots[slot, numbers + 2 * K + _STATED] + seconds
    wait = math.log10(min(max(seconds, 10.0), MAX_S))
    low = high = min(K - 1, int((wait - FLOOR) / STEP + 0.5))
    if kind == AT_LEAST:
        high = K - 1
    elif kind == AT_MOST:
        low = 0
    else:
        notes[noted, 0] = since_s
        notes[noted, 1] = cores
        notes[noted, 2] = walltime_s
        notes[noted, 3] = _log(seconds)
        notes[noted, 4] = (_log(forecast[1]) + _log(forecast[4]) + _log(forecast[7])) / 3.0
        notes[noted, 5] = rows[PARTITION]
    _dequeue(slot, rows, stats, active, scalars, tags)
    scalars[SINCE] = 0.0
    if low == 0 and high == K - 1:
        return
    # jobs that were submitted one after the other before any was learned are not independent
    weight = 1.0 / math.sqrt(1.0 + forecast[9])
    p = scratch[0]
    target = scratch[2]
    _sum_up(x, e, own_rows, own, net, top, profiles, scratch[1], p)
    _aim(low, high, p, target)
    for k in range(K):
        p[k] -= target[k]
    _descend(x, e, own_rows, own, net, top, profiles, scratch[1], p, scratch[3], rates, weight)
    held = min(scalars[LEARNED], PAST)
    for _ in range(AGAIN if held > 0.0 else 0):
        scalars[DRAW] = (scalars[DRAW] * _MULTIPLIER) % DRAWS
        i = int(scalars[DRAW] / DRAWS * held)
        _sum_up(past_x[i], past_e[i], past[i, OWN:AT_ONCE], own, net, top, profiles, scratch[1], p)
        _aim(past[i, LOW], past[i, HIGH], p, target)
        for k in range(K):
            p[k] -= target[k]
        much = AGAIN_WEIGHT / math.sqrt(1.0 + past[i, AT_ONCE])
        nobody = past[i, OWN:OWN]
        _descend(past_x[i], past_e[i], nobody, own, net, top, profiles, scratch[1], p, scratch[3], rates, much)
    _keep(x, e, low, high, own_rows, forecast[9], int(scalars[LEARNED]) % PAST, past_x, past_e, past)
    scalars[LEARNED] += 1.0
    # the better learner gains weight by Bayes' rule; then both share a little
    together, alone = 1e-9, 1e-9
    for k in range(low, high + 1):
        together += both[0, k]
        alone += both[1, k]
    together *= scalars[TRUST]
    alone *= scalars[TRUST + 1]
    total = together + alone
    share = rates[5]
    scalars[TRUST] = (1.0 - share) * together / total + 0.5 * share
    scalars[TRUST + 1] = (1.0 - share) * alone / total + 0.5 * share
    _weigh_alone(low, high, own, own_rows[0], m.table, rates[6])
    if low == high:
        _remember(wait, now, rows, stats, own, own_rows[0])
        scalars[OBSERVED] += 1.0
        width_class = min(WIDTHS - 1, int(width))
        # Levels adapt until the quantiles have their coverage (adaptive conformal inference). If a quantile and the
        # wait are both at the floor, the quantile covers the wait partly, as in `calibration.coverage`.
        at_floor = 0
        for i in range(9):
            if wait <= FLOOR and forecast[i] <= 10.0:
                at_floor += 1
        mass = 1.0 if at_floor == 9 else 0.1 * at_floor + 0.05
        for i in range(9):
            whole = 1.0 if seconds <= forecast[i] or wait <= FLOOR else 0.0
            covered = min(1.0, 0.1 * (i + 1) / mass) if i < at_floor else whole
            for j in range(2):
                row = WIDTHS if j == 0 else width_class
                pace = max(PACE if j == 0 else CLASS_PACE, 1.0 / (levels[row, LEARNED_OF] + 100.0))
                level = levels[row, i] + pace * (0.1 * (i + 1) - covered)
                levels[row, i] = min(1.0 + WINDING, max(-WINDING, level))
        for j in range(2):
            row = WIDTHS if j == 0 else width_class
            levels[row, LEARNED_OF] += 1.0
            for i in range(1, 9):
                levels[row, i] = max(levels[row, i], levels[row, i - 1])
