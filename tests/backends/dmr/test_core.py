"""A machine with malleable jobs, compared with a slow and simple one, with the study's, and by hand."""

import random
from itertools import pairwise

import numpy as np
import pytest
from asa.backends.dmr.applications import Application, ApplicationKind, MalleableJob
from asa.backends.dmr.core import DmrCore
from asa.backends.dmr.mechanics import Checkpoints, Costs
from asa.backends.dmr.policy import Wish
from asa.backends.dmr.population import Population
from asa.backends.dmr.scheduler import Dmr, dmr
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.replay import replay
from asa.backends.simulated.swf import read_swf
from asa.backends.simulated.table import NEVER, JobTable
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_malleable import PlainMachine

from asa.backend import JobState
from asa.errors import InputError
from asa.studies.dmr.cluster import MalleableCluster, Scheduling

CORES = 16
FREE = Costs(none_s=0.0, expand_s=0.0, shrink_s=0.0, per_node_s=0.0, per_leaving_s=0.0, link_gb_s=1e15)
JOBS = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(1, 80), st.integers(0, 40), st.sampled_from([1, 2, 3, 4, 6, 8, 8, 12, CORES])
    ),
    min_size=1,
    max_size=14,
)
"""Submission, run time, what is asked for beyond it, cores."""
POPULATIONS = st.builds(
    lambda shares, **others: Population(*shares, **others),
    st.sampled_from([(1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.4, 0.3, 0.3), (0.0, 0.0, 1.0)]),
    min_share=st.sampled_from([0.0, 0.25, 0.5]),
    max_share=st.sampled_from([1.0, 2.0, 4.0]),
    preferred_share=st.sampled_from([0.0, 0.0, 0.5]),
    factor=st.sampled_from([2, 2, 3]),
    period_s=st.integers(1, 12),
    seed=st.integers(0, 5),
)
COSTS = st.sampled_from(
    [
        FREE,
        Costs(),
        Costs(none_s=0.5, expand_s=3.0, shrink_s=5.5, timeout_s=7.0),
        Costs(timeout_s=12.5, checkpoints=Checkpoints(restart_s=2.0)),
    ]
)


def table(jobs):
    submit, run, more, cores = (np.array(column, dtype=np.int64) for column in zip(*jobs, strict=True))
    return JobTable(submit, run, run + more, cores)


def lived(jobs, described, **rules):
    """Run to the last event."""
    core = DmrCore(CORES, jobs, now=0, jobs=described, **rules)
    core.run(NEVER - 1)
    return core


def spans(core):
    return list(zip(*(column.tolist() for column in core.spans), strict=True))


@settings(max_examples=200)
@given(JOBS, POPULATIONS, COSTS, st.booleans(), st.sampled_from([0.0, 0.5, 5.0]))
def test_it_does_what_a_plain_machine_does(jobs, population, costs, asynchronous, older_s):
    """The simple machine asks every job each second, and sorts its queue anew."""
    jobs = table(jobs)
    described = population.of(jobs, CORES)
    size = older_s * CORES * 1000 / (7 * 86400)
    core = lived(jobs, described, costs=costs, asynchronous=asynchronous, size=size)
    plain = PlainMachine(CORES, jobs, described, costs, asynchronous=asynchronous, older_s=older_s)
    plain.run()
    assert core.start.tolist() == [job.start for job in plain.jobs]
    assert core.end.tolist() == [job.end for job in plain.jobs]
    assert sorted(spans(core)) == sorted((job.row, *span) for job in plain.jobs for span in job.sizes)


@given(JOBS, st.sampled_from([0.0, 5.0]))
def test_without_malleable_jobs_it_is_easy_backfilling(jobs, size):
    jobs = table(jobs)
    core = lived(jobs, Population(0.0).of(jobs, CORES), size=size)
    same = core.start.tolist() == replay(jobs.submit, jobs.run, jobs.request, jobs.cores, CORES).tolist()
    assert same or size
    assert core.end.tolist() == (core.start + jobs.run).tolist()


def test_without_malleable_jobs_a_log_starts_as_under_easy(data):
    log = read_swf(data / "swf" / "KTH-SP2-1996-2-unfiltered.swf.gz")
    jobs = log.table
    core = dmr(malleable=0.0).core(log.cores, jobs, now=0)
    core.run(NEVER - 1)
    assert np.array_equal(core.start, replay(jobs.submit, jobs.run, jobs.request, jobs.cores, log.cores))


@pytest.mark.parametrize("seed", range(30))
def test_it_agrees_with_the_study(seed):
    """A resize takes no time, all jobs have the same width, and no two are due in the same second."""
    rng, jobs, now_s = random.Random(seed), [], 0
    for number in range(12):
        now_s += rng.randint(1, 40)
        wish = rng.choice([Wish(1, 16), Wish(2, 16, preferred=4), Wish(4, 16, preferred=16)])
        iterations = rng.randint(5, 40)
        application = Application("steps", iterations, 0.0, 16.0 * iterations, wish, period_s=16.0)
        kind = rng.choice([ApplicationKind.RIGID, ApplicationKind.MALLEABLE, ApplicationKind.MALLEABLE])
        jobs.append(MalleableJob(number, float(now_s), application, 16, kind, limit_s=1e6))
    records = MalleableCluster(40, jobs, costs=FREE, scheduling=Scheduling(size=0.0)).run()
    of_log = table([(int(job.submit_s), job.application.iterations, 10**6, 16) for job in jobs])
    core = DmrCore(
        40,
        of_log,
        now=0,
        jobs=lambda row: jobs[row] if jobs[row].kind is ApplicationKind.MALLEABLE else None,
        costs=FREE,
    )
    core.run(NEVER - 1)
    assert core.start.tolist() == [round(record.start_s) for record in records]
    assert core.end.tolist() == [round(record.end_s) for record in records]
    widths = {row: [cores for at, _, _, cores in spans(core) if at == row] for row in range(12)}
    assert widths == {record.job.id: [nodes for _, nodes in record.sizes] for record in records}


# ---------------------------------------------------------------------- what always holds


NO_TIME = Checkpoints(disk_gb_s=1e15, restart_s=0.0)


@given(JOBS, POPULATIONS, COSTS, st.booleans(), st.sampled_from([None, NO_TIME, Checkpoints(restart_s=2.0)]))
def test_cores_and_what_is_expected_add_up_at_every_second(jobs, population, costs, asynchronous, queued):
    jobs = table(jobs)
    if queued is not None:
        costs = Costs(none_s=0.0, expand_s=0.0, shrink_s=0.0, per_node_s=0.0, per_leaving_s=0.0, checkpoints=queued)
    core = DmrCore(
        CORES,
        jobs,
        now=0,
        jobs=population.of(jobs, CORES),
        costs=costs,
        asynchronous=asynchronous,
        requeues=queued is not None,
    )
    moment = 0
    while not core.exhausted or len(core.queued) or core._allocated:
        core.run(moment)
        assert core.free + sum(core._allocated.values()) == CORES
        assert core.free >= 0
        assert sorted(core._releases) == core._releases
        assert sorted(job for _, job in core._releases) == sorted(core._allocated)
        for row, run in core._runs.items():
            assert moment < run.end <= run.expected
            assert (run.expected, row) in core._releases
        moment += 1
        assert moment < 10_000, "everything ends"
    assert (core.start >= jobs.submit).all()
    assert (core.end > core.start).all()


@given(JOBS, POPULATIONS, st.booleans(), st.booleans())
def test_work_is_conserved(jobs, population, asynchronous, requeues):
    """The integral of speed over time is the job's work, whatever its sizes, except for the last second."""
    jobs = table(jobs)
    described = population.of(jobs, CORES)
    costs = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 1e15, checkpoints=NO_TIME if requeues else None)
    core = lived(jobs, described, costs=costs, asynchronous=asynchronous, requeues=requeues)
    done, waited = np.zeros(len(jobs)), np.zeros(len(jobs))
    for row, since, until, cores in spans(core):
        job = described(row)
        slower = 1.0 if job is None else job.application.run_s(cores) / job.application.run_s(int(jobs.cores[row]))
        done[row] += (until - since) / (int(jobs.run[row]) * slower)
        waited[row] = 1 / (int(jobs.run[row]) * slower)  # in its last second
    if not asynchronous:  # there a job may stand still for a resizer job
        assert (done < 1 + waited + 1e-6).all()
    assert (done > 1 - 1e-6).all()


@given(JOBS, POPULATIONS, COSTS, st.booleans())
def test_sizes_stay_between_the_bounds_and_change_by_the_factor(jobs, population, costs, asynchronous):
    jobs = table(jobs)
    described = population.of(jobs, CORES)
    core = lived(jobs, described, costs=costs, asynchronous=asynchronous)
    powers = {population.factor**n for n in range(6)}  # 1 where it took back at once what it had given
    for (row, _, until, before), (other, since, _, after) in pairwise(spans(core)):
        if row == other:
            assert until == since
            assert max(before, after) % min(before, after) == 0
            assert max(before, after) // min(before, after) in powers
    for row, _, _, cores in spans(core):
        asked = int(jobs.cores[row])
        wish = population.wish(asked, CORES)
        job = described(row)
        if job is None:
            assert cores == asked
        elif job.kind is ApplicationKind.EVOLVING:
            assert cores in {asked, asked // population.factor}
        else:
            assert wish.minimum <= cores <= wish.maximum


@given(JOBS, st.integers(1, 12), st.sampled_from([1.0, 2.0]))
def test_an_expansion_takes_only_what_nobody_in_the_queue_can_use(jobs, period_s, max_share):
    """It therefore delays the queue's first job only where Section 4.3 allows it."""
    jobs = table(jobs)
    core = lived(jobs, Population(1.0, min_share=0.0, max_share=max_share, period_s=period_s).of(jobs, CORES))
    held = spans(core)
    for (row, _, _, before), (other, since, _, after) in pairwise(held):
        if row == other and after > before:
            busy = sum(cores for _, begin, end, cores in held if begin <= since < end)
            waits = (jobs.submit <= since) & (core.start > since)
            assert (jobs.cores[waits] > CORES - busy + after - before).all()


@given(JOBS, POPULATIONS, COSTS, st.booleans(), st.booleans(), st.integers(0, 100))
def test_a_fork_goes_on_by_itself(jobs, population, costs, asynchronous, requeues, moment):
    jobs = table(jobs)
    requeues = requeues and costs.checkpoints is not None
    core = DmrCore(
        CORES,
        jobs,
        now=0,
        jobs=population.of(jobs, CORES),
        costs=costs,
        asynchronous=asynchronous,
        requeues=requeues,
    )
    core.run(moment)
    twin, other = core.fork(), core.fork()
    other.insert(other.add(CORES, 50), 0)
    other.run(NEVER - 1)
    core.run(NEVER - 1)
    assert (twin.start <= moment).all()
    twin.run(NEVER - 1)
    assert (twin.start.tolist(), twin.end.tolist(), spans(twin)) == (
        core.start.tolist(),
        core.end.tolist(),
        spans(core),
    )


# ---------------------------------------------------------------------- by hand


def linear(row, cores, wish, *, kind=ApplicationKind.MALLEABLE, period_s=10, phases=()):
    """A job of 100 s that scales linearly."""
    return MalleableJob(row, 0.0, Application("linear", 100, 0.0, 100.0 * cores, wish, period_s), cores, kind, phases)


def run_by_hand(jobs, described, costs=FREE, **rules):
    return lived(table(jobs), described.get, costs=costs, **rules)


def test_a_job_shrinks_for_another_and_grows_when_that_has_ended():
    """It has 90 s left on 16 cores, and 180 on 8; the other job ends 100 s later, so 40 s are left on 16 cores."""
    core = run_by_hand([(0, 100, 0, 16), (5, 100, 0, 8)], {0: linear(0, 16, Wish(1, 16))})
    assert core.start.tolist() == [0, 10]
    assert spans(core) == [(0, 0, 10, 16), (0, 10, 110, 8), (0, 110, 150, 16), (1, 10, 110, 8)]


def test_cores_are_given_back_when_all_have_acknowledged():
    costs = Costs(none_s=0.0, shrink_s=2.5, per_leaving_s=0.0, link_gb_s=1e15)
    core = run_by_hand([(0, 100, 0, 16), (5, 1000, 0, 8)], {0: linear(0, 16, Wish(1, 16))}, costs)
    assert core.start.tolist() == [0, 13]
    assert core.end.tolist() == [193, 1013], "10 s, then it stood still for 2.5, then 180 at half the speed"


def test_whom_a_shrink_lets_start_stands_first():
    """The wide job came earlier, and still waits: 50 s after that job, 5 s after the last, which does not delay it.

    Then the first grows again, as nobody could use what is idle, and so ends sooner: it had 120 s left on 8 cores.
    """
    jobs = [(0, 100, 0, 16), (2, 10, 0, 16), (3, 50, 0, 8), (12, 5, 0, 8)]
    core = run_by_hand(jobs, {0: linear(0, 16, Wish(8, 16))})
    assert core.start.tolist() == [0, 130, 10, 60]
    assert spans(core)[:3] == [(0, 0, 10, 16), (0, 10, 70, 8), (0, 70, 130, 16)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_job_shrinks_for_another_not_all_that_could(asynchronous):
    """The other job waits until the cores are free, but they are on their way to it."""
    costs = Costs(none_s=0.0, shrink_s=2.5, per_leaving_s=0.0, link_gb_s=1e15)
    flexible = {row: linear(row, 8, Wish(4, 8)) for row in (0, 1)}
    core = run_by_hand([(0, 100, 0, 8), (0, 100, 0, 8), (5, 30, 0, 4)], flexible, costs, asynchronous=asynchronous)
    begin_s = 23 if asynchronous else 13
    assert core.start.tolist() == [0, 0, begin_s]
    widths = {row: cores for row, since, until, cores in spans(core) if row < 2 and since <= begin_s + 20 < until}
    assert sorted(widths.values()) == [4, 8]


def test_a_limit_is_one_of_work():
    """The job asked for 100 s, has 90 left, and the wide one is expected at 190: 115 s fit before, 10 s more do not."""
    jobs = [(0, 100, 0, 16), (5, 60, 0, 8), (20, 10, 0, 16), (21, 115, 0, 8), (22, 10, 0, 8)]
    core = run_by_hand(jobs, {0: linear(0, 16, Wish(8, 16))})
    assert core.end[0] == 190
    assert core.start.tolist() == [0, 10, 190, 70, 200]


def test_an_asynchronous_job_shrinks_a_check_later():
    core = run_by_hand([(0, 100, 0, 16), (5, 100, 0, 8)], {0: linear(0, 16, Wish(1, 16))}, asynchronous=True)
    assert core.start.tolist() == [0, 20]


def test_an_asynchronous_expansion_may_time_out():
    """At 10 s no job waits and 8 cores are idle; at 20 s they are not, and the job stands still until 30 s."""
    costs = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 1e15, timeout_s=10.0)
    jobs = [(0, 100, 0, 8), (15, 50, 0, 8)]
    core = run_by_hand(jobs, {0: linear(0, 8, Wish(8, 16))}, costs, asynchronous=True)
    assert core.start.tolist() == [0, 15]
    # 20 s, 10 s of waiting, 40 s until it sees at 70 that the other has ended, and acts at 80: 30 s are left, or 15
    assert spans(core) == [(0, 0, 80, 8), (0, 80, 95, 16), (1, 15, 65, 8)]
    patient = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 1e15, timeout_s=100.0)
    core = run_by_hand(jobs, {0: linear(0, 8, Wish(8, 16))}, patient, asynchronous=True)
    assert spans(core) == [(0, 0, 65, 8), (0, 65, 105, 16), (1, 15, 65, 8)], "its cores come when the other has ended"


def test_a_resizer_job_stands_before_the_queue():
    """What ends at 65 is for it; the one that came at 16 starts when it shrinks again, asked at 70 and done at 80."""
    costs = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 1e15, timeout_s=100.0)
    jobs = [(0, 100, 0, 8), (15, 50, 0, 8), (16, 10, 0, 8)]
    core = run_by_hand(jobs, {0: linear(0, 8, Wish(8, 16))}, costs, asynchronous=True)
    assert core.start.tolist() == [0, 15, 80]


def test_a_moldable_job_starts_on_what_there_is():
    jobs = [(0, 50, 0, 10), (1, 100, 0, 16)]
    core = run_by_hand(jobs, {1: linear(1, 16, Wish(2, 16), kind=ApplicationKind.MOLDABLE)})
    assert spans(core) == [(0, 0, 50, 10), (1, 1, 401, 4)]
    core = run_by_hand([(0, 50, 0, 15), jobs[1]], {1: linear(1, 16, Wish(2, 16), kind=ApplicationKind.MOLDABLE)})
    assert spans(core) == [(0, 0, 50, 15), (1, 50, 150, 16)]


def test_an_evolving_job_asks_for_what_its_phase_needs():
    """It first needs half of its cores, and another job takes the rest; in the end it needs all, and gets them."""
    wide, narrow = Wish(16, 16), Wish(8, 8)
    job = linear(0, 16, wide, kind=ApplicationKind.EVOLVING, period_s=1, phases=((0, wide), (30, narrow), (60, wide)))
    core = run_by_hand([(0, 100, 0, 16), (5, 80, 0, 8)], {0: job})
    assert spans(core) == [(0, 0, 30, 16), (0, 30, 110, 8), (0, 110, 140, 16), (1, 30, 110, 8)]
    core = run_by_hand([(0, 100, 0, 16), (5, 20, 0, 8)], {0: job})
    assert spans(core) == [(0, 0, 30, 16), (0, 30, 90, 8), (0, 90, 130, 16), (1, 30, 50, 8)]


def test_a_job_that_restarts_from_a_checkpoint_stands_still_for_longer():
    costs = Costs(0.0, 0.0, 0.0, 0.0, 0.0, checkpoints=Checkpoints(disk_gb_s=1.0, restart_s=10.0))
    core = run_by_hand([(0, 100, 0, 16), (5, 1000, 0, 8)], {0: linear(0, 16, Wish(8, 16))}, costs)
    assert core.start.tolist() == [0, 22], "a second to write, ten to restart, and one to read"
    assert core.end[0] == 202


def test_a_job_that_waits_for_its_restart_is_queued_with_its_age():
    """It wrote at 10 and stopped at 11; the job that it lets by starts first, then itself, before later jobs."""
    costs = Costs(0.0, 0.0, 0.0, 0.0, 0.0, checkpoints=Checkpoints(disk_gb_s=1.0, restart_s=10.0))
    jobs = [(0, 100, 0, 16), (5, 1000, 0, 8), (6, 5, 0, 8)]
    core = run_by_hand(jobs, {0: linear(0, 16, Wish(8, 16))}, costs, requeues=True)
    assert core.start.tolist() == [0, 11, 202]
    assert spans(core)[:2] == [(0, 0, 11, 16), (0, 11, 202, 8)], "11 s to restart and read, then 180"
    core = run_by_hand(
        [(0, 100, 0, 8), (5, 30, 0, 8), (7, 10, 0, 16)], {0: linear(0, 8, Wish(8, 16))}, costs, requeues=True
    )
    assert core.start.tolist() == [0, 5, 82]
    assert spans(core)[:2] == [(0, 0, 41, 8), (0, 41, 82, 16)], "it grows before the wide one starts, which is younger"


# ---------------------------------------------------------------------- with a client


def live_until(world, moment):
    while world.now < moment:
        world.advance(moment)


def test_background_jobs_shrink_for_a_client_s():
    jobs = table([(0, 100, 0, 16)])
    world = Engine(CORES, jobs, core=DmrCore(CORES, jobs, now=0, jobs=lambda _: linear(0, 16, Wish(1, 16)), costs=FREE))
    number = world.submit(cores=12, request=50, run=50)
    gone = world.submit(cores=8, request=50, run=50, held=True)
    live_until(world, 11)
    assert world.clients[number].start == 10
    assert world.free_cores == 0, "12 of 16 are the client's"
    assert world.widths.resize(number, 4)
    live_until(world, 21)
    assert world.free_cores == 4, "of the 8 that it gave back half were taken: sizes double"
    assert not world.widths.resize(number, 9)
    world.release(gone)
    live_until(world, 31)
    assert world.clients[gone].start == 30
    world.cancel(gone)
    live_until(world, 61)
    assert world.clients[number].end == 60
    world.advance(NEVER)
    assert world.free_cores == CORES
    assert world.ends(np.array([0])).tolist() == [int(world._core.end[0])]


def test_what_a_client_takes_back_does_not_stand_first_any_more():
    jobs = table([(0, 100, 0, 16)])
    costs = Costs(none_s=0.0, shrink_s=5.0, per_leaving_s=0.0)
    world = Engine(
        CORES, jobs, core=DmrCore(CORES, jobs, now=0, jobs=lambda _: linear(0, 16, Wish(8, 16)), costs=costs)
    )
    number = world.submit(cores=8, request=50, run=50)
    live_until(world, 12)
    world.cancel(number)
    live_until(world, 18)
    assert world.clients[number].state is JobState.CANCELLED
    assert world.free_cores == 8, "what was asked for it is given back"
    live_until(world, 22)
    assert world.free_cores == 0, "and taken again at the next check"


# ---------------------------------------------------------------------- of whom there are how many


@pytest.fixture(scope="module")
def busy():
    """Return a log of two weeks of a busy machine of 64 cores."""
    rng = np.random.default_rng(7)
    submit = np.cumsum(rng.exponential(900, 1500).astype(np.int64))
    run = rng.exponential(4000, 1500).astype(np.int64) + 1
    return JobTable(submit, run, 4 * run, 2 ** rng.integers(0, 6, 1500))


def test_kinds_are_drawn_by_their_shares_the_same_each_time(busy):
    few, many = (Population(share, 0.2, 0.1, seed=3).of(busy, 64) for share in (0.1, 0.4))
    kinds = [[job.kind if (job := jobs(row)) else ApplicationKind.RIGID for row in range(1500)] for jobs in (few, many)]
    again = Population(0.1, 0.2, 0.1, seed=3).of(busy, 64)
    assert [again(row) for row in range(1500)] == [few(row) for row in range(1500)]
    wide = [row for row in range(1500) if busy.cores[row] > 1]  # the others have one size
    for share, of in zip((0.1, 0.4), kinds, strict=True):
        assert {kinds[0][row] for row in range(1500) if row not in set(wide)} == {ApplicationKind.RIGID}
        assert sum(of[row] is ApplicationKind.MALLEABLE for row in wide) / len(wide) == pytest.approx(share, abs=0.04)
        assert sum(of[row] is ApplicationKind.EVOLVING for row in wide) / len(wide) == pytest.approx(0.2, abs=0.04)
        assert sum(of[row] is ApplicationKind.MOLDABLE for row in wide) / len(wide) == pytest.approx(0.1, abs=0.04)
    assert all(kinds[1][row] is ApplicationKind.MALLEABLE for row in wide if kinds[0][row] is ApplicationKind.MALLEABLE)


@pytest.mark.parametrize("preferred", [0.0, 0.25])
def test_a_job_takes_as_long_as_in_the_log_on_what_it_asked_for(busy, preferred):
    jobs = Population(1.0, preferred_share=preferred).of(busy, 64)
    for row in range(0, 1500, 50):
        if (job := jobs(row)) is not None:
            assert job.application.run_s(int(busy.cores[row])) == pytest.approx(int(busy.run[row]))
            halved = job.application.run_s(int(busy.cores[row]) // 2) / int(busy.run[row])
            assert halved == pytest.approx(2.0) if not preferred else 1 < halved < 2


def test_malleable_jobs_wait_less_and_run_for_longer(busy):
    """Table 3's signs; and a machine on which they prefer fewer cores is less used, as in Table 4."""

    def measured(**rules):
        core = dmr(**rules).core(64, busy, now=0)
        core.run(NEVER - 1)
        _, since, until, cores = core.spans
        return (core.start - busy.submit).mean(), (core.end - core.start).mean(), ((until - since) * cores).sum()

    fixed, some, all_of_them = (measured(malleable=share) for share in (0.0, 0.3, 1.0))
    assert fixed[0] > some[0] > all_of_them[0]
    assert fixed[1] < some[1] < all_of_them[1]
    assert all_of_them[0] + all_of_them[1] < fixed[0] + fixed[1]
    assert all_of_them[2] == pytest.approx(fixed[2], rel=0.01), "linear, but for what resizing costs"
    assert measured(malleable=1.0, preferred_share=0.25)[2] < 0.9 * fixed[2]
    assert measured(malleable=1.0, mode="async")[:2] != all_of_them[:2]
    assert measured(malleable=1.0, resizing="checkpoint")[1] > all_of_them[1]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"malleable": 0.8, "moldable": 0.3}, "of all jobs cannot be"),
        ({"malleable": -0.1}, "of all jobs cannot be"),
        ({"min_share": 1.5}, "a job cannot have"),
        ({"max_share": 0.5}, "a job cannot have"),
        ({"preferred_share": 0.1}, "is preferred, and not between"),
        ({"factor": 1}, "factor: 1 cannot be"),
        ({"period_s": 0}, "period_s: 0 cannot be"),
        ({"mode": "later"}, "there is no mode 'later'"),
        ({"resizing": "magic"}, "there is no way to resize 'magic'"),
        ({"size": -1.0}, "a weight of -1"),
    ],
)
def test_what_cannot_be_is_refused(rules, message):
    with pytest.raises(InputError, match=message):
        dmr(**rules)


def test_a_machine_is_made_by_its_settings():
    jobs = table([(0, 100, 0, 16), (5, 1000, 0, 8)])
    made = dmr(malleable=1.0, min_share=0.5, period_s=10, resizing="queue")
    assert isinstance(made, Dmr)
    core = made.core(CORES, jobs, now=0)
    core.run(NEVER - 1)
    assert core.start.tolist() == [0, 12], "it wrote for more than a second"
