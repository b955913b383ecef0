"""The keys of a stage of which no single field has the value as it is given; each is described once.

Files and Python take types, bounds and words from here, as they do for plain keys from `asa.keys`.
"""

from __future__ import annotations

from typing import Any, Final

from asa.keys import Key, Kind, keys_of
from asa.workflow import KEYS_OF_PARTS, MAX_RETRIES, WHENS, Stage


def _key(name: str, kind: Kind, description: str, *examples: Any, **more: Any) -> Key:
    return Key(name=name, kind=kind, description=description, examples=examples, **more)


_WAYS: Final = (
    _key("command", "text", "What to run: shell commands for sh.", "srun ./project raw", field="command"),
    _key(
        "script",
        "path",
        "What to run: the path of a script, relative to this file. It is read together with this file, and run by the "
        "interpreter in its first line. A value of several lines, or one that begins with #!, is the script itself.",
        "project.sh",
        field="script",
    ),
    _key(
        "tasks",
        "lines",
        "What to run: a list of shell commands, run in parallel on the cores of the stage.",
        ["./part 1", "./part 2"],
        field="tasks",
    ),
    _key(
        "tasks_file",
        "path",
        "What to run: a file with one shell command per line, relative to where commands run. It is read when the "
        "stage starts, so an earlier stage may write it.",
        "project.tasks",
        field="tasks_file",
    ),
)
WAYS: Final = tuple(key.name for key in _WAYS)
"""The keys for what a stage runs, of which it has one."""

NTASKS: Final = _key(
    "ntasks",
    "widths",
    "In place of cores, as in batch scripts: the stage has ntasks times cpus_per_task cores.",
    28,
)
"""A key of files alone."""

_SIZE_AND_TIME: Final = (
    _key(
        "cores",
        "widths",
        "Cores that it needs; or those that it may be asked for with, as a list of which the first is what it gets "
        "from strategies that choose none, or as a range, which is doubled from its first to its last.",
        112,
        [28, 7, 14, 56],
        "7..112",
    ),
    _key("nodes", "widths", "Whole nodes that it needs; a list or a range as for cores.", 2, [2, 1, 4], "1..8"),
    _key(
        "partition",
        "partitions",
        "Partition of its job; by default the site's. Of several, strategies that do not choose take the first.",
        "batch",
        ["short", "batch"],
    ),
    _key(
        "walltime",
        "times",
        "After how long it is killed, as in Slurm (90 means 90 minutes) or with units; or a table by width. At other "
        "widths it is in proportion to the run times.",
        "40min",
        "1h30m",
        "2:00:00",
        "1-12",
        {"7": "8h", "112": "1h"},
    ),
    _key(
        "expected",
        "expectation",
        'Its usual run time; "learn" to learn it from past runs; or both, as in { learn = true, until = "22min" }; or '
        'by width, as in { 7 = "6h", 28 = "95min" }, where widths are cores, nodes or ntasks.',
        "22min",
        "learn",
        {"7": "6h", "28": "95min"},
    ),
    _key(
        "scaling",
        "scaling",
        "The law that gives run times at other widths: by interpolation only (measured), Amdahl's, Downey's model, or "
        "equal tasks (the default of a stage with tasks).",
        "amdahl",
        {"amdahl": 0.95},
        {"downey": {"parallelism": 60, "variance": 0.5}},
    ),
    _key(
        "continues",
        "flag",
        "It is one long computation that runs in legs: a chain of jobs, each of which continues where the one before "
        "stopped, until it exits with 0. It saves its own state and starts from what it saved.",
        True,  # noqa: FBT003 - an example
    ),
    _key(
        "total",
        "expectation",
        "For a stage that continues: the usual run time of all its legs together, as `expected` for other stages.",
        "200h",
        "learn",
    ),
    _key(
        "retries",
        "retries",
        "How often it is submitted again after a failure; and factors for its walltime or memory after it ran out of "
        "them, as in { times = 2, walltime_factor = 1.5, memory_factor = 2 }.",
        2,
        field="retries",
    ),
)

RETRIES: Final = {
    "times": _key("retries", "count", "How often it is submitted again after a failure.", 2, max_value=MAX_RETRIES),
    "walltime_factor": _key(
        "retry_walltime_factor",
        "factor",
        "Factor for the walltime after each attempt that reached its walltime.",
        1.5,
        field="retry_walltime_factor",
    ),
    "memory_factor": _key(
        "retry_memory_factor",
        "factor",
        "Factor for the memory after each attempt that ran out of memory.",
        1.5,
        field="retry_memory_factor",
    ),
    "max_memory": _key(
        "retry_max_memory",
        "memory",
        "Upper limit of the memory; by default what the nodes of its partition have.",
        "512G",
        field="retry_max_memory_bytes",
    ),
}
"""Arguments in Python, by their names in the table `retries` of a file."""

WHEN: Final = _key(
    "when",
    "choice",
    "When it runs: when all stages in `after` have completed (success), or one of them has (any); when all have ended "
    "and at least one failed or did not run (failed); or when all have ended (always).",
    "failed",
    choices=WHENS,
    field="when",
)

SETTINGS: Final = (*keys_of(Stage), *KEYS_OF_PARTS, *_WAYS, *_SIZE_AND_TIME, NTASKS)
"""The keys that a file may set for all stages at once."""
_OF_STAGES: Final = (*keys_of(Stage), *_SIZE_AND_TIME, *RETRIES.values(), WHEN)
ASKED: Final = {key.name: key for key in (*_OF_STAGES, *KEYS_OF_PARTS)}
"""The requests in Python, by name."""
OF_ONE_FIELD: Final = {key.name: key.field for key in (*_WAYS, *_OF_STAGES) if key.field} | {
    "name": "name",
    "after": "after",
}
"""The keys that set exactly one field, with that field."""
