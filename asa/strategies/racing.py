"""The rule of races: several jobs are submitted for the same work, and the first to start is kept.

It needs no forecast.

All remaining stages, or as many of the next ones as can share a job, are requested as one job, at the largest width
that still shortens the run enough. If that job has not started after a while, further jobs are requested: the same
stages at other widths, the widest first, and the next stage alone. A gap is often large enough for one of two pending
jobs, and too small for the other. A workflow of which several stages may run at once does not race: one job would run
them one after the other.

The first to start is kept, so a job that runs longer may start just before one that would have ended sooner. Therefore
it is requested only after the first has waited as long as the other runs longer. Whatever the queue does then, the loss
among requests for the same stages is bounded as in ski rental: these take at most about twice as long as if the waits
had been known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from asa.backend import Capabilities
from asa.core.late import dataclass
from asa.errors import InputError
from asa.shapes import Shape
from asa.units import format_duration
from asa.workflow import Stage

from .base import Cancellation, Choice, Keep, Phase, Plan, PlannedJob, RacerView, RunView
from .planning.molding import Line, WideningJob, forms_of, lines_of
from .planning.parts import alike, max_walltimes

_HAS_JOB = frozenset({Phase.QUEUED, Phase.ALLOCATED, Phase.RUNNING})


@dataclass(frozen=True, slots=True)
class Races:
    """The rule, and its bounds.

    Parameters
    ----------
    max_racers
        Upper bound of jobs that race with the first one, in one race.
    pause_s
        Seconds for which the first job is pending before others are requested.
    max_share
        A width is kept if its run time is at most this share of the run time at the last kept width.
    alone
        Number of widths at which the next stage alone is requested.
    patience
        A job that runs longer than the first is requested after the first has been pending for this number of times
        the difference. 0: after `pause_s`, as all others.
    """

    max_racers: int = 3
    pause_s: float = 60.0
    max_share: float = 0.9
    alone: int = 2
    patience: float = 1.0

    def plan(self, view: RunView) -> Plan | None:
        """Return the plan for jobs that race; None if the stages cannot race here."""
        left = [name for name in view.left() if view.stages[name].phase is not Phase.CONDITIONAL]
        stages = [view.stages[name].stage for name in left]
        if not view.capabilities.races or not all(stage.is_one_job and not stage.local for stage in stages):
            return None
        if not all(before in view.stages[name].stage.strictly_after for before, name in pairwise(left)):
            return None  # several may run at once
        if any(view.stages[name].phase in _HAS_JOB for name in left):
            return self._partners(view, left)
        first = view.to_run_now()
        if len(first) != 1 or not left or left[0] != first[0]:
            return None
        job, *others = self.requests(stages, view.capabilities)
        if not others:
            return None
        choices = {name: Choice(shape) for name, shape in zip(job.stages, job.shapes, strict=True)}
        reason = f"{job.what(len(left))}, on {job.on}, beyond which it gains little; others may race with it"
        return Plan.of([PlannedJob(job.stages, view.now_s, Keep.NOTHING, reason, racer=1)], choices=choices)

    def _partners(self, view: RunView, left: Sequence[str]) -> Plan | None:
        """Return requests to race with the pending job; none while one of the jobs runs."""
        under_way = [view.stages[name] for name in left if view.stages[name].phase in _HAS_JOB]
        if started := {stage.job_id for stage in under_way if stage.phase is not Phase.QUEUED}:
            return Plan() if len(started) == 1 else None
        lead = next((racer for racer in view.racers if racer.job_id == view.stages[left[0]].job_id), None)
        if lead is None:
            return None
        if not lead.is_pending:
            return Plan()  # the job has ended, and another job that may have begun is being looked for
        stages = [view.stages[name].stage for name in left]
        asked = [(racer, _rest(racer.stages, racer.shapes, left)) for racer in view.racers]
        asked.append((lead, _rest(lead.stages, tuple(_shape(view.stages[name].stage) for name in lead.stages), left)))
        others = [
            job
            for job in self.requests(stages, view.capabilities)
            if not any(job.is_asked(racer) for racer, rest in asked if rest == _rest(job.stages, job.shapes, left))
        ]
        most = view.capabilities.max_queued
        pending = sum(racer.is_pending for racer in view.racers)
        free = min(self.max_racers + 1, self.max_racers + 1 if most is None else most) - pending
        number = max(racer.number for racer in view.racers)
        return Plan.of(
            self._rival(job, lead, number + place, view.now_s, job.called(len(left)))
            for place, job in enumerate(others[: max(free, 0)], start=1)
        )

    def _rival(self, job: RaceRequest, lead: RacerView, number: int, now_s: float, called: str) -> PlannedJob:
        """Return the job that is submitted if the lead has not started until then."""
        submit_s = max(lead.submit_s + max(self.pause_s, self.patience * job.longer_s), now_s)
        waited = format_duration(submit_s - lead.submit_s)
        reason = f"races with job {lead.job_id}, which has waited for {waited}: {called}"
        return PlannedJob(job.stages, submit_s, Keep.NOTHING, reason, racer=number, shapes=job.shapes)

    def requests(self, stages: Sequence[Stage], site: Capabilities) -> list[RaceRequest]:
        """List the requests in order: the first by itself, the others after a while."""
        whole = list(self._ladder(alike(stages, site), site))
        first_s = {name: shape.run_s for one in whole[:1] for name, shape in zip(one.stages, one.shapes, strict=True)}
        alone = list(self._ladder(stages[:1], site))[: self.alone] if any(len(one.stages) > 1 for one in whole) else []
        return [
            replace(one, longer_s=one.run_s - sum(first_s.get(name, math.inf) for name in one.stages))
            for one in (*whole[:1], *alone[:1], *whole[1:2], *whole[2:], *alone[1:])
        ]

    def _ladder(self, stages: Sequence[Stage], site: Capabilities) -> Iterator[RaceRequest]:
        """Return the worthwhile requests for as many of the stages as fit into one job, the widest first."""
        lines = lines_of({stage.name: forms_of(stage, site) for stage in stages})
        max_walltime_s = max_walltimes(site)
        fitting = [(line, _fitting(stages, line, max_walltime_s(line.partition))) for line in lines]
        names = tuple(stage.name for stage in stages[: max((number for _, number in fitting), default=0)])
        kept: dict[str, list[RaceRequest]] = {}
        for line, number in fitting:  # ascending in width, by partition
            if number < len(names):
                continue
            job = WideningJob(line)
            for name in names:
                job.add(name)
            here = kept.setdefault(line.partition, [])
            if not here or job.run_s <= self.max_share * here[-1].run_s:
                here.append(RaceRequest(names, job.shapes, job.cores, job.run_s))
        yield from sorted((form for here in kept.values() for form in here), key=lambda form: (-form.cores, form.run_s))


def _fitting(stages: Sequence[Stage], line: Line, max_walltime_s: float) -> int:
    """Count the stages, from the first on, that a job of this width and partition can run within its walltime."""
    job = WideningJob(line)
    for number, stage in enumerate(stages):
        if not job.add(stage.name) or (number and job.walltime_s > max_walltime_s):
            return number
    return len(stages)


def rival_of(view: RunView, cancellation: Cancellation) -> PlannedJob | None:
    """Return the job that is submitted while another is queued, in order to replace it; None if that is impossible.

    The queued job must be the first of a race, as `asa-plan` submits jobs that may be replaced one day, and the site's
    limit of queued jobs must leave room for both.
    """
    substitute, job_id, most = cancellation.substitute, cancellation.job_id, view.capabilities.max_queued
    is_in_a_race = any(racer.job_id == job_id and racer.is_pending for racer in view.racers)
    if substitute is None or not is_in_a_race or not view.capabilities.races:
        return None
    planned, stages = substitute.planned, [view.stages[name].stage for name in substitute.planned.stages]
    queued = {racer.job_id for racer in view.racers if racer.is_pending}
    queued |= {stage.job_id for stage in view.stages.values() if stage.phase is Phase.QUEUED and stage.job_id}
    if (most is not None and len(queued) >= most) or planned.is_elastic or planned.spare_walltime_s:
        return None
    if not all(stage.is_one_job and not stage.local for stage in stages):
        return None
    chosen = {name: choice.shape for name, choice in substitute.choices.items()}
    return replace(
        planned,
        racer=view.rivals(planned.stages) + 2,
        shapes=tuple(chosen.get(stage.name, _shape(stage)) for stage in stages),
        replaces=job_id,
        reason=f"{planned.reason}: {cancellation.reason}",
    )


def _rest(stages: Sequence[str], shapes: Sequence[Shape], left: Sequence[str]) -> tuple[tuple[str, int, str], ...]:
    """Return the remaining stages of a job, each with its width and partition."""
    return tuple((n, shape.width, shape.partition) for n, shape in zip(stages, shapes, strict=False) if n in left)


def _shape(stage: Stage) -> Shape:
    return Shape(stage.width, stage.expected_s, stage.walltime_s, stage.run_spread, stage.partition)


@dataclass(frozen=True, slots=True)
class RaceRequest:
    """A request for the given stages in one job."""

    stages: tuple[str, ...]
    shapes: tuple[Shape, ...]
    cores: int
    run_s: float
    longer_s: float = 0.0
    """How much longer it runs than the first request does for the same stages."""

    @property
    def on(self) -> str:
        """Its cores, in words."""
        return f"{self.cores} core{'' if self.cores == 1 else 's'}"

    def what(self, left: int) -> str:
        """Return in words which of the remaining stages it is for; `left`: their number."""
        number = len(self.stages)
        if number == left:
            return "all that is left in one job" if left > 1 else "the last stage"
        return "the next stage alone" if number == 1 else f"the next {number} stages in one job"

    def called(self, left: int) -> str:
        """Return in words what it is for and the resources that it requests."""
        return f"{self.what(left)}, on {self.on} for {format_duration(self.run_s)}"

    def is_asked(self, racer: RacerView) -> bool:
        """Whether a job that has the same stages left, in the same shapes, does as well.

        One that was requested for more stages may ask for more cores than the remaining ones need.
        """
        return racer.stages == self.stages or racer.cores <= self.cores


def read_races(settings: Mapping[str, str]) -> tuple[Races | None, Literal["always", "unknown"]]:
    """Read the settings `races` (yes or no), `max-racers`, `race-after` (seconds) and `patience`.

    Returns the rule, None for no races, and when it holds: always, or without `races` only while no wait is known.

    Raises `InputError`: one is invalid.
    """
    text = settings.get("races", "")
    if text not in {"yes", "no", ""}:
        raise InputError(f"{text!r} is not yes or no", where="asa-plan: races", hint="As in races=yes.")
    most, pause_s, patience = (
        _whole(name, settings.get(name, usual))
        for name, usual in (("max-racers", "3"), ("race-after", "60"), ("patience", "1"))
    )
    rule = Races(most, pause_s, patience=patience) if text != "no" and most else None
    return rule, "always" if text == "yes" else "unknown"


def _whole(name: str, text: str) -> int:
    if not text.isdecimal():
        raise InputError(f"{text!r} is no whole number from 0 on", where=f"asa-plan: {name}", hint=f"As in {name}=3.")
    return int(text)
