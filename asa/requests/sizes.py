"""The totals that options of sbatch amount to, in the units of a stage.

A stage counts cores, memory and GPUs for its whole job; sbatch also counts them for each node, task, core or GPU. These
are converted where possible. The others stay as options of sbatch, which also apply to a job of another shape.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from asa.core.late import dataclass
from asa.core.patterns import pattern
from asa.errors import InputError
from asa.shapes import doubled

from .directives import Directive
from .options import marked
from .values import memory_bytes, node_count

_Value = TypeVar("_Value")
Remark = Callable[[str, str], None]
"""Receives a sentence for the user, and the place that it is about."""

SIZES: Final = marked("size")
"""Options of sbatch that give a job's size, and are read here."""

COUNTED: Final = frozenset({"cores", "cpus_per_task", "memory_bytes", "gpus"})
"""Fields of a stage that these options amount to."""

_FROM_TO: Final = pattern(r"(\d+)-(\d+)")

_CPUS: Final = re.compile(r"cpu[:=](\d+)")
_GPU: Final = pattern(r"gpu(?::(?P<type>[A-Za-z_][^:,=()]*))?(?:[:=](?P<count>\d+))?(?:\([^)]*\))?")


@dataclass(frozen=True, slots=True)
class Needs:
    """The request of one job of a script, or of one element of its array."""

    tasks: int  # how many tasks, of `cpus_per_task` cores each
    cpus_per_task: int = 1
    memory_bytes: int = 0
    gpus: int = 0
    options: tuple[str, ...] = ()  # the part that stays in options of sbatch
    widths: tuple[int, ...] = ()  # possible numbers of cores, if the number of nodes may vary
    nodes: int = 0  # lower bound of the nodes, if it is given
    of_each_task: int = 1  # cores of a task, as given
    min_gpus: int = 0  # lower bound for the whole job, including options that stay as they are
    min_memory_bytes: int = 0  # likewise

    @property
    def cores(self) -> int:
        """Cores of all tasks."""
        return self.tasks * self.cpus_per_task

    def fields(self) -> dict[str, int]:
        """Return the corresponding fields of a stage."""
        return {
            "cores": self.cores,
            "cpus_per_task": self.cpus_per_task,
            "memory_bytes": self.memory_bytes,
            "gpus": self.gpus,
        }


def read_needs(given: Mapping[str, Directive], remark: Remark) -> Needs:
    """Read a job's request.

    Raises `InputError`: sbatch refuses a value, or it cannot be converted.
    """
    layout = _TaskLayout(given)
    gpus, gpu_options = _gpus(given, layout)
    cpus, cpu_options = _cpus_per_task(given, layout, remark)
    tasks = layout.tasks
    spans = layout.spans
    if spans:
        note = f"of {spans[0]} to {spans[-1]} nodes it has {spans[0]}, unless a strategy chooses its width"
        remark(note, given["nodes"].where)
    elif layout.varies and "ntasks" not in given:
        note = f"of a number of nodes that may vary the least is taken: {layout.nodes}"
        remark(note, given["nodes"].where)
    counted = set() if cpu_options else {"cpus-per-gpu", "mincpus"}
    is_widened = any(name in given for name in marked("widening") - counted)
    memory, memory_options = _memory(given, layout, tasks * cpus, is_widened=is_widened)
    if "exclusive" in given and not given["exclusive"].value:
        remark("--exclusive: Slurm gives whole nodes, asa counts the cores", given["exclusive"].where)
    if "overcommit" in given:
        remark("--overcommit: Slurm gives fewer cores than asa counts", given["overcommit"].where)
    widths = tuple(nodes * (tasks // spans[0]) * cpus for nodes in spans)
    options = (*layout.options, *gpu_options, *cpu_options, *memory_options)
    return Needs(
        tasks,
        cpus,
        memory,
        gpus,
        options,
        widths,
        layout.nodes,
        _of_each_task(given) or 1,
        layout.gpus,
        memory or _min_memory(given, layout, tasks * cpus),
    )


class _TaskLayout:
    """The distribution of a job's tasks over nodes."""

    def __init__(self, given: Mapping[str, Directive]) -> None:
        self.nodes = parsed(node_count, given["nodes"]) if "nodes" in given else 0
        self.varies = "nodes" in given and not re.fullmatch(r"\d+[kK]?", text_of(given, "nodes"))
        self._per_node = _count(given, "ntasks-per-node")
        self.gpus = _all_gpus(given, max(1, self.nodes))
        self.tasks = self._tasks(given)
        self.nodes = min(self.nodes, self.tasks)
        self.gpus = _all_gpus(given, max(1, self.nodes))
        per_task = given.get("gpus-per-task")
        if per_task is not None and "gpus" not in given:
            self.gpus = self.tasks * sum(_listed_gpus(per_task))
        elif not self.gpus and "ntasks-per-gpu" in given:
            self.gpus = math.ceil(self.tasks / _count(given, "ntasks-per-gpu"))
        self._text = text_of(given, "nodes")
        self.spans = self._spans(given)

    def _spans(self, given: Mapping[str, Directive]) -> list[int]:
        """Return the possible numbers of nodes, doubled each time, if all nodes have equally many tasks; else none."""
        match = _FROM_TO.fullmatch(self._text)
        if match is None or int(match[2]) <= int(match[1]) or not marked("spreading").isdisjoint(given):
            return []
        return doubled(int(match[1]), int(match[2]))

    def _tasks(self, given: Mapping[str, Directive]) -> int:
        if tasks := _count(given, "ntasks"):
            return tasks
        if self.gpus and "ntasks-per-gpu" in given:
            return self.gpus * _count(given, "ntasks-per-gpu")
        if "gpus" in given and "gpus-per-task" in given:
            return max(1, self.gpus // max(1, sum(_listed_gpus(given["gpus-per-task"]))))
        if self.varies or not self.nodes:
            return max(1, self.nodes) * (self._per_node or 1)
        parts = [_count(given, name) for name in ("sockets-per-node", "cores-per-socket", "threads-per-core")]
        return self.nodes * (self._per_node or math.prod(part or 1 for part in parts))

    @property
    def known_nodes(self) -> int:
        """Return the number of nodes, if it is known and each has equally many tasks; else 0."""
        if self.tasks == 1:
            return 1
        per_node = self._per_node
        if self.nodes and not self.varies and self.tasks % self.nodes == 0:
            return self.nodes if per_node in (0, self.tasks // self.nodes) else 0
        return self.tasks // per_node if per_node and not self.nodes and self.tasks % per_node == 0 else 0

    @property
    def options(self) -> list[str]:
        """The options that place tasks on nodes.

        A stage's `nodes` would mean whole nodes with a task on each core, which no script asks for.
        """
        if self.spans:  # as many nodes as the tasks need
            return [f"--ntasks-per-node={self._per_node or 1}"]
        if self.tasks == 1 and not self._per_node:
            return []
        per_node = self._per_node or (self.tasks // self.known_nodes if self.known_nodes else 0)
        together = [f"--ntasks-per-node={per_node}"] if per_node else []
        return together if self.known_nodes or not self.nodes else [*together, f"--nodes={self._text}"]


def _gpus(given: Mapping[str, Directive], layout: _TaskLayout) -> tuple[int, list[str]]:
    """Return the GPUs of the whole job, and the options for GPUs that are passed on."""
    gres = text_of(given, "gres")
    words = [name for name in ("gpus", "gpus-per-node", "gpus-per-task", "tres-per-task") if name in given]
    is_on_one = layout.known_nodes == 1
    if not words and not gres:
        return (layout.gpus if "ntasks-per-gpu" in given else 0), []
    if words == ["gpus"] and not gres:
        if text_of(given, "gpus").isdigit():
            return layout.gpus, []
        _listed_gpus(given["gpus"])
        if is_on_one:  # the REST API of 22.05 can express this, too
            return 0, [f"--gres={','.join(f'gpu:{part}' for part in text_of(given, 'gpus').split(','))}"]
    if is_on_one and not gres and words == ["gpus-per-node"] and text_of(given, "gpus-per-node").isdigit():
        return layout.gpus, []
    if is_on_one and not words and re.fullmatch(r"gpu(?:[:=]\d+)?", gres):
        return layout.gpus, []
    counted = "gpus" in words and text_of(given, "gpus").isdigit()
    passed = [name for name in (*words, "gres") if name in given and not (name == "gpus" and counted)]
    options = [_without_cpus(given[name]) for name in passed]
    return layout.gpus if counted else 0, [option for option in options if option]


def _without_cpus(directive: Directive) -> str:
    """Remove the cores of each task, which are counted elsewhere; empty if nothing is left."""
    if directive.name != "tres-per-task":
        return str(directive)
    others = [part for part in (directive.value or "").split(",") if not _CPUS.fullmatch(part)]
    return f"--{directive.name}={','.join(others)}" if others else ""


def _all_gpus(given: Mapping[str, Directive], nodes: int) -> int:
    """Count the GPUs of every type that are requested for the job or for each node."""
    if "gpus" in given:
        return sum(_listed_gpus(given["gpus"]))
    if "gpus-per-node" in given:
        return sum(_listed_gpus(given["gpus-per-node"])) * nodes
    matches = [_GPU.fullmatch(part) for part in text_of(given, "gres").split(",")]
    return sum(int(match["count"] or 1) for match in matches if match) * nodes


def _listed_gpus(directive: Directive) -> list[int]:
    """Read numbers of GPUs, with or without types: ``4``, ``a100:2``, ``a100:1,v100:2``, or a type, which means one."""
    counts = []
    for part in (directive.value or "").split(","):
        match = re.fullmatch(r"(?:([A-Za-z_][^:]*)(?::(\d+))?)|(\d+)", part)
        if match is None:
            raise InputError(f"{directive} is no number", where=directive.where, hint="Write 4, or a type: a100:4.")
        counts.append(int(match[2] or match[3] or 1))
    return counts


def _cpus_per_task(given: Mapping[str, Directive], layout: _TaskLayout, remark: Remark) -> tuple[int, list[str]]:
    least = _count(given, "mincpus")
    if "cpus-per-gpu" not in given:
        cpus = _of_each_task(given) or 1
        # 24.11 ignores it if a number of tasks is given, and asa always gives one
        return (max(cpus, least), []) if layout.tasks == 1 or not least else (cpus, [str(given["mincpus"])])
    if layout.tasks == 1 and layout.gpus:
        return max(layout.gpus * _count(given, "cpus-per-gpu"), least), []
    note = f"{given['cpus-per-gpu']}: Slurm gives cores by the number of GPUs, asa counts one a task"
    remark(note, given["cpus-per-gpu"].where)
    return 1, [str(given[name]) for name in ("cpus-per-gpu", "mincpus") if name in given]


def _of_each_task(given: Mapping[str, Directive]) -> int:
    """Read how many cores a task has; 0 if that is not given."""
    parts = text_of(given, "tres-per-task").split(",")
    listed = next((int(match[1]) for part in parts if (match := _CPUS.fullmatch(part))), 0)
    return _count(given, "cpus-per-task") or listed


def _memory(
    given: Mapping[str, Directive], layout: _TaskLayout, cores: int, *, is_widened: bool
) -> tuple[int, list[str]]:
    """Return the memory of the whole job, or else the option to pass on: all of a node, or memory per node."""
    counted = layout.tasks == 1 or not is_widened
    for name, times in (
        ("mem", layout.known_nodes if counted and not layout.spans else 0),
        ("mem-per-cpu", 0 if is_widened or layout.spans else cores),
        ("mem-per-gpu", layout.gpus if layout.known_nodes == 1 and counted else 0),
    ):
        if name in given:
            amount = parsed(memory_bytes, given[name])
            return (round(amount * times), []) if amount * times else (0, [str(given[name])])
    return 0, []


def _min_memory(given: Mapping[str, Directive], layout: _TaskLayout, cores: int) -> int:
    """Compute the lower bound of a job's memory, on the smallest possible number of nodes."""
    cores = 0 if "overcommit" in given else cores
    for name, times in (("mem", max(1, layout.nodes)), ("mem-per-cpu", cores), ("mem-per-gpu", layout.gpus)):
        if name in given:
            return round(parsed(memory_bytes, given[name]) * times)
    return 0


def text_of(given: Mapping[str, Directive], name: str) -> str:
    """Return an option's value; empty if the option is not given or has no value."""
    return (given[name].value or "") if name in given else ""


def parsed(parse: Callable[[str], _Value], directive: Directive) -> _Value:
    """Read an option's value; an error names the option's place."""
    try:
        return parse(directive.value or "")
    except InputError as error:
        raise InputError(error.message, where=directive.where, hint=error.hint) from error


def _count(given: Mapping[str, Directive], name: str) -> int:
    """Read a number that is at least 1; return 0 if it is missing."""
    if name not in given:
        return 0
    text = text_of(given, name)
    if not text.isascii() or not text.isdigit() or not int(text):
        raise InputError(f"{given[name]} is no number", where=given[name].where, hint="Write a number, at least 1.")
    return int(text)
