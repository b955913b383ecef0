"""Coverage, and the calibrator that reaches it."""

import copy
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asa.errors import InputError, StateError
from asa.estimators.calibration import FLOOR_S, Calibrator, coverage
from asa.waits import LEVELS

GRID = (np.arange(2000) + 0.5) / 2000  # probabilities; each level and each middle between two is an edge of the grid
MIDDLES = [round(0.05 + 0.1 * i, 2) for i in range(10)]
waits = st.one_of(st.sampled_from([0.0, 5.0, 10.0, 60.0, 60.0, 3600.0]), st.floats(0, 1e7))
nine = st.lists(waits, min_size=9, max_size=9).map(sorted)


def share_by_hand(stated, wait, level):
    """Compute how far one level of one forecast covers a wait, by the definition."""
    stated, wait = [max(q, 10.0) for q in stated], max(wait, 10.0)
    mine = stated[LEVELS.index(level)]
    if mine != wait:
        return 1.0 if wait < mine else 0.0
    equal = [tau for tau, q in zip(LEVELS, stated, strict=True) if q == wait]
    low = 0.0 if wait == 10.0 else (equal[0] + max([0.0, *(tau for tau in LEVELS if tau < equal[0])])) / 2
    high = (equal[-1] + min([1.0, *(tau for tau in LEVELS if tau > equal[-1])])) / 2
    if len(equal) == 9:
        low, high = 0.0, 1.0
    return (level - low) / (high - low)


class Known:
    """A distribution whose quantiles are known, atoms included."""

    def __init__(self, atoms):
        self.atoms = atoms  # (from probability, to probability, wait)

    def quantiles(self, probabilities):
        found = 1000.0 * (1.0 + probabilities)
        for begin, end, wait in self.atoms:
            found[(probabilities >= begin) & (probabilities <= end)] = wait
        return found

    def mean_shares(self):
        stated = self.quantiles(np.array(LEVELS))
        return coverage(np.tile(stated, (len(GRID), 1)), self.quantiles(GRID)).mean(axis=0)


@given(st.lists(st.tuples(nine, waits), min_size=1, max_size=8))
def test_coverage_is_what_it_says(rows):
    """Compared with the definition, computed one number at a time."""
    stated, came = [row[0] for row in rows], [row[1] for row in rows]
    # a wait that is a stated one is the case that matters, and chance seldom gives it
    came = [q[3] if i % 2 else w for i, (q, w) in enumerate(zip(stated, came, strict=True))]
    shares = coverage(stated, came)
    by_hand = [[share_by_hand(q, w, level) for level in LEVELS] for q, w in zip(stated, came, strict=True)]
    assert shares == pytest.approx(np.array(by_hand))


@given(nine, waits)
def test_a_higher_level_never_covers_less(stated, wait):
    """Coverages are between 0 and 1, and ascend with the level."""
    shares = coverage([stated], [wait])[0]
    assert np.all((shares >= 0) & (shares <= 1))
    assert np.all(np.diff(shares) >= 0)


@given(nine, waits, st.floats(1, 1e5))
def test_a_longer_wait_is_never_covered_more(stated, wait, more):
    """And a shorter wait is never covered less."""
    shorter, longer = coverage([stated, stated], [wait, wait + more])
    assert np.all(longer <= shorter)


@given(
    st.lists(st.sampled_from(MIDDLES), max_size=6, unique=True).map(sorted), st.sampled_from([0.0, 0.05, 0.45, 0.85])
)
def test_a_distribution_that_is_known_covers_exactly_its_levels(edges, at_floor):
    """Also with atoms, if each begins and ends halfway between two levels; one at the floor begins at 0."""
    edges = [edge for edge in edges if edge > at_floor]
    assume(edges != [MIDDLES[0], MIDDLES[-1]])  # all nine quantiles are on that one: they claim what is not so
    atoms = [(begin, end, 1000.0 * (1 + begin)) for begin, end in itertools.pairwise(edges)][::2]
    if at_floor:
        atoms.append((0.0, at_floor, 3.0))
    assert Known(atoms).mean_shares() == pytest.approx(LEVELS, abs=1e-9)


def test_a_sure_thing_covers_exactly_its_levels():
    """All nine quantiles are the wait that always comes true, at the floor and elsewhere."""
    for wait in (0.0, 777.0):
        assert coverage([[wait] * 9], [wait])[0] == pytest.approx(LEVELS)


@given(st.integers(1, 1999), st.integers(1, 1999))
def test_an_atom_anywhere_shifts_a_level_by_a_twentieth_at_most(one, other):
    """The only exception is an atom that has all nine quantiles."""
    begin, end = sorted((one / 2000, other / 2000))
    off = np.abs(Known([(begin, end, 1000.0 * (1 + begin))]).mean_shares() - LEVELS).max()
    assert off <= (0.1 if begin <= 0.1 and end >= 0.9 else 0.05) + 0.001


def test_atoms_that_begin_and_end_anywhere_shift_nothing_on_average():
    """Their errors cancel out."""
    rng = np.random.default_rng(5)
    shifts = []
    for _ in range(300):
        begin, end = rng.uniform(0.3, 0.4), rng.uniform(0.7, 0.8)
        shifts.append(Known([(begin, end, 1000.0 * (1 + begin))]).mean_shares() - LEVELS)
    assert np.abs(shifts).max() > 0.02
    assert np.abs(np.mean(shifts, axis=0)).max() < 0.005


def test_all_short_waits_are_the_same():
    """Waits of 0 s, 7 s and 10 s are covered alike."""
    stated = [0.0, 2.0, 9.0, 10.0, 11.0, 60.0, 60.0, 60.0, 100.0]
    assert len({tuple(row) for row in coverage([stated] * 3, [0.0, 7.0, 10.0]).tolist()}) == 1


@pytest.mark.parametrize(
    ("stated", "came", "message"),
    [
        ([[1.0] * 8], [1.0], "shape"),
        ([1.0] * 9, [1.0], "shape"),
        ([[1.0] * 9] * 2, [1.0], "shape"),
        ([[1.0] * 8 + [math.nan]], [1.0], "not a number"),
        ([[1.0] * 9], [math.nan], "not a number"),
        ([[2.0] * 8 + [1.0]], [1.0], "ascend"),
    ],
)
def test_what_cannot_be_covered_is_refused(stated, came, message):
    """The message names what is wrong."""
    with pytest.raises(InputError, match=message):
        coverage(stated, came)


def test_no_jobs_have_no_coverage():
    """The table is empty; that is no error."""
    assert coverage(np.empty((0, 9)), []).shape == (0, 9)


def follow(calibrator, points, came, *, delay=0, skip=500):
    """Return the later coverage of quantiles around points; waits become known `delay` jobs later, together."""
    stated, told = [], 0
    for i, point in enumerate(points):
        stated.append(calibrator.around(point))
        if delay == 0 or i % delay == delay - 1:
            for j in range(told, i + 1):
                calibrator.observe(points[j], stated[j], came[j])
            told = i + 1
    return coverage(stated[skip:], came[skip:]).mean(axis=0) if len(stated) > skip else None


RNG = np.random.default_rng(1)
STEADY = 10 ** RNG.normal(3.0, 0.7, 6000)
CHANGING = 10 ** (RNG.normal(2.5, 0.3, 6000) + 1.5 * (np.arange(6000) // 1000 % 2))
MOSTLY_NONE = np.where(RNG.random(6000) < 0.62, 0.0, 10 ** RNG.normal(4.0, 0.5, 6000))
IN_STEPS = RNG.choice([300.0, 3600.0, 86400.0], 6000, p=[0.33, 0.39, 0.28])


@pytest.mark.parametrize("delay", [0, 100])
@pytest.mark.parametrize("point_s", [0.0, 1000.0])
@pytest.mark.parametrize(
    "came", [STEADY, CHANGING, MOSTLY_NONE, IN_STEPS], ids=["steady", "changing", "mostly none", "in steps"]
)
def test_stated_quantiles_come_to_cover_what_they_say(came, point_s, delay):
    """Whatever is predicted, with atoms or changes, and though waits become known late and all at once."""
    shares = follow(Calibrator(spread=1.6), [point_s] * len(came), came.tolist(), delay=delay)
    # between atoms quantiles go to and fro; and no answer tells of a change until it is known
    hard = came is IN_STEPS or (came is CHANGING and delay)
    assert shares == pytest.approx(LEVELS, abs=0.05 if hard else 0.02)


def test_each_decade_of_predictions_has_quantiles_of_its_own():
    """A predictor that is good at short waits and bad at long ones gets wider quantiles for long ones only."""
    rng = np.random.default_rng(2)
    points = np.where(rng.random(8000) < 0.5, 100.0, 20_000.0)
    came = points * 10 ** rng.normal(0, np.where(points < 1000, 0.05, 1.0))
    calibrator = Calibrator(spread=1.6)
    follow(calibrator, points.tolist(), came.tolist())
    narrow, wide = calibrator.around(100.0), calibrator.around(20_000.0)
    assert narrow[-1] / narrow[0] < 2
    assert wide[-1] / wide[0] > 50


@pytest.mark.parametrize("kind", ["at_least", "at_most"])
def test_bounds_are_neither_taken_for_waits_nor_thrown_away(kind):
    """Half of the waits are censored, at a point that is independent of them."""
    rng = np.random.default_rng(4)
    came = 10 ** rng.normal(3.0, 0.7, 12_000)
    looked = 10 ** rng.normal(3.0, 0.7, 12_000)
    calibrator, naive, stated, by_naive = Calibrator(spread=1.6), Calibrator(spread=1.6), [], []
    for wait, look in zip(came.tolist(), looked.tolist(), strict=True):
        hidden = look < wait if kind == "at_least" else look > wait
        stated.append(calibrator.around(300.0))
        by_naive.append(naive.around(300.0))
        calibrator.observe(300.0, stated[-1], look if hidden else wait, kind if hidden else "exact")
        naive.observe(300.0, by_naive[-1], look if hidden else wait)
    off, off_naive = (
        np.abs(coverage(each[2000:], came[2000:]).mean(axis=0) - LEVELS).max() for each in (stated, by_naive)
    )
    assert off < 0.05
    assert off_naive > 0.15


def test_bounds_that_say_nothing_teach_nothing():
    """Such bounds are 'at least 0 s', and upper ones that no wait reaches."""
    calibrator = Calibrator(spread=1.6)
    before = calibrator.state()["factors"]
    stated = calibrator.around(600.0)
    calibrator.observe(600.0, stated, 0.0, "at_least")
    calibrator.observe(600.0, stated, 1e9, "at_most")
    assert calibrator.state()["factors"] == before


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e9),
            st.one_of(waits, st.sampled_from([1e9, 1e-9])),
            st.sampled_from(["exact", "at_most", "at_least"]),
        ),
        max_size=30,
    )
)
def test_whatever_comes_quantiles_are_finite_and_ascend(seen):
    """Points and waits of any size, and bounds."""
    calibrator = Calibrator(spread=1.6)
    for given_s, wait, kind in seen:
        stated = calibrator.around(given_s)
        assert len(stated) == 9
        assert all(math.isfinite(q) and q >= 0 for q in stated)
        assert list(stated) == sorted(stated)
        calibrator.observe(given_s, stated, wait, kind)


def test_a_long_calm_is_left_within_few_jobs():
    """After thousands of waits of nothing the upper quantiles rise as soon as the waits do."""
    calibrator = Calibrator(spread=1.6)
    follow(calibrator, [0.0] * 5000, [0.0] * 5000)
    assert calibrator.around(0.0)[-1] <= FLOOR_S
    follow(calibrator, [0.0] * 300, [40_000.0] * 300)
    assert calibrator.around(0.0)[-1] > 10_000


def test_a_burst_of_late_answers_carries_no_quantile_out_of_reach():
    """A thousand jobs of one forecast all waited far longer or shorter: quantiles go at most two decades beyond."""
    for longer in (True, False):
        calibrator = Calibrator(spread=1.6)
        follow(calibrator, [20_000.0] * 3000, (20.0 * STEADY[:3000]).tolist())
        stated = calibrator.around(20_000.0)
        wait_s = stated[-1] * 2 if longer else stated[0] / 2
        for _ in range(1000):
            calibrator.observe(20_000.0, stated, wait_s)
        after = calibrator.around(20_000.0)
        assert wait_s / 150 < after[0] < 1.2 * wait_s
        assert wait_s / 1.2 < after[-1] < wait_s * 150


def test_a_long_calm_leaves_no_quantile_buried_beneath_the_floor():
    """For long nine of ten jobs did not wait; once all do, even p10 is soon above the floor."""
    calibrator = Calibrator(spread=1.6)
    came = np.where(np.random.default_rng(8).random(20_000) < 0.9, 0.0, 3000.0)
    follow(calibrator, [0.0] * len(came), came.tolist())
    assert calibrator.around(0.0)[0] < FLOOR_S
    follow(calibrator, [0.0] * 1000, [40_000.0] * 1000)
    assert calibrator.around(0.0)[0] > FLOOR_S


def test_a_state_continues_bit_for_bit():
    """Through JSON, in the fast steps of the beginning and in the steady ones."""
    for learned in (3, 3000):
        original = Calibrator(spread=1.6)
        follow(original, [60.0] * learned, STEADY[:learned].tolist())
        twin = Calibrator.from_state(json.loads(json.dumps(original.state())))
        for wait in STEADY[3000:3100].tolist():
            assert twin.around(60.0) == original.around(60.0)
            twin.observe(60.0, twin.around(60.0), wait)
            original.observe(60.0, original.around(60.0), wait)
        assert twin.state() == original.state()


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.pop("factors"),
        lambda s: s.pop("learned"),
        lambda s: s["factors"].pop(),
        lambda s: s["factors"][0].pop(),
        lambda s: s["factors"][2].__setitem__(0, math.nan),
        lambda s: s["factors"][2].__setitem__(0, -1.0),
        lambda s: s["factors"][2].__setitem__(0, "x"),
        lambda s: s["learned"].__setitem__(0, -1),
        lambda s: s.update(learned=None),
    ],
)
def test_a_damaged_state_is_refused(damage):
    """With a state error, never a wrong calibrator."""
    state = copy.deepcopy(Calibrator().state())
    damage(state)
    with pytest.raises(StateError):
        Calibrator.from_state(state)


def test_a_senseless_spread_is_refused():
    """No queue spans nine decades."""
    for spread in (-1.0, 9.0, math.nan):
        with pytest.raises(InputError, match="spread"):
            Calibrator(spread=spread)
