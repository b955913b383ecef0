"""Time against core-hours: the tables, and that the chosen plan costs least at its price."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from asa.backend import Capabilities, PartitionLimits
from asa.cli.compare import compare
from asa.cli.frontier import frontier_rows
from asa.errors import InputError
from asa.metrics import RunMetrics
from asa.report.frontier import candidates_of
from asa.report.tradeoff import cheapest, hour_costs, unbeaten
from asa.shapes import Moldable, RunAt
from asa.strategies import RunView, StageView, load_strategy
from asa.strategies.planned import at_price
from asa.strategies.planning import look_ahead, read_aim
from asa.studies.compare.frontier import about_prices
from asa.studies.compare.frontier import frontier_rows as measured_rows
from asa.studies.compare.study import CompareRun
from asa.studies.compare.table import cells_of
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow

SPREAD = (0.1, 0.3, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)


class Crowded:
    """A forecast of a machine on which wide and long jobs wait longer."""

    is_informed = True

    def __init__(self, base_s, power):
        self.base_s, self.power = base_s, power

    def _wait(self, cores, walltime_s):
        wait_s = self.base_s * cores**self.power + 0.1 * walltime_s
        return WaitForecast(tuple(wait_s * factor for factor in SPREAD), wait_s)

    def predict(self, stages, needed_s):
        return self._wait(8, 3600.0)

    def predict_each(self, stages, requests):
        return [self._wait(one.cores, one.walltime_s) for one in requests]


class Blocked(Crowded):
    """A forecast of a machine on which cores are free, but not all of them, for days."""

    def _wait(self, cores, walltime_s):
        return WaitForecast((1e6 if cores >= 64 else 1.0,) * 9, 1e6 if cores >= 64 else 1.0)

    def predict(self, stages, needed_s):
        return self._wait(64, 3600.0)


def looked(works, serial, forecast, aim, *, age_accrues, widths=(4, 8, 16, 32, 64)):
    """Look at a chain of stages by Amdahl's law, each on several widths, its own first."""
    made = []
    for number, (work_s, part) in enumerate(zip(works, serial, strict=True)):
        known = tuple(RunAt(width, work_s * (part + (1 - part) / width)) for width in widths)
        after = (f"s{number - 1}",) if number else ()
        made.append(
            Stage(
                f"s{number}",
                cores=widths[0],
                walltime_s=2 * known[0].run_s,
                expected_run_s=known[0].run_s,
                after=after,
                moldable=Moldable(widths, known),
            )
        )
    flow = Workflow("chain", made)
    site = Capabilities("x", 64, 1, age_accrues=age_accrues)
    view = RunView(flow, {name: StageView(stage) for name, stage in flow.stages.items()}, 0.0, site)
    return look_ahead(view, forecast, aim)


def test_no_big_job_is_compared_where_only_a_choice_of_partitions_lets_stages_share_one():
    """Each has one of its own, and the first could go where the second does."""
    first = Stage("a", 4, walltime_s=600.0, partition="x", moldable=Moldable(partitions=("x", "y")))
    second = Stage("b", 4, walltime_s=600.0, partition="y", after=("a",))
    flow = Workflow("chain", [first, second])
    limits = {"x": PartitionLimits(), "y": PartitionLimits()}
    site = Capabilities("s", 64, 8, age_accrues=True, partitions=limits, partition="x")
    view = RunView(flow, {name: StageView(stage) for name, stage in flow.stages.items()}, 0.0, site)
    names = [candidate.name for candidate in candidates_of(look_ahead(view, Crowded(10.0, 1.0), read_aim({})))]
    assert "Big Job" not in names
    assert "Per-Stage" in names


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(600.0, 200_000.0), st.floats(0.0, 0.3)), min_size=1, max_size=3),
    st.floats(0.1, 100.0), st.floats(0.0, 2.0), st.floats(-2.0, 5.0), st.booleans(),
)  # fmt: skip
def test_at_a_price_the_choice_has_the_least_hours_times_price_plus_core_hours(stages, base_s, power, log_price, age):
    """Of all that is shown, for any price in words."""
    worth = round(10.0**log_price, 6)
    aim = read_aim({"price": f"1 h = {worth:f} core-hours"})
    outlook = looked(*zip(*stages, strict=True), Crowded(base_s, power), aim, age_accrues=age)
    rows = frontier_rows(outlook, candidates_of(outlook))
    [chosen] = [row for row in rows if row.is_chosen]
    costs = [row.time_s / 3600 * worth + row.core_hours for row in rows]
    own = chosen.time_s / 3600 * worth + chosen.core_hours
    assert own <= min(costs) * (1 + 1e-9)
    for before, after in pairwise(rows):
        assert before.core_hours < after.core_hours
        assert before.time_s > after.time_s
        assert after.hour_sooner == pytest.approx(
            3600 * (after.core_hours - before.core_hours) / (before.time_s - after.time_s)
        )


def test_a_higher_price_of_time_never_chooses_a_slower_or_a_cheaper_plan():
    spans, hours = [], []
    for worth in (0.1, 1, 10, 100, 1000):
        aim = read_aim({"price": f"1 h = {worth} core-hours"})
        outlook = looked((40_000.0, 9000.0), (0.02, 0.1), Crowded(1.0, 1.2), aim, age_accrues=False)
        spans.append(outlook.question.span_s(outlook.sketch))
        hours.append(outlook.sketch.core_hours)
    assert spans == sorted(spans, reverse=True)
    assert hours == sorted(hours)
    assert len(set(hours)) > 2


def test_the_frontier_of_shapes_goes_as_far_as_any_price_does():
    """It has the plan that is best where core-hours do not count, also where the own shape is far from what fits."""
    options = {"age_accrues": False, "widths": (64, 4, 8, 16, 32)}
    free = looked((50_000.0,), (0.05,), Blocked(0.0, 0.0), read_aim({"price": "0"}), **options)
    assert free.sketch.jobs[0].block.cores == 32
    for text in ({}, {"at-most": "1"}):
        shown = looked((50_000.0,), (0.05,), Blocked(0.0, 0.0), read_aim(text), **options)
        quickest = min(map(shown.question.span_s, shown.frontier()))
        assert quickest == pytest.approx(free.question.span_s(free.sketch), rel=0.01)
    assert shown.sketch.jobs[0].block.cores == 32, "the fastest within the budget"


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=12), st.floats(0.0, 100.0))
def test_none_is_better_in_both_than_those_on_the_frontier_and_one_of_them_costs_least(points, price_s):
    kept = unbeaten(points)
    for index, one in enumerate(points):
        beats = [other for other in kept if points[other][0] <= one[0] and points[other][1] <= one[1]]
        assert beats, "each is on it, or beaten by one that is"
        if index in kept:
            assert {points[other] for other in beats} == {one}
    best = points[cheapest(points, price_s)]
    least = min(points[index][0] + price_s * points[index][1] for index in kept)
    assert best[0] + price_s * best[1] == pytest.approx(least)
    assert all(cost is None or cost > 0 for cost in hour_costs([points[index] for index in kept]))


def test_what_is_not_known_is_on_no_frontier():
    assert unbeaten([(math.nan, math.nan), (3.0, 4.0)]) == [1]
    assert hour_costs([]) == []


# ---------------------------------------------------------------------- of what was simulated


def runs_of(**means):
    """Return runs by strategy, of two replications: hours and core-hours."""
    figures = RunMetrics(0.0, 0.0, 0.0, 0.0, 0, 0, 0, 0, ())
    return [
        CompareRun("w", "s", 8, name, seed, age_accrues=True,
                   metrics=replace(figures, makespan_s=3600.0 * hours * (0.9 + 0.2 * seed), core_hours=core_hours))
        for name, (hours, core_hours) in means.items()
        for seed in (0, 1)
    ]  # fmt: skip


def test_means_that_were_simulated_are_held_against_a_price():
    """The choice at a price is to be the row that costs least at it; if it is not, it is said by how much."""
    at = "asa-plan:price=1 h = 10 core-hours"
    means = {"chained": (5.0, 10.0), "big-job": (2.0, 60.0), "per-stage": (6.0, 12.0), at: (3.0, 20.0)}
    cells = cells_of(runs_of(**means))
    rows = measured_rows(cells)
    assert [row.cell.strategy for row in rows] == ["chained", at, "big-job"]
    assert [row.hour_sooner for row in rows] == [None, pytest.approx(5.0), pytest.approx(40.0)]
    assert [row.cell.is_choice for row in rows] == [False, True, False]
    [said] = about_prices(cells)
    assert said == f"At a price of 1 h = 10 core-hours, {at} costs least of all here."
    dear = "asa-plan:price=1 h = 100 core-hours:grow=no"
    [said] = about_prices(cells_of(runs_of(**{"big-job": (2.0, 60.0), dear: (3.0, 20.0)})))
    assert "big-job costs least; " in said
    assert said.endswith("costs 23.1 % more."), "320 against 260 core-hours"


def test_a_price_of_a_comparison_is_refused_before_anything_is_simulated():
    """With where, and how to write one."""
    app = typer.Typer()
    app.command()(compare)
    done = CliRunner().invoke(app, ["montage", "--price", "1 h = 10 core-hours", "--price", "1 h = soon"])
    assert isinstance(done.exception, InputError)
    assert (done.exception.where, "1 h = 200 core-hours" in done.exception.hint) == ("--price", True)


@pytest.mark.parametrize("price", ["1 h = 1000 core-hours", "1000 core-h/h", "3.6"])
def test_a_strategy_of_a_price_is_named_in_several_ways(price):
    assert load_strategy(f"asa-plan:price={price}").price_s == pytest.approx(3.6)
    assert load_strategy(at_price("asa-plan", price)).price_s == pytest.approx(3.6)
    assert at_price("asa-plan:shapes=own", price) == f"asa-plan:shapes=own:price={price}"
    for other in ("chained", "asa-plan:deadline=12", "asa-plan:price=1", "asa"):
        assert at_price(other, price) == other
