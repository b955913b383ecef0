"""Dataclasses that are completed late are those of the standard library in all that they do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
from typing import ClassVar

import pytest

from asa.core import late

HOW = {"frozen": True, "slots": True}


def classes(dataclass):
    """Make the same classes with either decorator: plain ones, with methods of their own, and derived ones."""

    @dataclass(**HOW)
    class Plain:
        """A value."""

        cores: int
        names: tuple[str, ...] = ()
        by_name: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
        kind: ClassVar[str] = "plain"

        def __post_init__(self) -> None:
            if self.cores < 0:
                raise ValueError("negative")

    @dataclass(**HOW)
    class Derived(Plain):
        """A value with more."""

        nodes: int = 1

    @dataclass(**HOW)
    class Own:  # noqa: PLW1641 - the decorator adds the other
        """A value that says how it is shown and compared."""

        cores: int

        def __repr__(self) -> str:
            return f"<{self.cores}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.cores % 2 == other.cores % 2

    @dataclass(**HOW, repr=False)
    class Quiet(Own):
        """A value that is shown as its base is."""

        nodes: int = 0

    @dataclass(**HOW, eq=False, kw_only=True)
    class Same:
        cores: int = 3

    return {kind.__name__: kind for kind in (Plain, Derived, Own, Quiet, Same)}


VALUES = {
    "Plain": ((2, ("a",)), {}),
    "Derived": ((2, ("a",)), {"nodes": 3}),
    "Own": ((2,), {}),
    "Quiet": ((2, 5), {}),
    "Same": ((), {"cores": 4}),
}


def refused(act):
    """Return what is raised, and what it says but for the folder of the test's classes."""
    with pytest.raises(Exception) as caught:
        act()
    return caught.type, str(caught.value).replace("classes.<locals>.", "")


USES = {
    "init": lambda kind, make: [getattr(make(), f.name) for f in dataclasses.fields(make())],
    "repr": lambda kind, make: repr(make()) if kind.__repr__ is not object.__repr__ else "",
    "equal": lambda kind, make: (make() == make(), make() != make(), make() == 3),
    "hash": lambda kind, make: len({make(), make()}) if kind.__name__ != "Plain" else hash(make()) == hash(make()),
    "frozen": lambda kind, make: refused(lambda: setattr(make(), "cores", 1)),
    "deleted": lambda kind, make: refused(lambda: delattr(make(), "cores")),
    "wrong": lambda kind, make: refused(lambda: kind(nix=1)),
    "fields": lambda kind, make: [(f.name, f.type, f.kw_only, f.compare) for f in dataclasses.fields(kind)],
    "is one": lambda kind, make: (dataclasses.is_dataclass(kind), dataclasses.is_dataclass(make())),
    "replace": lambda kind, make: dataclasses.replace(make(), cores=7).cores,
    "asdict": lambda kind, make: dataclasses.asdict(make()),
    "copy": lambda kind, make: copy.deepcopy(make()).cores + copy.copy(make()).cores,
    "match": lambda kind, make: kind.__match_args__,
    "signature": lambda kind, make: str(inspect.signature(kind)),
    "slots": lambda kind, make: (kind.__slots__, hasattr(make(), "__dict__")),
    "state": lambda kind, make: make().__getstate__(),
    "params": lambda kind, make: kind.__dataclass_params__.frozen,
    "names": lambda kind, make: (kind.__name__, kind.__qualname__, kind.__module__),
    "doc": lambda kind, make: (kind.__doc__, make().__doc__),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("use", USES)
def test_whatever_is_done_first_does_what_the_standard_library_does(use, name):
    given, named = VALUES[name]
    outcomes = []
    for dataclass in (late.dataclass, dataclasses.dataclass):
        kind = classes(dataclass)[name]
        both = [USES[use](kind, lambda kind=kind: kind(*given, **named)) for _ in range(2)]
        assert both[0] == both[1]
        outcomes.append(both[0])
    assert outcomes[0] == outcomes[1]


def test_a_check_of_its_own_is_made():
    with pytest.raises(ValueError, match="negative"):
        classes(late.dataclass)["Plain"](-1)


def test_a_class_of_the_standard_library_may_derive_from_one():
    base = classes(late.dataclass)["Plain"]

    @dataclasses.dataclass(frozen=True)
    class Below(base):
        more: int = 5

    assert Below(1) == Below(1, (), {}, 5)
    assert [f.name for f in dataclasses.fields(Below)] == ["cores", "names", "by_name", "more"]


def test_threads_that_need_a_class_at_once_get_the_same_one():
    kind = classes(late.dataclass)["Derived"]
    begin, made = threading.Barrier(8), []

    def make():
        begin.wait()
        made.append(kind(1))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [kind(1)] * 8


def test_a_value_is_pickled_for_a_process_that_has_not_used_its_class():
    from asa.backend import Dependency, DependencyType

    value = Dependency("7", DependencyType.AFTEROK)
    code = "import sys, pickle; print(pickle.loads(bytes.fromhex(sys.argv[1])).job_id)"
    done = subprocess.run(
        [sys.executable, "-c", code, pickle.dumps(value).hex()], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "7"


def test_a_module_is_imported_without_its_methods():
    """Which is the reason for all this."""
    code = (
        "import dataclasses; made = []; given = dataclasses._process_class\n"
        "dataclasses._process_class = lambda kind, *how: made.append(kind.__module__) or given(kind, *how)\n"
        "import asa.runner.entries; print(sum(name == 'asa.runner.entries' for name in made))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
