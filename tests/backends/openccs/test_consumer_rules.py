"""Values and validities of users and groups, and priorities that are computed."""

import json

import pytest
from asa.backends.openccs.jobs import JobPhase, RefusedError
from asa.backends.openccs.limits_file import load_limits
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.requests import RequestParts, ResourceRequest
from asa.backends.openccs.rules import ConsumerRule
from asa.backends.openccs.system import CcsSystem, Node, load_system
from asa.backends.openccs.validity import Validity
from asa.backends.openccs.why import why
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError

DAY = 86_400
TWO = CcsSystem("two", tuple(Node(name, {"ncpus": 16, "mem": 64 << 30, "gpus": 1}) for name in "ab"))


def rule(kind="user", name="*", validity="always", default="", force=""):
    parts = (RequestParts.parse(text) if text else RequestParts() for text in (default, force))
    return ConsumerRule(kind, name, Validity.parse(validity), *parts)


def planned(*rules, system=TWO, text="rset=ncpus=4", user="ann", group="physics", now=0, **more):
    """Return the first job of a plan with these rules."""
    plan = RequestPlan(system, rules=rules)
    return plan.submit(ResourceRequest.parse(text), now=now, user=user, group=group, **more)[0]


# ---------------------------------------------------------------------- values


def test_values_by_default_are_what_a_request_does_not_say():
    own = rule(default="walltime=2h,place=scatter,rset=mem=2g,notify=10m,sw=g03", name="ann")
    system = CcsSystem("two", TWO.nodes, licences={"g03": 2})
    assert str(planned(own, system=system).request) == (
        "rset=ncpus=4:mem=2g,sw=g03,place=scatter,walltime=0-02:00:00,notify=0-00:10:00"
    )
    text = "rset=2:ncpus=4:mem=1g+ncpus=1,walltime=5m,place=free,priority=0,sw=g03"
    said = planned(own, system=system, text=text).request
    assert str(said) == "rset=2:ncpus=4:mem=1g+ncpus=1:mem=2g,sw=g03,walltime=0-00:05:00,notify=0-00:10:00"
    assert planned(own, system=system, user="bob").request == ResourceRequest.parse("rset=ncpus=4")


def test_forced_values_replace_what_a_request_says():
    own = rule(force="walltime=1h,rset=mem=2g,priority=-5")
    job = planned(own, text="rset=3:ncpus=4:mem=9g,walltime=9h,priority=9")
    assert str(job.request) == "rset=3:mem=2g:ncpus=4,walltime=0-01:00:00,priority=-5"
    assert job.placement.end - job.placement.start == 3600


@pytest.mark.parametrize("part", ["default", "force"])
def test_the_user_counts_more_than_the_group_and_that_more_than_all(part):
    texts = {("user", "ann"): 1, ("group", "physics"): 2, ("user", "*"): 3, ("group", "*"): 4}
    rules = [rule(*who, **{part: f"walltime={hours}h"}) for who, hours in texts.items()]
    for left in range(4):
        job = planned(*reversed(rules[left:]))
        assert job.request.walltime_s == 3600 * (left + 1)
    assert planned(*rules, user="").request.walltime_s == 2 * 3600
    assert planned(*rules, user="", group="").request.walltime_s == 3 * 3600
    assert planned(*rules[:2], user="bob", group="chem").request.walltime_s is None


def test_forced_values_hold_for_altered_requests_and_in_reservations():
    plan = RequestPlan(TWO, rules=[rule(name="ann", force="walltime=10m")])
    plan.submit(ResourceRequest.parse("rset=ncpus=1"), now=0, user="ann", name="a")
    assert plan.alter("a", RequestParts.parse("walltime=9h"), now=0).request.walltime_s == 600
    plan.reserve(ResourceRequest.parse("rset=ncpus=16,start=7200,walltime=1h"), now=0, name="r")
    inside = plan.submit(ResourceRequest.parse("rset=ncpus=1,walltime=30,reservation=r"), now=0, user="ann")
    assert [job.request.walltime_s for job in inside] == [600]


def test_a_plan_is_the_same_after_a_crash():
    journal = []
    rules = [rule(default="walltime=2h,rset=mem=2g", force="place=scatter")]
    plan = RequestPlan(TWO, rules=rules, on_entry=lambda entry: journal.append(json.loads(json.dumps(entry))))
    plan.submit(ResourceRequest.parse("rset=2:ncpus=4"), now=0, user="ann")
    assert RequestPlan.reload(TWO, journal, rules=rules).jobs == plan.jobs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("start=0", "start is each request's own"),
        ("depend=afterok:a", "depend is each request's own"),
        ("rset=ncpus=1+mem=2g", "holds several chunks"),
        ("rset=2:mem=2g", "holds several chunks"),
    ],
)
def test_what_is_no_value_of_a_user_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        rule(default=text)


def test_rules_are_read_from_a_file(tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text('[[consumers]]\ngroup = "physics"\nvalidity = "/2017-12-31"\ndefault = "walltime=2h,disk=3"\n')
    with pytest.raises(InputError, match="there is no resource 'disk'"):
        load_limits(path)
    kinds = CcsSystem("disks", TWO.nodes, licences={"disk": 10}).kinds
    [read] = load_limits(path, kinds).rules
    assert (read.kind, read.name, str(read.validity)) == ("group", "physics", "/2018-01-01T00:00:00Z")
    assert (read.default.terms, read.default.job_wide) == ({"walltime": 7200}, {"disk": 3})
    path.write_text('[[consumers]]\nvalidity = "always"\n')
    with pytest.raises(InputError, match="is not of one consumer"):
        load_limits(path)


# ---------------------------------------------------------------------- validities


def test_who_is_not_valid_now_is_refused():
    ends = rule(name="ann", validity="/1970-01-02")
    assert planned(ends, now=2 * DAY - 1, text="rset=ncpus=1,walltime=1s").start_s == 2 * DAY - 1
    for more, message in (
        ({"now": 2 * DAY}, "user 'ann' is not valid now, but /1970-01-03"),
        ({"now": 0, "user": "bob", "group": "chem"}, "group 'chem' is not valid now"),
    ):
        with pytest.raises(RefusedError, match=message):
            planned(ends, rule("group", "chem", "1970-01-03/"), **more)


def test_jobs_run_while_their_user_is_valid_and_wait_if_that_cannot_be():
    ends = rule(name="ann", validity="/1970-01-01")
    assert planned(ends, text="rset=ncpus=16,walltime=24h").start_s == 0
    long = planned(ends, text="rset=ncpus=16,walltime=25h")
    assert (long.phase, long.start_s) == (JobPhase.WAITING, None)
    plan = RequestPlan(TWO, rules=[ends])
    plan.submit(ResourceRequest.parse("rset=2:ncpus=16,walltime=20h"), now=0, user="bob")
    [late] = plan.submit(ResourceRequest.parse("rset=ncpus=1,walltime=5h"), now=0, user="ann", name="late")
    assert late.phase is JobPhase.WAITING
    told = why(plan, "late", now=0, at=20 * 3600)
    assert "it meets the validity of user 'ann': /1970-01-02T00:00:00Z" in told.sentences()[1]
    assert [(one.cause, one.start_s) for one in told.constraints if one.start_s is not None] == [
        ("consumer", 20 * 3600),
        ("jobs", 0),
    ]


@given(st.integers(0, 3 * DAY), st.integers(1, 20), st.integers(0, 30))
def test_nobody_runs_outside_of_a_repeated_validity(now, hours, before_h):
    """A job starts at the first second from which on its user is valid for as long as it lasts."""
    night = rule(name="ann", validity="* 20-23,0-5 * * *")
    plan = RequestPlan(TWO, rules=[night])
    if before_h:
        plan.submit(ResourceRequest.parse(f"rset=2:ncpus=16,walltime={before_h}h"), now=0, user="bob")
    is_valid = now % DAY < 6 * 3600 or now % DAY >= 20 * 3600
    if not is_valid:
        with pytest.raises(RefusedError, match="not valid now"):
            plan.submit(ResourceRequest.parse("rset=ncpus=1"), now=now, user="ann")
        return
    [job] = plan.submit(ResourceRequest.parse(f"rset=2:ncpus=16,walltime={hours}h"), now=now, user="ann")
    if hours > 10:
        assert job.start_s is None
        return
    free_s = max(now, 3600 * before_h)
    at = free_s % DAY
    nights = [-4 * 3600, 20 * 3600]  # of ten hours
    starts = [max(at, night_s) for night_s in nights if max(at, night_s) + 3600 * hours <= night_s + 10 * 3600]
    assert job.start_s == free_s - at + (min(starts) if starts else DAY + 20 * 3600 - DAY)


# ---------------------------------------------------------------------- priorities


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("rset=ncpus=1", 3),
        ("rset=33:ncpus=1", 9),  # on three nodes at least
        ("rset=5:ncpus=1,place=scatter", 15),
        ("rset=ncpus=1:gpus=1", 53),
        ("rset=ncpus=1,deadline=9", 103),
        ("rset=ncpus=1,start=9,sw=g03", 1010),
        ("rset=ncpus=1,priority=4", 4),
        ("rset=ncpus=1,priority=0", 0),
    ],
)
def test_a_priority_is_computed_of_what_is_asked_for(text, priority):
    priorities = {"node": 3, "gpus": 50, "deadline": 100, "start": 1000, "g03": 7}
    nodes = tuple(Node(f"n{number}", {"ncpus": 16, "gpus": 1}) for number in range(9))
    system = CcsSystem("s", nodes, licences={"g03": 2}, walltime_s=1, priorities=priorities)
    assert planned(system=system, text=text).request.priority == priority


def test_jobs_of_higher_computed_priority_are_first_to_start_earlier():
    system = CcsSystem("s", TWO.nodes, priorities={"gpus": 1})
    plan = RequestPlan(system)
    for name, text in (("a", "2:ncpus=16"), ("b", "ncpus=16"), ("c", "2:ncpus=16:gpus=1")):
        plan.submit(ResourceRequest.parse(f"rset={text},walltime=1h"), now=0, name=name)
    plan.end("a", now=0)
    assert [(job.id, job.start_s) for job in plan.backfill(now=0)] == [("c", 0)]  # b came before it
    assert plan.jobs["b"].start_s == 3600


def test_priorities_are_in_the_file_of_a_system(tmp_path):
    path = tmp_path / "system.toml"
    nodes = '[[nodes]]\nname = "n"\nresources = {ncpus = 4}\n'
    path.write_text(f"{nodes}[priority]\nnode = 2\nncpus = 1\n")
    assert load_system(path).priorities == {"node": 2, "ncpus": 1}
    for wrong, message in (
        ("gpus = 2", "nothing of a request has a priority by 'gpus'"),
        ('node = "x"', "whole number"),
    ):
        path.write_text(f"{nodes}[priority]\n{wrong}\n")
        with pytest.raises(InputError, match=message):
            load_system(path)
