"""Explains Slurm's reasons to users who do not know Slurm: why a job is pending, or how it failed."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from asa.backend import Advice

Kind = Literal["transient", "limit", "impossible", "held", "dependency", "failed", "unknown"]
"""What a reason requires.

``transient`` passes by itself; a ``limit`` passes when other jobs have ended or a budget is refilled; ``impossible``
stays until the job or the site is changed; ``held`` stays until the job is released; ``dependency`` concerns another
job; ``failed`` a job that has ended.
"""


class _Reason(NamedTuple):
    kind: Kind
    meaning: str
    remedy: str = ""


_WAIT = "Nothing: it starts by itself."
_FEWER = "Wait until jobs that run now have ended. Beyond the limit by itself it never starts: then ask for less."
_LESS = "Ask for less, or for another partition or quality of service (QOS)."
_STAFF = "Ask the site's staff."
_RESUBMIT = "Submit it again; if that happens repeatedly, ask the site's staff."
_LOOK = "Look into the output of the job."
_REFILL = "Wait until it is filled up, or ask for more."
_BUDGET = " that {whose} may use is used up."
_RELEASE = "Release it with: scontrol release JOBID"
_NO_RESERVATION = _Reason(
    "held",
    "The reservation of nodes that it asks for is over or was deleted, so Slurm has put it on hold.",
    "Take it out of the reservation: scontrol update JobId=JOBID ReservationName= ; then release it with: scontrol "
    "release JOBID",
)

_KNOWN: dict[str, _Reason] = {
    "Resources": _Reason("transient", "It is next, and waits until enough nodes are free.", _WAIT),
    "Priority": _Reason("transient", "Other jobs with a higher priority are before it in the queue.", _WAIT),
    "BeginTime": _Reason("transient", "The time before which it may not start has not come yet.", _WAIT),
    "Reservation": _Reason("transient", "It waits for the reservation of nodes that it asks for to begin.", _WAIT),
    "ReqNodeNotAvail": _Reason(
        "transient",
        "Nodes that it needs are down, or kept free for a maintenance or a reservation.",
        "Wait; a shorter walltime may let it start before a planned maintenance.",
    ),
    "Nodes required for job are DOWN": _Reason(
        "transient", "Nodes that it needs are down, drained, or kept for jobs in more important partitions.", _WAIT
    ),
    "NodeDown": _Reason("transient", "A node that it needs is down.", "Wait, or ask for other nodes."),
    "FrontEndDown": _Reason("transient", "The machine that would start it is down.", _WAIT),
    "PartitionDown": _Reason(
        "transient", "Its partition takes jobs, but starts none now.", "Wait, or use another partition."
    ),
    "PartitionInactive": _Reason(
        "transient", "Its partition neither takes nor starts jobs now.", "Wait, or use another partition."
    ),
    "Licenses": _Reason("transient", "All licences that it needs are in use.", _WAIT),
    "Cleaning": _Reason(
        "transient", "It was put back into the queue, and its former nodes are being cleaned up.", _WAIT
    ),
    "Prolog": _Reason("transient", "The site's prolog is still running.", _WAIT),
    "Configuring": _Reason("transient", "Its nodes are being started.", _WAIT),
    "SchedDefer": _Reason("transient", "Slurm has deferred scheduling it, as requested.", _WAIT),
    "FedJobLock": _Reason("transient", "The clusters of a federation agree on which of them starts it.", _WAIT),
    "PartitionTimeLimit": _Reason(
        "impossible",
        "It asks for more time than its partition gives.",
        "Ask for a shorter walltime, or use another partition.",
    ),
    "PartitionNodeLimit": _Reason(
        "impossible",
        "It asks for more nodes, or fewer, than its partition gives, or than are in service there.",
        "Ask for another number of nodes, or use another partition.",
    ),
    "PartitionConfig": _Reason(
        "impossible",
        "Its partition, as it is set up, cannot give what it asks for.",
        "Ask for less, or use another partition.",
    ),
    "AccountingPolicy": _Reason("limit", "A limit of its user or account stands against it.", _FEWER),
    "BadConstraints": _Reason(
        "impossible",
        "No nodes have all that it asks for.",
        "Correct what it asks for: cores and memory per node, features (constraint), GPUs.",
    ),
    "InvalidAccount": _Reason("impossible", "Its account is not valid here.", "Name an account that you may use."),
    "AccountNotAllowed": _Reason(
        "impossible", "Its account may not use this partition.", "Name another account or partition."
    ),
    "InvalidQOS": _Reason("impossible", "Its quality of service (QOS) is not valid here.", "Name another QOS."),
    "QOSNotAllowed": _Reason(
        "impossible",
        "Its quality of service (QOS) may not be used with this account or partition.",
        "Name another QOS, account or partition.",
    ),
    "QOSUsageThreshold": _Reason(
        "limit", "Its account has used too much for this quality of service (QOS).", "Wait, or name another QOS."
    ),
    "ReservationDeleted": _NO_RESERVATION,
    "Constraints": _Reason(
        "impossible",
        "No nodes have all that it asks for.",
        "Correct what it asks for: cores and memory per node, features (constraint), GPUs.",
    ),
    "BurstBufferOperation": _Reason(
        "held",
        "Copying its files to or from the burst buffer failed, so Slurm has put it on hold.",
        "Look up what failed with: scontrol show job JOBID ; then submit it again, or ask the site's staff.",
    ),
    "PowerNotAvail": _Reason("transient", "The cluster's limit of electric power is reached.", _WAIT),
    "PowerReserved": _Reason("transient", "Electric power is reserved for other jobs.", _WAIT),
    "MpiPortsBusy": _Reason("transient", "All network ports that are kept for MPI are in use.", _WAIT),
    "MaxPoweredUpNodes": _Reason("transient", "No more nodes may be switched on now.", _WAIT),
    "NvidiaImexChannels": _Reason("transient", "All channels for memory that GPUs share are in use.", _WAIT),
    "BlockMaxError": _Reason("transient", "Nodes that it needs report too many errors.", _STAFF),
    "BlockFreeAction": _Reason("transient", "Nodes that it needs are being freed.", _WAIT),
    "PrologSlurmctld failed, job killed": _Reason("failed", "The site's prolog failed, so it was killed.", _RESUBMIT),
    "ReservationInvalid": _Reason(
        "impossible", "The reservation of nodes that it asks for is not valid.", "Submit it without that reservation."
    ),
    "JobArrayTaskLimit": _Reason("limit", "The job array's own limit of running elements is reached.", _WAIT),
    "MaxMemPerLimit": _Reason("impossible", "It asks for more memory per core or node than is allowed.", _LESS),
    "JobHeldUser": _Reason("held", "It is on hold, as its user wished.", _RELEASE),
    "JobHeldAdmin": _Reason("held", "The site's staff, or Slurm itself, has put it on hold.", _STAFF),
    "JobHoldMaxRequeue": _Reason(
        "held",
        "It was put back into the queue so often that Slurm has put it on hold.",
        f"Find out why its starts fail, then: {_RELEASE[0].lower()}{_RELEASE[1:]}",
    ),
    "SpecialExit": _Reason("held", "Jobs with its exit code are put back into the queue and held.", _RELEASE),
    "RequeueExitHold": _Reason("held", "Jobs with its exit code are put back into the queue and held.", _RELEASE),
    "RequeueHold": _Reason("held", "It was put back into the queue, on hold.", _RELEASE),
    "job requeued in special exit state": _Reason(
        "held", "Jobs with its exit code are put back into the queue and held.", _RELEASE
    ),
    "ResvDelHold": _NO_RESERVATION,
    "launch failed requeued held": _Reason(
        "held", "It could not be started on its nodes; it was put back into the queue, on hold.", _RELEASE
    ),
    "job requeued in held state": _Reason("held", "It was put back into the queue, on hold.", _RELEASE),
    "user env retrieval failed requeued held": _Reason(
        "held",
        "The user's environment could not be read on its node; it was put back into the queue, on hold.",
        _RELEASE,
    ),
    "RequeueExit": _Reason("transient", "Jobs with its exit code are put back into the queue.", _WAIT),
    "Requeued": _Reason("transient", "It was put back into the queue.", _WAIT),
    "Dependency": _Reason("dependency", "It waits for another job, as it was asked to.", _WAIT),
    "DependencyNeverSatisfied": _Reason(
        "dependency",
        "It can never start: a job that it depends on has failed or was cancelled.",
        "Cancel it, correct the other job, and submit both again.",
    ),
    "NonZeroExitCode": _Reason("failed", "Its program ended with an error.", _LOOK),
    "Failed": _Reason("failed", "Its program ended with an error.", _LOOK),
    "RaisedSignal": _Reason("failed", "A signal ended its program: it crashed or was killed.", _LOOK),
    "OutOfMemory": _Reason("failed", "It used more memory than it had asked for.", "Ask for more memory."),
    "TimeLimit": _Reason(
        "failed", "It was killed at its walltime.", "Ask for a longer walltime, or give it less to do."
    ),
    "Timeout": _Reason("failed", "It was killed at its walltime.", "Ask for a longer walltime, or give it less to do."),
    "InactiveLimit": _Reason("failed", "It was stopped: it had been idle for too long.", _LOOK),
    "NodeFail": _Reason("failed", "A node on which it ran has failed.", _RESUBMIT),
    "SystemFailure": _Reason("failed", "Something failed in Slurm, the network or a file system.", _RESUBMIT),
    "JobLaunchFailure": _Reason(
        "failed",
        "It could not be started on its nodes.",
        "Check that its folder, and the folder of its output, exist there; then submit it again.",
    ),
    "LaunchFailed": _Reason(
        "failed",
        "It could not be started on its nodes.",
        "Check that its folder, and the folder of its output, exist there; then submit it again.",
    ),
    "BootFail": _Reason("failed", "Its nodes could not be started.", _RESUBMIT),
    "ReconfigFail": _Reason("failed", "Its nodes could not be set up as it needs them.", _RESUBMIT),
    "Preempted": _Reason(
        "failed",
        "It was stopped, because a more important job needed its nodes.",
        "Submit it again, or use a partition or quality of service (QOS) whose jobs are not stopped.",
    ),
    "Deadline": _Reason(
        "failed", "It could not have ended before the deadline that it was given.", "Submit it with a later deadline."
    ),
    "Cancelled": _Reason("failed", "Somebody cancelled it."),
    "Revoked": _Reason("failed", "Another cluster of a federation started it instead."),
}

_WHAT = {
    "cpu": "cores",
    "node": "nodes",
    "mem": "memory",
    "gres": "GPUs or other devices",
    "wall": "time",
    "billing": "billing units",
    "licen": "licences",
    "energy": "energy",
    "bb": "burst buffer space",
    "job": "jobs",
}
# patterns of spellings, of which the first match counts; `{what}`: the limited resource; `{whose}`: the owner of the
# limit
_FAMILIES: tuple[tuple[re.Pattern[str], _Reason], ...] = (
    (re.compile(r"^reservation.*deleted$"), _NO_RESERVATION),  # it contains the reservation's name
    (
        re.compile(r"burstbuffer"),
        _Reason("transient", "It waits for burst buffer space, or for files being copied there.", _WAIT),
    ),
    (
        re.compile(r"submit"),
        _Reason(
            "limit", "The limit of jobs in the queue is reached for {whose}.", "Wait until some of them have ended."
        ),
    ),
    (
        re.compile(r"qosmin"),
        _Reason(
            "impossible",
            "It asks for less than its quality of service (QOS) is meant for: {what}.",
            "Ask for more, or name another QOS.",
        ),
    ),
    (
        re.compile(r"minutesperjob"),
        _Reason("impossible", "It asks for more {what} times walltime than one job of {whose} may have.", _LESS),
    ),
    (
        re.compile(r"perjob|pernode|wallduration"),
        _Reason("impossible", "It asks for more {what} than one job of {whose} may have.", _LESS),
    ),
    (
        re.compile(r"grp.*runmin|runmins?per"),
        _Reason("limit", "The limit of {what} times remaining time of running jobs is reached for {whose}.", _FEWER),
    ),
    (re.compile(r"grpwall|^(assoc|association|qos)timelimit"), _Reason("limit", f"The run time{_BUDGET}", _REFILL)),
    (re.compile(r"grp.*min"), _Reason("limit", f"The budget of {{what}} times time{_BUDGET}", _REFILL)),
    (
        re.compile(r"jobs?(per|limit|accrue|$)"),
        _Reason("limit", "The limit of running jobs is reached for {whose}.", _FEWER),
    ),
    (
        re.compile(r"^(assoc|qos)grp|^(qos)?max.*per|^(assoc|association|qos)\w*limit$|^assocmax|^qosmax"),
        _Reason("limit", "The limit of {what} in use is reached for {whose}.", _FEWER),
    ),
)
_DETAIL = re.compile(r"[,:(;]")


def advice(reason: str) -> Advice:
    """Explain a reason: why a job is pending, or how it failed.

    `reason`: as Slurm writes it, with its details, if any; or the name of a job's state.
    Returns its meaning and a remedy; for an unknown reason, the text of Slurm.

    Examples
    --------
    >>> advice("QOSMaxCpuPerUserLimit").meaning
    'The limit of cores in use is reached for its user in this quality of service (QOS).'
    >>> advice("ReqNodeNotAvail, UnavailableNodes:n[1-4]").remedy
    'Wait; a shorter walltime may let it start before a planned maintenance.'
    >>> advice("PlanetaryAlignment")
    Advice(meaning="Slurm's reason: PlanetaryAlignment", remedy='')
    """
    known = _find(reason)
    if known is None:
        return Advice(f"Slurm's reason: {reason.strip()}" if _spelling(reason) else "Slurm gives no reason.")
    return Advice(known.meaning, known.remedy)


@lru_cache(maxsize=256)  # asked several times of each job at each look
def kind(reason: str) -> Kind:
    """Return the kind of a reason.

    Examples
    --------
    >>> kind("Resources"), kind("AssocGrpCpuLimit"), kind("OUT_OF_MEMORY"), kind("")
    ('transient', 'limit', 'failed', 'unknown')
    """
    known = _find(reason)
    return "unknown" if known is None else known.kind


def _find(reason: str) -> _Reason | None:
    spelling = _spelling(reason)
    if (known := _BY_SPELLING.get(spelling)) is not None:
        return known
    for pattern, family in _FAMILIES:
        if pattern.search(spelling):
            what, whose = _what(spelling), _whose(spelling)
            return family._replace(meaning=family.meaning.format(what=what, whose=whose))
    return None


def _spelling(reason: str) -> str:
    """Reduce a reason to letters: NODE_FAIL becomes NodeFail, and names of nodes or signals are dropped."""
    letters = re.sub(r"[^a-z]", "", _DETAIL.split(reason.strip().lower().strip("()"), maxsplit=1)[0])
    return "" if letters == "none" else letters


def _what(spelling: str) -> str:
    rest = re.sub(r"limit$|per(user|account|job|node)", "", spelling)
    return next((what for part, what in _WHAT.items() if part in rest), "resources")


def _whose(spelling: str) -> str:
    if "peruser" in spelling:
        return "its user in this quality of service (QOS)"
    if "peraccount" in spelling:
        return "its account in this quality of service (QOS)"
    return "its quality of service (QOS)" if spelling.startswith("qos") else "its user or account"


_BY_SPELLING = {_spelling(reason): explanation for reason, explanation in _KNOWN.items()}
