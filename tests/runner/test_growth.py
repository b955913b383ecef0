"""Large graphs take the client little time: work for each stage must not visit the whole graph."""

import time

import pytest
from asa.backends.simulated import SimulatedSite
from growth import chain, exponent, layers, size, sparse

from asa.errors import WorkflowError
from asa.metrics import measure
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.workflow import Stage, Workflow


def cpu_s(work):
    begun_s = time.process_time()
    made = work()
    return time.process_time() - begun_s, made


@pytest.fixture(scope="module")
def site():
    made = SimulatedSite("hpc2n")
    made.prepare([1])
    run_all(made.open(1), [Run(chain(2), load_strategy("per-stage"))])
    return made


def test_the_exponent_is_that_of_a_power():
    assert exponent([10, 20, 40, 80], [3 * n**1.5 for n in (10, 20, 40, 80)]) == pytest.approx(1.5)
    assert exponent([10], [1.0]) != exponent([10], [1.0]), "of one point nothing is known"


@pytest.mark.parametrize(("shape", "edges"), [(chain, 999), (layers, 160_000)])
def test_graphs_are_of_the_size_that_they_are_said_to_be(shape, edges):
    assert size(shape(1000)) == 1000 + edges


def test_a_wide_graph_is_checked_in_no_time():
    """The graph has 1,000 stages and 160,000 edges; a new search at each stage would take a minute."""
    took_s, flow = cpu_s(lambda: layers(1000))
    assert flow.order[0] == "s0"
    assert took_s < 5


def test_a_cycle_is_found_far_from_the_beginning():
    """The error names exactly the stages of the cycle."""
    stages = [Stage(f"s{i}", cores=1, after=(f"s{i - 1}",) if i else ()) for i in range(2000)]
    stages[1500] = Stage("s1500", cores=1, after=("s1499", "s1502"))
    with pytest.raises(WorkflowError, match="depends on itself: s1500 -> s1501 -> s1502 -> s1500"):
        Workflow("flow", stages)
    stages[1500] = Stage("s1500", cores=1, after=("s1500",))
    with pytest.raises(WorkflowError, match="depends on itself: s1500 -> s1500"):
        Workflow("flow", stages)


@pytest.mark.parametrize("shape", [chain, layers, sparse])
@pytest.mark.full
def test_a_run_of_a_thousand_stages_takes_the_client_seconds(site, shape):
    """On a simulator, each dependency is handled once, and each job is measured from its own records alone."""
    flow = shape(1000)
    took_s, [result] = cpu_s(lambda: run_all(site.open(1), [Run(flow, load_strategy("chained"))]))
    assert result.outcome == "completed"
    assert took_s < 20
    took_s, metrics = cpu_s(lambda: measure(flow, result.records))
    assert len(metrics.stages) == 1000
    assert took_s < 1
