"""The example: it really shrinks and grows, and computes the same."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "malleable_jacobi.py"


@pytest.mark.full
def test_it_shrinks_grows_and_computes_the_same(tmp_path):
    """Also in fewer iterations than are of use to look at."""
    text = EXAMPLE.read_text()
    for name, value, less in (("ITERATIONS", 2500, 1000), ("CHECK_EACH", 50, 20)):
        assert text.count(f"\n{name} = {value}\n") == 1
        text = text.replace(f"\n{name} = {value}\n", f"\n{name} = {less}\n")
    shorter = tmp_path / EXAMPLE.name
    shorter.write_text(text)
    done = subprocess.run([sys.executable, shorter], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    told = done.stdout.splitlines()
    first = told[: told.index("Once more, without a manager:")]
    sizes = [int(found[1]) for line in first if (found := re.search(r"jacobi .*(?:on|with) (\d)", line))]
    assert sizes == [4, 2, 4, 4], "it begins, shrinks, expands and ends"
    order = ["rigid, on 2 nodes: submitted", "shrink: lets job 2 (rigid) start", "rigid, on 2 nodes: ended", "expand: "]
    places = [next(place for place, line in enumerate(first) if words in line) for words in order]
    assert places == sorted(places)
    assert told[-1] == "The results are the same, to the last bit."
