"""A job that replaces a pending one, on real daemons: it is accepted first, and only one of the two runs."""

import signal
from functools import partial

import pytest
from racing_world import Exchange, exchanging
from slurm_runs import _PROCESSES, Cut, SlurmRun, busy_nodes, glance, live, stage, told_jobs
from slurm_testbed import until

from asa.core import plugins
from asa.records import Cancelled, Submitted
from asa.runner import read_journal
from asa.runner.entries import Accepted, GivingUp
from asa.shapes import Moldable, Scaling

WIDTHS = Moldable((28, 14, 7), scaling=Scaling("tasks"))
AT_ONCE = Exchange(("a", "b"), narrow=7, wide=28, after_s=0.0)
MOMENTS = [*(("journal", at) for at in range(1, 14, 2)), ("change", 1), ("change", 2), ("change", 3), ("change", 4)]


@pytest.fixture
def exchange(monkeypatch):
    """Have runs in this process replace their first job."""
    monkeypatch.setattr(plugins, "load", plugins.load)  # so that it is put back
    exchanging(AT_ONCE)


def made(slurm, **settings):
    ways = ("a", ""), ("b", "a"), ("c", "b")
    stages = [stage(name, after, "sleep 0.5", cores=28, moldable=WIDTHS) for name, after in ways]
    return SlurmRun(slurm, stages, strategy="per-stage", races=True, **settings)


def living(path, kind="", at=0, *, way=live, **more):
    """Drive a run in a process of its own, or look at it once."""
    exchanging(AT_ONCE)
    way(path, kind, at, **more)


def process(run, *death, **more):
    one = _PROCESSES.Process(target=partial(living, **more), args=(run.folder.path, *death), daemon=True)
    one.start()
    return one


def check(slurm, run):
    """Raise AssertionError unless one job ran each stage, and the others never began."""
    jobs = until(lambda: None if run.left(jobs := told_jobs(slurm)) else jobs, what="that no job is left")
    run.check(told=jobs)


def order(run):
    journal = read_journal(run.folder.path / "journal.jsonl")[0]
    return [type(one).__name__ for one in journal if isinstance(one, Accepted | GivingUp)]


@pytest.mark.parametrize("link", ["rest", "commands"])
def test_the_new_one_is_accepted_before_the_pending_one_is_withdrawn(slurm, exchange, link):
    with busy_nodes(slurm, slurm.nodes):
        run = made(slurm, link=link)
        client = run.client()
        withdrawn = client.saw(Cancelled)
    result = client.result()
    check(slurm, run)
    assert order(run)[:3] == ["Accepted", "Accepted", "GivingUp"]
    first, second, *_ = [(r.job_id, r.stages, r.cores) for r in result.records if isinstance(r, Submitted)]
    assert first[1:] == (("a",), 7)
    assert second[1:] == (("a", "b"), 28)
    assert (withdrawn.job_id, withdrawn.reason) == (first[0], f"job {second[0]} takes its place")


def test_a_pending_job_that_starts_as_the_new_one_is_accepted_is_kept(slurm, exchange):
    """Its nodes become free while the new job is submitted; the answer to that comes after the old job has begun."""
    with busy_nodes(slurm, slurm.nodes) as other:
        run = made(slurm)

        def release():
            slurm.run_as_root("scancel", other)
            until(lambda: run.ran["a"], what="that the first job runs its stage")

        transport = Cut(slurm, at=2, after=release)
        client = run.client(connect=run.connect_over(transport))
        result = client.result()
    transport.close()
    check(slurm, run)
    [first, *_] = [r for r in result.records if isinstance(r, Submitted)]
    assert first.job_id not in {r.job_id for r in result.records if isinstance(r, Cancelled)}


def test_a_client_may_be_killed_at_any_moment_of_an_exchange(slurm):
    with busy_nodes(slurm, slurm.nodes):
        runs = [(moment, made(slurm)) for moment in MOMENTS]
        first = [process(run, *moment) for moment, run in runs[:-2]]
        for one in first:
            one.join(60.0)
        first += [process(run, *moment) for moment, run in runs[-2:]]  # which die as all may start
    for one in first:
        one.join(200.0)
    second = [process(run) for one, (_, run) in zip(first, runs, strict=True) if one.exitcode == -signal.SIGKILL]
    assert len(second) >= len(MOMENTS) - 2
    for one in second:
        one.join(200.0)
        assert one.exitcode == 0
    for _, run in runs:
        check(slurm, run)


def test_looks_alone_make_an_exchange(slurm):
    with busy_nodes(slurm, slurm.nodes):
        run = made(slurm)

        def look():
            reading, telling = _PROCESSES.Pipe(duplex=False)
            process(run, way=glance, telling=telling).join(60.0)
            telling.close()
            reading.close()
            return order(run)

        until(lambda: "GivingUp" in look(), what="an exchange")
    until(lambda: look() and run.folder.state()[0].outcome, what="the end of the run")
    check(slurm, run)
    assert order(run)[:3] == ["Accepted", "Accepted", "GivingUp"]
