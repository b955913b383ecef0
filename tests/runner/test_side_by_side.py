"""Stages side by side in one job, on a queue of this machine: failures, successors, retries."""

from types import SimpleNamespace

import pytest
from local_queue import Queue

from asa.cli.standing import standing_of
from asa.runner import RunFolder, RunPlan, drive
from asa.workflow import Stage


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path, 4)
    yield queue
    queue.close()


@pytest.fixture
def run(tmp_path, queue, monkeypatch):
    """Run stages that each leave a line to the end; return the run's state, its records and those lines."""
    monkeypatch.chdir(tmp_path)  # where commands run

    def run(*stages, strategy="per-stage"):
        facility = type(queue.machine)(cores=4, spool=str(queue.root / "spool"), whole_nodes="yes")
        plan = RunPlan(
            "abcd12345678", "flow", "flow", tuple(stages), strategy, "local", facility.capabilities,
            folder=str(tmp_path), created_s=1.7e9, history=0,
        )  # fmt: skip
        folder = RunFolder.create(tmp_path / "runs", plan)
        drive(folder, lambda one: facility.connect(one.path))
        state, records = folder.state()
        lines = (tmp_path / "ran").read_text().split()
        return SimpleNamespace(state=state, records=records, ran=lines, folder=folder)

    return run


def stage(name, then="true", after="", **more):
    more = {"cores": 1, "walltime_s": 300.0, "expected_run_s": 2.0} | more
    return Stage(name, after=tuple(after.split()), command=f"echo {name} >>ran; {then}", **more)


def phases(state):
    return {name: view.phase.value for name, view in state.stages.items()}


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "big-job"])
def test_what_follows_one_that_completed_runs_though_a_sibling_failed(run, strategy):
    done = run(
        stage("a", "exit 3"), stage("b"), stage("after_a", after="a"), stage("after_b", after="b"), strategy=strategy
    )
    assert phases(done.state) == {"a": "failed", "b": "done", "after_a": "blocked", "after_b": "done"}
    assert sorted(done.ran) == ["a", "after_b", "b"]
    assert "exit code 3" in done.state.stages["a"].reason or "NonZeroExitCode" in done.state.stages["a"].reason


@pytest.mark.parametrize("strategy", ["per-stage", "big-job"])
def test_those_that_may_be_tried_again_are(run, strategy):
    def flaky(name):
        return stage(name, f"[ $(grep -c {name} ran) -ge 3 ]", retries=2)

    done = run(flaky("a"), flaky("b"), stage("c", after="a b"), strategy=strategy)
    assert done.state.outcome == "completed", done.state.reason
    assert sorted(done.ran) == [*"aaabbbc"]


def test_each_has_its_own_exit_code(run):
    done = run(stage("a", "exit 3"), stage("b", "exit 7"), stage("c"))
    assert phases(done.state) == {"a": "failed", "b": "failed", "c": "done"}
    reasons = [done.state.stages[name].reason for name in "ab"]
    assert ["exit code 3" in reasons[0], "exit code 7" in reasons[1]] == [True, True], reasons
    shown = {one.stage: one for one in standing_of(done.folder, 1.8e9).stages}
    assert {name: one.exit_code for name, one in shown.items()} == {"a": 3, "b": 7, "c": 0}


def test_what_follows_a_short_one_does_not_wait_for_the_others(run):
    """The long stage ends only once the short stage's successor has run."""
    wait = "n=0; until grep -q next ran || [ $n -ge 600 ]; do sleep 0.1; n=$((n + 1)); done; grep -q next ran"
    done = run(stage("long", wait), stage("short"), stage("next", after="short"))
    assert done.state.outcome == "completed", done.state.reason
