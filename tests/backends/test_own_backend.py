"""A batch system of somebody's own, as a package might bring it: `tests/own_backend.py`."""

import subprocess
import sys
from pathlib import Path

OWN = Path(__file__).parents[1] / "own_backend.py"


def test_it_keeps_the_contract_and_runs_a_workflow():
    done = subprocess.run([sys.executable, OWN], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "It keeps the contract of a backend." in done.stdout
    assert "stages completed; the numbers from 1 to 8 add up to 36" in done.stdout
