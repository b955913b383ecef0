"""Placements of requests on a cluster, compared with a planner that tries all seconds and all placements of chunks."""

from collections import Counter
from random import Random

import pytest
from asa.backends.openccs.cluster import PlannedCluster, TooMuchError
from asa.backends.openccs.requests import ResourceRequest
from asa.backends.openccs.rusv import FOREVER, RUSV, UsageSlot
from asa.backends.openccs.system import Admission, CcsSystem, Node, Reserve, oculus
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_planner import Held, PlainPlanner, a_request, a_system, has_one_sort, lasts, totals

BEGIN = 1000
"""Nothing is before this second."""

RANDOMS = st.integers(0, 2**32 - 1).map(Random)
"""Made of a number, what is drawn is as varied as can be."""


class Both:
    """A cluster, and the same cluster second by second."""

    def __init__(self, random):
        self.random = random
        self.system = a_system(random)
        self.cluster = PlannedCluster(self.system)
        self.plain = PlainPlanner(self.system, since=BEGIN)
        self.booked = []

    def prepared(self, request):
        """Return a prepared request, or None if the system has too little in all, the only reason for a refusal."""
        can_be = PlainPlanner(self.system).fits(request, 0)
        try:
            ask = self.cluster.prepare(request)
        except TooMuchError:
            assert not can_be or not has_one_sort(request), f"{request} fits on {self.system}"
            return None
        assert can_be, f"{request} never fits on {self.system}"
        return ask

    def book(self, request, placement):
        self.cluster.book(placement)
        self.plain.hold(Held.placed(request, placement, self.system))
        self.booked.append((request, placement))

    def revoke(self, places):
        """Revoke some of the bookings."""
        gone = set(places)
        self.plain = PlainPlanner(self.system, BEGIN, self.plain.down)
        for place, (request, placement) in enumerate(self.booked):
            if place in gone:
                self.cluster.revoke(placement)
            else:
                self.plain.hold(Held.placed(request, placement, self.system))
        self.booked = [one for place, one in enumerate(self.booked) if place not in gone]

    def fill(self, jobs=6):
        """Book some jobs, each at its first start."""
        for _ in range(jobs):
            request = a_request(self.random, self.system)
            if (ask := self.prepared(request)) is not None:
                placement = self.cluster.find(ask, BEGIN + self.random.randint(0, 20))
                if placement is not None:
                    self.book(request, placement)

    def assert_same(self):
        """Check that usage is equal at each second, of the whole system and of each node."""
        for second in range(BEGIN, self.plain.last + 2):
            told = {name: vector.at(second) for name, vector in self.cluster.used.items()}
            assert told == self.plain.at(second), f"at {second}"
        for node in self.system.nodes:
            for name, vector in self.cluster.used_on(node.name).items():
                counts = self.plain.used[node.name][name]
                told = [vector.at(BEGIN + place) for place in range(-1, len(counts) + 1)]
                assert told == [0, *counts, 0], f"{name} of {node.name}"


def everything(cluster):
    """Return the usage of the system and of each node."""
    return {name: vector.copy() for name, vector in cluster.used.items()}, {
        name: cluster.used_on(name) for name in cluster.names
    }


def system(*nodes, **more):
    return CcsSystem("small", nodes, **more)


def found(cluster, text, since=BEGIN, **more):
    return cluster.find(cluster.prepare(ResourceRequest.parse(text, cluster.system.kinds)), since, **more)


def booked(cluster, text, since=BEGIN):
    placement = found(cluster, text, since)
    cluster.book(placement)
    return placement


# ---------------------------------------------------------------------- against the plain planner


@pytest.mark.full
@settings(max_examples=200)
@given(RANDOMS)
def test_a_request_gets_the_first_start_at_which_it_fits_on_the_cheapest_nodes(random):
    """A request with several sorts of chunks, which are placed greedily, may come later, but never wrongly."""
    both = Both(random)
    for _ in range(8):
        request = a_request(random, both.system)
        if (ask := both.prepared(request)) is None:
            continue
        since = BEGIN + random.choice([0, 0, 5, 10, random.randint(0, 20)])
        end = random.choice([None, None, since + random.randint(1, 40)])
        placement = both.cluster.find(ask, since, end or FOREVER)
        first = both.plain.first(request, since, end)
        if has_one_sort(request):
            assert (placement and placement.start) == first
        if placement is None:
            continue
        assert first is not None
        assert first <= placement.start
        assert since <= placement.start
        assert placement.end == placement.start + lasts(request, both.system) <= (end or placement.end)
        held = Held.placed(request, placement, both.system)
        assert list(both.plain.complaints(held)) == []
        assert both.plain.fits(request, placement.start)
        if has_one_sort(request):
            assert held == both.plain.cheapest(request, placement.start)
        sums = Counter({name: amount for name, amount in totals(request).items() if name in both.system.licences})
        for amounts in held.nodes.values():
            sums.update(amounts)
        assert Counter(placement.totals) == sums
        both.book(request, placement)
        assert list(both.plain.overbooked()) == []
    both.assert_same()


@pytest.mark.full
@settings(max_examples=200)
@given(RANDOMS)
def test_no_second_is_overlooked_where_much_begins_and_ends_at_once(random):
    """Few nodes are full of short jobs, one of which begins in the second in which another ends, or just before."""
    few = [Node(name, {"ncpus": 2}, {"acc": "fpga"}) for name in "abc"]
    small = CcsSystem("dense", (*few, Node("d", {"ncpus": 9})))  # which nobody asks for: in sum there is always room
    cluster, plain = PlannedCluster(small), PlainPlanner(small, since=BEGIN)
    for _ in range(12):
        needs = random.choice(["ncpus=1", "2:ncpus=1", "ncpus=2", "2:ncpus=2", "3:ncpus=1", "3:ncpus=2"])
        more = random.choice(["", "", ",place=scatter", ",place=excl"])
        request = ResourceRequest.parse(f"rset={needs}:acc=fpga{more},walltime={random.randint(1, 4)}s")
        since = BEGIN + random.randint(0, 9)
        placement, first = cluster.find(cluster.prepare(request), since), plain.first(request, since)
        assert placement.start == first
        held = Held.placed(request, placement, small)
        assert held == plain.cheapest(request, first)
        cluster.book(placement)
        plain.hold(held)
        assert list(plain.overbooked()) == []


@pytest.mark.full
@settings(max_examples=200)
@given(RANDOMS)
def test_nodes_that_are_down_take_nothing_and_come_back_as_they_were(random):
    """Bookings on them stay, and count in the system while the nodes are up."""
    both = Both(random)
    both.fill(random.choice([0, 4]))
    names = both.cluster.names
    down = random.sample(names, random.randint(1, len(names) - 1))
    for name in [*down, down[0]]:  # twice is once
        both.cluster.set_up(name, up=False)
    both.plain.down = frozenset(down)
    assert [name for name in names if not both.cluster.is_up(name)] == [name for name in names if name in down]
    both.assert_same()
    for _ in range(6):
        request = a_request(random, both.system)
        if (ask := both.prepared(request)) is None:  # as if all were there
            continue
        placement, first = both.cluster.find(ask, BEGIN), both.plain.first(request, BEGIN)
        if has_one_sort(request):
            assert (placement and placement.start) == first
        if placement is not None:
            assert first is not None
            assert first <= placement.start
            assert not set(both.cluster.names_of(placement)) & set(down)
            both.book(request, placement)
    both.revoke(random.sample(range(len(both.booked)), len(both.booked) // 2))
    both.assert_same()
    for name in down:
        both.cluster.set_up(name, up=True)
    both.plain.down = frozenset()
    both.assert_same()
    fresh = PlannedCluster(both.system)
    assert {name: vector.available for name, vector in both.cluster.used.items()} == {
        name: vector.available for name, vector in fresh.used.items()
    }
    both.revoke(range(len(both.booked)))
    assert everything(both.cluster) == everything(fresh)


@settings(max_examples=200)
@given(RANDOMS)
def test_to_book_and_revoke_is_to_do_nothing(random):
    both = Both(random)
    both.fill()
    before = everything(both.cluster)
    more = []
    for _ in range(5):
        request = a_request(random, both.system)
        if (ask := both.prepared(request)) is not None:
            more.append(both.cluster.find(ask, BEGIN + random.randint(0, 30)))
            both.cluster.book(more[-1])
    random.shuffle(more)
    for placement in more:
        both.cluster.revoke(placement)
    assert everything(both.cluster) == before
    random.shuffle(both.booked)
    for _, placement in both.booked:
        both.cluster.revoke(placement)
    assert everything(both.cluster) == everything(PlannedCluster(both.system))
    assert set(both.cluster._counts.tolist()) == {1}  # nor is anything kept of it


@given(RANDOMS)
def test_what_is_forgotten_changes_nothing_that_is_to_come(random):
    both = Both(random)
    both.fill()
    same = PlannedCluster(both.system)
    for _, placement in both.booked:
        same.book(placement)
    now = BEGIN + random.randint(0, 40)
    same.forget_before(now)
    for second in range(now, both.plain.last + 2):
        for name, vector in both.cluster.used.items():
            assert vector.at(second) == same.used[name].at(second)
        for node in both.cluster.names:
            there = same.used_on(node)
            assert {name: v.at(second) for name, v in both.cluster.used_on(node).items()} == {
                name: v.at(second) for name, v in there.items()
            }
    for _ in range(4):
        request = a_request(random, both.system)
        if (ask := both.prepared(request)) is not None:
            one, other = (cluster.find(ask, now) for cluster in (both.cluster, same))
            assert Held.placed(request, one, both.system) == Held.placed(request, other, both.system)
            both.cluster.book(one)
            same.book(one)
    for _, placement in both.booked:
        if placement.start > now:  # what holds now is taken for held before
            both.cluster.revoke(placement)
            same.revoke(placement)
    for cluster in (both.cluster, same):
        cluster.forget_before(now)
    assert everything(both.cluster) == everything(same)


@settings(max_examples=200)
@given(RANDOMS)
def test_it_tells_from_when_on_the_sum_of_all_is_free_for_long_enough(random):
    both = Both(random)
    both.fill()
    request = a_request(random, both.system)
    if (ask := both.prepared(request)) is None:
        return
    lasts_s, since = lasts(request, both.system), BEGIN + random.randint(0, 10)
    end = since + random.randint(1, 60)
    slots = both.cluster.free_slots(ask, {}, since, end)
    there = {name: vector.available for name, vector in both.cluster.used.items()}
    wanted = totals(request)
    is_free = [
        all(both.plain.at(second)[name] + items <= there[name] for name, items in wanted.items())
        for second in range(since, end)
    ]
    told = [slots.at(second) > 0 for second in range(since, end)]
    starts = range(len(is_free) - lasts_s + 1)
    assert [all(told[at : at + lasts_s]) for at in starts] == [all(is_free[at : at + lasts_s]) for at in starts]
    assert all(is_free[at] for at, there in enumerate(told) if there)
    assert slots.at(since - 1) == slots.at(end) == 0


@settings(max_examples=200)
@given(RANDOMS)
def test_a_consumer_who_sees_less_free_gets_the_first_start_by_what_he_sees(random):
    both = Both(random)
    both.fill()
    request = a_request(random, both.system)
    if request.place.exclusive or not has_one_sort(request) or (ask := both.prepared(request)) is None:
        return
    name = random.choice(list(totals(request)))
    seen = both.cluster.used[name].copy()
    for _ in range(random.randint(1, 3)):
        start = BEGIN + random.randint(0, 40)
        seen.increment(UsageSlot(start, random.choice([0, start + random.randint(1, 15)]), random.randint(1, 6)))
    last = max([both.plain.last, *(slot.stop + 1 for slot in seen)])
    expected = next(
        (
            at
            for at in range(BEGIN, last + 1)
            if both.plain.fits(request, at)
            and all(
                seen.at(second) + totals(request)[name] <= seen.available
                for second in range(at, at + lasts(request, both.system))
            )
        ),
        None,
    )
    placement = both.cluster.find(ask, BEGIN, views={name: seen})
    assert (placement and placement.start) == expected


@given(RANDOMS)
def test_a_node_holds_as_many_jobs_as_there_are(random):
    """There are more jobs than the node has space for at first; another node beside it is not affected."""
    cluster = PlannedCluster(system(Node("a", {"ncpus": 4, "mem": 4}), Node("b", {"ncpus": 1, "mem": 8})))
    placements = [booked(cluster, "rset=ncpus=1:mem=5,walltime=300s")]
    counts = Counter()
    for at in random.sample(range(BEGIN, BEGIN + 200), 90):
        placement = found(cluster, f"rset=ncpus={random.randint(1, 4)}:mem=1,walltime={random.randint(1, 4)}s", at)
        cluster.book(placement)
        assert cluster.names_of(placement) == ["a"]
        placements.append(placement)
        for second in range(placement.start, placement.end):
            counts[second] += placement.totals["ncpus"]
    on_a, on_b = cluster.used_on("a"), cluster.used_on("b")
    assert [on_a["ncpus"].at(second) for second in range(BEGIN, BEGIN + 600)] == [
        counts[second] for second in range(BEGIN, BEGIN + 600)
    ]
    assert on_b == {
        "ncpus": RUSV(1, slots=[UsageSlot(1000, 1299, 1)]),
        "mem": RUSV(8, slots=[UsageSlot(1000, 1299, 5)]),
    }
    random.shuffle(placements)
    for placement in placements:
        cluster.revoke(placement)
    assert everything(cluster) == everything(PlannedCluster(cluster.system))


# ---------------------------------------------------------------------- the paper's words


SMALL, LARGE, GPU = (
    Node("small", {"ncpus": 4}),
    Node("large", {"ncpus": 16}),
    Node("gpu", {"ncpus": 8, "gpus": 1}),
)


def test_cheap_nodes_come_first_and_those_of_a_higher_priority_last():
    cheap = PlannedCluster(system(GPU, LARGE, SMALL))
    assert cheap.names_of(found(cheap, "rset=ncpus=2")) == ["small"]
    assert cheap.names_of(found(cheap, "rset=4:ncpus=3")) == ["small", "large"]
    expensive = PlannedCluster(system(Node("small", {"ncpus": 4}, priority=2), GPU, LARGE))
    assert expensive.names_of(found(expensive, "rset=ncpus=2")) == ["large"]
    assert expensive.names_of(found(expensive, "rset=8:ncpus=3")) == ["large", "gpu", "small"]


def test_the_chunk_that_weighs_most_is_placed_first_on_the_cheapest_node():
    cluster = PlannedCluster(system(LARGE, SMALL))
    placement = found(cluster, "rset=ncpus=1+ncpus=4")
    assert (cluster.names_of(placement), placement.amounts.tolist()) == (["small", "large"], [4, 1])


@pytest.mark.parametrize(
    ("place", "nodes"),
    [("free", ["small"]), ("pack", ["small"]), ("scatter", ["small", "large", "other"]), ("scatter:excl", None)],
)
def test_chunks_are_placed_as_they_should_be(place, nodes):
    cluster = PlannedCluster(system(SMALL, LARGE, Node("other", {"ncpus": 16})))
    placement = found(cluster, f"rset=3:ncpus=1,place={place}")
    assert cluster.names_of(placement) == (nodes or ["small", "large", "other"])
    assert placement.totals["ncpus"] == (3 if nodes else 36)


def test_a_job_that_must_be_on_one_node_fits_on_none_if_it_is_too_large():
    cluster = PlannedCluster(system(SMALL, LARGE))
    assert cluster.names_of(found(cluster, "rset=2:ncpus=3+ncpus=1,place=pack")) == ["large"]
    with pytest.raises(TooMuchError, match=r"even when these are empty|none has that"):
        found(cluster, "rset=6:ncpus=3,place=pack")
    with pytest.raises(TooMuchError, match="no node has acc=fpga and acc=tesla"):
        found(cluster, "rset=ncpus=1:acc=fpga+ncpus=1:acc=tesla,place=pack")


def test_who_is_alone_has_all_of_his_nodes_and_nobody_joins_him():
    cluster = PlannedCluster(system(SMALL, LARGE))
    first = booked(cluster, "rset=2:ncpus=1,place=scatter:excl,walltime=10s")
    assert (cluster.names_of(first), first.totals) == (["small", "large"], {"ncpus": 20})
    second = booked(cluster, "rset=ncpus=1,walltime=10s")
    assert second.start == first.end
    third = booked(cluster, "rset=ncpus=1,place=excl,walltime=5s")
    assert (third.start, cluster.names_of(third)) == (first.end, ["large"])
    assert booked(cluster, "rset=ncpus=5,place=excl,walltime=5s").start == third.end


def test_a_job_may_use_the_chunks_of_its_own_node_together():
    cluster = PlannedCluster(system(LARGE))
    placement = found(cluster, "rset=2:ncpus=2+3:ncpus=4,place=excl")
    assert (cluster.names_of(placement), placement.totals) == (["large"], {"ncpus": 16})


def test_cores_beside_a_gpu_are_kept_for_those_who_use_it():
    cluster = PlannedCluster(system(GPU, reserves=(Reserve("gpus", {"ncpus": 2}),)))
    first = booked(cluster, "rset=3:ncpus=2,walltime=10s")
    assert (first.start, booked(cluster, "rset=ncpus=1,walltime=10s").start) == (BEGIN, BEGIN + 10)
    assert booked(cluster, "rset=ncpus=2:gpus=1,walltime=10s").start == BEGIN
    with pytest.raises(TooMuchError):
        found(cluster, "rset=ncpus=7")
    with pytest.raises(TooMuchError):
        found(cluster, "rset=ncpus=1,place=excl")
    assert found(cluster, "rset=ncpus=1:gpus=1,place=excl,walltime=1s").start == BEGIN + 20


def test_a_node_takes_what_is_large_or_short():
    node = Node("smp", {"ncpus": 32, "mem": 99}, admits=(Admission({"ncpus": 17}), Admission({"mem": 66}, 20)))
    node = Node(node.name, node.resources, admits=(*node.admits, Admission(at_most_s=10)))
    cluster = PlannedCluster(system(node))
    for text in ("ncpus=17,walltime=1h", "ncpus=1:mem=66,walltime=20s", "ncpus=1,walltime=10s"):
        assert found(cluster, f"rset={text}").start == BEGIN
    for text in ("ncpus=16,walltime=11s", "ncpus=1:mem=66,walltime=21s", "2:ncpus=9,walltime=1h"):
        with pytest.raises(TooMuchError):
            found(cluster, f"rset={text}")
    assert found(cluster, "rset=2:ncpus=9,place=pack,walltime=1h").start == BEGIN


def test_licences_are_counted_in_all():
    cluster = PlannedCluster(system(SMALL, LARGE, licences={"g03": 3}))
    assert booked(cluster, "rset=ncpus=1,sw=g03,g03=1,walltime=10s").totals == {"ncpus": 1, "g03": 2}
    assert booked(cluster, "rset=ncpus=1,g03=2,walltime=10s").start == BEGIN + 10
    assert booked(cluster, "rset=ncpus=1,sw=g03,walltime=10s").start == BEGIN
    for text, why in (("g03=4", "asks for 4 of g03, of which there are 3"), ("sw=other", "of which there are 0")):
        with pytest.raises(TooMuchError, match=why):
            found(cluster, f"rset=ncpus=1,{text}")


def test_the_papers_requests_fit_on_a_cluster_like_its_own():
    cluster = PlannedCluster(oculus())
    plain = PlainPlanner(cluster.system)
    for text in (
        "rset=8:ncpus=2:mem=10g:net=IB",
        "rset=ncpus=27:vmem=20g:arch=linux+4:ncpus=1:acc=phi",
        "rset=5:ncpus=16:mem=12g:net=IB+ncpus=1:mem=4g,sw=g03,place=scatter:excl",
    ):
        request = ResourceRequest.parse(text, cluster.system.kinds)
        placement = booked(cluster, text)
        assert placement.start == BEGIN
        assert list(plain.complaints(Held.placed(request, placement, cluster.system))) == []
    with pytest.raises(TooMuchError):
        found(cluster, "rset=8:ncpus=2:mem=10g:rack=8")


# ---------------------------------------------------------------------- what is easily forgotten


def test_chunks_that_take_nothing_keep_out_of_nodes_that_are_somebodys_own():
    fpga = Node("fpga", {"ncpus": 4}, {"acc": "fpga"})
    cluster = PlannedCluster(system(fpga, LARGE))
    alone = booked(cluster, "rset=ncpus=4:acc=fpga,place=excl,walltime=10s")
    assert found(cluster, "rset=ncpus=1+2:acc=fpga,walltime=5s").start == alone.end
    other = PlannedCluster(system(fpga, LARGE))
    guest = booked(other, "rset=ncpus=5+2:acc=fpga,walltime=10s")
    assert found(other, "rset=ncpus=4:acc=fpga,place=excl,walltime=5s").start == guest.end


def test_a_request_may_be_for_what_nodes_are_alone():
    cluster = PlannedCluster(system(SMALL, Node("fpga", {"ncpus": 4}, {"acc": "fpga"})))
    assert cluster.names_of(found(cluster, "rset=2:acc=fpga,walltime=5s")) == ["fpga"]


def test_what_a_job_asks_for_on_no_node_is_held_or_refused():
    cluster = PlannedCluster(system(Node("a", {"ncpus": 4, "mem": 10})))
    try:
        first = booked(cluster, "rset=ncpus=1,mem=6,walltime=10s")
    except TooMuchError:
        return
    assert first.totals["mem"] == 6
    assert found(cluster, "rset=ncpus=1,mem=6,walltime=10s").start == first.end


def test_a_limit_below_a_whole_node_ends_the_search(monkeypatch):
    """A job that needs the node alone can never have it, and the search does not go through all seconds."""
    cluster, searches = PlannedCluster(system(LARGE)), Counter()
    search = cluster._search
    half = RUSV(16, slots=[UsageSlot(0, 0, 8)])

    def counted(*arguments, **more):
        searches.update(["search"])
        assert searches["search"] < 100, "it searches on and on"
        return search(*arguments, **more)

    monkeypatch.setattr(cluster, "_search", counted)
    assert found(cluster, "rset=ncpus=4,place=excl,walltime=10s", views={"ncpus": half}) is None


def test_who_is_alone_waits_until_he_may_have_a_whole_node():
    cluster = PlannedCluster(system(LARGE))
    half = RUSV(16, slots=[UsageSlot(0, BEGIN + 99, 8)])
    assert found(cluster, "rset=ncpus=4,place=excl,walltime=10s", views={"ncpus": half}).start == BEGIN + 100


@pytest.mark.parametrize("since", [0, 1])
def test_a_job_of_a_second_at_the_beginning_of_time_ends(since):
    cluster = PlannedCluster(system(SMALL))
    first = booked(cluster, "rset=ncpus=4,walltime=1s", since)
    assert booked(cluster, "rset=ncpus=4,walltime=1s", since).start == first.end
    assert cluster.used["ncpus"].at(since + 2) == cluster.used_on("small")["ncpus"].at(since + 2) == 0
