"""Some weeks of a log: the users in them who could use asa, and their jobs, in chains.

A user could use asa who has many jobs, or some wide ones. A chain is jobs of one such user each of which was submitted
soon after another had ended. In the simulated world it is submitted as soon as that other has ended there, by those who
use asa and those who do not; so the two differ only in how they ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asa.backends.simulated.engine import Engine
from asa.backends.simulated.swf import Trace, read_swf
from asa.backends.simulated.table import JobTable
from asa.backends.twin.model import Twin
from asa.backends.twin.queueing import engine_of
from asa.backends.twin.site import TwinSite
from asa.errors import InputError
from asa.studies.adoption.habits import Model

WIDE_SHARE = 1 / 16
"""A job is wide if it takes at least this share of the machine."""

_WEEK_S = 7 * 86_400
_BEFORE_WEEKS = _AFTER_WEEKS = 1  # simulated before and after the weeks that are measured
_THINK_S = 1200  # a job that a user submits so soon after another has ended follows it
_MANY_JOBS, _SOME_WIDE = 50, 5  # of a user who could use asa, in the window
_FEWEST_USERS = 4
_ATTEMPTS = 100  # windows that are drawn in search of one with enough users


@dataclass(frozen=True, slots=True)
class Centre:
    """A machine, and the log of its jobs."""

    name: str
    log: Trace
    twin: Twin | None  # for the model of this name

    def engine(self, background: JobsOfUsers) -> Engine:
        """Return a simulation in which some jobs are submitted as the log says."""
        if self.twin is None:
            return Engine(self.log.cores, background.table)
        theirs = replace(
            self.twin.jobs, table=background.table, users=background.users, partitions=background.partitions
        )
        return engine_of(replace(self.twin, jobs=theirs), background.table)


@dataclass(frozen=True, slots=True)
class JobsOfUsers:
    """Jobs with their owners and partitions, in order of submission."""

    table: JobTable
    users: NDArray[np.int32]
    partitions: NDArray[np.int32]

    def at(self, rows: NDArray[np.intp]) -> JobsOfUsers:
        """Return some of the jobs."""
        table = self.table
        columns = (column[rows] for column in (table.submit, table.run, table.request, table.cores))
        return JobsOfUsers(JobTable(*columns), self.users[rows], self.partitions[rows])


@dataclass(frozen=True, slots=True)
class LogWindow:
    """Some weeks of a log."""

    jobs: JobsOfUsers  # users are numbered; first those who could use asa
    able: int  # number of those
    chains: tuple[tuple[int, ...], ...]  # rows of their jobs, each of which follows the one before it
    others: NDArray[np.intp]  # rows of all others' jobs
    from_s: int  # bounds of the simulation, and of the weeks that are measured
    begin_s: int
    end_s: int
    until_s: int

    @property
    def background(self) -> JobsOfUsers:
        """The jobs of others, behind one of a second and a core of each user who could use asa, before all others.

        A scheduler with shares knows users by their jobs, and time begins with the first.
        """
        jobs, ones = self.jobs.at(self.others), np.ones(self.able, dtype=np.int64)
        table = jobs.table
        columns = (table.submit, table.run, table.request, table.cores)
        added = ((self.from_s - 1) * ones, ones, ones, ones)
        return JobsOfUsers(
            JobTable(*(np.concatenate(both) for both in zip(added, columns, strict=True))),
            np.concatenate([np.arange(self.able, dtype=np.int32), jobs.users]),
            np.concatenate([np.zeros(self.able, dtype=np.int32), jobs.partitions]),
        )


@lru_cache(maxsize=2)  # cells that follow each other share it
def centre(trace: str, model: Model) -> Centre:
    """Read a log; fit a twin to it, if that is the model."""
    name = Path(trace).name.removesuffix(".gz").removesuffix(".swf")
    if model == "replay":
        return Centre(name, read_swf(trace), None)
    twin = TwinSite.made(Path(trace), seed=0).twin
    log = TwinSite(twin=twin).trace
    assert log is not None
    return Centre(name, log, twin)


def window_of(centre: Centre, weeks: float, rng: np.random.Generator) -> LogWindow:
    """Draw the time of a window, and cut it out of a log.

    Raises `InputError`: the log is too short, or too few of its users could use asa.
    """
    submit = centre.log.table.submit
    first, last = (int(moment) for moment in np.quantile(submit, [0.01, 0.99], method="nearest"))
    lasts_s = round((weeks + _BEFORE_WEEKS + _AFTER_WEEKS) * _WEEK_S)
    if last - first <= lasts_s:
        text = f"is shorter than {weeks + _BEFORE_WEEKS + _AFTER_WEEKS:g} weeks"
        raise InputError(text, where=centre.name, hint="Give a longer log, or fewer weeks.")
    for _ in range(_ATTEMPTS):
        from_s = int(rng.integers(first, last - lasts_s))
        window = _cut(centre, from_s, from_s + lasts_s)
        if window.able >= _FEWEST_USERS:
            return window
    hint = f"Give a log with users, of whom {_FEWEST_USERS} or more have {_MANY_JOBS} jobs or {_SOME_WIDE} wide ones."
    raise InputError("too few of its users could use asa", where=centre.name, hint=hint)


def _cut(centre: Centre, from_s: int, until_s: int) -> LogWindow:
    log = centre.log
    rows = np.flatnonzero((log.table.submit >= from_s) & (log.table.submit < until_s))
    jobs = JobsOfUsers(log.table, log.users, log.partitions).at(rows)
    if centre.twin is None:
        jobs = replace(jobs, partitions=np.zeros(len(rows), dtype=np.int32))
    able = _able(jobs, WIDE_SHARE * log.cores)
    numbers, of = np.unique(jobs.users, return_inverse=True)
    place = np.argsort(np.argsort(~np.isin(numbers, able), kind="stable"))
    users = place[of].astype(np.int32)
    ended = jobs.table.submit + log.wait_s[rows] + jobs.table.run
    chains = _chains(np.where(log.wait_s[rows] < 0, -1, ended), jobs.table.submit, users, len(able))
    begin_s, end_s = from_s + _BEFORE_WEEKS * _WEEK_S, until_s - _AFTER_WEEKS * _WEEK_S
    return LogWindow(
        replace(jobs, users=users),
        len(able),
        chains,
        np.flatnonzero(users >= len(able)),
        from_s,
        begin_s,
        end_s,
        until_s,
    )


def _able(jobs: JobsOfUsers, wide_cores: float) -> NDArray[np.int32]:
    """Return the users with many jobs, or some wide ones."""
    known = jobs.users >= 0
    numbers, of = np.unique(jobs.users[known], return_inverse=True)
    wide = np.bincount(of, weights=jobs.table.cores[known] >= wide_cores, minlength=len(numbers))
    found: NDArray[np.int32] = numbers[(np.bincount(of, minlength=len(numbers)) >= _MANY_JOBS) | (wide >= _SOME_WIDE)]
    return found


def _chains(
    ended: NDArray[np.int64], submit: NDArray[np.int64], users: NDArray[np.int32], able: int
) -> tuple[tuple[int, ...], ...]:
    """Put together jobs of a user that follow each other: each follows the job that had ended last, if any had.

    `ended`: when each job ended in the log; -1 if that is not known.
    """
    chains: list[list[int]] = []
    for user in range(able):
        open_ended: list[list[int]] = []  # chains to which a job may be added
        for row in np.flatnonzero(users == user).tolist():
            since = submit[row] - _THINK_S
            open_ended = [chain for chain in open_ended if ended[chain[-1]] >= since]
            before = [chain for chain in open_ended if ended[chain[-1]] <= submit[row]]
            if before:
                chain = max(before, key=lambda chain: ended[chain[-1]])
                chain.append(row)
            else:
                open_ended.append([row])
                chains.append(open_ended[-1])
    return tuple(sorted((tuple(chain) for chain in chains), key=lambda chain: chain[0]))


def share_of(of: Sequence[int], jobs: JobsOfUsers, weights: NDArray[np.int64] | None = None) -> float:
    """Return the share that some users have of all jobs, or of some weight of these."""
    return float(np.average(np.isin(jobs.users, list(of)), weights=weights))
