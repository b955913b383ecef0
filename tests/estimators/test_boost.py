"""Boosted trees give a second forecast, which is blended with the estimator's outside of it."""

import itertools
import json
import pickle
import sys
import threading
import time

import numpy as np
import pytest

from asa.cli.evaluate import evaluate
from asa.cli.lists import lists
from asa.core import plugins
from asa.core.documents import read_json
from asa.errors import MissingExtraError, StateError
from asa.estimators import boost, replay, trees
from asa.estimators.boost import BoostedAsa, boosted_asa, boosted_queue_asa
from asa.estimators.calibration import coverage, shortfalls
from asa.estimators.contextual import contextual_asa
from asa.estimators.packing import packed, unpacked
from asa.estimators.trees import Fitting, Trees
from asa.history import read_history
from asa.studies.accuracy import installed
from asa.studies.accuracy.prequential import prequential
from asa.studies.accuracy.scores import pinball
from asa.waits import LEVELS, QueuedJob, Surroundings, at_least, exactly

lightgbm = pytest.importorskip("lightgbm")


def site(count, seed=1):
    """Make waits that depend on the hour and the walltime together, which a sum of weights cannot express."""
    rng = np.random.Generator(np.random.PCG64(seed))
    now, jobs, waits = 1e6, [], []
    for _ in range(count):
        now += rng.exponential(900.0)
        night, long = (now // 43_200) % 2 == 0, rng.random() < 0.5
        jobs.append(QueuedJob(now, int(rng.choice([1, 16, 64])), 36_000.0 if long else 1800.0, f"u{rng.integers(4)}"))
        waits.append(exactly(float(10 ** rng.normal(4.0 if night == long else 2.0, 0.2))))
    return jobs, waits


def off(forecasts, waits):
    """Return the mean error in decades."""
    truth = np.log10(np.maximum([wait.wait_s for wait in waits], 10.0))
    return float(np.abs(np.log10(np.maximum([one.wait_s for one in forecasts], 10.0)) - truth).mean())


@pytest.fixture(scope="module")
def lived():
    """Return a site's jobs and waits, and the predictions."""
    jobs, waits = site(900)
    return jobs, waits, replay(boosted_asa(Surroundings(3)), jobs, waits)


# ------------------------------------------------------------------------------- the trees


@pytest.mark.parametrize(("rows", "same"), [(2000, False), (50, False), (100, True)])
def test_trees_say_what_the_library_says(monkeypatch, rows, same):
    rng = np.random.Generator(np.random.PCG64(2))
    x = rng.standard_normal((rows, 12)).astype(np.float32)
    y = np.full(rows, 2.5) if same else np.where(x[:, 3] > 0, x[:, 1], x[:, 2] ** 2) + 3.0
    models = []
    train = lightgbm.train
    monkeypatch.setattr(lightgbm, "train", lambda *given: models.append(train(*given)) or models[-1])
    fitted = trees.fit(x, y, seed=1)
    again = Trees.from_state(read_json(json.dumps(fitted.state())), 12)
    theirs = models[0].predict(x)
    assert [fitted.predict(row) for row in x] == pytest.approx(theirs.tolist())
    assert [again.predict(row) for row in x] == [fitted.predict(row) for row in x]


def test_trees_that_lead_nowhere_are_refused():
    rng = np.random.Generator(np.random.PCG64(2))
    x = rng.standard_normal((400, 5)).astype(np.float32)
    state = trees.fit(x, x[:, 0] + x[:, 1] * x[:, 2], seed=1).state()
    for name, value in (("roots", 10**6), ("children", 0), ("children", -(10**6)), ("feature", 5), ("leaves", np.nan)):
        array = unpacked(state[name])
        array.flat[0] = value
        with pytest.raises(StateError, match="nowhere"):
            Trees.from_state({**state, name: packed(array)}, 5)
    with pytest.raises(StateError, match="no state of trees"):
        Trees.from_state({}, 5)


# ------------------------------------------------------------------------------- what it is worth


def test_it_is_nearer_where_trees_know_better(lived):
    jobs, waits, forecasts = lived
    base = replay(contextual_asa(Surroundings(3)), jobs, waits)
    assert off(forecasts[300:], waits[300:]) < 0.97 * off(base[300:], waits[300:])


def test_it_is_as_the_estimator_says_until_the_first_fit(lived):
    jobs, waits, forecasts = lived
    assert forecasts[:200] == replay(contextual_asa(Surroundings(3)), jobs, waits)[:200]
    assert forecasts[300:] != replay(contextual_asa(Surroundings(3)), jobs, waits)[300:]


def test_trees_that_are_wrong_count_for_nothing_soon(monkeypatch):
    monkeypatch.setattr(Trees, "predict", lambda _self, _numbers: 6.5)
    jobs, waits = site(900)
    estimator = boosted_asa(Surroundings(3))
    forecasts = replay(estimator, jobs, waits)
    base = replay(contextual_asa(Surroundings(3)), jobs, waits)
    assert estimator.share < 0.01
    assert off(forecasts[300:], waits[300:]) < 1.02 * off(base[300:], waits[300:])


def test_stated_quantiles_hold(lived):
    _, waits, forecasts = lived
    shares = coverage([one.quantiles_s for one in forecasts], [wait.wait_s for wait in waits]).mean(axis=0)
    assert np.abs(shares - LEVELS).max() < 0.05


@pytest.mark.data
def test_in_deep_bursts_trees_do_not_shorten_the_longest_waits(data):
    """Trees are closer than the estimator at the median, but not at p90, where an equal share would cover only 84 %."""
    history = read_history(data / "swf" / "METACENTRUM-2009-2.swf.gz").first(5000)
    truth = np.log10(np.maximum(history.wait_s, 10.0))
    lost = []
    for make in (contextual_asa, boosted_asa):
        forecasts = prequential(history, make)
        quantiles = np.log10(np.maximum(forecasts.quantiles_s, 10.0))
        lost.append(pinball(quantiles, truth)[history.started].mean())
    shares = coverage(forecasts.quantiles_s, history.wait_s)[history.started].mean(axis=0)
    assert shares[8] > 0.86
    assert lost[1] < 0.985 * lost[0]


def test_what_a_quantile_lacks_is_what_it_covered_too_little():
    stated = [0.0, 0.0, 0.0, 60.0, 60.0, 60.0, 300.0, 900.0, 3600.0]
    for wait_s in (100.0, 60.0, 5.0, 1e5):
        assert shortfalls(stated, wait_s) == pytest.approx(
            (np.array(LEVELS) - coverage([stated], [wait_s])[0]).tolist()
        )


# ------------------------------------------------------------------------------- when trees come into use


def test_nothing_is_known_before_it_happened(lived):
    """If waits differ from some time on, what was predicted before is the same."""
    jobs, waits, forecasts = lived
    cut = 700
    rng = np.random.Generator(np.random.PCG64(4))
    known = np.array([job.submit_s + wait.wait_s <= jobs[cut].submit_s for job, wait in zip(jobs, waits, strict=True)])
    later = np.flatnonzero(~known)
    drawn = rng.permutation(later)
    other = list(waits)
    for place, source in zip(later.tolist(), drawn.tolist(), strict=True):
        other[place] = exactly(max(waits[source].wait_s, jobs[cut].submit_s - jobs[place].submit_s + 1.0))
    again = replay(boosted_asa(Surroundings(3)), jobs, other)
    assert again[: cut + 1] == forecasts[: cut + 1]
    assert again[cut + 1 :] != forecasts[cut + 1 :]


def test_how_long_a_fit_takes_changes_nothing(lived, monkeypatch):
    jobs, waits, forecasts = lived
    fit, pauses = trees.fit, itertools.cycle([0.3, 0.0])

    def slowly(*given):
        time.sleep(next(pauses))
        return fit(*given)

    monkeypatch.setattr(trees, "fit", slowly)
    assert replay(boosted_asa(Surroundings(3)), jobs, waits) == forecasts


def test_no_prediction_waits_for_a_fit(monkeypatch):
    released, fit = threading.Event(), trees.fit

    def held(*given):
        assert released.wait(60)
        return fit(*given)

    monkeypatch.setattr(trees, "fit", held)
    jobs, waits = site(300)
    estimator = boosted_asa(Surroundings(3))
    for job, wait in zip(jobs[:219], waits, strict=False):
        estimator.observe(estimator.submitted(job, estimator.predict(job)), wait)
    assert isinstance(estimator._fitting, trees.Fitting)
    estimator.predict(jobs[219])  # would never end
    released.set()
    estimator.observe(estimator.submitted(jobs[219]), waits[219])
    assert estimator._trees is not None


def test_a_fit_that_fails_is_told(monkeypatch):
    monkeypatch.setattr(trees, "fit", lambda *_given: 1 / 0)
    jobs, waits = site(300)
    with pytest.raises(ZeroDivisionError):
        replay(boosted_asa(Surroundings(3)), jobs, waits)


# ------------------------------------------------------------------------------- its state


@pytest.mark.parametrize("make", [boosted_asa, boosted_queue_asa])
@pytest.mark.parametrize("cut", [150, 210, 330])  # before, during and after the first fit
def test_it_continues_from_its_state(make, cut):
    jobs, waits = site(420)

    def live(estimator, places):
        forecasts = []
        for place in places:
            forecasts.append(estimator.predict(jobs[place]))
            tickets.append(estimator.submitted(jobs[place], forecasts[-1]))
            if len(tickets) > 5:  # five wait at any time
                estimator.observe(tickets.pop(0), at_least(60.0) if place % 9 == 0 else waits[place])
        return forecasts

    tickets = []
    original = make(Surroundings(3, 100))
    live(original, range(cut))
    state = read_json(json.dumps(original.state(), allow_nan=True))
    twin = BoostedAsa.from_state(state)
    kept = list(tickets)
    expected = live(original, range(cut, 420))
    tickets[:] = kept
    assert live(twin, range(cut, 420)) == expected
    assert twin.sees_queue == original.sees_queue == (make is boosted_queue_asa)
    assert json.dumps(twin.state()) == json.dumps(original.state())


@pytest.fixture(scope="module")
def state():
    jobs, waits = site(260)
    estimator = boosted_asa(Surroundings(3))
    replay(estimator, jobs, waits, until_s=jobs[-1].submit_s)
    return estimator.state()


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"known": [10, 500, 20]},
        {"offsets": [0.0]},
        {"judged": [1.0, 2.0]},
        {"judged": [float("nan")] * 6},
        {"levels": [1.0, 2.0]},
        {"levels": [float("nan")] * 46},
        {"x": packed(np.zeros((3, 3), np.float32))},
        {"y": {}},
        {"base": {}},
        {"trees": [{}, None]},
        {"waiting": {"tickets": [1, 2, 3]}},
    ],
)
def test_a_changed_state_is_refused(state, change):
    BoostedAsa.from_state(state)
    with pytest.raises(StateError):
        BoostedAsa.from_state({**state, **change})


def test_a_state_of_version_1_goes_on(state):
    """Version 1 had one share for all quantiles."""
    waiting = state["waiting"]
    said = unpacked(waiting["said"])
    old = {**state, "version": 1, "waiting": {**waiting, "said": packed(said[:, :11])}}
    del old["levels"]
    again = BoostedAsa.from_state(old)
    assert len(said)
    assert again.state()["x"] == state["x"]
    jobs, waits = site(320)
    forecasts = replay(again, jobs[260:], waits[260:])
    assert np.isfinite([one.quantiles_s for one in forecasts]).all()


# ------------------------------------------------------------------------------- without the library


@pytest.fixture
def without(monkeypatch):
    """Have this process find no LightGBM."""
    monkeypatch.setattr(plugins, "_is_there", lambda package: package != "lightgbm")
    monkeypatch.setitem(sys.modules, "lightgbm", None)


@pytest.mark.usefixtures("without")
def test_without_the_library_it_says_what_to_install():
    for call in (lambda: plugins.load("asa.estimators", "asa-boost"), lambda: boosted_asa(Surroundings())):
        with pytest.raises(MissingExtraError, match=r"(?s)not installed.*pip install 'asa-client\[boost\]'"):
            call()


@pytest.mark.usefixtures("without")
def test_without_the_library_all_else_goes_on(capsys):
    assert {"asa", "asa-queue"} <= set(installed(queue=True))
    assert not {"asa-boost", "asa-queue-boost"} & set(installed(queue=True))
    assert {"asa-boost", "asa-queue-boost"} <= set(plugins.names("asa.estimators"))
    lists()
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("Needs lightgbm, which is not installed: pip install 'asa-client[boost]'") == 2


@pytest.mark.usefixtures("without")
def test_without_the_library_a_command_that_names_it_is_refused(tmp_path):
    log = tmp_path / "log.swf"
    log.write_text("1 0 5 60 1 -1 -1 1 600 -1 1 1 1 -1 1 1 -1 -1\n")
    with pytest.raises(MissingExtraError, match="asa-client") as raised:
        evaluate([log], estimators="asa,asa-boost")
    assert raised.value.exit_code == 2


def test_an_installed_one_lacks_nothing():
    assert plugins.lacking("asa.estimators", "asa-boost") is None
    assert plugins.lacking("asa.estimators", "asa") is None
    assert boost.library().__name__ == "lightgbm"


def test_a_fit_under_way_is_copied_as_the_trees_that_come_of_it():
    rng = np.random.default_rng(3)
    fitting = Fitting(rng.random((200, 4), dtype=np.float32), rng.random(200), 1)
    again = pickle.loads(pickle.dumps(fitting))
    assert isinstance(again, Trees)
    rows = rng.random((50, 4), dtype=np.float32)
    assert [again.predict(row) for row in rows] == [fitting.result().predict(row) for row in rows]
