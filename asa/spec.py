"""Workflow files: TOML in, a checked `Workflow` out, and errors that name the file and the line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from asa.errors import InputError, WorkflowError
from asa.units import parse_duration, parse_memory
from asa.workflow import Stage, Workflow

__all__ = ["load_workflow"]


def _text_first(parse: Any, unit: str) -> Any:
    def read(value: object) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"write it in quotes with its unit, such as {unit}")  # noqa: TRY004 - pydantic wants it
        try:
            return parse(value)
        except InputError as error:
            raise ValueError(f"{error.message}. {error.hint}") from error

    return BeforeValidator(read)


Duration = Annotated[float, _text_first(parse_duration, '"30min" or "2:00:00"')]
Memory = Annotated[int, _text_first(parse_memory, '"4G"')]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Count = Annotated[int, Field(strict=True)]  # neither true nor "8" nor 8.0


class _StageSpec(_Model):
    name: str
    cores: Count | None = None
    nodes: Count | None = None
    walltime: Duration
    expected: Duration | None = None
    after: list[str] = Field(default_factory=list)
    command: str = ""
    memory: Memory = 0
    gpus: Count = 0
    partition: str = ""

    def build(self) -> Stage:
        return Stage(
            name=self.name,
            cores=self.cores,
            nodes=self.nodes,
            walltime_s=self.walltime,
            expected_run_s=self.expected,
            after=tuple(self.after),
            command=self.command,
            memory_bytes=self.memory,
            gpus=self.gpus,
            partition=self.partition,
        )


class _WorkflowSpec(_Model):
    name: str
    walltime: Duration | None = None
    stage: list[_StageSpec] = Field(min_length=1)


def load_workflow(path: str | Path) -> Workflow:
    """Read a workflow from a TOML file.

    Parameters
    ----------
    path
        A file with ``name`` and one ``[[stage]]`` table a stage: ``name``, ``cores`` or ``nodes``, ``walltime``, and as
        wanted ``expected``, ``after``, ``command``, ``memory``, ``gpus``, ``partition``.

    Returns
    -------
    Workflow
        Checked.

    Raises
    ------
    InputError
        The file cannot be read, is no TOML, has a key that means nothing here, or describes no possible workflow. The
        message gives file and line.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file), hint="Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where=str(file), hint="Save it as UTF-8.") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        where = f"{file}:{line[1] if line else len(text.splitlines())}"
        raise InputError(f"is no TOML: {error}", where=where, hint="Mend the syntax there.") from error
    places = _Places(file, text)
    stages = document.get("stage")
    if stages is not None and not (isinstance(stages, list) and all(isinstance(stage, dict) for stage in stages)):
        where = places.of_text(r"\s*(\[\s*stage\s*\]|stage\s*=)")
        raise InputError("a stage is no table of its own", where=where, hint="Begin each stage with a line [[stage]].")
    try:
        spec = _WorkflowSpec.model_validate(document)
    except ValidationError as error:
        raise places.explain(error) from error
    try:
        return Workflow(spec.name, [stage.build() for stage in spec.stage], walltime_s=spec.walltime)
    except WorkflowError as error:
        where = places.of_stage(error.where or "", spec)
        raise WorkflowError(f"{error.where}: {error.message}", where=where, hint=error.hint) from error


class _Places:
    """On which line of a workflow file each key stands."""

    _TABLE = re.compile(r"\s*\[\[\s*stage\s*\]\]")
    _KEY = re.compile(r"\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*=")

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        self.text = text
        self.lines: dict[tuple[str | int, ...], int] = {}
        stage = -1
        for number, line in enumerate(text.splitlines(), start=1):
            if self._TABLE.match(line):
                stage += 1
                self.lines["stage", stage] = number
            elif match := self._KEY.match(line):
                key = (match[1],) if stage < 0 else ("stage", stage, match[1])
                self.lines.setdefault(key, number)

    def of(self, location: tuple[str | int, ...]) -> str:
        for length in range(len(location), 0, -1):
            if location[:length] in self.lines:
                return f"{self.file}:{self.lines[location[:length]]}"
        return str(self.file)

    def of_text(self, pattern: str) -> str:
        """Name the first line that begins so."""
        for number, line in enumerate(self.text.splitlines(), start=1):
            if re.match(pattern, line):
                return f"{self.file}:{number}"
        return str(self.file)

    def of_stage(self, where: str, spec: _WorkflowSpec) -> str:
        for index, stage in enumerate(spec.stage):
            if where == f"stage {stage.name!r}":
                return self.of(("stage", index))
        return self.of(("walltime",))

    def explain(self, error: ValidationError) -> InputError:
        # a key that means nothing explains one that is missing, so it comes first
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        location = first["loc"]
        key = next((part for part in reversed(location) if isinstance(part, str)), "")
        model = _StageSpec if "stage" in location[:1] and len(location) > 1 else _WorkflowSpec
        known = ", ".join(model.model_fields)
        if first["type"] == "extra_forbidden":
            where = self.of(location)
            if where == str(self.file):  # a table, which has no line as a key
                where = self.of_text(rf"\s*\[+\s*{re.escape(key)}\b")
            return InputError(f"there is no key {key!r}", where=where, hint=f"Known keys: {known}.")
        if first["type"] == "missing":
            return InputError(f"{key!r} is missing", where=self.of(location), hint=f"Add it. Known keys: {known}.")
        message = str(first["msg"]).removeprefix("Value error, ")
        return InputError(f"{key}: {message}", where=self.of(location), hint="Mend this value.")
