"""A stage's further options of sbatch: which are allowed, and how each is passed to slurmrestd.

sbatch gets them unchanged. Options that asa sets itself are refused here: of two values for one option only the last
would count, and the job would not be the planned one.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

from asa.errors import InputError, SubmitRejectedError
from asa.requests import SIZES, marked
from asa.requests.options import KNOWN, OPTIONS, SbatchOption
from asa.units import parse_memory

from .link import SlurmJob

Keys = Mapping[str, Callable[[str], dict[str, Any]]]
"""By option: a function from its value, empty if it has none, to keys of slurmrestd's job."""
Values = Mapping[str, Callable[[str], Any]]
"""By option: a function that writes its value in JSON; the table of options has the key."""

_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(?:=([^\0\n\ud800-\udfff]*))?")  # all bytes are UTF-8
_GPUS_OF_A_TASK = re.compile(r"gres[/:]gpu(?:[:=][A-Za-z_]\w*)?(?:[:=](\d+))?(?=,|$)")
_KIND_AND_COUNT = re.compile(r"([A-Za-z_][^:,]*)(?::(\d+))?|(\d+)")
_MIB: Final = 1 << 20
_LIMIT: Final = "SLURM_RLIMIT_"
_BINDS_GPUS: Final = 42  # from this version on (24.11) sbatch itself sets how GPUs are bound to tasks

_OURS: Final[Mapping[str, str]] = {
    **{option.name: option.instead for option in OPTIONS.values() if option.instead},
    **dict.fromkeys(("help", "usage", "version"), "Leave it out."),
}


def left_open(job: SlurmJob) -> frozenset[str]:
    """Return the options that asa leaves to a job's own options: those per node, and typed resources."""
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
    """Exclude some nodes for a job, besides those that its options exclude.

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
    """Return the keys for slurmrestd of options that are given as names and values.

    Raises `SubmitRejectedError`: this version has no key for an option, or cannot express its value.

    Examples
    --------
    >>> keys = keys_since_40(42, lambda number: number)
    >>> rest_keys([("exclusive", None), ("nice", "10")], keys, "v0.0.42", "align")
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
    """Merge the values of two options with the same key; if they cannot be added, the second counts."""
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
    """Return the variables that sbatch itself, not a daemon of Slurm, sets for a job with these options.

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
            # the only hint that slurmrestd supports
            values |= {"SLURM_HINT": value or "", "SLURM_THREADS_PER_CORE": "1"}
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
"""With any of these options, sbatch drops ``--hint``."""


def variables_of_steps(environment: Mapping[str, str], options: Iterable[str]) -> dict[str, str]:
    """Add the variables with which sbatch passes options on to a job's steps and nodes.

    sbatch sets them in its own environment, which these jobs do not get. ``U`` marks a limit that ``--propagate``
    names.

    Examples
    --------
    >>> variables_of_steps({"A": "1"}, ["--hint=nomultithread", "--open-mode=append"])
    {'A': '1', 'SLURM_HINT': 'nomultithread', 'SLURM_OPEN_MODE': 'a'}
    >>> variables_of_steps({"SLURM_RLIMIT_AS": "7", "SLURM_RLIMIT_CPU": "8"}, ["--propagate=AS"])
    {'SLURM_RLIMIT_AS': 'U7'}
    """
    variables = dict(environment)
    given = {name: value for name, _, value in (option.removeprefix("--").partition("=") for option in options)}
    for name, value in given.items():
        if name == "hint" and not _BEFORE_A_HINT.isdisjoint(given):
            continue
        if name in _OF_STEPS and value:
            variables[_OF_STEPS[name]] = value[:1] if name == "open-mode" else value
        elif name == "propagate":
            which = (value or "ALL").upper().split(",")
            limits = {limit: variables.pop(limit) for limit in [*variables] if limit.startswith(_LIMIT)}
            kept = [limit for limit in limits if "ALL" in which or limit.removeprefix(_LIMIT) in which]
            variables |= {limit: f"U{limits[limit]}" for limit in kept}
    return variables


def keys_of_38() -> Keys:
    """Return the keys for Slurm 22.05, not all of which are in its published description.

    It has no ``--exclusive`` without a value. It has no ``--no-requeue`` either: that version would do the opposite.
    """
    return _keys(  # `begin` stays text: a number is refused, and a date would be in slurmrestd's time zone
        38,
        {
            "exclusive": _one_of({"user": "user", "mcs": "mcs"}),
            "mem": _mib,
            "mem-per-cpu": _mib,
            "nodes": lambda value: int(value) if value.isdigit() else _filled(value),
            "open-mode": _one_of({"append": "append", "truncate": "truncate"}),
            "signal": _signal_38,
            "time": int,
        },
    )


def keys_since_40(version: int, number: Callable[[int], Any]) -> Keys:
    """Return the keys for Slurm 23.11 and later; `version`: the N of API v0.0.N, `number`: writes a number."""
    values = _values_of_40(number)
    further: dict[str, Callable[[str], dict[str, Any]]] = {"signal": partial(_lead_of_signal, number)}
    if version >= _BINDS_GPUS:
        values |= {"gpus-per-task": _gpus_of_each_task}
        further |= {
            "cpus-per-task": lambda value: {"tres_per_task": f"cpu={int(value)}"},
            "gpus-per-task": lambda value: _bound(count for _, count in _kinds_and_counts(value)),
            "tres-per-task": _counted_of_each_task,
        }
    return _keys(version, values, further)


def _keys(version: int, values: Values, further: Keys | None = None) -> Keys:
    """Return the keys of a version, from the table of options.

    `values`: writers of values that are not text, numbers or switches.
    `further`: writers of options that need other keys.
    """
    values, further = {**_VALUES, **values}, further or {}

    def said(option: SbatchOption) -> Callable[[str], dict[str, Any]]:
        key, write, more = option.key_in(version), values.get(option.name) or _usual(option), further.get(option.name)
        return lambda value: {key: write(value)} | (more(value) if more is not None else {})

    return {option.name: said(option) for option in OPTIONS.values() if option.key_in(version)}


def _usual(option: SbatchOption) -> Callable[[str], Any]:
    if option.takes != "=":
        return _one_of({"": True})
    return int if "number" in option.marks else _filled


def _values_of_40(number: Callable[[int], Any]) -> dict[str, Callable[[str], Any]]:
    return {
        "begin": lambda value: number(int(value.removeprefix("uts"))),
        "consolidate-segments": _one_of({"": ["CONSOLIDATE_SEGMENTS"]}),
        "cpus-per-gpu": lambda value: f"gres/gpu:{int(value)}",
        "exclude": _listed,
        "exclusive": _one_of({"": ["none"], "user": ["user"], "mcs": ["mcs"]}),
        **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"), partial(_each, "gres/gpu:")),
        "gres": partial(_each, "gres/"),
        "gres-flags": _one_of(
            {"enforce-binding": ["GRES_BINDING_ENFORCED"], "disable-binding": ["GRES_BINDING_DISABLED"]}
        ),
        "mail-type": _mail,
        "mem": lambda value: number(_mib(value)),
        "mem-per-cpu": lambda value: number(_mib(value)),
        "mem-per-gpu": lambda value: f"gres/gpu:{_mib(value)}",
        "no-kill": _one_of({"": False}),
        "no-requeue": _one_of({"": False}),
        "nodelist": _listed,
        "oom-kill-step": lambda value: int(value or 1),
        "open-mode": _one_of({"append": ["APPEND"], "truncate": ["TRUNCATE"]}),
        "oversubscribe": _one_of({"": ["oversubscribe"]}),
        "segment": lambda value: number(int(value)),
        "signal": lambda value: _parts_of_signal(value)[2],
        "spread-job": _one_of({"": ["SPREAD_JOB"]}),
        "spread-segments": _one_of({"": ["SPREAD_SEGMENTS"]}),
        "switches": lambda value: number(int(value)),
        "time": lambda value: number(int(value)),
        "use-min-nodes": _one_of({"": ["PREFER_MINIMUM_NODE_COUNT"]}),
    }


def _lead_of_signal(number: Callable[[int], Any], value: str) -> dict[str, Any]:
    parts = _parts_of_signal(value)
    flags = {"kill_warning_flags": ["BATCH_JOB"]} if parts[1] else {}
    return {"kill_warning_delay": number(int(parts[3] or 60)), **flags}  # the default of sbatch


def _parts_of_signal(value: str) -> re.Match[str]:
    if (match := re.fullmatch(r"(B:)?([A-Za-z0-9]+)(?:@(\d+))?", value)) is None:
        raise ValueError(value)
    return match


def _gpus_of_each_task(value: str) -> str:
    return ",".join(f"gres/gpu{kind}={count}" for kind, count in reversed(_kinds_and_counts(value)))


def _kinds_and_counts(value: str) -> list[tuple[str, int]]:
    matches = [_KIND_AND_COUNT.fullmatch(part) for part in _filled(value).split(",")]
    if not all(matches):
        raise ValueError(value)
    return [(f":{match[1]}" if match[1] else "", int(match[2] or match[3] or 1)) for match in matches if match]


def _counted_of_each_task(value: str) -> dict[str, Any]:
    cpus = [int(count) for count in re.findall(r"(?:^|,)cpu[:=](\d+)", value)]
    gpus = [int(count or 1) for count in _GPUS_OF_A_TASK.findall(value)]
    return ({"cpus_per_task": cpus[0]} if cpus else {}) | _bound(gpus)


def _bound(gpus: Iterable[int]) -> dict[str, str]:
    """Return the variable that binds each task to its GPUs, of every type."""
    return {"tres_bind": f"gres/gpu:per_task:{count}"} if (count := sum(gpus)) else {}


def _filled(value: str) -> str:
    if not value:
        raise ValueError("an option without its value")
    return value


def _mib(value: str) -> int:
    return math.ceil(parse_memory(value) / _MIB)


def _listed(value: str) -> list[str]:
    """Split a list of nodes; a range in brackets stays in one piece."""
    return re.findall(r"(?:\[[^\]]*(?:\]|$)|[^,\[])+", _filled(value))


def _each(before: str, value: str) -> str:
    """Return a number of GPUs, or of each of several types, as a generic resource."""
    return ",".join(f"{before}{part}" for part in _filled(value).split(","))


def _one_of(words: Mapping[str, object]) -> Callable[[str], Any]:
    def said(given: str) -> object:
        if given not in words:
            raise ValueError(given)
        return words[given]

    return said


def _signal_38(value: str) -> str:
    if ":" in value:  # the daemon refuses such a value
        raise ValueError(value)
    return _filled(value)


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

_VALUES: Final[Values] = {
    "hint": _one_of({"nomultithread": 1}),  # the only hint that is a mere request for resources
    "nice": lambda value: int(value or 100),  # the default of sbatch without a value
    "tmp": _mib,
}
"""Writers of values that are not text, numbers or switches, for all versions."""
