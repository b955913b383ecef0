"""The exact front, compared with all possible selections."""

import itertools
import subprocess
import sys

import numpy as np
import plain_window
import pytest
from asa.backends.bbsched import exact
from asa.backends.bbsched.exact import MAX_JOBS, Exact
from asa.backends.bbsched.genetic import Genetic
from asa.backends.bbsched.problem import Window, WindowProblem
from asa.backends.bbsched.system import JobKind, System
from hypothesis import given, settings
from hypothesis import strategies as st


@st.composite
def cases(draw, max_jobs=7):
    """Draw machines of up to three kinds of nodes and two resources of either sort, with windows and free amounts."""
    own = [f"own{i}" for i in range(draw(st.integers(0, 2)))]
    shared = {f"shared{i}": draw(st.integers(1, 20)) for i in range(draw(st.integers(0, 2)))}
    kinds, has = [], dict.fromkeys(own, 0)
    for place in range(draw(st.integers(1, 3))):
        has = {name: amount + draw(st.integers(0 if place else 1, 3)) for name, amount in has.items()}
        kinds.append(JobKind(draw(st.integers(1, 6)), has))
    system = System(kinds, shared)
    jobs = []
    for _ in range(draw(st.integers(1, max_jobs))):
        kind = draw(st.integers(0, len(kinds) - 1))
        wants = {name: draw(st.integers(0, amount)) for name, amount in kinds[kind].each.items()}
        beside = {name: draw(st.sampled_from([0, draw(st.integers(0, most))])) for name, most in shared.items()}
        jobs.append({"nodes": draw(st.integers(1, sum(kind.nodes for kind in kinds[kind:]))), **beside, **wants})
    free = system.free(
        [draw(st.integers(0, kind.nodes)) for kind in kinds], {n: draw(st.integers(0, m)) for n, m in shared.items()}
    )
    forced = draw(st.lists(st.booleans(), min_size=len(jobs), max_size=len(jobs)))
    goals = draw(st.sampled_from([None, draw(st.sets(st.sampled_from(range(len(system.objectives))), min_size=1))]))
    return system, jobs, free, forced, goals and sorted(goals)


def a_problem(system, jobs, free, forced=None, goals=None):
    columns = {name: [job.get(name, 0) for job in jobs] for name in system.resources}
    return WindowProblem(Window(system, columns, forced), free, goals and [system.objectives[goal] for goal in goals])


def plainly(system, jobs, free, forced=(), goals=None):
    kinds = [kind.each for kind in system.kinds]
    beside = dict(zip(system.shared, free.shared, strict=True))
    return plain_window.front(
        plain_window.all_worth(jobs, kinds, free.nodes, beside, np.flatnonzero(forced).tolist()), goals
    )


def two_resources(rng, count, nodes=12_076, buffer=1_800_000, *, step=1):
    """Return a window for a machine with a burst buffer, a third of which fits: many different, large requests."""
    jobs = [
        {
            "nodes": int(rng.integers(1, nodes * 3 // count // step)) * step,
            "bb": int(rng.integers(0, buffer * 3 // count)),
        }
        for _ in range(count)
    ]
    system = System(nodes, {"bb": buffer})
    return system, jobs, system.free(int(nodes * rng.uniform(0.3, 1)), {"bb": int(buffer * rng.uniform(0.3, 1))})


def of_two(jobs, free):
    """Return the front of two shared resources by doubling lists: as simple as the other way, and faster."""
    sums = np.zeros((1, 2), dtype=np.int64)
    for job in reversed(jobs):
        sums = np.concatenate([sums + np.array([job["nodes"], job["bb"]]), sums])
    found, best = [], -1
    places = np.flatnonzero((sums <= [free.nodes[0], free.shared[0]]).all(axis=1))
    for place in places[np.lexsort((places, -sums[places, 1], -sums[places, 0]))]:
        if sums[place, 1] > best:
            best = sums[place, 1]
            bits = format((1 << len(jobs)) - 1 - int(place), f"0{len(jobs)}b")
            found.append((tuple(i for i, bit in enumerate(bits) if bit == "1"), tuple(sums[place].tolist())))
    return found


# ---------------------------------------------------------------------- it is the front


@settings(max_examples=150)
@given(case=cases())
def test_it_is_the_front_of_all_selections(case):
    """There are any number of resources and kinds of nodes, forced jobs, and some or all of the objectives."""
    found = Exact().solve(a_problem(*case))
    assert found.is_exact
    assert found.solver == "exact"
    assert plain_window.solutions(found) == plainly(*case)


@pytest.mark.full
@pytest.mark.parametrize("first_work", [0, 1000, 3000, 4_000_000])
@pytest.mark.parametrize("labels", [1, 4, 1 << 15])
@settings(max_examples=100)
@given(case=cases())
def test_so_it_is_by_each_of_the_ways_that_large_windows_take(case, labels, first_work):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_FEW_JOBS", 0)
        patch.setattr(exact, "_FIRST_WORK", first_work)
        for name in ("_FIRST_LABELS", "_AIMED_LABELS", "_LABELS"):
            patch.setattr(exact, name, labels)
        found = Exact().solve(a_problem(*case))
    assert found.is_exact
    assert plain_window.solutions(found) == plainly(*case)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("step", [1, 128])
def test_windows_of_sixteen_jobs(seed, step):
    """Sizes are large and different, or of few values."""
    system, jobs, free = two_resources(np.random.default_rng(seed), 16, step=step)
    for job in jobs[:: 2 if step > 1 else 16]:
        job["bb"] = 0
    found = Exact().solve(a_problem(system, jobs, free))
    assert found.is_exact
    assert plain_window.solutions(found) == of_two(jobs, free)


@pytest.mark.parametrize("seed", range(4))
def test_windows_of_jobs_that_ask_for_local_disks(seed):
    """Four objectives, thousands of nodes: there the plain way to give jobs nodes counts those on large disks only."""
    rng = np.random.default_rng(seed)
    system = System([JobKind(2196, {"ssd": 128}), JobKind(2196, {"ssd": 256})], {"bb": 1_260_000})
    large = rng.random(14) < 0.4
    jobs = [
        {
            "nodes": int(rng.choice([128, 256, 384, 512, 1024])),
            "bb": int(rng.choice([0, rng.integers(5000, 285_000)])),
            "ssd": int(rng.integers(129, 257) if is_large else rng.integers(0, 129)),
        }
        for is_large in large
    ]
    free = system.free([1500, 900], {"bb": 600_000})
    found = {}
    for bits in itertools.product((True, False), repeat=len(jobs)):
        chosen = tuple(itertools.compress(range(len(jobs)), bits))
        on_large = sum(jobs[i]["nodes"] for i in chosen if large[i])
        others = sum(jobs[i]["nodes"] for i in chosen if not large[i])
        buffer = sum(jobs[i]["bb"] for i in chosen)
        on_large += max(0, others - 1500)
        if on_large <= 900 and buffer <= 600_000:
            asked = sum(jobs[i]["nodes"] * jobs[i]["ssd"] for i in chosen)
            nodes = sum(jobs[i]["nodes"] for i in chosen)
            found[chosen] = (nodes, buffer, asked, asked - 256 * on_large - 128 * (nodes - on_large))
    assert plain_window.solutions(Exact().solve(a_problem(system, jobs, free))) == plain_window.front(found)


# ---------------------------------------------------------------------- large windows


def test_of_many_equal_jobs_the_first_are_taken():
    system = System(1000, {"bb": 1000})
    jobs = [{"nodes": 30, "bb": 7}] * 50
    found = Exact().solve(a_problem(system, jobs, system.whole))
    assert plain_window.solutions(found) == [(tuple(range(33)), (990, 231))]
    assert found.is_exact


@pytest.mark.parametrize("seed", range(5))
def test_of_fifty_jobs_the_front_is_that_of_their_halves(seed):
    """Requests have few sizes: then the totals of all selections of half the window fit into a set."""
    rng = np.random.default_rng(seed)
    jobs = [{"nodes": int(rng.integers(1, 9)) * 64, "bb": int(rng.integers(0, 9)) * 1000} for _ in range(50)]
    system = System(4392, {"bb": 60_000})
    free = system.free(int(rng.integers(500, 4392)), {"bb": int(rng.integers(5000, 60_000))})
    first = {(0, 0): ()}
    for place, job in reversed(list(enumerate(jobs))):
        for (nodes, buffer), chosen in list(first.items()):
            now = (nodes + job["nodes"], buffer + job["bb"])
            if now[0] <= free.nodes[0] and now[1] <= free.shared[0]:
                first[now] = min(first.get(now, (50,)), (place, *chosen)) if now in first else (place, *chosen)
    found = Exact().solve(a_problem(system, jobs, free))
    assert found.is_exact
    assert plain_window.solutions(found) == plain_window.front({chosen: value for value, chosen in first.items()})


@pytest.mark.parametrize("seed", [1, 5, 11])
def test_where_everything_can_be_used_up_that_is_soon_found(seed):
    """The whole burst buffer and all nodes that jobs of multiples of 64 can use are used: nothing can be better."""
    problem = a_problem(*two_resources(np.random.default_rng(seed), 50, step=64))
    found = Exact(max_work=40_000_000).solve(problem)
    nodes, buffer = problem.limits.tolist()
    assert [solution.objectives for solution in plain_window.solutions(found)] == [(nodes // 64 * 64, buffer)]
    assert found.is_exact


@pytest.mark.parametrize("seed", range(20))
def test_a_decision_on_twenty_jobs_is_little_work(seed):
    """The work is counted in steps of about a nanosecond, so that other processes do not disturb the measurement."""
    found = Exact().solve(a_problem(*two_resources(np.random.default_rng(seed), 20)))
    assert found.is_exact
    assert found.work < 5_000_000


# ---------------------------------------------------------------------- where it gives up


def hard(count=50):
    return a_problem(*two_resources(np.random.default_rng(1), count, 10**8, 10**11))


def is_a_front(problem, found):
    """Check that no solution dominates another, all fit, and their values are right."""
    kinds, free = [{}], problem.free
    for solution in plain_window.solutions(found):
        rows = problem.window.uses[list(solution.jobs)].tolist()
        jobs = [{"nodes": nodes, "bb": buffer} for nodes, buffer in rows]
        assert plain_window.worth(jobs, kinds, free.nodes, {"bb": free.shared[0]}) == solution.objectives
    nodes, buffer = found.objectives.T
    return (np.diff(nodes) < 0).all() and (np.diff(buffer) > 0).all()


def test_it_gives_up_a_window_that_is_too_hard_and_says_so():
    problem, genetic = hard(), Genetic(generations=50, seed=3)
    found = Exact(max_work=30_000_000, otherwise=genetic).solve(problem)
    assert not found.is_exact
    assert found.solver == "exact+genetic"
    assert found.work < 45_000_000, "no more than it may, and what it takes to prepare"
    assert is_a_front(problem, found)
    for other in genetic.solve(problem).objectives:
        assert (found.objectives >= other).all(axis=1).any(), "what the genetic algorithm found is not lost"


def test_what_was_found_before_it_gave_up_is_not_lost():
    problem = hard()
    little, more = (Exact(work, Genetic(generations=0)).solve(problem) for work in (3_000_000, 30_000_000))
    for other in little.objectives:
        assert (more.objectives >= other).all(axis=1).any()


def test_so_it_does_if_it_may_not_look_at_anything():
    problem = a_problem(*two_resources(np.random.default_rng(2), 20))
    found = Exact(max_work=0).solve(problem)
    assert (found.is_exact, found.solver) == (False, "exact+genetic")
    assert found.objectives.tolist() == Genetic().solve(problem).objectives.tolist()


def test_more_jobs_than_it_can_tell_apart_are_left_to_the_genetic_algorithm():
    system = System(1000, {"bb": 10})
    jobs = [{"nodes": 1 + i} for i in range(MAX_JOBS + 1)]
    found = Exact().solve(a_problem(system, jobs, system.whole))
    assert (found.is_exact, found.solver) == (False, "genetic")
    found = Exact().solve(a_problem(system, jobs, system.free(MAX_JOBS)))
    assert found.is_exact, "one job does not fit any more"


def test_a_front_that_is_too_large_is_given_up(monkeypatch):
    monkeypatch.setattr(exact, "MAX_SOLUTIONS", 4)
    problem = a_problem(*two_resources(np.random.default_rng(0), 16))
    found = Exact().solve(problem)
    assert not found.is_exact
    assert is_a_front(problem, found)


# ---------------------------------------------------------------------- the same everywhere


def test_without_numba_it_is_the_same():
    """The genetic algorithm's result and its amount of work are equal, too."""
    script = """
import sys
if sys.argv[1] == "plain":
    sys.modules["numba"] = None
import numpy as np
from asa.backends.bbsched.exact import Exact
from asa.backends.bbsched.genetic import Genetic
from asa.backends.bbsched.problem import Window, WindowProblem
from asa.backends.bbsched.system import JobKind, System
from asa.core.compiled import COMPILED
system = System([JobKind(1000, {"ssd": 128}), JobKind(1000, {"ssd": 256})], {"bb": 10_000})
rng, said = np.random.default_rng(0), []
for own in (False, True):
    for count in (8, 13, 40):
        demands = {"nodes": rng.integers(1, 300, count), "bb": rng.integers(0, 900, count)}
        machine = system if own else System(2000, {"bb": 10_000})
        free = machine.whole if own else machine.free(1357, {"bb": 2468})
        if own:
            demands["ssd"] = rng.integers(0, 257, count)
        problem = WindowProblem(Window(machine, demands), free)
        for solver in (Exact(1_000_000, Genetic(20)), Genetic(30)):
            front = solver.solve(problem)
            said.append((front.chosen.tolist(), front.objectives.tolist(), front.work, front.is_exact))
print(COMPILED, said, sep="\\n")
"""
    told = {
        kind: subprocess.run([sys.executable, "-c", script, kind], capture_output=True, text=True, check=True).stdout
        for kind in ("plain", "compiled")
    }
    compiled, plain = told["compiled"].split("\n", 1), told["plain"].split("\n", 1)
    assert plain[0] == "False"
    assert plain[1] == compiled[1]
