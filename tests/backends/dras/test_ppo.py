"""A judge learns the cost of waiting, and resumes training."""

import dataclasses

import numpy as np
import pytest
from asa.backends.dras.patient import Patient
from asa.backends.dras.ranking import COLUMNS, RankJudge, first_ranks, rank
from asa.backends.dras.rewards import Capacity, Forgone
from asa.backends.dras.scoring import score
from asa.backends.dras.weights import Ranked
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.policies import easy
from asa.backends.simulated.table import JobTable
from asa.backends.simulated.workload import WorkloadModel

from asa.core.intervals import mean_interval
from asa.errors import InputError
from asa.studies.dras.ppo import Proximal, ProximalLearning, _Met, _Trying
from asa.studies.dras.training import Config, Material, Training, Varied

NODES = 16
MODEL = WorkloadModel(Machine("tiny", NODES, 1), load=0.7, log2_middle=3.7, log2_widest=4.0)
LEARNING = ProximalLearning(schedules=2, epochs=2, batch=256)


@pytest.fixture(autouse=True)
def torch():
    """Yield it, on one core. It is imported only here, as this module is by every process of the tests."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


def crowd(seed, count=60):
    """Jobs that all come at about the same time: of 4 nodes, and short or long."""
    rng = np.random.default_rng(seed)
    run = np.where(rng.random(count) < 0.5, 600, 6000)
    return JobTable(np.sort(rng.integers(0, 600, count)), run, run, np.full(count, 4))


class Longest:
    """A judge that takes the job with the longest request: the optimum if only these pay."""

    def choose(self, told):
        return int(told[:, COLUMNS.index("logarithm of the request")].argmax())


class LongFirst:
    """A cost of waiting for jobs with long requests only."""

    def __call__(self, sizes, requests_s, waits_s, *, nodes):
        return (requests_s > 3000) / 3600.0


def undecided(seed, **how):
    """Make a learner that begins with no order at all, for a cost that only long jobs pay."""
    parameters = first_ranks(np.random.default_rng(seed))
    parameters["straight"][:] = parameters["rank"][:] = 0.0
    how = dataclasses.replace(LEARNING, patience=100.0, **how)
    return Proximal(how, LongFirst(), seed=seed, parameters=parameters)


def test_what_a_choice_is_worth_points_to_what_is_better():
    """Also where a cost counts little after a time that is shorter than jobs run: those are not to be shunned."""
    learner = undecided(1, horizon_s=3600)
    pulls = []
    for seed in range(12):
        met = []
        for _ in range(4):
            trying = _Trying(learner.parameters, learner._rng, learner.how)
            score(crowd(seed), NODES, learner.how.scheduler(trying, learner.cost))
            met.append(trying.met)
        worth, _ = learner._worth(met, np.zeros(sum(len(one.chosen) for one in met)))
        # each is drawn with the same chance: how much longer than the mean is what the likelihood's slope is
        asked = [told[:, COLUMNS.index("logarithm of the request")] for one in met for told in one.situations]
        chosen = [place for one in met for place in one.chosen]
        longer = [some[place] - some.mean() for some, place in zip(asked, chosen, strict=True)]
        pulls.append(float(np.mean(worth * np.array(longer))))
    assert mean_interval(pulls).low > 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_learns_what_it_is_charged_for(seed):
    learner = undecided(seed, rate=0.02, schedules=4, epochs=4, batch=64, horizon_s=3600)

    def cost(judge):
        scores = [score(crowd(day), NODES, Patient(judge, patience=100.0, cost=LongFirst())) for day in (97, 98, 99)]
        return -sum(one.reward for one in scores)

    best = cost(Longest())
    assert cost(RankJudge(first_ranks(np.random.default_rng(seed)))) > 1.1 * best, "short jobs first"
    for day in range(4):
        learner.practise(crowd(day), NODES)
    assert cost(RankJudge(learner.parameters)) < 1.02 * best


def test_tensors_and_numbers_rank_alike(torch):
    """With other jobs in the batch, and empty places."""
    learner = Proximal(seed=2)
    rng = np.random.default_rng(1)
    told = [rng.random((many, len(COLUMNS)), dtype=np.float32) for many in (3, 7)]
    rows, there = np.zeros((2, 7, len(COLUMNS)), dtype=np.float32), np.zeros((2, 7), dtype=np.float32)
    for place, some in enumerate(told):
        rows[place, : len(some)], there[place, : len(some)] = some, 1.0
    with torch.no_grad():
        ranks, values = learner._ask(torch.from_numpy(rows), torch.from_numpy(there))
    for place, some in enumerate(told):
        np.testing.assert_allclose(ranks[place, : len(some)], rank(learner.parameters, some), rtol=1e-4)
    assert values.shape == (2,)


def test_what_came_after_a_choice_counts_the_less_the_later():
    """Two schedules, by hand: each is measured by what the other met at the same time."""
    learner = Proximal(dataclasses.replace(LEARNING, horizon_s=100), seed=0)
    one = _Met(chosen=[0, 0], time=[0, 100], reward=[-1.0, -2.0], lasted=[100, 100])
    two = _Met(chosen=[0], time=[50], reward=[-4.0], lasted=[100])
    worth, came = learner._worth([one, two], np.array([0.5, 0.0, 1.0]))
    assert came == pytest.approx([-1 - 2 / np.e, -2.0, -4.0])
    beyond = np.array([-1.5 - 2 / np.e, -2.0, -5.0])
    paired = np.array([beyond[0] - beyond[2], beyond[1] - beyond[2], beyond[2] - beyond[1]])
    assert worth == pytest.approx(paired / paired.std())


def test_what_is_left_out_is_not_looked_at():
    """Neither while learning nor in the agent that results, which is told it."""
    left = ("logarithm of the wait", "fits now")
    places = [COLUMNS.index(name) for name in left]
    learner = Proximal(dataclasses.replace(LEARNING, unseen=left), seed=1)
    begin = learner.parameters
    learner.practise(crowd(0, 20), NODES)
    ours = learner.parameters
    assert any((ours[name] != begin[name]).any() for name in ours)
    told = np.random.default_rng(1).random((6, len(COLUMNS)), dtype=np.float32)
    other = told.copy()
    other[:, places] = 7.0
    assert rank(ours, other).tolist() == rank(ours, told).tolist()
    other[:, COLUMNS.index("share of the nodes")] = 7.0
    assert rank(ours, other).tolist() != rank(ours, told).tolist()


def test_the_best_for_a_cost_is_measured_by_order_of_age(material):
    """Worth is below 0 for a cost, and order of age has -1."""
    training = Training(material, SHORT, kind="ppo", cost=Forgone(Capacity()), seed=1)
    exams = material.exams(1, 1)
    easy_ = [score(exam, NODES, training._course.easy()) for exam in exams]
    plain = [score(exam, NODES, easy()) for exam in exams]
    assert [one.mean_wait_s for one in easy_] == [one.mean_wait_s for one in plain]
    found = next(iter(training))
    shares = [mine / one.reward for mine, one in zip(found.exams, easy_, strict=True)]
    assert found.worth == pytest.approx(-np.mean(shares))
    assert "Capacity" in training.best.cost


SHORT = Config(sampled=1, real=1, synthetic=2, jobs=60, days=1, exams=1, proximal=LEARNING)


@pytest.fixture(scope="module")
def material():
    table = MODEL.generate(4 * 86400, 1)
    validation = MODEL.generate(86400, 2)
    return Material(NODES, table, validation, Varied(MODEL), "tiny.swf: days 1 to 4", 5)


def told(training):
    return [dataclasses.replace(episode, seconds=0.0) for episode in training.episodes]


def test_an_interrupted_training_goes_on_to_the_same_end(material, tmp_path):
    """Stopped after each episode; and another seed gives another."""
    whole, other = (Training(material, SHORT, kind="ppo", seed=seed, folder=tmp_path / str(seed)) for seed in (3, 4))
    list(whole)
    list(other)
    for _ in range(4):
        next(iter(Training(material, SHORT, kind="ppo", seed=3, folder=tmp_path / "parts")))
    again = Training(material, SHORT, kind="ppo", seed=3, folder=tmp_path / "parts")
    assert again.is_over
    assert told(again) == told(whole) != told(other)
    assert [episode.phase for episode in whole.episodes] == ["sampled", "real", "synthetic", "synthetic"]
    for name in ("best.npz", "episode-004.npz"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "3" / name).read_bytes()
    assert isinstance(again.best, Ranked)
    assert (again.best.source, again.best.seen_days) == ("tiny.swf: days 1 to 4", 5)


def test_the_load_varies_from_set_to_set():
    """Between its bounds, in the mean of some weeks, whatever the model's own."""
    varied = Varied(MODEL, 0.3, 0.9)
    seconds = 28 * 86400
    loads = [float((t.run @ t.cores) / (NODES * seconds)) for t in (varied.generate(seconds, n) for n in range(12))]
    assert 0.15 < min(loads) < 0.5 < max(loads) < 1.1
    assert varied.generate(86400, 5).run.tolist() == varied.generate(86400, 5).run.tolist()


@pytest.mark.parametrize(
    "wrong", [{"unseen": ("the weather",)}, {"schedules": 1}, {"clip": 1.0}, {"rate": -1.0}, {"patience": -0.1}]
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(InputError, match=r"cannot be|not all columns"):
        ProximalLearning(**wrong)
