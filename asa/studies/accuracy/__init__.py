"""How well estimators predict the waits of a log as it happened: `asa evaluate`."""

from .scores import Score
from .study import evaluate, installed

__all__ = ["Score", "evaluate", "installed"]
