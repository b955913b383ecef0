"""Ranges of run times by width hold as often as they say, for programs of which it is known how they scale."""

import math

import numpy as np
import pytest
from run_time_ranges import coverage

from asa.backend import Capabilities
from asa.runtimes import RunTime, forecast_run
from asa.runtimes.widths import as_seen
from asa.shapes import Moldable
from asa.workflow import Stage


@pytest.mark.parametrize("sized", [False, True], ids=["one size", "several sizes"])
def test_8_in_10_new_runs_are_within_what_is_said_to_hold_for_8_in_10(sized):
    """On widths that were measured, and between them; with sizes of the input known mostly from one width."""
    cells = [
        coverage(noise, runs, programs=60, seed=23, sized=sized)
        for noise in (0.1, 0.2, 0.3)
        for runs in ("3 to 5", "6 to 10")
    ]
    for place in ("measured", "between"):
        shares = [cell[place] for cell in cells]
        assert 0.7 <= np.mean(shares) <= 0.9
        assert min(shares) >= 0.65
    beyond = coverage(0.2, "3 to 5", programs=60, seed=24, scaling="amdahl", sized=sized)["beyond"]
    assert beyond >= 0.65


@pytest.mark.parametrize("noise", [0.03, 0.3])
def test_how_far_runs_stray_is_learned_of_all_widths_together(noise):
    """Four runs on each of three widths: of a steady program the ranges are narrow, of another they are wide."""
    rng = np.random.default_rng(4)
    times = [
        RunTime("f", "s", width, 1e5 / width * math.exp(noise * rng.standard_normal()), float(number), "x")
        for number in range(4)
        for width in (8, 32, 128)
    ]
    stage = Stage("s", cores=8, walltime_s=1e6, learns_run=True, moldable=Moldable((8, 32, 128)))
    spreads = [one.spread for one in as_seen(stage, times, Capabilities("x", 512, 1, True)).stage.shapes]
    assert all(noise / 2 < spread < 2.5 * noise for spread in spreads)


def test_runs_on_one_width_tell_how_the_input_counts_on_another():
    """On 32 cores it ran on one size alone; that four times as much takes twice as long is known from 8 cores."""
    narrow = [RunTime("f", "s", 8, 1000.0 * math.sqrt(size), size, "x", size) for size in (1.0, 2.0, 4.0, 8.0) * 5]
    wide = [RunTime("f", "s", 32, 300.0, 1.0, "x", 1.0)] * 5
    alone = forecast_run(wide, 32, input_size=4.0, system="x")
    both = forecast_run([*narrow, *wide], 32, input_size=4.0, system="x")
    assert alone.p50_s == pytest.approx(1200.0)  # in proportion, where nothing tells
    assert both.p50_s == pytest.approx(600.0, rel=0.1)
    assert both.p90_s / both.p50_s < alone.p90_s / alone.p50_s
    assert (both.count, both.is_guess) == (5, False)


def test_sizes_that_go_with_widths_tell_nothing_of_either():
    """More cores for more input: which of the two counted cannot be known, and is not claimed."""
    times = [RunTime("f", "s", 8 * size, 1000.0, 1.0, "x", float(size)) for size in (1, 2, 4)] * 4
    assert forecast_run(times, 8, input_size=2.0, system="x").p50_s == pytest.approx(2000.0)
