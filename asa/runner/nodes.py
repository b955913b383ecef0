"""Bad nodes, on which jobs of a run fail through no fault of their own: the evidence, and the run's list.

The evidence against a node is how a job of a single stage ended on it:

- Slurm says that the node failed;
- the payload did not begin, since the job could not be launched, or its work folder is missing;
- an input, a module or the command itself was not found (exit codes 126 and 127 count as that), and another job of the
  run has completed on another node, runs on one, or may begin at any time: then the stage is tried on another node. If
  no job has completed on another node, or one has completed on this node, the node is only *suspected*;
- two stages failed there, each within minutes of its beginning and soon after the other, with whatever exit codes; no
  job has completed there in between, while others have completed on other nodes, or run on them.

Such a node is on the list for an hour. All jobs of the run avoid it, but one that is only suspected is avoided by no
other stage than that which failed. That stage is submitted again at once, which does not count as a retry. If it
completes on another node, the first node is proven bad. If it fails there too, the stage itself is at fault, and its
evidence against nodes is dropped. After some such stages, stages are moved only off proven nodes, since all parallel
stages of one kind may have the same mistake. If several jobs run one stage, two that ran on a node at the same time and
failed there count as one failure. All this follows from the run's journal, so a client that resumes the run knows it.

A pending job goes on avoiding the nodes that were listed when it was submitted. Once one of them may be tried again,
and the batch system says that the others are down, the job is given back and submitted anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from asa.backend import Capabilities, End, JobState, JobStatus
from asa.outcome import NOT_EXECUTABLE, NOT_FOUND, JobOutcome, outcome_of
from asa.runner.jobs import Job
from asa.runner.retries import avoidable, has_run_out_of_memory
from asa.workflow import Stage

TRIED_AGAIN_S = 3600.0
"""How long a bad node is avoided."""

_MAX_MOVES = 3  # times that a stage is asked for elsewhere and that counts as no retry
_MAX_REFUTED = 3  # stages that were moved in vain, until others are moved off proven nodes alone
_SOON_S = 180.0  # after its beginning a stage fails early
_TOGETHER_S = 900.0  # early failures of two stages that are further apart have not one cause
_UNBEGUN = frozenset({JobOutcome.UNABLE, JobOutcome.FOLDER_MISSING})
_LACKS = frozenset({JobOutcome.INPUT_MISSING, JobOutcome.SETUP_FAILED})
_OWN = frozenset({None, JobOutcome.FAILED, JobOutcome.TASKS_FAILED, JobOutcome.OUTPUT_MISSING})
_ANYWHERE = ""  # where a job may begin to run, if nothing keeps it back
_SUSPECT = "not found"  # the way of failing that one stage alone may be to blame for
_NODE_FAILED = "ran there when it failed"
_MAX_NAMES = 3  # of stages, in a sentence
_MAX_EARLY = 8  # stages that failed early; one is remembered for each node


@dataclass(frozen=True, slots=True)
class BadNode:
    """A node that jobs of a run are kept off."""

    name: str
    why: str  # what became of those stages there, in words
    since_s: float
    until_s: float  # then it is tried again
    stages: tuple[str, ...]  # that failed there
    suspected: bool = False  # only: it is avoided by these stages alone

    @property
    def text(self) -> str:
        """Say what happened there, and to whom."""
        first = self.stages[:_MAX_NAMES]
        rest = len(self.stages) - len(first)
        names = ", ".join(first) + (f" and {rest} more" if rest else "")
        return f"{names} {self.why}"


@dataclass(frozen=True, slots=True)
class _Move:
    """What a stage was moved off a node for."""

    kind: str
    at_s: float

    def explains(self, job: Job) -> bool:
        """Whether another job of the stage was on the node by then, before it could avoid it."""
        return job.status.submit_s <= self.at_s


@dataclass(slots=True)
class Nodes:
    """What a run knows of the nodes on which its jobs ran."""

    site: Capabilities
    _bad: dict[str, BadNode] = field(default_factory=dict)  # in the order in which they failed
    _well: dict[str, float] = field(default_factory=dict)  # when a job completed there that had begun last
    _early: dict[str, dict[str, float]] = field(default_factory=dict)  # by node, stages that failed early, and when
    _moved: dict[str, dict[str, _Move]] = field(default_factory=dict)  # by stage, the nodes off which it was moved
    _proven: set[str] = field(default_factory=set)  # nodes off which a stage was moved that completed on another then
    _refuted: int = 0  # how many stages were moved and failed elsewhere, too
    _nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # where jobs run that have not ended
    _live: Counter[str] = field(default_factory=Counter)  # how many of them at each place

    def bad(self, at_s: float) -> list[BadNode]:
        """Give the nodes that all jobs avoid at a time."""
        return [one for one in self._bad.values() if one.until_s > at_s and self._is_for_all(one)]

    def avoided(self, at_s: float, nodes: int, stages: Iterable[str] = ()) -> tuple[str, ...]:
        """Name the nodes that a job of some stages is kept off which is submitted at a time; `nodes`: that it needs."""
        own = set(stages)
        names = [
            one.name
            for one in self._bad.values()
            if one.until_s > at_s and (self._is_for_all(one) or not own.isdisjoint(one.stages))
        ]
        return avoidable(names, self.site, nodes)

    def tried_again_s(self, job: Job) -> float | None:
        """Say when a job that waits for nodes that are away may have one that it is kept off; None for other jobs."""
        status = job.status
        if not job.spec.avoid or status.state is not JobState.PENDING or not _are_away(status.reason):
            return None
        return min(self._avoided_until_s(name, job.planned.stages) for name in job.spec.avoid)

    def _avoided_until_s(self, node: str, stages: Iterable[str]) -> float:
        """Say until when some stages are kept off a node."""
        bad = self._bad.get(node)
        if bad is None or not (self._is_for_all(bad) or set(stages) & set(bad.stages)):
            return -math.inf
        return bad.until_s

    def _is_for_all(self, one: BadNode) -> bool:
        """Whether more than a suspicion speaks against a node."""
        return not one.suspected or one.name in self._proven

    def anew(self) -> None:
        """Let every stage be moved again, as they are all to be tried again."""
        self._moved.clear()
        self._refuted = 0

    def follow(self, job: Job) -> None:
        """Keep count of where a job runs, or that it may begin to anywhere."""
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
        """Take in where a job did well, and which nodes the batch system says have failed."""
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

        `end`: how it ended, and in which job, which has ended too.
        """
        node = next(iter(end.bad_nodes or end.nodes), "")  # the first one is where its script ran
        if end.state is not JobState.FAILED or not node:
            return ""
        return node if self._is_to_blame(node, stage, end, job) else ""

    def _is_to_blame(self, node: str, stage: Stage, end: End, job: Job) -> bool:
        """Decide whether a stage is asked for again off the node on which it failed, and note that."""
        at_s, before = _end_s(job.status), self._moved.setdefault(stage.name, {})
        earlier = before.get(node)
        is_same = earlier is not None and earlier.explains(job)
        if earlier is not None and is_same and earlier.kind == _kind(end):
            return True  # as was said before
        why = self._what_failed(stage, end, job, node)
        if is_same:
            return bool(why)
        is_sure = node in self._proven or bool(end.bad_nodes)
        max_moves = _MAX_MOVES if is_sure or _is_unbegun(end) else 1
        if not why or earlier is not None or len(before) >= max_moves:
            if any(one.kind == _kind(end) for name, one in before.items() if name != node):
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
        """Say in words what speaks against the node on which a stage failed; empty for nothing."""
        if end.bad_nodes:
            return _NODE_FAILED if stage.retries else ""
        if _is_unbegun(end):
            return "could not begin there"
        if _is_not_found(end):  # by its script, which runs on the first of its nodes
            is_so = self._does_well_elsewhere(node, waits=True)
            return "did not find something there that others find elsewhere" if is_so else ""
        if len(end.nodes) > 1:
            return ""  # which of them it was is not known
        is_so = self._fails_early(stage, end, job, node) and self._does_well_elsewhere(node)
        return "failed there soon after beginning" if is_so and stage.retries else ""

    def _fails_early(self, stage: Stage, end: End, job: Job, node: str) -> bool:
        """Take in that a stage failed; say whether it did early, and another did on the same node lately."""
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
        """Whether a job of the run has completed on another node, or runs there as far as is known.

        `waits`: also count a job that nothing keeps from running.
        """
        nodes = [name for name in islice(self._live, 3) if waits or name != _ANYWHERE]
        return any(name != node for name in chain(self._well, nodes))

    def _accuse(self, node: str, stage: str, why: str, at_s: float, *, suspected: bool = False) -> None:
        """Put a node on the list, or keep it there for longer."""
        until_s, known = at_s + TRIED_AGAIN_S, self._bad.pop(node, None)
        if known is None or known.until_s <= at_s:
            self._bad[node] = BadNode(node, why, at_s, until_s, (stage,), suspected)
            return
        stages = known.stages if stage in known.stages else (*known.stages, stage)
        until_s, suspected = max(until_s, known.until_s), suspected and known.suspected
        self._bad[node] = replace(known, why=why, until_s=until_s, stages=stages, suspected=suspected)

    def _acquit(self, stage: str) -> None:
        """Let nothing count any more that a stage said against nodes: it fails on others, too."""
        self._refuted += 1
        for node, bad in list(self._bad.items()):
            others = tuple(name for name in bad.stages if name != stage)
            if others or node in self._proven:
                self._bad[node] = replace(bad, stages=others or bad.stages)
            else:
                del self._bad[node]
        self._early = {node: {s: at for s, at in early.items() if s != stage} for node, early in self._early.items()}


def moved(how: str, *nodes: str) -> str:
    """Say of a stage that failed that it is asked for again on another node."""
    return f"{how}, which counts as no retry; now on another node than {' and '.join(dict.fromkeys(nodes))}"


def _are_away(reason: str) -> bool:
    """Whether the batch system says of a pending job that no node that it may run on is there."""
    return reason.startswith("ReqNodeNotAvail") and "Reserved" not in reason


def _kind(end: End) -> str:
    """Return which of four ways a stage failed in."""
    if end.bad_nodes:
        return "node"
    return "unbegun" if _is_unbegun(end) else _SUSPECT if _is_not_found(end) else "own"


def _is_unbegun(end: End) -> bool:
    """Whether nothing began since the job could not be launched, or had no work folder."""
    return outcome_of(end) in _UNBEGUN


def _is_not_found(end: End) -> bool:
    """Whether something was missing that a stage needs: its command, an input, a module."""
    outcome = outcome_of(end)
    return outcome in _LACKS or (outcome is JobOutcome.FAILED and end.exit_code in {NOT_EXECUTABLE, NOT_FOUND})


def _end_s(status: JobStatus) -> float:
    return status.end_s if status.end_s is not None else status.submit_s
