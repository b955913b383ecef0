"""Extracts the run times of a run's stages, and sets the expected run times of a workflow from earlier runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2s
from typing import NamedTuple, Protocol

from asa.backend import Capabilities, JobState, JobStatus
from asa.core.computer import tells_of
from asa.errors import WorkflowError
from asa.records import Ended, Record, RunResumed, StageEnded, StageStarted, Started, Submitted
from asa.runtimes.forecast import RunForecast
from asa.runtimes.log import RunTime
from asa.runtimes.widths import Seen, as_seen
from asa.workflow import Stage, Workflow


class Expected(NamedTuple):
    """A workflow whose expected run times come from earlier runs.

    Parameters
    ----------
    workflow
        The workflow, with new expected run times where runs are known.
    forecasts
        The forecast of each stage that learns its run time and has known runs.
    trouble
        Why the forecasts are not used; empty if they are.
    left_out
        Stages that learn their run times, of which runs on this computer are known: elsewhere these tell nothing.
    """

    workflow: Workflow
    forecasts: Mapping[str, RunForecast]
    trouble: str = ""
    left_out: tuple[str, ...] = ()


class KnowsRunTimes(Protocol):
    """The known run times of stages; `RunTimes` are those of a bank."""

    def by_stage(self, workflow: str) -> Mapping[str, Sequence[RunTime]]:
        """Return the run times of the workflow's stages, each stage's latest last."""
        ...


def expect(workflow: Workflow, runs: KnowsRunTimes, capabilities: Capabilities) -> Expected:
    """Set the expected run times of stages that learn them from earlier runs; the walltime is their upper bound.

    A stage of several shapes learns for each width separately: runs at a width replace what the workflow says about it.
    Runs on this computer, which may have been trials, count only for this computer.

    Parameters
    ----------
    workflow
        The workflow as written.
    runs
        The known run times.
    capabilities
        Abilities of the site, which give the cores of whole nodes.

    Raises
    ------
    StateError
        The learned run times cannot be read.
    """
    forecasts: dict[str, RunForecast] = {}
    stages, left_out = list[Stage](), list[str]()
    try:
        learns = any(stage.learns_run for stage in workflow.stages.values())
        known = runs.by_stage(workflow.name) if learns else {}
        for stage in workflow.stages.values():
            times = known.get(stage.name, ()) if stage.learns_run else ()
            kept = [run for run in times if tells_of(run.system, capabilities.system)]
            seen = as_seen(stage, kept, capabilities) if kept else Seen(stage)
            stages.append(seen.stage)
            if seen.forecast is not None:
                forecasts[stage.name] = seen.forecast
            if len(kept) < len(times):
                left_out.append(stage.name)
        flow = Workflow(workflow.name, stages, walltime_s=workflow.walltime_s)
        return Expected(flow, forecasts, left_out=tuple(left_out))
    # the workflow's own walltime is too short, which matters only to one job of all stages
    except WorkflowError as error:
        return Expected(workflow, forecasts, error.message)


def run_times_of(
    run_id: str,
    workflow: Workflow,
    capabilities: Capabilities,
    records: Iterable[Record],
    jobs: Mapping[str, JobStatus],
    *,
    in_turn_s: Mapping[str, float] | None = None,
) -> list[RunTime]:
    """Return how long the stages of a run ran, whether it completed or not.

    A stage that was submitted again after it failed or reached its walltime counts as one run: its attempts have one
    id, and the completed attempt counts. A stage that records its completed tasks continues where it had stopped, so
    its attempts are added up until it runs again from scratch. A stage that shared a job counts only if the batch
    system has reported its own times. A job array counts as one run of its longest element: the array ends with that
    element, whose walltime must be long enough.

    Parameters
    ----------
    run_id
        Id of the run.
    workflow
        The workflow that ran.
    capabilities
        Abilities of the site.
    records
        Records of the run, in order.
    jobs
        Jobs of the run, with their last known status.
    in_turn_s
        Of arrays whose elements take turns in jobs: how long the longest completed element ran, by stage.

    Returns
    -------
    list of RunTime
        Run times of the stages for which they are known, in the order in which they became known.
    """
    telling = _Telling(run_id, workflow, capabilities, jobs, in_turn_s or {})
    for record in records:
        telling.take(record)
    return telling.times


class _Telling:
    """Collects run times from a run's records."""

    def __init__(
        self,
        run_id: str,
        workflow: Workflow,
        capabilities: Capabilities,
        jobs: Mapping[str, JobStatus],
        in_turn_s: Mapping[str, float],
    ) -> None:
        self.times: list[RunTime] = []
        self._run_id, self._workflow, self._capabilities, self._jobs = run_id, workflow, capabilities, jobs
        self._cores: dict[str, int] = {}  # of each job of a single stage
        self._began_s: dict[tuple[str, str], float] = {}
        self._spent_s: dict[str, float] = {}  # by stage that continues where it stopped
        self._good_ends: dict[str, int] = {}
        self._sharing: dict[str, dict[str, list[float]]] = {}  # by stage and job: start and end of each job of a bag
        self._in_turn_s = in_turn_s
        self._longest_s: dict[str, float] = {}  # by array: the longest time that an element of its ended jobs ran

    def take(self, record: Record) -> None:
        match record:
            case Started(stages=[name]) | Ended(stages=[name]) | StageEnded(stages=[name]) if self._in_parts(name):
                self._take_of_parts(name, record)
            case Started() | Ended() | StageEnded() if self._is_shared(record):
                self._take_of_shared(record)
            case Submitted(stages=[_], job_id=job_id, cores=cores):
                self._cores[job_id] = cores
            case StageStarted(stages=[name], job_id=job_id, time_s=time_s):
                self._began_s[name, job_id] = time_s
            case RunResumed(anew=anew):
                for name in anew:
                    self._spent_s.pop(name, None)
                    self._sharing.pop(name, None)
                    self._longest_s.pop(name, None)
            case StageEnded(stages=[name], job_id=job_id, time_s=time_s):
                if self._has_own_times(name, job_id):
                    self._completed(name, job_id, time_s - self._began_s.get((name, job_id), time_s), time_s)
            case Ended(state=state, job_id=job_id) if state is not JobState.COMPLETED:
                self._failed(record)
            case _:
                pass

    def _in_parts(self, name: str) -> bool:
        return self._workflow.stages[name].queues_in_parts

    def _take_of_parts(self, name: str, record: Started | Ended | StageEnded) -> None:
        if isinstance(record, Ended) and (status := self._jobs.get(record.job_id)) is not None:
            if status.longest_part_s is not None:  # 0 of elements that ran within a second of Slurm's clock
                self._longest_s[name] = max(self._longest_s.get(name, 0.0), status.longest_part_s)
            if status.has_overrun_part and name in self._longest_s:
                self._tell(name, "", self._longest_s[name], record.time_s, is_whole=False)
        elif isinstance(record, StageEnded):
            longest_s = self._longest_s.pop(name, self._in_turn_s.get(name))
            if longest_s is not None:
                self._tell(name, "", longest_s, record.time_s, is_whole=True)
            self._good_ends[name] = self._good_ends.get(name, 0) + 1

    def _is_shared(self, record: Started | Ended | StageEnded) -> bool:
        """Whether the record is about one of several jobs of a stage."""
        return record.job_id in self._cores and not self._workflow.stages[record.stages[0]].is_one_job

    def _take_of_shared(self, record: Started | Ended | StageEnded) -> None:
        [name] = record.stages
        jobs = self._sharing.setdefault(name, {})
        if isinstance(record, Started):
            jobs[record.job_id] = [record.time_s]
        elif isinstance(record, Ended):
            if record.job_id in jobs:
                jobs[record.job_id][1:] = [record.time_s]
        else:
            self._tell(name, "", self._together_s(name, record.time_s), record.time_s, is_whole=True)
            self._good_ends[name] = self._good_ends.get(name, 0) + 1

    def _together_s(self, name: str, end_s: float) -> float:
        """Return how long the jobs of a stage would have taken if all had started at its beginning."""
        jobs = self._sharing.pop(name, {})
        core_seconds = sum(
            self._cores[job_id] * max(min([end_s, *ended_s]) - began_s, 0.0)
            for job_id, (began_s, *ended_s) in jobs.items()
        )
        return core_seconds / self._all_cores(name)

    def _all_cores(self, name: str) -> int:
        """Return a stage's cores; of an array, those of an element."""
        stage = self._workflow.stages[name]
        cores = stage.cores_on(self._capabilities.cores_per_node)
        return cores // stage.job_count if stage.takes_turns else cores

    def _has_own_times(self, name: str, job_id: str) -> bool:
        """Whether a stage's own times are known; in a shared job, the reported times may be the expected ones."""
        status = self._jobs.get(job_id)
        return job_id in self._cores or any(step.name == name for step in (status.steps if status is not None else ()))

    def _failed(self, ended: Ended) -> None:
        if ended.job_id in self._cores:
            [name] = ended.stages
            began_s = self._began_s.get((name, ended.job_id), ended.payload_start_s)
            if began_s is not None:
                self._broke_off(name, ended, began_s)
            return
        status = self._jobs.get(ended.job_id)
        for step in status.steps if status is not None else ():
            if step.end_s is not None:
                self._completed(step.name, ended.job_id, step.end_s - step.start_s, step.end_s)
            else:
                self._broke_off(step.name, ended, step.start_s)

    def _completed(self, name: str, job_id: str, run_s: float, at_s: float) -> None:
        status = self._jobs.get(job_id)
        goes_on = _remembers(self._workflow.stages[name])
        is_part = goes_on and status is not None and status.restarts > 0  # the work before the requeue is not known
        self._tell(name, job_id, run_s + self._spent_s.pop(name, 0.0), at_s, is_whole=not is_part)
        self._good_ends[name] = self._good_ends.get(name, 0) + 1

    def _broke_off(self, name: str, ended: Ended, began_s: float) -> None:
        run_s = max(ended.time_s - began_s, 0.0)
        if ended.state is JobState.TIMEOUT:
            self._tell(name, ended.job_id, run_s + self._spent_s.get(name, 0.0), ended.time_s, is_whole=False)
        if _remembers(self._workflow.stages[name]):
            self._spent_s[name] = self._spent_s.get(name, 0.0) + run_s

    def _tell(self, name: str, job_id: str, run_s: float, at_s: float, *, is_whole: bool) -> None:
        stage = self._workflow.stages[name]
        which = f"{self._run_id}\0{name}\0{self._good_ends.get(name, 0)}"
        self.times.append(
            RunTime(
                self._workflow.name,
                name,
                self._cores.get(job_id) or self._all_cores(name),
                max(run_s, 0.0),  # the clocks may contradict each other
                at_s,
                self._capabilities.system,
                stage.input_size,
                "exact" if is_whole else "at_least",
                blake2s(which.encode(), digest_size=8).hexdigest(),
            )
        )


def _remembers(stage: Stage) -> bool:
    """Whether a stage that runs again skips work that it has completed."""
    return bool(stage.tasks or stage.tasks_file)
