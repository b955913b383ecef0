"""Pipelines with small data, made once a process, and a queue on this computer."""

from functools import cache

import pytest
from real_pipelines import Made


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory):
    """Return what makes a pipeline by its name, at its first use."""
    return cache(lambda name: Made(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="session", params=("montage", "blast", "statistics"))
def made(request, pipeline):
    return pipeline(request.param)


@pytest.fixture(scope="session")
def montage(pipeline):
    return pipeline("montage")


@pytest.fixture(scope="session")
def blast(pipeline):
    return pipeline("blast")


@pytest.fixture(scope="session")
def settings(tmp_path_factory):
    """Reach a queue of these tests' own."""
    return {"spool": str(tmp_path_factory.mktemp("spool")), "cores": "2"}


@pytest.fixture(scope="session")
def statistics(pipeline):
    return pipeline("statistics")


@pytest.fixture(scope="package", autouse=True)
def own_home_of_all(make_home, tmp_path_factory):
    """Real programs and daemons run here, as a user runs them: at home."""
    with make_home(tmp_path_factory) as home:
        yield home
