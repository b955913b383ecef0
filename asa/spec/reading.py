"""Reads workflow files: inserts parameters, applies defaults, and reports every mistake with its line."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from asa.continuation import KEYS as LEG_KEYS
from asa.core.documents import TooDeepError, read_text, read_toml
from asa.errors import InputError, WorkflowError, near, nearest
from asa.spec.foreign import recognize
from asa.spec.keys import WAYS
from asa.spec.locations import Location, Locations
from asa.spec.model import StageSettings, StageSpec, WorkflowSpec
from asa.spec.moldable import AskedShapes
from asa.spec.parameters import PLACEHOLDER, Parameter, fill, is_text_of_script, read_as
from asa.spec.problems import Problem, Severity, means, missing_of_stage, of_model
from asa.spec.stages import fields_of
from asa.workflow import Stage, Workflow

_MAX_BITS = 63  # TOML's limit
_PAIR = re.compile(r"(\s*+[\w.-]++\s*+=\s*+)(.*)")
_LIST = re.compile(r"\[(.*)\]")
_ONE_OF = (WAYS, ("cores", "ntasks", "nodes", "request"))


@dataclass(slots=True)
class Reading:
    """The result of reading a workflow file, as far as that was possible."""

    file: Path
    locations: Locations  # the lines of all keys and values
    problems: list[Problem] = field(default_factory=list)  # what was found, in order of their lines
    workflow: Workflow | None = None  # none if there is an error
    # the places of stages' values: the stage's name and key to the location
    origins: dict[tuple[str, str], Location] = field(default_factory=dict)
    scripts: dict[str, Path] = field(default_factory=dict)  # path of the script of each stage that has one in a file

    def add(self, location: Location, message: str, hint: str, severity: Severity = "error") -> None:
        """Report a problem at a location."""
        self.add_at(self.locations.line(location), message, hint, severity)

    def add_at(self, line: int | None, message: str, hint: str, severity: Severity = "error") -> None:
        """Report a problem on a line."""
        problem = Problem(str(self.file), line, severity, message, hint)
        if problem not in self.problems:
            self.problems.append(problem)

    def location_of(self, stage: str, key: str) -> Location:
        """Return the place of a stage's key: in the stage itself, or in the defaults."""
        return self.origins.get((stage, key), self.origins.get((stage, ""), ()))

    @property
    def errors(self) -> list[Problem]:
        """The problems that prevent the file from being read."""
        return [problem for problem in self.problems if problem.severity == "error"]


def load_workflow(path: str | Path, parameters: Mapping[str, Parameter] | None = None) -> Workflow:
    """Read a workflow from a TOML file.

    Parameters
    ----------
    path
        A file with ``name`` and one ``[[stage]]`` table for each stage: ``name``, what it runs (``command``,
        ``script``, ``tasks`` or ``tasks_file``), ``cores`` or ``nodes``, ``walltime``, and other keys that `asa schema`
        describes.
    parameters
        Values in place of those under ``[parameters]`` in the file. Text is converted to the type of the value there.

    Returns
    -------
    Workflow
        Checked.

    Raises
    ------
    InputError
        The file cannot be read, is no TOML, has an unknown key, or describes no possible workflow. The message gives
        file and line of the first mistake; `check_file` returns all.
    """
    reading = read(path, parameters)
    if reading.workflow is None:
        raise reading.errors[0].error()
    return reading.workflow


def check_file(path: str | Path, parameters: Mapping[str, Parameter] | None = None) -> list[Problem]:
    """Find all problems of a workflow file.

    Parameters
    ----------
    path, parameters
        As for `load_workflow`.

    Returns
    -------
    list of Problem
        In order of their lines; if none is an error, `load_workflow` reads the file.
    """
    return read(path, parameters).problems


def parameters_of(path: str | Path) -> dict[str, Parameter]:
    """Return a workflow file's parameters with their values there.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    dict
        By name, in the order of the file.

    Raises
    ------
    InputError
        The file cannot be read, is no TOML, or its parameters have invalid values.
    """
    reading, document = _open(Path(path))
    parameters = {} if document is None else _defaults_of_parameters(reading, document)
    if reading.errors:
        raise reading.errors[0].error()
    return parameters


def near_parameter(path: str | Path, name: str) -> str | None:
    """Name the parameter of a workflow file that was probably meant by another name.

    Parameters
    ----------
    path
        The file.
    name
        What was written.

    Returns
    -------
    str or None
        The parameter; None if none is similar, or if the name is one itself.

    Raises
    ------
    InputError
        As by `parameters_of`.
    """
    known = parameters_of(path)
    return None if name in known else nearest(name, known)


def names_in(folder: Path) -> list[str]:
    """Return the names of a folder's entries; none if it cannot be read."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def read(path: str | Path, parameters: Mapping[str, Parameter] | None = None) -> Reading:
    """Read a workflow file; return the workflow with all problems and locations."""
    reading, document = _open(Path(path))
    if document is None:
        return reading
    filled = _fill(reading, document, parameters or {})
    merged, origins = _with_defaults(filled)
    spec = _validate(reading, merged, origins)
    stages = _build(reading, spec)
    _check_graph(reading, merged)
    if not reading.errors:
        _complete(reading, merged, list(stages.values()))
    reading.problems.sort(key=lambda problem: problem.line or 0)
    return reading


# ---------------------------------------------------------------------- the file


def _open(file: Path) -> tuple[Reading, dict[str, Any] | None]:
    reading = Reading(file, Locations(file, ""))
    try:
        text = read_text(file, "utf-8-sig")
    except OSError as error:
        reading.add_at(None, f"cannot be read: {error.strerror}", "Check the path.")
        return reading, None
    except UnicodeDecodeError:
        reading.add_at(None, "is not UTF-8 text", "Save it as UTF-8.")
        return reading, None
    reading.locations = Locations(file, text)
    try:
        document = read_toml(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+), column \d+\)\Z", str(error))
        line = int(match[1]) if match else text.rstrip("\n").count("\n") + 1
        if not _is_foreign(reading, text):
            reading.add_at(
                line, f"is not valid TOML: {error}", _hint_at_quotes(reading.locations.lines_of_text[line - 1])
            )
        return reading, None
    except ValueError as error:  # limits of Python
        what = "brackets are too deep" if isinstance(error, TooDeepError) else "a number has too many digits"
        reading.add_at(_longest_line(text), f"cannot be understood: {what}", "Write it shorter.")
        return reading, None
    if "stage" not in document and _is_foreign(reading, text):
        return reading, None
    _check_values(reading, document, ())
    return reading, document if _has_tables(reading, document) else None


def _is_foreign(reading: Reading, text: str) -> bool:
    """Whether the file belongs to another tool; if so, report the command that reads it."""
    if foreign := recognize(reading.file, text):
        reading.add_at(None, f"is {foreign.what}, not a workflow file", foreign.hint)
    return foreign is not None


def _hint_at_quotes(row: str) -> str:
    """Show how to write a line whose value lacks quotes."""
    pair = _PAIR.fullmatch(row)
    value = pair[2].split(" #")[0].rstrip() if pair else ""
    if not pair or not value:
        return "Correct the syntax there."
    if value in {"True", "False"}:
        return f"It is written so: {pair[1].strip()} {value.lower()}"
    listed = _LIST.fullmatch(value)
    quoted = json.dumps([part.strip() for part in listed[1].split(",")] if listed else value, ensure_ascii=False)
    meant = f"{pair[1].strip()} {quoted}"
    is_bare = not (_is_toml(row) or value[0] in "\"'{" or (listed and re.search("[\"'{]", value)))
    return f"Text stands in quotes: {meant}" if is_bare and _is_toml(meant) else "Correct the syntax there."


def _is_toml(text: str) -> bool:
    try:
        read_toml(text)
    except ValueError:
        return False
    return True


def _longest_line(text: str) -> int:
    lines = text.split("\n")
    return 1 + max(range(len(lines)), key=lambda number: len(lines[number]))


def _check_values(reading: Reading, value: object, location: Location) -> None:
    """Report values that are valid TOML but cannot be used: null bytes, and numbers beyond TOML's range."""
    if isinstance(value, dict):
        for key, part in value.items():
            _check_values(reading, f"{key}", (*location, key))
            _check_values(reading, part, (*location, key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            _check_values(reading, part, (*location, number))
    elif isinstance(value, str) and "\0" in value:
        reading.add(location, "has a null byte, which nothing that is run can have", "Take \\u0000 out.")
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        reading.add(location, "a number has too many digits", "Write a smaller one.")


def _has_tables(reading: Reading, document: Mapping[str, Any]) -> bool:
    """Whether stages, defaults and parameters are tables, so that their entries can be read."""
    stages = document.get("stage", [])
    if not (isinstance(stages, list) and all(isinstance(stage, dict) for stage in stages)):
        reading.add(("stage",), "a stage is not a table of its own", "Start each stage with a line [[stage]].")
    for name in ("defaults", "parameters"):
        if not isinstance(document.get(name, {}), dict):
            reading.add((name,), f"{name!r} is no table", f"Begin it with a line [{name}].")
    return not reading.problems


# ---------------------------------------------------------------------- parameters


def _defaults_of_parameters(reading: Reading, document: Mapping[str, Any]) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for name, value in document.get("parameters", {}).items():
        if not isinstance(value, str | int | float) or value != value or value in {float("inf"), -float("inf")}:  # noqa: PLR0124 - that is NaN
            reading.add(
                ("parameters", name), f"{name}: a parameter is text, a number, true or false", "Correct this value."
            )
        elif isinstance(value, str) and PLACEHOLDER.search(value):
            reading.add(
                ("parameters", name), f"{name}: a parameter cannot refer to another", "Write its value, or use both."
            )
        parameters[name] = value
    return parameters


def _fill(reading: Reading, document: dict[str, Any], given: Mapping[str, Parameter]) -> dict[str, Any]:
    parameters = _defaults_of_parameters(reading, document)
    known = ", ".join(parameters)
    for name, value in given.items():
        if name not in parameters:
            hint = f"{near(name, parameters)}Known: {known}." if known else "Name it under [parameters] first."
            reading.add(("parameters",), f"there is no parameter {name!r}", hint)
            continue
        try:
            parameters[name] = read_as(value, parameters[name])
        except ValueError as error:
            reading.add(
                ("parameters", name), f"{name}: {value!r} is not {error}", "Give another, or correct its default."
            )

    def unknown(location: Location, text: str) -> None:
        name = text.strip("{} \t")
        line = reading.locations.line_of_text(location, text)
        hint = f"{near(name, parameters)}Known: {known}." if known else "Name it, with a value, under [parameters]."
        reading.add_at(line, f"there is no parameter {name!r}", hint)

    used: set[str] = set()
    filled = {
        key: value if key == "parameters" else fill(value, parameters, (key,), unknown, used)
        for key, value in document.items()
    }
    for name in parameters:
        if name not in used:
            hint = f"Use it as {{{{{name}}}}}, or remove it."
            reading.add(("parameters", name), f"parameter {name!r} is not used", hint, "warning")
    return filled


# ---------------------------------------------------------------------- defaults


def _with_defaults(document: dict[str, Any]) -> tuple[dict[str, Any], dict[Location, Location]]:
    """Fill each stage from the defaults; also return the places of these values."""
    defaults = document.get("defaults", {})
    taken: dict[Location, Location] = {}
    stages = []
    for number, stage in enumerate(document.get("stage", [])):
        merged = dict(stage)
        for key, value in defaults.items():
            group = next((group for group in _ONE_OF if key in group), (key,))
            if key == "environment" and isinstance(value, dict) and isinstance(stage.get(key), dict):
                merged[key] = value | stage[key]
                taken.update({("stage", number, key, name): (key,) for name in value if name not in stage[key]})
            elif key in StageSettings.model_fields and not any(other in stage for other in group):
                merged[key] = value
                taken["stage", number, key] = ("defaults", key)
        stages.append(merged)
    return ({**document, "stage": stages} if "stage" in document else document), taken


# ---------------------------------------------------------------------- the model


def _validate(reading: Reading, document: dict[str, Any], taken: Mapping[Location, Location]) -> dict[int, StageSpec]:
    """Check everything with the model; return the valid stages, by number."""
    stages = document.get("stage", [])
    names = [stage["name"] if isinstance(stage.get("name"), str) else None for stage in stages]
    bad: set[int] = set()
    valid: Mapping[int, StageSpec] = {}
    try:
        valid = dict(enumerate(WorkflowSpec.model_validate(document).stage))
    except ValidationError as error:
        _tell(reading, error, names, taken, bad)
    for number, (stage, name) in enumerate(zip(stages, names, strict=True)):
        here: Location = ("stage", number)
        for key in stage:
            reading.origins[name or "", key] = taken.get((*here, key), (*here, key))
        reading.origins[name or "", ""] = here
        for key in _lacks(stage):
            if not any(means(other, key) for other in stage if other not in StageSpec.model_fields):
                reading.add(here, *missing_of_stage(key, name))
            bad.add(number)
    good = (number for number in range(len(stages)) if number not in bad)
    return {number: valid.get(number) or StageSpec.model_validate(stages[number]) for number in good}


def _lacks(stage: Mapping[str, Any]) -> list[str]:
    """Return the required keys that a stage has neither itself nor from the defaults, unless it is local."""
    if str(stage.get("local")).lower() == "true":
        return []
    has_size = any(key in stage for key in _ONE_OF[1])
    return ([] if has_size else ["cores"]) + ([] if "walltime" in stage else ["walltime"])


def _tell(
    reading: Reading,
    error: ValidationError,
    names: list[str | None],
    taken: Mapping[Location, Location],
    bad: set[int],
) -> None:
    errors = error.errors()
    missing, meant = _missing(errors)
    for each in errors:
        location = each["loc"]
        if location[0] == "stage" and len(location) > 1 and isinstance(location[1], int):
            bad.add(location[1])
        if location in meant or location[:3] in taken or location[:4] in taken:  # reported at another place
            continue
        if isinstance(each["input"], str) and PLACEHOLDER.search(each["input"]):  # reported: no such parameter
            continue
        if location[0] == "parameters":  # already reported, unless its name is wrong
            if location[-1] == "[key]":
                name = str(location[1])
                reading.add(("parameters", name), f"{name!r} is no name of a parameter", "Letters, digits and '_'.")
            continue
        reading.add(location, *of_model(each, names, missing.get(location[:-1], set())))


def _missing(errors: list[ErrorDetails]) -> tuple[dict[Location, set[str]], set[Location]]:
    """Return the missing keys of each table, and the places of unknown keys that probably mean one of them."""
    missing: dict[Location, set[str]] = {}
    for each in errors:
        if each["type"] == "missing":
            missing.setdefault(each["loc"][:-1], set()).add(str(each["loc"][-1]))
    meant: set[Location] = set()
    for each in errors:
        if each["type"] == "extra_forbidden":
            table, written = each["loc"][:-1], str(each["loc"][-1])
            meant |= {(*table, key) for key in missing.get(table, ()) if means(written, key)}
    return missing, meant


# ---------------------------------------------------------------------- stages


def _build(reading: Reading, specs: Mapping[int, StageSpec]) -> dict[int, Stage]:
    stages = {}
    for number, spec in specs.items():
        script = _script_of(reading, spec, ("stage", number))
        if script is None:
            continue
        if spec.cores is not None and spec.ntasks is not None:
            reading.add(("stage", number, "ntasks"), f"stage {spec.name!r}: has cores and ntasks", "Give one of them.")
            continue
        given, where = spec.given(script), f"stage {str(spec.name)!r}"
        try:
            stages[number] = Stage(**fields_of(given, where=where))
            for remark in AskedShapes(given, where).remarks():
                key = "ntasks" if remark.key == "cores" and spec.ntasks is not None else remark.key
                location = reading.location_of(spec.name, key)
                reading.add(location, f"stage {spec.name!r}: {remark.message}", remark.hint, "note")
        except WorkflowError as error:
            reading.add(_where(error, number, reading), f"{error.where}: {error.message}", error.hint or "")
    return stages


_OF_KEY = (
    ("request:", "request"),
    ("is expected to run", "expected"),
    ("asks for a walltime", "walltime"),
    ("cores in tasks of", "cpus_per_task"),
    ("bytes of memory", "memory"),
    ("no run time is known", "expected"),
    ("there is no walltime", "walltime"),
    ("says 'expected'", "expected"),
    *((f"says '{key}'", key) for key in LEG_KEYS),
    ("is to be warned", "warn"),
    ("legs at most", "max_legs"),
    ("that it is not done", "unfinished"),
    ("shows its progress", "progress"),
    ("continues in legs", "continues"),
)


def _where(error: WorkflowError, number: int, reading: Reading) -> Location:
    """Return the location of a stage's problem; the stage's own heading if the location is not known."""
    here: Location = ("stage", number)
    key = next((key for words, key in _OF_KEY if words in error.message), "")
    return (*here, key) if reading.locations.has((*here, key)) else here


def _script_of(reading: Reading, spec: StageSpec, here: Location) -> str | None:
    """Read a stage's script; report an error and return None if that is not possible."""
    if spec.script is None:
        return ""
    given = str(spec.script)
    if is_text_of_script(given):
        return given
    location = reading.location_of(str(spec.name), "script") or here
    try:
        path, text = _script_in_file(given, reading.file)
    except InputError as error:
        reading.add(location, error.message, error.hint or "")
        return None
    reading.scripts[str(spec.name)] = path
    return text


def _script_in_file(given: str, file: Path) -> tuple[Path, str]:
    """Read the script that a workflow file names."""
    where = f"Paths of scripts are relative to {file.name}'s folder."
    try:
        path = file.parent / Path(given).expanduser()
        text = read_text(path)
    except RuntimeError as error:
        raise InputError(f"the script {given} cannot be read: there is no such user", hint=where) from error
    except OSError as error:
        guess = near(path.name, names_in(path.parent)) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"the script {given} cannot be read: {error.strerror}", hint=f"{guess}{where}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the script {given} is not UTF-8 text", hint="Run a program with `command`.") from error
    if "\0" in text:
        raise InputError(f"the script {given} is not text", hint="Run a program with `command`.")
    if not text.strip():
        raise InputError(f"the script {given} is empty", hint="Write commands into it, or name another.")
    return path, text


def _check_graph(reading: Reading, document: dict[str, Any]) -> None:
    """Check names and edges, as far as they are known, also if another stage has a mistake."""
    stages = document.get("stage", [])
    names: dict[str, int] = {}
    is_clear = True
    for number, stage in enumerate(stages):
        name = stage.get("name")
        if isinstance(name, str) and name in names:
            first = reading.locations.line(("stage", names[name], "name"))
            message = f"stage {name!r}: there are two stages of this name"
            reading.add(("stage", number, "name"), message, f"Rename one; the other is on line {first}.")
            is_clear = False
        elif isinstance(name, str):
            names[name] = number
    edges = list(_edges(reading, stages, names))
    if is_clear:
        _check_cycles(reading, names, edges)


def _edges(reading: Reading, stages: list[Any], names: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Return each pair of stages that follow each other; report names of stages that do not exist."""
    for number, stage in enumerate(stages):
        befores, name = stage.get("after", []), stage.get("name")
        if not isinstance(befores, list) or not isinstance(name, str):
            continue
        for index, before in enumerate(befores):
            if not isinstance(before, str):
                continue  # reported by the model
            if before in names:
                yield before, name
            else:
                hint = f"{near(before, names)}Stages are: {', '.join(names)}."
                message = f"stage {name!r}: depends on {before!r}, which is not a stage"
                reading.add(("stage", number, "after", index), message, hint)


def _check_cycles(reading: Reading, names: Mapping[str, int], edges: list[tuple[str, str]]) -> None:
    befores: dict[str, list[str]] = {}
    for before, name in edges:
        befores.setdefault(name, []).append(before)
    try:
        TopologicalSorter(befores).prepare()
    except CycleError:  # it names only one of the cycles
        _tell_cycles(reading, names, edges)


def _tell_cycles(reading: Reading, names: Mapping[str, int], edges: list[tuple[str, str]]) -> None:
    import networkx as nx  # noqa: PLC0415 - takes a tenth of a second, and good files do without

    graph: nx.DiGraph[str] = nx.DiGraph(edges)
    parts = [sorted(part, key=names.__getitem__) for part in nx.strongly_connected_components(graph)]
    for ring in sorted(parts, key=lambda part: names[part[0]]):
        first = ring[0]
        if len(ring) > 1 or graph.has_edge(first, first):
            cycle = nx.find_cycle(graph.subgraph(ring), first)
            path = " -> ".join([edge[0] for edge in cycle] + [cycle[0][0]])
            message = f"stage {first!r}: depends on itself: {path}"
            reading.add(("stage", names[first], "after"), message, "Remove one of these dependencies.")


def _complete(reading: Reading, document: dict[str, Any], stages: list[Stage]) -> None:
    spec = WorkflowSpec.model_validate(document)
    try:
        reading.workflow = Workflow(str(spec.name), stages, walltime_s=spec.walltime)
    except WorkflowError as error:
        reading.add(("walltime",), f"{error.where}: {error.message}", error.hint or "")
