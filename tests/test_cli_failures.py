"""Runs in which a stage fails: reports on each stage, unaffected stages, and stages that run only after a failure."""

import json

import pytest
from this_machine import Place

FLOW = """name = "flow"
[defaults]
cores = 1
walltime = "5min"
[[stage]]
name = "a"
command = "echo a >>did"
[[stage]]
name = "b"
after = ["a"]
command = "echo b >>did; echo no >&2; test -e mended"
[[stage]]
name = "c"
after = ["b"]
command = "echo c >>did"
[[stage]]
name = "d"
after = ["a"]
command = "echo d >>did"
[[stage]]
name = "clean"
after = ["b"]
when = "failed"
command = "echo clean >>did"
[[stage]]
name = "tell"
after = ["c", "d"]
when = "always"
command = "echo tell >>did"
"""
FAILED = {"a": "done", "b": "failed", "c": "blocked", "d": "done", "clean": "done", "tell": "done"}


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    (tmp_path / "flow.toml").write_text(FLOW)
    yield made
    made.close()


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["big-job", "per-stage"])
def test_each_stage_of_a_run_that_failed_is_told_by_itself(place, strategy):
    """Several stages may have shared the failed job: completed and unbegun stages did not fail."""
    told = place.asa("run", "flow.toml", *place.on, "--strategy", strategy, "--quiet", code=1).stderr
    assert "4 stages completed, 1 failed, 1 did not run." in told
    assert told.splitlines()[-1].startswith("  once it is fixed:   asa resume --retry --workflow flow.toml flow-")
    assert sorted(place.lines()) == ["a", "b", "clean", "d", "tell"]
    assert place.states() == FAILED
    stages = {stage["stage"]: stage for stage in place.status()["stages"]}
    assert (stages["c"]["reason"], stages["c"]["job_id"]) == ("stage 'b' failed", None)
    assert {stages[name]["exit_code"] for name in ("a", "d", "clean", "tell")} == {0}
    shown = place.asa("status", columns=80).stdout
    assert "4 stages completed, 1 failed, 1 did not run\n" in shown
    assert "c: stage 'b' failed" in shown
    explained = place.asa("explain").stdout
    assert "\nb: failed\n" in explained
    assert "\nc: blocked\n  It does not run, since stage 'b' failed.\n" in explained
    assert "it does not run: stage 'b' failed" in place.asa("logs", "c", code=1).stderr
    assert "no" in place.asa("logs", "b", "--err").stdout
    place.asa("report", "--out", "page.html")
    page = (place.root / "page.html").read_text()
    assert "blocked" in page
    assert "stage &#39;b&#39; failed" in page or "stage 'b' failed" in page


def test_a_run_is_gone_on_with_after_a_failure(place):
    """The stages that will run, once more or for the first time, are named before; the cost is in the summary."""
    place.asa("run", "flow.toml", *place.on, "--strategy", "big-job", "--quiet", code=1)
    (place.root / "mended").touch()
    assert " goes on with b, c; " in place.asa("resume", "--retry").stderr
    assert set(place.states().values()) == {"done"}
    assert place.status()["metrics"]["makespan_s"] > 0
    assert " goes on with b, c, clean, tell once more; " in place.asa("resume", "--from", "b").stderr
    assert place.lines().count("a") == 1
    assert place.lines()[-3:] == ["b", "c", "tell"]
    assert place.states() == {**FAILED, "b": "done", "c": "done", "clean": "skipped"}
    assert [stage["stage"] for stage in place.status()["metrics"]["stages"]] == ["a", "b", "c", "d", "tell"]


def test_what_is_there_for_a_failure_is_skipped_where_nothing_fails(place):
    """Such a run has completed, with a cost; the drawing marks the skipped stages."""
    assert " failed " in place.asa("show", "flow.toml").stdout
    whens = [stage["when"] for stage in json.loads(place.asa("show", "flow.toml", "--output", "json").stdout)["stages"]]
    assert sorted(whens) == ["always", "failed", *["success"] * 4]
    (place.root / "mended").touch()
    done = place.asa("run", "flow.toml", *place.on, "--strategy", "per-stage", "--quiet").stdout
    assert "skipped: no stage that it depends on failed" in done
    assert "core-hours" in done
    [run] = place.runs()
    assert len(json.loads((run / "metrics.json").read_text())["stages"]) == 5
    assert place.states()["clean"] == "skipped"
    assert "It does not run, since no stage that it depends on failed." in place.asa("explain", "clean").stdout
    assert "clean" not in place.lines()
    place.asa("report", "--out", "page.html")
    assert "skipped" in (place.root / "page.html").read_text()


def test_a_run_may_go_on_without_races(place):
    place.asa("run", "flow.toml", *place.on, "--strategy", "asa-plan:price=18", "--quiet", code=1)
    assert strategies(place) == ["asa-plan:price=18"]
    (place.root / "mended").touch()
    place.asa("resume", "--retry", "--no-races", "--quiet")
    assert strategies(place) == ["asa-plan:price=18:races=no"]


@pytest.mark.full
def test_a_run_that_begins_without_races_is_kept_so(place):
    for strategy in ("asa-plan:races=yes", "per-stage"):
        place.asa("run", "flow.toml", *place.on, "--strategy", strategy, "--no-races", "--quiet", code=1)
    assert sorted(strategies(place)) == ["asa-plan:races=no", "per-stage"]


def strategies(place):
    return [json.loads((run / "run.json").read_text())["strategy"] for run in place.runs()]


def test_the_first_failure_ends_a_run_that_is_to_fail_fast(place):
    """Stages not yet requested do not run, whatever happens to a job that they shared."""
    told = place.asa("run", "flow.toml", *place.on, "--strategy", "big-job", "--fail-fast", "--quiet", code=1).stderr
    assert "1 stage completed, 1 failed, 4 did not run." in told
    not_run = dict.fromkeys(("d", "clean", "tell"), "not run")
    assert place.states() == {"a": "done", "b": "failed", "c": "blocked", **not_run}
    assert "The run ended before its turn." in place.asa("explain", "d").stdout
    assert "its job has not started yet" in place.asa("logs", "d", code=1).stderr
