"""A short log, for commands that learn from it."""

import numpy as np
import pytest
from asa.backends.simulated.swf import write_swf
from asa.backends.simulated.table import JobTable

DAY = 86400
NODES = 64


@pytest.fixture(scope="session")
def days():
    """Return nine days of few jobs of an hour or two, so that a day of a model fitted to them is short, too."""
    rng, jobs = np.random.default_rng(0), 9 * 60
    run = rng.integers(3600, 7200, jobs)
    return JobTable(np.sort(rng.integers(0, 9 * DAY, jobs)), run, run + 600, rng.integers(1, NODES // 2, jobs))


@pytest.fixture(scope="session")
def short_log(days, tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "days.swf"
    write_swf(path, days, cores=NODES)
    return path
