"""Turns Snakemake's graph of rules or of jobs into a workflow: each rule becomes a stage, run by Snakemake.

A stage runs ``snakemake --until RULE``: all jobs of that rule, and nothing after them. Earlier stages have made its
inputs, so nothing is run again. Tested with several instances of Snakemake 9.27 in one folder:

* ``--nolock``, since stages that do not depend on each other run at the same time;
* ``--rerun-incomplete``, else an instance refuses to begin while another writes; an instance remakes only its own
outputs;
* ``--rerun-triggers mtime``, else a rule that was edited meanwhile runs again inside another rule's stage;
* ``--allowed-rules`` is no alternative: the workflow's target is not among them;
* files that are ``temp()`` exist until the last rule that reads them has run.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import networkx as nx

from asa.errors import InputError
from asa.workflow import Stage, Workflow

from .base import Imported, ImportNotes, Names, direct, read_text
from .graphs import read_dot

_TARGET: Final = "all"
_PLACEHOLDER_CORES: Final = 4
_PLACEHOLDER_WALLTIME_S: Final = 3600.0
_MIB: Final = 1 << 20
_GPUS: Final = ("gpu", "gpus", "nvidia_gpu")
_READ: Final = {*_GPUS, "mem", "mem_mb", "mem_mib", "mem_mb_per_cpu", "runtime", "tmpdir"}
_RULE = re.compile(r"(local)?(?:rule|checkpoint) (\w+):")
_DIGITS = r"\d{1,12}"  # of an amount: more are none
_STATISTIC = re.compile(rf"(\w+)\s+({_DIGITS})(?:\s+\d+\s+\d+)?\s*")
_THREADS = re.compile(rf"\s+threads: ({_DIGITS})")
_RESOURCES = re.compile(r"\s+resources: (.*)")
_GIVEN = re.compile(r"^[ \t]*Command: .*\s(?:--cores|-c|-j|--jobs)[ =]?(\d+)", re.MULTILINE)
_JOINING = re.compile(r"(.*) \((?:pipe|service)\)")
_FILES = re.compile(r"\s+(input|output): (.*)")


@dataclass(slots=True)
class _Rule:
    """The known values of a rule's jobs; 0 for unknown."""

    jobs: int = 0
    threads: int = 0
    memory_mib: int = 0
    memory_mib_per_thread: int = 0
    gpus: int = 0
    minutes: float = 0.0
    is_local: bool = False
    joined: set[str] = field(default_factory=set)  # rules that run at the same time, joined by a pipe


def import_snakemake(
    path: Path,
    *,
    jobs: Path | None = None,
    cores: int | None = None,
    command: str = "snakemake",
    name: str = "",
) -> Imported:
    """Make a workflow of Snakemake's graph.

    `path`: the output of ``snakemake --rulegraph``, or of ``snakemake --dag --forceall``, which also shows how many
    jobs a rule has.
    `jobs`: the output of ``snakemake --dry-run --forceall --cores 1000``: each rule's number of jobs, their threads,
    and their resources ``mem_mb``, ``mem_mb_per_cpu``, ``gpu`` and ``runtime``. Without it, cores and walltimes are
    placeholders.
    `cores`: upper bound of a stage's cores if the jobs are known; else the stage's cores (4 by default).
    `command`: the call of Snakemake, with all options that it always needs, as in ``snakemake -s workflow/Snakefile
    --use-conda``.
    Returns the workflow, and notes about the translation.
    Raises `InputError`: the file has no such graph, or a file cannot be read.
    """
    notes = ImportNotes()
    rules, edges = _graph(path)
    if jobs is not None:
        _take_in(jobs, rules, notes)
    for rule, known_rule in rules.items():
        edges[rule] |= known_rule.joined  # edges in both directions make them one stage
    rules, edges = _without_target(rules, edges, notes)
    names = Names()
    parts = _in_order(rules, edges, notes)
    called = {part: names.take("-".join(part)) for part in parts}
    stage_of = {rule: called[part] for part in parts for rule in part}
    befores = direct(
        {called[part]: {stage_of[b] for rule in part for b in edges[rule] if b not in part} for part in parts}
    )
    stages: list[Stage] = []
    comments: dict[str, list[str]] = {}
    for part, stage_name in called.items():
        known = [rules[rule] for rule in part]
        stage = _stage(
            stage_name,
            part,
            known,
            befores[stage_name],
            is_counted=jobs is not None,
            are_joined=_are_joined(part, rules),
            max_cores=cores,
            command=command,
        )
        stages.append(stage)
        comments[stage_name] = _comments(known, stage, is_counted=jobs is not None)
    if jobs is None:
        notes.add("cores and walltimes are placeholders: correct them, or give the output of the dry run with --jobs")
        notes.add("rules that pipe() or service() joins run only together: --jobs tells them")
    elif any(not rule.minutes for rule in rules.values()):
        notes.add("some rules have no resource `runtime`: their walltime of an hour is a placeholder")
    notes.add("rules behind a checkpoint are in no graph before it ran: add stages for them")
    notes.add("to run it unchanged, job by job: snakemake --executor asa (docs/how-to/snakemake.md)")
    return Imported(
        Workflow(name or path.stem, stages),
        notes=notes.sentences(),
        header=[
            f"From {path} by `asa import snakemake`. Each stage lets Snakemake run one rule, in the folder where asa",
            "is started: the one in which Snakemake is started.",
        ],
        comments=comments,
    )


def _graph(path: Path) -> tuple[dict[str, _Rule], dict[str, set[str]]]:
    text = read_text(path)
    drawing = read_dot(text)
    label = {
        node: re.split(r"\\n|\n", attributes.get("label", ""))[0].strip() for node, attributes in drawing.nodes.items()
    }
    if "digraph snakemake_dag" not in text or not drawing.nodes or not all(label.values()):
        hint = "Make it with: snakemake --rulegraph >rules.dot"
        raise InputError("is no graph of rules in the dot language", where=str(path), hint=hint)
    rules: dict[str, _Rule] = {}
    for node in drawing.nodes:
        rules.setdefault(label[node], _Rule()).jobs += 1
    edges: dict[str, set[str]] = {rule: set() for rule in rules}
    for before, after in drawing.edges:
        edges[label[after]].add(label[before])
    return rules, edges


def _take_in(path: Path, rules: dict[str, _Rule], notes: ImportNotes) -> None:
    """Read the jobs of each rule from a dry run."""
    text = read_text(path)
    _count(text, rules, notes)
    current: _Rule | None = None
    found = False
    for line in text.splitlines():
        if rule := _RULE.fullmatch(line.strip()):
            current = rules.get(rule[2])
            found = found or current is not None
            if current is not None:
                current.is_local = bool(rule[1])
        elif current is not None:
            _take_in_line(line, current, notes)
    given = _GIVEN.search(text)
    for name, known in rules.items():
        if given and known.threads >= int(given[1]) > 1:
            notes.add(f"has as many threads as the dry run had cores, {given[1]}: say how many with --cores", name)
    if not found:
        hint = "Make it with: snakemake --dry-run --forceall --cores 1000 >jobs.txt"
        raise InputError("tells of no job of these rules", where=str(path), hint=hint)
    _join(text, rules)


def _count(text: str, rules: Mapping[str, _Rule], notes: ImportNotes) -> None:
    """Read the number of jobs of each rule."""
    statistics = re.search(r"^Job stats:\n((?:.+\n)*)", text, re.MULTILINE)
    lines = statistics[1].splitlines() if statistics else []
    counts = {counted[1]: int(counted[2]) for line in lines if (counted := _STATISTIC.fullmatch(line))}
    for name, count in counts.items():
        if name in rules:
            rules[name].jobs = count
        elif name != "total":
            notes.add("is in the dry run and not in the graph, and is left out", f"rule {name}")
    for name in rules if counts else ():
        if name not in counts:
            notes.add(
                "has no job in the dry run, and is taken to have one: was it made with --forceall?", f"rule {name}"
            )


def _join(text: str, rules: Mapping[str, _Rule]) -> None:
    """Record which rules write to a pipe or offer a service, and which rules use it."""
    makers: dict[str, str] = {}
    readers: dict[str, set[str]] = {}
    current = ""
    for line in text.splitlines():
        if rule := _RULE.fullmatch(line.strip()):
            current = rule[2]
        elif (files := _FILES.fullmatch(line)) and current in rules:
            for file in files[2].split(", "):
                joining = _JOINING.fullmatch(file)
                if files[1] == "input":
                    readers.setdefault(joining[1] if joining else file, set()).add(current)
                elif joining:
                    makers[joining[1]] = current
    for file, maker in makers.items():
        for reader in readers.get(file, ()):
            rules[maker].joined.add(reader)
            rules[reader].joined.add(maker)


def _take_in_line(line: str, rule: _Rule, notes: ImportNotes) -> None:
    if threads := _THREADS.fullmatch(line):
        rule.threads = max(rule.threads, int(threads[1]))
    elif resources := _RESOURCES.fullmatch(line):
        amounts = dict(re.findall(rf"(?<!\w)(\w++)=({_DIGITS}(?:\.\d+)?)(?=,|\s|$)", resources[1]))
        rule.memory_mib = max(rule.memory_mib, _mib(amounts.get("mem_mb", 0)))
        rule.memory_mib_per_thread = max(rule.memory_mib_per_thread, _mib(amounts.get("mem_mb_per_cpu", 0)))
        rule.gpus = max(rule.gpus, *(math.ceil(float(amounts.get(name, 0))) for name in _GPUS))
        for name in re.findall(r"(?<!\w)(\w++)=<TBD>", resources[1]):
            notes.add(f"the resource `{name}` is known only when a job begins: say it in the stage")
        for name in re.findall(r"(?<!\w)(\w++)=", resources[1]):
            if name not in _READ:
                notes.add(f"the resource `{name}` is left out: say it in the stage's `options`, if the site needs it")
        rule.minutes = max(rule.minutes, float(amounts.get("runtime", 0)))


def _mib(megabytes: str | float) -> int:
    return math.ceil(float(megabytes) * 1e6 / _MIB)


def _without_target(
    rules: dict[str, _Rule], edges: dict[str, set[str]], notes: ImportNotes
) -> tuple[dict[str, _Rule], dict[str, set[str]]]:
    """Remove the rule that only lists the final targets."""
    is_last = _TARGET in rules and not any(_TARGET in befores for befores in edges.values())
    if not is_last or len(rules) == 1:
        return rules, edges
    notes.add(f"the rule {_TARGET!r} is no stage, as it only names what is wanted")
    kept = {rule: known for rule, known in rules.items() if rule != _TARGET}
    return kept, {rule: edges[rule] for rule in kept}


def _in_order(rules: Mapping[str, _Rule], edges: Mapping[str, set[str]], notes: ImportNotes) -> list[tuple[str, ...]]:
    """Sort rules topologically. Rules that depend on each other, as in several rounds, become one stage."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(rules)
    graph.add_edges_from((before, rule) for rule, befores in edges.items() for before in befores)
    cycles = nx.condensation(graph)
    position = {rule: i for i, rule in enumerate(rules)}
    parts = [
        tuple(sorted(cycles.nodes[node]["members"], key=position.__getitem__)) for node in nx.topological_sort(cycles)
    ]
    for part in parts:
        if len(part) > 1:
            how = "run at the same time, joined by pipes" if _are_joined(part, rules) else "take turns"
            notes.add(f"the rules {', '.join(part)} {how}, and are one stage")
    return parts


def _are_joined(part: Sequence[str], rules: Mapping[str, _Rule]) -> bool:
    """Whether pipes join all of these rules."""
    reached, ahead = {part[0]}, [part[0]]
    while ahead:
        new = rules[ahead.pop()].joined - reached
        reached |= new
        ahead += new
    return len(part) > 1 and reached >= set(part)


def _stage(
    name: str,
    rules: Sequence[str],
    known: Sequence[_Rule],
    after: tuple[str, ...],
    *,
    is_counted: bool,
    are_joined: bool,
    max_cores: int | None,
    command: str,
) -> Stage:
    is_local = all(rule.is_local for rule in known)
    total = sum if are_joined else max
    width, turns, memory_mib, gpus = 1, 1, 0, 0
    if not is_local and (is_counted or any(rule.jobs > 1 for rule in known)):
        per_job = total(max(1, rule.threads) for rule in known)
        if max_cores is not None and not are_joined:
            per_job = min(per_job, max_cores)  # Snakemake, too, lowers a job's threads to the cores that it has
        jobs = max(1, *(rule.jobs for rule in known))
        at_once = jobs if max_cores is None else max(1, min(jobs, max_cores // per_job))
        width, turns = at_once * per_job, math.ceil(jobs / at_once)
        memory_mib = at_once * total(
            rule.memory_mib or rule.memory_mib_per_thread * max(1, rule.threads) for rule in known
        )
        gpus = at_once * total(rule.gpus for rule in known)
    elif not is_local:
        width = max_cores or _PLACEHOLDER_CORES
    minutes = (max if are_joined else sum)(rule.minutes for rule in known) * turns
    call = [f'--cores "${{ASA_CORES:-{width}}}"', "--nolock --rerun-incomplete --rerun-triggers mtime"]
    return Stage(
        name=name,
        cores=width,
        walltime_s=60.0 * minutes or _PLACEHOLDER_WALLTIME_S,
        after=after,
        command=" ".join([command, *call, "--until", shlex.join(rules)]),
        memory_bytes=memory_mib * _MIB,
        gpus=gpus,
        local=is_local,
    )


def _comments(known: Sequence[_Rule], stage: Stage, *, is_counted: bool) -> list[str]:
    jobs = max(rule.jobs for rule in known)
    threads = max(rule.threads for rule in known)
    lines = [f"jobs: {jobs}" + (f", threads: {threads}" if threads else "")] if jobs > 1 or threads else []
    if not is_counted and not stage.local:
        lines.append("cores: a placeholder; correct it")
    if not any(rule.minutes for rule in known):
        lines.append("walltime: a placeholder; correct it")
    return lines
