"""The estimators that ours is compared with, and the contract of them all."""

import bisect
import copy
import json
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core import plugins
from asa.errors import InputError, StateError
from asa.estimators.algorithm1 import Asa
from asa.estimators.calibration import coverage
from asa.estimators.peers import (
    Algorithm1,
    LastWait,
    MeanWait,
    MedianWait,
    Regression,
    asa_default,
    asa_greedy,
    asa_tuned,
)
from asa.estimators.qbets import Qbets
from asa.testing import check_estimator
from asa.waits import LEVELS, QueuedJob, Surroundings, WaitForecast, at_least, at_most, exactly

DRAWING = {"asa-default", "asa-tuned"}
OF_THE_QUEUE = {"queue", "asa-queue"}  # what they know of a job is what waits and runs, not its kind
POINTS = (LastWait, MeanWait, MedianWait, Regression)
KINDS = [(1, 60.0), (28, 3600.0), (30, 3600.0), (640, 86_400.0)]  # the second and third are of one geometry


def job(kind=1, submit_s=0.0):
    cores, walltime_s = KINDS[kind]
    return QueuedJob(submit_s, cores=cores, walltime_s=walltime_s)


def tell(estimator, observation, kind=1):
    ticket = estimator.submitted(job(kind), estimator.predict(job(kind)))
    estimator.observe(ticket, exactly(float(observation)) if isinstance(observation, (int, float)) else observation)


@pytest.mark.parametrize("name", plugins.names("asa.estimators"))
def test_every_installed_estimator_keeps_the_contract(name):
    """Also those from other packages."""
    make = plugins.load("asa.estimators", name)
    from_state = type(make(Surroundings())).from_state
    check_estimator(make, from_state, draws=name in DRAWING, separates=name not in OF_THE_QUEUE)


# ------------------------------------------------------------------------------- the contract finds what is wrong


class Descending(LastWait):
    """An estimator whose quantiles descend."""

    def predict(self, job):
        forecast = super().predict(job)
        return forecast._replace(quantiles_s=forecast.quantiles_s[::-1])


class Endless(LastWait):
    """An estimator that predicts endless waits."""

    def predict(self, job):
        return super().predict(job)._replace(wait_s=math.inf)


class Listing(LastWait):
    """An estimator whose forecast can be changed afterwards."""

    def predict(self, job):
        forecast = super().predict(job)
        return forecast._replace(quantiles_s=list(forecast.quantiles_s))


class Remembering(LastWait):
    """An estimator that learns from questions."""

    def predict(self, job):
        self._site.learn(self._site.point_s + 1.0)
        return super().predict(job)


class Forgetful(LastWait):
    """An estimator whose state loses the pending jobs."""

    def state(self):
        return {**super().state(), "waiting": []}

    def observe(self, ticket, observation):
        if ticket in self._waiting:
            super().observe(ticket, observation)


class Lenient(LastWait):
    """An estimator that accepts any ticket."""

    def observe(self, ticket, observation):
        if ticket in self._waiting:
            super().observe(ticket, observation)


class OneTicket(LastWait):
    """An estimator with one ticket for all jobs."""

    def submitted(self, job, forecast=None):
        self._tickets = 0
        return super().submitted(job, forecast)


class HandingOut(LastWait):
    """An estimator that returns its own state, not a copy."""

    def __init__(self, surroundings=None):
        super().__init__(surroundings)
        self.seen = []

    def submitted(self, job, forecast=None):
        self.seen.append(job.cores)
        return super().submitted(job, forecast)

    def state(self):
        return {**super().state(), "seen": self.seen}

    @classmethod
    def from_state(cls, state):
        made = super().from_state(state)
        made.seen = list(state["seen"])
        return made


class Keeping(HandingOut):
    """An estimator that keeps the state that it was given, not a copy."""

    def state(self):
        return copy.deepcopy(super().state())

    @classmethod
    def from_state(cls, state):
        made = super().from_state(state)
        made.seen = state["seen"]
        return made


class Literal(LastWait):
    """An estimator that learns bounds as if they were waits."""

    def observe(self, ticket, observation):
        super().observe(ticket, exactly(observation.wait_s))


class Deaf(LastWait):
    """An estimator that learns nothing."""

    def observe(self, ticket, observation):
        super().observe(ticket, at_least(0.0))


class OneKind(LastWait):
    """An estimator that treats all jobs alike."""

    def predict(self, job):
        return WaitForecast((self._site.point_s,) * 9, self._site.point_s)


class Numpy(LastWait):
    """An estimator whose state has numbers of numpy, which JSON does not know."""

    def predict(self, job):
        return super().predict(job)._replace(wait_s=np.float64(5.0))


class Seedless(LastWait):
    """An estimator whose draws ignore its seed."""

    made = 0

    def __init__(self, surroundings=None):
        super().__init__(surroundings)
        type(self).made += 1
        self._site.point_s += type(self).made


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Descending, "ascend"),
        (Endless, "finite"),
        (Listing, "tuple"),
        (Remembering, "twice|changes nothing"),
        (Forgetful, "survives JSON"),
        (Lenient, "InputError"),
        (OneTicket, "ticket|waits under"),
        (HandingOut, "not the estimator's own"),
        (Keeping, "does not change the state"),
        (Literal, "says nothing"),
        (Deaf, "factor of two"),
        (OneKind, "kept apart"),
        (Numpy, "own floats"),
        (Seedless, "same seed"),
    ],
)
def test_the_contract_finds_an_estimator_that_breaks_it(broken, message):
    """Each fault is found by the check that is meant for it."""
    with pytest.raises((AssertionError, InputError), match=message):
        check_estimator(broken, broken.from_state)


# ------------------------------------------------------------------------------------------- what each predicts

history = st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.floats(0, 1e6)), min_size=1, max_size=130)
of_one_kind = st.lists(st.floats(0, 1e6), min_size=51, max_size=120)


@pytest.mark.parametrize(
    ("make", "oracle"),
    [
        (LastWait, lambda waits: waits[-1]),
        (MeanWait, statistics.fmean),
        (MedianWait, lambda waits: statistics.median(waits[-50:])),
    ],
)
@given(history)
def test_the_simple_ones_are_what_they_are_called(make, oracle, seen):
    """They predict from the waits of the geometry, or of the site while the geometry has none."""
    estimator, of_site, of_kind = make(), [], {}
    for kind, wait in seen:
        same = 1 if kind == 2 else kind
        known = of_kind.get(same) or of_site
        expected = oracle(known) if known else 600.0
        assert estimator.predict(job(kind)).wait_s == pytest.approx(expected, rel=1e-9, abs=1e-6)
        tell(estimator, wait, kind)
        of_kind.setdefault(same, []).append(wait)
        of_site.append(wait)


@given(of_one_kind)
def test_the_median_is_of_the_last_fifty(waits):
    """Older waits are forgotten."""
    estimator = MedianWait()
    for wait in waits:
        tell(estimator, wait)
    assert estimator.predict(job()).wait_s == pytest.approx(statistics.median(waits[-50:]))


@pytest.mark.parametrize("make", [LastWait, MeanWait, MedianWait])
def test_a_wait_is_learned_when_it_is_known_and_not_before(make):
    """The order of the answers counts, not that of the submissions."""
    estimator = make()
    tell(estimator, 100.0)
    first, second = estimator.submitted(job()), estimator.submitted(job())
    assert estimator.predict(job()).wait_s == 100.0
    estimator.observe(second, exactly(100.0))
    assert estimator.predict(job()).wait_s == 100.0
    estimator.observe(first, exactly(700.0))
    assert estimator.predict(job()).wait_s == {LastWait: 700.0, MeanWait: 300.0, MedianWait: 100.0}[make]


@pytest.mark.parametrize("make", [LastWait, MeanWait, MedianWait])
def test_a_bound_is_learned_where_it_breaks_the_prediction(make):
    """Otherwise nothing is learned of it."""
    estimator = make()
    tell(estimator, 100.0)
    for harmless in (at_most(500.0), at_least(50.0), at_most(100.0), at_least(100.0)):
        tell(estimator, harmless)
    assert estimator.predict(job()).wait_s == 100.0
    assert estimator.state()["site"][0] == 1
    tell(estimator, at_least(300.0))
    assert estimator.predict(job()).wait_s == {LastWait: 300.0, MeanWait: 200.0, MedianWait: 200.0}[make]
    tell(estimator, at_most(20.0))
    assert estimator.predict(job()).wait_s < 200.0


def test_the_regression_finds_a_law_of_size_and_time():
    """Waits grow with the cores and fall with the requested time; no geometry is met often."""
    rng = np.random.default_rng(1)

    def errors(make):
        estimator, off = make(), []
        for number in range(3000):
            cores, walltime_s = int(2 ** rng.uniform(0, 14)), 10 ** rng.uniform(2, 5.5)
            wait_s = 2e4 * cores**0.8 * walltime_s**-0.5 * 10 ** rng.normal(0, 0.1)
            asked = QueuedJob(60.0 * number, cores=cores, walltime_s=walltime_s)
            forecast = estimator.predict(asked)
            off.append(abs(math.log10(max(forecast.wait_s, 10) / max(wait_s, 10))))
            estimator.observe(estimator.submitted(asked, forecast), exactly(wait_s))
        return statistics.fmean(off[1500:])

    assert errors(Regression) < 0.25
    assert errors(Regression) < 0.8 * errors(LastWait)


def test_a_bound_that_the_regression_keeps_teaches_it_nothing():
    """A bound that contradicts the prediction changes the weights."""
    estimator = Regression()
    for _ in range(100):
        tell(estimator, 300.0)
    before = estimator.state()["weights"]
    for harmless in (at_most(86_400.0), at_least(11.0)):
        tell(estimator, harmless)
    assert estimator.state()["weights"] == before
    tell(estimator, at_least(86_400.0))
    assert estimator.state()["weights"] != before


def test_the_regression_comes_to_the_median_not_the_mean():
    """No fact of the jobs explains their waits: three of four wait a minute, one a day."""
    estimator = Regression()
    for wait in (60.0, 60.0, 86_400.0, 60.0) * 500:
        tell(estimator, wait)
    assert estimator.predict(job()).wait_s < 600.0


def reference(policy, seed_sequence, waits, repetitions=50):
    """Algorithm 1 in plain Python: the draws and their effects, with no shortcuts."""
    rng = np.random.Generator(np.random.PCG64(seed_sequence))
    alternatives = Asa().alternatives_s
    p, open_round, total, told = np.full(53, 1 / 53), np.zeros(53), np.zeros(53), []

    def charge(chosen):
        nonlocal p
        open_round[chosen] += losses[chosen]
        total[chosen] += losses[chosen]
        if open_round[chosen] > 1:
            p = p * np.exp(-open_round)
            p = p / p.sum()
            open_round[:] = 0

    def draw():
        return bisect.bisect_right(np.cumsum(p).tolist(), rng.random())

    for wait in waits:
        chosen = int(np.argmin(total)) if policy == "greedy" else draw()
        told.append(float(alternatives[chosen]))
        losses = np.ones(53)
        losses[np.argmin(np.abs(alternatives - wait))] = 0
        charge(chosen)
        if policy == "tuned":
            for _ in range(repetitions):
                charge(draw())
    return told, p


@pytest.mark.parametrize("policy", ["default", "greedy", "tuned"])
def test_algorithm_1_draws_what_it_would_if_written_down_plainly(policy):
    """What makes the code quick changes no draw."""
    waits = (10 ** np.random.default_rng(3).normal(2.5, 0.8, 400)).tolist()
    learner, told = Asa(policy, seed=9), []
    for wait in waits:
        prediction = learner.predict()
        told.append(prediction.wait_s)
        learner.observe(wait, prediction)
    expected, p = reference(policy, 9, waits)
    assert told == expected
    if policy != "greedy":
        assert learner.distribution().probabilities == pytest.approx(p, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("make", [asa_default, asa_greedy, asa_tuned])
def test_the_quantiles_of_algorithm_1_are_those_it_draws_from(make):
    """The shortest alternative that is not exceeded with each probability."""
    estimator = make(Surroundings(seed=4))
    for wait in (10 ** np.random.default_rng(4).normal(2.5, 0.5, 60)).tolist():
        tell(estimator, wait)
    learner = Asa.from_state(estimator.state()["geometries"][0][-1])
    waits, probabilities = learner.distribution()
    expected = [waits[np.flatnonzero(np.cumsum(probabilities) >= level - 1e-12)[0]] for level in LEVELS]
    forecast = estimator.predict(job())
    assert forecast.quantiles_s == tuple(expected)
    assert forecast.wait_s == waits[forecast.alternative]


def test_algorithm_1_learns_of_what_was_acted_upon():
    """The alternative that came with the forecast is charged, whatever was drawn since."""
    estimator = Algorithm1(Surroundings(seed=2), policy="default")
    forecast = estimator.predict(job())
    ticket = estimator.submitted(job(), forecast)
    for _ in range(20):
        estimator.predict(job())
    estimator.observe(ticket, exactly(1e5 if forecast.wait_s < 1e4 else 0.0))
    charged = estimator.state()["geometries"][0][-1]["total_losses"]
    assert [place for place, loss in enumerate(charged) if loss] == [forecast.alternative]


def test_what_one_geometry_sees_never_changes_what_algorithm_1_draws_for_another():
    """Each learner has its own generator; the seed matters."""
    alone, busy = Algorithm1(Surroundings(seed=5)), Algorithm1(Surroundings(seed=5))
    for wait in (10.0, 500.0, 7.0) * 20:
        tell(busy, wait, kind=0)
    draws = [alone.predict(job(3)).wait_s for _ in range(20)]
    assert [alone.predict(job(0)).wait_s for _ in range(20)] != draws, "nor do two geometries draw alike"
    assert [busy.predict(job(3)).wait_s for _ in range(20)] == draws
    other = Algorithm1(Surroundings(seed=6))
    assert [other.predict(job(3)).wait_s for _ in range(20)] != draws


def test_a_forecast_of_another_estimator_is_not_charged_to_algorithm_1():
    """It chose no alternative; one is drawn instead."""
    estimator = Algorithm1(policy="tuned")
    ticket = estimator.submitted(job(), WaitForecast((600.0,) * 9, 600.0))
    estimator.observe(ticket, exactly(60.0))
    assert estimator.state()["geometries"][0][-1]["observations"] == 1
    ticket = estimator.submitted(job(), WaitForecast((600.0,) * 9, 600.0, alternative=99))
    with pytest.raises(InputError, match="not one of"):
        estimator.observe(ticket, exactly(60.0))


# ------------------------------------------------------------------------------------------------------ state


def taught(make):
    estimator = make(Surroundings(seed=1))
    for kind, wait in [(1, 60.0), (0, 5.0), (3, 9000.0), (1, 700.0)] * 3:
        tell(estimator, wait, kind)
    estimator.submitted(job(1), estimator.predict(job(1)))
    return estimator


@pytest.mark.parametrize("make", [*POINTS, Qbets, asa_default, asa_tuned])
@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.pop("tickets"),
        lambda s: s.pop("geometries"),
        lambda s: s.update(waiting=None),
        lambda s: s["waiting"][0].__setitem__(0, 10_000),
        lambda s: s["waiting"][0].__setitem__(1, 7),
        lambda s: s["waiting"][0].__setitem__(1, -1),
        lambda s: s["geometries"][0].pop(),
        lambda s: s["geometries"][0].__setitem__(2, 5),
        lambda s: s["geometries"][0].__setitem__(-1, None),
        lambda s: s["geometries"][0].__setitem__(-1, []),
    ],
)
def test_a_damaged_state_is_refused(make, damage):
    """The error is a `StateError`; no wrong estimator is made."""
    estimator = taught(make)
    state = json.loads(json.dumps(estimator.state()))
    type(estimator).from_state(copy.deepcopy(state))
    damage(state)
    with pytest.raises(StateError):
        type(estimator).from_state(state)


@pytest.mark.parametrize(
    ("make", "damage"),
    [
        (LastWait, lambda s: s.pop("calibrator")),
        (LastWait, lambda s: s["site"].__setitem__(1, -5.0)),
        (LastWait, lambda s: s["waiting"][0][3].pop()),
        (MeanWait, lambda s: s["site"].__setitem__(0, -1)),
        (MedianWait, lambda s: s["site"][2].pop()),
        (Regression, lambda s: s["weights"].pop()),
        (Regression, lambda s: s.update(steps=-1)),
        (Regression, lambda s: s["site"].__setitem__(2, math.inf)),
        (Qbets, lambda s: s["site"].__setitem__(-1, [1.0] * 50)),
        (Qbets, lambda s: s["site"].__setitem__(-1, [])),
        (asa_default, lambda s: s.update(policy="eager")),
        (asa_default, lambda s: s.update(seed=-1, geometries=[], waiting=[], policy=3)),
        (asa_tuned, lambda s: s["geometries"][0][-1].pop("rounds")),
    ],
)
def test_what_is_damaged_in_one_kind_of_state_is_refused_too(make, damage):
    """Each by its own rules."""
    estimator = taught(make)
    state = json.loads(json.dumps(estimator.state()))
    damage(state)
    with pytest.raises(StateError):
        type(estimator).from_state(state)


def test_the_state_of_one_estimator_is_refused_by_another():
    """Even though both states look alike."""
    with pytest.raises(StateError, match="MeanWait"):
        MeanWait.from_state(LastWait().state())


def test_an_unknown_policy_is_refused_at_once():
    """Not at the first prediction."""
    with pytest.raises(InputError, match="Known"):
        Algorithm1(policy="eager")


def test_asking_for_ever_new_kinds_of_jobs_does_not_fill_the_memory(monkeypatch):
    """Questions leave nothing in the state, and requests are forgotten after a while."""
    monkeypatch.setattr("asa.estimators.peers._MAX_REQUESTS", 50)
    for estimator in (LastWait(), Algorithm1()):
        for seconds in range(100, 400):
            estimator.predict(QueuedJob(0.0, cores=4, walltime_s=float(seconds)))
        assert len(estimator._by_request) <= 50
    assert LastWait().state()["geometries"] == []


# ------------------------------------------------------------------------------------------------- real queues


def replayed(estimator, jobs):
    """Play a log in order of time: a wait is known when its job starts."""
    asked = [
        QueuedJob(float(submit), int(cores), float(walltime))
        for submit, cores, walltime in zip(jobs.submit_s, jobs.cores, jobs.walltime_s, strict=True)
    ]
    waits = jobs.wait_s.tolist()
    times = np.concatenate([jobs.submit_s, jobs.submit_s + jobs.wait_s])
    starts = np.repeat([0, 1], len(asked))
    forecasts, tickets = [], []
    for event in np.lexsort((np.arange(len(times)), starts, times)).tolist():
        if event < len(asked):
            forecasts.append(estimator.predict(asked[event]))
            tickets.append(estimator.submitted(asked[event], forecasts[-1]))
        else:
            estimator.observe(tickets[event - len(asked)], exactly(waits[event - len(asked)]))
    stated = np.array([forecast.quantiles_s for forecast in forecasts])
    points = np.array([forecast.wait_s for forecast in forecasts])
    error = np.abs(np.log10(np.maximum(points, 10) / np.maximum(jobs.wait_s, 10))).mean()
    return error, coverage(stated, jobs.wait_s).mean(axis=0)


@pytest.mark.data
@pytest.mark.parametrize(
    ("make", "expected"), [(LastWait, 0.94), (MedianWait, 0.90), (MeanWait, 1.33), (Regression, 0.83)]
)
def test_errors_and_coverage_on_a_real_log(data, make, expected):
    """All jobs of KTH-SP2: simple estimators have the published errors, and quantiles cover what they say."""
    from asa.history import read_history

    jobs = read_history(data / "swf" / "KTH-SP2-1996-2-unfiltered.swf.gz")
    error, covered = replayed(make(), jobs)
    assert error == pytest.approx(expected, abs=0.02)
    assert covered == pytest.approx(LEVELS, abs=0.02)
