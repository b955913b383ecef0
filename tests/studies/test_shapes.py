"""The experiment on shapes: its competitors, their knowledge, its kept outcomes, and its figures, computed by hand."""

import json
import math

import numpy as np
import pytest
from asa.backends.simulated import SimulatedSite
from asa.workflows import statistics
from typer.testing import CliRunner

from asa.cli.experiment import app
from asa.errors import InputError
from asa.estimators import WaitBank
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.studies.compare.study import workflow_maker
from asa.studies.runs import each_knowing, one_by_one
from asa.studies.shapes import study
from asa.studies.shapes.scores import ALL, ShapeVerdicts, judged
from asa.studies.shapes.study import CHOSEN, ShapeQuestion, ShapeRun, compare_ways, moldable_workflow


@pytest.fixture
def log(tmp_path):
    """Yield a log: half a year of a machine of 64 cores."""
    rng = np.random.default_rng(1)
    lines, now = ["; MaxProcs: 64"], 0
    for number in range(1, 3001):
        now += int(rng.exponential(4000))
        run = int(rng.exponential(6000)) + 60
        lines.append(f"{number} {now} 0 {run} {int(2 ** rng.integers(0, 7))} -1 -1 -1 {2 * run} -1 1 1 1 1 1 -1 -1 -1")
    path = tmp_path / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def small(log, **options):
    return ShapeQuestion((log,), **{"workflows": ("statistics",), "estimator": "median", "starts": 2} | options)


def test_every_width_and_what_is_chosen_meet_the_same_queues(log):
    runs = compare_ways(small(log), jobs=1)
    assert len(runs) == 2 * 2 * 17  # rules of age, starts; four forms at four widths and what is chosen
    fixed = {(form, width) for form in ("big-job", "per-stage", "chained", "asa-plan") for width in (7, 14, 28, 56)}
    assert {(r.strategy, r.width) for r in runs} == {*fixed, ("asa-plan", CHOSEN)}
    big = {
        age: [r.makespan_s for r in runs if r.strategy == "big-job" and r.age_accrues is age] for age in (True, False)
    }
    assert big[True] == big[False], "the rule is none of Big Job's business"
    assert all(r.makespan_s > 0 and r.core_hours > 0 and r.others > 0 for r in runs)
    assert any(r.longer_wait_s > 0 for r in runs)


@pytest.mark.parametrize("name", ["montage", "blast", "statistics"])
def test_one_job_at_a_width_is_the_job_that_asa_compare_has_there(name):
    flow = moldable_workflow(name, 256)
    for width in study.WIDTHS:
        fixed, made = study.fixed_at(flow, width), workflow_maker(name)(width)
        assert (fixed.execution_s, fixed.walltime_s) == (made.execution_s, made.walltime_s)
        assert fixed.peak_cores(1) == made.peak_cores(1)


def test_it_goes_on_where_it_was(log, tmp_path, monkeypatch):
    kept = tmp_path / "runs.jsonl"
    first = compare_ways(small(log), kept, jobs=1)
    monkeypatch.setattr(study, "run_cell", lambda cell: pytest.fail(f"{cell} was run again"))
    assert compare_ways(small(log), kept, jobs=1) == first


@pytest.mark.parametrize("estimator", ["median", "asa-queue"])
def test_what_competes_begins_as_if_it_were_alone(log, estimator):
    """With a bank that learned the past for all competitors, each does what it does with a bank of its own."""
    site = SimulatedSite(trace=log, age_accrues=False)
    site.prepare([0, 1])
    flow = statistics(28, [7, 14, 28])

    def end(world, bank, **how):
        [result] = run_all(world, [Run(flow, load_strategy("asa-plan"), bank=bank)], history=300, **how)
        return [(type(record).__name__, record.time_s) for record in result.records]

    def together(known):
        return [end(*known.begin(), is_followed=True) for _ in range(2)]

    first, second = each_knowing(site, [0], WaitBank(estimator, machine_cores=64), 300, together)[0]
    [alone] = one_by_one(site, [0], lambda _, world: end(world, WaitBank(estimator, machine_cores=64)))
    assert first == second == alone


def run(width, start, makespan_s, hours=10.0, strategy="asa-plan", **other):
    longer_s = {CHOSEN: 5.0, 4: 20.0}.get(width, 0.0) + start
    of = {"trace": "a.swf", "workflow": "w", "age_accrues": True, "others": 9, "longer_wait_s": longer_s} | other
    return ShapeRun(**of, strategy=strategy, width=width, start=start, makespan_s=makespan_s, core_hours=hours)


def two_starts(**other):
    """Widths 1 and 2 are best once each, 2 on average; the choice has the better one, and takes a tenth longer."""
    times = {1: (100.0, 400.0), 2: (200.0, 100.0), CHOSEN: (110.0, 110.0)}
    runs = [run(w, start, s, 4.0 * (w or 1.5), **other) for w, of in times.items() for start, s in enumerate(of)]
    return [*runs, *(run(4, start, 1000.0, 40.0, "big-job", **other) for start in range(2))]


def test_references_are_the_best_form_of_all_starts_and_the_best_width_of_each():
    [verdict] = judged(two_starts())
    assert (verdict.best_form, verdict.best_width) == ("asa-plan", 2)
    assert verdict.over_fixed.mean == pytest.approx(math.sqrt(110 / 200 * 110 / 100))
    assert verdict.over_each.mean == pytest.approx(1.1)
    assert verdict.each_over_fixed == pytest.approx(math.sqrt(100 / 200))
    assert verdict.over_big_job.mean == pytest.approx(0.11)
    assert verdict.hours_over_big_job == pytest.approx(6 / 40)
    assert verdict.hours_over_fixed == pytest.approx(6 / 8)
    assert verdict.others_wait_s.mean == pytest.approx(5.0 - 20.0)


def test_a_plain_form_may_be_the_best_of_all_starts():
    """The reference of each start stays the best width of a plan."""
    plain = [run(2, start, s, 5.0, "chained") for start, s in enumerate((120.0, 90.0))]
    [verdict] = judged([*two_starts(), *plain])
    assert (verdict.best_form, verdict.best_width) == ("chained", 2)
    assert verdict.over_fixed.mean == pytest.approx(math.sqrt(110 / 120 * 110 / 90))
    assert verdict.hours_over_fixed == pytest.approx(6 / 5)
    assert verdict.over_each.mean == pytest.approx(1.1)


def test_strategies_that_choose_are_scored_beside_each_other():
    """The second takes 1.3 times as long as the best width of a start at one of two."""
    more = [run(CHOSEN, start, s, strategy="asa-plan:races=yes") for start, s in enumerate((130.0, 100.0))]
    first, second = judged([*two_starts(), *more])
    assert [first.strategy, second.strategy] == ["asa-plan", "asa-plan:races=yes"]
    assert first == judged(two_starts())[0]
    assert second.over_each.mean == pytest.approx(math.sqrt(1.3))
    assert (first.bad_share, second.bad_share) == (0.0, 0.5)
    runs = [*two_starts(), *more, *two_starts(trace="b.swf")]
    assert [(v.trace, v.strategy) for v in judged(runs) if v.workflow == ALL] == [(ALL, "asa-plan")]


def test_races_choose_shapes_too(log):
    runs = compare_ways(small(log, choosing=("asa-plan", "asa-plan:races=yes"), age=(True,)), jobs=1)
    chosen = {(r.strategy, r.start): r.makespan_s for r in runs if r.width == CHOSEN}
    assert set(chosen) == {(name, start) for name in ("asa-plan", "asa-plan:races=yes") for start in (0, 1)}


def test_logs_and_workflows_count_alike():
    runs = [*two_starts(), *two_starts(workflow="v"), *two_starts(trace="b.swf"), *two_starts(age_accrues=False)]
    rows = [(v.trace, v.workflow, v.age_accrues) for v in judged(runs)]
    assert rows == [
        ("a.swf", "w", True), ("a.swf", "v", True), ("a.swf", ALL, True), ("b.swf", "w", True), (ALL, ALL, True),
        ("a.swf", "w", False),
    ]  # fmt: skip
    assert all(v.over_each.mean == pytest.approx(1.1) for v in judged(runs))


def test_the_document_has_every_figure_and_every_run():
    document = json.loads(json.dumps(ShapeVerdicts(two_starts(), 2, "asa-queue").as_dict()))
    assert document["verdicts"][0]["over_each"]["mean"] == pytest.approx(1.1)
    assert len(document["runs"]) == 8


def test_the_table_names_its_columns(log):
    options = ["--trace", log, "--workflows", "statistics", "--estimator", "median", "--starts", "2", "--age", "not"]
    shown = CliRunner().invoke(app, ["shapes", *map(str, options)], env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    assert "Over each" in shown.output
    assert "statistics" in shown.output


def test_benchmarks_are_as_wide_as_the_machine_at_most():
    flow = moldable_workflow(study.BENCHMARK_CHAIN, 338)
    assert max(width for stage in flow.stages.values() for width in stage.moldable.widths) <= 338
    assert all(len(stage.shapes) > 1 for stage in flow.stages.values())


@pytest.mark.parametrize(
    "options", [{"starts": 1}, {"workflows": ()}, {"choosing": ("nobody",)}, {"estimator": "nobody"}]
)
def test_what_cannot_be_compared_is_refused(log, options):
    with pytest.raises(InputError):
        small(log, **options).cells()
