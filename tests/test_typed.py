"""What asa writes of its values is what pydantic writes of them, and is read as pydantic reads it."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter

from asa.backend import Capabilities, Dependency, DependencyType, JobSpec, JobState, JobStatus
from asa.core.typed import _defaults, made, written, written_by_field
from asa.elements import Elements
from asa.runner import entries
from asa.strategies.base import Keep, PlannedJob
from asa.waits import WaitForecast
from asa.workflow import Stage

DEFAULTS = Path(__file__).parent / "data" / "kept" / "journal-defaults.json"


class Colour(StrEnum):
    """A word."""

    RED = "red"


class Pair(NamedTuple):
    """A list."""

    left: float
    right: int = 1


@dataclass(frozen=True, slots=True)
class Inner:
    """A value in another."""

    cores: int
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    """One field of each form."""

    name: str
    wait_s: float
    is_it: bool = False
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    exactly: tuple[int, float] = (1, 2.0)
    by_name: Mapping[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    colours: frozenset[Colour] = frozenset()
    pair: Pair | None = None
    kind: Literal["a", "b"] = "a"
    setting: str | int | float | bool = 0
    anything: Any = None


VALUES = [
    Outer('é\u2028\n"', 0.1),
    Outer("", 1e300, True, Inner(3, ("x", "y")), (Inner(1), Inner(2)), (4, 5.5), {"a": 1.0}, {"b": ""}, kind="b"),
    Outer("x", 2.0, colours=frozenset({Colour.RED}), pair=Pair(1.5, 7), setting="text", anything={"a": [1, None]}),
    Outer("x", 2.0, setting=2.5),
    Outer("x", 2.0, setting=True),
    Stage("a", cores=28, walltime_s=600.0, after=(), command="echo \\'"),
    Capabilities("site", 1000, 28, age_accrues=False, dependency_types=frozenset({DependencyType.AFTER})),
    PlannedJob(("a",), 3.0, Keep.AWAIT, "why", WaitForecast((0.0,) * 9, 60.0)),
    JobStatus("17", JobState.RUNNING, submit_s=1.0),
    Elements.of([1, 2, 5]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_read_as_they_were_written_by_this_and_by_pydantic(value):
    adapter, text = TypeAdapter(type(value)), written(value)
    assert json.loads(text) == json.loads(adapter.dump_json(value))
    for each in (text, written(value, in_short=True), written_by_field(value), adapter.dump_json(value)):
        assert made(type(value), json.loads(each)) == value
        assert adapter.validate_json(each) == value


def test_only_what_has_its_default_in_value_and_type_is_left_out():
    assert (
        written(Outer("x", 1.0, setting=True), in_short=True) == '{"name":"x","wait_s":1.0,"kind":"a","setting":true}'
    )
    assert written(Inner(0), in_short=True) == '{"cores":0}'
    [told] = (json.loads(entries.write_entry(entries.Reported(JobStatus("17", JobState.PENDING, submit_s=0.0)))),)
    assert told == {"status": {"job_id": "17", "state": "pending", "submit_s": 0.0}, "kind": "told"}


def test_what_a_journal_leaves_out_means_for_ever_what_it_meant():
    """A default that changed would change what was written by then."""
    kept = json.loads(DEFAULTS.read_text())
    now = {kind.__name__: of for kind, of in defaults_of(*get_args(entries.Entry))}
    for kind, of in kept.items():
        for name, default in of.items():
            assert now[kind].get(name, default) == default, (kind, name)
    new = {kind: {name: one for name, one in of.items() if name not in kept.get(kind, ())} for kind, of in now.items()}
    assert not any(new.values()), f"add these to {DEFAULTS.name}"


def defaults_of(*kinds):
    """Yield all types whose values are in those of some types, with the defaults of their fields, in words."""
    left, seen = list(kinds), set()
    while left:
        kind = left.pop()
        left += get_args(kind)
        if kind in seen or not is_dataclass(kind):
            continue
        seen.add(kind)
        left += get_type_hints(kind).values()
        yield kind, {name: repr(one) for name, one in _defaults(kind) if one is not MISSING}


GOOD = {"name": "x", "wait_s": 2}
CHANGES = [
    {"name": 3}, {"name": None}, {"wait_s": "soon"}, {"wait_s": None}, {"wait_s": []},
    {"inner": {}}, {"inner": {"cores": 1.5}}, {"inner": {"cores": "many"}}, {"inner": [1]}, {"inner": {"cores": 2.0}},
    {"inner": {"cores": 1, "of": "abc"}}, {"inner": {"cores": 1, "of": [1]}}, {"many": {}}, {"many": [None]},
    {"exactly": [1]}, {"exactly": [1, 2, 3]}, {"exactly": [1, 2]}, {"by_name": []}, {"by_name": {"a": "b"}},
    {"by_name": {"a": 1}}, {"texts": {"a": 1}}, {"colours": ["blue"]}, {"colours": "red"}, {"colours": ["red", "red"]},
    {"pair": []}, {"pair": [1]}, {"pair": [1, 2, 3]}, {"kind": "c"}, {"kind": None}, {"kind": []}, {"setting": None},
    {"setting": []}, {"is_it": None}, {"is_it": []}, {"later": 1}, {},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_does_not_fit_is_refused_where_pydantic_refuses_it(change):
    given = {**GOOD, **change}
    try:
        expected = TypeAdapter(Outer).validate_json(json.dumps(given))
    except ValueError:
        with pytest.raises(ValueError, match=r"is not|lacks"):
            made(Outer, given)
    else:
        assert made(Outer, given) == expected


@pytest.mark.parametrize("given", [None, [], 3, "x", {}, {"name": "x"}])
def test_what_is_no_value_at_all_is_refused(given):
    with pytest.raises(ValueError, match=r"is not an object|lacks"):
        made(Outer, given)


def test_each_kind_of_entry_is_known_by_its_own_name():
    names = {one: next(f.default for f in fields(one) if f.name == "kind") for one in get_args(entries.Entry)}
    assert {kind: name for name, kind in entries._KINDS.items()} == names


def test_entries_that_belong_together_are_read_as_they_were_written():
    spec = JobSpec("j", 1, 600.0, dependencies=(Dependency("7", DependencyType.AFTEROK),))
    both = [entries.Begun(1.0), entries.Intended("t", PlannedJob(("a",), 3.0, Keep.NOTHING, ""), spec, 2.0)]
    assert entries.read_entries(entries.write_entries(both).encode()) == both
    for line in (
        b"[]",
        b"3",
        b'{"kind": []}',
        b'{"kind": "nix"}',
        b'{"entries":{}}',
        b'{"entries":[3]}',
        b"\xff",
        b"[",
    ):
        with pytest.raises(ValueError):
            entries.read_entries(line)
