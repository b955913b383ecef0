"""Stores run folders, banks and run times as this version writes them, so that tests of later versions can read them.

    python tools/kept_runs.py DATE      writes tests/data/kept/DATE.tar.xz; earlier files stay, and are tested as well

There is a run of each kind of stage under each strategy, on a simulated machine or on a Slurm in memory, and two runs
on a real computer, whose folders have all files that jobs' scripts leave. Next to them, `expected.json` has what a user
saw of each run: only values that `asa status`, `asa report` and `asa run` show, so that anything inside may change.
`tests/test_kept.py` compares these, and resumes each run from the middle.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import socket
import sys
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
from asa.backends.local import LocalMachine
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable
from asa.backends.slurm.backend import SlurmBackend
from local_queue import Queue
from slurm_fake_link import FakeLink, VirtualClock
from slurm_testbed import until

from asa.backend import Capabilities
from asa.cli.events import event_line
from asa.cli.standing import standing_of
from asa.continuation import Continuation
from asa.core.plugins import names
from asa.elements import parse_array
from asa.errors import SubmitDeferredError
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.runner import Journal, RunFolder, RunPlan, drive
from asa.runner.entries import Accepted, Again, GivingUp, Intended, read_entries
from asa.runner.local_stages import with_local_stages
from asa.runner.requests import ClaimRequest, CloseRequest, ExtendRequest
from asa.runtimes import RunTime, RunTimes
from asa.shapes import Moldable, RunAt
from asa.timeline import timeline
from asa.waits import QueuedJob, WaitObservation
from asa.workflow import Stage

KEPT = Path(__file__).parents[1] / "tests" / "data" / "kept"
ID = "abcd12345678"
NOT_SIMULATED = {"pool", "asa-asks", "asa-naive-asks"}  # these need a dask cluster, or a batch system that plans
STRATEGIES = [*(name for name in names("asa.strategies") if name not in NOT_SIMULATED), "asa-plan:grow=yes"]
CORES = 16
LINES = tuple(f"work {number}" for number in range(8))
KINDS: dict[str, dict[str, Any]] = {
    "single": {"cores": 4},
    "node": {"nodes": 1},
    "tasks": {"cores": 4, "command": "", "tasks": LINES},
    "bag": {"cores": 8, "command": "", "tasks": LINES, "jobs": (2, 4)},
    "array in turn": {"cores": 8, "array": parse_array("1-5%2")},
    "array": {"cores": 1, "command": "sleep 100", "array": parse_array("1-9%4")},
    "legs": {"cores": 4, "walltime_s": 100.0, "expected_run_s": 250.0, "continues": Continuation.warned("USR1@5s")},
    "moldable": {"cores": 4, "moldable": Moldable((4, 8), (RunAt(4, 250.0), RunAt(8, 130.0)))},
    "local": {"cores": 1, "local": True},
    "when": {"cores": 4},
    "shared": {"cores": 4},
    "put off": {"cores": 4},
    "tried again": {"cores": 4, "retries": 1},
    "resumed": {"cores": 4},
    "hosted": {"cores": 4},
}  # fmt: skip
NOT_KEPT = {
    ("array", "oracle"), ("hosted", "oracle"),  # the Slurm in memory does not know the future
    # nor can its jobs of several stages wait for a host to say what each stage runs
    *(("hosted", strategy) for strategy in ("big-job", "elastic", "asa-plan", "asa-plan:grow=yes")),
}  # fmt: skip
PLACE = "/kept/runs"  # stands for the folder of runs in the stored files
_BEGUN_S = 1_700_000_000.0


@dataclass(frozen=True)
class Case:
    """A kind of stage under a strategy."""

    kind: str
    strategy: str

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.kind}-{self.strategy}".replace(" ", "-").replace(":", "-").replace("=", "-")

    @property
    def is_slurm(self) -> bool:
        """Whether it runs on a Slurm in memory, which has arrays, and whose jobs can wait for their commands."""
        return self.kind in {"array", "hosted"}

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages: one of the kind between others, of which the last follow each other."""
        common = {"walltime_s": 600.0, "expected_run_s": 250.0, "command": "work"}
        first = Stage("first", cores=1, walltime_s=300.0, expected_run_s=200.0, command="sleep 200")
        tried = Stage("tried", **common | KINDS[self.kind], after=("first",))
        plain = {"cores": 2, "walltime_s": 100.0, "expected_run_s": 50.0, "command": "sleep 50"}
        more: list[Stage] = []
        if self.kind == "when":
            more = [
                Stage("tidy", **plain, after=("tried",), when="failed"),
                Stage("always", **plain, after=("tried",), when="always"),
                Stage("out", **plain, after=("tried",)),
            ]
        if self.kind == "shared":
            more = [Stage(f"beside{number}", **plain, after=("first",)) for number in range(3)]
        after = ("tried", *(stage.name for stage in more)) if self.kind == "shared" else ("tried",)
        behind = [Stage("next", **plain, after=after), Stage("last", **plain, after=("next",))]
        return (first, tried, *more, *([] if self.kind == "when" else behind))

    def plan(self, bank: str) -> RunPlan:
        """Return the plan of the run."""
        site = self.world(Path()).capabilities
        more = {"host": "Host"} if self.kind == "hosted" else {}
        stages = self.stages()[:1] if more else self.stages()
        backend = "slurm-cli" if self.is_slurm else "simulated"
        return RunPlan(
            ID, self.name, "flow", stages, self.strategy, backend, site, created_s=_BEGUN_S, history=0, bank=bank,
            estimator="last", **more,
        )  # fmt: skip

    def world(self, folder: Path) -> World:
        """Make the machine that it runs on."""
        return World.slurm(folder) if self.is_slurm else World.simulated(self.kind)

    def run(self, folder: RunFolder, world: World) -> str:
        """Run it, or resume it, to its end; return the outcome."""
        host = _Host(folder, self.stages()) if folder.plan.host else None
        how: dict[str, Any] = {"requests": host.requests, "on_pass": host.look} if host else {}
        result = drive(folder, lambda _: world, **how)
        if self.kind == "resumed" and result.outcome == "failed":
            result = drive(folder, lambda _: world, retry=True)
        return result.outcome


class World:
    """A batch system in memory, some of whose submissions do not go as requested.

    Only the jobs' names decide about that, so that a resumed run meets the same.
    """

    def __init__(self, inner: Any, kind: str) -> None:
        self.inner, self._kind, self._seen = inner, kind, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @classmethod
    def simulated(cls, kind: str) -> World:
        """Make a machine of 16 cores, all of which another user's job takes when the first stage ends."""
        others = np.array([(100, 300, 300, CORES)], dtype=np.int64).reshape(-1, 4).T
        return cls(SimulatedBackend(Engine(CORES, JobTable(*others), now=0), Machine("m", 2, CORES // 2)), kind)

    @classmethod
    def slurm(cls, folder: Path) -> World:
        """Make a Slurm in memory, whose jobs leave their marks in a run's folder."""
        for part in ("marks", "posts") if folder != Path() else ():
            (folder / part).mkdir(exist_ok=True)
        site = Capabilities("m", CORES, CORES // 2, age_accrues=False, arrays=True, max_array_size=4)
        clock = VirtualClock(_BEGUN_S)
        link = FakeLink(clock, folder)
        link.max_array_size = 4
        return cls(SlurmBackend(link, folder, site, clock=clock, sleep=clock.sleep), "array")

    def submit(self, spec: Any) -> str:
        """Submit a job; the first jobs of the stage that is retried may be deferred, or fail."""
        stages = spec.name.rpartition("/")[2]
        if "tried" in stages.split("+") or stages == "flow":  # `flow` is one job of all stages
            self._seen["asked"] += 1
            if self._kind == "put off" and self._seen["asked"] <= 3:
                raise SubmitDeferredError("too many jobs of yours are in the queue")
            if self._fails():
                spec = replace(spec, exit_code=3)
        return self.inner.submit(spec)

    def _fails(self) -> bool:
        if self._kind == "when":
            return True
        return self._kind in {"tried again", "resumed"} and self._seen["asked"] <= 1

    def as_of(self, entries: list[Any]) -> None:
        """Restore the state that a journal describes: its jobs are submitted and cancelled at the same times."""
        intended: dict[str, Any] = {}
        for entry in entries:
            match entry:
                case Intended():
                    intended[entry.token] = entry
                case Again() if self._kind == "put off":
                    self._seen["asked"] += 1
                case Accepted():
                    self._wait(entry.status.submit_s)
                    planned, spec = intended[entry.token].planned, intended[entry.token].spec
                    job_id = self.grow(planned.joins, spec) if planned.joins else self.submit(spec)
                    assert job_id == entry.status.job_id
                case GivingUp():
                    self._wait(entry.at_s)
                    self.cancel(entry.job_id)
        self._wait(max((getattr(getattr(one, "status", one), "submit_s", 0.0) for one in entries), default=0.0))

    def _wait(self, until_s: float) -> None:
        while self.now() < until_s:
            self.wait(until_s)


class _Host:
    """A program that hosts a run: it adds all but the first stage, and hands each over when it may run."""

    def __init__(self, folder: RunFolder, stages: tuple[Stage, ...]) -> None:
        self._run, self._stages, self._state = folder.plan.name, stages, None

    def look(self, states: Any, _backend: Any, _wake_s: float | None) -> None:
        self._state = states[0]

    def requests(self) -> Iterator[Any]:
        state = self._state
        if state is None or state.outcome is not None or not state.host.may_add:
            return
        if missing := [stage for stage in self._stages if stage.name not in state.stages]:
            yield ExtendRequest(self._run, tuple(missing))
            return
        for stage in (state.stages[name].stage for name in state.host.unclaimed):
            if all(state.stages[before].phase.is_settled for before in stage.after):
                yield ClaimRequest(self._run, stage.name)
        if not state.host.unclaimed:
            yield CloseRequest(self._run)


# ---------------------------------------------------------------------- what is seen of a run


def seen(path: Path) -> dict[str, Any]:
    """Return what a user sees of a run: the state of each stage, each job with its times, the events, the cost."""
    folder = RunFolder(path)
    standing = standing_of(folder, _BEGUN_S + 1e6).as_dict()
    state, records = folder.state()
    rows = timeline(records, state.workflow, age_accrues=state.capabilities.age_accrues).rows() if records else []
    kept = (
        "workflow",
        "strategy",
        "estimator",
        "backend",
        "state",
        "reason",
        "begun_s",
        "ended_s",
        "stages",
        "metrics",
    )
    return {
        **{key: standing[key] for key in kept},
        "jobs": [{key: value for key, value in row.items() if key != "run"} for row in rows],
        "events": [line for record in records if (line := event_line(record)) is not None],
    }


def cut(path: Path, lines: int) -> None:
    """Cut a run back to what a client leaves that is killed after so many lines of its journal."""
    journal = path / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:lines]))
    for name in ("metrics.json", "pulse.json"):
        (path / name).unlink(missing_ok=True)
    shutil.rmtree(path / "posts", ignore_errors=True)
    shutil.rmtree(path / "marks", ignore_errors=True)


def entries_of(path: Path) -> list[Any]:
    """Read a run's journal."""
    lines = (path / "journal.jsonl").read_bytes().splitlines()
    return [entry for line in lines for entry in read_entries(line)]


def cases() -> list[Case]:
    """Return all cases: each kind under each strategy."""
    every = [Case(kind, strategy) for kind in KINDS for strategy in STRATEGIES]
    return [case for case in every if (case.kind, case.strategy) not in NOT_KEPT]


# ---------------------------------------------------------------------- on this computer

HERE = "on-this-computer"
_LEFT, _ENDED = f"{HERE}-left", f"{HERE}-ended"
_LOCAL = (
    Stage("single", cores=1, walltime_s=60.0, command="echo single >>ran"),
    Stage("tasks", cores=2, walltime_s=60.0, tasks=("echo t1 >>ran", "echo t2 >>ran", "echo t3 >>ran")),
    Stage("bag", cores=2, walltime_s=60.0, tasks=tuple(f"echo b{n} >>ran" for n in range(6)), jobs=(2, 2)),
    Stage("array", cores=2, walltime_s=60.0, command="echo a$SLURM_ARRAY_TASK_ID >>ran", array=parse_array("1-4%2")),
    Stage(
        "legs", cores=1, walltime_s=60.0, continues=Continuation(unfinished=85),
        command="echo leg >>ran; [ $(grep -c leg ran) -ge 2 ] || exit 85",
    ),
    Stage("flaky", cores=1, walltime_s=60.0, command="echo flaky >>ran; [ $(grep -c flaky ran) -ge 2 ]", retries=1),
    Stage("broken", cores=1, walltime_s=60.0, command="echo broken >>ran; exit 3"),
    Stage("tidy", cores=1, walltime_s=60.0, command="echo tidy >>ran", after=("broken",), when="failed"),
    Stage("out", cores=1, walltime_s=60.0, command="echo out >>ran", after=("broken",)),
    Stage("local", cores=1, walltime_s=60.0, command="echo local >>ran", after=("single",), local=True),
    Stage("last", cores=1, walltime_s=60.0, command="echo last >>ran", after=("tasks", "bag", "array", "legs")),
)  # fmt: skip
RAN = sorted(
    ["single", *(f"t{n}" for n in (1, 2, 3)), *(f"b{n}" for n in range(6)), *(f"a{n}" for n in (1, 2, 3, 4)),
     "leg", "leg", "broken", "tidy", "local", "last"]
)  # fmt: skip
"""What those leave in a file that are left in the middle, each as often as it is to run."""


class _LeftError(Exception):
    """The client was killed."""


class _Leaving(Journal):
    """A journal that kills its client once a number of jobs were accepted."""

    jobs = 0

    def append(self, *entries: Any) -> None:
        super().append(*entries)
        _Leaving.jobs -= sum(isinstance(entry, Accepted) for entry in entries)
        if _Leaving.jobs <= 0:
            raise _LeftError


def queue_here(root: Path) -> Queue:
    """Return a queue of this computer, with its files in a folder; the caller closes it."""
    queue = Queue(root, 8)
    queue.machine = LocalMachine(cores=8, spool=str(root / "spool"), system="here")
    return queue


def go_on_here(folder: RunFolder, queue: Queue) -> str:
    """Drive a run on this computer."""
    with contextlib.chdir(folder.path.parent):
        machine = with_local_stages("local", folder.plan.stages, queue.machine)
        return drive(folder, lambda run: machine.connect(run.path, sleep=run.sleep)).outcome


def _run_here(root: Path, bank: str, *, leaves: bool) -> None:
    """Make the runs on this computer; with `leaves`, the client dies once the first jobs are accepted."""
    root.mkdir(parents=True)
    queue = queue_here(root)
    stages = tuple(stage for stage in _LOCAL if not (leaves and stage.retries))
    plan = RunPlan(
        ID, _LEFT if leaves else _ENDED, "flow", stages, "per-stage", "local", queue.machine.capabilities,
        created_s=_BEGUN_S, history=0, bank=bank, estimator="last", folder=str(root), settings={"cores": 8},
    )  # fmt: skip
    folder = RunFolder.create(root, plan)
    with ExitStack() as ending:
        ending.callback(queue.close)
        if not leaves:
            go_on_here(folder, queue)
            return
        with mock.patch("asa.runner.folder.Journal", _Leaving), suppress(_LeftError):
            # the two further jobs share the bag and the array
            _Leaving.jobs = sum(not stage.after for stage in stages) + 2
            go_on_here(folder, queue)
        # the submitted jobs end by themselves
        until(lambda: not [n for n in queue.spool.numbers() if queue.spool.holds(n)], what="the end of its jobs")


# ---------------------------------------------------------------------- banks


def _make_banks(root: Path) -> None:
    """Make a bank of each kind: added to, added as a whole, merged with forgotten records, exported."""

    def records(name: str, n: int) -> Iterator[WaitRecord]:
        for i in range(n):
            job = QueuedJob(_BEGUN_S + 60.0 * i, 4 << i % 3, 3600.0, "ada" if i % 2 else "bob", "here", "short")
            kind = ("exact", "at_most", "at_least")[i % 3]
            waits = tuple(float(10 * level) for level in range(1, 10)) if i % 4 == 0 else None
            yield WaitRecord(
                job, WaitObservation(30.0 * i, kind), waits, "asa" if waits else "", 100.0 + i, name, f"{name}{i:04d}",
                word_s=45.0 if i % 5 == 0 else None,
            )  # fmt: skip

    with WaitStore(root / "added", durable=False) as store:
        for record in records("", 12):
            store.append(replace(record, id=f"own{record.id}"))
    with WaitStore(root / "brought", durable=False) as store:
        store.extend(records("log", 12))
        store.export(root / "export.jsonl.gz")
    with WaitStore(root / "merged", durable=False) as store:
        store.extend(records("one", 12))
        store.extend(records("two", 12))
        store.compact()
        store.forget(lambda record: record.source == "one" and record.job.cores == 8)
    times = RunTimes(root / "times")
    times.observe(
        RunTime("flow", stage, 4, 60.0 * n, _BEGUN_S + n, "here", size, kind, f"{stage}{n}")
        for n, (stage, size, kind) in enumerate(
            [("a", None, "exact"), ("a", 2.0, "exact"), ("a", None, "at_least"), ("b", None, "exact")], start=1
        )
    )
    times.observe([RunTime("other", "a", 1, 5.0, _BEGUN_S, "here", None, "exact", "other1")])
    times.forget("other")


def seen_of_banks(root: Path) -> dict[str, Any]:
    """Return what the banks and run times in a folder hold, and what an exported bank brings."""

    def told(store: WaitStore) -> list[Any]:
        records = sorted(store.read(), key=lambda record: record.id)
        return [
            [one.id, one.job.submit_s, one.job.cores, one.job.walltime_s, one.job.user, one.job.system,
             one.job.partition, one.observation.wait_s, one.observation.kind, one.run_s, one.estimator, one.source,
             list(one.forecast or ()), one.word_s]
            for one in records
        ]  # fmt: skip

    found: dict[str, Any] = {name: told(WaitStore(root / name)) for name in ("added", "brought", "merged")}
    anew = WaitStore(root / "anew")
    anew.import_(root / "export.jsonl.gz")
    times = sorted(RunTimes(root / "times").read(), key=lambda time: (time.stage, time.at_s))
    return {
        **found,
        # users get new pseudonyms
        "export": [row[1:4] + row[6:] for row in sorted(told(anew), key=lambda row: row[1])],
        "times": [
            [one.workflow, one.stage, one.cores, one.run_s, one.at_s, one.system, one.input_size, one.kind]
            for one in times
        ],
    }


# ---------------------------------------------------------------------- keeping


def _cut_at(name: str, lines: int) -> int:
    """Choose where to cut a run that is resumed: at a different line for each, and always the same."""
    return 1 + zlib.crc32(name.encode()) % max(lines - 1, 1)


def make(root: Path) -> None:
    """Make all kept runs in a folder, and write down what a user sees of them."""
    expected: dict[str, Any] = {"runs": {}, "left": {}}
    for case in cases():
        folder = RunFolder.create(root / "runs", case.plan(str(root / "bank")))
        case.run(folder, case.world(folder.path))
        kept = folder.path.rename(root / "runs" / case.name)
        expected["runs"][case.name] = seen(kept)
        at = _cut_at(case.name, len((kept / "journal.jsonl").read_bytes().splitlines()))
        with tempfile.TemporaryDirectory() as other:
            copy = Path(shutil.copytree(kept, Path(other) / case.name, symlinks=True))
            cut(copy, at)
            expected["left"][case.name] = {"lines": at, "seen": seen(copy)}
    for place, leaves in (("ended", False), ("left", True)):
        _run_here(root / "here" / place, str(root / "bank"), leaves=leaves)
        [folder_here] = (root / "here" / place).glob(f"{HERE}-*")
        kept = folder_here.rename(root / "runs" / f"{HERE}-{place}")
        expected["runs"][kept.name] = seen(kept)
    (root / "here" / "left" / "ran").rename(root / "runs" / "ran")
    _make_banks(root / "banks")
    expected["banks"] = seen_of_banks(root / "banks")
    shutil.rmtree(root / "banks" / "anew")
    shutil.rmtree(root / "bank", ignore_errors=True)
    shutil.rmtree(root / "here")
    (root / "expected.json").write_text(json.dumps(expected))


def keep(root: Path, file: Path) -> None:
    """Pack a folder, without names of this computer and its user, its paths, and owners."""
    machine = socket.gethostname().partition(".")[0]
    plain = [
        (
            re.compile(
                rf"(?<=@){re.escape(machine)}\b|(?<=^host = \"){re.escape(machine)}\b"
                rf"|(?<=host=){re.escape(machine)}$|^{re.escape(machine)}$".encode(),
                re.MULTILINE,
            ),
            b"here",
        ),
        (re.compile(rf"{re.escape(str(root / 'here'))}/(?:ended|left)".encode()), f"{PLACE}".encode()),
        (re.compile(re.escape(str(root)).encode()), str(Path(PLACE).parent).encode()),
        (re.compile(rf"(?<=\d\d ){re.escape(socket.gethostname())} process \d+".encode()), b"here process 1"),
        (re.compile(rb"-\d{8}-\d{6}-[0-9a-f]{4}(?=[/\"\n ])"), b""),
    ]
    with tarfile.open(file, "w:xz", preset=9) as archive:
        for path in sorted(root.rglob("*")):
            name = re.sub(rf"@{re.escape(machine)}$", "@here", str(path.relative_to(root)))
            name = re.sub(rf"(live|kept|all)-{re.escape(machine)}\.[0-9a-f]+-\d+-", r"\1-here.0-1-", name)
            about = tarfile.TarInfo(name)
            about.mode, about.mtime = path.lstat().st_mode & 0o700, path.lstat().st_mtime
            if path.is_symlink():  # as a job's mark of whose it is
                about.type, about.linkname = (
                    tarfile.SYMTYPE,
                    re.sub(rf"(?:(?<=@)|^){re.escape(machine)}(?=\.|$)", "here", str(path.readlink())),
                )
                archive.addfile(about)
                continue
            if path.is_dir():
                about.type = tarfile.DIRTYPE
                archive.addfile(about)
                continue
            content = path.read_bytes()
            if not name.endswith(".gz"):
                for pattern, by in plain:
                    content = pattern.sub(by, content)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))


def unpack(file: Path, root: Path) -> dict[str, Any]:
    """Unpack a file into a folder, and set the paths to that folder; return what a user saw."""
    with tarfile.open(file) as archive:
        archive.extractall(root, filter="data")
    root.chmod(0o700)
    for path in (path for path in root.rglob("*") if not path.is_symlink()):
        path.chmod(0o700 if path.is_dir() else path.stat().st_mode & 0o700 | 0o600)
        if path.is_file() and not path.name.endswith(".gz"):
            about, content = path.stat(), path.read_bytes()
            if (was := str(Path(PLACE).parent).encode()) in content:
                path.write_bytes(content.replace(was, str(root).encode()))
                os.utime(path, (about.st_atime, about.st_mtime))
    return json.loads((root / "expected.json").read_text())


def copy(path: Path, to: Path) -> None:
    """Copy a folder that was unpacked, and set its own paths to the copy."""
    shutil.copytree(path, to, symlinks=True)
    for file in to.rglob("*"):
        if file.is_file() and not file.is_symlink() and not file.name.endswith(".gz"):
            content = file.read_bytes()
            if (was := str(path).encode()) in content:
                file.write_bytes(content.replace(was, str(to).encode()))


def main() -> int:
    """Store what this version writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("date", help="of this version, which names the file")
    file = KEPT / f"{parser.parse_args().date}.tar.xz"
    if file.exists():
        parser.error(f"{file} is there: what was kept stays")
    KEPT.mkdir(exist_ok=True)
    os.environ["TZ"] = "UTC"
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        keep(Path(folder), file)
    sys.stdout.write(f"{file}: {file.stat().st_size} bytes, {len(cases())} runs\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
