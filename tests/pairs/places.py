"""Runs a row with a user's commands, and reports how it ended."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import TimeoutExpired

from forked import asa

from pairs.plain import ending_of, refusal_of, wrong_in
from pairs.rows import GIVEN_BACK

HERE = Path(__file__).parent
_PLUG_IN = {
    "METADATA": "Metadata-Version: 2.1\nName: gives-back\nVersion: 0\n",
    "entry_points.txt": "[asa.strategies]\ngives-back = pairs.gives_back:GivesBack\n",
}


class Place:
    """A folder in which a row is run, by a batch system that `options` name.

    `pays`: whether it runs payloads.
    """

    def __init__(self, root, *options, pays=True, environment=None):
        self.root, self.options, self.pays = root, options, pays
        (root / "times").mkdir(parents=True)
        (root / "step.sh").write_text((HERE / "step.sh").read_text())
        package = root / "packages" / "gives_back-0.dist-info"
        package.mkdir(parents=True)
        for name, text in _PLUG_IN.items():
            (package / name).write_text(text)
        self.environment = {**os.environ, "ASA_RUNS": str(root / "runs"), "ASA_BANK": str(root / "bank")}
        self.environment |= {"ASA_SITES": str(root / "sites"), "ASA_LEG_LOOK_S": "0.2", "COLUMNS": "200"}
        self.environment |= {"PYTHONPATH": f"{package.parent}:{HERE.parent}", **(environment or {})}

    def asa(self, *words, code=0):
        return asa(*words, code=code, cwd=self.root, env=self.environment)

    def write(self, row):
        """Write a row's workflow and what its stages run."""
        (self.root / "row.toml").write_text(row.text)
        for stage in row.stages:
            lines = [
                f"sh step.sh {stage.name}{unit} {' '.join(map(str, codes))}\n"
                for unit, codes in stage.kind.runs.items()
            ]
            (self.root / f"{stage.name}.tasks").write_text("".join(lines))
            (self.root / f"{stage.name}.sh").write_text("#!/bin/sh\n" + lines[0])

    def check(self, row, *, looks=True):
        """Run a row; raises AssertionError where a command ends otherwise than the plain model says.

        `looks`: whether each command that shows the workflow or the run is tried as well.
        """
        self.write(row)
        if looks:
            self.asa("check", "row.toml")
            self.asa("show", "row.toml")
        how = ("row.toml", *self.options, "--strategy", row.strategy)
        if row.gives_back:
            back = f"gives-back:of={row.strategy}:stage={row.tried[-1]}:how={GIVEN_BACK[row.gives_back]}"
            how = (*how[:-1], back)
        if words := refusal_of(row):
            for more in (("--dry-run",), ()):
                refused = self.asa("run", *how, *more, code=2)
                assert words in " ".join(refused.stderr.split())
            return
        ending = ending_of(row.stages, pays=self.pays)
        code = 0 if ending.completes else 1
        self.asa("run", *how, "--dry-run")
        self.asa("run", *how, code=code)
        status = json.loads(self.asa("status", "--output", "json").stdout)
        assert status["state"] == ("completed" if ending.completes else "failed"), status["reason"]
        assert {one["stage"]: one["state"] for one in status["stages"]} == ending.states
        if self.pays:
            lines = (self.root / "did").read_text().splitlines()
            assert wrong_in(row.stages, ending, lines) == []
        self.asa("resume", code=code)
        if not looks:
            return
        self.asa("status")
        self.asa("report", "--out", "page.html")
        self.asa("report", "--csv", "jobs.csv", "--trace", "trace.json")
        for name in (name for name in row.tried if ending.states[name] in {"done", "failed"}):
            self.asa("explain", name)
            if self.pays:
                self.asa("logs", name)


def check_all(rows, place_of, at_once=4, looked_at=None):
    """Run rows, some at a time, each in a place of its own; raises AssertionError with all that are wrong.

    `looked_at`: how many of them each command that shows one is tried on, if not on all.
    """

    def wrong_in(number, row):
        try:
            place_of(number).check(row, looks=looked_at is None or number < looked_at)
        except (AssertionError, TimeoutExpired) as error:
            return [f"{row}: {error}"]
        return []

    with ThreadPoolExecutor(at_once) as threads:
        wrong = [why for found in threads.map(wrong_in, *zip(*enumerate(rows), strict=True)) for why in found]
    assert not wrong, "\n".join(wrong)
