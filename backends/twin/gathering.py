"""Gathers the data for a twin: from the batch system here, or from files that its commands wrote elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from asa.core import plugins, temporary
from asa.core.documents import read_text
from asa.core.parallel import Progress, silent
from asa.core.reading import run_command
from asa.errors import InputError, UnavailableError
from asa.facts import SiteFacts, Survey
from asa.history import JobHistory, read_history

_GROUP = "asa.surveys"
_ELSEWHERE = (
    "Elsewhere than on the cluster, use past jobs: `asa worth FILE --history JOBS`; `asa twin --script` prints "
    "commands that gather them there."
)
_ELSE = f"Try it by hand. {_ELSEWHERE}"
_TIMEOUT_S = 600.0  # accounting may take long to return months of jobs


def gathered(source: Path | None, on_progress: Progress = silent) -> tuple[JobHistory, SiteFacts | None]:
    """Read jobs and, if available, the site's facts.

    `source`: a file of jobs (``sacct -P``, or a log in the Standard Workload Format), a folder with such a file and the
    output of a survey's other commands, or None for the batch system here.
    `on_progress`: called with a text for each step.
    Raises `InputError`: there is no such file or folder, or no batch system.
    Raises `UnavailableError`: the batch system does not answer.
    Raises `TraceError`: the jobs cannot be read.
    """
    if source is None:
        with temporary.folder("asa-twin-") as folder:
            return _asked(Path(folder), on_progress)
    if not source.is_dir():
        return read_history(source), None
    return _read(source)


def script() -> str:
    """Return the shell commands that write a folder of gathered data on a login node."""
    lines = [
        "#!/bin/sh",
        "# What `asa twin FOLDER` reads; take the folder to where asa is.",
        "mkdir -p site && cd site",
    ]
    for survey in _surveys():
        lines += [f"{command} > {name}" for name, command in survey.commands.items()]
    return "\n".join(lines)


def _surveys() -> Iterator[Survey]:
    for name in sorted(plugins.names(_GROUP)):
        yield plugins.load(_GROUP, name)()


def _asked(folder: Path, on_progress: Progress) -> tuple[JobHistory, SiteFacts]:
    """Query the first batch system whose commands are installed here."""
    for survey in _surveys():
        if not all(shutil.which(_program(survey.commands[name])) for name in survey.needed):
            continue
        texts: dict[str, str] = {}
        for number, (name, command) in enumerate(survey.commands.items()):
            on_progress("asking the batch system", number, len(survey.commands))
            printed = _run(command, survey if name in survey.needed else None)
            if printed is not None:
                texts[name] = printed
        on_progress("asking the batch system", len(survey.commands), len(survey.commands))
        jobs = folder / survey.jobs
        jobs.write_text(texts.pop(survey.jobs))
        return read_history(jobs), survey.read(texts)
    hint = "Give a file or folder that was made where there is one; asa twin --script prints the commands."
    raise InputError("there is no batch system here that could be asked", where="asa twin", hint=hint)


def _program(command: str) -> str:
    return next(word for word in command.split() if "=" not in word)


def _run(command: str, needed_by: Survey | None) -> str | None:
    """Return the output of a command; None if it fails and is not needed."""
    try:
        done = run_command(["/bin/sh", "-c", command], timeout_s=_TIMEOUT_S, env={**os.environ, "LC_ALL": "C"})
    except subprocess.TimeoutExpired:
        if needed_by is None:
            return None
        raise UnavailableError(f"no answer within {_TIMEOUT_S:g} s", where=command, hint=_ELSE) from None
    if done.returncode == 0:
        return done.stdout
    if needed_by is None:
        return None
    if known := needed_by.why_not(command, done.stderr):
        raise UnavailableError(known.message, where=command, hint=" ".join(filter(None, (known.hint, _ELSEWHERE))))
    words = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    raise UnavailableError(f"says {words[0]!r}", where=command, hint=_ELSE)


def _read(folder: Path) -> tuple[JobHistory, SiteFacts | None]:
    """Read the jobs, and the facts if there are any, from a folder."""
    surveys = list(_surveys())
    survey = next((survey for survey in surveys if (folder / survey.jobs).exists()), None)
    if survey is None:
        names = ", ".join(survey.jobs for survey in surveys)
        hint = "asa twin --script prints the commands that make it."
        if (folder / "twin.json").exists():
            hint = f"It is a twin already: --twin {folder}"
        raise InputError(f"holds no {names}", where=str(folder), hint=hint)
    texts: Mapping[str, str] = {
        name: read_text(folder / name, errors="replace")
        for name in survey.commands
        if name != survey.jobs and (folder / name).exists()
    }
    history = read_history(folder / survey.jobs)
    missing = [name for name in survey.needed if name != survey.jobs and name not in texts]
    return history, None if missing else survey.read(texts)
