"""The search for the plan that costs least, against all plans of small workflows."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import references

from asa.backend import Capabilities
from asa.strategies import Keep
from asa.strategies.planning import Parts, Question, search, sketch_of, take_apart
from asa.strategies.planning.elasticity import Resizing
from asa.strategies.planning.search import SAMPLES, _shuffle, aged, priced_frontier
from asa.workflow import Stage, Workflow

MIDDLES = (np.arange(SAMPLES) + 0.5) / SAMPLES


def chain(*stages):
    """Make a chain of stages, each given as (cores, run_s)."""
    return Workflow(
        "chain",
        [
            Stage(f"s{i}", cores=cores, walltime_s=1.5 * run_s, expected_run_s=run_s, after=(f"s{i - 1}",) if i else ())
            for i, (cores, run_s) in enumerate(stages)
        ],
    )


def test_walltimes_that_are_defaults_are_not_added_up():
    """Two that run one after the other have jobs of their own until more is known; one may share with what is known."""
    known = chain((4, 60), (4, 60), (4, 60))
    unknown = Workflow("x", [replace(stage, assumes_walltime=True) for stage in known.stages.values()])
    one = Workflow("x", [replace(s, assumes_walltime=s.name == "s1") for s in known.stages.values()])
    assert Parts(known).block(known.order) is not None
    assert Parts(unknown).block(known.order) is None
    assert Parts(unknown).block(("s0", "s1")) is None
    assert Parts(unknown).block(("s0",)) is not None
    assert Parts(one).block(known.order) is not None


def test_defaults_of_stages_side_by_side_are_no_sum():
    parts = [Stage(name, cores=1, assumes_walltime=True) for name in "abc"]
    site = Capabilities("x", 56, 28, age_accrues=False, whole_nodes=True)
    block = Parts(Workflow("x", parts), cores_per_node=28, site=site).block(("a", "b", "c"))
    assert block is not None
    assert block.walltime_s == parts[0].walltime_s


def exponential(per_core_s, per_walltime):
    """Waits that are longer for jobs that are wider and longer."""

    def waits_s(blocks):
        means = np.array([per_core_s * block.cores + per_walltime * block.walltime_s for block in blocks])
        return means[:, None] * -np.log1p(-MIDDLES)

    return waits_s


def ask(
    workflow,
    price_s=10.0,
    waits_s=None,
    *,
    shrink=True,
    age_accrues=False,
    modes=frozenset(Keep),
    bounds=None,
    more=None,
):
    parts = Parts(workflow, resizing=Resizing(int(shrink)))
    if more is not None:
        parts = rising(workflow, more, shrink_by=int(shrink))
    return Question(parts, waits_s or exponential(20.0, 0.1), bounds or {}, price_s, age_accrues, modes)


def rising(workflow, more_s, *, shrink_by=1, max_cores=np.inf, **options):
    """Cut a workflow into jobs that may grow by any number of cores."""
    widths = {name: stage.cores for name, stage in workflow.stages.items()}
    return Parts(workflow, resizing=Resizing(shrink_by, widths, max_cores, more_s), **options)


def all_plans(question):
    """Yield the cost of every plan of a chain: each division into jobs, each hold of each, each moment to submit it."""
    names = question.parts.names
    for cuts in itertools.product([False, True], repeat=len(names) - 1):
        groups, begin = [], 0
        for end in range(1, len(names) + 1):
            if end == len(names) or cuts[end - 1]:
                groups.append(names[begin:end])
                begin = end
        blocks = [question.parts.block(group) for group in groups]
        waits = [w[_shuffle(names.index(g[0]), SAMPLES)] for g, w in zip(groups, question.waits_s(blocks), strict=True)]
        for modes in itertools.product(sorted(question.modes), repeat=len(groups) - 1):
            yield groups, modes, plan_cost(question, blocks, waits, modes)


def plan_cost(question, blocks, waits, modes):
    ends, hours = waits[0] + blocks[0].run_s, blocks[0].core_hours
    for block, wait, mode in zip(blocks[1:], waits[1:], modes, strict=True):
        second = block.cores / 3600
        if mode is Keep.AWAIT:
            moments = np.maximum(np.concatenate([[0.0], (ends - wait)]), 0.0)
            costs = [
                np.maximum(ends, s + wait).mean() + question.price_s * second * np.maximum(ends - s - wait, 0).mean()
                for s in moments
            ]
            at_s = moments[int(np.argmin(costs))]
            hours += second * np.maximum(ends - at_s - wait, 0).mean()
            start = np.maximum(ends, at_s + wait)
        elif mode is Keep.DEPENDENCY and question.age_accrues:
            start = aged(ends, wait, wait, question.parts.depths[block.stages[0]])
        else:
            start = ends + wait
        ends, hours = start + block.run_s, hours + block.core_hours
    return float(ends.mean()) + question.price_s * hours


chains = st.lists(st.tuples(st.sampled_from([1, 10, 64]), st.integers(60, 4000)), min_size=1, max_size=5)


@pytest.mark.full
@settings(deadline=None, max_examples=60)
@given(chains, st.floats(0, 300), st.floats(0, 50), st.floats(0, 1), st.booleans(), st.booleans())
def test_no_plan_of_a_small_chain_costs_less(stages, price_s, per_core_s, per_walltime, shrink, age_accrues):
    """Where jobs are submitted early, choices depend on each other, and the search may miss the best by a little."""
    question = ask(
        chain(*stages), price_s, exponential(per_core_s, per_walltime), shrink=shrink, age_accrues=age_accrues
    )
    least = min(cost for *_, cost in all_plans(question))
    found = search(question).cost_s(price_s)
    assert found >= least * (1 - 1e-9)
    assert found <= least * 1.005 + 1


@settings(deadline=None, max_examples=40)
@given(chains, st.floats(0, 300), st.floats(0, 50), st.floats(0, 1), st.booleans())
def test_it_is_exact_where_no_job_queues_before_its_time(stages, price_s, per_core_s, per_walltime, shrink):
    question = ask(
        chain(*stages), price_s, exponential(per_core_s, per_walltime), shrink=shrink, modes=frozenset({Keep.NOTHING})
    )
    least = min(cost for *_, cost in all_plans(question))
    assert search(question).cost_s(price_s) == pytest.approx(least)


def test_merging_equal_sizes_is_free_and_done():
    flow = chain((64, 500), (64, 300), (1, 100), (1, 50))
    [wide, narrow] = search(ask(flow, 1000.0, shrink=False, modes=frozenset({Keep.NOTHING}))).jobs
    assert (wide.block.stages, narrow.block.stages) == (("s0", "s1"), ("s2", "s3"))


def test_a_job_that_shrinks_is_free_to_take_narrow_stages_along():
    flow = chain((64, 500), (1, 1000))
    assert [job.block.stages for job in search(ask(flow, 1000.0)).jobs] == [("s0", "s1")]
    assert len(search(ask(flow, 1000.0, shrink=False, modes=frozenset({Keep.NOTHING}))).jobs) == 2


def test_a_price_buys_time():
    """If core-hours cost nothing, one job lasts all the time; the more they cost, the fewer a plan uses."""
    flow = chain((1, 1000), (64, 500), (1, 1000), (64, 500), (1, 2000))
    plans = [plan for _, plan in priced_frontier(ask(flow, shrink=False), [0.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0])]
    assert len(plans) > 2
    hours = [plan.core_hours for plan in plans]
    spans = [plan.makespan_s for plan in plans]
    assert hours == sorted(hours)
    assert spans == sorted(spans, reverse=True)
    assert plans[0].core_hours == pytest.approx((1 * 4000 + 64 * 1000) / 3600, rel=0.02)


def test_a_narrow_job_is_asked_for_early_since_it_costs_little_to_idle():
    def waits_s(blocks):
        return np.array([np.full(SAMPLES, 0.0) if b.cores > 1 else -500 * np.log1p(-MIDDLES) for b in blocks])

    flow = chain((64, 5000), (1, 100))
    question = ask(flow, 100.0, waits_s, shrink=False, modes=frozenset({Keep.NOTHING, Keep.AWAIT}))
    early = search(question).jobs[1]
    assert early.keep is Keep.AWAIT
    assert (early.start_s <= early.ready_s).mean() > 0.9
    assert 0 < early.idle_s < 5000


def test_what_is_under_way_bounds_what_follows():
    flow = chain((64, 500), (1, 100))
    question = ask(flow, bounds={"s0": np.full(SAMPLES, 1000.0)}, modes=frozenset({Keep.NOTHING}))
    assert search(question).jobs[0].start_s.min() >= 1000.0


def diamond(*, wide=8):
    return Workflow(
        "diamond",
        [
            Stage("split", cores=1, walltime_s=100),
            Stage("left", cores=wide, walltime_s=1000, after=("split",)),
            Stage("right", cores=2, walltime_s=300, after=("split",)),
            Stage("later", cores=2, walltime_s=300, after=("right",)),
            Stage("join", cores=1, walltime_s=100, after=("left", "later")),
        ],
    )


def test_a_graph_comes_apart_into_series_and_parallels():
    after = {stage.name: stage.after for stage in diamond().stages.values()}
    series = take_apart(diamond().order, after)
    assert series.pieces[0] == "split"
    assert series.pieces[2] == "join"
    assert [branch.stages for branch in series.pieces[1]] == [("left",), ("right", "later")]


def test_what_is_neither_is_planned_all_the_same():
    """Four stages like an N: no series, no parallel."""
    stages = [
        Stage(n, cores=1, walltime_s=100, after=after)
        for n, after in (("a", ()), ("b", ()), ("c", ("a",)), ("d", ("a", "b")))
    ]
    sketch = search(ask(Workflow("n", stages)))
    assert sorted(name for job in sketch.jobs for name in job.block.stages) == list("abcd")


@pytest.mark.parametrize("price_s", [0.1, 1e6])
def test_branches_are_planned_side_by_side(price_s):
    """Every stage once, none before those that it follows; together at no price, apart at a high one."""
    flow = diamond(wide=64)
    sketch = search(ask(flow, price_s, exponential(2000.0, 0.0), shrink=False, modes=frozenset({Keep.NOTHING})))
    job_of = {name: job for job in sketch.jobs for name in job.block.stages}
    assert sorted(job_of) == sorted(flow.order)
    for name, job in job_of.items():
        for before in flow.stages[name].after:
            if job_of[before] is not job:
                assert (job.start_s >= job_of[before].end_s - 1e-6).all()
    together = job_of["left"] is job_of["right"]
    assert together == (price_s < 1)


def test_local_stages_share_no_job():
    stages = [Stage("a", cores=2, walltime_s=60), Stage("b", cores=1, walltime_s=60, after=("a",), local=True)]
    assert len(search(ask(Workflow("w", stages), 0.0)).jobs) == 2


def test_fifty_stages_are_planned_quickly():
    """In well under a tenth of a second; `make bench` shows the exact time."""
    rng = np.random.default_rng(0)
    flow = chain(*((int(cores), 600 + i) for i, cores in enumerate(rng.choice([1, 28, 112], 50))))
    assert references(lambda: search(ask(flow))) < 10


def test_run_times_that_stray_are_planned_with():
    """Their mean is above their median, and samples have the given spread."""
    stages = [replace(stage, run_spread=0.5) for stage in chain((64, 1000), (1, 1000)).stages.values()]
    question = ask(Workflow("w", stages), 1000.0, modes=frozenset({Keep.NOTHING}), shrink=False)
    first, second = search(question).jobs
    assert np.log(first.run_s).std() == pytest.approx(0.5, rel=0.05)
    assert first.run_s.mean() == pytest.approx(1000 * np.exp(0.125), rel=0.05)
    assert abs(np.corrcoef(first.run_s, second.run_s)[0, 1]) < 0.4
    [together] = search(ask(Workflow("w", stages), 0.0, modes=frozenset({Keep.NOTHING}))).jobs
    assert np.log(together.run_s).std() == pytest.approx(0.5 / np.sqrt(2), rel=0.1)


def test_no_job_is_longer_than_its_partition_gives():
    flow = chain((8, 1000), (8, 1000), (8, 1000))
    parts = Parts(flow, max_walltime_s=lambda _partition: 3500.0)
    question = Question(parts, exponential(20.0, 0.1), {}, 0.0, age_accrues=False, modes=frozenset({Keep.NOTHING}))
    assert max(len(job.block.stages) for job in search(question).jobs) == 2


def test_a_given_plan_costs_what_the_search_says_of_it():
    for age_accrues in (True, False):
        question = ask(chain((64, 500), (1, 900), (64, 100)), 10.0, age_accrues=age_accrues)
        found = search(question)
        again = sketch_of(question, found.shape)
        assert again.cost_s(10.0) == pytest.approx(found.cost_s(10.0))


def test_branches_in_one_job_run_one_after_the_other():
    """As a batch script runs them."""
    block = Parts(diamond(), resizing=Resizing(1)).block(diamond().order)
    assert block.run_s == 100 + 1000 + 300 + 300 + 100


# ---------------------------------------------------------------------- jobs that grow


def constantly(wait_s):
    return lambda _stage, _cores, _walltime_s: np.full(SAMPLES, wait_s)


@pytest.mark.parametrize(
    ("wait_s", "late_s", "idle_core_s"),
    [
        (0.0, 0.0, 0.0),
        (900.0, 0.0, 0.0),  # asked for that long ahead
        (1100.0, 100.0, 1 * 100.0),  # they cannot be asked for before the job has begun
        (9000.0, 1.5 * 1500 / 4 + 9000.0, 1 * 1.5 * 1500 / 4),  # it is given up, and another asked for
    ],
)
def test_what_a_job_that_grows_is_expected_to_take(wait_s, late_s, idle_core_s):
    """It has 64 cores for 500 s, 1 for 500 s, and 64 for 500 s; each stage's walltime is half as long again."""
    flow = chain((64, 500), (1, 500), (64, 500))
    [(count, block)] = rising(flow, constantly(wait_s)).rising(tuple(flow.order))
    assert (count, block.stages, block.elasticity.widths, block.cores, block.elasticity.shrinks) == (
        3,
        tuple(flow.order),
        (64, 1, 64),
        64,
        True,
    )
    assert set(block.elasticity.late_s) == {late_s}
    assert block.core_hours == pytest.approx((129 * 500 + idle_core_s) / 3600)
    assert block.elasticity.spare_s == max(min(wait_s, 2250 / 4), 120.0)
    assert block.walltime_s == 2250 + block.elasticity.spare_s


@pytest.mark.parametrize(
    ("waits", "late_s", "idle_s"),
    [
        ([400.0, 440.0, 440.0, 500.0], [0.0, 0.0, 0.0, 60.0], 40.0 / 4),  # a little early: they idle
        ([0.0, 440.0, 440.0, 500.0], [(220 + 220 + 280) / 4, 0.0, 0.0, 60.0], 0.0),  # asked for again, 220 s ahead
    ],
)
def test_cores_that_come_early_idle_or_are_asked_for_again(waits, late_s, idle_s):
    flow = chain((1, 1000), (11, 1000))
    [(_, block)] = rising(flow, lambda *_: np.array(waits)).rising(tuple(flow.order))
    assert block.elasticity.late_s.tolist() == late_s
    stands_s = np.mean(late_s)
    assert block.core_hours == pytest.approx((12 * 1000 + 1 * stands_s + 10 * idle_s) / 3600)


def test_more_cores_are_not_asked_for_while_the_machine_does_not_hold_both():
    """The job has 64 of the 100 cores until 500; then 200 s are left."""
    flow = chain((64, 500), (1, 200), (64, 500))
    for most, late_s in ((127, 0.0), (126, 200.0)):
        [(_, block)] = rising(flow, constantly(400.0), max_cores=most).rising(tuple(flow.order))
        assert set(block.elasticity.late_s) == {late_s}


def test_what_cannot_grow_does_not():
    flow = chain((64, 500), (1, 200), (64, 500))
    assert rising(flow, constantly(0.0), shrink_by=0).rising(tuple(flow.order)) == []
    up = chain((1, 500), (64, 200), (1, 100))
    assert [count for count, _ in rising(up, constantly(0.0), shrink_by=0).rising(tuple(up.order))] == [2]
    down = chain((64, 500), (1, 200))
    assert rising(down, constantly(0.0)).rising(tuple(down.order)) == [], "it only shrinks"
    apart = Workflow("w", [replace(stage, retries=1) for stage in up.stages.values()])
    assert rising(apart, constantly(0.0)).rising(tuple(up.order)) == []


@settings(deadline=None, max_examples=40)
@given(chains, st.floats(0, 300), st.floats(0, 50), st.floats(0, 1), st.floats(0, 5), st.booleans())
def test_a_job_grows_only_where_that_costs_less(stages, price_s, per_core_s, per_walltime, wide, shrink):
    """Compared with all divisions into jobs, and all forms of these jobs."""
    waits_s = exponential(per_core_s, per_walltime)

    def more_s(_stage, cores, walltime_s):
        return (wide * per_core_s * cores + per_walltime * walltime_s) * -np.log1p(-MIDDLES)

    options = {"shrink": shrink, "modes": frozenset({Keep.NOTHING})}
    plain = ask(chain(*stages), price_s, waits_s, **options)
    question = ask(chain(*stages), price_s, waits_s, more=more_s, **options)
    names = question.parts.names
    costs = []
    for cuts in itertools.product([False, True], repeat=len(names) - 1):
        places = [0, *(place for place, is_cut in enumerate(cuts, start=1) if is_cut), len(names)]
        shape = [(names[a:b], Keep.NOTHING) for a, b in itertools.pairwise(places)]
        costs.append(sketch_of(question, shape).cost_s(price_s))
    found = search(question).cost_s(price_s)
    assert found == pytest.approx(min(costs))
    assert found <= search(plain).cost_s(price_s) * (1 + 1e-9)


def test_of_plans_that_are_else_alike_the_one_with_fewer_jobs_is_taken():
    question = ask(chain((8, 100), (1, 100), (8, 100)), waits_s=exponential(0.0, 0.0), more=constantly(0.0))
    [job] = search(replace(question, handover_s=1.0)).jobs
    assert job.block.elasticity.widths == (8, 1, 8)


@pytest.mark.parametrize(("count", "most"), [(9, 2), (50, 20)])
def test_stages_are_planned_quickly_where_jobs_grow(count, most):
    flow = chain(*(((1, 28, 112)[i % 3], 600 + i) for i in range(count)))
    question = ask(flow, 1000.0, more=constantly(0.0))
    assert any(job.block.elasticity.widths for job in search(question).jobs)
    assert references(lambda: search(ask(flow, 1000.0, more=constantly(0.0)))) < most
