"""How well estimators predict the waits of a log as it happened: `asa evaluate`."""

from .study import Score, evaluate, installed

__all__ = ["Score", "evaluate", "installed"]
