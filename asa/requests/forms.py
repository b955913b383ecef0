"""Values that sbatch accepts for options that asa does not interpret.

Found with the programs of Slurm 22.05, 24.11 and 26.05, which stop at a wrong value before they ask a controller. Only
values that all of them refuse are refused here; a controller may still refuse more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from asa.core.patterns import pattern
from asa.errors import InputError

from .values import memory_bytes, walltime_s

_REFUSED: Final = "sbatch would refuse it, too."
_MAX_PRIORITY: Final = 4_294_967_293
_MAX_LEAD_S: Final = 65535

_SIGNAL_NAMES: Final = "hup int quit abrt kill alrm term usr1 usr2 urg cont stop tstp ttin ttou chld pipe xcpu"
_SIGNAL: Final = pattern(
    rf"(?:[br]{{1,2}}:?)?(?:(?:sig)?(?:{_SIGNAL_NAMES.replace(' ', '|')})|\s*[+-]?(?!0+\s*(?:@|$))\d+)\s*(?:@(\d*))?"
)
_MAIL_NAMES: Final = (
    "all none array_tasks begin end fail requeue stage_out invalid_depend time_limit time_limit_90 time_limit_80 "
    "time_limit_50"
)
_MAILS: Final = frozenset(_MAIL_NAMES.split())
_MOMENT: Final = pattern(
    r"\s*t?(?:(?:now(?:\s*[+-]\s*\d+\s*(?:(?:second|minute|hour|day|week)s?)?)?"
    r"|midnight|noon|elevenses|fika|teatime|today|tomorrow"
    r"|(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?:\s*[ap]m)?"
    r"|\d{4}-(?:0\d|1[0-2])-[0-3]\d|(?:0?[1-9]|1[0-2])[/.](?:3[01]|[0-2]?\d)(?:[/.]\d\d)?"
    r"|(?:0?[1-9]|1[0-2])[0-3]\d(?:\d\d)?)\s*t?)+"
)
_FREQUENCY: Final = re.compile(r"\+?\d.*|lo.*|me.*|hi.*")
_GOVERNOR: Final = re.compile(r"(?:co|on|pe|po|sc|us).*")
_SAMPLED: Final = re.compile(r"(?:.*(?:task|energy|network|filesystem)=)?\s*[+-]?\d.*|[+-].+=\s*\d.*")
_PROFILES: Final = frozenset({"all", "none", "energy", "task", "lustre", "network"})
_GRES_FLAGS: Final = frozenset({"enforce-binding", "disable-binding", "multiple-tasks-per-sharing"})
_MEMORY_BINDING: Final = pattern(
    r"q|quiet|v|verbose|sort|nosort|p|prefer|no|none|rank|local|(?:(?:map|mask)_mem[:=])?(?:0x[\da-f]+|[\da-f]+)(?:\*\d+)?"
)
_EXTRA: Final = re.compile(r"(?:\*.*|\s*\+?\d*[km]?(?:-\d+[km]?)?)?")

_POSITIVE: Final = r"\s*\+?0*[1-9]\d*"
_NUMBER: Final = r"(?:\s*\+?\d+)?"
_PATTERNS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "cores-per-socket", "ntasks-per-core", "ntasks-per-socket", "ntasks-per-tres", "sockets-per-node",
            "thread-spec", "threads-per-core",
        ),
        _POSITIVE,
    ),
    **dict.fromkeys(("core-spec", "segment", "resv-ports"), _NUMBER),
    "distribution": r"(?:(?:\*|block|cyclic)?(?::(?:\*|block|cyclic|fcyclic)?){0,2}|arbitrary|(?:no)?pack)"
    r"(?:,(?:no)?pack)*|plane=0*[1-9]\d*",
    "exclusive": "|user|mcs|topo|exclusive",
    "get-user-env": r"-?\d*[sl]?",
    "gpu-bind": r"(?:verbose,)?(?:c.*|n.*|(?:single|per_task):.*|(?:map|mask)_gpu:(?:0x|[\da-f,*])*)",
    "gpu-freq": r"(?:(?:(?:memory=)?(?:low|medium|high|highm1|\d+)|verbose)?,)*"
    r"(?:(?:memory=)?(?:low|medium|high|highm1|\d+)|verbose|(?<=,))",
    "kill-on-invalid-dep": "yes|no",
    "no-kill": "|off|no|set",
    "oom-kill-step": "|0*[01]",
    "open-mode": "[at].*",
    "power": "(?:level|,)*",
    "requeue": "|expedite",
    "switches": rf"{_POSITIVE}(?:@.*)?",
    "wait-all-nodes": r"(?:\s*\+?0*[01])?",
}  # fmt: skip


def _mail_type(text: str) -> bool:
    words = [word.rstrip() for word in text.split(",") if word]
    return not _MAILS.isdisjoint(words)  # sbatch ignores other words without a message


def _signal(text: str) -> bool:
    match = _SIGNAL.fullmatch(text)
    return match is not None and int(match[1] or 0) <= _MAX_LEAD_S


def _acctg_freq(text: str) -> bool:
    words = [word for word in text.split(",") if word]
    return all(word != "-1" and _SAMPLED.fullmatch(word) for word in words)


def _cpu_freq(text: str) -> bool:
    span, _, governor = text.partition(":")
    least, dash, most = span.partition("-")
    if ":" in text and not (dash and _GOVERNOR.fullmatch(governor)):
        return False
    return bool(_FREQUENCY.fullmatch(least) or _GOVERNOR.fullmatch(least)) and bool(
        not dash or _FREQUENCY.fullmatch(most)
    )


def _priority(text: str) -> bool:
    match = re.match(r"\s*([+-]?)(\d+)", text)
    return match is None or (int(match[2]) <= _MAX_PRIORITY and not (match[1] == "-" and int(match[2])))


def _gres_flags(text: str) -> bool:
    words = {word for word in text.split(",") if word}
    return words <= _GRES_FLAGS and not {"enforce-binding", "disable-binding"} <= words


def _mem_bind(text: str) -> bool:
    return bool(text) and all(map(_MEMORY_BINDING.fullmatch, text.split(",")))


def _mem_update(text: str) -> bool:
    margin, at, delay = text.partition("@")
    return bool(re.fullmatch(r"\s*\+?\d+", margin)) and bool(at) and _read_by(walltime_s)(delay)


def _read_by(parse: Callable[[str], float]) -> Callable[[str], bool]:
    def takes(text: str) -> bool:
        try:
            parse(text)
        except InputError:
            return False
        return True

    return takes


_LONG_NUMBER: Final = re.compile(r"\d{100}")  # more than any that sbatch, or Python, reads
_TAKES: Final[Mapping[str, Callable[[str], object]]] = {
    **{name: partial(re.fullmatch, pattern) for name, pattern in _PATTERNS.items()},
    "acctg-freq": _acctg_freq,
    "begin": _MOMENT.fullmatch,
    "cpu-freq": _cpu_freq,
    "deadline": _MOMENT.fullmatch,
    "delay-boot": _read_by(walltime_s),
    "extra-node-info": lambda text: all(map(_EXTRA.fullmatch, text.split(":")[:3])),
    "gres-flags": _gres_flags,
    "mail-type": _mail_type,
    "mem-bind": _mem_bind,
    "mem-update": _mem_update,
    "priority": _priority,
    "profile": lambda text: any(word in text for word in _PROFILES),
    "signal": _signal,
    "time-min": _read_by(walltime_s),
    "tmp": _read_by(lambda text: memory_bytes(text.lstrip())),
}
_KEEP_CASE: Final = frozenset({"gpu-freq"})
_HINTS: Final[Mapping[str, str]] = {
    "begin": "Write 16:00, now+1hour, or 2030-01-31T12:00.",
    "deadline": "Write 16:00, now+1hour, or 2030-01-31T12:00.",
    "distribution": "Write block, cyclic, block:cyclic, plane=4, or arbitrary.",
    "mail-type": "Write END, FAIL, BEGIN, ALL, or several with commas.",
    "open-mode": "Write append or truncate.",
    "signal": "Write the signal, and how many seconds before the end: USR1@60, or B:USR1@60.",
    "time-min": "Write minutes, or hours:minutes:seconds, or days-hours.",
}


def takes(name: str, value: str | None) -> bool:
    """Whether sbatch accepts a value of an option; options that are read elsewhere are not checked.

    Examples
    --------
    >>> takes("mail-type", "end,FAIL"), takes("mail-type", "success"), takes("signal", "B:USR1@60")
    (True, False, True)
    """
    if value is not None and _LONG_NUMBER.search(value):
        return False
    takes_it = _TAKES.get(name)
    return value is None or takes_it is None or bool(takes_it(value if name in _KEEP_CASE else value.lower()))


def hint_of(name: str, why: str = _REFUSED) -> str:
    """Return what to write instead of a refused value."""
    return f"{why} {_HINTS.get(name, '')}".rstrip()
