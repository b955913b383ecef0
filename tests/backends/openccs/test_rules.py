"""Rules of the plan that a user would expect, and that were missing."""

import pytest
from asa.backends.openccs.jobs import RefusedError
from asa.backends.openccs.limits import Items, Limit
from asa.backends.openccs.limits_file import load_limits
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.requests import ResourceRequest
from asa.backends.openccs.rusv import RUSV, UsageSlot
from asa.backends.openccs.system import CcsSystem, Node, load_system
from asa.backends.openccs.why import why

from asa.errors import InputError

HOUR = 3600
TWO = CcsSystem("two", (Node("a", {"ncpus": 8}, {"net": "IB"}), Node("b", {"ncpus": 8}, {"net": "IB"})))


def submit(plan, text, now=0, **more):
    [job] = plan.submit(ResourceRequest.parse(text, plan.system.kinds), now=now, **more)
    return job


def test_nodes_of_one_s_own_count_whole_in_an_area():
    plan = RequestPlan(TWO, [Limit("user", "b", "ncpus", Items.parse("unlimited"), area=10 * HOUR)])
    first = submit(plan, "rset=ncpus=1,walltime=1h,place=excl", user="b")
    assert first.placement.totals["ncpus"] == 8
    assert submit(plan, "rset=ncpus=1,walltime=1h,place=excl", user="b").start_s is None
    assert submit(plan, "rset=ncpus=2,walltime=1h", user="b").start_s == 0
    assert submit(plan, "rset=ncpus=1,walltime=1h,place=excl", user="c").start_s == HOUR


def test_nobody_begins_before_his_start():
    plan = RequestPlan(TWO)
    for _ in range(3):
        submit(plan, "rset=ncpus=8,walltime=1h")
    with pytest.raises(InputError, match="is to start at 3600, and it is 0"):
        plan.begin("3", now=0)
    plan.begin("3", now=HOUR)


def test_one_that_moves_leaves_room_behind_for_others():
    """Backfilling goes through the jobs once, as in the paper, or until no job moves."""

    def one(passes):
        plan = RequestPlan(CcsSystem("one", (Node("a", {"ncpus": 8}),)))
        for name, priority in (("run", 0), ("low", 0), ("high", 9)):
            submit(plan, f"rset=ncpus=8,walltime=1h,priority={priority}", name=name)
        plan.begin("run", now=0)
        plan.end("run", now=10)
        plan.backfill(now=10, passes=passes)
        return [plan.jobs[name].start_s for name in ("low", "high")]

    assert one(1) == [10, 2 * HOUR]
    assert one(0) == [10, HOUR + 10]


def test_an_array_has_an_end():
    with pytest.raises(RefusedError, match="an array may have 100000"):
        RequestPlan(TWO).submit(ResourceRequest.parse("rset=ncpus=1,array=0-99999999999"), now=0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rset=ncpus=1:net=ETH", "asks for ncpus=1:net=ETH, which no node is or lets in"),
        ("rset=2:ncpus=1+ncpus=9", "asks for ncpus=9 on one node, and none has that"),
        ("rset=3:ncpus=3,place=pack", "asks for ncpus=9 on one node"),
    ],
)
def test_a_refusal_names_the_chunk(text, told):
    with pytest.raises(RefusedError, match=told):
        submit(RequestPlan(TWO), text)


def test_what_binds_one_who_wants_nodes_of_his_own_is_that_others_use_them():
    plan = RequestPlan(CcsSystem("one", (Node("a", {"ncpus": 4}),)))
    submit(plan, "rset=ncpus=1,walltime=1h", name="a")
    submit(plan, "rset=ncpus=1,walltime=1h,place=excl", name="b")
    told = why(plan, "b", now=0)
    assert {one.words: one.start_s for one in told.constraints}["nodes that other jobs use"] == 0


def test_a_bare_number_is_one_of_items_and_of_bytes_everywhere(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text('[[nodes]]\nname = "n"\nresources = {ncpus = "4", mem = "64", scratch = "1g"}\n')
    system = load_system(path)
    assert system.nodes[0].resources == {"ncpus": 4, "mem": 64, "scratch": 1 << 30}
    submit(RequestPlan(system), "rset=ncpus=4:mem=64:scratch=1g,walltime=1h")
    limits = tmp_path / "l.toml"
    limits.write_text('[[limits]]\nuser = "x"\nresource = "ncpus"\nitems = "4"\n')
    assert load_limits(limits).limits[0].items.of(16) == 4


def test_what_is_no_slot_is_refused():
    with pytest.raises(InputError, match="less than no items"):
        RUSV(4).increment(UsageSlot(1, 2, -3))
    with pytest.raises(InputError, match="from 9 to before 5"):
        RUSV(4).add_within(9, 5, 1)
