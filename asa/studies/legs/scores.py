"""Scores of rivals at asking for the next leg: interruption, overlap, hand-overs, and makespan relative to reactive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group
from rich.text import Text

from asa.core.intervals import Interval, as_ratio, mean_interval, statistic_interval
from asa.studies.legs.study import WAYS, HandOver
from asa.studies.present import Row, Table, number, plus_minus
from asa.studies.runs import put_together

_NONE_S = 60.0  # shorter interruptions count as none
# upper bounds of the interruption under `reactive`
_CLASSES = (("light", 2 * 3600.0), ("medium", 12 * 3600.0), ("heavy", float("inf")))
_REACTIVE = "reactive"


@dataclass(frozen=True, slots=True)
class LegStandings:
    """The scores of one rival in one setting: at all starts, or at the starts of one load class."""

    trace: str
    cores: int
    age_accrues: bool
    load: str  # name of the load class; `all` for all starts
    way: str
    starts: int
    without: float  # share of hand-overs without interruption
    interruption_h: Interval  # mean over starts
    overlap: float  # share of the core-hours during which two jobs held cores
    hand_overs: float  # number per run
    makespan_over_reactive: Interval | None  # geometric mean of the ratio over starts; None for one start


def judged(found: Sequence[HandOver]) -> list[LegStandings]:
    """Score each rival in each setting, at all starts and by load class."""
    standings = []
    for of in put_together(found, lambda hand_over: (hand_over.trace, hand_over.cores, hand_over.age_accrues)).values():
        mean_s = {
            start: float(np.mean([hand_over.interruption_s for hand_over in ones]))
            for start, ones in put_together(
                (hand_over for hand_over in of if hand_over.way == _REACTIVE), lambda hand_over: hand_over.start
            ).items()
        }
        reactive_s = {hand_over.start: hand_over.makespan_s for hand_over in of if hand_over.way == _REACTIVE}
        for load in ("all", *(name for name, _ in _CLASSES)) if mean_s else ("all",):
            starts = {start for start, mean in mean_s.items() if load in ("all", _class_of(mean))}
            for ones in put_together(of, lambda hand_over: hand_over.way).values():
                there = [hand_over for hand_over in ones if not mean_s or hand_over.start in starts]
                if there:
                    standings.append(_standing(load, there, reactive_s))
    return standings


def _class_of(mean_s: float) -> str:
    return next(name for name, most_s in _CLASSES if mean_s <= most_s)


def _standing(load: str, ones: Sequence[HandOver], reactive_s: dict[int, float]) -> LegStandings:
    by_start = put_together(ones, lambda hand_over: hand_over.start)
    means = np.array([np.mean([hand_over.interruption_s for hand_over in of]) for of in by_start.values()]) / 3600
    ratios = [np.log(of[0].makespan_s / reactive_s[start]) for start, of in by_start.items() if start in reactive_s]
    first = ones[0]
    return LegStandings(
        first.trace,
        first.cores,
        first.age_accrues,
        load,
        first.way,
        len(by_start),
        float(np.mean([hand_over.interruption_s <= _NONE_S for hand_over in ones])),
        mean_interval(means.tolist())
        if len(means) > 1
        else Interval(float(means[0]), float(means[0]), float(means[0])),
        sum(hand_over.overlap_s for hand_over in ones) / sum(hand_over.held_s for hand_over in ones),
        len(ones) / len(by_start),
        as_ratio(statistic_interval(lambda mean: float(mean[0]), np.array(ratios)[:, None]))
        if len(ratios) > 1
        else None,
    )


@dataclass(frozen=True, slots=True)
class LegVerdicts:
    """All results, for a terminal and as JSON-ready data."""

    found: Sequence[HandOver]

    def as_dict(self) -> dict[str, Any]:
        """Return every score, and every hand-over."""
        standings = [asdict(standing) for standing in judged(self.found)]
        return {"standings": standings, "hand_overs": [asdict(hand_over) for hand_over in self.found]}

    def __rich__(self) -> Group:
        """Return tables for a terminal."""
        headings = ("Starts", "Without", "Interruption", "Overlap", "Hand-overs", "Makespan")
        rows: list[Row] = []
        for (trace, cores, age, load), of in put_together(
            judged(self.found), lambda standing: (standing.trace, standing.cores, standing.age_accrues, standing.load)
        ).items():
            log = Path(trace).name.removesuffix(".gz").removesuffix(".swf")
            rule = f"{'' if age else 'no '}priority behind a dependency"
            title = f"{log}, {cores} cores, {rule}" if load == "all" else f"  load: {load}"
            rows.append(Row((title, *[""] * len(headings)), style="bold", begins_section=bool(rows) and load == "all"))
            rows += [Row((f"  {standing.way}", *_cells(standing))) for standing in of]
        ways = "; ".join(f"{name}: {way.text}" for name, way in WAYS.items() if any(o.way == name for o in self.found))
        text = (
            "Without: share of hand-overs without interruption (of at most a minute). Interruption: mean time in which "
            "nothing runs, with the 95 % interval over starts. Overlap: percent of the core-hours, used while two jobs "
            "hold cores. Hand-overs: per run; the state is saved at each. Makespan: from the start of the first leg, "
            "over that of the reactive user. Load: by the mean interruption of the reactive user, light up to 2 h, "
            f"medium up to 12 h, heavy beyond. {ways}."
        )
        return Group(Table(("", *headings), rows, title="Continuing in the next leg"), Text(text, style="dim"))


def _cells(standings: LegStandings) -> tuple[str, ...]:
    over = standings.makespan_over_reactive
    interval = standings.interruption_h
    interruption_s = Interval(3600 * interval.mean, 3600 * interval.low, 3600 * interval.high, interval.freedom)
    return (
        str(standings.starts),
        f"{standings.without:.0%}".replace("%", " %"),
        plus_minus(interruption_s, None),
        f"{100 * standings.overlap:.2f}",
        number(standings.hand_overs, 1),
        "" if over is None else number(over.mean, 2),
    )
