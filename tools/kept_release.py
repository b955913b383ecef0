"""Stores what an earlier release writes, made anew from the history of the repository.

    python tools/kept_release.py 0.2.0      writes tests/data/kept/0.2.0.tar.xz

It has the runs, banks and run times of `tools/kept_runs.py`, as that release makes them, without what it did not have.
In `files` is what its commands write: comparisons, scores, models, a twin, a site file, a trained agent, reports.
In `left` are runs on a Slurm in memory, each as a client left it that was killed, with the jobs of the queue: the
running ones came to their end, the others still wait. `tests/test_kept.py`, `tests/test_kept_files.py` and
`tests/test_kept_left.py` read all.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BROKEN = {("legs", name) for name in ("asa", "asa-plan", "chained", "elastic", "asa-plan:grow=yes")}
"""Runs that 0.2.0 itself could not drive to their end."""
LATER = ("array", "array in turn", "hosted")
"""Kinds of stages that 0.2.0 did not have."""
RENAMED = {"asa.runner.local_stages": "asa.runner.beside", "asa.estimators.stored": "asa.estimators.store"}

FLOW = """\
name = "flow"
[parameters]
width = 2
[[stage]]
name = "a"
cores = 1
walltime = "2min"
command = "echo a {{width}}"
[[stage]]
name = "b"
after = ["a"]
cores = 1
walltime = "2min"
retries = 1
command = "echo b"
"""


def _jobs() -> str:
    """Return what sacct would print of a week of jobs."""
    lines = ["JobID|User|Partition|Submit|Eligible|Start|End|State|TimelimitRaw|ReqCPUS|NNodes|Restarts"]
    for i in range(300):
        submit = 1_700_000_000 + 1900 * i
        start, cores = submit + 60 * (i % 17), 4 << i % 4
        row = (i + 1, f"u{i % 5}", "normal", submit, submit, start, start + 600 + 30 * (i % 11), "COMPLETED", 60)
        lines.append("|".join(map(str, (*row, cores, 1, 0))))
    return "\n".join(lines) + "\n"


def _adapt() -> Any:
    """Return `kept_runs` with this older asa under it."""
    # of the release's own tests, before those of today are found
    for name in ("slurm_testbed", "local_queue", "slurm_fake_link", "asa.runner", "asa.cli.standing", "asa.cli.events"):
        importlib.import_module(name)
    for name, older in RENAMED.items():
        sys.modules[name] = importlib.import_module(older)
    elements: Any = types.ModuleType("asa.elements")
    elements.parse_array = lambda text: text
    sys.modules["asa.elements"] = elements
    entries: Any = importlib.import_module("asa.runner.entries")
    entries.read_entries = lambda line: [entries.read_entry(line)]
    requests: Any = importlib.import_module("asa.runner.requests")
    requests.ClaimRequest = requests.CloseRequest = requests.ExtendRequest = None
    runner: Any = importlib.import_module("asa.runner")
    runner.RunPlan.host = ""
    workflow: Any = importlib.import_module("asa.workflow")
    stage = workflow.Stage
    workflow.Stage = lambda name, array=None, **more: None if array else stage(name, **more)
    kept: Any = importlib.import_module("kept_runs")
    workflow.Stage = stage
    ours = [one for one in kept._LOCAL if one is not None]
    names = {one.name for one in ours}
    kept._LOCAL = tuple(replace(one, after=tuple(n for n in one.after if n in names)) for one in ours)
    kept.KINDS = {kind: what for kind, what in kept.KINDS.items() if kind not in LATER}
    kept.NOT_KEPT |= BROKEN
    return kept


def _make_files(folder: Path) -> None:
    """Let the release's commands write a file of each kind."""
    folder.mkdir()
    (folder / "flow.toml").write_text(FLOW)
    (folder / "jobs.sacct").write_text(_jobs())

    def asa(*words: str, out: str = "") -> None:
        done = subprocess.run(
            [sys.executable, "-m", "asa", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"asa {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
        if out:
            (folder / out).write_text(done.stdout)

    compare = (
        "compare",
        "blast",
        "--system",
        "hpc2n",
        "--cores",
        "28",
        "--seeds",
        "2",
        "--strategies",
        "asa,per-stage",
    )
    asa(*compare, "--results", "compare.json", "--report", "compare.html")
    asa(*compare[:-4], "--seeds", "1", "--strategies", "per-stage", "--json", out="compare-printed.json")
    asa("evaluate", "jobs.sacct", "--estimators", "last,mean", "--json", "--csv", "evaluate.csv", out="evaluate.json")
    asa("learn", "--from", "jobs.sacct", "--bank", "bank", "--system", "here")
    asa("bank", "export", "bank.jsonl.gz", "--bank", "bank")
    asa("workload", "generate", "hpc2n", "--days", "1", "--seed", "1", "--out", "log.swf.gz")
    asa("workload", "fit", "log.swf.gz", "--out", "model.json")
    (folder / "log.swf.gz").unlink()
    asa("twin", "jobs.sacct", "--out", "site.twin")
    asa("doctor", "--backend", "local", "--set", "cores=4", "--set", "system=here", "--save", "./site.toml")
    asa("run", "flow.toml", "--site", "./site.toml", "--bank", "bank", "--runs", "runs")
    [run] = (folder / "runs").iterdir()
    run = run.rename(folder / "runs" / "flow")
    asa("report", str(run), "--out", "run.html")
    asa("status", str(run), "--output", "json", out="status.json")
    shutil.copy(ROOT_OF_RELEASE / "backends" / "dras" / "agent.npz", folder)


def _left_stages() -> dict[str, tuple[Any, ...]]:
    """Return workflows by the kind of their stages; each payload leaves a line in a file."""
    workflow: Any = importlib.import_module("asa.workflow")
    continuation: Any = importlib.import_module("asa.continuation")

    def stage(name: str, *after: str, then: str = "sleep 40", cores: int = 1, **more: Any) -> Any:
        if "tasks" not in more:
            more["command"] = f"# virtual-run-s: 0\necho {name} >>did\n{then}"
        return workflow.Stage(name, cores=cores, walltime_s=600.0, expected_run_s=40.0, after=after, **more)

    tasks = tuple(f"echo t{number} >>did; sleep 15" for number in range(8))
    return {
        "chain": (stage("a"), stage("b", "a"), stage("c", "b"), stage("d", "c")),
        "diamond": (stage("a"), stage("b", "a", cores=28), stage("c", "a", cores=28), stage("d", "b", "c")),
        "tasks": (stage("a", then="sleep 5"), stage("t", "a", tasks=tasks, cores=2), stage("z", "t")),
        "legs": (
            stage(
                "l",
                then="sleep 40\n[ $(grep -c l did) -ge 3 ] || exit 85",
                continues=continuation.Continuation(unfinished=85),
            ),
        ),
        "when": (
            stage("a", then="sleep 40; exit 3"),
            stage("tidy", "a", when="failed"),
            stage("always", "a", when="always"),
            stage("out", "a"),
        ),
        "retries": (stage("a", then="sleep 40\n[ $(grep -c a did) -ge 2 ]", retries=2), stage("b", "a")),
    }  # fmt: skip


LEFT_BY = ("per-stage", "chained", "asa", "asa-plan")
"""Strategies of the runs that are left."""
_KILLED_AFTER_S, _LATER_S = 35.0, 150.0
_PATH = "/usr/bin:/bin"


def _make_left(root: Path) -> None:
    """Make runs of which the client is killed, and note what Slurm then has of them."""
    for kind, stages in _left_stages().items():
        for strategy in LEFT_BY:
            if (kind, strategy) not in BROKEN:
                _leave(root / f"{kind}-{strategy}", stages, strategy)


def _leave(folder: Path, stages: tuple[Any, ...], strategy: str) -> None:
    """Run a workflow on a Slurm in memory, and kill its client."""
    fake: Any = importlib.import_module("slurm_fake")
    slurm_backend: Any = importlib.import_module("asa.backends.slurm.backend")
    rest: Any = importlib.import_module("asa.backends.slurm.rest")
    runner: Any = importlib.import_module("asa.runner")
    backend: Any = importlib.import_module("asa.backend")
    kept: Any = importlib.import_module("kept_runs")

    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as spool:
        slurm = fake.FakeSlurm(Path(spool) / "slurm", "22.05")
        begun_s = slurm.clock()
        site = backend.Capabilities("fake", 112, 28, age_accrues=False)
        plan = runner.RunPlan(
            kept.ID, "flow", "flow", stages, strategy, "slurm-rest", site, folder=str(folder), history=0,
            estimator="last", created_s=begun_s, bank=str(folder / "bank"), settings={"url": "http://slurm:6820"},
        )  # fmt: skip
        run = runner.RunFolder.create(folder, plan)

        def sleep(seconds: float) -> None:
            if slurm.clock() >= begun_s + _KILLED_AFTER_S:
                raise fake.Killed("here")
            slurm.sleep(seconds)

        def connect(_: Any) -> Any:
            link = rest.RestLink("http://slurm:6820", transport=slurm, clock=slurm.clock)
            defaults = slurm_backend.JobDefaults(folder=folder)
            how = {"defaults": defaults, "clock": slurm.clock, "sleep": sleep}
            return slurm_backend.SlurmBackend(link, run.path, site, **how)

        try:
            runner.drive(run, connect)
            raise SystemExit(f"{folder.name} ended before its client was killed")
        except fake.Killed:
            pass
        for node in slurm.nodes.values():
            node.is_up = False  # nothing begins until today's client looks
        slurm.sleep(_LATER_S)
        slurm.stop()
        if any(job.state == "RUNNING" for job in slurm.jobs.values()):
            raise SystemExit(f"{folder.name} has a job that still runs, which cannot be kept")
        known = {"now_s": slurm.clock(), "jobs": [_written(job) for job in slurm.jobs.values()]}
    (folder / "slurm.json").write_text(json.dumps(known))
    run.path.rename(folder / "flow")


def _written(job: Any) -> dict[str, Any]:
    """Return what a Slurm in memory knows of a job, for JSON."""
    about = {one.name: getattr(job, one.name) for one in fields(job) if one.name not in {"process", "ask"}}
    about["clauses"] = [asdict(clause) for clause in job.clauses]
    # of variables only what each computer has
    asked = asdict(job.ask) | {"given": sorted(job.ask.given), "environment": {"PATH": _PATH}}
    return about | {"ask": asked}


ROOT_OF_RELEASE = Path(os.environ.get("PYTHONPATH", "").partition(os.pathsep)[0])


def _make(root: Path) -> None:
    """Make all that is kept, as the release that `PYTHONPATH` names."""
    kept = _adapt()
    kept.make(root)
    expected = json.loads((root / "expected.json").read_text())
    expected["ran"] = [line for line in kept.RAN if not line.startswith("a")]
    (root / "expected.json").write_text(json.dumps(expected))
    _make_left(root / "left")
    _make_files(root / "files")


def main() -> int:
    """Store what a release writes."""
    sys.path.insert(0, str(ROOT / "tests"))
    import earlier

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("release", choices=earlier.RELEASES)
    release = parser.parse_args().release
    if why := earlier.missing(release):
        parser.error(why)
    import kept_runs

    file = kept_runs.KEPT / f"{release}.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        place, root, home = (Path(folder) / name for name in ("release", "kept", "home"))
        home.mkdir()
        root.mkdir()
        own = {"HOME": str(home), "TZ": "UTC", "ASA_TRUSTED": str(home / "trusted")}
        variables = {"PATH": _PATH} | own | earlier.environment(earlier.make(release, place))
        subprocess.run([sys.executable, __file__, "--inside", str(root)], env=variables, check=True)
        kept_runs.keep(root, file)
    sys.stdout.write(f"{file}: {file.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        _make(Path(sys.argv[2]))
        raise SystemExit(0)
    raise SystemExit(main())
