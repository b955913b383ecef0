"""A manager that runs inside one job, next to its program, under any batch system that can take nodes back.

It uses only the batch system's ports. The batch system does not show free nodes, so the manager answers with a shrink
only if the job's own nodes are enough for a pending job; the batch system, whose order cannot be changed from here, may
start another one on them. It never answers with an expansion, unless the batch system refused nodes that the program
has left.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from asa.backend import Backend, Shrinking, TakesUp
from asa.dmr.protocol import Action, DmrRequest, Reply, Wish
from asa.errors import BackendError
from asa.waits import QueuedJob

from . import policy

_MAX_JOBS = 1000
_WHOLE = "whole nodes are given back here"


class JobManager:
    """Answers the program of one job, and returns unused nodes to the batch system; implements `desk.Clerk`.

    `backend`: the batch system. Unless it is `asa.backend.Shrinking`, every answer is to do nothing. `partition`: where
    the job runs: only pending jobs of it count. All pending jobs, if not given. Raises `JobNotFoundError`: the batch
    system has no such job of this user.
    """

    def __init__(
        self, backend: Backend, job_id: str, processes: int, *, cores_per_process: int = 1, partition: str = ""
    ) -> None:
        self._backend, self._job_id = backend, job_id
        self._allocated, self._cores = processes, cores_per_process
        self._partition = partition
        self._waiting: dict[int | str, QueuedJob] = {}
        self._refusal = "" if self._can_shrink else "this batch system takes no nodes back"
        if isinstance(backend, TakesUp):
            backend.take_up(job_id)
        self._lock = threading.Lock()

    @property
    def _can_shrink(self) -> bool:
        site = self._backend.capabilities
        return isinstance(self._backend, Shrinking) and site.shrink_by > 0 and site.shrinks_from_outside

    def reply(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the program; see `desk.Clerk`."""
        request = DmrRequest.heard(message)
        with self._lock:
            if request.job != self._job_id or request.processes > self._allocated:
                why = f"job {self._job_id} has {self._allocated} processes, not job {request.job} {request.processes}"
                return Reply(Action.NONE, self._allocated, why).message()
            if request.processes < self._allocated:
                self._give_back(request.processes)
            return self._answer(request).message()

    def unheard(self, message: Mapping[str, Any]) -> None:
        """Do nothing, as nothing is done before the program acknowledges; see `desk.Clerk`."""

    def _answer(self, request: DmrRequest) -> Reply:
        """Answer a program with a known size; it may grow into nodes that the batch system refused to take back."""
        wish = request.wish
        wanted = request.to if wish is None else min(wish.maximum, self._allocated)
        if self._refusal and wanted == self._allocated > request.processes:
            return Reply(Action.EXPAND, self._allocated, self._refusal)
        if self._refusal or request.processes < self._allocated:
            return Reply(Action.NONE, request.processes, self._refusal or _WHOLE)
        if wish is None:
            return Reply(Action.NONE, request.processes, "acknowledged")
        return self._decide(wish)

    def _decide(self, wish: Wish) -> Reply:
        """Ask the policy."""
        for event in self._backend.queue_events(_MAX_JOBS):
            if event.what == "submitted" and event.job is not None:
                self._waiting[event.key] = event.job
            else:
                self._waiting.pop(event.key, None)
        partitions = {"", self._partition}
        waiting = sorted(
            (job for job in self._waiting.values() if not self._partition or job.partition in partitions),
            key=lambda job: job.submit_s,
        )
        answer = policy.decide(
            self._allocated,
            wish,
            free=0,
            queued=[-(-job.cores // self._cores) for job in waiting],
        )
        if answer.action is not Action.SHRINK:
            return Reply(Action.NONE, self._allocated, "no waiting job could start by a shrink")
        if not self._may_keep(answer.nodes):
            return Reply(Action.NONE, self._allocated, _WHOLE)
        why = "the program asks for it, or prefers it"
        if answer.promotes is not None:
            why = f"a job of {waiting[answer.promotes].cores} cores could start"
        return Reply(Action.SHRINK, answer.nodes, why)

    def _may_keep(self, processes: int) -> bool:
        """Whether these processes fill whole nodes, and the batch system takes back the remaining nodes."""
        site = self._backend.capabilities
        kept, given = processes * self._cores, (self._allocated - processes) * self._cores
        return kept % max(site.cores_per_node, 1) == 0 and given % site.shrink_by == 0

    def _give_back(self, processes: int) -> None:
        """Return nodes that the program has left to the batch system; after a refusal, do not try again."""
        if self._refusal or not isinstance(self._backend, Shrinking):
            return
        if not self._may_keep(processes):
            return
        nodes = processes * self._cores // max(self._backend.capabilities.cores_per_node, 1)
        try:
            self._backend.shrink(self._job_id, nodes)
        except BackendError as error:
            self._refusal = f"the batch system takes no nodes back: {error.message}"
        else:
            self._allocated = processes
