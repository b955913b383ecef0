"""Problems in a workflow file, described for people: the line, the problem, and the remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from asa.core.late import dataclass
from asa.errors import InputError, near
from asa.spec.keys import RETRIES
from asa.spec.model import StageSettings, StageSpec, WorkflowSpec
from asa.spec.stages import in_order

Severity = Literal["error", "warning", "note"]

_SHOWN = 40  # shown characters of a value
_FEW_KEYS = 12  # up to this number, all keys are listed, even if one is probably meant
_MEANT = {
    "apptainer": "container", "docker": "container", "envmodules": "modules", "image": "container", "module": "modules",
    "mpi": "launcher", "module_load": "modules", "singularity": "container", "conda_env": "conda",
    "args": "command", "cmd": "command", "cpu": "cores", "cpus": "cores", "cpus-per-task": "cpus_per_task",
    "cwd": "command", "depends": "after", "depends_on": "after", "dependencies": "after", "duration": "expected",
    "err": "stderr", "error": "stderr", "log": "stdout", "out": "stdout",
    "env": "environment", "gpu": "gpus", "gres": "gpus", "input": "inputs", "job-name": "name", "mem": "memory",
    "needs": "after", "ntasks-per-node": "ntasks", "ntasks_per_node": "ntasks", "output": "outputs", "qos": "options",
    "queue": "partition", "ram": "memory", "requires": "after", "retry": "retries", "run": "command",
    "runtime": "expected", "stages": "stage", "task": "tasks", "time": "walltime", "time_limit": "walltime",
    "timeout": "walltime", "variables": "parameters", "vars": "parameters", "params": "parameters",
}  # fmt: skip
_WITHIN = {
    "learn": 'expected = "learn"',
    "until": 'expected = { learn = true, until = "22min" }',
    "times": "retries = { times = 2 }",
    "walltime_factor": "retries = { times = 2, walltime_factor = 1.5 }",
    "memory_factor": "retries = { times = 2, memory_factor = 1.5 }",
    "max_memory": 'retries = { times = 2, max_memory = "64G" }',
}
_SAID = {
    "string_type": "must be text in quotes",
    "list_type": "must be a list in brackets",
    "dict_type": "must be a table of names and values",
    "model_type": "must be a table of names and values",
    "int_type": "must be a whole number, without quotes",
    "float_type": "must be a number, without quotes",
    "bool_type": "must be true or false, without quotes",
    "finite_number": "must be a finite number",
    "string_pattern_mismatch": "is not 1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-', the first a letter or digit",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
}
_WIDE = frozenset({"cores", "nodes", "ntasks"})
_ENDS = re.compile(r"(\d+) *(?:-|:|to|,|\.\.\.) *(\d+)")  # both ends of what was probably meant as a range
_BOUNDS = {
    "greater_than": ("gt", "must be above {}"),
    "greater_than_equal": ("ge", "must be {} or more"),
    "less_than_equal": ("le", "must be {} or less"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong, or worth knowing, in a workflow file or in a script that it names.

    Parameters
    ----------
    file
        Its path, as it was given.
    line
        From 1; None for the file as a whole.
    severity
        An ``error`` keeps the workflow from being read; a ``warning`` may keep it from running well; a ``note`` is
        worth knowing.
    message
        What is wrong.
    hint
        What to do.
    """

    file: str
    line: int | None
    severity: Severity
    message: str
    hint: str

    @property
    def where(self) -> str:
        """File and line, as compilers write them."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def error(self) -> InputError:
        """Return the exception for this problem."""
        return InputError(self.message, where=self.where, hint=self.hint)


def of_model(error: Any, names: Sequence[str | None], missing: Collection[str]) -> tuple[str, str]:
    """Describe an error of pydantic's, and what to do."""
    location, kind = error["loc"], error["type"]
    key = _key_at(location)
    named = "retries" if key == "times" else key
    stage = names[location[1]] if location[0] == "stage" and len(location) > 1 else None
    whose = _whose(stage)
    if kind == "extra_forbidden":
        known = _known(location)
        within = _WITHIN.get(key) if "expected" in known else None
        guess = f"Did you mean {within}? " if within else meant(key, [*missing, *known])
        more = (
            f"Known keys: {', '.join(known)}." if not guess or len(known) <= _FEW_KEYS else "`asa schema` has all keys."
        )
        return f"{whose}there is no key {key!r}", f"{guess}{more}"
    if kind == "missing":
        return f"{whose}{key!r} is missing", _ADD.get(key, "Add it.")
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        must = words.format(format(error["ctx"][bound], ".10g"))
        given = error["input"]
        shown = "so large a number" if isinstance(given, int) and given.bit_length() > 63 else given
        return f"{whose}{named}: {must}, not {shown}", "Correct this number."
    if kind == "value_error":
        cause = error["ctx"]["error"].__cause__
        hint = (cause.hint if isinstance(cause, InputError) else None) or "Correct this value."
        return f"{whose}{key}: {str(error['msg']).removeprefix('Value error, ')}", hint
    which = f", not {json.dumps(error['input'], default=str)[:_SHOWN]}" if isinstance(location[-1], int) else ""
    return f"{whose}{named}: {_SAID.get(kind, error['msg'])}{which}", _example(location, error["input"])


def _key_at(location: Sequence[str | int]) -> str:
    """Return the key of a value; for values by width, with the width."""
    keys = [part for part in location if isinstance(part, str)]
    key = next((part for part in reversed(keys) if part != "[key]"), "")
    is_width = len(keys) > 1 and keys[-1] == key and keys[-2] != "environment" and key.isdigit()
    return f"{keys[-2]} at {key}" if is_width else key


_ADD = {
    "name": 'Give it one, as in name = "project".',
    "stage": "Start each stage with a line [[stage]].",
    "walltime": 'Give the time after which it is killed, as in walltime = "30min", here or under [defaults].',
    "cores": "Give what it needs, as in cores = 28 or nodes = 2, here or under [defaults].",
    "times": "Give how often, as in { times = 2, walltime_factor = 1.5 }.",
}


def _whose(stage: str | None) -> str:
    return f"stage {stage!r}: " if stage else ""


def meant(written: str, known: Iterable[str]) -> str:
    """Name the known key that was probably meant, for the beginning of a hint; empty if there is none.

    Examples
    --------
    >>> meant("mem", ["cores", "memory"]), meant("coers", ["cores", "memory"]), meant("x", ["cores"])
    ("Did you mean 'memory'? ", "Did you mean 'cores'? ", '')
    """
    names = list(known)
    other = _MEANT.get(written)
    return f"Did you mean {other!r}? " if other in names else near(written, names)


def means(written: str, key: str) -> bool:
    """Whether this key was probably meant by an unknown key.

    Examples
    --------
    >>> means("waltime", "walltime"), means("time", "walltime"), means("command", "walltime")
    (True, True, False)
    """
    return _MEANT.get(written) == key or bool(near(written, [key]))


def missing_of_stage(key: str, stage: str | None) -> tuple[str, str]:
    """Return the error that neither a stage nor the defaults have a required key."""
    return f"{_whose(stage)}{key!r} is missing", _ADD[key]


def _known(location: Sequence[str | int]) -> list[str]:
    if location[0] == "defaults":
        model: Any = StageSettings
    elif location[0] == "stage" and len(location) > 1:
        model = StageSpec
    else:
        model = WorkflowSpec
    inner = {"expected": ["learn", "until"], "total": ["learn", "until"], "retries": list(RETRIES)}
    return inner.get(str(location[-2]) if len(location) > 1 else "") or in_order(model.model_fields)


def _example(location: Sequence[str | int], given: object) -> str:
    """Show an example of a key's value."""
    key = next((part for part in reversed(location) if isinstance(part, str)), "")
    fields: dict[str, Any] = {**WorkflowSpec.model_fields, **StageSpec.model_fields}
    if key == "times":
        return "Write it as in retries = 2."
    if key in _WIDE and (ends := _ENDS.fullmatch(str(given))):
        return f'Write a range as {key} = "{ends[1]}..{ends[2]}".'
    if key not in fields or not fields[key].examples:
        return "Correct this value."
    if isinstance(given, str) and given and isinstance(fields[key].examples[0], list) and location[-1] == key:
        return f"Write it as {key} = {json.dumps([given])}."
    example = fields[key].examples[0]
    return "Correct this value." if isinstance(example, dict) else f"Write it as in {key} = {json.dumps(example)}."
