"""Stages that run in legs, on a simulated machine and told job by job: whose turn it is, when the next is asked for.

The machine has 8 cores. The stage takes 250 s on 4 of them, in legs of 100 s; it saves its state in 5 s.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable

from asa.backend import Capabilities, DependencyType, JobState, JobStatus
from asa.continuation import Continuation
from asa.errors import WorkflowError
from asa.estimators import WaitBank
from asa.outcome import JobOutcome
from asa.records import Ended, StageEnded, StageStarted
from asa.runner import Run, run_all
from asa.runner.course import RunEnding
from asa.runner.entries import Accepted, GivenUp, GivingUp, Intended, Refused, Reported, Shaped
from asa.runner.kinds.rounds import NOTHING_LEFT
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.runtimes import run_times_of
from asa.shapes import Moldable, RunAt
from asa.strategies import Keep, Phase, PlannedJob, load_strategy
from asa.strategies.base import Choice
from asa.workflow import Stage, Workflow

WARNED = Continuation.warned("USR1@5s")
TRAIN = Stage("a", cores=4, walltime_s=100, expected_run_s=250, command="train", continues=WARNED)
AFTER = Stage("b", cores=1, walltime_s=50, expected_run_s=10, after=("a",), command="x")
SITE = Capabilities("x", 8, 8, age_accrues=False)


def run(others=(), stage=TRAIN, strategy="per-stage", *, behind=(), age_accrues=False):
    columns = np.array(others, dtype=np.int64).reshape(-1, 4).T
    world = SimulatedBackend(Engine(8, JobTable(*columns), now=0, age_accrues=age_accrues), Machine("m", 1, 8))
    flow = Workflow("w", (stage, AFTER, *behind))
    return run_all(world, [Run(flow, load_strategy(strategy), bank=WaitBank("last"))])[0]


def legs_of(result):
    jobs = [r for r in result.records if isinstance(r, Ended) and r.stages == ("a",) and r.payload_start_s is not None]
    return sorted((r.payload_start_s, r.time_s) for r in jobs)


def times(result, kind):
    return {r.stages[0]: r.time_s for r in result.records if isinstance(r, kind)}


def test_each_leg_goes_on_where_the_one_before_stopped():
    """The first two legs work for 95 s each, the third for the rest."""
    result = run()
    assert result.outcome == "completed"
    assert legs_of(result) == [(0, 100), (100, 200), (200, 260)]
    assert (times(result, StageStarted)["a"], times(result, StageEnded)["a"]) == (0, 260)
    assert times(result, StageStarted)["b"] == 260, "what follows comes after the last leg"


def test_a_leg_that_is_not_warned_is_killed_and_the_next_goes_on():
    result = run(stage=replace(TRAIN, continues=Continuation()))
    assert legs_of(result) == [(0, 100), (100, 200), (200, 250)]


@pytest.mark.parametrize("age_accrues", [False, True])
def test_the_next_leg_takes_over_as_it_starts(age_accrues):
    """Two legs overlap no longer than the earlier leg takes to save its state."""
    result = run([(0, 40, 40, 4)], strategy="asa", age_accrues=age_accrues)
    assert result.outcome == "completed"
    legs = legs_of(result)
    assert all(after[0] == before[1] for before, after in pairwise(legs))
    worked = sum(end - begin for begin, end in legs) - 5 * (len(legs) - 1)
    assert worked == 250
    started = [
        r.start_s for r in result.records if isinstance(r, Ended) and r.stages == ("a",) and r.start_s is not None
    ]
    overlap = sum(begin - start for (begin, _), start in zip(legs, sorted(started), strict=False))
    assert overlap <= 5 * (len(legs) - 1)


def test_behind_the_leg_that_runs_it_keeps_its_place():
    result = run(strategy="chained")
    assert result.outcome == "completed"
    assert legs_of(result) == [(0, 100), (100, 200), (200, 260)]
    assert len({r.job_id for r in result.records if isinstance(r, Ended)}) <= 5


@pytest.mark.parametrize("strategy", ["chained", "asa", "asa-plan", "per-stage", "big-job"])
def test_two_stages_in_a_row_follow_the_last_leg(strategy):
    result = run(strategy=strategy, behind=(replace(AFTER, name="c", after=("b",)),))
    assert result.outcome == "completed", result.reason
    began, ended = times(result, StageStarted), times(result, StageEnded)
    assert ended["a"] <= began["b"] < ended["b"] <= began["c"]


def test_so_many_legs_and_no_more():
    result = run(stage=replace(TRAIN, continues=replace(WARNED, max_legs=2)))
    assert (result.outcome, result.reason) == ("failed", "stage 'a' has not completed after its 2 legs")


def test_what_is_learned_is_what_all_legs_together_take():
    result = run()
    [learned, _] = run_times_of("id", result.run.workflow, SITE, result.records, {})
    assert learned.run_s == pytest.approx(260, abs=3)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"command": "", "tasks": ("a",)}, "`jobs`"),
        ({"local": True}, "runs on the client"),
        ({"command": ""}, "has no command"),
        ({"continues": replace(WARNED, warn_s=100.0)}, "before the end of a leg"),
        ({"continues": replace(WARNED, max_legs=0)}, "0 legs"),
        ({"continues": replace(WARNED, unfinished=0)}, "exit code 0"),
        ({"continues": replace(WARNED, warn="KILL")}, "'KILL'"),
        ({"continues": Continuation(warn="USR1")}, "with what, or when"),
        ({"continues": Continuation(progress=("",))}, "a path that is empty"),
    ],
)
def test_what_cannot_be_is_refused(what, words):
    with pytest.raises(WorkflowError) as caught:
        replace(TRAIN, **what)
    assert words in f"{caught.value.message} {caught.value.hint}"


class Told:
    """A run's state that is fed with the statuses of jobs."""

    def __init__(self, stage=TRAIN):
        flow, ending = Workflow("w", (stage, AFTER)), RunEnding(fail_fast=False)
        self.state = RunState("w", flow, SITE, "abcd1234", ending=ending, folder="/runs/w")

    def submit(self, job_id, leg=0, **how):
        planned = PlannedJob(("a",), 0.0, how.pop("keep", Keep.NOTHING), "", leg=leg, **how)
        spec = spec_of(self.state, planned)
        list(self.state.apply(Intended(spec.token, planned, spec, 0.0)))
        list(self.state.apply(Accepted(spec.token, JobStatus(job_id, JobState.PENDING, 0.0))))
        return spec

    def tell(self, job_id, state, at_s, began_s=None, **what):
        ended = {"end_s": at_s} if state.is_final else {}
        start = {"start_s": began_s, "payload_start_s": began_s} if began_s is not None else {}
        return list(self.state.apply(Reported(JobStatus(job_id, state, 0.0, **start, **ended, **what))))

    def begin(self, job_id, at_s):
        return self.tell(job_id, JobState.RUNNING, at_s, at_s)

    def leave(self, job_id, began_s, at_s):
        return self.tell(job_id, JobState.COMPLETED, at_s, began_s, reason=NOTHING_LEFT)

    @property
    def view(self):
        return self.state.stages["a"]


def test_each_leg_has_a_name_and_a_token_of_its_own():
    told = Told()
    first = told.submit("1")
    told.begin("1", 5.0)
    second = told.submit("2", 2)
    assert [spec.name for spec in (first, second)] == ["w/a.1", "w/a.2"]
    assert (first.token, second.token) == ("abcd1234-1-0l1", "abcd1234-1-0l2")
    assert first.bag == second.bag
    assert "asa_leg=2" in second.command
    assert second.supersedes == ()


def test_the_next_leg_waits_for_a_time_after_the_start_of_the_one_before_or_for_its_end():
    told = Told()
    told.submit("1")
    told.begin("1", 5.0)
    [behind] = told.submit("2", 2, keep=Keep.DEPENDENCY).dependencies
    [aged] = told.submit("3", 2, keep=Keep.DEPENDENCY, delay_s=60.0).dependencies
    assert (behind.job_id, behind.type) == ("1", DependencyType.AFTERANY)
    assert (aged.job_id, aged.type, aged.delay_s) == ("1", DependencyType.AFTER, 60.0)


def test_the_turn_is_handed_on():
    told = Told()
    told.submit("1")
    told.begin("1", 5.0)
    told.submit("2", 2)
    assert (told.view.job_id, told.view.next_job_id) == ("1", "2")
    told.begin("2", 50.0)
    assert told.view.job_id == "1", "it waits for its turn"
    told.leave("1", 5.0, 55.0)
    assert (told.view.job_id, told.view.leg, told.view.next_job_id, told.view.phase) == ("2", 2, None, Phase.RUNNING)
    assert (told.view.ran_s, told.view.started_s) == (50.0, 5.0)
    ended = told.tell("2", JobState.COMPLETED, 90.0, 50.0)
    assert [(r.stages, r.time_s) for r in ended if isinstance(r, StageEnded)] == [(("a",), 90.0)]


def test_a_leg_that_none_follows_yet_is_followed_in_the_same_round():
    told = Told()
    told.submit("1")
    told.begin("1", 5.0)
    told.tell("1", JobState.TIMEOUT, 105.0, 5.0)
    assert (told.view.phase, told.view.leg, told.view.resubmissions) == (Phase.WAITING, 2, 0)
    assert told.submit("2").token == "abcd1234-1-0l2"


def test_the_next_leg_is_taken_out_where_all_is_done_or_has_failed():
    for state, code in ((JobState.COMPLETED, 0), (JobState.FAILED, 1), (JobState.FAILED, JobOutcome.STALLED.exit_code)):
        told = Told()
        told.submit("1")
        told.begin("1", 5.0)
        told.submit("2", 2)
        told.tell("1", state, 50.0, 5.0, exit_code=code)
        assert told.view.phase is (Phase.DONE if not code else Phase.FAILED)
        assert [job_id for job_id, _ in told.state.lost_jobs()] == ["2"]


def test_a_leg_that_is_given_back_before_it_began_is_asked_for_again():
    """The leg would have idled, since its stage follows one that still runs."""
    told = Told()
    told.submit("1")
    told.tell("1", JobState.RUNNING, 5.0)
    list(told.state.apply(GivingUp("1", "it would idle", 6.0)))
    told.tell("1", JobState.CANCELLED, 7.0)
    list(told.state.apply(GivenUp("1", "it would idle", 8.0)))
    assert told.state.outcome is None
    assert (told.view.phase, told.view.leg, told.view.resubmissions) == (Phase.WAITING, 1, 1)
    assert told.submit("2").token == "abcd1234-1-1l1"


def test_a_failure_begins_a_new_round_that_knows_of_the_legs_before():
    told = Told(replace(TRAIN, retries=1))
    told.submit("1")
    told.begin("1", 5.0)
    told.leave("1", 5.0, 50.0)
    told.submit("2")
    told.begin("2", 55.0)
    told.tell("2", JobState.FAILED, 60.0, 55.0, exit_code=1)
    assert (told.view.phase, told.view.resubmissions, told.view.leg) == (Phase.WAITING, 1, 1)
    assert (told.view.earlier_legs, told.view.ran_s) == (1, 45.0)
    spec = told.submit("3")
    assert spec.token == "abcd1234-1-1l1"
    assert "ASA_LEG=2" in spec.command


def test_a_leg_that_gave_up_and_whose_turn_it_is_is_asked_for_again_under_another_token():
    """The client was away when the previous leg ended: the first leg's token can never be used again."""
    told = Told()
    told.submit("1")
    told.begin("1", 5.0)
    told.submit("2", 2)
    told.tell("1", JobState.TIMEOUT, 105.0, 5.0)
    told.tell("2", JobState.FAILED, 130.0, 100.0, exit_code=JobOutcome.UNYIELDING.exit_code)
    assert (told.view.phase, told.view.leg, told.view.resubmissions) == (Phase.WAITING, 2, 0)
    spec = told.submit("3")
    assert (spec.token, spec.leg, spec.supersedes) == ("abcd1234-1-0l2r1", 2, ())
    assert told.state.jobs["3"].round == told.state.jobs["1"].round


@pytest.mark.parametrize("how", ["unyielding", "cancelled", "refused"])
def test_without_its_successor_a_leg_runs_on_and_no_other_is_asked_for_before_its_turn(how):
    told = Told()
    told.submit("1")
    told.begin("1", 5.0)
    if how == "refused":
        planned = PlannedJob(("a",), 0.0, Keep.NOTHING, "", leg=2)
        spec = spec_of(told.state, planned)
        list(told.state.apply(Intended(spec.token, planned, spec, 0.0)))
        list(told.state.apply(Refused(spec.token, 9.0, "no")))
    else:
        told.submit("2", 2)
        if how == "unyielding":
            told.tell("2", JobState.FAILED, 30.0, 10.0, exit_code=JobOutcome.UNYIELDING.exit_code)
        else:
            told.tell("2", JobState.CANCELLED, 30.0)
    assert (told.view.phase, told.view.job_id, told.view.is_unyielding) == (Phase.RUNNING, "1", True)
    told.leave("1", 5.0, 50.0)
    assert (told.view.phase, told.view.leg) == (Phase.WAITING, 2)


def test_a_leg_that_is_put_back_into_the_queue_gives_way_to_one_that_has_begun():
    told = Told()
    told.submit("1")
    told.begin("1", 5.0)
    told.submit("2", 2)
    told.begin("2", 50.0)
    told.tell("1", JobState.PENDING, 52.0, restarts=1)
    assert (told.view.job_id, told.view.leg) == ("2", 2)
    assert told.state.lost_jobs() == [("1", "a later leg goes on")]


def test_a_leg_of_several_shapes_asks_for_a_leg_and_not_for_all_of_them():
    moldable = Moldable((4, 8), (RunAt(4, 250.0), RunAt(8, 130.0)))
    stage = replace(TRAIN, moldable=moldable)
    assert [(shape.width, shape.walltime_s) for shape in stage.shapes] == [(4, 100), (8, 100)]
    state = RunState("w", Workflow("w", (stage,), walltime_s=250.0), SITE, "abcd1234")
    planned = PlannedJob(("a",), 0.0, Keep.NOTHING, "")
    list(state.apply(Shaped("a", Choice(stage.shapes[1]), 0.0)))
    assert (spec_of(state, planned).cores, spec_of(state, planned).walltime_s) == (8, 100)


def test_a_leg_is_closed_only_when_none_of_its_jobs_could_run_it():
    """The job that gave up ended long ago; the job that replaces it is pending again."""
    told = Told()
    told.submit("1")
    told.begin("1", 5.0)
    told.submit("2", 2)
    told.tell("1", JobState.TIMEOUT, 105.0, 5.0)
    told.tell("2", JobState.FAILED, 130.0, 100.0, exit_code=JobOutcome.UNYIELDING.exit_code)
    told.submit("3")
    told.begin("3", 140.0)
    told.submit("4", 3)
    told.begin("4", 200.0)
    told.tell("3", JobState.PENDING, 202.0, restarts=1)
    assert told.view.leg == 3
    number = told.state.jobs["4"].round
    assert told.state.units.legs.over(number) == [1]
    told.tell("3", JobState.CANCELLED, 210.0)
    assert told.state.units.legs.over(number) == [1, 2]
