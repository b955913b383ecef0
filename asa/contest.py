"""The experiment on strategies: on real logs, with every strategy meeting the same queue at the same moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from asa import plugins
from asa.backend import Site
from asa.cells import Kind, digest, fill
from asa.cells import code_digest as _code
from asa.errors import InputError
from asa.estimators import WaitBank
from asa.experiment import workflow_maker
from asa.metrics import measure
from asa.pool.executors import Elsewhere
from asa.runner import Run, run_all
from asa.strategies import lacking, load_strategy

__all__ = ["Cell", "Contest", "Standing", "Trial", "hold", "peak_sizes", "standings"]

_SIZES = (640, 320, 160, 112, 56, 28)
_RESAMPLES = 1000
_EQUAL = 1e-9
_SHARE = 2  # of the machine: wider jobs than a half are not what it is for


@dataclass(frozen=True, slots=True)
class Cell:
    """What is run in one go: one strategy on one log, with one estimator that learns from run to run.

    Parameters
    ----------
    trace
        The log's file.
    workflow, cores
        Which, and how wide.
    age_accrues, shrink
        The site's rules.
    strategy, estimator
        Their names.
    starts
        How many moments.
    history
        Past jobs of everybody that the estimator learns at each.
    log, code
        Digests of the log, and of this package: what other code did, or on another log, is another cell.
    """

    trace: str
    workflow: str
    cores: int
    age_accrues: bool
    shrink: bool
    strategy: str
    estimator: str
    starts: int
    history: int
    log: str
    code: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One run.

    Parameters
    ----------
    trace
        The log's name.
    workflow, cores, age_accrues, shrink, strategy
        As in its cell.
    start
        Number of its moment.
    makespan_s, core_hours, overhead_core_hours
        See `asa.metrics.RunMetrics`.
    perceived_wait_s
        How long stages waited after those that they follow had ended, added up; without the wait before the first.
    total_wait_s
        With it.
    """

    trace: str
    workflow: str
    cores: int
    age_accrues: bool
    shrink: bool
    strategy: str
    start: int
    makespan_s: float
    core_hours: float
    overhead_core_hours: float
    perceived_wait_s: float
    total_wait_s: float


@dataclass(frozen=True, slots=True)
class Contest:
    """What to find out.

    Parameters
    ----------
    traces
        Logs.
    workflows
        Names.
    strategies
        Names; Big Job and Per-Stage run anyway, as the others are measured by them.
    cores
        Peak sizes; for each log three that fit its machine, if not given.
    age
        Rules to try: whether age accrues.
    shrink
        Whether a running job can give cores back.
    estimator
        Who predicts.
    starts
        Moments.
    history
        Past jobs of everybody that the estimator learns at each.
    """

    traces: tuple[Path, ...]
    workflows: tuple[str, ...] = ("montage", "statistics")
    strategies: tuple[str, ...] = ("chained", "asa", "asa-naive", "asa-plan", "elastic")
    cores: tuple[int, ...] = ()
    age: tuple[bool, ...] = (True, False)
    shrink: bool = True
    estimator: str = "queue"
    starts: int = 40
    history: int = 2000

    def cells(self) -> list[Cell]:
        """All that is to be run; a log's cells together, as it is read once for them.

        Raises
        ------
        InputError
            Something is unknown, or does not fit.
        """
        if self.starts < 1 or not self.traces or not self.workflows:
            raise InputError("there is nothing to run", hint="Give a log, a workflow, and at least one start.")
        for name in self.workflows:
            workflow_maker(name)
        plugins.load("asa.estimators", self.estimator)
        names = dict.fromkeys(("big-job", "per-stage", *self.strategies))
        for name in names:
            load_strategy(name)
        cells, code = [], _code()
        for trace in self.traces:
            machine = _site(str(trace), age_accrues=True, shrink=True).capabilities.max_cores
            sizes = self.cores or peak_sizes(machine)
            if too_wide := [size for size in sizes if size > machine]:
                raise InputError(
                    f"{too_wide[0]} cores are more than its machine's {machine}",
                    where=str(trace),
                    hint="Give --cores that fit.",
                )
            log = digest([trace])
            for age, workflow, cores, strategy in product(self.age, self.workflows, sizes, names):
                settings = (age, self.shrink, strategy, self.estimator, self.starts, self.history, log, code)
                cells.append(Cell(str(trace), workflow, cores, *settings))
        return cells


def peak_sizes(machine_cores: int) -> tuple[int, ...]:
    """Give the three largest of the paper's sizes of which two fit the machine side by side; smaller ones if none do.

    Examples
    --------
    >>> peak_sizes(338), peak_sizes(1728)
    ((56, 112, 160), (160, 320, 640))
    """
    fitting = [size for size in _SIZES if size * _SHARE <= machine_cores]
    return tuple(sorted(fitting[:3])) or (max(machine_cores // _SHARE, 1),)


def hold(
    contest: Contest,
    kept: Path | None = None,
    *,
    jobs: int | None = None,
    elsewhere: Elsewhere | None = None,
    on_progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> list[Trial]:
    """Run every cell, in parallel, unless its runs are kept already.

    Parameters
    ----------
    contest
        What to find out.
    kept
        File to which each cell's runs are added as it ends, a line of JSON each: a contest that was interrupted goes on
        there.
    jobs
        Processes; as many as this machine lets us use, if not given. The result does not depend on it.
    elsewhere
        Where to run them, if not in processes of this machine; on workers that see the logs under the same paths.
    on_progress
        Called with what is being done, how much of it is done, and of how much.

    Raises
    ------
    InputError
        See `Contest.cells`.
    StateError
        The file cannot be read or written.
    """
    cells = contest.cells()
    kind = Kind(run_cell, lambda told: Cell(**told), lambda told: Trial(**told))
    outcomes = fill(cells, kind, kept, jobs=jobs, elsewhere=elsewhere, on_progress=on_progress)
    return [trial for trials in outcomes.values() for trial in trials]


@lru_cache(maxsize=4)
def _site(trace: str, *, age_accrues: bool, shrink: bool) -> Site:
    make = plugins.load("asa.backends", "simulated")
    return cast("Site", make(trace=trace, age_accrues=age_accrues, shrink=shrink))


def run_cell(cell: Cell) -> list[Trial]:
    """Run one strategy at all moments in the order of the log's time, with one estimator.

    Raises
    ------
    InputError
        A run did not complete.
    """
    site = _site(cell.trace, age_accrues=cell.age_accrues, shrink=cell.shrink)
    if lack := lacking(load_strategy(cell.strategy), site.capabilities):
        raise InputError(lack, where=f"strategy {cell.strategy!r}", hint="Take another.")
    workflow = workflow_maker(cell.workflow)(cell.cores)
    starts = range(cell.starts)
    site.prepare(starts)
    bank = WaitBank(cell.estimator, machine_cores=site.capabilities.max_cores)
    trials: dict[int, Trial] = {}
    for start in site.in_order(starts):
        run = Run(workflow, load_strategy(cell.strategy), bank=bank)
        [result] = run_all(site.open(start), [run], history=cell.history)
        if result.outcome != "completed":
            raise InputError(
                f"a run did not complete: {result.reason}", where=f"{cell.trace}, {cell.strategy}, start {start}"
            )
        told = measure(workflow, result.records)
        between_s = sum(stage.perceived_wait_s for stage in told.stages if workflow.stages[stage.stage].after)
        trials[start] = Trial(
            site.capabilities.system,
            cell.workflow,
            cell.cores,
            cell.age_accrues,
            cell.shrink,
            cell.strategy,
            start,
            told.makespan_s,
            told.core_hours,
            told.overhead_core_hours,
            between_s,
            told.twt_s,
        )
    return [trials[start] for start in starts]


# ---------------------------------------------------------------------- what came out


@dataclass(frozen=True, slots=True)
class Standing:
    """How a strategy did under one rule, over all cells.

    Parameters
    ----------
    age_accrues, strategy
        Which.
    makespan
        Geometric mean of its makespan over Big Job's, averaged over the cells; with the bounds of its 95 % interval.
    core_hours
        Likewise over Per-Stage's.
    perceived_wait, total_wait
        Its waits over Per-Stage's, between stages and in all: sums over a cell's starts, averaged over the cells.
    dominated
        Cells in which another strategy took less time and no more core-hours, or the reverse, beyond the interval.
    cells
        How many there are.
    """

    age_accrues: bool
    strategy: str
    makespan: tuple[float, float, float]
    core_hours: tuple[float, float, float]
    perceived_wait: float
    total_wait: float
    dominated: int
    cells: int


_Key = tuple[str, str, int]
_Columns = Mapping[str, NDArray[np.float64]]


def standings(trials: Iterable[Trial], *, seed: int = 0) -> list[Standing]:
    """Work out how each strategy did, paired by moments, with intervals by the bootstrap over these."""
    told: dict[bool, dict[_Key, dict[str, list[Trial]]]] = {}
    for trial in trials:
        cell = told.setdefault(trial.age_accrues, {}).setdefault((trial.trace, trial.workflow, trial.cores), {})
        cell.setdefault(trial.strategy, []).append(trial)
    return [standing for age, cells in told.items() for standing in _of_rule(age, cells, seed)]


def _of_rule(age: bool, cells: Mapping[_Key, Mapping[str, Sequence[Trial]]], seed: int) -> Iterator[Standing]:  # noqa: FBT001 - a rule
    names = list(dict.fromkeys(name for cell in cells.values() for name in cell))
    rng = np.random.Generator(np.random.PCG64(seed))
    columns = {key: {name: _columns(trials) for name, trials in cell.items()} for key, cell in cells.items()}
    counts = {(key[0], len(next(iter(cell.values())))) for key, cell in cells.items()}
    of_trace = {one: rng.integers(one[1], size=(_RESAMPLES, one[1])) for one in sorted(counts)}  # cells share moments
    draws = {key: of_trace[key[0], len(next(iter(cell.values())))] for key, cell in cells.items()}
    for name in names:
        mine = {key: cell for key, cell in columns.items() if name in cell}
        yield Standing(
            age,
            name,
            _mean(mine, draws, name, "makespan_s", "big-job"),
            _mean(mine, draws, name, "core_hours", "per-stage"),
            _share(mine, name, "perceived_wait_s"),
            _share(mine, name, "total_wait_s"),
            sum(_is_dominated(cell, draws[key], name) for key, cell in mine.items()),
            len(mine),
        )


def _columns(trials: Sequence[Trial]) -> _Columns:
    ordered = sorted(trials, key=lambda trial: trial.start)
    names = ("makespan_s", "core_hours", "perceived_wait_s", "total_wait_s")
    return {name: np.array([getattr(trial, name) for trial in ordered], dtype=np.float64) for name in names}


def _mean(
    cells: Mapping[_Key, Mapping[str, _Columns]], draws: Mapping[_Key, NDArray[np.int64]], name: str, what: str, of: str
) -> tuple[float, float, float]:
    means, resampled = [], []
    for key, cell in cells.items():
        logs = np.log(cell[name][what] / cell[of][what])
        means.append(np.exp(logs.mean()))
        resampled.append(np.exp(logs[draws[key]].mean(axis=1)))
    low, high = np.quantile(np.mean(resampled, axis=0), [0.025, 0.975])
    return float(np.mean(means)), float(low), float(high)


def _share(cells: Mapping[_Key, Mapping[str, _Columns]], name: str, what: str) -> float:
    sums = [(cell[name][what].sum(), cell["per-stage"][what].sum()) for cell in cells.values()]
    shares = [mine / theirs for mine, theirs in sums if theirs]
    return float(np.mean(shares)) if shares else 0.0


def _is_dominated(cell: Mapping[str, _Columns], draws: NDArray[np.int64], name: str) -> bool:
    """Say whether another strategy is better in one of the two, beyond the interval, and not worse in the other."""
    for other in cell.keys() - {name}:
        time, hours = (_bounds(cell[name][what] / cell[other][what], draws) for what in ("makespan_s", "core_hours"))
        least = 1 - _EQUAL
        if (time[0] > 1 + _EQUAL and hours[1] >= least) or (hours[0] > 1 + _EQUAL and time[1] >= least):
            return True
    return False


def _bounds(ratios: NDArray[np.float64], draws: NDArray[np.int64]) -> tuple[float, float]:
    """Give the lower bound of a geometric mean's 95 % interval, and the mean."""
    logs = np.log(ratios)
    return float(np.exp(np.quantile(logs[draws].mean(axis=1), 0.025))), float(np.exp(logs.mean()))
