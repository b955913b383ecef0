"""A run's records are in the workflow's order, in whatever order and however late a batch system reports its jobs."""

from hypothesis import given
from hypothesis import strategies as st

from asa.backend import Capabilities, JobState, JobStatus, StepTimes
from asa.metrics import measure
from asa.runner.entries import Accepted, Begun, Intended, Reported
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies.base import Keep, PlannedJob
from asa.workflow import Stage, Workflow

SITE = Capabilities("m", 8, 8, age_accrues=True)
FLOW = Workflow(
    "diamond",
    [
        Stage(name, cores=1, walltime_s=600.0, command="x", after=tuple(after))
        for name, after in [("a", ""), ("b", "a"), ("c", "a"), ("d", "bc")]
    ],
)
TIMES = {"a": (10.0, 20.0), "b": (21.0, 30.0), "c": (22.0, 24.0), "d": (31.0, 40.0)}
SHARINGS = [["a", "b", "c", "d"], ["ab", "c", "d"], ["a", "b", "cd"], ["a", "bc", "d"]]


def statuses_of(number, stages, allocated_s, late_s):
    """Return a job's statuses in order: the job starts, each of its stages runs, the job ends."""
    began_s, ended_s = TIMES[stages[0]][0], TIMES[stages[-1]][1]
    steps = [StepTimes(name, *TIMES[name]) for name in stages] if len(stages) > 1 else []
    job = {"job_id": str(number), "submit_s": 0.0, "eligible_s": 0.0, "start_s": allocated_s}
    running = [JobStatus(state=JobState.RUNNING, **job)]
    for upto in range(len(stages)):
        done = [
            StepTimes(name, start_s, None if at == upto else end_s)
            for at, (name, start_s, end_s) in enumerate(
                (step.name, step.start_s, step.end_s) for step in steps[: upto + 1]
            )
        ]
        running.append(JobStatus(state=JobState.RUNNING, payload_start_s=began_s, steps=tuple(done), **job))
    over = {"payload_start_s": began_s, "end_s": ended_s + late_s, "exit_code": 0, "steps": tuple(steps)}
    return running, JobStatus(state=JobState.COMPLETED, **job, **over)


@st.composite
def tellings(draw):
    """Draw jobs that idle until their predecessors end, with their reports and the times of these."""
    jobs = draw(st.sampled_from(SHARINGS))
    told = []
    for number, stages in enumerate(jobs):
        allocated_s = draw(st.sampled_from([1.0, TIMES[stages[0]][0]]))
        running, last = statuses_of(number, stages, allocated_s, draw(st.sampled_from([0.0, 1.0, 60.0])))
        told.append([*(status for status in running if draw(st.booleans())), last])
    order = draw(st.permutations([number for number, statuses in enumerate(told) for _ in statuses]))
    return jobs, [told[number].pop(0) for number in order]


@given(tellings())
def test_no_stage_begins_before_those_that_it_follows_have_ended(telling):
    """The metrics refuse other records; no stage may take longer than its job."""
    jobs, statuses = telling
    state = RunState("flow", FLOW, SITE, "r" * 12)
    records = list(state.apply(Begun(0.0)))
    for number, stages in enumerate(jobs):
        planned = PlannedJob(tuple(stages), 0.0, Keep.AWAIT, "")
        spec = spec_of(state, planned)
        pending = JobStatus(str(number), JobState.PENDING, 0.0)
        for entry in (Intended(spec.token, planned, spec, 0.0), Accepted(spec.token, pending)):
            records += state.apply(entry)
    for status in statuses:
        records += state.apply(Reported(status))
    told = measure(FLOW, records)
    assert {stage.stage for stage in told.stages} == set("abcd")
    assert all(stage.run_s >= 0 and stage.perceived_wait_s >= 0 for stage in told.stages)
    assert 40.0 <= told.makespan_s <= 100.0
