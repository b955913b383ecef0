"""The paper's genetic algorithm, and its distance from the true front."""

import math

import numpy as np
import pytest
from asa.backends.bbsched import genetic_kernel
from asa.backends.bbsched.exact import Exact
from asa.backends.bbsched.genetic import Genetic
from asa.backends.bbsched.problem import Window, WindowProblem
from asa.backends.bbsched.system import JobKind, System
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_window import solutions

from asa.core.compiled import seen
from asa.errors import InputError
from asa.studies.bbsched.comparison import Case
from asa.studies.bbsched.distance import gd_curve, generational_distance

SYSTEM = System([JobKind(500, {"ssd": 128}), JobKind(500, {"ssd": 256})], {"bb": 1000})


def a_problem(seed, count=20, *, forced=None, goals=None):
    rng = np.random.default_rng(seed)
    demands = {
        "nodes": rng.integers(1, 200, count),
        "bb": rng.integers(0, 200, count),
        "ssd": rng.integers(0, 257, count),
    }
    return WindowProblem(Window(SYSTEM, demands, forced), SYSTEM.free([400, 300], {"bb": 700}), goals)


def test_its_parameters_are_the_papers():
    """Section 4.3; of the window, too."""
    assert (Genetic().generations, Genetic().population, Genetic().mutation) == (500, 20, 0.0005)
    assert Case("cori-s4", "bbsched").window == 20


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    generations=st.integers(0, 60),
    population=st.integers(1, 9),
    mutation=st.sampled_from([0, 0.0005, 0.5, 1]),
    count=st.integers(1, 25),
)
def test_what_it_finds_fits_and_none_betters_another(seed, generations, population, mutation, count):
    problem = a_problem(seed, count)
    found = Genetic(generations, population, mutation, seed).solve(problem)
    assert 1 <= len(found) <= population
    for chosen, worth in zip(found.chosen, found.objectives, strict=True):
        jobs = np.flatnonzero(chosen).tolist()
        nodes = problem.window.placed(problem.free, jobs)
        assert (nodes.sum(axis=0) <= problem.free.nodes).all()
        assert worth[1] <= problem.free.shared[0]
        assert sum((found.objectives >= worth).all(axis=1)) == 1
    true = Exact().solve(problem)
    if true.is_exact:
        assert ((true.objectives[None, :, :] >= found.objectives[:, None, :]).all(axis=2)).any(axis=1).all()


def test_the_same_seed_finds_the_same_and_another_something_else():
    problem = a_problem(0)
    one, again, other = (solutions(Genetic(generations=20, seed=seed).solve(problem)) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_forced_jobs_are_in_every_solution():
    problem = a_problem(3, forced=[place in {4, 17} for place in range(20)])
    assert Genetic(50).solve(problem).chosen[:, [4, 17]].all()


def test_where_no_job_fits_nothing_is_selected():
    window = Window(SYSTEM, {"nodes": [10, 20]})
    for solver in (Genetic(), Exact()):
        found = solver.solve(WindowProblem(window, SYSTEM.free([0, 9])))
        assert solutions(found) == [((), (0, 0, 0, 0))]
        assert found.is_exact


def test_one_goal_is_enough():
    found = Genetic(200).solve(a_problem(5, 8, goals=["bb"]))
    assert found.objectives[0, 1] == Exact().solve(a_problem(5, 8, goals=["bb"])).objectives[0, 1]


@pytest.mark.parametrize("settings", [{"generations": -1}, {"population": 0}, {"mutation": 1.5}])
def test_what_cannot_evolve_is_refused(settings):
    with pytest.raises(InputError, match="cannot evolve"):
        Genetic(**settings)


# ---------------------------------------------------------------------- selection, as in 3.2.2


def survivors(worth, ages, population):
    """Return the positions of the chromosomes kept, and the number of those in Set 1; all chromosomes differ."""
    count, goals = np.shape(worth)
    jobs = 8
    genes = ((np.arange(1, count + 1)[:, None] >> np.arange(jobs)[::-1]) & 1).astype(np.int64)
    rows = [genes.ravel(), np.array(worth, dtype=np.int64).ravel(), np.array(ages, dtype=np.int64)]
    scratch = [np.zeros(n, dtype=np.int64) for n in (count * jobs, count * goals, count, count)]
    many = genetic_kernel.select(
        seen(rows[0]), jobs, seen(rows[1]), goals, seen(rows[2]), count, population, *(seen(array) for array in scratch)
    )
    kept = rows[0].reshape(count, jobs)[:population] @ (1 << np.arange(jobs)[::-1]) - 1
    assert rows[2][:population].tolist() == [ages[place] for place in kept]
    assert rows[1].reshape(count, goals)[:population].tolist() == [list(worth[place]) for place in kept]
    return kept.tolist(), many


def test_pareto_solutions_come_first_and_then_the_newer_of_the_others():
    """Set 1 is smaller than the population: all of it is kept, however old, and the newest of Set 2."""
    worth = [(9, 1), (8, 0), (5, 5), (4, 4), (3, 3), (1, 9)]
    assert survivors(worth, [7, 1, 8, 2, 0, 9], 5) == ([0, 2, 5, 4, 1], 3)


def test_of_too_many_pareto_solutions_the_newer_are_kept():
    worth = [(9, 1), (7, 3), (5, 5), (3, 7), (2, 2), (1, 9)]
    assert survivors(worth, [3, 0, 2, 1, 0, 4], 3) == ([1, 3, 2], 3)


def test_of_those_that_are_worth_the_same_the_one_nearest_the_front_counts():
    """The chromosome with more of its bits at the front comes later in this list."""
    assert survivors([(5, 5), (5, 5), (5, 5)], [0, 1, 2], 3) == ([2, 0, 1], 1)


class PlainGenetic:
    """The algorithm as the paper describes it, and as the module does where the paper is silent."""

    def __init__(self, problem, generations, population, mutation, seed):
        self.jobs = problem.uses.tolist()
        self.limits = problem.limits.tolist()
        self.state = (seed * 0x9E3779B9 + 0x9E3779B9) % (2**32 - 1) + 1
        self.mutation = round(mutation * 2**32)
        people = []
        for _ in range(population):
            genes = [self.draw() & 1 for _ in self.jobs]
            people.append([0, *self.settled(genes)])
        people = self.selected(people, population)
        for _ in range(generations):
            children = []
            while len(children) < population:
                one, other = (people[self.below(population)][2] for _ in range(2))
                cut = self.below(len(self.jobs) + 1)
                for genes in (one[:cut] + other[cut:], other[:cut] + one[cut:])[: population - len(children)]:
                    flipped = [1 - gene if self.draw() < self.mutation else gene for gene in genes]
                    children.append([-1, *self.settled(flipped)])
            people = self.selected([[age + 1, *rest] for age, *rest in people + children], population)
        first = [person for person in people if self.is_best(person, people)]
        self.front = sorted({(worth, tuple(genes)) for _, worth, genes in first}, reverse=True)

    def draw(self):
        x = self.state
        x ^= x << 13 & 0xFFFFFFFF
        x ^= x >> 17
        self.state = x ^ (x << 5 & 0xFFFFFFFF)
        return self.state

    def below(self, n):
        return self.draw() * n >> 32

    def settled(self, genes):
        used, since, kept = [0, 0], self.below(len(genes)), [0] * len(genes)
        for job in [*range(since, len(genes)), *range(since)]:
            more = [a + b for a, b in zip(used, self.jobs[job], strict=True)]
            if genes[job] and all(a <= b for a, b in zip(more, self.limits, strict=True)):
                used, kept[job] = more, 1
        return tuple(used), kept

    @staticmethod
    def is_best(person, people):
        """Whether no other is better, nor as good and nearer the front, nor equal and listed earlier."""
        _, worth, genes = person
        for _, others, theirs in people:
            if others != worth and all(a >= b for a, b in zip(others, worth, strict=True)):
                return False
            if others == worth and theirs > genes:
                return False
        return next(other for other in people if other[1:] == person[1:]) is person

    def selected(self, people, population):
        pareto = [person for person in people if self.is_best(person, people)]
        rest = [person for person in people if not any(person is one for one in pareto)]
        return (sorted(pareto, key=lambda one: one[0]) + sorted(rest, key=lambda one: one[0]))[:population]


@pytest.mark.parametrize("mutation", [0.0005, 0.05])
@pytest.mark.parametrize("population", [3, 8])
@pytest.mark.parametrize("seed", range(6))
def test_it_evolves_as_a_plain_one_does(seed, population, mutation):
    """Populations are small, so that Pareto solutions compete by age."""
    rng = np.random.default_rng(seed)
    system = System(1000, {"bb": 1000})
    window = Window(system, {"nodes": rng.integers(1, 300, 15), "bb": rng.integers(0, 300, 15)})
    problem = WindowProblem(window, system.free(800, {"bb": 700}))
    found = Genetic(40, population, mutation, seed).solve(problem)
    plain = PlainGenetic(problem, 40, population, mutation, seed)
    assert [(tuple(worth), tuple(genes)) for worth, genes in plain.front] == [
        (tuple(worth.tolist()), tuple(chosen[problem.jobs].astype(int).tolist()))
        for chosen, worth in zip(found.chosen, found.objectives, strict=True)
    ]


# ---------------------------------------------------------------------- distance


def test_the_distance_is_the_mean_of_those_to_the_nearest_true_solutions():
    true = [(0, 10), (10, 0)]
    assert generational_distance(true, true) == 0
    assert generational_distance([(0, 7), (6, 0)], true) == pytest.approx(3.5)
    assert generational_distance([(10, 3)], true) == 3
    assert generational_distance([(3, 6)], true) == 5
    assert generational_distance([(3, 6)], true, (1, 2)) == pytest.approx(math.hypot(3, 2))


def test_more_generations_come_nearer_to_the_true_front():
    problems = [a_problem(seed, 16) for seed in range(6)]
    curve = gd_curve(problems, generations=(0, 30, 500), populations=(20,))
    assert [(point.generations, point.population) for point in curve] == [(0, 20), (30, 20), (500, 20)]
    assert curve[0].distance > curve[1].distance > curve[2].distance >= 0
    assert curve[2].distance < 0.3 * curve[0].distance
    assert all(point.seconds > 0 for point in curve)
    assert [point.distance for point in gd_curve(problems, (30,), (20,))] == [curve[1].distance]


def test_a_curve_needs_a_window_of_which_the_front_is_known():
    with pytest.raises(InputError, match="true front"):
        gd_curve([])
