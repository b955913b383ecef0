"""The experiment on strategies: its cells, what is kept of it, and its figures, worked out by hand."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from typer.testing import CliRunner

from asa import contest
from asa.cli.experiment import app
from asa.contest import Contest, Standing, Trial, hold, peak_sizes, standings
from asa.errors import InputError, StateError
from asa.report.contest import frontier


@pytest.fixture
def log(tmp_path):
    """Half a year of a machine of 128 cores."""
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


def test_every_strategy_meets_the_same_moments(log):
    trials = hold(small(log), jobs=1)
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
    whole = hold(small(log), kept, jobs=1)
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(lines[:3]) + lines[3][:100])  # it was killed while it wrote
    ran = []
    monkeypatch.setattr(contest, "run_cell", lambda cell, run=contest.run_cell: ran.append(cell) or run(cell))
    assert hold(small(log), kept, jobs=1) == whole
    assert len(ran) == 3
    assert hold(small(log), kept, jobs=1) == whole
    assert len(ran) == 3


def test_what_was_kept_of_another_log_or_by_other_code_is_run_again(log, tmp_path, monkeypatch):
    kept, told = tmp_path / "kept.jsonl", []
    hold(small(log), kept, jobs=1)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-1]))
    ran = []
    monkeypatch.setattr(contest, "run_cell", lambda cell: ran.append(cell) or [])
    hold(small(log), kept, jobs=1)
    assert len(ran) == 6
    log.write_text("".join(lines))
    hold(small(log), kept, jobs=1)
    assert len(ran) == 6, "as it was"
    monkeypatch.setattr(contest, "_code", lambda: "another")
    hold(small(log), kept, jobs=1, on_progress=lambda what, *_: told.append(what))
    assert len(ran) == 12
    assert told[0] == "running cells (12 were kept by another version)"


def test_the_number_of_processes_changes_nothing(log):
    assert hold(small(log), jobs=2) == hold(small(log), jobs=1)


def test_what_is_no_kept_experiment_is_refused(log, tmp_path):
    kept = tmp_path / "other.jsonl"
    kept.write_text('{"a": 1}\n{"b": 2}\n')
    with pytest.raises(StateError, match="no kept experiment"):
        hold(small(log), kept, jobs=1)


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
    return Trial("log", "w", 1, age, True, strategy, start, makespan_s, core_hours, 0.0, wait_s, wait_s + 10)


def test_figures_are_geometric_means_of_pairs():
    trials = [
        *(trial("big-job", i, 100.0 * (i + 1), 9.0) for i in range(2)),
        *(trial("per-stage", i, 200.0, 3.0, wait_s=100.0) for i in range(2)),
        *(trial("x", i, 200.0 * (i + 1), 3.0 * 4**i, wait_s=25.0) for i in range(2)),
    ]
    [x] = [one for one in standings(trials) if one.strategy == "x"]
    assert x.makespan == pytest.approx((2.0, 2.0, 2.0))
    assert x.core_hours[0] == pytest.approx(2.0)
    assert x.core_hours[1:] == pytest.approx((1.0, 4.0))
    assert (x.perceived_wait, x.total_wait) == pytest.approx((0.25, 70 / 220))


def test_cells_count_alike_and_rules_apart():
    trials = [
        trial(name, start, makespan_s, hours, age=age)
        for age, factor in ((True, 1.0), (False, 3.0))
        for start in range(2)
        for name, makespan_s, hours in (("big-job", 100.0, 2.0), ("per-stage", 100.0 * factor, 1.0))
    ]
    told = {(one.age_accrues, one.strategy): one for one in standings(trials)}
    assert told[True, "per-stage"].makespan[0] == pytest.approx(1.0)
    assert told[False, "per-stage"].makespan[0] == pytest.approx(3.0)


def test_who_is_slower_at_no_fewer_core_hours_is_dominated():
    """Only where that is certain: y is slower half of the time only."""
    rng = np.random.default_rng(0)
    trials = []
    for i in range(40):
        trials += [
            trial("big-job", i, 100.0, 2.0),
            trial("per-stage", i, 130.0, 1.0),
            trial("x", i, 150.0, 1.0),
            trial("y", i, 130.0 * math.exp(rng.normal(0, 0.3)), 1.0),
        ]
    dominated = {one.strategy: one.dominated for one in standings(trials)}
    assert dominated == {"big-job": 0, "per-stage": 0, "x": 1, "y": 0}


def test_the_command_prints_its_runs(log, tmp_path):
    command = ["strategies", "--trace", str(log), "--cores", "28", "--workflows", "statistics"]
    command += ["--strategies", "asa-plan", "--estimator", "median", "--starts", "2", "--age", "not", "--jobs", "1"]
    command += ["--results", str(tmp_path / "kept.jsonl"), "--plot", str(tmp_path / "plot.png")]
    rows = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert len(rows) == 6
    assert {"trace", "workflow", "cores", "age_accrues", "strategy", "start", "makespan_s", "core_hours",
            "overhead_core_hours", "perceived_wait_s"} <= rows[0].keys()  # fmt: skip
    assert rows == [asdict(Trial(**row)) for row in rows]
    table = CliRunner().invoke(app, command).stdout
    assert "does not accrue" in table
    assert "asa-plan" in table
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_an_interval_of_equal_values_can_be_drawn(tmp_path):
    """Its bounds are a rounding error beside the mean."""
    beside = (1.0, 1.0 + 2e-16, 1.0 - 2e-16)
    frontier([Standing(True, "per-stage", beside, beside, 1.0, 1.0, 0, 1)], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000
