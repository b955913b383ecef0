"""The resource usage vector, compared with an array of counts per second, and as algebra."""

import numpy as np
import pytest
from asa.backends.openccs.rusv import FOREVER, RUSV, Stores, UsageSlot, cron_to_rusv
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError

MOST = 12
LAST = 40
"""Second from which on nothing changes any more, in these tests: the last one of an array stands for all to come."""


def slots(most=5):
    """Draw slots within the array, or without end."""
    bounds = st.tuples(st.integers(0, LAST - 1), st.integers(0, LAST - 1)).map(sorted)
    return st.builds(
        lambda of, is_for_ever, items: UsageSlot(of[0], 0 if is_for_ever or not of[1] else of[1], items),
        bounds,
        st.booleans(),
        st.integers(1, most),
    )


def vectors(stores=Stores.USED, most=MOST):
    """Draw vectors to which slots were added; from vectors of free items they were subtracted."""

    def made(given_slots):
        vector = RUSV(most, stores=stores)
        for slot in given_slots:
            change(vector, slot, slot.items if stores is Stores.USED else -slot.items)
        return vector

    return st.lists(slots(), max_size=8).map(made)


def array(vector):
    """Return the value of a vector at each second, and afterwards."""
    return np.array([vector.at(second) for second in range(LAST + 1)])


def change(vector, slot, by):
    """Add items within a slot's interval, or remove them."""
    vector.add_within(slot.start, slot.stop + 1 if slot.stop else FOREVER, by)


def span(slot):
    return slice(slot.start, slot.stop + 1 if slot.stop else LAST + 1)


def of_array(counts, empty):
    """Return the slots of an array: maximal intervals with a constant value other than zero."""
    found, start = [], 0
    for second in range(1, len(counts) + 1):
        if second == len(counts) or counts[second] != counts[start]:
            if counts[start] != empty:
                found.append(UsageSlot(start, 0 if second == len(counts) else second - 1, counts[start]))
            start = second
    return found


# ---------------------------------------------------------------------- one slot


@pytest.mark.parametrize("stores", list(Stores))
@given(changes=st.lists(st.tuples(st.booleans(), slots()), max_size=12))
def test_it_is_what_an_array_of_counts_would_be(stores, changes):
    """Used items are never negative, free ones never above all; as few slots as possible are stored."""
    empty = 0 if stores is Stores.USED else MOST
    vector, counts = RUSV(MOST, stores=stores), np.full(LAST + 1, empty)
    for more, slot in changes:
        change(vector, slot, slot.items if more else -slot.items)
        counts[span(slot)] += slot.items if more else -slot.items
        counts = np.maximum(counts, 0) if stores is Stores.USED else np.minimum(counts, MOST)
        assert list(vector) == of_array(counts, empty)
    assert len(vector) == len(list(vector))


OLD = UsageSlot(10, 19, 4)
OVERLAPS = {
    "before": (2, 5),
    "touches its beginning": (2, 9),
    "overlaps its beginning": (5, 12),
    "ends with it, begins before": (5, 19),
    "begins with it, ends inside": (10, 15),
    "inside": (12, 15),
    "ends with it, begins inside": (15, 19),
    "the same": (10, 19),
    "begins with it, ends after": (10, 25),
    "around it": (5, 25),
    "overlaps its end": (15, 25),
    "touches its end": (20, 25),
    "after": (25, 30),
    "begins before, for ever": (5, 0),
    "begins inside, for ever": (15, 0),
    "begins after, for ever": (25, 0),
    "one second of it": (19, 19),
}
"""Every way in which a new slot can lie to an old one (Fig. 3)."""


@pytest.mark.parametrize("stores", list(Stores))
@pytest.mark.parametrize("new", OVERLAPS.values(), ids=OVERLAPS)
@pytest.mark.parametrize("items", [3, 4, 6])
def test_each_operation_in_each_way_that_slots_overlap(stores, new, items):
    slot = UsageSlot(*new, items)
    one, other = RUSV(MOST, stores=stores, slots=[]), RUSV(MOST, stores=stores)
    for vector, of in ((one, OLD), (other, slot)):
        change(vector, of, of.items if stores is Stores.USED else -of.items)
    a, b, empty = array(one), array(other), one.empty
    low, high = (0, 1000) if stores is Stores.USED else (-1000, MOST)
    assert list(one + other) == of_array(np.clip(np.where(b == empty, a, a + b), low, high), empty)
    assert list(one - other) == of_array(np.clip(np.where(b == empty, a, a - b), low, high), empty)
    for by in (items, -items):
        changed, counts = one.copy(), a.copy()
        counts[span(slot)] += by
        change(changed, slot, by)
        assert list(changed) == of_array(np.clip(counts, low, high), empty)
    if stores is Stores.FREE:
        assert list(one & other) == of_array(np.minimum(a, b), empty)
        used = RUSV(MOST, slots=[OLD])
        assert list(used.min_free(other)) == of_array(np.maximum(array(used), MOST - b), 0)
    for least in (1, 9, MOST):
        free = a if stores is Stores.FREE else MOST - a
        assert array(one.free_slots(least, 1, 0, FOREVER)).tolist() == np.where(free >= least, free, 0).tolist()


def test_a_stop_of_nought_is_for_ever():
    vector = RUSV(4, slots=[UsageSlot(5, 0, 3)])
    assert (vector.at(4), vector.at(5), vector.at(1 << 55)) == (0, 3, 3)
    assert list(vector) == [UsageSlot(5, 0, 3)]
    change(vector, UsageSlot(100, 0, 3), -3)
    assert list(vector) == [UsageSlot(5, 99, 3)]
    change(vector, UsageSlot(5, 99, 3), -3)
    assert (vector, len(vector)) == (RUSV(4), 0)


def test_negative_times_are_times():
    assert list(RUSV(4, slots=[UsageSlot(-10, -1, 1)])) == [UsageSlot(-10, -1, 1)]
    with pytest.raises(InputError, match="stops before"):
        RUSV(4).increment(UsageSlot(5, 4, 1))


# ---------------------------------------------------------------------- algebra


@given(vectors(), slots())
def test_to_book_and_then_to_revoke_changes_nothing(vector, slot):
    before = vector.copy()
    vector.increment(slot)
    assert vector != before
    change(vector, slot, -slot.items)
    assert vector == before


@given(vectors(), vectors(), vectors())
def test_sums(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert (a + b) - b == a
    assert a - a == RUSV(MOST)
    assert a + RUSV(MOST) == a


@given(vectors(Stores.FREE), vectors(Stores.FREE), vectors(Stores.FREE))
def test_intersections(a, b, c):
    assert a & b == b & a
    assert (a & b) & c == a & (b & c)
    assert a & a == a
    assert a & RUSV(MOST, stores=Stores.FREE) == a
    assert (array(a & b) == np.minimum(array(a), array(b))).all()


@given(vectors(), vectors(Stores.FREE, 7))
def test_a_limit_leaves_what_is_free_in_both(used, limit):
    """A limit smaller than the system also binds where nothing is stored for it."""
    view = used.min_free(limit)
    assert (MOST - array(view) == np.minimum(MOST - array(used), array(limit))).all()
    assert view.min_free(limit) == view


def test_what_is_used_of_a_limit_is_taken_from_it():
    """A consumer may have 8 of 16 cores, and holds 5 of them until second 99."""
    limit, own = RUSV(8, stores=Stores.FREE), RUSV(16, slots=[UsageSlot(0, 99, 5)])
    view = RUSV(16, slots=[UsageSlot(0, 49, 10)]).min_free(limit - own)
    assert [view.free_at(second) for second in (0, 50, 100)] == [3, 3, 8]


@given(vectors(), vectors(Stores.FREE))
def test_kinds_are_not_mixed_up(used, free):
    with pytest.raises(InputError, match="of free items"):
        used & free
    with pytest.raises(InputError, match="Swap"):
        free.min_free(used)


# ---------------------------------------------------------------------- where there is room


@pytest.mark.parametrize("stores", list(Stores))
@given(data=st.data())
def test_free_slots_are_those_with_room_for_long_enough(stores, data):
    vector = data.draw(vectors(stores))
    items, lasts = data.draw(st.integers(1, MOST)), data.draw(st.integers(1, 12))
    since, until = sorted(data.draw(st.tuples(st.integers(0, LAST - 1), st.integers(0, LAST - 1))))
    free = array(vector) if stores is Stores.FREE else MOST - array(vector)
    room = np.zeros(LAST + 1, dtype=bool)
    starts = [s for s in range(since, until + 2 - lasts) if (free[s : s + lasts] >= items).all()]
    for start in starts:
        room[start : start + lasts] = True
    if until:
        assert array(vector.free_slots(items, lasts, since, until + 1)).tolist() == np.where(room, free, 0).tolist()
        assert vector.earliest(items, lasts, since, until + 1) == min(starts, default=None)
        assert vector.min_free_within(since, until + 1) == free[since : until + 1].min()


@given(vectors(), st.integers(1, MOST), st.integers(1, 100))
def test_what_lasts_for_ever_has_room_for_anything(vector, items, lasts):
    found = vector.earliest(items, lasts, 0)
    if vector.free_at(LAST) >= items:
        assert found is not None
        assert vector.min_free_within(found, found + lasts) >= items
        assert all(vector.min_free_within(s, s + lasts) < items for s in range(found))
    else:
        assert found is None or found + lasts <= LAST
    assert (vector.free_slots(items, lasts, 0, FOREVER).earliest(1, lasts, 0)) == found


# ---------------------------------------------------------------------- the rest


@given(vectors(), vectors(Stores.FREE), st.integers(0, MOST))
def test_what_is_broken_is_free_at_no_time(used, free, defect):
    before = array(free)
    used.set_defect(defect)
    free.set_defect(defect)
    assert used.free_at(LAST) == MOST - defect - used.at(LAST)
    was_whole = before == MOST
    assert (array(free)[was_whole] == MOST - defect).all()
    assert (array(free)[~was_whole] == np.minimum(before[~was_whole], MOST - defect)).all()
    with pytest.raises(InputError, match="cannot be broken"):
        used.set_defect(MOST + 1)


@given(vectors(), st.integers(0, LAST), st.integers(0, 150), st.integers(LAST, LAST + 5))
def test_a_template_is_repeated(template, since, more, period):
    template = template - RUSV(MOST, slots=[UsageSlot(LAST, 0, template.at(LAST))]) if template.at(LAST) else template
    made = cron_to_rusv(template, 7, since, since + more, period)
    for second in range(since, since + more + 1):
        assert made.at(second) == (7 if template.at(second % period) else 0)
    assert made.at(since - 1) == made.at(since + more + 1) == 0
    assert all(slot.items == 7 for slot in made)


def test_it_shows_what_it_holds():
    assert repr(RUSV(8, defect=2, slots=[UsageSlot(0, 9, 3)])) == "RUSV(6 of 8, [0..9: 3])"
    assert repr(RUSV(8, stores=Stores.FREE)) == "RUSV(8, free, [])"


def test_many_slots_need_more_room():
    slots = [UsageSlot(100 * place, 100 * place + 50, 1) for place in range(500)]
    vector = RUSV(MOST, slots=slots)
    assert list(vector) == slots
    for slot in slots:
        change(vector, slot, -slot.items)
    assert vector == RUSV(MOST)
