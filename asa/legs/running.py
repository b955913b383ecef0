"""The shell variables of a job that runs one leg. `asa.legs` describes the folder of the legs."""

from __future__ import annotations

import math
import signal

from asa.continuation import Continuation
from asa.core.late import dataclass

_KILLED = 128  # shells report this plus the number of the signal
_PATIENCE_S = 60  # added to the time that a leg needs to begin and to save its state
_LONG_PATIENCE_S = 600  # seconds, for a leg that gets no signal, after the batch system's own notice of its end


@dataclass(frozen=True, slots=True)
class Turn:
    """The leg that a job runs.

    `number`: of the leg in its round, from 1.
    `folder`: of the round.
    `walltime_s`: of its job.
    `earlier`: number of legs of earlier rounds.
    """

    number: int
    folder: str
    walltime_s: float
    earlier: int = 0


def turn_values(terms: Continuation, turn: Turn, patterns: str) -> dict[str, object]:
    """Return the shell variables of a leg's job: when its turn comes, and what it watches.

    `patterns`: the paths that show the stage's progress, each quoted for `eval`.
    """
    killed = _KILLED + signal.Signals[f"SIG{terms.warn}"] if terms.warn else 0
    warn_s = math.ceil(terms.warn_s)
    patience_s = 2 * warn_s + _PATIENCE_S if terms.warn else _LONG_PATIENCE_S
    settles_s = max(min(warn_s, math.floor(turn.walltime_s) - warn_s), 0)  # no longer, since the signal comes then
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
