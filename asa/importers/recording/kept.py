"""Keeps parts of a recording next to the workflow file: scripts, files that the driver made, and the commands."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path

from asa.core.safe import provide_folder, writing
from asa.errors import InputError
from asa.spec.recorded import is_of_recording, look_of, note

from .recorder import Recording
from .translation import KEPT_FOLDERS, Translated


def keep(recording: Recording, made: Translated, folder: Path) -> None:
    """Write these files into their own folder (`asa.spec.recorded`), in place of those of an earlier recording.

    Raises `InputError`: the folder exists and holds no recording.
    """
    _clear(folder)
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
    document: dict[str, object] = {
        "commands": list(map(list, recording.commands)),
        "folder": str(recording.folder),
        "recorded": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "jobs": [
            {"number": job.number, "arguments": list(job.arguments), "folder": job.folder} for job in recording.jobs
        ],
        "read": dict(sorted((str(path), look) for path in read if path is not None and (look := look_of(path)))),
    }
    note(folder, document)


def _clear(folder: Path) -> None:
    """Remove the files of an earlier recording, since a run would put them in place, too."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir() or (any(folder.iterdir()) and not is_of_recording(folder)):
        hint = "Move it away, or give another name with --out."
        raise InputError("is not of a recording: what is recorded would be kept there", where=str(folder), hint=hint)
    for name in KEPT_FOLDERS:
        path = folder / name
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path)
