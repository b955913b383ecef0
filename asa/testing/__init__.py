"""Contract suites: the guarantees of every backend, estimator and strategy, third parties' included.

A failed check raises `AssertionError`, which says what was expected. Run the suites from your own tests:

>>> from asa.estimators import Asa
>>> check_learner(lambda seed: Asa(seed=seed), Asa.from_state)
"""

from .backends import check_backend
from .estimators import check_estimator
from .learners import check_learner
from .strategies import check_strategy

__all__ = ["check_backend", "check_estimator", "check_learner", "check_strategy"]
