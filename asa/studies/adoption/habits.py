"""What users of asa do in the study, and how a log's machine is modelled."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, get_args

from asa.strategies.racing import Races

Model = Literal["replay", "twin"]
"""How the log's machine is modelled: all its cores, first come first served with EASY backfilling; or a fitted twin."""

MODELS: tuple[Model, ...] = get_args(Model)


class Asking(StrEnum):
    """How a user asks for a job."""

    PLAIN = "plain"  # as in the log, once the job that it follows has ended
    AHEAD = "ahead"  # before the job that it follows has ended
    RACES = "races"  # in two shapes, of which the first to start is kept
    PARTS = "parts"  # in several narrow jobs, which share its tasks


WAYS = (Asking.AHEAD, Asking.RACES, Asking.PARTS)
"""What users of asa do: whatever comes first in this order and suits a job."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What users of asa do, and the site's rule."""

    ways: tuple[Asking, ...] = WAYS
    races: Races = field(default_factory=Races)
    parts: int = 8  # into how many jobs a wide one is split
    age_accrues: bool = True  # whether a job's age counts while it waits for a dependency
    estimator: str = "asa"
