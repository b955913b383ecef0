"""What all tests share."""

import gc
import importlib
import os
import signal
import sys
import types
from pathlib import Path

import accounts as accounts_of_two
import pytest
from hypothesis import HealthCheck, settings
from slurm_testbed import RELEASES

TESTS = Path(__file__).parent

# Derandomised: the same examples on every machine, so that a failure is never luck.
settings.register_profile(
    "asa",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("asa")

# What is compiled is kept: else each process of the tests, and all that they start, compile all of it again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("ASA_LATENCY_S", "2")  # for which jobs look for inputs and outputs, in place of a minute

# Whoever runs them in the background ignores interrupts, and so would all that they start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files that take more than a minute each, and mostly wait.
LONG = frozenset(
    f"tests/{name}.py"
    for name in (
        "test_cli_unattended", "backends/test_slurm_script", "pool/test_stages", "pool/test_cluster",
        "backends/test_local", "test_cli_run", "test_cli_terminal", "pipelines/test_results", "test_cli_fuzz",
    )
)  # fmt: skip

# Files of `make quick`: rules and values, each within a second or two; no daemon, no process, no long simulation.
QUICK = (
    "test_demands", "test_flow", "test_geometry", "test_history", "test_intervals", "test_keys", "test_metrics",
    "test_spec", "test_spec_drawing", "test_spec_places", "test_spec_shell", "test_spec_writing",
    "test_timeline", "test_units", "test_waits",
    "test_workflow", "backends/test_accounting", "backends/test_local_parts", "backends/test_plain_cluster",
    "backends/test_site", "backends/test_slurm_backend", "backends/test_slurm_backend_parts",
    "backends/test_slurm_ownership", "backends/test_slurm_cluster",
    "backends/test_slurm_commands", "backends/test_slurm_facility", "backends/test_slurm_limits",
    "backends/test_slurm_options", "backends/test_slurm_preview", "backends/test_slurm_reasons",
    "backends/test_slurm_rest_dialects", "backends/test_slurm_sbatch_variables", "runner/test_ends",
    "runner/test_again", "runner/test_order", "runner/test_run", "runner/test_stages",
)  # fmt: skip


def scope_of(nodeid):
    """Name what one process runs: the tests of a file, of a version of Slurm if there are more."""
    file, _, test = nodeid.partition("::")
    if file.endswith("test_golden.py"):  # whole commands, which share nothing
        return False, nodeid
    return any(release in test for release in RELEASES[1:]), file


def _is_quick(path):
    return path.relative_to(TESTS).with_suffix("").as_posix() in QUICK


def pytest_ignore_collect(collection_path, config):
    """Do not even read other files where the quick ones are asked for."""
    is_other = collection_path.suffix == ".py" and not _is_quick(collection_path)
    return True if config.getoption("markexpr") == "quick" and is_other else None


def pytest_itemcollected(item):
    """Mark them."""
    if _is_quick(item.path):
        item.add_marker("quick")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Spread the tests of real daemons, which mostly wait, over the first two thirds of those that compute.

    Those that take minutes begin first, lest one process is still at them when the others have ended. One version of
    Slurm after the other, lest each process starts its daemons again and again.
    """
    waiting, computing = {}, {}
    for item in items:
        kind = computing if item.get_closest_marker("slurm") is None else waiting
        kind.setdefault(scope_of(item.nodeid), []).append(item)
    between = max(2 * len(computing) // (3 * len(waiting) or 1), 1)
    others = sorted(computing.values(), key=lambda scope: scope_of(scope[0].nodeid)[1] not in LONG)
    mixed = []
    for number, scope in enumerate(sorted(waiting)):
        mixed += [waiting[scope], *others[number * between : (number + 1) * between]]
    mixed += others[len(waiting) * between :]
    items[:] = [item for scope in mixed for item in scope]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Do not look for garbage among modules and tests, of which there are many and none goes away."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let one process run all tests of a scope, as what they share is made once; in the order of the tests."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return scope_of(nodeid)

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
def why_one_account():
    """Why there cannot be two accounts here; empty if there can."""
    return accounts_of_two.why_not()


@pytest.fixture
def accounts(why_one_account):
    """Two real accounts, and a folder that both may enter; what needs them is skipped where only one can be had."""
    if why_one_account:
        pytest.skip(why_one_account)
    with accounts_of_two.two_accounts() as both:
        yield both


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
            patch.delitem(sys.modules, "asa.core.compiled", raising=False)  # which looks for numba
            return importlib.import_module(f"{package.__name__}.{name}")

    return load
