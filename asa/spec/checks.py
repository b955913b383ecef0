"""Checks whether a workflow can run here, although its file is valid: programs, files, the shell's syntax."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import islice
from pathlib import Path

from asa.core.documents import read_text
from asa.core.late import dataclass
from asa.core.reading import run_command
from asa.errors import InputError, near
from asa.job import text as text_of_jobs
from asa.keys import TERMS, keys_of
from asa.requests import without_size
from asa.requests.directives import Directive
from asa.requests.forms import hint_of, takes
from asa.requests.options import OPTIONS
from asa.requests.together import refuse_together
from asa.spec.calls import Scripts, run_by
from asa.spec.environments import lacking
from asa.spec.locations import Location
from asa.spec.made import MadeFiles
from asa.spec.parameters import Parameter
from asa.spec.printed import PRINTED, Prints
from asa.spec.problems import Problem, Severity
from asa.spec.reading import Reading, names_in, read
from asa.spec.schema import SCHEMA_LINE
from asa.spec.shell import BUILTINS, FORMS, LAUNCHERS, SHELLS, Program, ShellText, interpreter_of, read_shell
from asa.spec.withheld import dollars, remedy, uses_of
from asa.units import format_duration, parse_duration, parse_memory
from asa.workflow import Stage, Workflow

_REFUSED = "Slurm would refuse the job when it is submitted."
_SYNTAX = re.compile(r"(?:line )?(\d+): (?:[Ss]yntax error: ?)?(.*)")
_PLAIN = re.compile(r"[\w./=,:+@%^ \t-]+(?:(?:>>?|<)[ \t]*[\w./-]+[ \t]*)*")
_RESERVED = frozenset((
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "select", "function",
))  # fmt: skip
STAND_INS = ("srun", "module", "scontrol")  # the same as in `asa.backends.local`
_LAUNCH_S = 20.0
_MAX_TASKS = 20_000  # of a stage whose tasks are examined: a kilobyte is kept for each
_TO_BASH = "It is bash syntax: make it a script that begins with #!/bin/bash, or write it in POSIX shell."
_SLURM_VARIABLE = re.compile(r"\$(?:(SLURM_[A-Z0-9_]+)|\{(SLURM_[A-Z0-9_]+)(?![A-Z0-9_]|:?[-=+]))")
_SLURM_GIVEN = re.compile(r"\b(SLURM_[A-Z0-9_]+):?=")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{\w+[^}]*\}?|\([^)]*\)?)|`[^`]*`?")
_EXPANDED_IN_PATHS = re.compile(rf"{_VARIABLE.pattern}|^~[^/]*/|^~$|\{{[^{{}}]*(?:,|\.\.)[^{{}}]*\}}")
# what tells a payload, or may tell it, how many cores it has
_TELLS_CORES = re.compile(r"ASA_CORES|SLURM_|OMP_NUM_THREADS|\bnproc\b|cpu_count|sched_getaffinity|\bparallel\b")
_LIKENESS = 0.75  # higher than usual, since there are thousands of names
_SBATCH = re.compile(r"#SBATCH\s+(-[A-Za-z]|--[A-Za-z-]+)(?:[=\s]\s*|(?<=-[A-Za-z]))?([^\s#]*)")
_SHORT = {
    "-n": "--ntasks",
    "-N": "--nodes",
    "-c": "--cpus-per-task",
    "-t": "--time",
    "-p": "--partition",
    "-A": "--account",
}


def check_here(
    path: str | Path,
    parameters: Mapping[str, Parameter] | None = None,
    folder: str | Path = ".",
    *,
    tries_environments: bool = False,
    looks_for_secrets: bool = True,
) -> list[Problem]:
    """Find all problems of a workflow file, and what may keep the workflow from running here.

    Nothing of the workflow is run. Programs are looked for in ``PATH``, files in the folder. With `tries_environments`
    modules are loaded, and conda environments activated. With `looks_for_secrets` stages that use a secret without
    asking for it are named.

    Returns the problems from `asa.spec.check_file`; if none of them is an error, also those found here.
    """
    reading = read(path, parameters)
    if reading.workflow is not None:
        checks = _Checks(reading, reading.workflow, Path(folder))
        checks.run()
        if looks_for_secrets:
            checks.look_for_secrets()
        if tries_environments:
            checks.try_environments()
    _hint_at_schema(reading)
    return sorted(reading.problems, key=lambda problem: (problem.file != str(reading.file), problem.line or 0))


def _hint_at_schema(reading: Reading) -> None:
    if any(problem.line is None or problem.severity == "error" for problem in reading.problems):
        return  # the file is no workflow file, or another mistake must be mended first
    if not reading.locations.lines_of_text[0].startswith(SCHEMA_LINE):
        hint = "`asa schema --out workflow.schema.json`, and make this the first line: #:schema ./workflow.schema.json"
        reading.add_at(1, "an editor can complete and check this file by its schema", hint, "note")


@dataclass(frozen=True, slots=True)
class _Text:
    """Shell text of a stage: its place, and its shell."""

    stage: Stage
    file: str
    first_line: int
    text: str
    shell: str  # empty if the text is not shell code
    is_on_lines: bool = True  # whether the text's lines are lines of the file


class _Checks:
    """All checks of one workflow."""

    def __init__(self, reading: Reading, workflow: Workflow, folder: Path) -> None:
        self._reading = reading
        self._flow = workflow
        self._folder = folder
        self._reported: set[Location] = set()
        self._made = MadeFiles(workflow)
        self._prints = Prints(folder, workflow.stages.values())

    def run(self) -> None:
        texts = [text for stage in self._flow.stages.values() for text in self._texts(stage)]
        read: list[tuple[_Text, ShellText]] = []
        known = {(text.stage.name, text.file) for text in texts}
        for text in texts:  # this list grows: scripts that others pass to a shell are appended
            if text.shell:
                read.append((text, read_shell(text.text)))
                texts += self._given(*read[-1], known)
        self._check_idle(texts)
        self._check_programs(read)
        self._check_forms(read)
        self._check_launchers(read)
        self._check_widths(texts, read)
        self._check_syntax([text for text, _ in read if not _is_plain(text.text)])
        of_stage: dict[str, list[_Text]] = {}
        for text in texts:
            of_stage.setdefault(text.stage.name, []).append(text)
        for stage in self._flow.stages.values():
            self._check_inputs(stage)
            self._check_tasks_file(stage)
            self._check_printed(stage)
            self._check_literal(stage)
            self._check_unlikely(stage)
            self._check_options(stage)
            self._check_for_slurm(stage, of_stage.get(stage.name, []))
        self._check_outputs()
        self._check_scripts()

    def look_for_secrets(self) -> None:
        """Warn of secret variables that a stage uses without asking for them."""
        for stage in self._flow.stages.values():
            self._check_withheld(stage)

    def try_environments(self) -> None:
        """Report which parts of the stages' environments are not available on this machine."""
        for stage, key, message, hint in lacking(self._flow, self._folder):
            self._add(stage, key, message, hint)

    def _add(self, stage: Stage, key: str, message: str, hint: str, severity: Severity = "warning") -> None:
        self._reading.add(
            self._reading.location_of(stage.name, key), f"stage {stage.name!r}: {message}", hint, severity
        )

    # ---------------------------------------------------------------------- payloads

    def _texts(self, stage: Stage) -> Iterator[_Text]:
        locations, file = self._reading.locations, str(self._reading.file)
        if stage.command.strip():
            location = self._reading.location_of(stage.name, "command")
            yield _Text(stage, file, locations.first_line_of_string(location), stage.command, "sh")
        location = self._reading.location_of(stage.name, "tasks")
        for number, task in enumerate(stage.tasks[:_MAX_TASKS]):
            yield _Text(stage, file, locations.line((*location, number)), task, "sh", is_on_lines=False)
        if stage.script:
            path = self._reading.scripts.get(stage.name)
            location = self._reading.location_of(stage.name, "script")
            line = 1 if path is not None else locations.first_line_of_string(location)
            shell = interpreter_of(stage.script)
            yield _Text(stage, str(path or file), line, stage.script, shell if shell in SHELLS else "")
        if stage.tasks_file and not self._made.is_made_before(stage, stage.tasks_file):
            path = self._folder / stage.tasks_file
            for number, task in islice(_tasks_in(path), _MAX_TASKS):
                yield _Text(stage, str(path), number, task, "sh", is_on_lines=False)

    def _given(self, text: _Text, found: ShellText, known: set[tuple[str, str]]) -> Iterator[_Text]:
        """Return the scripts that a text passes to a shell, if they exist and are not known yet."""
        for program in found.programs:
            shell, path = Path(program.name).name, self._folder / program.file
            key = text.stage.name, str(path)
            if shell not in SHELLS or key in known or not self._is_near(program.file, found):
                continue
            known.add(key)
            if not self._made.is_made_before(text.stage, program.file):
                with suppress(OSError):
                    content = read_text(path, errors="replace")
                    yield _Text(text.stage, str(path), 1, content, shell)

    def _check_idle(self, texts: Iterable[_Text]) -> None:
        for text in texts:
            if all(row.lstrip().startswith("#") or not row.strip() for row in text.text.split("\n")):
                message = f"stage {text.stage.name!r}: there is nothing to run"
                hint = "There are only comments: add a command."
                self._reading.problems.append(Problem(text.file, text.first_line, "warning", message, hint))
        stages = self._flow.stages.values()
        if all(stage.is_idle for stage in stages):
            hint = "`asa compare` can use it. To run it, give each stage a command, script, tasks or tasks_file."
            self._reading.add(("stage", 0), "no stage has a command: this is a model", hint, "note")
            return
        for stage in stages:
            if stage.is_idle:
                hint = "Give it command, script, tasks or tasks_file."
                self._add(stage, "", "it has nothing to run", hint, "error")

    # ---------------------------------------------------------------------- programs

    def _check_programs(self, read: Iterable[tuple[_Text, ShellText]]) -> None:
        hidden: dict[str, str] = {}
        reported: set[tuple[str, str]] = set()  # reported once for each stage, however many tasks it has
        for text, shell in read:
            sets_path = any(name == "PATH" for name, _ in text.stage.environment)
            prepared = text.stage.preparation.changes_path if text.stage.preparation else ""
            hides = shell.hides or ("PATH=" if sets_path else prepared)
            if hides:
                hidden.setdefault(text.stage.name, hides)
            for program in shell.programs:
                key = text.stage.name, program.name
                if key not in reported and program.name not in BUILTINS | shell.functions:
                    reported.add(key)
                    self._check_program(text, program, shell, is_hidden=bool(hides))
                key = text.stage.name, program.file
                if program.file and key not in reported:
                    reported.add(key)
                    self._check_file_of_program(text, program, shell)
        if hidden:
            ways = ", ".join(dict.fromkeys(hidden.values()))
            whose = f"stage {next(iter(hidden))}" if len(hidden) == 1 else f"stages {', '.join(hidden)}"
            stage = self._flow.stages[next(iter(hidden))]
            message = f"programs in PATH are not checked in {whose}, which may change it ({ways})"
            location = self._reading.location_of(stage.name, "")
            self._reading.add(location, message, "Try these commands where the stage runs.", "note")

    @cached_property
    def _is_without_cluster(self) -> bool:
        return shutil.which("sbatch") is None

    def _check_launchers(self, read: Iterable[tuple[_Text, ShellText]]) -> None:
        for text, shell in read:
            preparation = text.stage.preparation
            own = next((p.name for p in shell.programs if Path(p.name).name in LAUNCHERS), "")
            if preparation is not None and preparation.launcher and own:
                message = f"{preparation.launcher.split()[0]} starts {own} once per task, which starts processes again"
                self._add(text.stage, "launcher", message, "Leave out `launcher`, or the one in the command.", "error")

    def _check_program(self, text: _Text, program: Program, shell: ShellText, *, is_hidden: bool) -> None:
        name, line = program.name, text.first_line + (program.line if text.is_on_lines else 0)
        if "/" in name:
            path = self._folder / Path(name)
            if shell.moves and not Path(name).is_absolute():
                return
            if not path.exists():
                if self._made.is_made_before(text.stage, name):
                    return
                message, hint = self._missing(name)
            elif path.is_dir() or not os.access(path, os.X_OK):
                message = f"{name}: is {'a folder' if path.is_dir() else 'not executable'}"
                hint = "Name a program." if path.is_dir() else f"chmod +x {name}"
            else:
                return
        elif shutil.which(name) is not None or (is_hidden and not (name in STAND_INS and self._is_without_cluster)):
            return
        else:
            message = f"{name}: not found in PATH here"
            guess = near(name, self._in_path, likeness=_LIKENESS)
            hint = f"{guess}Jobs may have another PATH: if it is there on the compute nodes, ignore this."
            if name in STAND_INS:
                hint = f"On a cluster it is there; here, run with --option slurm=commands, for a stand-in of {name}."
        stage = text.stage.name
        self._reading.problems.append(Problem(text.file, line, "warning", f"stage {stage!r}: {message}", hint))

    def _check_file_of_program(self, text: _Text, program: Program, found: ShellText) -> None:
        name, shell = program.file, Path(program.name).name
        if (
            not self._is_near(name, found)
            or (self._folder / name).exists()
            or self._made.is_made_before(text.stage, name)
        ):
            return
        if name in found.writes or (shell in SHELLS and "/" not in name and shutil.which(name)):
            return
        line = text.first_line + (program.line if text.is_on_lines else 0)
        message, hint = self._missing(name)
        message = f"stage {text.stage.name!r}: {program.name} is given {message}"
        self._reading.problems.append(Problem(text.file, line, "warning", message, hint))

    def _is_near(self, name: str, shell: ShellText) -> bool:
        """Whether commands look for a file that a text names in the folder in which the text starts."""
        return bool(name) and (Path(name).is_absolute() or not shell.moves)

    def _missing(self, name: str) -> tuple[str, str]:
        """Return the error that a file does not exist, and what to do."""
        path = self._folder / name
        where = "" if Path(name).is_absolute() else f" in {self._folder.resolve()}"
        hint = self._nearby(name)
        if not hint:
            guess = near(path.name, names_in(path.parent), likeness=_LIKENESS)
            hint = f"{guess}Correct the path; if an earlier stage makes the file, list it in that stage's `outputs`."
        return f"{name}: no such file{where}", hint

    def _nearby(self, name: str) -> str:
        """Return what to do about a file that is in the workflow file's folder; empty if it is not."""
        if not (self._reading.file.parent / name).is_file():
            return ""
        return (
            f"It is in the folder of {self._reading.file.name}, but commands run where asa is started: start it there."
        )

    @cached_property
    def _in_path(self) -> list[str]:
        names = {name for folder in os.get_exec_path() for name in names_in(Path(folder))}
        return sorted(names)

    def _check_forms(self, read: Iterable[tuple[_Text, ShellText]]) -> None:
        """Report syntax that bash knows, but not the shell that will read it, once for each stage."""
        reported: set[tuple[str, str]] = set()
        for text, found in read:
            words = {p.name: p.line for p in reversed(found.programs) if p.name in BUILTINS - found.functions}
            forms = words | found.forms
            shell = shutil.which(text.shell) if forms and text.shell != "bash" else None
            for form, line in forms.items():
                key = text.stage.name, form
                if shell is not None and key not in reported and not _knows(shell, form):
                    reported.add(key)
                    at = text.first_line + (line if text.is_on_lines else 0)
                    message = f"stage {text.stage.name!r}: {text.shell} runs this, and does not know {form} here"
                    self._reading.problems.append(Problem(text.file, at, "warning", message, _TO_BASH))

    def _check_syntax(self, texts: Sequence[_Text]) -> None:
        if not texts:
            return
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - plain commands do without

        with ThreadPoolExecutor(max_workers=4) as pool:
            complaints = pool.map(lambda text: _complaint(text.shell, text.text), texts)
            for text, complaint in zip(texts, complaints, strict=True):
                if complaint is None:
                    continue
                line, words = complaint
                at = text.first_line + (max(line - 1, 0) if text.is_on_lines else 0)
                at = min(at, text.first_line + text.text.rstrip("\n").count("\n"))
                message = f"stage {text.stage.name!r}: {text.shell} does not understand this: {words}"
                is_bash = shutil.which("bash") and _complaint("bash", text.text) is None
                hint = _TO_BASH if is_bash else "Correct the shell syntax."
                self._reading.problems.append(Problem(text.file, at, "error", message, hint))

    # ---------------------------------------------------------------------- several widths

    def _check_widths(self, texts: Sequence[_Text], read: Sequence[tuple[_Text, ShellText]]) -> None:
        """Report commands that would run the same at each of a stage's widths."""
        for stage in self._flow.stages.values():
            if stage.moldable is None or not stage.moldable.widths:
                continue
            launches = [
                (text, program)
                for text, shell in read
                for program in shell.programs
                if text.stage is stage and program.name in LAUNCHERS
            ]
            if stage.tasks or stage.tasks_file:
                self._check_launches_of_tasks(stage, launches)
                continue
            for text, program in launches:
                if program.ranks.isdigit() and program.ranks != "1":
                    each = stage.cpus_per_task
                    processes = "$ASA_CORES" if each == 1 else f"$((ASA_CORES / {each}))"
                    message = f"{program.name} starts {program.ranks} processes, whichever of its widths it gets"
                    self._add_in(text, program, message, f"Write {processes} in place of {program.ranks}.")
            if not launches and not any(_TELLS_CORES.search(text.text) for text in texts if text.stage is stage):
                message = "it has several widths, but its command does not use the one that it gets"
                hint = "$ASA_CORES is its number of cores; ignore this if the program finds out by itself."
                self._add(stage, "", message, hint, "note")

    def _check_launches_of_tasks(self, stage: Stage, launches: Sequence[tuple[_Text, Program]]) -> None:
        each = stage.cpus_per_task
        cores = "1 core" if each == 1 else f"{each} cores"
        hint = "Leave it out; or run one command with it on $ASA_CORES, in place of tasks."
        for text, program in launches:
            ranks = int(program.ranks) if program.ranks.isdigit() else None
            if ranks is not None and ranks <= each:
                continue
            words = f"starts {ranks} processes in" if ranks else "in"
            message = f"{program.name} {words} one of its tasks, which get {cores} each, however wide it is"
            self._add_in(text, program, message, hint, "error" if program.ranks else "warning")
            return

    def _add_in(self, text: _Text, program: Program, message: str, hint: str, severity: Severity = "warning") -> None:
        line = text.first_line + (program.line if text.is_on_lines else 0)
        message = f"stage {text.stage.name!r}: {message}"
        self._reading.problems.append(Problem(text.file, line, severity, message, hint))

    # ---------------------------------------------------------------------- files

    def _is_there(self, pattern: str) -> bool:
        return bool(glob.glob(pattern, root_dir=self._folder, include_hidden=True))  # noqa: PTH207 - it may be absolute

    def _check_inputs(self, stage: Stage) -> None:
        location = self._reading.location_of(stage.name, "inputs")
        for number, path in enumerate(stage.inputs):
            there = self._made.is_made_before(stage, path) or self._is_there(stage.path_of_any(path))
            if there or _EXPANDED_IN_PATHS.search(path):
                continue
            if maker := self._made.maker(stage, path):
                message = f"{path} is made by stage {maker!r}, which it does not depend on"
                hint = f'Write it in `after`, as in after = ["{maker}"].'
            else:
                message = f"{path} does not exist, and no earlier stage makes it"
                hint = self._nearby(path) or "Correct the path, or list it in `outputs` of the stage that makes it."
            message = f"stage {stage.name!r}: input {message}"
            self._reading.add((*location, number), message, hint, "warning")

    def _check_tasks_file(self, stage: Stage) -> None:
        path = stage.tasks_file
        if not path or self._made.is_made_before(stage, path):
            return
        if (self._folder / path).is_file():
            if not any(_tasks_in(self._folder / path)):
                self._add(stage, "tasks_file", f"there are no tasks in {path}", "Write a command on each line.")
            return
        if _EXPANDED_IN_PATHS.search(path):
            return
        hint = self._nearby(path) or "List it in `outputs` of the stage that makes it, or create it before the run."
        self._add(stage, "tasks_file", f"{path} does not exist, and no earlier stage lists it in `outputs`", hint)

    def _check_printed(self, stage: Stage) -> None:
        """Warn if a stage's output cannot be written to the named file, or would replace the output of other stages."""
        for key in PRINTED:
            pattern = getattr(stage, key)
            if pattern and not _EXPANDED_IN_PATHS.search(pattern):
                for message, hint in self._prints.troubles(stage, pattern):
                    self._add(stage, key, f"{key}: {message}", hint)

    def _check_outputs(self) -> None:
        for stage in self._flow.stages.values():
            for number, path in enumerate(stage.outputs):
                if other := self._made.earlier_maker(stage, path):
                    location = (*self._reading.location_of(stage.name, "outputs"), number)
                    message = f"stage {stage.name!r}: output {path} is made by stage {other!r}, too"
                    hint = "Use different files, so that one stage's result does not hide the failure of another."
                    self._reading.add(location, message, hint, "warning")

    def _check_scripts(self) -> None:
        """Warn of a script that runs the script of another stage."""
        scripts = Scripts(self._reading.scripts)
        for name, path in self._reading.scripts.items():
            stage = self._flow.stages[name]
            for other in run_by(stage.script, [self._folder, path.parent], scripts, path)[:1]:
                message = f"{path.name} itself runs {scripts.paths[other].name}, the script of stage {other!r}, too"
                hint = "It would run twice: remove one of the stages, or the call."
                self._add(stage, "script", message, hint)

    def _check_literal(self, stage: Stage) -> None:
        """Warn of text that a shell would expand, in places where no shell does."""
        texts = {key: (getattr(stage, key),) for key in ("tasks_file", *PRINTED)}
        for key, paths in ({"inputs": stage.inputs, "outputs": stage.outputs} | texts).items():
            for number, path in enumerate(paths):
                match = _EXPANDED_IN_PATHS.search(path)
                if match and not self._is_there(path):
                    location = self._reading.location_of(stage.name, key)
                    hint = "Write the path itself, or use a parameter: {{name}}, under [parameters]."
                    if "{" in match[0] and "$" not in match[0]:
                        hint = "Write a path for each, or a pattern with * ? []."
                    message = f"{key}: {path} is used literally, {match[0]}, too"
                    self._add_at((*location, number), stage, message, hint)
        for name, value in stage.environment:
            if match := _VARIABLE.search(value):
                message = f"environment: the value of {name} is used literally, {match[0][0]}, too"
                hint = f"Write the value itself, or set it in the command: export {name}=... in the command."
                self._add_at(self._location_of_variable(stage, name), stage, message, hint)

    def _check_unlikely(self, stage: Stage) -> None:
        """Warn of values that are probably mistakes."""
        for key in keys_of(Stage):
            if key.unlikely is not None and (doubt := key.unlikely(getattr(stage, key.field))):
                self._add(stage, key.name, *doubt)

    def _location_of_variable(self, stage: Stage, name: str) -> Location:
        own = (*self._reading.location_of(stage.name, "environment"), name)
        return own if self._reading.locations.has(own) else ("defaults", "environment", name)

    def _add_at(self, location: Location, stage: Stage, message: str, hint: str) -> None:
        if location not in self._reported:  # a value in the defaults is reported once for all stages
            self._reported.add(location)
            self._reading.add(location, f"stage {stage.name!r}: {message}", hint, "warning")

    def _check_withheld(self, stage: Stage) -> None:
        uses = uses_of(stage, self._folder)
        if uses:
            names, first = [use.name for use in uses], uses[0]
            are = "holds a secret" if len(names) == 1 else "hold secrets"
            message = (
                f"{dollars(names)} {are} here, and the stage does not ask for {'it' if len(names) == 1 else 'them'}"
            )
            hint = f"Jobs get no secret that their stage does not ask for: {remedy(names)}."
            if first.file:
                message = f"stage {stage.name!r}: {message}"
                self._reading.problems.append(Problem(first.file, first.line, "warning", message, hint))
            else:
                self._add(stage, first.key, message, hint)

    # ---------------------------------------------------------------------- parts meant for Slurm

    def _check_options(self, stage: Stage) -> None:
        """Warn of options that sbatch refuses before it asks a controller."""
        given: dict[str, Directive] = {}
        for key, options in (("request", stage.request or ()), ("options", without_size(stage.options))):
            for option in options:
                name, equals, value = option.removeprefix("--").partition("=")
                given[name] = Directive(name, value if equals else None, key)
                if not takes(name, value if equals else None):
                    self._add(stage, key, f"{option} has no value that sbatch takes", hint_of(name, _REFUSED))
                elif key == "options" and name in OPTIONS and (instead := OPTIONS[name].instead):
                    self._add(stage, key, f"--{name} is not for `options`", instead)
        if stage.request is not None:
            try:
                refuse_together(given)
            except InputError as error:
                self._add(stage, error.where or "request", error.message, _REFUSED)

    def _check_for_slurm(self, stage: Stage, texts: Sequence[_Text]) -> None:
        given = stage.own_variables.union(name for name, _ in stage.environment).union(
            *(_SLURM_GIVEN.findall(text.text) for text in texts)
        )
        found: dict[str, tuple[str, int]] = {}
        for text in texts:
            for name, line in _of_slurm(text):
                if name not in given and name not in _set_here():
                    found.setdefault(name, (text.file, line))
        if found:
            names = list(found)
            file, line = found[names[0]]
            are = "is" if len(names) == 1 else "are"
            message = f"stage {stage.name!r}: {', '.join(names)} {are} set under Slurm only"
            hint = f"To run it elsewhere, too, give a default, as in ${{{names[0]}:-1}}."
            self._reading.problems.append(Problem(file, line, "note", message, hint))
        for text in texts:
            if text.text == stage.script:
                self._check_directives(text)

    def _check_directives(self, text: _Text) -> None:
        for number, row in enumerate(text.text.splitlines()):
            if row.strip() and not row.startswith("#"):
                return
            if (match := _SBATCH.match(row)) and (contradicted := _contradicted(text.stage, match[1], match[2])):
                message = f"stage {text.stage.name!r}: {row.split(' #')[0].strip()} has no effect here"
                hint = f"The stage has {contradicted}. Remove the line, or change the stage."
                self._reading.problems.append(Problem(text.file, text.first_line + number, "note", message, hint))


def _tasks_in(path: Path) -> Iterator[tuple[int, str]]:
    """Return the tasks in a file with their lines; none if it cannot be read."""
    try:
        rows = read_text(path, errors="replace").split("\n") if path.is_file() else []
    except OSError:
        return
    for number, row in enumerate(rows, start=1):
        if row.strip() and not row.lstrip().startswith("#"):
            yield number, row


def _of_slurm(text: _Text) -> Iterator[tuple[str, int]]:
    """Return the variables that only Slurm sets and that have no default in the text, each with its line."""
    for number, row in enumerate(text.text.split("\n")):
        if row.lstrip().startswith("#"):
            continue
        for match in _SLURM_VARIABLE.finditer(row):
            yield match[1] or match[2], text.first_line + (number if text.is_on_lines else 0)


def _is_plain(text: str) -> bool:
    """Whether a text has only words and files, which any shell understands: there may be thousands of such tasks."""
    return _PLAIN.fullmatch(text) is not None and _RESERVED.isdisjoint(text.split())


@cache
def _set_here() -> frozenset[str]:
    """Return the names of the Slurm variables that jobs of this computer also have."""
    return frozenset(re.findall(r"\bSLURM_[A-Z0-9_]+(?==)", text_of_jobs("script-here"))) | {"SLURM_SUBMIT_DIR"}


@cache
def _knows(shell: str, form: str) -> bool:
    """Whether a shell, given by its path, knows a word or a form; True if the shell cannot be run."""
    test = FORMS.get(form, f"command -v {form}")
    with suppress(OSError, subprocess.TimeoutExpired):
        return run_command([shell, "-c", test], timeout_s=_LAUNCH_S).returncode == 0
    return True


def _complaint(name: str, text: str) -> tuple[int, str] | None:
    """Let a shell parse a text without running it; return the line and the message of its complaint."""
    shell = shutil.which(name)
    if shell is None:
        return None
    try:
        done = run_command([shell, "-n"], stdin=text, timeout_s=_LAUNCH_S)  # with -n a shell runs nothing
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return None
    first = (done.stderr.strip().splitlines() or ["it says no more"])[0].split(": ", 1)[-1]
    match = _SYNTAX.match(first)
    return (int(match[1]), match[2]) if match else (1, first)


_SAID_BY_OPTIONS = (*TERMS, *(key for key in keys_of(Stage) if key.option and key.notation is not None))


def _contradicted(stage: Stage, option: str, value: str) -> str:
    """Return a stage's key and value that contradict an #SBATCH line; empty if none do."""
    option = _SHORT.get(option, option)
    tasks = None if stage.cores is None else stage.cores // stage.cpus_per_task
    said: dict[str, tuple[str, float | str | None]] = {
        "--ntasks": (f"cores = {stage.cores}", tasks),
        "--nodes": (f"nodes = {stage.nodes}", stage.nodes),
        "--cpus-per-task": (f"cpus_per_task = {stage.cpus_per_task}", stage.cpus_per_task),
        "--time": (f"a walltime of {format_duration(stage.walltime_s)}", stage.walltime_s),
        "--mem": (f"memory of {stage.memory_bytes} bytes", stage.memory_bytes or None),
        "--partition": (f'partition = "{stage.partition}"', stage.partition or None),
        **{
            f"--{key.option}": (f"{key.name} = {json.dumps(value, default=str)}", value or None)
            for key in _SAID_BY_OPTIONS
            for value in [getattr(stage, key.field)]
        },
    }
    reads: dict[str, Callable[[str], object]] = {f"--{key.option}": key.of_option for key in _SAID_BY_OPTIONS}
    reads |= {"--time": parse_duration, "--mem": parse_memory}
    words, mine = said.get(option, ("", None))
    if mine is None:
        return ""
    try:
        theirs = reads.get(option, str)(value)
    except InputError:
        return ""
    return "" if str(theirs) == str(mine) or theirs == mine else words
