"""Machines with several resources, their outages, and their background load."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asa.core.documents import read_text
from asa.errors import InputError

from .table import LATEST_S, NEVER, JobTable

BURST_BUFFER: Final = "burst buffer"
"""Name of the pool of a burst buffer, in GB, from which jobs take their requested buffers."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Resources that are unavailable for a while."""

    begin_s: int
    amounts: Mapping[str, int]  # amount of each pool: a failed node of 28 cores is `{"cores": 28, "nodes": 1}`
    end_s: int = NEVER  # end of the outage; by default it has none
    # whether jobs that hold them may finish, after which they are not allocated again. Otherwise jobs are ended at
    # once, the last started ones first, until the outage has its amounts.
    drain: bool = False

    def __post_init__(self) -> None:
        if self.end_s <= self.begin_s or not self.amounts or min(self.amounts.values()) < 0:
            raise InputError(
                f"from {self.begin_s} s to {self.end_s} s of {dict(self.amounts)} cannot be",
                where="outage",
                hint="Let it end after it begins, and name what it takes.",
            )


@dataclass(frozen=True, slots=True)
class Cluster:
    """A machine as pools of resources that are allocated by count.

    A pool may be the machine's cores, its nodes, its memory, a burst buffer, licences; the cores of one partition; or
    resources that all partitions share. While it runs, a job takes an amount from each pool that it needs.

    Examples
    --------
    >>> machine = Cluster({"cores": 448, "burst_buffer_gb": 1000}, [Outage(3600, {"cores": 28}, 7200)])
    >>> split = Cluster({"batch": 400, "debug": 48}, partitions={"batch": "batch", "debug": "debug"})
    >>> limited = Cluster({"cores": 448, "of debug": 48}, partitions={"batch": "cores", "debug": ("cores", "of debug")})
    """

    # size of each pool by name. The first pool counts cores, by which jobs are charged and ranked.
    pools: Mapping[str, int]
    outages: Sequence[Outage] = ()
    # for each partition, the name of the pool of its jobs' cores; of several names, the others count the same cores, as
    # a limit of the partition does. A job that has to wait delays only jobs of its own partition. If not given there
    # is one partition, on the first pool.
    partitions: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.pools or min(self.pools.values()) < 0:
            raise InputError("no pool, or less than nothing in one", where="cluster", hint="Give sizes from 0 on.")
        named = [name for outage in self.outages for name in outage.amounts]
        for name in [*named, *chain.from_iterable(self._counted())]:
            if name not in self.pools:
                raise InputError(f"there is no pool {name!r}", where="cluster", hint=f"Known: {', '.join(self.pools)}.")

    @property
    def cores(self) -> int:
        """Total number of cores: the first pool, or those of all partitions."""
        return sum(self.pools[name] for name in {names[0] for names in self._counted()})

    @property
    def sources(self) -> list[tuple[int, ...]]:
        """For each partition, the places of the pools that count its jobs' cores, the pool that has them first."""
        places = {name: place for place, name in enumerate(self.pools)}
        return [tuple(places[name] for name in names) for names in self._counted()]

    def _counted(self) -> list[tuple[str, ...]]:
        named = [(names,) if isinstance(names, str) else names for names in self.partitions.values()]
        return named or [(next(iter(self.pools)),)]

    def vector(self, amounts: Mapping[str, int]) -> NDArray[np.int64]:
        """Return amounts by name as a vector in the order of the pools."""
        return np.array([amounts.get(name, 0) for name in self.pools], dtype=np.int64)


class Load:
    """The background load of a cluster: a table of jobs, with further data on each.

    `amounts`: further demands, a column for each pool, in the order of the table.
    `users`, `qos`, `partitions`: of each job, in the order of the table: its owner (any number), its quality of service
    (from 0, higher is better), and its partition's index in the cluster. All equal if not given.
    Raises `InputError`: a job requests more than the machine has, or runs for longer than its walltime.
    """

    def __init__(
        self,
        table: JobTable,
        cluster: Cluster,
        *,
        amounts: Mapping[str, ArrayLike] | None = None,
        users: ArrayLike | None = None,
        qos: ArrayLike | None = None,
        partitions: ArrayLike | None = None,
    ) -> None:
        rows = len(table)
        if np.any(table.run > table.request):
            raise InputError(
                "a job runs for longer than its request", where="load", hint="Cut its run, or raise its request."
            )
        self.table = table
        self.cluster = cluster
        self.partitions = _column(partitions, rows)
        self.qos = _column(qos, rows)
        self.users = np.unique(_column(users, rows), return_inverse=True)[1].astype(np.int64).reshape(rows)
        places = {name: index for index, name in enumerate(cluster.pools)}
        sources = cluster.sources
        if rows and not 0 <= self.partitions.min() <= self.partitions.max() < len(sources):
            raise InputError(
                f"jobs are of partitions {self.partitions.min()} to {self.partitions.max()}",
                where="load",
                hint=f"Number them from 0 to {len(sources) - 1}.",
            )
        counts = np.zeros((len(sources), len(places)), dtype=np.int64)
        for partition, pools in enumerate(sources):
            counts[partition, list(pools)] = 1
        self.demand: NDArray[np.int64] = counts[self.partitions] * table.cores[:, np.newaxis]
        for name, column in (amounts or {}).items():
            if name not in places:
                raise InputError(f"there is no pool {name!r}", where="load", hint=f"Known: {', '.join(places)}.")
            self.demand[:, places[name]] += _column(column, rows)
        sizes = np.array(list(cluster.pools.values()), dtype=np.int64)
        if rows and (np.any(self.demand > sizes) or self.demand.min() < 0):
            row = int(np.flatnonzero(np.any((self.demand > sizes) | (self.demand < 0), axis=1))[0])
            raise InputError(
                f"job {row} asks for {self.demand[row].tolist()} of {sizes.tolist()}",
                where="load",
                hint="Leave it out, or give the machine more.",
            )


def read_outages(path: str | Path) -> list[Outage]:
    """Read outages from a CSV file with the columns ``begin_s,end_s,cores,drain``.

    An empty end means for ever; drain is ``yes`` or ``no``, ``no`` if the column is missing.
    """
    outages = []
    try:
        with io.StringIO(read_text(path, "utf-8-sig"), newline="") as file:
            rows = csv.DictReader(file, skipinitialspace=True)
            if not {"begin_s", "end_s", "cores"} <= set(rows.fieldnames or ()):
                raise InputError(
                    "has no header", where=f"{path}:1", hint="Let the first line be begin_s,end_s,cores,drain."
                )
            for number, row in enumerate(rows, start=2):
                try:
                    outages.append(_outage(row))
                except (KeyError, TypeError, ValueError, InputError) as error:
                    raise InputError(
                        f"is no outage: {','.join(str(value) for value in row.values())}"[:200],
                        where=f"{path}:{number}",
                        hint="Below the header begin_s,end_s,cores,drain write lines such as 3600,7200,28,no.",
                    ) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="Check the path.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), hint="It is to be a CSV file.") from error
    return outages


def _outage(row: Mapping[str, str | None]) -> Outage:
    word = (row.get("drain") or "no").strip().lower()
    drain = {"yes": True, "true": True, "no": False, "false": False}[word]
    begin, cores = int(row["begin_s"] or ""), int(row["cores"] or "")
    end = int(row["end_s"]) if row["end_s"] else NEVER
    if not 0 <= begin < LATEST_S or not 0 <= cores < LATEST_S or end > NEVER:
        raise ValueError
    return Outage(begin, {"cores": cores}, end, drain)


def _column(values: ArrayLike | None, rows: int) -> NDArray[np.int64]:
    if values is None:
        return np.zeros(rows, dtype=np.int64)
    column = np.ascontiguousarray(values, dtype=np.int64)
    if column.shape != (rows,):
        raise InputError(f"a column of {column.shape} for {rows} jobs", where="load", hint="Give one value a job.")
    return column
