"""Reads WfFormat 1.4 and 1.5 and writes 1.5, the JSON format in which instances of scientific workflows are published.

An instance lists tasks, often hundreds. A workflow of asa has stages, each of which is a job. So tasks are grouped into
stages; a stage has the cores that its tasks need to run in parallel.
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
"""The rule by which tasks are grouped into stages."""

_VERSION: Final = "1.5"
_BEFORE: Final = "1.4"  # this version has one list of tasks, with Pegasus's terms
_MIB: Final = 1 << 20
_NUMBERED = re.compile(r"[_.-]?(?:ID)?(?<!\d)\d++$")
_REDIRECTION = re.compile(r"\d?>>?|<|\||2>&1")
_TAKES_TEXT: Final = re.compile(r"(?:ba|k|mk|z|a)sh|(?:python|pypy)[0-9.]*")  # programs that run a text given after -c
_MIN_RUN_S: Final = 1.0
_MAX_NUMBER: Final = 2.0**53  # of seconds, cores and bytes: above it, numbers are not told apart
_SCHEMA_HINT: Final = "The schema of WfFormat wants it so."
_UNIQUE: Final = "Ids are unique."
_MIGRATION_HINT: Final = "WfFormat's own tools/wfcommons-migrate-instance.py makes it one of 1.5."


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured times of a run."""

    began_s: float  # when the run began, in seconds since 1970
    makespan_s: float
    runs_s: Mapping[str, float]  # run time of each stage


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of an instance, or a chain of tasks that were joined."""

    id: str
    category: str
    program: str  # the program that the task's name begins with; empty for none
    parents: frozenset[str]
    run_s: float
    cores: int
    memory_bytes: int
    commands: tuple[str, ...]
    json_path: str


def import_wfformat(
    path: Path, *, by: Grouping = "category", cores: int | None = None, commands: bool = True, name: str = ""
) -> Imported:
    """Make a workflow from a WfFormat instance.

    `by`: rule that combines tasks into stages. ``level``: all tasks whose longest path from the beginning of the graph
    has the same length. ``category``: tasks of a level whose names differ only by a number; if all names differ by
    more, tasks of a level with the same program. ``chains``: as ``category``, after each chain of tasks without
    branches was joined into one task.
    `cores`: upper bound of a stage's cores; tasks that do not fit at the same time run in turn. The expected run time
    is that of the tasks if each core takes the next one, the longest first, as soon as it is free.
    `commands`: whether stages run the tasks' commands, if all tasks have one. Else the workflow is a model for
    comparisons.
    Returns the workflow, and notes about the translation.
    Raises `InputError`, with the location in the document: it is no instance of WfFormat 1.4 or 1.5, or has a cycle.
    """
    notes = ImportNotes()
    document = _document(path)
    tasks = _tasks(document, notes)
    _check_acyclic(tasks, path)
    tasks = _by_program(tasks)
    if by == "chains":
        tasks = _joined(tasks)
    with_commands = commands and all(task.commands for task in tasks.values())
    if commands and not with_commands:
        notes.add("not all tasks have a command: a model, for `asa compare`, that runs nothing")
    groups = _groups(tasks, by)
    stages = [_stage(called, group, cores) for called, group in groups.items()]
    if with_commands:
        stages = [_with_commands(stage, groups[stage.name]) for stage in stages]
    stage_of = {task.id: called for called, group in groups.items() for task in group}
    edges = {
        called: {stage_of[parent] for task in group for parent in task.parents} - {called}
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
    """An object of the document, with its location for errors."""

    value: Mapping[str, Any]
    json_path: str
    file: Path

    def at(self, key: str) -> str:
        """Return the location of an entry."""
        return f"{self.file}: {self.json_path}.{key}" if self.json_path else f"{self.file}: {key}"

    def has(self, key: str) -> bool:
        """Whether the object has an entry."""
        return self.value.get(key) is not None

    def text(self, key: str) -> str:
        """Return a text."""
        return cast("str", self._get(key, str, "text"))

    def number(self, key: str, least: float) -> float:
        """Return a number that is not below `least`."""
        number = cast("float", self._get(key, (int, float), "a number"))
        if isinstance(number, bool) or not least <= number <= _MAX_NUMBER:
            said = f"is {number!s:.40}"
            raise InputError(said, where=self.at(key), hint=f"A number from {least:g} to {_MAX_NUMBER:g} is wanted.")
        return number

    def child(self, key: str) -> _DocumentNode:
        """Return an object."""
        return _DocumentNode(self._get(key, dict, "an object"), f"{self.json_path}.{key}".lstrip("."), self.file)

    def children(self, key: str) -> list[_DocumentNode]:
        """Return a list of objects."""
        json_path = f"{self.json_path}.{key}".lstrip(".")
        listed = self._get(key, list, "a list")
        for i, entry in enumerate(listed):
            if not isinstance(entry, dict):
                raise InputError("is not an object", where=f"{self.file}: {json_path}[{i}]", hint=_SCHEMA_HINT)
        return [_DocumentNode(entry, f"{json_path}[{i}]", self.file) for i, entry in enumerate(listed)]

    def texts(self, key: str) -> list[str]:
        """Return a list of texts."""
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
    if version not in (_VERSION, _BEFORE):
        text = f"says schemaVersion {version!r}" if version else "says no schemaVersion"
        message = f"{text}, so it is no instance of WfFormat {_BEFORE} or {_VERSION}"
        raise InputError(message, where=str(path), hint=f"These are read. {_MIGRATION_HINT}")
    return _DocumentNode(document, "", path)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The tasks of a document, by unique ids."""

    entries: Mapping[str, _DocumentNode]
    executed: Mapping[str, _DocumentNode]
    parents: Mapping[str, frozenset[str]]
    # by task: the files that it reads, and those that it writes
    files: Mapping[str, tuple[Sequence[str], Sequence[str]]]


def _tasks(document: _DocumentNode, notes: ImportNotes) -> dict[str, _Task]:
    workflow = document.child("workflow")
    listed = _one_list(workflow) if document.text("schemaVersion") == _BEFORE else _two_lists(workflow)
    parents = listed.parents
    if len(parents) > 1 and not any(parents.values()):
        parents = _parents_by_files(listed.files)
        if any(parents.values()):
            notes.add("no task has a parent: each comes after those that make the files which it reads")
        else:
            notes.add("no task has a parent, and none reads what another makes: all are taken to begin at once")
    return {
        called: _task(called, entry, listed.executed.get(called), parents[called], notes)
        for called, entry in listed.entries.items()
    }


def _two_lists(workflow: _DocumentNode) -> _Listed:
    """Read WfFormat 1.5, which lists the tasks and their runs separately."""
    entries: dict[str, _DocumentNode] = {}
    for entry in workflow.child("specification").children("tasks"):
        called = entry.text("id")
        if not called or called in entries:
            why = f"{called!r} is the id of another task, too" if called else "is empty"
            raise InputError(why, where=entry.at("id"), hint=_UNIQUE)
        entries[called] = entry
    if not entries:
        raise InputError("there are no tasks", where=workflow.at("specification.tasks"), hint=_SCHEMA_HINT)
    executed = (
        {entry.text("id"): entry for entry in workflow.child("execution").children("tasks")}
        if workflow.has("execution")
        else {}
    )
    for called, run in executed.items():
        if called not in entries:
            raise InputError(f"{called!r} is no task of the specification", where=run.at("id"), hint="Correct the id.")
    parents = _parents(entries, {called: (called,) for called in entries})
    files = {
        called: tuple(entry.texts(key) if entry.has(key) else [] for key in ("inputFiles", "outputFiles"))
        for called, entry in entries.items()
    }
    return _Listed(entries, executed, parents, cast("dict[str, tuple[list[str], list[str]]]", files))


def _one_list(workflow: _DocumentNode) -> _Listed:
    """Read WfFormat 1.4, where tasks are identified by names that some recorders give to several tasks."""
    listed = workflow.children("tasks")
    if not listed:
        raise InputError("there are no tasks", where=workflow.at("tasks"), hint=_SCHEMA_HINT)
    counts = Counter(entry.text("name") for entry in listed)
    entries: dict[str, _DocumentNode] = {}
    known: dict[str, list[str]] = {}
    files: dict[str, tuple[list[str], list[str]]] = {}
    for i, entry in enumerate(listed):
        name, number = entry.text("name"), entry.text("id") if entry.has("id") else str(i + 1)
        called = name if counts[name] == 1 else f"{name}_{number}"
        if called in entries:
            raise InputError(f"{number!r} is the id of another task {name!r}, too", where=entry.at("id"), hint=_UNIQUE)
        entries[called] = entry
        known.setdefault(name, []).append(called)
        files[called] = _files(entry)
    for called, entry in entries.items():
        if entry.has("id") and entry.text("id") not in counts:
            known.setdefault(entry.text("id"), []).append(called)
    return _Listed(entries, entries, _parents(entries, known, are_required=False), files)


def _files(entry: _DocumentNode) -> tuple[list[str], list[str]]:
    """Return the files that a task of WfFormat 1.4 reads, and those that it writes."""
    files: tuple[list[str], list[str]] = [], []
    for file in entry.children("files") if entry.has("files") else ():
        folder = file.text("path") if file.has("path") else ""
        files[file.text("link").lower() == "output"].append(folder + file.text("name"))
    return files


def _parents(
    entries: Mapping[str, _DocumentNode], known: Mapping[str, Sequence[str]], *, are_required: bool = True
) -> dict[str, frozenset[str]]:
    """Return the edges of the graph; an instance may state each at either end.

    `known`: the tasks that each name in a list of parents or children means.
    """
    parents: dict[str, set[str]] = {called: set() for called in entries}
    for called, entry in entries.items():
        for key in ("parents", "children"):
            for i, relative in enumerate(entry.texts(key) if are_required or entry.has(key) else ()):
                where = f"{entry.at(key)}[{i}]"
                meant = known.get(relative, ())
                if not meant:
                    raise InputError(f"{relative!r} is the id of no task", where=where, hint="Correct the id.")
                if len(meant) > 1:
                    raise InputError(f"{relative!r} may be any of {len(meant)} tasks", where=where, hint=_UNIQUE)
                before, after = (meant[0], called) if key == "parents" else (called, meant[0])
                parents[after].add(before)
    return {called: frozenset(before) for called, before in parents.items()}


def _parents_by_files(files: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> dict[str, frozenset[str]]:
    """Return for each task the tasks that write the files which it reads."""
    makers: dict[str, set[str]] = {}
    for called, (_, made) in files.items():
        for file in made:
            makers.setdefault(file, set()).add(called)
    return {
        called: frozenset(before for file in read if file not in made for before in makers.get(file, ()))
        for called, (read, made) in files.items()
    }


def _task(
    called: str, entry: _DocumentNode, run: _DocumentNode | None, parents: frozenset[str], notes: ImportNotes
) -> _Task:
    name = entry.text("name")
    if run is None or not run.has("runtimeInSeconds"):
        notes.add("some tasks have no run time: they are taken to run a second")
    run = run or _DocumentNode({}, entry.json_path, entry.file)
    cores = "cores" if run is entry else "coreCount"
    if not run.has(cores):
        notes.add(f"some tasks have no {cores}: they are taken to need one core")
    return _Task(
        id=called,
        category=(entry.text("category") if entry.has("category") else _NUMBERED.sub("", name)) or name,
        program="" if entry.has("category") else _program_in(name, run),
        parents=parents,
        run_s=run.number("runtimeInSeconds", 0) if run.has("runtimeInSeconds") else _MIN_RUN_S,
        cores=math.ceil(run.number(cores, 1)) if run.has(cores) else 1,
        memory_bytes=math.ceil(run.number("memoryInBytes", 0)) if run.has("memoryInBytes") else 0,
        commands=_commands(run, notes),
        json_path=f"{run.file}: {run.json_path}",
    )


def _program_in(name: str, run: _DocumentNode) -> str:
    """Return the program that a task is named after, as in ``map_lane6_chr21`` for ``/opt/bin/map``."""
    if not run.has("command") or not run.child("command").has("program"):
        return ""
    program = PurePath(run.child("command").text("program"))
    return next((word for word in (program.name, program.stem) if re.match(rf"{re.escape(word)}(?![^\W_])", name)), "")


def _by_program(tasks: Mapping[str, _Task]) -> dict[str, _Task]:
    """Give tasks the category of their program if no other task's name differs only by a number.

    This is done only if several tasks of a program on one level would otherwise be a stage each.
    """
    counts = Counter(task.category for task in tasks.values())
    levels = _levels(tasks)
    alone = [task for task in tasks.values() if task.program and counts[task.category] == 1]
    found = Counter((levels[task.id], task.program) for task in alone)
    if max(found.values(), default=0) < 2:
        return dict(tasks)
    return {**tasks, **{task.id: replace(task, category=task.program) for task in alone}}


def _commands(run: _DocumentNode, notes: ImportNotes) -> tuple[str, ...]:
    """Return a recorded command as text for a shell.

    Some recorders repeat the program as the first argument, as in C; some record redirections as arguments. The
    recorder of Nextflow gives a process's text as the program, with placeholders that no shell can run.
    """
    if not run.has("command") or not run.child("command").has("program"):
        return ()
    command = run.child("command")
    program = command.text("program")
    if "\n" in program:
        notes.add("some programs are texts of several lines, as of Nextflow's processes, which are no commands")
        return ()
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
    """Join each chain of tasks into one task."""
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


def _levels(tasks: Mapping[str, _Task]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for name in nx.topological_sort(_graph(tasks)):
        levels[name] = 1 + max((levels[parent] for parent in tasks[name].parents), default=-1)
    return levels


def _groups(tasks: Mapping[str, _Task], by: Grouping) -> dict[str, list[_Task]]:
    """Group tasks into stages, by the stages' names. Tasks of one level are independent, so no cycle arises."""
    levels = _levels(tasks)
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
            where=f"{biggest.json_path}.coreCount",
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
            where=f"{long.json_path}.command",
            hint="Import it with --model.",
        )
    return replace(stage, tasks=tuple(lines.values()))


def _joined_command(task: _Task) -> str:
    return _plain(task.commands[0]) if len(task.commands) == 1 else " && ".join(task.commands)


def _plain(command: str) -> str:
    """Return TEXT of ``sh -c TEXT``, which needs no further shell."""
    words = split(command)
    return words[2] if len(words) == 3 and words[:2] == ["sh", "-c"] else command


# ---------------------------------------------------------------------- writing


def export_wfformat(
    workflow: Workflow, *, made_s: float, measured: Measured | None = None, notes: ImportNotes | None = None
) -> dict[str, Any]:
    """Write a workflow as a WfFormat 1.5 document.

    A stage becomes one task. A stage with a list becomes a task for each entry; these divide its cores and run time.
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
    """Return the shell text that a stage without tasks runs; empty if no text can express it."""
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
    """Return the program of an interpreter's line, such as /usr/bin/env -S python3 -u."""
    names = [PurePath(word).name for word in words if not word.startswith("-") and "=" not in word]
    return (names[1:] if names[:1] == ["env"] else names or ["sh"])[0]
