"""Batch scripts of Slurm, and shell scripts that submit them, as a workflow."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from asa.errors import InputError
from asa.units import format_duration, parse_duration, parse_memory
from asa.workflow import Stage, Workflow

from .base import Imported, Names, Notes, near_or_all
from .directives import KNOWN, Directive, head
from .driver import Script, is_driver, read_driver, read_script, refuse_drivers, refuse_rescue

__all__ = ["import_scripts"]

_DEFAULT_WALLTIME_S: Final = 3600.0
_CORES_OF_AN_ARRAY: Final = 256
_YEAR_S: Final = 366 * 86400.0
_MOST_ELEMENTS: Final = 10_000
_MOST_STAGES_OF_AN_ARRAY: Final = 100
_ENDLESS: Final = {"0", "-1", "infinite", "unlimited"}
_LAUNCHES = re.compile(r"^[^#\n]*\b(?:srun|mpirun|mpiexec)\b", re.MULTILINE)

_LOGS = "is left out: asa keeps what jobs print in the run's folder, and `asa logs STAGE` shows it"
_LEFT_OUT: Final[Mapping[str, str]] = {
    "output": _LOGS,
    "error": _LOGS,
    "open-mode": "is left out: each job's output is a file of its own",
    "begin": "is left out: asa decides when a job may begin",
    "hold": "is left out: asa decides when a job may begin",
    "clusters": "is left out: name the cluster in a site file",
    "comment": "is left out: asa finds its jobs again by their comment",
    "dependency": "names jobs that nobody knows yet, and is left out: say `# asa: after=STAGE` in the script",
    "export-file": "is left out: use the stage's key `environment`",
    "get-user-env": "is left out: use the stage's key `environment`",
    "gid": "is left out: asa submits as the user who runs it",
    "uid": "is left out: asa submits as the user who runs it",
    "ignore-pbs": "is left out",
    "input": "is left out: write `<FILE` where the script reads it",
    "kill-on-invalid-dep": "is left out: asa cancels such jobs itself",
    "parsable": "",
    "quiet": "",
    "verbose": "",
    "test-only": "is left out: `asa run --dry-run` shows what would be submitted",
    "time-min": "is left out: asa must know how long a job may run",
    "wait": "is left out: asa waits itself",
}
_STAGE_NAMES: Final = (
    "account array chdir cpus-per-task export gpus gpus-per-node gpus-per-task gres job-name mem mem-per-cpu "
    "mem-per-gpu nodes ntasks ntasks-per-gpu ntasks-per-node partition time wrap"
)
_OF_STAGES: Final = frozenset(_STAGE_NAMES.split())
"""Options that a stage has keys for, or that are translated."""


def import_scripts(
    paths: Sequence[Path], *, parallel: bool = False, array_cores: int = _CORES_OF_AN_ARRAY, name: str = ""
) -> Imported:
    """Make a workflow of batch scripts, which stay where and as they are.

    Each becomes a stage, after the one before it; or, where any script says so in a comment before its first command
    (``# asa: after=prepare,align``, or ``# depends: prepare align``), after those that it names, and the others after
    none. Of a shell script that submits batch scripts with ``sbatch`` the dependencies are taken from there.

    Parameters
    ----------
    paths
        Batch scripts; or one shell script that submits some.
    parallel
        Put none after another.
    array_cores
        How many cores the elements of a job array share at most. Elements of one task become tasks of one stage.
    name
        Of the workflow; that of the one script, or of the folder that they lie in, if not given.

    Returns
    -------
    Imported
        The workflow, and what its reader should know of how it came about.

    Raises
    ------
    InputError
        A file cannot be read, or says what sbatch would refuse or what cannot be translated; with file and line.
    """
    notes = Notes()
    if len(paths) == 1 and is_driver(paths[0]):
        scripts = read_driver(paths[0], notes)
        header = [f"From {paths[0]} by `asa import scripts`: that script itself is not run any more."]
    else:
        scripts = [read_script(path) for path in paths]
        refuse_drivers(scripts)
        header = [
            "From batch scripts by `asa import scripts`. Their #SBATCH lines are not read again: this file counts."
        ]
    translator = _Translator(notes, array_cores)
    made = [translator.stages_of(script) for script in scripts]
    befores = _befores(scripts, made, notes, parallel=parallel)
    stages = [
        replace(stage, after=tuple(end.name for before in befores[i] for end in made[before]))
        for i, group in enumerate(made)
        for stage in group
    ]
    return Imported(
        Workflow(name or _called(paths), stages),
        scripts=translator.paths,
        notes=notes.sentences(),
        header=header,
        comments=translator.comments,
    )


def _called(paths: Sequence[Path]) -> str:
    """Name a workflow: by its one script, or the folder that its scripts lie in."""
    return paths[0].stem if len(paths) == 1 else paths[0].absolute().parent.name or "workflow"


def _befores(
    scripts: Sequence[Script], made: Sequence[Sequence[Stage]], notes: Notes, *, parallel: bool
) -> list[list[int]]:
    """Tell of each script which others come before it."""
    if any(script.submitted_after is not None for script in scripts):
        return [list(script.submitted_after or ()) for script in scripts]
    if parallel:
        return [[] for _ in scripts]
    if all(script.after is None for script in scripts):
        return [[i - 1] if i else [] for i in range(len(scripts))]
    known: dict[str, int] = {}
    for i in reversed(range(len(scripts))):
        path = scripts[i].path
        job = scripts[i].directives.get("job-name")
        for called in (path and path.stem, path and path.name, job and job.value, made[i][0].name):
            if called:
                known[called] = i
    for script in scripts:
        if script.after is None:
            notes.add("says nothing of what it comes after, and may begin at once", script.where)
    return [[_index(called, where, known) for called, where in script.after or ()] for script in scripts]


def _index(called: str, where: str, known: Mapping[str, int]) -> int:
    if called not in known:
        raise InputError(
            f"comes after {called!r}, which is none of the scripts", where=where, hint=near_or_all(called, known)
        )
    return known[called]


@dataclass(frozen=True, slots=True)
class _Needs:
    """What one job of a script, or one element of its array, asks for."""

    tasks: int
    cpus_per_task: int
    nodes: int
    memory_bytes: int
    gpus: int

    @property
    def cores(self) -> int:
        return self.tasks * self.cpus_per_task


class _Translator:
    """Makes stages of scripts, without their edges; keeps the names and the notes of all."""

    def __init__(self, notes: Notes, array_cores: int) -> None:
        self.paths: dict[str, Path] = {}
        self.comments: dict[str, list[str]] = {}
        self._names = Names()
        self._notes = notes
        self._array_cores = array_cores

    def stages_of(self, script: Script) -> list[Stage]:
        """Make the stage of a script; several of an array whose elements cannot share a job."""
        given = script.directives
        self._tell(script)
        name = self._names.take(_text(given, "job-name") or (script.path.stem if script.path else "wrap"))
        needs = self._needs(given)
        stage = Stage(
            name=name,
            cores=needs.cores,
            cpus_per_task=needs.cpus_per_task,
            walltime_s=self._walltime_s(script, name),
            memory_bytes=needs.memory_bytes,
            gpus=needs.gpus,
            partition=_text(given, "partition"),
            account=_text(given, "account"),
            options=self._options(given, needs),
            environment=self._environment(given),
        )
        if "array" in given:
            return self._array(script, stage, needs)
        if script.path is None or script.arguments or "chdir" in given:
            return [self._with_command(script, stage)]
        self.paths[name] = script.path
        return [replace(stage, script=script.text)]

    def _tell(self, script: Script) -> None:
        """Say what is left out."""
        for directive in script.directives.values():
            if directive.name == "dependency":
                for part in re.split(r"[,?]", directive.value or ""):
                    refuse_rescue(part.partition(":")[0], directive.where)
            if sentence := _LEFT_OUT.get(directive.name):
                self._notes.add(f"--{directive.name} {sentence}", directive.where)
            if directive.name not in KNOWN:
                self._notes.add(f"{directive} is no option of plain Slurm, and is passed on", directive.where)
        for number, line in head(script.text):
            if line.startswith(("#PBS", "#BSUB")):
                self._notes.add(f"{line.split()[0]} is not read here, though sbatch may", f"{script.path}:{number}")

    def _with_command(self, script: Script, stage: Stage) -> Stage:
        folder = _text(script.directives, "chdir")
        command = _command(script)
        if folder:
            command = f"cd {shlex.quote(folder)} && {command}"
        self._tell_of_path(script)
        return replace(stage, command=command)

    def _tell_of_path(self, script: Script) -> None:
        """Say how the script of a command is found."""
        if script.path is not None:
            self._notes.add("the script is read when its stage begins, not when it is submitted", script.where)
            if not Path(_path_of(script)).is_absolute():
                self._notes.add(f"{script.path} is looked for from the folder in which asa is started", script.where)

    def _walltime_s(self, script: Script, name: str) -> float:
        directive = script.directives.get("time")
        if directive is not None and (directive.value or "").lower() not in _ENDLESS:
            return _parsed(parse_duration, directive)
        guess = format_duration(_DEFAULT_WALLTIME_S)
        self.comments.setdefault(name, []).append(f"walltime: {guess} is a guess, for the script asks for none")
        self._notes.add(f"no --time: a walltime of {guess} is put in; mend it", script.where)
        return _DEFAULT_WALLTIME_S

    def _needs(self, given: Mapping[str, Directive]) -> _Needs:
        nodes = 0
        if "nodes" in given:
            nodes = _nodes(given["nodes"])
            if not (given["nodes"].value or "").isdigit():
                self._notes.add(f"of a number of nodes that may vary the least is taken: {nodes}", given["nodes"].where)
        gpus = self._gpus(given, max(1, nodes))
        tasks = _count(given, "ntasks")
        if not tasks and "ntasks-per-gpu" in given:
            tasks = gpus * _count(given, "ntasks-per-gpu")
        tasks = tasks or max(1, nodes) * (_count(given, "ntasks-per-node") or 1)
        if "gpus-per-task" in given and not _typed(given["gpus-per-task"]):
            gpus = tasks * _count(given, "gpus-per-task")
        cpus_per_task = _count(given, "cpus-per-task") or 1
        nodes = min(nodes, tasks)
        memory = self._memory(given, max(1, nodes), tasks * cpus_per_task, gpus)
        return _Needs(tasks, cpus_per_task, nodes, memory, gpus)

    def _gpus(self, given: Mapping[str, Directive], nodes: int) -> int:
        for name, times in (("gpus", 1), ("gpus-per-node", nodes)):
            if name in given and not _typed(given[name]):
                return _count(given, name) * times
        match = re.fullmatch(r"gpu(?::(\d+))?", _text(given, "gres"))
        return int(match[1] or 1) * nodes if match else 0

    def _memory(self, given: Mapping[str, Directive], nodes: int, cores: int, gpus: int) -> int:
        for name, times in (("mem", nodes), ("mem-per-cpu", cores), ("mem-per-gpu", gpus)):
            if name in given:
                amount = _parsed(parse_memory, given[name])
                if not amount:
                    self._notes.add(f"{given[name]}, all of a node's memory, is left out", given[name].where)
                return round(amount * times)
        return 0

    def _options(self, given: Mapping[str, Directive], needs: _Needs) -> tuple[str, ...]:
        """Give what is passed on to Slurm as it is, and what keeps tasks together on nodes.

        A stage's `nodes` would be whole nodes with a task for each of their cores, which the script does not ask for.
        """
        per_node = _count(given, "ntasks-per-node")
        if needs.nodes and needs.tasks > 1:
            per_node = per_node or math.ceil(needs.tasks / needs.nodes)
        passed = [f"--ntasks-per-node={per_node}"] if per_node else []
        for name in ("gpus", "gpus-per-node", "gpus-per-task"):
            if name in given and _typed(given[name]):
                passed.append(f"--gres=gpu:{given[name].value}" if name == "gpus" else str(given[name]))
                if name == "gpus" and needs.nodes != 1:
                    self._notes.add("GPUs of a type are asked for on each node, not for the job", given[name].where)
        if "gres" in given and not re.fullmatch(r"gpu(?::\d+)?", _text(given, "gres")):
            passed.append(str(given["gres"]))
        if "exclusive" in given and not given["exclusive"].value:
            self._notes.add("--exclusive: Slurm gives whole nodes, asa counts the cores", given["exclusive"].where)
        return (*passed, *(str(d) for d in given.values() if d.name not in _OF_STAGES | _LEFT_OUT.keys()))

    def _environment(self, given: Mapping[str, Directive]) -> tuple[tuple[str, str], ...]:
        words = _text(given, "export").split(",")
        if "export" in given and "ALL" not in words:
            sentence = "--export: a stage also has the variables of the shell that asa is started in"
            self._notes.add(sentence, given["export"].where)
        pairs = [word.partition("=") for word in words if "=" in word]
        return tuple((name, value) for name, _, value in pairs)

    def _array(self, script: Script, stage: Stage, needs: _Needs) -> list[Stage]:
        elements, at_once = _elements(script.directives["array"])
        counted = {"COUNT": len(elements), "MIN": min(elements), "MAX": max(elements)}
        variables = tuple((f"SLURM_ARRAY_TASK_{name}", str(value)) for name, value in counted.items())
        stage = replace(stage, environment=(*stage.environment, *variables))
        if needs.tasks > 1 or needs.gpus or _LAUNCHES.search(script.text):
            return self._array_of_stages(script, stage, elements, at_once)
        width = max(1, min(len(elements), at_once or len(elements), self._array_cores // needs.cores))
        waves = math.ceil(len(elements) / width)
        self._notes.add(
            f"--array: {len(elements)} elements become tasks of one stage, {width} at a time, and the walltime is "
            f"{waves} times that of one",
            script.directives["array"].where,
        )
        self._tell_of_path(script)
        folder = _text(script.directives, "chdir")
        there = f"cd {shlex.quote(folder)} && " if folder else ""
        job = 'SLURM_ARRAY_JOB_ID="${SLURM_JOB_ID:-0}" ' if "SLURM_ARRAY_JOB_ID" in script.text else ""
        begin = "exec env " if script.path is not None else ""  # so that signals come to the script itself
        widened = replace(
            stage,
            cores=needs.cores * width,
            memory_bytes=needs.memory_bytes * width,
            walltime_s=_within_a_year(stage.walltime_s * waves, script.directives["array"]),
            tasks=tuple(f"{there}{begin}{job}SLURM_ARRAY_TASK_ID={i} {_command(script)}" for i in elements),
        )
        return [widened]

    def _array_of_stages(self, script: Script, stage: Stage, elements: Sequence[int], at_once: int) -> list[Stage]:
        """Give each element a job of its own, for what it starts or the GPUs that it sees would not stay apart."""
        directive = script.directives["array"]
        if len(elements) > _MOST_STAGES_OF_AN_ARRAY:
            raise InputError(
                f"{len(elements)} elements with several tasks, GPUs, or srun need a stage each",
                where=directive.where,
                hint=f"At most {_MOST_STAGES_OF_AN_ARRAY} are made: split the array.",
            )
        sentence = f"--array: {len(elements)} elements become a stage each, for their tasks or GPUs must stay apart"
        self._notes.add(sentence, directive.where)
        if 0 < at_once < len(elements):
            sentence = f"--array: %{at_once} is left out, so that all {len(elements)} stages may run at the same time"
            self._notes.add(sentence, directive.where)
        stages = []
        for element in elements:
            name = self._names.take(f"{stage.name[:50]}-{element}")
            one = replace(stage, name=name, environment=(*stage.environment, ("SLURM_ARRAY_TASK_ID", str(element))))
            if script.path is None or script.arguments or "chdir" in script.directives:
                one = self._with_command(script, one)
            else:
                self.paths[name] = script.path
                one = replace(one, script=script.text)
            self.comments[name] = list(self.comments.get(stage.name, ()))
            stages.append(one)
        return stages


def _command(script: Script) -> str:
    """Write what runs a script, or what is submitted with --wrap."""
    if script.path is None:
        return _text(script.directives, "wrap")
    first = script.text.partition("\n")[0]
    return shlex.join([*first.removeprefix("#!").split(), _path_of(script), *script.arguments])


def _path_of(script: Script) -> str:
    """Name a script for a command that runs it."""
    path = script.path or Path()
    return str(path.absolute() if "chdir" in script.directives else path)


def _text(given: Mapping[str, Directive], name: str) -> str:
    return (given[name].value or "") if name in given else ""


def _count(given: Mapping[str, Directive], name: str) -> int:
    """Read a number that is at least 1; 0 if it is not given."""
    if name not in given:
        return 0
    text = given[name].value or ""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise InputError(f"{given[name]} is no number", where=given[name].where, hint="Write a number, at least 1.")
    return int(text)


def _nodes(directive: Directive) -> int:
    match = re.match(r"(\d+)([kK]?)", directive.value or "")
    if match is None or not int(match[1]):
        raise InputError(f"{directive} is no number of nodes", where=directive.where, hint="Write a number.")
    return int(match[1]) * (1024 if match[2] else 1)


def _typed(directive: Directive) -> bool:
    """Whether GPUs of some type are asked for."""
    return not (directive.value or "").isdigit()


def _parsed(parse: Callable[[str], float], directive: Directive) -> float:
    try:
        return parse(directive.value or "")
    except InputError as error:
        raise InputError(error.message, where=directive.where, hint=error.hint) from error


def _within_a_year(walltime_s: float, directive: Directive) -> float:
    if walltime_s > _YEAR_S:
        raise InputError(
            "its elements would take more than a year, one wave after the other",
            where=directive.where,
            hint="Give --array-cores more cores, or split the array.",
        )
    return walltime_s


def _elements(directive: Directive) -> tuple[list[int], int]:
    """Read the numbers of an array's elements, and how many of them may run at once, 0 for all."""
    listed, _, at_once = (directive.value or "").partition("%")
    elements: set[int] = set()
    for part in listed.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if match is None or (match[3] and not int(match[3])):
            hint = "Write them as sbatch does: 0-19, 1,3,5, 0-99:10, 0-19%4."
            raise InputError(f"{directive} lists no elements", where=directive.where, hint=hint)
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if (last - first) // step >= _MOST_ELEMENTS:
            raise InputError(f"{directive} is too many", where=directive.where, hint=f"At most {_MOST_ELEMENTS}.")
        elements.update(range(first, last + 1, step))
    if not elements or not (at_once.isdigit() or not at_once):
        raise InputError(f"{directive} lists no elements", where=directive.where, hint="Write 0-19 or 0-19%4.")
    return sorted(elements), int(at_once or 0)
