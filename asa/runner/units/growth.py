# ruff: noqa: ARG002 - nothing depends on it
"""Cores that join another job: they run nothing of their own, so no stage depends on what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from asa.records import Record
from asa.runner.course import RunCourse
from asa.runner.jobs import Job
from asa.runner.units.base import Units


@dataclass(slots=True)
class GrowthUnits(Units):
    """Jobs without a unit of their own."""

    def is_to_lead(self, run: RunCourse, job: Job, former: Job | None) -> bool:
        """Whether such a job represents the stage that it is for: never."""
        return False

    def began(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Note that they are there."""
        yield from ()

    def ended(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Note that they are gone."""
        yield from ()

    def given_up(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Have them planned anew."""
        run.ask_again(job)
        yield from ()

    def why_lost(self, run: RunCourse, job: Job) -> str:
        """Say why they are of no use: a strategy decides that."""
        return ""

    why_useless = why_lost
