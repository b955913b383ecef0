"""The line on what a hosted run gained."""

from types import SimpleNamespace

import pytest

from asa.backend import JobState
from asa.hosted.gained import gained
from asa.records import Ended, Observed, RunEnded, RunStarted, StageEnded, StageStarted
from asa.workflow import Stage, Workflow


def run(*, together, waits, outcome="completed", claimed_s=()):
    """Three stages, one after the other, of 10 s each: in one job, or in one each; each job waits."""
    names = ["a", "b", "c"]
    stages = [Stage(name, cores=36, after=tuple(names[:n][-1:])) for n, name in enumerate(names)]
    records, time_s = [RunStarted(time_s=0.0, run="x")], 0.0
    for job, members in enumerate([names] if together else [[name] for name in names]):
        which = {"job_id": str(job), "stages": tuple(members)}
        time_s += waits[job]
        began_s = time_s
        wait = {"wait_s": waits[job], "bound": "exact", "predicted_wait_s": None}
        records.append(Observed(time_s=time_s, run="x", **which, **wait))
        for name in members:
            records.append(StageStarted(time_s=time_s, run="x", job_id=str(job), stages=(name,)))
            time_s += 10.0
            records.append(StageEnded(time_s=time_s, run="x", job_id=str(job), stages=(name,)))
        ended = {"cores": 36, "start_s": began_s, "payload_start_s": began_s, "state": JobState.COMPLETED}
        records.append(Ended(time_s=time_s, run="x", **which, **ended))
    records.append(RunEnded(time_s=time_s, run="x", outcome=outcome))
    host = SimpleNamespace(claimed_s=dict(zip(names, claimed_s, strict=False)))
    state = SimpleNamespace(workflow=Workflow("x", stages), host=host)
    return SimpleNamespace(path="runs/x", state=lambda: (state, records))


def test_one_job_for_all_is_compared_with_one_each():
    """Each of which would have waited: by what this run's own waited."""
    assert gained(run(together=True, waits=[20.0])) == (
        "3 jobs in 1 allocation; waited 20s; 0.3 core-hours; "
        "one job each would have waited about 1m00s: asa report runs/x"
    )


def test_before_a_job_is_handed_over_it_does_not_wait():
    """The first could have begun 20 s earlier, for all that asa did."""
    assert "; waited 25s; " in gained(run(together=False, waits=[25.0, 10.0, 10.0], claimed_s=[20.0]))


def test_where_each_had_its_own_nothing_is_claimed():
    assert gained(run(together=False, waits=[5.0, 10.0, 30.0])) == (
        "3 jobs in 3 allocations; waited 45s; 0.3 core-hours: asa report runs/x"
    )


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
def test_nothing_is_said_of_a_run_that_has_not_completed(outcome):
    assert gained(run(together=True, waits=[1.0], outcome=outcome)) == ""
