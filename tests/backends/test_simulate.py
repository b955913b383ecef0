"""`asa simulate`: a schedule summed up."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from asa.backends.simulated.replay import replay
from asa.backends.simulated.simulate import _over_time, summary
from asa.backends.simulated.swf import read_swf

ASA = str(Path(sys.executable).with_name("asa"))
LOG = """\
; MaxProcs: 4
7 0 -1 100 3 -1 -1 3 100 -1 1 1 1 1 1 1 -1 -1
5 10 -1 50 4 -1 -1 4 50 -1 1 1 1 1 1 1 -1 -1
9 20 -1 5 1 -1 -1 1 80 -1 1 1 1 1 1 1 -1 -1
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


def run(*arguments, code=0):
    done = subprocess.run([ASA, "simulate", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_a_schedule_by_hand(log):
    """7 runs 0-100; 5 wants all and waits 90 s; 9 fits beside 7 until 100 and starts at once."""
    told = json.loads(run(log, "--json").stdout)
    assert (told["jobs"], told["cores"]) == (3, 4)
    assert told["mean_wait_s"] == 30
    assert told["median_wait_s"] == 0
    assert told["p95_wait_s"] == pytest.approx(81)
    assert told["bounded_slowdown"] == pytest.approx((1 + 140 / 50 + 1) / 3)
    assert told["utilisation"] == pytest.approx((300 + 200 + 5) / (4 * 150))
    assert told["mean_queue_length"] == pytest.approx(90 / 150)
    assert [(size["most_cores"], size["jobs"], size["mean_wait_s"]) for size in told["sizes"]] == [
        (1, 1, 0),
        (4, 2, 45),
    ]


def test_starts_are_written_by_the_logs_ids(log, tmp_path):
    """In the log's order; without backfilling the last job waits behind the wide one."""
    for scheduler, expected in (("easy", [0, 100, 20]), ("fcfs", [0, 100, 150])):
        run(log, "--scheduler", scheduler, "--starts", tmp_path / "starts.csv")
        rows = list(csv.DictReader((tmp_path / "starts.csv").read_text().splitlines()))
        assert [int(row["job_id"]) for row in rows] == [7, 5, 9]
        assert [int(row["start"]) for row in rows] == expected


def test_tables_are_for_people(log):
    """Sizes, the whole, and a drawing over time."""
    text = run(log).stdout
    for words in (
        "log.swf: easy, default conventions",
        "3-4",
        "bounded slowdown 1.60",
        "busy cores",
        "waiting jobs",
        "of 4",
    ):
        assert words in text


def test_the_drawing_adds_up(log):
    """Means over time are the summary's."""
    trace = read_swf(log)
    t = trace.table
    start = replay(t.submit, t.run, t.request, t.cores, trace.cores)
    busy, waiting = _over_time(trace, start, 30)
    told = summary(trace, start)
    assert busy.mean() == pytest.approx(told["utilisation"])
    assert waiting.mean() == pytest.approx(told["mean_queue_length"])
    assert np.all(busy >= -1e-9)
    assert np.all(busy <= 1 + 1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.swf"], "none.swf: cannot be read"),
        (["LOG", "--scheduler", "sjf"], "no scheduler 'sjf'"),
        (["LOG", "--preset", "alea"], "no preset 'alea'"),
        (["LOG", "--starts", "/no/such/folder/x.csv"], "cannot be written"),
    ],
)
def test_bad_input_is_refused(log, arguments, message):
    """Exit code 2, and what to do."""
    assert message in run(*[str(log) if a == "LOG" else a for a in arguments], code=2).stderr
