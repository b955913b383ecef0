"""Verdicts on whether it is worth it: by hand, and as the command tells them."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from golden.cases import DATA
from typer.testing import CliRunner

from asa.cli.app import app
from asa.errors import AsaError, RunError
from asa.metrics import RunMetrics, StageTimes
from asa.studies.compare.study import CompareRun
from asa.studies.worth import judged
from asa.workflow import Stage, Workflow

FLOW = Workflow("flow", [Stage("a", cores=8, walltime_s=3600), Stage("b", cores=2, walltime_s=3600, after=("a",))])
LOG = DATA / "small.swf.gz"


def runs(makespans_h, hours=None, *, wait_h=1.0, moments=40, age_accrues=False, seed=1):
    """Make runs of each way: its mean makespan, beside what all have in common of a moment, and its core-hours."""
    rng = np.random.default_rng(seed)
    common, found = rng.normal(0.0, 0.3, moments), []
    for way, mean_h in makespans_h.items():
        for moment in range(moments):
            took_s = 3600 * max(mean_h + common[moment] + rng.normal(0.0, 0.1), 0.1)
            stages = (StageTimes("a", 0.0, 3600.0), StageTimes("b", 3600 * wait_h, 3600.0))
            metrics = RunMetrics(took_s, 3600 * wait_h, (hours or {}).get(way, 10.0), 0.0, 0, 0, 0, 0, stages)
            found.append(CompareRun("flow", "here", 8, way, moment, age_accrues, metrics))
    return found


def test_a_clear_gain_over_every_simple_way_is_worth_it():
    verdict = judged(FLOW, runs({"per-stage": 4.0, "chained": 3.9, "big-job": 3.8, "asa": 3.0, "asa-plan": 3.1}))
    assert (verdict.answer, verdict.way, verdict.best_simple) == ("yes", "asa", "big-job")
    first, second, third = verdict.sentences
    assert first == "It is worth it here: use asa."
    assert "sooner than big-job" in second
    assert "for the same core-hours" in second
    assert "25 % of the makespan" in third
    assert "gain no priority" in third
    pairs = [(one.way, one.rival) for one in verdict.beside]
    assert pairs == [(way, rival) for way in ("asa", "asa-plan") for rival in ("per-stage", "chained", "big-job")]
    assert all(one.is_clear and one.time.mean < 0 for one in verdict.beside)


def test_what_chained_does_as_well_is_not_worth_it():
    verdict = judged(FLOW, runs({"per-stage": 4.0, "chained": 3.0, "big-job": 4.0, "asa": 3.0}, age_accrues=True))
    assert (verdict.answer, verdict.way) == ("no", "chained")
    assert verdict.sentences[0] == "It is not worth it here: chained does as well."
    assert "gain priority while they wait for a dependency" in verdict.sentences[2]


def test_what_is_better_is_called_so():
    verdict = judged(FLOW, runs({"per-stage": 4.0, "big-job": 2.0, "asa": 3.0}))
    assert verdict.sentences[0] == "It is not worth it here: big-job is better."
    assert "One job for all stages waits only once" in verdict.sentences[2]


def test_core_hours_count():
    """Half an hour of three is not worth twice the core-hours."""
    hours = {"per-stage": 10.0, "big-job": 20.0, "asa": 10.0}
    verdict = judged(FLOW, runs({"per-stage": 4.0, "big-job": 2.5, "asa": 3.0}, hours))
    assert (verdict.answer, verdict.best_simple) == ("yes", "per-stage")


def test_where_stages_hardly_wait_that_decides():
    verdict = judged(FLOW, runs({"per-stage": 4.0, "chained": 4.0, "asa": 4.0}, wait_h=0.02))
    assert verdict.answer == "no"
    assert "hardly wait" in verdict.sentences[2]


def test_what_may_be_a_gain_or_not_is_not_decided():
    rng = np.random.default_rng(1)
    noisy = [
        CompareRun("flow", "here", 8, way, moment, False, RunMetrics(
            3600 * float(rng.lognormal(0.0, 1.0)) * mean, 0.0, 10.0, 0.0, 0, 0, 0, 0, (StageTimes("a", 0.0, 1.0),)))
        for way, mean in (("per-stage", 1.0), ("asa", 0.9)) for moment in range(5)
    ]  # fmt: skip
    verdict = judged(FLOW, noisy)
    assert verdict.answer == "unclear"
    assert "cannot be decided from 5 starting times" in verdict.sentences[0]


def test_what_one_way_cannot_decide_another_may():
    """Asa is chained to the second; the plan may be better, or not: that is no No."""
    some = runs({"per-stage": 4.0, "chained": 3.0})
    same = [replace(run, strategy="asa") for run in some if run.strategy == "chained"]
    rng = np.random.default_rng(3)
    plan = [
        replace(run, strategy="asa-plan", metrics=replace(run.metrics, makespan_s=run.metrics.makespan_s * factor))
        for run, factor in zip(same, rng.lognormal(-0.05, 0.5, len(same)), strict=True)
    ]
    verdict = judged(FLOW, some + same + plan)
    assert verdict.answer == "unclear"
    assert "asa-plan may or may not be better than chained" in verdict.sentences[0]


def test_a_way_that_completes_at_easy_moments_alone_is_left_out():
    every = runs({"per-stage": 4.0, "chained": 3.9, "big-job": 5.0, "asa": 3.0})
    easy = {moment for moment in range(40) if moment % 4 == 0}
    some = [
        run
        if run.strategy != "big-job"
        else replace(run, metrics=replace(run.metrics, makespan_s=600.0) if run.seed in easy else None)
        for run in every
    ]
    verdict = judged(FLOW, some)
    assert verdict.failed == {"big-job": 30}
    assert verdict.best_simple in {"per-stage", "chained"}
    assert "big-job is left out: it failed from 30 starting times." in verdict.sentences[1]
    few = [replace(run, metrics=None) if (run.strategy, run.seed) == ("asa", 3) else run for run in every]
    assert judged(FLOW, few).moments == 39


def test_moments_that_meet_the_same_queue_are_not_many():
    """Of a difference that lasts for weeks at a time, moments within a week tell the same."""
    rng = np.random.default_rng(2)
    weeks = np.repeat(rng.normal(0.0, 0.6, 10), 10)
    told = []
    for moment, drift in enumerate(weeks):
        for way, factor in (("per-stage", 1.0), ("asa", float(np.exp(-0.1 + drift)))):
            stages = (StageTimes("a", 0.0, 3600.0), StageTimes("b", 3600.0, 3600.0))
            metrics = RunMetrics(36_000 * factor, 3600.0, 10.0, 0.0, 0, 0, 0, 0, stages)
            told.append(CompareRun("flow", "here", 8, way, moment, False, metrics))
    [one] = judged(FLOW, told).beside
    assert one.weighed.half > 1.5 * 1.96 * float(np.std(weeks)) / 10


def test_a_twin_that_is_far_off_is_said_first():
    verdict = judged(FLOW, runs({"per-stage": 4.0, "asa": 3.0}), is_rough=True)
    assert verdict.sentences[0].endswith("take this as a rough estimate.")


def test_no_difference_is_seldom_called_one():
    """Of 60 worlds without any, at most a few are said to be worth it."""
    told = [judged(FLOW, runs({"per-stage": 3.0, "chained": 3.0, "asa": 3.0}, seed=seed)).answer for seed in range(60)]
    assert told.count("yes") <= 3


def test_ways_that_fail_are_left_out_and_none_at_all_is_an_error():
    some = runs({"per-stage": 4.0, "asa": 3.0})
    failed = [CompareRun("flow", "here", 8, "big-job", moment, False, None, "too long") for moment in range(40)]
    assert judged(FLOW, some + failed).answer == "yes"
    with pytest.raises(RunError, match="too long"):
        judged(FLOW, failed)


# ---------------------------------------------------------------------- the commands


def asa(*words):
    """Run a command here, which is quicker than to start a process."""
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    if isinstance(done.exception, AsaError):
        return SimpleNamespace(exit_code=done.exception.exit_code, output=f"{done.exception}\n{done.exception.hint}")
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    place = tmp_path_factory.mktemp("twin") / "site.twin"
    done = asa("twin", LOG, "--out", place)
    assert done.exit_code == 0, done.output
    for words in ("Seen", "Assumed", "and recorded waits", "all jobs", f"Twin written to {place}"):
        assert words in done.output
    return place


def test_a_verdict_is_three_sentences_and_the_figures(twin, tmp_path):
    page = tmp_path / "worth.html"
    done = asa("worth", "blast", "--cores", 8, "--twin", twin, "--moments", 6, "--jobs", 1, "--report", page)
    assert done.exit_code == 0, done.output
    assert "worth it here" in done.stdout.splitlines()[0]  # what takes long is told on stderr
    for words in ("With ", "per-stage", "asa-plan", "Waits in the twin and recorded waits", "Assumed:"):
        assert words in done.output
    assert "worth it here" in page.read_text()


def test_it_is_the_same_of_a_history_and_as_json(twin):
    words = ("worth", "blast", "--cores", 8, "--moments", 4, "--jobs", 1, "--output", "json")
    told = [json.loads(asa(*words, *of).stdout) for of in (("--twin", twin), ("--history", LOG))]
    assert told[0]["verdict"]["answer"] in {"yes", "no", "unclear"}
    assert len(told[0]["runs"]) == 4 * 5
    for name in ("per-stage", "chained", "big-job"):
        one, other = ([run["makespan_s"] for run in of["runs"] if run["strategy"] == name] for of in told)
        assert one == other


def test_the_rule_of_age_may_be_said(tmp_path):
    for option, accrues in (("--age-accrues", True), ("--no-age-accrues", False)):
        asa("twin", LOG, "--out", tmp_path, option)
        assert json.loads((tmp_path / "twin.json").read_text())["age_accrues"] is accrues


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("worth", "blast", "--twin", "a", "--history", "b"), "Give --twin or --history"),
        (("worth", "blast", "--twin", "nowhere"), "is no twin"),
        (("worth", "blast", "--history", "nowhere"), "cannot be read"),
        (("worth", "blast", "--cores", "8,16", "--history", LOG), "Give one number"),
        (("worth", "none", "--history", LOG), "Or give a .toml file"),
        (("worth", "blast", "--history", LOG, "--strategies", "asa"), "no strategy without asa"),
        (("worth", "blast", "--history", LOG, "--strategies", "per-stage"), "no strategy of asa"),
        (("worth", "blast", "--twin", "x", "--you", "ann"), "a twin has no user names"),
        (("twin", LOG, "--out", "x", "--you", "nobody"), "has no jobs in these"),
        (("worth", "blast", "--cores", "8", "--history", LOG, "--user", "x"), "none of its users"),
        (("worth", "blast", "--cores", "8", "--history", LOG, "--partition", "x"), "there is no partition"),
        (("twin", LOG), "is missing"),
        (("twin", LOG, "--out", LOG), "is a file"),
        (("twin", LOG, "--out", LOG.parent), "holds other files"),
        (("twin", "nowhere", "--out", "x"), "cannot be read"),
    ],
)
def test_what_is_asked_wrongly_is_told(words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = asa(*words)
    assert done.exit_code == 2, done.output
    assert told in " ".join(done.output.split())
    assert list(tmp_path.iterdir()) == []


def test_the_script_is_what_a_folder_is_read_of(tmp_path):
    done = asa("twin", "--script")
    names = [line.rpartition("> ")[2] for line in done.stdout.splitlines() if " > " in line]
    assert set(names) == {"config.txt", "partitions.txt", "nodes.txt", "events.txt", "users.txt", "jobs.txt"}
    (tmp_path / "empty").mkdir()
    done = asa("twin", tmp_path / "empty", "--out", tmp_path / "t")
    assert done.exit_code == 2
    assert "holds no jobs.txt" in done.output
    assert not Path(tmp_path / "t").exists()


def test_a_stage_that_no_job_could_run_is_refused_at_once(twin, tmp_path):
    flow = tmp_path / "flow.toml"
    flow.write_text('name = "f"\n[[stage]]\nname = "a"\ncores = 100000\nwalltime = "1h"\ncommand = "x"\n')
    done = asa("worth", flow, "--twin", twin)
    assert done.exit_code == 2
    assert "the largest possible job has" in done.output
