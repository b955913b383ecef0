"""Three phases, and a training that can be gone on with."""

import dataclasses

import numpy as np
import pytest
from asa.backends.dras.network import NetworkSize
from asa.backends.dras.rewards import Capability, Capacity
from asa.backends.dras.scheduler import First, TwoLevels
from asa.backends.dras.scoring import ScheduleScore, score
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.policies import easy
from asa.backends.simulated.table import JobTable
from asa.backends.simulated.workload import WorkloadModel

from asa.errors import InputError, StateError
from asa.studies.dras.learners import Learning
from asa.studies.dras.training import (
    PAPER_CORI,
    PAPER_THETA,
    PROXIMAL_PAPER,
    PROXIMAL_SMALL,
    SMALL,
    Config,
    Episode,
    Material,
    Training,
    paper,
)

WEEK = 7 * 86400
MODEL = WorkloadModel(Machine("tiny", 16, 1), load=0.7, log2_middle=2.0, log2_widest=4.0)


def some(table, count):
    return JobTable(table.submit[:count], table.run[:count], table.request[:count], table.cores[:count])


@pytest.fixture(scope="module")
def material():
    return Material(16, MODEL.generate(3 * WEEK, 1), some(MODEL.generate(WEEK, 2), 60), MODEL)


FOUND = ScheduleScore(1.0, 1.0, 1, 1.0, 1.0)
SHORT = Config((16, 8), window=6, sampled=2, real=1, synthetic=1, jobs=60, exams=1, how=Learning(instances=5))


@pytest.fixture
def brief(material):
    """A material whose weeks are short, for learning on one core."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Material(16, some(material.training, 80), material.validation, Short())
    torch.set_num_threads(threads)


class Short:
    """A model of few jobs."""

    def generate(self, duration_s, seed):
        return some(MODEL.generate(duration_s, seed), 50)

    def __repr__(self):
        return "Short()"


def told(training):
    return [dataclasses.replace(episode, seconds=0.0) for episode in training.episodes]


def same(one, two):
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])


def test_sampled_jobs_arrive_as_a_poisson_process_at_the_mean_rate(material):
    """Jobs of the log, in another order, with gaps whose deviation is as large as their mean."""
    table = material.training
    drawn = material.jobs("sampled", 0, count=2000, seed=1)
    gaps = np.diff(drawn.submit)
    mean = (table.submit[-1] - table.submit[0]) / (len(table) - 1)
    assert gaps.mean() == pytest.approx(mean, rel=0.1)
    assert gaps.std() == pytest.approx(mean, rel=0.15)
    rows = set(zip(table.run.tolist(), table.request.tolist(), table.cores.tolist(), strict=True))
    assert set(zip(drawn.run.tolist(), drawn.request.tolist(), drawn.cores.tolist(), strict=True)) <= rows
    assert drawn.submit.tolist() == material.jobs("sampled", 0, count=2000, seed=1).submit.tolist()
    assert drawn.run.tolist() != material.jobs("sampled", 1, count=2000, seed=1).run.tolist()


def test_real_weeks_are_the_log_cut_up(material):
    """Every job once, in its week."""
    assert material.parts() == [0, 1, 2]
    weeks = [material.jobs("real", number, count=0, seed=0) for number in range(3)]
    begin = int(material.training.submit[0])
    again = np.concatenate([week.submit + begin + number * WEEK for number, week in enumerate(weeks)])
    assert again.tolist() == material.training.submit.tolist()
    assert np.concatenate([week.run for week in weeks]).tolist() == material.training.run.tolist()
    assert all(week.submit.max() < WEEK for week in weeks)


def test_weeks_without_jobs_are_no_sets(material):
    """As when a machine was away."""
    table = JobTable(*(np.array(column) for column in ([5, 6, 3 * WEEK + 5], [9, 9, 9], [9, 9, 9], [1, 1, 1])))
    gap = dataclasses.replace(material, training=table)
    assert gap.parts() == [0, 3]
    assert gap.jobs("real", 3, count=0, seed=0).submit.tolist() == [0]


def test_synthetic_weeks_are_the_models(material):
    """A week each, all different."""
    first, second = (material.jobs("synthetic", number, count=0, seed=4) for number in range(2))
    assert first.submit.max() < WEEK
    assert len(first) > 100
    assert first.run.tolist() != second.run.tolist()


def test_a_score_is_counted_by_hand():
    """Two jobs, one after the other."""
    table = JobTable(*(np.array(column) for column in ([0, 10], [100, 5], [100, 50], [4, 4])))
    found = score(table, 4, TwoLevels(First(), reward=Capability(0.0, 1.0, 0.0)))
    assert dataclasses.astuple(found) == pytest.approx((1.0, 45.0, 90, (1.0 + 9.5) / 2, 1.0))
    assert score(table, 4, easy()).reward == 0.0
    with pytest.raises(InputError, match="0 of 0 jobs"):
        score(some(table, 0), 4, easy())


@pytest.mark.parametrize(("kind", "levels"), [("pg", 2), ("dql", 2), ("pg", 1)])
def test_the_same_seed_gives_the_same_and_another_gives_another(brief, kind, levels):
    """Every number of every episode, and the agent."""
    one, two, other = (Training(brief, SHORT, kind=kind, levels=levels, seed=seed) for seed in (3, 3, 4))
    for training in (one, two, other):
        list(training)
    assert [episode.phase for episode in one.episodes] == ["sampled", "sampled", "real", "synthetic"]
    assert told(one) == told(two) != told(other)
    same(one.best.parameters, two.best.parameters)
    assert one.best.levels == levels


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_an_interrupted_training_goes_on_to_the_same_end(brief, tmp_path, kind):
    """Stopped after each episode, and once in the middle of one."""
    whole = Training(brief, SHORT, kind=kind, seed=3, folder=tmp_path / "whole")
    list(whole)
    folder = tmp_path / "parts"
    for _ in range(2):
        next(iter(Training(brief, SHORT, kind=kind, seed=3, folder=folder)))
    broken = Training(brief, SHORT, kind=kind, seed=3, folder=folder)
    calls = []

    def break_off(selection):
        calls.append(selection)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return Capability()(selection)

    broken._course._reward = break_off
    with pytest.raises(KeyboardInterrupt):
        next(iter(broken))
    last = Training(brief, SHORT, kind=kind, seed=3, folder=folder)
    assert len(last.episodes) == 2
    list(last)
    assert told(last) == told(whole)
    same(last.best.parameters, whole.best.parameters)
    for name in ("best.npz", "episode-004.npz"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert Training(brief, SHORT, kind=kind, seed=3, folder=folder).is_over


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 4},
        {"kind": "dql"},
        {"reward": Capacity()},
        {"levels": 1},
        {"order": ("real", "sampled")},
        {"config": dataclasses.replace(SHORT, hidden=(16, 9))},
        {"material": True},
    ],
)
def test_another_training_does_not_go_on_with_it(brief, tmp_path, change):
    """Else nobody would know what an agent was trained by."""
    given = {"material": brief, "config": SHORT, "kind": "pg", "seed": 3, "folder": tmp_path}
    next(iter(Training(**given)))
    if change == {"material": True}:
        change = {"material": dataclasses.replace(brief, validation=some(brief.validation, 59))}
    with pytest.raises(StateError, match=r"of another training\n.*another folder"):
        Training(**(given | change))


def test_the_best_on_all_sets_to_choose_by_is_kept(brief, tmp_path):
    """Whichever it was; each set counts as a multiple of what order of age has there."""
    config = dataclasses.replace(SHORT, exams=2)
    training = Training(brief, config, kind="dql", seed=1, folder=tmp_path)
    list(training)
    best = 1 + int(np.argmax([episode.worth for episode in training.episodes]))
    assert [episode.number for episode in training.episodes if episode.best][-1] == best
    assert (tmp_path / "best.npz").read_bytes() == (tmp_path / f"episode-{best:03d}.npz").read_bytes()
    found = training.episodes[best - 1]
    exams = brief.exams(2, config.days)
    again = [score(exam, 16, training.best.scheduler(reward=Capability())) for exam in exams]
    assert again[0] == found.validation
    assert tuple(one.reward for one in again) == found.exams
    easy_ = [score(exam, 16, TwoLevels(First(), reward=Capability())).reward for exam in exams]
    assert found.worth == pytest.approx(np.mean([mine / its for mine, its in zip(found.exams, easy_, strict=True)]))


def test_what_is_chosen_by_is_not_learned_from(material):
    """The same for all seeds, all different, and no set of any phase."""
    exams = material.exams(3)
    assert exams[0] is material.validation
    runs = [table.run.tolist() for table in exams]
    assert runs == [table.run.tolist() for table in material.exams(3)]
    learned = [
        material.jobs(phase, number, count=len(exams[1]), seed=seed).run.tolist()
        for phase in ("sampled", "real", "synthetic")
        for number in range(3)
        for seed in range(2)
    ]
    assert len({tuple(one) for one in [*runs, *learned]}) == 4 + 3 + 2 * 3 + 2 * 3


def test_training_stops_early_only_in_the_last_phase(brief):
    """After so many episodes that were no better; here all are as good as the first."""
    config = dataclasses.replace(SHORT, sampled=3, real=0, synthetic=9, patience=2)
    training = Training(brief, config, reward=Capability(0.0, 0.0, 0.0), seed=1)
    assert [episode.phase for episode in training] == ["sampled"] * 3 + ["synthetic"] * 2
    assert [episode.best for episode in training.episodes] == [True] + [False] * 4


@pytest.mark.parametrize(
    ("nodes", "layers", "jobs", "parameters"),
    [(4360, (4000, 1000), 3200, 21_890_053), (12_076, (10000, 4000), 200_000, 161_960_053)],
)
def test_the_paper_s_configuration_is_that_of_the_machine(nodes, layers, jobs, parameters):
    """Layers, sets and jobs of Theta and of Cori, as the paper has them; others have those of the nearer in size."""
    config = paper(nodes)
    assert (config.hidden, config.jobs) == (layers, jobs)
    assert config.sampled + config.real + config.synthetic == 100
    assert NetworkSize("pg", nodes, config.window, config.hidden).parameters == parameters
    assert [paper(size) for size in (64, 7200, 7300, 10**5)] == [PAPER_THETA, PAPER_THETA, PAPER_CORI, PAPER_CORI]


@pytest.mark.parametrize("config", [SMALL, PAPER_THETA, PROXIMAL_SMALL, PROXIMAL_PAPER])
def test_a_training_as_it_is_shipped_can_stop_early(config, brief):
    """Where nothing is better than the first, before the last set."""
    training = Training(brief, dataclasses.replace(config, hidden=(16, 8), exams=0), kind="ppo")
    phases = [phase for phase, _ in training._sets]
    for number, phase in enumerate(phases):
        if training.is_over:
            break
        training.episodes.append(Episode(number + 1, phase, 9, 1, FOUND, FOUND, (1.0,), 1.0, number == 0, 1.0))
    assert phases.index("synthetic") < len(training.episodes) < len(phases)


def test_phases_come_in_the_order_that_is_asked_for(brief):
    """For the experiment with orders; a phase may be missing."""
    training = Training(brief, SHORT, order=("synthetic", "sampled"), seed=1)
    assert [episode.phase for episode in training] == ["synthetic", "sampled", "sampled"]
    for wrong in ((), ("real", "real"), ("real", "dreamt")):
        with pytest.raises(InputError, match="order of phases"):
            Training(brief, SHORT, order=wrong)
