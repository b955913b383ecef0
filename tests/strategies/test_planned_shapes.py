"""Plans that choose shapes, against all plans of small workflows; and what is shown of the choice."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.backend import Capabilities, PartitionLimits
from asa.shapes import Moldable, RunAt
from asa.strategies import Keep, Phase, RunView, StageView, load_strategy
from asa.strategies.planning import Aim, Parts, Question, look_ahead, search
from asa.strategies.planning.molding import forms_of
from asa.strategies.planning.search import SAMPLES
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow

SITE = Capabilities("x", 64, 1, age_accrues=False)


def stage(name, points, after=(), **other):
    known = tuple(RunAt(width, run_s) for width, run_s in points)
    moldable = Moldable(tuple(one.width for one in known), known) if len(known) > 1 or "partitions" in other else None
    if "partitions" in other:
        moldable = Moldable(moldable.widths, known, partitions=other.pop("partitions"))
    own = known[0]
    return Stage(name, cores=own.width, walltime_s=2 * own.run_s, expected_run_s=own.run_s, after=after,
                 moldable=moldable, **other)  # fmt: skip


def chain(*points):
    return Workflow("chain", [stage(f"s{i}", one, (f"s{i - 1}",) if i else ()) for i, one in enumerate(points)])


def wait_of(cores, walltime_s):
    return 30.0 * cores**1.5 + 0.2 * walltime_s


def ask(workflow, price_s, *, typically=True):
    parts = Parts(workflow, forms={name: forms_of(one, SITE) for name, one in workflow.stages.items()})

    def waits_s(blocks):
        return np.repeat([[wait_of(block.cores, block.walltime_s)] for block in blocks], SAMPLES, axis=1)

    return Question(
        parts, waits_s, {}, price_s, age_accrues=False, modes=frozenset({Keep.NOTHING}), typically=typically
    )


def all_plans(workflow):
    """Yield makespan and core-hours of each way to divide a chain into jobs, with each shape of each stage."""
    stages = [workflow.stages[name] for name in workflow.order]
    for cuts in itertools.product([False, True], repeat=len(stages) - 1):
        for shapes in itertools.product(*(one.shapes for one in stages)):
            jobs = [[shapes[0]]]
            for cut, shape in zip(cuts, shapes[1:], strict=True):
                if cut:
                    jobs.append([shape])
                else:
                    jobs[-1].append(shape)
            span_s = hours = 0.0
            for job in jobs:
                cores, run_s = max(one.width for one in job), sum(one.run_s for one in job)
                span_s += wait_of(cores, sum(one.walltime_s for one in job)) + run_s
                hours += cores * run_s / 3600
            yield span_s, hours


widths = st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True)
points = widths.flatmap(
    lambda of: st.tuples(*(st.tuples(st.just(width), st.floats(60.0, 20_000.0)) for width in of)).map(list)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(points, min_size=1, max_size=3), st.sampled_from([0.0, 30.0, 1000.0]))
def test_no_plan_of_a_small_chain_costs_less(stages, price_s):
    workflow = chain(*stages)
    question = ask(workflow, price_s)
    found = search(question)
    least = min(span_s + price_s * hours for span_s, hours in all_plans(workflow))
    assert question.cost_s(found) == pytest.approx(least, rel=1e-6)


def test_each_stage_is_as_wide_as_fits_into_its_job_and_no_wider_than_helps():
    workflow = chain([(8, 4000.0), (16, 2100.0), (32, 2200.0)], [(4, 600.0), (16, 200.0)])
    [block] = [block for block in ask(workflow, 0.0).parts.blocks(("s0", "s1")) if block.cores == 16]
    assert [shape.width for shape in block.shapes] == [16, 16]
    assert max(block.cores for block in ask(workflow, 0.0).parts.blocks(("s0",))) == 16, "32 cores run no shorter"


class Waits:
    """Waits that depend on the request, and are the same each time."""

    is_informed = True

    def __init__(self, wait_s):
        self.wait_s, self.asked = wait_s, []

    def predict(self, stages, needed_s):
        del stages, needed_s
        return WaitForecast((600.0,) * 9, 600.0)

    def predict_each(self, stages, requests):
        del stages
        self.asked += requests
        return [WaitForecast((self.wait_s(one),) * 9, self.wait_s(one)) for one in requests]


def view(workflow, site=SITE, **phases):
    views = {name: StageView(one, phases.get(name, Phase.WAITING)) for name, one in workflow.stages.items()}
    return RunView(workflow, views, 0.0, site)


FLOW = chain([(8, 8000.0), (16, 4000.0), (32, 2000.0)], [(1, 60.0)], [(8, 800.0), (32, 200.0)])


def test_where_the_queue_is_empty_a_stage_is_asked_for_wide_and_where_wide_jobs_wait_long_narrow():
    def cores(wait_s):
        plan = load_strategy("asa-plan").plan(view(FLOW), Waits(wait_s))
        return plan.choices["s0"].shape.width

    assert cores(lambda one: 1.0) == 32
    assert cores(lambda one: 36_000.0 if one.cores > 8 else 1.0) == 8
    assert cores(lambda one: 36_000.0 if one.cores > 16 else 1.0) == 16


def test_the_choice_says_what_was_weighed():
    plan = load_strategy("asa-plan").plan(view(FLOW), Waits(lambda one: 100.0 * one.cores))
    choice = plan.choices["s0"]
    assert [one.cores for one in choice.weighed] == [8, 16, 32]
    assert choice.shape in [one.shape for one in choice.weighed]
    for one in choice.weighed:
        assert one.waits_s == pytest.approx((100.0 * one.cores,) * 3, rel=0.03)
        assert one.ends_s == pytest.approx(tuple(wait_s + one.run_s for wait_s in one.waits_s))
        assert one.core_hours == pytest.approx(one.cores * one.run_s / 3600)


def test_how_far_a_run_time_strays_at_a_width_is_in_the_range_of_its_end():
    points = tuple(RunAt(width, 16_000.0 / width, 0.3) for width in (8, 16))
    own = Stage(
        "s0", cores=8, walltime_s=20_000.0, expected_run_s=2000.0, run_spread=0.3, moldable=Moldable((8, 16), points)
    )
    plan = load_strategy("asa-plan").plan(view(Workflow("w", [own])), Waits(lambda _: 100.0))
    for one in plan.choices["s0"].weighed:
        low_s, half_s, high_s = one.ends_s
        assert half_s == pytest.approx(100.0 + one.run_s, rel=0.05)
        assert (low_s, high_s) == pytest.approx(
            (100.0 + one.run_s / math.exp(1.28 * 0.3), 100.0 + one.run_s * math.exp(1.28 * 0.3)), rel=0.07
        )


def test_the_order_in_which_widths_are_named_does_not_matter():
    names = [(8, 8000.0), (16, 4000.0), (32, 2000.0)]
    chosen = {
        load_strategy("asa-plan")
        .plan(view(chain(list(order))), Waits(lambda one: 40.0 * one.cores))
        .choices["s0"]
        .shape.width
        for order in itertools.permutations(names)
    }
    assert len(chosen) == 1


def test_a_price_and_a_budget_choose_narrower_shapes():
    forecast = Waits(lambda one: 1.0)
    flow = chain([(8, 8000.0), (16, 5000.0), (32, 4000.0)])
    width = {
        settings: load_strategy(f"asa-plan{settings}").plan(view(flow), forecast).choices["s0"].shape.width
        for settings in ("", ":price=0", ":price=100000", ":at-most=1.3")
    }
    assert width[":price=0"] == 32
    assert width[":price=100000"] == 8
    assert width[":at-most=1.3"] == 16


def test_a_partition_is_chosen_with_the_width_and_its_limits_hold():
    limits = {"short": PartitionLimits(9000.0, max_cores=16), "long": PartitionLimits(None)}
    site = Capabilities("x", 64, 1, age_accrues=False, partition="short", partitions=limits)
    flow = Workflow(
        "w", [stage("s0", [(8, 8000.0), (16, 4000.0), (32, 2000.0)], partition="short", partitions=("short", "long"))]
    )

    def chosen(wait_s):
        choice = load_strategy("asa-plan").plan(view(flow, site), Waits(wait_s)).choices["s0"]
        return choice.shape.partition, choice.shape.width, {(w.shape.partition, w.cores) for w in choice.weighed}

    partition, width, weighed = chosen(lambda one: 1.0)
    assert (partition, width) == ("long", 32)
    assert weighed == {("short", 16), ("long", 8), ("long", 16), ("long", 32)}, "8 cores need more than short gives"
    assert chosen(lambda one: 50_000.0 if one.partition == "long" else 1.0)[:2] == ("short", 16)


def test_a_stage_of_one_shape_is_planned_as_before_and_no_choice_is_told():
    flow = Workflow("w", [one.fixed() for one in FLOW.stages.values()])
    forecast = Waits(lambda one: 1.0)
    plan = load_strategy("asa-plan").plan(view(flow), forecast)
    assert not plan.choices
    assert not forecast.asked, "nothing was to be compared"


def test_own_shapes_are_planned_as_if_there_were_no_others():
    fixed = Workflow("w", [one.fixed() for one in FLOW.stages.values()])
    forecast = Waits(lambda one: 1.0)
    own = load_strategy("asa-plan:shapes=own").plan(view(FLOW), forecast)
    assert own == load_strategy("asa-plan").plan(view(fixed), forecast)
    assert load_strategy("asa-plan:shapes=chosen").plan(view(FLOW), forecast).choices


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "asa", "big-job"])
def test_other_strategies_take_the_own_shape(strategy):
    plan = load_strategy(strategy).plan(view(FLOW), Waits(lambda one: 1.0))
    assert plan.submissions
    assert not plan.choices


def test_a_forecast_that_cannot_compare_is_asked_for_each():
    class Plain:
        is_informed = True

        def predict(self, stages, needed_s):
            del stages, needed_s
            return WaitForecast((600.0,) * 9, 600.0)

    assert load_strategy("asa-plan").plan(view(FLOW), Plain()).choices["s0"].shape.width == 32


def test_the_typical_makespan_does_not_hang_on_a_tail():
    question = ask(chain([(8, 1000.0)]), 0.0)
    ends_s = np.full(SAMPLES, 1000.0)
    ends_s[-1] = 1e6
    sketch = search(question)
    tailed = type(sketch)(sketch.jobs, ends_s, 0.0)
    assert question.span_s(tailed) == pytest.approx(1000.0 * 1000.0 ** (1 / SAMPLES))
    assert tailed.makespan_s > 20_000
    assert math.isclose(ask(chain([(8, 1000.0)]), 0.0, typically=False).span_s(tailed), tailed.makespan_s)


def test_fifty_stages_of_six_shapes_are_planned():
    six = [(7 * 2**n, 6000.0 / 2**n + 300.0) for n in range(6)]
    site = Capabilities("x", 1000, 1, age_accrues=False)
    outlook = look_ahead(view(chain(*[six] * 50), site), Waits(lambda one: 10.0 * one.cores))
    assert {name for job in outlook.sketch.jobs for name in job.block.stages} == {f"s{n}" for n in range(50)}
    assert len(outlook.choices()) == 50


class TakesTheHole(Waits):
    """A forecast in which the first job of a plan takes the only free cores, and those after it wait long."""

    def sample_plans(self, plans, samples):
        made = []
        for plan in plans:
            starts = np.zeros((samples, len(plan)))
            for index, step in enumerate(plan[1:], 1):
                starts[:, index] = max(starts[0, p] + plan[p].run_s[0] for p in step.after) + 5400.0
            made.append(starts)
        return made


def test_jobs_that_would_each_start_at_once_share_one_if_the_first_takes_the_hole_of_the_second():
    # in two jobs of 112 cores the second waited for 1.5 h, although its expected wait was 2 s: the first had the hole
    workflow = chain([(112, 600.0)], [(112, 600.0), (56, 1100.0)])
    site = Capabilities("x", 224, 1, age_accrues=False)

    def wait_s(one):
        return 2.0 if one.walltime_s <= 1400.0 else 300.0

    apart, together = (look_ahead(view(workflow, site), kind(wait_s)) for kind in (Waits, TakesTheHole))
    assert [job.block.stages for job in apart.sketch.jobs] == [("s0",), ("s1",)]
    assert [job.block.stages for job in together.sketch.jobs] == [("s0", "s1")]


def test_ends_of_several_plans_are_sampled_in_the_same_futures():
    workflow = chain([(8, 600.0)], [(8, 600.0), (16, 400.0)])
    outlook = look_ahead(view(workflow), TakesTheHole(lambda _: 2.0))
    plans = outlook.frontier()
    ends_s = outlook.ends_s([outlook.sketch, *plans])
    assert ends_s.shape == (1 + len(plans), SAMPLES)
    assert ends_s[0] == pytest.approx(outlook.sketch.end_s)


class MissesItsGap(Waits):
    """A forecast in which jobs of several stages start at once in a share of the futures, and else wait for a day."""

    share = 0.5

    def sample_plans(self, plans, samples):
        made = []
        for plan in plans:
            starts, ends = np.zeros((samples, len(plan))), np.zeros((samples, len(plan)))
            for index, step in enumerate(plan):
                due = ends[:, list(step.after)].max(axis=1, initial=0.0)
                late = 86_400.0 * (np.arange(samples) >= self.share * samples) if len(step.stages) > 1 else 1800.0
                starts[:, index] = due + late
                ends[:, index] = starts[:, index] + step.run_s[0]
            made.append(starts)
        return made


def test_where_age_accrues_stages_of_one_shape_share_a_job_only_if_that_will_almost_surely_end_before_a_job_each():
    workflow, site = chain(*[[(8, 600.0)]] * 4), replace(SITE, age_accrues=True)

    def jobs(share):
        forecast = MissesItsGap(lambda _: 6 * 86_400.0)
        forecast.share = share
        return len(look_ahead(view(workflow, site), forecast, Aim(price_s=0.0)).sketch.jobs)

    assert jobs(1.0) < 4
    assert jobs(0.8) == 4
