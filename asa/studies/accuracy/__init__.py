"""Evaluates how well estimators predict the waits of a log, in the order in which it happened: `asa evaluate`."""

from .scores import Score
from .study import evaluate, installed

__all__ = ["Score", "evaluate", "installed"]
