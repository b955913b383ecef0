"""Makes the fields of a `Stage` from the values of its keys, which a file or Python gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from asa.keys import RESOURCES, TERMS
from asa.spec.keys import OF_ONE_FIELD
from asa.spec.moldable import AskedShapes, expectation_in
from asa.workflow import parts_of

_ORDER: Final = (
    "name", "after", "after_any", "after_start", "start_delay", "after_matching", "when", "command", "script", "tasks",
    "tasks_file", "array", "jobs", "request", "cores", "ntasks", "nodes", "cpus_per_task",
    *(key.name for key in RESOURCES), "partition", *(key.name for key in TERMS), "options", "walltime", "expected",
    "total", "continues", "max_legs", "warn", "unfinished", "progress", "scaling", "inputs", "outputs", "stdout",
    "stderr", "input_patience", "retries", "out_of_memory", "local", "comment", "input_size", "", "environment",
    "secrets", "modules", "conda", "container", "binds", "setup", "launcher",
)  # fmt: skip
_POSITIONS: Final = {name: position for position, name in enumerate(_ORDER)}


def in_order(names: Iterable[str]) -> list[str]:
    """Put keys into the order in which files and the reference have them; unknown keys come before the environment.

    Examples
    --------
    >>> in_order(["modules", "colour", "cores", "name"])
    ['name', 'cores', 'colour', 'modules']
    """
    return sorted(names, key=lambda name: _POSITIONS.get(name, _POSITIONS[""]))


def fields_of(given: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Return the fields of a `Stage`.

    `given`: the value of each key that is given: amounts in bytes, times in seconds, cores, nodes, ntasks and partition
    as lists, `expected` and `total` as `Expectation`.
    `where`: the stage, for errors.
    Raises `WorkflowError`: the keys contradict each other.

    Examples
    --------
    >>> fields = fields_of({"ntasks": [4], "cpus_per_task": 7, "walltime": 600.0}, where="stage 'a'")
    >>> fields["cores"], fields["learns_run"]
    (28, False)
    """
    plain = {OF_ONE_FIELD[name]: _field(value) for name, value in given.items() if name in OF_ONE_FIELD}
    return plain | {
        **AskedShapes(given, where).fields(),
        **parts_of(given, where=where),
        "learns_run": expectation_in(given).learn,
    }


def _field(value: Any) -> Any:
    """Return a field's value, made immutable, with plain strings."""
    if isinstance(value, Mapping):
        return tuple((str(name), str(text)) for name, text in value.items())
    if isinstance(value, list):
        return tuple(map(str, value))
    return str(value) if isinstance(value, str) else value
