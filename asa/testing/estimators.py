"""The contract of `asa.waits.WaitEstimator`."""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from asa.core.documents import read_json
from asa.errors import InputError
from asa.estimators.joint import plans_together, together
from asa.waits import (
    LEVELS,
    JobAhead,
    QueuedJob,
    Surroundings,
    WaitEstimator,
    WaitForecast,
    WaitObservation,
    at_least,
    at_most,
    exactly,
)

_Make = Callable[[Surroundings], WaitEstimator]
_FromState = Callable[[Mapping[str, Any]], WaitEstimator]

_KINDS = [(1, 600.0), (112, 3600.0), (28, 86_400.0), (640, 7200.0)]
_WAITS_S = [0.0, 30.0, 500.0, 4.0, 42_000.0, 500.0, 1200.0, 7.0, 90.0, 250_000.0, 500.0]
_EXTREMES = [(cores, walltime_s) for cores in (1, 1_000_000) for walltime_s in (1.0, 1e8)]


def check_estimator(make: _Make, from_state: _FromState, *, draws: bool = False, separates: bool = True) -> None:
    """Check that an estimator of a site's waits fulfils the contract.

    Parameters
    ----------
    make
        Makes a fresh estimator.
    from_state
        Makes an estimator that continues from what another's `state` returned.
    draws
        Whether `predict` is random, so that two calls may differ (Algorithm 1).
    separates
        Whether its predictions for kinds of jobs with very different waits must be very different.

    Raises
    ------
    AssertionError
        The estimator violates the contract; the message says what was expected.

    Notes
    -----
    Some thousand calls: less than a second for an estimator that takes 100 microseconds a call.
    """
    _says_something_at_first(make(Surroundings()))
    _says_something_at_first(make(Surroundings(seed=3, machine_cores=240)))
    _is_its_seed(make)
    if not draws:
        _predicts_without_traces(make)
    _continues_from_its_state(make, from_state)
    _shares_nothing_with_its_state(make, from_state)
    if not draws:
        _judges_together(make)
    _answers_in_any_order(make)
    _knows_its_tickets(make(Surroundings(seed=6)))
    if not draws:
        _forgets_who_is_out_of_sight(make)
    _takes_censored(make(Surroundings(seed=7)))
    _learns_from_censored(make)
    _bears_extremes(make(Surroundings(seed=8)))
    _learns_a_steady_wait(make)
    if separates:
        _keeps_kinds_apart(make(Surroundings(seed=10)))


def _job(place: int, submit_s: float) -> QueuedJob:
    cores, walltime_s = _KINDS[place % len(_KINDS)]
    return QueuedJob(submit_s, cores, walltime_s, user=f"user{place % 3}", system="site", partition="batch")


def _sane(forecast: WaitForecast, when: str) -> WaitForecast:
    quantiles = forecast.quantiles_s
    assert isinstance(forecast, WaitForecast), f"{when}: a forecast is a WaitForecast"
    assert isinstance(quantiles, tuple), f"{when}: quantiles are a tuple: they cannot be changed afterwards"
    assert len(quantiles) == len(LEVELS), f"{when}: there is one quantile a level"
    assert all(math.isfinite(q) and q >= 0 for q in quantiles), f"{when}: finite waits, none negative: {quantiles}"
    assert all(a <= b for a, b in itertools.pairwise(quantiles)), f"{when}: quantiles ascend: {quantiles}"
    assert math.isfinite(forecast.wait_s), f"{when}: the predicted wait is finite"
    assert forecast.wait_s >= 0, f"{when}: the predicted wait is not negative"
    plain = all(type(number) is float for number in (*quantiles, forecast.wait_s))
    assert plain, f"{when}: waits are Python's own floats, for JSON: {forecast}"
    assert quantiles[0] <= forecast.at(0.5) <= quantiles[-1], f"{when}: p50 is between p10 and p90"
    return forecast


def _events(jobs: int, begin_s: float = 1e6) -> list[tuple[float, bool, int]]:
    """Return submissions and starts in order of time; several jobs always wait, and they start in any order."""
    submits = [(begin_s + 400.0 * (place // 2), False, place) for place in range(jobs)]
    starts = [(time + _WAITS_S[place % len(_WAITS_S)], True, place) for time, _, place in submits]
    return sorted(submits + starts)


class _Play:
    """Plays parts of one small trace, and can be interrupted while jobs wait."""

    def __init__(self, estimator: WaitEstimator) -> None:
        self.estimator = estimator
        self.tickets: dict[int, int] = {}

    def on(self, estimator: WaitEstimator) -> _Play:
        """Continue with another estimator in the same state."""
        other = _Play(estimator)
        other.tickets = dict(self.tickets)
        return other

    def through(self, events: Iterable[tuple[float, bool, int]], *, asking: int = 1) -> list[WaitForecast]:
        forecasts = []
        for time, started, place in events:
            if started:
                ticket = self.tickets.pop(place)
                self.estimator.observe(ticket, exactly(_WAITS_S[place % len(_WAITS_S)]))
                self.estimator.ended(ticket, 60.0)
                continue
            job = _job(place, time)
            for other in range(asking - 1):
                self.estimator.predict(_job(place + other, time))
            forecasts.append(_sane(self.estimator.predict(job), f"job {place} of a small trace"))
            # every fifth job is submitted without a forecast
            self.tickets[place] = self.estimator.submitted(job, forecasts[-1] if place % 5 else None)
        return forecasts


def _says_something_at_first(estimator: WaitEstimator) -> None:
    assert isinstance(estimator, WaitEstimator), "it has the methods of a WaitEstimator"
    forecast = _sane(estimator.predict(_job(0, 0.0)), "the first prediction, before any observation")
    assert forecast.at(0.5) < 1e7, "the first prediction is no absurdly long wait"
    estimator.submitted(_job(0, 0.0), forecast)
    _sane(estimator.predict(_job(1, 0.0)), "while the first job waits")


def _is_its_seed(make: _Make) -> None:
    one, other = (_Play(make(Surroundings(seed=3))).through(_events(60)) for _ in range(2))
    assert one == other, "the same seed and the same calls give the same forecasts"


def _predicts_without_traces(make: _Make) -> None:
    estimator = make(Surroundings(seed=4))
    play = _Play(estimator)
    play.through(_events(40)[:60])
    job = _job(1, 2e6)
    assert estimator.predict(job) == estimator.predict(job), "predicting twice gives the same forecast"
    once = _Play(make(Surroundings(seed=4))).through(_events(60))
    often = _Play(make(Surroundings(seed=4))).through(_events(60), asking=4)
    assert once == often, "predicting changes nothing: further questions do not change later forecasts"


def _continues_from_its_state(make: _Make, from_state: _FromState) -> None:
    events = _events(80)
    for cut in (0, 3, 60, 110):
        original = _Play(make(Surroundings(seed=5, machine_cores=1000)))
        original.through(events[:cut])
        state = read_json(json.dumps(original.estimator.state(), allow_nan=False))
        kept = copy.deepcopy(state)
        restored = original.on(from_state(state))
        assert restored.estimator.state() == original.estimator.state(), f"a state survives JSON, {cut} events on"
        same = restored.through(events[cut:]) == original.through(events[cut:])
        assert same, f"an estimator made from a state continues identically, jobs waiting: {len(restored.tickets)}"
        assert restored.estimator.state() == original.estimator.state(), "and ends in the same state"
        assert state == kept, "making an estimator from a state, and using it, does not change the state"


def _wreck(value: Any) -> None:
    """Change everything in plain data that can be changed."""
    children = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    for child in children:
        _wreck(child)
    if isinstance(value, (dict, list)):
        value.clear()


def _shares_nothing_with_its_state(make: _Make, from_state: _FromState) -> None:
    play = _Play(make(Surroundings(seed=5)))
    play.through(_events(60)[:80])
    before = copy.deepcopy(play.estimator.state())
    _wreck(play.estimator.state())
    assert play.estimator.state() == before, "a state handed out is not the estimator's own"
    given = copy.deepcopy(before)
    restored = from_state(given)
    _wreck(given)
    assert restored.state() == before, "an estimator does not keep the state that it was made from"


def _judges_together(make: _Make) -> None:
    """Check that requests are judged in the same number of futures each, and that judging has no side effects."""
    asked, unasked = (make(Surroundings(seed=4)) for _ in range(2))
    for estimator in (asked, unasked):
        for index in range(60):
            job = _job(index, 600.0 * index)
            estimator.observe(
                estimator.submitted(job, estimator.predict(job)), exactly(_WAITS_S[index % len(_WAITS_S)])
            )
    jobs = [QueuedJob(1e6, cores, walltime_s, "me", "site", "batch") for cores, walltime_s in _KINDS]
    joint = together(asked, jobs, 16)
    assert joint.waits_s.shape[1] == len(jobs), "each request has samples"
    assert len(joint.waits_s) <= 16, "no more futures than were asked for"
    assert all(math.isfinite(wait) and wait >= 0 for wait in joint.waits_s.ravel().tolist()), "waits are finite"
    assert (together(asked, jobs, 16).waits_s == joint.waits_s).all(), "asking twice is answered alike"
    plan = [JobAhead(job, 1e6, np.full(16, 50.0), (index - 1,) if index else ()) for index, job in enumerate(jobs[:3])]
    chain, first = plans_together(asked, [plan, plan[:1]], 16)
    assert (first == chain[:, :1]).all(), "what comes later in a plan changes nothing for its first job"
    assert (chain[:, 1:] >= chain[:, :-1] + 50.0).all(), "a job of a plan comes after the end of those it follows"
    for index in range(8):
        job = _job(index, 2e6 + index)
        assert asked.predict(job) == unasked.predict(job), "being asked changes nothing"
        for estimator in (asked, unasked):
            estimator.observe(estimator.submitted(job, estimator.predict(job)), exactly(50.0))


def _answers_in_any_order(make: _Make) -> None:
    waits = {place: 10.0 * place for place in range(50)}
    for order in (list(waits), list(reversed(waits)), sorted(waits, key=lambda place: place * 7 % 50)):
        estimator = make(Surroundings(seed=5))
        tickets = {}
        for place in waits:
            job = _job(place, float(place))
            tickets[place] = estimator.submitted(job, estimator.predict(job))
        assert len(set(tickets.values())) == len(tickets), "each waiting job has a ticket of its own"
        assert all(isinstance(ticket, int) for ticket in tickets.values()), "a ticket is an int"
        for place in order:
            estimator.observe(tickets[place], exactly(waits[place]))
            _sane(estimator.predict(_job(place, 1000.0)), "while jobs are answered in any order")


def _refuses(call: Callable[[], None], why: str) -> None:
    try:
        call()
    except InputError:
        return
    raise AssertionError(why)


def _knows_its_tickets(estimator: WaitEstimator) -> None:
    _refuses(lambda: estimator.observe(12345, exactly(1.0)), "a ticket that was never given is an InputError")
    ticket = estimator.submitted(_job(0, 0.0))
    later = estimator.submitted(_job(0, 5.0))
    estimator.observe(ticket, exactly(60.0))
    _refuses(lambda: estimator.observe(ticket, exactly(60.0)), "a ticket is answered once; then it is an InputError")
    estimator.ended(ticket, 10.0)
    estimator.observe(later, exactly(60.0))
    assert estimator.submitted(_job(0, 9.0)) not in {ticket, later}, "tickets are not given again"


def _forgets_who_is_out_of_sight(make: _Make) -> None:
    estimator = make(Surroundings())
    _Play(estimator).through(_events(40))
    asked = _job(7, 2e7)
    before = estimator.predict(asked).quantiles_s
    for _ in range(50):
        estimator.withdrawn(estimator.submitted(_job(7, 2e7)))
    estimator.withdrawn(10**9)
    after = estimator.predict(asked).quantiles_s
    # the submission itself may count a little
    moved = max(abs(math.log(one / other)) for one, other in zip(before, after, strict=True) if min(one, other) > 0)
    assert moved < 0.01, f"who is withdrawn taught nothing and waits no longer: {before}, then {after}"
    estimator.observe(estimator.submitted(asked), exactly(5.0))


def _takes_censored(estimator: WaitEstimator) -> None:
    mixed: list[WaitObservation] = [exactly(300.0), at_most(900.0), at_least(60.0), at_least(1e6), at_most(0.0)]
    for index, observation in enumerate([*mixed, at_least(0.0), at_most(1e9), at_least(1e9), exactly(7)] * 4):
        job = _job(index, 100.0 * index)
        forecast = _sane(estimator.predict(job), "after censored waits")
        estimator.observe(estimator.submitted(job, forecast), observation)


def _learns_from_censored(make: _Make) -> None:
    """Check that a censored observation without information does not count as a wait."""
    for censored in (at_most(1e8), at_least(0.0)):
        estimator = make(Surroundings(seed=7))
        for index in range(400):
            job = _job(0, 1000.0 * index)
            observation = censored if index % 2 else exactly(300.0)
            estimator.observe(estimator.submitted(job, estimator.predict(job)), observation)
        middle = estimator.predict(_job(0, 400_000.0)).at(0.5)
        assert 100.0 <= middle <= 900.0, f"what says nothing is not learned as a wait: {censored}, p50 {middle}"


def _bears_extremes(estimator: WaitEstimator) -> None:
    submit_s = 0.0
    for round_, (cores, walltime_s) in enumerate(_EXTREMES * 6):
        submit_s += -5.0 if round_ % 3 == 0 else 1e5  # clocks of several hosts differ a little
        job = QueuedJob(submit_s, cores, walltime_s)
        forecast = _sane(estimator.predict(job), f"{cores} cores for {walltime_s} s")
        for wait_s in (0.0, 1e9, 1e9, 1e-9)[: 1 + round_ % 4]:
            estimator.observe(estimator.submitted(job, forecast), exactly(wait_s))
            _sane(estimator.predict(job), f"after a wait of {wait_s} s")
    for _ in range(200):
        estimator.observe(estimator.submitted(job, estimator.predict(job)), exactly(1e9))
    _sane(estimator.predict(job), "after many waits of 1e9 s")
    _sane(estimator.predict(QueuedJob(1e12, 3, 1e5)), "in the far future")


def _learns_a_steady_wait(make: _Make) -> None:
    for wait_s in (40.0, 20_000.0):
        estimator = make(Surroundings(seed=9))
        for index in range(500):
            job = _job(1, 30_000.0 * index)
            estimator.observe(estimator.submitted(job, estimator.predict(job)), exactly(wait_s))
        middle = estimator.predict(_job(1, 1.5e7)).at(0.5)
        assert wait_s / 2 <= middle <= 2 * wait_s, (
            f"500 waits of {wait_s} s are learned within a factor of two: {middle}"
        )


def _keeps_kinds_apart(estimator: WaitEstimator) -> None:
    waits = {0: 60.0, 1: 20_000.0}
    for place in range(1000):
        job = _job(place % 2, 30_000.0 * place)
        estimator.observe(estimator.submitted(job, estimator.predict(job)), exactly(waits[place % 2]))
    for place, wait_s in waits.items():
        middle = estimator.predict(_job(place, 3e7)).at(0.5)
        assert wait_s / 4 <= middle <= 4 * wait_s, f"kinds of jobs are kept apart: {middle} for {wait_s}"
