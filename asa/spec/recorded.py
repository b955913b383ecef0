"""The record of a workflow file made from a driver: the commands that were run, and checksums of the files they read.

The record of ``flow.toml`` is ``flow.recorded/record.json``, next to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from asa.core.documents import read_file, read_json
from asa.core.safe import writing_text
from asa.errors import AsaError

_RECORD: Final = "record.json"
_MAX_BYTES_READ: Final = 64 << 20
"""Larger files are compared by size and time of change, not by content."""


def recorded_folder(file: Path) -> Path:
    """Return the folder that belongs to a workflow file."""
    return file.parent / f"{file.stem}.recorded"


def look_of(path: Path) -> str:
    """Return a fingerprint of a file or a folder: a checksum of its content, or its names."""
    try:
        if path.is_dir():
            names = b"\0".join(sorted(os.fsencode(entry.name) for entry in path.iterdir()))
            return "names " + hashlib.sha256(names).hexdigest()
        about = path.stat()
        if about.st_size > _MAX_BYTES_READ:
            return f"size {about.st_size} of {int(about.st_mtime)}"
        return "sha256 " + hashlib.sha256(read_file(path, _MAX_BYTES_READ)).hexdigest()
    except OSError:
        return ""


def changed_since(file: Path) -> tuple[list[str], str]:
    """Return the changed files that a recorded driver had read, and the command that records it again.

    Examples
    --------
    >>> changed_since(Path("flow.toml"))
    ([], '')
    """
    record = _record(recorded_folder(file))
    changed = [path for path, look in record.get("read", {}).items() if look_of(Path(path)) != look]
    to = f"--out {shlex.quote(str(file))}"
    commands = [shlex.join(command) for command in commands_of(file)]
    again = [
        f"asa import scripts --record {'--add' if i else '--force'} {to} -- {command}"
        for i, command in enumerate(commands)
    ]
    return changed, " && ".join(again)


def commands_of(file: Path) -> list[list[str]]:
    """Return the commands from which a workflow file was recorded; none if it was not recorded."""
    commands = _record(recorded_folder(file)).get("commands")
    commands = commands if isinstance(commands, list) else []
    return [[str(word) for word in command] for command in commands if isinstance(command, list)]


def is_of_recording(folder: Path) -> bool:
    """Whether a folder belongs to a recording."""
    return bool(_record(folder))


def is_as_recorded(file: Path) -> bool:
    """Whether a workflow file is unchanged since it was recorded."""
    return bool(look := look_of(file)) and _record(recorded_folder(file)).get("file") == look


def note_file(file: Path) -> None:
    """Record the checksum of a workflow file after it was written."""
    folder = recorded_folder(file)
    note(folder, dict(_record(folder)) | {"file": look_of(file)})


def note(folder: Path, document: Mapping[str, object]) -> None:
    """Write the record of a recording."""
    with writing_text(folder / _RECORD) as text:
        json.dump(document, text, indent=1)
        text.write("\n")


def _record(folder: Path) -> Mapping[str, Any]:
    try:
        document = read_json(read_file(folder / _RECORD))
    except (OSError, AsaError, ValueError):
        return {}
    return document if isinstance(document, dict) and isinstance(document.get("read", {}), dict) else {}
