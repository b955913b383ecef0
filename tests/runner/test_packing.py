"""Packs of small stages on whole nodes: which share a job, and which wait a moment for others to share it."""

import pytest

from asa.backend import Capabilities
from asa.runner.entries import Begun, Claimed
from asa.runner.packing import packed
from asa.runner.state import RunState
from asa.strategies.base import Keep, Phase, PlannedJob
from asa.workflow import Stage, Workflow

LEFT = [f"s{number}" for number in range(12)]


def state_of(stages, *, is_open=True, cores_per_node=28, whole_nodes=True):
    site = Capabilities("x", 8 * cores_per_node, cores_per_node, age_accrues=False, whole_nodes=whole_nodes)
    state = RunState("x", Workflow("x", stages), site, "0")
    list(state.apply(Begun(0.0, fail_fast=False, is_open=is_open)))
    return state


def hosted(claimed_s, *, ran_s=20.0, ended=(), under_way=(), left=LEFT, follows=(), cores=1, **site):
    """Make a run whose host has handed over some stages; some of these have ended, each after `ran_s`.

    `follows`: what the stages that are left follow. `cores`: of each of these.
    """
    first = {name: Stage(name, cores=1, expected_run_s=300.0) for name in LEFT[:7]}
    others = [name for name in left if name not in first]
    later = (Stage(name, cores=cores, expected_run_s=300.0, after=tuple(follows)) for name in others)
    state = state_of([*first.values(), *later], **site)
    state.host.keep_back(left, state.stages)
    for name, at_s in claimed_s.items():
        list(state.apply(Claimed(name, at_s)))
    for name in under_way:
        state.stages.change(name, phase=Phase.RUNNING, started_s=claimed_s[name])
    for name in ended:
        began_s = claimed_s[name]
        state.stages.change(name, phase=Phase.DONE, started_s=began_s, ended_s=began_s + ran_s)
    return state


def due(*names, at_s=0.0, keep=Keep.NOTHING):
    return [PlannedJob((name,), at_s, keep, "why") for name in names]


def told(state, jobs, now_s):
    return [(job.stages, max(job.submit_s - now_s, 0.0)) for job in packed(state, jobs, now_s)]


FIRST = dict.fromkeys(LEFT[:5], 0.0)
COMING = {"claimed_s": FIRST | {"s5": 20.0, "s6": 22.0}, "ended": ["s0", "s1"], "under_way": ["s2", "s3", "s4"]}


def test_stages_that_come_one_by_one_are_gathered_for_a_quarter_of_what_such_stages_run():
    """From the first of them on, so that no later one lets it wait longer."""
    state = hosted(**COMING)
    assert told(state, due("s5", "s6"), 22.0) == [(("s5", "s6"), 3.0)]
    assert told(state, due("s5", "s6"), 25.0) == [(("s5", "s6"), 0.0)]


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("nothing is under way whose end would bring another", {"under_way": [], "ended": LEFT[:5]}),
        ("all are handed over", {"left": LEFT[:7]}),
        ("they come too slowly", {"claimed_s": dict(zip(LEFT, [0, 100, 200, 300, 400, 598, 600], strict=False))}),
        ("how long they run is not known yet", {"ended": []}),
        ("all came at once", {"claimed_s": dict.fromkeys(LEFT[:7], 20.0)}),
        ("the node is full", {"cores_per_node": 2}),
        ("the others follow them", {"follows": ["s5"]}),
        ("the others cannot share a node with them", {"cores": 56}),
    ],
)
def test_they_are_submitted_at_once_if_waiting_brings_nothing(why, changes):
    state = hosted(**{**COMING, **changes})
    now_s = max(state.host.claimed_s.values())
    assert told(state, due("s5", "s6", at_s=now_s), now_s) == [(("s5", "s6"), 0.0)], why


def test_they_wait_for_what_follows_stages_that_run():
    assert told(hosted(**COMING, follows=["s1", "s2"]), due("s5", "s6"), 22.0) == [(("s5", "s6"), 3.0)]


def test_where_jobs_share_nodes_nothing_is_gathered():
    state = hosted(**COMING, whole_nodes=False)
    assert told(state, due("s5", "s6"), 22.0) == [(("s5",), 0.0), (("s6",), 0.0)]


def test_what_a_strategy_put_together_is_gathered_too():
    """Of its stages some are handed over; these, and others, share a job."""
    state = hosted(**COMING | {"claimed_s": COMING["claimed_s"] | {"s7": 22.0}})
    jobs = [PlannedJob(("s5", "s6"), 0.0, Keep.NOTHING, "why"), *due("s7")]
    assert told(state, jobs, 22.0) == [(("s5", "s6", "s7"), 3.0)]


@pytest.mark.parametrize(("keep", "is_packed"), [(Keep.DEPENDENCY, True), (Keep.AWAIT, False)])
def test_what_follows_different_stages_of_one_job_shares_a_job(keep, is_packed):
    """The batch system keeps it back until that job has ended, whichever stage of it is followed."""
    stages = [Stage(f"a{n}", cores=1) for n in range(3)] + [Stage(f"b{n}", cores=1, after=(f"a{n}",)) for n in range(3)]
    state = state_of(stages, is_open=False)
    found = [stages for stages, _ in told(state, [*due("a0", "a1", "a2"), *due("b0", "b1", "b2", keep=keep)], 0.0)]
    assert found == [("a0", "a1", "a2"), *([("b0", "b1", "b2")] if is_packed else [("b0",), ("b1",), ("b2",)])]


def test_what_follows_different_jobs_does_not():
    """It would wait for both."""
    stages = [Stage("a0", cores=28), Stage("a1", cores=28)]
    stages += [Stage(f"b{n}", cores=1, after=(f"a{n}",)) for n in range(2)]
    state = state_of(stages, is_open=False)
    found = [stages for stages, _ in told(state, [*due("a0", "a1"), *due("b0", "b1", keep=Keep.DEPENDENCY)], 0.0)]
    assert found == [("a0",), ("a1",), ("b0",), ("b1",)]
