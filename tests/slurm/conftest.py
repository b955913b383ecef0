"""Clusters of real Slurm daemons, one of each version for each test process."""

import os
from pathlib import Path

import pytest
from slurm_runs import Client
from slurm_testbed import NEWEST, OLDEST, Testbed, missing

_GPUS = """\
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=100
GresTypes=gpu
NodeName=DEFAULT Gres=gpu:a100:2,gpu:v100:2"""
# devices that are everywhere, for nothing touches them
_DEVICES = "".join(f"Name=gpu Type={kind} File=/dev/{device}\n" for kind, device in (
    ("a100", "null"), ("a100", "zero"), ("v100", "full"), ("v100", "random")
))  # fmt: skip


_IN_SHORT = {"test_backend", "test_contract", "test_pairs"}
"""Modules of which `make test` runs something on daemons, too: the contract of the backend, and two whole runs."""
_WITHOUT_DAEMONS = {"test_fake", "test_faults", "test_imported", "test_live_forecasts", "test_testbed", "test_words"}


_LEFT_BY_HTTPCORE = r"ignore:unclosed <socket\.socket fd=\d+, family=1\b:ResourceWarning"
"""A unix socket to which it cannot connect, as to a busy daemon, is closed by whoever collects garbage."""


def pytest_itemcollected(item):
    """Mark tests that start daemons, and long ones among them."""
    is_slurm = "slurm" in getattr(item, "fixturenames", ())
    if is_slurm:
        item.add_marker(pytest.mark.slurm)
        item.add_marker(pytest.mark.filterwarnings(_LEFT_BY_HTTPCORE))
    if item.path.stem not in (_IN_SHORT if is_slurm else _IN_SHORT | _WITHOUT_DAEMONS):
        item.add_marker(pytest.mark.full)


HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Note which tests fail."""
    report = yield
    item.stash[HAS_FAILED] = report.failed or item.stash.get(HAS_FAILED, False)
    return report


@pytest.fixture(autouse=True)
def whole(request):
    """Begin each test of a cluster with all of its nodes; leave no client behind, nor jobs where the test failed.

    The clients of tests that run side by side, which a fixture begins, are that fixture's to end.
    """
    slurm = request.getfixturevalue("slurm") if "slurm" in request.fixturenames else None
    if slurm is not None:
        slurm.mend()
    yield
    if "begun" in request.fixturenames:
        return
    Client.all_leave()
    if slurm is not None and request.node.stash.get(HAS_FAILED, False):
        slurm.empty()


@pytest.fixture(scope="session", params=[OLDEST, pytest.param(NEWEST, marks=pytest.mark.full)])
def slurm(request):
    """Yield a cluster with accounting: 4 nodes of 28 cores, partitions `normal` and `debug` (at most 30 minutes)."""
    if reason := missing(request.param):
        pytest.skip(reason)
    # a socket's path is short: not in pytest's own folder
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-{request.param}"), release=request.param, accounting=True)
    try:
        yield testbed.start()
    finally:
        testbed.stop()


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def gpus(request):
    """Yield a cluster of nodes of 28 cores and four GPUs of two types, which counts memory."""
    if reason := missing(request.param):
        pytest.skip(reason)
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-gpus{request.param}"), release=request.param, conf=_GPUS)
    (testbed.root / "etc").mkdir(parents=True)
    (testbed.root / "etc" / "gres.conf").write_text(_DEVICES)
    try:
        yield testbed.start()
    finally:
        testbed.stop()


@pytest.fixture(scope="package", autouse=True)
def own_home_of_all(make_home, tmp_path_factory):
    """Real programs and daemons run here, as a user runs them: at home."""
    with make_home(tmp_path_factory) as home:
        yield home
