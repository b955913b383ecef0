"""The public interface as a type checker sees it: `make types` reads this file, and nothing runs it."""

from collections.abc import Mapping, Sequence
from typing import Literal, assert_type

import asa
from asa.backend import Backend, Capabilities, Facility, JobSpec, JobStatus
from asa.estimators import WaitLearner
from asa.metrics import RunMetrics, measure
from asa.runner import RunResult
from asa.sites import open_facility
from asa.strategies import Strategy, load_strategy


@asa.stage(cores=4, walltime="10min", exclusive=True)
def half(number: int) -> float:
    """Run in a stage."""
    return number / 2


@asa.stage(cores=1, walltime="1min")
def total(parts: list[float], *, scale: float = 1.0) -> float:
    """Take what other stages return."""
    return scale * sum(parts)


def workflows() -> asa.Workflow:
    """Put one together in each way."""
    flow = asa.Flow("typed")
    assert_type(half(3), float)
    whole = flow.call(half.bind(3), name="half")
    assert_type(whole, asa.Stage)
    flow.call(total.bind([whole, flow.call(half.bind(number=4))], scale=2.0))
    first = flow.stage("first", command="true", cores=1, walltime=60.0, memory="2G")
    assert_type(first, asa.Stage)
    flow.stage("second", command="true", cores=1, after=first)
    assert_type(flow.workflow, asa.Workflow)
    assert_type(asa.load_workflow("flow.toml"), asa.Workflow)
    stage = asa.Stage("merge", cores=1, walltime_s=600.0, gpus=1, after=("first",))
    assert_type(stage.cores_on(28), int)
    return asa.Workflow("all", [stage])


def waits(job: asa.QueuedJob) -> list[asa.WaitObservation]:
    """Learn and predict."""
    geometry = asa.JobGeometry.of(cores=4, walltime_s=3600.0)
    assert_type(geometry, asa.JobGeometry)
    learner = asa.Asa(seed=1)
    assert_type(learner.predict(), asa.Prediction)
    assert_type(learner.predict().wait_s, float)
    learner.observe(asa.at_least(60.0))
    forecast = asa.WaitBank().predict(job)
    assert_type(forecast, asa.WaitForecast)
    return [asa.exactly(60.0), asa.at_least(60.0), asa.at_most(60.0)]


def runs(backend: Backend, workflow: asa.Workflow) -> RunMetrics:
    """Drive one."""
    strategy = load_strategy("per-stage")
    assert_type(strategy, Strategy)
    [result] = assert_type(asa.run_all(backend, [asa.Run(workflow, strategy)]), list[RunResult])
    assert_type(result.outcome, Literal["completed", "failed", "cancelled"])
    return measure(workflow, result.records)


def port(backend: Backend) -> Mapping[str, JobStatus]:
    """Speak to a batch system."""
    assert_type(backend.capabilities, Capabilities)
    job_id = assert_type(backend.submit(JobSpec("a", cores=1, walltime_s=60.0)), str)
    assert_type(backend.wait(None), Sequence[JobStatus])
    return backend.status([job_id])


def sites() -> Facility:
    """Open a user's site."""
    return open_facility("local").facility


def learn(learner: WaitLearner) -> float:
    """Use any learner of the kind of the paper's."""
    return learner.predict().wait_s


assert_type(learn(asa.Asa()), float)
