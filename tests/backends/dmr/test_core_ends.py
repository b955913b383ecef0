"""Reports on resized jobs: their ends and their cores."""

import json

import numpy as np
import pytest
from asa.backends.dmr.scheduler import dmr
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.feed import QueueFeed
from asa.backends.simulated.swf import read_swf, write_swf
from asa.backends.simulated.table import JobTable
from forked import asa


@pytest.fixture
def log(tmp_path):
    """Return a log of a week of a busy machine of 64 cores."""
    rng = np.random.default_rng(7)
    run = rng.exponential(4000, 700).astype(np.int64) + 1
    submit = np.cumsum(rng.exponential(900, 700).astype(np.int64))
    path = tmp_path / "busy.swf"
    write_swf(path, JobTable(submit, run, 4 * run, 2 ** rng.integers(0, 6, 700)), cores=64)
    return path


def lived(log, **rules):
    core = dmr(**rules).core(64, log.table, now=0)
    core.run(2**50)
    return core


def test_a_simulated_log_s_runs_are_those_of_the_resized_jobs(log, tmp_path):
    """A share of the jobs prefers fewer cores, so that the machine is less used; the output says which jobs."""
    rules = {"malleable": 0.5, "preferred_share": 0.25}
    given = [part for name, value in rules.items() for part in ("--set", f"{name}={value}")]
    figure = tmp_path / "used.png"
    told = json.loads(asa("simulate", log, "--scheduler", "dmr", *given, "--output", "json", "--plot", figure).stdout)
    core, table = lived(read_swf(log), **rules), read_swf(log).table
    rows, since, until, cores = core.spans
    held, span = (until - since) * cores, core.end.max() - table.submit.min()
    assert told["utilisation"] == pytest.approx(held.sum() / (64 * span))
    wide = next(size for size in told["sizes"] if size["most_cores"] == 32)
    assert wide["utilisation"] == pytest.approx(held[table.cores[rows] == 32].sum() / (64 * span))
    wait, run = core.start - table.submit, core.end - core.start
    assert told["bounded_slowdown"] == pytest.approx(np.maximum(1, (wait + run) / np.maximum(run, 10)).mean())
    assert told["utilisation"] < json.loads(asa("simulate", log, "--output", "json").stdout)["utilisation"]
    assert figure.stat().st_size > 1000


def test_the_queue_tells_of_ends_when_they_are(log):
    """Looked at occasionally, it reports every end once, and none too early."""
    table = read_swf(log).table
    core = dmr(malleable=1.0).core(64, table, now=0)
    world = Engine(64, table, core=core)
    feed = QueueFeed(world, "machine")
    told = {}
    for moment in range(0, int(table.submit[-1]) + 200_000, 5000):
        while world.now < moment:
            world.advance(moment)
        for event in feed.news(1000, ends=True):
            if event.what == "ended":
                assert event.time_s <= world.now
                assert event.key not in told
                told[event.key] = event.time_s
    assert told == dict(enumerate(core.end.astype(float).tolist()))
