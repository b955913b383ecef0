"""Montage, BLAST and statistics as jobs of real Slurm daemons make what a plain loop makes."""

import os

import pytest
from portable_tools import bring
from real_pipelines import Made, completed, pipeline_of, run_by_asa

pytestmark = pytest.mark.full  # real programs, over and over


@pytest.fixture(scope="module")
def settings(slurm):
    """Return the options that reach the cluster; programs are copied to nodes of a newer release, another Debian."""
    before = os.umask(0)  # jobs are another user's than this test's, and write where it made folders
    settings = {"url": f"unix://{slurm.socket}", "system": "testbed", "poll": "0.4s", "max_poll": "1s"}
    if slurm.tree:
        path = bring(_tools(), slurm.folder("tools"))
        settings["environment"] = {"PATH": f"{path}:/usr/bin:/bin"}
    yield settings
    os.umask(before)


def _tools():
    return {tool for name in ("montage", "blast", "statistics") for tool in pipeline_of(name).tools}


# each strategy on each pipeline: tests/pipelines/test_results.py, where a queue takes no time
@pytest.mark.parametrize(
    ("name", "strategy"), [("montage", "asa"), ("blast", "asa"), ("statistics", "asa-naive"), ("statistics", "big-job")]
)
def test_real_programs_run_under_slurm(slurm, settings, name, strategy):
    made = Made(name, slurm.folder(f"{name}-{strategy}"), width=8)
    work = made.work()
    result = run_by_asa(made.flow, work, strategy, "slurm-rest", settings)
    assert not result.reason
    assert sorted(completed(work)) == sorted(made.flow.stages)
    assert made.verdict(work).startswith("good")
    assert made.likeness(work) == "the same bytes"
