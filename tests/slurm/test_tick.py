"""Runs on real daemons without a permanent client: short ones look at them now and then, and may die at any moment."""

import itertools
import random
import signal
import time

import pytest
from slurm_runs import LINKS, SlurmRun, forgetful, glancing, stage
from slurm_testbed import OLDEST, until

from asa.elements import parse_array

LONGEST_S = 5.0  # that a client computes and sleeps: how long it lives hangs on what else the machine does
MOMENTS = [*(("journal", at) for at in range(6)), ("change", 0), ("change", 1), ("look", 0), ("look", 2)]


def chain(count, then="sleep 0.5"):
    names = [chr(ord("a") + number) for number in range(count)]
    return [stage(name, before, then) for before, name in zip(["", *names], names, strict=False)]


def to_its_end(run, moments, within_s=400.0):
    """Look until the run has ended; some looks are killed. Return how long each of the others computed and slept."""
    took_s, until_s = [], time.monotonic() + within_s
    while run.folder.state()[0].outcome is None:
        assert time.monotonic() < until_s, run.folder.state()[0]
        one = glancing(run, *next(moments))
        one.join(60.0)
        assert one.exitcode in {0, -signal.SIGKILL}
        if one.exitcode == 0:
            took_s.append(one.told.recv())
    glancing(run).join(60.0)  # the last may have been killed before the bank had what its journal has
    return took_s


def test_twenty_stages_go_through_with_clients_that_do_not_stay(slurm):
    run = SlurmRun(slurm, chain(20), strategy="asa")
    took_s = to_its_end(run, itertools.repeat(()))
    run.check()
    assert max(took_s) < LONGEST_S
    assert run.folder.driver() is None


@pytest.mark.parametrize("strategy", ["per-stage", "asa-plan", "chained"])
def test_who_looks_may_be_killed_at_any_moment(slurm, strategy):
    rng = random.Random(strategy)
    runs = SlurmRun(slurm, chain(6, "sleep 0.2"), strategy=strategy)
    to_its_end(runs, (rng.choice(MOMENTS) if rng.random() < 0.6 else () for _ in itertools.count()))
    runs.check()


def test_several_may_look_at_once(slurm):
    run = SlurmRun(slurm, chain(4), strategy="per-stage")
    while run.folder.state()[0].outcome is None:
        ones = [glancing(run) for _ in range(3)]
        for one in ones:
            one.join(60.0)
        assert all(one.exitcode in {0, 1} for one in ones), "1: another looks"
    run.check()


def test_who_looks_does_what_a_client_left(slurm):
    run = SlurmRun(slurm, chain(3), strategy="per-stage")
    client = run.client()
    client.sees_running("a")
    client.leave()
    client.has_left()
    to_its_end(run, itertools.repeat(()))
    run.check()


@pytest.fixture
def forgets(slurm):
    """Yield a cluster whose controller forgets jobs two seconds after their end, and has no accounting."""
    with forgetful(slurm) as cluster:
        yield cluster


@pytest.mark.parametrize("link", LINKS)
def test_what_was_cancelled_and_forgotten_between_two_looks_has_ended(forgets, link):
    stages = [stage("a", then="sleep 2; exit 3"), stage("b", "a", array=parse_array("0-3")), stage("c", "b")]
    run = SlurmRun(forgets, stages, link=link)
    to_its_end(run, itertools.repeat(()), within_s=60.0)
    assert run.folder.state()[0].reason == "stage 'a' ended as failed (exit code 3)"
    until(lambda: not run.jobs(), what="that all are forgotten")
    assert to_the_last(run) <= 3


def to_the_last(run):
    """Look until nothing of an ended run is left; return how often."""
    for count in itertools.count(1):
        one = glancing(run)
        one.join(60.0)
        if not run.folder.state()[0].jobs.unfinished():
            return count
        time.sleep(1.0)
        assert count < 20
    raise AssertionError


@pytest.mark.full  # it takes over a minute: so long Slurm may fail to show a job
def test_looks_decide_together_that_a_forgotten_job_is_gone(slurm):
    if slurm.release != OLDEST:
        pytest.skip("once is enough")
    with forgetful(slurm) as cluster:
        runs = [SlurmRun(cluster, [stage("a", then="sleep 5"), *chain(3)[1:]], link=link) for link in LINKS]
        for run in runs:
            glancing(run).join(60.0)
            until(lambda run=run: run.ran["a"], what="its begin")
            cluster.run_as_root("scancel", *(run.job(name)["JobId"] for name in "bc"))
        until(lambda: not any(run.jobs() for run in runs), what="that all are forgotten")
        until_s = time.monotonic() + 150.0
        while left := [run for run in runs if run.folder.state()[0].outcome is None]:
            assert time.monotonic() < until_s
            time.sleep(5.0)
            for run in left:
                glancing(run).join(60.0)
        for run in runs:
            assert run.folder.state()[0].reason == "stage 'b' ended as failed (Vanished)"
            assert run.ran == {"a": 1}
