"""Keeps the values that stages' functions return or raise in the run's folder, for later stages and for the client."""

from __future__ import annotations

import base64
import os
import pickle
import traceback
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from asa.core import safe
from asa.core.files import put
from asa.errors import RunError
from asa.payload import VALUES
from asa.workflow import Stage

__all__ = ["RemoteTraceback", "as_json", "as_text", "fail", "forget", "keep", "load", "of_text", "referred", "resolved"]

_MAX_BYTES = 1 << 30
_REFERENCE = "asa: value of stage"
_PICKLED = "asa: pickled"
_VALUE, _NONE, _ERROR = "value", "none", "error"


class RemoteTraceback(Exception):  # noqa: N818 - as in `concurrent.futures`: the cause of what was raised
    """The traceback of an exception that was raised in a job."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        """Return the traceback as it was printed in the job."""
        return f"\n{self.text}"


# ---------------------------------------------------------------------- arguments


def as_json(value: object) -> Any:
    """Write what JSON does not have among arguments: a stage means its value, a number of numpy is one of Python.

    Raises `TypeError`: it cannot be pickled, or is a set, in which stages would not be found.
    """
    if isinstance(value, Stage):
        return {_REFERENCE: value.name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, set | frozenset):
        raise TypeError("a set has no order: give a list")
    try:
        return {_PICKLED: as_text(value)}
    except Exception as error:
        raise TypeError(f"{type(value).__name__} cannot be sent along: {error}") from error


def as_text(value: object) -> str:
    """Pickle a value, also one that was typed in, as text for a command; `of_text` reads it."""
    import cloudpickle  # noqa: PLC0415 - rarely needed

    return base64.b85encode(zlib.compress(cloudpickle.dumps(value))).decode("ascii")


def of_text(text: str) -> Any:
    """Read what `as_text` wrote, in a job's own command, which is this user's."""
    return pickle.loads(zlib.decompress(base64.b85decode(text)))  # noqa: S301


def referred(arguments: Any) -> list[str]:
    """Name the stages whose values are meant in the given arguments, each once.

    Examples
    --------
    >>> referred([[Stage("a", cores=1, command="true"), 3], {"x": [Stage("b", cores=1, command="true")]}])
    ['a', 'b']
    """
    if isinstance(arguments, Stage):
        return [arguments.name]
    parts = list(arguments.values()) if isinstance(arguments, dict) else arguments
    found = map(referred, parts) if isinstance(parts, list | tuple) else ()
    return list(dict.fromkeys(name for names in found for name in names))


def resolved(arguments: Any, folder: Path) -> Any:
    """Replace stages among the arguments by the values of their functions, and read what was pickled."""
    if isinstance(arguments, list):
        return [resolved(argument, folder) for argument in arguments]
    if not isinstance(arguments, dict):
        return arguments
    if arguments.keys() == {_REFERENCE}:
        return load(folder, arguments[_REFERENCE])
    if arguments.keys() == {_PICKLED}:
        return of_text(arguments[_PICKLED])
    return {key: resolved(value, folder) for key, value in arguments.items()}


# ---------------------------------------------------------------------- results


def _file(folder: Path, stage: str) -> Path:
    return folder / f".value-{quote(stage, safe='')}"


def forget(folder: Path, stage: str) -> None:
    """Remove the value that an earlier attempt of a stage left."""
    _file(folder, stage).unlink(missing_ok=True)


def keep(folder: Path, stage: str, value: object) -> None:
    """Keep a function's return value; if that is impossible, keep the reason: the stage has not failed."""
    try:
        _put(folder, stage, _VALUE, _pickled(value), "")
    except Exception as error:  # noqa: BLE001 - whatever a user's value makes of it
        _put(folder, stage, _NONE, b"", f"{type(error).__name__}: {error}")


def fail(folder: Path, stage: str, error: BaseException) -> None:
    """Keep the exception that a stage's function raised, with its traceback from that function on."""
    here = error.__traceback__
    text = "".join(traceback.format_exception(type(error), error, here and (here.tb_next or here)))
    try:
        data = _pickled(error)  # without its traceback
    except Exception:  # noqa: BLE001 - likewise
        data = b""
    _put(folder, stage, _ERROR, data, text)


def _pickled(value: object) -> bytes:
    """Pickle a value; one whose class was typed in, or is in the program itself, with that class."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - whatever a user's value makes of it
        import cloudpickle  # noqa: PLC0415 - rarely needed

        data: bytes = cloudpickle.dumps(value)
        return data


def _put(folder: Path, stage: str, kind: str, data: bytes, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    put(_file(folder, stage), pickle.dumps((kind, data, text)), is_private=True)


def load(folder: Path, stage: str) -> Any:
    """Return the value that a stage's function returned, or raise the exception that it raised.

    Raises
    ------
    RunError
        There is no value: it cannot be read here, or could not be kept.
    """
    where = f"stage {stage!r}"
    path = _file(folder, stage)
    try:
        kind, data, text = pickle.loads(safe.read(path, max_bytes=_MAX_BYTES))  # noqa: S301 - this user's own
    except FileNotFoundError:
        hint = "It has not completed, or it is a command; see asa status."
        raise RunError("has no value", where=where, hint=hint) from None
    if kind == _NONE:
        hint = "Return what pickle can hold, or write a file."
        raise RunError(f"its value could not be kept: {text}", where=where, hint=hint)
    try:
        value = pickle.loads(data) if data else RunError(text.rstrip().rpartition("\n")[2], where=where)  # noqa: S301
    except Exception as error:  # noqa: BLE001 - likewise
        cause = RemoteTraceback(text) if text else error
        hint = "Classes of what it returns must be in a module that can be imported here, too."
        what = "what it raised" if kind == _ERROR else "its value"
        raise RunError(
            f"{what} cannot be read here: {type(error).__name__}: {error}", where=where, hint=hint
        ) from cause
    if kind == _ERROR:
        raise value from RemoteTraceback(text)
    return value


def folder_here() -> Path | None:
    """Return the folder of values of the job that this process runs in; None outside a run."""
    named = os.environ.get(VALUES, "")
    return Path(named) if named else None
