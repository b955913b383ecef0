"""The keys of a workflow file: their meaning and the values that they take."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
    create_model,
)

from asa.errors import InputError, near
from asa.keys import Key, Notation
from asa.shapes import Law, Scaling
from asa.spec.keys import RETRIES, SETTINGS, WHEN
from asa.spec.moldable import (
    MAX_WIDTHS,
    RANGE_PATTERN,
    Expectation,
    at_widths,
    distinct,
    is_by_width,
    job_range,
    partitions_of,
    read_scaling,
    several,
    width_of,
)
from asa.spec.parameters import Filled
from asa.units import parse_duration, parse_memory, parse_storage
from asa.workflow import (
    MAX_CORES,
    MAX_JOBS,
    MAX_RETRIES,
    MAX_RETRY_FACTOR,
    NAME_PATTERN,
    VARIABLE_PATTERN,
)

LOCAL_WALLTIME_S = 600.0
"""Default walltime of a local stage."""

_UNITS = (
    r"(?:[sS](?:[eE][cC](?:[oO][nN][dD])?[sS]?)?|[mM](?:[iI][nN](?:[uU][tT][eE])?[sS]?)?"
    r"|[hH](?:[oO][uU][rR][sS]?|[rR][sS]?)?|[dD](?:[aA][yY][sS]?)?)"
)
DURATION_PATTERN = (
    r"^(?=.*[1-9])\s*(?:(?:[0-9]+(?:\.[0-9]+)?\s*"
    + _UNITS
    + r"\s*)+|[0-9]+-[0-9]+(?::[0-9]+){0,2}|[0-9]+(?::[0-9]+){0,2})\s*$"
)
MEMORY_PATTERN = r"^\s*[0-9]+(?:\.[0-9]+)?\s*[kKmMgGtTpP]?(?:[iI]?[bB])?\s*$"
STORAGE_PATTERN = r"^\s*[0-9]+(?:\.[0-9]+)?\s*[kKmMgGtTpP](?:[iI]?[bB])?\s*$"
TEMPLATE_PATTERN = r"\{\{[ \t]*[A-Za-z_][A-Za-z0-9_-]*[ \t]*\}\}"
PARAMETER_NAME = r"^[A-Za-z_][A-Za-z0-9_-]*$"
_VARIABLE = rf"^{VARIABLE_PATTERN}$"
_NAME = rf"^{NAME_PATTERN}$"


def _like(*patterns: str) -> dict[str, Any]:
    return {"type": "string", "anyOf": [{"pattern": pattern} for pattern in patterns]}


def _numbers(kind: str, **limits: float) -> dict[str, Any]:
    return {"anyOf": [{"type": kind, **limits}, _TEMPLATE]}


def _table(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def _any_of(*schemas: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": list(schemas)})


_TEMPLATE = {"type": "string", "pattern": TEMPLATE_PATTERN}
_DURATION = _like(DURATION_PATTERN, TEMPLATE_PATTERN)
_MEMORY = _like(MEMORY_PATTERN, TEMPLATE_PATTERN)
_FACTOR = _numbers("number", minimum=1, maximum=MAX_RETRY_FACTOR)
_COUNT = {"type": "integer", "minimum": 1, "maximum": MAX_CORES}
_BY_WIDTH = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"anyOf": [{"pattern": "^[0-9]+$"}, {"pattern": TEMPLATE_PATTERN}]},
    "additionalProperties": _DURATION,
}


def _checked(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Convert refusals to errors that pydantic understands."""

    def read(value: Any) -> Any:
        try:
            return parse(value)
        except InputError as error:
            raise ValueError(error.message) from error  # its hint is shown, too

    return read


def _text_first(parse: Any, unit: str) -> Any:
    def read(value: object) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"write it in quotes with its unit, such as {unit}")  # noqa: TRY004 - pydantic wants it
        return _checked(parse)(value)

    return BeforeValidator(read)


def _number(kind: Callable[[str], object]) -> BeforeValidator:
    """Convert text to a number if a parameter was inserted into it."""

    def read(value: object) -> object:
        if not isinstance(value, Filled):
            return value
        try:
            return kind(value)
        except ValueError:
            return str(value)

    return BeforeValidator(read)


def _truth(value: object) -> object:
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, Filled) else value


def _positive(seconds: float) -> float:
    if not seconds > 0:
        raise ValueError("must be longer than 0")
    return seconds


def _whole(least: int, most: int) -> tuple[Any, ...]:
    """Return the annotations of an int within bounds."""
    limits = {"minimum": least, "maximum": most}
    return _number(int), Field(strict=True, ge=least, le=most), WithJsonSchema(_numbers("integer", **limits))


Duration = Annotated[
    float, AfterValidator(_positive), _text_first(parse_duration, '"30min" or "2:00:00"'), WithJsonSchema(_DURATION)
]


def _not_negative(seconds: float) -> float:
    if seconds < 0:
        raise ValueError("must not be negative")
    return seconds


Memory = Annotated[int, _text_first(parse_memory, '"4G"'), WithJsonSchema(_MEMORY)]
Flag = Annotated[bool, BeforeValidator(_truth), Field(strict=True), _any_of({"type": "boolean"}, _TEMPLATE)]
Factor = Annotated[float, _number(float), Field(strict=True, ge=1, le=MAX_RETRY_FACTOR), WithJsonSchema(_FACTOR)]
Widths = Annotated[
    list[Annotated[int, *_whole(1, MAX_CORES)]],
    BeforeValidator(_checked(several)),
    Field(min_length=1),
    AfterValidator(_checked(distinct)),
    _any_of(
        _COUNT,
        _like(TEMPLATE_PATTERN, RANGE_PATTERN),
        {
            "type": "array",
            "items": {"anyOf": [_COUNT, _TEMPLATE]},
            "minItems": 1,
            "maxItems": MAX_WIDTHS,
            "uniqueItems": True,
        },
    ),
]
"""Cores, nodes or tasks: a number, several, or a range."""
_AT_USE = ConfigDict(defer_build=True)
_A_DURATION: TypeAdapter[float] = TypeAdapter(Duration, config=_AT_USE)
_DURATIONS: TypeAdapter[dict[int, float]] = TypeAdapter(
    dict[Annotated[int, BeforeValidator(_checked(width_of))], Duration], config=_AT_USE
)


def _as_durations(value: object) -> float | dict[int, float]:
    if not isinstance(value, dict):
        return _A_DURATION.validate_python(value)
    if not value:
        raise ValueError("names no width")
    _checked(lambda table: at_widths(table, lambda _: 0.0))(value)  # reports mistakes in its keys
    return _DURATIONS.validate_python(value)


Durations = Annotated[float | dict[int, float], PlainValidator(_as_durations), _any_of(_DURATION, _BY_WIDTH)]
"""One duration, or durations by width."""
ScalingLaw = Annotated[
    Scaling,
    PlainValidator(_checked(read_scaling)),
    _any_of(
        {"enum": list(get_args(Law))},
        _TEMPLATE,
        _table({"amdahl": _numbers("number", minimum=0, maximum=1)}, "amdahl"),
        _table(
            {
                "downey": _table(
                    {"parallelism": _numbers("number", minimum=1), "variance": _numbers("number", minimum=0)},
                    "parallelism",
                    "variance",
                )
            },
            "downey",
        ),
    ),
]
Partitions = Annotated[
    list[str],
    BeforeValidator(_checked(partitions_of)),
    Field(min_length=1),
    AfterValidator(_checked(distinct)),
    _any_of({"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}),
]


def _one_line(text: str) -> str:
    if not text.strip() or "\n" in text:
        raise ValueError("each is one line, and not empty; ';' joins commands")
    return text


def _as_option(text: str) -> str:
    if not text.startswith("--") or not text[2:3].isalpha():
        raise ValueError(f"{text!r} is no option of a batch system: write it as in --constraint=haswell")
    return text


def _as_variable(name: str) -> str:
    if not re.fullmatch(VARIABLE_PATTERN, name):
        raise ValueError(f"{name!r} is no name of a variable: letters, digits and '_'")
    return name


def _as_value(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError('a variable\'s value is text: write it in quotes, as in "1"')  # noqa: TRY004 - pydantic wants it
    return str(value)


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


PathText = Annotated[str, Field(min_length=1)]
Task = Annotated[str, AfterValidator(_one_line), WithJsonSchema({"type": "string", "pattern": r"^(?=.*\S)[^\n]*$"})]
Option = Annotated[
    str,
    AfterValidator(_as_option),
    WithJsonSchema(_like("^--[A-Za-z]", TEMPLATE_PATTERN)),
]


def _described(schema: dict[str, Any], of: Any) -> dict[str, Any]:
    """Return a schema with the description and the examples of a key or a field."""
    return {**schema, "description": of.description, **({"examples": list(of.examples)} if of.examples else {})}


class _Model(BaseModel):
    # most are only parts of the one that is used, which builds theirs again
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class _Expectation(_Model):
    """The usual run time of a stage, learned from earlier runs."""

    learn: Flag = Field(default=True, description="Whether to learn it from the run times of the stage.")
    until: Durations | None = Field(
        default=None, description="The expected run time until one is known.", examples=["22min"]
    )


def _as_expectation(value: object) -> object:
    if value == "learn":
        return {"learn": True}
    if isinstance(value, str):
        try:
            parse_duration(value)
        except InputError as error:
            error.hint = f"{near(value, ['learn'])}{error.hint}"
            raise ValueError(error.message) from error
        return {"learn": False, "until": value}
    if isinstance(value, dict) and _checked(is_by_width)(value):
        return _Expectation.model_construct(learn=False, until=_as_durations(value))
    if isinstance(value, dict):
        return value
    raise ValueError('write it in quotes with its unit, such as "22min", or "learn"')


def _as_retries(value: object) -> object:
    return value if isinstance(value, dict) else {"times": value}


Expected = Annotated[
    _Expectation,
    BeforeValidator(_as_expectation),
    _any_of(
        {"const": "learn"},
        _DURATION,
        _BY_WIDTH,
        _table(
            {
                "learn": _described({"anyOf": [{"type": "boolean"}, _TEMPLATE]}, _Expectation.model_fields["learn"]),
                "until": _described({"anyOf": [_DURATION, _BY_WIDTH]}, _Expectation.model_fields["until"]),
            }
        ),
    ),
]
_TEXT = {"type": "string"}
_PATH = {"type": "string", "minLength": 1}
_TYPES: dict[str, Any] = {
    "memory": Memory,
    "storage": Annotated[
        int, _text_first(parse_storage, '"500G"'), WithJsonSchema(_like(STORAGE_PATTERN, TEMPLATE_PATTERN))
    ],
    "flag": Flag,
    "text": str,
    "output": PathText,
    "names": Annotated[list[str], BeforeValidator(_listed), _any_of(_TEXT, {"type": "array", "items": _TEXT})],
    "paths": list[PathText],
    "files": Annotated[
        list[PathText],
        BeforeValidator(_listed),
        Field(min_length=1),
        _any_of(_PATH, {"type": "array", "items": _PATH, "minItems": 1}),
    ],
    "options": list[Option],
    "pairs": Annotated[
        dict[Annotated[str, AfterValidator(_as_variable)], Annotated[str, BeforeValidator(_as_value)]],
        WithJsonSchema(
            {
                "type": "object",
                "propertyNames": {"pattern": _VARIABLE},
                "additionalProperties": {"type": ["string", "number"]},
            }
        ),
    ],
    "patience": Annotated[
        float, AfterValidator(_not_negative), _text_first(parse_duration, '"1min" or "10s"'), WithJsonSchema(_DURATION)
    ],
    "amount": Annotated[
        float,
        _number(float),
        Field(strict=True, gt=0, allow_inf_nan=False),
        WithJsonSchema(_numbers("number", exclusiveMinimum=0)),
    ],
    "jobs": Annotated[
        tuple[int, int],
        PlainValidator(_checked(job_range)),
        _any_of({"type": "integer", "minimum": 1, "maximum": MAX_JOBS}, _like(TEMPLATE_PATTERN, RANGE_PATTERN)),
    ],
    "path": PathText,
    "lines": Annotated[list[Task], Field(min_length=1)],
    "widths": Widths,
    "partitions": Partitions,
    "times": Durations,
    "expectation": Expected,
    "scaling": ScalingLaw,
    "factor": Factor,
}
"""Types of values, by kind of key."""


def _type_of(key: Key) -> Any:
    """Return the type with which a key's value is read and checked."""
    if key.kind in {"count", "number"}:
        return Annotated[int, *_whole(key.min_value, key.max_value)]
    return Literal[key.choices] if key.choices else _noted(key) if key.notation is not None else _TYPES[key.kind]


def _noted(key: Key) -> Any:
    """Return the type of a value that has its own notation."""
    notation = cast("Notation", key.notation)
    if not notation.others:
        schema = WithJsonSchema(_like(notation.pattern, TEMPLATE_PATTERN))
        return Annotated[Any, _text_first(notation.read, f'"{key.examples[0]}"'), schema]
    schema = _any_of(*map(dict, notation.others), _like(TEMPLATE_PATTERN, notation.pattern))
    return Annotated[Any, PlainValidator(_checked(notation.read)), schema]


_Retries = create_model(
    "_Retries",
    __base__=_Model,
    **cast("Any", {name: (_type_of(key), ... if name == "times" else None) for name, key in RETRIES.items()}),
)


class _RetriesSchema:
    """The JSON schema of `retries`, made only for who asks for it."""

    def __get_pydantic_json_schema__(self, _core: object, _handler: object) -> dict[str, Any]:
        keys = {name: _described(TypeAdapter(_type_of(key)).json_schema(), key) for name, key in RETRIES.items()}
        counts: list[Any] = _numbers("integer", minimum=0, maximum=MAX_RETRIES)["anyOf"]
        return {"anyOf": [*counts, _table(keys, "times")]}


_TYPES["retries"] = Annotated[_Retries, BeforeValidator(_as_retries), _RetriesSchema()]


def _field_of(key: Key, **more: Any) -> Any:
    return Field(description=key.description, examples=list(key.examples), **more)


if TYPE_CHECKING:

    class StageSettings(_Model):
        """The keys that other code reads by name."""

        local: bool | None = None
        cpus_per_task: int | None = None
        cores: list[int] | None = None
        ntasks: list[int] | None = None
        script: str | None = None
else:
    StageSettings = create_model(
        "StageSettings",
        __base__=_Model,
        __doc__="The keys of a stage, which `[defaults]` may set for all stages that do not set them.",
        **{key.name: (_type_of(key) | None, _field_of(key, default=None)) for key in SETTINGS},
    )


class StageSpec(StageSettings):
    """One stage: its command, its resources, its duration, and its predecessors."""

    name: str = Field(
        pattern=_NAME,
        description="Letters, digits, '_', '.', '-'; up to 64, and unique in the workflow.",
        examples=["project"],
        json_schema_extra={"pattern": f"{_NAME}|{TEMPLATE_PATTERN}"},
    )
    after: list[str] = Field(
        default_factory=list,
        description="Stages that it depends on: they must have completed first, unless `when` says otherwise.",
        examples=[["fetch"]],
    )
    when: Literal["success", "any", "failed", "always"] = _field_of(WHEN, default="success")

    def given(self, script: str) -> dict[str, Any]:
        """Return the values of the given keys, for `asa.spec.stages.fields_of`; `script`: the script's text."""
        given = {key: value for key, value in self if value is not None} | {"script": script}
        for key in {"expected", "total"} & given.keys():
            given[key] = Expectation(given[key].learn, given[key].until)
        if "retries" in given:
            given |= {RETRIES[name].name: value for name, value in given["retries"] if value is not None}
        if self.local and not given.keys() & {"cores", "ntasks", "nodes", "request"}:
            given["cores"] = [self.cpus_per_task or 1]
        return {"walltime": LOCAL_WALLTIME_S} | given


def _as_parameter(value: object) -> object:
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("a parameter is text, a number, true or false")
    return value


Parameters = Annotated[
    dict[Annotated[str, Field(pattern=PARAMETER_NAME)], Annotated[Any, AfterValidator(_as_parameter)]],
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": PARAMETER_NAME},
            "additionalProperties": {
                "anyOf": [
                    {"type": "string", "not": {"pattern": TEMPLATE_PATTERN}},
                    {"type": ["number", "boolean"]},
                ]
            },
        }
    ),
]


class WorkflowSpec(_Model):
    """A workflow for asa: stages that run on a batch system, each after others."""

    name: str = Field(min_length=1, description="Name of the workflow.", examples=["mosaic"])
    walltime: Duration | None = Field(
        default=None,
        description="Walltime of the whole workflow if all stages share one job; by default the sum of the stages' "
        "walltimes.",
        examples=["1h30m"],
    )
    parameters: Parameters = Field(
        default_factory=dict,
        description="Parameters with their default values. {{name}} in any text of this file is replaced by the "
        "value, which --param name=value changes.",
        examples=[{"width": 112, "degree": 2.5, "survey": "2mass"}],
    )
    defaults: StageSettings = Field(
        default_factory=StageSettings.model_construct, description="Default keys for all stages."
    )
    stage: list[StageSpec] = Field(min_length=1, description="The stages, one [[stage]] each.")
