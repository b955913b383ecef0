"""Block distributions: no item is lost or doubled, whatever the numbers of processes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.dmr import blocks, moves
from asa.errors import InputError

ITEMS, PROCESSES = st.integers(0, 300), st.integers(1, 40)


def spread(items, sizes):
    """Cut items into the blocks of their processes."""
    return np.split(np.arange(items), np.cumsum(sizes)[:-1])


def redistributed(old, sizes, going):
    new = [np.full(size, -1) for size in sizes]
    for move in going:
        assert (new[move.target][move.put] == -1).all(), "nothing is put where something is"
        new[move.target][move.put] = old[move.source][move.taken]
    return new


@given(ITEMS, PROCESSES)
def test_blocks_are_as_equal_as_may_be(items, processes):
    sizes = blocks(items, processes)
    assert (len(sizes), sum(sizes)) == (processes, items)
    assert max(sizes) - min(sizes) <= 1
    assert list(sizes) == sorted(sizes, reverse=True)


@given(ITEMS, PROCESSES, PROCESSES)
def test_every_item_arrives_where_it_belongs(items, before, after):
    """And there are fewer moves than processes."""
    going = moves(blocks(items, before), blocks(items, after))
    new = redistributed(spread(items, blocks(items, before)), blocks(items, after), going)
    for block, meant in zip(new, spread(items, blocks(items, after)), strict=True):
        assert np.array_equal(block, meant)
    assert len(going) < before + after
    assert all(move.taken.stop > move.taken.start for move in going), "nobody is told to send nothing"


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.data())
def test_blocks_need_not_be_equal(before, data):
    """Section 6.2: arbitrary distributions."""
    cuts = sorted(data.draw(st.lists(st.integers(0, sum(before)), max_size=6)))
    after = [int(size) for size in np.diff([0, *cuts, sum(before)])]
    new = redistributed(spread(sum(before), before), after, moves(before, after))
    assert np.array_equal(np.concatenate(new), np.arange(sum(before)))


@given(ITEMS, PROCESSES, PROCESSES)
def test_the_way_back_is_the_same_way(items, before, after):
    there, back = (moves(blocks(items, a), blocks(items, b)) for a, b in ((before, after), (after, before)))
    assert [(m.source, m.taken, m.target, m.put) for m in there] == [(m.target, m.put, m.source, m.taken) for m in back]


@given(st.integers(1, 12), st.integers(2, 4), st.integers(1, 5))
def test_by_a_factor_each_process_splits_its_own(processes, factor, each):
    """Fig. 2a: an old process hands its items to `factor` new ones, and a new one gets all from one."""
    items = processes * factor * each
    going = moves(blocks(items, processes), blocks(items, processes * factor))
    assert [(move.source, move.target) for move in going] == [(n // factor, n) for n in range(processes * factor)]


@pytest.mark.parametrize("wrong", [(-1, 2), (4, 0)])
def test_blocks_that_cannot_be(wrong):
    with pytest.raises(InputError):
        blocks(*wrong)


@pytest.mark.parametrize(("before", "after"), [([2, 2], [3]), ([3, -1], [2]), ([1], [])])
def test_other_items_cannot_be_moved(before, after):
    with pytest.raises(InputError, match="do not have the same items"):
        moves(before, after)
