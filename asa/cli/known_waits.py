"""The sources of the answers of `asa predict`: a bank alone, or a bank and the present queue."""

from __future__ import annotations

import getpass
import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from asa.cli.terminal import write_notice
from asa.core import temporary
from asa.core.computer import is_here
from asa.core.late import dataclass
from asa.errors import InputError

if TYPE_CHECKING:
    from asa.backend import Backend, Capabilities
    from asa.estimators.bank import Outcome, WaitBank
    from asa.estimators.kept import Digest, Learned
    from asa.estimators.store import WaitStore
    from asa.sites import OpenedSite
    from asa.waits import QueuedJob, QueueEvent, WaitEstimator

_BLIND = ("waiting", "ages")  # inputs that a bank lacks: the jobs pending now, and the time since the last event
_STALE_S = 30 * 86_400.0
_HISTORY = 1000  # past jobs of all users to read, in addition to pending and running ones
_HERE = "local"
_OR_NAMELESS = '; for jobs without a known partition, --partition ""'


Asked = tuple[int, float, str]
"""A request: cores, walltime in seconds, partition."""


@dataclass(frozen=True, slots=True)
class KnownWaits:
    """The past waits and the queue from which answers are computed."""

    bank: WaitBank
    system: str
    partitions: tuple[str, ...]  # partitions that may be requested; the first is the default
    user: str
    now_s: float  # the time for which answers hold
    digest: Digest  # summary of the bank's jobs of the system
    kinds: Mapping[str, int]  # number of waits learned, by geometry
    outcomes: Sequence[Outcome]  # past forecasts of this kind, with the waits that followed
    behind_s: float | None  # age of the newest observation by today's clock; None if that has no meaning
    live: str = ""  # the state of the queue, in words; empty if it was not read
    max_cores: int = 0  # of the machine; 0 if it was not asked
    whose: str = "The batch system"  # the source of the estimates below
    estimates_s: Mapping[Asked, float] = field(default_factory=dict)  # the waits that it estimates for requests
    site: Capabilities | None = None  # abilities of the batch system, if it was asked

    def request(self, cores: int, walltime_s: float, partition: str) -> QueuedJob:
        """Make a request that would be submitted now."""
        from asa.waits import QueuedJob

        return QueuedJob(self.now_s, cores, walltime_s, self.user, self.system, partition)


def from_bank(bank: Path | None, system: str | None, partitions: Sequence[str], user: str | None) -> KnownWaits:
    """Learn from a bank's jobs of one system, up to the last submission.

    Raises `InputError`: the bank has no jobs of it, or it is not clear which system is meant.
    """
    from asa.cli.compiling import compile_if_lacking
    from asa.estimators import kept, readiness
    from asa.estimators.bank import WaitBank, max_records
    from asa.estimators.store import WaitStore, default_folder

    folder = bank or default_folder()
    file = kept.file_of(folder, system or "", user or "")
    readiness.prefer(readiness.BLIND)
    if not (folder.exists() and kept.is_current(file, WaitStore(folder, create=False))):
        compile_if_lacking("", folder, quiet=False)
    from asa.estimators.contextual import ContextualAsa

    def choose(digests: Mapping[str, Digest]) -> tuple[str, str, Callable[[], WaitEstimator]]:
        name = _system(sorted(digests), system, folder)
        without = _BLIND if _user(user, digests[name].users) else (*_BLIND, "users")
        make = WaitBank(lambda surroundings: ContextualAsa(seed=surroundings.seed, without=without))
        return name, " ".join(without), lambda: make[name]

    learned = None
    if folder.exists():
        store = WaitStore(folder, create=False)
        learned = kept.learn(store, file, choose, ContextualAsa.from_state, None)
        _say_oddities(store)
    if learned is None:
        raise InputError("knows nothing yet", where=f"the bank {folder}", hint=how_to_begin(bank))
    digest = learned.digests[learned.system]
    chosen = _partitions(partitions, sorted(digest.widest))
    if max_records() < digest.count and find_spec("numba") is None:
        write_notice(
            f"asa: numba is not installed: only the latest {max_records():,} waits are learned (pip install numba)"
        )
    known = WaitBank()
    known.adopt(learned.system, learned.estimator, learned.count)
    behind_s = time.time() - learned.as_of_s
    return KnownWaits(
        known,
        learned.system,
        chosen,
        _user(user, digest.users),
        learned.as_of_s,
        digest,
        learned.kinds,
        learned.outcomes,
        behind_s if abs(behind_s) < _STALE_S else None,
    )


def from_queue(
    bank: Path | None,
    opened: OpenedSite,
    partitions: Sequence[str],
    user: str | None,
    asked: Callable[[Sequence[str]], Sequence[Asked]] = lambda _partitions: (),
) -> KnownWaits:
    """Learn from a bank's jobs of a site and from its present queue.

    `asked`: returns the requests, in the given partitions, for which to ask the batch system's own estimate as well.

    Raises `InputError`: it is not clear which site is meant. Raises `UnavailableError`: the site cannot be asked.
    """
    from asa.cli.compiling import compile_if_lacking
    from asa.cli.driving import opened as connected
    from asa.estimators import readiness
    from asa.estimators.bank import WaitBank
    from asa.estimators.choice import choose
    from asa.estimators.kept import Digest
    from asa.estimators.store import default_folder

    folder = bank or default_folder()
    with (
        temporary.folder("asa-") as nowhere,
        connected(lambda: opened.facility.connect(Path(nowhere))) as world,
    ):
        capabilities, now_s = world.capabilities, world.now()
        if capabilities.clusters:
            names = ", ".join(capabilities.clusters)
            hint = "Ask for each by itself: --site NAME, or --option cluster=NAME; or compare them with `asa plan`."
            raise InputError(f"are several ({names}), and each has a queue of its own", where="clusters", hint=hint)
        events = [_in_bank(event) for event in world.queue_events(_HISTORY, ends=True)]
        estimates_s = _site_estimates(world, asked(tuple(partitions) or (capabilities.partition,)))
    own = _hashed(user or getpass.getuser())
    chosen = choose(events, own)
    readiness.prefer(chosen.name)
    why = compile_if_lacking(chosen.why, folder, quiet=False)
    seen = _QueueLook.of(events)
    learned = _learned(folder, chosen.name, capabilities.system, capabilities.max_cores, now_s)
    digest = learned.digests[capabilities.system] if learned is not None else Digest()
    known_partitions = {event.job.partition for event in events if event.job is not None} | digest.widest.keys()
    for name in set(partitions) - {*known_partitions, capabilities.partition}:
        write_notice(f"Note: no job in partition {name!r} was seen: is that its name?")
    known = WaitBank(chosen.name, machine_cores=capabilities.max_cores, user=own)
    if learned is not None:
        known.adopt(capabilities.system, learned.estimator, learned.count)
    known.follow(events)
    if not known.learned:
        raise InputError(
            "shows no job that started, and the bank has none",
            where=f"system {capabilities.system!r}",
            hint=how_to_begin(bank),
        )
    return KnownWaits(
        known,
        capabilities.system,
        tuple(partitions) or (capabilities.partition,),
        own,
        now_s,
        digest,
        learned.kinds if learned is not None else {},
        digest.lived,
        0.0,
        f"{seen.text}; predicted by `{chosen.name}`, since {why}",
        capabilities.max_cores,
        "Slurm itself" if opened.backend.startswith("slurm") else "The batch system itself",
        estimates_s,
        capabilities,
    )


def _site_estimates(world: Backend, asked: Sequence[Asked]) -> dict[Asked, float]:
    """Ask a batch system for its own estimates; requests without one are left out."""
    from asa.backend import JobSpec, site_word_s

    estimates = {
        request: site_word_s(
            world, JobSpec("asa-predict", cores=request[0], walltime_s=request[1], partition=request[2])
        )
        for request in asked
        if request[0] <= world.capabilities.max_cores
    }
    return {request: word_s for request, word_s in estimates.items() if word_s is not None}


def _learned(folder: Path, estimator: str, system: str, cores: int, now_s: float) -> Learned | None:
    """Learn a bank's jobs of a system, to predict from its present queue; None if the bank has none."""
    from asa.estimators import kept
    from asa.estimators.bank import WaitBank
    from asa.estimators.choice import SEEING
    from asa.estimators.contextual import ContextualAsa
    from asa.estimators.store import WaitStore

    if not folder.exists():
        return None

    def choose(_digests: Mapping[str, Digest]) -> tuple[str, str, Callable[[], WaitEstimator]]:
        make = WaitBank(estimator, machine_cores=cores)
        return system, f"{estimator} {cores}", lambda: make[system]

    store = WaitStore(folder, create=False)
    if estimator == SEEING:
        learned = kept.seeing(store, system, cores, now_s)
    else:
        file = kept.file_of(folder, system, "live")
        learned = kept.learn(store, file, choose, ContextualAsa.from_state, now_s)
    _say_oddities(store)
    return learned if learned is not None and system in learned.digests else None


@dataclass(frozen=True, slots=True)
class _QueueLook:
    """The number of waiting and of running jobs in a queue."""

    waiting: int
    running: int

    @classmethod
    def of(cls, events: Sequence[QueueEvent]) -> _QueueLook:
        waiting: set[int | str] = set()
        running: set[int | str] = set()
        for event in events:
            if event.what == "submitted" and event.job is not None:
                waiting.add(event.key)
            else:
                waiting.discard(event.key)
                (running.add if event.what == "started" else running.discard)(event.key)
        return cls(len(waiting), len(running))

    @property
    def text(self) -> str:
        waiting = "1 job waits" if self.waiting == 1 else f"{self.waiting:,} jobs wait"
        return f"as of now: {waiting}, {self.running:,} {'runs' if self.running == 1 else 'run'}"


def _hashed(user: str) -> str:
    from asa.estimators.stored import user_in_store

    return user_in_store(user)


def _in_bank(event: QueueEvent) -> QueueEvent:
    """Replace a job's user by the bank's pseudonym."""
    from dataclasses import replace

    return event if event.job is None else event._replace(job=replace(event.job, user=_hashed(event.job.user)))


def _say_oddities(store: WaitStore) -> None:
    for words, count in store.oddities.items():
        write_notice(f"Note: in the bank {store.folder}: {count} x {words}")


def how_to_begin(bank: Path | None) -> str:
    """Return how to fill an empty bank."""
    into = f" --bank {shlex.quote(str(bank))}" if bank is not None else ""
    return (
        f"Learn from the site's accounting (`asa learn --since 30d{into}` where Slurm's commands are installed), or "
        f"from a log (`asa learn --from FILE{into}`). `asa run` adds what it observes."
    )


def _system(known: Sequence[str], wanted: str | None, folder: Path) -> str:
    """Return the system that is meant: the wanted one, else the only one other than this computer."""
    from asa.core.plugins import unknown_name

    if wanted is None:
        others = [name for name in known if not is_here(name)]
        if len(others) == 1:
            return others[0]
        if not others:
            raise InputError(
                "knows only waits of jobs on this computer, in a queue of its own",
                where=f"the bank {folder}",
                hint="Name a batch system with --backend or --site, or try a simulated one: --backend simulated "
                f"--option system=uppmax. For this computer's own queue: --system {known[0]}",
            )
        raise InputError(
            f"the bank knows {len(known)} systems: {', '.join(known)}", where="--system", hint="Name one of them."
        )
    if wanted not in known:
        raise unknown_name("system", wanted, list(known))
    return wanted


def _partitions(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Check the requested partitions against the known ones; if none is requested, take the only known partition."""
    from asa.core.plugins import unknown_name

    for name in wanted:
        if name not in known:
            if list(known) == [""]:
                raise InputError("its jobs are of no partition", where="--partition", hint="Leave it out.")
            raise unknown_name("partition", name, list(filter(None, known)))
    if wanted:
        return tuple(wanted)
    if len(known) > 1:
        named, nameless = list(filter(None, known)), "" in known
        of = f"{len(named)} {'partition' if len(named) == 1 else 'partitions'}: {', '.join(named)}"
        raise InputError(
            f"jobs were sent to {of}{'; of others the partition is not known' if nameless else ''}",
            where="--partition",
            hint=f"Name one, as in --partition {named[0]}{_OR_NAMELESS if nameless else ''}.",
        )
    return (known[0],)


def check_width(known: KnownWaits, cores: int, partition: str) -> None:
    """Refuse a job wider than all known ones: its wait cannot be predicted, and it may never run."""
    where = f"{known.system} {partition}".strip()
    if known.live:
        if 0 < known.max_cores < cores:
            raise InputError(
                f"{where} has {known.max_cores} cores", where=f"--cores {cores}", hint="Ask for what is available."
            )
        return
    widest = known.digest.widest[partition]
    if cores > widest:
        raise InputError(
            f"no job of more than {widest} cores is known on {where}, and how long wider ones wait cannot be told",
            where=f"--cores {cores}",
            hint=f"Ask for at most {widest}, or learn wider ones from the site's accounting: `asa learn`.",
        )


def _user(wanted: str | None, known: Collection[str]) -> str:
    """Return the user's pseudonym in the bank; empty if the calling user is not in the bank."""
    if wanted is None:
        try:
            own = _hashed(getpass.getuser())
        except (OSError, KeyError):  # this host does not know the user's name
            return ""
        return own if own in known else ""
    if wanted and _hashed(wanted) not in known:
        raise InputError(
            f"no job of user {wanted!r} is in the bank", where="--user", hint="Leave it out to ask for anybody's job."
        )
    return _hashed(wanted)


def find_site(backend: str | None, site: str | None, settings: dict[str, str]) -> OpenedSite | None:
    """Find the batch system whose queue to read; None if none is named and none is here."""
    from asa.sites import open_facility

    opened = open_facility(backend, site, settings)
    return None if opened.backend == _HERE and backend is None and site is None else opened
