"""A plan made of a file of requests and events, as it is at a given time, and what has happened until then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from asa.backends.openccs.jobs import HOLDING, CcsJob, CcsOutcome, JobPhase, RefusedError
from asa.backends.openccs.lacks import amount
from asa.backends.openccs.limits_file import ConsumerBounds
from asa.backends.openccs.pieces import iso
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.words import IN_1973_S, clock
from asa.errors import InputError
from asa.units import format_duration

from .event_lines import NODE_EVENTS, AskedRequest, EventKind, PlanEvent
from .request_file import GivenPlan

SCHEMA = 1

STYLES = {
    "ended": "dim",
    "running": "bold green",
    "releasing": "dim",
    "allocating": "green",
    "planned": "",
    "waiting": "yellow",
    "failed": "red",
    "cancelled": "dim",
    "refused": "bold red",
}
"""Styles of jobs by their phase."""


@dataclass(frozen=True, slots=True)
class MovedJob:
    """A job whose start is another than before; None if it has none."""

    job: str
    from_s: int | None
    to_s: int | None


@dataclass(frozen=True, slots=True)
class Happening:
    """An event of the file, and what became of it."""

    at_s: int
    event: str  # as in the file, without its time
    why_not: str = ""  # why it was refused
    moved: tuple[MovedJob, ...] = ()  # jobs that it moved

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        moved = [asdict(job) for job in self.moved]
        return {"at_s": self.at_s, "event": self.event, "refused": self.why_not or None, "moved": moved}


class MadePlan:
    """A plan of the requests, with all events of the file until a given time.

    Jobs that no event ends do so when their time is over. `until`: name of the last job to plan; if it is refused, the
    plan is as it was at its submission.
    """

    def __init__(self, given: GivenPlan, now: int, *, until: str = "") -> None:
        bounds = given.bounds
        self.plan = RequestPlan(given.system, bounds.limits, bounds.pools, bounds.rules)
        self.refused: dict[str, CcsJob] = {}
        self.happened: list[Happening] = []
        self.promised: dict[str, int | None] = {}  # the start that each job got at its submission
        self.now = now
        self._silent: set[str] = set()  # nodes that do not answer
        self._plans = [self.plan]  # with those of reservations, also ended ones
        is_moving = bounds != ConsumerBounds() or bool(given.system.timeouts.sum_s)
        is_moving = is_moving or any(map(_is_moving, given.events))
        at_s = 0
        for event in sorted(given.events, key=lambda event: event.at_s):
            if event.at_s > now:
                break
            if event.at_s > at_s:
                self._plan_arrays(at_s)
            at_s = event.at_s
            if is_moving:
                self._let_pass(event.at_s)
            if isinstance(event, PlanEvent):
                self._apply(event)
            elif not self._submit(event) and event.name == until:
                self.now = event.at_s
                break
        self._plan_arrays(at_s)
        if is_moving:
            self._let_pass(self.now)
        self._step(self.now)

    # ------------------------------------------------------------------ requests and events

    def _submit(self, asked: AskedRequest) -> bool:
        """Plan a request, or a reservation; return whether it was accepted."""
        who = {"user": asked.user, "group": asked.group, "name": asked.name}
        try:
            if asked.is_reservation:
                self._plans.append(self.plan.reserve(asked.request, now=asked.at_s, **who))
                jobs = [self.plan.jobs[asked.name]]
            else:
                jobs = self.plan.submit(asked.request, now=asked.at_s, **who)
        except RefusedError as error:
            job = CcsJob(asked.name, asked.request, asked.user, asked.group, asked.at_s, why=error.message)
            self.refused[asked.name] = job
            return False
        self.promised |= {job.id: job.start_s for job in jobs}
        return True

    def _plan_arrays(self, now: int) -> None:
        """Plan what is left of large arrays, after all requests of the same time."""
        for plan in self._plans:
            while jobs := plan.plan_later(now=now):
                self.promised |= {job.id: job.start_s for job in jobs}

    def _apply(self, event: PlanEvent) -> None:
        """Let an event happen, and note which jobs it moved."""
        before = self._starts()
        refusals = self._of_node(event) if event.kind in NODE_EVENTS else self._of_jobs(event)
        self._backfill(event.at_s)
        self.happened.append(Happening(event.at_s, event.text, "; ".join(refusals), self._moved(before)))

    def _of_node(self, event: PlanEvent) -> list[str]:
        if event.kind is EventKind.HANG:
            self._silent.add(event.name)
        elif event.kind is EventKind.FAIL:
            self.plan.fail(event.name, now=event.at_s)
        else:
            self._silent.discard(event.name)
            self.plan.recover(event.name, now=event.at_s)
        return []

    def _of_jobs(self, event: PlanEvent) -> list[str]:
        """Let an event happen to a job, or to the elements of an array; return why some refuse it."""
        jobs = self._named(event.name)
        if not jobs:
            return ["it was refused" if event.name in self.refused else "it has not come yet"]
        is_array = len(jobs) > 1
        if is_array:
            jobs = [(plan, job) for plan, job in jobs if job.phase is not JobPhase.ENDED]
        refusals = [] if jobs else ["all its jobs have ended"]
        for plan, job in jobs:
            try:
                self._of_job(plan, job, event)
            except InputError as error:
                refusals.append(f"{job.id} {error.message}" if is_array else error.message)
        return refusals

    def _of_job(self, plan: RequestPlan, job: CcsJob, event: PlanEvent) -> None:
        if event.kind is EventKind.ALTER:
            plan.alter(job.id, event.parts, now=event.at_s)
        elif event.kind is EventKind.EXTEND:
            plan.extend(job.id, event.by_s, now=event.at_s)
        elif job.phase is not JobPhase.ENDED or job.placement is None or job.placement.end != event.at_s:
            self._leave(plan, job, event.at_s, failed=event.failed)  # unless its time was over at this second anyway

    def _named(self, name: str) -> list[tuple[RequestPlan, CcsJob]]:
        """Return the job of a name, or the elements of an array, with their plans."""
        jobs = [(plan, job) for plan in self._plans for job in plan.jobs.values()]
        return [(plan, job) for plan, job in jobs if job.id == name] or [
            (plan, job) for plan, job in jobs if job.id.rpartition("[")[0] == name
        ]

    def _starts(self) -> dict[str, int | None]:
        return {job.id: job.start_s for plan in self._plans for job in plan.jobs.values()}

    def _moved(self, before: Mapping[str, int | None]) -> tuple[MovedJob, ...]:
        after = self._starts()
        return tuple(MovedJob(name, start, after[name]) for name, start in before.items() if after[name] != start)

    # ------------------------------------------------------------------ time

    def _let_pass(self, now: int) -> None:
        """Let jobs begin and end in order until a time, so that others may take their place."""
        while (at_s := min(self._moments(), default=now + 1)) <= now:
            self._step(at_s)
            self._backfill(at_s)
        self._step(now)

    def _moments(self) -> Iterator[int]:
        """Yield the times at which something happens to a job by itself."""
        for plan, job in self._live():
            if job.placement is None:
                continue
            if job.phase is JobPhase.ALLOCATING:
                yield job.placement.start + plan.system.timeouts.allocate_s
            elif job.phase is JobPhase.RUNNING:
                over_s, notice_s = plan.over_s(job), plan.notice_s(job)
                yield from (time_s for time_s in (over_s, notice_s) if time_s is not None)
            else:
                yield job.placement.end if job.phase is JobPhase.RELEASING else job.placement.start

    def _backfill(self, now: int) -> None:
        for plan in self._plans:
            plan.backfill(now=now)

    def _step(self, now: int) -> None:
        """Let all happen that is due, and what follows from it at the same time."""
        while any(
            [self._begin_due(now), self._tell_due(now), self._end_due(now), self._answer(now), self._time_out(now)]
        ):
            pass

    def _begin_due(self, now: int) -> bool:
        due = [(plan, job) for plan in self._plans for job in plan.due(now)]
        for plan, job in due:
            if self._silent_node(job) is None:
                plan.begin(job.id, now=job.start_s or 0)
            else:
                plan.allocate(job.id, now=job.start_s or 0)
        return bool(due)

    def _tell_due(self, now: int) -> bool:
        """Tell jobs that asked for it that their time is almost over."""
        due = [
            (plan, job, notice_s)
            for plan, job in self._live()
            if (notice_s := plan.notice_s(job)) is not None and notice_s <= now
        ]
        for plan, job, notice_s in due:
            at_s = max(notice_s, job.begun_s or 0)
            plan.notify(job.id, now=at_s)
            left = format_duration((plan.over_s(job) or at_s) - at_s)
            self.happened.append(Happening(at_s, f"{job.id} is notified that its time is over in {left}"))
        return bool(due)

    def _end_due(self, now: int) -> bool:
        over = [
            (plan, job, over_s)
            for plan, job in self._live()
            if job.phase is JobPhase.RUNNING and (over_s := plan.over_s(job)) is not None and over_s <= now
        ]
        for plan, job, over_s in over:
            if plan.jobs[job.id] is job:  # it has not ended with its reservation
                self._leave(plan, job, over_s)
        return bool(over)

    def _leave(self, plan: RequestPlan, job: CcsJob, now: int, *, failed: bool = False) -> None:
        """End a job; its nodes are free at once, unless one of them does not answer."""
        if job.phase is JobPhase.RUNNING and self._silent_node(job) is not None:
            plan.release(job.id, now=now, failed=failed)
        else:
            plan.end(job.id, now=now, failed=failed)

    def _awaiting(self) -> list[tuple[RequestPlan, CcsJob]]:
        """Return the jobs whose nodes are allocated or released."""
        phases = {JobPhase.ALLOCATING, JobPhase.RELEASING}
        return [(plan, job) for plan, job in self._live() if job.phase in phases]

    def _answer(self, now: int) -> bool:
        """Begin or end jobs whose nodes answer again, or are known to be down."""
        answered = [(plan, job) for plan, job in self._awaiting() if self._silent_node(job) is None]
        for plan, job in answered:
            (plan.begin if job.phase is JobPhase.ALLOCATING else plan.end)(job.id, now=now)
        return bool(answered)

    def _time_out(self, now: int) -> bool:
        """Set a node down that took too long to allocate or to release."""
        for plan, job in self._awaiting():
            assert job.placement is not None, "it waits for its nodes"
            is_new = job.phase is JobPhase.ALLOCATING
            at_s = job.placement.start + plan.system.timeouts.allocate_s if is_new else job.placement.end
            node = self._silent_node(job)
            if at_s > now or node is None:
                continue
            before = self._starts()
            (plan.late if is_new else plan.late_release)(job.id, node, now=at_s)
            text = f"{node} is down: it took too long to {'allocate' if is_new else 'release'} {job.id}"
            self.happened.append(Happening(at_s, text, moved=self._moved(before)))
            return True
        return False

    def _silent_node(self, job: CcsJob) -> str | None:
        """Return a node of a job that is up, and does not answer."""
        cluster = self.plan.cluster
        return next((node for node in self.nodes_of(job) if node in self._silent and cluster.is_up(node)), None)

    def _live(self) -> Iterator[tuple[RequestPlan, CcsJob]]:
        """Yield the jobs that have resources, those within reservations first."""
        for plan in reversed(self._plans):
            yield from ((plan, job) for job in list(plan.jobs.values()) if job.phase in HOLDING)

    # ------------------------------------------------------------------ what is shown

    @property
    def jobs(self) -> list[CcsJob]:
        """All jobs in order of their starts; those without a start come last."""
        jobs = [job for plan in self._plans for job in plan.jobs.values()]
        planned = sorted(jobs, key=lambda job: (job.start_s is None, job.start_s or 0))
        return [*planned, *self.refused.values()]

    def plan_of(self, name: str) -> RequestPlan:
        """Return the plan that a job is in: that of its reservation, or of the system."""
        return next((plan for plan in self._plans if name in plan.jobs), self.plan)

    def nodes_of(self, job: CcsJob) -> list[str]:
        """Return the names of a job's nodes."""
        return self.plan_of(job.id).cluster.names_of(job.placement) if job.placement is not None else []

    def moved_s(self, job: CcsJob) -> int:
        """Return by how much later than promised at its submission a job starts; negative if sooner."""
        promised_s = self.promised.get(job.id)
        return job.start_s - promised_s if job.start_s is not None and promised_s is not None else 0

    @property
    def has_refusals(self) -> bool:
        """Whether a request or an event was refused."""
        return bool(self.refused) or any(happening.why_not for happening in self.happened)

    def state(self, job: CcsJob) -> str:
        """Return the state of a job."""
        if job.id in self.refused:
            return "refused"
        is_as_wanted = job.outcome in {CcsOutcome.NONE, CcsOutcome.COMPLETED}
        return job.phase.value if is_as_wanted else job.outcome.value

    def cores(self, job: CcsJob) -> int:
        """Return the cores that a job has, or asks for."""
        totals = job.placement.totals if job.placement is not None else job.request.job_set()
        return totals.get("ncpus", 0)

    def job_as_dict(self, job: CcsJob) -> dict[str, Any]:
        """Return a job as JSON-ready data."""
        placement = job.placement
        return {
            "job": job.id,
            "user": job.user,
            "group": job.group,
            "request": str(job.request),
            "submit_s": job.submit_s,
            "state": self.state(job),
            "why": job.why,
            "cores": self.cores(job),
            "start_s": placement.start if placement is not None else None,
            "end_s": placement.end if placement is not None else None,
            "nodes": self.nodes_of(job),
            "promised_s": self.promised.get(job.id),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-ready data."""
        system = self.plan.system
        return {
            "schema": SCHEMA,
            "system": system.name,
            "nodes": len(system.nodes),
            "resources": {name: vector.most for name, vector in self.plan.cluster.used.items()},
            "now_s": self.now,
            "jobs": [self.job_as_dict(job) for job in self.jobs],
            "events": [happening.as_dict() for happening in self.happened],
        }

    def title(self) -> str:
        """Title in one line."""
        counts = Counter(map(self.state, self.jobs))
        jobs = ", ".join(f"{counts[state]:,} {state}" for state in STYLES if counts[state]) or "nobody has come yet"
        now = clock(self.now, self.now)
        day = f"{iso(self.now)[:10]} " if self.now >= IN_1973_S else ""
        return f"{self.plan.system.name} at {day}{now}{' UTC' if day else ''}: {jobs}"

    def size(self) -> str:
        """Sentence on the size of the system, and the length of the plan."""
        system, used = self.plan.system, self.plan.cluster.used
        nodes = f"{len(system.nodes):,} node{'' if len(system.nodes) == 1 else 's'}"
        text = ", ".join([nodes, *(amount(name, vector.most, system.kinds) for name, vector in used.items())])
        last = max((job.placement.end for job in self.jobs if job.placement is not None), default=0)
        if last > self.now:
            text += f"; all is done at {clock(last, self.now)}, in {format_duration(last - self.now)}"
        return text


def _is_moving(event: AskedRequest | PlanEvent) -> bool:
    """Whether starts may change as time goes on, because of a line."""
    return isinstance(event, PlanEvent) or bool(event.request.depend) or event.request.notify_s is not None
