"""A sample of the random trials (`tools/trials.py`): promises hold under random faults."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from trial.draw import WORLD, draw
from trials import try_one, unable

SAMPLE = (
    (31, "", "local", "asa"),
    (41, "22.05", "cli", "elastic"),
    (47, "22.05", "rest", "asa-plan"),
    (16, "26.05", "cli", "chained"),
    (21, "26.05", "rest", "big-job"),
)
HOSTILE = (
    (7528, "22.05", "cli", "asa"),  # answers are partial, then empty
    (7510, "26.05", "cli", "per-stage"),  # numbers begin anew, answers are partial, states unknown
    (7519, "26.05", "rest", "chained"),  # a node lacks the work folder, answers are cut off
)
"""In a hostile world."""


@pytest.fixture(autouse=True)
def everybody_writes():
    """Let the cluster's user write into this process's folders."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.slurm
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of clients that are killed
@pytest.mark.skipif(not os.environ.get("ASA_TRIALS"), reason="takes a quiet machine: ASA_TRIALS=1, as CI does")
@pytest.mark.parametrize(
    "trials",
    [
        [draw(*one) for one in SAMPLE],
        pytest.param([draw(*one, tuple(WORLD)) for one in HOSTILE], marks=pytest.mark.full),
    ],
    ids=["as ever", "hostile"],
)
def test_promises_hold_in_trials(tmp_path, trials):
    able = [trial for trial in trials if not unable(trial)]
    if not able:
        pytest.skip(unable(trials[0]))
    with ThreadPoolExecutor(len(able)) as at_once:
        verdicts = list(at_once.map(lambda trial: try_one(trial, tmp_path), able))
    assert {verdict.trial.again: verdict.broken for verdict in verdicts if verdict.broken} == {}
    assert not all(verdict.invalid for verdict in verdicts), verdicts[0].invalid
