"""Algorithm 1, line by line as the ASA paper has it."""

import copy
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError, StateError
from asa.estimators import PAPER_ALTERNATIVES_S, Asa, LearningRate, Prediction, at_least, at_most, exactly, nearest
from asa.estimators.alternatives import closest_losses
from asa.testing import check_learner

FOUR = (1.0, 10.0, 100.0, 1000.0)  # the example of Section 3.2
POLICIES = ("default", "greedy", "tuned")


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_keeps_the_contract(policy):
    """One suite for all estimators."""
    check_learner(lambda seed: Asa(policy, seed=seed), Asa.from_state)


def test_the_papers_alternatives():
    """53 waits up to 100,000 s, more of them in the 10's and 100's (Section 4.3)."""
    waits = np.array(PAPER_ALTERNATIVES_S)
    assert len(waits) == 53
    assert waits[0] == 10
    assert waits[-1] == 100_000
    decades = [int(((waits >= low) & (waits < 10 * low)).sum()) for low in (10, 100, 1000, 10_000, 100_000)]
    assert decades == [18, 18, 9, 7, 1]


@given(st.floats(0, 3e5))
def test_nearest_is_the_closest_by_seconds(wait):
    """Compared with a search of all alternatives; of two equally close ones it is the shorter."""
    waits = np.array(PAPER_ALTERNATIVES_S)
    assert nearest(waits, wait) == int(np.argmin(np.abs(waits - wait)))


def test_equation_3():
    """The closest alternative has loss 0, the others 1; after a censored wait only certain losses count."""
    waits = np.array(FOUR)
    assert closest_losses(waits, exactly(60)).tolist() == [1, 1, 0, 1]
    assert closest_losses(waits, at_most(60)).tolist() == [0, 0, 0, 1]
    assert closest_losses(waits, at_least(60)).tolist() == [1, 1, 0, 0]


def test_the_beginning_is_even():
    """p_0 = 1/m (line 0)."""
    assert Asa(alternatives_s=FOUR).distribution().probabilities == pytest.approx([0.25] * 4)


def test_a_round_ends_when_an_alternative_lost_more_than_one():
    """By hand: losses (2, 1, 0, 0) in one round, gamma 1, give weights e^-2 : e^-1 : 1 : 1 (lines 3 to 7)."""
    learner = Asa(alternatives_s=FOUR)
    truth = 100.0
    for chosen in (0, 1, 2):
        learner.observe(truth, Prediction(FOUR[chosen], chosen))
    assert learner.rounds == 0, "losses of 1 do not end a round: the bound is 'at most 1'"
    assert learner.distribution().probabilities == pytest.approx([0.25] * 4), "p does not change within a round"
    learner.observe(truth, Prediction(FOUR[0], 0))
    assert learner.rounds == 1
    expected = np.array([math.exp(-2), math.exp(-1), 1, 1])
    assert learner.distribution().probabilities == pytest.approx(expected / expected.sum())


def test_losses_begin_anew_each_round():
    """Line 2: the second round needs two losses of one alternative again."""
    learner = Asa(alternatives_s=FOUR)
    for _ in range(3):
        learner.observe(100.0, Prediction(1.0, 0))
    assert learner.rounds == 1
    learner.observe(100.0, Prediction(1.0, 0))
    assert learner.rounds == 2


def test_gamma_is_applied_round_by_round():
    """With gamma_t = 2 / t: e^-4 in round one, e^-2 more in round two."""
    learner = Asa(alternatives_s=FOUR, learning_rate=LearningRate(2.0, decay=1.0))
    for _ in range(4):
        learner.observe(100.0, Prediction(1.0, 0))
    expected = np.array([math.exp(-6), 1, 1, 1])
    assert learner.distribution().probabilities == pytest.approx(expected / expected.sum())


@given(st.floats(0.01, 10), st.floats(0, 3))
def test_gamma_never_increases(initial, decay):
    """And stays positive."""
    values = [LearningRate(initial, decay).at(t) for t in range(1, 50)]
    assert all(a >= b > 0 for a, b in itertools.pairwise(values))


@pytest.mark.parametrize(("initial", "decay"), [(0, 0), (-1, 0), (1, -0.1), (math.nan, 0)])
def test_an_increasing_gamma_is_refused(initial, decay):
    """The theorem would not hold."""
    with pytest.raises(InputError, match="gamma"):
        LearningRate(initial, decay)


def test_the_default_policy_learns_of_its_own_choice_only():
    """Bandit feedback: the loss of what was not sampled stays unknown."""
    learner = Asa(alternatives_s=FOUR)
    learner.observe(100.0, Prediction(1.0, 0))
    assert learner.state()["total_losses"] == [1, 0, 0, 0]


def test_the_greedy_policy_takes_the_least_loss():
    """Of alternatives with equal losses it takes the shortest, and after a loss the next one."""
    learner = Asa("greedy", alternatives_s=FOUR)
    tried = []
    for _ in range(5):
        prediction = learner.predict()
        tried.append(prediction.wait_s)
        learner.observe(100.0, prediction)
    assert tried == [1, 10, 100, 100, 100]


def test_the_tuned_policy_replays_what_it_learned():
    """50 draws an observation: converged in about ten (Section 4.4), where default still explores."""

    def belief(policy, observations):
        found = []
        for seed in range(40):
            learner = Asa(policy, seed=seed)
            for _ in range(observations):
                learner.observe(7000.0, learner.predict())
            waits, probabilities = learner.distribution()
            found.append(probabilities[waits == 7000.0][0])
        return np.mean(found)

    assert belief("tuned", 10) > 0.7
    assert belief("tuned", 20) > 0.9
    assert belief("default", 20) < 0.1


def test_without_repetitions_tuned_is_default():
    """The policies differ in the replay alone."""
    one, other = Asa("default", seed=3), Asa("tuned", repetitions=0, seed=3)
    for wait in (20.0, 300.0, 4000.0) * 20:
        assert one.predict() == other.predict()
        one.observe(wait)
        other.observe(wait)
    assert np.array_equal(one.distribution().probabilities, other.distribution().probabilities)


def test_no_alternative_is_ever_lost():
    """After 20,000 equal waits the others' log-weights are finite, and a new level is found within 60 observations."""
    learner = Asa("tuned", seed=1)
    for wait, times in ((10.0, 20_000), (100_000.0, 60), (10.0, 2000), (500.0, 60)):
        for _ in range(times):
            learner.observe(wait, learner.predict())
        waits, probabilities = learner.distribution()
        assert np.all(np.isfinite(learner.state()["log_weights"]))
        assert probabilities[waits == wait] > 0.9


def follow(learner, truths):
    """Yield after each wait the losses of the learner and of each fixed alternative so far, and the step size."""
    waits = learner.alternatives_s
    suffered, fixed = 0.0, np.zeros(len(waits))
    for t, truth in enumerate(truths, start=1):
        losses = closest_losses(waits, exactly(truth))
        believed, prediction = learner.distribution().probabilities, learner.predict()
        suffered += losses[prediction.alternative]
        fixed += losses
        learner.observe(truth, prediction)
        yield suffered, fixed, (t, believed, prediction.alternative, losses)


def theorem_1(rounds, t, m=53, delta=0.05):
    """The right-hand side of equation 4."""
    return 4 * rounds + math.log(m) + math.sqrt(2 * t * math.log(m / delta))


sequences = st.lists(st.tuples(st.sampled_from(PAPER_ALTERNATIVES_S), st.integers(1, 150)), min_size=1, max_size=6).map(
    lambda levels: [wait for wait, stay in levels for _ in range(stay)]
)
seeds = st.integers(0, 2**32 - 1)


@given(sequences, seeds)
def test_theorem_1_for_the_tuned_policy(truths, seed):
    """Regret <= 4 eta(t) + ln m + sqrt(2 t ln(m / delta)) at every t, for waits that stay and jump as they like."""
    learner = Asa("tuned", seed=seed)
    for suffered, fixed, (t, *_) in follow(learner, truths):
        assert suffered - fixed.min() <= theorem_1(learner.rounds, t)


@given(seeds, st.integers(1, 600))
def test_theorem_1_for_the_default_policy_on_random_losses(seed, length):
    """The same, for losses drawn independently."""
    learner = Asa("default", seed=seed)
    for suffered, fixed, (t, *_) in follow(learner, np.random.default_rng(seed).choice(PAPER_ALTERNATIVES_S, length)):
        assert suffered - fixed.min() <= theorem_1(learner.rounds, t)


@given(sequences, seeds)
def test_what_the_proof_of_theorem_1_shows_for_the_default_policy(truths, seed):
    """Equation 12, deterministic: over finished rounds, sum of p(chosen) x its loss <= 4 eta + ln m + any fixed one's.

    As in equation 7, the fixed alternative's losses count where it was chosen.
    """
    learner = Asa("default", seed=seed)
    weighted, own, finished, bound_at = 0.0, np.zeros(53), (0.0, np.zeros(53)), 0
    for _, _, (_, believed, chosen, losses) in follow(learner, truths):
        weighted += believed[chosen] * losses[chosen]
        own[chosen] += losses[chosen]
        if learner.rounds > bound_at:
            bound_at, finished = learner.rounds, (weighted, own.copy())
    assert finished[0] - finished[1].min() <= 4 * learner.rounds + math.log(53)


def test_theorem_1_does_not_hold_for_the_default_policy_on_a_steady_wait():
    """A known gap: between equations 12 and 14 the proof drops the indicator of the sampled action.

    With the loss known for the sampled alternative only, and a wait that never changes, the regret exceeds the bound of
    delta = 0.05 far more often than in 5 of 100 runs. Should this test fail, the gap has been closed: say so in the
    docs.
    """
    exceeded = 0
    for seed in range(60):
        learner = Asa("default", seed=seed)
        *_, (suffered, fixed, (t, *_)) = follow(learner, [250.0] * 150)
        exceeded += suffered - fixed.min() > theorem_1(learner.rounds, t)
    assert exceeded > 50


@given(
    st.sampled_from(POLICIES),
    st.lists(st.tuples(st.floats(0, 2e5), st.sampled_from(["exact", "at_most", "at_least"])), max_size=40),
    st.integers(0, 2**63),
)
def test_a_state_continues_bit_for_bit(policy, seen, seed):
    """Weights, the open round and the generator all survive JSON."""
    make = {"exact": exactly, "at_most": at_most, "at_least": at_least}
    original = Asa(policy, seed=seed)
    for wait, kind in seen:
        original.observe(make[kind](wait), original.predict())
    twin = Asa.from_state(json.loads(json.dumps(original.state())))
    for wait, kind in [*seen, (50.0, "exact")]:
        assert twin.predict() == original.predict()
        twin.observe(make[kind](wait))
        original.observe(make[kind](wait))
    assert twin.state() == original.state()


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.pop("rounds"),
        lambda s: s.update(log_weights=[0.0]),
        lambda s: s["log_weights"].__setitem__(0, math.nan),
        lambda s: s.update(generator={}),
        lambda s: s.update(generator={"state": "-1", "inc": "1"}),
        lambda s: s.update(policy="eager"),
        lambda s: s.update(log_weights=[0.0] * 53),
        lambda s: s.update(alternatives_s=None),
    ],
)
def test_a_damaged_state_is_refused(damage):
    """With a state error, never a wrong estimator."""
    state = copy.deepcopy(Asa().state())
    damage(state)
    with pytest.raises(StateError):
        Asa.from_state(state)


@pytest.mark.parametrize("bad", [(1.0,), (2.0, 1.0), (1.0, 1.0), (-1.0, 1.0), (1.0, math.inf)])
def test_senseless_alternatives_are_refused(bad):
    """They must ascend."""
    with pytest.raises(InputError, match="ascending"):
        Asa(alternatives_s=bad)


@pytest.mark.parametrize("wait", [-1.0, math.nan, math.inf])
def test_a_wait_that_cannot_be_is_refused(wait):
    """It is not learned."""
    with pytest.raises(InputError):
        Asa().observe(wait)


def test_bad_parameters_are_refused():
    """Unknown policy, negative repetitions, a foreign prediction."""
    with pytest.raises(InputError, match="Known: default, greedy, tuned"):
        Asa("gready")
    with pytest.raises(InputError, match="repetitions"):
        Asa(repetitions=-1)
    with pytest.raises(InputError, match="prediction"):
        Asa().observe(1.0, Prediction(5.0, 99))


def test_it_says_what_it_is():
    """Its short form, as a debugger shows it, has its parameters."""
    assert repr(Asa("tuned")) == "Asa(policy='tuned', observations=0, rounds=0)"
