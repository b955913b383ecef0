"""The policy: each sentence of section 4 (and of 5.1 on sizes), and invariants of all answers."""

import pytest
from asa.backends.dmr.policy import Action, Wish, decide, next_check, unpromised
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError

NONE, EXPAND, SHRINK = Action.NONE, Action.EXPAND, Action.SHRINK

SENTENCES = [
    # 4.1
    ("to expand, the minimum is more than what is allocated", 4, Wish(8, 32), 60, [], EXPAND, 8),
    ("a request is granted though others wait", 4, Wish(8, 32), 60, [2], EXPAND, 8),
    ("Slurm grants it according to the system's status", 4, Wish(8, 32), 3, [], NONE, 4),
    ("the smallest change that was asked for", 4, Wish(16, 64), 60, [], EXPAND, 16),
    ("to shrink, the maximum is less than what is allocated", 16, Wish(1, 4), 0, [], SHRINK, 4),
    # 4.2
    ("at the desired size: no action", 8, Wish(2, 32, preferred=8), 60, [64], NONE, 8),
    ("no outstanding job: up to the maximum", 8, Wish(2, 32, preferred=8), 60, [], EXPAND, 32),
    ("no outstanding job: as far as nodes go", 8, Wish(2, 32, preferred=8), 10, [], EXPAND, 16),
    ("no outstanding job: what it has is not taken", 32, Wish(2, 32, preferred=8), 0, [], NONE, 32),
    ("otherwise shrink to the preferred size", 32, Wish(2, 32, preferred=8), 0, [32], SHRINK, 8),
    ("otherwise expand to the preferred size", 2, Wish(2, 32, preferred=8), 60, [64], EXPAND, 8),
    ("or try to", 2, Wish(2, 32, preferred=8), 2, [64], EXPAND, 4),
    # 4.3
    ("expand: nodes are free and nobody waits", 4, Wish(1, 20), 16, [], EXPAND, 16),
    ("expand: nobody who waits can be executed", 4, Wish(1, 20), 4, [9], EXPAND, 8),
    ("do not expand: one who waits can be executed", 4, Wish(1, 20), 4, [64, 4], NONE, 4),
    ("do not expand: too few nodes", 4, Wish(1, 20), 3, [], NONE, 4),
    ("shrink: one who waits could be executed", 16, Wish(1, 20), 0, [64, 8], SHRINK, 8),
    ("shrink no more than it takes", 16, Wish(1, 20), 5, [6], SHRINK, 8),
    ("shrink as far as it takes", 16, Wish(1, 20), 0, [14], SHRINK, 2),
    ("do not shrink: nobody could be executed", 16, Wish(4, 20), 0, [13], NONE, 16),
    # 5.1
    ("not below the minimum", 4, Wish(4, 20), 0, [1], NONE, 4),
    ("not above the maximum", 16, Wish(1, 20), 60, [], NONE, 16),
    ("by the factor", 9, Wish(1, 27, factor=3), 0, [2], SHRINK, 3),
]


@pytest.mark.parametrize(("nodes", "wish", "free", "queued", "action", "size"), [case[1:] for case in SENTENCES],
                         ids=[case[0] for case in SENTENCES])  # fmt: skip
def test_a_sentence(nodes, wish, free, queued, action, size):
    answer = decide(nodes, wish, free=free, queued=queued)
    assert (answer.action, answer.nodes) == (action, size)


@pytest.mark.parametrize("wish", [Wish(1, 32), Wish(1, 32, preferred=8), Wish(1, 8)])
def test_who_triggered_a_shrink_gets_the_highest_priority(wish):
    """The first job that can start by it is promoted: not one that is too wide, nor one that could start anyway."""
    assert decide(32, wish, free=2, queued=[64, 2, 18, 4]).promotes == 2


def test_nobody_is_promoted_by_an_expansion():
    answer = decide(4, Wish(4, 20), free=16, queued=[17])
    assert (answer.action, answer.promotes) == (EXPAND, None)


@st.composite
def wishes(draw):
    least = draw(st.integers(1, 40))
    most = least + draw(st.integers(0, 60))
    return Wish(least, most, draw(st.integers(2, 4)), draw(st.none() | st.integers(least, most)))


QUEUES = st.lists(st.integers(1, 70), max_size=5)


@given(st.integers(1, 100), wishes(), st.integers(0, 100), QUEUES)
def test_an_answer_keeps_to_the_wish_and_to_the_nodes(nodes, wish, free, queued):
    """The answer is within the job's bounds, reached by powers of the factor, and only on existing nodes."""
    answer = decide(nodes, wish, free=free, queued=queued)
    if answer.action is NONE:
        assert answer.nodes == nodes
        return
    assert wish.minimum <= answer.nodes <= wish.maximum
    assert answer.nodes - nodes <= free
    assert (answer.nodes > nodes) == (answer.action is EXPAND)
    few, many = sorted((nodes, answer.nodes))
    while few < many:
        few *= wish.factor
    assert few == many


@given(st.integers(1, 100), wishes(), st.integers(0, 100), QUEUES)
def test_a_shrink_lets_a_queued_job_start(nodes, wish, free, queued):
    """In wide optimisation a job is always promoted; otherwise only if it can start by the shrink, and not without."""
    answer = decide(nodes, wish, free=free, queued=queued)
    if wish.preferred is None and wish.minimum <= nodes <= wish.maximum and answer.action is SHRINK:
        assert answer.promotes is not None
    if answer.promotes is not None:
        assert free < queued[answer.promotes] <= free + nodes - answer.nodes


@given(st.integers(1, 100), wishes(), st.integers(0, 100), QUEUES)
def test_what_was_answered_is_not_taken_back(nodes, wish, free, queued):
    """The job asks again after the resize and the start of the promoted job, with nothing else changed.

    But that with a preferred size a job grows once nobody waits any more.
    """
    answer = decide(nodes, wish, free=free, queued=queued)
    if answer.action is NONE:
        return
    left = [need for place, need in enumerate(queued) if place != answer.promotes]
    taken = queued[answer.promotes] if answer.promotes is not None else 0
    again = decide(answer.nodes, wish, free=free + nodes - answer.nodes - taken, queued=left)
    if wish.preferred is None or left:
        assert again.action in {NONE, answer.action}


@given(st.floats(0.01, 100), st.floats(0, 50), st.floats(0, 60))
def test_a_check_is_ignored_within_the_period(iteration_s, since_s, period_s):
    """The next check that counts is the first after the period."""
    many = next_check(iteration_s, since_s, period_s)
    assert many >= 1
    assert since_s + many * iteration_s >= period_s - 1e-6
    assert many == 1 or since_s + (many - 1) * iteration_s < period_s


@pytest.mark.parametrize("wrong", [(0, 4), (5, 4), (1, 4, 1), (2, 4, 2, 1), (2, 4, 2, 5)])
def test_a_wish_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError):
        Wish(*wrong)


@given(
    st.integers(0, 64),
    st.integers(-32, 64),
    st.lists(st.integers(1, 32), max_size=12),
    st.integers(0, 12),
)
def test_nothing_is_promised_twice(free, coming, queued, promoted):
    """Who is left out has nodes on their way, and what is left to give is idle, and not theirs."""
    promoted = min(promoted, len(queued))
    idle, places = unpromised(free, coming, queued, promoted)
    served = [queued[place] for place in range(len(queued)) if place not in places]
    assert places == sorted(places)
    assert set(range(promoted, len(queued))) <= set(places)
    assert not served or sum(served) <= free + coming
    assert idle == max(min(free, free + coming - sum(served)), 0)
