"""Verdicts of `asa worth`, computed by hand and as the command prints them."""

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
from asa.shapes import Moldable, RunAt, Scaling, shapes_of
from asa.studies.compare.study import CompareRun, Comparison
from asa.studies.widths import assumed_widths, usual_laws
from asa.studies.worth import Alternatives, judged
from asa.workflow import Stage, Workflow

FLOW = Workflow("flow", [Stage("a", cores=8, walltime_s=3600), Stage("b", cores=2, walltime_s=3600, after=("a",))])
LOG = DATA / "small.swf.gz"


def runs(makespans_h, hours=None, *, wait_h=1.0, moments=40, age_accrues=False, seed=1):
    """Make runs of each way with its mean makespan and core-hours; all ways share the effect of a moment."""
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
    """Half an hour less of three hours is not worth twice the core-hours."""
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
    """`asa` takes as long as `chained`; whether the plan is better is uncertain, so the verdict is not No."""
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
    """If a difference lasts for weeks, moments within a week count as one."""
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
    """Of 60 comparisons without a difference, at most a few are called worth it."""
    told = [judged(FLOW, runs({"per-stage": 3.0, "chained": 3.0, "asa": 3.0}, seed=seed)).answer for seed in range(60)]
    assert told.count("yes") <= 3


def test_ways_that_fail_are_left_out_and_none_at_all_is_an_error():
    some = runs({"per-stage": 4.0, "asa": 3.0})
    failed = [CompareRun("flow", "here", 8, "big-job", moment, False, None, "too long") for moment in range(40)]
    assert judged(FLOW, some + failed).answer == "yes"
    with pytest.raises(RunError, match="too long"):
        judged(FLOW, failed)


# ---------------------------------------------------------------------- several widths

WIDE = Workflow("flow", [Stage("a", cores=112, walltime_s=3600), Stage("b", cores=1, walltime_s=3600, after=("a",))])


def what_if(law, mean_h, single_h, *, hours=10.0, moments=40):
    """Make the results of several widths: of the plan that chooses among them, and of `chained` in one of them."""
    came = runs({"asa-plan": mean_h, "chained --width 14": single_h}, {"asa-plan": hours}, moments=moments, seed=2)
    return assumed_widths(WIDE, law), came


def test_narrower_widths_are_assumed_of_parallel_stages_of_one():
    own = [
        Stage("wide", cores=112, walltime_s=3600),
        Stage("odd", cores=12, walltime_s=3600, cpus_per_task=4, after=("wide",)),
        Stage("one", cores=1, walltime_s=3600),
        Stage("both", cores=8, walltime_s=3600, moldable=Moldable((4, 8), (RunAt(4, 20.0), RunAt(8, 10.0)))),
        Stage("few", nodes=4, walltime_s=3600),
        Stage("list", cores=4, walltime_s=3600, tasks=("true", "true")),
    ]
    found = assumed_widths(Workflow("w", own), Scaling("amdahl", parallel=1.0))
    assert (found.stages, found.widths) == (("wide", "odd", "few"), (112, 7, 14, 28, 56))
    wide, odd, _, both, few, _ = found.workflow.stages.values()
    assert odd.moldable.widths == (4, 12)  # multiples of its tasks' cores
    assert few.moldable.widths == (1, 2, 4)
    assert both == own[3]
    assert {shape.width: round(shape.run_s) for shape in wide.shapes} == {w: 3600 * 112 // w for w in found.widths}
    some = assumed_widths(Workflow("w", own), Scaling("amdahl", parallel=1.0), (7, 28), lambda stage: stage.width != 28)
    assert some.widths == (112, 7)
    assert assumed_widths(Workflow("w", own[2:3]), Scaling("amdahl", parallel=1.0)) is None


def test_the_careful_law_is_the_worst_for_narrower_jobs():
    careful, other = (
        {s.width: s.run_s for s in shapes_of(WIDE.stages["a"].shapes[0], Moldable((7, 112), scaling=law))}
        for law in usual_laws(WIDE)
    )
    assert careful[7] == pytest.approx(16 * 3600)
    assert careful[7] > other[7] > other[112] == 3600
    one_core_s = 3600 / (1 / 112 + (1 - usual_laws(WIDE)[1].parallel))  # nearly
    assert one_core_s / 3600 == pytest.approx(112 / 2, rel=0.05)


def test_where_several_widths_would_decide_the_verdict_says_how():
    own = runs({"per-stage": 4.0, "chained": 3.0, "big-job": 4.0, "asa": 3.0, "asa-plan": 3.0})
    careful, other = usual_laws(WIDE)
    verdict = judged(WIDE, own, assumed=[what_if(careful, 3.0, 3.0), what_if(other, 1.3, 2.0, hours=12.0)])
    assert verdict.answer == "no"
    assert verdict.sentences[0] == (
        "It is not worth it here: chained does as well, as long as each stage has one width."
    )
    found = verdict.widths
    assert found.would_decide
    assert found.law == {"amdahl": 0.991}
    assert 0.4 < 1 + found.compared[0].time.mean < 0.46
    for words in (
        "scaling = { amdahl = 0.991 }",
        "times as fast",
        "cores = [112, 7, 14, 28, 56]",
        "12.0 core-hours in place of 10.0",
        "chained --width 14, it would take 1.",
        "expected = { 112 = ",
    ):
        assert words in found.sentence
    assert json.loads(json.dumps(verdict.as_dict()))["widths"]["would_decide"] is True


def test_the_careful_law_is_named_if_it_decides_already():
    own = runs({"per-stage": 4.0, "chained": 3.0, "asa-plan": 3.0})
    careful, other = usual_laws(WIDE)
    found = judged(WIDE, own, assumed=[what_if(careful, 2.0, 2.0), what_if(other, 1.0, 2.0)]).widths
    assert found.law == {"amdahl": 1.0}
    assert "worst case for narrower jobs" in found.sentence
    assert "A single other width would do as well by this law: chained --width 14" in found.sentence


def test_what_the_plan_gains_without_other_widths_is_not_theirs():
    own = runs({"per-stage": 4.0, "chained": 4.0, "asa-plan": 2.0})
    verdict = judged(WIDE, own, assumed=[what_if(usual_laws(WIDE)[0], 2.0, 3.0)])
    assert verdict.answer == "yes"
    assert not verdict.widths.would_decide


def test_where_several_widths_change_nothing_that_is_said_with_figures():
    own = runs({"per-stage": 4.0, "chained": 3.0, "asa-plan": 3.0}, moments=160)
    verdict = judged(WIDE, own, assumed=[what_if(law, 3.0, 3.0, moments=160) for law in usual_laws(WIDE)])
    assert verdict.sentences[0] == "It is not worth it here: chained does as well."
    assert not verdict.widths.would_decide
    assert "would not decide" in verdict.widths.sentence
    assert judged(WIDE, own).widths is None


def test_of_too_few_starts_it_is_not_said_that_several_widths_change_nothing():
    own = runs({"per-stage": 4.0, "chained": 3.0, "asa-plan": 3.0}, moments=4)
    found = judged(WIDE, own, assumed=[what_if(usual_laws(WIDE)[0], 2.8, 3.0, moments=4)]).widths
    assert not found.would_decide
    assert found.sentence.startswith("Whether several widths would decide cannot be told from 4 starting times: if ")


def test_of_single_widths_the_best_is_a_rival_of_a_choice_among_several():
    """Nobody needs asa to ask for 4 cores in place of 8: a choice counts only for what it gains beyond that."""
    stages = [
        replace(stage, moldable=Moldable((4, 8), scaling=Scaling("amdahl", parallel=1.0)))
        if stage.cores == 8
        else stage
        for stage in FLOW.stages.values()
    ]
    flow = Workflow("flow", stages)
    asked = Alternatives.of(flow, ("per-stage", "chained", "big-job", "asa-plan"), ())
    assert asked.names[4:] == ("chained --width 4", "big-job --width 4")
    assert [max(one.width for one in asked(place).stages.values()) for place in (0, 1)] == [8, 4]
    means = dict(zip(asked.names, (4.0, 4.0, 4.0, 2.0, 2.0, 3.0), strict=True))
    came = []
    for (place, way), name in zip(asked.pairs, asked.names, strict=True):
        came += [replace(run, cores=place, strategy=way) for run in runs({name: means[name]}, seed=3)]
    kept, assumed = asked.sorted_out(came, 8)
    assert assumed == []
    assert {run.strategy for run in kept} == {"per-stage", "chained", "big-job", "asa-plan", "chained --width 4"}
    verdict = judged(flow, kept)
    assert (verdict.answer, verdict.best_simple) == ("no", "chained --width 4")


def test_only_some_pairs_may_be_compared():
    pairs = ((8, "asa"), (4, "chained"))
    one = Comparison(lambda cores: FLOW, None, (4, 8), ("asa", "chained"), (0,))
    assert len(one.pairs) == 4
    assert replace(one, only=pairs).pairs == pairs


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


@pytest.mark.full
def test_a_verdict_is_three_sentences_and_the_figures(twin, tmp_path):
    page = tmp_path / "worth.html"
    done = asa("worth", "blast", "--cores", 8, "--twin", twin, "--moments", 6, "--jobs", 1, "--report", page)
    assert done.exit_code == 0, done.output
    assert "worth it here" in done.stdout.splitlines()[0]  # what takes long is told on stderr
    for words in ("With ", "per-stage", "asa-plan", "Waits in the twin and recorded waits", "Assumed:"):
        assert words in done.output
    assert "worth it here" in page.read_text()


def test_it_is_the_same_of_a_history_and_as_json(twin):
    words = ("worth", "blast", "--cores", 8, "--moments", 4, "--jobs", 1, "--scaling", "none", "--output", "json")
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
        (("worth", "blast", "--history", LOG, "--cores", "8", "--scaling", "none", "--widths", "4"), "is left out"),
        (("worth", "blast", "--history", LOG, "--cores", "8", "--scaling", "amdahl"), "Give a parameter"),
        (("worth", "blast", "--history", LOG, "--cores", "8", "--scaling", "moore=2"), "is not a scaling law"),
        (("worth", "blast", "--history", LOG, "--cores", "1", "--widths", "2..4"), "no stage for which"),
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
