"""How a stage runs in legs: one long computation, continued by one job after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from asa.core.late import dataclass
from asa.errors import InputError, WorkflowError
from asa.keys import Notation, described, keys_of
from asa.units import format_duration, parse_duration

WARNINGS = ("USR1", "USR2", "TERM", "INT", "HUP")
"""Signals that can warn a payload."""

MAX_LEGS = 10_000
"""Upper bound of a stage's legs."""

USUAL_LEGS = 100
"""Default upper bound of a stage's legs."""

UNFINISHED = 85
"""Default exit code by which a payload says that work is left."""

_LONGEST_WARNING_S = 86_400.0
_MAX_EXIT = 125


def _warned(how: str) -> Continuation:
    return Continuation.warned(how)


_WARNING = Notation(
    read=_warned,
    given=(str,),
    words='a signal and a time, such as "USR1@10min"',
    pattern=r"^\s*[A-Za-z][A-Za-z0-9]*\s*@.+",
)


@dataclass(frozen=True, slots=True)
class Continuation:
    """The settings of a stage in legs: its payload saves its state, and the next job continues from there.

    A leg is one job of the stage, with the stage's walltime. Its payload exits with 0 when all is done. If it exits
    with `unfinished`, or reaches its walltime, another leg continues.

    Parameters
    ----------
    max_legs
        Upper bound of legs.
    warn
        The signal, without ``SIG``, upon which a payload saves its state and ends. Empty for none: then no leg ends
        early for the next one.
    warn_s
        How many seconds before the end of the walltime the signal is sent: the longest time that saving the state may
        take.
    unfinished
        The exit code with which a payload asks for another leg.
    progress
        Patterns of paths that must change in each leg; two legs in a row without a change are a failure. None to check
        nothing.

    Examples
    --------
    >>> Continuation.warned("USR1@10min").warn_s
    600.0
    """

    max_legs: int = described(
        "count",
        f"The number of legs after which it has failed; by default {USUAL_LEGS}.",
        [20],
        min_value=1,
        max_value=MAX_LEGS,
        default=USUAL_LEGS,
    )
    warn: str = described(
        "own",
        "The signal that tells a leg to save its state and end, and how long before the end of its "
        "walltime it is sent. It is also sent when the next leg has started and takes over. From then on "
        "the file $ASA_LEG_END exists.",
        ["USR1@10min"],
        notation=_WARNING,
        default="",
    )
    warn_s: float = 0.0
    unfinished: int = described(
        "count",
        f"The exit code by which a leg asks for another leg; by default {UNFINISHED}.",
        [UNFINISHED],
        min_value=1,
        max_value=_MAX_EXIT,
        default=UNFINISHED,
    )
    progress: tuple[str, ...] = described(
        "files",
        "Files that change in each leg: one or more paths, relative to where commands run, with * ? []. "
        "Two legs in a row without a change are a failure.",
        ["ckpt/step", ["ckpt/*.npz"]],
        default=(),
    )

    @classmethod
    def warned(cls, how: str) -> Continuation:
        """Make a continuation from a signal and its time before the end, as in ``USR1@10min``.

        Raises
        ------
        InputError
            It is not a signal that can be sent, or not a time.
        """
        signal, at, before = how.strip().partition("@")
        name = signal.strip().upper().removeprefix("SIG")
        hint = "Write a signal and how long before the end of the walltime, as in USR1@10min."
        if not at:
            raise InputError(f"{how!r} says no time", hint=hint)
        if name not in WARNINGS:
            raise InputError(
                f"{signal.strip()!r} is no signal to warn a payload with", hint=f"Give one of {', '.join(WARNINGS)}."
            )
        seconds = parse_duration(before)
        if not 0 < seconds <= _LONGEST_WARNING_S:
            raise InputError(
                f"{before.strip()!r} before the end cannot be", hint="Give more than nothing, up to a day."
            )
        return cls(warn=name, warn_s=seconds)

    @property
    def hands_over(self) -> bool:
        """Whether a leg can be signalled to make room for the next one."""
        return bool(self.warn)

    def trouble(self, walltime_s: float) -> tuple[str, str] | None:
        """Return what is wrong with these settings for legs of a walltime, and what to do; None if nothing is.

        Parameters
        ----------
        walltime_s
            Seconds that a leg may last.
        """
        before, lasts = format_duration(self.warn_s), format_duration(walltime_s)
        faults = (
            (
                not 1 <= self.max_legs <= MAX_LEGS,
                f"is to have {self.max_legs} legs at most",
                f"Give 1 to {MAX_LEGS}.",
            ),
            (
                not 1 <= self.unfinished <= _MAX_EXIT,
                f"says by exit code {self.unfinished} that it is not done",
                f"Give 1 to {_MAX_EXIT}.",
            ),
            (
                bool(self.warn) and self.warn not in WARNINGS,
                f"is to be warned with {self.warn!r}",
                f"Give one of {', '.join(WARNINGS)}.",
            ),
            (
                bool(self.warn) != (self.warn_s > 0),
                "is to be warned, and does not say with what, or when",
                "Give a signal and a time, as in USR1@10min.",
            ),
            (
                self.warn_s >= walltime_s,
                f"is to be warned {before} before the end of a leg of {lasts}",
                "Warn it later, or ask for more walltime.",
            ),
            (
                any(not path or re.search(r"[\0\n]", path) for path in self.progress),
                "shows its progress in a path that is empty, or of several lines",
                "Name a file, or a pattern.",
            ),
        )
        return next(((message, hint) for is_so, message, hint in faults if is_so), None)


KEYS = ("total", *(key.name for key in keys_of(Continuation)))
"""The other keys of a stage that runs in legs."""


def continuation_of(values: Mapping[str, Any], *, where: str, expects: bool) -> Continuation | None:
    """Read a stage's keys about legs; None if it does not continue.

    `said`: given values of ``continues`` and of `KEYS`: `warn` as `Continuation.warned` returns it, `progress` as a
    list of paths.
    `where`: the stage, for errors.
    `expects`: whether the key ``expected`` is given.
    Raises `WorkflowError`: it does not continue, but has a key of stages that do; or it continues, and has
    ``expected``.
    """
    if not values.get("continues"):
        if key := next((key for key in KEYS if values.get(key) is not None), ""):
            hint = "Say `continues = true`, too; or leave it out."
            raise WorkflowError(f"says {key!r}, and does not continue in legs", where=where, hint=hint)
        return None
    if expects:
        hint = "Say `total`: how long all legs together take."
        raise WorkflowError("continues in legs, and says 'expected'", where=where, hint=hint)
    given = {key: values[key] for key in ("max_legs", "unfinished") if values.get(key) is not None}
    progress = tuple(map(str, values.get("progress") or ()))
    return replace(values.get("warn") or Continuation(), progress=progress, **given)
