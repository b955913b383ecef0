"""Clients that are killed, and calls that go wrong, at any moment of runs on real daemons: each stage runs once."""

import itertools
import signal

import httpx
import pytest
from slurm_fake import Fault, FaultyTransport
from slurm_runs import SlurmRun, diamond, process, told_jobs
from slurm_testbed import NEWEST, until

from asa.errors import LeaseError

STRATEGIES = ("chained", "per-stage", "asa-naive")
MOMENTS = [
    *(("journal", at) for at in range(0, 34, 3)),  # 17 entries at least, before and after each
    *(("change", at) for at in range(8)),  # four submissions
    *(("look", at) for at in (0, 3, 6, 9)),
]
FAULTS = [
    Fault("drop-after"),
    Fault("duplicate"),
    Fault("duplicate", answer="first"),
    Fault("delay", delay_s=4.0),
    Fault("delay", delay_s=14.0),
    Fault("garble-body"),
    Fault("reset"),
]


def check_all(slurm, runs):
    def told_of_the_end():
        told = told_jobs(slurm)
        return None if any(run.left(told) for run in runs) else told

    told = until(told_of_the_end, what="that no job is left")
    for run in runs:
        run.check(told=told)


def test_a_client_may_be_killed_at_any_moment(slurm):
    """Another client continues its run."""
    ways = zip(MOMENTS, itertools.cycle(STRATEGIES), strict=False)
    runs = [(moment, SlurmRun(slurm, diamond("sleep 0.5", cores=14), strategy=how)) for moment, how in ways]
    first = [process(run, *moment) for moment, run in runs]
    second = []
    for one, ((kind, at), run) in zip(first, runs, strict=True):
        one.join(300.0)
        if kind == "look" and at > 3 and one.exitcode == 0:  # so few looks were enough, as each took long
            continue
        assert one.exitcode == -signal.SIGKILL
        second.append(process(run))
    for one in second:
        one.join(300.0)
        assert one.exitcode == 0
    check_all(slurm, [run for _, run in runs])


def test_a_submission_may_go_wrong_in_any_way(slurm):
    """Over the real socket: half of the faults with each version, some of each kind with both."""
    clients = []
    faults = list(itertools.product(range(4), FAULTS))[slurm.release == NEWEST :: 2]
    for (number, fault), how in zip(faults, itertools.cycle(STRATEGIES), strict=False):
        run = SlurmRun(slurm, diamond("sleep 0.5", cores=14), strategy=how)
        transport = FaultyTransport(httpx.HTTPTransport(uds=slurm.socket, verify=False), Unlucky(number, fault))
        clients.append((transport, run.client(connect=run.connect_over(transport))))
    for transport, client in clients:
        client.result()
        assert sum(bool(exchange.fault) for exchange in transport.exchanges) == 1
        transport.inner.close()
    check_all(slurm, [client.run for _, client in clients])


class Unlucky:
    """A transport on which the n-th submission goes wrong."""

    def __init__(self, number, fault):
        self.left, self.fault = number, fault

    def __call__(self, exchange):
        if not exchange.path.endswith("/job/submit"):
            return None
        self.left -= 1
        return self.fault if self.left == -1 else None


def test_who_was_killed_keeps_nobody_from_going_on(slurm):
    run = SlurmRun(slurm, diamond("sleep 1"))
    first = process(run)
    until(run.folder.driver, what="a client")
    with pytest.raises(LeaseError, match=f"is driven by process {first.pid}"):
        run.result()
    first.kill()
    first.join()
    run.result()
    run.check()
