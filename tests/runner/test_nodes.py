"""The nodes that a run counts as bad, by the ends of jobs there, and the consequences."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pace import references

from asa.backend import Capabilities, ElementEnd, ElementsStatus, JobState, JobStatus
from asa.elements import Elements, parse_array
from asa.outcome import JobOutcome
from asa.records import Retrying
from asa.runner.course import RunEnding
from asa.runner.entries import Accepted, Begun, Intended, Reported
from asa.runner.nodes import TRIED_AGAIN_S
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies import Keep, Phase, PlannedJob
from asa.workflow import Stage, Workflow

SITE = Capabilities("x", 112, 28, age_accrues=False, arrays=True)  # four nodes


class Told:
    """A run's state that is fed with the statuses of jobs, and keeps them as a journal."""

    def __init__(self, *stages, site=SITE):
        self.stages = stages or tuple(Stage(n, cores=28, walltime_s=600, command="work") for n in "abcdef")
        self.site, self.entries, self.count = site, [], 0
        self.state = self.fresh()
        self.records = []
        self.apply(Begun(0.0, fail_fast=False))

    def fresh(self):
        return RunState("w", Workflow("w", self.stages), self.site, "abcd1234", ending=RunEnding(fail_fast=False))

    def apply(self, entry):
        self.entries.append(entry)
        self.records += self.state.apply(entry)

    def submit(self, name, at_s=0.0, **how):
        planned = PlannedJob((name,), at_s, Keep.NOTHING, "", **how)
        spec = spec_of(self.state, planned)
        self.count += 1
        job_id = str(self.count)
        self.apply(Intended(spec.token, planned, spec, at_s))
        self.apply(Accepted(spec.token, JobStatus(job_id, JobState.PENDING, at_s)))
        return job_id, spec

    def end(self, name, node, code=0, *, at_s=10.0, lasted_s=5.0, **what):
        """Have a job run a stage on a node, and end."""
        job_id, spec = self.submit(name, at_s - lasted_s)
        self.begin(job_id, node, at_s - lasted_s)
        state = what.pop("state", JobState.FAILED if code else JobState.COMPLETED)
        status = JobStatus(job_id, state, at_s - lasted_s, nodes=(node,), exit_code=code, end_s=at_s)
        times = {"start_s": at_s - lasted_s, "payload_start_s": at_s - lasted_s}
        status = replace(status, **times | what)
        self.apply(Reported(status))
        return spec

    def begin(self, job_id, node, at_s):
        times = {"start_s": at_s, "payload_start_s": at_s}
        self.apply(Reported(JobStatus(job_id, JobState.RUNNING, at_s, nodes=(node,), **times)))

    def bad(self, at_s=20.0):
        return [one.name for one in self.state.nodes.bad(at_s)]

    def phase(self, name):
        return self.state.stages[name].phase

    @property
    def reasons(self):
        return [one.reason for one in self.records if isinstance(one, Retrying)]


UNBEGUN = {"code": 1, "reason": "JobLaunchFailure", "outcome": JobOutcome.UNABLE, "exit_code": None}


@pytest.mark.parametrize("how", [{"code": 87}, UNBEGUN])
def test_what_could_not_begin_is_asked_for_elsewhere_at_once_and_costs_no_retry(how):
    told = Told()
    told.end("a", "n2", **how)
    assert told.bad() == ["n2"]
    assert (told.phase("a"), told.state.stages["a"].attempts) == (Phase.WAITING, 0)
    assert told.state.stages.pauses_s() == {}
    assert told.reasons[0].endswith("which counts as no retry; now on another node than n2")
    assert told.submit("a", 20.0)[1].avoid == ("n2",)
    assert told.submit("b", 20.0)[1].avoid == ("n2",), "so are others kept off it"


@pytest.mark.parametrize("code", [126, 127, 84, 82])
@pytest.mark.parametrize("elsewhere", ["nothing", "completed", "runs", "may run", "is to follow", "same node"])
def test_what_was_not_found_is_the_nodes_fault_where_others_do_well_elsewhere(code, elsewhere):
    told = Told()
    if elsewhere == "completed":
        told.end("b", "n1")
    elif elsewhere == "same node":
        told.end("b", "n2")
    elif elsewhere != "nothing":
        job_id, _ = told.submit("b")
        if elsewhere == "runs":
            told.begin(job_id, "n1", 9.0)
        elif elsewhere == "may run":
            told.apply(Reported(JobStatus(job_id, JobState.PENDING, 0.0, eligible_s=0.0)))
    told.end("a", "n2", code, at_s=10.0, lasted_s=5.0)
    is_so = elsewhere in {"completed", "runs", "may run"}
    assert told.phase("a") is (Phase.WAITING if is_so else Phase.FAILED)
    assert told.bad() == (["n2"] if elsewhere == "completed" else [])
    assert told.submit("a", 20.0)[1].avoid == (("n2",) if is_so else ())
    assert told.submit("c", 20.0)[1].avoid == tuple(told.bad()), "a suspicion moves one stage alone"


@pytest.mark.parametrize("code", [84, 127, 1])
def test_what_a_job_of_several_nodes_did_not_find_was_missing_on_the_first_where_its_script_runs(code):
    told = Told()
    told.end("b", "n1")
    told.end("c", "n2", 1)
    told.end("a", "n2", code, nodes=("n2", "n3"))
    assert told.bad() == ([] if code == 1 else ["n2"])


@pytest.mark.parametrize("code", [82, 84, 87, 127])
def test_a_users_own_exit_code_says_nothing_of_the_node(code):
    told = Told()
    told.end("b", "n1")
    told.end("a", "n2", code, outcome=JobOutcome.FAILED)
    assert told.bad() == (["n2"] if code == 127 else [])


def test_two_stages_with_a_typing_error_keep_nobody_else_off_their_nodes():
    """Nothing has completed yet: each failed stage gets another node, and all other stages may use the same nodes."""
    told = Told()
    waiting, _ = told.submit("c")
    told.apply(Reported(JobStatus(waiting, JobState.PENDING, 0.0, eligible_s=0.0)))
    told.end("a", "n1", 126)
    told.end("b", "n2", 127, at_s=11.0)
    assert told.bad() == []
    assert [told.submit(name, 20.0)[1].avoid for name in "abde"] == [("n1",), ("n2",), (), ()]


def test_a_suspicion_that_is_proven_keeps_all_off_the_node():
    told = Told()
    told.begin(told.submit("c")[0], "n1", 1.0)
    told.end("a", "n2", 127)
    assert told.submit("d", 15.0)[1].avoid == ()
    told.end("a", "n3", at_s=20.0)
    assert told.bad(21.0) == ["n2"]
    assert told.submit("e", 21.0)[1].avoid == ("n2",)


def test_one_stage_alone_does_not_condemn_a_node_where_another_has_completed():
    told = Told()
    told.end("b", "n1")
    told.end("c", "n2")
    told.end("a", "n2", 127, at_s=20.0)
    assert (told.phase("a"), told.bad(21.0)) == (Phase.WAITING, [])
    assert told.submit("a", 21.0)[1].avoid == ("n2",)


def test_who_fails_so_on_another_node_too_has_failed_by_itself():
    """The stage's earlier failure on another node then no longer counts against that node."""
    told = Told()
    told.end("b", "n1")
    told.end("a", "n2", 127)
    told.end("a", "n3", 127, at_s=20.0)
    assert told.phase("a") is Phase.FAILED
    assert told.bad() == []


def test_what_could_not_begin_on_any_node_is_moved_three_times_and_no_more():
    told = Told(site=Capabilities("x", 2800, 28, age_accrues=False))
    for number in range(1, 5):
        assert told.phase("a") is Phase.WAITING
        told.end("a", f"n{number}", 87, at_s=10.0 * number)
    assert told.phase("a") is Phase.FAILED
    assert told.bad() == []


def test_what_comes_back_to_its_first_node_as_too_few_are_left_has_failed_on_all():
    told = Told()
    for number, node in enumerate(("n1", "n2", "n1"), start=1):
        assert told.phase("a") is Phase.WAITING
        told.end("a", node, 87, at_s=10.0 * number)
    assert (told.phase("a"), told.bad(31.0)) == (Phase.FAILED, [])


def test_retries_are_left_to_who_was_moved():
    told = Told(Stage("a", cores=1, walltime_s=600, command="x", retries=1), Stage("b", cores=1, walltime_s=9))
    told.end("a", "n2", 87)
    told.end("a", "n1", 1, at_s=30.0)
    assert (told.phase("a"), told.state.stages["a"].attempts) == (Phase.WAITING, 1)
    told.end("a", "n3", 1, at_s=90.0)
    assert told.phase("a") is Phase.FAILED


def flaky(*names, retries=2):
    return [Stage(name, cores=28, walltime_s=600, command="x", retries=retries) for name in names]


def test_two_stages_that_fail_soon_make_a_bad_node_whatever_the_code():
    told = Told(*flaky("a", "b", "c"))
    told.end("c", "n1")
    told.end("a", "n2", 3, at_s=20.0)
    assert (told.bad(), told.state.stages["a"].attempts) == ([], 1)
    told.end("b", "n2", 4, at_s=30.0)
    assert (told.bad(), told.state.stages["b"].attempts) == (["n2"], 0)


@pytest.mark.parametrize("but", ["one stage twice", "late", "far apart", "one did well there", "nobody did well"])
def test_but_not_where(but):
    told = Told(*flaky("a", "b", "c", "d"))
    if but != "nobody did well":
        told.end("c", "n1")
    told.end("a", "n2", 3, at_s=20.0)
    if but == "one did well there":
        told.end("d", "n2", at_s=25.0)
    told.end(
        "a" if but == "one stage twice" else "b", "n2", 4,
        at_s=5000.0 if but == "far apart" else 400.0, lasted_s=300.0 if but == "late" else 5.0,
    )  # fmt: skip
    assert told.bad(401.0) == []


def test_a_node_that_failed_costs_no_retry_where_there_are_retries():
    """Without retries, a payload that has begun is not run again."""
    told = Told(*flaky("a"), *flaky("b", retries=0))
    told.end("a", "n2", 1, bad_nodes=("n2",), exit_code=None, reason="NODE_FAIL")
    assert (told.phase("a"), told.state.stages["a"].attempts, told.bad()) == (Phase.WAITING, 0, ["n2"])
    told.end("b", "n3", 1, bad_nodes=("n3",), exit_code=None, reason="NODE_FAIL")
    assert (told.phase("b"), told.bad()) == (Phase.FAILED, ["n2", "n3"])


def test_a_bad_node_is_tried_again_after_an_hour_and_earlier_where_a_job_does_well_there():
    told = Told()
    told.end("a", "n2", 87, at_s=10.0)
    assert told.bad(10.0 + TRIED_AGAIN_S - 1) == ["n2"]
    assert told.bad(10.0 + TRIED_AGAIN_S) == []
    assert told.submit("b", 10.0 + TRIED_AGAIN_S)[1].avoid == ()
    told.end("c", "n2", at_s=200.0)
    assert told.bad(201.0) == []


def test_no_job_is_kept_off_so_many_nodes_that_too_few_are_left():
    told = Told(Stage("a", cores=1, walltime_s=9, command="x"), Stage("wide", nodes=4, walltime_s=9, command="x"))
    told.end("a", "n2", 87)
    assert told.submit("wide", 20.0)[1].avoid == ()
    assert told.submit("a", 20.0)[1].avoid == ("n2",)


def test_on_a_single_node_a_failure_counts():
    told = Told(site=Capabilities("x", 28, 28, age_accrues=False))
    told.end("a", "n1", 87)
    assert told.phase("a") is Phase.FAILED


def test_who_goes_on_with_the_run_knows_its_bad_nodes():
    told = Told()
    told.end("b", "n1")
    told.end("a", "n2", 127)
    again = told.fresh()
    for entry in told.entries:
        list(again.apply(entry))
    assert again.nodes == told.state.nodes
    assert [one.text for one in again.nodes.bad(20.0)] == ["a did not find something there that others find elsewhere"]


def test_elements_are_asked_for_elsewhere_beside_those_that_failed_by_themselves():
    told = Told(Stage("a", cores=28, walltime_s=600, command="x", array=parse_array("1-6"), retries=1))
    job_id, _ = told.submit("a")
    told.begin(job_id, "n1", 1.0)
    ended = (
        ElementEnd(Elements.of([2]), JobState.FAILED, 87, "NonZeroExitCode", nodes=("n2",)),
        ElementEnd(Elements.of([3]), JobState.FAILED, 127, "NonZeroExitCode", nodes=("n2",)),
    )
    elements = ElementsStatus(completed=Elements.of([1, 4, 5, 6]), ended=ended, nodes=("n1", "n3"))
    status = JobStatus(job_id, JobState.FAILED, 0.0, start_s=1.0, payload_start_s=1.0, end_s=9.0, exit_code=87)
    told.apply(Reported(replace(status, elements=elements)))
    assert (told.phase("a"), told.state.stages["a"].attempts, told.bad()) == (Phase.WAITING, 0, ["n2"])
    [reason] = told.reasons
    assert reason.startswith("elements 2 failed")
    spec = told.submit("a", 20.0)[1]
    assert (str(spec.array), spec.avoid) == ("2-3", ("n2",))


def test_a_fan_of_stages_with_one_mistake_is_not_moved_as_a_whole():
    """The first stages are tried on a second node; when they fail there, too, the other stages are not."""
    names = [f"s{number}" for number in range(20)]
    told = Told(*(Stage(name, cores=28, walltime_s=600, command="typo") for name in ("well", *names)))
    told.end("well", "n4")
    for number, name in enumerate(names):
        told.end(name, f"n{1 + number % 3}", 127, at_s=20.0 + number)
        if told.phase(name) is Phase.WAITING:
            told.end(name, "n4", 127, at_s=20.5 + number)
        assert told.phase(name) is Phase.FAILED
    assert len(told.reasons) == 3
    assert told.bad(50.0) == []


def test_off_a_node_whose_fault_is_proven_every_stage_is_moved():
    told = Told()
    told.end("b", "n1")
    told.end("a", "n2", 127)
    told.end("a", "n1", at_s=20.0)
    told.end("c", "n3", 127, at_s=21.0)
    told.end("c", "n2", 127, at_s=22.0)
    assert told.phase("c") is Phase.WAITING, "it was on its way there"
    told.end("c", "n1", at_s=30.0)
    assert told.phase("c") is Phase.DONE


def test_of_jobs_that_share_tasks_another_takes_the_place_of_one_that_could_not_begin():
    tasks = tuple(f"work {number}" for number in range(8))
    told = Told(Stage("a", cores=2, walltime_s=600, tasks=tasks, jobs=(2, 2)))
    first, _ = told.submit("a")
    second, _ = told.submit("a", mate=1)
    told.begin(second, "n1", 1.0)
    ended = JobStatus(first, JobState.FAILED, 0.0, start_s=1.0, end_s=2.0, exit_code=87, nodes=("n2",))
    told.apply(Reported(replace(ended, outcome=JobOutcome.FOLDER_MISSING)))
    assert told.bad() == ["n2"]
    lead = told.state.jobs[told.state.stages["a"].job_id]
    assert lead.status.job_id == second
    [asked] = told.state.units.tasks.missing(told.state, lead, 3.0)
    assert (asked.mate, spec_of(told.state, asked).avoid) == (2, ("n2",))


def sharing(*, others=2):
    """Make two jobs that share a stage's tasks begin on one node."""
    told = Told(Stage("a", cores=2, walltime_s=600, tasks=tuple(f"work {n}" for n in range(8)), jobs=(others, others)))
    jobs = [told.submit("a")[0], told.submit("a", mate=1)[0]]
    for job_id in jobs:
        told.apply(Reported(JobStatus(job_id, JobState.RUNNING, 0.0, start_s=1.0, nodes=("n2",))))
    return told, jobs


def fails(told, job_id, at_s, code=87, outcome=JobOutcome.FOLDER_MISSING, **more):
    ended = JobStatus(job_id, JobState.FAILED, 0.0, start_s=1.0, end_s=at_s, exit_code=code, nodes=("n2",))
    told.apply(Reported(replace(ended, outcome=outcome, **more)))


def test_a_node_on_which_two_jobs_that_share_a_stage_could_not_begin_stays_on_the_list():
    """The second job started there before the first had failed, so it is no second failure elsewhere."""
    told, (first, second) = sharing()
    fails(told, first, 2.0)
    assert told.bad(3.0) == ["n2"]
    fails(told, second, 3.0)
    assert (told.bad(4.0), told.phase("a"), told.state.stages["a"].attempts) == (["n2"], Phase.WAITING, 0)
    assert told.state.nodes._refuted == 0
    assert told.submit("a", 4.0)[1].avoid == ("n2",)


def test_nor_does_one_that_failed_there_by_itself_take_it_off_the_list():
    told, (first, second) = sharing()
    fails(told, first, 2.0)
    fails(told, second, 3.0, 1, JobOutcome.FAILED, payload_start_s=1.0)
    assert (told.bad(4.0), told.state.nodes._refuted, told.phase("a")) == (["n2"], 0, Phase.FAILED)


def array_that_ended(*ended, retries):
    told = Told(Stage("a", cores=28, walltime_s=600, command="x", array=parse_array("1-3"), retries=retries))
    job_id, _ = told.submit("a")
    told.begin(job_id, "n2", 1.0)
    status = JobStatus(job_id, JobState.FAILED, 0.0, start_s=1.0, payload_start_s=1.0, end_s=9.0)
    told.apply(Reported(replace(status, elements=ElementsStatus(completed=Elements.of([1]), ended=ended))))
    return told


@pytest.mark.parametrize("retries", [0, 1])
def test_an_element_that_failed_by_itself_is_not_excused_by_another_that_could_not_begin_there(retries):
    told = array_that_ended(
        ElementEnd(Elements.of([2]), JobState.FAILED, 87, "NonZeroExitCode", JobOutcome.FOLDER_MISSING, ("n2",)),
        ElementEnd(Elements.of([3]), JobState.FAILED, 1, "NonZeroExitCode", JobOutcome.FAILED, ("n2",)),
        retries=retries,
    )
    assert (told.state.stages["a"].attempts, told.bad()) == (retries, ["n2"])
    array = told.submit("a", 20.0)[1].array
    assert str(array) == ("2-3" if retries else "2"), "the other has failed for good"


def test_an_element_under_which_a_node_failed_costs_no_retry_where_there_are_retries():
    for retries in (0, 1):
        told = array_that_ended(
            ElementEnd(Elements.of([2]), JobState.FAILED, None, "NODE_FAIL", nodes=("n2",), bad_nodes=("n2",)),
            ElementEnd(Elements.of([3]), JobState.FAILED, None, "NODE_FAIL", nodes=("n3",), bad_nodes=("n3",)),
            retries=retries,
        )
        assert told.phase("a") is (Phase.WAITING if retries else Phase.FAILED)
        assert told.state.stages["a"].attempts == 0
    assert (told.bad(), told.submit("a", 20.0)[1].avoid) == (["n2", "n3"], ("n2", "n3"))


def test_a_failure_is_judged_without_a_walk_over_all_jobs():
    """A new client replays thousands of failures on one node."""
    told = Told()
    nodes = told.state.nodes
    jobs = [
        JobStatus(str(n), JobState.RUNNING, 0.0, start_s=1.0, payload_start_s=1.0, nodes=("n2",)) for n in range(5000)
    ]
    jobs = [SimpleNamespace(status=one, planned=SimpleNamespace(stages=("a",))) for one in jobs]
    for one in jobs:
        nodes.follow(one)
    assert dict(nodes._live) == {"n2": 5000}

    def all_fail():
        for number, one in enumerate(jobs):
            end = replace(one.status, state=JobState.FAILED, end_s=2.0, exit_code=3)
            one.status = end
            nodes.follow(one)
            assert not nodes.moves(Stage(f"s{number}", cores=1, walltime_s=9, command="x", retries=1), end, one)

    assert references(all_fail, rounds=1) < 200, "with walks it is a thousand"
    assert not nodes._live
    assert all(len(early) <= 8 for early in nodes._early.values())


def test_where_jobs_run_is_known_whatever_becomes_of_them():
    told = Told()
    nodes = told.state.nodes
    job_id, _ = told.submit("a")
    assert not nodes._does_well_elsewhere("n1", waits=True), "something may yet keep it back"
    told.apply(Reported(JobStatus(job_id, JobState.PENDING, 0.0, eligible_s=0.0)))
    assert [nodes._does_well_elsewhere("n1", waits=waits) for waits in (True, False)] == [True, False]
    told.begin(job_id, "n1", 1.0)
    assert [nodes._does_well_elsewhere(name) for name in ("n1", "n2")] == [False, True]
    told.apply(Reported(JobStatus(job_id, JobState.PENDING, 5.0, eligible_s=5.0, restarts=1)))
    assert [nodes._does_well_elsewhere("n2", waits=waits) for waits in (True, False)] == [True, False]
    told.apply(Reported(JobStatus(job_id, JobState.CANCELLED, 5.0, end_s=9.0)))
    assert not nodes._does_well_elsewhere("n2", waits=True)


# ---------------------------------------------------------------------- pending jobs that were asked for elsewhere


AWAY = "ReqNodeNotAvail, UnavailableNodes:n[1,3-4]"


@pytest.mark.parametrize(
    ("reason", "when"),
    [(AWAY, 10.0 + TRIED_AGAIN_S), ("Resources", None), ("ReqNodeNotAvail, Reserved for maintenance", None)],
)
def test_a_job_waits_for_nodes_that_are_away_until_the_one_that_it_avoids_may_be_tried_again(reason, when):
    told = Told()
    told.end("a", "n2", 87)
    job_id, spec = told.submit("b", 20.0)
    assert spec.avoid == ("n2",)
    told.apply(Reported(JobStatus(job_id, JobState.PENDING, 20.0, eligible_s=20.0, reason=reason)))
    job = told.state.jobs[job_id]
    assert told.state.nodes.tried_again_s(job) == when
    told.end("c", "n2", at_s=40.0)  # one that was there before it was avoided does well
    assert (told.bad(), told.state.nodes.tried_again_s(job)) == ([], None if when is None else -math.inf)
