"""The simulated backend and its site."""

import gc
import pickle
import weakref

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend, SimulatedSite, WorkloadModel
from asa.backends.simulated.engine import Engine, JobTable

from asa.backend import Backend, Foresight, JobSpec, Site
from asa.errors import BackendError, InputError, SubmitRejectedError, TraceError, UnknownNameError
from asa.testing import check_backend

NOBODY = np.zeros(0, dtype=np.int64)
SMALL = WorkloadModel(Machine("small", 16, 16), load=0.85, log2_middle=3.0, log2_widest=7.0)


def empty(cores=64, **options):
    engine = Engine(cores, JobTable(NOBODY, NOBODY, NOBODY, NOBODY), age_accrues=options.pop("age_accrues", True))
    return SimulatedBackend(engine, Machine("empty", cores // 16, 16, options.pop("whole_nodes", False)), **options)


def busy(**options):
    """Make a machine of 64 cores, all in use until 1000."""
    column = [np.array([value], dtype=np.int64) for value in (0, 1000, 1000, 64)]
    return SimulatedBackend(Engine(64, JobTable(*column)), Machine("busy", 4, 16), **options)


@pytest.mark.parametrize("poll_s", [0, 10])
@pytest.mark.parametrize("age_accrues", [True, False])
def test_it_keeps_the_contract(poll_s, age_accrues):
    """On an idle machine and in the middle of a loaded one."""
    check_backend(lambda: empty(poll_s=poll_s, age_accrues=age_accrues))
    site = SimulatedSite(model=SMALL, poll_s=poll_s, age_accrues=age_accrues)
    check_backend(lambda: site.open(1), run_s=30)


def test_it_fits_the_ports():
    """Structural types, checked at run time too."""
    site = SimulatedSite(model=SMALL)
    assert isinstance(site, Site)
    assert isinstance(site.open(0), Backend)
    assert isinstance(site.open(0), Foresight)


def test_a_poll_delays_what_the_client_knows_not_the_times():
    """A job that ends at 25 is seen at 30 and dated 25."""
    backend = empty(poll_s=10)
    backend.wait(21.0)
    job = backend.submit(JobSpec("j", 1, 60, run_s=4))
    while not (seen := backend.wait(None)) or not seen[0].state.is_final:
        pass
    assert backend.now() == 30
    assert seen[0].end_s == 25
    assert backend.status([job])[job].start_s == 21


@pytest.mark.parametrize("scheduler", ["easy", "multifactor", "conservative"])
def test_a_world_leaves_the_memory_with_its_last_reference(scheduler):
    """A study opens hundreds of worlds of some MB, and garbage is not collected for as long as few objects are made."""
    site = SimulatedSite(model=SMALL, scheduler=scheduler)
    gc.collect()
    gc.disable()
    try:
        world = site.open(1)
        job = world.submit(JobSpec("j", 1, 60, run_s=4))
        world.wait(world.now() + 100)
        world.status([job])
        engine = weakref.ref(world._engine)
        del world
        assert engine() is None
    finally:
        gc.enable()


def test_whole_nodes_are_given_and_charged():
    """17 cores are two nodes of 16."""
    backend = empty(whole_nodes=True)
    backend.submit(JobSpec("a", 17, 60, run_s=5))
    backend.submit(JobSpec("b", 1, 60, nodes=2, run_s=5))
    backend.submit(JobSpec("c", 1, 60, run_s=5))
    assert [s.start_s for s in backend.status(["1", "2", "3"]).values()] == [None] * 3
    backend.wait(0.0)
    assert [s.start_s for s in backend.status(["1", "2", "3"]).values()] == [0, 0, None]


def test_a_simulator_must_be_told_the_run_time():
    """It cannot guess."""
    with pytest.raises(InputError, match="run_s"):
        empty().submit(JobSpec("j", 1, 60))
    with pytest.raises(SubmitRejectedError, match="asks for 65 of the machine's 64"):
        empty().submit(JobSpec("j", 65, 60, run_s=1))


@pytest.mark.parametrize("age_accrues", [True, False])
def test_reasons_are_told_in_slurms_words(age_accrues):
    """Why a job is pending."""
    backend = busy()
    first = backend.submit(JobSpec("j", 1, 60, run_s=1))
    from asa.backend import Dependency, DependencyType

    ids = {
        "Priority": first,
        "JobHeldUser": backend.submit(JobSpec("j", 1, 60, run_s=1, held=True)),
        "BeginTime": backend.submit(JobSpec("j", 1, 60, run_s=1, begin_s=50)),
        "Dependency": backend.submit(JobSpec("j", 1, 60, run_s=1, dependencies=(Dependency(first),))),
    }
    after = backend.submit(JobSpec("j", 1, 60, run_s=1, dependencies=(Dependency(first, DependencyType.AFTER, 5),)))
    backend.wait(5.0)
    statuses = backend.status(ids.values())
    assert {name: statuses[job].reason for name, job in ids.items()} == {name: name for name in ids}
    assert backend.status([after])[after].reason == "Dependency"


def test_foresight_tells_what_will_happen_and_changes_nothing():
    """The start that is foretold comes true."""
    backend = busy()
    assert backend.foresee_start(JobSpec("j", 8, 60, run_s=5), 10.0) == 1000
    assert backend.now() == 0
    site = SimulatedSite(model=SMALL)
    world = site.open(3)
    spec = JobSpec("j", 128, 3600, run_s=600)
    foretold = world.foresee_start(spec, world.now() + 500)
    world.wait(world.now() + 500)
    job = world.submit(spec)
    while (start := world.status([job])[job].start_s) is None:
        world.wait(None)
    assert start == foretold


def test_foresight_of_what_never_starts_is_refused():
    """It does not simulate for ever."""
    with pytest.raises(BackendError, match="never start"):
        busy().foresee_start(JobSpec("j", 8, 60, run_s=5, held=True), 10.0)


def test_the_same_seed_opens_the_same_world():
    """Whatever was done in another world."""
    site = SimulatedSite(model=SMALL)
    first = site.open(7)
    start = first.now()
    first.submit(JobSpec("j", 256, 36000, run_s=36000))
    first.wait(start + 50_000)
    again, elsewhere = site.open(7), SimulatedSite(model=SMALL).open(7)
    assert again.now() == elsewhere.now() == start
    spec = JobSpec("j", 200, 3600, run_s=60)
    assert again.foresee_start(spec, start) == elsewhere.foresee_start(spec, start)
    assert site.open(8).now() != start


def test_users_arrive_in_the_second_week_of_a_model():
    """After a week in which the machine filled up."""
    site = SimulatedSite(model=SMALL)
    moments = [site.open(seed).now() for seed in range(6)]
    assert all(7 * 86400 <= moment < 14 * 86400 for moment in moments)
    assert len(set(moments)) == 6


def waits_of(events):
    submits = {event.key: event.time_s for event in events if event.what == "submitted"}
    return [event.time_s - submits[event.key] for event in events if event.what == "started"]


def test_the_queue_tells_what_happened_before_and_then_what_is_new(tmp_path):
    """Everybody's jobs in order of time, each once; the client's own are not among them."""
    path = tmp_path / "log.swf"
    lines = [f"{i} {i * 100} -1 150 1 -1 -1 1 200 -1 1 1 1 1 1 1 -1 -1\n" for i in range(1000)]
    path.write_text("; MaxProcs: 1\n" + "".join(lines))
    world = SimulatedSite(trace=path).open(0)
    submits, now = 100 * np.arange(1000), world.now()
    events = list(world.queue_events(10_000, ends=True))
    started = int(now) // 150 + 1
    assert waits_of(events) == [50 * i for i in range(started)]
    assert sum(event.what == "submitted" for event in events) == np.count_nonzero(submits <= now)
    assert sum(event.what == "ended" for event in events) == started - 1
    jobs = [event.job for event in events if event.job]
    assert {(job.cores, job.walltime_s, job.user, job.system) for job in jobs} == {(1, 200, "u1", "log")}
    assert list(world.queue_events(10_000, ends=True)) == []
    world.submit(JobSpec("mine", 1, 100, run_s=10))
    world.wait(now + 5000)
    news = list(world.queue_events(10_000, ends=True))
    assert news
    assert all(now < event.time_s <= world.now() for event in news)
    times = [event.time_s for event in events + news]
    assert times == sorted(times)
    whole = SimulatedSite(trace=path).open(0)
    whole.submit(JobSpec("mine", 1, 100, run_s=10))
    whole.wait(now + 5000)
    assert list(whole.queue_events(10_000, ends=True)) == events + news


def test_of_the_past_the_latest_is_told_and_whoever_still_waits(tmp_path):
    path = tmp_path / "log.swf"
    lines = [f"{i} {i * 100} -1 150 1 -1 -1 1 200 -1 1 1 1 1 1 1 -1 -1\n" for i in range(1000)]
    path.write_text("; MaxProcs: 1\n" + "".join(lines))
    world = SimulatedSite(trace=path).open(0)
    events = world.queue_events(10)
    submits = [event.time_s for event in events if event.what == "submitted"]
    waiting = int(world.now()) // 100 - int(world.now()) // 150
    assert len(submits) == max(10, waiting)
    assert not any(event.what == "ended" for event in events)


def test_a_log_is_replayed_in_one_pass_for_all_seeds(tmp_path):
    """Each seed's world is the same as when it is opened alone; runs begin within the log."""
    path = tmp_path / "a-log.swf.gz.swf"
    rng = np.random.default_rng(0)
    lines = [
        f"{i} {i * 60} -1 {rng.integers(1, 900)} 1 -1 -1 {rng.integers(1, 9)} 900 -1 1 1 1 1 1 1 -1 -1\n"
        for i in range(3000)
    ]
    lines.append(f"9 {10**12} -1 60 1 -1 -1 1 900 -1 1 1 1 1 1 1 -1 -1\n")  # an absurd date, far beyond all others
    path.write_text("; MaxProcs: 16\n" + "".join(lines))
    together = SimulatedSite(trace=path)
    together.prepare([5, 3, 4])
    assert together.capabilities.system == "a-log.swf.gz"
    spec = JobSpec("j", 16, 900, run_s=60)
    for seed in (3, 4, 5):
        alone = SimulatedSite(trace=path).open(seed)
        world = together.open(seed)
        assert world.now() == alone.now()
        assert 300 * 60 <= world.now() <= 2700 * 60
        assert world.foresee_start(spec, world.now()) == alone.foresee_start(spec, alone.now())
        assert world.queue_events(500) == alone.queue_events(500)


def test_a_site_travels_to_other_processes():
    """With its worlds."""
    site = SimulatedSite(model=SMALL)
    site.prepare([1])
    twin = pickle.loads(pickle.dumps(site))
    spec = JobSpec("j", 200, 3600, run_s=60)
    here, there = site.open(1), twin.open(1)
    assert here.foresee_start(spec, here.now()) == there.foresee_start(spec, there.now())


def test_a_site_needs_one_source(tmp_path):
    """Exactly one, a model or a log."""
    with pytest.raises(InputError, match="either a system or a trace"):
        SimulatedSite()
    with pytest.raises(InputError, match="either a system or a trace"):
        SimulatedSite("hpc2n", trace=tmp_path / "x")
    with pytest.raises(InputError, match="poll"):
        SimulatedSite("hpc2n", poll_s=-1)


def test_a_log_of_one_moment_is_refused(tmp_path):
    """No run can begin in it."""
    path = tmp_path / "short.swf"
    path.write_text("; MaxProcs: 4\n1 5 -1 60 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1\n")
    with pytest.raises(TraceError, match="too short"):
        SimulatedSite(trace=path).open(0)


def test_impossible_machines_are_refused():
    """At least one node and one core."""
    with pytest.raises(InputError, match="0 nodes"):
        Machine("none", 0, 4)


@pytest.mark.parametrize("scheduler", ["conservative", "multifactor", "sjf"])
def test_a_world_may_have_another_scheduler(scheduler):
    """It is equal for equal seeds, has another queue than under EASY, and names its scheduler."""
    site, easy = SimulatedSite(model=SMALL, scheduler=scheduler), SimulatedSite(model=SMALL)
    assert site.notes == [f"the machine's scheduler is {scheduler}"]
    waits = [waits_of(each.open(seed=3).queue_events(2000)) for each in (site, site, easy)]
    assert waits[0] == waits[1]
    assert waits[0] != waits[2]
    check_backend(lambda: site.open(seed=3), run_s=30)


def test_an_unknown_scheduler_is_refused_at_once():
    """Before anything is simulated."""
    with pytest.raises(UnknownNameError, match="no scheduler 'sjff'\nDid you mean 'sjf'"):
        SimulatedSite("hpc2n", scheduler="sjff")
