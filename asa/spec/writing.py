"""Writes workflows as readable TOML files, which read back as the same workflow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Any

from asa.continuation import Continuation
from asa.errors import InputError
from asa.keys import Key, values_of
from asa.preparation import Preparation
from asa.printable import acts
from asa.requests import COUNTED, without_size
from asa.spec.moldable import several
from asa.spec.parameters import PLACEHOLDER, is_text_of_script
from asa.spec.stages import in_order
from asa.workflow import Stage, Workflow

_BRACES = "open"  # the parameter for two braces, if a command contains something that looks like a parameter
_OPEN = f"{{{{{_BRACES}}}}}"
_LONG = 80
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_RETRY_FACTOR = 2.0
_SEVERAL = 2


def write_workflow(workflow: Workflow, scripts: Mapping[str, str | PurePath] | None = None) -> str:
    """Write a workflow as the text of a TOML file.

    Parameters
    ----------
    workflow
        The workflow.
    scripts
        Paths of scripts' files by stage name, relative to the file to be written. Other scripts are written into the
        text.

    Returns
    -------
    str
        Text that `asa.spec.load_workflow` reads as an equal workflow.

    Raises
    ------
    InputError
        A script of one line without an interpreter has no file, and would be read as a path; or a text has a null byte.

    Examples
    --------
    >>> print(write_workflow(Workflow("w", [Stage("a", cores=2, walltime_s=5400, command="make")])))
    name = "w"
    <BLANKLINE>
    [[stage]]
    name = "a"
    command = "make"
    cores = 2
    walltime = "1h30m"
    <BLANKLINE>
    """
    head = [f"name = {_text(workflow.name)}"]
    whole_s = sum(stage.in_one_job_s for stage in workflow.stages.values())
    if workflow.walltime_s != whole_s:
        head.append(f"walltime = {_duration_of(workflow.walltime_s)}")
    stages = [_stage(stage, (scripts or {}).get(stage.name)) for stage in workflow.stages.values()]
    tables = [head, *stages]
    if any(_OPEN in line for table in tables for line in table if not line.startswith("script = ")):
        tables.insert(1, ["[parameters]", f'{_BRACES} = "{{{{"  # so that {_OPEN}x}}}} is no parameter, but text'])
    return "\n\n".join("\n".join(table) for table in tables) + "\n"


def _stage(stage: Stage, script: str | PurePath | None) -> list[str]:
    legs = stage.continues
    own = {
        "name": _text(stage.name),
        "after": _list(stage.after),
        "when": _text(stage.when) if stage.when != "success" else "",
        "command": _text(stage.command) if stage.command else "",
        "script": _script(stage, script),
        "tasks": _list(stage.tasks),
        "tasks_file": _text(stage.tasks_file) if stage.tasks_file else "",
        **_size(stage),
        "partition": _partitions(stage),
        "walltime": _by_width(stage.moldable.walltime_at if stage.moldable else ()) or _duration_of(stage.walltime_s),
        "expected" if legs is None else "total": _expected(stage),
        "continues": "true" if legs is not None else "",
        "warn": _text(f"{legs.warn}@{_duration(legs.warn_s)}") if legs is not None and legs.warn else "",
        "scaling": _scaling(stage),
        "retries": _retries(stage),
    }
    written = {
        key.name: _plain(key, value, stage)
        for part in (stage, legs or Continuation(), stage.preparation or Preparation())
        for key, value in values_of(part)
        if key.name not in own
    } | own
    return ["[[stage]]", *(f"{name} = {written[name]}" for name in in_order(written) if written[name])]


def _size(stage: Stage) -> dict[str, str]:
    """Write the size of the stage's job; for a request, only the other widths that it may have."""
    is_wide = stage.moldable is not None and len(stage.moldable.widths) >= _SEVERAL
    cores = _widths(stage, stage.cores) if stage.request is None or is_wide else ""
    return {"cores": cores, "nodes": _widths(stage, stage.nodes)}


def _plain(key: Key, value: Any, stage: Stage) -> str:
    """Write a key's value; write nothing if it follows from other keys, or is the default."""
    if stage.request is not None:
        if key.field in COUNTED:
            return ""
        value = without_size(stage.options) if key.field == "options" else value
    if value == key.default:
        return ""
    return _text(key.notation.write(value)) if key.notation is not None else _WRITTEN[key.kind](value)


def _script(stage: Stage, path: str | PurePath | None) -> str:
    if not stage.script:
        return ""
    if path is not None:
        return _text(str(path))
    if not is_text_of_script(stage.script):
        raise InputError(
            "has a script of one line that names no interpreter",
            where=f"stage {stage.name!r}",
            hint="Give the path of a file that it is in, or make it a command.",
        )
    return _quoted(stage.script)


def _widths(stage: Stage, own: int | None) -> str:
    """Write a stage's width; of several widths, its own first."""
    widths = () if stage.moldable is None or own is None else stage.moldable.widths
    if len(widths) < _SEVERAL:
        return _number(own)
    doubled = f"{own}..{widths[-1]}"
    if several(doubled) == list(widths):
        return _text(doubled)
    return f"[{', '.join(map(str, (own, *(width for width in widths if width != own))))}]"


def _jobs(bounds: tuple[int, int]) -> str:
    least, most = bounds
    return _text(f"{least}..{most}") if least < most else _number(most)


def _partitions(stage: Stage) -> str:
    others = [
        partition for partition in (stage.moldable.partitions if stage.moldable else ()) if partition != stage.partition
    ]
    if others:
        return _list((stage.partition, *others))
    return _text(stage.partition) if stage.partition else ""


def _by_width(points: Iterable[tuple[int, float]]) -> str:
    pairs = ", ".join(f"{width} = {_duration_of(seconds)}" for width, seconds in points)
    return f"{{ {pairs} }}" if pairs else ""


def _scaling(stage: Stage) -> str:
    if stage.moldable is None:
        return ""
    scaling = stage.moldable.scaling
    if scaling.parallel is not None:
        return f"{{ amdahl = {_number(scaling.parallel)} }}"
    if scaling.parallelism is not None:
        a, v = _number(scaling.parallelism), _number(scaling.variance)
        return f"{{ downey = {{ parallelism = {a}, variance = {v} }} }}"
    is_list = bool(stage.tasks or stage.tasks_file)  # a list scales as tasks if no other law is given
    return _text(scaling.law) if scaling.law != "measured" or is_list else ""


def _expected(stage: Stage) -> str:
    until = "" if stage.expected_run_s is None else _duration_of(stage.expected_run_s)
    if stage.moldable is not None and stage.moldable.run_at:
        until = _by_width((point.width, point.run_s) for point in stage.moldable.run_at)
    if not stage.learns_run:
        return until
    return f"{{ learn = true, until = {until} }}" if until else '"learn"'


def _retries(stage: Stage) -> str:
    lines = [
        f"{key} = {_number(factor)}"
        for key, factor in (
            ("walltime_factor", stage.retry_walltime_factor),
            ("memory_factor", stage.retry_memory_factor),
        )
        if factor != _RETRY_FACTOR
    ]
    if stage.retry_max_memory_bytes:
        lines.append(f"max_memory = {_text(_memory(stage.retry_max_memory_bytes))}")
    if lines:
        return f"{{ times = {stage.retries}, {', '.join(lines)} }}"
    return _number(stage.retries) if stage.retries else ""


def _pairs(given: tuple[tuple[str, str], ...]) -> str:
    pairs = ", ".join(f"{_key(name)} = {_text(value)}" for name, value in given)
    return f"{{ {pairs} }}" if pairs else ""


def _list(texts: tuple[str, ...]) -> str:
    if not texts:
        return ""
    words = [_on_one_line(_without_placeholders(text)) for text in texts]
    line = f"[{', '.join(words)}]"
    return line if len(line) <= _LONG else "[\n" + "".join(f"  {word},\n" for word in words) + "]"


def _number(number: float | None) -> str:
    if number is None:
        return ""
    return str(int(number)) if float(number).is_integer() and abs(number) < 1 << 53 else repr(number)


def _duration_of(seconds: float) -> str:
    return _text(_duration(seconds))


def _duration(seconds: float) -> str:
    """Write a duration exactly, as in 1h30m, unlike `units.format_duration`, which rounds it."""
    if not float(seconds).is_integer():
        return f"{_decimal(seconds)}s"
    minutes, secs = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m" if days or hours or secs else "min"), (secs, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def _memory(count: int) -> str:
    for unit, size in (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20)):
        if count % size == 0:
            return f"{count // size}{unit}"
    return f"{format(Decimal(count) / 1024, 'f')}K"


def _decimal(number: float) -> str:
    return format(Decimal(repr(number)), "f")


# ---------------------------------------------------------------------- text


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _on_one_line(name)


def _without_placeholders(text: str) -> str:
    """Escape text that looks like a parameter but is not."""
    return PLACEHOLDER.sub(lambda match: f"{_OPEN}{match[0][2:]}", text)


def _text(text: str) -> str:
    return _quoted(_without_placeholders(text))


def _quoted(text: str) -> str:
    """Write a string: on several lines if it has several, else in the quotes that need no escapes."""
    if "\n" not in text or text.endswith("'"):
        return _on_one_line(text) if "\n" not in text else _on_lines(text)
    if "'''" in text or acts(text):
        return _on_lines(text)
    return f"'''\n{text}'''"


def _on_lines(text: str) -> str:
    lines = (_escaped(line) for line in text.split("\n"))
    return '"""\n' + "\n".join(lines) + '"""'


def _on_one_line(text: str) -> str:
    is_plain = not acts(text) and "\n" not in text and "'" not in text
    return f"'{text}'" if is_plain and ("\\" in text or '"' in text) else f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    if "\0" in text:
        raise InputError(f"{text!r} has a null byte, which nothing that is run can have", hint="Take it out.")
    return "".join(_ESCAPES.get(letter) or (f"\\u{ord(letter):04x}" if acts(letter) else letter) for letter in text)


_WRITTEN: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(("count", "number", "amount"), _number),
    **dict.fromkeys(("memory", "storage"), lambda count: _text(_memory(count))),
    "flag": lambda is_so: "true" if is_so else "",
    **dict.fromkeys(("text", "output", "choice"), _text),
    **dict.fromkeys(("names", "paths", "files"), _list),
    "options": lambda options: _list(options) or "[]",
    "jobs": _jobs,
    "pairs": _pairs,
    "patience": lambda patience_s: _duration_of(patience_s) if patience_s else _text("0s"),
}
"""Functions that write values, by kind of key."""
