"""Montage and BLAST as jobs of real Slurm daemons, asked for ahead of time, make what a plain loop makes."""

import os

import pytest
from portable_tools import bring
from real_pipelines import Made, ended_well, pipeline_of, run_by_asa


@pytest.fixture(scope="module")
def settings(slurm):
    """Reach the cluster; nodes of the newer one are another Debian, to which the programs are brought."""
    before = os.umask(0)  # jobs are another user's than this test's, and write where it made folders
    settings = {"url": f"unix://{slurm.socket}", "system": "testbed", "poll": "0.4s", "most_poll": "1s"}
    if slurm.newer:
        path = bring(_tools(), slurm.folder("tools"))
        settings["environment"] = {"PATH": f"{path}:/usr/bin:/bin"}
    yield settings
    os.umask(before)


def _tools():
    return [tool for name in ("montage", "blast") for tool in pipeline_of(name).tools]


@pytest.fixture(scope="module", params=["montage", "blast"])
def made(slurm, settings, request):
    return Made(request.param, slurm.folder(request.param), width=8)


@pytest.mark.parametrize("strategy", ["asa", "chained"])
def test_real_programs_run_under_slurm(made, settings, strategy):
    work = made.work()
    result = run_by_asa(made.flow, work, strategy, "slurm-rest", settings)
    assert not result.reason
    assert sorted(ended_well(work)) == sorted(made.flow.stages)
    assert made.verdict(work).startswith("good")
    assert made.likeness(work) == "the same bytes"
