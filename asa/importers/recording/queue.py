"""The jobs of a recording, none of which runs: the states that the driver sees, and the ends that it has seen.

A job is pending when the driver first asks about it. If the driver sleeps and asks again, the job runs; at the next
such time it has completed. A job with dependencies is pending until these have ended. So a driver that polls can
continue, and each submission is recorded with the ends of jobs that the driver had seen before.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from .processes import EndOfWait, Process, now_ticks
from .submissions import FIRST_NUMBER, Submission, WaitsFor, waits_for

_ENDED_AT = 3  # number of looks after which a job has ended
_LOOKS_OF_ONE_THAT_WAITS = 12


class RecordedQueue:
    """The jobs that a driver submitted, in order."""

    def __init__(self, user: str, count_sleeps: Callable[[], int] = lambda: 0, *, first: int = FIRST_NUMBER) -> None:
        self.jobs: list[Submission] = []
        self.own_jobs: list[Submission] = []  # drivers of a session that are batch jobs themselves
        self.user = user
        self._users = (user, str(os.getuid()), *_name_of_this_user())
        self.next_number = first
        self._seen_ended: dict[int, Literal["success", "always"]] = {}
        self._awaited: dict[int, EndOfWait] = {}
        self._own: dict[Process, int] = {}
        self._count_sleeps = count_sleeps
        self._slept = 0  # number of sleeps when the driver last asked about jobs
        self._looks = 0  # number of times that the driver has asked since its last submission
        self._ends_at_once = 1  # how many running jobs end when the driver next asks about all
        self._by_number: dict[int, Submission] = {}

    def job(self, number: int) -> Submission | None:
        """Return a job by its number."""
        return self._by_number.get(number)

    def take(self, job: Submission, lineage: tuple[Process, ...] = ()) -> None:
        """Add a job that a process with this lineage has submitted."""
        slept = self._count_sleeps()
        known: dict[int, Literal["success", "always"]] = {
            number: "success" for number, end in self._awaited.items() if end.is_known_to(lineage, slept)
        }
        job.ended = tuple((self._seen_ended | known).items())
        self.next_number += 1
        self.jobs.append(job)
        self._by_number[job.number] = job
        self._looks, self._ends_at_once = 0, 1

    def take_own(self, job: Submission, lineage: tuple[Process, ...]) -> None:
        """Add a driver that is a batch job itself. It is not shown in the queue."""
        self.take(job, lineage)
        self.jobs.remove(job)
        del self._by_number[job.number]
        self.own_jobs.append(job)
        self._own[lineage[-2]] = job.number

    def own_job_of(self, lineage: tuple[Process, ...]) -> int:
        """Return the job number of the driver that made a call; 0 if that driver is no job."""
        return next((self._own[process] for process in lineage if process in self._own), 0)

    def end(self, number: int, lineage: tuple[Process, ...] = ()) -> None:
        """End a job whose ``sbatch --wait`` a process with this lineage has called."""
        self._by_number[number].looks = _ENDED_AT
        self._awaited[number] = EndOfWait(lineage, now_ticks(), self._count_sleeps())

    def is_under_way(self, job: Submission) -> bool:
        """Whether a job has begun."""
        return job.looks >= _ENDED_AT - 1

    def look(self, named: Sequence[Submission] = ()) -> None:
        """Record that the driver asks about jobs, all or some; a step of time passes if it has slept since.

        A driver may also wait without sleeping: it asks again and again, and submits nothing.
        """
        slept, self._slept = self._slept, self._count_sleeps()
        self._looks += 1
        for job in named or self.jobs:
            job.looks = max(job.looks, 1)
        if self._slept != slept or self._looks > _LOOKS_OF_ONE_THAT_WAITS:
            self._go_on(named)

    def _go_on(self, named: Sequence[Submission]) -> None:
        """Begin and end jobs.

        If the driver asks about all, one of them ends first, then two, then four. So a driver that keeps the number of
        its jobs in the queue below a bound can go on early, and one that waits for all of them soon sees them end.
        """
        some = self._with_those_before(named) if named else self.jobs
        ending = [job for job in some if job.looks == _ENDED_AT - 1]
        for job in some:
            if job.looks < _ENDED_AT - 1 and self._may_begin(job):
                job.looks += 1
        for job in ending if named else ending[: self._ends_at_once]:
            job.looks = _ENDED_AT
        self._ends_at_once *= 2 if ending else 1

    def _with_those_before(self, jobs: Sequence[Submission]) -> list[Submission]:
        """Return jobs and the jobs that they wait for, in order."""
        found: dict[int, Submission] = {}
        left = list(jobs)
        while left:
            job = left.pop()
            if job.number not in found:
                found[job.number] = job
                parts, _ = waits_for(job.value("dependency"))
                left += [one for part in parts if (one := self.job(part.number)) is not None]
                if any(part.kind == "singleton" for part in parts):
                    left += [
                        earlier for earlier in self.jobs if earlier.name == job.name and earlier.number < job.number
                    ]
        return [found[number] for number in sorted(found)]

    def _may_begin(self, job: Submission) -> bool:
        if job.is_cancelled or job.is_held:
            return False
        value = job.value("dependency")
        parts, any_will_do = waits_for(value)
        ends = [self._is_over(job, part) for part in parts]
        return not ends or (any(ends) if any_will_do else all(ends))

    def _is_over(self, job: Submission, part: WaitsFor) -> bool:
        if part.kind == "singleton":
            before = self.jobs[: self.jobs.index(job)]
            return all(self.has_ended(earlier) for earlier in before if earlier.name == job.name)
        other = self.job(part.number)
        return other is None or self.has_ended(other) or (part.kind == "after" and other.looks >= _ENDED_AT - 1)

    def has_ended(self, job: Submission) -> bool:
        """Whether a job has ended."""
        return job.is_cancelled or job.looks >= _ENDED_AT

    def state(self, job: Submission) -> str:
        """Return a job's state as Slurm names it."""
        if job.is_cancelled:
            return "CANCELLED"
        return "COMPLETED" if job.looks >= _ENDED_AT else "RUNNING" if job.looks == _ENDED_AT - 1 else "PENDING"

    def see_ended(self, jobs: Iterable[Submission], how: Literal["success", "always"]) -> None:
        """Record that the driver knows the end of jobs: that they completed, or only that they ended."""
        for job in jobs:
            if self.has_ended(job) and not job.is_cancelled:
                before = self._seen_ended.get(job.number)
                self._seen_ended[job.number] = how if before != "success" else "success"

    def awaited_last(self) -> list[Submission]:
        """Return the jobs whose end the driver saw without submitting anything afterwards."""
        followed = {number for job in self.jobs for number, _ in job.ended}
        seen = self._seen_ended.keys() | self._awaited.keys()
        return [job for job in self.jobs if job.number in seen and job.number not in followed]

    def chosen(self, words: Mapping[str, str | None]) -> list[Submission]:
        """Return the jobs that options of squeue or sacct choose."""
        chosen = list(self.jobs)
        if words.get("jobs"):
            numbers = {int(number) for number in re.findall(r"(\d+)(?:[_.+][\w\[\]-]*)?", words["jobs"] or "")}
            chosen = [job for job in chosen if job.number in numbers]
        if words.get("user"):
            users = (words["user"] or "").split(",")
            chosen = chosen if {*self._users} & set(users) else []
        if words.get("name"):
            chosen = [job for job in chosen if job.name in (words["name"] or "").split(",")]
        if words.get("partition"):
            chosen = [job for job in chosen if job.value("partition") in {"", *(words["partition"] or "").split(",")}]
        return chosen


def _name_of_this_user() -> list[str]:
    try:
        return [pwd.getpwuid(os.getuid()).pw_name]
    except KeyError:
        return []
