"""The jobs of all users that a bank follows, which the next client may go on following.

A client that begins sees jobs that an earlier one has seen before. What the estimator has learned of them is kept with
it, so that it simulates the queue once for each job, not once for each job and client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from asa.core import plainly
from asa.waits import QueuedJob, QueueEvent, WaitEstimator, at_least, exactly

EstimatorOf = Callable[[str], WaitEstimator]
"""Returns the estimator of a system."""

_MAX_OWN = 2000


@dataclass(slots=True)
class FollowedQueue:
    """The jobs of all users that wait or run, as far as their submission was reported."""

    waiting: dict[int | str, tuple[QueuedJob, int]] = field(default_factory=dict)  # with the estimator's ticket
    running: dict[int | str, tuple[QueuedJob, int, float]] = field(default_factory=dict)  # with ticket and start
    # for the next client: when each job was submitted that this one has seen; None if nothing is kept
    shown: dict[int | str, float] | None = None
    # the client's own jobs that are over: the estimator knows them already when another run's client shows them
    own: list[QueuedJob] = field(default_factory=list)
    is_behind: bool = False  # whether the next events are the first that this client sees
    news: int = 0  # number of jobs, of all users, that this client has told the estimator of

    def follow(self, events: Iterable[QueueEvent], estimator: EstimatorOf, *, sees_ends: bool) -> int:
        """Let estimators learn from events; return how many waits became known.

        A job is skipped if its submission was not reported.
        """
        known = 0
        news = self._catch_up(list(events), estimator, "ended" if sees_ends else "started")
        plainly.expect(len(news) / 2)
        for event in news:
            if event.what == "submitted":
                if (job := event.job) is not None:
                    if (before := self.waiting.pop(event.key, None)) is not None:
                        # it was requeued, or another job has its number now
                        estimator(before[0].system).withdrawn(before[1])
                    self.waiting[event.key] = job, estimator(job.system).submitted(job)
                    self.news += 1
                    if self.shown is not None:
                        self.shown[event.key] = job.submit_s
            elif event.what == "ended":
                if (ran := self.running.pop(event.key, None)) is not None:
                    estimator(ran[0].system).ended(ran[1], event.time_s - ran[2])
            elif (waited := self.waiting.pop(event.key, None)) is not None:
                job, ticket = waited
                wait_s = max(0.0, event.time_s - job.submit_s)
                estimator(job.system).observe(ticket, exactly(wait_s) if event.what == "started" else at_least(wait_s))
                if event.what == "started" and sees_ends:
                    self.running[event.key] = job, ticket, event.time_s
                known += 1
        return known

    def lose_sight(self, estimator: EstimatorOf) -> None:
        """Forget the jobs, but keep what was learned."""
        for job, ticket in (*self.waiting.values(), *((job, ticket) for job, ticket, _ in self.running.values())):
            estimator(job.system).withdrawn(ticket)
        self.waiting.clear()
        self.running.clear()

    def _catch_up(self, events: list[QueueEvent], estimator: EstimatorOf, last: str) -> list[QueueEvent]:
        """Return the events that no earlier client has seen; forget the jobs that the site no longer shows.

        `events`: at first all that the site shows, from the submission of each job on; later those since.
        `last`: what is reported last of a job.
        """
        if not self.is_behind:
            return events
        self.is_behind = False
        jobs = {event.key: event.job for event in events if event.job is not None}
        was = self.shown or {}
        same = {key for key, job in jobs.items() if was.get(key) == job.submit_s}  # else another job has its number
        gone = FollowedQueue(
            {key: self.waiting.pop(key) for key in list(self.waiting) if key not in same},
            {key: self.running.pop(key) for key in list(self.running) if key not in same},
        )
        gone.lose_sight(estimator)
        own = Counter(self.own)
        for key in (event.key for event in events if event.what in {last, "left"} and event.key not in same):
            if own[job := jobs[key]]:
                own[job] -= 1
                same.add(key)
        self.own = list(own.elements())
        self.shown = {key: jobs[key].submit_s for key in same}
        return [event for event in events if event.key not in same or self._is_news(event)]

    def _is_news(self, event: QueueEvent) -> bool:
        """Whether an event of a job that an earlier client has seen happened since."""
        if event.key in self.waiting:
            return event.what != "submitted"
        return event.key in self.running and event.what == "ended"

    # ------------------------------------------------------------------ for the next client

    def state(self) -> dict[str, Any]:
        """Return what the next client is to know, as JSON-ready data."""
        return {
            "waiting": [[key, astuple(job), ticket] for key, (job, ticket) in self.waiting.items()],
            "running": [[key, astuple(job), *rest] for key, (job, *rest) in self.running.items()],
            "shown": self.shown or {},
            "own": [astuple(job) for job in self.own[-_MAX_OWN:]],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FollowedQueue:
        """Return a queue whose client has seen nothing of it yet."""
        return cls(
            {str(key): (QueuedJob(*job), int(ticket)) for key, job, ticket in state["waiting"]},
            {str(key): (QueuedJob(*job), int(ticket), float(at_s)) for key, job, ticket, at_s in state["running"]},
            {str(key): float(submit_s) for key, submit_s in state["shown"].items()},
            [QueuedJob(*job) for job in state["own"]],
            is_behind=True,
        )
