"""`asa simulate`: a schedule summed up."""

import csv
import json
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
import pytest
from asa.backends.simulated.simulate import _over_time, schedule, summary
from asa.backends.simulated.swf import read_swf
from forked import asa

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
    return asa("simulate", *arguments, code=code)


def test_a_schedule_by_hand(log):
    """Job 7 runs from 0 to 100; job 5 needs all cores and waits 90 s; job 9 fits next to 7 and starts at once."""
    told = json.loads(run(log, "--output", "json").stdout)
    assert (told["jobs"], told["cores"]) == (3, 4)
    assert told["mean_wait_s"] == 30
    assert told["median_wait_s"] == 0
    assert told["p95_wait_s"] == pytest.approx(81)
    assert told["bounded_slowdown"] == pytest.approx((1 + 140 / 50 + 1) / 3)
    assert told["utilisation"] == pytest.approx((300 + 200 + 5) / (4 * 150))
    assert told["mean_queue_length"] == pytest.approx(90 / 150)
    for total in ("utilisation", "mean_queue_length"):
        assert sum(size[total] for size in told["sizes"]) == pytest.approx(told[total])
    assert [size["bounded_slowdown"] for size in told["sizes"]] == pytest.approx([1, (1 + 140 / 50) / 2])
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
        "1.60",
        "Mean wait",
        "busy cores",
        "waiting jobs",
        "of 4",
    ):
        assert words in text


def test_the_drawing_adds_up(log):
    """Means over time are the summary's."""
    done = schedule(read_swf(log), "easy", {})
    busy, waiting, edges = _over_time(done, 30)
    told = summary(done)
    assert busy.mean() == pytest.approx(told["utilisation"])
    assert waiting.mean() == pytest.approx(told["mean_queue_length"])
    assert np.all(busy >= -1e-9)
    assert np.all(busy <= 1 + 1e-9)
    assert (edges[0], edges[-1], len(edges)) == (0, 150, 31)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_figure_is_drawn(log, tmp_path, suffix):
    """Of the right kind."""
    path = tmp_path / f"log.{suffix}"
    assert "Figure written" in run(log, "--plot", path).stderr
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["conservative"], [0, 100, 20]),
        (["sjf"], [0, 100, 20]),
        (["wfp"], [0, 100, 20]),
        (["f1", "--option", "number=3"], [0, 100, 20]),
        (["sjf", "--option", "backfill=none"], [0, 100, 150]),
        (["multifactor", "--option", "interval_s=25"], [0, 100, 25]),
        (["multifactor", "--option", "interval-s=7m"], [0, 100, 150]),
    ],
)
def test_schedulers_go_by_name_and_take_settings(log, tmp_path, arguments, expected):
    """The last job may overtake, if and when the discipline lets it."""
    run(log, "--scheduler", *arguments, "--starts", tmp_path / "starts.csv")
    rows = csv.DictReader((tmp_path / "starts.csv").read_text().splitlines())
    assert [int(row["start"]) for row in rows] == expected


def test_outages_take_cores_away(log, tmp_path):
    """While three of four cores are away, job 7 waits to run again; while one is away, job 5 never starts."""
    path = tmp_path / "away.csv"
    path.write_text("begin_s,end_s,cores,drain\n50,300,3,no\n420,,1,yes\n")
    told = json.loads(run(log, "--outages", path, "--starts", tmp_path / "starts.csv", "--output", "json").stdout)
    rows = csv.DictReader((tmp_path / "starts.csv").read_text().splitlines())
    assert [int(row["start"]) for row in rows] == [300, 400, 20]
    assert told["oddities"] == {"ended by an outage and requeued": 1}
    path.write_text("begin_s,end_s,cores,drain\n15,,1,yes\n")
    told = json.loads(run(log, "--outages", path, "--output", "json").stdout)
    assert told["oddities"] == {"never started": 1}
    assert told["jobs"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.swf"], "none.swf: cannot be read"),
        (["LOG", "--scheduler", "sjif"], "no scheduler 'sjif'\nDid you mean 'sjf'"),
        (["LOG", "--scheduler", "sjf", "--option", "depth=3"], "no setting 'depth'"),
        (["LOG", "--scheduler", "sjf", "--option", "depth"], "'depth' is no setting"),
        (["LOG", "--scheduler", "sjf", "--option", "backfill=some"], "no backfilling 'some'"),
        (["LOG", "--scheduler", "multifactor", "--option", "depth=many"], "'many' cannot be read"),
        (["LOG", "--scheduler", "multifactor", "--option", "depth=0"], "a number below 1"),
        (["LOG", "--scheduler", "easy", "--option", "depth=1"], "It has none"),
        (["LOG", "--scheduler", "f1", "--option", "number=5"], "no F5"),
        (["LOG", "--scheduler", "sjf", "--preset", "pyss"], "Leave it out"),
        (["LOG", "--exceed", "ignore"], "'ignore' is no rule"),
        (["LOG", "--outages", "none.csv"], "cannot be read"),
        (["LOG", "--outages", "LOG"], "has no header"),
        (["LOG", "--scheduler", "multifactor", "--option", f"depth={10**20}"], "no number to count with"),
        (["LOG", "--scheduler", "multifactor", "--option", "age=nan"], "no number to count with"),
        (["LOG", "--plot", "x.gif5"], "no kind of figure"),
        (["LOG", "--preset", "pyss", "--exceed", "keep"], "more than there are"),
        (["LOG", "--preset", "alea"], "no preset 'alea'"),
        (["LOG", "--starts", "/no/such/folder/x.csv"], "cannot be written"),
    ],
)
def test_bad_input_is_refused(log, arguments, message):
    """Exit code 2, and what to do."""
    assert message in run(*[str(log) if a == "LOG" else a for a in arguments], code=2).stderr


def test_without_numba_it_works_and_says_that_it_is_slow(log):
    """The same schedule, and a remedy."""
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'numba' else find(name, *a)\n"
        "sys.modules['numba'] = None; from asa.cli import main; main()"
    )
    for scheduler in ("easy", "conservative"):
        done = subprocess.run(
            [sys.executable, "-c", code, "simulate", str(log), "--output", "json", "--scheduler", scheduler],
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout)["mean_wait_s"] == 30
        assert "pip install numba" in done.stderr
    assert not run(log, "--output", "json").stderr


@pytest.mark.parametrize(
    "line", [f"5,9,{10**23},no", f"{'7' * 140_000}", "-1,9,1,no", "5,9,1,perhaps", "5,5,1,no", "5,9"]
)
def test_broken_outages_are_refused_with_their_line(log, tmp_path, line):
    """Whatever is in it."""
    path = tmp_path / "away.csv"
    path.write_text(f"begin_s,end_s,cores,drain\n{line}\n" if line else "5,9,1,no\n")  # or without a header
    assert "away.csv" in run(log, "--outages", path, code=2).stderr


@pytest.mark.parametrize("columns", ["1", "20", "28", "200"])
def test_any_terminal_will_do(log, monkeypatch, columns):
    """However narrow."""
    monkeypatch.setenv("COLUMNS", columns)
    assert "cores" in run(log).stdout.replace("\n", "") or columns == "1"


def test_a_scheduler_that_knows_no_overruns_says_so(tmp_path):
    """With the option to change."""
    path = tmp_path / "over.swf"
    path.write_text("; MaxProcs: 4\n1 0 -1 100 3 -1 -1 3 50 -1 1 1 1 1 1 1 -1 -1\n")
    assert "--exceed keep" in run(path, "--scheduler", "sjf", "--exceed", "keep", code=2).stderr
    assert json.loads(run(path, "--exceed", "keep", "--output", "json").stdout)["jobs"] == 1


def test_wide_jobs_have_classes_of_their_own(tmp_path):
    """Up to any width."""
    path = tmp_path / "wide.swf"
    jobs = "".join(f"{i} {i} -1 9 {w} -1 -1 {w} 9 -1 1 1 1 1 1 1 -1 -1\n" for i, w in enumerate([1, 200, 70_000]))
    path.write_text(f"; MaxProcs: 100000\n{jobs}")
    assert [size["most_cores"] for size in json.loads(run(path, "--output", "json").stdout)["sizes"]] == [
        1,
        256,
        131072,
    ]
    assert "65537-131072" in run(path).stdout


def test_outages_as_spreadsheets_write_them(log, tmp_path):
    """With a byte-order mark, spaces, and words in capitals."""
    path = tmp_path / "away.csv"
    path.write_text("\ufeffbegin_s, end_s, cores, drain\n5, 9, 1, YES\n")
    assert json.loads(run(log, "--outages", path, "--output", "json").stdout)["started"] == 3


@pytest.mark.full
@pytest.mark.skipif(not find_spec("numba"), reason="numba is not installed")
def test_the_first_use_says_why_it_takes_long(log, tmp_path, monkeypatch):
    """And the second neither takes long nor says so. How long that is depends on the machine, and what else it does."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def simulate(patience_s):
        impatient = f"from asa.backends.simulated import simulate; simulate._PATIENCE_S = {patience_s}; "
        command = [
            sys.executable,
            "-c",
            f"{impatient}from asa.cli import main; main()",
            "simulate",
            log,
            "--output",
            "json",
        ]
        command += ["--preset", "pyss"]  # whose loop is always the compiled one
        begin = time.monotonic()
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        return told, time.monotonic() - begin

    told, took_s = simulate(1.0)
    assert "for the first time" in told
    told, again_s = simulate(took_s / 2)
    assert not told
    assert again_s < took_s
