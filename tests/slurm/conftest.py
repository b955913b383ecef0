"""Clusters of real Slurm daemons, one of each version for a whole test run."""

import os
from pathlib import Path

import pytest
from slurm_testbed import Testbed, missing

VERSIONS = ("22.05", "24.11")


@pytest.hookimpl(tryfirst=True)  # before groups are looked at
def pytest_collection_modifyitems(items):
    """Send the tests of one version to one worker, so that it is started once, and first, as they take longest."""
    for item in items:
        for version in VERSIONS:
            if getattr(item, "callspec", None) and item.callspec.params.get("slurm") == version:
                item.add_marker(pytest.mark.xdist_group(f"slurm {version}"))
        if "slurm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slurm)
    items.sort(key=lambda item: item.get_closest_marker("slurm") is None)


@pytest.fixture(autouse=True)
def whole(request):
    """Begin each test of a cluster with all of its nodes, whatever the one before did."""
    if "slurm" in request.fixturenames:
        request.getfixturevalue("slurm").mend()


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
