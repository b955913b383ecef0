"""Elastic, from the state of a run to the jobs, and the further cores, that it requests."""

from dataclasses import replace

import pytest

from asa.backend import Capabilities, DependencyType, PartitionLimits
from asa.strategies import GrowthView, Keep, Phase, RunView, StageView
from asa.strategies.elastic import Elastic
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow


def stage(name, cores, run_s, after=(), **more):
    return Stage(name, cores=cores, walltime_s=2 * run_s, expected_run_s=run_s, after=after, **more)


CHAIN = Workflow(
    "chain",
    [
        stage("a", 64, 1000),
        stage("b", 1, 500, ("a",)),
        stage("c", 64, 400, ("b",)),
        stage("d", 1, 100, ("c",)),
    ],
)
WIDTHS = (64, 1, 64, 1)
ALL = tuple(CHAIN.order)


class Fixed:
    """A forecast with given waits by cores; it notes its questions."""

    is_informed = True

    def __init__(self, default=0.0, *, waits=None):
        self.default, self.waits, self.asked = default, waits or {}, []

    def predict(self, stages, needed_s):
        return self._told(self.default)

    def predict_size(self, stages, needed_s, cores, walltime_s):
        self.asked.append((stages, needed_s, cores, walltime_s))
        return self._told(self.waits.get(cores, self.default))

    def _told(self, wait_s):
        return WaitForecast((wait_s,) * 9, wait_s)


def view(workflow=CHAIN, now=0.0, growths=(), site=None, **known):
    stages = {name: StageView(stage) for name, stage in workflow.stages.items()}
    for name, facts in known.items():
        stages[name] = replace(stages[name], **facts)
    given = {"max_cores": 1000, "cores_per_node": 1, "age_accrues": True, "shrink_by": 1, "grow_by": 1}
    return RunView(workflow, stages, now, Capabilities("site", **given | (site or {})), growths=tuple(growths))


def submitted(now, widths=WIDTHS, workflow=CHAIN, *, phase=Phase.RUNNING, limit_s=4240.0, steps=(), **more):
    """Return the view of a run whose stages are all in job 7, which began at 0; `steps`: beginnings and ends so far."""
    known = {}
    for place, (name, cores) in enumerate(zip(workflow.order, widths, strict=True)):
        began_s, ended_s = steps[place] if place < len(steps) else (None, None)
        known[name] = {"phase": phase, "job_id": "7", "submit_s": 0.0, "predicted_wait_s": 300.0, "cores": cores}
        known[name] |= {"started_s": began_s, "ended_s": ended_s, "limit_s": limit_s}
    return view(workflow, now, **known, **more)


def growth(phase, submit_s=0.0, job_id="8", **more):
    return GrowthView(job_id, "7", "c", 63, phase, submit_s, **more)


def asked(plan):
    return [(job.stages, job.submit_s, job.joins) for job in plan.submissions]


def test_it_asks_once_for_the_first_stages_cores():
    [job] = Elastic().plan(view(), Fixed()).submissions
    assert (job.stages, job.widths, job.submit_s, job.keep) == (ALL, WIDTHS, 0.0, Keep.NOTHING)
    assert job.reason == (
        "4 stages in one job, which gives cores back as it goes and gets more as it needs them, and may be idle for "
        "2m00s"
    )


class Rarely(Fixed):
    """A forecast by which only one job in ten waits."""

    def _told(self, wait_s):
        return WaitForecast((0.0,) * 8 + (wait_s,), wait_s)


def test_its_walltime_holds_the_wait_for_more_cores_up_to_a_quarter():
    """At least two minutes for each request: it may take so long until the client looks."""
    for wait_s, spare_s in ((10.0, 120.0), (700.0, 700.0), (9000.0, 1000.0)):
        forecast = Rarely(wait_s)
        [job] = Elastic().plan(view(site={"age_accrues": False}), forecast).submissions
        assert (job.widths, job.spare_walltime_s) == (WIDTHS, spare_s)
        assert (ALL, 0.0, 64, 4000.0 + spare_s) in forecast.asked, "what is predicted is the job that is asked for"


@pytest.mark.parametrize(("shrink_by", "grow_by", "widths"), [(16, 4, (64, 16, 64, 16)), (1, 10, (70, 10, 70, 10))])
def test_widths_are_what_the_site_gives_and_takes(shrink_by, grow_by, widths):
    """Widths are multiples of what it gives, and of what it takes back, at a time."""
    [job] = Elastic().plan(view(site={"shrink_by": shrink_by, "grow_by": grow_by}), Fixed()).submissions
    assert job.widths == widths


def test_where_nothing_is_taken_back_a_stage_that_needs_less_begins_another_job():
    flow = Workflow("w", [*CHAIN.stages.values(), stage("e", 100, 10, ("d",))])
    plan = Elastic().plan(view(flow, site={"shrink_by": 0}), Fixed())
    assert groups(plan) == [
        (("a",), (), Keep.NOTHING),
        (("b", "c"), (1, 64), Keep.DEPENDENCY),
        (("d", "e"), (1, 100), Keep.DEPENDENCY),
    ]


def test_stages_that_need_as_much_of_what_is_given_share_a_job_that_does_not_grow():
    """Their cores are counted in whole nodes of 28."""
    flow = Workflow("w", [stage("a", 20, 10), stage("b", 28, 10, ("a",))])
    nodes = {"cores_per_node": 28, "shrink_by": 28, "grow_by": 28}
    assert groups(Elastic().plan(view(flow, site=nodes), Fixed())) == [(("a", "b"), (), Keep.NOTHING)]


def test_more_cores_are_asked_for_the_wait_ahead():
    """A runs until 1000 and b until 1500, so at 1300; for as long as the job has left."""
    forecast = Fixed(waits={63: 200.0})
    plan = Elastic().plan(submitted(100.0, steps=[(0.0, None)]), forecast)
    assert asked(plan) == [(("c",), 1300.0, "7")]
    assert forecast.asked == [(("c",), 1500.0, 63, 4140.0)]
    assert plan.submissions[0].reason == "63 more cores for its job, needed in 23m20s, predicted wait 3m20s"


def test_stages_that_are_late_or_early_move_it():
    late = submitted(1200.0, steps=[(0.0, None)])
    assert asked(Elastic().plan(late, Fixed(200.0))) == [(("c",), 1500.0, "7")]
    early = submitted(700.0, steps=[(0.0, 600.0), (600.0, None)])
    assert asked(Elastic().plan(early, Fixed(200.0))) == [(("c",), 900.0, "7")]


def test_each_stage_that_needs_more_is_asked_for_in_its_turn():
    """C is expected when its cores have come; so d is needed at 1500 + 200 + 400."""
    flow = Workflow("rising", [*list(CHAIN.stages.values())[:3], stage("d", 100, 100, ("c",))])
    running = submitted(1400.0, (64, 1, 64, 100), flow, steps=[(0.0, 1000.0), (1000.0, None)])
    assert asked(Elastic().plan(running, Fixed(300.0))) == [(("c",), 1400.0, "7"), (("d",), 1800.0, "7")]


def test_what_was_asked_for_is_not_asked_for_again():
    running = submitted(1400.0, steps=[(0.0, 1000.0), (1000.0, None)], growths=[growth(Phase.QUEUED, 1300.0)])
    plan = Elastic().plan(running, Fixed(200.0))
    assert (plan.submissions, plan.cancellations) == ((), ())
    elsewhere = [replace(growth(Phase.QUEUED), joins="6"), replace(growth(Phase.QUEUED), stage="d")]
    running = submitted(1400.0, steps=[(0.0, 1000.0), (1000.0, None)], growths=elsewhere)
    assert asked(Elastic().plan(running, Fixed(200.0))) == [(("c",), 1400.0, "7")]


def test_nothing_is_asked_for_before_the_job_is_expected_to_have_begun():
    """More cores would come as soon as the job begins, which is expected after 300 s."""
    forecast = Fixed(9000.0)
    queued = submitted(100.0, phase=Phase.QUEUED, limit_s=None)
    assert asked(Elastic().plan(queued, forecast)) == [(("c",), 300.0, "7")]
    assert forecast.asked[0][1:] == (1800.0, 63, 4000.0)
    assert asked(Elastic().plan(replace(queued, now_s=400.0), forecast)) == []


def test_cores_that_came_early_are_kept_for_a_minute():
    for now, kept in ((1441.0, True), (1439.0, False)):
        early = submitted(now, steps=[(0.0, 1000.0), (1000.0, None)], growths=[growth(Phase.ALLOCATED)])
        told = [(one.job_id, one.reason) for one in Elastic().plan(early, Fixed()).cancellations]
        assert told == ([] if kept else [("8", "its cores came 1m01s before they were needed")])


def test_cores_that_the_job_would_give_back_itself_are_not_kept():
    """B keeps only one core, however many have joined the job."""
    for now in (100.0, 999.0):
        early = submitted(now, steps=[(0.0, None)], growths=[growth(Phase.ALLOCATED)])
        assert [one.job_id for one in Elastic(max_hold_s=1e6).plan(early, Fixed()).cancellations] == ["8"]


def test_cores_that_are_used_are_not_given_back():
    used = submitted(1510.0, steps=[(0.0, 1000.0), (1000.0, 1500.0), (1500.0, None)], growths=[growth(Phase.ALLOCATED)])
    assert Elastic(max_hold_s=0.0).plan(used, Fixed()).cancellations == ()


def test_what_came_too_early_is_asked_for_with_half_the_lead_and_in_the_end_without():
    for former, submit_s in ((1, 1300.0), (2, 1400.0), (6, 1500.0)):
        growths = [growth(Phase.DONE, job_id=f"{8 + i}") for i in range(former)]
        running = submitted(1010.0, steps=[(0.0, 1000.0), (1000.0, None)], growths=growths)
        assert asked(Elastic().plan(running, Fixed(400.0))) == [(("c",), submit_s, "7")]


def test_nothing_is_asked_for_while_the_machine_does_not_hold_both():
    """While a runs, the job has 64 of the 100 cores."""
    small = {"max_cores": 100}
    assert asked(Elastic().plan(submitted(900.0, steps=[(0.0, None)], site=small), Fixed(5000.0))) == []
    narrow = submitted(1001.0, steps=[(0.0, 1000.0), (1000.0, None)], site=small)
    assert asked(Elastic().plan(narrow, Fixed(5000.0))) == [(("c",), 1001.0, "7")]


def test_a_job_that_stands_still_for_too_long_is_given_up():
    """It asks for 240 s more than its stages do, however much of their walltimes a and b leave: it may idle no more."""
    standing = submitted(1739.0, steps=[(0.0, 1000.0), (1000.0, 1500.0)], growths=[growth(Phase.QUEUED)])
    plan = Elastic().plan(standing, Fixed())
    assert (plan.cancellations, plan.wake_s) == ((), 1740.0)
    [given_up] = Elastic().plan(replace(standing, now_s=1740.0), Fixed()).cancellations
    assert given_up.job_id == "7"
    before = submitted(1600.0, steps=[(0.0, 900.0), (1000.0, 1500.0)], growths=[growth(Phase.QUEUED)])
    assert Elastic().plan(before, Fixed()).wake_s == 1640.0, "it has stood still for 100 s already"
    slow = submitted(3400.0, steps=[(0.0, 1000.0), (1000.0, None)], growths=[growth(Phase.QUEUED)])
    assert Elastic().plan(slow, Fixed()).cancellations == (), "b runs: there is something to be had of it"


def test_what_is_left_of_a_job_that_was_given_up_is_asked_for_as_another():
    done = {"phase": Phase.DONE, "job_id": "7"}
    [job] = Elastic().plan(view(now=3250.0, a=done, b=done), Fixed()).submissions
    assert (job.stages, job.widths, job.keep) == (("c", "d"), (64, 1), Keep.NOTHING)


APART = [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("age_accrues", "wait_s", "last_s", "jobs", "widths"),
    [
        (False, 0.0, 200, [ALL], WIDTHS),
        (False, 300.0, 200, [ALL], WIDTHS),
        (False, 20_000.0, 200, [ALL], (64, 64, 64, 1)),
        (False, 20_000.0, 900, APART, (64, 1)),
        (True, 20_000.0, 200, APART, (64, 1)),
    ],
)
def test_more_cores_are_weighed_against_cores_kept_and_against_another_job(age_accrues, wait_s, last_s, jobs, widths):
    """A wait of 300 s passes while a and b run. One of 20,000 s would not; another job waits as long.

    To keep the cores for 200 s costs a seventh of all core-hours, which is worth less than that wait. For 900 s they
    would cost six tenths, and where the other job queues as the first one does it costs nothing.
    """
    flow = Workflow("w", [stage("b", 1, last_s, ("a",)) if s.name == "b" else s for s in CHAIN.stages.values()])
    plan = Elastic().plan(view(flow, site={"age_accrues": age_accrues}), Fixed(wait_s))
    assert [job.stages for job in plan.submissions] == jobs
    assert plan.submissions[0].widths == widths


def test_another_job_begins_where_more_cores_would_never_come_in_time():
    """They are asked for all that the job has left, and come in 20,000 s; as a short job of their own in 3000 s."""
    expensive = Elastic(worth=10.0)
    apart = expensive.plan(view(site={"age_accrues": False}), Fixed(waits={63: 20_000.0, 64: 3000.0}))
    assert [job.stages for job in apart.submissions] == APART
    in_time = expensive.plan(view(site={"age_accrues": False}), Fixed(waits={63: 1500.0, 64: 3000.0}))
    assert [(job.stages, job.widths) for job in in_time.submissions] == [(ALL, WIDTHS)]


class Lasting(Fixed):
    """A forecast by which wide jobs wait for so many times what they ask for."""

    def predict_size(self, stages, needed_s, cores, walltime_s):
        return self._told(self.default * walltime_s if cores > 1 else 0.0)


@pytest.mark.parametrize(
    ("times", "age_accrues", "jobs"),
    [(0.1, True, [ALL]), (2.0, True, [("a",), ("b",), ("c",), ("d",)]), (2.0, False, [("a",), ("b",), ("c",), ("d",)])],
)
@pytest.mark.parametrize("grow_by", [0, 1])
def test_a_narrow_stage_begins_another_job_where_a_longer_wide_one_would_wait_for_longer(
    times, age_accrues, jobs, grow_by
):
    """By more than the two minutes that may pass until another job begins. The narrow one waits for nothing."""
    site = {"age_accrues": age_accrues, "grow_by": grow_by}
    plan = Elastic().plan(view(site=site), Lasting(times))
    if not grow_by and jobs == [ALL]:
        jobs = APART
    assert [job.stages for job in plan.submissions] == jobs


def test_who_cannot_queue_behind_a_job_gains_nothing_by_another():
    flow = Workflow("w", [stage("b", 1, 200, ("a",)) if s.name == "b" else s for s in CHAIN.stages.values()])
    bare = {"dependency_types": frozenset({DependencyType.AFTER})}
    [job] = Elastic().plan(view(flow, site=bare), Fixed(20_000.0)).submissions
    assert job.widths == (64, 64, 64, 1)


def test_nothing_is_weighed_on_no_knowledge_and_everything_is_kept_where_idle_cores_cost_nothing():
    uninformed = Fixed(20_000.0)
    uninformed.is_informed = False
    assert Elastic(worth=1e-6).plan(view(), uninformed).submissions[0].widths == WIDTHS
    free = {"charges": "used", "age_accrues": False}
    assert Elastic().plan(view(site=free), Fixed(1800.0)).submissions[0].widths == (64, 64, 64, 1)


def groups(plan):
    return [(job.stages, job.widths, job.keep) for job in plan.submissions]


def test_where_no_job_grows_there_is_one_for_each_run_of_stages():
    no_growth = {"grow_by": 0}
    assert groups(Elastic().plan(view(site=no_growth), Fixed())) == [
        (("a", "b"), (), Keep.NOTHING),
        (("c", "d"), (), Keep.DEPENDENCY),
    ]
    assert all(job.shrinks for job in Elastic().plan(view(site=no_growth), Fixed()).submissions)
    rigid = Elastic().plan(view(site={"grow_by": 0, "shrink_by": 0}), Fixed())
    assert [job.stages for job in rigid.submissions] == [("a",), ("b",), ("c",), ("d",)]
    too_small = Elastic().plan(view(site={"max_cores": 64, "grow_by": 40}), Fixed())
    assert [job.stages for job in too_small.submissions] == [("a", "b"), ("c", "d")], "there are no 80 cores"


def test_without_dependencies_a_job_is_asked_for_in_its_turn():
    bare = {"grow_by": 0, "dependency_types": frozenset({DependencyType.AFTER})}
    assert groups(Elastic().plan(view(site=bare), Fixed())) == [(("a", "b"), (), Keep.NOTHING)]


@pytest.mark.parametrize("change", [{"gpus": 2}, {"retries": 1}, {"partition": "x"}, {"local": True}])
def test_stages_that_share_no_job_get_their_own(change):
    flow = Workflow("w", [replace(s, **change) if s.name == "b" else s for s in CHAIN.stages.values()])
    assert groups(Elastic().plan(view(flow), Fixed())) == [
        (("a",), (), Keep.NOTHING),
        (("b",), (), Keep.DEPENDENCY),
        (("c", "d"), (64, 1), Keep.DEPENDENCY),
    ]


def test_a_job_is_no_longer_than_its_partition_allows():
    limits = {"partitions": {"": PartitionLimits(max_walltime_s=3500.0)}}
    assert [job.stages for job in Elastic().plan(view(site=limits), Fixed()).submissions] == [("a", "b"), ("c", "d")]


def test_branches_run_one_after_the_other():
    flow = Workflow(
        "diamond",
        [
            stage("a", 8, 100),
            stage("b", 2, 10, ("a",)),
            stage("c", 4, 70, ("a",)),
            stage("d", 1, 5, ("b", "c")),
        ],
    )
    [job] = Elastic().plan(view(flow), Fixed()).submissions
    assert (job.stages, job.widths) == (("a", "b", "c", "d"), (8, 2, 4, 1))
