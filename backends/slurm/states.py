"""The meaning of Slurm's job states for a client."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice, product
from typing import Literal, NamedTuple

from asa.backend import JobState, JobStatus

from .link import SlurmRecord
from .reasons import kind


class _Word(NamedTuple):
    """The meaning of a job state, and its source."""

    kind: Literal["waits", "held", "runs", "ended", "other"]
    since: str  # first release of Slurm with it; "22.05" for all that asa supports
    source: str  # API description that lists it, or the page of state codes


STATES: dict[str, _Word] = {
    # base states
    "PENDING": _Word("waits", "22.05", "v0.0.40"),
    "RUNNING": _Word("runs", "22.05", "v0.0.40"),
    "SUSPENDED": _Word("runs", "22.05", "v0.0.40"),
    "COMPLETED": _Word("ended", "22.05", "v0.0.40"),
    "CANCELLED": _Word("ended", "22.05", "v0.0.40"),
    "FAILED": _Word("ended", "22.05", "v0.0.40"),
    "TIMEOUT": _Word("ended", "22.05", "v0.0.40"),
    "NODE_FAIL": _Word("ended", "22.05", "v0.0.40"),
    "PREEMPTED": _Word("ended", "22.05", "v0.0.40"),
    "BOOT_FAIL": _Word("ended", "22.05", "v0.0.40"),
    "DEADLINE": _Word("ended", "22.05", "v0.0.40"),
    "OUT_OF_MEMORY": _Word("ended", "22.05", "v0.0.40"),
    # flags, which squeue prints instead of the base state
    "LAUNCH_FAILED": _Word("ended", "22.05", "v0.0.40"),
    "RECONFIG_FAIL": _Word("ended", "22.05", "v0.0.40"),
    "REVOKED": _Word("ended", "22.05", "v0.0.40"),  # another cluster of a federation has the job
    "REQUEUED": _Word("waits", "22.05", "v0.0.40"),
    "REQUEUE_FED": _Word("waits", "22.05", "v0.0.40"),
    "REQUEUE_HOLD": _Word("held", "22.05", "v0.0.40"),
    "SPECIAL_EXIT": _Word("held", "22.05", "v0.0.40"),  # held by RequeueExitHold, or scontrol
    "RESV_DEL_HOLD": _Word("held", "22.05", "v0.0.40"),
    "CONFIGURING": _Word("runs", "22.05", "v0.0.40"),
    "POWER_UP_NODE": _Word("other", "22.05", "v0.0.40"),
    "COMPLETING": _Word("runs", "22.05", "v0.0.40"),
    "RESIZING": _Word("runs", "22.05", "v0.0.40"),
    "SIGNALING": _Word("runs", "22.05", "v0.0.40"),
    "STAGE_OUT": _Word("runs", "22.05", "v0.0.40"),
    "STOPPED": _Word("runs", "22.05", "v0.0.40"),
    "UPDATE_DB": _Word("other", "22.05", "v0.0.40, and no more in v0.0.42"),
    "EXPEDITING": _Word("other", "25.11", "v0.0.44"),
}
"""All job states in the published descriptions of Slurm's API, v0.0.40 to v0.0.45.

``other`` is a flag that does not say whether the job waits, runs or has ended. If there are only such flags, or unknown
states, the job's times and exit code decide: see `base_of`.
"""

_KEPT_BACK = frozenset({"Dependency", "DependencyNeverSatisfied", "BeginTime"})

_PASSED = frozenset({"transient", "limit", "held"})  # kinds of reasons of pending jobs
_RELEASED = frozenset({"transient", "limit", "dependency"})  # kinds of reasons of jobs that are not on hold
_ONE_NODE = re.compile(r"[^\s,\[\]()]+")
_LISTED = re.compile(r"(?:[^\s,\[\]]++|\[[^\[\]]*+\])++")  # elements of a list: a comma in brackets separates none
_PARTS = re.compile(r"(\[[^\[\]]*+\])")
_MAX_BRACKETS, _MAX_DIGITS, _MAX_NAMED = 4, 9, 100_000  # upper bounds that no cluster exceeds
MAX_NODES = 16  # upper bound of the nodes that are named for a job
WAITING = frozenset(word for word, says in STATES.items() if says.kind in ("waits", "held"))
ENDED = frozenset(word for word, says in STATES.items() if says.kind == "ended")
_HELD_WORDS = frozenset(word for word, says in STATES.items() if says.kind == "held")
_BACK_IN_QUEUE = _HELD_WORDS | {"REQUEUED", "REQUEUE_FED"}
_UNDER_WAY = frozenset(word for word, says in STATES.items() if says.kind == "runs")
_OTHER = frozenset(word for word, says in STATES.items() if says.kind == "other")
_ENDS = {
    "COMPLETED": JobState.COMPLETED,
    "TIMEOUT": JobState.TIMEOUT,
    "CANCELLED": JobState.CANCELLED,
    "REVOKED": JobState.CANCELLED,
    **dict.fromkeys(
        (
            "FAILED",
            "NODE_FAIL",
            "BOOT_FAIL",
            "OUT_OF_MEMORY",
            "DEADLINE",
            "PREEMPTED",
            "LAUNCH_FAILED",
            "RECONFIG_FAIL",
        ),
        JobState.FAILED,
    ),
}
_BY_ITS_NODE = frozenset({"NODE_FAIL", "BOOT_FAIL"})
# ended by themselves, so that the exit code is meaningful
_EXITED = frozenset({"COMPLETED", "FAILED", "OUT_OF_MEMORY"})


def base_of(words: Sequence[str], *, ran: bool, has_ended: bool) -> tuple[str, ...]:
    """Put a base state in front of states that include none; return others unchanged.

    `ran`: whether the job has, or had, nodes.

    Examples
    --------
    >>> base_of(["FROBBING"], ran=True, has_ended=False), base_of(["STOPPED"], ran=True, has_ended=False)
    (('RUNNING', 'FROBBING'), ('STOPPED',))
    """
    if not words or any(word in STATES and word not in _OTHER for word in words):
        return tuple(words)
    if not ran:
        return ("CANCELLED" if has_ended else "PENDING", *words)
    return ("FAILED" if has_ended else "RUNNING", *words)


def is_over(start_s: float | None, end_s: float | None, limit_s: float | None, *, has_failed: bool) -> bool:
    """Whether a job has ended, by its times. Before the end, Slurm shows the end of its walltime.

    `has_failed`: whether it has an exit code other than 0, or a signal, perhaps from an earlier start. 0 is no
    evidence, since Slurm also shows it before the end.
    """
    if end_s is None or end_s > time.time():
        return False
    return has_failed or (start_s is not None and limit_s is not None and end_s < start_s + limit_s - 1)


def is_guessed(record: SlurmRecord) -> bool:
    """Whether a job counts as failed only because no state and no exit code says how it ended."""
    base, *others = record.states or ("",)
    says_nothing = bool(others) and all(word not in STATES or word in _OTHER for word in others)
    return base == "FAILED" and says_nothing and not (record.exit_code or record.signal)


def is_held(record: SlurmRecord) -> bool:
    """Whether a pending job does not start until it is released.

    A released job may keep the state of its hold, with a reason of another kind, until it starts.
    """
    why = kind(record.reason)
    return why == "held" or (why not in _RELEASED and not _HELD_WORDS.isdisjoint(record.states))


def waits_held(record: SlurmRecord) -> bool:
    """Whether a job is pending and on hold: it does not start until it is released."""
    return _state_of(record) is JobState.PENDING and is_held(record)


def reason_of(record: SlurmRecord) -> str:
    """Return the reason to be shown for a job."""
    return _reason(record, _state_of(record))


def ended_as(record: SlurmRecord) -> JobState | None:
    """Return how a job ended for the purpose of dependencies; None before that.

    Slurm releases dependent jobs before a job's nodes are cleaned up, while the client still counts the job as running.
    """
    if not record.states or not _BACK_IN_QUEUE.isdisjoint(record.states):
        return None
    return _ENDS.get(record.states[0])


def _state_of(record: SlurmRecord) -> JobState:
    """Return a job's state."""
    states: Sequence[str] = record.states
    if not _BACK_IN_QUEUE.isdisjoint(states):
        return JobState.PENDING
    if states[:1] == ("PENDING",) and "REVOKED" not in states:
        return JobState.RUNNING if "CONFIGURING" in states else JobState.PENDING
    if not _UNDER_WAY.isdisjoint(states):  # in whatever state, a job with an unmet dependency does not run
        return JobState.PENDING if record.dependency and not record.start_s else JobState.RUNNING
    if "REVOKED" in states:
        return JobState.CANCELLED
    state = _ENDS.get(states[0]) if states else None
    if state is JobState.COMPLETED and record.exit_code:
        return JobState.FAILED
    return state or (JobState.PENDING if record.start_s is None else JobState.RUNNING)


def status_of(record: SlurmRecord, now_s: float, *, ran: bool = False, kept_back: bool = False) -> JobStatus:
    """Convert Slurm's record of a job into a `JobStatus`.

    `kept_back`: whether a dependency, a begin time or a hold was to keep it from starting.
    In the result the payload starts with the job.

    Notes
    -----
    For a job that was cancelled in the queue, Slurm shows a start at its cancellation. It may show an eligible time
    before the submission, or lose that time. The returned times are in order.
    """
    state = _state_of(record)
    submit_s = record.submit_s
    end_s = max(record.end_s or now_s, submit_s) if state.is_final else None
    start_s = None
    if state is not JobState.PENDING and record.start_s:
        start_s = max(record.start_s, submit_s)
        if end_s is not None:
            never = state is not JobState.COMPLETED and not (ran or is_guessed(record) or record.exit_code)
            never = never and start_s >= end_s
            start_s = None if never else min(start_s, end_s)
    return JobStatus(
        job_id=record.job_id,
        state=state,
        submit_s=submit_s,
        eligible_s=_eligible_s(record, state, start_s, end_s, now_s, kept_back=kept_back),
        start_s=start_s,
        payload_start_s=start_s,
        end_s=end_s,
        exit_code=_exit_code(record, state),
        reason=_reason(record, state),
        expected_start_s=record.expected_start_s if state is JobState.PENDING and not is_held(record) else None,
        restarts=record.restarts,
        bad_nodes=_bad_nodes(record, state),
        nodes=() if state is JobState.PENDING else tuple(islice(names_of(record.node_list), MAX_NODES)),
    )


def names_of(node_list: str) -> Iterator[str]:
    """Yield the names in a node list of Slurm, in its order.

    Examples
    --------
    >>> list(names_of("gpu7,n[09-11,20]x")), list(names_of("r[1-2]n[3-4]"))
    (['gpu7', 'n09x', 'n10x', 'n11x', 'n20x'], ['r1n3', 'r1n4', 'r2n3', 'r2n4'])
    """
    words = _LISTED.findall(node_list)
    named = chain.from_iterable(product(*map(_choices, _PARTS.split(word, _MAX_BRACKETS))) for word in words)
    yield from islice(map("".join, named), _MAX_NAMED)


def _choices(part: str) -> list[str]:
    """Return the alternatives for a part of a node's name: the part itself, or each number of a range in brackets."""
    if not part.startswith("["):
        return [part]
    found: list[str] = []
    for numbers in part[1:-1].split(","):
        first, _, last = numbers.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal() and max(len(first), len(last)) <= _MAX_DIGITS):
            return [part]
        begin, end = int(first), int(last or first) + 1
        found += [str(number).zfill(len(first)) for number in range(begin, min(end, begin + _MAX_NAMED - len(found)))]
    return found


def _eligible_s(
    record: SlurmRecord,
    state: JobState,
    start_s: float | None,
    end_s: float | None,
    now_s: float,
    *,
    kept_back: bool,
) -> float | None:
    noted_s = record.eligible_s or None
    if start_s is not None:
        if noted_s is None:
            return None if kept_back else record.submit_s
        return min(max(noted_s, record.submit_s), start_s)
    if state is JobState.RUNNING or noted_s is None or record.reason in _KEPT_BACK or is_held(record):
        return None
    latest_s = now_s if end_s is None else end_s
    return max(noted_s, record.submit_s) if noted_s <= latest_s else None


def _bad_nodes(record: SlurmRecord, state: JobState) -> tuple[str, ...]:
    """Return the node that failed a job; none if it had several, since Slurm does not say which one it was."""
    if (
        state is not JobState.FAILED
        or record.states[0] not in _BY_ITS_NODE
        or not _ONE_NODE.fullmatch(record.node_list)
    ):
        return ()
    return (record.node_list,)


def _exit_code(record: SlurmRecord, state: JobState) -> int | None:
    if state is JobState.COMPLETED:
        return 0
    if state is not JobState.FAILED or record.states[0] not in _EXITED:
        return None
    if record.exit_code:
        return record.exit_code
    return 128 + record.signal if record.signal else None


def _reason(record: SlurmRecord, state: JobState) -> str:
    reason = "" if record.reason == "None" else record.reason
    shown = _HELD_WORDS if is_held(record) else frozenset[str]()
    if words := [word for word in record.states if word not in STATES or word in shown]:
        return f"{'+'.join(words)} ({reason})" if reason else "+".join(words)
    if state in (JobState.FAILED, JobState.TIMEOUT):
        return reason or record.states[0]
    if state is JobState.CANCELLED and (reason == "Dependency" or kind(reason) in _PASSED):
        return record.states[0]  # the job's reason for pending no longer holds
    return reason
