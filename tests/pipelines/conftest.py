"""Pipelines with small data, made once a process, and a queue on this computer."""

import pytest
from real_pipelines import Made


@pytest.fixture(scope="session", params=("montage", "blast", "statistics"))
def made(request, tmp_path_factory):
    return Made(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def montage(tmp_path_factory):
    return Made("montage", tmp_path_factory.mktemp("montage-faults"))


@pytest.fixture(scope="session")
def blast(tmp_path_factory):
    return Made("blast", tmp_path_factory.mktemp("blast-faults"))


@pytest.fixture(scope="session")
def settings(tmp_path_factory):
    """Reach a queue of these tests' own."""
    return {"spool": str(tmp_path_factory.mktemp("spool")), "cores": "2"}


@pytest.fixture(scope="session")
def statistics(tmp_path_factory):
    return Made("statistics", tmp_path_factory.mktemp("statistics-faults"))
