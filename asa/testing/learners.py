"""The contract of `asa.estimators.WaitLearner`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from asa.core.documents import read_json
from asa.estimators import WaitLearner, WaitObservation, at_least, at_most, exactly

_WAITS = [0.0, 30.0, 500.0, 500.0, 42_000.0, 3.0, 1e6, 500.0] * 6
_MIXED: list[WaitObservation] = [
    exactly(300.0),
    at_most(900.0),
    at_least(60.0),
    exactly(0.0),
    at_least(1e6),
    at_most(0.0),
]


def check_learner(make: Callable[[int], WaitLearner], from_state: Callable[[Mapping[str, Any]], WaitLearner]) -> None:
    """Check that an estimator fulfils the contract.

    Parameters
    ----------
    make
        Makes a new estimator from a seed.
    from_state
        Makes an estimator that continues from what another's `state` returned.

    Raises
    ------
    AssertionError
        The estimator violates the contract; the message says what was expected.
    """
    _says_something_at_first(make(1))
    _believes_a_distribution(make(2))
    _is_its_seed(make)
    _continues_from_its_state(make, from_state)
    _keeps_predictions_apart(make(5))
    _leaves_its_inputs_alone(make(6))
    _learns_a_steady_wait(make(7))


def _says_something_at_first(estimator: WaitLearner) -> None:
    wait = estimator.predict().wait_s
    assert np.isfinite(wait), "the first prediction, before any observation, is a finite wait"
    assert wait >= 0, "the first prediction is no negative wait"


def _believes_a_distribution(estimator: WaitLearner) -> None:
    for observation in _MIXED:
        estimator.observe(observation)
        waits, probabilities = estimator.distribution()
        assert len(waits) == len(probabilities), "the distribution has one probability a wait"
        assert np.all(np.diff(waits) > 0), "the distribution's waits ascend"
        assert np.all(probabilities >= 0), "no probability is negative"
        assert abs(probabilities.sum() - 1) < 1e-9, "the probabilities add up to 1"
        assert np.isfinite(estimator.predict().wait_s), "predictions stay finite whatever was observed"


def _predictions(estimator: WaitLearner) -> list[float]:
    waits_s = []
    for wait in _WAITS:
        prediction = estimator.predict()
        waits_s.append(prediction.wait_s)
        estimator.observe(wait, prediction)
    return waits_s


def _is_its_seed(make: Callable[[int], WaitLearner]) -> None:
    assert _predictions(make(3)) == _predictions(make(3)), "the same seed gives the same predictions"


def _continues_from_its_state(
    make: Callable[[int], WaitLearner], from_state: Callable[[Mapping[str, Any]], WaitLearner]
) -> None:
    original = make(4)
    _predictions(original)
    state = read_json(json.dumps(original.state()))
    kept = copy.deepcopy(state)
    restored = from_state(state)
    assert restored.state() == original.state(), "a state survives JSON"
    assert _predictions(restored) == _predictions(original), "an estimator made from a state continues identically"
    assert state == kept, "making an estimator from a state does not change the state"


def _keeps_predictions_apart(estimator: WaitLearner) -> None:
    first, second = estimator.predict(), estimator.predict()
    estimator.observe(100.0, second)
    estimator.observe(100.0, first)
    assert np.isfinite(estimator.predict().wait_s), "predictions may be answered in any order"


def _leaves_its_inputs_alone(estimator: WaitLearner) -> None:
    prediction, observation = estimator.predict(), exactly(77.0)
    before = (prediction.wait_s, prediction.alternative, observation.wait_s, observation.kind)
    estimator.observe(observation, prediction)
    assert before == (prediction.wait_s, prediction.alternative, observation.wait_s, observation.kind)
    estimator.distribution().probabilities.sum()
    assert _rewriting_is_harmless(estimator), "a distribution handed out is not the estimator's own"


def _rewriting_is_harmless(estimator: WaitLearner) -> bool:
    before = estimator.distribution().probabilities.copy()
    handed_out = estimator.distribution().probabilities
    if handed_out.flags.writeable:
        handed_out[:] = 0.0
    return bool(np.array_equal(estimator.distribution().probabilities, before))


def _learns_a_steady_wait(estimator: WaitLearner) -> None:
    waits, probabilities = estimator.distribution()
    near = (waits >= 500.0) & (waits <= 2000.0)
    before = float(probabilities[near].sum())
    for _ in range(2000):
        estimator.observe(1000.0, estimator.predict())
    waits, probabilities = estimator.distribution()
    near = (waits >= 500.0) & (waits <= 2000.0)
    assert probabilities[near].sum() > max(before, 0.5), "after 2000 equal waits most belief is near that wait"
