"""``asa report``: a run's page, its trace and its spreadsheet, from its folder alone."""

import csv
import json

import pytest
from forked import asa

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
    for words in ("Run small", "Done in", "per-stage", "What its jobs did", "first", "second", "<svg", "local"):
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
        (("--out", "no/where.html"), "cannot be written"),
        (("--trace", "no/where.json"), "cannot be written"),
    ],
)
def test_what_cannot_be_is_said(folder, arguments, said):
    assert said in asa("report", *arguments, cwd=folder, code=2).stderr
