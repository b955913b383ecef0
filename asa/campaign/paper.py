"""The ASA paper's evaluation (Sections 4.3 to 4.8) done anew, with intervals.

**Runs.** Three workflows at three sizes on each of two centres under three strategies are 54 runs, and ASA Naive for
Montage on 112 cores is one more; each is done at several moments of a simulated queue, one a seed. *Sequentially* each
workflow runs in a copy of its own of the same queue; *concurrently* the three workflows of a size are handed over in
one queue, one a minute, and run side by side. On a centre all runs of a strategy share one estimator, seed after seed,
size after size: what it learned from one workflow it knows for the next. So does ASA Naive's, for which all workflows
and sizes are run, too, in both ways, though only Montage on 112 cores counts.

**Submissions.** For Table 2 each workflow's widest job is submitted 60 times, one a minute, while an estimator predicts
each wait and is told it when the job starts. Such a job asks for what the stage asks for and ends after a second: it is
there to measure the queue. The paper's waits of Table 2 are many times those of Table 1, to which the centres are
calibrated: the queue was fuller then. So each seed's submissions begin where, in steps of four hours through twelve
days, what the job would wait in that hour is nearest to the paper's mean. Real waits are as in the paper by that
choice, as far as the centres ever are so full, and are not counted among the figures that agree; all else follows.
The resources are taken to be needed the predicted wait after the submission, so that

- the perceived wait is what the real one exceeds the prediction by, if it does;
- a prediction is a miss if an alternative nearer to the real wait lies below it, else a hit;
- the overhead is what an allocation that came early costs until it is needed, in core-hours a submission.

The paper does not define these three as sharply; by these definitions its perceived waits at UPPMAX do not follow from
its own real and predicted ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from asa import plugins
from asa.backend import Backend, Foresight, JobSpec, Site
from asa.campaign.convergence import Convergence, converge
from asa.campaign.published import (
    CORE_HOURS_SAVED,
    FIGURES,
    MAKESPAN_ABOVE_BEST,
    METRICS,
    NAIVE,
    NORMALISED,
    PROBES,
    SIZES,
    STRATEGIES,
    TABLE_1,
    TABLE_2,
    WORKFLOWS,
    Spread,
)
from asa.campaign.records import as_plain
from asa.campaign.runs import measured, typical
from asa.campaign.verdicts import (
    RULE,
    Compared,
    Verdict,
    beside_others,
    beside_sizes,
    count,
    levelled,
    of_claim,
)
from asa.cells import Kind, code_digest, fill
from asa.errors import InputError
from asa.estimators import OwnJob, WaitBank
from asa.evaluation import closest
from asa.experiment import workflow_maker
from asa.intervals import Interval, mean_interval
from asa.metrics import StageTimes
from asa.runner import Run, run_all
from asa.runner.active import queued
from asa.strategies import load_strategy
from asa.timeline import Timeline
from asa.units import core_hours
from asa.waits import exactly
from asa.workflow import Stage, Workflow

__all__ = [
    "BY_CONSTRUCTION",
    "Accuracy",
    "Breakdown",
    "Campaign",
    "Cell",
    "Claim",
    "Mode",
    "Normalised",
    "PaperResults",
    "PaperRun",
    "Probes",
    "StageMean",
    "Tally",
    "Usage",
    "conclude",
    "run_campaign",
]

Mode = Literal["sequential", "concurrent"]
_MODES: tuple[Mode, ...] = ("sequential", "concurrent")
_SUBMISSIONS = "submissions"
_NAIVE = "asa-naive"
_BETWEEN_S = 60.0
_LEAST = {"real_h": 0.05, "predicted_h": 0.05, "perceived_h": 0.05, "hit_percent": 0.5, "miss_percent": 0.5,
          "overhead_h": 0.5}  # half of the paper's last digit  # fmt: skip
_FITTED: Final = "core_hours"
BY_CONSTRUCTION = "core-hours, by construction"
_ALIKE = "if all were alike"
_COUNTED_2 = tuple(name for name in _LEAST if name not in {"real_h", "miss_percent"})
_LOOK_S, _WITHIN_S = 4 * 3600.0, 12 * 86400.0  # for a queue as full as the paper's


@dataclass(frozen=True, slots=True)
class Campaign:
    """What to run.

    Parameters
    ----------
    seeds
        Moments.
    seed
        The first.
    estimator, history
        Who predicts, and past jobs of everybody that it learns before each run. The paper's is Algorithm 1 with the
        tuned policy, which learns from its own jobs only.
    age_accrues
        Whether a job gains priority while a dependency keeps it back. The paper's results need it.
    modes
        How workflows are handed over.
    """

    seeds: int = 20
    seed: int = 0
    estimator: str = "asa-tuned"
    history: int = 0
    age_accrues: bool = True
    modes: tuple[Mode, ...] = _MODES

    def cells(self) -> list[Cell]:
        """All that is to be run.

        Raises
        ------
        InputError
            Nothing is, or something is unknown.
        """
        if self.seeds < 1 or not self.modes:
            raise InputError("there is nothing to run", where="--seeds", hint="Ask for at least one run of each.")
        if self.history < 0:
            raise InputError(f"a history of {self.history} jobs cannot be", where="--history", hint="Give 0 or more.")
        plugins.load("asa.estimators", self.estimator)
        settings = (self.seed, self.seeds, self.estimator, self.history, self.age_accrues)
        named = [("asa.estimators", self.estimator), *(("asa.workflows", name) for name in WORKFLOWS)]
        codes = {name: code_digest([*named, ("asa.strategies", name)]) for name in (*STRATEGIES, _NAIVE)}
        return [
            *(Cell(mode, name, "", 0, strategy, *settings, codes[strategy])
              for mode in self.modes for name in SIZES for strategy in STRATEGIES),
            *(Cell(mode, NAIVE[0], "", 0, _NAIVE, *settings, codes[_NAIVE]) for mode in self.modes),
            *(Cell(_SUBMISSIONS, name, workflow, cores, "", *settings, code_digest(named))
              for name, sizes in SIZES.items() for workflow in WORKFLOWS for cores in sizes),
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """What is run in one go: all that shares an estimator.

    Parameters
    ----------
    what
        A mode, or submissions for Table 2.
    system
        The centre.
    workflow, cores
        Whose jobs are submitted; in a mode all workflows are run at all sizes of the centre.
    strategy
        Its name; of ASA Naive only the run that the paper has is kept.
    seed, seeds, estimator, history, age_accrues
        The campaign's.
    code
        Digest of all code: what other code did is another cell.
    """

    what: str
    system: str
    workflow: str
    cores: int
    strategy: str
    seed: int
    seeds: int
    estimator: str
    history: int
    age_accrues: bool
    code: str


@dataclass(frozen=True, slots=True)
class PaperRun:
    """One run of a workflow, see `asa.metrics.RunMetrics`; and what its jobs did.

    Parameters
    ----------
    mode
        How workflows were handed over, see `Mode`.
    system, workflow, cores, strategy, seed
        What ran where, how wide, asked for how, at which moment.
    twt_s, makespan_s
        Total waiting time and makespan, in seconds.
    core_hours, overhead_core_hours
        What was allocated, and what of it was not used.
    hits, misses
        How many predictions of waits were not too long, and too long.
    resubmissions
        Jobs that were asked for again.
    stages
        Each stage, in the workflow's order.
    timeline
        What its jobs did.
    """

    mode: str
    system: str
    workflow: str
    cores: int
    strategy: str
    seed: int
    twt_s: float
    makespan_s: float
    core_hours: float
    overhead_core_hours: float
    hits: int
    misses: int
    resubmissions: int
    stages: tuple[StageTimes, ...]
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class Probes:
    """Submissions of one geometry at one moment.

    Parameters
    ----------
    system, workflow, cores, seed
        Where, whose widest job, at which peak size, at which moment.
    real_s, predicted_s
        Waits in seconds, one a submission, in order of submission.
    """

    system: str
    workflow: str
    cores: int
    seed: int
    real_s: tuple[float, ...]
    predicted_s: tuple[float, ...]


Outcome = PaperRun | Probes


def run_campaign(
    campaign: Campaign,
    kept: Path | None = None,
    *,
    jobs: int | None = None,
    elsewhere: Executor | None = None,
    on_progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> list[Outcome]:
    """Run every cell, unless its outcome is kept already; see `asa.cells.fill`.

    Parameters
    ----------
    campaign
        What to run.
    kept
        File to which each cell's outcomes are added as it ends; nothing is kept if not given.
    jobs
        Processes; as many as this machine lets us use, if not given. The result does not depend on it.
    elsewhere
        Where to run cells, if not in processes of this machine.
    on_progress
        Called with what is being done, how much of it is done, and of how much.

    Raises
    ------
    InputError
        See `Campaign.cells`.
    RunError
        A run did not complete.
    StateError
        The file cannot be read.
    JournalError
        It cannot be written.
    """
    kind = Kind(run_cell, lambda told: Cell(**told), _outcome)
    outcomes = fill(campaign.cells(), kind, kept, jobs=jobs, elsewhere=elsewhere, on_progress=on_progress)
    return [outcome for cell in outcomes.values() for outcome in cell]


def _outcome(told: Mapping[str, Any]) -> Outcome:
    """Make an outcome of what was kept of it."""
    if "stages" in told:
        stages = tuple(StageTimes(**stage) for stage in told["stages"])
        return PaperRun(**{**told, "stages": stages, "timeline": Timeline.from_dict(told["timeline"])})
    return Probes(**{**told, "real_s": tuple(told["real_s"]), "predicted_s": tuple(told["predicted_s"])})


@lru_cache(maxsize=4)
def _site(system: str, *, age_accrues: bool) -> Site:
    return cast("Site", plugins.load("asa.backends", "simulated")(system, age_accrues=age_accrues))


def run_cell(cell: Cell) -> list[Outcome]:
    """Run all that shares an estimator, seed after seed.

    Raises
    ------
    RunError
        A run did not complete.
    """
    site = _site(cell.system, age_accrues=cell.age_accrues)
    bank = WaitBank(cell.estimator, seed=cell.seed, machine_cores=site.capabilities.max_cores)
    seeds = range(cell.seed, cell.seed + cell.seeds)
    if cell.what == _SUBMISSIONS:
        job = _widest(workflow_maker(cell.workflow)(cell.cores))
        return [_submit(cell, _as_full(cell, site, seed, job), seed, job, bank) for seed in seeds]
    return [
        run
        for seed in seeds
        for cores in SIZES[cell.system]
        for together in ([WORKFLOWS] if cell.what == "concurrent" else [(name,) for name in WORKFLOWS])
        for run in _run_together(cell, seed, cores, together, bank)
        if cell.strategy != _NAIVE or (run.system, run.workflow, run.cores) == NAIVE
    ]


def _run_together(cell: Cell, seed: int, cores: int, names: Sequence[str], bank: WaitBank) -> list[PaperRun]:
    world = _site(cell.system, age_accrues=cell.age_accrues).open(seed)
    workflows = [workflow_maker(name)(cores) for name in names]
    strategy = load_strategy(cell.strategy)
    runs = [Run(flow, strategy, bank=bank, delay_s=_BETWEEN_S * place) for place, flow in enumerate(workflows)]
    told = []
    for name, flow, result in zip(names, workflows, run_all(world, runs, history=cell.history), strict=True):
        m, jobs = measured(flow, result, f"{name} on {cores} cores of {cell.system}, {cell.strategy}, seed {seed}")
        told.append(
            PaperRun(
                cell.what,
                cell.system,
                name,
                cores,
                cell.strategy,
                seed,
                m.twt_s,
                m.makespan_s,
                m.core_hours,
                m.overhead_core_hours,
                m.hits,
                m.misses,
                m.resubmissions,
                m.stages,
                jobs,
            )
        )
    return told


def _widest(workflow: Workflow) -> Stage:
    """Give a workflow's widest stage, of these the longest."""
    return max(workflow.stages.values(), key=lambda stage: (stage.cores or 0, stage.walltime_s))


def _probe(cell: Cell, stage: Stage) -> JobSpec:
    return JobSpec(stage.name, cores=cell.cores, walltime_s=stage.walltime_s, run_s=1.0)


def _as_full(cell: Cell, site: Site, seed: int, stage: Stage) -> Backend:
    """Open a seed's world when a job's waits in an hour are nearest to the paper's, by the ratio of their mean."""
    aim_s = TABLE_2[cell.workflow][cell.cores].real_h.mean * 3600
    ahead, spec = site.open(seed), _probe(cell, stage)
    assert isinstance(ahead, Foresight)
    times_s = np.arange(ahead.now(), ahead.now() + _WITHIN_S, _LOOK_S)
    waits_s = []
    for time_s in times_s:
        _pass_time(ahead, time_s)
        submit_s = [ahead.now() + part * PROBES * _BETWEEN_S for part in (0.0, 0.5, 1.0)]
        waits_s.append(float(np.mean([ahead.foresee_start(spec, at_s) - at_s for at_s in submit_s])))
    off = np.abs(np.log(np.maximum(waits_s, 1.0) / aim_s))
    world = site.open(seed)
    _pass_time(world, times_s[int(off.argmin())])
    return world


def _pass_time(world: Backend, until_s: float) -> None:
    while world.now() < until_s:
        world.wait(until_s)


def _submit(cell: Cell, world: Backend, seed: int, stage: Stage, bank: WaitBank) -> Probes:
    """Submit a stage's job again and again, and see how long each waits."""
    bank.lose_sight()
    began_s = world.now()
    spec = _probe(cell, stage)
    asked: dict[str, tuple[int, OwnJob]] = {}
    real_s, predicted_s = [math.nan] * PROBES, list[float]()
    while len(predicted_s) < PROBES or asked:
        due_s = began_s + _BETWEEN_S * len(predicted_s) if len(predicted_s) < PROBES else None
        if due_s is not None and world.now() >= due_s:
            if cell.history:
                bank.follow(world.queue_events(cell.history, ends=bank.sees_queue))
            job = queued(spec, world.capabilities, world.now(), bank.user)
            forecast = bank.predict(job)
            asked[world.submit(spec)] = len(predicted_s), bank.submitted(job, forecast)
            predicted_s.append(forecast.wait_s)
            continue
        for status in world.wait(due_s):
            if status.start_s is not None and status.job_id in asked:
                place, own = asked.pop(status.job_id)
                real_s[place] = max(status.start_s - status.submit_s, 0.0)
                bank.observe(own, exactly(real_s[place]))
    return Probes(cell.system, cell.workflow, cell.cores, seed, tuple(real_s), tuple(predicted_s))


# ---------------------------------------------------------------------- what came out


@dataclass(frozen=True, slots=True)
class Usage:
    """A cell of Table 1: one strategy on one workflow, beside the paper's.

    Parameters
    ----------
    mode
        How workflows were handed over, see `Mode`.
    workflow, system, cores, strategy
        What ran where, how wide, asked for how.
    twt_s, makespan_s
        Total waiting time and makespan, in seconds.
    core_hours
        All that was allocated.
    """

    mode: str
    workflow: str
    system: str
    cores: int
    strategy: str
    twt_s: Compared
    makespan_s: Compared
    core_hours: Compared


@dataclass(frozen=True, slots=True)
class Normalised:
    """A line below Table 1: percent above the best strategy of each size, averaged over the sizes.

    Parameters
    ----------
    mode
        How workflows were handed over, see `Mode`.
    workflow, strategy
        Which.
    twt_s, makespan_s, core_hours
        Of total waiting time, of makespan and of core-hours: each in percent.
    """

    mode: str
    workflow: str
    strategy: str
    twt_s: Compared
    makespan_s: Compared
    core_hours: Compared


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A row of Table 2, beside the paper's: means of the seeds; see the module for what is counted how.

    Parameters
    ----------
    workflow, system, cores
        Whose widest job was submitted, where, and how wide it is.
    submissions
        How many, all seeds together.
    real_h, predicted_h, perceived_h
        Waits, in hours.
    hit_percent, miss_percent
        Share of predictions that were not too long, and too long.
    overhead_h
        What allocations that came early cost, in core-hours a submission.
    real_sd_h, predicted_sd_h
        Standard deviations of real and predicted waits over all submissions, in hours.
    """

    workflow: str
    system: str
    cores: int
    submissions: int
    real_h: Compared
    predicted_h: Compared
    perceived_h: Compared
    hit_percent: Compared
    miss_percent: Compared
    overhead_h: Compared
    real_sd_h: float
    predicted_sd_h: float


@dataclass(frozen=True, slots=True)
class StageMean:
    """A stage of a bar in Figs 6 to 8, averaged over the seeds.

    Parameters
    ----------
    stage
        Its name.
    wait_s, run_s
        Perceived wait and run time, in seconds.
    """

    stage: str
    wait_s: float
    run_s: float


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A bar of Figs 6 to 8, where a makespan goes, and its core-hours, a bar of Fig. 9.

    Parameters
    ----------
    figure
        Such as ``6a``.
    mode, workflow, system, cores, strategy
        Which.
    stages
        In order.
    makespan_s, core_hours, overhead_core_hours
        Means of the seeds; the last is part of the one before.
    resubmissions
        Likewise.
    seed, timeline
        What jobs did at a moment that all strategies share.
    """

    figure: str
    mode: str
    workflow: str
    system: str
    cores: int
    strategy: str
    stages: tuple[StageMean, ...]
    makespan_s: Interval
    core_hours: Interval
    overhead_core_hours: float
    resubmissions: float
    seed: int
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that the paper's text says, as a number of ours.

    Parameters
    ----------
    where, words, mode
        In which section, what, and of which runs.
    unit
        Percent, or points of percent.
    ours, published
        The paper's is nan where it only says that there is more than nothing.
    verdict, alike
        See `asa.campaign.verdicts.Compared`; a world without differences has 0.
    fitted
        Whether the workflows are fitted to it, so that it agrees by construction.
    """

    where: str
    words: str
    mode: str
    unit: Literal["%", "points"]
    ours: Interval
    published: float
    verdict: Verdict
    alike: Verdict
    fitted: bool


@dataclass(frozen=True, slots=True)
class Tally:
    """How often each verdict was given in a table, and would be in a world without differences.

    Parameters
    ----------
    table
        What was counted, in words, such as ``Table 2``.
    verdicts, alike
        How many figures got each verdict: here, and in a world without differences.
    """

    table: str
    verdicts: dict[Verdict, int]
    alike: dict[Verdict, int]

    @classmethod
    def of(cls, table: str, judged: Iterable[Compared | Claim]) -> Tally:
        """Count."""
        told = list(judged)
        return cls(table, count(one.verdict for one in told), count(one.alike for one in told))


@dataclass(frozen=True, slots=True)
class PaperResults:
    """All that came out, beside what the paper prints.

    Parameters
    ----------
    campaign
        What was run.
    usages, normalised
        Table 1 and the lines below it.
    accuracies
        Table 2.
    convergences
        Fig. 5.
    breakdowns
        Figs 6 to 9.
    claims
        The text's.
    rule
        By which verdicts were given.
    """

    campaign: Campaign
    usages: tuple[Usage, ...]
    normalised: tuple[Normalised, ...]
    accuracies: tuple[Accuracy, ...]
    convergences: tuple[Convergence, ...]
    breakdowns: tuple[Breakdown, ...]
    claims: tuple[Claim, ...]
    rule: str = RULE

    def tallies(self) -> list[Tally]:
        """Count the verdicts of each table that there is, by mode.

        Core-hours, to which the workflows are fitted, are counted apart; of hits and misses, which add up to 100 %,
        hits alone.
        """
        told: list[Tally] = []
        lines: tuple[tuple[str, Sequence[Usage | Normalised]], ...] = (
            ("Table 1", self.usages),
            ("its averages", self.normalised),
        )
        for words, rows in lines:
            told += [
                Tally.of(f"{words}, {mode}", [getattr(row, metric) for row in rows if row.mode == mode
                                              for metric in METRICS if metric != _FITTED])
                for mode in self.campaign.modes
            ]  # fmt: skip
        told.append(Tally.of("Table 2", [getattr(row, name) for row in self.accuracies for name in _COUNTED_2]))
        told.append(Tally.of("claims of the text", [claim for claim in self.claims if not claim.fitted]))
        fitted: list[Compared | Claim] = [getattr(row, _FITTED) for _, rows in lines for row in rows]
        told.append(Tally.of(BY_CONSTRUCTION, [*fitted, *(claim for claim in self.claims if claim.fitted)]))
        return [tally for tally in told if sum(tally.verdicts.values())]

    def verdicts(self) -> dict[str, dict[Verdict, int]]:
        """Give the counts of `tallies` by name, and below each those of a world without differences."""
        told: dict[str, dict[Verdict, int]] = {}
        for tally in self.tallies():
            told[tally.table] = tally.verdicts
            if tally.table != BY_CONSTRUCTION:
                told[f"{tally.table}: {_ALIKE}"] = tally.alike
        return told

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what is not known is null."""
        return {**as_plain(asdict(self)), "verdicts": self.verdicts()}


def conclude(campaign: Campaign, outcomes: Iterable[Outcome]) -> PaperResults:
    """Work out the tables, the figures' data and the verdicts from a campaign's outcomes.

    Parameters
    ----------
    campaign
        What was run.
    outcomes
        What `run_campaign` gave for it.
    """
    told = list(outcomes)
    runs: dict[tuple[str, str, int, str], list[PaperRun]] = {}
    for run in told:
        if isinstance(run, PaperRun):
            runs.setdefault((run.mode, run.workflow, run.cores, run.strategy), []).append(run)
    moments = _moments(runs)
    usages = [usage for mode in campaign.modes for usage in _usages(mode, runs)]
    convergences = converge(range(campaign.seed, campaign.seed + max(campaign.seeds, 10)))
    return PaperResults(
        campaign,
        tuple(usages),
        tuple(line for mode in campaign.modes for line in _normalised(mode, runs)),
        tuple(_accuracies([one for one in told if isinstance(one, Probes)])),
        tuple(convergences),
        tuple(_breakdown(of, moments[key[:3]]) for key, of in runs.items()),
        tuple([claim for mode in campaign.modes for claim in _claims(mode, runs)] + _claims_of_5(convergences)),
    )


_Runs = Mapping[tuple[str, str, int, str], Sequence[PaperRun]]


def _usages(mode: str, runs: _Runs) -> Iterable[Usage]:
    for workflow in WORKFLOWS:
        for system, sizes in SIZES.items():
            for cores in sizes:
                row = {name: runs[mode, workflow, cores, name] for name in STRATEGIES}
                for strategy in STRATEGIES:
                    compared = [_beside_row(metric, strategy, row, workflow, cores) for metric in METRICS]
                    yield Usage(mode, workflow, system, cores, strategy, *compared)


def _beside_row(
    metric: str, strategy: str, row: Mapping[str, Sequence[PaperRun]], workflow: str, cores: int
) -> Compared:
    ours = _samples(metric, row)
    published = {name: float(getattr(cell, metric)) for name, cell in TABLE_1[workflow][cores].items()}
    return _judged(ours, published, strategy)


def _samples(metric: str, row: Mapping[str, Sequence[PaperRun]]) -> dict[str, list[float]]:
    """Give each strategy's figure at every moment."""
    return {name: [float(getattr(run, metric)) for run in of] for name, of in row.items()}


def _judged(ours: Mapping[str, Sequence[float]], published: Mapping[str, float], strategy: str) -> Compared:
    verdict, alike = (beside_others(row, published, strategy) for row in (ours, levelled(ours)))
    return Compared.of(mean_interval(ours[strategy]).within(0.0), published[strategy], verdict, alike)


def _normalised(mode: str, runs: _Runs) -> Iterable[Normalised]:
    for workflow in WORKFLOWS:
        above = {metric: _above(mode, workflow, metric, runs) for metric in METRICS}
        for strategy in STRATEGIES:
            compared = []
            for place, metric in enumerate(METRICS):
                # of the best's: 100 % is the best itself, so that ratios mean something
                ours = {name: (100 + above[metric][name]).tolist() for name in STRATEGIES}
                published = {name: 100.0 + NORMALISED[workflow][name][place] for name in STRATEGIES}
                judged = _judged(ours, published, strategy)
                mean = mean_interval(above[metric][strategy].tolist())
                stated = NORMALISED[workflow][strategy][place]
                compared.append(Compared.of(mean, stated, judged.verdict, judged.alike))
            yield Normalised(mode, workflow, strategy, *compared)


def _above(mode: str, workflow: str, metric: str, runs: _Runs) -> dict[str, NDArray[np.float64]]:
    """Average over sizes by how many percent a strategy is above the one that is best there, at every moment."""
    sizes: list[dict[str, NDArray[np.float64]]] = []
    for cores in TABLE_1[workflow]:
        row = _samples(metric, {name: runs[mode, workflow, cores, name] for name in STRATEGIES})
        best = min(row.values(), key=lambda values: float(np.mean(values)))
        if least := float(np.mean(best)):
            sizes.append({name: 100 * np.subtract(values, best) / least for name, values in row.items()})
    if not sizes:
        moments = len(next(iter(runs.values())))
        return dict.fromkeys(STRATEGIES, np.full(moments, math.nan))
    return {name: np.mean([size[name] for size in sizes], axis=0) for name in STRATEGIES}


def _accuracies(probes: Sequence[Probes]) -> Iterable[Accuracy]:
    for workflow in WORKFLOWS:
        by_size = {cores: [one for one in probes if (one.workflow, one.cores) == (workflow, cores)]
                   for cores in TABLE_2[workflow]}  # fmt: skip
        figures = {cores: _figures(of) for cores, of in by_size.items()}
        for cores, of in by_size.items():
            compared = {name: _beside_column(name, cores, figures, workflow) for name in _LEAST}
            yield Accuracy(
                workflow,
                of[0].system,
                cores,
                sum(len(one.real_s) for one in of),
                **compared,
                real_sd_h=_deviation_h(one.real_s for one in of),
                predicted_sd_h=_deviation_h(one.predicted_s for one in of),
            )


def _deviation_h(waits_s: Iterable[Sequence[float]]) -> float:
    return float(np.std(np.concatenate([*map(np.asarray, waits_s)]))) / 3600


def _figures(probes: Sequence[Probes]) -> dict[str, list[float]]:
    """Average each figure over submissions, at every moment."""
    means: dict[str, list[float]] = {name: [] for name in _LEAST}
    for one in probes:
        real, predicted = np.asarray(one.real_s), np.asarray(one.predicted_s)
        missed = float((closest(predicted) > closest(real)).mean())
        early = float(np.maximum(predicted - real, 0).mean())
        values = (
            real.mean() / 3600,
            predicted.mean() / 3600,
            np.maximum(real - predicted, 0).mean() / 3600,
            100 * (1 - missed),
            100 * missed,
            core_hours(one.cores, early),
        )
        for name, value in zip(means, values, strict=True):
            means[name].append(float(value))
    return means


def _beside_column(name: str, cores: int, figures: Mapping[int, Mapping[str, list[float]]], workflow: str) -> Compared:
    ours = {size: of[name] for size, of in figures.items()}
    column: dict[int, Spread] = {size: getattr(row, name) for size, row in TABLE_2[workflow].items()}
    published = {size: spread.mean for size, spread in column.items()}
    verdict, alike = (beside_sizes(of, published, cores, least=_LEAST[name]) for of in (ours, levelled(ours)))
    most = 100.0 if name in {"hit_percent", "miss_percent"} else math.inf
    return Compared.of(mean_interval(ours[cores]).within(0.0, most), published[cores], verdict, alike)


def _moments(runs: _Runs) -> dict[tuple[str, str, int], int]:
    """Choose for each mode, workflow and size a moment that is typical of all strategies."""
    spans: dict[tuple[str, str, int], dict[int, float]] = {}
    for (mode, workflow, cores, _), of in runs.items():
        by_seed = spans.setdefault((mode, workflow, cores), {})
        for run in of:
            by_seed[run.seed] = by_seed.get(run.seed, 0.0) + run.makespan_s
    return {key: typical(by_seed) for key, by_seed in spans.items()}


def _breakdown(runs: Sequence[PaperRun], moment: int) -> Breakdown:
    first = next(run for run in runs if run.seed == moment)
    return Breakdown(
        f"{FIGURES[first.workflow]}{'a' if first.system == NAIVE[0] else 'b'}",
        first.mode,
        first.workflow,
        first.system,
        first.cores,
        first.strategy,
        tuple(
            StageMean(
                stage.stage,
                float(np.mean([run.stages[place].perceived_wait_s for run in runs])),
                float(np.mean([run.stages[place].run_s for run in runs])),
            )
            for place, stage in enumerate(first.stages)
        ),
        mean_interval([run.makespan_s for run in runs]).within(0.0),
        mean_interval([run.core_hours for run in runs]).within(0.0),
        float(np.mean([run.overhead_core_hours for run in runs])),
        float(np.mean([run.resubmissions for run in runs])),
        first.seed,
        first.timeline,
    )


def _claims(mode: str, runs: _Runs) -> Iterable[Claim]:
    """Work out, seed by seed, what the text says of all runs."""
    seeds = [run.seed for run in next(iter(runs.values()))]
    shape = (len(WORKFLOWS), sum(map(len, SIZES.values())), len(STRATEGIES), len(seeds))

    def all_of(metric: str) -> NDArray[np.float64]:
        """By workflow, size, strategy and seed."""
        return np.array(
            [[[[getattr(run, metric) for run in runs[mode, workflow, cores, name]] for name in STRATEGIES]
              for cores in TABLE_1[workflow]] for workflow in WORKFLOWS]
        ).reshape(shape)  # fmt: skip

    makespans, hours = all_of("makespan_s"), all_of("core_hours")
    asa, big = STRATEGIES.index("asa"), STRATEGIES.index("big-job")
    means = makespans.mean(axis=3)
    best = np.take_along_axis(makespans, means.argmin(axis=2)[:, :, None, None], axis=2)[:, :, 0]
    above = (makespans[:, :, asa] - best) / means.min(axis=2)[:, :, None]
    yield _claim("6", "ASA's makespans above the best strategy's, on average", mode,
                 100 * above.mean(axis=(0, 1)), MAKESPAN_ABOVE_BEST)  # fmt: skip
    saved = 1 - hours[:, :, asa].sum(axis=(0, 1)) / hours[:, :, big].sum(axis=(0, 1))
    yield _claim("6", "core-hours that ASA saves of Big Job's, in sum, by construction", mode,
                 100 * saved, CORE_HOURS_SAVED, fitted=True)  # fmt: skip
    system, workflow, cores = NAIVE
    if naive := runs.get((mode, workflow, cores, _NAIVE)):
        spans = np.array([run.makespan_s for run in runs[mode, workflow, cores, "asa"]])
        later = (np.array([run.makespan_s for run in naive]) - spans) / spans.mean()
        words = f"ASA Naive's makespan above ASA's, {workflow} on {cores} cores of {system}"
        yield _claim("4.6", words, mode, 100 * later, math.nan)


def _claim(
    section: str,
    words: str,
    mode: str,
    of_seeds: NDArray[np.float64],
    published: float,
    *,
    unit: Literal["%", "points"] = "%",
    fitted: bool = False,
) -> Claim:
    ours = mean_interval(of_seeds.tolist())
    verdict, alike = (of_claim(found, published) for found in (ours, Interval(0.0, 0.0, 0.0)))
    return Claim(section, words, mode, unit, ours, published, verdict, alike, fitted)


def _claims_of_5(convergences: Sequence[Convergence]) -> list[Claim]:
    by = {one.policy: one for one in convergences}
    quicker = np.subtract(by["tuned"].hits_percent, by["default"].hits_percent)
    stuck = np.array(by["greedy"].lost_after_drops_percent)
    return [
        _claim("4.4", "points by which tuned hits more often than default", "", quicker, math.nan, unit="points"),
        _claim("4.4", "drops of the wait after which greedy does not find it again", "", stuck, math.nan),
    ]
