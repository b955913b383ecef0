"""What all tests share."""

import importlib
import os
import sys
import types
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Derandomised: the same examples on every machine, so that a failure is never luck.
settings.register_profile(
    "asa",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("asa")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let one process run all tests of a file, of a version of Slurm if there are more: what they share is made once.

    In the order of the tests, as those that take longest come first.
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _, test = nodeid.partition("::")
            return file, "24.11" in test

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of real traces; what needs it is skipped where it is absent."""
    folder = Path(os.environ.get("ASA_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "swf").is_dir():
        pytest.skip("no real traces here; name their folder in ASA_DATA")
    return folder


@pytest.fixture(scope="session")
def plain_cores():
    """Import modules of the simulated queue's cores as they are where numba is not installed."""
    from asa.backends.simulated import cores
    from asa.backends.simulated.cores import base

    package = types.ModuleType("asa.backends.simulated.plain_cores")
    package.__path__ = list(cores.__path__)
    sys.modules |= {package.__name__: package, f"{package.__name__}.base": base}

    def load(name):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "numba", None)
            patch.delitem(sys.modules, "asa.compiled", raising=False)  # which looks for numba
            return importlib.import_module(f"{package.__name__}.{name}")

    return load
