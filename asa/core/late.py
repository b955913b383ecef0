"""Dataclasses whose methods are written when one of them is first needed, not when their module is imported.

`dataclasses.dataclass` compiles eight methods of a frozen class, for a third of a millisecond. A command that shows a
run imports 140 such classes and makes values of a few: the rest took a quarter of its time. In the modules that such
commands import, this is all that differs::

    from asa.core.late import dataclass

The class is the same in the end: the standard library completes it.
"""

from __future__ import annotations

import dataclasses
import inspect
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(**how: bool) -> Callable[[type], type]:
        """Make a class a dataclass, as `dataclasses.dataclass` does: late if it is frozen and has slots."""
        is_late = how.get("frozen") and how.get("slots") and how.keys() <= _HOW
        return (lambda model: _late(model, how)) if is_late else dataclasses.dataclass(**how)


__all__ = ["dataclass"]

_HOW = {"frozen", "slots", "repr", "eq", "kw_only"}
_METHODS = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__")
_ATTRIBUTES = ("__doc__", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__replace__")
_completing = RLock()


def _late(model: type, how: dict[str, bool]) -> type:
    """Return the class with its slots, and with methods that complete it when they are first called."""
    body = dict(vars(model))
    names = [name for name, hint in inspect.get_annotations(model).items() if not _is_of_class(hint)]
    inherited = {name for base in model.__mro__[1:] for name in getattr(base, "__slots__", ())}
    for name in (*names, "__dict__", "__weakref__"):
        body.pop(name, None)
    if "__eq__" in body and body["__hash__"] is None:  # Python's doing, which the standard library undoes
        del body["__hash__"]
    if body["__doc__"] is None:  # else it becomes the signature
        del body["__doc__"]
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    unfinished = _Unfinished(model, how)
    for name in _METHODS:
        body.setdefault(name, unfinished.method(name))
    for name in (*_ATTRIBUTES, "__signature__"):
        body.setdefault(name, _Attribute(name, unfinished))
    unfinished.kind = kind = type(model)(model.__name__, model.__bases__, body)
    kind.__qualname__ = model.__qualname__
    return kind


def _is_of_class(hint: Any) -> bool:
    return str(hint).removeprefix("typing.").startswith("ClassVar")


class _Unfinished:
    """What the standard library still has to make of a class: `kind` has its slots, `model` its defaults."""

    kind: Any

    def __init__(self, model: type, how: dict[str, bool]) -> None:
        self._model: type | None = model
        self._how = how

    def complete(self) -> None:
        """Let the standard library make a dataclass of the model, and move what it wrote to the class."""
        with _completing:
            if self._model is None:
                return
            written = vars(dataclasses.dataclass(**self._how)(self._model))
            self._model = None
            for name in (*_METHODS, *_ATTRIBUTES, "__signature__"):
                if name in written:
                    setattr(self.kind, name, written[name])
                else:  # it is the base's
                    delattr(self.kind, name)

    def method(self, name: str) -> Callable[..., Any]:
        """Return a method that completes the class, and then calls the one that it stood in for."""

        def first(value: Any, *given: Any, **named: Any) -> Any:
            self.complete()
            return getattr(self.kind, name)(value, *given, **named)

        return first


class _Attribute:
    """An attribute of a class that is known once the class is complete."""

    def __init__(self, name: str, unfinished: _Unfinished) -> None:
        self._name, self._unfinished = name, unfinished

    def __get__(self, value: Any, kind: type) -> Any:
        self._unfinished.complete()
        if self._name == "__signature__":
            return inspect.signature(kind)
        return getattr(kind if value is None else value, self._name)
