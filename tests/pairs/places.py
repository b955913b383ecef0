"""Runs a row, by a user's commands or in this process as these do it, and reports how it ended."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, chdir
from pathlib import Path
from urllib.parse import unquote

from forked import asa
from whole_pipelines import release

from asa.cli.standing import standing_of
from asa.errors import InputError
from asa.runner import RunFolder, drive, read_journal
from asa.runner.begin import plan_run
from asa.runner.local_stages import with_local_stages
from asa.sites import open_facility
from asa.spec import load_workflow
from pairs.plain import ending_of, only_written, refusal_of, started_early, wrong_in, wrong_shown
from pairs.rows import GIVEN_BACK

HERE = Path(__file__).parent
_IN_A_FOLDER = threading.Lock()  # which all threads of a process have in common
_LONGEST_S = 300.0  # of a row that is driven in this process; each command has a limit of its own
_PLUG_IN = {
    "METADATA": "Metadata-Version: 2.1\nName: gives-back\nVersion: 0\n",
    "entry_points.txt": "[asa.strategies]\ngives-back = pairs.gives_back:GivesBack\n",
}


def plug_in(root):
    """Make a folder of packages with the strategy that gives a job back; return its path."""
    package = root / "packages" / "gives_back-0.dist-info"
    package.mkdir(parents=True)
    for name, text in _PLUG_IN.items():
        (package / name).write_text(text)
    return str(package.parent)


def strategy_of(row):
    """Name the strategy under which a row runs, with its settings."""
    if not row.gives_back:
        return row.strategy
    return f"gives-back:of={row.strategy}:stage={row.tried[-1]}:how={GIVEN_BACK[row.gives_back]}"


class Place:
    """A folder in which a row is run, by a batch system that `options` name.

    `pays`: whether it runs payloads.
    """

    def __init__(self, root, *options, pays=True, environment=None):
        self.root, self.options, self.pays = root, options, pays
        (root / "times").mkdir(parents=True)
        (root / "step.sh").write_text((HERE / "step.sh").read_text())
        self.environment = {**os.environ, "ASA_RUNS": str(root / "runs"), "ASA_BANK": str(root / "bank")}
        self.environment |= {"ASA_SITES": str(root / "sites"), "ASA_LEG_LOOK_S": "0.2", "COLUMNS": "200"}
        self.environment |= {"PYTHONPATH": f"{plug_in(root)}:{HERE.parent}", **(environment or {})}

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
        how = ("row.toml", *self.options, "--strategy", strategy_of(row))
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
        assert wrong_shown(row.stages, ending, status["stages"], pays=self.pays) == []
        if self.pays:
            lines = (self.root / "did").read_text().splitlines()
            assert not (wrong := wrong_in(row.stages, ending, lines)), self.what_happened(wrong, lines)
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

    def what_happened(self, wrong, lines):
        """Say what is wrong with payloads' lines, and all that the run has kept: its folder is removed soon."""
        kept = [path for path in (self.root / "runs").rglob("*") if path.is_file() or path.is_symlink()]
        texts = [
            f"{path.name}:\n{path.read_text(errors='replace')}"
            for path in kept
            if path.suffix in {".jsonl", ".out", ".err"}
        ]
        names = [f"{path.relative_to(self.root)} {path.lstat().st_mtime:.3f}" for path in kept]
        return "\n".join([*wrong, *lines, *names, *texts])

    def drive(self, row):
        """Run a row in this process, as `asa run` and then `asa resume` do, which take ten times as much of a core.

        Raises AssertionError where it ends otherwise than the plain model says.
        """
        self.write(row)
        settings = dict(word.split("=", 1) for word in self.options[3::2])
        end_s = time.monotonic() + _LONGEST_S
        with ExitStack() as held:

            def connect(run):
                def sleep(duration_s):
                    left_s = end_s - time.monotonic()
                    assert left_s > 0, f"has not ended within {_LONGEST_S:g} s"
                    return run.sleep(min(duration_s, left_s))

                with _IN_A_FOLDER, chdir(self.root):
                    world = with_local_stages(plan.backend, plan.stages, opened.facility).connect(run.path, sleep=sleep)
                held.callback(release, world)
                return only_written(world, lambda: read_journal(run.path / "journal.jsonl")[0])

            with _IN_A_FOLDER, chdir(self.root):
                opened = open_facility(self.options[1], None, settings)
                look = opened.facility.connect(self.root / "look")
                held.callback(release, look)
                flow, refused = load_workflow(self.root / "row.toml"), refusal_of(row)
                try:
                    plan = plan_run(
                        flow, opened, look.capabilities, strategy=strategy_of(row), bank=self.root / "bank", history=0
                    )
                except InputError as error:
                    if not refused or refused not in str(error):
                        raise
                    return
                assert not refused, f"it is not refused, though a stage {refused}"
                folder = RunFolder.create(self.root / "runs", plan)
            ending = ending_of(row.stages)
            for _ in range(2):  # then as a run that has ended
                result = drive(folder, connect)
                assert result.outcome == ("completed" if ending.completes else "failed"), result.reason
                if not any(stage.kind.fails_at_times for stage in row.stages):  # others are asked for again meanwhile
                    assert started_early(row.stages, result.records) == []
            shown = standing_of(folder, time.time())
            assert wrong_shown(row.stages, ending, [one.as_dict() for one in shown.stages]) == []
            assert wrong_in(row.stages, ending, (self.root / "did").read_text().splitlines()) == []
            markers = {unquote(path.name).rpartition("/")[2] for path in (folder.path / "posts").iterdir()}
            done = {name for name, state in ending.states.items() if state == "done"}
            assert ending.states.keys() & markers == done  # what waits for a stage in another job waits for its marker


def what_is_wrong(rows, place_of, run, at_once):
    """Run rows side by side, each in a place of its own; return what is wrong with each, in order, empty if nothing.

    `run`: runs one, given its place, its number and itself.
    """

    def wrong_with(number, row):
        try:
            run(place_of(number), number, row)
        except Exception as error:  # noqa: BLE001 - the other rows are tried, too
            return f"{type(error).__name__}: {error}"
        return ""

    with ThreadPoolExecutor(at_once) as threads:
        return list(threads.map(wrong_with, *zip(*enumerate(rows), strict=True)))


def check_all(rows, place_of, at_once=4, looked_at=None):
    """Run rows, some at a time, each in a place of its own; raises AssertionError with all that are wrong.

    `looked_at`: how many of them each command that shows one is tried on, if not on all.
    """

    def check(place, number, row):
        place.check(row, looks=looked_at is None or number < looked_at)

    reasons = what_is_wrong(rows, place_of, check, at_once)
    wrong = [f"{row}: {why}" for row, why in zip(rows, reasons, strict=True) if why]
    assert not wrong, "\n".join(wrong)
