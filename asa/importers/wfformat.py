"""Reads and writes WfFormat 1.5, the JSON format in which instances of scientific workflows are published.

An instance lists tasks, often hundreds; a workflow of asa has stages, each of which is a job. So tasks are grouped, and
a stage has the cores that its tasks need to run in parallel.
"""

from __future__ import annotations

import heapq
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, Final, Literal, cast

import networkx as nx

from asa.core.documents import read_json
from asa.core.words import split
from asa.errors import InputError
from asa.workflow import Stage, Workflow

from .base import Imported, ImportNotes, Names, direct, generous_walltime_s, lpt_makespan_s, read_text

Grouping = Literal["category", "level", "chains"]
"""By what tasks are gathered into stages."""

_VERSION: Final = "1.5"
_MIB: Final = 1 << 20
_NUMBERED = re.compile(r"[_.-]?(?:ID)?(?<!\d)\d++$")
_REDIRECTION = re.compile(r"\d?>>?|<|\||2>&1")
_TAKES_TEXT: Final = re.compile(r"(?:ba|k|mk|z|a)sh|(?:python|pypy)[0-9.]*")  # after -c
_MIN_RUN_S: Final = 1.0
_SCHEMA_HINT: Final = "The schema of WfFormat 1.5 wants it so."


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a run of a workflow."""

    began_s: float  # when it began, seconds since 1970
    makespan_s: float
    runs_s: Mapping[str, float]  # how long each stage ran


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of an instance; after a chain of tasks was joined, all of them."""

    id: str
    category: str
    parents: frozenset[str]
    run_s: float
    cores: int
    memory_bytes: int
    commands: tuple[str, ...]
    place: str


def import_wfformat(
    path: Path, *, by: Grouping = "category", cores: int | None = None, commands: bool = True, name: str = ""
) -> Imported:
    """Make a workflow of a WfFormat instance.

    `by`: what makes a stage: the tasks of one ``category`` (their name without its number) on one level of the graph,
    which is the longest path from the beginning; or all of a ``level``; or, with ``chains``, as by ``category``, after
    chains of tasks, each the only predecessor or successor of the next, are joined to one task.
    `cores`: upper bound of a stage's cores; tasks that do not fit at the same time run in turn. Its expected run time
    is that of its tasks, the longest first, where each core takes the next as soon as it is free.
    `commands`: whether stages run the tasks' commands, if all tasks have one. Else it is a model for comparisons.
    Returns the workflow, and notes about the translation.
    Raises `InputError`, with the place in the document: it is no instance of WfFormat 1.5, or has a cycle.
    """
    notes = ImportNotes()
    document = _document(path)
    tasks = _tasks(document, notes)
    _check_acyclic(tasks, path)
    if by == "chains":
        tasks = _joined(tasks)
    with_commands = commands and all(task.commands for task in tasks.values())
    if commands and not with_commands:
        notes.add("not all tasks have a command: a model, for `asa compare`, that runs nothing")
    groups = _groups(tasks, by)
    stages = [_stage(called, group, cores) for called, group in groups.items()]
    if with_commands:
        stages = [_with_commands(stage, groups[stage.name]) for stage in stages]
    owner = {task.id: called for called, group in groups.items() for task in group}
    edges = {
        called: {owner[parent] for task in group for parent in task.parents} - {called}
        for called, group in groups.items()
    }
    befores = direct(edges)
    runs = {called: len(group) for called, group in groups.items()}
    notes.add("walltimes are 1.5 times the expected run times: check them")
    if any(stage.memory_bytes for stage in stages):
        notes.add("memory is what tasks were seen to use: ask for more where that may vary")
    if with_commands:
        notes.add("commands are as they were recorded: their programs and files must be where this runs")
    return Imported(
        Workflow(name or document.text("name") or path.stem, [replace(s, after=befores[s.name]) for s in stages]),
        notes=notes.sentences(),
        header=[f"From {path} by `asa import wfformat`: {len(tasks)} tasks in {len(stages)} stages, by {by}."],
        comments={called: [f"{count} tasks" if count > 1 else "1 task"] for called, count in runs.items()},
    )


@dataclass(frozen=True, slots=True)
class _DocumentNode:
    """An object of the document, and its place, for errors."""

    value: Mapping[str, Any]
    place: str
    file: Path

    def at(self, key: str) -> str:
        """Name the place of an entry."""
        return f"{self.file}: {self.place}.{key}" if self.place else f"{self.file}: {key}"

    def has(self, key: str) -> bool:
        """Whether there is such an entry."""
        return self.value.get(key) is not None

    def text(self, key: str) -> str:
        """Get a text."""
        return cast("str", self._get(key, str, "text"))

    def number(self, key: str, least: float) -> float:
        """Get a number that is large enough."""
        number = cast("float", self._get(key, (int, float), "a number"))
        if isinstance(number, bool) or not least <= number < math.inf:
            raise InputError(f"is {number}", where=self.at(key), hint=f"A number, {least:g} or more, is wanted.")
        return number

    def child(self, key: str) -> _DocumentNode:
        """Get an object."""
        return _DocumentNode(self._get(key, dict, "an object"), f"{self.place}.{key}".lstrip("."), self.file)

    def children(self, key: str) -> list[_DocumentNode]:
        """Get a list of objects."""
        place = f"{self.place}.{key}".lstrip(".")
        listed = self._get(key, list, "a list")
        for i, entry in enumerate(listed):
            if not isinstance(entry, dict):
                raise InputError("is not an object", where=f"{self.file}: {place}[{i}]", hint=_SCHEMA_HINT)
        return [_DocumentNode(entry, f"{place}[{i}]", self.file) for i, entry in enumerate(listed)]

    def texts(self, key: str) -> list[str]:
        """Get a list of texts."""
        listed = self._get(key, list, "a list")
        for i, entry in enumerate(listed):
            if not isinstance(entry, str):
                raise InputError("is not text", where=f"{self.at(key)}[{i}]", hint=_SCHEMA_HINT)
        return cast("list[str]", listed)

    def _get(self, key: str, kind: type | tuple[type, ...], what: str) -> Any:
        if key not in self.value:
            raise InputError("is missing", where=self.at(key), hint=_SCHEMA_HINT)
        if not isinstance(self.value[key], kind):
            raise InputError(f"is not {what}", where=self.at(key), hint=_SCHEMA_HINT)
        return self.value[key]


def _document(path: Path) -> _DocumentNode:
    try:
        document = read_json(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(
            f"is no JSON: {error.msg}", where=f"{path}:{error.lineno}", hint="Correct it there."
        ) from error
    except ValueError as error:
        hint = "Is it the file of an instance in WfFormat?"
        raise InputError(f"cannot be understood: {error}", where=str(path), hint=hint) from error
    version = document.get("schemaVersion") if isinstance(document, dict) else None
    if version != _VERSION:
        words = f"says schemaVersion {version!r}" if version else "says no schemaVersion"
        hint = f"WfFormat {_VERSION} is read; the package wfcommons writes it."
        raise InputError(f"{words}, so it is no instance of WfFormat {_VERSION}", where=str(path), hint=hint)
    return _DocumentNode(document, "", path)


def _tasks(document: _DocumentNode, notes: ImportNotes) -> dict[str, _Task]:
    workflow = document.child("workflow")
    listed = workflow.child("specification").children("tasks")
    executed = _executed(workflow)
    entries: dict[str, _DocumentNode] = {}
    for entry in listed:
        called = entry.text("id")
        if not called or called in entries:
            why = f"{called!r} is the id of another task, too" if called else "is empty"
            raise InputError(why, where=entry.at("id"), hint="Ids are unique.")
        entries[called] = entry
    if not entries:
        where = f"{document.file}: workflow.specification.tasks"
        raise InputError("there are no tasks", where=where, hint=_SCHEMA_HINT)
    for called, run in executed.items():
        if called not in entries:
            raise InputError(f"{called!r} is no task of the specification", where=run.at("id"), hint="Correct the id.")
    parents = _parents(entries)
    return {called: _task(entry, executed.get(called), parents[called], notes) for called, entry in entries.items()}


def _executed(workflow: _DocumentNode) -> dict[str, _DocumentNode]:
    if not workflow.has("execution"):
        return {}
    return {entry.text("id"): entry for entry in workflow.child("execution").children("tasks")}


def _parents(entries: Mapping[str, _DocumentNode]) -> dict[str, frozenset[str]]:
    """Gather edges from both of their ends."""
    parents: dict[str, set[str]] = {called: set() for called in entries}
    for called, entry in entries.items():
        for key in ("parents", "children"):
            for i, relative in enumerate(entry.texts(key)):
                if relative not in entries:
                    where = f"{entry.at(key)}[{i}]"
                    raise InputError(f"{relative!r} is the id of no task", where=where, hint="Correct the id.")
                before, after = (relative, called) if key == "parents" else (called, relative)
                parents[after].add(before)
    return {called: frozenset(before) for called, before in parents.items()}


def _task(entry: _DocumentNode, run: _DocumentNode | None, parents: frozenset[str], notes: ImportNotes) -> _Task:
    name = entry.text("name")
    if run is None:
        notes.add("some tasks have no run time: they are taken to run a second")
        run = _DocumentNode({"runtimeInSeconds": _MIN_RUN_S}, entry.place, entry.file)
    if not run.has("coreCount"):
        notes.add("some tasks have no coreCount: they are taken to need one core")
    return _Task(
        id=entry.text("id"),
        category=(entry.text("category") if entry.has("category") else _NUMBERED.sub("", name)) or name,
        parents=parents,
        run_s=run.number("runtimeInSeconds", 0),
        cores=math.ceil(run.number("coreCount", 1)) if run.has("coreCount") else 1,
        memory_bytes=math.ceil(run.number("memoryInBytes", 0)) if run.has("memoryInBytes") else 0,
        commands=_commands(run),
        place=f"{run.file}: {run.place}",
    )


def _commands(run: _DocumentNode) -> tuple[str, ...]:
    """Write a recorded command for a shell.

    Some recorders repeat the program as the first argument, as in C, and some record redirections as arguments.
    """
    if not run.has("command") or not run.child("command").has("program"):
        return ()
    command = run.child("command")
    program = command.text("program")
    arguments = command.texts("arguments") if command.has("arguments") else []
    if arguments and PurePath(arguments[0]).name == PurePath(program).name:
        program, *arguments = arguments
    quoted = [word if _REDIRECTION.fullmatch(word) else shlex.quote(word) for word in arguments]
    return (" ".join([shlex.quote(program), *quoted]),)


def _graph(tasks: Mapping[str, _Task]) -> nx.DiGraph[str]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(tasks)
    graph.add_edges_from((parent, task.id) for task in tasks.values() for parent in task.parents)
    return graph


def _check_acyclic(tasks: Mapping[str, _Task], path: Path) -> None:
    try:
        cycle = nx.find_cycle(_graph(tasks))
    except nx.NetworkXNoCycle:
        return
    way = " -> ".join([edge[0] for edge in cycle] + [cycle[0][0]])
    where = f"{path}: workflow.specification.tasks"
    raise InputError(f"tasks wait for each other: {way}", where=where, hint="Take one of these parents out.")


def _joined(tasks: Mapping[str, _Task]) -> dict[str, _Task]:
    """Join each chain of tasks to one task."""
    graph = _graph(tasks)
    joined = dict(tasks)
    stands_for = {name: name for name in tasks}
    for name in nx.lexicographical_topological_sort(graph):
        befores = list(graph.predecessors(name))
        if len(befores) == 1 and graph.out_degree(befores[0]) == 1:
            first = stands_for[befores[0]]
            stands_for[name] = first
            joined[first] = _one_after_the_other(joined[first], joined.pop(name))
    return {
        name: replace(task, parents=frozenset(stands_for[p] for p in tasks[name].parents))
        for name, task in joined.items()
    }


def _one_after_the_other(first: _Task, second: _Task) -> _Task:
    return replace(
        first,
        category=f"{first.category}+{second.category}",
        run_s=first.run_s + second.run_s,
        cores=max(first.cores, second.cores),
        memory_bytes=max(first.memory_bytes, second.memory_bytes),
        commands=(*first.commands, *second.commands) if first.commands and second.commands else (),
    )


def _groups(tasks: Mapping[str, _Task], by: Grouping) -> dict[str, list[_Task]]:
    """Gather tasks into stages, by the stages' names. On one level none waits for another, so nothing goes round."""
    levels: dict[str, int] = {}
    for name in nx.topological_sort(_graph(tasks)):
        levels[name] = 1 + max((levels[parent] for parent in tasks[name].parents), default=-1)
    found: dict[tuple[int, str], list[_Task]] = {}
    for task in tasks.values():
        found.setdefault((levels[task.id], "" if by == "level" else task.category), []).append(task)
    names = Names()
    groups: dict[str, list[_Task]] = {}
    for (level, category), group in sorted(found.items(), key=lambda item: item[0][0]):
        kinds = Counter(task.category for task in group)
        wished = category or (next(iter(kinds)) if len(kinds) == 1 else f"level-{level + 1}")
        groups[names.take(wished)] = group
    return groups


def _stage(name: str, tasks: Sequence[_Task], max_cores: int | None) -> Stage:
    biggest = max(tasks, key=lambda task: task.cores)
    if max_cores is not None and biggest.cores > max_cores:
        raise InputError(
            f"is {biggest.cores}, more than the {max_cores} cores that a stage may have",
            where=f"{biggest.place}.coreCount",
            hint=f"Give --cores {biggest.cores} or more.",
        )
    width = len(tasks) if max_cores is None else min(len(tasks), max_cores // biggest.cores)
    expected_s = float(max(_MIN_RUN_S, math.ceil(lpt_makespan_s((task.run_s for task in tasks), width))))
    return Stage(
        name=name,
        cores=width * biggest.cores,
        cpus_per_task=biggest.cores if len(tasks) > 1 else 1,
        walltime_s=generous_walltime_s(expected_s),
        expected_run_s=expected_s,
        memory_bytes=_MIB * math.ceil(sum(heapq.nlargest(width, (task.memory_bytes for task in tasks))) / _MIB),
    )


def _with_commands(stage: Stage, tasks: Sequence[_Task]) -> Stage:
    if len(tasks) == 1:
        return replace(stage, command=_joined_command(tasks[0]))
    longest_first = sorted(tasks, key=lambda task: -task.run_s)
    lines = {task.id: _joined_command(task) for task in longest_first}
    if long := next((task for task in longest_first if "\n" in lines[task.id]), None):
        raise InputError(
            "has several lines, and a list of tasks has one for each",
            where=f"{long.place}.command",
            hint="Import it with --model.",
        )
    return replace(stage, tasks=tuple(lines.values()))


def _joined_command(task: _Task) -> str:
    return _plain(task.commands[0]) if len(task.commands) == 1 else " && ".join(task.commands)


def _plain(command: str) -> str:
    """Take the text of ``sh -c TEXT`` out, which needs no shell of its own."""
    words = split(command)
    return words[2] if len(words) == 3 and words[:2] == ["sh", "-c"] else command


# ---------------------------------------------------------------------- writing


def export_wfformat(
    workflow: Workflow, *, made_s: float, measured: Measured | None = None, notes: ImportNotes | None = None
) -> dict[str, Any]:
    """Write a workflow as a WfFormat 1.5 document.

    A stage becomes a task; a stage with a list of tasks becomes as many, which divide its cores and its run time.
    Without a run the run times are the expected ones, and the description says so.
    """
    ids = {stage.name: _ids(stage) for stage in workflow.stages.values()}
    followers = {name: [s.name for s in workflow.stages.values() if name in s.after] for name in workflow.stages}
    described = "Run times were measured." if measured else "Run times are expectations; nothing was run."
    began_s = measured.began_s if measured else made_s
    return {
        "name": workflow.name or "workflow",
        "description": f"A workflow of asa, a stage or one of its tasks each. {described}",
        "createdAt": _timestamp(made_s),
        "schemaVersion": _VERSION,
        "workflow": {
            "specification": {
                "tasks": [
                    {
                        "name": task,
                        "id": task,
                        "category": name,
                        "parents": [parent for before in stage.after for parent in ids[before]],
                        "children": [child for follower in followers[name] for child in ids[follower]],
                    }
                    for name, stage in workflow.stages.items()
                    for task in ids[name]
                ],
                "files": [],
            },
            "execution": {
                "makespanInSeconds": measured.makespan_s if measured else workflow.critical_path_s,
                "executedAt": _timestamp(began_s),
                "tasks": [
                    entry
                    for stage in workflow.stages.values()
                    for entry in _executions(stage, ids, measured, notes or ImportNotes())
                ],
            },
        },
    }


def _timestamp(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).isoformat(timespec="seconds")


def _ids(stage: Stage) -> list[str]:
    return [f"{stage.name}#{i}" for i in range(1, len(stage.tasks) + 1)] if stage.tasks else [stage.name]


def _executions(
    stage: Stage, ids: Mapping[str, Sequence[str]], measured: Measured | None, notes: ImportNotes
) -> Iterable[dict[str, Any]]:
    if stage.cores is None:
        raise InputError(
            "asks for nodes, and WfFormat counts cores", where=f"stage {stage.name!r}", hint="Give it `cores`, too."
        )
    run_s = measured.runs_s.get(stage.name, stage.expected_s) if measured else stage.expected_s
    names = ids[stage.name]
    at_once = max(1, stage.cores // stage.cpus_per_task)
    cores = stage.cpus_per_task if stage.tasks else stage.cores
    for name, command in zip(names, stage.tasks or [_payload(stage, notes)], strict=True):
        entry: dict[str, Any] = {
            "id": name,
            "runtimeInSeconds": run_s / math.ceil(len(names) / at_once),
            "coreCount": cores,
        }
        if command:
            entry["command"] = {"program": "sh", "arguments": ["-c", command]}
        if stage.memory_bytes:
            entry["memoryInBytes"] = stage.memory_bytes // min(len(names), at_once)
        yield entry


def _payload(stage: Stage, notes: ImportNotes) -> str:
    """Write what a stage without tasks runs as text for a shell; empty if that cannot be."""
    if stage.tasks_file:
        notes.add("its list of tasks is a file, so it has no command there", f"stage {stage.name!r}")
    if not stage.script.startswith("#!"):
        return stage.script or stage.command
    first, _, _ = stage.script.partition("\n")
    words = first.removeprefix("#!").split()
    program = _program(words)
    if program in {"sh", "dash"}:
        return stage.script
    if _TAKES_TEXT.fullmatch(program):
        return f"{shlex.join(words)} -c {shlex.quote(stage.script)}"
    note = "scripts other than of shells and Python cannot be written as a command, so it has none there"
    notes.add(note, f"stage {stage.name!r} ({program})")
    return ""


def _program(words: Sequence[str]) -> str:
    """Name the program of an interpreter's line, such as /usr/bin/env -S python3 -u."""
    names = [PurePath(word).name for word in words if not word.startswith("-") and "=" not in word]
    return (names[1:] if names[:1] == ["env"] else names or ["sh"])[0]
