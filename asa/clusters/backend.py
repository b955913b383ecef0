"""Several clusters as one backend, on the clock of the first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from asa.backend import (
    ON,
    Adjustable,
    Advice,
    Advisor,
    Backend,
    Capabilities,
    Condition,
    Dependency,
    DependencyType,
    EstimatesStarts,
    JobSpec,
    JobState,
    JobStatus,
    Preflight,
    Previewing,
    Recalls,
    SubmitsTogether,
    TakesUp,
    Withdrawing,
    cancel_all,
    cluster_of,
)
from asa.errors import BackendError, JobNotFoundError, SubmitRejectedError, UnavailableError
from asa.waits import QueueEvent

from .away import AbsentCluster

_LOOK_S = 0.5  # seconds between two questions whether it is time to look at one of the clusters
_SAME_CLOCK_S = 2.0


@dataclass(slots=True)
class Member:
    """One of several clusters.

    `folder`: its own in the run's, with its scripts; None if not known.
    `first`: the cluster whose clock all go by; None if it is this one.
    """

    name: str
    backend: Backend
    folder: Path | None = None
    first: Member | None = None

    @property
    def later_s(self) -> float:
        """By how many seconds that cluster's clock is ahead of its own; small differences count as none."""
        later_s = 0.0 if self.first is None else self.first.backend.now() - self.backend.now()
        return later_s if abs(later_s) > _SAME_CLOCK_S else 0.0

    def close(self) -> None:
        """Close its backend."""
        if (close := getattr(self.backend, "close", None)) is not None:
            close()

    def sent(self, tokens: Collection[str]) -> list[str]:
        """Return the tokens of which a job may have been sent here: its script was written first."""
        if self.folder is None:
            return [*tokens]
        known = {path.stem.rpartition(".")[2] for path in (self.folder / "scripts").glob("*.sh")}
        return [token for token in tokens if token in known]

    def id_of(self, job_id: str) -> str:
        """Return the id by which all know a job, or a node, of this cluster."""
        return f"{job_id}{ON}{self.name}"

    def adopt(self, status: JobStatus) -> JobStatus:
        """Return a job's state as all know it."""
        return _named(status, self.id_of).later(self.later_s)

    def own(self, status: JobStatus) -> JobStatus:
        """Return a job's state as its cluster knows it."""
        return _named(status, _here).later(-self.later_s)

    def told(self, event: QueueEvent) -> QueueEvent:
        """Return an event of a queue as all know it."""
        job = event.job
        if job is not None and self.later_s:
            job = replace(job, submit_s=job.submit_s + self.later_s)
        return event._replace(key=f"{event.key}{ON}{self.name}", time_s=event.time_s + self.later_s, job=job)


class SeveralBackends:
    """Several clusters as one; see `asa.backend.Backend`.

    `abilities`: returns what they can do together.
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        sleep: Callable[[float], bool | None],
        abilities: Callable[[Mapping[str, Capabilities]], Capabilities],
    ) -> None:
        self._members, self._sleep, self._abilities = members, sleep, abilities
        self._first = next(iter(members.values()))
        self._together: tuple[tuple[Capabilities, ...], Capabilities] | None = None
        self._live: set[str] = set()
        self._unasked: set[str] = set()  # clusters that were away when the client began
        for member in members.values():
            member.first = None if member is self._first else self._first

    def close(self) -> None:
        """Close all."""
        for member in self._members.values():
            member.close()

    # ------------------------------------------------------------------ known without a request

    @property
    def capabilities(self) -> Capabilities:
        """Abilities of all."""
        each = tuple(member.backend.capabilities for member in self._members.values())
        if self._together is None or any(a is not b for a, b in zip(each, self._together[0], strict=True)):
            self._together = each, self._abilities(dict(zip(self._members, each, strict=True)))
        return self._together[1]

    @property
    def condition(self) -> Condition:
        """Whether all answer; the time is of the most silent of those that have jobs of the run."""
        each = {name: member.backend.condition for name, member in self._members.items()}
        heard_s = {name: one.heard_s + self._members[name].later_s for name, one in each.items()}
        asked = {cluster_of(job_id) for job_id in self._live}
        heard = min((heard_s[name] for name in asked), default=max(heard_s.values()))
        away = {name: one.trouble for name, one in each.items() if one.trouble}
        trouble = "; ".join(f"{name}: {why}" for name, why in away.items())
        return Condition(heard, trouble, sum(one.calls for one in each.values()), away)

    def now(self) -> float:
        """Read the first cluster's clock."""
        return self._first.backend.now()

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed; see `asa.backend.Advisor`."""
        backend = self._first.backend
        return backend.advice(reason) if isinstance(backend, Advisor) else Advice(reason)

    # ------------------------------------------------------------------ submission

    def submit(self, spec: JobSpec) -> str:
        """Submit a job to the cluster of its partition.

        One that depends on a job of another cluster is accepted only once that has ended. One whose cluster cannot be
        reached is not accepted now, which keeps back no job for another cluster.
        """
        member = self._of_partition(spec)
        own = self._own(member, [spec])[0]
        try:
            job_id = member.backend.submit(own)
        except UnavailableError as error:
            raise error.of_this_job from error
        return self._accepted(member, job_id)

    def goes_alone(self, options: Sequence[str], texts: Iterable[str]) -> bool:
        """Tell whether a job is to be submitted by itself; see `asa.backend.SubmitsTogether`."""
        backend, said = self._first.backend, [*texts]
        return not isinstance(backend, SubmitsTogether) or backend.goes_alone(options, said)

    def submit_together(self, specs: Sequence[JobSpec]) -> Sequence[str]:
        """Submit jobs with equal requests, which so are of one cluster; see `asa.backend.SubmitsTogether`."""
        member = self._of_partition(specs[0])
        assert isinstance(member.backend, SubmitsTogether)
        own = self._own(member, specs)
        try:
            job_ids = member.backend.submit_together(own)
        except UnavailableError as error:
            raise error.of_this_job from error
        return [self._accepted(member, job_id) for job_id in job_ids]

    def preview(self, spec: JobSpec) -> Mapping[str, str]:
        """Show what would be sent, if the cluster's backend can; see `asa.backend.Previewing`."""
        member = self._of_partition(spec)
        alone = self._there(member, replace(spec, dependencies=()))
        return member.backend.preview(alone) if isinstance(member.backend, Previewing) else {}

    def test(self, spec: JobSpec, timeout_s: float) -> str | None:
        """Ask the job's cluster whether it could ever run; see `asa.backend.Preflight`."""
        member = self._of_partition(spec)
        alone = self._there(member, replace(spec, dependencies=()))
        return member.backend.test(alone, timeout_s) if isinstance(member.backend, Preflight) else None

    def estimated_start(self, spec: JobSpec) -> float | None:
        """Return when its cluster expects a job to start, if it says so; see `asa.backend.EstimatesStarts`."""
        member = self._of_partition(spec)
        if not isinstance(member.backend, EstimatesStarts):
            return None
        at_s = member.backend.estimated_start(self._there(member, replace(spec, dependencies=())))
        return None if at_s is None else at_s + member.later_s

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Find jobs by their tokens, each on the clusters to which it may have been sent."""
        wanted = list(tokens)
        found: dict[str, list[JobStatus]] = {token: [] for token in wanted}
        for member in self._members.values():
            sent = member.sent(wanted)
            for token, statuses in member.backend.find(sent).items() if sent else ():
                found[token] += map(self._heard, map(member.adopt, statuses))
        return found

    def _of_partition(self, spec: JobSpec) -> Member:
        partition = spec.partition or self.capabilities.partition
        member = self._members.get(self.capabilities.cluster_for(partition))
        if member is None:
            known = ", ".join(self.capabilities.partitions)
            raise SubmitRejectedError(
                f"asks for partition {partition!r}, which is not on one of the clusters",
                where=f"job {spec.name!r}",
                hint=f"Known: {known}.",
            )
        return member

    def _there(self, member: Member, spec: JobSpec) -> JobSpec:
        """Return a job in the words and on the clock of its cluster."""
        avoided = (node.rpartition(ON) for node in spec.avoid)
        return replace(
            self.capabilities.there(spec),
            avoid=tuple(node for node, _, cluster in avoided if cluster == member.name),
            begin_s=None if spec.begin_s is None else spec.begin_s - member.later_s,
        )

    def _own(self, member: Member, specs: Sequence[JobSpec]) -> list[JobSpec]:
        """Return jobs as their cluster gets them, with the dependencies that are on jobs there.

        Raises an error of these jobs alone: one depends on a job of another cluster that has not ended, or not begun.
        """
        made = []
        for spec in specs:
            kept, begin_s = list[Dependency](), spec.begin_s
            for needed in spec.dependencies:
                if cluster_of(needed.job_id) == member.name:
                    kept.append(replace(needed, job_id=needed.job_id.rpartition(ON)[0]))
                elif (after_s := self._met_s(spec, needed)) is not None:
                    begin_s = max(begin_s or 0.0, after_s)
            made.append(self._there(member, replace(spec, dependencies=tuple(kept), begin_s=begin_s)))
        return made

    def _met_s(self, spec: JobSpec, needed: Dependency) -> float | None:
        """Return from when on a dependency on a job of another cluster is met; None if it is met already."""
        status = self.status([needed.job_id])[needed.job_id]
        has_ended = status.state.is_final
        if needed.type is DependencyType.AFTER and not (needed.or_end and has_ended) and status.start_s is not None:
            return status.start_s + needed.delay_s
        is_hopeless = needed.type is DependencyType.AFTEROK and status.state is not JobState.COMPLETED
        is_hopeless |= needed.type is DependencyType.AFTER and not needed.or_end
        if has_ended and is_hopeless:
            raise SubmitRejectedError(
                f"depends on job {needed.job_id}, which ended as {status.state}",
                where=f"job {spec.name!r}",
                hint="Submit the other one again first.",
            )
        if not has_ended:
            why = f"waits for job {needed.job_id}: no job can depend on one of another cluster"
            raise UnavailableError(why, where=f"job {spec.name!r}").of_this_job
        return None

    def _accepted(self, member: Member, job_id: str) -> str:
        known = member.id_of(job_id)
        self._live.add(known)
        return known

    # ------------------------------------------------------------------ changes

    def recall(self, last_known: Callable[[str], JobStatus | None]) -> None:
        """Tell each cluster's backend what was known of its jobs; see `asa.backend.Recalls`."""
        for member in self._members.values():
            if isinstance(member.backend, Recalls):
                member.backend.recall(partial(_own_of, member, last_known))

    def cancel(self, job_id: str) -> None:
        """Cancel a job on its cluster."""
        member, own = self._of(job_id)
        member.backend.cancel(own)

    def cancel_all(self, job_ids: Collection[str]) -> Mapping[str, BackendError]:
        """Cancel several jobs, each on its cluster; see `asa.backend.CancelsMany`."""
        left: dict[str, BackendError] = {}
        for member, own in self._by_member(job_ids):
            left |= {member.id_of(job_id): error for job_id, error in cancel_all(member.backend, own).items()}
        return left

    def withdraw(self, job_id: str) -> bool:
        """Ensure that a job's payload does not begin; see `asa.backend.Withdrawing`."""
        member, own = self._of(job_id)
        return not isinstance(member.backend, Withdrawing) or member.backend.withdraw(own)

    def hold(self, job_id: str) -> None:
        """Keep a pending job from starting."""
        member, own = self._of(job_id)
        member.backend.hold(own)

    def release(self, job_id: str) -> None:
        """Release a held job."""
        member, own = self._of(job_id)
        member.backend.release(own)

    def change_walltime(self, job_id: str, walltime_s: float) -> None:
        """Change a job's walltime; see `asa.backend.Adjustable`."""
        member, own = self._of(job_id)
        if not isinstance(member.backend, Adjustable):
            raise _unchangeable(job_id)
        member.backend.change_walltime(own, walltime_s)

    def take_up(self, job_id: str) -> float | None:
        """Treat a job that was submitted elsewhere as this client's; see `asa.backend.TakesUp`."""
        member, own = self._of(job_id)
        if not isinstance(member.backend, TakesUp):
            raise _unchangeable(job_id)
        end_s = member.backend.take_up(own)
        self._live.add(job_id)
        return None if end_s is None else end_s + member.later_s

    # ------------------------------------------------------------------ looks

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Ask for the states of several jobs, each on its cluster."""
        found: dict[str, JobStatus] = {}
        for member, own in self._by_member(job_ids):
            for status in member.backend.status(own).values():
                adopted = self._heard(member.adopt(status))
                found[adopted.job_id] = adopted
        return found

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Sleep until a job changes on one of the clusters, or the time has come."""
        while True:
            news = []
            for member in self._members.values():
                news += self._back(member)
                with suppress(BackendError):  # its condition says so
                    news += [self._heard(member.adopt(s)) for s in member.backend.wait(member.backend.now())]
            now_s = self.now()
            is_over = until_s is not None and now_s >= until_s
            if news or is_over or (until_s is None and not self._live):
                return news
            left_s = _LOOK_S if until_s is None else until_s - now_s
            if self._sleep(min(left_s, _LOOK_S)):
                return []

    def _back(self, member: Member) -> list[JobStatus]:
        """If a cluster that was away is back, ask it for the run's jobs; return their states."""
        if isinstance(member.backend, AbsentCluster) and (backend := member.backend.back()) is not None:
            member.backend = backend
            self._unasked.add(member.name)
        if member.name not in self._unasked:
            return []
        with suppress(BackendError):  # it is asked again
            found = self.status([job_id for job_id in self._live if cluster_of(job_id) == member.name])
            self._unasked.discard(member.name)
            return [*found.values()]
        return []

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Report what others' jobs did in the queues of all clusters, in order of time."""
        events = [
            member.told(event)
            for member in self._members.values()
            for event in member.backend.queue_events(most, ends=ends)
        ]
        return sorted(events, key=lambda event: event.time_s)

    def _heard(self, status: JobStatus) -> JobStatus:
        if status.state.is_final:
            self._live.discard(status.job_id)
        else:
            self._live.add(status.job_id)
        return status

    def _of(self, job_id: str) -> tuple[Member, str]:
        own, _, name = job_id.rpartition(ON)
        member = self._members.get(name)
        if member is None:
            hint = f"The clusters are {', '.join(self._members)}: their jobs are as in 12{ON}{self._first.name}."
            raise JobNotFoundError("is of none of the clusters", where=f"job {job_id}", hint=hint)
        return member, own

    def _by_member(self, job_ids: Iterable[str]) -> Iterable[tuple[Member, list[str]]]:
        each: dict[str, list[str]] = {}
        for job_id in job_ids:
            member, own = self._of(job_id)
            each.setdefault(member.name, []).append(own)
        return [(self._members[name], own) for name, own in each.items()]


def _own_of(member: Member, last_known: Callable[[str], JobStatus | None], job_id: str) -> JobStatus | None:
    """Return the last known state of a member's job, as its cluster knows it."""
    known = last_known(member.id_of(job_id))
    return None if known is None else member.own(known)


def _here(job_id: str) -> str:
    """Return what a job, or a node, is called on its cluster."""
    return job_id.rpartition(ON)[0]


def _named(status: JobStatus, name: Callable[[str], str]) -> JobStatus:
    """Return a job's state with other names of the job and its nodes."""
    nodes, bad_nodes = tuple(map(name, status.nodes)), tuple(map(name, status.bad_nodes))
    return replace(status, job_id=name(status.job_id), nodes=nodes, bad_nodes=bad_nodes)


def cluster_in(trouble: str) -> tuple[str, str]:
    """Return the cluster that a trouble names, and what it is there."""
    name, _, own = trouble.partition(": ")
    return name, own


def _unchangeable(job_id: str) -> BackendError:
    return BackendError("cannot be changed after submission", where=f"job {job_id}", hint="Cancel it.")
