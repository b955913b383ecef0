"""The experiment on strategies: its cells, its kept outcomes, and its figures, computed by hand."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from typer.testing import CliRunner

from asa.cli.experiment import app
from asa.core.intervals import Interval
from asa.errors import InputError, StateError
from asa.studies.logs import study as contest
from asa.studies.logs.figure import frontier
from asa.studies.logs.study import Contest, LogRun, compare_ways, peak_sizes, standings
from asa.studies.standings import Standing


@pytest.fixture
def log(tmp_path):
    """Yield a log: half a year of a machine of 128 cores."""
    rng = np.random.default_rng(1)
    lines, now = ["; MaxProcs: 128"], 0
    for number in range(1, 3001):
        now += int(rng.exponential(4000))
        run = int(rng.exponential(6000)) + 60
        lines.append(f"{number} {now} 0 {run} {int(2 ** rng.integers(0, 8))} -1 -1 -1 {2 * run} -1 1 1 1 1 1 -1 -1 -1")
    path = tmp_path / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def small(log, **options):
    given = {
        "workflows": ("statistics",),
        "strategies": ("asa-plan",),
        "cores": (28,),
        "starts": 3,
        "estimator": "median",
    }
    return Contest((log,), **given | options)


def test_every_strategy_has_the_same_replications(log):
    trials = compare_ways(small(log), jobs=1)
    assert len(trials) == 2 * 3 * 3
    assert {(t.age_accrues, t.strategy, t.start) for t in trials} == {
        (age, name, start)
        for age in (True, False)
        for name in ("big-job", "per-stage", "asa-plan")
        for start in range(3)
    }
    big = [t for t in trials if t.strategy == "big-job"]
    assert [t.makespan_s for t in big[:3]] == [t.makespan_s for t in big[3:]], "the rule is none of Big Job's business"
    assert all(t.perceived_wait_s <= t.total_wait_s for t in trials)
    assert all(t.perceived_wait_s == 0 for t in big)


def test_it_goes_on_where_it_was_and_runs_nothing_twice(log, tmp_path, monkeypatch):
    kept = tmp_path / "kept.jsonl"
    whole = compare_ways(small(log), kept, jobs=1)
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(lines[:3]) + lines[3][:100])  # it was killed while it wrote
    ran = []
    monkeypatch.setattr(contest, "run_cell", lambda cell, run=contest.run_cell: ran.append(cell) or run(cell))
    assert compare_ways(small(log), kept, jobs=1) == whole
    assert len(ran) == 3
    assert compare_ways(small(log), kept, jobs=1) == whole
    assert len(ran) == 3


def test_what_was_kept_of_another_log_or_by_other_code_is_run_again(log, tmp_path, monkeypatch):
    kept, told = tmp_path / "kept.jsonl", []
    compare_ways(small(log), kept, jobs=1)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-1]))
    ran = []
    monkeypatch.setattr(contest, "run_cell", lambda cell: ran.append(cell) or [])
    compare_ways(small(log), kept, jobs=1)
    assert len(ran) == 6
    log.write_text("".join(lines))
    compare_ways(small(log), kept, jobs=1)
    assert len(ran) == 6, "as it was"
    monkeypatch.setattr(contest, "code_digest", lambda *_: "another")
    compare_ways(small(log), kept, jobs=1, on_progress=lambda what, *_: told.append(what))
    assert len(ran) == 12
    assert told[0] == "running cells (12 were kept by another version)"


@pytest.mark.full
def test_the_number_of_processes_changes_nothing(log):
    assert compare_ways(small(log), jobs=2) == compare_ways(small(log), jobs=1)


def test_what_is_no_kept_experiment_is_refused(log, tmp_path):
    kept = tmp_path / "other.jsonl"
    kept.write_text('{"a": 1}\n{"b": 2}\n')
    with pytest.raises(StateError, match="not an experiment of this version"):
        compare_ways(small(log), kept, jobs=1)


@pytest.mark.parametrize(
    ("options", "told"),
    [({"cores": (4000,)}, "more than its machine's 128"), ({"strategies": ("fastest",)}, "fastest"),
     ({"workflows": ("cake",)}, "cake"), ({"starts": 0}, "nothing to run"), ({"estimator": "oracle"}, "oracle")],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_before_anything_is(log, options, told):
    with pytest.raises(InputError, match=told):
        small(log, **options).cells()


def test_sizes_fit_machines():
    assert peak_sizes(240) == (28, 56, 112)
    assert peak_sizes(40) == (20,)


def trial(strategy, start, makespan_s, core_hours, *, age=True, wait_s=0.0):
    return LogRun("log", "w", 1, age, True, strategy, start, makespan_s, core_hours, 0.0, wait_s, wait_s + 10)


def test_what_a_cell_names_is_what_its_outcome_hangs_on(log, monkeypatch):
    named = []
    monkeypatch.setattr(contest, "code_digest", lambda of: named.append(list(of)) or "")
    small(log, age=(True,)).cells()
    others = [("asa.workflows", "statistics"), ("asa.estimators", "median")]
    assert [sorted(of) for of in named] == [
        sorted([*others, ("asa.strategies", name)]) for name in ("big-job", "per-stage", "asa-plan")
    ]


def told(trials, *, age=True):
    return {one.strategy: one for one in standings(trials)[age]}


def test_figures_are_geometric_means_of_pairs():
    trials = [
        *(trial("big-job", i, 100.0 * (i + 1), 9.0) for i in range(2)),
        *(trial("per-stage", i, 200.0, 3.0, wait_s=100.0) for i in range(2)),
        *(trial("x", i, 200.0 * (i + 1), 3.0 * 4**i, wait_s=25.0) for i in range(2)),
    ]
    x = told(trials)["x"]
    assert (x.makespan.mean, x.makespan.low, x.makespan.high) == pytest.approx((2.0, 2.0, 2.0))
    away = 4 ** (12.7062 / 2)  # Student's, of two values log 4 apart
    assert (x.core_hours.mean, x.core_hours.low, x.core_hours.high) == pytest.approx((2, 2 / away, 2 * away), rel=1e-3)
    assert (x.perceived_wait, x.total_wait) == pytest.approx((0.25, 70 / 220))


def test_waits_are_held_against_each_other_in_total():
    """A cell in which Per-Stage waits 1 s and Big Job hundreds does not outweigh a hundred other cells."""
    ways = ((1, 1.0, 300.0), (2, 1000.0, 0.0), (3, 0.0, 100.0))
    trials = [
        replace(trial(name, 0, 100.0, 1.0, wait_s=wait_s), cores=cores)
        for cores, per_stage_s, big_job_s in ways
        for name, wait_s in (("per-stage", per_stage_s), ("big-job", big_job_s))
    ]
    assert told(trials)["big-job"].perceived_wait == pytest.approx(400 / 1001)
    assert told(trials)["per-stage"].perceived_wait == 1.0
    assert math.isnan(told([one for one in trials if one.cores == 1])["big-job"].perceived_wait)


def test_trifles_dominate_nobody():
    """A third of a percent more core-hours at the same makespan does not count, however certain it is."""
    hours = {"big-job": 200.0, "per-stage": 93.5, "x": 93.8, "y": 96.0}
    trials = [
        trial(name, start, 100.0 if name != "big-job" else 90.0, cost)
        for start in range(2)
        for name, cost in hours.items()
    ]
    assert {name: one.dominated for name, one in told(trials).items()} == {
        "big-job": 0, "per-stage": 0, "x": 0, "y": 1
    }  # fmt: skip


def test_cells_count_alike_and_rules_apart():
    trials = [
        trial(name, start, makespan_s, hours, age=age)
        for age, factor in ((True, 1.0), (False, 3.0))
        for start in range(2)
        for name, makespan_s, hours in (("big-job", 100.0, 2.0), ("per-stage", 100.0 * factor, 1.0))
    ]
    assert told(trials)["per-stage"].makespan.mean == pytest.approx(1.0)
    assert told(trials, age=False)["per-stage"].makespan.mean == pytest.approx(3.0)


def test_only_cells_in_which_all_ran_are_averaged():
    """Otherwise a strategy that ran only in easy cells would be ahead."""
    trials = [
        replace(trial(name, start, span, 1.0), cores=cores)
        for cores, spans in ((1, {"big-job": 100.0, "per-stage": 120.0, "x": 110.0}),
                         (2, {"big-job": 100.0, "per-stage": 900.0}))
        for start in range(3)
        for name, span in spans.items()
    ]  # fmt: skip
    assert {name: (one.makespan.mean, one.cells) for name, one in told(trials).items()} == {
        "big-job": (1.0, 1), "per-stage": (pytest.approx(1.2), 1), "x": (pytest.approx(1.1), 1)
    }  # fmt: skip


def test_replications_of_a_log_are_shared_by_its_cells_and_logs_stand_for_themselves():
    """Ten cells of the same replications count as one; that all takes longer on one log adds no spread."""
    one = [
        trial(name, start, span * (3.0 if name == "x" else 1.0), 1.0)
        for start, span in enumerate((100.0, 130.0, 90.0))
        for name in ("big-job", "per-stage", "x")
    ]
    one = [replace(t, makespan_s=t.makespan_s * (1 + t.start / 10)) if t.strategy == "x" else t for t in one]
    ten = [replace(t, workflow=f"w{number}") for t in one for number in range(10)]
    assert told(ten)["x"].makespan.low == pytest.approx(told(one)["x"].makespan.low)
    other = [replace(t, trace="other", makespan_s=t.makespan_s * (9 if t.strategy == "x" else 1)) for t in one]
    both = told(one + other)["x"].makespan
    assert both.mean == pytest.approx(3 * told(one)["x"].makespan.mean)
    assert both.high / both.low < told(one)["x"].makespan.high / told(one)["x"].makespan.low


def test_who_is_slower_at_no_fewer_core_hours_is_dominated():
    """Only if that is certain: y is slower in only half of the replications."""
    rng = np.random.default_rng(0)
    trials = []
    for i in range(40):
        trials += [
            trial("big-job", i, 100.0, 2.0),
            trial("per-stage", i, 130.0, 1.0),
            trial("x", i, 150.0, 1.0),
            trial("y", i, 130.0 * math.exp(rng.normal(0, 0.3)), 1.0),
        ]
    dominated = {name: one.dominated for name, one in told(trials).items()}
    assert dominated == {"big-job": 0, "per-stage": 0, "x": 1, "y": 0}


def test_of_many_cells_hardly_one_is_dominated_by_chance():
    """Forty cells of strategies that are all alike: taken one by one, most strategies would be dominated somewhere."""
    rng = np.random.default_rng(5)
    trials = [
        replace(trial(name, start, 100.0 * math.exp(rng.normal(0, 0.2)), 1.0), cores=cores)
        for cores in range(40)
        for start in range(8)
        for name in ("big-job", "per-stage", "x")
    ]
    assert sum(one.dominated for one in told(trials).values()) <= 1


def test_who_cannot_be_told_apart_from_the_quickest_is_called_so():
    """Among all strategies, and among those that cost hardly more than the cheapest."""
    rng = np.random.default_rng(2)
    ways = {"big-job": (100.0, 2.0), "per-stage": (150.0, 1.0), "x": (101.0, 3.0), "y": (151.0, 1.01)}
    trials = [
        trial(name, start, span * math.exp(rng.normal(0, 0.05)), hours)
        for start in range(10)
        for name, (span, hours) in ways.items()
    ]
    found = told(trials)
    assert {name for name, one in found.items() if one.is_as_quick} == {"big-job", "x"}
    assert {name for name, one in found.items() if one.is_thrifty} == {"per-stage", "y"}
    assert {name for name, one in found.items() if one.is_as_quick_of_thrifty} == {"per-stage", "y"}
    once = told([one for one in trials if one.start == 0])
    assert all(one.is_as_quick for one in once.values()), "one replication proves nothing"


def test_the_command_prints_its_runs(log, tmp_path):
    command = ["strategies", "--trace", str(log), "--cores", "28", "--workflows", "statistics"]
    command += ["--strategies", "asa-plan", "--estimator", "median", "--starts", "2", "--age", "not", "--jobs", "1"]
    command += ["--results", str(tmp_path / "kept.jsonl"), "--plot", str(tmp_path / "plot.png")]
    rows = json.loads(CliRunner().invoke(app, [*command, "--output", "json"]).stdout)
    assert len(rows) == 6
    assert {"trace", "workflow", "cores", "age_accrues", "strategy", "start", "makespan_s", "core_hours",
            "overhead_core_hours", "perceived_wait_s"} <= rows[0].keys()  # fmt: skip
    assert rows == [asdict(LogRun(**row)) for row in rows]
    table = CliRunner().invoke(app, command).stdout
    assert "gain no priority" in table
    assert "asa-plan" in table
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_an_interval_of_equal_values_can_be_drawn(tmp_path):
    """Its bounds differ from the mean by rounding only; a single replication has none."""
    for bounds in ((1.0 + 2e-16, 1.0 - 2e-16), (math.nan, math.nan)):
        beside = Interval(1.0, *bounds)
        frontier(
            {True: [Standing("per-stage", beside, beside, True, True, True, 1.0, 1.0, 0, 1)]}, tmp_path / "plot.png"
        )
        assert (tmp_path / "plot.png").stat().st_size > 1000
        (tmp_path / "plot.png").unlink()
