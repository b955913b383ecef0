"""Files of fitted workload models in JSON; read with checks whose errors name the file and the field."""

from __future__ import annotations

import json
import re
import reprlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from asa.core.documents import read_file, read_json
from asa.core.files import in_words
from asa.core.safe import look_at, writing_text
from asa.errors import InputError

from .fitted import LONGEST_CAMPAIGN, MAX_LOAD, WEEK_HOURS, FittedKind, FittedSpread, FittedWorkload
from .machine import Machine

_FORMAT = "asa workload"
_VERSION = 1
_MAX_ENTRIES = 10_000
_MAX_WHOLE = 2**53  # beyond this, floats are not exact


def save_model(model: FittedWorkload, path: str | Path) -> None:
    """Write a model as JSON."""
    text = json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(model)}, indent=1)
    # lists of numbers on one line
    text = re.sub(r"\[[^\[\]{}]*\]", lambda match: " ".join(match[0].split()), text)
    with in_words("cannot be written", path, "Name another file."), writing_text(Path(path)) as file:
        file.write(text + "\n")


def load_model(path: str | Path) -> FittedWorkload:
    """Read a model that `save_model` wrote and a user may have edited.

    Raises `InputError`: the file cannot be read, or a field, which the error names, is invalid.
    """
    file = str(path)
    look_at(Path(path))
    try:
        data = read_json(read_file(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=file, hint="Check the path.") from error
    except ValueError as error:
        raise InputError(f"is no JSON: {error}", where=file, hint="Fit the model again.") from error
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise InputError("is no workload model", where=file, hint="Give a file that `asa workload fit` wrote.")
    try:
        return _FileSpec.model_validate(data).build()
    except ValidationError as error:
        raise _explain(error, file) from error


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _some_above_0(numbers: list[float]) -> list[float]:
    if not sum(numbers) > 0.0:
        raise ValueError("has no number above 0")
    return numbers


def _ascends(quantiles: list[float]) -> list[float]:
    if len(quantiles) == 1:
        raise ValueError("has 1 quantile where there must be none or at least 2")
    if quantiles != sorted(quantiles):
        raise ValueError("is not ascending")
    return quantiles


def _at_most_all(popular: list[tuple[int, float]]) -> list[tuple[int, float]]:
    if sum(share for _, share in popular) > 1.001:  # the shares are rounded
        raise ValueError("has shares of more than 1 in all")
    return popular


_T = TypeVar("_T")

# strict: true is not a number, neither is "8", and 8.0 is not a whole number
_Text = Annotated[str, Field(strict=True)]
_Flag = Annotated[bool, Field(strict=True)]
_Whole = Annotated[int, Field(strict=True, ge=0, le=_MAX_WHOLE)]
_Positive = Annotated[int, Field(strict=True, ge=1, le=_MAX_WHOLE)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Share = Annotated[_Number, Field(ge=0.0, le=1.0)]
_Signed = Annotated[_Number, Field(ge=-1.0, le=1.0)]
_Rate = Annotated[_Number, Field(ge=0.0, le=1e6)]

_Quantiles = Annotated[list[_T], Field(max_length=_MAX_ENTRIES), AfterValidator(_ascends)]
_Popular = Annotated[list[tuple[_T, _Share]], Field(max_length=_MAX_ENTRIES), AfterValidator(_at_most_all)]


class _SpreadSpec(_Spec):
    popular: _Popular[_Whole]
    rest: _Quantiles[Annotated[_Number, Field(ge=0.0, le=_MAX_WHOLE)]]

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        if self.popular and not self.rest and not sum(share for _, share in self.popular) > 0.0:
            raise ValueError("has popular values of no share, and no rest")
        return self

    def build(self) -> FittedSpread:
        return FittedSpread(tuple(self.popular), tuple(self.rest))


class _SizesSpec(_SpreadSpec):
    popular: _Popular[_Positive]
    rest: _Quantiles[Annotated[_Number, Field(ge=1.0, le=_MAX_WHOLE)]]


_S = TypeVar("_S", bound=_SpreadSpec)


def _of_mean_above_0(spread: _S) -> _S:
    if not spread.build().mean() > 0.0:
        raise ValueError("has no value above 0")
    return spread


_AboveZero = Annotated[_S, AfterValidator(_of_mean_above_0)]


class _KindSpec(_Spec):
    most_cores: _Positive
    most_request_s: _Positive
    share: _Share
    campaigns: Annotated[
        list[_Share], Field(min_length=1, max_length=LONGEST_CAMPAIGN.bit_length()), AfterValidator(_some_above_0)
    ]
    cores: _AboveZero[_SizesSpec]
    request_s: _AboveZero[_SizesSpec]
    at_limit: _Share
    run_place: _Quantiles[_Signed]

    def build(self) -> FittedKind:
        return FittedKind(
            most_cores=self.most_cores,
            most_request_s=self.most_request_s,
            share=self.share,
            campaigns=tuple(self.campaigns),
            cores=self.cores.build(),
            request_s=self.request_s.build(),
            at_limit=self.at_limit,
            run_place=tuple(self.run_place),
        )


def _of_some_jobs(kinds: list[_KindSpec]) -> list[_KindSpec]:
    if not sum(kind.share for kind in kinds) > 0.0:
        raise ValueError("has no share above 0")
    return kinds


class _MachineSpec(_Spec):
    name: _Text
    nodes: _Positive
    cores_per_node: _Positive
    whole_nodes: _Flag

    def build(self) -> Machine:
        return Machine(self.name, self.nodes, self.cores_per_node, self.whole_nodes)


class _FileSpec(_Spec):
    format: Literal["asa workload"]
    version: Literal[1]
    machine: _MachineSpec
    source: _Text
    load: Annotated[_Number, Field(ge=1e-9, le=MAX_LOAD)]
    hours: Annotated[list[_Rate], Field(min_length=WEEK_HOURS, max_length=WEEK_HOURS), AfterValidator(_some_above_0)]
    levels: Annotated[_Quantiles[_Rate], AfterValidator(_some_above_0)]
    level_memory: _Signed
    gap_s: _AboveZero[_SpreadSpec]
    follow_s: Annotated[list[_SpreadSpec], Field(min_length=3, max_length=3)]
    alike: _Share
    kinds: Annotated[list[_KindSpec], Field(min_length=1, max_length=_MAX_ENTRIES), AfterValidator(_of_some_jobs)]

    def build(self) -> FittedWorkload:
        few, some, many = (spread.build() for spread in self.follow_s)
        return FittedWorkload(
            machine=self.machine.build(),
            source=self.source,
            load=self.load,
            hours=tuple(self.hours),
            levels=tuple(self.levels),
            level_memory=self.level_memory,
            gap_s=self.gap_s.build(),
            follow_s=(few, some, many),
            alike=self.alike,
            kinds=tuple(kind.build() for kind in self.kinds),
        )


def _explain(error: ValidationError, file: str) -> InputError:
    # another version explains all other errors; an unknown field explains a missing one
    first = min(error.errors(), key=lambda e: (e["loc"] != ("version",), e["type"] != "extra_forbidden"))
    location, context = first["loc"], first.get("ctx", {})
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).removeprefix(".")
    hint = "Correct it, or fit the model again."
    match first["type"]:
        case "extra_forbidden":
            parent = next((step for step in reversed(location[:-1]) if isinstance(step, str)), None)
            models: dict[object, type[_Spec]] = {None: _FileSpec, "machine": _MachineSpec, "kinds": _KindSpec}
            message = "is not a field that we know"
            hint = f"Take it out. Known fields: {', '.join(models.get(parent, _SpreadSpec).model_fields)}."
        case "missing":
            message, hint = "is missing", "Add it, or fit the model again."
        case "literal_error":
            message = f"is {reprlib.repr(first['input'])}; this program reads {context['expected']}"
            hint = "Fit the model again."
        case "model_type":
            message = "is no object"
        case "list_type" | "tuple_type":
            message = "is no list"
        case "too_short":
            message = f"has {context['actual_length']} entries and must have at least {context['min_length']}"
        case "too_long":
            message = f"has {context['actual_length']} entries and must have at most {context['max_length']}"
        case "value_error":
            message = str(context["error"])
        case _:
            message = f"is {reprlib.repr(first['input'])}; {first['msg'][:1].lower()}{first['msg'][1:]}"
    return InputError(message, where=f"{file}: {path}", hint=hint)
