"""Values of the results of the ASA paper's evaluation: each figure with the paper's, and its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from asa.core.intervals import Interval
from asa.studies.accuracy.convergence import Convergence
from asa.studies.paper.published import METRICS
from asa.studies.paper.study import PaperCampaign
from asa.studies.paper.verdicts import RULE, ComparedFigure, Verdict, count
from asa.studies.plain import as_plain
from asa.timeline import Timeline

BY_CONSTRUCTION = "core-hours, by construction"
_ALIKE = "if all were alike"
_FITTED: Final = "core_hours"
# columns of Table 2; see `PaperResults.tallies`
_COUNTED_2 = ("predicted_h", "perceived_h", "hit_percent", "overhead_h")


@dataclass(frozen=True, slots=True)
class Usage:
    """A cell of Table 1: one strategy on one workflow, compared with the paper's."""

    mode: str  # how workflows were submitted, see `asa.studies.paper.study`
    workflow: str  # workflow, system, cores and strategy of the runs
    system: str
    cores: int
    strategy: str
    twt_s: ComparedFigure  # total waiting time and makespan, in seconds
    makespan_s: ComparedFigure
    core_hours: ComparedFigure


@dataclass(frozen=True, slots=True)
class Normalised:
    """A line below Table 1: percent above the best strategy of each size, averaged over the sizes."""

    mode: str  # how workflows were submitted, see `asa.studies.paper.study`
    workflow: str
    strategy: str
    twt_s: ComparedFigure  # of total waiting time, of makespan and of core-hours; each in percent
    makespan_s: ComparedFigure
    core_hours: ComparedFigure


@dataclass(frozen=True, slots=True)
class Gain:
    """Percent by which ASA's makespan is below Per-Stage's, compared with that of Table 1."""

    mode: str  # how workflows were submitted, see `asa.studies.paper.study`
    workflow: str  # workflow, system and cores of the runs
    system: str
    cores: int
    makespan_s: ComparedFigure  # in percent; the verdict is that of Per-Stage's makespan in a row with ASA's


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A row of Table 2, compared with the paper's: means over seeds; `paper.findings` has the definitions."""

    workflow: str  # the workflow whose widest job was submitted, the centre, and the cores
    system: str
    cores: int
    submissions: int  # number of submissions of all seeds together
    real_h: ComparedFigure
    predicted_h: ComparedFigure
    perceived_h: ComparedFigure
    hit_percent: ComparedFigure  # shares of predictions that were not too long, and that were too long
    miss_percent: ComparedFigure
    overhead_h: ComparedFigure  # core-hours per submission of allocations that came early
    real_sd_h: float  # standard deviations of real and predicted waits over all submissions, in hours
    predicted_sd_h: float


@dataclass(frozen=True, slots=True)
class StageMean:
    """A stage of a bar in Figs 6 to 8, averaged over the seeds."""

    stage: str
    wait_s: float  # perceived wait and run time, in seconds
    run_s: float


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A bar of Figs 6 to 8, the parts of a makespan; and its core-hours, a bar of Fig. 9."""

    figure: str
    mode: str
    workflow: str
    system: str
    cores: int
    strategy: str
    stages: tuple[StageMean, ...]
    makespan_s: Interval  # means over the seeds; the unused core-hours are a part of the core-hours
    core_hours: Interval
    overhead_core_hours: float
    resubmissions: float
    seed: int  # the replication that the timeline shows, which all strategies share
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper's text, and our number for it."""

    where: str  # the section, the claim, and the runs that it is about
    words: str
    mode: str
    unit: Literal["%", "points"]  # percent, or percentage points
    ours: Interval  # ours, and the paper's, which is nan if it only claims some effect
    published: float
    verdict: Verdict  # see `asa.studies.paper.verdicts.ComparedFigure`; in a world without differences the figure is 0
    alike: Verdict
    fitted: bool  # whether the workflows are fitted to it, so that it agrees by construction


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of times that each verdict was given in a table, and would be given in a world without differences."""

    table: str  # the table, such as `Table 2`
    verdicts: dict[Verdict, int]  # number of figures with each verdict: here, and in a world without differences
    alike: dict[Verdict, int]

    @classmethod
    def of(cls, table: str, judged: Iterable[ComparedFigure | Claim]) -> Tally:
        """Count the verdicts."""
        judgements = list(judged)
        return cls(
            table,
            count(judgement.verdict for judgement in judgements),
            count(judgement.alike for judgement in judgements),
        )


@dataclass(frozen=True, slots=True)
class PaperResults:
    """All results, compared with what the paper prints."""

    campaign: PaperCampaign
    usages: tuple[Usage, ...]  # table 1, and the lines below it
    normalised: tuple[Normalised, ...]
    gains: tuple[Gain, ...]
    accuracies: tuple[Accuracy, ...]
    convergences: tuple[Convergence, ...]
    breakdowns: tuple[Breakdown, ...]
    claims: tuple[Claim, ...]
    rule: str = RULE  # the rule of the verdicts

    def tallies(self) -> list[Tally]:
        """Count the verdicts of each table, by mode.

        Core-hours, to which the workflows are fitted, are counted separately. Hits and misses add up to 100 %, so only
        hits are counted.
        """
        counted: list[Tally] = []
        lines: tuple[tuple[str, Sequence[Usage | Normalised]], ...] = (
            ("Table 1", self.usages),
            ("its averages", self.normalised),
        )
        for words, rows in lines:
            counted += [
                Tally.of(f"{words}, {mode}", [getattr(row, metric) for row in rows if row.mode == mode
                                              for metric in METRICS if metric != _FITTED])
                for mode in self.campaign.modes
            ]  # fmt: skip
        counted.append(Tally.of("Table 2", [getattr(row, name) for row in self.accuracies for name in _COUNTED_2]))
        counted.append(Tally.of("claims of the text", [claim for claim in self.claims if not claim.fitted]))
        fitted: list[ComparedFigure | Claim] = [getattr(row, _FITTED) for _, rows in lines for row in rows]
        counted.append(Tally.of(BY_CONSTRUCTION, [*fitted, *(claim for claim in self.claims if claim.fitted)]))
        return [tally for tally in counted if sum(tally.verdicts.values())]

    def verdicts(self) -> dict[str, dict[Verdict, int]]:
        """Return the counts of `tallies` by name, each with those of a world without differences."""
        counts: dict[str, dict[Verdict, int]] = {}
        for tally in self.tallies():
            counts[tally.table] = tally.verdicts
            if tally.table != BY_CONSTRUCTION:
                counts[f"{tally.table}: {_ALIKE}"] = tally.alike
        return counts

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; unknown values are null."""
        return {**as_plain(asdict(self)), "verdicts": self.verdicts()}
