"""Choices of widths, compared with the true outcomes in the simulated queue."""

import json

import numpy as np
import pytest
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.table import NEVER, UNSTARTED, JobTable

from asa.errors import TraceError
from asa.history import JobHistory
from asa.studies.accuracy.study import installed
from asa.studies.choices.scores import ALL, Choices, by_program, calibration, judged
from asa.studies.choices.study import ChosenWidth, choices, programs
from asa.waits import WaitForecast


def a_log(jobs=400, seed=1):
    """Make a log of a machine of 100 cores that is nearly full."""
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.exponential(260.0, jobs)).round()
    cores = rng.choice([1, 4, 16, 60], jobs)
    run = rng.integers(60, 3000, jobs).astype(float)
    none = np.zeros(jobs)
    return JobHistory(submit, none, cores, 2 * run, np.ones(jobs, bool), run, machine_cores=100)


class Free:
    """An estimator that predicts no waits."""

    def __init__(self, surroundings):
        self.tickets = 0

    def predict(self, job):
        return WaitForecast((0.0,) * 9, 0.0)

    def submitted(self, job, forecast=None):
        self.tickets += 1
        return self.tickets

    def observe(self, ticket, observation):
        pass


@pytest.fixture(scope="module")
def found():
    return choices({"log": a_log()}, {"free": Free, **installed(["queue"])}, times=12, seed=3)


def test_who_expects_no_wait_takes_the_quickest_run(found):
    for one in found:
        if one.estimator == "free":
            run_s = np.array(list(programs(100)[one.program].values()))
            assert (one.places == run_s.argmin()).all()


def test_the_truth_is_what_the_engine_does(found):
    """Compared with engines made by hand: the log's jobs, and one more at each moment."""
    log, one = a_log(), next(one for one in found if one.program == "Amdahl 99%, 2 h")
    columns = (log.submit_s, log.run_s, log.walltime_s, log.cores)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(3)))
    first, last = np.quantile(log.submit_s, [0.15, 0.95], method="nearest").astype(np.int64)
    times = np.sort(rng.integers(first, last, 12))
    for row, column in ((0, 0), (5, 3), (11, 2)):
        width, run_s = list(programs(100)["Amdahl 99%, 2 h"].items())[column]
        engine = Engine(100, JobTable(*(values.astype(np.int64) for values in columns)))
        while engine.now < times[row]:
            engine.advance(int(times[row]))
        job = engine.clients[engine.submit(cores=width, request=2 * run_s, run=run_s)]
        while job.start == UNSTARTED:
            engine.advance(NEVER)
        assert one.took_s[row, column] == job.start - times[row] + run_s


def test_nothing_is_better_than_the_best_and_all_are_judged_beside_the_same(found):
    rows = judged(found)
    assert [row.estimator for row in rows] == ["free", "queue"]
    assert len({round(row.fixed_over_best, 9) for row in rows}) == 1
    for row in rows:
        assert row.over_best.mean >= 1
        assert row.over_best.mean == pytest.approx(row.over_fixed.mean * row.fixed_over_best)
        assert 0 <= row.brier <= 1
    assert rows[1].over_best.mean < rows[0].over_best.mean  # the queue's simulation, than who sees nothing


def chosen(trace, places, took=((10.0, 40.0), (90.0, 10.0))):
    took_s = np.array(took)
    sure = np.array([[0.9], [0.3]])
    return ChosenWidth(trace, "p", "e", (1, 2), took_s, np.array(places), sure, took_s[:, :1] < took_s[:, 1:])


def test_the_share_of_the_gap():
    """The best fixed width has a geometric mean of 20, the first 30; the best of each moment has 10."""
    best, worst, half = ([chosen("a", places)] for places in ([0, 1], [1, 0], [1, 1]))
    assert judged(best)[0].closed.mean == pytest.approx(1)
    assert judged(half)[0].closed.mean == pytest.approx(0)
    assert judged(half)[0].over_best.mean == pytest.approx(2)
    assert judged(worst)[0].over_best.mean == pytest.approx(6)
    assert judged(best)[0].brier == pytest.approx((0.01 + 0.09) / 2)


def test_logs_count_alike_in_all():
    rows = judged([chosen("a", [0, 1]), chosen("b", [1, 1])])
    assert [row.trace for row in rows] == ["a", "b", ALL]
    assert rows[-1].over_best.mean == pytest.approx(2**0.5)
    assert rows[-1].choices == 4


def test_what_was_said_and_what_became_of_it():
    rows = calibration([chosen("a", [0, 1])])
    assert [(row["tenth"], row["said"], row["came_true"]) for row in rows] == [(3, 0.3, 0.0), (9, 0.9, 1.0)]


def test_all_figures_are_plain_data(found):
    document = json.loads(json.dumps(Choices(found, 12).as_dict(), allow_nan=False))
    assert len(document["by_program"]) == len(found) == len(by_program(found))


def test_programs_have_a_choice_on_the_machine():
    for cores in (1, 10, 40, 100, 5000):
        for by_cores in programs(cores).values():
            assert len(by_cores) >= 2
            assert max(by_cores) <= cores
    assert not programs(7)


@pytest.mark.full
def test_processes_change_nothing():
    one, two = (choices({"log": a_log(150)}, installed(["last", "median"]), times=4, jobs=n) for n in (1, 2))
    assert [(o.program, o.estimator, o.places.tolist()) for o in one] == [
        (o.program, o.estimator, o.places.tolist()) for o in two
    ]


def test_a_log_without_run_times_is_refused():
    log = a_log(20)
    blind = JobHistory(log.submit_s, log.wait_s, log.cores, log.walltime_s, log.started, machine_cores=100)
    with pytest.raises(TraceError, match="run times"):
        choices({"log": blind}, installed(["last"]), times=2)
