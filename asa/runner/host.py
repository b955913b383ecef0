"""What a run knows of the program that hosts it: which adds stages, and hands over what each of them runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from asa.runner.entries import Claimed, Dropped, Intended
from asa.runner.stages import Stages
from asa.strategies.base import Phase


@dataclass(slots=True)
class Host:
    """The host of a run; of a run that is not open, one that wants nothing."""

    may_add: bool = False  # stages, or hand some over: the run is open
    max_jobs: int | None = None  # that it hands over at a time; None for any number
    # stages that were not handed over yet
    unclaimed: dict[str, None] = field(default_factory=dict)
    repeatable: set[str] = field(default_factory=set)  # that it hands over again if they fail
    attempts_failed: dict[str, str] = field(default_factory=dict)  # those that did, and how the last ended
    unreleased: dict[str, None] = field(default_factory=dict)  # whose jobs may wait for their commands
    # by stage, what jobs of it wait for until it is handed over, each with the job's token
    releases: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def keep_back(self, names: Iterable[str], stages: Stages) -> None:
        """Keep stages from their turn until they are handed over."""
        for name in names:
            self.unclaimed[name] = None
            stages.keep_back(name)

    def may_hand_over(self, name: str) -> bool:
        """Whether a stage is to be handed over, now or once more should it fail."""
        return name in self.unclaimed or name in self.repeatable

    def takes_back(self, name: str) -> bool:
        """Whether a stage is handed over once more should it fail."""
        return name in self.repeatable

    def handed_back(self, name: str, reason: str, stages: Stages) -> None:
        """Note that a stage failed which is handed over once more."""
        self.keep_back([name], stages)
        self.repeatable.discard(name)
        self.attempts_failed[name] = reason

    def claimed(self, entry: Claimed, stages: Stages) -> None:
        """Note that a stage was handed over, which may begin."""
        name = entry.stage
        del self.unclaimed[name]
        self.unreleased[name] = None
        self.attempts_failed.pop(name, None)
        (self.repeatable.add if entry.may_come_again else self.repeatable.discard)(name)
        if entry.asked is not None:
            stages.put(name, replace(stages[name], stage=entry.asked))
        stages.release(name)

    def dropped(self, entry: Dropped, stages: Stages) -> None:
        """Note that stages are not wanted any more."""
        for name in entry.stages:
            view = stages[name]
            self.unclaimed.pop(name, None)
            self.unreleased[name] = None
            stages.release(name)
            if not view.phase.is_settled:
                stages.put(name, replace(view, phase=Phase.NOT_WANTED, hold_until_s=None, reason=entry.reason))

    # ------------------------------------------------------------------ what jobs wait for

    def awaited(self, intent: Intended, stages: Stages) -> None:
        """Note what a job is to wait for until its stages are handed over."""
        own = f"{intent.token}~"
        for release in (*intent.spec.awaits, *(one for step in intent.spec.steps for one in step.awaits)):
            if release.startswith(own):
                name = stages.at(int(release.removeprefix(own)))
                self.releases.setdefault(name, []).append((release, intent.token))


def release_of(token: str, stage: str, stages: Stages) -> str:
    """Return the token that releases a job's stage once that is handed over."""
    return f"{token}~{stages.position(stage)}"
