"""Queued jobs that give way to others of another shape: only if that is surely better, and at most once."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.lookahead import QueueSimulation
from asa.backends.simulated.table import NEVER, UNSTARTED, JobTable
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.backend import Capabilities
from asa.estimators import WaitBank
from asa.shapes import Moldable, RunAt
from asa.strategies import Keep, Phase, RunView, StageView, load_strategy
from asa.strategies.base import RacerView
from asa.waits import QueuedJob, QueueEvent, WaitForecast, exactly
from asa.workflow import Stage, Workflow

SITE = Capabilities("x", 64, 1, age_accrues=False)
NOW_S = 5000.0


def flow(more=()):
    points = (RunAt(8, 8000.0), RunAt(32, 2000.0))
    wide = Stage("wide", cores=32, walltime_s=4000.0, expected_run_s=2000.0, command="x",
                 moldable=Moldable((32, 8), points))  # fmt: skip
    return Workflow("w", [wide, *more])


class Queue:
    """A forecast by which 32 cores start at once where nothing of ours waits, and 8 cores never do."""

    is_informed = True
    sees_queue = True

    def __init__(self, waits_s, known="1"):
        self.waits_s, self.known, self.withdrawn = waits_s, known, False

    def predict(self, stages, needed_s):
        del stages, needed_s
        return WaitForecast((600.0,) * 9, 600.0)

    def predict_each(self, stages, requests):
        del stages
        assert self.withdrawn or all(one.cores == 1 for one in requests), "what is queued stays as it is"
        waits_s = [1e6 if one.cores == 8 else 0.0 for one in requests]
        return [WaitForecast((wait_s,) * 9, wait_s) for wait_s in waits_s]

    @contextmanager
    def instead_of(self, job_id, stages):
        assert stages == ("wide",)
        self.withdrawn = True
        yield (lambda _own, _other: self.waits_s) if job_id == self.known else None
        self.withdrawn = False


def view(workflow, cores=8, **wide):
    stage = workflow.stages["wide"]
    shape = next(one for one in stage.shapes if one.width == cores)
    views = {name: StageView(one) for name, one in workflow.stages.items()}
    queued = StageView(stage.shaped(shape), Phase.QUEUED, "1", submit_s=0.0)
    views["wide"] = replace(queued, **wide)
    return RunView(workflow, views, NOW_S, SITE)


def futures(better, of=20, left_s=10_000.0, other_s=0.0):
    """Return futures, in some of which the other job is much better: it begins at once, and runs 6000 s shorter."""
    waits_s = np.tile([left_s, other_s], (of, 1))
    waits_s[better:] = [0.0, 8000.0]
    return waits_s


def cancelled(seen, waits_s, strategy="asa-plan", **forecast):
    return load_strategy(strategy).plan(seen, Queue(waits_s, **forecast)).cancellations


def test_a_job_gives_way_where_that_is_better_in_nine_of_ten_futures():
    [cancellation] = cancelled(view(flow()), futures(18))
    assert cancellation.job_id == "1"
    assert "32 cores" in cancellation.reason
    assert "90%" in cancellation.reason
    assert not cancelled(view(flow()), futures(17))


def test_with_the_cancellation_comes_the_job_for_which_it_is_made():
    [cancellation] = cancelled(view(flow()), futures(20))
    wide = cancellation.substitute
    assert wide.planned.stages == ("wide",)
    assert wide.planned.keep is Keep.NOTHING
    assert wide.planned.prediction.wait_s == 0.0, "as if the other were gone"
    assert wide.choices["wide"].shape.width == 32
    assert "job 1" in wide.planned.reason


RACE = RacerView(("wide",), 1, "1", 0.0, 8)


def racing(*racers, **capabilities):
    site = replace(SITE, races=True, **capabilities)
    return replace(view(flow()), capabilities=site, racers=(RACE, *racers))


def test_where_jobs_may_race_the_other_is_asked_for_while_the_first_is_queued():
    plan = load_strategy("asa-plan").plan(racing(), Queue(futures(20)))
    assert not plan.cancellations
    [rival] = plan.submissions
    assert (rival.stages, rival.racer, rival.replaces) == (("wide",), 2, "1")
    assert [one.width for one in rival.shapes] == [32]
    assert "takes the place of job 1" in rival.reason
    assert "better in 100% of them" in rival.reason


def test_there_is_no_second_one_whether_the_first_was_accepted_or_refused():
    for rival in (RacerView(("wide",), 2, "2", 10.0, 32), RacerView(("wide",), 2, "", 10.0, 32, is_pending=False)):
        plan = load_strategy("asa-plan").plan(racing(rival), Queue(futures(20)))
        assert not plan.cancellations
        assert not plan.submissions


def test_where_there_is_no_room_in_the_queue_for_both_the_first_is_cancelled_first():
    for most, is_race in ((1, False), (2, True)):
        plan = load_strategy("asa-plan").plan(racing(max_queued=most), Queue(futures(20)))
        assert bool(plan.submissions) == is_race
        assert bool(plan.cancellations) != is_race


def test_whoever_wants_no_races_has_the_first_cancelled_first():
    plan = load_strategy("asa-plan:races=no").plan(racing(), Queue(futures(20)))
    assert not plan.submissions
    [cancellation] = plan.cancellations
    assert cancellation.substitute.planned.racer == 0
    queue = Queue(futures(0))
    queue.withdrawn = True
    seen = RunView(flow(), {"wide": StageView(flow().stages["wide"])}, NOW_S, replace(SITE, races=True))
    [job] = load_strategy("asa-plan:races=no").plan(seen, queue).submissions
    assert job.racer == 0


def test_a_job_that_may_be_replaced_one_day_is_submitted_as_the_first_of_a_race():
    new = RunView(flow(), {"wide": StageView(flow().stages["wide"])}, NOW_S, SITE)
    for races, sees_queue, racer in ((True, True, 1), (False, True, 0), (True, False, 0)):
        queue = Queue(futures(0))
        queue.withdrawn, queue.sees_queue = True, sees_queue
        seen = replace(new, capabilities=replace(SITE, races=races))
        [job] = load_strategy("asa-plan").plan(seen, queue).submissions
        assert job.racer == racer


def test_what_gains_less_than_five_minutes_is_left_alone():
    # narrow: 200 s and 8000 s; wide: 6000 s of wait and 2000 s
    assert not cancelled(view(flow()), futures(20, left_s=200.0, other_s=6000.0))
    assert cancelled(view(flow()), futures(20, left_s=400.0, other_s=6000.0), "asa-plan:price=0")


def test_core_hours_count_by_their_price():
    # 17.8 core-hours either way, so that any price is alike; but for its wait
    assert cancelled(view(flow()), futures(20), "asa-plan:price=1000")


def test_of_a_job_that_is_best_as_it_is_nothing_is_cancelled():
    assert not cancelled(view(flow(), cores=32), futures(20))


@pytest.mark.parametrize(
    "wide",
    [{"resubmissions": 1}, {"attempts": 1}, {"phase": Phase.RUNNING, "started_s": 10.0}, {"phase": Phase.ALLOCATED}],
    ids=["took another's place", "failed before", "runs", "holds its cores"],
)
def test_such_a_job_stays(wide):
    assert not cancelled(view(flow(), **wide), futures(20))


def test_a_job_stays_if_another_depends_on_it():
    after = Stage("after", cores=1, walltime_s=60.0, after=("wide",), command="x")
    seen = view(flow([after]))
    assert cancelled(seen, futures(20))
    behind = replace(seen.stages["after"], phase=Phase.QUEUED, job_id="2", submit_s=0.0, keep=Keep.DEPENDENCY)
    assert not cancelled(replace(seen, stages={**seen.stages, "after": behind}), futures(20))


def test_where_the_queue_is_not_seen_nothing_gives_way():
    assert not cancelled(view(flow()), futures(20), known="of nobody")


def test_it_is_looked_for_again_ever_less_often():
    def wake_s(submit_s):
        seen = view(flow(), submit_s=submit_s)
        return load_strategy("asa-plan").plan(seen, Queue(futures(0))).wake_s

    assert wake_s(NOW_S - 60.0) == NOW_S + 600.0
    assert wake_s(NOW_S - 80_000.0) == NOW_S + 10_000.0


# ---------------------------------------------------------------------- what a place in the queue is worth

SIZE = 16
JOBS = st.lists(st.tuples(st.integers(1, SIZE), st.integers(2, 30)), max_size=8)


@settings(max_examples=80)
@given(JOBS, st.tuples(st.integers(1, SIZE), st.integers(2, 30)), JOBS)
def test_a_queued_job_starts_when_the_engine_starts_it(before, own, after):
    """All are submitted together and run for their whole walltime, so that later jobs delay none of them."""
    jobs = [*before, own]
    first = np.array([10]), np.array([10]), np.array([SIZE])
    engine = Engine(SIZE, JobTable(np.zeros(1, dtype=np.int64), *first))
    numbers = [engine.submit(cores=cores, request=asked, run=asked) for cores, asked in jobs]
    while engine.clients[numbers[-1]].start == UNSTARTED:
        engine.advance(NEVER)
    queue = QueueSimulation(machine_cores=SIZE)
    for user in range(20):  # everybody uses all that is asked for
        ticket = queue.submitted(QueuedJob(0.0, 1, 10.0, f"user {user}"))
        queue.observe(ticket, exactly(0.0))
        queue.ended(ticket, 10.0)
    queue.observe(queue.submitted(QueuedJob(0.0, SIZE, 10.0)), exactly(0.0))
    tickets = [queue.submitted(QueuedJob(0.0, *one)) for one in [*jobs, *after]]
    with queue.hidden(tickets[len(before)]) as ahead:
        waits_s = queue.futures([QueuedJob(0.0, *own)], 4, ahead)
    assert waits_s.tolist() == [[engine.clients[numbers[-1]].start]] * len(waits_s)


def test_while_a_job_is_hidden_others_do_not_wait_for_it_and_then_it_is_there_again():
    queue = QueueSimulation(machine_cores=SIZE)
    ticket = queue.submitted(QueuedJob(0.0, SIZE, 600.0, "ann"))
    before = queue.state(), queue.predict(QueuedJob(10.0, SIZE, 60.0))
    with queue.hidden(ticket) as ahead:
        assert ahead == 0
        assert queue.futures([QueuedJob(10.0, SIZE, 60.0)], 4).tolist() == [[0.0]] * 4
    assert (queue.state(), queue.predict(QueuedJob(10.0, SIZE, 60.0))) == before
    with queue.hidden(ticket + 1) as ahead:
        assert ahead is None


def test_a_bank_that_sees_the_queue_compares_a_job_with_another_in_its_place():
    bank = WaitBank("asa-queue", machine_cores=SIZE)
    bank.follow(
        [
            QueueEvent("submitted", "a", 0.0, QueuedJob(0.0, SIZE - 2, 6000.0, "ann")),
            QueueEvent("started", "a", 0.0),
            QueueEvent("submitted", "b", 1.0, QueuedJob(1.0, SIZE, 6000.0, "bob")),
        ]
    )
    own = bank.submitted(QueuedJob(2.0, SIZE, 600.0))
    with bank.instead_of(own) as sampled:
        waits_s = sampled(QueuedJob(60.0, SIZE, 600.0), QueuedJob(60.0, 2, 30.0))
    assert (waits_s[:, 0] > 0).all()
    assert (waits_s[:, 1] == 0).all(), "two cores are free until the first ends"
    with WaitBank("asa").instead_of(own) as sampled:
        assert sampled is None
