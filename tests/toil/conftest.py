"""Queues of this machine, and folders in which Toil is run on them."""

import pytest
from local_queue import Queue
from toil_runs import ToilProject, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def pytest_itemcollected(item):
    """Mark them: each takes a minute."""
    item.add_marker(pytest.mark.full)


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path, 4)
    yield queue
    queue.close()


@pytest.fixture
def project(tmp_path, queue):
    on = ["--asaBackend", "local", "--asaOption", "cores=4", "--asaOption", f"spool={tmp_path / 'spool'}"]
    made = ToilProject(tmp_path / "work", on=on)
    yield made
    made.close()


@pytest.fixture(scope="package", autouse=True)
def own_home_of_all(make_home, tmp_path_factory):
    """Real programs run here, as a user runs them: at home."""
    with make_home(tmp_path_factory) as home:
        yield home
