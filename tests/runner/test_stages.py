"""Invariants of a run's stages: decisions do not depend on the order of news, nor times on an earlier attempt."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import WorkflowError
from asa.runner.stages import Stages
from asa.strategies.base import Phase
from asa.workflow import Stage, Workflow


def stage(name, after="", when="success", after_any=()):
    after = tuple(after.split())
    return Stage(name, cores=1, walltime_s=60, command="x", after=after, when=when, after_any=after_any)


ENDS = [
    stage("x"),
    stage("skip", "x", "failed"),
    stage("f"),
    stage("s", "skip f"),
    stage("cleanup", "s", "failed"),
    stage("after", "cleanup s", "always"),
]


def ended(flow, news):
    """Return the phases after the given stages have ended, in order, and then all others successfully, in turn."""
    stages = Stages(flow)
    for name, phase in news:
        if not stages[name].phase.is_settled:
            stages.put(name, replace(stages[name], phase=phase))
    while stages.turn:
        for name in sorted(stages.turn):
            stages.put(name, replace(stages[name], phase=Phase.DONE))
    assert stages.are_settled
    return {name: view.phase.value for name, view in stages.items()}


@pytest.mark.parametrize("order", list(itertools.permutations([("x", Phase.DONE), ("f", Phase.FAILED)])))
def test_a_failure_counts_whether_it_is_known_first_or_last(order):
    """Stage s follows a stage that was left out and one that failed: it could not run because of the failure."""
    told = ended(Workflow("w", ENDS), order)
    assert told == {"x": "done", "skip": "skipped", "f": "failed", "s": "blocked", "cleanup": "done", "after": "done"}


@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 8)),
            st.sampled_from(["success", "success", "failed", "always"]),
            st.sets(st.integers(0, 8)),
        ),
        min_size=2,
        max_size=9,
    ),
    st.sets(st.integers(0, 8)),
    st.randoms(use_true_random=False),
)
def test_what_becomes_of_stages_does_not_hang_on_the_order_of_news(drawn, bad, chance):
    """Any graph: each stage ends in its turn, as its conditions say, whichever news comes first."""
    befores = [tuple(f"s{p}" for p in sorted(before) if p < i) for i, (before, *_) in enumerate(drawn)]
    stages = [
        stage(
            f"s{i}",
            " ".join(before),
            when if before else "success",
            tuple(name for name in before if int(name[1:]) in however),
        )
        for i, (before, (_, when, however)) in enumerate(zip(befores, drawn, strict=True))
    ]
    flow = Workflow("w", stages)
    found = set()
    for _ in range(4):
        stages = Stages(flow)
        while stages.turn:
            name = chance.choice(sorted(stages.turn))
            phase = Phase.FAILED if int(name[1:]) in bad else Phase.DONE
            stages.put(name, replace(stages[name], phase=phase))
        assert stages.are_settled
        found.add(tuple((name, view.phase) for name, view in stages.items()))
    assert found == {tuple(as_conditions_say(flow, bad).items())}


def as_conditions_say(flow, bad):
    """Return how each stage ends, by the definitions of `Stage.when` and `Stage.after_any` alone."""
    phases = {}
    for name in flow.order:
        one = flow.stages[name]
        others = [phases[before] for before in one.after if before not in one.after_any]
        has_failure = any(phase in {Phase.FAILED, Phase.BLOCKED} for phase in others)
        if one.when == "success" and any(phase is not Phase.DONE for phase in others):
            phases[name] = Phase.BLOCKED if has_failure else Phase.SKIPPED
        elif one.when == "failed" and one.after and not has_failure:
            phases[name] = Phase.SKIPPED
        else:
            phases[name] = Phase.FAILED if int(name[1:]) in bad else Phase.DONE
    return phases


def test_a_stage_that_only_has_to_end_may_fail():
    """Stages that also need its success and stages that only wait for its end are treated differently."""
    flow = [stage("a"), stage("b"), stage("both", "a b", after_any=("b",)), stage("strict", "a b", after_any=("a",))]
    told = ended(Workflow("w", flow), [("a", Phase.DONE), ("b", Phase.FAILED)])
    assert told == {"a": "done", "b": "failed", "both": "done", "strict": "blocked"}
    with pytest.raises(WorkflowError, match="after_any: 'b' is not in its `after`"):
        stage("c", "a", after_any=("b",))


def test_a_stage_that_is_tried_again_is_not_put_before_what_ran_meanwhile():
    """The report ran after a's failure; a is retried successfully, and ends later."""
    stages = Stages(Workflow("w", [stage("a"), stage("b", "a"), stage("report", "b", "always")]))
    stages.put("report", replace(stages["report"], phase=Phase.DONE, submit_s=15.0, started_s=16.0, ended_s=18.0))
    stages.put("a", replace(stages["a"], phase=Phase.RUNNING, submit_s=30.0))
    assert stages.in_order("a", 31.0) == 31.0
    stages.put("a", replace(stages["a"], started_s=31.0, ended_s=33.0, phase=Phase.DONE))
    stages.put("b", replace(stages["b"], submit_s=20.0))
    assert stages.in_order("b", 32.0) == 33.0
