# ruff: noqa: T201 - it prints its figures
"""Compares forecasts of waits with Slurm's own estimates, on real daemons on which a log is replayed.

A part of a log is submitted to a temporary cluster of real daemons (slurmctld, 8 slurmd, slurmdbd, slurmrestd) with
multifactor priority, backfilling and two partitions, `short` and `batch`. Its hours are minutes there: every job is a
`sleep` of its run time divided by the scale. At each submission

- asa learns everything that Slurm's REST daemon shows of all jobs, as a run does (`queue_events`, `WaitBank`);
- each estimator predicts the wait of this job, and Slurm estimates it as well, by `sbatch --test-only`;
- the job is submitted, and later its real wait is known.

    python tools/live_forecasts.py --log CTC-SP2-1996-3.1-cln.swf.gz     # both releases at once: 22 minutes
    python tools/live_forecasts.py --jobs 60 --minutes 1 --release 22.05 # a glance, with jobs of a workload model

Differences from the log's site:

- Slurm counts walltimes in minutes. A scaled walltime is rounded up to the next minute; the table's head says how many
  hours of the log that adds. Slurm, with `--test-only` as well, and the estimators use these walltimes.
- Slurm's times are whole seconds, and it looks at its queue every second or so. Errors are judged with waits of at
  least 5 s.
- Jobs that ran or waited in the log when the part begins are submitted first, all at once, and not judged. Estimators
  learn nothing else before.
- Estimators get all times multiplied by the scale, from the log's hour of the day on, since their assumptions (10 s are
  nothing, days have 24 hours) are about real queues.
- The log's users share the computer's system accounts; those with most jobs have one of their own.
- Parts are chosen in which a simulation starts nearly all jobs in time, so that few waits stay unknown.
- The last quarter of the jobs only keeps the queue full. Of the others, jobs that have not started some minutes after
  the last submission are not judged; their number is printed.

It needs root, for its own cluster, and Slurm installed (Debian: slurmctld slurmd slurmdbd slurmrestd slurm-client munge
mariadb-server); newer releases come from the trees that the tests use. Without `--log`, the log is the first in
`$ASA_DATA/swf`, else jobs are drawn from the simulated queue's workload model. The seed chooses the part.
"""

import argparse
import json
import math
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the tests start the daemons

from asa.backends.simulated.machine import Machine
from asa.backends.simulated.presets import preset
from asa.backends.simulated.replay import replay, replayed
from asa.backends.simulated.swf import read_swf
from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.rest import RestLink
from rich.console import Console
from slurm_testbed import NEWEST, OLDEST, RELEASES, Testbed, missing, uid_of

from asa import QueuedJob, WaitBank
from asa.backend import Capabilities
from asa.estimators.calibration import FLOOR_S, coverage
from asa.estimators.site_estimate import Lived, assumed_error, blend
from asa.studies.accuracy.scores import log10_errors, within_factor
from asa.studies.present import Table, console, number
from asa.waits import LEVELS, QueueEvent, WaitForecast

ESTIMATORS = ("asa", "asa-queue", "last", "median")
SITE = "test-only"
MIN_WAIT_S = 5.0
"""Seconds of the cluster's clock: waits up to here are all the same."""

HEADINGS = ("Predictor", "Jobs", "Error", "2x %", "first", "later", "2x %", "p50 %", "p90 %")
NOTE = (
    "Error: mean distance in powers of ten, 0.3 is a factor of 2; 2x: within a factor of 2; first: error of the first "
    "50 jobs; later: both, of the second half; p50, p90: coverage of these stated quantiles. test-only: Slurm's own "
    "word at the same moment; corrected: times the median of how far it was off in the first half; with: weighed by "
    "what both were lately worth, as `asa predict` does where the queue is hidden; x: geometric mean of two."
)

_NODES = 8
_FIRST = 50
_LOOK_S = 3.0  # between looks at the queue while nothing is submitted
_FORGET_S = 120  # Slurm shows ended jobs for this long; a longer time would only make looks slower
_JUDGED = 0.75
_MAX_UNSTARTED = 0.02
_MAX_DRAIN_S = 240.0
_MIN_WAIT_IN_LOG_S = 600.0
_MAX_SHARE_OF_USER = 0.25
_PICKED_FROM = 10
_TOLD = re.compile(r"to start at (\S+)")
_MODEL_DAYS, _MODEL_USERS = 28, 40


# ---------------------------------------------------------------------- the log


@dataclass(frozen=True, slots=True)
class Jobs:
    """Columns of jobs in order of submission; times in seconds of the log."""

    submit_s: NDArray[np.int64]
    wait_s: NDArray[np.int64]
    run_s: NDArray[np.int64]
    walltime_s: NDArray[np.int64]
    cores: NDArray[np.int64]
    user: NDArray[np.int64]
    machine_cores: int
    clock_s: int  # the hour of the day at second 0
    source: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is submitted; in seconds of the cluster's clock since the part began."""

    at_s: float
    run_s: float
    walltime_min: int
    cores: int
    account: str
    partition: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of a log that is replayed."""

    source: str
    machine_cores: int
    scale: float  # seconds of the log per second of the cluster
    clock_s: float  # the log's clock at the beginning
    before: tuple[Job, ...]  # jobs that run or wait at the beginning, in the order in which they are to start
    jobs: tuple[Job, ...]
    users: int  # number of the log's users in it
    short_min: int  # MaxTime of partition short
    longer_h: float  # mean of what rounding adds to a walltime, in hours of the log


def first_log() -> Path | None:
    """Find a log in `ASA_DATA`, if that is set."""
    folder = os.environ.get("ASA_DATA")
    return next(iter(sorted(Path(folder, "swf").glob("*.swf*"))), None) if folder else None


def from_log(path: Path) -> Jobs:
    """Read a log."""
    trace = read_swf(path, exceed="kill")
    table = trace.table
    wait_s = np.maximum(trace.wait_s.astype(np.int64), 0)
    users = trace.users.astype(np.int64)
    return Jobs(
        table.submit, wait_s, table.run, table.request, table.cores, users, trace.cores, trace.clock_s, path.name
    )


def from_model(seed: int) -> Jobs:
    """Draw jobs of the simulated hpc2n's workload, for a smaller machine, and simulate their queue."""
    machine = Machine("model", _NODES, 128)
    model = replace(preset("hpc2n"), machine=machine, load=0.95, log2_widest=9.0)
    table = model.generate(_MODEL_DAYS * 86_400, seed)
    wait_s = replayed(table, machine.cores).wait_s.astype(np.int64)
    user = (31 * table.cores + table.request) % _MODEL_USERS  # similar jobs belong to the same user
    return Jobs(table.submit, wait_s, table.run, table.request, table.cores, user, machine.cores, 0, "workload model")


def stretch(jobs: Jobs, count: int, minutes: float, seed: int) -> Stretch:
    """Choose a part of a log: `count` jobs, scaled so that they are submitted within `minutes`.

    It is one of the ten shortest parts that satisfy these conditions: half of its jobs waited for ten minutes or more;
    no user submitted more than a quarter; and a simulation of the cluster (first come, first served, EASY backfilling)
    starts nearly all judged jobs before the replay ends. If there is none, it is one of the ten shortest parts.
    """
    count = min(count, len(jobs.submit_s) - 1)
    firsts = np.arange(0, len(jobs.submit_s) - count, max(1, count // 10))
    length_s = jobs.submit_s[firsts + count] - jobs.submit_s[firsts]
    shortest = np.argsort(length_s, kind="stable").tolist()

    def made(place: int) -> Stretch:
        first = int(firsts[place])
        return _scaled(jobs, slice(first, first + count), max(1.0, float(length_s[place]) / (60.0 * minutes)))

    good: list[Stretch] = []
    for place in shortest:
        first = int(firsts[place])
        if _is_telling(jobs, slice(first, first + count)) and _is_seen_whole(candidate := made(place)):
            good.append(candidate)
            if len(good) == _PICKED_FROM:
                break
    return good[seed % len(good)] if good else made(shortest[seed % min(_PICKED_FROM, len(shortest))])


def _is_seen_whole(there: Stretch) -> bool:
    """Whether a simulation starts nearly all judged jobs in time."""
    every = [*there.before, *there.jobs]
    submit_s = np.array([0] * len(there.before) + [math.floor(job.at_s) for job in there.jobs])
    run_s = np.array([math.ceil(job.run_s) + 1 for job in every])
    walltime_s = np.maximum(run_s, [60 * job.walltime_min for job in every])
    start_s = replay(submit_s, run_s, walltime_s, np.array([job.cores for job in every]), there.machine_cores)
    judged = start_s[len(there.before) :][: judged_of(len(there.jobs))]
    return bool(np.mean(judged > there.jobs[-1].at_s + drain_s(there)) <= _MAX_UNSTARTED)


def judged_of(count: int) -> int:
    """Return how many of the jobs, from the first on, are judged; later ones compete with them."""
    return math.ceil(_JUDGED * count)


def drain_s(there: Stretch) -> float:
    """Return how long jobs are followed after the last submission, in seconds of the cluster's clock."""
    return min(_MAX_DRAIN_S, 10.0 + 0.4 * there.jobs[-1].at_s)


def _is_telling(jobs: Jobs, rows: slice) -> bool:
    of_user = np.unique(jobs.user[rows], return_counts=True)[1]
    return bool(
        np.median(jobs.wait_s[rows]) >= _MIN_WAIT_IN_LOG_S
        and of_user.max() <= max(1.0, _MAX_SHARE_OF_USER * of_user.sum())
    )


def _scaled(jobs: Jobs, rows: slice, scale: float) -> Stretch:
    begin_s = int(jobs.submit_s[rows.start])
    start_s = jobs.submit_s + jobs.wait_s
    past = np.arange(rows.start)
    there = past[start_s[past] + jobs.run_s[past] > begin_s]
    there = there[np.argsort(start_s[there], kind="stable")]
    ran_s = np.maximum(begin_s - start_s, 0)  # part of its run before the beginning
    walltime_min = np.maximum(np.ceil((jobs.walltime_s - ran_s) / scale / 60), 1).astype(np.int64)
    here = np.arange(rows.start, rows.stop)
    short_min = int(np.median(walltime_min[here]))
    users, counts = np.unique(jobs.user[here], return_counts=True)
    accounts = system_accounts()
    rank = {user: place for place, user in enumerate(users[np.argsort(-counts, kind="stable")].tolist())}

    def job(row: int) -> Job:
        return Job(
            at_s=float(jobs.submit_s[row] - begin_s) / scale,
            run_s=float(jobs.run_s[row] - ran_s[row]) / scale,
            walltime_min=int(walltime_min[row]),
            cores=int(jobs.cores[row]),
            account=accounts[rank.get(int(jobs.user[row]), int(jobs.user[row])) % len(accounts)],
            partition="short" if walltime_min[row] <= short_min else "batch",
        )

    longer_s = walltime_min[here] * 60 * scale - jobs.walltime_s[here]
    return Stretch(
        source=jobs.source,
        machine_cores=jobs.machine_cores,
        scale=scale,
        clock_s=float(jobs.clock_s + begin_s),
        before=tuple(job(row) for row in there.tolist()),
        jobs=tuple(job(row) for row in here.tolist()),
        users=len(users),
        short_min=short_min,
        longer_h=float(longer_s.mean()) / 3600,
    )


def system_accounts() -> list[str]:
    """Return accounts of this computer that belong to nobody, under which jobs may sleep."""
    return sorted(each.pw_name for each in pwd.getpwall() if 0 < each.pw_uid < 1000)


# ---------------------------------------------------------------------- the cluster


def cores_per_node(replayed_there: Stretch) -> int:
    """Divide the log's machine into equal nodes."""
    return -(-replayed_there.machine_cores // _NODES)


@contextmanager
def cluster(release: str, replayed_there: Stretch, conf: str = "") -> Iterator[Testbed]:
    """Start a cluster as large as the log's machine, and remove it afterwards in any case."""
    partitions = (
        *filter(None, [conf]),
        f"MinJobAge={_FORGET_S}",
        "PriorityWeightPartition=2000",  # as much as about a minute of age
        f"PartitionName=short Nodes=ALL MaxTime={replayed_there.short_min} PriorityJobFactor=10 State=UP",
        "PartitionName=batch Nodes=ALL MaxTime=UNLIMITED PriorityJobFactor=1 State=UP",
    )
    root = Path(tempfile.mkdtemp(prefix=f"asa-live-{os.getpid()}-", dir="/tmp"))
    root.chmod(0o755)
    # with accounting: without it, jobs gain no priority by age
    size = {"nodes": _NODES, "cores_per_node": cores_per_node(replayed_there)}
    bed = Testbed(root, release=release, accounting=True, conf="\n".join(partitions), **size)
    try:
        yield bed.start()
    finally:
        handlers = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM)}
        try:  # an interrupted end must be completed
            if bed.env:
                with suppress(RuntimeError, subprocess.TimeoutExpired):
                    bed.run_as_root("scancel", "--quiet", "--partition=batch", check=False)
                    bed.run_as_root("scancel", "--quiet", "--partition=short", check=False)
            bed.stop()
        finally:
            for each, handler in handlers.items():
                signal.signal(each, handler)


def _sbatch(bed: Testbed, job: Job, *options: str) -> str:
    """Call sbatch for a job; return its output on either stream."""
    asked = (
        f"--uid={job.account}", f"--ntasks={job.cores}", f"--time={job.walltime_min}", f"--partition={job.partition}",
        "--chdir=/", "--output=/dev/null", f"--wrap=sleep {job.run_s:.3f}",
    )  # fmt: skip
    command = [*bed.env["TB_AS_ROOT"].split(), "env", "TZ=UTC", "sbatch", *options, *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"sbatch refused {job}: {done.stderr.strip()}")
    return done.stdout + done.stderr


def submit(bed: Testbed, job: Job) -> str:
    """Submit a job; return its id."""
    return _sbatch(bed, job, "--parsable").split(";")[0].strip()


def words_of_site(bed: Testbed, job: Job, now_s: float) -> float:
    """Ask Slurm how many seconds a job would wait that is submitted now; nan if it does not say."""
    try:
        told = _TOLD.search(_sbatch(bed, job, "--test-only"))
    except RuntimeError:
        return math.nan
    if told is None:
        return math.nan
    return max(0.0, datetime.fromisoformat(f"{told[1]}+00:00").timestamp() - now_s)


# ---------------------------------------------------------------------- the client


@dataclass(slots=True)
class Forecast:
    """The predictions for a job at its submission, and its real wait; in seconds of the cluster's clock."""

    job_id: str
    at_s: float
    cores: int
    walltime_min: int
    said_s: dict[str, float]  # by predictor
    quantiles_s: dict[str, tuple[float, ...]]  # by estimator
    wait_s: float = math.nan


@dataclass(slots=True)
class Live:
    """All forecasts on a release."""

    release: str
    forecasts: list[Forecast] = field(default_factory=list)
    late_s: float = 0.0  # the most by which a submission was later than planned
    unstarted: int = 0


class Client:
    """Learns from what Slurm shows, and predicts."""

    def __init__(self, bed: Testbed, replayed_there: Stretch, seed: int) -> None:
        cores = bed.nodes * bed.cores_per_node
        self.scale, self.clock_s = replayed_there.scale, replayed_there.clock_s
        self.link = RestLink(f"unix://{bed.socket}", served_by=[uid_of(bed.user)])
        self.backend = SlurmBackend(
            self.link,
            bed.folder("client"),
            Capabilities("live", cores, bed.cores_per_node, age_accrues=False),
            queue_poll_s=0.0,
        )
        self.banks = {name: WaitBank(name, seed=seed, machine_cores=cores) for name in ESTIMATORS}
        self.began_s = self.backend.now()
        self.queued_s: dict[int | str, float] = {}
        self.wait_s: dict[int | str, float] = {}
        self.left: set[int | str] = set()

    def look(self) -> None:
        """Learn what happened since the last look."""
        events = self.backend.queue_events(10_000, ends=True)
        for event in events:
            if event.what == "submitted":
                self.queued_s[event.key] = event.time_s
            elif event.what == "started":
                self.wait_s[event.key] = max(0.0, event.time_s - self.queued_s[event.key])
            elif event.what == "left":
                self.left.add(event.key)
        stretched = [self._stretched(event) for event in events]
        for bank in self.banks.values():
            bank.follow(stretched)

    def predict(self, job: Job) -> dict[str, WaitForecast]:
        """Predict the wait of a job that is submitted now, in seconds of the log."""
        asked = QueuedJob(
            submit_s=self._in_log(self.backend.now()),
            cores=job.cores,
            walltime_s=60.0 * job.walltime_min * self.scale,
            user=job.account,
            system="live",
            partition=job.partition,
        )
        return {name: bank.predict(asked) for name, bank in self.banks.items()}

    def _in_log(self, time_s: float) -> float:
        return self.clock_s + (time_s - self.began_s) * self.scale

    def _stretched(self, event: QueueEvent) -> QueueEvent:
        job = event.job and replace(
            event.job, submit_s=self._in_log(event.job.submit_s), walltime_s=event.job.walltime_s * self.scale
        )
        return event._replace(time_s=self._in_log(event.time_s), job=job)


def live(bed: Testbed, release: str, replayed_there: Stretch, seed: int) -> Live:
    """Submit the jobs, predict the wait of each, and wait until all have started, or for some minutes."""
    for job in replayed_there.before:
        submit(bed, job)
    client = Client(bed, replayed_there, seed)
    client.look()
    client.predict(replayed_there.jobs[0])  # compiles the code that is compiled at its first use
    found = Live(release)
    began_s = time.monotonic()
    for job in replayed_there.jobs:
        while (ahead_s := began_s + job.at_s - time.monotonic()) > 0:
            if ahead_s > _LOOK_S:
                client.look()
            time.sleep(max(0.0, min(_LOOK_S, began_s + job.at_s - time.monotonic())))
        found.late_s = max(found.late_s, time.monotonic() - began_s - job.at_s)
        client.look()
        stated = client.predict(job)
        said_s = {name: each.wait_s / client.scale for name, each in stated.items()}
        said_s[SITE] = words_of_site(bed, job, time.time())
        quantiles_s = {name: tuple(q / client.scale for q in each.quantiles_s) for name, each in stated.items()}
        job_id = submit(bed, job)
        found.forecasts.append(Forecast(job_id, job.at_s, job.cores, job.walltime_min, said_s, quantiles_s))
        if len(found.forecasts) % 100 == 0:
            waiting = len(client.queued_s) - len(client.wait_s) - len(client.left)
            _tell(f"{release}: {len(found.forecasts)} of {len(replayed_there.jobs)} submitted, {waiting} wait")
    judged = found.forecasts[: judged_of(len(found.forecasts))]
    until_s = time.monotonic() + drain_s(replayed_there)
    while True:
        client.look()
        left = [each for each in judged if each.job_id not in client.wait_s and each.job_id not in client.left]
        if not left or time.monotonic() > until_s:
            break
        time.sleep(_LOOK_S)
    client.backend.close()
    found.forecasts = judged
    for each in judged:
        each.wait_s = client.wait_s.get(each.job_id, math.nan)
    found.unstarted = sum(math.isnan(each.wait_s) for each in judged)
    return found


def _tell(words: str) -> None:
    Console(stderr=True, highlight=False).print(words, style="dim")


# ---------------------------------------------------------------------- the figures


@dataclass(frozen=True, slots=True)
class Score:
    """How good a predictor was on a release; nan if not known."""

    release: str
    predictor: str
    forecasts: int  # judged ones; of a predictor trained on the first half, those of the second half
    log10_error: float = math.nan  # of all forecasts; waits count as `MIN_WAIT_S` at least
    within_2x: float = math.nan
    log10_error_first: float = math.nan  # of the first 50
    log10_error_later: float = math.nan  # of the second half
    within_2x_later: float = math.nan
    coverage_p50: float = math.nan
    coverage_p90: float = math.nan


def scores(found: Live) -> list[Score]:
    """Judge all predictors on the same jobs: those that started, and for which Slurm gave an estimate."""
    judged = [each for each in found.forecasts if math.isfinite(each.wait_s + each.said_s[SITE])]
    if not judged:
        return []
    unit = FLOOR_S / MIN_WAIT_S  # scales the floor of these figures, 10 s, to `MIN_WAIT_S`
    wait_s = unit * np.array([each.wait_s for each in judged])
    said_s = {name: unit * np.array([each.said_s[name] for each in judged]) for name in (*ESTIMATORS, SITE)}
    half = len(judged) // 2

    def score(name: str, predicted_s: NDArray[np.float64], begin: int = 0, **more: float) -> Score:
        errors, near = log10_errors(predicted_s, wait_s), within_factor(predicted_s, wait_s)
        return Score(
            found.release,
            name,
            len(judged) - begin,
            log10_error=_mean(errors) if not begin else math.nan,
            within_2x=_mean(near) if not begin else math.nan,
            log10_error_first=_mean(errors[:_FIRST]) if not begin else math.nan,
            log10_error_later=_mean(errors[half:]),
            within_2x_later=_mean(near[half:]),
            **more,
        )

    rows = []
    for name in ESTIMATORS:
        covered = coverage(unit * np.array([each.quantiles_s[name] for each in judged]), wait_s)
        p50, p90 = (_mean(covered[:, LEVELS.index(level)]) for level in (0.5, 0.9))
        rows.append(score(name, said_s[name], coverage_p50=p50, coverage_p90=p90))
    rows.append(score(SITE, said_s[SITE]))
    with_site = _with_site(judged, unit)
    covered = coverage(with_site, wait_s)
    p50, p90 = (_mean(covered[:, LEVELS.index(level)]) for level in (0.5, 0.9))
    rows.append(score(f"asa with {SITE}", with_site[:, LEVELS.index(0.5)], coverage_p50=p50, coverage_p90=p90))
    logs = {name: np.log10(np.maximum(each, FLOOR_S)) for name, each in said_s.items()}
    bias = float(np.median(np.log10(np.maximum(wait_s, FLOOR_S))[:half] - logs[SITE][:half])) if half else 0.0
    rows.append(score(f"{SITE}, corrected", 10 ** (logs[SITE] + bias), half))
    both = {name: 10 ** ((logs[name] + logs[SITE]) / 2) for name in ("asa", "asa-queue")}
    return [*rows, *(score(f"{name} x {SITE}", predicted_s) for name, predicted_s in both.items())]


def _with_site(judged: Sequence[Forecast], unit: float) -> NDArray[np.float64]:
    """Blend Slurm's estimates into asa's forecasts, by the known errors at each job; scaled by a unit."""
    known: list[tuple[float, Lived]] = []
    rows: list[tuple[float, ...]] = []
    for place, each in enumerate(judged):
        quantiles_s = tuple(unit * one for one in each.quantiles_s["asa"])
        lived = [one for known_s, one in sorted(known) if known_s <= each.at_s]
        assumed = assumed_error(place, [(one.forecast_s, one.wait_s) for one in lived])
        forecast = WaitForecast(quantiles_s, quantiles_s[4])
        rows.append(blend(forecast, unit * each.said_s[SITE], lived, assumed).forecast.quantiles_s)
        known.append((each.at_s + each.wait_s, Lived(unit * each.said_s[SITE], quantiles_s[4], unit * each.wait_s)))
    return np.array(rows)


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else math.nan


def facts(found: Live, replayed_there: Stretch) -> dict[str, Any]:
    """Return what a reader of the figures must know about a release."""
    waits_s = np.array([each.wait_s for each in found.forecasts if not math.isnan(each.wait_s)])
    return {
        "release": found.release,
        "forecasts": len(found.forecasts),
        "unstarted": found.unstarted,
        "unanswered": sum(math.isnan(each.said_s[SITE]) for each in found.forecasts),
        "at_floor": float(np.mean(waits_s <= MIN_WAIT_S)) if len(waits_s) else math.nan,
        "wait_p50_s": float(np.median(waits_s)) if len(waits_s) else math.nan,
        "wait_p90_s": float(np.quantile(waits_s, 0.9)) if len(waits_s) else math.nan,
        "late_s": found.late_s,
        "source": replayed_there.source,
        "jobs": len(replayed_there.jobs),
        "before": len(replayed_there.before),
        "scale": replayed_there.scale,
        "users": replayed_there.users,
        "cluster_cores": _NODES * cores_per_node(replayed_there),
        "short_min": replayed_there.short_min,
        "longer_h": replayed_there.longer_h,
        "min_wait_s": MIN_WAIT_S,
    }


# ---------------------------------------------------------------------- what is printed


def render(documents: Sequence[dict[str, Any]]) -> list[Table | str]:
    """Make a table for each release, with explanations."""
    parts: list[Table | str] = [_of_replay(documents[0]["facts"])]
    for document in documents:
        told = document["facts"]
        parts += [
            Table(HEADINGS, [_row(Score(**each)) for each in document["scores"]], f"Slurm {told['release']}", wraps=()),
            _of_waits(told),
        ]
    return [*parts, NOTE]


def _of_replay(told: dict[str, Any]) -> str:
    return (
        f"{told['source']}: {told['jobs']} jobs of {told['users']} users, after {told['before']} that were there "
        f"before, on {told['cluster_cores']} cores. A minute is {told['scale'] / 60:.1f} h of the log. Walltimes are "
        f"rounded up to minutes, by {told['longer_h']:.1f} h of the log in the mean; partition short takes up to "
        f"{told['short_min']} min. Waits are floored at {told['min_wait_s']:g} s "
        f"({told['min_wait_s'] * told['scale'] / 60:.0f} min of the log).\n"
    )


def _of_waits(told: dict[str, Any]) -> str:
    return (
        f"{told['forecasts']} forecasts, {told['unstarted']} of jobs that did not start in time, {told['unanswered']} "
        f"without an answer of {SITE}; waits: half up to {told['wait_p50_s']:.0f} s, nine tenths up to "
        f"{told['wait_p90_s']:.0f} s, {100 * told['at_floor']:.0f} % up to the floor. Jobs were submitted up to "
        f"{told['late_s']:.0f} s later than due.\n"
    )


def _row(score: Score) -> list[str]:
    near, near_later, p50, p90 = (
        number(100 * share, 0)
        for share in (score.within_2x, score.within_2x_later, score.coverage_p50, score.coverage_p90)
    )
    errors = (score.log10_error, score.log10_error_first, score.log10_error_later)
    whole, first, later = (number(error, 2) for error in errors)
    return [score.predictor, str(score.forecasts), whole, near, first, later, near_later, p50, p90]


def _plain(value: Any) -> Any:
    """Replace numbers that JSON lacks by null."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(value: Any) -> Any:
    """Replace null by nan."""
    return {key: math.nan if each is None else each for key, each in value.items()}


def one_release(release: str, replayed_there: Stretch, seed: int) -> dict[str, Any]:
    """Start the daemons of a release, replay the jobs, and judge the predictors."""
    with cluster(release, replayed_there) as bed:
        found = live(bed, release, replayed_there, seed)
    if not (judged := scores(found)):
        _tell(f"{release}: none of {len(found.forecasts)} jobs can be judged")
    return {
        "facts": facts(found, replayed_there),
        "scores": [asdict(each) for each in judged],
        "forecasts": [asdict(each) for each in found.forecasts],
    }


def at_once(releases: Sequence[str], arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Run each release in a process of its own; if this process is interrupted, the others clean up and end as well."""
    command = [sys.executable, __file__, *arguments, "--json", "--release"]
    children = [subprocess.Popen([*command, each], stdout=subprocess.PIPE) for each in releases]
    with ThreadPoolExecutor(len(children)) as readers:
        try:
            told = list(readers.map(lambda child: child.communicate()[0], children))
        finally:
            for child in children:
                if child.poll() is None:
                    child.terminate()
            for child in children:
                child.wait()
    for release, child in zip(releases, children, strict=True):
        if child.returncode:
            _tell(f"{release} has failed, or could judge nothing: exit {child.returncode}")
    return [{**each, "facts": _numbers(each["facts"]), "scores": [_numbers(one) for one in each["scores"]]}
            for text in told if text for each in json.loads(text)]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print; exit code 1 if nothing could be judged."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--log", type=Path, help="an SWF log; the first of $ASA_DATA/swf, else a workload model")
    parser.add_argument("--jobs", type=int, default=650, help="jobs that are submitted")
    parser.add_argument("--minutes", type=float, default=18.0, help="within which they are submitted")
    parser.add_argument("--release", choices=(*RELEASES, "both"), default="both")
    parser.add_argument("--seed", type=int, default=0, help="chooses the stretch of the log")
    parser.add_argument("--json", action="store_true", help="print all forecasts and figures as JSON")
    options: Any = parser.parse_args(arguments)
    wanted = (OLDEST, NEWEST) if options.release == "both" else (options.release,)
    able = [each for each in wanted if not missing(each)]
    for each in set(wanted) - set(able):
        _tell(f"{each} is not run: {missing(each)}")
    if not able:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` blocks run
    if len(able) > 1:
        passed = ["--jobs", str(options.jobs), "--minutes", str(options.minutes), "--seed", str(options.seed)]
        documents = at_once(able, [*passed, *(["--log", str(options.log)] if options.log else [])])
    else:
        log = options.log or next(
            iter(sorted(Path(os.environ.get("ASA_DATA", "/nowhere"), "swf").glob("*.swf*"))), None
        )
        jobs = from_log(log) if log else from_model(options.seed)
        os.umask(0)  # the cluster has another user, who writes into its folders
        documents = [one_release(able[0], stretch(jobs, options.jobs, options.minutes, options.seed), options.seed)]
    if options.json:
        print(json.dumps(_plain(documents), allow_nan=False))
    elif documents:
        for part in render(documents):
            console().print(part)
    return 0 if len(documents) == len(able) and all(document["scores"] for document in documents) else 1


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        _tell("interrupted; no daemon is left")
        raise SystemExit(130) from None
