"""asa-plan, from the state of a run to the jobs that it requests."""

from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable

from asa import WaitBank
from asa.backend import Capabilities
from asa.errors import InputError
from asa.metrics import measure
from asa.records import Cancelled, Resized, Submitted
from asa.report.frontier import candidates_of
from asa.runner import Run, run_all
from asa.strategies import GrowthView, Keep, Phase, RunView, StageView, load_strategy
from asa.strategies.planned import Planned
from asa.strategies.planning import Aim, look_ahead
from asa.waits import WaitForecast, exactly
from asa.workflow import Stage, Workflow

CHAIN = Workflow(
    "chain",
    [
        Stage("wide", cores=64, walltime_s=1200, expected_run_s=800),
        Stage("narrow", cores=1, walltime_s=1200, expected_run_s=800, after=("wide",)),
        Stage("again", cores=64, walltime_s=300, expected_run_s=200, after=("narrow",)),
        Stage("last", cores=1, walltime_s=300, expected_run_s=200, after=("again",)),
    ],
)
SHAPE = (0.1, 0.3, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)


class Fixed:
    """A forecast with a given mean wait for each stage that is the first of a job."""

    def __init__(self, default=600.0, *, informed=True, shape=SHAPE, **waits):
        self.default, self.waits, self.is_informed, self.shape = default, waits, informed, shape

    def predict(self, stages, needed_s):
        wait_s = self.waits.get(stages[0], self.default)
        return WaitForecast(tuple(wait_s * factor for factor in self.shape), wait_s)


class Sized(Fixed):
    """A forecast that knows a wait of its own for jobs of 63 cores."""

    def __init__(self, more_s, **options):
        super().__init__(**options)
        self.more_s, self.asked = more_s, []

    def predict_size(self, stages, needed_s, cores, walltime_s):
        self.asked.append((stages, cores, walltime_s))
        return WaitForecast((self.more_s,) * 9, self.more_s) if cores == 63 else self.predict(stages, needed_s)


def view(workflow=CHAIN, now=0.0, *, shrink_by=1, age_accrues=False, max_queued=None, grow_by=0, growths=(), **known):
    stages = {name: StageView(stage) for name, stage in workflow.stages.items()}
    for name, facts in known.items():
        stages[name] = replace(stages[name], **facts)
    site = Capabilities("site", 1000, 1, age_accrues, shrink_by=shrink_by, max_queued=max_queued, grow_by=grow_by)
    return RunView(workflow, stages, now, site, growths=tuple(growths))


def groups(plan):
    return [job.stages for job in plan.submissions]


def test_where_nothing_is_known_each_stage_is_a_job_behind_those_that_it_follows():
    unknown = Fixed(informed=False)
    first, *others = Planned().plan(view(), unknown).submissions
    assert (first.stages, first.keep) == (("wide",), Keep.NOTHING)
    assert [(job.stages, job.keep, job.submit_s) for job in others] == [
        ((name,), Keep.DEPENDENCY, 0.0) for name in ("narrow", "again", "last")
    ]
    assert all("waits are not known" in job.reason for job in (first, *others))
    begun = {"phase": Phase.RUNNING, "job_id": "1"}
    assert groups(Planned().plan(view(wide=begun), unknown)) == [("narrow",), ("again",), ("last",)]
    assert groups(Planned().plan(view(wide=begun, max_queued=2), unknown)) == [("narrow",)]
    assert groups(Planned(max_in_flight=1).plan(view(), unknown)) == [("wide",)]


def test_where_nothing_is_known_and_there_are_no_dependencies_a_stage_waits_for_its_turn():
    def without(**known):
        seen = view(**known)
        return replace(seen, capabilities=replace(seen.capabilities, dependency_types=frozenset()))

    assert groups(Planned().plan(without(), Fixed(informed=False))) == [("wide",)]
    done = {"phase": Phase.DONE, "ended_s": 5.0}
    assert groups(Planned().plan(without(wide=done), Fixed(informed=False))) == [("narrow",)]


def test_narrow_stages_are_taken_along_by_a_job_that_shrinks():
    plan = Planned(Aim(price_s=1000.0)).plan(view(age_accrues=True), Fixed())
    assert groups(plan) == [("wide", "narrow"), ("again", "last")]
    assert all(job.shrinks for job in plan.submissions)
    assert [job.keep for job in plan.submissions] == [Keep.NOTHING, Keep.DEPENDENCY]
    assert [job.submit_s for job in plan.submissions] == [0.0, 0.0]


def test_where_age_does_not_accrue_a_dependent_job_is_sent_shortly_before_its_turn():
    """Until then the plan may improve. Submitted earlier, the job might start at once, and idle."""
    running = {"phase": Phase.RUNNING, "job_id": "1", "submit_s": 0.0, "started_s": 100.0}
    plan = Planned(Aim(price_s=1e6)).plan(view(now=200.0, wide=running, narrow=running), Fixed(shape=(0.0, *SHAPE[1:])))
    [job] = plan.submissions
    assert (job.stages, job.keep) == (("again", "last"), Keep.DEPENDENCY)
    assert job.submit_s == pytest.approx(100 + 1600 - 120)


def test_at_no_price_it_is_one_job():
    """Where jobs may not start early, two waits are worse than one, however wide the job."""
    outlook = look_ahead(view(shrink_by=0), Fixed(5000.0), Aim(price_s=0.0))
    assert outlook.sketch.makespan_s <= 5000 * 3 + 2000


def test_a_budget_is_kept():
    waits = Fixed(3000.0)
    for factor in (1.0, 1.2, 2.0, 10.0):
        outlook = look_ahead(view(shrink_by=0), waits, Aim(at_most=factor))
        assert outlook.sketch.core_hours <= factor * outlook.per_stage_hours * 1.001
    few, many = (look_ahead(view(shrink_by=0), waits, Aim(at_most=factor)) for factor in (1.0, 3.0))
    assert many.sketch.makespan_s < few.sketch.makespan_s
    spent = replace(view(shrink_by=0), spent=lambda: 1.5 * few.per_stage_hours)  # by jobs that came to nothing
    assert look_ahead(spent, waits, Aim(at_most=3.0)).sketch.core_hours <= 1.5 * few.per_stage_hours * 1.001
    assert look_ahead(spent, waits, Aim(at_most=2.0)).sketch.core_hours < many.sketch.core_hours


def test_a_deadline_is_met_as_cheaply_as_can_be():
    waits = Fixed(3000.0)
    plans = look_ahead(view(shrink_by=0), waits).frontier()
    assert len(plans) > 1
    loose, tight = (look_ahead(view(shrink_by=0), waits, Aim(deadline_s=time_s)).sketch for time_s in (1e9, 1.0))
    assert loose.core_hours == pytest.approx(plans[0].core_hours)
    assert tight.makespan_s == pytest.approx(plans[-1].makespan_s)


def test_a_site_that_charges_what_is_used_gets_the_fastest_plan():
    free = view(shrink_by=0)
    free = replace(free, capabilities=replace(free.capabilities, charges="used"))
    fastest = look_ahead(view(shrink_by=0), Fixed(3000.0), Aim(price_s=0.0))
    assert look_ahead(free, Fixed(3000.0)).sketch.makespan_s == fastest.sketch.makespan_s


def long_view(queued, *, is_chain=True, **site):
    """Show 130 stages, none of which can share a job; the first have jobs of their own."""
    before = [(f"s{n - 1}",) if n and is_chain else () for n in range(130)]
    stages = [Stage(f"s{n}", cores=1, walltime_s=600, after=after, retries=1) for n, after in enumerate(before)]
    jobs = {f"s{n}": {"phase": Phase.QUEUED, "job_id": f"{n}", "submit_s": 0.0} for n in range(queued)}
    return view(Workflow("long", stages), **site, **jobs)


class Unasked(Fixed):
    """A forecast that nobody may ask."""

    def predict(self, stages, needed_s):
        raise AssertionError(f"{stages} at {needed_s}")


def test_where_age_accrues_one_plan_of_a_long_workflow_keeps_20_jobs_ahead_for_several_events():
    def asked(queued, **limits):
        return len(Planned(**limits).plan(long_view(queued, age_accrues=True), Fixed()).submissions)

    assert [asked(queued) for queued in (4, 12, 19)] == [24, 16, 9]
    for queued in (20, 27, 60, 129):
        assert not Planned().plan(long_view(queued, age_accrues=True), Unasked()).submissions
    assert [asked(queued, max_in_flight=21) for queued in (19, 20)] == [2, 1]
    assert len(Planned().plan(long_view(19, age_accrues=True, max_queued=22), Fixed()).submissions) == 3


def test_where_age_does_not_accrue_each_event_may_change_when_the_next_job_is_submitted():
    [job] = Planned().plan(long_view(19), Fixed()).submissions
    assert job.submit_s > 0
    assert not Planned().plan(long_view(20), Unasked()).submissions


def test_stages_that_may_run_at_once_are_planned_however_many_jobs_are_under_way():
    assert len(Planned().plan(long_view(20, is_chain=False), Fixed()).submissions) == 24
    more = groups(Planned().plan(long_view(50, is_chain=False, age_accrues=True), Fixed()))
    assert sorted(more) == sorted((f"s{n}",) for n in range(50, 100))


def test_jobs_in_flight_are_limited_by_the_site_and_by_its_user():
    def asked(strategy, **options):
        return len(strategy.plan(view(shrink_by=0, age_accrues=True, **options), Fixed()).submissions)

    expensive = Aim(price_s=1000.0)
    assert asked(Planned(expensive)) > 2
    assert asked(Planned(expensive, max_in_flight=2)) == 2
    assert asked(Planned(expensive), max_queued=1) == 1


def test_all_that_is_planned_at_a_time_is_asked_for_where_age_accrues_as_chained_does():
    """A job that is submitted later gains priority later."""

    def asked(levels, informed):
        stages, last = [], ()
        for level in range(levels):
            names = tuple(f"s{level}-{n}" for n in range(8 if level % 2 else 1))
            stages += [Stage(name, 8, 2400.0, after=last, command="x") for name in names]
            last = names
        seen = replace(view(age_accrues=True), workflow=(flow := Workflow("fan", stages)))
        seen = replace(seen, stages={name: StageView(stage) for name, stage in flow.stages.items()})
        return len(Planned().plan(seen, Fixed(informed=informed)).submissions)

    assert asked(7, informed=True) == asked(7, informed=False) == 28
    assert asked(20, informed=True) == 24, "of more than are planned at a time, as many as are"
    assert asked(20, informed=False) == 20


def test_of_jobs_side_by_side_the_one_is_submitted_first_that_most_work_follows():
    flow = Workflow(
        "fork",
        [
            Stage("split", 1, 60.0, command="x"),
            Stage("aside", 8, 600.0, after=("split",), command="x"),
            Stage("long", 8, 1500.0, after=("split",), command="x"),
            Stage("then", 8, 900.0, after=("long",), command="x"),
            Stage("merge", 1, 60.0, after=("aside", "then"), command="x"),
        ],
    )
    seen = replace(view(age_accrues=True), workflow=flow)
    seen = replace(seen, stages={name: StageView(stage) for name, stage in flow.stages.items()})
    order = [name for stages in groups(Planned().plan(seen, Fixed(30.0))) for name in stages]
    assert sorted(order) == sorted(flow.stages)
    assert order.index("long") < order.index("aside")
    assert order.index("long") < order.index("then") < order.index("merge")
    assert order.index("aside") < order.index("merge")


def test_a_job_that_is_queued_stays_whatever_is_estimated_now():
    queued = {"phase": Phase.QUEUED, "job_id": "1", "submit_s": 0.0, "keep": Keep.NOTHING}
    for wait_s in (1.0, 1e6):
        plan = Planned().plan(view(now=50.0, wide=queued), Fixed(wait_s))
        assert not plan.cancellations
        assert all("wide" not in job.stages for job in plan.submissions)


def test_what_came_too_early_is_given_back():
    """The job may idle until 1000; the stage before it ends at 900, or at 1900."""
    early = {"phase": Phase.ALLOCATED, "job_id": "2", "submit_s": 0.0, "keep": Keep.AWAIT, "hold_until_s": 1000.0}
    for started_s, given_back in ((100.0, False), (1100.0, True)):
        running = {"phase": Phase.RUNNING, "job_id": "1", "submit_s": 0.0, "started_s": started_s}
        plan = Planned().plan(view(now=1.0, wide=running, narrow=early), Fixed())
        assert [c.job_id for c in plan.cancellations] == (["2"] if given_back else [])
        assert given_back or plan.wake_s == 1000.0


def test_a_stage_that_came_too_early_too_often_is_asked_for_in_its_turn():
    flow = Workflow("two", [CHAIN.stages["wide"], CHAIN.stages["narrow"]])
    running = {"phase": Phase.RUNNING, "job_id": "1", "submit_s": 0.0, "started_s": 0.0}
    now = view(flow, 10.0, wide=running, narrow={"resubmissions": 3})
    for strategy in (Planned(), Planned(max_resubmissions=9)):
        kept = [job.keep for job in strategy.plan(now, Fixed()).submissions]
        assert (Keep.AWAIT in kept) == (strategy.max_resubmissions == 9)


@pytest.mark.parametrize(
    ("name", "told"),
    [("asa-plan:cost=1", "no setting 'cost'"), ("asa-plan:price=cheap", "'cheap' is no price of time"),
     ("asa-plan:deadline=soon", "'soon' is no time"),
     ("asa-plan:grow=1", "'1' is not yes or no"),
     ("asa-plan:shapes=wide", "not a choice of shapes"), ("chained:price=1", "takes no settings")],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(name, told):
    with pytest.raises(InputError, match=told):
        load_strategy(name)


def test_settings_are_read():
    aim = load_strategy("asa-plan:price=30:at-most=1.1:deadline=2026-11-30T08:00").aim
    assert (aim.price_s, aim.at_most, aim.grow) == (30.0, 1.1, False)
    assert load_strategy("asa-plan:grow=yes").aim.grow
    assert aim.deadline_s > 1.7e9


def world(others=((0, 500, 500, 64),), **options):
    columns = np.array(others, dtype=np.int64).reshape(-1, 4).T
    return SimulatedBackend(Engine(100, JobTable(*columns), now=0), Machine("m", 1, 100), **options)


def taught(wait_s=300.0):
    """Make a bank that has learned waits of this machine's jobs."""
    bank = WaitBank("median")
    for i in range(40):
        from asa.waits import QueuedJob

        job = QueuedJob(-1e6 + i * 1000.0, 64, 1200.0, system="m")
        bank.observe(bank.submitted(job), exactly(wait_s))
    return bank


@pytest.mark.parametrize("shrink", [True, False])
def test_a_run_gives_back_what_it_does_not_need_and_pays_per_stages_core_hours(shrink):
    """A whole run: each stage once, in order."""
    bank = taught()
    [result] = run_all(world(shrink=shrink), [Run(CHAIN, Planned(Aim(at_most=1.1)), bank=bank)], history=0)
    assert result.outcome == "completed", result.reason
    told = measure(CHAIN, result.records)
    assert told.core_hours == pytest.approx(CHAIN.stage_core_hours(1), rel=0.15)
    assert any(isinstance(r, Resized) for r in result.records) == shrink
    jobs = [r.stages for r in result.records if isinstance(r, Submitted)]
    assert sorted(name for stages in jobs for name in stages) == sorted(CHAIN.order)
    assert not [r for r in result.records if isinstance(r, Cancelled)]


def test_merged_jobs_teach_the_bank_too():
    bank = taught()
    before = bank.own
    run_all(world(), [Run(CHAIN, Planned(Aim(price_s=1000.0)), bank=bank)], history=0)
    assert bank.own > before


@pytest.mark.parametrize("age_accrues", [True, False])
def test_a_job_that_waits_for_a_local_stage_is_not_given_back_for_ever(age_accrues):
    stages = [
        Stage("q", cores=4, walltime_s=300, expected_run_s=100),
        Stage("p", cores=1, walltime_s=300, expected_run_s=120, after=("q",), local=True),
        Stage("r", cores=8, walltime_s=300, expected_run_s=100, after=("p",)),
    ]
    engine = Engine(100, JobTable(*np.array([(0, 500, 500, 64)]).T), now=0, age_accrues=age_accrues)
    near = SimulatedBackend(engine, Machine("m", 1, 100))
    [result] = run_all(near, [Run(Workflow("w", stages), Planned(), bank=taught())], history=0)
    assert result.outcome == "completed", result.reason
    assert len([r for r in result.records if isinstance(r, Cancelled)]) <= Planned().max_resubmissions


def test_stages_that_ask_for_other_things_or_are_retried_alone_share_no_job():
    for change in ({"gpus": 2}, {"memory_bytes": 1 << 30}, {"retries": 1}, {"partition": "x"}):
        stages = [CHAIN.stages["wide"], replace(CHAIN.stages["narrow"], **change)]
        outlook = look_ahead(view(Workflow("two", stages)), Fixed(), Aim(price_s=0.0))
        assert len(outlook.sketch.jobs) == 2, change


# ---------------------------------------------------------------------- jobs that grow


GROWING = Planned(Aim(grow=True))


def test_no_job_grows_unless_that_is_wanted():
    forecast = Sized(0.0)
    assert not any(job.widths for job in Planned().plan(view(grow_by=1), forecast).submissions)
    assert not forecast.asked


def test_a_job_grows_where_more_cores_come_sooner_than_another_job():
    forecast = Sized(300.0)
    [job] = GROWING.plan(view(grow_by=1), forecast).submissions
    assert (job.stages, job.widths, job.shrinks) == (tuple(CHAIN.order), (64, 1, 64, 1), True)
    assert 300.0 < job.spare_walltime_s < 600.0, "more than for a short one"
    assert "which gives cores back as it goes and gets more as it needs them, and may be idle for " in job.reason
    asked = (tuple(CHAIN.order), 64, CHAIN.walltime_s + job.spare_walltime_s)
    assert asked in forecast.asked, "what is predicted is the job that is asked for"


@pytest.mark.parametrize("age_accrues", [True, False])
def test_it_does_not_grow_where_more_cores_are_long_in_coming(age_accrues):
    told = [
        Planned(Aim(price_s=1000.0, grow=True)).plan(view(grow_by=grow_by, age_accrues=age_accrues), Sized(50_000.0))
        for grow_by in (0, 1)
    ]
    assert [groups(plan) for plan in told] == [[("wide", "narrow"), ("again", "last")]] * 2
    assert not any(job.widths for job in told[1].submissions)


def test_where_no_job_can_grow_none_is_asked_about():
    forecast = Sized(0.0)
    plan = GROWING.plan(view(), forecast)
    assert not forecast.asked
    assert not any(job.widths for job in plan.submissions)


def test_a_job_that_gets_more_cores_is_not_shown_as_big_job():
    rising = Workflow("rising", [CHAIN.stages["narrow"].following(()), replace(CHAIN.stages["again"], walltime_s=1200)])
    candidates = candidates_of(look_ahead(view(rising, grow_by=1), Sized(300.0), Aim(grow=True)))
    widths = {one.name: [job.block.elasticity.widths for job in one.sketch.jobs] for one in candidates}
    assert widths["Big Job"] == [()]
    assert [widths[one.name] for one in candidates if one.is_chosen] == [[(1, 64)]]


def growing(now, *, began=(0.0, 800.0), phase=Phase.QUEUED, growths=True, **more):
    """Return a job of all stages that began at 0; at 1300 it requested 63 more cores for 300 s, for the third stage."""
    known = {}
    for place, (name, cores) in enumerate(zip(CHAIN.order, (64, 1, 64, 1), strict=True)):
        known[name] = {"phase": Phase.RUNNING, "job_id": "1", "submit_s": 0.0, "cores": cores, "limit_s": 3300.0}
        if place < len(began):
            ended = began[place + 1] if place + 1 < len(began) else None
            known[name] |= {"started_s": began[place], "ended_s": ended}
    asked = [GrowthView("2", "1", "again", 63, phase, 1300.0, 300.0)] if growths else []
    return view(now=now, grow_by=1, growths=asked, **known, **more)


def test_a_jobs_cores_are_asked_for_the_wait_ahead():
    plan = GROWING.plan(growing(900.0, growths=False), Sized(300.0))
    assert [(job.stages, job.joins, job.submit_s) for job in plan.submissions] == [(("again",), "1", 1300.0)]
    plan = GROWING.plan(growing(900.0), Sized(300.0, informed=False))
    assert plan.submissions == ()


def test_cores_that_are_still_queued_are_expected():
    """Requested at 1300, they were expected at 1600, when they are needed. It is 1700, and they have not come."""
    for now, end_s in ((1400.0, 2000.0), (1700.0, 2100.0)):
        began = (0.0, 800.0)
        state = growing(now, began=began)
        if now > 1600:
            narrow = replace(state.stages["narrow"], ended_s=1600.0)
            state = replace(state, stages={**state.stages, "narrow": narrow})
        [job] = look_ahead(state, Sized(300.0), GROWING.aim).under_way
        assert set(job.end_s + now) == {end_s}
        assert job.block.elasticity.widths == (64, 1, 64, 1)


def test_cores_that_came_too_early_are_given_back_and_a_job_that_stands_still_for_too_long_is_given_up():
    early = GROWING.plan(growing(1400.0, phase=Phase.ALLOCATED), Sized(300.0))
    assert [one.job_id for one in early.cancellations] == ["2"]
    state = growing(1900.0)  # it asks for 300 s more than its stages
    standing = replace(state, stages={**state.stages, "narrow": replace(state.stages["narrow"], ended_s=1600.0)})
    assert GROWING.plan(replace(standing, now_s=1899.0), Sized(300.0)).wake_s == 1900.0
    assert [one.job_id for one in GROWING.plan(standing, Sized(300.0)).cancellations] == ["1"]
