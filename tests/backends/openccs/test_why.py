"""Reasons why a job is not planned earlier: binding constraints, first lacks, and holders; the plan stays as it is."""

import copy
import random

import numpy as np
import pytest
from asa.backends.openccs.consumers import Consumers
from asa.backends.openccs.jobs import CcsJob, JobPhase, RefusedError
from asa.backends.openccs.lacks import LackCause
from asa.backends.openccs.limits import Access, FreePool, Items, Limit
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.requests import ResourceRequest
from asa.backends.openccs.system import Admission, CcsSystem, Node, Reserve, oculus
from asa.backends.openccs.why import why
from asa.backends.openccs.words import clock, names
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.errors import InputError

HOUR = 3600


def planned(system, *asked, limits=(), pools=(), now=0):
    """Plan requests, each a text, or a user, a name and a text."""
    plan = RequestPlan(system)
    plan.consumers = Consumers(plan.cluster.used, limits, pools)
    for number, one in enumerate(asked, start=1):
        user, name, text = one if isinstance(one, tuple) else ("", str(number), one)
        plan.submit(ResourceRequest.parse(text, system.kinds), now=now, user=user, group="", name=name)
    return plan


def cluster(many=4, *, cores=8, **more):
    return CcsSystem("c", tuple(Node(f"n{i}", {"ncpus": cores}) for i in range(1, many + 1)), **more)


def without(told, cause, of=None):
    """Return when the job would start without a constraint."""
    [one] = [c for c in told.constraints if c.cause is cause and of in {None, c.of}]
    return one.start_s


def binding(told):
    """Name the constraints without one of which a job would start sooner."""
    return {(one.cause, one.of) for one in told.constraints if one.start_s is not None}


def lack(told):
    [one] = told.moment.lacks
    return one


def facts(plan):
    """Return all facts of a plan."""
    nodes = {name: plan.cluster.used_on(name) for name in plan.cluster.names}
    return copy.deepcopy((plan.jobs, plan.cluster.used, nodes, [plan.cluster.is_up(n) for n in plan.cluster.names]))


# ---------------------------------------------------------------------- what binds


def test_other_jobs_hold_what_it_needs():
    """The answer names the resource, which would suffice without those jobs, and who holds how much until when."""
    plan = planned(
        cluster(), ("ann", "big", "rset=3:ncpus=8,walltime=2h"), ("bob", "next", "rset=2:ncpus=8,walltime=1h")
    )
    told = why(plan, "next", now=0)
    assert told.job.start_s == 2 * HOUR
    assert binding(told) == {(LackCause.JOBS, "ncpus")}
    assert without(told, LackCause.JOBS) == 0
    short = lack(told)
    assert (short.cause, short.of, short.at_s, short.needed, short.free) == (LackCause.JOBS, "ncpus", 0, 16, 8)
    [holder] = short.holders
    assert (holder.job, holder.user, holder.items, holder.until_s) == ("big", "ann", 24, 2 * HOUR)
    assert told.sentences()[1] == (
        "At 0:00:00: it needs 16 cores for 1h00m; then only 8 are free: job big (24 cores until 2:00:00) holds what is "
        "used."
    )


def test_it_would_fit_in_here():
    """There is space at the time in question, but too briefly: the answer says until which second, and for whom."""
    plan = planned(
        cluster(),
        "rset=2:ncpus=8,walltime=1h",
        "rset=3:ncpus=8,walltime=2h,start=1970-01-01T03:00",
        "rset=2:ncpus=8,walltime=4h",
    )
    told = why(plan, "3", now=0, at=2 * HOUR)
    assert told.job.start_s == 5 * HOUR
    short = lack(told)
    assert (short.at_s, short.free, [holder.job for holder in short.holders]) == (3 * HOUR, 8, ["2"])
    assert "At 2:00:00: it needs 16 cores for 4h00m; from 3:00:00 on only 8 are free" in told.sentences()[1]


def test_a_licence_binds():
    """A resource that belongs to no node is treated like others."""
    system = cluster(licences={"g03": 1})
    plan = planned(system, "rset=ncpus=1,sw=g03,walltime=1h", "rset=ncpus=1,sw=g03,walltime=1h")
    told = why(plan, "2", now=0)
    assert binding(told) == {(LackCause.JOBS, "g03")}
    assert "none is free: job 1 (1 g03 until 1:00:00) holds what is used" in lack(told).words


def test_enough_in_all_but_on_no_node():
    """There are cores enough, but a chunk is not split: how many have room, on how many nodes, and beside whom."""
    plan = planned(cluster(), *["rset=ncpus=5,walltime=2h"] * 3, "rset=3:ncpus=4,walltime=1h")
    told = why(plan, "4", now=0)
    assert told.job.start_s == 2 * HOUR
    assert binding(told) == {(LackCause.JOBS, "ncpus"), (LackCause.CHUNKS, "")}
    room = lack(told)
    assert (room.cause, room.needed, room.free) == (LackCause.CHUNKS, 3, 2)
    assert sorted((holder.job, holder.items) for holder in room.holders) == [("1", 1), ("2", 1), ("3", 1)]
    assert room.words.startswith("only 2 of its 3 chunks (4 cores each) have room, on 1 of 4 nodes that would do, ")
    assert "though 17 cores are free in all: jobs " in room.words


def test_room_that_goes_away_is_told_from_the_second_it_does():
    """A node that is full later does not have space for long enough."""
    plan = planned(
        cluster(2), "rset=2:ncpus=5,walltime=1h,start=1970-01-01T01:00,place=scatter", "rset=ncpus=4,walltime=2h"
    )
    told = why(plan, "2", now=0, at=1800)
    assert told.job.start_s == 2 * HOUR
    room = lack(told)
    assert (room.cause, room.at_s, room.free) == (LackCause.CHUNKS, HOUR, 0)
    assert room.words.startswith("from 1:00:00 on its only chunk (4 cores) has room on none of the 2 nodes")


@pytest.mark.parametrize(
    ("before", "text", "of"),
    [
        ("rset=ncpus=8", "rset=2:ncpus=1,walltime=1h,place=scatter", "scatter"),
        ("rset=2:ncpus=3,place=scatter", "rset=3:ncpus=2,walltime=1h,place=pack", "pack"),
        ("rset=2:ncpus=3,place=scatter", "rset=ncpus=1,walltime=1h,place=excl", "excl"),
    ],
)
def test_a_placement_binds(before, text, of):
    """Without its wishes for nodes, the job would start at once."""
    plan = planned(cluster(2), f"{before},walltime=2h", text)
    told = why(plan, "2", now=0)
    assert (LackCause.PLACE, of) in binding(told)
    assert without(told, LackCause.PLACE) == 0
    assert lack(told).cause is LackCause.CHUNKS


def test_sorts_of_chunks_that_need_the_same_node():
    """Each sort of chunks fits on the one node that is free for both."""
    nodes = (
        Node("a", {"ncpus": 4}, {"acc": "x"}, priority=1),
        Node("b", {"ncpus": 4}),
        Node("c", {"ncpus": 2}),
        Node("d", {"ncpus": 2}),
    )
    plan = planned(CcsSystem("s", nodes), "rset=ncpus=4,walltime=2h", "rset=ncpus=4+ncpus=4:acc=x,walltime=1h")
    assert plan.cluster.names_of(plan.jobs["1"].placement) == ["b"]
    told = why(plan, "2", now=0)
    assert told.job.start_s == 2 * HOUR
    assert lack(told).words == "each sort of its chunks finds room, but not all of them at once"


def test_a_property_binds():
    """The answer says how many nodes have it."""
    nodes = (Node("a", {"ncpus": 4}, {"acc": "tesla"}), Node("b", {"ncpus": 4}), Node("c", {"ncpus": 4}))
    plan = planned(CcsSystem("s", nodes), "rset=ncpus=4:acc=tesla,walltime=2h", "rset=ncpus=2:acc=tesla,walltime=1h")
    told = why(plan, "2", now=0)
    assert (LackCause.PROPERTY, "acc=tesla") in binding(told)
    [words] = [one.words for one in told.constraints if one.cause is LackCause.PROPERTY]
    assert words == "acc=tesla, which 1 of 3 nodes have"
    assert "none of the 1 nodes that would do" in lack(told).words


def test_what_is_kept_for_others_binds():
    """Cores beside a GPU are kept free for jobs that request one."""
    nodes = (Node("a", {"ncpus": 4, "gpus": 1}), Node("b", {"ncpus": 2}))
    system = CcsSystem("s", nodes, reserves=(Reserve("gpus", {"ncpus": 2}),))
    plan = planned(system, "rset=ncpus=2,walltime=2h", "rset=ncpus=2,walltime=2h", "rset=ncpus=2,walltime=1h")
    told = why(plan, "3", now=0)
    assert told.job.start_s == 2 * HOUR
    assert (LackCause.RESERVE, "gpus") in binding(told)
    assert without(told, LackCause.RESERVE) == 0


def test_nodes_that_let_nobody_like_it_in_bind():
    """A node for large jobs is free, and a small job may not use it."""
    nodes = (Node("a", {"ncpus": 4}), Node("smp", {"ncpus": 32}, admits=(Admission({"ncpus": 5}),)))
    plan = planned(CcsSystem("s", nodes), "rset=ncpus=4,walltime=2h", "rset=ncpus=4,walltime=1h")
    told = why(plan, "2", now=0)
    assert (LackCause.ADMISSION, "smp") in binding(told)
    assert without(told, LackCause.ADMISSION) == 0


def test_nodes_that_are_down_bind():
    """The answer names them, and their resources."""
    plan = planned(cluster(3), "rset=ncpus=8,walltime=2h")
    for name in ("n2", "n3"):
        plan.fail(name, now=0)
    plan.submit(ResourceRequest.parse("rset=ncpus=8,walltime=1h"), now=0, name="2")
    told = why(plan, "2", now=0)
    assert told.job.start_s == 2 * HOUR
    assert {(LackCause.DOWN, "n[2-3]"), (LackCause.JOBS, "ncpus")} <= binding(told)
    assert "16 cores being on nodes that are down" in lack(told).words
    assert [plan.cluster.is_up(name) for name in plan.cluster.names] == [True, False, False]


def test_a_fixed_start_binds():
    """The job starts at its requested time, so nothing else matters."""
    plan = planned(cluster(), "rset=4:ncpus=8,walltime=1h", "rset=ncpus=1,walltime=1h,start=1970-01-01T05:00")
    told = why(plan, "2", now=0)
    assert binding(told) == {(LackCause.START, "")}
    assert without(told, LackCause.START) == HOUR
    assert [one.cause for one in told.moment.lacks] == [LackCause.START, LackCause.JOBS]


def test_a_job_refused_for_its_deadline():
    """The job is not part of the plan, but the binding constraints are given nevertheless."""
    plan = planned(cluster(), ("", "big", "rset=4:ncpus=8,walltime=3h"))
    request = ResourceRequest.parse("rset=ncpus=1,walltime=1h,deadline=1970-01-01T02:00")
    with pytest.raises(RefusedError) as caught:
        plan.submit(request, now=0, name="late")
    refused = CcsJob("late", request, why=caught.value.message)
    told = why(plan, refused, now=0)
    assert told.is_refused
    assert binding(told) == {(LackCause.DEADLINE, ""), (LackCause.JOBS, "ncpus")}
    assert without(told, LackCause.DEADLINE) == 3 * HOUR
    assert told.sentences()[0] == "late was refused: there is no room for it before its deadline."
    assert [one.cause for one in why(plan, refused, now=0, at=HOUR + 1).moment.lacks] == [
        LackCause.JOBS,
        LackCause.DEADLINE,
    ]


def test_a_job_that_can_never_run():
    """Its own wishes and the site's rules together exclude it from all nodes."""
    plan = planned(oculus())
    request = ResourceRequest.parse("rset=8:ncpus=16:acc=tesla,walltime=1h")
    told = why(plan, CcsJob("x", request), now=0)
    assert told.moment is None
    assert binding(told) == {(LackCause.PROPERTY, "acc=tesla"), (LackCause.RESERVE, "gpus")}


# ---------------------------------------------------------------------- limits


ALICE = Limit("user", "alice", "ncpus", Items.parse("8"))


def test_a_limit_binds():
    """There is space, but not for this user: the answer names the limit, its used part, and the user's jobs."""
    plan = planned(
        cluster(),
        ("alice", "a1", "rset=ncpus=8,walltime=2h"),
        ("alice", "a2", "rset=ncpus=4,walltime=1h"),
        limits=[ALICE],
    )
    told = why(plan, "a2", now=0)
    assert told.job.start_s == 2 * HOUR
    assert binding(told) == {(LackCause.CONSUMER, "")}
    beyond = lack(told)
    assert (beyond.cause, beyond.of, beyond.needed, beyond.free) == (LackCause.CONSUMER, "ncpus", 4, 0)
    assert [holder.job for holder in beyond.holders] == ["a1"]
    assert "the limit of user 'alice' on ncpus: 8, of which 8 are used then" in beyond.words


def test_whole_nodes_are_more_than_a_limit_leaves():
    """A chunk would be within the limit, but the node that the job needs for itself is not."""
    asked = [("alice", "a1", "rset=ncpus=2,walltime=2h"), ("alice", "a2", "rset=ncpus=1,walltime=1h,place=excl")]
    told = why(planned(cluster(2), *asked, limits=[ALICE]), "a2", now=0)
    assert told.job.start_s == 2 * HOUR
    assert {(LackCause.CONSUMER, ""), (LackCause.PLACE, "excl")} <= binding(told)
    assert "as a whole, more than limits and pools leave it" in lack(told).words


def test_a_limit_and_other_jobs_bind_together():
    """Neither of them alone would permit an earlier start: both are named."""
    plan = planned(
        cluster(2),
        ("alice", "a1", "rset=ncpus=8,walltime=2h"),
        ("bob", "b1", "rset=ncpus=8,walltime=2h"),
        ("alice", "a2", "rset=ncpus=4,walltime=1h"),
        limits=[ALICE],
    )
    told = why(plan, "a2", now=0)
    assert not binding(told)
    assert [(one.cause, one.of, one.start_s) for one in told.together] == [
        (LackCause.CONSUMER, "", 0),
        (LackCause.JOBS, "", 0),
    ]
    assert [one.cause for one in told.moment.lacks] == [LackCause.JOBS, LackCause.CONSUMER]
    assert "It would start at 0:00:00 but for all of: limits of alice" in told.sentences()[-1]


def test_an_area_that_is_used_up_binds_who_waits():
    """The job has no start at all, and would have one without the limit."""
    area = Limit("user", "alice", "ncpus", Items.parse("unlimited"), area=10 * HOUR)
    plan = planned(
        cluster(),
        ("alice", "a1", "rset=ncpus=8,walltime=1h"),
        ("alice", "a2", "rset=ncpus=8,walltime=1h"),
        limits=[area],
    )
    told = why(plan, "a2", now=0)
    assert told.job.phase is JobPhase.WAITING
    assert binding(told) == {(LackCause.CONSUMER, "")}
    assert without(told, LackCause.CONSUMER) == 0
    assert "an area of 10h, of which jobs in the plan hold 8h" in lack(told).words


def test_a_pool_that_is_kept_free_binds():
    """The free resources are kept for others."""
    pool = FreePool("small", "ncpus", Items.parse("8"), access=(Access(users=("bob",)),))
    asked = [("ann", "1", "rset=2:ncpus=8,walltime=2h"), ("ann", "2", "rset=2:ncpus=8,walltime=1h")]
    plan = planned(cluster(4), *asked, pools=[pool])
    told = why(plan, "2", now=0)
    assert told.job.start_s == 2 * HOUR
    assert (LackCause.CONSUMER, "") in binding(told)
    assert "the pool 'small' keeps 8 of ncpus free for others" in lack(told).words


# ---------------------------------------------------------------------- what else is said


def test_a_job_that_starts_at_once():
    """There is nothing to explain."""
    told = why(planned(cluster(), "rset=ncpus=1,walltime=1h"), "1", now=0)
    assert told.is_at_once
    assert told.constraints == ()
    assert told.sentences()[1:] == ["It starts as early as it can: nothing keeps it."]


def test_room_that_came_up_after_it_was_planned():
    """Another job left, and backfilling has not run yet: nothing binds any more."""
    plan = planned(cluster(1), "rset=ncpus=8,walltime=4h", "rset=ncpus=8,walltime=1h")
    plan.begin("1", now=0)
    plan.end("1", now=HOUR)
    told = why(plan, "2", now=HOUR)
    assert told.free_s == HOUR
    assert told.constraints == ()
    assert told.sentences()[1:] == [
        "At 1:00:00 it would fit in.",
        "Nothing keeps it from 1:00:00 any more: backfilling will move it.",
    ]


def test_a_job_that_runs_is_asked_about_from_when_it_came():
    """The question is whether it could have started when it was submitted."""
    plan = planned(cluster(1), "rset=ncpus=8,walltime=1h", "rset=ncpus=8,walltime=1h")
    plan.begin("1", now=0)
    plan.end("1", now=HOUR)
    plan.begin("2", now=HOUR)
    told = why(plan, "2", now=HOUR + 60)
    assert told.since_s == 0
    assert binding(told) == {(LackCause.JOBS, "ncpus")}
    assert told.sentences()[0] == "2 runs from 1:00:00 to 2:00:00 on n1."


def test_a_time_before_the_job_came():
    """No job starts before it is submitted."""
    plan = planned(cluster(), "rset=ncpus=1,walltime=1h", now=100)
    assert [one.cause for one in why(plan, "1", now=100, at=50).moment.lacks] == [LackCause.PAST]


def test_an_unknown_job():
    """The nearest name is suggested."""
    with pytest.raises(InputError, match="no job 'bigg'") as caught:
        why(planned(cluster(), ("", "big", "rset=ncpus=1")), "bigg", now=0)
    assert "Did you mean 'big'?" in caught.value.hint


def test_many_holders_are_counted():
    """Those that hold most are named."""
    plan = planned(cluster(1), *[f"rset=ncpus={n},walltime=1h" for n in (1, 2, 1, 3, 1)], "rset=ncpus=8,walltime=1h")
    short = lack(why(plan, "6", now=0))
    assert [holder.items for holder in short.holders] == [3, 2, 1, 1, 1]
    assert (
        "jobs 4 (3 cores until 1:00:00), 2 (2 cores until 1:00:00), 1 (1 core until 1:00:00) and 2 more hold"
        in short.words
    )


def test_times_and_nodes_in_short():
    """Dates where there are dates, and no date that is today's; beyond the calendar a clock."""
    assert clock(59, 0) == "0:00:59"
    assert clock(1501588859, 1501545600) == "12:00:59"
    assert clock(10**12, 1501545600).endswith("01:46:40")
    assert names(["b2", "a1", "a2", "a4", "x"]) == "b2,a[1-2,4],x"
    assert names(["n9", "n10"]) == "n9,n10"


# ---------------------------------------------------------------------- whatever the plan


def random_plan(seed):
    """Plan a few requests of all sorts on a small system, with limits now and then."""
    rng = random.Random(seed)
    nodes = tuple(
        Node(
            f"n{i}",
            {"ncpus": rng.choice([2, 4]), "mem": rng.choice([4, 8]), **({"gpus": 1} if rng.random() < 0.4 else {})},
            {"acc": "x"} if rng.random() < 0.5 else {},
            admits=(Admission(at_most_s=9),) if rng.random() < 0.15 else (),
        )
        for i in range(rng.randint(1, 4))
    )
    resources = {name for node in nodes for name in node.resources}
    reserves = (Reserve("gpus", {"ncpus": 1}),) if "gpus" in resources and rng.random() < 0.5 else ()
    system = CcsSystem("s", nodes, {"lic": 2}, reserves)
    limits = [Limit("user", "u", "ncpus", Items.parse("3"))] if rng.random() < 0.4 else []
    pools = [FreePool("p", "ncpus", Items.parse("1"), access=(Access(users=("u",)),))] if rng.random() < 0.3 else []
    plan = RequestPlan(system)
    plan.consumers = Consumers(plan.cluster.used, limits, pools)
    if rng.random() < 0.3 and len(nodes) > 1:
        plan.fail("n0", now=100)
    for _ in range(rng.randint(2, 12)):
        needs = f"ncpus={rng.randint(1, 3)}" + rng.choice(["", ":mem=2", ":acc=x"])
        text = f"rset={rng.randint(1, 3)}:{needs}{rng.choice(['', '', ',sw=lic'])},walltime={rng.randint(1, 20)}s"
        text += rng.choice(["", "", ",place=scatter", ",place=pack", ",place=excl", ",start=115", ",deadline=130"])
        try:
            plan.submit(ResourceRequest.parse(text, system.kinds), now=100, user=rng.choice(["u", "v"]), group="")
        except RefusedError:
            continue
    return plan, rng


@pytest.mark.full
@settings(max_examples=200)
@given(st.integers(0, 10**6))
def test_what_is_said_is_true_of_any_plan(seed):
    """Seconds, amounts and holders are those that one counts; without what binds it is sooner; the plan is the same."""
    plan, rng = random_plan(seed)
    before = facts(plan)
    for name, job in plan.jobs.items():
        at = rng.randint(100, 160)
        told = why(plan, name, now=100, at=at)
        # nobody has left; but whole nodes are others, and smaller, when somebody has come to the larger ones
        assert told.free_s is None or job.request.place.exclusive
        for one in told.constraints:
            if one.start_s is None:
                continue
            assert one.start_s >= 100
            assert job.start_s is None or one.start_s < job.start_s
        assert bool(binding(told) or told.together) == (not told.is_at_once and told.free_s is None)
        others = [other for other in plan.jobs.values() if other.id != name and other.placement is not None]
        lasts_s = job.request.walltime_s
        for short in told.moment.lacks:
            assert at <= short.at_s < at + lasts_s or short.cause is LackCause.DEADLINE
            if short.cause is LackCause.JOBS:
                check_short(plan, others, short, at)
            if short.cause is LackCause.CHUNKS:
                check_room(plan, job, others, short, at)
        check_fits(plan, job, told, at)
    assert facts(plan) == before


def check_short(plan, others, short, at):
    """Compare with what each job holds at each second."""
    available = plan.cluster.used[short.of].available
    down = {place for place, name in enumerate(plan.cluster.names) if not plan.cluster.is_up(name)}
    assert not any(down & set(other.placement.nodes.tolist()) for other in others), "jobs were moved from there"

    def free(second):
        there = (one.placement for one in others if one.placement.start <= second < one.placement.end)
        return available - sum(placement.totals.get(short.of, 0) for placement in there)

    assert free(short.at_s) == short.free < short.needed
    assert all(free(second) >= short.needed for second in range(at, short.at_s))
    assert sum(holder.items for holder in short.holders) == available - short.free
    assert all(holder.until_s == plan.jobs[holder.job].placement.end for holder in short.holders)


def check_room(plan, job, others, short, at):
    """Compare with what each node has left at each second; requests here are of one sort of chunks."""
    ask = plan.cluster.prepare(job.request)
    width = len(plan.cluster.resources)
    usable, needs, [wanted] = ask.usable.reshape(-1, width), ask.chunks[:width], ask.wanted.tolist()
    places = [place for place in ask.order.tolist() if plan.cluster.is_up(plan.cluster.names[place])]
    peaks = np.zeros_like(usable)
    for second in range(at, short.at_s + 1):
        used = np.zeros_like(usable)
        for placement in (one.placement for one in others):
            if placement.start <= second < placement.end:
                used[placement.nodes] += placement.amounts.reshape(-1, width)
        peaks = np.maximum(peaks, used)
        rooms = [(usable[place] - peaks[place])[needs > 0] // needs[needs > 0] for place in places]
        fits = [min(max(int(room.min()), 0), 1 if "scatter" in str(job.request) else wanted) for room in rooms]
        if ask.is_exclusive:
            fits = [0 if peaks[place].any() else many for place, many in zip(places, fits, strict=True)]
        assert (sum(fits) < wanted) == (second == short.at_s)
    assert (sum(fits), wanted) == (short.free, short.needed)


def check_fits(plan, job, told, at):
    """Compare with what the planner itself does when the job comes anew, and may start at that time only."""
    fresh = RequestPlan(plan.system)
    fresh.consumers = type(plan.consumers)(fresh.cluster.used, plan.consumers._limits, plan.consumers._pools)
    for name in plan.cluster.names:
        fresh.cluster.set_up(name, up=plan.cluster.is_up(name))
    for one in plan.jobs.values():
        if one.id != job.id and one.placement is not None:
            fresh.cluster.book(one.placement)
            fresh.consumers.book(one.user, one.group, one.placement)
    ask = fresh.cluster.prepare(job.request)
    views = fresh.consumers.views(ask, job.user, job.group, at, at + ask.lasts_s - 1)
    fits = fresh.cluster.find(ask, at, at + ask.lasts_s, views) is not None
    of_time = {LackCause.PAST, LackCause.START, LackCause.DEADLINE}
    assert fits == all(one.cause in of_time for one in told.moment.lacks)


def test_a_large_plan():
    """The system has 616 nodes and hundreds of jobs."""
    rng = random.Random(7)
    plan = RequestPlan(oculus())
    for _ in range(400):
        text = f"rset={rng.choice([1, 8, 64])}:ncpus={rng.choice([4, 16])},walltime={rng.choice([1, 4, 24])}h"
        plan.submit(ResourceRequest.parse(text), now=0)
    before = facts(plan)
    last = max(plan.jobs.values(), key=lambda job: job.start_s)
    told = why(plan, last.id, now=0)
    assert (LackCause.JOBS, "ncpus") in binding(told)
    assert facts(plan) == before
