"""The ASA paper's evaluation (Sections 4.3 to 4.8) done anew, with intervals.

**Runs.** Three workflows at three sizes on each of two centres under three strategies are 54 runs, and ASA Naive for
Montage on 112 cores is one more; each is done at several moments of a simulated queue, one a seed. *Sequentially* each
workflow runs in a copy of its own of the same queue; *concurrently* the three workflows of a size are handed over in
one queue, one a minute, and run side by side. On a centre all runs of a strategy share one estimator, seed after seed,
size after size: what it learned from one workflow it knows for the next.

**Submissions.** For Table 2 each workflow's widest job is submitted 60 times, one a minute, while an estimator predicts
each wait and is told it when the job starts. Such a job asks for what the stage asks for and ends after a second: it is
there to measure the queue. The resources are taken to be needed the predicted wait after the submission, so that

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
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from asa import plugins
from asa.backend import Backend, JobSpec, Site
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
from asa.campaign.verdicts import RULE, Compared, Verdict, above_best, beside_others, beside_sizes, count, of_claim
from asa.cells import Kind, code_digest, fill
from asa.errors import InputError, RunError
from asa.estimators import OwnJob, WaitBank
from asa.evaluation import closest
from asa.experiment import Interval, mean_interval, workflow_maker
from asa.metrics import StageTimes, measure
from asa.runner import Run, run_all
from asa.runner.active import queued
from asa.strategies import load_strategy
from asa.units import core_hours
from asa.waits import exactly
from asa.workflow import Stage, Workflow

__all__ = [
    "Accuracy",
    "Breakdown",
    "Campaign",
    "Cell",
    "Claim",
    "Normalised",
    "PaperResults",
    "PaperRun",
    "Probes",
    "StageMean",
    "Usage",
    "conclude",
    "run_campaign",
]

Mode = Literal["sequential", "concurrent"]
_MODES: tuple[Mode, ...] = ("sequential", "concurrent")
_SUBMISSIONS = "submissions"
_BETWEEN_S = 60.0
_LEAST = {"real_h": 0.05, "predicted_h": 0.05, "perceived_h": 0.05, "hit_percent": 0.5, "miss_percent": 0.5,
          "overhead_h": 0.5}  # half of the paper's last digit  # fmt: skip


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
        settings = (self.seed, self.seeds, self.estimator, self.history, self.age_accrues, code_digest())
        system, workflow, cores = NAIVE
        return [
            *(Cell(mode, name, "", 0, strategy, *settings)
              for mode in self.modes for name in SIZES for strategy in STRATEGIES),
            Cell("sequential", system, workflow, cores, "asa-naive", *settings),
            *(Cell(_SUBMISSIONS, name, workflow, cores, "", *settings)
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
        Which; all of the centre for an empty name.
    strategy
        Its name.
    seed, seeds, estimator, history, age_accrues
        The campaign's.
    code
        Digest of this package: what other code did is another cell.
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
    """One run of a workflow; see `asa.metrics.RunMetrics`."""

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


@dataclass(frozen=True, slots=True)
class Probes:
    """Submissions of one geometry at one moment: real and predicted wait of each, in seconds."""

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

    Raises
    ------
    InputError
        See `Campaign.cells`.
    RunError
        A run did not complete.
    StateError
        The file cannot be read or written.
    """
    kind = Kind(run_cell, lambda told: Cell(**told), _outcome)
    outcomes = fill(campaign.cells(), kind, kept, jobs=jobs, elsewhere=elsewhere, on_progress=on_progress)
    return [outcome for cell in outcomes.values() for outcome in cell]


def _outcome(told: Mapping[str, Any]) -> Outcome:
    """Make an outcome of what was kept of it."""
    if "stages" in told:
        return PaperRun(**{**told, "stages": tuple(StageTimes(**stage) for stage in told["stages"])})
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
        return [_submit(cell, site.open(seed), seed, job, bank) for seed in seeds]
    names = (cell.workflow,) if cell.workflow else WORKFLOWS
    return [
        run
        for seed in seeds
        for cores in ((cell.cores,) if cell.cores else SIZES[cell.system])
        for together in ([names] if cell.what == "concurrent" else [(name,) for name in names])
        for run in _run_together(cell, seed, cores, together, bank)
    ]


def _run_together(cell: Cell, seed: int, cores: int, names: Sequence[str], bank: WaitBank) -> list[PaperRun]:
    world = _site(cell.system, age_accrues=cell.age_accrues).open(seed)
    workflows = [workflow_maker(name)(cores) for name in names]
    strategy = load_strategy(cell.strategy)
    runs = [Run(flow, strategy, bank=bank, delay_s=_BETWEEN_S * place) for place, flow in enumerate(workflows)]
    told = []
    for name, flow, result in zip(names, workflows, run_all(world, runs, history=cell.history), strict=True):
        if result.outcome != "completed":
            where = f"{name} on {cores} cores of {cell.system}, {cell.strategy}, seed {seed}"
            raise RunError(f"did not complete: {result.reason}", where=where, hint="Look at it with: asa compare.")
        m = measure(flow, result.records)
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
            )
        )
    return told


def _widest(workflow: Workflow) -> Stage:
    """Give a workflow's widest stage, of these the longest."""
    return max(workflow.stages.values(), key=lambda stage: (stage.cores or 0, stage.walltime_s))


def _submit(cell: Cell, world: Backend, seed: int, stage: Stage, bank: WaitBank) -> Probes:
    """Submit a stage's job again and again, and see how long each waits."""
    bank.lose_sight()
    began_s = world.now()
    spec = JobSpec(stage.name, cores=cell.cores, walltime_s=stage.walltime_s, run_s=1.0)
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
    """A cell of Table 1: one strategy on one workflow, beside the paper's."""

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
    """A line below Table 1: percent above the best strategy of each size, averaged over the sizes."""

    mode: str
    workflow: str
    strategy: str
    twt_s: Compared
    makespan_s: Compared
    core_hours: Compared


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A row of Table 2, with the standard deviations of real and predicted waits over all submissions, in hours."""

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
    """A stage of a bar in Figs 6 to 8, averaged over the seeds."""

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


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that the paper's text says: in words, as a percentage of ours, and the paper's where it gives one."""

    where: str
    words: str
    mode: str
    ours: Interval
    published: float
    verdict: Verdict


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

    def verdicts(self) -> dict[str, dict[Verdict, int]]:
        """Count the verdicts of each table, by mode where there are several."""
        told = {
            f"Table 1, {mode}": [getattr(row, metric).verdict for row in self.usages if row.mode == mode
                                 for metric in METRICS]
            for mode in self.campaign.modes
        }  # fmt: skip
        for mode in self.campaign.modes:
            rows = [row for row in self.normalised if row.mode == mode]
            told[f"its averages, {mode}"] = [getattr(row, metric).verdict for row in rows for metric in METRICS]
        told["Table 2"] = [getattr(row, name).verdict for row in self.accuracies for name in _LEAST]
        told["claims of the text"] = [claim.verdict for claim in self.claims]
        return {table: count(verdicts) for table, verdicts in told.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what is not known is null."""
        return {**as_plain(asdict(self)), "verdicts": self.verdicts()}


def conclude(campaign: Campaign, outcomes: Iterable[Outcome]) -> PaperResults:
    """Work out the tables, the figures' data and the verdicts from a campaign's outcomes."""
    told = list(outcomes)
    runs: dict[tuple[str, str, int, str], list[PaperRun]] = {}
    for run in told:
        if isinstance(run, PaperRun):
            runs.setdefault((run.mode, run.workflow, run.cores, run.strategy), []).append(run)
    usages = [usage for mode in campaign.modes for usage in _usages(mode, runs)]
    convergences = converge(range(campaign.seed, campaign.seed + max(campaign.seeds, 10)))
    return PaperResults(
        campaign,
        tuple(usages),
        tuple(line for mode in campaign.modes for line in _normalised(mode, usages)),
        tuple(_accuracies([one for one in told if isinstance(one, Probes)])),
        tuple(convergences),
        tuple(_breakdown(of) for of in runs.values()),
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
    ours = {name: mean_interval([getattr(run, metric) for run in of]) for name, of in row.items()}
    published = {name: float(getattr(cell, metric)) for name, cell in TABLE_1[workflow][cores].items()}
    verdict = beside_others({name: interval.mean for name, interval in ours.items()}, published, strategy)
    return Compared.of(ours[strategy], published[strategy], verdict)


def _normalised(mode: str, usages: Sequence[Usage]) -> Iterable[Normalised]:
    for workflow in WORKFLOWS:
        rows = [row for row in usages if (row.mode, row.workflow) == (mode, workflow)]
        means = {metric: _above_best(rows, metric) for metric in METRICS}
        for strategy in STRATEGIES:
            compared = []
            for place, metric in enumerate(METRICS):
                ours = {name: 100 + above for name, above in means[metric].items()}
                published = {name: 100.0 + NORMALISED[workflow][name][place] for name in STRATEGIES}
                verdict = beside_others(ours, published, strategy)
                mean = Interval(means[metric][strategy], math.nan, math.nan)
                compared.append(Compared.of(mean, NORMALISED[workflow][strategy][place], verdict))
            yield Normalised(mode, workflow, strategy, *compared)


def _above_best(rows: Sequence[Usage], metric: str) -> dict[str, float]:
    sizes = dict.fromkeys(row.cores for row in rows)
    above = [
        above_best({row.strategy: getattr(row, metric).ours.mean for row in rows if row.cores == cores})
        for cores in sizes
    ]
    return {name: float(np.nanmean([one[name] for one in above])) for name in STRATEGIES}


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


def _figures(probes: Sequence[Probes]) -> dict[str, Interval]:
    """Average each figure over submissions, then seeds."""
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
    return {name: mean_interval(values) for name, values in means.items()}


def _beside_column(name: str, cores: int, figures: Mapping[int, Mapping[str, Interval]], workflow: str) -> Compared:
    ours = {size: of[name].mean for size, of in figures.items()}
    column: dict[int, Spread] = {size: getattr(row, name) for size, row in TABLE_2[workflow].items()}
    published = {size: spread.mean for size, spread in column.items()}
    verdict = beside_sizes(ours, published, cores, deviation=column[cores].deviation, least=_LEAST[name])
    return Compared.of(figures[cores][name], published[cores], verdict)


def _breakdown(runs: Sequence[PaperRun]) -> Breakdown:
    first = runs[0]
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
        mean_interval([run.makespan_s for run in runs]),
        mean_interval([run.core_hours for run in runs]),
        float(np.mean([run.overhead_core_hours for run in runs])),
        float(np.mean([run.resubmissions for run in runs])),
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
    yield _claim("6", "core-hours that ASA saves of Big Job's, in sum", mode, 100 * saved, CORE_HOURS_SAVED)
    system, workflow, cores = NAIVE
    if naive := runs.get((mode, workflow, cores, "asa-naive")):
        spans = np.array([run.makespan_s for run in runs[mode, workflow, cores, "asa"]])
        later = (np.array([run.makespan_s for run in naive]) - spans) / spans.mean()
        words = f"ASA Naive's makespan above ASA's, {workflow} on {cores} cores of {system}"
        yield _claim("4.6", words, mode, 100 * later, math.nan)


def _claim(section: str, words: str, mode: str, of_seeds: NDArray[np.float64], published: float) -> Claim:
    ours = mean_interval(of_seeds.tolist())
    return Claim(section, words, mode, ours, published, of_claim(ours, published))


def _claims_of_5(convergences: Sequence[Convergence]) -> list[Claim]:
    by = {one.policy: one for one in convergences}
    quicker = np.subtract(by["tuned"].hits_percent, by["default"].hits_percent)
    stuck = np.array(by["greedy"].lost_after_drops_percent)
    return [
        _claim("4.4", "points by which tuned hits more often than default", "", quicker, math.nan),
        _claim("4.4", "drops of the wait after which greedy does not find it again", "", stuck, math.nan),
    ]
