"""The results of the ASA paper's evaluation (Sections 4.3 to 4.8), repeated with intervals, next to the paper's.

`asa.studies.paper.study` has the runs, `asa.studies.paper.kept` the values of the results; this module computes these.

For the submissions of Table 2 the resources are assumed to be needed when the predicted wait is over, so that

- the perceived wait is the excess of the real wait over the prediction, or 0;
- a prediction is a miss if a lower alternative is nearer to the real wait, else a hit;
- the overhead is the core-hours of an allocation that came early until it is needed, per submission.

The paper does not define these three as precisely. By these definitions its perceived waits at UPPMAX do not follow
from its own real and predicted ones. Real waits do not count among the figures that agree: either the times of
submission are chosen so that they are those of the paper, as far as the centres ever get so full, or the centres are
calibrated to them. All other figures are results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from asa.core.intervals import Interval, mean_interval
from asa.studies.accuracy.convergence import Convergence, converge
from asa.studies.accuracy.scores import closest
from asa.studies.paper.kept import (
    Accuracy,
    Breakdown,
    Claim,
    Gain,
    Normalised,
    PaperResults,
    StageMean,
    Usage,
)
from asa.studies.paper.published import (
    CORE_HOURS_SAVED,
    FIGURES,
    MAKESPAN_ABOVE_BEST,
    METRICS,
    NAIVE,
    NORMALISED,
    SIZES,
    STRATEGIES,
    TABLE_1,
    TABLE_2,
    WORKFLOWS,
    Spread,
)
from asa.studies.paper.study import (
    ASA_NAIVE,
    Outcome,
    PaperCampaign,
    PaperRun,
    Probes,
)
from asa.studies.paper.verdicts import (
    ComparedFigure,
    levelled,
    of_claim,
    verdict_on_column,
    verdict_on_row,
)
from asa.studies.runs import put_together, typical
from asa.units import core_hours

_MIN_APART = {"real_h": 0.05, "predicted_h": 0.05, "perceived_h": 0.05, "hit_percent": 0.5, "miss_percent": 0.5,
          "overhead_h": 0.5}  # half of the paper's last digit  # fmt: skip


def conclude(campaign: PaperCampaign, outcomes: Iterable[Outcome]) -> PaperResults:
    """Compute the tables, the figures' data and the verdicts from a campaign's outcomes."""
    all_outcomes = list(outcomes)
    ran = (outcome for outcome in all_outcomes if isinstance(outcome, PaperRun))
    runs = put_together(ran, lambda run: (run.mode, run.workflow, run.cores, run.strategy))
    replications = _typical_replications(runs)
    usages = [usage for mode in campaign.modes for usage in _usages(mode, runs)]
    convergences = converge(range(campaign.seed, campaign.seed + max(campaign.seeds, 10)))
    return PaperResults(
        campaign,
        tuple(usages),
        tuple(line for mode in campaign.modes for line in _normalised(mode, runs)),
        tuple(gain for mode in campaign.modes for gain in _gains(mode, runs)),
        tuple(_accuracies([outcome for outcome in all_outcomes if isinstance(outcome, Probes)])),
        tuple(convergences),
        tuple(_breakdown(of, replications[key[:3]]) for key, of in runs.items()),
        tuple([claim for mode in campaign.modes for claim in _claims(mode, runs)] + _claims_of_5(convergences)),
    )


_Runs = Mapping[tuple[str, str, int, str], Sequence[PaperRun]]


def _usages(mode: str, runs: _Runs) -> Iterable[Usage]:
    for workflow in WORKFLOWS:
        for system, sizes in SIZES.items():
            for cores in sizes:
                row = {name: runs[mode, workflow, cores, name] for name in STRATEGIES}
                for strategy in STRATEGIES:
                    compared = [_compared_in_row(metric, strategy, row, workflow, cores) for metric in METRICS]
                    yield Usage(mode, workflow, system, cores, strategy, *compared)


def _compared_in_row(
    metric: str, strategy: str, row: Mapping[str, Sequence[PaperRun]], workflow: str, cores: int
) -> ComparedFigure:
    ours = _samples(metric, row)
    published = {name: float(getattr(cell, metric)) for name, cell in TABLE_1[workflow][cores].items()}
    return _judged(ours, published, strategy)


def _samples(metric: str, row: Mapping[str, Sequence[PaperRun]]) -> dict[str, list[float]]:
    """Return each strategy's figure in every replication."""
    return {name: [float(getattr(run, metric)) for run in of] for name, of in row.items()}


def _judged(ours: Mapping[str, Sequence[float]], published: Mapping[str, float], strategy: str) -> ComparedFigure:
    verdict, alike = (verdict_on_row(row, published, strategy) for row in (ours, levelled(ours)))
    return ComparedFigure.of(mean_interval(ours[strategy]).within(0.0), published[strategy], verdict, alike)


def _normalised(mode: str, runs: _Runs) -> Iterable[Normalised]:
    for workflow in WORKFLOWS:
        above = {metric: _above(mode, workflow, metric, runs) for metric in METRICS}
        for strategy in STRATEGIES:
            compared = []
            for index, metric in enumerate(METRICS):
                # relative to the best: 100 % is the best itself, so that ratios are meaningful
                ours = {name: (100 + above[metric][name]).tolist() for name in STRATEGIES}
                published = {name: 100.0 + NORMALISED[workflow][name][index] for name in STRATEGIES}
                judged = _judged(ours, published, strategy)
                mean = mean_interval(above[metric][strategy].tolist())
                stated = NORMALISED[workflow][strategy][index]
                compared.append(ComparedFigure.of(mean, stated, judged.verdict, judged.alike))
            yield Normalised(mode, workflow, strategy, *compared)


def _above(mode: str, workflow: str, metric: str, runs: _Runs) -> dict[str, NDArray[np.float64]]:
    """Return, averaged over sizes, by how many percent a strategy exceeds the best one, in every replication."""
    sizes: list[dict[str, NDArray[np.float64]]] = []
    for cores in TABLE_1[workflow]:
        row = _samples(metric, {name: runs[mode, workflow, cores, name] for name in STRATEGIES})
        best = min(row.values(), key=lambda values: float(np.mean(values)))
        if least := float(np.mean(best)):
            sizes.append({name: 100 * np.subtract(values, best) / least for name, values in row.items()})
    if not sizes:
        replications = len(next(iter(runs.values())))
        return dict.fromkeys(STRATEGIES, np.full(replications, math.nan))
    return {name: np.mean([size[name] for size in sizes], axis=0) for name in STRATEGIES}


def _gains(mode: str, runs: _Runs) -> Iterable[Gain]:
    for workflow in WORKFLOWS:
        for system, sizes in SIZES.items():
            for cores in sizes:
                pair = {name: runs[mode, workflow, cores, name] for name in ("per-stage", "asa")}
                ours = _samples("makespan_s", pair)
                published = {name: float(TABLE_1[workflow][cores][name].makespan_s) for name in pair}
                judged = _judged(ours, published, "per-stage")
                saved = np.subtract(ours["per-stage"], ours["asa"]) / np.mean(ours["per-stage"])
                mean, stated = (
                    mean_interval((100 * saved).tolist()),
                    100 * (1 - published["asa"] / published["per-stage"]),
                )
                yield Gain(mode, workflow, system, cores, ComparedFigure.of(mean, stated, judged.verdict, judged.alike))


def _accuracies(probes: Sequence[Probes]) -> Iterable[Accuracy]:
    for workflow in WORKFLOWS:
        by_size = {cores: [probe for probe in probes if (probe.workflow, probe.cores) == (workflow, cores)]
                   for cores in TABLE_2[workflow]}  # fmt: skip
        figures = {cores: _figures(of) for cores, of in by_size.items()}
        for cores, of in by_size.items():
            compared = {name: _compared_in_column(name, cores, figures, workflow) for name in _MIN_APART}
            yield Accuracy(
                workflow,
                of[0].system,
                cores,
                sum(len(accuracy.real_s) for accuracy in of),
                **compared,
                real_sd_h=_deviation_h(accuracy.real_s for accuracy in of),
                predicted_sd_h=_deviation_h(accuracy.predicted_s for accuracy in of),
            )


def _deviation_h(waits_s: Iterable[Sequence[float]]) -> float:
    return float(np.std(np.concatenate([*map(np.asarray, waits_s)]))) / 3600


def _figures(probes: Sequence[Probes]) -> dict[str, list[float]]:
    """Average each figure over submissions, in every replication."""
    means: dict[str, list[float]] = {name: [] for name in _MIN_APART}
    for probe in probes:
        real, predicted = np.asarray(probe.real_s), np.asarray(probe.predicted_s)
        missed = float((closest(predicted) > closest(real)).mean())
        early = float(np.maximum(predicted - real, 0).mean())
        values = (
            real.mean() / 3600,
            predicted.mean() / 3600,
            np.maximum(real - predicted, 0).mean() / 3600,
            100 * (1 - missed),
            100 * missed,
            core_hours(probe.cores, early),
        )
        for name, value in zip(means, values, strict=True):
            means[name].append(float(value))
    return means


def _compared_in_column(
    name: str, cores: int, figures: Mapping[int, Mapping[str, list[float]]], workflow: str
) -> ComparedFigure:
    ours = {size: of[name] for size, of in figures.items()}
    column: dict[int, Spread] = {size: getattr(row, name) for size, row in TABLE_2[workflow].items()}
    published = {size: spread.mean for size, spread in column.items()}
    verdict, alike = (verdict_on_column(of, published, cores, least=_MIN_APART[name]) for of in (ours, levelled(ours)))
    most = 100.0 if name in {"hit_percent", "miss_percent"} else math.inf
    return ComparedFigure.of(mean_interval(ours[cores]).within(0.0, most), published[cores], verdict, alike)


def _typical_replications(runs: _Runs) -> dict[tuple[str, str, int], int]:
    """Choose for each mode, workflow and size a replication that is typical of all strategies."""
    spans: dict[tuple[str, str, int], dict[int, float]] = {}
    for (mode, workflow, cores, _), of in runs.items():
        by_seed = spans.setdefault((mode, workflow, cores), {})
        for run in of:
            by_seed[run.seed] = by_seed.get(run.seed, 0.0) + run.makespan_s
    return {key: typical(by_seed) for key, by_seed in spans.items()}


def _breakdown(runs: Sequence[PaperRun], replication: int) -> Breakdown:
    first = next(run for run in runs if run.seed == replication)
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
                float(np.mean([run.stages[index].perceived_wait_s for run in runs])),
                float(np.mean([run.stages[index].run_s for run in runs])),
            )
            for index, stage in enumerate(first.stages)
        ),
        mean_interval([run.makespan_s for run in runs]).within(0.0),
        mean_interval([run.core_hours for run in runs]).within(0.0),
        float(np.mean([run.overhead_core_hours for run in runs])),
        float(np.mean([run.resubmissions for run in runs])),
        first.seed,
        first.timeline,
    )


def _claims(mode: str, runs: _Runs) -> Iterable[Claim]:
    """Compute, for each seed, the claims of the text about all runs."""
    seeds = [run.seed for run in next(iter(runs.values()))]
    shape = (len(WORKFLOWS), sum(map(len, SIZES.values())), len(STRATEGIES), len(seeds))

    def all_of(metric: str) -> NDArray[np.float64]:
        """Return a figure by workflow, size, strategy and seed."""
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
    if naive := runs.get((mode, workflow, cores, ASA_NAIVE)):
        spans = np.array([run.makespan_s for run in runs[mode, workflow, cores, "asa"]])
        later = (np.array([run.makespan_s for run in naive]) - spans) / spans.mean()
        text = f"ASA Naive's makespan above ASA's, {workflow} on {cores} cores of {system}"
        yield _claim("4.6", text, mode, 100 * later, math.nan)


def _claim(
    section: str,
    text: str,
    mode: str,
    of_seeds: NDArray[np.float64],
    published: float,
    *,
    unit: Literal["%", "points"] = "%",
    fitted: bool = False,
) -> Claim:
    ours = mean_interval(of_seeds.tolist())
    verdict, alike = (of_claim(figure, published) for figure in (ours, Interval(0.0, 0.0, 0.0)))
    return Claim(section, text, mode, unit, ours, published, verdict, alike, fitted)


def _claims_of_5(convergences: Sequence[Convergence]) -> list[Claim]:
    by = {convergence.policy: convergence for convergence in convergences}
    quicker = np.subtract(by["tuned"].hits_percent, by["default"].hits_percent)
    stuck = np.array(by["greedy"].lost_after_drops_percent)
    return [
        _claim("4.4", "points by which tuned hits more often than default", "", quicker, math.nan, unit="points"),
        _claim("4.4", "drops of the wait after which greedy does not find it again", "", stuck, math.nan),
    ]
