"""One pool for several runs of a user, whose jobs are Slurm's: kept and joined by commands, on real daemons.

The jobs run this Python as the user who keeps the pool, so daemons are the host's own, and the user is this test's.
"""

import signal

import pytest

pytest.importorskip("distributed", reason="dask.distributed is not installed")

from slurm_testbed import OLDEST, until
from this_machine import Place

pytestmark = pytest.mark.parametrize("slurm", [OLDEST], indirect=True)
POOL = ("--strategy", "pool")


class OnSlurm(Place):
    """A place whose commands find the cluster, as this test's user or through a prefix as another."""

    def __init__(self, root, slurm):
        super().__init__(root)
        self.prefix = ""
        self.environment["SLURM_CONF"] = slurm.env["SLURM_CONF"]

    @property
    def on(self):
        settings = {"poll": "1s", "max_poll": "1s", "partition": "normal", "prefix": self.prefix}
        return ["--backend", "slurm-cli", *(word for item in settings.items() for word in ("--set", "=".join(item)))]

    def keep(self, *more):
        """Keep a pool, and have the runs that follow join it."""
        folder = self.root / "kept"
        pool = self.begin("pool", folder, "--maximum", "28", *self.on, *more)
        until(lambda: (folder / "contact.json").exists() or pool.poll() is not None, what="the pool")
        self.environment["ASA_POOL"] = str(folder)
        return pool


@pytest.fixture
def place(slurm, tmp_path):
    slurm.empty()
    made = OnSlurm(tmp_path, slurm)
    yield made
    made.close()
    slurm.empty()


def test_two_runs_share_one_job(slurm, place):
    """Each waits for the other's first stage: both end only if they run side by side."""
    pool = place.keep()
    begun = []
    for own, other in (("one", "two"), ("two", "one")):
        first = f"echo $SLURM_JOB_ID >>{own}; until [ -s {other} ]; do sleep 0.2; done"
        flow = place.flow(("a", "", first), ("b", "a", f"echo $SLURM_JOB_ID >>{own}"), name=own)
        begun.append(place.begin("run", flow, *place.on, *POOL))
    for run in begun:
        out, errors = run.communicate()
        assert run.returncode == 0, out + errors
    jobs = place.lines("one") + place.lines("two")
    assert (len(jobs), len(set(jobs))) == (4, 1)
    assert slurm.run_as_root("squeue", "-h", "-o", "%i").split() == jobs[:1]  # which is the pool's, and stays
    pool.send_signal(signal.SIGINT)
    assert pool.wait() == 0
    until(lambda: not slurm.run_as_root("squeue", "-h"), what="the end of its job")


def test_a_pool_whose_jobs_no_node_can_start_ends_after_three(slurm, place):
    """They are another user's, who may not write where their output goes; that is said, and the run ends, too."""
    place.prefix = " ".join(slurm.prefix)
    pool = place.keep()
    run = place.begin("run", place.flow(("a", "", "true")), *place.on, *POOL)
    _, errors = pool.communicate()
    assert pool.returncode == 1
    told = " ".join(errors.split())
    assert all(words in told for words in ("no worker comes", "3 jobs in a row", "JobLaunchFailure"))
    _, errors = run.communicate()
    assert run.returncode == 1
    assert "the pool has ended" in " ".join(errors.split())
    told = slurm.run_as_root("scontrol", "-o", "show", "job").splitlines()
    asked = [line for line in told if " JobName=pool-" in line and f" UserId={slurm.user}(" in line]
    assert [" JobState=FAILED " in line for line in asked] == [True] * 3
