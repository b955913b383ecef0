"""Where `asa predict` takes its answers from: a bank alone, or a bank and the queue as it is now."""

from __future__ import annotations

import getpass
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from asa.errors import InputError

if TYPE_CHECKING:
    from asa.estimators.bank import Outcome, WaitBank
    from asa.estimators.store import WaitRecord, WaitStore
    from asa.sites import OpenedSite
    from asa.waits import QueuedJob, QueueEvent

_BLIND = ("waiting", "ages")  # a bank holds waits that are over; not who waits now, nor that nothing happened meanwhile
_STALE_S = 30 * 86_400.0
_HISTORY = 1000  # past jobs of everybody that are looked at beside what waits and runs
_MANY = 1000  # waits of others whose run times are known, from which the queue's simulation can be learned
_HERE = "local"


@dataclass(frozen=True, slots=True)
class Known:
    """What answers are made from."""

    bank: WaitBank
    system: str
    partitions: tuple[str, ...]  # that may be asked for; the first where none is asked for
    user: str
    now_s: float  # as of when
    records: Sequence[WaitRecord]  # of the system, in the bank
    learned: Sequence[WaitRecord]  # those of which the bank learned
    outcomes: Sequence[Outcome]  # forecasts of this kind, and what came true
    behind_s: float | None  # how old the newest is by today's clock; None where that says nothing
    live: str = ""  # what was seen of the queue, in words; empty where nobody looked
    max_cores: int = 0  # of the machine; 0 where it was not asked

    def request(self, cores: int, walltime_s: float, partition: str) -> QueuedJob:
        """Make a request of now."""
        from asa.waits import QueuedJob

        return QueuedJob(self.now_s, cores, walltime_s, self.user, self.system, partition)


def open_store(folder: Path) -> WaitStore | None:
    """Open a bank that may not exist."""
    from asa.estimators.store import WaitStore

    return WaitStore(folder, create=False) if folder.exists() else None


def from_bank(bank: Path | None, system: str | None, partitions: Sequence[str], user: str | None) -> Known:
    """Learn what a bank knows of one system, as of the last submission in it.

    Raises `InputError`: it knows nothing, or it is not clear what is meant.
    """
    from asa.estimators.bank import WaitBank, max_records
    from asa.estimators.contextual import ContextualAsa
    from asa.estimators.store import default_folder

    folder = bank or default_folder()
    records = _read(open_store(folder), folder)
    if not records:
        raise InputError("knows nothing yet", where=f"the bank {folder}", hint=_begin(bank))
    place = _system(records, system)
    of_system = [record for record in records if record.job.system == place]
    chosen = _partitions(partitions, of_system)
    whose = _user(user, of_system)
    theirs = of_system[-max_records() :]
    if len(theirs) < len(of_system) and find_spec("numba") is None:
        sys.stderr.write(
            f"asa: numba is not installed: only the latest {len(theirs):,} waits are learned "
            "(pip install 'asa-client[fast]')\n"
        )
    # as of the last submission: what became known later is mostly of those that waited longest
    as_of_s = max(record.job.submit_s for record in theirs)
    if sum(record.known_s <= as_of_s for record in theirs) < len(theirs) / 2:
        as_of_s = max(record.known_s for record in theirs)  # one burst, and nothing was known before
    theirs = [record for record in theirs if record.job.submit_s <= as_of_s]
    without = _BLIND if whose else (*_BLIND, "users")
    known = WaitBank(lambda surroundings: ContextualAsa(seed=surroundings.seed, without=without))
    known.take(theirs, until_s=as_of_s)
    behind_s = time.time() - as_of_s
    return Known(
        known,
        place,
        chosen,
        whose,
        as_of_s,
        of_system,
        theirs,
        known.outcomes(place),
        behind_s if abs(behind_s) < _STALE_S else None,
    )


def from_queue(bank: Path | None, opened: OpenedSite, partitions: Sequence[str], user: str | None) -> Known:
    """Learn what a bank knows of a site, look at its queue, and answer as of now.

    Raises `InputError`: it is not clear what is meant. `UnavailableError`: the site cannot be asked.
    """
    from asa.cli.driving import opened as connected
    from asa.estimators.bank import WaitBank, max_records
    from asa.estimators.store import default_folder, user_in_store

    folder = bank or default_folder()
    records = _read(open_store(folder), folder)
    with (
        tempfile.TemporaryDirectory(prefix="asa-") as nowhere,
        connected(lambda: opened.facility.connect(Path(nowhere))) as world,
    ):
        capabilities, now_s = world.capabilities, world.now()
        of_system = [record for record in records if record.job.system == capabilities.system]
        events = world.queue_events(_HISTORY, ends=True)
    own = user_in_store(user or getpass.getuser())
    seen = _Seen.of(events, own)
    estimator = "asa-queue" if seen.others and _is_everybodys(of_system) else "asa"
    known = WaitBank(estimator, machine_cores=capabilities.max_cores, user=own)
    theirs = of_system[-max_records() :]
    known.take(theirs, until_s=now_s)
    outcomes = _lived(of_system)
    known.follow(_in_bank(event) for event in events)
    if not known.learned:
        raise InputError(
            "shows nothing of its queue, and the bank knows nothing of it",
            where=f"system {capabilities.system!r}",
            hint=_begin(bank),
        )
    offered = tuple(partitions) or (capabilities.partition,)
    words = f"{seen.words}; predicted by `{estimator}`"
    cores = capabilities.max_cores
    return Known(known, capabilities.system, offered, own, now_s, of_system, theirs, outcomes, 0.0, words, cores)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a look at a queue showed."""

    waiting: int
    running: int
    others: bool  # whether jobs of others are shown

    @classmethod
    def of(cls, events: Sequence[QueueEvent], own: str) -> _Seen:
        waiting: set[int | str] = set()
        running: set[int | str] = set()
        others = False
        for event in events:
            if event.what == "submitted" and event.job is not None:
                waiting.add(event.key)
                others |= _hashed(event.job.user) not in {"", own}
            else:
                waiting.discard(event.key)
                (running.add if event.what == "started" else running.discard)(event.key)
        return cls(len(waiting), len(running), others)

    @property
    def words(self) -> str:
        waiting = "1 job waits" if self.waiting == 1 else f"{self.waiting:,} jobs wait"
        shown = f"as of now: {waiting}, {self.running:,} {'runs' if self.running == 1 else 'run'}"
        return shown if self.others else f"{shown} (the site shows only your own)"


def _hashed(user: str) -> str:
    from asa.estimators.store import user_in_store

    return user_in_store(user)


def _in_bank(event: QueueEvent) -> QueueEvent:
    """Name a job's user as banks do."""
    from dataclasses import replace

    return event if event.job is None else event._replace(job=replace(event.job, user=_hashed(event.job.user)))


def _is_everybodys(records: Sequence[WaitRecord]) -> bool:
    """Whether a bank holds what a simulation of the queue can be learned from: runs of others, not one's own only."""
    ran = [record for record in records if record.run_s >= 0]
    return len(ran) >= _MANY and len({record.job.user for record in ran[-_MANY:]}) > 1


def _lived(records: Sequence[WaitRecord]) -> list[Outcome]:
    """Give forecasts that runs of asa acted upon, with what came true: made live, as this one is."""
    from asa.estimators.bank import Outcome
    from asa.waits import WaitForecast

    return [
        Outcome(record.job, WaitForecast(record.forecast, record.forecast[4]), record.observation.wait_s)
        for record in records
        if record.forecast is not None and record.observation.kind == "exact"
    ]


def _read(store: WaitStore | None, folder: Path) -> list[WaitRecord]:
    records = store.read() if store is not None else []
    for words, count in (store.oddities if store is not None else {}).items():
        sys.stderr.write(f"Note: in the bank {folder}: {count} x {words}\n")
    return records


def _begin(bank: Path | None) -> str:
    """Say how a bank that knows nothing is begun."""
    into = f" --bank {shlex.quote(str(bank))}" if bank is not None else ""
    return (
        f"Learn from the site's accounting, as by `asa learn --since 30d{into}` where its commands are, or from a log: "
        f"`asa learn --from FILE{into}`. What `asa run` sees is kept there, too."
    )


def _system(records: Sequence[WaitRecord], wanted: str | None) -> str:
    from asa.core.plugins import unknown_name

    known = sorted({record.job.system for record in records})
    if wanted is None:
        here = platform.node().partition(".")[0]  # as the queue of this machine is named where nobody names it
        others = [name for name in known if name != here] or known
        if len(others) == 1:
            return others[0]
        raise InputError(
            f"the bank knows {len(known)} systems: {', '.join(known)}", where="--system", hint="Name one of them."
        )
    if wanted not in known:
        raise unknown_name("system", wanted, known)
    return wanted


def _partitions(wanted: Sequence[str], records: Sequence[WaitRecord]) -> tuple[str, ...]:
    from asa.core.plugins import unknown_name

    known = sorted({record.job.partition for record in records})
    for one in wanted:
        if one not in known:
            if known == [""]:
                raise InputError("its jobs are of no partition", where="--partition", hint="Leave it out.")
            raise unknown_name("partition", one, list(filter(None, known)))
    if wanted:
        return tuple(wanted)
    if len(known) > 1:
        named, nameless = list(filter(None, known)), "" in known
        of = f"{len(named)} {'partition' if len(named) == 1 else 'partitions'}: {', '.join(named)}"
        raise InputError(
            f"jobs were sent to {of}{'; of others the partition is not known' if nameless else ''}",
            where="--partition",
            hint=f"Name one of them{', or give an empty one for the others' if nameless else ''}.",
        )
    return (known[0],)


def check_width(known: Known, cores: int, partition: str) -> None:
    """Refuse a job wider than any that is known: of what waits so long nothing was learned, nor whether it can run."""
    where = f"{known.system} {partition}".strip()
    if known.live:
        if 0 < known.max_cores < cores:
            raise InputError(
                f"{where} has {known.max_cores} cores", where=f"--cores {cores}", hint="Ask for what it has."
            )
        return
    widest = max(record.job.cores for record in known.records if record.job.partition == partition)
    if cores > widest:
        raise InputError(
            f"no job of more than {widest} cores is known on {where}, and how long wider ones wait cannot be told",
            where=f"--cores {cores}",
            hint=f"Ask for at most {widest}, or learn of wider ones from the site's accounting: `asa learn`.",
        )


def _user(wanted: str | None, records: Sequence[WaitRecord]) -> str:
    """Say whose job it is, as the bank names users; nobody's if one's own name is not among them."""
    known = {record.job.user for record in records}
    if wanted is None:
        try:
            own = _hashed(getpass.getuser())
        except (OSError, KeyError):  # no such user on this host
            return ""
        return own if own in known else ""
    if wanted and _hashed(wanted) not in known:
        raise InputError(
            f"no job of user {wanted!r} is in the bank", where="--user", hint="Leave it out to ask for anybody's job."
        )
    return _hashed(wanted)


def find_site(backend: str | None, site: str | None, settings: dict[str, str]) -> OpenedSite | None:
    """Find the batch system whose queue is looked at; None where none is named, and none is at hand."""
    from asa.sites import open_facility

    opened = open_facility(backend, site, settings)
    return None if opened.backend == _HERE and backend is None and site is None else opened
