"""Reads slurmrestd's answers tolerantly, since each version spells values differently.

A number may be a number, a text, or an object with `set`, `infinite` and `number`; a text may be null; a list may be a
text. Unreadable values count as missing. An unknown state is passed on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..link import LAST_S, SlurmNode, SlurmPartition, SlurmRecord, count_gpus, read_number
from ..states import ENDED, WAITING, base_of, is_over

_MIB = 1024**2
_NOT_SET = frozenset({4294967294.0, 4294967295.0, 2.0**64})
_BASE_STATES = frozenset({
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
})  # fmt: skip
_ENDED = ENDED | {"COMPLETING"}
_NOWHERE = frozenset({"", "None assigned", "(null)"})


def number(value: Any) -> float | None:
    """Read a number; infinity for unlimited, None if it is not set."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return math.inf
        return number(value.get("number")) if value.get("set", True) else None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - not a number
        return None
    return float(value) if abs(value) < 2**80 else math.inf


def whole(value: Any) -> int | None:
    """Read an integer; None if it is not set or unlimited."""
    amount = number(value)
    return int(amount) if amount is not None and math.isfinite(amount) else None


def text(value: Any) -> str:
    """Read a text; empty for null and any other type."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


def listed(value: Any) -> list[Any]:
    """Read a list; a single value becomes a list of one, null an empty list."""
    if isinstance(value, list):
        return value
    return [] if value is None or value in ("", {}) else [value]


def nested(document: Any, *keys: str) -> Any:
    """Return a value inside nested objects; None if there is none."""
    for key in keys:
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document


def record(job: Mapping[str, Any]) -> SlurmRecord | None:
    """Read a job from slurmctld; None if it has no number."""
    number_ = whole(job.get("job_id"))
    if number_ is None or number_ <= 0:
        return None
    start_s, end_s = _time(job.get("start_time")), _time(job.get("end_time"))
    has_nodes = text(job.get("nodes")) not in _NOWHERE
    states = base_of(
        states_of(job.get("job_state")),
        ran=has_nodes,
        has_ended=is_over(
            start_s,
            end_s,
            _minutes(job.get("time_limit")),
            has_failed=any(_ending(job.get("exit_code"), ())),
        ),
    )
    waiting = not WAITING.isdisjoint(states)
    ended = not waiting and not _ENDED.isdisjoint(states)
    ran = not waiting and has_nodes
    exit_code, signal = _ending(job.get("exit_code"), states) if ended else (None, None)
    return SlurmRecord(
        job_id=str(number_),
        name=text(job.get("name")),
        user=text(job.get("user_name")) or text(job.get("user_id")),
        states=states,
        submit_s=_time(job.get("submit_time")) or 0.0,
        reason=_reason(job.get("state_reason")),
        eligible_s=_time(job.get("eligible_time")),
        accrue_s=_time(job.get("accrue_time")),
        start_s=start_s if ran else None,
        end_s=end_s if ended else None,
        expected_start_s=start_s if waiting else None,
        limit_s=_minutes(job.get("time_limit")),
        cores=_count(job.get("cpus")) or 1,
        nodes=_count(job.get("node_count")),
        partition=text(job.get("partition")),
        exit_code=exit_code,
        signal=signal,
        restarts=_count(job.get("restart_cnt")),
        dependency=text(job.get("dependency")),
        comment=text(job.get("comment")),
        node_list=text(job.get("nodes")) if ran else "",
        **read_number(
            _number_of(job.get("array_job_id"), job.get("array_task_id"), job.get("array_task_string")), waits=waiting
        ),
    )


def accounted(job: Mapping[str, Any]) -> SlurmRecord | None:
    """Read a job from slurmdbd; None if it has no number, or is incomplete.

    For about a second after a short job, slurmdbd knows only its end: the name is "allocation", and there is no
    partition.
    """
    number_ = whole(job.get("job_id"))
    if number_ is None or number_ <= 0 or (job.get("name") == "allocation" and not text(job.get("partition"))):
        return None
    times = {name: _time(nested(job, "time", name)) for name in ("submission", "eligible", "start", "end")}
    has_nodes = text(job.get("nodes")) not in _NOWHERE
    said = states_of(nested(job, "state", "current"))
    states = base_of(said, ran=has_nodes, has_ended=times["end"] is not None)  # slurmdbd has no end for jobs that run
    waiting = not WAITING.isdisjoint(states)
    ended = not waiting and not _ENDED.isdisjoint(states)
    ran = not waiting and has_nodes
    exit_code, signal = _ending(job.get("exit_code"), states) if ended else (None, None)
    return SlurmRecord(
        job_id=str(number_),
        name=text(job.get("name")),
        user=text(job.get("user")) or text(nested(job, "association", "user")),
        states=states,
        submit_s=times["submission"] or 0.0,
        reason=_reason(nested(job, "state", "reason")) if waiting else "",  # the last reason for which it was pending
        eligible_s=times["eligible"],
        start_s=times["start"] if ran else None,
        end_s=times["end"] if ended else None,
        limit_s=_minutes(nested(job, "time", "limit")),
        cores=_count(nested(job, "required", "CPUs")) or 1,
        nodes=_count(job.get("allocation_nodes")),
        partition=text(job.get("partition")),
        exit_code=exit_code,
        signal=signal,
        restarts=_count(job.get("restart_cnt")),
        comment=text(nested(job, "comment", "job")),
        node_list=text(job.get("nodes")) if ran else "",
        **read_number(_number_of(*(nested(job, "array", key) for key in ("job_id", "task_id", "task"))), waits=waiting),
    )


def _number_of(head: Any, task: Any, tasks: Any) -> str:
    """Return the array and the elements of a record, as squeue prints them; empty if it is of no array."""
    if not (number_ := _count(head)):
        return ""
    number, several = whole(task), text(tasks)
    if several in _NOWHERE:
        return f"{number_}_{'' if number is None or float(number) in _NOT_SET else number}"
    return f"{number_}_[{several}]"


def partition(entry: Mapping[str, Any]) -> SlurmPartition:
    """Read a partition; the object is flat in v0.0.38, and nested later."""
    states = words(entry.get("state")) or words(nested(entry, "partition", "state"))
    flags = {flag.upper() for flag in words(entry.get("flags"))}
    return SlurmPartition(
        name=text(entry.get("name")),
        is_default="DEFAULT" in flags,
        is_up=not states or "UP" in states,
        max_walltime_s=_minutes(_first(entry, ("max_time_limit",), ("maximums", "time"))),
        max_nodes=_limit(_first(entry, ("maximum_nodes_per_job",), ("maximums", "nodes"))),
        nodes=_count(_first(entry, ("total_nodes",), ("nodes", "total"))),
        cores=_count(_first(entry, ("total_cpus",), ("cpus", "total"))),
        accounts=_names(_first(entry, ("allowed_accounts",), ("accounts", "allowed"))),
        barred_accounts=_names(_first(entry, ("denied_accounts",), ("accounts", "deny"))),
        is_exclusive=_is_exclusive(entry),
        quality=text(_first(entry, ("qos_char",), ("qos", "assigned"))),
    )


def _is_exclusive(entry: Mapping[str, Any]) -> bool:
    """Whether jobs of a partition share no node; v0.0.38 does not report it.

    v0.0.45 has a key for it. In earlier versions the number of jobs that may share a node is 0 then; in v0.0.45 it is 0
    for every partition.
    """
    if word := text(nested(entry, "partition", "exclusive")):
        return word == "NODE"
    return whole(nested(entry, "maximums", "oversubscribe", "jobs")) == 0


def _names(value: Any) -> tuple[str, ...]:
    """Read names that are separated by commas, or a list of names."""
    return tuple(name for part in words(value) for name in part.split(",") if name)


def node(entry: Mapping[str, Any]) -> SlurmNode:
    """Read a node."""
    return SlurmNode(
        name=text(entry.get("name")),
        cores=_count(entry.get("effective_cpus")) or _count(entry.get("cpus")),
        memory_bytes=_count(entry.get("real_memory")) * _MIB,
        states=tuple(word.upper() for word in (*words(entry.get("state")), *words(entry.get("state_flags")))),
        partitions=words(entry.get("partitions")),
        gpus=count_gpus(text(entry.get("gres"))),
    )


def words(value: Any) -> tuple[str, ...]:
    """Read a list of texts."""
    return tuple(text(word) for word in listed(value) if text(word))


def states_of(value: Any) -> tuple[str, ...]:
    """Read states: in upper case, the base state first."""
    states = [state.upper() for state in words(value)]
    return tuple(sorted(states, key=lambda state: state not in _BASE_STATES))


def _first(entry: Mapping[str, Any], *paths: tuple[str, ...]) -> Any:
    """Return the first of several values that exists."""
    values: Iterable[Any] = (nested(entry, *path) for path in paths)
    return next((value for value in values if value is not None), None)


def _time(value: Any) -> float | None:
    """Read a time; 0 and Slurm's marks for never count as none, even if they are marked as set."""
    amount = number(value)
    return amount if amount is not None and 0 < amount < LAST_S and amount not in _NOT_SET else None


def _minutes(value: Any) -> float | None:
    amount = number(value)
    limited = amount is not None and math.isfinite(amount) and amount > 0 and amount not in _NOT_SET
    return amount * 60.0 if limited and amount is not None else None


def _limit(value: Any) -> int | None:
    amount = number(value)
    if amount is None or not math.isfinite(amount) or amount <= 0 or amount in _NOT_SET:
        return None
    return int(amount)


def _count(value: Any) -> int:
    """Read a count; the minimum of a range such as ``2-4``."""
    if isinstance(value, str):
        value = value.partition("-")[0]
    return _limit(value) or 0


def _reason(value: Any) -> str:
    reason = text(value)
    return "" if reason == "None" else reason


def _ending(value: Any, states: tuple[str, ...]) -> tuple[int | None, int | None]:
    """Read how a script ended: exit code and signal, from an object or from a wait status.

    A code of 0 counts only for a job that completed: slurmdbd of 22.05 reports it for every job, and slurmctld for
    cancelled ones.
    """
    if isinstance(value, Mapping):
        signal = whole(nested(value, "signal", "id")) or whole(nested(value, "signal", "signal_id")) or None
        code = whole(value.get("return_code"))
    elif (status := whole(value)) is None:
        return None, None
    else:
        code, signal = status >> 8, (status & 0x7F) or None
    if code == 0 and (signal or not {"COMPLETED", "COMPLETING"}.issuperset(states)):
        code = None
    return code, signal
