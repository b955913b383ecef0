"""Fixtures and hooks of all tests."""

import atexit
import gc
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import types
import zlib
from contextlib import contextmanager
from itertools import filterfalse
from pathlib import Path

import accounts as accounts_of_two
import forked
import pytest
from hypothesis import HealthCheck, settings
from slurm_testbed import RELEASES

TESTS = Path(__file__).parent
ROOT = TESTS.parent

# What asa keeps of its user lies in the home folder, which is another for each process of the tests, and for all that
# it starts: nothing is to be left there. Trees of other releases of Slurm, and settings of pip, are the user's.
os.environ.setdefault("ASA_SLURM_TREES", str(Path.home() / ".cache" / "asa"))
os.environ.setdefault("PIP_CONFIG_FILE", str(Path.home() / ".config" / "pip" / "pip.conf"))
os.environ.setdefault("MPLCONFIGDIR", str(ROOT / "build" / "matplotlib"))  # a list of fonts, made once
for _name in (
    "ASA_BANK",
    "ASA_RUNS",
    "ASA_SITES",
    *(f"XDG_{kind}_HOME" for kind in ("CACHE", "CONFIG", "DATA", "STATE")),
):
    os.environ.pop(_name, None)
HOME = Path(tempfile.mkdtemp(prefix="asa-home-"))
os.environ["HOME"] = str(HOME)
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

os.environ["ASA_COMPILE"] = "no"  # nothing goes on in the background once a test has ended

forked.share()  # among the processes of the tests, which this one starts

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

# One process runs tests of everything: none of them decides for others that kernels are plain Python.
importlib.import_module("asa.core.compiled")

# Whoever runs them in the background, or by nohup, ignores signals, and so would all that they start and send these to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)  # ignored here; in what is started it has its default


# Files that take more than a minute each, and mostly wait; the longest first, lest one process is still at them when
# the others have ended.
LONG = tuple(
    f"tests/{name}.py"
    for name in (
        "test_cli_unattended", "test_cli_run", "backends/test_slurm_script", "pool/test_stages", "pool/test_cluster",
        "importers/test_recording", "pipelines/test_results", "backends/test_local", "test_linear", "test_cli",
        "test_cli_terminal", "test_cli_fuzz", "backends/bbsched/test_commands", "runner/test_arrays_here", "test_flow",
        "studies/test_paper", "test_hostile_text", "runner/test_again", "runner/test_arrays", "studies/test_compare",
    )
)  # fmt: skip

# Files of `make quick`: rules and values, each within a second or two; no daemon, no process, no long simulation.
QUICK = (
    "test_flow", "test_geometry", "test_history", "test_intervals", "test_keys", "test_metrics", "test_plain_keys",
    "test_spec", "test_spec_drawing", "test_spec_locations", "test_spec_shell", "test_spec_writing",
    "test_timeline", "test_units", "test_waits",
    "test_workflow", "backends/test_accounting", "backends/test_local_parts", "backends/test_plain_cluster",
    "backends/test_site", "backends/test_slurm_backend", "backends/test_slurm_backend_parts",
    "backends/test_slurm_identity", "backends/test_slurm_cluster",
    "backends/test_slurm_commands", "backends/test_slurm_facility", "backends/test_slurm_limits",
    "backends/test_slurm_options", "backends/test_slurm_preview", "backends/test_slurm_reasons",
    "backends/test_slurm_rest_dialects", "backends/test_slurm_sbatch_variables", "runner/test_ends",
    "runner/test_again", "runner/test_order", "runner/test_run", "runner/test_stages",
)  # fmt: skip


_BEFORE = pytest.StashKey[set]()
# what pytest, other tools and `make` make there, as .gitignore has it
_MADE = {"build", "dist", "out", "asa_client.egg-info", ".hypothesis", ".pytest_cache", ".ruff_cache", ".mypy_cache"}
_MADE |= {".import_linter_cache", "__pycache__"}


def scope_of(nodeid):
    """Name the unit of tests that one process runs: a file, or a version of Slurm in it."""
    file, _, test = nodeid.partition("::")
    if file.endswith("test_golden.py") or "/pairs/" in file:  # whole commands and rows, which share nothing
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


def _keep_part(config, items, part):
    """Of the tests marked `full`, keep some, by their names: ``2/4`` is the second of four parts."""
    if (found := re.fullmatch(r"(\d+)/(\d+)", part)) is None or not 1 <= int(found[1]) <= int(found[2]):
        raise pytest.UsageError(f"there is no part {part!r} of the tests: write it as in PART=2/4")
    number, count = map(int, found.groups())

    def is_other(item):
        return item.get_closest_marker("full") is not None and zlib.crc32(item.nodeid.encode()) % count != number - 1

    config.hook.pytest_deselected(items=list(filter(is_other, items)))
    items[:] = filterfalse(is_other, items)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Spread the tests of real daemons, which mostly wait, over the first two thirds of those that compute.

    Those that take minutes begin first, lest one process is still at them when the others have ended. One version of
    Slurm after the other, lest each process starts its daemons again and again.
    """
    if part := os.environ.get("ASA_PART"):
        _keep_part(config, items, part)
    waiting, computing = {}, {}
    for item in items:
        kind = computing if item.get_closest_marker("slurm") is None else waiting
        kind.setdefault(scope_of(item.nodeid), []).append(item)
    between = max(2 * len(computing) // (3 * len(waiting) or 1), 1)
    turns = {file: turn for turn, file in enumerate(LONG)}
    others = sorted(computing.values(), key=lambda scope: turns.get(scope_of(scope[0].nodeid)[1], len(LONG)))
    mixed = []
    for number, scope in enumerate(sorted(waiting)):
        mixed += [waiting[scope], *others[number * between : (number + 1) * between]]
    mixed += others[len(waiting) * between :]
    items[:] = [item for scope in mixed for item in scope]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Switch off garbage collection during the collection of tests: all objects stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let one process run all tests of a scope in their order, since they share expensive fixtures."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return scope_of(nodeid)

    config.option.loadscopereorder = False
    return ByFile(config, log)


def _ours():
    """Name the paths in the work tree that are neither the project's nor ignored; none without git."""
    command = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=all"]
    if shutil.which("git") is None:
        return set()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {line for line in done.stdout.splitlines() if line.startswith("??")}


def _at_root():
    return {path.name for path in ROOT.iterdir()}


def pytest_sessionstart(session):
    """Record the paths that exist before the tests."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_BEFORE] = _ours()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Fail where tests left anything in the work tree."""
    if (before := session.config.stash.get(_BEFORE, None)) is not None and (left := sorted(_ours() - before)):
        sys.stderr.write("\nTests have written to the work tree: " + "; ".join(left) + "\n")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request):
    """Fail a test that leaves anything in the root of the project, or at home if it is no whole command."""
    before = _at_root()
    yield
    left = list(HOME.iterdir())
    files = [str(path.relative_to(HOME)) for one in left for path in (one, *one.rglob("*")) if not path.is_dir()][:5]
    for one in left:
        shutil.rmtree(one, ignore_errors=True)
        one.unlink(missing_ok=True)
    is_whole = request.node.get_closest_marker("full") is not None
    assert is_whole or not left, f"the home folder has {files or left}: use own_home, or name other folders"
    beside = _at_root() - before - _MADE
    assert not beside, f"the root of the project has {sorted(beside)}: work in tmp_path"


@contextmanager
def home_in(tmp_path_factory):
    """Have a home folder for a while that may be written to."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        home.chmod(0o700)
        patch.setenv("HOME", str(home))
        yield home


@pytest.fixture(scope="module")
def own_home(tmp_path_factory):
    """Yield the tests of a file a home folder that they may write to, as where they run commands as a user does."""
    with home_in(tmp_path_factory) as home:
        yield home


@pytest.fixture(scope="session")
def make_home():
    """Return what makes one, for the tests of a folder."""
    return home_in


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of real traces; tests that need it are skipped where it is absent."""
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
    """Two real accounts, and a folder that both may enter; tests are skipped where only one account can be had."""
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
