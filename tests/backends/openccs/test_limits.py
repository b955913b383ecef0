"""Limits and pools: compared with a count of each second, by the paper's examples, and in a plan."""

import re
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from asa.backends.openccs.bounds import HORIZON_S
from asa.backends.openccs.cluster import Ask, Placement
from asa.backends.openccs.consumers import Consumers
from asa.backends.openccs.jobs import RefusedError
from asa.backends.openccs.limits import Access, FreePool, Items, Limit
from asa.backends.openccs.limits_file import load_limits
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.requests import RequestParts, ResourceRequest
from asa.backends.openccs.rusv import RUSV, UsageSlot
from asa.backends.openccs.system import CcsSystem, Node
from asa.backends.openccs.validity import Validity
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.errors import InputError

MINUTE, HOUR, DAY = 60, 3600, 86400
AUGUST = 1501545600
"""The first second of August 2017, a Tuesday."""
SEPTEMBER = AUGUST + 31 * DAY
NOTHING = np.empty(0, dtype=np.int64)


def ask(lasts_s=HOUR, **totals):
    return Ask(totals, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, 0, False, lasts_s, lasts_s)


def placement(start, lasts_s=HOUR, **totals):
    return Placement(start, start + lasts_s, np.zeros(1, dtype=np.int64), NOTHING, totals)


def limit(resource, items="unlimited", validity="always", name="alice", kind="user", **more):
    return Limit(kind, name, resource, Items.parse(items), validity=Validity.parse(validity), **more)


def pool(resource, items, *access, validity="always"):
    return FreePool("the pool", resource, Items.parse(items), Validity.parse(validity), access)


def free(consumers, request, time, user="alice", group="", resource=None, stop=0):
    """Return the items that a consumer sees free at a time; all of them if nothing limits the consumer."""
    name = resource or next(iter(request.totals))
    views = consumers.views(request, user, group, min(time, AUGUST), stop)
    return views.get(name, consumers._used[name]).free_at(time)


def planned(*limits, pools=(), nodes=4, extension_percent=10, **resources):
    """Return a plan with limits, of some nodes with four cores each."""
    nodes = tuple(Node(f"n{place}", {"ncpus": 4} | resources) for place in range(nodes))
    system = CcsSystem("small", nodes, extension_percent=extension_percent)
    return RequestPlan(system, limits, pools)


def submit(plan, text, now=AUGUST, user="alice", group=""):
    """Submit requests; return their starts in seconds from now, and None for jobs in the waiting room."""
    jobs = plan.submit(ResourceRequest.parse(text), now=now, user=user, group=group)
    starts = [None if job.start_s is None else job.start_s - now for job in jobs]
    return starts[0] if len(starts) == 1 else starts


# ---------------------------------------------------------------------- items


@pytest.mark.parametrize(
    ("text", "available", "items"),
    [
        ("30/45%", 100, 45),
        ("30/45%", 60, 30),
        ("30", 10, 30),
        ("/45%", 99, 44),
        ("0/1%", 99, 0),
        ("/100%", 7, 7),
        ("64g/10%", 1 << 40, (1 << 40) // 10),
        ("64gb", 0, 64 << 30),
        ("unlimited", 5, None),
    ],
)
def test_the_larger_of_number_and_share_counts(text, available, items):
    assert Items.parse(text).of(available) == items
    assert Items.parse(str(Items.parse(text))) == Items.parse(text)


@pytest.mark.parametrize("text", ["", "45%", "30/45", "/", "-1", "30/101%", "1 000", "3x", "²", f"{1 << 60}"])
def test_other_items_are_refused(text):
    with pytest.raises(InputError, match="items"):
        Items.parse(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Limit("project", "p", "ncpus"),
        lambda: limit("jobs", "/5%"),
        lambda: limit("jobs", "5", duration_s=HOUR),
        lambda: limit("arrayjobs", "5", area=HOUR),
        lambda: limit("ncpus", duration_s=-1),
        Access,
        lambda: Consumers({"ncpus": RUSV(4)}, [limit("gpus", "1")]),
        lambda: Consumers({"ncpus": RUSV(4)}, pools=[pool("jobs", "1")]),
        lambda: Consumers({"ncpus": RUSV(4)}, pools=[pool("ncpus", "1", Access(at_most={"npcus": 1}))]),
    ],
)
def test_what_means_nothing_is_refused(make):
    with pytest.raises(InputError):
        make()


# ---------------------------------------------------------------------- the paper's examples

EXAMPLE_1 = """
[[limits]]
user = "alice"
resource = "*"
items = "unlimited"
duration = "7d"
area = "none"
validity = "always"
[[limits]]
user = "alice"
resource = "ncpus"
items = 640
duration = "4d3h"
validity = "01.08.17-31.08.17"
[[limits]]
user = "alice"
resource = "tesla"
area = "500h"
[[limits]]
user = "alice"
resource = "arrayjobs"
items = "1000"
[[limits]]
user = "alice"
resource = "jobs"
items = "5000"
duration = "none"
"""
POOLS = """
[[pools]]
name = "small"
resource = "ncpus"
items = "10/20%"
access = [{ at_most = { ncpus = 3 }, duration = "59:59" }]
[[pools]]
name = "gpus"
resource = "gpus"
items = "/100%"
access = [{ groups = ["G1", "G2"] }, { users = ["alice"] }, { duration = "2h" }]
[[pools]]
name = "maintenance"
resource = "gpus"
items = "unlimited"
validity = "* 8-17 * 8-12/2 mon"
"""


@pytest.fixture
def read(tmp_path):
    """Read limits that are given as text."""

    def read(text):
        path = tmp_path / "limits.toml"
        path.write_text(text, encoding="utf-8")
        bounds = load_limits(path)
        return bounds.limits, bounds.pools

    return read


@pytest.fixture
def example_1(read):
    used = {"ncpus": RUSV(9920), "mem": RUSV(1000), "tesla": RUSV(32)}
    return Consumers(used, *read(EXAMPLE_1))


def test_example_1_is_read(read):
    limits, pools = read(EXAMPLE_1)
    assert [one.resource for one in limits] == ["*", "ncpus", "tesla", "arrayjobs", "jobs"]
    assert limits[1] == limit("ncpus", "640", "2017-08-01/2017-08-31", duration_s=4 * DAY + 3 * HOUR)
    assert limits[2] == limit("tesla", area=500 * HOUR)
    assert pools == ()


def test_example_1_cores_are_limited_in_august(example_1):
    """The limit is for alice only; outside August no other limit applies, since the cores have one of their own."""
    assert [free(example_1, ask(ncpus=1), time) for time in (AUGUST - 1, AUGUST, SEPTEMBER - 1, SEPTEMBER)] == [
        9920,
        640,
        640,
        9920,
    ]
    assert free(example_1, ask(ncpus=1), AUGUST, user="bob") == 9920
    longest = 4 * DAY + 3 * HOUR
    assert free(example_1, ask(longest, ncpus=1), AUGUST) == 640
    assert [free(example_1, ask(longest + 1, ncpus=1), time) for time in (AUGUST, SEPTEMBER)] == [0, 9920]
    example_1.book("alice", "", placement(AUGUST, HOUR, ncpus=600, mem=0, tesla=0))
    assert [free(example_1, ask(ncpus=1), AUGUST + time) for time in (0, HOUR)] == [40, 640]


def test_example_1_all_else_lasts_a_week_at_most(example_1):
    assert example_1.never(ask(7 * DAY, mem=1), "alice", "") == ""
    assert "lasts 7-00:00:01, longer than 7-00:00:00" in example_1.never(ask(7 * DAY + 1, mem=1), "alice", "")
    assert example_1.never(ask(8 * DAY, tesla=1, ncpus=700), "alice", "") == "", "not what has a limit of its own"
    assert example_1.never(ask(8 * DAY, mem=1), "bob", "") == ""


def test_example_1_gpus_have_an_area(example_1):
    """The area is 500 hours of one GPU, 20 of 25, or any combination; other users' GPUs do not count."""
    for request, lasts in ((1, 500), (25, 20), (32, 15)):
        assert free(example_1, ask(lasts * HOUR, tesla=request), AUGUST) == 32
    assert "an area of 500.25h, more than 500h" in example_1.never(ask(500 * HOUR + 900, tesla=1), "alice", "")
    held = placement(AUGUST, 400 * HOUR, tesla=1, ncpus=4)
    example_1.book("alice", "", held)
    assert free(example_1, ask(100 * HOUR, tesla=1), SEPTEMBER) == 32
    assert free(example_1, ask(100 * HOUR + 1, tesla=1), SEPTEMBER) == 0
    assert free(example_1, ask(100 * HOUR + 1, tesla=1), SEPTEMBER, user="bob") == 32
    example_1.revoke("alice", "", held)
    assert free(example_1, ask(100 * HOUR + 1, tesla=1), SEPTEMBER) == 32


def test_example_1_jobs_are_counted(example_1):
    assert example_1.never(ask(ncpus=1), "alice", "", elements=1000) == ""
    assert "has 1001 jobs, more than 1000" in example_1.never(ask(ncpus=1), "alice", "", elements=1001)
    for _ in range(4999):
        example_1.book("alice", "", placement(AUGUST, tesla=0))
    assert free(example_1, ask(ncpus=1), SEPTEMBER) == 9920
    last = placement(AUGUST, tesla=0)
    example_1.book("alice", "", last)
    assert free(example_1, ask(ncpus=1), SEPTEMBER) == 0
    assert free(example_1, ask(ncpus=1), SEPTEMBER, user="bob") == 9920
    example_1.revoke("alice", "", last)
    assert free(example_1, ask(ncpus=1), SEPTEMBER) == 9920


@pytest.fixture
def pools(read):
    return Consumers({"ncpus": RUSV(100, slots=[UsageSlot(AUGUST, AUGUST + 9, 95)]), "gpus": RUSV(8)}, *read(POOLS))


def test_cores_are_kept_free_for_small_jobs(pools):
    """At least ten cores are kept free for jobs of less than four cores and an hour; only free cores can be kept."""
    assert free(pools, ask(HOUR - 1, ncpus=3), AUGUST + 10) == 100
    assert free(pools, ask(HOUR, ncpus=3), AUGUST + 10) == 80
    assert free(pools, ask(HOUR - 1, ncpus=4), AUGUST + 10) == 80
    assert free(pools, ask(ncpus=4), AUGUST) <= 0
    assert free(pools, ask(HOUR - 1, ncpus=3), AUGUST) == 5
    pools._used["ncpus"].set_defect(60)
    assert free(pools, ask(ncpus=4), AUGUST + 10) == 30, "20 percent of 40 are less than ten"


def test_gpus_are_kept_free_for_some_and_for_the_short(pools):
    long = ask(2 * HOUR + 1, gpus=1)
    assert [free(pools, long, AUGUST, group=group, user="bob") for group in ("G1", "G2", "G3")] == [8, 8, 0]
    assert free(pools, long, AUGUST, group="G3") == 8
    assert free(pools, ask(2 * HOUR, gpus=1), AUGUST, user="bob") == 8
    assert "keeps 8 of 8 free for others" in pools.never(long, "bob", "G3")
    assert pools.never(long, "bob", "G1") == pools.never(ask(2 * HOUR, gpus=8), "bob", "G3") == ""


def test_gpus_are_kept_free_for_maintenance(pools):
    """The GPUs are kept free from eight to six on Mondays of every second month, whoever asks."""
    monday = AUGUST + 6 * DAY
    times = [monday + 8 * HOUR - 1, monday + 8 * HOUR, monday + 18 * HOUR - 1, monday + 18 * HOUR]
    assert [free(pools, ask(gpus=1), time) for time in times] == [8, 0, 0, 8]
    assert free(pools, ask(gpus=1), monday + 35 * DAY + 9 * HOUR) == 8, "September"
    assert free(pools, ask(ncpus=1, gpus=1), monday + 9 * HOUR, resource="ncpus") == 80
    assert pools.never(ask(gpus=8), "alice", "") == ""


# ---------------------------------------------------------------------- what binds whom


def test_everybody_has_as_much_as_another():
    """The limit is equal for all, and counts for each user alone, in addition to other limits."""
    limits = [
        limit("ncpus", "6", name="*"),
        limit("ncpus", "9", name="bob"),
        limit("ncpus", "7", name="*", kind="group"),
    ]
    consumers = Consumers({"ncpus": RUSV(20)}, limits)
    consumers.book("alice", "g", placement(AUGUST, ncpus=4))
    assert [free(consumers, ask(ncpus=1), AUGUST, user, "h") for user in ("alice", "bob", "")] == [2, 6, 6]
    assert [free(consumers, ask(ncpus=1), AUGUST, "bob", group) for group in ("g", "h")] == [3, 6]


def test_a_user_is_not_a_group():
    consumers = Consumers({"ncpus": RUSV(20)}, [limit("ncpus", "6", name="x")])
    assert [free(consumers, ask(ncpus=1), AUGUST, *names) for names in (("x", "y"), ("y", "x"))] == [6, 20]


def test_every_resource_but_those_with_a_limit_of_their_own():
    """A resource's own limit exempts it from the limit on all, even if it is for all users, or not valid now."""
    limits = [limit("*", "/50%"), limit("gpus", "3", name="*", validity="/2017-07-01")]
    consumers = Consumers({"ncpus": RUSV(21), "gpus": RUSV(4), "g03": RUSV(1)}, limits)
    views = consumers.views(ask(ncpus=1, gpus=1, g03=1), "alice", "", AUGUST, 0)
    assert {name: view.free_at(AUGUST) for name, view in views.items()} == {"ncpus": 10, "gpus": 4, "g03": 0}


def test_every_resource_does_not_mean_the_number_of_jobs():
    consumers = Consumers({"ncpus": RUSV(21)}, [limit("*", "2"), limit("jobs", "5", name="bob")])
    for user in ("alice", "bob"):
        for _ in range(4):
            consumers.book(user, "", placement(AUGUST))
    assert [free(consumers, ask(ncpus=1), AUGUST, user) for user in ("alice", "bob")] == [2, 21]


def test_shares_are_of_what_is_there():
    consumers = Consumers({"ncpus": RUSV(20)}, [limit("ncpus", "4/50%")])
    for defect, left in ((0, 10), (10, 5), (14, 4), (18, 2)):
        consumers._used["ncpus"].set_defect(defect)
        assert free(consumers, ask(ncpus=1), AUGUST) == left


def test_where_nothing_binds_nothing_is_made():
    used = {"ncpus": RUSV(20), "mem": RUSV(20)}
    for consumers in (Consumers(used), Consumers(used, [limit("mem", "3"), limit("ncpus", "3", name="bob")])):
        consumers.book("alice", "g", placement(AUGUST, ncpus=20))
        assert consumers.views(ask(ncpus=1), "alice", "g", AUGUST, 0) == {}
        assert consumers.never(ask(ncpus=20), "alice", "g") == ""
        assert consumers.explain(ask(ncpus=20), "alice", "g", AUGUST, 0) == []
    assert set(Consumers(used, [limit("mem", "3")]).views(ask(ncpus=1, mem=1), "alice", "", AUGUST, 0)) == {"mem"}


def test_cron_strings_bind_always_beyond_what_is_unrolled():
    """Strings are unrolled for a year from the request's end; beyond that the limit is always valid."""
    consumers = Consumers(
        {"ncpus": RUSV(20)}, [limit("ncpus", "6", "* 20-23,0-5 * * *")], [pool("ncpus", "3", validity="* 12 1 * *")]
    )
    for lasts in (HOUR, 40 * DAY):
        view = consumers.views(ask(lasts, ncpus=1), "alice", "", AUGUST + 5 * HOUR, 0)["ncpus"]
        for day in (0, 1, 181, (HORIZON_S + lasts) // DAY):
            times = [AUGUST + day * DAY + hour * HOUR for hour in (5, 6, 19, 20)]
            assert [view.free_at(time) for time in times] == [6, 20, 20, 6]
        assert view.free_at(AUGUST + 12 * HOUR) == 17
        assert view.free_at(AUGUST + 3 * HORIZON_S + 13 * HOUR) == 6


@pytest.mark.parametrize("validity", ["2017-08-01/", "* * * * *", "always"])
def test_what_never_ends_binds_for_ever(validity):
    consumers = Consumers({"ncpus": RUSV(20)}, [limit("ncpus", "6", validity)])
    assert free(consumers, ask(ncpus=1), AUGUST) == free(consumers, ask(ncpus=1), AUGUST + 99 * HORIZON_S) == 6
    assert (consumers.never(ask(ncpus=7), "alice", "") != "") == (validity != "2017-08-01/")


# ---------------------------------------------------------------------- against a count of each second

SPAN = 3 * HOUR
VALIDITIES = [
    "always",
    f"{AUGUST + 1000}/{AUGUST + 5000}",
    f"/{AUGUST + 7000}",
    f"{AUGUST + 3333}/",
    "10-39 * * * *",
    "*/7 0-1 * * *",
    "* 1 1-7 aug *",
]
RESOURCES = {"ncpus": 12, "gpus": 4}
validities = st.sampled_from(VALIDITIES)
resources = st.sampled_from(sorted(RESOURCES))
items = st.sampled_from(["0", "2", "5/50%", "/30%", "9", "40", "unlimited"])
amounts = st.fixed_dictionaries({"ncpus": st.integers(1, 6)}, optional={"gpus": st.integers(1, 3)})
limits = st.builds(
    lambda kind, name, resource, items, validity, lasts, area: limit(
        resource, items, validity, name, kind, **({} if resource == "jobs" else {"duration_s": lasts, "area": area})
    ),
    st.sampled_from(["user", "group"]),
    st.sampled_from(["a", "b", "*"]),
    st.sampled_from([*sorted(RESOURCES), "*", "jobs"]),
    items.filter(lambda text: "%" not in text),
    validities,
    st.none() | st.integers(1000, 6000),
    st.none() | st.integers(1000, 40000),
) | st.builds(
    lambda name, resource, items, validity: limit(resource, items, validity, name),
    st.sampled_from(["a", "*"]),
    st.sampled_from([*sorted(RESOURCES), "*"]),
    items,
    validities,
)
accesses = st.builds(
    Access,
    users=st.sampled_from([(), ("a",)]),
    groups=st.sampled_from([(), ("b",)]),
    at_most=st.sampled_from([{}, {"ncpus": 2}, {"gpus": 0}]),
    at_most_s=st.integers(2000, 5000),
)
pool_lists = st.lists(
    st.builds(lambda resource, items, access, validity: pool(resource, items, *access, validity=validity),
              resources, items, st.lists(accesses, max_size=2), validities),
    max_size=2,
)  # fmt: skip
bookings = st.tuples(
    st.sampled_from("ab"),
    st.sampled_from("ab"),
    st.integers(0, SPAN - 5000),
    st.integers(1, 5000),
    amounts,
    st.booleans(),
)


def seconds(validity):
    """Return for each second whether a validity holds."""
    valid = np.zeros(SPAN, dtype=bool)
    for start, end in validity.windows(AUGUST, AUGUST + SPAN):
        valid[start - AUGUST : end - AUGUST] = True
    return valid


def held(jobs, name):
    """Return for each second the items that jobs hold of a resource."""
    counts = np.zeros(SPAN, dtype=int)
    for _, _, start, length, amount, _ in jobs:
        counts[start : start + length] += amount.get(name, 0)
    return counts


def is_admitted(pool, request, user, group):
    return any(
        (not access.users or user in access.users)
        and (not access.groups or group in access.groups)
        and all(request.totals.get(of, 0) <= most for of, most in access.at_most.items())
        and request.lasts_s <= access.at_most_s
        for access in pool.access
    )


def plain_items(bound, request, name, available, own):
    """Return the items that a limit leaves a request beyond its consumer's own jobs; None for all."""
    area = (
        sum(job[4].get(name, 0) * seconds(bound.validity)[job[2] : job[2] + job[3]].sum() for job in own)
        + request.totals[name] * request.lasts_s
    )
    is_long = bound.duration_s is not None and request.lasts_s > bound.duration_s
    return 0 if is_long or (bound.area is not None and area > bound.area) else bound.items.of(available)


def plainly_free(all_limits, all_pools, jobs, available, request, user, group):
    """Free items of each second in the eyes of a consumer, by resource, as the definitions say."""
    first, left = next(iter(request.totals)), {}
    for name in request.totals:
        free = left[name] = available[name] - held(jobs, name)
        for pool in all_pools:
            if pool.resource == name and not is_admitted(pool, request, user, group):
                keeps = pool.items.of(available[name])
                free[seconds(pool.validity)] -= available[name] if keeps is None else keeps
        for kind, whose in (("user", user), ("group", group)):
            own = [job for job in jobs if job[kind == "group"] == whose]
            mine = [one for one in all_limits if one.kind == kind and one.name in {"*", whose}]
            on_it = [one for one in mine if one.resource == name] or [one for one in mine if one.resource == "*"]
            items = [(one, plain_items(one, request, name, available[name], own)) for one in on_it]
            full = [one for one in mine if one.resource == "jobs" and one.items.of(0) in range(len(own) + 1)]
            for one, most in (*items, *((one, 0) for one in full if name == first)):
                if most is not None:
                    valid = seconds(one.validity)
                    free[valid] = np.minimum(free, most - held(own, name))[valid]
    return left


@settings(max_examples=150)
@given(
    st.lists(limits, max_size=5),
    pool_lists,
    st.lists(bookings, max_size=8),
    st.fixed_dictionaries({"ncpus": st.sampled_from([0, 0, 5]), "gpus": st.sampled_from([0, 0, 1])}),
    amounts,
    st.integers(1, 6000),
    st.sampled_from("abc"),
    st.sampled_from("ab"),
)
def test_a_consumer_sees_what_a_count_of_each_second_gives(
    all_limits, all_pools, jobs, broken, totals, lasts, user, group
):
    """Of each resource, whatever was booked and revoked; what goes below none is none."""
    used = {name: RUSV(most, defect=broken[name]) for name, most in RESOURCES.items()}
    consumers = Consumers(used, all_limits, all_pools)
    placements = [placement(AUGUST + start, length, **amount) for _, _, start, length, amount, _ in jobs]
    for (whose, of, *_), placed in zip(jobs, placements, strict=True):
        consumers.book(whose, of, placed)
    for (whose, of, *_, is_gone), placed in zip(jobs, placements, strict=True):
        if is_gone:
            consumers.revoke(whose, of, placed)
    jobs = [job for job in jobs if not job[5]]
    for _, _, start, length, amount, _ in jobs:
        for name, many in amount.items():
            used[name].add_within(AUGUST + start, AUGUST + start + length, many)
    request = ask(lasts, **totals)
    available = {name: vector.available for name, vector in used.items()}
    expected = plainly_free(all_limits, all_pools, jobs, available, request, user, group)
    views = consumers.views(request, user, group, AUGUST, 0)
    for name, free_then in expected.items():
        times, counts = views.get(name, used[name]).steps
        places = np.searchsorted(times, np.arange(AUGUST, AUGUST + SPAN), side="right") - 1
        seen = available[name] - counts[places]
        assert np.maximum(seen, 0).tolist() == np.maximum(free_then, 0).tolist(), name


# ---------------------------------------------------------------------- in a plan


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_a_request_runs_where_its_limit_lets_it(user):
    """The limit is four cores at a time by day, and all cores at night."""
    plan = planned(limit("ncpus", "4", "* 6-19 * * *"))
    starts = [submit(plan, "rset=2:ncpus=2,walltime=2h", AUGUST + 18 * HOUR, user) for _ in range(3)]
    assert starts == ([0, 2 * HOUR, 2 * HOUR] if user == "alice" else [0, 0, 0])
    assert submit(plan, "rset=2:ncpus=4,walltime=1h", AUGUST + 18 * HOUR, user) == 2 * HOUR


def test_a_long_request_runs_when_it_may():
    """The request cannot run by day, nor extend into the day."""
    plan = planned(limit("ncpus", duration_s=HOUR, validity="* 6-19 * * *"))
    assert submit(plan, "rset=ncpus=1,walltime=3h", AUGUST + 4 * HOUR) == 16 * HOUR
    assert submit(plan, "rset=ncpus=1,walltime=1h", AUGUST + 5 * HOUR + 1) == 0
    assert submit(plan, "rset=ncpus=1,walltime=11h") is None, "no night is so long"


def test_who_holds_all_his_area_waits_until_others_leave():
    """Be it early or in time; who is told apart from others by his nodes."""
    plan = planned(limit("ncpus", area=10 * HOUR, name="*"))
    assert [submit(plan, "rset=ncpus=2,walltime=4h") for _ in range(2)] == [0, None]
    assert submit(plan, "rset=ncpus=1,walltime=2h") == 0
    assert submit(plan, "rset=ncpus=2,walltime=4h", user="bob") == 0
    assert plan.backfill(now=AUGUST + HOUR) == []
    plan.end("1", now=AUGUST + HOUR)
    assert [job.id for job in plan.backfill(now=AUGUST + HOUR)] == ["2"]
    assert submit(plan, "rset=ncpus=1,walltime=1h", AUGUST + HOUR) is None
    plan.end("3", now=AUGUST + 2 * HOUR)
    plan.consumers.forget_before(AUGUST + 2 * HOUR)
    assert [job.start_s for job in plan.backfill(now=AUGUST + 2 * HOUR)] == [AUGUST + 2 * HOUR]
    with pytest.raises(RefusedError, match="an area of 12h, more than 10h, the limit of user 'alice' on ncpus"):
        submit(plan, "rset=ncpus=4,walltime=3h")


def test_an_area_is_counted_within_its_validity():
    """Half of the time in which resources are held is outside the validity, and has no limit."""
    consumers = Consumers({"ncpus": RUSV(20)}, [limit("ncpus", validity="30-59 * * * *", area=4 * HOUR)])
    consumers.book("alice", "", placement(AUGUST + 7, 3 * HOUR, ncpus=2))
    assert [free(consumers, ask(HOUR, ncpus=1), AUGUST + minute * MINUTE) for minute in (29, 30)] == [20, 20]
    assert [free(consumers, ask(HOUR + 1, ncpus=1), AUGUST + minute * MINUTE) for minute in (29, 30)] == [20, 0]


@pytest.mark.parametrize("copied", [False, True])
def test_jobs_in_the_plan_are_counted_as_they_come_and_go(copied):
    """Copies of a plan count separately."""
    plan = planned(limit("jobs", "2"))
    if copied:
        submit(plan, "rset=ncpus=1,walltime=1h")
        plan = deepcopy(plan)
        assert submit(plan, "rset=ncpus=1,walltime=1h") == 0
    else:
        assert submit(plan, "rset=ncpus=1,walltime=1h,array=1-2") == [0, 0]
    first, second = plan.jobs
    assert submit(plan, "rset=ncpus=1,walltime=1h", now=AUGUST + 10) is None
    assert submit(plan, "rset=ncpus=1,walltime=1h", user="bob") == 0
    plan.begin(first, now=AUGUST)
    plan.begin(second, now=AUGUST)
    plan.end(second, now=AUGUST + 5)
    [moved] = plan.backfill(now=AUGUST + 10)
    assert submit(plan, "rset=ncpus=1,walltime=1h", AUGUST + 10) is None
    plan.end(first, now=AUGUST + 30 * MINUTE)
    assert [job.start_s for job in plan.backfill(now=AUGUST + 30 * MINUTE)] == [AUGUST + 30 * MINUTE]
    assert moved.start_s == AUGUST + 10


def test_jobs_that_ended_in_time_are_forgotten():
    consumers = Consumers({"ncpus": RUSV(20)}, [limit("jobs", "2"), limit("ncpus", "6", area=10 * HOUR)])
    for start in (0, HOUR):
        consumers.book("alice", "", placement(AUGUST + start, ncpus=5))
    for now, sees in ((AUGUST + HOUR - 1, 0), (AUGUST + HOUR, 6)):
        consumers.forget_before(now)
        assert free(consumers, ask(HOUR, ncpus=5), AUGUST + 2 * HOUR) == sees
    assert [free(consumers, ask(HOUR, ncpus=5), AUGUST + time) for time in (0, HOUR)] == [1, 1]
    assert free(consumers, ask(HOUR + 1, ncpus=5), AUGUST + 2 * HOUR) == 0
    consumers.forget_before(AUGUST + 2 * HOUR)
    assert free(consumers, ask(2 * HOUR, ncpus=5), AUGUST + HOUR) == 6


def test_an_extended_or_shortened_job_is_held_to_its_limits():
    """As a whole to the duration, by what it gets to the area."""
    plan = planned(limit("ncpus", duration_s=3 * HOUR, area=5 * HOUR), extension_percent=1000)
    submit(plan, "rset=ncpus=2,walltime=1h")
    plan.begin("1", now=AUGUST)
    for more in (3, 2):
        with pytest.raises(RefusedError, match=r"longer than|area|not free"):
            plan.extend("1", more * HOUR, now=AUGUST)
    plan.extend("1", HOUR, now=AUGUST)
    assert submit(plan, "rset=ncpus=1,walltime=1h") == 0
    assert submit(plan, "rset=ncpus=1,walltime=1s") is None
    plan.alter("1", RequestParts.parse("walltime=90m"), now=AUGUST)
    assert submit(plan, "rset=ncpus=1,walltime=1h") == 0
    assert submit(plan, "rset=ncpus=1,walltime=1s") is None
    plan.end("1", now=AUGUST + 80 * MINUTE)
    assert submit(plan, "rset=ncpus=3,walltime=1h", AUGUST + 80 * MINUTE) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(1, 4), st.integers(5, 90), st.integers(0, 40)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["always", "10-39 * * * *", f"{AUGUST + HOUR}/{AUGUST + 3 * HOUR}"]),
)
def test_no_limit_is_ever_exceeded_by_a_plan(asked, validity):
    """Jobs end early, and others take their place."""
    bound = [limit("ncpus", "7/50%", validity, "*"), limit("ncpus", "10", kind="group", name="*")]
    plan = planned(*bound)
    now = AUGUST
    for user, chunks, cores, minutes, later in asked:
        with suppress(RefusedError):
            submit(plan, f"rset={chunks}:ncpus={cores},walltime={minutes}", now, user, "g")
        now += later * MINUTE
        ended = [job.id for job in plan.jobs.values() if job.start_s is not None and job.placement.start < now]
        for name in ended[:1]:
            if plan.jobs[name].phase != "ended":
                plan.end(name, now=now)
        plan.backfill(now=now)
    placed = [job for job in plan.jobs.values() if job.placement is not None]
    last = max((job.placement.end for job in placed), default=now)
    held = {name: np.zeros(last - AUGUST, dtype=int) for name in "abg"}
    for job in placed:
        for name in (job.user, job.group):
            held[name][job.placement.start - AUGUST : job.placement.end - AUGUST] += job.placement.totals["ncpus"]
    assert held["g"].max(initial=0) <= 10
    for start, end in Validity.parse(validity).windows(AUGUST, last):
        assert max(held[name][start - AUGUST : end - AUGUST].max(initial=0) for name in "ab") <= 8
    waiting = [job for job in plan.jobs.values() if job.phase == "waiting"]
    assert all(job.request.job_set()["ncpus"] > 8 for job in waiting)


# ---------------------------------------------------------------------- in words


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (ask(ncpus=641), "asks for 641 of ncpus, more than 640, the limit of user 'alice' on ncpus"),
        (ask(mem=65 << 30), "asks for 65g of mem, more than 64g, the limit of group 'g' on mem"),
        (ask(2 * DAY, ncpus=1), "lasts 2-00:00:00, longer than 1-00:00:00, the limit of user 'alice' on ncpus"),
        (ask(HOUR, ncpus=101), "asks for an area of 101h, more than 100h, the limit of user 'alice' on ncpus"),
        (ask(gpus=4), "asks for 4 of gpus, and the pool 'the pool' keeps 1 of 4 free for others"),
        (ask(HOUR, ncpus=100, mem=64 << 30, gpus=3), ""),
    ],
)
def test_what_can_never_be_is_said(request_, why):
    bound = [
        limit("ncpus", "640", duration_s=DAY, area=100 * HOUR),
        limit("mem", "64g", name="g", kind="group"),
        limit("ncpus", "1", "* 6-19 * * *"),
        limit("ncpus", "2", "2017-08-01/"),
    ]
    used = {"ncpus": RUSV(1000), "mem": RUSV(1 << 40), "gpus": RUSV(4)}
    assert Consumers(used, bound, [pool("gpus", "1")]).never(request_, "alice", "g") == why


def test_what_binds_is_said_worst_first():
    bound = [
        limit("ncpus", "640", duration_s=DAY, area=2000 * HOUR, name="*"),
        limit("ncpus", "1", "2017-09-01/"),
        limit("ncpus", "100", "* 12 * * *", name="g", kind="group"),
        limit("mem", "64g"),
        limit("jobs", "3"),
        limit("gpus", "1"),
    ]
    used = {"ncpus": RUSV(1000, slots=[UsageSlot(AUGUST, 0, 900)]), "mem": RUSV(1 << 40), "gpus": RUSV(4)}
    consumers = Consumers(used, bound, [pool("ncpus", "/5%", Access(users=("bob",)))])
    consumers.book("alice", "g", placement(AUGUST + HOUR, ncpus=600, mem=1 << 30))
    request = ask(2 * HOUR, ncpus=50, mem=1 << 30)
    area = "the limit of user 'alice' on ncpus: an area of 2000h, of which jobs in the plan hold 600h, and the request"
    calm = [
        "the limit of user 'alice' on ncpus: no longer than 1-00:00:00, and the request lasts 0-02:00:00",
        f"{area} asks for 100h",
        "the limit of user 'alice' on mem: 64g, of which 1g are used then",
        "the limit of user 'alice' on jobs: 3, of which 1 are in the plan",
        "the pool 'the pool' keeps 50 of ncpus free for others, and 100 are free then",
    ]
    used_up = "the limit of user 'alice' on ncpus: 640, of which 600 are used then"
    assert consumers.explain(request, "alice", "g", AUGUST, 0) == [used_up, *calm]
    assert consumers.explain(request, "alice", "g", AUGUST, AUGUST + HOUR - 1)[0] == used_up.replace("600", "0")
    large = consumers.explain(ask(ncpus=1, mem=64 << 30), "alice", "g", AUGUST + HOUR, 0)
    assert large[0] == "the limit of user 'alice' on mem: 64g, of which 1g are used then"
    noon = consumers.explain(request, "alice", "g", AUGUST + 11 * HOUR, AUGUST + 13 * HOUR - 1)
    assert "the limit of group 'g' on ncpus: 100, of which 0 are used then" in noon
    assert consumers.explain(replace(request, lasts_s=2 * DAY, walltime_s=2 * DAY), "alice", "g", AUGUST, 0)[:3] == [
        used_up,
        "the limit of user 'alice' on ncpus: no longer than 1-00:00:00, and the request lasts 2-00:00:00",
        f"{area} asks for 2400h",
    ]
    assert consumers.explain(ask(2 * HOUR, ncpus=101), "bob", "", AUGUST, 0)[0].startswith("the limit of user 'bob'")


# ---------------------------------------------------------------------- from a file

LIMIT = '[[limits]]\nuser = "a"\nresource = "x"\n'
POOL = '[[pools]]\nname = "p"\nresource = "x"\nitems = 3\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[limits]", r"limits\.toml: cannot be read"),
        ("[[limit]]", r"limits\.toml: does not know 'limit'\nDid you mean 'limits'\? Known: limits, pools, cons"),
        ("[limits]", r"limits\.toml: limits: is no list"),
        ("limits = [3]", "limits 1: is no table"),
        ('[[limits]]\nresource = "x"', "limits 1: is not of one consumer"),
        (LIMIT + 'group = "b"', "limits 1: is not of one consumer"),
        ('[[limits]]\nuser = "a"', "limits 1: has no resource"),
        ('[[limits]]\nuser = ""\nresource = "x"', "limits 1: user: is empty"),
        ('[[limits]]\nuser = 3\nresource = "x"', "limits 1: user: is no text: 3"),
        (LIMIT + "item = 3", "limits 1: does not know 'item'\nDid you mean 'items'"),
        (LIMIT + "items = true", "limits 1: items: is no text: True"),
        (LIMIT + 'items = "45%"', r"limits 1: items: '45%' .*\nWrite 30, .* /45%"),
        (LIMIT + 'area = "1024"', "limits 1: area: '1024' is no area"),
        (LIMIT + 'duration = "0s"', "limits 1: duration: is no time at all"),
        (LIMIT + 'duration = "soon"', "limits 1: duration: 'soon' is no duration"),
        (LIMIT + 'validity = "* 25 * * *"', r"limits 1: validity:\n\* 25 \* \* \*\n  \^"),
        (LIMIT + '[[limits]]\nuser = "a"\nresource = "jobs"\narea = "3h"', "limits 2: jobs are counted"),
        ('[[pools]]\nname = "p"\nresource = "x"', "pools 1: has no items"),
        (POOL + "access = [{}]", "pools 1: access 1: lets everybody in"),
        (POOL + 'access = [{ user = "a" }]', "pools 1: access 1: does not know 'user'\nDid you mean 'users'"),
        (POOL + 'access = [{ users = "a" }]', "pools 1: access 1: users: is no list: 'a'"),
        (POOL + "access = [{ at_most = 3 }]", "pools 1: access 1: at_most: is no table: 3"),
        (POOL + 'access = [{ at_most = { x = "/5%" } }]', "pools 1: access 1: at_most: is no number of x"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(read, text, message):
    with pytest.raises(InputError) as caught:
        read(text)
    assert re.search(message, str(caught.value)), str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_limits(tmp_path / "none.toml")


def test_an_empty_file_limits_nothing(read):
    assert read("") == ((), ())


def test_areas_are_items_times_time(read):
    text = "".join(
        f'[[limits]]\ngroup = "*"\nresource = "ncpus"\narea = "{area}"\n' for area in ("90s", "2m", "1.5h", "3d")
    )
    assert [one.area for one in read(text)[0]] == [90, 120, 5400, 3 * DAY]
