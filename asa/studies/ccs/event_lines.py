"""The lines of a file of `asa ccs`: requests, and events of the plan, each with its time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from asa.backends.openccs.pieces import Piece, PointedError, moment
from asa.backends.openccs.requests import RequestParts, ResourceRequest
from asa.backends.openccs.system import CcsSystem
from asa.core.documents import read_text
from asa.errors import InputError, near
from asa.units import parse_duration

_AT = re.compile(r"\s*at=(\S*)")
_COMMENT = re.compile(r"(^|\s)#.*")
_WORD = re.compile(r"\S+")
_VERBS = ("submit", "reserve", "end", "alter", "extend", "fail", "hang", "recover")
_EVENT = re.compile(rf"\s*({'|'.join(_VERBS)})(?=\s+[^\s:=])")


class EventKind(StrEnum):
    """Kind of an event, as it is written."""

    END = "end"
    """A job ends, or is cancelled."""
    ALTER = "alter"
    """A job asks for something else."""
    EXTEND = "extend"
    """A running job is to last longer."""
    FAIL = "fail"
    """A node goes down."""
    HANG = "hang"
    """A node does not answer any more; the planner notices once that takes too long."""
    RECOVER = "recover"
    """A node is up again."""


NODE_EVENTS: Final = (EventKind.FAIL, EventKind.HANG, EventKind.RECOVER)
"""Those of nodes; others are of jobs."""


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """A request, its owner, and its time."""

    at_s: int  # seconds since 1970, or from 0
    user: str
    group: str
    name: str
    request: ResourceRequest
    is_reservation: bool = False


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """An event of the plan besides a request."""

    at_s: int
    kind: EventKind
    name: str  # of its job, array, or node
    text: str  # as in the file, without its time
    parts: RequestParts = field(default_factory=RequestParts)  # of a job that is altered
    by_s: int = 0  # of a job that is extended
    failed: bool = False  # of a job that ends


def read_events(file: Path, system: CcsSystem) -> list[AskedRequest | PlanEvent]:
    """Read a file of requests and events, in the order of its lines."""
    try:
        text = read_text(file)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file), hint="Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError("cannot be read: it is not UTF-8 text", where=str(file), hint="Save it as UTF-8.") from error
    reader = _EventReader(system)
    for number, line in enumerate(text.split("\n"), start=1):
        bare = _COMMENT.sub("", line).rstrip()
        if not bare:
            continue
        try:
            reader.read(bare, number)
        except PointedError as error:
            message = error.message.partition("\n")[2].lstrip().removeprefix("^ ")
            where = f"{file}:{number}"
            raise PointedError(message, where=where, hint=error.hint, text=bare, position=error.position) from error
    if not reader.lines:
        raise InputError("asks for nothing", where=str(file), hint="Write a request a line, as rset=ncpus=4.")
    return reader.events


class _Head(NamedTuple):
    """The words before a colon: an owner and a name; and where the rest of the line starts."""

    who: Piece
    name: Piece
    start: int


class _EventReader:
    """Reads lines, and keeps the names that they give."""

    def __init__(self, system: CcsSystem) -> None:
        self.events: list[AskedRequest | PlanEvent] = []
        self.lines: dict[str, int] = {}  # of each named request
        self._kinds = system.kinds
        self._nodes = [node.name for node in system.nodes]
        self._arrays: set[str] = set()

    def read(self, line: str, number: int) -> None:
        """Read a line that is not empty."""
        whole = Piece.of(line, PointedError)
        at_s, start = self.events[-1].at_s if self.events else 0, 0
        if at := _AT.match(line):
            at_s, start = moment(whole.cut(at.start(1), at.end(1))), at.end()
        verb = _EVENT.match(line, start)
        if verb is None or verb[1] in {"submit", "reserve"}:
            self._read_request(whole, at_s, verb.end() if verb is not None else start, number)
            request = self.events[-1]
            if verb is not None and isinstance(request, AskedRequest) and verb[1] == "reserve":
                self.events[-1] = AskedRequest(
                    at_s, request.user, request.group, request.name, request.request, is_reservation=True
                )
        else:
            self.events.append(self._event(EventKind(verb[1]), whole, at_s, verb.start(1), verb.end()))

    def _read_request(self, whole: Piece, at_s: int, start: int, number: int) -> None:
        head = _head(whole, start)
        called = head.name.text or str(1 + len(self.lines))
        if called in self.lines:
            hint = "Name each request otherwise. One without a name is called by its number."
            raise head.name.refuse(f"line {self.lines[called]} has a job {called!r} already", hint)
        line = whole.whole
        if not line[head.start :].strip():
            raise whole.cut(len(line)).refuse("a request is missing here", "Write one, as in rset=2:ncpus=4:mem=8g.")
        if "=" not in line[head.start :] and (word := _WORD.search(line, head.start)):
            is_event = word[0] in _VERBS
            wrong = "its job or node is missing" if is_event else "neither an event nor a request begins so"
            meant = "" if is_event else near(word[0], _VERBS)
            hint = f"{meant}Events: {', '.join(_VERBS)}. A request: rset=2:ncpus=4:mem=8g."
            raise whole.cut(*word.span()).refuse(wrong, hint)
        user, _, group = head.who.text.partition("@")
        request = ResourceRequest.parse(" " * head.start + line[head.start :], self._kinds)
        self.lines[called] = number
        if request.array is not None:
            self._arrays |= {f"{called}[{index}]" for index in request.array}
        self.events.append(AskedRequest(at_s, user, group, called, request))

    def _event(self, kind: EventKind, whole: Piece, at_s: int, start: int, end: int) -> PlanEvent:
        line = whole.whole
        text = " ".join(line[start:].split())
        if kind is EventKind.ALTER:
            head = _head(whole, end)
            if not head.name.text or not line[head.start :].strip():
                hint = "Name the job, and after a colon what is to change: alter big: walltime=1h."
                raise whole.cut(end).refuse("says not what to alter", hint)
            self._check_job(head.name)
            parts = RequestParts.parse(" " * head.start + line[head.start :], self._kinds)
            return PlanEvent(at_s, kind, head.name.text, text, parts)
        name, *rest = (whole.cut(*match.span()) for match in _WORD.finditer(line, end))
        if kind in NODE_EVENTS:
            if name.text not in self._nodes:
                hint = f"{near(name.text, self._nodes)}Name one of the system."
                raise name.refuse(f"there is no node {name.quoted}", hint)
        else:
            self._check_job(name)
        by_s = 0
        if kind is EventKind.EXTEND:
            if not rest:
                raise whole.cut(len(line)).refuse("a duration is missing here", "As in: extend big 10m")
            by_s = _duration(rest.pop(0))
        failed = kind is EventKind.END and [word.text for word in rest] == ["failed"]
        if rest and not failed:
            raise rest[0].refuse(f"{rest[0].quoted} does not belong here")
        return PlanEvent(at_s, kind, name.text, text, by_s=by_s, failed=failed)

    def _check_job(self, name: Piece) -> None:
        if name.text not in self.lines and name.text not in self._arrays:
            hint = f"{near(name.text, self.lines)}An element of an array is called name[index]."
            raise name.refuse(f"no line above submits a job {name.quoted}", hint)


def _head(whole: Piece, start: int) -> _Head:
    """Read an owner and a name before a colon, either of which may be missing."""
    line = whole.whole
    who = name = whole.cut(start, start)
    colon, sign = (line.find(character, start) for character in ":=")
    if colon < 0 or 0 <= sign < colon:
        return _Head(who, name, start)
    for word in (whole.cut(*match.span()) for match in _WORD.finditer(line, start, colon)):
        if not word.text.isprintable():
            raise word.refuse("holds a character that cannot be shown")
        if "@" in word.text and word.text.count("@") == 1 and not who.text and not name.text:
            who = word
        elif "@" not in word.text and not name.text:
            name = word
        else:
            raise word.refuse(f"{word.quoted} does not belong here", "Write USER@GROUP, the job's name and a colon.")
    return _Head(who, name, colon + 1)


def _duration(piece: Piece) -> int:
    try:
        seconds = round(parse_duration(piece.text))
    except InputError as error:
        raise piece.refuse(error.message, error.hint) from error
    if seconds < 1:
        raise piece.refuse("is no time at all")
    return seconds
