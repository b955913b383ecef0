"""Dependencies of jobs: passes them to Slurm, and checks that Slurm has kept them, so that no job starts early."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from asa.backend import Dependency, DependencyType, JobSpec, JobState, JobStatus
from asa.errors import SubmitRejectedError

from .link import SlurmRecord
from .states import ended_as

_LONG_S = 300.0  # if this much of a delay is left, a minute of lateness matters little


@dataclass(frozen=True, slots=True)
class Passed:
    """The dependencies and the begin time to pass to Slurm."""

    words: str  # as in `afterok:12,after:14+2`; empty for none
    begin_s: int | None  # earliest start, in whole seconds; None for none
    # the dependencies in `words`; the others are met, or converted into a begin time
    kept: tuple[Dependency, ...]


def pass_on(spec: JobSpec, known: Mapping[str, JobStatus], now_s: float) -> Passed:
    """Return the dependencies to pass to Slurm: those on jobs that have not ended."""
    words, kept, begins_s = [], [], [spec.begin_s or 0.0]
    dependencies = dict.fromkeys(spec.dependencies)
    for dependency in dependencies:
        needed = known[dependency.job_id]
        if dependency.or_end and needed.state.is_final:
            continue
        _refuse_the_hopeless(spec, dependency, needed)
        left_s = (needed.start_s or now_s) + dependency.delay_s - now_s
        if (
            dependency.or_end and left_s >= _LONG_S and len(dependencies) == 1
        ):  # Slurm joins all dependencies by "and", or all by "or"
            words.append(f"{_in_words(dependency)}?{DependencyType.AFTERANY}:{dependency.job_id}")
            kept.append(dependency)
        elif dependency.type is DependencyType.AFTER and needed.start_s is not None:
            begins_s.append(needed.start_s + dependency.delay_s)
        elif not needed.state.is_final:
            words.append(_in_words(dependency))
            kept.append(dependency)
    begin_s = math.ceil(max(begins_s))
    return Passed(",".join(words), begin_s if begin_s > now_s else None, tuple(kept))


def is_unmet(dependency: Dependency, needed: JobStatus, record: SlurmRecord | None, now_s: float) -> bool:
    """Whether a dependency is certainly not met, given what is known of the other job."""
    if needed.restarts:
        return False  # the dependency may have been met earlier
    end = needed.state if needed.state.is_final else ended_as(record) if record is not None else None
    if dependency.or_end and end is not None:
        return False
    if dependency.type is DependencyType.AFTER:
        return needed.start_s is None or needed.start_s + dependency.delay_s > now_s + 1
    if end is None:
        return True
    return dependency.type is DependencyType.AFTEROK and end is not JobState.COMPLETED


def _in_words(dependency: Dependency) -> str:
    """Return a dependency in Slurm's form, which has delays in whole minutes."""
    minutes = math.ceil(dependency.delay_s / 60) if dependency.type is DependencyType.AFTER else 0
    return f"{dependency.type}:{dependency.job_id}" + (f"+{minutes}" if minutes else "")


def _refuse_the_hopeless(spec: JobSpec, dependency: Dependency, needed: JobStatus) -> None:
    if not needed.state.is_final:
        return
    if dependency.type is DependencyType.AFTEROK and needed.state is not JobState.COMPLETED:
        how = f"{needed.state}{f' ({needed.reason})' if needed.reason else ''}"
        raise SubmitRejectedError(
            f"depends on the success of job {needed.job_id}, which ended as {how}",
            where=f"job {spec.name!r}",
            hint="Submit the other one again first.",
        )
    if dependency.type is DependencyType.AFTER and needed.start_s is None:
        raise SubmitRejectedError(
            f"depends on the start of job {needed.job_id}, which ended without starting",
            where=f"job {spec.name!r}",
            hint="Submit the other one again first.",
        )
