"""asa's default estimator: exponential weights, given the visible facts of the queue."""

import copy
import importlib
import json
import math
import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.errors import InputError, StateError
from asa.estimators import contextual, replay
from asa.estimators.calibration import coverage
from asa.estimators.contextual import PARTS, ContextualAsa, contextual_asa
from asa.estimators.packing import packed, unpacked
from asa.testing import check_estimator
from asa.waits import LEVELS, QueuedJob, Surroundings, at_least, at_most, exactly

KINDS = [(1, 600.0), (16, 7200.0), (112, 3600.0), (300, 86_400.0)]


def random_jobs(count, seed=0, *, users=5, gap_s=300.0):
    """Draw jobs of a few kinds and users, and waits that depend on both, and drift."""
    rng = np.random.Generator(np.random.PCG64(seed))
    now, jobs, waits = 1e6, [], []
    level = rng.normal(2.5, 0.5, size=(users, len(KINDS)))
    for _ in range(count):
        now += rng.exponential(gap_s)
        user, kind = int(rng.integers(users)), int(rng.integers(len(KINDS)))
        level[user, kind] += rng.normal(0, 0.05)
        cores, walltime_s = KINDS[kind]
        jobs.append(QueuedJob(now, cores, walltime_s, f"u{user}"))
        waits.append(float(np.floor(10 ** rng.normal(level[user, kind], 0.4))))
    return jobs, waits


def errors(forecasts, waits):
    predicted = np.array([forecast.wait_s for forecast in forecasts])
    return np.abs(np.log10(np.maximum(predicted, 10.0) / np.maximum(waits, 10.0)))


def test_it_keeps_the_contract():
    check_estimator(contextual_asa, ContextualAsa.from_state)


def test_with_opinions_and_facts_from_outside_it_listens_to_who_is_right():
    jobs, waits = random_jobs(1500)
    told, deaf = ContextualAsa(opinions=2, facts=1), ContextualAsa()
    rng = np.random.Generator(np.random.PCG64(3))
    predicted = []
    for job, wait in zip(jobs, waits, strict=True):
        outside = (wait * float(np.exp(rng.normal(0, 0.1))), float(10 ** rng.uniform(1, 5)), float(rng.normal()))
        forecast = told.predict(job, outside)
        predicted.append(forecast)
        told.observe(told.submitted(job, forecast, outside), exactly(wait))
    alone = replay(deaf, jobs, [exactly(wait) for wait in waits])
    assert errors(predicted[500:], waits[500:]).mean() < 0.5 * errors(alone[500:], waits[500:]).mean()


def plain_contextual():
    """Import the estimator as it is where numba is not installed."""
    from asa import estimators

    package = types.ModuleType("asa.plain_estimators")
    package.__path__ = list(estimators.__path__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "numba", None)
        for name in ("asa.core.compiled", "asa.estimators.contextual_kernel", "asa.estimators.contextual"):
            patch.delitem(sys.modules, name, raising=False)
        module = importlib.import_module("asa.estimators.contextual")
    estimators.contextual = contextual
    return module


def test_without_numba_every_number_is_the_same():
    plain = plain_contextual()
    assert plain is not contextual
    jobs, waits = random_jobs(150)
    seen = [exactly(w) if i % 7 else (at_most(w) if i % 2 else at_least(w)) for i, w in enumerate(waits)]
    one, other = ContextualAsa(seed=4), plain.ContextualAsa(seed=4)
    assert replay(one, jobs, seen) == replay(other, jobs, seen)
    assert one.state() == other.state()


def test_a_copy_goes_its_own_way():
    """Arrays that compiled code changes are copied, too."""
    jobs, waits = random_jobs(60)
    one = ContextualAsa(seed=4)
    replay(one, jobs[:40], [exactly(wait) for wait in waits[:40]])
    before = one.state()
    other = copy.deepcopy(one)
    forecasts = replay(other, jobs[40:], [exactly(wait) for wait in waits[40:]])
    assert one.state() == before
    assert replay(one, jobs[40:], [exactly(wait) for wait in waits[40:]]) == forecasts
    assert one.state() == other.state()


def log_losses(estimator, jobs, waits):
    """Return the log loss of the mixture and of its two parts; each wait is known before the next job is submitted."""
    from asa.estimators import contextual_kernel as k

    losses = []
    for job, wait in zip(jobs, waits, strict=True):
        forecast = estimator.predict(job)
        slot = estimator._free[-1]
        parts = estimator._waiting_as_kept(estimator._slots, estimator._tags)["parts"]
        place = int((math.log10(max(wait, 10.0)) - k.FLOOR) / k.STEP + 0.5)
        losses.append([-math.log(p[place]) for p in (estimator._parts_of_model.scratch[0], *parts[slot])])
        estimator.observe(estimator.submitted(job, forecast), exactly(wait))
    return np.array(losses)


@given(seed=st.integers(0, 10_000), steady=st.booleans())
@settings(max_examples=15)
def test_the_mixture_is_never_much_worse_than_the_better_of_its_parts(seed, steady):
    """Bayes' rule: at any time the regret is at most ln 2 and what the fixed share costs."""
    jobs, waits = random_jobs(150, seed)
    if steady:
        waits = [waits[0]] * len(waits)
    losses = np.cumsum(log_losses(ContextualAsa(seed=seed), jobs, waits), axis=0)
    rounds = np.arange(1, len(jobs) + 1)
    allowed = math.log(2) - rounds * math.log(1 - contextual._SHARE) + 1e-6
    assert np.all(losses[:, 0] - losses[:, 1:].min(axis=1) <= allowed)


def test_a_geometry_alone_follows_a_change_within_a_few_waits():
    """After a thousand waits of one kind as quickly as after ten."""
    from asa.estimators import contextual_kernel as k

    estimator = ContextualAsa(without=PARTS)
    for before in (10, 1000):
        for wait in (*[100.0] * before, *[10_000.0] * 12):
            job = QueuedJob(0.0, 16, 3600.0)
            estimator.observe(estimator.submitted(job), exactly(wait))
        alone = estimator._own[estimator._own_rows[("geometry", "", "", 4, 24)], k.ALONE]
        near = abs(np.arange(k.K) - int(2 / k.STEP * 1.5)) < 4
        assert alone[near].sum() > 0.8
        assert alone.sum() == pytest.approx(1.0)


def test_stated_quantiles_hold_what_they_say_after_a_change_too():
    jobs, waits = random_jobs(8000, 2, gap_s=5000.0)
    waits = [wait * (1 if i < 4000 else 10) for i, wait in enumerate(waits)]
    estimator = ContextualAsa()
    forecasts = replay(estimator, jobs, [exactly(wait) for wait in waits])
    shares = coverage([forecast.quantiles_s for forecast in forecasts], waits)
    for part in (slice(500, 4000), slice(4500, 8000)):
        assert shares[part].mean(axis=0) == pytest.approx(LEVELS, abs=0.03)


def test_each_user_is_believed_to_wait_as_that_user_does():
    estimator = ContextualAsa()
    now = 0.0
    for turn in range(400):
        for user, wait in (("quick", 20.0), ("slow", 20_000.0)):
            now += 60.0
            job = QueuedJob(now, 16, 3600.0, user)
            forecast = estimator.predict(job)
            estimator.observe(estimator.submitted(job, forecast), exactly(wait))
            if turn > 300:
                assert 0.5 < forecast.wait_s / wait < 2, "two users' jobs of one geometry are told apart"


def test_a_geometry_that_was_never_seen_is_not_predicted_from_nothing():
    jobs, _ = random_jobs(600)
    estimator = ContextualAsa()
    replay(estimator, jobs, [exactly(5000.0)] * len(jobs))
    forecast = estimator.predict(QueuedJob(jobs[-1].submit_s + 1e5, 64, 1800.0, "new"))
    assert 2500 < forecast.wait_s < 10_000


def test_a_job_that_waits_tells_those_that_ask_for_no_less():
    """Where jobs start in order of submission, a job waits at least as long as an equal one that waits already."""
    rng = np.random.Generator(np.random.PCG64(5))
    estimator = ContextualAsa()
    now, free, waiting = 0.0, 0.0, []
    old = []
    for _ in range(3000):
        now += float(rng.exponential(100.0))
        while waiting and waiting[0][0] <= now:
            start, ticket, job = waiting.pop(0)
            estimator.observe(ticket, exactly(start - job.submit_s))
        job = QueuedJob(now, 16, 3600.0)
        forecast = estimator.predict(job)
        free = max(free, now) + float(rng.exponential(97.0))
        waiting.append((free, estimator.submitted(job, forecast), job))
        if len(waiting) > 1:
            old.append(forecast.wait_s >= 0.5 * (now - waiting[0][2].submit_s))
    assert np.mean(old[1000:]) > 0.9


@pytest.mark.parametrize(("bound", "low", "high"), [(at_least(5000.0), 3000.0, np.inf), (at_most(50.0), 0.0, 60.0)])
def test_bounds_move_belief_to_where_the_wait_may_be(bound, low, high):
    estimator = ContextualAsa()
    for hour in range(300):
        job = QueuedJob(3600.0 * hour, 16, 3600.0)
        estimator.observe(estimator.submitted(job), bound)
    assert low <= estimator.predict(job).wait_s <= high
    assert estimator.observations == 0, "a censored wait is no wait"


def test_a_bound_that_says_nothing_teaches_nothing():
    jobs, waits = random_jobs(100)
    estimator = ContextualAsa()
    replay(estimator, jobs, [exactly(wait) for wait in waits])
    later = QueuedJob(jobs[-1].submit_s + 1e6, 16, 7200.0, "u1")
    estimator.observe(estimator.submitted(later), at_least(0.0))
    before, weights = estimator.predict(later), estimator._parts_of_model.net.copy()
    for _ in range(2000):
        estimator.observe(estimator.submitted(later), at_least(0.0))
    assert estimator.predict(later) == before
    assert np.array_equal(estimator._parts_of_model.net, weights)


def test_who_never_sees_who_waits_does_not_guess_it():
    """The times at which other jobs were submitted do not tell it, either."""
    jobs, waits = random_jobs(300)
    estimator = ContextualAsa(without=["waiting"])
    replay(estimator, jobs, [exactly(wait) for wait in waits])
    later = QueuedJob(jobs[-1].submit_s + 1e6, 16, 7200.0, "u1")
    before = estimator.predict(later)
    for _ in range(20):
        estimator.submitted(later)
    assert estimator.predict(later).quantiles_s == before.quantiles_s


def test_jobs_of_every_width_get_quantiles_that_hold():
    """Also wide jobs, of which there are few."""
    rng = np.random.Generator(np.random.PCG64(1))
    jobs, waits, now = [], [], 0.0
    for _ in range(12_000):
        now += 1000.0
        wide = rng.random() < 0.1
        jobs.append(QueuedJob(now, 512 if wide else 4, 3600.0))
        waits.append(float(10 ** rng.normal(3.0, 0.9 if wide else 0.3)))
    forecasts = replay(ContextualAsa(), jobs, [exactly(wait) for wait in waits])
    late = [i for i, job in enumerate(jobs) if job.cores == 512 and i > 4000]
    shares = coverage([forecasts[i].quantiles_s for i in late], [waits[i] for i in late]).mean(axis=0)
    assert shares == pytest.approx(LEVELS, abs=0.05)


def burst_errors(estimator, seed):
    """Return errors, in decades, for bursts of equal jobs of one user, of which one starts each minute."""
    rng = np.random.Generator(np.random.PCG64(seed))
    now, off = 0.0, []
    for burst in range(60):
        waits = 60.0 * np.arange(1, rng.integers(5, 100))
        tickets = []
        for wait in waits:
            job = QueuedJob(now, 16, 3600.0, user="ann")
            forecast = estimator.predict(job)
            tickets.append(estimator.submitted(job, forecast))
            if burst >= 30:
                off.append(abs(math.log10(max(forecast.wait_s, 10.0) / wait)))
        for ticket, wait in zip(tickets, waits.tolist(), strict=True):
            estimator.observe(ticket, exactly(wait))
        now += waits[-1] + 3600.0
    return np.mean(off)


@pytest.mark.parametrize("seed", [3, 4])
def test_the_hundredth_job_of_a_burst_waits_longer_than_the_first(seed):
    """All are submitted at once: only how many wait, and at which rate they start, tells them apart."""
    assert burst_errors(ContextualAsa(), seed) < 0.2
    assert burst_errors(ContextualAsa(without=("waiting",)), seed) > 0.3


def test_a_burst_of_alike_jobs_does_not_drown_the_others():
    """Jobs that were all submitted before one of them started are not as many independent observations."""
    jobs, waits = random_jobs(1500, 7, users=1, gap_s=4000.0)
    plain, forecasts = ContextualAsa(), []
    rng = np.random.Generator(np.random.PCG64(2))
    for place, (job, wait) in enumerate(zip(jobs, waits, strict=True)):
        forecast = plain.predict(job)
        forecasts.append(forecast)
        plain.observe(plain.submitted(job, forecast), exactly(wait))
        if place % 100 == 50:
            odd = float(10 ** rng.uniform(1, 6))
            tickets = [plain.submitted(QueuedJob(job.submit_s, 112, 3600.0, "burst")) for _ in range(300)]
            for ticket in tickets:
                plain.observe(ticket, exactly(odd))
    calm = replay(ContextualAsa(), jobs, [exactly(wait) for wait in waits])
    others = [i for i, job in enumerate(jobs) if job.cores != 112 and i > 300]
    waits = np.array(waits)[others]
    disturbed = errors([forecasts[i] for i in others], waits).mean()
    assert disturbed < 1.2 * errors([calm[i] for i in others], waits).mean()


@pytest.mark.parametrize("outside", [(), (1.0,), (1.0, math.nan), (math.inf, 1.0)])
def test_opinions_and_facts_must_be_what_was_promised(outside):
    estimator = ContextualAsa(opinions=1, facts=1)
    with pytest.raises(InputError, match="promised"):
        estimator.predict(QueuedJob(0.0, 1, 60.0), outside)


def test_every_part_can_be_left_out():
    jobs, waits = random_jobs(1200, 3)
    whole = errors(replay(ContextualAsa(), jobs, [exactly(w) for w in waits]), waits)[300:].mean()
    bare = errors(replay(ContextualAsa(without=PARTS), jobs, [exactly(w) for w in waits]), waits)[300:].mean()
    assert whole < bare
    for part in PARTS:
        estimator = ContextualAsa(without=[part])
        assert np.isfinite(errors(replay(estimator, jobs, [exactly(w) for w in waits]), waits)).all()
        assert ContextualAsa.from_state(json.loads(json.dumps(estimator.state()))).state() == estimator.state()
    with pytest.raises(InputError, match="no parts"):
        ContextualAsa(without=["wings"])


@pytest.mark.full
def test_ten_thousand_geometries_fit_into_fifty_megabytes():
    import tracemalloc

    tracemalloc.start()
    estimator = ContextualAsa()
    for number in range(10_000):
        walltime_s = 100.0 * 1.5 ** (number // 20 % 25)
        job = QueuedJob(60.0 * number, 2 ** (number % 20), walltime_s, "u", "", f"p{number // 500}")
        estimator.observe(estimator.submitted(job, estimator.predict(job)), exactly(100.0))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(estimator._own_rows) > 10_000
    assert held < 50e6


def rewrite(state, name, change):
    array = unpacked(state["arrays"][name])
    change(array)
    state["arrays"][name] = packed(array)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("arrays"),
        lambda state: state["arrays"].pop("net"),
        lambda state: state["arrays"]["net"].update(data="AAAA"),
        lambda state: state["arrays"]["own"].update(shape=[1, 3, 64]),
        lambda state: state["settings"].update(without=["wings"]),
        lambda state: state["settings"].update(speed=3),
        lambda state: state.update(version=99),
        lambda state: state["waiting"].append([1]),
        lambda state: rewrite(state, "scalars", lambda a: a.__setitem__(0, 1e6)),
        lambda state: rewrite(state, "links", lambda a: a.__setitem__(slice(None), 10**6)),
        lambda state: rewrite(state, "stats", lambda a: a.__setitem__((slice(None), 6), 1e6)),
        lambda state: rewrite(state, "past", lambda a: a.__setitem__((0, 2), 10**6)),
        lambda state: rewrite(state, "past", lambda a: a.__setitem__((0, 0), 64)),
        lambda state: rewrite(state, "past_e", lambda a: a.__setitem__((0, 0), 100)),
        lambda state: rewrite(state, "past_x", lambda a: a.__setitem__((0, 0), math.inf)),
        lambda state: rewrite(state, "scalars", lambda a: a.__setitem__(5, 7.0)),
        lambda state: rewrite(state, "scalars", lambda a: a.__setitem__(6, 0.0)),
        lambda state: rewrite(state, "stats", lambda a: a.__setitem__((slice(None), 11), -5.0)),
        lambda state: state["arrays"].update(past_e=packed(np.zeros((1, 22), np.int8))),
        lambda state: rewrite(state, "named", lambda a: a.__setitem__(slice(None), 900)),
        lambda state: rewrite(state, "active", lambda a: a.__setitem__(slice(None), -5)),
        lambda state: rewrite(state, "net", lambda a: a.__setitem__((0, 0, 0), math.nan)),
        lambda state: state["arrays"].update(net=packed(ContextualAsa()._parts_of_model.net.astype(np.float32))),
    ],
)
def test_a_state_that_was_tampered_with_is_refused(spoil):
    jobs, waits = random_jobs(30)
    estimator = ContextualAsa()
    replay(estimator, jobs, [exactly(wait) for wait in waits])
    for job in jobs[-3:]:
        estimator.submitted(job)
    state = json.loads(json.dumps(estimator.state()))
    spoil(state)
    with pytest.raises(StateError):
        ContextualAsa.from_state(state)


def test_surroundings_give_the_seed():
    assert contextual_asa(Surroundings(seed=5)).state() == ContextualAsa(seed=5).state()
    assert contextual_asa(Surroundings(seed=5)).state() != ContextualAsa(seed=6).state()


def test_a_negative_seed_is_refused():
    with pytest.raises(InputError, match="seed"):
        ContextualAsa(seed=-1)


def test_who_waits_in_another_partition_is_not_ahead_of_this_job():
    from asa.estimators import contextual_kernel as k

    estimator = ContextualAsa()
    estimator.submitted(QueuedJob(0.0, 1, 600.0, partition="other"))
    estimator.predict(QueuedJob(5000.0, 16, 3600.0, partition="this"))
    assert estimator.seen[k.ALIKE] == -2.0, "nobody of this partition waits"
    estimator.submitted(QueuedJob(5000.0, 1, 600.0, partition="this"))
    estimator.predict(QueuedJob(9000.0, 16, 3600.0, partition="this"))
    assert estimator.seen[k.ALIKE] == pytest.approx((math.log10(4000) - 3) / 1.5)


def test_quantiles_come_back_after_very_many_misses():
    """After a long backlog quantiles are corrected back, but within bounds."""
    rng = np.random.Generator(np.random.PCG64(3))
    estimator, now = ContextualAsa(), 0.0

    def live(count, log_wait, lag):
        nonlocal now
        stated, waiting = [], []
        for _ in range(count):
            now += 100.0
            job = QueuedJob(now, 16, 3600.0)
            forecast = estimator.predict(job)
            stated.append(forecast.quantiles_s[8])
            waiting.append((estimator.submitted(job, forecast), float(10 ** rng.normal(log_wait, 0.2))))
            if len(waiting) > lag:
                ticket, wait = waiting.pop(0)
                estimator.observe(ticket, exactly(wait))
        for ticket, wait in waiting:
            estimator.observe(ticket, exactly(wait))
        return stated

    calm = np.median(live(2000, 2.0, 0)[-500:])
    live(1500, 5.0, 1500)  # all of them were foreseen to be short
    after = live(5000, 2.0, 0)
    assert np.median(after[-500:]) < 3 * calm


class Seer:
    """An adviser with two forecasts, of which the first is right."""

    def __init__(self):
        self.truth, self.told, self.tickets = {}, [], 0

    def opinions(self, job):
        return (self.truth[job.submit_s], 77_777.0)

    def facts(self, job):
        return (0.0, 1e9)

    def futures(self, jobs, samples):
        return np.full((samples, len(jobs)), 77_777.0)

    def submitted(self, job, forecast=None):
        self.tickets += 1
        return self.tickets

    def observe(self, ticket, observation):
        self.told.append(("observe", ticket, observation))

    def ended(self, ticket, run_s):
        self.told.append(("ended", ticket, run_s))

    def withdrawn(self, ticket):
        self.told.append(("withdrawn", ticket))

    def state(self):
        return {}


def test_the_queue_aware_listens_to_its_adviser_and_hands_on_what_it_hears():
    from asa.estimators.queue_aware import QueueAwareAsa

    rng = np.random.Generator(np.random.PCG64(1))
    seer = Seer()
    estimator = QueueAwareAsa(seer, ContextualAsa(opinions=2, facts=2))
    off = []
    for number in range(1500):
        wait = float(10 ** rng.uniform(1.5, 5.0))
        job = QueuedJob(1000.0 * number, 16, 3600.0)
        seer.truth[job.submit_s] = wait
        forecast = estimator.predict(job)
        off.append(abs(math.log10(forecast.wait_s / wait)))
        estimator.observe(estimator.submitted(job, forecast), exactly(wait))
    assert np.mean(off[1000:]) < 0.15, "waits that nothing else tells"
    seer.told.clear()
    first, second = (estimator.submitted(QueuedJob(0.0, 16, 3600.0)) for _ in range(2))
    estimator.observe(first, at_most(5.0))
    estimator.ended(first, 60.0)
    estimator.withdrawn(second)
    assert seer.told == [("observe", first, at_most(5.0)), ("ended", first, 60.0), ("withdrawn", second)]
    with pytest.raises(InputError, match="no job waits"):
        estimator.observe(second, exactly(1.0))
    assert not estimator.learner._waiting


@pytest.mark.data
@pytest.mark.parametrize("name", ["KTH-SP2-1996-2-unfiltered", "HPC2N-2002-2.2-cln", "theta_2022"])
def test_the_begin_of_a_real_log_is_covered_as_stated(data, name):
    """Even if the first jobs are unlike those that follow."""
    from asa.history import read_history
    from asa.studies.accuracy.prequential import prequential

    history = read_history(data / "swf" / f"{name}.swf.gz").first(6000)
    shares = coverage(prequential(history, contextual_asa).quantiles_s, history.wait_s)[history.started].mean(axis=0)
    assert shares[4] == pytest.approx(0.5, abs=0.03)
    assert shares[8] == pytest.approx(0.9, abs=0.015)
