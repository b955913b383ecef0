"""A manager that runs inside one job, next to its program, under any batch system that can take nodes back.

It uses only the batch system's ports. The batch system does not show free nodes, and its order cannot be changed from
here:

- The manager answers with a shrink only if the job's own nodes are enough for a pending job; the batch system may start
  another one on them.
- For an expansion it asks the batch system for more nodes (`asa.backend.Growing`), where the policy would grow on a
  machine with nodes to spare: nobody waits, or the program's minimum asks for it. It asks for one step of the program's
  factor at a time. The request waits in the queue like any other job, and the program goes on meanwhile. Once the nodes
  are there, a check takes them over, and is answered with the expansion. If somebody else comes to wait first, the
  request is withdrawn.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from asa.backend import Backend, JobSpec, JobState, Shrinking, TakesOver, TakesUp
from asa.dmr.protocol import Action, DmrRequest, Reply, Wish
from asa.errors import BackendError, SubmitRejectedError
from asa.waits import QueuedJob

from . import policy

_MAX_JOBS = 1000
_WHOLE = "whole nodes are given back here"
_MIN_WALLTIME_S = 60.0


@dataclass(frozen=True, slots=True)
class _Request:
    """A job that waits for more nodes; `processes`: how many the program is to have with them."""

    job_id: str
    processes: int


class JobManager:
    """Answers the program of one job, returns unused nodes to the batch system and gets more; implements `desk.Clerk`.

    `backend`: the batch system. What its ports cannot do is never answered. `partition`: where the job runs: only
    pending jobs of it count. All pending jobs, if not given. `shrinks`: whether nodes are given back. `growth`: the
    terms of requests for more nodes, whose cores, walltime and token do not count; none are made if it is not given,
    as by a manager that does not run inside the job. Raises `JobNotFoundError`: the batch system has no such job of
    this user.
    """

    def __init__(
        self,
        backend: Backend,
        job_id: str,
        processes: int,
        *,
        cores_per_process: int = 1,
        partition: str = "",
        shrinks: bool = True,
        growth: JobSpec | None = None,
    ) -> None:
        self._backend, self._job_id = backend, job_id
        self._allocated, self._cores = processes, cores_per_process
        self._partition = partition
        self._waiting: dict[int | str, QueuedJob] = {}
        self._refusal = "" if self._can_shrink else "this batch system takes no nodes back"
        if not shrinks:
            self._refusal = "nodes are not to be given back"
        self._growth = growth if isinstance(backend, TakesOver) and backend.capabilities.grow_by > 0 else None
        self._request: _Request | None = None
        ends_s = backend.take_up(job_id) if isinstance(backend, TakesUp) else None
        self._ends_s = math.inf if ends_s is None else ends_s
        self._lock = threading.Lock()

    def close(self) -> None:
        """Withdraw a request for more nodes."""
        with self._lock:
            self._withdraw()

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
        if request.processes < self._allocated:
            return Reply(Action.NONE, request.processes, self._refusal or _WHOLE)
        if self._refusal and self._growth is None:
            return Reply(Action.NONE, request.processes, self._refusal)
        if wish is not None:
            return self._decide(wish, is_to_be_done=request.what == "check")
        if request.what == "expand":
            return self._expand(request.to, is_to_be_done=True)
        return Reply(Action.NONE, request.processes, "acknowledged")

    def _decide(self, wish: Wish, *, is_to_be_done: bool) -> Reply:
        """Ask the policy; for the smallest expansion, as if there were nodes to spare."""
        waiting = self._look_at_queue()
        answer = policy.decide(
            self._allocated,
            wish,
            free=self._next_step(wish) if not waiting or self._allocated < wish.minimum else 0,
            queued=[-(-job.cores // self._cores) for job in waiting],
        )
        if answer.action is Action.EXPAND:
            return self._expand(answer.nodes, is_to_be_done=is_to_be_done)
        self._withdraw()
        if self._refusal:
            return Reply(Action.NONE, self._allocated, self._refusal)
        if answer.action is not Action.SHRINK:
            return Reply(Action.NONE, self._allocated, "no waiting job could start by a shrink")
        if not self._may_keep(answer.nodes):
            return Reply(Action.NONE, self._allocated, _WHOLE)
        why = "the program asks for it, or prefers it"
        if answer.promotes is not None:
            why = f"a job of {waiting[answer.promotes].cores} cores could start"
        return Reply(Action.SHRINK, answer.nodes, why)

    def _next_step(self, wish: Wish) -> int:
        """Return how many processes the smallest expansion adds; 0 if there is none.

        Whether there are nodes for a larger one is not known, and it might wait for long. More are asked for later.
        """
        if self._growth is None:
            return 0
        step, size = self._backend.capabilities.grow_by, self._allocated
        more = (larger - size for larger in policy.sizes_from(wish, size) if larger > size)
        return next((added for added in more if added * self._cores % step == 0), 0)

    def _look_at_queue(self) -> list[QueuedJob]:
        """Return the pending jobs that count, in order of submission."""
        for event in self._backend.queue_events(_MAX_JOBS):
            if event.what == "submitted" and event.job is not None:
                self._waiting[event.key] = event.job
            else:
                self._waiting.pop(event.key, None)
        partitions = {"", self._partition}
        return sorted(
            (job for job in self._waiting.values() if not self._partition or job.partition in partitions),
            key=lambda job: job.submit_s,
        )

    def _expand(self, processes: int, *, is_to_be_done: bool) -> Reply:
        """Ask for the nodes of an expansion, unless that is done; once they are there, take them over if that is to be.

        The batch system refuses, or cannot be reached: nothing has changed, and a later check may try again.
        """
        backend = self._backend
        assert isinstance(backend, TakesOver), "nothing else is asked for more nodes"
        if self._request is not None and self._request.processes != processes:
            self._withdraw()
        try:
            if self._request is None:
                self._request = self._ask(backend, processes)
            status = backend.status([self._request.job_id])[self._request.job_id]
            if status.state is JobState.RUNNING:
                nodes = backend.take_over(self._request.job_id) if is_to_be_done else ()
                if is_to_be_done:
                    self._allocated, self._request = processes, None
                return Reply(Action.EXPAND, processes, "the batch system gives more nodes", nodes)
        except SubmitRejectedError as error:
            self._growth = None
            return Reply(Action.NONE, self._allocated, f"the batch system gives no more nodes: {error.message}")
        except BackendError as error:
            self._withdraw()
            return Reply(Action.NONE, self._allocated, f"no more nodes at the moment: {error.message}")
        if status.state.is_final:
            self._request = None
            return Reply(Action.NONE, self._allocated, f"the request for more nodes has ended: {status.reason}")
        return Reply(Action.NONE, self._allocated, f"waits for nodes for {processes} processes")

    def _ask(self, backend: TakesOver, processes: int) -> _Request:
        """Ask the batch system for the nodes that are missing for a number of processes."""
        assert self._growth is not None, "an expansion is decided on only with it"
        spec = replace(
            self._growth,
            cores=(processes - self._allocated) * self._cores,
            walltime_s=max(self._ends_s - self._backend.now(), _MIN_WALLTIME_S),
            token=f"{self._job_id}-g{secrets.token_hex(4)}",
        )
        return _Request(backend.grow(self._job_id, spec), processes)

    def _withdraw(self) -> None:
        """Cancel the request for more nodes, if there is one; one that is not reached ends with the job's walltime."""
        if self._request is not None:
            with suppress(BackendError):
                self._backend.cancel(self._request.job_id)
            self._request = None

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
