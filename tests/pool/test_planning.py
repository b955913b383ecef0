"""Decisions of a pool."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError
from asa.pool.planning import PoolSlot, decide, drain_from_s, rehearse, surplus
from asa.pool.values import AllocationShape, Decision, PoolRules, TaskKind, View
from asa.waits import WaitForecast

HOUR = 3600.0
FOUR, EIGHT = AllocationShape(4, HOUR), AllocationShape(8, 2 * HOUR, threads=2, tags=frozenset({"train"}))
TRAIN = frozenset({("train", 1.0)})


def waits(median_s, spread=2.0):
    """A forecast whose p10 and p90 are that many times less and more."""
    return WaitForecast(tuple(median_s * spread ** (k / 4) for k in range(-4, 5)), median_s)


def alive(name, shape=FOUR, start_s=-600.0, idle_s=0.0, **changes):
    until_s = start_s + shape.walltime_s - 60.0
    return View(name, shape, start_s - 60.0, waits(60.0), start_s=start_s, until_s=until_s, idle_s=idle_s, **changes)


def pending(name, shape=FOUR, asked_s=-60.0, wait_s=600.0, **changes):
    return View(name, shape, asked_s, waits(wait_s), **changes)


forecasts = st.builds(waits, st.floats(0.0, 1e5), st.floats(1.0, 10.0))
shapes = st.sampled_from([FOUR, EIGHT, AllocationShape(16, 600.0)])
kinds = st.lists(
    st.builds(TaskKind, st.integers(0, 5000), st.floats(0.0, 5000.0), st.sampled_from([frozenset(), TRAIN])), max_size=4
)


@st.composite
def pools(draw):
    views = []
    for number in range(draw(st.integers(0, 5))):
        shape = draw(shapes)
        pinned = draw(st.booleans())
        if draw(st.booleans()):
            start_s = -draw(st.floats(0.0, shape.walltime_s))
            idle_s = draw(st.sampled_from([0.0, 1.0, -start_s]))
            views.append(alive(f"a{number}", shape, start_s, idle_s, is_pinned=pinned))
        else:
            asked_s = -draw(st.floats(0.0, 1e5))
            useless_s = draw(st.sampled_from([0.0, 10.0, -asked_s]))
            views.append(replace(pending(f"a{number}", shape, asked_s), useless_s=useless_s, is_pinned=pinned))
    return views


rules = st.builds(
    PoolRules,
    minimum=st.integers(0, 20),
    maximum=st.integers(20, 100),
    price=st.floats(0.1, 1000.0),
    max_waiting=st.none() | st.integers(0, 6),
    is_fixed=st.booleans(),
)
offers = st.dictionaries(shapes, forecasts, min_size=1, max_size=3)


@given(kinds, pools(), offers, rules)
def test_what_is_decided_keeps_to_the_rules(work, views, offered, how):
    """Bounds on cores and on the queue hold, pinned and busy allocations stay, nothing is asked for while some goes."""
    told = decide(0.0, work, views, offered, how)
    of = {view.id: view for view in views}
    have, asked = sum(view.shape.cores for view in views), sum(shape.cores for shape in told.ask)
    staying = sum(
        v.shape.cores for v in views if v.until_s is None or v.until_s > max(f.at(1.0) for f in offered.values())
    )
    if told.ask:
        assert staying + asked <= max(how.maximum, how.minimum + max(s.cores for s in told.ask))
        assert how.max_waiting is None or sum(v.start_s is None for v in views) + len(told.ask) <= how.max_waiting
        assert not told.withdraw
        assert not told.give_back
    assert all(of[name].start_s is None and not of[name].is_pinned for name in told.withdraw)
    excess = sum(v.shape.cores for v in views if v.start_s is not None) > how.maximum
    assert all((of[name].idle_s > 0 or excess) and not of[name].is_pinned for name in told.give_back)
    parted = sum(of[name].shape.cores for name in (*told.withdraw, *told.give_back))
    assert not parted or have - parted >= how.minimum
    assert not (how.is_fixed and parted)


@given(kinds, pools(), offers, rules)
def test_deciding_is_a_function(work, views, offered, how):
    """The same question has the same answer, and nothing that is asked about is changed."""
    kept = list(work), list(views), dict(offered)
    assert decide(0.0, work, views, offered, how) == decide(0.0, work, views, offered, how)
    assert (work, views, offered) == kept


@given(pools(), offers)
def test_nothing_is_asked_for_where_nothing_is_to_be_done(views, offered):
    """An empty graph asks for nothing."""
    assert decide(0.0, [], views, offered, PoolRules()).ask == ()


@given(st.integers(1, 10_000), st.floats(0.1, 3000.0), forecasts, st.floats(0.1, 1000.0))
def test_work_that_nobody_would_do_is_asked_for_at_once(tasks, task_s, forecast, price):
    """No work starves, at whatever price."""
    assert decide(0.0, [TaskKind(tasks, task_s)], [], {FOUR: forecast}, PoolRules(price=price)).ask


@pytest.mark.full
@given(pools(), kinds, st.floats(0.01, 3.9), offers)
def test_what_waits_survives_wobbling_demand(views, work, times, offered):
    """Demand that comes down at once to nothing, or changes, costs no place in the queue."""
    fresh = [replace(view, useless_s=0.0) for view in views]
    wobbled = [kind._replace(tasks=int(kind.tasks * times)) for kind in work]
    assert decide(0.0, wobbled, fresh, offered, PoolRules()).withdraw == ()
    assert decide(0.0, [], fresh, offered, PoolRules()).withdraw == ()


def test_what_waits_is_withdrawn_when_it_was_useless_for_as_long_as_it_would_take_to_get_again():
    """Then a new wait costs no more than was saved."""
    waiting = pending("a1", wait_s=600.0)
    told = decide(0.0, [], [waiting], {FOUR: waits(600.0)}, PoolRules())
    assert (told.withdraw, told.useless) == ((), {"a1"})
    for useless_s, withdrawn in ((605.0, ()), (611.0, ("a1",))):
        seen = replace(waiting, useless_s=useless_s)
        assert decide(0.0, [], [seen], {FOUR: waits(600.0)}, PoolRules()).withdraw == withdrawn
    busy = alive("a2")
    short = [TaskKind(4, 10.0)]  # done four times over before the other can start
    long_ = [TaskKind(40, 100.0)]
    seen = replace(waiting, useless_s=1e6)
    assert decide(0.0, short, [seen, busy], {FOUR: waits(600.0)}, PoolRules()).withdraw == ("a1",)
    assert decide(0.0, long_, [seen, busy], {FOUR: waits(600.0)}, PoolRules()).useless == frozenset()


def test_what_waits_counts_at_once():
    """A second look before anything started asks for nothing more."""
    work, offered, how = [TaskKind(400, 60.0)], {FOUR: waits(600.0)}, PoolRules(maximum=64)
    first = decide(0.0, work, [], offered, how).ask
    assert first
    views = [pending(f"a{n}", shape, asked_s=0.0) for n, shape in enumerate(first)]
    assert decide(1.0, work, views, offered, how).ask == ()


def test_a_higher_price_buys_more():
    """Time and cores are weighed against each other."""
    work, offered = [TaskKind(1000, 36.0)], {FOUR: waits(60.0)}
    asked = [sum(s.cores for s in decide(0.0, work, [], offered, PoolRules(price=p)).ask) for p in (0.5, 10.0, 1000.0)]
    assert asked == sorted(asked)
    assert asked[0] < asked[-1] <= 1000


def test_a_wave_to_come_is_asked_for_a_wait_ahead():
    """Not now while that would idle, and not so late that the work waits."""
    views = [alive("a1", start_s=-60.0)]
    work = [TaskKind(4, 1800.0), TaskKind(400, 60.0)]
    offered = {FOUR: waits(300.0, spread=1.1)}
    assert decide(0.0, work, views, offered, PoolRules(price=10.0)).ask == ()
    soon = [TaskKind(4, 300.0), TaskKind(400, 60.0)]
    assert decide(0.0, soon, views, offered, PoolRules(price=10.0)).ask


def test_what_will_be_done_soon_asks_for_nothing():
    """The last tasks of a graph are waited for rather than a job."""
    assert decide(0.0, [TaskKind(40, 10.0)], [alive("a1")], {FOUR: waits(600.0)}, PoolRules()).ask == ()


def test_what_ends_is_renewed_a_wait_ahead():
    """A pool that is to be kept is asked for again before its walltime ends, also where it is full."""
    offered, how = {FOUR: waits(600.0, spread=1.0)}, PoolRules(minimum=4, maximum=4, is_fixed=True)
    for age_s, asked in ((1000.0, 0), (HOUR - 60 - 500, 1)):
        views = [alive("a1", start_s=-age_s)]
        assert len(decide(0.0, [], views, offered, how).ask) == asked
    work = [TaskKind(100, 600.0)]
    assert decide(0.0, work, [alive("a1", start_s=-3000.0)], offered, PoolRules(maximum=4)).ask == (FOUR,)


def test_the_minimum_is_met_exactly():
    """The last job is as large as what is missing."""
    told = decide(
        0.0, [], [], {AllocationShape(8, HOUR, threads=2, gpus=4, memory_bytes=800): waits(1.0)}, PoolRules(minimum=10)
    )
    assert [(s.cores, s.gpus, s.memory_bytes) for s in told.ask] == [(8, 4, 800), (2, 1, 200)]


def test_an_idle_allocation_is_kept_until_its_idling_has_cost_another_wait():
    """The rule of who rents until he has paid the price: never more than twice what hindsight pays."""
    offered, how = {FOUR: waits(60.0)}, PoolRules(price=10.0, startup_s=10.0)
    again = 10.0 * 70.0 / 4
    for idle_s, back in ((again - 1, ()), (again + 1, ("a1",))):
        assert decide(0.0, [], [alive("a1", idle_s=idle_s)], offered, how).give_back == back
    expensive = {FOUR: waits(3000.0)}  # the rest of the walltime costs less than that
    assert decide(0.0, [], [alive("a1", idle_s=3000.0, start_s=-3400.0)], expensive, how).give_back == ()
    assert decide(0.0, [TaskKind(400, 60.0)], [alive("a1", idle_s=900.0)], offered, how).give_back == ()
    both = [alive("a1", idle_s=again / 2 + 1), alive("a2", idle_s=again / 2 - 1)]  # one wait gets both again
    assert decide(0.0, [], both, offered, how).give_back == ("a1",)


def test_a_gap_that_is_known_is_bridged_or_slept_through():
    """What will be needed again soon stays; what can be got again in time, for less, goes at once."""
    offered, how = {FOUR: waits(60.0, spread=1.2)}, PoolRules(price=10.0, startup_s=10.0, maximum=8)
    views = [alive("a1", start_s=-60.0), alive("a2", start_s=-60.0, idle_s=1.0)]
    for gap_s, back in ((20.0, ()), (1500.0, ("a2",))):
        told = decide(0.0, [TaskKind(1, gap_s), TaskKind(80, 60.0)], views, offered, how)
        assert (told.give_back, told.ask) == (back, ())


def test_a_renewal_that_comes_early_relieves_what_ends_first():
    """The maximum is kept to, and no work is lost."""
    views = [alive("a1", start_s=-3000.0), alive("a2", start_s=-600.0), alive("a3", start_s=-10.0)]
    how, offered = PoolRules(maximum=8), {FOUR: waits(60.0)}
    assert decide(0.0, [TaskKind(400, 60.0)], views, offered, how).give_back == ("a1",)
    pinned = [replace(views[0], is_pinned=True), *views[1:]]
    assert decide(0.0, [TaskKind(400, 60.0)], pinned, offered, how).give_back == ("a2",)


def test_idle_cores_are_counted_wave_by_wave():
    """Those that work of few tasks leaves, and those that came early."""
    told = rehearse(
        0.0, [TaskKind(2, 10.0), TaskKind(8, 5.0)], [PoolSlot(4, 0.0, 100.0, 0.0), PoolSlot(4, 5.0, 100.0, 5.0)]
    )
    assert (told.end_s, told.idle) == (15.0, (2 * 10.0 + 4 * 5.0, 0.0))


def test_tasks_with_needs_get_what_serves_them():
    """A tag leads to the shape that has it, and to none if there is none."""
    offered = {FOUR: waits(60.0), EIGHT: waits(600.0)}
    assert set(decide(0.0, [TaskKind(10, 100.0, TRAIN)], [alive("a1")], offered, PoolRules(maximum=20)).ask) == {EIGHT}
    assert decide(0.0, [TaskKind(10, 100.0, TRAIN)], [], {FOUR: waits(60.0)}, PoolRules()).ask == ()


def test_tasks_longer_than_a_walltime_get_a_longer_one():
    """No job is asked for in which nothing could end."""
    offered = {AllocationShape(4, 600.0): waits(1.0), EIGHT: waits(600.0)}
    assert set(decide(0.0, [TaskKind(10, 1000.0)], [], offered, PoolRules(maximum=20)).ask) == {EIGHT}


def test_coming_down_parts_with_what_waits_first():
    """Then with what idles longest, and with what works last."""
    views = [alive("a1"), pending("a2"), alive("a3", idle_s=5.0), pending("a4", asked_s=-1.0), alive("a5", idle_s=9.0)]
    for cores, withdrawn, back in (
        (16, ("a4",), ()),
        (11, ("a4", "a2"), ()),
        (8, ("a4", "a2"), ("a5",)),
        (0, ("a4", "a2"), ("a5", "a3", "a1")),
    ):
        told = surplus(0.0, views, cores)
        assert (told.withdraw, told.give_back) == (withdrawn, back)


@given(
    kinds,
    st.lists(st.builds(PoolSlot, st.integers(1, 64), st.floats(0, 1e4), st.floats(0, 1e4), st.just(0.0)), max_size=5),
)
def test_rehearsals_neither_lose_nor_make_work(work, slots):
    """What is done and what is left is all there is, and no more is done than the cores can do."""
    told = rehearse(0.0, work, slots)
    total = sum(kind.tasks * kind.task_s for kind in work)
    able = sum(slot.cores * max(slot.until_s - slot.from_s, 0.0) for slot in slots)
    assert -1e-6 <= told.left <= total * (1 + 1e-9)
    assert total - told.left <= able * (1 + 1e-9) + 1e-6
    assert len(told.begins_s) == len(work)
    assert list(told.begins_s) == sorted(told.begins_s)


def test_a_job_that_has_waited_long_is_expected_later():
    """That it has not started yet is news; what the batch system says is the latest."""
    view = pending("a1", asked_s=0.0, wait_s=100.0)
    starts = [view.starts_s(now_s, 0.5) - now_s for now_s in (0.0, 150.0, 400.0)]
    assert starts[0] == pytest.approx(100.0)
    assert starts[1] > 0
    assert starts[2] > starts[1]
    assert replace(view, expected_start_s=30.0).starts_s(0.0, 0.5) == 30.0
    assert replace(view, expected_start_s=30.0).starts_s(50.0, 0.5) == 50.0


def test_shapes_that_cannot_be_are_refused():
    """The message says what to give."""
    for wrong in ({"cores": 3, "threads": 2}, {"cores": 0}, {"walltime_s": 0.0}, {"tags": frozenset({"a b"})}):
        with pytest.raises(InputError):
            AllocationShape(**{"cores": 4, "walltime_s": 60.0, **wrong})


def test_an_allocation_takes_no_task_that_it_could_not_end():
    """But one that is longer than half of it."""
    assert drain_from_s(1000.0, 100.0, 0.0) == 900.0
    assert drain_from_s(1000.0, 900.0, 0.0) == 500.0


# ---------------------------------------------------------------------- a world of one pool and a queue


class World:
    """A queue whose waits are known, and work in bursts that are known only when they come."""

    def __init__(self, wait_s, bursts, shape=FOUR):
        self.wait_s, self.bursts, self.shape = wait_s, list(bursts), shape
        self.now, self.views, self.count = 0.0, [], 0
        self.queue, self.left = [], 0.0
        self.paid = self.withdrawn = self.asked = 0

    def kinds(self):
        return [TaskKind(max(1, math.ceil(work / task_s)), task_s) for work, task_s in self.queue]

    def run(self, decide_, step_s=10.0, max_s=1e6):
        while (self.queue or self.bursts) and self.now < max_s:
            self.now += step_s
            self.step(step_s)
            told = decide_(self.now, self.kinds(), self.views)
            for name in (*told.withdraw, *told.give_back):
                self.withdrawn += name in told.withdraw
                self.views = [view for view in self.views if view.id != name]
            for shape in told.ask:
                self.count += 1
                self.views.append(View(f"a{self.count}", shape, self.now, waits(self.wait_s, 1.5)))
            for view in list(self.views):
                if view.id in told.useless:
                    self.change(view, useless_s=view.useless_s + step_s)
                else:
                    self.change(view, useless_s=0.0)
        return self.now

    def change(self, view, **changes):
        self.views = [replace(other, **changes) if other.id == view.id else other for other in self.views]

    def step(self, step_s):
        """Start what has waited, end what has run, and work."""
        while self.bursts and self.bursts[0][0] <= self.now:
            self.queue += [list(kind) for kind in self.bursts.pop(0)[1]]
        for view in list(self.views):
            if view.start_s is None and self.now - view.asked_s >= self.wait_s:
                self.change(view, start_s=self.now, until_s=self.now + view.shape.walltime_s - 60.0)
            elif view.until_s is not None and view.until_s <= self.now:
                self.views = [other for other in self.views if other.id != view.id]
        running = [view for view in self.views if view.start_s is not None]
        cores = sum(view.shape.cores for view in running)
        self.paid += cores * step_s
        able = cores * step_s
        busy = bool(self.queue)
        while self.queue and able > 0:
            done = min(able, self.queue[0][0])
            self.queue[0][0] -= done
            able -= done
            if self.queue[0][0] > 1e-9:
                break
            self.queue.pop(0)
        for view in running:
            self.change(view, idle_s=0.0 if busy else view.idle_s + step_s)


def ahead(world, **changes):
    how = PoolRules(**{"maximum": 64, "startup_s": 0.0, **changes})
    return lambda now, work, views: decide(now, work, views, {world.shape: waits(world.wait_s, 1.5)}, how)


def reactive(world, most=16, target_s=5.0):
    """As dask's own: as many as would do the work in five seconds; what has not started goes first, at once."""

    def decide_(now, work, views):
        total = sum(kind.tasks * kind.task_s for kind in work)
        wide = sum(kind.tasks for kind in work[:1])
        target = min(math.ceil(min(total / target_s, wide) / world.shape.cores), most)
        if target >= len(views):
            return Decision(ask=(world.shape,) * (target - len(views)))
        return surplus(now, views, target * world.shape.cores)

    return decide_


# a program that computes, looks at what came out, and computes again
BURSTS = [(t, [(4 * 64 * 300.0, 60.0)]) for t in (0.0, 3000.0, 6000.0, 9000.0)]


def test_asking_ahead_is_sooner_and_cancels_nothing():
    """Where jobs wait, who cancels when demand is gone for a moment waits again and again."""
    rival, ours = World(HOUR, BURSTS), World(HOUR, BURSTS)
    rival_s, ours_s = rival.run(reactive(rival)), ours.run(ahead(ours))
    assert rival.withdrawn > ours.withdrawn == 0
    assert ours_s < 0.8 * rival_s
    assert ours.paid <= 1.01 * rival.paid


def test_the_price_buys_time():
    """Idle cores are kept for work to come, or not, as it says."""
    thrifty, hasty = World(1200.0, BURSTS), World(1200.0, BURSTS)
    assert hasty.run(ahead(hasty, price=100.0)) < thrifty.run(ahead(thrifty, price=1.0))
    assert hasty.paid > thrifty.paid


def test_a_growing_graph_finds_its_cores_waiting():
    """The second level of a graph begins on cores that were asked for while the first ran."""
    graph = [(0.0, [(4 * 3600.0, 900.0), (64 * 600.0, 60.0)])]
    known, late = World(1200.0, graph), World(1200.0, graph)

    def first_only(now, work, views):
        return ahead(late)(now, work[:1], views)

    assert known.run(ahead(known)) < late.run(first_only)


def test_no_pool_lives_on_without_work():
    """When all is done everything goes, at a cost that the price bounds."""
    world = World(60.0, [(0.0, [(64 * 60.0, 60.0)]), (20_000.0, [(60.0, 60.0)])])
    decide_ = ahead(world)
    world.run(decide_, max_s=19_000.0)
    assert world.views == []
