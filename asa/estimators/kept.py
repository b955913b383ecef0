"""Caches the estimators learned from a bank, so that not each process has to learn a million waits.

The cache is a file of this user that may be deleted at any time. It depends on the bank's segments: once one of them is
gone, as after merging or forgetting, all waits are learned again.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from asa.core import plainly, safe
from asa.core.documents import read_json
from asa.core.files import put
from asa.errors import AsaError
from asa.estimators.bank import Outcome, WaitBank, max_records
from asa.estimators.choice import BLIND, SEEING
from asa.estimators.followed import FollowedQueue
from asa.estimators.site_estimate import Lived
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.waits import QueuedJob, WaitEstimator, WaitForecast, WaitObservation

_VERSION = 3
_FEW_BYTES = 16_384  # the size of some dozen waits
_OUTCOMES = 1000
_RUNS = 1000  # number of latest runs whose users are counted
_CACHED = (BLIND, SEEING, "asa-boost", "asa-queue-boost")
_FILES = 50  # number of files of jobs that are known again
_WORTH_KEEPING = 40  # number of waits after which the cache is written again

FromState = Callable[[Mapping[str, Any]], WaitEstimator]


@dataclass(slots=True)
class Digest:
    """Summary of a bank's records of one system."""

    count: int = 0
    last_submit_s: float = -math.inf
    widest: dict[str, int] = field(default_factory=dict)  # cores of the widest job, by partition
    users: set[str] = field(default_factory=set)
    runners: list[str] = field(default_factory=list)  # users of the latest jobs with known run time
    lived: list[Outcome] = field(default_factory=list)  # the latest forecasts that runs of asa used
    site_estimates: list[Lived] = field(default_factory=list)  # the batch system's estimates with these

    def add(self, record: WaitRecord) -> None:
        """Add a record to the summary."""
        job = record.job
        self.count += 1
        self.last_submit_s = max(self.last_submit_s, job.submit_s)
        self.widest[job.partition] = max(self.widest.get(job.partition, 0), job.cores)
        self.users.add(job.user)
        if record.run_s >= 0:
            self.runners.append(job.user)
        if record.forecast is not None and record.observation.kind == "exact":
            forecast = WaitForecast(record.forecast, record.forecast[4])
            self.lived.append(Outcome(job, forecast, record.observation.wait_s))
            if record.word_s is not None:
                self.site_estimates.append(Lived(record.word_s, forecast.wait_s, record.observation.wait_s))
        del self.site_estimates[:-_OUTCOMES]
        if len(self.runners) > 2 * _RUNS:
            del self.runners[:-_RUNS]
        if len(self.lived) > 2 * _OUTCOMES:
            del self.lived[:-_OUTCOMES]

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON-ready data."""
        return {
            "count": self.count,
            "last_submit_s": self.last_submit_s,
            "widest": self.widest,
            "users": sorted(self.users),
            "runners": self.runners[-_RUNS:],
            "lived": [_written(outcome) for outcome in self.lived[-_OUTCOMES:]],
            "words": self.site_estimates,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Digest:
        """Return a summary from the result of `as_dict`."""
        return cls(
            int(data["count"]),
            float(data["last_submit_s"]),
            {str(name): int(cores) for name, cores in data["widest"].items()},
            set(data["users"]),
            list(data["runners"]),
            [_outcome(row) for row in data["lived"]],
            [Lived(*map(float, row)) for row in data["words"]],
        )


def kind_of(job: QueuedJob) -> str:
    """Return the text for a job's geometry."""
    geometry = job.geometry
    return f"{geometry.size_class} {geometry.walltime_class} {geometry.partition}"


@dataclass(slots=True)
class Learned:
    """An estimator that has learned a bank's waits of one system, up to some time."""

    digests: dict[str, Digest]
    system: str
    estimator: WaitEstimator
    settings: str  # with which the estimator was made
    as_of_s: float
    count: int = 0  # number of learned waits
    kinds: Counter[str] = field(default_factory=Counter)  # number of learned waits, by geometry
    outcomes: list[Outcome] = field(default_factory=list)
    # tickets and forecasts of pending jobs, by id of the record
    waiting: dict[str, tuple[int, WaitForecast]] = field(default_factory=dict)
    # ticket, end and run time of running jobs, by id of the record
    running: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    later: list[WaitRecord] = field(default_factory=list)  # records of waits that became known later
    queue: FollowedQueue = field(default_factory=FollowedQueue)  # of all users, if the estimator has followed it

    def live(self, records: Iterable[WaitRecord], until_s: float) -> int:
        """Learn waits up to a time, and keep later ones for the next call; return how many were learned."""
        known = {record.id: record for record in self.later}  # a record that comes twice counts once
        known |= {record.id: record for record in records if record.job.system == self.system}
        mine = list(known.values())
        events: list[tuple[float, int, int, str]] = [
            (end_s, 2, -1, name) for name, (_, end_s, _) in self.running.items() if end_s <= until_s
        ]
        for place, record in enumerate(mine):
            if record.id not in self.waiting and record.job.submit_s <= until_s:
                events.append((record.job.submit_s, 0, place, record.id))
            if record.known_s <= until_s:
                events.append((record.known_s, 1, place, record.id))
                end_s = record.known_s + record.run_s
                if record.run_s >= 0 and record.observation.kind == "exact" and end_s <= until_s:
                    events.append((end_s, 2, place, record.id))
        events.sort(key=lambda event: event[:3])
        plainly.expect(len(events) / 2)
        for _, kind, place, name in events:
            if kind == 0:
                job = mine[place].job
                forecast = self.estimator.predict(job)
                self.waiting[name] = self.estimator.submitted(job, forecast), forecast
            elif kind == 1:
                self._known(mine[place])
            elif name in self.running:
                ticket, _, run_s = self.running.pop(name)
                self.estimator.ended(ticket, run_s)
        learned = sum(kind == 1 for _, kind, _, _ in events)
        self.count += learned
        self.later = [record for record in mine if record.known_s > until_s]
        self.as_of_s = until_s
        del self.outcomes[:-_OUTCOMES]
        return learned

    def _known(self, record: WaitRecord) -> None:
        ticket, forecast = self.waiting.pop(record.id)
        self.kinds[kind_of(record.job)] += 1
        self.estimator.observe(ticket, record.observation)
        if record.observation.kind != "exact":
            return
        if record.run_s >= 0:
            self.running[record.id] = ticket, record.known_s + record.run_s, record.run_s
        else:  # nothing will tell of its end, and by now it may have ended long ago
            self.estimator.withdrawn(ticket)
        self.outcomes.append(Outcome(record.job, forecast, record.observation.wait_s))


def file_of(folder: Path, *what: str) -> Path:
    """Return the file of the cache for a bank."""
    try:
        root = safe.cache_folder() / "learned"
    except RuntimeError:  # without a home folder nothing is cached
        root = Path(os.devnull)
    digest = sha256("\0".join([str(folder.absolute()), *what]).encode(errors="surrogatepass")).hexdigest()
    return root / sha256(str(folder.absolute()).encode(errors="surrogatepass")).hexdigest()[:16] / f"{digest[:16]}.json"


def drop(folder: Path) -> None:
    """Delete the caches of a bank."""
    with suppress(OSError, RuntimeError):
        for file in file_of(folder).parent.iterdir():
            file.unlink(missing_ok=True)


def learn_file(store: WaitStore, name: str, records: Iterable[WaitRecord]) -> int:
    """Add a file's records to a bank, unless the bank has had them and has only grown since; return how many are new.

    `name`: a digest of the file's content and of all that its records depend on.
    """
    note = file_of(store.folder, "files")
    try:
        known = {str(one): dict(position) for one, position in read_json(safe.read(note)).items()}
    except (OSError, ValueError, TypeError, AttributeError, AsaError):
        known = {}
    if name in known and store.beyond(known[name]) < math.inf:
        return 0
    added = store.extend(records)
    latest = dict(list(known.items())[-_FILES:]) | {name: store.end()}
    with suppress(OSError, AsaError):
        safe.provide_folder(note.parent)
        put(note, json.dumps(latest).encode(), is_private=True)
    return added


def is_current(file: Path, store: WaitStore) -> bool:
    """Whether the bank has hardly any waits that the cache lacks."""
    try:
        return store.beyond(read_json(safe.read(file))["position"]) <= _FEW_BYTES
    except (OSError, ValueError, TypeError, KeyError, AttributeError, AsaError):
        return False


def load(file: Path, store: WaitStore, from_state: FromState) -> Learned | None:
    """Load a cache, and move the store to its position; return None if there is no usable one."""
    try:
        data = read_json(safe.read(file))
        if data["version"] != _VERSION or not store.resume(data["position"]):
            return None
        return Learned(
            {name: Digest.from_dict(values) for name, values in data["digests"].items()},
            data["system"],
            from_state(data["estimator"]),
            data["settings"],
            float(data["as_of_s"]),
            int(data["count"]),
            Counter({str(kind): int(count) for kind, count in data["kinds"].items()}),
            [_outcome(row) for row in data["outcomes"]],
            {str(name): (int(ticket), _forecast(*stated)) for name, (ticket, *stated) in data["waiting"].items()},
            {str(name): (int(ticket), float(end), float(run)) for name, (ticket, end, run) in data["running"].items()},
            [_record(row) for row in data["later"]],
            FollowedQueue.from_state(data["queue"]),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, AsaError):
        return None


def save(file: Path, position: Mapping[str, int], learned: Learned) -> None:
    """Write a cache; if that fails, the waits are learned again next time.

    `position`: of the store; all waits up to there were learned.
    """
    data = {
        "version": _VERSION,
        "position": position,
        "digests": {name: digest.as_dict() for name, digest in learned.digests.items()},
        "system": learned.system,
        "estimator": learned.estimator.state(),
        "settings": learned.settings,
        "as_of_s": learned.as_of_s,
        "count": learned.count,
        "kinds": dict(learned.kinds),
        "outcomes": [_written(outcome) for outcome in learned.outcomes],
        "waiting": {name: [ticket, *wait[:2]] for name, (ticket, wait) in learned.waiting.items()},
        "running": learned.running,
        "later": [_row(record) for record in learned.later],
        "queue": learned.queue.state(),
    }
    with suppress(OSError, AsaError):
        safe.provide_folder(file.parent)
        put(file, json.dumps(data).encode(), is_private=True)


def learn(
    store: WaitStore,
    file: Path,
    choose: Callable[[Mapping[str, Digest]], tuple[str, str, Callable[[], WaitEstimator]]],
    from_state: FromState,
    until_s: float | None,
    *,
    anew: bool = False,
) -> Learned | None:
    """Learn a bank's waits of one system, from the cache and from new records; None if the bank is empty.

    `choose`: given the summaries of the bank, returns the system, the settings, and the function that makes the
    estimator.
    `until_s`: upper bound of the time; by default the last submission, since waits that became known later are mostly
    the longest ones.
    """
    kept = None if anew else load(file, store, from_state)
    news = store.news() if kept is not None else store.read()
    digests = kept.digests if kept is not None else {}
    for record in news:
        digests.setdefault(record.job.system, Digest()).add(record)
    if not digests:
        return None
    system, settings, make = choose(digests)
    is_for_now = False  # whether a process that has compiled code will learn more of the bank
    many = sum(record.job.system == system for record in news) > max_records()
    if kept is not None and (many or (kept.system, kept.settings) != (system, settings)):
        return learn(WaitStore(store.folder, create=False), file, choose, from_state, until_s, anew=True)
    if kept is None:
        mine = [record for record in news if record.job.system == system]
        news = mine[-max_records() :]
        is_for_now = plainly.is_for_good() and len(news) < len(mine) and find_spec("numba") is not None
        kept = Learned(digests, system, make(), settings, -math.inf)
    until_s = _until_s(kept, news) if until_s is None else max(until_s, kept.as_of_s)
    if kept.live(news, until_s) >= _WORTH_KEEPING and not is_for_now:
        save(file, store.position(), kept)
    return kept


def seeing(
    store: WaitStore,
    system: str,
    cores: int,
    now_s: float,
    *,
    seed: int = 0,
    estimator: str = SEEING,
    file: Path | None = None,
) -> Learned | None:
    """Learn a bank's waits of one system with the estimator that sees the queue; see `learn`."""
    make = WaitBank(estimator, machine_cores=cores, seed=seed)
    from_state: FromState = type(make[system]).from_state  # type: ignore[attr-defined]

    def choose(_digests: Mapping[str, Digest]) -> tuple[str, str, Callable[[], WaitEstimator]]:
        return system, f"{estimator} {cores} {seed}", lambda: make[system]

    return learn(store, file or file_of(store.folder, system, estimator), choose, from_state, now_s)


def bank_of(
    estimator: str, store: WaitStore | None, system: str, *, machine_cores: int, seed: int, now_s: float
) -> WaitBank:
    """Open a bank for a run on a system.

    Each start of a run needs it, so an estimator that takes a millisecond or more for a wait, at least without compiled
    code, comes from the cache. What it then learns of the queue is cached, too.
    """
    if estimator not in _CACHED or store is None:
        return WaitBank(estimator, seed=seed, machine_cores=machine_cores, store=store)
    bank = WaitBank(estimator, seed=seed, machine_cores=machine_cores)
    following = file_of(store.folder, system, estimator, "queue")
    file = following if following.exists() else None
    learned = seeing(store, system, machine_cores, now_s, seed=seed, estimator=estimator, file=file)
    if learned is None:
        bank.adopt(system, bank[system], store=store)
        return bank
    queue = learned.queue
    queue.shown = queue.shown or {}

    def keep() -> None:
        # simulators number their jobs anew in each world
        if queue.news + bank.own >= _WORTH_KEEPING and all(isinstance(key, str) for key in queue.shown or ()):
            learned.count += bank.own
            with suppress(OSError):
                save(following, store.position(with_own=True), learned)

    bank.adopt(system, learned.estimator, learned.count, store=store, queue=learned.queue, keep=keep)
    return bank


def bank_of_each(
    estimator: str, store: WaitStore | None, cores: Mapping[str, int], *, seed: int, now_s: float
) -> WaitBank:
    """Open a bank for a run on several systems, given the cores of each; see `bank_of`.

    What it learns of their queues is not cached.
    """
    if estimator not in _CACHED:
        return WaitBank(estimator, seed=seed, machine_cores=max(cores.values()), store=store)
    bank = WaitBank(estimator, seed=seed, machine_cores=max(cores.values()))
    for system, of_system in cores.items():
        learned = None if store is None else seeing(store, system, of_system, now_s, seed=seed, estimator=estimator)
        made = WaitBank(estimator, seed=seed, machine_cores=of_system)[system] if learned is None else learned.estimator
        bank.adopt(system, made, 0 if learned is None else learned.count, store=store)
    return bank


def _until_s(kept: Learned, news: Sequence[WaitRecord]) -> float:
    theirs = [record for record in (*kept.later, *news) if record.job.system == kept.system]
    if not theirs:
        return kept.as_of_s
    last_s = max(record.job.submit_s for record in theirs)
    if kept.count == 0 and np.mean([record.known_s <= last_s for record in theirs]) < 0.5:
        # then all were submitted in one burst before any wait was known
        last_s = max(record.known_s for record in theirs)
    return max(last_s, kept.as_of_s)


def _written(outcome: Outcome) -> list[Any]:
    job = outcome.job
    asked = [job.submit_s, job.cores, job.walltime_s, job.user, job.system, job.partition]
    return [asked, list(outcome.forecast.quantiles_s), outcome.forecast.wait_s, outcome.wait_s]


def _outcome(row: Sequence[Any]) -> Outcome:
    asked, quantiles_s, stated_s, wait_s = row
    return Outcome(QueuedJob(*asked), _forecast(quantiles_s, stated_s), float(wait_s))


def _forecast(quantiles_s: Sequence[float], wait_s: float) -> WaitForecast:
    return WaitForecast(tuple(map(float, quantiles_s)), float(wait_s))


def _row(record: WaitRecord) -> list[Any]:
    job, seen = record.job, record.observation
    asked = [job.submit_s, job.cores, job.walltime_s, job.user, job.system, job.partition]
    return [asked, seen.wait_s, seen.kind, record.run_s, record.id]


def _record(row: Sequence[Any]) -> WaitRecord:
    asked, wait_s, kind, run_s, name = row
    return WaitRecord(QueuedJob(*asked), WaitObservation(float(wait_s), kind), run_s=float(run_s), id=str(name))
