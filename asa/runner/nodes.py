"""Bad nodes, on which a run's jobs fail through no fault of their own: the evidence, and the run's list.

The evidence against a node is how a job of a single stage ended on it:
- Slurm says that the node failed;
- the payload did not begin, because the job could not be launched, or its work folder is missing;
- an input, a module or the command itself was not found (exit codes 126 and 127 count as that), and another job of the
  run has completed on another node, runs on one, or may begin at any time: then the stage is tried on another node. If
  no job has completed on another node, or one has completed on this node, the node is only *suspected*;
- two stages failed there, each within minutes of its beginning and soon after the other, with any exit codes; no job
  has completed there in between, while others have completed on other nodes, or run on them.

Such a node is on the list for an hour. All jobs of the run avoid it; a node that is only suspected is avoided only by
the stage that failed there. That stage is submitted again at once, which does not count as a retry. If it completes on
another node, the first node is proven bad. If it fails there too, the stage itself is at fault, and its evidence
against nodes is dropped. After some such stages, stages are moved only off proven nodes, since all parallel stages of
one kind may have the same mistake. If several jobs run one stage, two that ran on a node at the same time and failed
there count as one failure. All this follows from the run's journal, so a client that resumes the run knows it.

A pending job goes on avoiding the nodes that were listed when it was submitted. Once one of these nodes may be tried
again, and the batch system says that all other nodes are down, the job is given back and submitted anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import field, replace
from itertools import chain, islice

from asa.backend import Capabilities, End, JobState, JobStatus
from asa.core.late import dataclass
from asa.outcome import NOT_EXECUTABLE, NOT_FOUND, JobOutcome, outcome_of
from asa.runner.jobs import Job
from asa.runner.retries import avoidable, has_run_out_of_memory
from asa.workflow import Stage

TRIED_AGAIN_S = 3600.0
"""Seconds for which a bad node is avoided."""

_MAX_MOVES = 3  # moves of a stage to another node that count as no retry
_MAX_REFUTED = 3  # after this number of stages moved in vain, further stages are moved only off proven nodes
_SOON_S = 180.0  # a stage that fails within this time fails early
_TOGETHER_S = 900.0  # early failures of two stages that are further apart count as unrelated
_UNBEGUN = frozenset({JobOutcome.UNABLE, JobOutcome.FOLDER_MISSING})
_LACKS = frozenset({JobOutcome.INPUT_MISSING, JobOutcome.SETUP_FAILED})
_OWN = frozenset({None, JobOutcome.FAILED, JobOutcome.TASKS_FAILED, JobOutcome.OUTPUT_MISSING})
_ANYWHERE = ""  # stands for the unknown nodes of a job that may begin at any time
_SUSPECT = "not found"  # the kind of failure for which one stage may be to blame
_NODE_FAILED = "ran there when it failed"
_MAX_NAMES = 3  # names of stages in a sentence
_MAX_EARLY = 8  # early failures that are remembered for each node


@dataclass(frozen=True, slots=True)
class BadNode:
    """A node that jobs of a run avoid."""

    name: str
    why: str  # how these stages failed there, in words
    since_s: float
    until_s: float  # from then on jobs may use the node again
    stages: tuple[str, ...]  # the stages that failed there
    suspected: bool = False  # whether only these stages avoid it

    @property
    def text(self) -> str:
        """Return which stages failed there, and how."""
        first = self.stages[:_MAX_NAMES]
        rest = len(self.stages) - len(first)
        names = ", ".join(first) + (f" and {rest} more" if rest else "")
        return f"{names} {self.why}"


@dataclass(frozen=True, slots=True)
class _Move:
    """The failure for which a stage was moved off a node."""

    kind: str
    at_s: float

    def explains(self, job: Job) -> bool:
        """Whether another job of the stage was submitted before the move, so that it could not avoid the node."""
        return job.status.submit_s <= self.at_s


@dataclass(slots=True)
class Nodes:
    """A run's knowledge of the nodes on which its jobs ran."""

    site: Capabilities
    _bad: dict[str, BadNode] = field(default_factory=dict)  # in the order of their failures
    _has_accused: bool = False  # whether a node was ever in `_bad`, so that jobs may avoid some
    _well: dict[str, float] = field(default_factory=dict)  # latest start of a job that completed there
    # by node: stages that failed early, with the time
    _early: dict[str, dict[str, float]] = field(default_factory=dict)
    _moved: dict[str, dict[str, _Move]] = field(default_factory=dict)  # by stage: the nodes off which it was moved
    _proven: set[str] = field(default_factory=set)  # nodes off which a stage was moved that then completed elsewhere
    _refuted: int = 0  # number of stages that were moved and failed elsewhere, too
    _nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by running job
    # running jobs by node; pending jobs that may begin count under `_ANYWHERE`
    _live: Counter[str] = field(default_factory=Counter)

    def bad(self, at_s: float) -> list[BadNode]:
        """Return the nodes that all jobs avoid at a given time."""
        return [node for node in self._bad.values() if node.until_s > at_s and self._is_for_all(node)]

    def avoided(self, at_s: float, nodes: int, stages: Iterable[str] = ()) -> tuple[str, ...]:
        """Name the nodes that a job submitted at a given time avoids; `nodes`: how many nodes the job needs."""
        own = set(stages)
        names = [
            bad.name
            for bad in self._bad.values()
            if bad.until_s > at_s and (self._is_for_all(bad) or not own.isdisjoint(bad.stages))
        ]
        return avoidable(names, self.site, nodes)

    def all_tried_again_s(self, jobs: Iterable[Job]) -> dict[str, float]:
        """Return `tried_again_s` of the jobs that have one, by id."""
        if not self._has_accused:
            return {}
        return {job.status.job_id: at_s for job in jobs if (at_s := self.tried_again_s(job)) is not None}

    def tried_again_s(self, job: Job) -> float | None:
        """If a pending job's nodes are all down, return when it may use an avoided node; None for other jobs."""
        status = job.status
        if not job.spec.avoid or status.state is not JobState.PENDING or not _are_away(status.reason):
            return None
        return min(self._avoided_until_s(name, job.planned.stages) for name in job.spec.avoid)

    def _avoided_until_s(self, node: str, stages: Iterable[str]) -> float:
        """Return until when some stages avoid a node."""
        bad = self._bad.get(node)
        if bad is None or not (self._is_for_all(bad) or set(stages) & set(bad.stages)):
            return -math.inf
        return bad.until_s

    def _is_for_all(self, node: BadNode) -> bool:
        """Whether all stages avoid a node, and not only the stages that failed there."""
        return not node.suspected or node.name in self._proven

    def anew(self) -> None:
        """Forget which stages were moved off nodes, because all stages are tried again."""
        self._moved.clear()
        self._refuted = 0

    def follow(self, job: Job) -> None:
        """Record the nodes on which a job runs; for a pending job, that it may begin on any node."""
        status = job.status
        waits = (_ANYWHERE,) if status.eligible_s is not None else ()
        nodes = () if status.state.is_final else waits if status.payload_start_s is None else status.nodes
        was = self._nodes.pop(status.job_id, ())
        if nodes:
            self._nodes[status.job_id] = nodes
        if nodes != was:
            self._live.update(nodes)
            self._live.subtract(was)
            for name in was:
                if not self._live[name]:
                    del self._live[name]

    def heard(self, job: Job) -> None:
        """Take in where a job completed, and which nodes failed by the batch system's report."""
        status = job.status
        for name in status.good_nodes:
            self._well[name] = max(self._well.get(name, 0.0), status.start_s or 0.0)
            self._early.pop(name, None)
            if (bad := self._bad.get(name)) is not None and len(bad.stages) == 1 and self._well[name] >= bad.since_s:
                del self._bad[name]
                self._proven.discard(name)
        for stage in job.planned.stages if status.state is JobState.COMPLETED else ():
            self._proven |= self._moved.get(stage, {}).keys() - set(status.nodes)
        for name in status.bad_nodes:
            self._accuse(name, job.planned.stages[0], _NODE_FAILED, _end_s(status))

    def moves(self, stage: Stage, end: End, job: Job) -> str:
        """Return the node that a failed stage's next attempt avoids, if that does not count as a retry; else empty.

        `end`: how the stage ended; `job`: the job in which it ended, which has ended as well.
        """
        node = next(iter(end.bad_nodes or end.nodes), "")  # the job's script runs on the first node
        if end.state is not JobState.FAILED or not node:
            return ""
        return node if self._is_to_blame(node, stage, end, job) else ""

    def _is_to_blame(self, node: str, stage: Stage, end: End, job: Job) -> bool:
        """Decide whether a stage is moved off the node on which it failed, and record that."""
        at_s, before = _end_s(job.status), self._moved.setdefault(stage.name, {})
        earlier = before.get(node)
        is_same = earlier is not None and earlier.explains(job)
        if earlier is not None and is_same and earlier.kind == _kind(end):
            return True  # as decided before
        why = self._what_failed(stage, end, job, node)
        if is_same:
            return bool(why)
        is_sure = node in self._proven or bool(end.bad_nodes)
        max_moves = _MAX_MOVES if is_sure or _is_unbegun(end) else 1
        if not why or earlier is not None or len(before) >= max_moves:
            if any(failure.kind == _kind(end) for name, failure in before.items() if name != node):
                self._acquit(stage.name)
            return False
        if not is_sure and self._refuted >= _MAX_REFUTED + len(self._proven):
            return False
        suspected = _kind(end) == _SUSPECT and (node in self._well or not self._well)
        self._accuse(node, stage.name, why, at_s, suspected=suspected)
        if node not in self.avoided(at_s, 1, [stage.name]):
            return False
        before[node] = _Move(_kind(end), at_s)
        return True

    def _what_failed(self, stage: Stage, end: End, job: Job, node: str) -> str:
        """Describe the evidence against the node on which a stage failed; empty if there is none."""
        if end.bad_nodes:
            return _NODE_FAILED if stage.retries else ""
        if _is_unbegun(end):
            return "could not begin there"
        if _is_not_found(end):  # the script missed it on the first node
            is_so = self._does_well_elsewhere(node, waits=True)
            return "did not find something there that others find elsewhere" if is_so else ""
        if len(end.nodes) > 1:
            return ""  # which of the nodes is to blame is unknown
        is_so = self._fails_early(stage, end, job, node) and self._does_well_elsewhere(node)
        return "failed there soon after beginning" if is_so and stage.retries else ""

    def _fails_early(self, stage: Stage, end: End, job: Job, node: str) -> bool:
        """Record a stage's failure; return whether it came early, like another stage's recent failure on this node."""
        began_s, ended_s = job.status.payload_start_s, _end_s(job.status)
        if not isinstance(end, JobStatus) or outcome_of(end) not in _OWN or has_run_out_of_memory(end):
            return False
        if began_s is None or ended_s - began_s > _SOON_S:
            return False
        early = self._early.setdefault(node, {})
        is_second = any(name != stage.name and at_s > ended_s - _TOGETHER_S for name, at_s in early.items())
        early.pop(stage.name, None)
        early[stage.name] = ended_s
        if len(early) > _MAX_EARLY:
            del early[next(iter(early))]
        return is_second

    def _does_well_elsewhere(self, node: str, *, waits: bool = False) -> bool:
        """Whether a job of the run has completed on another node, or is running there.

        `waits`: also count a pending job that may begin at any time.
        """
        nodes = [name for name in islice(self._live, 3) if waits or name != _ANYWHERE]
        return any(name != node for name in chain(self._well, nodes))

    def _accuse(self, node: str, stage: str, why: str, at_s: float, *, suspected: bool = False) -> None:
        """Put a node on the list, or extend its time there."""
        self._has_accused = True
        until_s, known = at_s + TRIED_AGAIN_S, self._bad.pop(node, None)
        if known is None or known.until_s <= at_s:
            self._bad[node] = BadNode(node, why, at_s, until_s, (stage,), suspected)
            return
        stages = known.stages if stage in known.stages else (*known.stages, stage)
        until_s, suspected = max(until_s, known.until_s), suspected and known.suspected
        self._bad[node] = replace(known, why=why, until_s=until_s, stages=stages, suspected=suspected)

    def _acquit(self, stage: str) -> None:
        """Drop a stage's evidence against nodes, since the stage fails elsewhere, too."""
        self._refuted += 1
        for node, bad in list(self._bad.items()):
            others = tuple(name for name in bad.stages if name != stage)
            if others or node in self._proven:
                self._bad[node] = replace(bad, stages=others or bad.stages)
            else:
                del self._bad[node]
        self._early = {node: {s: at for s, at in early.items() if s != stage} for node, early in self._early.items()}


def moved(how: str, *nodes: str) -> str:
    """Return the text that says that a failed stage is tried again on another node."""
    return f"{how}, which counts as no retry; now on another node than {' and '.join(dict.fromkeys(nodes))}"


def _are_away(reason: str) -> bool:
    """Whether a job is pending because all nodes that it may run on are unavailable."""
    return reason.startswith("ReqNodeNotAvail") and "Reserved" not in reason


def _kind(end: End) -> str:
    """Return in which of four ways a stage failed."""
    if end.bad_nodes:
        return "node"
    return "unbegun" if _is_unbegun(end) else _SUSPECT if _is_not_found(end) else "own"


def _is_unbegun(end: End) -> bool:
    """Whether the payload did not begin, because the job could not be launched or had no work folder."""
    return outcome_of(end) in _UNBEGUN


def _is_not_found(end: End) -> bool:
    """Whether something that the stage needs was missing: its command, an input, a module."""
    outcome = outcome_of(end)
    return outcome in _LACKS or (outcome is JobOutcome.FAILED and end.exit_code in {NOT_EXECUTABLE, NOT_FOUND})


def _end_s(status: JobStatus) -> float:
    return status.end_s if status.end_s is not None else status.submit_s
