"""Makes a twin from past jobs and, if available, the site's facts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice

import numpy as np
from asa.backends.simulated.table import JobTable
from numpy.typing import NDArray

from asa.core.parallel import Progress, silent
from asa.errors import InputError
from asa.facts import PartitionFacts, SiteFacts
from asa.history import JobHistory
from asa.units import format_duration

from .agreement import Agreement, agreement, by_queue, by_width
from .background import with_others
from .fitting import Queues, compared, first_left_out, fitted, peak_cores
from .model import About, Jobs, Twin
from .queueing import simulated_waits

_DAY_S = 86_400.0
_FEWEST = 100
_MOST_UNENDED = 0.5  # maximum share of the started jobs without a recorded end
_WAITS_S = 600.0
_MAX_CORES = 2**31 - 1
_LEAST_OF_A_QUEUE = 0.002  # minimum share of the jobs; smaller queues are merged
_OTHER_QUEUES = "others"
_SHOWN_QUEUES = 8
_TAKEN_OVER = {"pools", "partitions", "cores_per_node", "whole_nodes", "scheduler", "settings", "away"}


@dataclass(frozen=True, slots=True)
class Made:
    """A twin, and statistics on the history's jobs."""

    twin: Twin
    left_out: dict[str, int]


def make_twin(
    history: JobHistory,
    facts: SiteFacts | None = None,
    *,
    you: str = "",
    age_accrues: bool | None = None,
    seed: int | None = None,
    on_progress: Progress = silent,
) -> Made:
    """Make a twin.

    If the jobs are one user's, those of other users come from a workload model; see `background.with_others`. Else
    unknown facts of the site are chosen so that the quantiles of the waits are nearest to the recorded ones, width by
    width. These facts are its rules, from some usual ones, and the number of cores that were available for jobs. The
    last week is not used for this.

    `history`: jobs of all users, or of one.
    `facts`: the site's facts; None if not known.
    `you`: the name of the user who makes it.
    `age_accrues`: whether jobs gain priority while a dependency holds them, if the site does not report that.
    `seed`: for drawing users' numbers; by default from the operating system.
    `on_progress`: called with each step.
    Raises `InputError`: there are too few jobs.
    """
    assumed = list(facts.assumed) if facts else []
    _refuse_what_tells_no_ends(history)
    numbers = _numbers(history, seed)
    number = int(numbers[list(history.users).index(you)]) if you in history.users else None
    jobs, queues, left_out = _jobs(history, facts, numbers, assumed)
    accrues = _age_accrues(facts, age_accrues, assumed)
    about = _about(history, facts, jobs, assumed)
    about = replace(about, age_accrues=accrues, you=number, told_pools=about.pools)
    twin = Twin(about, jobs)
    twin = _completed(twin, history, facts, queues, on_progress)
    on_progress("letting its jobs queue", 0, 1)
    twin = replace(twin, about=replace(twin.about, agreement=tuple(agreements(twin, queues))))
    on_progress("letting its jobs queue", 1, 1)
    known = {words: count for words, count in history.oddities.items() if words.startswith("left out")}
    return Made(twin, {words.removeprefix("left out: "): count for words, count in known.items()} | left_out)


def _completed(
    twin: Twin, history: JobHistory, facts: SiteFacts | None, queues: Queues | None, on_progress: Progress
) -> Twin:
    """Fit unknown facts; add other users' jobs if hardly any are visible."""
    if len(np.unique(history.user)) == 1 and history.users:
        if facts is None and not history.machine_cores:
            text = "tells of one user's jobs alone, and not how large the machine is"
            hint = "Give the folder that `asa twin --script` makes: it tells of the nodes."
            raise InputError(text, where=history.source, hint=hint)
        return with_others(twin, on_progress)
    if facts is not None and _is_part(twin):
        return with_others(twin, on_progress)
    return fitted(twin, on_progress, knows_rules=facts is not None and facts.knows_rules, queues=queues)


def _is_part(twin: Twin) -> bool:
    """Whether other users' jobs seem to be hidden: jobs waited long, though the visible jobs leave cores idle."""
    waited = twin.jobs.wait_s >= 0
    if not waited.any():
        return False
    middle_s = float(np.median(twin.jobs.wait_s[waited]))
    alone_s = float(np.quantile(np.nan_to_num(simulated_waits(twin)[waited]), 0.9))
    return middle_s > _WAITS_S and alone_s < middle_s / 4


def _refuse_what_tells_no_ends(history: JobHistory) -> None:
    started = history.started
    if started.any() and (history.run_s[started] < 0).mean() > _MOST_UNENDED:
        text = "does not tell when jobs ended, so that nobody knows how busy the machine was"
        hint = "It needs the column End or Elapsed: asa twin --script prints the command."
        raise InputError(text, where=history.source, hint=hint)


def _jobs(
    history: JobHistory, facts: SiteFacts | None, numbers: NDArray[np.int32], assumed: list[str]
) -> tuple[Jobs, Queues | None, dict[str, int]]:
    """Select the jobs of a twin, in whole seconds; also return their queues if the site does not report partitions."""
    cores = np.where(history.allocated > 0, history.allocated, history.cores)
    places = _places(history, facts)
    ran = history.run_s > 0
    still = history.started & (history.run_s < 0)
    widest = _widest(facts, places) if facts else np.full(len(history), history.machine_cores or _MAX_CORES)
    odd = {
        "never started": ~history.started,
        "ran for no time": history.started & (history.run_s == 0),
        "of a partition that is not there any more": places < 0,
        "wider than all nodes of their partition": cores > widest,
    }
    keep, left_out = np.ones(len(history), dtype=np.bool_), {}
    for words, which in odd.items():
        left_out[words] = int(np.count_nonzero(which & keep))
        keep &= ~which
    if keep.sum() < _FEWEST:
        words = f"tells of {keep.sum()} jobs that ran, of which no twin can be made"
        raise InputError(words, where=history.source, hint=f"Give a longer history: {_FEWEST} jobs or more.")
    if still[keep].any():
        assumed.append(f"{np.count_nonzero(still[keep])} jobs that still ran run for all of their walltime")
    run_s = np.where(ran, history.run_s, history.walltime_s)
    clock_s = int(np.floor(history.submit_s[keep][0]))
    submit = np.round(history.submit_s[keep] - clock_s).astype(np.int64)
    run = np.maximum(np.round(run_s[keep]), 1).astype(np.int64)
    request = np.maximum(np.ceil(history.walltime_s[keep]), 1).astype(np.int64)
    late = run > request
    if late.any():
        request = np.where(late, run, request)
        left_out["kept, though they ran beyond their walltime"] = int(late.sum())
    table = JobTable(submit, run, request, cores[keep])
    jobs = Jobs(
        table,
        numbers[history.user[keep]][table.order],
        np.maximum(places, 0)[keep][table.order].astype(np.int32),
        np.round(history.wait_s[keep])[table.order].astype(np.int32),
        clock_s,
    )
    queues = _queues(history.partition[keep][table.order], history.partitions, table) if facts is None else None
    return jobs, queues, {words: count for words, count in left_out.items() if count}


def _queues(of: NDArray[np.int32], names: Sequence[str], table: JobTable) -> Queues | None:
    """Return the queues, sorted by the work done in them, with small queues merged; None if there is only one."""
    work = np.bincount(of + 1, weights=(table.run * table.cores).astype(np.float64), minlength=len(names) + 1)
    jobs = np.bincount(of + 1, minlength=len(names) + 1)
    alone = np.flatnonzero((jobs >= max(_FEWEST, _LEAST_OF_A_QUEUE * len(of))) & (np.arange(len(jobs)) > 0))
    kept = alone[np.argsort(-work[alone], kind="stable")]
    if len(kept) < 2:
        return None
    row = np.full(len(jobs), len(kept), dtype=np.int64)
    row[kept] = np.arange(len(kept))
    queues = [str(names[place - 1]) for place in kept.tolist()]
    others = [_OTHER_QUEUES] if jobs.sum() > jobs[kept].sum() else []
    return Queues((*queues, *others), row[of + 1])


def _numbers(history: JobHistory, seed: int | None) -> NDArray[np.int32]:
    """Draw a number for each user, and one for jobs without user, so that the number reveals nothing about the user."""
    rng = np.random.default_rng(secrets.randbits(64) if seed is None else seed)
    return rng.permutation(len(history.users) + 1).astype(np.int32)


def _places(history: JobHistory, facts: SiteFacts | None) -> NDArray[np.int64]:
    """Return the index of each job's partition among the site's; -1 if the site has no such partition."""
    if facts is None:
        return np.zeros(len(history), dtype=np.int64)
    known = {partition.name: index for index, partition in enumerate(facts.partitions)}
    # if a job names several partitions, any of them may have started it
    of_name = [next((known[part] for part in name.split(",") if part in known), -1) for name in history.partitions]
    default = 0 if len(known) == 1 or not of_name else -1
    table = np.array([*of_name, default], dtype=np.int64)
    return table[history.partition]


def _widest(facts: SiteFacts, places: NDArray[np.int64]) -> NDArray[np.int64]:
    sizes = np.array([*(facts.pools[partition.pool] for partition in facts.partitions), 0], dtype=np.int64)
    return sizes[places]


def _about(history: JobHistory, facts: SiteFacts | None, jobs: Jobs, assumed: list[str]) -> About:
    table = jobs.table
    days = (int(table.submit[-1]) - int(table.submit[0])) / _DAY_S
    peak = peak_cores(jobs)
    seen = [f"{len(table):,} jobs of {len(np.unique(jobs.users)):,} users in {days:,.0f} days"]
    if facts is not None:
        whole = sum(facts.pools.values())
        seen += [*facts.seen, f"at most {peak:,} of its {whole:,} cores were in use at a time"]
        shared = {field.name: getattr(facts, field.name) for field in fields(facts) if field.name in _TAKEN_OVER}
        # the users of a partition are left out, since a twin may be passed on
        shared["partitions"] = tuple(
            replace(partition, limits=replace(partition.limits, accounts=(), barred_accounts=()))
            for partition in facts.partitions
        )
        return About(1, facts.system or history.system, **shared, seen=tuple(seen), assumed=tuple(assumed))
    cores = history.machine_cores or peak
    if not history.machine_cores:
        assumed.append(f"the machine has {cores:,} cores, as many as were ever in use at a time")
    assumed.append("one partition of nodes that are shared, none of which was ever away")
    partitions = (PartitionFacts("", "all"),)
    return About(1, history.system, {"all": cores}, partitions, seen=tuple(seen), assumed=tuple(assumed))


def _age_accrues(facts: SiteFacts | None, given: bool | None, assumed: list[str]) -> bool:  # noqa: FBT001 - one of two
    """Return the twin's rule of age: the site's own, or the given one, or Slurm's default."""
    of_site = facts.age_accrues if facts else None
    if of_site is None and given is None:
        assumed.append("jobs gain no priority behind a dependency, as in Slurm by default")
    return bool(given if of_site is None else of_site)


def agreements(twin: Twin, queues: Queues | None = None) -> Iterator[Agreement]:
    """Compare the waits of a twin's jobs with the recorded ones: all, by width, by queue, and of the last week."""
    jobs = twin.jobs
    simulated = simulated_waits(twin)
    known = compared(jobs) & ~np.isnan(simulated)
    recorded = jobs.wait_s.astype(np.float64)
    if not known.any():
        return
    yield agreement("all jobs", recorded[known], simulated[known])
    rows = np.flatnonzero(known)
    for words, which in by_width(jobs.table.cores[rows]):
        yield agreement(words, recorded[rows[which]], simulated[rows[which]])
    if queues is not None:
        for queue, which in islice(by_queue(queues.of[rows]), _SHOWN_QUEUES):
            yield agreement(f"queue {queues.names[queue]}", recorded[rows[which]], simulated[rows[which]])
    last = rows[rows >= first_left_out(jobs)]
    if len(last):
        days = (jobs.table.submit[-1] - jobs.table.submit[last[0]]) / _DAY_S
        words = f"the last {format_duration(days * _DAY_S)}"
        yield agreement(words, recorded[last], simulated[last])
