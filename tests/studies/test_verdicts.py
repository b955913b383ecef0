"""The rule that compares a figure with the paper's, and the figures copied from the paper."""

import math

import pytest

from asa.core.intervals import Interval
from asa.studies.paper.published import METRICS, NORMALISED, SIZES, STRATEGIES, TABLE_1, TABLE_2
from asa.studies.paper.verdicts import (
    ComparedFigure,
    above_best,
    count,
    levelled,
    of_claim,
    verdict_on_column,
    verdict_on_row,
)

NAMES = ("big-job", "per-stage", "asa")


def row(*values):
    return dict(zip(NAMES, map(float, values), strict=True))


def replicated(figures):
    """Return the same figure for each of four replications."""
    return {name: (value,) * 4 for name, value in figures.items()}


@pytest.mark.parametrize(
    ("ours", "published", "key", "verdict"),
    [
        ((100, 200, 100), (1000, 2000, 1000), "per-stage", "as the paper"),  # a queue ten times as busy
        ((100, 200, 100), (1000, 2490, 1000), "per-stage", "as the paper"),  # 2.0 and 2.49: within 1.25
        ((100, 200, 100), (1000, 2510, 1000), "per-stage", "same order"),
        ((100, 200, 100), (1000, 900, 1000), "per-stage", "differs"),
        ((100, 200, 100), (1000, 900, 1000), "asa", "differs"),  # it was passed by
        ((100, 104, 100), (104, 100, 104), "per-stage", "as the paper"),  # equal both times
        ((100, 104, 100), (100, 106, 100), "per-stage", "differs"),  # equal here, more there
        ((100, 106, 100), (100, 106, 100), "per-stage", "as the paper"),
        ((100, 150, 100), (100, 104, 100), "per-stage", "same order"),  # the paper separates nothing
        ((100, 110, 100), (110, 100, 110), "per-stage", "differs"),
        ((0, 50, 0), (100, 150, 101), "asa", "as the paper"),  # nothing is the best there is
        ((0, 50, 0), (100, 150, 101), "per-stage", "same order"),
    ],
)
def test_a_row_is_judged_by_who_is_better_and_by_how_much(ours, published, key, verdict):
    assert verdict_on_row(replicated(row(*ours)), row(*published), key) == verdict


def test_what_noise_hides_is_not_as_the_paper():
    published = row(100, 200, 100)
    ours = {"big-job": (100.0,) * 4, "per-stage": (20.0, 400.0, 30.0, 350.0), "asa": (100.0,) * 4}
    assert verdict_on_row(ours, published, "per-stage") == "differs"
    together = {"big-job": (10.0, 190.0, 15.0, 185.0), "per-stage": (110.0, 290.0, 115.0, 285.0)}
    # what replications have in common is no noise
    assert verdict_on_row(together, {"big-job": 100.0, "per-stage": 200.0}, "per-stage") == "as the paper"
    once = {name: values[:1] for name, values in together.items()}
    assert verdict_on_row(once, {"big-job": 100.0, "per-stage": 200.0}, "per-stage") == "differs"


@pytest.mark.parametrize("metric", ["twt_s", "makespan_s"])
def test_a_world_without_differences_is_as_the_paper_only_where_the_paper_has_none(metric):
    for sizes in TABLE_1.values():
        for cells in sizes.values():
            published = {name: float(getattr(cell, metric)) for name, cell in cells.items()}
            same = levelled(replicated(published))
            for name, figure in published.items():
                apart = any(abs(figure - other) > 0.05 * max(figure, other) for other in published.values())
                assert verdict_on_row(same, published, name) == ("differs" if apart else "as the paper")


@pytest.mark.parametrize(
    ("ours", "published", "least", "verdict"),
    [
        ({28: 0.48, 640: 10.0}, {28: 0.4, 640: 16.0}, 0.0, "as the paper"),  # within the factor
        ({28: 0.7, 640: 10.0}, {28: 0.4, 640: 16.0}, 0.0, "same order"),
        ({28: 0.0, 640: 10.0}, {28: 0.0, 640: 16.0}, 0.0, "as the paper"),
        ({28: 0.04, 640: 10.0}, {28: 0.0, 640: 16.0}, 0.05, "as the paper"),  # it would be printed as 0.0
        ({28: 0.1, 640: 10.0}, {28: 0.4, 640: 16.0}, 0.05, "same order"),
        ({28: 11.0, 640: 10.0}, {28: 0.4, 640: 16.0}, 0.05, "differs"),
        ({28: 0.4, 640: 0.4}, {28: 0.4, 640: 16.0}, 0.05, "differs"),  # right by itself, and no larger elsewhere
    ],
)
def test_a_column_is_judged_by_itself_and_by_the_other_sizes(ours, published, least, verdict):
    assert verdict_on_column(replicated(ours), published, 28, least=least) == verdict


@pytest.mark.parametrize(
    ("ours", "published", "verdict"),
    [
        ((34.5, 30, 50), 43.0, "as the paper"),
        ((34.3, 30, 50), 43.0, "same order"),
        ((-1.0, -2, 0), 43.0, "differs"),
        ((2.4, 1, 4), 2.0, "as the paper"),
        ((6.0, 5, 7), 2.0, "same order"),  # near in points, thrice as much
        ((-1.0, -2, 0), 2.0, "differs"),
        ((0.0, 0.0, 0.0), 2.0, "differs"),
        ((3.0, 0.1, 5), math.nan, "as the paper"),
        ((3.0, -0.1, 5), math.nan, "same order"),
        ((0.0, 0.0, 0.0), math.nan, "differs"),
        ((3.0, math.nan, math.nan), math.nan, "same order"),  # one seed proves nothing
    ],
)
def test_a_claim_is_judged_by_its_ratio_or_its_interval(ours, published, verdict):
    assert of_claim(Interval(*ours), published) == verdict


def test_deviations_are_relative_and_none_where_the_paper_has_nothing():
    assert ComparedFigure.of(Interval(120.0, 1, 2), 100.0, "as the paper", "differs").deviation == pytest.approx(0.2)
    assert math.isnan(ComparedFigure.of(Interval(120.0, 1, 2), 0.0, "differs", "differs").deviation)
    assert count(["differs", "differs", "same order"]) == {"as the paper": 0, "same order": 1, "differs": 2}
    assert all(math.isnan(value) for value in above_best(row(0, 0, 0)).values())


def test_the_averages_below_table_1_follow_from_it():
    """As nearly as its whole numbers allow, so that neither has a typing error."""
    for workflow, lines in NORMALISED.items():
        for place, metric in enumerate(METRICS):
            above = [
                above_best({name: float(getattr(cell, metric)) for name, cell in size.items()})
                for size in TABLE_1[workflow].values()
            ]
            for name in STRATEGIES:
                mean = sum(one[name] for one in above) / len(above)
                assert mean == pytest.approx(lines[name][place], abs=3), (workflow, metric, name)


def test_table_2_has_a_row_a_geometry_whose_ratios_add_up():
    sizes = {size for of in SIZES.values() for size in of}
    for rows in TABLE_2.values():
        assert set(rows) == sizes
        assert all(row.hit_percent.mean + row.miss_percent.mean == 100 for row in rows.values())
        assert [row.real_h.mean for row in rows.values()] == sorted(row.real_h.mean for row in rows.values())
