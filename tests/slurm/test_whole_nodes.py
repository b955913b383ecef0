"""Small stages side by side on nodes that Slurm allocates whole, by commands and by REST."""

import os
import time
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
from slurm_runs import LINKS, SlurmRun, stage
from slurm_testbed import NEWEST, OLDEST, Testbed, missing

MEET = (
    "touch here-{0}; n=0; until [ $(ls here-* | wc -l) -ge 3 ] || [ $n -ge 900 ]; do sleep 0.1; n=$((n + 1)); done; {1}"
)
"""Only stages that run at the same time get beyond it soon; `{1}`: what then."""


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def slurm(request):
    """Yield a cluster whose jobs share no node."""
    if reason := missing(request.param):
        pytest.skip(reason)
    conf = "PartitionName=DEFAULT OverSubscribe=EXCLUSIVE"
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-whole{request.param}"), release=request.param, conf=conf)
    try:
        yield testbed.start()
    finally:
        testbed.stop()


def begun(slurm, stages, link, strategy="per-stage"):
    is_untold = link == "rest" and slurm.release == OLDEST
    settings = {"whole_nodes": True} if is_untold else {}
    with closing(SlurmRun(slurm, stages, link=link, strategy=strategy, **settings).connect(time.sleep)) as backend:
        asked = backend.capabilities
    return SlurmRun(slurm, stages, link=link, strategy=strategy, of_plan={"capabilities": asked}, **settings)


def fan(then="exit 0", failing=""):
    parts = [
        stage(name, "a", MEET.format(name, failing if failing and name == "c" else then), cpus_per_task=1)
        for name in "bcd"
    ]
    return [stage("a", then="rm -f here-*"), *parts, stage("e", "bcd", "true")]


@pytest.mark.parametrize(("link", "strategy"), list(product(LINKS, ["per-stage", "chained"])))
def test_they_run_at_the_same_time_in_one_job(slurm, link, strategy):
    run = begun(slurm, fan("[ $SLURM_CPUS_ON_NODE ] && echo $SLURM_NTASKS >>tasks"), link, strategy)
    assert run.plan.capabilities.gives_whole_nodes(run.plan.capabilities.limits("normal"))
    run.result()
    state, _ = run.folder.state()
    assert state.outcome == "completed", state.reason
    assert dict(run.ran) == dict.fromkeys("abcde", 1)
    assert ("b", "c", "d") in [intent.planned.stages for intent in state.jobs.intents.values()]
    assert (run.place / "tasks").read_text().split() == ["1"] * 3, "each sees its own share of the job"


@pytest.mark.parametrize("link", LINKS)
def test_one_that_fails_leaves_the_others_be(slurm, link):
    run = begun(slurm, fan(failing="exit 3"), link)
    run.result()
    state, _ = run.folder.state()
    assert state.outcome == "failed"
    phases = {name: view.phase.value for name, view in state.stages.items()}
    assert phases == {"a": "done", "b": "done", "c": "failed", "d": "done", "e": "blocked"}
    assert "exit code 3" in state.reason or "NonZeroExitCode" in state.reason
