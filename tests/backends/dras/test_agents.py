"""The learners learn by the paper's equations, and the actor does not learn."""

from types import SimpleNamespace

import numpy as np
import pytest
from asa.backends.dras.agents import Actor
from asa.backends.dras.network import NetworkSize, initial

from asa.errors import InputError
from asa.studies.dras.learners import Learning, PolicyGradient, QLearning, learner

NODES, WINDOW = 16, 4


@pytest.fixture(autouse=True)
def _one_thread():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def situation(rng, waiting=WINDOW):
    """Return a pass with random jobs."""
    running = int(rng.integers(0, 4))
    size = np.concatenate([np.full(running, 2), rng.integers(1, NODES + 1, size=waiting)])
    return SimpleNamespace(
        now=10**6,
        running=np.arange(running),
        queue=np.arange(running, running + waiting),
        demand=size[:, None].astype(np.int64),
        request=rng.integers(600, 86400, size=len(size)),
        submit=10**6 - rng.integers(0, 86400, size=len(size)),
        qos=np.zeros(len(size), dtype=np.int64),
        expected_end=10**6 + np.sort(rng.integers(1, 86400, size=len(size))),
        free=np.array([NODES - 2 * running]),
        capacity=np.array([NODES]),
    )


def made(kind, **how):
    return learner(NetworkSize(kind, NODES, WINDOW, (32, 16)), Learning(**how), seed=5)


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_learning_improves_what_is_rewarded(kind):
    """Take the larger of two jobs: as often as not at first, nearly always after some hundred updates."""
    rng = np.random.default_rng(0)
    student = learner(NetworkSize(kind, NODES, 2, (32, 16)), Learning(discount=0.0, epsilon_decay=0.98), seed=6)

    def is_right(chooser, pass_):
        sizes = pass_.demand[pass_.queue, 0]
        return sizes[chooser.choose(pass_, pass_.queue)] == sizes.max()

    def share():
        actor, own = Actor(student.shape, student.parameters), np.random.default_rng(9)
        return np.mean([is_right(actor, situation(own, 2)) for _ in range(300)])

    before = share()
    for _ in range(3000):
        student.credit(float(is_right(student, situation(rng, 2))))
        student.end_instance()
    assert student.updates >= 299
    assert before < 0.6
    assert share() > 0.9


def met(student, rng, rewards, waiting=WINDOW):
    """Let an agent choose once for each reward; return its values and its choices."""
    thought, chosen = [], []
    for reward in rewards:
        pass_ = situation(rng, waiting)
        thought.append(student._evaluate(student._encode(pass_, pass_.queue)).astype(float))
        chosen.append(student.choose(pass_, pass_.queue))
        student.credit(reward)
    return thought, chosen


def test_equation_3():
    """The sum over choices of log-likelihood times the excess over the earlier updates' mean, choice by choice."""
    student, rng = made("pg"), np.random.default_rng(1)
    rewards = [[1.0, 2.0, 4.0], [3.0, 5.0], [0.5, 1.0, 2.0, 8.0]]
    onward = [[7.0, 6.0, 4.0], [8.0, 5.0], [11.5, 11.0, 10.0, 8.0]]
    usual = [[7.0, 6.0, 4.0], [7.0, 6.0], [7.5, 5.5, 4.0, 8.0]]  # where none came before, its own
    for given, returns, baseline in zip(rewards, onward, usual, strict=True):
        thought, chosen = met(student, rng, given, waiting=3)
        likely = [values[a] - np.log(np.exp(values).sum()) for values, a in zip(thought, chosen, strict=True)]
        expected = -sum(log * (g - b) for log, g, b in zip(likely, returns, baseline, strict=True))
        assert float(student._loss(is_end=False).detach()) == pytest.approx(expected, abs=1e-4)


def test_equation_4():
    """The squared difference of values from reward plus best next value; the last choice waits for the next one."""
    student, rng = made("dql", discount=0.9, epsilon=0.5), np.random.default_rng(1)
    thought, chosen = met(student, rng, [1.0, 2.0, 4.0])
    value = [values[a] for values, a in zip(thought, chosen, strict=True)]
    best = [values.max() for values in thought]
    expected = (1 + 0.9 * best[1] - value[0]) ** 2 + (2 + 0.9 * best[2] - value[1]) ** 2
    assert float(student._loss(is_end=False).detach()) == pytest.approx(expected / 2, rel=1e-4)
    more, chose = met(student, rng, [8.0])
    expected = (4 + 0.9 * more[0].max() - value[2]) ** 2 + (8 - more[0][chose[0]]) ** 2
    assert float(student._loss(is_end=True).detach()) == pytest.approx(expected / 2, rel=1e-4)


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_parameters_are_updated_every_ten_instances(kind):
    """No update comes earlier, and an episode's end updates from the rest."""
    student, rng = made(kind), np.random.default_rng(2)
    seen = []
    for _ in range(25):
        met(student, rng, [1.0, 0.0])
        student.end_instance()
        seen.append(student.updates)
    assert seen == [0] * 9 + [1] * 10 + [2] * 6
    student.end_episode()
    assert student.updates == 3
    student.end_episode()
    assert student.updates == 3


def test_empty_places_of_the_window_are_never_chosen_nor_learned_from():
    """They have no likelihood, so that nothing changes their outputs."""
    student, rng = made("pg"), np.random.default_rng(3)
    begin = student.parameters
    for _ in range(60):
        _, chosen = met(student, rng, rng.random(3), waiting=2)
        assert max(chosen) < 2
        student.end_instance()
    now = student.parameters
    assert (now["last_bias"][:2] != begin["last_bias"][:2]).all()
    assert (now["last"][:, :2] != begin["last"][:, :2]).any()
    np.testing.assert_array_equal(now["last_bias"][2:], begin["last_bias"][2:])
    np.testing.assert_array_equal(now["last"][:, 2:], begin["last"][:, 2:])


def test_dql_explores_less_and_less():
    """Choices are random at first; later the highest value is chosen, with occasional exceptions."""
    student, rng = made("dql"), np.random.default_rng(4)
    assert student.epsilon == 1.0
    _, first = met(student, rng, [0.0] * 200)
    assert np.bincount(first, minlength=WINDOW).min() > 25
    student.updates = 100
    assert student.epsilon == pytest.approx(0.995**100)
    student.updates = 2000
    thought, late = met(student, rng, [0.0] * 200)
    assert late == [int(values.argmax()) for values in thought]


def test_pg_draws_by_its_likelihoods():
    """There is one situation, and many draws."""
    shape = NetworkSize("pg", NODES, WINDOW, (32, 16))
    parameters = initial(shape, np.random.default_rng(0))
    parameters["last_bias"][:] = np.log([0.1, 0.2, 0.3, 0.4])
    parameters["last"][:] = 0
    actor = Actor(shape, parameters, sample=True, seed=1)
    pass_ = situation(np.random.default_rng(0))
    drawn = np.bincount([actor.choose(pass_, pass_.queue) for _ in range(4000)]) / 4000
    np.testing.assert_allclose(drawn, [0.1, 0.2, 0.3, 0.4], atol=0.03)
    three = np.bincount([actor.choose(pass_, pass_.queue[:3]) for _ in range(4000)]) / 4000
    np.testing.assert_allclose(three, [1 / 6, 2 / 6, 3 / 6], atol=0.03)
    greedy = Actor(shape, parameters)
    assert {greedy.choose(pass_, pass_.queue) for _ in range(20)} == {3}


def test_acting_never_learns():
    """Its parameters are read-only copies, and it gets no rewards."""
    student = made("pg")
    parameters = student.parameters
    actor, rng = Actor(student.shape, parameters), np.random.default_rng(6)
    passes = [situation(rng) for _ in range(50)]
    before = [actor.choose(pass_, pass_.queue) for pass_ in passes]
    for _ in range(20):
        met(student, rng, rng.random(2))
        student.end_instance()
    parameters["first"] += 1
    assert [actor.choose(pass_, pass_.queue) for pass_ in passes] == before
    assert not any(array.flags.writeable for array in actor._evaluate.parameters.values())
    assert not hasattr(actor, "credit")


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_a_learner_goes_on_where_it_was(kind):
    """Parameters, moments, draws and baseline are equal bit by bit to those of uninterrupted learning."""

    def go_on(student, seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            met(student, rng, rng.random(3))
            student.end_instance()
        student.end_episode()

    one = made(kind)
    go_on(one, 1)
    two = learner(one.shape, one.how, seed=77)
    two.restore(*one.state())
    go_on(one, 2)
    go_on(two, 2)
    assert one.updates == two.updates >= 8
    for name, array in one.parameters.items():
        np.testing.assert_array_equal(array, two.parameters[name])


def test_a_learner_is_not_kept_in_the_middle_of_an_episode():
    """Its experience since the last update would be lost."""
    student = made("pg")
    met(student, np.random.default_rng(0), [1.0])
    with pytest.raises(InputError, match="middle of an episode"):
        student.state()


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_on_a_device_it_thinks_the_same(kind):
    """PyTorch's results on the device equal those of the fast sums."""
    student, rng = made(kind), np.random.default_rng(8)
    for waiting in (1, 2, WINDOW):
        pass_ = situation(rng, waiting)
        state = student._encode(pass_, pass_.queue)
        quick = student._evaluate(state)
        student._evaluate, evaluate = None, student._evaluate
        np.testing.assert_allclose(student._values(state), quick, atol=1e-5)
        student._evaluate = evaluate


def test_parameters_of_learning_are_the_papers():
    """Sections III-B to IV-D; without a discount."""
    assert Learning() == Learning(rate=0.001, instances=10, epsilon=1.0, epsilon_decay=0.995, discount=1.0)
    optimiser = learner(NetworkSize("pg", NODES, WINDOW, (8, 4)))._optimiser
    assert type(optimiser).__name__ == "Adam"


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"instances": 0}, {"epsilon": 1.5}, {"discount": -0.1}])
def test_ways_to_learn_that_cannot_be_are_refused(wrong):
    """The error names the wrong setting."""
    with pytest.raises(InputError, match="learning"):
        Learning(**wrong)


def test_kinds_have_their_learners():
    """The kind of network determines the learner."""
    assert isinstance(made("pg"), PolicyGradient)
    assert isinstance(made("dql"), QLearning)
