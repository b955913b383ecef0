"""Options that sbatch refuses together, or without a further option, before it asks a controller.

Found by trying each pair of sixty options with the programs of 22.05 and 26.05; only pairs that both refuse are refused
here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Final

from asa.errors import InputError

from .directives import Directive
from .options import marked

_EXCLUDING: Final = (
    *combinations(sorted(marked("memory")), 2),
    ("cpus-per-gpu", "cpus-per-task"),
    ("core-spec", "thread-spec"),
    *(("ntasks-per-gpu", name) for name in ("gpus-per-task", "gpus-per-socket", "ntasks-per-node")),
)
_ASK_GPUS: Final = frozenset(
    ("gpus-per-node", "gpus-per-task", "gpus-per-socket", "ntasks-per-gpu", "ntasks-per-tres", "tres-per-task")
)
_COUNT_TASKS: Final = frozenset(("ntasks", "nodes", "ntasks-per-node", "extra-node-info", "nodelist"))
_NO_GPU: Final = re.compile(r"(?:gpu:(?:[^,:]*:)?0|(?!gpu)[^,]*)(?:,(?:gpu:(?:[^,:]*:)?0|(?!gpu)[^,]*))*")
_MANY: Final = 1 << 40
_HINT: Final = "sbatch would refuse it, too."


def refuse_together(given: Mapping[str, Directive]) -> None:
    """Refuse options of one job that sbatch refuses in combination, or that lack another option.

    Raises `InputError`, with the place of one of them.
    """
    for first, second in _EXCLUDING:
        if first in given and second in given:
            _refuse(given[second], f"cannot be together with --{first}")
    counts_gpus = bool(_value(given, "gpus").strip("0")) or not _NO_GPU.fullmatch(_value(given, "gres"))
    if _says(given, "mem-per-gpu") and not counts_gpus and _ASK_GPUS.isdisjoint(given):
        _refuse(given["mem-per-gpu"], "is memory of GPUs that it does not ask for")
    if _COUNT_TASKS.isdisjoint(given):
        for name in ("ntasks-per-gpu", "ntasks-per-tres"):
            if name in given and not counts_gpus and "gpus-per-node" not in given:
                _refuse(given[name], "counts tasks of GPUs that it does not ask for")
        if _says(given, "gpus-per-task") and "gpus" not in given:
            _refuse(given["gpus-per-task"], "needs --ntasks or --gpus")
    if "gpus-per-socket" in given and {"sockets-per-node", "extra-node-info"}.isdisjoint(given):
        _refuse(given["gpus-per-socket"], "needs --sockets-per-node")
    if _value(given, "distribution").lower() == "arbitrary" and {"nodelist", "nodefile"}.isdisjoint(given):
        _refuse(given["distribution"], "needs --nodelist or --nodefile")
    _compare_gpus(given)


def _compare_gpus(given: Mapping[str, Directive]) -> None:
    """Compare plain numbers of GPUs, of the job, of nodes and of tasks."""
    gpus, of_node, of_task = (_number(given, name) for name in ("gpus", "gpus-per-node", "gpus-per-task"))
    if not gpus or not _NO_GPU.fullmatch(_value(given, "gres")):
        return
    if gpus < min(_number(given, "nodes"), _number(given, "ntasks") or _MANY):
        _refuse(given["gpus"], f"is fewer than {given['nodes']}")
    for name, count, all_of in (("gpus-per-node", of_node, "nodes"), ("gpus-per-task", of_task, "ntasks")):
        wanted = _number(given, all_of)
        if count and gpus % count:
            _refuse(given["gpus"], f"is no multiple of {given[name]}")
        if count and wanted and gpus != count * wanted:
            _refuse(given["gpus"], f"is not what {given[name]} and {given[all_of]} come to")


def _refuse(directive: Directive, why: str) -> None:
    raise InputError(f"{directive} {why}", where=directive.where, hint=_HINT)


def _value(given: Mapping[str, Directive], name: str) -> str:
    return (given[name].value or "") if name in given else ""


def _number(given: Mapping[str, Directive], name: str) -> int:
    """Return a plain number; 0 if the value is none."""
    text = _value(given, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _says(given: Mapping[str, Directive], name: str) -> bool:
    """Whether an option is given, with a value other than 0."""
    return bool(_value(given, name).strip("0"))
