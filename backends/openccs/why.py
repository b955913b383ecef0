"""Reasons why a job is not planned earlier, the question of Section 2: binding constraints, lacks, and their holders.

Each constraint in turn is removed on a copy of the plan, and a placement of the job is searched again; a constraint
binds if the job would start sooner without it. For a time at which a user expects the job to fit, the answer names the
first missing resource, from which second on it is missing, and the jobs that hold it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from asa.errors import InputError, near
from asa.units import format_duration

from .cluster import Ask
from .jobs import CcsJob, JobPhase
from .lacks import Lack, LackCause, Meeting, World, amount, resources_of
from .plan import RequestPlan
from .requests import Arrangement, Chunk, ResourceRequest
from .rusv import FOREVER, RUSV
from .words import clock, names

_STANDS = {
    JobPhase.ALLOCATING: "is allocated",
    JobPhase.RUNNING: "runs",
    JobPhase.RELEASING: "has run, and is released,",
    JobPhase.ENDED: "ran",
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition of a job's start."""

    cause: LackCause  # kind of the constraint, and its subject: a resource, a property
    of: str
    words: str
    start_s: int | None = None  # start of the job without the constraint, if sooner


@dataclass(frozen=True, slots=True)
class Moment:
    """The effect of starting a job at a given time."""

    at_s: int
    lacks: tuple[Lack, ...]  # what it would lack, in order of time; empty if it would fit in


@dataclass(frozen=True, slots=True)
class Why:
    """The reasons why a job is not planned earlier."""

    job: CcsJob
    is_refused: bool  # the job is not in the plan
    nodes: str  # short form of the names of its nodes
    now_s: int  # current time; and the earliest time at which it could have started
    since_s: int
    # possible start in the present state, if sooner than planned, because resources became free since
    free_s: int | None
    constraints: tuple[Constraint, ...]  # constraints of its start
    together: tuple[Constraint, ...]  # constraints that bind only together, if none of them binds alone
    moment: Moment | None  # lacks at the requested time; None if it could never run

    @property
    def is_at_once(self) -> bool:
        """Whether the job starts as early as possible."""
        return self.job.start_s is not None and self.job.start_s <= self.since_s

    def sentences(self) -> list[str]:
        """Describe the reasons in sentences."""
        return [self._stands(), *self._lacks(), *self._binds()]

    def _stands(self) -> str:
        job, placement = self.job, self.job.placement
        whose = "@".join(part for part in (job.user, job.group) if part)
        who = f"{job.id}, of {whose}," if whose else job.id
        if placement is None:
            reason = f": {job.why}" if job.why else ""
            state = {JobPhase.ENDED: "was cancelled"}.get(job.phase, "waits without a start")
            return f"{who} {'was refused' if self.is_refused else state}{reason}."
        stands = _STANDS.get(job.phase, "is planned to run")
        later = f", in {format_duration(placement.start - self.now_s)}" if placement.start > self.now_s else ""
        when = f"from {clock(placement.start, self.now_s)} to {clock(placement.end, self.now_s)}"
        return f"{who} {stands} {when} on {self.nodes}{later}."

    def _lacks(self) -> Iterator[str]:
        if self.moment is None:
            return
        at = f"At {clock(self.moment.at_s, self.now_s)}"
        for lack in self.moment.lacks:
            yield f"{at}: {lack.words}."
        if not self.moment.lacks and not self.is_at_once and not self.is_refused:
            yield f"{at} it {'starts' if self.moment.at_s == self.job.start_s else 'would fit in'}."

    def _binds(self) -> Iterator[str]:
        if self.is_at_once:
            yield "It starts as early as it can: nothing keeps it."
        elif self.free_s is not None and self.is_refused:
            yield f"One such job would have room at {clock(self.free_s, self.now_s)}, but not all of its array."
        elif self.free_s is not None:
            yield f"Nothing keeps it from {clock(self.free_s, self.now_s)} any more: backfilling will move it."
        elif self.together:
            at = clock(self.together[0].start_s or 0, self.now_s)
            what = "; ".join(constraint.words for constraint in self.together)
            yield f"No single thing keeps it from starting sooner. It would start at {at} but for all of: {what}."


def why(plan: RequestPlan, job: str | CcsJob, *, now: int, at: int | None = None) -> Why:
    """Return the reasons why a job is not planned earlier; the plan is not changed.

    `at`: a time at which the job seems to fit; if not given, the earliest at which it could have started.

    Notes
    -----
    Books the other jobs on another cluster. Then searches a placement of the job once for each condition of its start,
    without that condition.

    Examples
    --------
    >>> from asa.backends.openccs.system import Node, CcsSystem
    >>> plan = RequestPlan(CcsSystem("one", (Node("a", {"ncpus": 4}),)))
    >>> for text in ("rset=ncpus=3,walltime=1h", "rset=ncpus=2,walltime=1h"):
    ...     [job] = plan.submit(ResourceRequest.parse(text), now=0)
    >>> for sentence in why(plan, job.id, now=0).sentences():
    ...     print(sentence)
    2 is planned to run from 1:00:00 to 2:00:00 on a, in 1h00m.
    At 0:00:00: it needs 2 cores for 1h00m; then only 1 is free: job 1 (3 cores until 1:00:00) holds what is used.
    """
    if isinstance(job, str):
        found = plan.jobs.get(job)
        if found is None:
            hint = f"{near(job, plan.jobs)}An element of an array is called name[index]. See `asa ccs plan`."
            raise InputError(f"there is no job {job!r} in the plan", where="JOB", hint=hint)
        job = found
    world = _Alternatives(plan, job, now)
    if at is None:
        at = max(job.request.start_s or 0, world.since_s) if job.placement is None else world.since_s
    is_at_once = job.start_s is not None and job.start_s <= world.since_s
    free_s = None if is_at_once else world.start_without(())
    constraints: tuple[Constraint, ...] = ()
    together: tuple[Constraint, ...] = ()
    if not is_at_once and free_s is None:
        constraints = tuple(world.constraints())
        constraints = tuple(
            replace(constraint, start_s=world.start_without([constraint])) for constraint in constraints
        )
        if all(constraint.start_s is None for constraint in constraints):
            together = world.fewest_together(constraints)
    moment = None
    if world.ask is not None:
        lacks = sorted(Meeting(world, world.ask, at).lacks(), key=lambda lack: lack.at_s)
        moment = Moment(at, tuple(lacks))
    return Why(
        job,
        job.id not in plan.jobs,
        names(plan.cluster.names_of(job.placement)) if job.placement is not None else "",
        now,
        world.since_s,
        free_s,
        constraints,
        together,
        moment,
    )


class _Alternatives(World):
    """The constraints of a job's start, and its start without some of them."""

    # ------------------------------------------------------------------ constraints of a job's start

    def constraints(self) -> Iterator[Constraint]:
        """Yield the constraints of the job's start."""
        request = self.job.request
        if request.start_s is not None:
            yield Constraint(LackCause.START, "", f"it asks to start at {self.clock(request.start_s)}")
        if request.deadline_s is not None:
            yield Constraint(LackCause.DEADLINE, "", f"it must have ended by {self.clock(request.deadline_s)}")
        if not self.readiness.is_met:
            yield Constraint(LackCause.DEPENDENCY, "", self.readiness.why)
        if self.ask is not None:
            yield from self._of_others(self.ask)
        yield from self._of_its_own(request)
        yield from self._of_the_site(request)

    def _of_others(self, ask: Ask) -> Iterator[Constraint]:
        job = self.job
        if self.consumers.views(ask, job.user, job.group, self.since_s, 0):
            whose = " and ".join(name for name in (job.user, job.group) if name)
            text = f"{f'limits of {whose}, and ' if whose else ''}what is kept free for others"
            yield Constraint(LackCause.CONSUMER, "", text)
        if ask.is_exclusive:
            yield Constraint(LackCause.JOBS, "", "nodes that other jobs use")
        for name in resources_of(ask) if not ask.is_exclusive else ():
            yield Constraint(LackCause.JOBS, name, f"{'cores' if name == 'ncpus' else name} that other jobs hold")
        yield Constraint(LackCause.CHUNKS, "", "each of its chunks must find a node with room for it")

    def _of_its_own(self, request: ResourceRequest) -> Iterator[Constraint]:
        arrangement = request.place.arrangement
        if request.place.exclusive:
            yield Constraint(LackCause.PLACE, "excl", "place=excl: no other job may be on its nodes")
        if arrangement is not Arrangement.FREE:
            how = (
                "all its chunks on one node" if arrangement is Arrangement.PACK else "no two of its chunks on one node"
            )
            yield Constraint(LackCause.PLACE, str(arrangement), f"place={arrangement}: {how}")
        nodes = self.system.nodes
        for name, value in dict.fromkeys(item for chunk in request.chunks for item in chunk.properties.items()):
            has = sum(node.properties.get(name) == value for node in nodes)
            yield Constraint(
                LackCause.PROPERTY, f"{name}={value}", f"{name}={value}, which {has} of {len(nodes)} nodes have"
            )

    def _of_the_site(self, request: ResourceRequest) -> Iterator[Constraint]:
        system = self.system
        totals = request.job_set()
        for reserve in system.reserves:
            if not totals.get(reserve.resource):
                kept = ", ".join(amount(name, items, system.kinds) for name, items in reserve.keeps.items())
                text = f"{kept or 'being alone'} on each node with {reserve.resource}, kept for jobs that ask for these"
                yield Constraint(LackCause.RESERVE, reserve.resource, text)
        lasts_s = request.walltime_s or system.walltime_s
        shut = [
            node.name
            for node in system.nodes
            if node.admits and not all(any(a.admits(c.needs, lasts_s) for a in node.admits) for c in request.chunks)
        ]
        if shut:
            yield Constraint(LackCause.ADMISSION, names(shut), f"{names(shut)} let no such jobs in")
        if self.down:
            yield Constraint(
                LackCause.DOWN, names(self.down), f"{names(self.down)} {'is' if len(self.down) == 1 else 'are'} down"
            )

    def fewest_together(self, constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
        """Find few constraints without which the job would start sooner, and none of which can be left out."""
        whole = Constraint(LackCause.JOBS, "", "all that other jobs hold")
        kept = [*(constraint for constraint in constraints if constraint.cause is not LackCause.JOBS), whole]
        for constraint in list(kept):
            fewer = [other for other in kept if other is not constraint]
            if self.start_without(fewer) is not None:
                kept = fewer
        start_s = self.start_without(kept)
        return tuple(replace(constraint, start_s=start_s) for constraint in kept) if start_s is not None else ()

    # ------------------------------------------------------------------ starts without some constraints

    def start_without(self, gone: Collection[Constraint]) -> int | None:
        """Return the start of the job without the given constraints; None if that is not earlier."""
        job, causes = self.job, {constraint.cause for constraint in gone}
        request = self._request_without(gone)
        ask = self._ask_without(gone, request)
        if ask is None or (window := self._window(request, ask.lasts_s, causes)) is None:
            return None
        since, end = window
        freed = {constraint.of for constraint in gone if constraint.cause is LackCause.JOBS}
        with self.changed(freed, is_up=LackCause.DOWN in causes) as cluster:
            views: Mapping[str, RUSV] = {}
            if LackCause.CONSUMER not in causes:
                if self.consumers.never(ask, job.user, job.group):
                    return None
                views = self.consumers.views(ask, job.user, job.group, since, end - 1 if end < FOREVER else 0)
            if LackCause.CHUNKS in causes:
                return cluster.free_slots(ask, views, since, end).earliest(1, ask.lasts_s, since, end)
            placement = cluster.find(ask, since, end, views)
        return placement.start if placement is not None else None

    def _window(self, request: ResourceRequest, lasts_s: int, without: Collection[LackCause]) -> tuple[int, int] | None:
        """Return the first second in which it may run, and the first in which it may not, for a sooner start."""
        since, end = self.since_s, self.until_s
        if LackCause.DEPENDENCY not in without:
            if self.readiness.since_s is None:
                return None
            since = max(since, self.readiness.since_s)
        if request.start_s is not None:
            if request.start_s < since:
                return None
            since, end = request.start_s, min(end, request.start_s + lasts_s)
        elif request.deadline_s is not None:
            end = min(end, request.deadline_s)
        if self.job.start_s is not None:
            end = min(end, self.job.start_s + lasts_s - 1)
        return (since, end) if since + lasts_s <= end else None

    def _request_without(self, gone: Collection[Constraint]) -> ResourceRequest:
        request = self.job.request
        for constraint in gone:
            place = request.place
            if constraint.cause is LackCause.START:
                request = replace(request, start_s=None)
            elif constraint.cause is LackCause.DEADLINE:
                request = replace(request, deadline_s=None)
            elif constraint.cause is LackCause.PLACE and constraint.of == "excl":
                request = replace(request, place=replace(place, exclusive=False))
            elif constraint.cause is LackCause.PLACE:
                request = replace(request, place=replace(place, arrangement=Arrangement.FREE))
            elif constraint.cause is LackCause.PROPERTY:
                request = replace(request, chunks=tuple(_without(constraint.of, chunk) for chunk in request.chunks))
        return request

    def _ask_without(self, gone: Collection[Constraint], request: ResourceRequest) -> Ask | None:
        system = self.system
        for constraint in gone:
            if constraint.cause is LackCause.RESERVE:
                system = replace(system, reserves=tuple(r for r in system.reserves if r.resource != constraint.of))
            elif constraint.cause is LackCause.ADMISSION:
                system = replace(system, nodes=tuple(replace(node, admits=()) for node in system.nodes))
        ask = self.prepared(request, system)
        resources = self.cluster.resources
        columns = [
            resources.index(constraint.of)
            for constraint in gone
            if constraint.cause is LackCause.JOBS and constraint.of in resources
        ]
        if ask is None or not columns:
            return ask
        chunks = ask.chunks.reshape(len(ask.wanted), -1).copy()
        chunks[:, columns] = 0  # chunks of resources held by no job fit on every suitable node
        return replace(ask, chunks=chunks.ravel())


def _without(named: str, chunk: Chunk) -> Chunk:
    return replace(
        chunk, properties={key: value for key, value in chunk.properties.items() if f"{key}={value}" != named}
    )
