"""Learning how long the queue makes a job wait.

Usable alone: this package needs numpy and nothing else.

>>> from asa import Asa
>>> learner = Asa(policy="tuned", seed=1)
>>> for _ in range(30):
...     prediction = learner.predict()
...     learner.observe(200.0, prediction)  # what the queue really did
>>> learner.predict().wait_s
200.0
"""

from asa.estimators.algorithm1 import Asa, LearningRate
from asa.estimators.alternatives import PAPER_ALTERNATIVES_S, nearest
from asa.estimators.bank import OWN_USER, OwnJob, WaitBank, replay
from asa.estimators.base import (
    Distribution,
    Prediction,
    WaitLearner,
    WaitObservation,
    at_least,
    at_most,
    exactly,
)
from asa.estimators.joint import JointEstimator, JointForecast
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord

__all__ = [
    "OWN_USER",
    "PAPER_ALTERNATIVES_S",
    "Asa",
    "Distribution",
    "JointEstimator",
    "JointForecast",
    "LearningRate",
    "OwnJob",
    "Prediction",
    "WaitBank",
    "WaitLearner",
    "WaitObservation",
    "WaitRecord",
    "WaitStore",
    "at_least",
    "at_most",
    "exactly",
    "nearest",
    "replay",
]
