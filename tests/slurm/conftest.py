"""Clusters of real Slurm daemons, one of each version for a whole test run."""

import os
from pathlib import Path

import pytest
from slurm_testbed import Testbed, missing

VERSIONS = ("22.05", "24.11")


def pytest_collection_modifyitems(items):
    """Send the tests of one version to one worker, so that it is started once."""
    for item in items:
        for version in VERSIONS:
            if getattr(item, "callspec", None) and item.callspec.params.get("slurm") == version:
                item.add_marker(pytest.mark.xdist_group(f"slurm {version}"))
        if "slurm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slurm)


@pytest.fixture(scope="session", params=VERSIONS)
def slurm(request):
    """Give a cluster with accounting: 4 nodes of 28 cores, partitions `normal` and `debug` (at most 30 minutes)."""
    newer = request.param == "24.11"
    if reason := missing(newer):
        pytest.skip(reason)
    # a socket's path is short: not in pytest's own folder
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-{request.param}"), newer=newer, accounting=True)
    try:
        yield testbed.start()
    finally:
        testbed.stop()
