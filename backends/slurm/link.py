"""The interface of links to Slurm, and its values, for all versions and means.

A link sends each call once, and translates between Slurm's many spellings and the values here. It does not wait, does
not retry, and remembers no jobs: `SlurmBackend` does that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from asa.backend import Capabilities, JobSpec
from asa.elements import Elements, parse_elements
from asa.errors import BackendError, InputError
from asa.keys import JobKeys
from asa.requests import without_size

_GB = 10**9
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]*[^\d:,()][^:,()]*)?(?::(\d+))?(?=,|$)")
_OPTION = "sbatch"


def _in_words(option: str) -> Any:
    """Make a field that has the value of an option as Slurm takes it."""
    return field(default="", metadata={_OPTION: option})


@dataclass(frozen=True, slots=True, repr=False)
class SlurmJob(JobKeys):
    """A job as it is passed to Slurm.

    Slurm counts memory per node or core: a link divides it by `nodes`, or by `cores` if these are not given.
    """

    name: str  # unique among all jobs of the user where it must be found again: the token is part of it
    script: str  # the batch script, beginning with `#!`
    folder: str  # absolute path of the working directory
    cores: int  # CPUs, in tasks of `cpus_per_task` each; 0 where its options say all of its size
    walltime_s: float  # seconds; Slurm counts minutes, and a link rounds up
    stdout: str  # absolute paths, every character as it is: a link sees to it that Slurm replaces nothing in them
    stderr: str
    nodes: int = 0  # exactly so many, 0 for any number
    partition: str = _in_words("partition")  # empty for the site's default
    qos: str = _in_words("qos")
    constraint: str = _in_words("constraint")
    dependency: str = _in_words("dependency")  # in Slurm's words, as in `afterok:12:13,after:14+2`; empty for none
    begin_s: int | None = None  # not before this time, seconds since 1970
    held: bool = False
    # variables of the job; a link adds nothing of its own process to it
    environment: Mapping[str, str] = field(default_factory=dict)
    comment: str = _in_words("comment")
    cpus_per_task: int = 1  # CPUs of each task, on one node; `cores` is a multiple
    # further options of sbatch, as in `--exclusive` or `--nice=10`; they override `qos` and `constraint`
    options: tuple[str, ...] = ()
    # of a job array, its numbers as sbatch takes them, as in `1-200%20`; its elements' output is in files of their own
    array: str = _in_words("array")

    @property
    def in_words(self) -> Iterator[tuple[str, str]]:
        """What it has in Slurm's own words already: options and their values."""
        return ((one.metadata[_OPTION], getattr(self, one.name)) for one in fields(self) if _OPTION in one.metadata)

    def output_of(self, path: str) -> str:
        """Write the path of an output for Slurm, which replaces nothing in it but the number of an element."""
        literal = path.replace("%", "%%")
        if not self.array:
            return literal
        stem, dot, kind = literal.rpartition(".")
        return f"{stem}-e%a{dot}{kind}"

    @property
    def further_options(self) -> tuple[str, ...]:
        """What else its size depends on: of its options, those that do not say it, and that it is an array."""
        return (*without_size(self.options), *(("--array",) if self.array else ()))

    @property
    def burst_buffer(self) -> str:
        """What it asks of burst buffers, in the words of DataWarp's plugin; empty for nothing."""
        gigabytes = -(-self.burst_buffer_bytes // _GB)
        return f"capacity={gigabytes}GB access=striped type=scratch" if gigabytes else ""

    @property
    def tasks(self) -> int:
        """How many tasks of `cpus_per_task` it has, for all of its cores."""
        return -(-self.cores // self.cpus_per_task)

    @property
    def memory_nodes(self) -> int:
        """Over how many nodes its memory is divided equally; 0 if not known: then it is divided by cores.

        A job of one task is on one node. Memory per core would ask for more wherever Slurm gives more cores than
        requested: both threads of a core, or whole nodes.
        """
        return self.nodes or (1 if self.tasks == 1 else 0)


def is_renumbered(spec: JobSpec, site: Capabilities) -> bool:
    """Say whether an array has an element of a number that Slurm does not take, which are below its limit."""
    most = site.max_array_size
    if spec.array is None or spec.array.is_compact:
        return spec.array is not None
    return most is not None and spec.array.elements.last >= most


def numbered(spec: JobSpec, site: Capabilities) -> dict[str, Any]:
    """Write the numbers of an array's elements for Slurm: a field of `SlurmJob`."""
    if spec.array is None:
        return {}
    if not is_renumbered(spec, site):
        return {"array": str(spec.array)}
    throttle = f"%{spec.array.at_once}" if spec.array.at_once else ""
    return {"array": f"0-{len(spec.array.elements) - 1}{throttle}"}


@dataclass(frozen=True, slots=True)
class SlurmRecord:
    """Slurm's record of a job, in one vocabulary. Times are seconds since 1970, None while not set."""

    job_id: str  # its number, in digits; of an element of an array, the element's own number
    name: str
    user: str
    states: tuple[str, ...]  # upper case, the base state first, flags after it, as in `("CANCELLED", "COMPLETING")`
    submit_s: float
    reason: str = ""  # why it is pending or how it failed, as Slurm writes it; empty for `None`
    eligible_s: float | None = None
    accrue_s: float | None = None  # since when its age counts
    start_s: float | None = None  # None while it is pending, even if Slurm expects a start
    end_s: float | None = None  # None while it runs, likewise
    expected_start_s: float | None = None  # when Slurm expects a pending job to start
    limit_s: float | None = None  # its time limit; None for no limit
    cores: int = 1  # what it has, or asks for while it is pending (the least, if that is a range)
    nodes: int = 0
    partition: str = ""  # while it is pending, all to which it was sent, comma-separated
    exit_code: int | None = None  # how its script ended; None until then, and where it is not known
    signal: int | None = None
    restarts: int = 0  # how often it was put back into the queue after a start
    dependency: str = ""  # what it still waits for, in Slurm's words, as in `afterok:12(unfulfilled)`
    comment: str = ""
    is_array: bool = False  # it represents several pending elements of an array
    node_list: str = ""  # where it ran or runs, as Slurm writes it: `n3`, or `n[1-4,7]`; empty for nowhere
    array_id: str = ""  # the number of the array that it is of; empty for none
    # the array's elements of this record, as Slurm numbers them; None if they are not all reported
    elements: Elements | None = None

    @property
    def is_one(self) -> bool:
        """Whether it is of one job, or of one of an array's."""
        return not self.is_array

    @property
    def is_part(self) -> bool:
        """Whether it is of an array."""
        return bool(self.array_id)

    @property
    def numbers(self) -> set[str]:
        """By which numbers it is known: its own, and that of its array."""
        return {self.job_id, self.array_id} - {""}


@dataclass(frozen=True, slots=True)
class IdentifiedJob:
    """A job that is to be changed, and that its number was found to belong to: `OwnJobs` alone makes these."""

    job_id: str
    name: str  # the name that Slurm has now


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition's limits; None for none, or not known."""

    name: str
    is_default: bool = False  # whether it takes jobs that name none
    is_up: bool = True  # whether it takes jobs at all
    max_walltime_s: float | None = None
    max_nodes: int | None = None
    nodes: int = 0  # of the partition; 0 where that is not reported
    cores: int = 0
    accounts: tuple[str, ...] = ()  # those whose jobs alone it takes; empty for all
    barred_accounts: tuple[str, ...] = ()  # those whose jobs it does not take
    priority_factor: int = 1  # of its jobs, PriorityJobFactor
    priority_tier: int = 1  # whose jobs come first, whatever their priority
    is_exclusive: bool = False  # whether its jobs share no node
    quality: str = ""  # name of its own quality of service (QOS), if it has one


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """What of a node matters to a client."""

    name: str
    cores: int
    memory_bytes: int
    states: tuple[str, ...] = ()  # in capitals, with their flags
    partitions: tuple[str, ...] = ()  # those that it is in
    gpus: int = 0
    traits: str = ""  # its features and generic resources, as Slurm writes them


def count_gpus(gres: str) -> int:
    """Count the GPUs among a node's generic resources.

    Examples
    --------
    >>> [count_gpus(gres) for gres in ("", "gpu:4", "gpu:a100:2(S:0-1),gpu:v100:1,shard:8", "gpu", "(null)")]
    [0, 4, 3, 1, 0]
    """
    return sum(int(count or 1) for count in _GPUS.findall(re.sub(r"\([^()]*+\)", "", gres)))


@dataclass(frozen=True, slots=True)
class SlurmAbout:
    """Who answers."""

    means: str  # how it was asked, in words, such as `REST API v0.0.42 at unix:/run/slurmrestd.sock`
    version: str = ""  # of Slurm, as in `22.05.8`; empty if not reported
    cluster: str = ""  # name of the cluster; empty if not reported
    controller_up: bool = True
    accounting: bool = False  # whether slurmdbd's records can be read
    # when the token in use ends, seconds since 1970; None without one, or if it does not say
    token_ends_s: float | None = None


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """What identifies a cluster."""

    name: str = ""  # empty if not reported
    next_number: int | None = None  # the number that the next job gets; None if not reported
    address: str = ""  # where its controller is reached


@dataclass(frozen=True, slots=True)
class SlurmLimits:
    """Limits in accounting."""

    # those that are set, by Slurm's own names, such as `MaxSubmitJobs` or `GrpTRES`, as it writes them
    limits: Mapping[str, str]
    user: str = ""  # of the association; without a user, of the account as a whole
    account: str = ""
    partition: str = ""
    quality: str = ""  # name of the quality of service (QOS), if they are of one
    qualities: tuple[str, ...] = ()  # those that the association may use


def read_number(text: str, *, waits: bool) -> dict[str, Any]:
    """Read the array and the elements that a record is about from its number in squeue and sacct; give them as fields.

    `waits`: whether the record is of a pending job: only then does a list of elements mean the array as a whole, since
    elements that have ended together may be listed, too.

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
    except InputError:  # they are cut off, or none is given
        elements = None
    return {"array_id": array_id, "elements": elements, "is_array": waits and "[" in which}


class SlurmLink(Protocol):
    """A link to one cluster as one user.

    Every method may raise `asa.errors.UnavailableError` if Slurm cannot be asked or does not answer in time, and
    `asa.errors.AccessError` if it denies access. Both mean that nothing was changed; `submit` raises
    `asa.errors.SubmitInDoubtError` if that is not certain.
    """

    @property
    def calls(self) -> Counter[str]:
        """How often each method asked Slurm: requests sent, or commands run."""
        ...

    @property
    def cancels_by_name(self) -> bool:
        """Whether a cancellation has a job's name as well as its number, so that it can be no other job's."""

    @property
    def changeable(self) -> frozenset[str]:
        """What of a job `update` can change, by its arguments."""
        ...

    def about(self) -> SlurmAbout:
        """Return which cluster answers. If the controller does not, that is no error."""
        ...

    def cluster(self) -> SlurmCluster:
        """Tell which cluster this is, afresh."""
        ...

    def settings(self) -> Mapping[str, str]:
        """Tell the cluster's configuration by Slurm's own names, as in ``PriorityFlags``; empty where it is hidden."""
        ...

    def limits(self, cluster: str) -> Sequence[SlurmLimits]:
        """Tell the limits of this user, their accounts and qualities of service, as far as a user may ask."""
        ...

    def partitions(self) -> Sequence[SlurmPartition]:
        """Tell the partitions."""
        ...

    def nodes(self) -> Sequence[SlurmNode]:
        """Tell the nodes."""
        ...

    def submit(self, job: SlurmJob) -> str:
        """Submit a job; return its id.

        Raises `SubmitDeferredError`: a limit of the user's, the account's or the controller's jobs is reached. Raises
        `SubmitInDoubtError`: the request was sent, but no readable answer came back.
        """
        ...

    def estimated_start_s(self, job: SlurmJob) -> float | None:
        """Ask when a job would start that is not submitted; None where it does not say, or cannot be asked this way."""
        ...

    def test(self, job: SlurmJob, timeout_s: float) -> str | None:
        """Ask whether a job could run, without submitting it; None unless Slurm says that the request is impossible.

        None also if that cannot be asked over this link, or not within so many seconds.
        """
        ...

    def preview(self, job: SlurmJob) -> Mapping[str, str]:
        """Show what `submit` would send, by titles; the values of variables, which may be secret, are left out."""
        ...

    def jobs(self, job_ids: Collection[str]) -> dict[str, SlurmRecord]:
        """Ask the controller for some jobs, in one call; those that it does not know are missing."""
        ...

    def holders(self, job_ids: Collection[str]) -> list[SlurmRecord]:
        """Ask the controller afresh what some numbers are now: of jobs, of arrays, of elements by their own numbers."""
        ...

    def of_anybody(self, job_id: str) -> list[SlurmRecord]:
        """Ask the controller what one number is now, whosever job it is: of an array, its elements."""
        ...

    def past_holders(self, job_ids: Collection[str]) -> list[SlurmRecord]:
        """Ask accounting the same, in the order in which they were submitted."""
        ...

    def denies(self, job_id: str) -> bool:
        """Ask the controller for one job; return whether it says explicitly that it does not know it.

        An answer without the job is no such statement.
        """
        ...

    def queue(self) -> list[SlurmRecord]:
        """Ask the controller for all users' jobs that it knows, including ended ones, in one call."""
        ...

    def named(self, names: Collection[str]) -> list[SlurmRecord]:
        """Ask for this user's jobs of some names: the controller's and, where there is one, accounting's."""
        ...

    def past(self, job_ids: Collection[str]) -> dict[str, SlurmRecord]:
        """Ask accounting for some jobs, the latest of each number; unknown ones are missing.

        All of them are missing if there is no accounting.
        """
        ...

    def accounting(self, since_s: float, until_s: float) -> str:
        """Ask accounting for all users' jobs in a time span, or the user's own if a site shows no others."""
        ...

    def cancel(self, jobs: Sequence[IdentifiedJob]) -> dict[str, BackendError]:
        """Cancel some jobs, in as few calls as possible; those that have ended are ignored.

        Returns the jobs that were not cancelled, each with the reason; nothing is raised. If Slurm can, it compares
        their names at that moment.
        """
        ...

    def update(
        self, job: IdentifiedJob, *, held: bool | None = None, walltime_s: float | None = None, nodes: int | None = None
    ) -> None:
        """Change a job: hold or release it, give it another time limit, or shrink it to so many nodes.

        Raises `BackendError`, with Slurm's words: it refuses, or reports success without having changed anything.
        """
        ...

    def close(self) -> None:
        """Close what is open."""
        ...
