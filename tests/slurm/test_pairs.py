"""Rows of the table in `tests/pairs` on real daemons: each kind of stage once, each time under another strategy."""

import os
import time
from random import Random

import pytest
from pairs.kinds import KINDS
from pairs.places import Place, check_all
from pairs.rows import STRATEGIES, Row, covering, few
from slurm_testbed import OLDEST, make_home

STEADY = tuple(name for name in STRATEGIES if name != "pool")  # which takes long to begin
HERE = [kind for kind in KINDS if kind != "gpus"]  # of which the cluster has none


@pytest.fixture
def place_of(slurm):
    """Make places by number; jobs are another user's, and write there."""
    before = os.umask(0)
    folder = slurm.folder(f"pairs-{time.time_ns()}")
    reach = ("--option", f"prefix={' '.join(slurm.prefix)}", "--option", "poll=0.5s", "--option", "max_poll=1s")
    home = {"HOME": make_home(folder)}
    yield lambda n: Place(folder / f"row{n}", "--backend", "slurm-cli", *reach, environment=home)
    slurm.empty()
    os.umask(before)


@pytest.mark.full
@pytest.mark.parametrize("slurm", [OLDEST], indirect=True)
@pytest.mark.parametrize("part", range(4))
def test_each_kind_of_stage_runs(place_of, part):
    check_all([few(kind, STEADY) for kind in HERE[part::4]], place_of, at_once=6)


@pytest.mark.full
@pytest.mark.parametrize("slurm", [OLDEST], indirect=True)
def test_some_kinds_behind_and_beside_others(place_of):
    rows = [row for kind in HERE for row in covering(kind, STEADY) if "gpus" not in row.kinds]
    check_all(Random(46).sample(rows, 12), place_of, at_once=6)


@pytest.mark.full
@pytest.mark.parametrize("slurm", [OLDEST], indirect=True)
def test_elements_of_an_array_take_turns_in_a_job_that_all_stages_share(place_of):
    """They were refused there, and had their turns on batch systems without arrays."""
    arrays = [kind for kind in HERE if KINDS[kind].has("array")]
    check_all([Row("big-job", (kind,), behind="two in a row") for kind in arrays], place_of, at_once=8)
