"""Every command that computes a result prints what it printed, number by number; see `golden/cases.py`."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import cases


@pytest.mark.full
@pytest.mark.parametrize("name", cases.CASES)
def test_a_command_prints_what_it_printed(name):
    was = json.loads(cases.kept(name).read_text())
    assert list(cases.differences(was, cases.printed(name))) == []


def test_a_difference_is_found_and_what_is_measured_is_none():
    was = {"a": [1, 2.0, {"b": "x"}], "seconds": 1.0}
    assert not list(cases.differences(was, {"a": [1, 2.0 + 1e-12, {"b": "x"}], "seconds": 2.0}))
    assert list(cases.differences(was, {"a": [1, 2.1, {"c": "x"}], "seconds": 1.0})) == [
        ".a[1]: 2.0 became 2.1",
        ".a[2].b: is gone",
        ".a[2].c: is new",
    ]
