"""The evaluation of wait estimators: no access to the future, and correct figures."""

import io
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from asa.core import plugins
from asa.errors import InputError, RunError, TraceError, UnknownNameError
from asa.estimators import Asa, Prediction, nearest
from asa.estimators.alternatives import PAPER_ALTERNATIVES_S
from asa.geometry import JobGeometry
from asa.history import JobHistory
from asa.studies.accuracy.prequential import Forecasts, oracle, prequential
from asa.studies.accuracy.scores import (
    Course,
    Score,
    block_range,
    closest,
    judge,
    log10_errors,
    pinball,
    regret_bound,
    rounds_ended,
    within_factor,
)
from asa.studies.accuracy.start_estimates import StartEstimates, read_start_estimates, score_start_estimates
from asa.studies.accuracy.study import evaluate, installed
from asa.studies.accuracy.table import draw, render
from asa.waits import LEVELS, QueuedJob, Surroundings, WaitForecast, WaitObservation

SAME = WaitForecast((60.0,) * 9, 60.0)


def history_of(rows, **others):
    """Make a history of (submit, wait, started, run) or longer rows with cores and walltime, too."""
    filled = [(*row, *(4, 3600.0)[len(row) - 4 :]) if len(row) < 6 else row for row in rows]
    submit, wait, started, run, cores, walltime = map(np.array, zip(*filled, strict=True))
    return JobHistory(
        submit.astype(float), wait.astype(float), cores, walltime.astype(float), started, run.astype(float), **others
    )


def random_history(jobs, seed=0, *, spread=1.5, started=0.95, machine_cores=64):
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 60 * jobs, jobs)).astype(float)
    return JobHistory(
        submit,
        np.round(10 ** rng.normal(2.5, spread / 2, jobs) * (rng.random(jobs) < 0.8)),
        rng.choice([1, 2, 8, 30], jobs),
        rng.choice([600.0, 3600.0, 86400.0], jobs),
        rng.random(jobs) < started,
        np.round(rng.exponential(500.0, jobs)),
        rng.integers(-1, 3, jobs).astype(np.int32),
        rng.integers(-1, 2, jobs).astype(np.int32),
        ["ann", "bob", "cid"],
        ["short", "long"],
        machine_cores=machine_cores,
    )


class Quiet:
    """An estimator with one prediction, whatever it learns."""

    def __init__(self, surroundings=None):
        self.tickets = 0

    def predict(self, job):
        return SAME

    def submitted(self, job, forecast=None):
        self.tickets += 1
        return self.tickets - 1

    def observe(self, ticket, observation):
        pass

    def ended(self, ticket, run_s):
        raise AssertionError("told of the end of a run, though it sees no queue")

    def withdrawn(self, ticket):
        pass

    def state(self):
        return {}


class Diary(Quiet):
    """An estimator that records its calls in order."""

    sees_queue = True

    def __init__(self, surroundings=None):
        super().__init__()
        self.surroundings = surroundings
        self.lines = []

    def predict(self, job):
        self.lines.append(("predict", job))
        return SAME

    def submitted(self, job, forecast=None):
        self.lines.append(("submitted", job, forecast))
        return super().submitted(job, forecast)

    def observe(self, ticket, observation):
        self.lines.append(("observe", ticket, observation))

    def ended(self, ticket, run_s):
        self.lines.append(("ended", ticket, run_s))


def diary_of(history):
    kept = []
    prequential(history, lambda surroundings: kept.append(Diary(surroundings)) or kept[0])
    return kept[0]


# --- nobody sees the future -------------------------------------------------------------------------------------------

small = st.integers(0, 6)
some_jobs = st.lists(st.tuples(small, small, st.booleans(), st.integers(-1, 6)), min_size=1, max_size=25).map(
    lambda rows: sorted(rows, key=lambda row: row[0])
)


@given(some_jobs)
def test_a_wait_is_told_after_it_is_over_and_before_the_next_prediction(rows):
    """A prediction knows exactly the waits that ended before its second; ends come before submissions."""
    told, ended, seen = set(), set(), 0
    for what, *rest in diary_of(history_of(rows)).lines:
        if what == "predict":
            now = rest[0].submit_s
            assert told == {i for i, (submit, wait, *_) in enumerate(rows[:seen]) if submit + wait < now}
            over = {
                i
                for i, (submit, wait, started, run) in enumerate(rows[:seen])
                if started and run >= 0 and submit + wait + run <= now and submit + wait < now
            }
            assert ended == over
            seen += 1
        elif what == "observe":
            ticket, observation = rest
            assert ticket not in told
            told.add(ticket)
            _, wait, started, _ = rows[ticket]
            assert observation == WaitObservation(float(wait), "exact" if started else "at_least")
        elif what == "ended":
            ticket, run_s = rest
            assert ticket in told
            assert ticket not in ended
            ended.add(ticket)
            assert run_s == rows[ticket][3]
    assert told == set(range(len(rows)))
    assert ended == {i for i, (_, _, started, run) in enumerate(rows) if started and run >= 0}


def test_a_job_is_announced_with_the_forecast_that_was_made_for_it():
    """Directly after the prediction, in order of submission, with all that a queue shows of it."""
    history = random_history(50)
    lines = [line for line in diary_of(history).lines if line[0] in {"predict", "submitted"}]
    assert [line[0] for line in lines] == ["predict", "submitted"] * 50
    for row, (asked, announced) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        assert asked[1] == announced[1]
        assert announced[2] is SAME
        user, partition = history.user[row], history.partition[row]
        assert asked[1] == QueuedJob(
            history.submit_s[row],
            history.cores[row],
            history.walltime_s[row],
            history.users[user] if user >= 0 else "",
            "",
            history.partitions[partition] if partition >= 0 else "",
        )


def test_only_who_sees_the_queue_is_told_of_ends():
    """`Quiet` sees no queue, and would raise an error."""
    prequential(random_history(50), Quiet)
    assert any(line[0] == "ended" for line in diary_of(random_history(50)).lines)


def test_an_estimator_is_made_for_its_seed_and_machine():
    """It gets nothing else."""
    made = []
    prequential(random_history(3, machine_cores=77), lambda told: made.append(told) or Quiet(), seed=5)
    assert made == [Surroundings(seed=5, machine_cores=77)]


def numbers_within(thing, seen, depth=6):
    """Yield every number that can be reached from an object through its attributes and items."""
    if id(thing) in seen or depth == 0:
        return set()
    seen[id(thing)] = thing
    if isinstance(thing, int | float | np.number):
        return {float(thing)}
    found = set()
    if isinstance(thing, dict):
        parts = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset | np.ndarray):
        parts = list(thing)
    else:
        parts = []
    for name in dir(thing):
        if name.startswith("__"):
            continue
        part = getattr(thing, name, None)
        if not callable(part):
            parts.append(part)
        elif getattr(part, "__self__", None) is not None:
            parts.append(part.__self__)
    for part in parts:
        found |= numbers_within(part, seen, depth - 1)
    return found


class Cheater(Quiet):
    """An estimator that searches all objects that it gets for waits that it must not know yet."""

    def __init__(self, surroundings):
        super().__init__()
        self.known = numbers_within(surroundings, {})
        self.found_before = []

    def search(self, *things):
        for thing in things:
            self.known |= numbers_within(thing, {})

    def predict(self, job):
        self.search(job)
        self.found_before.append(set(self.known))
        return SAME

    def submitted(self, job, forecast=None):
        self.search(job, forecast)
        return super().submitted(job, forecast)

    def observe(self, ticket, observation):
        self.search(ticket, observation)


def test_a_cheater_finds_no_wait_that_is_not_over():
    """Each wait is a number that occurs nowhere else, so that it cannot be found by accident."""
    rng = np.random.default_rng(4)
    base = random_history(150)
    waits = rng.random(150) * 5000
    history = JobHistory(base.submit_s, waits, base.cores, base.walltime_s, base.started, base.run_s)
    made = []
    prequential(history, lambda told: made.append(Cheater(told)) or made[0])
    for row, found in enumerate(made[0].found_before):
        over = {
            wait for submit, wait in zip(history.submit_s, waits, strict=True) if submit + wait < base.submit_s[row]
        }
        assert found & set(waits.tolist()) == over
    assert set(waits.tolist()) <= made[0].known


def test_the_cheater_would_find_a_leak():
    """The search works: it finds a wait that is hidden in a job."""

    class Leaky:
        geometry = ((1, 2), {"deep": [123.25]})

    assert 123.25 in numbers_within(Leaky(), {})


def test_a_forecast_cannot_be_rewritten_when_the_wait_is_known():
    """It is kept as it was when it was made."""

    class Rewriter(Quiet):
        def __init__(self, surroundings):
            super().__init__()
            self.forecasts = []

        def predict(self, job):
            self.forecasts.append([5.0] * 9)
            return WaitForecast(self.forecasts[-1], 5.0)

        def observe(self, ticket, observation):
            self.forecasts[ticket][:] = [observation.wait_s] * 9

    assert (prequential(random_history(30), Rewriter).quantiles_s == 5.0).all()


def with_another_future(history, now, seed=9):
    """Change all that happens after a moment, but nothing that is known by then."""
    rng = np.random.default_rng(seed)
    later = history.submit_s > now
    known_s = history.submit_s + history.wait_s
    open_ = known_s >= now
    unknown_end = ~open_ & (known_s + history.run_s > now)
    jobs = len(history)
    # whoever waits goes on for another while, and who comes later asks for something else
    wait = np.where(open_, np.maximum(now - history.submit_s, 0) + 1 + rng.integers(0, 9000, jobs), history.wait_s)
    run = np.where(open_, rng.integers(0, 9000, jobs), history.run_s)
    run = np.where(unknown_end, now - known_s + 1 + rng.integers(0, 9000, jobs), run)
    submit = np.where(later, now + 1 + np.sort(rng.integers(0, 9000, jobs)), history.submit_s)
    return JobHistory(
        submit,
        np.where(later, rng.integers(0, 9000, jobs), wait).astype(float),
        np.where(later, rng.choice([1, 64], jobs), history.cores),
        np.where(later, 7200.0, history.walltime_s),
        np.where(open_ | later, rng.random(jobs) < 0.5, history.started),
        run.astype(float),
        np.where(later, 0, history.user).astype(np.int32),
        np.where(later, 0, history.partition).astype(np.int32),
        history.users,
        history.partitions,
        machine_cores=history.machine_cores,
    )


@pytest.mark.parametrize("name", [*plugins.names("asa.estimators"), "cheating"])
def test_forecasts_do_not_depend_on_what_comes_later(name):
    """The same past gives the same forecasts, whatever the future; for every estimator that is installed."""
    make = Recaller if name == "cheating" else installed([name], queue=True)[name]
    history = random_history(240)
    was = prequential(history, make, seed=3)
    for row in (60, 150, 200):
        now = history.submit_s[row]
        other = with_another_future(history, now)
        is_ = prequential(other, make, seed=3)
        past = history.submit_s <= now
        assert not np.array_equal(other.wait_s, history.wait_s)
        np.testing.assert_array_equal(is_.quantiles_s[past], was.quantiles_s[past])
        np.testing.assert_array_equal(is_.wait_s[past], was.wait_s[past])


class Recaller(Quiet):
    """An estimator that predicts the sum of all numbers that it got, so that any difference shows."""

    def __init__(self, surroundings):
        super().__init__()
        self.total = 0.0

    def predict(self, job):
        return WaitForecast((self.total,) * 9, self.total)

    def observe(self, ticket, observation):
        self.total += observation.wait_s + ticket


def test_another_past_is_another_forecast():
    """The test before this one can fail."""
    history = random_history(240)
    other = with_another_future(history, history.submit_s[60])
    assert not np.array_equal(prequential(history, Recaller).wait_s, prequential(other, Recaller).wait_s)


# --- forecasts that make no sense -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forecast", "words"),
    [
        (WaitForecast((60.0,) * 8, 60.0), "not 9 quantiles"),
        (WaitForecast((60.0,) * 8 + (None,), 60.0), "not 9 quantiles"),
        (WaitForecast((60.0,) * 8 + (math.inf,), 60.0), "of job 1"),
        (WaitForecast((60.0,) * 9, math.nan), "of job 1"),
        (WaitForecast((-1.0,) * 9, 60.0), "of job 1"),
        (WaitForecast((60.0,) * 8 + (59.0,), 60.0), "of job 1"),
    ],
)
def test_a_forecast_that_makes_no_sense_is_refused(forecast, words):
    """The error names the estimator."""

    class Broken(Quiet):
        def predict(self, job):
            return forecast

    with pytest.raises(InputError, match=words) as caught:
        prequential(random_history(5), Broken)
    assert caught.value.where == "Broken"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((0, -1, True, 5), "job 2 has a wait"),
        ((0, math.nan, True, 5), "job 2 has a wait"),
        ((0, math.inf, True, 5), "job 2 has a wait"),
        ((0, 5, True, 5, 0, 60), "job 2 has no cores"),
        ((0, 5, True, 5, 1, 0), "job 2 has a walltime"),
    ],
)
def test_a_history_that_makes_no_sense_is_refused(row, words):
    """The error names the job."""
    with pytest.raises(InputError, match=words):
        prequential(history_of([(0, 1, True, 1, 1, 60), row]), Quiet)


# --- figures ----------------------------------------------------------------------------------------------------------

waits = st.floats(0, 2e5) | st.sampled_from([*PAPER_ALTERNATIVES_S, 0.0, 12.5, 17.5, 925.0, 5500.0, 90000.0])


@given(st.lists(waits, min_size=1, max_size=30))
def test_the_closest_alternatives_are_those_of_algorithm_1(some):
    """Also where two are equally close."""
    alternatives = np.array(PAPER_ALTERNATIVES_S)
    assert closest(some).tolist() == [nearest(alternatives, wait) for wait in some]
    assert closest(some, [5.0, 7.0]).tolist() == [nearest(np.array([5.0, 7.0]), wait) for wait in some]


@given(st.lists(st.tuples(waits, waits), min_size=1, max_size=20))
def test_errors_and_factors_are_those_of_each_pair(pairs):
    """Compared with a computation of one pair at a time."""
    predicted, real = map(list, zip(*pairs, strict=True))
    floored = [(max(p, 10.0), max(w, 10.0)) for p, w in pairs]
    assert log10_errors(predicted, real) == pytest.approx([abs(math.log10(p / w)) for p, w in floored], abs=1e-12)
    assert within_factor(predicted, real).tolist() == [p <= 2 * w and w <= 2 * p for p, w in floored]


@given(st.lists(st.tuples(st.lists(waits, min_size=9, max_size=9).map(sorted), waits), min_size=1, max_size=8))
def test_pinball_is_the_mean_of_its_levels(forecasts):
    """At each level, too low a forecast costs its error times the level, too high a one its error times the rest."""
    quantiles, outcomes = map(list, zip(*forecasts, strict=True))
    slow = []
    for stated, wait in forecasts:
        losses = [
            level * (wait - q) if wait >= q else (1 - level) * (q - wait)
            for level, q in zip(LEVELS, stated, strict=True)
        ]
        slow.append(sum(losses) / 9)
    assert pinball(quantiles, outcomes) == pytest.approx(slow)


def test_the_true_quantiles_have_the_least_pinball_loss():
    """If they are shifted, the loss is greater."""
    rng = np.random.default_rng(0)
    outcomes = rng.exponential(100.0, 20_000)
    true = -100.0 * np.log(1 - np.array(LEVELS))
    losses = [pinball(np.tile(true * factor, (len(outcomes), 1)), outcomes).mean() for factor in (0.8, 1.0, 1.25)]
    assert losses[1] < min(losses[0], losses[2])


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 52), st.sampled_from([0.0, 30.0, 700.0, 1e5])),
        min_size=1,
        max_size=80,
    )
)
def test_rounds_are_those_that_algorithm_1_ends(rounds):
    """The default policy counts the same rounds for the same predictions."""
    learners = [Asa("default") for _ in range(3)]
    alternatives = np.array(PAPER_ALTERNATIVES_S)
    for whose, chosen, wait in rounds:
        learners[whose].observe(wait, Prediction(alternatives[chosen], chosen))
    whose, chosen, wait = map(np.array, zip(*rounds, strict=True))
    ended = rounds_ended(chosen, closest(wait) != chosen, whose, 3)
    assert ended.tolist() == [learner.rounds for learner in learners]


def test_the_bound_is_theorem_1s():
    """Compared with its values for 53 alternatives at 95 %."""
    assert regret_bound([3], [100])[0] == pytest.approx(4 * 3 + math.log(53) + math.sqrt(200 * math.log(53 / 0.05)))


def test_drift_shows_in_blocks():
    """Half of the time everything is covered, half of the time nothing."""
    assert block_range(np.repeat([1.0, 0.0], 100)) == (0.0, 1.0)
    assert all(map(math.isnan, block_range(np.ones(99))))


def slow_scores(history, forecasts):
    """Return the scores that `judge` should compute, job by job and in plain Python."""
    alternatives = np.array(PAPER_ALTERNATIVES_S)
    rows = [row for row in range(len(history)) if history.started[row]]
    predicted = {row: float(forecasts.wait_s[row]) for row in rows}
    real = {row: float(history.wait_s[row]) for row in rows}
    n = len(rows)
    covered = {level: [] for level in LEVELS}
    losses, log_losses = [], []
    for row in rows:
        for level, q in zip(LEVELS, forecasts.quantiles_s[row].tolist(), strict=True):
            covered[level].append(real[row] < q)
            gap, log_gap = real[row] - q, math.log10(max(real[row], 10)) - math.log10(max(q, 10))
            losses.append(gap * (level - (gap < 0)))
            log_losses.append(log_gap * (level - (log_gap < 0)))
    by_geometry = {}
    for row in sorted(rows, key=lambda row: history.submit_s[row] + history.wait_s[row]):
        geometry = JobGeometry.of(
            cores=int(history.cores[row]),
            walltime_s=float(history.walltime_s[row]),
            partition=[*history.partitions, ""][history.partition[row]],
        )
        by_geometry.setdefault(geometry, []).append(row)
    regret = bound = 0.0
    for members in by_geometry.values():
        learner = Asa("default")
        lost = 0
        for row in members:
            chosen = nearest(alternatives, predicted[row])
            learner.observe(real[row], Prediction(0.0, chosen))
            lost += chosen != nearest(alternatives, real[row])
        truths = [nearest(alternatives, real[row]) for row in members]
        regret += lost - (len(members) - max(truths.count(a) for a in range(53)))
        t = len(members)
        bound += 4 * learner.rounds + math.log(53) + math.sqrt(2 * t * math.log(53 / 0.05))
    off = sorted(abs(predicted[row] - real[row]) for row in rows)
    return by_geometry, {
        "jobs": n,
        "log10_error": sum(abs(math.log10(max(predicted[r], 10) / max(real[r], 10))) for r in rows) / n,
        "hit_ratio": sum(nearest(alternatives, predicted[r]) == nearest(alternatives, real[r]) for r in rows) / n,
        "within_2x": sum(0.5 <= max(predicted[r], 10) / max(real[r], 10) <= 2 for r in rows) / n,
        "within_p50": sum(real[r] <= max(forecasts.quantiles_s[r][4], 10) for r in rows) / n,
        "within_p90": sum(real[r] <= max(forecasts.quantiles_s[r][8], 10) for r in rows) / n,
        **{f"coverage_p{round(100 * level)}": sum(shares) / n for level, shares in covered.items()},
        "coverage_p90_min": min(sum(map(float, part)) / len(part) for part in np.array_split(covered[0.9], 10)),
        "coverage_p90_max": max(sum(map(float, part)) / len(part) for part in np.array_split(covered[0.9], 10)),
        "coverage_p50_min": min(sum(map(float, part)) / len(part) for part in np.array_split(covered[0.5], 10)),
        "coverage_p50_max": max(sum(map(float, part)) / len(part) for part in np.array_split(covered[0.5], 10)),
        "pinball_s": sum(losses) / len(losses),
        "pinball_log10": sum(log_losses) / len(log_losses),
        "late_s": sum(max(0.0, real[r] - predicted[r]) for r in rows) / n,
        "late_share": sum(real[r] > predicted[r] for r in rows) / n,
        "idle_core_h": sum(max(0.0, predicted[r] - real[r]) * int(history.cores[r]) / 3600 for r in rows) / n,
        "abs_error_s": sum(off) / n,
        "abs_error_p50_s": float(np.median(off)),
        "abs_error_p90_s": float(np.percentile(off, 90)),
        "bias_s": sum(predicted[r] - real[r] for r in rows) / n,
        "regret_per_job": regret / n,
        "regret_bound_per_job": bound / n,
        "us_per_job": None,
        "geometry": None,
        "trace": "t",
        "estimator": "e",
    }


@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_a_slow_and_direct_computation(seed):
    """Random waits of at least 10 s and random forecasts without ties, for which coverage needs no convention."""
    rng = np.random.default_rng(seed)
    history = random_history(300, seed)
    object.__setattr__(history, "wait_s", 10.0 + rng.exponential(800.0, 300))
    forecasts = Forecasts(np.sort(rng.exponential(900.0, (300, 9)), axis=1), rng.exponential(500.0, 300))
    whole, *parts = judge(history, forecasts, trace="t", estimator="e", by_geometry=True)
    members, expected = slow_scores(history, forecasts)
    assert whole.as_dict().keys() == expected.keys()
    for key, value in whole.as_dict().items():
        assert value == (
            pytest.approx(expected[key], rel=1e-9, abs=1e-9) if isinstance(value, float) else expected[key]
        )
    assert {part.geometry: part.jobs for part in parts} == {g.label(): len(rows) for g, rows in members.items()}
    assert [part.jobs for part in parts] == sorted((part.jobs for part in parts), reverse=True)
    for key in ("log10_error", "hit_ratio", "pinball_s", "late_s", "idle_core_h", "regret_per_job", "coverage_p50"):
        mean = sum(part.as_dict()[key] * part.jobs for part in parts) / whole.jobs
        assert mean == pytest.approx(whole.as_dict()[key])
    part = parts[0]
    rows = next(np.sort(rows) for g, rows in members.items() if g.label() == part.geometry)
    _, alone = slow_scores(
        JobHistory(*(getattr(history, c)[rows] for c in ("submit_s", "wait_s", "cores", "walltime_s", "started"))),
        Forecasts(forecasts.quantiles_s[rows], forecasts.wait_s[rows]),
    )
    for key in ("regret_per_job", "regret_bound_per_job", "abs_error_p90_s", "coverage_p80", "within_2x"):
        assert part.as_dict()[key] == pytest.approx(alone[key])


@given(some_jobs.filter(lambda rows: any(row[2] for row in rows)))
def test_the_oracle_is_right(rows):
    """Its forecasts are right for any waits."""
    history = history_of(rows)
    [score] = judge(history, oracle(history))
    assert (score.log10_error, score.hit_ratio, score.within_2x, score.pinball_s, score.pinball_log10) == (
        0,
        1,
        1,
        0,
        0,
    )
    assert (score.late_s, score.late_share, score.idle_core_h, score.abs_error_p90_s) == (0, 0, 0, 0)
    assert score.coverage == pytest.approx(LEVELS)
    assert score.regret_per_job <= 0


def test_jobs_that_never_started_are_learned_from_and_not_scored():
    """A censored wait cannot say how right a forecast was."""
    rows = [(0, 60, True, 5), (10, 999, False, -1), (20, 60, True, 5)]
    [score] = judge(history_of(rows), Forecasts(np.full((3, 9), 60.0), np.full(3, 60.0)))
    assert (score.jobs, score.log10_error) == (2, 0.0)


def test_rounds_end_in_the_order_in_which_waits_became_known():
    """Losses of alternatives a, b, a, b that become known as a, a, b, b end two rounds, not one."""
    history = history_of([(0, 1000, True, 5), (1, 3000, True, 5), (2, 1000, True, 5), (3, 3000, True, 5)])
    [score] = judge(history, Forecasts(np.full((4, 9), 10.0), np.array([10.0, 20.0, 10.0, 20.0])))
    assert score.regret_bound_per_job * 4 == pytest.approx(regret_bound(2, 4).item())


def test_the_course_has_blocks_of_equally_many_jobs():
    """It has days since the first submission, too."""
    history = history_of([(86400 * day, 100 if day < 100 else 1000, True, 5) for day in range(200)])
    [score] = judge(history, Forecasts(np.full((200, 9), 100.0), np.full(200, 100.0)))
    course = score.course
    assert {len(part) for part in course} == {20}
    assert course.day == pytest.approx([4.5 + 10 * block for block in range(20)])
    assert course.log10_error == pytest.approx([0.0] * 10 + [1.0] * 10)
    assert set(course.coverage_p90[10:]) == {0.0}


# --- many at once -----------------------------------------------------------------------------------------------------


def without_time(scores):
    return [{key: value for key, value in score.as_dict().items() if key != "us_per_job"} for score in scores]


def test_every_trace_meets_every_estimator_and_the_oracle():
    """In the order given, each with a fresh estimator."""
    histories = {"one": random_history(200, 1), "two": random_history(120, 2)}
    seen = []
    scores = evaluate(
        histories, {"quiet": Quiet, "recaller": Recaller}, on_progress=lambda done, of: seen.append((done, of))
    )
    assert [(score.trace, score.estimator) for score in scores] == [
        (trace, name) for trace in histories for name in ("quiet", "recaller", "oracle")
    ]
    assert seen == [(done, 6) for done in range(7)]
    alone = evaluate({"two": histories["two"]}, {"recaller": Recaller})
    assert without_time(alone)[0] == without_time(scores)[4]
    assert scores[0].us_per_job > 0


def test_scores_are_json():
    """Unknown figures are null, and none is nan."""
    [score, truth] = evaluate({"t": random_history(50)}, {"quiet": Quiet})
    record = json.loads(json.dumps(score.as_dict(), allow_nan=False))
    assert record["coverage_p90_min"] is None  # too few jobs for blocks
    assert {"trace", "estimator", "jobs", "log10_error", "hit_ratio", "within_2x", "pinball_s"} <= record.keys()
    assert truth.as_dict()["us_per_job"] is None


@pytest.mark.parametrize("rows", [[], [(0, 5, False, -1)]])
def test_a_history_without_waits_is_refused(rows):
    """Empty, or of jobs that all left the queue."""
    history = (
        history_of(rows) if rows else JobHistory(*(np.empty(0, dtype) for dtype in (float, float, int, float, bool)))
    )
    with pytest.raises(InputError, match="no job whose wait is known"):
        evaluate({"t": history}, {"quiet": Quiet})
    with pytest.raises(InputError, match="no job whose wait is known"):
        judge(history, oracle(history))


def test_nothing_to_evaluate_is_refused():
    """There must be a trace and an estimator."""
    with pytest.raises(InputError, match="nothing to evaluate"):
        evaluate({}, {"quiet": Quiet})
    with pytest.raises(InputError, match="nothing to evaluate"):
        evaluate({"t": random_history(5)}, {})


class FakePoint:
    """An entry point of a package that is not there."""

    extras = ()
    dist = None

    def __init__(self, name, made):
        self.name, self.made = name, made

    def load(self):
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


@pytest.fixture
def group(monkeypatch):
    """Install other estimators in place of those that there are."""

    def install(**made):
        points = {name: FakePoint(name, what) for name, what in made.items()}
        monkeypatch.setattr(plugins, "_group", lambda _group: points)

    return install


def test_estimators_that_see_the_queue_are_evaluated_on_demand(group):
    """Only then, since they take long."""
    group(quiet=Quiet, diary=Diary)
    assert list(installed()) == ["quiet"]
    assert list(installed(queue=True)) == ["quiet", "diary"]
    assert list(installed(["diary"])) == ["diary"]


def test_an_estimator_that_is_not_there_is_named_with_the_closest(group):
    """A broken one is reported as broken."""
    group(median=Quiet, broken=ImportError("no module named fastwaits"))
    with pytest.raises(UnknownNameError, match="no estimator 'medain'\nDid you mean 'median'"):
        installed(["medain"])
    with pytest.raises(InputError, match="'broken': cannot be loaded: ImportError: no module named fastwaits"):
        installed()
    told = []
    assert list(installed(on_failure=told.append)) == ["median"], "the others are there all the same"
    assert len(told) == 1
    with pytest.raises(InputError, match="no estimator to evaluate"):
        installed([])


class Clumsy(Quiet):
    """An estimator that fails at its third job."""

    def submitted(self, job, forecast=None):
        if job.submit_s > 1000:
            raise ValueError("lost my notes")
        return super().submitted(job, forecast)


@pytest.mark.full
@pytest.mark.parametrize("jobs", [1, 2])
def test_one_that_fails_does_not_take_the_others_along(jobs):
    """It is named."""
    told = []
    makers = {"clumsy": Clumsy, "quiet": Quiet}
    scores = evaluate({"made up": random_history(60)}, makers, jobs=jobs, on_failure=told.append)
    assert [score.estimator for score in scores] == ["quiet", "oracle"]
    assert [str(error).splitlines()[0] for error in told] == ["estimator 'clumsy': failed: ValueError: lost my notes"]
    with pytest.raises(RunError, match="lost my notes"):
        evaluate({"made up": random_history(60)}, makers, jobs=jobs)


# --- tables and figure ------------------------------------------------------------------------------------------------


def shown(scores, width=100):
    text = io.StringIO()
    Console(width=width, file=text).print(render(scores))
    return text.getvalue()


def lines_of(text, name):
    return [line.split() for line in text.splitlines() if line.split()[:1] == [name]]


def test_the_best_of_each_column_is_marked():
    """Figures that are printed alike are equally good; the oracle does not compete; coverage is best at its level."""
    near, far = {"coverage": (0.5,) * 8 + (0.91,)}, {"coverage": (0.5,) * 8 + (0.97,)}
    scores = [
        Score("a.swf", "good", jobs=9, log10_error=0.50001, hit_ratio=0.2, late_s=5.0, **near),
        Score("a.swf", "bad", jobs=9, log10_error=0.50002, hit_ratio=0.1, late_s=4.0, **far),
        Score("a.swf", "oracle", jobs=9, log10_error=0.0, hit_ratio=1.0, late_s=0.0, **near),
    ]
    text = shown(scores)
    assert lines_of(text, "good") == [["good", "0.500*", "20.0*"], ["good", "50.0*", "91.0*"], ["good", "5s"]]
    assert lines_of(text, "bad") == [["bad", "0.500*", "10.0"], ["bad", "50.0*", "97.0"], ["bad", "4s*"]]
    assert lines_of(text, "oracle") == [["oracle", "0.000", "100.0"], ["oracle", "50.0", "91.0"], ["oracle", "0s"]]
    assert "a.swf: 9 waits" in text
    assert "*" not in shown(scores[:1]).split("Error:")[0]


def test_tables_fit_a_narrow_terminal():
    """80 columns are enough for all of it."""
    history = random_history(400, spread=3.0)
    scores = evaluate({"t": history}, {"asa-default": Quiet, "recaller": Recaller}, by_geometry=True)
    text = shown(scores, width=80)
    assert "…" not in text
    assert "Pinball" in text


def test_the_twenty_geometries_of_most_jobs_are_shown():
    """The others are in JSON and CSV."""
    scores = [Score("t", "e", jobs=99, log10_error=0.5)]
    scores += [Score("t", "e", f"kind-{jobs}", jobs=jobs, log10_error=0.5) for jobs in range(30, 0, -1)]
    text = shown(scores)
    assert "kind-11:" in text
    assert "kind-10:" not in text


def test_traces_of_one_name_are_told_apart():
    """Their folders are part of their names."""
    text = shown([Score("a/log.swf", "e", jobs=1, log10_error=1.0), Score("b/log.swf", "e", jobs=1, log10_error=1.0)])
    assert "a/log.swf" in text
    assert "b/log.swf" in text


def test_a_figure_has_a_row_of_panels_a_trace(monkeypatch, tmp_path):
    """Lines carry the course of each estimator; the last panel is of `asa`, or of the first."""
    drawn = []
    monkeypatch.setattr("asa.studies.present.save_figure", lambda figure, path: drawn.append(figure))
    histories = {"one": random_history(200, 1), "two": random_history(120, 2)}
    scores = evaluate(histories, {"recaller": Recaller, "asa": Quiet})
    draw(scores, tmp_path / "a.png")
    panels = drawn[0].axes
    assert len(panels) == 8
    for row, trace in enumerate(histories):
        by_name = {score.estimator: score for score in scores if score.trace == trace}
        error, p50, p90, reliability = panels[4 * row : 4 * row + 4]
        lines = {line.get_label(): line for line in error.lines}
        assert set(lines) == {"recaller", "asa"}
        assert lines["asa"].get_ydata() == pytest.approx(by_name["asa"].course.log10_error)
        assert p50.lines[0].get_ydata() == pytest.approx([100 * c for c in by_name["recaller"].course.coverage_p50])
        assert p90.lines[0].get_ydata() == pytest.approx([100 * c for c in by_name["recaller"].course.coverage_p90])
        assert p90.get_ylim()[0] <= 100 * min(by_name["recaller"].course.coverage_p90)
        assert reliability.lines[0].get_ydata() == pytest.approx([100 * c for c in by_name["asa"].coverage])
        assert reliability.get_title().startswith("asa")


def test_a_figure_of_nothing_is_refused(tmp_path):
    """A scheduler's estimates have no course."""
    with pytest.raises(InputError, match="no course"):
        draw([Score("t", "scheduler", jobs=3, abs_error_s=5.0)], tmp_path / "a.png")
    with pytest.raises(InputError, match="no course"):
        draw([Score("t", "oracle", jobs=3, course=Course((0.0,), (0.0,), (0.5,), (0.9,)))], tmp_path / "a.png")


# --- a scheduler's own estimates --------------------------------------------------------------------------------------


def starts(tmp_path, *rows, titles="id,true_start_time,estimate_start_time,diff_in_s"):
    path = tmp_path / "starts.csv"
    path.write_bytes("\r\n".join([titles, *rows, ""]).encode())
    return path


def test_estimated_starts_are_read_and_scored(tmp_path):
    """Differences are checked against their column, signed or not."""
    told = read_start_estimates(
        starts(
            tmp_path,
            "1,2022-12-01 12:00:00,2022-12-01 12:01:00,60.0",
            "2,2022-12-01 12:00:00,2022-12-01 11:59:30,30.0",
            "3,2022-12-01 12:00:00,2022-12-01 11:58:30,-90",
            "4,2022-12-01 12:00:00,2022-12-02 12:00:00,12",
            "5,2022-12-01 12:00:00,2022-12-01 12:00:00,",
            "6,,2022-12-01 12:00:00,",
            "7,2022-12-01 12:00:00,N/A,5",
            "8,2022-12-01 12:00:00,2022-12-01T12:00:00+01:00,5",
            "9",
        )
    )
    assert told.error_s.tolist() == [60.0, -30.0, -90.0, 86400.0, 0.0]
    assert sorted(told.oddities.values()) == [2, 4]
    score = score_start_estimates(told.first(3), trace="x")
    assert (score.estimator, score.jobs, score.late_s, score.abs_error_s, score.bias_s) == ("scheduler", 3, 40, 60, -20)
    assert (score.abs_error_p50_s, score.late_share) == (60.0, pytest.approx(2 / 3))
    unknown = {key for key, value in score.as_dict().items() if value is None}
    assert {"log10_error", "hit_ratio", "within_2x", "coverage_p50", "coverage_p90", "pinball_s"} <= unknown


def test_titles_may_be_quoted_and_spaced_and_the_difference_left_out(tmp_path):
    """As spreadsheets write them."""
    path = starts(
        tmp_path, '"2022-12-01 12:00:00", 2022-12-01 12:00:09', titles='"true_start_time", estimate_start_time '
    )
    told = read_start_estimates(path)
    assert (told.error_s.tolist(), told.oddities) == ([9.0], {})


def test_other_files_are_left_to_others(tmp_path):
    """A file with one of the columns is taken for such a file, and must have both, and a row."""
    assert read_start_estimates(starts(tmp_path, "1 0 30 60", titles="; MaxProcs: 4")) is None
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 300)
    assert read_start_estimates(tmp_path / "binary") is None
    (tmp_path / "empty").write_bytes(b"")
    assert read_start_estimates(tmp_path / "empty") is None
    with pytest.raises(TraceError, match="lacks the column estimate_start_time"):
        read_start_estimates(starts(tmp_path, "1", titles="true_start_time"))
    with pytest.raises(TraceError, match="no row with both times"):
        read_start_estimates(starts(tmp_path, "1,2,3,4"))
    with pytest.raises(TraceError, match="cannot be read"):
        read_start_estimates(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="holds no estimates"):
        score_start_estimates(StartEstimates(np.empty(0), "here"))


@pytest.mark.data
@pytest.mark.parametrize(("name", "jobs", "late"), [("cedar", 53, 25), ("narval", 58, 52)])
def test_real_estimates_of_slurm(data, name, jobs, late):
    """Their column of differences has absolute values."""
    told = read_start_estimates(data / "slurm-jobs" / f"{name}_true_start_time_vs_slurm_estimate.csv")
    score = score_start_estimates(told)
    assert (score.jobs, round(score.late_share * jobs), told.oddities) == (jobs, late, {})
