"""Chooses unknown facts of a site so that waits in its twin resemble the recorded ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from asa.backends.simulated.table import JobTable
from numpy.typing import NDArray

from asa.core.parallel import Progress
from asa.facts import PartitionFacts

from .agreement import misfit
from .model import Jobs, Twin
from .queueing import limit_of, simulated_waits

_WEEK_S = 7 * 86_400.0
_SHORTEST_S = 4 * _WEEK_S  # of a shorter log, a quarter is left out
_WARM_UP = 0.1  # share of the jobs that are not compared, as the machine is empty when the log begins
_FITTED = 20_000  # number of jobs for trying rules
_FEWEST = 100
_FIRST_SHARES = (1.0, 0.92)  # shares of the cores that may be available for jobs
_SHARES = (1.0, 0.98, 0.96, 0.94, 0.92, 0.9, 0.87, 0.84, 0.8)
# smaller shares, tried in this order until results get worse for a while
_SMALLER = (0.76, 0.72, 0.68, 0.64, 0.6, 0.55, 0.5)
_SMALLEST = (
    0.45,
    0.4,
    0.35,
    0.3,
    0.26,
    0.22,
    0.18,
    0.15,
    0.12,
    0.1,
)  # tried if each queue has cores or a limit of its own: its peak usage is a rare moment
_NEAR = 1.1
_MOVES = (0.8, 0.9, 1.1, 1.25)  # factors by which shares are moved from where they are
_ROUNDS = 3
_FINALISTS = 2
_FOR_EVER_S = 1e8  # wait of a job that never starts
_AHEAD = 11_000.0  # points of priority between two successive queues: more than those of age and fair share together
_WHAT = "fitting what the site does not tell"

# Available share of a pool's cores, or of a limit of a partition's, by its name; all if it is not there.
Shares = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RankingRules:
    """Rules of a scheduler's ranking: its name and settings, with a description."""

    words: str
    scheduler: str
    settings: Mapping[str, str]

    def on(self, twin: Twin, shares: Shares) -> Twin:
        """Return a twin with these rules and shares of its cores; jobs wider than these cores ask for all of them."""

        def share_of(name: str, cores: int) -> int:
            return max(round(shares.get(name, 1.0) * cores), 1)

        jobs = twin.jobs
        about = replace(
            twin.about,
            pools={pool: share_of(pool, cores) for pool, cores in twin.about.pools.items()},
            partitions=tuple(
                partition
                if partition.max_cores_in_use is None
                else replace(partition, max_cores_in_use=share_of(limit_of(partition), partition.max_cores_in_use))
                for partition in twin.about.partitions
            ),
        )
        most = np.array([about.cores_of(partition) for partition in about.partitions], dtype=np.int64)[jobs.partitions]
        if np.any(jobs.table.cores > most):
            table = jobs.table
            narrowed = JobTable(table.submit, table.run, table.request, np.minimum(table.cores, most))
            jobs = replace(jobs, table=narrowed)
        return replace(twin, about=replace(about, scheduler=self.scheduler, settings=self.settings), jobs=jobs)


USUAL = (
    RankingRules("first come first served with backfilling", "easy", {}),
    RankingRules("first come first served, backfilling every 30 s", "multifactor", {"age": "0", "fair_share": "0"}),
    RankingRules("priority by age and fair share", "multifactor", {}),
    RankingRules("priority by fair share above all", "multifactor", {"age": "0"}),
    RankingRules("priority by age, fair share and size, wide jobs first", "multifactor", {"size": "5000"}),
    RankingRules(
        "priority by age and size, narrow jobs first",
        "multifactor",
        {"size": "5000", "favor_small": "yes", "fair_share": "0"},
    ),
)
"""Usual rules, for sites whose own are not known."""


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of the jobs, if the cores that belong to each queue are not known.

    `names`: names of the queues.
    `of`: for each job the index of its queue.
    """

    names: tuple[str, ...]
    of: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class QueueArrangement:
    """A way in which queues may share a machine: its twin, a description, the possible rules, and what is fitted."""

    words: str
    twin: Twin
    rules: Sequence[RankingRules]
    fits_limits: bool = False  # each partition has a limit that is not known


def arrangements(twin: Twin, queues: Queues | None, rules: Sequence[RankingRules]) -> Iterator[QueueArrangement]:
    """Yield ways in which queues may share a machine: as one queue, with own cores, with limits, or by priority."""
    yield QueueArrangement("", twin, rules)
    if queues is None:
        return
    jobs = replace(twin.jobs, partitions=queues.of.astype(np.int32))
    rows = range(len(queues.names))
    lately = np.zeros(len(jobs.table), dtype=np.bool_)
    lately[_tried_jobs(jobs)] = True
    peaks = {
        name: peak_cores(jobs, which & lately if np.any((which := queues.of == row) & lately) else which)
        for row, name in enumerate(queues.names)
    }
    own = replace(twin.about, pools=peaks, partitions=tuple(PartitionFacts(name, name) for name in peaks))
    words = f"each of {len(rows)} queues has cores of its own, as many as its jobs lately had at most at a time"
    yield QueueArrangement(words, replace(twin, about=own, jobs=jobs), rules)
    [(pool, whole)] = twin.about.pools.items()
    limited = tuple(PartitionFacts(name, pool, max_cores_in_use=min(peak, whole)) for name, peak in peaks.items())
    words = f"{len(rows)} queues share all cores, and the jobs of each have at most a number of cores at a time"
    yield QueueArrangement(
        words, replace(twin, about=replace(twin.about, partitions=limited), jobs=jobs), rules, fits_limits=True
    )
    known = compared(jobs)
    known[first_left_out(jobs) :] = False
    waits = np.log1p(np.maximum(jobs.wait_s, 0))
    means = [float(waits[at].mean()) if (at := known & (queues.of == row)).any() else 0.0 for row in rows]
    places = np.argsort(np.argsort(means, kind="stable"), kind="stable")  # number of queues with shorter waits
    in_turn = tuple(
        PartitionFacts(name, pool, points=_AHEAD * float(len(rows) - 1 - places[row]))
        for row, name in enumerate(queues.names)
    )
    words = f"{len(rows)} queues share all cores, and those whose jobs waited less go first"
    ranked = [rule for rule in rules if rule.scheduler == "multifactor"]
    yield QueueArrangement(words, replace(twin, about=replace(twin.about, partitions=in_turn), jobs=jobs), ranked)


class _Trials:
    """The misfits of rules and shares on a part of a twin's jobs, in one arrangement."""

    def __init__(self, arrangement: QueueArrangement, queues: NDArray[np.int64] | None) -> None:
        twin, self.arrangement = arrangement.twin, arrangement
        tried = _tried_jobs(twin.jobs)
        self._trial = _part(twin, tried)
        self._known = compared(self._trial.jobs)
        self._cores = self._trial.jobs.table.cores[self._known]
        self._recorded = self._trial.jobs.wait_s[self._known].astype(np.float64)
        self._queues = None if queues is None else queues[tried][self._known]
        self._whole = list(twin.about.pools)
        # the names, and for each job the place, of what has a share of its own: limits, or else pools
        partitions, limited = twin.about.partitions, arrangement.fits_limits
        self._parts = [limit_of(partition) for partition in partitions] if limited else self._whole
        part_of = [place if limited else self._whole.index(each.pool) for place, each in enumerate(partitions)]
        self._part = np.array(part_of, dtype=np.int64)[self._trial.jobs.partitions[self._known]]
        self._found: dict[str, dict[float, _Misfits]] = {}
        self._best: dict[str, tuple[float, Shares]] = {}

    def __len__(self) -> int:
        return len(self._recorded)

    def _tried(self, rules: RankingRules, shares: Shares) -> _Misfits:
        waits_s = np.nan_to_num(simulated_waits(rules.on(self._trial, shares))[self._known], nan=_FOR_EVER_S)
        each = [self._part == place for place in range(len(self._parts))]
        return _Misfits(
            misfit(self._cores, self._recorded, waits_s, self._queues),
            tuple(
                misfit(self._cores[jobs], self._recorded[jobs], waits_s[jobs]) if jobs.any() else 0.0 for jobs in each
            ),
        )

    def look(self, rules: RankingRules, shares: Sequence[float]) -> Iterator[None]:
        """Try rules with equal shares of each pool's or limit's cores."""
        found = self._found.setdefault(rules.words, {})
        for share in shares:
            if share not in found:
                found[share] = self._tried(rules, dict.fromkeys(self._parts, share))
            yield
        self._best.pop(rules.words, None)

    def look_closely(self, rules: RankingRules) -> Iterator[None]:
        """Try rules with many shares, and with ever smaller shares as long as this improves any pool or limit."""
        yield from self.look(rules, _SHARES)
        found = self._found[rules.words]
        for share in (*_SMALLER, *(_SMALLEST if len(self._parts) > 1 else ())):
            if min(self._shares(rules).values()) > _NEAR * min(found):
                break
            yield from self.look(rules, (share,))

    def _shares(self, rules: RankingRules) -> Shares:
        """Return for each pool or limit the share with the smallest misfit of its jobs; of several, the largest."""
        found = self._found[rules.words]
        if len(self._parts) == 1:
            return {self._parts[0]: -min((misfit.whole, -share) for share, misfit in found.items())[1]}
        least = [
            min((misfit.by_part[place], -share) for share, misfit in found.items()) for place in range(len(self._parts))
        ]
        return {part: -less for part, (_, less) in zip(self._parts, least, strict=True)}

    def best(self, rules: RankingRules) -> tuple[float, Shares]:
        """Return the smallest misfit, and its shares: of each pool or limit its own, or the same for all."""
        if rules.words not in self._best:
            found = self._found[rules.words]
            off, less = min((misfit.whole, -share) for share, misfit in found.items())
            alike, each = dict.fromkeys(self._parts, -less), self._shares(rules)
            ways: list[tuple[float, Shares]] = [(off, alike)]
            if each != alike:
                ways.append((self._tried(rules, each).whole, each))
            self._best[rules.words] = min(ways, key=lambda way: way[0])
        return self._best[rules.words]

    def refine(self, rules: RankingRules) -> Iterator[None]:
        """Move the shares of pools or limits a little, each from where it is, as long as this improves the misfit.

        The first ones were found with equal shares for all, and what is near in such company may not be in another.
        """
        for _ in range(_ROUNDS if len(self._parts) > 1 else 0):
            off, shares = self.best(rules)
            tried = []
            for factor in (1.0, *_MOVES):
                moved = {part: min(share * factor, 1.0) for part, share in shares.items()}
                tried.append((self._tried(rules, moved), moved))
                yield
            each = {
                part: min(tried, key=lambda at: (at[0].by_part[place], -at[1][part]))[1][part]
                for place, part in enumerate(self._parts)
            }
            ways = [(misfits.whole, moved) for misfits, moved in tried]
            self._best[rules.words] = min([*ways, (self._tried(rules, each).whole, each)], key=lambda way: way[0])
            if self._best[rules.words][0] >= off:
                break

    def with_less(self, rules: RankingRules) -> Iterator[None]:
        """Beside limits, try smaller shares of the machine as long as this improves the misfit."""
        if self._parts is self._whole:
            return
        off, shares = self.best(rules)
        for share in (*_SHARES[1:], *_SMALLER):
            less = {**shares, **dict.fromkeys(self._whole, share)}
            tried = self._tried(rules, less).whole
            yield
            if tried < self._best[rules.words][0]:
                self._best[rules.words] = tried, less
            elif tried > _NEAR * off:
                break

    def rank(self, rules: RankingRules) -> tuple[float, float]:
        """Return the value by which rules are compared; smaller is better."""
        off, shares = self.best(rules)
        return off, -min(shares.values())

    def missing(self, shares: Shares) -> str:
        """Return in words which cores jobs cannot have."""
        parts = [("the cores" if len(self._whole) == 1 else "a queue's cores", self._whole)]
        if self._parts is not self._whole:
            parts.append(("the cores that a queue lately had at most", self._parts))
        found = [(of, {round(100 * (1 - shares[name])) for name in names if name in shares}) for of, names in parts]
        words = (f"{_span(percent)} % of {of}" for of, percent in found if percent - {0})
        return f"{' and '.join(words)} are never to be had"

    def with_all(self, rules: RankingRules) -> float:
        """Return the misfit with all cores."""
        return self._found[rules.words][1.0].whole


def _span(percentages: Collection[int]) -> str:
    low, high = min(percentages, default=0), max(percentages, default=0)
    return f"{low}" if low == high else f"{low} to {high}"


@dataclass(frozen=True, slots=True)
class _Misfits:
    """Misfits: of all jobs, and of those of each pool or limit."""

    whole: float
    by_part: tuple[float, ...]


def fitted(twin: Twin, on_progress: Progress, *, knows_rules: bool, queues: Queues | None = None) -> Twin:
    """Choose unknown rules of the scheduler, how queues share the machine, and how many cores jobs can use.

    The choice has the smallest misfit of waits (`misfit`), without the last week's jobs.

    `queues`: those of the jobs, if the site does not report its partitions.
    """
    about = twin.about
    own = (RankingRules("the site's own rules", about.scheduler, about.settings),)
    usual = own if knows_rules else USUAL
    compared_by = None if queues is None else queues.of
    each = [_Trials(arrangement, compared_by) for arrangement in arrangements(twin, queues, usual)]
    if len(each[0]) < _FEWEST:
        text = "nothing was fitted: hardly any wait is known"
        return replace(twin, about=replace(about, assumed=(*about.assumed, text)))
    pairs = [(trials, rules) for trials in each for rules in trials.arrangement.rules]
    final = min(_FINALISTS, len(usual)) + len(each) - 1
    count, done = len(pairs) * len(_FIRST_SHARES) + final * len(_SHARES) + _FINALISTS * (1 + len(_MOVES)), 0

    def reported(steps: Iterator[None]) -> None:
        nonlocal done
        for _ in steps:
            done += 1
            on_progress(_WHAT, min(done, count), count)

    for trials, rules in pairs:
        reported(trials.look(rules, _FIRST_SHARES))
    finalists = _finalists(pairs)
    for trials, rules in finalists:
        reported(trials.look_closely(rules))
    for trials, rules in sorted(finalists, key=lambda pair: pair[0].rank(pair[1]))[:_FINALISTS]:
        reported(trials.refine(rules))
        reported(trials.with_less(rules))
    trials, best = min(finalists, key=lambda pair: pair[0].rank(pair[1]))
    off, shares = trials.best(best)
    assumption = f"fitted to the waits before the last week: their quantiles are {10**off:.2g} times off in the mean"
    if not knows_rules:
        assumption += f"; {best.words}: the nearest of {len(usual)} usual rules"
    if trials.arrangement.words:
        assumption += f"; {trials.arrangement.words}: the nearest of {len(each)} ways to share the machine"
    if min(shares.values()) < 1:
        with_all = f"with all, {10 ** trials.with_all(best):.2g} times off"
        assumption += f"; {trials.missing(shares)} ({with_all}), and a job that wants more than the rest gets that"
    chosen = best.on(trials.arrangement.twin, shares)
    return replace(chosen, about=replace(chosen.about, assumed=(*chosen.about.assumed, assumption)))


def _finalists(pairs: Sequence[tuple[_Trials, RankingRules]]) -> list[tuple[_Trials, RankingRules]]:
    """Return the candidates for a closer look: the best rules of the first arrangement, and the best of each other."""
    ranked = sorted(pairs, key=lambda pair: pair[0].rank(pair[1]))
    chosen: list[tuple[_Trials, RankingRules]] = []
    for trials in dict.fromkeys(trials for trials, _ in pairs):
        of_it = [pair for pair in ranked if pair[0] is trials]
        chosen += of_it[: 1 if chosen else _FINALISTS]
    return chosen


def _tried_jobs(jobs: Jobs) -> slice:
    """Return the jobs on which rules are tried: the last ones before those that are left out."""
    last = first_left_out(jobs)
    return slice(max(last - _FITTED, 0), last)


def _part(twin: Twin, which: slice) -> Twin:
    """Return a twin with a contiguous part of its jobs."""
    jobs = twin.jobs
    table = jobs.table
    cut = JobTable(table.submit[which], table.run[which], table.request[which], table.cores[which])
    return replace(twin, jobs=Jobs(cut, jobs.users[which], jobs.partitions[which], jobs.wait_s[which], jobs.clock_s))


def first_left_out(jobs: Jobs) -> int:
    """Return the index of the first job in the last week, or in the last quarter of a short log."""
    submit = jobs.table.submit
    span_s = float(submit[-1] - submit[0])
    left_out_s = _WEEK_S if span_s >= _SHORTEST_S else span_s / 4
    return int(np.searchsorted(submit, submit[-1] - left_out_s))


def compared(jobs: Jobs) -> NDArray[np.bool_]:
    """Return the jobs whose waits are compared: those with known waits, after the machine has filled."""
    known = jobs.wait_s >= 0
    known[: int(_WARM_UP * len(known))] = False
    return known


def peak_cores(jobs: Jobs, which: NDArray[np.bool_] | None = None) -> int:
    """Return the largest number of cores in use at the same time, by the records of all jobs or of some."""
    known = jobs.wait_s >= 0 if which is None else which & (jobs.wait_s >= 0)
    start = jobs.table.submit[known] + jobs.wait_s[known]
    cores = jobs.table.cores[known]
    times = np.concatenate([start, start + jobs.table.run[known]])
    change = np.concatenate([cores, -cores])
    order = np.lexsort((change, times))  # at equal times, ends come first
    return max(int(np.cumsum(change[order]).max(initial=0)), int(cores.max(initial=1)))
