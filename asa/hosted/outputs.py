"""The output files of a run's jobs, which are many: the folder is listed once for all, not once for each."""

from __future__ import annotations

import os
import re
from pathlib import Path

from asa.runner.folder import RunFolder, step_of_output


class Outputs:
    """The output files of a run's jobs. The folder is listed again only if a job's file is not known yet.

    So 20,000 jobs that fail one after the other do not cause 20,000 listings.
    """

    def __init__(self, run: RunFolder) -> None:
        self._folder = run.path / "logs"
        # the part of a token that all jobs of a stage share: the run's identifier and the stage's index
        self._begins = re.compile(rf"(?<![0-9A-Za-z]){re.escape(run.plan.id[:12])}-[0-9A-Za-z]+")
        self._seen: set[str] = set()
        self._names: dict[str, list[str]] = {}  # file names, by that part of their tokens
        self.looks = 0

    def errors_of(self, token: str, step: int = 0) -> Path | None:
        """Return the file with the errors of the job with a token; the newest of several, None if there is none.

        `step`: the number of a step that has its own file; 0 for the job's.
        """
        files = self._known(token, step)
        if not files:
            self._look()
            files = self._known(token, step) or self._known(token, 0)
        paths = [path for path in (self._folder / name for name in files) if path.exists()]
        return max(paths, key=lambda path: path.stat().st_mtime, default=None)

    def _known(self, token: str, step: int) -> list[str]:
        begins = self._begins.match(token)
        names = self._names.get(begins[0], ()) if begins else ()
        named = re.compile(rf"(?<![0-9A-Za-z]){re.escape(token)}(?![0-9A-Za-z]).*\.err\Z")
        return [name for name in names if named.search(name) and step_of_output(name) == step]

    def _look(self) -> None:
        self.looks += 1
        try:
            there = set(os.listdir(self._folder))  # noqa: PTH208 - names alone, of very many
        except OSError:
            return
        for name in there - self._seen:
            if begins := self._begins.search(name):
                self._names.setdefault(begins[0], []).append(name)
        self._seen = there
