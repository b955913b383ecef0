"""A run's knowledge of the program that hosts it: the stages that it added, and the commands that it handed over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from asa.runner.entries import Claimed, Dropped, Intended
from asa.runner.stages import Stages
from asa.strategies.base import Phase


@dataclass(slots=True)
class Host:
    """The host's wishes; empty in a run without a host."""

    may_add: bool = False  # whether the run is open: the host may add stages and hand them over
    max_jobs: int | None = None  # upper bound of the jobs that the host hands over at a time; None for no limit
    # stages not handed over yet
    unclaimed: dict[str, None] = field(default_factory=dict)
    repeatable: set[str] = field(default_factory=set)  # stages that the host hands over again if they fail
    # of those, the failed ones, with how the last attempt ended
    attempts_failed: dict[str, str] = field(default_factory=dict)
    claimed_s: dict[str, float] = field(default_factory=dict)  # when stages were handed over, the latest last
    withdrawn: set[str] = field(default_factory=set)  # stages that it wants no more, though they were handed over
    unreleased: dict[str, None] = field(default_factory=dict)  # stages whose jobs may be waiting for their commands
    # by stage: the releases for which its jobs wait, each with the job's token
    releases: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def keep_back(self, names: Iterable[str], stages: Stages) -> None:
        """Keep stages back until they are handed over."""
        for name in names:
            self.unclaimed[name] = None
            stages.keep_back(name)

    def may_hand_over(self, name: str) -> bool:
        """Whether a stage is to be handed over, now or again after a failure."""
        return name in self.unclaimed or name in self.repeatable

    def takes_back(self, name: str) -> bool:
        """Whether a stage will be handed over again if it fails."""
        return name in self.repeatable

    def handed_back(self, name: str, reason: str, stages: Stages) -> None:
        """Record that a failed stage is to be handed over again."""
        self.keep_back([name], stages)
        self.repeatable.discard(name)
        self.attempts_failed[name] = reason

    def claimed(self, entry: Claimed, stages: Stages) -> None:
        """Record that a stage was handed over, so that it may begin."""
        name = entry.stage
        del self.unclaimed[name]
        self.claimed_s.pop(name, None)
        self.claimed_s[name] = entry.at_s
        self.unreleased[name] = None
        self.attempts_failed.pop(name, None)
        (self.repeatable.add if entry.may_come_again else self.repeatable.discard)(name)
        if entry.asked is not None:
            stages.put(name, replace(stages[name], stage=entry.asked))
        stages.release(name)

    def dropped(self, entry: Dropped, stages: Stages) -> None:
        """Record that stages are no longer wanted."""
        for name in entry.stages:
            view = stages[name]
            if name not in self.unclaimed and entry.even_claimed:
                self.withdrawn.add(name)
            self.repeatable.discard(name)
            self.unclaimed.pop(name, None)
            self.unreleased[name] = None
            stages.release(name)
            if not view.phase.is_settled:
                stages.put(name, replace(view, phase=Phase.NOT_WANTED, hold_until_s=None, reason=entry.reason))

    # ------------------------------------------------------------------ releases

    def awaited(self, intent: Intended, stages: Stages) -> None:
        """Record the releases for which a job waits until its stages are handed over."""
        own = f"{intent.token}~"
        for release in (*intent.spec.awaits, *(release for step in intent.spec.steps for release in step.awaits)):
            if release.startswith(own):
                name = stages.at(int(release.removeprefix(own)))
                self.releases.setdefault(name, []).append((release, intent.token))


def release_of(token: str, stage: str, stages: Stages) -> str:
    """Return the token of the file that releases a job's stage when the host hands the stage over."""
    return f"{token}~{stages.position(stage)}"
