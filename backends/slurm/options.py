"""A stage's further options of sbatch: which are allowed, and how each is passed to slurmrestd.

sbatch gets them unchanged. Options that asa sets itself are refused here: of two values for one option only the last
would count, and the job would not be the planned one.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from asa.errors import InputError, SubmitRejectedError
from asa.requests import SIZES, marked
from asa.requests.options import KNOWN, OPTIONS
from asa.units import parse_memory

from .link import SlurmJob

Keys = Mapping[str, Callable[[str], dict[str, Any]]]
"""How to say each option to slurmrestd: from its value, which is empty if it has none, to keys of the job."""

_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(?:=([^\0\n\ud800-\udfff]*))?")  # no byte that is not UTF-8
_GPUS_OF_A_TASK = re.compile(r"gres[/:]gpu(?:[:=][A-Za-z_]\w*)?(?:[:=](\d+))?(?=,|$)")
_KIND_AND_COUNT = re.compile(r"([A-Za-z_][^:,]*)(?::(\d+))?|(\d+)")
_MIB: Final = 1 << 20
_LIMIT: Final = "SLURM_RLIMIT_"

_OURS: Final[Mapping[str, str]] = {
    **{option.name: option.instead for option in OPTIONS.values() if option.instead},
    **dict.fromkeys(("help", "usage", "version"), "Leave it out."),
}


def left_open(job: SlurmJob) -> frozenset[str]:
    """Name what asa does not set for a job, so that its options may: what is per node, or of a type."""
    if not job.cores:
        return SIZES
    memory = set() if job.memory_bytes else {"mem", "mem-per-cpu"}
    return frozenset(memory | (set() if job.nodes else {"nodes"}) | (set() if job.gpus else {"gpus"}))


def checked(options: Iterable[str], job: str, free: Collection[str] = frozenset()) -> list[tuple[str, str | None]]:
    """Split options into names and values.

    Raises `SubmitRejectedError`: one has another form, or is set by asa itself, perhaps abbreviated: sbatch also takes
    ``--part``.

    Examples
    --------
    >>> checked(["--qos=high", "--exclusive"], "align")
    [('qos', 'high'), ('exclusive', None)]
    """
    return [_checked(option, job, free) for option in options]


def _checked(option: str, job: str, free: Collection[str]) -> tuple[str, str | None]:
    match = _OPTION.fullmatch(option)
    where = f"job {job!r}"
    if match is None:
        raise SubmitRejectedError(
            f"{option!a} is no option as it must be written", where=where, hint="Write --name=value, or --name alone."
        )
    name, value = match[1], match[2]
    if name in free and not (name == "gpus" and (value or "").isdigit() and "ntasks" not in free):
        return name, value
    for ours, hint in _OURS.items():
        if name == ours or (ours.startswith(name) and name not in KNOWN):
            raise SubmitRejectedError(f"--{name} is not for `options`", where=where, hint=hint)
    return name, value


def without_nodes(options: tuple[str, ...], avoid: Collection[str]) -> tuple[str, ...]:
    """Exclude some nodes for a job, in addition to those that its options exclude.

    Examples
    --------
    >>> without_nodes(("--exclude=n1", "--nice=10"), ["n7", "n1"])
    ('--nice=10', '--exclude=n1,n7')
    """
    if not avoid:
        return options
    own = [option for option in options if option.startswith("--exclude=")]
    names = [name for option in own for name in [option.partition("=")[2]] if name]
    names += [name for name in avoid if name not in ",".join(names).split(",")]
    return (*(option for option in options if option not in own), f"--exclude={','.join(names)}")


def rest_keys(options: Iterable[tuple[str, str | None]], keys: Keys, version: str, job: str) -> dict[str, Any]:
    """Write options, given as names and values, for slurmrestd.

    Raises `SubmitRejectedError`: this version has no key for one of them, or not for its value.

    Examples
    --------
    >>> rest_keys([("exclusive", None), ("nice", "10")], keys_of_40(lambda number: number), "v0.0.42", "align")
    {'shared': ['none'], 'nice': 10}
    """
    said: dict[str, Any] = {}
    for name, value in options:
        if name not in keys:
            raise _no_word(name, value, version, job)
        try:
            fields = keys[name](value or "")
        except (ValueError, InputError) as error:
            raise _no_word(name, value, version, job) from error
        for key, word in fields.items():
            said[key] = _both(key, said[key], word) if key in said else word
    return said


def _both(key: str, one: Any, other: Any) -> Any:
    """Say by one key what two options ask for; of what cannot be added the latter counts."""
    if key == "flags":
        return [*one, *other]
    return f"{one},{other}" if key.startswith("tres_per_") and isinstance(one, str) else other


def _no_word(name: str, value: str | None, version: str, job: str) -> SubmitRejectedError:
    text = f"--{name}" if value is None else f"--{name}={value}"
    variable = f"SBATCH_{name.upper().replace('-', '_')}"
    source = f" Here the variable {variable} asks for it: unset it." if variable in os.environ else ""
    return SubmitRejectedError(
        f"the REST API {version} has no word for {text}",
        where=f"job {job!r}",
        hint=f"Take the backend slurm-cli, which passes on every option, or leave it out.{source}",
    )


def variables(options: Iterable[str], job: str, free: Collection[str] = frozenset()) -> dict[str, str]:
    """Return the variables that sbatch itself, not Slurm's daemons, sets for a job with such options.

    Examples
    --------
    >>> variables(["--ntasks-per-node=4", "--distribution=plane=2"], "align")
    {'SLURM_NTASKS_PER_NODE': '4', 'SLURM_DISTRIBUTION': 'plane', 'SLURM_DIST_PLANESIZE': '2'}
    """
    values: dict[str, str] = {}
    for name, value in checked(options, job, free):
        if name == "distribution":
            how, _, size = (value or "").partition("=")
            values |= {"SLURM_DISTRIBUTION": how} | ({"SLURM_DIST_PLANESIZE": size} if size else {})
        elif name == "hint":
            values |= {"SLURM_HINT": value or "", "SLURM_THREADS_PER_CORE": "1"}  # the one hint that is said by REST
        elif name in marked("step"):
            values[f"SLURM_{name.replace('-', '_').upper()}"] = value or ""
    return values


_OF_STEPS: Final[Mapping[str, str]] = {
    "acctg-freq": "SLURM_ACCTG_FREQ",
    "container": "SLURM_CONTAINER",
    "cpu-freq": "SLURM_CPU_FREQ_REQ",
    "hint": "SLURM_HINT",
    "open-mode": "SLURM_OPEN_MODE",
    "profile": "SLURM_PROFILE",
}


_BEFORE_A_HINT: Final = frozenset({"extra-node-info", "ntasks-per-core", "threads-per-core"})
"""Options beside which sbatch drops ``--hint``."""


def variables_of_steps(environment: Mapping[str, str], options: Iterable[str]) -> dict[str, str]:
    """Add to a job's variables those in which sbatch passes options on that only the job's steps and nodes read.

    sbatch sets them in its own environment, which these jobs do not get. ``U`` marks a limit that ``--propagate``
    names.

    Examples
    --------
    >>> variables_of_steps({"A": "1"}, ["--hint=nomultithread", "--open-mode=append"])
    {'A': '1', 'SLURM_HINT': 'nomultithread', 'SLURM_OPEN_MODE': 'a'}
    >>> variables_of_steps({"SLURM_RLIMIT_AS": "7", "SLURM_RLIMIT_CPU": "8"}, ["--propagate=AS"])
    {'SLURM_RLIMIT_AS': 'U7'}
    """
    found = dict(environment)
    given = {name: value for name, _, value in (option.removeprefix("--").partition("=") for option in options)}
    for name, value in given.items():
        if name == "hint" and not _BEFORE_A_HINT.isdisjoint(given):
            continue
        if name in _OF_STEPS and value:
            found[_OF_STEPS[name]] = value[:1] if name == "open-mode" else value
        elif name == "propagate":
            which = (value or "ALL").upper().split(",")
            limits = {limit: found.pop(limit) for limit in [*found] if limit.startswith(_LIMIT)}
            kept = [limit for limit in limits if "ALL" in which or limit.removeprefix(_LIMIT) in which]
            found |= {limit: f"U{limits[limit]}" for limit in kept}
    return found


def keys_of_38() -> Keys:
    """Return the keys of Slurm 22.05, not all of which are in its published description.

    It takes no ``--exclusive`` without a value, and no ``--no-requeue``: it would do the opposite.
    """
    return {
        **_COMMON,
        "bb": _text("burst_buffer"),
        "cores-per-socket": _count("cores_per_socket"),
        "cpus-per-gpu": _text("cpus_per_gpu"),
        "exclude": _text("exclude_nodes"),
        "exclusive": _one_of("exclusive", {"user": "user", "mcs": "mcs"}),
        "gpus": _text("gpus"),
        "gpus-per-node": _text("gpus_per_node"),
        "gpus-per-socket": _text("gpus_per_socket"),
        "gpus-per-task": _text("gpus_per_task"),
        "gres": _text("gres"),
        "gres-flags": _text("gres_flags"),
        "mail-type": _text("mail_type"),
        "mem": lambda value: {"memory_per_node": _mib(value)},
        "mem-per-cpu": lambda value: {"memory_per_cpu": _mib(value)},
        "nodes": lambda value: {"nodes": int(value) if value.isdigit() else _filled(value)},
        "nodelist": _text("nodelist"),
        "open-mode": _one_of("open_mode", {"append": "append", "truncate": "truncate"}),
        "oversubscribe": _flag("oversubscribe", value=True),
        "requeue": _flag("requeue", value=True),
        "signal": _signal_38,
        "spread-job": _flag("spread_job", value=True),
    }


def keys_of_40(number: Callable[[int], Any]) -> Keys:
    """Give the words of Slurm 23.11 and later."""

    def signal(value: str) -> dict[str, Any]:
        match = re.fullmatch(r"(B:)?([A-Za-z0-9]+)(?:@(\d+))?", value)
        if match is None:
            raise ValueError(value)
        flags = {"kill_warning_flags": ["BATCH_JOB"]} if match[1] else {}
        delay = number(int(match[3] or 60))  # sbatch's own default
        return {"kill_warning_signal": match[2], "kill_warning_delay": delay, **flags}

    return {
        **_COMMON,
        "bb": _text("burst_buffer"),
        "contiguous": _flag("contiguous", value=True),
        "cpus-per-gpu": lambda value: {"cpus_per_tres": f"gres/gpu:{int(value)}"},
        "exclude": _list("excluded_nodes"),
        "exclusive": _one_of("shared", {"": ["none"], "user": ["user"], "mcs": ["mcs"]}),
        "gpus": _gpus("tres_per_job"),
        "gpus-per-node": _gpus("tres_per_node"),
        "gpus-per-socket": _gpus("tres_per_socket"),
        "gpus-per-task": _gpus("tres_per_task"),
        "gres": lambda value: {"tres_per_node": ",".join(f"gres/{part}" for part in _filled(value).split(","))},
        "mail-type": lambda value: {"mail_type": _mail(value)},
        "mem": lambda value: {"memory_per_node": number(_mib(value))},
        "mem-per-cpu": lambda value: {"memory_per_cpu": number(_mib(value))},
        "mem-per-gpu": lambda value: {"memory_per_tres": f"gres/gpu:{_mib(value)}"},
        "network": _text("network"),
        "gres-flags": _one_of("flags", _GRES_FLAGS),
        "spread-job": _flag("flags", value=["SPREAD_JOB"]),
        "no-requeue": _flag("requeue", value=False),
        "ntasks-per-gpu": lambda value: {"ntasks_per_tres": int(value)},
        "tres-per-task": _text("tres_per_task"),
        "use-min-nodes": _flag("flags", value=["PREFER_MINIMUM_NODE_COUNT"]),
        "nodelist": _list("required_nodes"),
        "nodes": _text("nodes"),
        "open-mode": _one_of("open_mode", {"append": ["APPEND"], "truncate": ["TRUNCATE"]}),
        "overcommit": _flag("overcommit", value=True),
        "oversubscribe": _flag("shared", value=["oversubscribe"]),
        "reboot": _flag("reboot", value=True),
        "requeue": _flag("requeue", value=True),
        "no-kill": _flag("kill_on_node_fail", value=False),
        "signal": signal,
        "switches": lambda value: {"required_switches": number(int(value))},
    }


def keys_of_42(number: Callable[[int], Any]) -> Keys:
    """Give the words of Slurm 24.11 and later, whose sbatch says as well how GPUs are bound to tasks."""

    def of_each_task(value: str) -> dict[str, Any]:
        cpus = [int(count) for count in re.findall(r"(?:^|,)cpu[:=](\d+)", _filled(value))]
        gpus = [
            int(count or 1) for count in re.findall(r"gres[/:]gpu(?:[:=][A-Za-z_]\w*)?(?:[:=](\d+))?(?=,|$)", value)
        ]
        return {"tres_per_task": value} | ({"cpus_per_task": cpus[0]} if cpus else {}) | _bound(gpus)

    def gpus_of_each_task(value: str) -> dict[str, Any]:
        found = [_KIND_AND_COUNT.fullmatch(part) for part in _filled(value).split(",")]
        if not all(found):
            raise ValueError(value)
        parts = [(f":{match[1]}" if match[1] else "", int(match[2] or match[3] or 1)) for match in found if match]
        text = ",".join(f"gres/gpu{kind}={count}" for kind, count in reversed(parts))
        return {"tres_per_task": text} | _bound(count for _, count in parts)

    return {
        **keys_of_40(number),
        "cpus-per-task": lambda value: {"cpus_per_task": int(value), "tres_per_task": f"cpu={int(value)}"},
        "gpus-per-task": gpus_of_each_task,
        "tres-per-task": of_each_task,
    }


def keys_of_45(number: Callable[[int], Any]) -> Keys:
    """Give the words of Slurm 26.05."""
    return {
        **keys_of_42(number),
        "consolidate-segments": _flag("flags", value=["CONSOLIDATE_SEGMENTS"]),
        "container-type": _text("container_type"),
        "cores-per-socket": _count("cores_per_socket"),
        "oom-kill-step": lambda value: {"oom_kill_step": int(value or 1)},
        "segment": lambda value: {"segment_size": number(int(value))},
        "spread-segments": _flag("flags", value=["SPREAD_SEGMENTS"]),
    }


def _bound(gpus: Iterable[int]) -> dict[str, str]:
    """Bind each task to its GPUs, of every type."""
    return {"tres_bind": f"gres/gpu:per_task:{count}"} if (count := sum(gpus)) else {}


def _filled(value: str) -> str:
    if not value:
        raise ValueError("an option without its value")
    return value


def _mib(value: str) -> int:
    return math.ceil(parse_memory(value) / _MIB)


def _text(key: str) -> Callable[[str], dict[str, Any]]:
    return lambda value: {key: _filled(value)}


def _count(key: str) -> Callable[[str], dict[str, Any]]:
    return lambda value: {key: int(value)}


def _list(key: str) -> Callable[[str], dict[str, Any]]:
    """Write a list of nodes; a range in brackets stays in one piece."""
    return lambda value: {key: re.findall(r"(?:\[[^\]]*(?:\]|$)|[^,\[])+", _filled(value))}


def _gpus(key: str) -> Callable[[str], dict[str, Any]]:
    """Write a number of GPUs, or of each of some types."""
    return lambda value: {key: ",".join(f"gres/gpu:{part}" for part in _filled(value).split(","))}


def _flag(key: str, *, value: object) -> Callable[[str], dict[str, Any]]:
    def said(given: str) -> dict[str, Any]:
        if given:
            raise ValueError(given)
        return {key: value}

    return said


def _one_of(key: str, words: Mapping[str, object]) -> Callable[[str], dict[str, Any]]:
    def said(given: str) -> dict[str, Any]:
        if given not in words:
            raise ValueError(given)
        return {key: words[given]}

    return said


def _nice(value: str) -> dict[str, Any]:
    return {"nice": int(value or 100)}  # as sbatch takes it without a value


def _hint(value: str) -> dict[str, Any]:
    """Say the one hint that is a plain demand for resources."""
    if value != "nomultithread":
        raise ValueError(value)
    return {"threads_per_core": 1}


def _signal_38(value: str) -> dict[str, Any]:
    if ":" in value:  # refused by the daemon
        raise ValueError(value)
    return {"signal": _filled(value)}


def _mail(value: str) -> list[str]:
    events: list[str] = []
    for word in _filled(value).upper().split(","):
        if word not in _MAIL:
            raise ValueError(word)
        events += _MAIL[word]
    return list(dict.fromkeys(events))


_MAIL: Final[Mapping[str, list[str]]] = {
    "NONE": [],
    "ALL": ["BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT", "INVALID_DEPENDENCY"],
    "INVALID_DEPEND": ["INVALID_DEPENDENCY"],
    "TIME_LIMIT": ["TIME=100%"],
    **{f"TIME_LIMIT_{share}": [f"TIME={share}%"] for share in (90, 80, 50)},
    **{word: [word] for word in ("BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT", "ARRAY_TASKS")},
}

_GRES_FLAGS: Final[Mapping[str, list[str]]] = {
    "enforce-binding": ["GRES_BINDING_ENFORCED"],
    "disable-binding": ["GRES_BINDING_DISABLED"],
}

_COMMON: Final[Keys] = {
    "cluster-constraint": _text("cluster_constraint"),
    "constraint": _text("constraints"),
    "cpus-per-task": _count("cpus_per_task"),
    "ntasks": _count("tasks"),
    "core-spec": _count("core_specification"),
    "cpu-freq": _text("cpu_frequency"),
    "distribution": _text("distribution"),
    "hint": _hint,
    "licenses": _text("licenses"),
    "mail-user": _text("mail_user"),
    "mcs-label": _text("mcs_label"),
    "mincpus": _count("minimum_cpus_per_node"),
    "nice": _nice,
    "ntasks-per-core": _count("tasks_per_core"),
    "ntasks-per-node": _count("tasks_per_node"),
    "ntasks-per-socket": _count("tasks_per_socket"),
    "prefer": _text("prefer"),
    "qos": _text("qos"),
    "reservation": _text("reservation"),
    "sockets-per-node": _count("sockets_per_node"),
    "thread-spec": _count("thread_specification"),
    "threads-per-core": _count("threads_per_core"),
    "tmp": lambda value: {"temporary_disk_per_node": _mib(value)},
    "wckey": _text("wckey"),
}

OWN_KEYS: Final[Keys] = {
    "account": _text("account"),
    "array": _text("array"),
    "chdir": _text("current_working_directory"),
    "comment": _text("comment"),
    "dependency": _text("dependency"),
    "error": _text("standard_error"),
    "hold": _flag("hold", value=True),
    "job-name": _text("name"),
    "output": _text("standard_output"),
    "partition": _text("partition"),
}
"""How to write what only asa sets for a job."""
