"""The rule by which a figure is held against the paper's, and what was copied from the paper."""

import math

import pytest

from asa.campaign.published import METRICS, NORMALISED, SIZES, STRATEGIES, TABLE_1, TABLE_2
from asa.campaign.verdicts import Compared, above_best, beside_others, beside_sizes, count, of_claim
from asa.experiment import Interval

NAMES = ("big-job", "per-stage", "asa")


def row(*values):
    return dict(zip(NAMES, map(float, values), strict=True))


@pytest.mark.parametrize(
    ("ours", "published", "key", "verdict"),
    [
        ((100, 200, 100), (1000, 2000, 1000), "per-stage", "as the paper"),  # a queue ten times as busy
        ((100, 200, 100), (1000, 2490, 1000), "per-stage", "as the paper"),  # 2.0 and 2.49: within 1.25
        ((100, 200, 100), (1000, 2510, 1000), "per-stage", "same order"),
        ((100, 200, 100), (1000, 900, 1000), "per-stage", "differs"),
        ((100, 200, 100), (1000, 900, 1000), "asa", "differs"),  # it was passed by
        ((100, 104, 100), (104, 100, 104), "per-stage", "as the paper"),  # equal both times
        ((100, 104, 100), (100, 150, 100), "per-stage", "same order"),  # equal here, clearly more there
        ((100, 110, 100), (110, 100, 110), "per-stage", "differs"),
        ((0, 50, 0), (100, 150, 101), "asa", "as the paper"),  # nothing is the best there is
        ((0, 50, 0), (100, 150, 101), "per-stage", "same order"),
    ],
)
def test_a_row_is_judged_by_who_is_better_and_by_how_much(ours, published, key, verdict):
    assert beside_others(row(*ours), row(*published), key) == verdict


@pytest.mark.parametrize(
    ("ours", "published", "deviation", "least", "verdict"),
    [
        ({28: 0.48, 640: 10.0}, {28: 0.4, 640: 16.0}, 0.0, 0.0, "as the paper"),  # within the factor
        ({28: 0.7, 640: 10.0}, {28: 0.4, 640: 16.0}, 0.3, 0.0, "as the paper"),  # within its deviation
        ({28: 0.0, 640: 10.0}, {28: 0.0, 640: 16.0}, 0.0, 0.0, "as the paper"),
        ({28: 0.04, 640: 10.0}, {28: 0.0, 640: 16.0}, 0.0, 0.05, "as the paper"),  # it would be printed as 0.0
        ({28: 0.1, 640: 10.0}, {28: 0.4, 640: 16.0}, 0.1, 0.05, "same order"),
        ({28: 11.0, 640: 10.0}, {28: 0.4, 640: 16.0}, 0.1, 0.05, "differs"),
    ],
)
def test_a_column_is_judged_by_itself_and_by_the_other_sizes(ours, published, deviation, least, verdict):
    assert beside_sizes(ours, published, 28, deviation=deviation, least=least) == verdict


@pytest.mark.parametrize(
    ("ours", "published", "verdict"),
    [
        ((38.1, 30, 50), 43.0, "as the paper"),
        ((37.9, 30, 50), 43.0, "same order"),
        ((-1.0, -2, 0), 43.0, "differs"),
        ((-1.0, -2, 0), 2.0, "as the paper"),
        ((3.0, 0.1, 5), math.nan, "as the paper"),
        ((3.0, -0.1, 5), math.nan, "same order"),
        ((0.0, 0.0, 0.0), math.nan, "differs"),
        ((3.0, math.nan, math.nan), math.nan, "same order"),  # one seed proves nothing
    ],
)
def test_a_claim_is_judged_by_its_points_or_its_interval(ours, published, verdict):
    assert of_claim(Interval(*ours), published) == verdict


def test_deviations_are_relative_and_none_where_the_paper_has_nothing():
    assert Compared.of(Interval(120.0, 1, 2), 100.0, "as the paper").deviation == pytest.approx(0.2)
    assert math.isnan(Compared.of(Interval(120.0, 1, 2), 0.0, "differs").deviation)
    assert count(["differs", "differs", "same order"]) == {"as the paper": 0, "same order": 1, "differs": 2}
    assert all(math.isnan(value) for value in above_best(row(0, 0, 0)).values())


def test_the_averages_below_table_1_follow_from_it():
    """As nearly as its whole numbers tell, so that neither was mistyped."""
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
