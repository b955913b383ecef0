"""Tables 2, 3 and 4 of the paper with the study's results: means over seeds, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from asa.core.intervals import Interval, mean_interval, statistic_interval

from .paper import TABLE_2, TABLE_3, TABLE_4, TABLE_4_MEASURES
from .study import VERSIONS, Actions, Study, Version, Which

Means = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PaperNumber:
    """A number of the paper, and ours."""

    jobs: int | None  # size of the workload; None for all sizes
    # fixed, synchronous (which the throughput study calls flexible), asynchronous; or the change from the first
    version: Version | str
    what: str
    paper: float | None  # None if the paper has none
    ours: Interval

    def as_dict(self) -> dict[str, object]:
        """Return the numbers as JSON-ready data."""
        fields = {"jobs": self.jobs, "version": self.version, "what": self.what, "paper": self.paper}
        ours = {"value": self.ours.mean, "low": self.ours.low, "high": self.ours.high}
        return {**fields, "ours": {name: None if math.isnan(bound) else bound for name, bound in ours.items()}}


def _measured(study: Study, which: Which, version: Version, jobs: int, what: str) -> list[float]:
    return [getattr(outcome.measures, what) for outcome in study.outcomes[which, version, jobs]]


def table_2(study: Study) -> list[PaperNumber]:
    """Return the actions per job in the largest preliminary workload, and the mean seconds of each."""
    jobs = study.jobs("preliminary")[-1]
    rows = []
    for version in VERSIONS["preliminary"][1:]:
        papers = TABLE_2[version] if jobs == 400 else {}
        for field in fields(Actions):
            values = [getattr(outcome.actions, field.name) for outcome in study.outcomes["preliminary", version, jobs]]
            rows.append(
                PaperNumber(
                    jobs, version, field.name, papers.get(field.name), _possible(field.name, mean_interval(values))
                )
            )
    return rows


def table_3(study: Study) -> list[PaperNumber]:
    """Return means over the sizes of preliminary workloads, and deviations: of utilisation, and of the gains of jobs.

    Deviations have no interval: it would not be valid if sizes hardly differ.
    """
    rows = []
    for what, papers in TABLE_3.items():
        measure = what.removesuffix(" gain")
        by_size = _flexible if what == measure else _gains
        for version in VERSIONS["preliminary"]:
            if version not in papers:
                continue
            values = [
                [_measured(study, "preliminary", of, jobs, measure) for jobs in study.jobs("preliminary")]
                for of in ("fixed", version)
            ]
            by_seed = np.moveaxis(np.array(values), 2, 0)
            mean, deviation = (statistic_interval(_of(statistic, by_size), by_seed) for statistic in (_mean, _std))
            mean = _possible(what, mean) if what == measure else mean
            rows.append(PaperNumber(None, version, what, papers[version][0], mean))
            no_more = Interval(deviation.mean, math.nan, math.nan)
            rows.append(PaperNumber(None, version, f"{what}, deviation", papers[version][1], no_more))
    return rows


def table_4(study: Study) -> list[PaperNumber]:
    """Return means of jobs in the throughput workloads, and their changes: of utilisation in points, else in %."""
    rows = []
    for jobs in study.jobs("throughput"):
        for index, what in enumerate(TABLE_4_MEASURES):
            change = _points if what == "utilisation" else _growth
            values = [_measured(study, "throughput", version, jobs, what) for version in VERSIONS["throughput"]]
            by_seed = np.array(values).T
            papers = [TABLE_4[jobs][version][index] for version in ("fixed", "flexible")] if jobs in TABLE_4 else None
            for column, version in enumerate(("fixed", "flexible")):
                paper = papers[column] if papers else None
                interval = mean_interval(by_seed[:, column].tolist())
                rows.append(PaperNumber(jobs, version, what, paper, _possible(what, interval)))
            paper = change(np.array(papers)) if papers else None
            rows.append(PaperNumber(jobs, "change", what, paper, statistic_interval(change, by_seed)))
    return rows


def _possible(what: str, interval: Interval) -> Interval:
    """Restrict an interval to the possible values of its measure."""
    return interval.within(0.0, {"utilisation": 100.0, "timed_out": 1.0}.get(what, math.inf))


def _of(statistic: Callable[[Means], float], by_size: Callable[[Means], Means]) -> Callable[[Means], float]:
    return lambda both: statistic(by_size(both))


def _mean(values: Means) -> float:
    return float(values.mean()) if len(values) else math.nan


def _std(values: Means) -> float:
    return float(values.std()) if len(values) else math.nan


def _flexible(both: Means) -> Means:
    flexible: Means = both[1]
    return flexible


def _gains(both: Means) -> Means:
    """Return by how many percent each value is less than in the fixed version; values that are 0 in it are left out."""
    fixed, flexible = both[:, both[0] > 0]
    return np.asarray(100 * (1 - flexible / fixed), dtype=np.float64)


def _points(both: Means) -> float:
    return float(both[1] - both[0])


def _growth(both: Means) -> float:
    return float(100 * (both[1] / both[0] - 1))
