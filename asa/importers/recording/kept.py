"""What of a recording is kept beside the workflow file: scripts, files that the driver made, and what was run."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from asa.core.safe import provide_folder, writing
from asa.spec.recorded import look_of, note

from .recorder import Recording
from .translation import Translated


def keep(recording: Recording, made: Translated, folder: Path) -> None:
    """Write what is kept into a folder of its own (`asa.spec.recorded`)."""
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
