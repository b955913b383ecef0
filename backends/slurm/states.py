"""What Slurm's words for a job's state mean to a client."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, product

from asa.backend import JobState, JobStatus

from .link import SlurmRecord
from .reasons import kind

HELD = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue"})
_KEPT_BACK = HELD | {"Dependency", "DependencyNeverSatisfied", "BeginTime"}

_PASSED = frozenset({"transient", "limit", "held"})  # kinds of reasons of what is pending
_ONE_NODE = re.compile(r"[^\s,\[\]()]+")
_LISTED = re.compile(r"(?:[^\s,\[\]]|\[[^\]]*\])+")  # the words of a list: a comma in brackets parts none
_PARTS = re.compile(r"(\[[^\]]*\])")
MAX_NODES = 16  # that are named of a job
_BACK_IN_QUEUE = frozenset({"REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_UNDER_WAY = frozenset(
    {"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "COMPLETING"}
)
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
_EXITED = frozenset({"COMPLETED", "FAILED", "OUT_OF_MEMORY"})  # of itself, so that its exit code says something


def ended_as(record: SlurmRecord) -> JobState | None:
    """Say how a job ended as far as others' dependencies are concerned; None while it has not.

    Slurm lets dependents go before a job's nodes are clean, while the client still calls it running.
    """
    if not record.states or not _BACK_IN_QUEUE.isdisjoint(record.states):
        return None
    return _ENDS.get(record.states[0])


def _state_of(record: SlurmRecord) -> JobState | None:
    """Say where a job stands, None if Slurm's word for it is not known."""
    states: Sequence[str] = record.states
    if not _BACK_IN_QUEUE.isdisjoint(states):
        return JobState.PENDING
    if states[:1] == ("PENDING",) and "REVOKED" not in states:
        return JobState.RUNNING if "CONFIGURING" in states else JobState.PENDING
    if not _UNDER_WAY.isdisjoint(states):
        return JobState.RUNNING
    if "REVOKED" in states:
        return JobState.CANCELLED
    state = _ENDS.get(states[0]) if states else None
    if state is JobState.COMPLETED and record.exit_code:
        return JobState.FAILED
    return state


def status_of(record: SlurmRecord, now_s: float, *, ran: bool = False, kept_back: bool = False) -> JobStatus | None:
    """Say in the client's words what Slurm tells of a job.

    `kept_back`: something but the queue was to keep it from starting: a dependency, a begin time, a hold.
    Returns: with the payload's start taken for the job's. None if Slurm's word for its state is not known.

    Notes
    -----
    Slurm dates a job that was cancelled in the queue as if it had started when it was cancelled. It may say that a job
    was eligible before it was submitted, or forget that it was; the times given here are in order.
    """
    state = _state_of(record)
    if state is None:
        return None
    submit_s = record.submit_s
    end_s = max(record.end_s or now_s, submit_s) if state.is_final else None
    start_s = None
    if state is not JobState.PENDING and record.start_s:
        start_s = max(record.start_s, submit_s)
        if end_s is not None:
            never = state is not JobState.COMPLETED and not ran and start_s >= end_s and not record.exit_code
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
        expected_start_s=record.expected_start_s if state is JobState.PENDING else None,
        restarts=record.restarts,
        bad_nodes=_bad_nodes(record, state),
        nodes=() if state is JobState.PENDING else tuple(islice(names_of(record.node_list), MAX_NODES)),
    )


def names_of(node_list: str) -> Iterator[str]:
    """Name the nodes of a list as Slurm writes it, in its order.

    Examples
    --------
    >>> list(names_of("gpu7,n[09-11,20]x")), list(names_of("r[1-2]n[3-4]"))
    (['gpu7', 'n09x', 'n10x', 'n11x', 'n20x'], ['r1n3', 'r1n4', 'r2n3', 'r2n4'])
    """
    for word in _LISTED.findall(node_list):
        yield from map("".join, product(*map(_choices, _PARTS.split(word))))


def _choices(part: str) -> list[str]:
    """Give what a part of a node's name may be: itself, or each number of a range in brackets."""
    if not part.startswith("["):
        return [part]
    found = []
    for numbers in part[1:-1].split(","):
        first, _, last = numbers.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            return [part]
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]
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
    if state is JobState.RUNNING or noted_s is None or record.reason in _KEPT_BACK:
        return None
    latest_s = now_s if end_s is None else end_s
    return max(noted_s, record.submit_s) if noted_s <= latest_s else None


def _bad_nodes(record: SlurmRecord, state: JobState) -> tuple[str, ...]:
    """Name the node that failed a job; of several nodes Slurm does not say which it was."""
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
    if state in (JobState.FAILED, JobState.TIMEOUT):
        return reason or record.states[0]
    if state is JobState.CANCELLED and (reason == "Dependency" or kind(reason) in _PASSED):
        return record.states[0]  # why it was pending is over
    return reason
