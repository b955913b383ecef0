"""The experiment on bags: its competitors, and its figures, computed by hand."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from asa.cli.experiment import app
from asa.errors import InputError
from asa.studies.bags import study
from asa.studies.bags.scores import BagVerdicts, judged
from asa.studies.bags.study import BagQuestion, BagRun, compare_ways


@pytest.fixture
def log(tmp_path):
    """Yield a log: half a year of a machine of 64 cores, of which three quarters are in use."""
    rng = np.random.default_rng(1)
    lines, now = ["; MaxProcs: 64"], 0
    for number in range(1, 3001):
        now += int(rng.exponential(4000))
        run = int(rng.exponential(10000)) + 60
        lines.append(f"{number} {now} 0 {run} {int(2 ** rng.integers(0, 7))} -1 -1 -1 {2 * run} -1 1 1 1 1 1 -1 -1 -1")
    path = tmp_path / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.full
def test_every_number_of_jobs_meets_the_same_queues(log):
    runs = compare_ways(BagQuestion((log,), (1.0, 3.0), 3), jobs=1)
    assert {(r.hours, r.jobs, r.start) for r in runs} == {
        (hours, jobs, start) for hours in (1, 3) for jobs in (1, 2, 4, 8, 28, 56) for start in range(3)
    }
    assert {r.cores for r in runs} == {56}
    for run in runs:
        assert run.makespan_s >= 3600 * run.hours
        assert 56 * run.hours - 0.01 <= run.core_hours <= 56 * run.hours * 1.01
    one = compare_ways(BagQuestion((log,), (1.0,), 3), jobs=1)
    assert one == [r for r in runs if r.hours == 1], "sizes do not disturb each other"


def test_it_goes_on_where_it_was(log, tmp_path, monkeypatch):
    question, kept = BagQuestion((log,), (1.0,), 2), tmp_path / "runs.jsonl"
    first = compare_ways(question, kept, jobs=1)
    monkeypatch.setattr(study, "run_cell", lambda cell: pytest.fail(f"{cell} was run again"))
    assert compare_ways(question, kept, jobs=1) == first


def test_figures_by_hand():
    took = {1: (400.0, 900.0), 2: (200.0, 225.0), 4: (100.0, 900.0)}
    runs = [
        BagRun("x", 4, 1.0, jobs, start, makespan_s, 10.0 + jobs, 5.0 * jobs)
        for jobs, of in took.items()
        for start, makespan_s in enumerate(of)
    ]
    [verdict] = judged(runs)
    assert verdict.over_one == pytest.approx({1: 1.0, 2: math.sqrt(0.5 * 0.25), 4: math.sqrt(0.25)})
    assert verdict.best == 2
    assert verdict.taken_over_one.mean == pytest.approx(0.5)
    assert verdict.taken_over_best.mean == pytest.approx(math.sqrt(0.5 * 4))
    assert verdict.core_hours == pytest.approx(28 / 22)
    assert verdict.others_wait_s.mean == 15.0
    assert json.loads(json.dumps(BagVerdicts(runs, 2).as_dict()))["verdicts"][0]["best"] == 2


@pytest.mark.parametrize("hours", [(), (0.0,), (-1.0, 1.0), (math.nan,), (math.inf,), (1e9,)])
def test_what_cannot_be_compared_is_refused(log, hours):
    with pytest.raises(InputError, match="hours cannot be" if hours else "nothing to compare"):
        BagQuestion((log,), hours).cells()


def test_a_machine_that_is_too_small_is_refused(tmp_path):
    path = tmp_path / "small.swf"
    path.write_text(
        "; MaxProcs: 8\n" + "".join(f"{n} {n}00 0 50 1 -1 -1 -1 90 -1 1 1 1 1 1 -1 -1 -1\n" for n in range(9))
    )
    with pytest.raises(InputError, match="its machine has 8 cores"):
        BagQuestion((path,)).cells()


def test_the_command_prints_a_table_and_json(log):
    words = ["bags", "--trace", str(log), "--hours", "1", "--starts", "2", "--jobs", "1"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert "Bags over several jobs" in done.stdout
    assert "1 h x 56" in done.stdout
    document = json.loads(CliRunner().invoke(app, [*words, "--output", "json"]).stdout)
    assert len(document["runs"]) == 12
    wrong = CliRunner().invoke(app, [*words[:-6], "--hours", "one"])
    assert "not a list of numbers" in str(wrong.exception)
