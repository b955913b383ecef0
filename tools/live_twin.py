# ruff: noqa: T201 - it prints its figures
"""Compares a twin with its site: real Slurm daemons, on which a month of two users is replayed.

A month of two users of a log, one of whom asks for wider jobs than the other, is submitted to a temporary cluster of
real daemons with multifactor priority, fair share, backfilling and two partitions. A twin is made from what Slurm's
commands report (`asa twin`), and its waits are compared with those in Slurm's accounting. Then the same month is
replayed on a fresh cluster. Small Montages begin at ten times, under each strategy; the same Montages begin in the twin
under the same strategies, at the same times.

    python tools/live_twin.py --log CTC-SP2-1996-3.1-cln.swf.gz               # both releases at once: some 70 minutes
    python tools/live_twin.py --minutes 2 --moments 2 --release 22.05 --log ...

A month takes minutes there. The times between submissions are in proportion to the log's; run times and walltimes are
scaled by another factor, with which the two users fill nine tenths of a machine twice as wide as their widest job.
Otherwise jobs would run for seconds, and their waits would be the time that Slurm's daemons need to start them. Users
are chosen whose median wait is a minute or more, by a simulation of first come, first served with EASY backfilling.
Cores are multiplied, so that Montages are small compared with these jobs.

It needs what `tools/live_forecasts.py` needs.
"""

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import live_forecasts as live
import numpy as np
from asa.backends.simulated.replay import replay
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

WAYS = ("per-stage", "big-job", "asa")
_CORES = 16
_SCALE = 15.0  # seconds of a real Montage per second of these
_FAIR = "PriorityWeightFairShare=20000\nPriorityDecayHalfLife=0-00:10:00"
_ESTIMATOR = "asa-queue"
_HISTORY = 1000
_QUIET = {"poll": "2s", "max_poll": "4s"}  # since thirty clients look at one queue
_MONTH_S = 28 * 86_400
_MACHINE = 256  # cores, approximately
_JOBS_OF_ONE, _JOBS_OF_BOTH = (60, 220), (200, 300)
_WIDER = 2.0  # factor between the two users' widths
_LEAST_SHARE = 0.25  # of the core-hours, for either user
_LONGEST_RUN = 0.25  # share of the month
_LEAST_WAIT_S = 60.0
_MOST_AFTER_S = 240.0  # from the last submission to the last start
_PICKED_FROM = 10


def montage_run(bed: Testbed, way: str, bank: Path) -> SlurmRun:
    """Begin a Montage of sleeps, with a client that looks at the queue as `asa run` does."""
    cores = bed.nodes * bed.cores_per_node
    site = Capabilities("live", cores, bed.cores_per_node, age_accrues=False, partition="batch")
    plan = {"capabilities": site, "history": _HISTORY, "bank": str(bank)}
    stages = list(flow().stages.values())
    return SlurmRun(bed, stages, strategy=way, estimator=_ESTIMATOR, of_plan=plan, partition="batch", **_QUIET)


def pair(jobs: live.Jobs, minutes: float, load: float, seed: int) -> live.Stretch:
    """Choose a month of two users, scaled to a number of minutes and to a machine that they fill to a given share."""
    found = list(itertools.islice(_pairs(jobs, 60.0 * minutes, load), _PICKED_FROM))
    if not found:
        raise SystemExit("there are no two such users in this log: give another, or other minutes")
    return found[seed % len(found)]


def _pairs(jobs: live.Jobs, length_s: float, load: float) -> Iterator[live.Stretch]:
    first_s = int(jobs.submit_s[0])
    for month in range(int(jobs.submit_s[-1] - first_s) // _MONTH_S):
        begin_s = first_s + month * _MONTH_S
        rows = np.flatnonzero((jobs.submit_s >= begin_s) & (jobs.submit_s < begin_s + _MONTH_S) & (jobs.run_s > 0))
        users, counts = np.unique(jobs.user[rows], return_counts=True)
        some = users[(counts >= _JOBS_OF_ONE[0]) & (counts <= _JOBS_OF_ONE[1])].tolist()
        for two in itertools.combinations(some, 2):
            own = rows[np.isin(jobs.user[rows], two)]
            if _JOBS_OF_BOTH[0] <= len(own) <= _JOBS_OF_BOTH[1]:
                there = _of_two(jobs, own, begin_s, length_s, load)
                if there is not None:
                    yield there


def _of_two(jobs: live.Jobs, own: Any, begin_s: int, length_s: float, load: float) -> live.Stretch | None:
    """Scale two users' jobs; None if they are too similar, or hardly any job would wait."""
    is_first = jobs.user[own] == jobs.user[own[0]]
    cores, area = jobs.cores[own], jobs.run_s[own] * jobs.cores[own]
    wide = sorted((float(np.median(cores[is_first])), float(np.median(cores[~is_first]))))
    share = float(area[is_first].sum() / area.sum())
    if wide[1] < _WIDER * wide[0] or not _LEAST_SHARE <= share <= 1 - _LEAST_SHARE:
        return None
    machine = 2 * int(cores.max())
    longer = load * machine * length_s / float(area.sum())
    run_s = np.maximum(jobs.run_s[own] * longer, 1.0)
    walltime_min = np.maximum(np.ceil(np.maximum(jobs.walltime_s[own] * longer, run_s) / 60), 1).astype(np.int64)
    at_s = (jobs.submit_s[own] - begin_s) * (length_s / _MONTH_S)
    asks_s = np.maximum(60 * walltime_min, np.ceil(run_s)).astype(np.int64)
    start_s = replay(np.floor(at_s).astype(np.int64), np.ceil(run_s).astype(np.int64), asks_s, cores, machine)
    middle_s = float(np.median(start_s - at_s))
    if run_s.max() > _LONGEST_RUN * length_s or middle_s < _LEAST_WAIT_S or start_s.max() > length_s + _MOST_AFTER_S:
        return None
    times = max(1, _MACHINE // machine)
    short_min = int(np.median(walltime_min))
    accounts = live.system_accounts()
    return live.Stretch(
        source=jobs.source,
        machine_cores=times * machine,
        scale=_MONTH_S / length_s,
        clock_s=float(jobs.clock_s + begin_s),
        before=(),
        jobs=tuple(
            live.Job(
                at_s=float(at_s[row]),
                run_s=float(run_s[row]),
                walltime_min=int(walltime_min[row]),
                cores=times * int(cores[row]),
                account=accounts[0 if is_first[row] else 1],
                partition="short" if walltime_min[row] <= short_min else "batch",
            )
            for row in range(len(own))
        ),
        users=2,
        short_min=short_min,
        longer_h=0.0,
    )


def flow() -> Workflow:
    """Make the Montage: its stages sleep for a part of their run time."""
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


def play(bed: Testbed, there: live.Stretch, ways: Sequence[str], moments: Sequence[float]) -> dict[str, Any]:
    """Submit the jobs, and begin Montages under each strategy; return the begin, and the result of each."""
    names = ",".join(sorted({job.account for job in (*there.before, *there.jobs)}))
    bed.run_as_root("sacctmgr", "-i", "add", "user", names, "Account=test", "Cluster=testbed", check=False)
    for job in there.before:
        live.submit(bed, job)
    banks = {way: bed.folder(f"bank-{way}") for way in ways}
    began_s, clock_s = time.monotonic(), time.time()
    runs: list[tuple[str, SlurmRun]] = []
    clients: list[Any] = []

    def begin() -> None:
        for moment, way in itertools.product(moments, ways):
            time.sleep(max(0.0, began_s + moment - time.monotonic()))
            runs.append((way, montage_run(bed, way, banks[way])))
            clients.append(runs[-1][1].client())

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
    while not ways and time.monotonic() < until_s:
        if not bed.run_as_root("squeue", "-h", "-t", "pending", "-o", "%i").split():
            break
        time.sleep(live._LOOK_S)
    found: dict[str, list[list[float] | None]] = {way: [] for way in ways}
    for way, run in runs:
        state, records = run.folder.state()
        metrics = measure(run.plan.make_workflow(), records) if state.outcome == "completed" else None
        found[way].append(None if metrics is None else [metrics.makespan_s, metrics.core_hours])
    return {"clock_s": clock_s, "late_s": late_s, "runs": found}


def gathered(bed: Testbed, folder: Path) -> None:
    """Query Slurm as `asa twin` does."""
    time.sleep(5.0)  # the accounting gets its data a little later
    for name, command in survey().commands.items():
        (folder / name).write_text(bed.run_as_root("sh", "-c", command, timeout=120))


def one_release(release: str, there: live.Stretch, ways: Sequence[str], count: int) -> dict[str, Any]:
    """Replay on a release, once for the twin and once with Montages, and begin the same Montages in the twin."""
    length_s = there.jobs[-1].at_s
    moments = [(0.1 + 0.75 * place / count) * length_s for place in range(count)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with live.cluster(release, there, conf=_FAIR) as bed:
            alone = play(bed, there, (), moments)
            gathered(bed, folder)
        made = TwinSite.made(folder, seed=1)
    about = made.twin.about
    live._tell(f"{release}: with Montages")
    with live.cluster(release, there, conf=_FAIR) as bed:
        real = play(bed, there, ways, moments)
    site = TwinSite(twin=made.twin, user="new", poll_s=1, partition="batch")
    site.arrive(alone["clock_s"] + moment for moment in moments)
    comparison = Comparison(_fixed, site, (_CORES,), tuple(ways), tuple(range(count)), _ESTIMATOR, _HISTORY)
    runs = compare(comparison, jobs=1)
    return {
        "release": release,
        "source": f"{there.source}, {len(there.jobs)} jobs on {there.machine_cores} cores",
        "late_s": [alone["late_s"], real["late_s"]],
        "seen": about.seen,
        "assumed": about.assumed,
        "agreement": [
            [one.of, one.jobs, one.recorded_s[0], one.simulated_s[0], one.ratio, one.within_2, one.ks]
            for one in about.agreement
        ],
        "real": real["runs"],
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
    """Make the tables."""
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
        found["source"],
        f"late by at most {max(found['late_s']):.0f} s",
        *found["assumed"],
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--log", type=Path, help="an SWF log; the first of $ASA_DATA/swf, else a workload model")
    parser.add_argument("--minutes", type=float, default=24.0, help="that the month lasts")
    parser.add_argument("--load", type=float, default=0.9, help="of the machine, by the two users")
    parser.add_argument("--moments", type=int, default=10, help="at which a Montage begins")
    parser.add_argument("--ways", default=",".join(WAYS), help="of asking, comma-separated")
    parser.add_argument("--release", choices=(*live.RELEASES, "both"), default="both")
    parser.add_argument("--seed", type=int, default=0, help="chooses the two users")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options: Any = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = (live.OLDEST, live.NEWEST) if options.release == "both" else (options.release,)
    able = [each for each in wanted if not missing(each)]
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
        there = pair(jobs, options.minutes, options.load, options.seed)
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
