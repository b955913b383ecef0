"""Jobs that race for the same stages on real daemons: whoever is killed, each stage runs once."""

import signal

import httpx
import pytest
from slurm_fake import Fault, FaultyTransport
from slurm_runs import SlurmRun, process, stage, told_jobs
from slurm_testbed import until

from asa.records import Cancelled
from asa.shapes import Moldable, Scaling

AT_ONCE = "asa-plan:races=yes:race-after=0:patience=0:max-racers=6"
WIDTHS = Moldable((28, 14, 7), scaling=Scaling("tasks"))
MOMENTS = [*(("journal", at) for at in (5, 9, 13, 17, 21)), ("change", 2), ("change", 4), ("look", 3)]


def chain():
    ways = ("a", ""), ("b", "a"), ("c", "b")
    return [stage(name, after, "sleep 0.5", cores=28, moldable=WIDTHS) for name, after in ways]


def check_all(slurm, runs):
    def told_of_the_end():
        told = told_jobs(slurm)
        return None if any(run.left(told) for run in runs) else told

    told = until(told_of_the_end, what="that no job is left")
    for run in runs:
        run.check(told=told)


def test_several_that_start_at_once_run_each_stage_once(slurm):
    """All jobs of a race wait for the same nodes, and start between two looks of the client."""
    for _ in range(3):
        asked = ("-N4", "--exclusive", "-t", "20", "-o", "/dev/null", "--wrap", "sleep 600")
        other = slurm.run("sbatch", "--parsable", *asked).strip()
        run = SlurmRun(slurm, chain(), strategy=AT_ONCE, races=True)
        client = run.client()
        try:
            until(lambda run=run: sum(map(len, run.jobs().values())) >= 4, what="several racers")
        finally:
            slurm.run("scancel", other)
        client.result()
        check_all(slurm, [run])


def test_a_racer_starts_while_the_first_waits_which_is_then_withdrawn(slurm):
    """Another user has all nodes but one: a job of one node may start, the widest may not."""
    wide = Moldable((112, 28), scaling=Scaling("tasks"))
    ways = ("a", ""), ("b", "a")
    stages = [stage(name, after, "sleep 0.5", cores=112, walltime_s=60, moldable=wide) for name, after in ways]
    asked = ("-N3", "--exclusive", "-t", "20", "-o", "/dev/null", "--wrap", "sleep 600")
    other = slurm.run("sbatch", "--parsable", *asked)
    run = SlurmRun(slurm, stages, strategy=AT_ONCE, races=True)
    try:
        result = run.result()
    finally:
        slurm.run("scancel", other.strip())
    check_all(slurm, [run])
    assert any("started first" in record.reason for record in result.records if isinstance(record, Cancelled))


def test_a_client_may_be_killed_at_any_moment_of_a_race(slurm):
    runs = [(moment, SlurmRun(slurm, chain(), strategy=AT_ONCE, races=True)) for moment in MOMENTS]
    first = [process(run, *moment) for moment, run in runs]
    second = []
    for one, ((kind, _), run) in zip(first, runs, strict=True):
        one.join(300.0)
        if one.exitcode == 0 and kind in {"look", "change"}:
            continue
        assert one.exitcode == -signal.SIGKILL
        second.append(process(run))
    for one in second:
        one.join(400.0)  # a racer whose submission is in doubt may turn up, and is looked for, for 300 s
        assert one.exitcode == 0
    check_all(slurm, [run for _, run in runs])


_UNLUCKY = [Fault("drop-after"), Fault("duplicate"), *(Fault("delay", delay_s=late_s) for late_s in (2.0, 4.0, 14.0))]


@pytest.mark.parametrize("fault", _UNLUCKY, ids=lambda fault: f"{fault.kind}-{fault.delay_s:g}")
def test_a_submission_of_a_race_may_go_wrong(slurm, fault):
    clients = []
    for number in range(3):
        run = SlurmRun(slurm, chain(), strategy=AT_ONCE, races=True)
        transport = FaultyTransport(httpx.HTTPTransport(uds=slurm.socket, verify=False), _unlucky(number, fault))
        clients.append((transport, run.client(connect=run.connect_over(transport))))
    for transport, client in clients:
        client.result()
        transport.inner.close()
    check_all(slurm, [client.run for _, client in clients])


def _unlucky(number, fault):
    """Make a certain submission go wrong."""
    left = iter([*[None] * number, fault])

    def of(exchange):
        return next(left, None) if exchange.path.endswith("/job/submit") else None

    return of
