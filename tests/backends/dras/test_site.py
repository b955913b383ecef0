"""A trained agent as the scheduler of a simulated machine."""

import subprocess
import sys

import numpy as np
import pytest
from asa.backends.dras.patient import Patient
from asa.backends.dras.ranking import first_ranks
from asa.backends.dras.site import DrasSite
from asa.backends.dras.weights import Ranked, save_agent
from asa.backends.simulated.swf import write_swf
from asa.backends.simulated.table import JobTable
from forked import asa

from asa.backend import JobSpec
from asa.errors import InputError, StateError
from asa.testing import check_backend

CORES = 64


@pytest.fixture
def quiet(tmp_path):
    """A log that leaves the machine to the client."""
    path = tmp_path / "quiet.swf"
    moments = np.arange(100, dtype=np.int64) * 10_000
    ones = np.ones(100, dtype=np.int64)
    write_swf(path, JobTable(moments, ones, ones, ones), cores=CORES)
    return path


def test_it_is_a_backend_like_any_other(quiet):
    check_backend(lambda: DrasSite(trace=quiet).open(seed=3))


def test_a_client_s_short_job_goes_before_its_long_one(quiet):
    """Which an order of age would not do."""
    world = DrasSite(trace=quiet).open(seed=3)

    def job(name, walltime_s):
        return world.submit(JobSpec(name, cores=CORES, walltime_s=walltime_s, run_s=walltime_s - 1))

    first = job("first", 300.0)
    while world.status([first])[first].start_s is None:
        world.wait(None)
    long, short = job("long", 30_000.0), job("short", 200.0)
    while world.status([long])[long].start_s is None:
        world.wait(None)
    starts = {each: world.status([each])[each].start_s for each in (first, long, short)}
    assert starts[first] < starts[short] < starts[long]


def test_another_agent_is_named_by_its_file(quiet, tmp_path):
    save_agent(Ranked(first_ranks(np.random.default_rng(0)), 7.0), tmp_path / "mine.npz")
    engine = DrasSite(trace=quiet, weights=str(tmp_path / "mine.npz")).open(seed=3)._engine
    assert isinstance(engine._core.policy, Patient)
    assert engine._core.policy.patience == 7.0
    with pytest.raises(StateError, match="cannot be read"):
        DrasSite(trace=quiet, weights=str(tmp_path / "none.npz"))
    with pytest.raises(InputError, match="no setting 'weight'"):
        DrasSite(trace=quiet, weight="x")


def test_comparing_on_it(quiet):
    arguments = ("compare", "blast", "--trace", quiet, "--cores", 16, "--seeds", 1, "--strategies", "per-stage")
    assert "scheduler is dras" in asa(*arguments, "--backend", "dras").stdout
    assert "no setting 'weigts'" in asa(*arguments, "--backend", "dras", "--set", "weigts=x", code=2).stderr


def test_it_needs_no_pytorch(quiet):
    """Where it cannot be imported."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from asa.backends.dras.site import DrasSite\n"
        "from asa.backend import JobSpec\n"
        f"world = DrasSite(trace={str(quiet)!r}).open(seed=3)\n"
        f"ids = [world.submit(JobSpec(str(n), cores={CORES}, walltime_s=60.0, run_s=50.0)) for n in range(3)]\n"
        "while world.status(ids)[ids[-1]].end_s is None: world.wait(None)\n"
        "print('done')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
