"""Jobs that the batch system has deferred, each with the time and the reason, and targets that deferred several.

All of it follows from the journal, so every client of the run knows it. `asa.runner.attempts` decides when to submit a
job again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from asa.core.late import dataclass
from asa.exactly_once import Cause
from asa.keys import JobKeys, named, shared_by
from asa.requests import marked, name_of
from asa.runner.entries import Accepted, Entry, Intended, Refused, Retried, Unexplained, Unsent
from asa.runner.unexplained import UnknownAnswers
from asa.strategies.base import Choice, PlannedJob

if TYPE_CHECKING:
    from asa.runner.state import RunState


class Target(NamedTuple):
    """The destination of jobs: one limit, or a closed partition, may keep out all jobs with the same target."""

    partition: str
    named: tuple[tuple[str, str], ...]  # account and the like, each with its key
    options: tuple[str, ...]  # options that name a quality of service, a reservation and the like
    is_local: bool = False

    @property
    def text(self) -> str:
        """Name the target."""
        names = [("partition", self.partition), *self.named]
        return ", ".join([*(f"{key} {name}" for key, name in names if name), *self.options]) or "this queue"


def target_of(state: RunState, planned: PlannedJob, choices: Mapping[str, Choice] | None = None) -> Target:
    """Return the target of a planned job; `choices`: the shapes in which its stages will be asked for."""
    stages = [state.stages[name].stage for name in planned.stages]
    chosen = (choices[stage.name].shape.partition for stage in stages if choices and stage.name in choices)
    partitions = (*chosen, *(stage.partition for stage in stages), state.capabilities.partition)
    return Target(
        next(filter(None, partitions), ""),
        tuple(named(JobKeys(**shared_by(stages))).items()),
        tuple(sorted({o for stage in stages for o in stage.options if name_of(o) in marked("target")})),
        is_local=all(stage.local for stage in stages),
    )


@dataclass(frozen=True, slots=True)
class Deferral:
    """A deferred submission."""

    since_s: float
    reason: str  # the latest
    tried_s: float  # the last attempt that reached the batch system


@dataclass(slots=True)
class Deferrals:
    """The deferred submissions of a run."""

    _answers: UnknownAnswers = field(default_factory=UnknownAnswers)
    _deferrals: dict[str, Deferral] = field(default_factory=dict)  # by `PlannedJob.targets`
    # by target, the tokens of jobs deferred since it last accepted one, and their stages
    _refused_in_row: dict[Target, dict[str, str]] = field(default_factory=dict)

    def heard(self, entry: Entry, state: RunState) -> None:
        """Take in an entry, before the run's state does."""
        match entry:
            case Accepted(token=token) if (intent := state.jobs.intents.get(token)) is not None:
                self._settled(intent)
                if self._refused_in_row:
                    self._refused_in_row.pop(target_of(state, intent.planned), None)
            case Refused(token=token) if (intent := state.jobs.intents.get(token)) is not None:
                self._settled(intent)
                for tokens in self._refused_in_row.values():
                    tokens.pop(token, None)
            case Unexplained():
                self._answers.heard(entry)
            case Unsent(token=token) if (intent := state.jobs.intents.get(token)) is not None:
                self._unsent(entry, intent.planned, state)
            case Retried():
                self._answers.clear()
                self._deferrals.clear()
                self._refused_in_row.clear()

    def _settled(self, intent: Intended) -> None:
        self._answers.forget(intent.token)
        for name in intent.planned.targets:
            self._deferrals.pop(name, None)

    def _unsent(self, entry: Unsent, planned: PlannedJob, state: RunState) -> None:
        if entry.cause is Cause.ANSWER or self._answers.is_new(entry.token):
            tokens = self._refused_in_row.setdefault(target_of(state, planned), {})
            tokens[entry.token] = planned.targets[0]
        self._answers.unsent(entry)
        for name in planned.targets:
            was = self._deferrals.get(name, Deferral(entry.at_s, "", -math.inf))
            tried_s = was.tried_s if entry.cause is Cause.AWAY else entry.at_s
            self._deferrals[name] = Deferral(was.since_s, " ".join(entry.reason.split()), tried_s)

    # ------------------------------------------------------------------ state of deferrals

    def of(self, name: str) -> Deferral | None:
        """Return a stage's deferral; None if the stage is not deferred."""
        return self._deferrals.get(name)

    def tried_s(self, planned: PlannedJob) -> float:
        """Return when one of a planned job's targets was last tried; minus infinity if never."""
        deferrals = (self._deferrals.get(name) for name in planned.targets) if self._deferrals else ()
        return max((deferral.tried_s for deferral in deferrals if deferral is not None), default=-math.inf)

    def is_closed(self, target: Target) -> bool:
        """Whether a target has deferred jobs of several stages and accepted none since; it may then defer any job."""
        return len(set(self._refused_in_row.get(target, {}).values())) > 1

    def refusal_of(self, token: str, state: RunState, planned: PlannedJob) -> str:
        """Return a job's unknown answer if it has lasted long enough to count as a refusal; else empty."""
        others = self._refused_in_row.get(target_of(state, planned), ()) if self._refused_in_row else ()
        return self._answers.refusal_of(token, others)
