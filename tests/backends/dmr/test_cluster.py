"""The cluster: invariants of every workload, computed from its jobs' records, and the order of events."""

from dataclasses import replace
from itertools import pairwise

import pytest
from asa.backends.dmr.applications import CG, N_BODY, Application, ApplicationKind, MalleableJob, sleep
from asa.backends.dmr.mechanics import Checkpoints, Costs
from asa.backends.dmr.policy import Action, Wish
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.errors import InputError
from asa.studies.dmr.cluster import MalleableCluster, Scheduling

NODES = 16
FREE = Costs(none_s=0.0, expand_s=0.0, shrink_s=0.0, per_node_s=0.0, per_leaving_s=0.0, link_gb_s=1e12)
STEPS = Application("steps", 10, 0.0, 400.0, Wish(1, 16))
"""100 s on 4 nodes, in steps of 10 s."""
SMALL = (
    replace(CG, wish=Wish(2, 16, preferred=4)),
    replace(N_BODY, wish=Wish(1, 8, preferred=1)),
    sleep(300.0, 4),
    STEPS,
    replace(STEPS, period_s=60.0),
)


@st.composite
def workloads(draw):
    """Draw some jobs of each kind, submitted within ten minutes."""
    jobs = []
    for number in range(draw(st.integers(1, 12))):
        application, kind = draw(st.sampled_from(SMALL)), draw(st.sampled_from(list(ApplicationKind)))
        phases = ((application.iterations // 2, Wish(8, 8)),) if kind is ApplicationKind.EVOLVING else ()
        nodes = draw(st.sampled_from([size for size in (1, 2, 4, 8, 16) if size >= application.wish.minimum]))
        limit_s = draw(st.sampled_from([300.0, 3000.0, 1e7]))
        jobs.append(MalleableJob(number, draw(st.floats(0, 600)), application, nodes, kind, phases, limit_s))
    return jobs


def held(records, time_s):
    """Nodes that are held from a given time on."""
    sizes = (
        [nodes for since_s, nodes in record.sizes if since_s <= time_s][-1]
        for record in records
        if record.start_s <= time_s < record.end_s
    )
    return sum(sizes)


def moments(records):
    return sorted({time for record in records for time in (record.end_s, *(since for since, _ in record.sizes))})


@settings(max_examples=60)
@given(workloads(), st.booleans(), st.sampled_from([Costs(), FREE, Costs(checkpoints=Checkpoints())]))
def test_nodes_and_work_are_conserved(jobs, asynchronous, costs):
    records = MalleableCluster(NODES, jobs, costs=costs, asynchronous=asynchronous).run()
    assert [record.job for record in records] == jobs
    for record in records:
        job, application = record.job, record.job.application
        assert job.submit_s <= record.start_s < record.end_s
        done = sum(seconds / application.run_s(nodes) for nodes, seconds in record.computed_s.items())
        assert done == pytest.approx(1.0)
        assert record.run_s == pytest.approx(sum(record.computed_s.values()) + record.paused_s)
        assert set(record.computed_s) <= {nodes for _, nodes in record.sizes}
        if job.kind in {ApplicationKind.RIGID, ApplicationKind.MOLDABLE}:
            assert len(record.sizes) == 1
            assert record.paused_s == 0.0
        for (_, before), (_, after) in pairwise(record.sizes):
            assert (
                min(before, 8) <= after <= max(before, 16)
                or application.wish.minimum <= after <= application.wish.maximum
            )
            assert max(before, after) % min(before, after) == 0
        for one, other in pairwise(record.resizes):
            assert other.at_s - one.at_s >= application.period_s - 1e-6
    assert all(held(records, time_s) <= NODES for time_s in moments(records))


@settings(max_examples=40)
@given(workloads())
def test_who_fits_does_not_wait(jobs):
    """Without reservations, and while no expansion waits, first fit starts every job that fits."""
    jobs = [replace(job, limit_s=1e9) for job in jobs]
    records = MalleableCluster(NODES, jobs).run()
    for time_s in moments(records):
        free = NODES - held(records, time_s)
        assert all(
            record.job.starts_on()[-1] > free for record in records if record.job.submit_s <= time_s < record.start_s
        )


@settings(max_examples=20)
@given(workloads())
def test_synchronous_expansions_never_time_out(jobs):
    """The answer and its expansion happen at the same time."""
    records = MalleableCluster(NODES, jobs).run()
    resizes = [resize for record in records for resize in record.resizes]
    assert all(resize.done for resize in resizes)


def test_the_same_workload_gives_the_same():
    jobs = [MalleableJob(number, 7.0 * number, STEPS, 4) for number in range(20)]
    assert MalleableCluster(NODES, jobs).run() == MalleableCluster(NODES, jobs).run()


def test_rigid_jobs_are_backfilled_around_a_reservation():
    """The first job that does not fit keeps its place, unless it is beyond the window."""

    def starts(window_s):
        jobs = [
            MalleableJob(
                number,
                float(number),
                replace(STEPS, parallel_s=seconds * nodes),
                nodes,
                ApplicationKind.RIGID,
                limit_s=seconds,
            )
            for number, (nodes, seconds) in enumerate(
                [(10, 100.0), (12, 100.0), (6, 90.0), (6, 300.0), (4, 300.0), (2, 300.0)]
            )
        ]
        return [r.start_s for r in MalleableCluster(NODES, jobs, scheduling=Scheduling(0, 0, window_s)).run()]

    # the 2nd waits for the 1st; the 3rd ends before that; the 4th would not, and does not fit beside it; the 5th does,
    # and leaves nothing for the 6th
    assert starts(1e6) == [0.0, 100.0, 2.0, 200.0, 92.0, 200.0]
    assert starts(1.0) == [0.0, 400.0, 2.0, 92.0, 100.0, 100.0]


def test_only_so_many_jobs_are_looked_at():
    jobs = [
        MalleableJob(number, 0.0, STEPS, nodes, ApplicationKind.RIGID) for number, nodes in enumerate([12, 8, 8, 4])
    ]
    deep, shallow = (
        [r.start_s for r in MalleableCluster(NODES, jobs, scheduling=Scheduling(0, 0, depth=depth)).run()]
        for depth in (100, 2)
    )
    assert deep[3] == 0.0
    assert shallow[3] > 0.0


def test_larger_jobs_are_first_by_their_size_and_older_ones_by_their_age():
    def order(**weights):
        jobs = [
            MalleableJob(number, time_s, STEPS, nodes, ApplicationKind.RIGID)
            for number, (time_s, nodes) in enumerate([(0, 16), (1, 8), (2, 16)])
        ]
        records = MalleableCluster(NODES, jobs, scheduling=Scheduling(**weights)).run()
        return [record.job.id for record in sorted(records, key=lambda record: record.start_s)]

    assert order(age=0, size=1) == [0, 2, 1]
    assert order(age=1, size=0) == [0, 1, 2]


def test_a_lone_malleable_job_grows_to_its_most():
    """It grows at its first check; the rest is done four times as fast."""
    [record] = MalleableCluster(NODES, [MalleableJob(0, 5.0, STEPS, 4)], costs=FREE).run()
    assert record.sizes == [(5.0, 4), (15.0, 16)]
    assert record.end_s == pytest.approx(15.0 + 9 * 2.5)


def test_kinds_side_by_side():
    """On 16 nodes, of which 12 are taken, a rigid job waits, and a moldable one does not."""
    first = MalleableJob(0, 0.0, STEPS, 12, ApplicationKind.RIGID)
    assert (
        MalleableCluster(NODES, [first, MalleableJob(1, 1.0, STEPS, 8, ApplicationKind.RIGID)]).run()[1].start_s > 1.0
    )
    assert MalleableCluster(NODES, [first, MalleableJob(1, 1.0, STEPS, 8, ApplicationKind.MOLDABLE)]).run()[
        1
    ].sizes == [(1.0, 4)]


def test_an_evolving_job_asks_for_what_its_phase_needs():
    """It grows in the middle, and shrinks again."""
    job = MalleableJob(0, 0.0, STEPS, 4, ApplicationKind.EVOLVING, ((0, Wish(4, 4)), (4, Wish(8, 8)), (7, Wish(2, 2))))
    [record] = MalleableCluster(NODES, [job], costs=FREE).run()
    assert [nodes for _, nodes in record.sizes] == [4, 8, 2]
    assert [since_s for since_s, _ in record.sizes] == pytest.approx([0.0, 40.0, 55.0])
    assert record.end_s == pytest.approx(55.0 + 3 * 20.0)


def test_a_shrink_starts_the_job_that_triggered_it():
    """The job is promoted: a job of higher priority, submitted while nodes are returned, does not overtake it."""
    small_first = Scheduling(age=0, size=-1)
    jobs = [
        MalleableJob(0, 0.0, STEPS, 16),
        MalleableJob(1, 1.0, STEPS, 8, ApplicationKind.RIGID),
        MalleableJob(2, 2.6, STEPS, 2, ApplicationKind.RIGID),
    ]
    first, promoted, late = MalleableCluster(NODES, jobs, scheduling=small_first).run()
    assert first.resizes[0].at_s == 2.5
    gone_s = 2.5 + first.resizes[0].lasted_s
    assert first.sizes[1] == (gone_s, 8)
    assert promoted.start_s == gone_s > jobs[2].submit_s
    assert late.start_s > gone_s


def test_checks_within_the_period_are_ignored():
    """The period is 15 s, and steps take 10 s: checks are at 20, 40 and so on."""
    [record] = MalleableCluster(4, [MalleableJob(0, 0.0, replace(STEPS, period_s=15.0), 4)], costs=FREE).run()
    assert record.checks == 4


def test_an_asynchronous_answer_is_carried_out_a_step_later():
    [record] = MalleableCluster(NODES, [MalleableJob(0, 0.0, STEPS, 4)], costs=FREE, asynchronous=True).run()
    assert record.sizes[:2] == [(0.0, 4), (20.0, 16)]


@pytest.mark.parametrize(("other_s", "done"), [(25.0, True), (95.0, False)])
def test_an_asynchronous_expansion_waits_for_nodes_that_others_took(other_s, done):
    """Granted at 10 s, when 4 nodes were free; taken at 15 s; requested at 20 s; waited for at most 40 s."""
    other = replace(STEPS, parallel_s=other_s * 4)
    jobs = [
        MalleableJob(0, 0.0, replace(STEPS, wish=Wish(1, 8)), 4),
        MalleableJob(1, 15.0, other, 4, ApplicationKind.RIGID),
    ]
    record, _ = MalleableCluster(8, jobs, costs=FREE, asynchronous=True).run()
    resize = record.resizes[0]
    assert (resize.action, resize.at_s, resize.done) == (Action.EXPAND, 20.0, done)
    assert resize.lasted_s == pytest.approx(20.0 if done else 40.0)
    assert (len(record.sizes) == 2 and record.sizes[1][0] == 40.0) == done


def test_a_job_that_never_fits_is_refused():
    with pytest.raises(InputError, match="needs 32 nodes to start, and there are 16"):
        MalleableCluster(NODES, [MalleableJob(0, 0.0, STEPS, 32)])
