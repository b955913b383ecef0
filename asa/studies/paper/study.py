"""The runs of the ASA paper's evaluation (Sections 4.3 to 4.8), and the results of each part.

**Runs.** Three workflows at three sizes on each of two centres under three strategies are 54 runs, and ASA Naive for
Montage on 112 cores is one more; each is run in several replications, one a seed. *Sequentially*, each workflow runs in
its own copy of the same queue. *Concurrently*, the three workflows of a size are submitted to one queue, one a minute,
and run at the same time. On a centre all runs of a strategy share one estimator, seed after seed, size after size: it
uses for one workflow what it learned from those before. The same holds for ASA Naive: all workflows and sizes are run
with it in both modes, though only Montage on 112 cores counts.

**Submissions.** For Table 2 each workflow's widest job is submitted 60 times, one a minute, while an estimator predicts
each wait and learns it when the job starts. Such a job has the stage's request and ends after a second: it only
measures the queue. The paper's waits in Table 2 are many times those in Table 1: the queue was fuller then. The
centres are calibrated to either table. Those of Table 1 are seldom as full as Table 2 has them, so for each seed the
submissions begin at a chosen time: of times every four hours through twelve days, that at which the job's wait in the
following hour is closest to the paper's mean. In those of Table 2 they begin when the user arrives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from asa.backend import Backend, Foresight, JobSpec, Site
from asa.core import plugins
from asa.errors import InputError
from asa.estimators import OwnJob, WaitBank
from asa.metrics import StageTimes
from asa.observations import queued
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.studies.compare.study import workflow_maker
from asa.studies.harness import How, Kind, code_digest, fill
from asa.studies.paper.published import NAIVE, PROBES, SIZES, STRATEGIES, TABLE_2, WORKFLOWS
from asa.studies.runs import measured, simulated
from asa.timeline import Timeline
from asa.waits import exactly
from asa.workflow import Stage, Workflow

Mode = Literal["sequential", "concurrent"]
Waits = Literal["table-1", "table-2"]

ASA_NAIVE = "asa-naive"
"""The strategy that the paper runs once; see `asa.studies.paper.published.NAIVE`."""

_MODES: tuple[Mode, ...] = ("sequential", "concurrent")
_SUBMISSIONS = "submissions"
_BETWEEN_S = 60.0
_LOOK_S, _WITHIN_S = 4 * 3600.0, 12 * 86400.0  # step and range of the search for a queue as full as the paper's


@dataclass(frozen=True, slots=True)
class PaperCampaign:
    """The parameters of the campaign."""

    seeds: int = 20
    seed: int = 0
    # the estimator, and the number of past jobs of all users that it learns before each run. The paper's is Algorithm 1
    # with the tuned policy, which learns only from its own jobs
    estimator: str = "asa-tuned"
    history: int = 0
    # whether a job gains priority while a dependency holds it; the paper's results require it
    age_accrues: bool = True
    modes: tuple[Mode, ...] = _MODES  # how workflows are submitted
    waits: Waits = "table-1"  # table of the paper to whose waits the simulated centres are calibrated

    def cells(self) -> list[PaperCell]:
        """Return all units of work."""
        if self.seeds < 1 or not self.modes:
            raise InputError("there is nothing to run", where="--seeds", hint="Ask for at least one run of each.")
        if self.history < 0:
            raise InputError(f"a history of {self.history} jobs cannot be", where="--history", hint="Give 0 or more.")
        plugins.load("asa.estimators", self.estimator)
        settings = (self.seed, self.seeds, self.estimator, self.history, self.age_accrues, self.waits)
        named = [("asa.estimators", self.estimator), *(("asa.workflows", name) for name in WORKFLOWS)]
        codes = {name: code_digest([*named, ("asa.strategies", name)]) for name in (*STRATEGIES, ASA_NAIVE)}
        return [
            *(PaperCell(mode, name, "", 0, strategy, *settings, codes[strategy])
              for mode in self.modes for name in SIZES for strategy in STRATEGIES),
            *(PaperCell(mode, NAIVE[0], "", 0, ASA_NAIVE, *settings, codes[ASA_NAIVE]) for mode in self.modes),
            *(PaperCell(_SUBMISSIONS, name, workflow, cores, "", *settings, code_digest(named))
              for name, sizes in SIZES.items() for workflow in WORKFLOWS for cores in sizes),
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PaperCell:
    """A unit of work: all runs that share an estimator."""

    what: str  # a mode, or the submissions for Table 2
    system: str
    workflow: str  # the workflow whose jobs are submitted; in a mode, all workflows are run at all sizes of the centre
    cores: int
    strategy: str  # its name; of ASA Naive only the run that the paper has is kept
    seed: int
    seeds: int
    estimator: str
    history: int
    age_accrues: bool
    waits: Waits
    code: str  # digest of all code; another digest makes another cell

    @property
    def site(self) -> Site:
        """The simulated centre."""
        system = self.system if self.waits == "table-1" else f"{self.system}-table2"
        return simulated(system=system, age_accrues=self.age_accrues)


@dataclass(frozen=True, slots=True)
class PaperRun:
    """One run of a workflow, see `asa.metrics.RunMetrics`; and what its jobs did."""

    mode: str  # how workflows were submitted, see `Mode`
    system: str  # system, workflow, cores, strategy and replication of the run
    workflow: str
    cores: int
    strategy: str
    seed: int
    twt_s: float  # total waiting time and makespan, in seconds
    makespan_s: float
    core_hours: float  # core-hours allocated, and of these unused
    overhead_core_hours: float
    hits: int  # number of wait predictions that were not too long, and that were too long
    misses: int
    resubmissions: int  # number of jobs that were submitted again
    stages: tuple[StageTimes, ...]  # all stages, in the workflow's order
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class Probes:
    """Submissions of one geometry in one replication."""

    system: str  # centre, workflow whose widest job it is, peak size, replication
    workflow: str
    cores: int
    seed: int
    real_s: tuple[float, ...]  # waits in seconds, in order of submission
    predicted_s: tuple[float, ...]


Outcome = PaperRun | Probes


def run_campaign(campaign: PaperCampaign, kept: Path | None = None, **how: Unpack[How]) -> list[Outcome]:
    """Run every cell whose outcome is not kept already; see `asa.studies.harness.fill`."""
    outcomes = fill(campaign.cells(), Kind(run_cell, PaperCell, _outcome), kept, **how)
    return [outcome for of in outcomes.values() for outcome in of]


def _outcome(**fields: Any) -> Outcome:
    """Make an outcome from its kept fields."""
    if "stages" in fields:
        stages = tuple(StageTimes(**stage) for stage in fields["stages"])
        return PaperRun(**{**fields, "stages": stages, "timeline": Timeline.from_dict(fields["timeline"])})
    return Probes(**{**fields, "real_s": tuple(fields["real_s"]), "predicted_s": tuple(fields["predicted_s"])})


def run_cell(cell: PaperCell) -> list[Outcome]:
    """Run all that shares an estimator, seed after seed."""
    site = cell.site
    bank = WaitBank(cell.estimator, seed=cell.seed, machine_cores=site.capabilities.max_cores)
    seeds = range(cell.seed, cell.seed + cell.seeds)
    if cell.what == _SUBMISSIONS:
        job = _widest(workflow_maker(cell.workflow)(cell.cores))
        worlds = (_as_full(cell, site, seed, job) if cell.waits == "table-1" else site.open(seed) for seed in seeds)
        return [_submit(cell, world, seed, job, bank) for world, seed in zip(worlds, seeds, strict=True)]
    return [
        run
        for seed in seeds
        for cores in SIZES[cell.system]
        for together in ([WORKFLOWS] if cell.what == "concurrent" else [(name,) for name in WORKFLOWS])
        for run in _run_together(cell, seed, cores, together, bank)
        if cell.strategy != ASA_NAIVE or (run.system, run.workflow, run.cores) == NAIVE
    ]


def _run_together(cell: PaperCell, seed: int, cores: int, names: Sequence[str], bank: WaitBank) -> list[PaperRun]:
    world = cell.site.open(seed)
    workflows = [workflow_maker(name)(cores) for name in names]
    strategy = load_strategy(cell.strategy)
    runs = [Run(flow, strategy, bank=bank, delay_s=_BETWEEN_S * index) for index, flow in enumerate(workflows)]
    outcomes = []
    for name, flow, result in zip(names, workflows, run_all(world, runs, history=cell.history), strict=True):
        m, jobs = measured(flow, result, f"{name} on {cores} cores of {cell.system}, {cell.strategy}, seed {seed}")
        outcomes.append(
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
    return outcomes


def _widest(workflow: Workflow) -> Stage:
    """Return a workflow's widest stage; of several, the longest."""
    return max(workflow.stages.values(), key=lambda stage: (stage.cores or 0, stage.walltime_s))


def _probe(cell: PaperCell, stage: Stage) -> JobSpec:
    return JobSpec(stage.name, cores=cell.cores, walltime_s=stage.walltime_s, run_s=1.0)


def _as_full(cell: PaperCell, site: Site, seed: int, stage: Stage) -> Backend:
    """Open a seed's world at the time when a job's waits within an hour are closest to the paper's, by means."""
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


def _submit(cell: PaperCell, world: Backend, seed: int, stage: Stage, bank: WaitBank) -> Probes:
    """Submit a stage's job again and again, and record the waits."""
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
