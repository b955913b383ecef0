"""Slurm as a backend, over a Slurm in memory: the client's promises hold when the site forgets, drops or delays."""

import errno
import itertools
import os
import time
from dataclasses import replace

import pytest
from asa.backends.shell import marks
from asa.backends.slurm import tracking
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.explanations import advice
from asa.backends.slurm.link import SlurmRecord
from asa.backends.slurm.states import status_of
from slurm_fake_link import BEGIN_S, FakeLink, VirtualClock, foreign_record

from asa.backend import (
    Adjustable,
    Advisor,
    Backend,
    Capabilities,
    Dependency,
    DependencyType,
    JobSpec,
    JobState,
    PartitionLimits,
    Step,
    site_word_s,
)
from asa.elements import parse_array
from asa.errors import (
    BackendError,
    InputError,
    JobNotFoundError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)
from asa.outcome import JobOutcome
from asa.testing import check_backend

HOUR, DAY = 3600.0, 86_400.0
SITE = Capabilities(
    "testbed", 112, 28, age_accrues=False, partition="normal", partitions={"normal": PartitionLimits(48 * HOUR)}
)
DEFAULTS = JobDefaults(environment={"PATH": "/usr/bin:/bin"}, inherit=False)


class World:
    """A Slurm in memory, a folder, and clients that come and go."""

    def __init__(self, folder, **options):
        self.clock = VirtualClock()
        self.folder = folder
        self.link = FakeLink(self.clock, folder, **options)

    def client(self, **options):
        settings = {"clock": self.clock, "sleep": self.clock.sleep, "defaults": DEFAULTS} | options
        return SlurmBackend(self.link, self.folder, SITE, **settings)


@pytest.fixture
def world(tmp_path):
    return lambda **options: World(tmp_path, **options)


def spec(run_s=100.0, **changes):
    known = {"name": "fit", "cores": 1, "walltime_s": HOUR, "command": f"sleep {run_s}", **changes}
    return JobSpec(**known)


def ended(backend, job_id):
    for _ in range(10_000):
        status = backend.status([job_id])[job_id]
        if status.state.is_final:
            return status
        backend.wait(backend.now() + 60)
    raise AssertionError(f"{job_id} never ended: {status}")


def running(backend, job_id):
    while backend.status([job_id])[job_id].state is not JobState.RUNNING:
        backend.wait(backend.now() + 10)


# ---------------------------------------------------------------------- the contract


@pytest.mark.parametrize("options", [{}, {"drops_unknown": True}, {"listing_delay_s": 4.0}, {"accounting": True}])
@pytest.mark.parametrize("poll_s", [1.0, 10.0])
def test_it_keeps_the_contract(tmp_path, options, poll_s):
    """With jobs that are listed late, and however seldom it looks."""
    folders = itertools.count()
    check_backend(
        lambda: World(tmp_path / str(next(folders)), **options).client(poll_s=poll_s, max_poll_s=30.0), run_s=100.0
    )


def test_it_fits_the_ports(world):
    backend = world().client()
    assert isinstance(backend, Backend)
    assert isinstance(backend, Adjustable)
    assert isinstance(backend, Advisor)


# ---------------------------------------------------------------------- submission


@pytest.mark.parametrize("now", ["whole", "as before", "no partition", "away"])
def test_what_is_beyond_the_site_is_refused_only_once_the_site_was_asked_anew(world, now):
    """An answer may have lacked some nodes, or a partition."""
    asked = []

    def survey():
        asked.append(now)
        if now == "away":
            raise UnavailableError("no controller")
        if now == "no partition":
            raise InputError("Slurm tells of no partition that is up")
        return SITE if now == "whole" else replace(SITE, max_cores=56)

    site = world()
    settings = {"clock": site.clock, "sleep": site.clock.sleep, "defaults": DEFAULTS, "survey": survey}
    backend = SlurmBackend(site.link, site.folder, replace(SITE, max_cores=56), **settings)
    backend.submit(spec(cores=56))
    assert not asked
    if now == "whole":
        backend.submit(spec(cores=112))
        assert site.link.submitted[-1].cores == 112
    else:
        error = SubmitRejectedError if now == "as before" else UnavailableError
        for _ in range(2):
            with pytest.raises(error):
                backend.submit(spec(cores=112))
    assert len(asked) == (1 if now in ("whole", "as before") else 2), "at most once a minute"


def test_what_slurm_is_told_of_a_job(world):
    site = world()
    defaults = JobDefaults("acc", "high", "debug", "ib", {"A": "1"}, inherit=False, folder=site.folder)
    backend = site.client(defaults=defaults)
    backend.submit(spec(name="fit model/2", token="run1-7", cores=56, nodes=2, gpus=1, memory_bytes=5, held=True))
    job = site.link.submitted[-1]
    assert (job.name, job.comment) == ("fit_model_2.run1-7", "asa:run1-7")
    assert (job.account, job.qos, job.partition, job.constraint) == ("acc", "high", "debug", "ib")
    assert (job.cores, job.nodes, job.gpus, job.memory_bytes, job.held) == (56, 2, 1, 5, True)
    assert job.environment.pop("SLURM_SUBMIT_HOST")
    assert job.environment == {"A": "1", "SLURM_SUBMIT_DIR": str(site.folder)}
    assert job.folder == str(site.folder)
    backend.submit(spec(name="fit model/2", token="run1-7"))
    assert job.stdout.startswith(f"{site.folder}/logs/fit_model_2.run1-7-")
    assert site.link.submitted[-1].stdout != job.stdout, "twins write elsewhere"
    assert (site.folder / "scripts" / "fit_model_2.run1-7.sh").read_text() == site.link.submitted[-1].script


@pytest.mark.parametrize(
    "change",
    [
        {"cores": 113},
        {"cores": 0},
        {"walltime_s": 0.0},
        {"walltime_s": float("nan")},
        {"walltime_s": 49 * HOUR},
        {"token": "a b"},
        {"command": "echo \0"},
        {"command": "x" * 5_000_000},
        {"posts": ("x" * 300,)},
    ],
)
def test_what_can_never_run_is_refused_before_slurm_hears_of_it(world, change):
    site = world()
    with pytest.raises(SubmitRejectedError):
        site.client().submit(spec(**change))
    assert site.link.calls.total() == 0


def test_a_job_counts_before_slurm_lists_it(world):
    site = world(listing_delay_s=7.0)
    backend = site.client()
    job = backend.submit(spec())
    assert backend.status([job])[job].state is JobState.PENDING
    assert backend.wait(backend.now() + 5) == [], "that it is not listed yet is no change"
    assert backend.status([job])[job].state is JobState.PENDING
    assert ended(backend, job).state is JobState.COMPLETED


def test_a_full_disk_keeps_a_job_from_being_submitted(world, monkeypatch):
    site = world()
    backend = site.client()
    (site.folder / "scripts").rmdir()
    with pytest.raises(UnavailableError, match="cannot be written"):
        backend.submit(spec())
    assert site.link.calls["submit"] == 0


def test_errors_of_the_link_pass_through(world):
    site = world()
    backend = site.client()
    site.link.in_doubt = True
    with pytest.raises(SubmitInDoubtError):
        backend.submit(spec(token="a"))
    site.link.down = True
    with pytest.raises(UnavailableError):
        backend.submit(spec(token="b"))
    with pytest.raises(UnavailableError):
        backend.cancel("1")
    with pytest.raises(UnavailableError):
        backend.find(["a"])
    with pytest.raises(UnavailableError):
        backend.status(["1"])


# ---------------------------------------------------------------------- dependencies


@pytest.mark.parametrize("kind", DependencyType)
def test_a_dependency_on_a_job_that_slurm_forgot_is_never_passed_on(world, kind):
    """22.05 would drop it and start the job at once."""
    site = world(drops_unknown=True, min_job_age_s=300.0)
    backend = site.client()
    first = backend.submit(spec(token="first"))
    assert ended(backend, first).state is JobState.COMPLETED
    site.clock.sleep(1000)
    assert first not in site.link.controller
    second = backend.submit(spec(dependencies=(Dependency(first, kind),)))
    assert site.link.submitted[-1].dependency == ""
    assert ended(backend, second).start_s > site.link.all[first].end_s


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("accounting", [True, False])
def test_a_new_client_asks_accounting_and_the_marks_before_it_believes_a_forgotten_job(world, marks, accounting):
    site = world(drops_unknown=True, writes_marks=marks, accounting=accounting)
    first = site.client().submit(spec(token="first"))
    site.clock.sleep(1000)
    backend = site.client()
    if marks or accounting:
        second = backend.submit(spec(dependencies=(Dependency(first),)))
        assert ended(backend, second).state is JobState.COMPLETED
    else:
        for _ in range(3):  # it may be the controller that has just come back
            with pytest.raises(UnavailableError, match=f"job {first}"):
                backend.submit(spec(dependencies=(Dependency(first),)))
            site.clock.sleep(21)
        backend.wait(backend.now() + 60)
        with pytest.raises(SubmitRejectedError, match=f"job {first}"):
            backend.submit(spec(dependencies=(Dependency(first),)))
        assert len(site.link.submitted) == 1


def test_a_job_that_accounting_might_know_is_not_given_up_while_it_cannot_be_asked(world):
    site = world(accounting=True)
    first = site.client().submit(spec(token="first"))
    site.clock.sleep(1000)
    (site.folder / "jobs" / first).unlink()
    site.link.past_down = True
    backend = site.client()
    with pytest.raises(UnavailableError, match="accounting"):
        backend.status([first])
    with pytest.raises(UnavailableError, match="accounting"):
        backend.submit(spec(dependencies=(Dependency(first),)))
    site.link.past_down = False
    assert ended(backend, backend.submit(spec(dependencies=(Dependency(first),)))).state is JobState.COMPLETED


def test_an_id_that_nobody_knows_is_refused(world):
    site = world(drops_unknown=True)
    with pytest.raises(SubmitRejectedError, match="77"):
        site.client().submit(spec(dependencies=(Dependency("77"),)))
    assert not site.link.submitted


def test_a_failed_predecessor_is_named(world):
    site = world()
    backend = site.client()
    first = backend.submit(spec(command="exit 4"))
    ended(backend, first)
    with pytest.raises(SubmitRejectedError, match=f"job {first}.*failed"):
        backend.submit(spec(dependencies=(Dependency(first),)))
    anyway = backend.submit(spec(dependencies=(Dependency(first, DependencyType.AFTERANY),)))
    assert ended(backend, anyway).state is JobState.COMPLETED


def test_a_dependency_is_passed_on_after_a_look_at_what_it_names(world):
    """A predecessor that failed since the last look is noticed."""
    site = world()
    backend = site.client(poll_s=30.0)
    first = backend.submit(spec(command="sleep 5; exit 1"))
    site.clock.sleep(8)
    with pytest.raises(SubmitRejectedError):
        backend.submit(spec(dependencies=(Dependency(first),)))


def test_a_job_is_refused_for_now_if_what_it_depends_on_was_forgotten_meanwhile(world, monkeypatch):
    """It took long to submit it, and Slurm knew the other no more."""
    site = world(min_job_age_s=5.0)
    backend = site.client()
    first = backend.submit(spec(30.0, token="first"))
    submit = site.link.submit

    def slowly(job):
        site.clock.sleep(100)
        return submit(job)

    monkeypatch.setattr(site.link, "submit", slowly)
    second = spec(dependencies=(Dependency(first),))
    with pytest.raises(SubmitDeferredError, match=f"job {first}, which it depends on, ended"):
        backend.submit(second)
    assert ended(backend, backend.submit(second)).state is JobState.COMPLETED


def test_without_a_look_nothing_that_depends_is_submitted(world):
    site = world()
    backend = site.client()
    first = backend.submit(spec())
    site.clock.sleep(10)
    site.link.down = True
    with pytest.raises(UnavailableError):
        backend.submit(spec(dependencies=(Dependency(first),)))


def test_after_becomes_a_begin_time_once_the_other_started(world):
    site = world()
    backend = site.client()
    first = backend.submit(spec(1000.0))
    waiting = backend.submit(spec(dependencies=(Dependency(first, DependencyType.AFTER, 90.0),)))
    assert site.link.submitted[-1].dependency == f"after:{first}+2", "Slurm delays by whole minutes"
    running(backend, first)
    start = backend.status([first])[first].start_s
    soon = backend.submit(spec(dependencies=(Dependency(first, DependencyType.AFTER, 90.0),)))
    job = site.link.submitted[-1]
    assert (job.dependency, job.begin_s) == ("", start + 90)
    assert ended(backend, soon).start_s >= start + 90
    assert ended(backend, waiting).start_s >= start + 90
    backend.submit(spec(dependencies=(Dependency(first, DependencyType.AFTER, 90.0),)))
    assert site.link.submitted[-1].begin_s is None, "it is over"


def test_an_end_is_enough_where_a_long_delay_is_left(world):
    """Slurm is told of both; a short delay is a begin time, to the second."""
    site = world()
    backend = site.client()
    first = backend.submit(spec(1000.0))
    running(backend, first)
    start = backend.status([first])[first].start_s
    waiting = backend.submit(spec(dependencies=(Dependency(first, DependencyType.AFTER, 5000.0, or_end=True),)))
    assert site.link.submitted[-1].dependency == f"after:{first}+84?afterany:{first}"
    backend.submit(spec(dependencies=(Dependency(first, DependencyType.AFTER, 200.0, or_end=True),)))
    assert (site.link.submitted[-1].dependency, site.link.submitted[-1].begin_s) == ("", start + 200)
    assert ended(backend, waiting).start_s < start + 1100
    backend.submit(spec(dependencies=(Dependency(first, DependencyType.AFTER, 5000.0, or_end=True),)))
    assert (site.link.submitted[-1].dependency, site.link.submitted[-1].begin_s) == ("", None), "it has ended"


@pytest.mark.parametrize("kind", DependencyType)
def test_a_job_that_slurm_lets_go_too_early_is_cancelled(world, kind):
    site = world(latency_s=3.0)
    backend = site.client()
    first = backend.submit(spec(5000.0, held=kind is DependencyType.AFTER))
    site.link.ignores_dependencies = True
    second = backend.submit(spec(2000.0, dependencies=(Dependency(first, kind, 0.0),)))
    status = ended(backend, second)
    assert (status.state, status.reason) == (JobState.FAILED, "DependencyIgnored")
    assert site.link.all[second].state == "CANCELLED"
    assert site.link.all[first].state != "CANCELLED"
    assert backend.advice(status.reason).meaning


def test_a_job_that_slurm_lets_go_too_early_is_cancelled_once_slurm_shows_whose_it_is(world, monkeypatch):
    """An answer that is empty says nothing of it."""
    site = world()
    backend = site.client()
    first = backend.submit(spec(5000.0))
    site.link.ignores_dependencies = True
    second = backend.submit(spec(2000.0, dependencies=(Dependency(first, DependencyType.AFTEROK, 0.0),)))
    holders, answers = site.link.holders, [[], []]
    monkeypatch.setattr(site.link, "holders", lambda job_ids: answers.pop() if answers else holders(job_ids))
    assert ended(backend, second).reason == "DependencyIgnored"
    assert not answers
    assert site.link.all[second].state == "CANCELLED"


def test_a_dependency_that_is_met_while_slurm_answers_is_no_reason_to_cancel(world):
    """The dependent is seen running in a look that still shows the other as running."""
    site = world(latency_s=0.0)
    backend = site.client()
    first = backend.submit(spec(50.0))
    second = backend.submit(spec(2000.0, dependencies=(Dependency(first),)))
    running(backend, first)
    site.clock.sleep(60)
    real, stale = (
        site.link.jobs,
        {first: replace(site.link.record(site.link.all[first]), states=("RUNNING",), end_s=None)},
    )
    site.link.jobs = lambda ids: real(ids) | {i: stale.pop(i) for i in list(stale) if i in ids and len(ids) > 1}
    running(backend, second)
    assert not stale
    assert site.link.calls["cancel"] == 0
    assert ended(backend, second).state is JobState.COMPLETED


@pytest.mark.parametrize("word", ["SIGNALING", "STAGE_OUT", "FROBNICATING"])
def test_a_job_that_slurm_still_keeps_back_was_not_released_whatever_its_state_is_called(world, word):
    site = world(latency_s=0.0)
    backend = site.client()
    first = backend.submit(spec(50.0))
    second = backend.submit(spec(2000.0, dependencies=(Dependency(first),)))
    running(backend, first)
    real = site.link.jobs

    def odd(ids):
        records = real(ids)
        if (record := records.get(second)) is not None and record.states == ("PENDING",):
            records[second] = replace(record, states=(word,), dependency=f"afterok:{first}(unfulfilled)")
        return records

    site.link.jobs = odd
    site.clock.sleep(20)
    backend.status([second])
    assert site.link.calls["cancel"] == 0
    assert ended(backend, second).state is JobState.COMPLETED


# ---------------------------------------------------------------------- states


RECORD = SlurmRecord(
    "1", "fit.a", "me", ("RUNNING",), BEGIN_S, eligible_s=BEGIN_S, start_s=BEGIN_S + 5, comment="asa:a"
)


def told(world, *records, **options):
    """Pass records to a client one after the other; return its last status."""
    site = world(**options)
    backend = site.client()
    job = backend.submit(spec(token="a"))
    for record in records:
        site.link.jobs = lambda ids, record=record: {job: record}
        site.clock.sleep(30)
        status = backend.status([job])[job]
    return status, backend


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (("PENDING",), JobState.PENDING),
        (("CONFIGURING",), JobState.RUNNING),
        (("RUNNING", "CONFIGURING"), JobState.RUNNING),
        (("SUSPENDED",), JobState.RUNNING),
        (("RUNNING", "STOPPED"), JobState.RUNNING),
        (("SIGNALING",), JobState.RUNNING),
        (("RUNNING", "RESIZING"), JobState.RUNNING),
        (("COMPLETED", "STAGE_OUT"), JobState.RUNNING),
        (("COMPLETING",), JobState.RUNNING),
        (("CANCELLED", "COMPLETING"), JobState.RUNNING),
        (("PENDING", "COMPLETING"), JobState.PENDING),
        (("NODE_FAIL", "REQUEUED"), JobState.PENDING),
        (("REQUEUE_HOLD",), JobState.PENDING),
        (("PENDING", "SPECIAL_EXIT"), JobState.PENDING),
        (("RUNNING", "SOMETHING_NEW"), JobState.RUNNING),
        (("COMPLETED",), JobState.COMPLETED),
        (("FAILED",), JobState.FAILED),
        (("NODE_FAIL",), JobState.FAILED),
        (("BOOT_FAIL",), JobState.FAILED),
        (("OUT_OF_MEMORY",), JobState.FAILED),
        (("DEADLINE",), JobState.FAILED),
        (("PREEMPTED",), JobState.FAILED),
        (("LAUNCH_FAILED",), JobState.FAILED),
        (("TIMEOUT",), JobState.TIMEOUT),
        (("CANCELLED",), JobState.CANCELLED),
        (("PENDING", "REVOKED"), JobState.CANCELLED),
    ],
)
def test_states(world, states, state):
    end_s = BEGIN_S + 20 if state.is_final else None
    status, _ = told(world, replace(RECORD, states=states, end_s=end_s))
    assert status.state is state
    if state in (JobState.FAILED, JobState.TIMEOUT):
        assert status.reason == states[0], "the state is the reason where Slurm gave none"


def test_an_unknown_state_is_shown_and_freezes_nothing(world):
    status, backend = told(world, RECORD, replace(RECORD, states=("RUNNING", "FROBNICATED"), reason="Because"))
    assert (status.state, status.reason) == (JobState.RUNNING, "FROBNICATED (Because)")
    assert backend.condition.trouble == ""
    backend._link.jobs = lambda ids: {"1": replace(RECORD, states=("FAILED", "FROBNICATED"), end_s=BEGIN_S + 90)}
    [status] = backend.wait(backend.now() + 100)
    assert (status.state, status.reason) == (JobState.FAILED, "FROBNICATED")


def test_completed_with_an_exit_code_is_failed(world):
    status, _ = told(world, replace(RECORD, states=("COMPLETED",), exit_code=3, end_s=BEGIN_S + 9))
    assert (status.state, status.exit_code) == (JobState.FAILED, 3)


def test_a_signal_is_told_as_shells_do(world):
    status, _ = told(world, replace(RECORD, states=("FAILED",), exit_code=0, signal=9, end_s=BEGIN_S + 9))
    assert status.exit_code == 137


def test_times_are_in_order_whatever_slurm_says(world):
    for eligible_s in (0, None, BEGIN_S - 50, BEGIN_S + 500):
        record = replace(RECORD, states=("COMPLETED",), eligible_s=eligible_s, end_s=BEGIN_S + 9, exit_code=0)
        status, _ = told(world, record)
        times = [status.submit_s, status.eligible_s, status.start_s, status.end_s]
        assert times == sorted(times)


def test_a_job_that_was_cancelled_in_the_queue_never_started(world):
    """Slurm dates its start when it was cancelled."""
    at_s = BEGIN_S + 20
    status, _ = told(world, replace(RECORD, states=("CANCELLED",), start_s=at_s, end_s=at_s))
    assert (status.start_s, status.payload_start_s, status.end_s) == (None, None, at_s)
    assert status.eligible_s == BEGIN_S, "it queued all the time"


@pytest.mark.parametrize(
    ("reason", "told_reason"),
    [
        ("Priority", "CANCELLED"),
        ("Resources", "CANCELLED"),
        ("Dependency", "CANCELLED"),
        ("AssocGrpCpuLimit", "CANCELLED"),
        ("JobHeldUser", "CANCELLED"),
        ("None", ""),
        ("DependencyNeverSatisfied", "DependencyNeverSatisfied"),
    ],
)
def test_why_a_job_was_pending_is_not_why_it_was_cancelled(world, reason, told_reason):
    """Otherwise the explanation of a cancelled job would be that it starts by itself."""
    at_s = BEGIN_S + 20
    status, _ = told(world, replace(RECORD, states=("CANCELLED",), reason=reason, start_s=at_s, end_s=at_s))
    assert status.reason == told_reason
    assert "starts by itself" not in advice(status.reason).remedy


def test_what_keeps_a_job_back_keeps_it_from_being_eligible(world):
    pending = replace(RECORD, states=("PENDING",), start_s=None)
    for reason in ("Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", "BeginTime"):
        status, _ = told(world, replace(pending, reason=reason))
        assert (status.eligible_s, status.reason) == (None, reason)
    status, _ = told(world, replace(pending, reason="Priority", expected_start_s=BEGIN_S + 99))
    assert (status.eligible_s, status.expected_start_s) == (BEGIN_S, BEGIN_S + 99)
    status, _ = told(world, replace(pending, eligible_s=BEGIN_S + HOUR))
    assert status.eligible_s is None, "a begin time that is to come"


def test_a_requeue_is_told(world):
    site = world()
    backend = site.client()
    job = backend.submit(spec(1000.0, token="a"))
    running(backend, job)
    site.link.requeue(job)
    site.link.latency_s = 100
    [status] = backend.wait(None)
    assert (status.state, status.restarts, status.start_s) == (JobState.PENDING, 1, None)
    status = ended(backend, job)
    assert (status.state, status.restarts) == (JobState.COMPLETED, 1)


def test_a_job_that_somebody_else_held_is_marked_for_good(world):
    site = world(latency_s=200.0)
    backend = site.client()
    job = backend.submit(spec())
    backend.wait(backend.now() + 20)
    site.link.hold_by_admin(job)
    backend.wait(backend.now() + 50)
    status = backend.status([job])[job]
    assert (status.held, status.eligible_s) == (True, None)
    site.link.all[job].held = ""
    assert ended(backend, job).held


def test_ones_own_hold_is_no_meddling(world):
    site = world()
    backend = site.client()
    job = backend.submit(spec(held=True))
    backend.wait(backend.now() + 100)
    site.clock.sleep(100)
    backend.release(job)
    backend.hold(job)
    backend.wait(backend.now() + 100)
    site.clock.sleep(100)
    backend.release(job)
    status = ended(backend, job)
    assert not status.held
    assert status.eligible_s >= status.submit_s + 200


def test_a_twin_is_told_as_one(world):
    site = world()
    backend = site.client()
    marks = site.folder / "marks" / "a"
    marks.mkdir()
    (marks / "claim").symlink_to("99")
    twin = backend.submit(spec(token="a", command="exit 86"))
    own = backend.submit(spec(token="b", command="exit 86"))
    assert (ended(backend, twin).state, ended(backend, twin).reason) == (JobState.FAILED, "Twin")
    assert ended(backend, own).reason == "NonZeroExitCode", "a payload may end as it likes"


def test_a_payload_that_awaits_begins_when_its_mark_says(world):
    site = world()
    backend = site.client()
    first = backend.submit(spec(300.0, posts=("x/y",)))
    waiting = backend.submit(spec(awaits=("x/y",)))
    running(backend, waiting)
    assert backend.status([waiting])[waiting].payload_start_s is None
    ended(backend, first)
    status = ended(backend, waiting)
    assert status.start_s < backend.status([first])[first].end_s <= status.payload_start_s < status.end_s


# ---------------------------------------------------------------------- jobs that Slurm forgot


@pytest.mark.parametrize("code", [0, 3])
def test_the_marks_tell_how_a_forgotten_job_ended(world, code):
    site = world(min_job_age_s=5.0)
    backend = site.client(poll_s=60.0)
    job = backend.submit(spec(token="a", command=f"sleep 50; exit {code}"))
    backend.wait(backend.now() + 10)
    site.clock.sleep(500)
    status = backend.status([job])[job]
    assert status.state is (JobState.FAILED if code else JobState.COMPLETED)
    assert status.exit_code == code
    assert status.submit_s <= status.eligible_s <= status.start_s <= status.end_s == site.link.all[job].end_s


def test_a_forgotten_job_whose_script_says_so_has_not_begun_its_payload(world):
    """It had its cores, and the client cancelled it before its payload began."""
    site = world(min_job_age_s=5.0)
    backend = site.client(poll_s=60.0)
    job = backend.submit(spec(token="a", awaits=("posted",)))
    running(backend, job)
    assert backend.withdraw(job)
    (site.link.folder / "posts" / "posted").touch()
    site.clock.sleep(500)
    status = backend.status([job])[job]
    assert (status.state, status.exit_code, status.payload_start_s) == (
        JobState.FAILED,
        JobOutcome.GAVE_BACK.exit_code,
        None,
    )


def test_accounting_tells_how_a_forgotten_job_ended(world):
    site = world(min_job_age_s=5.0, accounting=True, writes_marks=False)
    backend = site.client(poll_s=60.0)
    job = backend.submit(spec(command="sleep 9; exit 3"))
    site.clock.sleep(500)
    assert backend.status([job])[job].exit_code == 3


def test_without_evidence_a_job_vanishes_only_after_a_while(world):
    site = world(writes_marks=False)
    backend = site.client()
    job, other = backend.submit(spec(5000.0)), backend.submit(spec(5000.0))
    running(backend, job)
    lost = site.link.forget(job)
    since = backend.now()
    [status] = backend.wait(None)
    assert (status.job_id, status.state, status.reason) == (job, JobState.FAILED, "Vanished")
    assert backend.now() - since >= 60
    assert backend.status([other])[other].state is JobState.RUNNING, "the others are none the worse"
    assert lost.state == "RUNNING"


def test_a_job_that_began_runs_until_its_walltime_is_over(world):
    """Even if the controller does not know it, and nothing else shows its end."""
    site = world()
    backend = site.client()
    job = backend.submit(spec(5000.0))
    running(backend, job)
    began_s = backend.status([job])[job].start_s
    site.link.forget(job)
    [status] = backend.wait(None)
    assert (status.state, status.reason, status.start_s) == (JobState.RUNNING, "NotShown", began_s)
    [again] = site.client().status([job]).values()
    assert (again.state, again.reason, again.start_s) == (JobState.RUNNING, "NotShown", began_s)
    [status] = backend.wait(None)
    assert (status.state, status.reason) == (JobState.FAILED, "Vanished")
    assert HOUR <= status.end_s - began_s < HOUR + 700


@pytest.mark.parametrize("knows_walltime", [True, False])
def test_a_job_that_nothing_was_kept_of_does_not_run_for_ever(world, knows_walltime):
    """Its client was killed between the answer of Slurm and its own note; the job began, and its node died."""
    site = world()
    backend = site.client()
    job = backend.submit(spec(5000.0, token="a"))
    running(backend, job)
    (site.folder / "jobs" / job).unlink()
    [script] = (site.folder / "scripts").iterdir()
    if not knows_walltime:
        script.write_text("".join(line for line in script.read_text().splitlines(True) if "walltime" not in line))
    site.link.forget(job)
    began_s = site.clock()
    [status] = site.client().find(["a"])["a"]
    while not status.state.is_final:
        assert site.clock() - began_s < 2 * DAY
        site.clock.sleep(600)
        [status] = site.client().status([job]).values()
    assert (status.state, status.reason) == (JobState.FAILED, "Vanished")
    assert site.clock() - began_s == pytest.approx(HOUR if knows_walltime else DAY, abs=1800)


def test_a_job_whose_number_is_a_strangers_is_soon_known_to_be_gone(world):
    """It was sent to another cluster; here a stranger's job has its number, which is neither shown nor denied."""
    site = world()
    site.client().submit(spec(5000.0, token="first"))
    job = site.client().submit(spec(100.0, token="a", held=True))
    site.client().status([job])
    site.link.forget(job)
    site.link.foreign.append(foreign_record(int(job), user="eve"))
    lost_s = site.clock()
    state, _ = looks_once(site, job, every_s=20.0)
    assert state is JobState.FAILED
    assert 60 <= site.clock() - lost_s < 200


def test_a_suspension_is_known_to_clients_that_look_once(world):
    """A job that was suspended may end later than its walltime says, though Slurm does not show it then."""
    site = world()
    job = site.client().submit(spec(5000.0, token="a"))
    running(site.client(), job)
    site.link.all[job].state, site.link._tick = "SUSPENDED", lambda _: None
    for _ in range(12):
        site.clock.sleep(600)
        assert site.client().status([job])[job].state is JobState.RUNNING
    site.link.forget(job)
    seen = []
    for _ in range(8):
        site.clock.sleep(600)
        seen.append(site.client().status([job])[job].state)
    assert seen == [JobState.RUNNING] * 6 + [JobState.FAILED] * 2


def test_a_suspension_of_an_element_is_known_to_clients_that_look_once(world):
    site = world()
    job = site.client().submit(spec(5000.0, token="a", array=parse_array("1-2")))
    running(site.client(), job)
    raw = site.link.arrays_of[job]
    site.link.all[raw[0]].state, site.link._tick = "SUSPENDED", lambda _: None
    for _ in range(12):
        site.clock.sleep(600)
        site.client().status([job])
    for one in raw:
        site.link.forget(one)
    site.link.arrays_of.clear()
    lost_s = site.clock()
    assert looks_once(site, job, every_s=600.0) == (JobState.FAILED, "Vanished")
    assert HOUR - 600 <= site.clock() - lost_s < HOUR + 1300


@pytest.mark.parametrize("writes_marks", [True, False])
def test_a_job_that_only_accounting_knows_runs_on(world, writes_marks):
    site = world(accounting=True, writes_marks=writes_marks)
    backend = site.client()
    job = backend.submit(spec(1000.0))
    running(backend, job)
    jobs = site.link.jobs
    site.link.jobs = lambda _: {}
    backend.wait(backend.now() + 400)
    assert (backend.status([job])[job].state, backend.status([job])[job].reason) == (JobState.RUNNING, "NotShown")
    site.link.jobs = jobs
    assert ended(backend, job).state is JobState.COMPLETED


def test_a_job_that_is_taken_to_run_and_cancelled_has_ended_a_minute_later(world):
    """Where the controller says that it does not know the job, which had no time to say that it ended."""
    site = world()
    backend = site.client()
    job = backend.submit(spec(5000.0, token="a"))
    running(backend, job)
    site.link.forget(job)
    backend.wait(None)
    assert backend.status([job])[job].reason == "NotShown"
    cancelled_s = site.clock()
    backend.cancel(job)
    seen = []
    while JobState.CANCELLED not in seen:  # by a new client each time
        site.clock.sleep(20)
        seen.append(site.client().status([job])[job].state)
        assert site.clock() - cancelled_s < 200
    assert set(seen) == {JobState.RUNNING, JobState.CANCELLED}


@pytest.mark.parametrize("accounting", [True, False])
def test_an_array_that_is_not_shown_goes_on(world, accounting):
    """Its running and its pending elements, though several looks in a row show nothing."""
    site = world(accounting=accounting)
    backend = site.client()
    job = backend.submit(spec(1000.0, token="a", array=parse_array("1-4%2")))
    running(backend, job)
    holders, site.link.holders = site.link.holders, lambda _: []
    backend.wait(backend.now() + 400)
    [status] = backend.status([job]).values()
    assert (status.state, str(status.elements.running)) == (JobState.RUNNING, "1-2")
    assert not status.elements.ended
    site.link.holders = holders
    assert ended(backend, job).state is JobState.COMPLETED


def test_what_the_controller_does_not_deny_is_waited_for(world):
    site = world()
    backend = site.client()
    job = backend.submit(spec(100.0, held=True))
    jobs, site.link.jobs = site.link.jobs, lambda _: {}
    backend.wait(backend.now() + 400)
    assert backend.status([job])[job].state is JobState.PENDING
    site.link.jobs = jobs
    backend.release(job)
    assert ended(backend, job).state is JobState.COMPLETED


def test_a_job_that_is_there_by_another_number_takes_the_place_of_one_that_is_gone(world):
    site = world()
    backend = site.client()
    job = backend.submit(spec(5000.0, token="a", held=True))
    twin = site.client().submit(spec(5000.0, token="a", held=True))
    site.link.forget(job)
    [status] = backend.wait(None)
    assert (status.job_id, status.state, status.reason) == (job, JobState.FAILED, "Twin")
    assert twin in [one.job_id for one in backend.find(["a"])["a"] if not one.state.is_final]


def test_a_job_that_comes_back_has_not_vanished(world):
    site = world()
    backend = site.client()
    job = backend.submit(spec(2000.0))
    running(backend, job)
    lost = site.link.forget(job)
    backend.wait(backend.now() + 40)
    site.link.all[job] = lost
    backend.wait(backend.now() + 40)
    site.link.forget(job)
    backend.wait(backend.now() + 40)
    assert backend.status([job])[job].state is JobState.RUNNING
    site.link.all[job] = lost
    assert ended(backend, job).state is JobState.COMPLETED


def test_while_accounting_is_away_no_job_vanishes(world):
    site = world(accounting=True, writes_marks=False)
    backend = site.client()
    job = backend.submit(spec(100.0))
    site.link.past_down = True
    site.clock.sleep(1000)
    assert backend.wait(backend.now() + HOUR) == []
    assert "slurmdbd" in backend.condition.trouble
    site.link.past_down = False
    assert ended(backend, job).state is JobState.COMPLETED


@pytest.mark.parametrize("is_later_client", [False, True])
def test_a_number_that_was_cut_off_is_in_doubt(world, monkeypatch, is_later_client):
    """The part that arrived may be the number of an earlier job; the job is found by its token."""
    site = world()
    backend = site.client()
    first = backend.submit(spec(50.0, token="a"))
    backend = site.client() if is_later_client else backend
    submit = site.link.submit
    for token, wrong in (("b", first), ("c", "1")):
        monkeypatch.setattr(site.link, "submit", lambda job, wrong=wrong: wrong if submit(job) else "")
        with pytest.raises(
            SubmitInDoubtError, match=f"the number that was answered, {wrong}, is not known to be its own"
        ):
            backend.submit(spec(50.0, token=token))
        monkeypatch.setattr(site.link, "submit", submit)
        (found,) = backend.find([token])[token]
        assert found.job_id not in (first, wrong)
    assert backend.status([first])[first].state is not JobState.FAILED


@pytest.mark.parametrize("array", [None, "1-3"])
@pytest.mark.parametrize("has_ended", [False, True])
def test_a_wrong_number_gives_way_to_the_job_itself(world, monkeypatch, array, has_ended):
    """Slurm shows another job by the number that was answered; the job is found by its name."""
    site = world()
    backend, submit, wrong = site.client(), site.link.submit, "900"
    backend.submit(spec(900.0, token="first"))
    site.link.foreign.append(foreign_record(wrong, name="theirs", user="eve", submit_s=BEGIN_S))
    right = []
    monkeypatch.setattr(site.link, "submit", lambda job: right.append(submit(job)) or wrong)
    run_s = 5.0 if has_ended else 500.0
    assert backend.submit(spec(run_s, token="a", array=parse_array(array) if array else None)) == wrong
    monkeypatch.setattr(site.link, "submit", submit)
    for _ in range(4):
        site.clock.sleep(20)
        backend.wait(backend.now() + 5)
    assert backend.status([wrong])[wrong].reason == "Twin"
    for client in (backend, site.client()):
        assert [status.job_id for status in client.find(["a"])["a"]] == right
    assert site.link.calls["cancel"] == 0


def test_a_number_that_is_used_again_is_not_ours(world):
    site = world(min_job_age_s=5.0)
    backend = site.client()
    backend.submit(spec(1.0, token="first"))  # whose number tells that numbers did not begin anew
    job = backend.submit(spec(50.0, token="a"))
    site.clock.sleep(500)
    site.link._advance()
    theirs = replace(site.link.all[job].job, name="theirs", comment="")
    site.link.all[job] = replace(site.link.all[job], job=theirs, state="RUNNING", end_s=None, start_s=site.link._now_s)
    assert backend.status([job])[job].state is JobState.COMPLETED, "by its mark"
    assert site.client().status([job])[job].state is JobState.COMPLETED, "a client that comes later knows it, too"


@pytest.mark.parametrize("had_begun", [True, False])
def test_a_cancelled_job_that_slurm_forgot_was_cancelled(world, had_begun):
    """If it had begun, its script gets some time to write how it ended."""
    site = world()
    backend = site.client()
    job = backend.submit(spec(5000.0, held=not had_begun))
    if had_begun:
        running(backend, job)
    backend.cancel(job)
    site.link.forget(job)
    cancelled_s = site.clock()
    assert ended(backend, job).state is JobState.CANCELLED
    assert (site.clock() - cancelled_s >= 60) is had_begun


# ---------------------------------------------------------------------- clients that come and go


def test_a_client_that_comes_later_knows_the_jobs(world):
    site = world()
    first = site.client()
    jobs = [first.submit(spec(100.0, token="a")), first.submit(spec(5000.0, awaits=("never",)))]
    site.clock.sleep(300)
    backend = site.client()
    told = backend.status(jobs)
    assert told[jobs[0]].state is JobState.COMPLETED
    assert (told[jobs[1]].state, told[jobs[1]].payload_start_s) == (JobState.RUNNING, None)
    backend.cancel(jobs[1])
    assert [s.job_id for s in backend.wait(None)] == [jobs[1]]


def test_a_lost_answer_is_found_by_its_token(world):
    site = world()
    backend = site.client()
    site.link.in_doubt = True
    with pytest.raises(SubmitInDoubtError):
        backend.submit(spec(5000.0, token="lost", awaits=("x",)))
    later = site.client()
    found = later.find(["lost", "never-sent"])
    assert found["never-sent"] == []
    [status] = found["lost"]
    site.clock.sleep(20)
    assert later.status([status.job_id])[status.job_id].payload_start_s is None, "that it awaits is known"
    later.cancel(status.job_id)
    assert [s.state for s in later.wait(None)] == [JobState.CANCELLED], "it is this client's from then on"


@pytest.mark.parametrize(("code", "state"), [(0, JobState.COMPLETED), (4, JobState.FAILED)])
def test_a_job_that_slurm_forgot_before_its_answer_came_is_known_by_its_claim(world, code, state):
    site = world()
    site.link.in_doubt = True
    with pytest.raises(SubmitInDoubtError):
        site.client().submit(spec(command=f"sleep 100; exit {code}", token="lost"))
    site.clock.sleep(1000)
    assert not site.link.controller
    [status] = site.client().find(["lost", "never-sent"])["lost"]
    assert (status.job_id, status.state, status.exit_code) == ("1", state, code)
    assert status.eligible_s is None, "for how long it queued is not known"


def test_of_duplicates_the_one_that_slurm_forgot_may_have_the_payload(world):
    site = world()
    site.link.in_doubt = True
    with pytest.raises(SubmitInDoubtError):
        site.client().submit(spec(token="a"))
    site.clock.sleep(1000)
    assert not site.link.controller
    site.link.in_doubt = False
    backend = site.client()
    twin = backend.submit(spec(token="a"))
    assert [s.job_id for s in backend.find(["a"])["a"]] == ["1", twin]


def test_the_twin_that_has_the_payload_comes_first(world):
    site = world(writes_marks=False)
    backend = site.client()
    older = backend.submit(spec(token="a"))
    site.clock.sleep(5)
    newer = backend.submit(spec(token="a"))
    assert [s.job_id for s in backend.find(["a"])["a"]] == [older, newer]
    (site.folder / "marks" / "a").mkdir()
    (site.folder / "marks" / "a" / "claim").symlink_to(newer)
    assert [s.job_id for s in backend.find(["a"])["a"]] == [newer, older]


def test_a_token_is_found_without_its_folder(world, tmp_path):
    site = world()
    job = site.client().submit(spec(token="a"))
    site.folder = tmp_path / "elsewhere"
    assert [s.job_id for s in site.client().find(["a"])["a"]] == [job]


def test_a_job_just_submitted_is_found_before_it_is_listed(world):
    site = world(listing_delay_s=8.0)
    backend = site.client()
    job = backend.submit(spec(token="a"))
    assert [s.job_id for s in backend.find(["a"])["a"]] == [job]


def test_unknown_jobs(world):
    backend = world().client()
    for job_id in ("12", "no-such-job", ""):
        for ask in (lambda i=job_id: backend.status([i]), lambda i=job_id: backend.cancel(i)):
            with pytest.raises(JobNotFoundError):
                ask()


# ---------------------------------------------------------------------- waiting


def test_a_controller_that_is_away_for_a_while_is_waited_for(world):
    site = world()
    backend = site.client()
    job = backend.submit(spec(500.0))
    running(backend, job)
    heard, looks = backend.condition.heard_s, backend.condition.calls
    site.link.down = True
    assert backend.wait(backend.now() + HOUR) == []
    assert "no controller" in backend.condition.trouble
    assert backend.condition.heard_s <= heard + 10
    assert backend.condition.calls - looks <= 80, "it backs off"
    assert backend.status([job])[job].state is JobState.RUNNING, "what was last heard"
    site.link.down = False
    back = backend.now()
    [status] = backend.wait(None)
    assert status.state is JobState.COMPLETED
    assert backend.now() - back <= 70
    assert backend.condition.trouble == ""


def test_a_quiet_hour_is_quiet(world):
    """Few requests are sent, also among 2,000 jobs of others, and they take the client little time."""
    site = world()
    site.link.foreign = [foreign_record(1000 + i) for i in range(2000)]
    backend = site.client()
    for token in "abcd":
        backend.submit(spec(40 * HOUR, walltime_s=48 * HOUR, token=token))
    backend.wait(backend.now() + 10)
    backend.wait(backend.now() + HOUR)
    calls, cpu_s = backend.condition.calls, time.process_time()
    assert calls <= 110, "the first hour, with its beginning"
    assert backend.wait(backend.now() + HOUR) == []
    looks = backend.condition.calls - calls
    assert 50 <= looks <= 70
    assert (time.process_time() - cpu_s) / looks < 0.05, "most of it is the fake's"
    assert site.link.calls["queue"] == 0


def test_two_looks_are_never_closer_than_they_may_be(world):
    site = world()
    backend = site.client(poll_s=15.0)
    jobs = [backend.submit(spec(run_s, token=f"t{run_s:.0f}")) for run_s in (20.0, 50.0, 90.0)]
    while not all(s.state.is_final for s in backend.status(jobs).values()):
        backend.wait(backend.now() + 1)
        backend.find([])
    assert min(b - a for a, b in itertools.pairwise(site.link.looks_s)) >= 15.0


def test_a_change_is_told_once_and_to_whoever_asks(world):
    site = world()
    backend = site.client()
    one, other = backend.submit(spec(100.0)), backend.submit(spec(5000.0))
    site.clock.sleep(30)
    assert backend.status([one])[one].state is JobState.RUNNING
    assert [s.job_id for s in backend.wait(backend.now())] == [other], "the one is known already"
    assert backend.wait(backend.now() + 20) == []


def test_reasons_that_come_and_go_wake_nobody(world):
    site = world()
    backend = site.client()
    job = backend.submit(spec(token="a"))
    pending = replace(RECORD, states=("PENDING",), start_s=None)
    reasons = itertools.cycle(["Priority", "Resources", ""])
    expected = itertools.count(BEGIN_S)
    site.link.jobs = lambda ids: {job: replace(pending, reason=next(reasons), expected_start_s=next(expected))}
    backend.wait(backend.now() + 10)
    assert backend.wait(backend.now() + 600) == []
    site.link.jobs = lambda ids: {job: replace(pending, reason="QOSMaxJobsPerUserLimit")}
    assert [s.reason for s in backend.wait(None)] == ["QOSMaxJobsPerUserLimit"]


def test_a_nudge_ends_a_wait(world):
    site = world()
    backend = site.client()
    backend.submit(spec(5000.0))
    backend.wait(backend.now() + 30)
    site.clock.nudges.add(site.clock() + 100)
    before = backend.now()
    assert backend.wait(before + HOUR) == []
    assert backend.now() - before < 200


def test_without_live_jobs_there_is_nothing_to_wait_for(world):
    site = world()
    backend = site.client()
    assert backend.wait(None) == []
    before = backend.now()
    assert backend.wait(before + 1000.5) == []
    assert before + 1000.5 <= backend.now() <= before + 1002
    assert site.link.calls.total() == 0


def test_a_clock_that_was_set_back_stops_nothing(world):
    site = world()
    backend = site.client()
    job = backend.submit(spec(100.0))
    running(backend, job)
    record = replace(RECORD, name="fit", comment="", states=("COMPLETED",), exit_code=0, end_s=BEGIN_S + 100)
    site.link.jobs = lambda ids: {job: record}
    site.clock.now_s -= 10 * HOUR
    [status] = backend.wait(None)
    assert status.state is JobState.COMPLETED
    assert backend.now() < BEGIN_S - 9 * HOUR


@pytest.mark.parametrize("skew_s", [-400.3, -0.2, 0.0, 0.4, 7.9, 3600.5])
def test_times_are_slurms(world, skew_s):
    """The offset between the clocks is learned from submissions."""
    site = world(skew_s=skew_s)
    backend = site.client()
    job = backend.submit(spec(100.0))
    running(backend, job)
    assert abs(backend.now() - site.link.now_s) <= 2
    until = backend.now() + 33
    backend.submit(spec(100.0))
    while backend.wait(until):
        pass
    assert until <= backend.now() <= until + 2
    begin = backend.now() + 200
    late = backend.submit(spec(begin_s=begin))
    assert backend.status([late])[late].eligible_s is None
    assert ended(backend, late).start_s >= begin


# ---------------------------------------------------------------------- changes


def test_changes_go_through(world):
    site = world()
    backend = site.client()
    job = backend.submit(spec(5000.0))
    backend.change_walltime(job, 120.0)
    assert ended(backend, job).state is JobState.TIMEOUT
    backend.cancel(job)
    assert site.link.calls["cancel"] == 0, "it has ended"
    other = backend.submit(spec(5000.0))
    backend.shrink(other, 1)
    site.link.changeable = {"held", "walltime_s"}
    with pytest.raises(BackendError):
        backend.shrink(other, 1)
    backend.cancel(other)
    backend.cancel(other)
    assert ended(backend, other).state is JobState.CANCELLED


# ---------------------------------------------------------------------- everybody's jobs


def test_the_queue_is_told_bit_by_bit(world):
    site = world()
    backend = site.client()
    backend.submit(spec(5000.0))
    early = BEGIN_S - 1000
    site.link.foreign = [
        foreign_record(101, submit_s=early, eligible_s=early),
        foreign_record(
            102, states=("RUNNING",), submit_s=early, eligible_s=early + 10, start_s=early + 70, partition="a,b"
        ),
        foreign_record(103, reason="Dependency", eligible_s=None),
        foreign_record(104, reason="BeginTime", eligible_s=BEGIN_S + HOUR),
        foreign_record(105, is_array=True),
        foreign_record(
            106, states=("COMPLETED",), submit_s=early, start_s=BEGIN_S + 1, end_s=BEGIN_S + 2, limit_s=None
        ),
    ]
    events = backend.queue_events(100, ends=True)
    assert [e.time_s for e in events] == sorted(e.time_s for e in events)
    assert [(e.what, e.key) for e in events if e.key == "101"] == [("submitted", "101")]
    assert [(e.what, e.time_s) for e in events if e.key == "102"] == [
        ("submitted", early + 10),
        ("started", early + 70),
    ]
    assert [e.what for e in events if e.key == "106"] == ["submitted", "started", "ended"]
    assert {e.key for e in events} == {"101", "102", "106"}
    jobs = {e.key: e.job for e in events if e.what == "submitted"}
    assert (jobs["102"].partition, jobs["102"].system, jobs["102"].user) == ("a", "testbed", "them")
    assert jobs["106"].walltime_s == 7 * 86400

    assert backend.queue_events(100) == [], "not again so soon"
    site.clock.sleep(300)
    site.link.foreign = [
        foreign_record(
            101, states=("CANCELLED",), submit_s=early, eligible_s=early, start_s=BEGIN_S + 9, end_s=BEGIN_S + 9
        ),
        foreign_record(102, submit_s=BEGIN_S + 30, eligible_s=BEGIN_S + 150, restarts=1),
        foreign_record(103, eligible_s=BEGIN_S + 200),
        foreign_record(106, states=("COMPLETED",), submit_s=early, start_s=BEGIN_S + 1, end_s=BEGIN_S + 2),
    ]
    assert [(e.what, e.key, e.time_s) for e in backend.queue_events(100, ends=True)] == [
        ("left", "101", BEGIN_S + 9),
        ("ended", "102", BEGIN_S + 30),
        ("submitted", "102+1", BEGIN_S + 150),
        ("submitted", "103", BEGIN_S + 200),
    ]


def test_of_the_past_the_latest_are_told(world):
    site = world()
    backend = site.client()
    ran = {"states": ("RUNNING",), "start_s": BEGIN_S + 50}
    site.link.foreign = [foreign_record(i, submit_s=BEGIN_S + i, eligible_s=BEGIN_S + i, **ran) for i in range(20)]
    site.link.foreign += [foreign_record(i) for i in range(20, 23)]
    keys = {e.key for e in backend.queue_events(5)}
    assert keys == {str(i) for i in range(15, 23)}
    assert {e.key for e in site.client().queue_events(5, ends=True)} == {str(i) for i in range(23)}, "all still run"


def test_a_queue_that_cannot_be_seen_is_no_error(world):
    site = world()
    backend = site.client()
    site.link.down = True
    assert backend.queue_events(5) == []
    site.link.down, site.link.foreign = False, [foreign_record(1)]
    assert backend.queue_events(5) == [], "it is not tried again at once"
    site.clock.sleep(60)
    assert len(backend.queue_events(5)) == 1


def test_ones_own_jobs_are_not_everybodys(world):
    site = world()
    site.client().submit(spec(5000.0))
    assert site.client().queue_events(100) == [], "nor those of an earlier client"


# ---------------------------------------------------------------------- what is not known for certain


def unreadable(path, monkeypatch, error=errno.ESTALE):
    """Make reads of one file fail."""
    real = marks.read_file

    def read_file(asked):
        if asked == path:
            raise OSError(error, os.strerror(error))
        return real(asked)

    monkeypatch.setattr(marks, "read_file", read_file)


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.EACCES])
@pytest.mark.parametrize("forgotten", [True, False])
def test_a_job_whose_marks_cannot_be_read_has_not_ended_yet(world, monkeypatch, error, forgotten):
    """Otherwise its payload would seem never to have begun, and would run again."""
    site = world(min_job_age_s=30.0 if forgotten else 300.0)
    backend = site.client()
    job = backend.submit(spec(9999.0, walltime_s=600, awaits=("a",), token="b"))
    running(backend, job)
    (site.folder / "posts" / "a").touch()
    site.clock.sleep(60)
    with monkeypatch.context() as broken:
        unreadable(site.folder / "marks" / "b" / "began", broken, error)
        if forgotten:
            unreadable(site.folder / "marks" / "b" / "ended", broken, error)
        assert backend.status([job])[job].payload_start_s is None
        backend.wait(backend.now() + 750)
        status = backend.status([job])[job]
        assert status.state is JobState.RUNNING
        assert os.strerror(error) in backend.condition.trouble
        if forgotten:
            (site.folder / "marks" / "b" / "ended").write_text(f"job={job}\ntime={backend.now()}\ncode=0\n")
    status = ended(backend, job)
    assert status.state is (JobState.COMPLETED if forgotten else JobState.TIMEOUT)
    assert status.payload_start_s is not None


def test_a_folder_that_is_not_there_says_nothing_of_marks(world):
    """As when a file system is not mounted."""
    site = world()
    backend = site.client()
    job = backend.submit(spec(9999.0, walltime_s=600, awaits=("a",), token="b"))
    running(backend, job)
    (site.folder / "marks").rename(site.folder / "elsewhere")
    site.clock.sleep(700)
    assert backend.status([job])[job].state is JobState.RUNNING
    with pytest.raises(UnavailableError, match="cannot be read"):
        backend.find(["b"])
    (site.folder / "elsewhere").rename(site.folder / "marks")
    assert ended(backend, job).state is JobState.TIMEOUT


def test_a_hold_that_nobody_saw_shows_in_a_late_eligibility(world):
    late = replace(RECORD, eligible_s=BEGIN_S + 500, start_s=BEGIN_S + 900)
    assert told(world, late)[0].held


@pytest.mark.parametrize("ours", [{"begin_s": BEGIN_S + 400}, {"held": True}])
def test_what_we_kept_back_ourselves_was_no_hold_of_others(world, ours):
    site = world()
    backend = site.client()
    job = backend.submit(spec(**ours))
    site.clock.sleep(500)
    if "held" in ours:
        backend.release(job)
    assert not ended(backend, job).held


def test_a_record_without_a_date_says_nothing_of_the_clock(world):
    status, backend = told(world, replace(RECORD, submit_s=0.0))
    assert backend.now() == backend._clock()
    assert status.submit_s == BEGIN_S


def test_a_job_that_may_not_be_cancelled_is_tried_again(world, monkeypatch):
    site = world(latency_s=3.0)
    backend = site.client()
    first = backend.submit(spec(5000.0))
    site.link.ignores_dependencies = True
    second = backend.submit(spec(2000.0, dependencies=(Dependency(first),)))
    cancel = site.link.cancel

    def refuse(job_id):
        raise BackendError("Access/permission denied")

    monkeypatch.setattr(site.link, "cancel", refuse)
    site.clock.sleep(10)
    assert backend.status([second])[second].state is JobState.RUNNING
    backend.submit(spec(dependencies=(Dependency(first),)))
    assert "permission" in backend.condition.trouble
    monkeypatch.setattr(site.link, "cancel", cancel)
    assert ended(backend, second).reason == "DependencyIgnored"


@pytest.mark.parametrize(
    ("user", "comment", "found"),
    [
        ("them", "asa:a", False),
        ("me", "mine", False),
        ("me", "asa:a", True),
        ("me", "asa:a align sample=B", True),
        ("me", "asa:ab align sample=B", False),
    ],
)
def test_a_job_of_our_name_may_be_somebody_elses(world, user, comment, found):
    site = world()
    backend = site.client()
    backend.wait(backend.now() + 5)
    backend.status([backend.submit(spec(token="other"))])
    site.clock.sleep(5)
    backend.wait(backend.now() + 5)
    (site.folder / "scripts" / "fit.a.sh").touch()
    site.link.named = lambda names: [replace(RECORD, job_id="99", user=user, comment=comment)]
    assert bool(backend.find(["a"])["a"]) is found


def test_who_knows_nobody_believes_the_comment_only(world):
    """Such a client has not submitted anything yet."""
    site = world()
    (site.folder / "scripts").mkdir()
    (site.folder / "scripts" / "fit.a.sh").touch()
    records = [replace(RECORD, job_id=str(n), comment=comment) for n, comment in ((7, ""), (8, "asa:a"), (9, "asa:b"))]
    site.link.named = lambda names: records
    assert [status.job_id for status in site.client().find(["a"])["a"]] == ["8"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("align sample=B", "align sample=B"),
        ("", ""),
        ("two\nlines of \u65e5\x1b[2J", r"two\nlines of ?\x1b[2J"),
        ("x" * 2000, "x" * 239),
    ],
)
def test_a_comment_is_the_token_and_what_people_see(world, text, expected):
    """Of which Slurm, and a database of its accounting, take any."""
    site = world()
    site.client().submit(spec(token="run1-7", comment=text))
    assert site.link.submitted[-1].comment == f"asa:run1-7 {expected}".rstrip()


@pytest.mark.parametrize(
    "change",
    [{"command": "cat d\udce9"}, {"awaits": ("\udce9",)}, {"posts": ("\udce9",)}, {"partition": "\udce9"},
     {"name": "\udce9"}, {"steps": (Step("\udce9", "true"),)}, {"steps": (Step("a", "\udce9"),)}],
)  # fmt: skip
def test_what_is_not_utf8_is_refused(world, change):
    site = world()
    with pytest.raises(SubmitRejectedError, match="UTF-8") as error:
        site.client().submit(spec(**change))
    str(error.value).encode()
    assert site.link.calls.total() == 0


def test_a_folder_whose_path_is_not_utf8_is_told(world, tmp_path):
    site = world()
    site.folder = tmp_path / "donn\udce9es"
    with pytest.raises(InputError, match="not UTF-8") as error:
        site.client()
    str(error.value).encode()


def test_slurm_is_asked_for_a_start_of_a_job_that_stands_alone(world):
    site = world()
    backend, site.link.says_s = site.client(), 40.0
    asked = spec(dependencies=(Dependency("7"),), held=True, options=("--nice=5",), token="t")
    assert backend.estimated_start(asked) == site.clock() + 40.0
    assert site_word_s(backend, asked) == 40.0
    job = site.link.estimated[-1]
    assert (job.dependency, job.held, job.comment) == ("", False, "")
    assert (job.options, job.cores, job.walltime_s) == (("--nice=5",), 1, HOUR)
    assert not site.link.all


def test_slurm_is_asked_twelve_times_a_minute_at_most_and_never_of_what_cannot_be(world):
    site = world()
    backend, site.link.says_s = site.client(), 0.0
    assert backend.estimated_start(spec(cores=10_000)) is None
    assert not site.link.estimated
    said = [backend.estimated_start(spec()) for _ in range(20)]
    assert said.count(None) == 8
    site.clock.sleep(60)
    assert backend.estimated_start(spec()) is not None
    site.link.says_s = -30.0
    assert site_word_s(backend, spec()) == 0.0


# ---------------------------------------------------------------------- clients that look once


def looks_once(site, job, every_s=30.0, within=10):
    """Look with a new client each time; give the state in which the job ended, None if it did not."""
    for _ in range(within):
        status = site.client().status([job])[job]
        if status.state.is_final:
            return status.state, status.reason
        site.clock.sleep(every_s)
    return None


@pytest.mark.parametrize("array", ["", "1-3"])
def test_clients_that_look_once_decide_together_that_a_job_has_vanished(world, array):
    site = world()
    job = site.client().submit(spec(5000.0, token="a", held=True, array=parse_array(array) if array else None))
    for lost in site.link.arrays_of.get(job, [job]):
        site.link.forget(lost)
    site.link.arrays_of.clear()
    began_s = site.clock()
    assert looks_once(site, job) == (JobState.FAILED, "Vanished")
    assert site.clock() - began_s >= 60


def test_what_came_back_between_two_of_them_has_not_vanished(world):
    site = world()
    job = site.client().submit(spec(5000.0, token="a", held=True))
    for _ in range(6):
        lost = site.link.forget(job)
        site.clock.sleep(40)
        assert not site.client().status([job])[job].state.is_final
        site.clock.sleep(40)
        assert not site.client().status([job])[job].state.is_final
        site.link.all[job] = lost
        assert not site.client().status([job])[job].state.is_final


@pytest.mark.parametrize("array", ["", "1-3"])
def test_the_next_of_them_knows_that_a_job_was_cancelled_which_slurm_forgot_since(world, array):
    site = world()
    job = site.client().submit(spec(5000.0, token="a", held=True, array=parse_array(array) if array else None))
    first = site.client()
    first.status([job])
    first.cancel(job)
    site.clock.sleep(1000)
    assert not site.link.controller
    assert looks_once(site, job, within=1) == (JobState.CANCELLED, "")


def remembering(site, known):
    """Come as the next client, which is told what earlier ones have recorded, and look."""
    client = site.client()
    client.recall(known.get)
    known |= client.status(known)
    return client


def test_how_elements_ended_is_known_to_the_next_client_when_slurm_has_forgotten_them(world):
    """Their jobs left no marks of their ends; without a record they would be taken to run until their walltime."""
    site = world()
    job = site.client().submit(spec(3000.0, token="a", array=parse_array("1-4")))
    known = {job: None}
    site.clock.sleep(30)
    remembering(site, known)
    site.link.cancel_element(job, 2)
    broken = site.link.all[site.link.arrays_of[job][0]]
    broken.bad_node, broken.ends_as = "n3", "NODE_FAIL"
    site.clock.sleep(10)
    remembering(site, known)
    seen = known[job].elements
    assert [(str(end.elements), end.state, end.nodes) for end in seen.ended] == [
        ("1", JobState.FAILED, ("n3",)), ("2", JobState.CANCELLED, ()),
    ]  # fmt: skip
    site.clock.sleep(site.link.min_job_age_s + 60)
    remembering(site, known)
    assert (known[job].elements, str(seen.running)) == (seen, "3-4")
    site.clock.sleep(3000)
    remembering(site, known)
    assert (known[job].state, str(known[job].elements.completed)) == (JobState.FAILED, "3-4")
    assert known[job].elements.ended == seen.ended
    assert known[job].elements.ran_s == seen.ran_s + 2 * 3000


def test_an_element_that_is_put_back_into_the_queue_is_not_over_for_the_next_client(world):
    site = world()
    job = site.client().submit(spec(600.0, token="a", array=parse_array("1-2")))
    known = {job: None}
    first, _ = site.link.arrays_of[job]
    site.link.all[first].bad_node = "n3"
    site.clock.sleep(30)
    remembering(site, known)
    assert str(known[job].elements.failed) == "1"
    site.link.all[first].bad_node, site.link.all[first].end_s = "", None
    site.link.requeue(first)
    site.clock.sleep(30)
    remembering(site, known)
    assert (str(known[job].elements.running), known[job].elements.ended) == ("1-2", ())


def test_a_job_that_is_not_shown_once_still_runs_for_the_next_client(world):
    """Though it has left no mark, as one that waits in its allocation has not."""
    site = world(writes_marks=False)
    job = site.client().submit(spec(3000.0, token="a"))
    known = {job: None}
    site.clock.sleep(30)
    remembering(site, known)
    shown, site.link.jobs = site.link.jobs, lambda _: {}
    remembering(site, known)
    assert known[job].state is JobState.RUNNING
    site.link.jobs = shown
    site.link.requeue(job)
    site.link.all[job].held = "JobHeldAdmin"
    remembering(site, known)
    assert (known[job].state, known[job].start_s) == (JobState.PENDING, None)


def test_clients_that_look_once_learn_together_that_a_job_is_gone_which_they_find_by_its_claim_alone(world):
    """It began and never said that it ended: its walltime has to be over, and a minute in which nobody shows it."""
    site = world()
    job = site.client().submit(spec(3000.0, token="a"))
    site.clock.sleep(30)
    site.link.forget(job)
    since_s, states = site.clock(), set()
    while not states & {JobState.FAILED}:
        site.clock.sleep(60)
        assert site.clock() - since_s < 2 * HOUR
        [found] = site.client().find(["a"])["a"]
        states.add(found.state)
    assert (found.reason, JobState.RUNNING in states) == ("Vanished", True)
    assert site.clock() - since_s > HOUR


def test_a_hold_that_an_earlier_client_saw_is_known_to_the_next(world):
    """So that the wait is not learned as one of the queue."""
    site = world()
    job = site.client().submit(spec(600.0, token="a"))
    known = {job: None}
    site.link.hold_by_admin(job)
    site.clock.sleep(2)
    remembering(site, known)
    site.link.all[job].held = ""
    site.clock.sleep(5)
    remembering(site, known)
    assert (known[job].state, known[job].held) == (JobState.RUNNING, True)


def passes(backend, seconds):
    until_s = backend.now() + seconds
    while backend.now() < until_s:
        backend.wait(until_s)


def test_a_look_that_finds_jobs_as_they_were_reads_no_more_of_them(world, monkeypatch):
    """A client of weeks makes thousands of such looks, at all that it has in the queue."""
    site, read = world(latency_s=5000.0), []
    backend = site.client()
    jobs = [backend.submit(spec(5000.0, token=name, begin_s=site.clock() + 900.0)) for name in "ab"]
    jobs.append(backend.submit(spec(5000.0, token="c")))
    passes(backend, 120)
    monkeypatch.setattr(
        tracking, "status_of", lambda record, *_, **how: read.append(record) or status_of(record, *_, **how)
    )
    looks = site.link.calls["jobs"]
    passes(backend, 600)
    assert site.link.calls["jobs"] > looks
    assert not read
    passes(backend, 400)  # two of them become eligible, by the clock alone
    assert {record.job_id for record in read} >= set(jobs[:2])
    assert all(backend.status([job])[job].eligible_s for job in jobs)


def test_jobs_that_have_ended_cost_a_look_nothing(world):
    site = world()
    backend = site.client()
    for number in range(30):
        ended(backend, backend.submit(spec(1.0, token=f"t{number}")))
    backend.wait(backend.now())
    assert not backend._watched
    job = backend.submit(spec(600.0, token="last"))
    assert [one.job_id for one in backend._live()] == [job]


def test_many_tokens_are_looked_for_by_one_reading_of_the_folder(world, monkeypatch):
    """As at the end of a run, by a client that has come for that."""
    site, read = world(min_job_age_s=2.0), []
    backend = site.client()
    jobs = {f"t{number}": backend.submit(spec(1.0, token=f"t{number}")) for number in range(20)}
    for job in jobs.values():
        ended(backend, job)
    site.clock.sleep(60)
    names = marks.MarksFolder.names
    monkeypatch.setattr(marks.MarksFolder, "names", lambda self, tokens: read.append(1) or names(self, tokens))
    found = site.client().find(jobs)
    assert {token: one.job_id for token, [one] in found.items()} == jobs
    assert all(one.state is JobState.COMPLETED for [one] in found.values())
    assert len(read) <= 2


def test_elements_that_slurm_holds_are_known_whatever_the_others_do(world):
    """Until they are released; a job that is held is not expected to start."""
    site = world()
    backend = site.client()
    job = backend.submit(spec(600.0, token="a", array=parse_array("1-4%2")))
    running(backend, job)
    _, second, third, _ = site.link.arrays_of[job]
    site.link.requeue(second)
    for one in (second, third):
        site.link.hold_by_admin(one)
    backend.wait(backend.now() + 120)
    told = backend.status([job])[job]
    assert (told.state, str(told.elements.held), told.elements.held_reason) == (
        JobState.RUNNING, "2-3", "JobHeldAdmin",
    )  # fmt: skip
    assert str(told.elements.running) in {"1", "1,4"}
    for one in (second, third):
        site.link.all[one].held = ""
    backend.wait(backend.now() + 120)
    assert not backend.status([job])[job].elements.held
    assert ended(backend, job).state is JobState.COMPLETED


def test_what_is_held_is_not_expected_to_start():
    record = foreign_record("7", states=("PENDING",), reason="JobHeldUser", expected_start_s=2e9)
    assert status_of(record, 1e9).expected_start_s is None
    assert status_of(replace(record, reason="Priority"), 1e9).expected_start_s == 2e9
