"""Chooses a site's unknown facts, so that waits in its twin are like the recorded ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from asa.backends.simulated.table import JobTable
from numpy.typing import NDArray

from asa.core.parallel import Progress

from .agreement import misfit
from .model import Jobs, Twin
from .queueing import simulated_waits

_WEEK_S = 7 * 86_400.0
_SHORTEST_S = 4 * _WEEK_S  # of less than this a quarter is left out
_WARM_UP = 0.1  # share of the jobs that are not compared: the machine is empty when the log begins
_FITTED = 20_000  # jobs that rules are tried on
_FEWEST = 100
_FIRST_SHARES = (1.0, 0.92)  # of the cores, that may be there for jobs
_SHARES = (1.0, 0.98, 0.96, 0.94, 0.92, 0.9, 0.87, 0.84, 0.8)
_SMALLER = (0.76, 0.72, 0.68, 0.64, 0.6, 0.55, 0.5)  # tried in turn, until it has got worse for a while
_NEAR = 1.1
_FINALISTS = 2
_FOR_EVER_S = 1e8  # what never starts waits so long
_WHAT = "fitting what the site does not tell"


@dataclass(frozen=True, slots=True)
class RankingRules:
    """How a scheduler may rank, by its name and settings, in words."""

    words: str
    scheduler: str
    settings: Mapping[str, str]

    def on(self, twin: Twin, share: float) -> Twin:
        """Give a twin with them, and a share of its cores: a job wider than what is left asks for all of that."""
        about, jobs = twin.about, twin.jobs
        pools = {pool: max(round(share * cores), 1) for pool, cores in about.pools.items()}
        most = np.array([pools[one.pool] for one in about.partitions], dtype=np.int64)[jobs.partitions]
        if np.any(jobs.table.cores > most):
            table = jobs.table
            narrowed = JobTable(table.submit, table.run, table.request, np.minimum(table.cores, most))
            jobs = replace(jobs, table=narrowed)
        return replace(
            twin, about=replace(about, scheduler=self.scheduler, settings=self.settings, pools=pools), jobs=jobs
        )


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
"""Rules of a site whose own are not known."""


class _Trials:
    """The result of rules and shares on a part of a twin's jobs."""

    def __init__(self, twin: Twin, on_progress: Progress, of: int) -> None:
        last = first_left_out(twin.jobs)
        self._trial = _part(twin, max(last - _FITTED, 0), last)
        self._known = compared(self._trial.jobs)
        self._cores = self._trial.jobs.table.cores[self._known]
        self._recorded = self._trial.jobs.wait_s[self._known].astype(np.float64)
        self._tell, self._done, self._of = on_progress, 0, of
        self._found: dict[str, dict[float, float]] = {}

    def __len__(self) -> int:
        return len(self._recorded)

    def look(self, rules: RankingRules, shares: Sequence[float]) -> None:
        """Try rules with shares of the cores."""
        found = self._found.setdefault(rules.words, {})
        for share in shares:
            if share not in found:
                waits_s = simulated_waits(rules.on(self._trial, share))[self._known]
                found[share] = misfit(self._cores, self._recorded, np.nan_to_num(waits_s, nan=_FOR_EVER_S))
            self._done += 1
            self._tell(_WHAT, min(self._done, self._of), self._of)

    def look_closely(self, rules: RankingRules) -> None:
        """Try them with many shares, with ever smaller ones as long as that is better."""
        self.look(rules, _SHARES)
        for share in _SMALLER:
            if self.best(rules)[1] > _NEAR * min(self._found[rules.words]):
                break
            self.look(rules, (share,))

    def best(self, rules: RankingRules) -> tuple[float, float]:
        """Give the least misfit, and the share with which that is; of equals the larger."""
        off, less = min((off, -share) for share, off in self._found[rules.words].items())
        return off, -less

    def with_all(self, rules: RankingRules) -> float:
        """Give the misfit with all cores."""
        return self._found[rules.words][1.0]


def fitted(twin: Twin, on_progress: Progress, *, knows_rules: bool) -> Twin:
    """Choose the scheduler's rules, if they are not known, and how many cores are available for jobs.

    The choice has the least misfit of waits (`misfit`), without the last week's jobs.
    """
    about = twin.about
    own = (RankingRules("the site's own rules", about.scheduler, about.settings),)
    usual = own if knows_rules else USUAL
    trials = _Trials(twin, on_progress, len(usual) * len(_FIRST_SHARES) + min(_FINALISTS, len(usual)) * len(_SHARES))
    if len(trials) < _FEWEST:
        text = "nothing was fitted: hardly any wait is known"
        return replace(twin, about=replace(about, assumed=(*about.assumed, text)))
    for rules in usual:
        trials.look(rules, _FIRST_SHARES)
    finalists = sorted(usual, key=trials.best)[:_FINALISTS]
    for rules in finalists:
        trials.look_closely(rules)
    best = min(finalists, key=trials.best)
    off, share = trials.best(best)
    assumption = f"fitted to the waits before the last week: their quantiles are {10**off:.2g} times off in the mean"
    if not knows_rules:
        assumption += f"; {best.words}: the nearest of {len(usual)} usual rules"
    if share < 1:
        whole = 10 ** trials.with_all(best)
        assumption += (
            f"; {100 * (1 - share):.0f} % of the cores are never to be had (with all, {whole:.2g} times off), and a "
            "job that wants more than the rest gets that"
        )
    chosen = best.on(twin, share)
    return replace(chosen, about=replace(chosen.about, assumed=(*chosen.about.assumed, assumption)))


def _part(twin: Twin, first: int, last: int) -> Twin:
    """Cut a stretch of its jobs out."""
    jobs, which = twin.jobs, slice(first, last)
    table = jobs.table
    cut = JobTable(table.submit[which], table.run[which], table.request[which], table.cores[which])
    return replace(twin, jobs=Jobs(cut, jobs.users[which], jobs.partitions[which], jobs.wait_s[which], jobs.clock_s))


def first_left_out(jobs: Jobs) -> int:
    """Give the first job of the last week, or of the last quarter of a short log."""
    submit = jobs.table.submit
    span_s = float(submit[-1] - submit[0])
    left_out_s = _WEEK_S if span_s >= _SHORTEST_S else span_s / 4
    return int(np.searchsorted(submit, submit[-1] - left_out_s))


def compared(jobs: Jobs) -> NDArray[np.bool_]:
    """Return the jobs whose waits are compared: those with known waits, after the machine has filled."""
    known = jobs.wait_s >= 0
    known[: int(_WARM_UP * len(known))] = False
    return known
