"""Queues of this machine, and folders in which Snakemake is run on them."""

import pytest
from local_queue import Queue
from snakemake_noted import Noting
from snakemake_runs import Project
from this_machine import OwnPlace

_IN_SHORT = {"test_told"}
"""Modules that `make test` runs, too, where there is Snakemake: what its users are told; the rest takes minutes."""


def pytest_itemcollected(item):
    """Mark what takes long."""
    if item.path.stem not in _IN_SHORT:
        item.add_marker(pytest.mark.full)


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path, 4)
    yield queue
    queue.close()


@pytest.fixture
def project(tmp_path, queue):
    made = []

    def make(snakefile, *options, name="work"):
        on = ("--asa-backend", "local", "--asa-option", "cores=4", f"spool={tmp_path / 'spool'}")
        made.append(Project(tmp_path / name, snakefile, options=("--jobs", "8", *on, *options)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def project_on_own_queue(tmp_path):
    """A batch system that refuses what is larger than this machine; the local one scales it down."""
    place, made = OwnPlace(tmp_path), []

    def make(snakefile, *options):
        on = ("--asa-backend", "this-machine", "--asa-option", "cores=4", f"spool={tmp_path / 'spool'}")
        how = ("--jobs", "8", *on, "--asa-strategy", "per-stage", *options)
        made.append(Project(tmp_path / "work", snakefile, options=how))
        made[-1].env["PYTHONPATH"] += f":{place.environment['PYTHONPATH']}"
        return made[-1]

    yield make
    for one in made:
        one.close()
    place.close()


@pytest.fixture
def noting(tmp_path):
    made = Noting(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="package", autouse=True)
def own_home_of_all(make_home, tmp_path_factory):
    """Real programs and daemons run here, as a user runs them: at home."""
    with make_home(tmp_path_factory) as home:
        yield home
