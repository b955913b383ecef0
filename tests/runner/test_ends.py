"""How runs fail, and complete after all, over Slurm's backend on stand-ins with a virtual clock.

A stage fails, a cancellation is lost, the site is away when something is to be given back, a run is tried again:
nothing of ours stays in the queue, and no payload runs twice.
"""

import math
import shutil
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace

import httpx
import pytest
from asa.backends.slurm.backend import SlurmBackend
from slurm_fake import Killed
from slurm_fake_link import FakeLink, VirtualClock
from slurm_faults import BEGIN_S, Trial

from asa.backend import Capabilities, JobState
from asa.errors import JournalError, StateError, SubmitInDoubtError, SubmitRejectedError, UnavailableError
from asa.estimators.store import WaitStore
from asa.records import Cancelled
from asa.runner import Run, RunFolder, RunPlan, drive, run_all
from asa.runner.active import Active
from asa.runner.entries import GivingUp
from asa.runner.folder import _REQUESTS
from asa.runner.journal import read_journal
from asa.strategies import load_strategy
from asa.strategies.base import Cancellation, ForecastKind, Keep, Phase, Plan, PlannedJob
from asa.workflow import Stage, Workflow

SITE = Capabilities("x", 112, 28, age_accrues=False)


def stage(name, command, after=(), expected_s=60.0, walltime_s=86400.0):
    return Stage(name, cores=1, walltime_s=walltime_s, expected_run_s=expected_s, command=command, after=after)


class Place:
    """A run's folder, and an in-memory Slurm that outlives its clients."""

    def __init__(self, path, stages, strategy="per-stage", link=FakeLink, bank="", *, fail_fast=True):
        plan = RunPlan(
            "abcd1234", "x", "x", tuple(stages), strategy, "slurm-cli", SITE, created_s=1.7e9, bank=bank,
            fail_fast=fail_fast,
        )  # fmt: skip
        self.folder, self.clock = RunFolder.create(path, plan), VirtualClock()
        self.link = link(self.clock, self.folder.path)

    def go(self, **options):
        return drive(self.folder, self.connect, **options)

    def connect(self, run):
        return SlurmBackend(self.link, run.path, SITE, clock=self.clock, sleep=self.clock.sleep)

    def ended(self):
        return {job.job.name.partition(".")[0]: job.state for job in self.link.all.values()}


class LostOnce(FakeLink):
    """A Slurm in memory that loses the first cancellation."""

    cancels = 0

    def cancel(self, jobs):
        self.cancels += 1
        if self.cancels == 1:
            return {job.job_id: UnavailableError("the answer was lost") for job in jobs}
        return super().cancel(jobs)


def test_a_cancellation_that_is_lost_is_told_again_soon(tmp_path):
    stages = [stage("a", "sleep 5; exit 1"), stage("b", "sleep 80000")]
    place = Place(tmp_path, stages, link=LostOnce)
    began_s = place.clock()
    result = place.go()
    assert result.outcome == "failed"
    assert place.clock() - began_s < 100
    assert place.ended()["x_b"] == "CANCELLED"
    assert place.folder.state()[0].jobs["2"].status.state is JobState.CANCELLED


@pytest.mark.parametrize("fail_fast", [True, False])
def test_many_jobs_are_cancelled_by_few_calls_and_noted_together(tmp_path, fail_fast):
    """There is one query for the jobs' tokens, one cancellation, and one journal line for each kind of entry."""
    stages = [stage("a", "sleep 500; exit 1"), *(stage(f"b{n}", "sleep 80000", after=("a",)) for n in range(100))]
    place = Place(tmp_path, stages, "chained", fail_fast=fail_fast)
    assert place.go().outcome == "failed"
    states = place.ended()
    assert [states[f"x_b{n}"] for n in range(100)] == ["CANCELLED"] * 100
    assert place.link.calls["cancel"] == 1
    assert place.link.calls["holders"] == 1
    journal = place.folder.path / "journal.jsonl"
    assert len(journal.read_text().splitlines()) < 2 * len(stages) + 20
    given_up = [entry.job_id for entry in read_journal(journal)[0] if isinstance(entry, GivingUp)]
    assert sorted(given_up, key=int) == [str(number) for number in range(2, 102)]


class Mute(FakeLink):
    """A Slurm in memory that shows no jobs for 20 minutes after it was first asked for jobs to be cancelled."""

    since_s = math.inf

    @property
    def is_mute(self):
        return self.since_s <= self.clock() < self.since_s + 1200.0

    def holders(self, job_ids):
        self.since_s = min(self.since_s, self.clock())
        return super().holders(job_ids)

    def _of_numbers(self, job_ids):
        return [] if self.is_mute else super()._of_numbers(job_ids)

    def jobs(self, job_ids):
        found = super().jobs(job_ids)
        return {} if self.is_mute else found

    def denies(self, job_id):
        return super().denies(job_id) and not self.is_mute


class Away(Mute):
    """A Slurm in memory that cannot be reached for 20 minutes."""

    def _call(self, name):
        super()._call(name)
        if self.is_mute:
            raise UnavailableError("no controller")


@pytest.mark.parametrize("link", [Mute, Away])
def test_a_run_that_has_failed_goes_on_until_what_it_cancels_is_told(tmp_path, link):
    """Slurm is unreachable, or answers with empty lists, for longer than a client waits for a cancelled job's end."""
    stages = [stage("a", "sleep 5; exit 1"), stage("b", "sleep 80000"), stage("c", "sleep 80000")]
    place = Place(tmp_path, stages, link=link)
    assert place.go().outcome == "failed"
    assert {name: place.ended()[name] for name in ("x_b", "x_c")} == {"x_b": "CANCELLED", "x_c": "CANCELLED"}


class SlowToCancel(FakeLink):
    """A Slurm in memory in which a cancellation takes effect half a minute after it was sent."""

    def pass_by(self):
        self.clock.sleep(30.0)
        self._advance()

    def cancel(self, jobs):
        self.pass_by()
        return super().cancel(jobs)


class GivesBack:
    """A strategy that submits all jobs at once, and gives back idle ones."""

    forecast = ForecastKind.NONE

    def plan(self, view, forecast):
        waiting = [name for name in view.workflow.order if view.stages[name].phase is Phase.WAITING]
        early = {name: Keep.NOTHING if view.is_ready(name) else Keep.AWAIT for name in waiting}
        jobs = [PlannedJob((name,), view.now_s, keep, "at once") for name, keep in early.items()]
        idle = [stage.job_id for stage in view.stages.values() if stage.phase is Phase.ALLOCATED]
        return Plan.of(jobs, [Cancellation(job_id, "it idles") for job_id in idle])


@pytest.mark.parametrize("when", ["before it is decided", "before it is told"])
def test_a_payload_that_begins_as_its_job_is_given_back_runs_once(tmp_path, when):
    place = Place(tmp_path, [stage("a", "sleep 25"), stage("b", "sleep 50", after=("a",))], link=SlowToCancel)
    backend = place.connect(place.folder)
    if when == "before it is decided":
        backend.withdraw = lambda job_id, real=backend.withdraw: place.link.pass_by() or real(job_id)
    [result] = run_all(backend, [Run(Workflow("x", place.folder.plan.stages), GivesBack(), id="abcd1234")])
    assert result.outcome == "completed"
    begun = [job.state for job in place.link.all.values() if job.payload_s is not None]
    assert begun == ["COMPLETED", "COMPLETED"]
    given_back = [record.stages for record in result.records if isinstance(record, Cancelled)]
    assert given_back == ([] if when == "before it is decided" else [("b",)])


@dataclass
class GivesBackSlowly(GivesBack):
    """A strategy that decides so slowly that its jobs may begin; the second job may have been requeued before."""

    place: Place
    requeues: bool = False

    def plan(self, view, forecast):
        link = self.place.link
        if self.requeues and (job := link.all.get("2")) is not None and job.state == "RUNNING" and not job.restarts:
            link.requeue("2")
            self.place.clock.sleep(30.0)
            return Plan.of((), (), view.now_s + 1)
        plan = super().plan(view, forecast)
        if plan.cancellations and not self.requeues:
            link.pass_by()
        return plan


@pytest.mark.parametrize("requeues", [False, True])
def test_what_began_while_it_was_decided_to_give_its_job_back_runs_once(tmp_path, requeues):
    """The job may also have been requeued before it began."""
    stages = [stage("a", "sleep 45" if requeues else "sleep 25"), stage("b", "sleep 50", after=("a",))]
    place = Place(tmp_path, stages, link=SlowToCancel)
    strategy = GivesBackSlowly(place, requeues)
    backend = place.connect(place.folder)
    [result] = run_all(backend, [Run(Workflow("x", place.folder.plan.stages), strategy, id="abcd1234")])
    assert result.outcome == "completed"
    assert place.link.all["2"].restarts == requeues
    assert [job.state for job in place.link.all.values() if job.payload_s is not None] == ["COMPLETED", "COMPLETED"]


class LosesSecond(FakeLink):
    """A batch system that loses the second submission, which nobody can know."""

    submissions = 0

    def submit(self, job):
        self.submissions += 1
        if self.submissions == 2:
            raise SubmitInDoubtError("the request was lost")
        return super().submit(job)


@pytest.mark.parametrize("strategy", ["elastic", "big-job", "chained"])
def test_a_group_in_doubt_of_which_a_stage_will_not_run_is_asked_for_anew(tmp_path, strategy):
    """The stage cannot run in the group in doubt; if that group's job turns up, it is superseded."""
    stages = [
        # elsewhere than the others, but where all share a job
        replace(stage("x", "sleep 3; exit 1"), partition="" if strategy == "big-job" else "p1"),
        stage("a", "sleep 5", after=("x",)),
        stage("b", "sleep 5"),
    ]
    place = Place(tmp_path, stages, strategy, link=LosesSecond, fail_fast=False)
    began_s = place.clock()
    result = place.go()
    assert result.outcome == "failed"
    told = {name: view.phase.value for name, view in place.folder.state()[0].stages.items()}
    assert told == {"x": "failed", "a": "blocked", "b": "done"}
    assert place.clock() - began_s < 600


class Forgetful(FakeLink):
    """A Slurm whose controller misses the first job's end, and lists the job as pending and held afterwards."""

    def _end(self, job, state, code):
        super()._end(job, state, code)
        if job.job_id == "1" and not job.restarts:
            job.state, job.start_s, job.eligible_s, job.payload_s, job.end_s = "PENDING", None, None, None, None
            job.restarts, job.held = 1, "JobHeldUser"


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "big-job"])
def test_a_job_that_is_back_in_the_queue_though_it_completed_is_waited_for_no_longer(tmp_path, strategy):
    """The job is cancelled, held or not; none of its stages runs again, and the other stages continue."""
    stages = [stage("a", "sleep 5"), stage("b", "sleep 7", after=("a",)), stage("c", "sleep 3", after=("b",))]
    place = Place(tmp_path, stages, strategy, link=Forgetful)
    began_s = place.clock()
    result = place.go()
    assert result.outcome == "completed", result.reason
    assert place.clock() - began_s < 300
    ran = [job for job in place.link.all.values() if job.state == "COMPLETED"]
    assert len(ran) == {"per-stage": 2, "chained": 2, "big-job": 0}[strategy]
    assert place.link.all["1"].state == "CANCELLED"
    assert not [job for job in place.link.all.values() if job.state in {"PENDING", "RUNNING"}]


class LosesACancellation(FakeLink):
    """A batch system whose controller dies after it confirmed a cancellation, before storing it."""

    lost = False

    def jobs(self, job_ids):
        found = super().jobs(job_ids)
        if not self.lost and any("CANCELLED" in record.states for record in found.values()):
            self.lost = True
            for job in self.all.values():
                if job.state == "CANCELLED":
                    job.state, job.end_s, job.held = "PENDING", None, "JobHeldAdmin"
        return found


@pytest.mark.parametrize("strategy", ["chained", "asa"])
def test_a_job_whose_cancellation_was_lost_does_not_stay_in_the_queue(tmp_path, strategy):
    stages = [stage("a", "sleep 50; exit 1"), stage("b", "sleep 7", after=("a",)), stage("c", "sleep 300")]
    place = Place(tmp_path, stages, strategy, link=LosesACancellation, fail_fast=False)
    result = place.go()
    assert result.outcome == "failed"
    assert place.link.lost
    assert not [job.job_id for job in place.link.all.values() if job.state in {"PENDING", "RUNNING"}]


class RequeuesLate(FakeLink):
    """A Slurm that requeues the first job as it completes; the job starts again, and finds that it has completed."""

    def _mark(self, job, kind, code=None, outcome=None):
        if not job.restarts:
            super()._mark(job, kind, code, outcome)

    def _end(self, job, state, code):
        super()._end(job, state, code)
        if job.job_id == "1" and not job.restarts:
            job.state, job.restarts, job.run_s, job.end_s = "RUNNING", 1, 1.0, None
            job.start_s = job.payload_s = self.now_s + 20


def test_a_stage_whose_job_is_requeued_as_it_ends_ran_when_it_ran(tmp_path):
    stages = [stage("a", "sleep 500"), stage("b", "sleep 7", after=("a",))]
    place = Place(tmp_path, stages, link=RequeuesLate)
    result = place.go()
    assert result.outcome == "completed", result.reason
    assert place.link.all["1"].restarts == 1
    view = place.folder.state()[0].stages["a"]
    assert view.ended_s - view.started_s == pytest.approx(500, abs=5)


class Reuses(FakeLink):
    """A Slurm that reuses the numbers of cancelled jobs, like a controller that lost its latest state."""

    def submit(self, job):
        gone = [one for one, other in self.all.items() if other.state == "CANCELLED"]
        self._next_id = min(map(int, gone), default=max(map(int, self.all), default=0) + 1)
        self.all.pop(str(self._next_id), None)
        return super().submit(job)


@pytest.mark.parametrize("strategy", ["chained", "asa", "elastic"])
def test_a_number_that_another_job_had_is_cancelled_again(tmp_path, strategy):
    """The first attempt's successors are cancelled, and then the second attempt's, which have the same numbers."""
    stages = [
        replace(stage("a", "sleep 5; exit 1"), retries=2),
        *(replace(stage(name, "sleep 5", after=("a",)), partition="other") for name in "bc"),
    ]
    place = Place(tmp_path, stages, strategy, link=Reuses, fail_fast=False)
    began_s = place.clock()
    result = place.go()
    assert result.outcome == "failed"
    assert sum(job.name.startswith("x_a") for job in place.link.submitted) == 3
    assert place.clock() - began_s < 600
    assert not [job for job in place.link.all.values() if job.state in {"PENDING", "RUNNING"}]


class Forgets(FakeLink):
    """A Slurm that loses the first job before it starts, and gives its number to the next job."""

    def submit(self, job):
        if len(self.submitted) == 1:
            self._next_id = int(self.all.popitem()[0])
        return super().submit(job)


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "asa"])
def test_a_job_whose_number_another_has_is_asked_for_again(tmp_path, strategy):
    """A killed controller lost the job, so its number is never heard of again; this does not count as an attempt."""
    stages = [stage("a", "sleep 5"), stage("b", "sleep 5"), stage("c", "sleep 5", after=("a", "b"))]
    place = Place(tmp_path, stages, strategy, link=Forgets)
    assert place.go().outcome == "completed"
    assert Counter(job.name.partition(".")[0] for job in place.link.submitted) == {"x_a": 2, "x_b": 1, "x_c": 1}
    assert set(place.ended().values()) == {"COMPLETED"}


class AwayOnceCancelled(FakeLink):
    """A Slurm that is unreachable for two minutes after its first cancellation."""

    back_s = math.inf

    def cancel(self, jobs):
        left = super().cancel(jobs)
        if self.back_s == math.inf:
            self.down, self.back_s = True, self.now_s + 120
        return left

    def _call(self, name):
        if self.now_s >= self.back_s:
            self.down = False
        return super()._call(name)


class GivesBackOnce:
    """A strategy that chains all jobs and gives the first one back, for no reason, half a minute later."""

    name, forecast = "gives-back-once", ForecastKind.NONE

    def __init__(self):
        self.chained, self.is_done, self.back_s = load_strategy("chained"), False, math.inf

    def plan(self, view, forecast):
        first = view.stages["a"]
        if first.job_id is None:
            return self.chained.plan(view, forecast)
        self.back_s = min(self.back_s, view.now_s + 30)
        if not self.is_done and view.stages["b"].job_id and view.now_s >= self.back_s:
            self.is_done = True
            return Plan(cancellations=(Cancellation(first.job_id, "for no reason"),))
        return replace(self.chained.plan(view, forecast), wake_s=self.back_s if view.now_s < self.back_s else None)


def test_what_cannot_start_any_more_is_given_up_once_the_batch_system_can_be_asked(tmp_path):
    place = Place(tmp_path, [stage("a", "sleep 300"), stage("b", "sleep 5", after=("a",))], link=AwayOnceCancelled)
    calls = []
    backend = place.connect(place.folder)
    backend.status = lambda ids, real=backend.status: calls.append(place.clock()) or real(ids)
    with closing(backend):
        run = Run(Workflow("x", place.folder.plan.stages), GivesBackOnce(), id="abcd1234")
        [result] = run_all(backend, [run])
    assert result.outcome == "completed", result.reason
    assert place.clock() - place.link.back_s < 600
    ended = Counter(job.state for job in place.link.all.values())
    assert ended == {"COMPLETED": 2, "CANCELLED": 2}
    away = sum(place.link.back_s - 120 < at < place.link.back_s for at in calls)
    assert away < 100, "it is asked now and then"


class DoubtfulOnce(FakeLink):
    """A Slurm that loses the first submission silently."""

    submissions = 0

    def submit(self, job):
        self.submissions += 1
        if self.submissions == 1:
            raise SubmitInDoubtError("the request was lost")
        return super().submit(job)


@pytest.mark.parametrize("run_s", [*range(1, 60, 3), *range(290, 320, 3)])
def test_what_a_look_for_duplicates_hears_is_heard_by_the_run(tmp_path, run_s):
    """The job ends before that look, or after it."""
    place = Place(tmp_path, [stage("a", f"sleep {run_s}"), stage("b", "sleep 5", ("a",))], link=DoubtfulOnce)
    assert place.go().outcome == "completed"


def test_a_wish_that_nobody_understands_does_no_harm(tmp_path):
    place = Place(tmp_path, [stage("a", "sleep 50")])
    (place.folder.path / _REQUESTS / "1.json").write_text('{"run": "x", "what": "dance"}')
    place.clock.nudges.add(place.clock() + 20)
    assert place.go().outcome == "completed"


def test_a_stage_that_is_refused_is_named(tmp_path):
    class Strict(FakeLink):
        def submit(self, job):
            if ".abcd1234-2" in job.name:
                raise SubmitRejectedError("no such feature", hint="Take it out.")
            return super().submit(job)

    place = Place(tmp_path, [stage("a", "sleep 5"), stage("b", "sleep 5", ("a",))], link=Strict)
    result = place.go()
    assert (result.outcome, result.reason) == ("failed", "stage 'b' was refused: no such feature. Take it out.")
    assert list(place.folder.state()[0].ending.refused) == ["b"]


@pytest.mark.parametrize("at", ["open", "write"])
def test_a_bank_that_fails_ends_no_run(tmp_path, monkeypatch, at):
    place = Place(tmp_path, [stage("a", "sleep 5"), stage("b", "sleep 5", ("a",))], "asa", bank=str(tmp_path / "bank"))

    def fail(*_, **__):
        raise StateError("the disk is full", where="bank")

    monkeypatch.setattr(WaitStore, "read" if at == "open" else "append", fail)
    monkeypatch.setattr(WaitStore, "extend", fail)
    result = place.go()
    assert result.outcome == "completed"
    assert ("the disk is full" in result.trouble) == (at == "write")


def test_a_journal_that_is_gone_is_missed(tmp_path):
    place = Place(tmp_path, [stage("a", "sleep 5")])
    place.go()
    posts = place.folder.path / "posts"
    posts.mkdir(exist_ok=True)
    (posts / "abcd1234%2Fa").touch()
    (place.folder.path / "journal.jsonl").unlink()
    with pytest.raises(JournalError, match="does not know of stage 'a', which has completed"):
        place.go()


# ---------------------------------------------------------------------- scripts that really run


class Story(Trial):
    """Four stages, of which b fails unless a file is repaired; each writes a line when it begins and when it ends."""

    def __init__(self, folder, version, strategy, runs_s):
        super().__init__(folder, version, strategy)
        self.down = (math.inf, -math.inf)
        self.transport, self.reached = self, self.transport
        ran = folder / "ran"
        self.flow = Workflow(
            "four",
            [
                Stage(
                    name, cores=28, walltime_s=900, expected_run_s=run_s, after=after,
                    command=f"echo {name} >>'{ran}'; sleep {run_s}; [ {name} != b ] || [ -e '{folder}/mended' ]",
                )
                for (name, after), run_s in zip(
                    [("a", ()), ("b", ("a",)), ("c", ("a",)), ("d", ("b", "c"))], runs_s, strict=True
                )
            ],
        )  # fmt: skip
        (folder / "mended").touch()
        self.slurm.min_job_age_s = 1e6

    def handle_request(self, request):
        now_s = self.slurm.clock() - 1_800_000_000
        if self.down[0] <= now_s < self.down[1]:
            self.slurm.sleep(0.01)
            raise httpx.ConnectError("nobody", request=request)
        return self.reached.handle_request(request)

    def close(self):
        pass

    def ran(self):
        return Counter((self.folder / "ran").read_text().split())

    def left(self):
        return [job for job in self.slurm.jobs.values() if not job.is_final and job.ask.name != "foreign"]


@pytest.fixture
def story(tmp_path):
    made = []

    def make(version, strategy, *runs_s):
        made.append(Story(tmp_path, version, strategy, runs_s))
        return made[0]

    yield make
    for one in made:
        one.slurm.stop()


@pytest.mark.parametrize("strategy", ["per-stage", "chained"])
def test_what_still_runs_is_ended_before_a_run_is_tried_again(story, strategy, monkeypatch):
    """The client is killed after it heard of b's failure, and before it could cancel c."""
    one = story("26.05", strategy, 70, 60, 400, 70)
    (one.folder / "mended").unlink()
    real, armed = Active.commit, [True]

    def commit(active, *entries):
        real(active, *entries)
        if armed and active.state.outcome == "failed":
            armed.clear()
            raise Killed

    monkeypatch.setattr(Active, "commit", commit)
    with pytest.raises(Killed):
        one.client(fail_fast=True)
    (one.folder / "mended").touch()
    result = one.client(retry=True)
    assert result.outcome == "completed", result.reason
    assert one.ran() == {"a": 1, "b": 2, "c": 2, "d": 1}
    spans = sorted(
        (job.start_s, job.end_s) for job in one.slurm.jobs.values() if "-3-" in job.ask.name and job.start_s is not None
    )
    assert len(spans) == 2
    assert spans[0][1] <= spans[1][0], "never side by side"
    assert not one.left()


def test_what_completed_meanwhile_is_not_run_again(story):
    """Stage c completes after b's failure, while no client runs."""
    one = story("26.05", "per-stage", 70, 60, 100, 70)
    (one.folder / "mended").unlink()
    one.down = (150, 400)
    result = one.client()
    assert result.outcome == "failed"
    (one.folder / "mended").touch()
    result = one.client(retry=True)
    assert result.outcome == "completed", result.reason
    assert one.ran() == {"a": 1, "b": 2, "c": 1, "d": 1}


@pytest.mark.full
@pytest.mark.parametrize("version", ["22.05", "26.05"])
@pytest.mark.parametrize("to_s", [340, 425, 500])
def test_nothing_is_given_back_on_old_news(story, version, to_s):
    """Slurm is unreachable while an allocation that came early becomes due."""
    one = story(version, "asa-naive", 300, 50, 60, 20)
    one.down = (304, to_s)
    result = one.client()
    assert result.outcome == "completed", result.reason
    assert one.ran() == dict.fromkeys("abcd", 1)
    assert not one.left()


def test_who_is_given_back_has_ended_before_another_is_asked_for(story):
    one = story("26.05", "asa-naive", 300, 50, 60, 20)
    one.slurm.occupy(112, BEGIN_S, BEGIN_S + 400)  # so that all are asked for long before they are needed
    result = one.client()
    assert result.outcome == "completed"
    assert one.ran() == dict.fromkeys("abcd", 1)
    again = [r for r in result.records if isinstance(r, Cancelled)]
    assert again, "something came early"


@pytest.mark.parametrize(("strategy", "asks"), [("asa", True), ("per-stage", False)])
def test_what_slurm_said_of_a_job_is_kept_with_what_became_of_it(tmp_path, strategy, asks):
    """The record is written once for each submission with a forecast, even if the client is killed in between."""
    place = Place(tmp_path / "run", [stage("a", "true")], strategy, bank=str(tmp_path / "bank"))
    place.link.says_s = 90.0
    assert place.go().outcome == "completed"
    [kept] = WaitStore(tmp_path / "bank").read()
    assert kept.word_s == (90.0 if asks else None)
    assert len(place.link.estimated) == asks
    shutil.rmtree(tmp_path / "bank")
    place.go()  # of the journal alone
    [again] = WaitStore(tmp_path / "bank").read()
    assert again.word_s == kept.word_s


def test_slurm_is_not_asked_where_the_queue_is_seen(tmp_path):
    place = Place(tmp_path / "run", [stage("a", "true")], "asa", bank=str(tmp_path / "bank"))
    place.folder.revise(estimator="asa-queue")
    assert place.go().outcome == "completed"
    assert not place.link.estimated
