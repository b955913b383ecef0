"""The values for a job that runs one leg; see `asa.legs` for the content of its folder."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass

from asa.continuation import Continuation

_KILLED = 128  # with the signal's number added, as shells report it
_PATIENCE_S = 60  # beyond what a leg that has just begun needs to settle, and to save its state
_LONG_PATIENCE_S = 600  # of a leg that is not signalled to end, and whose end the batch system has promised


@dataclass(frozen=True, slots=True)
class Turn:
    """Which leg a job runs.

    `number`: from 1 on, in its round.
    `folder`: of the round.
    `walltime_s`: of its job.
    `earlier`: legs of earlier rounds.
    """

    number: int
    folder: str
    walltime_s: float
    earlier: int = 0


def turn_values(terms: Continuation, turn: Turn, patterns: str) -> dict[str, object]:
    """Return the values for a leg's job: when its turn comes, and what is watched.

    `patterns`: the paths that show its progress, each a word for `eval`.
    """
    killed = _KILLED + signal.Signals[f"SIG{terms.warn}"] if terms.warn else 0
    warn_s = math.ceil(terms.warn_s)
    patience_s = 2 * warn_s + _PATIENCE_S if terms.warn else _LONG_PATIENCE_S
    settles_s = max(min(warn_s, math.floor(turn.walltime_s) - warn_s), 0)  # then it is signalled anyway
    return {
        "ASA_LEG": turn.earlier + turn.number,
        "asa_leg": turn.number,
        "asa_legs": turn.folder,
        "asa_warning": terms.warn,
        "asa_warn_s": warn_s,
        "asa_walltime": math.floor(turn.walltime_s),
        "asa_settles": settles_s,
        "asa_patience": patience_s,
        "asa_unfinished": terms.unfinished,
        "asa_killed": killed,
        "asa_number": max(killed - _KILLED, 0),
        "asa_progress": patterns,
    }
