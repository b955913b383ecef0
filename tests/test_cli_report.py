"""``asa report``: the page of a run or a comparison, its trace and its spreadsheet, from what was kept alone."""

import csv
import json
import re
from dataclasses import replace

import pytest
from forked import asa

from asa.errors import InputError
from asa.studies.compare.kept import KeptComparison
from asa.studies.harness import sealed, unsealed

pytestmark = pytest.mark.usefixtures("own_home")

FLOW = """
name = "small"
[[stage]]
name = "first"
command = "true"
cores = 1
walltime = "5min"
[[stage]]
name = "second"
command = "true"
cores = 1
after = ["first"]
walltime = "5min"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reported")
    (folder / "flow.toml").write_text(FLOW)
    asa("run", "flow.toml", "--backend", "local", "--strategy", "per-stage", cwd=folder)
    return folder


def test_a_run_has_a_page(folder):
    told = asa("report", cwd=folder).stderr
    [page] = folder.glob("small-*.html")
    assert f"Written to {page.name}" in told
    text = page.read_text()
    for words in ("Run small", "Completed in", "per-stage", "Jobs", "first", "second", "<svg", "local"):
        assert words in text
    assert asa("report", "small", "--out", "other.html", cwd=folder).returncode == 0
    assert (folder / "other.html").read_text() == text


def test_a_trace_and_a_spreadsheet_come_in_its_place(folder):
    before = sorted(folder.glob("*.html"))
    asa("report", "--trace", "run.json", "--csv", "run.csv", cwd=folder)
    assert sorted(folder.glob("*.html")) == before
    events = json.loads((folder / "run.json").read_text())["traceEvents"]
    ran = [event["name"] for event in events if event.get("cat") == "running"]
    assert ran == ["first", "second"]
    with (folder / "run.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["stage"] for row in rows if row["kind"] == "running"] == ["first", "second"]
    assert all(float(row["end_s"]) > float(row["begin_s"]) >= 0 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "nothing"),
        (("nothing.json",), "nothing.json: cannot be read"),
        (("--out", "no/where.html"), "cannot be written"),
        (("--out", ""), "is empty"),
        (("--out", "a-folder.html"), "it is a folder"),
        (("--out", "taken"), "is not a page of asa"),
        (("--trace", "no/where.json"), "cannot be written"),
    ],
)
def test_what_cannot_be_is_said(folder, arguments, said):
    (folder / "a-folder.html").mkdir(exist_ok=True)
    (folder / "taken").mkdir(exist_ok=True)
    (folder / "taken" / "index.html").write_text("<title>Theirs</title>")
    assert said in asa("report", *arguments, cwd=folder, code=2).stderr


def test_what_a_dependency_keeps_back_is_told(tmp_path):
    """The run's own page knows each job's dependencies."""
    (tmp_path / "flow.toml").write_text(FLOW.replace('command = "true"', 'command = "sleep 2"'))
    asa("run", "flow.toml", "--backend", "local", "--strategy", "chained", cwd=tmp_path)
    asa("report", "--out", "run.html", "--csv", "run.csv", cwd=tmp_path)
    with (tmp_path / "run.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["stages"] == "second"]
    assert rows[0]["kind"] == "kept"
    assert float(rows[0]["end_s"]) >= 2
    assert "held by a dependency: " in (tmp_path / "run.html").read_text()


# ---------------------------------------------------------------------- comparisons


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    arguments = (
        "blast",
        "--cores",
        "28,56",
        "--seeds",
        2,
        "--strategies",
        "big-job,asa",
        "--jobs",
        1,
        "--output",
        "json",
    )
    told = asa("compare", *arguments, "--results", "kept.json", "--report", "page.html", cwd=folder)
    assert "Written to kept.json" in told.stderr
    return folder, json.loads(told.stdout)


def test_a_comparison_s_page_is_the_one_it_had(compared):
    folder, _ = compared
    told = asa("report", "kept.json", cwd=folder).stderr
    assert "Written to compare-blast-uppmax.html" in told
    assert (folder / "compare-blast-uppmax.html").read_text() == (folder / "page.html").read_text()
    arguments = ("blast", "--cores", "28,56", "--seeds", 2, "--strategies", "big-job,asa")
    asa("compare", *arguments, "--report", "all", cwd=folder)
    told = asa("report", "kept.json", "--out", "all", cwd=folder).stderr
    assert "compare-blast-uppmax.html, replaces" in told
    assert len(list((folder / "all").iterdir())) == 2


def test_a_comparison_s_jobs_are_a_trace_and_a_spreadsheet(compared):
    """There is one process for each strategy and size, whose stages take as long as in the runs."""
    folder, runs = compared
    asa("report", "kept.json", "--trace", "trace.json", "--csv", "jobs.csv", cwd=folder)
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    cells = [(cores, strategy) for cores in (28, 56) for strategy in ("big-job", "asa")]
    assert list(names.values()) == [f"{strategy}, {cores} cores, seed 0" for cores, strategy in cells]
    with (folder / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    for process, (cores, strategy) in zip(names, cells, strict=True):
        [run] = [r for r in runs if (r["cores"], r["strategy"], r["seed"]) == (cores, strategy, 0)]
        mine = [event for event in events if event["pid"] == process]
        assert sum(e["dur"] for e in mine if e.get("cat") == "running") == pytest.approx(1e6 * run["execution_s"], 1e-6)
        told = [row for row in rows if (row["peak_cores"], row["strategy"]) == (str(cores), strategy)]
        ran = sum(float(row["end_s"]) - float(row["begin_s"]) for row in told if row["kind"] == "running")
        assert ran == pytest.approx(run["execution_s"])
        assert {(row["workflow"], row["seed"]) for row in told} == {("blast", "0")}


@pytest.mark.parametrize(
    "changed",
    [b"", b"{}", b"[" * 100_000, b'{"asa_comparison": 2}', ("makespan_s", '"long"'), ("runs", "[]"), ("seed", "1.5"),
     ("timeline", '{"lanes": 3}')],
)  # fmt: skip
def test_what_is_no_kept_comparison_is_refused(compared, changed):
    folder, _ = compared
    data = changed
    if isinstance(changed, tuple):
        told = json.loads((folder / "kept.json").read_text())
        name, value = changed
        place = told if name in told else told["runs"][0]
        place = place if name in place else place["metrics"]
        assert name in place
        place[name] = json.loads(value)
        del told["check"]
        data = sealed(json.dumps(told)).encode()
    (folder / "changed.json").write_bytes(data)
    refused = asa("report", "changed.json", cwd=folder, code=2).stderr
    assert "changed.json: " in refused
    assert "asa compare --results" in refused
    assert "Traceback" not in refused


@pytest.mark.parametrize(
    ("before", "after"),
    [('"makespan_s": ', '"makespan_s": 9'), ('"seed": 0', '"seed": 77'), ("uppmax", "uppmux"),
     ('"check": "', '"check": "0'), ("\n ]", " ]"), ('"makespan_s": ', '"makespan_s": NaN, "was_s": ')],
)  # fmt: skip
def test_what_was_changed_by_hand_is_refused(compared, before, after):
    folder, _ = compared
    text = (folder / "kept.json").read_text()
    assert before in text
    (folder / "changed.json").write_text(text.replace(before, after, 1))
    refused = asa("report", "changed.json", cwd=folder, code=2).stderr
    assert "changed.json: is damaged" in refused
    assert "asa compare --results" in refused


def _of(runs, strategy, **changes):
    return tuple(replace(run, **changes) if run.strategy == strategy else run for run in runs)


@pytest.mark.parametrize(
    ("change", "told"),
    [(lambda runs: runs[1:], "not paired"),
     (lambda runs: tuple(run for run in runs if (run.strategy, run.cores) != ("asa", 56)), "not paired"),
     (lambda runs: (*runs[:1], replace(runs[1], seed=77), *runs[2:]), "not paired"),
     (lambda runs: (*runs, runs[0]), "in the same replication"),
     (lambda runs: _of(runs, "asa", system="hpc2n"), "several workflows, systems"),
     (lambda runs: _of(runs, "asa", age_accrues=False), "several workflows, systems"),
     (lambda _: (), "has no runs")],
)  # fmt: skip
def test_runs_that_are_no_comparison_are_refused(compared, change, told):
    """Undamaged runs are refused, too: a page would claim that they are paired by replication."""
    folder, _ = compared
    kept = KeptComparison.read(folder / "kept.json")
    (folder / "changed.json").write_text(replace(kept, runs=change(kept.runs)).text())
    with pytest.raises(InputError, match=told) as refused:
        KeptComparison.read(folder / "changed.json")
    assert "asa compare --results" in refused.value.hint


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_figures_that_are_no_numbers_are_refused(compared, number):
    """The origin of such a figure in the file does not matter."""
    folder, _ = compared
    whole = unsealed((folder / "kept.json").read_text().strip())
    changed, many = re.subn(r'(?<="makespan_s": )[\d.e+]+', number, whole)
    assert many == 8
    (folder / "changed.json").write_text(sealed(changed))
    with pytest.raises(InputError, match="no number: big-job on 28 cores, seed 0"):
        KeptComparison.read(folder / "changed.json")


def test_hits_have_one_name(compared):
    folder, _ = compared
    page = (folder / "page.html").read_text()
    assert ">Hits, %<" in page
    assert "Hits: share of predicted waits that were not too long" in page


def test_where_nothing_can_be_kept_is_told_before_anything_runs(tmp_path):
    for place in ("no/where.json", "."):
        refused = asa("compare", "blast", "--results", place, cwd=tmp_path, code=2)
        assert "Name a file in a folder that exists" in refused.stderr


def test_what_is_no_simulator_is_told_with_those_that_are(tmp_path):
    refused = asa("compare", "blast", "--backend", "local", cwd=tmp_path, code=2).stderr
    assert {"simulated", "as-recorded", "twin", "openccs", "bbsched", "dmr", "dras"} == set(
        refused.partition("Known: ")[2].strip(".\n").split(", ")
    )
