"""Stages whose tasks several jobs share, on a simulated machine: end times and costs, computed by hand.

The machine has 8 cores. The stage has 8 cores for 100 s, as four jobs of 2 cores.
"""

from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable

from asa.backend import Capabilities, DependencyType, JobState, JobStatus
from asa.errors import SubmitRejectedError, WorkflowError
from asa.metrics import measure
from asa.outcome import JobOutcome
from asa.records import Ended, StageEnded, StageStarted, Submitted
from asa.runner import Run, run_all
from asa.runner.course import RunEnding
from asa.runner.entries import Accepted, GivenUp, GivingUp, Intended, Refused, Reported
from asa.runner.kinds.rounds import MAX_ROUNDS, NOTHING_LEFT
from asa.runner.specs import spec_of, token_of
from asa.runner.state import RunState
from asa.runtimes import RunTime, run_times_of
from asa.runtimes.widths import as_seen, with_widths
from asa.strategies import Keep, Phase, PlannedJob, load_strategy
from asa.timeline import timeline
from asa.workflow import Stage, Workflow

BAG = Stage("a", cores=8, walltime_s=1000, expected_run_s=100, tasks=("t",), jobs=(4, 4), memory_bytes=800)
AFTER = Stage("b", cores=1, walltime_s=50, expected_run_s=10, after=("a",))


def machine(others, **options):
    columns = np.array(others, dtype=np.int64).reshape(-1, 4).T
    return SimulatedBackend(Engine(8, JobTable(*columns), now=0, **options), Machine("m", 1, 8))


def run(others, stages=(BAG, AFTER), strategy="per-stage", **options):
    return run_all(machine(others), [Run(Workflow("w", stages), load_strategy(strategy), **options)])[0]


def times(result, kind=StageEnded):
    return {r.stages[0]: r.time_s for r in result.records if isinstance(r, kind)}


def jobs_of(result):
    return [r for r in result.records if isinstance(r, Ended) and r.stages == ("a",)]


def test_who_may_begins_and_does_what_all_were_to_do():
    """Others hold 4 cores until 500; the two jobs that start as the first two end find no task, and take a second."""
    result = run([(0, 500, 500, 4)])
    assert result.outcome == "completed"
    assert times(result) == {"a": 200, "b": 211}
    assert measure(result.run.workflow, result.records).core_hours == pytest.approx((800 + 2 * 2 + 10) / 3600)


def test_who_never_starts_is_withdrawn_and_costs_nothing():
    """Others take the cores that the first job leaves."""
    result = run([(0, 500, 500, 6), (0, 900, 900, 2), (0, 900, 900, 2), (0, 900, 900, 2)])
    assert result.outcome == "completed"
    states = sorted(job.state.value for job in jobs_of(result))
    assert states[0] == "cancelled"
    held = 800 + 10 + 2 * states.count("completed")
    assert measure(result.run.workflow, result.records).core_hours <= held / 3600


def test_who_comes_late_takes_what_is_left():
    """Two jobs begin at 0, two at 100, when half is done: a quarter of the rest each takes 50 s."""
    assert times(run([(0, 100, 100, 4)]))["a"] == 150


def test_who_runs_out_of_walltime_leaves_the_rest_to_others():
    result = run([(0, 500, 500, 4)], (replace(BAG, walltime_s=100), AFTER))
    assert result.outcome == "completed"
    assert times(result)["a"] == 200
    assert times(result, StageStarted)["a"] == 0
    states = sorted(job.state.value for job in jobs_of(result))
    assert states == ["completed"] * 4 + ["timeout"] * 2, "two follow those whose walltime was over, and find nothing"


def test_new_jobs_are_asked_for_while_tasks_are_left():
    """All four end at 100 with a third of the work left."""
    result = run([], (replace(BAG, walltime_s=100), AFTER), run_s={"a": 150, "b": 10})
    assert result.outcome == "completed"
    assert times(result)["a"] == pytest.approx(150, abs=1)
    assert sum(isinstance(r, Submitted) and r.stages == ("a",) for r in result.records) == 8


def test_another_job_follows_each_whose_walltime_is_over():
    """Two jobs begin at 0 and end at 100; the others begin at 300, after four more have done the rest."""
    result = run([(0, 300, 300, 4)], (replace(BAG, walltime_s=100), AFTER), run_s={"a": 110, "b": 10})
    assert result.outcome == "completed"
    assert times(result)["a"] == 220
    states = sorted(job.state.value for job in jobs_of(result))
    assert states == ["completed"] * 4 + ["timeout"] * 4, "two of these found nothing"


@pytest.mark.parametrize(
    ("others", "walltime_s", "work_s", "ended_s"),
    [([], 1000, 100, 100), ([(0, 100, 100, 4)], 1000, 100, 150), ([(0, 500, 500, 4)], 100, 110, 220)],
)
def test_what_is_learned_of_its_run_time_is_what_all_jobs_together_take(others, walltime_s, work_s, ended_s):
    """The run time is on all cores together, however late some jobs start, and however many follow."""
    result = run(others, (replace(BAG, walltime_s=walltime_s), AFTER), run_s={"a": work_s, "b": 10})
    assert times(result)["a"] == ended_s
    [learned, _] = run_times_of("id", result.run.workflow, SITE, result.records, {})
    assert (learned.stage, learned.cores, learned.kind) == ("a", 8, "exact")
    assert learned.run_s == pytest.approx(work_s, abs=2)


def test_it_may_take_longer_than_a_walltime():
    with pytest.raises(WorkflowError, match="would be killed"):
        replace(BAG, walltime_s=50, jobs=(1, 1))
    assert times(run([], (replace(BAG, walltime_s=50), AFTER)))["a"] == 100


def test_that_ends_some_day():
    result = run([], (replace(BAG, walltime_s=100), AFTER), run_s={"a": 1e6, "b": 10})
    assert (result.outcome, "timeout" in result.reason) == ("failed", True)
    assert sum(isinstance(r, Submitted) for r in result.records) == 4 * (MAX_ROUNDS + 1)


@pytest.mark.parametrize("strategy", ["chained", "big-job", "per-stage"])
def test_other_strategies_run_it_too(strategy):
    result = run([(0, 100, 100, 4)], strategy=strategy)
    assert result.outcome == "completed"
    assert times(result)["a"] == (200 if strategy == "big-job" else 150)


def test_what_follows_depends_on_all_jobs_however_they_end():
    state = RunState("w", Workflow("w", (BAG, AFTER)), SITE, "abcd1234")
    for further in range(4):
        submit(state, further)
    spec = spec_of(state, PlannedJob(("b",), 0.0, Keep.DEPENDENCY, ""))
    assert [(one.job_id, one.type) for one in spec.dependencies] == [
        (str(n), DependencyType.AFTERANY) for n in range(4)
    ]
    assert spec.awaits, "its payload waits for the end of the stage"


def test_what_follows_keeps_its_job_and_the_age_of_that_while_one_of_the_jobs_is_left():
    """The successor's job is replaced only once no job that it depends on can continue the work."""
    told = Told(jobs=2)
    planned = PlannedJob(("b",), 0.0, Keep.DEPENDENCY, "")
    spec = spec_of(told.state, planned)
    list(told.state.apply(Intended(spec.token, planned, spec, 0.0)))
    list(told.state.apply(Accepted(spec.token, JobStatus("9", JobState.PENDING, 0.0))))
    told.begin("0", 5.0)
    told.begin("1", 5.0)
    told.tell("0", JobState.FAILED, 20.0, 5.0, exit_code=137)
    assert not told.state.lost_jobs()
    submit(told.state, 2)  # a further one, which the job does not wait for
    told.begin("2", 25.0)
    told.tell("1", JobState.TIMEOUT, 30.0, 5.0)
    assert [job_id for job_id, _ in told.state.lost_jobs()] == ["9"]


@pytest.mark.parametrize("further", [0, 1])
def test_of_two_jobs_of_one_token_one_takes_part(further):
    """The job that the batch system kept takes part; the other is given up, its end is ignored."""
    told = Told(jobs=2)
    other = 1 - further
    told.begin(str(other), 5.0)
    list(told.state.apply(Accepted(told.specs[further].token, JobStatus("7", JobState.PENDING, 0.0))))
    assert told.state.jobs[str(further)].given_up
    assert not told.state.jobs["7"].given_up
    told.begin("7", 6.0)
    told.tell(str(further), JobState.CANCELLED, 7.0)
    assert told.view.phase is Phase.RUNNING
    assert {job.status.job_id for job in told.state.units.tasks.others(told.state.jobs[str(other)])} == {"7"}
    told.tell(str(other), JobState.FAILED, 8.0, 5.0, exit_code=137)
    assert (told.view.phase, told.view.job_id) == (Phase.RUNNING, "7")
    told.tell("7", JobState.COMPLETED, 9.0, 6.0, exit_code=0)
    assert told.view.phase is Phase.DONE


SITE = Capabilities("x", 8, 8, age_accrues=True)


def submit(state, further, job_id=""):
    planned = PlannedJob(("a",), 0.0, Keep.NOTHING, "", mate=further)
    spec = spec_of(state, planned)
    list(state.apply(Intended(spec.token, planned, spec, 0.0)))
    list(state.apply(Accepted(spec.token, JobStatus(job_id or str(further), JobState.PENDING, 0.0))))
    return spec


class Told:
    """A run's state that is fed with the statuses of jobs."""

    def __init__(self, stage=BAG, jobs=3):
        self.state = RunState("w", Workflow("w", (stage, AFTER)), SITE, "abcd1234", ending=RunEnding(fail_fast=False))
        self.specs = [submit(self.state, further) for further in range(jobs)]

    def tell(self, job_id, state, at_s, began_s=None, **what):
        ended = {"end_s": at_s} if state.is_final else {}
        start = {"start_s": began_s, "payload_start_s": began_s} if began_s is not None else {}
        return list(self.state.apply(Reported(JobStatus(job_id, state, 0.0, **start, **ended, **what))))

    def begin(self, job_id, at_s):
        return self.tell(job_id, JobState.RUNNING, at_s, at_s)

    @property
    def view(self):
        return self.state.stages["a"]


def test_each_job_asks_for_its_part_and_has_a_token_of_its_own():
    told = Told()
    assert [(spec.cores, spec.memory_bytes, spec.sharing) for spec in told.specs] == [(2, 200, 4)] * 3
    assert len({spec.token for spec in told.specs}) == 3
    assert len({(spec.bag, spec.posts) for spec in told.specs}) == 1
    assert not any(spec.supersedes for spec in told.specs)


def test_the_stage_begins_with_the_first_that_does_and_goes_on_without_it():
    told = Told()
    told.begin("1", 10.0)
    assert (told.view.phase, told.view.job_id, told.view.started_s) == (Phase.RUNNING, "1", 10.0)
    told.begin("0", 20.0)
    assert (told.view.job_id, told.view.started_s) == ("1", 10.0)
    told.tell("1", JobState.FAILED, 30.0, 10.0, exit_code=137)
    assert (told.view.phase, told.view.job_id, told.view.started_s) == (Phase.RUNNING, "0", 10.0)
    told.tell("0", JobState.CANCELLED, 40.0, 20.0)
    assert (told.view.phase, told.view.job_id, told.view.started_s) == (Phase.QUEUED, "2", None)
    told.begin("2", 50.0)
    told.tell("2", JobState.COMPLETED, 60.0, 50.0)
    assert (told.view.phase, told.view.ended_s) == (Phase.DONE, 60.0)


def test_who_finds_nothing_left_does_not_end_the_stage_and_others_are_withdrawn():
    told = Told()
    told.begin("0", 10.0)
    told.begin("1", 10.0)
    told.tell("1", JobState.COMPLETED, 20.0, 10.0, reason=NOTHING_LEFT)
    assert told.view.phase is Phase.RUNNING
    assert told.state.lost_jobs() == [("2", "no tasks are left")]
    told.tell("0", JobState.COMPLETED, 30.0, 10.0)
    assert told.view.phase is Phase.DONE


def test_a_job_that_was_requeued_is_not_withdrawn_as_it_may_have_tasks():
    told = Told()
    told.begin("0", 10.0)
    told.begin("1", 10.0)
    told.tell("0", JobState.PENDING, 15.0, restarts=1)
    assert told.view.job_id == "1"
    told.tell("1", JobState.COMPLETED, 20.0, 10.0, reason=NOTHING_LEFT)
    assert [job_id for job_id, _ in told.state.lost_jobs()] == ["2"]
    assert (told.view.phase, told.view.job_id) == (Phase.QUEUED, "0")


def test_tasks_that_failed_fail_the_stage_once_no_job_is_left():
    told = Told()
    told.begin("0", 10.0)
    told.begin("1", 10.0)
    told.tell("1", JobState.FAILED, 20.0, 10.0, exit_code=83)
    assert told.view.phase is Phase.RUNNING
    told.tell("0", JobState.COMPLETED, 21.0, 10.0, reason=NOTHING_LEFT)
    assert told.view.phase is Phase.QUEUED
    [(last, why)] = told.state.lost_jobs()
    list(told.state.apply(GivingUp(last, why, 22.0)))
    told.tell(last, JobState.CANCELLED, 23.0)
    list(told.state.apply(GivenUp(last, why, 23.0)))
    assert told.view.phase is Phase.FAILED
    assert "some of its tasks failed" in told.view.reason


DOUBT = {"outcome": JobOutcome.OUT_OF_MEMORY, "reason": "OUT_OF_MEMORY", "in_doubt": True}


@pytest.mark.parametrize("ends", ["completed", "nothing left", "tasks failed", "doubted"])
def test_a_stage_of_which_tasks_are_in_doubt_has_failed_whatever_other_jobs_say(ends):
    """The stage is tried again with more memory, and the next jobs do not trust that job's tasks."""
    told = Told(replace(BAG, retries=1), jobs=2)
    told.begin("0", 10.0)
    told.begin("1", 10.0)
    told.tell("0", JobState.FAILED, 20.0, 10.0, **DOUBT)
    assert told.view.phase is Phase.RUNNING
    if ends == "tasks failed":
        told.tell("1", JobState.FAILED, 21.0, 10.0, exit_code=83, outcome=JobOutcome.TASKS_FAILED)
    elif ends == "doubted":
        told.tell("1", JobState.FAILED, 21.0, 10.0, **DOUBT)
    else:
        told.tell("1", JobState.COMPLETED, 21.0, 10.0, reason=NOTHING_LEFT if ends == "nothing left" else "")
    assert (told.view.phase, told.view.attempts, told.view.stage.memory_bytes) == (Phase.WAITING, 1, 1600)


@pytest.mark.parametrize("retries", [0, 1])
def test_where_another_job_is_left_that_has_not_begun_a_stage_in_doubt_fails_too(retries):
    told = Told(replace(BAG, retries=retries), jobs=3)
    told.begin("0", 10.0)
    told.begin("1", 10.0)
    told.tell("0", JobState.FAILED, 20.0, 10.0, **DOUBT)
    told.tell("1", JobState.COMPLETED, 21.0, 10.0)
    [(last, why)] = told.state.lost_jobs()
    list(told.state.apply(GivingUp(last, why, 22.0)))
    told.tell(last, JobState.CANCELLED, 23.0)
    list(told.state.apply(GivenUp(last, why, 23.0)))
    assert told.view.phase is (Phase.WAITING if retries else Phase.FAILED)


def test_it_is_tried_again_with_other_tokens_and_a_round_of_its_own():
    told = Told(replace(BAG, retries=1), jobs=2)
    told.begin("0", 10.0)
    told.begin("1", 10.0)
    told.tell("0", JobState.FAILED, 20.0, 10.0, exit_code=83)
    told.tell("1", JobState.FAILED, 21.0, 10.0, exit_code=83)
    assert (told.view.phase, told.view.attempts, told.view.resubmissions) == (Phase.WAITING, 1, 1)
    first, second = submit(told.state, 0, "7"), submit(told.state, 1, "8")
    assert {first.token, second.token}.isdisjoint({spec.token for spec in told.specs})
    assert set(first.supersedes) == set(second.supersedes) == {spec.token for spec in told.specs}
    assert first.bag == told.specs[0].bag
    told.tell("7", JobState.RUNNING, 30.0, 30.0)
    assert told.state.lost_jobs() == []


def test_a_further_job_that_is_refused_is_done_without():
    told = Told(jobs=1)
    planned = PlannedJob(("a",), 0.0, Keep.NOTHING, "", mate=1)
    spec = spec_of(told.state, planned)
    list(told.state.apply(Intended(spec.token, planned, spec, 0.0)))
    list(told.state.apply(Refused(spec.token, 0.0, "too many jobs")))
    assert told.view.phase is Phase.QUEUED
    lead = told.state.jobs["0"]
    assert not list(told.state.units.tasks.missing(told.state, lead, 0.0))


class FewJobs(SimulatedBackend):
    """A site that allows a user two jobs."""

    def submit(self, spec):
        if sum(not job.state.is_final for job in self._engine.clients) >= 2:
            raise SubmitRejectedError("has too many jobs", where="you")
        return super().submit(spec)


def test_a_run_goes_on_with_the_jobs_that_it_gets():
    backend = FewJobs(Engine(8, JobTable(*np.zeros((4, 0), dtype=np.int64)), now=0), Machine("m", 1, 8))
    [result] = run_all(backend, [Run(Workflow("w", (BAG,)), load_strategy("per-stage"))])
    assert (result.outcome, times(result)["a"]) == ("completed", 200)


def test_tokens_of_others_stay_as_they_were():
    state = RunState("w", Workflow("w", (replace(BAG, jobs=(1, 1)), AFTER)), SITE, "abcd1234")
    assert token_of(state, PlannedJob(("a",), 0.0, Keep.NOTHING, "")) == "abcd1234-1-0"


def test_each_job_has_a_lane_of_its_own_in_which_the_stage_runs():
    result = run([(0, 100, 100, 4)])
    lanes = [lane for lane in timeline(result.records, result.run.workflow).lanes if lane.stages == ("a",)]
    spans = [[(span.kind, span.begin_s, span.end_s) for span in lane.spans] for lane in lanes]
    assert spans[:2] == [[("running", 0, 150)]] * 2
    assert spans[2:] == [[("pending", 0, 100), ("running", 100, 150)]] * 2


def test_widths_that_its_jobs_cannot_share_are_not_offered():
    """The stage once ran on 2 cores, in one job, and takes longer than a walltime."""
    ran = [RunTime("w", "a", cores, 3000.0, 0.0, SITE.system, None, "exact", f"{cores}") for cores in (2, 4, 8)]
    offered = with_widths(BAG, ran, SITE)
    assert offered.moldable.widths == (4, 8)
    assert as_seen(BAG, ran, SITE).stage.expected_run_s == 3000.0
