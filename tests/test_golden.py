"""Every command that computes a result prints what it printed, number by number; see `golden/cases.py`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import cases

ASA = Path(sys.executable).with_name("asa")


@pytest.mark.full
@pytest.mark.parametrize("name", cases.CASES)
def test_a_command_prints_what_it_printed(name):
    was = json.loads(cases.kept(name).read_text())
    assert list(cases.differences(was, cases.printed(name))) == []


def test_results_and_a_site_of_an_earlier_version_are_read(tmp_path):
    for command in (
        ["report", cases.DATA / "results.json", "--out", tmp_path / "page.html"],
        ["run", cases.DATA / "flow.toml", "--dry-run", "--site", "here"],
    ):
        environment = {**os.environ, "ASA_SITES": str(cases.DATA / "sites"), "HOME": str(tmp_path)}
        done = subprocess.run([ASA, *command], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert "Per-Stage" in (tmp_path / "page.html").read_text() or "per-stage" in (tmp_path / "page.html").read_text()


def test_a_difference_is_found_and_what_is_measured_is_none():
    was = {"a": [1, 2.0, {"b": "x"}], "seconds": 1.0}
    assert not list(cases.differences(was, {"a": [1, 2.0 + 1e-12, {"b": "x"}], "seconds": 2.0}))
    assert list(cases.differences(was, {"a": [1, 2.1, {"c": "x"}], "seconds": 1.0})) == [
        ".a[1]: 2.0 became 2.1",
        ".a[2].b: is gone",
        ".a[2].c: is new",
    ]
