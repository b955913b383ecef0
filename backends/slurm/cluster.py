"""Records a run's cluster at the first submission, and compares it before any later action.

A running client may suddenly reach another cluster, as after a change of configuration. So the cluster's name and the
number of the next job are compared again before jobs are submitted, and always before a job counts as gone.

A job's number means nothing on another cluster, or after a controller has lost its state and counts from the beginning
again. The record of a run has its cluster's name and address, and the number, name and time of its first job. The
client stops, without changing anything, if one of these facts shows that the run is elsewhere:

- the cluster has another name;
- the number of the next job is not above that of the run's first;
- another job has the number of the run's first job;
- a job has a higher number than the run's first and was submitted before it, or a lower one and was submitted after it;
- the cluster is reached at another address, and neither controller nor accounting knows a job of the run.

A controller that lost only its latest state reuses numbers above the run's first: the run goes on. It also goes on when
numbers have passed ``MaxJobId`` and begin again at the lowest; known jobs then have higher numbers than later jobs. A
controller's start time is no evidence, as it changes with each restart.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from asa.backends.shell.marks import KeptSubmission

from asa.backend import CLUSTER_FILE
from asa.core.documents import read_json
from asa.core.files import put, read_file
from asa.errors import BackendError, OtherClusterError

from .identity import has_token, number_of, token_of
from .link import SlurmCluster, SlurmLink, SlurmRecord

_DOUBT_AGAIN_S = 600.0  # seconds between two listings of all users' jobs
_SURE_S = 2.0  # seconds for which a comparison need not be repeated before a submission
_MAX_SURE_S = 60.0
_MIN_WORK = 20.0  # if a comparison takes long, as through ssh, this many times its duration passes until the next
_CLOCKS_S = 300.0  # upper bound of the difference between this computer's clock and Slurm's
_ACCEPT = "--accept-cluster"


@dataclass(frozen=True, slots=True)
class Home:
    """The record of a run's cluster."""

    name: str  # empty if not reported
    address: str  # the address at which it was last reached
    first_number: int
    first_name: str  # full name of the run's first job
    first_s: float  # when that was submitted

    def is_first(self, record: SlurmRecord) -> bool:
        """Whether a record is of the run's first job, or of an element of it."""
        return record.name == self.first_name or has_token(record.comment, token_of(self.first_name))


class HomeCluster:
    """Compares the reached cluster with a run's.

    `root`: the run's folder. `own`: where the record is, if not there.
    """

    def __init__(self, link: SlurmLink, root: Path, clock: Callable[[], float], *, own: Path | None = None) -> None:
        self._link, self._path, self._clock = link, (own or root) / CLUSTER_FILE, clock
        self._root, self._run = root, root.name
        self._home = _read(self._path)
        self._doubted_s = -math.inf
        self._passed_s = -math.inf  # when numbers were last seen to have passed the highest
        self._due_s = -math.inf  # time at which it is compared again before a submission
        self._unsure: dict[str, None] = {}  # jobs submitted since the last comparison

    def is_unsure(self, job_id: str) -> bool:
        """Whether a job was submitted since the last comparison, so that it is no evidence of the cluster."""
        return number_of(job_id) in self._unsure

    def check(self) -> None:
        """Compare at the beginning.

        For a run without a recorded cluster, as from earlier versions, record this cluster.

        Raises `OtherClusterError`: the run is elsewhere. Raises `UnavailableError`: Slurm does not answer.
        """
        if self._home is None:
            return
        here = self._compared()
        self._check_order(self._link.of_anybody(str(self._home.first_number)))
        if here.address != self._home.address:
            with suppress(BackendError):
                self._check_order(self._link.queue())

    def confirm(self, is_known: Callable[[], bool], *, before: bool = False) -> None:
        """Compare by small requests, since answers of another cluster must not be believed.

        `is_known`: see `doubt`; called only if the controller is reached at another address.
        `before`: whether it is called before an action; a recent comparison then suffices.
        Raises `OtherClusterError`: the run is elsewhere. Raises `UnavailableError`: Slurm does not answer.
        """
        if self._home is None or (before and 0 <= self._due_s - self._clock() <= _MAX_SURE_S):
            return
        began_s, here = self._clock(), self._compared()
        if not before or here.next_number is None:
            self._check_order(self._link.of_anybody(str(self._home.first_number)))
        if here.address != self._home.address:
            self._look_round(here, is_known)
        self._unsure = {}
        took_s = self._clock() - began_s
        self._due_s = began_s + took_s + min(max(_SURE_S, _MIN_WORK * took_s), _MAX_SURE_S)

    def submitted(self, job_id: str, kept: KeptSubmission) -> None:
        """Record the cluster at the first submission; later, check that numbers continue.

        Raises `OtherClusterError`: the number of a new job is below the run's first.
        """
        number = int(job_id)
        if self._home is not None:
            self._unsure[job_id] = None
            with suppress(BackendError):  # the next client asks again
                if number < self._home.first_number and not self._have_passed_the_highest(number, kept.submit_s):
                    raise self._began_anew(f"a new job got number {number}")
            if number == self._home.first_number:  # the controller has just lost its latest state with the first job
                self._keep(replace(self._home, first_name=kept.name, first_s=kept.submit_s))
            return
        try:
            here = self._link.cluster()
        except BackendError:
            return  # the next submission records it
        self._keep(Home(here.name, here.address, number, kept.name, kept.submit_s))
        self._due_s = self._clock() + _SURE_S

    def doubt(self, is_known: Callable[[], bool]) -> None:
        """Compare again, since jobs of the run are missing, or other jobs have their numbers.

        `is_known`: returns whether there is evidence of one of these jobs, such as accounting or its marks.
        Raises `OtherClusterError`: the run is elsewhere.
        """
        if self._home is None:
            return
        with suppress(BackendError):
            self.confirm(is_known)
            if not 0 <= self._clock() - self._doubted_s < _DOUBT_AGAIN_S:
                self._check_order(self._link.queue())
                self._doubted_s = self._clock()

    def _look_round(self, here: SlurmCluster, is_known: Callable[[], bool]) -> None:
        """Compare the jobs of all users, if the controller has another address; accept the address if all agree."""
        assert self._home is not None
        self._check_order(self._link.queue())
        if not is_known():
            raise self._other(f"none of its jobs is known at {here.address}; it was on {self._home.address}")
        self._doubted_s = self._clock()
        self._keep(replace(self._home, address=here.address))

    # evidence that it is another cluster

    def _compared(self) -> SlurmCluster:
        """Compare names, and the number of the next job if Slurm reports it."""
        assert self._home is not None
        here, home = self._link.cluster(), self._home
        if here.name and home.name and here.name != home.name:
            raise self._other(f"this is {here.name!r}, and the run is on {home.name!r}")
        number = here.next_number
        is_lower = number is not None and number <= home.first_number
        if number is not None and is_lower and not self._have_passed_the_highest(number, self._clock()):
            raise self._began_anew(f"the next job here gets number {number}")
        return here

    def _have_passed_the_highest(self, number: int, at_s: float) -> bool:
        """Whether job numbers have begun again after the highest possible one: known jobs then have higher numbers."""
        if 0 <= self._clock() - self._passed_s < _DOUBT_AGAIN_S:
            return True
        records = filter(_is_numbered_in_order, self._link.queue())
        has = any(int(record.job_id) >= number and record.submit_s < at_s - _CLOCKS_S for record in records)
        self._passed_s = self._clock() if has else self._passed_s
        return has

    def _check_order(self, records: Iterable[SlurmRecord]) -> None:
        """Raise if another job has the number of the run's first job, or the order of jobs contradicts it."""
        assert self._home is not None
        home, records = self._home, list(records)
        is_in_order = not _is_out_of_order(records)
        for record in records:
            if str(home.first_number) in record.numbers and not home.is_first(record):
                raise self._began_anew(f"that number is now the job {record.name!r}")
            if not (is_in_order and _is_numbered_in_order(record)):
                continue
            number = int(record.job_id)
            if number > home.first_number and record.submit_s < home.first_s - _CLOCKS_S:
                raise self._other(f"job {number} here was submitted before the run's first job, {home.first_number}")
            if number < home.first_number and record.submit_s > home.first_s + _CLOCKS_S:
                raise self._began_anew(f"job {number} was submitted after it")

    def _other(self, why: str) -> OtherClusterError:
        return OtherClusterError(
            f"belongs to another cluster: {why}",
            where=f"run {self._run}",
            hint=f"{self._touched()} Go where the run's cluster is reached: SLURM_CONF, the modules that are loaded, "
            f"or --option url=... If this is the run's cluster all the same: {self._accept()}",
        )

    def _began_anew(self, why: str) -> OtherClusterError:
        assert self._home is not None
        return OtherClusterError(
            f"numbers of jobs began anew: the run's first job was {self._home.first_number}, and {why}",
            where=f"run {self._run}",
            hint=f"{self._touched()} The controller has lost its state, and the run's jobs with it; or this is "
            f"another cluster of that name. If the run is to go on here, without its former jobs: {self._accept()}",
        )

    def _accept(self) -> str:
        """Return the command, for this folder, with which the user makes the run accept the reached cluster."""
        path, here = self._root.absolute(), Path.cwd()
        run = path.relative_to(here) if path.is_relative_to(here) else path
        return shlex.join(["asa", "resume", str(run), _ACCEPT])

    def _touched(self) -> str:
        """Return a sentence on actions that may have reached the other cluster before this was noticed."""
        if not self._unsure:
            return "Nothing was touched."
        jobs = ", ".join(self._unsure)
        return f"Submitted a moment before, perhaps there: {jobs}. Cancel what is. Nothing else was touched."

    # ------------------------------------------------------------------ the file

    def _keep(self, home: Home) -> None:
        with suppress(OSError):  # a full disk also fails the journal
            put(self._path, json.dumps(asdict(home)).encode(), is_private=True)
        self._home = home


def _is_numbered_in_order(record: SlurmRecord) -> bool:
    """Whether a job got its number at submission; elements get it at start, and a requeue changes the time."""
    return not (record.is_part or record.restarts) and bool(record.submit_s)


def _is_out_of_order(records: Iterable[SlurmRecord]) -> bool:
    """Whether a job has a higher number than one that was submitted later: numbers have passed the highest."""
    latest_s = -math.inf
    for record in sorted(filter(_is_numbered_in_order, records), key=lambda record: int(record.job_id)):
        if record.submit_s < latest_s - _CLOCKS_S:
            return True
        latest_s = max(latest_s, record.submit_s)
    return False


def _read(path: Path) -> Home | None:
    try:
        return Home(**read_json(read_file(path)))
    except (OSError, ValueError, TypeError):
        return None
