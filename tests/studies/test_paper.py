"""The paper's evaluation: its cells, its kept outcomes, and figures that are computed by hand."""

import json
import math
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from typer.testing import CliRunner

from asa.backend import JobSpec
from asa.cli.campaign import app
from asa.errors import InputError
from asa.report.page import render
from asa.studies.paper import study as paper_cells
from asa.studies.paper.findings import conclude
from asa.studies.paper.kept import BY_CONSTRUCTION
from asa.studies.paper.page import paper_page, workflow_pages
from asa.studies.paper.published import FIGURES, PROBES, SIZES, STRATEGIES, TABLE_1, TABLE_2, WORKFLOWS
from asa.studies.paper.study import PaperCampaign, PaperRun, Probes, run_campaign
from asa.studies.paper.verdicts import average_above_best
from asa.studies.runs import simulated

SMALL = PaperCampaign(seeds=2, seed=3)
GEOMETRIES = [(system, workflow, cores) for system, sizes in SIZES.items() for workflow in WORKFLOWS for cores in sizes]


@pytest.fixture(scope="module", autouse=True)
def same_code():
    """Have the source files count as unchanged, even if they are edited during the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper_cells, "code_digest", lambda *_: "this")
        yield


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("campaign") / "paper.jsonl"


@pytest.fixture(scope="module")
def outcomes(kept):
    """Run a whole campaign of two replications."""
    return run_campaign(SMALL, kept, jobs=1)


@pytest.mark.full
def test_all_that_the_paper_ran_is_run(outcomes):
    """In each replication: 54 runs and those of ASA Naive in each mode, and 60 submissions of each geometry."""
    runs = [(r.mode, r.system, r.workflow, r.cores, r.strategy, r.seed) for r in outcomes if isinstance(r, PaperRun)]
    assert sorted(runs) == sorted(
        [
            (mode, *geometry, strategy, seed)
            for mode in ("sequential", "concurrent")
            for geometry in GEOMETRIES
            for strategy in STRATEGIES
            for seed in (3, 4)
        ]
        + [
            (mode, "hpc2n", "montage", 112, "asa-naive", seed)
            for mode in ("sequential", "concurrent")
            for seed in (3, 4)
        ]
    )
    probes = [one for one in outcomes if isinstance(one, Probes)]
    assert sorted((p.system, p.workflow, p.cores, p.seed) for p in probes) == sorted(
        (*geometry, seed) for geometry in GEOMETRIES for seed in (3, 4)
    )
    assert all(len(p.real_s) == len(p.predicted_s) == PROBES and min(p.real_s) >= 0 for p in probes)


def test_a_run_takes_what_its_stages_take(outcomes):
    for run in outcomes:
        if isinstance(run, PaperRun):
            assert run.makespan_s == pytest.approx(sum(s.perceived_wait_s + s.run_s for s in run.stages))
            assert run.twt_s == pytest.approx(sum(s.perceived_wait_s for s in run.stages))


def test_all_strategies_meet_the_same_queue(outcomes):
    """Each has a copy of it; Per-Stage and ASA submit the same first job at the same moment."""
    runs = [run for run in outcomes if isinstance(run, PaperRun) and run.mode == "sequential"]
    first = {(r.workflow, r.cores, r.strategy, r.seed): r.stages[0].perceived_wait_s for r in runs}
    for (workflow, cores, strategy, seed), wait_s in first.items():
        if strategy == "per-stage":
            assert first[workflow, cores, "asa", seed] == wait_s


def test_what_is_learned_of_one_workflow_is_known_for_the_next(monkeypatch):
    """One estimator sees the jobs of all workflows and sizes of a centre."""
    banks = []

    class Watched(paper_cells.WaitBank):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            banks.append(self)

    monkeypatch.setattr(paper_cells, "WaitBank", Watched)
    [asa, naive] = [
        [c for c in SMALL.cells() if (c.what, c.system, c.strategy) == ("concurrent", "hpc2n", name)]
        for name in ("asa", "asa-naive")
    ]
    runs = paper_cells.run_cell(replace(*asa, seeds=1))
    assert len(runs) == 9
    assert len(banks) == 1
    stages = sum(len(run.stages) for run in runs)
    assert banks[0].own >= stages
    [shown] = paper_cells.run_cell(replace(*naive, seeds=1))
    assert (shown.workflow, shown.cores, shown.mode) == ("montage", 112, "concurrent")
    assert banks[1].own >= stages, "the one that is shown depends on other stages, and beside two"


def test_it_goes_on_where_it_was(outcomes, kept, tmp_path, monkeypatch):
    lines = kept.read_text().splitlines(keepends=True)
    assert len(lines) == 6 + 6 + 2 + 18
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(lines[:-2]) + lines[-2][:200])  # it was killed while it wrote
    ran = []
    monkeypatch.setattr(paper_cells, "run_cell", lambda cell, run=paper_cells.run_cell: ran.append(cell) or run(cell))
    assert run_campaign(SMALL, cut, jobs=1) == outcomes
    assert len(ran) == 2
    assert run_campaign(SMALL, cut, jobs=1) == outcomes
    assert len(ran) == 2


def test_every_figure_stands_beside_the_papers(outcomes):
    results = conclude(SMALL, outcomes)
    assert len(results.usages) == 2 * 54
    for row in results.usages:
        published = TABLE_1[row.workflow][row.cores][row.strategy]
        assert (row.twt_s.published, row.makespan_s.published) == (published.twt_s, published.makespan_s)
        mine = [
            run.makespan_s
            for run in outcomes
            if isinstance(run, PaperRun)
            and (run.mode, run.workflow, run.cores, run.strategy) == (row.mode, row.workflow, row.cores, row.strategy)
        ]
        assert row.makespan_s.ours.mean == pytest.approx(sum(mine) / 2)
        assert row.makespan_s.deviation == pytest.approx(sum(mine) / 2 / published.makespan_s - 1)
    assert [row.real_h.published for row in results.accuracies] == [
        row.real_h.mean for rows in TABLE_2.values() for row in rows.values()
    ]
    assert {one.figure for one in results.breakdowns} == {"6a", "6b", "7a", "7b", "8a", "8b"}
    assert {one.policy for one in results.convergences} == {"default", "greedy", "tuned"}
    counts = results.verdicts()
    assert sum(counts["Table 1, sequential"].values()) == 54 * 2
    assert sum(counts["Table 1, sequential: if all were alike"].values()) == 54 * 2
    assert sum(counts["Table 2"].values()) == 18 * 4  # hits and misses are one, and real waits are chosen
    json.dumps(results.as_dict(), allow_nan=False)


def test_our_core_hours_are_the_papers(outcomes):
    """Workflows are fitted to them, and neither strategy idles, so that they are counted apart."""
    results = conclude(SMALL, outcomes)
    assert all(row.core_hours.verdict == "as the paper" for row in (*results.usages, *results.normalised))
    table_1, averages, saved = 2 * 54, 2 * 9, 2
    assert results.verdicts()[BY_CONSTRUCTION] == {
        "as the paper": table_1 + averages + saved, "same order": 0, "differs": 0
    }  # fmt: skip
    assert sum(results.verdicts()["claims of the text"].values()) == len(results.claims) - saved


def test_strategies_that_are_alike_score_no_better_than_is_said_beside(outcomes):
    """If all runs of a size took equally long, the score is that printed for 'if all were alike'."""
    alike = [replace(one, makespan_s=1000.0, twt_s=500.0) if isinstance(one, PaperRun) else one for one in outcomes]
    counts = conclude(SMALL, alike).verdicts()
    told = conclude(SMALL, outcomes).verdicts()
    for table in ("Table 1, sequential", "its averages, concurrent"):
        assert counts[table] == counts[f"{table}: if all were alike"]
        assert counts[table] == told[f"{table}: if all were alike"]
        assert counts[table]["differs"] > counts[table]["as the paper"]


def test_the_averages_are_those_of_each_size(outcomes):
    """With their spread over replications."""
    results = conclude(SMALL, outcomes)
    for line in results.normalised:
        rows = [{one.strategy: one.makespan_s.ours.mean for one in results.usages
                 if (one.mode, one.workflow, one.cores) == (line.mode, line.workflow, cores)}
                for cores in TABLE_1[line.workflow]]  # fmt: skip
        assert line.makespan_s.ours.mean == pytest.approx(average_above_best(rows)[line.strategy])
        assert line.makespan_s.ours.low <= line.makespan_s.ours.mean <= line.makespan_s.ours.high


def test_the_page_says_how_and_what_the_paper_claims(outcomes):
    html = " ".join(unescape(render(paper_page(conclude(SMALL, outcomes)))).split())
    for words in (
        "Methods",
        "Perceived wait:",
        "Miss:",
        "Overhead:",
        "share one estimator",
        "(If all strategies were equal, these counts",
        "Core-hours are counted apart",
        "points; in the paper: more than 0",
        "within a factor of 1.25",
    ):
        assert words in html
    assert not re.search(r"-0(\.0+)?(?![.\d])", html)  # no zero with a sign
    first, *others = paper_page(conclude(SMALL, outcomes)).summary
    assert len(others) in range(2, 5)
    assert re.match(r"In sequential runs `[a-z-]+` is the fastest: on average \d+ % above the best", first)
    assert "` costs least: " in others[1]
    assert "more than the" in others[2]
    assert "2 replications" in others[-1]
    shown = unescape(render(workflow_pages(conclude(SMALL, outcomes))["blast"]))
    assert "Methods" in shown
    assert "of 36 figures" in shown  # waits and makespans of six sizes and three strategies


def test_figures_5_to_9_are_drawn(outcomes):
    """On the page, and those of a workflow on its own: both centres, in both modes."""
    results = conclude(SMALL, outcomes)
    assert [section.title for section in paper_page(results).sections if section.key == "figure-5"]
    for workflow, page in workflow_pages(results).items():
        captions = re.findall(r"Figure \d[ab]?: [\w, -]+", unescape(render(page)))
        number = FIGURES[workflow]
        for centre in ("a", "b"):
            assert any(words.startswith(f"Figure {number}{centre}: {workflow}") for words in captions)
        assert any(words.startswith(f"Figure 9: {workflow}") for words in captions)


def test_submissions_begin_when_the_queue_is_as_full_as_the_papers(outcomes):
    """On HPC2n it is that full at some hour of a fortnight in every replication, and seldom at other hours."""
    for workflow, rows in TABLE_2.items():
        for cores in (56, 112):
            hours = [np.mean(one.real_s) / 3600 for one in outcomes if isinstance(one, Probes)
                     and (one.workflow, one.cores) == (workflow, cores)]  # fmt: skip
            assert 1 / 4 < np.mean(hours) / rows[cores].real_h.mean < 2


def test_predictions_are_judged_by_hand(outcomes):
    """For a wait of 500 s, half of them are 100 s too long and half 100 s too short."""
    ours = [
        replace(one, real_s=(500.0,) * PROBES, predicted_s=(600.0, 400.0) * (PROBES // 2))
        if isinstance(one, Probes)
        else one
        for one in outcomes
    ]
    row = next(row for row in conclude(SMALL, ours).accuracies if (row.workflow, row.cores) == ("blast", 56))
    assert (row.real_h.ours.mean, row.predicted_h.ours.mean) == pytest.approx((500 / 3600, 500 / 3600))
    assert row.perceived_h.ours.mean == pytest.approx(50 / 3600)
    assert (row.hit_percent.ours.mean, row.miss_percent.ours.mean) == (50.0, 50.0)
    assert row.overhead_h.ours.mean == pytest.approx(56 * 50 / 3600)
    assert (row.real_sd_h, row.predicted_sd_h) == pytest.approx((0.0, 100 / 3600))


def test_what_the_text_claims_is_worked_out_by_hand(outcomes):
    """ASA takes a tenth longer than all others, and ASA Naive half as long again."""
    spans = {"big-job": 1000.0, "per-stage": 1000.0, "asa": 1100.0, "asa-naive": 1650.0}
    hours = {"big-job": 100.0, "per-stage": 50.0, "asa": 60.0, "asa-naive": 60.0}
    ours = [
        replace(one, makespan_s=spans[one.strategy], core_hours=hours[one.strategy])
        if isinstance(one, PaperRun)
        else one
        for one in outcomes
    ]
    claims = {(claim.words.split(" ")[0], claim.mode): claim for claim in conclude(SMALL, ours).claims}
    above = claims["ASA's", "sequential"]
    assert (above.ours.mean, above.verdict) == (pytest.approx(10.0), "same order")
    saved = claims["core-hours", "concurrent"]
    assert (saved.ours.mean, saved.verdict) == (pytest.approx(40.0), "as the paper")
    assert claims["ASA", "concurrent"].ours.mean == pytest.approx(50.0)
    naive = claims["ASA", "sequential"]
    assert (naive.ours.mean, naive.verdict) == (pytest.approx(50.0), "as the paper")
    assert math.isnan(naive.published)


def test_asas_gain_over_per_stage_is_worked_out_by_hand(outcomes):
    """In each replication it takes 900 s where Per-Stage takes 1,000 s; in the paper, what Table 1 has."""
    spans = {"big-job": 1000.0, "per-stage": 1000.0, "asa": 900.0, "asa-naive": 900.0}
    ours = [replace(one, makespan_s=spans[one.strategy]) if isinstance(one, PaperRun) else one for one in outcomes]
    gains = conclude(SMALL, ours).gains
    assert [(g.mode, g.system, g.workflow, g.cores) for g in gains if g.mode == "sequential"] == [
        ("sequential", *geometry) for geometry in sorted(GEOMETRIES, key=lambda of: WORKFLOWS.index(of[1]))
    ]
    for gain in gains:
        assert gain.makespan_s.ours.mean == pytest.approx(10.0)
        row = TABLE_1[gain.workflow][gain.cores]
        assert row["asa"].makespan_s == pytest.approx(
            row["per-stage"].makespan_s * (1 - gain.makespan_s.published / 100)
        )
    verdicts = {(g.workflow, g.cores): g.makespan_s.verdict for g in gains if g.mode == "sequential"}
    assert verdicts["montage", 56] == "as the paper"  # 14 % less there
    assert verdicts["statistics", 320] == "same order"  # 48 % less there
    assert verdicts["montage", 28] == "as the paper"


def test_with_table_2s_waits_submissions_begin_when_the_user_arrives():
    """The first waits as long as a job that is submitted then to the centre with these waits."""
    campaign = replace(SMALL, seeds=1, waits="table-2")
    [cell] = [c for c in campaign.cells() if (c.what, c.workflow, c.cores) == ("submissions", "blast", 56)]
    [probes] = paper_cells.run_cell(cell)
    world = simulated(system="hpc2n-table2").open(3)
    spec = JobSpec("search", cores=56, walltime_s=2100, run_s=1.0)
    assert probes.real_s[0] == world.foresee_start(spec, world.now()) - world.now()
    assert cell != replace(cell, waits="table-1")
    assert cell.site.capabilities.system == "hpc2n-table2"


@pytest.mark.parametrize(
    ("change", "told"),
    [({"seeds": 0}, "nothing to run"), ({"modes": ()}, "nothing to run"), ({"estimator": "oracle"}, "oracle"),
     ({"history": -1}, "cannot be")],
)  # fmt: skip
def test_what_cannot_be_run_is_refused(change, told):
    with pytest.raises(InputError, match=told):
        replace(SMALL, **change).cells()


@pytest.mark.full
def test_the_command_prints_tables_and_json(outcomes, kept):
    assert outcomes
    command = ["paper", "--seeds", "2", "--seed", "3", "--results", str(kept), "--jobs", "1"]
    told = json.loads(CliRunner().invoke(app, [*command, "--output", "json"]).stdout)
    assert len(told["usages"]) == 2 * 54
    assert told["usages"] == json.loads(json.dumps(conclude(SMALL, outcomes).as_dict()["usages"]))
    tables = CliRunner().invoke(app, command).stdout
    for words in (
        "montage: makespan",
        "/4h19m",
        "Table 2",
        "Fig. 5",
        "Verdicts",
        "core-hours, by construction",
        "Unit Ours",
        "Table 2: if all were alike",
        "within a factor of 1.25",
    ):
        assert words in " ".join(tables.split())
    assert "Per cent" not in tables
    assert "…" not in tables, "no verdict is cut off at the usual width"
    assert re.search(r"points by which tuned.* points +-?\d", " ".join(tables.split()))
    one_mode = CliRunner().invoke(app, [*command, "--mode", "sequential"]).stdout
    for mode in ("sequential", "concurrent"):
        assert f"Table 1, {mode}: ours" in tables
    assert "Table 1, concurrent" not in one_mode
    assert "at once" not in tables
    assert "2 seeds;" in tables


def test_what_other_code_did_is_run_again(outcomes, kept, tmp_path, monkeypatch):
    assert outcomes
    copied, ran = tmp_path / "copied.jsonl", []
    copied.write_bytes(kept.read_bytes())
    monkeypatch.setattr(paper_cells, "run_cell", lambda cell: ran.append(cell) or [])
    run_campaign(SMALL, copied, jobs=1)
    assert not ran
    monkeypatch.setattr(paper_cells, "code_digest", lambda *_: "another")
    run_campaign(SMALL, copied, jobs=1)
    assert len(ran) == 32
