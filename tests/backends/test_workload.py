"""The workload model and its calibration."""

from concurrent.futures import Executor, Future

import numpy as np
import pytest
from asa.backends.simulated.calibrate import calibrate, measure
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.presets import PRESETS, TARGETS, WaitTarget, preset
from asa.backends.simulated.workload import ROUND_REQUESTS_S, WorkloadModel

from asa.core.plugins import load
from asa.errors import InputError, UnknownNameError
from asa.studies.paper.published import SIZES, TABLE_2

DAY = 86400
SMALL = Machine("small", nodes=16, cores_per_node=16)


def small(**changes):
    return WorkloadModel(SMALL, **{"load": 0.8, "log2_middle": 3.0, "log2_widest": 7.0, **changes})


class Here(Executor):
    """An executor that works in this process, at once."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_the_same_seed_gives_the_same_jobs():
    """Another seed gives other jobs."""
    one, same, other = (small().generate(7 * DAY, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.submit, same.submit)
    assert np.array_equal(one.run, same.run)
    assert not np.array_equal(one.submit[:50], other.submit[:50])


@pytest.mark.parametrize("load", [0.5, 0.9])
def test_the_load_is_what_was_asked_for(load):
    """The load is the submitted work divided by the machine's capacity, averaged over seeds."""
    loads = []
    for seed in range(12):
        table = small(load=load).generate(60 * DAY, seed)
        loads.append((table.run * table.cores).sum() / (60 * DAY * SMALL.cores))
    assert np.mean(loads) == pytest.approx(load, rel=0.06)


def test_jobs_are_possible():
    """Within the machine, in order, and within round requests."""
    table = PRESETS["hpc2n"].generate(10 * DAY, 3)
    assert table.cores.min() == 1
    assert table.cores.max() <= 602 * 28
    assert np.all(np.diff(table.submit) >= 0)
    assert np.all(table.run <= table.request)
    assert set(table.request.tolist()) <= set(ROUND_REQUESTS_S.tolist())
    assert table.submit[-1] < 10 * DAY


def test_days_and_weekends_have_their_cycle():
    """More is submitted in the afternoon than at night, and less on a weekend."""
    submit = small(daily_swing=0.6, weekend=0.5, burst=1.0).generate(140 * DAY, 5).submit
    hour, day = submit // 3600 % 24, submit // DAY % 7
    assert np.count_nonzero(np.abs(hour - 14) < 4) > 2 * np.count_nonzero((hour < 5) | (hour > 22))
    weekend = np.count_nonzero(day >= 5) / 2
    weekday = np.count_nonzero(day < 5) / 5
    assert weekend / weekday == pytest.approx(0.5, rel=0.1)


def test_requests_follow_the_accuracy():
    """A lower least accuracy means longer requests for the same runs."""
    ratio = {}
    for accuracy in (0.05, 0.9):
        table = small(accuracy=accuracy).generate(20 * DAY, 1)
        long = table.run > 3600
        ratio[accuracy] = np.median(table.request[long] / table.run[long])
    assert ratio[0.05] > 1.5 * ratio[0.9]


@pytest.mark.parametrize(
    ("name", "value"), [("load", 0.0), ("load", 1.5), ("serial", -0.1), ("log2_widest", 20.0), ("burst", 0.5)]
)
def test_senseless_parameters_are_refused(name, value):
    """The error has the parameter's name and its limits."""
    with pytest.raises(InputError, match=name):
        small(**{name: value})


def test_unknown_systems_are_refused():
    """The error lists the known ones."""
    with pytest.raises(UnknownNameError, match="Did you mean 'hpc2n'"):
        preset("hpc2")


def test_the_targets_of_table_2_are_the_widest_jobs_of_the_papers_workflows():
    """Three workflows at three sizes on each centre, with the real waits that the paper prints."""
    for system, sizes in SIZES.items():
        expected = []
        for cores in sizes:
            for name, rows in TABLE_2.items():
                stages = load("asa.workflows", name)(cores).stages.values()
                widest = max(stages, key=lambda stage: (stage.cores, stage.walltime_s))
                expected.append((widest.cores, widest.walltime_s, rows[cores].real_h.mean * 3600))
        found = [(t.cores, t.walltime_s, t.mean_wait_s) for t in TARGETS[f"{system}-table2"]]
        assert found == expected


@pytest.mark.full
@pytest.mark.parametrize(
    ("system", "periods", "days"),
    [("hpc2n", 2, 14), ("uppmax", 2, 14), ("hpc2n-table2", 4, 7), ("uppmax-table2", 4, 7)],
)
def test_the_presets_waits_are_near_the_papers(system, periods, days):
    """Mean waits within a factor of 2.5 of the paper's on periods that nothing was fitted to.

    A quick look; `asa workload check` takes a longer one.
    """
    seeds = range(100, 100 + periods)
    for measured in measure(PRESETS[system], TARGETS[system], seeds=seeds, days=days, executor=Here()):
        assert 0.4 < measured.ratio < 2.5, measured


def test_calibration_comes_nearer():
    """On a small machine, from a model that is far off."""
    targets = (WaitTarget(64, 3600, 2000.0),)
    start = small(load=0.4)
    steps = []
    best = calibrate(start, targets, trials=12, seeds=[1], days=5, executor=Here(), seed=3, report=steps.append)
    misfits = [step.misfit for step in steps if step.best]
    assert misfits == sorted(misfits, reverse=True)
    assert len(steps) == 12
    assert misfits[-1] < 0.5 * misfits[0]
    assert best == [step.model for step in steps if step.best][-1]
    again = calibrate(start, targets, trials=12, seeds=[1], days=5, executor=Here(), seed=3)
    assert again == best
