"""Checks, on this machine and as this user, whether the environments that stages ask for are available.

A workflow file may be anybody's. So nothing that it names by path is run, and no variable that it sets is used: modules
are those of this user's shell, environments those that this user's conda knows by name.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from asa.core.reading import run_command
from asa.job import head, text
from asa.preparation import Preparation, preparing
from asa.workflow import Stage, Workflow

_TIMEOUT_S = 60.0
_AT_ONCE = 8
_PARTS = ("modules", "conda", "container")
_ELSEWHERE = "It was tried here: where jobs run it may be there."
_WITHOUT = "It was tried here, without the stage's `environment`: where jobs run, with it, it may be there."


def lacking(workflow: Workflow, folder: Path) -> Iterator[tuple[Stage, str, str, str]]:
    """Try the environments that stages ask for; run nothing that the file names.

    Yields: the stage, the key, what is wrong, and what to do.
    """
    preparations = {stage: stage.preparation for stage in workflow.stages.values() if stage.preparation is not None}
    for stage, key, words in _tried(preparations, folder):
        yield stage, key, words, _WITHOUT if stage.environment else _ELSEWHERE
    for stage, preparation in preparations.items():
        program = (preparation.launcher.split() or [""])[0]
        outside = replace(preparation, container="", binds=())  # the launcher runs outside the container
        if program and not outside.changes_path and shutil.which(program) is None:
            yield stage, "launcher", f"{program}: not found in PATH here", _ELSEWHERE
        for bind in preparation.binds:
            path, _, _ = bind.partition(":")
            if not (folder / path).exists():
                yield stage, "binds", f"{path}: there is nothing here to be seen in the container", _ELSEWHERE


def _tried(preparations: Mapping[Stage, Preparation], folder: Path) -> Iterator[tuple[Stage, str, str]]:
    """Try each part of an environment by itself, once for all stages that ask for it."""
    asked: dict[tuple[str, Preparation], list[Stage]] = {}
    for stage, preparation in preparations.items():
        for key in _PARTS:
            if getattr(preparation, key):
                own = Preparation(**{key: getattr(preparation, key)})
                asked.setdefault((key, own), []).append(stage)
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only `--site` needs it

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        troubles = list(threads.map(lambda part: _trouble(part[1], folder), asked))
    for ((key, _), stages), trouble in zip(asked.items(), troubles, strict=True):
        if trouble:
            others = f" ({', '.join(stage.name for stage in stages[1:])}, too)" if len(stages) > 1 else ""
            yield stages[0], key, trouble + others


def _trouble(preparation: Preparation, folder: Path) -> str:
    """Return why a shell cannot set up an environment; empty if it can."""
    try:
        values, files = preparing(preparation, looks_only=True)
        script = f"{head({'asa_outcome': '', 'asa_threads': '', **values})}{text('ending', *files)}"
        done = run_command(["/bin/sh", "-c", script], timeout_s=_TIMEOUT_S, cwd=folder)
    except subprocess.TimeoutExpired:
        return f"it is not ready within {_TIMEOUT_S:g} s"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    ours = [line.removeprefix("asa: ") for line in lines if line.startswith("asa: ")]
    return (ours or lines[-1:] or [f"exit code {done.returncode}"])[-1]
