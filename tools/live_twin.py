# ruff: noqa: T201 - it prints its figures
"""A twin beside the site that it is made of: real Slurm daemons, on which a log is replayed.

A stretch of a log is submitted to a throw-away cluster of real daemons with multifactor priority, fair share,
backfilling and two partitions, as `tools/live_forecasts.py` does. Of what Slurm's commands say of it (`asa twin`) a
twin is made, and its waits are put beside those that Slurm's accounting has. Then the same stretch is replayed again
for each way of asking, on a fresh cluster, with small Montages that begin at ten moments; and in the twin the same
Montages are asked for in the same ways, at the same moments.

    python tools/live_twin.py --log CTC-SP2-1996-3.1-cln.swf.gz                # both releases at once: some 50 minutes
    python tools/live_twin.py --jobs 60 --minutes 1 --moments 2 --release 22.05

It needs what `tools/live_forecasts.py` needs. All jobs and Montages are scaled: hours are minutes.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import live_forecasts as live
import numpy as np
from asa.backends.slurm.facts import survey
from asa.backends.twin import TwinSite
from asa.workflows.montage import montage
from slurm_runs import SlurmRun
from slurm_testbed import Testbed, missing

from asa.backend import Capabilities
from asa.metrics import measure
from asa.studies.compare.study import Comparison, compare
from asa.studies.present import Table, console
from asa.studies.worth import judged
from asa.workflow import Stage, Workflow

WAYS = ("per-stage", "chained", "big-job", "asa")
_CORES = 32
_SCALE = 15.0  # seconds of a Montage in one of its own
_FAIR = "PriorityWeightFairShare=20000\nPriorityDecayHalfLife=0-00:10:00"
_ESTIMATOR = "asa-queue"
_HISTORY = 1000


def montage_run(bed: Testbed, way: str, bank: Path) -> SlurmRun:
    """Begin a Montage of sleeps, by a client that looks at the queue as `asa run` does."""
    cores = bed.nodes * bed.cores_per_node
    site = Capabilities("live", cores, bed.cores_per_node, age_accrues=False, partition="batch")
    plan = {"capabilities": site, "history": _HISTORY, "bank": str(bank)}
    stages = list(flow().stages.values())
    return SlurmRun(bed, stages, strategy=way, estimator=_ESTIMATOR, of_plan=plan, partition="batch")


def flow() -> Workflow:
    """Make the Montage that is asked for: its stages sleep, for a part of their time."""
    whole = montage(_CORES)
    stages = []
    for stage in whole.stages.values():
        run_s = max(stage.expected_s / _SCALE, 1.0)
        walltime_s = 60.0 * np.ceil(1.5 * run_s / 60 + 0.2)
        stages.append(
            Stage(
                stage.name, cores=stage.cores, walltime_s=walltime_s, expected_run_s=run_s, after=stage.after,
                command=f"sleep {run_s:.1f}",
            )
        )  # fmt: skip
    return Workflow("montage", stages)


def play(bed: Testbed, there: live.Stretch, way: str, moments: Sequence[float]) -> dict[str, Any]:
    """Submit a stretch, and begin Montages meanwhile; tell when it began, and what each came to."""
    names = ",".join(sorted({job.account for job in (*there.before, *there.jobs)}))
    bed.run_as_root("sacctmgr", "-i", "add", "user", names, "Account=test", "Cluster=testbed", check=False)
    for job in there.before:
        live.submit(bed, job)
    bank = bed.folder("bank")
    began_s, clock_s = time.monotonic(), time.time()
    runs: list[SlurmRun] = []
    clients: list[Any] = []

    def begin() -> None:
        for moment in moments if way else ():
            time.sleep(max(0.0, began_s + moment - time.monotonic()))
            runs.append(montage_run(bed, way, bank))
            clients.append(runs[-1].client())

    beginner = threading.Thread(target=begin)
    beginner.start()
    for job in there.jobs:
        time.sleep(max(0.0, began_s + job.at_s - time.monotonic()))
        live.submit(bed, job)
    beginner.join()
    late_s = time.monotonic() - began_s - there.jobs[-1].at_s
    for client in clients:
        client.result(within_s=1200.0)
    until_s = time.monotonic() + live.drain_s(there)
    while not way and time.monotonic() < until_s:
        if not bed.run_as_root("squeue", "-h", "-t", "pending", "-o", "%i").split():
            break
        time.sleep(live._LOOK_S)
    found = []
    for run in runs:
        state, records = run.folder.state()
        metrics = measure(run.plan.make_workflow(), records) if state.outcome == "completed" else None
        found.append(None if metrics is None else [metrics.makespan_s, metrics.core_hours])
    return {"clock_s": clock_s, "late_s": late_s, "runs": found}


def gathered(bed: Testbed, folder: Path) -> None:
    """Ask Slurm as `asa twin` does."""
    time.sleep(5.0)  # the accounting is told a little later
    for name, command in survey().commands.items():
        (folder / name).write_text(bed.run_as_root("sh", "-c", command, timeout=120))


def one_release(release: str, there: live.Stretch, ways: Sequence[str], count: int) -> dict[str, Any]:
    """Replay on a release, once for the twin and once for each way, and do the same in the twin."""
    length_s = there.jobs[-1].at_s
    moments = [(0.15 + 0.8 * place / count) * length_s for place in range(count)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with live.cluster(release == live.RELEASES[1], there, conf=_FAIR) as bed:
            alone = play(bed, there, "", moments)
            gathered(bed, folder)
        made = TwinSite.made(folder)
    about = made.twin.about
    real = {}
    for way in ways:
        live._tell(f"{release}: {way}")
        with live.cluster(release == live.RELEASES[1], there, conf=_FAIR) as bed:
            real[way] = play(bed, there, way, moments)
    site = TwinSite(twin=made.twin, user="new", poll_s=1, partition="batch")
    site.arrive(alone["clock_s"] + moment for moment in moments)
    comparison = Comparison(_fixed, site, (_CORES,), tuple(ways), tuple(range(count)), _ESTIMATOR, _HISTORY)
    runs = compare(comparison, jobs=1)
    return {
        "release": release,
        "late_s": [alone["late_s"], *(one["late_s"] for one in real.values())],
        "seen": about.seen,
        "assumed": about.assumed,
        "agreement": [
            [one.of, one.jobs, one.recorded_s[0], one.simulated_s[0], one.ratio, one.within_2, one.ks]
            for one in about.agreement
        ],
        "real": {way: one["runs"] for way, one in real.items()},
        "twin": {
            way: [
                run.metrics and [run.metrics.makespan_s, run.metrics.core_hours] for run in runs if run.strategy == way
            ]
            for way in ways
        },
        "verdict": list(judged(flow(), runs).sentences) if {"asa", "per-stage"} <= set(ways) else [],
    }


def _fixed(_cores: int) -> Workflow:
    return flow()


def render(found: dict[str, Any]) -> list[Table | str]:
    """Lay it out."""
    waits = [
        (str(of), str(jobs), f"{recorded:.0f}", f"{twin:.0f}", f"{max(twin, 5) / max(recorded, 5):.2f}", f"{ks:.2f}")
        for of, jobs, recorded, twin, _, _, ks in found["agreement"]
    ]
    rows = []
    for way in found["real"]:
        cells = [way]
        for where in ("real", "twin"):
            here = [one for one in found[where][way] if one]
            times, hours = np.array(here).reshape(-1, 2).T
            pairs = [
                (mine[0], other[0])
                for mine, other in zip(found[where][way], found[where]["per-stage"], strict=True)
                if mine and other
            ]
            ratio = np.mean([mine for mine, _ in pairs]) / np.mean([other for _, other in pairs])
            spread = np.std([np.log(mine / other) for mine, other in pairs]) / np.sqrt(max(len(pairs) - 1, 1))
            cells += [f"{times.mean():.0f}", f"{ratio:.2f} +-{1.96 * ratio * spread:.2f}", f"{hours.mean():.2f}"]
        rows.append(cells)
    return [
        Table(("", "Jobs", "Recorded p50 s", "Twin p50 s", "Ratio", "KS"), waits, title=f"Slurm {found['release']}"),
        Table(
            ("", "Real s", "over per-stage", "core-h", "Twin s", "over per-stage", "core-h"), rows,
            title=f"Montages at {len(found['real']['per-stage'])} moments",
        ),
        *found["verdict"],
        f"late by at most {max(found['late_s']):.0f} s",
        *found["assumed"],
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--log", type=Path, help="an SWF log; the first of $ASA_DATA/swf, else a workload model")
    parser.add_argument("--jobs", type=int, default=320, help="jobs that are submitted")
    parser.add_argument("--minutes", type=float, default=8.0, help="within which they are submitted")
    parser.add_argument("--moments", type=int, default=10, help="at which a Montage begins")
    parser.add_argument("--ways", default=",".join(WAYS), help="of asking, comma-separated")
    parser.add_argument("--release", choices=(*live.RELEASES, "both"), default="both")
    parser.add_argument("--seed", type=int, default=0, help="chooses the stretch of the log")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options: Any = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = live.RELEASES if options.release == "both" else (options.release,)
    able = [each for each in wanted if not missing(each == live.RELEASES[1])]
    if len(able) > 1:
        passed = [word for word in sys.argv[1:] if word != "--json"]
        command = [sys.executable, __file__, *passed, "--json", "--release"]
        children = [subprocess.Popen([*command, each], stdout=subprocess.PIPE) for each in able]
        with ThreadPoolExecutor(len(children)) as readers:
            told = list(readers.map(lambda child: child.communicate()[0], children))
        documents = [json.loads(text.splitlines()[-1]) for text in told if text.strip()]
    else:
        log = options.log or next(
            iter(sorted(Path(os.environ.get("ASA_DATA", "/nowhere"), "swf").glob("*.swf*"))), None
        )
        jobs = live.from_log(log) if log else live.from_model(options.seed)
        os.umask(0)
        there = live.stretch(jobs, options.jobs, options.minutes, options.seed)
        documents = [one_release(each, there, options.ways.split(","), options.moments) for each in able]
    for document in documents:
        if options.json:
            print(json.dumps(document))
        else:
            for part in render(document):
                console().print(part)
    return 0 if len(documents) == len(able) else 1


if __name__ == "__main__":
    raise SystemExit(main())
