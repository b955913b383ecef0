"""What of a recording is kept beside the workflow file: scripts, files that the driver made, and what it was.

``flow.toml`` has ``flow.recorded/`` beside it: ``record.json`` says what was run, when, and what it read, with
checksums, so that `asa check` can say when to record again.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from asa.core.documents import read_file, read_json
from asa.core.safe import provide_folder, writing, writing_text
from asa.errors import AsaError

from .recorder import Recording
from .translation import Translated

_RECORD: Final = "record.json"
_MOST_BYTES_READ: Final = 64 << 20
"""Larger files are known by size and time of change."""


def folder_beside(file: Path) -> Path:
    """Name the folder that belongs to a workflow file."""
    return file.with_name(f"{file.stem}.recorded")


def keep(recording: Recording, made: Translated, folder: Path) -> None:
    """Write what is kept into a folder of its own."""
    provide_folder(folder)
    for at, content in made.files.items():
        path = folder / at
        path.parent.mkdir(parents=True, exist_ok=True)
        with writing(path) as file:
            file.write(content)
        if at in made.programs:
            path.chmod(path.stat().st_mode | 0o100)
    for at, target in made.links.items():
        path = folder / at
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    own = {*recording.made.new, *recording.made.changed}
    read = {recording.script, *recording.read, *(Path(job.path) for job in recording.jobs if job.path)} - own - {None}
    recorded = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    jobs = [{"number": job.number, "arguments": list(job.arguments), "folder": job.folder} for job in recording.jobs]
    document: dict[str, object] = {
        "commands": list(map(list, recording.commands)),
        "folder": str(recording.folder),
        "recorded": recorded,
        "jobs": jobs,
    }
    document["read"] = dict(sorted((str(path), told) for path in read if path is not None and (told := _told(path))))
    with writing_text(folder / _RECORD) as text:
        json.dump(document, text, indent=1)
        text.write("\n")


def _told(path: Path) -> str:
    """Say what a file or a folder is like: a checksum of its content, or its names."""
    try:
        if path.is_dir():
            return "names " + hashlib.sha256("\0".join(sorted(one.name for one in path.iterdir())).encode()).hexdigest()
        about = path.stat()
        if about.st_size > _MOST_BYTES_READ:
            return f"size {about.st_size} of {int(about.st_mtime)}"
        return "sha256 " + hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def changed_since(file: Path) -> tuple[list[str], str]:
    """Name what a recorded driver read and what has changed since; and the command that records it again.

    Examples
    --------
    >>> changed_since(Path("flow.toml"))
    ([], '')
    """
    record = _record(folder_beside(file))
    changed = [path for path, told in record.get("read", {}).items() if _told(Path(path)) != told]
    to = f"--out {shlex.quote(str(file))}"
    commands = [shlex.join(command) for command in commands_of(file)]
    again = [
        f"asa import scripts --record {'--add' if i else '--force'} {to} -- {one}" for i, one in enumerate(commands)
    ]
    return changed, " && ".join(again)


def commands_of(file: Path) -> list[list[str]]:
    """Give the commands that a workflow file was recorded from; none if it was not."""
    found = _record(folder_beside(file)).get("commands", [])
    return [[str(word) for word in command] for command in found if isinstance(command, list)]


def is_as_recorded(file: Path) -> bool:
    """Whether a workflow file is as it was written when it was recorded."""
    return bool(told := _told(file)) and _record(folder_beside(file)).get("file") == told


def note_file(file: Path) -> None:
    """Note what a workflow file is like, once it is written."""
    folder = folder_beside(file)
    document = dict(_record(folder)) | {"file": _told(file)}
    with writing_text(folder / _RECORD) as text:
        json.dump(document, text, indent=1)
        text.write("\n")


def _record(folder: Path) -> Mapping[str, Any]:
    try:
        found = read_json(read_file(folder / _RECORD))
    except (OSError, AsaError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("read", {}), dict) else {}
