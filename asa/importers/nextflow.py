"""Makes a model of a workflow from a Nextflow trace: the resources of its processes, and their order.

A process becomes a stage with the cores that its tasks need to run in parallel. The model runs nothing: it is for `asa
compare`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import networkx as nx

from asa.errors import InputError
from asa.preparation import Preparation, preparation_of
from asa.units import format_duration, parse_memory
from asa.workflow import Stage, Workflow

from .base import Imported, ImportNotes, Names, direct, generous_walltime_s, lpt_makespan_s, quantile, read_text
from .graphs import Drawing, read_dot, read_mermaid
from .nextflow_config import CONFIG, ProcessCpus, read_cpus

_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(?<!\d)(\d++(?:\.\d++)?)\s*+(ms|[smhd])")
_COMPLETED: Final = {"COMPLETED", "CACHED", ""}
_MAX_PROCESSES = 1000  # the order is found by comparing each pair
_MIB: Final = 1 << 20
_MODULE = re.compile(r"[\w.+/-]+")
_LONG_NUMBER = re.compile(r"\d{100}")


@dataclass(frozen=True, slots=True)
class _TracedTask:
    run_s: float
    cpus: int
    memory_bytes: int
    cpu_share: float
    submit_s: float | None
    complete_s: float | None
    container: str
    modules: tuple[str, ...]


@dataclass(slots=True)
class _Process:
    """The completed tasks of a process."""

    name: str
    tasks: list[_TracedTask] = field(default_factory=list)


def import_nextflow(
    path: Path, *, dag: Path | None = None, config: Path | None = None, cores: int | None = None, name: str = ""
) -> Imported:
    """Make a model of a workflow from a Nextflow trace.

    `dag`: the output of ``-with-dag``, as ``.dot``, ``.mmd`` or ``.html``. Without it the order follows from the times:
    a process comes after every process with a task that had ended when its own first task was submitted. This gives all
    real dependencies, and some needless ones. `config`: the ``nextflow.config`` of the run, by default the one next to
    the trace. It gives the CPUs of tasks if the trace does not; if tasks used more, their rounded use counts. Labels of
    processes are read from a ``.nextflow.log`` next to it. `cores`: upper bound of a stage's cores, but at least what
    one task needs; tasks that do not fit at the same time run in turn. Returns the workflow, and notes about the
    translation. Raises `InputError`, with file and line: the file is no trace, or lacks a column.
    """
    notes = ImportNotes()
    config = config or next((file for file in [path.parent / CONFIG] if file.is_file()), None)
    processes = _processes(path, notes, _Cpus(config, read_cpus(config) if config else ProcessCpus(), notes))
    if len(processes) > _MAX_PROCESSES:
        hint = "Each of them would be a stage. Is `name` in trace.fields what Nextflow writes?"
        message = f"has {len(processes)} processes, more than the {_MAX_PROCESSES} that are read"
        raise InputError(message, where=str(path), hint=hint)
    names = Names()
    called = {process: names.take(wished) for process, wished in _short_names(processes).items()}
    befores = _by_time(processes, path) if dag is None else _by_drawing(processes, dag, notes)
    depths = _depths(befores)
    after = direct({called[name]: {called[before] for before in before_all} for name, before_all in befores.items()})
    stages: list[Stage] = []
    comments: dict[str, list[str]] = {}
    for process in sorted(processes.values(), key=lambda p: depths[p.name]):
        stage_name = called[process.name]
        stages.append(_stage(stage_name, process, after[stage_name], cores))
        comments[stage_name] = _comments(process)
    if dag is None:
        notes.add("the order is a guess from the times: what -with-dag writes, given as --dag, knows better")
    notes.add("walltimes are 1.5 times the expected run times: check them")
    notes.add("Nextflow lets tasks of one process begin before those of another ended; a stage waits for all of them")
    notes.add("it is a model, which runs nothing: `asa compare` shows what the strategies make of it")
    return Imported(
        Workflow(name or path.stem, stages),
        notes=notes.sentences(),
        header=[f"From {path} by `asa import nextflow`: a model, for `asa compare`."],
        comments=comments,
    )


@dataclass(frozen=True, slots=True)
class _Cpus:
    """Finds the CPUs of tasks if the trace does not say how many they asked for."""

    config: Path | None
    asked: ProcessCpus
    notes: ImportNotes

    def of(self, process: str, share: float) -> int:
        """Return the CPUs that a process asks for, or the rounded use of a task (percent of a CPU) if it is more."""
        used, asked = math.floor(share / 100 + 0.5), self.asked.of(process)
        if asked and asked >= used:
            self.notes.add(f"no CPUs in the trace: they are what {self.config} says", process)
        elif used:
            self.notes.add("no CPUs in the trace: they are what tasks used (%cpu), rounded; check them", process)
        else:
            self.notes.add("no CPUs in the trace: tasks are taken to have one; add `cpus` to trace.fields", process)
        return max(asked, used, 1)


def _processes(path: Path, notes: ImportNotes, cpus: _Cpus) -> dict[str, _Process]:
    lines = read_text(path).splitlines()
    columns = lines[0].split("\t") if lines else []
    if not {"name", "process"} & set(columns):
        hint = "Make it with `nextflow run -with-trace`: columns are parted by tabs, and `name` or `process` is one."
        raise InputError("is no trace of Nextflow", where=f"{path}:1", hint=hint)
    if not {"realtime", "duration"} & set(columns):
        raise InputError("has no run times", where=f"{path}:1", hint="Add `realtime` to trace.fields.")
    if "realtime" not in columns:
        notes.add("no column `realtime`: the durations count, with the time in the queue")
    processes: dict[str, _Process] = {}
    for where, row in _rows(path, lines):
        if row.get("status", "") not in _COMPLETED:
            notes.add("tasks that did not complete are left out", where)
            continue
        if row.get("status") == "CACHED" and row.get("realtime"):
            notes.add("some tasks are from an earlier run, with its times")
        process = row.get("process") or _without_tag(row.get("name", ""))
        if not (row.get("realtime") or row.get("duration")):
            notes.add("some tasks have no run time, and count as 0 s", process)
        processes.setdefault(process, _Process(process)).tasks.append(_task(row, where, process, cpus))
    if not processes:
        raise InputError("has no task that completed", where=str(path), hint="Give the trace of a run with some.")
    return processes


def _without_tag(name: str) -> str:
    """Return the process of a task, without the tag that may follow in brackets."""
    return name.partition("(")[0].rstrip() if name.endswith(")") else name


def _rows(path: Path, lines: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    columns = lines[0].split("\t")
    for number, line in enumerate(lines[1:], start=2):
        cells = [cell.strip() for cell in line.split("\t")]
        where = f"{path}:{number}"
        if line.strip() and len(cells) != len(columns):
            raise InputError(f"has {len(cells)} columns of {len(columns)}", where=where, hint="Was it cut short?")
        if _LONG_NUMBER.search(line):
            raise InputError("has a number of too many digits", where=where, hint="Nextflow writes none of them.")
        if line.strip():
            yield where, {column: "" if cell == "-" else cell for column, cell in zip(columns, cells, strict=True)}


def _task(row: Mapping[str, str], where: str, process: str, cpus: _Cpus) -> _TracedTask:
    share = _share(row.get("%cpu") or "0", where)
    return _TracedTask(
        run_s=_span_s(row.get("realtime") or row.get("duration") or "0", where),
        cpus=_whole(row["cpus"], where) if row.get("cpus") else cpus.of(process, share),
        memory_bytes=_bytes(row.get("memory") or row.get("peak_rss") or row.get("rss") or "0", where),
        cpu_share=share,
        submit_s=_moment_s(row.get("submit") or row.get("start") or "", where),
        complete_s=_moment_s(row.get("complete", ""), where) or _end_s(row, where),
        container=row.get("container", ""),
        modules=tuple(_MODULE.findall(row.get("module", ""))),
    )


def _end_s(row: Mapping[str, str], where: str) -> float | None:
    begin_s = _moment_s(row.get("submit", ""), where)
    return None if begin_s is None else begin_s + _span_s(row.get("duration") or row.get("realtime") or "0", where)


def _span_s(text: str, where: str) -> float:
    """Read a duration as Nextflow writes it: ``1h 2m 3s``, ``345ms``, or a bare number of milliseconds."""
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text) / 1000.0
    if not re.fullmatch(rf"(?:{_SPAN.pattern}\s*)+", text):
        raise InputError(f"{text!r} is no duration", where=where, hint="Nextflow writes 1h 2m 3s, 345ms, or 12345.")
    return sum(float(number) * _UNIT_S[unit] for number, unit in _SPAN.findall(text))


def _bytes(text: str, where: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        return math.ceil(int(text[:-2]) if re.fullmatch(r"\d+ B", text) else parse_memory(text))
    except InputError as error:
        raise InputError(error.message, where=where, hint="Nextflow writes 1.2 GB, or 12345.") from error


def _whole(text: str, where: str) -> int:
    if not text.isdecimal() or not int(text):
        raise InputError(f"{text!r} is no number of CPUs", where=where, hint="At least 1.")
    return int(text)


def _share(text: str, where: str) -> float:
    if not re.fullmatch(r"\d+(?:\.\d+)?%?", text):
        raise InputError(f"{text!r} is no share of CPUs", where=where, hint="Nextflow writes 97.3%.")
    return float(text.rstrip("%"))


def _moment_s(text: str, where: str) -> float | None:
    if not text:
        return None
    if text.isdecimal():
        return int(text) / 1000.0
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()  # only differences matter
    except ValueError as error:
        raise InputError(
            f"{text!r} is no time", where=where, hint="Nextflow writes 2026-01-31 12:00:00.000."
        ) from error


def _short_names(processes: Mapping[str, _Process]) -> dict[str, str]:
    """Leave out the sub-workflows in the names of processes that are unique without them."""
    last = [name.rsplit(":", 1)[-1] for name in processes]
    counts = Counter(last)
    return {name: short if counts[short] == 1 else name for name, short in zip(processes, last, strict=True)}


def _by_time(processes: Mapping[str, _Process], path: Path) -> dict[str, set[str]]:
    spans: dict[str, tuple[float, float]] = {}
    for name, process in processes.items():
        begins = [task.submit_s for task in process.tasks if task.submit_s is not None]
        ends = [task.complete_s for task in process.tasks if task.complete_s is not None]
        if not begins or not ends:
            hint = "Add `submit` and `duration`, or `complete`, to trace.fields; or give --dag."
            raise InputError(f"process {name} has no times, so no order", where=str(path), hint=hint)
        spans[name] = min(begins), min(ends)
    order = sorted(spans, key=lambda name: (spans[name][1], spans[name][0]))
    ranks = {name: index for index, name in enumerate(order)}
    return {name: {before for before in order[: ranks[name]] if spans[before][1] <= spans[name][0]} for name in spans}


def _by_drawing(processes: Mapping[str, _Process], dag: Path, notes: ImportNotes) -> dict[str, set[str]]:
    text = read_text(dag)
    drawing = read_dot(text) if "digraph" in text else read_mermaid(text)
    drawn = _drawn(drawing)
    if not drawn:
        hint = "Make it with `nextflow run -with-dag dag.dot`, or dag.mmd."
        raise InputError("draws no process", where=str(dag), hint=hint)
    match: dict[str, str] = {}
    for node, label in drawn.items():
        alike = [name for name in processes if name == label or name.rsplit(":", 1)[-1] == label.rsplit(":", 1)[-1]]
        exact = [name for name in alike if name == label]
        if len(exact or alike) == 1:
            match[node] = (exact or alike)[0]
    for name in processes:
        if name not in match.values():
            notes.add(f"process {name} is not in the drawing, and comes after nothing", str(dag))
    graph: nx.DiGraph[str] = nx.DiGraph(drawing.edges)
    befores: dict[str, set[str]] = {name: set() for name in processes}
    for node, name in match.items():
        befores[name] |= {match[before] for before in _sources(graph, node, match)} - {name}
    links = nx.DiGraph([(before, name) for name, all_before in befores.items() for before in all_before])
    if not nx.is_directed_acyclic_graph(links):
        raise InputError("has processes that wait for each other", where=str(dag), hint="Leave --dag out.")
    return befores


def _drawn(drawing: Drawing) -> dict[str, str]:
    """Return the labels of the nodes that are processes: in dot such nodes have no shape attribute."""
    return {
        node: attributes["label"]
        for node, attributes in drawing.nodes.items()
        if attributes.get("label") and "shape" not in attributes
    }


def _sources(graph: nx.DiGraph[str], node: str, processes: Mapping[str, str]) -> set[str]:
    """Return the processes before a process, going back through channels and operators."""
    sources: set[str] = set()
    seen: set[str] = set()
    ahead = list(graph.predecessors(node)) if node in graph else []
    while ahead:
        before = ahead.pop()
        if before in seen:
            continue
        seen.add(before)
        if before in processes:
            sources.add(before)
        else:
            ahead += graph.predecessors(before)
    return sources


def _depths(befores: Mapping[str, set[str]]) -> dict[str, int]:
    """Count for each process how many come before it."""
    graph = nx.DiGraph([(before, after) for after, all_before in befores.items() for before in all_before])
    bits = {name: 1 << index for index, name in enumerate(befores)}
    ahead = dict.fromkeys(befores, 0)
    for name in nx.topological_sort(graph):
        for before in befores[name]:
            ahead[name] |= ahead[before] | bits[before]
    return {name: some.bit_count() for name, some in ahead.items()}


def _stage(name: str, process: _Process, after: tuple[str, ...], max_cores: int | None) -> Stage:
    per_task = max(task.cpus for task in process.tasks)
    count = len(process.tasks)
    width = count if max_cores is None else max(1, min(count, max_cores // per_task))
    expected_s = float(max(1, math.ceil(lpt_makespan_s((task.run_s for task in process.tasks), width))))
    memory = max(task.memory_bytes for task in process.tasks) * width
    return Stage(
        name=name,
        cores=width * per_task,
        cpus_per_task=per_task if count > 1 else 1,
        walltime_s=generous_walltime_s(expected_s),
        expected_run_s=expected_s,
        after=after,
        memory_bytes=_MIB * math.ceil(memory / _MIB),
        preparation=_preparation(process, name),
    )


def _preparation(process: _Process, name: str) -> Preparation | None:
    """Return the environment of a process's tasks, if all have the same."""
    images = {task.container for task in process.tasks}
    modules = {task.modules for task in process.tasks}
    commands = {
        "container": images.pop() if len(images) == 1 else "",
        "modules": modules.pop() if len(modules) == 1 else (),
    }
    return preparation_of(commands, where=f"stage {name!r}")


def _comments(process: _Process) -> list[str]:
    runs = [task.run_s for task in process.tasks]
    shares = [task.cpu_share for task in process.tasks]
    middle, high, most = (format_duration(quantile(runs, share)) for share in (0.5, 0.9, 1.0))
    cpus = max(task.cpus for task in process.tasks)
    counted = f"{len(runs)} tasks" if len(runs) > 1 else "1 task"
    lines = [f"{process.name}: {counted} of {cpus} CPUs; run times p50 {middle}, p90 {high}, longest {most}"]
    if any(shares):
        lines.append(f"CPU in use: p50 {quantile(shares, 0.5) / 100:.1f}, p90 {quantile(shares, 0.9) / 100:.1f} a task")
    return lines
