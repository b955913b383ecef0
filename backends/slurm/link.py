"""The interface of links to Slurm, and its values, for all versions and both kinds of links.

A link sends each request once, and translates between Slurm's spellings and the values here. It does not wait, does not
retry, and remembers no jobs: `SlurmBackend` does that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from asa.backend import Capabilities, JobSpec
from asa.elements import Elements, parse_elements
from asa.errors import BackendError, InputError
from asa.keys import JobKeys
from asa.requests import without_size

_GB = 10**9
_MAX_DIGITS = 18
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]*[^\d:,()][^:,()]*)?(?::(\d+))?(?=,|$)")


LAST_S = 2.0**37
"""No moment is that late, in seconds since 1970: it is in the year 6325."""
MEMBERS = "members"
"""Among `SlurmLink.changeable`: whether single elements of arrays can be changed and cancelled while they wait."""


@dataclass(frozen=True, slots=True, repr=False)
class SlurmJob(JobKeys):
    """A job as it is passed to Slurm.

    Slurm counts memory per node or core: a link divides the job's memory by `nodes`, or by `cores` if `nodes` is not
    given.
    """

    name: str  # contains the token; unique among the user's jobs if the job must be found again
    script: str  # the batch script, beginning with `#!`
    folder: str  # absolute path of the working directory
    cores: int  # CPUs, in tasks of `cpus_per_task` each; 0 if its options give the whole size
    walltime_s: float  # in seconds; links round up to Slurm's minutes
    stdout: str  # absolute paths, taken literally: links ensure that Slurm replaces nothing in them
    stderr: str
    nodes: int = 0  # exact number; 0 for any number
    partition: str = ""  # empty for the site's default
    qos: str = ""
    constraint: str = ""
    dependency: str = ""  # in Slurm's form, as in `afterok:12:13,after:14+2`; empty for none
    begin_s: int | None = None  # earliest start, in seconds since 1970; None for none
    held: bool = False
    # variables of the job; a link adds none of its own process
    environment: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""
    cpus_per_task: int = 1  # CPUs of each task, on one node; `cores` is a multiple
    # further options of sbatch, such as `--exclusive` or `--nice=10`; they override `qos` and `constraint`
    options: tuple[str, ...] = ()
    # elements of a job array as sbatch takes them, as in `1-200%20`; each element has its own output files
    array: str = ""

    def output_of(self, path: str) -> str:
        """Return the path of an output for Slurm, which then replaces only the number of an element."""
        literal = path.replace("%", "%%")
        if not self.array:
            return literal
        stem, dot, kind = literal.rpartition(".")
        return f"{stem}-e%a{dot}{kind}"

    @property
    def further_options(self) -> tuple[str, ...]:
        """Options that influence the job's size without giving it, and whether the job is an array."""
        return (*without_size(self.options), *(("--array",) if self.array else ()))

    @property
    def burst_buffer(self) -> str:
        """Its request for burst buffers, in the syntax of DataWarp's plugin; empty for none."""
        gigabytes = -(-self.burst_buffer_bytes // _GB)
        return f"capacity={gigabytes}GB access=striped type=scratch" if gigabytes else ""

    @property
    def tasks(self) -> int:
        """Number of tasks with `cpus_per_task` cores, for all of its cores."""
        return -(-self.cores // self.cpus_per_task)

    @property
    def memory_nodes(self) -> int:
        """Number of nodes that divide its memory equally; 0 if not known: then cores divide it.

        A job of one task is on one node. Memory per core would ask for more wherever Slurm gives more cores than
        requested: both threads of a core, or whole nodes.
        """
        return self.nodes or (1 if self.tasks == 1 else 0)


def is_renumbered(spec: JobSpec, site: Capabilities) -> bool:
    """Whether an array has an element whose number exceeds Slurm's limit, so that elements get other numbers."""
    most = site.max_array_size
    if spec.array is None or spec.array.is_compact:
        return spec.array is not None
    return most is not None and spec.array.elements.last >= most


def numbered(spec: JobSpec, site: Capabilities) -> dict[str, Any]:
    """Return the field of `SlurmJob` with the numbers of an array's elements."""
    if spec.array is None:
        return {}
    if not is_renumbered(spec, site):
        return {"array": str(spec.array)}
    throttle = f"%{spec.array.at_once}" if spec.array.at_once else ""
    return {"array": f"0-{len(spec.array.elements) - 1}{throttle}"}


@dataclass(frozen=True, slots=True)
class SlurmRecord:
    """Slurm's record of a job, in one vocabulary. Times are seconds since 1970; None if not set."""

    job_id: str  # its number, in digits; for an element of an array, the element's own number
    name: str
    user: str
    states: tuple[str, ...]  # in upper case, the base state first, then flags, as in `("CANCELLED", "COMPLETING")`
    submit_s: float
    reason: str = ""  # the reason why it is pending or how it failed, as Slurm writes it; empty for `None`
    eligible_s: float | None = None
    accrue_s: float | None = None  # since when its age counts
    start_s: float | None = None  # None while it is pending, even if Slurm expects a start
    end_s: float | None = None  # None while it runs, even if Slurm expects an end
    expected_start_s: float | None = None  # when Slurm expects a pending job to start
    limit_s: float | None = None  # its walltime; None for no limit
    cores: int = 1  # allocated cores; while it is pending, requested ones (the minimum of a range)
    nodes: int = 0
    partition: str = ""  # while it is pending, all partitions of its request, separated by commas
    exit_code: int | None = None  # exit code of its script; None before the end, or if not known
    signal: int | None = None
    restarts: int = 0  # how often it was requeued after a start
    dependency: str = ""  # unmet dependencies in Slurm's form, as in `afterok:12(unfulfilled)`
    comment: str = ""
    is_array: bool = False  # whether the record is for several pending elements of an array
    node_list: str = ""  # its nodes, as Slurm lists them: `n3`, or `n[1-4,7]`; empty for none
    array_id: str = ""  # the number of its array; empty if it belongs to none
    # elements of the array in this record, by Slurm's numbers; None if they are not all reported
    elements: Elements | None = None

    @property
    def is_one(self) -> bool:
        """Whether the record is of a single job, or of a single element."""
        return not self.is_array

    @property
    def is_part(self) -> bool:
        """Whether the record is of an array."""
        return bool(self.array_id)

    @property
    def numbers(self) -> set[str]:
        """Numbers by which the job is known: its own, and that of its array."""
        return {self.job_id, self.array_id} - {""}


@dataclass(frozen=True, slots=True)
class IdentifiedJob:
    """A job to be changed, whose number was checked to be its own. Only `OwnJobs` makes these."""

    job_id: str
    name: str  # its present name in Slurm


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition's limits; None if there is none, or it is not known."""

    name: str
    is_default: bool = False  # whether it takes jobs that name no partition
    is_up: bool = True  # whether it accepts jobs
    max_walltime_s: float | None = None
    max_nodes: int | None = None
    nodes: int = 0  # number of nodes; 0 if not reported
    cores: int = 0
    accounts: tuple[str, ...] = ()  # the only accounts whose jobs it accepts; empty for all
    barred_accounts: tuple[str, ...] = ()  # accounts whose jobs it does not accept
    priority_factor: int = 1  # PriorityJobFactor of its jobs
    priority_tier: int = 1  # jobs of a higher tier come first, whatever their priority
    is_exclusive: bool = False  # whether its jobs share no node
    quality: str = ""  # name of its own quality of service (QOS); empty for none


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """The values of a node that matter to a client."""

    name: str
    cores: int
    memory_bytes: int
    states: tuple[str, ...] = ()  # in capitals, with flags
    partitions: tuple[str, ...] = ()  # those that contain the node
    gpus: int = 0
    traits: str = ""  # its features and generic resources, as Slurm writes them


def count_gpus(gres: str) -> int:
    """Return the number of GPUs among a node's generic resources.

    Examples
    --------
    >>> [count_gpus(gres) for gres in ("", "gpu:4", "gpu:a100:2(S:0-1),gpu:v100:1,shard:8", "gpu", "(null)")]
    [0, 4, 3, 1, 0]
    """
    return sum(whole(count or "1") or 0 for count in _GPUS.findall(re.sub(r"\([^()]*+\)", "", gres)))


@dataclass(frozen=True, slots=True)
class SlurmAbout:
    """The identity of the answering Slurm."""

    means: str  # access path, such as `REST API v0.0.42 at unix:/run/slurmrestd.sock`
    version: str = ""  # of Slurm, as in `22.05.8`; empty if not reported
    cluster: str = ""  # name of the cluster; empty if not reported
    controller_up: bool = True
    accounting: bool = False  # whether slurmdbd's records can be read
    # when the present token expires, in seconds since 1970; None without a token, or if it does not say
    token_ends_s: float | None = None


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """The identity of a cluster."""

    name: str = ""  # empty if not reported
    next_number: int | None = None  # number that the next job will get; None if not reported
    address: str = ""  # address of its controller


@dataclass(frozen=True, slots=True)
class SlurmLimits:
    """Limits in accounting."""

    # by Slurm's names, such as `MaxSubmitJobs` or `GrpTRES`, with values as Slurm writes them
    limits: Mapping[str, str]
    user: str = ""  # user of the association; empty for the account as a whole
    account: str = ""
    partition: str = ""
    quality: str = ""  # name of the quality of service (QOS) whose limits these are
    qualities: tuple[str, ...] = ()  # qualities that the association may use


def whole(text: str) -> int | None:
    """Parse a whole number; None if it is none, or has more digits than any of Slurm's.

    Examples
    --------
    >>> whole("4711"), whole("UNLIMITED"), whole("9" * 5000)
    (4711, None, None)
    """
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


def read_number(text: str, *, waits: bool) -> dict[str, Any]:
    """Return the fields of a record on its array and elements, from its number in squeue and sacct.

    `waits`: whether the record is of a pending job. Only then does a list of elements mean the array as a whole;
    elements that ended together may be listed, too.

    Examples
    --------
    >>> read_number("17", waits=True), read_number("12_4", waits=False)["is_array"]
    ({}, False)
    >>> [str(read_number(text, waits=True)["elements"]) for text in ("12_[5-9,12%2]", "12_[1,3,5,...]", "12_4")]
    ['5-9,12', 'None', '4']
    """
    array_id, is_element, which = text.strip().partition("_")
    if not (is_element and array_id.isdecimal()):
        return {}
    try:
        elements = parse_elements(which.strip("[]").partition("%")[0])
    except InputError:  # the list is cut off, or missing
        elements = None
    return {"array_id": array_id, "elements": elements, "is_array": waits and "[" in which}


class SlurmLink(Protocol):
    """A link to one cluster as one user.

    Every method may raise `asa.errors.UnavailableError` if Slurm cannot be reached or does not answer in time, and
    `asa.errors.AccessError` if it denies access. Both mean that nothing was changed; `submit` raises
    `asa.errors.SubmitInDoubtError` if that is not certain.
    """

    @property
    def calls(self) -> Counter[str]:
        """Number of requests sent or commands run, by method."""
        ...

    @property
    def cancels_by_name(self) -> bool:
        """Whether a cancellation carries a job's name as well as its number, so that no other job can be cancelled."""

    @property
    def changeable(self) -> frozenset[str]:
        """Properties of a job that can be changed: names of arguments of `update`, and `MORE_NODES` by `allocate`.

        `MEMBERS`: also those of a pending element of an array, named as in ``12_7``.
        """
        ...

    def about(self) -> SlurmAbout:
        """Return which cluster answers. It is no error if the controller does not."""
        ...

    def clusters(self) -> Sequence[str]:
        """Return the names of the clusters in accounting; none if it cannot be read."""
        ...

    def cluster(self) -> SlurmCluster:
        """Return the present cluster."""
        ...

    def settings(self) -> Mapping[str, str]:
        """Return the cluster's configuration by Slurm's names, such as ``PriorityFlags``; empty if Slurm hides it."""
        ...

    def limits(self, cluster: str) -> Sequence[SlurmLimits]:
        """Return the limits of this user, their accounts and qualities of service, as far as users may see them."""
        ...

    def partitions(self) -> Sequence[SlurmPartition]:
        """Return the partitions."""
        ...

    def nodes(self) -> Sequence[SlurmNode]:
        """Return the nodes."""
        ...

    def submit(self, job: SlurmJob) -> str:
        """Submit a job; return its id.

        Raises `SubmitDeferredError`: a limit on the number of jobs of the user, the account or the controller is
        reached. Raises
        `SubmitInDoubtError`: the request was sent, but no readable answer came back.
        """
        ...

    def allocate(self, job: SlurmJob, patience_s: float) -> str:
        """Submit a job that runs nothing, since its nodes are for another job; return its id.

        `patience_s`: seconds after which the job is withdrawn if it still waits, whether or not this client is there.
        Raises what `submit` raises, and `BackendError`: this link cannot do it (`changeable`).
        """
        ...

    def estimated_start_s(self, job: SlurmJob) -> float | None:
        """Return when a job would start if it were submitted; None if Slurm does not say, or this link cannot ask."""
        ...

    def test(self, job: SlurmJob, timeout_s: float) -> str | None:
        """Ask whether a job could run, without submitting it; return the reason if Slurm says that it never could.

        None if it could, if this link cannot ask, or if the answer takes longer than the timeout.
        """
        ...

    def preview(self, job: SlurmJob) -> Mapping[str, str]:
        """Return what `submit` would send, by titles, without the values of variables, which may be secret."""
        ...

    def jobs(self, job_ids: Collection[str]) -> dict[str, SlurmRecord]:
        """Ask the controller for the given jobs, in one call; those that it does not know are missing."""
        ...

    def holders(self, job_ids: Collection[str]) -> list[SlurmRecord]:
        """Ask the controller which jobs, arrays and elements (by their own numbers) have the given numbers now."""
        ...

    def of_anybody(self, job_id: str) -> list[SlurmRecord]:
        """Ask the controller which job of any user has a number now; for an array, its elements."""
        ...

    def past_holders(self, job_ids: Collection[str]) -> list[SlurmRecord]:
        """Ask accounting which jobs had the given numbers, in the order of submission."""
        ...

    def denies(self, job_id: str) -> bool:
        """Ask the controller for one job; return whether it says explicitly that it does not know it.

        An answer that merely lacks the job is no such statement.
        """
        ...

    def queue(self) -> list[SlurmRecord]:
        """Ask the controller for all jobs that it knows, of all users and including ended ones, in one call."""
        ...

    def named(self, names: Collection[str]) -> list[SlurmRecord]:
        """Ask for this user's jobs with the given names: the controller's and, if there is accounting, its jobs."""
        ...

    def recorded(self, names: Collection[str], since_s: float) -> list[SlurmRecord]:
        """Ask accounting for this user's jobs with the given names, since a time; none if there is no accounting."""
        ...

    def past(self, job_ids: Collection[str]) -> dict[str, SlurmRecord]:
        """Ask accounting for the given jobs, the latest of each number; unknown jobs are missing.

        Without accounting all are missing.
        """
        ...

    def accounting(self, since_s: float, until_s: float) -> str:
        """Ask accounting for the jobs of all users in a time span; of the user, if a site hides the others."""
        ...

    def cancel(self, jobs: Sequence[IdentifiedJob]) -> dict[str, BackendError]:
        """Cancel the given jobs, in as few calls as possible; those that have ended are ignored.

        Returns the jobs that were not cancelled, each with the reason; nothing is raised. If Slurm can, it compares
        their names when it cancels them.
        """
        ...

    def update(
        self,
        job: IdentifiedJob,
        *,
        held: bool | None = None,
        walltime_s: float | None = None,
        nodes: int | Sequence[str] | None = None,
    ) -> None:
        """Change a job: hold or release it, change its walltime, or shrink it to a number of nodes, or to named ones.

        Raises `BackendError`, with Slurm's message: it refuses, or reports success without any change.
        """
        ...

    def close(self) -> None:
        """Close open connections."""
        ...
