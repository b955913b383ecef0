"""A twin, and its folder: `twin.json`, and the jobs as a log in the Standard Workload Format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from asa.backends.simulated.swf import read_swf, write_swf
from asa.backends.simulated.table import JobTable
from numpy.typing import NDArray

from asa.core.documents import read_text
from asa.core.files import in_words, put
from asa.core.safe import look_at
from asa.errors import InputError
from asa.facts import Away, PartitionFacts

from .agreement import Agreement

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_ABOUT, _JOBS = "twin.json", "jobs.swf.gz"
_HINT = "Make it with: asa twin --out FOLDER"


@dataclass(frozen=True, slots=True)
class Jobs:
    """A twin's jobs, in order of submission. They contain no names, and nothing from which names could be derived.

    `table`: their requests and run times, in seconds and cores.
    `users`, `partitions`: numbers of their owners and partitions; a partition's number is its index in the twin.
    `wait_s`: waits on the site; -1 if not known.
    `clock_s`: time of second 0, in seconds since 1970.
    """

    table: JobTable
    users: NDArray[np.int32]
    partitions: NDArray[np.int32]
    wait_s: NDArray[np.int32]
    clock_s: int


@dataclass(frozen=True, slots=True)
class About:
    """All values of a twin except its jobs.

    `asa_twin`: version of the format. `system`, `pools`, `partitions`, `cores_per_node`, `whole_nodes`, `age_accrues`,
    `scheduler`, `settings`, `away`, `seen`, `assumed`: as in `asa.facts.SiteFacts`. `told_pools`: cores of each pool as
    the site reports them. `pools` has the cores that were available for jobs. `you`: number of the user who made it;
    None if that is not known, or no user of the twin. `agreement`: comparisons of its waits with the site's.
    """

    asa_twin: Literal[1]
    system: str
    pools: Mapping[str, int]
    partitions: tuple[PartitionFacts, ...]
    cores_per_node: int = 1
    whole_nodes: bool = False
    age_accrues: bool = False
    scheduler: str = "easy"
    settings: Mapping[str, str] = field(default_factory=dict)
    away: tuple[Away, ...] = ()
    told_pools: Mapping[str, int] = field(default_factory=dict)
    you: int | None = None
    seen: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    agreement: tuple[Agreement, ...] = ()

    def cores_of(self, partition: PartitionFacts) -> int:
        """Return the number of cores that a partition's jobs can have together."""
        cores = self.pools[partition.pool]
        return cores if partition.max_cores_in_use is None else min(cores, partition.max_cores_in_use)


@dataclass(frozen=True, slots=True)
class Twin:
    """A machine, the rules of its scheduler, and its jobs.

    `about`: all except the jobs.
    `jobs`: in order of submission.
    """

    about: About
    jobs: Jobs

    def write(self, folder: Path) -> None:
        """Write the twin into a new folder. The file that marks it as complete is written last.

        Raises `InputError`: the folder cannot be made or written to.
        """
        jobs = self.jobs
        with in_words("cannot be written", folder, "Name another folder."):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _ABOUT).unlink(missing_ok=True)
            write_swf(
                folder / _JOBS,
                jobs.table,
                cores=sum(self.about.pools.values()),
                users=jobs.users,
                partitions=jobs.partitions,
                waits_s=jobs.wait_s,
                unix_start_s=jobs.clock_s,
                notes=["A twin made by asa: users are numbers, and nobody keeps whose."],
            )
            put(folder / _ABOUT, _adapter().dump_json(self.about, indent=1) + b"\n")

    @classmethod
    def read(cls, folder: Path) -> Twin:
        """Read a twin from a folder.

        Raises `InputError`: there is no twin, or it is damaged.
        """
        where = str(folder / _ABOUT)
        look_at(folder)
        try:
            about = _adapter().validate_json(read_text(folder / _ABOUT))
        except OSError as error:
            raise InputError(f"is no twin: {error.strerror}", where=where, hint=_HINT) from error
        except ValueError as error:
            raise InputError("is no twin that this version reads", where=where, hint=_HINT) from error
        trace = read_swf(folder / _JOBS, cores=sum(about.pools.values()))
        places = trace.partitions
        unknown = {partition.pool for partition in about.partitions} - {
            pool for pool, cores in about.pools.items() if cores > 0
        }
        if unknown or (len(places) and not 0 <= places.min() <= places.max() < len(about.partitions)):
            raise InputError("is no twin: its jobs and partitions do not fit its nodes", where=where, hint=_HINT)
        return cls(about, Jobs(trace.table, trace.users, places, trace.wait_s, trace.clock_s))


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[About]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - takes a tenth of a second

    return TypeAdapter(About)
