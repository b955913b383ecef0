"""OpenCCS as the scheduler of a simulated machine of nodes: jobs are chunks, under limits of users and free pools."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from asa.backends.simulated.table import NEVER, JobTable

from asa.errors import InputError, SubmitRejectedError

from .jobs import CcsJob, JobPhase, RefusedError
from .limits_file import ConsumerBounds
from .plan import RequestPlan
from .planned_loop import Integers, PlannedLoop
from .requests import Arrangement, Chunk, PlacementRule, ResourceRequest, Size
from .system import CcsSystem, Node

NODES, MEMORY, GPUS, EXCLUSIVE = "nodes", "mem", "gpus", "exclusive"
"""What a client's job may ask for besides cores, in `NodesCore.ask`; memory in bytes."""


@dataclass(frozen=True)
class NodesMachine:
    """The nodes of a simulated machine, what holds for its users, and whose the background jobs are."""

    system: CcsSystem
    bounds: ConsumerBounds = field(default_factory=ConsumerBounds)
    user: str = ""  # of the client's jobs
    group: str = ""
    users: Integers | None = None  # of the background jobs, by row; -1 where unknown

    @cached_property
    def cores(self) -> int:
        """Total number of cores."""
        return sum(node.resources.get("ncpus", 0) for node in self.system.nodes)

    @cached_property
    def node_cores(self) -> int:
        """Cores of the most frequent kind of node."""
        sizes = [node.resources.get("ncpus", 0) for node in self.system.nodes]
        return max(set(sizes), key=lambda size: (sizes.count(size), size))

    def request(self, cores: int, lasts_s: int, more: Mapping[str, int] | None = None) -> ResourceRequest:
        """Return the chunks of a job of a number of cores.

        A job that says its number of nodes has as many equal chunks, each on a node of its own. Others have as many
        chunks of a whole node's cores as they fill, and one of the rest. Memory is shared out by cores, GPUs by chunks.

        Examples
        --------
        >>> machine = NodesMachine(equal_nodes("m", 64, 16))
        >>> print(machine.request(40, 3600), machine.request(40, 3600, {"nodes": 4, "mem": 1 << 30}))
        rset=2:ncpus=16+ncpus=8,walltime=0-01:00:00 rset=4:ncpus=10:mem=256m,place=scatter,walltime=0-01:00:00
        """
        more = more or {}
        if count := more.get(NODES, 0):
            sizes = [(count, -(-cores // count))]
        else:
            whole, rest = divmod(cores, self.node_cores)
            sizes = [(many, size) for many, size in ((whole, self.node_cores), (1, rest)) if many and size]
        parts = sum(many for many, _ in sizes)
        chunks = []
        for many, size in sizes:
            needs: dict[str, int] = {"ncpus": size}
            if memory := more.get(MEMORY, 0):
                needs[MEMORY] = Size(math.ceil(memory * size / max(cores, size)))
            if gpus := more.get(GPUS, 0):
                needs[GPUS] = -(-gpus // parts)
            chunks.append(Chunk(many, needs))
        arrangement = Arrangement.SCATTER if count else Arrangement.FREE
        place = PlacementRule(arrangement, exclusive=bool(more.get(EXCLUSIVE)))
        return ResourceRequest(tuple(chunks), place=place, walltime_s=lasts_s)


def equal_nodes(name: str, cores: int, per_node: int) -> CcsSystem:
    """Return a system of nodes of a number of cores; the last node has the rest."""
    whole, rest = divmod(cores, per_node)
    sizes = [per_node] * whole + ([rest] if rest else [])
    width = len(str(len(sizes)))
    return CcsSystem(name, tuple(Node(f"n{i:0{width}}", {"ncpus": size}) for i, size in enumerate(sizes, 1)))


class NodesCore(PlannedLoop):
    """Queue and running jobs of a machine of nodes that plans; see `PlannedLoop`.

    The plan is `plan.RequestPlan`: each job gets chunks on nodes, under the limits and pools that hold for its user.

    `most`: how many pending jobs are considered when a job ends early; all if not given.
    `refused`: background jobs that the nodes could never hold, or no limit allows; they do not run.
    """

    def __init__(
        self, machine: NodesMachine, capacity: int, table: JobTable, *, now: int, most: int | None = None
    ) -> None:
        super().__init__(capacity, table, now=now, free=machine.cores, most=most)
        self.machine = machine
        self.refused = 0
        bounds = machine.bounds
        self._plan = RequestPlan(machine.system, bounds.limits, bounds.pools, bounds.rules)
        self._requests: list[ResourceRequest] = []  # of the client's jobs
        self._held: dict[int, int] = {}  # cores of running jobs

    def fork(self) -> NodesCore:
        fork = copy.copy(self)
        fork._plan = self._plan.fork()
        for name in ("start", "promised"):
            setattr(fork, name, getattr(self, name).copy())
        for name in ("ended", "news", "_ends", "_requests", "_held"):
            setattr(fork, name, copy.copy(getattr(self, name)))
        return fork

    @property
    def queued(self) -> Integers:
        jobs = self._plan.in_order(self._waiting())
        return np.array([int(job.id) for job in jobs], dtype=np.int64)

    def _waiting(self) -> list[CcsJob]:
        return [job for job in self._plan.jobs.values() if job.phase in {JobPhase.PLANNED, JobPhase.WAITING}]

    @property
    def pools(self) -> Mapping[str, int]:
        """What jobs may ask for besides cores: nodes, and resources of nodes."""
        of_nodes = {name: vector.most for name, vector in self._plan.cluster.used.items() if name in {MEMORY, GPUS}}
        return {NODES: len(self.machine.system.nodes), EXCLUSIVE: 1} | of_nodes

    # ------------------------------------------------------------------ the plan

    def planned_start(self, cores: int, lasts_s: int, since: int) -> int:
        """Return the planned start of a job submitted now that may not start before a time."""
        return self.start_of(self.machine.request(cores, lasts_s), since)

    def start_of(self, request: ResourceRequest, since: int) -> int:
        """Return the planned start of a client's request; `NEVER` if it would get none."""
        machine = self.machine
        try:
            start = self._plan.first_start(request, max(since, self.now), user=machine.user, group=machine.group)
        except RefusedError:
            return NEVER
        return NEVER if start is None else start

    def planned(self, index: int) -> int:
        """Return the planned start of a waiting job; `NEVER` if it has none."""
        start = self._plan.jobs[str(index)].start_s
        return NEVER if start is None else start

    def _submit(self, index: int, request: ResourceRequest, user: str, group: str) -> CcsJob:
        [job] = self._plan.submit(request, now=self.now, user=user, group=group, name=str(index))
        return job

    def _enter_row(self, row: int) -> None:
        users = self.machine.users
        user = "" if users is None or users[row] < 0 else f"u{users[row]}"
        request = self.machine.request(int(self.table.cores[row]), int(self.table.request[row]))
        try:
            job = self._submit(row, request, user, "")
        except RefusedError:
            self.refused += 1
        else:
            self.promised[row] = NEVER if job.start_s is None else job.start_s

    def _pass(self) -> None:
        """Move waiting jobs to earlier times, if resources were freed, and start the jobs that are due."""
        if self._is_freed:
            self._plan.backfill(now=self.now, most=self._max_looked_at)
        self._is_freed = self._is_due = False
        for job in self._plan.due(self.now):
            self._plan.begin(job.id, now=self.now)
            self._begin(int(job.id), job)

    def _begin(self, index: int, job: CcsJob) -> None:
        assert job.placement is not None, "it is due"
        self._held[index] = job.placement.totals["ncpus"]
        self.free -= self._held[index]
        is_background = index < len(self.table)
        self._note_start(index, int(min(self.table.run[index], self.table.request[index])) if is_background else 0)

    def _next_start(self) -> int:
        planned = (job.start_s for job in self._plan.jobs.values() if job.phase is JobPhase.PLANNED)
        return min((max(start, self.now) for start in planned if start is not None), default=NEVER)

    def _forget(self) -> None:
        self._plan.forget_before(self.now)

    # ------------------------------------------------------------------ the client's jobs, and ends of all jobs

    def add(self, cores: int, request: int, *, qos: int = 0, partition: int = 0) -> int:
        del qos, partition
        self._requests.append(self.machine.request(cores, request))
        return len(self.table) + len(self._requests) - 1

    def ask(self, index: int, amounts: Mapping[str, int]) -> None:
        """Let a client's job that is not queued yet have nodes, memory and GPUs besides its cores."""
        request = self._requests[index - len(self.table)]
        cores = sum(chunk.count * chunk.needs["ncpus"] for chunk in request.chunks)
        self._requests[index - len(self.table)] = self.machine.request(cores, request.walltime_s or 1, amounts)

    def give_back(self, index: int, expected_end: int) -> None:
        del expected_end
        self.free += self._held.pop(index)
        self._plan.end(str(index), now=self.now)
        self._is_freed = self._is_due = True

    def resize(self, index: int, cores: int, expected_end: int) -> bool:
        del index, cores, expected_end
        return False  # the paper's jobs are rigid

    def insert(self, index: int, age_since: int) -> None:
        del age_since
        self._submit(index, self._requests[index - len(self.table)], self.machine.user, self.machine.group)
        self._is_due = True

    def remove(self, index: int) -> None:
        self._plan.end(str(index), now=self.now)
        self._plan.forget_before(self.now)  # it may be inserted again
        self._is_freed = self._is_due = True


def refuse_impossible(machine: NodesMachine, request: ResourceRequest, name: str) -> None:
    """Refuse a client's job that the nodes could never hold, or no limit allows.

    Raises `SubmitRejectedError`: with the reason.
    """
    bounds = machine.bounds
    plan = RequestPlan(machine.system, bounds.limits, bounds.pools, bounds.rules)
    try:
        plan.first_start(request, 0, user=machine.user, group=machine.group)
    except InputError as error:
        raise SubmitRejectedError(error.message, where=f"job {name!r}", hint=error.hint or "Ask for less.") from error
